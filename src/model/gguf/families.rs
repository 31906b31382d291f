//! The families in GGUF files: which architecture names them, and which keys they have besides those that all share.

mod encoders;
mod experts;

use super::config::Config;
use super::names::{self, GgufNames};
use super::rope;
use crate::families::{
    afmoe, cohere2, deepseek_v2, deepseek_v3, dots1, ernie4_5, ernie4_5_moe, exaone_moe, exaone4, falcon_h1, gemma,
    gemma2, gemma3, gemma4, glm4, glm4_moe, gpt_oss, granite, granite_hybrid, granite_moe, hunyuan, hunyuan_moe, lfm2,
    lfm2_moe, llama, minimax_m2, ministral3, mistral, mistral4, mixtral, muse_glimmer, nemotron_h, olmo, olmo2, olmo3,
    olmoe, phi3, qwen2, qwen2_moe, qwen3, qwen3_5, qwen3_5_moe, qwen3_moe, qwen3_next, seed_oss, smollm3, stablelm,
    starcoder2,
};
use crate::family::Family;
use base::error::Result;
use compute::ValueOrder;
use experts::{
    afmoe_fields, deepseek_v2_fields, deepseek_v3_fields, dots1_fields, ernie_moe_fields, exaone_moe_fields,
    gemma4_experts, glm4_moe_fields, gpt_oss_fields, granite_moe_fields, hunyuan_moe_fields, lfm2_moe_fields,
    minimax_m2_fields, mistral4_fields, mixtral_fields, nemotron_experts, olmoe_fields, qwen2_moe_fields,
    qwen3_5_moe_fields, qwen3_moe_fields, qwen3_next_fields,
};
use serde_json::{Value, json};

/// How GGUF files describe models of a family.
pub struct GgufFamily {
    /// The family of a folder with the same model.
    pub family: &'static Family,
    /// `general.architecture`
    pub architecture: &'static str,
    /// What only these models of their architecture have.
    pub mark: Option<Mark>,
    /// What its tensors are called.
    pub names: &'static GgufNames,
    /// In which order the rows of queries and keys are.
    pub rotation: Rotation,
    /// Which value heads of a gated delta rule share a key head.
    pub value_order: ValueOrder,
    /// Keys that may have another value in each layer.
    pub by_layer: &'static [&'static str],
    /// Keys that change nothing in this architecture, whatever they are.
    pub ignores: &'static [&'static str],
    /// Sets the fields of a config that [`Config::read_shared`] does not set.
    pub fields: fn(&mut Config) -> Result<()>,
}

/// What tells models of one architecture apart.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// A key, with a value other than 0.
    Key(&'static str),
    /// A tensor, in some layer.
    Tensor(&'static str),
}

/// In which order a conversion writes the rows of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// As they are in a folder.
    AsInFolder,
    /// So that the two numbers that turn together are neighbours.
    Neighbours,
}

const PLAIN: GgufFamily = GgufFamily {
    family: &llama::FAMILY,
    architecture: "",
    mark: None,
    names: &names::LLAMA,
    rotation: Rotation::AsInFolder,
    value_order: ValueOrder::Grouped,
    by_layer: &[],
    ignores: &[],
    fields: biases,
};

/// With experts and without.
const QWEN35: GgufFamily = GgufFamily {
    family: &qwen3_5::FAMILY,
    architecture: "qwen35",
    names: &names::QWEN35,
    value_order: ValueOrder::Tiled,
    ignores: OF_IMAGES,
    fields: qwen3_5_fields,
    ..PLAIN
};

/// Whose experts are chosen by a softmax, or with a correction of sigmoids.
const DEEPSEEK2: GgufFamily = GgufFamily {
    family: &deepseek_v2::FAMILY,
    architecture: "deepseek2",
    names: &names::DEEPSEEK2,
    fields: deepseek_v2_fields,
    ..PLAIN
};

