package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// The demo model calls no function by itself: a grammar makes it write what models of its format write, with reasoning and content. Tools
// that must be called make a grammar of their own, which a request can have instead.
const (
	giveTool   = `{"type": "function", "function": {"name": "give_item", "parameters": {"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}}}}}`
	calling    = `"grammar": "start: \"<think>\\nA sword it is.\\n</think>\\n\\nHere you are.\\n<tool_call>\\n{\\\"name\\\": \\\"give_item\\\", \\\"arguments\\\": {\\\"item\\\": \\\"iron sword\\\", \\\"count\\\": 2}}\\n</tool_call>\""`
	forAnItem  = `"messages": [{"role": "user", "content": "a sword, please"}]`
	gaveItem   = `{"item": "iron sword", "count": 2}`
	thought    = "A sword it is."
	saidToGive = "Here you are."
)

// sameJSON reports whether two texts are the same JSON.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// A chatCall is a call of a function in a message or in a delta.
type chatCall struct {
	Index    int
	ID, Type string
	Function struct{ Name, Arguments string }
}

type chatMessage struct {
	Role             string
	Content          *string
	ReasoningContent string     `json:"reasoning_content"`
	ToolCalls        []chatCall `json:"tool_calls"`
}

type chatAnswer struct {
	Choices []struct {
		Message, Delta chatMessage
		FinishReason   string `json:"finish_reason"`
	}
}

func TestCallsAndReasoningStandApartFromTheContent(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	status, _, text := s.post(t, "/v1/chat/completions", `{`+forAnItem+`, `+calling+`}`)
	var whole chatAnswer
	if err := json.Unmarshal([]byte(text), &whole); err != nil || status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	message := whole.Choices[0].Message
	if whole.Choices[0].FinishReason != "tool_calls" || strings.TrimSpace(message.ReasoningContent) != thought || message.Content == nil ||
		strings.TrimSpace(*message.Content) != saidToGive || len(message.ToolCalls) != 1 {
		t.Fatalf("%s", text)
	}
	call := message.ToolCalls[0]
	if call.Type != "function" || call.Function.Name != "give_item" || !sameJSON(call.Function.Arguments, gaveItem) || len(call.ID) != 9 {
		t.Errorf("%+v", call)
	}

	_, _, text = s.post(t, "/v1/chat/completions", `{`+forAnItem+`, `+calling+`, "stream": true}`)
	var content, reasoning, arguments, name, id, reason string
	for _, event := range dataOf(t, text) {
		var chunk chatAnswer
		if err := json.Unmarshal([]byte(event), &chunk); err != nil {
			t.Fatal(event)
		}
		delta := chunk.Choices[0].Delta
		if delta.Content != nil {
			content += *delta.Content
		}
		reasoning += delta.ReasoningContent
		for _, call := range delta.ToolCalls {
			if call.Index != 0 {
				t.Errorf("%s", event)
			}
			name += call.Function.Name
			id += call.ID
			arguments += call.Function.Arguments
		}
		reason += chunk.Choices[0].FinishReason
	}
	if content != *message.Content || reasoning != message.ReasoningContent || arguments != call.Function.Arguments || name != "give_item" || len(id) != 9 ||
		reason != "tool_calls" {
		t.Errorf("%q %q %q %q %q %q", content, reasoning, arguments, name, id, reason)
	}

	// What the client sends back becomes a prompt.
	history, _ := json.Marshal([]any{map[string]any{"role": "user", "content": "a sword, please"},
		map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": id, "type": "function", "function": map[string]any{"name": name, "arguments": arguments}}},
			"refusal": nil, "annotations": []any{}, "audio": nil, "function_call": nil},
		map[string]any{"role": "tool", "tool_call_id": id, "content": "done"}})
	if status, _, text := s.post(t, "/v1/chat/completions", `{"messages": `+string(history)+`, "tools": [`+giveTool+`], "max_tokens": 2}`); status != 200 {
		t.Errorf("the result of a call: %d %s", status, text)
	}
	for _, arguments := range []string{`"no JSON"`, `"[1]"`, `5`} {
		body := strings.Replace(string(history), `"arguments":`, `"arguments":`+arguments+`,"x":`, 1)
		if status, _, text := s.post(t, "/v1/chat/completions", `{"messages": `+body+`}`); status != 400 || !strings.Contains(text, "arguments of tool_calls[0]") {
			t.Errorf("arguments %s: %d %s", arguments, status, text)
		}
	}
}

