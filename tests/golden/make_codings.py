"""Writes codings.safetensors: bytes in each coding of weights, and the numbers that they stand for.

The numbers of GGUF blocks come from the `gguf` package, those of the others from torch. Run with both installed:

    python tests/golden/make_codings.py
"""

from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from safetensors.torch import save_file

# Where the f16 numbers of a block are, in bytes: random ones are mostly huge.
HALVES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "MXFP4": [],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [], "TQ1_0": [52], "TQ2_0": [64],
}  # fmt: skip
BLOCKS = {32: 24, 256: 6}


def main():
    random = np.random.default_rng(7)
    tensors = {}
    for name, places in HALVES.items():
        kind = GGMLQuantizationType[name]
        numbers, size = GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (BLOCKS[numbers], size), dtype=np.uint8)
        for place in places:
            halves = (random.standard_normal(len(blocks)) * 0.02).astype(np.float16)
            blocks[:, place : place + 2] = halves.view(np.uint8).reshape(-1, 2)
        if name == "IQ1_M":
            # The f16 number is in the upper bits of four scales.
            halves = (random.standard_normal(len(blocks)) * 0.02).astype(np.float16).view(np.uint16)
            for i in range(4):
                blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (halves >> (4 * i) & 15).astype(np.uint8) << 4
        if name == "MXFP4":
            blocks[:, 0] = 110 + blocks[:, 0] % 16
        tensors[f"{name}.bytes"] = torch.from_numpy(blocks.reshape(-1))
        decoded = gguf.quants.dequantize(blocks, kind).astype(np.float32)
        tensors[f"{name}.numbers"] = torch.from_numpy(decoded.reshape(-1))
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    tensors["E4M3.bytes"] = codes
    tensors["E4M3.numbers"] = codes.view(torch.float8_e4m3fn).to(torch.float32)
    tensors["E8M0.bytes"] = codes.clone()
    tensors["E8M0.numbers"] = codes.view(torch.float8_e8m0fnu).to(torch.float32)
    save_file(tensors, Path(__file__).parent / "codings.safetensors")


main()
