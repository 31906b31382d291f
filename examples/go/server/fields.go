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
//
// body is valid JSON. It is checked before it is decoded, so that what a client may have memory for is counted first.
func (s *server) checkFields(body []byte, into any) error {
	walk := fieldWalk{}
	walk.look(reflect.TypeOf(into).Elem(), body, "")
	if walk.refusal != nil {
		return walk.refusal
	}
	unknown := walk.unknown
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

// A fieldWalk finds the fields of a JSON object that a type does not have, such as "stop" or "a.b[0].c". A value of another type than the
// field has none: decoding it says more.
type fieldWalk struct {
	unknown []string
	refusal error
}

func (w *fieldWalk) look(of reflect.Type, text json.RawMessage, path string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	text = bytes.TrimLeft(text, " \t\r\n")
	switch {
	case w.refusal != nil:
	case of.Kind() == reflect.Slice && (of.Elem().Kind() == reflect.Struct || of.Elem().Kind() == reflect.String) && text[0] == '[':
		if found := shapeOf(text).elements; found > maxElements {
			w.refusal = badRequest(path, "%s has %d elements, but at most %d are allowed", path, found, maxElements)
			return
		}
		var elements []json.RawMessage
		_ = json.Unmarshal(text, &elements)
		for i, element := range elements {
			w.look(of.Elem(), element, path+"["+strconv.Itoa(i)+"]")
		}
	case of.Kind() == reflect.Struct && text[0] == '{':
		if found := shapeOf(text).elements; found > maxFields {
			w.refusal = badRequest(path, "an object has %d fields, but at most %d are allowed", found, maxFields)
			return
		}
		var found map[string]json.RawMessage
		_ = json.Unmarshal(text, &found)
		known := map[string]reflect.Type{}
		knownFields(of, known)
		for name, value := range found {
			at := strings.TrimPrefix(path+"."+name, ".")
			if of, isKnown := known[name]; isKnown {
				w.look(of, value, at)
			} else if !isAbsent(value) {
				w.unknown = append(w.unknown, at)
			}
		}
		slices.Sort(w.unknown)
	}
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
