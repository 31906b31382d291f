package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// settings are the options of the operator.
type settings struct {
	apiKeys        []string
	allowNoKey     bool     // even if other machines can reach the server
	hosts          []string // besides those of loopback, if there is no key
	origins        []string // whose pages may use the server, besides its own
	clientPriority bool
	lenient        bool // fields that the server does not know are ignored, with a warning
	accessLog      bool
	maxSkew        int // by which the load of an engine that has cached a prefix may exceed the least load
	metricAliases  []alias
	publicMetrics  bool   // /metrics needs no key
	metricsAddr    string // where /metrics is, without a key; empty = with the API
	tlsCert        string // files
	tlsKey         string

	// Zero selects the default.
	maxBodyBytes   int64         // of one request
	maxBodiesBytes int64         // of all large requests that are not queued yet
	maxRequests    int           // in progress at once; there may be twice as many connections
	bodyTimeout    time.Duration // for a request to arrive
	writeTimeout   time.Duration // for a client to accept a response, or one event of a stream
	requestTimeout time.Duration // 0 = no limit
}

// defaults are the settings that have a default.
var defaults = settings{maxBodyBytes: 4 << 20, maxBodiesBytes: 64 << 20, maxRequests: 1024,
	bodyTimeout: time.Minute, writeTimeout: 30 * time.Second}

func (s *settings) setDefaults() {
	s.maxBodyBytes = cmp.Or(s.maxBodyBytes, defaults.maxBodyBytes)
	s.maxBodiesBytes = cmp.Or(s.maxBodiesBytes, defaults.maxBodiesBytes)
	s.maxRequests = cmp.Or(s.maxRequests, defaults.maxRequests)
	s.bodyTimeout = cmp.Or(s.bodyTimeout, defaults.bodyTimeout)
	s.writeTimeout = cmp.Or(s.writeTimeout, defaults.writeTimeout)
}

// check refuses settings that would admit nobody, or everybody.
func (s *settings) check() error {
	if least := min(s.maxBodyBytes, int64(s.maxRequests), int64(s.bodyTimeout), int64(s.writeTimeout), int64(s.requestTimeout)); least < 0 {
		return errors.New("-max-body, -max-requests, -body-timeout, -write-timeout and -request-timeout must not be below 0")
	}
	if s.maxSkew < 0 {
		return fmt.Errorf("-max-skew is %d, but it must not be below 0", s.maxSkew)
	}
	if s.maxBodiesBytes < s.maxBodyBytes {
		return fmt.Errorf("-max-bodies is %d, but one request may have -max-body %d bytes", s.maxBodiesBytes, s.maxBodyBytes)
	}
	if (s.tlsCert == "") != (s.tlsKey == "") {
		return errors.New("-tls-cert and -tls-key belong together: give both")
	}
	return s.checkKeys()
}

// A server serves models over HTTP.
type server struct {
	settings
	catalog *catalog
	started time.Time
	metrics *metrics
	gate    *gate
	intake  *intake
}

