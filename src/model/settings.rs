//! What becomes of the fields of a config.json that a family does not read?
//!
//! A config says far more than a family reads. Most of it is for training or for other programs: [`HARMLESS`] lists those fields, and they
//! are passed over. [`SETTINGS`] lists those that change what is computed: a model that has one of them computes something else
//! than its class says, whether it was made so or was given the name of another class. All other fields are named in a warning.
//! Invariant: a setting that the family does not read is absent, null or neutral.

use crate::fields::Fields;
use base::error::{Error, Result};
use base::log::{self, Level};
use serde_json::Value;
use std::path::Path;

/// Fields that a warning names; the rest are counted.
const NAMED_IN_WARNING: usize = 20;

/// Under which values a setting changes nothing, besides `null` and absence.
pub enum Neutral {
    /// None.
    Absence,
    /// `false`.
    False,
    /// 1.
    One,
    /// `true`.
    True,
    /// A list of nothing else than `"full_attention"`.
    FullAttention,
    /// A list of nothing else than 1.
    OneInEveryLayer,
    /// Any value where `use_sliding_window` is `false`.
    WindowOff,
    /// 0 and 1.
    AtMostOne,
    /// 0.
    AtMostZero,
    /// This text.
    Text(&'static str),
}

/// The settings, and the models that they come from.
const SETTINGS: &[(&str, Neutral)] = &[
    // The activation of the MLP. Gemma has it under the second name.
    ("hidden_act", Neutral::Text("silu")),
    ("hidden_activation", Neutral::Text("silu")),
    // Which tokens attend to which: Mistral, Phi-3, Qwen2, Gemma, Llama 4.
    ("use_sliding_window", Neutral::False),
    ("sliding_window", Neutral::WindowOff),
    ("sliding_window_pattern", Neutral::Absence),
    ("_sliding_window_pattern", Neutral::Absence),
    ("interleaved_sliding_window", Neutral::Absence),
    ("layer_types", Neutral::FullAttention),
    ("attention_chunk_size", Neutral::Absence),
    ("use_bidirectional_attention", Neutral::False),
    ("is_causal", Neutral::True),
    ("is_encoder_decoder", Neutral::False),
    ("add_cross_attention", Neutral::False),
    ("cross_attention_hidden_size", Neutral::Absence),
    // Scores: Gemma 2, Llama 4, OLMo, Muse Glimmer.
    ("query_pre_attn_scalar", Neutral::Absence),
    ("attn_logit_softcapping", Neutral::Absence),
    ("attn_temperature_tuning", Neutral::False),
    ("clip_qkv", Neutral::Absence),
    ("use_qk_norm", Neutral::False),
    ("attention_sink", Neutral::False),
    ("qk_scale_factor", Neutral::One),
    // Scales: Granite, Falcon-H1, MiniCPM, Cohere, Muse Glimmer.
    ("attention_multiplier", Neutral::Absence),
    ("embedding_multiplier", Neutral::One),
    ("residual_multiplier", Neutral::One),
    ("logits_scaling", Neutral::One),
    ("attention_in_multiplier", Neutral::One),
    ("attention_out_multiplier", Neutral::One),
    ("key_multiplier", Neutral::One),
    ("lm_head_multiplier", Neutral::One),
    ("scale_emb", Neutral::One),
    ("scale_depth", Neutral::Absence),
    ("dim_model_base", Neutral::Absence),
    ("logit_scale", Neutral::One),
    ("output_multiplier", Neutral::One),
    ("final_logit_softcapping", Neutral::Absence),
    // Positions: SmolLM3, Gemma 3, Muse Glimmer, GPT-NeoX, Falcon, GLM. `partial_rotary_factor` is read with the rope.
    ("no_rope_layers", Neutral::OneInEveryLayer),
    ("no_rope_layer_interval", Neutral::Absence),
    ("rope_local_base_freq", Neutral::Absence),
    ("layer_rope_theta", Neutral::Absence),
    ("rotary_pct", Neutral::One),
    ("rotary_dim", Neutral::Absence),
    ("rope_interleave", Neutral::False),
    ("rope_interleaved", Neutral::False),
    ("alibi", Neutral::False),
    ("use_rotary_pos_emb", Neutral::True),
    ("position_embedding_type", Neutral::Text("rope")),
    // The order of the parts of a layer, and what stands around them: Falcon, GPT-NeoX, ChatGLM, Muse Glimmer.
    ("parallel_attn", Neutral::False),
    ("use_parallel_block", Neutral::False),
    ("order_of_interleaved_layers", Neutral::Text("local_attn_first")),
    ("norm_after", Neutral::False),
    ("use_post_norm", Neutral::False),
    ("post_norm_eps", Neutral::Absence),
    ("do_layer_norm_before", Neutral::True),
    ("use_parallel_residual", Neutral::False),
    ("apply_residual_connection_post_layernorm", Neutral::False),
    // Parts that a dense decoder has not: Hunyuan, Granite, Qwen3-MoE, DeepSeek.
    ("num_experts", Neutral::AtMostOne),
    ("num_local_experts", Neutral::AtMostOne),
    ("n_routed_experts", Neutral::AtMostOne),
    ("moe_num_experts", Neutral::AtMostOne),
    ("n_shared_experts", Neutral::AtMostZero),
    ("moe_num_shared_experts", Neutral::AtMostZero),
    ("n_group", Neutral::AtMostOne),
    ("topk_group", Neutral::AtMostOne),
    ("routed_scaling_factor", Neutral::One),
    ("use_mla", Neutral::False),
    ("use_cla", Neutral::False),
    ("q_lora_rank", Neutral::Absence),
    ("kv_lora_rank", Neutral::Absence),
    ("num_kv_shared_layers", Neutral::AtMostZero),
    // Other heads in some layers, and inputs of layers: Gemma 4.
    ("per_layer_config", Neutral::Absence),
    ("global_head_dim", Neutral::Absence),
    ("num_global_key_value_heads", Neutral::Absence),
    ("attention_k_eq_v", Neutral::False),
    ("enable_moe_block", Neutral::False),
    ("hidden_size_per_layer_input", Neutral::AtMostZero),
    // An older name of quantization_config.
    ("compression_config", Neutral::Absence),
];

/// The settings within the description of a rotation that change something else than its frequencies.
const ROPE_SETTINGS: &[(&str, Neutral)] = &[
    // Positions of several axes: Qwen2-VL.
    ("mrope_section", Neutral::Absence),
    ("mrope_interleaved", Neutral::False),
];

/// Fields that change nothing: of training, of other programs, of decoding outside the model, and those that are read for all families.
const HARMLESS: &[&str] = &[
    // Read for all families before their own fields.
    "architectures",
    "model_type",
    "bos_token_id",
    "eos_token_id",
    "quantization_config",
    // About the file.
    "_name_or_path",
    "auto_map",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "transformers.js_config",
    "tokenizer_class",
    "is_llama_config",
    "task_specific_params",
    "finetuning_task",
    "model_name",
    "unsloth_fixed",
    "unsloth_version",
    // Further tokens. Which of them end a text is said by eos_token_id.
    "pad_token_id",
    "sep_token_id",
    "cls_token_id",
    "unk_token_id",
    "mask_token_id",
    "decoder_start_token_id",
    "eod_token_id",
    "im_start_id",
    "im_end_id",
    "im_newline_id",
    "text_start_id",
    "text_end_id",
    // Within the description of a rotation: an older name of rope_type beside it, and a copy of a field that every family reads.
    "type",
    "max_position_embeddings",
    // Training.
    "attention_dropout",
    "attention_probs_dropout_prob",
    "hidden_dropout_prob",
    "hidden_dropout",
    "residual_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "classifier_dropout",
    "initializer_range",
    "initializer_factor",
    "router_aux_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    "router_jitter_noise",
    "output_router_logits",
    "pretraining_tp",
    "gradient_checkpointing",
    "z_loss_coefficient",
    "org_vocab_size",
    // How another program runs it.
    "use_cache",
    "ep_size",
    "cache_implementation",
    "chunk_size_feed_forward",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "torchscript",
    "tie_encoder_decoder",
    "is_decoder",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_implementation",
    "use_bfloat16",
    "tf_legacy_loss",
    "prefix",
    "enable_lm_head_fp32",
    "use_parallel_embedding",
    // Heads of other tasks.
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "add_classification_head",
    "class_num",
    "sentence_transformers",
    "sbert_ce_default_activation_function",
    "classifier_activation",
    "classifier_bias",
    "classifier_pooling",
    "pool_type",
    // Decoding, in configs from before generation_config.json.
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    // Only with settings that are refused.
    "max_window_layers",
    "use_mrope",
];

/// Whether a field changes nothing in any model: those listed, biases that are switched off, and lists and objects of nothing.
pub fn is_harmless(name: &str, value: &Value) -> bool {
    let is_nothing = match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(switched_on) => !switched_on && name.ends_with("_bias"),
        _ => false,
    };
    is_nothing || HARMLESS.contains(&name)
}

