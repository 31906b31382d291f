"""Parses answers by the response templates below with transformers and records the messages.

Writes answer/cases.json: templates in the manner of published ones, and others for what those do not use; for each, answers as
models write them, and random ones made of its markers, of parts of markers, and of text. Deterministic. Needs the package
transformers (5.23 made the committed file).

    python tests/golden/text/make_answers.py
"""

import json
import random
from pathlib import Path

from transformers.utils.chat_parsing import parse_response

HERE = Path(__file__).parent / "answer"

CALL = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.arguments}"}}
NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THINK = {"open": "<think>", "close": "</think>"}

TEMPLATES = {
    # JSON between tags, as Qwen 3 and Hermes write.
    "json in tags": {
        "version": 1,
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "thinking": THINK,
            "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": True, "transform": CALL},
            "content": {"close": "<|im_end|>"},
        },
    },
    # Qwen3-Coder.
    "xml": {
        "defaults": {"role": "assistant", "content": ""},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "thinking": THINK,
            "tool_calls": {
                "open_pattern": r"<tool_call>\s*<function=(?P<name>\w+)>",
                "close": "</tool_call>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r"<parameter=(?P<key>\w+)>\s*(?P<value>.*?)\s*</parameter>",
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "transform": NAMED,
            },
            "content": {"close": "<|im_end|>", "content": "text"},
        },
    },
    # Gemma 4.
    "gemma": {
        "defaults": {"role": "assistant"},
        "start_anchor": ["<|turn>model\n", "<tool_response|>"],
        "fields": {
            "thinking": {"open": "<|channel>thought\n", "close": "<channel|>", "content": "text"},
            "tool_calls": {
                "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
                "close": "<tool_call|>",
                "content": "json",
                "content_args": {"unquoted_keys": True, "string_delims": [["<|\"|>", "<|\"|>"]]},
                "repeats": True,
                "transform": NAMED,
            },
            "content": {"close": ["<turn|>", "<|tool_response>", "<eos>"], "content": "text"},
        },
    },
    # gpt-oss: no region for other text, channels that repeat.
    "channels": {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|start|>assistant",
        "fields": {
            "thinking": {
                "open": "<|channel|>analysis<|message|>",
                "close": ["<|end|>", "<|return|>", "<|call|>"],
                "repeats": True,
                "join": "\n\n",
            },
            "content": {"open_pattern": r"<\|channel\|>(?:final|commentary)<\|message\|>", "close_pattern": r"<\|(?:end|return|call)\|>"},
            "tool_calls": {
                "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>[\w.]+)\s*(?:<\|constrain\|>)?\w*<\|message\|>",
                "close": ["<|call|>", "<|end|>"],
                "content": "json",
                "repeats": True,
                "transform": NAMED,
            },
        },
    },
    # A list of calls, each made of an item; ends with the text.
    "list": {
        "start_anchor_pattern": r"\[/INST\]|</s>",
        "fields": {
            "tool_calls": {
                "open": "[TOOL_CALLS]",
                "close_pattern": r"$",
                "content": "json",
                "transform": {"type": "function", "id": "{id}", "function": {"name": "{name}", "arguments": "{arguments}"}},
                "transform_each": True,
            },
            "thinking": {"open_pattern": r"\[THINK\]\s*", "close_pattern": r"\s*\[/THINK\]|\Z", "content_args": {"strip": False}},
            "content": {"content_args": {"strip": False}},
        },
    },
    # Every parser, and arguments with equal names.
    "parsers": {
        "defaults": {"role": "assistant", "score": None},
        "start_anchor": ">>",
        "fields": {
            "score": {"open": "<int>", "close": "</int>", "content": "int"},
            "ratio": {"open": "<float>", "close": "</float>", "content": "float"},
            "flag": {"open": "<bool>", "close": "</bool>", "content": "bool"},
            "meta": {"open": "<kv>", "close": "</kv>", "content": "kv-lines", "content_args": {"kv_sep": "=", "value_parser": {"name": "json", "args": {"allow_non_json": True}}}},
            "rows": {"open": "<row>", "close": ["</row>", "</row>\n"], "content": "kv-lines", "content_args": {"line_sep": ";", "strip": False}, "repeats": True},
            "tool_calls": {
                "open_pattern": r"<call (?P<name>[^>\s]+)>",
                "close": "</call>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<(?P<key>\w+)>(?P<value>[^<]*)</\w+>", "merge_duplicates": True},
                "transform": NAMED,
            },
            "title": {"open_pattern": r"^#\s*(?P<level>\d)\s*", "close_pattern": r"\n+", "transform": {"level": "{level}", "text": "{content}", "kind": "title", "fixed": [1, None, True]}},
            "content": {"close": "<end>"},
        },
    },
    # Markers that begin alike, and one that ends where the next begins.
    "alike": {
        "start_anchor": ["<a>", "<ab>"],
        "fields": {
            "one": {"open": ["<x", "<xy>"], "close": ["!", "!!"], "repeats": True},
            "two": {"open_pattern": r"<x+z", "close_pattern": r"a+b|a", "repeats": True},
            "three": {"open_pattern": r"\bend\b", "close_pattern": r"(?i)stop|$"},
            "content": {"close_pattern": r"--+", "content": "text"},
        },
    },
    "required": {
        "start_anchor": "A:",
        "fields": {"answer": {"open": "<answer>", "close": "</answer>", "optional": False, "content": "json"}, "content": {}},
    },
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "n": {"type": "integer"},
                    "x": {"type": "number"},
                    "flag": {"type": "boolean"},
                    "list": {"type": "array"},
                    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "both": {"type": ["boolean", "string"], "nullable": True},
                    "object": {"oneOf": [{"type": "object"}]},
                },
            },
        },
    },
    {"name": "g", "parameters": None},
]

