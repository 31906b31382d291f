//! The launch of `kernels/linear_few_quantized.cu`: layers of quantized weights for up to 8 tokens that the shared memory of all multiprocessors
//! holds, on compute capability 9.0.
//!
//! Thread blocks share multiprocessors as those of `linear_few.rs` do. Invariant: the results of a row have the bits of `linear_coded.cu`, as those of
//! plain weights have the bits of `linear_stream.cu`.

use super::coded::{COLUMNS, CodedWeights, Form, Kind};
use super::coded_linear::CodedProduct;
use super::device::Device;
use super::driver::Address;
use super::hopper::CAPABILITY;
use super::kernels::{Kernel, suffix};
use super::linear_few::{BARRIER_BYTES, Room, TOKENS};
use super::params::params;
use super::product::Results;
use crate::Activation;
use base::error::Result;

params! {
    FewQuantizedParams in "linear_few_quantized.cu" {
        out: Address,
        x: Address,
        bias: Address,
        weight: CodedWeights,
        m: i32,
        n: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
        is_gated: i32,
        is_gelu_tanh: i32,
    }
}

/// A kernel of the file: `VARIANTS` at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    /// Of weights, in a thread block.
    octets: usize,
    /// Units of k of each warp, at most.
    steps: usize,
}

const fn variant(octets: usize, steps: usize) -> Variant {
    Variant { octets, steps }
}
/// The first that fits is the best.
const VARIANTS: [Variant; 5] = [variant(1, 4), variant(2, 4), variant(4, 2), variant(4, 4), variant(6, 2)];

impl Variant {
    /// Warps among which `units` of k are cut: as many as in the kernels of `linear_stream.cu` for 8 columns, and for 16.
    fn warps(self, units: usize) -> usize {
        units.clamp(1, if self.octets == 1 { 16 } else { 8 })
    }

    fn shared_bytes(self, m: usize, units: usize, unit_bytes: usize) -> usize {
        let parts = self.warps(units) * m * (self.octets * COLUMNS + 2) * size_of::<f32>();
        BARRIER_BYTES + self.octets * units * unit_bytes + parts
    }
}

/// A layer: its rows of weights, units of a row and bytes of a unit.
#[derive(Clone, Copy, Debug)]
struct Layer {
    n: usize,
    units: usize,
    unit_bytes: usize,
}

/// Which kernel computes a layer, if one does. `k`: as [`Room::of_block`] takes it. `streamed_columns`: of a tile of the kernel of `linear_stream.cu` that would
/// compute a layer of plain weights.
fn plan(room: Room, layer: Layer, k: usize, is_gated: bool, streamed_columns: usize) -> Option<usize> {
    let Layer { n, units, unit_bytes } = layer;
    if is_gated && !n.is_multiple_of(2 * COLUMNS) {
        return None;
    }
    let fits = |variant: &Variant| {
        let octets = n.div_ceil(COLUMNS);
        (!is_gated || variant.octets.is_multiple_of(2))
            && octets.div_ceil(variant.octets) <= room.processors
            && units.div_ceil(variant.warps(units)) <= variant.steps
            // One answer for all numbers of tokens.
            && variant.shared_bytes(TOKENS, units, unit_bytes) <= room.of_block(n, k)
    };
    let index = VARIANTS.iter().position(fits)?;
    ((VARIANTS[index].octets == 1) == (streamed_columns == COLUMNS)).then_some(index)
}

/// The kernels, for each kind of codes.
pub struct FewQuantized {
    kernels: Vec<[Kernel; VARIANTS.len()]>,
    room: Room,
}

impl FewQuantized {
    /// Loads them, where the device has the capability that they are compiled for.
    pub fn new(device: &Device) -> Result<Option<FewQuantized>> {
        let facts = device.facts();
        if facts.capability != CAPABILITY {
            return Ok(None);
        }
        let module = device.module("linear_few_quantized")?;
        let mut kernels = Vec::new();
        for kind in Kind::ALL {
            let load = |Variant { octets, steps }| {
                let (kind, dtype) = (kind.name(), suffix(device.dtype));
                let name = format!("linear_few_quantized_{kind}_o{octets}_s{steps}_{dtype}");
                let kernel = Kernel::new(&module, &name)?;
                kernel.allow_shared(facts.shared_bytes / 2)?;
                Ok(kernel)
            };
            let [a, b, c, d, e] = VARIANTS.map(load);
            kernels.push([a?, b?, c?, d?, e?]);
        }
        let room = Room { processors: facts.processors, shared_bytes: facts.shared_bytes };
        Ok(Some(FewQuantized { kernels, room }))
    }

