/* Requests and configs that can never run: each has its own status and message, and the engine goes on. */
#include "check.h"

#include <math.h>

static nvllm_engine *engine;

/* Adds a prompt with options that must be refused. */
static void refused(const char *name, const nvllm_request_options *options, nvllm_status wanted, const char *word) {
  static const uint32_t prompt[] = {5, 6, 7};
  nvllm_error error;
  uint64_t id = 0;
  nvllm_status status = nvllm_add_request_tokens(engine, prompt, 3, options, &id, &error);
  CHECK(status == wanted, "%s: wanted %s, got %s: %s", name, nvllm_status_name(wanted), nvllm_status_name(status),
        error.message);
  CHECK(strstr(error.message, word) != NULL, "%s: no '%s' in: %s", name, word, error.message);
  CHECK(id == 0, "%s: an id was stored", name);
  CHECK(nvllm_is_finished(engine), "%s: something was queued", name);
  check_still_works(engine, name);
}

static void options_that_make_no_sense(void) {
  const uint32_t beyond[] = {5, UINT32_MAX};
  nvllm_request_options options;
#define WITH(field, value, word)  \
  options = options_of(4);        \
  options.field = (value);        \
  refused(#field " = " #value, &options, NVLLM_ERR_INVALID_ARGUMENT, (word))
  WITH(max_tokens, 0, "max_tokens");
  WITH(min_tokens, 5, "min_tokens");
  WITH(temperature, NAN, "temperature");
  WITH(temperature, -0.5f, "temperature");
  WITH(temperature, INFINITY, "temperature");
  WITH(top_p, 0.0f, "top_p");
  WITH(top_p, 1.5f, "top_p");
  WITH(top_p, NAN, "top_p");
  WITH(min_p, -0.1f, "min_p");
  WITH(min_p, 1.1f, "min_p");
  WITH(ignore_eos, 2, "ignore_eos");
  WITH(include_stop, 2, "include_stop");
  WITH(pin_prompt, 2, "pin_prompt");
  WITH(pooling, 5, "pooling is 5");
  WITH(embedding_dimensions, 16, "embedding_dimensions is 16, and the request makes no embedding");
  WITH(reserved_of_dimensions, 1, "reserved_of_dimensions is 1, but must be 0");
  WITH(num_score_tokens, 1, "score_tokens");
  WITH(num_score_tokens, 65, "num_score_tokens is 65, but must be at most 64 (NVLLM_MAX_SCORE_TOKENS)");
  WITH(truncate_prompt_tokens, 5, "truncate_prompt_tokens is 5, but must be 0 for a request that generates tokens");
  WITH(reserved_of_truncation, 1, "reserved_of_truncation is 1, but must be 0");
  WITH(n, 0, "n is 0");
  WITH(n, 1025, "n is 1025");
  WITH(num_stop, 1, "stop");
  WITH(num_bias, 1, "bias_tokens");
  WITH(repetition_penalty, 0.0f, "repetition_penalty");
  WITH(repetition_penalty, -1.1f, "repetition_penalty");
  WITH(repetition_penalty, NAN, "repetition_penalty");
  WITH(repetition_penalty, INFINITY, "repetition_penalty");
  WITH(presence_penalty, NAN, "presence_penalty");
  WITH(presence_penalty, INFINITY, "presence_penalty");
  WITH(frequency_penalty, -INFINITY, "frequency_penalty");
  WITH(num_logprobs, 65, "num_logprobs is 65");
  WITH(num_prompt_logprobs, UINT32_MAX, "num_prompt_logprobs");
  WITH(num_stop_tokens, 1, "stop_tokens");
  WITH(top_n_sigma, NAN, "top_n_sigma is NaN, but must be a finite number");
  WITH(top_n_sigma, INFINITY, "top_n_sigma");
  WITH(top_n_sigma, -INFINITY, "top_n_sigma");
  WITH(xtc_probability, -0.1f, "xtc_probability is -0.1, but must be from 0 to 1");
  WITH(xtc_probability, 1.5f, "xtc_probability");
  WITH(xtc_probability, NAN, "xtc_probability");
  WITH(xtc_threshold, 0.0f, "xtc_threshold is 0, but must be above 0 and at most 1");
  WITH(xtc_threshold, 1.5f, "xtc_threshold");
  WITH(xtc_threshold, NAN, "xtc_threshold");
  WITH(dry_multiplier, -1.0f, "dry_multiplier is -1, but must be a finite number, 0 for off or above");
  WITH(dry_multiplier, NAN, "dry_multiplier");
  WITH(dry_multiplier, INFINITY, "dry_multiplier");
  WITH(dry_base, 0.5f, "dry_base is 0.5, but must be a finite number of at least 1");
  WITH(dry_base, NAN, "dry_base");
  WITH(dry_base, INFINITY, "dry_base");
  WITH(dry_allowed_length, 0, "dry_allowed_length is 0, but must be at least 1");
  WITH(dry_penalty_last_n, 0, "dry_penalty_last_n is 0, but must be at least 1");
  WITH(num_dry_sequence_breakers, 1, "dry_sequence_breakers");
  WITH(num_dry_sequence_breakers, 65, "num_dry_sequence_breakers is 65");
  WITH(reserved_last, 1, "reserved_last is 1, but must be 0");
#undef WITH
  options = options_of(4);
  options.stop_tokens = beyond;
  options.num_stop_tokens = 2;
  refused("a stop token beyond the vocabulary", &options, NVLLM_ERR_INVALID_ARGUMENT, "4294967295");

  static const struct {
    const char *name, *stop, *word;
  } stops[] = {{"a NULL among the stop strings", NULL, "stop is NULL"},
               {"an empty stop string", "", "stop is an empty string"},
               {"a stop string that is not UTF-8", "a\xff", "stop is not UTF-8: the byte at offset 1"}};
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
    const char *two[] = {"good", stops[i].stop};
    options = options_of(4);
    options.stop = two;
    options.num_stop = 2;
    refused(stops[i].name, &options, NVLLM_ERR_INVALID_ARGUMENT, stops[i].word);
  }
}

