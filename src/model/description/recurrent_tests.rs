//! Families with recurrent layers.

use super::family_tests::{changed, described, parse};
use crate::shard::{Sharding, Sums};
use crate::spec::{
    Activation, Bias, FeedForward, GroupNorm, HeadWeights, LayerSpec, Mixer, MlpForm, NormWeight, OutputGate, Part,
    Recurrent, ScanScales,
};
use crate::standard::{FULL, SLIDING};
use compute::{Curve, DeltaHeads, GateOrder, ScanHeads, ValueOrder};
use serde_json::json;

#[test]
fn qwen3_5_has_three_layers_with_a_delta_rule_to_one_with_gated_attention() {
    let spec = described(&changed("Qwen3.5-9B", json!({})));
    for (index, layer) in spec.layers.iter().enumerate() {
        assert_eq!(layer.sublayers[0].norms.before.unwrap().weight, NormWeight::PlusOne);
        match layer.parts().find_map(Part::mixer).unwrap() {
            Mixer::Recurrent(Recurrent::GatedDelta(delta)) => {
                assert_ne!(index % 4, 3);
                let heads =
                    DeltaHeads { keys: 16, values: 32, order: ValueOrder::Grouped, key_dim: 128, value_dim: 128 };
                assert_eq!((delta.heads, delta.taps, delta.norm_eps), (heads, 4, 1e-6));
            }
            Mixer::Attention(attention) => {
                assert_eq!(index % 4, 3);
                assert_eq!((attention.output_gate, attention.head_dim), (OutputGate::SigmoidInQueries, 256));
            }
            Mixer::Recurrent(other) => panic!("{other:?}"),
        }
    }
    assert_eq!((spec.ropes[0].rotary(256), spec.ropes[0].theta), (64, 1e7));
    // 24 layers of 32 matrices of 128 x 128 and 3 inputs of 8,192 columns.
    let sharding = Sharding::new(&spec, 0, 1, Sums::Gathered).unwrap();
    assert_eq!(crate::decoder::state_numbers(&spec, &sharding) * 4, 24 * (32 * 128 * 128 + 3 * 8192) * 4);
    let mut silent = changed("Qwen3.5-9B", json!({}));
    silent["text_config"].as_object_mut().unwrap().remove("layer_types");
    silent["text_config"].as_object_mut().unwrap().remove("full_attention_interval");
    assert_eq!(described(&silent), spec);
}

#[test]
fn a_model_in_which_no_layer_attends_rotates_nothing() {
    let mut config = changed("Qwen3.5-9B", json!({}));
    config["text_config"]["layer_types"] = json!(vec!["linear_attention"; 32]);
    config["text_config"].as_object_mut().unwrap().remove("full_attention_interval");
    let spec = described(&config);
    assert_eq!((spec.attentions().count(), spec.ropes.len()), (0, 0));
    spec.check().unwrap();
    let granite =
        changed("granite-4.0-h-1b", json!({"layer_types": vec!["mamba"; 40], "position_embedding_type": "rope"}));
    assert!(described(&granite).ropes.is_empty());
}

#[test]
fn settings_of_a_delta_rule_that_nobody_computes_are_refused_by_name() {
    let cases = [
        ("linear_num_value_heads", json!(24)),
        ("linear_key_head_dim", json!(256)),
        ("linear_value_head_dim", json!(120)),
        ("linear_conv_kernel_dim", json!(5)),
        ("attn_output_gate", json!(false)),
        ("layer_types", json!(vec!["mamba"; 32])),
        ("layer_types", json!(["linear_attention"])),
        ("full_attention_interval", json!(8)),
        ("hidden_act", json!("gelu")),
    ];
    for (field, value) in cases {
        let mut config = changed("Qwen3.5-9B", json!({}));
        config["text_config"][field] = value;
        let message = parse(&config).and_then(|(description, _)| description.spec.check()).unwrap_err().to_string();
        assert!(message.contains(field), "{field}: {message}");
    }
}

