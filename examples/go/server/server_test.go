package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

const primes = "Prime numbers within 10: 2, 3, 5, 7."

func modelFolder() string {
	if folder := os.Getenv("NANOVLLM_MODEL"); folder != "" {
		return folder
	}
	return "../../../models/demo"
}

func demoConfig() nanovllm.Config {
	return nanovllm.Config{ModelPath: modelFolder(), MaxModelLen: 4096, MaxNumSeqs: 64, KVCacheBytes: 64 << 20, Seed: 1}
}

// serverOf is a server of engines that have the demo model.
func serverOf(engines []*nanovllm.Engine, s settings) (*server, error) {
	catalog, err := fixedCatalog(&model{name: "demo", pooling: nanovllm.PoolingLast}, engines, s.maxSkew)
	if err != nil {
		return nil, err
	}
	return newServer(catalog, s)
}

// A service is a server on loopback, as main starts it.
type service struct {
	*server
	engines []*nanovllm.Engine
	engine  *nanovllm.Engine // the first
	url     string
	stop    context.CancelFunc
	ended   chan error
	end     error // how it ends
}

func start(t *testing.T, config nanovllm.Config, s settings, drain time.Duration) *service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startAt(t, listener, []nanovllm.Config{config}, s, drain)
}

func startAt(t *testing.T, listener net.Listener, configs []nanovllm.Config, s settings, drain time.Duration) *service {
	t.Helper()
	engines, err := open(configs)
	if err != nil {
		t.Fatal(err)
	}
	if s.maxBodyBytes == 0 {
		s.maxBodyBytes = 1 << 20
	}
	made, err := serverOf(engines, s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	running := &service{server: made, engines: engines, engine: engines[0], url: "http://" + listener.Addr().String(), stop: stop,
		ended: make(chan error, 1)}
	go func() { running.ended <- made.run(ctx, listener, drain) }()
	t.Cleanup(func() {
		stop()
		if err := <-running.ended; !errors.Is(err, running.end) {
			t.Errorf("the server ended with %v", err)
		}
		closeAll(engines)
	})
	return running
}

func (s *service) post(t *testing.T, path, body string) (int, http.Header, string) {
	t.Helper()
	response, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

// ask sends a request with headers, and returns the status and the body of its answer.
func (s *service) ask(t *testing.T, method, path, body string, headers map[string]string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (s *service) get(t *testing.T, path string) (int, string) {
	t.Helper()
	response, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

const primesChat = `{"messages": [{"role": "user", "content": "list all prime numbers within 10"}], "temperature": 0`
const helloChat = `{"messages": [{"role": "user", "content": "hello"}], "ignore_eos": true, "stream": true`

// Long enough to be interrupted on any machine.
const endlessChat = helloChat + `, "max_tokens": 4000`

func TestWhatCannotBeAnsweredIsRefusedClearly(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	long := strings.Repeat(" prime", 5000)
	cases := []struct {
		name, path, body string
		status           int
		param, code      string
	}{
		{"no JSON", "chat/completions", `{`, 400, "", ""},
		{"no messages", "chat/completions", `{}`, 400, "messages", ""},
		{"messages of another type", "chat/completions", `{"messages": 3}`, 400, "messages", ""},
		{"a message without a role", "chat/completions", `{"messages": [{"content": "x"}]}`, 400, "messages", ""},
		{"a picture", "chat/completions", `{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, 400, "messages", "unsupported"},
		{"another model", "chat/completions", primesChat + `, "model": "gpt-5"}`, 404, "model", "model_not_found"},
		{"a format without its schema", "chat/completions", primesChat + `, "response_format": {"type": "json_schema"}}`, 400, "response_format", ""},
		{"a schema that is none", "chat/completions", primesChat + `, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "car"}}}}`, 400, "", ""},
		{"another format", "chat/completions", primesChat + `, "response_format": {"type": "xml"}}`, 400, "response_format", "unsupported"},
		{"a tool that must be called", "chat/completions", primesChat + `, "tool_choice": "required"}`, 400, "tool_choice", ""},
		{"no tokens", "chat/completions", primesChat + `, "max_tokens": 0}`, 400, "max_tokens", ""},
		{"a top_p above 1", "chat/completions", primesChat + `, "top_p": 2}`, 400, "top_p", ""},
		{"a bias of a token beyond the vocabulary", "completions", `{"prompt": "x", "logit_bias": {"2048": 1}}`, 400, "logit_bias", ""},
		{"a stop token beyond the vocabulary", "completions", `{"prompt": "x", "stop_token_ids": [0, 2048]}`, 400, "stop_token_ids", ""},
		{"an empty stop string", "completions", `{"prompt": "x", "stop": ["a", ""]}`, 400, "stop", ""},
		{"many log-probabilities", "completions", `{"prompt": "x", "logprobs": 1000}`, 400, "logprobs", ""},
		{"many alternatives", "chat/completions", primesChat + `, "logprobs": true, "top_logprobs": 1000}`, 400, "top_logprobs", ""},
		{"a long prompt", "completions", `{"prompt": "` + long + `"}`, 400, "", "context_length_exceeded"},
		{"one bad prompt of two", "completions", `{"prompt": ["good", ""]}`, 400, "", ""},
		{"no prompt", "completions", `{}`, 400, "prompt", ""},
		{"a prompt of another type", "completions", `{"prompt": {}}`, 400, "prompt", ""},
		{"no input", "embeddings", `{}`, 400, "input", ""},
		{"an embedding of another length", "embeddings", `{"input": "x", "dimensions": 3}`, 400, "dimensions", "unsupported"},
		{"an embedding in another form", "embeddings", `{"input": "x", "encoding_format": "hex"}`, 400, "encoding_format", ""},
		{"one bad input of two", "embeddings", `{"input": ["good", ""]}`, 400, "", ""},
		{"alternatives without log-probabilities", "chat/completions", primesChat + `, "top_logprobs": 2}`, 400, "top_logprobs", ""},
		{"a token that is none", "completions", `{"prompt": "x", "logit_bias": {"a": 1}}`, 400, "logit_bias", ""},
		{"an unknown path", "audio/speech", `{}`, 404, "", "unknown_url"},
		{"a large body", "completions", `{"prompt": "` + strings.Repeat("x", 1<<20) + `"}`, 413, "", "request_too_large"},
	}
	for _, c := range cases {
		status, _, text := s.post(t, "/v1/"+c.path, c.body)
		var body struct {
			Error struct {
				Message, Type string
				Param, Code   *string
			}
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Errorf("%s: %s", c.name, text)
			continue
		}
		of := func(text *string) string {
			if text == nil {
				return ""
			}
			return *text
		}
		e := body.Error
		if status != c.status || of(e.Param) != c.param || of(e.Code) != c.code || e.Message == "" || e.Type == "" {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
	}
	if status, _, text := s.post(t, "/v1/chat/completions", primesChat+`}`); status != 200 || !strings.Contains(text, primes) {
		t.Errorf("a good request after the bad ones: %d %s", status, text)
	}
}

func TestOptionsThatTheEngineRefusesAreRefusedInItsWords(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	_, beamErr := s.engine.Add("x", &nanovllm.RequestOptions{NumLogprobs: 1 << 20})
	var refused *nanovllm.Error
	if !errors.As(beamErr, &refused) {
		t.Fatal(beamErr)
	}
	status, _, text := s.post(t, "/v1/completions", `{"prompt": "x", "logprobs": 1048576}`)
	encoded, err := json.Marshal(strings.TrimPrefix(refused.Message, "num_"))
	if err != nil {
		t.Fatal(err)
	}
	if status != 400 || !strings.Contains(text, string(encoded)) {
		t.Errorf("%d %s, wanted %s", status, text, encoded)
	}
}

func TestAFullQueueAnswers429AndLater200(t *testing.T) {
	config := demoConfig()
	config.MaxNumSeqs, config.MaxQueue = 1, 1
	s := start(t, config, settings{}, time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	refused := 0
	for range 8 {
		request, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/chat/completions", strings.NewReader(endlessChat+`}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode == 429 {
			refused++
			if response.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		} else if response.StatusCode != 200 {
			t.Errorf("got %s", response.Status)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	cancel()
	waitUntil(t, "the queue is empty", s.engine.Finished)
	if status, _, text := s.post(t, "/v1/chat/completions", primesChat+`}`); status != 200 {
		t.Errorf("afterwards: %d %s", status, text)
	}
}

