package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// An echoed is the part of a response that the tests of echoes read.
type echoed struct {
	Choices []struct {
		Text     string
		Logprobs *struct {
			Tokens        []string
			TokenLogprobs []*float64           `json:"token_logprobs"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
			TextOffset    []int                `json:"text_offset"`
		}
		PromptLogprobs []map[string]struct {
			Logprob      float64
			Rank         *int
			DecodedToken string `json:"decoded_token"`
		} `json:"prompt_logprobs"`
	}
	Usage usage
}

func (s *service) echo(t *testing.T, body string) echoed {
	t.Helper()
	var answer echoed
	status, _, text := s.post(t, "/v1/completions", body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
		t.Fatalf("%s: %d %s", body, status, text)
	}
	return answer
}

func TestAnEchoHasTheLogprobsOfItsPrompt(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	// What is generated greedily has the log-probabilities that it has as a prompt.
	const plain = "<|im_start|>user\nlist all prime numbers within 10<|im_end|>\n<|im_start|>assistant\n"
	encoded, _ := json.Marshal(plain)
	asked := string(encoded)
	first := s.echo(t, `{"prompt": `+asked+`, "temperature": 0, "max_tokens": 8, "logprobs": 2, "ignore_eos": true}`)
	whole := s.echo(t, `{"prompt": `+asked+`, "temperature": 0, "max_tokens": 8, "logprobs": 2, "echo": true, "ignore_eos": true}`)
	one := whole.Choices[0]
	if one.Text != plain+first.Choices[0].Text || strings.Join(one.Logprobs.Tokens, "") != one.Text {
		t.Errorf("%q, with the tokens %q", one.Text, one.Logprobs.Tokens)
	}
	prompt := len(one.Logprobs.Tokens) - 8
	if prompt != whole.Usage.PromptTokens || one.Logprobs.TokenLogprobs[0] != nil || one.Logprobs.TopLogprobs[0] != nil || one.Logprobs.TextOffset[0] != 0 {
		t.Errorf("%+v %+v", one.Logprobs, whole.Usage)
	}
	for i, logprob := range first.Choices[0].Logprobs.TokenLogprobs {
		if *one.Logprobs.TokenLogprobs[prompt+i] != *logprob {
			t.Errorf("token %d: %v is not %v", i, *one.Logprobs.TokenLogprobs[prompt+i], *logprob)
		}
	}
	text, _ := json.Marshal(one.Text)
	again := s.echo(t, `{"prompt": `+string(text)+`, "temperature": 0, "max_tokens": 0, "logprobs": 2, "echo": true}`)
	read := again.Choices[0]
	if read.Text != one.Text || again.Usage.CompletionTokens != 0 || len(read.Logprobs.Tokens) != again.Usage.PromptTokens {
		t.Errorf("max_tokens 0: %+v", again)
	}
	for i := prompt; i < len(read.Logprobs.Tokens); i++ {
		if read.Logprobs.Tokens[i] != one.Logprobs.Tokens[i] || math.Abs(*read.Logprobs.TokenLogprobs[i]-*one.Logprobs.TokenLogprobs[i]) > 1e-4 {
			t.Errorf("token %d %q: %v as a prompt, %v as a completion", i, read.Logprobs.Tokens[i], *read.Logprobs.TokenLogprobs[i], *one.Logprobs.TokenLogprobs[i])
		}
	}
	for _, body := range []string{`{"prompt": "x", "max_tokens": 0}`, `{"prompt": "x", "echo": true, "logprobs": 1, "n": 2, "stream": true}`} {
		if status, _, text := s.post(t, "/v1/completions", body); status != 400 {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

func TestEveryChoiceAndEveryPromptIsEchoed(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	answer := s.echo(t, `{"prompt": ["one", "two two"], "n": 2, "max_tokens": 2, "echo": true, "logprobs": 1, "ignore_eos": true}`)
	for i, one := range answer.Choices {
		wanted := []string{"one", "one", "two two", "two two"}[i]
		if !strings.HasPrefix(one.Text, wanted) || !strings.HasPrefix(strings.Join(one.Logprobs.Tokens, ""), wanted) {
			t.Errorf("choice %d: %+v", i, one)
		}
	}
	tokens := s.echo(t, `{"prompt": [5, 6], "max_tokens": 1, "echo": true}`)
	if tokens.Choices[0].Text == "" || tokens.Choices[0].Logprobs != nil || tokens.Usage.PromptTokens != 2 {
		t.Errorf("%+v", tokens)
	}
	status, _, text := s.post(t, "/v1/completions", `{"prompt": "one", "max_tokens": 2, "echo": true, "logprobs": 1, "stream": true}`)
	first, _, _ := strings.Cut(text, "\n\n")
	if status != 200 || !strings.Contains(first, `"text":"one`) || !strings.Contains(first, `"token_logprobs":[null`) {
		t.Errorf("a stream begins with %s", first)
	}
}

func TestPromptLogprobsAreThoseOfVLLM(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	answer := s.echo(t, `{"prompt": "list all prime numbers", "max_tokens": 1, "prompt_logprobs": 2}`)
	list := answer.Choices[0].PromptLogprobs
	if len(list) != answer.Usage.PromptTokens || list[0] != nil || strings.HasPrefix(answer.Choices[0].Text, "list") {
		t.Fatalf("%+v", answer)
	}
	for i, place := range list[1:] {
		ranks := map[int]bool{}
		for _, token := range place {
			if token.Logprob > 0 {
				t.Errorf("place %d: %+v", i, place)
			}
			if token.Rank != nil {
				ranks[*token.Rank] = true
			}
		}
		if len(place) < 2 || len(place) > 3 || !ranks[1] || !ranks[2] {
			t.Errorf("place %d: %+v", i, place)
		}
	}
	if none := s.echo(t, `{"prompt": "list all prime numbers", "max_tokens": 1, "prompt_logprobs": 0}`); len(none.Choices[0].PromptLogprobs[1]) != 1 {
		t.Errorf("without alternatives: %+v", none.Choices[0].PromptLogprobs)
	}
	if single := s.echo(t, `{"prompt": [5], "max_tokens": 1, "prompt_logprobs": 1}`); len(single.Choices[0].PromptLogprobs) != 1 {
		t.Errorf("one token: %+v", single)
	}
	if _, _, text := s.post(t, "/v1/chat/completions", primesChat+`, "prompt_logprobs": 1}`); !strings.Contains(text, `"prompt_logprobs":[null,{`) || !strings.Contains(text, primes) {
		t.Errorf("a chat: %.500s", text)
	}
}
