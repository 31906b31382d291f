package main

import (
	"encoding/json"
	"regexp"
	"strings"

	"libnanovllm/bindings/go"
)

// structures answers: what must the text of an answer conform to?
//
// OpenAI's API has response_format, vLLM structured_outputs and the older guided_ fields, llama-server grammar and json_schema. They mean
// the same things, of which a request has at most one.
type structures struct {
	ResponseFormat    *responseFormat    `json:"response_format"`
	StructuredOutputs *structuredOutputs `json:"structured_outputs"`
	GuidedJSON        json.RawMessage    `json:"guided_json"`
	GuidedRegex       *string            `json:"guided_regex"`
	GuidedChoice      []string           `json:"guided_choice"`
	GuidedGrammar     *string            `json:"guided_grammar"`
	Grammar           *string            `json:"grammar"`
	JSONSchema        json.RawMessage    `json:"json_schema"`
}

// A responseFormat is OpenAI's.
type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"`
	} `json:"json_schema"`
}

// structuredOutputs are vLLM's.
type structuredOutputs struct {
	JSON       json.RawMessage `json:"json"`
	Regex      *string         `json:"regex"`
	Choice     []string        `json:"choice"`
	Grammar    *string         `json:"grammar"`
	JSONObject *bool           `json:"json_object"`
}

// anyObject is the schema of every JSON object.
const anyObject = `{"type": "object"}`

// A structure is what the engine is asked for, and the field that asks for it.
type structure struct {
	field string
	kind  nanovllm.StructureKind
	text  string
}

// apply requests a structure from the engine. Schemas are always strict: every completion conforms to them.
func (s *structures) apply(options *nanovllm.RequestOptions) error {
	found, err := s.found()
	if err != nil || len(found) == 0 {
		return err
	}
	if len(found) > 1 {
		return badRequest(found[1].field, "%s and %s cannot be combined: leave one of them out", found[0].field, found[1].field)
	}
	if found[0].text == "" {
		return badRequest(found[0].field, "%s is empty", found[0].field)
	}
	options.StructureKind, options.Structure = found[0].kind, found[0].text
	return nil
}

func (s *structures) found() (found []structure, err error) {
	add := func(field string, kind nanovllm.StructureKind, text string) {
		found = append(found, structure{field, kind, text})
	}
	schema := func(field string, text json.RawMessage) {
		if !isAbsent(text) && err == nil {
			var made string
			made, err = schemaText(field, text)
			add(field, nanovllm.StructureJSONSchema, made)
		}
	}
	grammar := func(field string, text *string) {
		if text != nil && err == nil {
			made := *text
			if isGBNF(made) {
				made, err = larkOf(field, made)
			}
			add(field, nanovllm.StructureLark, made)
		}
	}
	choice := func(field string, texts []string) {
		if texts != nil {
			add(field, nanovllm.StructureRegex, anyOf(texts))
		}
	}
	if s.ResponseFormat != nil {
		var text string
		if text, err = s.ResponseFormat.schema(); text != "" {
			add("response_format", nanovllm.StructureJSONSchema, text)
		}
	}
	if o := s.StructuredOutputs; o != nil {
		schema("structured_outputs.json", o.JSON)
		grammar("structured_outputs.grammar", o.Grammar)
		choice("structured_outputs.choice", o.Choice)
		if o.Regex != nil {
			add("structured_outputs.regex", nanovllm.StructureRegex, *o.Regex)
		}
		if o.JSONObject != nil && *o.JSONObject {
			add("structured_outputs.json_object", nanovllm.StructureJSONSchema, anyObject)
		}
	}
	schema("guided_json", s.GuidedJSON)
	schema("json_schema", s.JSONSchema)
	grammar("guided_grammar", s.GuidedGrammar)
	grammar("grammar", s.Grammar)
	choice("guided_choice", s.GuidedChoice)
	if s.GuidedRegex != nil {
		add("guided_regex", nanovllm.StructureRegex, *s.GuidedRegex)
	}
	return found, err
}

// schema returns the schema of a format, empty for text.
func (f *responseFormat) schema() (string, error) {
	switch f.Type {
	case "", "text":
		return "", nil
	case "json_object":
		return anyObject, nil
	case "json_schema":
		if f.JSONSchema == nil || isAbsent(f.JSONSchema.Schema) {
			return "", badRequest("response_format", "response_format has no json_schema.schema")
		}
		return string(f.JSONSchema.Schema), nil
	}
	return "", unsupported("response_format", "response_format %q is not supported, only \"text\", \"json_object\" and \"json_schema\"", f.Type)
}

// schemaText returns a schema that is an object, or a text with one, as vLLM takes it.
func schemaText(field string, text json.RawMessage) (string, error) {
	if text[0] != '"' {
		return string(text), nil
	}
	var inner string
	err := wrongType(field, json.Unmarshal(text, &inner))
	return inner, err
}

// anyOf is an expression for one of some texts.
func anyOf(texts []string) string {
	escaped := make([]string, len(texts))
	for i, text := range texts {
		escaped[i] = regexp.QuoteMeta(text)
	}
	return strings.Join(escaped, "|")
}
