package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"libnanovllm/bindings/go"
)

// An endpoint is one of the two formats of a response.
type endpoint int

const (
	chat endpoint = iota
	completion
)

// A job is a decoded request.
type job struct {
	kind         endpoint
	stream       bool
	includeUsage bool // at the end of a stream
	asBase64     bool // embeddings
	hasLogprobs  bool
	alternatives int // besides each token's own log-probability
	prompts      int
	choices      int // per prompt
	// The input of the engine; nil once the engine has it, so that a long response does not keep it in memory.
	asked *question
}

// A question is the input of the engine.
type question struct {
	prompts []prompt
	options *nanovllm.RequestOptions
}

func newJob(kind endpoint, p *parameters, asked *question) (*job, error) {
	j := &job{kind: kind, prompts: len(asked.prompts), choices: max(1, asked.options.N), asked: asked,
		stream: p.Stream, includeUsage: p.StreamOptions.IncludeUsage, hasLogprobs: asked.options.NumLogprobs > 0}
	if j.prompts*j.choices > maxChoices {
		return nil, badRequest("n", "%d prompts with n %d make %d completions, but at most %d are allowed",
			j.prompts, j.choices, j.prompts*j.choices, maxChoices)
	}
	return j, nil
}

// news is a delta of one of a job's prompts.
type news struct {
	choice int
	nanovllm.Delta
}

// usage counts tokens as OpenAI does.
type usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	TotalTokens         int `json:"total_tokens"`
	PromptTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// add counts a finished choice. A prompt counts once, however many choices it has.
func (u *usage) add(delta nanovllm.Delta) {
	u.CompletionTokens += delta.CompletionTokens
	if delta.Index == 0 {
		u.PromptTokens += delta.PromptTokens
		u.PromptTokensDetails.CachedTokens += delta.CachedTokens
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}

// roomInterval is how often a job whose prompts do not all fit into the queues tries to add the next one.
const roomInterval = 20 * time.Millisecond

// begin queues the prompts of a job. If the queues have no room for all of them, but for the first, it returns, and the others are added
// as room appears. The channel of outputs is closed after the last one. If one prompt is refused, all are. queued is called when the
// engines have all prompts, or the job has ended.
func (s *server) begin(ctx context.Context, j *job, queued func()) (<-chan news, error) {
	ctx, cancel := context.WithCancel(ctx)
	asked := j.asked
	j.asked = nil
	var streams []routedStream
	var full error
	for _, p := range asked.prompts {
		stream, err := s.pool.stream(ctx, p, asked.options)
		if len(streams) > 0 && errors.Is(err, nanovllm.ErrQueueFull) {
			full = err
			break
		}
		if err != nil {
			cancel()
			queued()
			return nil, j.inOwnWords(err)
		}
		streams = append(streams, stream)
	}
	merged := make(chan news)
	var open sync.WaitGroup
	send := func(one news) {
		select {
		case merged <- one:
		case <-ctx.Done():
		}
	}
	forward := func(first int, stream routedStream) {
		open.Go(func() {
			for delta := range stream.deltas {
				delta.Err = stream.on.explain(delta.Err)
				send(news{choice: first + delta.Index, Delta: delta})
			}
		})
	}
	for i, stream := range streams {
		forward(i*j.choices, stream)
	}
	if full == nil {
		queued()
	} else {
		open.Go(func() {
			defer queued()
			for i := len(streams); i < len(asked.prompts); i++ {
				stream, err := s.streamLater(ctx, asked.prompts[i], asked.options)
				if err != nil {
					send(news{Delta: nanovllm.Delta{Err: err}})
					return
				}
				forward(i*j.choices, stream)
			}
		})
	}
	go func() {
		open.Wait()
		cancel()
		close(merged)
	}()
	return merged, nil
}

// parametersOfOptions maps the options that the engine's refusals begin with to the parameters of a request.
var parametersOfOptions = map[string]string{
	"temperature": "temperature", "top_p": "top_p", "min_p": "min_p", "min_tokens": "min_tokens", "presence_penalty": "presence_penalty",
	"frequency_penalty": "frequency_penalty", "repetition_penalty": "repetition_penalty", "stop": "stop", "Stop": "stop",
}

// inOwnWords names the parameter of the request that the engine has refused, if it is known.
func (j *job) inOwnWords(err error) error {
	var failed *nanovllm.Error
	if !errors.As(err, &failed) || failed.Status != nanovllm.ErrInvalidArgument {
		return err
	}
	option, rest, _ := strings.Cut(failed.Message, " ")
	param := parametersOfOptions[option]
	if option == "num_logprobs" {
		if param = "logprobs"; j.kind == chat {
			param = "top_logprobs"
		}
	}
	if param == "" {
		return err
	}
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: param, message: param + " " + rest}
}

