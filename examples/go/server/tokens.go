package main

import (
	"net/http"

	"libnanovllm/bindings/go"
)

// A tokenizeRequest is the body of POST /tokenize: a prompt or messages as vLLM has them, or a content as llama-server has it.
type tokenizeRequest struct {
	conversation
	Model            string  `json:"model"`
	Prompt           *string `json:"prompt"`
	AddSpecialTokens *bool   `json:"add_special_tokens"`
	ReturnTokenStrs  bool    `json:"return_token_strs"`

	Content      *string `json:"content"`
	AddSpecial   bool    `json:"add_special"`
	ParseSpecial *bool   `json:"parse_special"`
}

// tokenize answers with the tokens of a text or of a conversation.
func (s *server) tokenize(w http.ResponseWriter, r *http.Request) {
	s.tell(w, r, func(m *served, body []byte) (any, error) {
		var request tokenizeRequest
		if err := s.understandFields(body, &request); err != nil {
			return nil, err
		}
		text, flags, err := request.text(m)
		if err != nil {
			return nil, err
		}
		tokens, err := m.pool.engine().Tokenize(text, flags)
		if err != nil {
			return nil, err
		}
		answer := map[string]any{"count": len(tokens), "max_model_len": m.info.MaxModelLen, "tokens": append([]uint32{}, tokens...)}
		if request.ReturnTokenStrs {
			spelled := []string{}
			for _, token := range tokens {
				one, err := m.spell(token, 0)
				if err != nil {
					return nil, err
				}
				spelled = append(spelled, one.Token)
			}
			answer["token_strs"] = spelled
		}
		return answer, nil
	})
}

// text returns what is tokenized, and how.
func (t *tokenizeRequest) text(m *served) (string, nanovllm.TokenizeFlags, error) {
	given := 0
	for _, isGiven := range []bool{t.Prompt != nil, t.Content != nil, !isAbsent(t.Messages)} {
		if isGiven {
			given++
		}
	}
	if given != 1 {
		return "", 0, badRequest("prompt", "one of prompt, messages and content must be given, not %d", given)
	}
	flags := func(addSpecial, parse bool) (flags nanovllm.TokenizeFlags) {
		if addSpecial {
			flags |= nanovllm.AddSpecial
		}
		if parse {
			flags |= nanovllm.ParseSpecial
		}
		return flags
	}
	switch {
	case t.Prompt != nil:
		return *t.Prompt, flags(t.AddSpecialTokens == nil || *t.AddSpecialTokens, true), nil
	case t.Content != nil:
		return *t.Content, flags(t.AddSpecial, t.ParseSpecial == nil || *t.ParseSpecial), nil
	}
	text, err := m.chatPrompt(&t.conversation)
	return text, flags(t.AddSpecialTokens != nil && *t.AddSpecialTokens, true), err
}

// detokenize answers with the text of tokens, as prompt for clients of vLLM and as content for those of llama-server.
func (s *server) detokenize(w http.ResponseWriter, r *http.Request) {
	s.tell(w, r, func(m *served, body []byte) (any, error) {
		var request struct {
			Model  string   `json:"model"`
			Tokens []uint32 `json:"tokens"`
		}
		if err := s.understandFields(body, &request); err != nil {
			return nil, err
		}
		for _, token := range request.Tokens {
			if int(token) >= m.info.VocabSize {
				return nil, badRequest("tokens", "tokens has the token %d, but the model's vocabulary has %d", token, m.info.VocabSize)
			}
		}
		text, err := m.pool.engine().Detokenize(request.Tokens, nanovllm.ParseSpecial)
		return map[string]any{"prompt": text, "content": text}, err
	})
}

// tell answers a request that needs the tokenizer of a model, and no engine.
func (s *server) tell(w http.ResponseWriter, r *http.Request, understand func(m *served, body []byte) (any, error)) {
	answer, err := s.told(r, understand)
	if err != nil {
		writeError(w, r, reasonFor(r.Context(), err))
		return
	}
	writeJSON(w, r, http.StatusOK, answer)
}

func (s *server) told(r *http.Request, understand func(m *served, body []byte) (any, error)) (any, error) {
	held := s.intake.hold()
	defer held.release()
	body, err := s.readBody(r, held)
	if err != nil {
		return nil, err
	}
	name, err := modelOf(body)
	if err != nil {
		return nil, err
	}
	asked, err := s.catalog.find(name)
	if err != nil {
		return nil, err
	}
	noteOf(r).model = asked.name
	model, err := s.catalog.acquire(r.Context(), asked)
	if err != nil {
		return nil, err
	}
	defer model.release()
	done, err := s.intake.turn(r.Context(), int64(len(body)))
	if err != nil {
		return nil, err
	}
	defer done()
	return understand(model.served, body)
}
