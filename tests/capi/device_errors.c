/* A device that fails, at each call of the driver in turn. Linked to the driver of tests/fake_gpu. */
#include "../fake_gpu/fake_gpu.h"
#include "check.h"

#include <malloc.h>

/* CUresult */
enum { CUDA_OUT_OF_MEMORY = 2, CUDA_LAUNCH_FAILED = 719 };
/* Tokens: more than a block, so that there is something to save. */
enum { PROMPT = 80 };

static const char *folder;
static nvllm_error error;

struct course {
  nvllm_status opened; /* then nothing else was called */
  nvllm_status first;  /* the first answer of an open engine that was no success */
  int32_t device;
  int32_t native_code;
  long calls;
};

/* After a device error each call answers it; and before the first one each answers OK. */
static void note(struct course *course, nvllm_status status, const char *call) {
  if (course->first == NVLLM_OK) {
    course->first = status;
    course->native_code = error.native_code;
    return;
  }
  CHECK(course->first != NVLLM_ERR_DEVICE || status == NVLLM_ERR_DEVICE, "%s answered %s after the device was lost", call,
        nvllm_status_name(status));
}

/* Opens an engine, lets it do everything once, and frees it. */
static struct course run(int32_t device, long fail_at, int code, int for_ever) {
  struct course course = {NVLLM_OK, NVLLM_OK, 0, 0, 0};
  static uint8_t saved[1 << 20];
  static uint32_t prompt[PROMPT];
  size_t saved_bytes = 0;
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_model_info info = {.struct_size = sizeof info};
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.device = device;
  config.num_threads = 1;
  config.max_model_len = 256;
  config.max_num_seqs = 2;
  config.max_batched_tokens = 64;
  config.kv_cache_bytes = 24u << 20; /* pieces of 2 MiB, of which half hold the beginning of a layer */
  for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = 5 + i;
  fake_gpu_fail(fail_at, code, for_ever);
  course.opened = nvllm_engine_new(&config, &engine, &error);
  course.native_code = error.native_code;
  if (course.opened != NVLLM_OK) {
    CHECK(engine == NULL, "an engine was stored");
    course.calls = fake_gpu_calls();
    return course;
  }
  if (nvllm_engine_model_info(engine, &info, &error) == NVLLM_OK) course.device = info.device;
  for (int i = 0; i < 4; i++) {
    nvllm_request_options options = options_of(4);
    nvllm_output output = {.struct_size = sizeof output};
    uint64_t budget_us = i == 1 ? 100000 : 0; /* with a budget the device is polled */
    options.ignore_eos = 1;
    options.num_logprobs = i % 3;
    options.temperature = (float)(i % 3);
    if (i == 3) options.pooling = NVLLM_POOLING_MEAN;
    note(&course, nvllm_add_request_tokens(engine, prompt, PROMPT, &options, NULL, &error), "add");
    for (int steps = 0; steps < 50 && !nvllm_is_finished(engine); steps++) {
      note(&course, nvllm_step(engine, budget_us, NULL, &error), "step");
      nvllm_status polled;
      while ((polled = nvllm_poll_output(engine, &output, &error)) == NVLLM_OK) continue;
      if (polled != NVLLM_NO_OUTPUT) note(&course, polled, "poll");
    }
    CHECK(nvllm_is_finished(engine), "a loop over it ends");
  }
  nvllm_status status = nvllm_save_prefix(engine, prompt, PROMPT, 0, saved, sizeof saved, &saved_bytes, NULL, &error);
  note(&course, status, "save");
  if (status == NVLLM_OK) {
    note(&course, nvllm_reset_prefix_cache(engine, &error), "reset");
    note(&course, nvllm_restore_prefix(engine, saved, saved_bytes, NULL, &error), "restore");
  }
  note(&course, nvllm_trim(engine, NULL, &error), "trim");
  nvllm_engine_free(engine);
  course.calls = fake_gpu_calls();
  return course;
}

