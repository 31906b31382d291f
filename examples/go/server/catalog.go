package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"libnanovllm/bindings/go"
)

// A catalog answers: which models does this server have, and which of them are open?
//
// A model opens when a request first names it. If the budget has no room for it, the models that were used least recently are closed
// before, each as soon as its requests have ended; requests for a model that is being closed wait until it is open again. One model opens
// at a time, so that it sees what the others have taken. Without a file of models there is one, which is open from the start.
//
// Invariant: the sizes of the open models add up to at most the budget, except while a model that turns out to be larger than its files
// is open and others have not been closed yet.
type catalog struct {
	models []*model // the first is the default
	budget uint64   // bytes; 0 = no limit
	// The one model of a server without a file of models: if all of its engines fail, so does the server.
	isFixed bool
	maxSkew int

	opening lane // one model at a time
	failed  chan error
	running sync.WaitGroup

	mu       sync.Mutex
	clock    uint64          // counts uses
	stepping context.Context // of the engines, nil before run
}

// A model is one of a catalog.
type model struct {
	name    string
	aliases []string
	engines []nanovllm.Config
	pooling nanovllm.Pooling
	preload bool

	// How a model that generates scores pairs; nil if it does not.
	scoring *scoring

	// Guarded by catalog.mu.
	open    *served
	attempt *attempt // to open it, nil if there is none
	opened  int      // how often it was
}

// An attempt to open a model.
type attempt struct {
	ended chan struct{}
	err   error // once it has ended
}

// A lease keeps a model open.
type lease struct {
	*served
	release func()
}

func newCatalog(models []*model, budget uint64, maxSkew int) *catalog {
	return &catalog{models: models, budget: budget, maxSkew: maxSkew, opening: make(lane, 1), failed: make(chan error, 1)}
}

// fixedCatalog has one model, which is open.
func fixedCatalog(m *model, engines []*nanovllm.Engine, maxSkew int) (*catalog, error) {
	c := newCatalog([]*model{m}, 0, maxSkew)
	c.isFixed = true
	var err error
	m.open, err = newServed(m, engines, maxSkew)
	return c, err
}

// find returns a model by its name or an alias; the default for no name.
func (c *catalog) find(name string) (*model, error) {
	if name == "" {
		return c.models[0], nil
	}
	for _, m := range c.models {
		if m.isCalled(name) {
			return m, nil
		}
	}
	const most = 16
	var known []string
	for _, m := range c.models[:min(most, len(c.models))] {
		known = append(known, m.name)
	}
	if len(c.models) > most {
		known = append(known, fmt.Sprintf("%d more", len(c.models)-most))
	}
	e := badRequest("model", "there is no model %s here, only ", name)
	e.message += strings.Join(known, ", ")
	e.status, e.code = http.StatusNotFound, "model_not_found"
	return nil, e
}

func (m *model) isCalled(name string) bool {
	if m.name == name {
		return true
	}
	for _, other := range m.aliases {
		if other == name {
			return true
		}
	}
	return false
}

// tryAcquire returns a lease of a model that is open, nil if it is not.
func (c *catalog) tryAcquire(m *model) *lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := m.open
	if o == nil || o.isRetiring {
		return nil
	}
	o.users++
	c.clock++
	o.lastUse = c.clock
	return &lease{served: o, release: sync.OnceFunc(func() { c.release(o) })}
}

func (c *catalog) release(o *served) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	o.lastUse = c.clock
	if o.users--; o.users == 0 && o.isRetiring {
		close(o.unused)
	}
}

