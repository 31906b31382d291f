package main

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

func TestAFieldThatIsNotHonouredIsRefusedByItsName(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	const tool = `"tools": [{"type": "function", "function": {"name": "f"}}]`
	cases := []struct{ path, body, param, says string }{
		{"chat/completions", primesChat + `, "functions": [{"name": "f"}]}`, "functions", "use tools"},
		{"chat/completions", primesChat + `, "temprature": 0.5}`, "temprature", "-lenient"},
		{"chat/completions", primesChat + `, "Temperature": 0.5}`, "Temperature", "not a field"},
		{"chat/completions", primesChat + `, "stream_options": {"include_usge": true}}`, "stream_options.include_usge", "not a field"},
		{"chat/completions", primesChat + `, "response_format": {"type": "json_object", "schema": {}}}`, "response_format.schema", "not a field"},
		{"chat/completions", primesChat + `, "store": true}`, "store", "keeps no answers"},
		{"chat/completions", primesChat + `, "modalities": ["audio"]}`, "modalities", `"audio"`},
		{"chat/completions", primesChat + `, "service_tier": "flex"}`, "service_tier", `"flex"`},
		{"chat/completions", primesChat + `, "continue_final_message": true, "add_generation_prompt": true}`, "add_generation_prompt", "only one"},
		{"chat/completions", `{"messages": [{"role": "owner", "content": "x"}]}`, "messages", `message 0 has the role "owner", but it must be one of system, developer, user, assistant, tool`},
		{"chat/completions", `{"messages": [{"role": "user", "contnet": "x"}]}`, "messages", "messages[0].contnet"},
		{"chat/completions", `{"messages": [{"role": "user"}]}`, "messages", "message 0 has no content"},
		{"chat/completions", `{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}`, "messages", `part of type "image_url"`},
		{"chat/completions", primesChat + `, "tools": [{"type": "function"}]}`, "tools", "tools[0] has no function.name"},
		{"chat/completions", primesChat + `, "tools": [{"function": {"name": "f"}}]}`, "tools", "tools[0] has the type"},
		{"chat/completions", primesChat + `, "tools": [{"type": "function", "function": {"name": "f", "parameters": "none"}}]}`, "tools", "parameters"},
		{"chat/completions", primesChat + `, "tools": [{"type": "function", "function": {"name": 5}}]}`, "tools", "number"},
		{"chat/completions", primesChat + `, ` + tool + `, "tool_choice": {"type": "function", "function": {"name": "g"}}}`, "tool_choice", `"g"`},
		{"completions", `{"prompt": "x", "guided_decoding_backend": "x"}`, "guided_decoding_backend", "not supported"},
		{"completions", `{"prompt": "x", "best_of": 2}`, "best_of", "only 1"},
		{"completions", `{"prompt": "x", "guided_regex": "a", "guided_choice": ["b"]}`, "guided_regex", "cannot be combined"},
		{"completions", `{"prompt": "x", "guided_regex": ""}`, "guided_regex", "is empty"},
		{"completions", `{"prompt": "x", "repetition_penalty": 0}`, "repetition_penalty", "above 0"},
		{"completions", `{"prompt": "x", "prompt_logprobs": 1, "stream": true}`, "prompt_logprobs", "streamed"},
		{"completions", `{"prompt": "x", "prompt_logprobs": 65}`, "prompt_logprobs", "from 0 to 64"},
		{"embeddings", `{"input": "x", "dimensions": 3}`, "dimensions", "is_matryoshka"},
		{"embeddings", `{"input": "x", "truncate": true}`, "truncate", "not a field"},
	}
	for _, c := range cases {
		status, _, text := s.post(t, "/v1/"+c.path, c.body)
		var body struct {
			Error struct{ Param, Message string }
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil || status != 400 || body.Error.Param != c.param || !strings.Contains(body.Error.Message, c.says) {
			t.Errorf("%s: %d %s", c.body, status, text)
		}
	}
	lenient := start(t, demoConfig(), settings{lenient: true}, time.Second)
	if status, _, text := lenient.post(t, "/v1/chat/completions", primesChat+`, "temprature": 0.5, "functions": []}`); status != 200 || !strings.Contains(text, primes) {
		t.Errorf("-lenient: %d %s", status, text)
	}
}

func TestUnknownFieldsAreFoundAtEveryLevel(t *testing.T) {
	body := `{"model": "x", "a": 1, "n": null, "b": null, "tools": [{"name": "f", "c": 1}, {"strict": true}], "output_config": {"format": {"d": 2}}, "messages": [{"e": 3}]}`
	var walk fieldWalk
	walk.look(reflect.TypeOf(messagesRequest{}), []byte(body), "")
	if !slices.Equal(walk.unknown, []string{"a", "output_config.format.d", "tools[0].c"}) || walk.refusal != nil {
		t.Errorf("%q %v", walk.unknown, walk.refusal)
	}
	for _, other := range []string{`[]`, `null`, ` "x"`, `{"tools": 1}`, `{"tools": {"a": 1}}`, `{"thinking": []}`, `{"tools": [[], 1, null]}`} {
		var walk fieldWalk
		if walk.look(reflect.TypeOf(messagesRequest{}), []byte(other), ""); walk.unknown != nil || walk.refusal != nil {
			t.Errorf("%s: %q %v", other, walk.unknown, walk.refusal)
		}
	}
}

// What vLLM and llama-server know, as their users send it.
func TestFieldsOfOtherServersAreHonoured(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	const schema = `{"type": "object", "properties": {"a": {"enum": ["left", "right"]}}, "required": ["a"], "additionalProperties": false}`
	isSide := func(text string) bool {
		var side struct{ A string }
		return json.Unmarshal([]byte(text), &side) == nil && (side.A == "left" || side.A == "right")
	}
	isYesOrNo := func(text string) bool { return text == "yes" || text == "no" }
	const gbnf = `"root ::= \"yes\" | \"no\""`
	cases := []struct {
		fields string
		fits   func(string) bool
	}{
		{`"guided_json": ` + schema, isSide},
		{`"guided_json": "{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [\"left\"]}}, \"required\": [\"a\"]}"`, isSide},
		{`"json_schema": ` + schema, isSide},
		{`"structured_outputs": {"json": ` + schema + `}`, isSide},
		{`"response_format": {"type": "json_schema", "json_schema": {"name": "side", "strict": true, "schema": ` + schema + `}}`, isSide},
		{`"guided_regex": "yes|no"`, isYesOrNo},
		{`"structured_outputs": {"regex": "yes|no"}`, isYesOrNo},
		{`"guided_choice": ["yes", "no"]`, isYesOrNo},
		{`"structured_outputs": {"choice": ["yes", "no"]}`, isYesOrNo},
		{`"guided_choice": ["a.b", "(c"]`, func(text string) bool { return text == "a.b" || text == "(c" }},
		{`"guided_grammar": ` + gbnf, isYesOrNo},
		{`"guided_grammar": "start: \"yes\" | \"no\""`, isYesOrNo},
		{`"structured_outputs": {"grammar": ` + gbnf + `}`, isYesOrNo},
		{`"grammar": ` + gbnf, isYesOrNo},
		{`"structured_outputs": {"json_object": true}, "max_tokens": 4`, func(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "{") }},
		{`"top_k": 1, "temperature": 2, "max_tokens": 12`, func(text string) bool { return strings.HasPrefix(primes, text) && text != "" }},
		{`"top_k": -1, "temperature": 0`, func(text string) bool { return text == primes }},
		{`"min_p": 1, "temperature": 2, "max_tokens": 12`, func(text string) bool { return strings.HasPrefix(primes, text) && text != "" }},
		{`"top_n_sigma": 0.001, "temperature": 2, "max_tokens": 12`, func(text string) bool { return strings.HasPrefix(primes, text) && text != "" }},
		{`"top_n_sigma": -1, "temperature": 0`, func(text string) bool { return text == primes }},
		{`"xtc_probability": 1, "xtc_threshold": 0.001, "temperature": 3`, func(text string) bool { return !strings.HasPrefix(text, primes) }},
		{`"xtc_probability": 0, "xtc_threshold": 0.001, "temperature": 0`, func(text string) bool { return text == primes }},
		{`"temperature": 0, "dry_multiplier": 1000, "dry_allowed_length": 1, "dry_base": 1.1, "dry_sequence_breakers": []`, func(text string) bool { return text != primes }},
		{`"temperature": 0, "dry_multiplier": 1000, "dry_allowed_length": 1, "dry_sequence_breakers": [","]`, func(text string) bool { return text != "" }},
		{`"temperature": 0, "dry_multiplier": 1000, "dry_allowed_length": 1, "dry_penalty_last_n": 0`, func(text string) bool { return text == primes }},
		{`"temperature": 0, "dry_multiplier": 1000, "dry_allowed_length": 100, "dry_penalty_last_n": -1`, func(text string) bool { return text == primes }},
		{`"temperature": 0, "stop": ", 5", "include_stop_str_in_output": true`, func(text string) bool { return text == "Prime numbers within 10: 2, 3, 5" }},
		{`"temperature": 0, "cache_salt": "mine"`, func(text string) bool { return text == primes }},
		{`"temperature": 0, "reasoning_effort": "none"`, func(text string) bool { return text != "" }},
		{`"temperature": 0, "min_tokens": 60, "max_tokens": 60`, func(text string) bool { return len(text) > len(primes) }},
		{`"temperature": 0, "repetition_penalty": 1000`, func(text string) bool { return text != primes }},
	}
	const asked = `{"messages": [{"role": "user", "content": "list all prime numbers within 10"}], `
	for _, c := range cases {
		status, _, text := s.post(t, "/v1/chat/completions", asked+c.fields+`}`)
		var answer struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 || !c.fits(answer.Choices[0].Message.Content) {
			t.Errorf("%s: %d %s", c.fields, status, text)
		}
	}
	// Completions have the same fields.
	if status, _, text := s.post(t, "/v1/completions", `{"prompt": "x", "structured_outputs": {"choice": ["yes"]}}`); status != 200 || !strings.Contains(text, `"text":"yes"`) {
		t.Errorf("a completion: %d %s", status, text)
	}
	words, err := s.engine.Tokenize(primes, 0)
	if err != nil {
		t.Fatal(err)
	}
	stop, _ := json.Marshal([]uint32{words[3]})
	if status, _, text := s.post(t, "/v1/chat/completions", asked+`"temperature": 0, "stop_token_ids": `+string(stop)+`}`); status != 200 || strings.Contains(text, primes) {
		t.Errorf("stop_token_ids: %d %s", status, text)
	}
}

