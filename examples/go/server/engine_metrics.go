package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"
)

// engineMetrics answers: what do the metrics of several engines say together?
//
// The metrics that an engine reports in Prometheus' text format keep their names and become the totals of all engines: counters and
// histograms are added up, and so are gauges, which count sequences and blocks. If there are several engines, each metric
// nanovllm_NAME also exists as nanovllm_engine_NAME with the label engine. The names differ because a total beside its parts under one
// name would be counted twice by a sum over the name. A server with several models adds the label model to all of them.
//
// Invariant: a counter never decreases. A failed engine keeps the counters that it reported last, and has no gauges.
type engineMetrics struct {
	pool    *pool
	aliases []alias
}

// An alias is a second name for a metric, which is exported under both.
type alias struct{ name, alias string }

// families are metrics by name.
type families map[string]*dto.MetricFamily

const (
	namePrefix   = "nanovllm_"
	engineLabel  = "engine"
	enginePrefix = namePrefix + engineLabel + "_"
)

// Metrics of an engine from which others are derived, and those that are derived.
const (
	kvBlocks      = namePrefix + "kv_blocks"
	kvBlocksUsed  = namePrefix + "kv_blocks_used"
	kvUtilization = namePrefix + "kv_cache_utilization"
	kvConfig      = namePrefix + "cache_config_info"
)

// logMessagesDropped is a metric of the process, which every engine reports alike.
const logMessagesDropped = namePrefix + "log_messages_dropped_total"

// Gather returns the totals, their aliases, and the metrics per engine. It returns nothing if no engine works.
func (e engineMetrics) Gather() ([]*dto.MetricFamily, error) {
	all, each, err := e.read()
	if err != nil {
		return nil, err
	}
	gathered := slices.Collect(maps.Values(all))
	for _, a := range e.aliases {
		if family := all[a.name]; family != nil {
			gathered = append(gathered, &dto.MetricFamily{Name: &a.alias, Help: family.Help, Type: family.Type, Metric: family.Metric})
		}
	}
	if len(each) > 1 {
		gathered = append(gathered, perEngine(each, e.pool.replicas)...)
	}
	return gathered, nil
}

// read returns the totals and the metrics of each engine.
func (e engineMetrics) read() (all families, each []families, err error) {
	isAnyWorking := false
	for _, r := range e.pool.replicas {
		told, works, err := r.metrics()
		if err != nil {
			return nil, nil, err
		}
		isAnyWorking = isAnyWorking || works
		each = append(each, told)
	}
	if !isAnyWorking {
		return nil, nil, nil
	}
	all = total(each)
	// Blocks of different devices may have different sizes, so that tokens are added up.
	var used, available float64
	for i, r := range e.pool.replicas {
		size := float64(r.info.KVBlockSize)
		used += size * each[i].gauge(kvBlocksUsed)
		available += size * each[i].gauge(kvBlocks)
		each[i].derive(size*each[i].gauge(kvBlocksUsed), size*each[i].gauge(kvBlocks), r.info.KVBlockSize)
	}
	all.derive(used, available, e.pool.replicas[0].info.KVBlockSize)
	return all, each, nil
}

