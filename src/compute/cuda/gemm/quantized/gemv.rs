//! Linear layers of few tokens over quantized weights, with the scales on the sums: `kernels/gemv_quantized.cu`.
//!
//! Invariant: how k is cut depends on the shape alone for 1 to 8 tokens, and so do the results of a row.

use super::QuantizedProduct;
use super::weights::{COLUMNS as COLUMNS_OF_OCTET, DEPTH};
use crate::Activation;
use crate::cuda::device::Device;
use crate::cuda::driver::{Address, Facts, Memory};
use crate::cuda::gemm::grid::Grid;
use crate::cuda::gemm::plan::{Gemm, Quantized};
use crate::cuda::gemm::product::{Results, RowNorms};
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::params::params;
use base::error::Result;

params! {
    GemvQuantizedParams in "gemv_quantized.cu" {
        out: Address,
        x: Address,
        bias: Address,
        units: Address,
        partial: Address,
        arrived: Address,
        norms: RowNorms,
        zero: f32,
        units_of_row: i32,
        slices: i32,
        batch: i32,
        m: i32,
        n: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
        is_gated: i32,
        is_gelu_tanh: i32,
        is_bf16: i32,
    }
}

/// The kernels of a form: `KERNELS` at the end of the file.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    /// Whether sums of x are kept for offsets.
    has_offsets: bool,
    /// Units of k of a step.
    units: usize,
    stages: usize,
    /// Memory of a warp for the decoded headers of a step, of up to 8 tokens: `DECODES_ONCE` in the kernel.
    columns_bytes: usize,
}

const fn variant(name: &'static str, has_offsets: bool, units: usize, stages: usize) -> Variant {
    Variant { name, has_offsets, units, stages, columns_bytes: 0 }
}

/// With headers that one lane decodes for all.
const fn decoded_once(name: &'static str, stages: usize) -> Variant {
    Variant { columns_bytes: 512, ..variant(name, true, 2, stages) }
}
const VARIANTS: [Variant; 9] = [
    variant("four_halves", false, 4, 3),
    decoded_once("four_k_blocks", 4),
    variant("four_words", true, 2, 3),
    decoded_once("five_k_blocks", 3),
    variant("six_sixteenths", false, 2, 3),
    variant("eight_halves", false, 2, 3),
    variant("eight_words", true, 2, 3),
    variant("float8_words", false, 2, 3),
    variant("float8_floats", false, 2, 3),
];
const KNOB: &str = "the memory that other programs hold";
/// Tokens that share a kernel.
const TOKENS: [usize; 3] = [1, 8, 16];
/// Columns of a tile.
const COLUMNS: usize = 16;
const WARPS_MAX: usize = 16;
/// Slices of k at most.
const SLICES_MAX: usize = 8;
/// Tiles whose parts are added up together at most.
const BATCH_MAX: usize = 6;
/// Numbers of k from which on the kernel is taken: fewer do not fill its warps.
const K_MIN: usize = 2048;
/// Shared memory that is not dynamic.
const STATIC_BYTES: usize = 128;

/// How the work of a launch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    warps: usize,
    slices: usize,
    batch: usize,
    blocks: usize,
    shared_bytes: usize,
}

impl Variant {
    fn shared_bytes(&self, unit_bytes: usize, steps: usize, tokens: usize, warps: usize, batch: usize) -> usize {
        let (eights, x_bytes) = (tokens.div_ceil(8), if tokens == 1 { 64 } else { 512 });
        let sums_bytes = if self.has_offsets { 64 } else { 32 };
        let columns = if tokens <= 8 { self.columns_bytes } else { 0 };
        let ring = self.stages * 2 * self.units * unit_bytes;
        let x = steps.div_ceil(warps) * 2 * self.units * eights * (x_bytes + sums_bytes);
        warps * (ring + columns + x + 2 * batch * tokens * COLUMNS * 4)
    }

    /// How `n` columns of `units` units each are cut for up to `tokens` tokens, for thread blocks with `shared_bytes` on each of `processors`.
    ///
    /// One H200, microseconds of 4 bits with one token, 8 warps / 16: 4096 x 4096 5.4 / 5.9, 24576 x 4096 18.3 / 16.9. With 16 tokens, 8 warps and one
    /// slice / 8 warps and two: 24576 x 4096 32 / 53; 8 bits, 8 warps and one slice / 16 warps and two: 38 / 57.
    fn cut(
        &self,
        unit_bytes: usize,
        units: usize,
        n: usize,
        tokens: usize,
        processors: usize,
        shared_bytes: usize,
    ) -> Option<Cut> {
        if !units.is_multiple_of(self.units) || !n.is_multiple_of(COLUMNS) {
            return None;
        }
        let (steps, tiles) = (units / self.units, n / COLUMNS);
        let most = shared_bytes.checked_sub(STATIC_BYTES)?;
        (1..=SLICES_MAX.min(processors)).find_map(|slices| {
            let of_slice = steps.div_ceil(slices);
            let blocks = tiles.min(processors / slices);
            let of_block = tiles.div_ceil(blocks);
            let warps_max = if self.units == 4 && of_block <= 3 { WARPS_MAX / 2 } else { WARPS_MAX };
            let bytes = |tokens, warps, batch| self.shared_bytes(unit_bytes, of_slice, tokens, warps, batch);
            // One cut for all from 1 to 8 tokens. With more, fewer warps cost less than slices.
            let fewer = if tokens > 8 { warps_max / 2 } else { warps_max };
            let warps = [warps_max, fewer]
                .map(|most| of_slice.div_ceil(of_slice.div_ceil(most)))
                .into_iter()
                .find(|&warps| bytes(tokens.max(8), warps, 1) <= most)?;
            let bytes = |batch| bytes(tokens, warps, batch);
            let batch = (1..=of_block.min(BATCH_MAX)).rev().find(|&batch| bytes(batch) <= most)?;
            Some(Cut { warps, slices, batch, blocks: blocks * slices, shared_bytes: bytes(batch) })
        })
    }
}

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which of [`VARIANTS`], and of [`TOKENS`].
    kernel: [usize; 2],
    cut: Cut,
}

