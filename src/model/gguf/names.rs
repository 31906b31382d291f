//! What are the tensors of a decoder called in a GGUF file?
//!
//! `TENSOR_NAMES` and `MODEL_TENSORS` of gguf-py are the source. Any family may have its projections to queries, keys and values in one
//! tensor, if whoever converted the model asked for it.

use crate::names::{
    AddedNames, AttentionNames, BranchNorms, ConvNames, DeltaInputNames, DeltaNames, ExpertLatentNames, ExpertNames,
    GateUpNames, LatentNames, LatentUpNames, LayerInputNames, Layout, MlpNames, Names, NormNames, QkvNames, RateNames,
    Root, ScanNames, StackedMatrices,
};

/// The names of a family in both forms of a file.
pub struct GgufNames {
    separate: Names,
    fused: Names,
}

/// Llama's, which most architectures share.
const PLAIN: Names = Names {
    embedding: "token_embd",
    added: AddedNames::NONE,
    layers: "blk.",
    mixer_norms: NormNames { before: "attn_norm", after: "" },
    attention: AttentionNames {
        qkv: QkvNames::Separate { query: "attn_q", key: "attn_k", value: "attn_v" },
        output: "attn_output",
        gate: "",
        latent: LatentNames::NONE,
        query_norm: "attn_q_norm",
        key_norm: "attn_k_norm",
        sinks: "",
    },
    delta: DeltaNames::NONE,
    short_conv: ConvNames::NONE,
    scan: ScanNames::NONE,
    feed_forward_norms: NormNames { before: "ffn_norm", after: "" },
    branch_norms: BranchNorms::NONE,
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "ffn_gate", up: "ffn_up" }, down: "ffn_down" },
    layer_inputs: LayerInputNames::NONE,
    experts: ExpertNames {
        router: "ffn_gate_inp",
        router_norm: "",
        scales: "",
        correction: "exp_probs_b.bias",
        latent: ExpertLatentNames { down: "ffn_latent_down", up: "ffn_latent_up" },
        before: "",
        each: MlpNames::NONE,
        stacked_in: "ffn_gate_up_exps",
        matrices: StackedMatrices::Rows,
        stacked: MlpNames {
            gate_up: GateUpNames::Separate { gate: "ffn_gate_exps", up: "ffn_up_exps" },
            down: "ffn_down_exps",
        },
        shared: MlpNames {
            gate_up: GateUpNames::Separate { gate: "ffn_gate_shexp", up: "ffn_up_shexp" },
            down: "ffn_down_shexp",
        },
        shared_gate: "ffn_gate_inp_shexp",
    },
    stream_scale: "",
    final_norm: "output_norm",
    head: "output",
};

/// With norms before and after each sublayer.
const NORMS_AROUND: Names = Names {
    mixer_norms: NormNames { before: "attn_norm", after: "post_attention_norm" },
    feed_forward_norms: NormNames { before: "ffn_norm", after: "post_ffw_norm" },
    ..PLAIN
};

/// One projection into the MLP, with the rows of the gate first.
const FUSED_MLP: MlpNames = MlpNames { gate_up: GateUpNames::Fused("ffn_up"), ..PLAIN.mlp };

pub static LLAMA: GgufNames = GgufNames::of(PLAIN);
pub static GPT_OSS: GgufNames = GgufNames::of(Names {
    attention: AttentionNames { sinks: "attn_sinks", ..PLAIN.attention },
    feed_forward_norms: NormNames { before: "post_attention_norm", after: "" },
    ..PLAIN
});
pub static PHI3: GgufNames = GgufNames::of(Names { mlp: FUSED_MLP, ..PLAIN });
pub static GEMMA2: GgufNames = GgufNames::of(NORMS_AROUND);
pub static GEMMA4: GgufNames = GgufNames::of(Names {
    layer_inputs: LayerInputNames {
        table: "per_layer_token_embd",
        projection: "per_layer_model_proj",
        norm: "per_layer_proj_norm",
        gate: "inp_gate",
        back: "proj",
        norms: NormNames { before: "", after: "post_norm" },
    },
    branch_norms: BranchNorms {
        dense: NormNames { before: "", after: "post_ffw_norm_1" },
        experts: NormNames { before: "pre_ffw_norm_2", after: "post_ffw_norm_2" },
    },
    experts: ExpertNames {
        router_norm: "ffn_gate_inp.scale",
        scales: "ffn_down_exps.scale",
        stacked: MlpNames { gate_up: GateUpNames::Fused("ffn_gate_up_exps"), ..PLAIN.experts.stacked },
        ..PLAIN.experts
    },
    stream_scale: "layer_output_scale",
    ..NORMS_AROUND
});
pub static GLM4: GgufNames = GgufNames::of(Names { mlp: FUSED_MLP, ..NORMS_AROUND });
pub static OLMO2: GgufNames = GgufNames::of(Names {
    mixer_norms: NormNames { before: "", after: "post_attention_norm" },
    feed_forward_norms: NormNames { before: "", after: "post_ffw_norm" },
    ..PLAIN
});
pub static DEEPSEEK2: GgufNames = GgufNames::never_fused(Names {
    attention: AttentionNames {
        latent: LatentNames {
            query_down: "attn_q_a",
            query_norm: "attn_q_a_norm",
            query_up: "attn_q_b",
            query: "attn_q",
            down: "attn_kv_a_mqa",
            norm: "attn_kv_a_norm",
            up: LatentUpNames::Separate { key: "attn_k_b", value: "attn_v_b", both: "attn_kv_b" },
        },
        ..PLAIN.attention
    },
    ..PLAIN
});
/// With an MLP without a gate.
pub static UNGATED: GgufNames = GgufNames::of(Names {
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "ffn_up" }, ..PLAIN.mlp },
    ..PLAIN
});
/// With a gate of what attention computed.
pub static GATED_ATTENTION: GgufNames =
    GgufNames::of(Names { attention: AttentionNames { gate: "attn_gate", ..NORMS_AROUND.attention }, ..NORMS_AROUND });
