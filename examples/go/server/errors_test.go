package main

import (
	"math"
	"net/http"
	"net/http/httptest"
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
	source, err := os.ReadFile("../../../src/text/structure/compiler.rs")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), "{running} others have been compiling for {milliseconds}"+compilerBusy+`"`) {
		t.Errorf("the library says something other than %q", compilerBusy)
	}
}

func TestTheLibraryNamesSchemasThatItCannotHold(t *testing.T) {
	source, err := os.ReadFile("../../../src/engine/api/validation.rs")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), strictTools+`"`) {
		t.Errorf("the library says something other than %q", strictTools)
	}
}

func TestWhatJSONCannotSayIsAnError(t *testing.T) {
	nan := map[string]any{"embedding": []float32{1, float32(math.NaN())}}
	whole := httptest.NewRecorder()
	writeJSON(whole, httptest.NewRequest("GET", "/v1/x", nil), http.StatusOK, nan)
	if text := whole.Body.String(); whole.Code != 500 || !strings.Contains(text, `"server_error"`) || !strings.Contains(text, "NaN") {
		t.Errorf("%d %s", whole.Code, text)
	}
	stream := httptest.NewRecorder()
	if (eventWriter{stream, http.NewResponseController(stream), newOpenAIForm(true, "demo", false)}).write(nan) {
		t.Error("an event that cannot be encoded was written")
	}
	if text := stream.Body.String(); !strings.HasPrefix(text, `data: {"error":`) || !strings.HasSuffix(text, "}\n\ndata: [DONE]\n\n") {
		t.Errorf("a stream: %s", text)
	}
}

func TestTheTypeOfAFieldIsNamedInEnglish(t *testing.T) {
	for body, message := range map[string]string{
		`{"max_tokens": []}`:    "max_tokens must not be an array",
		`{"max_tokens": {}}`:    "max_tokens must not be an object",
		`{"max_tokens": "x"}`:   "max_tokens must not be a string",
		`{"max_tokens": 1e100}`: "max_tokens cannot be the number 1e100",
		`[]`:                    "the body must be a JSON object, not an array",
		`true`:                  "the body must be a JSON object, not a bool",
	} {
		var request chatRequest
		if err := decode([]byte(body), &request); err == nil || err.Error() != message {
			t.Errorf("%s: %v", body, err)
		}
	}
}
