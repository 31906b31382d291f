package main

import (
	"strings"
	"unicode/utf8"

	"libnanovllm/bindings/go"
)

// A spelled token is one entry of the log-probabilities of OpenAI's chat API.
type spelled struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"` // null for a token that is part of a character
}

// A chosenToken is a token of the completion, with its alternatives.
type chosenToken struct {
	spelled
	TopLogprobs []spelled `json:"top_logprobs"`
}

// textLogprobs are the log-probabilities of a completion, in the lists of OpenAI's older API.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"` // null for the first token of a prompt
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// noToken marks an unused entry among the most likely tokens.
const noToken = 1<<32 - 1

// spell converts a token to text.
func (o *served) spell(token uint32, logprob float32) (spelled, error) {
	text, err := o.pool.engine().Detokenize([]uint32{token}, nanovllm.ParseSpecial)
	if err != nil {
		return spelled{}, err
	}
	// JSON has no infinity; OpenAI's API uses -9999 for impossible tokens.
	made := spelled{Token: text, Logprob: max(float64(logprob), -9999)}
	if !strings.ContainsRune(text, utf8.RuneError) {
		made.Bytes = make([]int, len(text))
		for i := range len(text) {
			made.Bytes[i] = int(text[i])
		}
	}
	return made, nil
}

// spellAll returns the tokens of a delta, each with at most alternatives other tokens.
func (o *served) spellAll(delta nanovllm.Delta, alternatives int) ([]chosenToken, error) {
	tokens := make([]chosenToken, len(delta.Logprobs))
	for i, logprob := range delta.Logprobs {
		chosen, err := o.spell(delta.Tokens[i], logprob)
		if err != nil {
			return nil, err
		}
		tokens[i].spelled = chosen
		if tokens[i].TopLogprobs, err = o.spellTop(delta.TopTokens, delta.TopLogprobs, i, alternatives); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// spellTop returns the most likely tokens of a place.
func (o *served) spellTop(tokens [][]uint32, logprobs [][]float32, place, alternatives int) ([]spelled, error) {
	top := []spelled{}
	if place >= len(tokens) {
		return top, nil
	}
	for rank, token := range tokens[place] {
		if rank == alternatives || token == noToken {
			break
		}
		other, err := o.spell(token, logprobs[place][rank])
		if err != nil {
			return nil, err
		}
		top = append(top, other)
	}
	return top, nil
}

// logprobs converts tokens to the format of an endpoint; offset is the position of their text in the answer. The tokens of the prompt
// come first, if there are any.
func (j *job) logprobs(prompt []promptToken, tokens []chosenToken, offset int) any {
	if !j.hasLogprobs {
		return nil
	}
	if form, isOpenAI := j.form.(*openAIForm); !isOpenAI || form.isChat {
		return map[string]any{"content": tokens, "refusal": nil}
	}
	lists := textLogprobs{Tokens: []string{}, TokenLogprobs: []*float64{}, TopLogprobs: []map[string]float64{}, TextOffset: []int{}}
	add := func(token chosenToken, isFirst bool) {
		var logprob *float64
		var top map[string]float64
		if !isFirst {
			logprob, top = &token.Logprob, map[string]float64{}
			for _, other := range token.TopLogprobs {
				// Of tokens that are spelled alike, such as parts of characters, the most likely one.
				if _, isTaken := top[other.Token]; !isTaken {
					top[other.Token] = other.Logprob
				}
			}
		}
		lists.Tokens = append(lists.Tokens, token.Token)
		lists.TokenLogprobs = append(lists.TokenLogprobs, logprob)
		lists.TopLogprobs = append(lists.TopLogprobs, top)
		lists.TextOffset = append(lists.TextOffset, offset)
		offset += utf8.RuneCountInString(token.Token)
	}
	if j.echo.isEchoing() {
		for i, token := range prompt {
			add(token.chosenToken, i == 0)
		}
	}
	for _, token := range tokens {
		add(token, false)
	}
	return lists
}
