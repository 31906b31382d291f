package nanovllm_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"libnanovllm/bindings/go"
)

func TestTokensAreScoredAfterATextAlone(t *testing.T) {
	engine := open(t, demoConfig())
	options := &nanovllm.RequestOptions{ScoreTokens: []uint32{40, 41, 7}}
	outputs, err := engine.Score(context.Background(), []nanovllm.Prompt{
		{Text: "an iron sword", Options: options}, {Text: "a loaf of bread", Options: options}, {Text: "an iron sword", Options: options},
	})
	if err != nil || len(outputs) != 3 {
		t.Fatalf("%+v %v", outputs, err)
	}
	for _, output := range outputs {
		var sum float64
		for _, score := range output.Scores {
			sum += float64(score)
		}
		if output.Err != nil || len(output.Scores) != 3 || len(output.Tokens) != 0 || math.Abs(sum-1) > 1e-5 || output.TotalLogprob >= 0 {
			t.Errorf("%+v", output)
		}
	}
	if !slices.Equal(outputs[0].Scores, outputs[2].Scores) || slices.Equal(outputs[0].Scores, outputs[1].Scores) {
		t.Errorf("%v, %v and %v", outputs[0].Scores, outputs[1].Scores, outputs[2].Scores)
	}
	// Probabilities do not depend on the order of the tokens.
	options = &nanovllm.RequestOptions{ScoreTokens: []uint32{7, 40, 41}}
	turned, err := engine.Score(context.Background(), []nanovllm.Prompt{{Text: "an iron sword", Options: options}})
	if err != nil || math.Abs(float64(turned[0].Scores[0]-outputs[0].Scores[2])) > 1e-6 {
		t.Errorf("%+v %v", turned, err)
	}
}

func TestTokensOfExpertsAreCountedWhereAsked(t *testing.T) {
	config := demoConfig()
	config.ExpertStatistics = true
	counting := open(t, config)
	if counts, err := counting.ExpertTokens(0); err != nil || len(counts) != 0 {
		t.Errorf("a layer without experts: %v %v", counts, err)
	}
	if _, err := counting.ExpertTokens(1000); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("a layer that is not there: %v", err)
	}
	if _, err := open(t, demoConfig()).ExpertTokens(0); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("an engine that does not count: %v", err)
	}
}

func TestWhatHasNoScoresIsRefused(t *testing.T) {
	engine := open(t, demoConfig())
	outputs, err := engine.Score(context.Background(), []nanovllm.Prompt{{Text: "a sword"}})
	if err != nil || len(outputs) != 1 || !errors.Is(outputs[0].Err, nanovllm.ErrUnsupported) {
		t.Errorf("a model without scores: %+v %v", outputs, err)
	}
	for name, options := range map[string]*nanovllm.RequestOptions{
		"a token twice":                 {ScoreTokens: []uint32{4, 5, 4}},
		"a token beyond the vocabulary": {ScoreTokens: []uint32{1 << 20}},
		"pooling beside":                {ScoreTokens: []uint32{4}, Pooling: nanovllm.PoolingLast},
	} {
		if _, err := engine.Add("a sword", options); !errors.Is(err, nanovllm.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
