#include "gpu_timer.hpp"

#include <string_view>

namespace game {

std::optional<gpu_timer> gpu_timer::of(SDL_Renderer* renderer) {
  SDL_RendererInfo info;
  if (SDL_GetRendererInfo(renderer, &info) != 0 || std::string_view(info.name) != "opengl") return std::nullopt;
  if (!SDL_GL_ExtensionSupported("GL_ARB_timer_query")) return std::nullopt;
  functions gl{reinterpret_cast<PFNGLGENQUERIESPROC>(SDL_GL_GetProcAddress("glGenQueries")),
               reinterpret_cast<PFNGLBEGINQUERYPROC>(SDL_GL_GetProcAddress("glBeginQuery")),
               reinterpret_cast<PFNGLENDQUERYPROC>(SDL_GL_GetProcAddress("glEndQuery")),
               reinterpret_cast<PFNGLGETQUERYOBJECTUI64VPROC>(SDL_GL_GetProcAddress("glGetQueryObjectui64v"))};
  if (!gl.generate || !gl.begin || !gl.end || !gl.get) return std::nullopt;
  return gpu_timer(renderer, gl);
}

gpu_timer::gpu_timer(SDL_Renderer* renderer, const functions& gl) : renderer_(renderer), gl_(gl) {
  gl_.generate(static_cast<GLsizei>(queries_.size()), queries_.data());
}

void gpu_timer::begin(bool engine_works) {
  is_timing_ = begun_ - finished_ < max_pending;
  if (!is_timing_) return;
  // SDL collects what it draws.
  SDL_RenderFlush(renderer_);
  engine_works_[begun_ % max_pending] = engine_works;
  gl_.begin(GL_TIME_ELAPSED, queries_[begun_ % max_pending]);
}

void gpu_timer::end() {
  if (!is_timing_) return;
  SDL_RenderFlush(renderer_);
  gl_.end(GL_TIME_ELAPSED);
  begun_++;
}

std::vector<drawn_picture> gpu_timer::finished() {
  std::vector<drawn_picture> pictures;
  for (; finished_ < begun_; finished_++) {
    GLuint64 is_finished = 0, nanoseconds = 0;
    gl_.get(queries_[finished_ % max_pending], GL_QUERY_RESULT_AVAILABLE, &is_finished);
    if (!is_finished) break;
    gl_.get(queries_[finished_ % max_pending], GL_QUERY_RESULT, &nanoseconds);
    pictures.push_back({engine_works_[finished_ % max_pending], microseconds{nanoseconds / 1000}});
  }
  return pictures;
}

}  // namespace game
