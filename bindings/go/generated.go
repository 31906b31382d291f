// Code generated from nanovllm.h by scripts/header.sh; DO NOT EDIT. Change src/capi, then run make header.

package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"cmp"
	"math"
	"time"
)

// A Config is what an engine is opened with. The zero value of a field is its default; only ModelPath has none.
type Config struct {
	// Path of the model: a folder in the layout of Hugging Face, or a GGUF file, of which the first part is given if it is
	// split. NUL-terminated UTF-8. Required, except by [NewFrom], which reads it as a name among its files. Of a GGUF
	// file, a tokenizer.json, tokenizer_config.json, chat_template.jinja or generation_config.json in the same folder is
	// read instead of what the file says about the same.
	ModelPath string

	// Where the engine computes. Default DeviceAuto.
	Device Device

	// Index of the GPU among those that the driver reports. 0 on the CPU. Default 0.
	DeviceIndex int

	// Data type of the weights, and of the KV cache unless KVCacheDType says otherwise. Default DTypeAuto. Quantized
	// weights stay quantized. On a CPU, DTypeF32 computes with their exact values and activations in f32; with any other
	// type, activations are rounded where the processor multiplies integers or bf16 faster: see docs/performance.md.
	DType DType

	// Number of CPU threads that compute, the calling thread included. Default 0: one per core.
	NumThreads int

	// Maximum length of a sequence in tokens, prompt and completion together. Default 0: the model's maximum, but at most
	// 1048576.
	MaxModelLen int

	// Maximum number of sequences that run at once; others wait. Default 0: by device.
	MaxNumSeqs int

	// Maximum number of new tokens per forward pass. Default 0: by device.
	MaxBatchedTokens int

	// Maximum number of waiting requests, where each of their completions counts. A request whose n is greater can never
	// be queued, and is refused. Default 0: MaxQueuedCompletions.
	MaxQueue int

	// Tokens per KV block: a power of two, at most 1024. Default 0: by device.
	KVBlockSize int

	// Whether the prefix cache is off, so that prompts share no KV blocks of common prefixes.
	NoPrefixCache bool

	// Size of the KV cache in bytes, that of all ranks together. Default 0: determined by MemoryUtilization.
	KVCacheBytes uint64

	// Fraction of the device's memory (on the CPU: of the free memory) that this engine may use, above 0 and at most 1.
	// Default 0: by device (CPU: 0.5, CUDA: 0.9).
	MemoryUtilization float64

	// Number of ranks that compute the model together: GPUs, or on the CPU groups of threads, each bound to one NUMA node
	// where there are several. At most the number of query heads of the model. Default 1. On the CPU, every number of
	// ranks gives the same bits; on CUDA if BatchInvariant is 1.
	TensorParallel int

	// Whether CUDA graphs are disabled. No effect on the CPU. Where the engine finds no CUDA context of its GPU in the
	// process, graphs of more than 8 sequences may be recorded in a later step, when a batch of their size first comes.
	// While a graph is recorded, CUDA refuses other threads to wait for the whole device (cudaDeviceSynchronize). A
	// program that uses CUDA itself should begin to before it opens an engine, which then records all graphs while it
	// opens.
	EnforceEager bool

	// Whether the logits of a request are the same bit for bit whatever else is in the batch, and on however many GPUs of
	// one kind. On the CPU they always are; on CUDA it selects slower kernels.
	BatchInvariant bool

	// Seed of the requests that have none. Default 0: drawn from the system.
	Seed uint64

	// How the weights are loaded into memory. Default LoadMap.
	LoadMode LoadMode

	// The GPU of each rank of this process, as DeviceIndex counts them, each at most once. NULL takes DeviceIndex and
	// those after it.
	DeviceIndices []int32

	// Number of processes that compute the model together, each opened with the same options except ProcessIndex and those
	// of its devices and threads. TensorParallel counts the ranks of all of them, and is a multiple. GPUs of several
	// processes exchange through NCCL 2.18 or later, which must be installed: ErrUnsupported without it. Default 0: this
	// one alone.
	NumProcesses int

	// Which of them this is, from 0. Process 0 leads: requests go to it alone. The others are stepped to compute what
	// process 0 schedules, and their functions about requests, completions and cached prefixes return ErrUnsupported.
	// Default 0.
	ProcessIndex int

	// Time that another rank or process may be silent, or that data which it has sent may be missing, before the engine
	// ends with an error. At least 100 milliseconds with several processes. Default: 10 seconds.
	PeerTimeout time.Duration

	// Where process 0 listens and the others find it: "host:port", or "unix:" and an absolute path, which Windows refuses.
	// The connections are neither encrypted nor authenticated: use a private network. Required with several processes.
	Rendezvous string

	// How keys and values are stored in the KV cache. A prefix can be restored only by an engine with the value of the one
	// that saved it. Default KVCacheAuto.
	KVCacheDType KVCacheDType

	// How weights that are not quantized yet are quantized while the engine opens, embedding table and head included.
	// Matrices whose width is no multiple of 32 stay as they are, with a warning in the log. Default QuantizationNone.
	Quantization Quantization

	// Maximum number of bytes that this engine takes on each of its GPUs: weights, KV cache, graphs, buffers, and the CUDA
	// context if the process has none there yet. The KV cache gets what the rest leaves; MemoryUtilization remains a limit
	// too. What the engine takes is measured with NVIDIA's management library, so that other programs should not allocate
	// on the GPU while it opens; without that library the context is assumed to take 640 MiB. ErrOutOfMemory if the budget
	// does not hold the weights and one KV block, or not KVCacheBytes. No effect on the CPU. Default 0: no such limit.
	GPUMemoryBytes uint64

	// For models with recurrent layers: the recurrent state is kept in the prefix cache after each multiple of this number
	// of tokens, and at the end of each prompt. Later requests with the same beginning continue from there. Rounded up to
	// whole KV blocks. Fewer tokens are computed again with a smaller number, and more states are made. Default 0: 1024.
	StateCheckpointInterval uint64

	// For models with experts on a GPU: number of layers whose experts stay in host memory, the last ones that have any.
	// The CPU computes them with NumThreads threads, by default one less than there are cores. A number for which the GPU
	// has too little memory is refused with ErrOutOfMemory, and the message says which one is sufficient. Not with several
	// ranks. Default 0: as many as the GPU has no memory for. -1: none.
	HostExpertLayers int

	// Whether nvllm_expert_tokens counts how many tokens each expert of a model with experts is chosen for. Default 0,
	// because counting is one more kernel per layer on a GPU.
	ExpertStatistics bool

	// With several ranks, whether each rank holds some experts of every layer whole. With 0, each rank holds a share of
	// the width of every expert. With 1, a rank computes the tokens of its own experts, and there must be at least as many
	// experts as ranks. Refused for a model without experts. The results are those of 0, bit for bit, on the CPU and with
	// BatchInvariant. No effect with one rank.
	ExpertParallel bool
}

