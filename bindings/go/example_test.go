package nanovllm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"libnanovllm/bindings/go"
)

// Many prompts in one call.
func Example() {
	engine, err := nanovllm.New(nanovllm.Config{ModelPath: "../../models/demo"})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	question := []nanovllm.Message{{Role: "user", Content: "list all prime numbers within 10"}}
	prompt, err := engine.ApplyChatTemplate(question, nil)
	if err != nil {
		log.Fatal(err)
	}
	answers, err := engine.Generate(context.Background(), []string{prompt}, &nanovllm.RequestOptions{MaxTokens: 64})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answers[0].Text)
	// Output: Prime numbers within 10: 2, 3, 5, 7.
}

// A goroutine steps the engine, and any number of others range over answers.
func ExampleEngine_Answer() {
	engine, err := nanovllm.New(nanovllm.Config{ModelPath: "../../models/demo"})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go engine.Run(ctx)

	prompt := "<|im_start|>user\nlist all prime numbers within 20<|im_end|>\n<|im_start|>assistant\n"
	for delta, err := range engine.Answer(ctx, prompt, &nanovllm.RequestOptions{MaxTokens: 64}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(delta.Text)
	}
	// Output: Prime numbers within 20: 2, 3, 5, 7, 11, 13, 17, 19.
}

// A conversation keeps its history. Without Run, it steps the engine itself.
func ExampleChat() {
	engine, err := nanovllm.New(nanovllm.Config{ModelPath: "../../models/demo"})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	chat := engine.NewChat()
	chat.Options = &nanovllm.RequestOptions{MaxTokens: 64}
	for delta, err := range chat.Send(context.Background(), "list all prime numbers within 20") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(delta.Text)
	}
	fmt.Println()
	fmt.Println(len(chat.Messages()), "messages")
	// Output:
	// Prime numbers within 20: 2, 3, 5, 7, 11, 13, 17, 19.
	// 2 messages
}

// A program that has a loop of its own gives each step a part of its time.
func ExampleEngine_Step() {
	engine, err := nanovllm.New(nanovllm.Config{ModelPath: "../../models/demo"})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	prompt := "<|im_start|>user\nlist all prime numbers within 5<|im_end|>\n<|im_start|>assistant\n"
	if _, err := engine.Add(prompt, &nanovllm.RequestOptions{MaxTokens: 64}); err != nil {
		log.Fatal(err)
	}
	for !engine.Finished() {
		if _, err := engine.Step(4 * time.Millisecond); err != nil {
			log.Fatal(err)
		}
		for output, err := range engine.Outputs() {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(output.Text)
		}
	}
	// Output: Prime numbers within 5: 2, 3, 5.
}

func ExampleError() {
	_, err := nanovllm.New(nanovllm.Config{ModelPath: "/no/such/folder"})
	fmt.Println(errors.Is(err, nanovllm.ErrIO))
	// Output: true
}
