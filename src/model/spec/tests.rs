//! What a decoder as data may be.

use super::*;
use crate::rope::RopeScaling;
use base::error::Error;
use compute::Pairing;

fn attention() -> SelfAttention {
    SelfAttention {
        scores: AttentionSpec { heads: 4, scale: 0.25, window: None, softcap: None, reach: compute::Reach::Back },
        kv_heads: 2,
        head_dim: 16,
        qk_norm: QkNorm::None,
        kv_source: KvSource::Own,
        values: Values::Projected,
        value_norm: None,
        latent: None,
        qkv_bias: Bias::None,
        output_bias: Bias::None,
        output_gate: OutputGate::None,
        rope: Some(0),
        temperature: None,
        sinks: Sinks::None,
    }
}

/// Two layers, the second changed.
fn spec(change: impl FnOnce(&mut SelfAttention, &mut Mlp)) -> DecoderSpec {
    let norm = Norm::rms(1e-6);
    let layer = |attention, mlp| {
        let norms = SublayerNorms::before(norm);
        LayerSpec::pair((norms, Mixer::Attention(attention)), (norms, FeedForward::Dense(mlp)))
    };
    let mlp = Mlp { width: 80, form: MlpForm::gated(Activation::Silu), bias: Bias::None, down_bias: Bias::None };
    let (mut other, mut other_mlp) = (attention(), mlp.clone());
    change(&mut other, &mut other_mlp);
    DecoderSpec {
        hidden: 64,
        vocab: 130,
        embedding_scale: 1.0,
        added: AddedEmbeddings::NONE,
        embedding_norm: None,
        layer_inputs: None,
        layers: vec![layer(attention(), mlp), layer(other, other_mlp)],
        final_norm: Some(norm),
        head: Head::plain(HeadWeights::Own),
        pooled_layers: Vec::new(),
        ropes: vec![Rope { theta: 10_000.0, scaling: RopeScaling::None, rotary_factor: 1.0, pairing: Pairing::Halves }],
        max_positions: 256,
    }
}

#[test]
fn layers_may_differ_in_heads_and_width() {
    let changed = spec(|attention, mlp| {
        (attention.qk_norm, attention.scores.scale) =
            (QkNorm::PerHead { norm: Norm::rms(1e-5), order: NormOrder::BeforeRope }, 1.0);
        (attention.scores.heads, attention.kv_heads, attention.head_dim, attention.rope) = (8, 1, 32, None);
        mlp.width = 96;
    });
    changed.check().unwrap();
    let limits = BatchLimits { model_len: 256, block_size: 16, ..BatchLimits::NONE };
    let layout = changed.kv_layout(&limits, KvFormat::Int8);
    assert_eq!(
        layout.layers,
        [
            KvHeads { kv_heads: 2, head_dim: 16, values: KvValues::Stored },
            KvHeads { kv_heads: 1, head_dim: 32, values: KvValues::Stored }
        ]
    );
}

#[test]
fn heads_of_a_size_that_no_kernel_has_are_refused_in_every_layer() {
    for dim in [0, 17, 514] {
        match spec(|attention, _| (attention.head_dim, attention.rope) = (dim, None)).check() {
            Err(Error::UnsupportedModel { setting: "head_dim", value, .. }) => assert_eq!(value, dim.to_string()),
            other => panic!("{dim}: {other:?}"),
        }
    }
}

#[test]
#[should_panic]
fn a_rope_for_heads_of_two_sizes_is_a_bug() {
    let _ = spec(|attention, _| attention.head_dim = 32).check();
}

#[test]
#[should_panic]
fn a_rope_that_does_not_exist_is_a_bug() {
    let _ = spec(|attention, _| attention.rope = Some(1)).check();
}
