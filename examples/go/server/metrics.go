package main

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"libnanovllm/bindings/go"
)

// metrics are what /metrics tells: of HTTP, and of the engine.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	inFlight   prometheus.Gauge
	duration   prometheus.Histogram
	firstToken prometheus.Histogram
}

func newMetrics(engine *nanovllm.Engine) *metrics {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 18)
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nanovllm_http_requests_total", Help: "Requests to /v1, by path and status."}, []string{"path", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nanovllm_http_requests_in_flight", Help: "Requests to /v1 that are being answered."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nanovllm_http_request_seconds", Help: "From a request to the end of its answer.", Buckets: seconds}),
		firstToken: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nanovllm_time_to_first_token_seconds", Help: "From queueing a prompt to its first token.", Buckets: seconds}),
	}
	m.registry.MustRegister(m.requests, m.inFlight, m.duration, m.firstToken, engineCollector{engine},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// observed counts what next answers.
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
		case "/v1/chat/completions", "/v1/completions", "/v1/models":
		default:
			// Whatever clients invent must not become a label.
			path = "other"
		}
		m.requests.WithLabelValues(path, strconv.Itoa(recorder.status)).Inc()
	})
}

// A statusRecorder remembers the status of an answer.
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

// An engineCollector reads the engine's statistics when they are asked for.
type engineCollector struct{ engine *nanovllm.Engine }

var (
	stepsDesc       = prometheus.NewDesc("nanovllm_steps_total", "Forward passes.", nil, nil)
	promptDesc      = prometheus.NewDesc("nanovllm_prompt_tokens_total", "Prompt tokens computed.", nil, nil)
	cachedDesc      = prometheus.NewDesc("nanovllm_cached_tokens_total", "Prompt tokens taken from the prefix cache.", nil, nil)
	generatedDesc   = prometheus.NewDesc("nanovllm_generated_tokens_total", "Tokens generated.", nil, nil)
	preemptionsDesc = prometheus.NewDesc("nanovllm_preemptions_total", "Sequences that gave their KV blocks back.", nil, nil)
	runningDesc     = prometheus.NewDesc("nanovllm_sequences_running", "Sequences that run.", nil, nil)
	waitingDesc     = prometheus.NewDesc("nanovllm_requests_waiting", "Requests that wait.", nil, nil)
	usedDesc        = prometheus.NewDesc("nanovllm_kv_blocks_used", "Blocks of the KV cache that sequences hold.", nil, nil)
	totalDesc       = prometheus.NewDesc("nanovllm_kv_blocks", "Blocks of the KV cache.", nil, nil)
)

func (c engineCollector) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, descs)
}

func (c engineCollector) Collect(found chan<- prometheus.Metric) {
	stats, err := c.engine.Stats()
	if err != nil {
		// The engine is closed, and nothing is to be told of it.
		stats = nanovllm.Stats{}
	}
	counter := func(desc *prometheus.Desc, value uint64) {
		found <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value))
	}
	gauge := func(desc *prometheus.Desc, value int) {
		found <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value))
	}
	counter(stepsDesc, stats.Steps)
	counter(promptDesc, stats.PromptTokens)
	counter(cachedDesc, stats.CachedTokens)
	counter(generatedDesc, stats.GeneratedTokens)
	counter(preemptionsDesc, stats.Preemptions)
	gauge(runningDesc, stats.Running)
	gauge(waitingDesc, stats.Waiting)
	gauge(usedDesc, stats.KVBlocksUsed)
	gauge(totalDesc, stats.KVBlocksTotal)
}
