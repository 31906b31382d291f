/* What a fragment of C in a page of docs may use without declaring it: tests/docs/run.sh makes a function of each, and compiles it. */
#include <math.h>
#include <nanovllm.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static nvllm_engine *engine;
static nvllm_engine_config config;
static nvllm_request_options options;
static nvllm_output output;
static nvllm_result *result;
static nvllm_error error;
static uint64_t id, pinned;
static const char *prompt, *system_prompt, *text;
static size_t len, prompt_len, text_len;
static uint32_t yes, no, *tokens;
static size_t num_tokens, needed, saved, restored, num_bytes;
static uint8_t *bytes;
static float *normalized;
static int pack;
int fail(const nvllm_error *error);
void use(const float *numbers, size_t count);
