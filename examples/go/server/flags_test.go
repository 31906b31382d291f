package main

import (
	"bytes"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"libnanovllm/bindings/go"
)

func TestEnginesHaveTheOptionsOfTheFlagsAndTheirOwn(t *testing.T) {
	base := nanovllm.Config{ModelPath: "m", MaxQueue: 512}
	with := func(change func(c *nanovllm.Config)) nanovllm.Config {
		made := base
		change(&made)
		return made
	}
	gpu := func(index int) nanovllm.Config {
		return with(func(c *nanovllm.Config) { c.Device, c.DeviceIndex = nanovllm.DeviceCUDA, index })
	}
	cases := []struct {
		args string
		want []nanovllm.Config
	}{
		{"", []nanovllm.Config{base}},
		{"-device cpu", []nanovllm.Config{with(func(c *nanovllm.Config) { c.Device = nanovllm.DeviceCPU })}},
		{"-device auto", []nanovllm.Config{with(func(c *nanovllm.Config) { c.Device = nanovllm.DeviceAuto })}},
		{"-device cuda:3", []nanovllm.Config{gpu(3)}},
		{"-device 3 -engine device=cpu", []nanovllm.Config{with(func(c *nanovllm.Config) { c.Device = nanovllm.DeviceCPU })}},
		{"-kv-cache-dtype int8 -engine device=cpu -engine kv-cache-dtype=auto", []nanovllm.Config{
			with(func(c *nanovllm.Config) { c.KVCacheDType, c.Device = nanovllm.KVCacheInt8, nanovllm.DeviceCPU }),
			base,
		}},
		{"-devices 0,1", []nanovllm.Config{gpu(0), gpu(1)}},
		{"-engine device=1 -engine device=cuda", []nanovllm.Config{gpu(1), gpu(0)}},
		{"-engine threads=2,device=cpu -threads 4 -engine max-num-seqs=8 -max-model-len 100 -engine tensor-parallel-size=2,max-queue=0,kv-cache-bytes=99",
			[]nanovllm.Config{
				with(func(c *nanovllm.Config) { c.NumThreads, c.MaxModelLen, c.Device = 2, 100, nanovllm.DeviceCPU }),
				with(func(c *nanovllm.Config) { c.NumThreads, c.MaxModelLen, c.MaxNumSeqs = 4, 100, 8 }),
				with(func(c *nanovllm.Config) {
					c.NumThreads, c.MaxModelLen, c.TensorParallel, c.MaxQueue, c.KVCacheBytes = 4, 100, 2, 0, 99
				}),
			}},
	}
	for _, c := range cases {
		var told bytes.Buffer
		parsed, err := parse(append([]string{"-model", "m"}, strings.Fields(c.args)...), &told)
		if err != nil || !reflect.DeepEqual(parsed.models[0].engines, c.want) {
			t.Errorf("%s: %+v %v", c.args, parsed, err)
		}
	}
}

func TestTheCommandsOfTheManualAreParsed(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	var engines []int
	for _, found := range regexp.MustCompile(`(?m)^\./nanovllm-server (-.*)$`).FindAllSubmatch(manual, -1) {
		var told bytes.Buffer
		parsed, err := parse(strings.Fields(string(found[1])), &told)
		if err != nil {
			t.Errorf("%s: %s", found[1], told.String())
			continue
		}
		engines = append(engines, len(parsed.models[0].engines))
	}
	if !slices.Equal(engines, []int{4, 2, 2}) {
		t.Errorf("the commands open %v engines", engines)
	}
}

func TestFlagsThatCannotBeAreRefused(t *testing.T) {
	cases := []struct{ args, message string }{
		{"-threads 1", "a model is required"},
		{"-model m -device gpu", `not "gpu"`},
		{"-model m -device cuda:-1", `not "cuda:-1"`},
		{"-model m -device cuda:4294967296", `not "cuda:4294967296"`},
		{"-model m -devices 0,", `not ""`},
		{"-model m -devices 0 -engine device=1", "exclude each other"},
		{"-model m -engine model=other", `"model=other" is not NAME=VALUE with a NAME of device, `},
		{"-model m -engine max-model-len=5", `"max-model-len=5" is not NAME=VALUE`},
		{"-model m -engine threads", `"threads" is not NAME=VALUE`},
		{"-model m -engine threads=x", "-engine threads=x: threads=x: "},
		{"-model m -metric-aliases a", `"a" is not NAME=ALIAS`},
		{"-model m -pooling first", `-pooling is "first"`},
		{"-model m -drain -1s", "-drain is -1s, but"},
		{"-model m -request-timeout -1s", "-request-timeout must not be below 0"},
		{"-model m -max-bodies 1", "-max-bodies is 1, but"},
		{"-model m more", `"more" is a model, but so is that of -model`},
	}
	for _, c := range cases {
		var told bytes.Buffer
		if _, err := parse(strings.Fields(c.args), &told); err == nil || !strings.Contains(told.String(), c.message) {
			t.Errorf("%s: %v, and it says %s", c.args, err, told.String())
		}
	}
}

func TestTheKeyOfTheEnvironmentIsReadAndNeverPrinted(t *testing.T) {
	t.Setenv("NANOVLLM_API_KEY", "sesame")
	for _, c := range []struct{ args, keys string }{
		{"-model m", "sesame"},
		{"-model m -api-key other", "other"},
		{"-model m -api-key=", ""},
	} {
		if parsed, err := parse(strings.Fields(c.args), io.Discard); err != nil || strings.Join(parsed.settings.apiKeys, " ") != c.keys {
			t.Errorf("%s: %+v %v", c.args, parsed, err)
		}
	}
	for _, args := range []string{"-help", "-model m -threads x", "-unknown", "-model m -pooling first"} {
		var told bytes.Buffer
		if _, err := parse(strings.Fields(args), &told); err == nil || strings.Contains(told.String(), "sesame") {
			t.Errorf("%s: %v, and it says %s", args, err, told.String())
		}
	}
	for _, key := range []string{"sesame\n", " sesame", "sesame\r\n", "ses ame", "sésame"} {
		t.Setenv("NANOVLLM_API_KEY", key)
		var told bytes.Buffer
		if _, err := parse([]string{"-model", "m"}, &told); err == nil || !strings.Contains(told.String(), "visible ASCII characters") ||
			strings.Contains(told.String(), "same") {
			t.Errorf("%q: %v, and it says %s", key, err, told.String())
		}
	}
}
