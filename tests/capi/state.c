/* The prefix cache in the caller's hands: salts, pins, and forgetting. */
#include "check.h"

enum { PROMPT = 40, BLOCK = 16 };

static uint32_t prompt[PROMPT];

/* Runs a prompt of PROMPT tokens to its end; answers how many of them were cached. */
static uint32_t cached(nvllm_engine *engine, const nvllm_request_options *options, uint64_t *id) {
  nvllm_error error;
  nvllm_output output = {.struct_size = sizeof output};
  uint32_t cached = UINT32_MAX;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, prompt, PROMPT, options, id, &error), &error, "add");
  while (!nvllm_is_finished(engine)) {
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) cached = output.cached_tokens;
  }
  return cached;
}

static void salts_keep_tenants_apart(nvllm_engine *engine) {
  nvllm_request_options options = options_of(1);
  options.cache_salt = 1;
  CHECK(cached(engine, &options, NULL) == 0, "the first of salt 1");
  CHECK(cached(engine, &options, NULL) == 2 * BLOCK, "the second of salt 1");
  options.cache_salt = 2;
  CHECK(cached(engine, &options, NULL) == 0, "the first of salt 2");
}

static void a_pinned_prompt_survives_a_reset_until_it_is_released(nvllm_engine *engine) {
  nvllm_error error;
  nvllm_stats stats = {.struct_size = sizeof stats};
  nvllm_request_options options = options_of(1);
  uint64_t id = 0, other = 0;
  cached(engine, &options, &other);
  options.pin_prompt = 1;
  CHECK(cached(engine, &options, &id) == 2 * BLOCK, "found, then pinned");
  options.pin_prompt = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_reset_prefix_cache(engine, &error), &error, "reset");
  CHECK(cached(engine, &options, NULL) == 2 * BLOCK, "a pinned prompt stays");
  CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &stats, &error), &error, "stats");
  CHECK(stats.kv_blocks_pinned == 2 && stats.kv_blocks_used == 2, "%u pinned, %u used", stats.kv_blocks_pinned,
        stats.kv_blocks_used);
  CHECK(stats.prefix_cache_hits > 0 && stats.prefix_cache_queries > stats.prefix_cache_hits, "counts");
  CHECK(nvllm_release_prefix(engine, other) == NVLLM_ERR_NOT_FOUND, "a request that pins nothing");
  CHECK(nvllm_release_prefix(engine, id) == NVLLM_OK, "release");
  CHECK(nvllm_release_prefix(engine, id) == NVLLM_ERR_NOT_FOUND, "release twice");
  CHECK_STATUS(NVLLM_OK, nvllm_reset_prefix_cache(engine, &error), &error, "reset");
  CHECK(cached(engine, &options, NULL) == 0, "a released prompt is forgotten");
  check_still_works(engine, "pins");
}

static void too_many_pins_are_refused(nvllm_engine *engine) {
  nvllm_error error;
  nvllm_request_options options = options_of(1);
  uint64_t ids[4096];
  size_t pins = 0;
  nvllm_status status;
  options.pin_prompt = 1;
  while ((status = nvllm_add_request_tokens(engine, prompt, PROMPT, &options, &ids[pins], &error)) == NVLLM_OK) {
    if (++pins == sizeof ids / sizeof *ids) break;
  }
  CHECK(status == NVLLM_ERR_OUT_OF_MEMORY, "after %zu pins: %s", pins, nvllm_status_name(status));
  CHECK(strstr(error.message, "pin_prompt asks for 2 KV blocks") != NULL, "%s", error.message);
  run_to_end(engine);
  for (size_t i = 0; i < pins; i++) CHECK(nvllm_release_prefix(engine, ids[i]) == NVLLM_OK, "release %zu", i);
  check_still_works(engine, "too many pins");
}

int main(int argc, char **argv) {
  nvllm_engine *engine = open_engine(model_folder(argc, argv));
  for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = 5 + i;
  salts_keep_tenants_apart(engine);
  a_pinned_prompt_survives_a_reset_until_it_is_released(engine);
  too_many_pins_are_refused(engine);
  nvllm_engine_free(engine);
  return checks_end();
}
