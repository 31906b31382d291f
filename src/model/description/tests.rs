use super::*;
use crate::spec::{Bias, FeedForward, HeadWeights, Norm, NormOrder, QkNorm};
use serde_json::{Value, json};
use std::path::Path;

/// Families that differ little from the standard decoder.
const PLAIN: [&str; 4] = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"];

/// The config of Qwen3-0.6B as its folder has it, with changes.
fn parse(changes: Value) -> Result<Description> {
    let mut config = json!({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "bos_token_id": 151643,
        "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
        "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
        "use_sliding_window": false, "vocab_size": 151936
    });
    let object = config.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value.as_str() {
            Some("(absent)") => drop(object.remove(name)),
            _ => drop(object.insert(name.clone(), value.clone())),
        }
    }
    Description::of(&HfConfig::parse(Path::new("config.json"), config.to_string().as_bytes())?)
}

#[test]
fn the_config_of_a_real_model_is_read() {
    let spec = parse(json!({})).unwrap().spec;
    assert_eq!((spec.layers.len(), spec.hidden, spec.vocab, spec.max_positions), (28, 1024, 151936, 40960));
    assert_eq!(
        (spec.layers[0].feed_forward().unwrap().width(), spec.head.weights, spec.ropes[0].theta),
        (3072, HeadWeights::Tied, 1e6)
    );
    let attention = spec.layers[0].attention().unwrap();
    assert_eq!((attention.scores.heads, attention.kv_heads, attention.head_dim), (16, 8, 128));
    assert_eq!(
        (attention.qk_norm, attention.qkv_bias),
        (QkNorm::PerHead { norm: spec.final_norm.unwrap(), order: NormOrder::BeforeRope }, Bias::None)
    );
}

#[test]
fn what_is_absent_or_null_has_the_default_of_its_family() {
    for gone in [json!("(absent)"), json!(null)] {
        let config = parse(json!({
            "num_key_value_heads": gone, "head_dim": gone, "rms_norm_eps": gone, "tie_word_embeddings": gone,
            "hidden_act": gone, "bos_token_id": gone, "eos_token_id": gone, "rope_theta": gone
        }));
        let Description { spec, bos_token, eos_tokens, .. } = config.unwrap();
        assert_eq!((spec.layers[0].attention().unwrap().kv_heads, spec.final_norm.unwrap().eps), (16, 1e-6));
        assert_eq!((spec.head.weights, spec.ropes[0].theta), (HeadWeights::Own, 10_000.0));
        assert_eq!((bos_token, eos_tokens.len()), (None, 0));
        assert_eq!(spec.layers[0].attention().unwrap().head_dim, 128, "Qwen3 has its own default");
    }
    let changes = json!({"architectures": ["LlamaForCausalLM"], "head_dim": null});
    assert_eq!(parse(changes).unwrap().spec.layers[0].attention().unwrap().head_dim, 64, "hidden_size / heads");
}

#[test]
fn families_differ_in_norms_and_biases() {
    let of = |name: &str, flag: bool| {
        let changes = json!({"architectures": [name], "attention_bias": flag, "mlp_bias": flag});
        let spec = parse(changes).unwrap().spec;
        let attention = spec.layers[0].attention().unwrap();
        let Some(FeedForward::Dense(mlp)) = spec.layers[0].feed_forward() else { panic!("{:?}", spec.layers[0]) };
        (attention.qk_norm, attention.qkv_bias, attention.output_bias, mlp.bias)
    };
    use Bias::{Added, None as No};
    let per_head = QkNorm::PerHead { norm: Norm::rms(1e-6), order: NormOrder::BeforeRope };
    assert_eq!(of("Qwen3ForCausalLM", true), (per_head, Added, Added, No));
    assert_eq!(of("Qwen2ForCausalLM", false), (QkNorm::None, Added, No, No));
    assert_eq!(of("LlamaForCausalLM", false), (QkNorm::None, No, No, No));
    assert_eq!(of("LlamaForCausalLM", true), (QkNorm::None, Added, Added, Added));
}

#[test]
fn end_tokens_are_a_number_or_a_list() {
    assert_eq!(parse(json!({"eos_token_id": 7})).unwrap().eos_tokens, [7]);
    assert_eq!(parse(json!({"eos_token_id": [7, 9]})).unwrap().eos_tokens, [7, 9]);
    for wrong in [json!(-1), json!("7"), json!([7, null]), json!(1.5), json!(1u64 << 40)] {
        assert!(matches!(parse(json!({"eos_token_id": wrong})), Err(Error::ModelFile { .. })), "{wrong}");
    }
}

