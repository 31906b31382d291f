//! The launch of `kernels/gemv_shared_quantized.cu`: layers of quantized weights for up to 8 tokens that the shared memory of all multiprocessors
//! holds, on compute capability 9.0.
//!
//! Thread blocks share multiprocessors as those of `gemv_shared.rs` do. Invariant: how k is cut depends on k alone, and so do the results of a row.

use super::QuantizedProduct;
use super::weights::{COLUMNS, DEPTH, Form, QuantizedWeights};
use crate::Activation;
use crate::cuda::device::Device;
use crate::cuda::driver::{Address, Facts};
use crate::cuda::gemm::gemv_shared::{BARRIER_BYTES, TOKENS, shared_of_block};
use crate::cuda::gemm::grid::Grid;
use crate::cuda::gemm::plan::{Gemm, Quantized};
use crate::cuda::gemm::product::{Results, RowNorms};
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::params::params;
use base::error::Result;

params! {
    GemvSharedQuantizedParams in "gemv_shared_quantized.cu" {
        out: Address,
        x: Address,
        bias: Address,
        weight: QuantizedWeights,
        norms: RowNorms,
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
const VARIANTS: [Variant; 5] = [variant(1, 4), variant(2, 2), variant(4, 1), variant(4, 2), variant(6, 1)];
/// Warps among which k is cut.
const WARPS: usize = 16;

impl Variant {
    fn shared_bytes(self, m: usize, units: usize, unit_bytes: usize) -> usize {
        let parts = WARPS * m * (self.octets * COLUMNS + 2) * size_of::<f32>();
        BARRIER_BYTES + self.octets * units * unit_bytes + parts
    }
}

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    form: usize,
    /// Which of [`VARIANTS`].
    variant: usize,
    pub blocks: usize,
    shared_bytes: usize,
}

impl Plan {
    /// `None`: there are too many tokens or weights, or no kernel for the form.
    pub fn new(gemm: &Gemm, quantized: Quantized, gpu: Facts) -> Option<Plan> {
        let ([m, n, k], is_gated) = (gemm.sizes(), gemm.is_gated());
        if !gpu.is_hopper() || quantized.skip != 0 || m > TOKENS || is_gated && !n.is_multiple_of(2 * COLUMNS) {
            return None;
        }
        let (units, unit_bytes) = (k.div_ceil(DEPTH), quantized.form.unit_bytes());
        let of_block = shared_of_block(n, k, gpu);
        let fits = |variant: &Variant| {
            let octets = n.div_ceil(COLUMNS);
            (!is_gated || variant.octets.is_multiple_of(2))
                && octets.div_ceil(variant.octets) <= gpu.processors
                && units.div_ceil(WARPS) <= variant.steps
                // One answer for all numbers of tokens.
                && variant.shared_bytes(TOKENS, units, unit_bytes) <= of_block
        };
        let (variant, form) = (VARIANTS.iter().position(fits)?, quantized.form.index()?);
        Some(Plan { form, variant, blocks: gpu.processors, shared_bytes: of_block })
    }

    /// The name of the kernel, without the number type.
    pub fn kernel(&self) -> String {
        name(Form::NAMES[self.form], VARIANTS[self.variant])
    }

    pub fn grid(&self) -> Grid {
        Grid::line(self.blocks, 32 * WARPS, self.shared_bytes)
    }
}

fn name(form: &str, Variant { octets, steps }: Variant) -> String {
    format!("gemv_shared_quantized_{form}_o{octets}_s{steps}")
}

/// The kernels, for each form.
pub struct Kernels(Vec<[Kernel; VARIANTS.len()]>);

impl Kernels {
    /// Loads them, where the device has the capability that they are compiled for.
    pub fn new(device: &Device) -> Result<Option<Kernels>> {
        let facts = device.facts();
        if !facts.is_hopper() {
            return Ok(None);
        }
        let module = device.module("gemv_shared_quantized")?;
        let mut kernels = Vec::new();
        for form in Form::NAMES {
            let load = |variant| {
                let kernel = Kernel::new(&module, &format!("{}_{}", name(form, variant), suffix(device.dtype)))?;
                kernel.allow_shared(facts.shared_bytes / 2)?;
                Ok(kernel)
            };
            let [a, b, c, d, e] = VARIANTS.map(load);
            kernels.push([a?, b?, c?, d?, e?]);
        }
        Ok(Some(Kernels(kernels)))
    }

    /// Launches a product of at most 8 tokens.
    pub fn run(&self, device: &Device, coded: &QuantizedProduct, results: Results, plan: &Plan) -> Result<()> {
        let (weights, params) = (&coded.weights, &coded.product.params);
        let few = GemvSharedQuantizedParams {
            out: params.out,
            x: params.x,
            bias: params.bias,
            weight: *weights,
            norms: coded.product.norms.params(),
            m: params.m,
            n: results.columns(params.n),
            k: params.k,
            out_stride: params.out_stride,
            x_stride: params.x_stride,
            is_gated: i32::from(results != Results::Sums),
            is_gelu_tanh: i32::from(results == Results::Gated(Activation::GeluTanh)),
        };
        let kernel = &self.0[plan.form][plan.variant];
        let Grid { blocks, threads, shared_bytes } = plan.grid();
        kernel.launch(device.chaining, blocks, threads, shared_bytes, &few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::gemm::plan::Epilogue;
    use crate::cuda::gemm::quantized::tests::quantized;
    use crate::cuda::gemm::swap_ab::tests::{H200, gemm};
    use formats::Block;

    fn planned(n: usize, k: usize, block: Block, epilogue: Epilogue) -> Option<Variant> {
        let (gemm, quantized) = (gemm([1, n, k], epilogue), quantized(block, k));
        Plan::new(&gemm, quantized, H200).map(|plan| VARIANTS[plan.variant])
    }

    #[test]
    fn the_layers_of_a_small_model_are_held_whole() {
        for block in [Block::Q4K, Block::Q6K, Block::Q8_0] {
            assert_eq!(planned(4096, 1024, block, Epilogue::Store), Some(variant(4, 1)));
            assert_eq!(planned(1024, 2048, block, Epilogue::Store), Some(variant(1, 4)));
            assert_eq!(planned(6144, 1024, block, Epilogue::Gated), Some(variant(6, 1)));
            assert_eq!(planned(1024, 3072, block, Epilogue::Store), Some(variant(1, 4)));
        }
    }

    #[test]
    fn what_does_not_fit_is_left_to_other_kernels() {
        assert_eq!(planned(24_576, 4096, Block::Q4K, Epilogue::Gated), None, "rows of weights");
        assert_eq!(planned(4096, 4096, Block::Q8_0, Epilogue::Store), None, "steps");
        assert_eq!(planned(6152, 1024, Block::Q4K, Epilogue::Gated), None, "an octet of gates and ups");
    }
}
