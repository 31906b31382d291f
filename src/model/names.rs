//! What are the tensors of a decoder called in a file?
//!
//! One table for each kind of file: the decoder asks by part and never spells a name. Names are without `.weight` and
//! `.bias`, which the loader adds.

/// The names of a decoder's tensors.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The embedding table.
    pub embedding: &'static str,
    /// What is added to its rows, and the norm of the sum.
    pub added: AddedNames,
    /// Stands before the number of a layer.
    pub layers: &'static str,
    /// The norms around the mixer of a layer.
    pub mixer_norms: NormNames,
    /// The attention of a layer.
    pub attention: AttentionNames,
    /// The gated delta rule of a layer.
    pub delta: DeltaNames,
    /// The gated short convolution of a layer.
    pub short_conv: ConvNames,
    /// The selective scan of a layer.
    pub scan: ScanNames,
    /// The norms around the feed-forward part of a layer.
    pub feed_forward_norms: NormNames,
    /// The norms around the MLP and around the mixture of experts of a layer that has both in one sublayer.
    pub branch_norms: BranchNorms,
    /// The MLP of a layer.
    pub mlp: MlpNames,
    /// What layers get besides the stream.
    pub layer_inputs: LayerInputNames,
    /// The mixture of experts of a layer.
    pub experts: ExpertNames,
    /// The factor of the stream behind a layer, behind the number of the layer. Empty where no model has one.
    pub stream_scale: &'static str,
    /// The norm before the head.
    pub final_norm: &'static str,
    /// The head.
    pub head: &'static str,
}

/// The norms around a sublayer, behind the number of its layer. Empty where no model has one.
#[derive(Clone, Copy, Debug)]
pub struct NormNames {
    /// Of what the sublayer reads.
    pub before: &'static str,
    /// Of what it adds to the stream, or of the stream behind it.
    pub after: &'static str,
}

/// The norms around the branches of a sublayer, behind the number of its layer. Empty where no model has one.
#[derive(Clone, Copy, Debug)]
pub struct BranchNorms {
    /// Around the MLP.
    pub dense: NormNames,
    /// Around the mixture of experts.
    pub experts: NormNames,
}

impl BranchNorms {
    /// Of decoders without them.
    pub const NONE: BranchNorms =
        BranchNorms { dense: NormNames { before: "", after: "" }, experts: NormNames { before: "", after: "" } };
}

/// What is added to the rows of the embedding table, and the norm of the sum. Empty where no model has it.
#[derive(Clone, Copy, Debug)]
pub struct AddedNames {
    /// The table of positions.
    pub positions: &'static str,
    /// The table of types.
    pub types: &'static str,
    /// The norm.
    pub norm: &'static str,
}

impl AddedNames {
    /// Of decoders, whose embeddings are one table.
    pub const NONE: AddedNames = AddedNames { positions: "", types: "", norm: "" };
}

/// The parts of attention, behind the number of its layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionNames {
    /// Projections to queries, keys and values.
    pub qkv: QkvNames,
    /// Projection out of attention.
    pub output: &'static str,
    /// Projection to the gate of what the one before reads. Empty where no model has one.
    pub gate: &'static str,
    /// What projections to queries, keys and values read in models with latent attention.
    pub latent: LatentNames,
    /// Norm of queries.
    pub query_norm: &'static str,
    /// Norm of keys.
    pub key_norm: &'static str,
    /// What joins the softmax of each query head. Empty where no model has it.
    pub sinks: &'static str,
}

/// The projections to queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub enum QkvNames {
    /// One tensor each.
    Separate {
        /// Projection to queries.
        query: &'static str,
        /// Projection to keys.
        key: &'static str,
        /// Projection to values.
        value: &'static str,
    },
    /// One tensor, with the rows of queries, then of keys, then of values.
    Fused(&'static str),
}

/// The latents of attention, behind the number of its layer. Empty where no model has them.
#[derive(Clone, Copy, Debug)]
pub struct LatentNames {
    /// Projection to the latent of queries.
    pub query_down: &'static str,
    /// Its norm.
    pub query_norm: &'static str,
    /// Projection of it to queries.
    pub query_up: &'static str,
    /// Projection of the input to queries, where there is no latent of these.
    pub query: &'static str,
    /// Projection to the latent of keys and values, and then to what is rotated of keys.
    pub down: &'static str,
    /// Norm of the latent.
    pub norm: &'static str,
    /// Projections of it.
    pub up: LatentUpNames,
}

