"""Answers each line of the standard input, all in one batch, and prints a JSON object per line.

    batch.py MODEL < questions.txt

MODEL is a model folder or a GGUF file. A bar on the standard error shows how far the batch is.
"""

import json
import sys

import nanovllm


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: batch.py MODEL < questions.txt", file=sys.stderr)
        return 2
    questions = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    with nanovllm.Engine(sys.argv[1], max_num_seqs=32) as engine:
        prompts = [engine.apply_chat_template([{"role": "user", "content": question}]) for question in questions]
        results = engine.generate(prompts, max_tokens=128, progress=True)
    for question, result in zip(questions, results):
        answer = {"question": question, "answer": result.text, "finish_reason": result.finish_reason}
        if result.error is not None:
            answer["error"] = str(result.error)
        print(json.dumps({**answer, "tokens": result.usage.total_tokens}, ensure_ascii=False))
    return 0 if all(result.error is None for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
