package nanovllm

// #include <nanovllm.h>
import "C"

import "unsafe"

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

// SavePrefix returns the longest prefix of these tokens that the prefix cache has for this cache salt, as bytes that
// [Engine.RestorePrefix] understands. It returns [ErrNotFound] when the cache has not one KV block of it.
func (e *Engine) SavePrefix(ids []uint32, cacheSalt uint64) ([]byte, error) {
	if !e.stepper.TryLock() {
		return nil, busy()
	}
	defer e.stepper.Unlock()
	return sized(e, 1, func(to *byte, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_save_prefix(e.native, tokens(ids), C.size_t(len(ids)), C.uint64_t(cacheSalt),
			(*C.uint8_t)(to), room, needed, nil, failed)
	})
}

// RestorePrefix puts a saved prefix into the prefix cache, where the next prompt that begins with it finds it. It returns how
// many tokens it has.
func (e *Engine) RestorePrefix(saved []byte) (int, error) {
	if !e.stepper.TryLock() {
		return 0, busy()
	}
	defer e.stepper.Unlock()
	if err := e.enter(); err != nil {
		return 0, err
	}
	defer e.leave()
	var failed C.nvllm_error
	var restored C.size_t
	from := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(saved)))
	if status := C.nvllm_restore_prefix(e.native, from, C.size_t(len(saved)), &restored, &failed); status != C.NVLLM_OK {
		return 0, errorOf(status, &failed)
	}
	return int(restored), nil
}

// Fork adds a request whose prompt is all that completion index of a live one has so far. It returns [ErrNotFound] when that
// one has ended, and [ErrBusy] while another goroutine steps.
func (e *Engine) Fork(id uint64, index int, options *RequestOptions) (uint64, error) {
	if err := inRange("index", index); err != nil {
		return 0, err
	}
	if !e.stepper.TryLock() {
		return 0, busy()
	}
	defer e.stepper.Unlock()
	return e.add(fork{id, uint32(index)}, options, newRequest(options))
}

// A fork is a prompt that the engine has.
type fork struct {
	id    uint64
	index uint32
}

func (f fork) add(e *C.nvllm_engine, options *C.nvllm_request_options, id *C.uint64_t, failed *C.nvllm_error) C.nvllm_status {
	return C.nvllm_fork(e, C.uint64_t(f.id), C.uint32_t(f.index), options, id, failed)
}
