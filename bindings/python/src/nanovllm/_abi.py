# Generated from nanovllm.h by scripts/header.sh. Do not edit: change src/capi, then run make header.
"""The C API: structs, values and functions."""

from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import TypedDict

from .names import Name


class Status(IntEnum):
    """The values of nvllm_status."""

    #: Success.
    OK = 0
    #: nvllm_poll_output: no output is waiting.
    NO_OUTPUT = 1
    #: nvllm_step and nvllm_wait of a follower: process 0 has freed its engine. Free this one.
    CLOSED = 2
    #: nvllm_wait: there is nothing to do, and the time is over or nvllm_wake was called.
    TIMEOUT = 3
    #: An argument or an option is invalid. The message names it, its value, and what is accepted.
    ERR_INVALID_ARGUMENT = -1
    #: The buffer is too small. The required size was stored.
    ERR_BUFFER_TOO_SMALL = -2
    #: A [one] function was called while another one ran on the same engine.
    ERR_BUSY = -3
    #: A bug in the library. Only nvllm_engine_free may still be called on this engine.
    ERR_PANIC = -4
    #: No live request, pin or cached prefix matches the arguments.
    ERR_NOT_FOUND = -5
    #: Not enough memory of the host or of the device, not enough KV cache, or no thread could be created.
    ERR_OUT_OF_MEMORY = -6
    #: A file could not be read. native_code is errno, or the value of GetLastError() on Windows.
    ERR_IO = -7
    #: The model files are corrupt or of a kind that is not supported.
    ERR_MODEL = -8
    #: A device call failed, or there was no memory for a forward pass. native_code is the device's error code, or 0.
    #: Only nvllm_engine_free may still be called on this engine.
    ERR_DEVICE = -9
    #: A progress callback cancelled the call, or another thread freed the engine of nvllm_generate or nvllm_wait.
    ERR_CANCELLED = -10
    #: Not supported by this build, or not for this model.
    ERR_UNSUPPORTED = -11
    #: The queue is full, by max_queue or NVLLM_MAX_QUEUED_COMPLETIONS. Step, then try again.
    ERR_QUEUE_FULL = -12
    #: The prompt leaves no room for a completion within max_model_len.
    ERR_CONTEXT_LENGTH = -13
    #: Another process of the engine is gone, was silent for peer_timeout_ms, or was opened with another model or other
    #: options; the message says which. Only nvllm_engine_free may still be called on this engine.
    ERR_PEER = -14


class LogLevel(IntEnum):
    """Severity of a message."""

    #: Nothing is logged.
    OFF = 0
    #: Something failed.
    ERROR = 1
    #: Something is unexpected, but work continues.
    WARN = 2
    #: A milestone, such as a loaded model.
    INFO = 3
    #: Detail for debugging the library.
    DEBUG = 4


class Device(Name):
    """Where an engine computes."""

    #: An NVIDIA GPU if the library has kernels for it and for the model and finds a driver, else the CPU.
    AUTO = "auto", 0
    #: Threads of this process.
    CPU = "cpu", 1
    #: An NVIDIA GPU.
    CUDA = "cuda", 2


class DType(Name):
    """Data types of weights and KV cache."""

    #: The data type of the model's files.
    AUTO = "auto", 0
    #: IEEE 754, 32 bits.
    F32 = "f32", 1
    #: IEEE 754, 16 bits.
    F16 = "f16", 2
    #: bfloat16: the upper 16 bits of an F32.
    BF16 = "bf16", 3


class KvCacheDtype(Name):
    """How keys and values are stored in the KV cache."""

    #: In the data type of the weights.
    AUTO = "auto", 0
    #: As 8-bit integers, with a 16-bit scale per token, layer and KV head for the key, and one for the value. A head of
    #: 128 numbers takes 130 bytes instead of 256. Each number is off by at most 0.4 % of the greatest one that shares
    #: its scale.
    INT8 = "int8", 1


class LoadMode(Name):
    """How the weights of a model are loaded into memory."""

    #: The files are mapped, so that engines and processes share their pages. On the CPU the mapping is used until the
    #: engine is freed, unless dtype asks for a conversion; on CUDA until nvllm_engine_new returns. If another program
    #: writes into a file, the weights change. If a file is truncated, reading a weight beyond its end raises SIGBUS,
    #: which ends the process: replace the files of a model by renaming new ones over them, or choose NVLLM_LOAD_READ.
    #: Windows refuses to write, truncate, replace or delete a file while it is mapped.
    MAP = "map", 0
    #: The files are copied into memory of the library, so that later changes to them have no effect. The copy is not
    #: shared between processes, and the system cannot evict it. NVLLM_ERR_OUT_OF_MEMORY if the weights do not fit into
    #: free memory, NVLLM_ERR_IO if a file is truncated during the copy.
    READ = "read", 1


class Quantization(Name):
    """How weights that are not quantized yet are quantized while an engine opens."""

    #: Not at all: weights keep the form of their files.
    NONE = "none", 0
    #: To 8 bits, with a scale for each group of 128, 64 or 32 weights: the largest that divides the width of a matrix.
    #: About half the bytes of 16-bit weights; completions rarely differ.
    INT8 = "int8", 1
    #: To 4 bits, with a scale for each group of 32 weights. About 0.28 of the bytes of 16-bit weights. Weights are
    #: rounded to the nearest code, so that a file that was quantized with calibration data answers better at the same
    #: size.
    INT4 = "int4", 2


