//go:build !nanovllm_tree && !nanovllm_static

package nanovllm

// #cgo pkg-config: nanovllm
import "C"