// assign sets the numbers that are not 0, and leaves every pointer as it is.
func (c *Config) assign(native *C.nvllm_engine_config) {
	set(&native.device_index, c.DeviceIndex)
	set(&native.dtype, c.DType)
	set(&native.num_threads, c.NumThreads)
	set(&native.max_model_len, c.MaxModelLen)
	set(&native.max_num_seqs, c.MaxNumSeqs)
	set(&native.max_batched_tokens, c.MaxBatchedTokens)
	set(&native.max_queue, c.MaxQueue)
	set(&native.kv_block_size, c.KVBlockSize)
	if c.NoPrefixCache {
		native.enable_prefix_cache = 0
	}
	set(&native.kv_cache_bytes, c.KVCacheBytes)
	set(&native.memory_utilization, c.MemoryUtilization)
	set(&native.tensor_parallel_size, c.TensorParallel)
	native.enforce_eager = flag(c.EnforceEager)
	native.batch_invariant = flag(c.BatchInvariant)
	set(&native.seed, c.Seed)
	set(&native.load_mode, c.LoadMode)
	set(&native.num_processes, c.NumProcesses)
	set(&native.process_index, c.ProcessIndex)
	set(&native.peer_timeout_ms, units(c.PeerTimeout, time.Millisecond))
	set(&native.kv_cache_dtype, c.KVCacheDType)
	set(&native.quantization, c.Quantization)
	set(&native.gpu_memory_bytes, c.GPUMemoryBytes)
	set(&native.state_checkpoint_interval, c.StateCheckpointInterval)
	set(&native.host_expert_layers, c.HostExpertLayers)
	native.expert_statistics = flag(c.ExpertStatistics)
	native.expert_parallel = flag(c.ExpertParallel)
}

