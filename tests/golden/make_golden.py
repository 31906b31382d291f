#!/usr/bin/env python3
"""Makes the checkpoints and references of tests/library/golden.rs.

Each case is a small random checkpoint in the Hugging Face layout, and `reference.safetensors` beside it:

    prompt  I32 [40]
    tokens  I32 [n]         greedy tokens that follow the prompt: 64 in CASES, 48 in FAMILIES
    logits  F32 [n, vocab]  the logits that each of these tokens is the greatest of

and `embedding.safetensors`, for tests/library/embeddings.rs:

    last  F32 [hidden]  the hidden state of the prompt's last token, after the last norm
    mean  F32 [hidden]  the mean of all of the prompt

`--embeddings` makes these alone, for the checkpoints that are there. `--case NAME...` makes the named
cases alone.

The references are computed by transformers in f32 on the checkpoint's own numbers, so that they say what exact
arithmetic gives for weights that were rounded to bf16 or f16.

`asked.json` holds what some of them answer when more is asked for: penalties, log-probabilities, beam search. See `asked`.
`--asked` makes that file alone, from the checkpoints as they are.

`--large FOLDER` makes one case alone, of the shape of Qwen3-0.6B and with a prompt of 300 tokens, on a GPU: what
`NVLLM_TEST_REFERENCE` may name for tests/gpu/model.rs. Its reference has one tensor more:

    bf16_apart  F32 [64]  how far transformers' own bf16 logits are from these, as a share of their norm

Written with torch 2.15.0 and transformers 5.23.0. Run from anywhere: `python3 tests/golden/make_golden.py`. The same
versions write the same weights; references may differ in the last bits.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, RepetitionPenaltyLogitsProcessor
from transformers.utils import logging

logging.disable_progress_bar()

HERE = pathlib.Path(__file__).parent
PROMPT_TOKENS = 40
LARGE_PROMPT_TOKENS = 300
GREEDY_TOKENS = 64
FAMILY_GREEDY_TOKENS = 48

# What all cases share unless they say otherwise.
BASE = dict(
    vocab_size=130,
    hidden_size=64,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    rms_norm_eps=1e-6,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)

LINEAR = dict(rope_type="linear", factor=4.0, rope_theta=10000.0)
LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
    rope_theta=500000.0,
)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, rope_theta=1000000.0)
YARN_MSCALE = dict(
    YARN, mscale=0.8, mscale_all_dim=0.5, beta_fast=16.0, beta_slow=2.0, truncate=False, rope_theta=10000.0
)

# `head_dim` is not `hidden_size / num_attention_heads`, and `intermediate_size` is an odd multiple of 8.
OWN_VALUES = dict(
    vocab_size=90,
    hidden_size=48,
    intermediate_size=56,
    num_attention_heads=6,
    num_key_value_heads=3,
    head_dim=24,
    max_position_embeddings=200,
)

# name -> (model type, number type, what differs from BASE, how the folder is laid out)
CASES = {
    "qwen3-bf16-tied-gqa2": ("qwen3", "bfloat16", dict(tie_word_embeddings=True, vocab_size=299), {}),
    "qwen3-f32-untied-gqa8": (
        "qwen3",
        "float32",
        dict(num_attention_heads=8, num_key_value_heads=1, head_dim=8, vocab_size=97),
        {},
    ),
    "qwen3-f16-wide-heads": ("qwen3", "float16", dict(head_dim=32, num_key_value_heads=1), {}),
    "qwen3-f32-yarn": ("qwen3", "float32", dict(rope_parameters=YARN), {}),
    "qwen3-f32-yarn-mscale": ("qwen3", "float32", dict(rope_parameters=YARN_MSCALE), dict(old_rope_keys=True)),
    "qwen3-bf16-biased": ("qwen3", "bfloat16", dict(attention_bias=True, num_hidden_layers=3), {}),
    "qwen3-bf16-head128": (
        "qwen3",
        "bfloat16",
        dict(hidden_size=48, head_dim=128, num_attention_heads=2, num_key_value_heads=1),
        {},
    ),
    "qwen2-f32-tied-sharded": ("qwen2", "float32", dict(tie_word_embeddings=True), dict(shards=3)),
    "qwen2-bf16-gqa4": ("qwen2", "bfloat16", dict(num_attention_heads=8, num_key_value_heads=2, head_dim=8), {}),
    "qwen2-f16-old-keys": ("qwen2", "float16", dict(vocab_size=101), dict(old_rope_keys=True)),
    "llama-f32-gqa1": ("llama", "float32", dict(num_key_value_heads=4), {}),
    "llama-f32-llama3": ("llama", "float32", dict(rope_parameters=LLAMA3), {}),
    "llama-bf16-llama3-tied": (
        "llama",
        "bfloat16",
        dict(rope_parameters=LLAMA3, tie_word_embeddings=True, hidden_size=96, head_dim=32, num_key_value_heads=1),
        dict(old_rope_keys=True),
    ),
    "llama-f32-linear-biased": (
        "llama",
        "float32",
        dict(rope_parameters=LINEAR, attention_bias=True, mlp_bias=True, hidden_size=32, num_attention_heads=4),
        {},
    ),
    "llama-bf16-sharded-gqa8": (
        "llama",
        "bfloat16",
        dict(num_attention_heads=8, num_key_value_heads=1, head_dim=24, hidden_size=56, num_hidden_layers=3),
        dict(shards=2),
    ),
    # Heads that the CUDA kernels know, in every family and number type of theirs.
    "qwen3-bf16-head64-gqa16": (
        "qwen3",
        "bfloat16",
        dict(head_dim=64, num_attention_heads=16, num_key_value_heads=1, tie_word_embeddings=True),
        {},
    ),
    "qwen3-f16-head256": ("qwen3", "float16", dict(head_dim=256, num_attention_heads=3, num_key_value_heads=1), {}),
    "qwen2-bf16-head96-gqa7": (
        "qwen2",
        "bfloat16",
        dict(head_dim=96, num_attention_heads=7, num_key_value_heads=1, tie_word_embeddings=True),
        {},
    ),
    "qwen2-f16-head128": ("qwen2", "float16", dict(head_dim=128), {}),
    "llama-bf16-head80-gqa1": (
        "llama",
        "bfloat16",
        dict(head_dim=80, num_key_value_heads=4, rope_parameters=LINEAR),
        {},
    ),
    "llama-f16-head64-llama3": ("llama", "float16", dict(head_dim=64, rope_parameters=LLAMA3), {}),
    # The prompt has 40 tokens: windows are smaller.
    "mistral-f32-window16": ("mistral", "float32", dict(sliding_window=16, rms_norm_eps=1e-5, num_hidden_layers=3), {}),
    "mistral-bf16-window24-head128": (
        "mistral",
        "bfloat16",
        dict(sliding_window=24, head_dim=128, num_key_value_heads=1, rms_norm_eps=1e-5),
        {},
    ),
    "mistral-f16-no-window": (
        "mistral",
        "float16",
        dict(
            sliding_window=None, rms_norm_eps=1e-5, hidden_size=128, head_dim=64, num_attention_heads=2, num_key_value_heads=1
        ),
        dict(absent=["head_dim"]),
    ),
    # Every field that a family reads has a value of its own here, apart from all defaults and from what others imply. New cases go
    # to the end, because the place of a case is its seed.
    "llama-f32-eps3e-4-mlp-biased": (
        "llama",
        "float32",
        dict(
            OWN_VALUES, rms_norm_eps=3e-4, rope_parameters=dict(rope_type="default", rope_theta=250000.0), mlp_bias=True,
            tie_word_embeddings=True,
        ),
        {},
    ),
    "mistral-f32-eps3e-4-window11": (
        "mistral",
        "float32",
        dict(
            OWN_VALUES, rms_norm_eps=3e-4, rope_parameters=dict(rope_type="default", rope_theta=50000.0), sliding_window=11,
            tie_word_embeddings=True,
        ),
        {},
    ),
    "qwen2-f32-eps1e-5-theta1e6": (
        "qwen2",
        "float32",
        dict(OWN_VALUES, rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=1000000.0), head_dim=16),
        {},
    ),
    "qwen3-f32-eps3e-4-biased": (
        "qwen3",
        "float32",
        dict(
            OWN_VALUES, rms_norm_eps=3e-4, rope_parameters=dict(rope_type="default", rope_theta=300000.0), attention_bias=True,
        ),
        {},
    ),
}


# The other families. A model of two heads, as narrow as its family allows, so that two layers of every kind stay small. No multiplier,
# epsilon, theta or scale is a default, and windows are shorter than the prompt.
SMALL = dict(
    vocab_size=90,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=256,
    rms_norm_eps=3e-4,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)
# Of families whose heads are `hidden_size / num_attention_heads` wide.
SHARED = dict(SMALL, hidden_size=64, num_hidden_layers=2)
S, F = "sliding_attention", "full_attention"


def plain(theta, **more):
    return dict(rope_type="default", rope_theta=theta, **more)


def axes(theta, section, **more):
    return plain(theta, mrope_section=section, **more)


def by_layer(sliding, full):
    return {S: sliding, F: full}


def longrope(pairs, original):
    return dict(
        rope_type="longrope", rope_theta=30000.0, original_max_position_embeddings=original,
        short_factor=[round(1.0 + 0.05 * i, 2) for i in range(pairs)],
        long_factor=[round(1.3 + 0.4 * i, 2) for i in range(pairs)],
    )


MINISTRAL_YARN = dict(
    rope_type="yarn", rope_theta=50000.0, factor=4.0, original_max_position_embeddings=16, beta_fast=16.0, beta_slow=2.0,
    mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3,
)
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.11, residual_multiplier=0.6, logits_scaling=2.5)
GEMMA2 = dict(
    head_dim=32, query_pre_attn_scalar=20, sliding_window=16, attn_logit_softcapping=2.0, final_logit_softcapping=1.5,
    tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh", rope_parameters=plain(20000.0),
)
GEMMA3 = dict(
    head_dim=32, query_pre_attn_scalar=20, sliding_window=16, tie_word_embeddings=True, num_hidden_layers=6,
    layer_types=[S, S, F] * 2, hidden_activation="gelu_pytorch_tanh",
    rope_parameters=by_layer(plain(5000.0), dict(rope_type="linear", factor=4.0, rope_theta=200000.0)),
)
SIGLIP = dict(
    model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
    image_size=8, patch_size=4,
)
PIXTRAL = dict(
    model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8,
    image_size=8, patch_size=4,
)
QWEN_VISION = dict(
    depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2, spatial_merge_size=1, temporal_patch_size=1, out_hidden_size=32,
)
GLIMMER_VISION = dict(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, patch_size=2, pos_emb_height=2, pos_emb_width=2,
    merge_size=1, patch_temporal=1,
)
GLIMMER_AROUND = dict(vision_config=GLIMMER_VISION, out_hidden_size=8, projector_hidden_size=8)
GLIMMER = dict(
    post_norm_eps=0.02, sliding_window=16, qk_scale_factor=1.7, output_multiplier=0.6, final_logit_softcapping=5.0,
    rope_parameters=plain(20000.0),
)
GEMMA4_VISION = dict(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=8,
    patch_size=2, pooling_kernel_size=1, position_embedding_size=4, use_clipped_linears=False,
)
GEMMA4_UNIFIED_VISION = dict(
    mm_embed_dim=8, mm_posemb_size=4, patch_size=2, pooling_kernel_size=1, model_patch_size=2, num_soft_tokens=4, output_proj_dims=8,
)
GEMMA4 = dict(
    sliding_window=16, num_hidden_layers=6, layer_types=[S, S, F] * 2, tie_word_embeddings=True, final_logit_softcapping=4.0,
    num_attention_heads=4, num_key_value_heads=2, pad_token_id=0,
    rope_parameters=by_layer(plain(5000.0), dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=200000.0)),
)
GEMMA4_SMALL = dict(num_key_value_heads=1, hidden_size_per_layer_input=16, vocab_size_per_layer_input=90)
COHERE2 = dict(
    layer_norm_eps=3e-4, logit_scale=0.3, tie_word_embeddings=True, sliding_window=16, num_hidden_layers=4,
    layer_types=[S, F] * 2, rope_parameters=plain(20000.0),
)

# As CASES, with a seed for those that would repeat few tokens. New cases go to the end, because the place of a case is its seed.
L = "linear_attention"
E = "moe"
DELTA = dict(
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=32, linear_conv_kernel_dim=4,
    rope_parameters=dict(
        rope_type="default", rope_theta=20000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True,
    ),
)
C = "conv"
NO_RMS = {name: value for name, value in SMALL.items() if name != "rms_norm_eps"}
MAMBA = dict(mamba_d_state=16, mamba_expand=2)
MAMBA2 = dict(
    vocab_size=SMALL["vocab_size"], hidden_size=64, state_size=16, expand=2, layer_norm_epsilon=3e-4, tie_word_embeddings=False, bos_token_id=1,
    eos_token_id=2, pad_token_id=None,
)
M = "mlp"
NEMOTRON = dict(
    {name: value for name, value in SHARED.items() if name not in ("num_hidden_layers", "rms_norm_eps")}, head_dim=48, ssm_state_size=16,
    layer_norm_epsilon=3e-4, time_step_min=0.0,
)
FALCON = dict(
    SHARED, mamba_d_state=16, rope_parameters=plain(1e9), embedding_multiplier=3.0, lm_head_multiplier=0.4, key_multiplier=0.6,
    attention_in_multiplier=1.3, attention_out_multiplier=0.7, ssm_in_multiplier=0.8, ssm_out_multiplier=1.2,
    ssm_multipliers=[0.5, 1.4, 0.9, 1.1, 0.7], mlp_multipliers=[0.6, 1.5],
)
QWEN_3_5_VISION = dict(QWEN_VISION, num_position_embeddings=16)

FAMILIES = {
    "ministral3-f32-yarn": ("ministral3", "float32", dict(SMALL, head_dim=32, rope_parameters=MINISTRAL_YARN), {}),
    "mistral3-bf16-wrapped-window16": (
        "mistral3",
        "bfloat16",
        dict(
            text_config=dict(
                SMALL, model_type="ministral3", head_dim=48, sliding_window=16, rope_parameters=MINISTRAL_YARN,
                num_hidden_layers=2,
            ),
            vision_config=PIXTRAL, tie_word_embeddings=False,
        ),
        dict(wrapped=("model.language_model.", "lm_head.")),
    ),
    "phi3-f32-partial": (
        "phi3", "float32", dict(SHARED, rope_parameters=plain(20000.0, partial_rotary_factor=0.75)), dict(old_rope_keys=True),
    ),
    "phi3-f32-window16": ("phi3", "float32", dict(SHARED, sliding_window=16, rope_parameters=plain(20000.0)), {}),
    "phi3-f32-longrope-long": (
        "phi3",
        "float32",
        dict(
            SHARED, tie_word_embeddings=True, original_max_position_embeddings=24,
            rope_parameters=dict(longrope(12, 24), partial_rotary_factor=0.75),
        ),
        dict(old_rope_keys=True),
    ),
    # The engine reads short factors where max_model_len is not beyond the original length: the test opens it with 96.
    # bf16 is too coarse for its sharp attention: transformers itself is 4 % away from its f32.
    "phi3-f16-longrope-short96": (
        "phi3",
        "float16",
        dict(
            SHARED, hidden_size=96, tie_word_embeddings=True, original_max_position_embeddings=96,
            rope_parameters=dict(longrope(18, 96), partial_rotary_factor=0.75),
        ),
        dict(seed=2133),
    ),
    "smollm3-f32-no-rope": (
        "smollm3",
        "float32",
        dict(SHARED, num_hidden_layers=4, no_rope_layers=[1, 0] * 2, tie_word_embeddings=True, rope_parameters=plain(50000.0)),
        dict(seed=2001),
    ),
    "smollm3-bf16-interval3": (
        "smollm3",
        "bfloat16",
        dict(
            SHARED, num_hidden_layers=6, no_rope_layer_interval=3, use_sliding_window=True, sliding_window=16,
            attention_bias=True, mlp_bias=True, rope_parameters=plain(50000.0),
        ),
        dict(seed=2004, absent=["no_rope_layers", "layer_types"]),
    ),
    "granite-f32": (
        "granite",
        "float32",
        dict(SHARED, rope_parameters=plain(20000.0), attention_bias=True, mlp_bias=True) | GRANITE,
        dict(seed=2000),
    ),
    "granite-f16-tied": (
        "granite",
        "float16",
        dict(SHARED, hidden_size=128, tie_word_embeddings=True, rope_parameters=plain(20000.0)) | GRANITE,
        dict(old_rope_keys=True),
    ),
    "seed_oss-f32": ("seed_oss", "float32", dict(SMALL, head_dim=32, rope_parameters=plain(20000.0)), dict(seed=2004)),
    "seed_oss-bf16-out-bias": (
        "seed_oss",
        "bfloat16",
        dict(SMALL, head_dim=64, attention_bias=False, attention_out_bias=True, mlp_bias=True, rope_parameters=plain(20000.0)),
        {},
    ),
    "ernie4_5-f32": (
        "ernie4_5", "float32", dict(SMALL, head_dim=32, tie_word_embeddings=True, rope_parameters=plain(20000.0)), {},
    ),
    "ernie4_5-bf16-biased": (
        "ernie4_5", "bfloat16", dict(SMALL, head_dim=48, use_bias=True, rope_parameters=plain(20000.0)), {},
    ),
    "hunyuan-f32": (
        "hunyuan_v1_dense", "float32", dict(SMALL, head_dim=32, attention_bias=True, rope_parameters=plain(20000.0)), dict(seed=2001),
    ),
    "hunyuan-bf16-alpha": (
        "hunyuan_v1_dense",
        "bfloat16",
        dict(
            SMALL, head_dim=64, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="dynamic", rope_theta=20000.0, alpha=50.0, factor=1.0),
        ),
        dict(old_rope_keys=True),
    ),
    # As Qwen3-Embedding has it: the decoder without its head and without a prefix.
    "qwen3-f32-embedding": (
        "qwen3", "float32", dict(SMALL, head_dim=32, tie_word_embeddings=True, rope_parameters=plain(20000.0)), dict(bare=True),
    ),
    "qwen3-bf16-reranker": (
        "qwen3", "bfloat16", dict(SMALL, head_dim=64, tie_word_embeddings=True, rope_parameters=plain(20000.0)), dict(seed=2000),
    ),
    "gemma2-f32": ("gemma2", "float32", dict(SMALL) | GEMMA2, {}),
    "gemma2-bf16-head64": (
        "gemma2", "bfloat16", dict(SMALL, hidden_size=48) | GEMMA2 | dict(head_dim=64), dict(seed=2002, absent=["layer_types"]),
    ),
    "gemma3-f32": ("gemma3_text", "float32", dict(SMALL, hidden_size=48) | GEMMA3, {}),
    # As the first checkpoints have it.
    "gemma3-bf16-old-keys": (
        "gemma3_text",
        "bfloat16",
        dict(SMALL) | GEMMA3 | dict(head_dim=64, query_pre_attn_scalar=90),
        dict(gemma3_keys=True),
    ),
    "gemma3-f32-wrapped": (
        "gemma3",
        "float32",
        dict(
            text_config=dict(SMALL) | GEMMA3, vision_config=SIGLIP, mm_tokens_per_image=1, tie_word_embeddings=True,
            boi_token_index=85, eoi_token_index=86, image_token_index=200,
        ),
        dict(seed=2004, wrapped=("language_model.model.", "language_model.lm_head.")),
    ),
    "olmo2-f32": ("olmo2", "float32", dict(SHARED, attention_bias=True, rope_parameters=plain(20000.0)), {}),
    "olmo2-f16": ("olmo2", "float16", dict(SHARED, hidden_size=96, rope_parameters=plain(20000.0)), dict(old_rope_keys=True)),
    "olmo3-f32": (
        "olmo3",
        "float32",
        dict(
            SHARED, num_hidden_layers=4, sliding_window=16, layer_types=[S, F] * 2,
            rope_parameters=by_layer(plain(20000.0), dict(YARN, rope_theta=20000.0)),
        ),
        {},
    ),
    "olmo3-bf16-old-keys": (
        "olmo3",
        "bfloat16",
        dict(
            SHARED, num_hidden_layers=8, sliding_window=16,
            rope_parameters=by_layer(plain(500000.0), dict(YARN, rope_theta=500000.0)),
        ),
        # transformers reads a theta beside rope_scaling for the full layers alone: it is the default of the others too.
        dict(olmo3_keys=True),
    ),
    "exaone4-f32": (
        "exaone4",
        "float32",
        dict(
            SMALL, head_dim=32, num_hidden_layers=6, sliding_window=16, sliding_window_pattern=3,
            layer_types=[S, S, F] * 2, rope_parameters=dict(LLAMA3, rope_theta=20000.0),
        ),
        {},
    ),
    "exaone4-bf16-no-window": (
        "exaone4",
        "bfloat16",
        dict(
            SMALL, head_dim=64, num_hidden_layers=2, sliding_window=None, sliding_window_pattern=None, layer_types=[F] * 2,
            tie_word_embeddings=True, rope_parameters=plain(20000.0),
        ),
        dict(seed=2014),
    ),
    "glm4-f32": (
        "glm4", "float32", dict(SMALL, head_dim=32, rope_parameters=plain(20000.0, partial_rotary_factor=0.5)), dict(seed=2001),
    ),
    "glm4-bf16-no-bias": (
        "glm4",
        "bfloat16",
        dict(SMALL, head_dim=64, attention_bias=False, rope_parameters=plain(20000.0, partial_rotary_factor=0.25)),
        dict(seed=2003, old_rope_keys=True),
    ),
    "cohere2-f32": ("cohere2", "float32", dict(SHARED) | COHERE2, {}),
    "cohere2-f16-pattern3": (
        "cohere2",
        "float16",
        dict(SHARED) | COHERE2 | dict(num_hidden_layers=6, layer_types=[S, S, F] * 2, attention_bias=True),
        dict(pattern=3),
    ),
    "granitemoehybrid-f32": (
        "granitemoehybrid",
        "float32",
        dict(
            SHARED, shared_intermediate_size=40, num_local_experts=0, layer_types=[F] * 2, position_embedding_type="rope",
            rope_parameters=plain(20000.0), mamba_n_heads=2,
        ) | GRANITE,
        # Infinity, which is no JSON.
        dict(absent=["time_step_limit"]),
    ),
    "granitemoehybrid-bf16-no-rope": (
        "granitemoehybrid",
        "bfloat16",
        dict(
            SHARED, shared_intermediate_size=56, num_local_experts=0, layer_types=[F] * 2, tie_word_embeddings=True,
            attention_bias=True, mamba_n_heads=2,
        ) | GRANITE,
        dict(seed=2000, absent=["time_step_limit"]),
    ),
    "qwen3_vl-f32": (
        "qwen3_vl",
        "float32",
        dict(
            text_config=dict(SMALL, head_dim=32, rope_parameters=axes(20000.0, [7, 5, 4], mrope_interleaved=True)),
            vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0], num_position_embeddings=16), tie_word_embeddings=False,
        ),
        {},
    ),
    "qwen3_vl-bf16-tied": (
        "qwen3_vl",
        "bfloat16",
        dict(
            text_config=dict(
                SMALL, head_dim=48, attention_bias=True, tie_word_embeddings=True,
                rope_parameters=axes(20000.0, [12, 6, 6], mrope_interleaved=True),
            ),
            vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0], num_position_embeddings=16), tie_word_embeddings=True,
        ),
        dict(seed=2004),
    ),
    "qwen2_5_vl-f32-flat": (
        "qwen2_5_vl",
        "float32",
        dict(
            text_config=dict(SHARED, rope_parameters=axes(20000.0, [8, 4, 4])), vision_config=QWEN_VISION, tie_word_embeddings=False,
        ),
        dict(flat=True),
    ),
    "qwen2_vl-bf16-wrapped": (
        "qwen2_vl",
        "bfloat16",
        dict(
            text_config=dict(SHARED, num_attention_heads=2, rope_parameters=axes(20000.0, [8, 4, 4])),
            vision_config=dict(QWEN_VISION, embed_dim=8, mlp_ratio=1), tie_word_embeddings=False,
        ),
        {},
    ),
    # Three layers of a gated delta rule to one of attention, with more value heads than key heads.
    "qwen3_5-f32": (
        "qwen3_5_text",
        "float32",
        dict(SMALL | DELTA, head_dim=32, num_hidden_layers=5, layer_types=[L, L, F, L, F]),
        dict(seed=2100),
    ),
    "qwen3_5-bf16-wrapped": (
        "qwen3_5",
        "bfloat16",
        dict(
            text_config=dict(SMALL | DELTA, head_dim=48, num_hidden_layers=4, tie_word_embeddings=True),
            vision_config=QWEN_3_5_VISION, tie_word_embeddings=True,
        ),
        dict(seed=2101, absent=["text_config.layer_types"]),
    ),
    # Short convolutions with biases and without, a width that the config adjusts, and one that it gives.
    "lfm2-f32": (
        "lfm2",
        "float32",
        dict(
            NO_RMS, num_hidden_layers=5, layer_types=[C, F, C, C, F], norm_eps=3e-4, intermediate_size=65, block_multiple_of=8,
            tie_word_embeddings=False, rope_parameters=plain(20000.0),
        ),
        dict(seed=2200),
    ),
    "lfm2-bf16-biased": (
        "lfm2",
        "bfloat16",
        dict(
            NO_RMS, hidden_size=64, layer_types=[C, C, F, C], norm_eps=1e-5, conv_bias=True, conv_L_cache=4, block_auto_adjust_ff_dim=False,
            tie_word_embeddings=True, rope_parameters=plain(20000.0),
        ),
        dict(seed=2201),
    ),
    # Mamba-2 in two groups, and in one with other biases.
    "granitemoehybrid-f32-mamba": (
        "granitemoehybrid",
        "float32",
        dict(
            SHARED | MAMBA, shared_intermediate_size=40, num_local_experts=0, num_hidden_layers=4, layer_types=[L, F, L, L],
            mamba_n_heads=4, mamba_n_groups=2, mamba_d_head=32,
        ) | GRANITE,
        dict(seed=2202, absent=["time_step_limit"]),
    ),
    "granitemoehybrid-bf16-mamba": (
        "granitemoehybrid",
        "bfloat16",
        dict(
            SHARED | MAMBA, shared_intermediate_size=56, num_local_experts=0, num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"],
            mamba_n_heads=8, mamba_n_groups=1, mamba_conv_bias=False, mamba_proj_bias=True, tie_word_embeddings=True,
        ) | GRANITE,
        dict(seed=2203, absent=["time_step_limit"]),
    ),
    # A window does not say whether a layer rotates.
    "muse_glimmer-f32": (
        "muse_glimmer",
        "float32",
        dict(
            GLIMMER_AROUND,
            text_config=dict(
                SMALL, head_dim=32, num_hidden_layers=8, layer_types=[S, S, F, F] * 2, layer_rope_theta=[20000.0, 0] * 4,
            ) | GLIMMER,
        ),
        dict(seed=2001),
    ),
    # Layers as the class has them by default: the second and the last are full.
    "muse_glimmer-bf16-tied": (
        "muse_glimmer",
        "bfloat16",
        dict(
            GLIMMER_AROUND,
            text_config=dict(
                SMALL, head_dim=48, num_hidden_layers=6, attention_bias=True, tie_word_embeddings=True,
                hidden_activation="gelu_pytorch_tanh",
            ) | GLIMMER,
            tie_word_embeddings=True,
        ),
        dict(seed=2000, absent=["text_config.layer_types", "text_config.layer_rope_theta"]),
    ),
    # Full layers have other heads, one KV head, and no projection to values.
    "gemma4-f32-keys-are-values": (
        "gemma4",
        "float32",
        dict(
            text_config=dict(
                SMALL, head_dim=32, global_head_dim=48, num_global_key_value_heads=1, attention_k_eq_v=True,
                hidden_size_per_layer_input=0,
            ) | GEMMA4,
            vision_config=GEMMA4_VISION, audio_config=None, tie_word_embeddings=True,
        ),
        {},
    ),
    # The sizes of heads that are published, under the fields of published folders.
    "gemma4_unified-bf16-head512": (
        "gemma4_unified",
        "bfloat16",
        dict(
            text_config=dict(
                SMALL, head_dim=256, global_head_dim=512, num_global_key_value_heads=1, attention_k_eq_v=True,
            ) | GEMMA4 | dict(num_hidden_layers=4, layer_types=[S, F] * 2, num_attention_heads=2, num_key_value_heads=2),
            vision_config=GEMMA4_UNIFIED_VISION, audio_config=None, tie_word_embeddings=True,
        ),
        dict(seed=2005, gemma4_keys=True),
    ),
    # Values of their own, biases, as many KV heads in every layer, no cap, and fewer pairs of a head turn.
    "gemma4_text-f32-biased": (
        "gemma4_text",
        "float32",
        dict(
            SMALL, head_dim=24, global_head_dim=32, num_global_key_value_heads=1, attention_bias=True, hidden_size_per_layer_input=0,
        ) | GEMMA4 | dict(
            final_logit_softcapping=None, num_hidden_layers=7, layer_types=None, tie_word_embeddings=False,
            rope_parameters=by_layer(
                plain(30000.0), dict(rope_type="proportional", partial_rotary_factor=0.3, rope_theta=50000.0, factor=1.5)
            ),
        ),
        dict(seed=2004, absent=["layer_types"], gemma4_keys=True),
    ),
    # One part per layer, each kind twice. In a prompt, transformers takes steps of at least time_step_min.
    "nemotron_h-f32": (
        "nemotron_h",
        "float32",
        dict(NEMOTRON, layers_block_type=[L, M, F, L, M, F], mamba_num_heads=4, n_groups=2, mamba_head_dim=32),
        dict(seed=2300, absent=["time_step_limit", "num_experts_per_tok", "n_routed_experts"]),
    ),
    "nemotron_h-bf16-biased": (
        "nemotron_h",
        "bfloat16",
        dict(
            NEMOTRON, layers_block_type=[F, L, L, M, F, M], mamba_num_heads=8, n_groups=1, mamba_head_dim=16, use_conv_bias=False,
            conv_kernel=3, use_bias=True, mlp_bias=True, ssm_state_size=32,
        ),
        dict(seed=2315, absent=["time_step_limit"], nemotron_keys=True),
    ),
    # Every factor is apart from the others. The scan has no norm, one behind the gate, and one before it.
    "falcon_h1-f32": (
        "falcon_h1",
        "float32",
        dict(FALCON, mamba_n_heads=3, mamba_d_head=32, mamba_d_ssm=96),
        dict(seed=2302, absent=["time_step_limit"]),
    ),
    "falcon_h1-f32-norm": (
        "falcon_h1",
        "float32",
        dict(FALCON, mamba_n_heads=4, mamba_d_ssm=None, mamba_n_groups=2, mamba_rms_norm=True, mlp_bias=True),
        dict(seed=2303, absent=["time_step_limit", "mamba_d_head"]),
    ),
    "falcon_h1-bf16-gate-first": (
        "falcon_h1",
        "bfloat16",
        dict(
            FALCON, mamba_n_heads=4, mamba_d_ssm=64, mamba_d_head=16, mamba_n_groups=2, mamba_rms_norm=True, mamba_norm_before_gate=False,
            mamba_conv_bias=False, tie_word_embeddings=True, num_hidden_layers=3,
        ),
        dict(seed=2304, absent=["time_step_limit"]),
    ),
    # One group of a scan whose heads, and those of attention, four ranks divide.
    "falcon_h1-f32-one-group": (
        "falcon_h1",
        "float32",
        dict(
            FALCON, num_attention_heads=4, num_key_value_heads=2, mamba_n_heads=5, mamba_d_head=16, mamba_d_ssm=80, mamba_n_groups=1,
            mamba_rms_norm=True, intermediate_size=40,
        ),
        dict(seed=2305, absent=["time_step_limit"]),
    ),
    # Inputs of layers; the last five layers read the keys of the last layer of their kind before them, which is neither the first nor the
    # last one.
    "gemma4-f32-per-layer": (
        "gemma4",
        "float32",
        dict(
            text_config=dict(SMALL, head_dim=24, global_head_dim=32) | GEMMA4 | GEMMA4_SMALL | dict(
                num_hidden_layers=10, layer_types=[S, F, S, F, S, S, F, S, S, F], num_kv_shared_layers=5, use_double_wide_mlp=True,
            ),
            vision_config=GEMMA4_VISION, audio_config=None, tie_word_embeddings=True,
        ),
        dict(seed=2403),
    ),
    # Published folders hold projections that nobody reads.
    "gemma4_text-bf16-per-layer": (
        "gemma4_text",
        "bfloat16",
        dict(SMALL, head_dim=32, global_head_dim=64) | GEMMA4 | GEMMA4_SMALL | dict(
            num_hidden_layers=6, layer_types=[S, F] * 3, num_kv_shared_layers=3, hidden_size_per_layer_input=24,
        ),
        dict(seed=2402, gemma4_keys=True, unused_keys=[3, 4, 5]),
    ),
}


# Mixtures of experts, with few experts and strong routers, so that no token is near to another choice.
QWEN3_MOE = dict(
    SMALL, head_dim=32, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True, rope_parameters=plain(20000.0),
)
LATENT = dict(SMALL, num_key_value_heads=2, moe_intermediate_size=24, num_experts_per_tok=2, n_shared_experts=2)
MIXTURE = dict(moe_intermediate_size=24, shared_expert_intermediate_size=16, num_experts=6, num_experts_per_tok=2)
SIGMOIDS = dict(
    SMALL, moe_intermediate_size=24, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, routed_scaling_factor=1.7,
    rope_parameters=plain(20000.0),
)
EXAONE_MOE = dict(
    SMALL, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2, num_shared_experts=2, routed_scaling_factor=1.7,
    rope_parameters=plain(20000.0),
)
TRINITY = dict(SMALL, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2, rope_parameters=plain(20000.0))
GLM_VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2, image_size=4)
LFM2_VISION = dict(
    model_type="siglip2_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, patch_size=2,
    num_patches=4,
)
INTERN_VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=[4, 4], patch_size=[2, 2])
KIMI_VISION = dict(
    num_hidden_layers=1, hidden_size=8, intermediate_size=8, num_attention_heads=1, patch_size=2, pos_emb_height=2, pos_emb_width=2,
    pos_emb_time=1,
)
NEXT = dict(DELTA, rope_parameters=plain(20000.0, partial_rotary_factor=0.25))

FAMILIES |= {
    # Layers with experts and without, by the interval and by the list.
    "qwen3_moe-f32": ("qwen3_moe", "float32", dict(QWEN3_MOE, decoder_sparse_step=2, num_hidden_layers=6, mlp_only_layers=[3]), dict(seed=3015)),
    "qwen3_moe-bf16-not-normed": (
        "qwen3_moe",
        "bfloat16",
        dict(
            QWEN3_MOE, head_dim=64, num_experts=5, num_experts_per_tok=3, norm_topk_prob=False, attention_bias=True, tie_word_embeddings=True,
            num_hidden_layers=2,
        ),
        dict(seed=3049),
    ),
    "mixtral-f32-window16": (
        "mixtral",
        "float32",
        dict(
            SMALL, head_dim=32, intermediate_size=24, num_local_experts=5, num_experts_per_tok=2, sliding_window=16, num_hidden_layers=2,
            rope_parameters=plain(20000.0),
        ),
        dict(seed=3106),
    ),
    "mixtral-bf16-tied": (
        "mixtral",
        "bfloat16",
        dict(
            SMALL, hidden_size=64, intermediate_size=32, num_local_experts=4, num_experts_per_tok=4, num_hidden_layers=2,
            tie_word_embeddings=True, rope_parameters=plain(20000.0),
        ),
        dict(seed=3217, absent=["head_dim"]),
    ),
    "olmoe-f32": (
        "olmoe",
        "float32",
        dict(SHARED, intermediate_size=16, num_experts=6, num_experts_per_tok=2, rope_parameters=plain(20000.0)),
        dict(seed=3300),
    ),
    "olmoe-bf16-normed": (
        "olmoe",
        "bfloat16",
        dict(
            SHARED, num_key_value_heads=2, intermediate_size=24, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True,
            attention_bias=True, rope_parameters=plain(20000.0),
        ),
        dict(seed=3405),
    ),
    # Recurrent layers and attention, each with experts.
    "qwen3_5_moe_text-f32": (
        "qwen3_5_moe_text",
        "float32",
        dict(SMALL | DELTA, head_dim=32, layer_types=[L, F] * 2) | MIXTURE,
        dict(seed=3505, absent=["intermediate_size"]),
    ),
    "qwen3_5_moe-bf16-wrapped": (
        "qwen3_5_moe",
        "bfloat16",
        dict(
            text_config=dict(SMALL | DELTA, head_dim=48, layer_types=[L, F], num_hidden_layers=2, tie_word_embeddings=True) | MIXTURE,
            vision_config=QWEN_3_5_VISION, tie_word_embeddings=True,
        ),
        dict(seed=3605, stacked=True),
    ),
    # The third layer has an MLP by the list, and the others of odd numbers by the interval.
    "qwen3_next-f32": (
        "qwen3_next",
        "float32",
        dict(SMALL | NEXT, head_dim=32, num_hidden_layers=6, layer_types=[L, F, L, F, L, F], decoder_sparse_step=2, mlp_only_layers=[3])
        | MIXTURE,
        dict(seed=3703),
    ),
    "qwen3_next-bf16-not-normed": (
        "qwen3_next",
        "bfloat16",
        dict(SMALL | NEXT, head_dim=48, num_hidden_layers=2, layer_types=[L, F], norm_topk_prob=False) | MIXTURE,
        dict(seed=3847),
    ),
    "glm4_moe-f32-groups": (
        "glm4_moe",
        "float32",
        dict(
            SMALL, head_dim=32, moe_intermediate_size=24, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, n_group=3, topk_group=2,
            routed_scaling_factor=1.7, first_k_dense_replace=2, use_qk_norm=True, attention_bias=True,
            rope_parameters=plain(20000.0, partial_rotary_factor=0.5),
        ),
        dict(seed=3905),
    ),
    "glm4_moe-bf16-not-normed": (
        "glm4_moe",
        "bfloat16",
        dict(
            SMALL, head_dim=48, moe_intermediate_size=24, n_routed_experts=3, num_experts_per_tok=3, n_shared_experts=1, norm_topk_prob=False,
            routed_scaling_factor=0.8, first_k_dense_replace=1, num_hidden_layers=3,
            rope_parameters=plain(20000.0, partial_rotary_factor=0.5),
        ),
        dict(seed=4000),
    ),
    "lfm2_moe-f32": (
        "lfm2_moe",
        "float32",
        dict(
            NO_RMS, num_hidden_layers=5, layer_types=[C, C, F, C, F], norm_eps=3e-4, moe_intermediate_size=24, num_experts=6,
            num_experts_per_tok=2, num_dense_layers=2, routed_scaling_factor=1.3, tie_word_embeddings=False, rope_parameters=plain(20000.0),
        ),
        dict(seed=4123),
    ),
    "lfm2_moe-bf16-not-normed": (
        "lfm2_moe",
        "bfloat16",
        dict(
            NO_RMS, hidden_size=64, num_hidden_layers=3, layer_types=[C, F, C], norm_eps=1e-5, moe_intermediate_size=24, num_experts=4,
            num_experts_per_tok=2, num_dense_layers=1, norm_topk_prob=False, use_expert_bias=False, tie_word_embeddings=True,
            rope_parameters=plain(20000.0),
        ),
        dict(seed=4201),
    ),
    "ernie4_5_moe-f32": (
        "ernie4_5_moe",
        "float32",
        dict(
            SMALL, head_dim=32, num_hidden_layers=6, moe_intermediate_size=24, moe_num_experts=6, moe_k=2, moe_num_shared_experts=2,
            moe_layer_interval=2, moe_layer_start_index=2, moe_layer_end_index=5, tie_word_embeddings=True, rope_parameters=plain(20000.0),
        ),
        dict(seed=4301),
    ),
    "ernie4_5_moe-bf16": (
        "ernie4_5_moe",
        "bfloat16",
        dict(
            SMALL, head_dim=48, num_hidden_layers=3, moe_intermediate_size=24, moe_num_experts=3, moe_k=3, moe_num_shared_experts=0,
            moe_layer_start_index=1, rope_parameters=plain(20000.0),
        ),
        dict(seed=4401),
    ),
    "granitemoehybrid-f32-experts": (
        "granitemoehybrid",
        "float32",
        dict(
            SHARED | MAMBA, shared_intermediate_size=24, intermediate_size=16, num_local_experts=5, num_experts_per_tok=2, num_hidden_layers=4,
            layer_types=[L, F] * 2, mamba_n_heads=4, mamba_n_groups=2, mamba_d_head=32,
        ) | GRANITE,
        dict(seed=4500, absent=["time_step_limit"]),
    ),
    # Two groups of a scan and seven experts, which three and four ranks divide.
    "granitemoehybrid-f32-seven-experts": (
        "granitemoehybrid",
        "float32",
        dict(
            SHARED | MAMBA, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24, shared_intermediate_size=40,
            num_local_experts=7, num_experts_per_tok=3, layer_types=[L, F], mamba_n_heads=8, mamba_n_groups=2, mamba_d_head=16,
        ) | GRANITE,
        dict(seed=2406, absent=["time_step_limit"]),
    ),
    "granitemoehybrid-bf16-experts": (
        "granitemoehybrid",
        "bfloat16",
        dict(
            SHARED, shared_intermediate_size=24, intermediate_size=24, num_local_experts=4, num_experts_per_tok=3, num_hidden_layers=2,
            layer_types=[F] * 2, tie_word_embeddings=True,
        ) | GRANITE,
        dict(seed=4615, absent=["time_step_limit"]),
    ),
    # The layers without a window have half the numbers of the others: two of them lie in one layer of the KV cache.
    "gemma4_text-f32-wide-windows": (
        "gemma4_text",
        "float32",
        dict(SMALL, head_dim=32, global_head_dim=64, num_global_key_value_heads=1, hidden_size_per_layer_input=0)
        | GEMMA4 | dict(num_key_value_heads=4),
        dict(seed=2006, gemma4_keys=True),
    ),
    "gpt_oss-f32": (
        "gpt_oss",
        "float32",
        dict(
            SMALL, num_attention_heads=4, head_dim=32, intermediate_size=24, num_local_experts=5, num_experts_per_tok=2, sliding_window=16,
            rope_parameters=dict(
                rope_type="yarn", rope_theta=20000.0, factor=4.0, beta_fast=16.0, beta_slow=2.0, truncate=False,
                original_max_position_embeddings=64,
            ),
        ),
        dict(seed=4702),
    ),
    # The list puts the layer with a window last, and all experts compute all tokens.
    "gpt_oss-bf16-no-bias": (
        "gpt_oss",
        "bfloat16",
        dict(
            SMALL, hidden_size=48, num_hidden_layers=2, num_attention_heads=2, head_dim=64, intermediate_size=40, num_local_experts=3,
            num_experts_per_tok=3, sliding_window=24, layer_types=[F, S], attention_bias=False, tie_word_embeddings=True,
            rope_parameters=dict(YARN, rope_theta=20000.0),
        ),
        dict(seed=4803, old_rope_keys=True),
    ),
    # Experts without gates, from groups, in layers of their own.
    "nemotron_h-f32-experts": (
        "nemotron_h",
        "float32",
        dict(
            NEMOTRON, layers_block_type=[L, E, F, L, E, F], mamba_num_heads=4, n_groups=2, mamba_head_dim=32, n_routed_experts=6,
            num_experts_per_tok=2, n_group=3, topk_group=2, moe_intermediate_size=24, moe_shared_expert_intermediate_size=16,
            routed_scaling_factor=1.5, time_step_min=1e-30,
        ),
        dict(seed=5201, absent=["time_step_limit"]),
    ),
    # Matrices of experts have outputs in columns.
    "qwen3_vl_moe-f32": (
        "qwen3_vl_moe",
        "float32",
        dict(
            text_config=dict(
                SMALL, head_dim=32, moe_intermediate_size=24, num_experts=5, num_experts_per_tok=2, decoder_sparse_step=2,
                rope_parameters=axes(20000.0, [7, 5, 4], mrope_interleaved=True),
            ),
            vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0], num_position_embeddings=16), tie_word_embeddings=False,
        ),
        dict(seed=5105),
    ),
    "qwen3_vl_moe-f32-rows": (
        "qwen3_vl_moe",
        "float32",
        dict(
            text_config=dict(
                SMALL, head_dim=32, moe_intermediate_size=40, num_experts=6, num_experts_per_tok=3,
                rope_parameters=axes(20000.0, [7, 5, 4], mrope_interleaved=True),
            ),
            vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0], num_position_embeddings=16), tie_word_embeddings=False,
        ),
        dict(seed=5106, stacked=True),
    ),
    # A mixture beside the MLP, whose router reads the stream.
    "gemma4-f32-experts": (
        "gemma4",
        "float32",
        dict(
            text_config=dict(
                SMALL, head_dim=32, global_head_dim=48, num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0,
                enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=16,
            ) | GEMMA4 | dict(num_hidden_layers=4, layer_types=[S, F] * 2),
            vision_config=GEMMA4_VISION, audio_config=None, tie_word_embeddings=True,
        ),
        dict(seed=4902),
    ),
    "gemma4_text-bf16-experts": (
        "gemma4_text",
        "bfloat16",
        dict(
            SMALL, head_dim=32, global_head_dim=64, num_global_key_value_heads=1, hidden_size_per_layer_input=0, enable_moe_block=True,
            num_experts=3, top_k_experts=3, moe_intermediate_size=24,
        ) | GEMMA4 | dict(num_hidden_layers=2, layer_types=[S, F]),
        dict(seed=5001, gemma4_keys=True),
    ),
    "glm4_moe_lite-f32-groups": (
        "glm4_moe_lite",
        "float32",
        dict(
            LATENT, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=32, n_routed_experts=6,
            n_group=3, topk_group=2, routed_scaling_factor=1.7, attention_bias=True, mlp_layer_types=["dense", "dense", "sparse", "sparse"],
            rope_parameters=plain(20000.0),
        ),
        dict(seed=6012),
    ),
    "glm4_moe_lite-bf16-not-normed": (
        "glm4_moe_lite",
        "bfloat16",
        dict(
            LATENT, q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=40, qk_rope_head_dim=8, v_head_dim=32, n_routed_experts=3,
            num_experts_per_tok=3, n_shared_experts=1, norm_topk_prob=False, routed_scaling_factor=0.8, num_hidden_layers=3,
            rope_parameters=plain(20000.0),
        ),
        dict(seed=6109),
    ),
    "deepseek_v3-f32-yarn": (
        "deepseek_v3",
        "float32",
        dict(
            LATENT, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=24, n_routed_experts=6,
            n_group=2, topk_group=1, routed_scaling_factor=1.3, first_k_dense_replace=2, rope_parameters=dict(YARN_MSCALE, truncate=True),
        ),
        dict(seed=6205, old_rope_keys=True),
    ),
    "deepseek_v3-bf16-halves": (
        "deepseek_v3",
        "bfloat16",
        dict(
            LATENT, q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=48, n_routed_experts=4,
            n_group=1, topk_group=1, routed_scaling_factor=1.3, first_k_dense_replace=0, num_hidden_layers=2, rope_interleave=False,
            rope_parameters=plain(20000.0),
        ),
        dict(seed=6312),
    ),
    "deepseek_v2-f32-yarn": (
        "deepseek_v2",
        "float32",
        dict(
            LATENT, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=6,
            routed_scaling_factor=1.4, first_k_dense_replace=2, rope_parameters=dict(YARN_MSCALE, truncate=True, mscale=0.7, mscale_all_dim=0.7),
        ),
        dict(seed=6402, old_rope_keys=True),
    ),
    "deepseek_v2-f32-groups": (
        "deepseek_v2",
        "float32",
        dict(
            LATENT, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=32, n_routed_experts=6,
            routed_scaling_factor=2.0, first_k_dense_replace=0, num_hidden_layers=2, topk_method="group_limited_greedy", n_group=3, topk_group=1,
            attention_bias=True, rope_parameters=plain(20000.0),
        ),
        dict(seed=6502),
    ),
    # Latent attention whose queries grow with their position, all numbers of them.
    "mistral4-f32-groups": (
        "mistral4",
        "float32",
        dict(
            LATENT, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=32, n_routed_experts=6,
            n_group=3, topk_group=2, routed_scaling_factor=1.7, attention_bias=True, first_k_dense_replace=2,
            rope_parameters=dict(MINISTRAL_YARN, mscale=0.8, mscale_all_dim=0.6),
        ),
        dict(seed=7210),
    ),
    "mistral3-bf16-mistral4": (
        "mistral3",
        "bfloat16",
        dict(
            text_config=dict(
                LATENT, model_type="mistral4", q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=32,
                n_routed_experts=3, num_experts_per_tok=3, n_shared_experts=1, norm_topk_prob=False, num_hidden_layers=2,
                rope_parameters=MINISTRAL_YARN,
            ),
            vision_config=PIXTRAL, spatial_merge_size=1, tie_word_embeddings=False,
        ),
        dict(seed=7230),
    ),
    # Experts that read a latent of the stream, while the router and the shared expert read the stream.
    "nemotron_h-f32-latent": (
        "nemotron_h",
        "float32",
        dict(
            NEMOTRON, layers_block_type=[L, E, F, E], mamba_num_heads=4, n_groups=2, mamba_head_dim=32, n_routed_experts=6,
            num_experts_per_tok=3, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40, moe_latent_size=16, mlp_bias=True,
            routed_scaling_factor=1.5, time_step_min=1e-30,
        ),
        dict(seed=7110, absent=["time_step_limit"]),
    ),
    "nemotron_h-bf16-latent": (
        "nemotron_h",
        "bfloat16",
        dict(
            NEMOTRON, layers_block_type=[E, L, E, F], mamba_num_heads=4, n_groups=1, mamba_head_dim=16, n_routed_experts=3,
            num_experts_per_tok=3, moe_intermediate_size=32, moe_shared_expert_intermediate_size=24, moe_latent_size=32,
            routed_scaling_factor=1.2, time_step_min=1e-30,
        ),
        dict(seed=7101, absent=["time_step_limit"]),
    ),
    # Every part that a layer may leave out is there, and the rotary embeddings differ.
    "lfm3-f32": (
        "lfm3",
        "float32",
        dict(
            NO_RMS, head_dim=32, num_hidden_layers=6, layer_types=[C, S, F, C, S, F], norm_eps=3e-4, sliding_window=16,
            rope_parameters=by_layer(plain(30000.0), dict(rope_type="proportional", partial_rotary_factor=0.4, rope_theta=5000.0)),
        ),
        dict(seed=7010),
    ),
    "lfm3-bf16-biased": (
        "lfm3",
        "bfloat16",
        dict(
            NO_RMS, head_dim=48, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4, layer_types=[S, C, F, C], norm_eps=1e-5,
            sliding_window=16, conv_bias=True, attention_bias=True, conv_L_cache=4, use_sandwich_norm=False, tie_word_embeddings=True,
            rope_parameters=by_layer(plain(20000.0), plain(40000.0)),
        ),
        dict(seed=7022),
    ),
    # Layers and rotary embeddings as the class has them by default, without gates.
    "lfm3_vl-f32-no-gate": (
        "lfm3_vl",
        "float32",
        dict(
            text_config=dict(
                NO_RMS, head_dim=32, num_hidden_layers=7, norm_eps=3e-4, sliding_window=16, use_attention_gate=False, model_type="lfm3",
                tie_word_embeddings=True,
            ),
            vision_config=dict(
                hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, patch_size=2,
                layer_types=["full_attention"],
            ),
            projector_hidden_size=8,
        ),
        dict(seed=7002, absent=["text_config.layer_types", "text_config.rope_parameters"]),
    ),
    # Half of each head rotates. The layers with attention are a list of indices.
    "bamba-f32": (
        "bamba",
        "float32",
        dict(
            SHARED | MAMBA, num_hidden_layers=4, attn_layer_indices=[1, 3], rope_parameters=plain(20000.0), mamba_n_heads=4, mamba_n_groups=2,
            mamba_d_head=32, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        ),
        dict(seed=7301, absent=["time_step_limit"]),
    ),
    "bamba-f16-older": (
        "bamba",
        "float16",
        dict(
            SHARED | MAMBA, num_hidden_layers=4, attn_layer_indices=[0, 2], rope_parameters=plain(30000.0), mamba_n_heads=8, mamba_n_groups=1,
            mamba_conv_bias=False, mamba_proj_bias=True,
        ),
        dict(seed=7305, absent=["time_step_limit", "mamba_d_head", "rope_parameters.partial_rotary_factor"], old_rope_keys=True),
    ),
    # Nothing but selective scans.
    "mamba2-f32": (
        "mamba2",
        "float32",
        dict(
            MAMBA2, num_hidden_layers=2, num_heads=4, head_dim=32, n_groups=2, use_bias=True,
        ),
        dict(seed=7311),
    ),
    "mamba2-bf16-tied": (
        "mamba2",
        "bfloat16",
        dict(
            MAMBA2, num_hidden_layers=3, num_heads=8, head_dim=16, n_groups=1, use_conv_bias=False, tie_word_embeddings=True, conv_kernel=3,
        ),
        dict(seed=7313, absent=["time_step_limit"]),
    ),
    # All layers but the first have a window, by the number of those that have none.
    "qwen3-f32-window16": (
        "qwen3",
        "float32",
        dict(
            SMALL, head_dim=32, num_hidden_layers=3, use_sliding_window=True, sliding_window=16, max_window_layers=1,
            rope_parameters=plain(20000.0),
        ),
        dict(seed=6600, absent=["layer_types"]),
    ),
    # The third layer has an MLP by the list, and the others of odd numbers by the interval. Every second layer of the first four has a window.
    "qwen2_moe-f32": (
        "qwen2_moe",
        "float32",
        dict(
            SMALL | MIXTURE, head_dim=32, num_hidden_layers=6, decoder_sparse_step=2, mlp_only_layers=[3], use_sliding_window=True,
            sliding_window=16, max_window_layers=4, rope_parameters=plain(20000.0),
        ),
        dict(seed=7003, absent=["layer_types"]),
    ),
    "qwen2_moe-bf16-normed": (
        "qwen2_moe",
        "bfloat16",
        dict(
            SMALL | MIXTURE, head_dim=48, num_hidden_layers=2, norm_topk_prob=True, qkv_bias=False, tie_word_embeddings=True,
            rope_parameters=plain(20000.0),
        ),
        dict(seed=7101),
    ),
    "granitemoe-f32": (
        "granitemoe",
        "float32",
        dict(SHARED, intermediate_size=16, num_local_experts=5, num_experts_per_tok=2, num_hidden_layers=2, rope_parameters=plain(20000.0))
        | GRANITE,
        dict(seed=7202),
    ),
    "granitemoeshared-bf16-tied": (
        "granitemoeshared",
        "bfloat16",
        dict(
            SHARED, intermediate_size=24, shared_intermediate_size=40, num_local_experts=4, num_experts_per_tok=3, num_hidden_layers=2,
            attention_bias=True, tie_word_embeddings=True, rope_parameters=plain(20000.0),
        ) | GRANITE,
        dict(seed=7307, old_rope_keys=True),
    ),
    "minimax_m2-f32": (
        "minimax_m2",
        "float32",
        dict(
            SMALL, head_dim=32, intermediate_size=24, num_local_experts=6, num_experts_per_tok=2,
            rope_parameters=plain(20000.0, partial_rotary_factor=0.25),
        ),
        dict(seed=7401),
    ),
    # As published: the numbers that turn are counted.
    "minimax_m2-bf16-rotary-dim": (
        "minimax_m2",
        "bfloat16",
        dict(
            SMALL, head_dim=48, num_hidden_layers=2, intermediate_size=40, num_local_experts=4, num_experts_per_tok=3, rotary_dim=16,
            tie_word_embeddings=True, rope_parameters=plain(20000.0),
        ),
        dict(seed=7536, absent=["rope_parameters.partial_rotary_factor"], old_rope_keys=True),
    ),
    # MLPs in the first layers, and windows in the last.
    "dots1-f32": (
        "dots1",
        "float32",
        dict(
            SIGMOIDS, head_dim=32, n_group=3, topk_group=2, norm_topk_prob=True, first_k_dense_replace=2, attention_bias=True,
            sliding_window=16, max_window_layers=1,
        ),
        dict(seed=7601, absent=["layer_types"]),
    ),
    "dots1-bf16-not-normed": (
        "dots1",
        "bfloat16",
        dict(SIGMOIDS, n_routed_experts=3, num_experts_per_tok=3, head_dim=48, num_hidden_layers=3, n_shared_experts=1, norm_topk_prob=False, first_k_dense_replace=1, sliding_window=None),
        dict(seed=7700),
    ),
    "solar_open-f32": (
        "solar_open",
        "float32",
        dict(
            SIGMOIDS, num_hidden_layers=2, head_dim=32, n_group=3, topk_group=2, attention_bias=True,
        ),
        dict(seed=7803, absent=["intermediate_size"]),
    ),
    "solar_open-bf16-not-normed": (
        "solar_open",
        "bfloat16",
        dict(SIGMOIDS, n_routed_experts=3, num_experts_per_tok=3, num_hidden_layers=2, head_dim=48, n_shared_experts=1, norm_topk_prob=False, tie_word_embeddings=True),
        dict(seed=7900, absent=["intermediate_size"]),
    ),
    "exaone_moe-f32": (
        "exaone_moe",
        "float32",
        dict(
            EXAONE_MOE, head_dim=32, n_group=3, topk_group=2, sliding_window=16, layer_types=[S, F] * 2,
            mlp_layer_types=["dense", "dense", "sparse", "sparse"],
        ),
        dict(seed=8004),
    ),
    "exaone_moe-bf16-not-normed": (
        "exaone_moe",
        "bfloat16",
        dict(
            EXAONE_MOE, num_experts=3, num_experts_per_tok=3, head_dim=48, num_hidden_layers=3, num_shared_experts=1, norm_topk_prob=False, sliding_window=24, sliding_window_pattern=2,
            first_k_dense_replace=2,
        ),
        dict(seed=8100, absent=["layer_types", "mlp_layer_types"]),
    ),
    "afmoe-f32": (
        "afmoe",
        "float32",
        dict(
            TRINITY, head_dim=32, layer_types=[S, F] * 2, sliding_window=16, num_dense_layers=2, num_shared_experts=2, route_scale=1.4,
            mup_enabled=True, attention_bias=True,
        ),
        dict(seed=8202),
    ),
    "afmoe-bf16-tied": (
        "afmoe",
        "bfloat16",
        dict(
            TRINITY, num_experts=3, num_experts_per_tok=3, head_dim=48, num_hidden_layers=3, global_attn_every_n_layers=3, sliding_window=24, num_dense_layers=1, num_shared_experts=1,
            tie_word_embeddings=True,
        ),
        dict(seed=8300, absent=["layer_types"]),
    ),
    "flex_olmo-f32": (
        "flex_olmo",
        "float32",
        dict(SHARED, intermediate_size=16, num_experts=6, num_experts_per_tok=2, rope_parameters=plain(20000.0)),
        dict(seed=8401),
    ),
    "flex_olmo-bf16-normed": (
        "flex_olmo",
        "bfloat16",
        dict(
            SHARED, num_key_value_heads=2, intermediate_size=24, num_experts=3, num_experts_per_tok=3, norm_topk_prob=True, attention_bias=True,
            rope_parameters=plain(20000.0),
        ),
        dict(seed=8500),
    ),
    "hunyuan_moe-f32": (
        "hunyuan_v1_moe",
        "float32",
        dict(SMALL, head_dim=32, intermediate_size=24, num_experts=5, moe_topk=2, attention_bias=True, rope_parameters=plain(20000.0)),
        dict(seed=8600),
    ),
    # As published: a list of what is the same in all layers.
    "hunyuan_moe-bf16-alpha": (
        "hunyuan_v1_moe",
        "bfloat16",
        dict(
            SMALL, head_dim=64, num_hidden_layers=2, num_experts=3, moe_topk=[3, 3], tie_word_embeddings=True,
            rope_parameters=dict(rope_type="dynamic", rope_theta=20000.0, alpha=50.0, factor=1.0),
        ),
        dict(seed=8700, old_rope_keys=True),
    ),
    "arcee-f32": (
        "arcee",
        "float32",
        dict(SMALL, head_dim=32, attention_bias=True, mlp_bias=True, rope_parameters=dict(YARN, rope_theta=20000.0)),
        dict(seed=8800),
    ),
    "arcee-bf16-tied": (
        "arcee", "bfloat16", dict(SMALL, head_dim=48, tie_word_embeddings=True, rope_parameters=plain(20000.0)), dict(seed=8900),
    ),
    "olmo-f32": ("olmo", "float32", dict(NO_RMS, hidden_size=64, num_hidden_layers=2, rope_parameters=plain(20000.0)), dict(seed=9000)),
    "olmo-bf16-biased": (
        "olmo",
        "bfloat16",
        dict(NO_RMS, hidden_size=96, num_hidden_layers=2, attention_bias=True, tie_word_embeddings=True, rope_parameters=plain(20000.0)),
        dict(seed=9102),
    ),
    "gemma-f32": ("gemma", "float32", dict(SMALL, head_dim=32, tie_word_embeddings=True, rope_parameters=plain(20000.0)), dict(seed=9205)),
    "gemma-bf16-biased": (
        "gemma",
        "bfloat16",
        dict(SMALL, hidden_size=48, head_dim=64, attention_bias=True, rope_parameters=plain(20000.0)),
        dict(seed=9302, old_rope_keys=True),
    ),
    "cohere-f32": (
        "cohere",
        "float32",
        dict(SHARED, layer_norm_eps=3e-4, logit_scale=0.3, tie_word_embeddings=True, rope_parameters=plain(20000.0)),
        dict(seed=9401),
    ),
    "cohere-f16-biased": (
        "cohere",
        "float16",
        dict(SHARED, layer_norm_eps=1e-5, logit_scale=0.5, attention_bias=True, rope_parameters=plain(20000.0)),
        dict(seed=9500, old_rope_keys=True),
    ),
    "glm-f32": ("glm", "float32", dict(SMALL, head_dim=32, rope_parameters=plain(20000.0, partial_rotary_factor=0.5)), dict(seed=9600)),
    "glm-bf16-no-bias": (
        "glm",
        "bfloat16",
        dict(SMALL, head_dim=64, attention_bias=False, tie_word_embeddings=True, rope_parameters=plain(20000.0, partial_rotary_factor=0.25)),
        dict(seed=9705, old_rope_keys=True),
    ),
    "stablelm-f32": (
        "stablelm",
        "float32",
        dict(SHARED, layer_norm_eps=3e-4, use_qkv_bias=True, rope_parameters=plain(20000.0, partial_rotary_factor=0.5)),
        dict(seed=9802),
    ),
    "stablelm-bf16-parallel": (
        "stablelm",
        "bfloat16",
        dict(SHARED, layer_norm_eps=1e-5, use_parallel_residual=True, tie_word_embeddings=True, rope_parameters=plain(20000.0)),
        dict(seed=9904),
    ),
    "starcoder2-f32": (
        "starcoder2", "float32", dict(SHARED, norm_epsilon=3e-4, sliding_window=16, rope_parameters=plain(20000.0)), dict(seed=10001),
    ),
    "starcoder2-bf16-no-bias": (
        "starcoder2",
        "bfloat16",
        dict(SHARED, norm_epsilon=1e-5, use_bias=False, tie_word_embeddings=False, rope_parameters=plain(20000.0)),
        dict(seed=10100, old_rope_keys=True),
    ),
    # Decoders of models with images.
    "glm4v-f32": (
        "glm4v",
        "float32",
        dict(
            text_config=dict(SHARED, rope_parameters=axes(20000.0, [2, 3, 3], partial_rotary_factor=0.5)),
            vision_config=dict(GLM_VISION, out_hidden_size=64), tie_word_embeddings=False,
        ),
        dict(seed=10201),
    ),
    "glm46v-bf16-tied": (
        "glm46v",
        "bfloat16",
        dict(
            text_config=dict(SHARED, model_type="glm4v_text", tie_word_embeddings=True, rope_parameters=axes(20000.0, [6, 5, 5])),
            vision_config=dict(GLM_VISION, out_hidden_size=64), tie_word_embeddings=True,
        ),
        dict(seed=10305),
    ),
    "glm4v_moe-f32": (
        "glm4v_moe",
        "float32",
        dict(
            text_config=dict(
                SIGMOIDS, head_dim=32, n_group=3, topk_group=2, first_k_dense_replace=2,
                rope_parameters=axes(20000.0, [2, 3, 3], partial_rotary_factor=0.5),
            ),
            vision_config=dict(GLM_VISION, out_hidden_size=32), tie_word_embeddings=False,
        ),
        dict(seed=10400),
    ),
    "lfm2_vl-f32": (
        "lfm2_vl",
        "float32",
        dict(
            text_config=dict(
                NO_RMS, model_type="lfm2", hidden_size=64, norm_eps=3e-4, layer_types=[C, F] * 2, block_multiple_of=8, tie_word_embeddings=True,
                rope_parameters=plain(20000.0),
            ),
            vision_config=LFM2_VISION, projector_hidden_size=8, tie_word_embeddings=True,
        ),
        dict(seed=10500),
    ),
    "internvl-bf16": (
        "internvl",
        "bfloat16",
        dict(
            text_config=dict(SMALL, model_type="qwen3", head_dim=48, num_hidden_layers=2, rope_parameters=plain(20000.0)),
            vision_config=INTERN_VISION, tie_word_embeddings=False,
        ),
        dict(seed=10600, wrapped=("language_model.model.", "language_model.lm_head.")),
    ),
    "kimi_k25-f32": (
        "kimi_k25",
        "float32",
        dict(
            text_config=dict(
                LATENT, model_type="deepseek_v3", num_hidden_layers=2, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=16,
                v_head_dim=24, n_routed_experts=6, n_group=1, topk_group=1, routed_scaling_factor=1.3, first_k_dense_replace=1,
                rope_parameters=plain(20000.0),
            ),
            vision_config=KIMI_VISION, projection_hidden_size=8, tie_word_embeddings=False,
        ),
        dict(seed=10701),
    ),
}


QK_NORMS = tuple(
    f"{name}.weight" for name in ["q_norm", "k_norm", "query_layernorm", "key_layernorm", "q_layernorm", "k_layernorm"]
)


def class_of(config):
    """The class that generates text."""
    if hasattr(config, "text_config"):
        return getattr(transformers, type(config).__name__.replace("Config", "ForConditionalGeneration"))
    if config.model_type == "mistral4":
        # Which the mapping of this version of transformers lacks.
        return transformers.Mistral4ForCausalLM
    with torch.device("meta"):
        return type(AutoModelForCausalLM.from_config(config))


def weights(config, generator):
    """Random weights under which the network neither dies out nor repeats one token for ever."""
    with torch.device("meta"):
        model = class_of(config)(config)
        shapes = {name: p.shape for name, p in model.named_parameters()}
        buffers = ("layer_scalar", "e_score_correction_bias", "expert_bias")
        shapes |= {name: b.shape for name, b in model.named_buffers() if name.endswith(buffers)}
    # The norms of Gemma 2 and 3 scale by 1 + w, and embeddings of all are multiplied by the square root of their width.
    is_gemma = config.model_type.startswith("gemma")
    is_gemma4 = config.model_type.startswith("gemma4")
    # Muse Glimmer's do in its layers alone, and its embeddings are normalized: they are so small that their epsilon counts.
    is_glimmer = config.model_type == "muse_glimmer"
    state = {}
    for name, shape in shapes.items():
        one_less = 1 if is_gemma and not is_gemma4 or is_glimmer and name.endswith("layernorm.weight") else 0
        # Qwen3.5's do, but for those of the delta rule.
        one_less = 1 if config.model_type.startswith(("qwen3_5", "qwen3_next")) and ".linear_attn." not in name else one_less
        noise = torch.randn(shape, generator=generator)
        # Sharper attention would magnify the rounding of keys beyond what trained models show: hence 0.7 and 0.8.
        if any(part in name for part in ("vision", "visual", "multi_modal", "mm_projector")):
            state[name] = noise
        elif name.endswith(QK_NORMS):
            state[name] = 0.7 + 0.2 * noise - one_less
            if is_gemma4:
                # Nothing else divides scores by the root of the size of a head.
                state[name] /= shape[0] ** 0.25
        elif name.endswith("layer_scalar"):
            state[name] = (0.8 + 0.2 * noise).abs()
        elif name.endswith(("norm.weight", "norm_f.weight", "layernorm_1.weight", "layernorm_2.weight", "router.scale")):
            state[name] = 1 + 0.2 * noise - one_less
        elif name.endswith("router.per_expert_scale"):
            state[name] = (1 + 0.3 * noise).abs()
        elif name.endswith(("e_score_correction_bias", "expert_bias")):
            # Scores are between 0 and 1.
            state[name] = 0.1 * noise
        elif name.endswith("experts.gate_up_proj_bias"):
            # Some gates and ups reach their bounds.
            state[name] = 4 * noise
        elif name.endswith("bias"):
            state[name] = 0.3 * noise
        elif name.endswith(".sinks"):
            # As much as some keys.
            state[name] = 1 + noise
        elif name.endswith(("embed_tokens.weight", "model.embeddings.weight", "backbone.embeddings.weight")):
            # A tied head likes the token it has just read: weak embeddings keep it from repeating that one for ever.
            strength = 0.25 if config.get_text_config().tie_word_embeddings else 0.05 if is_glimmer else 0.4
            strength /= getattr(config, "embedding_multiplier", 1)
            state[name] = (0.5 / shape[1] ** 0.5 if is_gemma else strength) * noise
        elif name.endswith("embed_tokens_per_layer.weight"):
            state[name] = 0.25 * noise
        elif name.endswith(("per_layer_input_gate.weight", "per_layer_model_projection.weight", "per_layer_projection.weight")):
            state[name] = 1.2 * noise / shape[1] ** 0.5
        elif name.endswith("lm_head.weight"):
            state[name] = 3 * noise / shape[1] ** 0.5
        elif name.endswith(("q_proj.weight", "k_proj.weight")):
            state[name] = 0.8 * noise / shape[1] ** 0.5
        elif name.endswith(("q_a_proj.weight", "kv_a_proj_with_mqa.weight")):
            # Latents are so small that their epsilon counts.
            state[name] = 0.3 * noise / shape[1] ** 0.5
        elif name.endswith("A_log"):
            state[name] = noise
        elif name.endswith("dt_bias"):
            state[name] = noise
        elif name.endswith((".mamba.D", ".mixer.D")):
            state[name] = 1 + 0.5 * noise
        elif name.endswith("c_fc.weight"):
            state[name] = 1.2 * noise / shape[1] ** 0.5
        elif name.endswith((".w1.weight", ".w2.weight", ".w3.weight")):
            state[name] = 1.2 * noise / shape[1] ** 0.5
        elif name.endswith(("conv1d.weight", "conv.conv.weight")):
            state[name] = 0.6 * noise
        elif name.endswith(("in_proj_a.weight", "in_proj_b.weight")):
            state[name] = 1.5 * noise / shape[1] ** 0.5
        elif ".in_proj_" in name or name.endswith(("_proj.weight", "_linear.weight")):
            state[name] = 1.2 * noise / shape[1] ** 0.5
        elif name.endswith("shared_expert_gate.weight"):
            state[name] = noise / shape[1] ** 0.5
        elif name.endswith(("mlp.gate.weight", "router.weight", "router.gate.weight", "gate.wg.weight", "feed_forward.gate.weight")):
            state[name] = 3 * noise / shape[1] ** 0.5
        elif name.endswith("mixer.gate.weight"):
            state[name] = 3 * noise / shape[1] ** 0.5
        elif name.endswith("experts.up_proj"):
            state[name] = 1.2 * noise / shape[2] ** 0.5
        elif name.endswith("router.proj.weight"):
            # What it reads is as long as 1.
            state[name] = 3 * noise
        elif name.endswith(("experts.gate_up_proj", "experts.down_proj")) and config.model_type == "gpt_oss":
            # Transposed. What goes into the second is several times as large as elsewhere.
            state[name] = (1.2 if name.endswith("gate_up_proj") else 0.2) * noise / shape[1] ** 0.5
        elif name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            state[name] = 1.2 * noise / shape[2] ** 0.5
        else:
            raise ValueError(f"no rule for {name}")
    return state


def as_published(config, state):
    """The tensors as folders have them: transformers holds experts in one tensor and writes most of them one by one."""
    if config.model_type.startswith("lfm3"):
        return {name.replace(".self_attn.g_proj.", ".self_attn.gate_proj."): tensor for name, tensor in state.items()}
    if not any(".experts." in name for name in state):
        return state
    model = class_of(config)(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    number_type = next(iter(state.values())).dtype
    with tempfile.TemporaryDirectory() as folder:
        model.to(number_type).save_pretrained(folder)
        saved = load_file(pathlib.Path(folder) / "model.safetensors")
    # transformers gives the layers of the decoder the name of those of the tower.
    saved = {name.replace("language_model.model.blocks.", "language_model.model.layers."): tensor for name, tensor in saved.items()}
    if config.model_type == "qwen3_vl_moe" and number_type == torch.float32:
        # Those of Qwen have outputs in columns, and those that transformers has saved in rows.
        turned = [name for name in saved if ".mlp.experts." in name]
        saved |= {name: saved[name].transpose(1, 2).contiguous() for name in turned}
    return saved


def chosen_by(router, inputs, logits):
    """What the experts of each token are chosen by."""
    correction = getattr(router, "e_score_correction_bias", None)
    if hasattr(router, "moe_statics"):
        return router.moe_statics(logits.softmax(-1))
    if len(inputs) > 1 and inputs[1] is not None:
        return logits.sigmoid() + inputs[1]
    return logits if correction is None else logits.sigmoid() + correction


@torch.no_grad()
def routing_gap(folder, sequence):
    """How much the worst of the experts that compute a token is better than the best of the others, where that is closest."""
    model = read_back(folder)
    gaps = []
    def note(router, inputs, output):
        chosen, by = output[2].shape[-1], chosen_by(router, inputs, output[0].float())
        if type(router).__name__ == "Gemma4TextRouter":
            # It gives the scores.
            by = by.log()
        if chosen < by.shape[-1]:
            top = by.topk(chosen + 1).values
            gaps.append((top[..., -2] - top[..., -1]).min().item())
    for module in model.modules():
        if type(module).__name__.lower().endswith(("topkrouter", "textrouter", "choicerouter", "v1gate")):
            module.register_forward_hook(note)
    model(torch.tensor([sequence]))
    return min(gaps, default=None)


def with_old_rope_keys(written):
    rope = dict(written.pop("rope_parameters"))
    written["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        written["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    kind = rope.pop("rope_type")
    written["rope_scaling"] = None if kind == "default" else dict(rope, type=kind)


def with_old_gemma3_keys(written):
    ropes = written.pop("rope_parameters")
    written["rope_local_base_freq"] = ropes[S]["rope_theta"]
    full = dict(ropes[F])
    written["rope_theta"] = full.pop("rope_theta")
    written["rope_scaling"] = full
    written["sliding_window_pattern"] = written.pop("layer_types").index(F) + 1


def with_old_olmo3_keys(written):
    full = dict(written.pop("rope_parameters")[F])
    written["rope_theta"] = full.pop("rope_theta")
    written["rope_scaling"] = full
    del written["layer_types"]


def with_gemma4_keys(written):
    """As published: one size of heads for all layers without a window, which transformers writes layer by layer."""
    text = written.get("text_config", written)
    layers = text.pop("per_layer_config")
    heads = next(iter(layers.values()))
    text["global_head_dim"] = heads["head_dim"]
    text["num_global_key_value_heads"] = heads.get("num_key_value_heads", 1)
    text["dtype"] = written["dtype"]


def with_nemotron_keys(written):
    """As published: a letter for each layer."""
    kinds = written.pop("layers_block_type")
    written["hybrid_override_pattern"] = "".join({L: "M", F: "*", M: "-"}[kind] for kind in kinds)
    written["num_hidden_layers"] = len(kinds)
    written["rms_norm_eps"] = written["layer_norm_epsilon"]
    for name in [name for name in written if "moe" in name or "expert" in name or "mtp" in name or name in ("n_group", "topk_group")]:
        del written[name]


def with_flat_text(written):
    """As published before text_config: the decoder's fields beside those of images, and its rotation as of 2024."""
    text = written.pop("text_config")
    model_type = written["model_type"]
    written.update({name: value for name, value in text.items() if name not in written or written[name] is None})
    written["model_type"] = model_type
    rope = written.pop("rope_parameters")
    written["rope_theta"] = rope["rope_theta"]
    written["rope_scaling"] = dict(type="mrope", mrope_section=rope["mrope_section"])


