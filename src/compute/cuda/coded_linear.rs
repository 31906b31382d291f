//! Linear layers over weights in codes: `kernels/linear_coded.cu` for few tokens, `kernels/decode_weights.cu` before products of many.
//!
//! Invariant: the results are those of `linear_stream.cu` with as many warps, or of the other routes, on the decoded weights.

use super::coded::{self, CodedWeights, Form, Kind};
use super::device::Device;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::params::params;
use super::product::Product;
use base::error::Result;
use std::ops::Range;

params! {
    CodedLinearParams in "linear_coded.cu" {
        out: Address,
        x: Address,
        bias: Address,
        weight: CodedWeights,
        m: i32,
        n: i32,
        skip: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
    }
    DecodeParams in "decode_weights.cu" { out: Address, weight: CodedWeights, n: i32, skip: i32, k: i32 }
}

/// A product whose weights are `product.params.n` rows of a coded matrix.
pub struct CodedProduct {
    /// All but its weights.
    pub product: Product,
    pub form: Form,
    /// From the octet on in which the rows begin.
    pub weights: CodedWeights,
    /// Rows of that octet that come before them.
    pub skip: usize,
}

/// A kernel of `linear_coded.cu`: `VARIANTS` at its end.
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
const VARIANTS: [Variant; 9] = [
    variant(8, 8, 16, 3, 2),
    variant(8, 16, 16, 4, 2),
    variant(8, 32, 16, 4, 2),
    variant(16, 8, 16, 3, 1),
    variant(16, 32, 16, 3, 1),
    variant(32, 8, 8, 4, 1),
    variant(32, 32, 8, 3, 1),
    variant(64, 8, 4, 4, 1),
    variant(64, 32, 4, 3, 1),
];
/// Tokens up to which the kernel that reads codes is faster than decoding slices and multiplying by them.
///
/// One H200, microseconds from codes of 8 bits / by slices. 6144 x 4096 with 32 tokens 33 / 39, with 64 tokens 81 / 39; 4096 x 4096 with 32
/// tokens 17 / 25, with 64 tokens 41 / 25; 24576 x 4096 with 32 tokens 98 / 153, with 64 tokens 249 / 153.
pub const TOKENS_FROM_CODES: usize = 32;

/// Tokens that share variants.
const TOKENS: [usize; 4] = [8, 16, 32, 64];
/// What a step of a warp costs besides the bytes that it reads, in bytes.
const STEP_BYTES: usize = 512;

impl Variant {
    fn shared_bytes(&self, form: &Form, m: usize, warps: usize) -> usize {
        let stage = self.columns / coded::COLUMNS * form.unit_bytes() + m * coded::DEPTH * 2;
        warps * (self.stages * stage + self.columns * 16 + self.sets * m * self.columns * 4)
    }

    /// Bytes that the busiest of `processors` thread blocks reads of 64 k.
    fn cost(&self, form: &Form, m: usize, n: usize, processors: usize) -> usize {
        let tile = self.columns / coded::COLUMNS * form.unit_bytes() + m * coded::DEPTH * 2 + STEP_BYTES;
        n.div_ceil(self.columns).div_ceil(processors) * tile
    }
}

/// The kernels for each kind of codes.
pub struct Kernels {
    stream: Vec<(Kind, Variant, Kernel)>,
    decode: Vec<Kernel>,
    /// As that of the plain kernels.
    alone_bytes: usize,
    /// Shared memory of a thread block at most.
    shared_bytes: usize,
}

