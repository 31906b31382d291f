//! Llama 2 and 3: the standard decoder, whose biases the config may switch on.

use super::{Family, no_defaults};
use crate::fields::Fields;
use crate::names::{self, Names};
use crate::spec::{Activation, Curve, DecoderSpec, Mlp, MlpForm, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Llama 2, 3, 3.1, 3.2, 3.3; SmolLM2; DeepSeek-R1-Distill-Llama",
    classes: &["LlamaForCausalLM"],
    model_type: "llama",
    defaults: no_defaults,
    ignores: &[],
    names: &names::LLAMA,
    spec: |fields| decoder(fields, MlpForm::gated(Activation::Silu)),
};

/// With MLPs without gates.
pub const ARCEE: Family = Family {
    models: "Arcee AFM-4.5B",
    classes: &["ArceeForCausalLM"],
    model_type: "arcee",
    defaults: || json!({"rms_norm_eps": 1e-5, "hidden_act": "relu2"}),
    names: &Names { mlp: names::UNGATED_MLP, ..names::LLAMA },
    spec: |fields| {
        fields.must_say("hidden_act", "relu2")?;
        decoder(fields, MlpForm::Ungated(Curve::ReluSquared))
    },
    ..FAMILY
};

fn decoder(fields: Fields, form: MlpForm) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let bias = fields.bias("attention_bias")?;
    let attention = SelfAttention { qkv_bias: bias, output_bias: bias, ..standard.attention(standard.shared_width()) };
    let mlp = Mlp { form, ..standard.mlp(fields.bias("mlp_bias")?) };
    Ok(standard.decoder(attention, mlp))
}
