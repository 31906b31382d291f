/* An engine inside a program's own poll() loop: one thread reads lines and computes completions.
 *
 *   poll_loop MODEL
 *
 * MODEL is a model folder or a GGUF file.
 *
 * Each line is a prompt, and all of them run at once. A completion is printed with its line number when it is complete.
 */
#define _POSIX_C_SOURCE 200809L
#include "support.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

/* Time budget of a step, during which the loop does no other work. */
enum { STEP_BUDGET_US = 5000 };

/* A completion in progress; its address is the request's tag. */
struct answer {
  size_t line;
  size_t len;
  char *text;
};

static void append(struct answer *answer, const char *text, size_t len) {
  /* One byte more, because realloc() may return NULL for none. */
  char *grown = realloc(answer->text, answer->len + len + 1);
  if (grown == NULL) {
    perror("realloc");
    exit(1);
  }
  memcpy(grown + answer->len, text, len);
  answer->text = grown;
  answer->len += len;
}

/* Adds a request for a line, which a NUL follows. A line that is refused does not end the program. */
static void begin_answer(nvllm_engine *engine, const char *line, size_t len, size_t number) {
  nvllm_error error;
  if (strlen(line) != len) {
    fprintf(stderr, "%zu: the line contains a NUL byte\n", number);
    return;
  }
  nvllm_request_options options;
  struct answer *answer = allocate(1, sizeof *answer);
  answer->line = number;
  nvllm_request_options_init(&options, sizeof options);
  options.tag = (uint64_t)(uintptr_t)answer;
  const nvllm_message question = {"user", line};
  if (nvllm_add_chat(engine, &question, 1, NULL, &options, NULL, &error) != NVLLM_OK) {
    fprintf(stderr, "%zu: %s\n", number, error.message);
    free(answer);
  }
}

/* Adds a request for each line that has arrived. The end of the input ends a line too. Returns whether the input
 * continues. */
static int read_lines(nvllm_engine *engine) {
  static char buffer[4096];
  static size_t held, lines;
  static int is_skipping; /* the rest of a line that is too long */
  ssize_t got = read(STDIN_FILENO, buffer + held, sizeof buffer - 1 - held);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) {
    buffer[held] = '\0';
    if (held > 0) begin_answer(engine, buffer, held, lines + 1);
    return 0;
  }
  held += (size_t)got;
  char *begin = buffer, *end;
  while ((end = memchr(begin, '\n', held - (size_t)(begin - buffer))) != NULL) {
    *end = '\0';
    lines++;
    if (end > begin && !is_skipping) begin_answer(engine, begin, (size_t)(end - begin), lines);
    is_skipping = 0;
    begin = end + 1;
  }
  held -= (size_t)(begin - buffer);
  memmove(buffer, begin, held);
  if (held == sizeof buffer - 1 && !is_skipping) {
    fprintf(stderr, "%zu: the line has more than %zu bytes\n", lines + 1, held - 1);
    is_skipping = 1;
  }
  if (is_skipping) held = 0;
  return 1;
}

static void work(nvllm_engine *engine) {
  nvllm_error error;
  nvllm_output output;
  nvllm_status status;
  output.struct_size = sizeof output;
  if (nvllm_step(engine, STEP_BUDGET_US, NULL, &error) != NVLLM_OK) fail("step", &error);
  while ((status = nvllm_poll_output(engine, &output, &error)) == NVLLM_OK) {
    struct answer *answer = (struct answer *)(uintptr_t)output.tag;
    append(answer, output.text, output.text_len);
    if (output.finish_reason == NVLLM_FINISH_NONE) continue;
    if (output.finish_reason == NVLLM_FINISH_ERROR) {
      printf("%zu: %s\n", answer->line, output.error_message);
    } else {
      printf("%zu: ", answer->line);
      fwrite(answer->text, 1, answer->len, stdout);
      putchar('\n');
    }
    flush_output();
    free(answer->text);
    free(answer);
  }
  if (status < 0) fail("poll", &error);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fputs("usage: poll_loop MODEL\n", stderr);
    return 2;
  }
  nvllm_error error;
  nvllm_engine *engine;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = argv[1];
  if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) fail("cannot open the model", &error);

  int input_goes_on = 1;
  /* work() ends the program if the engine can no longer be used, which counts as finished, too. */
  while (input_goes_on || !nvllm_is_finished(engine)) {
    /* Without work, poll() waits for a line; with work, it returns at once. */
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    int timeout = nvllm_is_finished(engine) ? -1 : 0;
    if (input_goes_on && poll(&input, 1, timeout) > 0) input_goes_on = read_lines(engine);
    work(engine);
  }
  nvllm_engine_free(engine);
  return 0;
}
