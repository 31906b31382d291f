/* A conversation that continues in a later process: the keys and values of all its tokens are stored in a file.
 *
 *   save_prefix MODEL FILE TEXT
 *
 * MODEL is a model folder or a GGUF file.
 *
 * Completes TEXT, and saves the tokens and the state of prompt and completion to FILE. If FILE exists, its state is
 * restored first, and the tokens of the earlier process are not computed again.
 */
#include "support.h"

#ifdef _WIN32
#include <windows.h>
#endif

/* The file: the number of tokens, the tokens, then the bytes from nvllm_save_prefix. */
struct conversation {
  uint32_t *tokens;
  size_t len;
};

static void read_or_die(void *to, size_t size, size_t count, FILE *file) {
  if (fread(to, size, count, file) == count) return;
  fputs("the file ends too early\n", stderr);
  exit(1);
}

static struct conversation load(nvllm_engine *engine, const char *path) {
  struct conversation past = {NULL, 0};
  FILE *file = fopen(path, "rb");
  if (file == NULL) return past;
  nvllm_error error;
  uint64_t sizes[2];
  size_t restored = 0;
  read_or_die(sizes, sizeof *sizes, 2, file);
  past.len = (size_t)sizes[0];
  past.tokens = allocate(past.len, sizeof *past.tokens);
  uint8_t *state = allocate((size_t)sizes[1], 1);
  read_or_die(past.tokens, sizeof *past.tokens, past.len, file);
  read_or_die(state, 1, (size_t)sizes[1], file);
  fclose(file);
  if (nvllm_restore_prefix(engine, state, (size_t)sizes[1], &restored, &error) != NVLLM_OK) fail("restore", &error);
  fprintf(stderr, "restored %zu of %zu tokens\n", restored, past.len);
  free(state);
  return past;
}

/* Renames a file to a name that another file may have, which it replaces. */
static int replace_file(const char *from, const char *to) {
#ifdef _WIN32
  /* There, rename() refuses a name that exists. */
  return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING) ? 0 : -1;
#else
  return rename(from, to);
#endif
}

/* Writes a file beside FILE and renames it when it is complete, so that a failure leaves the earlier state. */
static void save(nvllm_engine *engine, const char *path, const uint32_t *tokens, size_t len) {
  nvllm_error error;
  size_t needed = 0;
  nvllm_status status = nvllm_save_prefix(engine, tokens, len, 0, NULL, 0, &needed, NULL, &error);
  if (status != NVLLM_ERR_BUFFER_TOO_SMALL) fail("save", &error);
  uint8_t *state = allocate(needed, 1);
  if (nvllm_save_prefix(engine, tokens, len, 0, state, needed, &needed, NULL, &error) != NVLLM_OK) fail("save", &error);
  char *unfinished = allocate(strlen(path) + sizeof ".new", 1);
  sprintf(unfinished, "%s.new", path);
  FILE *file = fopen(unfinished, "wb");
  if (file == NULL) {
    perror(unfinished);
    exit(1);
  }
  const uint64_t sizes[2] = {len, needed};
  int is_written = fwrite(sizes, sizeof *sizes, 2, file) == 2 && fwrite(tokens, sizeof *tokens, len, file) == len &&
                   fwrite(state, 1, needed, file) == needed;
  is_written &= fclose(file) == 0;
  if (!is_written || replace_file(unfinished, path) != 0) {
    fprintf(stderr, "%s: cannot be written\n", path);
    remove(unfinished);
    exit(1);
  }
  free(unfinished);
  free(state);
}

/* A question as the model's chat template writes it; the caller frees it. */
static char *render(const nvllm_engine *engine, const char *text) {
  const nvllm_message question = {"user", text};
  nvllm_error error;
  size_t needed = 0;
  nvllm_status status = nvllm_apply_chat_template_messages(engine, &question, 1, NULL, NULL, 0, &needed, &error);
  if (status != NVLLM_ERR_BUFFER_TOO_SMALL) fail("chat template", &error);
  char *prompt = allocate(needed, 1);
  status = nvllm_apply_chat_template_messages(engine, &question, 1, NULL, prompt, needed, &needed, &error);
  if (status != NVLLM_OK) fail("chat template", &error);
  return prompt;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fputs("usage: save_prefix MODEL FILE TEXT\n", stderr);
    return 2;
  }
  nvllm_error error;
  nvllm_engine *engine;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = argv[1];
  if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) fail("cannot open the model", &error);
  struct conversation past = load(engine, argv[2]);

  /* The conversation so far, followed by the new question. */
  char *question = render(engine, argv[3]);
  size_t room = strlen(question) + 16, asked = 0;
  enum { ANSWER = 256 };
  uint32_t *tokens = allocate(past.len + room + ANSWER, sizeof *tokens);
  if (past.len > 0) memcpy(tokens, past.tokens, past.len * sizeof *tokens);
  if (nvllm_tokenize(engine, question, strlen(question), NVLLM_TOKENIZE_PARSE_SPECIAL, tokens + past.len, room, &asked,
                     &error) != NVLLM_OK)
    fail("tokenize", &error);
  size_t len = past.len + asked;

  nvllm_request_options options;
  nvllm_request_options_init(&options, sizeof options);
  options.max_tokens = ANSWER;
  options.include_stop = 1;
  if (nvllm_add_request_tokens(engine, tokens, len, &options, NULL, &error) != NVLLM_OK) fail("add", &error);
  nvllm_output output;
  nvllm_status status;
  nvllm_output_init(&output, sizeof output);
  /* An engine that can no longer be used is finished, too: the status of each call tells. */
  while (!nvllm_is_finished(engine)) {
    if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) fail("step", &error);
    while ((status = nvllm_poll_output(engine, &output, &error)) == NVLLM_OK) {
      fwrite(output.text, 1, output.text_len, stdout);
      for (size_t i = 0; i < output.num_token_ids; i++) tokens[len++] = output.token_ids[i];
    }
    if (status < 0) fail("poll", &error);
  }
  putchar('\n');
  flush_output();
  fprintf(stderr, "%u of %u prompt tokens were there already\n", output.cached_tokens, output.prompt_tokens);
  save(engine, argv[2], tokens, len);
  free(question);
  free(past.tokens);
  free(tokens);
  nvllm_engine_free(engine);
  return 0;
}
