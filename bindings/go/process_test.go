package nanovllm_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// residentBytes returns how much memory this process holds.
func residentBytes(t testing.TB) int {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// threadsNamed returns how many threads of this process have names that begin with prefix.
func threadsNamed(t testing.TB, prefix string) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if comm, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(comm), prefix) {
			n++
		}
	}
	return n
}
