//! Linear layers over quantized weights: `kernels/gemv_stream_quantized.cu` for few tokens, `kernels/dequantize_weights.cu` before products of many.
//!
//! Invariant: the results are those of `gemv_stream.cu` with as many warps, or of the other routes, on the dequantized weights.

use super::QuantizedProduct;
use super::weights::{self, Form, QuantizedWeights};
use crate::cuda::device::Device;
use crate::cuda::driver::{Address, Facts};
use crate::cuda::gemm::gemv_stream;
use crate::cuda::gemm::grid::Grid;
use crate::cuda::gemm::plan::{Gemm, Quantized};
use crate::cuda::kernels::Kernel;
use crate::cuda::params::params;
use base::error::Result;
use std::ops::Range;

params! {
    GemvStreamQuantizedParams in "gemv_stream_quantized.cu" {
        out: Address,
        x: Address,
        bias: Address,
        weight: QuantizedWeights,
        m: i32,
        n: i32,
        skip: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
    }
    DequantizeParams in "dequantize_weights.cu" { out: Address, weight: QuantizedWeights, n: i32, skip: i32, k: i32 }
}

/// A kernel of `gemv_stream_quantized.cu`: `VARIANTS` at its end.
#[derive(Clone, Copy)]
struct Variant {
    /// Tokens at most.
    tokens: usize,
    /// Columns of a tile.
    columns: usize,
    warps_max: usize,
    stages: usize,
    sets: usize,
}

const fn variant(tokens: usize, columns: usize, warps_max: usize, stages: usize, sets: usize) -> Variant {
    Variant { tokens, columns, warps_max, stages, sets }
}
const VARIANTS: [Variant; 7] = [
    variant(8, 8, 16, 3, 2),
    variant(8, 16, 16, 4, 2),
    variant(8, 32, 16, 4, 2),
    variant(16, 8, 16, 3, 1),
    variant(16, 32, 16, 3, 1),
    variant(32, 8, 8, 4, 1),
    variant(32, 32, 8, 3, 1),
];
/// Tokens that share variants.
const TOKENS: [usize; 3] = [8, 16, 32];
/// What a step of a warp costs besides the bytes that it reads, in bytes.
const STEP_BYTES: usize = 512;

impl Variant {
    fn shared_bytes(&self, form: &Form, m: usize, warps: usize) -> usize {
        let stage = self.columns / weights::COLUMNS * form.unit_bytes() + m * weights::DEPTH * 2;
        warps * (self.stages * stage + self.columns * 16 + self.sets * m * self.columns * 4)
    }

    /// Bytes that the busiest of `processors` thread blocks reads of 64 k.
    fn cost(&self, form: &Form, m: usize, n: usize, processors: usize) -> usize {
        let tile = self.columns / weights::COLUMNS * form.unit_bytes() + m * weights::DEPTH * 2 + STEP_BYTES;
        n.div_ceil(self.columns).div_ceil(processors) * tile
    }
}

/// How a layer is computed by `gemv_stream_quantized.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which of [`VARIANTS`].
    variant: usize,
    warps: usize,
    pub blocks: usize,
    shared_bytes: usize,
}

impl Plan {
    /// `None` for more than 32 tokens, and if no kernel fits. k is cut as `gemv_stream.cu` cuts it.
    pub fn new(gemm: &Gemm, quantized: Quantized, gpu: Facts) -> Option<Plan> {
        let ([m, rows, k], form) = (gemm.sizes(), &quantized.form);
        let warps = gemv_stream::chosen(m, rows, gpu)?.warps(k);
        let (n, tokens) = (rows + quantized.skip, TOKENS.into_iter().find(|&tokens| m <= tokens)?);
        let fitting = VARIANTS.iter().enumerate().filter(|(_, variant)| {
            variant.tokens == tokens
                && warps <= variant.warps_max
                && variant.shared_bytes(form, m, warps) <= gpu.block_shared_bytes
        });
        let (index, variant) = fitting.min_by_key(|(_, variant)| variant.cost(form, m, n, gpu.processors))?;
        let blocks = n.div_ceil(variant.columns).min(gpu.processors);
        let shared_bytes = variant.shared_bytes(form, m, warps).max(gemv_stream::alone_bytes(gpu));
        Some(Plan { variant: index, warps, blocks, shared_bytes })
    }

    /// The name of the kernel, without the number type.
    pub fn kernel(&self) -> String {
        name(&VARIANTS[self.variant])
    }

    pub fn grid(&self) -> Grid {
        Grid::line(self.blocks, 32 * self.warps, self.shared_bytes)
    }
}

fn name(variant: &Variant) -> String {
    format!("gemv_stream_quantized_m{}_c{}", variant.tokens, variant.columns)
}

/// The kernels, of codes of all kinds.
pub struct Kernels {
    /// In the order of [`VARIANTS`].
    stream: Vec<Kernel>,
    decode: Kernel,
}

impl Kernels {
    /// Loads them.
    pub fn new(device: &Device) -> Result<Kernels> {
        let load = |variant| {
            let kernel = device.kernel("gemv_stream_quantized", &name(variant))?;
            kernel.allow_shared(device.facts().block_shared_bytes)?;
            Ok(kernel)
        };
        let stream = VARIANTS.iter().map(load).collect::<Result<_>>()?;
        Ok(Kernels { stream, decode: device.kernel("dequantize_weights", "dequantize_weights")? })
    }

    /// Launches a product of at most 32 tokens.
    pub fn stream(&self, device: &Device, coded: &QuantizedProduct, plan: &Plan) -> Result<()> {
        let (QuantizedProduct { weights, skip, .. }, params) = (coded, &coded.product.params);
        let params = GemvStreamQuantizedParams {
            out: params.out,
            x: params.x,
            bias: params.bias,
            weight: *weights,
            m: params.m,
            n: params.n + *skip as i32,
            skip: *skip as i32,
            k: params.k,
            out_stride: params.out_stride,
            x_stride: params.x_stride,
        };
        let kernel = &self.stream[plan.variant];
        let Grid { blocks, threads, shared_bytes } = plan.grid();
        kernel.launch(device.chaining, blocks, threads, shared_bytes, &params)
    }

    /// Writes the numbers of some columns' weights to `out`. `[columns, k]`
    pub fn decode(&self, device: &Device, coded: &QuantizedProduct, columns: Range<usize>, out: Address) -> Result<()> {
        let QuantizedProduct { product, form, weights, skip } = coded;
        let (first, k) = (skip + columns.start, product.params.k as usize);
        let skip = first % weights::COLUMNS;
        let offset = first / weights::COLUMNS * form.octet_bytes(k);
        let weight = QuantizedWeights { units: weights.units + offset as u64, ..*weights };
        let n = skip + columns.len();
        let params = DequantizeParams { out, weight, n: n as i32, skip: skip as i32, k: k as i32 };
        let blocks = [weight.units_of_row.unsigned_abs().div_ceil(8) as usize, n.div_ceil(weights::COLUMNS), 1];
        self.decode.launch(device.chaining, blocks, 256, 0, &params)
    }
}