    /// Launches a product of at most 8 tokens. `streamed_columns` as in [`plan`]. Returns false if no kernel fits.
    pub fn run(
        &self,
        device: &Device,
        coded: &CodedProduct,
        results: Results,
        streamed_columns: usize,
    ) -> Result<bool> {
        let (CodedProduct { form, weights, skip, .. }, params) = (coded, &coded.product.params);
        let (n, units, is_gated) =
            (params.n as usize, weights.units_of_row.unsigned_abs() as usize, results != Results::Sums);
        if *skip != 0 || params.m as usize > TOKENS {
            return Ok(false);
        }
        let layer = Layer { n, units, unit_bytes: form.unit_bytes() };
        let Some(index) = plan(self.room, layer, params.k as usize, is_gated, streamed_columns) else {
            return Ok(false);
        };
        self.launch(device, coded, results, index, (form, layer))
    }

    fn launch(
        &self,
        device: &Device,
        coded: &CodedProduct,
        results: Results,
        index: usize,
        (form, layer): (&Form, Layer),
    ) -> Result<bool> {
        let params = &coded.product.params;
        let few = FewQuantizedParams {
            out: params.out,
            x: params.x,
            bias: params.bias,
            weight: coded.weights,
            m: params.m,
            n: results.columns(params.n),
            k: params.k,
            out_stride: params.out_stride,
            x_stride: params.x_stride,
            is_gated: i32::from(results != Results::Sums),
            is_gelu_tanh: i32::from(results == Results::Gated(Activation::GeluTanh)),
        };
        let threads = 32 * VARIANTS[index].warps(layer.units);
        let shared_bytes = self.room.of_block(layer.n, params.k as usize);
        let kernel = &self.kernels[form.kind as usize][index];
        kernel.launch(device.chaining, [self.room.processors, 1, 1], threads, shared_bytes, &few)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Room = Room { processors: 132, shared_bytes: 233_472 };

    fn planned(n: usize, k: usize, unit_bytes: usize, is_gated: bool, streamed_columns: usize) -> Option<Variant> {
        let layer = Layer { n, units: k.div_ceil(64), unit_bytes };
        plan(H200, layer, k, is_gated, streamed_columns).map(|index| VARIANTS[index])
    }

    #[test]
    fn the_layers_of_a_small_model_are_held_whole() {
        // Four bits with K blocks, six bits, eight bits.
        for unit_bytes in [320, 448, 544] {
            assert_eq!(planned(4096, 1024, unit_bytes, false, 16), Some(variant(4, 2)));
            assert_eq!(planned(1024, 2048, unit_bytes, false, 8), Some(variant(1, 4)));
            assert_eq!(planned(6144, 1024, unit_bytes, true, 16), Some(variant(6, 2)));
            assert_eq!(planned(1024, 3072, unit_bytes, false, 8), Some(variant(1, 4)));
        }
    }

    #[test]
    fn what_does_not_fit_is_left_to_other_kernels() {
        assert_eq!(planned(24_576, 4096, 320, true, 16), None, "rows of weights");
        assert_eq!(planned(4096, 4096, 544, false, 16), None, "steps");
        assert_eq!(planned(1024, 1024, 320, true, 8), None, "the sums of these bits are cut among 16 warps");
        assert_eq!(planned(6152, 1024, 320, true, 16), None, "an octet of gates and ups");
    }

    #[test]
    fn gated_layers_are_cut_as_their_sums() {
        for width in (8..6000).step_by(8) {
            for k in [64, 512, 1024, 2048, 4096] {
                let warps = |is_gated| {
                    planned(2 * width, k, 320, is_gated, if width <= 528 { 8 } else { 16 }).map(|v| v.warps(k / 64))
                };
                assert!(warps(true).is_none_or(|of_gated| warps(false).is_none_or(|of_sums| of_sums == of_gated)));
            }
        }
    }
}
