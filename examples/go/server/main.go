// Server answers the OpenAI API from one model folder: chat completions and completions, with streaming, embeddings, a chat page at /, and
// metrics for Prometheus.
//
//	go run . -model ../../../models/demo -addr localhost:8000
//
// It ends on SIGINT and SIGTERM, after the requests that it has taken are answered.
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
	flag.Int64Var(&settings.maxBodyBytes, "max-body", 4<<20, "largest request in `bytes`")
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
	if err := serve(ctx, config, settings, *addr, *drain); err != nil {
		log.Fatal(err)
	}
}

// serve answers until ctx ends, then ends what it has begun.
func serve(ctx context.Context, config nanovllm.Config, settings settings, addr string, drain time.Duration) error {
	engine, err := nanovllm.New(config)
	if err != nil {
		return err
	}
	defer engine.Close()
	s, err := newServer(engine, config.ModelPath, settings)
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
	// The engine outlives ctx by the time that requests need to end.
	stepping, stopStepping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStepping()
	engineEnded := make(chan error, 1)
	go func() { engineEnded <- s.engine.Run(stepping) }()

	web := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	webEnded := make(chan error, 1)
	go func() { webEnded <- web.Serve(listener) }()

	select {
	case err := <-engineEnded:
		_ = web.Close()
		return err
	case err := <-webEnded:
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	limit, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := web.Shutdown(limit); errors.Is(err, context.DeadlineExceeded) {
		log.Printf("some requests did not end within %v", drain)
		_ = web.Close()
	}
	stopStepping()
	if err := <-engineEnded; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
