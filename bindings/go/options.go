package nanovllm

// #include <nanovllm.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// RequestOptions are what one request asks for. The zero value of a field is its default, which is greedy and without limits.
//
// Where a method takes options, nil means the sampling that the model's generation_config.json recommends.
type RequestOptions struct {
	Tag               uint64  // echoed in every output
	MaxTokens         int     // tokens to generate at most; default as far as MaxModelLen and the KV cache allow
	MinTokens         int     // tokens before which neither EOS nor a stop token may come
	Temperature       float64 // 0 always takes the likeliest token; greater values vary more
	TopP              float64 // sample from the likeliest tokens that together have this probability; default all
	MinP              float64 // drop tokens less likely than this share of the likeliest one
	TopK              int     // sample from so many of the likeliest tokens; default all
	RepetitionPenalty float64 // default 1
	PresencePenalty   float64
	FrequencyPenalty  float64
	Seed              uint64             // the request's own random stream; default drawn from the engine's seed and the id
	IgnoreEOS         bool               // the model's end tokens are tokens like any other
	Priority          int                // higher runs first
	Stop              []string           // strings that end the answer
	StopTokens        []uint32           // tokens that end the answer, besides EOS
	LogitBias         map[uint32]float32 // added to the logits of these tokens
	NumLogprobs       int                // alternatives of each token to report, besides its own log-probability
	NumPromptLogprobs int                // as NumLogprobs, of the prompt
	N                 int                // completions of this prompt; default 1
	BeamWidth         int                // beam search instead of sampling
	LengthPenalty     float64            // of beam search; default 1
	EarlyStopping     EarlyStopping      // when a beam search ends that has BeamWidth answers
	IncludeStop       bool               // the token that stopped the answer is part of its tokens and text
	MaxWait           time.Duration      // how long it may wait until it first runs; default for ever
	CacheSalt         uint64             // requests with different salts share nothing in the prefix cache
	Pooling           Pooling            // what is made of the prompt instead of generating; default nothing
	StructureKind     StructureKind      // what Structure is; default nothing, and the answer is free
	Structure         string             // what the text of the answer has to be
	PinPrompt         bool               // its prompt stays in the prefix cache until [Engine.ReleasePrefix]
}

// A Pooling says what is made of a prompt's final hidden states.
type Pooling uint32

// The kinds of pooling. With another one than PoolingNone a request has one output, with an [Output.Embedding].
const (
	PoolingNone Pooling = C.NVLLM_POOLING_NONE // the request generates
	PoolingLast Pooling = C.NVLLM_POOLING_LAST // the state of the last token
	PoolingMean Pooling = C.NVLLM_POOLING_MEAN // the mean of all
)

// An EarlyStopping says when a beam search ends that has as many answers as beams.
type EarlyStopping uint32

// The rules for the end of a beam search.
const (
	StopHeuristically EarlyStopping = 0 // when the best beam, at its length, is no better than the worst answer
	StopAtOnce        EarlyStopping = 1
	StopNever         EarlyStopping = 2 // only when no beam can become better than the worst answer
)

// A StructureKind says what kind of text a structure is.
type StructureKind int

// The kinds of structures.
const (
	StructureNone       StructureKind = C.NVLLM_STRUCTURE_NONE        // none: the answer is free
	StructureJSONSchema StructureKind = C.NVLLM_STRUCTURE_JSON_SCHEMA // the answer is JSON that a schema accepts
	StructureRegex      StructureKind = C.NVLLM_STRUCTURE_REGEX       // the whole answer matches a regular expression
	StructureLark       StructureKind = C.NVLLM_STRUCTURE_LARK        // the answer is a sentence of a grammar
)

// completions returns how many there will be.
func (o *RequestOptions) completions() int {
	if o == nil || o.N == 0 {
		return 1
	}
	return o.N
}

