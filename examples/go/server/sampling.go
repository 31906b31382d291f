package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"

	"libnanovllm/bindings/go"
)

// parameters are the fields that chat completions and completions share. The last ones are not part of OpenAI's API.
type parameters struct {
	labels
	structures
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage       bool `json:"include_usage"`
		IncludeObfuscation bool `json:"include_obfuscation"`
	} `json:"stream_options"`
	MaxTokens        *int            `json:"max_tokens"`
	Temperature      *float64        `json:"temperature"`
	TopP             *float64        `json:"top_p"`
	N                *int            `json:"n"`
	Stop             json.RawMessage `json:"stop"`
	Seed             *int64          `json:"seed"`
	PresencePenalty  *float64        `json:"presence_penalty"`
	FrequencyPenalty *float64        `json:"frequency_penalty"`
	LogitBias        json.RawMessage `json:"logit_bias"`

	TopK              *int            `json:"top_k"`
	MinP              *float64        `json:"min_p"`
	MinTokens         *int            `json:"min_tokens"`
	RepetitionPenalty *float64        `json:"repetition_penalty"`
	IgnoreEOS         bool            `json:"ignore_eos"`
	StopTokenIDs      json.RawMessage `json:"stop_token_ids"`
	IncludeStop       bool            `json:"include_stop_str_in_output"`
	CacheSalt         string          `json:"cache_salt"`
	Priority          int             `json:"priority"`

	// llama-server's.
	DryMultiplier       *float64        `json:"dry_multiplier"`
	DryBase             *float64        `json:"dry_base"`
	DryAllowedLength    *int            `json:"dry_allowed_length"`
	DryPenaltyLastN     *int            `json:"dry_penalty_last_n"`
	DrySequenceBreakers json.RawMessage `json:"dry_sequence_breakers"`
	XtcProbability      *float64        `json:"xtc_probability"`
	XtcThreshold        *float64        `json:"xtc_threshold"`
	TopNSigma           *float64        `json:"top_n_sigma"`
}

// labels are fields that only say something about a request: they are accepted, and change nothing.
type labels struct {
	User                 string          `json:"user"`
	SafetyIdentifier     string          `json:"safety_identifier"`
	PromptCacheKey       string          `json:"prompt_cache_key"`
	PromptCacheRetention string          `json:"prompt_cache_retention"`
	Metadata             json.RawMessage `json:"metadata"`
	ServiceTier          string          `json:"service_tier"`
	Store                bool            `json:"store"`
}

// check refuses what this server cannot do.
func (l *labels) check() error {
	switch l.ServiceTier {
	case "", "auto", "default", "standard_only":
	default:
		return unsupported("service_tier", "service_tier %q is not supported, only \"auto\" and \"default\"", l.ServiceTier)
	}
	if l.Store {
		return unsupported("store", "store is true, but this server keeps no answers: leave it out or set it to false")
	}
	return nil
}

// seedOfZero is the engine's seed for a request with the seed 0: the engine's 0 selects a seed that differs from request to request.
const seedOfZero = 1<<63 + 1

// options returns the options of a request; those that it does not set are the ones that the model recommends.
func (s *server) options(m *served, p *parameters) (*nanovllm.RequestOptions, error) {
	if err := p.labels.check(); err != nil {
		return nil, err
	}
	if p.Priority != 0 && !s.clientPriority {
		return nil, unsupported("priority", "priority is not allowed here: -client-priority allows it")
	}
	if p.StreamOptions.IncludeObfuscation {
		return nil, unsupported("stream_options.include_obfuscation", "stream_options.include_obfuscation is not supported")
	}
	options, err := p.options(m.recommended)
	if err != nil {
		return nil, err
	}
	vocabulary := m.info.VocabSize
	refusal := func(name string, token uint32) error {
		return badRequest(name, "%s has the token %d, but the model's vocabulary has %d", name, token, vocabulary)
	}
	for token := range options.LogitBias {
		if int(token) >= vocabulary {
			return nil, refusal("logit_bias", token)
		}
	}
	for _, token := range options.StopTokens {
		if int(token) >= vocabulary {
			return nil, refusal("stop_token_ids", token)
		}
	}
	return options, p.structures.apply(options)
}

