//! Families with experts.

use super::family_tests::{changed, described, parse};
use crate::spec::{
    Activation, Bias, Correction, ExpertLatent, ExpertScales, Experts, FeedForward, LayerSpec, MlpForm, Part, Router,
    Scores, SharedGate, Sinks, Sublayer, Temperature,
};
use base::error::Error;
use compute::{Curve, Groups, KvValues, Pairing};
use serde_json::json;

fn experts(layer: &LayerSpec) -> &Experts {
    layer.feed_forward().and_then(FeedForward::experts).unwrap_or_else(|| panic!("{layer:?}"))
}

/// Layers that have experts.
fn sparse(layers: &[LayerSpec]) -> Vec<usize> {
    let has = |layer: &LayerSpec| layer.feed_forward().and_then(FeedForward::experts).is_some();
    (0..layers.len()).filter(|&layer| has(&layers[layer])).collect()
}

const SOFTMAX: Router =
    Router { experts: 128, chosen: 8, scores: Scores::Softmax, groups: None, norm: Some(0.0), scale: 1.0 };

#[test]
fn a_family_says_how_its_experts_are_chosen() {
    let sigmoid = Router { scores: Scores::Sigmoid, ..SOFTMAX };
    let cases = [
        ("Qwen3-30B-A3B", SOFTMAX, 768),
        ("Qwen3-VL-30B-A3B", SOFTMAX, 768),
        ("Mixtral-8x7B", Router { experts: 8, chosen: 2, ..SOFTMAX }, 14336),
        ("OLMoE-1B-7B", Router { experts: 64, norm: None, ..SOFTMAX }, 1024),
        ("Qwen3.5-35B-A3B", Router { experts: 256, ..SOFTMAX }, 512),
        ("Qwen3-Next-80B-A3B", Router { experts: 512, chosen: 10, ..SOFTMAX }, 512),
        ("GLM-4.5-Air", Router { norm: Some(1e-20), ..sigmoid }, 1408),
        ("GLM-4.7-Flash", Router { experts: 64, chosen: 4, norm: Some(1e-20), scale: 1.8, ..sigmoid }, 1536),
        (
            "DeepSeek-V3",
            Router {
                experts: 256,
                groups: Some(Groups { count: 8, kept: 4, best: 2 }),
                norm: Some(1e-20),
                scale: 2.5,
                ..sigmoid
            },
            2048,
        ),
        ("DeepSeek-V2-Lite", Router { experts: 64, chosen: 6, norm: None, ..SOFTMAX }, 1408),
        ("Mistral-Small-4", Router { chosen: 4, norm: Some(1e-20), ..SOFTMAX }, 2048),
        ("LFM2-8B-A1B", Router { experts: 32, chosen: 4, norm: Some(1e-6), ..sigmoid }, 1792),
        ("ERNIE-4.5-21B-A3B", Router { experts: 64, chosen: 6, ..SOFTMAX }, 1536),
        ("granite-4.0-h-tiny", Router { experts: 64, chosen: 6, ..SOFTMAX }, 512),
        ("gpt-oss-20b", Router { experts: 32, chosen: 4, ..SOFTMAX }, 2880),
        ("Qwen1.5-MoE-A2.7B", Router { experts: 60, chosen: 4, norm: None, ..SOFTMAX }, 1408),
        ("granite-3.1-1b-a400m", Router { experts: 32, ..SOFTMAX }, 512),
        ("moe-7b-1b-active-shared-experts", Router { experts: 62, chosen: 6, ..SOFTMAX }, 512),
        ("MiniMax-M2", Router { experts: 256, ..sigmoid }, 1536),
        ("dots.llm1", Router { chosen: 6, norm: Some(1e-20), scale: 2.5, ..sigmoid }, 1408),
        ("Solar-Open-100B", Router { norm: Some(1e-20), ..sigmoid }, 1280),
        ("K-EXAONE-236B-A23B", Router { norm: Some(1e-20), scale: 2.5, ..sigmoid }, 2048),
        ("Trinity-Mini", Router { norm: Some(1e-20), scale: 2.826, ..sigmoid }, 1024),
        ("FlexOlmo-7x7B-1T", Router { experts: 7, chosen: 5, norm: None, ..SOFTMAX }, 11008),
        ("Hunyuan-A13B", Router { experts: 64, ..SOFTMAX }, 3072),
        ("GLM-4.5V", Router { norm: Some(1e-20), ..sigmoid }, 1408),
        ("Kimi-K2.5", Router { experts: 384, norm: Some(1e-20), scale: 2.827, ..sigmoid }, 2048),
    ];
    for (name, router, width) in cases {
        let spec = described(&changed(name, json!({})));
        let experts = experts(spec.layers.last().unwrap());
        assert_eq!((experts.router, experts.expert.width), (router, width), "{name}");
        // All that are scored by sigmoids are corrected.
        let corrected = router.scores == Scores::Sigmoid || name == "ERNIE-4.5-21B-A3B";
        assert_eq!(experts.correction == Correction::Stored, corrected, "{name}");
        let shared = experts.shared.as_ref().map(|shared| (shared.mlp.width, shared.gate));
        let wanted = match name {
            "Qwen3.5-35B-A3B" | "Qwen3-Next-80B-A3B" => Some((512, SharedGate::Sigmoid)),
            "GLM-4.5-Air" | "GLM-4.5V" => Some((1408, SharedGate::None)),
            "GLM-4.7-Flash" => Some((1536, SharedGate::None)),
            "DeepSeek-V3" | "Mistral-Small-4" => Some((2048, SharedGate::None)),
            "DeepSeek-V2-Lite" => Some((2 * 1408, SharedGate::None)),
            "ERNIE-4.5-21B-A3B" => Some((2 * 1536, SharedGate::None)),
            "granite-4.0-h-tiny" | "moe-7b-1b-active-shared-experts" | "Trinity-Mini" => Some((1024, SharedGate::None)),
            "Qwen1.5-MoE-A2.7B" => Some((5632, SharedGate::Sigmoid)),
            "dots.llm1" => Some((2 * 1408, SharedGate::None)),
            "Solar-Open-100B" => Some((1280, SharedGate::None)),
            "K-EXAONE-236B-A23B" | "Kimi-K2.5" => Some((2048, SharedGate::None)),
            "Hunyuan-A13B" => Some((3072, SharedGate::None)),
            _ => None,
        };
        assert_eq!(shared, wanted, "{name}");
        let dense = match name {
            "GLM-4.5-Air" | "GLM-4.7-Flash" | "DeepSeek-V2-Lite" | "ERNIE-4.5-21B-A3B" => 1,
            "dots.llm1" | "K-EXAONE-236B-A23B" | "GLM-4.5V" | "Kimi-K2.5" => 1,
            "DeepSeek-V3" => 3,
            "LFM2-8B-A1B" | "Trinity-Mini" => 2,
            _ => 0,
        };
        assert_eq!(sparse(&spec.layers), (dense..spec.layers.len()).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn fields_say_which_layers_have_experts() {
    let some = |name, changes| sparse(&described(&changed(name, changes)).layers);
    let layers = json!({"num_hidden_layers": 8, "decoder_sparse_step": 2, "mlp_only_layers": [3, 4]});
    assert_eq!(some("Qwen3-30B-A3B", layers.clone()), [1, 5, 7]);
    assert_eq!(some("Qwen3-Next-80B-A3B", layers), [1, 5, 7]);
    let interval =
        json!({"num_hidden_layers": 9, "moe_layer_interval": 2, "moe_layer_start_index": 2, "moe_layer_end_index": 6});
    assert_eq!(some("ERNIE-4.5-21B-A3B", interval), [3, 5]);
    assert_eq!(some("GLM-4.5-Air", json!({"num_hidden_layers": 4, "first_k_dense_replace": 0})), [0, 1, 2, 3]);
}

#[test]
fn experts_are_counted_under_either_name() {
    let one = changed("Qwen3-30B-A3B", json!({}));
    let other = changed("Qwen3-30B-A3B", json!({"num_experts": "(absent)", "num_local_experts": 128}));
    assert_eq!(described(&one), described(&other));
}

#[test]
fn the_groups_of_glm_are_scored_by_two_experts() {
    let spec = described(&changed("GLM-4.5-Air", json!({"n_group": 8, "topk_group": 4})));
    assert_eq!(experts(&spec.layers[1]).router.groups, Some(Groups { count: 8, kept: 4, best: 2 }));
}

#[test]
fn latent_attention_rotates_the_first_numbers_of_its_heads() {
    // Numbers of a value, and what scores are divided by.
    let cases = [
        ("GLM-4.7-Flash", 256, 16.0),
        ("DeepSeek-V3", 128, 192f32.sqrt() / (0.1 * 40f32.ln() + 1.0).powi(2)),
        ("DeepSeek-V2-Lite", 128, 192f32.sqrt() / (0.1 * 0.707 * 40f32.ln() + 1.0).powi(2)),
    ];
    for (name, value, divisor) in cases {
        let spec = described(&changed(name, json!({})));
        let attention = spec.attentions().next().unwrap();
        assert_eq!((attention.kv_heads, attention.head_dim, attention.value_dim()), (1, 576, value), "{name}");
        assert_eq!(attention.kv_values(), KvValues::InKeys(512), "{name}");
        assert_eq!(spec.ropes[0].rotary(576), 64, "{name}");
        assert_eq!(spec.ropes[0].pairing, Pairing::Neighbours, "{name}");
        assert!((attention.scores.scale * divisor - 1.0).abs() < 1e-6, "{name}: {}", attention.scores.scale);
        assert_eq!(attention.latent.map(|latent| latent.norm.eps), Some(1e-6), "{name}");
    }
    let halves = described(&changed("DeepSeek-V3", json!({"rope_interleave": false})));
    assert_eq!(halves.ropes[0].pairing, Pairing::Halves);
}

#[test]
fn what_latent_attention_does_not_compute_is_refused_by_name() {
    for (name, field, value) in [
        ("GLM-4.7-Flash", "qk_rope_head_dim", json!(63)),
        ("GLM-4.7-Flash", "qk_nope_head_dim", json!(100)),
        ("GLM-4.7-Flash", "v_head_dim", json!(1024)),
        ("GLM-4.7-Flash", "kv_lora_rank", json!(508)),
        ("GLM-4.7-Flash", "kv_lora_rank", json!(1024)),
        ("GLM-4.7-Flash", "mlp_layer_types", json!(["dense"])),
        ("GLM-4.7-Flash", "topk_method", json!("greedy")),
        ("GLM-4.7-Flash", "partial_rotary_factor", json!(0.5)),
        ("DeepSeek-V3", "scoring_func", json!("softmax")),
        ("DeepSeek-V3", "moe_layer_freq", json!(2)),
        ("DeepSeek-V3", "kv_lora_rank", json!(0)),
        ("Mistral-Small-4", "n_group", json!(3)),
        ("Mistral-Small-4", "v_head_dim", json!(100)),
        ("Mistral-Small-4", "rope_parameters", json!({"rope_type": "default", "rope_theta": 1e4})),
        (
            "Mistral-Small-4",
            "rope_parameters",
            json!({"rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "partial_rotary_factor": 0.25}),
        ),
        ("DeepSeek-V2-Lite", "topk_method", json!("noaux_tc")),
        ("DeepSeek-V2-Lite", "norm_topk_prob", json!(true)),
    ] {
        let error = parse(&changed(name, json!({field: value}))).unwrap_err().to_string();
        let named = error.contains(field) || field == "rope_parameters" && error.contains("partial_rotary_factor");
        assert!(named, "{name} with {field}: {error}");
    }
}

#[test]
fn queries_of_mistral_4_grow_with_their_position() {
    let spec = described(&changed("Mistral-Small-4", json!({})));
    let attention = spec.attentions().next().unwrap();
    assert_eq!(attention.temperature, Some(Temperature { beta: 0.1, original_positions: 8192 }));
    assert_eq!((attention.head_dim, attention.value_dim(), spec.ropes[0].rotary(320)), (320, 128, 64));
    let divisor = 128f32.sqrt() / (0.1 * 128f32.ln() + 1.0).powi(2);
    assert!((attention.scores.scale * divisor - 1.0).abs() < 1e-6, "{}", attention.scores.scale);
    let silent =
        ["rope_parameters", "n_group", "topk_group", "first_k_dense_replace", "rope_interleave", "norm_topk_prob"];
    let silent = changed("Mistral-Small-4", silent.into_iter().map(|field| (field, json!("(absent)"))).collect());
    assert_eq!(described(&silent), spec);
    let rope = json!({"rope_theta": 1e4, "llama_4_scaling_beta": 0.0});
    let still = described(&changed("Mistral-Small-4", json!({"rope_parameters": rope})));
    assert_eq!(still.attentions().next().unwrap().temperature, None);
}

#[test]
fn gpt_oss_has_sinks_and_windows_in_every_second_layer() {
    let spec = described(&changed("gpt-oss-20b", json!({})));
    assert_eq!(spec.windows().collect::<Vec<_>>(), [Some(128), None].repeat(12));
    assert!(spec.attentions().all(|attention| {
        (attention.sinks, attention.qkv_bias, attention.output_bias) == (Sinks::Stored, Bias::Added, Bias::Added)
    }));
    let of_layer = experts(&spec.layers[0]);
    assert_eq!((of_layer.logits.bias, of_layer.expert.bias), (Bias::Added, Bias::Added));
    assert_eq!(of_layer.expert.form, MlpForm::gated(Activation::ClampedSwiglu));
    let absent = [
        "layer_types",
        "rope_scaling",
        "rope_theta",
        "attention_bias",
        "head_dim",
        "sliding_window",
        "num_key_value_heads",
    ];
    let silent = changed("gpt-oss-20b", absent.into_iter().map(|field| (field, json!("(absent)"))).collect());
    assert_eq!(described(&silent), spec);
}

#[test]
fn the_experts_of_nemotron_have_no_gates_and_layers_of_their_own() {
    let spec = described(&changed("Nemotron-3-Nano-30B-A3B", json!({})));
    assert_eq!((sparse(&spec.layers).len(), spec.layers.len()), (23, 52));
    let of_layer = experts(&spec.layers[1]);
    assert_eq!(
        of_layer.router,
        Router { chosen: 6, scores: Scores::Sigmoid, norm: Some(1e-20), scale: 2.5, ..SOFTMAX }
    );
    assert_eq!((of_layer.expert.form, of_layer.expert.width), (MlpForm::Ungated(Curve::ReluSquared), 1856));
    assert_eq!(
        of_layer.shared.as_ref().map(|shared| (shared.mlp.form, shared.mlp.width)),
        Some((MlpForm::Ungated(Curve::ReluSquared), 3712))
    );
}

#[test]
fn experts_of_nemotron_that_read_a_latent_are_beside_the_shared_one() {
    let changes = json!({
        "moe_latent_size": 1024, "n_routed_experts": 512, "num_experts_per_tok": 22, "num_nextn_predict_layers": 1,
        "mtp_hybrid_override_pattern": "*E"
    });
    let config = changed("Nemotron-3-Nano-30B-A3B", changes);
    let (described, unread) = parse(&config).unwrap();
    assert_eq!(unread, Vec::<String>::new());
    described.spec.check().unwrap();
    let [Sublayer { norms, branches }] = described.spec.layers[1].sublayers.as_slice() else { panic!("two sublayers") };
    assert!(norms.before.is_some() && norms.after.is_none());
    let [mixture, shared] = branches.as_slice() else { panic!("{branches:?}") };
    let Part::FeedForward(FeedForward::Experts(experts)) = &mixture.part else { panic!("{mixture:?}") };
    assert_eq!(experts.latent, Some(ExpertLatent { width: 1024, bias: Bias::None }));
    assert_eq!((experts.router.experts, experts.router.chosen, &experts.shared), (512, 22, &None));
    let Part::FeedForward(FeedForward::Shared(mlp)) = &shared.part else { panic!("{shared:?}") };
    assert_eq!((mlp.form, mlp.width), (MlpForm::Ungated(Curve::ReluSquared), 3712));
}

#[test]
fn the_experts_of_gemma_4_are_beside_the_mlp() {
    let spec = described(&changed("gemma-4-26B-A4B", json!({})));
    for layer in &spec.layers {
        let [_, Sublayer { norms, branches }] = layer.sublayers.as_slice() else { panic!("{layer:?}") };
        assert!(norms.before.is_some() && norms.after.is_some());
        let [dense, mixture] = branches.as_slice() else { panic!("{branches:?}") };
        assert!(dense.norms.before.is_none() && dense.norms.after.is_some() && mixture.norms.before.is_some());
        let Part::FeedForward(FeedForward::Experts(experts)) = &mixture.part else { panic!("{mixture:?}") };
        assert_eq!((experts.router, experts.expert.width), (SOFTMAX, 704));
        assert_eq!((experts.logits.norm, experts.logits.expert_scales), (Some(1e-6), ExpertScales::Stored));
        assert_eq!(dense.part.feed_forward().map(FeedForward::width), Some(2112));
    }
    let without = json!({"enable_moe_block": false});
    assert!(sparse(&described(&changed("gemma-4-26B-A4B", without)).layers).is_empty());
}

/// Each with the field that the message names.
#[test]
fn settings_of_experts_that_nobody_computes_are_refused_by_name() {
    let cases = [
        ("Qwen3-30B-A3B", "num_experts", json!(0)),
        ("Qwen3-30B-A3B", "num_experts", json!(4096)),
        ("Qwen3-30B-A3B", "num_experts", json!("(absent)")),
        ("Qwen3-30B-A3B", "num_experts_per_tok", json!(129)),
        ("Qwen3-30B-A3B", "num_experts_per_tok", json!(64)),
        ("Qwen3-30B-A3B", "num_local_experts", json!(64)),
        ("Qwen3-30B-A3B", "moe_intermediate_size", json!("(absent)")),
        ("Qwen3-30B-A3B", "mlp_only_layers", json!([48])),
        ("Qwen3-30B-A3B", "mlp_only_layers", json!(1)),
        ("Qwen3-30B-A3B", "decoder_sparse_step", json!(0)),
        ("Qwen3-30B-A3B", "norm_topk_prob", json!("yes")),
        ("Qwen3-30B-A3B", "routed_scaling_factor", json!(2.5)),
        ("Mixtral-8x7B", "num_experts", json!(16)),
        ("Mixtral-8x7B", "hidden_act", json!("gelu")),
        ("OLMoE-1B-7B", "clip_qkv", json!(8.0)),
        ("OLMoE-1B-7B", "n_shared_experts", json!(1)),
        ("Qwen3-Next-80B-A3B", "shared_expert_intermediate_size", json!(0)),
        ("GLM-4.5-Air", "n_group", json!(3)),
        ("GLM-4.5-Air", "n_group", json!(65)),
        ("GLM-4.5-Air", "topk_group", json!(2)),
        ("GLM-4.5-Air", "n_shared_experts", json!(0)),
        ("GLM-4.5-Air", "first_k_dense_replace", json!(47)),
        ("GLM-4.5-Air", "routed_scaling_factor", json!(0.0)),
        ("LFM2-8B-A1B", "num_dense_layers", json!(-1)),
        ("LFM2-8B-A1B", "use_expert_bias", json!(1)),
        ("ERNIE-4.5-21B-A3B", "moe_norm_min", json!(0.1)),
        ("ERNIE-4.5-21B-A3B", "moe_k", json!(65)),
        ("ERNIE-4.5-21B-A3B", "moe_layer_end_index", json!(-2)),
        ("ERNIE-4.5-21B-A3B", "moe_layer_start_index", json!("one")),
        ("granite-4.0-h-tiny", "num_local_experts", json!(5)),
        ("gemma-4-26B-A4B", "num_experts", json!("(absent)")),
        ("gemma-4-26B-A4B", "top_k_experts", json!(64)),
        ("gemma-4-26B-A4B", "moe_intermediate_size", json!("(absent)")),
        ("gemma-4-26B-A4B", "enable_moe_block", json!("yes")),
        ("Nemotron-3-Nano-30B-A3B", "moe_latent_size", json!(0)),
        ("Nemotron-3-Nano-30B-A3B", "n_routed_experts", json!("(absent)")),
        ("Nemotron-3-Nano-30B-A3B", "moe_shared_expert_intermediate_size", json!("(absent)")),
        ("Qwen1.5-MoE-A2.7B", "qkv_bias", json!("yes")),
        ("Qwen1.5-MoE-A2.7B", "max_window_layers", json!(-1)),
        ("Qwen1.5-MoE-A2.7B", "shared_expert_intermediate_size", json!(0)),
        ("granite-3.1-1b-a400m", "num_local_experts", json!(5)),
        ("moe-7b-1b-active-shared-experts", "shared_intermediate_size", json!(-1)),
        ("MiniMax-M2", "scoring_func", json!("softmax")),
        ("MiniMax-M2", "qk_norm_type", json!("per_head")),
        ("MiniMax-M2", "use_qk_norm", json!(false)),
        ("MiniMax-M2", "use_routing_bias", json!(false)),
        ("MiniMax-M2", "rotary_dim", json!(0)),
        ("MiniMax-M2", "sliding_window", json!(4096)),
        ("dots.llm1", "layer_types", json!(vec!["sliding_attention"; 62])),
        ("dots.llm1", "moe_layer_freq", json!(2)),
        ("Solar-Open-100B", "use_qk_norm", json!(true)),
        ("Solar-Open-100B", "partial_rotary_factor", json!(0.5)),
        ("K-EXAONE-236B-A23B", "mlp_layer_types", json!(["dense"])),
        ("K-EXAONE-236B-A23B", "num_shared_experts", json!(0)),
        ("K-EXAONE-236B-A23B", "sliding_window", json!(null)),
        ("Trinity-Mini", "route_norm", json!(false)),
        ("Trinity-Mini", "score_func", json!("softmax")),
        ("Trinity-Mini", "route_scale", json!(0)),
        ("Trinity-Mini", "num_dense_layers", json!(33)),
        ("FlexOlmo-7x7B-1T", "num_experts_per_tok", json!(8)),
        ("Hunyuan-A13B", "moe_topk", json!([8, 4])),
        ("Hunyuan-A13B", "moe_topk", json!([])),
        ("Hunyuan-A13B", "moe_topk", json!(65)),
        ("Hunyuan-A13B", "norm_topk_prob", json!(false)),
        ("Hunyuan-A13B", "use_mla", json!(true)),
        ("gpt-oss-20b", "swiglu_limit", json!(10.0)),
        ("gpt-oss-20b", "swiglu_alpha", json!(1.0)),
        ("gpt-oss-20b", "num_local_experts", json!(3)),
        ("gpt-oss-20b", "sliding_window", json!(0)),
        ("gpt-oss-20b", "layer_types", json!(["full_attention"])),
        ("gpt-oss-20b", "hidden_act", json!("gelu")),
        ("gpt-oss-20b", "attention_bias", json!("yes")),
        ("gpt-oss-20b", "quantization_config", json!({"quant_method": "mxfp8"})),
    ];
    for (name, field, value) in cases {
        let changes = match (field, name) {
            // One group cannot be two.
            ("topk_group", _) => json!({"n_group": 1, "topk_group": value}),
            _ => json!({field: value}),
        };
        match parse(&changed(name, changes)).and_then(|(description, _)| description.spec.check()) {
            Err(Error::UnsupportedModel { setting, .. }) => assert_eq!(setting, field, "{name}"),
            Err(Error::ModelFile { reason, .. }) => assert!(reason.contains(field), "{name}, {field}: {reason}"),
            other => panic!("{name}, {field}: {other:?}"),
        }
    }
}

/// A dense class computes no experts.
#[test]
fn a_mixture_under_the_class_of_a_dense_family_is_refused() {
    for (name, class) in [
        ("Qwen3-30B-A3B", "Qwen3ForCausalLM"),
        ("Mixtral-8x7B", "MistralForCausalLM"),
        ("OLMoE-1B-7B", "LlamaForCausalLM"),
        ("GLM-4.5-Air", "LlamaForCausalLM"),
        ("LFM2-8B-A1B", "Lfm2ForCausalLM"),
        ("ERNIE-4.5-21B-A3B", "Ernie4_5ForCausalLM"),
        ("gpt-oss-20b", "LlamaForCausalLM"),
        ("Qwen1.5-MoE-A2.7B", "Qwen2ForCausalLM"),
        ("granite-3.1-1b-a400m", "GraniteForCausalLM"),
        ("MiniMax-M2", "MixtralForCausalLM"),
        ("dots.llm1", "Qwen3ForCausalLM"),
        ("K-EXAONE-236B-A23B", "Exaone4ForCausalLM"),
        ("Trinity-Mini", "Qwen3ForCausalLM"),
        ("Hunyuan-A13B", "HunYuanDenseV1ForCausalLM"),
    ] {
        let refused = parse(&changed(name, json!({"architectures": [class], "model_type": "(absent)"})));
        assert!(matches!(refused, Err(Error::UnsupportedModel { .. })), "{name} as {class}: {refused:?}");
    }
}