/// With experts and without.
const NEMOTRON_H: GgufFamily = GgufFamily {
    family: &nemotron_h::FAMILY,
    architecture: "nemotron_h",
    names: &names::NEMOTRON_H,
    by_layer: &["attention.head_count_kv", "feed_forward_length"],
    // Nothing rotates.
    ignores: &["rope.dimension_count", "rope.freq_base"],
    fields: nemotron_h_fields,
    ..PLAIN
};

/// Positions of text are the same on each axis, and it has no features of images.
const OF_IMAGES: &[&str] = &["rope.dimension_sections", "n_deepstack_layers"];

/// Granite 4, with attention in all layers, has the keys of the recurrent layers and of the experts that it lacks.
const OF_GRANITE_4: &[&str] = &[
    "expert_shared_feed_forward_length",
    "ssm.conv_kernel",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
    "ssm.group_count",
];

/// All families. Of those with one architecture, the first whose mark a file has describes it.
pub const FAMILIES: &[GgufFamily] = &[
    GgufFamily {
        family: &mixtral::FAMILY,
        architecture: "llama",
        mark: Some(Mark::Key("expert_count")),
        rotation: Rotation::Neighbours,
        fields: mixtral_fields,
        ..PLAIN
    },
    GgufFamily { architecture: "llama", rotation: Rotation::Neighbours, ..PLAIN },
    GgufFamily {
        family: &ministral3::FAMILY,
        architecture: "mistral3",
        mark: Some(Mark::Key("attention.temperature_scale")),
        rotation: Rotation::Neighbours,
        fields: ministral3_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &mistral::FAMILY,
        architecture: "mistral3",
        rotation: Rotation::Neighbours,
        fields: mistral_fields,
        ..PLAIN
    },
    GgufFamily { family: &qwen2::FAMILY, architecture: "qwen2", fields: nothing, ..PLAIN },
    GgufFamily { family: &qwen3::FAMILY, architecture: "qwen3", ..PLAIN },
    GgufFamily { family: &qwen2_moe::FAMILY, architecture: "qwen2moe", fields: qwen2_moe_fields, ..PLAIN },
    GgufFamily { family: &qwen3_moe::FAMILY, architecture: "qwen3moe", fields: qwen3_moe_fields, ..PLAIN },
    GgufFamily { family: &qwen2::FAMILY, architecture: "qwen2vl", ignores: OF_IMAGES, fields: nothing, ..PLAIN },
    GgufFamily { family: &qwen3::FAMILY, architecture: "qwen3vl", ignores: OF_IMAGES, ..PLAIN },
    GgufFamily {
        family: &qwen3_moe::FAMILY,
        architecture: "qwen3vlmoe",
        ignores: OF_IMAGES,
        fields: qwen3_moe_fields,
        ..PLAIN
    },
    GgufFamily { family: &olmoe::FAMILY, architecture: "olmoe", fields: olmoe_fields, ..PLAIN },
    GgufFamily { family: &qwen3_5_moe::FAMILY, architecture: "qwen35moe", fields: qwen3_5_moe_fields, ..QWEN35 },
    QWEN35,
    // Here the value heads of a key head follow each other.
    GgufFamily {
        family: &qwen3_next::FAMILY,
        architecture: "qwen3next",
        names: &names::QWEN3_NEXT,
        fields: qwen3_next_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &lfm2::FAMILY,
        architecture: "lfm2",
        names: &names::LFM2,
        by_layer: &["attention.head_count_kv"],
        fields: lfm2_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &granite_hybrid::FAMILY,
        architecture: "granitehybrid",
        names: &names::GRANITE_HYBRID,
        rotation: Rotation::Neighbours,
        by_layer: &["attention.head_count_kv"],
        fields: granite_hybrid_fields,
        ..PLAIN
    },
    GgufFamily { architecture: "nemotron_h_moe", ..NEMOTRON_H },
    NEMOTRON_H,
    GgufFamily {
        family: &falcon_h1::FAMILY,
        architecture: "falcon-h1",
        names: &names::GRANITE_HYBRID,
        fields: falcon_h1_fields,
        ..PLAIN
    },
    GgufFamily { family: &phi3::FAMILY, architecture: "phi3", names: &names::PHI3, fields: phi3_fields, ..PLAIN },
    GgufFamily { family: &smollm3::FAMILY, architecture: "smollm3", rotation: Rotation::Neighbours, ..PLAIN },
    GgufFamily {
        family: &granite_moe::SHARED,
        architecture: "granitemoe",
        rotation: Rotation::Neighbours,
        ignores: OF_GRANITE_4,
        fields: granite_moe_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &granite::FAMILY,
        architecture: "granite",
        rotation: Rotation::Neighbours,
        ignores: OF_GRANITE_4,
        fields: granite_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &seed_oss::FAMILY,
        architecture: "seed_oss",
        names: &names::SEED_OSS,
        fields: seed_oss_fields,
        ..PLAIN
    },
    GgufFamily { family: &ernie4_5::FAMILY, architecture: "ernie4_5", fields: ernie_fields, ..PLAIN },
    GgufFamily { family: &hunyuan::FAMILY, architecture: "hunyuan-dense", fields: biases_of_attention, ..PLAIN },
    GgufFamily {
        family: &gemma2::FAMILY,
        architecture: "gemma2",
        names: &names::GEMMA2,
        fields: gemma2_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &gemma3::FAMILY,
        architecture: "gemma3",
        names: &names::GEMMA2,
        fields: gemma3_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &gemma4::FAMILY,
        architecture: "gemma4",
        names: &names::GEMMA4,
        by_layer: &["attention.head_count_kv", "feed_forward_length"],
        fields: gemma4_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &olmo3::FAMILY,
        architecture: "olmo2",
        mark: Some(Mark::Key("attention.sliding_window")),
        names: &names::OLMO2,
        fields: olmo3_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &olmo2::FAMILY,
        architecture: "olmo2",
        names: &names::OLMO2,
        fields: biases_of_attention,
        ..PLAIN
    },
    GgufFamily {
        family: &exaone4::FAMILY,
        architecture: "exaone4",
        names: &names::OLMO2,
        fields: exaone4_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &glm4::FAMILY,
        architecture: "glm4",
        names: &names::GLM4,
        fields: biases_of_attention,
        ..PLAIN
    },
    GgufFamily {
        family: &glm4_moe::FAMILY,
        architecture: "glm4moe",
        names: &names::SEED_OSS,
        fields: glm4_moe_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &deepseek_v3::FAMILY,
        mark: Some(Mark::Tensor("exp_probs_b.bias")),
        fields: deepseek_v3_fields,
        ..DEEPSEEK2
    },
    DEEPSEEK2,
    GgufFamily { family: &mistral4::FAMILY, architecture: "mistral4", fields: mistral4_fields, ..DEEPSEEK2 },
    GgufFamily {
        family: &lfm2_moe::FAMILY,
        architecture: "lfm2moe",
        names: &names::LFM2,
        by_layer: &["attention.head_count_kv"],
        fields: lfm2_moe_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &ernie4_5_moe::FAMILY,
        architecture: "ernie4_5-moe",
        // The number of experts that compute all tokens says it.
        ignores: &["expert_shared_feed_forward_length"],
        fields: ernie_moe_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &gpt_oss::FAMILY,
        architecture: "gpt-oss",
        names: &names::GPT_OSS,
        fields: gpt_oss_fields,
        ..PLAIN
    },
    GgufFamily { family: &cohere2::FAMILY, architecture: "cohere2", fields: cohere2_fields, ..PLAIN },
    GgufFamily {
        family: &muse_glimmer::FAMILY,
        architecture: "muse-glimmer",
        names: &names::GATED_ATTENTION,
        rotation: Rotation::Neighbours,
        fields: muse_glimmer_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &llama::ARCEE,
        architecture: "arcee",
        names: &names::UNGATED,
        rotation: Rotation::Neighbours,
        ..PLAIN
    },
    GgufFamily {
        family: &starcoder2::FAMILY,
        architecture: "starcoder2",
        names: &names::UNGATED,
        fields: starcoder2_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &stablelm::FAMILY,
        architecture: "stablelm",
        ignores: &["use_parallel_residual"],
        fields: stablelm_fields,
        ..PLAIN
    },
    GgufFamily { family: &gemma::FAMILY, architecture: "gemma", fields: biases_of_attention, ..PLAIN },
    GgufFamily {
        family: &olmo::FAMILY,
        architecture: "olmo",
        rotation: Rotation::Neighbours,
        fields: biases_of_attention,
        ..PLAIN
    },
    GgufFamily { family: &cohere2::COHERE, architecture: "command-r", fields: cohere_fields, ..PLAIN },
    GgufFamily { family: &minimax_m2::FAMILY, architecture: "minimax-m2", fields: minimax_m2_fields, ..PLAIN },
    GgufFamily { family: &dots1::FAMILY, architecture: "dots1", fields: dots1_fields, ..PLAIN },
    GgufFamily {
        family: &exaone_moe::FAMILY,
        architecture: "exaone-moe",
        // The number of experts that compute all tokens says it.
        ignores: &["expert_shared_feed_forward_length"],
        fields: exaone_moe_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &afmoe::FAMILY,
        architecture: "afmoe",
        names: &names::GATED_ATTENTION,
        fields: afmoe_fields,
        ..PLAIN
    },
    GgufFamily {
        family: &hunyuan_moe::FAMILY,
        architecture: "hunyuan-moe",
        // One MLP computes all tokens, and is as wide as each expert.
        ignores: &["expert_feed_forward_length", "expert_shared_count", "expert_shared_feed_forward_length"],
        fields: hunyuan_moe_fields,
        ..PLAIN
    },
    encoders::BERT,
    encoders::NOMIC_BERT,
    encoders::MODERN_BERT,
    encoders::GEMMA_EMBEDDING,
];

