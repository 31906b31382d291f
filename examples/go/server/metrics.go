package main

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the metrics of /metrics: of HTTP, of the process, and of the engines.
type metrics struct {
	told     prometheus.Gatherers
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
	duration prometheus.Histogram
}

func newMetrics(pool *pool, aliases []alias) (*metrics, error) {
	registry := prometheus.NewRegistry()
	engines := engineMetrics{pool: pool, aliases: aliases}
	m := &metrics{
		told: prometheus.Gatherers{registry, engines},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nanovllm_http_requests_total", Help: "Requests to /v1, by path and status."}, []string{"path", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nanovllm_http_requests_in_flight", Help: "Requests to /v1 that are being answered."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nanovllm_http_request_seconds", Help: "From a request to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)}),
	}
	registry.MustRegister(m.requests, m.inFlight, m.duration,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, r := range pool.replicas {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "nanovllm_engine_up", Help: "1 while the engine works, 0 after it has failed.",
			ConstLabels: prometheus.Labels{"engine": r.name, "device": r.device}}, func() float64 {
			if r.load() == unavailable {
				return 0
			}
			return 1
		}))
	}
	if len(pool.replicas) > 1 {
		routed := prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nanovllm_engine_routed_total", Help: "Prompts that an engine was given, for its cached prefix or for its load."},
			[]string{"engine", "reason"})
		registry.MustRegister(routed)
		pool.routed = func(on *replica, why reason) { routed.WithLabelValues(on.name, string(why)).Inc() }
	}
	return m, engines.checkAliases()
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.told, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// observed counts the responses of next.
func (m *metrics) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.inFlight.Inc()
		defer m.inFlight.Dec()
		timer := prometheus.NewTimer(m.duration)
		defer timer.ObserveDuration()
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(recorder, r)
		path := r.URL.Path
		switch path {
		case "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models":
		default:
			// Values that clients choose must not become labels.
			path = "other"
		}
		m.requests.WithLabelValues(path, strconv.Itoa(recorder.status)).Inc()
	})
}

// A statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
