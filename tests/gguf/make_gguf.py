#!/usr/bin/env python3
"""Makes the files of tests/library/gguf.rs from the checkpoints of tests/golden, with llama.cpp's own conversion.

A case is a checkpoint of tests/golden, whose config.json may be edited first because GGUF cannot express everything that
it says. Two files say what the conversion writes:

    NAME.gguf   the header alone: metadata and the descriptions of the tensors, without their data
    NAME.json   the checkpoint, the edits, and for each tensor how its data follow from the tensors of the checkpoint

The second is found by trying, and compared with the data that the conversion writes: it repeats no weights, so that the files stay
small. The test puts both together again. Cases of encoders lie in the folder encoders, and files that are a vocabulary of tests/golden/text and nothing else
in the folder vocabularies.

Written with llama.cpp 0c1e57098 (the sources of llama-cpp-python 0.3.36), torch 2.15.0, transformers 5.23.0 and sentencepiece 0.2.3:
`python3 tests/gguf/make_gguf.py PATH_OF_LLAMA_CPP [NAME...]`.
"""

import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "golden"
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]

import conversion.base
import gguf
import numpy
import torch
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
from safetensors.torch import load_file
from transformers import AutoConfig

# Gemma's scores are scaled by the width of a head, whatever the config says, the pattern of its windows is fixed, and so is the base of
# the rotation of Gemma and Gemma 2.
GEMMA2 = dict(query_pre_attn_scalar=32, rope_parameters=dict(rope_theta=10000.0))
GEMMA3 = dict(query_pre_attn_scalar=32, layer_types=["sliding_attention"] * 5 + ["full_attention"])

# Layers with a window rotate, and no others. The file does not say the epsilon of the norms after a part.
GLIMMER = dict(
    layer_types=(["sliding_attention"] * 2 + ["full_attention"] * 2) * 2, layer_rope_theta=[20000.0, 20000.0, 0, 0] * 2, post_norm_eps=1e-8,
)

MISTRAL4 = dict(
    rope_parameters=dict(
        rope_type="yarn", rope_theta=50000.0, factor=4.0, original_max_position_embeddings=16, beta_fast=16.0, beta_slow=2.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.0,
    ),
)

# The conversion reads the heads of layers without a window in the fields of published folders.
GEMMA4 = dict(global_head_dim=48, num_global_key_value_heads=1)

FALCON = {f"{name}_multiplier": 1.0 for name in ("embedding", "lm_head", "key", "attention_in", "attention_out", "ssm_in", "ssm_out")}
FALCON |= dict(ssm_multipliers=[1.0] * 5, mlp_multipliers=[1.0] * 2)

