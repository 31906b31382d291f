/* A model from memory, from open files and from parts of a pack file: the same tokens as from its folder, and what is refused. */
#ifndef _WIN32
#define _GNU_SOURCE /* O_PATH */
#endif
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#ifdef _WIN32
#include <io.h>
#include <process.h>
#define getpid _getpid
#else
#include <sys/resource.h>
#include <unistd.h>
#endif
#ifndef O_BINARY
#define O_BINARY 0
#endif

enum { TOKENS = 16, FILES = 5, PATH = 4096 };
static const char *const names[FILES] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                         "generation_config.json"};
static nvllm_error error;
static nvllm_engine_config config;
/* The files of the model, one after the other with a byte between them, so that their data begin at odd places. */
static char *pack;
static size_t pack_bytes, starts[FILES], sizes[FILES];

/* What the library takes for an open file. */
static int64_t descriptor_of(int fd) {
#ifdef _WIN32
  return (int64_t)_get_osfhandle(fd);
#else
  return fd;
#endif
}

static void read_model(const char *folder) {
  char path[PATH];
  for (size_t i = 0; i < FILES; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) exit(2);
    sizes[i] = (size_t)ftell(file);
    starts[i] = pack_bytes + 1;
    pack = realloc(pack, starts[i] + sizes[i]);
    if (pack == NULL) exit(2);
    pack[pack_bytes] = '-';
    rewind(file);
    if (fread(pack + starts[i], 1, sizes[i], file) != sizes[i]) exit(2);
    fclose(file);
    pack_bytes = starts[i] + sizes[i];
  }
}

static void in_memory(nvllm_model_file *files) {
  for (size_t i = 0; i < FILES; i++) {
    nvllm_model_file_init(&files[i], sizeof files[i]);
    files[i].name = names[i];
    files[i].data = pack + starts[i];
    files[i].size = sizes[i];
  }
}

static void in_pack(nvllm_model_file *files, int64_t descriptor) {
  for (size_t i = 0; i < FILES; i++) {
    nvllm_model_file_init(&files[i], sizeof files[i]);
    files[i].name = names[i];
    files[i].kind = NVLLM_FILE_RANGE;
    files[i].descriptor = descriptor;
    files[i].offset = starts[i];
    files[i].size = sizes[i];
  }
}

/* The tokens of a greedy completion. Frees the engine. */
static void complete(nvllm_engine *engine, uint32_t *tokens, const char *what) {
  const char *prompt = "list all prime numbers within 100";
  nvllm_request_options options = options_of(TOKENS);
  const nvllm_request_options *of_all = &options;
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_result *result = NULL;
  options.temperature = 0;
  options.ignore_eos = 1;
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, &prompt, NULL, 1, &of_all, 1, NULL, NULL, &result, &error), &error, what);
  CHECK_STATUS(NVLLM_OK, nvllm_result_get(result, 0, &output), &error, what);
  CHECK(output.num_token_ids == TOKENS, "%s: %u tokens", what, (unsigned)output.num_token_ids);
  if (output.num_token_ids == TOKENS) memcpy(tokens, output.token_ids, TOKENS * sizeof *tokens);
  nvllm_result_free(result);
  nvllm_engine_free(engine);
}

static void opens(const nvllm_model_file *files, size_t count, const uint32_t *wanted, const char *what) {
  nvllm_engine *engine = NULL;
  uint32_t tokens[TOKENS] = {0};
  CHECK_STATUS(NVLLM_OK, nvllm_engine_new_from(&config, files, count, &engine, &error), &error, what);
  if (engine == NULL) return;
  complete(engine, tokens, what);
  CHECK(memcmp(tokens, wanted, sizeof tokens) == 0, "%s: other tokens than from the folder", what);
}

static void refused(nvllm_status status, const char *word, const nvllm_model_file *files, size_t count, const char *what) {
  nvllm_engine *engine = NULL;
  error.message[0] = '\0';
  CHECK_STATUS(status, nvllm_engine_new_from(&config, files, count, &engine, &error), &error, what);
  CHECK(engine == NULL, "%s: an engine", what);
  CHECK(strstr(error.message, word) != NULL, "%s: no '%s' in: %s", what, word, error.message);
}

static void the_same_tokens(const uint32_t *wanted, int fd) {
  nvllm_model_file files[FILES];
  in_memory(files);
  opens(files, FILES, wanted, "memory");
  in_pack(files, descriptor_of(fd));
  opens(files, FILES, wanted, "parts of a pack file");
  files[0].kind = NVLLM_FILE_MEMORY;
  files[0].data = pack + starts[0];
  files[0].descriptor = -1;
  files[0].offset = 0;
  opens(files, FILES, wanted, "a config in memory and the rest in a file");

  /* A model in a folder of its own. */
  char folded[FILES][64];
  in_memory(files);
  for (size_t i = 0; i < FILES; i++) {
    snprintf(folded[i], sizeof folded[i], "models/demo/%s", names[i]);
    files[i].name = folded[i];
  }
  config.model_path = "models/demo";
  opens(files, FILES, wanted, "a folder among the files");
  config.model_path = "models";
  refused(NVLLM_ERR_MODEL, "<files>", files, FILES, "a folder without a config");
  config.model_path = "elsewhere";
  refused(NVLLM_ERR_MODEL, "not among the files", files, FILES, "a folder that was not given");
  config.model_path = NULL;
}

