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
	TokenLogprobs []float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// noToken marks an unused entry among the most likely tokens.
const noToken = 1<<32 - 1

// spell converts a token to text.
func (s *server) spell(token uint32, logprob float32) (spelled, error) {
	text, err := s.pool.engine().Detokenize([]uint32{token}, nanovllm.ParseSpecial)
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
func (s *server) spellAll(delta nanovllm.Delta, alternatives int) ([]chosenToken, error) {
	tokens := make([]chosenToken, len(delta.Logprobs))
	for i, logprob := range delta.Logprobs {
		chosen, err := s.spell(delta.Tokens[i], logprob)
		if err != nil {
			return nil, err
		}
		tokens[i] = chosenToken{spelled: chosen, TopLogprobs: []spelled{}}
		if i >= len(delta.TopTokens) {
			continue
		}
		for rank, token := range delta.TopTokens[i] {
			if rank == alternatives || token == noToken {
				break
			}
			other, err := s.spell(token, delta.TopLogprobs[i][rank])
			if err != nil {
				return nil, err
			}
			tokens[i].TopLogprobs = append(tokens[i].TopLogprobs, other)
		}
	}
	return tokens, nil
}

// logprobs converts tokens to the format of an endpoint; offset is the position of their text in the completion.
func (j *job) logprobs(tokens []chosenToken, offset int) any {
	if !j.hasLogprobs {
		return nil
	}
	if j.kind == chat {
		return map[string]any{"content": tokens, "refusal": nil}
	}
	lists := textLogprobs{Tokens: []string{}, TokenLogprobs: []float64{}, TopLogprobs: []map[string]float64{}, TextOffset: []int{}}
	for _, token := range tokens {
		top := map[string]float64{}
		for _, other := range token.TopLogprobs {
			top[other.Token] = other.Logprob
		}
		lists.Tokens = append(lists.Tokens, token.Token)
		lists.TokenLogprobs = append(lists.TokenLogprobs, token.Logprob)
		lists.TopLogprobs = append(lists.TopLogprobs, top)
		lists.TextOffset = append(lists.TextOffset, offset)
		offset += utf8.RuneCountInString(token.Token)
	}
	return lists
}
