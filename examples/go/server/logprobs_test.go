package main

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"libnanovllm/bindings/go"
)

func TestLogprobsHaveTheFormOfTheirEndpoint(t *testing.T) {
	s := start(t, demoConfig(), settings{}, 0)
	words, err := s.engine.Tokenize("Prime numbers", 0)
	if err != nil || len(words) != 2 {
		t.Fatal(words, err)
	}
	// Of the bytes of 🔥, the first alone is no text.
	fire, err := s.engine.Tokenize("🔥", 0)
	if err != nil || len(fire) < 2 {
		t.Fatal(fire, err)
	}
	delta := nanovllm.Delta{
		Tokens:      []uint32{words[0], words[1], fire[0]},
		Logprobs:    []float32{-0.5, -1, float32(math.Inf(-1))},
		TopTokens:   [][]uint32{{words[0], words[1]}, {words[1], noToken}, {words[0], words[1]}},
		TopLogprobs: [][]float32{{-0.5, -2}, {-1, float32(math.Inf(-1))}, {-0.25, -4}},
	}
	cases := []struct {
		name         string
		isChat       bool
		alternatives int
		wanted       string
	}{
		{"of a chat", true, 2, `{"content":[` +
			`{"token":"Prime","logprob":-0.5,"bytes":[80,114,105,109,101],"top_logprobs":[{"token":"Prime","logprob":-0.5,"bytes":[80,114,105,109,101]},{"token":" numbers","logprob":-2,"bytes":[32,110,117,109,98,101,114,115]}]},` +
			`{"token":" numbers","logprob":-1,"bytes":[32,110,117,109,98,101,114,115],"top_logprobs":[{"token":" numbers","logprob":-1,"bytes":[32,110,117,109,98,101,114,115]}]},` +
			`{"token":"�","logprob":-9999,"bytes":null,"top_logprobs":[{"token":"Prime","logprob":-0.25,"bytes":[80,114,105,109,101]},{"token":" numbers","logprob":-4,"bytes":[32,110,117,109,98,101,114,115]}]}],"refusal":null}`},
		{"of a chat, without alternatives", true, 0, `{"content":[` +
			`{"token":"Prime","logprob":-0.5,"bytes":[80,114,105,109,101],"top_logprobs":[]},` +
			`{"token":" numbers","logprob":-1,"bytes":[32,110,117,109,98,101,114,115],"top_logprobs":[]},` +
			`{"token":"�","logprob":-9999,"bytes":null,"top_logprobs":[]}],"refusal":null}`},
		{"of a completion", false, 1, `{"tokens":["Prime"," numbers","�"],"token_logprobs":[-0.5,-1,-9999],` +
			`"top_logprobs":[{"Prime":-0.5},{" numbers":-1},{"Prime":-0.25}],"text_offset":[10,15,23]}`},
	}
	for _, c := range cases {
		tokens, err := s.catalog.models[0].open.spellAll(delta, c.alternatives)
		if err != nil {
			t.Fatal(c.name, err)
		}
		j := &job{form: newOpenAIForm(c.isChat, "demo", false), hasLogprobs: true, alternatives: c.alternatives}
		text, err := json.Marshal(j.logprobs(nil, tokens, 10))
		if err != nil || string(text) != c.wanted {
			t.Errorf("%s: %v\n%s\n%s", c.name, err, text, c.wanted)
		}
	}
	if unasked := (&job{}).logprobs(nil, nil, 0); unasked != nil {
		t.Errorf("nobody asked for %v", unasked)
	}
}

func TestTheOfficialClientGetsLogprobs(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	api := client(s, "none")
	params := primesParams()
	params.Logprobs, params.TopLogprobs = openai.Bool(true), openai.Int(3)
	answer, err := api.Chat.Completions.New(context.Background(), params)
	if err != nil {
		t.Fatal(err)
	}
	var whole string
	for _, token := range answer.Choices[0].Logprobs.Content {
		whole += token.Token
		if len(token.TopLogprobs) != 3 || token.TopLogprobs[0].Token != token.Token || token.Logprob > 0 {
			t.Errorf("%+v", token)
		}
	}
	if !strings.HasPrefix(whole, primes) {
		t.Errorf("the tokens spell %q", whole)
	}

	// The chunks of a stream bring together what one piece has.
	stream := api.Chat.Completions.NewStreaming(context.Background(), params)
	var streamed []openai.ChatCompletionTokenLogprob
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			streamed = append(streamed, choice.Logprobs.Content...)
		}
	}
	if len(streamed) != len(answer.Choices[0].Logprobs.Content) || stream.Err() != nil {
		t.Errorf("%d streamed, %d at once, %v", len(streamed), len(answer.Choices[0].Logprobs.Content), stream.Err())
	}
}
