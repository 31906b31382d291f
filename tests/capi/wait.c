/* nvllm_wait: what ends it, on any number of threads, and that it sleeps meanwhile. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { WAITERS = 4, ADDERS = 4, EACH = 8, TOKENS = 3 };

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void sleep_ms(long ms) {
  struct timespec time = {0, ms * 1000000};
  nanosleep(&time, NULL);
}

static nvllm_status look(nvllm_engine *engine, nvllm_error *error) { return nvllm_wait(engine, 0, error); }

static void it_tells_what_there_is_to_do(nvllm_engine *engine) {
  nvllm_error error;
  nvllm_output output = {.struct_size = sizeof output};
  CHECK_STATUS(NVLLM_TIMEOUT, look(engine, &error), &error, "nothing was added");
  CHECK(error.status == NVLLM_TIMEOUT && error.message[0] == '\0', "%s", error.message);
  uint64_t id = add_tokens(engine, 1);
  CHECK_STATUS(NVLLM_OK, look(engine, &error), &error, "a request waits");
  CHECK_STATUS(NVLLM_OK, nvllm_wait(engine, UINT64_MAX, &error), &error, "a request waits");
  while (look(engine, &error) == NVLLM_OK) {
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
    nvllm_stats stats = {.struct_size = sizeof stats};
    CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &stats, &error), &error, "stats");
    if (stats.running + stats.waiting > 0) continue;
    CHECK_STATUS(NVLLM_OK, nvllm_wait(engine, UINT64_MAX, &error), &error, "an output waits");
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) CHECK(output.request_id == id, "another's output");
  }
  CHECK_STATUS(NVLLM_TIMEOUT, look(engine, &error), &error, "all was polled");
  CHECK(nvllm_is_finished(engine) == 1, "all was polled");

  id = add_tokens(engine, TOKENS);
  CHECK(nvllm_cancel(engine, id) == NVLLM_OK, "cancel");
  CHECK_STATUS(NVLLM_OK, nvllm_wait(engine, UINT64_MAX, &error), &error, "a cancelled request is work until a step ends it");
  run_to_end(engine);
  CHECK_STATUS(NVLLM_TIMEOUT, look(engine, &error), &error, "its output was polled");

  add_tokens(engine, TOKENS);
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 1, NULL, &error), &error, "step");
  CHECK_STATUS(NVLLM_OK, nvllm_wait(engine, UINT64_MAX, &error), &error, "a pass was left in the middle");
  run_to_end(engine);
  CHECK(nvllm_wait(engine, 0, NULL) == NVLLM_TIMEOUT, "no error");
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_wait(NULL, UINT64_MAX, &error), &error, "no engine");
}

static void it_sleeps_until_the_time_is_over(nvllm_engine *engine) {
  static const uint64_t times_us[] = {1, 999, 300000};
  for (size_t i = 0; i < sizeof times_us / sizeof *times_us; i++) {
    nvllm_error error;
    double begun = seconds(CLOCK_MONOTONIC), worked = seconds(CLOCK_THREAD_CPUTIME_ID);
    CHECK_STATUS(NVLLM_TIMEOUT, nvllm_wait(engine, times_us[i], &error), &error, "nothing came");
    double waited = seconds(CLOCK_MONOTONIC) - begun;
    worked = seconds(CLOCK_THREAD_CPUTIME_ID) - worked;
    CHECK(waited * 1e6 >= (double)times_us[i], "%g s of %llu us", waited, (unsigned long long)times_us[i]);
    CHECK(worked < 0.1, "%g s of CPU in %g s", worked, waited);
  }
}

struct waiter {
  nvllm_engine *engine;
  atomic_int *entering;
  uint64_t timeout_us;
  nvllm_error error;
  nvllm_status status;
};

static void *wait_once(void *argument) {
  struct waiter *waiter = argument;
  atomic_fetch_add(waiter->entering, 1);
  waiter->status = nvllm_wait(waiter->engine, waiter->timeout_us, &waiter->error);
  return NULL;
}

struct waiters {
  pthread_t threads[WAITERS];
  struct waiter each[WAITERS];
  atomic_int entering;
};

/* Returns when all wait, or are about to. The times are beyond what clocks can add, some of them. */
static void begin_waiting(struct waiters *waiters, nvllm_engine *engine) {
  static const uint64_t times_us[WAITERS] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX / 1000, 3600000000u};
  atomic_init(&waiters->entering, 0);
  for (int i = 0; i < WAITERS; i++) {
    waiters->each[i] = (struct waiter){.engine = engine, .entering = &waiters->entering, .timeout_us = times_us[i]};
    if (pthread_create(&waiters->threads[i], NULL, wait_once, &waiters->each[i]) != 0) exit(1);
  }
  while (atomic_load(&waiters->entering) < WAITERS) sched_yield();
  sleep_ms(20);
}

static void check_waited(struct waiters *waiters, nvllm_status wanted, const char *name) {
  for (int i = 0; i < WAITERS; i++) {
    pthread_join(waiters->threads[i], NULL);
    CHECK_STATUS(wanted, waiters->each[i].status, &waiters->each[i].error, name);
  }
}

static void work_ends_the_wait_of_every_thread(nvllm_engine *engine) {
  struct waiters waiters;
  nvllm_error error;
  begin_waiting(&waiters, engine);
  add_tokens(engine, TOKENS);
  check_waited(&waiters, NVLLM_OK, "a request was added");
  run_to_end(engine);

  /* 20 tokens are one whole block of 16. */
  uint32_t prompt[20];
  uint64_t id = 0;
  nvllm_request_options options = options_of(1);
  options.pin_prompt = 1;
  for (uint32_t i = 0; i < 20; i++) prompt[i] = 3 + i;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, prompt, 20, &options, &id, &error), &error, "pin");
  run_to_end(engine);
  CHECK_STATUS(NVLLM_TIMEOUT, look(engine, &error), &error, "a pinned prompt is no work");
  begin_waiting(&waiters, engine);
  CHECK(nvllm_release_prefix(engine, id) == NVLLM_OK, "release");
  check_waited(&waiters, NVLLM_OK, "a prompt was released");
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  CHECK_STATUS(NVLLM_TIMEOUT, look(engine, &error), &error, "the step has taken it in");
}