# name -> (checkpoint, edits of its config, how the conversion is asked)
CASES = {
    "llama-f32": ("llama-f32-gqa1", {}, {}),
    "llama-f32-llama3": ("llama-f32-llama3", {}, {}),
    "llama-bf16-llama3-tied": ("llama-bf16-llama3-tied", {}, {}),
    "llama-f32-biased": ("llama-f32-linear-biased", {}, {}),
    "llama-f32-fused": ("llama-f32-eps3e-4-mlp-biased", {}, dict(fuse_qkv=True)),
    "llama-f16": ("llama-f16-head64-llama3", {}, {}),
    "mistral-f16": ("mistral-f16-no-window", {}, {}),
    "qwen2-f32": ("qwen2-f32-eps1e-5-theta1e6", {}, {}),
    "qwen2-bf16": ("qwen2-bf16-gqa4", {}, {}),
    "qwen2-f16-tied": ("qwen2-f32-tied-sharded", {}, {}),
    "qwen3-f32-yarn": ("qwen3-f32-yarn", {}, {}),
    "qwen3-bf16-tied": ("qwen3-bf16-tied-gqa2", {}, {}),
    "qwen3-f16-wide": ("qwen3-f16-wide-heads", {}, {}),
    "qwen3-f32-embedding": ("qwen3-f32-embedding", {}, {}),
    "qwen3-f32-fused": ("qwen3-f32-eps3e-4-biased", {}, dict(fuse_qkv=True)),
    "phi3-f32-partial": ("phi3-f32-partial", dict(original_max_position_embeddings=256), {}),
    "phi3-f32-longrope": ("phi3-f32-longrope-long", {}, {}),
    "phi3-f16-longrope-short96": ("phi3-f16-longrope-short96", {}, {}),
    "gemma2-f32": ("gemma2-f32", GEMMA2, {}),
    "gemma2-bf16": ("gemma2-bf16-head64", dict(GEMMA2, query_pre_attn_scalar=64), {}),
    "gemma3-f32": ("gemma3-f32", GEMMA3, {}),
    "gemma3-bf16": ("gemma3-bf16-old-keys", dict(query_pre_attn_scalar=64, sliding_window_pattern=6), {}),
    "mistral3-bf16": ("mistral3-bf16-wrapped-window16", dict(text_config=dict(sliding_window=None)), {}),
    "ministral3-f32": ("ministral3-f32-yarn", {}, {}),
    # The conversion leaves out how queries grow.
    "mistral4-bf16": ("mistral3-bf16-mistral4", dict(text_config=MISTRAL4), {}),
    "smollm3-f32": ("smollm3-f32-no-rope", dict(no_rope_layers=[1, 1, 1, 0]), {}),
    "granite-f32": ("granite-f32", {}, {}),
    "granite-f16": ("granite-f16-tied", {}, {}),
    "granitemoehybrid-f32": ("granitemoehybrid-f32", dict(layer_types=["attention"] * 2, num_experts_per_tok=None), {}),
    "seed_oss-f32": ("seed_oss-f32", {}, {}),
    "seed_oss-bf16": ("seed_oss-bf16-out-bias", {}, {}),
    "ernie4_5-f32": ("ernie4_5-f32", {}, {}),
    "ernie4_5-bf16": ("ernie4_5-bf16-biased", {}, {}),
    "hunyuan-f32": ("hunyuan-f32", {}, {}),
    "hunyuan-bf16-alpha": (
        "hunyuan-bf16-alpha", dict(rope_theta=10000.0, max_position_embeddings=262144), {},
    ),
    "olmo2-f32": ("olmo2-f32", {}, {}),
    "olmo2-f16": ("olmo2-f16", {}, {}),
    "olmo3-f32": ("olmo3-f32", {}, {}),
    "olmo3-bf16": ("olmo3-bf16-old-keys", {}, {}),
    "exaone4-f32": ("exaone4-f32", {}, {}),
    "exaone4-bf16": ("exaone4-bf16-no-window", {}, {}),
    "glm4-f32": ("glm4-f32", {}, {}),
    "glm4-bf16": ("glm4-bf16-no-bias", {}, {}),
    "cohere2-f32": ("cohere2-f32", dict(layer_types=["sliding_attention"] * 3 + ["full_attention"], rotary_pct=1.0), {}),
    "muse_glimmer-f32": ("muse_glimmer-f32", dict(text_config=GLIMMER), {}),
    "gemma4-f32": ("gemma4-f32-keys-are-values", dict(text_config=GEMMA4), {}),
    "gemma4-f32-per-layer": (
        "gemma4-f32-per-layer", dict(text_config=dict(global_head_dim=32, num_global_key_value_heads=1)), {},
    ),
    "gemma4-f32-experts": (
        "gemma4-f32-experts", dict(text_config=GEMMA4), {},
    ),
    # The conversion asks for the field of another class.
    "gemma4-bf16": ("gemma4_unified-bf16-head512", dict(text_config=dict(moe_intermediate_size=None)), {}),
    # The conversion wants a predictor of further tokens, which the folder lacks: the file says so of a layer that it has not.
    "qwen3_5-f32": ("qwen3_5-f32", dict(mtp_num_hidden_layers=1), {}),
    "qwen3_5-bf16": ("qwen3_5-bf16-wrapped", dict(text_config=dict(mtp_num_hidden_layers=1)), {}),
    "lfm2-f32": ("lfm2-f32", {}, {}),
    # It asks for the letters of published folders, and takes any model whose config transformers has completed for one with experts.
    "nemotron_h-f32": ("nemotron_h-f32", dict(hybrid_override_pattern="M-*M-*"), dict(incomplete=True)),
    "nemotron_h-bf16": ("nemotron_h-bf16-biased", {}, dict(incomplete=True)),
    "nemotron_h-f32-experts": ("nemotron_h-f32-experts", dict(hybrid_override_pattern="ME*ME*"), {}),
    "nemotron_h-bf16-latent": ("nemotron_h-bf16-latent", dict(hybrid_override_pattern="EME*"), {}),
    # It multiplies weights by the factors. A field says the width of a head.
    "falcon_h1-f32": ("falcon_h1-f32", dict(FALCON, head_dim=32), {}),
    "falcon_h1-bf16": ("falcon_h1-bf16-gate-first", dict(FALCON, head_dim=32), {}),
    # It knows layers with attention by another name than this version of transformers.
    "granitemoehybrid-f32-mamba": ("granitemoehybrid-f32-mamba", dict(layer_types=["mamba", "attention", "mamba", "mamba"]), {}),
    "granitemoehybrid-bf16-mamba": ("granitemoehybrid-bf16-mamba", dict(layer_types=["mamba", "attention", "mamba"]), {}),
    # Experts: the conversion knows no windows and one epsilon, llama.cpp divides the weights of Qwen's experts and not those of OLMoE.
    "mixtral-f32": ("mixtral-f32-window16", dict(sliding_window=None), {}),
    "mixtral-bf16": ("mixtral-bf16-tied", {}, {}),
    "qwen3_moe-bf16": ("qwen3_moe-bf16-not-normed", dict(norm_topk_prob=True), {}),
    "olmoe-f32": ("olmoe-f32", dict(rms_norm_eps=1e-5), {}),
    "glm4_moe-f32": ("glm4_moe-f32-groups", {}, {}),
    "glm4_moe-bf16": ("glm4_moe-bf16-not-normed", {}, {}),
    # The decoders of models with images.
    "qwen2vl-bf16": ("qwen2_vl-bf16-wrapped", {}, {}),
    "qwen3vl-f32": ("qwen3_vl-f32", {}, {}),
    # llama.cpp has experts in every layer and divides their weights, and the conversion wants a predictor of further tokens.
    "qwen3_next-bf16": ("qwen3_next-bf16-not-normed", dict(norm_topk_prob=True, mtp_num_hidden_layers=1), {}),
    # A flag of the conversion.
    "qwen3_next-bf16-fused": ("qwen3_next-bf16-not-normed", dict(norm_topk_prob=True, mtp_num_hidden_layers=1), dict(fuse_gate_up_exps=True)),
    # Latent attention: the conversion asks for the number of dense layers, and for what scores experts.
    "deepseek2-f32-glm": ("glm4_moe_lite-f32-groups", dict(first_k_dense_replace=2, scoring_func="sigmoid"), {}),
    "deepseek2-bf16-glm": ("glm4_moe_lite-bf16-not-normed", dict(first_k_dense_replace=1, scoring_func="sigmoid"), {}),
    "deepseek2-f32-yarn": ("deepseek_v2-f32-yarn", {}, {}),
    # It knows no head of its own, and divides weights by their sum.
    "lfm2_moe-bf16": ("lfm2_moe-bf16-not-normed", dict(norm_topk_prob=True), {}),
    "ernie4_5_moe-f32": ("ernie4_5_moe-f32", {}, {}),
    "granitemoehybrid-f32-experts": ("granitemoehybrid-f32-experts", dict(layer_types=["mamba", "attention"] * 2), {}),
    "gpt_oss-f32": ("gpt_oss-f32", {}, {}),
    "qwen3_5_moe-f32": ("qwen3_5_moe_text-f32", dict(mtp_num_hidden_layers=1), {}),
    "qwen3_5_moe-bf16": ("qwen3_5_moe-bf16-wrapped", dict(text_config=dict(mtp_num_hidden_layers=1)), {}),
    # llama.cpp does not divide the weights of experts here, and does in MiniMax-M2 and Hunyuan.
    "qwen2_moe-bf16": ("qwen2_moe-bf16-normed", dict(norm_topk_prob=False), {}),
    "granitemoe-f32": ("granitemoe-f32", {}, {}),
    "granitemoe-bf16-shared": ("granitemoeshared-bf16-tied", {}, {}),
    "minimax_m2-bf16": ("minimax_m2-bf16-rotary-dim", {}, {}),
    "dots1-bf16": ("dots1-bf16-not-normed", dict(scoring_func="sigmoid"), {}),
    "exaone_moe-f32": ("exaone_moe-f32", dict(first_k_dense_replace=2, scoring_func="sigmoid"), {}),
    # The class knows no such fields, and llama.cpp multiplies the embeddings.
    "afmoe-f32": ("afmoe-f32", dict(layer_types=["sliding_attention"] * 3 + ["full_attention"], route_norm=True, score_func="sigmoid"), {}),
    # The conversion asks for the fields of published folders.
    "hunyuan_moe-f32": (
        "hunyuan_moe-f32", dict(moe_intermediate_size=[24] * 4, moe_topk=[2] * 4, num_shared_expert=[1] * 4), {},
    ),
    # Older families.
    "arcee-f32": ("arcee-f32", {}, {}),
    "starcoder2-f32": ("starcoder2-f32", dict(sliding_window=None), {}),
    # The file does not say the base of the rotation.
    "stablelm-f32": ("stablelm-f32", dict(rope_parameters=dict(rope_theta=10000.0)), {}),
    "stablelm-bf16": ("stablelm-bf16-parallel", dict(rope_parameters=dict(rope_theta=10000.0)), {}),
    "gemma-f32": ("gemma-f32", dict(rope_parameters=dict(rope_theta=10000.0)), {}),
    "olmo-f32": ("olmo-f32", {}, {}),
    "cohere-f32": ("cohere-f32", {}, {}),
}

