package nanovllm

import (
	"errors"
	"testing"
	"time"
)

// A stream whose request the library took just before the engine failed must not wait for a step that never comes.
func TestAStreamOfAFailedEngineEndsAtOnce(t *testing.T) {
	lost := &Error{Status: ErrDevice, Message: "the device is lost"}
	var i inbox
	before, after := newStream(nil), newStream(nil)
	i.register(1, before)
	i.note(lost)
	i.register(2, after)
	for _, r := range []*request{before, after} {
		select {
		case last := <-r.deltas:
			if !errors.Is(last.Err, ErrDevice) || last.Finish != FinishCancelled {
				t.Errorf("%+v", last)
			}
		case <-time.After(time.Second):
			t.Error("it waits")
		}
	}
}
