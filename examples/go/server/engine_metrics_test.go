package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"

	"libnanovllm/bindings/go"
)

func mustContain(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
}

func TestMetricsOfTwoEnginesAreTotalsAndParts(t *testing.T) {
	s := startReplicas(t, 2, demoConfig(), settings{})
	for i := range 5 {
		s.complete(t, fmt.Sprintf("prompt %d", i), 4+i)
	}
	_, text := s.get(t, "/metrics")
	var all nanovllm.Stats
	for i, engine := range s.engines {
		stats, err := engine.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if stats.GeneratedTokens == 0 {
			t.Fatalf("engine %d has done nothing", i)
		}
		all.Steps += stats.Steps
		all.GeneratedTokens += stats.GeneratedTokens
		all.KVBlocksTotal += stats.KVBlocksTotal
		mustContain(t, text,
			fmt.Sprintf(`nanovllm_engine_generated_tokens_total{engine="%d"} %d`, i, stats.GeneratedTokens),
			fmt.Sprintf(`nanovllm_engine_kv_blocks{engine="%d"} %d`, i, stats.KVBlocksTotal),
			fmt.Sprintf(`nanovllm_engine_kv_cache_utilization{engine="%d"} 0`, i),
			fmt.Sprintf(`nanovllm_engine_pass_time_seconds_count{engine="%d"} %d`, i, stats.Steps),
			fmt.Sprintf(`nanovllm_engine_up{device="cpu",engine="%d"} 1`, i))
	}
	mustContain(t, text,
		fmt.Sprintf("nanovllm_generated_tokens_total %d", all.GeneratedTokens),
		fmt.Sprintf("nanovllm_passes_total %d", all.Steps),
		fmt.Sprintf("nanovllm_kv_blocks %d", all.KVBlocksTotal),
		fmt.Sprintf("nanovllm_pass_time_seconds_count %d", all.Steps),
		`nanovllm_finished_total{reason="length"} 5`,
		`nanovllm_time_to_first_token_seconds_count 5`,
		`nanovllm_time_to_first_token_seconds_bucket{le="+Inf"} 5`,
		`nanovllm_requests_running 0`,
		"nanovllm_log_messages_dropped_total 0")
	if strings.Contains(text, "nanovllm_engine_log_messages_dropped_total") {
		t.Error("a metric of the process is reported per engine")
	}
}

