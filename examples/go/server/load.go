package main

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// A gate admits a limited number of requests at once, until it is closed.
type gate struct {
	limit int

	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // closed when the gate is, and the last request has left
}

func newGate(limit int) *gate { return &gate{limit: limit, empty: make(chan struct{})} }

// enter admits a request, or returns the error that refuses it.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errShuttingDown
	}
	if g.inside == g.limit {
		return overloaded("%d requests are being answered already", g.limit)
	}
	g.inside++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// close stops admitting requests. It returns a channel that is closed when the last request has left.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && g.inside == 0 {
		close(g.empty)
	}
	g.closed = true
	return g.empty
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// guarded passes requests through the gate.
func (g *gate) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.enter(); err != nil {
			writeError(w, r, err)
			return
		}
		defer g.leave()
		next.ServeHTTP(w, r)
	})
}

// smallBody is the size up to which a request neither counts against the memory of bodies nor waits behind larger ones.
const smallBody = 64 << 10

// An intake limits the memory of requests until the engine has them: bodies, decoded values, and prompts.
type intake struct {
	free         atomic.Int64 // bytes available for large bodies
	small, large lane         // while a body is decoded and its prompts are queued
	structured   lane         // while prompts are queued whose structure may have to be compiled, which can take seconds
}

func newIntake(bytes int64) *intake {
	in := &intake{small: make(lane, 8), large: make(lane, 2), structured: make(lane, 4)}
	in.free.Store(bytes)
	return in
}

// A holding is the part of the memory of an intake that one body has taken.
type holding struct {
	from  *intake
	bytes int64
}

func (in *intake) hold() *holding { return &holding{from: in} }

// grow takes memory until the holding has a size. A small body needs none.
func (h *holding) grow(bytes int64) error {
	if bytes <= smallBody {
		return nil
	}
	wanted := bytes - h.bytes
	if h.from.free.Add(-wanted) < 0 {
		h.from.free.Add(wanted)
		return overloaded("no memory is left for a request of %d bytes", bytes)
	}
	h.bytes = bytes
	return nil
}

func (h *holding) release() {
	h.from.free.Add(h.bytes)
	h.bytes = 0
}

// read reads a body of at most this many bytes. Memory is taken as they arrive, so that a client that only announces a large body has
// none.
func (h *holding) read(from io.Reader, most int64) ([]byte, error) {
	size := min(most, smallBody)
	// With one byte more than the size, the end of a body that fits exactly is found without growing.
	body := make([]byte, 0, size+1)
	for {
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, unreadable(err)
		}
		if len(body) < cap(body) {
			continue
		}
		if size == most {
			return nil, &http.MaxBytesError{Limit: most}
		}
		size = min(2*size, most)
		if err := h.grow(size); err != nil {
			return nil, err
		}
		grown := make([]byte, len(body), size+1)
		copy(grown, body)
		body = grown
	}
}

// turn waits until a body may be decoded. done admits the next one.
func (in *intake) turn(ctx context.Context, bytes int64) (done func(), err error) {
	if bytes <= smallBody {
		return in.small.enter(ctx)
	}
	return in.large.enter(ctx)
}

// A lane admits a limited number of requests at once; the others wait.
type lane chan struct{}

// enter waits for a place. leave, which may be called again, gives it back.
func (l lane) enter(ctx context.Context) (leave func(), err error) {
	select {
	case l <- struct{}{}:
		return sync.OnceFunc(func() { <-l }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
