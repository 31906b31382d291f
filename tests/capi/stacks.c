/* What each call takes of its caller's stack, on threads with the stack that the header says is enough. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* As in the header, and what the library itself may take of it: the rest is for the C library and the system. */
enum { STACK_BYTES = 256 << 10, USED_BYTES_MAX = STACK_BYTES / 2 };

static const char *folder;
static nvllm_engine *engine;
static nvllm_error error;
static uint64_t id;
static uint8_t saved[1 << 20];
static size_t saved_bytes;
static char text[4096];

static const char *messages =
    "[{\"role\":\"system\",\"content\":\"You are helpful.\"},{\"role\":\"user\",\"content\":\"list all prime numbers within 100\"}]";

/* The rest of the tests checks what comes out; here a call has to come back, and to succeed. */
static nvllm_status add_text(void) {
  nvllm_request_options options = options_of(8);
  options.temperature = 0.8f;
  options.top_k = 20;
  options.top_p = 0.9f;
  options.stop = (const char *const[]){"nothing of the kind", "nor this"};
  options.num_stop = 2;
  options.num_logprobs = 5;
  return nvllm_add_request(engine, text, strlen(text), &options, &id, &error);
}
static nvllm_status add_many(void) {
  nvllm_status status = NVLLM_OK;
  for (int i = 0; i < 12 && status == NVLLM_OK; i++) status = add_text();
  return status;
}
static nvllm_status add_beams(void) {
  nvllm_request_options options = options_of(4);
  options.beam_width = 4;
  options.n = 2;
  return nvllm_add_request(engine, text, strlen(text), &options, &id, &error);
}
static nvllm_status add_structure(int32_t kind, const char *structure) {
  nvllm_request_options options = options_of(8);
  options.structure_kind = kind;
  options.structure = structure;
  return nvllm_add_request(engine, "one", 3, &options, &id, &error);
}
static nvllm_status add_schema(void) {
  return add_structure(NVLLM_STRUCTURE_JSON_SCHEMA,
                       "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
                       "\"properties\":{\"b\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2,9}$\"}}}}},\"required\":[\"a\"]}");
}
static nvllm_status add_regex(void) { return add_structure(NVLLM_STRUCTURE_REGEX, "([a-z]+ (one|two|three)[0-9]{2,5})+"); }
static nvllm_status add_grammar(void) {
  return add_structure(NVLLM_STRUCTURE_LARK, "start: list\nlist: \"[\" (item (\",\" item)*)? \"]\"\nitem: /[0-9]+/ | list\n");
}
static nvllm_status add_pooled(void) {
  nvllm_request_options options = options_of(1);
  options.pooling = NVLLM_POOLING_MEAN;
  return nvllm_add_request(engine, text, strlen(text), &options, &id, &error);
}
static nvllm_status step(void) { return nvllm_step(engine, 0, NULL, &error); }
static nvllm_status poll(void) {
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_status status;
  while ((status = nvllm_poll_output(engine, &output, &error)) == NVLLM_OK) continue;
  return status == NVLLM_NO_OUTPUT ? NVLLM_OK : status;
}
static nvllm_status run(void) {
  nvllm_status status = NVLLM_OK;
  while (status == NVLLM_OK && !nvllm_is_finished(engine)) {
    status = step();
    if (status == NVLLM_OK) status = poll();
  }
  return status;
}
static nvllm_status cancel(void) { return nvllm_cancel(engine, id); }
static nvllm_status tokenize(void) {
  uint32_t tokens[64];
  size_t needed;
  nvllm_status status = nvllm_tokenize(engine, text, strlen(text), 0, tokens, 64, &needed, &error);
  return status == NVLLM_ERR_BUFFER_TOO_SMALL ? NVLLM_OK : status;
}
static nvllm_status detokenize(void) {
  const uint32_t tokens[] = {5, 6, 7};
  char words[256];
  size_t needed;
  return nvllm_detokenize(engine, tokens, 3, 0, words, sizeof words, &needed, &error);
}
static nvllm_status apply_chat_template(void) {
  char prompt[2048];
  size_t needed;
  return nvllm_apply_chat_template(engine, messages, strlen(messages), NULL, 0, prompt, sizeof prompt, &needed, &error);
}
static nvllm_status save(void) {
  uint32_t tokens[512];
  size_t count;
  nvllm_status status = nvllm_tokenize(engine, text, strlen(text), 0, tokens, 512, &count, &error);
  if (status != NVLLM_OK) return status;
  return nvllm_save_prefix(engine, tokens, count, 0, saved, sizeof saved, &saved_bytes, NULL, &error);
}
static nvllm_status restore(void) { return nvllm_restore_prefix(engine, saved, saved_bytes, NULL, &error); }
static nvllm_status statistics(void) {
  static char metrics[16384];
  size_t needed;
  nvllm_stats stats = {.struct_size = sizeof stats};
  nvllm_status status = nvllm_get_stats(engine, &stats, &error);
  return status == NVLLM_OK ? nvllm_metrics_text(engine, metrics, sizeof metrics, &needed, &error) : status;
}
static nvllm_status generate(void) {
  const char *prompts[] = {text, "two"};
  nvllm_request_options options = options_of(4);
  const nvllm_request_options *shared[] = {&options};
  nvllm_result *result = NULL;
  nvllm_status status = nvllm_generate(engine, prompts, NULL, 2, shared, 1, NULL, NULL, &result, &error);
  nvllm_result_free(result);
  return status;
}
static nvllm_status open_it(void) {
  engine = open_engine(folder);
  return NVLLM_OK;
}
static nvllm_status free_it(void) {
  nvllm_engine_free(engine);
  return NVLLM_OK;
}

