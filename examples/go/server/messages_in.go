package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Fields of a message. Templates of models read further ones only under these names, and a misspelled one would leave a text out.
var messageFields = []string{"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking",
	"refusal", "annotations"}

var roles = []string{"system", "developer", "user", "assistant", "tool"}

// chatMessages checks messages and gives them the form that templates read: contents that are one text, arguments of calls that are
// objects, and the role system for developer where the template has none.
func (o *served) chatMessages(text json.RawMessage) ([]json.RawMessage, error) {
	var messages []json.RawMessage
	if err := decodeTree("messages", text, maxMessages, &messages); err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, badRequest("messages", "messages is empty")
	}
	for i, message := range messages {
		var err error
		if messages[i], err = o.chatMessage(i, message); err != nil {
			return nil, err
		}
		mendSurrogates(messages[i])
	}
	return messages, nil
}

func (o *served) chatMessage(position int, message json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := wrongType("messages", json.Unmarshal(message, &fields)); err != nil {
		return nil, err
	}
	for name, value := range fields {
		if !slices.Contains(messageFields, name) && !isAbsent(value) {
			e := unsupported("messages", "messages[%d].%s is not a field of a message", position, name)
			e.code = "unknown_field"
			return nil, e
		}
	}
	var role string
	if json.Unmarshal(fields["role"], &role) != nil || role == "" {
		return nil, badRequest("messages", "message %d has no role", position)
	}
	if !slices.Contains(roles, role) {
		return nil, badRequest("messages", "message %d has the role %q, but it must be one of %s", position, role, strings.Join(roles, ", "))
	}
	if isAbsent(fields["content"]) && (role != "assistant" || isAbsent(fields["tool_calls"])) {
		return nil, badRequest("messages", "message %d has no content", position)
	}
	var err error
	if role == "developer" && !o.hasDeveloper {
		if message, err = replaceField(message, "role", json.RawMessage(`"system"`)); err != nil {
			return nil, err
		}
	}
	if !isAbsent(fields["content"]) {
		if message, err = flattenContent(position, message, fields["content"]); err != nil {
			return nil, err
		}
	}
	if isAbsent(fields["tool_calls"]) {
		return message, nil
	}
	calls, err := pastCalls(position, fields["tool_calls"])
	if err != nil {
		return nil, err
	}
	return replaceField(message, "tool_calls", calls)
}

// flattenContent joins a content that is a list of texts; the templates of text models accept only one text.
func flattenContent(position int, message, content json.RawMessage) (json.RawMessage, error) {
	switch content[0] {
	case '"':
		return message, nil
	case '[':
	default:
		return nil, badRequest("messages", "the content of message %d is neither a text nor a list of parts", position)
	}
	var parts []any
	if err := json.Unmarshal(content, &parts); err != nil {
		return nil, wrongType("messages", err)
	}
	var texts []string
	for _, part := range parts {
		fields, _ := part.(map[string]any)
		text, isText := fields["text"].(string)
		if fields["type"] != "text" || !isText {
			kind, _ := fields["type"].(string)
			return nil, unsupported("messages", "message %d has a part of type %q, but only text is supported: this model reads no images, sounds or files", position, kind)
		}
		texts = append(texts, text)
	}
	return replaceField(message, "content", encodedJSON(strings.Join(texts, "")))
}

// pastCalls checks the calls of a message and turns arguments that are a text into the object that the text is, as most templates write
// arguments from an object.
func pastCalls(position int, text json.RawMessage) (json.RawMessage, error) {
	wrong := func(format string, args ...any) error {
		return badRequest("messages", "message "+strconv.Itoa(position)+": "+format, args...)
	}
	var calls []json.RawMessage
	if json.Unmarshal(text, &calls) != nil {
		return nil, wrong("tool_calls is not a list")
	}
	for i, text := range calls {
		var one struct {
			Function json.RawMessage `json:"function"`
		}
		var function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if json.Unmarshal(text, &one) != nil || isAbsent(one.Function) || json.Unmarshal(one.Function, &function) != nil || function.Name == "" {
			return nil, wrong("tool_calls[%d] has no function with a name", i)
		}
		arguments := function.Arguments
		if isAbsent(arguments) {
			continue
		}
		if arguments[0] == '"' {
			var inner string
			if err := json.Unmarshal(arguments, &inner); err != nil {
				return nil, wrong("the arguments of tool_calls[%d] are no text: %s", i, err.Error())
			}
			if strings.TrimSpace(inner) == "" {
				inner = "{}"
			}
			arguments = json.RawMessage(inner)
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(arguments, &object) != nil || object == nil {
			return nil, wrong("the arguments of tool_calls[%d] are no JSON object", i)
		}
		if found := shapeOf(arguments); found.values > maxValues || found.depth > maxDepth {
			return nil, wrong("the arguments of tool_calls[%d] have %d values in %d levels, but at most %d and %d are allowed", i, found.values, found.depth, maxValues, maxDepth)
		}
		changed, err := replaceField(one.Function, "arguments", arguments)
		if err != nil {
			return nil, err
		}
		if calls[i], err = replaceField(text, "function", changed); err != nil {
			return nil, err
		}
	}
	made := append([]byte{'['}, bytes.Join(asBytes(calls), []byte{','})...)
	return append(made, ']'), nil
}

func asBytes(texts []json.RawMessage) [][]byte {
	made := make([][]byte, len(texts))
	for i, text := range texts {
		made[i] = text
	}
	return made
}

// replaceField returns an object in which all fields of one name have another value, and everything else is as it was.
func replaceField(object json.RawMessage, name string, value json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if _, err := decoder.Token(); err != nil { // the opening brace
		return nil, err
	}
	made := []byte{'{'}
	for decoder.More() {
		found, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var old json.RawMessage
		if err := decoder.Decode(&old); err != nil {
			return nil, err
		}
		if found == name {
			old = value
		}
		encoded, err := json.Marshal(found)
		if err != nil {
			return nil, err
		}
		if len(made) > 1 {
			made = append(made, ',')
		}
		made = append(append(append(made, encoded...), ':'), old...)
	}
	return append(made, '}'), nil
}

// mendSurrogates replaces each \u escape of half a character in valid JSON by that of U+FFFD, as package json decodes it: clients that
// cut texts between UTF-16 units send such escapes, and the library refuses them.
func mendSurrogates(text json.RawMessage) {
	unit := func(i int) uint64 {
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return 0
		}
		value, _ := strconv.ParseUint(string(text[i+2:i+6]), 16, 16) // valid JSON has four digits here
		return value
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch value := unit(i); {
		case value < 0xd800 || value > 0xdfff:
			i++
		case value < 0xdc00 && unit(i+6) >= 0xdc00 && unit(i+6) <= 0xdfff:
			i += 11
		default:
			copy(text[i:], `\ufffd`)
			i += 5
		}
	}
}
