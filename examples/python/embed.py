"""Ranks texts by their similarity to the first one. Needs numpy.

    embed.py MODEL QUERY TEXT...
"""

import sys

import numpy

import nanovllm


def main() -> int:
    if len(sys.argv) < 4:
        print("usage: embed.py MODEL QUERY TEXT...", file=sys.stderr)
        return 2
    texts = sys.argv[2:]
    with nanovllm.Engine(sys.argv[1]) as engine:
        vectors = engine.embed(texts, pooling="mean")
    # The vectors have the length 1: the product is the cosine of their angle.
    scores = vectors[1:] @ vectors[0]
    for place in numpy.argsort(-scores):
        print(f"{scores[place]:.3f}  {texts[1 + place]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