// acquire returns a lease of a model, which it opens if it is not open. The opening goes on if ctx ends.
func (c *catalog) acquire(ctx context.Context, m *model) (*lease, error) {
	for {
		if held := c.tryAcquire(m); held != nil {
			return held, nil
		}
		c.mu.Lock()
		if m.open != nil && !m.open.isRetiring {
			c.mu.Unlock()
			continue
		}
		if m.attempt == nil {
			m.attempt = &attempt{ended: make(chan struct{})}
			go c.tryOpen(m)
		}
		waited := m.attempt
		c.mu.Unlock()
		select {
		case <-waited.ended:
			if waited.err != nil {
				return nil, waited.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryOpen opens a model and ends its attempt.
func (c *catalog) tryOpen(m *model) {
	leave, _ := c.opening.enter(context.Background())
	defer leave()
	opened, err := c.openInBudget(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	tried := m.attempt
	m.attempt = nil
	if err == nil {
		m.open = opened
		m.opened++
		c.step(opened)
	} else {
		slog.Error("a model cannot be opened", "model", m.name, "error", err)
		var known *apiError
		if !errors.As(err, &known) {
			err = &apiError{status: http.StatusServiceUnavailable, kind: "server_error", code: "model_not_open",
				message: fmt.Sprintf("the model %s cannot be opened: %v", m.name, err)}
		}
		tried.err = err
	}
	close(tried.ended)
}

// openInBudget opens a model after it has made room for it. The caller is in the lane of opening.
func (c *catalog) openInBudget(m *model) (*served, error) {
	if err := c.makeRoom(m, m.estimate()); err != nil {
		return nil, err
	}
	for {
		engines, err := open(m.engines)
		if errors.Is(err, nanovllm.ErrOutOfMemory) && c.retireOne(m) {
			continue
		}
		if err != nil {
			return nil, err
		}
		opened, err := newServed(m, engines, c.maxSkew)
		if err != nil {
			closeAll(engines)
			return nil, err
		}
		if err := c.makeRoom(m, opened.bytes); err != nil {
			closeAll(engines)
			return nil, err
		}
		slog.Info("model opened", "model", m.name, "bytes", opened.bytes)
		return opened, nil
	}
}

// makeRoom closes models until the budget has room for one more.
func (c *catalog) makeRoom(m *model, bytes uint64) error {
	if c.budget == 0 {
		return nil
	}
	if bytes > c.budget {
		return &apiError{status: http.StatusServiceUnavailable, kind: "server_error", code: "model_too_large",
			message: fmt.Sprintf("the model %s needs %d bytes for weights and KV cache, but -memory is %d: raise it, or lower kv-cache-bytes of the model",
				m.name, bytes, c.budget)}
	}
	for c.openBytes()+bytes > c.budget && c.retireOne(m) {
	}
	return nil
}

// openBytes is the size of the open models.
func (c *catalog) openBytes() (bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.models {
		if m.open != nil {
			bytes += m.open.bytes
		}
	}
	return bytes
}

// retireOne closes the open model that was used least recently, an unused one if there is any, when its requests have ended. It reports
// whether there was one besides the model that needs room.
func (c *catalog) retireOne(besides *model) bool {
	c.mu.Lock()
	var oldest *model
	for _, m := range c.models {
		if m == besides || m.open == nil {
			continue
		}
		if oldest == nil {
			oldest = m
			continue
		}
		isUsed, isOldestUsed := m.open.users > 0, oldest.open.users > 0
		if isUsed == isOldestUsed && m.open.lastUse < oldest.open.lastUse || !isUsed && isOldestUsed {
			oldest = m
		}
	}
	if oldest == nil {
		c.mu.Unlock()
		return false
	}
	retired := oldest.open
	retired.isRetiring = true
	if retired.users == 0 {
		close(retired.unused)
	}
	c.mu.Unlock()
	<-retired.unused
	c.mu.Lock()
	oldest.open = nil
	c.mu.Unlock()
	retired.close()
	slog.Info("model closed", "model", oldest.name, "for", besides.name)
	return true
}

// step steps the engines of a model that has opened. The caller holds mu.
func (c *catalog) step(o *served) {
	if c.stepping == nil {
		return
	}
	ctx, stop := context.WithCancel(c.stepping)
	o.stop = stop
	c.running.Go(func() {
		err := o.pool.run(ctx)
		close(o.stopped)
		if errors.Is(err, context.Canceled) {
			return
		}
		if c.isFixed {
			c.failed <- err
			return
		}
		// It opens again when a request names it.
		slog.Error("all engines of a model have failed", "model", o.model.name, "error", err)
		c.mu.Lock()
		defer c.mu.Unlock()
		if o.model.open == o && !o.isRetiring {
			o.model.open = nil
			go closeAll(o.engines)
		}
	})
}

// preload opens the models that are to be open from the start.
func (c *catalog) preload(ctx context.Context) error {
	for _, m := range c.models {
		if !m.preload {
			continue
		}
		held, err := c.acquire(ctx, m)
		if err != nil {
			return err
		}
		held.release()
	}
	return nil
}

// run steps the engines of all models until ctx ends, or those of the only model have failed.
func (c *catalog) run(ctx context.Context) error {
	c.mu.Lock()
	c.stepping = ctx
	for _, m := range c.models {
		if m.open != nil {
			c.step(m.open)
		}
	}
	c.mu.Unlock()
	select {
	case err := <-c.failed:
		return err
	case <-ctx.Done():
	}
	// An attempt to open a model ends before its engines can be stopped.
	leave, _ := c.opening.enter(context.Background())
	leave()
	c.running.Wait()
	select {
	case err := <-c.failed: // before ctx ended
		return err
	default:
		return ctx.Err()
	}
}

// close closes the models that are open, once run has ended.
func (c *catalog) close() {
	leave, _ := c.opening.enter(context.Background())
	defer leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.models {
		if m.open != nil {
			closeAll(m.open.engines)
			m.open = nil
		}
	}
}

// opened returns the models that are open, in the order of the catalog.
func (c *catalog) opened() (open []*served) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.models {
		if m.open != nil {
			open = append(open, m.open)
		}
	}
	return open
}

// estimate is the size of a model before it is open: that of its files, and of its KV caches.
func (m *model) estimate() (bytes uint64) {
	for _, config := range m.engines {
		bytes += config.KVCacheBytes + weightBytes(config.ModelPath)
	}
	return bytes
}

// weightBytes is the size of the files of weights of a folder, or of a file.
func weightBytes(path string) (bytes uint64) {
	_ = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != path {
			return fs.SkipDir
		}
		switch filepath.Ext(name) {
		case ".safetensors", ".gguf":
			if info, err := entry.Info(); err == nil {
				bytes += uint64(info.Size())
			}
		}
		return nil
	})
	return bytes
}