#[test]
fn a_field_that_is_missing_or_absurd_is_named() {
    let counts = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"];
    let absurd =
        [json!(0), json!(-4), json!(1.5), json!("many"), json!([1]), json!(u64::MAX), json!(1e30), json!(true)];
    for field in counts.iter().chain(&["max_position_embeddings"]) {
        for value in absurd.iter().chain(&[json!("(absent)"), json!(null)]) {
            match parse(json!({*field: value})) {
                Err(Error::ModelFile { reason, .. }) => assert!(reason.contains(field), "{reason}"),
                other => panic!("{field} = {value}: {other:?}"),
            }
        }
    }
    for (field, value) in [
        ("num_key_value_heads", json!(3)),
        ("num_key_value_heads", json!(32)),
        ("head_dim", json!(0)),
        ("rms_norm_eps", json!(-1e-6)),
        ("tie_word_embeddings", json!("yes")),
        ("attention_bias", json!(1)),
        ("architectures", json!("Qwen3ForCausalLM")),
        ("hidden_act", json!(4)),
        ("quantization_config", json!([])),
    ] {
        match parse(json!({field: value})) {
            Err(Error::ModelFile { reason, .. }) => assert!(reason.contains(field), "{reason}"),
            other => panic!("{field} = {value}: {other:?}"),
        }
    }
}

#[test]
fn a_long_value_is_cut_in_the_message() {
    let Err(error) = parse(json!({"hidden_size": "é".repeat(5000)})) else { panic!("accepted") };
    assert!(error.to_string().len() < 300, "{error}");
}