static void waking_ends_the_wait_of_every_thread(nvllm_engine *engine) {
  struct waiters waiters;
  nvllm_error error;
  /* Before a wait, as if its thread had been a moment late. */
  for (int i = 0; i < 2; i++) CHECK_STATUS(NVLLM_OK, nvllm_wake(engine, &error), &error, "wake");
  CHECK_STATUS(NVLLM_TIMEOUT, nvllm_wait(engine, UINT64_MAX, &error), &error, "woken before");
  begin_waiting(&waiters, engine);
  CHECK_STATUS(NVLLM_OK, nvllm_wake(engine, &error), &error, "wake");
  check_waited(&waiters, NVLLM_TIMEOUT, "woken");
  CHECK_STATUS(NVLLM_TIMEOUT, nvllm_wait(engine, UINT64_MAX, &error), &error, "the next one");
  begin_waiting(&waiters, engine);
  add_tokens(engine, TOKENS);
  check_waited(&waiters, NVLLM_OK, "a request was added");
  CHECK_STATUS(NVLLM_OK, nvllm_wake(engine, &error), &error, "wake");
  CHECK_STATUS(NVLLM_OK, nvllm_wait(engine, UINT64_MAX, &error), &error, "work comes first");
  run_to_end(engine);
  CHECK_STATUS(NVLLM_TIMEOUT, nvllm_wait(engine, UINT64_MAX, &error), &error, "the next one without work");
}

static void freeing_ends_the_wait_of_every_thread(const char *folder) {
  struct waiters waiters;
  nvllm_engine *engine = open_engine(folder);
  begin_waiting(&waiters, engine);
  nvllm_engine_free(engine);
  check_waited(&waiters, NVLLM_ERR_CANCELLED, "the engine was freed");
  for (int i = 0; i < WAITERS; i++) {
    const char *message = waiters.each[i].error.message;
    CHECK(strstr(message, "nvllm_engine_free") != NULL, "%s", message);
  }
}

struct inside {
  nvllm_engine *engine;
  nvllm_status status;
};

static int32_t wait_inside(const nvllm_output *output, void *user_data) {
  struct inside *inside = user_data;
  (void)output;
  if (inside->status == NVLLM_OK) inside->status = nvllm_wait(inside->engine, UINT64_MAX, NULL);
  return 0;
}

static void a_request_is_work_beside_a_step(nvllm_engine *engine) {
  nvllm_error error;
  struct inside inside = {engine, NVLLM_OK};
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, wait_inside, &inside, &error), &error, "push");
  add_tokens(engine, TOKENS);
  run_to_end(engine);
  CHECK(inside.status == NVLLM_OK, "%s", nvllm_status_name(inside.status));
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, NULL, NULL, &error), &error, "poll");
  CHECK_STATUS(NVLLM_TIMEOUT, look(engine, &error), &error, "outputs that were pushed wait for nobody");
}

struct server {
  nvllm_engine *engine;
  int finished, errors;
};

/* The loop of the header's overview. */
static void *serve(void *argument) {
  struct server *server = argument;
  nvllm_output output = {.struct_size = sizeof output};
  while (server->finished < ADDERS * EACH) {
    server->errors += nvllm_wait(server->engine, UINT64_MAX, NULL) != NVLLM_OK;
    server->errors += nvllm_step(server->engine, 0, NULL, NULL) != NVLLM_OK;
    while (nvllm_poll_output(server->engine, &output, NULL) == NVLLM_OK)
      server->finished += output.finish_reason != NVLLM_FINISH_NONE;
    if (server->errors > 0) break;
  }
  return NULL;
}

static void *add_now_and_then(void *argument) {
  nvllm_engine *engine = argument;
  for (int i = 0; i < EACH; i++) {
    uint64_t id = add_tokens(engine, TOKENS);
    if (i % 3 == 2) (void)nvllm_cancel(engine, id);
    if (i % 2 == 1) sleep_ms(5);
  }
  return NULL;
}

/* The server is idle before, between and after them: no request is left lying. */
static void a_loop_that_waits_serves_all(nvllm_engine *engine) {
  struct server server = {engine, 0, 0};
  pthread_t serving, adding[ADDERS];
  if (pthread_create(&serving, NULL, serve, &server) != 0) exit(1);
  for (int i = 0; i < ADDERS; i++) {
    if (pthread_create(&adding[i], NULL, add_now_and_then, engine) != 0) exit(1);
  }
  for (int i = 0; i < ADDERS; i++) pthread_join(adding[i], NULL);
  pthread_join(serving, NULL);
  CHECK(server.finished == ADDERS * EACH && server.errors == 0, "%d ended, %d errors", server.finished, server.errors);
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  nvllm_engine *engine = open_engine(folder);
  it_tells_what_there_is_to_do(engine);
  it_sleeps_until_the_time_is_over(engine);
  work_ends_the_wait_of_every_thread(engine);
  waking_ends_the_wait_of_every_thread(engine);
  a_request_is_work_beside_a_step(engine);
  a_loop_that_waits_serves_all(engine);
  check_still_works(engine, "all that waited");
  nvllm_engine_free(engine);
  freeing_ends_the_wait_of_every_thread(folder);
  return checks_end();
}
