//! What fused ops compute, in plain ones: the default bodies of [`Ops`], and what a backend falls back to where it has no kernel for the fusion.

use crate::{
    Activated, Activation, AddNorm, Curve, DeltaInputs, DeltaLayer, HeadRows, KvPlace, LayerInput, NextNorm, Ops, Part,
    QkNormRope, ScanGate, ScanInputs, ScanLayer, ScanRows, Scoring, Tensor,
};

/// [`linear`](crate::ops::linear), then [`add_norm`](crate::ops::add_norm).
pub fn linear_add_norm<B: Ops>(
    backend: &mut B,
    residual: &mut Tensor<B::Storage>,
    delta: &mut Tensor<B::Storage>,
    layer: LayerInput<Tensor<B::Storage>, B::Matrix, B::Vector>,
    add: AddNorm<B::Vector>,
    next: NextNorm<Tensor<B::Storage>, B::Vector>,
) {
    let (columns, _) = B::matrix_shape(layer.weight);
    backend.linear(delta, layer, 0..columns);
    backend.add_norm(residual, delta, add, Some(next));
}

/// [`linear`](crate::ops::linear), then [`activate_mul`](crate::ops::activate_mul).
pub fn gated_linear<B: Ops>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    gate_up: &mut Tensor<B::Storage>,
    layer: LayerInput<Tensor<B::Storage>, B::Matrix, B::Vector>,
    activation: Activation,
) {
    let (columns, _) = B::matrix_shape(layer.weight);
    backend.linear(gate_up, layer, 0..columns);
    backend.activate_mul(out, gate_up, activation);
}

/// [`rope_and_cache`](crate::ops::rope_and_cache), then [`attention`](crate::ops::attention).
pub fn rope_and_attention<B: Ops>(
    backend: &mut B,
    scoring: Scoring<B::Vector>,
    heads: HeadRows<Tensor<B::Storage>>,
    transform: QkNormRope<B::Vector, Tensor<B::Storage>>,
    cache: &mut B::KvCache,
    place: KvPlace,
    device_batch: &B::DeviceBatch,
) {
    let HeadRows { qkv, out } = heads;
    backend.rope_and_cache(scoring.spec, qkv, transform, cache, place, device_batch);
    backend.attention(scoring, out, qkv, cache, place, device_batch);
}

/// [`causal_conv`](crate::ops::causal_conv), [`gated_delta`](crate::ops::gated_delta), then [`gated_norm`](crate::ops::gated_norm).
pub fn delta_layer<B: Ops>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    mixed: &mut Tensor<B::Storage>,
    layer: DeltaLayer<Tensor<B::Storage>, B::Vector>,
    (states, at): (&mut B::States, usize),
    device_batch: &B::DeviceBatch,
) {
    let DeltaLayer { projected, conv_weight, conv, decays, heads, .. } = layer;
    backend.causal_conv(mixed, projected, conv_weight, conv, (states, at), device_batch);
    let inputs = DeltaInputs { qkv: mixed, gates: projected, first_gate: layer.first_gate(), decays };
    backend.gated_delta(out, inputs, heads, (states, layer.rule_at(at)), device_batch);
    backend.gated_norm(out, layer.gate());
}

/// [`causal_conv`](crate::ops::causal_conv), [`selective_scan`](crate::ops::selective_scan), then what its gate says.
pub fn scan_layer<B: Ops>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    ScanRows { mixed, read }: ScanRows<Tensor<B::Storage>>,
    layer: ScanLayer<Tensor<B::Storage>, B::Vector>,
    (states, at): (&mut B::States, usize),
    device_batch: &B::DeviceBatch,
) {
    let ScanLayer { projected, conv_weight, conv, rates, step_scale, heads, gate } = layer;
    backend.causal_conv(mixed, projected, conv_weight, conv, (states, at), device_batch);
    let inputs = ScanInputs { xbc: mixed, steps: projected, first_step: layer.first_step(), step_scale, rates };
    let place = (states, layer.scan_at(at));
    let ScanGate::Silu { scale } = gate else {
        backend.selective_scan(out, inputs, heads, place, device_batch);
        if let ScanGate::Norm(gate) = gate {
            backend.gated_norm(out, gate);
        }
        return;
    };
    let read = read.expect("the op checked it");
    backend.selective_scan(read, inputs, heads, place, device_batch);
    let (of, times) = (Part { x: projected, first: layer.first_gate() }, Some(Part { x: &*read, first: 0 }));
    backend.activate(out, Activated { of, scale, curve: Curve::Gate(Activation::Silu), times });
}
