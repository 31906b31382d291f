// Server serves models with the APIs of OpenAI and Anthropic: chat completions, completions, responses, messages and embeddings, with
// streaming; a chat page at /, and metrics for Prometheus.
//
//	go run . ../../../models/demo
//
// docs/server.md has every endpoint, field and flag. One model comes from the command line, several from a file that -config names.
// Several engines can serve a model: -devices 0,1 opens one on each GPU, and -engine, which may be repeated, opens one with options of
// its own. A prompt goes to the engine that was given the longest prefix of it last, unless its load is too high, else to the one with the
// least load. An engine that fails is taken out. docs/scaling.md says when this is the way to scale.
//
// Without a key it serves this machine only: it listens on loopback, requires a Host header that names loopback, and rejects POST
// requests from pages of other origins. To serve other machines, set NANOVLLM_API_KEY or -api-key-file, and -tls-cert and -tls-key or a
// proxy with TLS in front.
//
// Requests are limited in size, number and time: -help lists the flags, and limits.go has the limits that no flag changes.
//
// On SIGINT or SIGTERM it refuses new requests with 503 and exits when the accepted requests are complete; requests that are left
// after -drain end with an error. A second signal ends the process at once.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"libnanovllm/bindings/go"
)

func main() {
	command, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	if command.isVersion {
		fmt.Println("nanovllm-server", nanovllm.Version())
		return
	}
	slog.SetDefault(command.log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal has its default effect: it ends the process.
	context.AfterFunc(ctx, stop)
	if err := serve(ctx, command); err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

// serve serves until ctx ends, then completes the accepted requests.
func serve(ctx context.Context, command *command) error {
	if err := command.settings.checkAddress(command.addr); err != nil {
		return err
	}
	certificate, err := command.settings.certificate()
	if err != nil {
		return err
	}
	catalog, err := command.catalog(ctx)
	if err != nil {
		return err
	}
	defer catalog.close()
	s, err := newServer(catalog, command.settings)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", command.addr)
	if err != nil {
		return err
	}
	stopMetrics, err := s.serveMetrics()
	if err != nil {
		return err
	}
	defer stopMetrics()
	names := make([]string, len(catalog.models))
	for i, m := range catalog.models {
		names[i] = m.name
	}
	for _, open := range catalog.opened() {
		for _, r := range open.pool.replicas {
			slog.Info("engine", "model", open.model.name, "engine", r.name, "device", r.device, "max_model_len", r.info.MaxModelLen)
		}
	}
	scheme, address := "http", listener.Addr()
	if certificate != nil {
		scheme = "https"
		listener = tls.NewListener(listener, certificate)
	}
	slog.Info(fmt.Sprintf("serving %s at %s://%s", strings.Join(names, ", "), scheme, address))
	return s.run(ctx, listener, command.drain)
}

// catalog opens the one model of the command line, or those of the file of models that are to be open from the start.
func (c *command) catalog(ctx context.Context) (*catalog, error) {
	if c.isCatalog {
		made := newCatalog(c.models, c.memory, c.settings.maxSkew)
		if err := made.preload(ctx); err != nil {
			made.close()
			return nil, err
		}
		return made, nil
	}
	engines, err := open(c.models[0].engines)
	if err != nil {
		return nil, err
	}
	made, err := fixedCatalog(c.models[0], engines, c.settings.maxSkew)
	if err != nil {
		closeAll(engines)
	}
	return made, err
}

// certificate returns the configuration of TLS, nil if there is none.
func (s *settings) certificate() (*tls.Config, error) {
	if s.tlsCert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(s.tlsCert, s.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// serveMetrics serves /metrics at an address of its own, if the operator has given one.
func (s *server) serveMetrics() (stop func(), err error) {
	if s.metricsAddr == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", s.metricsAddr)
	if err != nil {
		return nil, fmt.Errorf("-metrics-addr: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", only("GET", s.metrics.handler().ServeHTTP))
	mux.HandleFunc("/", unknownPath)
	web := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: s.writeTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	go func() { _ = web.Serve(listener) }()
	slog.Info(fmt.Sprintf("metrics at http://%s/metrics", listener.Addr()))
	return func() { _ = web.Close() }, nil
}

// run serves on a listener until ctx ends or the engines of the only model have failed.
func (s *server) run(ctx context.Context, listener net.Listener, drain time.Duration) error {
	// The engines outlive ctx by the time that requests need to complete.
	stepping, stopStepping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStepping()
	engineEnded := make(chan error, 1)
	go func() { engineEnded <- s.catalog.run(stepping) }()

	// Requests end with the context answering, which outlives ctx by the time to drain.
	answering, endRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endRequests(errShuttingDown)
	web := s.web(answering, listener.Addr())
	webEnded := make(chan error, 1)
	go func() { webEnded <- web.Serve(listener) }()

	var failed error
	lastWrites := min(s.writeTimeout, 2*time.Second)
	select {
	case failed = <-engineEnded:
		// All streams end now with the error of their engine, which their clients receive before endRequests.
		select {
		case <-s.gate.close():
		case <-time.After(lastWrites):
		}
	case err := <-webEnded:
		return err
	case <-ctx.Done():
		failed = s.drain(web, drain, engineEnded)
	}
	endRequests(errShuttingDown)
	// Responses that are complete are still written, within a short time.
	limit, cancel := context.WithTimeout(context.Background(), lastWrites)
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

// drain refuses new requests and waits for those that are being answered. It returns the error of the last engine if that fails meanwhile.
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
		slog.Warn("some requests did not end within the time of -drain", "drain", atMost)
	}
	return nil
}

// web returns the HTTP server, whose requests end with ctx.
func (s *server) web(ctx context.Context, address net.Addr) *http.Server {
	handler := s.routes()
	if tcp, isTCP := address.(*net.TCPAddr); isTCP && tcp.IP.IsLoopback() && len(s.apiKeys) == 0 {
		handler = s.local(address, handler)
	}
	var connections atomic.Int64
	return &http.Server{
		Handler:           s.outer(handler),
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
