package nanovllm_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"libnanovllm/bindings/go"
)

// A service answers people by streams, and batches by Generate, on one engine.
func TestGenerateWorksBesideRunAndStreams(t *testing.T) {
	engine := running(t)
	prompt := primesPrompt(t, engine)
	var all sync.WaitGroup
	for range 4 {
		all.Add(2)
		go func() {
			defer all.Done()
			prompts := slices.Repeat([]string{prompt, "", prompt}, 20)
			options := make([]*nanovllm.RequestOptions, len(prompts))
			for o := range options {
				options[o] = &nanovllm.RequestOptions{MaxTokens: 1 + o%7, Tag: uint64(o), N: 1 + o%2}
			}
			outputs, err := engine.Generate(context.Background(), prompts, options...)
			if err != nil {
				t.Error(err)
				return
			}
			at := 0
			for p, o := range options {
				for index := range o.N {
					out := outputs[at]
					at++
					if out.Tag != uint64(p) || out.Index != index {
						t.Errorf("prompt %d, completion %d: %+v", p, index, out)
					}
					if p%3 == 1 && !errors.Is(out.Err, nanovllm.ErrInvalidArgument) {
						t.Errorf("an empty prompt: %+v", out)
					}
					if p%3 != 1 && (len(out.Tokens) != o.MaxTokens || out.Finish != nanovllm.FinishLength) {
						t.Errorf("prompt %d: %+v", p, out)
					}
				}
			}
			if at != len(outputs) {
				t.Errorf("%d outputs, want %d", len(outputs), at)
			}
		}()
		go func() {
			defer all.Done()
			text := ""
			for delta, err := range engine.Answer(context.Background(), prompt, &nanovllm.RequestOptions{MaxTokens: 64}) {
				if err != nil {
					t.Error(err)
				}
				text += delta.Text
			}
			if text != primes {
				t.Errorf("a stream beside Generate: %q", text)
			}
		}()
	}
	all.Wait()
}

// Run may begin and end while Generate is at work: whoever is there steps.
func TestRunBeginsAndEndsDuringGenerate(t *testing.T) {
	engine := open(t, demoConfig())
	prompt := primesPrompt(t, engine)
	done := make(chan error, 1)
	go func() {
		outputs, err := engine.Generate(context.Background(), slices.Repeat([]string{prompt}, 300), &nanovllm.RequestOptions{MaxTokens: 64})
		for _, out := range outputs {
			if out.Text != primes {
				t.Errorf("got %+v", out)
			}
		}
		done <- err
	}()
	for runs := 0; ; runs++ {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- engine.Run(ctx) }()
		stats, err := engine.Stats()
		if err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "a few passes have run, or all is done", func() bool {
			now, err := engine.Stats()
			return err != nil || now.Steps > stats.Steps+3 || len(done) > 0
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("Run: %v", err)
		}
		if len(done) > 0 {
			if runs < 2 {
				t.Errorf("only %d times", runs)
			}
			break
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestGenerateBesideRunEndsWithItsContextAndTheEngineGoesOn(t *testing.T) {
	engine := running(t)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		waitUntil(t, "it generates", func() bool {
			stats, err := engine.Stats()
			return err == nil && stats.Running > 0
		})
		cancel()
	}()
	if _, err := engine.Generate(ctx, slices.Repeat([]string{"hello"}, 64), endless()); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	waitUntil(t, "its requests have ended", engine.Finished)
	outputs, err := engine.Generate(context.Background(), []string{primesPrompt(t, engine)}, &nanovllm.RequestOptions{MaxTokens: 64})
	if err != nil || outputs[0].Text != primes {
		t.Errorf("%+v %v", outputs, err)
	}
	if _, err := engine.Generate(context.Background(), []string{"x"}, &nanovllm.RequestOptions{TopP: 2}); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("options for all prompts that are invalid: %v", err)
	}
}

func TestGenerateBesideRunEndsWhenTheEngineIsClosed(t *testing.T) {
	engine := running(t)
	go func() {
		waitUntil(t, "it generates", func() bool {
			stats, err := engine.Stats()
			return err == nil && stats.Running > 0
		})
		_ = engine.Close()
	}()
	if _, err := engine.Generate(context.Background(), slices.Repeat([]string{"hello"}, 64), endless()); !errors.Is(err, nanovllm.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A full queue delays the prompts of a batch, and loses none.
func TestGenerateWaitsForRoomInTheQueue(t *testing.T) {
	config := demoConfig()
	config.MaxQueue = 3
	for _, isRunning := range []bool{false, true} {
		engine := open(t, config)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		if isRunning {
			go func() { ended <- engine.Run(ctx) }()
		} else {
			ended <- nil
		}
		outputs, err := engine.Generate(context.Background(), slices.Repeat([]string{"hello"}, 40), &nanovllm.RequestOptions{MaxTokens: 2, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, out := range outputs {
			if len(out.Tokens) != 2 {
				t.Errorf("got %+v", out)
			}
		}
		outputs, err = engine.Generate(context.Background(), []string{"hello"}, &nanovllm.RequestOptions{BeamWidth: 8, MaxTokens: 2})
		if err != nil || len(outputs) != 1 || outputs[0].Err == nil {
			t.Errorf("more beams than the queue ever holds: %+v %v", outputs, err)
		}
		cancel()
		<-ended
	}
}

func TestProgressCountsResultsAndTokens(t *testing.T) {
	for name, engine := range map[string]*nanovllm.Engine{"beside Run": running(t), "without Run": open(t, demoConfig())} {
		question := []nanovllm.Message{{Role: "user", Content: "list all prime numbers within 10"}}
		prompts := []nanovllm.Prompt{
			{Text: primesPrompt(t, engine), Options: &nanovllm.RequestOptions{MaxTokens: 64}},
			{Messages: question, Options: &nanovllm.RequestOptions{MaxTokens: 64}},
			{Tokens: []uint32{5, 6, 7}, Options: &nanovllm.RequestOptions{MaxTokens: 4, IgnoreEOS: true, N: 2}},
			{Text: "x", Options: &nanovllm.RequestOptions{TopP: 2}},
		}
		var all []nanovllm.Progress
		outputs, err := engine.GeneratePrompts(context.Background(), prompts, func(p nanovllm.Progress) { all = append(all, p) })
		if err != nil || len(outputs) != 5 {
			t.Fatalf("%s: %d outputs, %v", name, len(outputs), err)
		}
		if outputs[0].Text != primes || outputs[1].Text != primes || len(outputs[3].Tokens) != 4 || outputs[3].Index != 1 {
			t.Errorf("%s: %+v", name, outputs)
		}
		if !errors.Is(outputs[4].Err, nanovllm.ErrInvalidArgument) {
			t.Errorf("%s: options of one prompt that are invalid: %+v", name, outputs[4])
		}
		last := all[len(all)-1]
		generated := 0
		for _, out := range outputs {
			generated += out.CompletionTokens
		}
		if len(all) < 3 || last.Finished != 5 || last.Total != 5 || int(last.GeneratedTokens) != generated || last.PromptTokens == 0 ||
			last.DecodeTokensPerSecond <= 0 || last.PrefillTokensPerSecond <= 0 || last.Elapsed <= 0 {
			t.Errorf("%s: %d reports, the last is %+v, and %d tokens were generated", name, len(all), last, generated)
		}
		if !slices.IsSortedFunc(all, func(a, b nanovllm.Progress) int { return int(a.GeneratedTokens) - int(b.GeneratedTokens) }) {
			t.Errorf("%s: tokens vanish: %+v", name, all)
		}
	}
}
