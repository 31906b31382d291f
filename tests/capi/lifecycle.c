/* How engines begin and end: progress, cancelled loads, the log, free at any moment, fork. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

static nvllm_error error;

struct loading {
  int calls, cancel;
  float last;
};

static int32_t watch_loading(float fraction, void *user_data) {
  struct loading *loading = user_data;
  CHECK(fraction >= loading->last && fraction <= 1.0f, "from %f to %f", (double)loading->last, (double)fraction);
  loading->calls++;
  loading->last = fraction;
  return loading->cancel;
}

static void loading_reports_progress_and_can_be_cancelled(const char *folder) {
  struct loading loading = {0, 0, 0.0f};
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.num_threads = 1;
  config.kv_cache_bytes = 8u << 20;
  config.progress = watch_loading;
  config.progress_user_data = &loading;
  CHECK_STATUS(NVLLM_OK, nvllm_engine_new(&config, &engine, &error), &error, "a watched load");
  CHECK(loading.calls > 0 && loading.last == 1.0f, "%d calls, the last of %f", loading.calls, (double)loading.last);
  nvllm_engine_free(engine);
  engine = NULL;
  loading = (struct loading){0, 1, 0.0f};
  CHECK_STATUS(NVLLM_ERR_CANCELLED, nvllm_engine_new(&config, &engine, &error), &error, "a cancelled load");
  CHECK(engine == NULL && loading.calls == 1, "no engine after %d calls", loading.calls);
}

static void free_with_requests_in_every_state(const char *folder) {
  nvllm_engine *engine = open_engine(folder);
  for (int i = 0; i < 40; i++) add_tokens(engine, 50); /* more than run at once: some wait */
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 1, NULL, &error), &error, "a pass that is cut");
  nvllm_engine_free(engine);
  nvllm_engine_free(open_engine(folder));
}

struct freed {
  nvllm_engine *engine;
  int calls;
};

static int32_t free_from_output(const nvllm_output *output, void *user_data) {
  struct freed *freed = user_data;
  (void)output;
  if (freed->calls++ == 0) nvllm_engine_free(freed->engine);
  return 0;
}

static int32_t free_from_progress(const nvllm_progress *progress, void *user_data) {
  struct freed *freed = user_data;
  (void)progress;
  if (freed->calls++ == 0) nvllm_engine_free(freed->engine);
  return 0;
}

/* The engine ends when the call that is inside it returns, and calls nothing of the host's any more. */
static void free_inside_a_callback(const char *folder) {
  struct freed freed = {open_engine(folder), 0};
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(freed.engine, free_from_output, &freed, &error), &error, "push");
  for (int i = 0; i < 3; i++) add_tokens(freed.engine, 5);
  CHECK_STATUS(NVLLM_OK, nvllm_step(freed.engine, 0, NULL, &error), &error, "the step that it ends in");
  CHECK(freed.calls == 1, "%d calls after the end", freed.calls - 1);

  const char *prompts[] = {"one", "two"};
  nvllm_result *result = NULL;
  freed = (struct freed){open_engine(folder), 0};
  CHECK_STATUS(NVLLM_ERR_CANCELLED,
               nvllm_generate(freed.engine, prompts, NULL, 2, NULL, 0, free_from_progress, &freed, &result, &error), &error,
               "the batch that it ends in");
  CHECK(freed.calls == 1 || freed.calls == 2, "%d calls", freed.calls);
  CHECK(result == NULL, "no result");
}

struct logged {
  int messages, nested;
  nvllm_engine *engine;
};

static void take_message(int32_t level, const char *message, size_t message_len, void *user_data) {
  struct logged *logged = user_data;
  nvllm_stats stats = {.struct_size = sizeof stats};
  CHECK(level >= NVLLM_LOG_ERROR && level <= NVLLM_LOG_DEBUG, "level %d", level);
  CHECK(strlen(message) == message_len && message_len > 0, "message of %zu bytes: %s", message_len, message);
  logged->messages++;
  /* A call inside the callback does not come back to it. */
  if (logged->engine != NULL) logged->nested += nvllm_get_stats(logged->engine, &stats, NULL) == NVLLM_OK;
}

static void the_log_is_silent_until_somebody_listens(const char *folder) {
  struct logged logged = {0, 0, NULL};
  nvllm_set_log_callback(take_message, &logged, NVLLM_LOG_DEBUG);
  nvllm_engine *engine = open_engine(folder);
  CHECK(logged.messages > 0, "opening an engine is logged");
  int heard = logged.messages;
  nvllm_set_log_callback(NULL, NULL, NVLLM_LOG_DEBUG);
  nvllm_engine_free(engine);
  nvllm_engine_free(open_engine(folder));
  CHECK(logged.messages == heard, "silence means silence");
  nvllm_set_log_callback(take_message, &logged, NVLLM_LOG_OFF);
  nvllm_engine_free(open_engine(folder));
  CHECK(logged.messages == heard, "level 0 is silence too");
  nvllm_set_log_callback(NULL, NULL, 0);
}

#ifndef _WIN32
/* In the child each call answers an error, and free touches nothing. The child reports through a pipe: valgrind may change
 * its exit status, because what the child cannot free is lost. */
static void a_fork_cannot_use_the_engine(const char *folder) {
  nvllm_engine *engine = open_engine(folder);
  uint64_t id = add_tokens(engine, 3);
  int ends[2];
  if (pipe(ends) != 0) exit(1);
  pid_t child = fork();
  if (child == 0) {
    nvllm_output output = {.struct_size = sizeof output};
    int wrong = 0;
    wrong += nvllm_step(engine, 0, NULL, &error) != NVLLM_ERR_UNSUPPORTED;
    wrong += strstr(error.message, "fork") == NULL;
    wrong += nvllm_add_request(engine, "a", 1, NULL, NULL, NULL) != NVLLM_ERR_UNSUPPORTED;
    wrong += nvllm_poll_output(engine, &output, NULL) != NVLLM_ERR_UNSUPPORTED;
    wrong += nvllm_cancel(engine, id) != NVLLM_ERR_UNSUPPORTED;
    wrong += nvllm_is_finished(engine) != 1;
    wrong += nvllm_wait(engine, UINT64_MAX, NULL) != NVLLM_ERR_UNSUPPORTED;
    nvllm_engine_free(engine);
    ssize_t written = write(ends[1], &wrong, sizeof wrong);
    _exit(written != sizeof wrong);
  }
  int status = -1, wrong = -1;
  CHECK(child > 0 && read(ends[0], &wrong, sizeof wrong) == sizeof wrong, "the child answers");
  CHECK(wrong == 0, "%d calls of the child went wrong", wrong);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "the child ends: %d", status);
  close(ends[0]);
  close(ends[1]);
  CHECK(run_to_end(engine) == 3, "the parent goes on");
  nvllm_engine_free(engine);
}
#endif

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  loading_reports_progress_and_can_be_cancelled(folder);
  free_with_requests_in_every_state(folder);
  free_inside_a_callback(folder);
  the_log_is_silent_until_somebody_listens(folder);
#ifndef _WIN32
  a_fork_cannot_use_the_engine(folder);
#endif
  return checks_end();
}
