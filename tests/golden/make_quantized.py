#!/usr/bin/env python3
"""Makes the checkpoints of tests/library/quantized_folders.rs, in tests/golden/quantized.

Each case is a small random checkpoint whose matrices are coded, and beside it

    reference.safetensors  as make_golden.py writes it: what transformers says in f32 of the numbers that the codes stand for
    decoded.safetensors    these numbers, the first and the last two rows of each coded matrix of layer 0, F32 [4, inputs], and
                           how many rows it has, I32 [1]

mxfp4_experts.safetensors, beside that folder, has the matrices of experts.

Codes and numbers of compressed-tensors come from the package `compressed_tensors`, those of FP8 from casts of torch. AWQ and GPTQ are
packed here; the numbers of AWQ come from the converter of `compressed_tensors`, those of GPTQ from a loop over the bits of each word.
transformers opens the folders of compressed-tensors and FP8 too, and must agree with the reference.

Written with torch 2.15.0, transformers 5.23.0 and compressed-tensors 0.20.0. Run from anywhere, with names of cases for these alone.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import make_golden as golden
import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, Mxfp4Config
from transformers.integrations.mxfp4 import _convert_moe_packed_tensors

ROOT = golden.HERE / "quantized"
GREEDY_TOKENS = 32
F8 = torch.float8_e4m3fn

SHAPE = dict(
    golden.BASE, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    rope_parameters=dict(rope_type="default", rope_theta=20000.0),
)  # fmt: skip
WIDE = dict(SHAPE, hidden_size=128, intermediate_size=192)
RECURRENT = dict(WIDE, layer_types=[golden.L, golden.F])
MIXTURE = dict(WIDE, num_experts=3, num_experts_per_tok=3, moe_intermediate_size=64, norm_topk_prob=True)
LATENT = dict(
    {k: v for k, v in WIDE.items() if k != "head_dim"}, num_key_value_heads=4, q_lora_rank=64, kv_lora_rank=96, qk_nope_head_dim=48,
    qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=3, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=64, n_group=1,
    topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.5, num_nextn_predict_layers=0,
)
GPT_OSS = dict(
    golden.SMALL, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, head_dim=64, intermediate_size=32, num_local_experts=3,
    num_experts_per_tok=3, sliding_window=16, rope_parameters=dict(golden.YARN, truncate=False),
)
# Heads that the kernels of a GPU know.
HEAD64 = dict(SHAPE, num_attention_heads=2, num_key_value_heads=1, head_dim=64)


# ---- compressed-tensors

MXFP4 = "mxfp4-pack-quantized"
NVFP4 = "nvfp4-pack-quantized"


def nvfp4(weight, divides):
    """Codes of E2M1, E4M3 scales of 16 each, and the scale of all, by which these are divided or multiplied."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    groups = weight.float().reshape(len(weight), -1, 16)
    most = groups.abs().amax(-1)
    # The greatest scale is that of E4M3, 448.
    factor = 448 * 6 / most.max()
    scales = (most / 6 * factor).to(F8)
    whole = scales.float() / factor if divides else scales.float() * (1 / factor)
    scaled = groups / whole.clamp(min=1e-30).unsqueeze(-1)
    codes = (scaled.abs().unsqueeze(-1) - values).abs().argmin(-1)
    numbers = (values[codes] * torch.where(scaled < 0, -1.0, 1.0) * whole.unsqueeze(-1)).reshape(weight.shape)
    codes = (codes + 8 * (scaled < 0)).reshape(weight.shape)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8).contiguous()
    if divides:
        return {"weight_packed": packed, "weight_scale": scales, "weight_global_scale": factor.reshape(1)}, numbers
    tensors = {"weight": packed, "weight_scale": scales, "weight_scale_2": 1 / factor, "input_scale": torch.tensor(0.01)}
    return tensors, numbers


def modelopt():
    """As ModelOpt writes it."""
    config = dict(
        quant_method="modelopt", quant_algo="NVFP4", producer=dict(name="modelopt"), ignore=["lm_head"],
        config_groups=dict(group_0=dict(targets=["Linear"], weights=dict(dynamic=False, num_bits=4, type="float", group_size=16))),
    )

    def code(name, weight, dtype):
        return None if name.endswith(("lm_head", "embed_tokens", "mlp.gate")) else nvfp4(weight, divides=False)

    return config, code


