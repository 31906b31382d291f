package nanovllm_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

const primes = "Prime numbers within 10: 2, 3, 5, 7."

func modelFolder() string {
	if folder := os.Getenv("NANOVLLM_MODEL"); folder != "" {
		return folder
	}
	return "../../models/demo"
}

func demoConfig() nanovllm.Config {
	return nanovllm.Config{ModelPath: modelFolder(), NumThreads: 1, MaxModelLen: 512, MaxNumSeqs: 16, MaxBatchedTokens: 128,
		KVCacheBytes: 16 << 20, Seed: 1}
}

// open returns an engine that the test's end closes.
func open(t testing.TB, config nanovllm.Config) *nanovllm.Engine {
	t.Helper()
	engine, err := nanovllm.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

// running returns an engine that another goroutine steps.
func running(t testing.TB) *nanovllm.Engine {
	t.Helper()
	engine := open(t, demoConfig())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, nanovllm.ErrClosed) {
			t.Errorf("Run ended with %v", err)
		}
	})
	return engine
}

// Outputs polls only for a moment, so that nobody else is refused for it.
func TestOutputsMakesNobodyBusy(t *testing.T) {
	engine := open(t, demoConfig())
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	for range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for ctx.Err() == nil {
				for range engine.Outputs() {
				}
			}
		}()
	}
	for range 5000 {
		if _, err := engine.Step(0); err != nil {
			t.Fatal(err)
		}
	}
}

// A program may take outputs in a loop of its own while Run steps: Run starts beside Outputs, and Finished waits for the last output.
func TestOutputsBesideRunAreAllThereBeforeFinished(t *testing.T) {
	for range 40 {
		engine := open(t, demoConfig())
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- engine.Run(ctx) }()
		for range 10 {
			if _, err := engine.AddTokens([]uint32{5, 6, 7}, &nanovllm.RequestOptions{MaxTokens: 2, IgnoreEOS: true}); err != nil {
				t.Fatal(err)
			}
			var last nanovllm.Output
			waitUntil(t, "the request has ended", func() bool {
				for range 1000 {
					isFinished := engine.Finished()
					for last = range engine.Outputs() {
					}
					if isFinished {
						return true
					}
				}
				return false
			})
			if last.Finish != nanovllm.FinishLength {
				t.Fatalf("finished without the last output: %+v", last)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("Run ended with %v", err)
		}
		_ = engine.Close()
	}
}

