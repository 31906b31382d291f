package nanovllm_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

// What Go can say and C cannot is refused by name; nothing wraps, and no text ends before its end.
func TestWhatCCannotSayIsRefused(t *testing.T) {
	engine := open(t, demoConfig())
	type options = nanovllm.RequestOptions
	cases := []struct {
		name    string
		options options
		names   string // what the message names
	}{
		{"a priority above 32 bits", options{Priority: math.MaxInt32 + 1}, "Priority"},
		{"a priority below 32 bits", options{Priority: math.MinInt32 - 1}, "Priority"},
		{"a priority that would wrap to 1", options{Priority: 1<<32 + 1}, "Priority"},
		{"MaxTokens that would wrap to 1", options{MaxTokens: 1<<32 + 1}, "MaxTokens"},
		{"MinTokens below 0", options{MinTokens: -1}, "MinTokens"},
		{"TopK that would wrap to 1", options{TopK: 1<<32 + 1}, "TopK"},
		{"NumLogprobs below 0", options{NumLogprobs: -1}, "NumLogprobs"},
		{"NumPromptLogprobs below 0", options{NumPromptLogprobs: -1}, "NumPromptLogprobs"},
		{"N below 0", options{N: -1}, "N is -1"},
		{"N of 32 bits", options{N: math.MaxUint32}, "n is 4294967295"},
		{"BeamWidth that would wrap to 2", options{BeamWidth: 1<<32 + 2}, "BeamWidth"},
		{"a kind of structure that would wrap", options{StructureKind: 1<<32 + nanovllm.StructureRegex, Structure: "a"}, "StructureKind"},
		{"a kind of structure that is none", options{StructureKind: -1, Structure: "a"}, "structure_kind"},
		{"a negative time", options{MaxWait: -time.Second}, "MaxWait is -1s"},
		{"a time just below 0", options{MaxWait: -1}, "MaxWait is -1ns"},
		{"a temperature beyond 32 bits", options{Temperature: 1e300}, "temperature"},
		{"a temperature that is no number", options{Temperature: math.NaN()}, "temperature"},
		{"a top-p that is no number", options{TopP: math.NaN()}, "top_p"},
		{"a bias that is no number", options{LogitBias: map[uint32]float32{1: float32(math.NaN())}}, "bias_values"},
		{"a stop string with a NUL", options{Stop: []string{"a", "b\x00c"}}, "Stop has a NUL byte at 1"},
		{"a stop string that is a NUL", options{Stop: []string{"\x00"}}, "Stop"},
		{"a stop string that is no UTF-8", options{Stop: []string{"\xff"}}, "stop"},
		{"a structure with a NUL", options{StructureKind: nanovllm.StructureRegex, Structure: "a\x00|b"}, "Structure"},
		{"a structure that is no UTF-8", options{StructureKind: nanovllm.StructureRegex, Structure: "\xff"}, "structure"},
	}
	for _, c := range cases {
		_, addErr := engine.Add("x", &c.options)
		_, tokensErr := engine.AddTokens([]uint32{1}, &c.options)
		_, streamErr := engine.Stream(context.Background(), "x", &c.options)
		answers, generateErr := engine.Generate(context.Background(), []string{"x"}, &c.options)
		if generateErr == nil && len(answers) == 1 {
			generateErr = answers[0].Err
		}
		for _, err := range []error{addErr, tokensErr, streamErr, generateErr} {
			if !errors.Is(err, nanovllm.ErrInvalidArgument) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	for _, config := range []nanovllm.Config{
		{ModelPath: modelFolder() + "\x00more"},
		{ModelPath: modelFolder(), DeviceIndex: 1 << 32},
		{ModelPath: modelFolder(), DType: 1 << 32},
		{ModelPath: modelFolder(), NumThreads: -1},
		{ModelPath: modelFolder(), MaxQueue: 1 << 32},
		{ModelPath: modelFolder(), PeerTimeout: -1},
		{ModelPath: modelFolder(), PeerTimeout: 50 * 24 * time.Hour},
		{ModelPath: modelFolder(), Device: 99},
		{ModelPath: modelFolder(), Device: -1},
	} {
		if opened, err := nanovllm.New(config); !errors.Is(err, nanovllm.ErrInvalidArgument) {
			t.Errorf("%+v: %v", config, err)
			_ = opened.Close()
		}
	}
	if !engine.Finished() {
		t.Error("something was taken")
	}
	if answers, err := engine.Generate(context.Background(), []string{primesPrompt(t, engine)}, &options{}); err != nil || answers[0].Text != primes {
		t.Errorf("a good request after the bad ones: %+v %v", answers, err)
	}
}

// Prompts and conversations bring their length, so they may hold anything.
func TestTextsOfAnyBytesPassOrAreRefused(t *testing.T) {
	engine := open(t, demoConfig())
	ids, err := engine.Tokenize("a\x00b", 0)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := engine.Detokenize(ids, 0); err != nil || text != "a\x00b" {
		t.Errorf("%q %v", text, err)
	}
	long := strings.Repeat("x", nanovllm.MaxTextBytes+1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := engine.Tokenize(long, 0); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("a long text: %v", err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d bytes were allocated for a text that is refused", after.TotalAlloc-before.TotalAlloc)
	}
	if ids, err := engine.Tokenize(strings.Repeat(" prime", 1000), 0); err != nil || cap(ids) > len(ids)*3/2 {
		t.Errorf("%d tokens in room for %d, %v", len(ids), cap(ids), err)
	}
	if _, err := engine.Tokenize("\xff", 0); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("bytes that are no UTF-8: %v", err)
	}
	if _, err := engine.Add("\xc3", nil); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("half a character: %v", err)
	}
	text, err := engine.ApplyChatTemplate([]nanovllm.Message{{Role: "user", Content: "<a> & \u2028\x00"}}, nil)
	if err != nil || !strings.Contains(text, "<a> & \u2028\x00") {
		t.Errorf("%q %v", text, err)
	}
	if _, err := engine.ApplyChatTemplate(map[string]any{"role": math.Inf(1)}, nil); err == nil {
		t.Error("a number that is no JSON")
	}
}

// A time that is shorter than a unit of the C API is not the 0 that means no limit.
func TestAShortTimeIsNotNone(t *testing.T) {
	engine := open(t, demoConfig())
	if _, err := engine.AddTokens([]uint32{5, 6, 7}, &nanovllm.RequestOptions{MaxTokens: 1, MaxWait: 500 * time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	var last nanovllm.Output
	for !engine.Finished() {
		if _, err := engine.Step(0); err != nil {
			t.Fatal(err)
		}
		for last = range engine.Outputs() {
		}
	}
	if last.Finish != nanovllm.FinishExpired {
		t.Errorf("%+v", last)
	}
}

func TestANegativeBudgetIsTheLeastOne(t *testing.T) {
	engine := open(t, demoConfig())
	for range 16 {
		if _, err := engine.Add(strings.Repeat(" prime", 64), endless()); err != nil {
			t.Fatal(err)
		}
	}
	done, err := engine.Step(-time.Second)
	if err != nil || done.Iterations != 0 || !done.InFlight {
		t.Errorf("%+v %v", done, err)
	}
}
