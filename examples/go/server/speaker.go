package main

import (
	"cmp"
	"crypto/rand"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"libnanovllm/bindings/go"
)

// A speaker turns the text of one choice of a chat into parts while it is generated: the library's parser knows how the model writes
// reasoning and calls.
type speaker struct {
	parser *nanovllm.AnswerParser
	call   int // which call of the answer is open, from 0
	calls  int // that have begun, without those that broke
}

// listenTo lets a job hear reasoning and calls in its answers, and asks the engine for the calls that the request wants.
func (o *served) listenTo(j *job, request *chatRequest, prompt string) error {
	tools, err := request.checkTools()
	if err != nil {
		return err
	}
	if err := checkRange("max_thinking_tokens", request.MaxThinkingTokens, 0, math.MaxInt32); err != nil {
		return err
	}
	options := j.asked.options
	if request.MaxThinkingTokens != nil {
		// The engine's 0 is no limit, and below 0 the end at once.
		options.MaxThinkingTokens = cmp.Or(*request.MaxThinkingTokens, -1)
	}
	options.KeepSpecialTokens = true // the markers of most formats are special tokens
	if len(tools) > 0 {
		choice, err := request.choice()
		if err != nil {
			return err
		}
		options.Tools = string(request.Tools)
		switch {
		case choice.name != "":
			options.ToolChoice, options.ToolName = nanovllm.ToolChoiceNamed, choice.name
		case choice.mode == "required":
			options.ToolChoice = nanovllm.ToolChoiceRequired
		}
		j.mayLoosen = !slices.ContainsFunc(tools, func(one tool) bool { return one.Function.Strict != nil && *one.Function.Strict })
		options.NoParallelToolCalls = request.ParallelToolCalls != nil && !*request.ParallelToolCalls
	}
	// Neither the request nor all of its prompt stay in memory during the answer.
	shown, isContinued := options.Tools, request.ContinueFinalMessage
	if !isContinued {
		prompt = endOf(prompt)
	}
	j.newSpeaker = func() (*speaker, error) {
		parser, err := o.pool.engine().NewAnswerParser(prompt, shown)
		if err == nil && isContinued {
			_, err = parser.Feed("") // what the client has written of the answer is no news to it
		}
		return &speaker{parser: parser}, err
	}
	return nil
}

// hear returns what a piece of text adds; isLast says that it is the end of the choice.
func (s *speaker) hear(text string, isLast bool) ([]part, error) {
	events, err := s.parser.Feed(text)
	if err == nil && isLast {
		var last []nanovllm.AnswerEvent
		last, err = s.parser.Finish()
		events = append(events, last...)
	}
	var parts []part
	for _, event := range events {
		made := part{text: event.Text, call: s.call}
		switch event.Kind {
		case nanovllm.AnswerContent:
			made.kind = content
		case nanovllm.AnswerReasoning:
			made.kind = reasoning
		case nanovllm.AnswerToolCallBegin:
			s.call = s.calls
			s.calls++
			made = part{kind: callBegins, call: s.call, name: event.Text, id: newCallID()}
		case nanovllm.AnswerToolCallArguments:
			made.kind = callArguments
		case nanovllm.AnswerToolCallEnd:
			made = part{kind: callEnds, call: s.call}
		case nanovllm.AnswerToolCallBroken:
			made = part{kind: callBreaks, call: s.call}
		}
		parts = append(parts, made)
	}
	return parts, err
}

// endOf returns the end of a prompt, which holds the beginning of an answer that a template has written.
func endOf(prompt string) string {
	const most = 4096
	if len(prompt) <= most {
		return prompt
	}
	begin := len(prompt) - most
	for !utf8.RuneStart(prompt[begin]) {
		begin++
	}
	return strings.Clone(prompt[begin:])
}

func (s *speaker) close() { s.parser.Close() }

// newCallID is a random id of 9 letters and digits: the templates of some models take no other.
func newCallID() string { return rand.Text()[:9] }