func TestARequestMayHaveMorePromptsThanTheQueue(t *testing.T) {
	config := demoConfig()
	config.MaxNumSeqs, config.MaxQueue = 2, 4
	s := start(t, config, settings{}, time.Second)
	prompts := many(`"x"`, 20)
	if status, _, text := s.post(t, "/v1/embeddings", `{"input": `+prompts+`}`); status != 200 || strings.Count(text, `"index"`) != 20 {
		t.Errorf("embeddings: %d %.300s", status, text)
	}
	whole := s.complete(t, strings.Split(strings.Repeat(" x", 20), " ")[1:], 4)
	if len(whole.Choices) != 20 || whole.Usage.CompletionTokens != 80 {
		t.Errorf("completions: %+v", whole)
	}
	for i, choice := range whole.Choices {
		if choice.Text != whole.Choices[0].Text {
			t.Errorf("choice %d is %q", i, choice.Text)
		}
	}
	status, _, text := s.post(t, "/v1/completions", `{"stream": true, "max_tokens": 4, "n": 2, "prompt": `+prompts+`}`)
	if status != 200 || strings.Count(text, `"finish_reason":"`) != 40 || strings.Contains(text, `"error"`) {
		t.Errorf("a stream: %d %.300s", status, text)
	}
	// The last one is refused when the others have begun.
	bad := strings.TrimSuffix(prompts, "]") + `, ""]`
	if status, _, text := s.post(t, "/v1/completions", `{"max_tokens": 4, "prompt": `+bad+`}`); status != 400 {
		t.Errorf("a bad one: %d %.300s", status, text)
	}
	if status, _, text := s.post(t, "/v1/completions", `{"n": 5, "prompt": "x"}`); status != 400 {
		t.Errorf("a prompt that never fits: %d %.300s", status, text)
	}
	waitUntil(t, "the engine is idle", s.engine.Finished)
}

