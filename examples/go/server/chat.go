package main

import (
	"encoding/json"
	"math"
	"net/http"
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
	var messages []map[string]any
	if err := decodeTree("messages", request.Messages, maxMessages, &messages); err != nil {
		return "", err
	}
	if len(messages) == 0 {
		return "", badRequest("messages", "messages is empty")
	}
	for i, message := range messages {
		if err := flattenContent(i, message); err != nil {
			return "", err
		}
	}
	variables := map[string]any{}
	if err := decodeTree("chat_template_kwargs", request.ChatTemplateKwargs, maxValues, &variables); err != nil {
		return "", err
	}
	var tools []map[string]any
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
		if variables == nil {
			variables = map[string]any{}
		}
		variables["tools"] = tools
	}
	return s.pool.engine().ApplyChatTemplate(messages, variables)
}

// flattenContent joins a content that is a list of texts; the templates of text models accept only one text.
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
			kind, _ := fields["type"].(string)
			return unsupported("messages", "message %d has a part of type %q, but only text is supported", position, kind)
		}
		texts = append(texts, text)
	}
	message["content"] = strings.Join(texts, "")
	return nil
}