/// The projections of a latent to keys and values.
#[derive(Clone, Copy, Debug)]
pub enum LatentUpNames {
    /// One tensor, with the rows of the key of a head and then of its value, head after head.
    ByHead(&'static str),
    /// Two tensors of a matrix per head, of which that of keys is transposed: `[heads, rank, nope]` and `[heads, value, rank]`. Where a file has not these, it
    /// has the one tensor.
    Separate {
        /// Projection to keys.
        key: &'static str,
        /// Projection to values.
        value: &'static str,
        /// Both.
        both: &'static str,
    },
}

impl LatentNames {
    /// The names of its projections.
    pub fn projections(&self) -> [&'static str; 7] {
        let LatentNames { query_down, query_up, query, down, up, .. } = *self;
        let [first, second, third] = match up {
            LatentUpNames::ByHead(both) => [both; 3],
            LatentUpNames::Separate { key, value, both } => [key, value, both],
        };
        [query_down, query_up, query, down, first, second, third]
    }

    /// Of decoders without them.
    pub const NONE: LatentNames = LatentNames {
        query_down: "",
        query_norm: "",
        query_up: "",
        query: "",
        down: "",
        norm: "",
        up: LatentUpNames::ByHead(""),
    };
}

/// The parts of a gated delta rule, behind the number of its layer. Empty where no model has one.
#[derive(Clone, Copy, Debug)]
pub struct DeltaNames {
    /// The projections into it.
    pub input: DeltaInputNames,
    /// The convolution.
    pub conv: &'static str,
    /// The rates of decay.
    pub rates: RateNames,
    /// What is added to the inputs of the decays, a tensor of this very name.
    pub dt_bias: &'static str,
    /// Norm of the heads.
    pub norm: &'static str,
    /// Projection back.
    pub output: &'static str,
}

/// The projections into a gated delta rule.
#[derive(Clone, Copy, Debug)]
pub enum DeltaInputNames {
    /// Several tensors.
    Separate {
        /// Projection to queries, then keys, then values.
        qkv: &'static str,
        /// Projection to the gates of the norm.
        gate: &'static str,
        /// Projection to the strengths of writing.
        b: &'static str,
        /// Projection to the inputs of the decays.
        a: &'static str,
    },
    /// Three tensors, of which the last has the rows of one key head after those of another.
    Mixed {
        /// Projection to queries, then keys, then values.
        qkv: &'static str,
        /// Projection to the gates of the norm.
        gate: &'static str,
        /// The `b` of the values of a key head, then their `a`.
        ba: &'static str,
    },
    /// Two tensors, each with the rows of one key head after those of another.
    ByKeyHead {
        /// The query and the key of a key head, its values, and their gates.
        qkvz: &'static str,
        /// The `b` of its values, then their `a`.
        ba: &'static str,
    },
}

/// How the rates of decay are stored: in a tensor of this very name.
#[derive(Clone, Copy, Debug)]
pub enum RateNames {
    /// Their logarithms.
    Logarithms(&'static str),
    /// Less than zero.
    Negative(&'static str),
}

/// The parts of a gated short convolution, behind the number of its layer. Empty where no model has one.
#[derive(Clone, Copy, Debug)]
pub struct ConvNames {
    /// Projection to `b`, then `c`, then `x`.
    pub input: &'static str,
    /// The convolution.
    pub conv: &'static str,
    /// Projection back.
    pub output: &'static str,
}

/// The parts of a selective scan, behind the number of its layer. Empty where no model has one.
#[derive(Clone, Copy, Debug)]
pub struct ScanNames {
    /// Projection to the gates, then `x`, then `B`, then `C`, then the steps.
    pub input: &'static str,
    /// The convolution.
    pub conv: &'static str,
    /// The rates of decay.
    pub rates: RateNames,
    /// What is added to the steps, a tensor of this very name.
    pub dt_bias: &'static str,
    /// `D`, a tensor of this very name.
    pub skip: &'static str,
    /// Norm of the groups.
    pub norm: &'static str,
    /// Projection back.
    pub output: &'static str,
}

/// What layers get of a token besides the stream. Empty where no model has it.
#[derive(Clone, Copy, Debug)]
pub struct LayerInputNames {
    /// The table.
    pub table: &'static str,
    /// The projection of the stream.
    pub projection: &'static str,
    /// Norm of what it makes for a layer.
    pub norm: &'static str,
    /// Projection to the gates of a layer, behind its number.
    pub gate: &'static str,
    /// Projection back, behind the number of the layer.
    pub back: &'static str,
    /// The norms around both, behind the number of the layer.
    pub norms: NormNames,
}

impl LayerInputNames {
    /// Of decoders without them.
    pub const NONE: LayerInputNames = LayerInputNames {
        table: "",
        projection: "",
        norm: "",
        gate: "",
        back: "",
        norms: NormNames { before: "", after: "" },
    };
}

impl ConvNames {
    /// Of decoders without such layers.
    pub const NONE: ConvNames = ConvNames { input: "", conv: "", output: "" };
}

impl ScanNames {
    /// Of decoders without such layers.
    pub const NONE: ScanNames = ScanNames {
        input: "",
        conv: "",
        rates: RateNames::Logarithms(""),
        dt_bias: "",
        skip: "",
        norm: "",
        output: "",
    };
}

impl DeltaNames {
    /// Of decoders without such layers.
    pub const NONE: DeltaNames = DeltaNames {
        input: DeltaInputNames::ByKeyHead { qkvz: "", ba: "" },
        conv: "",
        rates: RateNames::Logarithms(""),
        dt_bias: "",
        norm: "",
        output: "",
    };
}

/// The parts of a gated MLP, behind the number of its layer.
#[derive(Clone, Copy, Debug)]
pub struct MlpNames {
    /// The projections into the MLP.
    pub gate_up: GateUpNames,
    /// The projection back.
    pub down: &'static str,
}

/// The parts of a mixture of experts, behind the number of its layer. Empty where no model has one.
#[derive(Clone, Copy, Debug)]
pub struct ExpertNames {
    /// The router.
    pub router: &'static str,
    /// Factors of what it reads, a tensor of this very name.
    pub router_norm: &'static str,
    /// Factors of the weights of experts, a tensor of this very name.
    pub scales: &'static str,
    /// What is added to scores where experts are chosen, a tensor of this very name.
    pub correction: &'static str,
    /// The projections to the latent that experts read, and back. Empty where no model has one.
    pub latent: ExpertLatentNames,
    /// Stands before the number of an expert that has tensors of its own.
    pub before: &'static str,
    /// The tensors of such an expert, behind its number.
    pub each: MlpNames,
    /// The tensors of all experts.
    pub stacked: MlpNames,
    /// The projections into all experts in one tensor, with the rows of the gate first, which a file may have in the place of two. Empty where none has it.
    pub stacked_in: &'static str,
    /// How these are written.
    pub matrices: StackedMatrices,
    /// The expert that computes all tokens.
    pub shared: MlpNames,
    /// The projection to its gate.
    pub shared_gate: &'static str,
}

/// The projections around experts that read a latent.
#[derive(Clone, Copy, Debug)]
pub struct ExpertLatentNames {
    /// To the latent.
    pub down: &'static str,
    /// Back.
    pub up: &'static str,
}

impl ExpertLatentNames {
    /// Of decoders without it.
    pub const NONE: ExpertLatentNames = ExpertLatentNames { down: "", up: "" };
}

/// How the matrices of all experts are written in one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackedMatrices {
    /// `[experts, outputs, inputs]`
    Rows,
    /// `[experts, inputs, outputs]`, or codes with their scales in tensors whose names end so: see [`mxfp4`](crate::quantization::mxfp4).
    Columns,
}

impl MlpNames {
    /// Of decoders without such a part.
    pub const NONE: MlpNames = MlpNames { gate_up: GateUpNames::Fused(""), down: "" };
}

/// The projections into a gated MLP.
#[derive(Clone, Copy, Debug)]
pub enum GateUpNames {
    /// One tensor each.
    Separate {
        /// The projection that goes through the activation.
        gate: &'static str,
        /// The projection beside it.
        up: &'static str,
    },
    /// One tensor, with the rows of the gate first.
    Fused(&'static str),
    /// One tensor, with the rows of the gate last.
    UpFirst(&'static str),
    /// One tensor, with a row of the gate and one beside it by turns.
    Alternating(&'static str),
}

/// Llama's names in transformers, which most families share.
pub const LLAMA: Names = Names {
    embedding: "embed_tokens",
    added: AddedNames::NONE,
    layers: "layers.",
    mixer_norms: NormNames { before: "input_layernorm", after: "" },
    attention: AttentionNames {
        qkv: QkvNames::Separate { query: "self_attn.q_proj", key: "self_attn.k_proj", value: "self_attn.v_proj" },
        output: "self_attn.o_proj",
        gate: "",
        latent: LatentNames::NONE,
        query_norm: "self_attn.q_norm",
        key_norm: "self_attn.k_norm",
        sinks: "",
    },
    delta: DeltaNames::NONE,
    short_conv: ConvNames::NONE,
    scan: ScanNames::NONE,
    feed_forward_norms: NormNames { before: "post_attention_layernorm", after: "" },
    branch_norms: BranchNorms::NONE,
    mlp: MlpNames {
        gate_up: GateUpNames::Separate { gate: "mlp.gate_proj", up: "mlp.up_proj" },
        down: "mlp.down_proj",
    },
    layer_inputs: LayerInputNames::NONE,
    experts: ExpertNames {
        router: "mlp.gate",
        router_norm: "",
        scales: "",
        correction: "mlp.gate.e_score_correction_bias",
        latent: ExpertLatentNames::NONE,
        before: "mlp.experts.",
        each: MlpNames { gate_up: GateUpNames::Separate { gate: "gate_proj", up: "up_proj" }, down: "down_proj" },
        stacked: MlpNames { gate_up: GateUpNames::Fused("mlp.experts.gate_up_proj"), down: "mlp.experts.down_proj" },
        stacked_in: "",
        matrices: StackedMatrices::Rows,
        shared: MlpNames {
            gate_up: GateUpNames::Separate { gate: "mlp.shared_expert.gate_proj", up: "mlp.shared_expert.up_proj" },
            down: "mlp.shared_expert.down_proj",
        },
        shared_gate: "mlp.shared_expert_gate",
    },
    stream_scale: "",
    final_norm: "norm",
    head: "lm_head",
};

/// One projection to queries, keys and values.
pub const FUSED_QKV: QkvNames = QkvNames::Fused("self_attn.qkv_proj");

/// One projection into the MLP.
pub const FUSED_GATE_UP: GateUpNames = GateUpNames::Fused("mlp.gate_up_proj");

/// An MLP without a gate.
pub const UNGATED_MLP: MlpNames =
    MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "mlp.up_proj" }, down: "mlp.down_proj" };

/// OLMo 2's names of norms: the norms after the sublayers alone.
pub const NORMS_AFTER: (NormNames, NormNames) = (
    NormNames { before: "", after: "post_attention_layernorm" },
    NormNames { before: "", after: "post_feedforward_layernorm" },
);

/// Where a decoder is among the tensors of a checkpoint: what stands before its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// Before every name but the head's.
    pub body: &'static str,
    /// Before the name of the head.
    pub head: &'static str,
}

/// Which tensors of a checkpoint a decoder reads.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The names.
    pub names: &'static Names,
    /// Where they may be. The first that has an embedding table is read.
    pub roots: &'static [Root],
    /// Beginnings of the names of tensors that are known and left aside: towers of other modalities, predictors of further tokens.
    pub ignored: &'static [&'static str],
    /// Layers of the decoder, where the file has predictors of further tokens as layers behind them, which are left aside too.
    pub layers: Option<usize>,
}

impl Names {
    /// The name of `part` of layer `index`.
    pub fn in_layer(&self, index: usize, part: &str) -> String {
        format!("{}{index}.{part}", self.layers)
    }

    /// Whether a tensor is that of a router or of the gate of an expert, which are not quantized.
    pub fn is_router(&self, name: &str) -> bool {
        let ExpertNames { router, shared_gate, .. } = self.experts;
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let ends = |part: &str| {
            let number = module.strip_suffix(part).and_then(|before| before.strip_suffix('.'));
            !part.is_empty() && number.is_some_and(|before| before.ends_with(|c: char| c.is_ascii_digit()))
        };
        ends(router) || ends(shared_gate)
    }
}