#[test]
fn what_the_decoder_does_not_compute_is_unsupported() {
    for (field, value) in [
        ("hidden_act", json!("gelu")),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("quantization_config", json!({"quant_method": "bitsandbytes", "bits": 4})),
        ("compression_config", json!({"quant_method": "compressed-tensors"})),
        ("hidden_activation", json!("gelu_pytorch_tanh")),
        ("sliding_window_pattern", json!(6)),
        ("_sliding_window_pattern", json!(6)),
        ("interleaved_sliding_window", json!([4096, 4096])),
        ("layer_types", json!("full_attention")),
        ("attention_chunk_size", json!(8192)),
        ("use_bidirectional_attention", json!(true)),
        ("is_causal", json!(false)),
        ("query_pre_attn_scalar", json!(256)),
        ("attn_logit_softcapping", json!(50.0)),
        ("attn_temperature_tuning", json!(true)),
        ("clip_qkv", json!(8.0)),
        ("attention_multiplier", json!(0.0078125)),
        ("embedding_multiplier", json!(12.0)),
        ("residual_multiplier", json!(0.22)),
        ("logits_scaling", json!(8.0)),
        ("scale_emb", json!(12)),
        ("scale_depth", json!(1.4)),
        ("dim_model_base", json!(256)),
        ("logit_scale", json!(0.0625)),
        ("final_logit_softcapping", json!(30.0)),
        ("no_rope_layers", json!([1, 1, 1, 0])),
        ("no_rope_layer_interval", json!(4)),
        ("rope_local_base_freq", json!(10000)),
        ("partial_rotary_factor", json!(0.5)),
        ("rotary_pct", json!(0.25)),
        ("rotary_dim", json!(64)),
        ("rope_interleave", json!(true)),
        ("rope_interleaved", json!(true)),
        ("alibi", json!(true)),
        ("parallel_attn", json!(true)),
        ("use_parallel_residual", json!(true)),
        ("apply_residual_connection_post_layernorm", json!(true)),
        ("model_type", json!("qwen2")),
    ] {
        for class in PLAIN {
            match parse(json!({"architectures": [class], field: value})) {
                Err(Error::UnsupportedModel { setting, .. }) => assert_eq!(setting, field, "{class}"),
                Ok(_) if (field, class) == ("model_type", "Qwen2ForCausalLM") => {}
                other => panic!("{class}, {field} = {value}: {other:?}"),
            }
        }
    }
    let scaling = json!({"rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.1});
    match parse(json!({"rope_parameters": scaling})) {
        Err(Error::UnsupportedModel { setting, .. }) => assert_eq!(setting, "llama_4_scaling_beta"),
        other => panic!("{other:?}"),
    }
    for head_dim in [127, 1024] {
        let described = parse(json!({"head_dim": head_dim}));
        assert!(matches!(described, Err(Error::UnsupportedModel { setting: "head_dim", .. })));
    }
}

#[test]
fn a_setting_that_changes_nothing_is_accepted() {
    for (field, value) in [
        ("hidden_activation", json!("silu")),
        ("layer_types", json!(["full_attention", "full_attention"])),
        ("is_causal", json!(true)),
        ("embedding_multiplier", json!(1)),
        ("residual_multiplier", json!(1.0)),
        ("no_rope_layers", json!([1, 1])),
        ("rotary_pct", json!(1.0)),
        ("partial_rotary_factor", json!(1.0)),
        ("alibi", json!(false)),
    ] {
        for class in PLAIN {
            for value in [&value, &Value::Null] {
                let opened = parse(json!({"architectures": [class], field: value}));
                assert!(opened.is_ok(), "{class}, {field} = {value}: {opened:?}");
            }
        }
    }
}

#[test]
fn mistral_has_a_window_in_every_layer_unless_the_config_says_null() {
    for (window, wanted) in
        [(json!(4096), Some(4096)), (json!(16), Some(16)), (json!(null), None), (json!("(absent)"), Some(4096))]
    {
        let described = parse(json!({"architectures": ["MistralForCausalLM"], "sliding_window": window})).unwrap();
        assert!(described.spec.windows().all(|found| found == wanted), "{window}");
        assert_eq!(described.spec.windows().count(), 28);
    }
    let changes = json!({"architectures": ["MistralForCausalLM"], "head_dim": "(absent)"});
    assert_eq!(parse(changes).unwrap().spec.layers[0].attention().unwrap().head_dim, 64, "hidden_size / heads");
    let without = parse(json!({"architectures": ["MistralForCausalLM"], "sliding_window": 0}));
    assert!(matches!(without, Err(Error::ModelFile { .. })), "a window of no tokens");
}

#[test]
fn a_window_that_is_in_effect_is_read_or_refused() {
    let of = |class: &str, window: Value, used: Value| {
        parse(json!({"architectures": [class], "sliding_window": window, "use_sliding_window": used})).is_ok()
    };
    for qwen in ["Qwen2ForCausalLM", "Qwen3ForCausalLM"] {
        assert!(
            of(qwen, json!(4096), json!(false)) && of(qwen, json!(4096), json!("(absent)")),
            "off unless switched on"
        );
    }
    let qwen = |changes: Value| {
        let mut all = json!({"sliding_window": 512, "use_sliding_window": true, "max_window_layers": 26});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        parse(all).unwrap().spec.windows().collect::<Vec<_>>()
    };
    let last_two = [vec![None; 26], vec![Some(512); 2]].concat();
    assert_eq!(qwen(json!({})), last_two);
    assert_eq!(qwen(json!({"architectures": ["Qwen2ForCausalLM"]})), last_two);
    assert_eq!(qwen(json!({"max_window_layers": 0})), vec![Some(512); 28]);
    assert_eq!(qwen(json!({"sliding_window": null})), vec![None; 28]);
    let first = [vec!["sliding_attention"], vec!["full_attention"; 27]].concat();
    assert_eq!(qwen(json!({"layer_types": first})), [vec![Some(512)], vec![None; 27]].concat());
    let llama = "LlamaForCausalLM";
    assert!(of(llama, json!(null), json!("(absent)")) && of(llama, json!(4096), json!(false)));
    assert!(!of(llama, json!(4096), json!("(absent)")), "a Mistral under the name of Llama");
}

#[test]
fn a_message_names_the_setting_its_value_and_what_is_read() {
    let message = |changes| parse(changes).unwrap_err().to_string();
    for (changes, wanted) in [
        (
            json!({"residual_multiplier": 0.22}),
            "config.json: residual_multiplier is 0.22, which is not supported: it must be 1 in a model of this class",
        ),
        (
            json!({"model_type": "granite", "architectures": ["LlamaForCausalLM"]}),
            "config.json: model_type is granite beside LlamaForCausalLM, which is not supported: it must be llama",
        ),
        (
            json!({"quantization_config": {"quant_method": "bitsandbytes", "bits": 4}}),
            "config.json: quantization_config is bitsandbytes, which is not supported: it must be absent, or have quant_method compressed-tensors, fp8, awq, gptq, mxfp4 or modelopt",
        ),
        (json!({"hidden_act": "gelu"}), "config.json: hidden_act is gelu, which is not supported: it must be silu"),
    ] {
        assert_eq!(message(changes), wanted);
    }
}

#[test]
fn the_configs_of_published_models_are_read() {
    for (name, config) in published() {
        let parsed = HfConfig::parse(Path::new("config.json"), config.to_string().as_bytes());
        let (described, unread) = parsed
            .and_then(|config| Description::and_unread(&config))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(unread, Vec::<String>::new(), "{name}");
        assert_eq!(described.spec.layers.len() as u64, config["num_hidden_layers"].as_u64().unwrap(), "{name}");
    }
}

/// Configs with every field that the folders of these models have.
fn published() -> [(&'static str, Value); 9] {
    [
        (
            "Mistral-7B-v0.1",
            json!({
                "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
                "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
                "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
                "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
                "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
                "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000
            }),
        ),
        (
            "Mistral-7B-Instruct-v0.3",
            json!({
                "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
                "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
                "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
                "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
                "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0", "use_cache": true,
                "vocab_size": 32768
            }),
        ),
        (
            "Mistral-Nemo-Instruct-2407",
            json!({
                "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
                "eos_token_id": 2, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
                "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
                "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
                "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
                "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.0.dev0",
                "use_cache": true, "vocab_size": 131072
            }),
        ),
        (
            "Qwen2.5-0.5B-Instruct",
            json!({
                "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
                "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
                "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
                "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
                "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
                "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
                "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
            }),
        ),
        (
            "DeepSeek-R1-Distill-Qwen-1.5B",
            json!({
                "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
                "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
                "intermediate_size": 8960, "max_position_embeddings": 131072, "max_window_layers": 21,
                "model_type": "qwen2", "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2,
                "rms_norm_eps": 1e-06, "rope_theta": 10000, "sliding_window": 4096, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16", "transformers_version": "4.44.0", "use_cache": true, "use_mrope": false,
                "use_sliding_window": false, "vocab_size": 151936
            }),
        ),
        (
            "Qwen3-0.6B",
            json!({
                "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
                "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
                "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
                "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
                "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
                "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
                "use_sliding_window": false, "vocab_size": 151936
            }),
        ),
        (
            "Llama-2-7b-chat-hf",
            json!({
                "_name_or_path": "meta-llama/Llama-2-7b-chat-hf", "architectures": ["LlamaForCausalLM"],
                "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
                "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
                "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
                "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
                "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.32.0.dev0",
                "use_cache": true, "vocab_size": 32000
            }),
        ),
        (
            "Llama-3.2-1B-Instruct",
            json!({
                "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
                "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
                "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
                "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
                "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
                    "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
                "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
                "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256
            }),
        ),
        (
            "SmolLM2-135M-Instruct",
            json!({
                "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
                "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
                "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
                "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1,
                "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
                "tie_word_embeddings": true, "torch_dtype": "bfloat16",
                "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}},
                "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152
            }),
        ),
    ]
}

/// Models of other families under the name of one that is known, by what their configs keep.
#[test]
fn a_model_under_the_name_of_another_class_is_refused() {
    for (name, class, kept) in [
        (
            "Granite",
            "LlamaForCausalLM",
            json!({"residual_multiplier": 0.22, "embedding_multiplier": 12.0,
            "attention_multiplier": 0.015625, "logits_scaling": 8.0}),
        ),
        ("Granite", "LlamaForCausalLM", json!({"model_type": "granite"})),
        ("SmolLM3", "LlamaForCausalLM", json!({"no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4})),
        ("SmolLM3", "LlamaForCausalLM", json!({"model_type": "smollm3"})),
        ("ERNIE 4.5", "LlamaForCausalLM", json!({"model_type": "ernie4_5"})),
        ("Mistral 7B v0.1", "LlamaForCausalLM", json!({"sliding_window": 4096, "use_sliding_window": "(absent)"})),
        ("Mistral 7B v0.1", "LlamaForCausalLM", json!({"model_type": "mistral"})),
        ("Gemma", "LlamaForCausalLM", json!({"hidden_act": "gelu_pytorch_tanh"})),
        ("Gemma 2", "LlamaForCausalLM", json!({"query_pre_attn_scalar": 256, "final_logit_softcapping": 30.0})),
        ("Gemma 3", "Qwen3ForCausalLM", json!({"hidden_activation": "gelu_pytorch_tanh"})),
        ("Gemma 3", "Qwen3ForCausalLM", json!({"query_pre_attn_scalar": 256, "rope_local_base_freq": 10000.0})),
        ("Gemma 3", "Qwen3ForCausalLM", json!({"layer_types": ["sliding_attention", "full_attention"]})),
    ] {
        let mut changes = kept;
        changes["architectures"] = json!([class]);
        assert!(matches!(parse(changes), Err(Error::UnsupportedModel { .. })), "{name} as {class}");
    }
}

#[test]
fn an_architecture_is_known_or_the_known_ones_are_listed() {
    for names in [json!(["MambaForCausalLM"]), json!([]), json!(null), json!("(absent)")] {
        match parse(json!({"architectures": names})) {
            Err(Error::Architecture { known, .. }) => {
                assert!(PLAIN.iter().chain(&["Gemma3ForConditionalGeneration"]).all(|class| known.contains(class)));
            }
            other => panic!("{names}: {other:?}"),
        }
    }
}
