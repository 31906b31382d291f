package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"libnanovllm/bindings/go"
)

// A served model is an open one: its engines, and what requests need to know of it.
type served struct {
	model       *model
	engines     []*nanovllm.Engine
	pool        *pool
	recommended nanovllm.RequestOptions // by the model; a request replaces single values
	info        nanovllm.ModelInfo
	started     time.Time
	bytes       uint64 // of weights and KV caches
	metrics     *modelMetrics
	// Whether the chat template treats the role "developer" as one of its own.
	hasDeveloper bool
	dimensions   dimensions
	scoreTokens  []uint32 // those of the model's scoring

	stop    context.CancelFunc // ends the stepping of the engines; nil if they were never stepped
	stopped chan struct{}      // closed when that has ended

	// Guarded by catalog.mu.
	users      int
	lastUse    uint64
	isRetiring bool          // no new users are accepted
	unused     chan struct{} // closed when it retires and the last user has left
}

func newServed(m *model, engines []*nanovllm.Engine, maxSkew int) (*served, error) {
	pool, err := newPool(engines, maxSkew)
	if err != nil {
		return nil, err
	}
	recommended, err := pool.engine().DefaultOptions()
	if err != nil {
		return nil, err
	}
	o := &served{model: m, engines: engines, pool: pool, recommended: recommended, info: pool.replicas[0].info, started: time.Now(),
		stopped: make(chan struct{}), unused: make(chan struct{})}
	for _, r := range pool.replicas {
		o.bytes += r.info.WeightBytes + r.info.KVCacheBytes
	}
	o.metrics = newModelMetrics(pool)
	o.hasDeveloper = knowsDeveloper(pool.engine())
	if len(m.engines) > 0 {
		o.dimensions = readDimensions(m.engines[0].ModelPath)
	}
	if m.scoring != nil {
		if o.scoreTokens, err = m.scoring.tokensOf(pool.engine()); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// close ends the stepping and closes the engines.
func (o *served) close() {
	if o.stop != nil {
		o.stop()
		<-o.stopped
	}
	closeAll(o.engines)
}

// knowsDeveloper reports whether a chat template has the role "developer". A template that prints any role, or leaves the text of a role
// that it does not know out, has none.
func knowsDeveloper(engine *nanovllm.Engine) bool {
	const text, invented = "text of the developer", "inventedrole"
	render := func(role string) (string, bool) {
		rendered, err := engine.ApplyChatTemplate([]nanovllm.Message{{Role: role, Content: text}, {Role: "user", Content: "hello"}}, nil)
		return rendered, err == nil
	}
	rendered, works := render("developer")
	if !works || !strings.Contains(rendered, text) {
		return false
	}
	other, works := render(invented)
	return !works || strings.ReplaceAll(other, invented, "developer") != rendered
}

// dimensions are the lengths to which the embeddings of a model may be cut.
type dimensions struct {
	isAny   bool // every length up to that of the model
	lengths []int
}

// readDimensions reads what config.json says about Matryoshka embeddings, in the names that vLLM reads.
func readDimensions(folder string) dimensions {
	var config struct {
		IsMatryoshka         bool  `json:"is_matryoshka"`
		MatryoshkaDimensions []int `json:"matryoshka_dimensions"`
	}
	// The library has read the file already; a file of GGUF has none.
	if text, err := os.ReadFile(filepath.Join(folder, "config.json")); err == nil {
		_ = json.Unmarshal(text, &config)
	}
	return dimensions{isAny: config.IsMatryoshka && len(config.MatryoshkaDimensions) == 0, lengths: config.MatryoshkaDimensions}
}

// check refuses a length that the model was not trained for.
func (d dimensions) check(wanted *int, width int) error {
	switch {
	case wanted == nil || *wanted == width:
		return nil
	case !d.isAny && len(d.lengths) == 0:
		return unsupported("dimensions", "dimensions is %d, but this model's embeddings have %d and cannot be cut: its config.json has neither is_matryoshka nor matryoshka_dimensions",
			*wanted, width)
	case *wanted < 1 || *wanted > width:
		return badRequest("dimensions", "dimensions is %d, but it must be from 1 to %d", *wanted, width)
	case !d.isAny && !slices.Contains(d.lengths, *wanted):
		return badRequest("dimensions", "dimensions is %d, but this model's embeddings can be cut to %v", *wanted, d.lengths)
	}
	return nil
}

// isEnd reports whether a token is a special one, which is no text.
func (o *served) isEnd(token uint32) bool {
	text, err := o.pool.engine().Detokenize([]uint32{token}, 0)
	return err == nil && text == ""
}
