package main

import (
	"strconv"
)

// An echo answers: what does an answer say about its prompt?
//
// OpenAI's older API repeats the prompt before its completion, with log-probabilities if those are asked for; evaluation harnesses read
// the probability of a given text that way. vLLM reports the log-probabilities of the prompt on their own as prompt_logprobs.
type echo struct {
	job           *job
	isEchoed      bool
	isOnlyPrompt  bool // max_tokens is 0: nothing is completed
	hasLogprobs   bool // the engine reports the log-probabilities of the prompt
	asksForPrompt bool // prompt_logprobs
	alternatives  int  // of prompt_logprobs
	prompts       []prompt
}

// A promptToken is a token of a prompt with its log-probability, which the first one has not.
type promptToken struct {
	chosenToken
	id  uint32
	top []uint32 // the most likely tokens in this place
}

// tell adds what the first piece of a choice says about the prompt, and takes the completion away if there is to be none.
func (e *echo) tell(p *piece, isFirst bool) error {
	prompt := e.prompts[p.choice/e.job.choices]
	if isFirst && e.isEchoed {
		text, err := prompt.spelledOut(e.job.served)
		if err != nil {
			return err
		}
		p.echoed = text
	}
	if p.delta.PromptLogprobs != nil || isFirst && e.hasLogprobs && len(prompt.tokens) == 1 {
		if err := e.spellPrompt(p, prompt.tokens); err != nil {
			return err
		}
	}
	if e.isOnlyPrompt {
		p.delta.Text, p.tokens, p.delta.CompletionTokens = "", nil, 0
	}
	return nil
}

// spellPrompt adds the tokens of the prompt to a piece.
func (e *echo) spellPrompt(p *piece, tokens []uint32) error {
	alternatives := max(e.alternatives, e.job.alternatives)
	p.prompt = make([]promptToken, len(tokens))
	for i, token := range tokens {
		logprob := float32(0)
		if i > 0 {
			logprob = p.delta.PromptLogprobs[i-1]
		}
		chosen, err := e.job.served.spell(token, logprob)
		if err != nil {
			return err
		}
		p.prompt[i] = promptToken{chosenToken: chosenToken{spelled: chosen, TopLogprobs: []spelled{}}, id: token}
		if i == 0 {
			continue
		}
		p.prompt[i].TopLogprobs, err = e.job.served.spellTop(p.delta.PromptTopTokens, p.delta.PromptTopLogprobs, i-1, alternatives)
		if err != nil {
			return err
		}
		if i-1 < len(p.delta.PromptTopTokens) {
			p.prompt[i].top = p.delta.PromptTopTokens[i-1]
		}
	}
	return nil
}

// spelledOut returns a prompt as text.
func (p prompt) spelledOut(o *served) (string, error) {
	if p.tokens == nil || p.text != "" {
		return p.text, nil
	}
	return o.pool.engine().Detokenize(p.tokens, parseSpecial)
}

func (e *echo) isEchoing() bool       { return e != nil && e.isEchoed }
func (e *echo) hidesCompletion() bool { return e != nil && e.isOnlyPrompt }

// promptLogprobs returns the log-probabilities of a prompt as vLLM does: a list with an object per token, whose names are token ids, and
// null for the first token. rank is null for a token that is not among the most likely ones that were asked for.
func (e *echo) promptLogprobs(prompt []promptToken) any {
	if e == nil || !e.asksForPrompt {
		return nil
	}
	list := make([]any, 0, len(prompt))
	for i, token := range prompt {
		if i == 0 {
			list = append(list, nil)
			continue
		}
		entry := map[string]any{}
		add := func(id uint32, of spelled, rank any) {
			entry[strconv.FormatUint(uint64(id), 10)] = map[string]any{"logprob": of.Logprob, "rank": rank, "decoded_token": of.Token}
		}
		add(token.id, token.spelled, nil)
		// The engine reports at least one: the most likely token has the rank 1, also if no alternatives are asked for.
		if len(token.top) > 0 && token.top[0] == token.id {
			add(token.id, token.spelled, 1)
		}
		for rank, other := range token.TopLogprobs[:min(e.alternatives, len(token.TopLogprobs))] {
			add(token.top[rank], other, rank+1)
		}
		list = append(list, entry)
	}
	return list
}

// ask asks the engine for what the echo tells. The prompts of its job become tokens if their log-probabilities are wanted.
func (e *echo) ask(promptLogprobs *int) error {
	j := e.job
	options := j.asked.options
	if err := checkRange("prompt_logprobs", promptLogprobs, 0, maxPromptLogprobs); err != nil {
		return err
	}
	e.asksForPrompt = promptLogprobs != nil
	if e.asksForPrompt {
		e.alternatives = *promptLogprobs
	}
	e.hasLogprobs = e.asksForPrompt || e.isEchoed && j.hasLogprobs
	if e.asksForPrompt && j.stream {
		return unsupported("prompt_logprobs", "prompt_logprobs cannot be streamed: leave stream out")
	}
	if e.hasLogprobs && j.stream && j.choices > 1 {
		return unsupported("echo", "echo with logprobs cannot be streamed with n %d, only with 1", j.choices)
	}
	if e.hasLogprobs {
		options.NumPromptLogprobs = max(1, e.alternatives)
		if e.isEchoed {
			options.NumPromptLogprobs = max(options.NumPromptLogprobs, j.alternatives)
		}
		var err error
		// As the engine does with a text.
		if j.asked.prompts, err = tokenized(j.served, j.asked.prompts, true); err != nil {
			return err
		}
	}
	e.prompts = j.asked.prompts
	return nil
}
