package nanovllm

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
)

// A Chat is a conversation that keeps its history. [Engine.NewChat] begins one. Its fields may be changed between two answers.
type Chat struct {
	// How the answers are generated; nil means [Engine.DefaultOptions]. N must be 0 or 1.
	Options *RequestOptions
	// Variables of the chat template, as the options of [Engine.ApplyChatTemplate]; nil for none.
	TemplateOptions any

	engine    *Engine
	numSystem int // messages that Reset keeps

	mu          sync.Mutex
	isAnswering bool
	messages    []Message
}

// NewChat begins a conversation. Each argument is a message with the role "system".
func (e *Engine) NewChat(system ...string) *Chat {
	c := &Chat{engine: e, numSystem: len(system)}
	for _, text := range system {
		c.messages = append(c.messages, Message{Role: "system", Content: text})
	}
	return c
}

// Messages returns a copy of the history.
func (c *Chat) Messages() []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.messages)
}

// Append adds messages to the history, such as those of an earlier conversation. It returns [ErrBusy] during an answer.
func (c *Chat) Append(messages ...Message) error {
	return c.change(func() { c.messages = append(c.messages, messages...) })
}

// Reset forgets all but the messages of [Engine.NewChat]. It returns [ErrBusy] during an answer.
func (c *Chat) Reset() error {
	return c.change(func() { c.messages = c.messages[:min(c.numSystem, len(c.messages)):c.numSystem] })
}

func (c *Chat) change(change func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isAnswering {
		return answering()
	}
	change()
	return nil
}

func answering() error {
	return &Error{Status: ErrBusy, Message: "this conversation is being answered: read that answer to its end, or leave it, and then change the conversation"}
}

// Send says text in the role "user", and returns the deltas of the answer, as [Engine.Answer] does. Nothing happens until the sequence
// is ranged over. While nobody is inside [Engine.Run], it steps the engine itself, as [Engine.Generate] does.
//
// The text and the answer become part of the history when the answer ends. An answer that was left or cancelled is kept as far as it
// came. If there is none of it, or if it ended with [FinishError], the history is as before.
func (c *Chat) Send(ctx context.Context, text string) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		asked, err := c.begin(text)
		if err != nil {
			yield(Delta{}, err)
			return
		}
		var answer strings.Builder
		isKept := true
		defer func() { c.end(asked, answer.String(), isKept) }()

		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		prompt, err := c.engine.render(asked, c.TemplateOptions, c.Options)
		if err == nil && c.Options.completions() != 1 {
			err = &Error{Status: ErrInvalidArgument, Message: "N of the options of a conversation must be 0 or 1"}
		}
		var deltas <-chan Delta
		if err == nil {
			deltas, err = c.engine.Stream(ctx, prompt, c.Options)
		}
		if err != nil {
			isKept = false
			yield(Delta{}, err)
			return
		}
		for {
			delta, more := c.engine.receive(deltas)
			if !more {
				return
			}
			answer.WriteString(delta.Text)
			isKept = delta.Finish != FinishError && delta.Finish != FinishExpired
			if !yield(delta, delta.Err) {
				return
			}
		}
	}
}

// begin returns the history with a new question, which only end adds to it.
func (c *Chat) begin(text string) ([]Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isAnswering {
		return nil, answering()
	}
	c.isAnswering = true
	return append(slices.Clone(c.messages), Message{Role: "user", Content: text}), nil
}

func (c *Chat) end(asked []Message, answer string, isKept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isAnswering = false
	if isKept && answer != "" {
		c.messages = append(asked, Message{Role: "assistant", Content: answer})
	}
}

// receive returns the next delta of a stream, and steps the engine for it while nobody is inside Run.
func (e *Engine) receive(deltas <-chan Delta) (delta Delta, more bool) {
	for {
		select {
		case delta, more = <-deltas:
			return delta, more
		default:
		}
		runEnds := e.turn.running()
		if runEnds == nil {
			if err := e.pass(); err != nil {
				select {
				case delta, more = <-deltas:
					return delta, more
				default:
					return Delta{Finish: FinishCancelled, Err: err}, true
				}
			}
			continue
		}
		select {
		case delta, more = <-deltas:
			return delta, more
		case <-runEnds:
		}
	}
}
