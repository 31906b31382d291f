/* What threads hand to each other: messages of the log, an engine and its end, outputs, and structures that are compiled once for all. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 12, TOKENS = 3 };

/* Not atomic: messages come one at a time, and none comes when another callback has been set. */
struct heard {
  int messages;
  size_t bytes;
};

static void hear(int32_t level, const char *message, size_t message_len, void *user_data) {
  struct heard *heard = user_data;
  (void)level;
  (void)message;
  heard->messages++;
  heard->bytes += message_len;
}

struct opener {
  const char *folder;
  atomic_int *opened;
};

static void *open_and_free(void *argument) {
  struct opener *opener = argument;
  for (int i = 0; i < 3; i++) {
    nvllm_engine_free(open_engine(opener->folder));
    atomic_fetch_add(opener->opened, 1);
  }
  return NULL;
}

static void a_log_callback_is_replaced_while_threads_log(const char *folder) {
  pthread_t threads[THREADS];
  struct heard heard[2] = {{0, 0}, {0, 0}};
  atomic_int opened;
  struct opener opener = {folder, &opened};
  int messages = 0, lost = 0;
  atomic_init(&opened, 0);
  nvllm_set_log_callback(hear, &heard[0], NVLLM_LOG_DEBUG);
  for (int i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, open_and_free, &opener) != 0) exit(1);
  }
  for (int turn = 0; atomic_load(&opened) < 3 * THREADS; turn++) {
    struct heard *before = &heard[turn % 2], *after = &heard[(turn + 1) % 2];
    nvllm_set_log_callback(hear, after, NVLLM_LOG_DEBUG);
    messages += before->messages;
    lost += (before->messages > 0) != (before->bytes > 0);
    *before = (struct heard){0, 0}; /* freed, for all that the library knows */
    sched_yield();
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  nvllm_set_log_callback(NULL, NULL, NVLLM_LOG_OFF);
  messages += heard[0].messages + heard[1].messages;
  CHECK(messages > 0 && lost == 0, "%d messages, %d turns with half of one", messages, lost);
}

struct inside {
  nvllm_engine *engine;
  atomic_int entered, freed;
  int calls; /* the caller's of nvllm_step alone */
};

static int32_t wait_for_the_end(const nvllm_output *output, void *user_data) {
  struct inside *inside = user_data;
  (void)output;
  inside->calls++;
  atomic_store(&inside->entered, 1);
  while (!atomic_load(&inside->freed)) sched_yield();
  return 0;
}

static void *step_once(void *argument) {
  struct inside *inside = argument;
  return (void *)(intptr_t)nvllm_step(inside->engine, 0, NULL, NULL);
}

static void an_engine_ends_on_the_thread_that_is_inside(const char *folder) {
  struct inside inside = {.engine = open_engine(folder)};
  nvllm_error error;
  pthread_t thread;
  void *status;
  atomic_init(&inside.entered, 0);
  atomic_init(&inside.freed, 0);
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(inside.engine, wait_for_the_end, &inside, &error), &error, "push");
  for (int i = 0; i < 3; i++) add_tokens(inside.engine, 5);
  if (pthread_create(&thread, NULL, step_once, &inside) != 0) exit(1);
  while (!atomic_load(&inside.entered)) sched_yield();
  nvllm_engine_free(inside.engine);
  atomic_store(&inside.freed, 1);
  pthread_join(thread, &status);
  CHECK((intptr_t)status == NVLLM_OK, "the step that it ends in");
  CHECK(inside.calls == 1, "%d calls after the end", inside.calls - 1);
}

struct poller {
  nvllm_engine *engine;
  size_t outputs;
};

/* A [one] call that finds another one inside is told so, and comes again. */
static void *poll_to_the_end(void *argument) {
  struct poller *poller = argument;
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_status status;
  do {
    status = nvllm_poll_output(poller->engine, &output, NULL);
    poller->outputs += status == NVLLM_OK;
    sched_yield();
  } while (status == NVLLM_OK || status == NVLLM_ERR_BUSY);
  return NULL;
}

static void threads_that_poll_share_the_outputs(const char *folder) {
  nvllm_engine *engine = open_engine(folder);
  struct poller pollers[THREADS];
  pthread_t threads[THREADS];
  nvllm_error error;
  nvllm_stats stats = {.struct_size = sizeof stats};
  size_t outputs = 0;
  for (int i = 0; i < 16; i++) add_tokens(engine, ROUNDS);
  do {
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
    CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &stats, &error), &error, "stats");
  } while (stats.running + stats.waiting > 0);
  for (int i = 0; i < THREADS; i++) {
    pollers[i] = (struct poller){engine, 0};
    if (pthread_create(&threads[i], NULL, poll_to_the_end, &pollers[i]) != 0) exit(1);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    outputs += pollers[i].outputs;
  }
  CHECK(outputs == 16 * ROUNDS, "%zu outputs", outputs);
  nvllm_engine_free(engine);
}

