package main

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"libnanovllm/bindings/go"
)

// many returns a JSON list of count elements.
func many(element string, count int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", count), ",") + "]"
}

// manyNamed returns a JSON object of count elements.
func manyNamed(element string, count int) string {
	var made strings.Builder
	for i := range count {
		made.WriteString(`,"` + strconv.Itoa(i) + `":` + element)
	}
	return "{" + strings.TrimPrefix(made.String(), ",") + "}"
}

// badBodies are requests that broke something, or come close to what could.
var badBodies = []struct {
	name, path, body string
	status           int
	param, code      string
}{
	{"nothing", "completions", ``, 400, "", ""},
	{"a list", "completions", `[]`, 400, "", ""},
	{"a text", "chat/completions", `"x"`, 400, "", ""},
	{"bytes after the JSON", "completions", `{"prompt": "x"} x`, 400, "", ""},
	{"two requests", "chat/completions", primesChat + `}{}`, 400, "", ""},
	{"no UTF-8", "completions", "{\"prompt\": \"\xff\"}", 400, "", ""},
	{"deep JSON in a field that is a label", "completions", `{"prompt": "x", "metadata": ` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, 400, "", ""},

	{"many tools", "chat/completions", primesChat + `, "tools": ` + many("{}", 250000) + `}`, 400, "tools", ""},
	{"one tool too many", "chat/completions", primesChat + `, "tools": ` + many("{}", maxTools+1) + `}`, 400, "tools", ""},
	{"a large tool", "chat/completions", primesChat + `, "tools": [{"x": ` + many("{}", maxValues) + `}]}`, 400, "tools", ""},
	{"a deep tool", "chat/completions", primesChat + `, "tools": [{"x": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}]}`, 400, "tools", ""},
	{"a tool that is a number", "chat/completions", primesChat + `, "tools": [1]}`, 400, "tools", ""},
	{"many messages", "chat/completions", `{"messages": ` + many(`{"role":"u"}`, maxMessages+1) + `}`, 400, "messages", ""},
	{"a message of many parts", "chat/completions", `{"messages": [{"role": "user", "content": ` + many("{}", maxValues) + `}]}`, 400, "messages", ""},
	{"a message that is a number", "chat/completions", `{"messages": [3]}`, 400, "messages", ""},
	{"a part with a large type", "chat/completions", `{"messages": [{"role": "user", "content": [{"type": ` + many("1", 10000) + `}]}]}`, 400, "messages", "unsupported"},
	{"many variables", "chat/completions", primesChat + `, "chat_template_kwargs": {"x": ` + many("{}", maxValues) + `}}`, 400, "chat_template_kwargs", ""},
	{"variables that are a list", "chat/completions", primesChat + `, "chat_template_kwargs": []}`, 400, "chat_template_kwargs", ""},
	{"a large choice of tools", "chat/completions", primesChat + `, "tool_choice": ` + many("1", 10000) + `}`, 400, "tool_choice", "unsupported"},
	{"a large format", "chat/completions", primesChat + `, "response_format": {"type": "` + strings.Repeat("é", 10000) + `"}}`, 400, "response_format", "unsupported"},

	{"many fields", "completions", `{"prompt": "x", "metadata": null` + strings.Repeat(`, "a": 1`, 1000) + `}`, 400, "", ""},
	{"many tools of Messages", "messages", `{"max_tokens": 1, "messages": [], "tools": ` + many("{}", 250000) + `}`, 400, "", ""},
	{"many tools of Responses", "responses", `{"input": "x", "tools": ` + many("{}", 250000) + `}`, 400, "tools", ""},
	{"many items", "responses", `{"input": ` + many(`{"role": "user", "content": "x"}`, 5000) + `}`, 400, "input", ""},
	{"many blocks", "messages", `{"max_tokens": 1, "messages": [{"role": "user", "content": ` + many(`{}`, 100000) + `}]}`, 400, "", ""},
	{"an input that is a number", "responses", `{"input": 1}`, 400, "input", ""},
	{"many choices", "completions", `{"prompt": "x", "guided_choice": ` + many(`"x"`, 5000) + `}`, 400, "guided_choice", ""},
	{"many prompts", "completions", `{"prompt": ` + many(`"x"`, maxPrompts+1) + `}`, 400, "prompt", ""},
	{"many prompts of tokens", "completions", `{"prompt": ` + many(`[1]`, 250000) + `}`, 400, "prompt", ""},
	{"prompts of both kinds", "completions", `{"prompt": ["x", 1]}`, 400, "prompt", ""},
	{"a token below 0", "completions", `{"prompt": [-1]}`, 400, "prompt", ""},
	{"a token of 33 bits", "completions", `{"prompt": [4294967296]}`, 400, "prompt", ""},
	{"many completions of many prompts", "completions", `{"n": 128, "prompt": ` + many(`"x"`, 17) + `}`, 400, "n", ""},
	{"many inputs", "embeddings", `{"input": ` + many(`"x"`, maxPrompts+1) + `}`, 400, "input", ""},
	{"no inputs", "embeddings", `{"input": [ ]}`, 400, "input", ""},
	{"many documents", "rerank", `{"query": "x", "documents": ` + many(`"x"`, maxPrompts+1) + `}`, 400, "documents", ""},
	{"no documents", "rerank", `{"query": "x", "documents": []}`, 400, "documents", ""},
	{"a document that is a number", "rerank", `{"query": "x", "documents": ["y", 1]}`, 400, "documents", ""},
	{"the first 0 documents", "rerank", `{"query": "x", "documents": ["y"], "top_n": 0}`, 400, "top_n", ""},
	{"many texts", "score", `{"text_1": "x", "text_2": ` + many(`"x"`, maxPrompts+1) + `}`, 400, "text_2", ""},
	{"a pair without its second text", "score", `{"text_1": "x"}`, 400, "text_2", ""},
	{"scores of a model that generates", "score", `{"text_1": "x", "text_2": "y"}`, 400, "model", "unsupported"},
	{"two texts with one", "score", `{"text_1": ["x", "y"], "text_2": ["z"]}`, 400, "text_1", ""},

	{"many stop strings", "completions", `{"prompt": "x", "stop": ` + many(`"x"`, 129) + `}`, 400, "stop", ""},
	{"a long stop string", "completions", `{"prompt": "x", "stop": "` + strings.Repeat("x", 4097) + `"}`, 400, "stop", ""},
	{"a long stop string in a list", "completions", `{"prompt": "x", "stop": ["` + strings.Repeat("x", 4097) + `"]}`, 400, "stop", ""},
	{"a stop string that is a number", "completions", `{"prompt": "x", "stop": 1}`, 400, "stop", ""},
	{"a stop string with a NUL", "completions", `{"prompt": "x", "stop": "a\u0000b"}`, 400, "stop", ""},
	{"many stop tokens", "completions", `{"prompt": "x", "stop_token_ids": ` + many("1", 1025) + `}`, 400, "stop_token_ids", ""},
	{"a stop token of 33 bits", "completions", `{"prompt": "x", "stop_token_ids": [4294967296]}`, 400, "stop_token_ids", ""},
	{"many biases", "completions", `{"prompt": "x", "logit_bias": ` + manyNamed("1", 16385) + `}`, 400, "logit_bias", ""},
	{"a bias of a token of 33 bits", "completions", `{"prompt": "x", "logit_bias": {"4294967296": 1}}`, 400, "logit_bias", ""},
	{"a bias beyond 32 bits", "completions", `{"prompt": "x", "logit_bias": {"1": 1e39}}`, 400, "logit_bias", ""},
	{"a bias with a long name", "completions", `{"prompt": "x", "logit_bias": {"` + strings.Repeat("x", 10000) + `": 1}}`, 400, "logit_bias", ""},
	{"a second stop string that is a NUL", "completions", `{"prompt": "x", "stop": ["a", "\u0000"]}`, 400, "stop", ""},

	{"max_tokens beyond 32 bits", "completions", `{"prompt": "x", "max_tokens": 4294967297}`, 400, "max_tokens", ""},
	{"max_tokens beyond 64 bits", "completions", `{"prompt": "x", "max_tokens": 18446744073709551617}`, 400, "max_tokens", ""},
	{"max_tokens of many digits", "completions", `{"prompt": "x", "max_tokens": 1` + strings.Repeat("0", 10000) + `}`, 400, "max_tokens", ""},
	{"max_tokens with a fraction", "completions", `{"prompt": "x", "max_tokens": 1.5}`, 400, "max_tokens", ""},
	{"max_completion_tokens below 1", "chat/completions", primesChat + `, "max_completion_tokens": -1}`, 400, "max_completion_tokens", ""},
	{"min_tokens below 0", "completions", `{"prompt": "x", "min_tokens": -1}`, 400, "min_tokens", ""},
	{"n of 0", "completions", `{"prompt": "x", "n": 0}`, 400, "n", ""},
	{"n above 128", "completions", `{"prompt": "x", "n": 129}`, 400, "n", ""},
	{"best_of", "completions", `{"prompt": "x", "best_of": 4294967297}`, 400, "best_of", "unsupported"},
	{"top_k below 0", "completions", `{"prompt": "x", "top_k": -2}`, 400, "top_k", ""},
	{"top_k beyond 32 bits", "completions", `{"prompt": "x", "top_k": 4294967297}`, 400, "top_k", ""},
	{"logprobs below 0", "completions", `{"prompt": "x", "logprobs": -1}`, 400, "logprobs", ""},
	{"logprobs beyond 32 bits", "completions", `{"prompt": "x", "logprobs": 4294967297}`, 400, "logprobs", ""},
	{"top_logprobs beyond 32 bits", "chat/completions", primesChat + `, "logprobs": true, "top_logprobs": 4294967297}`, 400, "top_logprobs", ""},
	{"top_logprobs below 0", "chat/completions", primesChat + `, "logprobs": true, "top_logprobs": -1}`, 400, "top_logprobs", ""},
	{"a seed beyond 64 bits", "completions", `{"prompt": "x", "seed": 9223372036854775808}`, 400, "seed", ""},
	{"a temperature beyond 32 bits", "completions", `{"prompt": "x", "temperature": 1e300}`, 400, "temperature", ""},
	{"a temperature beyond 64 bits", "completions", `{"prompt": "x", "temperature": 1e999}`, 400, "temperature", ""},
	{"a penalty beyond 32 bits", "completions", `{"prompt": "x", "presence_penalty": -1e300}`, 400, "presence_penalty", ""},
	{"a top_p of 0", "completions", `{"prompt": "x", "top_p": 0}`, 400, "top_p", ""},
	{"a priority", "completions", `{"prompt": "x", "priority": 1}`, 400, "priority", "unsupported"},
	{"a model with a long name", "completions", `{"prompt": "x", "model": "` + strings.Repeat("<", 100000) + `"}`, 404, "model", "model_not_found"},
	{"an encoding with a long name", "embeddings", `{"input": "x", "encoding_format": "` + strings.Repeat("\\u0001", 10000) + `"}`, 400, "encoding_format", ""},
}

