package nanovllm

// #include <nanovllm.h>
// #include <stdlib.h>
import "C"

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// A Pooling selects how the final hidden states of a prompt become an embedding.
type Pooling uint32

// The kinds of pooling. With any other than PoolingNone, a request has one output, with an [Output.Embedding],
// or of a classifier with [Output.Scores].
const (
	PoolingNone Pooling = C.NVLLM_POOLING_NONE // the request generates
	PoolingLast Pooling = C.NVLLM_POOLING_LAST // the hidden state of the last token
	PoolingMean Pooling = C.NVLLM_POOLING_MEAN // the mean of the hidden states of all tokens
	PoolingCLS  Pooling = C.NVLLM_POOLING_CLS  // the hidden state of the first token; only for encoders
	PoolingAuto Pooling = C.NVLLM_POOLING_AUTO // as the model's folder says; the scores of a classifier
)

// An EarlyStopping selects when a beam search ends once it has as many results as beams.
type EarlyStopping uint32

// The rules for the end of a beam search.
const (
	StopHeuristically EarlyStopping = C.NVLLM_EARLY_STOPPING_HEURISTIC // when the best beam, at its current length, cannot rank above the worst result
	StopAtOnce        EarlyStopping = C.NVLLM_EARLY_STOPPING_AT_ONCE
	StopNever         EarlyStopping = C.NVLLM_EARLY_STOPPING_NEVER // when no beam can rank above the worst result at any length
)

// A StructureKind is a kind of structured output.
type StructureKind int

// The kinds of structures.
const (
	StructureNone       StructureKind = C.NVLLM_STRUCTURE_NONE        // the completion is unconstrained
	StructureJSONSchema StructureKind = C.NVLLM_STRUCTURE_JSON_SCHEMA // the completion satisfies a JSON schema
	StructureRegex      StructureKind = C.NVLLM_STRUCTURE_REGEX       // a regular expression matches the whole completion
	StructureLark       StructureKind = C.NVLLM_STRUCTURE_LARK        // the completion is a sentence of a Lark grammar
)

// DefaultOptions returns the options that nil means: the library's defaults with the sampling that the model's
// generation_config.json recommends. A caller can then change one field and keep the rest.
func (e *Engine) DefaultOptions() (RequestOptions, error) {
	if err := e.enter(); err != nil {
		return RequestOptions{}, err
	}
	defer e.leave()
	var plain C.nvllm_request_options
	var failed C.nvllm_error
	C.nvllm_request_options_init(&plain, C.sizeof_nvllm_request_options)
	recommended := plain
	if status := C.nvllm_default_options(e.native, &recommended, &failed); status != C.NVLLM_OK {
		return RequestOptions{}, errorOf(status, &failed)
	}
	var options RequestOptions
	options.read(&recommended, &plain)
	return options, nil
}

// completions returns the number of completions.
func (o *RequestOptions) completions() int {
	if o == nil || o.N == 0 {
		return 1
	}
	return o.N
}

