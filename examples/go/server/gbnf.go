package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// gbnf answers: what is a grammar of llama.cpp in the language of the library, which is Lark?
//
// A grammar of GBNF begins with the rule root. A rule is NAME ::= ALTERNATIVES, and goes on in the next line after | or inside of
// parentheses. Its elements are "text", [a-z], [^a-z], ., a rule, and (…), each with *, +, ?, {n}, {n,} or {n,m}.
type gbnf struct {
	field string
	text  string
	at    int
	made  strings.Builder
	depth int
}

// isGBNF tells GBNF from Lark, whose rules have a single colon.
func isGBNF(text string) bool { return strings.Contains(text, "::=") }

// larkOf translates a grammar. What the rules mean is left to the library.
func larkOf(field, text string) (string, error) {
	g := &gbnf{field: field, text: text}
	hasRoot := false
	for {
		g.skip(true)
		if g.at == len(g.text) {
			break
		}
		name := g.name()
		if name == "" {
			return "", g.wrong("a rule was expected")
		}
		hasRoot = hasRoot || name == "root"
		g.skip(false)
		if !g.take("::=") {
			return "", g.wrong("::= was expected")
		}
		g.made.WriteString(larkName(name) + ":")
		g.skip(true)
		if err := g.alternatives(); err != nil {
			return "", err
		}
		g.skip(false)
		if g.at < len(g.text) && !g.take("\n") {
			return "", g.wrong("the end of a rule was expected")
		}
		g.made.WriteString("\n")
	}
	if !hasRoot {
		return "", badRequest(field, "%s has no rule root", field)
	}
	return g.made.String(), nil
}

// larkName is the name of a rule: start for root, else one that no keyword of Lark has.
func larkName(name string) string {
	if name == "root" {
		return "start"
	}
	// Names that differ in case, or by - and _, stay different.
	var made strings.Builder
	made.WriteString("r_")
	for _, character := range []byte(name) {
		switch {
		case character == '-':
			made.WriteString("_d")
		case character == '_':
			made.WriteString("_u")
		case character >= 'A' && character <= 'Z':
			made.WriteString("_c" + string(character-'A'+'a'))
		default:
			made.WriteByte(character)
		}
	}
	return made.String()
}

func (g *gbnf) wrong(what string) error {
	line := 1 + strings.Count(g.text[:g.at], "\n")
	rest, _, _ := strings.Cut(g.text[g.at:], "\n")
	return badRequest(g.field, "%s is no grammar of GBNF: line %d: "+what+" at %q", g.field, line, cut(rest))
}

// skip skips blanks and comments; newlines too if the rule goes on.
func (g *gbnf) skip(newlines bool) {
	for g.at < len(g.text) {
		switch character := g.text[g.at]; {
		case character == '#':
			end := strings.IndexByte(g.text[g.at:], '\n')
			if end < 0 {
				end = len(g.text) - g.at
			}
			g.at += end
		case character == ' ' || character == '\t' || character == '\r' || character == '\n' && newlines:
			g.at++
		default:
			return
		}
	}
}

func (g *gbnf) take(token string) bool {
	if !strings.HasPrefix(g.text[g.at:], token) {
		return false
	}
	g.at += len(token)
	return true
}

func (g *gbnf) name() string {
	begin := g.at
	for g.at < len(g.text) {
		c := g.text[g.at]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			break
		}
		g.at++
	}
	return g.text[begin:g.at]
}

// alternatives translates what stands between | until the end of a rule or a closing parenthesis.
func (g *gbnf) alternatives() error {
	if g.depth++; g.depth > maxDepth {
		return g.wrong(fmt.Sprintf("parentheses are nested more than %d deep", maxDepth))
	}
	defer func() { g.depth-- }()
	for {
		if isEmpty, err := g.sequence(); err != nil {
			return err
		} else if isEmpty {
			g.made.WriteString(` ""`)
		}
		if !g.take("|") {
			return nil
		}
		g.made.WriteString(" |")
		g.skip(true)
	}
}