func TestHostileBodiesAreRefusedInFewWords(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	for _, c := range badBodies {
		status, _, text := s.post(t, "/v1/"+c.path, c.body)
		var body struct {
			Error struct{ Message, Type, Param, Code string }
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Errorf("%s: %s", c.name, text)
			continue
		}
		e := body.Error
		if status != c.status || e.Param != c.param || e.Code != c.code || e.Message == "" || e.Type == "" || len(text) > 2048 {
			t.Errorf("%s: %d %.2048s", c.name, status, text)
		}
	}
	if status, text := s.get(t, "/v1/"+strings.Repeat("x", 50000)); status != 404 || len(text) > 1024 {
		t.Errorf("a long path: %d, %d bytes", status, len(text))
	}
	if status, text := s.get(t, "/v1/models/"+strings.Repeat("x", 50000)); status != 404 || len(text) > 1024 {
		t.Errorf("a long name: %d, %d bytes", status, len(text))
	}
	if status, _, text := s.post(t, "/v1/chat/completions", primesChat+`}`); status != 200 || !strings.Contains(text, primes) {
		t.Errorf("a good request after the bad ones: %d %s", status, text)
	}
}

func TestWhatIsJustWithinTheLimitsIsAnswered(t *testing.T) {
	s := start(t, demoConfig(), settings{clientPriority: true}, time.Second)
	cases := []struct{ name, path, body string }{
		{"labels, and unknown fields that are null", "completions", `{"prompt": "x", "max_tokens": 1, "user": "me", "metadata": {"a": "b"}, "store": false, "service_tier": "auto", "other": null}`},
		{"blanks around the JSON", "completions", " \r\n{\"prompt\": \"x\", \"max_tokens\": 1}\n "},
		{"fields that are null", "chat/completions", primesChat + `, "stop": null, "logit_bias": null, "tools": null, "chat_template_kwargs": null, "n": null}`},
		{"variables that are null, and a tool", "chat/completions", primesChat + `, "tools": [{"type": "function", "function": {"name": "f"}}], "chat_template_kwargs": null}`},
		{"128 stop strings", "completions", `{"prompt": "x", "max_tokens": 1, "stop": ` + many(`"x"`, 128) + `}`},
		{"one stop string", "completions", `{"prompt": "x", "max_tokens": 1, "stop": "x"}`},
		{"128 answers", "completions", `{"prompt": "x", "max_tokens": 1, "n": 128}`},
		{"blanks in a list of tokens", "completions", `{"max_tokens": 1, "prompt": [ 5 , 6 ]}`},
		{"lists of tokens", "completions", `{"max_tokens": 1, "prompt": [ [5], [6, 7]]}`},
		{"texts with brackets", "completions", `{"max_tokens": 1, "prompt": ["]\"[", "\\"]}`},
		{"the largest priority", "completions", `{"prompt": "x", "max_tokens": 1, "priority": 2147483647}`},
		{"the least priority", "completions", `{"prompt": "x", "max_tokens": 1, "priority": -2147483648}`},
		{"a seed below 0", "completions", `{"prompt": "x", "max_tokens": 1, "seed": -1}`},
		{"many tokens", "completions", `{"prompt": "x", "max_tokens": 2147483647, "stop": ["e", "a", "o", "i", " "]}`},
	}
	for _, c := range cases {
		if status, _, text := s.post(t, "/v1/"+c.path, c.body); status != 200 {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
	}
	for _, priority := range []string{"2147483648", "-2147483649", "4294967297"} {
		status, _, text := s.post(t, "/v1/completions", `{"prompt": "x", "priority": `+priority+`}`)
		if status != 400 || !strings.Contains(text, `"param":"priority"`) {
			t.Errorf("priority %s: %d %s", priority, status, text)
		}
	}
}

func TestAnAnswerInOnePieceHasABoundedNumberOfLogprobs(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	body := helloChat + `, "max_tokens": 4000, "n": 64, "logprobs": true, "top_logprobs": 20}`
	body = strings.Replace(body, `"stream": true`, `"stream": false`, 1)
	if status, _, text := s.post(t, "/v1/chat/completions", body); status != 400 || !strings.Contains(text, `"param":"logprobs"`) {
		t.Errorf("%d %.300s", status, text)
	}
	waitUntil(t, "the engine is idle", s.engine.Finished)
}

func TestTextsOfClientsAreCutInWholeCharacters(t *testing.T) {
	for text, wanted := range map[string]string{
		"":                            "",
		strings.Repeat("x", 100):      strings.Repeat("x", 100),
		strings.Repeat("x", 101):      strings.Repeat("x", 100) + "…",
		"x" + strings.Repeat("é", 60): "x" + strings.Repeat("é", 49) + "…",
	} {
		if got := cut(text); got != wanted {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := cut(strings.Repeat("\x80", 200)); len(got) > 103 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestShapesAreCountedWithoutDecoding(t *testing.T) {
	for text, wanted := range map[string]shape{
		`1`:                          {0, 1, 0},
		`"[,:"`:                      {0, 1, 0},
		`[]`:                         {0, 1, 1},
		` [ ] `:                      {0, 1, 1},
		`[1, "a,\"b", {}]`:           {3, 4, 2},
		`{"a": [[]], "b": {"c": 1}}`: {2, 8, 3},
		`["\\", "]"]`:                {2, 3, 1},
	} {
		if got := shapeOf([]byte(text)); got != wanted {
			t.Errorf("%s: %+v, wanted %+v", text, got, wanted)
		}
	}
}

// countedShape is what shapeOf is tested against.
func countedShape(value any) shape {
	made := shape{values: 1}
	inner := func(value any) {
		found := countedShape(value)
		made.elements++
		made.values += found.values
		made.depth = max(made.depth, found.depth)
	}
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			inner(one)
		}
		made.depth++
	case map[string]any:
		for _, one := range value {
			made.values++
			inner(one)
		}
		made.depth++
	}
	return made
}

// FuzzRequest decodes bodies as every endpoint would. What comes out is a job within the limits, or a refusal in few words.
//
//	go test -run '^$' -fuzz FuzzRequest -fuzztime 1m -fuzzminimizetime 1x .
func FuzzRequest(f *testing.F) {
	engine, err := nanovllm.New(demoConfig())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = engine.Close() })
	s, err := serverOf([]*nanovllm.Engine{engine}, settings{clientPriority: true})
	if err != nil {
		f.Fatal(err)
	}
	for _, bad := range badBodies {
		if len(bad.body) < 1<<16 {
			f.Add([]byte(bad.body))
		}
	}
	f.Add([]byte(primesChat + `, "n": 2, "stop": ["a"], "logit_bias": {"5": 1}, "seed": 1, "logprobs": true, "top_logprobs": 2}`))
	f.Add([]byte(`{"prompt": [[1, 2], [3]], "input": ["a", "b"], "encoding_format": "base64", "stream": true}`))
	f.Add([]byte(`{"max_tokens": 5, "system": [{"type": "text", "text": "x"}], "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "b"}]}], "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}}`))
	f.Add([]byte(`{"input": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x"}]}, {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "a"}, {"type": "function_call_output", "call_id": "a", "output": "b"}], "text": {"format": {"type": "json_object"}}, "include": ["reasoning.encrypted_content"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var value any
		if err := json.Unmarshal(body, &value); err == nil {
			got, wanted := shapeOf(body), countedShape(value)
			// Of names that come twice, one is decoded.
			if got.values < wanted.values || got.elements < wanted.elements || got.depth < wanted.depth {
				t.Errorf("%+v, wanted %+v", got, wanted)
			}
		}
		for _, understand := range []understanding{s.chatJob, s.completionJob, s.embeddingJob, s.messagesJob, s.responsesJob} {
			j, err := understand(s.catalog.models[0].open, body)
			if err != nil {
				var refused *apiError
				var failed *nanovllm.Error
				if !errors.As(err, &refused) && !errors.As(err, &failed) {
					t.Errorf("an error of another kind: %v", err)
				}
				told := asAPIError(err)
				if told.status < 400 || told.status >= 500 || told.message == "" || len(told.message) > 1024 || !utf8.ValidString(told.message) {
					t.Errorf("%d %q", told.status, told.message)
				}
				continue
			}
			options := j.asked.options
			if j.prompts != len(j.asked.prompts) || j.prompts < 1 || j.choices < 1 || j.prompts*j.choices > maxChoices ||
				options.Priority > math.MaxInt32 || options.Priority < math.MinInt32 || options.MaxTokens < 0 || options.TopK < 0 {
				t.Errorf("%+v %+v", j, options)
			}
		}
	})
}
