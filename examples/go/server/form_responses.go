package main

import (
	"encoding/json"
	"strings"
	"time"
)

// A responsesForm writes the answers of OpenAI's Responses: items, which are messages, reasoning and calls. A stream says of each item
// when it begins, what is added to it, and when it is done.
type responsesForm struct {
	model   string
	id      string
	created int64
	request *responsesRequest
	job     *job

	number int          // of the next event
	output []any        // the items that are done
	item   responseItem // the item that is open, if isOpen
	isOpen bool
	reason string
}

// A responseItem is an item that is being written.
type responseItem struct {
	kind     partKind // content, reasoning or callArguments
	id       string
	callID   string
	name     string
	text     strings.Builder
	logprobs []chosenToken
}

func newResponsesForm(model string, request *responsesRequest) *responsesForm {
	return &responsesForm{model: model, id: newID("resp_"), created: time.Now().Unix(), request: request}
}

// response is the object of an answer in a state.
func (f *responsesForm) response(status string, total *usage) map[string]any {
	r := f.request
	orDefault := func(value *float64, other float64) float64 {
		if value == nil {
			return other
		}
		return *value
	}
	format := map[string]any{"type": "text"}
	if r.Text != nil && r.Text.Format != nil {
		format = map[string]any{"type": r.Text.Format.Type}
		if r.Text.Format.Type == "json_schema" {
			format["name"], format["schema"], format["strict"] = r.Text.Format.Name, r.Text.Format.Schema, true
		}
	}
	tools := []any{}
	for _, tool := range r.Tools {
		tools = append(tools, tool)
	}
	choice := json.RawMessage(`"auto"`)
	if !isAbsent(r.ToolChoice) {
		choice = r.ToolChoice
	}
	metadata := json.RawMessage(`{}`)
	if !isAbsent(r.Metadata) {
		metadata = r.Metadata
	}
	output := f.output
	if output == nil {
		output = []any{}
	}
	made := map[string]any{"id": f.id, "object": "response", "created_at": f.created, "status": status, "model": f.model, "output": output,
		"error": nil, "incomplete_details": nil, "instructions": r.Instructions, "max_output_tokens": r.MaxOutputTokens, "metadata": metadata,
		"parallel_tool_calls": r.ParallelToolCalls == nil || *r.ParallelToolCalls, "previous_response_id": nil, "store": false,
		"temperature": orDefault(r.Temperature, f.job.recommendedTemperature()), "top_p": orDefault(r.TopP, 1), "text": map[string]any{"format": format},
		"tool_choice": choice, "tools": tools, "truncation": "disabled", "usage": nil,
		"reasoning": map[string]any{"effort": nil, "summary": nil}}
	if r.Reasoning != nil && r.Reasoning.Effort != "" {
		made["reasoning"] = map[string]any{"effort": r.Reasoning.Effort, "summary": nil}
	}
	if status == "incomplete" {
		made["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	if total != nil {
		made["usage"] = map[string]any{"input_tokens": total.PromptTokens, "output_tokens": total.CompletionTokens, "total_tokens": total.TotalTokens,
			"input_tokens_details":  map[string]any{"cached_tokens": total.PromptTokensDetails.CachedTokens},
			"output_tokens_details": map[string]any{"reasoning_tokens": total.CompletionTokensDetails.ReasoningTokens}}
	}
	return made
}

func (j *job) recommendedTemperature() float64 { return j.served.recommended.Temperature }

func (f *responsesForm) status() string {
	if f.reason == "length" {
		return "incomplete"
	}
	return "completed"
}

// whole makes the items that a stream would have made.
func (f *responsesForm) whole(done *answered) any {
	one := &done.choices[0]
	f.reason = one.reason
	silent := eventWriter{}
	if one.reasoning.Len() > 0 {
		f.part(silent, part{kind: reasoning, text: one.reasoning.String()}, nil)
	}
	if one.content.Len() > 0 || len(one.calls) == 0 {
		f.part(silent, part{kind: content, text: one.content.String()}, one.tokens)
	}
	for i := range one.calls {
		f.part(silent, part{kind: callBegins, id: one.calls[i].id, name: one.calls[i].name}, nil)
		f.part(silent, part{kind: callArguments, text: one.calls[i].arguments.String()}, nil)
	}
	f.closeItem(silent)
	return f.response(f.status(), &done.usage)
}

// send writes an event with its number. Without a stream it writes nothing.
func (f *responsesForm) send(events eventWriter, kind string, fields map[string]any) bool {
	if events.w == nil {
		return true
	}
	fields["type"], fields["sequence_number"] = kind, f.number
	f.number++
	return events.event(kind, fields)
}

func (f *responsesForm) begin(events eventWriter) bool {
	return f.send(events, "response.created", map[string]any{"response": f.response("in_progress", nil)}) &&
		f.send(events, "response.in_progress", map[string]any{"response": f.response("in_progress", nil)})
}

func (f *responsesForm) piece(events eventWriter, p piece) bool {
	tokens := p.tokens
	for _, part := range p.parts {
		if !f.part(events, part, tokens) {
			return false
		}
		tokens = nil
	}
	if p.hasEnded() {
		f.reason = p.reason
		return f.closeItem(events)
	}
	return true
}

// part writes a part into the item of its kind, which it opens if it is not open.
func (f *responsesForm) part(events eventWriter, p part, tokens []chosenToken) bool {
	switch {
	case p.kind == callEnds:
		return f.closeItem(events)
	case p.kind == callBreaks:
		return f.closeItemAs(events, "incomplete")
	case p.kind == callBegins:
		if !f.closeItem(events) {
			return false
		}
		f.item = responseItem{kind: callArguments, id: newID("fc_"), callID: p.id, name: p.name}
		return f.openItem(events)
	case p.kind != callArguments && (!f.isOpen || f.item.kind != p.kind):
		if !f.closeItem(events) {
			return false
		}
		f.item = responseItem{kind: p.kind, id: newID(map[partKind]string{content: "msg_", reasoning: "rs_"}[p.kind])}
		if !f.openItem(events) {
			return false
		}
	}
	f.item.text.WriteString(p.text)
	fields := f.place()
	fields["delta"] = p.text
	switch p.kind {
	case content:
		f.item.logprobs = append(f.item.logprobs, tokens...)
		fields["logprobs"] = logprobsOf(tokens)
		return f.send(events, "response.output_text.delta", fields)
	case reasoning:
		return f.send(events, "response.reasoning_text.delta", fields)
	}
	return f.send(events, "response.function_call_arguments.delta", fields)
}

// logprobsOf are tokens with log-probabilities, in a list that is not null.
func logprobsOf(tokens []chosenToken) []chosenToken { return append([]chosenToken{}, tokens...) }

// place says which item, and which part of it, an event is about.
func (f *responsesForm) place() map[string]any {
	fields := map[string]any{"item_id": f.item.id, "output_index": len(f.output)}
	if f.item.kind != callArguments {
		fields["content_index"] = 0
	}
	return fields
}

// object is the item that is open, as it stands.
func (f *responsesForm) object(status string) map[string]any {
	item := &f.item
	switch item.kind {
	case content:
		parts := []any{}
		if status != "in_progress" {
			parts = append(parts, f.textPart())
		}
		return map[string]any{"type": "message", "id": item.id, "role": "assistant", "status": status, "content": parts}
	case reasoning:
		parts := []any{}
		if status != "in_progress" {
			parts = append(parts, f.textPart())
		}
		return map[string]any{"type": "reasoning", "id": item.id, "summary": []any{}, "status": status, "content": parts}
	}
	return map[string]any{"type": "function_call", "id": item.id, "call_id": item.callID, "name": item.name, "status": status,
		"arguments": item.text.String()}
}

// textPart is the content of the item that is open.
func (f *responsesForm) textPart() map[string]any {
	if f.item.kind == reasoning {
		return map[string]any{"type": "reasoning_text", "text": f.item.text.String()}
	}
	return map[string]any{"type": "output_text", "text": f.item.text.String(), "annotations": []any{}, "logprobs": logprobsOf(f.item.logprobs)}
}

func (f *responsesForm) openItem(events eventWriter) bool {
	f.isOpen = true
	if !f.send(events, "response.output_item.added", map[string]any{"output_index": len(f.output), "item": f.object("in_progress")}) {
		return false
	}
	if f.item.kind == callArguments {
		return true
	}
	fields := f.place()
	fields["part"] = f.textPart()
	return f.send(events, "response.content_part.added", fields)
}

func (f *responsesForm) closeItem(events eventWriter) bool { return f.closeItemAs(events, f.status()) }

func (f *responsesForm) closeItemAs(events eventWriter, status string) bool {
	if !f.isOpen {
		return true
	}
	f.isOpen = false
	done := f.object(status)
	defer func() { f.output = append(f.output, done) }()
	fields := f.place()
	switch f.item.kind {
	case callArguments:
		fields["arguments"], fields["name"] = f.item.text.String(), f.item.name
		if !f.send(events, "response.function_call_arguments.done", fields) {
			return false
		}
	default:
		kind := "response.reasoning_text.done"
		if fields["text"] = f.item.text.String(); f.item.kind == content {
			kind = "response.output_text.done"
			fields["logprobs"] = logprobsOf(f.item.logprobs)
		}
		part := f.place()
		part["part"] = f.textPart()
		if !f.send(events, kind, fields) || !f.send(events, "response.content_part.done", part) {
			return false
		}
	}
	return f.send(events, "response.output_item.done", map[string]any{"output_index": len(f.output), "item": done})
}

func (f *responsesForm) end(events eventWriter, total usage) bool {
	return f.send(events, "response."+f.status(), map[string]any{"response": f.response(f.status(), &total)})
}

func (f *responsesForm) fail(events eventWriter, err error) {
	told := asAPIError(err)
	response := f.response("failed", nil)
	response["error"] = map[string]any{"code": told.responsesCode(), "message": told.message}
	f.send(events, "response.failed", map[string]any{"response": response})
}

// responsesCode is one of the codes that clients know.
func (e *apiError) responsesCode() string {
	if e.status == 429 {
		return "rate_limit_exceeded"
	}
	if e.status < 500 {
		return "invalid_prompt"
	}
	return "server_error"
}
