package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

// startReplicas starts a server with engines that have equal options.
func startReplicas(t *testing.T, engines int, config nanovllm.Config, s settings) *service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config.Device, config.NumThreads = nanovllm.DeviceCPU, 1
	configs := make([]nanovllm.Config, engines)
	for i := range configs {
		configs[i] = config
	}
	return startAt(t, listener, configs, s, time.Second)
}

// A told is the part of a response that these tests read.
type told struct {
	Choices []struct {
		Text         string
		FinishReason string `json:"finish_reason"`
	}
	Usage usage
}

// complete posts a completion and returns its response.
func (s *service) complete(t *testing.T, prompts any, tokens int) told {
	t.Helper()
	body, err := json.Marshal(map[string]any{"prompt": prompts, "max_tokens": tokens, "temperature": 0, "ignore_eos": true})
	if err != nil {
		t.Fatal(err)
	}
	var answer told
	status, _, text := s.post(t, "/v1/completions", string(body))
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
		t.Fatalf("%d %s %v", status, text, err)
	}
	return answer
}

// generated is the number of tokens that each engine has generated.
func (s *service) generated(t *testing.T) (tokens []uint64) {
	t.Helper()
	for _, engine := range s.engines {
		stats, err := engine.Stats()
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, stats.GeneratedTokens)
	}
	return tokens
}

func TestTwoEnginesAnswerAsOneDoes(t *testing.T) {
	prompts := make([]string, 24)
	for i := range prompts {
		prompts[i] = fmt.Sprintf("list all prime numbers within %d: ", i) + strings.Repeat("2, 3, ", i*5)
	}
	one := startReplicas(t, 1, demoConfig(), settings{})
	want := one.complete(t, prompts, 24)
	ranks := demoConfig()
	ranks.TensorParallel = 2
	if got := startReplicas(t, 2, ranks, settings{}).complete(t, prompts, 24); fmt.Sprint(got.Choices) != fmt.Sprint(want.Choices) {
		t.Errorf("two engines of two ranks: %+v is not %+v", got, want)
	}
	two := startReplicas(t, 2, demoConfig(), settings{})
	// As one request and as many.
	if got := two.complete(t, prompts, 24); fmt.Sprint(got.Choices) != fmt.Sprint(want.Choices) ||
		got.Usage.PromptTokens != want.Usage.PromptTokens || got.Usage.CompletionTokens != want.Usage.CompletionTokens {
		t.Errorf("%+v is not %+v", got, want)
	}
	var all sync.WaitGroup
	for i, asked := range prompts {
		all.Go(func() {
			if got := two.complete(t, asked, 24); got.Choices[0].Text != want.Choices[i].Text {
				t.Errorf("prompt %d: %q is not %q", i, got.Choices[0].Text, want.Choices[i].Text)
			}
		})
	}
	all.Wait()
	for i, tokens := range two.generated(t) {
		if tokens == 0 {
			t.Errorf("engine %d has done nothing", i)
		}
	}
}

