"""Renders the chat templates of chat/templates with transformers and records the texts.

Writes chat/cases.json. Each template is put into a model folder with chat/tokenizer_config.json, loaded and rendered by
transformers' apply_chat_template, for every conversation below and some options. Deterministic. Needs the package
transformers (5.23 with jinja2 3.1.6 made the committed file).

    python tests/golden/text/make_chat.py
"""

import json
import shutil
import tempfile
from pathlib import Path

import jinja2
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent / "chat"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Says what the weather is like in <city> & around, in °C",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city's name, as in \"Zürich\""},
                "days": {"type": "array", "items": {"type": ["integer", "null"]}, "default": []},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "extra": {}},
                "limit": {"type": "number", "default": 1e-07, "maximum": 1e22, "minimum": -0.5, "strict": True, "none": None},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}, "return": {"type": "string"}},
}


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


CONVERSATIONS = {
    "question": [turn("user", "Hello there")],
    "system": [turn("system", "You are   helpful.\n"), turn("user", " Hello,\n world! ")],
    "two turns": [turn("user", "1+1?"), turn("assistant", "2"), turn("user", "Sure?")],
    "long": [turn("system", "S"), turn("user", "a"), turn("assistant", "b"), turn("user", "c"), turn("assistant", "d")],
    "unicode": [turn("user", "Grüße 日本語 😀 👩‍👧 \u00a0\u2028 \u200b x\u0301 \x7f \\n \"quoted\" it's")],
    "html": [turn("user", "<script>alert('x & y')</script> <|im_end|> </s>")],
    "empty": [turn("user", ""), turn("assistant", "")],
    "null": [turn("user", "q"), turn("assistant", None, tool_calls=None), turn("user", "r")],
    "templates in text": [turn("user", "{{ 1 + 1 }} {% if x %} {# c #}")],
    "lines": [turn("user", "a\nb\r\nc\n\n\nd \n"), turn("assistant", "\n\nx\n\n"), turn("user", "\ty")],
    "thoughts": [
        turn("user", "q"),
        turn("assistant", "<think>\nhm\n\nso\n</think>\n\nanswer"),
        turn("user", "again"),
        turn("assistant", "<think>\nmore</think>\nlast"),
    ],
    "reasoning": [turn("user", "q"), turn("assistant", "a", reasoning_content="\nbecause\n")],
    "thinking": [turn("user", "q"), turn("assistant", "a", thinking="since"), turn("user", "p")],
    "call": [
        turn("user", "Weather in Zürich?"),
        turn("assistant", None, tool_calls=[call("get_weather", {"city": "Zürich", "days": [1, 2], "x": {"y": None, "z": 1.0}})]),
        turn("tool", "{\"t\": 21}", tool_call_id="call00001"),
        turn("assistant", "21 °C"),
        turn("user", "Thanks"),
    ],
    "calls": [
        turn("user", "Both!"),
        turn("assistant", "Wait.", tool_calls=[call("clock", {}), call("get_weather", "{\"city\": \"Bern\"}", "call00002")]),
        turn("tool", "12:00", tool_call_id="call00001"),
        turn("tool", "rain", tool_call_id="call00002"),
    ],
    "results": [
        turn("user", "<result>x</result>"),
        turn("tool", [{"type": "text", "text": "r"}], tool_call_id="call00001"),
        turn("tool", "stop", tool_call_id="call00001"),
        turn("assistant", "done"),
    ],
    "parts": [
        turn("user", [{"type": "text", "text": "look: "}, {"type": "image"}, {"type": "text", "text": " what?"}], name="Ann"),
        turn("assistant", [{"type": "text", "text": "a cat"}]),
    ],
    "system late": [turn("user", "u"), turn("system", "late"), turn("assistant", "a")],
    "two users": [turn("user", "u"), turn("user", "v")],
    "other role": [turn("user", "u"), turn("critic", "no", skip=True, n=3, f=1e100, b=False)],
}

