package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"

	"libnanovllm/bindings/go"
)

// An embeddingRequest is the body of POST /v1/embeddings.
type embeddingRequest struct {
	labels
	Model          string          `json:"model"`
	Input          json.RawMessage `json:"input"`
	EncodingFormat string          `json:"encoding_format"`
	Dimensions     *int            `json:"dimensions"`
	Truncation     *int            `json:"truncate_prompt_tokens"`
}

// An embeddingForm is the form of the vectors of a job.
type embeddingForm struct {
	asBase64   bool
	dimensions int // 0 = all of them
}

// An embedding is one entry of the response.
type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // numbers, or base64 of little-endian float32
}

func (s *server) embeddings(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	j, merged, err := s.receive(ctx, r, s.embeddingJob)
	if err != nil {
		writeError(w, r, reasonFor(ctx, err))
		return
	}
	defer j.release()
	data := make([]embedding, j.prompts)
	var total usage
	for delta := range merged {
		if delta.Err != nil {
			writeError(w, r, reasonFor(ctx, delta.Err))
			return
		}
		total.add(delta.Delta)
		data[delta.choice] = embedding{Object: "embedding", Index: delta.choice, Embedding: j.embedding.of(delta.Embedding)}
	}
	if err := ctx.Err(); err != nil {
		writeError(w, r, reasonFor(ctx, err))
		return
	}
	noteOf(r).usage = total
	writeJSON(w, r, http.StatusOK, map[string]any{"object": "list", "model": j.served.model.name, "data": data,
		"usage": map[string]int{"prompt_tokens": total.PromptTokens, "total_tokens": total.PromptTokens}})
}

// of returns a vector in the form that was asked for. One that is cut has the length 1 again.
func (f embeddingForm) of(vector []float32) any {
	if f.dimensions > 0 {
		vector = vector[:min(len(vector), f.dimensions)]
	}
	normalize(vector)
	if f.asBase64 {
		return encoded(vector)
	}
	return vector
}

// embeddingJob has one output per input, which ends its request. If one input is refused, all are.
func (s *server) embeddingJob(m *served, body []byte) (*job, error) {
	var request embeddingRequest
	if err := s.understandFields(body, &request); err != nil {
		return nil, err
	}
	if err := request.labels.check(); err != nil {
		return nil, err
	}
	width := m.info.HiddenSize
	if m.model.pooling == nanovllm.PoolingAuto {
		width = m.info.EmbeddingSize
	}
	if err := m.dimensions.check(request.Dimensions, width); err != nil {
		return nil, err
	}
	switch request.EncodingFormat {
	case "", "float", "base64":
	default:
		return nil, badRequest("encoding_format", "encoding_format is %q, but it must be \"float\" or \"base64\"", request.EncodingFormat)
	}
	inputs, err := decodePrompts("input", request.Input)
	if err != nil {
		return nil, err
	}
	if most := max(1, maxDimensions/max(1, width)); len(inputs) > most {
		return nil, badRequest("input", "input has %d texts, but at most %d of this model's embeddings fit into an answer", len(inputs), most)
	}
	options := &nanovllm.RequestOptions{Pooling: m.model.pooling}
	if err := truncate(options, request.Truncation); err != nil {
		return nil, err
	}
	form := embeddingForm{asBase64: request.EncodingFormat == "base64"}
	set(&form.dimensions, request.Dimensions)
	return &job{served: m, prompts: len(inputs), choices: 1, embedding: form,
		asked: &question{prompts: inputs, options: options}}, nil
}

// normalize scales a vector to the length 1, as OpenAI's embeddings are.
func normalize(vector []float32) {
	var square float64
	for _, value := range vector {
		square += float64(value) * float64(value)
	}
	if square == 0 {
		return
	}
	length := math.Sqrt(square)
	for i := range vector {
		vector[i] = float32(float64(vector[i]) / length)
	}
}

func encoded(vector []float32) string {
	bytes := make([]byte, 0, 4*len(vector))
	for _, value := range vector {
		bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(value))
	}
	return base64.StdEncoding.EncodeToString(bytes)
}
