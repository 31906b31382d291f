package nanovllm

/*
#include <nanovllm.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// A ModelFile is a file of a model for [NewFrom]: bytes in memory, or a range of an open file, such as a part of a pack file.
type ModelFile struct {
	// The name that the file has in a model folder, such as "config.json", or any name that ends in ".gguf". "/" separates folders.
	Name string

	// The bytes of a file in memory. They must not change until the engine is closed; with LoadRead or on CUDA, until NewFrom returns.
	// Memory that Go does not manage, such as a mapped file, must stay mapped as long.
	Data []byte

	// An open file, if the bytes are not in Data. It can be closed when NewFrom returns.
	File *os.File

	// Where the range begins in File, and its size. Both are in bytes.
	Offset, Size int64
}

// NewFrom opens a model whose files are given. Config.ModelPath is the name of a GGUF file or of a folder among them, or empty for the
// folder that all of them are in. Otherwise as [New].
func NewFrom(config Config, files []ModelFile) (*Engine, error) {
	native, pinner, free, err := nativeFiles(files)
	defer free()
	if err != nil {
		return nil, err
	}
	e, err := open(config, pinner, func(config *C.nvllm_engine_config, opened **C.nvllm_engine, failed *C.nvllm_error) C.nvllm_status {
		if *config.model_path == 0 {
			config.model_path = nil
		}
		return C.nvllm_engine_new_from(config, native, C.size_t(len(files)), opened, failed)
	})
	runtime.KeepAlive(files)
	if err != nil {
		pinner.Unpin()
	}
	return e, err
}

// nativeFiles returns an array in memory of C, with what pins the memory of Go that it points to. free is never nil.
func nativeFiles(files []ModelFile) (native *C.nvllm_model_file, pinner *runtime.Pinner, free func(), err error) {
	pinner = new(runtime.Pinner)
	var kept []unsafe.Pointer
	free = func() {
		for _, memory := range kept {
			C.free(memory)
		}
	}
	array := C.calloc(C.size_t(max(1, len(files))), C.sizeof_nvllm_model_file)
	kept = append(kept, array)
	native = (*C.nvllm_model_file)(array)
	structs := unsafe.Slice(native, len(files))
	for i := range files {
		if err = files[i].assign(&structs[i], pinner, &kept); err != nil {
			pinner.Unpin()
			return
		}
	}
	return
}

// assign writes the file into memory of C.
func (f *ModelFile) assign(to *C.nvllm_model_file, pinner *runtime.Pinner, kept *[]unsafe.Pointer) error {
	if err := withoutNUL("Name", f.Name); err != nil {
		return err
	}
	C.nvllm_model_file_init(to, C.sizeof_nvllm_model_file)
	to.name = C.CString(f.Name)
	*kept = append(*kept, unsafe.Pointer(to.name))
	switch {
	case f.File == nil && f.Offset == 0 && f.Size == 0:
		if len(f.Data) > 0 {
			data := unsafe.Pointer(unsafe.SliceData(f.Data))
			pinner.Pin(data)
			to.data, to.size = data, C.uint64_t(len(f.Data))
		}
	case f.File == nil || f.Data != nil || f.Offset < 0 || f.Size < 0:
		return &Error{Status: ErrInvalidArgument, Message: fmt.Sprintf("the file %q has %d bytes of Data, and %d bytes at %d of a File, but must have one or the other",
			f.Name, len(f.Data), f.Size, f.Offset)}
	default:
		to.kind = C.NVLLM_FILE_RANGE
		to.descriptor = C.int64_t(f.File.Fd())
		to.offset, to.size = C.uint64_t(f.Offset), C.uint64_t(f.Size)
	}
	return nil
}
