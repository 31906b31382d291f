package nanovllm

/*
#include <nanovllm.h>
#include <stdlib.h>
#cgo noescape nvllm_step
#cgo nocallback nvllm_step
#cgo noescape nvllm_poll_output
#cgo nocallback nvllm_poll_output
#cgo noescape nvllm_is_finished
#cgo nocallback nvllm_is_finished
#cgo noescape nvllm_add_request
#cgo nocallback nvllm_add_request
#cgo noescape nvllm_add_request_tokens
#cgo nocallback nvllm_add_request_tokens
#cgo noescape nvllm_cancel_with_error
#cgo nocallback nvllm_cancel_with_error
*/
import "C"

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// An Engine is a model, its tokenizer, its KV cache, and a scheduler. [New] opens one, [Engine.Close] destroys it.
type Engine struct {
	// Every call into C holds a read lock, so that Close waits for the calls. Only Close wants the write lock.
	life    sync.RWMutex
	native  *C.nvllm_engine // nil when closed
	cleanup runtime.Cleanup
	pinner  *runtime.Pinner // the files of the model that are memory of Go; nil if there are none

	// Who is inside Run, or inside Step or a method of the same kind. Callers ask for it and never wait for it.
	turn turn
	// Held around the calls into C that the header marks [one], for one pass or a poll at most. Outputs tries it, and all others wait.
	single sync.Mutex
	// Goroutines that move outputs from C to the inbox.
	polling atomic.Int32
	// Done when Close begins.
	closing context.Context
	close   context.CancelFunc

	inbox inbox

	// Of a process that follows: how long a call of Run serves before it looks at its context. Else 0.
	serveTime time.Duration
}

// serveTime of a process that follows.
const serveTime = 100 * time.Millisecond

// New opens a model folder or a GGUF file. Most of the time is spent reading the files.
func New(config Config) (*Engine, error) {
	return open(config, nil, func(config *C.nvllm_engine_config, opened **C.nvllm_engine, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_engine_new(config, opened, failed)
	})
}

// An opener opens an engine.
type opener func(config *C.nvllm_engine_config, opened **C.nvllm_engine, failed *C.nvllm_error) C.nvllm_status

// open opens an engine that uses what pinner pins, if that is not nil.
func open(config Config, pinner *runtime.Pinner, opener opener) (*Engine, error) {
	if err := checkABI(uint32(C.nvllm_abi_version())); err != nil {
		return nil, err
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	native := config.native()
	native.model_path = C.CString(config.ModelPath)
	defer C.free(unsafe.Pointer(native.model_path))
	if config.Rendezvous != "" {
		native.rendezvous = C.CString(config.Rendezvous)
		defer C.free(unsafe.Pointer(native.rendezvous))
	}
	if indices := config.DeviceIndices; len(indices) > 0 {
		// A struct that C reads must not point to memory of Go.
		memory := C.CBytes(unsafe.Slice((*byte)(unsafe.Pointer(&indices[0])), len(indices)*int(unsafe.Sizeof(indices[0]))))
		defer C.free(memory)
		native.device_indices, native.num_device_indices = (*C.int32_t)(memory), C.uint32_t(len(indices))
	}
	var opened *C.nvllm_engine
	var failed C.nvllm_error
	if status := opener(&native, &opened, &failed); status != C.NVLLM_OK {
		return nil, errorOf(status, &failed)
	}
	e := &Engine{native: opened, pinner: pinner}
	e.closing, e.close = context.WithCancel(context.Background())
	if config.ProcessIndex > 0 {
		e.serveTime = serveTime
	}
	// Destroys an engine that was not closed. It cannot run during a call, because a call keeps e reachable.
	e.cleanup = runtime.AddCleanup(e, func(native *C.nvllm_engine) { destroy(native, pinner) }, opened)
	return e, nil
}

// destroy frees the engine, and then what it used.
func destroy(native *C.nvllm_engine, pinner *runtime.Pinner) {
	C.nvllm_engine_free(native)
	if pinner != nil {
		pinner.Unpin()
	}
}

// Close destroys the engine with all its requests, after the calls that are running have returned. [Engine.Run] and [Engine.Generate]
// return [ErrClosed] after the pass that is running, streams end with it, and every other method returns it from now on. Closing twice
// is allowed.
func (e *Engine) Close() error {
	e.close()
	e.wakeUp()
	e.life.Lock()
	native := e.native
	e.native = nil
	if native != nil {
		e.cleanup.Stop()
		destroy(native, e.pinner)
	}
	e.life.Unlock()
	e.inbox.endStreams(ErrClosed)
	return nil
}

// begin makes the caller the one that is inside a method that excludes others of its kind and Run, until end.
func (e *Engine) begin() error {
	if e.closing.Err() != nil {
		return ErrClosed
	}
	if !e.turn.call() {
		return busy()
	}
	e.single.Lock()
	return nil
}

func (e *Engine) end() {
	e.single.Unlock()
	e.turn.endCall()
}

// A turn says who steps an engine. Generate and Chat.Send step between others, and only while nobody is inside Run.
type turn struct {
	mu       sync.Mutex
	isCalled bool          // a goroutine is between begin and end
	runEnds  chan struct{} // closed when Run ends; nil while nobody is inside Run
}

// call returns false if another goroutine is inside Run, or between begin and end.
func (t *turn) call() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isCalled || t.runEnds != nil {
		return false
	}
	t.isCalled = true
	return true
}

