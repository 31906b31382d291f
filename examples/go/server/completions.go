package main

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"

	"libnanovllm/bindings/go"
)

// A completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	parameters
	Prompt         json.RawMessage `json:"prompt"`
	Logprobs       *int            `json:"logprobs"`
	PromptLogprobs *int            `json:"prompt_logprobs"`
	BestOf         *int            `json:"best_of"`
	Echo           bool            `json:"echo"`
	Suffix         string          `json:"suffix"`
	// Whether texts begin with the tokens that begin a text, as the tokenizer has it.
	AddSpecialTokens *bool `json:"add_special_tokens"`
}

// A prompt is a text or tokens. One with both is the tokens, which the text was made into.
type prompt struct {
	text   string
	second *string // the second text of a pair
	tokens []uint32
}

// decodePrompts decodes one of "a", ["a", "b"], [1, 2], [[1, 2], [3]].
func decodePrompts(name string, text json.RawMessage) ([]prompt, error) {
	if isAbsent(text) || shapeOf(text).elements == 0 && text[0] == '[' {
		return nil, badRequest(name, "%s is missing or empty", name)
	}
	var prompts []prompt
	var err error
	// The first character of the first element tells the four apart.
	first := text[0]
	if first == '[' {
		first = bytes.TrimLeft(text[1:], " \t\r\n")[0]
	}
	switch {
	case text[0] == '"':
		var one string
		err = json.Unmarshal(text, &one)
		prompts = []prompt{{text: one}}
	case text[0] == '[' && first == '"':
		var texts []string
		err = decodePart(name, text, maxPrompts, &texts)
		for _, one := range texts {
			prompts = append(prompts, prompt{text: one})
		}
	case text[0] == '[' && first == '[':
		var lists [][]uint32
		err = decodePart(name, text, maxPrompts, &lists)
		for _, list := range lists {
			prompts = append(prompts, prompt{tokens: list})
		}
	case text[0] == '[' && first >= '0' && first <= '9':
		var tokens []uint32
		err = decodePart(name, text, len(text), &tokens)
		prompts = []prompt{{tokens: tokens}}
	default:
		return nil, badRequest(name, "%s must be a text, a list of texts, a list of tokens, or a list of lists of tokens", name)
	}
	return prompts, err
}

func (s *server) completions(w http.ResponseWriter, r *http.Request) { s.answer(w, r, s.completionJob) }

func (s *server) completionJob(m *served, body []byte) (*job, error) {
	var request completionRequest
	if err := s.understandFields(body, &request); err != nil {
		return nil, err
	}
	prompts, err := decodePrompts("prompt", request.Prompt)
	if err != nil {
		return nil, err
	}
	switch {
	case request.Suffix != "":
		return nil, unsupported("suffix", "suffix is not supported")
	case request.BestOf != nil && *request.BestOf != 1:
		return nil, unsupported("best_of", "best_of %d is not supported, only 1", *request.BestOf)
	}
	// The default of OpenAI's API, which is short.
	if request.MaxTokens == nil {
		short := 16
		request.MaxTokens = &short
	}
	isOnlyPrompt := *request.MaxTokens == 0 && (request.Echo || request.PromptLogprobs != nil)
	if isOnlyPrompt {
		one := 1 // the engine generates at least one, which the answer leaves out
		request.MaxTokens = &one
	}
	options, err := s.options(m, &request.parameters)
	if err != nil {
		return nil, err
	}
	if err := checkRange("logprobs", request.Logprobs, 0, math.MaxInt32); err != nil {
		return nil, err
	}
	if request.Logprobs != nil {
		options.NumLogprobs = max(1, *request.Logprobs)
	}
	if request.AddSpecialTokens != nil {
		if prompts, err = tokenized(m, prompts, *request.AddSpecialTokens); err != nil {
			return nil, err
		}
	}
	form := newOpenAIForm(false, m.model.name, request.StreamOptions.IncludeUsage)
	j, err := newJob(m, form, &request.parameters, &question{prompts: prompts, options: options})
	if err != nil {
		return nil, err
	}
	form.job, j.logprobField = j, "logprobs"
	if request.Logprobs != nil {
		j.alternatives = *request.Logprobs
	}
	if !request.Echo && request.PromptLogprobs == nil {
		return j, nil
	}
	j.echo = &echo{job: j, isEchoed: request.Echo, isOnlyPrompt: isOnlyPrompt}
	return j, j.echo.ask(request.PromptLogprobs)
}

// tokenized converts the prompts that are texts to tokens.
func tokenized(m *served, prompts []prompt, addSpecial bool) ([]prompt, error) {
	flags := nanovllm.ParseSpecial
	if addSpecial {
		flags |= nanovllm.AddSpecial
	}
	for i, one := range prompts {
		if one.tokens != nil {
			continue
		}
		tokens, err := m.pool.engine().Tokenize(one.text, flags)
		if err != nil {
			return nil, err
		}
		// Not nil, which would be a text.
		prompts[i].tokens = append([]uint32{}, tokens...)
	}
	return prompts, nil
}
