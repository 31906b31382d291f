/* nvllm_quantize_folder reads its folder alone: what leads out of it is refused by name, and a download cache is not. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static const char secret[] = "the words that nobody else may read";
static char root[256];

/* A path below the folder of this test. Valid for the next seven calls. */
static const char *at(const char *path) {
  static char paths[8][512];
  static int next;
  char *place = paths[next++ % 8];
  snprintf(place, sizeof paths[0], "%s/%s", root, path);
  return place;
}

static void write_file(const char *path, const void *bytes, size_t len) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(bytes, 1, len, file) == len, "%s", path);
  if (file != NULL) fclose(file);
}

static void copy_file(const char *from, const char *to) {
  static char bytes[1 << 16];
  FILE *source = fopen(from, "rb"), *file = fopen(to, "wb");
  CHECK(source != NULL && file != NULL, "%s to %s", from, to);
  if (source != NULL && file != NULL) {
    for (size_t len; (len = fread(bytes, 1, sizeof bytes, source)) > 0;) fwrite(bytes, 1, len, file);
  }
  if (source != NULL) fclose(source);
  if (file != NULL) fclose(file);
}

static void make_folder(const char *path) { CHECK(mkdir(path, 0700) == 0, "%s", path); }

static void make_link(const char *to, const char *path) { CHECK(symlink(to, path) == 0, "%s", path); }

/* The demo model as a download cache has it, in cache/snapshots/1. */
static void make_cache(const char *model) {
  static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                                      "tokenizer_config.json"};
  make_folder(at("cache"));
  make_folder(at("cache/blobs"));
  make_folder(at("cache/snapshots"));
  make_folder(at("cache/snapshots/1"));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char from[512], blob[64], link[64], path[128];
    snprintf(from, sizeof from, "%s/%s", model, names[i]);
    snprintf(blob, sizeof blob, "cache/blobs/%zu", i);
    snprintf(link, sizeof link, "../../blobs/%zu", i);
    snprintf(path, sizeof path, "cache/snapshots/1/%s", names[i]);
    copy_file(from, at(blob));
    make_link(link, at(path));
  }
}

static void refused(const char *to, const char *name, const char *words) {
  nvllm_error error;
  nvllm_status status = nvllm_quantize_folder(at("cache/snapshots/1"), to, NVLLM_QUANTIZATION_INT4, NULL, NULL, &error);
  CHECK(status == NVLLM_ERR_MODEL, "%s: %s: %s", name, nvllm_status_name(status), status == NVLLM_OK ? "" : error.message);
  if (status == NVLLM_OK) return;
  CHECK(strstr(error.message, name) != NULL && strstr(error.message, words) != NULL, "%s: %s", name, error.message);
  struct stat facts;
  CHECK(lstat(at("new"), &facts) != 0, "%s: something was written", name);
}

static void what_leads_out_is_refused(void) {
  static const char *const links[][2] = {
      {"/proc/self/environ", "env.txt"},      {"../../../secret", "notes.md"},
      {"../../blobs/../../secret", "a.json"}, {"../../blobs/out", "b.txt"},
      {"../../../other", "additional_chat_templates"}, {"/dev/zero", "zero.json"},
  };
  write_file(at("secret"), secret, sizeof secret);
  make_folder(at("other"));
  make_link("../../secret", at("cache/blobs/out"));
  for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
    char path[128];
    snprintf(path, sizeof path, "cache/snapshots/1/%s", links[i][1]);
    make_link(links[i][0], at(path));
    refused(at("new"), links[i][1], "leads out of its folder");
    unlink(at(path));
  }
  CHECK(mkfifo(at("cache/snapshots/1/pipe"), 0600) == 0, "mkfifo");
  refused(at("new"), "pipe", "is a FIFO, but must be a regular file");
  unlink(at("cache/snapshots/1/pipe"));
  write_file(at("cache/snapshots/1/caf\xe9.txt"), secret, sizeof secret);
  refused(at("new"), "\"caf\\xE9.txt\"", "has a name that is not UTF-8");
  unlink(at("cache/snapshots/1/caf\xe9.txt"));
}

static void the_new_folder_lies_elsewhere(void) {
  make_link("cache/snapshots/1", at("link"));
  refused(at("cache/snapshots/1/new"), "cache/snapshots/1/new", "lies in ");
  refused(at("link/new"), "link/new", "lies in ");
  refused(at("cache/snapshots/2/../1/new"), "2/../1/new", "lies in ");
}

static void a_download_cache_is_quantized(void) {
  nvllm_error error;
  nvllm_status status =
      nvllm_quantize_folder(at("cache/snapshots/1"), at("new"), NVLLM_QUANTIZATION_INT4, NULL, NULL, &error);
  CHECK_STATUS(NVLLM_OK, status, &error, "a download cache");
  if (status != NVLLM_OK) return;
  nvllm_engine *engine = open_engine(at("new"));
  check_still_works(engine, "quantizing");
  nvllm_engine_free(engine);
}

static void remove_folder(const char *path) {
  DIR *folder = opendir(path);
  if (folder == NULL) return;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char below[1024];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
    if (unlink(below) != 0) remove_folder(below);
  }
  closedir(folder);
  rmdir(path);
}

int main(int argc, char **argv) {
  const char *model = model_folder(argc, argv), *temp = getenv("TMPDIR");
  snprintf(root, sizeof root, "%s/nanovllm-quantize-XXXXXX", temp != NULL ? temp : "/tmp");
  if (mkdtemp(root) == NULL) {
    perror(root);
    return 2;
  }
  make_cache(model);
  what_leads_out_is_refused();
  the_new_folder_lies_elsewhere();
  a_download_cache_is_quantized();
  remove_folder(root);
  return checks_end();
}
