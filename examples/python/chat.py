"""A conversation in the terminal. The engine keeps the keys and values of what was said, so that each turn computes only what is new.

    chat.py MODEL
"""

import sys

import nanovllm


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: chat.py MODEL", file=sys.stderr)
        return 2
    messages: list[dict[str, str]] = []
    with nanovllm.Engine(sys.argv[1], max_num_seqs=1) as engine:
        while True:
            try:
                said = input("> ")
            except EOFError:
                print()
                return 0
            messages.append({"role": "user", "content": said})
            answer = ""
            try:
                for output in engine.chat_stream(messages, max_tokens=None):
                    print(output.text, end="", flush=True)
                    answer += output.text
            except KeyboardInterrupt:
                # Leaving the loop has cancelled the request; what was said stays.
                print(" [stopped]", end="")
            except nanovllm.Error as error:
                print(error, file=sys.stderr)
                messages.pop()
                continue
            print()
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    sys.exit(main())