#[test]
fn lfm2_has_convolutions_in_all_layers_but_those_that_it_names() {
    let spec = described(&changed("LFM2-1.2B", json!({})));
    let is_conv = |layer: &LayerSpec| match layer.parts().find_map(Part::mixer).unwrap() {
        Mixer::Recurrent(Recurrent::ShortConv(conv)) => (conv.taps, conv.bias) == (3, Bias::None),
        _ => false,
    };
    let attentions: Vec<usize> = (0..16).filter(|&layer| !is_conv(&spec.layers[layer])).collect();
    assert_eq!(attentions, [2, 5, 8, 10, 12, 14]);
    assert_eq!((spec.layers[0].feed_forward().unwrap().width(), spec.head.weights), (8192, HeadWeights::Tied));
    let kinds: Vec<&str> =
        (0..16).map(|layer| if attentions.contains(&layer) { "full_attention" } else { "conv" }).collect();
    let newer = json!({"full_attn_idxs": null, "layer_types": kinds, "intermediate_size": 12288, "block_ff_dim": null});
    assert_eq!(described(&changed("LFM2-1.2B", newer)), spec);
    let plain = json!({"block_auto_adjust_ff_dim": false, "block_ff_dim": 8192});
    assert_eq!(described(&changed("LFM2-1.2B", plain)), spec);
    let own = described(&changed("LFM2-1.2B", json!({"tie_embedding": false})));
    assert_eq!(own.head.weights, HeadWeights::Own);
}

#[test]
fn lfm3_has_windows_and_a_gate_per_head() {
    let spec = described(&changed("LFM3-1.7B", json!({})));
    spec.check().unwrap();
    let of_layer = |layer: &LayerSpec| match layer.parts().find_map(Part::mixer).unwrap() {
        Mixer::Recurrent(Recurrent::ShortConv(conv)) => (Some(conv.taps), None, None),
        Mixer::Attention(attention) => {
            assert_eq!((attention.output_gate, attention.head_dim), (OutputGate::SigmoidPerHead, 128));
            (None, attention.scores.window, attention.rope)
        }
        Mixer::Recurrent(other) => panic!("{other:?}"),
    };
    let (conv, full) = ((Some(7), None, None), (None, None, Some(FULL)));
    let layers = [conv, conv, full, conv, (None, Some(256), Some(SLIDING)), conv, full, conv];
    assert_eq!(spec.layers.iter().map(of_layer).collect::<Vec<_>>(), layers);
    assert!(spec.sublayers().all(|sublayer| sublayer.norms.after.is_some()));
    let by_default = json!({"layer_types": "(absent)", "rope_parameters": "(absent)"});
    assert_eq!(described(&changed("LFM3-1.7B", by_default)), spec);
    let plain = json!({"use_attention_gate": false, "use_sandwich_norm": false});
    let plain = described(&changed("LFM3-1.7B", plain));
    assert_eq!(plain.attentions().next().unwrap().output_gate, OutputGate::None);
    assert!(plain.sublayers().all(|sublayer| sublayer.norms.after.is_none()));
    for taps in [1, 5, 8] {
        let refused = parse(&changed("LFM3-1.7B", json!({"conv_L_cache": taps}))).unwrap_err();
        assert!(refused.to_string().contains("conv_L_cache"), "{taps}: {refused}");
    }
}

#[test]
fn granite_4_h_has_selective_scans_and_rotates_nothing() {
    let spec = described(&changed("granite-4.0-h-1b", json!({})));
    for (index, layer) in spec.layers.iter().enumerate() {
        match layer.parts().find_map(Part::mixer).unwrap() {
            Mixer::Recurrent(Recurrent::StateSpace(scan)) => {
                let heads = ScanHeads { heads: 48, groups: 1, head_dim: 64, state_dim: 128 };
                assert_eq!((scan.heads, scan.taps, scan.conv_bias, scan.bias), (heads, 4, Bias::Added, Bias::None));
            }
            Mixer::Attention(attention) => assert_eq!((attention.rope, [5, 15].contains(&index)), (None, true)),
            Mixer::Recurrent(other) => panic!("{other:?}"),
        }
        assert_eq!(layer.sublayers[0].branches[0].scale, 0.22);
    }
    let auto = changed("granite-4.0-h-1b", json!({"mamba_d_head": "auto", "time_step_limit": [0.0, "inf"]}));
    assert_eq!(described(&auto), spec);
}

