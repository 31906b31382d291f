//! What makes a model another one? Its decoder and how its weights are coded, as text that is hashed into the fingerprint of saved prefixes.
//!
//! Invariant: every value has the name that stands here, whatever the code calls it, so that files that were saved once stay readable. A field that
//! is new does not compile before it has a name here: leave it out where it has the value that all models had before.

use crate::quantization::{
    Awq, Compressed, Fp8, Gptq, ModelOpt, Number, OnLoad, Quantization, Scheme, Strategy, TargetGroup,
};
use crate::rope::{Ramp, Rope, RopeScaling, Temperature};
use crate::spec::{
    AddedEmbeddings, Bias, Branch, Correction, DecoderSpec, ExpertLatent, ExpertScales, Experts, FeedForward,
    GatedDelta, GatedShortConv, GroupNorm, Groups, Head, HeadWeights, KvSource, Latent, LayerInput, LayerInputs,
    LayerSpec, Logits, Mixer, Mlp, MlpForm, Norm, NormWeight, OutputGate, Part, PooledLayer, PooledTensors,
    PositionRows, QkNorm, Recurrent, Router, ScanScales, Scores, SelfAttention, SharedExpert, SharedGate, Sinks,
    StateSpace, StreamScale, Sublayer, SublayerNorms, Values,
};
use compute::{
    Activation, AttentionSpec, Curve, DeltaHeads, GateOrder, NormKind, NormOrder, Pairing, Reach, ScanHeads, ValueOrder,
};
use std::fmt::Debug;

/// The text of a decoder.
pub fn of_decoder(spec: &DecoderSpec) -> String {
    let DecoderSpec {
        hidden,
        vocab,
        embedding_scale,
        added,
        embedding_norm,
        layer_inputs,
        layers,
        final_norm,
        head,
        pooled_layers,
        ropes,
        max_positions,
    } = spec;
    let mut fields = vec![
        ("hidden", value(hidden)),
        ("vocab", value(vocab)),
        ("embedding_scale", value(embedding_scale)),
        ("layers", list(layers.iter().map(layer))),
        ("head", of_head(head)),
        ("ropes", list(ropes.iter().map(rope))),
        ("max_positions", value(max_positions)),
    ];
    if let Some(of_states) = final_norm {
        // Behind the layers.
        fields.insert(4, ("final_norm", norm(of_states)));
    }
    if !pooled_layers.is_empty() {
        fields.push(("pooled_layers", list(pooled_layers.iter().map(pooled_layer))));
    }
    let AddedEmbeddings { positions, types } = added;
    fields.extend(positions.as_ref().map(|PositionRows { rows, first }| {
        ("positions", record("PositionRows", &[("rows", value(rows)), ("first", value(first))]))
    }));
    fields.extend(types.map(|rows| ("types", value(rows))));
    fields.extend(embedding_norm.as_ref().map(|of_embeddings| ("embedding_norm", norm(of_embeddings))));
    fields.extend(layer_inputs.as_ref().map(|LayerInputs { width, table_scale, norm: of_inputs }| {
        let inputs = [("width", value(width)), ("table_scale", value(table_scale)), ("norm", norm(of_inputs))];
        ("layer_inputs", record("LayerInputs", &inputs))
    }));
    record("DecoderSpec", &fields)
}

/// The text of how weights are coded in the files.
pub fn of_quantization(quantization: &Quantization) -> String {
    match quantization {
        Quantization::CompressedTensors(compressed) => tuple("CompressedTensors", of_compressed(compressed)),
        Quantization::Fp8(Fp8 { block }) => tuple("Fp8", record("Fp8", &[("block", value(block))])),
        Quantization::Awq(Awq { group }) => tuple("Awq", record("Awq", &[("group", value(group))])),
        Quantization::Gptq(Gptq { bits, group, desc_act, added }) => {
            let fields = [
                ("bits", value(bits)),
                ("group", value(group)),
                ("desc_act", value(desc_act)),
                ("added", value(added)),
            ];
            tuple("Gptq", record("Gptq", &fields))
        }
        Quantization::Mxfp4 => "Mxfp4".to_owned(),
        Quantization::ModelOpt(ModelOpt) => "ModelOpt".to_owned(),
    }
}

/// The text of how weights are coded when they are loaded; empty where they stay as they are.
pub fn of_on_load(on_load: OnLoad) -> &'static str {
    match on_load {
        OnLoad::None => "",
        OnLoad::Int8 => "Int8",
        OnLoad::Int4 => "Int4",
    }
}

