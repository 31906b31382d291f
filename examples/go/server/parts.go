package main

import (
	"strings"

	"libnanovllm/bindings/go"
)

// A part is a piece of one choice of an answer, with its kind.
type part struct {
	kind partKind
	text string // of content, reasoning, or the arguments of a call
	call int    // which call of the choice
	name string // of the function, where a call begins
	id   string // of the call, where it begins
}

type partKind int

const (
	content partKind = iota
	reasoning
	callBegins    // with a name
	callArguments // a piece of them, as JSON
	callEnds
	callBreaks // what has come of the call is no call
)

// A piece is what a delta adds to a choice.
type piece struct {
	choice int
	delta  nanovllm.Delta
	parts  []part
	tokens []chosenToken // with log-probabilities, if requested
	prompt []promptToken // in the first piece of a choice, if requested
	echoed string        // text of the prompt, in the first piece of a choice, if requested
	reason string        // why the choice has ended, empty before
	stop   string        // the string that ended it, if the job asks for it
}

func (p *piece) hasEnded() bool { return p.delta.Finish != nanovllm.FinishNone }

// A choice is one completion, as far as it has been generated.
type choice struct {
	content   strings.Builder
	reasoning strings.Builder
	calls     []call
	reason    string
	stop      string
	tokens    []chosenToken
	prompt    []promptToken
	echoed    string
}

// A call is a call of a function.
type call struct {
	id, name  string
	arguments strings.Builder
}

func (c *choice) add(p piece) {
	c.tokens = append(c.tokens, p.tokens...)
	if p.prompt != nil {
		c.prompt = p.prompt
	}
	c.echoed += p.echoed
	c.reason, c.stop = p.reason, p.stop
	for _, part := range p.parts {
		switch part.kind {
		case content:
			c.content.WriteString(part.text)
		case reasoning:
			c.reasoning.WriteString(part.text)
		case callBegins:
			c.calls = append(c.calls, call{id: part.id, name: part.name})
		case callArguments:
			c.calls[len(c.calls)-1].arguments.WriteString(part.text)
		case callBreaks:
			c.calls = c.calls[:len(c.calls)-1]
		case callEnds:
		}
	}
}

// A listener turns the deltas of a job into pieces.
type listener struct {
	job      *job
	speakers map[int]*speaker
	tails    map[int][]uint32 // the last tokens of choices that may end with a stop string
	calls    map[int]bool     // choices with calls
	begun    map[int]bool
}

func (j *job) listen() *listener {
	return &listener{job: j, speakers: map[int]*speaker{}, tails: map[int][]uint32{}, calls: map[int]bool{}, begun: map[int]bool{}}
}

// hear returns what a delta adds to its choice.
func (l *listener) hear(delta news) (piece, error) {
	j := l.job
	p := piece{choice: delta.choice, delta: delta.Delta}
	var err error
	if p.tokens, err = j.served.spellAll(delta.Delta, j.alternatives); err != nil {
		return p, err
	}
	if j.echo != nil {
		if err := j.echo.tell(&p, !l.begun[delta.choice]); err != nil {
			return p, err
		}
	}
	l.begun[delta.choice] = true
	if p.parts, err = l.parts(delta); err != nil {
		return p, err
	}
	for _, part := range p.parts {
		l.calls[delta.choice] = l.calls[delta.choice] || part.kind == callEnds
	}
	if j.stops != nil {
		if p.stop, err = l.stopOf(delta); err != nil {
			return p, err
		}
	}
	if p.hasEnded() {
		if p.reason = delta.Finish.String(); l.calls[delta.choice] && delta.Finish == nanovllm.FinishStop {
			p.reason = "tool_calls"
		}
	}
	return p, nil
}

func (l *listener) parts(delta news) ([]part, error) {
	if l.job.echo.hidesCompletion() {
		return nil, nil
	}
	if l.job.newSpeaker == nil {
		if delta.Text == "" {
			return nil, nil
		}
		return []part{{kind: content, text: delta.Text}}, nil
	}
	speaks := l.speakers[delta.choice]
	if speaks == nil {
		var err error
		if speaks, err = l.job.newSpeaker(); err != nil {
			return nil, err
		}
		l.speakers[delta.choice] = speaks
	}
	hasEnded := delta.Finish != nanovllm.FinishNone
	parts, err := speaks.hear(delta.Text, hasEnded)
	if hasEnded {
		speaks.close()
		delete(l.speakers, delta.choice)
	}
	return parts, err
}

// close frees the speakers of choices that have not ended.
func (l *listener) close() {
	for _, speaks := range l.speakers {
		speaks.close()
	}
}

// stopOf returns the stop string that has ended a choice: the one that its last tokens spell.
func (l *listener) stopOf(delta news) (string, error) {
	longest := 0
	for _, stop := range l.job.stops {
		longest = max(longest, len(stop))
	}
	tail := append(l.tails[delta.choice], delta.Tokens...)
	// Each token spells at least a part of a character, and the last may be an end token.
	tail = tail[max(0, len(tail)-longest-8):]
	l.tails[delta.choice] = tail
	if delta.Finish != nanovllm.FinishStop {
		return "", nil
	}
	text, err := l.job.served.pool.engine().Detokenize(tail, 0)
	if err != nil {
		return "", err
	}
	best, end := "", -1
	for _, stop := range l.job.stops {
		// The first string to be complete has ended the text, so that nothing but the rest of its last token follows it.
		if at := strings.LastIndex(text, stop); at >= 0 && at+len(stop) > end {
			best, end = stop, at+len(stop)
		}
	}
	if last := delta.Tokens; len(last) > 0 && l.job.served.isEnd(last[len(last)-1]) {
		return "", nil
	}
	return best, nil
}
