package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
)

// A messagesForm writes the answers of Anthropic's API: blocks of text, thinking and calls.
type messagesForm struct {
	model string
	id    string
	// Of a stream.
	block  partKind // of the block that is open
	isOpen bool
	blocks int // that were begun
	reason string
	stop   string
}

func newID(prefix string) string { return prefix + rand.Text() }

// stopReasons are Anthropic's names for the reasons why an answer ends.
var stopReasons = map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}

// messagesUsage counts tokens as Anthropic does: those of the prompt without the cached ones.
func messagesUsage(total usage) map[string]any {
	cached := total.PromptTokensDetails.CachedTokens
	return map[string]any{"input_tokens": total.PromptTokens - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0,
		"output_tokens": total.CompletionTokens}
}

func (f *messagesForm) message(content []any, total usage) map[string]any {
	message := map[string]any{"id": f.id, "type": "message", "role": "assistant", "model": f.model, "content": content, "stop_reason": nil,
		"stop_sequence": nil, "usage": messagesUsage(total)}
	f.setReason(message)
	return message
}

// setReason sets why an answer has ended.
func (f *messagesForm) setReason(of map[string]any) {
	if f.reason != "" {
		of["stop_reason"] = stopReasons[f.reason]
	}
	if f.stop != "" {
		of["stop_reason"], of["stop_sequence"] = "stop_sequence", f.stop
	}
}

func (f *messagesForm) whole(done *answered) any {
	one := &done.choices[0]
	content := []any{}
	if one.reasoning.Len() > 0 {
		content = append(content, map[string]any{"type": "thinking", "thinking": one.reasoning.String(), "signature": ""})
	}
	if one.content.Len() > 0 {
		content = append(content, map[string]any{"type": "text", "text": one.content.String()})
	}
	for i := range one.calls {
		content = append(content, map[string]any{"type": "tool_use", "id": one.calls[i].id, "name": one.calls[i].name,
			"input": objectOf(one.calls[i].arguments.String())})
	}
	f.reason, f.stop = one.reason, one.stop
	return f.message(content, done.usage)
}

// objectOf is a text that should be a JSON object as that, or an empty one.
func objectOf(text string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) != nil || object == nil {
		return json.RawMessage(`{}`)
	}
	return json.RawMessage(text)
}

func (f *messagesForm) begin(events eventWriter) bool {
	return events.event("message_start", map[string]any{"type": "message_start", "message": f.message([]any{}, usage{})}) &&
		events.event("ping", map[string]any{"type": "ping"})
}

func (f *messagesForm) piece(events eventWriter, p piece) bool {
	for _, part := range p.parts {
		if !f.part(events, part) {
			return false
		}
	}
	if p.hasEnded() {
		f.reason, f.stop = p.reason, p.stop
		return f.closeBlock(events)
	}
	return true
}

// part writes a part into the block of its kind, which it opens if it is not open.
func (f *messagesForm) part(events eventWriter, p part) bool {
	switch p.kind {
	case callEnds, callBreaks:
		return f.closeBlock(events)
	case callBegins:
		return f.closeBlock(events) && f.openBlock(events, callArguments,
			map[string]any{"type": "tool_use", "id": p.id, "name": p.name, "input": map[string]any{}})
	case content:
		return f.ensure(events, content, map[string]any{"type": "text", "text": ""}) &&
			f.delta(events, map[string]any{"type": "text_delta", "text": p.text})
	case reasoning:
		return f.ensure(events, reasoning, map[string]any{"type": "thinking", "thinking": "", "signature": ""}) &&
			f.delta(events, map[string]any{"type": "thinking_delta", "thinking": p.text})
	}
	return f.delta(events, map[string]any{"type": "input_json_delta", "partial_json": p.text})
}

func (f *messagesForm) ensure(events eventWriter, kind partKind, block map[string]any) bool {
	if f.isOpen && f.block == kind {
		return true
	}
	return f.closeBlock(events) && f.openBlock(events, kind, block)
}

func (f *messagesForm) openBlock(events eventWriter, kind partKind, block map[string]any) bool {
	f.block, f.isOpen = kind, true
	f.blocks++
	return events.event("content_block_start", map[string]any{"type": "content_block_start", "index": f.blocks - 1, "content_block": block})
}

func (f *messagesForm) delta(events eventWriter, delta map[string]any) bool {
	return events.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": f.blocks - 1, "delta": delta})
}

func (f *messagesForm) closeBlock(events eventWriter) bool {
	if !f.isOpen {
		return true
	}
	f.isOpen = false
	return events.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": f.blocks - 1})
}

func (f *messagesForm) end(events eventWriter, total usage) bool {
	delta := map[string]any{"stop_reason": nil, "stop_sequence": nil}
	f.setReason(delta)
	return events.event("message_delta", map[string]any{"type": "message_delta", "delta": delta, "usage": messagesUsage(total)}) &&
		events.event("message_stop", map[string]any{"type": "message_stop"})
}

func (f *messagesForm) fail(events eventWriter, err error) {
	events.event("error", asAPIError(err).anthropicBody(""))
}

// anthropicKinds are Anthropic's names for kinds of errors.
var anthropicKinds = map[int]string{http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
	http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusServiceUnavailable: "overloaded_error", http.StatusGatewayTimeout: "timeout_error"}

// anthropicBody is {"type": "error", …}.
func (e *apiError) anthropicBody(id string) map[string]any {
	kind := anthropicKinds[e.status]
	if kind == "" {
		if kind = "invalid_request_error"; e.status >= 500 {
			kind = "api_error"
		}
	}
	body := map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": e.message}}
	if id != "" {
		body["request_id"] = id
	}
	return body
}
