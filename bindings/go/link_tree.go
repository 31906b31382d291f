//go:build nanovllm_tree

package nanovllm

// #cgo CFLAGS: -I${SRCDIR}/../../include
// #cgo LDFLAGS: -L${SRCDIR}/../../build/lib -lnanovllm -Wl,-rpath,${SRCDIR}/../../build/lib
import "C"
