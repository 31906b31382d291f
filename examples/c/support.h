/* Shared by the examples: memory, exits with an error message, and a check of the output. */
#ifndef EXAMPLES_SUPPORT_H
#define EXAMPLES_SUPPORT_H

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

#endif
