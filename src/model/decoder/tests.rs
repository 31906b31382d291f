//! What a spec says of the stream is computed: a decoder with the weights of a small model and a changed spec, against loops in f64.

use super::*;
use crate::description::Description;
use crate::names::{AttentionNames, LLAMA, Layout, Names, NormNames, Root};
use crate::quantization::OnLoad;
use crate::shard::{Sharding, Sums};
use crate::spec::{Activation, Norm, NormKind, NormWeight, Part};
use crate::spec::{SublayerNorms as Norms, *};
use crate::weights::Reading;
use compute::batch::{Batch, Sampling};
use compute::cpu::{Cpu, Isa};
use compute::{Device, StateShape};
use formats::DType;
use formats::source::Source;
use os::Loading;
use std::path::Path;

/// A model whose attention has as many key heads as query heads.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama-f32-gqa1");
const TOKEN: usize = 71;

/// The two norms of a layer in other places.
const BOTH_AFTER: Names = Names {
    mixer_norms: NormNames { before: "", after: "input_layernorm" },
    feed_forward_norms: NormNames { before: "", after: "post_attention_layernorm" },
    ..LLAMA
};
const FOUR: Names = Names {
    mixer_norms: NormNames { before: "input_layernorm", after: "post_attention_layernorm" },
    feed_forward_norms: NormNames { before: "post_attention_layernorm", after: "input_layernorm" },
    ..LLAMA
};

/// A gate of what attention computed, with the weights of the queries.
const GATED: Names = Names { attention: AttentionNames { gate: "self_attn.q_proj", ..LLAMA.attention }, ..LLAMA };

const RMS: Norm = Norm { kind: NormKind::Rms, eps: 1e-3, weight: NormWeight::Plain };
const PLUS_ONE: Norm = Norm { kind: NormKind::Rms, eps: 1e-6, weight: NormWeight::PlusOne };
const ONES: Norm = Norm { kind: NormKind::Rms, eps: 1e-2, weight: NormWeight::Ones };
const LAYER: Norm = Norm { kind: NormKind::Layer, eps: 1e-5, weight: NormWeight::Plain };

fn weights(names: &'static Names) -> Weights {
    let source = Source::open(Path::new(MODEL)).unwrap();
    let roots = &[Root { body: "model.", head: "" }];
    let reading = Reading { dtype: None, loading: Loading::Map, free_bytes: u64::MAX, on_load: OnLoad::None };
    Weights::open(&source, Layout { names, roots, ignored: &[], layers: None }, None, reading).unwrap()
}

/// Logits of one token at the beginning of a sequence.
fn logits(spec: &DecoderSpec, names: &'static Names, isa: Isa) -> Vec<f64> {
    let limits = BatchLimits { tokens: 1, rows: 1, model_len: 16, block_size: 16, ..BatchLimits::NONE };
    let mut cpu = Cpu::new(1, isa);
    let sharding = Sharding::new(spec, 0, 1, Sums::Gathered).unwrap();
    let mut decoder = Decoder::load(&cpu, spec, sharding, &mut weights(names), &limits, 16).unwrap();
    let cache = cpu.kv_cache(&spec.kv_layout(&limits, DType::F32.into()), 1).unwrap();
    let mut memory = SequenceMemory { cache, states: cpu.states(&StateShape::default()).unwrap() };
    let mut batch = Batch::with_limits(&limits);
    batch.token_ids.push(TOKEN as u32);
    batch.positions.push(0);
    batch.slots.push(0);
    batch.row_starts.push(1);
    batch.context_lens.push(1);
    batch.block_tables.push(0);
    batch.sampled_tokens.push(0);
    batch.sampling.push(Sampling::GREEDY);
    let mut device_batch = cpu.device_batch(&limits).unwrap();
    cpu.upload(&mut device_batch, &batch).unwrap();
    decoder.begin(&mut cpu, &mut memory, &device_batch);
    decoder.run_to_logits(&mut cpu, &mut memory, &mut device_batch);
    decoder.logits().values().iter().map(|&v| f64::from(v)).collect()
}

/// The same in f64. Attention to a single position is its value.
struct Naive<'a> {
    spec: &'a DecoderSpec,
    weights: Weights,
}

