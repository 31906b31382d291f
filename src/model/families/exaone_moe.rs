//! EXAONE with experts: the attention of EXAONE 4 behind norms, MLPs in some layers, and in the others mixtures of experts as in GLM-4.5.

use super::{Family, exaone4, glm4_moe, glm4_moe_lite};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertNames, Names};
use crate::spec::{Bias, DecoderSpec, FeedForward};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "K-EXAONE-236B-A23B",
    classes: &["ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"],
    model_type: "exaone_moe",
    defaults: || {
        json!({
            "rms_norm_eps": 1e-5, "sliding_window": 4096, "num_key_value_heads": 32, "num_experts": 64,
            "num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024, "norm_topk_prob": true,
            "routed_scaling_factor": 2.5
        })
    },
    // What holds for all of these models, and the layers that predict further tokens.
    ignores: &["is_moe_layer", "num_nextn_predict_layers", "scoring_func", "topk_method"],
    names: &Names {
        experts: ExpertNames { correction: "mlp.e_score_correction_bias", ..glm4_moe::NAMES.experts },
        ..glm4_moe::NAMES
    },
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let layer = |attention| standard.layer(attention, standard.mlp(Bias::None));
    let layers = exaone4::attentions(fields, &standard)?.into_iter().map(layer).collect();
    let sparse = glm4_moe_lite::sparse_layers(fields, standard.layers)?;
    let experts = glm4_moe::experts(fields, &standard, ["num_experts", "num_shared_experts"])?;
    let layers = mixture::with_experts(layers, &sparse, &FeedForward::Experts(experts));
    Ok(standard.decoder_of(layers))
}
