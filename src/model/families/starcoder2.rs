//! StarCoder2: layer norms with biases, an MLP without a gate, and biases of all projections.

use super::Family;
use crate::fields::Fields;
use crate::names::{GateUpNames, LLAMA, MlpNames, Names};
use crate::spec::{DecoderSpec, Mlp, MlpForm, Norm, NormKind, SelfAttention, SublayerNorms};
use crate::standard::{Standard, curve};
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "StarCoder2 3B, 7B and 15B",
    classes: &["Starcoder2ForCausalLM"],
    model_type: "starcoder2",
    defaults: || {
        json!({
            "num_key_value_heads": 2, "norm_epsilon": 1e-5, "use_bias": true, "tie_word_embeddings": true,
            "hidden_act": "gelu_pytorch_tanh"
        })
    },
    // Of training. The shapes of tensors say the last two.
    ignores: &["embedding_dropout", "mlp_type", "norm_type"],
    names: &Names {
        mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "mlp.c_fc" }, down: "mlp.c_proj" },
        ..LLAMA
    },
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let norm = Norm { kind: NormKind::LayerBiased, eps: fields.factor("norm_epsilon")?, ..standard.norm };
    let bias = fields.bias("use_bias")?;
    let attention = standard.attention(standard.shared_width());
    let scores = AttentionSpec { window: fields.count_or_none("sliding_window")?, ..attention.scores };
    let attention = SelfAttention { scores, qkv_bias: bias, output_bias: bias, ..attention };
    let mlp = standard.mlp(bias);
    let form = curve(fields, "hidden_act")?.map_or(mlp.form, MlpForm::Ungated);
    let layer = standard.layer(attention, Mlp { form, ..mlp }).with_norms(SublayerNorms::before(norm));
    let layers = vec![layer; standard.layers];
    Ok(DecoderSpec { final_norm: Some(norm), ..standard.decoder_of(layers) })
}