func TestTotalsAreSums(t *testing.T) {
	const text = `# TYPE nanovllm_finished_total counter
nanovllm_finished_total{reason="stop"} 3
nanovllm_finished_total{reason="length"} 4
# TYPE nanovllm_kv_blocks gauge
nanovllm_kv_blocks 10
# TYPE nanovllm_log_messages_dropped_total counter
nanovllm_log_messages_dropped_total 7
# TYPE nanovllm_pass_rows histogram
nanovllm_pass_rows_bucket{le="1"} 1
nanovllm_pass_rows_bucket{le="2"} 5
nanovllm_pass_rows_bucket{le="+Inf"} 6
nanovllm_pass_rows_sum 20
nanovllm_pass_rows_count 6
`
	read := func() families {
		parser := expfmt.NewTextParser(names.LegacyValidation)
		told, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
	var written strings.Builder
	for _, family := range total([]families{read(), read(), read()}) {
		if _, err := expfmt.MetricFamilyToText(&written, family); err != nil {
			t.Fatal(err)
		}
	}
	mustContain(t, written.String(), `nanovllm_finished_total{reason="stop"} 9`, `nanovllm_finished_total{reason="length"} 12`,
		"nanovllm_kv_blocks 30", "nanovllm_log_messages_dropped_total 7",
		`nanovllm_pass_rows_bucket{le="1"} 3`, `nanovllm_pass_rows_bucket{le="2"} 15`, `nanovllm_pass_rows_bucket{le="+Inf"} 18`,
		"nanovllm_pass_rows_sum 60", "nanovllm_pass_rows_count 18")
}

// The names and types of one engine's metrics are an interface, on which dashboards rely.
func TestMetricsOfOneEngineHaveNoParts(t *testing.T) {
	kinds := regexp.MustCompile(`(?m)^# TYPE (nanovllm_\S+) (\S+)$`)
	of := func(s *service) map[string]string {
		named := map[string]string{}
		_, text := s.get(t, "/metrics")
		for _, found := range kinds.FindAllStringSubmatch(text, -1) {
			named[found[1]] = found[2]
		}
		return named
	}
	single, double := startReplicas(t, 1, demoConfig(), settings{}), startReplicas(t, 2, demoConfig(), settings{})
	told, err := single.engine.MetricsText()
	if err != nil {
		t.Fatal(err)
	}
	one, two := of(single), of(double)
	for _, found := range kinds.FindAllStringSubmatch(told, -1) {
		if one[found[1]] != found[2] || two[found[1]] != found[2] {
			t.Errorf("%s is a %q of one engine and a %q of two, but the engine reports a %s", found[1], one[found[1]], two[found[1]], found[2])
		}
	}
	for name := range one {
		if strings.HasPrefix(name, enginePrefix) && name != "nanovllm_engine_up" {
			t.Errorf("one engine has %s", name)
		}
		if two[name] != one[name] {
			t.Errorf("%s is a %q of one engine and a %q of two", name, one[name], two[name])
		}
	}
	if len(two) <= len(one) {
		t.Errorf("two engines have %v, and one has %v", slices.Sorted(maps.Keys(two)), slices.Sorted(maps.Keys(one)))
	}
}

func TestAMetricHasItsAliasesToo(t *testing.T) {
	config := demoConfig()
	config.KVBlockSize = 16
	aliases, err := parseAliases("nanovllm_requests_waiting=vllm:num_requests_waiting,nanovllm_requests_running=vllm:num_requests_running," +
		"nanovllm_kv_cache_utilization=vllm:kv_cache_usage_perc,nanovllm_cache_config_info=vllm:cache_config_info")
	if err != nil {
		t.Fatal(err)
	}
	for _, engines := range []int{1, 2} {
		s := startReplicas(t, engines, config, settings{metricAliases: aliases})
		for range 3 {
			s.begin(t, endlessChat+`}`)
		}
		_, text := s.get(t, "/metrics")
		blocks := s.metric(t, "nanovllm_kv_blocks")
		mustContain(t, text, "nanovllm_requests_running 3", "vllm:num_requests_running 3", "vllm:num_requests_waiting 0",
			"# TYPE vllm:kv_cache_usage_perc gauge",
			fmt.Sprintf(`vllm:cache_config_info{block_size="16",num_gpu_blocks="%d"} 1`, blocks))
		used := regexp.MustCompile(`(?m)^vllm:kv_cache_usage_perc (0\.\d+)`).FindString(text)
		if used == "" || strings.HasSuffix(used, " 0.0") {
			t.Errorf("three requests run, but the KV cache is used by %q", used)
		}
		if count := len(regexp.MustCompile(`(?m)^vllm:num_requests_running`).FindAllString(text, -1)); count != 1 {
			t.Errorf("%d samples, but a load balancer reads one", count)
		}
	}
}

func TestAliasesThatCannotBeAreRefused(t *testing.T) {
	engine, err := nanovllm.New(demoConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	cases := []struct{ aliases, message string }{
		{"nanovllm_requests_runing=x", "there is no metric nanovllm_requests_runing; there are nanovllm_"},
		{"nanovllm_requests_running=a-b", `"a-b" is not the name of a metric`},
		{"nanovllm_requests_running=", `"" is not the name of a metric`},
		{"nanovllm_requests_running=x,nanovllm_requests_waiting=x", "x is named twice"},
		{"nanovllm_requests_running=nanovllm_kv_blocks", "begins with nanovllm_"},
		{"nanovllm_requests_running=go_goroutines", "begins with go_"},
	}
	for _, c := range cases {
		aliases, err := parseAliases(c.aliases)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := serverOf([]*nanovllm.Engine{engine}, settings{metricAliases: aliases}); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", c.aliases, err)
		}
	}
	if _, err := parseAliases("nanovllm_requests_running"); err == nil {
		t.Error("a name without an alias is accepted")
	}
}