impl Naive<'_> {
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Vec<Vec<f64>> {
        let numbers = self.weights.matrix(name, rows, cols).unwrap().to_f32();
        numbers.chunks_exact(cols).map(|row| row.iter().map(|&v| f64::from(v)).collect()).collect()
    }

    fn product(&mut self, name: &str, rows: usize, x: &[f64]) -> Vec<f64> {
        let matrix = self.matrix(name, rows, x.len());
        matrix.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
    }

    fn norm(&mut self, spec: Option<Norm>, name: &str, x: &[f64]) -> Vec<f64> {
        let Some(Norm { kind, eps, weight }) = spec else { return x.to_vec() };
        let mean = |v: &mut dyn Iterator<Item = f64>| v.sum::<f64>() / x.len() as f64;
        let centre = if kind == NormKind::Layer { mean(&mut x.iter().copied()) } else { 0.0 };
        let divisor = (mean(&mut x.iter().map(|v| (v - centre).powi(2))) + f64::from(eps)).sqrt();
        let normalized = x.iter().map(|v| (v - centre) / divisor);
        let add = match weight {
            NormWeight::Ones => return normalized.collect(),
            NormWeight::Plain => 0.0,
            NormWeight::PlusOne => 1.0,
        };
        let weights = self.weights.vector(name, x.len(), 0..x.len()).unwrap().to_f32();
        normalized.zip(weights).map(|(v, w)| v * (add + f64::from(w))).collect()
    }

    fn attention(&mut self, layer: &str, attention: &SelfAttention, x: &[f64]) -> Vec<f64> {
        let mut value = self.product(&format!("{layer}self_attn.v_proj"), attention.kv_width(), x);
        if attention.output_gate == OutputGate::Sigmoid {
            let gate = format!("{layer}{}", self.weights.names().attention.gate);
            let gate = self.product(&gate, value.len(), x);
            value.iter_mut().zip(gate).for_each(|(v, gate)| *v /= 1.0 + (-gate).exp());
        }
        self.product(&format!("{layer}self_attn.o_proj"), x.len(), &value)
    }

    fn mlp(&mut self, layer: &str, mlp: &Mlp, x: &[f64]) -> Vec<f64> {
        let [gate, up] = ["gate", "up"].map(|part| self.product(&format!("{layer}mlp.{part}_proj"), mlp.width, x));
        let MlpForm::Gated { activation, .. } = mlp.form else { unreachable!() };
        let activate = |v: f64| match activation {
            Activation::Silu => v / (1.0 + (-v).exp()),
            Activation::GeluTanh => v / 2.0 * (1.0 + (0.797_884_560_802_865_4 * (v + 0.044_715 * v.powi(3))).tanh()),
            Activation::ClampedSwiglu => unreachable!("no case has it"),
        };
        let gated: Vec<f64> = gate.into_iter().zip(up).map(|(gate, up)| activate(gate) * up).collect();
        self.product(&format!("{layer}mlp.down_proj"), x.len(), &gated)
    }

    fn logits(mut self) -> Vec<f64> {
        let (spec, names) = (self.spec, self.weights.names());
        let embedding = self.matrix(names.embedding, spec.vocab, spec.hidden).swap_remove(TOKEN);
        let embedding: Vec<f64> = embedding.into_iter().map(|v| v * f64::from(spec.embedding_scale)).collect();
        let mut x = self.norm(spec.embedding_norm, "", &embedding);
        for (index, layer) in spec.layers.iter().enumerate() {
            let at = names.in_layer(index, "");
            for Sublayer { norms, branches } in &layer.sublayers {
                let parts = match branches[0].part {
                    Part::Mixer(_) => &names.mixer_norms,
                    Part::FeedForward(_) => &names.feed_forward_norms,
                };
                let read = self.norm(norms.before, &format!("{at}{}", parts.before), &x);
                for Branch { part, scale, .. } in branches {
                    let delta = match part {
                        Part::Mixer(mixer) => self.attention(&at, mixer.attention().unwrap(), &read),
                        Part::FeedForward(FeedForward::Dense(mlp)) => self.mlp(&at, mlp, &read),
                        Part::FeedForward(FeedForward::LayerInput(_)) => unreachable!("no case has it"),
                        Part::FeedForward(FeedForward::Shared(_) | FeedForward::Experts(_)) => unreachable!(),
                    };
                    let delta = self.norm(norms.after, &format!("{at}{}", parts.after), &delta);
                    x.iter_mut().zip(delta).for_each(|(x, v)| *x += f64::from(*scale) * v);
                }
            }
        }
        let x = self.norm(spec.final_norm, names.final_norm, &x);
        let logits = self.product(names.head, spec.vocab, &x);
        let scaled = logits.into_iter().map(|v| v * f64::from(spec.head.scale));
        let capped = scaled.map(|v| spec.head.softcap.map_or(v, |cap| f64::from(cap) * (v / f64::from(cap)).tanh()));
        capped.collect()
    }
}

type Change = fn(&mut DecoderSpec);

/// Sets the norms of all layers.
fn around(spec: &mut DecoderSpec, mixer: [Option<Norm>; 2], feed_forward: [Option<Norm>; 2]) {
    for layer in &mut spec.layers {
        let norms = |[before, after]: [Option<Norm>; 2]| Norms { before, after, sum: None };
        (layer.sublayers[0].norms, layer.sublayers[1].norms) = (norms(mixer), norms(feed_forward));
    }
}

fn scale(layers: &mut [LayerSpec], scale: f32) {
    layers.iter_mut().for_each(|layer| *layer = layer.clone().with_scale(scale));
}

fn change(spec: &mut DecoderSpec, change: fn(LayerSpec) -> LayerSpec) {
    spec.layers.iter_mut().for_each(|layer| *layer = change(layer.clone()));
}

/// Both parts behind one norm, then the feed-forward part again.
fn side_by_side(layer: LayerSpec, norm: Norm) -> LayerSpec {
    let again = layer.sublayers[1].clone();
    let mut layer = layer.in_parallel(Norms::before(norm));
    layer.sublayers.push(again);
    layer
}

