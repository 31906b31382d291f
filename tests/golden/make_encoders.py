#!/usr/bin/env python3
"""Makes the checkpoints and references of tests/library/encoders.rs.

Each case is a small random encoder in the Hugging Face layout in `encoders/NAME`, or a decoder with the head of a classifier in `classifiers/NAME`
(tests/library/classifiers.rs), and `reference.safetensors` beside it, for texts 0, 1, ...:

    tokens.I  I32 [n]          the text; those of a pair have both texts
    types.I   I32 [n]          which text of a pair each token is of, for models that tell them apart
    states.I  F32 [n, hidden]  the state of each token
    scores.I  F32 [labels]     the logits of a classifier, those of a classifier of tokens [n, labels]

The references are computed by transformers in f32 on the checkpoint's own numbers. Matrices are drawn so that every part matters: with the usual
small weights, a wrong norm or window would pass for rounding. Written with torch 2.15.0 and transformers 5.23.0. Run from anywhere:
`python3 tests/golden/make_encoders.py [--case NAME...]`.
"""

import json
import os
import pathlib
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig
from transformers.utils import logging

logging.disable_progress_bar()

HERE = pathlib.Path(__file__).parent
LENGTHS = [40, 1, 17, 23]

BASE = dict(
    vocab_size=110,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=64,
    pad_token_id=0,
)
BERT = dict(BASE, layer_norm_eps=1e-3, type_vocab_size=2)
ROBERTA = dict(BASE, layer_norm_eps=1e-3, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
MODERN = dict(
    BASE,
    num_hidden_layers=4,
    norm_eps=1e-3,
    local_attention=10,
    bos_token_id=1,
    eos_token_id=2,
    cls_token_id=1,
    sep_token_id=2,
    rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    },
)
NOMIC = dict(
    BASE, layer_norm_eps=1e-3, type_vocab_size=2, rope_parameters={"rope_type": "default", "rope_theta": 700.0}
)
GEMMA = dict(
    BASE,
    num_hidden_layers=4,
    num_key_value_heads=2,
    head_dim=32,
    rms_norm_eps=1e-3,
    sliding_window=10,
    layer_types=["sliding_attention", "full_attention"] * 2,
    query_pre_attn_scalar=40,
    use_bidirectional_attention=True,
    bos_token_id=1,
    eos_token_id=2,
    rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    },
)

# name -> (class, number type, config, what differs in the file's config.json from what transformers writes)
CASES = {
    "bert-f32": ("BertModel", "float32", BERT, {}),
    "bert-bf16-tanh": ("BertForMaskedLM", "bfloat16", dict(BERT, hidden_act="gelu_new", hidden_size=96), {}),
    "bert-f32-classifier": (
        "BertForSequenceClassification",
        "float32",
        dict(BERT, id2label={0: "calm", 1: "glad", 2: "sad"}, label2id={"calm": 0, "glad": 1, "sad": 2}),
        {},
    ),
    "bert-f32-token-classifier": (
        "BertForTokenClassification", "float32",
        dict(BERT, num_hidden_layers=2, id2label={0: "O", 1: "B-PER", 2: "I-PER"}, label2id={"O": 0, "B-PER": 1, "I-PER": 2}), {},
    ),
    "roberta-f32": ("RobertaModel", "float32", ROBERTA, {}),
    "xlm_roberta-bf16-token-classifier": (
        "XLMRobertaForTokenClassification", "bfloat16",
        dict(ROBERTA, num_hidden_layers=2, id2label={0: "O", 1: "X"}, label2id={"O": 0, "X": 1}), {},
    ),
    "xlm_roberta-f32-reranker": (
        "XLMRobertaForSequenceClassification",
        "float32",
        dict(ROBERTA, id2label={0: "LABEL_0"}, label2id={"LABEL_0": 0}),
        {},
    ),
    # No width of it is a multiple of 8.
    "roberta-f32-narrow-classifier": (
        "RobertaForSequenceClassification",
        "float32",
        dict(
            ROBERTA, hidden_size=36, num_attention_heads=6, intermediate_size=28, num_hidden_layers=2,
            id2label={0: "no", 1: "yes", 2: "perhaps"}, label2id={"no": 0, "yes": 1, "perhaps": 2},
        ),
        {},
    ),
    "modernbert-f32": ("ModernBertModel", "float32", MODERN, {}),
    "modernbert-bf16-biased": (
        "ModernBertModel",
        "bfloat16",
        dict(MODERN, norm_bias=True, attention_bias=True, mlp_bias=True, local_attention=7),
        {},
    ),
    "modernbert-f32-classifier": (
        "ModernBertForSequenceClassification",
        "float32",
        dict(MODERN, classifier_pooling="mean", id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}),
        {},
    ),
    "modernbert-f32-token-classifier": (
        "ModernBertForTokenClassification", "float32",
        dict(MODERN, num_hidden_layers=3, id2label={i: f"L{i}" for i in range(9)}, label2id={f"L{i}": i for i in range(9)}), {},
    ),
    "nomic_bert-f32": ("NomicBertModel", "float32", NOMIC, {}),
    "nomic_bert-bf16": ("NomicBertModel", "bfloat16", dict(NOMIC, hidden_size=96, num_attention_heads=3), {}),
    "gte-f32": ("GteModel", "float32", dict(NOMIC, pad_token_id=1), {}),
    "gte-bf16-no-types": (
        "GteForMaskedLM", "bfloat16", dict(NOMIC, pad_token_id=1, type_vocab_size=0, hidden_size=96, num_attention_heads=3), {},
    ),
    "jina_embeddings_v3-f32": ("JinaEmbeddingsV3Model", "float32", dict(NOMIC, pad_token_id=1, type_vocab_size=1), {}),
    "gemma3_text-f32": ("Gemma3TextModel", "float32", GEMMA, {}),
    "gemma3_text-bf16": ("Gemma3TextModel", "bfloat16", dict(GEMMA, sliding_window=7), {}),
}

