package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"libnanovllm/bindings/go"
)

// A command is what the operator asked for: the models, the settings of the server, and how it runs.
type command struct {
	models    []*model
	isCatalog bool   // the models come from a file, and open when they are needed
	memory    uint64 // bytes for all open models; 0 = no limit
	settings  settings
	addr      string
	drain     time.Duration
	log       *slog.Logger
	isVersion bool
}

// defaultSkew is the default of -max-skew. Decode steps of batches that differ by so few sequences take nearly the same time.
const defaultSkew = 8

// A modelSpec is a model as flags or a file describe it.
type modelSpec struct {
	config  nanovllm.Config
	engines []string // options of engines of their own
	devices []string
	name    string
	aliases []string
	pooling string
	preload bool

	scoreTokens   []string
	scoreTemplate string // a file
}

// modelFlags are the flags of one model, which are also the keys of a model in a file of models.
func modelFlags(flags *flag.FlagSet, m *modelSpec) {
	config := &m.config
	flags.StringVar(&config.ModelPath, "model", config.ModelPath, "model `folder` or GGUF file; also as an argument without a flag")
	flags.StringVar(&m.name, "name", m.name, "the model's name in the API; default the name of its folder, or of its file without .gguf")
	flags.Func("aliases", "further `names` of the model in the API, as NAME,…", separated(&m.aliases))
	flags.StringVar(&m.pooling, "pooling", m.pooling, "what an embedding is: \"last\", \"mean\" or \"cls\" of the tokens' states, or \"auto\" as the model's folder says")
	flags.Func("score-tokens", "`tokens` by whose probabilities a model that generates scores pairs, as yes,no: the score is that of the first among them", separated(&m.scoreTokens))
	flags.StringVar(&m.scoreTemplate, "score-template", m.scoreTemplate, "`file` with the text after which these tokens come, in which {query} and {document} stand for the texts of a pair")
	flags.IntVar(&config.MaxModelLen, "max-model-len", config.MaxModelLen, "tokens of one sequence; 0 = the model's maximum")
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
	engineFlags(flags, config)
	flags.Func("engine", "an engine with `options` of its own, as NAME=VALUE,…, of "+strings.Join(engineOptions(), ", ")+
		"; the others are those of the flags; repeat it for several engines", func(text string) error {
		m.engines = append(m.engines, text)
		return nil
	})
	flags.Func("devices", "one engine per `device`, as 0,1: short for -engine device=0 -engine device=1", separated(&m.devices))
}

