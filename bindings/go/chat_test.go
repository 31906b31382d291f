package nanovllm_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"libnanovllm/bindings/go"
)

// say returns the answer of a conversation.
func say(t testing.TB, chat *nanovllm.Chat, text string) string {
	t.Helper()
	answer := ""
	for delta, err := range chat.Send(context.Background(), text) {
		if err != nil {
			t.Fatal(err)
		}
		answer += delta.Text
	}
	return answer
}

func TestAChatKeepsItsHistory(t *testing.T) {
	for name, engine := range map[string]*nanovllm.Engine{"beside Run": running(t), "without Run": open(t, demoConfig())} {
		chat := engine.NewChat("you are brief")
		chat.Options = &nanovllm.RequestOptions{MaxTokens: 64}
		first := say(t, chat, "list all prime numbers within 10")
		second := say(t, chat, "and again")
		want := []nanovllm.Message{
			{Role: "system", Content: "you are brief"},
			{Role: "user", Content: "list all prime numbers within 10"},
			{Role: "assistant", Content: first},
			{Role: "user", Content: "and again"},
			{Role: "assistant", Content: second},
		}
		got := chat.Messages()
		if len(got) != len(want) || first == "" || second == "" {
			t.Fatalf("%s: %+v", name, got)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: message %d is %+v, want %+v", name, i, got[i], want[i])
			}
		}
		// The second answer is that of the whole conversation.
		prompt, err := engine.ApplyChatTemplate(want[:4], nil)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := engine.Generate(context.Background(), []string{prompt}, chat.Options)
		if err != nil || alone[0].Text != second {
			t.Errorf("%s: %q, but the conversation's own answer is %q, %v", name, second, alone[0].Text, err)
		}
		if err := chat.Reset(); err != nil || len(chat.Messages()) != 1 || chat.Messages()[0].Role != "system" {
			t.Errorf("%s: after Reset: %+v %v", name, chat.Messages(), err)
		}
		if err := chat.Append(want[1:3]...); err != nil || say(t, chat, "and again") != second {
			t.Errorf("%s: a history that was put back is answered otherwise, %v", name, err)
		}
	}
}

func TestAnAnswerThatIsLeftIsKeptAsFarAsItCame(t *testing.T) {
	engine := running(t)
	chat := engine.NewChat()
	chat.Options = endless()
	heard := ""
	for delta, err := range chat.Send(context.Background(), "hello") {
		if err != nil {
			t.Fatal(err)
		}
		if heard += delta.Text; heard != "" {
			break
		}
	}
	if got := chat.Messages(); len(got) != 2 || got[1].Content != heard {
		t.Errorf("%+v, but heard %q", got, heard)
	}
	waitUntil(t, "the request is cancelled", engine.Finished)
}

func TestAQuestionThatFailsLeavesTheHistoryAsItWas(t *testing.T) {
	engine := open(t, demoConfig())
	chat := engine.NewChat()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	cases := []struct {
		name    string
		ctx     context.Context
		text    string
		options *nanovllm.RequestOptions
		want    error
	}{
		{"too long", context.Background(), strings.Repeat(" prime", 600), nil, nanovllm.ErrContextLength},
		{"two completions", context.Background(), "hello", &nanovllm.RequestOptions{N: 2}, nanovllm.ErrInvalidArgument},
		{"a context that has ended", ended, "hello", nil, context.Canceled},
	}
	for _, c := range cases {
		chat.Options = c.options
		var failed error
		for _, err := range chat.Send(c.ctx, c.text) {
			failed = err
		}
		if !errors.Is(failed, c.want) || len(chat.Messages()) != 0 {
			t.Errorf("%s: %v, history %+v", c.name, failed, chat.Messages())
		}
	}
}

func TestAChatIsNotChangedDuringAnAnswer(t *testing.T) {
	engine := open(t, demoConfig())
	chat := engine.NewChat()
	chat.Options = &nanovllm.RequestOptions{MaxTokens: 4}
	for range chat.Send(context.Background(), "hello") {
		if err := chat.Reset(); !errors.Is(err, nanovllm.ErrBusy) {
			t.Errorf("Reset: %v", err)
		}
		for _, err := range chat.Send(context.Background(), "another") {
			if !errors.Is(err, nanovllm.ErrBusy) {
				t.Errorf("a second question: %v", err)
			}
		}
		// The engine is not: other calls go on between two deltas.
		if _, err := engine.Step(0); err != nil {
			t.Errorf("Step: %v", err)
		}
	}
	_ = engine.Close()
	for _, err := range chat.Send(context.Background(), "hello") {
		if !errors.Is(err, nanovllm.ErrClosed) {
			t.Errorf("a closed engine: %v", err)
		}
	}
}

func TestAddChatIsTheTemplateAndAdd(t *testing.T) {
	engine := open(t, demoConfig())
	question := []nanovllm.Message{{Role: "user", Content: "list all prime numbers within 10"}}
	if _, err := engine.AddChat(question, nil, &nanovllm.RequestOptions{MaxTokens: 64}); err != nil {
		t.Fatal(err)
	}
	text := ""
	for !engine.Finished() {
		if _, err := engine.Step(0); err != nil {
			t.Fatal(err)
		}
		for output := range engine.Outputs() {
			text += output.Text
		}
	}
	if text != primes {
		t.Errorf("got %q", text)
	}
	if _, err := engine.AddChat([]nanovllm.Message{}, nil, nil); err == nil {
		t.Error("a conversation without messages was queued")
	}
}
