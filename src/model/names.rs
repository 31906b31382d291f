//! What are the tensors of a decoder called in a file?
//!
//! One table for each kind of file: the decoder asks by part and never spells a name. Names are without `.weight` and
//! `.bias`, which the loader adds.

/// The names of a decoder's tensors.
#[derive(Debug)]
pub struct Names {
    /// Stands before every name but the head's. A checkpoint of the bare decoder leaves it out.
    pub prefix: &'static str,
    /// The embedding table.
    pub embedding: &'static str,
    /// Stands before the number of a layer.
    pub layers: &'static str,
    /// The norms around the mixer of a layer.
    pub mixer_norms: NormNames,
    /// The attention of a layer.
    pub attention: AttentionNames,
    /// The norms around the feed-forward part of a layer.
    pub feed_forward_norms: NormNames,
    /// The MLP of a layer.
    pub mlp: MlpNames,
    /// The norm before the head.
    pub final_norm: &'static str,
    /// The head.
    pub head: &'static str,
}

/// The norms around a sublayer, behind the number of its layer. Empty where no model has one.
#[derive(Debug)]
pub struct NormNames {
    /// Of what the sublayer reads.
    pub before: &'static str,
    /// Of what it adds to the stream.
    pub after: &'static str,
}

/// The parts of attention, behind the number of its layer.
#[derive(Debug)]
pub struct AttentionNames {
    /// Projection to queries.
    pub query: &'static str,
    /// Projection to keys.
    pub key: &'static str,
    /// Projection to values.
    pub value: &'static str,
    /// Projection out of attention.
    pub output: &'static str,
    /// Norm of queries.
    pub query_norm: &'static str,
    /// Norm of keys.
    pub key_norm: &'static str,
}

/// The parts of a gated MLP, behind the number of its layer.
#[derive(Debug)]
pub struct MlpNames {
    /// The projection that goes through the activation.
    pub gate: &'static str,
    /// The projection beside it.
    pub up: &'static str,
    /// The projection back.
    pub down: &'static str,
}

/// Llama's names in transformers, which most families share.
pub const LLAMA: Names = Names {
    prefix: "model.",
    embedding: "embed_tokens",
    layers: "layers.",
    mixer_norms: NormNames { before: "input_layernorm", after: "" },
    attention: AttentionNames {
        query: "self_attn.q_proj",
        key: "self_attn.k_proj",
        value: "self_attn.v_proj",
        output: "self_attn.o_proj",
        query_norm: "self_attn.q_norm",
        key_norm: "self_attn.k_norm",
    },
    feed_forward_norms: NormNames { before: "post_attention_layernorm", after: "" },
    mlp: MlpNames { gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj" },
    final_norm: "norm",
    head: "lm_head",
};

impl Names {
    /// The name of `part` of layer `index`.
    pub fn in_layer(&self, index: usize, part: &str) -> String {
        format!("{}{index}.{part}", self.layers)
    }
}
