//! How many bytes do the experts of each layer take, before any weight is taken?

use super::{Weights, supported};
use crate::names::{GateUpNames, MlpNames};
use formats::WeightFormat;
use formats::source::Tensor;

/// Bytes of the weights of a decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightBytes {
    /// Of the experts that a router chooses from. `[layers]`
    pub experts: Vec<u64>,
    /// Of all others.
    pub others: u64,
}

impl Weights {
    /// What the weights of `layers` layers take, where `held` says what a matrix of `[rows, cols]` in a coding takes.
    pub fn bytes_of_experts(&self, layers: usize, held: impl Fn(WeightFormat, [usize; 2]) -> u64) -> WeightBytes {
        let mut bytes = WeightBytes { experts: vec![0; layers], others: 0 };
        for name in self.tensors.names().filter(|name| self.is_of_decoder(name)) {
            let Some(tensor) = self.tensors.get(name) else { continue };
            let of_tensor = self.bytes_as(name, tensor, &held);
            match self.layer_of_experts(name).and_then(|layer| bytes.experts.get_mut(layer)) {
                Some(of_layer) => *of_layer += of_tensor,
                None => bytes.others += of_tensor,
            }
        }
        bytes
    }

    /// The layer whose experts have a tensor.
    fn layer_of_experts(&self, name: &str) -> Option<usize> {
        let (names, body) = (self.layout.names, name.strip_prefix(self.root.body)?);
        let (layer, part) = body.strip_prefix(names.layers)?.split_once('.')?;
        let begins = |beginning: &str| !beginning.is_empty() && part.starts_with(beginning);
        let MlpNames { gate_up, down } = &names.experts.stacked;
        let is_stacked = begins(down)
            || begins(names.experts.stacked_in)
            || match gate_up {
                GateUpNames::Separate { gate, up } => begins(gate) || begins(up),
                GateUpNames::Fused(both) | GateUpNames::UpFirst(both) | GateUpNames::Alternating(both) => begins(both),
            };
        layer.parse().ok().filter(|_| is_stacked || begins(names.experts.before))
    }

    fn bytes_as(&self, name: &str, tensor: &Tensor, held: &impl Fn(WeightFormat, [usize; 2]) -> u64) -> u64 {
        let cols = tensor.shape.last().copied().unwrap_or(1).max(1);
        let shape = [tensor.shape.iter().product::<usize>() / cols, cols];
        match supported(name, tensor.kind) {
            Ok(coding) if !coding.is_plain() => held(coding, shape),
            Ok(stored) => match self.on_load_coding(name, stored, &tensor.shape) {
                Some(coding) => held(coding, shape),
                None => held(WeightFormat::from(self.dtype), shape),
            },
            // Codes of folders. Devices hold them in about as many bytes.
            Err(_) => self.held_bytes(name, tensor) as u64,
        }
    }
}
