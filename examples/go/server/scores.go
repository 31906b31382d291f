package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"libnanovllm/bindings/go"
)

// A rerankRequest is the body of POST /v1/rerank, as Jina, Cohere and vLLM have it.
type rerankRequest struct {
	labels
	Model           string            `json:"model"`
	Query           string            `json:"query"`
	Documents       []json.RawMessage `json:"documents"` // texts, or objects with a text
	TopN            *int              `json:"top_n"`
	ReturnDocuments *bool             `json:"return_documents"`
	Truncation      *int              `json:"truncate_prompt_tokens"`
}

// A scoreRequest is the body of POST /v1/score, as vLLM has it: each text of text_2 with text_1, or with the one of text_1 with the same index.
type scoreRequest struct {
	labels
	Model string          `json:"model"`
	Text1 json.RawMessage `json:"text_1"`
	Text2 json.RawMessage `json:"text_2"`

	Truncation *int `json:"truncate_prompt_tokens"`
}

// A ranked is one entry of the response to /v1/rerank.
type ranked struct {
	Index          int            `json:"index"`
	RelevanceScore float32        `json:"relevance_score"`
	Document       map[string]any `json:"document,omitempty"`
}

// rerank answers with the documents in descending order of their scores.
func (s *server) rerank(w http.ResponseWriter, r *http.Request) {
	var request rerankRequest
	var texts []string
	scores, j, used, err := s.scores(r, func(m *served, body []byte) (*job, error) {
		request, texts = rerankRequest{}, nil
		if err := s.understandFields(body, &request); err != nil {
			return nil, err
		}
		if err := request.labels.check(); err != nil {
			return nil, err
		}
		if len(request.Documents) == 0 || len(request.Documents) > maxPrompts {
			return nil, badRequest("documents", "documents has %d entries, but it must have from 1 to %d", len(request.Documents), maxPrompts)
		}
		if request.TopN != nil && *request.TopN < 1 {
			return nil, badRequest("top_n", "top_n is %d, but it must be at least 1", *request.TopN)
		}
		var pairs []prompt
		for i, document := range request.Documents {
			text, err := documentText(i, document)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
			pairs = append(pairs, prompt{text: request.Query, second: &text})
		}
		return scoreJob(m, pairs, request.Truncation)
	})
	if err != nil {
		writeError(w, r, err)
		return
	}
	results := make([]ranked, len(scores))
	for i, score := range scores {
		results[i] = ranked{Index: i, RelevanceScore: score}
		if request.ReturnDocuments == nil || *request.ReturnDocuments {
			results[i].Document = map[string]any{"text": texts[i]}
		}
	}
	slices.SortStableFunc(results, func(a, b ranked) int {
		switch {
		case a.RelevanceScore > b.RelevanceScore:
			return -1
		case a.RelevanceScore < b.RelevanceScore:
			return 1
		}
		return 0
	})
	if request.TopN != nil {
		results = results[:min(len(results), *request.TopN)]
	}
	writeJSON(w, r, http.StatusOK, map[string]any{"id": fmt.Sprintf("rerank-%d", time.Now().UnixNano()), "model": j.served.model.name,
		"results": results, "usage": map[string]int{"prompt_tokens": used.PromptTokens, "total_tokens": used.PromptTokens}})
}

// documentText returns the text of a document.
func documentText(index int, document json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(document, &text) == nil {
		return text, nil
	}
	var object struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal(document, &object) == nil && object.Text != nil {
		return *object.Text, nil
	}
	return "", badRequest("documents", "documents[%d] must be a text, or an object with a text", index)
}

// score answers with the scores of pairs, in their order.
func (s *server) score(w http.ResponseWriter, r *http.Request) {
	scores, j, used, err := s.scores(r, func(m *served, body []byte) (*job, error) {
		var request scoreRequest
		if err := s.understandFields(body, &request); err != nil {
			return nil, err
		}
		if err := request.labels.check(); err != nil {
			return nil, err
		}
		first, err := textsOf("text_1", request.Text1)
		if err != nil {
			return nil, err
		}
		second, err := textsOf("text_2", request.Text2)
		if err != nil {
			return nil, err
		}
		if len(first) != 1 && len(first) != len(second) {
			return nil, badRequest("text_1", "text_1 has %d texts and text_2 %d, but it must have one or as many", len(first), len(second))
		}
		var pairs []prompt
		for i := range second {
			pairs = append(pairs, prompt{text: first[min(i, len(first)-1)], second: &second[i]})
		}
		return scoreJob(m, pairs, request.Truncation)
	})
	if err != nil {
		writeError(w, r, err)
		return
	}
	data := []map[string]any{}
	for i, score := range scores {
		data = append(data, map[string]any{"index": i, "object": "score", "score": score})
	}
	writeJSON(w, r, http.StatusOK, map[string]any{"id": fmt.Sprintf("score-%d", time.Now().UnixNano()), "object": "list",
		"created": time.Now().Unix(), "model": j.served.model.name, "data": data,
		"usage": map[string]int{"prompt_tokens": used.PromptTokens, "total_tokens": used.PromptTokens}})
}