static void sequence_breakers_that_make_no_sense(void) {
  char long_one[NVLLM_MAX_DRY_BREAKER_BYTES + 2];
  memset(long_one, 'x', sizeof long_one - 1);
  long_one[sizeof long_one - 1] = 0;
  const struct {
    const char *name, *breaker, *word;
  } cases[] = {{"a NULL among the sequence breakers", NULL, "dry_sequence_breakers is NULL"},
               {"an empty sequence breaker", "", "dry_sequence_breakers is an empty string"},
               {"a sequence breaker that is not UTF-8", "a\xff", "dry_sequence_breakers is not UTF-8: the byte at offset 1"},
               {"a long sequence breaker", long_one, "the length of a string in dry_sequence_breakers is 129"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *two[] = {"good", cases[i].breaker};
    nvllm_request_options options = options_of(4);
    options.dry_sequence_breakers = two;
    options.num_dry_sequence_breakers = 2;
    refused(cases[i].name, &options, NVLLM_ERR_INVALID_ARGUMENT, cases[i].word);
  }
}

static void structures_that_cannot_be_followed(void) {
  static const struct {
    const char *name, *structure, *word;
    int32_t kind;
  } cases[] = {
      {"an unknown kind", "x", "structure_kind is 4", 4},
      {"a negative kind", "x", "structure_kind is -1", -1},
      {"a text without a kind", "x", "structure_kind is 0", NVLLM_STRUCTURE_NONE},
      {"a kind without a text", NULL, "structure is NULL", NVLLM_STRUCTURE_REGEX},
      {"no UTF-8", "a\xff", "structure is not UTF-8: the byte at offset 1", NVLLM_STRUCTURE_REGEX},
      {"no JSON", "{", "not JSON: EOF", NVLLM_STRUCTURE_JSON_SCHEMA},
      {"no schema", "{\"type\": \"objekt\"}", "Invalid type: objekt", NVLLM_STRUCTURE_JSON_SCHEMA},
      {"no regular expression", "(", "unclosed group", NVLLM_STRUCTURE_REGEX},
      {"no grammar", "start: nothing\n", "nothing", NVLLM_STRUCTURE_LARK},
      {"a text that is empty", "", "no token can begin", NVLLM_STRUCTURE_REGEX},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    nvllm_request_options options = options_of(4);
    options.structure_kind = cases[i].kind;
    options.structure = cases[i].structure;
    refused(cases[i].name, &options, NVLLM_ERR_INVALID_ARGUMENT, cases[i].word);
  }
}

static void biases_that_make_no_sense(void) {
  static const struct {
    const char *name;
    uint32_t tokens[2];
    float values[2];
    const char *word;
  } biases[] = {{"a token beyond the vocabulary", {5, UINT32_MAX}, {1, 1}, "token 4294967295 at index 1"},
                {"a token twice", {5, 5}, {1, 2}, "bias_tokens is a list with token 5 twice"},
                {"a bias that is no number", {5, 6}, {1, NAN}, "bias_values is NaN"},
                {"an infinite bias", {5, 6}, {INFINITY, 1}, "bias_values is inf"}};
  for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
    nvllm_request_options options = options_of(4);
    options.bias_tokens = biases[i].tokens;
    options.bias_values = biases[i].values;
    options.num_bias = 2;
    refused(biases[i].name, &options, NVLLM_ERR_INVALID_ARGUMENT, biases[i].word);
  }
}