def write_folder(
    folder, config, state, number_type, shards=1, old_rope_keys=False, gemma3_keys=False, olmo3_keys=False, absent=(),
    pattern=None, bare=False, wrapped=None, flat=False, gemma4_keys=False, nemotron_keys=False, unused_keys=(),
):
    folder.mkdir(parents=True)
    written = config.to_dict()
    written["architectures"] = [class_of(config).__name__]
    written["dtype"] = number_type
    for field in absent:
        *inner, last = field.split(".")
        holder = written
        for name in inner:
            holder = holder[name]
        del holder[last]
    if gemma4_keys:
        with_gemma4_keys(written)
    if nemotron_keys:
        with_nemotron_keys(written)
        state = {name.replace("model.", "backbone.", 1): tensor for name, tensor in state.items()}
    if old_rope_keys:
        with_old_rope_keys(written)
    if gemma3_keys:
        with_old_gemma3_keys(written)
    if olmo3_keys:
        with_old_olmo3_keys(written)
    for layer in unused_keys:
        # What the last layers would have if they did not read those of others.
        for part in ("k_proj", "v_proj", "k_norm"):
            name = f"self_attn.{part}.weight"
            state[f"model.layers.{layer}.{name}"] = state[f"model.layers.{layer % 2}.{name}"].clone()
    if pattern is not None:
        written["sliding_window_pattern"] = pattern
        del written["layer_types"]
    if bare:
        state = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    if flat:
        with_flat_text(written)
        state = {name.replace("model.language_model.", "model.").replace("model.visual.", "visual."): t for name, t in state.items()}
    if wrapped is not None:
        # Where the decoder and its head are: both have moved over time, and everything else has with them.
        text, head = wrapped
        names = {"model.language_model.": text, "lm_head.": head}
        if text != "model.language_model.":
            names["model."] = ""
        def renamed(name):
            found = next((prefix for prefix in names if name.startswith(prefix)), None)
            return name if found is None else names[found] + name.removeprefix(found)
        state = {renamed(name): tensor for name, tensor in state.items()}
    (folder / "config.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    names = sorted(state)
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    index = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard::shards]
        save_file({name: state[name] for name in part}, folder / file, metadata={"format": "pt"})
        index.update({name: file for name in part})
    total = sum(t.numel() * t.element_size() for t in state.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1, sort_keys=True) + "\n"
    )


