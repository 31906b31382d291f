package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"libnanovllm/bindings/go"
)

// engineFlags adds the options in which engines may differ. The limits of a request are not among them, so that all engines accept the
// same requests.
func engineFlags(flags *flag.FlagSet, config *nanovllm.Config) {
	flags.Func("device", "where to compute: auto, cpu, cuda, or the index of a GPU, as 1 or cuda:1; default auto", func(text string) error {
		return parseDevice(config, text)
	})
	flags.IntVar(&config.NumThreads, "threads", config.NumThreads, "threads that compute, per engine; 0 = all cores")
	flags.IntVar(&config.TensorParallel, "tensor-parallel-size", config.TensorParallel,
		"ranks that compute together, per engine: the GPU of its device and those after it, or groups of threads; 0 = 1")
	flags.IntVar(&config.MaxNumSeqs, "max-num-seqs", config.MaxNumSeqs, "sequences that run at once, per engine; 0 = default of the device")
	flags.IntVar(&config.MaxQueue, "max-queue", config.MaxQueue,
		fmt.Sprintf("completions that may wait, per engine, before 429 is answered; 0 = only the library's limit of %d", nanovllm.MaxQueuedCompletions))
	flags.Uint64Var(&config.KVCacheBytes, "kv-cache-bytes", config.KVCacheBytes,
		"`bytes` of the KV cache, per engine; 0 = a part of the memory of the device")
	flags.Func("kv-cache-dtype", "how keys and values are stored, per engine: auto (as the weights) or int8; default auto", func(text string) error {
		return parseKVCacheDType(config, text)
	})
	flags.IntVar(&config.HostExpertLayers, "host-expert-layers", config.HostExpertLayers,
		"layers whose experts stay in host memory beside a GPU, per engine; 0 = as many as the GPU has no memory for, -1 = none")
	flags.BoolVar(&config.ExpertParallel, "expert-parallel", config.ExpertParallel,
		"with several ranks, each holds some experts whole, in place of a share of each, per engine")
}

// engineOptions are the names of the flags of engineFlags.
func engineOptions() (options []string) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	engineFlags(flags, &nanovllm.Config{})
	flags.VisitAll(func(f *flag.Flag) { options = append(options, f.Name) })
	return options
}

// ownOptions returns config with the options of one -engine.
func ownOptions(config nanovllm.Config, text string) (nanovllm.Config, error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	engineFlags(flags, &config)
	for _, option := range strings.Split(text, ",") {
		name, value, isPair := strings.Cut(option, "=")
		if !isPair || flags.Lookup(name) == nil {
			return config, fmt.Errorf("%q is not NAME=VALUE with a NAME of %s", option, strings.Join(engineOptions(), ", "))
		}
		if err := flags.Set(name, value); err != nil {
			return config, fmt.Errorf("%s: %w", option, err)
		}
	}
	return config, nil
}

func parseDevice(config *nanovllm.Config, text string) error {
	config.DeviceIndex = 0
	named := map[string]nanovllm.Device{"auto": nanovllm.DeviceAuto, "cpu": nanovllm.DeviceCPU, "cuda": nanovllm.DeviceCUDA}
	if device, isNamed := named[text]; isNamed {
		config.Device = device
		return nil
	}
	index, err := strconv.ParseUint(strings.TrimPrefix(text, "cuda:"), 10, 31)
	if err != nil {
		return fmt.Errorf("a device is auto, cpu, cuda, or the index of a GPU, as 1 or cuda:1, not %q", text)
	}
	config.Device, config.DeviceIndex = nanovllm.DeviceCUDA, int(index)
	return nil
}

func parseKVCacheDType(config *nanovllm.Config, text string) error {
	named := map[string]nanovllm.KVCacheDType{"auto": nanovllm.KVCacheAuto, "int8": nanovllm.KVCacheInt8}
	dtype, isNamed := named[text]
	if !isNamed {
		return fmt.Errorf("a KV cache is auto or int8, not %q", text)
	}
	config.KVCacheDType = dtype
	return nil
}

// parseAliases parses NAME=ALIAS,….
func parseAliases(text string) (aliases []alias, err error) {
	for _, pair := range strings.Split(text, ",") {
		name, other, isPair := strings.Cut(pair, "=")
		if !isPair {
			return nil, fmt.Errorf("%q is not NAME=ALIAS", pair)
		}
		aliases = append(aliases, alias{name, other})
	}
	return aliases, nil
}

// separated parses a flag with texts that are separated by commas.
func separated(into *[]string) func(string) error {
	return func(text string) error {
		*into = strings.Split(text, ",")
		return nil
	}
}

// open opens the engines one after another, so that those on one GPU see what the earlier ones have taken. If one cannot be opened, none
// is.
func open(configs []nanovllm.Config) (engines []*nanovllm.Engine, err error) {
	for i, config := range configs {
		engine, err := nanovllm.New(config)
		if err != nil {
			closeAll(engines)
			if len(configs) > 1 {
				err = fmt.Errorf("engine %d: %w", i, err)
			}
			return nil, err
		}
		engines = append(engines, engine)
	}
	return engines, nil
}

func closeAll(engines []*nanovllm.Engine) {
	for _, engine := range slices.Backward(engines) {
		_ = engine.Close()
	}
}
