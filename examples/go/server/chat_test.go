package main

import (
	"encoding/json"
	"strings"
	"testing"

	"libnanovllm/bindings/go"
)

func TestTheTemplateReadsTheJSONThatTheClientWrote(t *testing.T) {
	engine, err := nanovllm.New(demoConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	s, err := serverOf([]*nanovllm.Engine{engine}, settings{})
	if err != nil {
		t.Fatal(err)
	}
	const user = `{"role": "user", "content": "hello"}`
	const half = "\ufffd"
	cases := []struct{ name, body, want string }{
		{"a tool", `{"messages": [` + user + `], "tools": [{"type": "function", "function": {"name": "f", "b": 1.0, "a": 9007199254740993}}]}`,
			`{"type": "function", "function": {"name": "f", "b": 1.0, "a": 9007199254740993}}`},
		{"arguments of a call", `{"messages": [` + user + `, {"role": "assistant", "content": "",
			"tool_calls": [{"function": {"name": "f", "arguments": {"z": 9007199254740993, "y": {"b": 1.0, "a": -0.5}}}}]}]}`,
			`"arguments": {"z": 9007199254740993, "y": {"b": 1.0, "a": -0.5}}`},
		{"arguments beside a content in parts", `{"messages": [` + user + `, {"role": "assistant",
			"content": [{"type": "text", "text": "one <\"two\">\n"}, {"type": "text", "text": "three\\"}],
			"tool_calls": [{"function": {"name": "f", "arguments": {"z": 1.0, "<": 2}}}]}]}`,
			"one <\"two\">\nthree\\\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"z\": 1.0, \"<\": 2}}"},
		{"variables", `{"messages": [` + user + `], "chat_template_kwargs": {"tools": [{"z": 1.0, "a": 9007199254740993}]}}`,
			`{"z": 1.0, "a": 9007199254740993}`},
		{"a pair of surrogates", `{"messages": [{"role": "user", "content": "a\uD83D\uDE00b \\ud83d"}]}`, "a😀b \\ud83d"},
		{"half a character", `{"messages": [{"role": "user", "content": "a\ud83d\ud83d\ude00\ude00\ud83d\n"}]}`,
			"a" + half + "😀" + half + half + "\n"},
		{"half a character in parts", `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a\ud83d"}], "name": "\ud83d"}]}`, "a" + half},
		{"half a character in a tool", `{"messages": [` + user + `], "tools": [{"type": "function", "function": {"name": "f", "description": "\ud83d"}}]}`, `"description": "` + half + `"}`},
	}
	for _, c := range cases {
		var request chatRequest
		if err := json.Unmarshal([]byte(c.body), &request); err != nil {
			t.Fatal(c.name, err)
		}
		if prompt, err := s.catalog.models[0].open.chatPrompt(&request.conversation); err != nil || !strings.Contains(prompt, c.want) {
			t.Errorf("%s: %v, and there is no %s in %s", c.name, err, c.want, prompt)
		}
	}
}
