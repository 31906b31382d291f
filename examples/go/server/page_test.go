package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// The page as a user sees it. NANOVLLM_SCREENSHOTS=FOLDER keeps pictures.
func TestThePageChatsStopsAndShowsItsSpeed(t *testing.T) {
	b := openBrowser(t)
	s := start(t, demoConfig(), settings{}, 100*time.Millisecond)
	b.call("Page.enable", map[string]any{}, nil)
	b.call("Page.navigate", map[string]any{"url": s.url + "/"}, nil)
	text := func(id string) string { return b.eval(`document.getElementById(%q)?.textContent`, id) }
	waitUntil(t, "the page knows its model", func() bool { return text("model") == "demo" })

	b.say("list all prime numbers within 10")
	waitUntil(t, "the answer has ended", func() bool { return strings.Contains(text("speed"), "tokens/s") })
	if turns := b.turns(); !slices.Equal(turns, []string{"list all prime numbers within 10", primes}) {
		t.Errorf("turns: %q", turns)
	}
	b.eval(`document.querySelector(".again").click()`)
	waitUntil(t, "it is answered again", func() bool {
		return b.eval(`document.getElementById("send").hidden`) == "false" && b.eval(`document.querySelectorAll(".again").length`) == "1"
	})
	if turns := b.turns(); len(turns) != 2 || turns[0] != "list all prime numbers within 10" {
		t.Errorf("turns after Regenerate: %q", turns)
	}
	b.say("introduce yourself")
	waitUntil(t, "the second answer has ended", func() bool {
		return len(b.turns()) == 4 && b.eval(`document.getElementById("send").hidden`) == "false"
	})
	b.picture("chat")

	b.eval(`document.getElementById("reset").click()`)
	if turns := b.turns(); !slices.Equal(turns, []string{""}) {
		t.Errorf("after New chat: %q", turns)
	}

	// An answer without end, and the Stop button.
	b.eval(`{ const stringify = JSON.stringify; JSON.stringify = (value) => stringify({ ...value, ignore_eos: true }); }`)
	b.say("hello")
	waitUntil(t, "the answer has begun", func() bool { return len(b.turns()) == 2 && b.turns()[1] != "" })
	b.eval(`document.getElementById("stop").click()`)
	waitUntil(t, "the page has stopped", func() bool { return text("speed") == "stopped" })
	waitUntil(t, "the engine is idle", s.engine.Finished)
	if stats, err := s.engine.Stats(); err != nil || stats.GeneratedTokens >= 4000 {
		t.Errorf("the engine went on: %+v %v", stats, err)
	}

	// A new chat while an answer is being written.
	isIdle := func() bool { return b.eval(`document.getElementById("send").hidden`) == "false" }
	b.eval(`document.getElementById("reset").click()`)
	b.say("hello")
	waitUntil(t, "the answer has begun", func() bool { return len(b.turns()) == 2 && b.turns()[1] != "" })
	b.eval(`document.getElementById("reset").click()`)
	waitUntil(t, "the page has stopped", isIdle)
	if kept := b.eval(`history.map((message) => message.role).join()`); kept != "" || text("speed") != "" {
		t.Errorf("a new chat begins with messages of %q, and says %q", kept, text("speed"))
	}
}

// open shows the page of a server in a window of a size.
func (b *browser) open(s *service, width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Page.enable", map[string]any{}, nil)
	b.call("Page.navigate", map[string]any{"url": s.url + "/"}, nil)
	waitUntil(b.t, "the page knows its model", func() bool { return b.eval(`document.getElementById("model")?.textContent`) == "demo" })
}

func (b *browser) reload() {
	b.t.Helper()
	b.eval(`window.old = true`)
	b.call("Page.reload", map[string]any{}, nil)
	waitUntil(b.t, "the page is loaded again", func() bool {
		return b.eval(`!window.old && document.getElementById("model")?.textContent === "demo"`) == "true"
	})
}

// answered waits for the end of an answer.
func (b *browser) answered(turns int) {
	b.t.Helper()
	waitUntil(b.t, "the answer has ended", func() bool {
		return len(b.turns()) == turns && b.eval(`document.getElementById("send").hidden`) == "false"
	})
}

func (b *browser) set(id, value string) {
	b.t.Helper()
	b.eval(`{ const field = document.getElementById(%q); field.value = %q; field.dispatchEvent(new Event("change", { bubbles: true })); }`, id, value)
}

