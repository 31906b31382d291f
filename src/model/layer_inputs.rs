//! What each layer gets of a token besides the stream: a row of a table, and a projection of what the stream begins with.

use crate::linear::{Inputs, Linear, Projection};
use crate::norm::Norm;
use crate::spec::{self, Bias, DecoderSpec};
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{AddNorm, Backend, Tensor};
use std::f32::consts::FRAC_1_SQRT_2;

/// The weights, and the memory in which the inputs of a pass are. Ranks compute them all: a layer of a rank reads its columns.
pub struct LayerInputs<B: Backend> {
    /// `[vocab, layers * width]`
    table: B::Matrix,
    table_scale: f32,
    /// From the stream. `[layers * width, hidden]`
    projection: Linear<B>,
    /// Of the part of a layer. `[width]`
    norm: Norm<B>,
    width: usize,
    /// `[tokens, layers * width]`
    inputs: Tensor<B::Storage>,
    /// `[tokens, layers * width]`
    projected: Tensor<B::Storage>,
}

impl<B: Backend> LayerInputs<B> {
    /// For passes of at most `tokens` tokens.
    pub fn load(
        backend: &B,
        decoder: &DecoderSpec,
        spec: &spec::LayerInputs,
        weights: &mut Weights,
        tokens: usize,
    ) -> Result<LayerInputs<B>> {
        let names = &weights.names().layer_inputs;
        let all = decoder.layers.len() * spec.width;
        let own = std::iter::once(0..all).collect();
        let projection = Projection { name: names.projection.into(), outputs: all, own };
        let inputs = Inputs::all(decoder.hidden);
        // What is projected is divided by the root of its length first, which a norm sees by its epsilon alone.
        let norm = spec::Norm { eps: spec.norm.eps * decoder.hidden as f32, ..spec.norm };
        Ok(LayerInputs {
            table: backend.matrix(&[weights.matrix(names.table, decoder.vocab, all)?])?,
            table_scale: spec.table_scale,
            projection: Linear::load(backend, weights, inputs, &[projection], Bias::None, true)?,
            norm: Norm::load(backend, &norm, weights, names.norm, spec.width)?,
            width: spec.width,
            inputs: backend.tensor(tokens, all)?,
            projected: backend.tensor(tokens, all)?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.inputs.set_rows(tokens);
        self.projected.set_rows(tokens);
    }

    /// Computes those of a pass whose stream begins with `rows`.
    pub fn compute(&mut self, backend: &mut B, rows: &Tensor<B::Storage>, device_batch: &B::DeviceBatch) {
        let LayerInputs { table, table_scale, projection, norm, width, inputs, projected } = self;
        let all = inputs.cols();
        ops::embedding(backend, inputs, table, *table_scale, device_batch);
        projection.forward(backend, projected, rows);
        // Each part of a layer is a row with a norm of its own.
        B::reshape(inputs, *width);
        B::reshape(projected, *width);
        let add = AddNorm { post: Some(norm.weights()), scale: 1.0, stream_scale: FRAC_1_SQRT_2 };
        ops::add_norm(backend, inputs, projected, add, None);
        B::reshape(inputs, all);
        B::reshape(projected, all);
    }

    /// `[tokens, layers * width]`
    pub fn inputs(&self) -> &Tensor<B::Storage> {
        &self.inputs
    }
}
