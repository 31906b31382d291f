package main

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"

	"libnanovllm/bindings/go"
)

// metrics are the metrics of /metrics: of HTTP, of the process, and of the engine.
type metrics struct {
	told     prometheus.Gatherers
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
	duration prometheus.Histogram
}

func newMetrics(engine *nanovllm.Engine) *metrics {
	registry := prometheus.NewRegistry()
	m := &metrics{
		told: prometheus.Gatherers{registry, engineMetrics{engine}},
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
	return m
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

// engineMetrics are the engine's own metrics, which it reports in Prometheus' text format.
type engineMetrics struct{ engine *nanovllm.Engine }

// Gather parses the text of the engine. A closed engine reports nothing.
func (e engineMetrics) Gather() ([]*dto.MetricFamily, error) {
	text, err := e.engine.MetricsText()
	if errors.Is(err, nanovllm.ErrClosed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(names.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	return slices.Collect(maps.Values(families)), err
}
