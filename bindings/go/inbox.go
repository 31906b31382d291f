package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"strings"
	"sync"
)

// An inbox assigns outputs to their readers: a stream, the results of a batch, or a loop over [Engine.Outputs].
type inbox struct {
	mu       sync.Mutex
	requests map[uint64]*request // until their last output has been polled
	adding   int                 // calls that add a request and have not returned
	early    map[uint64][]Output // outputs of requests that C knows and this does not yet; empty while nobody adds
	waiting  []Output            // outputs for Outputs
	touched  []*request          // streams with outputs that flush sends
	failure  error               // why the engine can only be closed
}

// A request holds the data that the inbox needs to deliver its outputs.
type request struct {
	running  int // completions whose last output has not been polled
	tag      uint64
	isStream bool

	// The results of which the request is a part, and its first one there; nil if it is no part of any.
	batch *batch
	start int

	// The channel of a stream, with room for one output per completion, so that sending never blocks. nil for Outputs.
	deltas      chan Delta
	completions []completion
	unended     int         // completions whose last output was not put into the queue
	queue       []Output    // outputs on their way to the channel, at most one per completion
	isOver      bool        // the channel is closed; later outputs are dropped
	unhook      func() bool // detaches the request from its context
}

// A completion of a stream.
type completion struct {
	last    Output          // the numbers of its last output, for one that ends it early
	text    strings.Builder // the text of an output that was merged from several: appending copies none of it
	queued  int             // its output's place in the queue, from 1; 0 if there is none
	isEnded bool
}

func newRequest(options *RequestOptions) *request {
	r := &request{running: options.completions()}
	if options != nil {
		r.tag = options.Tag
	}
	return r
}

func newStream(options *RequestOptions) *request {
	r := newRequest(options)
	r.isStream = true
	return r
}

// beginAdd keeps outputs of unknown requests until endAdd.
func (i *inbox) beginAdd() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.adding++
}

func (i *inbox) endAdd() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.adding--; i.adding == 0 {
		i.early = nil
	}
}

func (i *inbox) register(id uint64, r *request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.requests == nil {
		i.requests = make(map[uint64]*request)
	}
	if r.isStream {
		// The library has accepted the request, so its number of completions is within the limits.
		r.deltas, r.completions, r.unended = make(chan Delta, r.running), make([]completion, r.running), r.running
		for index := range r.completions {
			r.completions[index].last = Output{RequestID: id, Tag: r.tag, Index: index}
		}
	}
	if r.batch != nil {
		r.batch.ids[id] = r
		r.batch.inProgress += r.running
	}
	i.requests[id] = r
	for _, out := range i.early[id] {
		i.assign(r, out)
	}
	delete(i.early, id)
	if i.failure != nil {
		// Nobody will step again.
		r.end(i.failure)
	}
	r.flush()
}

// deliver assigns an output to its reader, which sees it after flush.
func (i *inbox) deliver(shown *C.nvllm_output) {
	i.receive(copyOutput(shown))
}

func (i *inbox) receive(out Output) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r := i.requests[out.RequestID]; r != nil {
		i.assign(r, out)
	} else if i.adding > 0 {
		if i.early == nil {
			i.early = make(map[uint64][]Output)
		}
		i.early[out.RequestID] = append(i.early[out.RequestID], out)
	}
}

// assign is receive for a known request.
func (i *inbox) assign(r *request, out Output) {
	if out.Finish != FinishNone {
		if r.running--; r.running == 0 {
			delete(i.requests, out.RequestID)
		}
	}
	if r.batch != nil {
		r.batch.put(r, out)
		return
	}
	if r.deltas == nil {
		i.waiting = append(i.waiting, out)
		return
	}
	if len(r.queue) == 0 {
		i.touched = append(i.touched, r)
	}
	r.put(out)
}

// flush sends the outputs of streams that were delivered since the last flush.
func (i *inbox) flush() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for t, r := range i.touched {
		r.flush()
		i.touched[t] = nil
	}
	i.touched = i.touched[:0]
}

// take returns the oldest output that is waiting.
func (i *inbox) take() (Output, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.waiting) == 0 {
		return Output{}, false
	}
	out := i.waiting[0]
	i.waiting[0] = Output{}
	if i.waiting = i.waiting[1:]; len(i.waiting) == 0 {
		i.waiting = nil
	}
	return out, true
}

func (i *inbox) holdsOutputs() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.waiting)+len(i.early) > 0
}

// endStream ends one stream early.
func (i *inbox) endStream(r *request, reason error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r.end(reason)
	r.flush()
}

// note ends all streams, later ones included, if the engine can only be closed after this error.
func (i *inbox) note(err error) {
	if !isPermanent(err) {
		return
	}
	i.mu.Lock()
	if i.failure == nil {
		i.failure = err
	}
	i.mu.Unlock()
	i.endStreams(err)
}

// endStreams ends all streams early, and returns their requests.
func (i *inbox) endStreams(reason error) (ids []uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id, r := range i.requests {
		if r.deltas != nil && !r.isOver {
			r.end(reason)
			r.flush()
			ids = append(ids, id)
		}
	}
	return ids
}

// put queues an output for flush. Outputs that the receiver has not taken yet return to the queue, and one of the same completion is
// merged with the new one, so that a slow receiver neither delays others nor uses memory. The inbox is locked, so there is no other
// sender.
func (r *request) put(out Output) {
	if r.isOver {
		return
	}
	if len(r.queue) == 0 {
		for range len(r.deltas) {
			select {
			case older := <-r.deltas:
				r.enqueue(older)
			default:
			}
		}
	}
	c := &r.completions[out.Index]
	c.last = out.numbers()
	if out.Finish != FinishNone && !c.isEnded {
		c.isEnded = true
		r.unended--
	}
	if c.queued == 0 {
		c.text.Reset()
		r.enqueue(out)
		return
	}
	older := &r.queue[c.queued-1]
	if c.text.Len() == 0 {
		c.text.WriteString(older.Text)
	}
	c.text.WriteString(out.Text)
	out.Text = c.text.String()
	*older = merged(*older, out)
}

func (r *request) enqueue(out Output) {
	r.queue = append(r.queue, out)
	r.completions[out.Index].queued = len(r.queue)
}

// flush sends the queue, and closes the channel after the last output.
func (r *request) flush() {
	for at := range r.queue {
		r.completions[r.queue[at].Index].queued = 0
		r.deltas <- r.queue[at]
		r.queue[at] = Output{}
	}
	r.queue = r.queue[:0]
	if r.deltas == nil || r.unended > 0 || r.isOver {
		return
	}
	r.isOver = true
	close(r.deltas)
	if r.unhook != nil {
		r.unhook()
	}
}

// end puts a last output for each completion that has not ended.
func (r *request) end(reason error) {
	for index := range r.completions {
		if c := &r.completions[index]; !c.isEnded {
			out := c.last
			out.Finish, out.Err = FinishCancelled, reason
			r.put(out)
		}
	}
}

// hook stores the function that detaches a stream from its context, or calls it if the stream has already ended.
func (i *inbox) hook(r *request, unhook func() bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.isOver {
		unhook()
	} else {
		r.unhook = unhook
	}
}