def read_back(folder):
    """What transformers makes of the folder."""
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, report = getattr(transformers, name).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    return model.eval()


@torch.no_grad()
def reference(folder, vocab, generator, prompt_tokens=PROMPT_TOKENS, device="cpu", greedy_tokens=GREEDY_TOKENS):
    # Read back from disk, so that what transformers makes of the folder is what is compared.
    model = read_back(folder).to(device)
    prompt = torch.randint(0, vocab, (prompt_tokens,), generator=generator)
    sequence, logits = prompt.tolist(), []
    for _ in range(greedy_tokens):
        row = model(torch.tensor([sequence], device=device), logits_to_keep=1).logits[0, -1].cpu()
        logits.append(row)
        sequence.append(int(row.argmax()))
    return prompt, torch.tensor(sequence[prompt_tokens:]), torch.stack(logits)


@torch.no_grad()
def write_embedding(folder, prompt):
    model = read_back(folder)
    body = model.backbone if hasattr(model, "backbone") else model.model
    states = body(prompt.long()[None]).last_hidden_state[0]
    pooled = {"last": states[-1].clone(), "mean": states.double().mean(0).float()}
    save_file(pooled, folder / "embedding.safetensors")


def embeddings():
    for name in CASES | FAMILIES:
        write_embedding(HERE / name, load_file(HERE / name / "reference.safetensors")["prompt"])


