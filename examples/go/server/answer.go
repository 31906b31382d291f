package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"libnanovllm/bindings/go"
)

// A job is a decoded request.
type job struct {
	served  *served
	release func() // lets the model be closed
	form    form   // writes the answer; nil for embeddings
	stream  bool

	hasLogprobs  bool
	alternatives int // besides each token's own log-probability
	logprobField string
	prompts      int
	choices      int // per prompt
	// The input of the engine; nil once the engine has it, so that a long response does not keep it in memory.
	asked *question
	// Of completions: what is told about the prompt.
	echo *echo
	// How text becomes the parts of an answer; nil if all of it is content.
	newSpeaker func() (*speaker, error)
	// Strings that end an answer, if the answer says which one did.
	stops []string
	// Whether the schemas of tools may be left out of the grammar if they cannot be held: no tool asks for strict.
	mayLoosen bool

	embedding embeddingForm
}

// A question is the input of the engine.
type question struct {
	prompts []prompt
	options *nanovllm.RequestOptions
}

func newJob(m *served, form form, p *parameters, asked *question) (*job, error) {
	j := &job{served: m, form: form, prompts: len(asked.prompts), choices: max(1, asked.options.N), asked: asked, stream: p.Stream,
		hasLogprobs: asked.options.NumLogprobs > 0}
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
	CompletionTokensDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// add counts a finished choice. A prompt counts once, however many choices it has.
func (u *usage) add(delta nanovllm.Delta) {
	u.CompletionTokens += delta.CompletionTokens
	u.CompletionTokensDetails.ReasoningTokens += delta.ReasoningTokens
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
func (j *job) begin(ctx context.Context, queued func()) (<-chan news, error) {
	ctx, cancel := context.WithCancel(ctx)
	pool := j.served.pool
	asked := j.asked
	j.asked = nil
	var streams []routedStream
	var full error
	for _, p := range asked.prompts {
		stream, err := pool.stream(ctx, p, asked.options)
		if j.mayLoosen && isSchemaOfTool(err) {
			slog.Warn("arguments of tools do not follow their schemas", "reason", err)
			asked.options.NoStrictTools = true
			stream, err = pool.stream(ctx, p, asked.options)
		}
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
				stream, err := pool.streamLater(ctx, asked.prompts[i], asked.options)
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

// isSchemaOfTool reports whether the library has refused a request for the schema of a tool, which it would accept without strict.
func isSchemaOfTool(err error) bool {
	var failed *nanovllm.Error
	return errors.As(err, &failed) && failed.Status == nanovllm.ErrInvalidArgument && strings.HasSuffix(failed.Message, strictTools)
}

// strictTools ends the library's message for a schema of a tool that it cannot hold.
const strictTools = "change it, or set strict_tools to 0"

// parametersOfOptions maps the options that the engine's refusals begin with to the parameters of a request.
var parametersOfOptions = map[string]string{
	"temperature": "temperature", "top_p": "top_p", "min_p": "min_p", "min_tokens": "min_tokens", "presence_penalty": "presence_penalty",
	"frequency_penalty": "frequency_penalty", "repetition_penalty": "repetition_penalty", "stop": "stop", "Stop": "stop",
	"num_prompt_logprobs": "prompt_logprobs", "tools": "tools", "tool_choice": "tool_choice", "tool_name": "tool_choice",
	"parallel_tool_calls": "parallel_tool_calls", "max_thinking_tokens": "max_thinking_tokens",
	"dry_multiplier": "dry_multiplier", "dry_base": "dry_base", "dry_sequence_breakers": "dry_sequence_breakers",
	"DrySequenceBreakers": "dry_sequence_breakers", "xtc_probability": "xtc_probability", "xtc_threshold": "xtc_threshold",
	"top_n_sigma": "top_n_sigma",
}

// inOwnWords names the parameter of the request that the engine has refused, if it is known.
func (j *job) inOwnWords(err error) error {
	var failed *nanovllm.Error
	if !errors.As(err, &failed) || failed.Status != nanovllm.ErrInvalidArgument && failed.Status != nanovllm.ErrUnsupported {
		return err
	}
	option, rest, _ := strings.Cut(failed.Message, " ")
	option, isPrefix := strings.CutSuffix(option, ":")
	param := parametersOfOptions[option]
	if option == "num_logprobs" {
		param = j.logprobField
	}
	if param == "" {
		return err
	}
	message := param + " " + rest
	if isPrefix {
		message = param + ": " + rest
	}
	refused := &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: param, message: message}
	if failed.Status == nanovllm.ErrUnsupported {
		refused.code = "unsupported"
	}
	return refused
}

// streamLater queues a prompt as soon as a queue has room for it.
func (p *pool) streamLater(ctx context.Context, asked prompt, options *nanovllm.RequestOptions) (routedStream, error) {
	for {
		stream, err := p.stream(ctx, asked, options)
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
func (s *server) answer(w http.ResponseWriter, r *http.Request, understand understanding) {
	// When this function returns, its requests end, also if the client is gone or the time is over.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	j, merged, err := s.receive(ctx, r, understand)
	if err != nil {
		writeError(w, r, reasonFor(ctx, err))
		return
	}
	defer j.release()
	if j.stream {
		j.writeStream(ctx, w, r, merged)
		return
	}
	whole, err := j.collect(ctx, merged)
	noteOf(r).usage = whole.usage
	if err != nil {
		writeError(w, r, reasonFor(ctx, err))
		return
	}
	writeJSON(w, r, http.StatusOK, j.form.whole(whole))
}

// An answered job has its choices and what they took.
type answered struct {
	choices []choice
	usage   usage
}

// collect waits for all of an answer.
func (j *job) collect(ctx context.Context, merged <-chan news) (*answered, error) {
	whole := &answered{choices: make([]choice, j.prompts*j.choices)}
	heard := j.listen()
	defer heard.close()
	logprobs := 0
	for delta := range merged {
		if delta.Err != nil {
			return whole, delta.Err
		}
		if logprobs += (len(delta.Logprobs) + len(delta.PromptLogprobs)) * (1 + j.alternatives); logprobs > maxLogprobs {
			return whole, badRequest("logprobs", "the answer has more than %d log-probabilities: ask for fewer tokens, or for a stream",
				maxLogprobs)
		}
		piece, err := heard.hear(delta)
		if err != nil {
			return whole, err
		}
		whole.choices[delta.choice].add(piece)
		if piece.hasEnded() {
			whole.usage.add(piece.delta)
		}
	}
	return whole, ctx.Err()
}
