package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

// startCatalog starts a server with models of a file.
func startCatalog(t *testing.T, text string, s settings) (*service, *catalog) {
	t.Helper()
	folder, err := filepath.Abs(modelFolder())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "models.toml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "DEMO", folder)), 0o600); err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	command, err := parse([]string{"-config", file}, &told)
	if err != nil {
		t.Fatal(told.String())
	}
	catalog, err := command.catalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made, err := newServer(catalog, s)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.run(ctx, listener, time.Second) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		catalog.close()
		if open := catalog.opened(); len(open) > 0 {
			t.Errorf("%d models are still open", len(open))
		}
	})
	return &service{server: made, url: "http://" + listener.Addr().String(), stop: stop}, catalog
}

// The demo model has 10 MB of weights, and the KV caches of the tests 8 MiB: two models fit into 40 MiB, and a third does not.
const threeModels = `
memory = "40MiB"
kv-cache-bytes = 8388608
max-num-seqs = 8
threads = 1
max-model-len = 512

[[models]]
name = "first"
model = "DEMO"
aliases = ["gpt-4o", "Qwen/Qwen3-0.6B"]
preload = true

[[models]]
name = "second"
model = "DEMO"
pooling = "mean"

[[models]]
name = "third"
model = "DEMO"
max-model-len = 256
`

// openNames are those of the models that are open.
func openNames(c *catalog) string {
	var open []string
	for _, m := range c.opened() {
		open = append(open, m.model.name)
	}
	return strings.Join(open, " ")
}

func askFor(model string) string {
	return `{"messages": [{"role": "user", "content": "list all prime numbers within 10"}], "temperature": 0, "model": "` + model + `"}`
}

func TestModelsOpenOnDemandAndCloseByLeastRecentUse(t *testing.T) {
	s, c := startCatalog(t, threeModels, settings{})
	if open := openNames(c); open != "first" {
		t.Errorf("open from the start: %s", open)
	}
	for _, step := range []struct{ model, answersAs, open string }{
		{"second", "second", "first second"},
		{"gpt-4o", "first", "first second"},
		{"third", "third", "first third"},
		{"Qwen/Qwen3-0.6B", "first", "first third"},
		{"second", "second", "first second"},
		{"", "first", "first second"},
	} {
		status, _, text := s.post(t, "/v1/chat/completions", askFor(step.model))
		if status != 200 || !strings.Contains(text, primes) || !strings.Contains(text, `"model":"`+step.answersAs+`"`) || openNames(c) != step.open {
			t.Errorf("%s: %d %s, and %s are open", step.model, status, text, openNames(c))
		}
	}
	status, _, text := s.post(t, "/v1/chat/completions", askFor("fourth"))
	if status != 404 || !strings.Contains(text, "there is no model fourth here, only first, second, third") {
		t.Errorf("an unknown model: %d %s", status, text)
	}
	_, list := s.get(t, "/v1/models")
	var models struct{ Data []modelEntry }
	if err := json.Unmarshal([]byte(list), &models); err != nil || len(models.Data) != 3 || models.Data[0].Aliases[1] != "Qwen/Qwen3-0.6B" ||
		!models.Data[0].IsOpen || models.Data[0].MaxModelLen != 512 || models.Data[2].IsOpen {
		t.Errorf("%s", list)
	}
	if status, text := s.get(t, "/v1/models/Qwen/Qwen3-0.6B"); status != 200 || !strings.Contains(text, `"id":"first"`) {
		t.Errorf("%d %s", status, text)
	}
	_, told := s.get(t, "/metrics")
	mustContain(t, told, `nanovllm_model_opened_total{model="first"} 1`, `nanovllm_model_opened_total{model="second"} 2`,
		`nanovllm_model_bytes{model="third"} 0`, `nanovllm_finished_total{model="second",reason="stop"} 1`,
		`nanovllm_engine_up{device="cpu",engine="0",model="first"} 1`)
	if strings.Contains(told, `model="third",reason`) {
		t.Error("a closed model has metrics of its engine")
	}
}

