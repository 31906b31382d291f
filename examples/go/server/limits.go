package main

import (
	"bytes"
	"encoding/json"
)

// What one request may bring, whatever the model and the flags are. The library has limits of its own; these are checked before
// memory is taken for what a body holds.
const (
	maxMessages   = 4096
	maxTools      = 512
	maxPrompts    = 2048    // of a completion, and inputs of an embedding
	maxChoices    = 2048    // prompts times n
	maxN          = 128     // as OpenAI's API has it
	maxValues     = 1 << 16 // JSON values in messages, tools or template variables; each costs some 300 bytes until a prompt is made
	maxDepth      = 64      // of these
	maxLogprobs   = 1 << 18 // log-probabilities of an answer in one piece
	maxDimensions = 1 << 21 // numbers in all embeddings of an answer
)

// A shape is what memory is taken for when JSON is decoded.
type shape struct {
	elements int // of the outermost array or object
	values   int // values of all levels, and names of fields
	depth    int
}

// shapeOf counts without decoding. The text is valid JSON.
func shapeOf(text []byte) shape {
	counted := shape{values: 1}
	depth, isOpened := 0, false // isOpened: nothing has come since a bracket opened
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

// decodePart decodes a field that holds at most so many elements.
func decodePart(name string, text json.RawMessage, elements int, into any) error {
	if isAbsent(text) {
		return nil
	}
	if found := shapeOf(text).elements; found > elements {
		return badRequest(name, "%s has %d elements, but at most %d are allowed", name, found, elements)
	}
	return wrongType(name, json.Unmarshal(text, into))
}

// decodeTree is decodePart for values of any form.
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