# The conversion asks for the fields of published folders, and knows XLM-RoBERTa's tokenizer by this file.
NOMIC = dict(
    n_positions=8192, max_trained_positions=2048, activation_function="swiglu", causal=False, prenorm=False, qkv_proj_bias=False,
    mlp_fc1_bias=False, mlp_fc2_bias=False, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None,
)
WORDS = dict(files={"tokenizer.json": '{"model": {"type": "WordPiece"}}'})

# As above. The conversion does not write the curve of BERT's MLPs, and fixes the scores and windows of EmbeddingGemma.
CASES |= {
    f"encoders/{name}": (f"encoders/{folder}", edits, options)
    for name, (folder, edits, options) in {
        "bert-f32": ("bert-f32", {}, {}),
        "bert-bf16": ("bert-bf16-tanh", dict(hidden_act="gelu"), {}),
        "roberta-f32": ("roberta-f32", {}, {}),
        "xlm_roberta-f32-reranker": ("xlm_roberta-f32-reranker", {}, {}),
        "nomic_bert-f32": ("nomic_bert-f32", NOMIC, WORDS),
        "modernbert-f32": ("modernbert-f32", {}, {}),
        "modernbert-f32-classifier": ("modernbert-f32-classifier", {}, {}),
        "gemma3_text-f32": (
            "gemma3_text-f32", dict(query_pre_attn_scalar=32, layer_types=["sliding_attention"] * 4), {},
        ),
    }.items()
}

