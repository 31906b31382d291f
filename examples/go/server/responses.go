package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
)

// A responsesRequest is the body of POST /v1/responses, of OpenAI's API. It becomes a chat. The server keeps no answers, so that every
// request brings its whole conversation.
type responsesRequest struct {
	labels
	Model             string              `json:"model"`
	Input             json.RawMessage     `json:"input"`
	Instructions      *string             `json:"instructions"`
	MaxOutputTokens   *int                `json:"max_output_tokens"`
	Temperature       *float64            `json:"temperature"`
	TopP              *float64            `json:"top_p"`
	TopLogprobs       *int                `json:"top_logprobs"`
	Stream            bool                `json:"stream"`
	StreamOptions     *responsesStreaming `json:"stream_options"`
	Tools             []responsesTool     `json:"tools"`
	ToolChoice        json.RawMessage     `json:"tool_choice"`
	ParallelToolCalls *bool               `json:"parallel_tool_calls"`
	Reasoning         *responsesReasoning `json:"reasoning"`
	Text              *responsesText      `json:"text"`
	Include           []string            `json:"include"`
	Truncation        string              `json:"truncation"`
	Background        bool                `json:"background"`
}

type responsesStreaming struct {
	IncludeObfuscation bool `json:"include_obfuscation"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

type responsesReasoning struct {
	Effort          string `json:"effort"`
	Summary         string `json:"summary"` // reasoning is sent whole, which is more than any summary
	GenerateSummary string `json:"generate_summary"`
}

type responsesText struct {
	Format *struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"`
	} `json:"format"`
	Verbosity string `json:"verbosity"`
}

func (s *server) responses(w http.ResponseWriter, r *http.Request) { s.answer(w, r, s.responsesJob) }

func (s *server) responsesJob(m *served, body []byte) (*job, error) {
	var request responsesRequest
	if err := s.understandFields(body, &request); err != nil {
		return nil, err
	}
	chat, err := request.chat()
	if err != nil {
		return nil, err
	}
	form := newResponsesForm(m.model.name, &request)
	j, err := s.jobOf(m, chat, form)
	form.job = j
	return j, err
}

// chat returns the chat that a request means.
func (r *responsesRequest) chat() (*chatRequest, error) {
	chat := &chatRequest{}
	chat.labels = r.labels
	chat.Model, chat.Stream, chat.Temperature, chat.TopP = r.Model, r.Stream, r.Temperature, r.TopP
	chat.ParallelToolCalls = r.ParallelToolCalls
	if err := checkRange("max_output_tokens", r.MaxOutputTokens, 1, math.MaxInt32); err != nil {
		return nil, err
	}
	chat.MaxTokens = r.MaxOutputTokens
	switch {
	case r.Background:
		return nil, unsupported("background", "background is not supported: this server keeps no answers")
	case r.Truncation != "" && r.Truncation != "disabled":
		return nil, unsupported("truncation", "truncation %q is not supported, only \"disabled\"", r.Truncation)
	case r.StreamOptions != nil && r.StreamOptions.IncludeObfuscation:
		return nil, unsupported("stream_options.include_obfuscation", "stream_options.include_obfuscation is not supported")
	}
	for _, name := range r.Include {
		switch name {
		case "message.output_text.logprobs":
			chat.Logprobs = true
		case "reasoning.encrypted_content": // reasoning is sent in plain text
		default:
			return nil, unsupported("include", "include has %q, but only \"message.output_text.logprobs\" and \"reasoning.encrypted_content\" are supported", name)
		}
	}
	if r.TopLogprobs != nil && *r.TopLogprobs > 0 {
		chat.Logprobs = true
		chat.TopLogprobs = *r.TopLogprobs
	}
	if r.Reasoning != nil {
		chat.ReasoningEffort = r.Reasoning.Effort
	}
	if err := r.format(chat); err != nil {
		return nil, err
	}
	if err := r.tools(chat); err != nil {
		return nil, err
	}
	var messages []any
	if r.Instructions != nil && *r.Instructions != "" {
		messages = append(messages, map[string]any{"role": "system", "content": *r.Instructions})
	}
	turns, err := inputTurns(r.Input)
	if err != nil {
		return nil, err
	}
	chat.Messages = encodedJSON(append(messages, turns...))
	return chat, nil
}

func (r *responsesRequest) format(chat *chatRequest) error {
	if r.Text == nil {
		return nil
	}
	if r.Text.Verbosity != "" && r.Text.Verbosity != "medium" {
		return unsupported("text.verbosity", "text.verbosity %q is not supported: say in the instructions how long answers are to be", r.Text.Verbosity)
	}
	format := r.Text.Format
	if format == nil {
		return nil
	}
	switch format.Type {
	case "text":
	case "json_object":
		chat.JSONSchema = json.RawMessage(anyObject)
	case "json_schema":
		if isAbsent(format.Schema) {
			return badRequest("text.format", "text.format has no schema")
		}
		chat.JSONSchema = format.Schema
	default:
		return unsupported("text.format", "text.format %q is not supported, only \"text\", \"json_object\" and \"json_schema\"", format.Type)
	}
	return nil
}