func TestTheEndOfAPromptIsCutInWholeCharacters(t *testing.T) {
	for _, prompt := range []string{"", "short", strings.Repeat("é", 5000), "x" + strings.Repeat("é", 5000), strings.Repeat("x", 4097)} {
		if end := endOf(prompt); !strings.HasSuffix(prompt, end) || !utf8.ValidString(end) || len(end) < min(len(prompt), 4093) || len(end) > 4096 {
			t.Errorf("%d bytes of %d", len(end), len(prompt))
		}
	}
}

// dataOf returns the data of the events of a stream, without [DONE].
func dataOf(t *testing.T, text string) (data []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), "data: "); found && rest != "[DONE]" {
			data = append(data, rest)
		}
	}
	if len(data) == 0 {
		t.Fatalf("no events in %s", text)
	}
	return data
}

// namedEvents returns the names of the events of a stream, one after another of the same name once, and checks that each is the type of
// its data.
func namedEvents(t *testing.T, text string) (events []string) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	name := ""
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), "event: "); found {
			name = rest
		}
		if rest, found := strings.CutPrefix(lines.Text(), "data: "); found {
			var data struct{ Type string }
			if json.Unmarshal([]byte(rest), &data) != nil || data.Type != name {
				t.Errorf("the event %s has %s", name, rest)
			}
			if len(events) == 0 || events[len(events)-1] != name {
				events = append(events, name)
			}
		}
	}
	return events
}

