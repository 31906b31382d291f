//! The layers of a model, to time whole steps.

use super::codings::{self, Mixture};
use super::shapes::Shape;
use super::{Bench, random_vector, rms, transform};
use compute::cuda::{Cuda, DeviceBatch, KvCache, Matrix, Tensor, Vector};
use compute::ops;
use compute::{Activation, AddNorm, Device, HeadRows, HostMatrix, LayerInput, NextNorm};
use formats::WeightFormat;

pub struct Model {
    shape: Shape,
    layers: Vec<[Matrix; 4]>,
    embedding: Matrix,
    /// Of attention and of the MLP of each layer. `[layers]`
    norms: Vec<[Vector; 2]>,
    last_norm: Vector,
    head_norm: Vector,
    rope: Vector,
    /// Of all weights.
    pub bytes: f64,
    /// Whether attention is launched with what prepares it, as models do. Else apart.
    pub is_fused: bool,
    /// Whether the product of gates and up is launched with the activation, as models do. Else apart.
    pub is_gated: bool,
    /// Whether the products that are added to the stream are launched with the sum and its norm, as models do. Else apart.
    pub is_added: bool,
    /// Whether there is attention at all. Without it products and norms are timed alone.
    pub attends: bool,
}

impl Model {
    pub fn new(bench: &mut Bench, shape: Shape, mixture: Mixture) -> Model {
        let values = shape.kv_heads * shape.head_dim;
        let hosts = |sensitive: WeightFormat| {
            let [(_, qkv, hidden), out, gate_up, down] = shape.linears();
            let whole = |(_, n, k): (&str, usize, usize), coding| vec![codings::matrix(coding, [n, k], 5)];
            let qkv = if sensitive == mixture.coding() {
                vec![codings::matrix(sensitive, [qkv, hidden], 5)]
            } else {
                let codings = [(mixture.coding(), qkv - values), (sensitive, values)];
                codings.map(|(coding, rows)| codings::matrix(coding, [rows, hidden], 5)).to_vec()
            };
            [qkv, whole(out, mixture.coding()), whole(gate_up, mixture.coding()), whole(down, sensitive)]
        };
        let mut made: Vec<(WeightFormat, [Vec<HostMatrix>; 4])> = Vec::new();
        let cuda = &mut bench.cuda;
        let (mut layers, mut bytes) = (Vec::new(), 0);
        for layer in 0..shape.layers {
            let sensitive = mixture.sensitive(layer, shape.layers);
            if !made.iter().any(|(coding, _)| *coding == sensitive) {
                made.push((sensitive, hosts(sensitive)));
            }
            let (_, parts) = made.iter().find(|(coding, _)| *coding == sensitive).unwrap();
            bytes += parts.iter().flatten().map(HostMatrix::bytes).sum::<usize>();
            layers.push([0, 1, 2, 3].map(|i| cuda.matrix(&parts[i]).unwrap()));
        }
        let norm = || cuda.vector(&[random_vector(shape.hidden, 7)]).unwrap();
        let bound = |product: &Matrix| {
            let mut norm = norm();
            Cuda::bind_norm(&mut norm, product);
            norm
        };
        let norms = layers.iter().map(|[qkv, _, gate_up, _]: &[Matrix; 4]| [bound(qkv), bound(gate_up)]).collect();
        let head = codings::matrix(mixture.head(), [shape.vocab, shape.hidden], 6);
        Model {
            shape,
            is_fused: true,
            is_gated: true,
            is_added: true,
            attends: true,
            layers,
            bytes: (bytes + head.bytes()) as f64,
            embedding: cuda.matrix(&[head]).unwrap(),
            norms,
            last_norm: norm(),
            head_norm: cuda.vector(&[random_vector(shape.head_dim, 8)]).unwrap(),
            rope: cuda.table(&vec![0.7; 32_768 * shape.head_dim]).unwrap(),
        }
    }

    /// The activations of a pass over `tokens` tokens of `rows` rows.
    pub fn tensors(&self, bench: &mut Bench, rows: usize, tokens: usize) -> Vec<Tensor> {
        let shape = &self.shape;
        let widths =
            [shape.hidden, shape.hidden, shape.hidden, shape.qkv(), shape.heads * shape.head_dim, 2 * shape.width];
        let mut tensors: Vec<Tensor> = widths.iter().map(|&cols| bench.tensor(tokens, cols)).collect();
        tensors.push(bench.tensor(tokens, shape.width));
        tensors.push(bench.tensor(rows, shape.hidden));
        tensors.push(bench.tensor(rows, shape.vocab));
        tensors
    }

    pub fn launch(&self, cuda: &mut Cuda, tensors: &mut [Tensor], cache: &mut KvCache, device_batch: &mut DeviceBatch) {
        let (shape, spec) = (&self.shape, self.shape.attention());
        let [residual, x, normed, qkv, attended, gate_up, gated, last, logits] = tensors else { unreachable!() };
        ops::embedding(cuda, residual, &self.embedding, 1.0, device_batch);
        ops::norm(cuda, normed, residual, rms(&self.norms[0][0]));
        for (index, [qkv_weight, out_weight, gate_up_weight, down_weight]) in self.layers.iter().enumerate() {
            let transform = transform(&self.head_norm, &self.rope, shape.head_dim);
            ops::linear(cuda, qkv, LayerInput::new(normed, qkv_weight, None), 0..shape.qkv());
            if !self.attends {
                // `attended` stays as it is.
            } else if self.is_fused {
                let heads = HeadRows { qkv, out: attended };
                ops::rope_and_attention(cuda, &spec, heads, transform, cache, index, device_batch);
            } else {
                ops::rope_and_cache(cuda, &spec, qkv, transform, cache, index, device_batch);
                ops::attention(cuda, &spec, attended, qkv, cache, index, device_batch);
            }
            let next = NextNorm { out: &mut *normed, norm: rms(&self.norms[index][1]) };
            if self.is_added {
                let out = LayerInput::new(&*attended, out_weight, None);
                ops::linear_add_norm(cuda, residual, x, out, AddNorm::PLAIN, next);
            } else {
                ops::linear(cuda, x, LayerInput::new(attended, out_weight, None), 0..shape.hidden);
                ops::add_norm(cuda, residual, x, AddNorm::PLAIN, Some(next));
            }
            if self.is_gated {
                ops::gated_linear(
                    cuda,
                    gated,
                    gate_up,
                    LayerInput::new(normed, gate_up_weight, None),
                    Activation::Silu,
                );
            } else {
                ops::linear(cuda, gate_up, LayerInput::new(normed, gate_up_weight, None), 0..2 * shape.width);
                ops::activate_mul(cuda, gated, gate_up, Activation::Silu);
            }
            let norm = self.norms.get(index + 1).map_or(&self.last_norm, |[norm, _]| norm);
            let next = NextNorm { out: &mut *normed, norm: rms(norm) };
            if self.is_added {
                let down = LayerInput::new(&*gated, down_weight, None);
                ops::linear_add_norm(cuda, residual, x, down, AddNorm::PLAIN, next);
            } else {
                ops::linear(cuda, x, LayerInput::new(gated, down_weight, None), 0..shape.hidden);
                ops::add_norm(cuda, residual, x, AddNorm::PLAIN, Some(next));
            }
        }
        // A decode step has no rows to leave out.
        let last = if last.rows() < normed.rows() {
            ops::gather(cuda, last, normed, device_batch);
            last
        } else {
            normed
        };
        ops::linear(cuda, logits, LayerInput::new(last, &self.embedding, None), 0..shape.vocab);
        ops::sample(cuda, device_batch, logits);
    }
}