static int is_allocation(const char *function) {
  return strcmp(function, "cuMemAlloc_v2") == 0 || strcmp(function, "cuMemHostAlloc") == 0 || strcmp(function, "cuMemCreate") == 0 ||
         strcmp(function, "cuMemAddressReserve") == 0;
}
/* Failures that nobody needs to know of: what is released is gone either way, and what is not known is not assumed. */
static int is_ignored(const char *function) {
  static const char *const ignored[] = {"Destroy",     "Free",        "Unload",     "Release",   "Unmap",
                                        "IsCapturing", "Synchronize", "SetCurrent", "GetCurrent"};
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
    if (strstr(function, ignored[i]) != NULL) return 1;
  }
  return 0;
}

/* Which of two kinds of failure: the device is lost from a call on, or one call fails and the next ones work. */
enum kind { ALTERNATELY, FOR_EVER, AT_ALLOCATIONS };

static void fail_each_call(int32_t device, long calls, int code, enum kind kind) {
  long runs = 0, refused = 0, lost = 0, ignored = 0;
  for (long at = 1; at <= calls; at++) {
    const char *function = fake_gpu_name(at);
    if (kind == AT_ALLOCATIONS && !is_allocation(function)) continue;
    /* Every function begins with this one: a tenth of its calls shows what there is to see. */
    if (kind == ALTERNATELY && strcmp(function, "cuCtxSetCurrent") == 0 && at % 20 > 1) continue;
    runs++;
    struct course course = run(device, at, code, kind == FOR_EVER || (kind == ALTERNATELY && at % 2 == 0));
    const char *failed = fake_gpu_failed();
    if (failed == NULL) {
      CHECK(at > calls - calls / 20, "call %ld of %ld did not come", at, calls);
      continue;
    }
    nvllm_status status = course.opened != NVLLM_OK ? course.opened : course.first;
    int as_documented = status == NVLLM_ERR_DEVICE && course.native_code == code;
    /* Memory that is lacking within a pass loses the device, too. */
    if (is_allocation(failed) && code == CUDA_OUT_OF_MEMORY) as_documented |= status == NVLLM_ERR_OUT_OF_MEMORY;
    if (strcmp(failed, "cuInit") == 0) {
      as_documented = device == NVLLM_DEVICE_AUTO ? status == NVLLM_OK && course.device == NVLLM_DEVICE_CPU
                                                  : status == NVLLM_ERR_UNSUPPORTED;
    }
    CHECK(as_documented || (is_ignored(failed) && status == NVLLM_OK), "call %ld, %s, fails with %d: %s, %s", at, failed, code,
          nvllm_status_name(course.opened), nvllm_status_name(course.first));
    CHECK(fake_gpu_live() == 0, "call %ld, %s, fails with %d: %ld of the device's things are left", at, failed, code,
          fake_gpu_live());
    refused += course.opened != NVLLM_OK;
    lost += course.opened == NVLLM_OK && course.first != NVLLM_OK;
    ignored += status == NVLLM_OK;
  }
  if (getenv("NVLLM_TEST_SHOW_ERRORS") != NULL) {
    printf("device %d, code %d: %ld of %ld calls; %ld refused to open, %ld lost the device later, %ld went on\n", device, code, runs, calls,
           refused, lost, ignored);
  }
}

static int cancel(float fraction, void *context) {
  (void)fraction, (void)context;
  return 1;
}

/* GPUs of several processes need NCCL, which is looked for before anything is loaded. Where there is one, nobody else comes. */
static void open_one_of_two_processes(void) {
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.device = NVLLM_DEVICE_CUDA;
  config.tensor_parallel_size = 2;
  config.num_processes = 2;
  config.rendezvous = "127.0.0.1:47613";
  config.progress = cancel;
  fake_gpu_fail(0, 0, 0);
  nvllm_status status = nvllm_engine_new(&config, &engine, &error);
  CHECK(status == NVLLM_ERR_CANCELLED || (status == NVLLM_ERR_UNSUPPORTED && strstr(error.message, "install nvidia-nccl-cu13") != NULL),
        "%s: %s", nvllm_status_name(status), error.message);
  CHECK(engine == NULL && fake_gpu_live() == 0, "%ld of the device's things are left", fake_gpu_live());
}

