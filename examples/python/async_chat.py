"""Several users at once: each question is a task of asyncio, and one engine serves them all.

    async_chat.py MODEL QUESTION...
"""

import asyncio
import sys

import nanovllm


async def ask(engine: nanovllm.AsyncEngine, user: int, question: str) -> None:
    answer = ""
    try:
        async for output in engine.chat_stream(question, max_tokens=128):
            answer += output.text
    except nanovllm.Error as error:
        answer = f"failed: {error}"
    print(f"{user}: {question} -> {answer}", flush=True)


async def main() -> int:
    if len(sys.argv) < 3:
        print("usage: async_chat.py MODEL QUESTION...", file=sys.stderr)
        return 2
    async with await nanovllm.AsyncEngine.open(sys.argv[1]) as engine:
        await asyncio.gather(*(ask(engine, user, question) for user, question in enumerate(sys.argv[2:], 1)))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
