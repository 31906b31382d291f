//! The launch of `kernels/gemv_shared.cu`: layers of plain weights for up to 8 tokens that the shared memory of all multiprocessors holds,
//! on compute capability 9.0.
//!
//! Each multiprocessor takes one thread block of a layer, beside one of the layer before. Layers with k >= n ask for half of the shared memory of a
//! multiprocessor, which with what is reserved is more than half of it, and layers with n > k for the rest. So one of each fits, and two with k >= n do not.
//! In a model they alternate. Each layer has as many thread blocks as there are
//! multiprocessors, of which some may have nothing to compute: an empty multiprocessor would get two of the next layer's.

use super::gemv_stream;
use super::grid::Grid;
use super::plan::Gemm;
use super::product::{FewTokensParams, Product, Results};
use crate::cuda::device::Device;
use crate::cuda::driver::Facts;
use crate::cuda::kernels::{Kernel, suffix};
use base::error::Result;

/// Tokens at most. `gemv_stream.cu` gives the same bits. One H200, decode step of the 0.6B shape in a graph over 547 tokens, `gemv_stream.cu`
/// and this: 5 rows 717 and 683 us, 6 rows 728 and 700, 8 rows 760 and 742.
pub(super) const TOKENS: usize = 8;
/// Numbers of k that a warp takes at a time.
const DEPTH: usize = 64;
/// Numbers behind a row of weights in shared memory.
const PAD: usize = 32;
pub(super) const BARRIER_BYTES: usize = 128;
/// What a multiprocessor keeps of its shared memory for each thread block.
const RESERVED_BYTES: usize = 1024;

/// A kernel of the file: `KERNELS` at its end.
#[derive(Clone, Copy)]
struct Variant {
    /// Of weights, in a thread block.
    rows: usize,
    /// Of [`DEPTH`], for each warp, at most.
    steps: usize,
    is_gated: bool,
}

const fn variant(rows: usize, steps: usize) -> Variant {
    Variant { rows, steps, is_gated: false }
}
const fn gated(rows: usize, steps: usize) -> Variant {
    Variant { rows, steps, is_gated: true }
}
/// Rows from which on the last sixteen are kept in registers, and sums lie where weights were: `DIRECT` in the kernel.
const DIRECT_FROM: usize = 64;
/// The first that fits is the best.
const VARIANTS: [Variant; 14] = [
    variant(8, 2),
    variant(8, 4),
    variant(16, 2),
    variant(16, 4),
    variant(32, 2),
    variant(32, 4),
    variant(48, 2),
    variant(DIRECT_FROM, 2),
    gated(16, 2),
    gated(16, 4),
    gated(32, 2),
    gated(32, 4),
    gated(48, 2),
    gated(DIRECT_FROM, 2),
];

impl Variant {
    /// Warps among which k is cut: as many as in the kernels of `gemv_stream.cu` for 8 columns, and for 16.
    fn warps(self, k: usize) -> usize {
        k.div_ceil(DEPTH).clamp(1, if self.rows == 8 { 16 } else { 8 })
    }

    fn name(self) -> String {
        format!("gemv_shared_{}r{}_s{}", if self.is_gated { "gated_" } else { "" }, self.rows, self.steps)
    }

    fn shared_bytes(self, m: usize, k: usize) -> usize {
        let (row, sums) = ((k + PAD) * 2, self.warps(k) * m * (self.rows + 2) * 4);
        BARRIER_BYTES
            + if self.rows < DIRECT_FROM { self.rows * row + sums } else { ((self.rows - 16) * row).max(sums) }
    }
}

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which of [`VARIANTS`].
    variant: usize,
    pub blocks: usize,
    shared_bytes: usize,
}

/// Shared memory that a thread block asks for whose layer has `n` rows of weights: two narrowing ones do not fit into a multiprocessor, one of each does.
pub fn shared_of_block(n: usize, k: usize, gpu: Facts) -> usize {
    let narrowing = gpu.shared_bytes / 2;
    if n > k { gpu.shared_bytes - narrowing - 2 * RESERVED_BYTES } else { narrowing }
}

impl Plan {
    /// `None`: the layer is too large, or would have other bits than those of the kernel of `gemv_stream.cu` that would compute it.
    pub fn new(gemm: &Gemm, gpu: Facts) -> Option<Plan> {
        let ([m, n, k], is_gated) = (gemm.sizes(), gemm.is_gated());
        if !gpu.is_hopper() || m > TOKENS {
            return None;
        }
        let streamed_columns = gemv_stream::chosen(m, n, gpu)?.columns;
        let of_block = shared_of_block(n, k, gpu);
        let variant = VARIANTS.iter().position(|variant| {
            variant.is_gated == is_gated
                && n.div_ceil(variant.rows) <= gpu.processors
                && k.div_ceil(DEPTH * variant.warps(k)) <= variant.steps
                // One answer for all numbers of tokens.
                && variant.shared_bytes(TOKENS, k) <= of_block
        })?;
        let is_cut_alike = (VARIANTS[variant].rows == 8) == (streamed_columns == 8);
        is_cut_alike.then_some(Plan { variant, blocks: gpu.processors, shared_bytes: of_block })
    }

