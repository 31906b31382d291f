package main

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
)

// A messagesRequest is the body of POST /v1/messages, of Anthropic's API. It becomes a chat.
type messagesRequest struct {
	Model         string             `json:"model"`
	Messages      json.RawMessage    `json:"messages"`
	System        json.RawMessage    `json:"system"`
	MaxTokens     *int               `json:"max_tokens"`
	Stream        bool               `json:"stream"`
	StopSequences []string           `json:"stop_sequences"`
	Temperature   *float64           `json:"temperature"`
	TopP          *float64           `json:"top_p"`
	TopK          *int               `json:"top_k"`
	Tools         []messagesTool     `json:"tools"`
	ToolChoice    *messagesChoice    `json:"tool_choice"`
	Thinking      *thinking          `json:"thinking"`
	Metadata      json.RawMessage    `json:"metadata"`
	ServiceTier   string             `json:"service_tier"`
	OutputConfig  *messagesOutput    `json:"output_config"`
	CacheControl  json.RawMessage    `json:"cache_control"` // every prefix is cached
	Context       *contextManagement `json:"context_management"`
}

// A messagesTool is a function that the model may call.
type messagesTool struct {
	Type         string          `json:"type"`
	Name         string          `json:"name"`
	Description  *string         `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	Strict       *bool           `json:"strict"`
	CacheControl json.RawMessage `json:"cache_control"`
}

type messagesChoice struct {
	Type                   string `json:"type"`
	Name                   string `json:"name"`
	DisableParallelToolUse bool   `json:"disable_parallel_tool_use"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens *int   `json:"budget_tokens"`
	Display      string `json:"display"`
}

// messagesOutput has the effort of thinking, and the schema of the answer.
type messagesOutput struct {
	Effort string `json:"effort"`
	Format *struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	} `json:"format"`
}

// contextManagement asks the server to shorten a conversation. This server honours edits that keep all.
type contextManagement struct {
	Edits []struct {
		Type string          `json:"type"`
		Keep json.RawMessage `json:"keep"`
	} `json:"edits"`
}

func (s *server) messages(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Request-Id", noteOf(r).id) // the name that Anthropic's clients read
	s.answer(w, r, s.messagesJob)
}

func (s *server) messagesJob(m *served, body []byte) (*job, error) {
	request, chat, err := s.messagesChat(body)
	if err != nil {
		return nil, err
	}
	if request.MaxTokens == nil {
		return nil, badRequest("max_tokens", "max_tokens is missing")
	}
	j, err := s.jobOf(m, chat, &messagesForm{model: m.model.name, id: newID("msg_")})
	if err != nil {
		return nil, err
	}
	j.stops = request.StopSequences
	return j, nil
}

// countTokens answers how many tokens the prompt of a conversation has.
func (s *server) countTokens(w http.ResponseWriter, r *http.Request) {
	s.tell(w, r, func(m *served, body []byte) (any, error) {
		_, chat, err := s.messagesChat(body)
		if err != nil {
			return nil, err
		}
		text, err := m.chatPrompt(&chat.conversation)
		if err != nil {
			return nil, err
		}
		tokens, err := tokenized(m, []prompt{{text: text}}, true)
		if err != nil {
			return nil, err
		}
		return map[string]int{"input_tokens": len(tokens[0].tokens)}, nil
	})
}

// messagesChat returns the chat that a request of Messages means.
func (s *server) messagesChat(body []byte) (*messagesRequest, *chatRequest, error) {
	var m messagesRequest
	if err := s.understandFields(body, &m); err != nil {
		return nil, nil, err
	}
	chat := &chatRequest{}
	chat.Model, chat.Stream, chat.Temperature, chat.TopP, chat.TopK = m.Model, m.Stream, m.Temperature, m.TopP, m.TopK
	chat.ServiceTier = m.ServiceTier
	if err := checkRange("max_tokens", m.MaxTokens, 1, math.MaxInt32); err != nil {
		return nil, nil, err
	}
	chat.MaxTokens = m.MaxTokens
	if m.StopSequences != nil {
		chat.Stop = encodedJSON(m.StopSequences)
	}
	if m.Context != nil {
		for _, edit := range m.Context.Edits {
			if string(edit.Keep) != `"all"` {
				return nil, nil, unsupported("context_management", "context_management.edits has %q, but only edits that keep \"all\" are supported: send the conversation as it is to be read", edit.Type)
			}
		}
	}
	var messages []any
	system, err := messagesText("system", m.System)
	if err != nil {
		return nil, nil, err
	}
	if system != "" {
		messages = append(messages, map[string]any{"role": "system", "content": system})
	}
	turns, err := messagesTurns(m.Messages)
	if err != nil {
		return nil, nil, err
	}
	chat.Messages = encodedJSON(append(messages, turns...))
	if err := m.tools(chat); err != nil {
		return nil, nil, err
	}
	return &m, chat, m.think(chat)
}