func TestAConversationStaysWithItsEngine(t *testing.T) {
	s := startReplicas(t, 2, demoConfig(), settings{maxSkew: 2})
	conversations := []string{strings.Repeat("one two three four ", 40), strings.Repeat("five six seven eight ", 40)}
	for turn := range 4 {
		for i, text := range conversations {
			before := s.generated(t)
			answer := s.complete(t, text, 8)
			if after := s.generated(t); after[i] == before[i] || after[1-i] != before[1-i] {
				t.Errorf("turn %d of conversation %d: the engines have generated %v after %v", turn, i, after, before)
			}
			if cached := answer.Usage.PromptTokensDetails.CachedTokens; (cached > 0) != (turn > 0) {
				t.Errorf("turn %d of conversation %d: %d cached tokens", turn, i, cached)
			}
			conversations[i] += answer.Choices[0].Text + " and then "
		}
	}
	for _, line := range []string{
		`nanovllm_engine_routed_total{engine="0",reason="load"} 1`,
		`nanovllm_engine_routed_total{engine="0",reason="prefix"} 3`,
		`nanovllm_engine_routed_total{engine="1",reason="load"} 1`,
		`nanovllm_engine_routed_total{engine="1",reason="prefix"} 3`,
	} {
		if _, text := s.get(t, "/metrics"); !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
}

func TestLoadBeyondTheSkewGoesToTheOtherEngine(t *testing.T) {
	const skew = 3
	s := startReplicas(t, 2, demoConfig(), settings{maxSkew: skew})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	long := prompt{text: strings.Repeat("one two three four ", 40)}
	options := &nanovllm.RequestOptions{IgnoreEOS: true, MaxTokens: 3000}
	var on []string
	for range 2 * (skew + 1) {
		stream, err := s.pool().stream(ctx, long, options)
		if err != nil {
			t.Fatal(err)
		}
		on = append(on, stream.on.name)
	}
	// The first engine gets one prompt by load and skew more by prefix; then the other one has the prefix too, and gets the rest.
	if got := strings.Join(on, ""); got != "00001111" {
		t.Errorf("the prompts went to %s", got)
	}
}

func TestPromptsThatAreBeingAddedAreLoad(t *testing.T) {
	s := startReplicas(t, 2, demoConfig(), settings{maxSkew: 1})
	keys := textKeys(chunk("a"))
	var on []string
	for range 4 {
		r, _ := s.pool().choose(keys, nil)
		on = append(on, r.name)
	}
	if got := strings.Join(on, ""); got != "0011" {
		t.Errorf("the prompts went to %s", got)
	}
}

func TestAFullQueueIsNoRefusalWhileAnotherHasRoom(t *testing.T) {
	config := demoConfig()
	config.MaxNumSeqs, config.MaxQueue = 1, 1
	s := startReplicas(t, 2, config, settings{maxSkew: 100})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	long := prompt{text: strings.Repeat("one two three four ", 40)}
	options := &nanovllm.RequestOptions{IgnoreEOS: true, MaxTokens: 3000}
	accepted := map[string]int{}
	refused := 0
	for range 20 {
		stream, err := s.pool().stream(ctx, long, options)
		switch {
		case err == nil:
			accepted[stream.on.name]++
		case asAPIError(err).status == http.StatusTooManyRequests:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if accepted["0"] == 0 || accepted["1"] == 0 || refused == 0 {
		t.Errorf("accepted: %v; refused: %d", accepted, refused)
	}
}

// beginOnEach begins an endless stream on each engine.
func (s *service) beginOnEach(t *testing.T) (streams map[int]io.Reader) {
	t.Helper()
	streams = map[int]io.Reader{}
	for i := range s.engines {
		_, reader := s.begin(t, endlessChat+`}`)
		streams[i] = reader
	}
	for i, tokens := range s.generated(t) {
		if tokens == 0 {
			t.Fatalf("engine %d has no stream", i)
		}
	}
	return streams
}

func TestAnEngineThatFailsIsTakenOut(t *testing.T) {
	s := startReplicas(t, 2, demoConfig(), settings{})
	s.end = nanovllm.ErrClosed
	streams := s.beginOnEach(t)
	before := s.metric(t, "nanovllm_generated_tokens_total")

	_ = s.engines[1].Close()
	text, err := io.ReadAll(streams[1])
	if err != nil || !strings.Contains(string(text), `"code":"engine_failed"`) || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("the stream on it: %v: ...%s", err, text[max(0, len(text)-300):])
	}
	waitUntil(t, "health names the engine", func() bool {
		status, text := s.get(t, "/health")
		return status == 200 && strings.Contains(text, `"degraded"`) && strings.Contains(text, `{"1":"engine 1 on cpu failed`)
	})
	for range 4 {
		if status, _, text := s.post(t, "/v1/chat/completions", primesChat+`, "logprobs": true}`); status != 200 || !strings.Contains(text, primes) {
			t.Errorf("a new request: %d %s", status, text)
		}
	}
	if status, text := s.get(t, "/v1/models"); status != 200 {
		t.Errorf("the models: %d %s", status, text)
	}
	if up := []int{s.metric(t, `nanovllm_engine_up\{device="cpu",engine="0"\}`), s.metric(t, `nanovllm_engine_up\{device="cpu",engine="1"\}`)}; up[0] != 1 || up[1] != 0 {
		t.Errorf("up: %v", up)
	}
	if after := s.metric(t, "nanovllm_generated_tokens_total"); after < before {
		t.Errorf("a counter went from %d to %d", before, after)
	}
	s.metric(t, `nanovllm_engine_generated_tokens_total\{engine="1"\}`)
	if _, text := s.get(t, "/metrics"); strings.Contains(text, `nanovllm_engine_requests_running{engine="1"}`) {
		t.Error("a failed engine still has gauges")
	}
	if running := s.metric(t, "nanovllm_requests_running"); running != 1 {
		t.Errorf("%d requests run, but the stream on the other engine should be the only one", running)
	}

	_ = s.engines[0].Close()
	if text, err := io.ReadAll(streams[0]); err != nil || !strings.Contains(string(text), `"code":"engine_failed"`) {
		t.Errorf("the last stream: %v: ...%s", err, text[max(0, len(text)-300):])
	}
	waitUntil(t, "the server has ended", func() bool {
		_, err := http.Get(s.url + "/health")
		return err != nil
	})
}

// An engine that is idle when it fails is noticed by the next request.
func TestAnIdleEngineThatFailsGetsNoRequest(t *testing.T) {
	engines, err := open([]nanovllm.Config{demoConfig(), demoConfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(engines)
	p, err := newPool(engines, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = engines[0].Close()
	for range 4 {
		stream, err := p.stream(context.Background(), prompt{text: "x"}, nil)
		if err != nil || stream.on.name != "1" {
			t.Fatalf("%+v %v", stream, err)
		}
	}
	if failure := p.replicas[0].failed(); !errors.Is(failure, nanovllm.ErrClosed) {
		t.Errorf("its failure is %v", failure)
	}
	_ = engines[1].Close()
	if _, err := p.stream(context.Background(), prompt{text: "x"}, nil); asAPIError(err).code != "engine_failed" || asAPIError(err).status != 503 {
		t.Errorf("without an engine: %v", err)
	}
}

func TestAPromptThatIsRefusedIsNotCountedAsLoad(t *testing.T) {
	s := startReplicas(t, 2, demoConfig(), settings{})
	for range 4 {
		if status, _, text := s.post(t, "/v1/completions", `{"prompt": "x", "top_p": 2}`); status != 400 {
			t.Errorf("%d %s", status, text)
		}
	}
	for _, r := range s.pool().replicas {
		if r.adding != 0 {
			t.Errorf("engine %s: %d prompts are being added", r.name, r.adding)
		}
	}
}
