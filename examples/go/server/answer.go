package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

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
	texts := make([]strings.Builder, len(j.prompts)*j.choices())
	reasons := make([]string, len(texts))
	var total usage
	for delta := range merged {
		if delta.Err != nil {
			writeError(w, delta.Err)
			return
		}
		texts[delta.choice].WriteString(delta.Text)
		if delta.Finish != nanovllm.FinishNone {
			reasons[delta.choice] = delta.Finish.String()
			total.add(delta.Delta)
		}
	}
	if err := ctx.Err(); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, form.whole(texts, reasons, total))
}

// A form writes one endpoint's objects.
type form struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
	kind    endpoint
}

func (s *server) newForm(j *job) form {
	made := form{Created: time.Now().Unix(), Model: s.name, kind: j.kind}
	if made.ID = "cmpl-" + rand.Text(); j.kind == chat {
		made.ID = "chatcmpl-" + rand.Text()
	}
	return made
}

// whole is the answer in one piece.
func (f form) whole(texts []strings.Builder, reasons []string, total usage) form {
	f.Usage = &total
	f.Object = "text_completion"
	if f.kind == chat {
		f.Object = "chat.completion"
	}
	for i := range texts {
		choice := map[string]any{"index": i, "finish_reason": reasons[i], "logprobs": nil}
		if f.kind == chat {
			choice["message"] = map[string]any{"role": "assistant", "content": texts[i].String()}
		} else {
			choice["text"] = texts[i].String()
		}
		f.Choices = append(f.Choices, choice)
	}
	return f
}

// chunk is a piece of a streamed answer. Chat clients expect the role once a choice; begun are those that have it.
func (f form) chunk(delta news, begun map[int]bool) form {
	f.Object = "text_completion"
	choice := map[string]any{"index": delta.choice, "finish_reason": nil, "logprobs": nil}
	if delta.Finish != nanovllm.FinishNone {
		choice["finish_reason"] = delta.Finish.String()
	}
	if f.kind == chat {
		f.Object = "chat.completion.chunk"
		content := map[string]any{"content": delta.Text}
		if !begun[delta.choice] {
			content["role"] = "assistant"
			begun[delta.choice] = true
		}
		choice["delta"] = content
	} else {
		choice["text"] = delta.Text
	}
	f.Choices = []any{choice}
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
	begun := map[int]bool{}
	for delta := range merged {
		if delta.Err != nil {
			events.write(asAPIError(delta.Err).body())
			return
		}
		if delta.Finish != nanovllm.FinishNone {
			total.add(delta.Delta)
		}
		if !events.write(f.chunk(delta, begun)) {
			return
		}
	}
	if err := ctx.Err(); err != nil {
		events.write(asAPIError(err).body())
		return
	}
	if j.parameters.StreamOptions.IncludeUsage {
		f = f.chunk(news{}, begun)
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
