//! What are the tensors of a decoder called in a GGUF file?
//!
//! `TENSOR_NAMES` and `MODEL_TENSORS` of gguf-py are the source. Any family may have its projections to queries, keys and values in one
//! tensor, if whoever converted the model asked for it.

use crate::names::{AttentionNames, DeltaNames, GateUpNames, Layout, MlpNames, Names, NormNames, QkvNames, Root};

/// The names of a family in both forms of a file.
pub struct GgufNames {
    separate: Names,
    fused: Names,
}

/// Llama's, which most architectures share.
const PLAIN: Names = Names {
    embedding: "token_embd",
    layers: "blk.",
    mixer_norms: NormNames { before: "attn_norm", after: "" },
    attention: AttentionNames {
        qkv: QkvNames::Separate { query: "attn_q", key: "attn_k", value: "attn_v" },
        output: "attn_output",
        gate: "",
        query_norm: "attn_q_norm",
        key_norm: "attn_k_norm",
    },
    delta: DeltaNames::NONE,
    feed_forward_norms: NormNames { before: "ffn_norm", after: "" },
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "ffn_gate", up: "ffn_up" }, down: "ffn_down" },
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
pub static PHI3: GgufNames = GgufNames::of(Names { mlp: FUSED_MLP, ..PLAIN });
pub static GEMMA2: GgufNames = GgufNames::of(NORMS_AROUND);
pub static GEMMA4: GgufNames = GgufNames::of(Names { stream_scale: "layer_output_scale", ..NORMS_AROUND });
pub static MUSE_GLIMMER: GgufNames =
    GgufNames::of(Names { attention: AttentionNames { gate: "attn_gate", ..NORMS_AROUND.attention }, ..NORMS_AROUND });
pub static GLM4: GgufNames = GgufNames::of(Names { mlp: FUSED_MLP, ..NORMS_AROUND });
pub static OLMO2: GgufNames = GgufNames::of(Names {
    mixer_norms: NormNames { before: "", after: "post_attention_norm" },
    feed_forward_norms: NormNames { before: "", after: "post_ffw_norm" },
    ..PLAIN
});
pub static SEED_OSS: GgufNames =
    GgufNames::of(Names { feed_forward_norms: NormNames { before: "post_attention_norm", after: "" }, ..PLAIN });

/// Names have no prefix.
const ROOTS: &[Root] = &[Root { body: "", head: "" }];

/// Factors of frequencies, which [`rope`](super::rope) reads.
const IGNORED: &[&str] = &["rope_freqs.", "rope_factors_long.", "rope_factors_short."];

impl GgufNames {
    const fn of(names: Names) -> GgufNames {
        let attention = AttentionNames { qkv: QkvNames::Fused("attn_qkv"), ..names.attention };
        GgufNames { separate: names, fused: Names { attention, ..names } }
    }

    /// Which tensors of a file a decoder reads. `has` says whether there is a tensor of a name.
    pub fn layout(&'static self, has: impl Fn(&str) -> bool) -> Layout {
        let names = if has("blk.0.attn_qkv.weight") { &self.fused } else { &self.separate };
        Layout { names, roots: ROOTS, ignored: IGNORED }
    }
}