func primesPrompt(t testing.TB, engine *nanovllm.Engine) string {
	t.Helper()
	prompt, err := engine.ApplyChatTemplate([]nanovllm.Message{{Role: "user", Content: "list all prime numbers within 10"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return prompt
}

func endless() *nanovllm.RequestOptions {
	return &nanovllm.RequestOptions{MaxTokens: 400, IgnoreEOS: true}
}

func TestGenerateAnswersPromptsInTheirOrder(t *testing.T) {
	engine := open(t, demoConfig())
	prompt := primesPrompt(t, engine)
	outputs, err := engine.Generate(context.Background(), []string{prompt, "", prompt},
		&nanovllm.RequestOptions{MaxTokens: 64}, nil, &nanovllm.RequestOptions{MaxTokens: 3, Tag: 7})
	if err != nil {
		t.Fatal(err)
	}
	if outputs[0].Text != primes || outputs[0].Finish != nanovllm.FinishStop || outputs[0].PromptTokens == 0 {
		t.Errorf("first: %+v", outputs[0])
	}
	if outputs[1].Finish != nanovllm.FinishError || !errors.Is(outputs[1].Err, nanovllm.ErrInvalidArgument) {
		t.Errorf("an empty prompt: %+v", outputs[1])
	}
	if len(outputs[2].Tokens) != 3 || outputs[2].Finish != nanovllm.FinishLength || outputs[2].Tag != 7 {
		t.Errorf("options of its own: %+v", outputs[2])
	}
}

func TestGenerateEndsWithItsContext(t *testing.T) {
	engine := open(t, demoConfig())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	prompts := slices.Repeat([]string{"hello"}, 64)
	if _, err := engine.Generate(ctx, prompts, endless()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	outputs, err := engine.Generate(context.Background(), []string{primesPrompt(t, engine)}, nil)
	if err != nil || outputs[0].Text == "" {
		t.Fatalf("the engine does not go on: %v %v", outputs, err)
	}
}

func TestStepsAndOutputsGiveEachTokenOnce(t *testing.T) {
	engine := open(t, demoConfig())
	options := endless()
	options.MaxTokens, options.Tag = 6, 4711
	id, err := engine.AddTokens([]uint32{5, 6, 7}, options)
	if err != nil {
		t.Fatal(err)
	}
	tokens, finish := 0, nanovllm.FinishNone
	for !engine.Finished() {
		if _, err := engine.Step(0); err != nil {
			t.Fatal(err)
		}
		for out, err := range engine.Outputs() {
			if err != nil || out.RequestID != id || out.Tag != 4711 || out.PromptTokens != 3 {
				t.Fatalf("%+v %v", out, err)
			}
			tokens += len(out.Tokens)
			finish = out.Finish
		}
	}
	if tokens != 6 || finish != nanovllm.FinishLength {
		t.Errorf("%d tokens, finish %v", tokens, finish)
	}
}

func TestAStepKeepsItsBudgetAndTheWorkGoesOn(t *testing.T) {
	engine := open(t, demoConfig())
	if _, err := engine.Add(primesPrompt(t, engine), &nanovllm.RequestOptions{MaxTokens: 64}); err != nil {
		t.Fatal(err)
	}
	text := ""
	for !engine.Finished() {
		if _, err := engine.Step(100 * time.Microsecond); err != nil {
			t.Fatal(err)
		}
		for out := range engine.Outputs() {
			text += out.Text
		}
	}
	if text != primes {
		t.Errorf("got %q", text)
	}
}

func TestOutputsMayBeLeftAndTakenUpAgain(t *testing.T) {
	engine := open(t, demoConfig())
	for range 4 {
		if _, err := engine.AddTokens([]uint32{5, 6, 7}, &nanovllm.RequestOptions{MaxTokens: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := engine.Step(0); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for range 4 {
		for range engine.Outputs() {
			seen++
			break
		}
	}
	if seen != 4 || !engine.Finished() {
		t.Errorf("%d outputs, finished: %v", seen, engine.Finished())
	}
}

func TestStreamGivesAnAnswerAsItGrows(t *testing.T) {
	engine := running(t)
	deltas, err := engine.Stream(context.Background(), primesPrompt(t, engine), &nanovllm.RequestOptions{MaxTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	text, last := "", nanovllm.Delta{}
	for last = range deltas {
		text += last.Text
	}
	if text != primes || last.Finish != nanovllm.FinishStop || last.TimeToFirstToken <= 0 {
		t.Errorf("got %q, %+v", text, last)
	}
}

func TestASlowReceiverMissesNothingAndHoldsNobodyUp(t *testing.T) {
	engine := running(t)
	prompt := primesPrompt(t, engine)
	slow, err := engine.Stream(context.Background(), prompt, &nanovllm.RequestOptions{MaxTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for delta, err := range engine.Answer(context.Background(), prompt, &nanovllm.RequestOptions{MaxTokens: 64}) {
			if err != nil || delta.Finish == nanovllm.FinishLength {
				t.Fatal(delta, err)
			}
		}
	}
	var all []nanovllm.Delta
	for delta := range slow {
		all = append(all, delta)
	}
	if len(all) != 1 || all[0].Text != primes || len(all[0].Tokens)+1 != all[0].CompletionTokens {
		t.Errorf("got %+v", all)
	}
}

func TestAStreamEndsWithItsContext(t *testing.T) {
	engine := running(t)
	ctx, cancel := context.WithCancel(context.Background())
	options := endless()
	options.Tag = 7
	deltas, err := engine.Stream(ctx, "hello", options)
	if err != nil {
		t.Fatal(err)
	}
	first := <-deltas
	cancel()
	tokens, last := len(first.Tokens), nanovllm.Delta{}
	for last = range deltas {
		tokens += len(last.Tokens)
	}
	if last.Tag != 7 || last.PromptTokens != first.PromptTokens || last.PromptTokens == 0 || last.CompletionTokens != tokens {
		t.Errorf("after %d tokens of a prompt of %d: %+v", tokens, first.PromptTokens, last)
	}
	if last.Finish != nanovllm.FinishCancelled || !errors.Is(last.Err, context.Canceled) {
		t.Errorf("last: %+v", last)
	}
	waitUntil(t, "the engine is idle", engine.Finished)
	if _, err := engine.Stream(ctx, "hello", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

func TestALoopThatIsLeftCancelsItsRequest(t *testing.T) {
	engine := running(t)
	for range engine.Answer(context.Background(), "hello", endless()) {
		break
	}
	waitUntil(t, "the engine is idle", engine.Finished)
	if stats, err := engine.Stats(); err != nil || stats.Running != 0 || stats.GeneratedTokens >= 400 {
		t.Errorf("%+v %v", stats, err)
	}
}

func TestStreamsEndWhenRunDoes(t *testing.T) {
	engine := open(t, demoConfig())
	ctx, cancel := context.WithCancel(context.Background())
	deltas, err := engine.Stream(context.Background(), "hello", endless())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- engine.Run(ctx) }()
	<-deltas
	if err := engine.Run(ctx); !errors.Is(err, nanovllm.ErrBusy) {
		t.Errorf("a second Run: %v", err)
	}
	if _, err := engine.Step(0); !errors.Is(err, nanovllm.ErrBusy) {
		t.Errorf("Step beside Run: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	var last nanovllm.Delta
	for last = range deltas {
	}
	if !errors.Is(last.Err, context.Canceled) {
		t.Errorf("last: %+v", last)
	}
}

func TestRunLeavesOutputsOfAddToOutputs(t *testing.T) {
	engine := running(t)
	id, err := engine.Add(primesPrompt(t, engine), &nanovllm.RequestOptions{MaxTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	text, finish := "", nanovllm.FinishNone
	waitUntil(t, "the answer is there", func() bool {
		for out, err := range engine.Outputs() {
			if err != nil || out.RequestID != id {
				t.Fatal(out, err)
			}
			text, finish = text+out.Text, out.Finish
		}
		return finish != nanovllm.FinishNone
	})
	if text != primes {
		t.Errorf("got %q", text)
	}
}

func TestManyGoroutinesStreamAtOnce(t *testing.T) {
	engine := running(t)
	prompt := primesPrompt(t, engine)
	var all sync.WaitGroup
	for g := range 32 {
		all.Add(1)
		go func() {
			defer all.Done()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			text := ""
			for delta, err := range engine.Answer(ctx, prompt, &nanovllm.RequestOptions{MaxTokens: 64}) {
				text += delta.Text
				if g%4 == 0 {
					cancel()
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			if g%4 != 0 && text != primes {
				t.Errorf("got %q", text)
			}
		}()
	}
	all.Wait()
}

func TestCancelEndsARequestOfAdd(t *testing.T) {
	engine := open(t, demoConfig())
	id, err := engine.AddRequest("hello", endless())
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Cancel(id); err != nil {
		t.Fatal(err)
	}
	var last nanovllm.Output
	for !engine.Finished() {
		if _, err := engine.Step(0); err != nil {
			t.Fatal(err)
		}
		for last = range engine.Outputs() {
		}
	}
	if last.Finish != nanovllm.FinishCancelled || last.Finish.String() != "cancelled" {
		t.Errorf("last: %+v", last)
	}
	if err := engine.Cancel(id); !errors.Is(err, nanovllm.ErrNotFound) {
		t.Errorf("a request that has ended: %v", err)
	}
}

func TestErrorsSayWhatAndWhy(t *testing.T) {
	if _, err := nanovllm.New(nanovllm.Config{ModelPath: "/no/such/folder"}); !errors.Is(err, fs.ErrNotExist) ||
		!errors.Is(err, nanovllm.ErrIO) || !strings.Contains(err.Error(), "/no/such/folder") {
		t.Errorf("a missing folder: %v", err)
	}
	config := demoConfig()
	config.MaxQueue = 1
	engine := open(t, config)
	cases := []struct {
		name   string
		prompt string
		opts   *nanovllm.RequestOptions
		want   nanovllm.Status
	}{
		{"an empty prompt", "", nil, nanovllm.ErrInvalidArgument},
		{"no UTF-8", "\xff", nil, nanovllm.ErrInvalidArgument},
		{"a long prompt", strings.Repeat(" prime", 600), nil, nanovllm.ErrContextLength},
		{"top_p of 2", "x", &nanovllm.RequestOptions{TopP: 2}, nanovllm.ErrInvalidArgument},
		{"a negative limit", "x", &nanovllm.RequestOptions{MaxTokens: -1}, nanovllm.ErrInvalidArgument},
		{"a thousand beams", "x", &nanovllm.RequestOptions{BeamWidth: 1000}, nanovllm.ErrInvalidArgument},
	}
	for _, c := range cases {
		if _, err := engine.Add(c.prompt, c.opts); !errors.Is(err, c.want) || errors.Is(err, nanovllm.ErrBusy) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := engine.Stream(context.Background(), c.prompt, c.opts); !errors.Is(err, c.want) {
			t.Errorf("%s, as a stream: %v", c.name, err)
		}
	}
	if _, err := engine.Add("x", nil); err != nil {
		t.Fatalf("a good request after the bad ones: %v", err)
	}
	if _, err := engine.Add("x", nil); !errors.Is(err, nanovllm.ErrQueueFull) {
		t.Errorf("one too many: %v", err)
	}
}

func TestStopTokensAndSeedsReachTheLibrary(t *testing.T) {
	engine := open(t, demoConfig())
	comma, err := engine.Tokenize(",", 0)
	if err != nil || len(comma) != 1 {
		t.Fatal(comma, err)
	}
	prompt := primesPrompt(t, engine)
	ctx := context.Background()
	outputs, err := engine.Generate(ctx, []string{prompt}, &nanovllm.RequestOptions{StopTokens: comma, IncludeStop: true})
	if err != nil || outputs[0].Text != "Prime numbers within 10: 2," {
		t.Errorf("%+v %v", outputs, err)
	}
	if out := outputs[0]; out.FinishReason() != nanovllm.FinishStop || !slices.Equal(out.TokenIDs(), out.Tokens) || out.CumulativeLogprob() != out.TotalLogprob {
		t.Errorf("the names of other languages mean something else: %+v", out)
	}
	wild := &nanovllm.RequestOptions{Temperature: 50, Seed: 3, MaxTokens: 16}
	outputs, err = engine.Generate(ctx, []string{prompt, prompt}, wild)
	if err != nil || outputs[0].Text != outputs[1].Text || strings.HasPrefix(outputs[0].Text, primes) {
		t.Errorf("%+v %v", outputs, err)
	}
}

func TestSequenceBreakersReachTheLibrary(t *testing.T) {
	engine := open(t, demoConfig())
	const repeating = "one: two, one:"
	tokens, err := engine.Tokenize(repeating, 0)
	if err != nil {
		t.Fatal(err)
	}
	wanted := tokens[slices.Index(tokens, tokens[len(tokens)-1])+1]
	for _, c := range []struct {
		breakers   []string
		isRepeated bool
	}{{nil, true}, {[]string{}, false}, {[]string{"x"}, false}, {[]string{"x", ":"}, true}} {
		options := &nanovllm.RequestOptions{MaxTokens: 1, LogitBias: map[uint32]float32{wanted: 50}, DryMultiplier: 1000,
			DryAllowedLength: 1, DrySequenceBreakers: c.breakers}
		outputs, err := engine.Generate(context.Background(), []string{repeating}, options)
		if err != nil || (outputs[0].Tokens[0] == wanted) != c.isRepeated {
			t.Errorf("%q: %+v %v", c.breakers, outputs, err)
		}
	}
	if _, err := engine.Add("x", &nanovllm.RequestOptions{DrySequenceBreakers: []string{"a\x00b"}}); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("a NUL: %v", err)
	}
}

func TestDefaultOptionsAreWhatNilMeans(t *testing.T) {
	var texts [2]string
	for i := range texts {
		// A request without a seed draws by its id, so each engine is fresh.
		engine := open(t, demoConfig())
		recommended, err := engine.DefaultOptions()
		if err != nil {
			t.Fatal(err)
		}
		if float32(recommended.Temperature) != 0.6 || recommended.TopK != 20 || float32(recommended.TopP) != 0.95 {
			t.Errorf("the model recommends otherwise: %+v", recommended)
		}
		if recommended.MaxTokens != 0 || recommended.N != 0 || recommended.Stop != nil {
			t.Errorf("what the library defaults to is 0: %+v", recommended)
		}
		outputs, err := engine.Generate(context.Background(), []string{"tell me a story"}, []*nanovllm.RequestOptions{nil, &recommended}[i])
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = outputs[0].Text
	}
	if texts[0] != texts[1] || texts[0] == "" {
		t.Errorf("%q and %q", texts[0], texts[1])
	}
}

func TestCompletionsOfOnePromptAreToldApart(t *testing.T) {
	engine := running(t)
	prompt := primesPrompt(t, engine)
	options := &nanovllm.RequestOptions{N: 3, MaxTokens: 64, Stop: []string{", 5"}}
	deltas, err := engine.Stream(context.Background(), prompt, options)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, 3)
	for delta := range deltas {
		texts[delta.Index] += delta.Text
	}
	if want := "Prime numbers within 10: 2, 3"; texts[0] != want || texts[1] != want || texts[2] != want {
		t.Errorf("got %q", texts)
	}
	if metrics, err := engine.MetricsText(); err != nil || !strings.Contains(metrics, "nanovllm_") {
		t.Errorf("metrics: %q %v", metrics, err)
	}
}

func TestTextBecomesTokensAndTextAgain(t *testing.T) {
	engine := open(t, demoConfig())
	for _, text := range []string{"", "hello world", "grüß dich 你好 🙂", "a \"quoted\"\n line"} {
		tokens, err := engine.Tokenize(text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := engine.Detokenize(tokens, 0); err != nil || back != text {
			t.Errorf("%q became %q, %v", text, back, err)
		}
	}
	if tokens, err := engine.Tokenize("<|im_end|>", nanovllm.ParseSpecial); err != nil || len(tokens) != 1 {
		t.Errorf("a special token: %v %v", tokens, err)
	}
	long := slices.Repeat([]uint32{5}, 4000)
	if _, err := engine.Detokenize(long, 0); err != nil {
		t.Error(err)
	}
	prompt, err := engine.ApplyChatTemplate([]nanovllm.Message{{Role: "user", Content: "hi"}}, map[string]any{"add_generation_prompt": false})
	if err != nil || prompt != "<|im_start|>user\nhi<|im_end|>\n" {
		t.Errorf("%q %v", prompt, err)
	}
}

func TestModelInfoAndVersion(t *testing.T) {
	engine := open(t, demoConfig())
	info, err := engine.ModelInfo()
	if err != nil || info.VocabSize != 2048 || info.MaxModelLen != 512 || info.BOSToken != 2043 || info.EOSToken != 2045 ||
		info.Device != nanovllm.DeviceCPU || info.MaxNumSeqs != 16 || info.MaxBatchedTokens != 128 {
		t.Errorf("%+v %v", info, err)
	}
	if !strings.Contains(string(nanovllm.BuildInfo()), `"`+nanovllm.Version()+`"`) {
		t.Errorf("%s has no version %s", nanovllm.BuildInfo(), nanovllm.Version())
	}
}

func waitUntil(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}