// parse parses the arguments of the program. An error has been written to output.
func parse(args []string, output io.Writer) (*command, error) {
	c := &command{}
	s := &c.settings
	spec := modelSpec{config: nanovllm.Config{MaxQueue: 512}, pooling: "last"}
	var file, keyFile, memory, logFormat, logLevel string
	port := 0
	flags := flag.NewFlagSet("nanovllm-server", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() {
		fmt.Fprintln(output, "usage: nanovllm-server [FLAGS] MODEL\n       nanovllm-server [FLAGS] -config FILE")
		flags.PrintDefaults()
	}
	modelFlags(flags, &spec)
	flags.StringVar(&file, "config", "", "`file` in TOML: flags by their names, and [[models]], each with flags of its own")
	flags.StringVar(&memory, "memory", "0", "with -config: `bytes` that the weights and KV caches of all open models may take, also as 24GiB; 0 = no limit")
	flags.IntVar(&s.maxSkew, "max-skew", defaultSkew,
		"with several engines: `sequences` that one may have more than the least loaded one, and still get a prompt whose prefix it has cached")
	flags.Func("metric-aliases", "further `names` of the engines' metrics, as NAME=ALIAS,…, for load balancers that expect them",
		func(text string) (err error) {
			s.metricAliases, err = parseAliases(text)
			return err
		})
	// The environment's key is no default of the flag, because -help and every error print the defaults.
	flags.Func("api-key", "what clients must send, in visible ASCII; may be repeated; default $NANOVLLM_API_KEY, empty = nothing",
		func(text string) error {
			s.apiKeys = append(s.apiKeys, text)
			return nil
		})
	flags.StringVar(&keyFile, "api-key-file", "", "`file` with keys, one per line; lines that begin with # are comments")
	flags.BoolVar(&s.allowNoKey, "allow-no-key", false, "listen beyond loopback without a key: whoever reaches the address may use the model")
	flags.Func("hosts", "other `names` of this server in Host headers, as HOST:PORT,…; asked for on loopback without a key", separated(&s.hosts))
	flags.Func("origins", "other `origins` whose pages may use this server, as https://HOST,…", separated(&s.origins))
	flags.StringVar(&s.tlsCert, "tls-cert", "", "`file` with the certificate of TLS, and those that it depends on, in PEM")
	flags.StringVar(&s.tlsKey, "tls-key", "", "`file` with the private key of the certificate, in PEM")
	flags.BoolVar(&s.clientPriority, "client-priority", false, "let requests say their priority")
	flags.BoolVar(&s.lenient, "lenient", false, "ignore fields of requests that the server does not know, with a warning in the log, instead of 400")
	flags.Int64Var(&s.maxBodyBytes, "max-body", defaults.maxBodyBytes, "largest request in `bytes`")
	flags.Int64Var(&s.maxBodiesBytes, "max-bodies", defaults.maxBodiesBytes,
		"`bytes` of all requests above 64 KiB that are read at once, before 503 is answered")
	flags.IntVar(&s.maxRequests, "max-requests", defaults.maxRequests,
		"requests that are answered at once before 503 is answered; there may be twice as many connections")
	flags.DurationVar(&s.bodyTimeout, "body-timeout", defaults.bodyTimeout, "longest time for a request to arrive")
	flags.DurationVar(&s.writeTimeout, "write-timeout", defaults.writeTimeout,
		"longest time for a client to take an answer, or one event of a stream")
	flags.DurationVar(&s.requestTimeout, "request-timeout", 10*time.Minute, "longest time for one request")
	flags.StringVar(&c.addr, "addr", "localhost:8000", "where to listen")
	flags.IntVar(&port, "port", 0, "short for -addr localhost:`PORT`")
	flags.BoolVar(&s.publicMetrics, "public-metrics", false, "let /metrics answer without a key, as load balancers ask")
	flags.StringVar(&s.metricsAddr, "metrics-addr", "", "`address` of its own for /metrics, which then needs no key")
	flags.DurationVar(&c.drain, "drain", 30*time.Second, "longest time to end requests after SIGTERM")
	flags.StringVar(&logFormat, "log-format", "text", "text or json")
	flags.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	flags.BoolVar(&s.accessLog, "access-log", true, "one line in the log per request")
	flags.BoolVar(&c.isVersion, "version", false, "print the version and exit")
	arguments, err := parseAll(flags, args)
	if err != nil {
		return nil, err
	}
	if c.isVersion {
		return c, nil
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	err = func() error {
		if len(arguments) > 1 {
			return fmt.Errorf("%q is one model too many: %q is the model", arguments[1], arguments[0])
		}
		if len(arguments) == 1 {
			if given["model"] {
				return fmt.Errorf("%q is a model, but so is that of -model: give one of them", arguments[0])
			}
			spec.config.ModelPath = arguments[0]
		}
		var models []*modelSpec
		if file != "" {
			if models, err = readFile(file, flags, given, &spec); err != nil {
				return fmt.Errorf("-config %s: %w", file, err)
			}
		}
		if given["port"] {
			if given["addr"] {
				return errors.New("-port and -addr exclude each other: -addr HOST:PORT says both")
			}
			if port < 0 || port > 65535 {
				return fmt.Errorf("-port is %d, but it must be from 0 to 65535", port)
			}
			c.addr = "localhost:" + strconv.Itoa(port)
		}
		if !given["api-key"] && os.Getenv("NANOVLLM_API_KEY") != "" {
			s.apiKeys = []string{os.Getenv("NANOVLLM_API_KEY")}
		}
		if err := s.readKeys(keyFile); err != nil {
			return err
		}
		if c.memory, err = parseBytes(memory); err != nil {
			return fmt.Errorf("-memory: %w", err)
		}
		if c.log, err = newLog(output, logFormat, logLevel); err != nil {
			return err
		}
		return c.complete(&spec, models)
	}()
	if err != nil {
		fmt.Fprintln(output, err)
		fmt.Fprintln(output, "nanovllm-server -help lists the flags")
	}
	return c, err
}

// parseAll parses flags that may stand before and after arguments.
func parseAll(flags *flag.FlagSet, args []string) (arguments []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return arguments, nil
		}
		arguments = append(arguments, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

// readKeys adds the keys of a file, and leaves empty ones out.
func (s *settings) readKeys(file string) error {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("-api-key-file: %w", err)
		}
		found := len(s.apiKeys)
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				s.apiKeys = append(s.apiKeys, line)
			}
		}
		if len(s.apiKeys) == found {
			return fmt.Errorf("-api-key-file: %s has no key", file)
		}
	}
	s.apiKeys = slices.DeleteFunc(s.apiKeys, func(key string) bool { return key == "" })
	return nil
}

