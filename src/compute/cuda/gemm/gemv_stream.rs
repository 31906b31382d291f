//! The launch of `kernels/gemv_stream.cu`: layers of plain weights for up to 64 tokens, and gates of up to 8.

use super::grid::Grid;
use super::plan::{Gemm, Gpu};
use super::product::{FewTokensParams, Product, Results};
use crate::cuda::device::Device;
use crate::cuda::driver::Facts;
use crate::cuda::kernels::{DEPENDENT_LAUNCH, Kernel, suffix};
use base::error::Result;

/// A kernel of the file: `KERNELS` at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Tokens at most.
    tokens: usize,
    /// Of weights, in a tile.
    pub columns: usize,
    warps_max: usize,
    stages: usize,
    sets: usize,
}

/// Numbers of k that a warp takes at a time.
pub const DEPTH: usize = 64;
/// Tokens that share variants.
const TOKENS: [usize; 5] = [4, 8, 16, 32, 64];
/// Factors of rows of x, of up to 8.
const FACTORS_BYTES: usize = 32;
const fn variant(tokens: usize, columns: usize, warps_max: usize, stages: usize, sets: usize) -> Variant {
    Variant { tokens, columns, warps_max, stages, sets }
}
const VARIANTS: [Variant; 10] = [
    variant(4, 8, 16, 4, 2),
    variant(4, 16, 8, 5, 2),
    variant(8, 8, 16, 3, 2),
    variant(8, 16, 8, 4, 2),
    variant(16, 8, 16, 3, 1),
    variant(16, 16, 8, 3, 2),
    variant(32, 8, 8, 4, 1),
    variant(32, 16, 8, 3, 1),
    variant(64, 8, 4, 4, 1),
    variant(64, 32, 4, 3, 1),
];

/// Those whose ring takes nearly all of a multiprocessor, of the same cut of k as the others for as many tokens and columns.
const DEEP: [Variant; 2] = [variant(4, 16, 8, 11, 2), variant(8, 16, 8, 9, 2)];
/// Weights of a layer for each multiprocessor from which on they are used. A layer beside attention has less in the common shapes, and attention's
/// thread blocks need room there. One H200, decode step of the 8B shape at batch 1 in a program of its own: 3,905 us without them, 3,871 with those of
/// gate and up, of down and of the head, 3,900 with that of queries, keys and values besides.
const DEEP_BYTES_MIN: usize = 512 << 10;

impl Variant {
    fn shared_bytes(&self, m: usize, warps: usize) -> usize {
        FACTORS_BYTES + warps * (self.stages * (self.columns + m) * DEPTH * 2 + self.sets * m * self.columns * 4)
    }

    /// Warps among which `k` is cut.
    pub fn warps(&self, k: usize) -> usize {
        k.div_ceil(DEPTH).clamp(1, self.warps_max)
    }

    /// Rows of k that the busiest of `processors` thread blocks reads, of weights and of x.
    fn rows_of_busiest(&self, n: usize, processors: usize) -> usize {
        n.div_ceil(self.columns).div_ceil(processors) * (self.columns + self.tokens.max(8))
    }

    fn name(&self, is_gated: bool, is_deep: bool) -> String {
        let (gated, deep) = (if is_gated { "gated_" } else { "" }, if is_deep { "_deep" } else { "" });
        format!("gemv_stream_{gated}m{}_c{}{deep}", self.tokens, self.columns)
    }

    /// Whether the file has a kernel for gates of this variant: their tiles are 8 gates and 8 ups.
    fn is_gated(&self) -> bool {
        self.tokens <= 8 && self.columns == 16
    }
}

/// The variants of the file for which a thread block of `gpu` has room. Where it has less shared memory, fewer warps share out k.
fn variants(gpu: Facts) -> impl Iterator<Item = Variant> {
    VARIANTS.into_iter().filter_map(move |variant| {
        let of_warp = variant.shared_bytes(variant.tokens, 1) - FACTORS_BYTES;
        let most = (gpu.block_shared_bytes - FACTORS_BYTES) / of_warp;
        let warps_max = variant.warps_max.min(most);
        (warps_max > 0).then_some(Variant { warps_max, ..variant })
    })
}

/// Those of [`DEEP`]: none where kernels do not overlap, and where they do not fit.
fn deep(gpu: Facts) -> impl Iterator<Item = Variant> {
    DEEP.into_iter().filter(move |variant| {
        gpu.capability >= DEPENDENT_LAUNCH
            && variant.shared_bytes(variant.tokens, variant.warps_max) <= gpu.block_shared_bytes
    })
}