/* Opens an engine with a budget for everything. The driver's numbers never change, so that a context of 640 MiB is all it takes. */
static nvllm_status within(uint64_t mib, uint64_t kv_mib, nvllm_model_info *info, nvllm_stats *stats) {
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.device = NVLLM_DEVICE_CUDA;
  config.max_num_seqs = 256;
  config.gpu_memory_bytes = mib << 20;
  config.kv_cache_bytes = kv_mib << 20;
  config.memory_utilization = 1;
  fake_gpu_fail(0, 0, 0);
  nvllm_status status = nvllm_engine_new(&config, &engine, &error);
  if (status == NVLLM_OK) {
    CHECK_STATUS(NVLLM_OK, nvllm_engine_model_info(engine, info, &error), &error, "info");
    CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, stats, &error), &error, "stats");
  }
  nvllm_engine_free(engine);
  CHECK(fake_gpu_live() == 0, "%ld of the device's things are left", fake_gpu_live());
  return status;
}

/* Passes keep 128 MiB besides the context and the KV cache. */
static void a_budget_holds_everything(void) {
  nvllm_model_info info = {.struct_size = sizeof info};
  nvllm_stats stats = {.struct_size = sizeof stats};
  CHECK_STATUS(NVLLM_ERR_OUT_OF_MEMORY, within(1, 0, &info, &stats), &error, "less than the weights");
  CHECK(strstr(error.message, "the weights take") != NULL, "%s", error.message);
  CHECK_STATUS(NVLLM_ERR_OUT_OF_MEMORY, within(700, 0, &info, &stats), &error, "less than weights and context");
  CHECK(strstr(error.message, "one KV block take") != NULL, "%s", error.message);
  CHECK_STATUS(NVLLM_ERR_OUT_OF_MEMORY, within(800, 33, &info, &stats), &error, "less than the KV cache");
  CHECK(strstr(error.message, "kv_cache_bytes take") != NULL, "%s", error.message);
  CHECK_STATUS(NVLLM_OK, within(800, 31, &info, &stats), &error, "room for the KV cache");
  CHECK_STATUS(NVLLM_OK, within(800, 0, &info, &stats), &error, "what is left");
  CHECK(info.kv_cache_bytes <= 32u << 20 && info.kv_cache_bytes > 31u << 20, "%llu bytes", (unsigned long long)info.kv_cache_bytes);
  CHECK(stats.gpu_memory_bytes == 640u << 20, "%llu bytes", (unsigned long long)stats.gpu_memory_bytes);
}

/* Runs requests whose prompts share nothing, all at once; returns the number of requests that ended as they should. */
static int run_requests(nvllm_engine *engine, uint32_t requests, uint64_t salt) {
  uint32_t prompt[PROMPT];
  int ended = 0;
  nvllm_output output = {.struct_size = sizeof output};
  for (uint32_t request = 0; request < requests; request++) {
    nvllm_request_options options = options_of(60);
    options.ignore_eos = 1;
    options.cache_salt = salt + request;
    for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = 5 + i;
    CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, prompt, PROMPT, &options, NULL, &error), &error, "add");
  }
  for (int steps = 0; steps < 20000 && !nvllm_is_finished(engine); steps++) {
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) ended += output.finish_reason == NVLLM_FINISH_LENGTH;
    /* Passes are in flight. */
    if (steps == 3) CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, NULL, &error), &error, "trim");
  }
  return ended;
}

