package nanovllm

// #include <nanovllm.h>
import "C"

import "encoding/json"

// Version returns the version of the loaded library, such as "0.1.0".
func Version() string { return C.GoString(C.nvllm_version()) }

// BuildInfo returns a JSON object that describes the build and the machine.
func BuildInfo() json.RawMessage { return json.RawMessage(C.GoString(C.nvllm_build_info())) }
