package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"iter"
	"time"
	"unsafe"
)

// A Finish is the reason why a completion ended.
type Finish int

// The reasons.
const (
	FinishNone      Finish = C.NVLLM_FINISH_NONE      // it has not ended
	FinishStop      Finish = C.NVLLM_FINISH_STOP      // an EOS token, a stop token or a stop string
	FinishLength    Finish = C.NVLLM_FINISH_LENGTH    // MaxTokens, MaxModelLen, or the size of the KV cache
	FinishCancelled Finish = C.NVLLM_FINISH_CANCELLED // [Engine.Cancel], or a context
	FinishError     Finish = C.NVLLM_FINISH_ERROR     // an error
	FinishExpired   Finish = C.NVLLM_FINISH_EXPIRED   // RequestOptions.MaxWait: it never ran
)

// String returns "stop", "length", "cancelled", "error", "expired", or "" if it has not ended.
func (f Finish) String() string {
	switch f {
	case FinishNone:
		return ""
	case FinishStop:
		return "stop"
	case FinishLength:
		return "length"
	case FinishCancelled:
		return "cancelled"
	case FinishError:
		return "error"
	case FinishExpired:
		return "expired"
	}
	return "unknown"
}

// An Output is an increment of one completion of a request: what is new since its last output, and how it ended if it did.
// Those of [Engine.Generate] contain the whole completion.
type Output struct {
	RequestID        uint64
	Tag              uint64 // the tag in its options
	Index            int    // index of the completion within its request
	Text             string // new text, in whole characters
	Tokens           []uint32
	Finish           Finish
	Err              error // if a context cancelled it or an error ended it
	PromptTokens     int
	CachedTokens     int           // prompt tokens that were taken from the prefix cache
	CompletionTokens int           // tokens generated so far, including the stop token
	ReasoningTokens  int           // tokens of reasoning so far, if RequestOptions.MaxThinkingTokens is set
	TimeToFirstToken time.Duration // 0 before the first token
	Logprobs         []float32     // log-probability of each token, or nil
	TopTokens        [][]uint32    // alternatives of each token, or nil
	TopLogprobs      [][]float32   // log-probabilities of the alternatives
	TotalLogprob     float32       // log-probability of the completion so far
	Score            float32       // score of a result of beam search

	// In the first output of a request that requested them: the same for each prompt token except the first, or nil.
	PromptLogprobs    []float32
	PromptTopTokens   [][]uint32
	PromptTopLogprobs [][]float32
	Embedding         []float32 // the pooled embedding, or nil
	Scores            []float32 // of a classifier: one for each label, or nil
}

// FinishReason is Finish, by the name that the other languages have for it.
func (o *Output) FinishReason() Finish { return o.Finish }

// TokenIDs is Tokens, by the name that the other languages have for it.
func (o *Output) TokenIDs() []uint32 { return o.Tokens }

// CumulativeLogprob is TotalLogprob, by the name that the other languages have for it.
func (o *Output) CumulativeLogprob() float32 { return o.TotalLogprob }

// A Delta is an [Output] of a stream.
type Delta = Output

