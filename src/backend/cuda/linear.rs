//! See `ops/linear.rs` for the contract, `kernels/linear_direct.cu`, `kernels/linear_tiled.cu` and `blas.rs` for the work.

use super::driver::{Address, Context};
use super::kernels::{File, Kernel, Module, suffix};
use super::params::params;
use super::{Cuda, Matrix, Tensor, Vector, blas};
use crate::backend::DType;
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

params! {
    LinearParams {
        out: Address,
        x: Address,
        weight: Address,
        bias: Address,
        m: i32,
        n: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
    }
}

/// Which code computes a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The fastest that is there.
    Auto,
    /// `linear_direct.cu`, for up to 64 tokens; more go to `Tiled`.
    Direct,
    /// `linear_tiled.cu`.
    Tiled,
    /// cuBLASLt; `Tiled` where it is missing.
    Blas,
}

/// Whether `linear_direct.cu` is faster than cuBLASLt: for few tokens, and weights that are read in a few microseconds.
///
/// One H200, microseconds of `linear_direct` / cuBLASLt: 4096 x 1024 with 8 tokens 4.0 / 5.0, with 16 tokens 4.7 / 5.0; 6144 x 1024
/// with 16 tokens 7.6 / 5.6; 4096 x 4096 with 8 tokens 11.9 / 13.0; 6144 x 4096 with 1 token 16.9 / 16.9, with 8 tokens
/// 19.2 / 17.1; 151936 x 1024 with 1 token 81 / 78.
fn prefers_direct(m: usize, weight_bytes: usize) -> bool {
    let most = match m {
        1 => 128 << 20,
        2..=8 => 40 << 20,
        9..=16 => 9 << 20,
        _ => 0,
    };
    weight_bytes <= most
}

/// A kernel of `linear_direct.cu`: `KERNELS` at its end.
struct Direct {
    kernel: Kernel,
    tokens: usize,
    columns: usize,
    /// Numbers of k that a warp takes at a time.
    run: usize,
    warps_max: usize,
}

/// Our own kernels.
pub struct Kernels {
    direct: [Direct; 4],
    tiled: Kernel,
}

const TILED_SHARED_BYTES: usize = 3 * 256 * 64 * 2;

impl Kernels {
    /// Loads them for one number type.
    pub fn new(context: &Arc<Context>, dtype: DType) -> Result<Kernels> {
        let module = Module::load(context, File::LinearDirect)?;
        let direct = |tokens: usize, columns, run, warps_max| -> Result<Direct> {
            let kernel = Kernel::new(&module, &format!("linear_direct_m{tokens}_{}", suffix(dtype)))?;
            kernel.allow_shared(warps_max * tokens * columns * 4)?;
            Ok(Direct { kernel, tokens, columns, run, warps_max })
        };
        let tiled = Kernel::load(context, File::LinearTiled, "linear_tiled", dtype)?;
        tiled.allow_shared(TILED_SHARED_BYTES)?;
        let direct =
            [direct(8, 16, 128, 16)?, direct(16, 16, 128, 16)?, direct(32, 32, 64, 8)?, direct(64, 32, 64, 8)?];
        Ok(Kernels { direct, tiled })
    }
}

pub fn run(
    cuda: &mut Cuda,
    out: &mut Tensor,
    x: &Tensor,
    weight: &Matrix,
    bias: Option<&Vector>,
    columns: Range<usize>,
) -> Result<()> {
    let (m, n, k) = (x.rows(), columns.len(), x.cols());
    if m == 0 || n == 0 {
        return Ok(());
    }
    let bytes = cuda.dtype.bytes();
    let params = LinearParams {
        out: out.storage.address() + (columns.start * bytes) as u64,
        x: x.storage.address(),
        weight: weight.memory.address() + (columns.start * k * bytes) as u64,
        bias: bias.map_or(0, |b| b.wide.address() + (columns.start * 4) as u64),
        m: m as i32,
        n: n as i32,
        k: k as i32,
        out_stride: out.storage.stride() as i32,
        x_stride: x.storage.stride() as i32,
    };
    let kernels = &cuda.kernels.linear;
    let is_direct = match cuda.route {
        Route::Auto => prefers_direct(m, n * k * bytes) || (cuda.blas.is_none() && m <= 64),
        Route::Direct => m <= 64,
        Route::Tiled | Route::Blas => false,
    };
    if is_direct && let Some(direct) = kernels.direct.iter().find(|d| m <= d.tokens) {
        let blocks = n.div_ceil(direct.columns);
        // Few thread blocks share out k among more warps, so that every multiprocessor has enough loads under way. The choice
        // does not depend on m: results of a row are the same in a batch of 1 and of 8.
        let warps =
            if blocks <= 2 * cuda.context.facts().processors { direct.warps_max } else { direct.warps_max.min(8) };
        let warps = k.div_ceil(direct.run).clamp(1, warps);
        let shared = warps * direct.tokens * direct.columns * 4;
        return direct.kernel.launch(cuda.chaining, [blocks, 1, 1], 32 * warps, shared, &params);
    }
    if matches!(cuda.route, Route::Auto | Route::Blas)
        && let Some(blas) = &mut cuda.blas
    {
        let low = bias.map(|b| b.narrow.as_ref().map_or(0, |b| b.address() + (columns.start * bytes) as u64));
        if blas.matmul(&blas::Product { params, bias: low })? == blas::Outcome::Launched {
            return Ok(());
        }
    }
    let blocks = [m.div_ceil(128), n.div_ceil(128), 1];
    kernels.tiled.launch(cuda.chaining, blocks, 256, TILED_SHARED_BYTES, &params)
}
