package main

import (
	"strings"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

func TestGrammarsOfLlamaBecomeLark(t *testing.T) {
	for gbnf, lark := range map[string]string{
		`root ::= "a" | b-c*` + "\n" + `b-c ::= [a-z0-9-] [^"\\\x7F\x00-\x1F]+ .`: `start: "a" | r_b_dc*` + "\n" +
			`r_b_dc: /[\x{61}-\x{7A}\x{30}-\x{39}\x{2D}]/ /[^\x{22}\x{5C}\x{7F}\x{0}-\x{1F}]/+ /[\s\S]/` + "\n",
		"# a comment\nroot ::= (\n  \"x\" # more\n  | \"\\n\\\"\"\n){2,3}\n\nws ::= | \" \" ws": "start: ( \"x\" | \"\\u000a\\\"\" ){2,3}\nr_ws: \"\" | \" \" r_ws\n",
		"root ::=\n  A_b |\n  \"é\"": "start: r__ca_ub | \"é\"\n",
	} {
		made, err := larkOf("grammar", gbnf)
		squeezed := strings.Join(strings.Fields(strings.ReplaceAll(made, "\n", " ; ")), " ")
		wanted := strings.Join(strings.Fields(strings.ReplaceAll(lark, "\n", " ; ")), " ")
		if err != nil || squeezed != wanted {
			t.Errorf("%s: %v\n%s\n%s", gbnf, err, squeezed, wanted)
		}
	}
	for _, bad := range []string{`a ::= "x"`, `root ::= "x`, `root ::= [a`, `root ::= ("x"`, `root ::= "x")`, `root ::= "\q"`, `root ::= "x"{a}`,
		`root ::= "x"{1`, `root "x" ::= `, `::=`, `root ::= "\x1"`, `root ::= "\U00110000"`, "root ::= " + strings.Repeat("(", 1000)} {
		if made, err := larkOf("grammar", bad); err == nil || len(err.Error()) > 300 {
			t.Errorf("%.100s: %v %s", bad, err, made)
		}
	}
}

// The grammar for JSON that llama.cpp ships, in whose language the tests below answer.
const jsonGBNF = `root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
`

func TestTheLibraryTakesTheGrammarForJSON(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	lark, err := larkOf("grammar", jsonGBNF)
	if err != nil {
		t.Fatal(err)
	}
	options := &nanovllm.RequestOptions{StructureKind: nanovllm.StructureLark, Structure: lark, MaxTokens: 8}
	if _, err := s.engine.Add("x", options); err != nil {
		t.Errorf("%v: %s", err, lark)
	}
}

func FuzzGBNF(f *testing.F) {
	f.Add(jsonGBNF)
	f.Fuzz(func(t *testing.T, text string) {
		if made, err := larkOf("grammar", text); err == nil && len(made) > 64*len(text)+64 {
			t.Errorf("%d bytes become %d", len(text), len(made))
		}
	})
}