// streamLater queues a prompt as soon as a queue has room for it.
func (s *server) streamLater(ctx context.Context, asked prompt, options *nanovllm.RequestOptions) (routedStream, error) {
	for {
		stream, err := s.pool.stream(ctx, asked, options)
		if !errors.Is(err, nanovllm.ErrQueueFull) {
			return stream, err
		}
		select {
		case <-time.After(roomInterval):
		case <-ctx.Done():
			return routedStream{}, ctx.Err()
		}
	}
}

// answer runs the request of a body and writes the response.
func (s *server) answer(w http.ResponseWriter, r *http.Request, understand func(body []byte) (*job, error)) {
	// When this function returns, its requests end, also if the client is gone or the time is over.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	j, merged, err := s.receive(ctx, r, understand)
	if err != nil {
		writeError(w, err)
		return
	}
	form := s.newForm(j)
	if j.stream {
		s.stream(ctx, w, j, form, merged)
		return
	}
	choices := make([]choice, j.prompts*j.choices)
	logprobs := 0
	var total usage
	for delta := range merged {
		if delta.Err != nil {
			writeError(w, delta.Err)
			return
		}
		if logprobs += len(delta.Logprobs) * (1 + j.alternatives); logprobs > maxLogprobs {
			writeError(w, badRequest("logprobs", "the answer has more than %d log-probabilities: ask for fewer tokens, or for a stream",
				maxLogprobs))
			return
		}
		if err := choices[delta.choice].add(s, j, delta.Delta); err != nil {
			writeError(w, err)
			return
		}
		if delta.Finish != nanovllm.FinishNone {
			total.add(delta.Delta)
		}
	}
	if err := ctx.Err(); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, form.whole(choices, total))
}

// A choice is one completion, as far as it has been generated.
type choice struct {
	text   strings.Builder
	reason string
	tokens []chosenToken // with log-probabilities, if requested
}

func (c *choice) add(s *server, j *job, delta nanovllm.Delta) error {
	tokens, err := s.spellAll(delta, j.alternatives)
	c.tokens = append(c.tokens, tokens...)
	c.text.WriteString(delta.Text)
	c.reason = delta.Finish.String()
	return err
}

// A form writes the objects of one endpoint.
type form struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
	job     *job
}

func (s *server) newForm(j *job) form {
	made := form{Created: time.Now().Unix(), Model: s.name, job: j}
	if made.ID = "cmpl-" + rand.Text(); j.kind == chat {
		made.ID = "chatcmpl-" + rand.Text()
	}
	return made
}

// whole is the complete response.
func (f form) whole(choices []choice, total usage) form {
	f.Usage = &total
	f.Object = "text_completion"
	if f.job.kind == chat {
		f.Object = "chat.completion"
	}
	for i := range choices {
		text := choices[i].text.String()
		made := map[string]any{"index": i, "finish_reason": choices[i].reason, "logprobs": f.job.logprobs(choices[i].tokens, 0)}
		if f.job.kind == chat {
			made["message"] = map[string]any{"role": "assistant", "content": text}
		} else {
			made["text"] = text
		}
		f.Choices = append(f.Choices, made)
	}
	return f
}

// begun is the progress of the choices of a stream, in characters of the text that log-probabilities refer to. Chat clients expect
// the role once per choice.
type begun map[int]int

// chunk is one chunk of a streamed response.
func (f form) chunk(delta news, tokens []chosenToken, begun begun) form {
	f.Object = "text_completion"
	offset, known := begun[delta.choice]
	made := map[string]any{"index": delta.choice, "finish_reason": nil, "logprobs": f.job.logprobs(tokens, offset)}
	for _, token := range tokens {
		offset += utf8.RuneCountInString(token.Token)
	}
	begun[delta.choice] = offset
	if delta.Finish != nanovllm.FinishNone {
		made["finish_reason"] = delta.Finish.String()
	}
	if f.job.kind == chat {
		f.Object = "chat.completion.chunk"
		content := map[string]any{"content": delta.Text}
		if !known {
			content["role"] = "assistant"
		}
		made["delta"] = content
	} else {
		made["text"] = delta.Text
	}
	f.Choices = []any{made}
	return f
}
