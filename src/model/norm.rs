//! A norm of a model: its weights, as the ops take them.

use crate::names::NormNames;
use crate::spec::{self, NormWeight};
use crate::weights::Weights;
use base::error::Result;
use compute::{AddNorm, Backend, NormKind, NormWeights};
use std::ops::Range;

/// A normalization with its weights.
pub struct Norm<B: Backend> {
    /// `[len]`
    weight: B::Vector,
    eps: f32,
    kind: NormKind,
}

/// The norms around a sublayer.
pub struct SublayerNorms<B: Backend> {
    before: Option<Norm<B>>,
    after: Option<Norm<B>>,
    sum: Option<Norm<B>>,
}

impl<B: Backend> Norm<B> {
    /// The norm `name` of `len` numbers.
    pub fn load(backend: &B, spec: &spec::Norm, weights: &mut Weights, name: &str, len: usize) -> Result<Norm<B>> {
        Norm::load_part(backend, spec, weights, name, len, 0..len)
    }

    /// The weights `part` of the norm `name` of `len` numbers. Weights that are stored less one are completed here, in f32; those that
    /// are not stored are made here, and no tensor is read.
    pub fn load_part(
        backend: &B,
        spec: &spec::Norm,
        weights: &mut Weights,
        name: &str,
        len: usize,
        part: Range<usize>,
    ) -> Result<Norm<B>> {
        let weight = match spec.weight {
            NormWeight::Ones => backend.table(&vec![1.0; part.len()])?,
            NormWeight::Plain if spec.kind == NormKind::LayerBiased => {
                let biases = weights.bias(name, len, std::slice::from_ref(&part))?;
                let both = [weights.vector(name, len, part)?].into_iter().chain(biases);
                backend.vector(&both.collect::<Vec<_>>())?
            }
            NormWeight::Plain => backend.vector(&[weights.vector(name, len, part)?])?,
            NormWeight::PlusOne => {
                let mut weight = weights.vector(name, len, part)?.to_f32();
                weight.iter_mut().for_each(|w| *w += 1.0);
                backend.table(&weight)?
            }
        };
        Ok(Norm { weight, eps: spec.eps, kind: spec.kind })
    }

    /// A norm whose weights are the numbers of the tensor `name`, `[len]`, times `factor`.
    pub fn scaled(
        backend: &B,
        weights: &mut Weights,
        name: &str,
        len: usize,
        (eps, factor): (f32, f32),
    ) -> Result<Norm<B>> {
        let mut weight = weights.vector(name, len, 0..len)?.to_f32();
        weight.iter_mut().for_each(|w| *w *= factor);
        Ok(Norm { weight: backend.table(&weight)?, eps, kind: NormKind::Rms })
    }

    /// A norm that makes zeros of finite numbers.
    pub fn zero(backend: &B, len: usize) -> Result<Norm<B>> {
        Ok(Norm { weight: backend.table(&vec![0.0; len])?, eps: 1.0, kind: NormKind::Rms })
    }

    /// Says that `product` alone reads what it gives.
    pub fn bind(&mut self, product: &B::Matrix) {
        B::bind_norm(&mut self.weight, product);
    }

    /// What an op takes.
    pub fn weights(&self) -> NormWeights<'_, B::Vector> {
        NormWeights { weight: &self.weight, eps: self.eps, kind: self.kind }
    }
}

impl<B: Backend> SublayerNorms<B> {
    /// The norms around a sublayer of layer `layer`, which reads and adds to a stream of `hidden` numbers.
    pub fn load(
        backend: &B,
        spec: &spec::SublayerNorms,
        weights: &mut Weights,
        names: &NormNames,
        layer: usize,
        hidden: usize,
    ) -> Result<SublayerNorms<B>> {
        let mut norm = |spec: &Option<spec::Norm>, name| match spec {
            Some(spec) => {
                let name = weights.names().in_layer(layer, name);
                Norm::load(backend, spec, weights, &name, hidden).map(Some)
            }
            None => Ok(None),
        };
        Ok(SublayerNorms {
            before: norm(&spec.before, names.before)?,
            after: norm(&spec.after, names.after)?,
            // No model has both.
            sum: norm(&spec.sum, names.after)?,
        })
    }

    /// Says that `product` alone reads the norm before the sublayer.
    pub fn bind(&mut self, product: &B::Matrix) {
        self.before.iter_mut().for_each(|norm| norm.bind(product));
    }

    /// The norm of what the sublayer reads. `None`: it reads the stream.
    pub fn before(&self) -> Option<NormWeights<'_, B::Vector>> {
        self.before.as_ref().map(Norm::weights)
    }

    /// The norm of the stream behind the sublayer.
    pub fn of_sum(&self) -> Option<NormWeights<'_, B::Vector>> {
        self.sum.as_ref().map(Norm::weights)
    }

    /// How the sublayer's output is added to the stream, which is multiplied by `stream_scale` then.
    pub fn add(&self, scale: f32, stream_scale: f32) -> AddNorm<'_, B::Vector> {
        AddNorm { post: self.after.as_ref().map(Norm::weights), scale, stream_scale }
    }
}