impl Plan {
    /// `None` if no kernel fits. Sums of slices lie in the buffer for dequantized weights.
    pub fn new(gemm: &Gemm, quantized: Quantized, gpu: Facts) -> Option<Plan> {
        let ([m, n, k], is_gated, form) = (gemm.sizes(), gemm.is_gated(), &quantized.form);
        let name = form.scaled_name()?;
        let index = VARIANTS.iter().position(|variant| variant.name == name)?;
        let of_tokens = TOKENS.iter().position(|&tokens| m <= tokens)?;
        if quantized.skip != 0 || k < K_MIN {
            return None;
        }
        // From an octet of gates to that of their ups.
        let to_second = n / 2 / COLUMNS_OF_OCTET * form.octet_bytes(k);
        if is_gated && (!n.is_multiple_of(2 * COLUMNS_OF_OCTET) || to_second > u32::MAX as usize) {
            return None;
        }
        // The parts of a tile have rows for the tokens that there are; x has room for all of a kernel's.
        let (units, tokens) = (k.div_ceil(DEPTH), TOKENS[of_tokens]);
        let shared_bytes = gpu.block_shared_bytes;
        let cut = VARIANTS[index].cut(form.unit_bytes(), units, n, tokens, gpu.processors, shared_bytes)?;
        let has_room = cut.slices == 1 || !is_gated && cut.slices * m * n * size_of::<f32>() <= quantized.scratch_bytes;
        has_room.then_some(Plan { kernel: [index, of_tokens], cut })
    }

    /// The name of the kernel, without the number type.
    pub fn kernel(&self) -> String {
        let [variant, tokens] = self.kernel;
        name(VARIANTS[variant].name, TOKENS[tokens])
    }

    /// Slices of k.
    pub fn split(&self) -> usize {
        self.cut.slices
    }

    pub fn grid(&self) -> Grid {
        Grid::line(self.cut.blocks, 32 * self.cut.warps, self.cut.shared_bytes)
    }
}

fn name(form: &str, tokens: usize) -> String {
    format!("gemv_quantized_{form}_m{tokens}")
}

/// The kernels for each form and number of tokens.
pub struct Kernels {
    kernels: Vec<[Kernel; 3]>,
    /// For each thread block of a slice, how many slices have arrived. Zero between launches.
    arrived: Memory,
}

impl Kernels {
    /// Loads them.
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("gemv_quantized")?;
        let shared_bytes = device.facts().block_shared_bytes;
        let mut kernels = Vec::new();
        for variant in VARIANTS {
            let kernel = |tokens: usize| {
                let name = format!("{}_{}", name(variant.name, tokens), suffix(device.dtype));
                let kernel = Kernel::new(&module, &name)?;
                kernel.allow_shared(shared_bytes - STATIC_BYTES)?;
                Ok(kernel)
            };
            let [one, eight, sixteen] = TOKENS;
            kernels.push([kernel(one)?, kernel(eight)?, kernel(sixteen)?]);
        }
        let bytes = device.facts().processors * size_of::<i32>();
        let arrived = Memory::zeroed(&device.context, bytes, "scratch of linear layers", KNOB)?;
        Ok(Kernels { kernels, arrived })
    }

    /// Launches a product of at most 16 tokens. Sums of slices lie at `scratch`.
    pub fn run(
        &self,
        device: &Device,
        coded: &QuantizedProduct,
        results: Results,
        scratch: Address,
        plan: &Plan,
    ) -> Result<()> {
        let (weights, params, cut) = (&coded.weights, &coded.product.params, plan.cut);
        let params = GemvQuantizedParams {
            out: params.out,
            x: params.x,
            bias: params.bias,
            units: weights.units,
            partial: scratch,
            arrived: self.arrived.address(),
            norms: coded.product.norms.params(),
            zero: weights.zero,
            units_of_row: weights.units_of_row,
            slices: cut.slices as i32,
            batch: cut.batch as i32,
            m: params.m,
            n: results.columns(params.n),
            k: params.k,
            out_stride: params.out_stride,
            x_stride: params.x_stride,
            is_gated: i32::from(results != Results::Sums),
            is_gelu_tanh: i32::from(results == Results::Gated(Activation::GeluTanh)),
            is_bf16: weights.is_bf16,
        };
        let [variant, tokens] = plan.kernel;
        let kernel = &self.kernels[variant][tokens];
        let Grid { blocks, threads, shared_bytes } = plan.grid();
        kernel.launch(device.chaining, blocks, threads, shared_bytes, &params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_eight_tokens_are_cut_alike() {
        for variant in VARIANTS {
            for (n, k) in [(4096, 4096), (6144, 4096), (24_576, 4096), (4096, 12_288), (4096, 14_336), (8192, 28_672)] {
                for shared_bytes in [232_448, 166_912, 101_376] {
                    let cut = |tokens| variant.cut(544, k / 64, n, tokens, 132, shared_bytes);
                    let order = |cut: Option<Cut>| cut.map(|cut| (cut.warps, cut.slices));
                    assert_eq!(order(cut(1)), order(cut(8)), "{} {n} x {k}, {shared_bytes}", variant.name);
                    assert!(cut(16).is_none_or(|cut| cut.shared_bytes <= shared_bytes));
                }
            }
        }
    }
}
