/* Completes each prompt with JSON that conforms to a schema.
 *
 *   json MODEL SCHEMA PROMPT...
 *
 * MODEL is a model folder or a GGUF file.
 *
 *   json models/demo '{"enum": ["yes", "no"]}' "are you an engine?"
 */
#include "support.h"

static nvllm_engine *open_engine(const char *folder) {
  nvllm_error error;
  nvllm_engine *engine;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) fail("cannot open the model", &error);
  return engine;
}

/* All prompts share the schema, so it is compiled once. If it is invalid, each of them has the reason. */
static nvllm_result *answer(nvllm_engine *engine, const char *schema, char **texts, size_t num_texts) {
  nvllm_error error;
  nvllm_result *result;
  nvllm_request_options options;
  nvllm_request_options_init(&options, sizeof options);
  options.structure_kind = NVLLM_STRUCTURE_JSON_SCHEMA;
  options.structure = schema;
  nvllm_message *questions = allocate(num_texts, sizeof *questions);
  nvllm_prompt *prompts = allocate(num_texts, sizeof *prompts);
  for (size_t i = 0; i < num_texts; i++) {
    questions[i] = (nvllm_message){"user", texts[i]};
    prompts[i] = (nvllm_prompt){.struct_size = sizeof *prompts, .messages = &questions[i], .num_messages = 1, .options = &options};
  }
  nvllm_status status = nvllm_generate_prompts(engine, prompts, num_texts, NULL, NULL, &result, &error);
  free(questions);
  free(prompts);
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
      case NVLLM_FINISH_ERROR:
        fprintf(stderr, "%s (%s)\n", output.error_message, nvllm_status_name(output.status));
        failures++;
        break;
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
  nvllm_result *result = answer(engine, argv[2], argv + 3, (size_t)(argc - 3));
  int failures = print_answers(result);
  flush_output();

  nvllm_result_free(result);
  nvllm_engine_free(engine);
  return failures > 0;
}