class Coding(Name):
    """How the weights of a part of a model are held."""

    #: The model has no such part.
    NONE = "none", 0
    #: IEEE 754, 32 bits.
    F32 = "f32", 1
    #: IEEE 754, 16 bits.
    F16 = "f16", 2
    #: bfloat16.
    BF16 = "bf16", 3
    #: Integers of 8 bits with scales.
    INT8 = "int8", 4
    #: Integers of 4 bits with scales.
    INT4 = "int4", 5
    #: E4M3 floating point of 8 bits with scales.
    FP8 = "fp8", 6
    #: E2M1 floating point of 4 bits with scales.
    FP4 = "fp4", 7
    #: A block type of GGUF.
    Q8_0 = "q8_0", 8
    #: A block type of GGUF.
    Q4_0 = "q4_0", 9
    #: A block type of GGUF.
    Q4_1 = "q4_1", 10
    #: A block type of GGUF.
    Q5_0 = "q5_0", 11
    #: A block type of GGUF.
    Q5_1 = "q5_1", 12
    #: A block type of GGUF.
    Q4_K = "q4_k", 13
    #: A block type of GGUF.
    Q5_K = "q5_k", 14
    #: A block type of GGUF.
    Q6_K = "q6_k", 15
    #: A block type of GGUF.
    IQ4_NL = "iq4_nl", 16
    #: A block type of GGUF.
    IQ4_XS = "iq4_xs", 17
    #: A block type of GGUF.
    Q2_K = "q2_k", 18
    #: A block type of GGUF.
    Q3_K = "q3_k", 19
    #: A block type of GGUF.
    MXFP4 = "mxfp4", 20
    #: A block type of GGUF.
    IQ2_XXS = "iq2_xxs", 21
    #: A block type of GGUF.
    IQ2_XS = "iq2_xs", 22
    #: A block type of GGUF.
    IQ2_S = "iq2_s", 23
    #: A block type of GGUF.
    IQ3_XXS = "iq3_xxs", 24
    #: A block type of GGUF.
    IQ3_S = "iq3_s", 25
    #: A block type of GGUF.
    IQ1_S = "iq1_s", 26
    #: A block type of GGUF.
    IQ1_M = "iq1_m", 27
    #: A block type of GGUF.
    TQ1_0 = "tq1_0", 28
    #: A block type of GGUF.
    TQ2_0 = "tq2_0", 29


class FileKind(IntEnum):
    """Where the bytes of a file are."""

    #: In memory: size bytes from data.
    MEMORY = 0
    #: In an open file: size bytes from byte offset of the file of descriptor.
    RANGE = 1


class Pooling(Name):
    """How the final hidden states of a prompt, after the model's last norm, become an embedding. A classifier takes NVLLM_POOLING_AUTO alone."""

    #: No embedding: the request generates.
    NONE = "none", 0
    #: The hidden state of the last token.
    LAST = "last", 1
    #: The mean of the hidden states of all tokens. Such a request does not use the prefix cache, which holds no hidden
    #: states.
    MEAN = "mean", 2
    #: The hidden state of the first token. Only for encoders.
    CLS = "cls", 3
    #: As the model's folder says, for sentence-transformers or in the config of a classifier: one of those above, then
    #: the layers and the normalization that the folder names. A classifier gives scores instead of an embedding.
    #: Refused where the folder says nothing.
    AUTO = "auto", 4


class EarlyStopping(Name):
    """When a beam search ends once it has as many results as beams."""

    #: When the best beam, at its current length, cannot rank above the worst result. As in transformers with False.
    HEURISTIC = "heuristic", 0
    #: Immediately. As in transformers with True.
    AT_ONCE = "at_once", 1
    #: When no beam can rank above the worst result at any length. As in transformers with "never".
    NEVER = "never", 2


class StructureKind(Name):
    """Kinds of structured output."""

    #: None: the completion is unconstrained.
    NONE = "none", 0
    #: A JSON schema, which the completion satisfies. {} accepts any JSON.
    JSON_SCHEMA = "json_schema", 1
    #: A regular expression in the syntax of Rust, which matches the whole completion.
    REGEX = "regex", 2
    #: A context-free grammar in llguidance's dialect of Lark. Its first rule is named start.
    LARK = "lark", 3


class ToolChoice(Name):
    """Which tools a completion calls."""

    #: The model decides.
    AUTO = "auto", 0
    #: None. The chat template gets no tools.
    NONE = "none", 1
    #: At least one.
    REQUIRED = "required", 2
    #: The one that tool_name names.
    NAMED = "named", 3


class Finish(Name):
    """Why a completion ended."""

    #: It has not ended.
    NONE = "none", 0
    #: An EOS token, a stop token or a stop string.
    STOP = "stop", 1
    #: max_tokens, max_model_len, or the size of the KV cache.
    LENGTH = "length", 2
    #: nvllm_cancel, or a callback.
    CANCELLED = "cancelled", 3
    #: An error: see status and error_message.
    ERROR = "error", 4
    #: max_wait_us: it never ran.
    EXPIRED = "expired", 5


class TokenizeFlags(IntEnum):
    """Flags of nvllm_tokenize and nvllm_detokenize."""

    #: Add the tokens that begin and end a text, as the model's tokenizer does. No effect in nvllm_detokenize.
    ADD_SPECIAL = 1
    #: Parse the spelling of a special token, such as <|im_end|>, as that token; nvllm_detokenize spells it out. Without
    #: this flag the spelling stays text, so that a user's text cannot forge a turn, and nvllm_detokenize omits special
    #: tokens.
    PARSE_SPECIAL = 2


class AnswerEventKind(Name):
    """Kinds of events."""

    #: A further piece of the content, which is for the user.
    CONTENT = "content", 1
    #: A further piece of the reasoning.
    REASONING = "reasoning", 2
    #: A tool call begins. The text is the name of the tool.
    TOOL_CALL_BEGIN = "tool_call_begin", 3
    #: A further piece of the arguments of a call. All pieces of one call together are a JSON object.
    TOOL_CALL_ARGUMENTS = "tool_call_arguments", 4
    #: A tool call is complete. The text is the id that the model gave to it, in most cases none.
    TOOL_CALL_END = "tool_call_end", 5
    #: A call that has begun cannot be read, and is none. The text says why. What the model has written follows as
    #: content.
    TOOL_CALL_BROKEN = "tool_call_broken", 6

