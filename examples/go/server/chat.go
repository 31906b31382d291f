package main

import (
	"encoding/json"
	"math"
	"net/http"

	"libnanovllm/bindings/go"
)

// A chatRequest is the body of POST /v1/chat/completions. Responses and Messages become one.
type chatRequest struct {
	parameters
	conversation
	MaxCompletionTokens *int     `json:"max_completion_tokens"`
	Logprobs            bool     `json:"logprobs"`
	TopLogprobs         int      `json:"top_logprobs"`
	Modalities          []string `json:"modalities"`
	PromptLogprobs      *int     `json:"prompt_logprobs"` // of vLLM
	MaxThinkingTokens   *int     `json:"max_thinking_tokens"`
}

// A conversation is what becomes a prompt by the model's template.
type conversation struct {
	toolFields
	Messages        json.RawMessage `json:"messages"`
	ReasoningEffort string          `json:"reasoning_effort"`
	// Not part of OpenAI's API: variables of the template, and how the prompt ends.
	ChatTemplateKwargs   json.RawMessage `json:"chat_template_kwargs"`
	Documents            json.RawMessage `json:"documents"`
	AddGenerationPrompt  *bool           `json:"add_generation_prompt"`
	ContinueFinalMessage bool            `json:"continue_final_message"`
}

const parseSpecial = nanovllm.ParseSpecial

func (s *server) chatCompletions(w http.ResponseWriter, r *http.Request) { s.answer(w, r, s.chatJob) }

// chatJob turns a conversation into a prompt.
func (s *server) chatJob(m *served, body []byte) (*job, error) {
	var request chatRequest
	if err := s.understandFields(body, &request); err != nil {
		return nil, err
	}
	form := newOpenAIForm(true, m.model.name, request.StreamOptions.IncludeUsage)
	j, err := s.jobOf(m, &request, form)
	form.job = j
	return j, err
}

// jobOf returns the job of a conversation, which answers in a form.
func (s *server) jobOf(m *served, request *chatRequest, form form) (*job, error) {
	if err := request.complete(); err != nil {
		return nil, err
	}
	options, err := s.options(m, &request.parameters)
	if err != nil {
		return nil, err
	}
	if request.Logprobs {
		options.NumLogprobs = max(1, request.TopLogprobs)
	}
	text, err := m.chatPrompt(&request.conversation)
	if err != nil {
		return nil, err
	}
	j, err := newJob(m, form, &request.parameters, &question{prompts: []prompt{{text: text}}, options: options})
	if err != nil {
		return nil, err
	}
	j.alternatives, j.logprobField = request.TopLogprobs, "top_logprobs"
	if err := m.listenTo(j, request, text); err != nil {
		return nil, err
	}
	if request.PromptLogprobs != nil {
		j.echo = &echo{job: j}
		return j, j.echo.ask(request.PromptLogprobs)
	}
	return j, nil
}

// complete checks the fields that depend on others.
func (c *chatRequest) complete() error {
	if err := checkRange("max_completion_tokens", c.MaxCompletionTokens, 1, math.MaxInt32); err != nil {
		return err
	}
	if c.MaxCompletionTokens != nil {
		c.MaxTokens = c.MaxCompletionTokens
	}
	if c.TopLogprobs > 0 && !c.Logprobs {
		return badRequest("top_logprobs", "top_logprobs is %d, but without logprobs it must be 0", c.TopLogprobs)
	}
	if err := checkRange("top_logprobs", &c.TopLogprobs, 0, math.MaxInt32); err != nil {
		return err
	}
	for _, one := range c.Modalities {
		if one != "text" {
			return unsupported("modalities", "modalities has %q, but only \"text\" is supported", one)
		}
	}
	return nil
}

// check checks the fields that depend on others.
func (c *conversation) check() error {
	if c.ContinueFinalMessage && c.AddGenerationPrompt != nil && *c.AddGenerationPrompt {
		return badRequest("add_generation_prompt", "add_generation_prompt begins a new message, and continue_final_message goes on with the last one: only one of them may be true")
	}
	return nil
}

// chatPrompt applies the model's chat template.
func (o *served) chatPrompt(request *conversation) (string, error) {
	if err := request.check(); err != nil {
		return "", err
	}
	messages, err := o.chatMessages(request.Messages)
	if err != nil {
		return "", err
	}
	variables := map[string]json.RawMessage{}
	if err := decodeTree("chat_template_kwargs", request.ChatTemplateKwargs, maxValues, &variables); err != nil {
		return "", err
	}
	if variables == nil {
		variables = map[string]json.RawMessage{}
	}
	var documents []map[string]json.RawMessage
	if err := decodeTree("documents", request.Documents, maxTools, &documents); err != nil {
		return "", err
	}
	tools, err := request.checkTools()
	if err != nil {
		return "", err
	}
	if len(tools) > 0 {
		variables["tools"] = request.Tools
	}
	if len(documents) > 0 {
		variables["documents"] = request.Documents
	}
	if request.ReasoningEffort != "" {
		setDefault(variables, "reasoning_effort", request.ReasoningEffort)
		if request.ReasoningEffort == "none" {
			setDefault(variables, "enable_thinking", false)
		}
	}
	if request.AddGenerationPrompt != nil {
		setDefault(variables, "add_generation_prompt", *request.AddGenerationPrompt)
	}
	if request.ContinueFinalMessage {
		setDefault(variables, "continue_final_message", true)
	}
	for _, value := range variables {
		mendSurrogates(value)
	}
	return o.pool.engine().ApplyChatTemplate(messages, variables)
}

// setDefault sets a variable of the template unless the client has set it.
func setDefault(variables map[string]json.RawMessage, name string, value any) {
	if _, isSet := variables[name]; !isSet {
		variables[name] = encodedJSON(value)
	}
}

// encodedJSON is a value of a kind that JSON has.
func encodedJSON(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts, numbers, and lists of them
	}
	return text
}
