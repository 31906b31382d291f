package nanovllm

// #include <nanovllm.h>
import "C"

import "sync"

// An inbox assigns outputs to their readers: a stream, or a loop over [Engine.Outputs].
type inbox struct {
	// A read lock is held while a request is added, from before C knows the request until the inbox does.
	adding sync.RWMutex

	mu       sync.Mutex
	requests map[uint64]*request // until their last output has been polled
	waiting  []Output            // outputs for Outputs
	failure  error               // why the engine can only be closed
}

// A request holds the data that the inbox needs to deliver its outputs.
type request struct {
	running  int // completions whose last output has not been polled
	isStream bool

	// The channel of a stream, with room for one output per completion, so that sending never blocks. nil for Outputs.
	deltas chan Delta
	ended  []bool      // completions whose last output was sent to the stream
	over   bool        // the channel is closed; later outputs are dropped
	unhook func() bool // detaches the request from its context
}

func newRequest(options *RequestOptions) *request {
	return &request{running: options.completions()}
}

func newStream(options *RequestOptions) *request {
	r := newRequest(options)
	r.isStream = true
	return r
}

func (i *inbox) register(id uint64, r *request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.requests == nil {
		i.requests = make(map[uint64]*request)
	}
	if r.isStream {
		// The library has accepted the request, so its number of completions is within the limits.
		r.deltas, r.ended = make(chan Delta, r.running), make([]bool, r.running)
	}
	i.requests[id] = r
	if i.failure != nil {
		// Nobody will step again.
		r.end(id, i.failure)
	}
}

// deliver sends an output to its stream, or keeps it for Outputs.
func (i *inbox) deliver(shown *C.nvllm_output) {
	id := uint64(shown.request_id)
	i.mu.Lock()
	r := i.requests[id]
	if r == nil {
		// Its Add has not returned yet.
		i.mu.Unlock()
		i.adding.Lock()
		i.adding.Unlock() //nolint:staticcheck // only waits for the calls that add
		i.mu.Lock()
		r = i.requests[id]
	}
	defer i.mu.Unlock()
	if r == nil {
		return
	}
	out := copyOutput(shown)
	if out.Finish != FinishNone {
		if r.running--; r.running == 0 {
			delete(i.requests, id)
		}
	}
	if r.deltas == nil {
		i.waiting = append(i.waiting, out)
	} else {
		r.send(out)
	}
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
	return len(i.waiting) > 0
}

// endStream ends one stream early.
func (i *inbox) endStream(id uint64, r *request, reason error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r.end(id, reason)
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
		if r.deltas != nil && !r.over {
			r.end(id, reason)
			ids = append(ids, id)
		}
	}
	return ids
}

// send puts an output into the channel. An output that the receiver has not taken yet is merged with the new one of the same
// completion, so that a slow receiver neither delays others nor uses memory. The inbox is locked, so there is no other sender.
func (r *request) send(out Output) {
	if r.over {
		return
	}
	pending := make([]Output, 0, cap(r.deltas))
	for drained := false; !drained; {
		select {
		case older := <-r.deltas:
			pending = append(pending, older)
		default:
			drained = true
		}
	}
	isMerged := false
	for p := range pending {
		if pending[p].Index == out.Index {
			pending[p], isMerged = merged(pending[p], out), true
		}
	}
	if !isMerged {
		pending = append(pending, out)
	}
	for _, delta := range pending {
		r.deltas <- delta
	}
	if out.Finish == FinishNone {
		return
	}
	r.ended[out.Index] = true
	for _, ended := range r.ended {
		if !ended {
			return
		}
	}
	r.over = true
	close(r.deltas)
	if r.unhook != nil {
		r.unhook()
	}
}

// end sends a last output for each completion that has not ended.
func (r *request) end(id uint64, reason error) {
	for index, ended := range r.ended {
		if !ended {
			r.send(Output{RequestID: id, Index: index, Finish: FinishCancelled, Err: reason})
		}
	}
}

// hook stores the function that detaches a stream from its context, or calls it if the stream has already ended.
func (i *inbox) hook(r *request, unhook func() bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.over {
		unhook()
	} else {
		r.unhook = unhook
	}
}