func (p *parameters) options(recommended nanovllm.RequestOptions) (*nanovllm.RequestOptions, error) {
	// Fields with 32 bits in the engine must not wrap around.
	for _, number := range []struct {
		name      string
		value     *int
		low, high int
	}{
		{"max_tokens", p.MaxTokens, 1, math.MaxInt32},
		{"n", p.N, 1, maxN},
		{"top_k", p.TopK, -1, math.MaxInt32},
		{"min_tokens", p.MinTokens, 0, math.MaxInt32},
		{"dry_allowed_length", p.DryAllowedLength, 1, math.MaxInt32},
		{"dry_penalty_last_n", p.DryPenaltyLastN, -1, math.MaxInt32},
		{"priority", &p.Priority, math.MinInt32, math.MaxInt32},
	} {
		if err := checkRange(number.name, number.value, number.low, number.high); err != nil {
			return nil, err
		}
	}
	if p.TopP != nil && *p.TopP <= 0 {
		return nil, badRequest("top_p", "top_p is %v, but it must be above 0", *p.TopP)
	}
	if p.RepetitionPenalty != nil && *p.RepetitionPenalty <= 0 {
		return nil, badRequest("repetition_penalty", "repetition_penalty is %v, but it must be above 0", *p.RepetitionPenalty)
	}
	if p.XtcThreshold != nil && *p.XtcThreshold <= 0 {
		return nil, badRequest("xtc_threshold", "xtc_threshold is %v, but it must be above 0", *p.XtcThreshold)
	}
	options := recommended
	set(&options.MaxTokens, p.MaxTokens)
	set(&options.N, p.N)
	set(&options.TopP, p.TopP)
	set(&options.Temperature, p.Temperature)
	set(&options.TopK, p.TopK)
	options.TopK = max(0, options.TopK) // vLLM's -1 is all tokens, as 0
	set(&options.MinP, p.MinP)
	set(&options.MinTokens, p.MinTokens)
	if p.Seed != nil {
		options.Seed = cmp.Or(uint64(*p.Seed), seedOfZero)
	}
	set(&options.PresencePenalty, p.PresencePenalty)
	set(&options.FrequencyPenalty, p.FrequencyPenalty)
	set(&options.RepetitionPenalty, p.RepetitionPenalty)
	options.IgnoreEOS = p.IgnoreEOS
	options.IncludeStop = p.IncludeStop
	options.Priority = p.Priority
	if p.CacheSalt != "" {
		hashed := sha256.Sum256([]byte(p.CacheSalt))
		options.CacheSalt = binary.LittleEndian.Uint64(hashed[:])
	}
	set(&options.TopNSigma, p.TopNSigma)
	set(&options.XtcProbability, p.XtcProbability)
	set(&options.XtcThreshold, p.XtcThreshold)
	var err error
	if options.Stop, err = p.stopStrings(); err != nil {
		return nil, err
	}
	if err := p.dry(&options); err != nil {
		return nil, err
	}
	if err := decodePart("stop_token_ids", p.StopTokenIDs, nanovllm.MaxStopTokens, &options.StopTokens); err != nil {
		return nil, err
	}
	options.LogitBias, err = p.biases()
	return &options, err
}

// stopStrings decodes "a" or ["a", "b"].
func (p *parameters) stopStrings() ([]string, error) {
	if isAbsent(p.Stop) {
		return nil, nil
	}
	var texts []string
	var err error
	if p.Stop[0] == '"' {
		texts = []string{""}
		err = json.Unmarshal(p.Stop, &texts[0])
	} else {
		err = decodePart("stop", p.Stop, nanovllm.MaxStopStrings, &texts)
	}
	for _, text := range texts {
		if len(text) > nanovllm.MaxStopStringBytes {
			return nil, badRequest("stop", "a stop string has %d bytes, but at most %d are allowed", len(text), nanovllm.MaxStopStringBytes)
		}
	}
	return texts, err
}

// dry sets the options of the DRY penalty.
func (p *parameters) dry(options *nanovllm.RequestOptions) error {
	set(&options.DryMultiplier, p.DryMultiplier)
	set(&options.DryBase, p.DryBase)
	set(&options.DryAllowedLength, p.DryAllowedLength)
	set(&options.DryPenaltyLastN, p.DryPenaltyLastN)
	switch options.DryPenaltyLastN {
	case -1: // llama-server's "all tokens", which is the engine's default
		options.DryPenaltyLastN = 0
	case 0:
		if p.DryPenaltyLastN != nil { // llama-server's "off"
			options.DryMultiplier = 0
		}
	}
	if err := decodePart("dry_sequence_breakers", p.DrySequenceBreakers, nanovllm.MaxDryBreakers, &options.DrySequenceBreakers); err != nil {
		return err
	}
	for _, text := range options.DrySequenceBreakers {
		if len(text) > nanovllm.MaxDryBreakerBytes {
			return badRequest("dry_sequence_breakers", "a sequence breaker has %d bytes, but at most %d are allowed", len(text), nanovllm.MaxDryBreakerBytes)
		}
	}
	return nil
}

// biases decodes an object whose names are token ids.
func (p *parameters) biases() (map[uint32]float32, error) {
	var named map[string]float32
	if err := decodePart("logit_bias", p.LogitBias, nanovllm.MaxBiases, &named); err != nil || len(named) == 0 {
		return nil, err
	}
	biases := make(map[uint32]float32, len(named))
	for name, bias := range named {
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return nil, badRequest("logit_bias", "logit_bias has the key %q, but keys are token ids", name)
		}
		biases[uint32(id)] = bias
	}
	return biases, nil
}

func checkRange(name string, value *int, low, high int) error {
	if value == nil || low <= *value && *value <= high {
		return nil
	}
	return badRequest(name, "%s is %d, but it must be from %d to %d", name, *value, low, high)
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}