/// What computes `m` tokens and `n` rows of weights, and defines the bits of their results: the variant that reads least. How it cuts k is the same for all m
/// from 1 to 8, and so are the results of a row.
pub fn chosen(m: usize, n: usize, gpu: Facts) -> Option<Variant> {
    let tokens = TOKENS.into_iter().find(|&tokens| m <= tokens)?;
    let fitting = variants(gpu).filter(|variant| variant.tokens == tokens);
    fitting.min_by_key(|variant| variant.rows_of_busiest(n, gpu.processors))
}

/// Shared memory that keeps a multiprocessor for one thread block. A streamed layer has as many of these as there are
/// multiprocessors; where they overlap with the kernel before, two on one would leave another without. One H200, decode step
/// of the 8B shape at batch 1: 5.2 ms without, 4.05 ms with it.
pub fn alone_bytes(gpu: Facts) -> usize {
    (gpu.shared_bytes / 2).min(gpu.block_shared_bytes)
}

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    variant: Variant,
    is_deep: bool,
    warps: usize,
    pub blocks: usize,
    shared_bytes: usize,
}

impl Plan {
    /// By the kernel with the deepest ring that pays, all of which give the same bits. `None`: there is none.
    pub fn new(gemm: &Gemm, gpu: &Gpu) -> Option<Plan> {
        let ([m, n, k], facts) = (gemm.sizes(), gpu.facts);
        let chosen = chosen(m, n, facts)?;
        let is_deep = |deep: &Variant| deep.tokens == chosen.tokens && deep.columns == chosen.columns;
        let pays = n * k * gpu.dtype.bytes() >= DEEP_BYTES_MIN * facts.processors;
        let deep = deep(facts).find(is_deep).filter(|_| pays);
        let variant = deep.unwrap_or(chosen);
        if gemm.is_gated() && !variant.is_gated() {
            return None;
        }
        let warps = variant.warps(k);
        let blocks = n.div_ceil(variant.columns).min(facts.processors);
        let shared_bytes = variant.shared_bytes(m, warps).max(alone_bytes(facts));
        Some(Plan { variant, is_deep: deep.is_some(), warps, blocks, shared_bytes })
    }

    /// The name of the kernel, without the number type.
    pub fn kernel(&self, is_gated: bool) -> String {
        self.variant.name(is_gated, self.is_deep)
    }

    pub fn grid(&self) -> Grid {
        Grid::line(self.blocks, 32 * self.warps, self.shared_bytes)
    }
}

struct Loaded {
    variant: Variant,
    is_deep: bool,
    sums: Kernel,
    gated: Option<Kernel>,
}

/// The kernels.
pub struct Kernels(Vec<Loaded>);

impl Kernels {
    /// Loads them.
    pub fn new(device: &Device) -> Result<Kernels> {
        let facts = device.facts();
        let module = device.module("gemv_stream")?;
        let load = |(variant, is_deep): (Variant, bool)| -> Result<Loaded> {
            let kernel = |is_gated| -> Result<Kernel> {
                let name = variant.name(is_gated, is_deep);
                let kernel = Kernel::new(&module, &format!("{name}_{}", suffix(device.dtype)))?;
                kernel.allow_shared(variant.shared_bytes(variant.tokens, variant.warps_max).max(alone_bytes(facts)))?;
                Ok(kernel)
            };
            let gated = if variant.is_gated() { Some(kernel(true)?) } else { None };
            Ok(Loaded { variant, is_deep, sums: kernel(false)?, gated })
        };
        let all = variants(facts).map(|variant| (variant, false)).chain(deep(facts).map(|variant| (variant, true)));
        Ok(Kernels(all.map(load).collect::<Result<_>>()?))
    }

    /// Launches a product of at most 64 tokens.
    pub fn run(&self, device: &Device, product: &Product, results: Results, plan: &Plan) -> Result<()> {
        let is_planned = |loaded: &&Loaded| loaded.variant == plan.variant && loaded.is_deep == plan.is_deep;
        let Loaded { sums, gated, .. } = self.0.iter().find(is_planned).expect("plans are made of what is loaded");
        let Grid { blocks, threads, shared_bytes } = plan.grid();
        let kernel = match results {
            Results::Sums => sums,
            Results::Gated(_) => gated.as_ref().expect("plans of gates are made of what is loaded"),
        };
        kernel.launch(device.chaining, blocks, threads, shared_bytes, &FewTokensParams::new(product, results))
    }
}
