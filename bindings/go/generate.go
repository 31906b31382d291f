package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// A Prompt is one of [Engine.GeneratePrompts]: its Messages if there are any, else its Tokens if there are any, else its Text.
type Prompt struct {
	Text            string          // as the prompt of [Engine.Add]
	Second          *string         // the second text of a pair, for a classifier or a reranker
	Tokens          []uint32        // as those of [Engine.AddTokens]
	Messages        []Message       // a conversation, as that of [Engine.AddChat]
	TemplateOptions any             // for Messages: see [Engine.ApplyChatTemplate]
	Options         *RequestOptions // nil means those of [Engine.DefaultOptions]
}

// Progress says how far [Engine.GeneratePrompts] has come.
type Progress struct {
	Finished               int     // completions that have ended
	Total                  int     // all completions
	PrefillTokensPerSecond float64 // prompt tokens per second, over the last passes
	DecodeTokensPerSecond  float64 // generated tokens per second, over the last passes
	Elapsed                time.Duration
	PromptTokens           uint64 // prompt tokens that the engine computed since the call began
	GeneratedTokens        uint64 // tokens that the engine generated since the call began
}

// Generate generates for all prompts in one call, and returns the results in the order of the prompts, as many per prompt as its
// N. There may be no options, one for all prompts, or one per prompt; each may be nil. Options for all prompts that are invalid fail
// the call.
//
// A prompt that cannot run has outputs with [FinishError], and the others continue. When ctx ends, its error is returned, and when the
// engine is closed, [ErrClosed].
//
// While [Engine.Run] runs, Generate waits for what that computes; otherwise it steps the engine itself. The engine gets at most twice
// Config.MaxNumSeqs completions at a time, so that requests of others that come meanwhile wait for few of them. Those with a higher
// Priority wait for none.
func (e *Engine) Generate(ctx context.Context, prompts []string, options ...*RequestOptions) ([]Output, error) {
	if len(options) > 1 && len(options) != len(prompts) {
		message := fmt.Sprintf("%d options for %d prompts, but there must be none, one, or one per prompt", len(options), len(prompts))
		return nil, &Error{Status: ErrInvalidArgument, Message: message}
	}
	for _, o := range options {
		if err := o.check(); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(options) < 2 {
		if err := e.checkShared(options); err != nil {
			return nil, err
		}
	}
	all := make([]Prompt, len(prompts))
	for p, prompt := range prompts {
		all[p].Text = prompt
		if len(options) == 1 {
			all[p].Options = options[0]
		} else if len(options) > 1 {
			all[p].Options = options[p]
		}
	}
	return e.GeneratePrompts(ctx, all, nil)
}

// checkShared refuses options that no prompt can have: those of a call of nvllm_generate without prompts.
func (e *Engine) checkShared(options []*RequestOptions) error {
	e.single.Lock()
	defer e.single.Unlock()
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	var pinner runtime.Pinner
	defer pinner.Unpin()
	natives := make([]*C.nvllm_request_options, len(options))
	for i, o := range options {
		native, free := o.native(&pinner)
		defer free()
		natives[i] = native
	}
	var made *C.nvllm_result
	var failed C.nvllm_error
	status := C.nvllm_generate(e.native, nil, nil, 0, unsafe.SliceData(natives), C.size_t(len(natives)), nil, nil, &made, &failed)
	if status != C.NVLLM_OK {
		err := errorOf(status, &failed)
		e.inbox.note(err)
		return err
	}
	C.nvllm_result_free(made)
	return nil
}

// GeneratePrompts is [Engine.Generate] for prompts of text, tokens or messages, each with its options. Whatever is wrong with one of
// them is in its outputs.
//
// progress may be nil. Otherwise it is called after each pass with results of this call, by the goroutine that called GeneratePrompts.
func (e *Engine) GeneratePrompts(ctx context.Context, prompts []Prompt, progress func(Progress)) ([]Output, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := e.ModelInfo()
	if err != nil {
		return nil, err
	}
	b := newBatch(prompts)
	if b.total > MaxQueuedCompletions {
		message := fmt.Sprintf("%d completions of all prompts, but one call has at most %d", b.total, MaxQueuedCompletions)
		return nil, &Error{Status: ErrInvalidArgument, Message: message}
	}
	b.makeResults()
	added, most := 0, 2*info.MaxNumSeqs
	// Also when progress panics.
	defer func() { e.cancelAll(e.inbox.abandon(b)) }()
	meter, err := e.newMeter(progress)
	if err != nil {
		return nil, err
	}
	for {
		isFull := false
		for ; added < len(prompts) && e.inbox.unfinished(b) < most; added++ {
			if isFull, err = e.addToBatch(b, added, &prompts[added]); err != nil {
				return nil, err
			}
			if isFull {
				break
			}
		}
		left := e.inbox.left(b)
		if err := meter.report(b.total-left, b.total); err != nil {
			return nil, err
		}
		if left == 0 {
			return b.results(), nil
		}
		if err := e.advance(ctx, b.changed, isFull); err != nil {
			if ctx.Err() != nil {
				e.drain(b)
			}
			return nil, err
		}
	}
}

// addToBatch queues a prompt of a batch, or notes why it cannot run. isFull says that the queue has no room for it yet.
func (e *Engine) addToBatch(b *batch, at int, given *Prompt) (isFull bool, err error) {
	r := newRequest(given.Options)
	r.batch, r.start = b, b.starts[at]
	var asked prompt = textPrompt(given.Text)
	if given.Second != nil {
		asked = pairPrompt{given.Text, *given.Second}
	}
	if len(given.Tokens) > 0 {
		asked = tokenPrompt(given.Tokens)
	}
	if len(given.Messages) > 0 {
		var rendered string
		rendered, err = e.render(given.Messages, given.TemplateOptions, given.Options)
		asked = textPrompt(rendered)
	}
	// A queue that is full while the engine has nothing to do has no room for these beams, ever.
	wasIdle := e.isIdle()
	if err == nil {
		_, err = e.add(asked, given.Options, r)
	}
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, ErrQueueFull) && !wasIdle:
		return true, nil
	case errors.Is(err, ErrClosed) || isPermanent(err):
		return false, err
	}
	e.inbox.refuse(b, at, given.Options, err)
	return false, nil
}