// newServer serves the models of a catalog.
func newServer(catalog *catalog, settings settings) (*server, error) {
	settings.setDefaults()
	if err := settings.check(); err != nil {
		return nil, err
	}
	for _, origin := range settings.origins {
		if err := http.NewCrossOriginProtection().AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	metrics, err := newMetrics(catalog, settings.metricAliases)
	if err != nil {
		return nil, err
	}
	return &server{settings: settings, catalog: catalog, started: time.Now(), metrics: metrics,
		gate: newGate(settings.maxRequests), intake: newIntake(settings.maxBodiesBytes)}, nil
}

// handler answers all requests.
func (s *server) handler() http.Handler { return s.outer(s.routes()) }

// outer is what all requests pass through.
func (s *server) outer(next http.Handler) http.Handler { return s.timely(s.noted(next)) }

func (s *server) routes() http.Handler {
	api := http.NewServeMux()
	api.Handle("/v1/chat/completions", only("POST", s.chatCompletions))
	api.Handle("/v1/completions", only("POST", s.completions))
	api.Handle("/v1/embeddings", only("POST", s.embeddings))
	for _, path := range []string{"/v1/rerank", "/v2/rerank"} {
		api.Handle(path, only("POST", s.rerank))
	}
	api.Handle("/v1/score", only("POST", s.score))
	api.Handle("/v1/messages", only("POST", s.messages))
	api.Handle("/v1/messages/count_tokens", only("POST", s.countTokens))
	api.Handle("/v1/responses", only("POST", s.responses))
	api.Handle("/v1/models", only("GET", s.listModels))
	api.Handle("/v1/models/{model...}", only("GET", s.getModel))
	api.Handle("/tokenize", only("POST", s.tokenize))
	api.Handle("/detokenize", only("POST", s.detokenize))
	api.HandleFunc("/", unknownPath)
	guarded := s.metrics.observed(s.authorized(s.gate.guarded(s.limited(api))))

	all := http.NewServeMux()
	all.Handle("/v1/", guarded)
	all.Handle("/tokenize", guarded)
	all.Handle("/detokenize", guarded)
	all.Handle("/health", only("GET", s.health))
	all.Handle("/healthz", only("GET", s.health))
	all.Handle("/ready", only("GET", s.ready))
	if s.metricsAddr == "" {
		told := only("GET", s.metrics.handler().ServeHTTP)
		if !s.publicMetrics {
			told = s.authorized(told)
		}
		all.Handle("/metrics", told)
	}
	files := page()
	for _, path := range pagePaths {
		all.Handle(path, only("GET", files.ServeHTTP))
	}
	all.HandleFunc("/", unknownPath)
	return s.shared(all)
}

func unknownPath(w http.ResponseWriter, r *http.Request) {
	e := badRequest("", "this server has no %s %s", r.Method, r.URL.Path)
	e.status, e.code = http.StatusNotFound, "unknown_url"
	writeError(w, r, e)
}

// limited limits a request in size and time.
func (s *server) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, s.maxBodyBytes)
		if s.requestTimeout > 0 {
			ctx, cancel := context.WithTimeout(r.Context(), s.requestTimeout)
			defer cancel()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// health answers 200 while the server accepts new requests, also if only some of its engines work.
func (s *server) health(w http.ResponseWriter, r *http.Request) {
	status, body := s.state()
	writeJSON(w, r, status, body)
}

// ready answers as health does, in the words of a readiness probe.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	status, _ := s.state()
	writeJSON(w, r, status, map[string]bool{"ready": status == http.StatusOK})
}

func (s *server) state() (int, map[string]any) {
	if s.gate.isClosed() {
		return http.StatusServiceUnavailable, map[string]any{"status": "draining"}
	}
	failures := map[string]string{}
	isAnyWorking := !s.catalog.isFixed // a model that is not open opens when it is needed
	var last error
	for _, open := range s.catalog.opened() {
		isAnyWorking = isAnyWorking || len(open.pool.working()) > 0
		for _, r := range open.pool.replicas {
			failure := r.failed()
			if failure == nil {
				continue
			}
			last = failure
			name := r.name
			if !s.catalog.isFixed {
				name = open.model.name + "/" + name
			}
			failures[name] = failure.Error()
		}
	}
	switch {
	case !isAnyWorking:
		return http.StatusServiceUnavailable, map[string]any{"status": fmt.Sprint(last)}
	case len(failures) > 0:
		return http.StatusOK, map[string]any{"status": "degraded", "failed_engines": failures}
	}
	return http.StatusOK, map[string]any{"status": "ok"}
}

// A modelEntry is one entry of /v1/models.
type modelEntry struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	OwnedBy     string   `json:"owned_by"`
	MaxModelLen int      `json:"max_model_len,omitempty"` // known while the model is open
	Aliases     []string `json:"aliases,omitempty"`
	IsOpen      bool     `json:"is_open"`
}

func (s *server) entry(m *model) modelEntry {
	s.catalog.mu.Lock()
	defer s.catalog.mu.Unlock()
	made := modelEntry{ID: m.name, Object: "model", Created: s.started.Unix(), OwnedBy: "libnanovllm", Aliases: m.aliases, IsOpen: m.open != nil}
	if m.open != nil {
		made.MaxModelLen = m.open.info.MaxModelLen
	}
	return made
}

func (s *server) listModels(w http.ResponseWriter, r *http.Request) {
	list := []modelEntry{}
	for _, m := range s.catalog.models {
		list = append(list, s.entry(m))
	}
	writeJSON(w, r, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (s *server) getModel(w http.ResponseWriter, r *http.Request) {
	m, err := s.catalog.find(r.PathValue("model"))
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeJSON(w, r, http.StatusOK, s.entry(m))
}