// metrics returns what an engine reports, and whether it works.
func (r *replica) metrics() (told families, works bool, err error) {
	if works = r.load() != unavailable; works {
		text, err := r.engine.MetricsText()
		if err != nil {
			return nil, false, err
		}
		parser := expfmt.NewTextParser(names.LegacyValidation)
		if told, err = parser.TextToMetricFamilies(strings.NewReader(text)); err != nil {
			return nil, false, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if works {
		r.told = told
		return maps.Clone(told), true, nil
	}
	told = maps.Clone(r.told)
	maps.DeleteFunc(told, func(_ string, family *dto.MetricFamily) bool { return family.GetType() == dto.MetricType_GAUGE })
	return told, false, nil
}

// gauge returns the value of a gauge without labels, 0 if there is none.
func (f families) gauge(name string) float64 {
	if family := f[name]; family != nil {
		return family.Metric[0].GetGauge().GetValue()
	}
	return 0
}

// derive adds the metrics that a load balancer needs besides those of the engine. used and available are tokens of the KV cache.
func (f families) derive(used, available float64, blockSize int) {
	if available == 0 {
		return
	}
	f.add(kvUtilization, "Fraction of the KV cache that sequences hold, or that is pinned, from 0 to 1.", used/available)
	// The labels are those of vllm:cache_config_info, whatever the device is.
	f.add(kvConfig, "1; the labels are the tokens per block of the KV cache, and the number of blocks.", 1,
		label("block_size", strconv.Itoa(blockSize)), label("num_gpu_blocks", strconv.Itoa(int(available)/blockSize)))
}

func (f families) add(name, help string, value float64, labels ...*dto.LabelPair) {
	f[name] = &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum(),
		Metric: []*dto.Metric{{Label: labels, Gauge: &dto.Gauge{Value: &value}}}}
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// total adds up the metrics of all engines.
func total(each []families) families {
	all := families{}
	for _, told := range each {
		for name, family := range told {
			if name != logMessagesDropped || all[name] == nil {
				all[name] = sum(all[name], family)
			}
		}
	}
	return all
}

// sum adds two families up, of which the first may be nil. All engines are of one library, so that their families have the same
// samples in the same order.
func sum(a, b *dto.MetricFamily) *dto.MetricFamily {
	if a == nil {
		return b
	}
	added := &dto.MetricFamily{Name: b.Name, Help: b.Help, Type: b.Type}
	for i, of := range b.Metric {
		with := a.Metric[i]
		metric := &dto.Metric{Label: of.Label}
		switch b.GetType() {
		case dto.MetricType_COUNTER:
			value := with.GetCounter().GetValue() + of.GetCounter().GetValue()
			metric.Counter = &dto.Counter{Value: &value}
		case dto.MetricType_GAUGE:
			value := with.GetGauge().GetValue() + of.GetGauge().GetValue()
			metric.Gauge = &dto.Gauge{Value: &value}
		case dto.MetricType_HISTOGRAM:
			metric.Histogram = sumOfHistograms(with.GetHistogram(), of.GetHistogram())
		default:
			panic("an engine reports counters, gauges and histograms, not " + b.GetType().String())
		}
		added.Metric = append(added.Metric, metric)
	}
	return added
}

func sumOfHistograms(a, b *dto.Histogram) *dto.Histogram {
	count, total := a.GetSampleCount()+b.GetSampleCount(), a.GetSampleSum()+b.GetSampleSum()
	added := &dto.Histogram{SampleCount: &count, SampleSum: &total}
	for i, bucket := range b.Bucket {
		cumulative := a.Bucket[i].GetCumulativeCount() + bucket.GetCumulativeCount()
		added.Bucket = append(added.Bucket, &dto.Bucket{CumulativeCount: &cumulative, UpperBound: bucket.UpperBound})
	}
	return added
}

// perEngine returns the metrics of each engine under the names that begin with enginePrefix.
func perEngine(each []families, replicas []*replica) []*dto.MetricFamily {
	labelled := families{}
	for i, told := range each {
		for old, family := range told {
			if old == logMessagesDropped {
				continue
			}
			name := enginePrefix + strings.TrimPrefix(old, namePrefix)
			if labelled[name] == nil {
				labelled[name] = &dto.MetricFamily{Name: &name, Help: family.Help, Type: family.Type}
			}
			for _, m := range family.Metric {
				labelled[name].Metric = append(labelled[name].Metric, &dto.Metric{
					Label:   append(slices.Clone(m.Label), label(engineLabel, replicas[i].name)),
					Counter: m.Counter, Gauge: m.Gauge, Histogram: m.Histogram})
			}
		}
	}
	return slices.Collect(maps.Values(labelled))
}

// checkAliases refuses aliases for metrics that do not exist, and aliases that are no names or are taken.
func (e engineMetrics) checkAliases() error {
	all, _, err := e.read()
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, a := range e.aliases {
		switch {
		case all[a.name] == nil:
			return fmt.Errorf("-metric-aliases: there is no metric %s; there are %s", a.name,
				strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		case !names.LegacyValidation.IsValidMetricName(a.alias):
			return fmt.Errorf("-metric-aliases: %q is not the name of a metric: it must have letters, digits, _ and : only", a.alias)
		case taken[a.alias]:
			return fmt.Errorf("-metric-aliases: %s is named twice", a.alias)
		}
		for _, own := range []string{namePrefix, "go_", "process_", "promhttp_"} {
			if strings.HasPrefix(a.alias, own) {
				return fmt.Errorf("-metric-aliases: %s begins with %s, as metrics of this server do: choose another name", a.alias, own)
			}
		}
		taken[a.alias] = true
	}
	return nil
}