func TestAClientThatLeavesCancelsItsRequest(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	response, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(endlessChat+`}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	waitUntil(t, "the engine is idle", s.engine.Finished)
	if stats, err := s.engine.Stats(); err != nil || stats.GeneratedTokens >= 4000 {
		t.Errorf("it went on to the end: %+v %v", stats, err)
	}
}

func TestARequestThatTakesTooLongEnds(t *testing.T) {
	s := start(t, demoConfig(), settings{requestTimeout: 250 * time.Millisecond}, time.Second)
	whole := strings.Replace(endlessChat, `"stream": true`, `"stream": false`, 1)
	if status, _, text := s.post(t, "/v1/chat/completions", whole+`}`); status != 504 || !strings.Contains(text, `"timeout"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, _, text := s.post(t, "/v1/chat/completions", endlessChat+`}`); status != 200 || !strings.Contains(text, `"timeout"`) ||
		!strings.HasSuffix(text, "}\n\ndata: [DONE]\n\n") {
		t.Errorf("%d %s", status, text)
	}
	waitUntil(t, "the engine is idle", s.engine.Finished)
}

func TestMetricsCountWhatWasAnswered(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	for range 3 {
		if status, _, text := s.post(t, "/v1/chat/completions", primesChat+`}`); status != 200 {
			t.Fatal(text)
		}
	}
	s.post(t, "/v1/invented", "{}")
	_, text := s.get(t, "/metrics")
	stats, err := s.engine.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`nanovllm_http_requests_total{code="200",path="/v1/chat/completions"} 3`,
		`nanovllm_http_requests_total{code="404",path="other"} 1`,
		`nanovllm_time_to_first_token_seconds_count 3`,
		fmt.Sprintf("nanovllm_generated_tokens_total %d", stats.GeneratedTokens),
		`nanovllm_requests_running 0`,
		`nanovllm_finished_total{reason="stop"} 3`,
		`nanovllm_queue_time_seconds_count 3`,
		fmt.Sprintf("nanovllm_passes_total %d", stats.Steps),
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	if told := strings.Count(text, "# TYPE nanovllm_generated_tokens_total "); told != 1 {
		t.Errorf("a metric is told %d times", told)
	}
}

func TestMetricsOutliveTheEngine(t *testing.T) {
	engine, err := nanovllm.New(demoConfig())
	if err != nil {
		t.Fatal(err)
	}
	s, err := serverOf([]*nanovllm.Engine{engine}, settings{})
	if err != nil {
		t.Fatal(err)
	}
	_ = engine.Close()
	recorder := httptest.NewRecorder()
	s.handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	if told := recorder.Body.String(); recorder.Code != 200 || !strings.Contains(told, "go_goroutines") || strings.Contains(told, "nanovllm_passes") {
		t.Errorf("%d %s", recorder.Code, told)
	}
}

func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	outside := regexp.MustCompile(`https?://|//[a-z0-9-]+\.[a-z]`)
	for _, path := range []string{"/", "/chat.js", "/chat.css"} {
		status, text := s.get(t, path)
		if status != 200 || len(text) < 200 {
			t.Errorf("%s: %d", path, status)
		}
		if found := outside.FindString(text); found != "" {
			t.Errorf("%s names %s", path, found)
		}
	}
	recorder := httptest.NewRecorder()
	s.handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	if !strings.HasPrefix(recorder.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("headers: %v", recorder.Header())
	}
}

// modelThatRecommends returns the demo model with another generation_config.json, none for "".
func modelThatRecommends(t *testing.T, text string) nanovllm.Config {
	t.Helper()
	return modelWith(t, "generation_config.json", text)
}