def make(name, seed, case, greedy_tokens):
    model_type, number_type, changes, layout = case
    layout = dict(layout)
    seed = layout.pop("seed", seed)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(seed)
    config = AutoConfig.for_model(model_type, **changes)
    state = {k: v.to(getattr(torch, number_type)) for k, v in weights(config, generator).items()}
    # Some folders have experts in one tensor, too.
    if not layout.pop("stacked", False):
        state = as_published(config, state)
    write_folder(folder, config, state, number_type, **layout)
    vocab = config.get_text_config().vocab_size
    prompt, tokens, logits = reference(folder, vocab, generator, greedy_tokens=greedy_tokens)
    save_file(
        {"prompt": prompt.int(), "tokens": tokens.int(), "logits": logits.contiguous()},
        folder / "reference.safetensors",
    )
    write_embedding(folder, prompt)
    top = logits.topk(2).values
    gap = (top[:, 0] - top[:, 1]).min().item()
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name:30} {size:7} bytes, {len(set(tokens.tolist())):2} different tokens, smallest gap {gap:.4f}", flush=True)
    routing = routing_gap(folder, prompt.tolist() + tokens.tolist())
    if routing is not None:
        print(f"{name:30} smallest gap of routers {routing:.4f}", flush=True)


def main(only=()):
    for seed, (name, (model_type, number_type, changes, layout)) in enumerate(CASES.items()):
        if not only or name in only:
            make(name, seed, (model_type, number_type, {**BASE, **changes}, layout), GREEDY_TOKENS)
    for place, (name, case) in enumerate(FAMILIES.items()):
        if not only or name in only:
            make(name, 1000 + place, case, FAMILY_GREEDY_TOKENS)