fn gated(layer: &mut LayerSpec) {
    let Part::Mixer(Mixer::Attention(attention)) = &mut layer.sublayers[0].branches[0].part else { unreachable!() };
    attention.output_gate = OutputGate::Sigmoid;
}

const CASES: &[(&str, &Names, Change)] = &[
    ("as the model says", &LLAMA, |_| ()),
    ("an embedding scale", &LLAMA, |spec| spec.embedding_scale = 8.0),
    ("a norm of embeddings", &LLAMA, |spec| spec.embedding_norm = Some(ONES)),
    ("a norm of scaled embeddings", &LLAMA, |spec| {
        (spec.embedding_norm, spec.embedding_scale) = (Some(Norm { kind: NormKind::Layer, ..ONES }), 0.5);
    }),
    ("norms after without weights", &FOUR, |spec| around(spec, [Some(RMS), Some(ONES)], [Some(RMS), Some(ONES)])),
    ("a gate in every layer", &GATED, |spec| spec.layers.iter_mut().for_each(gated)),
    ("a gate in the last layer", &GATED, |spec| spec.layers.iter_mut().skip(1).for_each(gated)),
    ("a residual scale", &LLAMA, |spec| scale(&mut spec.layers, 0.22)),
    ("residual scales that differ", &LLAMA, |spec| scale(&mut spec.layers[1..], 3.0)),
    ("a head scale", &LLAMA, |spec| spec.head.scale = 0.0625),
    ("capped logits", &LLAMA, |spec| spec.head.softcap = Some(0.3)),
    ("scaled and capped logits", &LLAMA, |spec| (spec.head.scale, spec.head.softcap) = (4.0, Some(1.5))),
    ("weights stored less one", &LLAMA, |spec| {
        spec.final_norm = Some(PLUS_ONE);
        around(spec, [Some(PLUS_ONE), None], [Some(PLUS_ONE), None]);
    }),
    ("layer norms", &LLAMA, |spec| {
        spec.final_norm = Some(LAYER);
        around(spec, [Some(LAYER), None], [Some(LAYER), None]);
    }),
    ("four norms", &FOUR, |spec| around(spec, [Some(RMS), Some(RMS)], [Some(PLUS_ONE), Some(PLUS_ONE)])),
    ("four norms, scaled", &FOUR, |spec| {
        around(spec, [Some(RMS), Some(PLUS_ONE)], [Some(LAYER), Some(RMS)]);
        scale(&mut spec.layers, 0.5);
    }),
    ("norms after and none before", &BOTH_AFTER, |spec| around(spec, [None, Some(RMS)], [None, Some(RMS)])),
    ("scales that differ within a layer", &LLAMA, |spec| spec.layers[0].sublayers[1].branches[0].scale = 0.1),
    ("branches side by side, then one", &LLAMA, |spec| change(spec, |layer| side_by_side(layer, LAYER))),
    ("scaled branches side by side, then one", &LLAMA, |spec| {
        change(spec, |layer| side_by_side(layer, RMS));
        let branches = spec.layers.iter_mut().flat_map(|layer| &mut layer.sublayers[0].branches);
        branches.zip([0.5, 2.0, 1.5, 0.25]).for_each(|(branch, scale)| branch.scale = scale);
    }),
    ("one branch after another", &LLAMA, |spec| {
        change(spec, |mut layer| {
            layer.sublayers.push(layer.sublayers[0].clone());
            layer
        });
    }),
    ("GELU", &LLAMA, |spec| {
        for layer in &mut spec.layers {
            let Part::FeedForward(FeedForward::Dense(mlp)) = &mut layer.sublayers[1].branches[0].part else {
                unreachable!()
            };
            mlp.form = MlpForm::gated(Activation::GeluTanh);
        }
    }),
];

#[test]
fn the_stream_is_what_the_spec_says() {
    let described = Description::read(&Source::open(Path::new(MODEL)).unwrap()).unwrap();
    let plain = Naive { spec: &described.spec, weights: weights(&LLAMA) }.logits();
    for (name, names, change) in CASES {
        let mut spec = described.spec.clone();
        change(&mut spec);
        spec.check().unwrap();
        let wanted = Naive { spec: &spec, weights: weights(names) }.logits();
        let norm = wanted.iter().map(|v| v * v).sum::<f64>().sqrt();
        let apart = |other: &[f64]| wanted.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() / norm;
        assert!(spec == described.spec || apart(&plain) > 1e-3, "{name}: the case changes nothing");
        for isa in Isa::available() {
            let apart = apart(&logits(&spec, names, *isa));
            assert!(apart < 2e-6, "{name}, {isa:?}: {apart:.1e} apart");
        }
    }
}

#[test]
#[should_panic]
fn branches_side_by_side_without_a_norm_before_them_are_a_bug() {
    let mut spec = Description::read(&Source::open(Path::new(MODEL)).unwrap()).unwrap().spec;
    change(&mut spec, |layer| layer.in_parallel(Norms::NONE));
    let _ = spec.check();
}
