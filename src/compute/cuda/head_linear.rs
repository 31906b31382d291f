//! See `ops/head_linear.rs` for the contract, `kernels/head_linear.cu` for the work.

use super::device::Device;
use super::driver::{Address, Context};
use super::kernels::{Kernel, suffix};
use super::matrix::{Loader, Matrix};
use super::params::params;
use super::storage::Tensor;
use crate::cuda::gemm::Grid;
use crate::{HeadColumns, HostMatrix};
use base::error::Result;
use formats::{DType, WeightFormat};
use std::sync::Arc;

params! {
    HeadLinearParams in "head_linear.cu" {
        out: Address,
        x: Address,
        weight: Address,
        tokens: i32,
        n: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
        out_step: i32,
        x_step: i32,
    }
}

/// A kernel of the file: `KERNEL` at its end. Both give the same bits.
struct Tile {
    tokens: usize,
    columns: usize,
    threads: usize,
    stages: usize,
}

const TILES: [Tile; 2] = [
    Tile { tokens: 16, columns: 32, threads: 64, stages: 4 },
    Tile { tokens: 64, columns: 64, threads: 256, stages: 3 },
];
/// Numbers of a row that a stage has.
const DEPTH: usize = 64;

impl Tile {
    fn of(tokens: usize) -> usize {
        usize::from(tokens > TILES[0].tokens)
    }

    fn name(&self) -> String {
        format!("head_linear_t{}", self.tokens)
    }

    fn grid(&self, tokens: usize, heads: usize, outputs: usize) -> Grid {
        let shared_bytes = self.stages * (self.tokens + self.columns) * DEPTH * 2;
        let blocks = [tokens.div_ceil(self.tokens), outputs.div_ceil(self.columns), heads];
        Grid { blocks, threads: self.threads, shared_bytes }
    }
}

/// The kernel of a product of `tokens` tokens, and its thread blocks, for explanations.
pub fn describe(tokens: usize, heads: usize, outputs: usize) -> (String, Grid) {
    let tile = &TILES[Tile::of(tokens)];
    (tile.name(), tile.grid(tokens, heads, outputs))
}

/// Weights of a linear layer for each head, in the number type of the device. `[heads, outputs, inputs]`
pub struct Heads {
    matrix: Matrix,
    shape: [usize; 3],
}

impl Heads {
    /// Brings them to the device.
    ///
    /// # Panics
    ///
    /// If there is none or their shapes differ: the loader checks them against config.json.
    pub(super) fn new(
        context: &Arc<Context>,
        loader: &mut Loader,
        heads: &[HostMatrix],
        dtype: DType,
    ) -> Result<Heads> {
        let (outputs, inputs) = heads[0].shape();
        assert!(heads.iter().all(|head| head.shape() == (outputs, inputs)));
        // No kernel multiplies with codes of a matrix per head.
        let plain: Vec<HostMatrix> =
            heads.iter().map(|head| head.converted(WeightFormat::from(dtype))).collect::<Result<_>>()?;
        let matrix = Matrix::new(context, loader, &plain, dtype)?;
        Ok(Heads { matrix, shape: [heads.len(), outputs, inputs] })
    }

    /// Heads, outputs and inputs.
    pub(super) fn shape(&self) -> [usize; 3] {
        self.shape
    }
}

/// The kernels of [`TILES`].
pub struct Kernels(Vec<Kernel>);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("head_linear")?;
        let load = |tile: &Tile| {
            let kernel = Kernel::new(&module, &format!("{}_{}", tile.name(), suffix(device.dtype)))?;
            kernel.allow_shared(tile.grid(1, 1, 1).shared_bytes)?;
            Ok(kernel)
        };
        Ok(Kernels(TILES.iter().map(load).collect::<Result<_>>()?))
    }

    pub fn run(
        &self,
        device: &Device,
        (out, to): (&mut Tensor, HeadColumns),
        (x, from): (&Tensor, HeadColumns),
        weight: &Heads,
    ) -> Result<()> {
        let ([heads, outputs, inputs], bytes) = (weight.shape, device.dtype.bytes());
        let at = |tensor: &Tensor, first: usize| tensor.storage.address() + (first * bytes) as u64;
        let params = HeadLinearParams {
            out: at(out, to.first),
            x: at(x, from.first),
            weight: weight.matrix.plain().expect("numbers of the device"),
            tokens: x.rows() as i32,
            n: outputs as i32,
            k: inputs as i32,
            out_stride: out.storage.stride() as i32,
            x_stride: x.storage.stride() as i32,
            out_step: to.step as i32,
            x_step: from.step as i32,
        };
        let tile = Tile::of(x.rows());
        let Grid { blocks, threads, shared_bytes } = TILES[tile].grid(x.rows(), heads, outputs);
        self.0[tile].launch(device.chaining, blocks, threads, shared_bytes, &params)
    }
}