# The checkpoints in f32, in which nothing is rounded, and how they are asked.
ASKED = ["llama-f32-gqa1", "qwen2-f32-tied-sharded", "qwen3-f32-untied-gqa8"]
ASKED_PROMPT_TOKENS = 12
ASKED_TOKENS = 24
# Repetition, presence, frequency.
PENALTIES = [(1.3, 0.0, 0.0), (0.8, 0.0, 0.0), (1.0, 1.5, 0.0), (1.0, 0.0, 0.7), (1.0, -0.5, 0.0), (1.15, 0.4, 0.3)]
ALTERNATIVES = 4
# Width, length penalty, early stopping, end tokens.
BEAMS = [
    (2, 1.0, False, 0), (3, 1.0, False, 1), (4, 0.0, True, 2), (4, 2.0, "never", 2), (5, -1.0, "never", 1),
    (8, 0.6, False, 3), (6, 1.0, True, 3), (10, 1.5, False, 2),
]


@torch.no_grad()
def next_logits(model, sequence):
    return model(torch.tensor([sequence]), logits_to_keep=1).logits[0, -1]


def penalized(model, prompt, repetition, presence, frequency):
    """Greedy tokens. Repetition by transformers' own class, the others by the definition of the OpenAI API."""
    processor = RepetitionPenaltyLogitsProcessor(penalty=repetition)
    sequence = list(prompt)
    for _ in range(ASKED_TOKENS):
        logits = processor(torch.tensor([sequence]), next_logits(model, sequence)[None])[0]
        counts = torch.bincount(torch.tensor(sequence[len(prompt) :], dtype=torch.int64), minlength=len(logits))
        sequence.append(int((logits - presence * (counts > 0) - frequency * counts).argmax()))
    return sequence[len(prompt) :]