func (t *turn) endCall() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isCalled = false
}

// run is call for Run.
func (t *turn) run() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isCalled || t.runEnds != nil {
		return false
	}
	t.runEnds = make(chan struct{})
	return true
}

func (t *turn) endRun() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.runEnds)
	t.runEnds = nil
}

// running returns a channel that is closed when Run ends, or nil while nobody is inside Run.
func (t *turn) running() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runEnds
}

// enter keeps the engine open until leave. It does not wait for a Close that waits for other calls.
func (e *Engine) enter() error {
	if !e.life.TryRLock() {
		return ErrClosed
	}
	if e.native == nil {
		e.life.RUnlock()
		return ErrClosed
	}
	return nil
}

func (e *Engine) leave() {
	e.life.RUnlock()
	runtime.KeepAlive(e)
}

// Add queues a prompt and returns the id of the request. Special tokens that are spelled out in the text are parsed, as a chat
// template requires.
func (e *Engine) Add(prompt string, options *RequestOptions) (uint64, error) {
	return e.add(textPrompt(prompt), options, newRequest(options))
}

// AddTokens queues a prompt of tokens, which are used unchanged.
func (e *Engine) AddTokens(tokens []uint32, options *RequestOptions) (uint64, error) {
	return e.add(tokenPrompt(tokens), options, newRequest(options))
}

// AddRequest is [Engine.Add], by the name that the other languages have for it.
func (e *Engine) AddRequest(prompt string, options *RequestOptions) (uint64, error) {
	return e.Add(prompt, options)
}

// AddChat queues a conversation, to be answered by the model: [Engine.ApplyChatTemplate] with [Engine.Add]. The template gets the tools of
// options, unless templateOptions has "tools".
func (e *Engine) AddChat(messages, templateOptions any, options *RequestOptions) (uint64, error) {
	prompt, err := e.render(messages, templateOptions, options)
	if err != nil {
		return 0, err
	}
	return e.Add(prompt, options)
}

// A prompt passes itself to the C API.
type prompt interface {
	add(e *C.nvllm_engine, options *C.nvllm_request_options, id *C.uint64_t, failed *C.nvllm_error) C.nvllm_status
}

type textPrompt string

func (p textPrompt) add(e *C.nvllm_engine, options *C.nvllm_request_options, id *C.uint64_t,
	failed *C.nvllm_error) C.nvllm_status {
	return C.nvllm_add_request(e, text(string(p)), C.size_t(len(p)), options, id, failed)
}

type tokenPrompt []uint32

func (p tokenPrompt) add(e *C.nvllm_engine, options *C.nvllm_request_options, id *C.uint64_t,
	failed *C.nvllm_error) C.nvllm_status {
	return C.nvllm_add_request_tokens(e, tokens(p), C.size_t(len(p)), options, id, failed)
}

type pairPrompt [2]string

func (p pairPrompt) add(e *C.nvllm_engine, options *C.nvllm_request_options, id *C.uint64_t,
	failed *C.nvllm_error) C.nvllm_status {
	first, second := C.CString(p[0]), C.CString(p[1])
	defer C.free(unsafe.Pointer(first))
	defer C.free(unsafe.Pointer(second))
	return C.nvllm_add_request_pair(e, first, second, options, id, failed)
}

// text points to a string's own memory. That of an empty string may be nil, which C refuses.
func text(s string) *C.char {
	if s == "" {
		return (*C.char)(unsafe.Pointer(&nothing))
	}
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s)))
}

