// Server serves the OpenAI API from one model folder: chat completions and completions, with streaming, embeddings, a chat page at /, and
// metrics for Prometheus.
//
//	go run . -model ../../../models/demo -addr localhost:8000
//
// Several engines can serve the model: -devices 0,1 opens one on each GPU, and -engine, which may be repeated, opens one with options of
// its own. A prompt goes to the engine that was given the longest prefix of it last, unless its load is too high, else to the one with the
// least load. An engine that fails is taken out, and the server ends when none is left. docs/scaling.md says when this is the way to
// scale.
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
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	command, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal has its default effect: it ends the process.
	context.AfterFunc(ctx, stop)
	if err := serve(ctx, command); err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends, then completes the accepted requests.
func serve(ctx context.Context, command *command) error {
	if err := command.settings.checkAddress(command.addr); err != nil {
		return err
	}
	engines, err := open(command.engines)
	if err != nil {
		return err
	}
	defer closeAll(engines)
	s, err := newServer(engines, command.settings)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", command.addr)
	if err != nil {
		return err
	}
	if len(engines) > 1 {
		for _, r := range s.pool.replicas {
			log.Printf("engine %s computes on %s", r.name, r.device)
		}
	}
	log.Printf("serving %s at http://%s", s.name, listener.Addr())
	return s.run(ctx, listener, command.drain)
}

// run serves on a listener until ctx ends or the last engine has failed.
func (s *server) run(ctx context.Context, listener net.Listener, drain time.Duration) error {
	// The engines outlive ctx by the time that requests need to complete.
	stepping, stopStepping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStepping()
	engineEnded := make(chan error, 1)
	go func() { engineEnded <- s.pool.run(stepping) }()

	// Requests end with the context answering, which outlives ctx by the time to drain.
	answering, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
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
	endRequests()
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
