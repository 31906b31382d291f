/* Completes each prompt on the command line, as one turn of a conversation.
 *
 *   generate [--max-tokens N] [--temperature T] [--threads N] MODEL PROMPT...
 *
 * MODEL is a model folder or a GGUF file.
 */
#define _POSIX_C_SOURCE 200809L
#include "support.h"

#include <errno.h>
#include <unistd.h>

struct arguments {
  const char *model;
  char **prompts;
  size_t num_prompts;
  uint32_t max_tokens;
  uint32_t threads;
  float temperature;
  int has_temperature;
};

static void usage(void) {
  fputs("usage: generate [--max-tokens N] [--temperature T] [--threads N] MODEL PROMPT...\n", stderr);
  exit(2);
}

static uint32_t parse_count(const char *text) {
  char *end;
  errno = 0;
  unsigned long value = strtoul(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || *text == '-' || value > UINT32_MAX) usage();
  return (uint32_t)value;
}

static struct arguments parse_arguments(int argc, char **argv) {
  struct arguments arguments = {NULL, NULL, 0, UINT32_MAX, 0, 0.0f, 0};
  int next = 1;
  while (next + 1 < argc && strncmp(argv[next], "--", 2) == 0) {
    const char *name = argv[next++];
    const char *value = argv[next++];
    if (strcmp(name, "--max-tokens") == 0) {
      arguments.max_tokens = parse_count(value);
    } else if (strcmp(name, "--threads") == 0) {
      arguments.threads = parse_count(value);
    } else if (strcmp(name, "--temperature") == 0) {
      char *end;
      arguments.temperature = strtof(value, &end);
      arguments.has_temperature = 1;
      if (end == value || *end != '\0') usage();
    } else {
      usage();
    }
  }
  if (argc - next < 2) usage();
  arguments.model = argv[next];
  arguments.prompts = argv + next + 1;
  arguments.num_prompts = (size_t)(argc - next - 1);
  return arguments;
}

/* A progress bar that is redrawn on a terminal. Nothing is printed into a file or a pipe. */
static void draw_bar(const char *label, double fraction, const char *note) {
  enum { WIDTH = 30 };
  char bar[WIDTH + 1];
  if (!isatty(STDERR_FILENO)) return;
  for (int i = 0; i < WIDTH; i++) bar[i] = i < fraction * WIDTH ? '#' : '.';
  bar[WIDTH] = '\0';
  fprintf(stderr, "\r%-10s [%s] %3.0f%% %s\033[K", label, bar, 100.0 * fraction, note);
  fflush(stderr);
}

static void end_bar(void) {
  if (isatty(STDERR_FILENO)) fputc('\n', stderr);
}

static int32_t show_loading(float fraction, void *user_data) {
  (void)user_data;
  draw_bar("loading", fraction, "");
  return 0;
}

static int32_t show_generating(const nvllm_progress *progress, void *user_data) {
  char note[96];
  (void)user_data;
  snprintf(note, sizeof note, "%zu of %zu, %.0f prompt and %.0f answer tokens/s", progress->finished,
           progress->total, progress->prefill_tokens_per_s, progress->decode_tokens_per_s);
  draw_bar("generating", progress->total > 0 ? (double)progress->finished / (double)progress->total : 1.0, note);
  return 0;
}

static nvllm_engine *open_engine(const struct arguments *arguments) {
  nvllm_error error;
  nvllm_engine *engine;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = arguments->model;
  config.num_threads = arguments->threads;
  config.progress = show_loading;
  nvllm_status status = nvllm_engine_new(&config, &engine, &error);
  end_bar();
  if (status != NVLLM_OK) fail("cannot open the model", &error);
  return engine;
}

/* The options that the model recommends, with the changes that the arguments ask for. */
static nvllm_result *answer(nvllm_engine *engine, const struct arguments *arguments) {
  nvllm_error error;
  nvllm_result *result;
  nvllm_request_options options;
  options.struct_size = sizeof options;
  if (nvllm_default_options(engine, &options, &error) != NVLLM_OK) fail("cannot read the model's options", &error);
  options.max_tokens = arguments->max_tokens;
  if (arguments->has_temperature) options.temperature = arguments->temperature;
  size_t count = arguments->num_prompts;
  nvllm_message *questions = allocate(count, sizeof *questions);
  nvllm_prompt *prompts = allocate(count, sizeof *prompts);
  for (size_t i = 0; i < count; i++) {
    questions[i] = (nvllm_message){"user", arguments->prompts[i]};
    prompts[i] = (nvllm_prompt){.struct_size = sizeof *prompts, .messages = &questions[i], .num_messages = 1, .options = &options};
  }
  nvllm_status status = nvllm_generate_prompts(engine, prompts, count, show_generating, NULL, &result, &error);
  end_bar();
  free(questions);
  free(prompts);
  if (status != NVLLM_OK) fail("generate", &error);
  return result;
}

/* Prints all completions, and returns the number of prompts that have none. */
static int print_answers(const nvllm_result *result, char **prompts) {
  int failures = 0;
  for (size_t i = 0; i < nvllm_result_count(result); i++) {
    nvllm_output output;
    output.struct_size = sizeof output;
    nvllm_status status = nvllm_result_get(result, i, &output);
    if (status != NVLLM_OK) {
      fprintf(stderr, "result %zu: %s\n", i, nvllm_status_name(status));
      failures++;
    } else if (output.finish_reason == NVLLM_FINISH_ERROR) {
      fprintf(stderr, "> %s\n%s (%s)\n\n", prompts[i], output.error_message, nvllm_status_name(output.status));
      failures++;
    } else {
      printf("> %s\n", prompts[i]);
      fwrite(output.text, 1, output.text_len, stdout);
      fputs("\n\n", stdout);
    }
  }
  return failures;
}

static void print_speed(const nvllm_engine *engine) {
  nvllm_error error;
  nvllm_stats stats;
  stats.struct_size = sizeof stats;
  if (nvllm_get_stats(engine, &stats, &error) != NVLLM_OK) fail("statistics", &error);
  double seconds = (double)stats.step_time_us * 1e-6;
  uint64_t tokens = stats.prompt_tokens + stats.generated_tokens;
  fprintf(stderr, "%llu prompt and %llu answer tokens in %.2f s: %.0f tokens/s\n",
          (unsigned long long)stats.prompt_tokens, (unsigned long long)stats.generated_tokens, seconds,
          seconds > 0.0 ? (double)tokens / seconds : 0.0);
}

int main(int argc, char **argv) {
  struct arguments arguments = parse_arguments(argc, argv);
  nvllm_engine *engine = open_engine(&arguments);

  nvllm_result *result = answer(engine, &arguments);
  int failures = print_answers(result, arguments.prompts);
  flush_output();
  print_speed(engine);

  nvllm_result_free(result);
  nvllm_engine_free(engine);
  return failures > 0;
}
