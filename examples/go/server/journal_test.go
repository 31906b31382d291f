package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A lockedBuffer may be written and read at once.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// logged returns what the log says from now until the test ends.
func logged(t *testing.T, format string) *lockedBuffer {
	t.Helper()
	var told lockedBuffer
	log, err := newLog(&told, format, "info")
	if err != nil {
		t.Fatal(err)
	}
	before := slog.Default()
	slog.SetDefault(log)
	t.Cleanup(func() { slog.SetDefault(before) })
	return &told
}

// An access is a line of the access log.
type access struct {
	Msg, ID, Method, Path, Model, Error string
	Status                              int
	PromptTokens                        int `json:"prompt_tokens"`
	CompletionTokens                    int `json:"completion_tokens"`
}

func accesses(t *testing.T, told *lockedBuffer) (lines []access) {
	t.Helper()
	for line := range strings.Lines(told.String()) {
		var one access
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if one.Msg == "request" {
			lines = append(lines, one)
		}
	}
	return lines
}

func TestARequestHasAnIDInItsAnswerAndInTheLog(t *testing.T) {
	told := logged(t, "json")
	s := start(t, demoConfig(), settings{accessLog: true}, time.Second)
	ask := func(method, path, body, id string) *http.Response {
		request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		if id != "" {
			request.Header.Set("X-Request-Id", id)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response
	}
	for _, c := range []struct {
		method, path, body, id string
		isKept                 bool
		status, tokens         int
	}{
		{"POST", "/v1/chat/completions", primesChat + `}`, "mine-1", true, 200, 14},
		{"POST", "/v1/chat/completions", primesChat + `, "stream": true}`, "", false, 200, 14},
		{"POST", "/v1/embeddings", `{"input": "x"}`, strings.Repeat("x", 129), false, 200, 0},
		{"POST", "/v1/completions", `{"prompt": ""}`, "with blank", false, 400, 0},
		{"GET", "/v1/nothing", "", "mine-2", true, 404, 0},
		{"GET", "/health", "", "mine-3", true, 200, 0},
	} {
		before := len(accesses(t, told))
		id := ask(c.method, c.path, c.body, c.id).Header.Get("X-Request-Id")
		if (id == c.id) != c.isKept || !c.isKept && !strings.HasPrefix(id, "req_") {
			t.Errorf("%s %s: the id %q became %q", c.method, c.path, c.id, id)
		}
		if c.path == "/health" {
			continue // asked for every second, and not worth a line
		}
		var line access
		waitUntil(t, "the log has a line", func() bool {
			lines := accesses(t, told)
			if len(lines) > before {
				line = lines[before]
			}
			return len(lines) > before
		})
		if line.ID != id || line.Method != c.method || line.Path != c.path || line.Status != c.status || (line.CompletionTokens > 0) != (c.tokens > 0) ||
			(line.Error != "") != (c.status >= 400) || (line.Model == "demo") != (c.method == "POST") {
			t.Errorf("%+v of %+v", line, c)
		}
	}
	if lines := accesses(t, told); len(lines) != 5 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestAClientThatLeavesIsCountedAs499(t *testing.T) {
	told := logged(t, "json")
	s := start(t, demoConfig(), settings{accessLog: true}, time.Second)
	for i, body := range []string{endlessChat + `}`, strings.Replace(endlessChat, `"stream": true`, `"stream": false`, 1) + `}`} {
		ctx, leave := context.WithCancel(context.Background())
		request, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		left := make(chan struct{})
		go func() {
			defer close(left)
			if response, err := http.DefaultClient.Do(request); err == nil {
				_, _ = bufio.NewReader(response.Body).ReadString('\n')
				leave()
				_ = response.Body.Close()
			}
		}()
		if i == 1 { // the first has left by itself
			waitUntil(t, "it is being answered", func() bool { return !s.engine.Finished() })
			leave()
		}
		<-left
		leave()
		waitUntil(t, "it is counted", func() bool {
			_, text := s.get(t, "/metrics")
			return strings.Contains(text, fmt.Sprintf("nanovllm_http_requests_total{code=\"499\",path=\"/v1/chat/completions\"} %d\n", i+1))
		})
		waitUntil(t, "the engine is idle", s.engine.Finished)
	}
	if _, text := s.get(t, "/metrics"); strings.Contains(text, `code="503"`) || strings.Contains(text, `code="200",path="/v1/chat`) {
		t.Error("it is counted as something else too")
	}
	waitUntil(t, "the engine is idle", s.engine.Finished)
	for _, line := range accesses(t, told) {
		if line.Status != 499 || !strings.Contains(line.Error, "client left") {
			t.Errorf("%+v", line)
		}
	}
}

func TestTheLogHasAFormatAndALevel(t *testing.T) {
	for _, c := range []struct{ format, level, says string }{{"xml", "info", "text or json"}, {"json", "loud", "debug, info, warn or error"}} {
		if _, err := newLog(&bytes.Buffer{}, c.format, c.level); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	var told bytes.Buffer
	log, err := newLog(&told, "text", "error")
	if err != nil {
		t.Fatal(err)
	}
	log.Warn("quiet")
	log.Error("loud")
	if text := told.String(); strings.Contains(text, "quiet") || !strings.Contains(text, "level=ERROR msg=loud") {
		t.Error(text)
	}
}
