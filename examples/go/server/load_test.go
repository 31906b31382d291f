package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"libnanovllm/bindings/go"
)

// A pipeListener has connections without buffers, so that a client that does not read is noticed with the first byte.
type pipeListener struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.accepted:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// A servedConn tells when the server has closed it.
type servedConn struct {
	net.Conn
	closed chan struct{}
}

func (c servedConn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Conn.Close()
}

func (l *pipeListener) dial() (client net.Conn, closed <-chan struct{}) {
	client, served := net.Pipe()
	wrapped := servedConn{served, make(chan struct{})}
	l.accepted <- wrapped
	return client, wrapped.closed
}

func requestText(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func TestAClientThatDoesNotReadIsLeft(t *testing.T) {
	listener := newPipeListener()
	s := startAt(t, listener, []nanovllm.Config{demoConfig()}, settings{writeTimeout: 20 * time.Millisecond}, time.Second)
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }
	cases := []struct{ name, request string }{
		{"a stream", requestText("/v1/chat/completions", endlessChat+`}`)},
		{"a whole answer", requestText("/v1/chat/completions", primesChat+`}`)},
		{"embeddings", requestText("/v1/embeddings", `{"input": ["a", "b"]}`)},
		{"a refusal", requestText("/v1/completions", `{"model": "`+strings.Repeat("x", 1<<18)+`"}`)},
		{"a wrong host", strings.Replace(get("/v1/models"), "localhost", "rebound.example", 1)},
		{"an unknown path", get("/v1/files")},
		{"the models", get("/v1/models")},
		{"the health", get("/health")},
		{"the metrics", get("/metrics")},
		{"the page", get("/")},
		{"the page's size", strings.Replace(get("/"), "GET", "HEAD", 1)},
	}
	for _, c := range cases {
		client, closed := listener.dial()
		if _, err := io.WriteString(client, c.request); err != nil {
			t.Fatal(c.name, err)
		}
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the connection is still open", c.name)
		}
		_ = client.Close()
	}
	waitUntil(t, "the engine is idle", s.engine.Finished)
}

func TestABodyThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	listener := newPipeListener()
	startAt(t, listener, []nanovllm.Config{demoConfig()}, settings{bodyTimeout: 200 * time.Millisecond}, time.Second)
	client, _ := listener.dial()
	defer client.Close()
	whole := requestText("/v1/chat/completions", primesChat+`}`)
	if _, err := io.WriteString(client, whole[:len(whole)-1]); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Error(response.Status)
	}
	silent, closed := listener.dial()
	defer silent.Close()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("a client that says nothing is still connected")
	}
}

func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	s := start(t, demoConfig(), settings{apiKeys: []string{"secret"}, bodyTimeout: time.Minute, maxBodyBytes: 1 << 20}, time.Second)
	const json, text = "Content-Type: application/json\r\n", "Content-Type: text/plain\r\n"
	const key, waits = "Authorization: Bearer secret\r\n", "Expect: 100-continue\r\n"
	length := func(bytes int) string { return fmt.Sprintf("Content-Length: %d\r\n", bytes) }
	const chunked = "Transfer-Encoding: chunked\r\n"
	cases := []struct {
		name, line, headers string
		status              int
	}{
		{"far too long", "POST /v1/chat/completions", key + json + length(99_999_999_999), 413},
		{"a byte too long", "POST /v1/completions", key + json + length(1<<20+1), 413},
		{"too long, asking first", "POST /v1/embeddings", key + json + waits + length(99_999_999_999), 413},
		{"a byte too long, asking first", "POST /v1/completions", key + json + waits + length(1<<20+1), 413},
		{"a wrong type", "POST /v1/completions", key + text + length(10), 415},
		{"a wrong type, in chunks", "POST /v1/completions", key + text + chunked, 415},
		{"a wrong type, large", "POST /v1/completions", key + text + length(1<<19), 415},
		{"a wrong type, asking first", "POST /v1/chat/completions", key + text + waits + length(10), 415},
		{"a wrong type in chunks, asking first", "POST /v1/chat/completions", key + text + waits + chunked, 415},
		{"no type, asking first", "POST /v1/embeddings", key + waits + length(10), 415},
		{"no key", "POST /v1/completions", json + length(10), 401},
		{"no key, asking first", "POST /v1/completions", json + waits + length(10), 401},
		{"a wrong method", "PUT /v1/completions", key + json + length(10), 405},
		{"a wrong path", "POST /v1/files", key + json + chunked, 404},
		{"a body for the health", "POST /health", json + length(10), 405},
		{"a body that nobody wants", "GET /health", json + length(10), 200},
	}
	address := strings.TrimPrefix(s.url, "http://")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_ = client.SetDeadline(time.Now().Add(10 * time.Second))
			began := time.Now()
			if _, err := fmt.Fprintf(client, "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", c.line, address, c.headers); err != nil {
				t.Fatal(err)
			}
			from := bufio.NewReader(client)
			response, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(response.Body); err != nil {
				t.Fatal(err)
			}
			if answered := time.Since(began); response.StatusCode != c.status || answered > 2*time.Second || !response.Close {
				t.Errorf("%s after %v, Close is %v", response.Status, answered, response.Close)
			}
			if n, err := from.Read(make([]byte, 1)); err != io.EOF || time.Since(began) > 5*time.Second {
				t.Errorf("the connection is open after %v: %d bytes, %v", time.Since(began), n, err)
			}
		})
	}
}

