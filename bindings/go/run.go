package nanovllm

/*
#include <nanovllm.h>
#cgo noescape nvllm_wait
#cgo nocallback nvllm_wait
#cgo noescape nvllm_wake
#cgo nocallback nvllm_wake
*/
import "C"

import (
	"context"
	"iter"
)

// Run steps the engine whenever there is work, until ctx ends or the engine fails or is closed, and returns the reason.
// It is meant for a goroutine of its own:
//
//	go engine.Run(ctx)
//
// When it ends, so do all streams, with the same error. A stream that begins later waits for whoever steps next, such as another Run; it
// fails if the engine can only be closed, as after [ErrDevice].
//
// In a process that follows, it computes what process 0 schedules, and ends with [Closed] when process 0 has closed its engine.
func (e *Engine) Run(ctx context.Context) error {
	if e.closing.Err() != nil {
		return ErrClosed
	}
	if !e.turn.run() {
		return busy()
	}
	defer e.turn.endRun()
	err := e.run(ctx)
	for _, id := range e.inbox.endStreams(err) {
		// It may have ended meanwhile, and the engine may be closed.
		_ = e.Cancel(id)
	}
	return err
}

func (e *Engine) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, e.wakeUp)()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if isIdle, err := e.wait(); err != nil {
			return err
		} else if isIdle {
			continue
		}
		if err := e.serve(); err != nil {
			return err
		}
	}
}

// serve is pass for Run. Between two of them, others call what the header marks [one].
func (e *Engine) serve() error {
	e.single.Lock()
	defer e.single.Unlock()
	if _, err := e.step(e.serveTime); err != nil || e.serveTime > 0 {
		return err
	}
	return e.poll()
}

// wait sleeps until there is something to do, or until wakeUp is called; then the engine is idle.
func (e *Engine) wait() (isIdle bool, err error) {
	if e.closing.Err() != nil {
		return false, ErrClosed
	}
	if err := e.enter(); err != nil {
		return false, err
	}
	defer e.leave()
	var failed C.nvllm_error
	status := C.nvllm_wait(e.native, C.UINT64_MAX, &failed)
	if status < 0 {
		err := errorOf(status, &failed)
		e.inbox.note(err)
		return false, err
	}
	return status == C.NVLLM_TIMEOUT, nil
}

// wakeUp ends a wait that is in progress, or else the next one.
func (e *Engine) wakeUp() {
	if e.enter() != nil {
		return
	}
	defer e.leave()
	_ = C.nvllm_wake(e.native, nil)
}

// Stream queues a prompt and returns a channel of its outputs, which is closed after the last one. Another goroutine must step the
// engine, usually by [Engine.Run].
//
// A slow receiver delays nothing: outputs that it has not taken are merged. When ctx ends, the request is cancelled, and the last
// delta has [FinishCancelled] and the context's error.
func (e *Engine) Stream(ctx context.Context, prompt string, options *RequestOptions) (<-chan Delta, error) {
	return e.stream(ctx, textPrompt(prompt), options)
}

// StreamTokens is [Engine.Stream] for a prompt of tokens.
func (e *Engine) StreamTokens(ctx context.Context, tokens []uint32, options *RequestOptions) (<-chan Delta, error) {
	return e.stream(ctx, tokenPrompt(tokens), options)
}

// StreamPair is [Engine.Stream] for a pair of texts, which a classifier or a reranker scores: set Pooling to [PoolingAuto].
func (e *Engine) StreamPair(ctx context.Context, text, second string, options *RequestOptions) (<-chan Delta, error) {
	return e.stream(ctx, pairPrompt{text, second}, options)
}

func (e *Engine) stream(ctx context.Context, p prompt, options *RequestOptions) (<-chan Delta, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	r := newStream(options)
	id, err := e.add(p, options, r)
	if err != nil {
		return nil, err
	}
	unhook := context.AfterFunc(ctx, func() {
		e.inbox.endStream(r, ctx.Err())
		// It may have ended meanwhile.
		_ = e.Cancel(id)
	})
	e.inbox.hook(r, unhook)
	return r.deltas, nil
}

// Answer is [Engine.Stream] for a range loop, which may be left at any time; that cancels the request.
func (e *Engine) Answer(ctx context.Context, prompt string, options *RequestOptions) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		deltas, err := e.Stream(ctx, prompt, options)
		if err != nil {
			yield(Delta{}, err)
			return
		}
		for delta := range deltas {
			if !yield(delta, delta.Err) {
				return
			}
		}
	}
}