/// Tensors that only a model with biases has.
const QKV_BIASES: &[&str] = &["attn_q.bias", "attn_qkv.bias"];

fn nothing(_: &mut Config) -> Result<()> {
    Ok(())
}

fn biases_of_attention(config: &mut Config) -> Result<()> {
    config.set_bias("attention_bias", QKV_BIASES);
    Ok(())
}

fn biases(config: &mut Config) -> Result<()> {
    config.set_bias("mlp_bias", &["ffn_down.bias"]);
    biases_of_attention(config)
}

fn mistral_fields(config: &mut Config) -> Result<()> {
    config.set("sliding_window", Value::Null);
    Ok(())
}

fn ministral3_fields(config: &mut Config) -> Result<()> {
    let beta = config.keys.positive("attention.temperature_scale")?;
    let original = config.keys.count("rope.scaling.original_context_length")?;
    let rope = config.rope_scaling();
    rope.insert("llama_4_scaling_beta".into(), json!(beta));
    rope.insert("original_max_position_embeddings".into(), json!(original));
    Ok(())
}

fn phi3_fields(config: &mut Config) -> Result<()> {
    if let Some(original) = config.keys.count_or_none("rope.scaling.original_context_length")? {
        config.set("original_max_position_embeddings", original);
    }
    let window = config.positive("attention.sliding_window")?;
    config.set("sliding_window", window.map(|window| window as u64));
    Ok(())
}

