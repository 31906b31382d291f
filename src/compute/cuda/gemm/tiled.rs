//! The launch of `kernels/gemm_tiled.cu`: layers of plain weights for any number of tokens, on every device.

use super::gemv_stream::DEPTH;
use super::grid::Grid;
use super::plan::Gemm;
use super::product::Product;
use crate::cuda::device::Device;
use crate::cuda::driver::Facts;
use crate::cuda::kernels::{Chaining, Kernel, suffix};
use base::error::Result;

/// A kernel of the file: `KERNELS` at its end. All give the same bits.
#[derive(Clone, Copy)]
struct Tile {
    tokens: usize,
    columns: usize,
    threads: usize,
    stages: usize,
}

/// From the smallest to the largest.
const TILES: [Tile; 3] = [
    Tile { tokens: 16, columns: 32, threads: 64, stages: 8 },
    Tile { tokens: 64, columns: 64, threads: 256, stages: 4 },
    Tile { tokens: 128, columns: 128, threads: 256, stages: 3 },
];

impl Tile {
    fn shared_bytes(&self) -> usize {
        self.stages * (self.tokens + self.columns) * DEPTH * 2
    }

    fn grid(&self, m: usize, n: usize) -> [usize; 2] {
        [m.div_ceil(self.tokens), n.div_ceil(self.columns)]
    }

    fn name(&self) -> String {
        format!("gemm_tiled_t{}_c{}", self.tokens, self.columns)
    }
}

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which of [`TILES`].
    tile: usize,
    /// Tiles of tokens and of columns.
    pub grid: [usize; 2],
}

impl Plan {
    /// Large tiles read less, but must be enough for the multiprocessors, and few tokens would leave most of them empty.
    pub fn new(gemm: &Gemm, gpu: Facts) -> Plan {
        let [small, medium, large] = &TILES;
        let blocks = |tile: &Tile| tile.grid(gemm.m, gemm.n).iter().product::<usize>();
        let tile = if gemm.m <= small.tokens {
            0
        } else if gemm.m > medium.tokens && blocks(large) >= gpu.processors {
            2
        } else {
            usize::from(blocks(medium) >= gpu.processors / 4)
        };
        Plan { tile, grid: TILES[tile].grid(gemm.m, gemm.n) }
    }

    /// The name of the kernel, without the number type.
    pub fn kernel(&self) -> String {
        TILES[self.tile].name()
    }

    pub fn grid(&self) -> Grid {
        let ([tokens, columns], tile) = (self.grid, &TILES[self.tile]);
        Grid { blocks: [tokens, columns, 1], threads: tile.threads, shared_bytes: tile.shared_bytes() }
    }
}

/// The kernels of [`TILES`].
pub struct Kernels(Vec<Kernel>);

impl Kernels {
    /// Loads them.
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("gemm_tiled")?;
        let load = |tile: &Tile| {
            let kernel = Kernel::new(&module, &format!("{}_{}", tile.name(), suffix(device.dtype)))?;
            kernel.allow_shared(tile.shared_bytes())?;
            Ok(kernel)
        };
        Ok(Kernels(TILES.iter().map(load).collect::<Result<_>>()?))
    }

    /// Launches a product.
    pub fn run(&self, chaining: Chaining, product: &Product, plan: &Plan) -> Result<()> {
        let Grid { blocks, threads, shared_bytes } = plan.grid();
        self.0[plan.tile].launch(chaining, blocks, threads, shared_bytes, &product.params)
    }
}