fn layer(layer: &LayerSpec) -> String {
    let LayerSpec { sublayers, stream_scale } = layer;
    let (name, mut fields) = match pair(sublayers) {
        Some(fields) => ("LayerSpec", fields),
        None => ("Layer", vec![("sublayers", list(sublayers.iter().map(sublayer)))]),
    };
    match stream_scale {
        StreamScale::One => (),
        StreamScale::Stored => fields.push(("stream_scale", "Stored".to_owned())),
    }
    record(name, &fields)
}

/// The fields of a mixer and a feed-forward part with one scale, one after the other or side by side: what all layers were once.
fn pair(sublayers: &[Sublayer]) -> Option<Vec<(&'static str, String)>> {
    let (order, [mixer_norms, feed_forward_norms], branches) = match sublayers {
        [Sublayer { norms: first, branches: one }, Sublayer { norms: second, branches: other }] => {
            ("Sequential", [*first, *second], [one.as_slice(), other].concat())
        }
        [Sublayer { norms, branches }] => ("Parallel", [*norms, SublayerNorms::NONE], branches.clone()),
        _ => return None,
    };
    let [
        Branch { part: Part::Mixer(of_mixer), scale, norms: SublayerNorms::NONE },
        Branch { part: Part::FeedForward(of_tokens), scale: other, norms: SublayerNorms::NONE },
    ] = branches.as_slice()
    else {
        return None;
    };
    if scale != other || sublayers.iter().any(|sublayer| sublayer.branches.is_empty()) {
        return None;
    }
    Some(vec![
        ("order", order.to_owned()),
        ("mixer_norms", norms(&mixer_norms)),
        ("mixer", mixer(of_mixer)),
        ("feed_forward_norms", norms(&feed_forward_norms)),
        ("feed_forward", feed_forward(of_tokens)),
        ("residual_scale", value(scale)),
    ])
}

fn sublayer(sublayer: &Sublayer) -> String {
    let branch = |Branch { part, scale, norms: of_branch }: &Branch| {
        let part = match part {
            Part::Mixer(of_mixer) => mixer(of_mixer),
            Part::FeedForward(of_tokens) => feed_forward(of_tokens),
        };
        let mut fields = vec![("part", part), ("scale", value(scale))];
        if *of_branch != SublayerNorms::NONE {
            fields.push(("norms", norms(of_branch)));
        }
        record("Branch", &fields)
    };
    let Sublayer { norms: around, branches } = sublayer;
    record("Sublayer", &[("norms", norms(around)), ("branches", list(branches.iter().map(branch)))])
}

fn mixer(mixer: &Mixer) -> String {
    match mixer {
        Mixer::Attention(attention) => tuple("Attention", self_attention(attention)),
        Mixer::Recurrent(Recurrent::GatedDelta(delta)) => tuple("GatedDelta", gated_delta(delta)),
        Mixer::Recurrent(Recurrent::ShortConv(conv)) => tuple("ShortConv", short_conv(conv)),
        Mixer::Recurrent(Recurrent::StateSpace(scan)) => tuple("StateSpace", state_space(scan)),
    }
}

fn feed_forward(part: &FeedForward) -> String {
    match part {
        FeedForward::Dense(of_mlp) => tuple("Dense", mlp(of_mlp)),
        FeedForward::Shared(of_mlp) => tuple("Shared", mlp(of_mlp)),
        FeedForward::LayerInput(LayerInput { width, activation: of_gate }) => {
            record("LayerInput", &[("width", value(width)), ("activation", activation(*of_gate).to_owned())])
        }
        FeedForward::Experts(of_experts) => tuple("Experts", experts(of_experts)),
    }
}