func (r *responsesRequest) tools(chat *chatRequest) error {
	var tools []tool
	for i, one := range r.Tools {
		if one.Type != "function" {
			return unsupported("tools", "tools[%d] has the type %q, but only functions, which the client runs, are supported", i, one.Type)
		}
		tools = append(tools, tool{"function", &toolFunction{one.Name, one.Description, one.Parameters, one.Strict}})
	}
	if tools != nil {
		chat.Tools = encodedJSON(tools)
	}
	chat.ToolChoice = r.ToolChoice
	var named struct{ Type, Name string }
	if len(r.ToolChoice) > 0 && r.ToolChoice[0] == '{' && json.Unmarshal(r.ToolChoice, &named) == nil && named.Type == "function" {
		chat.ToolChoice = encodedJSON(map[string]any{"type": "function", "function": map[string]any{"name": named.Name}})
	}
	return nil
}

// An inputItem is a message, a call of a function, its output, or reasoning of an earlier answer.
type inputItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Summary   json.RawMessage `json:"summary"`
}

// inputTurns turns an input into messages of a chat. Reasoning and calls become parts of the message of the assistant that they stand
// before or after.
func inputTurns(text json.RawMessage) ([]any, error) {
	if isAbsent(text) {
		return nil, badRequest("input", "input is missing")
	}
	if text[0] == '"' {
		var one string
		if err := wrongType("input", json.Unmarshal(text, &one)); err != nil {
			return nil, err
		}
		return []any{map[string]any{"role": "user", "content": one}}, nil
	}
	var items []inputItem
	if err := decodeTree("input", text, maxMessages, &items); err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, badRequest("input", "input is empty")
	}
	var turns []any
	var open map[string]any // the message of the assistant that the last items belong to
	assistant := func() map[string]any {
		if open == nil {
			open = map[string]any{"role": "assistant"}
			turns = append(turns, open)
		}
		return open
	}
	for i, item := range items {
		where := fmt.Sprintf("input[%d]", i)
		switch {
		case item.Type == "message" || item.Type == "":
			content, err := inputText(where+".content", item.Content)
			if err != nil {
				return nil, err
			}
			if item.Role == "assistant" {
				if open != nil && open["content"] != nil {
					open = nil
				}
				assistant()["content"] = content
				continue
			}
			open = nil
			turns = append(turns, map[string]any{"role": item.Role, "content": content})
		case item.Type == "reasoning":
			thoughts, err := inputText(where+".content", item.Content)
			if err != nil {
				return nil, err
			}
			if thoughts == "" {
				continue // encrypted, or a summary
			}
			if open != nil && (open["content"] != nil || open["tool_calls"] != nil) {
				open = nil
			}
			assistant()["reasoning_content"] = thoughts
		case item.Type == "function_call":
			calls, _ := assistant()["tool_calls"].([]any)
			open["tool_calls"] = append(calls, map[string]any{"id": item.CallID, "type": "function",
				"function": map[string]any{"name": item.Name, "arguments": item.Arguments}})
		case item.Type == "function_call_output":
			output, err := inputText(where+".output", item.Output)
			if err != nil {
				return nil, err
			}
			open = nil
			turns = append(turns, map[string]any{"role": "tool", "tool_call_id": item.CallID, "content": output})
		default:
			return nil, unsupported("input", "input[%d] has the type %q, but only message, reasoning, function_call and function_call_output are supported", i, item.Type)
		}
	}
	for _, turn := range turns {
		if fields := turn.(map[string]any); fields["content"] == nil {
			fields["content"] = ""
		}
	}
	return turns, nil
}

// inputText joins a content: a text, or a list of parts of text.
func inputText(where string, text json.RawMessage) (string, error) {
	if isAbsent(text) {
		return "", nil
	}
	if text[0] == '"' {
		var one string
		err := wrongType("input", json.Unmarshal(text, &one))
		return one, err
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if err := wrongType("input", json.Unmarshal(text, &parts)); err != nil {
		return "", err
	}
	var texts []string
	for _, part := range parts {
		switch part.Type {
		case "input_text", "output_text", "text", "reasoning_text":
			texts = append(texts, part.Text)
		case "refusal":
			texts = append(texts, part.Refusal)
		default:
			return "", unsupported("input", "%s has a part of the type %q, but only text is supported: this model reads no images, sounds or files", where, part.Type)
		}
	}
	return strings.Join(texts, ""), nil
}
