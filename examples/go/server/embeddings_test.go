package main

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"libnanovllm/bindings/go"
)

func TestTheOfficialClientGetsEmbeddings(t *testing.T) {
	for _, pooling := range []nanovllm.Pooling{nanovllm.PoolingLast, nanovllm.PoolingMean} {
		s := start(t, demoConfig(), settings{}, time.Second)
		s.catalog.models[0].pooling = pooling
		api := client(s, "none")
		inputs := []string{"an iron sword", "a loaf of bread", "an iron sword"}
		answer, err := api.Embeddings.New(context.Background(), openai.EmbeddingNewParams{
			Model: "demo",
			Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: inputs},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Data) != 3 || answer.Usage.PromptTokens == 0 || answer.Usage.TotalTokens != answer.Usage.PromptTokens {
			t.Fatalf("%+v", answer)
		}
		for i, one := range answer.Data {
			var square float64
			for _, value := range one.Embedding {
				square += value * value
			}
			if int(one.Index) != i || len(one.Embedding) != 256 || math.Abs(square-1) > 1e-5 {
				t.Errorf("embedding %d: index %d, %d numbers, length² %v", i, one.Index, len(one.Embedding), square)
			}
		}
		if !slices.Equal(answer.Data[0].Embedding, answer.Data[2].Embedding) {
			t.Error("equal texts have different embeddings")
		}
		if slices.Equal(answer.Data[0].Embedding, answer.Data[1].Embedding) {
			t.Error("different texts have equal embeddings")
		}
		if stats, err := s.engine.Stats(); err != nil || stats.GeneratedTokens != 0 || stats.Running != 0 {
			t.Errorf("%+v %v", stats, err)
		}
	}
}