nvllm_log_fn = CFUNCTYPE(None, c_int32, c_char_p, c_size_t, c_void_p)
nvllm_progress_fn = CFUNCTYPE(c_int32, c_float, c_void_p)


class nvllm_error(Structure):
    _fields_ = [
        ("status", c_int32),
        ("native_code", c_int32),
        ("message", c_char * 504),
    ]


class nvllm_engine_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("model_path", c_char_p),
        ("device", c_int32),
        ("device_index", c_int32),
        ("dtype", c_int32),
        ("num_threads", c_uint32),
        ("max_model_len", c_uint32),
        ("max_num_seqs", c_uint32),
        ("max_batched_tokens", c_uint32),
        ("max_queue", c_uint32),
        ("kv_block_size", c_uint32),
        ("enable_prefix_cache", c_uint32),
        ("kv_cache_bytes", c_uint64),
        ("memory_utilization", c_float),
        ("tensor_parallel_size", c_uint32),
        ("enforce_eager", c_uint32),
        ("batch_invariant", c_uint32),
        ("seed", c_uint64),
        ("progress", nvllm_progress_fn),
        ("progress_user_data", c_void_p),
        ("load_mode", c_int32),
        ("device_indices", POINTER(c_int32)),
        ("num_device_indices", c_uint32),
        ("num_processes", c_uint32),
        ("process_index", c_uint32),
        ("peer_timeout_ms", c_uint32),
        ("rendezvous", c_char_p),
        ("kv_cache_dtype", c_int32),
        ("quantization", c_int32),
        ("gpu_memory_bytes", c_uint64),
        ("state_checkpoint_interval", c_uint64),
        ("host_expert_layers", c_int32),
        ("expert_statistics", c_uint32),
        ("expert_parallel", c_uint32),
    ]


class nvllm_model_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("vocab_size", c_uint32),
        ("max_model_len", c_uint32),
        ("num_layers", c_uint32),
        ("hidden_size", c_uint32),
        ("bos_token", c_uint32),
        ("eos_token", c_uint32),
        ("num_parameters", c_uint64),
        ("weight_bytes", c_uint64),
        ("kv_cache_bytes", c_uint64),
        ("num_kv_blocks", c_uint32),
        ("kv_block_size", c_uint32),
        ("device", c_int32),
        ("device_index", c_int32),
        ("max_num_seqs", c_uint32),
        ("max_batched_tokens", c_uint32),
        ("tensor_parallel_size", c_uint32),
        ("process_index", c_uint32),
        ("kv_cache_dtype", c_int32),
        ("kv_token_bytes", c_uint32),
        ("embedding_coding", c_int32),
        ("attention_coding", c_int32),
        ("feed_forward_coding", c_int32),
        ("head_coding", c_int32),
        ("embedding_bytes", c_uint64),
        ("attention_bytes", c_uint64),
        ("feed_forward_bytes", c_uint64),
        ("head_bytes", c_uint64),
        ("embedding_size", c_uint32),
        ("num_labels", c_uint32),
        ("host_expert_bytes", c_uint64),
        ("host_expert_layers", c_uint32),
        ("scores_tokens", c_uint32),
    ]


class nvllm_model_file(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("kind", c_int32),
        ("reserved", c_uint32),
        ("data", c_void_p),
        ("descriptor", c_int64),
        ("offset", c_uint64),
        ("size", c_uint64),
    ]


class nvllm_explain_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("gpu", c_char_p),
        ("rows", c_uint32),
        ("tokens", c_uint32),
        ("context_len", c_uint32),
        ("layer", c_uint32),
    ]


class nvllm_request_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("tag", c_uint64),
        ("max_tokens", c_uint32),
        ("min_tokens", c_uint32),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("top_k", c_uint32),
        ("repetition_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("seed", c_uint64),
        ("ignore_eos", c_uint32),
        ("priority", c_int32),
        ("stop", POINTER(c_char_p)),
        ("num_stop", c_size_t),
        ("stop_tokens", POINTER(c_uint32)),
        ("num_stop_tokens", c_size_t),
        ("bias_tokens", POINTER(c_uint32)),
        ("bias_values", POINTER(c_float)),
        ("num_bias", c_size_t),
        ("num_logprobs", c_uint32),
        ("n", c_uint32),
        ("beam_width", c_uint32),
        ("length_penalty", c_float),
        ("include_stop", c_uint32),
        ("max_wait_us", c_uint64),
        ("cache_salt", c_uint64),
        ("pin_prompt", c_uint32),
        ("pooling", c_uint32),
        ("num_prompt_logprobs", c_uint32),
        ("early_stopping", c_uint32),
        ("structure", c_char_p),
        ("structure_kind", c_int32),
        ("reserved", c_uint32),
        ("tools", c_char_p),
        ("tool_name", c_char_p),
        ("tool_choice", c_int32),
        ("parallel_tool_calls", c_uint32),
        ("strict_tools", c_uint32),
        ("keep_special_tokens", c_uint32),
        ("max_thinking_tokens", c_uint32),
        ("reserved_too", c_uint32),
        ("dry_sequence_breakers", POINTER(c_char_p)),
        ("num_dry_sequence_breakers", c_size_t),
        ("dry_multiplier", c_float),
        ("dry_base", c_float),
        ("dry_allowed_length", c_uint32),
        ("dry_penalty_last_n", c_uint32),
        ("top_n_sigma", c_float),
        ("xtc_probability", c_float),
        ("xtc_threshold", c_float),
        ("reserved_last", c_uint32),
        ("embedding_dimensions", c_uint32),
        ("reserved_of_dimensions", c_uint32),
        ("score_tokens", POINTER(c_uint32)),
        ("num_score_tokens", c_size_t),
        ("truncate_prompt_tokens", c_uint32),
        ("reserved_of_truncation", c_uint32),
    ]


