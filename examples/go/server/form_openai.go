package main

import (
	"crypto/rand"
	"time"
	"unicode/utf8"
)

// A form writes the answer of a job in the format of an endpoint. One goroutine uses it.
type form interface {
	// whole is the answer in one piece.
	whole(*answered) any
	// The three write the events of a stream, and report whether the client is still there.
	begin(eventWriter) bool
	piece(eventWriter, piece) bool
	end(eventWriter, usage) bool
	// fail writes an error as the last event.
	fail(eventWriter, error)
}

// An openAIForm writes the answers of chat completions and of completions.
type openAIForm struct {
	isChat       bool
	model        string
	id           string
	created      int64
	includeUsage bool // at the end of a stream
	job          *job
	// The progress of the choices of a stream, in characters of the text that log-probabilities refer to. Chat clients expect the role once
	// per choice.
	offsets map[int]int
}

// An openAIObject is an answer, or a chunk of one.
type openAIObject struct {
	ID             string `json:"id"`
	Object         string `json:"object"`
	Created        int64  `json:"created"`
	Model          string `json:"model"`
	Choices        []any  `json:"choices"`
	Usage          *usage `json:"usage,omitempty"`
	PromptLogprobs any    `json:"prompt_logprobs,omitempty"` // of a chat, as vLLM has it
}

func newOpenAIForm(isChat bool, model string, includeUsage bool) *openAIForm {
	prefix := "cmpl-"
	if isChat {
		prefix = "chatcmpl-"
	}
	return &openAIForm{isChat: isChat, model: model, id: prefix + rand.Text(), created: time.Now().Unix(), includeUsage: includeUsage,
		offsets: map[int]int{}}
}

func (f *openAIForm) object(choices ...any) openAIObject {
	kind := "text_completion"
	if f.isChat {
		kind = "chat.completion"
	}
	return openAIObject{ID: f.id, Object: kind, Created: f.created, Model: f.model, Choices: choices}
}

func (f *openAIForm) whole(done *answered) any {
	object := f.object()
	object.Usage = &done.usage
	for i := range done.choices {
		one := &done.choices[i]
		if first := &done.choices[i-i%f.job.choices]; one.prompt == nil {
			one.prompt = first.prompt // of all completions of a prompt, the first has it
		}
		made := map[string]any{"index": i, "finish_reason": one.reason, "logprobs": f.job.logprobs(one.prompt, one.tokens, 0)}
		if told := f.job.echo.promptLogprobs(one.prompt); told != nil {
			if made["prompt_logprobs"] = told; f.isChat {
				delete(made, "prompt_logprobs")
				object.PromptLogprobs = told
			}
		}
		if f.isChat {
			made["message"] = one.message()
		} else {
			made["text"] = one.echoed + one.content.String()
		}
		object.Choices = append(object.Choices, made)
	}
	return object
}

// message is a choice in the form of a message of OpenAI's chat.
func (c *choice) message() map[string]any {
	message := map[string]any{"role": "assistant", "content": c.content.String()}
	if c.reasoning.Len() > 0 {
		message["reasoning_content"] = c.reasoning.String()
	}
	var calls []any
	for i := range c.calls {
		calls = append(calls, map[string]any{"id": c.calls[i].id, "type": "function",
			"function": map[string]any{"name": c.calls[i].name, "arguments": c.calls[i].arguments.String()}})
	}
	if calls != nil {
		message["tool_calls"] = calls
		if c.content.Len() == 0 {
			message["content"] = nil
		}
	}
	return message
}

func (f *openAIForm) begin(eventWriter) bool { return true }

// piece writes a chunk per part, or one without a part.
func (f *openAIForm) piece(events eventWriter, p piece) bool {
	parts := make([]part, 0, len(p.parts)+1)
	for _, part := range p.parts {
		if part.kind != callEnds && part.kind != callBreaks {
			parts = append(parts, part)
		}
	}
	if _, known := f.offsets[p.choice]; len(parts) == 0 && f.isChat && known && !p.hasEnded() && len(p.tokens) == 0 {
		return true // the parser of answers waits for more
	}
	if len(parts) == 0 {
		parts = append(parts, part{kind: content})
	}
	for i, one := range parts {
		var tokens []chosenToken
		var prompt []promptToken
		if i == 0 {
			tokens, prompt = p.tokens, p.prompt
		}
		offset, known := f.offsets[p.choice]
		made := map[string]any{"index": p.choice, "finish_reason": nil, "logprobs": f.job.logprobs(prompt, tokens, offset)}
		for _, token := range prompt {
			offset += utf8.RuneCountInString(token.Token)
		}
		for _, token := range tokens {
			offset += utf8.RuneCountInString(token.Token)
		}
		f.offsets[p.choice] = offset
		if p.hasEnded() && i == len(parts)-1 {
			made["finish_reason"] = p.reason
		}
		if !f.isChat {
			made["text"] = one.text
			if i == 0 {
				made["text"] = p.echoed + one.text
			}
		} else {
			delta := one.delta()
			if !known {
				delta["role"] = "assistant"
			}
			made["delta"] = delta
		}
		if !events.write(f.chunk(made)) {
			return false
		}
	}
	return true
}

// chunk is an object of a stream.
func (f *openAIForm) chunk(choices ...any) openAIObject {
	made := f.object(choices...)
	if f.isChat {
		made.Object += ".chunk"
	}
	return made
}

// delta is a part in the form of a delta of OpenAI's chat.
func (p part) delta() map[string]any {
	switch p.kind {
	case reasoning:
		return map[string]any{"reasoning_content": p.text}
	case callBegins:
		return map[string]any{"tool_calls": []any{map[string]any{"index": p.call, "id": p.id, "type": "function",
			"function": map[string]any{"name": p.name, "arguments": ""}}}}
	case callArguments:
		return map[string]any{"tool_calls": []any{map[string]any{"index": p.call, "function": map[string]any{"arguments": p.text}}}}
	}
	return map[string]any{"content": p.text}
}

func (f *openAIForm) end(events eventWriter, total usage) bool {
	if f.includeUsage {
		last := f.chunk()
		last.Choices, last.Usage = []any{}, &total
		if !events.write(last) {
			return false
		}
	}
	return events.send([]byte("data: [DONE]\n\n"))
}

func (f *openAIForm) fail(events eventWriter, err error) {
	if events.write(asAPIError(err).body()) {
		events.send([]byte("data: [DONE]\n\n"))
	}
}
