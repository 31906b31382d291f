// Generated from nanovllm.h by scripts/header.sh. Do not edit: change src/capi, then run make header.

using System;
using System.Runtime.InteropServices;

namespace Nanovllm
{
    /// <summary>The values of nvllm_status.</summary>
    public enum Status
    {
        /// <summary>Success.</summary>
        Ok = 0,
        /// <summary>Nvllm_poll_output: no output is waiting.</summary>
        NoOutput = 1,
        /// <summary>Nvllm_step and nvllm_wait of a follower: process 0 has freed its engine. Free this one.</summary>
        Closed = 2,
        /// <summary>Nvllm_wait: there is nothing to do, and the time is over or nvllm_wake was called.</summary>
        Timeout = 3,
        /// <summary>An argument or an option is invalid. The message names it, its value, and what is
        /// accepted.</summary>
        InvalidArgument = -1,
        /// <summary>The buffer is too small. The required size was stored.</summary>
        BufferTooSmall = -2,
        /// <summary>A [one] function was called while another one ran on the same engine.</summary>
        Busy = -3,
        /// <summary>A bug in the library. Only nvllm_engine_free may still be called on this engine.</summary>
        Panic = -4,
        /// <summary>No live request, pin or cached prefix matches the arguments.</summary>
        NotFound = -5,
        /// <summary>Not enough memory of the host or of the device, not enough KV cache, or no thread could be
        /// created.</summary>
        OutOfMemory = -6,
        /// <summary>A file could not be read. NativeCode is errno, or the value of GetLastError() on Windows.</summary>
        Io = -7,
        /// <summary>The model files are corrupt or of a kind that is not supported.</summary>
        Model = -8,
        /// <summary>A device call failed, or there was no memory for a forward pass. NativeCode is the device's error
        /// code, or 0. Only nvllm_engine_free may still be called on this engine.</summary>
        Device = -9,
        /// <summary>A progress callback cancelled the call, or another thread freed the engine of nvllm_generate or
        /// nvllm_wait.</summary>
        Cancelled = -10,
        /// <summary>Not supported by this build, or not for this model.</summary>
        Unsupported = -11,
        /// <summary>The queue is full, by MaxQueue or NVLLM_MAX_QUEUED_COMPLETIONS. Step, then try again.</summary>
        QueueFull = -12,
        /// <summary>The prompt leaves no room for a completion within MaxModelLen.</summary>
        ContextLength = -13,
        /// <summary>Another process of the engine is gone, was silent for PeerTimeoutMs, or was opened with another
        /// model or other options; the message says which. Only nvllm_engine_free may still be called on this
        /// engine.</summary>
        Peer = -14,
    }

    /// <summary>Severity of a message.</summary>
    public enum LogLevel
    {
        /// <summary>Nothing is logged.</summary>
        Off = 0,
        /// <summary>Something failed.</summary>
        Error = 1,
        /// <summary>Something is unexpected, but work continues.</summary>
        Warn = 2,
        /// <summary>A milestone, such as a loaded model.</summary>
        Info = 3,
        /// <summary>Detail for debugging the library.</summary>
        Debug = 4,
    }

    /// <summary>Where an engine computes.</summary>
    public enum Device
    {
        /// <summary>An NVIDIA GPU if the library has kernels for it and for the model and finds a driver, else the
        /// CPU.</summary>
        Auto = 0,
        /// <summary>Threads of this process.</summary>
        Cpu = 1,
        /// <summary>An NVIDIA GPU.</summary>
        Cuda = 2,
    }

    /// <summary>Data types of weights and KV cache.</summary>
    public enum DType
    {
        /// <summary>The data type of the model's files.</summary>
        Auto = 0,
        /// <summary>IEEE 754, 32 bits.</summary>
        F32 = 1,
        /// <summary>IEEE 754, 16 bits.</summary>
        F16 = 2,
        /// <summary>Bfloat16: the upper 16 bits of an F32.</summary>
        BF16 = 3,
    }

    /// <summary>How keys and values are stored in the KV cache.</summary>
    public enum KvCacheDtype
    {
        /// <summary>In the data type of the weights.</summary>
        Auto = 0,
        /// <summary>As 8-bit integers, with a 16-bit scale per token, layer and KV head for the key, and one for the
        /// value. A head of 128 numbers takes 130 bytes instead of 256. Each number is off by at most 0.4 % of the
        /// greatest one that shares its scale.</summary>
        Int8 = 1,
    }

    /// <summary>How the weights of a model are loaded into memory.</summary>
    public enum LoadMode
    {
        /// <summary>The files are mapped, so that engines and processes share their pages. On the CPU the mapping is
        /// used until the engine is freed, unless dtype asks for a conversion; on CUDA until nvllm_engine_new returns.
        /// If another program writes into a file, the weights change. If a file is truncated, reading a weight beyond
        /// its end raises SIGBUS, which ends the process: replace the files of a model by renaming new ones over them,
        /// or choose LoadMode.Read. Windows refuses to write, truncate, replace or delete a file while it is
        /// mapped.</summary>
        Map = 0,
        /// <summary>The files are copied into memory of the library, so that later changes to them have no effect. The
        /// copy is not shared between processes, and the system cannot evict it. Status.OutOfMemory if the weights do
        /// not fit into free memory, Status.Io if a file is truncated during the copy.</summary>
        Read = 1,
    }

    /// <summary>How weights that are not quantized yet are quantized while an engine opens.</summary>
    public enum Quantization
    {
        /// <summary>Not at all: weights keep the form of their files.</summary>
        None = 0,
        /// <summary>To 8 bits, with a scale for each group of 128, 64 or 32 weights: the largest that divides the width
        /// of a matrix. About half the bytes of 16-bit weights; completions rarely differ.</summary>
        Int8 = 1,
        /// <summary>To 4 bits, with a scale for each group of 32 weights. About 0.28 of the bytes of 16-bit weights.
        /// Weights are rounded to the nearest code, so that a file that was quantized with calibration data answers
        /// better at the same size.</summary>
        Int4 = 2,
    }

    /// <summary>How the weights of a part of a model are held.</summary>
    public enum Coding
    {
        /// <summary>The model has no such part.</summary>
        None = 0,
        /// <summary>IEEE 754, 32 bits.</summary>
        F32 = 1,
        /// <summary>IEEE 754, 16 bits.</summary>
        F16 = 2,
        /// <summary>Bfloat16.</summary>
        BF16 = 3,
        /// <summary>Integers of 8 bits with scales.</summary>
        Int8 = 4,
        /// <summary>Integers of 4 bits with scales.</summary>
        Int4 = 5,
        /// <summary>E4M3 floating point of 8 bits with scales.</summary>
        FP8 = 6,
        /// <summary>E2M1 floating point of 4 bits with scales.</summary>
        FP4 = 7,
        /// <summary>A block type of GGUF.</summary>
        Q8_0 = 8,
        /// <summary>A block type of GGUF.</summary>
        Q4_0 = 9,
        /// <summary>A block type of GGUF.</summary>
        Q4_1 = 10,
        /// <summary>A block type of GGUF.</summary>
        Q5_0 = 11,
        /// <summary>A block type of GGUF.</summary>
        Q5_1 = 12,
        /// <summary>A block type of GGUF.</summary>
        Q4_K = 13,
        /// <summary>A block type of GGUF.</summary>
        Q5_K = 14,
        /// <summary>A block type of GGUF.</summary>
        Q6_K = 15,
        /// <summary>A block type of GGUF.</summary>
        IQ4_NL = 16,
        /// <summary>A block type of GGUF.</summary>
        IQ4_XS = 17,
        /// <summary>A block type of GGUF.</summary>
        Q2_K = 18,
        /// <summary>A block type of GGUF.</summary>
        Q3_K = 19,
        /// <summary>A block type of GGUF.</summary>
        Mxfp4 = 20,
        /// <summary>A block type of GGUF.</summary>
        IQ2_XXS = 21,
        /// <summary>A block type of GGUF.</summary>
        IQ2_XS = 22,
        /// <summary>A block type of GGUF.</summary>
        IQ2_S = 23,
        /// <summary>A block type of GGUF.</summary>
        IQ3_XXS = 24,
        /// <summary>A block type of GGUF.</summary>
        IQ3_S = 25,
        /// <summary>A block type of GGUF.</summary>
        IQ1_S = 26,
        /// <summary>A block type of GGUF.</summary>
        IQ1_M = 27,
        /// <summary>A block type of GGUF.</summary>
        TQ1_0 = 28,
        /// <summary>A block type of GGUF.</summary>
        TQ2_0 = 29,
    }