# name -> (tokenizer of tests/golden/text, config, tokenizer_config)
XLM = dict(model_type="xlm-roberta", vocab_size=252, pad_token_id=1, type_vocab_size=1, max_position_embeddings=66)
MARKS = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]", unk_token="[UNK]")
VOCABULARIES = {
    "bert": ("bert", dict(architectures=["BertModel"], model_type="bert", vocab_size=400, type_vocab_size=2), dict(MARKS, tokenizer_class="BertTokenizer")),
    "unigram": (
        "unigram", dict(XLM, architectures=["XLMRobertaModel"]),
        dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>"),
    ),
}

TYPES = {"float32": "ALL_F32", "float16": "MOSTLY_F16", "bfloat16": "MOSTLY_BF16"}


def edited(config, edits):
    for name, value in edits.items():
        if isinstance(value, dict) and isinstance(config.get(name), dict):
            edited(config[name], value)
        else:
            config[name] = value
    return config


def convert(folder, out, number_type, options):
    options = dict(options)
    # Without it, the conversion reads config.json as it is.
    conversion.base.AutoConfig = None if options.pop("incomplete", False) else AutoConfig
    with torch.inference_mode():
        hparams = ModelBase.load_hparams(folder, False)
        model_class = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
        # These checkpoints have no tokenizer. Gemma 3 asks it how many rows of the embedding there are.
        rows = hparams.get("text_config", hparams)["vocab_size"]
        for a_class in model_class.__mro__:
            for name in ("set_vocab", "_set_vocab_gpt2"):
                if name in vars(a_class):
                    setattr(a_class, name, lambda self: None)
        model_class._create_vocab_sentencepiece = lambda self: ([b""] * rows, [], [])
        (folder / "tokenizer.model").touch()
        model = model_class(folder, getattr(gguf.LlamaFileType, TYPES[number_type]), out, model_name="a model", **options)
        model.write()