func TestAConversationAndItsSettingsSurviveAReload(t *testing.T) {
	b := openBrowser(t)
	s := start(t, demoConfig(), settings{}, 100*time.Millisecond)
	b.open(s, 1200, 800)
	b.eval(`document.getElementById("toggle").click()`)
	b.set("system", "be brief")
	b.set("temperature", "0")
	b.set("max_tokens", "3")
	b.eval(`{ const fetched = fetch; fetch = (url, options) => { if (options?.body) window.sent = options.body; return fetched(url, options); }; }`)
	b.say("list all prime numbers within 10")
	b.answered(2)
	var sent struct {
		Messages    []struct{ Role, Content string }
		Temperature float64
		MaxTokens   int      `json:"max_tokens"`
		TopP        *float64 `json:"top_p"`
	}
	if text := b.eval(`window.sent`); json.Unmarshal([]byte(text), &sent) != nil || len(sent.Messages) != 2 || sent.Messages[0].Role != "system" ||
		sent.Messages[0].Content != "be brief" || sent.MaxTokens != 3 || sent.TopP != nil {
		t.Errorf("it sent %s", text)
	}
	before := b.turns()
	b.picture("settings")
	b.reload()
	if after := b.turns(); !slices.Equal(before, after) || len(after) != 2 {
		t.Errorf("%q became %q", before, after)
	}
	if kept := b.eval(`document.getElementById("system").value + document.getElementById("max_tokens").value`); kept != "be brief3" {
		t.Errorf("settings: %s", kept)
	}
	b.set("max_tokens", "")
	b.say("list all prime numbers within 10")
	b.answered(4)
	b.eval(`document.getElementById("reset").click()`)
	b.reload()
	if turns := b.turns(); !slices.Equal(turns, []string{""}) {
		t.Errorf("after New chat: %q", turns)
	}
}

func TestThePageShowsReasoningAndCallsAndFitsAPhone(t *testing.T) {
	b := openBrowser(t)
	s := start(t, demoConfig(), settings{}, 100*time.Millisecond)
	b.open(s, 390, 780)
	b.eval(`{ const stringify = JSON.stringify; JSON.stringify = (value, ...rest) => stringify(value?.stream ? { ...value, ...{` + calling + `} } : value, ...rest); }`)
	b.say("a sword, please")
	b.answered(2)
	for query, wanted := range map[string]string{
		`.reasoning > div`: thought, `.turn.assistant > .text`: saidToGive, `.call summary`: "Call of give_item",
		`.call pre`: "{\n  \"item\": \"iron sword\",\n  \"count\": 2\n}",
	} {
		if text := strings.TrimSpace(b.eval(`document.querySelector(%q)?.textContent`, query)); text != wanted {
			t.Errorf("%s is %q, wanted %q", query, text, wanted)
		}
	}
	for _, width := range []int{320, 390, 1200} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
		for _, isShown := range []string{"false", "true"} {
			b.eval(`showSettings(%s)`, isShown)
			if wide := b.eval(`document.documentElement.scrollWidth - innerWidth`); wide != "0" {
				t.Errorf("at a width of %d the page is %s pixels too wide", width, wide)
			}
			// One line of the header is at most 60 pixels high.
			if high := b.eval(`document.querySelector("header").offsetHeight < 60`); high != "true" {
				t.Errorf("at a width of %d the header wraps", width)
			}
		}
		b.eval(`showSettings(false)`)
		if width == 390 {
			b.picture("phone")
		}
	}
}

