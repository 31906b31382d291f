package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"bytes"
	"errors"
	"syscall"
	"unsafe"
)

// A Status is the kind of failure of an [Error]. It is an error itself, for [errors.Is].
type Status int32

// The kinds of failure.
const (
	ErrInvalidArgument Status = C.NVLLM_ERR_INVALID_ARGUMENT // an argument or an option is invalid; the message names it
	ErrBusy            Status = C.NVLLM_ERR_BUSY             // another goroutine is inside a method that excludes this one: see the package's documentation
	ErrPanic           Status = C.NVLLM_ERR_PANIC            // a bug in the library; the engine can only be closed
	ErrNotFound        Status = C.NVLLM_ERR_NOT_FOUND        // no live request, pin or cached prefix as named
	ErrOutOfMemory     Status = C.NVLLM_ERR_OUT_OF_MEMORY    // of the host, the device, or the KV cache
	ErrIO              Status = C.NVLLM_ERR_IO               // a file could not be read
	ErrModel           Status = C.NVLLM_ERR_MODEL            // the model's files are corrupt, or of a kind not supported
	ErrDevice          Status = C.NVLLM_ERR_DEVICE           // a device call failed; the engine can only be closed
	ErrCancelled       Status = C.NVLLM_ERR_CANCELLED        // the call was cancelled
	ErrUnsupported     Status = C.NVLLM_ERR_UNSUPPORTED      // not in this build, or not for this model
	ErrQueueFull       Status = C.NVLLM_ERR_QUEUE_FULL       // the queue is full, by Config.MaxQueue or MaxQueuedCompletions
	ErrContextLength   Status = C.NVLLM_ERR_CONTEXT_LENGTH   // the prompt leaves no room for a completion
	ErrPeer            Status = C.NVLLM_ERR_PEER             // another process is gone, silent, or opened otherwise; the engine can only be closed
)

// Closed is the error of [Engine.Step] and [Engine.Run] in a process that follows, when process 0 has closed its engine: there will be no
// more passes.
const Closed Status = C.NVLLM_CLOSED

// ErrClosed is returned by methods after [Engine.Close].
var ErrClosed = errors.New("nanovllm: the engine is closed")

// Error returns the name of the status, such as "NVLLM_ERR_BUSY".
func (s Status) Error() string { return C.GoString(C.nvllm_status_name(C.nvllm_status(s))) }

// An Error says why a call failed.
type Error struct {
	Status     Status // the kind of failure
	NativeCode int    // errno or the device's error code if there is one, else 0
	Message    string // what was wanted, what was found, and the option that changes it
}

func (e *Error) Error() string { return "nanovllm: " + e.Message }

// Is reports whether target is the error's [Status].
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// Unwrap returns the [syscall.Errno] of a file that could not be read, so that errors.Is(err, fs.ErrNotExist) works.
func (e *Error) Unwrap() error {
	if e.Status == ErrIO && e.NativeCode != 0 {
		return syscall.Errno(e.NativeCode)
	}
	return nil
}

// isPermanent reports whether the engine can only be closed after this error.
func isPermanent(err error) bool {
	return errors.Is(err, ErrDevice) || errors.Is(err, ErrPanic) || errors.Is(err, ErrPeer) || errors.Is(err, Closed)
}

// busy is the error of a second caller.
func busy() error {
	return &Error{Status: ErrBusy, Message: "another goroutine is inside Run, Step, Fork, Trim or a method of the prefix cache of this engine"}
}

func errorOf(status C.nvllm_status, failed *C.nvllm_error) error {
	if status >= 0 {
		return nil
	}
	// Not C.GoString, which would move every call's nvllm_error from the stack to the heap.
	message, _, _ := bytes.Cut(unsafe.Slice((*byte)(unsafe.Pointer(&failed.message[0])), len(failed.message)), []byte{0})
	return &Error{Status: Status(status), NativeCode: int(failed.native_code), Message: string(message)}
}