/// Logs which fields nothing read.
pub fn warn_unread(path: &Path, fields: &[String]) {
    if fields.is_empty() {
        return;
    }
    let named = fields[..fields.len().min(NAMED_IN_WARNING)].join(", ");
    let more = if fields.len() > NAMED_IN_WARNING { ", …" } else { "" };
    log::log(Level::Warn, format_args!("{}: {} fields are not read: {named}{more}", path.display(), fields.len()));
}

/// Refuses a setting that changes what is computed, that was not read, and that is not among those that `ignores` passes over.
///
/// # Errors
///
/// [`Error::UnsupportedModel`] that names the setting, and [`Error::ModelFile`] for one of the wrong type.
pub fn refuse_unread(fields: Fields, ignores: &[&str]) -> Result<()> {
    fields.pass_over(ignores);
    refuse_unread_of(fields, SETTINGS)?;
    for name in ["rope_parameters", "rope_scaling"] {
        if let Some(rope) = fields.object(name)? {
            rope.pass_over(ignores);
            refuse_unread_of(rope, ROPE_SETTINGS)?;
        }
    }
    Ok(())
}

/// Refuses a setting of a list that was not read and has an effect.
///
/// # Errors
///
/// As [`refuse_unread`].
pub fn refuse_unread_of(fields: Fields, settings: &[(&'static str, Neutral)]) -> Result<()> {
    for (name, neutral) in settings {
        if fields.was_read(name) {
            continue;
        }
        let Some(value) = fields.get(name) else { continue };
        if !neutral.holds(fields, name, value)? {
            let supported = neutral.words();
            return Err(Error::UnsupportedModel { setting: name, value: Fields::shown(value), supported });
        }
    }
    Ok(())
}

impl Neutral {
    fn holds(&self, fields: Fields, name: &str, value: &Value) -> Result<bool> {
        Ok(match self {
            Neutral::Absence => false,
            Neutral::False => fields.flag(name)? == Some(false),
            Neutral::One => value.as_f64() == Some(1.0),
            Neutral::True => fields.flag(name)? == Some(true),
            Neutral::FullAttention => in_every_layer(value, |entry| entry.as_str() == Some("full_attention")),
            Neutral::OneInEveryLayer => in_every_layer(value, |entry| entry.as_u64() == Some(1)),
            Neutral::WindowOff => fields.flag("use_sliding_window")? == Some(false),
            Neutral::AtMostOne => value.as_u64().is_some_and(|count| count <= 1),
            Neutral::AtMostZero => value.as_f64() == Some(0.0),
            Neutral::Text(wanted) => fields.text(name)? == Some(wanted),
        })
    }

    fn words(&self) -> &'static str {
        match self {
            Neutral::Absence => "absent in a model of this class",
            Neutral::False => "false in a model of this class",
            Neutral::One => "1 in a model of this class",
            Neutral::True => "true in a model of this class",
            Neutral::FullAttention => "full_attention in every layer",
            Neutral::OneInEveryLayer => "1 in every layer of a model of this class",
            Neutral::WindowOff => "absent in a model of this class, or use_sliding_window false",
            Neutral::AtMostOne => "at most 1 in a model of this class",
            Neutral::AtMostZero => "0 in a model of this class",
            Neutral::Text(wanted) => wanted,
        }
    }
}

fn in_every_layer(value: &Value, holds: impl Fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|entries| entries.iter().all(holds))
}
