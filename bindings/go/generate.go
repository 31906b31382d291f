package nanovllm

/*
#include <nanovllm.h>

// Called after every step. The flag is set from Go, so that C never calls Go.
static int32_t nanovllm_go_is_over(const nvllm_progress *progress, void *flag) {
  (void)progress;
  return __atomic_load_n((const int32_t *)flag, __ATOMIC_RELAXED);
}

static nvllm_generate_progress_fn nanovllm_go_progress(void) { return nanovllm_go_is_over; }
*/
import "C"

import (
	"context"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Generate generates for all prompts in one call, and returns the results in the order of the prompts, as many per prompt as its
// N. There may be no options, one for all prompts, or one per prompt; each may be nil.
//
// A prompt that cannot run has outputs with [FinishError], and the others continue. When ctx ends, its error is returned, and when the
// engine is closed, [ErrClosed].
func (e *Engine) Generate(ctx context.Context, prompts []string, options ...*RequestOptions) ([]Output, error) {
	for _, o := range options {
		if err := o.check(); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := e.begin(); err != nil {
		return nil, err
	}
	defer e.end()
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()

	var pinner runtime.Pinner
	defer pinner.Unpin()
	texts := make([]*C.char, len(prompts))
	lens := make([]C.size_t, len(prompts))
	for i, prompt := range prompts {
		texts[i], lens[i] = text(prompt), C.size_t(len(prompt))
		pinner.Pin(texts[i])
	}
	natives := make([]*C.nvllm_request_options, len(options))
	for i, o := range options {
		native, free := o.native(&pinner)
		defer free()
		natives[i] = native
	}
	isOver := new(atomic.Int32)
	unhook := context.AfterFunc(ctx, func() { isOver.Store(1) })
	defer unhook()
	unhookClose := context.AfterFunc(e.closing, func() { isOver.Store(1) })
	defer unhookClose()

	var made *C.nvllm_result
	var failed C.nvllm_error
	status := C.nvllm_generate(e.native, unsafe.SliceData(texts), unsafe.SliceData(lens), C.size_t(len(prompts)),
		unsafe.SliceData(natives), C.size_t(len(natives)), C.nanovllm_go_progress(),
		unsafe.Pointer(isOver), &made, &failed)
	if status == C.NVLLM_ERR_CANCELLED && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if status == C.NVLLM_ERR_CANCELLED {
		return nil, ErrClosed
	}
	if status != C.NVLLM_OK {
		err := errorOf(status, &failed)
		e.inbox.note(err)
		return nil, err
	}
	defer C.nvllm_result_free(made)

	outputs := make([]Output, C.nvllm_result_count(made))
	for i := range outputs {
		shown := C.nvllm_output{struct_size: C.sizeof_nvllm_output}
		if status := C.nvllm_result_get_with_error(made, C.size_t(i), &shown, &failed); status != C.NVLLM_OK {
			return nil, errorOf(status, &failed)
		}
		outputs[i] = copyOutput(&shown)
	}
	return outputs, nil
}
