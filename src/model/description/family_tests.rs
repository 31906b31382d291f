//! What the families read in configs of the form that published models have, and what they refuse.

use super::family_configs::{configs, layers};
use super::*;
use crate::rope::RopeScaling;
use crate::spec::{
    Activation, Bias, FeedForward, HeadWeights, KvSource, LayerInputs, LayerSpec, MlpForm, Norm, NormKind, NormOrder,
    NormWeight, OutputGate, QkNorm, SelfAttention, StreamScale, SublayerNorms, Values,
};
use compute::Pairing;
use serde_json::{Value, json};
use std::path::Path;

pub(super) fn parse(config: &Value) -> Result<(Description, Vec<String>)> {
    Description::and_unread(&HfConfig::parse(Path::new("config.json"), config.to_string().as_bytes())?)
}

pub(super) fn described(config: &Value) -> DecoderSpec {
    parse(config).unwrap_or_else(|error| panic!("{}: {error}", config["architectures"])).0.spec
}

/// The config of `name` among [`configs`], with changes; `"(absent)"` removes a field.
pub(super) fn changed(name: &str, changes: Value) -> Value {
    let mut config = configs().into_iter().find(|(found, _)| *found == name).unwrap().1;
    for (name, value) in changes.as_object().unwrap() {
        match value.as_str() {
            Some("(absent)") => drop(config.as_object_mut().unwrap().remove(name)),
            _ => config[name] = value.clone(),
        }
    }
    config
}

fn attention(layer: &LayerSpec) -> &SelfAttention {
    layer.attention().unwrap_or_else(|| panic!("{layer:?}"))
}

/// Whether each layer has a window, and whether it rotates.
fn windows(spec: &DecoderSpec) -> Vec<(Option<usize>, Option<usize>)> {
    spec.layers.iter().map(attention).map(|attention| (attention.scores.window, attention.rope)).collect()
}

#[test]
fn no_field_of_a_published_config_is_left_unread() {
    for (name, config) in configs() {
        let (described, unread) = parse(&config).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(unread, Vec::<String>::new(), "{name}");
        let decoder = config.get("text_config").unwrap_or(&config);
        assert_eq!(described.spec.layers.len() as u64, decoder["num_hidden_layers"].as_u64().unwrap(), "{name}");
    }
}