// copyOutput copies an output that is valid in C until the next call.
func copyOutput(shown *C.nvllm_output) Output {
	n, width := int(shown.num_token_ids), int(shown.num_logprobs)
	places, promptWidth := max(0, int(shown.prompt_tokens)-1), int(shown.num_prompt_logprobs)
	out := Output{
		RequestID:        uint64(shown.request_id),
		Tag:              uint64(shown.tag),
		Index:            int(shown.index),
		Text:             string(unsafe.Slice((*byte)(unsafe.Pointer(shown.text)), shown.text_len)),
		Tokens:           copied[uint32](unsafe.Pointer(shown.token_ids), n),
		Finish:           Finish(shown.finish_reason),
		PromptTokens:     int(shown.prompt_tokens),
		CachedTokens:     int(shown.cached_tokens),
		CompletionTokens: int(shown.completion_tokens),
		ReasoningTokens:  int(shown.reasoning_tokens),
		TimeToFirstToken: time.Duration(shown.time_to_first_token_us) * time.Microsecond,
		Logprobs:         copied[float32](unsafe.Pointer(shown.logprobs), n),
		TopTokens:        rows(copied[uint32](unsafe.Pointer(shown.top_tokens), n*width), width),
		TopLogprobs:      rows(copied[float32](unsafe.Pointer(shown.top_logprobs), n*width), width),
		TotalLogprob:     float32(shown.cumulative_logprob),
		Score:            float32(shown.score),

		PromptLogprobs:    copied[float32](unsafe.Pointer(shown.prompt_logprobs), places),
		PromptTopTokens:   rows(copied[uint32](unsafe.Pointer(shown.prompt_top_tokens), places*promptWidth), promptWidth),
		PromptTopLogprobs: rows(copied[float32](unsafe.Pointer(shown.prompt_top_logprobs), places*promptWidth), promptWidth),
		Embedding:         copied[float32](unsafe.Pointer(shown.embedding), int(shown.embedding_len)),
		Scores:            copied[float32](unsafe.Pointer(shown.scores), int(shown.num_scores)),
	}
	if out.Finish == FinishError {
		failed := &Error{Status: Status(shown.status), Message: "no reason given"}
		if shown.error_message != nil {
			failed.Message = C.GoString(shown.error_message)
		}
		out.Err = failed
	}
	return out
}

// copied returns a copy of n values in C's memory, nil if there are none.
func copied[T any](from unsafe.Pointer, n int) []T {
	if from == nil || n == 0 {
		return nil
	}
	return append([]T(nil), unsafe.Slice((*T)(from), n)...)
}

// rows splits values into rows of width values each.
func rows[T any](values []T, width int) [][]T {
	if len(values) == 0 || width == 0 {
		return nil
	}
	cut := make([][]T, 0, len(values)/width)
	for len(values) > 0 {
		cut = append(cut, values[:width:width])
		values = values[width:]
	}
	return cut
}

// numbers returns an output without what is new in it.
func (o *Output) numbers() Output {
	return Output{
		RequestID:        o.RequestID,
		Tag:              o.Tag,
		Index:            o.Index,
		PromptTokens:     o.PromptTokens,
		CachedTokens:     o.CachedTokens,
		CompletionTokens: o.CompletionTokens,
		TimeToFirstToken: o.TimeToFirstToken,
		TotalLogprob:     o.TotalLogprob,
		Score:            o.Score,
	}
}

// merged returns two outputs of one completion as one, with the text of the newer.
func merged(older, newer Output) Output {
	newer.Tokens = append(older.Tokens, newer.Tokens...)
	newer.Logprobs = append(older.Logprobs, newer.Logprobs...)
	newer.TopTokens = append(older.TopTokens, newer.TopTokens...)
	newer.TopLogprobs = append(older.TopLogprobs, newer.TopLogprobs...)
	if newer.PromptLogprobs == nil {
		newer.PromptLogprobs = older.PromptLogprobs
		newer.PromptTopTokens, newer.PromptTopLogprobs = older.PromptTopTokens, older.PromptTopLogprobs
	}
	return newer
}

// Outputs returns the waiting outputs of all requests except those of streams. An error ends the sequence. It excludes no other method:
// while another goroutine is inside [Engine.Run], it returns what that has polled.
func (e *Engine) Outputs() iter.Seq2[Output, error] {
	return func(yield func(Output, error) bool) {
		for {
			out, found := e.inbox.take()
			if !found && e.single.TryLock() {
				err := e.poll()
				e.single.Unlock()
				if err != nil {
					yield(Output{}, err)
					return
				}
				out, found = e.inbox.take()
			}
			if !found || !yield(out, nil) {
				return
			}
		}
	}
}

// poll polls all outputs of the C API. The caller holds single.
func (e *Engine) poll() error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	e.polling.Add(1)
	defer e.polling.Add(-1)
	defer e.inbox.flush()
	for {
		var failed C.nvllm_error
		shown := C.nvllm_output{struct_size: C.sizeof_nvllm_output}
		switch status := C.nvllm_poll_output(e.native, &shown, &failed); status {
		case C.NVLLM_OK:
			e.inbox.deliver(&shown)
		case C.NVLLM_NO_OUTPUT:
			return nil
		default:
			err := errorOf(status, &failed)
			e.inbox.note(err)
			return err
		}
	}
}
