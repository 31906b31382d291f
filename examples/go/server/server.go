package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"libnanovllm/bindings/go"
)

// settings are what the operator decides.
type settings struct {
	name           string
	apiKey         string
	pooling        nanovllm.Pooling // of embeddings
	maxBodyBytes   int64
	requestTimeout time.Duration
}

// A server is an engine behind HTTP.
type server struct {
	settings
	engine   *nanovllm.Engine
	sampling sampling // the model's recommendation
	started  time.Time
	metrics  *metrics
	draining atomic.Bool
}

func newServer(engine *nanovllm.Engine, folder string, settings settings) (*server, error) {
	recommended, err := readSampling(folder)
	if err != nil {
		return nil, err
	}
	return &server{settings: settings, engine: engine, sampling: recommended, started: time.Now(), metrics: newMetrics(engine)}, nil
}

// handler routes everything that the server answers.
func (s *server) handler() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("POST /v1/chat/completions", s.chatCompletions)
	api.HandleFunc("POST /v1/completions", s.completions)
	api.HandleFunc("POST /v1/embeddings", s.embeddings)
	api.HandleFunc("GET /v1/models", s.listModels)
	api.HandleFunc("GET /v1/models/{model}", s.getModel)
	api.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &apiError{status: http.StatusNotFound, kind: "invalid_request_error", code: "unknown_url",
			message: "this server has no " + r.Method + " " + r.URL.Path})
	})

	all := http.NewServeMux()
	all.Handle("/v1/", s.metrics.observed(s.authorized(s.limited(api))))
	all.HandleFunc("/health", s.health)
	all.Handle("/metrics", s.metrics.handler())
	all.Handle("/", page())
	return all
}

// authorized lets requests through that bring the key.
func (s *server) authorized(next http.Handler) http.Handler {
	wanted := sha256.Sum256([]byte(s.apiKey))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		brought, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		// Equal lengths, so that the time tells nothing about the key.
		hashed := sha256.Sum256([]byte(brought))
		if s.apiKey != "" && subtle.ConstantTimeCompare(hashed[:], wanted[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, &apiError{status: http.StatusUnauthorized, kind: "authentication_error", code: "invalid_api_key",
				message: "the API key is missing or wrong: send it as Authorization: Bearer KEY"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// limited bounds a request in size and time.
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

// health is 200 while new requests are welcome.
func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if s.draining.Load() {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "draining"})
		return
	}
	if _, err := s.engine.Stats(); err != nil {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
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
	info, err := s.engine.ModelInfo()
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

// checkModel refuses every model but the one that is served; who names none gets it.
func (s *server) checkModel(name string) error {
	if name == "" || name == s.name {
		return nil
	}
	return &apiError{status: http.StatusNotFound, kind: "invalid_request_error", code: "model_not_found", param: "model",
		message: "there is no model " + name + " here, only " + s.name}
}