static nvllm_engine *open_to_trim(void) {
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.device = NVLLM_DEVICE_CUDA;
  config.max_model_len = 256;
  config.max_num_seqs = 64;
  config.kv_block_size = 64;
  config.kv_cache_bytes = 24u << 20; /* 128 blocks; a piece of a layer holds 64 */
  CHECK_STATUS(NVLLM_OK, nvllm_engine_new(&config, &engine, &error), &error, "open");
  return engine;
}

/* What the KV cache has by the engine's account is what the driver mapped. */
static uint64_t mapped_bytes(nvllm_engine *engine) {
  nvllm_stats stats = {.struct_size = sizeof stats};
  CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &stats, &error), &error, "stats");
  CHECK(stats.kv_cache_bytes_mapped == fake_gpu_mapped(), "%llu bytes, the driver has %llu",
        (unsigned long long)stats.kv_cache_bytes_mapped, fake_gpu_mapped());
  return stats.kv_cache_bytes_mapped;
}

static void memory_is_given_back_and_mapped_again(void) {
  enum { REQUESTS = 50, WHOLE = 24 << 20 };
  nvllm_stats stats = {.struct_size = sizeof stats};
  uint64_t freed = 0;
  fake_gpu_fail(0, 0, 0);
  nvllm_engine *engine = open_to_trim();
  CHECK(mapped_bytes(engine) == WHOLE, "all of it");
  CHECK(run_requests(engine, REQUESTS, 100) == REQUESTS, "all end");
  CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, &freed, &error), &error, "trim");
  uint64_t least = mapped_bytes(engine);
  CHECK(freed > 0 && least == WHOLE / 2, "the pieces with block 0 stay, not %llu bytes", (unsigned long long)least);
  CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, &freed, &error), &error, "trim");
  CHECK(freed == 0, "%llu bytes the second time", (unsigned long long)freed);
  /* Somebody else took the memory: half of the blocks are enough, if requests wait for each other. */
  fake_gpu_leave(0);
  CHECK(run_requests(engine, REQUESTS, 200) == REQUESTS, "all end");
  CHECK(mapped_bytes(engine) == least, "nothing was left");
  CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &stats, &error), &error, "stats");
  CHECK(stats.running == 0 && stats.waiting == 0 && stats.kv_blocks_used == 0, "%u blocks", stats.kv_blocks_used);
  /* Enough for some layers is not enough. */
  fake_gpu_leave(6u << 20);
  CHECK(run_requests(engine, REQUESTS, 300) == REQUESTS, "all end");
  CHECK(mapped_bytes(engine) == least, "what was mapped for a part is given back");
  fake_gpu_leave(WHOLE);
  CHECK(run_requests(engine, REQUESTS, 400) == REQUESTS, "all end");
  CHECK(mapped_bytes(engine) == WHOLE, "all of it again");
  nvllm_engine_free(engine);
  fake_gpu_leave(~0ull >> 1);
  CHECK(fake_gpu_live() == 0 && fake_gpu_mapped() == 0, "%ld of the device's things are left", fake_gpu_live());

  fake_gpu_map_in_pieces(0);
  engine = open_to_trim();
  CHECK(run_requests(engine, 2, 100) == 2, "all end");
  CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, &freed, &error), &error, "trim");
  CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &stats, &error), &error, "stats");
  CHECK(freed == 0 && stats.kv_cache_bytes_mapped == WHOLE && stats.prefix_cache_evictions == 0, "a cache in one piece stays as it is");
  nvllm_engine_free(engine);
  fake_gpu_map_in_pieces(1);
  CHECK(fake_gpu_live() == 0, "%ld of the device's things are left", fake_gpu_live());
}