static void beams_that_make_no_sense(void) {
  nvllm_request_options options;
#define WITH(field, value, word) \
  options = options_of(4);       \
  options.beam_width = 4;        \
  options.field = (value);       \
  refused("beams, " #field " = " #value, &options, NVLLM_ERR_INVALID_ARGUMENT, (word))
  WITH(beam_width, 1, "beam_width is 1");
  WITH(beam_width, 33, "beam_width is 33");
  WITH(beam_width, UINT32_MAX, "beam_width");
  WITH(length_penalty, NAN, "length_penalty");
  WITH(length_penalty, INFINITY, "length_penalty");
  WITH(early_stopping, 3, "early_stopping is 3, but must be one of NVLLM_EARLY_STOPPING_*");
  WITH(n, 5, "n is 5, but must be at most beam_width");
  WITH(temperature, 0.5f, "temperature");
  WITH(repetition_penalty, 1.1f, "repetition_penalty");
  WITH(presence_penalty, 0.1f, "presence_penalty");
  WITH(frequency_penalty, 0.1f, "frequency_penalty");
  WITH(dry_multiplier, 0.1f, "dry_multiplier");
  WITH(num_logprobs, 1, "num_logprobs");
#undef WITH
  const char *stop[] = {"x"};
  options = options_of(4);
  options.beam_width = 4;
  options.stop = stop;
  options.num_stop = 1;
  refused("beams with a stop string", &options, NVLLM_ERR_INVALID_ARGUMENT, "num_stop");

  options = options_of(4);
  options.length_penalty = 0.5f;
  refused("a length penalty without beams", &options, NVLLM_ERR_INVALID_ARGUMENT, "length_penalty is 0.5");
  options = options_of(4);
  options.early_stopping = NVLLM_EARLY_STOPPING_AT_ONCE;
  refused("early stopping without beams", &options, NVLLM_ERR_INVALID_ARGUMENT, "early_stopping is 1");
}

static void prompts_that_cannot_run(void) {
  static uint32_t tokens[300];
  nvllm_error error;
  nvllm_request_options options = options_of(4);
  for (size_t i = 0; i < 300; i++) tokens[i] = 5;

  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_add_request_tokens(engine, tokens, 0, &options, NULL, &error), &error,
               "no tokens");
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_add_request(engine, "", 0, &options, NULL, &error), &error, "no text");
  CHECK_STATUS(NVLLM_ERR_CONTEXT_LENGTH, nvllm_add_request_tokens(engine, tokens, 300, &options, NULL, &error), &error,
               "too long");
  CHECK(strstr(error.message, "300") != NULL && strstr(error.message, "256") != NULL, "%s", error.message);
  CHECK_STATUS(NVLLM_ERR_CONTEXT_LENGTH, nvllm_add_request_tokens(engine, tokens, 256, &options, NULL, &error), &error,
               "no place for an answer");
  tokens[1] = UINT32_MAX;
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_add_request_tokens(engine, tokens, 3, &options, NULL, &error), &error,
               "beyond the vocabulary");
  CHECK(strstr(error.message, "index 1") != NULL, "%s", error.message);
  CHECK(nvllm_is_finished(engine), "nothing was queued");
  check_still_works(engine, "bad prompts");
}

static void requests_that_are_not_there(void) {
  nvllm_error error;
  CHECK(nvllm_cancel(engine, 0) == NVLLM_ERR_NOT_FOUND, "id 0");
  CHECK(nvllm_cancel(engine, 123456789) == NVLLM_ERR_NOT_FOUND, "an id that never was");
  uint64_t id = add_tokens(engine, 4);
  run_to_end(engine);
  CHECK(nvllm_cancel(engine, id) == NVLLM_ERR_NOT_FOUND, "an id that has ended");
  CHECK_STATUS(NVLLM_ERR_NOT_FOUND, nvllm_cancel_with_error(engine, 123456789, &error), &error, "an id that never was");
  CHECK(strstr(error.message, "123456789") != NULL, "%s", error.message);
  CHECK_STATUS(NVLLM_ERR_NOT_FOUND, nvllm_release_prefix_with_error(engine, 123456789, &error), &error, "nothing pinned");
  CHECK(strstr(error.message, "123456789") != NULL, "%s", error.message);
  id = add_tokens(engine, 4);
  CHECK_STATUS(NVLLM_OK, nvllm_cancel_with_error(engine, id, &error), &error, "cancel");
  CHECK(error.status == NVLLM_OK && error.message[0] == '\0', "%s", error.message);
  run_to_end(engine);
  check_still_works(engine, "cancels of nothing");
}

/* An engine of two blocks of 16 tokens whose queue holds one request. */
static void more_than_the_engine_holds(const char *folder) {
  static uint32_t tokens[64];
  nvllm_error error;
  nvllm_engine *small = NULL;
  nvllm_model_info info = {.struct_size = sizeof info};
  nvllm_engine_config config;
  CHECK_STATUS(NVLLM_OK, nvllm_engine_model_info(engine, &info, &error), &error, "info");
  CHECK(info.device == NVLLM_DEVICE_CPU || info.device == NVLLM_DEVICE_CUDA, "the device that AUTO chose");
  CHECK(info.max_num_seqs > 0 && info.max_batched_tokens >= info.max_num_seqs, "the largest batch");
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.num_threads = 1;
  config.max_model_len = 256;
  config.kv_block_size = 16;
  config.kv_cache_bytes = 2 * (info.kv_cache_bytes / info.num_kv_blocks);
  config.max_queue = 1;
  CHECK_STATUS(NVLLM_OK, nvllm_engine_new(&config, &small, &error), &error, "a small engine");
  if (small == NULL) return;

  nvllm_request_options options = options_of(30);
  for (size_t i = 0; i < 64; i++) tokens[i] = 5;
  CHECK_STATUS(NVLLM_ERR_OUT_OF_MEMORY, nvllm_add_request_tokens(small, tokens, 10, &options, NULL, &error), &error,
               "40 tokens where 32 fit");
  CHECK(strstr(error.message, "32") != NULL, "%s", error.message);
  CHECK(add_tokens(small, 2) > 0, "the first waits");
  CHECK_STATUS(NVLLM_ERR_QUEUE_FULL, nvllm_add_request_tokens(small, tokens, 3, NULL, NULL, &error), &error, "the second");
  CHECK(strstr(error.message, "max_queue") != NULL, "%s", error.message);
  CHECK(run_to_end(small) == 2, "the first runs");
  check_still_works(small, "a full queue");

  nvllm_request_options endless = options_of(UINT32_MAX);
  endless.ignore_eos = 1;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(small, tokens, 10, &endless, NULL, &error), &error, "no limit");
  size_t made = run_to_end(small);
  CHECK(made > 0 && made <= 23, "it ends where the KV cache ends, after %zu tokens", made);
  check_still_works(small, "a request that filled the cache");
  nvllm_engine_free(small);
}