def grid_of(args, weight):
    """The least and greatest weights that share a scale, in the form of the scales."""
    if args.strategy == "tensor":
        parts = weight.reshape(1, -1)
    elif args.strategy == "channel":
        parts = weight
    elif args.strategy == "group":
        parts = weight.reshape(weight.shape[0], -1, args.group_size)
    else:
        rows, cols = args.block_structure
        high, wide = -(-weight.shape[0] // rows), -(-weight.shape[1] // cols)
        padded = torch.zeros(high * rows, wide * cols)
        padded[: weight.shape[0], : weight.shape[1]] = weight
        parts = padded.reshape(high, rows, wide, cols).transpose(1, 2).reshape(high, wide, -1)
    low, high = parts.amin(-1), parts.amax(-1)
    return (low.unsqueeze(-1), high.unsqueeze(-1)) if args.strategy == "channel" else (low, high)


def compressed(weight, args, format, dtype):
    """The tensors of a matrix, and the numbers that they stand for."""
    args = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(format)
    if format == NVFP4:
        return nvfp4(weight, divides=True)
    if format == MXFP4:
        low, high = grid_of(args, weight.float())
        # The greatest code is 6.
        scale, zero = torch.exp2(torch.log2(torch.maximum(-low, high) / 6).ceil()), None
    else:
        scale, zero = calculate_qparams(*grid_of(args, weight.float()), args)
        scale = scale.to(dtype)
    state = {"weight": weight.float(), "weight_scale": scale.float()}
    if not args.symmetric:
        state["weight_zero_point"] = zero.to(torch.int8)
    tensors = compressor.compress(dict(state), scheme)
    numbers = compressor.decompress(dict(tensors), scheme)["weight"].float()
    if format != MXFP4:
        tensors["weight_scale"] = scale
    return {name: tensor.contiguous() for name, tensor in tensors.items()}, numbers


def compressed_tensors(format, groups, ignore=("lm_head",), activations=None, global_format=None):
    """Groups are (targets, condition on a module's name, arguments)."""
    config = dict(
        quant_method="compressed-tensors", format=global_format or format, quantization_status="compressed", ignore=list(ignore),
        kv_cache_scheme=None, global_compression_ratio=None,
        config_groups={
            f"group_{i}": dict(
                targets=targets, weights=json.loads(QuantizationArgs(**args).model_dump_json()), input_activations=activations,
                output_activations=None, format=format if global_format else None,
            )
            for i, (targets, _, args) in enumerate(groups)
        },
    )  # fmt: skip

    def code(name, weight, dtype):
        args = next((args for _, is_meant, args in groups if is_meant(name)), None)
        return None if args is None else compressed(weight, args, format, dtype)

    return config, code


# ---- MXFP4


def mxfp4():
    """Experts as gpt-oss has them: the numbers of an input of all outputs follow each other in `weight`, and those of an output in the codes."""
    config = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])

    def code(name, weight, dtype):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            return None
        groups = weight.float().transpose(1, 2).unflatten(-1, (-1, 32))
        exponents = torch.log2(groups.abs().amax(-1, keepdim=True) / 6).ceil()
        scaled = groups / torch.exp2(exponents)
        codes = (scaled.abs().unsqueeze(-1) - values).abs().argmin(-1) + 8 * (scaled < 0)
        blocks = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8).contiguous()
        scales = (exponents.squeeze(-1) + 127).to(torch.uint8).contiguous()
        numbers = _convert_moe_packed_tensors(blocks, scales).float().contiguous()
        assert numbers.shape == weight.shape
        return {"_blocks": blocks, "_scales": scales}, numbers

    return config, code


# ---- FP8