class nvllm_message(Structure):
    _fields_ = [
        ("role", c_char_p),
        ("content", c_char_p),
    ]


class nvllm_step_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("num_outputs", c_uint32),
        ("num_running", c_uint32),
        ("num_waiting", c_uint32),
        ("num_iterations", c_uint32),
        ("in_flight", c_uint32),
        ("prefill_tokens", c_uint32),
        ("decode_tokens", c_uint32),
        ("elapsed_us", c_uint64),
    ]


class nvllm_output(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("request_id", c_uint64),
        ("tag", c_uint64),
        ("token_ids", POINTER(c_uint32)),
        ("num_token_ids", c_size_t),
        ("text", POINTER(c_char)),
        ("text_len", c_size_t),
        ("index", c_uint32),
        ("finish_reason", c_int32),
        ("status", c_int32),
        ("prompt_tokens", c_uint32),
        ("cached_tokens", c_uint32),
        ("completion_tokens", c_uint32),
        ("time_to_first_token_us", c_uint64),
        ("logprobs", POINTER(c_float)),
        ("top_tokens", POINTER(c_uint32)),
        ("top_logprobs", POINTER(c_float)),
        ("cumulative_logprob", c_float),
        ("error_message", c_char_p),
        ("embedding", POINTER(c_float)),
        ("embedding_len", c_size_t),
        ("num_logprobs", c_uint32),
        ("num_prompt_logprobs", c_uint32),
        ("prompt_logprobs", POINTER(c_float)),
        ("prompt_top_tokens", POINTER(c_uint32)),
        ("prompt_top_logprobs", POINTER(c_float)),
        ("score", c_float),
        ("reserved", c_uint32),
        ("reasoning_tokens", c_uint32),
        ("scores", POINTER(c_float)),
        ("num_scores", c_size_t),
    ]


class nvllm_progress(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("finished", c_size_t),
        ("total", c_size_t),
        ("prefill_tokens_per_s", c_double),
        ("decode_tokens_per_s", c_double),
        ("elapsed_us", c_uint64),
        ("prompt_tokens", c_uint64),
        ("generated_tokens", c_uint64),
    ]


class nvllm_prompt(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("text", POINTER(c_char)),
        ("text_len", c_size_t),
        ("tokens", POINTER(c_uint32)),
        ("num_tokens", c_size_t),
        ("messages", POINTER(nvllm_message)),
        ("num_messages", c_size_t),
        ("template_options", c_char_p),
        ("options", POINTER(nvllm_request_options)),
    ]


class nvllm_answer_event(Structure):
    _fields_ = [
        ("kind", c_int32),
        ("call_index", c_uint32),
        ("text", POINTER(c_char)),
        ("text_len", c_size_t),
    ]


class nvllm_stats(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("steps", c_uint64),
        ("prompt_tokens", c_uint64),
        ("cached_tokens", c_uint64),
        ("generated_tokens", c_uint64),
        ("preemptions", c_uint64),
        ("step_time_us", c_uint64),
        ("running", c_uint32),
        ("waiting", c_uint32),
        ("kv_blocks_total", c_uint32),
        ("kv_blocks_used", c_uint32),
        ("log_messages_dropped", c_uint64),
        ("prefix_cache_queries", c_uint64),
        ("prefix_cache_hits", c_uint64),
        ("prefix_cache_evictions", c_uint64),
        ("kv_blocks_pinned", c_uint32),
        ("gpu_memory_bytes", c_uint64),
        ("kv_cache_bytes_mapped", c_uint64),
        ("prefix_cache_recomputed", c_uint64),
    ]


nvllm_output_fn = CFUNCTYPE(c_int32, POINTER(nvllm_output), c_void_p)
nvllm_generate_progress_fn = CFUNCTYPE(c_int32, POINTER(nvllm_progress), c_void_p)

