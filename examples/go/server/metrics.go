package main

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// metrics are the metrics of /metrics: of HTTP, of the process, and of the engines.
type metrics struct {
	told     prometheus.Gatherers
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
	duration prometheus.Histogram
}

func newMetrics(c *catalog, aliases []alias) (*metrics, error) {
	registry := prometheus.NewRegistry()
	m := &metrics{
		told: prometheus.Gatherers{registry, catalogMetrics{c, aliases}},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nanovllm_http_requests_total", Help: "Requests to the API, by path and status; 499 is a client that left."}, []string{"path", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nanovllm_http_requests_in_flight", Help: "Requests to the API that are being answered."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nanovllm_http_request_seconds", Help: "From a request to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)}),
	}
	registry.MustRegister(m.requests, m.inFlight, m.duration,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if c.isFixed {
		return m, engineMetrics{pool: c.models[0].open.pool, aliases: aliases}.checkAliases()
	}
	for _, one := range c.models {
		labels := prometheus.Labels{"model": one.name}
		registry.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nanovllm_model_bytes", ConstLabels: labels,
				Help: "Bytes of the weights and KV caches of a model, 0 while it is not open."}, func() float64 {
				c.mu.Lock()
				defer c.mu.Unlock()
				if one.open == nil {
					return 0
				}
				return float64(one.open.bytes)
			}),
			prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "nanovllm_model_opened_total", ConstLabels: labels,
				Help: "How often a model was opened."}, func() float64 {
				c.mu.Lock()
				defer c.mu.Unlock()
				return float64(one.opened)
			}))
	}
	return m, nil
}

// modelMetrics are those of the engines of an open model that the engines do not report themselves.
type modelMetrics struct{ registry *prometheus.Registry }

func newModelMetrics(pool *pool) *modelMetrics {
	m := &modelMetrics{registry: prometheus.NewRegistry()}
	for _, r := range pool.replicas {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
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
		m.registry.MustRegister(routed)
		pool.routed = func(on *replica, why reason) { routed.WithLabelValues(on.name, string(why)).Inc() }
	}
	return m
}

// catalogMetrics are those of all models that are open. If models may open and close, each has the label model. A model that is
// closed has no metrics of its engines, and its counters begin again when it opens.
type catalogMetrics struct {
	catalog *catalog
	aliases []alias
}

// Gather returns the metrics of all open models.
func (c catalogMetrics) Gather() ([]*dto.MetricFamily, error) {
	var all prometheus.Gatherers
	for _, open := range c.catalog.opened() {
		of := prometheus.Gatherers{open.metrics.registry, engineMetrics{pool: open.pool, aliases: c.aliases}}
		if c.catalog.isFixed {
			return of.Gather()
		}
		all = append(all, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			gathered, err := of.Gather()
			return ofModel(gathered, open.model.name), err
		}))
	}
	return all.Gather()
}

// ofModel returns copies of metrics with the label model.
func ofModel(families []*dto.MetricFamily, name string) []*dto.MetricFamily {
	labelled := make([]*dto.MetricFamily, len(families))
	for i, family := range families {
		labelled[i] = &dto.MetricFamily{Name: family.Name, Help: family.Help, Type: family.Type}
		for _, m := range family.Metric {
			labels := append(slices.Clone(m.Label), label("model", name))
			slices.SortFunc(labels, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
			labelled[i].Metric = append(labelled[i].Metric, &dto.Metric{Label: labels, Counter: m.Counter, Gauge: m.Gauge, Histogram: m.Histogram})
		}
	}
	return labelled
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.told, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// countedPaths are the values of the label path; values that clients choose must not become labels.
var countedPaths = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/responses", "/v1/messages",
	"/v1/messages/count_tokens", "/tokenize", "/detokenize"}

// observed counts the responses of next.
func (m *metrics) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.inFlight.Inc()
		defer m.inFlight.Dec()
		begun := time.Now()
		next.ServeHTTP(w, r)
		path := r.URL.Path
		if !slices.Contains(countedPaths, path) {
			path = "other"
		}
		m.duration.Observe(time.Since(begun).Seconds())
		m.requests.WithLabelValues(path, strconv.Itoa(noteOf(r).status)).Inc()
	})
}
