package nanovllm_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

func TestAClosedEngineRefusesEverything(t *testing.T) {
	engine := open(t, demoConfig())
	deltas, err := engine.Stream(context.Background(), "hello", endless())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- engine.Run(context.Background()) }()
	<-deltas
	if err := errors.Join(engine.Close(), engine.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, nanovllm.ErrClosed) {
		t.Errorf("Run ended with %v", err)
	}
	var last nanovllm.Delta
	for last = range deltas {
	}
	if !errors.Is(last.Err, nanovllm.ErrClosed) {
		t.Errorf("last: %+v", last)
	}
	calls := map[string]func() error{
		"Add":            func() error { _, err := engine.Add("x", nil); return err },
		"Cancel":         func() error { return engine.Cancel(1) },
		"DefaultOptions": func() error { _, err := engine.DefaultOptions(); return err },
		"Generate":       func() error { _, err := engine.Generate(context.Background(), nil); return err },
		"ModelInfo":      func() error { _, err := engine.ModelInfo(); return err },
		"Run":            func() error { return engine.Run(context.Background()) },
		"Stats":          func() error { _, err := engine.Stats(); return err },
		"Step":           func() error { _, err := engine.Step(0); return err },
		"Tokenize":       func() error { _, err := engine.Tokenize("x", 0); return err },
		"Outputs": func() error {
			for _, err := range engine.Outputs() {
				return err
			}
			return nil
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, nanovllm.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !engine.Finished() {
		t.Error("it is not finished")
	}
}

func TestAnIdleRunEndsWithItsContextAndWithTheEngine(t *testing.T) {
	engine := open(t, demoConfig())
	ended := make(chan error, 1)
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { ended <- engine.Run(ctx) }()
		for range 2 {
			// Each finds it idle, and wakes it.
			completeOne(t, engine)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	go func() { ended <- engine.Run(context.Background()) }()
	// Who would ask by Step whether Run runs can be the one whose step refuses it.
	completeOne(t, engine)
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, nanovllm.ErrClosed) {
		t.Error(err)
	}
}

// completeOne returns when Run has completed a request: the engine is idle then.
func completeOne(t *testing.T, engine *nanovllm.Engine) {
	t.Helper()
	deltas, err := engine.Stream(context.Background(), "hello", &nanovllm.RequestOptions{MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	for delta := range deltas {
		if delta.Err != nil {
			t.Error(delta.Err)
		}
	}
}

func TestCloseEndsGenerateAndHoldsNobodyUp(t *testing.T) {
	engine := open(t, demoConfig())
	ended := make(chan error, 1)
	go func() {
		_, err := engine.Generate(context.Background(), slices.Repeat([]string{"hello"}, 2000), endless())
		ended <- err
	}()
	waitUntil(t, "it generates", func() bool {
		stats, err := engine.Stats()
		return err == nil && stats.Running > 0
	})
	begun := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- engine.Close() }()
	waitUntil(t, "it closes", func() bool {
		asked := time.Now()
		_, err := engine.Stats()
		if took := time.Since(asked); took > time.Second {
			t.Fatalf("Stats took %v", took)
		}
		return errors.Is(err, nanovllm.ErrClosed)
	})
	if _, err := engine.Step(0); !errors.Is(err, nanovllm.ErrClosed) {
		t.Errorf("Step: %v", err)
	}
	if err := <-ended; !errors.Is(err, nanovllm.ErrClosed) {
		t.Errorf("Generate ended with %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("closing took %v", took)
	}
}

func TestTwoHundredEnginesLeaveNothingBehind(t *testing.T) {
	config := demoConfig()
	config.NumThreads = 2
	round := func(closes bool) {
		engine, err := nanovllm.New(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Add("hello", endless()); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Step(0); err != nil {
			t.Fatal(err)
		}
		// A thread gives itself its name a little after it has begun.
		waitUntil(t, "the library's threads have the names that this test looks for", func() bool {
			return threadsNamed(t, "nvllm") > 0
		})
		if closes {
			_ = engine.Close()
		}
	}
	for range 20 {
		round(true)
	}
	before := residentBytes(t)
	goroutines := runtime.NumGoroutine()
	for i := range 200 {
		// Who forgets Close is helped by the garbage collector.
		round(i%10 != 0)
		if i%10 == 0 {
			runtime.GC()
		}
	}
	waitUntil(t, "the library's threads have ended", func() bool {
		runtime.GC()
		return threadsNamed(t, "nvllm") == 0
	})
	if grown := residentBytes(t) - before; grown > 48<<20 {
		t.Errorf("%d MiB more are resident", grown>>20)
	}
	if n := runtime.NumGoroutine(); n > goroutines+2 {
		t.Errorf("%d goroutines, before %d", n, goroutines)
	}
}
