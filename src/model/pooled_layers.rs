//! The layers that read the pooled state of a text: those of classifiers, and of the Dense modules of sentence-transformers.

use crate::linear::Linear;
use crate::norm::Norm;
use crate::spec::{Bias, Curve, DecoderSpec, PooledLayer, PooledTensors};
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{Activated, Backend, HostMatrix, HostVector, Part, Tensor};
use formats::WeightFormat;
use os::HostBytes;

/// The layers, in order.
pub struct PooledLayers<B: Backend>(Vec<Layer<B>>);

struct Layer<B: Backend> {
    linear: Linear<B>,
    curve: Option<Curve>,
    norm: Option<Norm<B>>,
    /// `[texts, outputs padded]`
    product: Tensor<B::Storage>,
    /// `[texts, outputs padded]`
    curved: Tensor<B::Storage>,
    /// `[texts, outputs padded]`
    normed: Tensor<B::Storage>,
}

/// Outputs of the last layer are padded to a multiple of this by rows of zeros: kernels for GPUs write as many numbers at a time. Those of a layer before it are
/// what the next one reads, and no more.
const OUTPUTS: usize = 8;

impl<B: Backend> PooledLayers<B> {
    /// Those of `spec`, for passes of at most `texts` texts.
    pub fn load(backend: &B, spec: &DecoderSpec, weights: &mut Weights, texts: usize) -> Result<PooledLayers<B>> {
        let last = spec.pooled_layers.len().saturating_sub(1);
        let load = |(index, layer): (usize, &PooledLayer)| {
            let padding = if index == last { OUTPUTS } else { 1 };
            Layer::load(backend, layer, weights, texts, padding)
        };
        spec.pooled_layers.iter().enumerate().map(load).collect::<Result<_>>().map(PooledLayers)
    }

    /// Sets the texts of this pass.
    pub fn set_rows(&mut self, texts: usize) {
        let tensors = self.0.iter_mut().flat_map(|layer| [&mut layer.product, &mut layer.curved, &mut layer.normed]);
        tensors.for_each(|tensor| tensor.set_rows(texts));
    }

    /// What they make of `x`, `[texts, hidden]`.
    pub fn forward<'a>(&'a mut self, backend: &mut B, x: &'a Tensor<B::Storage>) -> &'a Tensor<B::Storage> {
        match x.rows() {
            0 => x,
            _ => self.0.iter_mut().fold(x, |x, layer| layer.forward(backend, x)),
        }
    }
}

impl<B: Backend> Layer<B> {
    /// A layer whose outputs are padded to a multiple of `padding`.
    fn load(backend: &B, spec: &PooledLayer, weights: &mut Weights, texts: usize, padding: usize) -> Result<Layer<B>> {
        let (module, name) = match &spec.tensors {
            PooledTensors::Named(name) => (None, *name),
            PooledTensors::Module { folder, name } => (Some(folder.as_str()), *name),
        };
        let PooledLayer { inputs, outputs, .. } = *spec;
        let padded = outputs.next_multiple_of(padding);
        weights.aside(module, |weights| {
            let mut matrices = vec![weights.matrix(name, outputs, inputs)?];
            let zeros =
                |numbers: usize, coding: WeightFormat| HostBytes::owned(vec![0; coding.row_bytes(numbers)].into());
            if padded > outputs {
                let coding = WeightFormat::from(weights.dtype());
                let rows = padded - outputs;
                matrices.push(HostMatrix::new(zeros(rows * inputs, coding), coding, rows, inputs));
            }
            let bias = match spec.bias {
                Bias::None => None,
                Bias::Added => {
                    let all = 0..outputs;
                    let mut parts = weights.bias(name, outputs, std::slice::from_ref(&all))?;
                    parts.push(HostVector::new(
                        zeros(padded - outputs, WeightFormat::F32),
                        WeightFormat::F32,
                        padded - outputs,
                    ));
                    Some(backend.vector(&parts)?)
                }
            };
            let norm = spec.norm.as_ref();
            let norm = norm.map(|(norm, name)| Norm::load(backend, norm, weights, name, outputs)).transpose()?;
            let tensor = || backend.tensor(texts, padded);
            Ok(Layer {
                linear: Linear::of(backend.matrix(&matrices)?, bias),
                curve: spec.curve,
                norm,
                product: tensor()?,
                curved: tensor()?,
                normed: tensor()?,
            })
        })
    }

    fn forward<'a>(&'a mut self, backend: &mut B, x: &Tensor<B::Storage>) -> &'a Tensor<B::Storage> {
        let Layer { linear, curve, norm, product, curved, normed } = self;
        linear.forward(backend, product, x);
        let out = match curve {
            Some(curve) => {
                let of = Part { x: &*product, first: 0 };
                ops::activate(backend, curved, Activated { of, scale: 1.0, curve: *curve, times: None });
                &*curved
            }
            None => &*product,
        };
        match norm {
            Some(norm) => {
                ops::norm(backend, normed, out, norm.weights());
                normed
            }
            None => out,
        }
    }
}
