package nanovllm

// #include <nanovllm.h>
import "C"

import "unsafe"

// ResetPrefixCache removes all prefixes that no sequence uses and that are not pinned, so that later prompts are computed
// again. It returns [ErrBusy] while another goroutine steps, so for as long as [Engine.Run] runs.
func (e *Engine) ResetPrefixCache() error {
	if err := e.begin(); err != nil {
		return err
	}
	defer e.end()
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

// Trim gives memory of the KV cache back, to the GPU or to the system, and returns the number of bytes. Requests go on, pinned
// prompts stay, and other cached prompts are evicted; blocks get memory again when requests need it. See nvllm_trim in
// nanovllm.h. ErrBusy as by [Engine.ResetPrefixCache].
func (e *Engine) Trim() (uint64, error) {
	if err := e.begin(); err != nil {
		return 0, err
	}
	defer e.end()
	if err := e.enter(); err != nil {
		return 0, err
	}
	defer e.leave()
	var freed C.uint64_t
	var failed C.nvllm_error
	if status := C.nvllm_trim(e.native, &freed, &failed); status != C.NVLLM_OK {
		return 0, errorOf(status, &failed)
	}
	return uint64(freed), nil
}

// ReleasePrefix releases the prompt that RequestOptions.PinPrompt pinned. It returns [ErrNotFound] if that request pins
// nothing.
func (e *Engine) ReleasePrefix(id uint64) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	var failed C.nvllm_error
	if status := C.nvllm_release_prefix_with_error(e.native, C.uint64_t(id), &failed); status != C.NVLLM_OK {
		return errorOf(status, &failed)
	}
	return nil
}

// SavePrefix returns the longest cached prefix of these tokens for this cache salt, as bytes for [Engine.RestorePrefix].
// It returns [ErrNotFound] if not one KV block of it is cached, and [ErrBusy] as [Engine.ResetPrefixCache] does.
func (e *Engine) SavePrefix(ids []uint32, cacheSalt uint64) ([]byte, error) {
	if err := e.begin(); err != nil {
		return nil, err
	}
	defer e.end()
	return sized(e, 1, func(to *byte, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_save_prefix(e.native, tokens(ids), C.size_t(len(ids)), C.uint64_t(cacheSalt),
			(*C.uint8_t)(to), room, needed, nil, failed)
	})
}

// ExpertTokens returns how many tokens each expert of a layer was chosen for since an engine with ExpertStatistics was opened; none for a layer
// without experts. ErrBusy as by [Engine.ResetPrefixCache].
func (e *Engine) ExpertTokens(layer int) ([]uint64, error) {
	if err := e.begin(); err != nil {
		return nil, err
	}
	defer e.end()
	return sized(e, 128, func(to *uint64, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_expert_tokens(e.native, C.size_t(layer), (*C.uint64_t)(to), room, needed, failed)
	})
}

// RestorePrefix puts a saved prefix into the prefix cache, where the next prompt that begins with it reuses it. It returns
// the number of its tokens. ErrBusy as by [Engine.ResetPrefixCache].
func (e *Engine) RestorePrefix(saved []byte) (int, error) {
	if err := e.begin(); err != nil {
		return 0, err
	}
	defer e.end()
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

// Fork adds a request whose prompt is the whole current text of completion index of a live one. It returns [ErrNotFound] if that
// completion has ended, and [ErrBusy] while another goroutine steps, so for as long as [Engine.Run] runs.
func (e *Engine) Fork(id uint64, index int, options *RequestOptions) (uint64, error) {
	if err := inRange("index", index); err != nil {
		return 0, err
	}
	if err := e.begin(); err != nil {
		return 0, err
	}
	defer e.end()
	return e.add(fork{id, uint32(index)}, options, newRequest(options))
}

// A fork is a prompt that is in the engine.
type fork struct {
	id    uint64
	index uint32
}

func (f fork) add(e *C.nvllm_engine, options *C.nvllm_request_options, id *C.uint64_t, failed *C.nvllm_error) C.nvllm_status {
	return C.nvllm_fork(e, C.uint64_t(f.id), C.uint32_t(f.index), options, id, failed)
}