TOOLS = {"tools": [WEATHER, CLOCK]}
OPTIONS = {
    "plain": {},
    "no prompt": {"add_generation_prompt": False},
    "tools": TOOLS,
    "no tools": {"tools": [], "enable_thinking": True},
    "no thinking": {"enable_thinking": False, "date_string": "26 Jul 2024", "bos_token": "<other>"},
    "tools for system": {**TOOLS, "tools_in_user_message": False, "add_generation_prompt": False},
    "custom tools": {"custom_tools": [{"name": "f", "a": [[], {}, [{}], ""]}]},
    "documents": {"documents": [{"title": "A & B", "text": "x"}, {"title": "C", "text": ""}]},
    "continued": {"continue_final_message": True, "add_generation_prompt": False},
    "controls": {"controls": {"citations": True, "length": "short"}, "documents": [{"b": "é", "a": 1}], **TOOLS},
    "kept thoughts": {"skip_think": False, "enable_thinking": True},
}

# Templates in the manner of one family are rendered with these options only, and "kinds" with these conversations.
FAMILIES = ["kinds", "system_first", "end_marks", "thinking_modes", "observations", "indicators", "preamble"]
KINDS = ["question", "unicode", "parts"]
FAMILY_OPTIONS = ["plain", "tools", "no thinking", "documents", "controls", "kept thoughts"]

# Every conversation is rendered with the first two; these options with the conversations named.
FURTHER = {
    "tools": ["question", "system", "two turns", "call", "calls", "parts"],
    "no tools": ["question", "calls"],
    "no thinking": ["question", "thoughts", "call"],
    "tools for system": ["system", "call"],
    "custom tools": ["question"],
    "documents": ["question", "parts"],
    "controls": ["question"],
    "kept thoughts": ["thoughts", "reasoning"],
    "continued": ["two turns", "long", "lines", "thoughts", "parts", "null", "call", "reasoning"],
}


def render(tokenizer, conversation, options):
    options = {"add_generation_prompt": True, **options}
    try:
        return {"text": tokenizer.apply_chat_template(conversation, tokenize=False, **options)}
    except jinja2.exceptions.TemplateError as error:
        # An error that the template raised itself has the template's words and no other kind.
        if type(error) is jinja2.exceptions.TemplateError:
            return {"raised": str(error)}
        return {"fails": f"{type(error).__name__}: {error}"}
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        return {"fails": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def load(folder, template):
    shutil.copy(HERE.parent / "byte_level" / "tokenizer.json", folder)
    shutil.copy(HERE / "tokenizer_config.json", folder)
    shutil.copy(template, Path(folder) / "chat_template.jinja")
    return PreTrainedTokenizerFast.from_pretrained(folder)


def main():
    cases = []
    for template in sorted((HERE / "templates").glob("*.jinja")):
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = load(folder, template)
        is_family = template.stem in FAMILIES
        for option_name, options in OPTIONS.items():
            if is_family and option_name not in FAMILY_OPTIONS:
                continue
            if not is_family and option_name in ("controls", "kept thoughts"):
                continue
            for name in FURTHER.get(option_name, CONVERSATIONS):
                if template.stem == "kinds" and name not in KINDS:
                    continue
                case = {"template": template.stem, "conversation": name, "options": option_name}
                cases.append(case | render(tokenizer, CONVERSATIONS[name], options))
    golden = {"conversations": CONVERSATIONS, "options": OPTIONS, "cases": cases}
    lines = json.dumps(golden, ensure_ascii=True, separators=(",", ":")).replace('{"template"', '\n{"template"')
    (HERE / "cases.json").write_text(lines + "\n")
    outcomes = [next(key for key in ("text", "raised", "fails") if key in case) for case in cases]
    print(len(cases), "cases:", {outcome: outcomes.count(outcome) for outcome in set(outcomes)})
    for case in cases:
        if "fails" in case:
            print(case["template"], "|", case["conversation"], "|", case["options"], "|", case["fails"][:120])


if __name__ == "__main__":
    main()