/// transformers writes every field of a class, those of training and of generation included.
#[test]
fn no_field_that_transformers_writes_is_left_unread() {
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden"));
    let configs = golden.read_dir().unwrap().map(|entry| entry.unwrap().path().join("config.json"));
    let mut count = 0;
    for path in configs.filter(|path| path.exists()) {
        let config = HfConfig::parse(&path, &std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(Description::and_unread(&config).unwrap().1, Vec::<String>::new(), "{}", path.display());
        count += 1;
    }
    assert!(count >= 60, "{count} checkpoints");
}

#[test]
fn a_field_that_nothing_reads_is_named() {
    let config = changed("Phi-4", json!({"new_trick": 3, "rope_scaling": {"type": "default", "new_factor": 2.0}}));
    let mut unread = parse(&config).unwrap().1;
    unread.sort();
    assert_eq!(unread, ["new_trick", "rope_scaling.new_factor"]);
    let config = changed("gemma-3-4b", json!({"new_trick": {"of": "a wrapper"}}));
    assert_eq!(parse(&config).unwrap().1, ["new_trick"]);
    let config = changed("Phi-4", json!({"new_trick": null, "old_trick": {}, "other_bias": false}));
    assert_eq!(parse(&config).unwrap().1, Vec::<String>::new(), "nothing is asked for");
}

#[test]
fn phi_has_long_factors_and_windows() {
    let spec = described(&changed("Phi-4-mini", json!({})));
    let rope = &spec.ropes[0];
    assert!(matches!(&rope.scaling, RopeScaling::LongRope { long_factors, .. } if long_factors.len() == 48));
    assert_eq!((rope.rotary(128), spec.head.weights), (96, HeadWeights::Tied));
    assert_eq!(windows(&spec), vec![(Some(262144), Some(0)); 32]);
    assert_eq!(windows(&described(&changed("Phi-3-mini-4k", json!({})))), vec![(Some(2047), Some(0)); 32]);
}

#[test]
fn smollm3_rotates_three_of_four_layers() {
    let pattern = [(None, Some(0)), (None, Some(0)), (None, Some(0)), (None, None)].repeat(9);
    assert_eq!(windows(&described(&changed("SmolLM3-3B", json!({})))), pattern);
    let by_interval = json!({"no_rope_layers": "(absent)", "layer_types": "(absent)"});
    assert_eq!(windows(&described(&changed("SmolLM3-3B", by_interval))), pattern);
    assert_eq!(
        described(&changed("SmolLM3-3B", json!({}))).head.weights,
        HeadWeights::Tied,
        "unless the config says other"
    );
}

#[test]
fn granite_has_four_factors() {
    let spec = described(&changed("granite-3.3-2b", json!({})));
    assert_eq!((spec.embedding_scale, spec.head.scale), (12.0, 0.125));
    assert_eq!(
        (spec.layers[7].sublayers[1].branches[0].scale, attention(&spec.layers[7]).scores.scale),
        (0.22, 0.015625)
    );
    let four = described(&changed("granite-4.0-micro", json!({})));
    assert_eq!((four.layers[0].feed_forward().unwrap().width(), attention(&four.layers[0]).rope), (8192, Some(0)));
    for other in [json!("nope"), json!(null)] {
        let four = described(&changed("granite-4.0-micro", json!({"position_embedding_type": other})));
        assert_eq!(attention(&four.layers[0]).rope, None);
    }
}

#[test]
fn gemma_scales_by_one_more_than_its_norms_say() {
    for (name, window) in [("gemma-2-2b", 4096), ("gemma-3-1b", 512), ("gemma-3-4b", 1024)] {
        let spec = described(&changed(name, json!({})));
        for norms in [spec.layers[0].sublayers[0].norms, spec.layers[3].sublayers[1].norms] {
            for norm in [norms.before, norms.after, spec.final_norm] {
                let norm = norm.unwrap_or_else(|| panic!("{name}: a norm is missing"));
                assert_eq!((norm.kind, norm.weight), (NormKind::Rms, NormWeight::PlusOne), "{name}");
            }
        }
        let Some(FeedForward::Dense(mlp)) = spec.layers[0].feed_forward() else { panic!() };
        assert_eq!((mlp.form, spec.head.weights), (MlpForm::gated(Activation::GeluTanh), HeadWeights::Tied), "{name}");
        assert_eq!(windows(&spec)[0].0, Some(window), "{name}");
    }
    let two = described(&changed("gemma-2-2b", json!({})));
    assert_eq!((two.head.softcap, attention(&two.layers[0]).scores.softcap), (Some(30.0), Some(50.0)));
    assert_eq!(windows(&two)[..2], [(Some(4096), Some(0)), (None, Some(0))]);
    // The root of 2,304 is 48; that of 1,152 is 33.94, which bf16 has as 34.
    assert_eq!((two.embedding_scale, described(&changed("gemma-3-1b", json!({}))).embedding_scale), (48.0, 34.0));
}

#[test]
fn gemma_3_has_the_defaults_of_its_class_where_the_config_is_silent() {
    let spec = described(&changed("gemma-3-4b", json!({})));
    let first = attention(&spec.layers[0]);
    assert_eq!((spec.vocab, spec.max_positions, first.scores.heads, first.kv_heads), (262208, 131072, 8, 4));
    assert_eq!((first.head_dim, first.scores.scale, first.scores.softcap), (256, 1.0 / 16.0, None));
    assert_eq!(windows(&spec)[4..7], [(Some(1024), Some(0)), (None, Some(1)), (Some(1024), Some(0))]);
    assert_eq!((spec.ropes[0].theta, &spec.ropes[0].scaling), (1e4, &RopeScaling::None));
    assert_eq!((spec.ropes[1].theta, &spec.ropes[1].scaling), (1e6, &RopeScaling::Linear { factor: 8.0 }));
    let capped = described(&changed("gemma-3-1b", json!({"final_logit_softcapping": 30.0})));
    assert_eq!((spec.head.softcap, capped.head.softcap), (None, Some(30.0)));
    assert!(
        matches!(first.qk_norm, QkNorm::PerHead { order: NormOrder::BeforeRope, norm } if norm.weight == NormWeight::PlusOne)
    );
}

#[test]
fn olmo_normalizes_what_a_part_adds() {
    for name in ["OLMo-2-1B", "Olmo-3-7B", "EXAONE-4.0-32B"] {
        let spec = described(&changed(name, json!({})));
        for layer in &spec.layers {
            for norms in layer.sublayers.iter().map(|sublayer| sublayer.norms) {
                assert_eq!((norms.before, norms.after), (None, spec.final_norm), "{name}");
            }
        }
        let is_whole = matches!(attention(&spec.layers[0]).qk_norm, QkNorm::Whole(_));
        assert_eq!(is_whole, name != "EXAONE-4.0-32B");
    }
    let three = described(&changed("Olmo-3-7B", json!({})));
    assert_eq!(windows(&three)[2..5], [(Some(4096), Some(0)), (None, Some(1)), (Some(4096), Some(0))]);
    assert_eq!((three.ropes[0].theta, &three.ropes[0].scaling), (5e5, &RopeScaling::None));
    assert!(matches!(three.ropes[1].scaling, RopeScaling::Yarn { .. }));
    let windowless = changed("Olmo-3-7B", json!({"layer_types": "(absent)"}));
    assert_eq!(windows(&described(&windowless)), windows(&three), "the same by default");
}

#[test]
fn exaone_rotates_layers_with_a_window_or_all() {
    let large = windows(&described(&changed("EXAONE-4.0-32B", json!({}))));
    assert_eq!(large, [(Some(4096), Some(0)), (Some(4096), Some(0)), (Some(4096), Some(0)), (None, None)].repeat(16));
    for pattern in [json!("LLLG"), json!(4), json!("(absent)")] {
        let changes = json!({"layer_types": "(absent)", "sliding_window_pattern": pattern});
        assert_eq!(windows(&described(&changed("EXAONE-4.0-32B", changes))), large, "{pattern}");
    }
    assert_eq!(windows(&described(&changed("EXAONE-4.0-1.2B", json!({})))), vec![(None, Some(0)); 30]);
    // transformers does not read the pattern where there is a list, and writes 4 if nothing else was said.
    let listed = json!({"layer_types": layers(&["S", "F"], 32), "sliding_window_pattern": 4});
    let every_second = [(Some(4096), Some(0)), (None, None)].repeat(32);
    assert_eq!(windows(&described(&changed("EXAONE-4.0-32B", listed))), every_second);
}

#[test]
fn hunyuan_normalizes_after_a_rotation_whose_base_is_scaled_once() {
    let spec = described(&changed("Hunyuan-1.8B", json!({})));
    assert!(matches!(attention(&spec.layers[0]).qk_norm, QkNorm::PerHead { order: NormOrder::AfterRope, .. }));
    let theta = 10_000.0 * 1000.0f64.powf(128.0 / 126.0);
    assert_eq!((spec.ropes[0].theta, &spec.ropes[0].scaling), (theta, &RopeScaling::None));
}

#[test]
fn glm_4_and_cohere_rotate_neighbours() {
    let glm = described(&changed("GLM-4-9B-0414", json!({})));
    assert_eq!((glm.ropes[0].rotary(128), glm.ropes[0].pairing), (64, Pairing::Neighbours));
    assert_eq!((attention(&glm.layers[0]).qkv_bias, attention(&glm.layers[0]).output_bias), (Bias::Added, Bias::None));
    let cohere = described(&changed("c4ai-command-r7b", json!({})));
    assert_eq!((cohere.layers[0].sublayers.len(), cohere.final_norm.unwrap().kind), (1, NormKind::Layer));
    assert_eq!((cohere.head.scale, cohere.ropes[0].pairing), (0.25, Pairing::Neighbours));
    assert_eq!(windows(&cohere)[2..4], [(Some(4096), Some(0)), (None, None)]);
}

#[test]
fn older_families_have_norms_of_their_own() {
    let norms = |name: &str| {
        let spec = described(&changed(name, json!({})));
        let norm = spec.final_norm.unwrap();
        assert!(
            spec.layers.iter().flat_map(|layer| &layer.sublayers).all(|part| part.norms.before == Some(norm)),
            "{name}"
        );
        (norm.kind, norm.eps, norm.weight, spec.layers[0].sublayers.len())
    };
    assert_eq!(norms("OLMo-1B"), (NormKind::Layer, 1e-5, NormWeight::Ones, 2));
    assert_eq!(norms("gemma-2b"), (NormKind::Rms, 1e-6, NormWeight::PlusOne, 2));
    assert_eq!(norms("c4ai-command-r"), (NormKind::Layer, 1e-5, NormWeight::Plain, 1));
    assert_eq!(norms("stablelm-2-1_6b"), (NormKind::LayerBiased, 1e-5, NormWeight::Plain, 2));
    assert_eq!(norms("starcoder2-3b"), (NormKind::LayerBiased, 1e-5, NormWeight::Plain, 2));
    let parallel = described(&changed("stablelm-2-1_6b", json!({"use_parallel_residual": true})));
    assert_eq!(parallel.layers[0].sublayers.len(), 1);
}

#[test]
fn muse_glimmer_has_norms_without_weights_and_gates() {
    for name in ["Muse-Glimmer-30B", "Muse-Glimmer, decoder"] {
        let spec = described(&changed(name, json!({})));
        let norm = |norm: Norm| (norm.kind, norm.eps, norm.weight);
        let of_embeddings = spec.embedding_norm.map(norm);
        assert_eq!(of_embeddings, Some((NormKind::Rms, 1e-5, NormWeight::Ones)), "{name}");
        assert_eq!(norm(spec.final_norm.unwrap()), (NormKind::Rms, 1e-5, NormWeight::Plain), "{name}");
        for layer in &spec.layers {
            for norms in layer.sublayers.iter().map(|sublayer| sublayer.norms) {
                let [before, after] = [norms.before, norms.after].map(|of_part| norm(of_part.unwrap()));
                assert_eq!(before, (NormKind::Rms, 1e-5, NormWeight::PlusOne), "{name}");
                assert_eq!(after, (NormKind::Rms, 1e-8, NormWeight::PlusOne), "{name}");
            }
            let attention = attention(layer);
            let QkNorm::PerHead { norm: of_heads, order } = attention.qk_norm else {
                panic!("{:?}", attention.qk_norm)
            };
            assert_eq!((Some(norm(of_heads)), order), (of_embeddings, NormOrder::BeforeRope), "{name}");
            assert_eq!((attention.output_gate, attention.head_dim), (OutputGate::Sigmoid, 128), "{name}");
            assert_eq!(attention.scores.scale, 3.87 / 128.0f32.sqrt(), "{name}");
        }
        assert_eq!((spec.head.scale, spec.head.softcap), (0.196_116_14, Some(20.0)), "{name}");
    }
}

#[test]
fn muse_glimmer_has_the_defaults_of_its_class_where_the_config_is_silent() {
    let published = described(&changed("Muse-Glimmer-30B", json!({})));
    let rope = json!({"rope_theta": 500000.0, "rope_type": "default"});
    let silent = changed("Muse-Glimmer-30B", json!({"text_config": {"rope_parameters": rope}}));
    assert_eq!(described(&silent), published);
}

/// transformers does not read what `text_config` says of the head.
#[test]
fn the_head_of_muse_glimmer_is_tied_where_the_whole_model_says_so() {
    let head = |whole: Value, text: Value| {
        let mut config = changed("Muse-Glimmer-30B", json!({"tie_word_embeddings": whole}));
        config["text_config"]["tie_word_embeddings"] = text;
        described(&config).head.weights
    };
    assert_eq!(head(json!(null), json!(true)), HeadWeights::Own);
    assert_eq!(head(json!(true), json!(false)), HeadWeights::Tied);
    assert_eq!(head(json!(true), json!(null)), HeadWeights::Tied);
    assert_eq!(head(json!(null), json!(null)), HeadWeights::Own);
}

#[test]
fn muse_glimmer_counts_its_layers_from_the_last() {
    let (slides, is_full) = ((Some(2048), Some(0)), (None, None));
    let published = windows(&described(&changed("Muse-Glimmer-30B", json!({}))));
    assert_eq!(published, [slides, slides, slides, is_full].repeat(13));
    let short = windows(&described(&changed("Muse-Glimmer, decoder", json!({}))));
    assert_eq!(short, [slides, is_full, slides, slides, slides, is_full]);
    // Neither list says what the other leaves out, and an entry of any number is a flag.
    let lists = [
        (json!({"layer_types": layers(&["F"], 6)}), [(None, Some(0)), (None, None), (None, Some(0))]),
        (
            json!({"layer_rope_theta": [0.0, 500000, 0, 1e4, 0, 0]}),
            [(Some(2048), None), (None, Some(0)), (Some(2048), None)],
        ),
    ];
    for (changes, wanted) in lists {
        assert_eq!(windows(&described(&changed("Muse-Glimmer, decoder", changes.clone())))[..3], wanted, "{changes}");
    }
}

#[test]
fn gemma_4_has_other_heads_where_there_is_no_window() {
    let spec = described(&changed("gemma-4-31b", json!({})));
    let heads = |layer: usize| {
        let of_layer = attention(&spec.layers[layer]);
        (of_layer.head_dim, of_layer.kv_heads, of_layer.values, of_layer.rope)
    };
    assert_eq!((heads(4), heads(5)), ((256, 16, Values::Projected, Some(0)), (512, 4, Values::Keys, Some(1))));
    for layer in &spec.layers {
        assert_eq!((attention(layer).scores.scale, attention(layer).value_norm), (1.0, Some(1e-6)));
        assert_eq!((layer.stream_scale, layer.sublayers[0].norms.after), (StreamScale::Stored, Some(Norm::rms(1e-6))));
    }
    assert_eq!((spec.ropes[1].rotary_factor, spec.ropes[0].theta), (1.0, 1e4));
    assert_eq!(spec.ropes[1].scaling, RopeScaling::Proportional { factor: 1.0, turning: 0.25 });
    assert_eq!((spec.head.softcap, spec.embedding_scale), (Some(30.0), 73.5));
    assert_eq!(windows(&spec)[58..], [(Some(1024), Some(0)), (None, Some(1))]);

    // What each layer says wins, and the rotation is that of the class where the config is silent.
    let saved = described(&changed("gemma-4, decoder", json!({})));
    let heads = saved.layers.iter().map(|layer| (attention(layer).head_dim, attention(layer).kv_heads));
    assert_eq!(heads.collect::<Vec<_>>(), [(256, 4), (512, 2), (256, 4), (512, 4)]);
    assert_eq!(saved.ropes, spec.ropes);
    let fields = json!({"per_layer_config": "(absent)", "global_head_dim": 320, "num_global_key_value_heads": 1});
    let published = described(&changed("gemma-4, decoder", fields));
    // Without keys that are values, the second field has no effect.
    assert_eq!((attention(&published.layers[1]).head_dim, attention(&published.layers[1]).kv_heads), (320, 4));
    let silent = described(&changed("gemma-4, decoder", json!({"per_layer_config": "(absent)"})));
    assert_eq!(attention(&silent.layers[1]).head_dim, 512);
}

#[test]
fn the_last_layer_of_gemma_4_has_no_window() {
    let changes = json!({"layer_types": layers(&["S"], 4), "per_layer_config": "(absent)"});
    let spec = described(&changed("gemma-4, decoder", changes));
    assert_eq!(windows(&spec)[2..], [(Some(512), Some(0)), (None, Some(1))]);
    assert_eq!(attention(&spec.layers[3]).head_dim, 512);
}

#[test]
fn small_models_of_gemma_4_have_inputs_of_layers_and_share_keys() {
    let changes = json!({
        "num_hidden_layers": 8, "layer_types": layers(&["S", "S", "F", "S"], 2), "num_kv_shared_layers": 3, "use_double_wide_mlp": true,
        "hidden_size_per_layer_input": 256, "per_layer_config": "(absent)"
    });
    let spec = described(&changed("gemma-4, decoder", changes.clone()));
    spec.check().unwrap();
    assert_eq!(spec.layer_inputs, Some(LayerInputs { width: 256, table_scale: 16.0, norm: Norm::rms(1e-6) }));
    // The last layer is full, whatever the config says.
    let sources: Vec<KvSource> = spec.layers.iter().map(attention).map(|attention| attention.kv_source).collect();
    assert_eq!(sources[..5], [KvSource::Own; 5]);
    assert_eq!(sources[5..], [4, 2, 2].map(KvSource::Attention));
    assert_eq!(spec.kv_layers(), [0, 1, 2, 3, 4, 4, 2, 2]);
    assert_eq!(spec.window_groups(1024).places.len(), 5);
    for (index, layer) in spec.layers.iter().enumerate() {
        let [.., last] = layer.sublayers.as_slice() else { panic!() };
        assert_eq!((layer.sublayers.len(), last.norms), (3, SublayerNorms::after(Norm::rms(1e-6))));
        assert_eq!(layer.feed_forward().unwrap().width(), if index < 5 { 9216 } else { 2 * 9216 });
    }
    for (field, value) in [
        ("num_kv_shared_layers", json!(8)),
        ("num_kv_shared_layers", json!(6)),
        ("num_kv_shared_layers", json!(-1)),
        ("hidden_size_per_layer_input", json!("256")),
        ("vocab_size_per_layer_input", json!(1000)),
        ("use_double_wide_mlp", json!(1)),
        ("per_layer_config", json!({"7": {"num_key_value_heads": 2}})),
    ] {
        let mut changes = changes.clone();
        changes[field] = value;
        let error = parse(&changed("gemma-4, decoder", changes)).unwrap_err().to_string();
        assert!(error.contains(field), "{field}: {error}");
    }
}

#[test]
fn parts_of_gemma_4_that_are_not_computed_are_refused_by_name() {
    match parse(&changed("gemma-4, decoder", json!({"use_bidirectional_attention": "all"}))) {
        Err(Error::UnsupportedModel { setting, .. }) => assert_eq!(setting, "use_bidirectional_attention"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrapper_describes_its_decoder_in_text_config() {
    let ministral = described(&changed("Ministral-3-8B", json!({})));
    let temperature = attention(&ministral.layers[0]).temperature.unwrap();
    assert_eq!((temperature.beta, temperature.original_positions), (0.1, 16384));
    let (small, _) = parse(&changed("Mistral-Small-3.1-24B", json!({}))).unwrap();
    assert_eq!((small.spec.head.weights, small.spec.layers.len()), (HeadWeights::Own, 40));
    assert!(small.layout.roots.iter().all(|root| root.body.contains("language_model")));
    let (gemma, _) = parse(&changed("gemma-3-4b", json!({}))).unwrap();
    assert_eq!(gemma.eos_tokens, [1, 106], "beside text_config");
}

#[test]
fn a_wrapper_that_contradicts_its_decoder_is_refused() {
    let with_text = |name: &str, field: &str, value: Value| {
        let mut config = changed(name, json!({}));
        config["text_config"][field] = value;
        config
    };
    let tied = with_text("gemma-3-4b", "tie_word_embeddings", json!(true));
    assert!(parse(&tied).is_ok());
    let mut untied = tied;
    untied["tie_word_embeddings"] = json!(false);
    let cases = [
        ("tie_word_embeddings", untied),
        ("model_type of text_config", with_text("gemma-3-4b", "model_type", json!("gemma2"))),
        ("model_type of text_config", with_text("Ministral-3-8B", "model_type", json!("mistral5"))),
        ("quantization_config", with_text("gemma-3-4b", "quantization_config", json!({"quant_method": "aqlm"}))),
        ("text_config", changed("gemma-3-4b", json!({"text_config": "(absent)"}))),
        ("model_type", changed("gemma-3-4b", json!({"model_type": "gemma3n"}))),
        ("sliding_window", changed("gemma-3-4b", json!({"sliding_window": 4096}))),
        ("is_encoder_decoder", changed("gemma-3-4b", json!({"is_encoder_decoder": true}))),
    ];
    for (wanted, config) in cases {
        let message = parse(&config).unwrap_err().to_string();
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    let unknown = parse(&with_text("Ministral-3-8B", "model_type", json!("mistral5"))).unwrap_err().to_string();
    assert!(unknown.ends_with("it must be mistral, ministral3 or mistral4"), "{unknown}");
}

/// Each with the field that the message names.
#[test]
fn a_config_that_contradicts_itself_or_asks_for_something_else_is_refused() {
    let all = [
        ("gemma-2-2b", "hidden_activation", json!("gelu")),
        ("gemma-3-1b", "hidden_activation", json!("relu")),
        ("Phi-4", "hidden_act", json!("gelu_pytorch_tanh")),
        ("GLM-4-9B-0414", "hidden_act", json!("gelu")),
        ("gemma-2-2b", "sliding_window", json!(null)),
        ("gemma-3-1b", "sliding_window", json!(null)),
        ("Olmo-3-7B", "sliding_window", json!(null)),
        ("c4ai-command-r7b", "sliding_window", json!(null)),
        ("gemma-3-1b", "sliding_window", json!(0)),
        ("Olmo-3-7B", "layer_types", layers(&["S", "F"], 15)),
        ("Olmo-3-7B", "layer_types", json!(vec!["linear_attention"; 32])),
        ("Olmo-3-7B", "layer_types", json!("full_attention")),
        ("EXAONE-4.0-32B", "sliding_window_pattern", json!("LLGL")),
        ("EXAONE-4.0-32B", "sliding_window_pattern", json!(0)),
        ("EXAONE-4.0-1.2B", "sliding_window_pattern", json!(4)),
        ("gemma-2-2b", "sliding_window_pattern", json!(3)),
        ("gemma-2-2b", "use_bidirectional_attention", json!(true)),
        ("gemma-3-1b", "attn_logit_softcapping", json!(50.0)),
        ("gemma-2-2b", "final_logit_softcapping", json!(-1.0)),
        ("gemma-2-2b", "query_pre_attn_scalar", json!(0)),
        ("granite-3.3-2b", "logits_scaling", json!(0.0)),
        ("granite-3.3-2b", "residual_multiplier", json!("0.22")),
        ("granite-3.3-2b", "num_local_experts", json!(40)),
        ("granite-4.0-micro", "num_local_experts", json!("(absent)")),
        ("granite-4.0-micro", "layer_types", json!(["mamba", "sliding_attention"].repeat(20))),
        ("granite-4.0-micro", "time_step_limit", json!([0.001, 100.0])),
        ("SmolLM3-3B", "no_rope_layers", json!([1, 1, 1, 0])),
        ("SmolLM3-3B", "no_rope_layers", json!(vec![2; 36])),
        ("SmolLM3-3B", "layer_types", layers(&["S", "F"], 18)),
        ("SmolLM3-3B", "no_rope_layer_interval", json!(0)),
        ("Phi-4", "rope_scaling", json!({"type": "yarn", "factor": 4.0})),
        ("Phi-4-mini", "partial_rotary_factor", json!(0.5)),
        ("Phi-4", "lm_head_bias", json!(true)),
        ("Hunyuan-1.8B", "use_qk_norm", json!(false)),
        ("Hunyuan-1.8B", "use_cla", json!(true)),
        ("Seed-OSS-36B", "partial_rotary_factor", json!(0.5)),
        ("ERNIE-4.5-0.3B", "partial_rotary_factor", json!(0.5)),
        ("GLM-4-9B-0414", "partial_rotary_factor", json!(1.5)),
        ("c4ai-command-r7b", "use_parallel_block", json!(false)),
        ("c4ai-command-r7b", "use_gated_activation", json!(false)),
        ("c4ai-command-r7b", "use_qk_norm", json!(true)),
        ("c4ai-command-r7b", "layer_norm_eps", json!(-1.0)),
        ("c4ai-command-r7b", "order_of_interleaved_layers", json!("global_attn_first")),
        ("gemma-4, decoder", "per_layer_config", json!({"4": {"head_dim": 512}})),
        ("gemma-4, decoder", "per_layer_config", json!({"full_attention": {"head_dim": 512}})),
        ("gemma-4, decoder", "per_layer_config", json!({"1": {"num_key_value_heads": 3}})),
        ("gemma-4, decoder", "per_layer_config", json!({"0": {"head_dim": 64}})),
        ("gemma-4, decoder", "per_layer_config", json!({"1": {"num_attention_heads": 4}})),
        ("gemma-4, decoder", "attention_k_eq_v", json!("yes")),
        ("gemma-4, decoder", "hidden_activation", json!("gelu")),
        ("LFM3-1.7B", "layer_types", json!(vec!["conv"; 7])),
        ("LFM3-1.7B", "layer_types", json!(vec!["linear_attention"; 8])),
        ("LFM3-1.7B", "sliding_window", json!(null)),
        ("LFM3-1.7B", "use_attention_gate", json!(1)),
        ("LFM3-1.7B", "norm_eps", json!(null)),
        ("Muse-Glimmer, decoder", "layer_rope_theta", json!(vec![1e4; 5])),
        ("Muse-Glimmer, decoder", "layer_rope_theta", json!([1e4, 0, 1e4, 0, -1.0, 0])),
        ("Muse-Glimmer, decoder", "layer_rope_theta", json!(["0", 0, 0, 0, 0, 0])),
        ("Muse-Glimmer, decoder", "layer_rope_theta", json!(10000.0)),
        ("Muse-Glimmer, decoder", "layer_types", layers(&["S", "F"], 2)),
        ("Muse-Glimmer, decoder", "sliding_window", json!(null)),
        ("Muse-Glimmer, decoder", "hidden_activation", json!("gelu")),
        ("Muse-Glimmer, decoder", "final_logit_softcapping", json!(null)),
        ("Muse-Glimmer, decoder", "output_multiplier", json!(0.0)),
        ("Muse-Glimmer, decoder", "qk_scale_factor", json!(-3.87)),
        ("Muse-Glimmer, decoder", "post_norm_eps", json!(0)),
        ("Muse-Glimmer, decoder", "query_pre_attn_scalar", json!(256)),
        ("OLMo-2-1B", "clip_qkv", json!(8.0)),
        ("OLMo-2-1B", "sliding_window", json!(4096)),
        ("OLMo-2-1B", "model_type", json!("olmo3")),
        ("ERNIE-4.5-0.3B", "is_encoder_decoder", json!(true)),
        ("AFM-4.5B", "hidden_act", json!("silu")),
        ("OLMo-1B", "clip_qkv", json!(8.0)),
        ("gemma-2b", "hidden_act", json!("relu")),
        ("gemma-2b", "use_bidirectional_attention", json!(true)),
        ("c4ai-command-r", "use_qk_norm", json!(true)),
        ("c4ai-command-r", "sliding_window", json!(4096)),
        ("stablelm-2-1_6b", "qk_layernorm", json!(true)),
        ("stablelm-2-1_6b", "layer_norm_eps", json!(0)),
        ("starcoder2-3b", "hidden_act", json!("relu")),
        ("starcoder2-3b", "sliding_window", json!(0)),
    ];
    for (name, field, value) in all {
        match parse(&changed(name, json!({field: value}))) {
            Err(Error::UnsupportedModel { setting, .. }) => {
                // A rope that does not fit its heads may say so by its factors.
                let other = if field == "partial_rotary_factor" { "short_factor" } else { field };
                assert!([field, other].contains(&setting), "{name}, {field}: {setting}");
            }
            Err(Error::ModelFile { reason, .. }) => assert!(reason.contains(field), "{name}, {field}: {reason}"),
            other => panic!("{name}, {field} = {value}: {other:?}"),
        }
    }
}

/// The config of each, under the class of each other: what a relabelled checkpoint would be.
#[test]
fn a_model_under_the_class_of_another_family_is_refused() {
    let decoders = || configs().into_iter().filter(|(_, config)| config.get("text_config").is_none());
    for (name, config) in decoders() {
        for (other, another) in decoders().filter(|(_, other)| other["architectures"] != config["architectures"]) {
            let mut relabelled = config.clone();
            relabelled["architectures"] = another["architectures"].clone();
            assert!(parse(&relabelled).is_err(), "{name} as {other}");
        }
    }
    // Without a model_type the fields tell: those that are a family's own.
    for (name, class) in [
        ("gemma-3-1b", "Qwen3ForCausalLM"),
        ("gemma-3-1b", "Gemma2ForCausalLM"),
        ("gemma-2-2b", "LlamaForCausalLM"),
        ("granite-3.3-2b", "LlamaForCausalLM"),
        ("granite-4.0-micro", "GraniteForCausalLM"),
        ("granite-4.0-micro", "LlamaForCausalLM"),
        ("SmolLM3-3B", "LlamaForCausalLM"),
        ("Olmo-3-7B", "Olmo2ForCausalLM"),
        ("Phi-3-mini-4k", "LlamaForCausalLM"),
        ("EXAONE-4.0-32B", "Qwen3ForCausalLM"),
        ("GLM-4-9B-0414", "LlamaForCausalLM"),
        ("c4ai-command-r7b", "LlamaForCausalLM"),
        ("Hunyuan-1.8B", "Qwen3ForCausalLM"),
        ("Hunyuan-1.8B", "LlamaForCausalLM"),
        ("Phi-4-mini", "LlamaForCausalLM"),
        ("LFM3-1.7B", "Lfm2ForCausalLM"),
        ("gemma-4, decoder", "Gemma3ForCausalLM"),
        ("gemma-4, decoder", "Qwen3ForCausalLM"),
        ("Muse-Glimmer, decoder", "Gemma2ForCausalLM"),
        ("Muse-Glimmer, decoder", "LlamaForCausalLM"),
        ("AFM-4.5B", "LlamaForCausalLM"),
        ("gemma-2b", "LlamaForCausalLM"),
        ("c4ai-command-r", "LlamaForCausalLM"),
        ("glm-4-9b-chat", "LlamaForCausalLM"),
        ("stablelm-2-1_6b", "LlamaForCausalLM"),
        ("starcoder2-3b", "MistralForCausalLM"),
    ] {
        let relabelled = changed(name, json!({"architectures": [class], "model_type": "(absent)"}));
        let refused = parse(&relabelled);
        assert!(matches!(refused, Err(Error::UnsupportedModel { .. })), "{name} as {class}: {refused:?}");
    }
}
