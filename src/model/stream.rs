//! The residual stream: what do sublayers read, and how is what they compute added?
//!
//! Where several ranks compute a model together, the streams of all are equal: what a sublayer computes is brought together, or summed, before it is
//! added.

use crate::linear::Linear;
use crate::shard::Sharding;
use base::error::Result;
use compute::ops;
use compute::{AddNorm, Backend, NextNorm, NormWeights, Part, TableRows, Tensor};

/// The stream, and the memory in which it is added to and normalized.
pub struct Stream<B: Backend> {
    /// What layers add to. `[tokens, hidden]`
    rows: Tensor<B::Storage>,
    /// What a sublayer computed. `[tokens, hidden]`
    delta: Tensor<B::Storage>,
    /// The columns of it that this rank computes, where ranks compute some each. `[tokens, columns]`
    own_delta: Option<Tensor<B::Storage>>,
    /// What the next sublayer reads, where it reads a norm. `[tokens, hidden]`
    normed: Tensor<B::Storage>,
}

/// What a sublayer adds to the stream.
pub enum SublayerOutput<'a, B: Backend> {
    /// What `layer` makes of `x`, not computed yet: a device may fuse the product with the addition and the next norm.
    Product {
        /// The projection back into the stream.
        layer: &'a Linear<B>,
        /// What it reads.
        x: &'a Tensor<B::Storage>,
    },
    /// A sum that is there, such as that of several experts, as far as this rank computes it: all of it where it is alone, its share of each
    /// number where shares are [reduced](Sharding::reduces), its columns where they are [gathered](Sharding::gathers).
    Delta(&'a Tensor<B::Storage>),
    /// A sum that is there, equal on every rank.
    Whole(&'a Tensor<B::Storage>),
}

impl<B: Backend> Stream<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, hidden: usize, sharding: &Sharding, tokens: usize) -> Result<Stream<B>> {
        let tensor = || backend.tensor(tokens, hidden);
        let own_delta = || backend.tensor(tokens, sharding.own_hidden().len());
        Ok(Stream {
            rows: tensor()?,
            delta: tensor()?,
            own_delta: sharding.gathers().then(own_delta).transpose()?,
            normed: tensor()?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        let all = [&mut self.rows, &mut self.delta, &mut self.normed].into_iter().chain(&mut self.own_delta);
        all.for_each(|tensor| tensor.set_rows(tokens));
    }

    /// Begins with the rows of `table` times `scale`, and those of the tables `added`; the sum is normalized where there is a norm of it.
    pub fn embed(
        &mut self,
        backend: &mut B,
        (table, scale): (&B::Matrix, f32),
        added: &[(B::Matrix, TableRows)],
        norm: Option<NormWeights<B::Vector>>,
        device_batch: &B::DeviceBatch,
    ) {
        let Stream { rows, delta, .. } = self;
        // Nothing has been computed yet that is to be added.
        let sum = if norm.is_some() { &mut *delta } else { &mut *rows };
        ops::embedding(backend, sum, table, scale, device_batch);
        for (table, of_place) in added {
            ops::add_embedding(backend, sum, table, *of_place, device_batch);
        }
        if let Some(norm) = norm {
            ops::norm(backend, rows, delta, norm);
        }
    }

    /// The rows themselves.
    pub fn rows(&self) -> &Tensor<B::Storage> {
        &self.rows
    }

    /// The norm that was asked for last.
    pub fn normed(&self) -> &Tensor<B::Storage> {
        &self.normed
    }

    /// Normalizes the rows as they are.
    pub fn normalize(&mut self, backend: &mut B, norm: NormWeights<B::Vector>) {
        ops::norm(backend, &mut self.normed, &self.rows, norm);
    }

    /// Begins with zeros. `zero`: a norm that makes them of `like`.
    pub fn clear(&mut self, backend: &mut B, like: &Tensor<B::Storage>, zero: NormWeights<B::Vector>) {
        ops::norm(backend, &mut self.rows, like, zero);
    }

    /// Normalizes other rows in the place of its own.
    pub fn normalize_other(&mut self, backend: &mut B, rows: &Tensor<B::Storage>, norm: NormWeights<B::Vector>) {
        ops::norm(backend, &mut self.normed, rows, norm);
    }

    /// Goes on with the norm that was asked for last.
    pub fn become_normed(&mut self) {
        std::mem::swap(&mut self.rows, &mut self.normed);
    }

    /// Adds what a sublayer computed, and normalizes the sum where `next` is the norm of what is read then.
    pub fn add(
        &mut self,
        backend: &mut B,
        sharding: &Sharding,
        output: SublayerOutput<B>,
        add: AddNorm<B::Vector>,
        next: Option<NormWeights<B::Vector>>,
    ) {
        let Stream { rows, delta, own_delta, normed } = self;
        let next = next.map(|norm| NextNorm { out: normed, norm });
        let (next, own) = match (output, next) {
            (SublayerOutput::Product { layer, x }, Some(next)) if sharding.is_alone() => {
                return ops::linear_add_norm(backend, rows, delta, layer.with_input(x), add, next);
            }
            (SublayerOutput::Product { layer, x }, next) => {
                let own = own_delta.as_mut().unwrap_or(delta);
                layer.forward(backend, own, x);
                (next, None)
            }
            (SublayerOutput::Delta(own), next) => (next, Some(own)),
            (SublayerOutput::Whole(delta), next) => return ops::add_norm(backend, rows, delta, add, next),
        };
        let delta = match (own.or(own_delta.as_ref()), sharding.gathers()) {
            (Some(x), true) => {
                ops::join_columns(backend, delta, Some(Part { x, first: 0 }), &sharding.hidden);
                &*delta
            }
            (Some(delta), false) => delta,
            (None, _) => &*delta,
        };
        match sharding.reduces() {
            true => ops::reduce_add_norm(backend, rows, delta, add, next),
            false => ops::add_norm(backend, rows, delta, add, next),
        }
    }
}
