// Generated from nanovllm.h by scripts/header.sh: change src/capi, then run make header. Included by options.hpp.
#ifndef NANOVLLM_GENERATED_OPTIONS_HPP
#define NANOVLLM_GENERATED_OPTIONS_HPP

namespace nvllm {

/// Where an engine computes.
enum class device : int32_t {
  automatic = NVLLM_DEVICE_AUTO,
  cpu = NVLLM_DEVICE_CPU,
  cuda = NVLLM_DEVICE_CUDA,
};

/// Data types of weights and KV cache.
enum class dtype : int32_t {
  automatic = NVLLM_DTYPE_AUTO,
  f32 = NVLLM_DTYPE_F32,
  f16 = NVLLM_DTYPE_F16,
  bf16 = NVLLM_DTYPE_BF16,
};

/// How the weights of a model are loaded into memory.
enum class load_mode : int32_t {
  map = NVLLM_LOAD_MAP,
  read = NVLLM_LOAD_READ,
};

/// How keys and values are stored in the KV cache.
enum class kv_cache_dtype : int32_t {
  automatic = NVLLM_KV_CACHE_AUTO,
  int8 = NVLLM_KV_CACHE_INT8,
};

/// How weights that are not quantized yet are quantized while an engine opens.
enum class quantization : int32_t {
  none = NVLLM_QUANTIZATION_NONE,
  int8 = NVLLM_QUANTIZATION_INT8,
  int4 = NVLLM_QUANTIZATION_INT4,
};

/// How the final hidden states of a prompt, after the model's last norm, become an embedding. A classifier takes NVLLM_POOLING_AUTO alone.
enum class pooling : uint32_t {
  none = NVLLM_POOLING_NONE,
  last = NVLLM_POOLING_LAST,
  mean = NVLLM_POOLING_MEAN,
  cls = NVLLM_POOLING_CLS,
  automatic = NVLLM_POOLING_AUTO,
};

/// When a beam search ends once it has as many results as beams.
struct early_stopping {
  enum value : uint32_t {
    heuristic = NVLLM_EARLY_STOPPING_HEURISTIC,
    at_once = NVLLM_EARLY_STOPPING_AT_ONCE,
    never = NVLLM_EARLY_STOPPING_NEVER,
  };
};

/// Kinds of structured output.
enum class structure : int32_t {
  none = NVLLM_STRUCTURE_NONE,
  json_schema = NVLLM_STRUCTURE_JSON_SCHEMA,
  regex = NVLLM_STRUCTURE_REGEX,
  lark = NVLLM_STRUCTURE_LARK,
};

/// Which tools a completion calls.
enum class tool_choice : int32_t {
  automatic = NVLLM_TOOL_CHOICE_AUTO,
  none = NVLLM_TOOL_CHOICE_NONE,
  required = NVLLM_TOOL_CHOICE_REQUIRED,
  named = NVLLM_TOOL_CHOICE_NAMED,
};

/// nvllm_engine_config: what is not set has the library's default, and model_path has none.
struct engine_options {
  /// Path of the model: a folder in the layout of Hugging Face, or a GGUF file, of which the first part is given if it
  /// is split. NUL-terminated UTF-8. Required, except by nvllm_engine_new_from, which reads it as a name among its
  /// files. Of a GGUF file, a tokenizer.json, tokenizer_config.json, chat_template.jinja or generation_config.json in
  /// the same folder is read instead of what the file says about the same.
  std::string model_path = {};
  /// NVLLM_DEVICE_*: where the engine computes. Default NVLLM_DEVICE_AUTO.
  std::optional<nvllm::device> device = {};
  /// Index of the GPU among those that the driver reports. 0 on the CPU. Default 0.
  std::optional<int32_t> device_index = {};
  /// NVLLM_DTYPE_*: data type of the weights, and of the KV cache unless kv_cache_dtype says otherwise. Default
  /// NVLLM_DTYPE_AUTO. Quantized weights stay quantized. On a CPU, NVLLM_DTYPE_F32 computes with their exact values and
  /// activations in f32; with any other type, activations are rounded where the processor multiplies integers or bf16
  /// faster: see docs/performance.md.
  std::optional<nvllm::dtype> dtype = {};
  /// Number of CPU threads that compute, the calling thread included. Default 0: one per core.
  std::optional<uint32_t> num_threads = {};
  /// Maximum length of a sequence in tokens, prompt and completion together. Default 0: the model's maximum, but at
  /// most 1048576.
  std::optional<uint32_t> max_model_len = {};
  /// Maximum number of sequences that run at once; others wait. Default 0: by device.
  std::optional<uint32_t> max_num_seqs = {};
  /// Maximum number of new tokens per forward pass. Default 0: by device.
  std::optional<uint32_t> max_batched_tokens = {};
  /// Maximum number of waiting requests, where each of their completions counts. A request whose n is greater can never
  /// be queued, and is refused. Default 0: NVLLM_MAX_QUEUED_COMPLETIONS.
  std::optional<uint32_t> max_queue = {};
  /// Tokens per KV block: a power of two, at most 1024. Default 0: by device.
  std::optional<uint32_t> kv_block_size = {};
  /// Whether prompts share the KV blocks of common prefixes. Default true.
  std::optional<bool> enable_prefix_cache = {};
  /// Size of the KV cache in bytes, that of all ranks together. Default 0: determined by memory_utilization.
  std::optional<uint64_t> kv_cache_bytes = {};
  /// Fraction of the device's memory (on the CPU: of the free memory) that this engine may use, above 0 and at most 1.
  /// Default 0: by device (CPU: 0.5, CUDA: 0.9).
  std::optional<float> memory_utilization = {};
  /// Number of ranks that compute the model together: GPUs, or on the CPU groups of threads, each bound to one NUMA
  /// node where there are several. At most the number of query heads of the model. Default 1. On the CPU, every number
  /// of ranks gives the same bits; on CUDA if batch_invariant is 1.
  std::optional<uint32_t> tensor_parallel_size = {};
  /// Whether CUDA graphs are disabled. No effect on the CPU. Default false. Where the engine finds no CUDA context of
  /// its GPU in the process, graphs of more than 8 sequences may be recorded in a later step, when a batch of their
  /// size first comes. While a graph is recorded, CUDA refuses other threads to wait for the whole device
  /// (cudaDeviceSynchronize). A program that uses CUDA itself should begin to before it opens an engine, which then
  /// records all graphs while it opens.
  std::optional<bool> enforce_eager = {};
  /// Whether the logits of a request are the same bit for bit whatever else is in the batch, and on however many GPUs
  /// of one kind. On the CPU they always are; on CUDA it selects slower kernels. Default false.
  std::optional<bool> batch_invariant = {};
  /// Seed of the requests that have none. Default 0: drawn from the system.
  std::optional<uint64_t> seed = {};
  /// Receives the fraction of the model that is loaded, from 0 to 1; false cancels loading.
  std::function<bool(float)> progress = {};
  /// NVLLM_LOAD_*: how the weights are loaded into memory. Default NVLLM_LOAD_MAP.
  std::optional<nvllm::load_mode> load_mode = {};
  /// The GPU of each rank of this process, as device_index counts them, each at most once. NULL takes device_index and
  /// those after it.
  std::vector<int32_t> device_indices = {};
  /// Number of processes that compute the model together, each opened with the same options except process_index and
  /// those of its devices and threads. tensor_parallel_size counts the ranks of all of them, and is a multiple. GPUs of
  /// several processes exchange through NCCL 2.18 or later, which must be installed: NVLLM_ERR_UNSUPPORTED without it.
  /// Default 0: this one alone.
  std::optional<uint32_t> num_processes = {};
  /// Which of them this is, from 0. Process 0 leads: requests go to it alone. The others are stepped to compute what
  /// process 0 schedules, and their functions about requests, completions and cached prefixes return
  /// NVLLM_ERR_UNSUPPORTED. Default 0.
  std::optional<uint32_t> process_index = {};
  /// Time in milliseconds that another rank or process may be silent, or that data which it has sent may be missing,
  /// before the engine ends with an error. At least 100 milliseconds with several processes. Default 0: 10000.
  std::optional<uint32_t> peer_timeout_ms = {};
  /// Where process 0 listens and the others find it: "host:port", or "unix:" and an absolute path, which Windows
  /// refuses. The connections are neither encrypted nor authenticated: use a private network. Required with several
  /// processes.
  std::string rendezvous = {};
  /// NVLLM_KV_CACHE_*: how keys and values are stored in the KV cache. A prefix can be restored only by an engine with
  /// the value of the one that saved it. Default NVLLM_KV_CACHE_AUTO.
  std::optional<nvllm::kv_cache_dtype> kv_cache_dtype = {};
  /// NVLLM_QUANTIZATION_*: how weights that are not quantized yet are quantized while the engine opens, embedding table
  /// and head included. Matrices whose width is no multiple of 32 stay as they are, with a warning in the log. Default
  /// NVLLM_QUANTIZATION_NONE.
  std::optional<nvllm::quantization> quantization = {};
  /// Maximum number of bytes that this engine takes on each of its GPUs: weights, KV cache, graphs, buffers, and the
  /// CUDA context if the process has none there yet. The KV cache gets what the rest leaves; memory_utilization remains
  /// a limit too. What the engine takes is measured with NVIDIA's management library, so that other programs should not
  /// allocate on the GPU while it opens; without that library the context is assumed to take 640 MiB.
  /// NVLLM_ERR_OUT_OF_MEMORY if the budget does not hold the weights and one KV block, or not kv_cache_bytes. No effect
  /// on the CPU. Default 0: no such limit.
  std::optional<uint64_t> gpu_memory_bytes = {};
  /// For models with recurrent layers: the recurrent state is kept in the prefix cache after each multiple of this
  /// number of tokens, and at the end of each prompt. Later requests with the same beginning continue from there.
  /// Rounded up to whole KV blocks. Fewer tokens are computed again with a smaller number, and more states are made.
  /// Default 0: 1024.
  std::optional<uint64_t> state_checkpoint_interval = {};
  /// For models with experts on a GPU: number of layers whose experts stay in host memory, the last ones that have any.
  /// The CPU computes them with num_threads threads, by default one less than there are cores. A number for which the
  /// GPU has too little memory is refused with NVLLM_ERR_OUT_OF_MEMORY, and the message says which one is sufficient.
  /// Not with several ranks. Default 0: as many as the GPU has no memory for. -1: none.
  std::optional<int32_t> host_expert_layers = {};
  /// Whether nvllm_expert_tokens counts how many tokens each expert of a model with experts is chosen for. Default 0,
  /// because counting is one more kernel per layer on a GPU.
  std::optional<bool> expert_statistics = {};
  /// With several ranks, whether each rank holds some experts of every layer whole. With 0, each rank holds a share of
  /// the width of every expert. With 1, a rank computes the tokens of its own experts, and there must be at least as
  /// many experts as ranks. Refused for a model without experts. The results are those of 0, bit for bit, on the CPU
  /// and with batch_invariant. No effect with one rank. Default false.
  std::optional<bool> expert_parallel = {};
};

/// nvllm_request_options: what is not set has the library's default, which is greedy and without limits. Where a function
/// takes no options, those of engine::default_options() hold, which the model recommends.
struct request_options {
  /// Returned in every output: an index, a pointer, a handle. Default 0.
  std::optional<uint64_t> tag = {};
  /// Maximum number of tokens to generate, at least 1. Default UINT32_MAX: limited by max_model_len and the KV cache
  /// only.
  std::optional<uint32_t> max_tokens = {};
  /// Number of tokens before which no EOS token, stop token or end of a stop string may occur. Default 0.
  std::optional<uint32_t> min_tokens = {};
  /// Sampling temperature. Default 0: always the most likely token. Greater values increase randomness.
  std::optional<float> temperature = {};
  /// Nucleus sampling: sample from the most likely tokens whose probabilities sum to this value, above 0 and at most 1.
  /// Default 1: all tokens.
  std::optional<float> top_p = {};
  /// Drop tokens whose probability is below this fraction of that of the most likely one, from 0 to 1. Default 0: drop
  /// none.
  std::optional<float> min_p = {};
  /// Sample from this many of the most likely tokens. Default 0: all tokens.
  std::optional<uint32_t> top_k = {};
  /// Divides the positive logits, and multiplies the negative logits, of tokens that occur in the prompt or the
  /// completion. A finite number above 0, where more than 1 discourages repetition. Default 1: off. As in transformers.
  std::optional<float> repetition_penalty = {};
  /// Subtracted from the logit of each token that occurs in the completion. Any finite number. Default 0. As in the
  /// OpenAI API.
  std::optional<float> presence_penalty = {};
  /// Subtracted from the logit of a token once per occurrence in the completion. Any finite number. Default 0. As in
  /// the OpenAI API.
  std::optional<float> frequency_penalty = {};
  /// Seed of the request's own random stream: the same seed, prompt and options give the same completion. Default 0:
  /// derived from the engine's seed and the request's id.
  std::optional<uint64_t> seed = {};
  /// Whether EOS tokens are treated as ordinary tokens. Default false.
  std::optional<bool> ignore_eos = {};
  /// Requests with a higher priority run first. Default 0.
  std::optional<int32_t> priority = {};
  /// Stop strings. The completion ends when its text contains one; the text ends before the first one to be complete,
  /// even if that is inside a token. The tokens that spell the string stay in the output. Needs a tokenizer.
  std::vector<std::string> stop = {};
  /// Tokens that end the completion, in addition to EOS.
  std::vector<uint32_t> stop_tokens = {};
  /// Tokens, and what is added to their logits after the penalties: finite, or minus infinity to exclude a token.
  std::vector<std::pair<uint32_t, float>> logit_bias = {};
  /// If not 0, outputs contain the log-probability of each token, and those of this many most likely tokens, at most
  /// 64. They are the model's own, before penalties, biases, temperature and filters. Default 0.
  std::optional<uint32_t> num_logprobs = {};
  /// As num_logprobs, for the prompt. The output with the first token contains them, that of completion 0 if n is more
  /// than 1. The whole prompt is then computed without the prefix cache, with at most max_num_seqs + 64 of its tokens
  /// per pass. Default 0.
  std::optional<uint32_t> num_prompt_logprobs = {};
  /// Number of completions of this prompt, from 1 to NVLLM_MAX_COMPLETIONS. Default 1. They share the KV blocks of the
  /// prompt, which is computed once. Each has its own outputs, which differ by index. Completion i samples as a request
  /// with seed + i does.
  std::optional<uint32_t> n = {};
  /// Number of beams of a beam search. Default 0: sampling. From 2, the n best results are returned as completions 0 to
  /// n-1, best first, all at the end. As num_beams in transformers. At most 32, and at most 64 / (1 + number of EOS
  /// tokens). Cannot be combined with temperature, penalties, biases, stop strings or num_logprobs.
  std::optional<uint32_t> beam_width = {};
  /// Beam search: results are ranked by the sum of their log-probabilities divided by their length to the power of this
  /// value. More than 0 favours long results. Any finite number. Default 1.
  std::optional<float> length_penalty = {};
  /// NVLLM_EARLY_STOPPING_*: when a beam search ends once it has as many results as beams. Default
  /// NVLLM_EARLY_STOPPING_HEURISTIC.
  std::optional<uint32_t> early_stopping = {};
  /// Whether the output includes the token that stopped the completion, or the stop string in its text. Default false.
  std::optional<bool> include_stop = {};
  /// Time in microseconds that the request may wait until it first runs. The first step after that ends it with
  /// NVLLM_FINISH_EXPIRED. Default 0: no limit.
  std::optional<uint64_t> max_wait_us = {};
  /// Requests with different salts share no KV blocks, so that no tenant can infer another one's prompts from timing.
  /// Default 0, which is a salt like any other.
  std::optional<uint64_t> cache_salt = {};
  /// Whether the full KV blocks of the prompt stay in the prefix cache after the request has ended, until
  /// nvllm_release_prefix. Default false. Pinned blocks may take at most the KV cache minus what one sequence of
  /// max_model_len tokens needs, so that no request waits forever; beyond that the request is refused with
  /// NVLLM_ERR_OUT_OF_MEMORY.
  std::optional<bool> pin_prompt = {};
  /// NVLLM_STRUCTURE_*: what `structure` is. Default NVLLM_STRUCTURE_NONE. The other options apply to the tokens that
  /// the structure allows. The structure may end the completion before min_tokens if nothing can follow; stop strings,
  /// stop tokens and max_tokens may end it before the structure is complete. A completion that cannot continue ends
  /// with NVLLM_FINISH_ERROR. Needs a tokenizer.
  std::optional<nvllm::structure> structure_kind = {};
  /// The schema, expression or grammar that constrains the completion, of the kind structure_kind, at most
  /// NVLLM_MAX_STRUCTURE_BYTES. If it is refused, the message says why. Compiled structures are cached.
  std::string structure = {};
  /// NVLLM_POOLING_*: how the prompt becomes an embedding. Default NVLLM_POOLING_NONE. With any other value the request
  /// generates nothing, and its only output has the embedding and NVLLM_FINISH_STOP; n must be 1, beam_width must be 0,
  /// and options of generation are ignored.
  std::optional<nvllm::pooling> pooling = {};
  /// Tools that the model may call: a JSON array of {"type": "function", "function": {"name", "description",
  /// "parameters"}}, as in the OpenAI API, or of the inner objects, at most NVLLM_MAX_MESSAGES_BYTES. Where messages
  /// are rendered with these options, as by nvllm_add_chat, the chat template gets them as "tools", unless its options
  /// have "tools". To read the calls, set keep_special_tokens and use a nvllm_answer_parser. Needs a tokenizer.
  std::string tools = {};
  /// The name of the tool that is called with NVLLM_TOOL_CHOICE_NAMED.
  std::string tool_name = {};
  /// NVLLM_TOOL_CHOICE_*: which of tools the completion calls. Default NVLLM_TOOL_CHOICE_AUTO.
  std::optional<nvllm::tool_choice> tool_choice = {};
  /// Whether the completion may have more than one call. Default true.
  std::optional<bool> parallel_tool_calls = {};
  /// Whether the arguments of a call follow the schema of its tool; with 0 they are any JSON object. A tool with a
  /// "strict" of its own decides for itself. Default true.
  std::optional<bool> strict_tools = {};
  /// Whether the text of outputs has special tokens, spelled out. A nvllm_answer_parser needs them. Default false.
  std::optional<bool> keep_special_tokens = {};
  /// Number of tokens of reasoning after which its end marker is forced: 0 ends it at once. Default UINT32_MAX: no
  /// limit, and reasoning_tokens of outputs is 0. Tokens of the markers do not count. A model whose answers have no
  /// reasoning is not limited. Cannot be combined with structure_kind or beam_width. Needs a tokenizer.
  std::optional<uint32_t> max_thinking_tokens = {};
  /// DRY: strings across which no repetition extends. Default NULL: newline, colon, quotation mark and asterisk, as in
  /// llama.cpp; an empty list that is not NULL is none. A list needs a tokenizer. Without one, or with one that does
  /// not decode token by token, the default has no effect.
  std::optional<std::vector<std::string>> dry_sequence_breakers = {};
  /// DRY, a penalty of repetitions. If the last n tokens occurred before, dry_multiplier * dry_base^(n -
  /// dry_allowed_length) is subtracted from the logit of the token that followed them there. The greatest such n
  /// counts, if it is at least dry_allowed_length. A finite number, not negative. Default 0: off. Applies after the
  /// other penalties and the biases, before temperature and filters. As in llama.cpp; the formula is that of
  /// github.com/oobabooga/text-generation-webui/pull/5677. The request waits for each token before its next pass is
  /// scheduled, as one with a structure does. Cannot be combined with beam_width.
  std::optional<float> dry_multiplier = {};
  /// DRY: the base, a finite number of at least 1. Default 1.75.
  std::optional<float> dry_base = {};
  /// DRY: the length from which on a repetition is penalized, at least 1. Default 2.
  std::optional<uint32_t> dry_allowed_length = {};
  /// DRY: number of last tokens of prompt and completion that are looked at, at least 1. Default UINT32_MAX: all.
  std::optional<uint32_t> dry_penalty_last_n = {};
  /// Top-n-sigma: drop tokens whose logit is more than this many standard deviations below the greatest. Any finite
  /// number. Default 0: off, as is less. The deviation is that of all logits that are not excluded, after penalties and
  /// biases; the temperature does not change what is kept. Distances of more than 512 from the greatest logit count as
  /// 512. The filters apply in this order: top_n_sigma, top_k, top_p, min_p, XTC. As in llama.cpp; the formula is that
  /// of arxiv.org/abs/2411.07641.
  std::optional<float> top_n_sigma = {};
  /// XTC: the probability, from 0 to 1, with which a token is sampled without the most likely ones. All tokens with a
  /// probability of at least xtc_threshold are then dropped, except the least likely of them and those that are as
  /// likely. Default 0: never. Drawn from the seed and the position of the token. Probabilities are those that
  /// temperature and other filters leave; llama.cpp applies the temperature later. No effect at temperature 0. The rule
  /// is that of github.com/oobabooga/text-generation-webui/pull/6335.
  std::optional<float> xtc_probability = {};
  /// XTC: the probability from which on tokens are dropped, above 0 and at most 1. Default 0.1. More than 0.5 is off,
  /// because no two tokens reach it.
  std::optional<float> xtc_threshold = {};
  /// The number of leading values of the embedding that are returned, from 1 to all of them, normalized again where the
  /// model normalizes its embeddings: for models that were trained for it (Matryoshka). Default 0: all.
  std::optional<uint32_t> embedding_dimensions = {};
  /// Tokens whose probabilities after the prompt are asked for, each once: the request generates nothing. scores of its
  /// output has their probabilities among these tokens alone, which add up to 1, and cumulative_logprob the logarithm
  /// of their sum among all tokens. So a model that answers yes or no ranks texts: see nvllm_score.
  std::vector<uint32_t> score_tokens = {};
  /// Cuts a longer prompt to this number of tokens instead of refusing it. Tokens around a text stay, and of a pair the
  /// longer text is cut first. UINT32_MAX: to the most that the model takes, with NVLLM_POOLING_AUTO at most to
  /// max_seq_length of its folder. For requests that generate nothing. Default 0: no prompt is cut.
  std::optional<uint32_t> truncate_prompt_tokens = {};
};

namespace detail {

/// Sets the numbers that `options` has, and leaves the others and every pointer as they are.
inline void assign_scalars(nvllm_engine_config& native, const engine_options& options) {
  assign(native.device, options.device);
  assign(native.device_index, options.device_index);
  assign(native.dtype, options.dtype);
  assign(native.num_threads, options.num_threads);
  assign(native.max_model_len, options.max_model_len);
  assign(native.max_num_seqs, options.max_num_seqs);
  assign(native.max_batched_tokens, options.max_batched_tokens);
  assign(native.max_queue, options.max_queue);
  assign(native.kv_block_size, options.kv_block_size);
  assign(native.enable_prefix_cache, options.enable_prefix_cache);
  assign(native.kv_cache_bytes, options.kv_cache_bytes);
  assign(native.memory_utilization, options.memory_utilization);
  assign(native.tensor_parallel_size, options.tensor_parallel_size);
  assign(native.enforce_eager, options.enforce_eager);
  assign(native.batch_invariant, options.batch_invariant);
  assign(native.seed, options.seed);
  assign(native.load_mode, options.load_mode);
  assign(native.num_processes, options.num_processes);
  assign(native.process_index, options.process_index);
  assign(native.peer_timeout_ms, options.peer_timeout_ms);
  assign(native.kv_cache_dtype, options.kv_cache_dtype);
  assign(native.quantization, options.quantization);
  assign(native.gpu_memory_bytes, options.gpu_memory_bytes);
  assign(native.state_checkpoint_interval, options.state_checkpoint_interval);
  assign(native.host_expert_layers, options.host_expert_layers);
  assign(native.expert_statistics, options.expert_statistics);
  assign(native.expert_parallel, options.expert_parallel);
}

/// Sets the numbers that `options` has, and leaves the others and every pointer as they are.
inline void assign_scalars(nvllm_request_options& native, const request_options& options) {
  assign(native.tag, options.tag);
  assign(native.max_tokens, options.max_tokens);
  assign(native.min_tokens, options.min_tokens);
  assign(native.temperature, options.temperature);
  assign(native.top_p, options.top_p);
  assign(native.min_p, options.min_p);
  assign(native.top_k, options.top_k);
  assign(native.repetition_penalty, options.repetition_penalty);
  assign(native.presence_penalty, options.presence_penalty);
  assign(native.frequency_penalty, options.frequency_penalty);
  assign(native.seed, options.seed);
  assign(native.ignore_eos, options.ignore_eos);
  assign(native.priority, options.priority);
  assign(native.num_logprobs, options.num_logprobs);
  assign(native.num_prompt_logprobs, options.num_prompt_logprobs);
  assign(native.n, options.n);
  assign(native.beam_width, options.beam_width);
  assign(native.length_penalty, options.length_penalty);
  assign(native.early_stopping, options.early_stopping);
  assign(native.include_stop, options.include_stop);
  assign(native.max_wait_us, options.max_wait_us);
  assign(native.cache_salt, options.cache_salt);
  assign(native.pin_prompt, options.pin_prompt);
  assign(native.structure_kind, options.structure_kind);
  assign(native.pooling, options.pooling);
  assign(native.tool_choice, options.tool_choice);
  assign(native.parallel_tool_calls, options.parallel_tool_calls);
  assign(native.strict_tools, options.strict_tools);
  assign(native.keep_special_tokens, options.keep_special_tokens);
  assign(native.max_thinking_tokens, options.max_thinking_tokens);
  assign(native.dry_multiplier, options.dry_multiplier);
  assign(native.dry_base, options.dry_base);
  assign(native.dry_allowed_length, options.dry_allowed_length);
  assign(native.dry_penalty_last_n, options.dry_penalty_last_n);
  assign(native.top_n_sigma, options.top_n_sigma);
  assign(native.xtc_probability, options.xtc_probability);
  assign(native.xtc_threshold, options.xtc_threshold);
  assign(native.embedding_dimensions, options.embedding_dimensions);
  assign(native.truncate_prompt_tokens, options.truncate_prompt_tokens);
}

/// The numbers of `native`, each set. Texts and lists stay empty.
inline request_options scalars_of(const nvllm_request_options& native) {
  request_options options;
  read(options.tag, native.tag);
  read(options.max_tokens, native.max_tokens);
  read(options.min_tokens, native.min_tokens);
  read(options.temperature, native.temperature);
  read(options.top_p, native.top_p);
  read(options.min_p, native.min_p);
  read(options.top_k, native.top_k);
  read(options.repetition_penalty, native.repetition_penalty);
  read(options.presence_penalty, native.presence_penalty);
  read(options.frequency_penalty, native.frequency_penalty);
  read(options.seed, native.seed);
  read(options.ignore_eos, native.ignore_eos);
  read(options.priority, native.priority);
  read(options.num_logprobs, native.num_logprobs);
  read(options.num_prompt_logprobs, native.num_prompt_logprobs);
  read(options.n, native.n);
  read(options.beam_width, native.beam_width);
  read(options.length_penalty, native.length_penalty);
  read(options.early_stopping, native.early_stopping);
  read(options.include_stop, native.include_stop);
  read(options.max_wait_us, native.max_wait_us);
  read(options.cache_salt, native.cache_salt);
  read(options.pin_prompt, native.pin_prompt);
  read(options.structure_kind, native.structure_kind);
  read(options.pooling, native.pooling);
  read(options.tool_choice, native.tool_choice);
  read(options.parallel_tool_calls, native.parallel_tool_calls);
  read(options.strict_tools, native.strict_tools);
  read(options.keep_special_tokens, native.keep_special_tokens);
  read(options.max_thinking_tokens, native.max_thinking_tokens);
  read(options.dry_multiplier, native.dry_multiplier);
  read(options.dry_base, native.dry_base);
  read(options.dry_allowed_length, native.dry_allowed_length);
  read(options.dry_penalty_last_n, native.dry_penalty_last_n);
  read(options.top_n_sigma, native.top_n_sigma);
  read(options.xtc_probability, native.xtc_probability);
  read(options.xtc_threshold, native.xtc_threshold);
  read(options.embedding_dimensions, native.embedding_dimensions);
  read(options.truncate_prompt_tokens, native.truncate_prompt_tokens);
  return options;
}

}  // namespace detail
}  // namespace nvllm

#endif