/* What a model that generates cannot do for texts. */
static void embeddings_that_a_decoder_cannot_make(void) {
  nvllm_error error;
  nvllm_result *result = NULL;
  size_t needed = 0;
  const char *texts[] = {"one"}, *seconds[] = {"two"};
  nvllm_request_options options = options_of(4);
  options.pooling = NVLLM_POOLING_CLS;
  refused("the first token", &options, NVLLM_ERR_UNSUPPORTED, "pooling of the first token needs");
  options.pooling = NVLLM_POOLING_AUTO;
  refused("what the folder says", &options, NVLLM_ERR_UNSUPPORTED, "the model does not say how its states are pooled");
  options.pooling = NVLLM_POOLING_LAST;
  options.embedding_dimensions = UINT32_MAX;
  refused("too many dimensions", &options, NVLLM_ERR_INVALID_ARGUMENT, "the embeddings of the model have");
  CHECK_STATUS(NVLLM_ERR_UNSUPPORTED, nvllm_score(engine, texts, seconds, 1, NULL, 0, NULL, NULL, &result, &error), &error,
               "a score");
  CHECK(strstr(error.message, "the model is no classifier") != NULL && result == NULL, "%s", error.message);
  /* It scores tokens after texts alone. */
  const uint32_t answers[3] = {1, 2, 1};
  const nvllm_request_options *asked = &options;
  nvllm_output output = {.struct_size = sizeof output};
  options = options_of(4);
  options.score_tokens = answers;
  options.num_score_tokens = 3;
  refused("a token twice", &options, NVLLM_ERR_INVALID_ARGUMENT, "score_tokens is a list with token 1 twice");
  options.num_score_tokens = 2;
  CHECK_STATUS(NVLLM_OK, nvllm_score(engine, texts, seconds, 1, &asked, 1, NULL, NULL, &result, &error), &error,
               "tokens after a pair");
  CHECK(nvllm_result_get(result, 0, &output) == NVLLM_OK && output.finish_reason == NVLLM_FINISH_ERROR,
        "a pair is no prompt of this model");
  nvllm_result_free(result);
  result = NULL;
  CHECK_STATUS(NVLLM_OK, nvllm_score(engine, texts, NULL, 1, &asked, 1, NULL, NULL, &result, &error), &error, "tokens");
  CHECK(nvllm_result_get(result, 0, &output) == NVLLM_OK && output.num_scores == 2 && output.num_token_ids == 0, "scores");
  CHECK(output.scores[0] > 0 && output.scores[1] > 0 && fabsf(output.scores[0] + output.scores[1] - 1) < 1e-5f,
        "%f and %f", (double)output.scores[0], (double)output.scores[1]);
  nvllm_result_free(result);
  result = NULL;
  CHECK_STATUS(NVLLM_ERR_UNSUPPORTED, nvllm_add_request_pair(engine, "a", "b", NULL, NULL, &error), &error, "a pair");
  CHECK(strstr(error.message, "no scores of pairs") != NULL, "%s", error.message);
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_label(engine, 0, NULL, 0, &needed, &error), &error, "a label");
  check_still_works(engine, "scores");
}

/* An encoder beside the demo model; its texts are tokens, because its folder has no tokenizer. */
static nvllm_engine *open_encoder(const char *folder, const char *name) {
  char path[1024];
  nvllm_error error;
  nvllm_engine *encoder = NULL;
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  snprintf(path, sizeof path, "%s/../../tests/golden/encoders/%s", folder, name);
  config.model_path = path;
  config.num_threads = 1;
  config.max_num_seqs = 4;
  CHECK_STATUS(NVLLM_OK, nvllm_engine_new(&config, &encoder, &error), &error, path);
  return encoder;
}

static void refused_by(nvllm_engine *encoder, size_t tokens, uint32_t pooling, uint32_t dimensions, nvllm_status wanted,
                       const char *word) {
  static uint32_t prompt[80];
  nvllm_error error;
  nvllm_request_options options = options_of(4);
  for (size_t i = 0; i < 80; i++) prompt[i] = 5;
  options.pooling = pooling;
  options.embedding_dimensions = dimensions;
  CHECK_STATUS(wanted, nvllm_add_request_tokens(encoder, prompt, tokens, &options, NULL, &error), &error, word);
  CHECK(strstr(error.message, word) != NULL, "no '%s' in: %s", word, error.message);
  CHECK(nvllm_is_finished(encoder), "%s: something was queued", word);
}