fn granite_fields(config: &mut Config) -> Result<()> {
    // Where it is false, llama.cpp does not rotate.
    config.keys.must_be("rope.scaling.finetuned", true)?;
    granite_factors(config)
}

fn granite_factors(config: &mut Config) -> Result<()> {
    for (key, field) in [
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ] {
        config.copy(key, field)?;
    }
    let scale = match config.positive("attention.scale")? {
        Some(scale) => scale,
        None => 1.0 / (config.head_dim()? as f64).sqrt(),
    };
    config.set("attention_multiplier", scale);
    biases(config)
}

/// Layers without KV heads are recurrent.
fn granite_hybrid_fields(config: &mut Config) -> Result<()> {
    let rotates = config.keys.flag("rope.scaling.finetuned")?.unwrap_or(true);
    config.set("position_embedding_type", if rotates { "rope" } else { "nope" });
    config.set("num_local_experts", config.positive("expert_count")?.unwrap_or(0.0) as u64);
    if let Some(chosen) = config.positive("expert_used_count")? {
        config.set("num_experts_per_tok", chosen as u64);
    }
    let width = match config.positive("expert_shared_feed_forward_length")? {
        Some(_) => config.keys.count("expert_shared_feed_forward_length")?,
        None => config.keys.count("feed_forward_length")?,
    };
    config.set("shared_intermediate_size", width);
    config.set_layer_types(&config.layers_without_kv()?, "mamba", "attention");
    let heads = config.keys.count("ssm.time_step_rank")?;
    config.set("mamba_n_heads", heads);
    config.set("mamba_d_head", config.keys.count("ssm.inner_size")? / heads);
    let hidden = config.keys.count("embedding_length")?;
    config.set("mamba_expand", config.keys.count("ssm.inner_size")? / hidden);
    for (key, field) in
        [("group_count", "mamba_n_groups"), ("state_size", "mamba_d_state"), ("conv_kernel", "mamba_d_conv")]
    {
        config.set(field, config.keys.count(&format!("ssm.{key}"))?);
    }
    config.set_bias("mamba_conv_bias", &["ssm_conv1d.bias"]);
    config.set_bias("mamba_proj_bias", &["ssm_in.bias"]);
    granite_factors(config)
}

