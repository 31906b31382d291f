//! Configs of encoders in the form of published models, and what the families read in them.

use super::family_tests::{described, parse};
use crate::spec::{Bias, Curve, DecoderSpec, HeadWeights, Mlp, MlpForm, NormKind, PositionRows, Reach, SelfAttention};
use serde_json::{Value, json};

fn minilm() -> Value {
    json!({
        "_name_or_path": "nreimers/MiniLM-L6-H384-uncased", "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
        "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 384,
        "initializer_range": 0.02, "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 6, "pad_token_id": 0,
        "position_embedding_type": "absolute", "transformers_version": "4.8.2", "type_vocab_size": 2, "use_cache": true,
        "vocab_size": 30522
    })
}

fn bge_m3() -> Value {
    json!({
        "_name_or_path": "", "architectures": ["XLMRobertaModel"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
        "classifier_dropout": null, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 1024,
        "initializer_range": 0.02, "intermediate_size": 4096, "layer_norm_eps": 1e-05, "max_position_embeddings": 8194,
        "model_type": "xlm-roberta", "num_attention_heads": 16, "num_hidden_layers": 24, "output_past": true, "pad_token_id": 1,
        "position_embedding_type": "absolute", "torch_dtype": "float32", "transformers_version": "4.33.0", "type_vocab_size": 1,
        "use_cache": true, "vocab_size": 250002
    })
}

fn modernbert() -> Value {
    json!({
        "architectures": ["ModernBertForMaskedLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 50281,
        "classifier_activation": "gelu", "classifier_bias": false, "classifier_dropout": 0.0, "classifier_pooling": "mean",
        "cls_token_id": 50281, "decoder_bias": true, "deterministic_flash_attn": false, "embedding_dropout": 0.0,
        "eos_token_id": 50282, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": false,
        "hidden_activation": "gelu", "hidden_size": 768, "initializer_cutoff_factor": 2.0, "initializer_range": 0.02,
        "intermediate_size": 1152, "layer_norm_eps": 1e-05, "local_attention": 128, "local_rope_theta": 10000.0,
        "max_position_embeddings": 8192, "mlp_bias": false, "mlp_dropout": 0.0, "model_type": "modernbert", "norm_bias": false,
        "norm_eps": 1e-05, "num_attention_heads": 12, "num_hidden_layers": 22, "position_embedding_type": "absolute",
        "sparse_prediction": false, "vocab_size": 50368
    })
}

fn nomic() -> Value {
    json!({
        "activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0, "bos_token_id": null,
        "causal": false, "dense_seq_output": true, "embd_pdrop": 0.0, "eos_token_id": null, "fused_bias_fc": true,
        "fused_dropout_add_ln": true, "initializer_range": 0.02, "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048,
        "mlp_fc1_bias": false, "mlp_fc2_bias": false, "model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_inner": 3072,
        "n_layer": 12, "n_positions": 8192, "pad_vocab_size_multiple": 64, "parallel_block": false, "prenorm": false,
        "qkv_proj_bias": false, "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": false, "rotary_emb_scale_base": null, "rotary_scaling_factor": null,
        "type_vocab_size": 2, "use_rms_norm": false, "vocab_size": 30528
    })
}

fn embedding_gemma() -> Value {
    json!({
        "_sliding_window_pattern": 6, "architectures": ["Gemma3TextModel"], "attention_bias": false, "attention_dropout": 0.0,
        "attn_logit_softcapping": null, "bos_token_id": 2, "dtype": "float32", "eos_token_id": 1,
        "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 768,
        "initializer_range": 0.02, "intermediate_size": 1152, "layer_types": super::family_configs::layers(&["S", "S", "S", "S", "S", "F"], 4),
        "max_position_embeddings": 2048, "model_type": "gemma3_text", "num_attention_heads": 3, "num_hidden_layers": 24,
        "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
        "rope_local_base_freq": 10000.0, "rope_scaling": null, "rope_theta": 1000000.0, "sliding_window": 512,
        "transformers_version": "4.57.0", "use_bidirectional_attention": true, "use_cache": true, "vocab_size": 262144
    })
}

fn attention(spec: &DecoderSpec, layer: usize) -> &SelfAttention {
    spec.layers[layer].attention().unwrap()
}

fn mlp(spec: &DecoderSpec) -> &Mlp {
    spec.layers[0].feed_forward().unwrap().dense().unwrap()
}

#[test]
fn no_field_of_a_published_encoder_is_left_unread() {
    for config in [minilm(), bge_m3(), modernbert(), nomic(), embedding_gemma(), gte(), jina_v3()] {
        let (described, unread) = parse(&config).unwrap_or_else(|error| panic!("{error}: {config}"));
        let spec = described.spec;
        assert_eq!(unread, Vec::<String>::new(), "{config}");
        assert!(spec.is_encoder() && spec.head.weights == HeadWeights::Missing && spec.window().is_none());
        assert_eq!(spec.window_groups(512).layers, 1, "keys of all layers lie in one place");
    }
}

#[test]
fn positions_of_roberta_begin_behind_the_padding() {
    let (bert, roberta) = (described(&minilm()), described(&bge_m3()));
    assert_eq!(bert.added.positions, Some(PositionRows { rows: 512, first: 0 }));
    assert_eq!((bert.max_positions, bert.added.types), (512, Some(2)));
    assert_eq!(roberta.added.positions, Some(PositionRows { rows: 8194, first: 2 }));
    assert_eq!((roberta.max_positions, roberta.added.types), (8192, Some(1)));
    for spec in [bert, roberta] {
        assert_eq!((mlp(&spec).form, mlp(&spec).bias), (MlpForm::Ungated(Curve::Gelu), Bias::Added));
        assert_eq!((spec.final_norm, spec.embedding_norm.unwrap().kind), (None, NormKind::LayerBiased));
        assert!(spec.sublayers().all(|sublayer| sublayer.norms.sum.is_some() && sublayer.norms.before.is_none()));
        assert_eq!((attention(&spec, 0).rope, attention(&spec, 0).qkv_bias), (None, Bias::Added));
    }
}

#[test]
fn half_of_a_window_lies_on_either_side() {
    let (modern, gemma) = (described(&modernbert()), described(&embedding_gemma()));
    let windows = |spec: &DecoderSpec| spec.windows().take(6).collect::<Vec<_>>();
    let some = Some(65);
    assert_eq!(windows(&modern), [None, some, some, None, some, some]);
    let some = Some(257);
    assert_eq!(windows(&gemma), [some, some, some, some, some, None]);
    assert!(modern.layers[0].sublayers[0].norms.before.is_none(), "the embeddings are normalized already");
    assert!(modern.layers[1].sublayers[0].norms.before.is_some());
    assert_eq!((mlp(&modern).form, modern.final_norm.unwrap().kind), (MlpForm::GatedBy(Curve::Gelu), NormKind::Layer));
    assert_eq!((modern.ropes[0].theta, modern.ropes[1].theta), (10_000.0, 160_000.0));
    assert!(attention(&gemma, 0).scores.reach == Reach::Both);
}

#[test]
fn nomic_bert_has_the_names_of_fields_of_another_model() {
    let spec = described(&nomic());
    assert_eq!((spec.hidden, spec.layers.len(), spec.max_positions, mlp(&spec).width), (768, 12, 8192, 3072));
    assert_eq!((spec.ropes[0].theta, spec.added.types, spec.added.positions), (1000.0, Some(2), None));
}

fn gte() -> Value {
    json!({
        "architectures": ["GteModel"], "attention_probs_dropout_prob": 0.0, "bos_token_id": 0, "classifier_dropout": 0.0, "dtype": "float16",
        "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
        "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 8192, "model_type": "gte", "num_attention_heads": 12,
        "num_hidden_layers": 12, "pad_token_id": 1, "rope_parameters": {"rope_theta": 160000.0, "rope_type": "default"},
        "tie_word_embeddings": true, "transformers_version": "5.23.0", "type_vocab_size": 1, "vocab_size": 250048
    })
}

fn jina_v3() -> Value {
    let mut config = gte();
    config["architectures"] = json!(["JinaEmbeddingsV3Model"]);
    config["model_type"] = json!("jina_embeddings_v3");
    config["use_cache"] = json!(true);
    config
}

#[test]
fn gte_has_a_gate_and_a_bias_behind_it_alone() {
    let (gte, jina) = (described(&gte()), described(&jina_v3()));
    assert_eq!(
        (mlp(&gte).form, mlp(&gte).bias, mlp(&gte).down_bias),
        (MlpForm::GatedBy(Curve::Gelu), Bias::None, Bias::Added)
    );
    assert_eq!(
        (mlp(&jina).form, mlp(&jina).bias, mlp(&jina).down_bias),
        (MlpForm::Ungated(Curve::Gelu), Bias::Added, Bias::Added)
    );
    assert_eq!((attention(&gte, 0).qkv_bias, gte.added.types, gte.added.positions), (Bias::Added, Some(1), None));
    let mut without = self::gte();
    without["type_vocab_size"] = json!(0);
    without.as_object_mut().unwrap().remove("rope_parameters");
    let without = described(&without);
    assert_eq!((without.added.types, without.ropes[0].theta), (None, 160_000.0));
}

#[test]
fn what_encoders_do_not_compute_is_refused_by_name() {
    let refusal = |mut config: Value, field: &str, value: Value| {
        config[field] = value;
        parse(&config).err().map(|error| error.to_string()).unwrap_or_else(|| panic!("{field} was accepted"))
    };
    for (config, field, value, said) in [
        (minilm(), "position_embedding_type", json!("relative_key"), "relative_key"),
        (minilm(), "is_decoder", json!(true), "is_decoder"),
        (minilm(), "hidden_act", json!("relu"), "relu"),
        (minilm(), "num_attention_heads", json!(7), "must be a multiple of num_attention_heads"),
        (bge_m3(), "max_position_embeddings", json!(2), "but the first position has row 2"),
        (modernbert(), "hidden_activation", json!("relu"), "relu"),
        (nomic(), "prenorm", json!(true), "prenorm"),
        (nomic(), "activation_function", json!("gelu"), "activation_function"),
        (nomic(), "rotary_emb_fraction", json!(0.5), "rotary_pct"),
        (nomic(), "rotary_emb_interleaved", json!(true), "rope_interleaved"),
    ] {
        let found = refusal(config, field, value);
        assert!(found.contains(said), "{field}: {found}");
    }
}
