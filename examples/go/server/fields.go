package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// checkFields answers: does a request have fields that this server would not honour?
//
// A field that is ignored gives a client another answer than it asked for, without a word. Such a field is refused by its name, also
// inside of other fields; -lenient only writes it to the log. A field that is null is as if it was not there.
func (s *server) checkFields(body []byte, into any) error {
	unknown := unknownFields(reflect.TypeOf(into).Elem(), body, "")
	if len(unknown) == 0 {
		return nil
	}
	if s.lenient {
		for i, name := range unknown {
			unknown[i] = cut(name)
		}
		slog.Warn("fields of a request are ignored", "fields", unknown[:min(len(unknown), 16)])
		return nil
	}
	e := unsupported(cut(unknown[0]), "%s is not a field that this server knows: leave it out, or start the server with -lenient, which ignores it", unknown[0])
	if hint := replacedBy[unknown[0]]; hint != "" {
		e.message = unknown[0] + " is not supported: use " + hint
	}
	e.code = "unknown_field"
	return e
}

// replacedBy names what stands for fields that APIs have given up.
var replacedBy = map[string]string{"functions": "tools", "function_call": "tool_choice", "max_tokens_to_sample": "max_tokens",
	"n_predict": "max_tokens", "guided_decoding_backend": "no backend: there is one"}

// unknownFields returns the names of the fields of a JSON object that a type does not have, such as "stop" or "a.b[0].c". What is no
// valid JSON, or of another type, has none: decoding it says more.
func unknownFields(of reflect.Type, text json.RawMessage, path string) (unknown []string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	text = bytes.TrimLeft(text, " \t\r\n")
	switch {
	case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8 && len(text) > 0 && text[0] == '[':
		var elements []json.RawMessage
		if json.Unmarshal(text, &elements) != nil {
			return nil
		}
		for i, element := range elements {
			unknown = append(unknown, unknownFields(of.Elem(), element, path+"["+strconv.Itoa(i)+"]")...)
		}
	case of.Kind() == reflect.Struct && len(text) > 0 && text[0] == '{':
		var found map[string]json.RawMessage
		if json.Unmarshal(text, &found) != nil {
			return nil
		}
		known := map[string]reflect.Type{}
		knownFields(of, known)
		for name, value := range found {
			at := strings.TrimPrefix(path+"."+name, ".")
			if of, isKnown := known[name]; isKnown {
				unknown = append(unknown, unknownFields(of, value, at)...)
			} else if !isAbsent(value) {
				unknown = append(unknown, at)
			}
		}
		slices.Sort(unknown)
	}
	return unknown
}

// knownFields lists the fields that package json decodes, those of embedded structs among them.
func knownFields(of reflect.Type, known map[string]reflect.Type) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			knownFields(field.Type, known)
		} else if name != "" && name != "-" {
			known[name] = field.Type
		}
	}
}