def ranked(logits, token):
    logprobs = logits.log_softmax(-1)
    top = logprobs.topk(ALTERNATIVES)
    return {
        "logprob": round(logprobs[token].item(), 6),
        "top_tokens": top.indices.tolist(),
        "top_logprobs": [round(value, 6) for value in top.values.tolist()],
    }


@torch.no_grad()
def beam_search(model, prompt, width, length_penalty, early_stopping, end_tokens):
    inputs = torch.tensor([prompt])
    found = model.generate(
        inputs, attention_mask=torch.ones_like(inputs), num_beams=width, num_return_sequences=width, do_sample=False,
        length_penalty=length_penalty, early_stopping=early_stopping, max_new_tokens=ASKED_TOKENS,
        eos_token_id=end_tokens or None, pad_token_id=-1, return_dict_in_generate=True, output_scores=True,
    )
    answers = []
    for sequence, score in zip(found.sequences[:, len(prompt) :].tolist(), found.sequences_scores.tolist()):
        # What comes after an end token only fills the row.
        ends = [i + 1 for i, token in enumerate(sequence) if token in end_tokens] or [len(sequence)]
        answers.append({"tokens": sequence[: ends[0]], "score": round(score, 6)})
    return answers


def asked():
    """Writes asked.json."""
    found = {"penalties": [], "logprobs": [], "beams": []}
    for name in ASKED:
        model = AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float32, attn_implementation="eager").eval()
        model.generation_config.eos_token_id = None
        with safe_open(HERE / name / "reference.safetensors", "pt") as reference:
            prompt = reference.get_tensor("prompt")[:ASKED_PROMPT_TOKENS].tolist()
        for repetition, presence, frequency in PENALTIES:
            found["penalties"].append({
                "model": name, "prompt": prompt, "repetition": repetition, "presence": presence, "frequency": frequency,
                "tokens": penalized(model, prompt, repetition, presence, frequency),
            })
        with torch.no_grad():
            greedy = penalized(model, prompt, 1.0, 0.0, 0.0)
            logits = model(torch.tensor([prompt + greedy])).logits[0]
        scored = [ranked(row, token) for row, token in zip(logits, (prompt + greedy)[1:])]
        found["logprobs"].append({
            "model": name, "prompt": prompt, "tokens": greedy, "alternatives": ALTERNATIVES,
            "of_prompt": scored[: len(prompt) - 1], "of_tokens": scored[len(prompt) - 1 :],
        })
        # Tokens that the best beams come upon end them, each at another place.
        free = beam_search(model, prompt, 4, 1.0, False, [])
        met = [token for token in dict.fromkeys(free[0]["tokens"][3:] + free[1]["tokens"][3:])]
        for width, length_penalty, early_stopping, ends in BEAMS:
            end_tokens = sorted(met[1 : 1 + 3 * ends : 3])
            found["beams"].append({
                "model": name, "prompt": prompt, "width": width, "length_penalty": length_penalty,
                "early_stopping": str(early_stopping), "end_tokens": end_tokens, "max_tokens": ASKED_TOKENS,
                "answers": beam_search(model, prompt, width, length_penalty, early_stopping, end_tokens),
            })
    # A line for each entry.
    parts = [f'"{part}": [\n' + ",\n".join(json.dumps(entry) for entry in entries) + "\n]" for part, entries in found.items()]
    (HERE / "asked.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


@torch.no_grad()
def bf16_apart(folder, sequence, logits):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").cuda().eval()
    apart = []
    for step, wanted in enumerate(logits):
        known = sequence[: LARGE_PROMPT_TOKENS + step]
        row = model(torch.tensor([known], device="cuda"), logits_to_keep=1).logits[0, -1].float().cpu()
        apart.append((row - wanted).norm() / wanted.norm())
    return torch.stack(apart)


def make_large(folder):
    generator = torch.Generator().manual_seed(0)
    changes = dict(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=4096, tie_word_embeddings=True,
    )
    config = AutoConfig.for_model("qwen3", **{**BASE, **changes})
    state = {k: v.to(torch.bfloat16) for k, v in weights(config, generator).items()}
    write_folder(folder, config, state, "bfloat16")
    prompt, tokens, logits = reference(folder, config.vocab_size, generator, LARGE_PROMPT_TOKENS, "cuda")
    apart = bf16_apart(folder, prompt.tolist() + tokens.tolist(), logits)
    save_file(
        {"prompt": prompt.int(), "tokens": tokens.int(), "logits": logits.contiguous(), "bf16_apart": apart},
        folder / "reference.safetensors",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--large"]:
        make_large(pathlib.Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--asked"]:
        asked()
    elif sys.argv[1:] == ["--embeddings"]:
        embeddings()
    elif sys.argv[1:2] == ["--case"]:
        main(sys.argv[2:])
    else:
        main()
        asked()