func TestMessagesAreAnsweredInBlocks(t *testing.T) {
	s := start(t, demoConfig(), settings{apiKeys: []string{"secret"}}, time.Second)
	key := map[string]string{"x-api-key": "secret", "anthropic-version": "2023-06-01"}
	post := func(path, body string) (int, string) { return s.ask(t, "POST", path, body, key) }
	status, text := post("/v1/messages", `{"model": "demo", "max_tokens": 64, "temperature": 0, "messages": [{"role": "user", "content": [{"type": "text", "text": "list all prime numbers within 10", "cache_control": {"type": "ephemeral"}}]}],
		"system": [{"type": "text", "text": "be brief"}], "metadata": {"user_id": "x"}, "stop_sequences": ["zzz", ", 5"]}`)
	var message struct {
		ID, Type, Role, Model string
		Content               []struct{ Type, Text string }
		StopReason            string `json:"stop_reason"`
		StopSequence          string `json:"stop_sequence"`
		Usage                 map[string]int
	}
	if err := json.Unmarshal([]byte(text), &message); err != nil || status != 200 || message.Type != "message" || message.Role != "assistant" ||
		len(message.Content) != 1 || message.Content[0].Text != "Prime numbers within 10: 2, 3" || message.StopReason != "stop_sequence" ||
		message.StopSequence != ", 5" || message.Usage["input_tokens"]+message.Usage["cache_read_input_tokens"] == 0 {
		t.Errorf("%d %s", status, text)
	}
	status, text = post("/v1/messages", `{"max_tokens": 64, "temperature": 0, "stop_sequences": ["zzz"], "messages": [{"role": "user", "content": "list all prime numbers within 10"}]}`)
	if status != 200 || !strings.Contains(text, `"stop_reason":"end_turn"`) || !strings.Contains(text, primes) {
		t.Errorf("%d %s", status, text)
	}
	status, text = post("/v1/messages", `{"max_tokens": 2, "messages": [{"role": "user", "content": "list all prime numbers within 10"}]}`)
	if status != 200 || !strings.Contains(text, `"stop_reason":"max_tokens"`) {
		t.Errorf("%d %s", status, text)
	}
	status, text = post("/v1/messages", `{"max_tokens": 64, "temperature": 0, "stream": true, "messages": [{"role": "user", "content": "list all prime numbers within 10"}]}`)
	if events := namedEvents(t, text); status != 200 || !slices.Equal(events, []string{"message_start", "ping", "content_block_start", "content_block_delta",
		"content_block_stop", "message_delta", "message_stop"}) {
		t.Errorf("%d %q", status, events)
	}
	var counted struct {
		InputTokens int `json:"input_tokens"`
	}
	_, text = post("/v1/messages/count_tokens", `{"model": "demo", "messages": [{"role": "user", "content": "list all prime numbers within 10"}], "tools": [{"name": "f", "input_schema": {"type": "object"}}]}`)
	if err := json.Unmarshal([]byte(text), &counted); err != nil || counted.InputTokens < 50 {
		t.Errorf("count_tokens: %s", text)
	}
	const one = `"messages": [{"role": "user", "content": "x"}]`
	for body, says := range map[string]string{
		`{` + one + `}`:                                 "max_tokens is missing",
		`{"max_tokens": 1}`:                             "messages is empty",
		`{"max_tokens": 1, "messages": 1}`:              "messages",
		`{"max_tokens": 1, "mesages": [], ` + one + `}`: "mesages is not a field",
		`{"max_tokens": 1, "tools": [{"type": "web_search_20250305", "name": "web_search"}], ` + one + `}`:                                            "web_search_20250305",
		`{"max_tokens": 1, "tools": [{"name": "f"}], ` + one + `}`:                                                                                    "has no input_schema",
		`{"max_tokens": 1, "tool_choice": {"type": "any"}, ` + one + `}`:                                                                              "there are no tools",
		`{"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}`:                                             `messages[0].content[0] has the type "image"`,
		`{"max_tokens": 1, "messages": [{"role": "tool", "content": "x"}]}`:                                                                           `messages[0] has the role "tool"`,
		`{"max_tokens": 1, "thinking": {"type": "some"}, ` + one + `}`:                                                                                "thinking.type",
		`{"max_tokens": 1, "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}, ` + one + `}`:                                     "clear_tool_uses_20250919",
		`{"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}]}]}`: `the type "image"`,
	} {
		status, text := post("/v1/messages", body)
		var failed struct {
			Type      string
			RequestID string `json:"request_id"`
			Error     struct{ Type, Message string }
		}
		if err := json.Unmarshal([]byte(text), &failed); err != nil || status != 400 || failed.Type != "error" || failed.Error.Type != "invalid_request_error" ||
			!strings.Contains(failed.Error.Message, says) || failed.RequestID == "" {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text := s.ask(t, "POST", "/v1/messages", `{}`, nil); status != 401 || !strings.Contains(text, `"type":"authentication_error"`) {
		t.Errorf("without a key: %d %s", status, text)
	}
	if status, text := post("/v1/messages", `{"model": "claude", "max_tokens": 1, `+one+`}`); status != http.StatusNotFound || !strings.Contains(text, "not_found_error") {
		t.Errorf("another model: %d %s", status, text)
	}
}

// What Messages and Responses say of calls and reasoning becomes the same chat.
func TestAConversationWithToolsIsTheSameInEveryAPI(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	model := s.catalog.models[0].open
	chat := &conversation{}
	body := `{"messages": [{"role": "system", "content": "You trade."}, {"role": "user", "content": "a sword, please"},
		{"role": "assistant", "content": "Here.", "reasoning_content": "A sword.", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "give_item", "arguments": "{\"item\": \"iron sword\"}"}}]},
		{"role": "tool", "tool_call_id": "a", "content": "given"}, {"role": "user", "content": "thanks"}],
		"tools": [{"type": "function", "function": {"name": "give_item", "parameters": {"type": "object"}}}]}`
	if err := json.Unmarshal([]byte(body), chat); err != nil {
		t.Fatal(err)
	}
	wanted, err := model.chatPrompt(chat)
	if err != nil {
		t.Fatal(err)
	}
	_, messages, err := s.messagesChat([]byte(`{"system": "You trade.", "messages": [{"role": "user", "content": "a sword, please"},
		{"role": "assistant", "content": [{"type": "thinking", "thinking": "A sword.", "signature": ""}, {"type": "text", "text": "Here."}, {"type": "tool_use", "id": "a", "name": "give_item", "input": {"item": "iron sword"}}]},
		{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "given"}]}, {"type": "text", "text": "thanks"}]}],
		"tools": [{"name": "give_item", "input_schema": {"type": "object"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := model.chatPrompt(&messages.conversation); err != nil || got != wanted {
		t.Errorf("messages: %v\n%s\n%s", err, got, wanted)
	}
	var request responsesRequest
	if err := s.understandFields([]byte(`{"instructions": "You trade.", "input": [{"role": "user", "content": "a sword, please"},
		{"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "A sword."}]},
		{"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [{"type": "output_text", "text": "Here.", "annotations": []}]},
		{"type": "function_call", "id": "f", "call_id": "a", "name": "give_item", "arguments": "{\"item\": \"iron sword\"}"},
		{"type": "function_call_output", "call_id": "a", "output": "given"},
		{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "thanks"}]}],
		"tools": [{"type": "function", "name": "give_item", "parameters": {"type": "object"}}]}`), &request); err != nil {
		t.Fatal(err)
	}
	responses, err := request.chat()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := model.chatPrompt(&responses.conversation); err != nil || got != wanted {
		t.Errorf("responses: %v\n%s\n%s", err, got, wanted)
	}
}

func TestResponsesAreAnsweredInItems(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	type item struct {
		Type, ID, Role, Status, Name, Arguments string
		CallID                                  string `json:"call_id"`
		Content                                 []struct{ Type, Text string }
	}
	type response struct {
		ID, Object, Status string
		Output             []item
		Usage              struct {
			InputTokens  int `json:"input_tokens"`
			OutputTokens int `json:"output_tokens"`
		}
		IncompleteDetails *struct{ Reason string } `json:"incomplete_details"`
	}
	decoded := func(text string) (made response) {
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			t.Fatal(text)
		}
		return made
	}
	status, _, text := s.post(t, "/v1/responses", `{"model": "demo", "input": "list all prime numbers within 10", "temperature": 0, "store": false, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "x"}`)
	whole := decoded(text)
	if status != 200 || whole.Object != "response" || whole.Status != "completed" || len(whole.Output) != 1 || whole.Output[0].Type != "message" ||
		whole.Output[0].Content[0].Type != "output_text" || whole.Output[0].Content[0].Text != primes || whole.Usage.InputTokens == 0 || whole.Usage.OutputTokens == 0 {
		t.Errorf("%d %s", status, text)
	}
	_, _, text = s.post(t, "/v1/responses", `{"input": "list all prime numbers within 10", "max_output_tokens": 3}`)
	if cut := decoded(text); cut.Status != "incomplete" || cut.IncompleteDetails == nil || cut.IncompleteDetails.Reason != "max_output_tokens" || cut.Output[0].Status != "incomplete" {
		t.Errorf("%s", text)
	}
	status, _, text = s.post(t, "/v1/responses", `{"input": "list all prime numbers within 10", "temperature": 0, "stream": true}`)
	if events := namedEvents(t, text); status != 200 || !slices.Equal(events, []string{"response.created", "response.in_progress", "response.output_item.added",
		"response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
		"response.completed"}) {
		t.Errorf("%d %q", status, events)
	}
	for i, event := range dataOf(t, text) {
		var numbered struct {
			Number int `json:"sequence_number"`
		}
		if err := json.Unmarshal([]byte(event), &numbered); err != nil || numbered.Number != i {
			t.Errorf("event %d is %s", i, event)
		}
	}
	const format = `"text": {"format": {"type": "json_schema", "name": "side", "schema": {"type": "object", "properties": {"a": {"enum": ["left"]}}, "required": ["a"], "additionalProperties": false}}}`
	if _, _, text = s.post(t, "/v1/responses", `{"input": "x", `+format+`}`); !sameJSON(decoded(text).Output[0].Content[0].Text, `{"a": "left"}`) {
		t.Errorf("a format: %s", text)
	}
	for fields, says := range map[string]string{
		`"input": "x", "previous_response_id": "resp_1"`:                                      "previous_response_id is not a field",
		`"input": "x", "store": true`:                                                         "keeps no answers",
		`"input": "x", "background": true`:                                                    "background",
		`"input": "x", "truncation": "auto"`:                                                  "truncation",
		`"input": "x", "include": ["file_search_call.results"]`:                               "file_search_call.results",
		`"input": "x", "tools": [{"type": "web_search"}]`:                                     `tools[0] has the type "web_search"`,
		`"input": "x", "text": {"verbosity": "low"}`:                                          "text.verbosity",
		`"input": [{"type": "item_reference", "id": "x"}]`:                                    `input[0] has the type "item_reference"`,
		`"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]`: `input[0].content has a part of the type "input_image"`,
		`"input": [{"role": "owner", "content": "x"}]`:                                        `the role "owner"`,
		`"input": []`:         "input is empty",
		`"instructions": "x"`: "input is missing",
	} {
		if status, _, text := s.post(t, "/v1/responses", `{`+fields+`}`); status != 400 || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), says) {
			t.Errorf("%s: %d %s", fields, status, text)
		}
	}
}

// Tools that must be called are, after the reasoning, which is left out here, by a model that calls none by itself, with arguments of their schema.
func TestCallsThatAreRequiredAreMade(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	const trade = `"tools": [
		{"type": "function", "function": {"name": "give_item", "parameters": {"type": "object", "properties": {"item": {"enum": ["iron sword", "rye bread"]}}, "required": ["item"], "additionalProperties": false}}},
		{"type": "function", "function": {"name": "take_gold", "parameters": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["count"], "additionalProperties": false}}}]`
	check := func(call chatCall) {
		t.Helper()
		var arguments struct {
			Item  string
			Count int
		}
		err := json.Unmarshal([]byte(call.Function.Arguments), &arguments)
		isGift := call.Function.Name == "give_item" && (arguments.Item == "iron sword" || arguments.Item == "rye bread")
		isPrice := call.Function.Name == "take_gold" && arguments.Count >= 1 && arguments.Count <= 9
		if err != nil || !isGift && !isPrice {
			t.Errorf("%+v", call)
		}
	}
	for _, fields := range []string{
		`"tool_choice": "required"`,
		`"tool_choice": "required", "parallel_tool_calls": false`,
		`"tool_choice": {"type": "function", "function": {"name": "take_gold"}}`,
	} {
		for seed := range 4 {
			body := fmt.Sprintf(`{%s, %s, %s, "seed": %d, "max_tokens": 400, "chat_template_kwargs": {"enable_thinking": false}`, forAnItem, trade, fields, seed)
			status, _, text := s.post(t, "/v1/chat/completions", body+`}`)
			var whole chatAnswer
			if err := json.Unmarshal([]byte(text), &whole); err != nil || status != 200 {
				t.Fatalf("%s: %d %s", fields, status, text)
			}
			calls := whole.Choices[0].Message.ToolCalls
			if whole.Choices[0].FinishReason == "length" {
				continue // it went on to call
			}
			if whole.Choices[0].FinishReason != "tool_calls" || len(calls) == 0 || strings.Contains(fields, "false") && len(calls) != 1 ||
				strings.Contains(fields, "take_gold") && calls[0].Function.Name != "take_gold" {
				t.Errorf("%s: %s", fields, text)
			}
			for _, call := range calls {
				check(call)
			}
			// The stream of the same answer has the same calls.
			_, _, text = s.post(t, "/v1/chat/completions", body+`, "stream": true}`)
			var streamed []chatCall
			for _, event := range dataOf(t, text) {
				var chunk chatAnswer
				if err := json.Unmarshal([]byte(event), &chunk); err != nil {
					t.Fatal(event)
				}
				for _, delta := range chunk.Choices[0].Delta.ToolCalls {
					if delta.Index == len(streamed) {
						streamed = append(streamed, chatCall{})
					}
					streamed[delta.Index].Function.Name += delta.Function.Name
					streamed[delta.Index].Function.Arguments += delta.Function.Arguments
				}
			}
			for i, call := range calls {
				if len(streamed) != len(calls) || streamed[i].Function != call.Function {
					t.Errorf("%s: %+v streamed, %+v whole", fields, streamed, calls)
					break
				}
			}
		}
	}
	// Messages and Responses mean the same.
	_, _, text := s.post(t, "/v1/messages", `{"max_tokens": 400, "thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": "a sword, please"}], "tool_choice": {"type": "tool", "name": "take_gold", "disable_parallel_tool_use": true},
		"tools": [{"name": "take_gold", "input_schema": {"type": "object", "properties": {"count": {"const": 3}}, "required": ["count"], "additionalProperties": false}}]}`)
	if !strings.Contains(text, `"type":"tool_use"`) || !strings.Contains(text, `"input":{"count":`) || !strings.Contains(text, `"stop_reason":"tool_use"`) {
		t.Errorf("messages: %s", text)
	}
	_, _, text = s.post(t, "/v1/responses", `{"max_output_tokens": 400, "reasoning": {"effort": "none"}, "input": "a sword, please", "tool_choice": {"type": "function", "name": "take_gold"}, "parallel_tool_calls": false, "stream": true,
		"tools": [{"type": "function", "name": "take_gold", "parameters": {"type": "object", "properties": {"count": {"const": 3}}, "required": ["count"], "additionalProperties": false}}]}`)
	if events := namedEvents(t, text); !slices.Contains(events, "response.function_call_arguments.delta") || !slices.Contains(events, "response.function_call_arguments.done") ||
		events[len(events)-1] != "response.completed" {
		t.Errorf("responses: %q", events)
	}
}

// The demo model, with a template that opens its reasoning, would think for long.
func TestReasoningEndsAtItsLimit(t *testing.T) {
	config := modelWithTemplate(t, `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
<think>
{% if false %}</think>{% endif %}`)
	s := start(t, config, settings{}, time.Second)
	type answer struct {
		chatAnswer
		Usage usage
	}
	for limit, most := range map[string]int{"0": 0, "1": 1, "7": 7} {
		status, _, text := s.post(t, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "list all prime numbers within 10"}], "max_tokens": 60, "ignore_eos": true, "max_thinking_tokens": `+limit+`}`)
		var told answer
		if err := json.Unmarshal([]byte(text), &told); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", limit, status, text)
		}
		counted := told.Usage.CompletionTokensDetails.ReasoningTokens
		if counted > most || (told.Choices[0].Message.ReasoningContent != "") != (counted > 0) || told.Choices[0].Message.Content == nil || *told.Choices[0].Message.Content == "" {
			t.Errorf("%s: %s", limit, text)
		}
	}
	status, text := s.ask(t, "POST", "/v1/messages", `{"max_tokens": 60, "thinking": {"type": "enabled", "budget_tokens": 3}, "messages": [{"role": "user", "content": "hello"}]}`, nil)
	if status != 200 || !strings.Contains(text, `"type":"thinking"`) && !strings.Contains(text, `"type":"text"`) {
		t.Errorf("messages: %d %s", status, text)
	}
	for body, says := range map[string]string{`"max_thinking_tokens": -1`: "from 0 to", `"max_thinking_tokens": 1, "guided_regex": "a"`: "max_thinking_tokens"} {
		if status, _, text := s.post(t, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "hello"}], `+body+`}`); status != 400 || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// Clients send schemas that no grammar holds. Unless a tool is strict, its arguments are then any object.
func TestASchemaThatCannotBeHeldIsRefusedOnlyIfItIsStrict(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	const body = `{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "tools": [{"type": "function", "function": {"name": "f",%s "parameters": {"type": "object", "not": {"required": ["a"]}}}}]}`
	if status, _, text := s.post(t, "/v1/chat/completions", fmt.Sprintf(body, "")); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if status, _, text := s.post(t, "/v1/chat/completions", fmt.Sprintf(body, ` "strict": true,`)); status != 400 || !strings.Contains(text, "cannot be held") || !strings.Contains(text, `"param":"tools"`) {
		t.Errorf("strict: %d %s", status, text)
	}
}