/* Copied weights need the memory no longer than the call. */
static void memory_is_released(const uint32_t *wanted) {
  nvllm_model_file files[FILES];
  nvllm_engine *engine = NULL;
  uint32_t tokens[TOKENS] = {0};
  char *copy = malloc(pack_bytes);
  if (copy == NULL) exit(2);
  memcpy(copy, pack, pack_bytes);
  in_memory(files);
  for (size_t i = 0; i < FILES; i++) files[i].data = copy + starts[i];
  config.load_mode = NVLLM_LOAD_READ;
  CHECK_STATUS(NVLLM_OK, nvllm_engine_new_from(&config, files, FILES, &engine, &error), &error, "copied");
  config.load_mode = NVLLM_LOAD_MAP;
  memset(copy, 0, pack_bytes);
  free(copy);
  if (engine == NULL) return;
  complete(engine, tokens, "copied");
  CHECK(memcmp(tokens, wanted, sizeof tokens) == 0, "other tokens from memory that is free");
}

/* A mapping outlives the descriptor. */
static void descriptors_are_closed(const char *path, const uint32_t *wanted) {
  nvllm_model_file files[FILES];
  nvllm_engine *engine = NULL;
  uint32_t tokens[TOKENS] = {0};
  for (int32_t mode = NVLLM_LOAD_MAP; mode <= NVLLM_LOAD_READ; mode++) {
    int fd = open(path, O_RDONLY | O_BINARY);
    config.load_mode = mode;
    in_pack(files, descriptor_of(fd));
    CHECK_STATUS(NVLLM_OK, nvllm_engine_new_from(&config, files, FILES, &engine, &error), &error, "from a descriptor");
    CHECK(lseek(fd, 0, SEEK_CUR) == 0, "the position was moved");
    close(fd);
    if (engine == NULL) return;
    complete(engine, tokens, "a closed descriptor");
    CHECK(memcmp(tokens, wanted, sizeof tokens) == 0, "other tokens after the descriptor was closed");
  }
  config.load_mode = NVLLM_LOAD_MAP;
}

#ifndef _WIN32
/* Ranges of one descriptor take one descriptor of the process. */
static void many_ranges(int fd, const uint32_t *wanted) {
  enum { RANGES = 300 };
  static nvllm_model_file files[FILES + RANGES];
  static char more[RANGES][16];
  struct rlimit limit, lower;
  in_pack(files, fd);
  for (size_t i = 0; i < RANGES; i++) {
    snprintf(more[i], sizeof more[i], "more/%d", (int)i);
    files[FILES + i] = files[0];
    files[FILES + i].name = more[i];
  }
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) exit(2);
  lower = limit;
  lower.rlim_cur = 128;
  if (setrlimit(RLIMIT_NOFILE, &lower) != 0) exit(2);
  opens(files, FILES + RANGES, wanted, "many ranges");
  setrlimit(RLIMIT_NOFILE, &limit);
}
#endif

static void bad_names(void) {
  nvllm_model_file files[FILES];
  char name[601];
  static const char *const wrong[] = {"", "/config.json", "a//b", "./config.json", "../config.json", "a\\b", "a/"};
  in_memory(files);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    files[3].name = wrong[i];
    refused(NVLLM_ERR_INVALID_ARGUMENT, "inside a folder", files, FILES, wrong[i]);
  }
  files[3].name = names[0];
  refused(NVLLM_ERR_INVALID_ARGUMENT, "\"config.json\" twice", files, FILES, "a name twice");
  files[3].name = "tokenizer.json/x";
  refused(NVLLM_ERR_INVALID_ARGUMENT, "of a folder too", files, FILES, "a file inside a file");
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  files[2].name = files[3].name = name;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "twice, but must be different from the others", files, FILES, "a long name twice");
  files[3].name = "\xff";
  refused(NVLLM_ERR_INVALID_ARGUMENT, "UTF-8", files, FILES, "a name that is not UTF-8");
  files[3].name = NULL;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "name is NULL", files, FILES, "no name");
}

