package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"libnanovllm/bindings/go"
)

// A command is what the operator asked for: the engines, the settings of the server, and how it runs.
type command struct {
	engines  []nanovllm.Config
	settings settings
	addr     string
	drain    time.Duration
}

// defaultSkew is the default of -max-skew. Decode steps of batches that differ by so few sequences take nearly the same time.
const defaultSkew = 8

// parse parses the arguments of the program. An error has been written to output, with the usage.
func parse(args []string, output io.Writer) (*command, error) {
	c := &command{}
	s := &c.settings
	config := nanovllm.Config{MaxQueue: 512}
	var engines, devices []string
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&config.ModelPath, "model", "", "model `folder`; required")
	flags.IntVar(&config.MaxModelLen, "max-model-len", 0, "tokens of one sequence; 0 = the model's maximum")
	flags.Func("quantization", "how weights are quantized that are not quantized yet: `none`, int8 or int4", func(text string) error {
		known := map[string]nanovllm.Quantization{
			"none": nanovllm.QuantizationNone, "int8": nanovllm.QuantizationInt8, "int4": nanovllm.QuantizationInt4,
		}
		quantization, ok := known[text]
		if !ok {
			return errors.New("it must be none, int8 or int4")
		}
		config.Quantization = quantization
		return nil
	})
	engineFlags(flags, &config)
	flags.Func("engine", "an engine with `options` of its own, as NAME=VALUE,…, of "+strings.Join(engineOptions(), ", ")+
		"; the others are those of the flags; repeat it for several engines", func(text string) error {
		engines = append(engines, text)
		return nil
	})
	flags.Func("devices", "one engine per `device`, as 0,1: short for -engine device=0 -engine device=1", separated(&devices))
	flags.IntVar(&s.maxSkew, "max-skew", defaultSkew,
		"with several engines: `sequences` that one may have more than the least loaded one, and still get a prompt whose prefix it has cached")
	flags.Func("metric-aliases", "further `names` of the engines' metrics, as NAME=ALIAS,…, for load balancers that expect them",
		func(text string) (err error) {
			s.metricAliases, err = parseAliases(text)
			return err
		})
	flags.StringVar(&s.name, "name", "", "the model's name in the API; default the name of its folder")
	// The environment's key is no default of the flag, because -help and every error print the defaults.
	flags.StringVar(&s.apiKey, "api-key", "", "what clients must send, in visible ASCII; default $NANOVLLM_API_KEY, empty = nothing")
	flags.BoolVar(&s.allowNoKey, "allow-no-key", false, "listen beyond loopback without a key: whoever reaches the address may use the model")
	flags.Func("hosts", "other `names` of this server in Host headers, as HOST:PORT,…; asked for on loopback without a key", separated(&s.hosts))
	flags.Func("origins", "other `origins` whose pages may use this server, as https://HOST,…", separated(&s.origins))
	flags.BoolVar(&s.clientPriority, "client-priority", false, "let requests say their priority")
	flags.Int64Var(&s.maxBodyBytes, "max-body", defaults.maxBodyBytes, "largest request in `bytes`")
	flags.Int64Var(&s.maxBodiesBytes, "max-bodies", defaults.maxBodiesBytes,
		"`bytes` of all requests above 64 KiB that are read at once, before 503 is answered")
	flags.IntVar(&s.maxRequests, "max-requests", defaults.maxRequests,
		"requests that are answered at once before 503 is answered; there may be twice as many connections")
	flags.DurationVar(&s.bodyTimeout, "body-timeout", defaults.bodyTimeout, "longest time for a request to arrive")
	flags.DurationVar(&s.writeTimeout, "write-timeout", defaults.writeTimeout,
		"longest time for a client to take an answer, or one event of a stream")
	flags.DurationVar(&s.requestTimeout, "request-timeout", 10*time.Minute, "longest time for one request")
	pooling := flags.String("pooling", "last", "what an embedding is: \"last\" or \"mean\" of the tokens' states")
	flags.StringVar(&c.addr, "addr", "localhost:8000", "where to listen")
	flags.DurationVar(&c.drain, "drain", 30*time.Second, "longest time to end requests after SIGTERM")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	keyFromFlag := false
	flags.Visit(func(f *flag.Flag) { keyFromFlag = keyFromFlag || f.Name == "api-key" })
	if !keyFromFlag {
		s.apiKey = os.Getenv("NANOVLLM_API_KEY")
	}
	err := c.complete(config, engines, devices, *pooling)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(output, err)
		flags.Usage()
	}
	return c, err
}

// complete checks the flags that depend on others.
func (c *command) complete(config nanovllm.Config, engines, devices []string, pooling string) (err error) {
	if config.ModelPath == "" {
		return errors.New("-model is required")
	}
	if c.settings.name == "" {
		folder, err := filepath.Abs(config.ModelPath)
		if err != nil {
			return err
		}
		c.settings.name = filepath.Base(folder)
	}
	known := map[string]nanovllm.Pooling{"last": nanovllm.PoolingLast, "mean": nanovllm.PoolingMean}
	if c.settings.pooling = known[pooling]; c.settings.pooling == nanovllm.PoolingNone {
		return fmt.Errorf("-pooling is %q, but it must be \"last\" or \"mean\"", pooling)
	}
	if c.drain < 0 {
		return fmt.Errorf("-drain is %v, but it must not be below 0", c.drain)
	}
	// Before a model is read.
	c.settings.setDefaults()
	if err := c.settings.check(); err != nil {
		return err
	}
	if len(engines) > 0 && len(devices) > 0 {
		return errors.New("-devices and -engine exclude each other: use -engine device=… for each engine")
	}
	for _, device := range devices {
		engines = append(engines, "device="+device)
	}
	if len(engines) == 0 {
		c.engines = []nanovllm.Config{config}
	}
	for _, text := range engines {
		own, err := ownOptions(config, text)
		if err != nil {
			return fmt.Errorf("-engine %s: %w", text, err)
		}
		c.engines = append(c.engines, own)
	}
	return nil
}

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
