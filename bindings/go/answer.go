package nanovllm

// #include <nanovllm.h>
// #include <stdlib.h>
import "C"

import (
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"unsafe"
)

// A ToolChoice selects which tools a completion calls.
type ToolChoice int

// The choices.
const (
	ToolChoiceAuto     ToolChoice = C.NVLLM_TOOL_CHOICE_AUTO     // the model decides
	ToolChoiceNone     ToolChoice = C.NVLLM_TOOL_CHOICE_NONE     // none; the chat template gets no tools
	ToolChoiceRequired ToolChoice = C.NVLLM_TOOL_CHOICE_REQUIRED // at least one
	ToolChoiceNamed    ToolChoice = C.NVLLM_TOOL_CHOICE_NAMED    // the one that RequestOptions.ToolName names
)

// An AnswerEventKind is the kind of an [AnswerEvent].
type AnswerEventKind int

// The kinds.
const (
	AnswerContent           AnswerEventKind = C.NVLLM_ANSWER_CONTENT             // a further piece of the content, which is for the user
	AnswerReasoning         AnswerEventKind = C.NVLLM_ANSWER_REASONING           // a further piece of the reasoning
	AnswerToolCallBegin     AnswerEventKind = C.NVLLM_ANSWER_TOOL_CALL_BEGIN     // a tool call begins; Text is the name of the tool
	AnswerToolCallArguments AnswerEventKind = C.NVLLM_ANSWER_TOOL_CALL_ARGUMENTS // a further piece of the arguments, which together are a JSON object
	AnswerToolCallEnd       AnswerEventKind = C.NVLLM_ANSWER_TOOL_CALL_END       // a tool call is complete; Text is the id that the model gave to it, in most cases ""
	AnswerToolCallBroken    AnswerEventKind = C.NVLLM_ANSWER_TOOL_CALL_BROKEN    // a call that has begun cannot be read, and is none; Text says why, and what the model wrote follows as content
)

// An AnswerEvent is what became known of an answer.
type AnswerEvent struct {
	Kind      AnswerEventKind
	CallIndex int // which tool call, from 0; 0 for content and reasoning. Calls that broke count.
	Text      string
}

// An AnswerMessage is a whole answer, or an answer so far. As JSON it is a message for [Engine.ApplyChatTemplate].
type AnswerMessage struct {
	Role             string     `json:"role"` // "assistant"
	Content          string     `json:"content"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"` // those that are complete
}

// A ToolCall is a call of a tool.
type ToolCall struct {
	Type     string           `json:"type"`         // "function"
	ID       string           `json:"id,omitempty"` // the id that the model gave to it, in most cases none
	Function ToolCallFunction `json:"function"`
}

// A ToolCallFunction is what a tool call calls.
type ToolCallFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // an object
}

// An AnswerParser reads one answer while it is written: content, reasoning and tool calls. It is independent of the engine that made it.
// Its methods may be called from any goroutine.
type AnswerParser struct {
	mu      sync.Mutex
	native  *C.nvllm_answer_parser // nil when closed
	cleanup runtime.Cleanup
}

// errParserClosed is the error of the methods after Close.
var errParserClosed = errors.New("nanovllm: the parser is closed")

// NewAnswerParser begins to read an answer of the engine's model, whose outputs need [RequestOptions.KeepSpecialTokens].
//
// prompt is the text after which the model writes, or "" if it is not known: a chat template may have begun the answer, as with <think>.
// tools are those of the request, as JSON, or "": they say what type the arguments have where the model writes them without types.
func (e *Engine) NewAnswerParser(prompt, tools string) (*AnswerParser, error) {
	if err := withoutNUL("tools", tools); err != nil {
		return nil, err
	}
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()
	var toolsText *C.char
	if tools != "" {
		toolsText = C.CString(tools)
		defer C.free(unsafe.Pointer(toolsText))
	}
	var native *C.nvllm_answer_parser
	var failed C.nvllm_error
	status := C.nvllm_answer_parser_new(e.native, text(prompt), C.size_t(len(prompt)), toolsText, &native, &failed)
	if status != C.NVLLM_OK {
		return nil, errorOf(status, &failed)
	}
	p := &AnswerParser{native: native}
	p.cleanup = runtime.AddCleanup(p, func(native *C.nvllm_answer_parser) { C.nvllm_answer_parser_free(native) }, native)
	return p, nil
}

// Feed reads a further piece of the answer, such as [Output.Text], and returns what became known.
func (p *AnswerParser) Feed(piece string) ([]AnswerEvent, error) {
	return p.read(func(events **C.nvllm_answer_event, count *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_answer_parser_feed(p.native, text(piece), C.size_t(len(piece)), events, count, failed)
	})
}

// Finish says that the answer ends here, and returns the last events. A second call returns none.
func (p *AnswerParser) Finish() ([]AnswerEvent, error) {
	return p.read(func(events **C.nvllm_answer_event, count *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_answer_parser_finish(p.native, events, count, failed)
	})
}

func (p *AnswerParser) read(call func(**C.nvllm_answer_event, *C.size_t, *C.nvllm_error) C.nvllm_status) ([]AnswerEvent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.native == nil {
		return nil, errParserClosed
	}
	var found *C.nvllm_answer_event
	var count C.size_t
	var failed C.nvllm_error
	if status := call(&found, &count, &failed); status != C.NVLLM_OK {
		return nil, errorOf(status, &failed)
	}
	events := make([]AnswerEvent, count)
	for i, event := range unsafe.Slice(found, int(count)) {
		events[i] = AnswerEvent{
			Kind:      AnswerEventKind(event.kind),
			CallIndex: int(event.call_index),
			Text:      C.GoStringN(event.text, C.int(event.text_len)),
		}
	}
	return events, nil
}

// MessageJSON returns the message so far as JSON, in the form of an [AnswerMessage].
func (p *AnswerParser) MessageJSON() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.native == nil {
		return nil, errParserClosed
	}
	needed := C.size_t(1024)
	for {
		var failed C.nvllm_error
		buffer := make([]byte, needed)
		switch status := C.nvllm_answer_parser_message(p.native, (*C.char)(unsafe.Pointer(&buffer[0])), needed, &needed, &failed); status {
		case C.NVLLM_OK:
			return buffer[:needed-1], nil
		case C.NVLLM_ERR_BUFFER_TOO_SMALL:
		default:
			return nil, errorOf(status, &failed)
		}
	}
}

// Message returns the message so far.
func (p *AnswerParser) Message() (AnswerMessage, error) {
	var message AnswerMessage
	text, err := p.MessageJSON()
	if err == nil {
		err = json.Unmarshal(text, &message)
	}
	return message, err
}

// Close destroys the parser. A second call does nothing.
func (p *AnswerParser) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.native != nil {
		p.cleanup.Stop()
		C.nvllm_answer_parser_free(p.native)
		p.native = nil
	}
}
