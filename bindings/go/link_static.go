//go:build nanovllm_static

package nanovllm

// #cgo pkg-config: nanovllm-static
import "C"