pub static SEED_OSS: GgufNames =
    GgufNames::of(Names { feed_forward_norms: NormNames { before: "post_attention_norm", after: "" }, ..PLAIN });

/// The names of attention, and the parts of a gated delta rule beside them.
pub static QWEN35: GgufNames = GgufNames::never_fused(Names {
    delta: DeltaNames {
        input: DeltaInputNames::Separate { qkv: "attn_qkv", gate: "attn_gate", b: "ssm_beta", a: "ssm_alpha" },
        conv: "ssm_conv1d",
        rates: RateNames::Negative("ssm_a"),
        dt_bias: "ssm_dt.bias",
        norm: "ssm_norm",
        output: "ssm_out",
    },
    feed_forward_norms: NormNames { before: "post_attention_norm", after: "" },
    ..PLAIN
});
/// Files of before January 2026 have the rows of one key head after those of another in both tensors.
pub static QWEN3_NEXT: GgufNames = GgufNames {
    separate: QWEN35.separate.with_delta(DeltaInputNames::ByKeyHead { qkvz: "ssm_in", ba: "ssm_ba" }),
    fused: QWEN35.separate.with_delta(DeltaInputNames::Mixed { qkv: "attn_qkv", gate: "attn_gate", ba: "ssm_ba" }),
};
pub static LFM2: GgufNames = GgufNames::never_fused(Names {
    short_conv: ConvNames { input: "shortconv.in_proj", conv: "shortconv.conv", output: "shortconv.out_proj" },
    final_norm: "token_embd_norm",
    ..PLAIN
});
pub static GRANITE_HYBRID: GgufNames = GgufNames::never_fused(Names {
    scan: ScanNames {
        input: "ssm_in",
        conv: "ssm_conv1d",
        rates: RateNames::Negative("ssm_a"),
        dt_bias: "ssm_dt.bias",
        skip: "ssm_d",
        norm: "ssm_norm",
        output: "ssm_out",
    },
    ..PLAIN
});

/// One part per layer, behind the norm of attention.
pub static NEMOTRON_H: GgufNames = GgufNames::never_fused(Names {
    scan: GRANITE_HYBRID.separate.scan,
    feed_forward_norms: PLAIN.mixer_norms,
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "ffn_up" }, ..PLAIN.mlp },
    experts: ExpertNames {
        stacked: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "ffn_up_exps" }, ..PLAIN.experts.stacked },
        shared: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "ffn_up_shexp" }, ..PLAIN.experts.shared },
        ..PLAIN.experts
    },
    ..PLAIN
});

/// Norms of the stream behind each part, and no gate.
pub static BERT: GgufNames = GgufNames::of(Names {
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "ffn_up" }, ..PLAIN.mlp },
    ..NOMIC_BERT.separate
});
pub static NOMIC_BERT: GgufNames = GgufNames::of(Names {
    added: AddedNames { positions: "position_embd", types: "token_types", norm: "token_embd_norm" },
    mixer_norms: NormNames { before: "", after: "attn_output_norm" },
    feed_forward_norms: NormNames { before: "", after: "layer_output_norm" },
    ..PLAIN
});
pub static MODERN_BERT: GgufNames =
    GgufNames::of(Names { added: AddedNames { norm: "token_embd_norm", ..AddedNames::NONE }, mlp: FUSED_MLP, ..PLAIN });

impl Names {
    const fn with_delta(self, input: DeltaInputNames) -> Names {
        Names { delta: DeltaNames { input, ..self.delta }, ..self }
    }
}

/// Names have no prefix.
const ROOTS: &[Root] = &[Root { body: "", head: "" }];

/// Factors of frequencies, which [`rope`](super::rope) reads.
const IGNORED: &[&str] = &["rope_freqs.", "rope_factors_long.", "rope_factors_short."];

impl GgufNames {
    const fn of(names: Names) -> GgufNames {
        let attention = AttentionNames { qkv: QkvNames::Fused("attn_qkv"), ..names.attention };
        GgufNames { separate: names, fused: Names { attention, ..names } }
    }

    /// Of a family whose projections to queries, keys and values are never in one tensor: another part has its name, or no conversion asks for it.
    const fn never_fused(names: Names) -> GgufNames {
        GgufNames { separate: names, fused: names }
    }

    /// Which tensors of a file a decoder of `layers` layers reads. `has` says whether there is a tensor of a name.
    pub fn layout(&'static self, layers: usize, has: impl Fn(&str) -> bool) -> Layout {
        let names = if has("blk.0.attn_qkv.weight") { &self.fused } else { &self.separate };
        Layout { names, roots: ROOTS, ignored: IGNORED, layers: Some(layers) }
    }
}