// native returns the struct of the C API, nil for nil. It points to pinned memory, or to memory of C that free releases.
func (o *RequestOptions) native(pinner *runtime.Pinner) (options *C.nvllm_request_options, free func()) {
	if o == nil {
		return nil, func() {}
	}
	options = new(C.nvllm_request_options)
	C.nvllm_request_options_init(options, C.sizeof_nvllm_request_options)
	pinner.Pin(options)
	o.assign(options)
	if o.MaxThinkingTokens != 0 {
		options.max_thinking_tokens = C.uint32_t(max(o.MaxThinkingTokens, 0))
	}
	if len(o.StopTokens) > 0 {
		pinner.Pin(&o.StopTokens[0])
		options.stop_tokens = (*C.uint32_t)(&o.StopTokens[0])
		options.num_stop_tokens = C.size_t(len(o.StopTokens))
	}
	if len(o.ScoreTokens) > 0 {
		pinner.Pin(&o.ScoreTokens[0])
		options.score_tokens = (*C.uint32_t)(&o.ScoreTokens[0])
		options.num_score_tokens = C.size_t(len(o.ScoreTokens))
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
	if o.Structure != "" {
		options.structure = inC(o.Structure)
	}
	if o.Tools != "" {
		options.tools = inC(o.Tools)
	}
	if o.ToolName != "" {
		options.tool_name = inC(o.ToolName)
	}
	if len(o.Stop) > 0 {
		stop := make([]*C.char, len(o.Stop))
		for i, text := range o.Stop {
			stop[i] = inC(text)
		}
		pinner.Pin(&stop[0])
		options.stop, options.num_stop = &stop[0], C.size_t(len(stop))
	}
	if o.DrySequenceBreakers != nil {
		// An empty list is not NULL, which would be the default.
		breakers := make([]*C.char, len(o.DrySequenceBreakers), len(o.DrySequenceBreakers)+1)
		for i, text := range o.DrySequenceBreakers {
			breakers[i] = inC(text)
		}
		first := &breakers[:1][0]
		pinner.Pin(first)
		options.dry_sequence_breakers, options.num_dry_sequence_breakers = first, C.size_t(len(breakers))
	}
	return options, func() {
		for _, text := range texts {
			C.free(unsafe.Pointer(text))
		}
	}
}

// check refuses values that the fields of the C API cannot represent.
func (o *RequestOptions) check() error {
	if o == nil {
		return nil
	}
	if err := cmp.Or(o.checkRanges(), inRange("MaxThinkingTokens", max(o.MaxThinkingTokens, 0))); err != nil {
		return err
	}
	for _, text := range o.Stop {
		if err := withoutNUL("Stop", text); err != nil {
			return err
		}
	}
	for _, text := range o.DrySequenceBreakers {
		if err := withoutNUL("DrySequenceBreakers", text); err != nil {
			return err
		}
	}
	return cmp.Or(
		withoutNUL("Structure", o.Structure),
		withoutNUL("Tools", o.Tools),
		withoutNUL("ToolName", o.ToolName),
	)
}

func inRange(name string, value int) error {
	if value < 0 || value > math.MaxUint32 {
		message := fmt.Sprintf("%s is %d, but it must be from 0 to %d", name, value, uint32(math.MaxUint32))
		return &Error{Status: ErrInvalidArgument, Message: message}
	}
	return nil
}

// inSignedRange is inRange for the signed fields of the C API.
func inSignedRange(name string, value int) error {
	if value < math.MinInt32 || value > math.MaxInt32 {
		message := fmt.Sprintf("%s is %d, but it must be from %d to %d", name, value, math.MinInt32, math.MaxInt32)
		return &Error{Status: ErrInvalidArgument, Message: message}
	}
	return nil
}

// inTime refuses a negative time, and one that the field of the C API cannot represent.
func inTime(name string, value, most time.Duration) error {
	if value < 0 || value > most {
		message := fmt.Sprintf("%s is %v, but it must be from 0 to %v", name, value, most)
		return &Error{Status: ErrInvalidArgument, Message: message}
	}
	return nil
}

// units returns a time in units, rounded up, so that a short time does not become 0, which means a default.
func units(value, unit time.Duration) int64 {
	whole := int64(value / unit)
	if value%unit > 0 {
		whole++
	}
	return whole
}

// withoutNUL refuses a text that C would cut.
func withoutNUL(name, text string) error {
	if at := strings.IndexByte(text, 0); at >= 0 {
		return &Error{Status: ErrInvalidArgument, Message: fmt.Sprintf("%s has a NUL byte at %d, but it must have none", name, at)}
	}
	return nil
}

// A number of Go or of the C API.
type number interface {
	~int | ~int32 | ~int64 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// set leaves the library's default if the value is 0.
func set[To, From number](field *To, value From) {
	if value != 0 {
		*field = To(value)
	}
}

// read leaves 0 if the value is the library's default.
func read[To, From number](field *To, value, plain From) {
	if value != plain {
		*field = To(value)
	}
}
