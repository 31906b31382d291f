// Package nanovllm runs large language models inside a Go program, by libnanovllm.
//
// An [Engine] is a model, its tokenizer, a paged KV cache, and a scheduler that batches all requests together. There are four
// ways to use it, from the least to the most control:
//
//   - [Engine.NewChat] begins a conversation, whose [Chat.Send] returns each answer as it grows.
//   - [Engine.Generate] and [Engine.GeneratePrompts] generate for many prompts in one call.
//   - [Engine.Run] steps the engine until its context ends, in a goroutine of its own. Meanwhile [Engine.Stream] and
//     [Engine.Answer] return the completion of one request as it grows, from any number of goroutines.
//   - [Engine.Add], [Engine.Step] and [Engine.Outputs] leave the loop to the program, which may give each step a time budget.
//
// # Goroutines
//
// Every method may be called from any goroutine at any time, also while another one closes the engine. Run, Step, Fork, Trim,
// ResetPrefixCache, SavePrefix and RestorePrefix exclude each other: a second caller gets [ErrBusy] at once. While Run runs, the
// others return it for as long as Run does. All other methods go on meanwhile, Generate, Chat.Send, Outputs and ReleasePrefix included:
// while Run runs, Generate and Chat.Send wait for what it computes, and otherwise they step the engine, one pass at a time, between
// which the others run.
//
// # Errors
//
// A failed call returns an [*Error] with the library's message. Its [Status] is an error too, for [errors.Is]:
//
//	if errors.Is(err, nanovllm.ErrQueueFull) { … }
//
// # Linking
//
// The README of the package says where the library is looked for, and what helps if it is not found.
//
// The package finds the library by pkg-config, under the name nanovllm. The build tag nanovllm_static links it statically, by
// nanovllm-static; the tag nanovllm_tree takes it from the build folder of the source tree that the package lies in. No C code
// calls back into Go.
package nanovllm