// advance runs a pass, or waits for whoever is inside Run, until changed has a value. If nothing need change, because another request
// may leave the full queue, it looks again after a while.
func (e *Engine) advance(ctx context.Context, changed <-chan struct{}, isFull bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.closing.Err() != nil {
		return ErrClosed
	}
	runEnds := e.turn.running()
	if runEnds == nil {
		return e.pass()
	}
	var again <-chan time.Time
	if isFull {
		timer := time.NewTimer(10 * time.Millisecond)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-changed:
	case <-runEnds:
	case <-again:
	case <-e.closing.Done():
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// pass runs a forward pass, and gives its outputs to their readers.
func (e *Engine) pass() error {
	e.single.Lock()
	defer e.single.Unlock()
	if _, err := e.step(0); err != nil {
		return err
	}
	return e.poll()
}

// drain ends what is cancelled of a batch, where nobody else steps.
func (e *Engine) drain(b *batch) {
	e.cancelAll(e.inbox.abandon(b))
	for e.closing.Err() == nil && e.turn.running() == nil && e.inbox.unfinished(b) > 0 {
		if e.pass() != nil {
			return
		}
	}
}

func (e *Engine) cancelAll(ids []uint64) {
	for _, id := range ids {
		// It may have ended meanwhile, and the engine may be closed.
		_ = e.Cancel(id)
	}
}

// A batch has the results of one call. The inbox guards all but changed and starts.
type batch struct {
	starts  []int // of each prompt, its first result
	total   int
	changed chan struct{} // has a value after an output

	outputs    []Output
	texts      []strings.Builder // of each result
	left       int               // results that have not ended
	ids        map[uint64]*request
	isOver     bool // nobody wants the results
	inProgress int  // completions in the engine that have not ended
}

func newBatch(prompts []Prompt) *batch {
	b := &batch{starts: make([]int, len(prompts)), changed: make(chan struct{}, 1), ids: make(map[uint64]*request)}
	for p := range prompts {
		b.starts[p] = b.total
		b.total += resultsOf(prompts[p].Options)
	}
	return b
}

func (b *batch) makeResults() {
	b.left, b.outputs, b.texts = b.total, make([]Output, b.total), make([]strings.Builder, b.total)
}

// resultsOf returns the number of results, which is 1 if N is none that the library accepts.
func resultsOf(options *RequestOptions) int {
	if n := options.completions(); n >= 1 && n <= MaxCompletions {
		return n
	}
	return 1
}

// put appends an output to its result. The inbox is locked.
func (b *batch) put(r *request, out Output) {
	if out.Finish != FinishNone {
		b.inProgress--
		if r.running == 0 {
			delete(b.ids, out.RequestID)
		}
	}
	if b.isOver {
		return
	}
	at := r.start + out.Index
	b.texts[at].WriteString(out.Text)
	b.outputs[at] = merged(b.outputs[at], out)
	if out.Finish != FinishNone {
		b.left--
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// results returns the results after the last output.
func (b *batch) results() []Output {
	for at := range b.outputs {
		b.outputs[at].Text = b.texts[at].String()
	}
	return b.outputs
}

// refuse writes why a prompt of a batch cannot run.
func (i *inbox) refuse(b *batch, at int, options *RequestOptions, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	tag := newRequest(options).tag
	for index := range resultsOf(options) {
		b.outputs[b.starts[at]+index] = Output{Tag: tag, Index: index, Finish: FinishError, Err: err}
		b.left--
	}
}

func (i *inbox) left(b *batch) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return b.left
}

func (i *inbox) unfinished(b *batch) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return b.inProgress
}

// abandon drops the outputs that are to come, and returns the requests that have not ended.
func (i *inbox) abandon(b *batch) (ids []uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	b.isOver = true
	for id := range b.ids {
		ids = append(ids, id)
	}
	return ids
}

// A meter reports progress.
type meter struct {
	engine          *Engine
	progress        func(Progress)
	begun           time.Time
	first, last     Stats
	prefill, decode rate
	reported        int
}

func (e *Engine) newMeter(progress func(Progress)) (*meter, error) {
	m := &meter{engine: e, progress: progress, begun: time.Now(), reported: -1}
	if progress == nil {
		return m, nil
	}
	var err error
	m.first, err = e.Stats()
	m.last = m.first
	return m, err
}

// report calls progress if there was a pass since the last call, or a result.
func (m *meter) report(finished, total int) error {
	if m.progress == nil {
		return nil
	}
	now, err := m.engine.Stats()
	if err != nil {
		return err
	}
	if now.Steps == m.last.Steps && finished == m.reported {
		return nil
	}
	took := time.Duration(now.StepMicros-m.last.StepMicros) * time.Microsecond
	m.prefill.observe(now.PromptTokens-m.last.PromptTokens, took)
	m.decode.observe(now.GeneratedTokens-m.last.GeneratedTokens, took)
	m.last, m.reported = now, finished
	m.progress(Progress{
		Finished:               finished,
		Total:                  total,
		PrefillTokensPerSecond: m.prefill.perSecond(),
		DecodeTokensPerSecond:  m.decode.perSecond(),
		Elapsed:                time.Since(m.begun),
		PromptTokens:           now.PromptTokens - m.first.PromptTokens,
		GeneratedTokens:        now.GeneratedTokens - m.first.GeneratedTokens,
	})
	return nil
}

// A rate is of tokens per second; newer passes have greater weight.
type rate struct{ tokens, seconds float64 }

func (r *rate) observe(tokens uint64, took time.Duration) {
	if tokens > 0 {
		const kept = 0.9
		r.tokens, r.seconds = kept*r.tokens+float64(tokens), kept*r.seconds+took.Seconds()
	}
}

func (r *rate) perSecond() float64 {
	if r.seconds == 0 {
		return 0
	}
	return r.tokens / r.seconds
}
