//! MiniMax-M2: one norm over all queries of a token and one over all its keys, a rotation of part of each head, and a mixture of experts in the place of
//! each MLP, which are chosen by sigmoids and a correction of them.

use super::{Family, mixtral};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertNames, Names};
use crate::rope::{Rope, RopeDefaults};
use crate::spec::{Bias, Correction, DecoderSpec, Experts, FeedForward, QkNorm, Router, Scores, SelfAttention};
use crate::standard::{Standard, partial_rope_with};
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "MiniMax-M2, M2.1, M2.5",
    classes: &["MiniMaxM2ForCausalLM"],
    model_type: "minimax_m2",
    defaults: || {
        json!({
            "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8,
            "rope_theta": 5000000.0
        })
    },
    // Of other parts of an older class, and of the layers that predict further tokens.
    ignores: &[
        "attn_type_list",
        "layernorm_full_attention_beta",
        "layernorm_linear_attention_beta",
        "layernorm_mlp_beta",
        "mlp_intermediate_size",
        "mtp_transformer_layers",
        "num_mtp_modules",
        "shared_intermediate_size",
        "shared_moe_mode",
        "use_mtp",
    ],
    names: &NAMES,
    spec,
};

const NAMES: Names = Names {
    experts: ExpertNames { correction: "block_sparse_moe.e_score_correction_bias", ..mixtral::NAMES.experts },
    ..mixtral::NAMES
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, vec![rope(fields)?])?;
    fields.must_say("scoring_func", "sigmoid")?;
    fields.must_say("qk_norm_type", "per_layer")?;
    for part in ["use_qk_norm", "use_routing_bias"] {
        fields.must_be(part, true)?;
    }
    let attention = standard.attention(standard.shared_width());
    let attention = SelfAttention { qk_norm: QkNorm::Whole(standard.norm), ..attention };
    let router = mixture::router(fields, &["num_local_experts", "num_experts"])?;
    let router = Router { scores: Scores::Sigmoid, norm: Some(0.0), ..router };
    let expert = standard.mlp(Bias::None);
    let experts = Experts { correction: Correction::Stored, ..Experts::plain(router, expert.clone()) };
    let layer = standard.layer(attention, expert).with_feed_forward(FeedForward::Experts(experts));
    let layers = vec![layer; standard.layers];
    Ok(standard.decoder_of(layers))
}

/// The rotation of the first numbers of each head: as many as `rotary_dim`, unless `partial_rotary_factor` says their share.
fn rope(fields: Fields) -> Result<Rope> {
    let share = match fields.count_or_none("rotary_dim")? {
        Some(count) => count as f64 / fields.count("head_dim")? as f64,
        None => 1.0,
    };
    partial_rope_with(fields, RopeDefaults { rotary_factor: share, ..RopeDefaults::default() })
}
