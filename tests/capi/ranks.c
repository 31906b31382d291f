/* Several ranks in one process: the answers of one, and errors that name their option. */
#include "check.h"

enum { TOKENS = 6, PROMPT = 20 };

/* An engine on the CPU with this many ranks; NULL, and the status and message, when it is refused. */
static nvllm_engine *open_ranks(const char *folder, uint32_t ranks, nvllm_status *status, nvllm_error *error) {
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.device = NVLLM_DEVICE_CPU;
  config.num_threads = 2;
  config.max_model_len = 256;
  config.kv_block_size = 16;
  config.kv_cache_bytes = 8u << 20;
  config.seed = 1;
  config.tensor_parallel_size = ranks;
  *status = nvllm_engine_new(&config, &engine, error);
  return engine;
}

struct answer {
  uint32_t tokens[TOKENS];
  float logprobs[TOKENS];
  size_t len;
};

/* What comes after a prompt, in steps of `budget_us`. */
static struct answer answer_of(nvllm_engine *engine, uint64_t budget_us) {
  struct answer answer = {{0}, {0}, 0};
  nvllm_request_options options = options_of(TOKENS);
  nvllm_error error;
  uint32_t prompt[PROMPT];
  for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = 3 + i * i % 90;
  options.ignore_eos = 1;
  options.num_logprobs = 1;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, prompt, PROMPT, &options, NULL, &error), &error, "add");
  while (!nvllm_is_finished(engine)) {
    nvllm_output output = {.struct_size = sizeof output};
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, budget_us, NULL, &error), &error, "step");
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
      for (size_t i = 0; i < output.num_token_ids && answer.len < TOKENS; i++, answer.len++) {
        answer.tokens[answer.len] = output.token_ids[i];
        answer.logprobs[answer.len] = output.logprobs[i];
      }
    }
  }
  CHECK(answer.len == TOKENS, "%zu tokens", answer.len);
  return answer;
}

static void any_number_of_ranks_answers_alike(const char *folder) {
  nvllm_status status;
  nvllm_error error;
  nvllm_engine *alone = open_ranks(folder, 1, &status, &error);
  CHECK(status == NVLLM_OK, "%s", error.message);
  struct answer wanted = answer_of(alone, 0);
  nvllm_engine_free(alone);
  for (uint32_t ranks = 2; ranks <= 4; ranks += 2) {
    nvllm_engine *engine = open_ranks(folder, ranks, &status, &error);
    CHECK(status == NVLLM_OK, "%u ranks: %s", ranks, error.message);
    nvllm_model_info info = {.struct_size = sizeof info};
    CHECK_STATUS(NVLLM_OK, nvllm_engine_model_info(engine, &info, &error), &error, "info");
    CHECK(info.tensor_parallel_size == ranks && info.process_index == 0, "%u", info.tensor_parallel_size);
    for (uint64_t budget_us = 0; budget_us < 2; budget_us++) {
      struct answer found = answer_of(engine, budget_us);
      CHECK(memcmp(&found, &wanted, sizeof found) == 0, "%u ranks answer otherwise", ranks);
    }
    nvllm_engine_free(engine);
  }
}

static void more_ranks_than_heads_are_refused(const char *folder) {
  nvllm_status status;
  nvllm_error error;
  CHECK(open_ranks(folder, 5, &status, &error) == NULL, "it opened");
  CHECK(status == NVLLM_ERR_INVALID_ARGUMENT && strstr(error.message, "tensor_parallel_size is 5") != NULL, "%s",
        error.message);
}

static void an_engine_is_freed_within_a_pass(const char *folder) {
  for (int i = 0; i < 4; i++) {
    nvllm_status status;
    nvllm_error error;
    nvllm_engine *engine = open_ranks(folder, 2, &status, &error);
    CHECK(status == NVLLM_OK, "%s", error.message);
    CHECK(add_tokens(engine, 100) != 0, "refused");
    for (int step = 0; step < i; step++) CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 1, NULL, &error), &error, "step");
    nvllm_engine_free(engine);
  }
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  any_number_of_ranks_answers_alike(folder);
  more_ranks_than_heads_are_refused(folder);
  an_engine_is_freed_within_a_pass(folder);
  return checks_end();
}