def permuted(weight, heads):
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def tiled(weight, keys, size, first=0):
    """The value heads from row `first` on, each first one of a key head before each second one."""
    heads = weight[first:]
    heads = heads.reshape(keys, heads.shape[0] // keys // size, size, *weight.shape[1:])
    return torch.cat([weight[:first], heads.swapaxes(0, 1).reshape(weight[first:].shape)])


def reordered(tensor, config):
    """A tensor of a gated delta rule in the orders that the conversion may write, each with its name."""
    keys, size = config["linear_num_key_heads"], config["linear_value_head_dim"]
    values = config["linear_num_value_heads"]
    for first, size_of_head in [(tensor.shape[0] - values * size, size), (0, 1)]:
        if first >= 0 and (tensor.shape[0] - first) % (values * size_of_head) == 0:
            yield f"tiled {first} {keys} {size_of_head}", tiled(tensor, keys, size_of_head, first)
    if tensor.ndim == 2 and tensor.shape[1] == values * size:
        yield f"tiled columns {keys} {size}", tiled(tensor.T, keys, size).T


def number_bytes(tensor, kind):
    """What a tensor is in the file."""
    to = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
    return tensor.to(to).contiguous().flatten().view(torch.uint8).numpy().tobytes()


def recipe(name, data, kind, state, config):
    """How the bytes of a tensor follow from the checkpoint."""
    heads = [config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]]
    for source, tensor in state.items():
        if tensor.numel() * {"F32": 4, "F16": 2, "BF16": 2}[kind] == len(data):
            if number_bytes(tensor, kind) == data:
                return dict(rows=[[source, "whole"]])
            if number_bytes(tensor.float() + 1, kind) == data:
                return dict(rows=[[source, "plus one"]])
            for count in heads:
                if tensor.shape[0] % (2 * count) == 0 and number_bytes(permuted(tensor, count), kind) == data:
                    return dict(rows=[[source, f"permuted {count}"]])
            if ".linear_attn." in source:
                for order, other in reordered(tensor, config):
                    if number_bytes(other, kind) == data:
                        return dict(rows=[[source, order]])
        if tensor.shape[0] % 2 == 0 and tensor.numel() * {"F32": 2, "F16": 1, "BF16": 1}[kind] == len(data):
            for half, part in enumerate(tensor.chunk(2)):
                if number_bytes(part, kind) == data:
                    return dict(rows=[[source, ["first half", "second half"][half]]])
    if name == "position_embd.weight":
        for source, tensor in state.items():
            for row in range(1, tensor.shape[0]):
                if number_bytes(tensor[row:], kind) == data:
                    return dict(rows=[[source, f"from row {row}"]])
    if "_exps." in name:
        # One part for each expert, in their order, or a half of each of those that the folder has in one tensor.
        for source, tensor in state.items():
            if ".experts." in source and tensor.ndim > 1:
                # Outputs in columns: all of them, the even or the odd ones. A bias is a matrix of one input.
                matrices = tensor if tensor.ndim == 3 else tensor.unsqueeze(1)
                for first, step in [(0, 1), (0, 2), (1, 2)]:
                    if number_bytes(matrices.transpose(1, 2)[:, first::step], kind) == data:
                        return dict(rows=[[source, f"columns {matrices.shape[1]} {first} {step}"]])
            if tensor.ndim == 3:
                for half, part in enumerate(tensor.chunk(2, dim=1)):
                    if number_bytes(part, kind) == data:
                        return dict(rows=[[source, ["first halves", "second halves"][half]]])
            if ".experts.0." in source:
                experts = [source.replace(".experts.0.", f".experts.{e}.") for e in range(len(state))]
                experts = [expert for expert in experts if expert in state]
                if b"".join(number_bytes(state[expert], kind) for expert in experts) == data:
                    return dict(rows=[[expert, "whole"] for expert in experts])
    if name.endswith(("attn_qkv.weight", "attn_gate.weight")) and "linear_num_key_heads" in config:
        # The folder has the query, the key, the values and the gates of a key head after those of another.
        source = next(s for s in state if s.endswith(f"layers.{name.split('.')[1]}.linear_attn.in_proj_qkvz.weight"))
        keys, key = config["linear_num_key_heads"], config["linear_key_head_dim"]
        values = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
        step, by_head = 2 * (key + values), state[source].reshape(keys, 2 * (key + values), -1)
        parts = [(0, key), (key, key), (2 * key, values)] if "qkv" in name else [(2 * key + values, values)]
        assert b"".join(number_bytes(by_head[:, first:first + count], kind) for first, count in parts) == data, name
        return dict(rows=[[source, f"rows {step} {first} {count}"] for first, count in parts])
    if "ffn_gate_up_exps" in name:
        sources = [[s, s.replace("gate_proj", "up_proj")] for s in state if s.startswith(f"model.layers.{name.split('.')[1]}.mlp.experts.") and "gate_proj" in s]
        sources = [s for pair in sorted(sources, key=lambda pair: int(pair[0].split(".")[5])) for s in pair]
        if sources and b"".join(number_bytes(state[source], kind) for source in sources) == data:
            return dict(rows=[[source, "whole"] for source in sources])
    if name.endswith(("attn_k_b.weight", "attn_v_b.weight")):
        source = next(s for s in state if s.endswith(f"layers.{name.split('.')[1]}.self_attn.kv_b_proj.weight"))
        key, value = config["qk_nope_head_dim"], config["v_head_dim"]
        by_head = state[source].reshape(heads[0], key + value, -1)
        if number_bytes(by_head[:, :key].transpose(1, 2), kind) == data:
            return dict(rows=[[source, f"turned {key + value} 0 {key}"]])
        assert number_bytes(by_head[:, key:], kind) == data, name
        return dict(rows=[[source, f"rows {key + value} {key} {value}"]])
    if ".attn_qkv." in name and "linear_num_key_heads" not in config:
        layer, ending = name.split(".")[1], name.split(".")[-1]
        parts = []
        for part, count in zip("qkv", [heads[0], heads[1], 0]):
            source = next(s for s in state if s.endswith(f"layers.{layer}.self_attn.{part}_proj.{ending}"))
            whole, turned = state[source], permuted(state[source], count) if count else None
            if number_bytes(whole, kind) in data:
                parts.append([source, "whole"])
            else:
                assert number_bytes(turned, kind) in data, name
                parts.append([source, f"permuted {count}"])
        return dict(rows=parts)
    assert kind == "F32" and len(data) <= 1024, f"{name} comes from nowhere"
    return dict(numbers=[float(number) for number in numpy.frombuffer(data, "<f4")])


