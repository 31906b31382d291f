/* Forks at any moment: while other threads log, step, add and open, a child that calls the library never hangs. */
#define _DEFAULT_SOURCE
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 10, CHILDREN = 600, OPENS_AN_ENGINE = 8, WATCHDOG_SECONDS = 15 };

static const char *folder;
static nvllm_engine *engine;
static atomic_int ended;
static atomic_uint heard;

/* What the busy threads are answered does not matter here. */
static void ignore(nvllm_status status) { (void)status; }

static void listen_to(int32_t level, const char *message, size_t message_len, void *user_data) {
  (void)level;
  (void)message;
  (void)message_len;
  (void)user_data;
  atomic_fetch_add(&heard, 1);
}

/* An engine that opens logs messages. */
static void *open_engines(void *nothing) {
  while (!atomic_load(&ended)) nvllm_engine_free(open_engine(folder));
  return nothing;
}

static void *add_and_cancel(void *nothing) {
  while (!atomic_load(&ended)) {
    nvllm_request_options options = options_of(2);
    uint64_t id = 0;
    nvllm_stats stats = {.struct_size = sizeof stats};
    if (nvllm_add_request(engine, "one two", 7, &options, &id, NULL) == NVLLM_OK) ignore(nvllm_cancel(engine, id));
    sched_yield();
    ignore(nvllm_get_stats(engine, &stats, NULL));
  }
  return nothing;
}

static void *step_and_poll(void *nothing) {
  nvllm_output output = {.struct_size = sizeof output};
  while (!atomic_load(&ended)) {
    ignore(nvllm_step(engine, 500, NULL, NULL));
    while (nvllm_poll_output(engine, &output, NULL) == NVLLM_OK) continue;
  }
  return nothing;
}

static void *listen_again_and_again(void *nothing) {
  while (!atomic_load(&ended)) {
    nvllm_set_log_callback(listen_to, NULL, NVLLM_LOG_DEBUG);
    sched_yield();
  }
  return nothing;
}

static nvllm_status one_token(nvllm_engine *own) {
  const uint32_t prompt[] = {5, 6, 7};
  nvllm_request_options options = options_of(2);
  nvllm_status status = nvllm_add_request_tokens(own, prompt, 3, &options, NULL, NULL);
  nvllm_output output = {.struct_size = sizeof output};
  while (status == NVLLM_OK && !nvllm_is_finished(own)) {
    status = nvllm_step(own, 0, NULL, NULL);
    while (nvllm_poll_output(own, &output, NULL) == NVLLM_OK) continue;
  }
  return status;
}

static void *one_token_beside(void *own) { return (void *)(intptr_t)one_token(own); }

/* What a child may do. Its exit status is the number of the call that went wrong, 0 for none; a hang ends in SIGALRM. */
static int child(int opens) {
  nvllm_engine *own = NULL;
  nvllm_error error;
  nvllm_output output = {.struct_size = sizeof output};
  if (nvllm_step(engine, 0, NULL, &error) != NVLLM_ERR_UNSUPPORTED) return 1;
  if (nvllm_add_request(engine, "a", 1, NULL, NULL, NULL) != NVLLM_ERR_UNSUPPORTED) return 2;
  if (nvllm_poll_output(engine, &output, NULL) != NVLLM_ERR_UNSUPPORTED) return 3;
  if (nvllm_cancel(engine, 1) != NVLLM_ERR_UNSUPPORTED) return 4;
  if (nvllm_is_finished(engine) != 1) return 5;
  if (nvllm_wait(engine, UINT64_MAX, &error) != NVLLM_ERR_UNSUPPORTED) return 5;
  unsigned before = atomic_load(&heard);
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = "/no/such/folder";
  if (nvllm_engine_new(&config, &own, &error) != NVLLM_ERR_IO) return 6;
  if (atomic_load(&heard) != before) return 7;
  nvllm_set_log_callback(listen_to, NULL, NVLLM_LOG_DEBUG);
  if (opens) {
    config.model_path = folder;
    config.num_threads = 3;
    config.max_model_len = 256;
    config.kv_cache_bytes = 1u << 20;
    if (nvllm_engine_new(&config, &own, &error) != NVLLM_OK) return 8;
    if (atomic_load(&heard) == before) return 9;
    pthread_t thread;
    void *status;
    nvllm_request_options one = options_of(1);
    if (pthread_create(&thread, NULL, one_token_beside, own) != 0) return 10;
    for (int i = 0; i < 10; i++) ignore(nvllm_add_request(own, "one", 3, &one, NULL, NULL));
    pthread_join(thread, &status);
    if ((intptr_t)status != NVLLM_OK) return 11;
    nvllm_engine_free(own);
  }
  nvllm_set_log_callback(NULL, NULL, 0);
  nvllm_engine_free(engine);
  if (nvllm_build_info() == NULL) return 12;
  return 0;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv) {
  void *(*const busy[])(void *) = {open_engines, add_and_cancel, add_and_cancel, step_and_poll, listen_again_and_again};
  enum { BUSY = sizeof busy / sizeof *busy };
  pthread_t threads[BUSY];
  int children = 0, hung = 0, wrong = 0;
  folder = model_folder(argc, argv);
  nvllm_set_log_callback(listen_to, NULL, NVLLM_LOG_DEBUG);
  engine = open_engine(folder);
  for (int i = 0; i < BUSY; i++) {
    if (pthread_create(&threads[i], NULL, busy[i], NULL) != 0) return 1;
  }
  for (double begin = seconds(); children < CHILDREN && seconds() - begin < SECONDS; children++) {
    pid_t pid = fork();
    if (pid == 0) {
      signal(SIGALRM, SIG_DFL);
      alarm(WATCHDOG_SECONDS);
      _exit(child(children % OPENS_AN_ENGINE == 0));
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
      hung++;
      if (hung == 3) break; /* each takes WATCHDOG_SECONDS */
    } else if (status != 0) {
      fprintf(stderr, "child %d: status %x\n", children, (unsigned)status);
      wrong++;
    }
  }
  atomic_store(&ended, 1);
  for (int i = 0; i < BUSY; i++) pthread_join(threads[i], NULL);
  CHECK(hung == 0, "%d of %d children hung", hung, children);
  CHECK(wrong == 0, "%d of %d children got a wrong answer", wrong, children);
  CHECK(children >= 20, "%d children are too few to tell anything", children);
  nvllm_engine_free(engine);
  return checks_end();
}