    /// The name of the kernel, without the number type.
    pub fn kernel(&self) -> String {
        VARIANTS[self.variant].name()
    }

    pub fn grid(&self, k: usize) -> Grid {
        Grid::line(self.blocks, 32 * VARIANTS[self.variant].warps(k), self.shared_bytes)
    }
}

/// The kernels of [`VARIANTS`].
pub struct Kernels(Vec<Kernel>);

impl Kernels {
    /// Loads them, where the device has the capability that they are compiled for.
    pub fn new(device: &Device) -> Result<Option<Kernels>> {
        let facts = device.facts();
        if !facts.is_hopper() {
            return Ok(None);
        }
        let module = device.module("gemv_shared")?;
        let load = |variant: &Variant| {
            let kernel = Kernel::new(&module, &format!("{}_{}", variant.name(), suffix(device.dtype)))?;
            kernel.allow_shared(facts.shared_bytes / 2)?;
            Ok(kernel)
        };
        Ok(Some(Kernels(VARIANTS.iter().map(load).collect::<Result<_>>()?)))
    }

    /// Launches a product of at most 8 tokens.
    pub fn run(&self, device: &Device, product: &Product, results: Results, plan: &Plan) -> Result<()> {
        let few = FewTokensParams::new(product, results);
        let Grid { blocks, threads, shared_bytes } = plan.grid(few.k as usize);
        self.0[plan.variant].launch(device.chaining, blocks, threads, shared_bytes, &few)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Epilogue;
    use super::*;
    use crate::cuda::gemm::swap_ab::tests::{H200, gemm};

    fn rows(m: usize, n: usize, k: usize, epilogue: Epilogue) -> Option<(usize, usize)> {
        Plan::new(&gemm([m, n, k], epilogue), H200)
            .map(|plan| (VARIANTS[plan.variant].rows, VARIANTS[plan.variant].steps))
    }

    #[test]
    fn layers_are_cut_as_they_were_measured_to_be_fast() {
        // The layers of the Qwen3-0.6B shape.
        for m in 1..=TOKENS {
            assert_eq!(rows(m, 4096, 1024, Epilogue::Store), Some((32, 2)));
            assert_eq!(rows(m, 1024, 2048, Epilogue::Store), Some((8, 2)));
            assert_eq!(rows(m, 6144, 1024, Epilogue::Gated), Some((48, 2)));
            assert_eq!(rows(m, 1024, 3072, Epilogue::Store), Some((8, 4)));
            // Those of the Qwen3.5-0.8B shape.
            assert_eq!(rows(m, 8224, 1024, Epilogue::Store), Some((64, 2)));
            assert_eq!(rows(m, 7168, 1024, Epilogue::Gated), Some((64, 2)));
            assert_eq!(rows(m, 1024, 3584, Epilogue::Store), Some((8, 4)));
        }
    }

    #[test]
    fn what_does_not_fit_is_left_to_the_stream() {
        assert_eq!(rows(TOKENS + 1, 1024, 2048, Epilogue::Store), None, "tokens");
        assert_eq!(rows(1, 24_576, 4096, Epilogue::Gated), None, "rows of weights");
        assert_eq!(rows(1, 4096, 4096, Epilogue::Store), None, "bytes of weights");
        assert_eq!(rows(1, 1024, 8192, Epilogue::Store), None, "steps");
        assert_eq!(rows(1, 3072, 1024, Epilogue::Store), None, "k is cut among 16 warps there, among 8 here");
    }

    #[test]
    fn every_plan_covers_its_layer_and_two_layers_share_a_multiprocessor() {
        for processors in [114, 132] {
            let gpu = Facts { processors, ..H200 };
            let [widening, narrowing] = [shared_of_block(2, 1, gpu), shared_of_block(1, 2, gpu)];
            assert!(widening + narrowing + 2 * RESERVED_BYTES <= gpu.shared_bytes);
            assert!(2 * (narrowing + RESERVED_BYTES) > gpu.shared_bytes);
            for (n, k) in
                [(1, 8), (72, 64), (1003, 1088), (1024, 4096), (2000, 1400), (4096, 1024), (5000, 904), (8448, 1024)]
            {
                for (epilogue, m) in
                    [Epilogue::Store, Epilogue::Gated].into_iter().flat_map(|e| (1..=TOKENS).map(move |m| (e, m)))
                {
                    let Some(plan) = Plan::new(&gemm([m, n, k], epilogue), gpu) else { continue };
                    let variant = VARIANTS[plan.variant];
                    let what = format!("{m} x {n} x {k} on {processors}, {epilogue:?}: {plan:?}");
                    // Of gates and ups alike.
                    let halves = if variant.is_gated { 2 } else { 1 };
                    assert!(plan.blocks * (variant.rows / halves) >= n / halves, "{what}");
                    assert!(variant.shared_bytes(m, k) <= plan.shared_bytes, "{what}");
                    assert!(variant.steps * variant.warps(k) * DEPTH >= k, "{what}");
                    let streamed = gemv_stream::chosen(m, n, gpu).map(|variant| variant.columns);
                    assert_eq!(streamed == Some(8), variant.rows == 8, "k is cut as in the stream: {what}");
                }
            }
        }
    }
}
