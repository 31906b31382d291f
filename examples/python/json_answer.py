"""Answers as JSON objects of a schema. With pydantic, give the class itself: json_schema=Place.

    json_answer.py MODEL QUESTION...
"""

import sys

import nanovllm

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "degrees": {"type": "integer", "minimum": -50, "maximum": 50}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


def main() -> int:
    if len(sys.argv) < 3:
        print("usage: json_answer.py MODEL QUESTION...", file=sys.stderr)
        return 2
    with nanovllm.Engine(sys.argv[1]) as engine:
        for question in sys.argv[2:]:
            answer = engine.chat(f"{question} Answer in JSON: city, degrees.", json_schema=SCHEMA, temperature=0).parsed
            print(f"{answer['city']}: {answer['degrees']} degrees")
    return 0


if __name__ == "__main__":
    sys.exit(main())
