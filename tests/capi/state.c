/* State in the caller's hands: salts, pins and forgetting, embeddings, saved prefixes, forks. */
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

/* Runs requests at once whose prompts share nothing. */
static void run_others(nvllm_engine *engine, uint32_t requests) {
  nvllm_error error;
  nvllm_request_options options = options_of(4);
  uint32_t tokens[PROMPT];
  options.ignore_eos = 1;
  for (uint32_t request = 0; request < requests; request++) {
    for (uint32_t i = 0; i < PROMPT; i++) tokens[i] = 5 + (request * 31 + i * 7) % 200;
    CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, tokens, PROMPT, &options, NULL, &error), &error, "add");
  }
  run_to_end(engine);
}

static void memory_is_given_back_and_comes_again(nvllm_engine *engine) {
  nvllm_error error;
  nvllm_model_info info = {.struct_size = sizeof info};
  nvllm_stats before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
  nvllm_request_options options = options_of(1);
  uint64_t id = 0, freed = 0, misaligned[2];
  CHECK_STATUS(NVLLM_OK, nvllm_engine_model_info(engine, &info, &error), &error, "info");
#if defined(__linux__) || defined(_WIN32)
  /* The cache is smaller than the pieces in which a GPU gives memory back. */
  int gives_back = info.device == NVLLM_DEVICE_CPU;
#else
  int gives_back = 0;
#endif
  CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, NULL, &error), &error, "trim");
  options.pin_prompt = 1;
  cached(engine, &options, &id);
  options.pin_prompt = 0;
  for (int round = 0; round < 2; round++) {
    run_others(engine, 4);
    CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &before, &error), &error, "stats");
    CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, &freed, &error), &error, "trim");
    CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &after, &error), &error, "stats");
    uint64_t fell = before.kv_cache_bytes_mapped - after.kv_cache_bytes_mapped;
    CHECK((freed > 0) == gives_back && freed <= fell && after.kv_cache_bytes_mapped > 0, "%llu bytes of %llu", (unsigned long long)freed,
          (unsigned long long)before.kv_cache_bytes_mapped);
    CHECK(after.kv_blocks_used == 2 && after.kv_blocks_total == before.kv_blocks_total, "%u blocks are used", after.kv_blocks_used);
    CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, &freed, &error), &error, "twice");
    CHECK(freed == 0, "%llu bytes the second time", (unsigned long long)freed);
    CHECK(cached(engine, &options, NULL) == 2 * BLOCK, "a pinned prompt stays");
  }
  freed = 77;
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_trim(engine, (uint64_t *)(void *)((char *)misaligned + 1), &error), &error, "place");
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_trim(NULL, &freed, &error), &error, "NULL");
  CHECK(freed == 77, "nothing is stored where it fails");
  CHECK(nvllm_release_prefix(engine, id) == NVLLM_OK, "release");
  CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, NULL, &error), &error, "trim");
  CHECK(cached(engine, &options, NULL) == (gives_back ? 0 : 2 * BLOCK), "a released prompt is evicted if memory is given back");
  check_still_works(engine, "trims");
}

static void too_many_pins_are_refused(nvllm_engine *engine) {
  nvllm_error error;
  nvllm_request_options options = options_of(1);
  nvllm_stats stats = {.struct_size = sizeof stats};
  uint64_t ids[4096];
  size_t pins = 0;
  nvllm_status status;
  options.pin_prompt = 1;
  while ((status = nvllm_add_request_tokens(engine, prompt, PROMPT, &options, &ids[pins], &error)) == NVLLM_OK) {
    if (++pins == sizeof ids / sizeof *ids) break;
  }
  CHECK(status == NVLLM_ERR_OUT_OF_MEMORY, "after %zu pins: %s", pins, nvllm_status_name(status));
  CHECK(strstr(error.message, "pin_prompt asks for 2 KV blocks") != NULL, "%s", error.message);
  /* What ends before it is computed pins nothing, and makes room again. */
  CHECK(nvllm_release_prefix(engine, ids[0]) == NVLLM_OK, "the first is released by hand");
  for (size_t i = 0; i < pins; i++) CHECK(nvllm_cancel(engine, ids[i]) == NVLLM_OK, "cancel %zu", i);
  run_to_end(engine);
  CHECK(nvllm_release_prefix(engine, ids[1]) == NVLLM_ERR_NOT_FOUND, "a cancelled one pins nothing");
  CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &stats, &error), &error, "stats");
  CHECK(stats.kv_blocks_pinned == 0 && stats.kv_blocks_used == 0, "%u pinned, %u used", stats.kv_blocks_pinned,
        stats.kv_blocks_used);
  check_still_works(engine, "too many pins");
}

