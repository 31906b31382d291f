package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

func client(s *service, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func primesParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:       "demo",
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage("list all prime numbers within 10")},
		Temperature: openai.Float(0),
		MaxTokens:   openai.Int(64),
	}
}

func TestTheOfficialClientGetsAnAnswer(t *testing.T) {
	s := start(t, demoConfig(), settings{apiKeys: []string{"secret"}}, time.Second)
	api := client(s, "secret")
	answer, err := api.Chat.Completions.New(context.Background(), primesParams())
	if err != nil {
		t.Fatal(err)
	}
	if answer.Choices[0].Message.Content != primes || answer.Choices[0].FinishReason != "stop" {
		t.Errorf("%s", answer.RawJSON())
	}
	u := answer.Usage
	if u.PromptTokens == 0 || u.CompletionTokens == 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
		t.Errorf("usage: %+v", u)
	}
	several := primesParams()
	several.N = openai.Int(2)
	several.Stop = openai.ChatCompletionNewParamsStopUnion{OfString: openai.String(", 5")}
	answer, err = api.Chat.Completions.New(context.Background(), several)
	if err != nil || len(answer.Choices) != 2 || answer.Choices[1].Message.Content != "Prime numbers within 10: 2, 3" {
		t.Errorf("two answers with a stop string: %+v %v", answer, err)
	}
	completion, err := api.Completions.New(context.Background(), openai.CompletionNewParams{
		Model:  "demo",
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"one", "two", "three"}},
	})
	if err != nil || len(completion.Choices) != 3 || completion.Choices[2].Index != 2 || completion.Usage.CompletionTokens > 48 {
		t.Errorf("%+v %v", completion, err)
	}
	models, err := api.Models.List(context.Background())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "demo" {
		t.Errorf("%+v %v", models, err)
	}
	var refused *openai.Error
	wrong := client(s, "wrong")
	if _, err := wrong.Models.List(context.Background()); !errors.As(err, &refused) || refused.Code != "invalid_api_key" {
		t.Errorf("a wrong key: %v", err)
	}
	if _, err := api.Models.Get(context.Background(), "other"); !errors.As(err, &refused) || refused.StatusCode != 404 {
		t.Errorf("a model that is not there: %v", err)
	}
}

func TestTheOfficialClientStreams(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	api := client(s, "none")
	params := primesParams()
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := api.Chat.Completions.NewStreaming(context.Background(), params)
	var whole openai.ChatCompletionAccumulator
	chunks := 0
	for stream.Next() {
		if !whole.AddChunk(stream.Current()) {
			t.Fatalf("chunk %s does not fit", stream.Current().RawJSON())
		}
		chunks++
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if whole.Choices[0].Message.Content != primes || whole.Choices[0].Message.Role != "assistant" ||
		whole.Choices[0].FinishReason != "stop" || whole.Usage.CompletionTokens == 0 || chunks < 3 {
		t.Errorf("%d chunks, %+v", chunks, whole.ChatCompletion)
	}
}

func TestTheOfficialClientGetsResponses(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	api := client(s, "none")
	params := responses.ResponseNewParams{
		Model:       "demo",
		Temperature: openai.Float(0),
		Input:       responses.ResponseNewParamsInputUnion{OfString: openai.String("list all prime numbers within 10")},
	}
	answer, err := api.Responses.New(context.Background(), params)
	if err != nil || answer.OutputText() != primes || answer.Status != "completed" || answer.Usage.TotalTokens == 0 {
		t.Errorf("%+v %v", answer, err)
	}
	stream := api.Responses.NewStreaming(context.Background(), params)
	text, last := "", ""
	for stream.Next() {
		event := stream.Current()
		if last = event.Type; event.Type == "response.output_text.delta" {
			text += event.Delta
		}
	}
	if err := stream.Err(); err != nil || text != primes || last != "response.completed" {
		t.Errorf("%q %q %v", text, last, err)
	}
}

func TestTheOfficialClientCallsTools(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	api := client(s, "none")
	params := primesParams()
	params.MaxTokens = openai.Int(400)
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "give_item",
		Parameters: shared.FunctionParameters{"type": "object", "additionalProperties": false, "required": []string{"item"},
			"properties": map[string]any{"item": map[string]any{"enum": []string{"iron sword"}}}},
	})}
	params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	params.ParallelToolCalls = openai.Bool(false)
	params.SetExtraFields(map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": false}})
	answer, err := api.Chat.Completions.New(context.Background(), params)
	if err != nil || len(answer.Choices[0].Message.ToolCalls) != 1 || !sameJSON(answer.Choices[0].Message.ToolCalls[0].Function.Arguments, `{"item": "iron sword"}`) {
		t.Errorf("%+v %v", answer, err)
	}
	stream := api.Chat.Completions.NewStreaming(context.Background(), params)
	var whole openai.ChatCompletionAccumulator
	for stream.Next() {
		whole.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil || len(whole.Choices[0].Message.ToolCalls) != 1 || whole.Choices[0].FinishReason != "tool_calls" ||
		!sameJSON(whole.Choices[0].Message.ToolCalls[0].Function.Arguments, `{"item": "iron sword"}`) {
		t.Errorf("%+v %v", whole.ChatCompletion, err)
	}
}

// 256 streams at once: no error, counts that add up, nothing left behind.
func TestManyStreamsAtOnce(t *testing.T) {
	const streams = 256
	s := start(t, demoConfig(), settings{}, time.Second)
	api := client(s, "none")
	before := runtime.NumGoroutine()
	params := primesParams()
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	var completionTokens, promptTokens atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for range streams {
		all.Add(1)
		go func() {
			defer all.Done()
			stream := api.Chat.Completions.NewStreaming(context.Background(), params)
			defer stream.Close()
			var whole openai.ChatCompletionAccumulator
			for stream.Next() {
				whole.AddChunk(stream.Current())
			}
			if err := stream.Err(); err != nil || len(whole.Choices) != 1 || whole.Choices[0].Message.Content != primes {
				t.Errorf("%v: %s", err, whole.RawJSON())
			}
			completionTokens.Add(whole.Usage.CompletionTokens)
			promptTokens.Add(whole.Usage.PromptTokens)
		}()
	}
	all.Wait()
	elapsed := time.Since(begin)
	stats, err := s.engine.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if int64(stats.GeneratedTokens) != completionTokens.Load() ||
		int64(stats.PromptTokens+stats.CachedTokens) != promptTokens.Load() {
		t.Errorf("clients saw %d prompt and %d answer tokens: %+v", promptTokens.Load(), completionTokens.Load(), stats)
	}
	if stats.Running != 0 || stats.Waiting != 0 || stats.KVBlocksUsed != 0 {
		t.Errorf("something is left: %+v", stats)
	}
	if n := s.metric(t, `nanovllm_http_requests_total\{code="200",path="/v1/chat/completions"\}`); n != streams {
		t.Errorf("%d requests counted", n)
	}
	waitUntil(t, "the goroutines have ended", func() bool {
		// Idle connections keep two goroutines each on either side; DefaultTransport keeps few.
		return runtime.NumGoroutine() < before+streams/4
	})
	t.Logf("%d streams in %v: %.0f answer tokens/s in %d steps", streams, elapsed,
		float64(completionTokens.Load())/elapsed.Seconds(), stats.Steps)
}
