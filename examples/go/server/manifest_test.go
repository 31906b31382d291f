package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manifestArgs returns the arguments of the server in the Kubernetes manifest.
func manifestArgs(t *testing.T) (args []string) {
	t.Helper()
	text, err := os.ReadFile("kubernetes/server.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^ +- (-[a-z].*)$`).FindAllSubmatch(text, -1) {
		args = append(args, string(found[1]))
	}
	if len(args) == 0 {
		t.Fatal("the manifest has no arguments")
	}
	return args
}

// The program starts with the arguments of the manifest, except for its folder and its address, and tells an endpoint picker what it
// reads by default.
func TestTheArgumentsOfTheManifestStartTheServer(t *testing.T) {
	args := manifestArgs(t)
	var errors bytes.Buffer
	if parsed, err := parse(args, &errors); err != nil || parsed.addr != ":8000" {
		t.Fatalf("%v: %s", err, errors.String())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], append(args, "-model="+modelFolder(), "-addr=127.0.0.1:0", "-threads=1", "-kv-cache-bytes=67108864")...)
	program.Env = append(os.Environ(), "NANOVLLM_TEST_MAIN=1", "NANOVLLM_API_KEY=secret")
	told, err := program.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	output := bufio.NewReader(told)
	s := &service{url: servedURL(t, output, "demo")}
	if status, text := s.get(t, "/health"); status != 200 {
		t.Errorf("health: %d %s", status, text)
	}
	_, text := s.get(t, "/metrics")
	for _, wanted := range []string{"vllm:num_requests_waiting 0\n", "vllm:num_requests_running 0\n", "vllm:kv_cache_usage_perc 0\n",
		`vllm:cache_config_info{block_size="`} {
		if !strings.Contains(text, wanted) {
			t.Errorf("an endpoint picker finds no %s", strings.TrimSpace(wanted))
		}
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(output)
	if err := program.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, rest)
	}
}

// servedURL reads the log of a server up to the line that says where it serves.
func servedURL(t *testing.T, log *bufio.Reader, name string) string {
	t.Helper()
	for {
		line, err := log.ReadString('\n')
		if err != nil {
			t.Fatalf("%q %v", line, err)
		}
		if _, rest, found := strings.Cut(line, "serving "+name+" at "); found {
			url, _, _ := strings.Cut(rest, `"`)
			return url
		}
	}
}

func TestTheContainerfileCopiesWhatThereIs(t *testing.T) {
	text, err := os.ReadFile("Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	copied := regexp.MustCompile(`(?m)^COPY ([a-z.][^ ]*) `).FindAllSubmatch(text, -1)
	for _, found := range copied {
		if _, err := os.Stat("../../../" + string(found[1])); err != nil {
			t.Error(err)
		}
	}
	entry := regexp.MustCompile(`(?m)^ENTRYPOINT (\[.*\])$`).FindSubmatch(text)
	var args []string
	if entry == nil || json.Unmarshal(entry[1], &args) != nil || len(copied) != 3 {
		t.Fatalf("%s", text)
	}
	if parsed, err := parse(append(args[1:], "/models/demo"), io.Discard); err != nil || parsed.addr != ":8000" || parsed.models[0].name != "demo" {
		t.Errorf("%+v %v", parsed, err)
	}
}
