package main

import (
	"bytes"
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
	// A body of unknown length may have the maximum length.
	size := r.ContentLength
	if size < 0 {
		size = s.maxBodyBytes
	}
	if size > s.maxBodyBytes {
		return nil, nil, &http.MaxBytesError{Limit: s.maxBodyBytes}
	}
	release, err := s.intake.reserve(size)
	if err != nil {
		return nil, nil, err
	}
	// A job keeps its share of the memory until the engines have all of its prompts.
	isQueuing := false
	defer func() {
		if !isQueuing {
			release()
		}
	}()
	read := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := read.ReadFrom(r.Body); err != nil {
		return nil, nil, unreadable(err)
	}
	body := read.Bytes()
	done, err := s.intake.turn(ctx, int64(len(body)))
	if err != nil {
		return nil, nil, err
	}
	defer done()
	j, err := understand(body)
	if err != nil {
		return nil, nil, err
	}
	isQueuing = true
	merged, err := s.begin(ctx, j, release)
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
	if field == "" {
		return badRequest("", "the body must be a JSON object, not a %s", wrong.Value)
	}
	if number, isNumber := strings.CutPrefix(wrong.Value, "number "); isNumber {
		return badRequest(field, "%s cannot be the number %s", field, number)
	}
	return badRequest(field, "%s must not be a %s", field, wrong.Value)
}
