//! Gemma: scaled embeddings, norms whose weights are stored less one, and gates with the approximation of a gelu.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::spec::{Activation, Bias, DecoderSpec, Mlp, MlpForm, SelfAttention};
use crate::standard::{Standard, embedding_scale};
use base::error::{Error, Result};
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Gemma 2B and 7B, CodeGemma",
    classes: &["GemmaForCausalLM"],
    model_type: "gemma",
    defaults: || {
        json!({
            "head_dim": 256, "num_key_value_heads": 16, "tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh"
        })
    },
    ignores: &["hidden_activation"],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?.with_norms_plus_one();
    // The first files name the exact one, and mean the approximation.
    let form = match fields.text("hidden_act")? {
        None | Some("gelu" | "gelu_pytorch_tanh") => MlpForm::gated(Activation::GeluTanh),
        Some(other) => {
            let (value, supported) = (format!("{other:.60}"), "gelu or gelu_pytorch_tanh");
            return Err(Error::UnsupportedModel { setting: "hidden_act", value, supported });
        }
    };
    let bias = fields.bias("attention_bias")?;
    let attention = standard.attention(standard.shared_width());
    let attention = SelfAttention { qkv_bias: bias, output_bias: bias, ..attention };
    let mlp = Mlp { form, ..standard.mlp(Bias::None) };
    let embedding_scale = embedding_scale(fields, standard.hidden)?;
    Ok(DecoderSpec { embedding_scale, ..standard.decoder(attention, mlp) })
}
