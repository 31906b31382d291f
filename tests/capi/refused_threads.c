/* A system that refuses threads: an engine opens with fewer, or answers an error, and nothing is printed in any case. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { THREADS = 4, NEVER = -1 };

/* Threads that may still be created; NEVER refuses none. */
static atomic_int allowed = NEVER;
static atomic_int refused;

/* Stands before the system's, which the library calls: the linker takes the program's. */
int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*start)(void *),
                   void *restrict argument) {
  typedef int create_function(pthread_t *restrict, const pthread_attr_t *restrict, void *(*)(void *), void *restrict);
  create_function *create;
  *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
  int left = atomic_load(&allowed);
  if (left == 0) {
    atomic_fetch_add(&refused, 1);
    return EAGAIN;
  }
  if (left > 0) atomic_store(&allowed, left - 1);
  return create(thread, attributes, start, argument);
}

static int warnings;

static void count_warnings(int32_t level, const char *message, size_t message_len, void *user_data) {
  (void)message_len;
  (void)user_data;
  warnings += level == NVLLM_LOG_WARN && strstr(message, "threads wanted") != NULL;
}

/* Where standard output and standard error go while the library works. */
static FILE *printed;
static int streams[2];

static void redirect(void) {
  fflush(stdout);
  fflush(stderr);
  streams[0] = dup(STDOUT_FILENO);
  streams[1] = dup(STDERR_FILENO);
  if (dup2(fileno(printed), STDOUT_FILENO) < 0 || dup2(fileno(printed), STDERR_FILENO) < 0) exit(1);
}

static void restore(void) {
  if (dup2(streams[0], STDOUT_FILENO) < 0 || dup2(streams[1], STDERR_FILENO) < 0) exit(1);
  close(streams[0]);
  close(streams[1]);
  CHECK(lseek(fileno(printed), 0, SEEK_END) == 0, "the library printed");
}

static void opening_with_so_many_threads(const char *folder, int threads) {
  nvllm_engine *engine = NULL;
  nvllm_error error;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.num_threads = THREADS;
  config.max_model_len = 256;
  config.kv_cache_bytes = 8u << 20;
  warnings = 0;
  nvllm_set_log_callback(count_warnings, NULL, NVLLM_LOG_DEBUG);
  redirect();
  atomic_store(&allowed, threads);
  nvllm_status status = nvllm_engine_new(&config, &engine, &error);
  atomic_store(&allowed, NEVER);
  restore();
  nvllm_set_log_callback(NULL, NULL, 0);
  if (threads == 0) {
    CHECK_STATUS(NVLLM_ERR_OUT_OF_MEMORY, status, &error, "no thread at all");
    CHECK(error.native_code == EAGAIN, "native code %d", error.native_code);
    CHECK(strstr(error.message, "thread") != NULL, "%s", error.message);
    CHECK(engine == NULL, "an engine was stored");
    return;
  }
  CHECK_STATUS(NVLLM_OK, status, &error, "some threads");
  CHECK(warnings == 1, "%d warnings with %d threads", warnings, threads);
  check_still_works(engine, "threads that were refused");
  nvllm_engine_free(engine);
}

/* Work that an engine may move to a thread of its own answers an error that passes. */
static void an_open_engine_goes_on(nvllm_engine *engine) {
  const char *messages = "[{\"role\":\"user\",\"content\":\"one\"}]";
  nvllm_request_options options = options_of(2);
  nvllm_error error;
  char text[256];
  size_t needed;
  options.structure_kind = NVLLM_STRUCTURE_REGEX;
  options.structure = "[a-z]{1,9}";
  for (int refuse = 1; refuse >= 0; refuse--) {
    redirect();
    atomic_store(&allowed, refuse ? 0 : NEVER);
    nvllm_status added = nvllm_add_request(engine, "one", 3, &options, NULL, &error);
    nvllm_status applied = nvllm_apply_chat_template(engine, messages, strlen(messages), NULL, 0, text, sizeof text, &needed,
                                                     &error);
    if (added == NVLLM_OK) run_to_end(engine);
    atomic_store(&allowed, NEVER);
    restore();
    CHECK(added == NVLLM_OK || (refuse && added == NVLLM_ERR_OUT_OF_MEMORY), "add: %s", nvllm_status_name(added));
    CHECK(applied == NVLLM_OK || (refuse && applied == NVLLM_ERR_OUT_OF_MEMORY), "template: %s", nvllm_status_name(applied));
  }
  check_still_works(engine, "refused threads");
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  printed = tmpfile();
  if (printed == NULL) return 1;
  for (int threads = 0; threads < THREADS; threads++) opening_with_so_many_threads(folder, threads);
  CHECK(atomic_load(&refused) >= THREADS, "threads were refused");
  nvllm_engine *engine = open_engine(folder);
  an_open_engine_goes_on(engine);
  nvllm_engine_free(engine);
  return checks_end();
}
