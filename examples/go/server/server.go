package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"libnanovllm/bindings/go"
)

// settings are the options of the operator.
type settings struct {
	name           string
	apiKey         string
	allowNoKey     bool     // even if other machines can reach the server
	hosts          []string // besides those of loopback, if there is no key
	origins        []string // whose pages may use the server, besides its own
	clientPriority bool
	pooling        nanovllm.Pooling // of embeddings
	maxSkew        int              // by which the load of an engine that has cached a prefix may exceed the least load
	metricAliases  []alias

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
	return s.checkKey()
}

// checkKey refuses a key that no client can send in a header. The message does not contain the key.
func (s *settings) checkKey() error {
	for i, character := range []byte(s.apiKey) {
		if character <= ' ' || character > '~' {
			return fmt.Errorf("byte %d of the %d of the API key is %q, but a key consists of visible ASCII characters, without a newline at its end",
				i+1, len(s.apiKey), character)
		}
	}
	return nil
}

// A server serves a model over HTTP.
type server struct {
	settings
	pool        *pool
	recommended nanovllm.RequestOptions // by the model; a request replaces single values
	started     time.Time
	metrics     *metrics
	gate        *gate
	intake      *intake
}

// newServer serves engines that have the same model.
func newServer(engines []*nanovllm.Engine, settings settings) (*server, error) {
	settings.setDefaults()
	if err := settings.check(); err != nil {
		return nil, err
	}
	for _, origin := range settings.origins {
		if err := http.NewCrossOriginProtection().AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	pool, err := newPool(engines, settings.maxSkew)
	if err != nil {
		return nil, err
	}
	recommended, err := pool.engine().DefaultOptions()
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(pool, settings.metricAliases)
	if err != nil {
		return nil, err
	}
	return &server{settings: settings, pool: pool, recommended: recommended, started: time.Now(), metrics: metrics,
		gate: newGate(settings.maxRequests), intake: newIntake(settings.maxBodiesBytes)}, nil
}

// handler routes all requests.
func (s *server) handler() http.Handler {
	api := http.NewServeMux()
	api.Handle("/v1/chat/completions", only("POST", s.chatCompletions))
	api.Handle("/v1/completions", only("POST", s.completions))
	api.Handle("/v1/embeddings", only("POST", s.embeddings))
	api.Handle("/v1/models", only("GET", s.listModels))
	api.Handle("/v1/models/{model}", only("GET", s.getModel))
	api.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		e := badRequest("", "this server has no %s %s", r.Method, r.URL.Path)
		e.status, e.code = http.StatusNotFound, "unknown_url"
		writeError(w, e)
	})

	all := http.NewServeMux()
	all.Handle("/v1/", s.metrics.observed(s.authorized(s.gate.guarded(s.limited(api)))))
	all.Handle("/health", only("GET", s.health))
	all.Handle("/metrics", only("GET", s.metrics.handler().ServeHTTP))
	all.Handle("/", only("GET", page().ServeHTTP))
	return s.timely(s.shared(all))
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
func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if s.gate.isClosed() {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "draining"})
		return
	}
	switch working := s.pool.working(); {
	case len(working) == len(s.pool.replicas):
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	case len(working) > 0:
		failures := map[string]string{}
		for _, r := range s.pool.replicas {
			if failure := r.failed(); failure != nil {
				failures[r.name] = failure.Error()
			}
		}
		writeJSON(w, http.StatusOK, map[string]any{"status": "degraded", "failed_engines": failures})
	default:
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": s.pool.replicas[0].failed().Error()})
	}
}

// A model is one entry of /v1/models.
type model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"`
}

func (s *server) model() (model, error) {
	info, err := s.pool.engine().ModelInfo()
	return model{ID: s.name, Object: "model", Created: s.started.Unix(), OwnedBy: "libnanovllm", MaxModelLen: info.MaxModelLen}, err
}

func (s *server) listModels(w http.ResponseWriter, _ *http.Request) {
	served, err := s.model()
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []model{served}})
}

func (s *server) getModel(w http.ResponseWriter, r *http.Request) {
	served, err := s.model()
	if err == nil {
		err = s.checkModel(r.PathValue("model"))
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, served)
}

// checkModel refuses every model except the one that is served, which is also the default.
func (s *server) checkModel(name string) error {
	if name == "" || name == s.name {
		return nil
	}
	e := badRequest("model", "there is no model %s here, only %s", name, s.name)
	e.status, e.code = http.StatusNotFound, "model_not_found"
	return e
}
