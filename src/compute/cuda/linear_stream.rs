//! The launch of `kernels/linear_stream.cu`: layers of plain weights for up to 64 tokens, and gates of up to 8.

use super::device::Device;
use super::kernels::{DEPENDENT_LAUNCH, Kernel, suffix};
use super::product::{FewTokensParams, LinearParams, Results};
use base::error::Result;

/// A kernel of the file: `KERNELS` at its end.
#[derive(Clone, Copy)]
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
        warps * (self.stages * (self.columns + m) * DEPTH * 2 + self.sets * m * self.columns * 4)
    }

    /// Warps among which `k` is cut.
    pub fn warps(&self, k: usize) -> usize {
        k.div_ceil(DEPTH).clamp(1, self.warps_max)
    }

    /// Rows of k that the busiest of `processors` thread blocks reads, of weights and of x.
    fn rows_of_busiest(&self, n: usize, processors: usize) -> usize {
        n.div_ceil(self.columns).div_ceil(processors) * (self.columns + self.tokens.max(8))
    }

    /// Whether the file has a kernel for gates of this variant: their tiles are 8 gates and 8 ups.
    fn is_gated(&self) -> bool {
        self.tokens <= 8 && self.columns == 16
    }
}

struct Kernels {
    variant: Variant,
    sums: Kernel,
    gated: Option<Kernel>,
}

/// The kernels.
pub struct LinearStream {
    kernels: Vec<Kernels>,
    /// Of [`DEEP`]; none where kernels do not overlap, and where they do not fit.
    deep: Vec<Kernels>,
    alone_bytes: usize,
    processors: usize,
}

impl LinearStream {
    /// Loads them.
    pub fn new(device: &Device) -> Result<LinearStream> {
        let facts = device.facts();
        let module = device.module("linear_stream")?;
        let alone_bytes = (facts.shared_bytes / 2).min(facts.block_shared_bytes);
        let load = |variant: Variant, deep: &str| -> Result<Kernels> {
            let kernel = |gated: &str| -> Result<Kernel> {
                let Variant { tokens, columns, .. } = variant;
                let dtype = suffix(device.dtype);
                let kernel = Kernel::new(&module, &format!("linear_stream_{gated}m{tokens}_c{columns}{deep}_{dtype}"))?;
                kernel.allow_shared(variant.shared_bytes(tokens, variant.warps_max).max(alone_bytes))?;
                Ok(kernel)
            };
            let gated = if variant.is_gated() { Some(kernel("gated_")?) } else { None };
            Ok(Kernels { variant, sums: kernel("")?, gated })
        };
        let mut kernels = Vec::new();
        for mut variant in VARIANTS {
            // Where a thread block has less shared memory, fewer warps share out k.
            variant.warps_max =
                variant.warps_max.min(facts.block_shared_bytes / variant.shared_bytes(variant.tokens, 1));
            if variant.warps_max > 0 {
                kernels.push(load(variant, "")?);
            }
        }
        let fits = |variant: &Variant| {
            facts.capability >= DEPENDENT_LAUNCH
                && variant.shared_bytes(variant.tokens, variant.warps_max) <= facts.block_shared_bytes
        };
        let deep = DEEP.into_iter().filter(fits).map(|variant| load(variant, "_deep")).collect::<Result<_>>()?;
        Ok(LinearStream { kernels, deep, alone_bytes, processors: facts.processors })
    }

    /// Shared memory that keeps a multiprocessor for one thread block. A streamed layer has as many of these as there are
    /// multiprocessors; where they overlap with the kernel before, two on one would leave another without. One H200, decode step
    /// of the 8B shape at batch 1: 5.2 ms without, 4.05 ms with it.
    pub fn alone_bytes(&self) -> usize {
        self.alone_bytes
    }

    /// The kernels for `m` tokens and `n` rows of weights that read least. How they cut k is the same for all m from 1 to 8: so are the results
    /// of a row.
    fn kernels(&self, m: usize, n: usize) -> Option<&Kernels> {
        let tokens = TOKENS.into_iter().find(|&tokens| m <= tokens)?;
        let fitting = self.kernels.iter().filter(|kernels| kernels.variant.tokens == tokens);
        fitting.min_by_key(|kernels| kernels.variant.rows_of_busiest(n, self.processors))
    }

    /// What computes `m` tokens and `n` rows of weights, and defines the bits of their results.
    pub fn variant(&self, m: usize, n: usize) -> Option<Variant> {
        Some(self.kernels(m, n)?.variant)
    }

    /// Launches the layer that `params` describes, with `params.n` rows of weights, by the kernel with the deepest ring that pays, all of which give
    /// the same bits. `false`: there is none, and nothing was launched.
    pub fn run(&self, device: &Device, params: &LinearParams, results: Results) -> Result<bool> {
        let [m, n, k] = [params.m, params.n, params.k].map(|size| size as usize);
        let Some(chosen) = self.kernels(m, n) else { return Ok(false) };
        let is_deep = |deep: &&Kernels| {
            deep.variant.tokens == chosen.variant.tokens && deep.variant.columns == chosen.variant.columns
        };
        let pays = n * k * device.dtype.bytes() >= DEEP_BYTES_MIN * self.processors;
        let Kernels { variant, sums, gated } = self.deep.iter().find(is_deep).filter(|_| pays).unwrap_or(chosen);
        let warps = variant.warps(k);
        let blocks = n.div_ceil(variant.columns).min(self.processors);
        let shared_bytes = variant.shared_bytes(m, warps).max(self.alone_bytes);
        let (blocks, threads) = ([blocks, 1, 1], 32 * warps);
        match (results, gated) {
            (Results::Sums, _) => sums.launch(device.chaining, blocks, threads, shared_bytes, params)?,
            (Results::Gated(_), None) => return Ok(false),
            (Results::Gated(_), Some(gated)) => {
                let params = FewTokensParams::new(params, results);
                gated.launch(device.chaining, blocks, threads, shared_bytes, &params)?;
            }
        }
        Ok(true)
    }
}
