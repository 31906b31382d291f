use super::*;
use serde_json::{Value, json};
use std::path::Path;

fn read(config: Value) -> Result<Rope> {
    Rope::from_config(Fields::new(Path::new("config.json"), &config)?, 4096)
}

fn read_parameters(parameters: Value) -> Rope {
    read(json!({ "rope_parameters": parameters })).unwrap()
}

/// Frequencies and scale that transformers 5.23 computes for heads of 16.
#[test]
fn frequencies_are_those_of_transformers() {
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "rope_theta": 1e6});
    let with = |more: Value| {
        let mut merged = yarn.clone();
        merged.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        merged
    };
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256, "rope_theta": 500000.0});
    let exact = with(json!({"truncate": false, "beta_fast": 16, "beta_slow": 2, "mscale": 0.8, "mscale_all_dim": 0.5}));
    let yarn_tail = [0.001405853, 0.00025, 4.445699e-5, 7.905694e-6, 1.405853e-6];
    let begins = |first: [f32; 3]| [&first[..], &yarn_tail].concat();
    let cases: [(&str, Value, f32, Vec<f32>); 7] = [
        (
            "default",
            json!({"rope_type": "default", "rope_theta": 10000.0}),
            1.0,
            vec![1.0, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278],
        ),
        (
            "linear",
            json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
            1.0,
            vec![0.25, 0.07905694, 0.025, 0.007905695, 0.0025, 0.0007905695, 0.00025, 7.905695e-5],
        ),
        (
            "llama3",
            llama3,
            1.0,
            vec![1.0, 0.1939228, 0.01053823, 0.0009115831, 0.0001767767, 3.428102e-5, 6.64787e-6, 1.289173e-6],
        ),
        (
            "proportional",
            json!({"rope_type": "proportional", "partial_rotary_factor": 0.65, "factor": 2.0, "rope_theta": 10000.0}),
            1.0,
            vec![0.5, 0.1581139, 0.05, 0.01581139, 0.005, 0.0, 0.0, 0.0],
        ),
        ("yarn", yarn.clone(), 1.138629, begins([1.0, 0.133371, 0.01581139])),
        ("yarn, exact ramp, mscale", exact, 1.038893, begins([1.0, 0.1778279, 0.0187018])),
        ("yarn, attention_factor", with(json!({"attention_factor": 0.75})), 0.75, begins([1.0, 0.133371, 0.01581139])),
    ];
    for (name, parameters, scale, wanted) in cases {
        let (found, found_scale) = read_parameters(parameters).frequencies(16, 4096);
        assert!((found_scale - scale).abs() < 1e-6, "{name}: scale {found_scale}");
        for (pair, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert!((found - wanted).abs() <= 1e-6 * wanted, "{name}, pair {pair}: {found} instead of {wanted}");
        }
    }
}

#[test]
fn scaling_is_read_in_both_places_and_under_both_names() {
    let rope = |theta, scaling| Rope { theta, scaling, rotary_factor: 1.0, pairing: Pairing::Halves };
    let wanted = rope(5e5, RopeScaling::Linear { factor: 2.0 });
    let configs = [
        json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}}),
        json!({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "type": "other", "factor": 2}}),
        json!({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 5e5}}),
        json!({"rope_theta": 5e5, "rope_scaling": null, "rope_parameters": {"type": "linear", "factor": 2}}),
        json!({"rope_theta": 5e5, "rope_scaling": {}, "rope_parameters": {"type": "linear", "factor": 2}}),
    ];
    for config in configs {
        assert_eq!(read(config.clone()).unwrap(), wanted, "{config}");
    }
    let plain = rope(10_000.0, RopeScaling::None);
    assert_eq!(read(json!({})).unwrap(), plain);
    assert_eq!(read(json!({"rope_scaling": null})).unwrap(), plain);
}

#[test]
fn the_original_length_is_looked_for_beside_inside_and_at_last_in_the_maximum() {
    let original = |config| match read(config).unwrap().scaling {
        RopeScaling::Yarn { original_positions, .. } => original_positions,
        other => panic!("{other:?}"),
    };
    let inside = json!({"type": "yarn", "factor": 4, "original_max_position_embeddings": 512});
    assert_eq!(original(json!({"rope_scaling": inside})), 512);
    assert_eq!(original(json!({"rope_scaling": inside, "original_max_position_embeddings": 256})), 256);
    assert_eq!(original(json!({"rope_scaling": {"type": "yarn", "factor": 4}})), 4096);
}