func TestAPromptEndsAsTheRequestSays(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	chat := func(fields string) string {
		status, _, text := s.post(t, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "list all prime numbers within 10"}, `+
			`{"role": "assistant", "content": "Prime numbers within 10: 2, 3"}], "temperature": 0`+fields+`}`)
		var answer told
		var messages struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", fields, status, text)
		}
		_ = json.Unmarshal([]byte(text), &messages)
		return messages.Choices[0].Message.Content
	}
	if text := chat(`, "continue_final_message": true`); text != ", 5, 7." {
		t.Errorf("continued with %q", text)
	}
	if text := chat(`, "continue_final_message": true, "add_generation_prompt": false`); text != ", 5, 7." {
		t.Errorf("continued with %q", text)
	}
	count := func(fields string) int {
		_, _, text := s.post(t, "/tokenize", `{"messages": [{"role": "user", "content": "hello"}]`+fields+`}`)
		var answer struct{ Count int }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Count == 0 {
			t.Fatal(text)
		}
		return answer.Count
	}
	with, without := count(""), count(`, "add_generation_prompt": false`)
	thinks := count(`, "chat_template_kwargs": {"enable_thinking": false}`)
	if with <= without || thinks <= with {
		t.Errorf("%d tokens with a generation prompt, %d without, %d with an end of thinking", with, without, thinks)
	}
}

func TestADeveloperIsASystemWhereTheTemplateHasNone(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	prompts := map[string]string{}
	for _, role := range []string{"system", "developer"} {
		request := conversation{Messages: json.RawMessage(`[{"role": "` + role + `", "content": "be brief"}, {"role": "user", "content": "hello"}]`)}
		prompt, err := s.catalog.models[0].open.chatPrompt(&request)
		if err != nil || !strings.Contains(prompt, "be brief") {
			t.Fatalf("%s: %v %s", role, err, prompt)
		}
		prompts[role] = prompt
	}
	if prompts["developer"] != prompts["system"] {
		t.Errorf("%q is not %q", prompts["developer"], prompts["system"])
	}
	own := modelWithTemplate(t, `{% for m in messages %}{% if m.role == 'developer' %}# Developer{% else %}{{ m.role }}{% endif %}: {{ m.content }}{% endfor %}`)
	printing := modelWithTemplate(t, `{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}`)
	for _, c := range []struct {
		config nanovllm.Config
		wanted bool
	}{{own, true}, {printing, false}, {demoConfig(), false}} {
		engine, err := nanovllm.New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		if known := knowsDeveloper(engine); known != c.wanted {
			t.Errorf("%s: %v", c.config.ModelPath, known)
		}
		_ = engine.Close()
	}
}

// modelWithTemplate returns the demo model with another chat template.
func modelWithTemplate(t *testing.T, template string) nanovllm.Config {
	t.Helper()
	return modelWith(t, "chat_template.jinja", template)
}
