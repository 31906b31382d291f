/* Shared by the examples: a prompt from a user's text, exits with an error message, and a check of the output. */
#ifndef EXAMPLES_PROMPT_H
#define EXAMPLES_PROMPT_H

#include <nanovllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void fail(const char *what, const nvllm_error *error) {
  fprintf(stderr, "%s: %s (%s)\n", what, error->message, nvllm_status_name(error->status));
  exit(1);
}

/* Writes what stdout has buffered. Exits if any output was lost, for example because the disk is full. */
static inline void flush_output(void) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return;
  fputs("the output cannot be written\n", stderr);
  exit(1);
}

static inline void *allocate(size_t count, size_t size) {
  void *memory = calloc(count > 0 ? count : 1, size);
  if (memory == NULL) {
    perror("calloc");
    exit(1);
  }
  return memory;
}

/* [{"role": "user", "content": TEXT}] as JSON; the caller frees it. */
static inline char *conversation(const char *text) {
  static const char begin[] = "[{\"role\": \"user\", \"content\": \"";
  static const char end[] = "\"}]";
  char *json = allocate(sizeof begin + 6 * strlen(text) + sizeof end, 1);
  char *to = json + sprintf(json, "%s", begin);
  for (const unsigned char *from = (const unsigned char *)text; *from != '\0'; from++) {
    if (*from == '"' || *from == '\\' || *from < 0x20) {
      to += sprintf(to, "\\u%04x", *from);
    } else {
      *to++ = (char)*from;
    }
  }
  strcpy(to, end);
  return json;
}

/* The prompt for a user's text, by the model's chat template; the caller frees it. NULL and an error if the text is
 * refused, for example because it is not UTF-8. */
static inline char *try_template(const nvllm_engine *engine, const char *text, nvllm_error *error) {
  char *prompt = NULL;
  char *messages = conversation(text);
  size_t messages_len = strlen(messages);
  size_t needed = 0;
  nvllm_status status =
      nvllm_apply_chat_template(engine, messages, messages_len, NULL, 0, NULL, 0, &needed, error);
  if (status == NVLLM_ERR_BUFFER_TOO_SMALL) {
    prompt = allocate(needed, 1);
    status = nvllm_apply_chat_template(engine, messages, messages_len, NULL, 0, prompt, needed, &needed, error);
  }
  free(messages);
  if (status == NVLLM_OK) return prompt;
  free(prompt);
  return NULL;
}

/* As try_template, for a program that needs the prompt. */
static inline char *apply_template(const nvllm_engine *engine, const char *text) {
  nvllm_error error;
  char *prompt = try_template(engine, text, &error);
  if (prompt == NULL) fail("chat template", &error);
  return prompt;
}

#endif