static void a_prompt_becomes_one_embedding(nvllm_engine *engine) {
  static const uint32_t kinds[] = {NVLLM_POOLING_LAST, NVLLM_POOLING_MEAN};
  nvllm_error error;
  nvllm_model_info info = {.struct_size = sizeof info};
  CHECK_STATUS(NVLLM_OK, nvllm_engine_model_info(engine, &info, &error), &error, "info");
  for (size_t kind = 0; kind < 2; kind++) {
    nvllm_output output = {.struct_size = sizeof output};
    nvllm_request_options options = options_of(5);
    int outputs = 0;
    options.pooling = kinds[kind];
    CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, prompt, PROMPT, &options, NULL, &error), &error, "add");
    while (!nvllm_is_finished(engine)) {
      CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
      while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
        double square = 0;
        outputs++;
        CHECK(output.finish_reason == NVLLM_FINISH_STOP && output.num_token_ids == 0, "nothing is generated");
        CHECK(output.embedding_len == info.hidden_size, "%zu numbers", output.embedding_len);
        for (size_t i = 0; i < output.embedding_len; i++) square += (double)output.embedding[i] * output.embedding[i];
        CHECK(square > 0 && square < 1e12, "the square of its length is %g", square);
      }
    }
    CHECK(outputs == 1, "%d outputs", outputs);
    options.n = 2;
    CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_add_request_tokens(engine, prompt, PROMPT, &options, NULL, &error), &error,
                 "two embeddings of one prompt");
  }
  nvllm_output output = {.struct_size = sizeof output};
  add_tokens(engine, 1);
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  CHECK_STATUS(NVLLM_OK, nvllm_poll_output(engine, &output, &error), &error, "poll");
  CHECK(output.embedding == NULL && output.embedding_len == 0, "an answer has no embedding");
  check_still_works(engine, "embeddings");
}

static void a_prefix_goes_on_in_another_engine(nvllm_engine *engine, const char *folder) {
  static uint8_t bytes[1 << 20];
  nvllm_error error;
  size_t needed = 0, saved = 0, restored = 0;
  nvllm_request_options options = options_of(1);
  nvllm_engine *other = open_engine(folder);
  options.cache_salt = 77;
  CHECK_STATUS(NVLLM_ERR_NOT_FOUND, nvllm_save_prefix(engine, prompt, PROMPT, 77, NULL, 0, &needed, &saved, &error), &error,
               "nothing is there");
  cached(engine, &options, NULL);
  CHECK_STATUS(NVLLM_ERR_BUFFER_TOO_SMALL, nvllm_save_prefix(engine, prompt, PROMPT, 77, NULL, 0, &needed, &saved, &error),
               &error, "the size");
  CHECK(saved == 0 && needed > 0 && needed <= sizeof bytes, "%zu bytes, %zu tokens", needed, saved);
  CHECK_STATUS(NVLLM_ERR_BUFFER_TOO_SMALL,
               nvllm_save_prefix(engine, prompt, PROMPT, 77, bytes, needed - 1, &needed, &saved, &error), &error, "too small");
  CHECK_STATUS(NVLLM_OK, nvllm_save_prefix(engine, prompt, PROMPT, 77, bytes, sizeof bytes, &needed, &saved, &error), &error,
               "save");
  CHECK(saved == 2 * BLOCK, "%zu tokens", saved);
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_restore_prefix(other, bytes, needed - 1, &restored, &error), &error, "cut");
  CHECK(strstr(error.message, "length") != NULL, "%s", error.message);
  bytes[needed / 2] ^= 1;
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_restore_prefix(other, bytes, needed, &restored, &error), &error, "damaged");
  CHECK(strstr(error.message, "checksum") != NULL, "%s", error.message);
  bytes[needed / 2] ^= 1;
  CHECK(restored == 0, "%zu tokens", restored);
  check_still_works(other, "bad bytes");
  CHECK_STATUS(NVLLM_OK, nvllm_restore_prefix(other, bytes, needed, &restored, &error), &error, "restore");
  CHECK(restored == 2 * BLOCK && cached(other, &options, NULL) == 2 * BLOCK, "the other engine has it");
  CHECK_STATUS(NVLLM_OK, nvllm_restore_prefix(other, bytes, needed, NULL, NULL), &error, "again, and nobody wants to know");
  nvllm_engine_free(other);
}

static void a_running_request_forks(nvllm_engine *engine) {
  nvllm_error error;
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_request_options options = options_of(12);
  uint32_t texts[2][12];
  size_t lens[2] = {0, 0};
  uint64_t id = add_tokens(engine, 12), fork = 0;
  for (int i = 0; i < 5; i++) CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  options.ignore_eos = 1;
  CHECK_STATUS(NVLLM_ERR_NOT_FOUND, nvllm_fork(engine, id + 1, 0, &options, &fork, &error), &error, "no such request");
  CHECK_STATUS(NVLLM_ERR_NOT_FOUND, nvllm_fork(engine, id, 1, &options, &fork, &error), &error, "no such completion");
  CHECK_STATUS(NVLLM_OK, nvllm_fork(engine, id, 0, &options, &fork, &error), &error, "fork");
  CHECK(fork > id, "an id of its own");
  while (!nvllm_is_finished(engine)) {
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
      int which = output.request_id == fork;
      for (size_t i = 0; i < output.num_token_ids && lens[which] < 12; i++) texts[which][lens[which]++] = output.token_ids[i];
    }
  }
  CHECK(lens[0] == 12 && lens[1] == 12, "%zu and %zu tokens", lens[0], lens[1]);
  CHECK(memcmp(texts[0] + 5, texts[1], 7 * sizeof(uint32_t)) == 0, "a greedy fork says what the original says");
  CHECK_STATUS(NVLLM_ERR_NOT_FOUND, nvllm_fork(engine, id, 0, NULL, NULL, &error), &error, "it has ended");
  check_still_works(engine, "a fork");
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  nvllm_engine *engine = open_engine(folder);
  for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = 5 + i;
  salts_keep_tenants_apart(engine);
  a_pinned_prompt_survives_a_reset_until_it_is_released(engine);
  memory_is_given_back_and_comes_again(engine);
  too_many_pins_are_refused(engine);
  a_prompt_becomes_one_embedding(engine);
  a_prefix_goes_on_in_another_engine(engine, folder);
  a_running_request_forks(engine);
  nvllm_engine_free(engine);
  return checks_end();
}