// checkRanges refuses numbers that the fields of the C API cannot say.
func (c *Config) checkRanges() error {
	return cmp.Or(
		inSignedRange("DeviceIndex", int(c.DeviceIndex)),
		inSignedRange("DType", int(c.DType)),
		inRange("NumThreads", int(c.NumThreads)),
		inRange("MaxModelLen", int(c.MaxModelLen)),
		inRange("MaxNumSeqs", int(c.MaxNumSeqs)),
		inRange("MaxBatchedTokens", int(c.MaxBatchedTokens)),
		inRange("MaxQueue", int(c.MaxQueue)),
		inRange("KVBlockSize", int(c.KVBlockSize)),
		inRange("TensorParallel", int(c.TensorParallel)),
		inSignedRange("LoadMode", int(c.LoadMode)),
		inRange("NumProcesses", int(c.NumProcesses)),
		inRange("ProcessIndex", int(c.ProcessIndex)),
		inTime("PeerTimeout", c.PeerTimeout, math.MaxUint32*time.Millisecond),
		inSignedRange("KVCacheDType", int(c.KVCacheDType)),
		inSignedRange("Quantization", int(c.Quantization)),
		inSignedRange("HostExpertLayers", int(c.HostExpertLayers)),
	)
}

// RequestOptions are what one request asks for. The zero value of a field is its default, which is greedy and without limits.
//
// Where a method takes options, nil means those of [Engine.DefaultOptions], which the model recommends.
type RequestOptions struct {
	// Returned in every output: an index, a pointer, a handle. Default 0.
	Tag uint64

	// Maximum number of tokens to generate, at least 1. Default: limited by MaxModelLen and the KV cache only.
	MaxTokens int

	// Number of tokens before which no EOS token, stop token or end of a stop string may occur. Default 0.
	MinTokens int

	// Sampling temperature. Default 0: always the most likely token. Greater values increase randomness.
	Temperature float64

	// Nucleus sampling: sample from the most likely tokens whose probabilities sum to this value, above 0 and at most 1.
	// Default 1: all tokens.
	TopP float64

	// Drop tokens whose probability is below this fraction of that of the most likely one, from 0 to 1. Default 0: drop
	// none.
	MinP float64

	// Sample from this many of the most likely tokens. Default 0: all tokens.
	TopK int

	// Divides the positive logits, and multiplies the negative logits, of tokens that occur in the prompt or the
	// completion. A finite number above 0, where more than 1 discourages repetition. Default 1: off. As in transformers.
	RepetitionPenalty float64

	// Subtracted from the logit of each token that occurs in the completion. Any finite number. Default 0. As in the
	// OpenAI API.
	PresencePenalty float64

	// Subtracted from the logit of a token once per occurrence in the completion. Any finite number. Default 0. As in the
	// OpenAI API.
	FrequencyPenalty float64

	// Seed of the request's own random stream: the same seed, prompt and options give the same completion. Default 0:
	// derived from the engine's seed and the request's id.
	Seed uint64

	// Whether EOS tokens are treated as ordinary tokens.
	IgnoreEOS bool

	// Requests with a higher priority run first. Default 0.
	Priority int

	// Stop strings. The completion ends when its text contains one; the text ends before the first one to be complete,
	// even if that is inside a token. The tokens that spell the string stay in the output. Needs a tokenizer.
	Stop []string

	// Tokens that end the completion, in addition to EOS.
	StopTokens []uint32

	// Added to the logits of these tokens, after the penalties: finite, or minus infinity to exclude a token. At most
	// MaxBiases.
	LogitBias map[uint32]float32

	// If not 0, outputs contain the log-probability of each token, and those of this many most likely tokens, at most 64.
	// They are the model's own, before penalties, biases, temperature and filters. Default 0.
	NumLogprobs int

	// Number of completions of this prompt, from 1 to MaxCompletions. Default 1. They share the KV blocks of the prompt,
	// which is computed once. Each has its own outputs, which differ by index. Completion i samples as a request with seed
	// + i does.
	N int

	// Number of beams of a beam search. Default 0: sampling. From 2, the n best results are returned as completions 0 to
	// n-1, best first, all at the end. As num_beams in transformers. At most 32, and at most 64 / (1 + number of EOS
	// tokens). Cannot be combined with temperature, penalties, biases, stop strings or NumLogprobs.
	BeamWidth int

	// Beam search: results are ranked by the sum of their log-probabilities divided by their length to the power of this
	// value. More than 0 favours long results. Any finite number. Default 1. 0 means this default: for ranking by the sum
	// alone, set a value close to 0, such as 1e-9.
	LengthPenalty float64

	// Whether the output includes the token that stopped the completion, or the stop string in its text.
	IncludeStop bool

	// Time that the request may wait until it first runs. The first step after that ends it with FinishExpired. Default 0:
	// no limit.
	MaxWait time.Duration

	// Requests with different salts share no KV blocks, so that no tenant can infer another one's prompts from timing.
	// Default 0, which is a salt like any other.
	CacheSalt uint64

	// Whether the full KV blocks of the prompt stay in the prefix cache after the request has ended, until
	// [Engine.ReleasePrefix]. Pinned blocks may take at most the KV cache minus what one sequence of MaxModelLen tokens
	// needs, so that no request waits forever; beyond that the request is refused with ErrOutOfMemory.
	PinPrompt bool

	// How the prompt becomes an embedding. Default PoolingNone. With any other value the request generates nothing, and
	// its only output has the embedding and FinishStop; n must be 1, BeamWidth must be 0, and options of generation are
	// ignored.
	Pooling Pooling

	// As NumLogprobs, for the prompt. The output with the first token contains them, that of completion 0 if n is more
	// than 1. The whole prompt is then computed without the prefix cache, with at most MaxNumSeqs + 64 of its tokens per
	// pass. Default 0.
	NumPromptLogprobs int

	// When a beam search ends once it has as many results as beams. Default StopHeuristically.
	EarlyStopping EarlyStopping

	// The schema, expression or grammar that constrains the completion, of the kind StructureKind, at most
	// MaxStructureBytes. If it is refused, the message says why. Compiled structures are cached.
	Structure string

	// What Structure is. Default StructureNone. The other options apply to the tokens that the structure allows. The
	// structure may end the completion before MinTokens if nothing can follow; stop strings, stop tokens and MaxTokens may
	// end it before the structure is complete. A completion that cannot continue ends with FinishError. Needs a tokenizer.
	StructureKind StructureKind

	// Tools that the model may call: a JSON array of {"type": "function", "function": {"name", "description",
	// "parameters"}}, as in the OpenAI API, or of the inner objects, at most MaxMessagesBytes. Where messages are rendered
	// with these options, as by [Engine.AddChat], the chat template gets them as "tools", unless its options have "tools".
	// To read the calls, set KeepSpecialTokens and use a [AnswerParser]. Needs a tokenizer.
	Tools string

	// The name of the tool that is called with ToolChoiceNamed.
	ToolName string

	// Which of tools the completion calls. Default ToolChoiceAuto.
	ToolChoice ToolChoice

	// Whether the completion may have at most one call.
	NoParallelToolCalls bool

	// Whether the arguments of a call are any JSON object. Else they follow the schema of its tool. A tool with a "strict"
	// of its own decides for itself.
	NoStrictTools bool

	// Whether the text of outputs has special tokens, spelled out. A [AnswerParser] needs them.
	KeepSpecialTokens bool

	// Number of tokens of reasoning after which its end is forced. 0: no limit, and Output.ReasoningTokens is 0. Below 0:
	// the end is forced at once. A model whose answers have no reasoning is not limited. Cannot be combined with
	// StructureKind or BeamWidth. Needs a tokenizer.
	MaxThinkingTokens int

	// DRY: strings across which no repetition extends. Default NULL: newline, colon, quotation mark and asterisk, as in
	// llama.cpp; an empty list that is not NULL is none. A list needs a tokenizer. Without one, or with one that does not
	// decode token by token, the default has no effect.
	DrySequenceBreakers []string

	// DRY, a penalty of repetitions. If the last n tokens occurred before, DryMultiplier * DryBase^(n - DryAllowedLength)
	// is subtracted from the logit of the token that followed them there. The greatest such n counts, if it is at least
	// DryAllowedLength. A finite number, not negative. Default 0: off. Applies after the other penalties and the biases,
	// before temperature and filters. As in llama.cpp; the formula is that of
	// github.com/oobabooga/text-generation-webui/pull/5677. The request waits for each token before its next pass is
	// scheduled, as one with a structure does. Cannot be combined with BeamWidth.
	DryMultiplier float64

	// DRY: the base, a finite number of at least 1. Default 1.75.
	DryBase float64

	// DRY: the length from which on a repetition is penalized, at least 1. Default 2.
	DryAllowedLength int

	// DRY: number of last tokens of prompt and completion that are looked at, at least 1. Default: all.
	DryPenaltyLastN int

	// Top-n-sigma: drop tokens whose logit is more than this many standard deviations below the greatest. Any finite
	// number. Default 0: off, as is less. The deviation is that of all logits that are not excluded, after penalties and
	// biases; the temperature does not change what is kept. Distances of more than 512 from the greatest logit count as
	// 512. The filters apply in this order: TopNSigma, TopK, TopP, MinP, XTC. As in llama.cpp; the formula is that of
	// arxiv.org/abs/2411.07641.
	TopNSigma float64

	// XTC: the probability, from 0 to 1, with which a token is sampled without the most likely ones. All tokens with a
	// probability of at least XtcThreshold are then dropped, except the least likely of them and those that are as likely.
	// Default 0: never. Drawn from the seed and the position of the token. Probabilities are those that temperature and
	// other filters leave; llama.cpp applies the temperature later. No effect at temperature 0. The rule is that of
	// github.com/oobabooga/text-generation-webui/pull/6335.
	XtcProbability float64

	// XTC: the probability from which on tokens are dropped, above 0 and at most 1. Default 0.1. More than 0.5 is off,
	// because no two tokens reach it.
	XtcThreshold float64

	// The number of leading values of the embedding that are returned, from 1 to all of them, normalized again where the
	// model normalizes its embeddings: for models that were trained for it (Matryoshka). Default 0: all.
	EmbeddingDimensions int

	// Tokens whose probabilities after the prompt are asked for, each once: the request generates nothing. scores of its
	// output has their probabilities among these tokens alone, which add up to 1, and cumulative_logprob the logarithm of
	// their sum among all tokens. So a model that answers yes or no ranks texts: see nvllm_score.
	ScoreTokens []uint32

	// Cuts a longer prompt to this number of tokens instead of refusing it. Tokens around a text stay, and of a pair the
	// longer text is cut first. UINT32_MAX: to the most that the model takes, with PoolingAuto at most to max_seq_length
	// of its folder. For requests that generate nothing. Default 0: no prompt is cut.
	TruncatePromptTokens int
}

// assign sets the numbers that are not 0, and leaves every pointer as it is.
func (o *RequestOptions) assign(native *C.nvllm_request_options) {
	set(&native.tag, o.Tag)
	set(&native.max_tokens, o.MaxTokens)
	set(&native.min_tokens, o.MinTokens)
	set(&native.temperature, o.Temperature)
	set(&native.top_p, o.TopP)
	set(&native.min_p, o.MinP)
	set(&native.top_k, o.TopK)
	set(&native.repetition_penalty, o.RepetitionPenalty)
	set(&native.presence_penalty, o.PresencePenalty)
	set(&native.frequency_penalty, o.FrequencyPenalty)
	set(&native.seed, o.Seed)
	native.ignore_eos = flag(o.IgnoreEOS)
	set(&native.priority, o.Priority)
	set(&native.num_logprobs, o.NumLogprobs)
	set(&native.n, o.N)
	set(&native.beam_width, o.BeamWidth)
	set(&native.length_penalty, o.LengthPenalty)
	native.include_stop = flag(o.IncludeStop)
	set(&native.max_wait_us, units(o.MaxWait, time.Microsecond))
	set(&native.cache_salt, o.CacheSalt)
	native.pin_prompt = flag(o.PinPrompt)
	set(&native.pooling, o.Pooling)
	set(&native.num_prompt_logprobs, o.NumPromptLogprobs)
	set(&native.early_stopping, o.EarlyStopping)
	set(&native.structure_kind, o.StructureKind)
	set(&native.tool_choice, o.ToolChoice)
	if o.NoParallelToolCalls {
		native.parallel_tool_calls = 0
	}
	if o.NoStrictTools {
		native.strict_tools = 0
	}
	native.keep_special_tokens = flag(o.KeepSpecialTokens)
	set(&native.dry_multiplier, o.DryMultiplier)
	set(&native.dry_base, o.DryBase)
	set(&native.dry_allowed_length, o.DryAllowedLength)
	set(&native.dry_penalty_last_n, o.DryPenaltyLastN)
	set(&native.top_n_sigma, o.TopNSigma)
	set(&native.xtc_probability, o.XtcProbability)
	set(&native.xtc_threshold, o.XtcThreshold)
	set(&native.embedding_dimensions, o.EmbeddingDimensions)
	set(&native.truncate_prompt_tokens, o.TruncatePromptTokens)
}