// parseBytes parses a number of bytes, which may have the unit KiB, MiB, GiB or TiB.
func parseBytes(text string) (uint64, error) {
	number, unit := strings.TrimSpace(text), uint64(1)
	for i, name := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, has := strings.CutSuffix(number, name); has {
			number, unit = strings.TrimSpace(rest), 1<<(10*(i+1))
		}
	}
	value, err := strconv.ParseUint(number, 10, 64)
	if err != nil || value > math.MaxUint64/unit {
		return 0, fmt.Errorf("%q is not a number of bytes, such as 25769803776 or 24GiB", text)
	}
	return value * unit, nil
}

// complete checks the flags that depend on others.
func (c *command) complete(spec *modelSpec, models []*modelSpec) error {
	if c.drain < 0 {
		return fmt.Errorf("-drain is %v, but it must not be below 0", c.drain)
	}
	// Before a model is read.
	c.settings.setDefaults()
	if err := c.settings.check(); err != nil {
		return err
	}
	c.isCatalog = len(models) > 0
	switch {
	case !c.isCatalog && spec.config.ModelPath == "":
		return errors.New("a model is required: nanovllm-server FOLDER, or -model FOLDER, or -config FILE with [[models]]")
	case c.isCatalog && spec.config.ModelPath != "":
		return errors.New("-model and the [[models]] of -config exclude each other")
	case c.isCatalog && len(c.settings.metricAliases) > 0:
		return errors.New("-metric-aliases are for one model, but -config has [[models]]")
	case !c.isCatalog && c.memory > 0:
		return errors.New("-memory is for the [[models]] of -config: -kv-cache-bytes limits one model")
	case !c.isCatalog:
		models = []*modelSpec{spec}
	}
	taken := map[string]bool{}
	for _, one := range models {
		m, err := one.model()
		if err != nil {
			return err
		}
		for _, name := range append([]string{m.name}, m.aliases...) {
			if taken[name] || name == "" {
				return fmt.Errorf("the name %q of a model is empty or taken: -name and -aliases choose names", name)
			}
			taken[name] = true
		}
		c.models = append(c.models, m)
	}
	return nil
}

// model checks a description of a model.
func (m *modelSpec) model() (*model, error) {
	made := &model{name: m.name, aliases: m.aliases, preload: m.preload}
	if made.name == "" {
		path, err := filepath.Abs(m.config.ModelPath)
		if err != nil {
			return nil, err
		}
		made.name = strings.TrimSuffix(filepath.Base(path), ".gguf")
	}
	known := map[string]nanovllm.Pooling{"last": nanovllm.PoolingLast, "mean": nanovllm.PoolingMean, "cls": nanovllm.PoolingCLS,
		"auto": nanovllm.PoolingAuto}
	if made.pooling = known[m.pooling]; made.pooling == nanovllm.PoolingNone {
		return nil, fmt.Errorf("-pooling is %q, but it must be \"last\", \"mean\", \"cls\" or \"auto\"", m.pooling)
	}
	scoring, err := newScoring(m.scoreTokens, m.scoreTemplate)
	if err != nil {
		return nil, err
	}
	made.scoring = scoring
	engines := m.engines
	if len(engines) > 0 && len(m.devices) > 0 {
		return nil, errors.New("-devices and -engine exclude each other: use -engine device=… for each engine")
	}
	for _, device := range m.devices {
		engines = append(engines, "device="+device)
	}
	if len(engines) == 0 {
		made.engines = []nanovllm.Config{m.config}
	}
	for _, text := range engines {
		own, err := ownOptions(m.config, text)
		if err != nil {
			return nil, fmt.Errorf("-engine %s: %w", text, err)
		}
		made.engines = append(made.engines, own)
	}
	return made, nil
}
