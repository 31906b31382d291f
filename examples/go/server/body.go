package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"
)

// An understanding turns a body into a job of a model.
type understanding func(m *served, body []byte) (*job, error)

// receive reads and decodes a body, opens its model if that is not open, and begins to queue its prompts. The memory used until then is
// limited for all requests together. The caller releases the job.
func (s *server) receive(ctx context.Context, r *http.Request, understand understanding) (*job, <-chan news, error) {
	held := s.intake.hold()
	// A job keeps its share of the memory until the engines have all of its prompts.
	isQueuing := false
	defer func() {
		if !isQueuing {
			held.release()
		}
	}()
	body, err := s.readBody(r, held)
	if err != nil {
		return nil, nil, err
	}
	done, err := s.intake.turn(ctx, int64(len(body)))
	if err != nil {
		return nil, nil, err
	}
	defer func() { done() }()
	name, err := modelOf(body)
	if err != nil {
		return nil, nil, err
	}
	asked, err := s.catalog.find(name)
	if err != nil {
		return nil, nil, err
	}
	noteOf(r).model = asked.name
	model := s.catalog.tryAcquire(asked)
	if model == nil {
		// Opening takes long. Other requests go on meanwhile.
		done()
		if model, err = s.catalog.acquire(ctx, asked); err != nil {
			return nil, nil, err
		}
		if done, err = s.intake.turn(ctx, int64(len(body))); err != nil {
			model.release()
			return nil, nil, err
		}
	}
	j, err := understand(model.served, body)
	if err != nil {
		model.release()
		return nil, nil, err
	}
	j.release = model.release
	if j.asked.options.Structure != "" || j.asked.options.Tools != "" {
		// Not in the lane of requests that need no compilation, which would wait for those that do.
		done()
		leave, err := s.intake.structured.enter(ctx)
		if err != nil {
			model.release()
			return nil, nil, err
		}
		defer leave()
	}
	isQueuing = true
	merged, err := j.begin(ctx, held.release)
	if err != nil {
		model.release()
	}
	return j, merged, err
}

// readBody reads a body within the limits of its size and of the memory for all bodies.
func (s *server) readBody(r *http.Request, held *holding) ([]byte, error) {
	if err := checkContentType(r); err != nil {
		return nil, err
	}
	if r.ContentLength > s.maxBodyBytes {
		return nil, &http.MaxBytesError{Limit: s.maxBodyBytes}
	}
	most := s.maxBodyBytes
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	return held.read(r.Body, most)
}

// modelOf returns the name of the model that a body asks for.
func modelOf(body []byte) (string, error) {
	var asked struct {
		Model string `json:"model"`
	}
	err := decode(body, &asked)
	return asked.Model, err
}

// unreadable returns the error for a body that could not be read.
func unreadable(err error) error {
	var tooLarge *http.MaxBytesError
	var late interface{ Timeout() bool }
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &late) && late.Timeout():
		e := badRequest("", "the body did not arrive in time")
		e.status, e.code = http.StatusRequestTimeout, "timeout"
		return e
	}
	return badRequest("", "the body cannot be read: %s", err.Error())
}

// decode decodes a body, which must be one JSON object.
func decode(body []byte, into any) error {
	if !utf8.Valid(body) {
		return badRequest("", "the body is not UTF-8")
	}
	return wrongType("", json.Unmarshal(body, into))
}

// understandFields decodes a body into the fields of an endpoint, and refuses those that the endpoint does not know.
func (s *server) understandFields(body []byte, into any) error {
	var object struct{}
	if err := decode(body, &object); err != nil {
		return err
	}
	if err := s.checkFields(body, into); err != nil {
		return err
	}
	return decode(body, into)
}

// wrongType returns the error for a field that json could not decode.
func wrongType(field string, err error) error {
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return badRequest(field, "the body is not the JSON that is wanted: %s", err.Error())
	}
	if field == "" {
		// Without the names of embedded structs.
		field = wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
	}
	article := "a"
	if strings.HasPrefix(wrong.Value, "array") || strings.HasPrefix(wrong.Value, "object") {
		article = "an"
	}
	if field == "" {
		return badRequest("", "the body must be a JSON object, not %s %s", article, wrong.Value)
	}
	if number, isNumber := strings.CutPrefix(wrong.Value, "number "); isNumber {
		return badRequest(field, "%s cannot be the number %s", field, number)
	}
	return badRequest(field, "%s must not be %s %s", field, article, wrong.Value)
}
