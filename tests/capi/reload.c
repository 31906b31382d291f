/* dlopen and dlclose, again and again, with an engine in between: the library stays mapped and keeps working. */
#include "check.h"

#include <pthread.h>
#ifdef _WIN32
#include <windows.h>
#define dlopen(path, flags) ((void *)LoadLibraryA(path))
#define dlclose(handle) (FreeLibrary((HMODULE)(handle)) ? 0 : 1)
#define dlerror() "an error"
static void *dlsym(void *handle, const char *name) {
  FARPROC found = GetProcAddress((HMODULE)handle, name);
  void *symbol;
  memcpy(&symbol, &found, sizeof symbol);
  return symbol;
}
#else
#include <dlfcn.h>
#endif

typedef const char *(*version_fn)(void);
typedef void (*config_init_fn)(nvllm_engine_config *, size_t);
typedef nvllm_status (*engine_new_fn)(const nvllm_engine_config *, nvllm_engine **, nvllm_error *);
typedef void (*engine_free_fn)(nvllm_engine *);

static const char *library;
static const char *folder;

/* ISO C knows no cast from an object pointer to a function pointer; POSIX promises that the bytes are the same. */
static void find(void *handle, const char *name, void *function, size_t size) {
  void *symbol = dlsym(handle, name);
  CHECK(symbol != NULL, "%s", name);
  memcpy(function, &symbol, size);
}

static void *open_use_close(void *unused) {
  (void)unused;
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  CHECK(handle != NULL, "%s", dlerror());
  if (handle == NULL) return NULL;
  version_fn version;
  config_init_fn config_init;
  engine_new_fn engine_new;
  engine_free_fn engine_free;
  find(handle, "nvllm_version", &version, sizeof version);
  find(handle, "nvllm_engine_config_init", &config_init, sizeof config_init);
  find(handle, "nvllm_engine_new", &engine_new, sizeof engine_new);
  find(handle, "nvllm_engine_free", &engine_free, sizeof engine_free);

  nvllm_error error;
  nvllm_engine *engine = NULL;
  nvllm_engine_config config;
  config_init(&config, sizeof config);
  config.model_path = folder;
  config.num_threads = 2;
  config.kv_cache_bytes = 8u << 20;
  CHECK_STATUS(0, engine_new(&config, &engine, &error), &error, "open");
  engine_free(engine);
  CHECK(dlclose(handle) == 0, "%s", dlerror());
  CHECK(strlen(version()) > 0, "the library stays mapped");
  return NULL;
}

/* This program is not linked with the library: the harness's own names come from here. */
const char *nvllm_status_name(nvllm_status status) { return status == 0 ? "NVLLM_OK" : "an error"; }

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s LIBRARY MODEL_FOLDER\n", argv[0]);
    return 2;
  }
  library = argv[1];
  folder = argv[2];
  for (int i = 0; i < 3; i++) {
    /* On a thread of its own, whose thread-local destructors run after dlclose. */
    pthread_t thread;
    if (pthread_create(&thread, NULL, open_use_close, NULL) != 0) return 1;
    pthread_join(thread, NULL);
  }
  return checks_end();
}