/// Layers without KV heads are MLPs where they have a width, and else recurrent.
fn nemotron_h_fields(config: &mut Config) -> Result<()> {
    let without_kv = config.layers_without_kv()?;
    let without_mlp = config.layers_without("feed_forward_length")?;
    let kinds = without_kv.into_iter().zip(without_mlp).enumerate().map(|(layer, kind)| match kind {
        (_, false) if config.layer_has(layer, "ffn_gate_inp.weight") => 'E',
        (true, true) => 'M',
        (false, true) => '*',
        // Both: a tensor that has no place is refused.
        (_, false) => '-',
    });
    let kinds = kinds.collect::<String>();
    config.set("hybrid_override_pattern", kinds);
    nemotron_experts(config)?;
    // Its place in files of older conversions is that of another kind of norm.
    let [rms, layer] = ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"];
    config.copy(if config.keys.get(rms).is_some() { rms } else { layer }, "layer_norm_epsilon")?;
    let heads = config.keys.count("ssm.time_step_rank")?;
    config.set("mamba_num_heads", heads);
    config.set("mamba_head_dim", config.keys.count("ssm.inner_size")? / heads);
    for (key, field) in [("group_count", "n_groups"), ("state_size", "ssm_state_size"), ("conv_kernel", "conv_kernel")]
    {
        config.set(field, config.keys.count(&format!("ssm.{key}"))?);
    }
    for (field, part) in [
        ("use_conv_bias", "ssm_conv1d.bias"),
        ("use_bias", "ssm_in.bias"),
        ("mlp_bias", "ffn_up.bias"),
        ("attention_bias", "attn_q.bias"),
    ] {
        config.set_bias_of_any(field, part)?;
    }
    Ok(())
}

/// The factors are in the weights. llama.cpp applies the gate before the norm, where there is one.
fn falcon_h1_fields(config: &mut Config) -> Result<()> {
    let (heads, width) = (config.keys.count("ssm.time_step_rank")?, config.keys.count("ssm.inner_size")?);
    config.set("mamba_n_heads", heads);
    config.set("mamba_d_ssm", width);
    config.set("mamba_d_head", width / heads);
    for (key, field) in
        [("group_count", "mamba_n_groups"), ("state_size", "mamba_d_state"), ("conv_kernel", "mamba_d_conv")]
    {
        config.set(field, config.keys.count(&format!("ssm.{key}"))?);
    }
    config.set_bias("mamba_conv_bias", &["ssm_conv1d.bias"]);
    config.set_bias("mamba_proj_bias", &["ssm_in.bias"]);
    config.set_bias("projectors_bias", &["ssm_out.bias"]);
    config.set_bias("mamba_rms_norm", &["ssm_norm.weight"]);
    config.set("mamba_norm_before_gate", false);
    biases(config)
}