func (g *gbnf) sequence() (isEmpty bool, err error) {
	isEmpty = true
	for {
		g.skip(g.depth > 1)
		if g.at == len(g.text) {
			return isEmpty, nil
		}
		g.made.WriteByte(' ')
		switch c := g.text[g.at]; {
		case c == '"':
			err = g.literal()
		case c == '[':
			err = g.class()
		case c == '.':
			g.at++
			g.made.WriteString(`/[\s\S]/`)
		case c == '(':
			g.at++
			g.made.WriteByte('(')
			g.skip(true)
			if err = g.alternatives(); err == nil && !g.take(")") {
				err = g.wrong(") was expected")
			}
			g.made.WriteByte(')')
		default:
			name := g.name()
			if name == "" {
				return isEmpty, nil
			}
			g.made.WriteString(larkName(name))
		}
		if err == nil {
			err = g.repetition()
		}
		if err != nil {
			return false, err
		}
		isEmpty = false
	}
}

func (g *gbnf) repetition() error {
	g.skip(g.depth > 1)
	if g.at == len(g.text) {
		return nil
	}
	switch c := g.text[g.at]; c {
	case '*', '+', '?':
		g.at++
		g.made.WriteByte(c)
	case '{':
		end := strings.IndexByte(g.text[g.at:], '}')
		if end < 0 {
			return g.wrong("} is missing")
		}
		inside := strings.ReplaceAll(g.text[g.at+1:g.at+end], " ", "")
		if strings.Trim(inside, "0123456789,") != "" || strings.Count(inside, ",") > 1 || strings.HasPrefix(inside, ",") || inside == "" {
			return g.wrong("{n}, {n,} or {n,m} was expected")
		}
		g.at += end + 1
		g.made.WriteString("{" + inside + "}")
	}
	return nil
}

// literal translates a text in quotes.
func (g *gbnf) literal() error {
	g.at++
	g.made.WriteByte('"')
	for {
		character, isEscaped, err := g.character('"')
		if err != nil {
			return err
		}
		if character == '"' && !isEscaped {
			g.made.WriteByte('"')
			return nil
		}
		switch {
		case character == '"' || character == '\\':
			g.made.WriteString(`\` + string(character))
		case character < ' ' || character == 0x7f:
			fmt.Fprintf(&g.made, `\u%04x`, character)
		default:
			g.made.WriteRune(character)
		}
	}
}

// class translates a class of characters to a regular expression.
func (g *gbnf) class() error {
	g.at++
	g.made.WriteString("/[")
	if g.take("^") {
		g.made.WriteByte('^')
	}
	for isFirst := true; ; isFirst = false {
		character, isEscaped, err := g.character(']')
		if err != nil {
			return err
		}
		switch {
		case character == ']' && !isEscaped:
			g.made.WriteString("]/")
			return nil
		case character == '-' && !isEscaped && !isFirst && !strings.HasPrefix(g.text[g.at:], "]"):
			g.made.WriteByte('-')
		default:
			fmt.Fprintf(&g.made, `\x{%X}`, character)
		}
	}
}

// character reads one character of a literal or a class, which may be an escape.
func (g *gbnf) character(end rune) (character rune, isEscaped bool, err error) {
	if g.at == len(g.text) {
		return 0, false, g.wrong(string(end) + " is missing")
	}
	character, size := utf8.DecodeRuneInString(g.text[g.at:])
	if character != '\\' {
		g.at += size
		return character, false, nil
	}
	if g.at+1 == len(g.text) {
		return 0, false, g.wrong(string(end) + " is missing")
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[g.text[g.at+1]]
	switch c := g.text[g.at+1]; {
	case digits > 0:
		if g.at+2+digits > len(g.text) {
			return 0, false, g.wrong("an escape is too short")
		}
		value, err := strconv.ParseUint(g.text[g.at+2:g.at+2+digits], 16, 32)
		if err != nil || value > utf8.MaxRune {
			return 0, false, g.wrong("an escape is no character")
		}
		g.at += 2 + digits
		return rune(value), true, nil
	case c == 'n' || c == 'r' || c == 't':
		character = map[byte]rune{'n': '\n', 'r': '\r', 't': '\t'}[c]
	case strings.IndexByte(`"\[]-^`, c) >= 0:
		character = rune(c)
	default:
		return 0, false, g.wrong("an escape is unknown")
	}
	g.at += 2
	return character, true, nil
}
