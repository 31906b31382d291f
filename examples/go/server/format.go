package main

import (
	"encoding/json"

	"libnanovllm/bindings/go"
)

// A responseFormat is the required format of the text of a completion.
type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

// apply requests a format from the engine. Schemas are always strict: every completion conforms to them.
func (f *responseFormat) apply(options *nanovllm.RequestOptions) error {
	switch f.Type {
	case "", "text":
		return nil
	case "json_object":
		options.Structure = `{"type": "object"}`
	case "json_schema":
		if len(f.JSONSchema.Schema) == 0 {
			return badRequest("response_format", "response_format has no json_schema.schema")
		}
		options.Structure = string(f.JSONSchema.Schema)
	default:
		return unsupported("response_format", "response_format %q is not supported, only \"text\", \"json_object\" and \"json_schema\"", f.Type)
	}
	options.StructureKind = nanovllm.StructureJSONSchema
	return nil
}
