package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"encoding/json"
	"strings"
	"unsafe"
)

// TokenizeFlags select how [Engine.Tokenize] and [Engine.Detokenize] treat special tokens.
type TokenizeFlags uint32

// The flags.
const (
	// AddSpecial adds the tokens that begin and end a text. Detokenize ignores it.
	AddSpecial TokenizeFlags = C.NVLLM_TOKENIZE_ADD_SPECIAL
	// ParseSpecial converts the spelling of a special token to that token, and in Detokenize the token to its spelling. Without
	// it the spelling stays text, so that a user's text cannot forge a turn.
	ParseSpecial TokenizeFlags = C.NVLLM_TOKENIZE_PARSE_SPECIAL
)

// Tokenize converts text to tokens. The text has at most [MaxTextBytes].
func (e *Engine) Tokenize(s string, flags TokenizeFlags) ([]uint32, error) {
	guess := len(s) + 16
	if len(s) > MaxTextBytes {
		// The library refuses it.
		guess = 1
	}
	ids, err := sized(e, guess, func(to *uint32, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_tokenize(e.native, text(s), C.size_t(len(s)), C.uint32_t(flags), (*C.uint32_t)(to), room, needed,
			failed)
	})
	// A copy, because a text has far fewer tokens than bytes.
	return append(ids[:0:0], ids...), err
}

// Detokenize converts tokens to text. Bytes that are not UTF-8 become U+FFFD.
func (e *Engine) Detokenize(ids []uint32, flags TokenizeFlags) (string, error) {
	return sizedText(e, 8*len(ids)+16, func(to *byte, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_detokenize(e.native, tokens(ids), C.size_t(len(ids)), C.uint32_t(flags),
			(*C.char)(unsafe.Pointer(to)), room, needed, failed)
	})
}

// A Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"` // "system", "user", "assistant", or any other role of the model's template
	Content string `json:"content"`
}

// ApplyChatTemplate renders the prompt of a conversation with the model's chat template.
//
// messages is a []Message, or any value that is the same array of objects in JSON. options may be nil; otherwise it is an object
// with "add_generation_prompt" (default true), "tools", "documents", and any variable that the template uses.
func (e *Engine) ApplyChatTemplate(messages, options any) (string, error) {
	messagesJSON, err := encoded(messages)
	if err != nil {
		return "", err
	}
	optionsText, optionsLen := (*C.char)(nil), 0
	if options != nil {
		optionsJSON, err := encoded(options)
		if err != nil {
			return "", err
		}
		optionsText, optionsLen = text(optionsJSON), len(optionsJSON)
	}
	guess := len(messagesJSON) + 1024
	return sizedText(e, guess, func(to *byte, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_apply_chat_template(e.native, text(messagesJSON), C.size_t(len(messagesJSON)), optionsText,
			C.size_t(optionsLen), (*C.char)(unsafe.Pointer(to)), room, needed, failed)
	})
}

// render is ApplyChatTemplate with the tools of options, unless templateOptions has "tools".
func (e *Engine) render(messages, templateOptions any, options *RequestOptions) (string, error) {
	if options == nil || options.Tools == "" || options.ToolChoice == ToolChoiceNone {
		return e.ApplyChatTemplate(messages, templateOptions)
	}
	variables := map[string]json.RawMessage{}
	if templateOptions != nil {
		optionsJSON, err := encoded(templateOptions)
		if err != nil {
			return "", err
		}
		// What is no object is refused by the library, in its words.
		if json.Unmarshal([]byte(optionsJSON), &variables) != nil {
			return e.ApplyChatTemplate(messages, templateOptions)
		}
	}
	if _, has := variables["tools"]; !has {
		if !json.Valid([]byte(options.Tools)) {
			return "", &Error{Status: ErrInvalidArgument, Message: "Tools is no JSON"}
		}
		if variables == nil {
			variables = map[string]json.RawMessage{}
		}
		variables["tools"] = json.RawMessage(options.Tools)
	}
	return e.ApplyChatTemplate(messages, variables)
}

// encoded returns a value as JSON, in which < is <, not six characters as [json.Marshal] writes it.
func encoded(value any) (string, error) {
	var made strings.Builder
	encoder := json.NewEncoder(&made)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return made.String(), err
}

// sizedText is sized for a text, whose size includes the NUL.
func sizedText(e *Engine, guess int, call func(*byte, C.size_t, *C.size_t, *C.nvllm_error) C.nvllm_status) (string, error) {
	buffer, err := sized(e, guess, call)
	if err != nil {
		return "", err
	}
	return string(buffer[:len(buffer)-1]), nil
}

// sized calls with an estimate of the size, and once more if it was too small.
func sized[T any](e *Engine, guess int, call func(*T, C.size_t, *C.size_t, *C.nvllm_error) C.nvllm_status) ([]T, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()
	needed := C.size_t(guess)
	for {
		var failed C.nvllm_error
		buffer := make([]T, needed)
		switch status := call(&buffer[0], needed, &needed, &failed); status {
		case C.NVLLM_OK:
			return buffer[:needed], nil
		case C.NVLLM_ERR_BUFFER_TOO_SMALL:
		default:
			return nil, errorOf(status, &failed)
		}
	}
}