impl Kernels {
    /// Loads them.
    pub fn new(device: &Device, alone_bytes: usize) -> Result<Kernels> {
        let shared_bytes = device.facts().block_shared_bytes;
        let (stream_module, decode_module) = (device.module("linear_coded")?, device.module("decode_weights")?);
        let (mut stream, mut decode) = (Vec::new(), Vec::new());
        for kind in Kind::ALL {
            for variant in VARIANTS {
                let (name, dtype) = (kind.name(), suffix(device.dtype));
                let name = format!("linear_coded_{name}_m{}_c{}_{dtype}", variant.tokens, variant.columns);
                let kernel = Kernel::new(&stream_module, &name)?;
                kernel.allow_shared(shared_bytes)?;
                stream.push((kind, variant, kernel));
            }
            let name = format!("decode_weights_{}_{}", kind.name(), suffix(device.dtype));
            decode.push(Kernel::new(&decode_module, &name)?);
        }
        Ok(Kernels { stream, decode, alone_bytes, shared_bytes })
    }

    /// Launches a product of at most 64 tokens, with k cut among `warps` warps. Returns false if no kernel fits.
    pub fn stream(&self, device: &Device, coded: &CodedProduct, warps: usize) -> Result<bool> {
        let (CodedProduct { form, weights, skip, .. }, params) = (coded, &coded.product.params);
        let (m, n, processors) = (params.m as usize, params.n as usize + skip, device.facts().processors);
        let tokens = TOKENS.into_iter().find(|&tokens| m <= tokens);
        let fitting = self.stream.iter().filter(|(kind, variant, _)| {
            *kind == form.kind
                && Some(variant.tokens) == tokens
                && warps <= variant.warps_max
                && variant.shared_bytes(form, m, warps) <= self.shared_bytes
        });
        let Some((_, variant, kernel)) = fitting.min_by_key(|(_, variant, _)| variant.cost(form, m, n, processors))
        else {
            return Ok(false);
        };
        let params = CodedLinearParams {
            out: params.out,
            x: params.x,
            bias: params.bias,
            weight: *weights,
            m: params.m,
            n: n as i32,
            skip: *skip as i32,
            k: params.k,
            out_stride: params.out_stride,
            x_stride: params.x_stride,
        };
        let blocks = n.div_ceil(variant.columns).min(processors);
        let shared_bytes = variant.shared_bytes(form, m, warps).max(self.alone_bytes);
        kernel.launch(device.chaining, [blocks, 1, 1], 32 * warps, shared_bytes, &params)?;
        Ok(true)
    }

    /// Writes the numbers of some columns' weights to `out`. `[columns, k]`
    pub fn decode(&self, device: &Device, coded: &CodedProduct, columns: Range<usize>, out: Address) -> Result<()> {
        let CodedProduct { product, form, weights, skip } = coded;
        let (first, k) = (skip + columns.start, product.params.k as usize);
        let skip = first % coded::COLUMNS;
        let offset = first / coded::COLUMNS * form.octet_bytes(k);
        let weight = CodedWeights { units: weights.units + offset as u64, ..*weights };
        let n = skip + columns.len();
        let params = DecodeParams { out, weight, n: n as i32, skip: skip as i32, k: k as i32 };
        let blocks = [weight.units_of_row.unsigned_abs().div_ceil(8) as usize, n.div_ceil(coded::COLUMNS), 1];
        self.decode[form.kind as usize].launch(device.chaining, blocks, 256, 0, &params)
    }
}

/// Cuts `n` columns into slices of at most `most`, of nearly one size.
pub fn slices(n: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    /// Columns at whose multiples products are fast.
    const STEP: usize = 256;
    let even = n.div_ceil(n.div_ceil(most)).next_multiple_of(STEP);
    let size = if even <= most { even } else { most };
    (0..n).step_by(size).map(move |first| first..n.min(first + size))
}

#[cfg(test)]
mod tests {
    use super::slices;

    #[test]
    fn slices_cover_all_columns_and_fit() {
        for (n, most) in [(1, 8), (7, 8), (8, 8), (9, 8), (6144, 4096), (24_576, 4096), (151_936, 4096), (5000, 1365)] {
            let all: Vec<_> = slices(n, most).collect();
            assert!(all.iter().all(|slice| !slice.is_empty() && slice.len() <= most), "{n}, {most}: {all:?}");
            assert_eq!(all.iter().flat_map(|slice| slice.clone()).collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
        }
    }
}