func TestMarkdownIsShownAndNothingInItRuns(t *testing.T) {
	b := openBrowser(t)
	s := start(t, demoConfig(), settings{}, 100*time.Millisecond)
	b.open(s, 1200, 900)
	for text, html := range map[string]string{
		"plain":                             `<p>plain</p>`,
		"a\nb\n\nc":                         `<p>a<br>b</p><p>c</p>`,
		"**bold** *em* __b__ _e_ ~~no~~":    `<p><strong>bold</strong> <em>em</em> <strong>b</strong> <em>e</em> <del>no</del></p>`,
		"**bold with *em* inside**":         `<p><strong>bold with <em>em</em> inside</strong></p>`,
		"snake_case_name and 2 * 3 * 4":     `<p>snake_case_name and 2 * 3 * 4</p>`,
		"`a < b` and ``x ` y``":             "<p><code>a &lt; b</code> and <code>x ` y</code></p>",
		"# One\n### Three ###":              `<h2>One</h2><h4>Three</h4>`,
		"- a\n- b\n  - c\n- d":              `<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>`,
		"3. a\n4. b":                        `<ol start="3"><li>a</li><li>b</li></ol>`,
		"1. a\n\n2. b\n\ntext":              `<ol><li>a</li><li>b</li></ol><p>text</p>`,
		"> quoted\n> **more**\n\nafter":     `<blockquote><p>quoted<br><strong>more</strong></p></blockquote><p>after</p>`,
		"---":                               `<hr>`,
		"| a | b |\n|---|:-:|\n| 1 | *2* |": `<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><em>2</em></td></tr></tbody></table></div>`,
		"[site](https://a.example/x_(y))":   `<p><a href="https://a.example/x_(y)" target="_blank" rel="noopener noreferrer">site</a></p>`,
		"see https://a.example/b.":          `<p>see <a href="https://a.example/b" target="_blank" rel="noopener noreferrer">https://a.example/b</a>.</p>`,
		"```go\nx := \"<b>\"\n```\nafter":   `<div class="code"><div class="bar"><span>go</span><button type="button" class="copy">Copy</button></div><pre><code>x := "&lt;b&gt;"</code></pre></div><p>after</p>`,
		"```\nstill open":                   `<div class="code"><div class="bar"><span></span><button type="button" class="copy">Copy</button></div><pre><code>still open</code></pre></div>`,
		// Nothing of this may become an element, an attribute or an address that runs.
		"<script>window.hit = 1</script>":                 `<p>&lt;script&gt;window.hit = 1&lt;/script&gt;</p>`,
		"<img src=x onerror=window.hit=1>":                `<p>&lt;img src=x onerror=window.hit=1&gt;</p>`,
		"[x](javascript:window.hit=1)":                    `<p>x</p>`,
		"[x](data:text/html,y)":                           `<p>x</p>`,
		"[x](https://a.example/\"onclick=\"window.hit=1)": `<p><a href="https://a.example/%22onclick=%22window.hit=1" target="_blank" rel="noopener noreferrer">x</a></p>`,
		"```\"><script>window.hit=1</script>\n<b>\n```":   `<div class="code"><div class="bar"><span>"&gt;&lt;script&gt;window.hit=1&lt;/script&gt;</span><button type="button" class="copy">Copy</button></div><pre><code>&lt;b&gt;</code></pre></div>`,
		"![x](https://a.example/p.png)":                   `<p>!<a href="https://a.example/p.png" target="_blank" rel="noopener noreferrer">x</a></p>`,
	} {
		shown := b.eval(`(() => { const node = document.createElement("div"); showMarkdown(%s, node); for (const a of node.querySelectorAll("a")) a.setAttribute("href", a.href); return node.innerHTML; })()`, encodedJSON(text))
		if shown != html {
			t.Errorf("%q is\n%s, wanted\n%s", text, shown, html)
		}
	}
	if hit := b.eval(`window.hit`); hit != "<nil>" {
		t.Errorf("a script ran: %s", hit)
	}
	// Hostile texts take no long time.
	for name, text := range map[string]string{
		"stars": `"**a ".repeat(25000)`, "brackets": `"[".repeat(100000)`, "quotes": `"> ".repeat(50000)`, "backticks": "\"`a \".repeat(30000) + \"``\"",
		"lists": `Array.from({length: 3000}, (_, i) => " ".repeat(i) + "- a").join("\n")`, "tables": `"|a|b\n|-|-\n".repeat(5000)`, "spaces": `"a" + " ".repeat(100000) + "b"`,
		"rules": `"- ".repeat(50000) + "a"`, "dividers": `"a|b\n" + "|-".repeat(20000) + "x"`, "links": `"[a](".repeat(20000)`,
	} {
		took := b.eval(`(() => { const begun = performance.now(); showMarkdown(%s, document.createElement("div")); return performance.now() - begun < 3000; })()`, text)
		if took != "true" {
			t.Errorf("%s take more than 3 s", name)
		}
	}
	b.eval(`addTurn({ role: "user", content: "show me everything" }); addTurn({ role: "assistant", content: %s })`, encodedJSON("# A heading\n\nSome **bold** text with `code` and [a link](https://a.example).\n\n- one\n- two\n  - nested\n\n```go\nfunc main() {\n\tprintln(\"hello\")\n}\n```\n\n| name | price |\n|---|---|\n| iron sword | 12 |\n| rye bread | 1 |\n\n> A quote."))
	b.picture("markdown")
}