static void texts_that_encoders_cannot_read(const char *folder) {
  nvllm_error error;
  nvllm_result *result = NULL;
  const char *texts[] = {"one"};
  nvllm_engine *encoder = open_encoder(folder, "bert-f32");
  if (encoder == NULL) return;
  refused_by(encoder, 3, NVLLM_POOLING_NONE, 0, NVLLM_ERR_UNSUPPORTED, "the model has no head and generates nothing");
  refused_by(encoder, 3, NVLLM_POOLING_AUTO, 0, NVLLM_ERR_UNSUPPORTED, "does not say how its states are pooled");
  refused_by(encoder, 0, NVLLM_POOLING_MEAN, 0, NVLLM_ERR_INVALID_ARGUMENT, "the prompt has no tokens");
  refused_by(encoder, 65, NVLLM_POOLING_MEAN, 0, NVLLM_ERR_CONTEXT_LENGTH, "the text has 65 tokens, but max_model_len is 64");
  refused_by(encoder, 3, NVLLM_POOLING_MEAN, 65, NVLLM_ERR_INVALID_ARGUMENT, "the embeddings of the model have 64 numbers");
  CHECK_STATUS(NVLLM_ERR_UNSUPPORTED, nvllm_score(encoder, texts, NULL, 1, NULL, 0, NULL, NULL, &result, &error), &error,
               "a score");
  nvllm_engine_free(encoder);

  char label[8];
  size_t needed = 0;
  encoder = open_encoder(folder, "bert-f32-classifier");
  if (encoder == NULL) return;
  refused_by(encoder, 3, NVLLM_POOLING_MEAN, 0, NVLLM_ERR_UNSUPPORTED, "the model is a classifier and gives scores");
  refused_by(encoder, 3, NVLLM_POOLING_AUTO, 2, NVLLM_ERR_INVALID_ARGUMENT, "the request makes no embedding");
  CHECK_STATUS(NVLLM_OK, nvllm_label(encoder, 1, label, sizeof label, &needed, &error), &error, "a label");
  CHECK(strcmp(label, "glad") == 0 && needed == 5, "%s, %zu", label, needed);
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_label(encoder, 3, label, sizeof label, &needed, &error), &error, "no label");
  CHECK_STATUS(NVLLM_OK, nvllm_named_prompt(encoder, "query", label, sizeof label, &needed, &error), &error, "no prompts");
  CHECK(needed == 1 && label[0] == 0, "%zu", needed);
  /* Without a tokenizer each text fails by itself. */
  CHECK_STATUS(NVLLM_OK, nvllm_score(encoder, texts, NULL, 1, NULL, 0, NULL, NULL, &result, &error), &error, "a text");
  nvllm_output output = {.struct_size = sizeof output};
  CHECK(nvllm_result_get(result, 0, &output) == NVLLM_OK && output.finish_reason == NVLLM_FINISH_ERROR, "no tokenizer");
  nvllm_result_free(result);
  nvllm_engine_free(encoder);
}

static void engines_that_cannot_open(const char *folder) {
  nvllm_error error;
  nvllm_engine *none = NULL;
  nvllm_engine_config config;
#define WITH(field, value, wanted, word)                                                              \
  nvllm_engine_config_init(&config, sizeof config);                                                   \
  config.model_path = folder;                                                                         \
  config.num_threads = 1;                                                                             \
  config.field = (value);                                                                             \
  CHECK_STATUS((wanted), nvllm_engine_new(&config, &none, &error), &error, #field " = " #value);      \
  CHECK(strstr(error.message, (word)) != NULL, #field " = " #value ": no '%s' in: %s", (word), error.message)
  WITH(kv_cache_bytes, 1, NVLLM_ERR_OUT_OF_MEMORY, "kv_cache_bytes");
  WITH(max_model_len, UINT32_MAX, NVLLM_ERR_INVALID_ARGUMENT, "max_model_len");
  WITH(num_threads, UINT32_MAX, NVLLM_ERR_INVALID_ARGUMENT, "num_threads");
  WITH(kv_block_size, UINT32_MAX, NVLLM_ERR_INVALID_ARGUMENT, "kv_block_size");
  WITH(state_checkpoint_interval, UINT64_MAX, NVLLM_ERR_INVALID_ARGUMENT, "state_checkpoint_interval");
  WITH(max_num_seqs, UINT32_MAX, NVLLM_ERR_INVALID_ARGUMENT, "max_num_seqs");
  WITH(max_batched_tokens, UINT32_MAX, NVLLM_ERR_INVALID_ARGUMENT, "max_batched_tokens");
#undef WITH
  CHECK(none == NULL, "no engine was stored");
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  engine = open_engine(folder);
  options_that_make_no_sense();
  biases_that_make_no_sense();
  beams_that_make_no_sense();
  sequence_breakers_that_make_no_sense();
  structures_that_cannot_be_followed();
  prompts_that_cannot_run();
  requests_that_are_not_there();
  more_than_the_engine_holds(folder);
  embeddings_that_a_decoder_cannot_make();
  texts_that_encoders_cannot_read(folder);
  engines_that_cannot_open(folder);
  check_still_works(engine, "everything");
  nvllm_engine_free(engine);
  return checks_end();
}
