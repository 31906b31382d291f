package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"
)

// statusClientLeft is what a request is counted as whose client left before its answer was complete. No client sees it.
const statusClientLeft = 499

var errClientLeft = &apiError{status: statusClientLeft, kind: "invalid_request_error", code: "client_left",
	message: "the client left before the answer was complete"}

// reasonFor replaces the end of a context by what ended it: the server, or the client that left.
func reasonFor(ctx context.Context, err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(context.Cause(ctx), errShuttingDown) {
		return errShuttingDown
	}
	return errClientLeft
}

// A note is what the log says about a request.
type note struct {
	id     string
	status int // as it is counted; the client may have seen another one
	bytes  int64
	model  string
	usage  usage
	reason string // why it failed
}

type noteKey struct{}

// noteOf returns the note of a request. A request of a test that did not pass through noted has one that nobody reads.
func noteOf(r *http.Request) *note {
	if n, isNoted := r.Context().Value(noteKey{}).(*note); isNoted {
		return n
	}
	return &note{status: http.StatusOK}
}

// noted gives each request an id, which is in its answer and in the log: that of the client's X-Request-Id, if it is a short one of
// visible characters, else a random one. It writes the access log.
func (s *server) noted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := &note{id: requestID(r), status: http.StatusOK}
		w.Header().Set("X-Request-Id", n.id)
		r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
		begun := time.Now()
		next.ServeHTTP(&notingWriter{ResponseWriter: w, note: n}, r)
		if s.accessLog {
			n.write(r, time.Since(begun))
		}
	})
}

func (n *note) write(r *http.Request, took time.Duration) {
	level := slog.LevelInfo
	switch r.URL.Path {
	case "/health", "/healthz", "/ready", "/metrics":
		level = slog.LevelDebug // asked for every few seconds
	}
	attributes := []slog.Attr{slog.String("id", n.id), slog.String("method", cut(r.Method)), slog.String("path", cut(r.URL.Path)),
		slog.Int("status", n.status), slog.Int64("bytes", n.bytes), slog.Duration("took", took.Round(time.Microsecond)),
		slog.String("client", r.RemoteAddr)}
	if n.model != "" {
		attributes = append(attributes, slog.String("model", n.model), slog.Int("prompt_tokens", n.usage.PromptTokens),
			slog.Int("completion_tokens", n.usage.CompletionTokens))
	}
	if n.reason != "" {
		attributes = append(attributes, slog.String("error", cut(n.reason)))
	}
	slog.LogAttrs(context.Background(), level, "request", attributes...)
}

// requestID returns the id that a client has given, or a new one.
func requestID(r *http.Request) string {
	given := r.Header.Get("X-Request-Id")
	if len(given) > 128 {
		given = ""
	}
	for _, character := range []byte(given) {
		if character <= ' ' || character > '~' {
			given = ""
			break
		}
	}
	return cmp.Or(given, "req_"+rand.Text())
}

// A notingWriter notes the status and the size of a response.
type notingWriter struct {
	http.ResponseWriter
	note *note
}

func (w *notingWriter) WriteHeader(status int) {
	w.note.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *notingWriter) Write(data []byte) (int, error) {
	n, err := w.ResponseWriter.Write(data)
	w.note.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController flush.
func (w *notingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// newLog returns the log of the operator's choice: text or json, from a level up.
func newLog(to io.Writer, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("-log-level is %q, but it must be debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(to, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(to, options)), nil
	}
	return nil, fmt.Errorf("-log-format is %q, but it must be text or json", format)
}