// checkRanges refuses numbers that the fields of the C API cannot say.
func (o *RequestOptions) checkRanges() error {
	return cmp.Or(
		inRange("MaxTokens", int(o.MaxTokens)),
		inRange("MinTokens", int(o.MinTokens)),
		inRange("TopK", int(o.TopK)),
		inSignedRange("Priority", int(o.Priority)),
		inRange("NumLogprobs", int(o.NumLogprobs)),
		inRange("N", int(o.N)),
		inRange("BeamWidth", int(o.BeamWidth)),
		inTime("MaxWait", o.MaxWait, math.MaxInt64),
		inRange("NumPromptLogprobs", int(o.NumPromptLogprobs)),
		inSignedRange("StructureKind", int(o.StructureKind)),
		inSignedRange("ToolChoice", int(o.ToolChoice)),
		inRange("DryAllowedLength", int(o.DryAllowedLength)),
		inRange("DryPenaltyLastN", int(o.DryPenaltyLastN)),
		inRange("EmbeddingDimensions", int(o.EmbeddingDimensions)),
		inRange("TruncatePromptTokens", int(o.TruncatePromptTokens)),
	)
}

// read sets the fields whose numbers are not those of plain, so that what is the library's default stays 0.
func (o *RequestOptions) read(native, plain *C.nvllm_request_options) {
	read(&o.Tag, native.tag, plain.tag)
	read(&o.MaxTokens, native.max_tokens, plain.max_tokens)
	read(&o.MinTokens, native.min_tokens, plain.min_tokens)
	read(&o.Temperature, native.temperature, plain.temperature)
	read(&o.TopP, native.top_p, plain.top_p)
	read(&o.MinP, native.min_p, plain.min_p)
	read(&o.TopK, native.top_k, plain.top_k)
	read(&o.RepetitionPenalty, native.repetition_penalty, plain.repetition_penalty)
	read(&o.PresencePenalty, native.presence_penalty, plain.presence_penalty)
	read(&o.FrequencyPenalty, native.frequency_penalty, plain.frequency_penalty)
	read(&o.Seed, native.seed, plain.seed)
	o.IgnoreEOS = native.ignore_eos != 0
	read(&o.Priority, native.priority, plain.priority)
	read(&o.NumLogprobs, native.num_logprobs, plain.num_logprobs)
	read(&o.N, native.n, plain.n)
	read(&o.BeamWidth, native.beam_width, plain.beam_width)
	read(&o.LengthPenalty, native.length_penalty, plain.length_penalty)
	o.IncludeStop = native.include_stop != 0
	o.MaxWait = time.Duration(native.max_wait_us) * time.Microsecond
	read(&o.CacheSalt, native.cache_salt, plain.cache_salt)
	o.PinPrompt = native.pin_prompt != 0
	read(&o.Pooling, native.pooling, plain.pooling)
	read(&o.NumPromptLogprobs, native.num_prompt_logprobs, plain.num_prompt_logprobs)
	read(&o.EarlyStopping, native.early_stopping, plain.early_stopping)
	read(&o.StructureKind, native.structure_kind, plain.structure_kind)
	read(&o.ToolChoice, native.tool_choice, plain.tool_choice)
	o.NoParallelToolCalls = native.parallel_tool_calls == 0
	o.NoStrictTools = native.strict_tools == 0
	o.KeepSpecialTokens = native.keep_special_tokens != 0
	read(&o.DryMultiplier, native.dry_multiplier, plain.dry_multiplier)
	read(&o.DryBase, native.dry_base, plain.dry_base)
	read(&o.DryAllowedLength, native.dry_allowed_length, plain.dry_allowed_length)
	read(&o.DryPenaltyLastN, native.dry_penalty_last_n, plain.dry_penalty_last_n)
	read(&o.TopNSigma, native.top_n_sigma, plain.top_n_sigma)
	read(&o.XtcProbability, native.xtc_probability, plain.xtc_probability)
	read(&o.XtcThreshold, native.xtc_threshold, plain.xtc_threshold)
	read(&o.EmbeddingDimensions, native.embedding_dimensions, plain.embedding_dimensions)
	read(&o.TruncatePromptTokens, native.truncate_prompt_tokens, plain.truncate_prompt_tokens)
}