    /// <summary>Where the bytes of a file are.</summary>
    internal enum FileKind
    {
        /// <summary>In memory: size bytes from data.</summary>
        Memory = 0,
        /// <summary>In an open file: size bytes from byte offset of the file of descriptor.</summary>
        Range = 1,
    }

    /// <summary>How the final hidden states of a prompt, after the model's last norm, become an embedding. A classifier
    /// takes Pooling.Auto alone.</summary>
    public enum Pooling
    {
        /// <summary>No embedding: the request generates.</summary>
        None = 0,
        /// <summary>The hidden state of the last token.</summary>
        Last = 1,
        /// <summary>The mean of the hidden states of all tokens. Such a request does not use the prefix cache, which
        /// holds no hidden states.</summary>
        Mean = 2,
        /// <summary>The hidden state of the first token. Only for encoders.</summary>
        Cls = 3,
        /// <summary>As the model's folder says, for sentence-transformers or in the config of a classifier: one of
        /// those above, then the layers and the normalization that the folder names. A classifier gives scores instead
        /// of an embedding. Refused where the folder says nothing.</summary>
        Auto = 4,
    }

    /// <summary>When a beam search ends once it has as many results as beams.</summary>
    public enum EarlyStopping
    {
        /// <summary>When the best beam, at its current length, cannot rank above the worst result. As in transformers
        /// with False.</summary>
        Heuristic = 0,
        /// <summary>Immediately. As in transformers with True.</summary>
        AtOnce = 1,
        /// <summary>When no beam can rank above the worst result at any length. As in transformers with
        /// "never".</summary>
        Never = 2,
    }

    /// <summary>Kinds of structured output.</summary>
    public enum StructureKind
    {
        /// <summary>None: the completion is unconstrained.</summary>
        None = 0,
        /// <summary>A JSON schema, which the completion satisfies. {} accepts any JSON.</summary>
        JsonSchema = 1,
        /// <summary>A regular expression in the syntax of Rust, which matches the whole completion.</summary>
        Regex = 2,
        /// <summary>A context-free grammar in llguidance's dialect of Lark. Its first rule is named start.</summary>
        Lark = 3,
    }

    /// <summary>Which tools a completion calls.</summary>
    public enum ToolChoice
    {
        /// <summary>The model decides.</summary>
        Auto = 0,
        /// <summary>None. The chat template gets no tools.</summary>
        None = 1,
        /// <summary>At least one.</summary>
        Required = 2,
        /// <summary>The one that ToolName names.</summary>
        Named = 3,
    }

    /// <summary>Why a completion ended.</summary>
    public enum Finish
    {
        /// <summary>It has not ended.</summary>
        None = 0,
        /// <summary>An EOS token, a stop token or a stop string.</summary>
        Stop = 1,
        /// <summary>MaxTokens, MaxModelLen, or the size of the KV cache.</summary>
        Length = 2,
        /// <summary>Nvllm_cancel, or a callback.</summary>
        Cancelled = 3,
        /// <summary>An error: see status and ErrorMessage.</summary>
        Error = 4,
        /// <summary>MaxWaitUs: it never ran.</summary>
        Expired = 5,
    }

    /// <summary>Flags of nvllm_tokenize and nvllm_detokenize.</summary>
    [Flags]
    public enum TokenizeFlags
    {
        /// <summary>Add the tokens that begin and end a text, as the model's tokenizer does. No effect in
        /// nvllm_detokenize.</summary>
        AddSpecial = 1,
        /// <summary>Parse the spelling of a special token, such as &lt;|im_end|&gt;, as that token; nvllm_detokenize
        /// spells it out. Without this flag the spelling stays text, so that a user's text cannot forge a turn, and
        /// nvllm_detokenize omits special tokens.</summary>
        ParseSpecial = 2,
    }

