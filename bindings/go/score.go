package nanovllm

// #include <nanovllm.h>
// #include <stdlib.h>
import "C"

import (
	"context"
	"unsafe"
)

// Score gives a text, or a pair of texts with Second, the scores of a classifier or a reranker: see [Output.Scores], and [Engine.Label] for
// what they are of. Otherwise it is [Engine.GeneratePrompts], where options that pool nothing mean [PoolingAuto], unless they have ScoreTokens: then a model
// that generates gives one score per token, after texts alone.
func (e *Engine) Score(ctx context.Context, texts []Prompt) ([]Output, error) {
	asked := make([]Prompt, len(texts))
	for i, text := range texts {
		var options RequestOptions
		if text.Options != nil {
			options = *text.Options
		}
		if options.Pooling == PoolingNone && len(options.ScoreTokens) == 0 {
			options.Pooling = PoolingAuto
		}
		text.Options = &options
		asked[i] = text
	}
	return e.GeneratePrompts(ctx, asked, nil)
}

// Label returns the name of a label of a classifier, of [ModelInfo.NumLabels].
func (e *Engine) Label(index int) (string, error) {
	return sizedText(e, 256, func(to *byte, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_label(e.native, C.size_t(index), (*C.char)(unsafe.Pointer(to)), room, needed, failed)
	})
}

// NamedPrompt returns what stands before texts of a kind, such as "query", by the model's folder; "" where that names none. An empty name asks
// for the folder's default.
func (e *Engine) NamedPrompt(name string) (string, error) {
	var native *C.char
	if name != "" {
		native = C.CString(name)
		defer C.free(unsafe.Pointer(native))
	}
	return sizedText(e, 1024, func(to *byte, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_named_prompt(e.native, native, (*C.char)(unsafe.Pointer(to)), room, needed, failed)
	})
}