#: Name, result and parameters of each function.
FUNCTIONS = [
    ("nvllm_status_name", c_char_p, [c_int32]),
    ("nvllm_version", c_char_p, []),
    ("nvllm_abi_version", c_uint32, []),
    ("nvllm_build_info", c_char_p, []),
    ("nvllm_set_log_callback", None, [nvllm_log_fn, c_void_p, c_int32]),
    ("nvllm_engine_config_init", None, [POINTER(nvllm_engine_config), c_size_t]),
    ("nvllm_engine_new", c_int32, [POINTER(nvllm_engine_config), POINTER(c_void_p), POINTER(nvllm_error)]),
    ("nvllm_engine_free", None, [c_void_p]),
    ("nvllm_model_info_init", None, [POINTER(nvllm_model_info), c_size_t]),
    ("nvllm_engine_model_info", c_int32, [c_void_p, POINTER(nvllm_model_info), POINTER(nvllm_error)]),
    ("nvllm_model_file_init", None, [POINTER(nvllm_model_file), c_size_t]),
    ("nvllm_engine_new_from", c_int32, [POINTER(nvllm_engine_config), POINTER(nvllm_model_file), c_size_t, POINTER(c_void_p), POINTER(nvllm_error)]),
    ("nvllm_quantize_folder", c_int32, [c_char_p, c_char_p, c_int32, nvllm_progress_fn, c_void_p, POINTER(nvllm_error)]),
    ("nvllm_explain_options_init", None, [POINTER(nvllm_explain_options), c_size_t]),
    ("nvllm_explain", c_int32, [POINTER(nvllm_engine_config), POINTER(nvllm_explain_options), c_char_p, c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_request_options_init", None, [POINTER(nvllm_request_options), c_size_t]),
    ("nvllm_default_options", c_int32, [c_void_p, POINTER(nvllm_request_options), POINTER(nvllm_error)]),
    ("nvllm_add_request", c_int32, [c_void_p, c_char_p, c_size_t, POINTER(nvllm_request_options), POINTER(c_uint64), POINTER(nvllm_error)]),
    ("nvllm_add_request_tokens", c_int32, [c_void_p, POINTER(c_uint32), c_size_t, POINTER(nvllm_request_options), POINTER(c_uint64), POINTER(nvllm_error)]),
    ("nvllm_cancel", c_int32, [c_void_p, c_uint64]),
    ("nvllm_cancel_with_error", c_int32, [c_void_p, c_uint64, POINTER(nvllm_error)]),
    ("nvllm_add_chat", c_int32, [c_void_p, POINTER(nvllm_message), c_size_t, c_char_p, POINTER(nvllm_request_options), POINTER(c_uint64), POINTER(nvllm_error)]),
    ("nvllm_apply_chat_template_messages", c_int32, [c_void_p, POINTER(nvllm_message), c_size_t, c_char_p, c_char_p, c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_step_result_init", None, [POINTER(nvllm_step_result), c_size_t]),
    ("nvllm_step", c_int32, [c_void_p, c_uint64, POINTER(nvllm_step_result), POINTER(nvllm_error)]),
    ("nvllm_wait", c_int32, [c_void_p, c_uint64, POINTER(nvllm_error)]),
    ("nvllm_wake", c_int32, [c_void_p, POINTER(nvllm_error)]),
    ("nvllm_is_finished", c_int32, [c_void_p]),
    ("nvllm_output_init", None, [POINTER(nvllm_output), c_size_t]),
    ("nvllm_poll_output", c_int32, [c_void_p, POINTER(nvllm_output), POINTER(nvllm_error)]),
    ("nvllm_set_output_callback", c_int32, [c_void_p, nvllm_output_fn, c_void_p, POINTER(nvllm_error)]),
    ("nvllm_generate", c_int32, [c_void_p, POINTER(c_char_p), POINTER(c_size_t), c_size_t, POINTER(POINTER(nvllm_request_options)), c_size_t, nvllm_generate_progress_fn, c_void_p, POINTER(c_void_p), POINTER(nvllm_error)]),
    ("nvllm_generate_tokens", c_int32, [c_void_p, POINTER(POINTER(c_uint32)), POINTER(c_size_t), c_size_t, POINTER(POINTER(nvllm_request_options)), c_size_t, nvllm_generate_progress_fn, c_void_p, POINTER(c_void_p), POINTER(nvllm_error)]),
    ("nvllm_prompt_init", None, [POINTER(nvllm_prompt), c_size_t]),
    ("nvllm_generate_prompts", c_int32, [c_void_p, POINTER(nvllm_prompt), c_size_t, nvllm_generate_progress_fn, c_void_p, POINTER(c_void_p), POINTER(nvllm_error)]),
    ("nvllm_result_count", c_size_t, [c_void_p]),
    ("nvllm_result_get", c_int32, [c_void_p, c_size_t, POINTER(nvllm_output)]),
    ("nvllm_result_get_with_error", c_int32, [c_void_p, c_size_t, POINTER(nvllm_output), POINTER(nvllm_error)]),
    ("nvllm_result_free", None, [c_void_p]),
    ("nvllm_score", c_int32, [c_void_p, POINTER(c_char_p), POINTER(c_char_p), c_size_t, POINTER(POINTER(nvllm_request_options)), c_size_t, nvllm_generate_progress_fn, c_void_p, POINTER(c_void_p), POINTER(nvllm_error)]),
    ("nvllm_add_request_pair", c_int32, [c_void_p, c_char_p, c_char_p, POINTER(nvllm_request_options), POINTER(c_uint64), POINTER(nvllm_error)]),
    ("nvllm_label", c_int32, [c_void_p, c_size_t, c_char_p, c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_named_prompt", c_int32, [c_void_p, c_char_p, c_char_p, c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_reset_prefix_cache", c_int32, [c_void_p, POINTER(nvllm_error)]),
    ("nvllm_trim", c_int32, [c_void_p, POINTER(c_uint64), POINTER(nvllm_error)]),
    ("nvllm_release_prefix", c_int32, [c_void_p, c_uint64]),
    ("nvllm_release_prefix_with_error", c_int32, [c_void_p, c_uint64, POINTER(nvllm_error)]),
    ("nvllm_save_prefix", c_int32, [c_void_p, POINTER(c_uint32), c_size_t, c_uint64, POINTER(c_uint8), c_size_t, POINTER(c_size_t), POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_restore_prefix", c_int32, [c_void_p, POINTER(c_uint8), c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_fork", c_int32, [c_void_p, c_uint64, c_uint32, POINTER(nvllm_request_options), POINTER(c_uint64), POINTER(nvllm_error)]),
    ("nvllm_tokenize", c_int32, [c_void_p, c_char_p, c_size_t, c_uint32, POINTER(c_uint32), c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_detokenize", c_int32, [c_void_p, POINTER(c_uint32), c_size_t, c_uint32, c_char_p, c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_apply_chat_template", c_int32, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_answer_parser_new", c_int32, [c_void_p, c_char_p, c_size_t, c_char_p, POINTER(c_void_p), POINTER(nvllm_error)]),
    ("nvllm_answer_parser_feed", c_int32, [c_void_p, c_char_p, c_size_t, POINTER(POINTER(nvllm_answer_event)), POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_answer_parser_finish", c_int32, [c_void_p, POINTER(POINTER(nvllm_answer_event)), POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_answer_parser_message", c_int32, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_answer_parser_free", None, [c_void_p]),
    ("nvllm_stats_init", None, [POINTER(nvllm_stats), c_size_t]),
    ("nvllm_get_stats", c_int32, [c_void_p, POINTER(nvllm_stats), POINTER(nvllm_error)]),
    ("nvllm_expert_tokens", c_int32, [c_void_p, c_size_t, POINTER(c_uint64), c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
    ("nvllm_metrics_text", c_int32, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t), POINTER(nvllm_error)]),
]


class EngineConfig(TypedDict, total=False):
    """Options of an engine."""

    #: NVLLM_DEVICE_*: where the engine computes. Default NVLLM_DEVICE_AUTO.
    device: Device | str | None
    #: Index of the GPU among those that the driver reports. 0 on the CPU. Default 0.
    device_index: int | None
    #: NVLLM_DTYPE_*: data type of the weights, and of the KV cache unless kv_cache_dtype says otherwise. Default
    #: NVLLM_DTYPE_AUTO. Quantized weights stay quantized. On a CPU, NVLLM_DTYPE_F32 computes with their exact values
    #: and activations in f32; with any other type, activations are rounded where the processor multiplies integers or
    #: bf16 faster: see docs/performance.md.
    dtype: DType | str | None
    #: Number of CPU threads that compute, the calling thread included. Default 0: one per core.
    num_threads: int | None
    #: Maximum length of a sequence in tokens, prompt and completion together. Default 0: the model's maximum, but at
    #: most 1048576.
    max_model_len: int | None
    #: Maximum number of sequences that run at once; others wait. Default 0: by device.
    max_num_seqs: int | None
    #: Maximum number of new tokens per forward pass. Default 0: by device.
    max_batched_tokens: int | None
    #: Maximum number of waiting requests, where each of their completions counts. A request whose n is greater can
    #: never be queued, and is refused. Default 0: NVLLM_MAX_QUEUED_COMPLETIONS.
    max_queue: int | None
    #: Tokens per KV block: a power of two, at most 1024. Default 0: by device.
    kv_block_size: int | None
    #: 0 or 1: whether prompts share the KV blocks of common prefixes. Default 1.
    enable_prefix_cache: bool | None
    #: Size of the KV cache in bytes, that of all ranks together. Default 0: determined by memory_utilization.
    kv_cache_bytes: int | None
    #: Fraction of the device's memory (on the CPU: of the free memory) that this engine may use, above 0 and at most 1.
    #: Default 0: by device (CPU: 0.5, CUDA: 0.9).
    memory_utilization: float | None
    #: Number of ranks that compute the model together: GPUs, or on the CPU groups of threads, each bound to one NUMA
    #: node where there are several. At most the number of query heads of the model. Default 1. On the CPU, every number
    #: of ranks gives the same bits; on CUDA if batch_invariant is 1.
    tensor_parallel_size: int | None
    #: 0 or 1: whether CUDA graphs are disabled. No effect on the CPU. Default 0. Where the engine finds no CUDA context
    #: of its GPU in the process, graphs of more than 8 sequences may be recorded in a later step, when a batch of their
    #: size first comes. While a graph is recorded, CUDA refuses other threads to wait for the whole device
    #: (cudaDeviceSynchronize). A program that uses CUDA itself should begin to before it opens an engine, which then
    #: records all graphs while it opens.
    enforce_eager: bool | None
    #: 0 or 1: whether the logits of a request are the same bit for bit whatever else is in the batch, and on however
    #: many GPUs of one kind. On the CPU they always are; on CUDA it selects slower kernels. Default 0.
    batch_invariant: bool | None
    #: Seed of the requests that have none. Default 0: drawn from the system.
    seed: int | None
    #: NVLLM_LOAD_*: how the weights are loaded into memory. Default NVLLM_LOAD_MAP.
    load_mode: LoadMode | str | None
    #: The GPU of each rank of this process, as device_index counts them, each at most once. NULL takes device_index and
    #: those after it.
    device_indices: Sequence[int] | None
    #: Number of processes that compute the model together, each opened with the same options except process_index and
    #: those of its devices and threads. tensor_parallel_size counts the ranks of all of them, and is a multiple. GPUs
    #: of several processes exchange through NCCL 2.18 or later, which must be installed: NVLLM_ERR_UNSUPPORTED without
    #: it. Default 0: this one alone.
    num_processes: int | None
    #: Which of them this is, from 0. Process 0 leads: requests go to it alone. The others are stepped to compute what
    #: process 0 schedules, and their functions about requests, completions and cached prefixes return
    #: NVLLM_ERR_UNSUPPORTED. Default 0.
    process_index: int | None
    #: Time in milliseconds that another rank or process may be silent, or that data which it has sent may be missing,
    #: before the engine ends with an error. At least 100 milliseconds with several processes. Default 0: 10000.
    peer_timeout_ms: int | None
    #: Where process 0 listens and the others find it: "host:port", or "unix:" and an absolute path, which Windows
    #: refuses. The connections are neither encrypted nor authenticated: use a private network. Required with several
    #: processes.
    rendezvous: str | None
    #: NVLLM_KV_CACHE_*: how keys and values are stored in the KV cache. A prefix can be restored only by an engine with
    #: the value of the one that saved it. Default NVLLM_KV_CACHE_AUTO.
    kv_cache_dtype: KvCacheDtype | str | None
    #: NVLLM_QUANTIZATION_*: how weights that are not quantized yet are quantized while the engine opens, embedding
    #: table and head included. Matrices whose width is no multiple of 32 stay as they are, with a warning in the log.
    #: Default NVLLM_QUANTIZATION_NONE.
    quantization: Quantization | str | None
    #: Maximum number of bytes that this engine takes on each of its GPUs: weights, KV cache, graphs, buffers, and the
    #: CUDA context if the process has none there yet. The KV cache gets what the rest leaves; memory_utilization
    #: remains a limit too. What the engine takes is measured with NVIDIA's management library, so that other programs
    #: should not allocate on the GPU while it opens; without that library the context is assumed to take 640 MiB.
    #: NVLLM_ERR_OUT_OF_MEMORY if the budget does not hold the weights and one KV block, or not kv_cache_bytes. No
    #: effect on the CPU. Default 0: no such limit.
    gpu_memory_bytes: int | None
    #: For models with recurrent layers: the recurrent state is kept in the prefix cache after each multiple of this
    #: number of tokens, and at the end of each prompt. Later requests with the same beginning continue from there.
    #: Rounded up to whole KV blocks. Fewer tokens are computed again with a smaller number, and more states are made.
    #: Default 0: 1024.
    state_checkpoint_interval: int | None
    #: For models with experts on a GPU: number of layers whose experts stay in host memory, the last ones that have
    #: any. The CPU computes them with num_threads threads, by default one less than there are cores. A number for which
    #: the GPU has too little memory is refused with NVLLM_ERR_OUT_OF_MEMORY, and the message says which one is
    #: sufficient. Not with several ranks. Default 0: as many as the GPU has no memory for. -1: none.
    host_expert_layers: int | None
    #: 0 or 1: whether nvllm_expert_tokens counts how many tokens each expert of a model with experts is chosen for.
    #: Default 0, because counting is one more kernel per layer on a GPU.
    expert_statistics: bool | None
    #: 0 or 1: with several ranks, whether each rank holds some experts of every layer whole. With 0, each rank holds a
    #: share of the width of every expert. With 1, a rank computes the tokens of its own experts, and there must be at
    #: least as many experts as ranks. Refused for a model without experts. The results are those of 0, bit for bit, on
    #: the CPU and with batch_invariant. No effect with one rank. Default 0.
    expert_parallel: bool | None


class RequestOptions(TypedDict, total=False):
    """Options of a request, by their names in the C API."""

    #: Returned in every output: an index, a pointer, a handle. Default 0.
    tag: int | None
    #: Number of tokens before which no EOS token, stop token or end of a stop string may occur. Default 0.
    min_tokens: int | None
    #: Sampling temperature. Default 0: always the most likely token. Greater values increase randomness.
    temperature: float | None
    #: Nucleus sampling: sample from the most likely tokens whose probabilities sum to this value, above 0 and at most
    #: 1. Default 1: all tokens.
    top_p: float | None
    #: Drop tokens whose probability is below this fraction of that of the most likely one, from 0 to 1. Default 0: drop
    #: none.
    min_p: float | None
    #: Sample from this many of the most likely tokens. Default 0: all tokens.
    top_k: int | None
    #: Divides the positive logits, and multiplies the negative logits, of tokens that occur in the prompt or the
    #: completion. A finite number above 0, where more than 1 discourages repetition. Default 1: off. As in
    #: transformers.
    repetition_penalty: float | None
    #: Subtracted from the logit of each token that occurs in the completion. Any finite number. Default 0. As in the
    #: OpenAI API.
    presence_penalty: float | None
    #: Subtracted from the logit of a token once per occurrence in the completion. Any finite number. Default 0. As in
    #: the OpenAI API.
    frequency_penalty: float | None
    #: Seed of the request's own random stream: the same seed, prompt and options give the same completion. Default 0:
    #: derived from the engine's seed and the request's id.
    seed: int | None
    #: 0 or 1: whether EOS tokens are treated as ordinary tokens. Default 0.
    ignore_eos: bool | None
    #: Requests with a higher priority run first. Default 0.
    priority: int | None
    #: Stop strings. The completion ends when its text contains one; the text ends before the first one to be complete,
    #: even if that is inside a token. The tokens that spell the string stay in the output. Needs a tokenizer.
    stop: Sequence[str] | None
    #: Tokens that end the completion, in addition to EOS.
    stop_tokens: Sequence[int] | None
    #: If not 0, outputs contain the log-probability of each token, and those of this many most likely tokens, at most
    #: 64. They are the model's own, before penalties, biases, temperature and filters. Default 0.
    num_logprobs: int | None
    #: Number of completions of this prompt, from 1 to NVLLM_MAX_COMPLETIONS. Default 1. They share the KV blocks of the
    #: prompt, which is computed once. Each has its own outputs, which differ by index. Completion i samples as a
    #: request with seed + i does.
    n: int | None
    #: Number of beams of a beam search. Default 0: sampling. From 2, the n best results are returned as completions 0
    #: to n-1, best first, all at the end. As num_beams in transformers. At most 32, and at most 64 / (1 + number of EOS
    #: tokens). Cannot be combined with temperature, penalties, biases, stop strings or num_logprobs.
    beam_width: int | None
    #: Beam search: results are ranked by the sum of their log-probabilities divided by their length to the power of
    #: this value. More than 0 favours long results. Any finite number. Default 1.
    length_penalty: float | None
    #: 0 or 1: whether the output includes the token that stopped the completion, or the stop string in its text.
    #: Default 0.
    include_stop: bool | None
    #: Time in microseconds that the request may wait until it first runs. The first step after that ends it with
    #: NVLLM_FINISH_EXPIRED. Default 0: no limit.
    max_wait_us: int | None
    #: Requests with different salts share no KV blocks, so that no tenant can infer another one's prompts from timing.
    #: Default 0, which is a salt like any other.
    cache_salt: int | None
    #: 0 or 1: whether the full KV blocks of the prompt stay in the prefix cache after the request has ended, until
    #: nvllm_release_prefix. Default 0. Pinned blocks may take at most the KV cache minus what one sequence of
    #: max_model_len tokens needs, so that no request waits forever; beyond that the request is refused with
    #: NVLLM_ERR_OUT_OF_MEMORY.
    pin_prompt: bool | None
    #: NVLLM_POOLING_*: how the prompt becomes an embedding. Default NVLLM_POOLING_NONE. With any other value the
    #: request generates nothing, and its only output has the embedding and NVLLM_FINISH_STOP; n must be 1, beam_width
    #: must be 0, and options of generation are ignored.
    pooling: Pooling | str | None
    #: As num_logprobs, for the prompt. The output with the first token contains them, that of completion 0 if n is more
    #: than 1. The whole prompt is then computed without the prefix cache, with at most max_num_seqs + 64 of its tokens
    #: per pass. Default 0.
    num_prompt_logprobs: int | None
    #: NVLLM_EARLY_STOPPING_*: when a beam search ends once it has as many results as beams. Default
    #: NVLLM_EARLY_STOPPING_HEURISTIC.
    early_stopping: EarlyStopping | str | None
    #: The schema, expression or grammar that constrains the completion, of the kind structure_kind, at most
    #: NVLLM_MAX_STRUCTURE_BYTES. If it is refused, the message says why. Compiled structures are cached.
    structure: str | None
    #: NVLLM_STRUCTURE_*: what structure is. Default NVLLM_STRUCTURE_NONE. The other options apply to the tokens that
    #: the structure allows. The structure may end the completion before min_tokens if nothing can follow; stop strings,
    #: stop tokens and max_tokens may end it before the structure is complete. A completion that cannot continue ends
    #: with NVLLM_FINISH_ERROR. Needs a tokenizer.
    structure_kind: StructureKind | str | None
    #: Tools that the model may call: a JSON array of {"type": "function", "function": {"name", "description",
    #: "parameters"}}, as in the OpenAI API, or of the inner objects, at most NVLLM_MAX_MESSAGES_BYTES. Where messages
    #: are rendered with these options, as by nvllm_add_chat, the chat template gets them as "tools", unless its options
    #: have "tools". To read the calls, set keep_special_tokens and use a nvllm_answer_parser. Needs a tokenizer.
    tools: str | None
    #: The name of the tool that is called with NVLLM_TOOL_CHOICE_NAMED.
    tool_name: str | None
    #: NVLLM_TOOL_CHOICE_*: which of tools the completion calls. Default NVLLM_TOOL_CHOICE_AUTO.
    tool_choice: ToolChoice | str | None
    #: 0 or 1: whether the completion may have more than one call. Default 1.
    parallel_tool_calls: bool | None
    #: 0 or 1: whether the arguments of a call follow the schema of its tool; with 0 they are any JSON object. A tool
    #: with a "strict" of its own decides for itself. Default 1.
    strict_tools: bool | None
    #: 0 or 1: whether the text of outputs has special tokens, spelled out. A nvllm_answer_parser needs them. Default 0.
    keep_special_tokens: bool | None
    #: Number of tokens of reasoning after which its end marker is forced: 0 ends it at once. Default UINT32_MAX: no
    #: limit, and reasoning_tokens of outputs is 0. Tokens of the markers do not count. A model whose answers have no
    #: reasoning is not limited. Cannot be combined with structure_kind or beam_width. Needs a tokenizer.
    max_thinking_tokens: int | None
    #: DRY: strings across which no repetition extends. Default NULL: newline, colon, quotation mark and asterisk, as in
    #: llama.cpp; an empty list that is not NULL is none. A list needs a tokenizer. Without one, or with one that does
    #: not decode token by token, the default has no effect.
    dry_sequence_breakers: Sequence[str] | None
    #: DRY, a penalty of repetitions. If the last n tokens occurred before, dry_multiplier * dry_base^(n -
    #: dry_allowed_length) is subtracted from the logit of the token that followed them there. The greatest such n
    #: counts, if it is at least dry_allowed_length. A finite number, not negative. Default 0: off. Applies after the
    #: other penalties and the biases, before temperature and filters. As in llama.cpp; the formula is that of
    #: github.com/oobabooga/text-generation-webui/pull/5677. The request waits for each token before its next pass is
    #: scheduled, as one with a structure does. Cannot be combined with beam_width.
    dry_multiplier: float | None
    #: DRY: the base, a finite number of at least 1. Default 1.75.
    dry_base: float | None
    #: DRY: the length from which on a repetition is penalized, at least 1. Default 2.
    dry_allowed_length: int | None
    #: DRY: number of last tokens of prompt and completion that are looked at, at least 1. Default UINT32_MAX: all.
    dry_penalty_last_n: int | None
    #: Top-n-sigma: drop tokens whose logit is more than this many standard deviations below the greatest. Any finite
    #: number. Default 0: off, as is less. The deviation is that of all logits that are not excluded, after penalties
    #: and biases; the temperature does not change what is kept. Distances of more than 512 from the greatest logit
    #: count as 512. The filters apply in this order: top_n_sigma, top_k, top_p, min_p, XTC. As in llama.cpp; the
    #: formula is that of arxiv.org/abs/2411.07641.
    top_n_sigma: float | None
    #: XTC: the probability, from 0 to 1, with which a token is sampled without the most likely ones. All tokens with a
    #: probability of at least xtc_threshold are then dropped, except the least likely of them and those that are as
    #: likely. Default 0: never. Drawn from the seed and the position of the token. Probabilities are those that
    #: temperature and other filters leave; llama.cpp applies the temperature later. No effect at temperature 0. The
    #: rule is that of github.com/oobabooga/text-generation-webui/pull/6335.
    xtc_probability: float | None
    #: XTC: the probability from which on tokens are dropped, above 0 and at most 1. Default 0.1. More than 0.5 is off,
    #: because no two tokens reach it.
    xtc_threshold: float | None
    #: The number of leading values of the embedding that are returned, from 1 to all of them, normalized again where
    #: the model normalizes its embeddings: for models that were trained for it (Matryoshka). Default 0: all.
    embedding_dimensions: int | None
    #: Tokens whose probabilities after the prompt are asked for, each once: the request generates nothing. scores of
    #: its output has their probabilities among these tokens alone, which add up to 1, and cumulative_logprob the
    #: logarithm of their sum among all tokens. So a model that answers yes or no ranks texts: see nvllm_score.
    score_tokens: Sequence[int] | None
    #: Cuts a longer prompt to this number of tokens instead of refusing it. Tokens around a text stay, and of a pair
    #: the longer text is cut first. UINT32_MAX: to the most that the model takes, with NVLLM_POOLING_AUTO at most to
    #: max_seq_length of its folder. For requests that generate nothing. Default 0: no prompt is cut.
    truncate_prompt_tokens: int | None
