package nanovllm

// #include <nanovllm.h>
import "C"

import "encoding/json"

// Version returns the version of the library that runs, as in "0.1.0".
func Version() string { return C.GoString(C.nvllm_version()) }

// BuildInfo returns how the library was built and what it found here, as a JSON object.
func BuildInfo() json.RawMessage { return json.RawMessage(C.GoString(C.nvllm_build_info())) }