/// What the keys call the sizes of a state space are those of a gated delta rule.
fn qwen3_5_fields(config: &mut Config) -> Result<()> {
    let values = config.keys.count("ssm.time_step_rank")?;
    let width = config.keys.count("ssm.inner_size")?;
    if !width.is_multiple_of(values) {
        return Err(config
            .keys
            .refuse(format!("ssm.inner_size is {width}, but must be a multiple of ssm.time_step_rank, {values}")));
    }
    config.set("linear_num_value_heads", values);
    config.set("linear_value_head_dim", width / values);
    for (key, field) in [
        ("group_count", "linear_num_key_heads"),
        ("state_size", "linear_key_head_dim"),
        ("conv_kernel", "linear_conv_kernel_dim"),
    ] {
        config.set(field, config.keys.count(&format!("ssm.{key}"))?);
    }
    let interval = config.keys.count_or_none("full_attention_interval")?.unwrap_or(4);
    let layers = config.layers()?;
    let recurrent = match config.flags("attention.recurrent_layers")? {
        Some(flags) => flags,
        None => (0..layers).map(|layer| !(layer + 1).is_multiple_of(interval)).collect(),
    };
    config.set_layer_types(&recurrent, "linear_attention", "full_attention");
    config.set("attention_bias", false);
    Ok(())
}

fn lfm2_fields(config: &mut Config) -> Result<()> {
    config.copy("attention.layer_norm_rms_epsilon", "norm_eps")?;
    config.set("conv_L_cache", config.keys.count("shortconv.l_cache")?);
    config.set_bias("conv_bias", &["shortconv.in_proj.bias"]);
    config.set("block_auto_adjust_ff_dim", false);
    config.set_layer_types(&config.layers_without_kv()?, "conv", "full_attention");
    Ok(())
}

fn seed_oss_fields(config: &mut Config) -> Result<()> {
    config.set_bias("attention_out_bias", &["attn_output.bias"]);
    biases(config)
}

fn ernie_fields(config: &mut Config) -> Result<()> {
    config.set_bias("use_bias", QKV_BIASES);
    Ok(())
}

/// Scores are divided by the root of the width of a head, except in the 27B models, which llama.cpp knows by their layers as well.
fn gemma_scores(config: &mut Config, layers_of_27b: usize) -> Result<()> {
    let width = if config.layers()? == layers_of_27b { config.shared_width()? } else { config.head_dim()? };
    config.set("query_pre_attn_scalar", width);
    Ok(())
}

fn gemma2_fields(config: &mut Config) -> Result<()> {
    config.copy("attn_logit_softcapping", "attn_logit_softcapping")?;
    if config.keys.get("attention.sliding_window").is_none() {
        return Err(config.keys.refuse("attention.sliding_window is missing".into()));
    }
    config.read_windows(2)?;
    gemma_scores(config, 46)
}

fn gemma3_fields(config: &mut Config) -> Result<()> {
    config.read_windows(6)?;
    let theta = config.keys.positive_or_none("rope.freq_base_swa")?.unwrap_or(10_000.0);
    config.set("rope_local_base_freq", theta);
    gemma_scores(config, 62)
}

/// What the shared keys say of heads is what layers without a window have; those with one have keys of their own.
/// Inputs of layers, and layers that read the keys of others.
fn gemma4_small_fields(config: &mut Config) -> Result<()> {
    let width = config.positive("embedding_length_per_layer_input")?.map_or(0, |width| width as u64);
    config.set("hidden_size_per_layer_input", width);
    let shared = config.positive("attention.shared_kv_layers")?.map_or(0, |layers| layers as usize);
    config.set("num_kv_shared_layers", shared);
    const WIDTH: &str = "feed_forward_length";
    let widths = config.counts_by_layer(WIDTH)?;
    let (own, others) = widths.split_at(widths.len().saturating_sub(shared));
    let is_double = others.first().is_some_and(|&width| width == 2 * widths[0]);
    let of_others = if is_double { 2 * widths[0] } else { widths[0] };
    if own.iter().any(|&width| width != widths[0]) || others.iter().any(|&width| width != of_others) {
        return Err(config.keys.refuse(format!(
            "{WIDTH} must be the same in every layer, or twice as much in all layers of attention.shared_kv_layers"
        )));
    }
    config.set("use_double_wide_mlp", is_double);
    let rows = config.rows("per_layer_token_embd.weight").or(config.rows("token_embd.weight"));
    config.set("vocab_size_per_layer_input", rows);
    Ok(())
}