// native returns the struct of the C API, nil for nil. What it points to is pinned, or memory of C's that free returns.
func (o *RequestOptions) native(pinner *runtime.Pinner) (options *C.nvllm_request_options, free func()) {
	if o == nil {
		return nil, func() {}
	}
	options = new(C.nvllm_request_options)
	C.nvllm_request_options_init(options, C.sizeof_nvllm_request_options)
	pinner.Pin(options)
	options.tag = C.uint64_t(o.Tag)
	if o.MaxTokens != 0 {
		options.max_tokens = C.uint32_t(o.MaxTokens)
	}
	options.min_tokens = C.uint32_t(o.MinTokens)
	options.temperature = C.float(o.Temperature)
	assign(&options.top_p, o.TopP)
	options.min_p = C.float(o.MinP)
	options.top_k = C.uint32_t(o.TopK)
	assign(&options.repetition_penalty, o.RepetitionPenalty)
	options.presence_penalty = C.float(o.PresencePenalty)
	options.frequency_penalty = C.float(o.FrequencyPenalty)
	options.seed = C.uint64_t(o.Seed)
	options.ignore_eos = flag(o.IgnoreEOS)
	options.priority = C.int32_t(o.Priority)
	options.num_logprobs = C.uint32_t(o.NumLogprobs)
	options.num_prompt_logprobs = C.uint32_t(o.NumPromptLogprobs)
	if o.N != 0 {
		options.n = C.uint32_t(o.N)
	}
	options.beam_width = C.uint32_t(o.BeamWidth)
	assign(&options.length_penalty, o.LengthPenalty)
	options.early_stopping = C.uint32_t(o.EarlyStopping)
	options.include_stop = flag(o.IncludeStop)
	options.max_wait_us = C.uint64_t(max(0, o.MaxWait.Microseconds()))
	options.cache_salt = C.uint64_t(o.CacheSalt)
	options.pin_prompt = flag(o.PinPrompt)
	options.pooling = C.uint32_t(o.Pooling)

	if len(o.StopTokens) > 0 {
		pinner.Pin(&o.StopTokens[0])
		options.stop_tokens = (*C.uint32_t)(&o.StopTokens[0])
		options.num_stop_tokens = C.size_t(len(o.StopTokens))
	}
	if len(o.LogitBias) > 0 {
		tokens := make([]C.uint32_t, 0, len(o.LogitBias))
		values := make([]C.float, 0, len(o.LogitBias))
		for token, value := range o.LogitBias {
			tokens = append(tokens, C.uint32_t(token))
			values = append(values, C.float(value))
		}
		pinner.Pin(&tokens[0])
		pinner.Pin(&values[0])
		options.bias_tokens, options.bias_values = &tokens[0], &values[0]
		options.num_bias = C.size_t(len(tokens))
	}
	var texts []*C.char
	inC := func(text string) *C.char {
		texts = append(texts, C.CString(text))
		return texts[len(texts)-1]
	}
	options.structure_kind = C.int32_t(o.StructureKind)
	if o.Structure != "" {
		options.structure = inC(o.Structure)
	}
	if len(o.Stop) > 0 {
		stop := make([]*C.char, len(o.Stop))
		for i, text := range o.Stop {
			stop[i] = inC(text)
		}
		pinner.Pin(&stop[0])
		options.stop, options.num_stop = &stop[0], C.size_t(len(stop))
	}
	return options, func() {
		for _, text := range texts {
			C.free(unsafe.Pointer(text))
		}
	}
}

// check refuses what the fields of the C API cannot say.
func (o *RequestOptions) check() error {
	if o == nil {
		return nil
	}
	if err := inRange(
		number{"MaxTokens", o.MaxTokens}, number{"MinTokens", o.MinTokens}, number{"TopK", o.TopK},
		number{"NumLogprobs", o.NumLogprobs}, number{"NumPromptLogprobs", o.NumPromptLogprobs}, number{"N", o.N}, number{"BeamWidth", o.BeamWidth}); err != nil {
		return err
	}
	if err := inSignedRange(number{"Priority", o.Priority}, number{"StructureKind", int(o.StructureKind)}); err != nil {
		return err
	}
	for _, text := range o.Stop {
		if err := withoutNUL("Stop", text); err != nil {
			return err
		}
	}
	return withoutNUL("Structure", o.Structure)
}

type number struct {
	name  string
	value int
}

func inRange(numbers ...number) error {
	for _, n := range numbers {
		if n.value < 0 || n.value > math.MaxUint32 {
			message := fmt.Sprintf("%s is %d, but it must be from 0 to %d", n.name, n.value, uint32(math.MaxUint32))
			return &Error{Status: ErrInvalidArgument, Message: message}
		}
	}
	return nil
}

// inSignedRange is inRange for the signed fields of the C API.
func inSignedRange(numbers ...number) error {
	for _, n := range numbers {
		if n.value < math.MinInt32 || n.value > math.MaxInt32 {
			message := fmt.Sprintf("%s is %d, but it must be from %d to %d", n.name, n.value, math.MinInt32, math.MaxInt32)
			return &Error{Status: ErrInvalidArgument, Message: message}
		}
	}
	return nil
}

// withoutNUL refuses a text that C would take for a shorter one.
func withoutNUL(name, text string) error {
	if at := strings.IndexByte(text, 0); at >= 0 {
		return &Error{Status: ErrInvalidArgument, Message: fmt.Sprintf("%s has a NUL byte at %d, but it must have none", name, at)}
	}
	return nil
}

// assign leaves the default where the value is 0.
func assign(field *C.float, value float64) {
	if value != 0 {
		*field = C.float(value)
	}
}