struct asker {
  nvllm_engine *engine;
  int number, refused;
};

/* Adds with structures, some of them those of other threads, pins and releases, and looks at all that may be looked at. */
static void *ask_and_look(void *argument) {
  struct asker *asker = argument;
  static const char *const digits = "[0-9]{8}", *const schema = "{\"type\": \"integer\"}";
  static const char messages[] = "[{\"role\": \"user\", \"content\": \"one\"}]";
  char own[32];
  snprintf(own, sizeof own, "[a-z]{%d}", asker->number + 4);
  for (int i = 0; i < ROUNDS; i++) {
    nvllm_request_options options = options_of(TOKENS);
    nvllm_error error;
    nvllm_stats stats = {.struct_size = sizeof stats};
    uint64_t id;
    size_t needed;
    char text[16384];
    options.structure_kind = i % 3 == 2 ? NVLLM_STRUCTURE_JSON_SCHEMA : NVLLM_STRUCTURE_REGEX;
    options.structure = i % 3 == 0 ? digits : i % 3 == 1 ? own : schema;
    options.pin_prompt = i % 2 == 0;
    options.n = 1 + (uint32_t)i % 2;
    nvllm_status status = nvllm_add_request(asker->engine, "one two three", 13, &options, &id, &error);
    if (status == NVLLM_ERR_OUT_OF_MEMORY) continue; /* too much is pinned */
    /* Under valgrind, or beside other work, a structure may take longer to compile than it has time. */
    asker->refused += status != NVLLM_OK && strstr(error.message, " ms") == NULL;
    if (status != NVLLM_OK) continue;
    if (i % 4 == 3) (void)nvllm_cancel(asker->engine, id);
    if (options.pin_prompt) (void)nvllm_release_prefix(asker->engine, id);
    asker->refused += nvllm_get_stats(asker->engine, &stats, &error) != NVLLM_OK;
    asker->refused += nvllm_metrics_text(asker->engine, text, sizeof text, &needed, &error) != NVLLM_OK;
    asker->refused += nvllm_apply_chat_template(asker->engine, messages, sizeof messages - 1, NULL, 0, text, sizeof text,
                                                &needed, &error) != NVLLM_OK;
    (void)nvllm_is_finished(asker->engine);
  }
  return NULL;
}

struct stepper {
  nvllm_engine *engine;
  atomic_int *end;
  size_t outputs;
};

static void *step_and_poll(void *argument) {
  struct stepper *stepper = argument;
  nvllm_output output = {.struct_size = sizeof output};
  for (int last = 0; !last;) {
    last = atomic_load(stepper->end) && nvllm_is_finished(stepper->engine);
    nvllm_status status = nvllm_step(stepper->engine, 1000, NULL, NULL);
    if (status != NVLLM_OK && status != NVLLM_ERR_BUSY) break;
    while (nvllm_poll_output(stepper->engine, &output, NULL) == NVLLM_OK) stepper->outputs++;
    sched_yield();
  }
  return NULL;
}

static void threads_ask_with_structures_while_others_step_in_turn(const char *folder) {
  nvllm_engine *engine = open_engine(folder);
  atomic_int end;
  struct stepper steppers[2];
  struct asker askers[THREADS];
  pthread_t threads[THREADS], steps[2];
  atomic_init(&end, 0);
  for (int i = 0; i < 2; i++) {
    steppers[i] = (struct stepper){engine, &end, 0};
    if (pthread_create(&steps[i], NULL, step_and_poll, &steppers[i]) != 0) exit(1);
  }
  for (int i = 0; i < THREADS; i++) {
    askers[i] = (struct asker){engine, i, 0};
    if (pthread_create(&threads[i], NULL, ask_and_look, &askers[i]) != 0) exit(1);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    CHECK(askers[i].refused == 0, "thread %d was refused %d times", i, askers[i].refused);
  }
  atomic_store(&end, 1);
  for (int i = 0; i < 2; i++) pthread_join(steps[i], NULL);
  size_t outputs = steppers[0].outputs + steppers[1].outputs;
  CHECK(outputs > 0 && nvllm_is_finished(engine), "%zu outputs", outputs);
  check_still_works(engine, "the other threads");
  nvllm_engine_free(engine);
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  a_log_callback_is_replaced_while_threads_log(folder);
  an_engine_ends_on_the_thread_that_is_inside(folder);
  threads_that_poll_share_the_outputs(folder);
  threads_ask_with_structures_while_others_step_in_turn(folder);
  return checks_end();
}
