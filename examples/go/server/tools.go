package main

import "encoding/json"

// toolFields are the fields of a chat that say which functions the model may call.
type toolFields struct {
	Tools             json.RawMessage `json:"tools"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
}

// A tool is a function that the model may call.
type tool struct {
	Type     string        `json:"type"`
	Function *toolFunction `json:"function"`
}

// A toolFunction has its fields in the order in which models have seen them.
type toolFunction struct {
	Name        string          `json:"name"`
	Description *string         `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// checkTools returns the tools that the prompt shows, none if the model may not call any.
func (t *toolFields) checkTools() ([]tool, error) {
	var tools []tool
	if err := decodeTree("tools", t.Tools, maxTools, &tools); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i, tool := range tools {
		switch {
		case tool.Type != "function":
			return nil, unsupported("tools", "tools[%d] has the type %q, but only \"function\" is supported", i, tool.Type)
		case tool.Function == nil || tool.Function.Name == "":
			return nil, badRequest("tools", "tools[%d] has no function.name", i)
		case len(tool.Function.Name) > maxToolName:
			return nil, badRequest("tools", "tools[%d].function.name has %d bytes, but at most %d are allowed", i, len(tool.Function.Name), maxToolName)
		case names[tool.Function.Name]:
			return nil, badRequest("tools", "tools[%d] has the name %q, as an earlier one", i, tool.Function.Name)
		case !isAbsent(tool.Function.Parameters) && tool.Function.Parameters[0] != '{':
			return nil, badRequest("tools", "tools[%d].function.parameters is not an object, which a JSON schema of arguments is", i)
		}
		names[tool.Function.Name] = true
	}
	choice, err := t.choice()
	if err != nil {
		return nil, err
	}
	switch {
	case choice.mode == "none":
		return nil, nil
	case choice.mode != "auto" && len(tools) == 0:
		return nil, badRequest("tool_choice", "tool_choice is %s, but there are no tools", string(t.ToolChoice))
	case choice.name != "" && !names[choice.name]:
		return nil, badRequest("tool_choice", "tool_choice names %q, which is none of the tools", choice.name)
	}
	return tools, nil
}

// A toolChoice says whether the model may, must or must not call a function.
type toolChoice struct {
	mode string // auto, none, required
	name string // of the function that must be called
}

// choice decodes "auto", "none", "required", or {"type": "function", "function": {"name": …}}.
func (t *toolFields) choice() (toolChoice, error) {
	switch choice := string(t.ToolChoice); choice {
	case "", "null", `"auto"`:
		return toolChoice{mode: "auto"}, nil
	case `"none"`:
		return toolChoice{mode: "none"}, nil
	case `"required"`, `"any"`:
		return toolChoice{mode: "required"}, nil
	default:
		var named struct {
			Type     string `json:"type"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		if json.Unmarshal(t.ToolChoice, &named) != nil || named.Type != "function" || named.Function.Name == "" {
			return toolChoice{}, unsupported("tool_choice", "tool_choice %s is not supported, only \"auto\", \"none\", \"required\" and {\"type\": \"function\", \"function\": {\"name\": …}}", choice)
		}
		return toolChoice{mode: "required", name: named.Function.Name}, nil
	}
}
