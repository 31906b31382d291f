/* Completes each prompt with JSON that conforms to a schema.
 *
 *   json MODEL SCHEMA PROMPT...
 *
 * MODEL is a model folder or a GGUF file.
 *
 *   json models/demo '{"enum": ["yes", "no"]}' "are you an engine?"
 */
#include "prompt.h"

static nvllm_engine *open_engine(const char *folder) {
  nvllm_error error;
  nvllm_engine *engine;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) fail("cannot open the model", &error);
  return engine;
}

/* All prompts share the schema, so it is compiled once. An invalid schema is refused here with the reason. */
static nvllm_result *answer(nvllm_engine *engine, const char *schema, char **prompts, size_t num_prompts) {
  nvllm_error error;
  nvllm_result *result;
  nvllm_request_options options;
  const nvllm_request_options *shared = &options;
  nvllm_request_options_init(&options, sizeof options);
  options.structure_kind = NVLLM_STRUCTURE_JSON_SCHEMA;
  options.structure = schema;
  nvllm_status status = nvllm_generate(engine, (const char *const *)prompts, NULL, num_prompts, &shared, 1, NULL, NULL,
                                       &result, &error);
  if (status != NVLLM_OK) fail("generate", &error);
  return result;
}

static void print_line(FILE *to, const nvllm_output *output) {
  fwrite(output->text, 1, output->text_len, to);
  fputc('\n', to);
}

/* Prints one completion per line, and returns the number of those that are not complete JSON. */
static int print_answers(const nvllm_result *result) {
  int failures = 0;
  for (size_t i = 0; i < nvllm_result_count(result); i++) {
    nvllm_output output;
    output.struct_size = sizeof output;
    if (nvllm_result_get(result, i, &output) != NVLLM_OK) return failures + 1;
    switch (output.finish_reason) {
      case NVLLM_FINISH_STOP: print_line(stdout, &output); break;
      case NVLLM_FINISH_ERROR: fprintf(stderr, "%s\n", output.error_message); failures++; break;
      default: fputs("cut off: ", stderr); print_line(stderr, &output); failures++;
    }
  }
  return failures;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fputs("usage: json MODEL SCHEMA PROMPT...\n", stderr);
    return 2;
  }
  nvllm_engine *engine = open_engine(argv[1]);
  size_t num_prompts = (size_t)(argc - 3);
  char **prompts = allocate(num_prompts, sizeof *prompts);
  for (size_t i = 0; i < num_prompts; i++) prompts[i] = apply_template(engine, argv[3 + i]);

  nvllm_result *result = answer(engine, argv[2], prompts, num_prompts);
  int failures = print_answers(result);
  flush_output();

  nvllm_result_free(result);
  for (size_t i = 0; i < num_prompts; i++) free(prompts[i]);
  free(prompts);
  nvllm_engine_free(engine);
  return failures > 0;
}
