package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// Every field that an endpoint knows is in its section of the manual, and every field of a section is known.
func TestTheManualHasEveryField(t *testing.T) {
	text, err := os.ReadFile("../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	var detokenize = struct {
		Model  string   `json:"model"`
		Tokens []uint32 `json:"tokens"`
	}{}
	for _, c := range []struct {
		headings string
		of       []any
	}{
		{"Chat and completions,Chat alone", []any{chatRequest{}}},
		{"Chat and completions,Completions alone", []any{completionRequest{}}},
		{"Responses", []any{responsesRequest{}}},
		{"Messages", []any{messagesRequest{}}},
		{"Embeddings", []any{embeddingRequest{}}},
		{"Tokens", []any{tokenizeRequest{}, detokenize}},
	} {
		told := map[string]bool{}
		for heading := range strings.SplitSeq(c.headings, ",") {
			_, section, found := strings.Cut(string(text), "\n### "+heading+"\n")
			if !found {
				t.Fatalf("no section %s", heading)
			}
			section, _, _ = strings.Cut(section, "\n#")
			for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(section, -1) {
				for _, name := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(row[1], -1) {
					name, _, _ := strings.Cut(name[1], ".")
					told[name] = true
				}
			}
		}
		known := map[string]reflect.Type{}
		for _, one := range c.of {
			knownFields(reflect.TypeOf(one), known)
		}
		for name := range known {
			if !told[name] {
				t.Errorf("%s: the manual does not have %s", c.headings, name)
			}
		}
		for name := range told {
			if known[name] == nil {
				t.Errorf("%s: the manual has %s, which nothing decodes", c.headings, name)
			}
		}
	}
}

// The file of models of the manual is one.
func TestTheManualsFileOfModelsIsRead(t *testing.T) {
	text, err := os.ReadFile("../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(string(text), "<!-- file: models.toml -->\n```text\n")
	file, _, found := strings.Cut(file, "```")
	if !found {
		t.Fatal("there is none")
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"models.toml": file, "keys": "secret\n"} {
		if err := os.WriteFile(folder+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var told strings.Builder
	command, err := parse([]string{"-config", folder + "/models.toml"}, &told)
	if err != nil {
		t.Fatal(told.String())
	}
	if command.addr != "0.0.0.0:8000" || command.memory != 40<<30 || len(command.models) != 2 || !command.models[0].preload || command.models[1].preload ||
		command.models[0].engines[0].MaxNumSeqs != 64 || command.models[0].engines[0].KVCacheBytes != defaultKVCacheBytes {
		t.Errorf("%+v", command)
	}
}
