package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"libnanovllm/bindings/go"
)

// An apiError is an error in the format of OpenAI's API.
type apiError struct {
	status  int
	kind    string
	code    string
	param   string
	message string
}

func (e *apiError) Error() string { return e.message }

// badRequest is the error for an invalid request, with the parameter's name. Texts of the client in the message are shortened.
func badRequest(param, format string, args ...any) *apiError {
	for i, arg := range args {
		if text, isText := arg.(string); isText {
			args[i] = cut(text)
		}
	}
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: param,
		message: fmt.Sprintf(format, args...)}
}

// unsupported is the error for a valid request that this server does not support.
func unsupported(param, format string, args ...any) *apiError {
	e := badRequest(param, format, args...)
	e.code = "unsupported"
	return e
}

var errShuttingDown = &apiError{status: http.StatusServiceUnavailable, kind: "server_error", code: "shutting_down",
	message: "the server is shutting down"}

// overloaded is the error for a request that may succeed later.
func overloaded(format string, args ...any) *apiError {
	return &apiError{status: http.StatusServiceUnavailable, kind: "server_error", code: "overloaded",
		message: fmt.Sprintf(format, args...) + ": please try again later"}
}

// cut shortens a client's text to at most 100 bytes of whole characters, and marks the cut.
func cut(text string) string {
	const limit = 100
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// asAPIError maps every error to an HTTP status.
func asAPIError(err error) *apiError {
	var known *apiError
	var tooLarge *http.MaxBytesError
	refused := &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", message: err.Error()}
	var failed *nanovllm.Error
	if errors.As(err, &failed) {
		refused.message = failed.Message
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &tooLarge):
		refused.status, refused.code = http.StatusRequestEntityTooLarge, "request_too_large"
		refused.message = fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit)
	case errors.Is(err, nanovllm.ErrQueueFull):
		refused.status, refused.kind, refused.code = http.StatusTooManyRequests, "rate_limit_error", "queue_full"
	case isCompilerBusy(failed):
		refused.status, refused.kind, refused.code = http.StatusTooManyRequests, "rate_limit_error", "compiler_busy"
	case errors.Is(err, nanovllm.ErrContextLength):
		refused.code = "context_length_exceeded"
	case errors.Is(err, nanovllm.ErrUnsupported):
		refused.code = "unsupported"
	case errors.Is(err, nanovllm.ErrInvalidArgument), errors.Is(err, nanovllm.ErrOutOfMemory):
		// The prompt alone needs more KV cache than there is; waiting would not help.
	case errors.Is(err, context.DeadlineExceeded):
		refused.status, refused.kind, refused.code = http.StatusGatewayTimeout, "server_error", "timeout"
		refused.message = "the request took longer than this server allows"
	case errors.Is(err, context.Canceled):
		return errClientLeft
	case errors.Is(err, nanovllm.ErrClosed):
		return errShuttingDown
	default:
		refused.status, refused.kind = http.StatusInternalServerError, "server_error"
	}
	return refused
}

// compilerBusy ends the library's message for a structure that got no place to be compiled. Its status is that of an invalid structure.
const compilerBusy = " ms: add the request again later"

func isCompilerBusy(failed *nanovllm.Error) bool {
	return failed != nil && failed.Status == nanovllm.ErrInvalidArgument &&
		strings.HasPrefix(failed.Message, "structure is not a ") && strings.HasSuffix(failed.Message, compilerBusy)
}

// body is {"error": …}.
func (e *apiError) body() map[string]any {
	orNull := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	return map[string]any{"error": map[string]any{
		"message": e.message, "type": e.kind, "param": orNull(e.param), "code": orNull(e.code)}}
}

// writeError answers with an error, in the format of the API that was asked.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := asAPIError(err)
	noteOf(r).reason = e.message
	if e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if strings.HasPrefix(r.URL.Path, "/v1/messages") {
		writeJSON(w, r, e.status, e.anthropicBody(noteOf(r).id))
		return
	}
	writeJSON(w, r, e.status, e.body())
}

func writeJSON(w http.ResponseWriter, r *http.Request, status int, value any) {
	var body bytes.Buffer
	// Before the status is sent: JSON has no NaN, and a model may compute one.
	if err := encoder(&body).Encode(value); err != nil {
		writeError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The error is ignored: the client may be gone.
	_, _ = w.Write(body.Bytes())
}

// encoder writes JSON in which < is <, not six characters.
func encoder(w io.Writer) *json.Encoder {
	made := json.NewEncoder(w)
	made.SetEscapeHTML(false)
	return made
}
