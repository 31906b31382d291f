package main

import (
	"os"
	"strings"
	"testing"

	"libnanovllm/bindings/go"
)

func TestAStructureThatGotNoPlaceMayComeAgain(t *testing.T) {
	const what = "structure is not a JSON schema that this library supports: "
	for message, status := range map[string]int{
		what + "2 others have been compiling for 2000 ms" + compilerBusy[len(" ms"):]:      429,
		what + "it takes more than 2000 ms to compile, which is the limit":                 400,
		"logit_bias is 2000 ms: add the request again later":                               400,
		what + "2 others have been compiling for 2000 ms: add the request again later, or": 400,
	} {
		if told := asAPIError(&nanovllm.Error{Status: nanovllm.ErrInvalidArgument, Message: message}); told.status != status || told.message != message {
			t.Errorf("%s: %+v", message, told)
		}
	}
	source, err := os.ReadFile("../../../src/engine/structure/compiler.rs")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), "{running} others have been compiling for {milliseconds}"+compilerBusy+`"`) {
		t.Errorf("the library says something other than %q", compilerBusy)
	}
}