fn experts(experts: &Experts) -> String {
    let Experts { router, correction, logits, latent, expert, shared } = experts;
    let Router { experts, chosen, scores, groups, norm, scale } = router;
    let scores = match scores {
        Scores::Softmax => "Softmax",
        Scores::Sigmoid => "Sigmoid",
    };
    let groups = groups.as_ref().map(|Groups { count, kept, best }| {
        record("Groups", &[("count", value(count)), ("kept", value(kept)), ("best", value(best))])
    });
    let router = [
        ("experts", value(experts)),
        ("chosen", value(chosen)),
        ("scores", scores.to_owned()),
        ("groups", option(groups)),
        ("norm", value(norm)),
        ("scale", value(scale)),
    ];
    let correction = match correction {
        Correction::Stored => "Stored",
        Correction::None => "None",
    };
    let shared = shared.as_ref().map(|SharedExpert { mlp: of_shared, gate }| {
        let gate = match gate {
            SharedGate::Sigmoid => "Sigmoid",
            SharedGate::None => "None",
        };
        record("SharedExpert", &[("mlp", mlp(of_shared)), ("gate", gate.to_owned())])
    });
    let mut fields = vec![
        ("router", record("Router", &router)),
        ("correction", correction.to_owned()),
        ("expert", mlp(expert)),
        ("shared", option(shared)),
    ];
    let Logits { bias: of_router, norm: of_stream, expert_scales } = logits;
    match of_router {
        Bias::None => (),
        Bias::Added => fields.push(("router_bias", bias(*of_router))),
    }
    fields.extend(of_stream.map(|eps| ("router_norm", value(eps))));
    match expert_scales {
        ExpertScales::None => (),
        ExpertScales::Stored => fields.push(("expert_scales", "Stored".to_owned())),
    }
    fields.extend(latent.as_ref().map(|ExpertLatent { width, bias: of_latent }| {
        ("latent", record("ExpertLatent", &[("width", value(width)), ("bias", bias(*of_latent))]))
    }));
    record("Experts", &fields)
}

fn norms(norms: &SublayerNorms) -> String {
    let SublayerNorms { before, after, sum } = norms;
    let mut fields = vec![("before", option(before.as_ref().map(norm))), ("after", option(after.as_ref().map(norm)))];
    fields.extend(sum.as_ref().map(|of_sum| ("sum", norm(of_sum))));
    record("SublayerNorms", &fields)
}

fn norm(norm: &Norm) -> String {
    let Norm { kind, eps, weight } = norm;
    let kind = match kind {
        NormKind::Rms => "Rms",
        NormKind::Layer => "Layer",
        NormKind::LayerBiased => "LayerBiased",
    };
    let weight = match weight {
        NormWeight::Plain => "Plain",
        NormWeight::PlusOne => "PlusOne",
        NormWeight::Ones => "Ones",
    };
    record("Norm", &[("kind", kind.to_owned()), ("eps", value(eps)), ("weight", weight.to_owned())])
}

fn self_attention(attention: &SelfAttention) -> String {
    let SelfAttention {
        scores,
        kv_heads,
        head_dim,
        qk_norm,
        kv_source,
        values,
        value_norm,
        latent,
        qkv_bias,
        output_bias,
        output_gate,
        rope,
        temperature,
        sinks,
    } = attention;
    let AttentionSpec { heads, scale, window, softcap, reach } = scores;
    let mut scores =
        vec![("heads", value(heads)), ("scale", value(scale)), ("window", value(window)), ("softcap", value(softcap))];
    match reach {
        Reach::Back => (),
        Reach::Both => scores.push(("reach", "Both".to_owned())),
    }
    let scores = record("AttentionSpec", &scores);
    let qk_norm = match qk_norm {
        QkNorm::PerHead { norm: of_heads, order } => {
            let order = match order {
                NormOrder::BeforeRope => "BeforeRope",
                NormOrder::AfterRope => "AfterRope",
            };
            record("PerHead", &[("norm", norm(of_heads)), ("order", order.to_owned())])
        }
        QkNorm::Whole(whole) => tuple("Whole", norm(whole)),
        QkNorm::None => "None".to_owned(),
    };
    let temperature = temperature.as_ref().map(|Temperature { beta, original_positions }| {
        record("Temperature", &[("beta", value(beta)), ("original_positions", value(original_positions))])
    });
    let mut fields = vec![
        ("scores", scores),
        ("kv_heads", value(kv_heads)),
        ("head_dim", value(head_dim)),
        ("qk_norm", qk_norm),
        ("qkv_bias", bias(*qkv_bias)),
        ("output_bias", bias(*output_bias)),
        ("rope", value(rope)),
        ("temperature", option(temperature)),
    ];
    match output_gate {
        OutputGate::None => (),
        OutputGate::Sigmoid => fields.push(("output_gate", "Sigmoid".to_owned())),
        OutputGate::SigmoidInQueries => fields.push(("output_gate", "SigmoidInQueries".to_owned())),
        OutputGate::SigmoidPerHead => fields.push(("output_gate", "SigmoidPerHead".to_owned())),
    }
    match kv_source {
        KvSource::Own => (),
        KvSource::Attention(of) => fields.push(("kv_source", value(of))),
    }
    match values {
        Values::Projected => (),
        Values::Keys => fields.push(("values", "Keys".to_owned())),
    }
    fields.extend(value_norm.map(|eps| ("value_norm", value(eps))));
    fields.extend(latent.as_ref().map(
        |Latent { query_rank, rank, nope, rope, value: of_values, norm: of_latents }| {
            let fields = [
                ("query_rank", value(query_rank)),
                ("rank", value(rank)),
                ("nope", value(nope)),
                ("rope", value(rope)),
                ("value", value(of_values)),
                ("norm", norm(of_latents)),
                ("cached", "Latent".to_owned()),
            ];
            ("latent", record("Latent", &fields))
        },
    ));
    match sinks {
        Sinks::None => (),
        Sinks::Stored => fields.push(("sinks", "Stored".to_owned())),
    }
    record("SelfAttention", &fields)
}