// tools turns tools and their choice into those of a chat.
func (m *messagesRequest) tools(chat *chatRequest) error {
	var tools []tool
	for i, one := range m.Tools {
		if one.Type != "" && one.Type != "custom" {
			return unsupported("tools", "tools[%d] has the type %q, but only tools that the client runs are supported", i, one.Type)
		}
		if isAbsent(one.InputSchema) {
			return badRequest("tools", "tools[%d] has no input_schema", i)
		}
		tools = append(tools, tool{"function", &toolFunction{one.Name, one.Description, one.InputSchema, one.Strict}})
	}
	if tools != nil {
		chat.Tools = encodedJSON(tools)
	}
	if m.ToolChoice == nil {
		return nil
	}
	switch choice := m.ToolChoice; choice.Type {
	case "auto", "none":
		chat.ToolChoice = encodedJSON(choice.Type)
	case "any":
		chat.ToolChoice = json.RawMessage(`"required"`)
	case "tool":
		chat.ToolChoice = encodedJSON(map[string]any{"type": "function", "function": map[string]any{"name": choice.Name}})
	default:
		return badRequest("tool_choice", "tool_choice.type is %q, but it must be auto, any, tool or none", choice.Type)
	}
	isParallel := !m.ToolChoice.DisableParallelToolUse
	chat.ParallelToolCalls = &isParallel
	return nil
}

// think turns what is said about thinking, and the format of the answer, into fields of a chat.
func (m *messagesRequest) think(chat *chatRequest) error {
	variables := map[string]any{}
	if m.Thinking != nil {
		switch m.Thinking.Type {
		case "enabled":
			if m.Thinking.BudgetTokens == nil {
				return badRequest("thinking", "thinking.budget_tokens is missing")
			}
			variables["enable_thinking"] = true
			chat.MaxThinkingTokens = m.Thinking.BudgetTokens
		case "adaptive":
			variables["enable_thinking"] = true
		case "disabled":
			variables["enable_thinking"] = false
		default:
			return badRequest("thinking", "thinking.type is %q, but it must be enabled, adaptive or disabled", m.Thinking.Type)
		}
	}
	if len(variables) > 0 {
		chat.ChatTemplateKwargs = encodedJSON(variables)
	}
	if m.OutputConfig == nil {
		return nil
	}
	chat.ReasoningEffort = m.OutputConfig.Effort
	if format := m.OutputConfig.Format; format != nil {
		if format.Type != "json_schema" || isAbsent(format.Schema) {
			return unsupported("output_config", "output_config.format must have the type json_schema, and a schema")
		}
		chat.JSONSchema = format.Schema
	}
	return nil
}

// messagesText decodes a text, or a list of blocks of text.
func messagesText(field string, text json.RawMessage) (string, error) {
	if isAbsent(text) {
		return "", nil
	}
	if text[0] == '"' {
		var one string
		err := wrongType(field, json.Unmarshal(text, &one))
		return one, err
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := decodeTree(field, text, maxMessages, &blocks); err != nil {
		return "", err
	}
	var texts []string
	for _, block := range blocks {
		if block.Type != "text" {
			return "", unsupported(field, "%s has a block of the type %q, but only text is supported: this model reads no images or files", field, block.Type)
		}
		texts = append(texts, block.Text)
	}
	return strings.Join(texts, "\n"), nil
}

// A block is a part of the content of a message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// messagesTurns turns messages into those of a chat. The results of tools, which a message of the user holds, become messages of their
// own.
func messagesTurns(text json.RawMessage) ([]any, error) {
	var messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := decodeTree("messages", text, maxMessages, &messages); err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, badRequest("messages", "messages is empty")
	}
	var turns []any
	for i, message := range messages {
		if message.Role != "user" && message.Role != "assistant" && message.Role != "system" {
			return nil, badRequest("messages", "messages[%d] has the role %q, but it must be user or assistant", i, message.Role)
		}
		if isAbsent(message.Content) {
			return nil, badRequest("messages", "messages[%d] has no content", i)
		}
		blocks := []block{}
		if message.Content[0] == '"' {
			blocks = append(blocks, block{Type: "text"})
			if err := wrongType("messages", json.Unmarshal(message.Content, &blocks[0].Text)); err != nil {
				return nil, err
			}
		} else if err := wrongType("messages", json.Unmarshal(message.Content, &blocks)); err != nil {
			return nil, err
		}
		made, err := blocksTurns(i, message.Role, blocks)
		if err != nil {
			return nil, err
		}
		turns = append(turns, made...)
	}
	return turns, nil
}

// blocksTurns turns the blocks of one message into messages of a chat.
func blocksTurns(position int, role string, blocks []block) (turns []any, err error) {
	var texts, thoughts []string
	var calls []any
	for i, block := range blocks {
		switch block.Type {
		case "text":
			texts = append(texts, block.Text)
		case "thinking":
			thoughts = append(thoughts, block.Thinking)
		case "redacted_thinking":
			// What another server has encrypted is of no use to a model here.
		case "tool_use":
			input := block.Input
			if isAbsent(input) {
				input = json.RawMessage(`{}`)
			}
			calls = append(calls, map[string]any{"id": block.ID, "type": "function", "function": map[string]any{"name": block.Name, "arguments": input}})
		case "tool_result":
			result, err := messagesText("messages", block.Content)
			if err != nil {
				return nil, err
			}
			if block.IsError {
				result = "Error: " + result
			}
			turns = append(turns, map[string]any{"role": "tool", "tool_call_id": block.ToolUseID, "content": result})
		default:
			return nil, unsupported("messages", "messages[%d].content[%d] has the type %q, but only text, thinking, tool_use and tool_result are supported: this model reads no images or files",
				position, i, block.Type)
		}
	}
	if len(turns) > 0 && len(texts) == 0 {
		return turns, nil
	}
	turn := map[string]any{"role": role, "content": strings.Join(texts, "\n")}
	if thoughts != nil {
		turn["reasoning_content"] = strings.Join(thoughts, "\n")
	}
	if calls != nil {
		turn["tool_calls"] = calls
	}
	return append(turns, turn), nil
}