#[test]
fn nemotron_h_has_one_part_per_layer() {
    let spec = described(&changed("Nemotron-H-4B", json!({})));
    spec.check().unwrap();
    let kind = |layer: &LayerSpec| match layer.parts().collect::<Vec<_>>().as_slice() {
        [Part::Mixer(Mixer::Recurrent(Recurrent::StateSpace(scan)))] => {
            let heads = ScanHeads { heads: 112, groups: 8, head_dim: 64, state_dim: 128 };
            assert_eq!((scan.heads, scan.scales, scan.norm.map(|norm| norm.eps)), (heads, ScanScales::ONE, Some(1e-5)));
            'M'
        }
        [Part::Mixer(Mixer::Attention(attention))] => {
            assert_eq!((attention.scores.heads, attention.head_dim, attention.rope), (32, 128, None));
            '*'
        }
        [Part::FeedForward(FeedForward::Dense(mlp))] => {
            assert_eq!((mlp.width, mlp.form), (12288, MlpForm::Ungated(Curve::ReluSquared)));
            '-'
        }
        other => panic!("{other:?}"),
    };
    let pattern: String = spec.layers.iter().map(kind).collect();
    assert_eq!(pattern, "M-M-M-MM-M-M*-M-M*-M-M-M-M*-M-M-M-M-M-M-M-M*-M-MM-M-");
    // As transformers writes it.
    let kinds = pattern.chars().map(|kind| match kind {
        'M' => "linear_attention",
        '*' => "full_attention",
        _ => "mlp",
    });
    let newer = json!({
        "hybrid_override_pattern": "(absent)", "num_hidden_layers": "(absent)", "layers_block_type": kinds.collect::<Vec<_>>(),
        "attention_head_dim": "(absent)", "head_dim": 128, "n_routed_experts": 8, "moe_intermediate_size": 7688
    });
    assert_eq!(described(&changed("Nemotron-H-4B", newer)), spec);
}

#[test]
fn falcon_h1_has_two_mixers_behind_one_norm_and_a_factor_for_each_part() {
    let spec = described(&changed("Falcon-H1-1.5B", json!({"attention_in_multiplier": 2.0})));
    spec.check().unwrap();
    assert_eq!((spec.embedding_scale, spec.head.scale, spec.ropes[0].theta), (5.656_854, 0.0390625, 1e11));
    for layer in &spec.layers {
        let [mixers, mlp] = layer.sublayers.as_slice() else { panic!("{layer:?}") };
        let scales: Vec<f32> = mixers.branches.iter().chain(&mlp.branches).map(|branch| branch.scale).collect();
        assert_eq!(scales, [0.25, 2.0 * 0.9375, 0.375]);
        let Some(Recurrent::StateSpace(scan)) = layer.recurrent() else { panic!("{layer:?}") };
        assert_eq!((scan.scales.all(), scan.norm), ([0.5, 0.25, 0.125, 1.5, 2.0].map(|scale| 1.25 * scale), None));
        assert_eq!(layer.attention().unwrap().scores.scale, 2.0 * 2.0 * 0.5 / 128f32.sqrt());
        let Some(FeedForward::Dense(mlp)) = layer.feed_forward() else { panic!("{layer:?}") };
        assert_eq!(mlp.form, MlpForm::Gated { activation: Activation::Silu, gate_scale: 0.75 });
    }
    let norm = json!({"mamba_rms_norm": true, "mamba_norm_before_gate": true, "mamba_d_head": "auto"});
    let Some(Recurrent::StateSpace(scan)) = described(&changed("Falcon-H1-1.5B", norm)).layers[0].recurrent().cloned()
    else {
        panic!()
    };
    assert_eq!((scan.heads.head_dim, scan.norm), (64, Some(GroupNorm { eps: 1e-5, order: GateOrder::AfterNorm })));
}

#[test]
fn bamba_rotates_half_of_each_head_in_the_layers_that_have_attention() {
    let spec = described(&changed("Bamba-9B", json!({})));
    spec.check().unwrap();
    assert_eq!(spec.ropes[0].rotary(spec.attentions().next().unwrap().head_dim), 64);
    for (index, layer) in spec.layers.iter().enumerate() {
        assert_eq!(layer.attention().is_some(), [9, 18, 27].contains(&index));
        assert!(matches!(layer.feed_forward(), Some(FeedForward::Dense(mlp)) if mlp.width == 14336));
        if let Some(Recurrent::StateSpace(scan)) = layer.recurrent() {
            assert_eq!(scan.heads, ScanHeads { heads: 128, groups: 1, head_dim: 64, state_dim: 128 });
        }
    }
    let newer = json!({
        "rope_theta": "(absent)", "rope_scaling": "(absent)", "attn_rotary_emb": "(absent)", "mamba_d_head": "auto",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    });
    assert_eq!(described(&changed("Bamba-9B", newer)), spec);
    let recurrent = described(&changed("Bamba-9B", json!({"attn_layer_indices": null, "attn_rotary_emb": "(absent)"})));
    assert_eq!(recurrent.attentions().count(), 0);
}

#[test]
fn mamba_2_has_nothing_but_selective_scans() {
    let spec = described(&changed("Mamba-Codestral-7B", json!({})));
    spec.check().unwrap();
    assert_eq!((spec.layers.len(), spec.ropes.len(), spec.attentions().count()), (64, 0, 0));
    for layer in &spec.layers {
        let Some(Recurrent::StateSpace(scan)) = layer.recurrent() else { panic!("{layer:?}") };
        assert_eq!(scan.heads, ScanHeads { heads: 128, groups: 8, head_dim: 64, state_dim: 128 });
        assert_eq!((layer.parts().count(), scan.norm.unwrap().order), (1, GateOrder::BeforeNorm));
    }
}

