package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// scoringOf is a scoring with a template in a file.
func scoringOf(t *testing.T, tokens []string, template string) (*scoring, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "template")
	if err := os.WriteFile(file, []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	return newScoring(tokens, file)
}

func TestAModelThatGeneratesRanksDocuments(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	made, err := scoringOf(t, []string{"a", "b"}, "Does this fit {query}? {document}: ")
	if err != nil {
		t.Fatal(err)
	}
	demo := s.catalog.models[0]
	demo.scoring = made
	if demo.open.scoreTokens, err = made.tokensOf(s.engine); err != nil || len(demo.open.scoreTokens) != 2 {
		t.Fatalf("%v %v", demo.open.scoreTokens, err)
	}
	var ranking struct {
		Results []ranked
		Usage   struct {
			Total int `json:"total_tokens"`
		}
	}
	documents := `["an iron sword", {"text": "a loaf of bread"}, "an iron sword"]`
	status, _, body := s.post(t, "/v1/rerank", `{"query": "a weapon", "documents": `+documents+`}`)
	if err := json.Unmarshal([]byte(body), &ranking); status != http.StatusOK || err != nil || len(ranking.Results) != 3 || ranking.Usage.Total == 0 {
		t.Fatalf("%d %s %v", status, body, err)
	}
	byIndex := make([]float32, 3)
	for i, one := range ranking.Results {
		byIndex[one.Index] = one.RelevanceScore
		if one.RelevanceScore <= 0 || one.RelevanceScore >= 1 || one.Document["text"] == "" {
			t.Errorf("%+v", one)
		}
		if i > 0 && one.RelevanceScore > ranking.Results[i-1].RelevanceScore {
			t.Errorf("not in descending order: %s", body)
		}
	}
	if byIndex[0] != byIndex[2] || byIndex[0] == byIndex[1] {
		t.Errorf("scores %v", byIndex)
	}

	var scores struct {
		Data []struct {
			Index int
			Score float32
		}
	}
	status, _, body = s.post(t, "/v1/score", `{"text_1": "a weapon", "text_2": ["an iron sword", "a loaf of bread"]}`)
	if err := json.Unmarshal([]byte(body), &scores); status != http.StatusOK || err != nil || len(scores.Data) != 2 {
		t.Fatalf("%d %s %v", status, body, err)
	}
	for i, one := range scores.Data {
		if one.Index != i || one.Score != byIndex[i] {
			t.Errorf("score %d: %+v, and %v as a document", i, one, byIndex[i])
		}
	}
	if status, _, body := s.post(t, "/v1/rerank", `{"query": "a weapon", "documents": []}`); status != http.StatusBadRequest || !strings.Contains(body, "documents") {
		t.Errorf("no documents: %d %s", status, body)
	}
}

func TestAModelWithoutScoresRanksNothing(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	status, _, body := s.post(t, "/v1/rerank", `{"query": "a weapon", "documents": ["an iron sword"]}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "-score-tokens") {
		t.Errorf("%d %s", status, body)
	}
}

func TestTokensOfScoresAreChecked(t *testing.T) {
	for _, c := range []struct {
		tokens   []string
		template string
		wanted   string
	}{
		{[]string{"yes"}, "{query} {document}", "at least two tokens"},
		{nil, "{query} {document}", "need each other"},
		{[]string{"yes", "no"}, "{query}", "has no {document}"},
		{[]string{"yes", "no"}, "{document}", "has no {query}"},
	} {
		if _, err := scoringOf(t, c.tokens, c.template); err == nil || !strings.Contains(err.Error(), c.wanted) {
			t.Errorf("%v, %q: %v", c.tokens, c.template, err)
		}
	}
	engine := start(t, demoConfig(), settings{}, time.Second).engine
	made, err := scoringOf(t, []string{"a", "several words"}, "{query} {document}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.tokensOf(engine); err == nil || !strings.Contains(err.Error(), "but must be one") {
		t.Errorf("%v", err)
	}
}