// tokens points to a slice's own memory.
func tokens(ids []uint32) *C.uint32_t {
	if len(ids) == 0 {
		return (*C.uint32_t)(&nothing)
	}
	return (*C.uint32_t)(&ids[0])
}

var nothing uint32

// add queues a prompt. The inbox keeps outputs that are polled before it knows the request.
func (e *Engine) add(p prompt, options *RequestOptions, r *request) (uint64, error) {
	if err := options.check(); err != nil {
		return 0, err
	}
	if err := e.enter(); err != nil {
		return 0, err
	}
	defer e.leave()
	var pinner runtime.Pinner
	defer pinner.Unpin()
	native, free := options.native(&pinner)
	defer free()

	var id C.uint64_t
	var failed C.nvllm_error
	e.inbox.beginAdd()
	status := p.add(e.native, native, &id, &failed)
	if status == C.NVLLM_OK {
		e.inbox.register(uint64(id), r)
	}
	e.inbox.endAdd()
	if status != C.NVLLM_OK {
		return 0, errorOf(status, &failed)
	}
	return uint64(id), nil
}

// Cancel cancels a request: its last output has [FinishCancelled]. It returns [ErrNotFound] if the request has ended or never
// existed.
func (e *Engine) Cancel(id uint64) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	var failed C.nvllm_error
	if status := C.nvllm_cancel_with_error(e.native, C.uint64_t(id), &failed); status != C.NVLLM_OK {
		return errorOf(status, &failed)
	}
	return nil
}

// A StepResult reports what one [Engine.Step] did.
type StepResult struct {
	Outputs       int  // outputs that wait to be polled
	Running       int  // running sequences
	Waiting       int  // waiting requests
	Iterations    int  // completed forward passes
	InFlight      bool // a pass has begun and is not complete
	PrefillTokens int  // prompt tokens computed, without cached ones
	DecodeTokens  int  // tokens generated
	Elapsed       time.Duration
}

// Step runs forward passes. Without a budget it runs exactly one; with a budget it works until that time has passed, and may
// return in the middle of a pass, which the next call continues. A negative budget, such as the rest of a frame that is late, is the
// least one, a microsecond. It returns immediately when there is nothing to do.
//
// In a process that follows (Config.ProcessIndex above 0), it computes what process 0 schedules: without a budget it waits for a pass.
// [Closed] when process 0 has closed its engine.
func (e *Engine) Step(budget time.Duration) (StepResult, error) {
	if err := e.begin(); err != nil {
		return StepResult{}, err
	}
	defer e.end()
	return e.step(budget)
}

// step is Step for a caller that holds single.
func (e *Engine) step(budget time.Duration) (StepResult, error) {
	if err := e.enter(); err != nil {
		return StepResult{}, err
	}
	defer e.leave()
	micros := units(budget, time.Microsecond)
	if budget < 0 {
		micros = 1
	}
	var failed C.nvllm_error
	done := C.nvllm_step_result{struct_size: C.sizeof_nvllm_step_result}
	if status := C.nvllm_step(e.native, C.uint64_t(micros), &done, &failed); status != C.NVLLM_OK {
		err := errorOf(status, &failed)
		if status == C.NVLLM_CLOSED {
			err = &Error{Status: Closed, Message: "process 0 has closed its engine"}
		}
		e.inbox.note(err)
		return StepResult{}, err
	}
	return StepResult{
		Outputs:       int(done.num_outputs),
		Running:       int(done.num_running),
		Waiting:       int(done.num_waiting),
		Iterations:    int(done.num_iterations),
		InFlight:      done.in_flight != 0,
		PrefillTokens: int(done.prefill_tokens),
		DecodeTokens:  int(done.decode_tokens),
		Elapsed:       time.Duration(done.elapsed_us) * time.Microsecond,
	}, nil
}

// Finished reports whether no request is waiting or running and no output is left for [Engine.Outputs]. It stays false until these are
// read, so that a loop of Step alone never ends. It is true for an engine that can no longer be used, of which Step returns the error.
func (e *Engine) Finished() bool {
	if e.enter() != nil {
		return true
	}
	defer e.leave()
	// In the order of an output's way, so that it cannot pass unseen.
	return C.nvllm_is_finished(e.native) != 0 && e.polling.Load() == 0 && !e.inbox.holdsOutputs()
}

// isIdle reports whether no request is waiting or running, and no output is left for poll.
func (e *Engine) isIdle() bool {
	if e.enter() != nil {
		return false
	}
	defer e.leave()
	return C.nvllm_is_finished(e.native) != 0
}