/* A graph that cannot be recorded when a batch of its size first comes ends nothing: its pass has run, and the next one tries again. */
static void a_graph_that_is_not_recorded_ends_nothing(void) {
  enum { REQUESTS = 12, PLACES = 64 };
  long places[PLACES], found = 0;
  fake_gpu_fail(0, 0, 0);
  nvllm_engine *engine = open_to_trim();
  fake_gpu_fail(0, 0, 0);
  CHECK(run_requests(engine, REQUESTS, 500) == REQUESTS, "all end");
  for (long at = 1; at <= fake_gpu_calls() && found < PLACES; at++) {
    const char *function = fake_gpu_name(at);
    if (function == NULL) continue;
    int records = strstr(function, "BeginCapture") || strstr(function, "EndCapture") || strstr(function, "GraphInstantiate");
    if (records) places[found++] = at;
  }
  nvllm_engine_free(engine);
  CHECK(found >= 3, "%ld calls record the graphs of %d rows", found, REQUESTS);
  for (long i = 0; i < found; i++) {
    fake_gpu_fail(0, 0, 0);
    engine = open_to_trim();
    fake_gpu_fail(places[i], CUDA_OUT_OF_MEMORY, 0);
    CHECK(run_requests(engine, REQUESTS, 500) == REQUESTS, "all end though call %ld fails", places[i]);
    const char *failed = fake_gpu_failed();
    CHECK(failed != NULL && (strstr(failed, "Capture") || strstr(failed, "Graph")), "%s failed", failed != NULL ? failed : "nothing");
    nvllm_engine_free(engine);
    CHECK(fake_gpu_live() == 0, "call %ld: %ld of the device's things are left", places[i], fake_gpu_live());
  }
}

/* Opens a model with two layers of experts. */
static nvllm_status open_experts(uint64_t budget, int32_t layers, nvllm_engine **engine, nvllm_model_info *info) {
  static char path[4096];
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  snprintf(path, sizeof path, "%s/../../tests/golden/qwen3_moe-bf16-not-normed", folder);
  config.model_path = path;
  config.device = NVLLM_DEVICE_CUDA;
  config.max_num_seqs = 4;
  config.max_batched_tokens = 64;
  config.num_threads = 2;
  config.kv_block_size = 64;
  config.memory_utilization = 1;
  config.gpu_memory_bytes = budget;
  config.host_expert_layers = layers;
  fake_gpu_fail(0, 0, 0);
  nvllm_status status = nvllm_engine_new(&config, engine, &error);
  if (status == NVLLM_OK) CHECK_STATUS(NVLLM_OK, nvllm_engine_model_info(*engine, info, &error), &error, "info");
  return status;
}

static void experts_stay_in_host_memory(void) {
  enum { NONE = -1, REQUESTS = 6 };
  const struct {
    int32_t asked;
    uint32_t found;
  } cases[] = {{0, 0}, {NONE, 0}, {1, 1}, {2, 2}};
  nvllm_engine *engine = NULL;
  nvllm_model_info info = {.struct_size = sizeof info};
  uint64_t weights = 0, experts = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    CHECK_STATUS(NVLLM_OK, open_experts(0, cases[i].asked, &engine, &info), &error, "open");
    CHECK(info.host_expert_layers == cases[i].found && (info.host_expert_bytes > 0) == (cases[i].found > 0), "%u layers, %llu bytes",
          info.host_expert_layers, (unsigned long long)info.host_expert_bytes);
    CHECK(run_requests(engine, REQUESTS, 600) == REQUESTS, "all end");
    if (cases[i].found == 1) experts = info.host_expert_bytes;
    weights = info.weight_bytes;
    nvllm_engine_free(engine);
    CHECK(fake_gpu_live() == 0, "%ld of the device's things are left", fake_gpu_live());
  }
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, open_experts(0, 3, &engine, &info), &error, "three of two");
  CHECK(strstr(error.message, "2 layers of the model have experts") != NULL, "%s", error.message);
  /* Context, what passes keep, one block of keys and values, and the weights without the experts of one layer. */
  uint64_t budget = (640u << 20) + (128u << 20) + 64 * info.kv_token_bytes + weights - experts;
  CHECK_STATUS(NVLLM_ERR_OUT_OF_MEMORY, open_experts(budget, NONE, &engine, &info), &error, "no room for both");
  CHECK(strstr(error.message, "set host_expert_layers to at least 1") != NULL, "%s", error.message);
  CHECK_STATUS(NVLLM_OK, open_experts(budget, 1, &engine, &info), &error, "one layer fits");
  nvllm_engine_free(engine);
  CHECK_STATUS(NVLLM_OK, open_experts(budget, 0, &engine, &info), &error, "by default");
  CHECK(info.host_expert_layers == 2, "graphs and a larger cache have no room: %u layers", info.host_expert_layers);
  CHECK(run_requests(engine, REQUESTS, 700) == REQUESTS, "all end");
  nvllm_engine_free(engine);
  CHECK(fake_gpu_live() == 0, "%ld of the device's things are left", fake_gpu_live());
}