// textsOf decodes a text or a list of texts.
func textsOf(name string, text json.RawMessage) ([]string, error) {
	if text = bytes.TrimSpace(text); isAbsent(text) {
		return nil, badRequest(name, "%s is missing", name)
	}
	if text[0] == '"' {
		var one string
		err := json.Unmarshal(text, &one)
		return []string{one}, err
	}
	var texts []string
	if err := decodePart(name, text, maxPrompts, &texts); err != nil {
		return nil, err
	}
	if len(texts) == 0 {
		return nil, badRequest(name, "%s is empty", name)
	}
	return texts, nil
}

// A scoring is how a model that generates scores pairs: by the probability of the first of some tokens among all of them, after a text with both.
type scoring struct {
	tokens   []string
	template string
}

// newScoring reads the template in a file. It is nil without tokens and a file.
func newScoring(tokens []string, file string) (*scoring, error) {
	if len(tokens) == 0 && file == "" {
		return nil, nil
	}
	if len(tokens) < 2 || file == "" {
		return nil, errors.New("-score-tokens with at least two tokens and -score-template need each other")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-score-template: %w", err)
	}
	made := &scoring{tokens: tokens, template: string(text)}
	for _, place := range []string{"{query}", "{document}"} {
		if !strings.Contains(made.template, place) {
			return nil, fmt.Errorf("-score-template: %s has no %s", file, place)
		}
	}
	return made, nil
}

// tokensOf returns the ids of the tokens.
func (s *scoring) tokensOf(engine *nanovllm.Engine) ([]uint32, error) {
	var ids []uint32
	for _, text := range s.tokens {
		id, err := engine.Tokenize(text, 0)
		if err != nil {
			return nil, err
		}
		if len(id) != 1 {
			return nil, fmt.Errorf("-score-tokens: %q is %d tokens, but must be one", text, len(id))
		}
		ids = append(ids, id[0])
	}
	return ids, nil
}

// prompts are the texts after which the tokens come, one for each pair.
func (s *scoring) prompts(pairs []prompt) []prompt {
	texts := make([]prompt, len(pairs))
	for i, pair := range pairs {
		texts[i].text = strings.NewReplacer("{query}", pair.text, "{document}", *pair.second).Replace(s.template)
	}
	return texts
}

// scoreJob has one output per pair. A model whose classifier has several labels has no score that says how well two texts fit. truncation is that of the
// request: nil for none, -1 for as many tokens as the model takes.
func scoreJob(m *served, pairs []prompt, truncation *int) (*job, error) {
	options := &nanovllm.RequestOptions{Pooling: nanovllm.PoolingAuto}
	switch {
	case len(m.scoreTokens) > 0:
		pairs, options = m.model.scoring.prompts(pairs), &nanovllm.RequestOptions{ScoreTokens: m.scoreTokens}
	case m.info.NumLabels == 0:
		return nil, unsupported("model", "the model is no reranker, and the server was given no -score-tokens for it")
	case m.info.ScoresTokens:
		return nil, unsupported("model", "the model scores each token of a text, but a reranker scores a pair")
	case m.info.NumLabels > 1:
		return nil, unsupported("model", "the model has %d labels, but a reranker has one", m.info.NumLabels)
	}
	if err := truncate(options, truncation); err != nil {
		return nil, err
	}
	return &job{served: m, prompts: len(pairs), choices: 1, asked: &question{prompts: pairs, options: options}}, nil
}

// truncate sets to how many tokens longer texts are cut.
func truncate(options *nanovllm.RequestOptions, tokens *int) error {
	switch {
	case tokens == nil:
	case *tokens == -1:
		options.TruncatePromptTokens = math.MaxUint32
	case *tokens >= 1 && *tokens < math.MaxUint32:
		options.TruncatePromptTokens = *tokens
	default:
		return badRequest("truncate_prompt_tokens", "truncate_prompt_tokens is %d, but it must be at least 1, or -1 for the model's length", *tokens)
	}
	return nil
}

// scores returns the scores of a job. If one pair is refused, all are.
func (s *server) scores(r *http.Request, understand func(m *served, body []byte) (*job, error)) ([]float32, *job, usage, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var used usage
	j, merged, err := s.receive(ctx, r, understand)
	if err != nil {
		return nil, nil, used, reasonFor(ctx, err)
	}
	defer j.release()
	scores := make([]float32, j.prompts)
	for delta := range merged {
		if delta.Err != nil {
			return nil, nil, used, reasonFor(ctx, delta.Err)
		}
		used.add(delta.Delta)
		if len(delta.Scores) > 0 {
			scores[delta.choice] = delta.Scores[0]
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, used, reasonFor(ctx, err)
	}
	noteOf(r).usage = used
	return scores, j, used, nil
}