# For each template: prompts, answers as models write them, and the parts of random answers.
ANSWERS = {
    "json in tags": (
        ["<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n", ""],
        [
            "<think>\nhm\n</think>\n\nHello!<|im_end|>",
            "Wait.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"text\": \"a\", \"n\": \"3\"}}\n</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
            "hm</think>Über <tool_call> is a tag",
            "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
        ],
        ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "{\"name\": \"f\", \"arguments\": {\"n\": \"4\", \"both\": \"true\"}}", "{\"name\": \"g\", \"arguments\": []}", "\n", " ", "a", "é", "<", "<tool_", "</think"],
    ),
    "xml": (
        ["<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n\n</think>\n\n"],
        [
            "Now.\n<tool_call>\n<function=f>\n<parameter=text>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=list>\n[1, \"a\"]\n</parameter>\n<parameter=other>\na <b> c\n</parameter>\n</function>\n</tool_call><|im_end|>",
            "<think>why</think><tool_call><function=g></function></tool_call>",
            "<tool_call>\n<function=f>\n<parameter=maybe>\nNone\n</parameter>\n<parameter=both>\nyes\n</parameter><parameter=x>1e3</parameter><parameter=object>{\"a\": {}}</parameter></function>",
        ],
        ["<tool_call>", "\n", "<function=f>", "<function=g>", "<parameter=text>", "<parameter=n>", "<parameter=flag>", "</parameter>", "</function>", "</tool_call>", "<think>", "</think>", "3", "True", "a b", " ", "<|im_end|>", "<tool_call>\n<function=f>", "<param", "ß"],
    ),
    "gemma": (
        ["<|turn>user\nq<turn|>\n<|turn>model\n", "<|turn>model\n<|tool_call>call:f{}<tool_call|><tool_response|>"],
        [
            "<|channel>thought\nhm<channel|>Yes.<|tool_call>call:f{text:<|\"|>a, b: \"c\"<|\"|>,n:3,list:[<|\"|>x<|\"|>,{k:true}]}<tool_call|><|tool_response>",
            "Hello<turn|>",
            "<|tool_call>call:g{}<tool_call|><|tool_call>call:f{text:<|\"|><|\"|>,x:1.50}<tool_call|>",
            "<|tool_call>call:f{text:a}<tool_call|>",
        ],
        ["<|channel>thought\n", "<channel|>", "<|tool_call>call:", "f", "g", "{}", "{n:1}", "{text:<|\"|>", "<|\"|>}", "<tool_call|>", "<turn|>", "<eos>", " ", "\n", "x", "<|", "{", "\u4e2d"],
    ),
    "channels": (
        ["<|end|><|start|>assistant", ""],
        [
            "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\": 3, \"text\": \"<|\"}<|call|>",
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|> b <|end|><|start|>assistant<|channel|>final<|message|> It is 3.\n<|return|>",
            "<|channel|>final<|message|>cut off <|ret",
            "no channel",
        ],
        ["<|channel|>", "analysis", "final", "commentary", " to=functions.f", " to=functions.g.h ", "<|constrain|>json", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|start|>assistant", "{}", "{\"a\": 1}", " ", "text", "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|channel|>commentary to=functions.f<|message|>{}"],
    ),
    "list": (
        ["<s>[INST]q[/INST]", "[INST]q[/INST][THINK]"],
        [
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": \"1\"}, \"id\": \"a\"}, {\"name\": \"g\", \"arguments\": {}, \"id\": \"b\"}]",
            "[THINK]  hm\n [/THINK] Hello \n",
            "  plain  ",
            "[TOOL_CALLS][]",
            "[TOOL_CALLS][{\"name\": \"f\"}]",
        ],
        ["[TOOL_CALLS]", "[THINK]", "[/THINK]", " ", "\n", "a", "[", "]", "[TOOL", "[{\"name\": \"f\", \"arguments\": {}, \"id\": null}]", "ü"],
    ),
    "parsers": (
        [">>", "x>>#"],
        [
            "# 1 Title\n\nText <int> 42 </int><float>1e-3</float><bool>TRUE</bool> more<end>",
            "<kv>\na=1\n b = x y \nnothing\nc=[1, 2]\n</kv><row>a:1;b: 2</row>\n<row>c:3</row>",
            "<call f><text>a</text><n>1</n><n> 2 </n><list>1</list><list>2</list><flag>0</flag></call><call g></call>",
            "<int>x</int>",
            "<int>1_000</int><float>3</float>",
            "<float>+.5e1</float><bool>no</bool>",
        ],
        ["<int>", "</int>", "<float>", "</float>", "<bool>", "</bool>", "<kv>", "</kv>", "<row>", "</row>", "\n", "a=1", "b:2;", "<call f>", "</call>", "<n>", "</n>", "<both>", "</both>", "12", "-1.5", "true", " ", "# 2 ", "<end>", "é"],
    ),
    "alike": (
        ["<ab>", "<a>", "q"],
        ["<xy>one!! <xxz twoaab end of stop it -- more", "<x!<xz!a<xyz!", "the end", "a --- b -- c", "bend end endSTOP", "<xxzcaa"],
        ["<x", "<xy>", "y>", "x", "z", "!", "!!", "a", "aa", "ab", "b", "end", " ", "stop", "Stop", "-", "--", "é", "c"],
    ),
    "required": (
        ["A:"],
        ["<answer>{\"a\": [1, 2.5, \"\\u00e9\", null]}</answer>done", "nothing", "<answer>1", "<answer>\"a</answer>"],
        ["<answer>", "</answer>", "1", "\"a\"", "[", "]", " ", "x"],
    ),
}


def parse(template, prompt, text, tools):
    try:
        message = parse_response(text, TEMPLATES[template], prefix=prompt, tools=TOOLS if tools else None)
        json.dumps(message, allow_nan=False)
        return {"message": message}
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an answer
        return {"raised": f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"}


def main():
    cases = []
    generator = random.Random(41)
    for template, (prompts, answers, parts) in ANSWERS.items():
        randoms = ["".join(generator.choices(parts, k=generator.randint(1, 14))) for _ in range(120)]
        for index, text in enumerate(answers + randoms):
            for prompt in prompts if index < len(answers) else [prompts[index % len(prompts)]]:
                tools = index % 3 != 2
                case = {"template": template, "prompt": prompt, "text": text, "tools": tools}
                cases.append(case | parse(template, prompt, text, tools))
    golden = {"templates": TEMPLATES, "tools": TOOLS, "cases": cases}
    lines = json.dumps(golden, ensure_ascii=True, separators=(",", ":")).replace('{"template"', '\n{"template"')
    (HERE / "cases.json").write_text(lines + "\n")
    print(len(cases), "cases,", sum("raised" in case for case in cases), "of which raise")


if __name__ == "__main__":
    main()
