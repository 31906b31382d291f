package main

import (
	"bytes"
	"encoding/json"
)

// Limits of one request that do not depend on the model or the flags. The library has limits of its own; these are checked before
// memory is allocated for the contents of a body.
const (
	maxMessages       = 4096
	maxTools          = 512
	maxPrompts        = 2048    // per completion request, and inputs per embedding request
	maxChoices        = 2048    // prompts times n
	maxN              = 128     // as OpenAI's API has it
	maxValues         = 1 << 16 // JSON values in messages, tools or template variables; each takes about 300 bytes until the prompt is rendered
	maxDepth          = 64      // of the nesting of these
	maxElements       = 4096    // of lists of objects or texts that have no limit of their own
	maxFields         = 256     // of an object whose fields are known
	maxToolName       = 256
	maxPromptLogprobs = 64      // as the library has it
	maxLogprobs       = 1 << 18 // log-probabilities of a response that is not streamed
	maxDimensions     = 1 << 21 // numbers in all embeddings of a response
)

// A shape holds the counts that determine the memory for decoded JSON.
type shape struct {
	elements int // of the outermost array or object
	values   int // values at all levels, and names of fields
	depth    int
}

// shapeOf counts without decoding. The text must be valid JSON.
func shapeOf(text []byte) shape {
	counted := shape{values: 1}
	depth, isOpened := 0, false // isOpened: nothing has followed the last opening bracket
	for i := 0; i < len(text); i++ {
		character := text[i]
		switch character {
		case ' ', '\t', '\r', '\n':
			continue
		case ',', ':':
			counted.values++
			if character == ',' && depth == 1 {
				counted.elements++
			}
			continue
		}
		isClosing := character == ']' || character == '}'
		if isOpened && !isClosing {
			counted.values++
			if depth == 1 {
				counted.elements++
			}
		}
		isOpened = character == '[' || character == '{'
		switch {
		case isOpened:
			depth++
			counted.depth = max(counted.depth, depth)
		case isClosing:
			depth--
		case character == '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		}
	}
	return counted
}

// decodePart decodes a field with a maximum number of elements.
func decodePart(name string, text json.RawMessage, elements int, into any) error {
	if isAbsent(text) {
		return nil
	}
	if found := shapeOf(text).elements; found > elements {
		return badRequest(name, "%s has %d elements, but at most %d are allowed", name, found, elements)
	}
	return wrongType(name, json.Unmarshal(text, into))
}

// decodeTree is decodePart for values of any structure.
func decodeTree(name string, text json.RawMessage, elements int, into any) error {
	found := shapeOf(text)
	if found.values > maxValues {
		return badRequest(name, "%s has %d JSON values, but at most %d are allowed", name, found.values, maxValues)
	}
	if found.depth > maxDepth {
		return badRequest(name, "%s is nested %d levels deep, but at most %d are allowed", name, found.depth, maxDepth)
	}
	return decodePart(name, text, elements, into)
}

// isAbsent reports whether a field is missing or null.
func isAbsent(text json.RawMessage) bool { return len(text) == 0 || bytes.Equal(text, []byte("null")) }