def make(name, folder, edits, options):
    config = edited(json.loads((GOLDEN / folder / "config.json").read_text()), edits)
    text = config.get("text_config", config)
    state = {}
    for file in sorted((GOLDEN / folder).glob("model*.safetensors")):
        state.update(load_file(file))
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        copy = scratch / "model"
        shutil.copytree(GOLDEN / folder, copy, ignore=lambda _, names: [n for n in names if n[:3] in ("ref", "emb")])
        (copy / "config.json").write_text(json.dumps(config))
        options = dict(options)
        for file, content in options.pop("files", {}).items():
            (copy / file).write_text(content)
        kind = name.split("-")[1]
        number_type = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[kind]
        convert(copy, scratch / "out.gguf", number_type, options)
        reader = gguf.GGUFReader(scratch / "out.gguf")
        tensors = [
            dict(
                name=tensor.name, offset=int(tensor.data_offset) - int(reader.data_offset), type=tensor.tensor_type.name,
                **recipe(tensor.name, tensor.data.tobytes(), tensor.tensor_type.name, state, text),
            )
            for tensor in reader.tensors
        ]
        (HERE / f"{name}.gguf").write_bytes((scratch / "out.gguf").read_bytes()[: int(reader.data_offset)])
    written = ",\n".join("  " + json.dumps(tensor) for tensor in tensors)
    (HERE / f"{name}.json").write_text(
        f'{{"folder": {json.dumps(folder)}, "config": {json.dumps(edits)}, "tensors": [\n{written}\n]}}\n'
    )


def vocabulary(name):
    folder, config, tokenizer_config = VOCABULARIES[name]
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch) / "model"
        shutil.copytree(GOLDEN / "text" / folder, copy)
        sizes = dict(num_hidden_layers=1, hidden_size=8, num_attention_heads=1, intermediate_size=8, layer_norm_eps=1e-5)
        (copy / "config.json").write_text(json.dumps(dict(sizes, **config)))
        (copy / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
        model_class = get_model_class(config["architectures"][0])
        model_class.get_vocab_base_pre = lambda self, tokenizer: "default"
        model = model_class(copy, gguf.LlamaFileType.ALL_F32, HERE / "vocabularies" / f"{name}.gguf", model_name="a model")
        model.set_vocab()
        model.gguf_writer.write_header_to_file(HERE / "vocabularies" / f"{name}.gguf")
        model.gguf_writer.write_kv_data_to_file()
        model.gguf_writer.close()


# Before the conversions of models, which have no tokenizer.
for name in VOCABULARIES:
    if not sys.argv[2:] or f"vocabularies/{name}" in sys.argv[2:]:
        vocabulary(name)

for name, (folder, edits, options) in CASES.items():
    if not sys.argv[2:] or name in sys.argv[2:]:
        try:
            make(name, folder, edits, options)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            if sys.argv[2:]:
                raise
