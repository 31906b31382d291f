//go:build linux && !nanovllm_static && !nanovllm_system

package main

// The program finds the library in the folder lib beside its own, as an installed tree has it, and in its own, without LD_LIBRARY_PATH.
// docs/server.md says how it is built for a library elsewhere. Packages of a distribution, whose libraries are where the system looks, are
// built with the tag nanovllm_system and have no path.

// #cgo LDFLAGS: -Wl,-rpath,$ORIGIN/../lib -Wl,-rpath,$ORIGIN
import "C"
