package nanovllm_test

import (
	"errors"
	"slices"
	"testing"

	"libnanovllm/bindings/go"
)

// answer runs a prompt of tokens and returns all that came out of it.
func answer(t *testing.T, engine *nanovllm.Engine, tokens []uint32, options *nanovllm.RequestOptions) nanovllm.Output {
	t.Helper()
	if _, err := engine.AddTokens(tokens, options); err != nil {
		t.Fatal(err)
	}
	return finish(t, engine)
}

// finish steps to the end and returns the last output, with all tokens of the others.
func finish(t *testing.T, engine *nanovllm.Engine) nanovllm.Output {
	t.Helper()
	var last nanovllm.Output
	var tokens []uint32
	for !engine.Finished() {
		if _, err := engine.Step(0); err != nil {
			t.Fatal(err)
		}
		for out, err := range engine.Outputs() {
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, out.Tokens...)
			last = out
		}
	}
	last.Tokens = tokens
	return last
}

func fortyTokens() []uint32 {
	tokens := make([]uint32, 40)
	for i := range tokens {
		tokens[i] = uint32(5 + i)
	}
	return tokens
}

func TestAPrefixIsPinnedReleasedAndForgotten(t *testing.T) {
	engine := open(t, demoConfig())
	options := nanovllm.RequestOptions{MaxTokens: 1, PinPrompt: true, CacheSalt: 3}
	pinned := answer(t, engine, fortyTokens(), &options)
	options.PinPrompt = false
	if err := engine.ResetPrefixCache(); err != nil {
		t.Fatal(err)
	}
	before, _ := engine.Stats()
	freed, err := engine.Trim()
	if after, _ := engine.Stats(); err != nil || after.KVCacheBytesMapped+freed > before.KVCacheBytesMapped {
		t.Errorf("%d bytes of %d, then %d: %v", freed, before.KVCacheBytesMapped, after.KVCacheBytesMapped, err)
	}
	if again, err := engine.Trim(); again != 0 || err != nil {
		t.Errorf("%d bytes the second time: %v", again, err)
	}
	if out := answer(t, engine, fortyTokens(), &options); out.CachedTokens != 32 {
		t.Errorf("%d tokens of a pinned prompt are there", out.CachedTokens)
	}
	stats, err := engine.Stats()
	if err != nil || stats.KVBlocksPinned != 2 || stats.CacheHits != 32 {
		t.Errorf("%+v, %v", stats, err)
	}
	if err := engine.ReleasePrefix(pinned.RequestID); err != nil {
		t.Error(err)
	}
	if err := engine.ReleasePrefix(pinned.RequestID); !errors.Is(err, nanovllm.ErrNotFound) {
		t.Errorf("released twice: %v", err)
	}
}

func TestAPrefixGoesOnInAnotherEngine(t *testing.T) {
	here, there := open(t, demoConfig()), open(t, demoConfig())
	options := &nanovllm.RequestOptions{MaxTokens: 8, IgnoreEOS: true}
	first := answer(t, here, fortyTokens(), options)
	saved, err := here.SavePrefix(fortyTokens(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := there.RestorePrefix(saved[:len(saved)-1]); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("cut bytes: %v", err)
	}
	if restored, err := there.RestorePrefix(saved); err != nil || restored != 32 {
		t.Errorf("%d tokens, %v", restored, err)
	}
	again := answer(t, there, fortyTokens(), options)
	if again.CachedTokens != 32 || !slices.Equal(again.Tokens, first.Tokens) {
		t.Errorf("%d cached, %v instead of %v", again.CachedTokens, again.Tokens, first.Tokens)
	}
	if _, err := there.SavePrefix([]uint32{1, 2, 3}, 0); !errors.Is(err, nanovllm.ErrNotFound) {
		t.Errorf("nothing to save: %v", err)
	}
}

func TestARequestForksAndAPromptIsEmbedded(t *testing.T) {
	engine := open(t, demoConfig())
	options := &nanovllm.RequestOptions{MaxTokens: 6, IgnoreEOS: true}
	id, err := engine.AddTokens(fortyTokens(), options)
	if err != nil {
		t.Fatal(err)
	}
	fork, err := engine.Fork(id, 0, options)
	if err != nil || fork <= id {
		t.Errorf("fork %d of %d: %v", fork, id, err)
	}
	if out := finish(t, engine); len(out.Tokens) != 12 {
		t.Errorf("%d tokens of both", len(out.Tokens))
	}
	if _, err := engine.Fork(id, 0, options); !errors.Is(err, nanovllm.ErrNotFound) {
		t.Errorf("a fork of what has ended: %v", err)
	}
	for _, pooling := range []nanovllm.Pooling{nanovllm.PoolingLast, nanovllm.PoolingMean} {
		out := answer(t, engine, fortyTokens(), &nanovllm.RequestOptions{Pooling: pooling})
		if len(out.Embedding) == 0 || len(out.Tokens) > 0 || out.Finish != nanovllm.FinishStop {
			t.Errorf("pooling %d: %+v", pooling, out)
		}
	}
}
