package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"
)

// receive reads and decodes a body and begins to queue its prompts. The memory used until then is limited for all requests together.
func (s *server) receive(ctx context.Context, r *http.Request, understand func(body []byte) (*job, error)) (*job, <-chan news, error) {
	if err := checkContentType(r); err != nil {
		return nil, nil, err
	}
	if r.ContentLength > s.maxBodyBytes {
		return nil, nil, &http.MaxBytesError{Limit: s.maxBodyBytes}
	}
	held := s.intake.hold()
	// A job keeps its share of the memory until the engines have all of its prompts.
	isQueuing := false
	defer func() {
		if !isQueuing {
			held.release()
		}
	}()
	most := s.maxBodyBytes
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	body, err := held.read(r.Body, most)
	if err != nil {
		return nil, nil, err
	}
	done, err := s.intake.turn(ctx, int64(len(body)))
	if err != nil {
		return nil, nil, err
	}
	defer done()
	j, err := understand(body)
	if err != nil {
		return nil, nil, err
	}
	if j.asked.options.Structure != "" {
		// Not in the lane of requests that need no compilation, which would wait for those that do.
		done()
		leave, err := s.intake.structured.enter(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer leave()
	}
	isQueuing = true
	merged, err := s.begin(ctx, j, held.release)
	return j, merged, err
}

// unreadable returns the error for a body that could not be read.
func unreadable(err error) error {
	var tooLarge *http.MaxBytesError
	var late interface{ Timeout() bool }
	switch {
	case errors.As(err, &tooLarge):
		return err
	case errors.As(err, &late) && late.Timeout():
		e := badRequest("", "the body did not arrive in time")
		e.status, e.code = http.StatusRequestTimeout, "timeout"
		return e
	}
	return badRequest("", "the body cannot be read: %s", err.Error())
}

// decode decodes a body, which must be one JSON object. Fields that this server does not know are ignored.
func decode(body []byte, into any) error {
	if !utf8.Valid(body) {
		return badRequest("", "the body is not UTF-8")
	}
	return wrongType("", json.Unmarshal(body, into))
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