#[test]
fn yarn_switched_on_by_hand_stretches_the_model() {
    let config = json!({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 2048}});
    assert_eq!(read(config).unwrap().scaling.max_positions(4096), 8192);
    assert_eq!(RopeScaling::None.max_positions(4096), 4096);
}

#[test]
fn a_base_that_grows_with_the_text_does_not_within_the_positions_of_the_model() {
    let config = json!({"rope_scaling": {"type": "dynamic", "factor": 2}});
    assert_eq!(read(config).unwrap().scaling, RopeScaling::None);
    let without = json!({"rope_scaling": {"type": "dynamic"}});
    assert!(matches!(read(without), Err(Error::ModelFile { reason, .. }) if reason == "factor is missing"));
}

#[test]
fn what_is_not_computed_is_never_ignored() {
    let unsupported = [
        json!({"rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": 0.1}}),
        json!({"rope_parameters": {"rope_type": "mrope"}}),
        json!({"partial_rotary_factor": 0.5}),
        json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}),
        json!({"rope_parameters": {"full_attention": {"rope_type": "default"}}}),
    ];
    for config in unsupported {
        assert!(matches!(read(config.clone()), Err(Error::UnsupportedModel { .. })), "{config}");
    }
    let wrong = [
        json!({"rope_scaling": {"type": "linear"}}),
        json!({"rope_scaling": {"type": "linear", "factor": 0}}),
        json!({"rope_scaling": {"type": "linear", "factor": "2"}}),
        json!({"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4}}),
        json!({"rope_scaling": {"rope_type": "longrope"}}),
        json!({"rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": [0]}}),
        json!({"rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": vec![1; 257]}}),
        json!({"partial_rotary_factor": 1.5}),
        json!({"rope_scaling": "linear"}),
        json!({"rope_scaling": {"type": 3}}),
        json!({"rope_theta": -1}),
        json!({"rope_theta": 1e300}),
    ];
    for config in wrong {
        assert!(matches!(read(config.clone()), Err(Error::ModelFile { .. })), "{config}");
    }
}

#[test]
fn the_table_holds_cosines_then_sines_of_each_position() {
    let table = read(json!({"rope_scaling": {"type": "linear", "factor": 2}})).unwrap().table(4, 3, 3).unwrap();
    let angles = [1.0f32, 2.0 * 0.5 * 0.01];
    let wanted = [angles[0].cos(), angles[1].cos(), angles[0].sin(), angles[1].sin()];
    assert_eq!(table.len(), 12);
    assert_eq!(table[..4], [1.0, 1.0, 0.0, 0.0]);
    assert!(table[8..].iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{:?}", &table[8..]);
}

fn settings(config: &Value, layers: Option<LayerType>, defaults: RopeDefaults) -> Result<PositionSettings> {
    let config = Fields::new(Path::new("config.json"), config)?;
    match layers {
        None => PositionSettings::read(config, 4096, defaults),
        Some(layers) => PositionSettings::read_for(layers, config, 4096, defaults),
    }
}

fn assert_frequencies(rope: &Rope, max_model_len: usize, wanted: &[f32], wanted_scale: f32, what: &str) {
    let (found, scale) = rope.frequencies(16, max_model_len);
    assert!((scale - wanted_scale).abs() < 1e-6, "{what}: scale {scale}");
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (pair, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found / wanted - 1.0).abs() < 1e-6, "{what}, pair {pair}: {found} instead of {wanted}");
    }
}

/// What transformers 5.23 computes for heads of 16 in Phi-3, GLM-4 and by its functions.
#[test]
fn the_frequencies_of_a_part_of_each_head_are_those_of_transformers() {
    let phi = |more: Value| {
        let mut scaling = json!({"type": "longrope", "short_factor": [1.0, 1.1, 1.25, 1.5, 1.75, 2.0],
            "long_factor": [1.0, 1.5, 2.5, 5.0, 9.0, 14.0]});
        scaling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"original_max_position_embeddings": 256, "partial_rotary_factor": 0.75, "rope_scaling": scaling})
    };
    let short = [1.0, 0.1958577, 0.03713271, 0.006666667, 0.001231105, 0.0002320795];
    let long = [1.0, 0.143629, 0.01856635, 0.002, 0.0002393816, 3.315421e-5];
    let given = phi(json!({"factor": 8.0, "attention_factor": 1.5}));
    let yarn = json!({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6,
        "original_max_position_embeddings": 1024, "partial_rotary_factor": 0.5}});
    let half = RopeDefaults { rotary_factor: 0.5, ..RopeDefaults::default() };
    let whole = RopeDefaults::default();
    let cases = [
        ("longrope, as long as the first training", phi(json!({})), whole, 256, &short[..], 1.224745),
        ("longrope, longer", phi(json!({})), whole, 257, &long, 1.224745),
        ("longrope, attention_factor", given, whole, 256, &short, 1.5),
        ("su", phi(json!({"type": "su"})), half, 256, &short, 1.224745),
        ("half by default", json!({}), half, 4096, &[1.0, 0.1, 0.01, 0.001], 1.0),
        ("yarn", yarn, whole, 4096, &[1.0, 0.01976424, 0.00025, 7.905694e-6], 1.138629),
    ];
    for (name, config, defaults, max_model_len, wanted, scale) in cases {
        let PositionSettings { rope, .. } = settings(&config, None, defaults).unwrap();
        rope.check(16).unwrap();
        assert_frequencies(&rope, max_model_len, wanted, scale, name);
    }
}

