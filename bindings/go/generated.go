// Code generated from nanovllm.h by scripts/header.sh; DO NOT EDIT. Change src/ffi, then run make header.

package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"cmp"
	"time"
)

// A Config is what an engine is opened with. The zero value of a field is its default; only ModelPath has none.
type Config struct {
	// The model folder as Hugging Face lays it out. Required.
	ModelPath string

	// Default DeviceAuto.
	Device Device

	// Which GPU of those the driver shows; 0 on the CPU.
	DeviceIndex int

	// Default DTypeAuto.
	DType DType

	// Threads that compute, the one that steps included; 0 = all cores.
	NumThreads int

	// Tokens of one sequence, prompt and answer together; 0 = the model's maximum, but at most 1048576.
	MaxModelLen int

	// Sequences that run at once; others wait; 0 = default of the device.
	MaxNumSeqs int

	// New tokens in one forward pass; 0 = default of the device.
	MaxBatchedTokens int

	// Requests that may wait, each of their completions counted; 0 = MaxQueuedCompletions. A request whose n is greater
	// can never be queued, and is refused as such.
	MaxQueue int

	// Tokens of a KV block; 0 = default of the device.
	KVBlockSize int

	// Unless it is set: prompts share the KV blocks of equal beginnings.
	NoPrefixCache bool

	// Bytes for the KV cache; 0 = by MemoryUtilization.
	KVCacheBytes uint64

	// Share of the device's memory (on the CPU: of the free memory) this engine may hold, up to 1; 0 = default of the
	// device (CPU: 0.5, CUDA: 0.9).
	MemoryUtilization float64

	// GPUs that share the work; default 1, and the CPU takes no other.
	TensorParallel int

	// 0 or 1: no CUDA graphs. On the CPU it changes nothing.
	EnforceEager bool

	// 0 or 1: the same logits whatever else is in the batch, bit for bit. On the CPU it is always so; on CUDA it takes slower
	// kernels.
	BatchInvariant bool

	// Seed of requests that bring none; 0 = drawn from the system.
	Seed uint64

	// Default LoadMap.
	LoadMode LoadMode
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
	)
}

