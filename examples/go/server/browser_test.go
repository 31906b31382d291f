package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A browser is a headless Chromium with one page, driven by its DevTools protocol.
type browser struct {
	t    *testing.T
	ctx  context.Context
	conn *websocket.Conn
	last int
}

// openBrowser skips the test where there is no Chromium.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here")
	}
	profile, err := os.MkdirTemp("", "nanovllm-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	chromium := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--window-size=760,620", "--remote-debugging-port=0", "--user-data-dir="+profile, "about:blank")
	// Its many processes end together, or some would go on writing to the profile.
	chromium.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	chromium.Cancel = func() error { return syscall.Kill(-chromium.Process.Pid, syscall.SIGKILL) }
	errors, err := chromium.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := chromium.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = chromium.Wait()
		// What is left of a browser's profile is no fault of the server.
		for range 20 {
			if os.RemoveAll(profile) == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	port := ""
	for lines := bufio.NewScanner(errors); port == "" && lines.Scan(); {
		if found := regexp.MustCompile(`ws://127\.0\.0\.1:(\d+)/`).FindStringSubmatch(lines.Text()); found != nil {
			port = found[1]
		}
	}
	b := &browser{t: t, ctx: ctx}
	waitUntil(t, "the browser has a page", func() bool { return b.attach("http://127.0.0.1:" + port + "/json/list") })
	return b
}

// attach connects to the first page, if there is one yet.
func (b *browser) attach(list string) bool {
	response, err := http.Get(list)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var targets []struct{ Type, WebSocketDebuggerURL string }
	if json.NewDecoder(response.Body).Decode(&targets) != nil {
		return false
	}
	for _, target := range targets {
		if target.Type == "page" {
			b.conn, _, err = websocket.Dial(b.ctx, target.WebSocketDebuggerURL, nil)
			if err != nil {
				b.t.Fatal(err)
			}
			b.conn.SetReadLimit(16 << 20)
			return true
		}
	}
	return false
}

// call sends a command of the protocol and decodes its result.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.last++
	command, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.conn.Write(b.ctx, websocket.MessageText, command); err != nil {
		b.t.Fatal(err)
	}
	for {
		_, text, err := b.conn.Read(b.ctx)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(text, &answer); err != nil {
			b.t.Fatal(err)
		}
		if answer.ID != b.last {
			continue
		}
		if answer.Error != nil {
			b.t.Fatalf("%s: %s", method, answer.Error)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				b.t.Fatal(err)
			}
		}
		return
	}
}

// eval evaluates an expression in the page and returns it as text.
func (b *browser) eval(format string, args ...any) string {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	expression := fmt.Sprintf(format, args...)
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	return fmt.Sprint(answer.Result.Value)
}

// say types a text and presses Enter.
func (b *browser) say(text string) {
	b.t.Helper()
	b.eval(`document.getElementById("text").focus()`)
	b.call("Input.insertText", map[string]any{"text": text}, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "Enter", "text": "\r"}, nil)
}

// turns returns what stands in the conversation.
func (b *browser) turns() []string {
	b.t.Helper()
	text := b.eval(`[...document.querySelectorAll(".turn > .text")].map((turn) => turn.textContent).join("\u0000")`)
	return strings.Split(text, "\x00")
}

// picture keeps a picture of the page in the folder that NANOVLLM_SCREENSHOTS names.
func (b *browser) picture(name string) {
	b.t.Helper()
	folder := os.Getenv("NANOVLLM_SCREENSHOTS")
	if folder == "" {
		return
	}
	var picture struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
	png, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