#[test]
fn settings_of_recurrent_layers_that_nobody_computes_are_refused_by_name() {
    let cases = [
        ("LFM2-1.2B", "conv_L_cache", json!(5)),
        ("LFM2-1.2B", "full_attn_idxs", json!([2, 16])),
        ("LFM2-1.2B", "full_attn_idxs", json!("all")),
        ("LFM2-1.2B", "norm_eps", json!(-1)),
        ("granite-4.0-h-1b", "mamba_d_state", json!(96)),
        ("granite-4.0-h-1b", "mamba_n_heads", json!(47)),
        ("granite-4.0-h-1b", "mamba_d_head", json!(48)),
        ("granite-4.0-h-1b", "mamba_n_groups", json!(5)),
        ("granite-4.0-h-1b", "mamba_d_conv", json!(5)),
        ("granite-4.0-h-1b", "time_step_limit", json!([0.001, 0.1])),
        ("Nemotron-H-4B", "hybrid_override_pattern", json!("MX*-".repeat(13))),
        ("Nemotron-H-4B", "hybrid_override_pattern", json!("M*-")),
        ("Nemotron-H-4B", "hybrid_override_pattern", json!("")),
        ("Nemotron-H-4B", "hybrid_override_pattern", json!("(absent)")),
        ("Nemotron-H-4B", "layers_block_type", json!("mamba")),
        ("Nemotron-H-4B", "layers_block_type", json!(vec!["rnn"; 52])),
        ("Nemotron-H-4B", "layers_block_type", json!(vec![1; 52])),
        ("Nemotron-H-4B", "mlp_hidden_act", json!("silu")),
        ("Nemotron-H-4B", "mamba_hidden_act", json!("relu2")),
        ("Nemotron-H-4B", "attention_bias", json!(true)),
        ("Nemotron-H-4B", "tie_word_embeddings", json!(true)),
        ("Nemotron-H-4B", "time_step_limit", json!([0.01, 1.0])),
        ("Nemotron-H-4B", "layer_norm_epsilon", json!(0)),
        ("Falcon-H1-1.5B", "ssm_multipliers", json!([1.0, 1.0])),
        ("Falcon-H1-1.5B", "ssm_multipliers", json!([1.0, 1.0, 1.0, 1.0, -1.0])),
        ("Falcon-H1-1.5B", "ssm_multipliers", json!(1.0)),
        ("Falcon-H1-1.5B", "mlp_multipliers", json!(["1", 1.0])),
        ("Falcon-H1-1.5B", "mlp_multipliers", json!([1e-300, 1.0])),
        ("Falcon-H1-1.5B", "key_multiplier", json!(0.0)),
        ("Falcon-H1-1.5B", "attention_bias", json!(true)),
        ("Falcon-H1-1.5B", "mamba_proj_bias", json!(true)),
        ("Falcon-H1-1.5B", "projectors_bias", json!(true)),
        ("Falcon-H1-1.5B", "mamba_d_ssm", json!(3000)),
        ("Falcon-H1-1.5B", "hidden_act", json!("gelu")),
        ("Bamba-9B", "attn_layer_indices", json!([9, 32])),
        ("Bamba-9B", "attn_layer_indices", json!(9)),
        ("Bamba-9B", "attn_layer_indices", json!(["9"])),
        ("Bamba-9B", "attn_rotary_emb", json!(128)),
        ("Bamba-9B", "mamba_d_head", json!(32)),
        ("Bamba-9B", "time_step_limit", json!([0.01, 1.0])),
        ("Bamba-9B", "hidden_act", json!("gelu_pytorch_tanh")),
        ("Mamba-Codestral-7B", "hidden_act", json!("gelu")),
        ("Mamba-Codestral-7B", "num_heads", json!(64)),
        ("Mamba-Codestral-7B", "expand", json!(1)),
        ("Mamba-Codestral-7B", "layer_norm_epsilon", json!(0)),
        ("Mamba-Codestral-7B", "time_step_limit", json!([0.01, 1.0])),
    ];
    for (model, setting, value) in cases {
        let config = changed(model, json!({setting: value}));
        let error = parse(&config).and_then(|(description, _)| description.spec.check()).unwrap_err().to_string();
        assert!(
            error.contains(setting) || setting == "mamba_n_groups" && error.contains("mamba_n_heads"),
            "{setting}: {error}"
        );
    }
}