fn gemma4_fields(config: &mut Config) -> Result<()> {
    config.keys.count("attention.sliding_window")?;
    config.read_windows(6)?;
    let full_dim = config.keys.count("attention.key_length")?;
    let sliding_dim = config.keys.count("attention.key_length_swa")?;
    for (key, wanted) in [("attention.value_length_swa", sliding_dim), ("rope.dimension_count_swa", sliding_dim)] {
        if let Some(other) = config.keys.count_or_none(key)?.filter(|&count| count != wanted) {
            return Err(config
                .keys
                .refuse(format!("{key} is {other}, but must be attention.key_length_swa, {wanted}")));
        }
    }
    let slides = config.slides();
    let kv_heads = config.counts_by_layer("attention.head_count_kv")?;
    let heads = slides.iter().zip(&kv_heads).enumerate().map(|(layer, (&slides, &kv_heads))| {
        let head_dim = if slides { sliding_dim } else { full_dim };
        (layer.to_string(), json!({"head_dim": head_dim, "num_key_value_heads": kv_heads}))
    });
    config.set("per_layer_config", Value::Object(heads.collect()));
    config.set("head_dim", sliding_dim);
    let full = slides.iter().position(|&slides| !slides);
    config.set("attention_k_eq_v", full.is_some_and(|layer| !config.layer_has(layer, "attn_v.weight")));
    gemma4_small_fields(config)?;
    gemma4_experts(config)?;
    let sliding_theta = config.keys.positive_or_none("rope.freq_base_swa")?.unwrap_or(10_000.0);
    rope::read_proportional(config, full_dim, sliding_theta)?;
    biases_of_attention(config)
}

fn olmo3_fields(config: &mut Config) -> Result<()> {
    config.read_windows(4)?;
    let theta = match config.keys.positive_or_none("rope.freq_base_swa")? {
        Some(theta) => theta,
        None => config.keys.positive("rope.freq_base")?,
    };
    config.set("rope_local_base_freq", theta);
    biases_of_attention(config)
}

fn exaone4_fields(config: &mut Config) -> Result<()> {
    config.read_windows(4)
}

fn cohere2_fields(config: &mut Config) -> Result<()> {
    config.read_windows(4)?;
    cohere_fields(config)
}

fn cohere_fields(config: &mut Config) -> Result<()> {
    config.copy("attention.layer_norm_epsilon", "layer_norm_eps")?;
    config.copy("logit_scale", "logit_scale")?;
    biases_of_attention(config)
}

fn starcoder2_fields(config: &mut Config) -> Result<()> {
    config.copy("attention.layer_norm_epsilon", "norm_epsilon")?;
    config.set_bias("use_bias", QKV_BIASES);
    Ok(())
}

fn stablelm_fields(config: &mut Config) -> Result<()> {
    config.copy("attention.layer_norm_epsilon", "layer_norm_eps")?;
    // As llama.cpp has it: the conversion writes of most models that do not say it that they are parallel.
    config.set("use_parallel_residual", !config.has("ffn_norm.weight"));
    config.set_bias("use_qkv_bias", QKV_BIASES);
    config.set_bias("qk_layernorm", &["attn_q_norm.weight"]);
    Ok(())
}

fn muse_glimmer_fields(config: &mut Config) -> Result<()> {
    // llama.cpp has no default for the first, and computes something else than the class without the others.
    let scale = config.keys.positive("logit_scale")?;
    config.keys.positive("final_logit_softcapping")?;
    config.keys.count("attention.sliding_window")?;
    config.set("output_multiplier", scale);
    // The weights of the norm of queries have it.
    config.set("qk_scale_factor", 1.0);
    config.read_windows(4)?;
    config.rotate_windows();
    biases_of_attention(config)
}
