package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

// program starts this program as the server, and returns its log.
func program(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	started := exec.CommandContext(ctx, os.Args[0], args...)
	started.Env = append(os.Environ(), "NANOVLLM_TEST_MAIN=1", "NANOVLLM_API_KEY=")
	told, err := started.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := started.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = started.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, told)
		if err := started.Wait(); err != nil {
			t.Errorf("%v ended with %v", args, err)
		}
		cancel()
	})
	return started, bufio.NewReader(told)
}

// certificate writes a certificate for loopback and its key into files.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	made, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	pemCert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made})
	for file, text := range map[string][]byte{cert: pemCert, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(pemCert)
	return cert, key, pool
}

// As an operator starts it: the model as an argument, keys from a file, TLS, metrics at an address of their own, and JSON in the log.
func TestAServerIsOperated(t *testing.T) {
	cert, key, trusted := certificate(t)
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("# team one\nalpha\n\nbeta\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, log := program(t, modelFolder(), "-addr", "127.0.0.1:0", "-threads", "1", "-name", "demo", "-aliases", "gpt-4o,other", "-api-key-file", keys,
		"-tls-cert", cert, "-tls-key", key, "-metrics-addr", "127.0.0.1:0", "-log-format", "json", "-kv-cache-bytes", "67108864")
	metrics := ""
	var url string
	for url == "" {
		line, err := log.ReadString('\n')
		var told struct{ Msg, Level string }
		if err != nil || json.Unmarshal([]byte(line), &told) != nil || told.Level != "INFO" {
			t.Fatalf("%q %v", line, err)
		}
		if rest, found := strings.CutPrefix(told.Msg, "metrics at "); found {
			metrics = rest
		}
		_, url, _ = strings.Cut(told.Msg, "serving demo at ")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	ask := func(path, key string) int {
		request, err := http.NewRequest("GET", url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("x-api-key", key)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Errorf("it serves at %s", url)
	}
	for _, c := range []struct {
		path, key string
		status    int
	}{{"/v1/models", "alpha", 200}, {"/v1/models/gpt-4o", "beta", 200}, {"/v1/models", "", 401}, {"/v1/models", "# team one", 401}, {"/ready", "", 200},
		{"/metrics", "alpha", 404}} {
		if status := ask(c.path, c.key); status != c.status {
			t.Errorf("%s with %q: %d", c.path, c.key, status)
		}
	}
	response, err := http.Get(metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != 200 || !strings.Contains(string(text), "nanovllm_kv_blocks") {
		t.Errorf("metrics: %s", response.Status)
	}
}

func TestTheProgramSaysWhatItIsAskedOnTheCommandLine(t *testing.T) {
	run := func(args ...string) (string, int) {
		asked := exec.Command(os.Args[0], args...)
		asked.Env = append(os.Environ(), "NANOVLLM_TEST_MAIN=1", "NANOVLLM_API_KEY=")
		told, err := asked.CombinedOutput()
		if err != nil && asked.ProcessState == nil {
			t.Fatal(err)
		}
		return string(told), asked.ProcessState.ExitCode()
	}
	for _, c := range []struct {
		args   string
		says   string
		status int
	}{
		{"-version", nanovllm.Version(), 0},
		{"--version", nanovllm.Version(), 0},
		{"-h", "usage: nanovllm-server [FLAGS] MODEL", 0},
		{"", "a model is required", 2},
		{modelFolder() + " -max-model-len 999999", "max_model_len is 999999, but must be from 1 to 4096, the positions that config.json gives the model", 1},
		{"no/such/folder", "no/such/folder", 1},
		{modelFolder() + " more", `"more" is one model too many`, 2},
		{"-port 8000 -addr x:1 m", "-port and -addr exclude each other", 2},
		{"-port 65536 m", "-port is 65536, but it must be from 0 to 65535", 2},
		{"m -tls-cert x", "-tls-cert and -tls-key belong together", 2},
		{"m -tls-cert none -tls-key none", "-tls-cert and -tls-key: open none", 1},
		{"m -api-key-file none", "-api-key-file: open none", 2},
		{"m -log-format xml", `-log-format is "xml", but it must be text or json`, 2},
		{"m -log-level loud", `-log-level is "loud"`, 2},
		{"-config none", "-config none: open none", 2},
		{"m -addr :0", ":0 can be reached from other machines: set -api-key or -api-key-file, or -allow-no-key", 1},
	} {
		told, status := run(strings.Fields(c.args)...)
		// The log quotes what the messages quote.
		if !strings.Contains(strings.ReplaceAll(told, `\"`, `"`), c.says) || status != c.status {
			t.Errorf("%s: %d %s", c.args, status, told)
		}
	}
	for args, addr := range map[string]string{"m": "localhost:8000", "-port 81 m": "localhost:81", "m -port 82": "localhost:82", "-addr a:1 m": "a:1"} {
		if parsed, err := parse(strings.Fields(args), io.Discard); err != nil || parsed.addr != addr || parsed.models[0].engines[0].ModelPath != "m" {
			t.Errorf("%s: %+v %v", args, parsed, err)
		}
	}
	var told bytes.Buffer
	if parsed, err := parse([]string{"models/tiny.Q4_K_M.gguf"}, &told); err != nil || parsed.models[0].name != "tiny.Q4_K_M" {
		t.Errorf("%v %s", err, told.String())
	}
}

func TestUnknownPathsAreNotFound(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	for _, method := range []string{"GET", "POST", "DELETE"} {
		for _, path := range []string{"/api/chat", "/other", "/v1/audio/speech", "/chat.html"} {
			if status, text := s.ask(t, method, path, "{}", nil); status != 404 || !strings.Contains(text, `"unknown_url"`) {
				t.Errorf("%s %s: %d %s", method, path, status, text)
			}
		}
	}
}

func TestTextsBecomeTokensAndTextsAgain(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	words, err := s.engine.Tokenize("list all<|im_end|>", nanovllm.ParseSpecial)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := s.engine.Tokenize("list all<|im_end|>", 0)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Count       int
		MaxModelLen int `json:"max_model_len"`
		Tokens      []uint32
		TokenStrs   []string `json:"token_strs"`
	}
	for body, wanted := range map[string][]uint32{
		`{"prompt": "list all<|im_end|>"}`:                          words,
		`{"model": "demo", "prompt": "list all<|im_end|>"}`:         words,
		`{"content": "list all<|im_end|>"}`:                         words,
		`{"content": "list all<|im_end|>", "parse_special": false}`: plain,
		`{"prompt": ""}`: {},
	} {
		var told answer
		status, _, text := s.post(t, "/tokenize", body)
		if err := json.Unmarshal([]byte(text), &told); err != nil || status != 200 || fmt.Sprint(told.Tokens) != fmt.Sprint(wanted) || told.Count != len(wanted) || told.MaxModelLen != 4096 {
			t.Errorf("%s: %d %s, wanted %v", body, status, text, wanted)
		}
	}
	var told answer
	_, _, text := s.post(t, "/tokenize", `{"messages": [{"role": "user", "content": "hello"}], "return_token_strs": true}`)
	if err := json.Unmarshal([]byte(text), &told); err != nil || strings.Join(told.TokenStrs, "") != "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n" {
		t.Errorf("messages: %s", text)
	}
	encoded, _ := json.Marshal(words)
	if status, _, text := s.post(t, "/detokenize", `{"tokens": `+string(encoded)+`}`); status != 200 || text != `{"content":"list all<|im_end|>","prompt":"list all<|im_end|>"}`+"\n" {
		t.Errorf("%d %s", status, text)
	}
	for path, body := range map[string]string{
		"/tokenize#1": `{}`, "/tokenize#2": `{"prompt": "x", "content": "y"}`, "/tokenize#3": `{"prompt": "x", "temperature": 1}`,
		"/detokenize#1": `{"tokens": [2048]}`, "/detokenize#2": `{"tokens": "x"}`, "/detokenize#3": `{"token": [1]}`,
	} {
		if status, _, text := s.post(t, path, body); status != 400 {
			t.Errorf("%s %s: %d %s", path, body, status, text)
		}
	}
}
