package nanovllm_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"libnanovllm/bindings/go"
)

// Two processes elsewhere; two goroutines here.
func TestAFollowerServesUntilTheLeaderIsClosed(t *testing.T) {
	config := demoConfig()
	config.Device, config.TensorParallel, config.NumProcesses = nanovllm.DeviceCPU, 2, 2
	config.Rendezvous = "unix:" + filepath.Join(t.TempDir(), "rendezvous")
	ended := make(chan error, 1)
	go func() {
		config := config
		config.ProcessIndex = 1
		follower, err := nanovllm.New(config)
		if err != nil {
			ended <- err
			return
		}
		defer follower.Close()
		if _, err := follower.AddTokens([]uint32{1, 2}, nil); !errors.Is(err, nanovllm.ErrUnsupported) {
			t.Errorf("a request to a follower: %v", err)
		}
		ended <- follower.Run(context.Background())
	}()
	leader := open(t, config)
	if outputs, err := leader.Generate(context.Background(), []string{primesPrompt(t, leader)}); err != nil || outputs[0].Text != primes {
		t.Errorf("%v %v", outputs, err)
	}
	// Longer than a call of the follower lasts.
	time.Sleep(200 * time.Millisecond)
	if err := leader.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, nanovllm.Closed) {
		t.Errorf("the follower ends with %v", err)
	}
}