// Stats are counters since the engine opened, and gauges of now.
type Stats struct {
	// Forward passes that have finished. nanovllm_passes_total of nvllm_metrics_text is this number, and num_iterations of
	// nvllm_step_result what one call of nvllm_step adds to it.
	Steps uint64

	// Prompt tokens that were computed.
	PromptTokens uint64

	// Prompt tokens that were taken from the prefix cache, or from another completion.
	CachedTokens uint64

	// Tokens that were generated.
	GeneratedTokens uint64

	// Preemptions: how often a sequence had to give up its KV blocks.
	Preemptions uint64

	// Microseconds spent in forward passes.
	StepMicros uint64

	// Sequences that are running.
	Running int

	// Requests that are waiting; each of their completions counts.
	Waiting int

	// Blocks of the KV cache.
	KVBlocksTotal int

	// Blocks of the KV cache that sequences use or that are pinned. If every layer of the model has a sliding window, a
	// sequence releases the blocks before its window; if some layers have one, these have blocks of their own, and a
	// sequence holds those of its last window.
	KVBlocksUsed int

	// Log messages that were dropped because no call took them, in the whole process.
	LogMessagesDropped uint64

	// Tokens that were looked up in the prefix cache: all tokens of a sequence each time it starts to run, so again after
	// a preemption.
	CacheQueries uint64

	// Tokens that were found in the prefix cache and need not be computed.
	CacheHits uint64

	// Blocks that were evicted from the prefix cache.
	CacheEvictions uint64

	// Blocks reserved by pinned prompts; a block counts once per prompt that has it.
	KVBlocksPinned int

	// Bytes of GPU memory that the engine took or set aside when it opened, everything included, on the GPU where they are
	// most: see GPUMemoryBytes of nvllm_engine_config. Without such a budget, a CUDA context that the engine made counts
	// as 640 MiB. 0 on the CPU.
	GPUMemoryBytes uint64

	// Bytes of the KV cache that have memory now. On a GPU all of it, but for what nvllm_trim gave back. On the CPU, the
	// blocks that were used since the engine opened or since nvllm_trim; a block counts whole. 0 in a process that follows
	// another one.
	KVCacheBytesMapped uint64

	// Tokens that were found in the prefix cache and are computed all the same, because the model has recurrent layers and
	// no checkpoint of their state is behind these tokens: at most about StateCheckpointInterval each time a sequence
	// starts to run. Or because some of its layers have a sliding window, and the blocks of the window before were reused.
	// Not part of CacheHits. 0 for other models.
	PrefixCacheRecomputed uint64
}

func copyStats(native *C.nvllm_stats) (s Stats) {
	s.Steps = uint64(native.steps)
	s.PromptTokens = uint64(native.prompt_tokens)
	s.CachedTokens = uint64(native.cached_tokens)
	s.GeneratedTokens = uint64(native.generated_tokens)
	s.Preemptions = uint64(native.preemptions)
	s.StepMicros = uint64(native.step_time_us)
	s.Running = int(native.running)
	s.Waiting = int(native.waiting)
	s.KVBlocksTotal = int(native.kv_blocks_total)
	s.KVBlocksUsed = int(native.kv_blocks_used)
	s.LogMessagesDropped = uint64(native.log_messages_dropped)
	s.CacheQueries = uint64(native.prefix_cache_queries)
	s.CacheHits = uint64(native.prefix_cache_hits)
	s.CacheEvictions = uint64(native.prefix_cache_evictions)
	s.KVBlocksPinned = int(native.kv_blocks_pinned)
	s.GPUMemoryBytes = uint64(native.gpu_memory_bytes)
	s.KVCacheBytesMapped = uint64(native.kv_cache_bytes_mapped)
	s.PrefixCacheRecomputed = uint64(native.prefix_cache_recomputed)
	return s
}