static const struct {
  const char *name;
  nvllm_status (*call)(void);
} calls[] = {
    {"engine_new", open_it},
    {"tokenize", tokenize},
    {"detokenize", detokenize},
    {"apply_chat_template", apply_chat_template},
    {"add_request, text", add_text},
    {"step, first", step},
    {"poll_output", poll},
    {"cancel", cancel},
    {"step and poll to the end", run},
    {"add_request, many", add_many},
    {"step and poll, a batch", run},
    {"add_request, beams", add_beams},
    {"step and poll, beams", run},
    {"add_request, pooling", add_pooled},
    {"step and poll, pooling", run},
    {"add_request, regex", add_regex},
    {"step and poll, regex", run},
    {"add_request, JSON schema", add_schema},
    {"step and poll, JSON schema", run},
    {"add_request, Lark grammar", add_grammar},
    {"step and poll, Lark grammar", run},
    {"get_stats, metrics_text", statistics},
    {"generate", generate},
    {"save_prefix", save},
    {"restore_prefix", restore},
    {"engine_free", free_it},
};

static void *call_it(void *at) {
  nvllm_status (*const *call)(void) = at;
  return (void *)(intptr_t)(*call)();
}

/* Runs a call on a stack of its own, below which a page may not be touched, and returns how much of it was used. */
static size_t stack_used(size_t index) {
  enum { FILL = 0xa5 };
  const size_t bytes = STACK_BYTES, guard = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *mapped = mmap(NULL, guard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  pthread_attr_t attributes;
  pthread_t thread;
  void *status;
  if (mapped == MAP_FAILED || mprotect(mapped, guard, PROT_NONE) != 0) exit(1);
  uint8_t *stack = mapped + guard;
  memset(stack, FILL, bytes);
  pthread_attr_init(&attributes);
  if (pthread_attr_setstack(&attributes, stack, bytes) != 0) exit(1);
  if (pthread_create(&thread, &attributes, call_it, (void *)&calls[index].call) != 0) exit(1);
  pthread_join(thread, &status);
  pthread_attr_destroy(&attributes);
  CHECK_STATUS(NVLLM_OK, (nvllm_status)(intptr_t)status, &error, calls[index].name);
  size_t untouched = 0;
  while (untouched < bytes && stack[untouched] == FILL) untouched++;
  munmap(mapped, guard + bytes);
  return bytes - untouched;
}

int main(int argc, char **argv) {
  const int shows = getenv("NVLLM_TEST_SHOW_STACKS") != NULL;
  folder = model_folder(argc, argv);
  for (int i = 0; i < 60; i++) strcat(text, "list all prime numbers ");
  text[700] = '\0';
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    size_t used = stack_used(i);
    if (shows) printf("%-28s %4zu KiB\n", calls[i].name, (used + 1023) >> 10);
    CHECK(used <= USED_BYTES_MAX, "%s took %zu bytes of stack", calls[i].name, used);
  }
  return checks_end();
}
