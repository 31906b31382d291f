/* Paths on Windows: UTF-8, longer than MAX_PATH, names of devices; and what Windows lacks. */
#include "check.h"

#include <wchar.h>
#include <windows.h>

static nvllm_error error;

static nvllm_status open_at(const char *path) {
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = path;
  config.num_threads = 1;
  config.max_num_seqs = 4;
  config.kv_cache_bytes = 8u << 20;
  nvllm_status status = nvllm_engine_new(&config, &engine, &error);
  nvllm_engine_free(engine);
  return status;
}

/* Copies the files of a folder. Both are wide paths; `to` exists. */
static int copy_folder(const wchar_t *from, const wchar_t *to) {
  enum { CAPACITY = 2048 };
  static wchar_t pattern[CAPACITY], source[CAPACITY], target[CAPACITY];
  WIN32_FIND_DATAW found;
  int copied = 0;
  swprintf(pattern, CAPACITY, L"%ls\\*", from);
  HANDLE search = FindFirstFileW(pattern, &found);
  if (search == INVALID_HANDLE_VALUE) return 0;
  do {
    if (found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) continue;
    swprintf(source, CAPACITY, L"%ls\\%ls", from, found.cFileName);
    swprintf(target, CAPACITY, L"%ls\\%ls", to, found.cFileName);
    copied += CopyFileW(source, target, FALSE) != 0;
  } while (FindNextFileW(search, &found));
  FindClose(search);
  return copied;
}

static void remove_tree(const wchar_t *folder) {
  enum { CAPACITY = 2048 };
  wchar_t path[CAPACITY];
  WIN32_FIND_DATAW found;
  swprintf(path, CAPACITY, L"%ls\\*", folder);
  HANDLE search = FindFirstFileW(path, &found);
  if (search == INVALID_HANDLE_VALUE) return;
  do {
    if (wcscmp(found.cFileName, L".") == 0 || wcscmp(found.cFileName, L"..") == 0) continue;
    swprintf(path, CAPACITY, L"%ls\\%ls", folder, found.cFileName);
    if (found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) {
      remove_tree(path);
    } else {
      CHECK(DeleteFileW(path), "a file of a model that is not open can be deleted");
    }
  } while (FindNextFileW(search, &found));
  FindClose(search);
  RemoveDirectoryW(folder);
}

/* A folder below the temporary one whose path has non-ASCII characters, and more than 260 characters. */
static void utf8_and_long_paths_open(const char *model) {
  enum { CAPACITY = 2048, LEVELS = 6 };
  static wchar_t top[CAPACITY], folder[CAPACITY], wide_model[CAPACITY];
  static char path[4 * CAPACITY];
  wchar_t temporary[MAX_PATH + 1];
  GetTempPathW(MAX_PATH + 1, temporary);
  swprintf(top, CAPACITY, L"\\\\?\\%lsnvllm-%lu", temporary, (unsigned long)GetCurrentProcessId());
  CHECK(CreateDirectoryW(top, NULL), "%lu", GetLastError());
  wcscpy(folder, top);
  for (int level = 0; level < LEVELS; level++) {
    wcscat(folder, L"\\mod\u00e8le-\u6a21\u578b-\u043c\u043e\u0434\u0435\u043b\u044c-0123456789012345678901234567890123456789");
    CHECK(CreateDirectoryW(folder, NULL), "level %d: %lu", level, GetLastError());
  }
  CHECK(wcslen(folder) > MAX_PATH + 40, "%u characters", (unsigned)wcslen(folder));
  MultiByteToWideChar(CP_UTF8, 0, model, -1, wide_model, CAPACITY);
  for (wchar_t *c = wide_model; *c != 0; c++) {
    if (*c == L'/') *c = L'\\';
  }
  CHECK(copy_folder(wide_model, folder) >= 3, "the model is copied");
  /* The caller writes an ordinary path: without the prefix that lifts the limit. */
  WideCharToMultiByte(CP_UTF8, 0, folder + 4, -1, path, sizeof path, NULL, NULL);
  CHECK_STATUS(NVLLM_OK, open_at(path), &error, "a long path with characters of three scripts");
  for (char *c = path; *c != '\0'; c++) {
    if (*c == '\\') *c = '/';
  }
  CHECK_STATUS(NVLLM_OK, open_at(path), &error, "the same path with slashes");
  strcat(path, "/nothing");
  CHECK(open_at(path) < 0 && strstr(error.message, "nothing") != NULL, "%s", error.message);
  remove_tree(top);
}

static void names_that_are_no_folders_are_refused(void) {
  static const char *names[] = {"CON", "NUL", "\\\\.\\pipe\\nothing", "C:\\nothing\\at\\all", "mod\xe8le", "*"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    CHECK(open_at(names[i]) < 0 && error.message[0] != '\0', "%s is refused", names[i]);
  }
}

/* Address space for a KV cache is reserved, and takes memory block by block. */
static void a_cache_larger_than_memory_opens(const char *model) {
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = model;
  config.num_threads = 2;
  config.kv_cache_bytes = (uint64_t)64 << 30;
  CHECK_STATUS(NVLLM_OK, nvllm_engine_new(&config, &engine, &error), &error, "64 GiB of address space");
  for (int i = 0; i < 20; i++) add_tokens(engine, 40);
  CHECK(run_to_end(engine) == 800, "every request gets its tokens");
  nvllm_engine_free(engine);
}

static void unix_sockets_are_refused(const char *model) {
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = model;
  config.tensor_parallel_size = 2;
  config.num_processes = 2;
  config.rendezvous = "unix:/tmp/rendezvous";
  CHECK(nvllm_engine_new(&config, &engine, &error) < 0 && strstr(error.message, "host:port") != NULL, "%s", error.message);
}

int main(int argc, char **argv) {
  const char *model = model_folder(argc, argv);
  utf8_and_long_paths_open(model);
  names_that_are_no_folders_are_refused();
  a_cache_larger_than_memory_opens(model);
  unix_sockets_are_refused(model);
  return checks_end();
}