// modelWith returns the demo model with another file of a name, none for "".
func modelWith(t *testing.T, name, text string) nanovllm.Config {
	t.Helper()
	config := demoConfig()
	folder := t.TempDir()
	files, err := os.ReadDir(config.ModelPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file.Name() == name {
			continue
		}
		path, err := filepath.Abs(filepath.Join(config.ModelPath, file.Name()))
		if err == nil {
			err = os.Symlink(path, filepath.Join(folder, file.Name()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if text != "" {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config.ModelPath = folder
	return config
}

func TestTheModelsRecommendationHoldsForWhatARequestDoesNotName(t *testing.T) {
	type numbers struct{ temperature, topP, penalty float32 }
	cases := []struct {
		name, file, request string
		want                numbers
		topK                int
	}{
		{"no file", "", `{}`, numbers{}, 0},
		{"greedy", `{"temperature": 0.6}`, `{}`, numbers{}, 0},
		{"sampled", `{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95}`, `{}`, numbers{0.6, 0.95, 0}, 20},
		{"without a temperature", `{"do_sample": true}`, `{}`, numbers{1, 0, 0}, 0},
		{"one value replaced", `{"do_sample": true, "temperature": 0.6, "top_k": 20}`, `{"temperature": 0}`, numbers{}, 20},
		{"a penalty", `{"repetition_penalty": 1.25}`, `{}`, numbers{0, 0, 1.25}, 0},
		{"a penalty replaced", `{"repetition_penalty": 1.25}`, `{"repetition_penalty": 1}`, numbers{0, 0, 1}, 0},
	}
	for _, c := range cases {
		engine, err := nanovllm.New(modelThatRecommends(t, c.file))
		if err != nil {
			t.Fatal(c.name, err)
		}
		recommended, err := engine.DefaultOptions()
		_ = engine.Close()
		if err != nil {
			t.Fatal(c.name, err)
		}
		var p parameters
		if err := json.Unmarshal([]byte(c.request), &p); err != nil {
			t.Fatal(err)
		}
		options, err := p.options(recommended)
		if err != nil {
			t.Fatal(c.name, err)
		}
		found := numbers{float32(options.Temperature), float32(options.TopP), float32(options.RepetitionPenalty)}
		if found != c.want || options.TopK != c.topK {
			t.Errorf("%s: %+v", c.name, options)
		}
	}
}

func TestAnAnswerIsTheOneThatTheEngineGivesWithoutOptions(t *testing.T) {
	const prompt = "one two three one two three one two three"
	answer := func(file string) (served, generated string) {
		config := modelThatRecommends(t, file)
		s := start(t, config, settings{}, time.Second)
		status, _, body := s.post(t, "/v1/completions", `{"prompt": "`+prompt+`", "max_tokens": 40}`)
		var told struct {
			Choices []struct{ Text string }
		}
		if err := json.Unmarshal([]byte(body), &told); err != nil || status != 200 || len(told.Choices) != 1 {
			t.Fatalf("%d %s %v", status, body, err)
		}
		engine, err := nanovllm.New(config)
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		outputs, err := engine.Generate(context.Background(), []string{prompt})
		if err != nil || len(outputs) != 1 {
			t.Fatal(outputs, err)
		}
		return told.Choices[0].Text, outputs[0].Text
	}
	plain, _ := answer(`{"eos_token_id": [2045, 2043]}`)
	served, generated := answer(`{"eos_token_id": [2045, 2043], "repetition_penalty": 1.5}`)
	// The server ends it by max_tokens.
	if served == "" || !strings.HasPrefix(generated, served) {
		t.Errorf("the server says %q, and the engine %q", served, generated)
	}
	if served == plain {
		t.Errorf("the penalty changes nothing: %q", served)
	}
}

func TestEverySeedRepeatsItsAnswer(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	texts := map[string]string{}
	for _, seed := range []string{"0", "1", "-1"} {
		for range 3 {
			status, _, body := s.post(t, "/v1/completions", `{"prompt": "x", "max_tokens": 16, "temperature": 2, "ignore_eos": true, "seed": `+seed+`}`)
			var answer told
			if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 {
				t.Fatal(status, body)
			}
			if text := answer.Choices[0].Text; texts[seed] == "" {
				texts[seed] = text
			} else if texts[seed] != text {
				t.Errorf("seed %s: %q and %q", seed, texts[seed], text)
			}
		}
	}
	if texts["0"] == texts["1"] || texts["0"] == texts["-1"] {
		t.Errorf("the seeds make no difference: %q", texts)
	}
}

func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// metric reads one value of /metrics.
func (s *service) metric(t *testing.T, name string) int {
	t.Helper()
	_, text := s.get(t, "/metrics")
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no metric %s", name)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}

// pool is that of the only model.
func (s *service) pool() *pool { return s.catalog.models[0].open.pool }
