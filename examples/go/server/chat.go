package main

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// A chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	parameters
	Messages            json.RawMessage `json:"messages"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Logprobs            bool            `json:"logprobs"`
	TopLogprobs         int             `json:"top_logprobs"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	ResponseFormat      responseFormat  `json:"response_format"`
	// Not part of OpenAI's API: variables of the model's template.
	ChatTemplateKwargs json.RawMessage `json:"chat_template_kwargs"`
}

func (s *server) chatCompletions(w http.ResponseWriter, r *http.Request) { s.answer(w, r, s.chatJob) }

// chatJob turns a conversation into a prompt.
func (s *server) chatJob(body []byte) (*job, error) {
	var request chatRequest
	if err := decode(body, &request); err != nil {
		return nil, err
	}
	if err := s.checkModel(request.Model); err != nil {
		return nil, err
	}
	if err := checkRange("max_completion_tokens", request.MaxCompletionTokens, 1, math.MaxInt32); err != nil {
		return nil, err
	}
	if request.MaxCompletionTokens != nil {
		request.MaxTokens = request.MaxCompletionTokens
	}
	options, err := s.options(&request.parameters)
	if err != nil {
		return nil, err
	}
	if request.TopLogprobs > 0 && !request.Logprobs {
		return nil, badRequest("top_logprobs", "top_logprobs is %d, but without logprobs it must be 0", request.TopLogprobs)
	}
	if err := checkRange("top_logprobs", &request.TopLogprobs, 0, math.MaxInt32); err != nil {
		return nil, err
	}
	if request.Logprobs {
		options.NumLogprobs = max(1, request.TopLogprobs)
	}
	if err := request.ResponseFormat.apply(options); err != nil {
		return nil, err
	}
	text, err := s.chatPrompt(&request)
	if err != nil {
		return nil, err
	}
	j, err := newJob(chat, &request.parameters, &question{prompts: []prompt{{text: text}}, options: options})
	if err != nil {
		return nil, err
	}
	j.alternatives = request.TopLogprobs
	return j, nil
}

// chatPrompt applies the model's chat template.
func (s *server) chatPrompt(request *chatRequest) (string, error) {
	messages, err := chatMessages(request.Messages)
	if err != nil {
		return "", err
	}
	variables := map[string]json.RawMessage{}
	if err := decodeTree("chat_template_kwargs", request.ChatTemplateKwargs, maxValues, &variables); err != nil {
		return "", err
	}
	var tools []map[string]json.RawMessage
	switch choice := string(request.ToolChoice); choice {
	case "", "null", `"auto"`:
		if err := decodeTree("tools", request.Tools, maxTools, &tools); err != nil {
			return "", err
		}
	case `"none"`:
	default:
		return "", unsupported("tool_choice", "tool_choice %s is not supported, only \"auto\" and \"none\"", choice)
	}
	if len(tools) > 0 {
		variables["tools"] = request.Tools
	}
	for _, value := range variables {
		mendSurrogates(value)
	}
	return s.pool.engine().ApplyChatTemplate(messages, variables)
}

// chatMessages checks the form of messages and leaves everything else to the template.
func chatMessages(text json.RawMessage) ([]json.RawMessage, error) {
	var messages []json.RawMessage
	if err := decodeTree("messages", text, maxMessages, &messages); err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, badRequest("messages", "messages is empty")
	}
	for i, message := range messages {
		var err error
		if messages[i], err = flattenContent(i, message); err != nil {
			return nil, err
		}
		mendSurrogates(messages[i])
	}
	return messages, nil
}

// flattenContent joins a content that is a list of texts; the templates of text models accept only one text.
func flattenContent(position int, message json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := wrongType("messages", json.Unmarshal(message, &fields)); err != nil {
		return nil, err
	}
	var role string
	if json.Unmarshal(fields["role"], &role) != nil || role == "" {
		return nil, badRequest("messages", "message %d has no role", position)
	}
	content := fields["content"]
	if len(content) == 0 || content[0] != '[' {
		return message, nil
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
			return nil, unsupported("messages", "message %d has a part of type %q, but only text is supported", position, kind)
		}
		texts = append(texts, text)
	}
	joined, err := json.Marshal(strings.Join(texts, ""))
	if err != nil {
		return nil, err
	}
	return replaceField(message, "content", joined)
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
