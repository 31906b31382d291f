//! What becomes of the keys of a GGUF file that nothing translates?
//!
//! As in [`settings`] of a config.json: those that change what is computed are refused unless they have no effect, those that are known
//! to have none are passed over, and the others are named in a warning.

use crate::fields::Fields;
use crate::settings::{self, Neutral};
use base::error::Result;
use std::path::Path;

const SETTINGS: &[(&str, Neutral)] = &[
    // Which tokens attend to which.
    ("attention.causal", Neutral::True),
    ("attention.sliding_window", Neutral::AtMostZero),
    ("attention.sliding_window_pattern", Neutral::Absence),
    ("attention.rope_pattern", Neutral::Absence),
    ("attention.shared_kv_layers", Neutral::AtMostZero),
    ("attention.recurrent_layers", Neutral::Absence),
    // Scores.
    ("attention.scale", Neutral::AtMostZero),
    ("attention.output_scale", Neutral::AtMostZero),
    ("attention.value_scale", Neutral::AtMostZero),
    ("attention.temperature_length", Neutral::AtMostZero),
    ("attention.temperature_scale", Neutral::AtMostZero),
    ("attention.max_alibi_bias", Neutral::AtMostZero),
    ("attention.clamp_kqv", Neutral::AtMostZero),
    ("attn_logit_softcapping", Neutral::AtMostZero),
    ("router_logit_softcapping", Neutral::AtMostZero),
    // Other widths of heads.
    ("attention.key_length_swa", Neutral::Absence),
    ("attention.value_length_swa", Neutral::Absence),
    ("attention.key_length_mla", Neutral::Absence),
    ("attention.value_length_mla", Neutral::Absence),
    ("attention.q_lora_rank", Neutral::AtMostZero),
    ("attention.kv_lora_rank", Neutral::AtMostZero),
    // Factors.
    ("embedding_scale", Neutral::One),
    ("residual_scale", Neutral::One),
    ("logit_scale", Neutral::One),
    // Positions.
    ("rope.dimension_count_swa", Neutral::Absence),
    ("rope.dimension_sections", Neutral::Absence),
    ("rope.freq_base_swa", Neutral::Absence),
    ("rope.scaling.alpha", Neutral::AtMostZero),
    ("rope.scaling.yarn_ext_factor", Neutral::One),
    ("rope.scaling.yarn_log_multiplier", Neutral::AtMostZero),
    // Parts that a dense decoder has not.
    ("moe_every_n_layers", Neutral::AtMostZero),
    ("expert_count", Neutral::AtMostOne),
    ("expert_used_count", Neutral::AtMostOne),
    ("expert_shared_feed_forward_length", Neutral::AtMostZero),
    ("expert_feed_forward_length", Neutral::AtMostZero),
    ("expert_shared_count", Neutral::AtMostZero),
    ("expert_group_count", Neutral::AtMostOne),
    ("expert_group_used_count", Neutral::AtMostOne),
    ("expert_gating_func", Neutral::AtMostOne),
    ("expert_weights_scale", Neutral::One),
    ("moe_latent_size", Neutral::AtMostZero),
    ("leading_dense_block_count", Neutral::AtMostZero),
    ("interleave_moe_layer_step", Neutral::AtMostOne),
    ("nextn_predict_layers", Neutral::AtMostZero),
    ("n_deepstack_layers", Neutral::AtMostZero),
    ("embedding_length_out", Neutral::Absence),
    ("embedding_length_per_layer_input", Neutral::AtMostZero),
    ("ssm.conv_kernel", Neutral::AtMostZero),
    ("ssm.inner_size", Neutral::AtMostZero),
    ("ssm.state_size", Neutral::AtMostZero),
    ("ssm.time_step_rank", Neutral::AtMostZero),
    ("ssm.group_count", Neutral::AtMostZero),
    ("shortconv.l_cache", Neutral::AtMostZero),
    // The order of the parts of a layer.
    ("use_parallel_residual", Neutral::False),
    ("swin_norm", Neutral::False),
];

/// Keys that change nothing in any of the families.
const HARMLESS: &[&str] = &[
    // The embedding table and the tokenizer say it.
    "vocab_size",
    // Of the kind of norm that the family does not have.
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    // Of scalings that the file does not have.
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_ext_factor",
    // About the training, but for Granite.
    "rope.scaling.finetuned",
    // Of what becomes of the states.
    "pooling_type",
    "classifier.pooling_type",
    "classifier.output_labels",
    "tensor_data_layout",
];

/// As [`settings::refuse_unread`], of the keys of an architecture.
pub fn refuse_unread(keys: Fields, ignores: &[&str]) -> Result<()> {
    keys.pass_over(ignores);
    settings::refuse_unread_of(keys, SETTINGS)
}

/// Logs which keys nothing read.
pub fn warn_unread(path: &Path, keys: Fields) {
    let is_known = |name: &str| HARMLESS.contains(&name) || SETTINGS.iter().any(|(known, _)| *known == name);
    settings::warn_unread(path, &keys.unread(&|name, _| is_known(name)));
}
