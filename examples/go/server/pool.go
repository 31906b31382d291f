package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"libnanovllm/bindings/go"
)

// A pool answers: how do several engines serve one model?
//
// Each engine is a replica with its own weights, KV cache and queue. The router chooses a replica per prompt. A replica whose engine
// fails is closed: its requests end with an error, and it is chosen no more. When the last one has failed, run returns.
//
// Invariant: all replicas have the same model and the same limits of a request, so that a prompt that one of them refuses for what it
// is, is refused by all.
type pool struct {
	replicas []*replica

	mu     sync.Mutex // guards the router and the adding of all replicas
	router *router
	routed func(on *replica, why reason) // counts the prompts that were accepted
}

// A replica is one engine of a pool.
type replica struct {
	engine *nanovllm.Engine
	name   string // its number, which labels its metrics
	device string // such as "cpu" or "cuda:0"
	info   nanovllm.ModelInfo
	adding int // prompts that were routed to it, but that its engine does not count yet

	mu      sync.Mutex
	failure error

	told families // its metrics, as they were told last
}

func newPool(engines []*nanovllm.Engine, maxSkew int) (*pool, error) {
	p := &pool{router: newRouter(maxSkew), routed: func(*replica, reason) {}}
	for i, engine := range engines {
		info, err := engine.ModelInfo()
		if err != nil {
			return nil, err
		}
		device := "cpu"
		if info.Device == nanovllm.DeviceCUDA {
			device = fmt.Sprintf("cuda:%d", info.DeviceIndex)
		}
		p.replicas = append(p.replicas, &replica{engine: engine, name: strconv.Itoa(i), device: device, info: info})
	}
	return p, nil
}

// run steps all engines until ctx ends or the last one has failed.
func (p *pool) run(ctx context.Context) error {
	ended := make(chan error, len(p.replicas))
	for _, r := range p.replicas {
		go func() {
			err := r.engine.Run(ctx)
			if ctx.Err() == nil {
				err = r.fail(err)
			}
			ended <- err
		}()
	}
	var reasons []error
	for range p.replicas {
		reasons = append(reasons, <-ended)
	}
	return errors.Join(reasons...)
}

// fail takes a replica out of rotation, and returns the reason that was given first. Closing the engine ends the requests that were
// added after it had failed.
func (r *replica) fail(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = fmt.Errorf("engine %s on %s failed: %w", r.name, r.device, err)
		slog.Error(r.failure.Error())
		// Not by this goroutine: Close waits for the calls that are in the engine.
		go func() { _ = r.engine.Close() }()
	}
	return r.failure
}

// failed returns why a replica is out of rotation, nil if it is not.
func (r *replica) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// load returns the number of sequences that run or wait on a replica, or unavailable.
func (r *replica) load() int {
	if r.failed() != nil {
		return unavailable
	}
	stats, err := r.engine.Stats()
	if err != nil {
		_ = r.fail(err)
		return unavailable
	}
	return stats.Running + stats.Waiting
}

// working returns the replicas that are in rotation.
func (p *pool) working() (working []*replica) {
	for _, r := range p.replicas {
		if r.load() != unavailable {
			working = append(working, r)
		}
	}
	return working
}

// engine returns an engine for calls that every replica answers alike: tokenizer, chat template, properties of the model. If all have
// failed it returns one of them, whose calls then return the reason.
func (p *pool) engine() *nanovllm.Engine {
	for _, r := range p.replicas {
		if r.failed() == nil {
			return r.engine
		}
	}
	return p.replicas[0].engine
}

// A routedStream is the stream of a prompt, and the replica that it is on.
type routedStream struct {
	deltas <-chan nanovllm.Delta
	on     *replica
}

// stream queues a prompt on the replica that the router chooses. A replica whose state does not admit the prompt passes it on to the
// others.
func (p *pool) stream(ctx context.Context, asked prompt, options *nanovllm.RequestOptions) (routedStream, error) {
	var keys []uint64
	if len(p.replicas) > 1 {
		keys = prefixKeys(asked)
	}
	var refusal error
	var refused []*replica
	for {
		r, why := p.choose(keys, refused)
		if r == nil && refusal == nil {
			return routedStream{}, &apiError{status: http.StatusServiceUnavailable, kind: "server_error", code: "engine_failed",
				message: "no engine of this server works"}
		}
		if r == nil {
			return routedStream{}, refusal
		}
		var deltas <-chan nanovllm.Delta
		var err error
		if asked.second != nil {
			deltas, err = r.engine.StreamPair(ctx, asked.text, *asked.second, options)
		} else if asked.tokens != nil {
			deltas, err = r.engine.StreamTokens(ctx, asked.tokens, options)
		} else {
			deltas, err = r.engine.Stream(ctx, asked.text, options)
		}
		p.mu.Lock()
		r.adding--
		p.mu.Unlock()
		if err == nil {
			p.routed(r, why)
			return routedStream{deltas, r}, nil
		}
		if !r.mayOthersAccept(err) {
			return routedStream{}, err
		}
		refused = append(refused, r)
		if refusal == nil {
			refusal = err
		}
	}
}

// mayOthersAccept reports whether another replica may accept a prompt that this one has refused. After a panic it is not tried: the
// prompt may be the cause, and would then end one engine after another.
func (r *replica) mayOthersAccept(err error) bool {
	if errors.Is(err, nanovllm.ErrPanic) {
		return false
	}
	return errors.Is(err, nanovllm.ErrQueueFull) || errors.Is(err, nanovllm.ErrOutOfMemory) || r.load() == unavailable
}

// choose returns the replica for a prompt, without those that have refused it, and counts the prompt as being added. It returns nil if
// none is left.
func (p *pool) choose(keys []uint64, refused []*replica) (*replica, reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	loads := make([]int, len(p.replicas))
	for i, r := range p.replicas {
		if loads[i] = unavailable; !slices.Contains(refused, r) {
			if load := r.load(); load != unavailable {
				loads[i] = load + r.adding
			}
		}
	}
	chosen, why := p.router.choose(keys, loads)
	if chosen < 0 {
		return nil, ""
	}
	p.replicas[chosen].adding++
	return p.replicas[chosen], why
}

// explain returns the error of a stream, which names the engine if that has failed.
func (r *replica) explain(err error) error {
	if err == nil || r.load() != unavailable {
		return err
	}
	return &apiError{status: http.StatusInternalServerError, kind: "server_error", code: "engine_failed",
		message: fmt.Sprintf("engine %s of this server failed while it ran this request: %v", r.name, err)}
}