fn gated_delta(delta: &GatedDelta) -> String {
    let GatedDelta { heads, taps, norm_eps } = delta;
    let DeltaHeads { keys, values, order, key_dim, value_dim } = heads;
    let mut fields = vec![
        ("keys", value(keys)),
        ("values", value(values)),
        ("key_dim", value(key_dim)),
        ("value_dim", value(value_dim)),
        ("taps", value(taps)),
        ("norm_eps", value(norm_eps)),
    ];
    match order {
        ValueOrder::Grouped => (),
        ValueOrder::Tiled => fields.push(("order", "Tiled".to_owned())),
    }
    record("GatedDelta", &fields)
}

fn short_conv(conv: &GatedShortConv) -> String {
    let GatedShortConv { taps, bias: of_all } = conv;
    record("GatedShortConv", &[("taps", value(taps)), ("bias", bias(*of_all))])
}

fn state_space(scan: &StateSpace) -> String {
    let StateSpace { heads, taps, conv_bias, bias: of_projections, scales, norm } = scan;
    let ScanHeads { heads, groups, head_dim, state_dim } = heads;
    let mut fields = vec![
        ("heads", value(heads)),
        ("groups", value(groups)),
        ("head_dim", value(head_dim)),
        ("state_dim", value(state_dim)),
        ("taps", value(taps)),
        ("conv_bias", bias(*conv_bias)),
        ("bias", bias(*of_projections)),
    ];
    match norm {
        Some(GroupNorm { eps, order }) => {
            fields.push(("norm_eps", value(eps)));
            match order {
                GateOrder::BeforeNorm => (),
                GateOrder::AfterNorm => fields.push(("gate", "AfterNorm".to_owned())),
            }
        }
        None => fields.push(("norm", "None".to_owned())),
    }
    if *scales != ScanScales::ONE {
        fields.push(("scales", value(scales.all())));
    }
    record("StateSpace", &fields)
}

fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::Silu => "Silu",
        Activation::GeluTanh => "GeluTanh",
        Activation::ClampedSwiglu => "ClampedSwiglu",
    }
}

fn pooled_layer(layer: &PooledLayer) -> String {
    let PooledLayer { tensors, inputs, outputs, bias: of_layer, curve, norm: of_layer_norm } = layer;
    let (folder, name) = match tensors {
        PooledTensors::Named(name) => ("", *name),
        PooledTensors::Module { folder, name } => (folder.as_str(), *name),
    };
    let fields = [
        ("folder", value(folder)),
        ("name", value(name)),
        ("inputs", value(inputs)),
        ("outputs", value(outputs)),
        ("bias", bias(*of_layer)),
        ("curve", option(curve.map(|curve| of_curve(curve).to_owned()))),
        ("norm", option(of_layer_norm.as_ref().map(|(of_layer, _)| norm(of_layer)))),
    ];
    record("PooledLayer", &fields)
}

fn of_curve(curve: Curve) -> &'static str {
    match curve {
        Curve::Gate(of_gate) => activation(of_gate),
        Curve::ReluSquared => "ReluSquared",
        Curve::Gelu => "Gelu",
        Curve::Tanh => "Tanh",
    }
}

fn mlp(mlp: &Mlp) -> String {
    let Mlp { width, form, bias: of_mlp, down_bias } = mlp;
    // Where both are alike, the text is the one that it was before there were two.
    let of_down = (down_bias != of_mlp).then(|| ("down_bias", bias(*down_bias)));
    let (activation, gate_scale) = match form {
        MlpForm::Gated { activation: of_gate, gate_scale } => (activation(*of_gate), *gate_scale),
        MlpForm::Ungated(curve) => {
            let name = format!("{}Mlp", of_curve(*curve));
            let fields = [("width", value(width)), ("bias", bias(*of_mlp))];
            return record(&name, &fields.into_iter().chain(of_down).collect::<Vec<_>>());
        }
        MlpForm::GatedBy(curve) => {
            let name = format!("{}GatedMlp", of_curve(*curve));
            let fields = [("width", value(width)), ("bias", bias(*of_mlp))];
            return record(&name, &fields.into_iter().chain(of_down).collect::<Vec<_>>());
        }
    };
    let mut fields = vec![("width", value(width)), ("activation", activation.to_owned()), ("bias", bias(*of_mlp))];
    if gate_scale != 1.0 {
        fields.push(("gate_scale", value(gate_scale)));
    }
    fields.extend(of_down);
    record("GatedMlp", &fields)
}