func TestAModelInUseIsClosedWhenItsRequestsHaveEnded(t *testing.T) {
	s, c := startCatalog(t, threeModels, settings{})
	if status, _, text := s.post(t, "/v1/chat/completions", askFor("second")); status != 200 {
		t.Fatal(text)
	}
	// Both models are in use; the third needs the place of the first, whose request began earlier.
	first, _ := s.begin(t, strings.Replace(endlessChat, "{", `{"model": "first", `, 1)+`}`)
	second, _ := s.begin(t, strings.Replace(endlessChat, "{", `{"model": "second", `, 1)+`}`)
	answered := make(chan string, 2)
	ask := func(model string) {
		_, _, text := s.post(t, "/v1/chat/completions", askFor(model))
		answered <- text
	}
	go ask("third")
	isRetiring := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.models[0].open != nil && c.models[0].open.isRetiring
	}
	waitUntil(t, "the first model retires", isRetiring)
	// A request for a model that retires opens it again later.
	go ask("first")
	select {
	case text := <-answered:
		t.Fatalf("answered although both models are in use: %s", text)
	default:
	}
	_ = first.Body.Close()
	_ = second.Body.Close()
	for range 2 {
		if text := <-answered; !strings.Contains(text, primes) {
			t.Error(text)
		}
	}
}

func TestManyClientsOfMoreModelsThanFit(t *testing.T) {
	s, c := startCatalog(t, threeModels, settings{})
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			model := []string{"first", "second", "third"}[i%3]
			status, _, text := s.post(t, "/v1/chat/completions", askFor(model))
			if status != 200 || !strings.Contains(text, primes) || !strings.Contains(text, `"model":"`+model+`"`) {
				t.Errorf("%s: %d %s", model, status, text)
			}
		})
	}
	all.Wait()
	if bytes := c.openBytes(); bytes > 40<<20 {
		t.Errorf("%d bytes are open", bytes)
	}
}

func TestAModelThatCannotBeOpenedSaysWhy(t *testing.T) {
	s, c := startCatalog(t, `
memory = "16MiB"
kv-cache-bytes = 4194304
threads = 1
[[models]]
name = "fits"
model = "DEMO"
max-model-len = 256
[[models]]
name = "large"
model = "DEMO"
kv-cache-bytes = 16777216
[[models]]
name = "missing"
model = "nowhere"
[[models]]
name = "long"
model = "DEMO"
max-model-len = 999999
`, settings{})
	for _, step := range []struct {
		model, says string
		status      int
	}{
		{"large", "but -memory is 16777216", 503},
		{"missing", "nowhere", 503},
		{"long", "max_model_len is 999999, but must be from 1 to 4096", 503},
		{"fits", primes, 200},
	} {
		if status, _, text := s.post(t, "/v1/chat/completions", askFor(step.model)); status != step.status || !strings.Contains(text, step.says) {
			t.Errorf("%s: %d %s", step.model, status, text)
		}
	}
	if open := openNames(c); open != "fits" {
		t.Errorf("%s are open", open)
	}
	if status, text := s.get(t, "/ready"); status != 200 || !strings.Contains(text, "true") {
		t.Errorf("%d %s", status, text)
	}
}

func TestAModelWhoseEngineFailsOpensAgain(t *testing.T) {
	s, c := startCatalog(t, threeModels, settings{})
	_ = c.opened()[0].engines[0].Close()
	waitUntil(t, "the model is closed", func() bool { return openNames(c) == "" })
	if status, _, text := s.post(t, "/v1/chat/completions", askFor("first")); status != 200 || !strings.Contains(text, primes) {
		t.Errorf("%d %s", status, text)
	}
}

