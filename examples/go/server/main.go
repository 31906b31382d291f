// Server serves the OpenAI API from one model folder: chat completions and completions, with streaming, embeddings, a chat page at /, and
// metrics for Prometheus.
//
//	go run . -model ../../../models/demo -addr localhost:8000
//
// Without a key it serves this machine only: it listens on loopback, requires a Host header that names loopback, and rejects POST
// requests from pages of other origins. To serve other machines, set NANOVLLM_API_KEY and put a proxy with TLS in front. /health,
// /metrics and the page need no key.
//
// Requests are limited in size, number and time: -help lists the flags, and limits.go has the limits that no flag changes.
//
// On SIGINT or SIGTERM it refuses new requests with 503 and exits when the accepted requests are complete; requests that are left
// after -drain end with an error. A second signal ends the process at once.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"libnanovllm/bindings/go"
)

func main() {
	var config nanovllm.Config
	var settings settings
	flag.StringVar(&config.ModelPath, "model", "", "model `folder`; required")
	flag.IntVar(&config.NumThreads, "threads", 0, "threads that compute; 0 = all cores")
	flag.IntVar(&config.MaxModelLen, "max-model-len", 0, "tokens of one sequence; 0 = the model's maximum")
	flag.IntVar(&config.MaxNumSeqs, "max-num-seqs", 0, "sequences that run at once; 0 = default of the device")
	flag.IntVar(&config.MaxQueue, "max-queue", 512, "requests that may wait before 429 is answered; 0 = no limit")
	flag.StringVar(&settings.name, "name", "", "the model's name in the API; default the name of its folder")
	flag.StringVar(&settings.apiKey, "api-key", os.Getenv("NANOVLLM_API_KEY"),
		"what clients must send; default $NANOVLLM_API_KEY, empty = nothing")
	flag.BoolVar(&settings.allowNoKey, "allow-no-key", false, "listen beyond loopback without a key: whoever reaches the address may use the model")
	flag.Func("hosts", "other `names` of this server in Host headers, as HOST:PORT,…; asked for on loopback without a key", list(&settings.hosts))
	flag.Func("origins", "other `origins` whose pages may use this server, as https://HOST,…; asked for on loopback without a key", list(&settings.origins))
	flag.BoolVar(&settings.clientPriority, "client-priority", false, "let requests say their priority")
	flag.Int64Var(&settings.maxBodyBytes, "max-body", defaults.maxBodyBytes, "largest request in `bytes`")
	flag.Int64Var(&settings.maxBodiesBytes, "max-bodies", defaults.maxBodiesBytes,
		"`bytes` of all requests above 64 KiB that are read at once, before 503 is answered")
	flag.IntVar(&settings.maxRequests, "max-requests", defaults.maxRequests,
		"requests that are answered at once before 503 is answered; there may be twice as many connections")
	flag.DurationVar(&settings.bodyTimeout, "body-timeout", defaults.bodyTimeout, "longest time for a request to arrive")
	flag.DurationVar(&settings.writeTimeout, "write-timeout", defaults.writeTimeout,
		"longest time for a client to take an answer, or one event of a stream")
	flag.DurationVar(&settings.requestTimeout, "request-timeout", 10*time.Minute, "longest time for one request")
	pooling := flag.String("pooling", "last", "what an embedding is: \"last\" or \"mean\" of the tokens' states")
	addr := flag.String("addr", "localhost:8000", "where to listen")
	drain := flag.Duration("drain", 30*time.Second, "longest time to end requests after SIGTERM")
	flag.Parse()
	known := map[string]nanovllm.Pooling{"last": nanovllm.PoolingLast, "mean": nanovllm.PoolingMean}
	settings.pooling = known[*pooling]
	if config.ModelPath == "" || settings.pooling == nanovllm.PoolingNone {
		flag.Usage()
		os.Exit(2)
	}
	if settings.name == "" {
		folder, err := filepath.Abs(config.ModelPath)
		if err != nil {
			log.Fatal(err)
		}
		settings.name = filepath.Base(folder)
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal has its default effect: it ends the process.
	context.AfterFunc(ctx, stop)
	if err := serve(ctx, config, settings, *addr, *drain); err != nil {
		log.Fatal(err)
	}
}

// list parses a flag with texts that are separated by commas.
func list(into *[]string) func(string) error {
	return func(text string) error {
		*into = strings.Split(text, ",")
		return nil
	}
}

// serve serves until ctx ends, then completes the accepted requests.
func serve(ctx context.Context, config nanovllm.Config, settings settings, addr string, drain time.Duration) error {
	if err := settings.checkAddress(addr); err != nil {
		return err
	}
	engine, err := nanovllm.New(config)
	if err != nil {
		return err
	}
	defer engine.Close()
	s, err := newServer(engine, settings)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Printf("serving %s at http://%s", settings.name, listener.Addr())
	return s.run(ctx, listener, drain)
}

// run serves on a listener until ctx ends or the engine fails.
func (s *server) run(ctx context.Context, listener net.Listener, drain time.Duration) error {
	// The engine outlives ctx by the time that requests need to complete.
	stepping, stopStepping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStepping()
	engineEnded := make(chan error, 1)
	go func() { engineEnded <- s.engine.Run(stepping) }()

	// Requests end with the context answering, which outlives ctx by the time to drain.
	answering, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	web := s.web(answering, listener.Addr())
	webEnded := make(chan error, 1)
	go func() { webEnded <- web.Serve(listener) }()

	var failed error
	select {
	case failed = <-engineEnded:
		// So do its streams, with its error.
		s.gate.close()
	case err := <-webEnded:
		return err
	case <-ctx.Done():
		failed = s.drain(web, drain, engineEnded)
	}
	endRequests()
	// Responses that are complete are still written, within a short time.
	limit, cancel := context.WithTimeout(context.Background(), min(s.writeTimeout, 2*time.Second))
	defer cancel()
	if err := web.Shutdown(limit); err != nil {
		_ = web.Close()
	}
	if failed != nil {
		return failed
	}
	stopStepping()
	if err := <-engineEnded; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// drain refuses new requests and waits for those that are being answered. It returns the engine's error if that fails meanwhile.
func (s *server) drain(web *http.Server, atMost time.Duration, engineEnded <-chan error) error {
	answered := s.gate.close()
	web.SetKeepAlivesEnabled(false)
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-answered:
	case err := <-engineEnded:
		return err
	case <-timer.C:
		log.Printf("some requests did not end within %v", atMost)
	}
	return nil
}

// web returns the HTTP server, whose requests end with ctx.
func (s *server) web(ctx context.Context, address net.Addr) *http.Server {
	handler := s.handler()
	if tcp, isTCP := address.(*net.TCPAddr); isTCP && tcp.IP.IsLoopback() && s.apiKey == "" {
		handler = s.timely(s.local(address, handler))
	}
	var connections atomic.Int64
	return &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: min(s.bodyTimeout, 10*time.Second),
		ReadTimeout:       s.bodyTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState: func(connection net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				if connections.Add(1) > 2*int64(s.maxRequests) {
					_ = connection.Close()
				}
			case http.StateClosed, http.StateHijacked:
				connections.Add(-1)
			}
		},
	}
}