def fp8(block, scale_dtype, **more):
    config = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=block, **more)

    def code(name, weight, dtype):
        rows, cols = block or weight.shape
        high, wide = -(-weight.shape[0] // rows), -(-weight.shape[1] // cols)
        scales = torch.empty(high, wide)
        codes, numbers = torch.empty(weight.shape, dtype=F8), torch.empty(weight.shape)
        for i in range(high):
            for j in range(wide):
                place = slice(i * rows, (i + 1) * rows), slice(j * cols, (j + 1) * cols)
                scale = (weight[place].float().abs().max() / 448).to(scale_dtype).float()
                scales[i, j] = scale
                codes[place] = (weight[place].float() / scale).clamp(-448, 448).to(F8)
                numbers[place] = codes[place].float() * scale
        scales = scales.to(scale_dtype)
        return {"weight": codes, "weight_scale_inv": scales if block else scales.reshape(())}, numbers

    return config, code


# ---- AWQ and GPTQ


def rounded(weight, groups, count, bits, symmetric):
    """Codes, scales and zeros of a matrix whose inputs are of `groups`."""
    top = 2**bits - 1
    scales, zeros = torch.empty(count, weight.shape[0]), torch.empty(count, weight.shape[0], dtype=torch.int64)
    for group in range(count):
        part = weight[:, groups == group].float()
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        if symmetric:
            high = torch.maximum(high, -low)
            low = -high
        scales[group] = (high - low) / top
        zeros[group] = torch.full_like(low, 2 ** (bits - 1)) if symmetric else (-low / scales[group]).round()
    scales = scales.to(torch.float16)
    codes = (weight.float() / scales.float()[groups].T).round() + zeros[groups].T
    return codes.clamp(0, top).to(torch.int64), scales, zeros


def words(fields, bits, order):
    """Packs the last axis into words of 32 bits; field `i` of a word is entry `order[i]` of those that it takes."""
    each = 32 // bits
    fields = fields.reshape(*fields.shape[:-1], -1, each)[..., order]
    packed = (fields.numpy().astype(np.uint64) << np.arange(0, 32, bits, dtype=np.uint64)).sum(-1)
    return torch.from_numpy(packed.astype(np.uint32).view(np.int32).copy())


def awq(group):
    config = dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm", modules_to_not_convert=None)
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def code(name, weight, dtype):
        size = group if group > 0 else weight.shape[1]
        groups = torch.arange(weight.shape[1]) // size
        codes, scales, zeros = rounded(weight, groups, weight.shape[1] // size, 4, False)
        tensors = {"qweight": words(codes.T.contiguous(), 4, order), "qzeros": words(zeros, 4, order), "scales": scales}
        converted = AutoAWQConverter(group_size=size).process({f"m.{name}": tensor.clone() for name, tensor in tensors.items()})
        args = QuantizationArgs(num_bits=4, symmetric=False, strategy="group", group_size=size)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        state = {name.removeprefix("m."): tensor for name, tensor in converted.items()}
        state["weight_scale"] = state["weight_scale"].float()
        compressor = BaseCompressor.get_value_from_registry("pack-quantized")
        return tensors, compressor.decompress(state, scheme)["weight"].float()

    return config, code


def gptq(bits, group, symmetric, desc_act=False, version=1):
    config = dict(
        quant_method="gptq", bits=bits, group_size=group, desc_act=desc_act, sym=symmetric, lm_head=False, true_sequential=True,
        checkpoint_format="gptq" if version == 1 else "gptq_v2", pack_dtype="int32",
    )  # fmt: skip
    each = 32 // bits

    def code(name, weight, dtype):
        cols = weight.shape[1]
        size = group if group > 0 else cols
        groups = torch.arange(cols) // size
        if desc_act:
            groups = groups[torch.randperm(cols, generator=torch.Generator().manual_seed(cols))]
        codes, scales, zeros = rounded(weight, groups, -(-cols // size), bits, symmetric)
        if version == 1:
            # A stored zero is less by one, and wraps.
            zeros = zeros.clamp(min=1)
            codes = ((weight.float() / scales.float()[groups].T).round() + zeros[groups].T).clamp(0, 2**bits - 1).long()
        stored = (zeros - (1 if version == 1 else 0)) % 2**bits
        straight = list(range(each))
        tensors = {
            "qweight": words(codes, bits, straight).T.contiguous(),
            "qzeros": words(stored, bits, straight),
            "scales": scales,
            "g_idx": groups.int(),
        }
        return tensors, unpacked(tensors, bits, version)

    return config, code


def unpacked(tensors, bits, version):
    """The numbers of a GPTQ matrix, weight by weight."""
    each, mask = 32 // bits, 2**bits - 1
    qweight, qzeros = (tensors[name].numpy().view(np.uint32) for name in ["qweight", "qzeros"])
    scales, groups = tensors["scales"].float().numpy(), tensors["g_idx"].tolist()
    numbers = np.empty((qweight.shape[1], len(groups)), np.float32)
    for n in range(numbers.shape[0]):
        for k, group in enumerate(groups):
            code = int(qweight[k // each, n]) >> (k % each * bits) & mask
            zero = int(qzeros[group, n // each]) >> (n % each * bits) & mask
            zero = (zero + 1 & mask) if version == 1 else zero
            numbers[n, k] = np.float32(code - zero) * scales[group, n]
    return torch.from_numpy(numbers)


LINEAR = lambda name: "_proj" in name
INT8_ACTIVATIONS = dict(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True)
FLOAT8_ACTIVATIONS = dict(num_bits=8, type="float", symmetric=True, strategy="token", dynamic=True)

# Model type, number type, shape, quantization; whether transformers is asked to open the folder too.
CASES = {
    "ct-int4-group32": (
        "qwen3", "bfloat16", SHAPE,
        compressed_tensors("pack-quantized", [(["Linear"], LINEAR, dict(num_bits=4, strategy="group", group_size=32))]), True,
    ),
    "ct-int4-zeros": (
        "llama", "float16", SHAPE,
        compressed_tensors(
            "pack-quantized", [(["Linear"], LINEAR, dict(num_bits=4, symmetric=False, strategy="group", group_size=64))]
        ), False,  # It opens no folder with zeros.
    ),
    "ct-int8-channel": (
        "phi3", "bfloat16", dict({k: v for k, v in SHAPE.items() if k != "head_dim"}, num_attention_heads=2),
        compressed_tensors("pack-quantized", [(["Linear"], LINEAR, dict(num_bits=8, strategy="channel"))]), True,
    ),
    "ct-w8a8": (
        "llama", "bfloat16", SHAPE,
        compressed_tensors(
            "int-quantized", [(["Linear"], LINEAR, dict(num_bits=8, strategy="channel"))], activations=INT8_ACTIVATIONS
        ), False,
    ),
    "ct-int8-zeros": (
        "llama", "bfloat16", SHAPE,
        compressed_tensors("int-quantized", [(["Linear"], LINEAR, dict(num_bits=8, symmetric=False, strategy="channel"))]), False,
    ),
    "ct-fp8-channel": (
        "qwen3", "bfloat16", SHAPE,
        compressed_tensors(
            "float-quantized", [(["Linear"], LINEAR, dict(num_bits=8, type="float", strategy="channel"))],
            activations=FLOAT8_ACTIVATIONS,
        ), False,
    ),
    "ct-fp8-tensor": (
        "qwen3", "bfloat16", SHAPE,
        compressed_tensors("naive-quantized", [(["Linear"], LINEAR, dict(num_bits=8, type="float", strategy="tensor"))]), True,
    ),
    "ct-fp8-block": (
        "qwen3", "bfloat16", dict(SHAPE, intermediate_size=192),
        compressed_tensors(
            "float-quantized",
            [(["Linear"], LINEAR, dict(num_bits=8, type="float", strategy="block", block_structure=[128, 128]))],
        ), False,
    ),
    "ct-mixed": (
        "qwen3", "bfloat16", SHAPE,
        compressed_tensors(
            "pack-quantized",
            [
                ([r"re:.*mlp\..*"], lambda name: "mlp." in name and "up_proj" not in name, dict(num_bits=4, strategy="group", group_size=32)),
                (["Linear"], lambda name: "self_attn" in name, dict(num_bits=8, strategy="channel")),
            ],
            ignore=["lm_head", r"re:.*up_proj$"], global_format="mixed-precision",
        ), True,
    ),
    # A width that no group of 32 divides: decoded when it is read.
    "ct-int4-narrow": (
        "qwen3", "bfloat16", dict(SHAPE, intermediate_size=80),
        compressed_tensors("pack-quantized", [(["Linear"], LINEAR, dict(num_bits=4, strategy="group", group_size=16))]), True,
    ),
    "fp8-block-bf16-scales": ("qwen3", "bfloat16", dict(SHAPE, intermediate_size=192), fp8([128, 128], torch.bfloat16), True),
    "fp8-block-f32-scales": ("llama", "bfloat16", dict(SHAPE, intermediate_size=160), fp8([128, 128], torch.float32), False),
    "fp8-tensor": ("qwen3", "bfloat16", SHAPE, fp8(None, torch.float32), False),
    "awq-group32": ("qwen3", "float16", SHAPE, awq(32), False),
    "awq-row": ("llama", "float16", SHAPE, awq(-1), False),
    "gptq4-sym": ("qwen3", "float16", WIDE, gptq(4, 64, True), False),
    "gptq4-desc-act": ("llama", "float16", SHAPE, gptq(4, 32, False, desc_act=True), False),
    "gptq8-v2": ("qwen2", "float16", dict(SHAPE, head_dim=None, num_attention_heads=2), gptq(8, 32, False, version=2), False),
    "gptq4-row": ("llama", "float16", SHAPE, gptq(4, -1, False, desc_act=True), False),
    "awq-f16-head64": ("qwen3", "float16", HEAD64, awq(64), False),
    "ct-int4-bf16-head64": (
        "qwen3", "bfloat16", HEAD64,
        compressed_tensors("pack-quantized", [(["Linear"], LINEAR, dict(num_bits=4, strategy="group", group_size=32))]), False,
    ),
    "ct-w8a8-bf16-head64": (
        "llama", "bfloat16", HEAD64,
        compressed_tensors(
            "int-quantized", [(["Linear"], LINEAR, dict(num_bits=8, strategy="channel"))], activations=INT8_ACTIVATIONS
        ), False,
    ),
    "fp8-block-bf16-head64": ("qwen3", "bfloat16", dict(HEAD64, intermediate_size=192), fp8([128, 128], torch.bfloat16), False),
    "ct-mxfp4-bf16-head64": (
        "qwen3", "bfloat16", HEAD64,
        compressed_tensors(MXFP4, [(["Linear"], LINEAR, dict(num_bits=4, type="float", strategy="group", group_size=32))]), False,
    ),
    "gptq4-f16-head64": ("llama", "float16", HEAD64, gptq(4, 32, False), False),
    # Projections of recurrent layers, of which those with a row per head stay as they are.
    "awq-f16-qwen3_5": ("qwen3_5_text", "float16", RECURRENT | golden.DELTA, awq(32), False),
    "fp8-block-bf16-qwen3_5": ("qwen3_5_text", "bfloat16", RECURRENT | golden.DELTA, fp8([128, 128], torch.bfloat16), False),
    "gptq4-f16-qwen3_5": ("qwen3_5_text", "float16", RECURRENT | golden.DELTA, gptq(4, 64, True), False),
    "ct-int4-bf16-lfm2": (
        "lfm2", "bfloat16",
        dict({k: v for k, v in WIDE.items() if k != "rms_norm_eps"}, layer_types=[golden.C, golden.F], norm_eps=1e-5, block_multiple_of=64),
        compressed_tensors("pack-quantized", [(["Linear"], lambda name: True, dict(num_bits=4, strategy="group", group_size=32))]), False,
    ),
    # Experts, each with codes of its own, and a router that has none. All compute every token, so that no rounding chooses others.
    "awq-f16-qwen3_moe": ("qwen3_moe", "float16", MIXTURE, awq(32), False),
    "gptq4-f16-qwen3_moe": ("qwen3_moe", "float16", MIXTURE, gptq(4, 64, True), False),
    "fp8-block-bf16-qwen3_moe": ("qwen3_moe", "bfloat16", MIXTURE, fp8([128, 128], torch.bfloat16), False),
    # Experts alone have codes, those of all in one tensor.
    "mxfp4-bf16-gpt_oss": ("gpt_oss", "bfloat16", GPT_OSS, mxfp4(), True),
    # Groups of 16, which are decoded when they are read: by compressed-tensors and by ModelOpt.
    "ct-nvfp4": (
        "qwen3", "bfloat16", SHAPE,
        compressed_tensors(NVFP4, [(["Linear"], LINEAR, dict(num_bits=4, type="float", strategy="tensor_group", group_size=16))]), False,
    ),
    "modelopt-nvfp4-qwen3_moe": ("qwen3_moe", "bfloat16", MIXTURE, modelopt(), False),
    # Experts and latent attention as DeepSeek publishes them: projections to latents whose rows no block divides.
    "fp8-block-bf16-deepseek_v3": ("deepseek_v3", "bfloat16", LATENT, fp8([128, 128], torch.float32), False),
    "ct-int4-bf16-qwen3_moe": (
        "qwen3_moe", "bfloat16", MIXTURE,
        compressed_tensors(
            "pack-quantized", [(["Linear"], LINEAR, dict(num_bits=4, strategy="group", group_size=32))], ignore=["lm_head", "re:.*mlp.gate$"],
        ), False,
    ),
}  # fmt: skip


CODED = tuple(f"{part}.weight" for part in ["_proj", "_proj_with_mqa", "in_proj_qkv", "in_proj_z", ".w1", ".w2", ".w3"])


def make(name, seed, case):
    model_type, number_type, shape, (quantization, code), is_read_by_transformers = case
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    dtype = getattr(torch, number_type)
    generator = torch.Generator().manual_seed(3000 + seed)
    config = AutoConfig.for_model(model_type, **{key: value for key, value in shape.items() if value is not None or key != "head_dim"})
    state = {k: v.to(dtype) for k, v in golden.weights(config, generator).items()}
    state = golden.as_published(config, state)
    stored, numbers, decoded = {}, {}, {}
    for tensor, weight in state.items():
        module = tensor.removesuffix(".weight")
        coded = code(module, weight, dtype) if tensor.endswith(CODED) or tensor.endswith("_proj") else None
        if coded is None:
            stored[tensor], numbers[tensor] = weight, weight.float()
            continue
        parts, numbers[tensor] = coded
        stored.update({f"{module}{part}" if part[0] == "_" else f"{module}.{part}": value for part, value in parts.items()})
        if ".layers.0." in tensor and weight.ndim == 2:
            rows = numbers[tensor]
            decoded[module] = torch.cat([rows[:2], rows[-2:]]).contiguous()
            decoded[f"{module}.rows"] = torch.tensor([len(rows)], dtype=torch.int32)
    golden.write_folder(folder, config, stored, number_type)
    written = json.loads((folder / "config.json").read_text())
    written["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    save_file(decoded, folder / "decoded.safetensors")

    # What transformers makes of a folder of these numbers.
    with tempfile.TemporaryDirectory() as scratch:
        plain = pathlib.Path(scratch) / "plain"
        golden.write_folder(plain, config, {name: numbers[name].contiguous() for name in numbers}, "float32")
        model = golden.read_back(plain)
    prompt = torch.randint(0, config.vocab_size, (golden.PROMPT_TOKENS,), generator=generator)
    sequence, logits = prompt.tolist(), []
    with torch.no_grad():
        for _ in range(GREEDY_TOKENS):
            row = model(torch.tensor([sequence]), logits_to_keep=1).logits[0, -1]
            logits.append(row)
            sequence.append(int(row.argmax()))
    tokens = torch.tensor(sequence[golden.PROMPT_TOKENS :])
    save_file(
        {"prompt": prompt.int(), "tokens": tokens.int(), "logits": torch.stack(logits)}, folder / "reference.safetensors"
    )
    size = sum(f.stat().st_size for f in folder.iterdir())
    apart = "not asked"
    if is_read_by_transformers:
        given = dict(quantization_config=Mxfp4Config(dequantize=True)) if quantization["quant_method"] == "mxfp4" else {}
        other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **given).eval().float()
        with torch.no_grad():
            row = other(torch.tensor([prompt.tolist()]), logits_to_keep=1).logits[0, -1].float()
        apart = ((row - logits[0]).norm() / logits[0].norm()).item()
        # It decodes to the number type of the scales.
        assert apart < 2e-2, f"{name}: {apart}"
        apart = f"{apart:.1e}"
    print(f"{name:24} {size:7} bytes, {len(set(tokens.tolist())):2} different tokens, transformers' own apart {apart}", flush=True)


def make_experts():
    """Two experts of 6 outputs and 64 inputs as gpt-oss stores them, and the numbers that transformers decodes from them."""
    random = torch.Generator().manual_seed(11)
    blocks = torch.randint(0, 256, (2, 6, 2, 16), dtype=torch.uint8, generator=random)
    scales = torch.randint(100, 150, (2, 6, 2), dtype=torch.uint8, generator=random)
    numbers = _convert_moe_packed_tensors(blocks, scales).float().transpose(1, 2).contiguous()
    tensors = {"experts_blocks": blocks, "experts_scales": scales, "numbers": numbers}
    save_file(tensors, golden.HERE / "mxfp4_experts.safetensors")


if len(sys.argv) == 1 or "mxfp4_experts" in sys.argv[1:]:
    make_experts()
for seed, (name, case) in enumerate(CASES.items()):
    if len(sys.argv) == 1 or name in sys.argv[1:]:
        make(name, seed, case)