func TestABodyThatIsAskedForIsReadAndTheConnectionStays(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	address := strings.TrimPrefix(s.url, "http://")
	client, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(20 * time.Second))
	from := bufio.NewReader(client)
	const body = `{"prompt": "x", "max_tokens": 1}`
	// One refusal among them: a body that was read is no reason to close.
	for _, c := range []struct {
		body   string
		status int
	}{{body, 200}, {`{"prompt": 7}`, 400}, {body, 200}} {
		if _, err := fmt.Fprintf(client, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
			"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", address, len(c.body)); err != nil {
			t.Fatal(err)
		}
		if line, err := from.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if line, err := from.ReadString('\n'); err != nil || line != "\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := io.WriteString(client, c.body); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != c.status || response.Close {
			t.Errorf("%s, Close is %v: %s, %v", response.Status, response.Close, text, err)
		}
	}
}

func TestAClientThatIsSendingGetsTheRefusal(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	for range 20 {
		response, err := http.Post(s.url+"/v1/completions", "text/plain", strings.NewReader(strings.Repeat("x", 200_000)))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 415 {
			t.Errorf("%s: %s, %v", response.Status, text, err)
		}
		_ = response.Body.Close()
	}
}

func TestABodyThatSaysNoLengthIsBoundedToo(t *testing.T) {
	s := start(t, demoConfig(), settings{maxBodyBytes: 1 << 17}, time.Second)
	// http.Post does not know the length of this reader.
	chunked := func(text string) (int, string) {
		response, err := http.Post(s.url+"/v1/completions", "application/json", io.MultiReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(answer)
	}
	if status, text := chunked(`{"prompt": "x", "max_tokens": 1}`); status != 200 {
		t.Errorf("a small one: %d %s", status, text)
	}
	if status, text := chunked(`{"prompt": "` + strings.Repeat("x", 1<<17) + `"}`); status != 413 {
		t.Errorf("a large one: %d %s", status, text)
	}
}

func TestABodyTakesMemoryAsItArrives(t *testing.T) {
	s := start(t, demoConfig(), settings{maxBodyBytes: 1 << 20, maxBodiesBytes: 1 << 20}, time.Second)
	for _, framing := range []string{"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "Content-Length: 1048576\r\n\r\n{"} {
		client, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := fmt.Fprintf(client, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s",
			strings.TrimPrefix(s.url, "http://"), framing); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, "both are being read", func() bool { return s.metric(t, "nanovllm_http_requests_in_flight") == 2 })
	for _, size := range []int{1 << 16, 1<<16 + 1, 1<<17 + 1, 1<<20 - 64} {
		text := `{"max_tokens": 1, "prompt": "x", "user": "` + strings.Repeat("x", size) + `"}`
		if status, _, answer := s.post(t, "/v1/completions", text); status != 200 {
			t.Errorf("%d bytes: %d %s", size, status, answer)
		}
	}
	if free := s.intake.free.Load(); free != 1<<20 {
		t.Errorf("%d bytes are free", free)
	}
}

func TestABodyIsReadWhole(t *testing.T) {
	for _, size := range []int{0, 1, smallBody - 1, smallBody, smallBody + 1, 2*smallBody + 1, 5 * smallBody} {
		for _, most := range []int{size, size + 1, 8 * smallBody} {
			in := newIntake(8 * smallBody)
			held := in.hold()
			text := strings.Repeat("0123456789", size)[:size]
			for name, from := range map[string]io.Reader{
				"at once": strings.NewReader(text), "in halves": iotest.HalfReader(strings.NewReader(text)),
				"with its end": iotest.DataErrReader(strings.NewReader(text)),
			} {
				if body, err := held.read(from, int64(most)); err != nil || string(body) != text {
					t.Errorf("%d of at most %d bytes, %s: %d bytes, %v", size, most, name, len(body), err)
				}
				held.release()
			}
			if size > 0 {
				if _, err := held.read(strings.NewReader(text), int64(size-1)); asAPIError(err).status != 413 {
					t.Errorf("%d bytes of at most %d: %v", size, size-1, err)
				}
			}
		}
	}
}

func TestLargeBodiesShareMemoryAndSmallOnesPassThem(t *testing.T) {
	in := newIntake(3 * smallBody)
	first, second, third := in.hold(), in.hold(), in.hold()
	if err := first.grow(2 * smallBody); err != nil {
		t.Fatal(err)
	}
	if err := second.grow(2 * smallBody); err == nil || asAPIError(err).status != 503 {
		t.Errorf("more than there is: %v", err)
	}
	second.release()
	if err := third.grow(smallBody); err != nil {
		t.Fatal(err)
	}
	if err := first.grow(3 * smallBody); err != nil {
		t.Fatal("a small body takes memory, or a refused one does:", err)
	}
	first.release()
	first.release()
	if free := in.free.Load(); free != 3*smallBody {
		t.Fatalf("%d bytes are free in the end", free)
	}

	ctx, cancel := context.WithCancel(context.Background())
	var turns []func()
	for range cap(in.large) {
		done, err := in.turn(ctx, smallBody+1)
		if err != nil {
			t.Fatal(err)
		}
		turns = append(turns, done)
	}
	if done, err := in.turn(ctx, smallBody); err != nil {
		t.Error("a small request waits behind large ones:", err)
	} else {
		done()
	}
	turns[0]()
	done, err := in.turn(ctx, smallBody+1)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := in.turn(ctx, smallBody+1); err == nil {
		t.Error("one turn too many")
	}
	done()
}

func TestRequestsWithStructuresDoNotDelayOthers(t *testing.T) {
	s := start(t, demoConfig(), settings{maxRequests: 64}, time.Second)
	// As if structures were being compiled.
	var leaves []func()
	for range cap(s.intake.structured) {
		leave, err := s.intake.structured.enter(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	var waiting sync.WaitGroup
	for range cap(s.intake.small) {
		waiting.Go(func() {
			body := primesChat + `, "max_tokens": 4, "response_format": {"type": "json_object"}}`
			response, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if response.StatusCode != 200 {
				t.Error(response.Status)
			}
		})
	}
	waitUntil(t, "all wait", func() bool {
		return s.metric(t, "nanovllm_http_requests_in_flight") == cap(s.intake.small) && len(s.intake.small) == 0
	})
	if status, _, text := s.post(t, "/v1/chat/completions", primesChat+`}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	for _, leave := range leaves {
		leave()
	}
	waiting.Wait()
}

func TestRequestsBeyondTheLimitAreRefused(t *testing.T) {
	s := start(t, demoConfig(), settings{maxRequests: 1}, time.Second)
	if err := s.gate.enter(); err != nil {
		t.Fatal(err)
	}
	status, header, text := s.post(t, "/v1/chat/completions", primesChat+`}`)
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(text, `"overloaded"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := s.get(t, "/health"); status != 200 {
		t.Errorf("health: %d", status)
	}
	s.gate.leave()
	if status, _, text := s.post(t, "/v1/chat/completions", primesChat+`}`); status != 200 {
		t.Errorf("afterwards: %d %s", status, text)
	}
}

// begin posts a stream and waits for its first event.
func (s *service) begin(t *testing.T, body string) (*http.Response, *bufio.Reader) {
	t.Helper()
	response, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	reader := bufio.NewReader(response.Body)
	if line, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: {") {
		t.Fatalf("%q %v", line, err)
	}
	return response, reader
}

func TestStoppingDrainsWhatWasBegun(t *testing.T) {
	s := start(t, demoConfig(), settings{}, 20*time.Second)
	// Another request keeps the server draining until it is closed.
	other, _ := s.begin(t, endlessChat+`}`)
	_, reader := s.begin(t, helloChat+`, "max_tokens": 40}`)
	s.stop()
	waitUntil(t, "health says that the server drains", func() bool {
		status, text := s.get(t, "/health")
		return status == 503 && strings.Contains(text, "draining")
	})
	if status, header, text := s.post(t, "/v1/chat/completions", primesChat+`}`); status != 503 || header.Get("Retry-After") == "" ||
		!strings.Contains(text, `"shutting_down"`) {
		t.Errorf("a new request: %d %s", status, text)
	}
	text, err := io.ReadAll(reader)
	if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || strings.Contains(string(text), `"error"`) {
		t.Errorf("%v: ...%s", err, text[max(0, len(text)-200):])
	}
	_ = other.Body.Close()
	waitUntil(t, "new connections are refused", func() bool {
		_, err := http.Get(s.url + "/health")
		return err != nil
	})
	recorder := httptest.NewRecorder()
	s.handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/health", nil))
	if recorder.Code != http.StatusServiceUnavailable {
		t.Errorf("health after the end: %d", recorder.Code)
	}
}

func TestAStreamThatTheEndOfTheDrainCutsSaysSo(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Millisecond)
	_, reader := s.begin(t, endlessChat+`}`)
	s.stop()
	text, err := io.ReadAll(reader)
	events := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	if err != nil || len(events) < 2 || events[len(events)-1] != "data: [DONE]" ||
		!strings.HasPrefix(events[len(events)-2], `data: {"error":{"code":"shutting_down"`) {
		t.Errorf("%v: ...%s", err, text[max(0, len(text)-300):])
	}
}

func TestAStreamWhoseEngineEndsSaysSo(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	s.end = nanovllm.ErrClosed
	_, reader := s.begin(t, endlessChat+`}`)
	_ = s.engine.Close()
	text, err := io.ReadAll(reader)
	if err != nil || !strings.Contains(string(text), `data: {"error":{`) || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("%v: ...%s", err, text[max(0, len(text)-300):])
	}
}

// TestMain is main where a test starts this program as the server.
func TestMain(m *testing.M) {
	if os.Getenv("NANOVLLM_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestASecondSignalEndsTheProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], "-model", modelFolder(), "-addr", "127.0.0.1:0", "-drain", "1h", "-threads", "1")
	program.Env = append(os.Environ(), "NANOVLLM_TEST_MAIN=1", "NANOVLLM_API_KEY=")
	told, err := program.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	s := &service{url: servedURL(t, bufio.NewReader(told), "demo")}
	s.begin(t, endlessChat+`}`)
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Health answers 503 before the first signal's handler is gone, so a second signal may come too early; it is sent again.
	waitUntil(t, "the server drains", func() bool {
		status, _ := s.get(t, "/health")
		return status == 503
	})
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		_ = program.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err == nil || ctx.Err() != nil {
				t.Errorf("it ended with %v", err)
			}
			return
		case <-again.C:
		}
	}
}
