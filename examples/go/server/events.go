package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// writeStream writes server-sent events as they come. An error that ends a stream early is its last event.
func (j *job) writeStream(ctx context.Context, w http.ResponseWriter, r *http.Request, merged <-chan news) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	events := eventWriter{w: w, control: http.NewResponseController(w), form: j.form}
	// The headers tell the client at once that its request is accepted; the first token may take longer.
	w.WriteHeader(http.StatusOK)
	_ = events.control.Flush()
	var total usage
	defer func() { noteOf(r).usage = total }()
	fail := func(err error) {
		err = reasonFor(ctx, err)
		told := asAPIError(err)
		if noteOf(r).reason = told.message; told.status == statusClientLeft {
			noteOf(r).status = statusClientLeft
			return
		}
		j.form.fail(events, err)
	}
	if !j.form.begin(events) {
		fail(context.Canceled)
		return
	}
	heard := j.listen()
	defer heard.close()
	for delta := range merged {
		if delta.Err != nil {
			fail(delta.Err)
			return
		}
		piece, err := heard.hear(delta)
		if err != nil {
			fail(err)
			return
		}
		if piece.hasEnded() {
			total.add(piece.delta)
		}
		if !j.form.piece(events, piece) {
			fail(context.Canceled)
			return
		}
	}
	if err := ctx.Err(); err != nil {
		fail(err)
		return
	}
	if !j.form.end(events, total) {
		fail(context.Canceled)
	}
}

// An eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	form    form // tells the client of a value that is no JSON
}

// write sends one event without a name and reports whether the client is still there.
func (e eventWriter) write(value any) bool { return e.event("", value) }

// event sends one event and reports whether the client is still there.
func (e eventWriter) event(name string, value any) bool {
	var event bytes.Buffer
	if name != "" {
		event.WriteString("event: " + name + "\n")
	}
	event.WriteString("data: ")
	// The encoder's newline is the first of the two that end an event.
	if err := encoder(&event).Encode(value); err != nil {
		e.form.fail(e, err)
		return false
	}
	event.WriteByte('\n')
	return e.send(event.Bytes())
}

func (e eventWriter) send(event []byte) bool {
	if _, err := e.w.Write(event); err != nil {
		return false
	}
	return e.control.Flush() == nil
}

// linger is how long the rest of a body may arrive after its request was answered. A client that is still sending loses the answer if the
// connection is closed before.
const linger = 500 * time.Millisecond

// timely sets a time limit for the client to accept each write of a response. A request that is refused before its body was read
// is answered without waiting for the body. The client may be waiting for the answer before it sends any.
func (s *server) timely(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timed := &timedWriter{ResponseWriter: w, control: http.NewResponseController(w), limit: s.writeTimeout}
		if r.Body != nil && r.ContentLength != 0 {
			// In a copy of the request: net/http reads the body of the original after the answer, and looks at its type.
			timed.body = &readBody{ReadCloser: r.Body}
			r = r.WithContext(r.Context())
			r.Body = timed.body
		}
		next.ServeHTTP(timed, r)
	})
}

// A readBody notes that it was read to its end.
type readBody struct {
	io.ReadCloser
	hasEnded bool
}

func (b *readBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.hasEnded = b.hasEnded || err == io.EOF
	return n, err
}

// A timedWriter sets a deadline before each write.
type timedWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	limit    time.Duration
	body     *readBody // nil if the request has none
	hasBegun bool
}

// WriteHeader is needed for responses without a body.
func (t *timedWriter) WriteHeader(status int) {
	t.begin()
	t.ResponseWriter.WriteHeader(status)
}

func (t *timedWriter) Write(data []byte) (int, error) {
	t.begin()
	return t.ResponseWriter.Write(data)
}

// FlushError flushes for http.ResponseController.
func (t *timedWriter) FlushError() error {
	t.begin()
	return t.control.Flush()
}

func (t *timedWriter) begin() {
	// Not every ResponseWriter supports deadlines; that of a test does not.
	_ = t.control.SetWriteDeadline(time.Now().Add(t.limit))
	if t.hasBegun {
		return
	}
	t.hasBegun = true
	if t.body != nil && !t.body.hasEnded {
		// Without this, net/http reads up to 256 KiB of the body before it sends the answer, and asks for it with 100 Continue.
		t.Header().Set("Connection", "close")
		_ = t.control.SetReadDeadline(time.Now().Add(linger))
	}
}

// Unwrap lets http.ResponseController set deadlines.
func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }
