package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// A completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	parameters
	Prompt   promptOrPrompts `json:"prompt"`
	Logprobs *int            `json:"logprobs"`
	BestOf   *int            `json:"best_of"`
	Echo     bool            `json:"echo"`
	Suffix   string          `json:"suffix"`
}

// A prompt is a text or tokens.
type prompt struct {
	text   string
	tokens []uint32
}

// promptOrPrompts is one of "a", ["a", "b"], [1, 2], [[1, 2], [3]].
type promptOrPrompts []prompt

func (p *promptOrPrompts) UnmarshalJSON(text []byte) error {
	var texts textOrTexts
	if json.Unmarshal(text, &texts) == nil {
		for _, one := range texts {
			*p = append(*p, prompt{text: one})
		}
		return nil
	}
	var tokens []uint32
	if json.Unmarshal(text, &tokens) == nil {
		*p = promptOrPrompts{{tokens: tokens}}
		return nil
	}
	var lists [][]uint32
	if err := json.Unmarshal(text, &lists); err != nil {
		return errors.New("prompt must be a text, a list of texts, a list of tokens, or a list of lists of tokens")
	}
	for _, list := range lists {
		*p = append(*p, prompt{tokens: list})
	}
	return nil
}

func (s *server) completions(w http.ResponseWriter, r *http.Request) {
	var request completionRequest
	job, err := func() (*job, error) {
		if err := decode(r, &request); err != nil {
			return nil, err
		}
		return s.completionJob(&request)
	}()
	if err != nil {
		writeError(w, err)
		return
	}
	s.answer(w, r, job)
}

func (s *server) completionJob(request *completionRequest) (*job, error) {
	if err := s.checkModel(request.Model); err != nil {
		return nil, err
	}
	if len(request.Prompt) == 0 {
		return nil, badRequest("prompt", "prompt is missing or empty")
	}
	switch {
	case request.Echo:
		return nil, unsupported("echo", "echo is not supported")
	case request.Suffix != "":
		return nil, unsupported("suffix", "suffix is not supported")
	case request.BestOf != nil && *request.BestOf != 1:
		return nil, unsupported("best_of", "best_of %d is not supported, only 1", *request.BestOf)
	}
	// As OpenAI's API has it: a completion without a limit is a short one.
	if request.MaxTokens == nil {
		short := 16
		request.MaxTokens = &short
	}
	options, err := request.options(s.sampling)
	if err != nil {
		return nil, err
	}
	made := &job{kind: completion, parameters: &request.parameters, prompts: request.Prompt, options: options}
	if request.Logprobs != nil {
		if *request.Logprobs < 0 {
			return nil, badRequest("logprobs", "logprobs is %d, but it must be 0 or more", *request.Logprobs)
		}
		made.alternatives = *request.Logprobs
		options.NumLogprobs = max(1, made.alternatives)
	}
	return made, nil
}

// decode reads a body of JSON.
func decode(r *http.Request, into any) error {
	err := json.NewDecoder(r.Body).Decode(into)
	var tooLarge *http.MaxBytesError
	if err == nil || errors.As(err, &tooLarge) {
		return err
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return badRequest(wrongType.Field, "%s must not be a %s", wrongType.Field, wrongType.Value)
	}
	return badRequest("", "%s", fmt.Sprintf("the body is not the JSON that is wanted: %v", err))
}