static void bad_structs(void) {
  nvllm_model_file files[FILES];
  in_memory(files);
  refused(NVLLM_ERR_INVALID_ARGUMENT, "files is NULL", NULL, 1, "no files");
  refused(NVLLM_ERR_MODEL, "config.json", NULL, 0, "no files at all");
  files[0].struct_size = 3;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "struct_size", files, FILES, "an impossible struct_size");
  in_memory(files);
  files[1].struct_size = 48;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "files[1]: struct_size is 48, but must be that of the first of the array", files, FILES,
          "another struct_size");
  in_memory(files);
  files[1].kind = 2;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "files[1]: kind is 2, but must be one of NVLLM_FILE_*", files, FILES, "an unknown kind");
  in_memory(files);
  files[1].data = NULL;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "files[1]: data is NULL", files, FILES, "no data");
  in_memory(files);
  files[1].descriptor = 0;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "descriptor is 0", files, FILES, "memory and a descriptor");
  in_memory(files);
  files[1].offset = 1;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "offset is 1", files, FILES, "memory and an offset");
  in_memory(files);
  files[1].reserved = 1;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "reserved is 1", files, FILES, "a reserved field");
  in_memory(files);
  files[1].kind = NVLLM_FILE_RANGE;
  refused(NVLLM_ERR_INVALID_ARGUMENT, "data is not NULL", files, FILES, "a range and data");
  in_memory(files);
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_engine_new_from(&config, files, FILES, NULL, &error), &error, "no engine");
  nvllm_engine *engine = NULL;
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_engine_new_from(NULL, files, FILES, &engine, &error), &error, "no config");
  files[1].size -= 1;
  refused(NVLLM_ERR_MODEL, "safetensors", files, FILES, "a file that is cut off");
  files[1].size = 0;
  refused(NVLLM_ERR_MODEL, "safetensors", files, FILES, "an empty file");
}

static void bad_ranges(const char *path, int fd) {
  nvllm_model_file files[FILES];
  static const uint64_t far[] = {1u << 30, UINT64_MAX};
  for (size_t i = 0; i < 2; i++) {
    in_pack(files, descriptor_of(fd));
    files[1].offset = far[i];
    refused(NVLLM_ERR_MODEL, "beyond the end of its file", files, FILES, "an offset outside");
    in_pack(files, descriptor_of(fd));
    files[1].size = far[i];
    refused(NVLLM_ERR_MODEL, "beyond the end of its file", files, FILES, "a size outside");
  }
  in_pack(files, descriptor_of(fd));
  files[4].size += 1;
  refused(NVLLM_ERR_MODEL, "beyond the end of its file", files, FILES, "a byte outside");
  in_pack(files, -1);
  refused(NVLLM_ERR_IO, "<files>", files, FILES, "no descriptor");
#ifndef _WIN32
  int pipes[2];
  if (pipe(pipes) != 0) exit(2);
  in_pack(files, pipes[0]);
  refused(NVLLM_ERR_MODEL, "a FIFO", files, FILES, "a pipe");
  close(pipes[0]);
  close(pipes[1]);
  in_pack(files, pipes[0]);
  refused(NVLLM_ERR_IO, "<files>/config.json: is given by descriptor ", files, FILES, "a closed descriptor");
  in_pack(files, INT64_MAX);
  refused(NVLLM_ERR_IO, "<files>/config.json: is given by descriptor 9223372036854775807", files, FILES, "a descriptor that is none");
  CHECK(error.native_code == EBADF, "native_code is %d", (int)error.native_code);
  int folder = open(".", O_RDONLY);
  in_pack(files, folder);
  refused(NVLLM_ERR_MODEL, "a folder", files, FILES, "a folder");
  close(folder);
  int writer = open(path, O_WRONLY);
  in_pack(files, writer);
  refused(NVLLM_ERR_MODEL, "not open for reading", files, FILES, "a descriptor for writing");
  close(writer);
#ifdef O_PATH
  int place = open(path, O_PATH);
  in_pack(files, place);
  refused(NVLLM_ERR_MODEL, "O_PATH", files, FILES, "a descriptor of a place");
  close(place);
#endif
#ifdef O_DIRECT
  /* Not every file system has it. */
  int direct = open(path, O_RDONLY | O_DIRECT);
  if (direct >= 0) {
    in_pack(files, direct);
    refused(NVLLM_ERR_MODEL, "O_DIRECT", files, FILES, "a descriptor of whole blocks");
    close(direct);
  }
#endif
#else
  (void)path;
#endif
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  char path[64];
  /* The program runs under valgrind at the same time. */
  snprintf(path, sizeof path, "model_files.%d.pack", (int)getpid());
  uint32_t wanted[TOKENS] = {0};
  read_model(folder);
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(pack, 1, pack_bytes, file) != pack_bytes || fclose(file) != 0) return 2;
  int fd = open(path, O_RDONLY | O_BINARY);
  if (fd < 0) return 2;

  complete(open_engine(folder), wanted, "the folder");
  nvllm_engine_config_init(&config, sizeof config);
  config.num_threads = 2;
  config.max_model_len = 256;
  config.max_num_seqs = 16;
  config.kv_block_size = 16;
  config.kv_cache_bytes = 8u << 20;
  config.seed = 1;
  the_same_tokens(wanted, fd);
  memory_is_released(wanted);
  descriptors_are_closed(path, wanted);
#ifndef _WIN32
  many_ranges(fd, wanted);
#endif
  bad_names();
  bad_structs();
  bad_ranges(path, fd);
  close(fd);
  remove(path);
  free(pack);
  return checks_end();
}