LLAMA = dict(BASE, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-3, rope_parameters={"rope_type": "default", "rope_theta": 700.0}, bos_token_id=1, eos_token_id=2)
RANKER = dict(id2label={0: "LABEL_0"}, label2id={"LABEL_0": 0})
# As above.
DECODERS = {
    "qwen3-f32-reranker": ("Qwen3ForSequenceClassification", "float32", dict(LLAMA, head_dim=32, tie_word_embeddings=True, **RANKER), {}),
    "qwen2-f32-classifier": (
        "Qwen2ForSequenceClassification", "float32",
        dict(LLAMA, id2label={0: "low", 1: "mid", 2: "high"}, label2id={"low": 0, "mid": 1, "high": 2}), {},
    ),
    "llama-bf16-reranker": ("LlamaForSequenceClassification", "bfloat16", dict(LLAMA, **RANKER), {}),
    "gemma3_text-bf16-reranker": (
        "Gemma3TextForSequenceClassification", "bfloat16", dict(GEMMA, use_bidirectional_attention=False, **RANKER), {},
    ),
}


def fill(model):
    generator = torch.Generator().manual_seed(7)
    for name, weight in model.named_parameters():
        draw = torch.randn(weight.shape, generator=generator)
        if weight.dim() == 1:
            is_factor = name.endswith("weight")
            plus_one = "Gemma" in type(model).__name__
            weight.data = draw * 0.3 + (0.0 if plus_one or not is_factor else 1.0)
        elif "embed" in name.lower():
            weight.data = draw * 0.7
        else:
            weight.data = draw * (1.3 / weight.shape[1] ** 0.5)


def make(name):
    kind, dtype, settings, changes = (CASES | DECODERS)[name]
    folder = HERE / ("classifiers" if name in DECODERS else "encoders") / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**settings)
    torch.manual_seed(0)
    model = model_class(config).eval()
    fill(model)
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    written = json.loads((folder / "config.json").read_text())
    written.update(changes)
    (folder / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    model = model.float()
    tensors = {}
    for index, length in enumerate(LENGTHS):
        generator = torch.Generator().manual_seed(100 + index)
        tokens = torch.randint(3, settings["vocab_size"], (1, length), generator=generator)
        inputs = dict(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        if settings.get("type_vocab_size", 0) > 1:
            # The last text is a pair.
            types = torch.tensor([[int(index == 3 and place >= 9) for place in range(length)]])
            inputs["token_type_ids"] = types
            tensors[f"types.{index}"] = types[0].int()
        with torch.no_grad():
            out = model(**inputs, output_hidden_states=True)
        states = out.last_hidden_state if hasattr(out, "last_hidden_state") else out.hidden_states[-1]
        if kind.startswith("ModernBertFor") or name in DECODERS:
            with torch.no_grad():
                states = model.model(**inputs).last_hidden_state
        tensors[f"tokens.{index}"] = tokens[0].int()
        tensors[f"states.{index}"] = states[0].float().contiguous()
        if "Classification" in kind:
            tensors[f"scores.{index}"] = out.logits[0].float().contiguous()
    save_file(tensors, folder / "reference.safetensors")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(name, size, "bytes", {k: v.abs().mean().item() for k, v in tensors.items() if k.startswith("scores")})


wanted = sys.argv[sys.argv.index("--case") + 1 :] if "--case" in sys.argv else list(CASES | DECODERS)
for case in wanted:
    make(case)
