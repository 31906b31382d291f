package nanovllm_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"libnanovllm/bindings/go"
)

const shopTools = `[{"type": "function", "function": {"name": "give_item", "description": "Gives an item.",
	"parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}}}]`

func TestAnAnswerIsReadInAnyPieces(t *testing.T) {
	engine := open(t, demoConfig())
	const answer = "Hm.</think>\n\nHere you are.\n<tool_call>\n{\"name\": \"give_item\", \"arguments\": {\"item\": \"élan\"}}\n</tool_call>"
	for _, size := range []int{1, 2, 7, len(answer)} {
		parser, err := engine.NewAnswerParser("<|im_start|>assistant\n<think>\n", shopTools)
		if err != nil {
			t.Fatal(err)
		}
		var events []nanovllm.AnswerEvent
		letters := []rune(answer)
		for len(letters) > 0 {
			n := min(size, len(letters))
			found, err := parser.Feed(string(letters[:n]))
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, found...)
			letters = letters[n:]
		}
		last, err := parser.Finish()
		if err != nil {
			t.Fatal(err)
		}
		texts := map[nanovllm.AnswerEventKind]string{}
		for _, event := range append(events, last...) {
			texts[event.Kind] += event.Text
		}
		wanted := map[nanovllm.AnswerEventKind]string{
			nanovllm.AnswerReasoning:         "Hm.",
			nanovllm.AnswerContent:           "Here you are.",
			nanovllm.AnswerToolCallBegin:     "give_item",
			nanovllm.AnswerToolCallArguments: `{"item":"élan"}`,
			nanovllm.AnswerToolCallEnd:       "",
		}
		if !reflect.DeepEqual(texts, wanted) {
			t.Errorf("pieces of %d: %q", size, texts)
		}
		message, err := parser.Message()
		arguments := json.RawMessage(`{"item":"élan"}`)
		call := nanovllm.ToolCall{Type: "function", Function: nanovllm.ToolCallFunction{Name: "give_item", Arguments: arguments}}
		whole := nanovllm.AnswerMessage{Role: "assistant", Content: "Here you are.", ReasoningContent: "Hm.", ToolCalls: []nanovllm.ToolCall{call}}
		if err != nil || !reflect.DeepEqual(message, whole) {
			t.Errorf("pieces of %d: %+v, %v", size, message, err)
		}
		if _, err := parser.Feed("more"); !errors.Is(err, nanovllm.ErrInvalidArgument) {
			t.Errorf("after Finish: %v", err)
		}
		// The message is one for the chat template.
		if _, err := engine.ApplyChatTemplate([]any{nanovllm.Message{Role: "user", Content: "a sword"}, message}, nil); err != nil {
			t.Error(err)
		}
		parser.Close()
		parser.Close()
		if _, err := parser.Feed("more"); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestBadToolsAreRefused(t *testing.T) {
	engine := open(t, demoConfig())
	for _, tools := range []string{"{}", "[{}]", "[", "[\x00]"} {
		if _, err := engine.NewAnswerParser("", tools); !errors.Is(err, nanovllm.ErrInvalidArgument) {
			t.Errorf("a parser for %q: %v", tools, err)
		}
		if _, err := engine.Add("one", &nanovllm.RequestOptions{Tools: tools}); !errors.Is(err, nanovllm.ErrInvalidArgument) {
			t.Errorf("a request with %q: %v", tools, err)
		}
	}
	named := &nanovllm.RequestOptions{Tools: shopTools, ToolChoice: nanovllm.ToolChoiceNamed, ToolName: "take"}
	if _, err := engine.Add("one", named); !errors.Is(err, nanovllm.ErrInvalidArgument) || !strings.Contains(err.Error(), "tool_name") {
		t.Errorf("a name that no tool has: %v", err)
	}
}

func TestAConversationTellsTheModelOfTools(t *testing.T) {
	engine := open(t, demoConfig())
	messages := []nanovllm.Message{{Role: "user", Content: "a sword, please"}}
	with, err := engine.ApplyChatTemplate(messages, map[string]any{"tools": json.RawMessage(shopTools)})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := engine.Tokenize(with, nanovllm.ParseSpecial)
	if err != nil {
		t.Fatal(err)
	}
	for _, choice := range []nanovllm.ToolChoice{nanovllm.ToolChoiceAuto, nanovllm.ToolChoiceNone} {
		options := &nanovllm.RequestOptions{MaxTokens: 1, Tools: shopTools, ToolChoice: choice}
		outputs, err := engine.GeneratePrompts(context.Background(), []nanovllm.Prompt{{Messages: messages, Options: options}}, nil)
		if err != nil || outputs[0].Err != nil {
			t.Fatal(err, outputs[0].Err)
		}
		if told := outputs[0].PromptTokens == len(ids); told != (choice == nanovllm.ToolChoiceAuto) {
			t.Errorf("choice %d: %d tokens, and %d with the tools", choice, outputs[0].PromptTokens, len(ids))
		}
	}
}
