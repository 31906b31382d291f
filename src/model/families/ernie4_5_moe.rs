//! ERNIE 4.5 with experts: as ERNIE 4.5, with a mixture of experts in the place of the MLP of some layers. Experts are chosen by a softmax and a correction
//! of it, beside one that computes all tokens.

use super::{Family, ernie4_5, glm4_moe};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertNames, LLAMA, Names};
use crate::spec::{Bias, Correction, DecoderSpec, Experts, FeedForward, Logits, Mlp, Router, SharedExpert, SharedGate};
use crate::standard::Standard;
use base::error::{Error, Result};
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "ERNIE 4.5 with experts",
    classes: &["Ernie4_5_MoeForCausalLM"],
    model_type: "ernie4_5_moe",
    defaults: || {
        json!({
            "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": true,
            "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_shared_experts": 2,
            "moe_norm_min": 1e-12
        })
    },
    // Of training, and of how another program runs it.
    ignores: &["moe_capacity", "moe_gate", "moe_use_aux_free", "num_nextn_predict_layers"],
    names: &NAMES,
    spec,
};

const NAMES: Names = Names {
    experts: ExpertNames {
        correction: "mlp.moe_statics.e_score_correction_bias",
        shared: glm4_moe::SHARED,
        shared_gate: "",
        ..LLAMA.experts
    },
    ..LLAMA
};

/// The greatest sum of weights below which they are not divided by it, which no token reaches.
const NORM_MIN: f64 = 1e-6;

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?.with_neighbours();
    let bias = fields.bias("use_bias")?;
    let (attention, mlp) = (ernie4_5::attention(fields, &standard)?, standard.mlp(bias));
    let least = fields.positive("moe_norm_min")?;
    if least > NORM_MIN {
        let value = least.to_string();
        return Err(Error::UnsupportedModel { setting: "moe_norm_min", value, supported: "at most 1e-6" });
    }
    let router = Router { norm: Some(0.0), ..mixture::router_of(fields, &["moe_num_experts"], "moe_k")? };
    let width = fields.count("moe_intermediate_size")?;
    let of_shared =
        |count: usize| SharedExpert { mlp: Mlp { width: count * width, ..mlp.clone() }, gate: SharedGate::None };
    let experts = Experts {
        router,
        correction: Correction::Stored,
        logits: Logits::PLAIN,
        latent: None,
        // Alone of all, the experts that are chosen have no biases.
        expert: Mlp { width, ..standard.mlp(Bias::None) },
        shared: shared_experts(fields)?.map(of_shared),
    };
    let sparse = sparse_layers(fields, standard.layers)?;
    let layer = standard.layer(attention, mlp.clone());
    let layers = mixture::with_experts(vec![layer; standard.layers], &sparse, &FeedForward::Experts(experts));
    Ok(standard.decoder_of(layers))
}

/// How many experts, one beside the other, compute all tokens.
fn shared_experts(fields: Fields) -> Result<Option<usize>> {
    const NAME: &str = "moe_num_shared_experts";
    match fields.get(NAME).and_then(Value::as_u64) {
        Some(0) => Ok(None),
        _ => fields.count_or_none(NAME),
    }
}

/// Which layers have experts: every `moe_layer_interval`-th from the first to the last that may.
fn sparse_layers(fields: Fields, layers: usize) -> Result<Vec<bool>> {
    let interval = fields.count_or_none("moe_layer_interval")?.unwrap_or(1);
    let first = mixture::first_dense_layers(fields, "moe_layer_start_index", 1, layers)?;
    const LAST: &str = "moe_layer_end_index";
    let last = match fields.get(LAST).map(Value::as_i64) {
        None | Some(Some(-1)) => layers,
        Some(Some(last @ 0..)) => last as usize,
        Some(_) => return Err(fields.refuse(format!("{LAST} must be the number of a layer, or -1"))),
    };
    Ok((0..layers).map(|layer| (layer + 1).is_multiple_of(interval) && layer >= first && layer <= last).collect())
}