/* Mamba-2 has no keys and values, and others have some in a part of their layers. */
static void models_whose_layers_have_no_attention_run(void) {
  static const char *const names[] = {"mamba2-bf16-tied", "bamba-f16-older", "lfm3-bf16-biased", "nemotron_h-bf16-latent", "qwen3_5-bf16-wrapped"};
  static char path[4096];
  enum { REQUESTS = 6 };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    nvllm_engine *engine = NULL;
    nvllm_engine_config config;
    uint64_t freed = 0;
    nvllm_engine_config_init(&config, sizeof config);
    snprintf(path, sizeof path, "%s/../../tests/golden/%s", folder, names[i]);
    config.model_path = path;
    config.device = NVLLM_DEVICE_CUDA;
    config.max_num_seqs = 4;
    config.max_batched_tokens = 64;
    fake_gpu_fail(0, 0, 0);
    CHECK_STATUS(NVLLM_OK, nvllm_engine_new(&config, &engine, &error), &error, names[i]);
    if (engine == NULL) continue;
    CHECK(run_requests(engine, REQUESTS, 800) == REQUESTS, "%s: all end", names[i]);
    CHECK_STATUS(NVLLM_OK, nvllm_trim(engine, &freed, &error), &error, names[i]);
    CHECK(run_requests(engine, REQUESTS, 900) == REQUESTS, "%s: all end after a trim", names[i]);
    nvllm_engine_free(engine);
    CHECK(fake_gpu_live() == 0, "%s: %ld of the device's things are left", names[i], fake_gpu_live());
  }
}

int main(int argc, char **argv) {
  folder = model_folder(argc, argv);
  if (strstr(nvllm_build_info(), "\"cuda\"") == NULL) {
    fputs("this library has no CUDA\n", stderr);
    return 2;
  }
  /* Memory of one engine serves the next: fresh pages of the system cost more than all else here. */
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  open_one_of_two_processes();
  a_budget_holds_everything();
  memory_is_given_back_and_mapped_again();
  a_graph_that_is_not_recorded_ends_nothing();
  experts_stay_in_host_memory();
  models_whose_layers_have_no_attention_run();
  struct course whole = run(NVLLM_DEVICE_CUDA, 0, 0, 0);
  CHECK(whole.opened == NVLLM_OK && whole.first == NVLLM_OK && whole.device == NVLLM_DEVICE_CUDA, "%s, %s: %s",
        nvllm_status_name(whole.opened), nvllm_status_name(whole.first), error.message);
  CHECK(fake_gpu_live() == 0, "%ld of the device's things are left", fake_gpu_live());
  fail_each_call(NVLLM_DEVICE_CUDA, whole.calls, CUDA_OUT_OF_MEMORY, AT_ALLOCATIONS);
  fail_each_call(NVLLM_DEVICE_CUDA, whole.calls, CUDA_LAUNCH_FAILED, ALTERNATELY);
  fail_each_call(NVLLM_DEVICE_AUTO, 8, CUDA_LAUNCH_FAILED, FOR_EVER);
  return checks_end();
}
