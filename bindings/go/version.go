package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"encoding/json"
	"fmt"
)

// Version returns the version of the loaded library, such as "0.1.0".
func Version() string { return C.GoString(C.nvllm_version()) }

// BuildInfo returns a JSON object that describes the build and the machine.
func BuildInfo() json.RawMessage { return json.RawMessage(C.GoString(C.nvllm_build_info())) }

// checkABI refuses a library that a program of this header cannot call.
func checkABI(found uint32) error {
	if found == C.NVLLM_ABI_VERSION {
		return nil
	}
	message := fmt.Sprintf("the loaded libnanovllm %s has ABI %d, but this program was built with the header of ABI %d: build it again, "+
		"or set LD_LIBRARY_PATH to the folder of the other library", Version(), found, C.NVLLM_ABI_VERSION)
	return &Error{Status: ErrUnsupported, Message: message}
}
