package main

import (
	"encoding/base64"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The page as a user sees it. NANOVLLM_SCREENSHOT=FILE keeps a picture.
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
	b.say("introduce yourself")
	waitUntil(t, "the second answer has ended", func() bool {
		return len(b.turns()) == 4 && b.eval(`document.getElementById("send").hidden`) == "false"
	})
	if file := os.Getenv("NANOVLLM_SCREENSHOT"); file != "" {
		var picture struct{ Data string }
		b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
		png, err := base64.StdEncoding.DecodeString(picture.Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, png, 0o644); err != nil {
			t.Fatal(err)
		}
	}

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
