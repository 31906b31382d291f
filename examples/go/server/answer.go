package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"libnanovllm/bindings/go"
)

// An endpoint is one of the two forms of an answer.
type endpoint int

const (
	chat endpoint = iota
	completion
)

// A job is a request that was understood.
type job struct {
	kind       endpoint
	parameters *parameters
	prompts    []prompt
	options    *nanovllm.RequestOptions
	// Beside each token's own log-probability, where options ask for any.
	alternatives int
}

// choices returns how many completions a prompt has.
func (j *job) choices() int { return max(1, j.options.N) }

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

// add counts the end of a choice. A prompt counts once, however many choices it has.
func (u *usage) add(delta nanovllm.Delta) {
	u.CompletionTokens += delta.CompletionTokens
	if delta.Index == 0 {
		u.PromptTokens += delta.PromptTokens
		u.PromptTokensDetails.CachedTokens += delta.CachedTokens
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}

// begin queues all prompts of a job. What comes out is closed after the last one. When one prompt is refused, all are.
func (s *server) begin(ctx context.Context, j *job) (<-chan news, error) {
	ctx, cancel := context.WithCancel(ctx)
	streams := make([]<-chan nanovllm.Delta, len(j.prompts))
	for i, p := range j.prompts {
		var err error
		if p.tokens != nil {
			streams[i], err = s.engine.StreamTokens(ctx, p.tokens, j.options)
		} else {
			streams[i], err = s.engine.Stream(ctx, p.text, j.options)
		}
		if err != nil {
			cancel()
			return nil, err
		}
	}
	merged := make(chan news)
	var open sync.WaitGroup
	for i, stream := range streams {
		open.Add(1)
		go func() {
			defer open.Done()
			for delta := range stream {
				select {
				case merged <- news{choice: i*j.choices() + delta.Index, Delta: delta}:
				case <-ctx.Done():
				}
			}
		}()
	}
	go func() {
		open.Wait()
		cancel()
		close(merged)
	}()
	return merged, nil
}

// answer works on a job and writes what comes out.
func (s *server) answer(w http.ResponseWriter, r *http.Request, j *job) {
	// Whatever ends this function ends its requests: the client is gone, or the time is over.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	merged, err := s.begin(ctx, j)
	if err != nil {
		writeError(w, err)
		return
	}
	form := s.newForm(j)
	if j.parameters.Stream {
		s.stream(ctx, w, j, form, merged)
		return
	}
	choices := make([]choice, len(j.prompts)*j.choices())
	var total usage
	for delta := range merged {
		if delta.Err != nil {
			writeError(w, delta.Err)
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

// A choice is one completion, as far as it came.
type choice struct {
	text   strings.Builder
	reason string
	tokens []chosenToken // with log-probabilities, where they are asked for
}

func (c *choice) add(s *server, j *job, delta nanovllm.Delta) error {
	tokens, err := s.spellAll(delta, j.alternatives)
	c.tokens = append(c.tokens, tokens...)
	c.text.WriteString(delta.Text)
	c.reason = delta.Finish.String()
	return err
}

// A form writes one endpoint's objects.
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

// whole is the answer in one piece.
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

// begun is how far the choices of a stream are: in characters of text that log-probabilities spell. Chat clients expect the role
// once a choice.
type begun map[int]int

// chunk is a piece of a streamed answer.
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

// stream writes server-sent events as they come.
func (s *server) stream(ctx context.Context, w http.ResponseWriter, j *job, f form, merged <-chan news) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	events := eventWriter{w: w, control: http.NewResponseController(w)}
	// The client learns at once that its request is taken; until its first token it may have to wait.
	w.WriteHeader(http.StatusOK)
	_ = events.control.Flush()
	var total usage
	begun := begun{}
	for delta := range merged {
		if delta.Err != nil {
			events.write(asAPIError(delta.Err).body())
			return
		}
		if delta.Finish != nanovllm.FinishNone {
			total.add(delta.Delta)
		}
		tokens, err := s.spellAll(delta.Delta, j.alternatives)
		if err != nil {
			events.write(asAPIError(err).body())
			return
		}
		if !events.write(f.chunk(delta, tokens, begun)) {
			return
		}
	}
	if err := ctx.Err(); err != nil {
		events.write(asAPIError(err).body())
		return
	}
	if j.parameters.StreamOptions.IncludeUsage {
		f = f.chunk(news{}, nil, begun)
		f.Choices, f.Usage = []any{}, &total
		events.write(f)
	}
	events.done()
}

// An eventWriter writes server-sent events, each of which a client must take within a time.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

const writeTimeout = 30 * time.Second

// write sends one event and reports whether the client is still there.
func (e eventWriter) write(value any) bool {
	text, err := json.Marshal(value)
	if err != nil {
		return false
	}
	return e.send(text)
}

func (e eventWriter) done() { e.send([]byte("[DONE]")) }

func (e eventWriter) send(data []byte) bool {
	// Not every ResponseWriter has deadlines; without one a slow client is only found out later.
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	event := append(append([]byte("data: "), data...), "\n\n"...)
	if _, err := e.w.Write(event); err != nil {
		return false
	}
	return e.control.Flush() == nil
}
