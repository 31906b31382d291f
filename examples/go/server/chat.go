package main

import (
	"encoding/json"
	"net/http"
	"strings"
)

// A chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	parameters
	Messages            []map[string]any `json:"messages"`
	MaxCompletionTokens *int             `json:"max_completion_tokens"`
	Logprobs            bool             `json:"logprobs"`
	TopLogprobs         int              `json:"top_logprobs"`
	Tools               []any            `json:"tools"`
	ToolChoice          json.RawMessage  `json:"tool_choice"`
	ResponseFormat      responseFormat   `json:"response_format"`
	// No part of OpenAI's API: variables of the model's template.
	ChatTemplateKwargs map[string]any `json:"chat_template_kwargs"`
}

func (s *server) chatCompletions(w http.ResponseWriter, r *http.Request) {
	var request chatRequest
	job, err := func() (*job, error) {
		if err := decode(r, &request); err != nil {
			return nil, err
		}
		return s.chatJob(&request)
	}()
	if err != nil {
		writeError(w, err)
		return
	}
	s.answer(w, r, job)
}

// chatJob turns a conversation into a prompt.
func (s *server) chatJob(request *chatRequest) (*job, error) {
	if err := s.checkModel(request.Model); err != nil {
		return nil, err
	}
	if len(request.Messages) == 0 {
		return nil, badRequest("messages", "messages is empty")
	}
	for i, message := range request.Messages {
		if err := flattenContent(i, message); err != nil {
			return nil, err
		}
	}
	switch choice := string(request.ToolChoice); choice {
	case "", "null", `"auto"`, `"none"`:
		if choice == `"none"` {
			request.Tools = nil
		}
	default:
		return nil, unsupported("tool_choice", "tool_choice %s is not supported, only \"auto\" and \"none\"", choice)
	}
	if request.MaxCompletionTokens != nil {
		request.MaxTokens = request.MaxCompletionTokens
	}
	options, err := request.options(s.sampling)
	if err != nil {
		return nil, err
	}
	if request.TopLogprobs < 0 || request.TopLogprobs > 0 && !request.Logprobs {
		return nil, badRequest("top_logprobs", "top_logprobs is %d, but it must be 0 or more, and needs logprobs", request.TopLogprobs)
	}
	if request.Logprobs {
		options.NumLogprobs = max(1, request.TopLogprobs)
	}

	if err := request.ResponseFormat.apply(options); err != nil {
		return nil, err
	}

	variables := map[string]any{}
	for name, value := range request.ChatTemplateKwargs {
		variables[name] = value
	}
	if len(request.Tools) > 0 {
		variables["tools"] = request.Tools
	}
	text, err := s.engine.ApplyChatTemplate(request.Messages, variables)
	if err != nil {
		return nil, err
	}
	return &job{kind: chat, parameters: &request.parameters, prompts: []prompt{{text: text}}, options: options,
		alternatives: request.TopLogprobs}, nil
}

// flattenContent makes one text of a content that is a list of texts; templates of text models know no other.
func flattenContent(position int, message map[string]any) error {
	if role, _ := message["role"].(string); role == "" {
		return badRequest("messages", "message %d has no role", position)
	}
	parts, isList := message["content"].([]any)
	if !isList {
		return nil
	}
	var texts []string
	for _, part := range parts {
		fields, _ := part.(map[string]any)
		text, isText := fields["text"].(string)
		if fields["type"] != "text" || !isText {
			return unsupported("messages", "message %d has a part of type %v, but only text is supported", position, fields["type"])
		}
		texts = append(texts, text)
	}
	message["content"] = strings.Join(texts, "")
	return nil
}
