package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"libnanovllm/bindings/go"
)

// sampling is what a model's generation_config.json recommends. A request replaces single values, which the engine's own defaults
// cannot do: there it is all or nothing.
type sampling struct {
	DoSample    bool     `json:"do_sample"`
	Temperature *float64 `json:"temperature"`
	TopP        float64  `json:"top_p"`
	MinP        float64  `json:"min_p"`
	TopK        int      `json:"top_k"`
}

func readSampling(folder string) (sampling, error) {
	var recommended sampling
	path := filepath.Join(folder, "generation_config.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return recommended, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &recommended)
	}
	if err != nil {
		return recommended, fmt.Errorf("%s: %w", path, err)
	}
	return recommended, nil
}

// options returns the recommendation as options.
func (s sampling) options() nanovllm.RequestOptions {
	if !s.DoSample {
		return nanovllm.RequestOptions{}
	}
	options := nanovllm.RequestOptions{Temperature: 1, TopP: s.TopP, MinP: s.MinP, TopK: s.TopK}
	if s.Temperature != nil {
		options.Temperature = *s.Temperature
	}
	return options
}

// parameters are the fields that both kinds of requests share. The last ones are no part of OpenAI's API.
type parameters struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens        *int               `json:"max_tokens"`
	Temperature      *float64           `json:"temperature"`
	TopP             *float64           `json:"top_p"`
	N                *int               `json:"n"`
	Stop             textOrTexts        `json:"stop"`
	Seed             *int64             `json:"seed"`
	PresencePenalty  float64            `json:"presence_penalty"`
	FrequencyPenalty float64            `json:"frequency_penalty"`
	LogitBias        map[string]float32 `json:"logit_bias"`

	TopK              *int     `json:"top_k"`
	MinP              *float64 `json:"min_p"`
	MinTokens         int      `json:"min_tokens"`
	RepetitionPenalty float64  `json:"repetition_penalty"`
	IgnoreEOS         bool     `json:"ignore_eos"`
	StopTokenIDs      []uint32 `json:"stop_token_ids"`
	Priority          int      `json:"priority"`
}

// options returns what a request asks for; what it does not name is as the model recommends.
func (p *parameters) options(recommended sampling) (*nanovllm.RequestOptions, error) {
	options := recommended.options()
	if p.MaxTokens != nil {
		if *p.MaxTokens < 1 {
			return nil, badRequest("max_tokens", "max_tokens is %d, but it must be at least 1", *p.MaxTokens)
		}
		options.MaxTokens = *p.MaxTokens
	}
	if p.N != nil {
		if *p.N < 1 {
			return nil, badRequest("n", "n is %d, but it must be at least 1", *p.N)
		}
		options.N = *p.N
	}
	if p.TopP != nil {
		if *p.TopP <= 0 {
			return nil, badRequest("top_p", "top_p is %v, but it must be above 0", *p.TopP)
		}
		options.TopP = *p.TopP
	}
	for token, bias := range p.LogitBias {
		id, err := strconv.ParseUint(token, 10, 32)
		if err != nil {
			return nil, badRequest("logit_bias", "logit_bias has the key %q, but keys are token ids", token)
		}
		if options.LogitBias == nil {
			options.LogitBias = make(map[uint32]float32)
		}
		options.LogitBias[uint32(id)] = bias
	}
	set(&options.Temperature, p.Temperature)
	set(&options.TopK, p.TopK)
	set(&options.MinP, p.MinP)
	if p.Seed != nil {
		options.Seed = uint64(*p.Seed)
	}
	options.Stop = p.Stop
	options.StopTokens = p.StopTokenIDs
	options.PresencePenalty = p.PresencePenalty
	options.FrequencyPenalty = p.FrequencyPenalty
	options.RepetitionPenalty = p.RepetitionPenalty
	options.MinTokens = p.MinTokens
	options.IgnoreEOS = p.IgnoreEOS
	options.Priority = p.Priority
	return &options, nil
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// textOrTexts is "a" or ["a", "b"].
type textOrTexts []string

func (t *textOrTexts) UnmarshalJSON(text []byte) error {
	var one *string
	if err := json.Unmarshal(text, &one); err == nil {
		if one != nil {
			*t = []string{*one}
		}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(t))
}