// RequestOptions are what one request asks for. The zero value of a field is its default, which is greedy and without limits.
//
// Where a method takes options, nil means those of [Engine.DefaultOptions], which the model recommends.
type RequestOptions struct {
	// Echoed in every output: an index, a pointer, a handle.
	Tag uint64

	// Tokens to generate at most, from 1; default UINT32_MAX, which is as far as MaxModelLen and the KV cache allow.
	MaxTokens int

	// Tokens before which neither EOS nor a stop token nor the end of a stop string may come; default 0.
	MinTokens int

	// 0, the default, always takes the likeliest token; greater values vary more.
	Temperature float64

	// Sample from the likeliest tokens that together have this probability, above 0 and up to 1; default 1 = all.
	TopP float64

	// Drop tokens less likely than this share of the likeliest one, 0 to 1; default 0 = none.
	MinP float64

	// Sample from so many of the likeliest tokens; default 0 = all.
	TopK int

	// Divides the positive logits of tokens that the prompt or the answer has, and multiplies their negative ones: above 0,
	// and more than 1 makes them rarer; default 1 = off. As in transformers.
	RepetitionPenalty float64

	// Is taken from the logit of each token that the answer has; any finite number, default 0. As in the OpenAI API.
	PresencePenalty float64

	// Is taken from the logit of a token once for each time that the answer has it; any finite number, default 0.
	FrequencyPenalty float64

	// The request's own random stream: the same seed, prompt and options give the same answer. 0, the default, draws from
	// the engine's seed and the request's id.
	Seed uint64

	// 0 or 1: the model's end tokens are tokens like any other; default 0.
	IgnoreEOS bool

	// Higher runs first; default 0.
	Priority int

	// Strings that end the answer: its text ends before the first of them to be complete, also where
	// tokens cut it. [Output.Tokens] have all tokens, those that spell the string too. Needs a tokenizer.
	Stop []string

	// Tokens that end the answer, besides EOS.
	StopTokens []uint32

	// Added to the logits of these tokens, after the penalties: finite, or minus infinity for a token that never comes.
	// At most MaxBiases.
	LogitBias map[uint32]float32

	// 0, the default, is none; else outputs bring the log-probability of each token and those of so many of the likeliest, up
	// to 64. They are the model's own: before penalties, biases, temperature and filters.
	NumLogprobs int

	// Completions of this prompt, 1 to MaxCompletions; default 1. They share the KV blocks of the prompt, which is computed once, and
	// each has its own outputs, told apart by index. Completion i draws as a request with seed + i does.
	N int

	// 0, the default, is sampling; from 2 on beam search with so many beams, whose n best answers come as completions 0 to
	// n - 1, best first, all at the end. As transformers' num_beams. At most 32, and 64 / (1 + end tokens). It takes neither
	// temperature, penalties, biases, stop strings nor NumLogprobs.
	BeamWidth int

	// Answers of beam search are compared by the sum of their log-probabilities divided by their length to the power of this:
	// more than 0 favours long ones; any finite number, default 1.
	LengthPenalty float64

	// 0 or 1: the token that stopped the answer is part of its tokens and text, or the string of its text; default 0.
	IncludeStop bool

	// How long the request may wait until it first runs: a step that finds it waiting after that ends it with
	// FinishExpired. 0, the default, is for ever.
	MaxWait time.Duration

	// Requests with different salts share no KV blocks, so that no tenant can tell by time what another one has asked.
	// Default 0, which is a salt like any other.
	CacheSalt uint64

	// 0 or 1: the full KV blocks of the prompt stay in the prefix cache when the request has ended, until
	// [Engine.ReleasePrefix]; default 0. All pins together may take what a sequence of MaxModelLen tokens leaves of the KV
	// cache, so that no request waits for ever; beyond that the answer is ErrOutOfMemory.
	PinPrompt bool

	// Default PoolingNone. With another value the request generates nothing, and its one output has an
	// embedding of the prompt and FinishStop; n must be 1, BeamWidth 0, and what concerns generating is not looked at.
	Pooling Pooling

	// As NumLogprobs, of the prompt: the output with the first token brings them, of completion 0 where n is more. All of the
	// prompt is computed then, without the prefix cache, and MaxNumSeqs tokens of it in a pass at most.
	NumPromptLogprobs int

	// When beam search ends that has as many answers as beams: 0, the default, when the best beam, at its length, is no better
	// than the worst of them; 1 at once; 2 when no beam can become better than the worst of them. As transformers'
	// EarlyStopping False, True and "never".
	EarlyStopping EarlyStopping

	// What the text of the answer has to be, of the kind that StructureKind says of at most
	// MaxStructureBytes; default NULL. A refusal
	// says what is wrong with it. A text that came before is not compiled again.
	Structure string

	// Default StructureNone. Of the tokens that the structure leaves, the other options
	// choose. It may end the answer before MinTokens, where nothing can follow; stop strings, stop tokens and MaxTokens
	// may end it before it is complete. An answer that cannot go on ends with FinishError. Needs a tokenizer.
	StructureKind StructureKind
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
	set(&native.max_wait_us, max(0, o.MaxWait.Microseconds()))
	set(&native.cache_salt, o.CacheSalt)
	native.pin_prompt = flag(o.PinPrompt)
	set(&native.pooling, o.Pooling)
	set(&native.num_prompt_logprobs, o.NumPromptLogprobs)
	set(&native.early_stopping, o.EarlyStopping)
	set(&native.structure_kind, o.StructureKind)
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
		inRange("NumPromptLogprobs", int(o.NumPromptLogprobs)),
		inSignedRange("StructureKind", int(o.StructureKind)),
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
}

// Stats are counters since the engine opened, and gauges of now.
type Stats struct {
	// Forward passes.
	Steps uint64

	// Prompt tokens computed.
	PromptTokens uint64

	// Prompt tokens taken over from the prefix cache, or from another completion.
	CachedTokens uint64

	// Tokens generated.
	GeneratedTokens uint64

	// Sequences that had to give their KV blocks back.
	Preemptions uint64

	// Microseconds spent in passes.
	StepMicros uint64

	// Sequences that run.
	Running int

	// Requests that wait; each of their completions counts.
	Waiting int

	// Blocks of the KV cache.
	KVBlocksTotal int

	// Of these, held by sequences or pinned.
	KVBlocksUsed int

	// Messages that the log lost because nobody took them, over the whole process.
	LogMessagesDropped uint64

	// Tokens looked up in the prefix cache: all of a sequence each time it begins to run, so again after a preemption.
	CacheQueries uint64

	// Of these, tokens that were found and need not be computed.
	CacheHits uint64

	// Blocks that the prefix cache lost because they were needed for something else.
	CacheEvictions uint64

	// Blocks promised to pinned prompts; a block counts for each prompt that has it.
	KVBlocksPinned int
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
	return s
}
