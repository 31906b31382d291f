/* Named checks for the C tests. A program runs to its end and answers 1 when a check failed. */
#ifndef NANOVLLM_CHECK_H
#define NANOVLLM_CHECK_H

#include <nanovllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks_failed;
static int checks_made;

#define CHECK(condition, ...)                                         \
  do {                                                                \
    checks_made++;                                                    \
    if (!(condition)) {                                               \
      checks_failed++;                                                \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                   \
      fputc('\n', stderr);                                            \
    }                                                                 \
  } while (0)

/* A status that must come back, with the message that came instead. */
#define CHECK_STATUS(wanted, call, error, name)                                                       \
  do {                                                                                                \
    nvllm_status got = (call);                                                                        \
    CHECK(got == (wanted), "%s: wanted %s, got %s: %s", (name), nvllm_status_name(wanted),            \
          nvllm_status_name(got), got == NVLLM_OK ? "" : ((nvllm_error *)(error))->message);          \
  } while (0)

static inline int checks_end(void) {
  printf("%d checks, %d failed\n", checks_made, checks_failed);
  return checks_failed > 0;
}

/* The model folder: the program's argument. */
static inline const char *model_folder(int argc, char **argv) {
  if (argc == 2) return argv[1];
  fprintf(stderr, "usage: %s MODEL_FOLDER\n", argv[0]);
  exit(2);
}

/* A small engine: few threads and blocks, so that valgrind stays quick. Exits when it cannot be opened. */
static inline nvllm_engine *open_engine_for(const char *folder, uint32_t max_model_len) {
  nvllm_error error;
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.num_threads = 2;
  config.max_model_len = max_model_len;
  config.max_num_seqs = 16;
  config.max_batched_tokens = 64;
  config.kv_block_size = 16;
  config.kv_cache_bytes = 8u << 20;
  config.seed = 1;
  if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) {
    fprintf(stderr, "%s: %s\n", folder, error.message);
    exit(1);
  }
  return engine;
}

static inline nvllm_engine *open_engine(const char *folder) { return open_engine_for(folder, 256); }

static inline nvllm_request_options options_of(uint32_t max_tokens) {
  nvllm_request_options options;
  nvllm_request_options_init(&options, sizeof options);
  options.max_tokens = max_tokens;
  return options;
}

/* Adds a prompt of three tokens that runs for max_tokens whatever the model thinks; 0 when it is refused. */
static inline uint64_t add_tokens(nvllm_engine *engine, uint32_t max_tokens) {
  static const uint32_t prompt[] = {5, 6, 7};
  nvllm_request_options options = options_of(max_tokens);
  nvllm_error error;
  uint64_t id = 0;
  options.ignore_eos = 1;
  if (nvllm_add_request_tokens(engine, prompt, 3, &options, &id, &error) != NVLLM_OK) {
    fprintf(stderr, "add_tokens: %s\n", error.message);
    return 0;
  }
  return id;
}

/* Steps and polls until nothing is left; returns how many tokens came out. */
static inline size_t run_to_end(nvllm_engine *engine) {
  nvllm_error error;
  nvllm_output output;
  size_t tokens = 0;
  output.struct_size = sizeof output;
  while (!nvllm_is_finished(engine)) {
    nvllm_status status = nvllm_step(engine, 0, NULL, &error);
    CHECK_STATUS(NVLLM_OK, status, &error, "step");
    if (status != NVLLM_OK) break;
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) tokens += output.num_token_ids;
  }
  return tokens;
}

/* A good request works: what every test of a bad one ends with. */
static inline void check_still_works(nvllm_engine *engine, const char *after) {
  uint64_t id = add_tokens(engine, 2);
  CHECK(id > 0, "after %s", after);
  size_t tokens = run_to_end(engine);
  CHECK(tokens == 2, "after %s: %zu tokens", after, tokens);
}

#endif