/// What transformers 5.23 computes for heads of 16 in Gemma 3.
#[test]
fn layers_of_two_types_have_the_frequencies_of_transformers() {
    let sliding = [1.0, 0.2899821, 0.08408964, 0.02438449, 0.007071068, 0.002050483, 0.0005946035, 0.0001724244];
    let full = [0.125, 0.02222849, 0.003952847, 0.0007029267, 0.000125, 2.222849e-05, 3.952847e-06, 7.029267e-07];
    let default_sliding = [1.0, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278];
    let default_full = [1.0, 0.1778279, 0.03162278, 0.005623413, 0.001, 0.0001778279, 3.162277e-05, 5.623413e-06];
    let old = json!({"rope_theta": 1e6, "rope_local_base_freq": 20000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}});
    let new = json!({"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}});
    let cases = [
        ("old names", old, sliding, full),
        ("new names", new, sliding, full),
        ("defaults", json!({}), default_sliding, default_full),
        ("null", json!({"rope_parameters": {"full_attention": null}}), default_sliding, default_full),
    ];
    for (name, config, sliding, full) in cases {
        let rope = |layers, theta| {
            let defaults = RopeDefaults { theta, ..RopeDefaults::default() };
            settings(&config, Some(layers), defaults).unwrap().rope
        };
        assert_frequencies(&rope(LayerType::Sliding, 1e4), 4096, &sliding, 1.0, name);
        assert_frequencies(&rope(LayerType::Full, 1e6), 4096, &full, 1.0, name);
    }
    let flat = json!({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}});
    let refused = settings(&flat, Some(LayerType::Full), RopeDefaults::default());
    assert!(matches!(refused, Err(Error::UnsupportedModel { setting: "rope_parameters", .. })));
}

#[test]
fn queries_grow_with_every_length_of_the_first_training() {
    let config = json!({"rope_parameters": {"rope_type": "yarn", "factor": 4, "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16}});
    let temperature = settings(&config, None, RopeDefaults::default()).unwrap().temperature.unwrap();
    assert_eq!(temperature, Temperature { beta: 0.1, original_positions: 16 });
    let table = temperature.table(101).unwrap();
    for (position, wanted) in
        [(0, 1.0), (15, 1.0), (16, 1.069_314_7), (31, 1.069_314_7), (32, 1.109_861_2), (100, 1.194_591)]
    {
        assert!((table[position] - wanted).abs() < 1e-6, "position {position}: {}", table[position]);
    }
}

#[test]
fn a_rope_that_does_not_fit_its_heads_is_refused() {
    let rope = |rotary_factor, scaling| Rope { theta: 1e4, scaling, rotary_factor, pairing: Pairing::Neighbours };
    let long_rope = |short, long| RopeScaling::LongRope {
        short_factors: vec![1.0; short],
        long_factors: vec![1.0; long],
        attention_factor: 1.0,
        original_positions: 64,
    };
    assert!(rope(0.5, long_rope(4, 4)).check(16).is_ok());
    let cases = [
        (rope(0.01, RopeScaling::None), "partial_rotary_factor"),
        (rope(0.2, RopeScaling::None), "partial_rotary_factor"),
        (rope(0.5, long_rope(3, 4)), "short_factor"),
        (rope(0.5, long_rope(4, 8)), "long_factor"),
    ];
    for (rope, wanted) in cases {
        match rope.check(16) {
            Err(Error::UnsupportedModel { setting, .. }) => assert_eq!(setting, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
}
