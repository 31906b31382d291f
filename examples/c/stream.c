/* Completes each line of the input, and prints tokens as they come. Ctrl-C ends the completion, not the program.
 *
 *   stream [--endless] MODEL
 *
 * MODEL is a model folder or a GGUF file.
 *
 * --endless ignores the model's end tokens, which leaves time to press Ctrl-C.
 */
#define _POSIX_C_SOURCE 200809L
#include "support.h"

#include <signal.h>

/* The library installs no signal handlers. This one sets a flag, which the loop checks between two steps. */
static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

/* Prints the new text; returns whether the request continues. */
static int show(const nvllm_output *output) {
  fwrite(output->text, 1, output->text_len, stdout);
  flush_output();
  switch (output->finish_reason) {
    case NVLLM_FINISH_NONE: return 1;
    case NVLLM_FINISH_CANCELLED: puts(" [cancelled]"); break;
    case NVLLM_FINISH_ERROR: printf(" [%s]\n", output->error_message); break;
    default: putchar('\n');
  }
  flush_output();
  return 0;
}

static void answer(nvllm_engine *engine, const char *text, const nvllm_request_options *options) {
  nvllm_error error;
  nvllm_output output;
  uint64_t id;
  const nvllm_message question = {"user", text};
  nvllm_status status = nvllm_add_chat(engine, &question, 1, NULL, options, &id, &error);
  if (status != NVLLM_OK) {
    fprintf(stderr, "%s\n", error.message);
    return;
  }
  output.struct_size = sizeof output;
  interrupted = 0;
  for (int goes_on = 1; goes_on;) {
    if (interrupted) {
      interrupted = 0;
      nvllm_cancel(engine, id); /* the result is ignored: the request may have ended meanwhile */
    }
    if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) fail("step", &error);
    while (goes_on && (status = nvllm_poll_output(engine, &output, &error)) == NVLLM_OK) goes_on = show(&output);
    if (status < 0) fail("poll", &error);
  }
}

int main(int argc, char **argv) {
  int endless = argc == 3 && strcmp(argv[1], "--endless") == 0;
  if (argc != 2 + endless) {
    fputs("usage: stream [--endless] MODEL\n", stderr);
    return 2;
  }
  nvllm_error error;
  nvllm_engine *engine;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = argv[argc - 1];
  if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) fail("cannot open the model", &error);

  nvllm_request_options options;
  nvllm_request_options_init(&options, sizeof options);
  options.ignore_eos = 1;

  /* Without SA_RESTART, Ctrl-C at the prompt interrupts the wait for a line, and thereby ends the program. */
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = note_interrupt;
  sigaction(SIGINT, &action, NULL);

  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  while ((length = getline(&line, &capacity, stdin)) > 0) {
    if (line[length - 1] == '\n') line[--length] = '\0';
    if (strlen(line) != (size_t)length) {
      fputs("a line contains a NUL byte\n", stderr);
    } else if (length > 0) {
      answer(engine, line, endless ? &options : NULL);
    }
  }
  free(line);
  nvllm_engine_free(engine);
  return 0;
}
