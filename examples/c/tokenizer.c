/* Shows the tokens of a text: one line per token, with its id and its text.
 *
 *   tokenizer MODEL TEXT...
 *
 * MODEL is a model folder or a GGUF file.
 */
#include "support.h"

/* The tokens of a text; the caller frees them. Special tokens in the text are recognized. */
static uint32_t *tokenize(const nvllm_engine *engine, const char *text, size_t *count) {
  nvllm_error error;
  size_t len = strlen(text);
  size_t capacity = len + 16;
  for (;;) {
    uint32_t *tokens = allocate(capacity, sizeof *tokens);
    nvllm_status status = nvllm_tokenize(engine, text, len, NVLLM_TOKENIZE_PARSE_SPECIAL, tokens, capacity, count, &error);
    if (status == NVLLM_OK) return tokens;
    if (status != NVLLM_ERR_BUFFER_TOO_SMALL) fail("tokenize", &error);
    free(tokens);
    capacity = *count;
  }
}

/* A token may be part of a character, which is shown as U+FFFD. */
static void show(const nvllm_engine *engine, uint32_t token) {
  nvllm_error error;
  char text[512];
  size_t needed;
  nvllm_status status =
      nvllm_detokenize(engine, &token, 1, NVLLM_TOKENIZE_PARSE_SPECIAL, text, sizeof text, &needed, &error);
  if (status != NVLLM_OK) fail("detokenize", &error);
  printf("%8u  \"", token);
  for (const char *c = text; c < text + needed - 1; c++) {
    if (*c == '\n') {
      fputs("\\n", stdout);
    } else {
      putchar(*c);
    }
  }
  puts("\"");
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fputs("usage: tokenizer MODEL TEXT...\n", stderr);
    return 2;
  }
  nvllm_error error;
  nvllm_engine *engine;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = argv[1];
  if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) fail("cannot open the model", &error);
  for (int i = 2; i < argc; i++) {
    size_t count;
    uint32_t *tokens = tokenize(engine, argv[i], &count);
    printf("%zu tokens: %s\n", count, argv[i]);
    for (size_t t = 0; t < count; t++) show(engine, tokens[t]);
    free(tokens);
  }
  flush_output();
  nvllm_engine_free(engine);
  return 0;
}
