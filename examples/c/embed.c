/* Similarity of texts: computes an embedding of each text and prints its cosine similarity to the first one.
 *
 *   embed MODEL TEXT TEXT...
 *
 * MODEL is a model folder or a GGUF file.
 */
#include "support.h"

#include <math.h>

static double dot(const nvllm_output *a, const nvllm_output *b) {
  double sum = 0;
  for (size_t i = 0; i < a->embedding_len; i++) sum += (double)a->embedding[i] * b->embedding[i];
  return sum;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fputs("usage: embed MODEL TEXT TEXT...\n", stderr);
    return 2;
  }
  nvllm_error error;
  nvllm_engine *engine;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = argv[1];
  if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) fail("cannot open the model", &error);

  nvllm_request_options options;
  nvllm_request_options_init(&options, sizeof options);
  options.pooling = NVLLM_POOLING_MEAN;
  const nvllm_request_options *for_all = &options;
  const char *const *texts = (const char *const *)(argv + 2);
  nvllm_result *result;
  nvllm_status status =
      nvllm_generate(engine, texts, NULL, (size_t)argc - 2, &for_all, 1, NULL, NULL, &result, &error);
  if (status != NVLLM_OK) fail("generate", &error);

  nvllm_output first, other;
  first.struct_size = other.struct_size = sizeof first;
  for (size_t i = 0; i < nvllm_result_count(result); i++) {
    if (nvllm_result_get(result, 0, &first) != NVLLM_OK || nvllm_result_get(result, i, &other) != NVLLM_OK) return 1;
    if (first.embedding == NULL || other.embedding == NULL) {
      fprintf(stderr, "%s: %s\n", texts[i], other.error_message != NULL ? other.error_message : "the first has failed");
      return 1;
    }
    double cosine = dot(&first, &other) / sqrt(dot(&first, &first) * dot(&other, &other));
    printf("%.3f  %s\n", cosine, texts[i]);
  }
  nvllm_result_free(result);
  flush_output();
  nvllm_engine_free(engine);
  return 0;
}
