package nanovllm

// #include <nanovllm.h>
import "C"

// ResetPrefixCache forgets all prefixes that no sequence holds and that are not pinned, so that later prompts are computed
// anew. It returns [ErrBusy] while another goroutine steps.
func (e *Engine) ResetPrefixCache() error {
	if !e.stepper.TryLock() {
		return busy()
	}
	defer e.stepper.Unlock()
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	var failed C.nvllm_error
	if status := C.nvllm_reset_prefix_cache(e.native, &failed); status != C.NVLLM_OK {
		return errorOf(status, &failed)
	}
	return nil
}

// ReleasePrefix ends what RequestOptions.PinPrompt began. It returns [ErrNotFound] when that request pins nothing, or not
// any more.
func (e *Engine) ReleasePrefix(id uint64) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	if status := C.nvllm_release_prefix(e.native, C.uint64_t(id)); status != C.NVLLM_OK {
		return &Error{Status: Status(status), Message: "no pinned prompt has this id"}
	}
	return nil
}