func TestAFileOfModelsIsChecked(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{`adr = "x"`, `"adr" is not the name of a flag`},
		{`[[models]]`, "models[0] has no model"},
		{"[[models]]\nmodel = \"m\"\nadr = 1", `models[0]: "adr" is not the name of a flag of a model`},
		{"[[models]]\nmodel = \"m\"\naddr = \":80\"", `models[0]: "addr" is not the name of a flag of a model`},
		{"[[models]]\nmodel = \"m\"\nthreads = \"x\"", `models[0]: threads = x`},
		{"[[models]]\nmodel = \"m\"\n[[models]]\nmodel = \"n/m\"", `the name "m" of a model is empty or taken`},
		{"[[models]]\nmodel = \"m\"\naliases = [\"m\"]", `the name "m" of a model is empty or taken`},
		{"model = \"m\"\n[[models]]\nmodel = \"n\"", "exclude each other"},
		{"metric-aliases = \"nanovllm_x=x\"\n[[models]]\nmodel = \"n\"", "-metric-aliases are for one model"},
		{"memory = \"1GB\"\n[[models]]\nmodel = \"n\"", `"1GB" is not a number of bytes`},
		{"memory = 5\nmodel = \"n\"", "-memory is for the [[models]]"},
		{"models = 5", "models is not a list of tables"},
		{"threads = { x = 1 }", "threads is a table"},
		{"threads = ", "toml"},
		{"api-key = [\"a b\"]\nmodel = \"m\"", "visible ASCII"},
	} {
		file := filepath.Join(t.TempDir(), "models.toml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var told bytes.Buffer
		if _, err := parse([]string{"-config", file}, &told); err == nil || !strings.Contains(told.String(), c.says) || strings.Contains(told.String(), "a b") {
			t.Errorf("%s: %v %s", c.text, err, told.String())
		}
	}
	file := filepath.Join(t.TempDir(), "server.toml")
	text := "port = 81\napi-key = [\"one\", \"two\"]\nlenient = true\nmax-skew = 3\nengine = [\"threads=1\", \"threads=2\"]\nmodel = \"m\"\nrequest-timeout = \"5s\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command, err := parse([]string{"-max-skew", "4", "-config", file}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := command.settings
	if command.addr != "localhost:81" || fmt.Sprint(s.apiKeys) != "[one two]" || !s.lenient || s.maxSkew != 4 || len(command.models[0].engines) != 2 ||
		command.models[0].engines[1].NumThreads != 2 || command.models[0].engines[0].ModelPath != filepath.Join(filepath.Dir(file), "m") ||
		s.requestTimeout != 5*time.Second || command.isCatalog {
		t.Errorf("%+v %+v", command, command.models[0])
	}
}

func TestARequestThatWaitsForItsModelEndsWithItsTime(t *testing.T) {
	s, c := startCatalog(t, threeModels, settings{requestTimeout: 50 * time.Millisecond})
	// Nothing opens meanwhile.
	leave, _ := c.opening.enter(t.Context())
	status, _, text := s.post(t, "/v1/chat/completions", askFor("second"))
	if status != http.StatusGatewayTimeout {
		t.Errorf("%d %s", status, text)
	}
	leave()
	waitUntil(t, "it is open later", func() bool { return strings.Contains(openNames(c), "second") })
}

func TestEmbeddingsAreCutIfTheModelAllowsIt(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(modelFolder(), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	with := func(fields string) nanovllm.Config {
		return modelWith(t, "config.json", strings.Replace(string(text), "{", "{"+fields+",", 1))
	}
	for _, c := range []struct {
		config  nanovllm.Config
		asked   string
		status  int
		numbers int
	}{
		{with(`"is_matryoshka": true`), "3", 200, 3},
		{with(`"is_matryoshka": true`), "257", 400, 0},
		{with(`"is_matryoshka": true`), "0", 400, 0},
		{with(`"matryoshka_dimensions": [64, 128]`), "64", 200, 64},
		{with(`"matryoshka_dimensions": [64, 128]`), "65", 400, 0},
		{demoConfig(), "256", 200, 256},
		{demoConfig(), "128", 400, 0},
	} {
		engines, err := open([]nanovllm.Config{c.config})
		if err != nil {
			t.Fatal(err)
		}
		catalog, err := fixedCatalog(&model{name: "demo", pooling: nanovllm.PoolingLast, engines: []nanovllm.Config{c.config}}, engines, 0)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newServer(catalog, settings{})
		if err != nil {
			t.Fatal(err)
		}
		j, err := s.embeddingJob(catalog.models[0].open, []byte(`{"input": "x", "dimensions": `+c.asked+`}`))
		if (err == nil) != (c.status == 200) || err != nil && asAPIError(err).param != "dimensions" {
			t.Errorf("%s: %v", c.asked, err)
		}
		if err == nil {
			vector := make([]float32, 256)
			for i := range vector {
				vector[i] = 2
			}
			cut := j.embedding.of(vector).([]float32)
			var square float64
			for _, number := range cut {
				square += float64(number) * float64(number)
			}
			if len(cut) != c.numbers || square < 0.999 || square > 1.001 {
				t.Errorf("%s: %d numbers of length² %v", c.asked, len(cut), square)
			}
		}
		closeAll(engines)
	}
	var none *apiError
	if err := (dimensions{}).check(new(int), 5); !errors.As(err, &none) {
		t.Error(err)
	}
}
