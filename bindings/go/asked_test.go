package nanovllm_test

import (
	"context"
	"errors"
	"math"
	"regexp"
	"testing"

	"libnanovllm/bindings/go"
)

func TestOutputsBringLogprobsOfTheAnswerAndOfThePrompt(t *testing.T) {
	engine := open(t, demoConfig())
	options := &nanovllm.RequestOptions{MaxTokens: 3, NumLogprobs: 2, NumPromptLogprobs: 1}
	answers, err := engine.Generate(context.Background(), []string{primesPrompt(t, engine)}, options)
	if err != nil {
		t.Fatal(err)
	}
	answer := answers[0]
	if len(answer.Tokens) != 3 || len(answer.Logprobs) != 3 || len(answer.TopTokens) != 3 || len(answer.TopLogprobs) != 3 {
		t.Fatalf("%+v", answer)
	}
	var total float32
	for i, token := range answer.Tokens {
		top := answer.TopLogprobs[i]
		if len(top) != 2 || answer.TopTokens[i][0] != token || top[0] != answer.Logprobs[i] || top[1] > top[0] {
			t.Errorf("token %d: %v of %v %v", token, answer.Logprobs[i], answer.TopTokens[i], top)
		}
		total += answer.Logprobs[i]
	}
	if math.Abs(float64(total-answer.TotalLogprob)) > 1e-5 {
		t.Errorf("the sum is %v, and %v is said", total, answer.TotalLogprob)
	}
	if n := answer.PromptTokens - 1; len(answer.PromptLogprobs) != n || len(answer.PromptTopTokens) != n || len(answer.PromptTopLogprobs) != n {
		t.Errorf("a prompt of %d: %v", answer.PromptTokens, answer.PromptLogprobs)
	}
}

func TestAnAnswerIsHeldToItsStructure(t *testing.T) {
	engine := open(t, demoConfig())
	prompts := []string{primesPrompt(t, engine)}
	cases := []struct {
		name, structure string
		kind            nanovllm.StructureKind
		wanted          *regexp.Regexp
	}{
		{"a regular expression", "[a-f]{3}-[0-9]{2}", nanovllm.StructureRegex, regexp.MustCompile(`^[a-f]{3}-[0-9]{2}$`)},
		{"a schema", `{"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2}`, nanovllm.StructureJSONSchema,
			regexp.MustCompile(`^\[\s*(true|false)\s*(,\s*(true|false)\s*)?\]$`)},
		{"a grammar", `start: "yes" | "no"`, nanovllm.StructureLark, regexp.MustCompile(`^(yes|no)$`)},
	}
	for _, c := range cases {
		options := &nanovllm.RequestOptions{MaxTokens: 64, StructureKind: c.kind, Structure: c.structure, Stop: []string{"never"}}
		answers, err := engine.Generate(context.Background(), prompts, options)
		if err != nil || answers[0].Err != nil || !c.wanted.MatchString(answers[0].Text) {
			t.Errorf("%s: %+v %v", c.name, answers, err)
		}
	}
	if _, err := engine.Add("x", &nanovllm.RequestOptions{StructureKind: nanovllm.StructureRegex, Structure: "["}); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Errorf("a broken expression: %v", err)
	}
}

func TestBeamSearchBringsItsBestAnswersFirst(t *testing.T) {
	engine := open(t, demoConfig())
	options := &nanovllm.RequestOptions{MaxTokens: 8, BeamWidth: 3, N: 2, EarlyStopping: nanovllm.StopNever}
	answers, err := engine.Generate(context.Background(), []string{primesPrompt(t, engine)}, options)
	if err != nil || len(answers) != 2 || answers[0].Score >= 0 || answers[0].Score < answers[1].Score || answers[0].Text == answers[1].Text {
		t.Errorf("%+v %v", answers, err)
	}
}