    /// <summary>Kinds of events.</summary>
    public enum AnswerEventKind
    {
        /// <summary>A further piece of the content, which is for the user.</summary>
        Content = 1,
        /// <summary>A further piece of the reasoning.</summary>
        Reasoning = 2,
        /// <summary>A tool call begins. The text is the name of the tool.</summary>
        ToolCallBegin = 3,
        /// <summary>A further piece of the arguments of a call. All pieces of one call together are a JSON
        /// object.</summary>
        ToolCallArguments = 4,
        /// <summary>A tool call is complete. The text is the id that the model gave to it, in most cases
        /// none.</summary>
        ToolCallEnd = 5,
        /// <summary>A call that has begun cannot be read, and is none. The text says why. What the model has written
        /// follows as content.</summary>
        ToolCallBroken = 6,
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_error
    {
        internal int status;
        internal int native_code;
        internal fixed byte message[504];
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_engine_config
    {
        internal UIntPtr struct_size;
        internal byte* model_path;
        internal int device;
        internal int device_index;
        internal int dtype;
        internal uint num_threads;
        internal uint max_model_len;
        internal uint max_num_seqs;
        internal uint max_batched_tokens;
        internal uint max_queue;
        internal uint kv_block_size;
        internal uint enable_prefix_cache;
        internal ulong kv_cache_bytes;
        internal float memory_utilization;
        internal uint tensor_parallel_size;
        internal uint enforce_eager;
        internal uint batch_invariant;
        internal ulong seed;
        internal IntPtr progress;
        internal IntPtr progress_user_data;
        internal int load_mode;
        internal int* device_indices;
        internal uint num_device_indices;
        internal uint num_processes;
        internal uint process_index;
        internal uint peer_timeout_ms;
        internal byte* rendezvous;
        internal int kv_cache_dtype;
        internal int quantization;
        internal ulong gpu_memory_bytes;
        internal ulong state_checkpoint_interval;
        internal int host_expert_layers;
        internal uint expert_statistics;
        internal uint expert_parallel;
    }

    /// <summary>As nvllm_model_info of the C API.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct ModelInfo
    {
        internal UIntPtr StructSize;
        /// <summary>Rows of the embedding table.</summary>
        public uint VocabSize;
        /// <summary>Maximum length of a sequence in tokens, prompt and completion together.</summary>
        public uint MaxModelLen;
        /// <summary>Number of decoder layers.</summary>
        public uint NumLayers;
        /// <summary>Width of the residual stream.</summary>
        public uint HiddenSize;
        /// <summary>The token that begins a text; UINT32_MAX if there is none.</summary>
        public uint BosToken;
        /// <summary>The first of the tokens that end a completion; UINT32_MAX if there is none.</summary>
        public uint EosToken;
        /// <summary>Number of weights. Shared ones count once.</summary>
        public ulong NumParameters;
        /// <summary>Size of the weights in bytes.</summary>
        public ulong WeightBytes;
        /// <summary>Size of the KV cache in bytes.</summary>
        public ulong KvCacheBytes;
        /// <summary>Number of blocks of the KV cache.</summary>
        public uint NumKvBlocks;
        /// <summary>Tokens per KV block.</summary>
        public uint KvBlockSize;
        /// <summary>Device.Cpu or Device.Cuda, also where Device.Auto was asked for.</summary>
        public Device Device;
        /// <summary>Index of the GPU; 0 on the CPU.</summary>
        public int DeviceIndex;
        /// <summary>Maximum number of sequences that run at once.</summary>
        public uint MaxNumSeqs;
        /// <summary>Maximum number of new tokens per forward pass.</summary>
        public uint MaxBatchedTokens;
        /// <summary>Number of ranks that compute the model together, in all processes.</summary>
        public uint TensorParallelSize;
        /// <summary>Which of the processes this is, from 0.</summary>
        public uint ProcessIndex;
        /// <summary>How keys and values are stored in the KV cache.</summary>
        public KvCacheDtype KvCacheDtype;
        /// <summary>Size of the KV cache per token in bytes: keys and values of all layers and KV heads, scales
        /// included.</summary>
        public uint KvTokenBytes;
        /// <summary>How most bytes of the embedding table are held.</summary>
        public Coding EmbeddingCoding;
        /// <summary>How most bytes of the projections of attention are held.</summary>
        public Coding AttentionCoding;
        /// <summary>How most bytes of the projections of the feed-forward parts are held.</summary>
        public Coding FeedForwardCoding;
        /// <summary>How most bytes of the output head are held. Coding.None if the embedding table serves as the
        /// head.</summary>
        public Coding HeadCoding;
        /// <summary>Size of the embedding table in bytes, that of all ranks together, like the next three.</summary>
        public ulong EmbeddingBytes;
        /// <summary>Size of the projections of attention in bytes.</summary>
        public ulong AttentionBytes;
        /// <summary>Size of the projections of the feed-forward parts in bytes.</summary>
        public ulong FeedForwardBytes;
        /// <summary>Size of the output head in bytes; 0 if the embedding table serves as the head.</summary>
        public ulong HeadBytes;
        /// <summary>Numbers of an embedding with Pooling.Auto: HiddenSize, or what the model's folder makes of it. 0
        /// for a classifier.</summary>
        public uint EmbeddingSize;
        /// <summary>Labels of a classifier: see nvllm_label. 0 for other models.</summary>
        public uint NumLabels;
        /// <summary>Size in bytes of the experts that stay in host memory beside a GPU; 0 if there are none.</summary>
        public ulong HostExpertBytes;
        /// <summary>Number of layers whose experts stay in host memory beside a GPU: see HostExpertLayers of
        /// nvllm_engine_config. 0 on the CPU.</summary>
        public uint HostExpertLayers;
        /// <summary>Whether a classifier scores each token of a text, so that scores of nvllm_output has NumLabels
        /// numbers per prompt token.</summary>
        public uint ScoresTokens;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_model_file
    {
        internal UIntPtr struct_size;
        internal byte* name;
        internal int kind;
        internal uint reserved;
        internal IntPtr data;
        internal long descriptor;
        internal ulong offset;
        internal ulong size;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_explain_options
    {
        internal UIntPtr struct_size;
        internal byte* gpu;
        internal uint rows;
        internal uint tokens;
        internal uint context_len;
        internal uint layer;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_request_options
    {
        internal UIntPtr struct_size;
        internal ulong tag;
        internal uint max_tokens;
        internal uint min_tokens;
        internal float temperature;
        internal float top_p;
        internal float min_p;
        internal uint top_k;
        internal float repetition_penalty;
        internal float presence_penalty;
        internal float frequency_penalty;
        internal ulong seed;
        internal uint ignore_eos;
        internal int priority;
        internal byte** stop;
        internal UIntPtr num_stop;
        internal uint* stop_tokens;
        internal UIntPtr num_stop_tokens;
        internal uint* bias_tokens;
        internal float* bias_values;
        internal UIntPtr num_bias;
        internal uint num_logprobs;
        internal uint n;
        internal uint beam_width;
        internal float length_penalty;
        internal uint include_stop;
        internal ulong max_wait_us;
        internal ulong cache_salt;
        internal uint pin_prompt;
        internal uint pooling;
        internal uint num_prompt_logprobs;
        internal uint early_stopping;
        internal byte* structure;
        internal int structure_kind;
        internal uint reserved;
        internal byte* tools;
        internal byte* tool_name;
        internal int tool_choice;
        internal uint parallel_tool_calls;
        internal uint strict_tools;
        internal uint keep_special_tokens;
        internal uint max_thinking_tokens;
        internal uint reserved_too;
        internal byte** dry_sequence_breakers;
        internal UIntPtr num_dry_sequence_breakers;
        internal float dry_multiplier;
        internal float dry_base;
        internal uint dry_allowed_length;
        internal uint dry_penalty_last_n;
        internal float top_n_sigma;
        internal float xtc_probability;
        internal float xtc_threshold;
        internal uint reserved_last;
        internal uint embedding_dimensions;
        internal uint reserved_of_dimensions;
        internal uint* score_tokens;
        internal UIntPtr num_score_tokens;
        internal uint truncate_prompt_tokens;
        internal uint reserved_of_truncation;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_message
    {
        internal byte* role;
        internal byte* content;
    }

    /// <summary>As nvllm_step_result of the C API.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct StepResult
    {
        internal UIntPtr StructSize;
        /// <summary>Outputs that are waiting to be polled.</summary>
        public uint NumOutputs;
        /// <summary>Sequences that are running.</summary>
        public uint NumRunning;
        /// <summary>Requests that are waiting; each of their completions counts.</summary>
        public uint NumWaiting;
        /// <summary>Forward passes that this call finished. steps of nvllm_stats and nanovllm_passes_total of
        /// nvllm_metrics_text count those of all calls.</summary>
        public uint NumIterations;
        /// <summary>Forward passes that have begun and not finished: at most 1 on the CPU, at most 2 on a
        /// GPU.</summary>
        public uint InFlight;
        /// <summary>Prompt tokens that this call computed, without cached ones.</summary>
        public uint PrefillTokens;
        /// <summary>Tokens that this call generated.</summary>
        public uint DecodeTokens;
        /// <summary>Duration of this call in microseconds.</summary>
        public ulong ElapsedUs;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_output
    {
        internal UIntPtr struct_size;
        internal ulong request_id;
        internal ulong tag;
        internal uint* token_ids;
        internal UIntPtr num_token_ids;
        internal byte* text;
        internal UIntPtr text_len;
        internal uint index;
        internal int finish_reason;
        internal int status;
        internal uint prompt_tokens;
        internal uint cached_tokens;
        internal uint completion_tokens;
        internal ulong time_to_first_token_us;
        internal float* logprobs;
        internal uint* top_tokens;
        internal float* top_logprobs;
        internal float cumulative_logprob;
        internal byte* error_message;
        internal float* embedding;
        internal UIntPtr embedding_len;
        internal uint num_logprobs;
        internal uint num_prompt_logprobs;
        internal float* prompt_logprobs;
        internal uint* prompt_top_tokens;
        internal float* prompt_top_logprobs;
        internal float score;
        internal uint reserved;
        internal uint reasoning_tokens;
        internal float* scores;
        internal UIntPtr num_scores;
    }

    /// <summary>As nvllm_progress of the C API.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct Progress
    {
        internal UIntPtr StructSize;
        /// <summary>Completions that have ended.</summary>
        public long Finished => (long)finished;
        internal UIntPtr finished;
        /// <summary>All completions.</summary>
        public long Total => (long)total;
        internal UIntPtr total;
        /// <summary>Prompt tokens per second, over the last steps.</summary>
        public double PrefillTokensPerS;
        /// <summary>Generated tokens per second, over the last steps.</summary>
        public double DecodeTokensPerS;
        /// <summary>Microseconds since the call began.</summary>
        public ulong ElapsedUs;
        /// <summary>Prompt tokens that the engine computed since the call began.</summary>
        public ulong PromptTokens;
        /// <summary>Tokens that the engine generated since the call began.</summary>
        public ulong GeneratedTokens;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_prompt
    {
        internal UIntPtr struct_size;
        internal byte* text;
        internal UIntPtr text_len;
        internal uint* tokens;
        internal UIntPtr num_tokens;
        internal nvllm_message* messages;
        internal UIntPtr num_messages;
        internal byte* template_options;
        internal nvllm_request_options* options;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct nvllm_answer_event
    {
        internal int kind;
        internal uint call_index;
        internal byte* text;
        internal UIntPtr text_len;
    }

    /// <summary>As nvllm_stats of the C API.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct Stats
    {
        internal UIntPtr StructSize;
        /// <summary>Forward passes that have finished. nanovllm_passes_total of nvllm_metrics_text is this number, and
        /// NumIterations of nvllm_step_result what one call of nvllm_step adds to it.</summary>
        public ulong Steps;
        /// <summary>Prompt tokens that were computed.</summary>
        public ulong PromptTokens;
        /// <summary>Prompt tokens that were taken from the prefix cache, or from another completion.</summary>
        public ulong CachedTokens;
        /// <summary>Tokens that were generated.</summary>
        public ulong GeneratedTokens;
        /// <summary>Preemptions: how often a sequence had to give up its KV blocks.</summary>
        public ulong Preemptions;
        /// <summary>Microseconds spent in forward passes.</summary>
        public ulong StepTimeUs;
        /// <summary>Sequences that are running.</summary>
        public uint Running;
        /// <summary>Requests that are waiting; each of their completions counts.</summary>
        public uint Waiting;
        /// <summary>Blocks of the KV cache.</summary>
        public uint KvBlocksTotal;
        /// <summary>Blocks of the KV cache that sequences use or that are pinned. If every layer of the model has a
        /// sliding window, a sequence releases the blocks before its window; if some layers have one, these have blocks
        /// of their own, and a sequence holds those of its last window.</summary>
        public uint KvBlocksUsed;
        /// <summary>Log messages that were dropped because no call took them, in the whole process.</summary>
        public ulong LogMessagesDropped;
        /// <summary>Tokens that were looked up in the prefix cache: all tokens of a sequence each time it starts to
        /// run, so again after a preemption.</summary>
        public ulong PrefixCacheQueries;
        /// <summary>Tokens that were found in the prefix cache and need not be computed.</summary>
        public ulong PrefixCacheHits;
        /// <summary>Blocks that were evicted from the prefix cache.</summary>
        public ulong PrefixCacheEvictions;
        /// <summary>Blocks reserved by pinned prompts; a block counts once per prompt that has it.</summary>
        public uint KvBlocksPinned;
        /// <summary>Bytes of GPU memory that the engine took or set aside when it opened, everything included, on the
        /// GPU where they are most: see GpuMemoryBytes of nvllm_engine_config. Without such a budget, a CUDA context
        /// that the engine made counts as 640 MiB. 0 on the CPU.</summary>
        public ulong GpuMemoryBytes;
        /// <summary>Bytes of the KV cache that have memory now. On a GPU all of it, but for what nvllm_trim gave back.
        /// On the CPU, the blocks that were used since the engine opened or since nvllm_trim; a block counts whole. 0
        /// in a process that follows another one.</summary>
        public ulong KvCacheBytesMapped;
        /// <summary>Tokens that were found in the prefix cache and are computed all the same, because the model has
        /// recurrent layers and no checkpoint of their state is behind these tokens: at most about
        /// StateCheckpointInterval each time a sequence starts to run. Or because some of its layers have a sliding
        /// window, and the blocks of the window before were reused. Not part of PrefixCacheHits. 0 for other
        /// models.</summary>
        public ulong PrefixCacheRecomputed;
    }

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    internal unsafe delegate void nvllm_log_fn(int level, byte* message, UIntPtr message_len, IntPtr user_data);
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    internal unsafe delegate int nvllm_progress_fn(float fraction, IntPtr user_data);
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    internal unsafe delegate int nvllm_output_fn(nvllm_output* output, IntPtr user_data);
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    internal unsafe delegate int nvllm_generate_progress_fn(Progress* progress, IntPtr user_data);

    internal static unsafe class Native
    {
#if UNITY_IOS && !UNITY_EDITOR
        const string Library = "__Internal";
#else
        const string Library = "nanovllm";
#endif

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern byte* nvllm_status_name(int status);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern byte* nvllm_version();

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern uint nvllm_abi_version();

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern byte* nvllm_build_info();

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_set_log_callback(IntPtr callback, IntPtr user_data, int max_level);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_engine_config_init(nvllm_engine_config* config, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_engine_new(nvllm_engine_config* config, IntPtr* engine, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_engine_free(IntPtr engine);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_model_info_init(ModelInfo* info, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_engine_model_info(EngineHandle engine, ModelInfo* info, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_model_file_init(nvllm_model_file* file, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_engine_new_from(nvllm_engine_config* config, nvllm_model_file* files, UIntPtr num_files, IntPtr* engine, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_quantize_folder(byte* model_path, byte* to, int quantization, IntPtr progress, IntPtr progress_user_data, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_explain_options_init(nvllm_explain_options* options, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_explain(nvllm_engine_config* config, nvllm_explain_options* options, byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_request_options_init(nvllm_request_options* options, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_default_options(EngineHandle engine, nvllm_request_options* options, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_add_request(EngineHandle engine, byte* prompt, UIntPtr prompt_len, nvllm_request_options* options, ulong* request_id, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_add_request_tokens(EngineHandle engine, uint* tokens, UIntPtr num_tokens, nvllm_request_options* options, ulong* request_id, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_cancel(EngineHandle engine, ulong request_id);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_cancel_with_error(EngineHandle engine, ulong request_id, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_add_chat(EngineHandle engine, nvllm_message* messages, UIntPtr num_messages, byte* template_options, nvllm_request_options* options, ulong* request_id, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_apply_chat_template_messages(EngineHandle engine, nvllm_message* messages, UIntPtr num_messages, byte* options_json, byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_step_result_init(StepResult* result, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_step(EngineHandle engine, ulong budget_us, StepResult* result, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_wait(IntPtr engine, ulong timeout_us, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_wake(IntPtr engine, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_is_finished(EngineHandle engine);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_output_init(nvllm_output* output, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_poll_output(EngineHandle engine, nvllm_output* output, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_set_output_callback(EngineHandle engine, IntPtr callback, IntPtr user_data, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_generate(EngineHandle engine, byte** prompts, UIntPtr* prompt_lens, UIntPtr num_prompts, nvllm_request_options** options, UIntPtr num_options, IntPtr progress, IntPtr progress_user_data, IntPtr* result, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_generate_tokens(EngineHandle engine, uint** prompts, UIntPtr* prompt_lens, UIntPtr num_prompts, nvllm_request_options** options, UIntPtr num_options, IntPtr progress, IntPtr progress_user_data, IntPtr* result, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_prompt_init(nvllm_prompt* prompt, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_generate_prompts(EngineHandle engine, nvllm_prompt* prompts, UIntPtr num_prompts, IntPtr progress, IntPtr progress_user_data, IntPtr* result, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern UIntPtr nvllm_result_count(IntPtr result);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_result_get(IntPtr result, UIntPtr index, nvllm_output* output);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_result_get_with_error(IntPtr result, UIntPtr index, nvllm_output* output, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_result_free(IntPtr result);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_score(EngineHandle engine, byte** texts, byte** seconds, UIntPtr num_texts, nvllm_request_options** options, UIntPtr num_options, IntPtr progress, IntPtr progress_user_data, IntPtr* result, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_add_request_pair(EngineHandle engine, byte* text, byte* second, nvllm_request_options* options, ulong* request_id, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_label(EngineHandle engine, UIntPtr index, byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_named_prompt(EngineHandle engine, byte* name, byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_reset_prefix_cache(EngineHandle engine, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_trim(EngineHandle engine, ulong* freed_bytes, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_release_prefix(EngineHandle engine, ulong request_id);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_release_prefix_with_error(EngineHandle engine, ulong request_id, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_save_prefix(EngineHandle engine, uint* tokens, UIntPtr num_tokens, ulong cache_salt, byte* buffer, UIntPtr capacity, UIntPtr* needed, UIntPtr* saved_tokens, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_restore_prefix(EngineHandle engine, byte* bytes, UIntPtr num_bytes, UIntPtr* restored_tokens, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_fork(EngineHandle engine, ulong request_id, uint index, nvllm_request_options* options, ulong* new_request_id, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_tokenize(EngineHandle engine, byte* text, UIntPtr text_len, uint flags, uint* tokens, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_detokenize(EngineHandle engine, uint* tokens, UIntPtr num_tokens, uint flags, byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_apply_chat_template(EngineHandle engine, byte* messages_json, UIntPtr messages_len, byte* options_json, UIntPtr options_len, byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_answer_parser_new(EngineHandle engine, byte* prompt, UIntPtr prompt_len, byte* tools, IntPtr* parser, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_answer_parser_feed(IntPtr parser, byte* text, UIntPtr text_len, nvllm_answer_event** events, UIntPtr* num_events, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_answer_parser_finish(IntPtr parser, nvllm_answer_event** events, UIntPtr* num_events, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_answer_parser_message(IntPtr parser, byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_answer_parser_free(IntPtr parser);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void nvllm_stats_init(Stats* stats, UIntPtr struct_size);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_get_stats(EngineHandle engine, Stats* stats, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_expert_tokens(EngineHandle engine, UIntPtr layer, ulong* counts, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern int nvllm_metrics_text(EngineHandle engine, byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);
    }

    /// <summary>Options of an engine. What is null is as the library has it.</summary>
    public sealed partial class EngineConfig
    {
        /// <summary>Where the engine computes. Default Device.Auto.</summary>
        public Device? Device { get; set; }
        /// <summary>Index of the GPU among those that the driver reports. 0 on the CPU. Default 0.</summary>
        public int? DeviceIndex { get; set; }
        /// <summary>Data type of the weights, and of the KV cache unless KvCacheDtype says otherwise. Default
        /// DType.Auto. Quantized weights stay quantized. On a CPU, DType.F32 computes with their exact values and
        /// activations in f32; with any other type, activations are rounded where the processor multiplies integers or
        /// bf16 faster: see docs/performance.md.</summary>
        public DType? Dtype { get; set; }
        /// <summary>Number of CPU threads that compute, the calling thread included. Default 0: one per core.</summary>
        public uint? NumThreads { get; set; }
        /// <summary>Maximum length of a sequence in tokens, prompt and completion together. Default 0: the model's
        /// maximum, but at most 1048576.</summary>
        public uint? MaxModelLen { get; set; }
        /// <summary>Maximum number of sequences that run at once; others wait. Default 0: by device.</summary>
        public uint? MaxNumSeqs { get; set; }
        /// <summary>Maximum number of new tokens per forward pass. Default 0: by device.</summary>
        public uint? MaxBatchedTokens { get; set; }
        /// <summary>Maximum number of waiting requests, where each of their completions counts. A request whose n is
        /// greater can never be queued, and is refused. Default 0: NVLLM_MAX_QUEUED_COMPLETIONS.</summary>
        public uint? MaxQueue { get; set; }
        /// <summary>Tokens per KV block: a power of two, at most 1024. Default 0: by device.</summary>
        public uint? KvBlockSize { get; set; }
        /// <summary>Whether prompts share the KV blocks of common prefixes. Default true.</summary>
        public bool? EnablePrefixCache { get; set; }
        /// <summary>Size of the KV cache in bytes, that of all ranks together. Default 0: determined by
        /// MemoryUtilization.</summary>
        public ulong? KvCacheBytes { get; set; }
        /// <summary>Fraction of the device's memory (on the CPU: of the free memory) that this engine may use, above 0
        /// and at most 1. Default 0: by device (CPU: 0.5, CUDA: 0.9).</summary>
        public float? MemoryUtilization { get; set; }
        /// <summary>Number of ranks that compute the model together: GPUs, or on the CPU groups of threads, each bound
        /// to one NUMA node where there are several. At most the number of query heads of the model. Default 1. On the
        /// CPU, every number of ranks gives the same bits; on CUDA if BatchInvariant is 1.</summary>
        public uint? TensorParallelSize { get; set; }
        /// <summary>Whether CUDA graphs are disabled. No effect on the CPU. Default false. Where the engine finds no
        /// CUDA context of its GPU in the process, graphs of more than 8 sequences may be recorded in a later step,
        /// when a batch of their size first comes. While a graph is recorded, CUDA refuses other threads to wait for
        /// the whole device (cudaDeviceSynchronize). A program that uses CUDA itself should begin to before it opens an
        /// engine, which then records all graphs while it opens.</summary>
        public bool? EnforceEager { get; set; }
        /// <summary>Whether the logits of a request are the same bit for bit whatever else is in the batch, and on
        /// however many GPUs of one kind. On the CPU they always are; on CUDA it selects slower kernels. Default
        /// false.</summary>
        public bool? BatchInvariant { get; set; }
        /// <summary>Seed of the requests that have none. Default 0: drawn from the system.</summary>
        public ulong? Seed { get; set; }
        /// <summary>How the weights are loaded into memory. Default LoadMode.Map.</summary>
        public LoadMode? LoadMode { get; set; }
        /// <summary>The GPU of each rank of this process, as DeviceIndex counts them, each at most once. NULL takes
        /// DeviceIndex and those after it.</summary>
        public int[] DeviceIndices { get; set; }
        /// <summary>Number of processes that compute the model together, each opened with the same options except
        /// ProcessIndex and those of its devices and threads. TensorParallelSize counts the ranks of all of them, and
        /// is a multiple. GPUs of several processes exchange through NCCL 2.18 or later, which must be installed:
        /// Status.Unsupported without it. Default 0: this one alone.</summary>
        public uint? NumProcesses { get; set; }
        /// <summary>Which of them this is, from 0. Process 0 leads: requests go to it alone. The others are stepped to
        /// compute what process 0 schedules, and their functions about requests, completions and cached prefixes return
        /// Status.Unsupported. Default 0.</summary>
        public uint? ProcessIndex { get; set; }
        /// <summary>Time in milliseconds that another rank or process may be silent, or that data which it has sent may
        /// be missing, before the engine ends with an error. At least 100 milliseconds with several processes. Default
        /// 0: 10000.</summary>
        public uint? PeerTimeoutMs { get; set; }
        /// <summary>Where process 0 listens and the others find it: "host:port", or "unix:" and an absolute path, which
        /// Windows refuses. The connections are neither encrypted nor authenticated: use a private network. Required
        /// with several processes.</summary>
        public string Rendezvous { get; set; }
        /// <summary>How keys and values are stored in the KV cache. A prefix can be restored only by an engine with the
        /// value of the one that saved it. Default KvCacheDtype.Auto.</summary>
        public KvCacheDtype? KvCacheDtype { get; set; }
        /// <summary>How weights that are not quantized yet are quantized while the engine opens, embedding table and
        /// head included. Matrices whose width is no multiple of 32 stay as they are, with a warning in the log.
        /// Default Quantization.None.</summary>
        public Quantization? Quantization { get; set; }
        /// <summary>Maximum number of bytes that this engine takes on each of its GPUs: weights, KV cache, graphs,
        /// buffers, and the CUDA context if the process has none there yet. The KV cache gets what the rest leaves;
        /// MemoryUtilization remains a limit too. What the engine takes is measured with NVIDIA's management library,
        /// so that other programs should not allocate on the GPU while it opens; without that library the context is
        /// assumed to take 640 MiB. Status.OutOfMemory if the budget does not hold the weights and one KV block, or not
        /// KvCacheBytes. No effect on the CPU. Default 0: no such limit.</summary>
        public ulong? GpuMemoryBytes { get; set; }
        /// <summary>For models with recurrent layers: the recurrent state is kept in the prefix cache after each
        /// multiple of this number of tokens, and at the end of each prompt. Later requests with the same beginning
        /// continue from there. Rounded up to whole KV blocks. Fewer tokens are computed again with a smaller number,
        /// and more states are made. Default 0: 1024.</summary>
        public ulong? StateCheckpointInterval { get; set; }
        /// <summary>For models with experts on a GPU: number of layers whose experts stay in host memory, the last ones
        /// that have any. The CPU computes them with NumThreads threads, by default one less than there are cores. A
        /// number for which the GPU has too little memory is refused with Status.OutOfMemory, and the message says
        /// which one is sufficient. Not with several ranks. Default 0: as many as the GPU has no memory for. -1:
        /// none.</summary>
        public int? HostExpertLayers { get; set; }
        /// <summary>Whether nvllm_expert_tokens counts how many tokens each expert of a model with experts is chosen
        /// for. Default 0, because counting is one more kernel per layer on a GPU.</summary>
        public bool? ExpertStatistics { get; set; }
        /// <summary>0 or 1: with several ranks, whether each rank holds some experts of every layer whole. With 0, each
        /// rank holds a share of the width of every expert. With 1, a rank computes the tokens of its own experts, and
        /// there must be at least as many experts as ranks. Refused for a model without experts. The results are those
        /// of 0, bit for bit, on the CPU and with BatchInvariant. No effect with one rank. Default 0.</summary>
        public bool? ExpertParallel { get; set; }

        unsafe void Assign(nvllm_engine_config* native, Borrowed memory)
        {
            if (Device.HasValue) native->device = (int)Device.Value;
            if (DeviceIndex.HasValue) native->device_index = DeviceIndex.Value;
            if (Dtype.HasValue) native->dtype = (int)Dtype.Value;
            if (NumThreads.HasValue) native->num_threads = NumThreads.Value;
            if (MaxModelLen.HasValue) native->max_model_len = MaxModelLen.Value;
            if (MaxNumSeqs.HasValue) native->max_num_seqs = MaxNumSeqs.Value;
            if (MaxBatchedTokens.HasValue) native->max_batched_tokens = MaxBatchedTokens.Value;
            if (MaxQueue.HasValue) native->max_queue = MaxQueue.Value;
            if (KvBlockSize.HasValue) native->kv_block_size = KvBlockSize.Value;
            if (EnablePrefixCache.HasValue) native->enable_prefix_cache = EnablePrefixCache.Value ? 1u : 0u;
            if (KvCacheBytes.HasValue) native->kv_cache_bytes = KvCacheBytes.Value;
            if (MemoryUtilization.HasValue) native->memory_utilization = MemoryUtilization.Value;
            if (TensorParallelSize.HasValue) native->tensor_parallel_size = TensorParallelSize.Value;
            if (EnforceEager.HasValue) native->enforce_eager = EnforceEager.Value ? 1u : 0u;
            if (BatchInvariant.HasValue) native->batch_invariant = BatchInvariant.Value ? 1u : 0u;
            if (Seed.HasValue) native->seed = Seed.Value;
            if (LoadMode.HasValue) native->load_mode = (int)LoadMode.Value;
            if (DeviceIndices != null) native->device_indices = (int*)memory.Pinned(DeviceIndices, DeviceIndices.Length);
            if (DeviceIndices != null) native->num_device_indices = (uint)DeviceIndices.Length;
            if (NumProcesses.HasValue) native->num_processes = NumProcesses.Value;
            if (ProcessIndex.HasValue) native->process_index = ProcessIndex.Value;
            if (PeerTimeoutMs.HasValue) native->peer_timeout_ms = PeerTimeoutMs.Value;
            if (Rendezvous != null) native->rendezvous = memory.Text(Rendezvous, "Rendezvous");
            if (KvCacheDtype.HasValue) native->kv_cache_dtype = (int)KvCacheDtype.Value;
            if (Quantization.HasValue) native->quantization = (int)Quantization.Value;
            if (GpuMemoryBytes.HasValue) native->gpu_memory_bytes = GpuMemoryBytes.Value;
            if (StateCheckpointInterval.HasValue) native->state_checkpoint_interval = StateCheckpointInterval.Value;
            if (HostExpertLayers.HasValue) native->host_expert_layers = HostExpertLayers.Value;
            if (ExpertStatistics.HasValue) native->expert_statistics = ExpertStatistics.Value ? 1u : 0u;
            if (ExpertParallel.HasValue) native->expert_parallel = ExpertParallel.Value ? 1u : 0u;
        }
    }

    /// <summary>Options of a request. What is null is as the library has it.</summary>
    public sealed partial class RequestOptions
    {
        /// <summary>Returned in every output: an index, a pointer, a handle. Default 0.</summary>
        public ulong? Tag { get; set; }
        /// <summary>Maximum number of tokens to generate, at least 1. Default UINT32_MAX: limited by MaxModelLen and
        /// the KV cache only.</summary>
        public uint? MaxTokens { get; set; }
        /// <summary>Number of tokens before which no EOS token, stop token or end of a stop string may occur. Default
        /// 0.</summary>
        public uint? MinTokens { get; set; }
        /// <summary>Sampling temperature. Default 0: always the most likely token. Greater values increase
        /// randomness.</summary>
        public float? Temperature { get; set; }
        /// <summary>Nucleus sampling: sample from the most likely tokens whose probabilities sum to this value, above 0
        /// and at most 1. Default 1: all tokens.</summary>
        public float? TopP { get; set; }
        /// <summary>Drop tokens whose probability is below this fraction of that of the most likely one, from 0 to 1.
        /// Default 0: drop none.</summary>
        public float? MinP { get; set; }
        /// <summary>Sample from this many of the most likely tokens. Default 0: all tokens.</summary>
        public uint? TopK { get; set; }
        /// <summary>Divides the positive logits, and multiplies the negative logits, of tokens that occur in the prompt
        /// or the completion. A finite number above 0, where more than 1 discourages repetition. Default 1: off. As in
        /// transformers.</summary>
        public float? RepetitionPenalty { get; set; }
        /// <summary>Subtracted from the logit of each token that occurs in the completion. Any finite number. Default
        /// 0. As in the OpenAI API.</summary>
        public float? PresencePenalty { get; set; }
        /// <summary>Subtracted from the logit of a token once per occurrence in the completion. Any finite number.
        /// Default 0. As in the OpenAI API.</summary>
        public float? FrequencyPenalty { get; set; }
        /// <summary>Seed of the request's own random stream: the same seed, prompt and options give the same
        /// completion. Default 0: derived from the engine's seed and the request's id.</summary>
        public ulong? Seed { get; set; }
        /// <summary>Whether EOS tokens are treated as ordinary tokens. Default false.</summary>
        public bool? IgnoreEos { get; set; }
        /// <summary>Requests with a higher priority run first. Default 0.</summary>
        public int? Priority { get; set; }
        /// <summary>Stop strings. The completion ends when its text contains one; the text ends before the first one to
        /// be complete, even if that is inside a token. The tokens that spell the string stay in the output. Needs a
        /// tokenizer.</summary>
        public string[] Stop { get; set; }
        /// <summary>Tokens that end the completion, in addition to EOS.</summary>
        public uint[] StopTokens { get; set; }
        /// <summary>If not 0, outputs contain the log-probability of each token, and those of this many most likely
        /// tokens, at most 64. They are the model's own, before penalties, biases, temperature and filters. Default
        /// 0.</summary>
        public uint? NumLogprobs { get; set; }
        /// <summary>Number of completions of this prompt, from 1 to NVLLM_MAX_COMPLETIONS. Default 1. They share the KV
        /// blocks of the prompt, which is computed once. Each has its own outputs, which differ by index. Completion i
        /// samples as a request with seed + i does.</summary>
        public uint? N { get; set; }
        /// <summary>Number of beams of a beam search. Default 0: sampling. From 2, the n best results are returned as
        /// completions 0 to n-1, best first, all at the end. As num_beams in transformers. At most 32, and at most 64 /
        /// (1 + number of EOS tokens). Cannot be combined with temperature, penalties, biases, stop strings or
        /// NumLogprobs.</summary>
        public uint? BeamWidth { get; set; }
        /// <summary>Beam search: results are ranked by the sum of their log-probabilities divided by their length to
        /// the power of this value. More than 0 favours long results. Any finite number. Default 1.</summary>
        public float? LengthPenalty { get; set; }
        /// <summary>Whether the output includes the token that stopped the completion, or the stop string in its text.
        /// Default false.</summary>
        public bool? IncludeStop { get; set; }
        /// <summary>Time in microseconds that the request may wait until it first runs. The first step after that ends
        /// it with Finish.Expired. Default 0: no limit.</summary>
        public ulong? MaxWaitUs { get; set; }
        /// <summary>Requests with different salts share no KV blocks, so that no tenant can infer another one's prompts
        /// from timing. Default 0, which is a salt like any other.</summary>
        public ulong? CacheSalt { get; set; }
        /// <summary>Whether the full KV blocks of the prompt stay in the prefix cache after the request has ended,
        /// until nvllm_release_prefix. Default false. Pinned blocks may take at most the KV cache minus what one
        /// sequence of MaxModelLen tokens needs, so that no request waits forever; beyond that the request is refused
        /// with Status.OutOfMemory.</summary>
        public bool? PinPrompt { get; set; }
        /// <summary>How the prompt becomes an embedding. Default Pooling.None. With any other value the request
        /// generates nothing, and its only output has the embedding and Finish.Stop; n must be 1, BeamWidth must be 0,
        /// and options of generation are ignored.</summary>
        public Pooling? Pooling { get; set; }
        /// <summary>As NumLogprobs, for the prompt. The output with the first token contains them, that of completion 0
        /// if n is more than 1. The whole prompt is then computed without the prefix cache, with at most MaxNumSeqs +
        /// 64 of its tokens per pass. Default 0.</summary>
        public uint? NumPromptLogprobs { get; set; }
        /// <summary>When a beam search ends once it has as many results as beams. Default
        /// EarlyStopping.Heuristic.</summary>
        public EarlyStopping? EarlyStopping { get; set; }
        /// <summary>The schema, expression or grammar that constrains the completion, of the kind StructureKind, at
        /// most NVLLM_MAX_STRUCTURE_BYTES. If it is refused, the message says why. Compiled structures are
        /// cached.</summary>
        public string Structure { get; set; }
        /// <summary>What structure is. Default StructureKind.None. The other options apply to the tokens that the
        /// structure allows. The structure may end the completion before MinTokens if nothing can follow; stop strings,
        /// stop tokens and MaxTokens may end it before the structure is complete. A completion that cannot continue
        /// ends with Finish.Error. Needs a tokenizer.</summary>
        public StructureKind? StructureKind { get; set; }
        /// <summary>Tools that the model may call: a JSON array of {"type": "function", "function": {"name",
        /// "description", "parameters"}}, as in the OpenAI API, or of the inner objects, at most
        /// NVLLM_MAX_MESSAGES_BYTES. Where messages are rendered with these options, as by nvllm_add_chat, the chat
        /// template gets them as "tools", unless its options have "tools". To read the calls, set KeepSpecialTokens and
        /// use a nvllm_answer_parser. Needs a tokenizer.</summary>
        public string Tools { get; set; }
        /// <summary>The name of the tool that is called with ToolChoice.Named.</summary>
        public string ToolName { get; set; }
        /// <summary>Which of tools the completion calls. Default ToolChoice.Auto.</summary>
        public ToolChoice? ToolChoice { get; set; }
        /// <summary>Whether the completion may have more than one call. Default true.</summary>
        public bool? ParallelToolCalls { get; set; }
        /// <summary>Whether the arguments of a call follow the schema of its tool; with 0 they are any JSON object. A
        /// tool with a "strict" of its own decides for itself. Default true.</summary>
        public bool? StrictTools { get; set; }
        /// <summary>Whether the text of outputs has special tokens, spelled out. A nvllm_answer_parser needs them.
        /// Default false.</summary>
        public bool? KeepSpecialTokens { get; set; }
        /// <summary>Number of tokens of reasoning after which its end marker is forced: 0 ends it at once. Default
        /// UINT32_MAX: no limit, and ReasoningTokens of outputs is 0. Tokens of the markers do not count. A model whose
        /// answers have no reasoning is not limited. Cannot be combined with StructureKind or BeamWidth. Needs a
        /// tokenizer.</summary>
        public uint? MaxThinkingTokens { get; set; }
        /// <summary>DRY: strings across which no repetition extends. Default NULL: newline, colon, quotation mark and
        /// asterisk, as in llama.cpp; an empty list that is not NULL is none. A list needs a tokenizer. Without one, or
        /// with one that does not decode token by token, the default has no effect.</summary>
        public string[] DrySequenceBreakers { get; set; }
        /// <summary>DRY, a penalty of repetitions. If the last n tokens occurred before, DryMultiplier * DryBase^(n -
        /// DryAllowedLength) is subtracted from the logit of the token that followed them there. The greatest such n
        /// counts, if it is at least DryAllowedLength. A finite number, not negative. Default 0: off. Applies after the
        /// other penalties and the biases, before temperature and filters. As in llama.cpp; the formula is that of
        /// github.com/oobabooga/text-generation-webui/pull/5677. The request waits for each token before its next pass
        /// is scheduled, as one with a structure does. Cannot be combined with BeamWidth.</summary>
        public float? DryMultiplier { get; set; }
        /// <summary>DRY: the base, a finite number of at least 1. Default 1.75.</summary>
        public float? DryBase { get; set; }
        /// <summary>DRY: the length from which on a repetition is penalized, at least 1. Default 2.</summary>
        public uint? DryAllowedLength { get; set; }
        /// <summary>DRY: number of last tokens of prompt and completion that are looked at, at least 1. Default
        /// UINT32_MAX: all.</summary>
        public uint? DryPenaltyLastN { get; set; }
        /// <summary>Top-n-sigma: drop tokens whose logit is more than this many standard deviations below the greatest.
        /// Any finite number. Default 0: off, as is less. The deviation is that of all logits that are not excluded,
        /// after penalties and biases; the temperature does not change what is kept. Distances of more than 512 from
        /// the greatest logit count as 512. The filters apply in this order: TopNSigma, TopK, TopP, MinP, XTC. As in
        /// llama.cpp; the formula is that of arxiv.org/abs/2411.07641.</summary>
        public float? TopNSigma { get; set; }
        /// <summary>XTC: the probability, from 0 to 1, with which a token is sampled without the most likely ones. All
        /// tokens with a probability of at least XtcThreshold are then dropped, except the least likely of them and
        /// those that are as likely. Default 0: never. Drawn from the seed and the position of the token. Probabilities
        /// are those that temperature and other filters leave; llama.cpp applies the temperature later. No effect at
        /// temperature 0. The rule is that of github.com/oobabooga/text-generation-webui/pull/6335.</summary>
        public float? XtcProbability { get; set; }
        /// <summary>XTC: the probability from which on tokens are dropped, above 0 and at most 1. Default 0.1. More
        /// than 0.5 is off, because no two tokens reach it.</summary>
        public float? XtcThreshold { get; set; }
        /// <summary>The number of leading values of the embedding that are returned, from 1 to all of them, normalized
        /// again where the model normalizes its embeddings: for models that were trained for it (Matryoshka). Default
        /// 0: all.</summary>
        public uint? EmbeddingDimensions { get; set; }
        /// <summary>Tokens whose probabilities after the prompt are asked for, each once: the request generates
        /// nothing. scores of its output has their probabilities among these tokens alone, which add up to 1, and
        /// CumulativeLogprob the logarithm of their sum among all tokens. So a model that answers yes or no ranks
        /// texts: see nvllm_score.</summary>
        public uint[] ScoreTokens { get; set; }
        /// <summary>Cuts a longer prompt to this number of tokens instead of refusing it. Tokens around a text stay,
        /// and of a pair the longer text is cut first. UINT32_MAX: to the most that the model takes, with Pooling.Auto
        /// at most to max_seq_length of its folder. For requests that generate nothing. Default 0: no prompt is
        /// cut.</summary>
        public uint? TruncatePromptTokens { get; set; }

        unsafe void Assign(nvllm_request_options* native, Borrowed memory)
        {
            if (Tag.HasValue) native->tag = Tag.Value;
            if (MaxTokens.HasValue) native->max_tokens = MaxTokens.Value;
            if (MinTokens.HasValue) native->min_tokens = MinTokens.Value;
            if (Temperature.HasValue) native->temperature = Temperature.Value;
            if (TopP.HasValue) native->top_p = TopP.Value;
            if (MinP.HasValue) native->min_p = MinP.Value;
            if (TopK.HasValue) native->top_k = TopK.Value;
            if (RepetitionPenalty.HasValue) native->repetition_penalty = RepetitionPenalty.Value;
            if (PresencePenalty.HasValue) native->presence_penalty = PresencePenalty.Value;
            if (FrequencyPenalty.HasValue) native->frequency_penalty = FrequencyPenalty.Value;
            if (Seed.HasValue) native->seed = Seed.Value;
            if (IgnoreEos.HasValue) native->ignore_eos = IgnoreEos.Value ? 1u : 0u;
            if (Priority.HasValue) native->priority = Priority.Value;
            if (Stop != null) native->stop = memory.Texts(Stop, "Stop");
            if (Stop != null) native->num_stop = (UIntPtr)Stop.Length;
            if (StopTokens != null) native->stop_tokens = (uint*)memory.Pinned(StopTokens, StopTokens.Length);
            if (StopTokens != null) native->num_stop_tokens = (UIntPtr)StopTokens.Length;
            if (NumLogprobs.HasValue) native->num_logprobs = NumLogprobs.Value;
            if (N.HasValue) native->n = N.Value;
            if (BeamWidth.HasValue) native->beam_width = BeamWidth.Value;
            if (LengthPenalty.HasValue) native->length_penalty = LengthPenalty.Value;
            if (IncludeStop.HasValue) native->include_stop = IncludeStop.Value ? 1u : 0u;
            if (MaxWaitUs.HasValue) native->max_wait_us = MaxWaitUs.Value;
            if (CacheSalt.HasValue) native->cache_salt = CacheSalt.Value;
            if (PinPrompt.HasValue) native->pin_prompt = PinPrompt.Value ? 1u : 0u;
            if (Pooling.HasValue) native->pooling = (uint)Pooling.Value;
            if (NumPromptLogprobs.HasValue) native->num_prompt_logprobs = NumPromptLogprobs.Value;
            if (EarlyStopping.HasValue) native->early_stopping = (uint)EarlyStopping.Value;
            if (Structure != null) native->structure = memory.Text(Structure, "Structure");
            if (StructureKind.HasValue) native->structure_kind = (int)StructureKind.Value;
            if (Tools != null) native->tools = memory.Text(Tools, "Tools");
            if (ToolName != null) native->tool_name = memory.Text(ToolName, "ToolName");
            if (ToolChoice.HasValue) native->tool_choice = (int)ToolChoice.Value;
            if (ParallelToolCalls.HasValue) native->parallel_tool_calls = ParallelToolCalls.Value ? 1u : 0u;
            if (StrictTools.HasValue) native->strict_tools = StrictTools.Value ? 1u : 0u;
            if (KeepSpecialTokens.HasValue) native->keep_special_tokens = KeepSpecialTokens.Value ? 1u : 0u;
            if (MaxThinkingTokens.HasValue) native->max_thinking_tokens = MaxThinkingTokens.Value;
            if (DrySequenceBreakers != null) native->dry_sequence_breakers = memory.Texts(DrySequenceBreakers, "DrySequenceBreakers");
            if (DrySequenceBreakers != null) native->num_dry_sequence_breakers = (UIntPtr)DrySequenceBreakers.Length;
            if (DryMultiplier.HasValue) native->dry_multiplier = DryMultiplier.Value;
            if (DryBase.HasValue) native->dry_base = DryBase.Value;
            if (DryAllowedLength.HasValue) native->dry_allowed_length = DryAllowedLength.Value;
            if (DryPenaltyLastN.HasValue) native->dry_penalty_last_n = DryPenaltyLastN.Value;
            if (TopNSigma.HasValue) native->top_n_sigma = TopNSigma.Value;
            if (XtcProbability.HasValue) native->xtc_probability = XtcProbability.Value;
            if (XtcThreshold.HasValue) native->xtc_threshold = XtcThreshold.Value;
            if (EmbeddingDimensions.HasValue) native->embedding_dimensions = EmbeddingDimensions.Value;
            if (ScoreTokens != null) native->score_tokens = (uint*)memory.Pinned(ScoreTokens, ScoreTokens.Length);
            if (ScoreTokens != null) native->num_score_tokens = (UIntPtr)ScoreTokens.Length;
            if (TruncatePromptTokens.HasValue) native->truncate_prompt_tokens = TruncatePromptTokens.Value;
        }

        internal unsafe void Read(nvllm_request_options* native)
        {
            Tag = native->tag;
            MaxTokens = native->max_tokens;
            MinTokens = native->min_tokens;
            Temperature = native->temperature;
            TopP = native->top_p;
            MinP = native->min_p;
            TopK = native->top_k;
            RepetitionPenalty = native->repetition_penalty;
            PresencePenalty = native->presence_penalty;
            FrequencyPenalty = native->frequency_penalty;
            Seed = native->seed;
            IgnoreEos = native->ignore_eos != 0;
            Priority = native->priority;
            NumLogprobs = native->num_logprobs;
            N = native->n;
            BeamWidth = native->beam_width;
            LengthPenalty = native->length_penalty;
            IncludeStop = native->include_stop != 0;
            MaxWaitUs = native->max_wait_us;
            CacheSalt = native->cache_salt;
            PinPrompt = native->pin_prompt != 0;
            Pooling = (Pooling)native->pooling;
            NumPromptLogprobs = native->num_prompt_logprobs;
            EarlyStopping = (EarlyStopping)native->early_stopping;
            StructureKind = (StructureKind)native->structure_kind;
            ToolChoice = (ToolChoice)native->tool_choice;
            ParallelToolCalls = native->parallel_tool_calls != 0;
            StrictTools = native->strict_tools != 0;
            KeepSpecialTokens = native->keep_special_tokens != 0;
            MaxThinkingTokens = native->max_thinking_tokens;
            DryMultiplier = native->dry_multiplier;
            DryBase = native->dry_base;
            DryAllowedLength = native->dry_allowed_length;
            DryPenaltyLastN = native->dry_penalty_last_n;
            TopNSigma = native->top_n_sigma;
            XtcProbability = native->xtc_probability;
            XtcThreshold = native->xtc_threshold;
            EmbeddingDimensions = native->embedding_dimensions;
            TruncatePromptTokens = native->truncate_prompt_tokens;
        }
    }
}