fn bias(bias: Bias) -> String {
    match bias {
        Bias::Added => "Added",
        Bias::None => "None",
    }
    .to_owned()
}

fn of_head(head: &Head) -> String {
    let Head { weights, scale, softcap } = head;
    let weights = match weights {
        HeadWeights::Tied => "Tied",
        HeadWeights::Own => "Own",
        HeadWeights::Missing => "Missing",
    };
    record("Head", &[("weights", weights.to_owned()), ("scale", value(scale)), ("softcap", value(softcap))])
}

fn rope(rope: &Rope) -> String {
    let Rope { theta, scaling, rotary_factor, pairing } = rope;
    let pairing = match pairing {
        Pairing::Halves => "Halves",
        Pairing::Neighbours => "Neighbours",
    };
    record(
        "Rope",
        &[
            ("theta", value(theta)),
            ("scaling", of_scaling(scaling)),
            ("rotary_factor", value(rotary_factor)),
            ("pairing", pairing.to_owned()),
        ],
    )
}

fn of_scaling(scaling: &RopeScaling) -> String {
    match scaling {
        RopeScaling::None => "None".to_owned(),
        RopeScaling::Linear { factor } => record("Linear", &[("factor", value(factor))]),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions } => record(
            "Llama3",
            &[
                ("factor", value(factor)),
                ("low_freq_factor", value(low_freq_factor)),
                ("high_freq_factor", value(high_freq_factor)),
                ("original_positions", value(original_positions)),
            ],
        ),
        RopeScaling::Yarn { factor, attention_factor, beta_fast, beta_slow, ramp, original_positions } => {
            let ramp = match ramp {
                Ramp::Whole => "Whole",
                Ramp::Exact => "Exact",
            };
            record(
                "Yarn",
                &[
                    ("factor", value(factor)),
                    ("attention_factor", value(attention_factor)),
                    ("beta_fast", value(beta_fast)),
                    ("beta_slow", value(beta_slow)),
                    ("ramp", ramp.to_owned()),
                    ("original_positions", value(original_positions)),
                ],
            )
        }
        RopeScaling::LongRope { short_factors, long_factors, attention_factor, original_positions } => record(
            "LongRope",
            &[
                ("short_factors", value(short_factors)),
                ("long_factors", value(long_factors)),
                ("attention_factor", value(attention_factor)),
                ("original_positions", value(original_positions)),
            ],
        ),
        RopeScaling::Proportional { factor, turning } => {
            record("Proportional", &[("factor", value(factor)), ("turning", value(turning))])
        }
    }
}

fn of_compressed(compressed: &Compressed) -> String {
    let group = |(group, scheme): (&TargetGroup, &Scheme)| {
        let Scheme { number, strategy, symmetric } = scheme;
        let number = match number {
            Number::Int(bits) => tuple("Int", value(bits)),
            Number::Float8 => "Float8".to_owned(),
            Number::Float4 => "Float4".to_owned(),
        };
        let strategy = match strategy {
            Strategy::Tensor => "Tensor".to_owned(),
            Strategy::Channel => "Channel".to_owned(),
            Strategy::Group(weights) => tuple("Group", value(weights)),
            Strategy::Block(shape) => tuple("Block", value(shape)),
        };
        let targets = list(group.names().iter().map(value).chain(group.anchored_patterns().map(value)));
        let scheme = record("Scheme", &[("number", number), ("strategy", strategy), ("symmetric", value(symmetric))]);
        format!("({targets}, {scheme})")
    };
    record("Compressed", &[("groups", list(compressed.groups().map(group)))])
}

/// A number, or numbers.
fn value(value: impl Debug) -> String {
    format!("{value:?}")
}

fn record(name: &str, fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{name} {{ {} }}", fields.join(", "))
}

fn tuple(name: &str, value: String) -> String {
    format!("{name}({value})")
}

fn option(value: Option<String>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| tuple("Some", value))
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}
