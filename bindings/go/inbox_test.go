package nanovllm

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A stream whose request the library took just before the engine failed must not wait for a step that never comes.
func TestAStreamOfAFailedEngineEndsAtOnce(t *testing.T) {
	lost := &Error{Status: ErrDevice, Message: "the device is lost"}
	var i inbox
	before, after := newStream(nil), newStream(nil)
	i.register(1, before)
	i.note(lost)
	i.register(2, after)
	for _, r := range []*request{before, after} {
		select {
		case last := <-r.deltas:
			if !errors.Is(last.Err, ErrDevice) || last.Finish != FinishCancelled {
				t.Errorf("%+v", last)
			}
		case <-time.After(time.Second):
			t.Error("it waits")
		}
	}
}

func TestALibraryOfAnotherABIIsRefused(t *testing.T) {
	if err := checkABI(0); err != nil {
		t.Error(err)
	}
	if err := checkABI(77); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "77") {
		t.Errorf("got %v", err)
	}
}

// A pass may bring the first output of a request whose Add has not returned. It waits for that Add, and nothing waits for it.
func TestAnOutputBeforeItsAddHasReturnedIsKept(t *testing.T) {
	var i inbox
	known, added, refused := newStream(nil), newRequest(nil), newRequest(nil)
	i.register(1, known)
	i.beginAdd()
	i.beginAdd()
	i.receive(Output{RequestID: 2, Text: "early"})
	i.receive(Output{RequestID: 1, Finish: FinishStop})
	i.flush()
	if last := <-known.deltas; last.Finish != FinishStop {
		t.Errorf("%+v", last)
	}
	if !i.holdsOutputs() {
		t.Error("the early output does not count")
	}
	i.register(2, added)
	i.endAdd()
	i.receive(Output{RequestID: 2, Text: "late", Finish: FinishStop})
	for _, text := range []string{"early", "late"} {
		if out, found := i.take(); !found || out.Text != text {
			t.Errorf("%+v instead of %q", out, text)
		}
	}
	i.receive(Output{RequestID: 3})
	i.endAdd()
	i.receive(Output{RequestID: 3})
	if i.register(4, refused); i.holdsOutputs() || len(i.early) != 0 {
		t.Errorf("outputs of nobody are kept: %v", i.early)
	}
}

// What a receiver has not taken is merged, without a copy of all of it per output.
func TestAnUnreadStreamCostsTheSameForEachOutput(t *testing.T) {
	const n, outputs = 4, 200_000
	var i inbox
	r := newStream(&RequestOptions{N: n, Tag: 7})
	i.register(1, r)
	begun := time.Now()
	for o := range outputs {
		i.receive(Output{RequestID: 1, Tag: 7, Index: o % n, Text: "four", Tokens: []uint32{1}, CompletionTokens: o/n + 1})
		if o%n == n-1 {
			i.flush()
		}
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("%d outputs took %v", outputs, took)
	}
	i.endStream(r, ErrClosed)
	for index := range n {
		last := <-r.deltas
		if last.Index != index || last.Tag != 7 || last.CompletionTokens != outputs/n || len(last.Tokens) != outputs/n ||
			last.Text != strings.Repeat("four", outputs/n) || last.Err != ErrClosed {
			t.Errorf("completion %d: %d tokens of %d, tag %d, %v", last.Index, len(last.Tokens), last.CompletionTokens, last.Tag, last.Err)
		}
	}
	if _, more := <-r.deltas; more {
		t.Error("a delta after the last ones")
	}
}

// A receiver that takes part of what is there gets each completion's text in order, and once.
func TestReceiversOfAnyPaceGetEachTextOnce(t *testing.T) {
	const n, rounds = 3, 60
	for pace := range 5 {
		var i inbox
		r := newStream(&RequestOptions{N: n})
		i.register(1, r)
		var texts [n]string
		for round := range rounds {
			for index := range n {
				finish := FinishNone
				if round == rounds-1 {
					finish = FinishLength
				}
				i.receive(Output{RequestID: 1, Index: index, Text: string(rune('0' + round)), Finish: finish})
			}
			i.flush()
			for range min(pace, len(r.deltas)) {
				out := <-r.deltas
				texts[out.Index] += out.Text
			}
		}
		for out := range r.deltas {
			texts[out.Index] += out.Text
		}
		var want strings.Builder
		for round := range rounds {
			want.WriteRune(rune('0' + round))
		}
		for index, text := range texts {
			if text != want.String() {
				t.Errorf("%d per round, completion %d: %q", pace, index, text)
			}
		}
	}
}

func TestAStreamThatIsReadAllocatesNothing(t *testing.T) {
	const n = 64
	var i inbox
	r := newStream(&RequestOptions{N: n})
	i.register(1, r)
	round := func() {
		for index := range n {
			i.receive(Output{RequestID: 1, Index: index, Text: "text"})
		}
		i.flush()
		for range n {
			<-r.deltas
		}
	}
	round()
	if allocs := testing.AllocsPerRun(100, round); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
