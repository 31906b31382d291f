package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

func TestTheOfficialClientGetsAnAnswerOfItsFormat(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	api := client(s, "none")
	params := primesParams()
	params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: "ware",
			Schema: map[string]any{
				"type": "object", "required": []string{"name", "coins"}, "additionalProperties": false,
				"properties": map[string]any{
					"name":  map[string]any{"enum": []string{"iron sword", "rye bread"}},
					"coins": map[string]any{"type": "integer", "minimum": 1, "maximum": 99},
				},
			},
		},
	}
	answer, err := api.Chat.Completions.New(context.Background(), params)
	if err != nil {
		t.Fatal(err)
	}
	var ware struct {
		Name  string
		Coins int
	}
	if err := json.Unmarshal([]byte(answer.Choices[0].Message.Content), &ware); err != nil || ware.Coins < 1 || ware.Coins > 99 ||
		ware.Name != "iron sword" && ware.Name != "rye bread" {
		t.Errorf("%v: %s", err, answer.RawJSON())
	}

	params = primesParams()
	params.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
	params.MaxTokens = openai.Int(8)
	answer, err = api.Chat.Completions.New(context.Background(), params)
	if err != nil || !strings.HasPrefix(strings.TrimSpace(answer.Choices[0].Message.Content), "{") {
		t.Errorf("an object: %+v %v", answer, err)
	}
}
