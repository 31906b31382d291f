//! See `ops/linear.rs` for the contract, `kernels/linear_tiled.cu`, `linear_stream.rs`, `linear_few.rs`, `hopper.rs` and `blas.rs` for the
//! work, `scaled_linear.rs` and `coded_linear.rs` for weights in codes.

use super::blas::Outcome;
use super::coded_hopper::CodedHopper;
use super::coded_linear::{self, CodedProduct};
use super::device::Device;
use super::driver::Address;
use super::few_quantized::FewQuantized;
use super::gated_hopper::GatedHopper;
use super::hopper::Hopper;
use super::kernels::{Chaining, Kernel, suffix};
use super::late_blas::LateBlas;
use super::linear_few::{LinearFew, Plan};
use super::linear_stream::{DEPTH, LinearStream};
use super::matrix::{Matrix, Rows, Vector};
use super::product::{LinearParams, Product, Results};
use super::scaled_linear;
use super::storage::{RowFactors, Tensor};
use crate::{Activation, LayerInput, Rounding};
use base::error::Result;
use std::ops::Range;

/// Which code computes a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The fastest that is there.
    Auto,
    /// `linear_stream.cu`, for up to 64 tokens; more go to `Tiled`.
    Stream,
    /// `linear_tiled.cu`.
    Tiled,
    /// `linear_hopper.cu`, on compute capability 9.0, for 9 to 256 tokens and k that is a multiple of 64, and `gated_linear_hopper.cu` for what
    /// it serves; other layers, and weights in codes, go to `Tiled`.
    Hopper,
    /// cuBLASLt; `Tiled` where it is missing.
    Blas,
}

/// The name of a product of cuBLASLt among the launches.
const BLAS: &str = "cublasLtMatmul";

/// Tokens up to which a row gives the same bits by default, alone and among others.
const FEW_TOKENS: usize = 8;

/// Whether our own kernel is faster than cuBLASLt: for few tokens, and weights that are read in a few microseconds. One answer for all
/// from 1 to 8 tokens.
///
/// One H200, microseconds of `linear_stream` / cuBLASLt. 1024 x 3072 with 1 token 3.5 / 7.0, with 8 tokens 3.4 / 7.1, with 16 tokens 3.8 / 7.2,
/// with 32 tokens 5.9 / 7.3; 4096 x 1024 with 32 tokens 5.9 / 5.1; 4096 x 4096 with 1 token 9.4 / 12.8, with 16 tokens 11.3 / 13.0;
/// 6144 x 4096 with 8 tokens 13.9 / 15.6, with 16 tokens 16.2 / 15.8; 24576 x 4096 with 1 token 49.8 / 50.4, with 8 tokens 52.8 / 50.8 (but
/// the next kernel overlaps); 151936 x 1024 with 1 token 80 / 77, with 8 tokens 88 / 78.
fn prefers_stream(m: usize, weight_bytes: usize) -> bool {
    let most = match m {
        1..=8 => 256 << 20,
        9..=16 => 40 << 20,
        17..=32 => 7 << 20,
        _ => 0,
    };
    weight_bytes <= most
}

/// Our own kernels, and the library.
pub struct Kernels {
    /// cuBLASLt, where it is installed.
    pub blas: LateBlas,
    /// Which of them computes.
    pub route: Route,
    stream: LinearStream,
    tiled: Vec<Kernel>,
    coded: coded_linear::Kernels,
    scaled: scaled_linear::Kernels,
    /// `None` on other devices, as the next four.
    few: Option<LinearFew>,
    few_quantized: Option<FewQuantized>,
    hopper: Option<Hopper>,
    gated_hopper: Option<GatedHopper>,
    coded_hopper: Option<CodedHopper>,
}

/// A kernel of `linear_tiled.cu`: `KERNELS` at its end. All give the same bits.
#[derive(Clone, Copy)]
struct Tiling {
    tokens: usize,
    columns: usize,
    threads: usize,
    stages: usize,
}

/// From the smallest tiles to the largest.
const TILINGS: [Tiling; 3] = [
    Tiling { tokens: 16, columns: 32, threads: 64, stages: 8 },
    Tiling { tokens: 64, columns: 64, threads: 256, stages: 4 },
    Tiling { tokens: 128, columns: 128, threads: 256, stages: 3 },
];

impl Tiling {
    fn shared_bytes(&self) -> usize {
        self.stages * (self.tokens + self.columns) * DEPTH * 2
    }

    fn blocks(&self, m: usize, n: usize) -> usize {
        m.div_ceil(self.tokens) * n.div_ceil(self.columns)
    }
}

/// Which tiles: large ones read less, but must be enough for the multiprocessors, and few tokens would leave most of them empty.
fn tiling(m: usize, n: usize, processors: usize) -> usize {
    let [small, medium, large] = &TILINGS;
    if m <= small.tokens {
        0
    } else if m > medium.tokens && large.blocks(m, n) >= processors {
        2
    } else {
        usize::from(medium.blocks(m, n) >= processors / 4)
    }
}

impl Kernels {
    /// Loads them, and opens the library.
    pub fn new(device: &Device) -> Result<Kernels> {
        let stream = LinearStream::new(device)?;
        let module = device.module("linear_tiled")?;
        let mut tiled = Vec::new();
        for tiling in TILINGS {
            let name = format!("linear_tiled_t{}_c{}_{}", tiling.tokens, tiling.columns, suffix(device.dtype));
            let kernel = Kernel::new(&module, &name)?;
            kernel.allow_shared(tiling.shared_bytes())?;
            tiled.push(kernel);
        }
        let coded = coded_linear::Kernels::new(device, stream.alone_bytes())?;
        let scaled = scaled_linear::Kernels::new(device)?;
        let blas = LateBlas::begin(&device.context, device.dtype);
        let (few, hopper, coded_hopper) = (LinearFew::new(device)?, Hopper::new(device)?, CodedHopper::new(device)?);
        Ok(Kernels {
            blas,
            route: Route::Auto,
            stream,
            tiled,
            coded,
            scaled,
            few,
            few_quantized: FewQuantized::new(device)?,
            hopper,
            gated_hopper: GatedHopper::new(device)?,
            coded_hopper,
        })
    }

    pub fn run(
        &mut self,
        device: &Device,
        out: &mut Tensor,
        layer: LayerInput<Tensor, Matrix, Vector>,
        columns: Range<usize>,
    ) -> Result<()> {
        let LayerInput { x, weight, bias, adapter } = layer;
        assert!(adapter.is_none(), "no kernel adds what an adapter adds");
        let bytes = device.dtype.bytes();
        if x.rows() == 0 {
            return Ok(());
        }
        let (_, factors) = x.storage.undivided();
        for (columns, rows) in weight.runs(columns, device.dtype) {
            let params = LinearParams {
                out: out.storage.address() + (columns.start * bytes) as u64,
                bias: bias.map_or(0, |b| b.wide.address() + (columns.start * 4) as u64),
                n: columns.len() as i32,
                ..LinearParams::of(out, x)
            };
            let low = bias.map(|b| b.narrow.as_ref().map_or(0, |b| b.address() + (columns.start * bytes) as u64));
            let product = Product { params, bias: low };
            match rows {
                Rows::Plain(weight) => self.plain(device, product.with_weight(weight), factors)?,
                Rows::Coded { form, weights, skip } => {
                    assert!(factors.is_none(), "weights in codes do not divide rows");
                    let scratch = weight.scratch(device.dtype);
                    self.coded(device, &CodedProduct { product, form, weights, skip }, scratch)?;
                }
            }
        }
        Ok(())
    }

    fn route(&self, device: &Device) -> Route {
        if device.rounding == Rounding::BatchInvariant { Route::Tiled } else { self.route }
    }

    /// The kernels of `linear_hopper.cu`, where they compute such a layer of plain weights. Not those for batch-invariant layers.
    pub(super) fn hopper(&self, device: &Device, params: &LinearParams) -> Option<&Hopper> {
        let [m, n, k] = [params.m, params.n, params.k].map(|size| size as usize);
        let route = self.route(device);
        self.hopper.as_ref().filter(|hopper| match route {
            Route::Auto => hopper.is_preferred(m, n, k) || self.blas.get().is_none() && hopper.serves(m, k),
            Route::Hopper => hopper.serves(m, k),
            Route::Stream | Route::Tiled | Route::Blas => false,
        })
    }

    /// The kernels of `gated_linear_hopper.cu`, where they compute such a layer of gates and up.
    pub(super) fn gated_hopper(&self, device: &Device, params: &LinearParams) -> Option<&GatedHopper> {
        let route = self.route(device);
        self.gated_hopper.as_ref().filter(|many| match route {
            Route::Auto => many.is_preferred(params) || self.blas.get().is_none() && many.serves(params),
            Route::Hopper => many.serves(params),
            Route::Stream | Route::Tiled | Route::Blas => false,
        })
    }

    /// Launches a layer of gates and up by one kernel that gives it the bits of the batch-invariant product and of the activation after it, where that is
    /// faster. `false`: nothing was launched.
    pub(super) fn invariant_gated(
        &self,
        device: &Device,
        params: &LinearParams,
        activation: Activation,
    ) -> Result<bool> {
        let sizes @ [.., k] = [params.m, params.n, params.k].map(|size| size as usize);
        match (&self.hopper, &self.gated_hopper) {
            (Some(hopper), _) if hopper.prefers_invariant_gated(sizes) => {
                hopper.run_invariant(device, device.chaining, params, Results::Gated(activation))?;
            }
            // Its sums are one chain each, whatever k is.
            (Some(hopper), Some(many))
                if many.serves(params) && hopper.serves_invariant(k) && Hopper::is_one_chain(k) =>
            {
                many.run(device, params, activation)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The kernels of `linear_few.cu` and how they compute such a layer of plain weights by default, if they do. The bits are those of the route
    /// [`Route::Stream`].
    pub(super) fn few(&self, device: &Device, params: &LinearParams, results: Results) -> Option<(&LinearFew, Plan)> {
        let [m, n] = [params.m, params.n].map(|size| size as usize);
        let few = self.few.as_ref().filter(|_| self.route(device) == Route::Auto)?;
        let variant = self.stream.variant(m, n)?;
        few.plan(params, results, variant.columns).map(|plan| (few, plan))
    }

    /// The kernels of `linear_stream.cu`, where they compute such a layer of plain weights by default and no other kernel of ours does.
    pub(super) fn streamed(&self, device: &Device, params: &LinearParams) -> Option<&LinearStream> {
        let [m, n, k] = [params.m, params.n, params.k].map(|size| size as usize);
        let is_streamed = match self.route(device) {
            Route::Auto => prefers_stream(m, n * k * device.dtype.bytes()) || self.blas.get().is_none(),
            Route::Stream => true,
            Route::Tiled | Route::Hopper | Route::Blas => false,
        };
        is_streamed.then_some(&self.stream)
    }

    /// `factors`: of the rows of x.
    fn plain(&mut self, device: &Device, product: Product, factors: Option<RowFactors>) -> Result<()> {
        let params = product.params;
        if let Some(hopper) = self.hopper(device, &params) {
            return hopper.run(device, &params, factors);
        }
        assert!(factors.is_none(), "rows are left undivided for `linear_hopper.cu` alone");
        if device.rounding == Rounding::BatchInvariant {
            return self.invariant(device, product, device.chaining);
        }
        if let Some((few, plan)) = self.few(device, &params, Results::Sums) {
            return few.run(device, &params, Results::Sums, plan);
        }
        if let Some(stream) = self.streamed(device, &params)
            && stream.run(device, &params, Results::Sums)?
        {
            return Ok(());
        }
        self.large(device, product, device.chaining)
    }

    /// A product whose results depend on their row and column alone. Which kernels compute it depends on the device and on k.
    fn invariant(&self, device: &Device, product: Product, chaining: Chaining) -> Result<()> {
        match &self.hopper {
            Some(hopper) if hopper.serves_invariant(product.params.k as usize) => {
                hopper.run_invariant(device, chaining, &product.params, Results::Sums)
            }
            _ => self.tiled(device, product, chaining),
        }
    }

    /// A product by cuBLASLt or our own kernels. `chaining` is that of the latter, which read weights before they wait.
    fn large(&mut self, device: &Device, product: Product, chaining: Chaining) -> Result<()> {
        if device.rounding == Rounding::BatchInvariant {
            return self.invariant(device, product, chaining);
        }
        if matches!(self.route(device), Route::Auto | Route::Blas)
            && let Some(blas) = self.blas.get_mut()
            && blas.matmul(&product)? == Outcome::Launched
        {
            device.context.launches().note(BLAS);
            return Ok(());
        }
        self.tiled(device, product, chaining)
    }

    fn tiled(&self, device: &Device, product: Product, chaining: Chaining) -> Result<()> {
        let [m, n] = [product.params.m, product.params.n].map(|size| size as usize);
        let index = tiling(m, n, device.facts().processors);
        let (tiling, kernel) = (&TILINGS[index], &self.tiled[index]);
        let blocks = [m.div_ceil(tiling.tokens), n.div_ceil(tiling.columns), 1];
        kernel.launch(chaining, blocks, tiling.threads, tiling.shared_bytes(), &product.params)
    }

    /// Launches a layer of weights in codes by one kernel that reads them once, unless a route is set. `false`: nothing was launched. `scratch`: an address,
    /// and its bytes.
    fn one_launch(
        &self,
        device: &Device,
        coded: &CodedProduct,
        results: Results,
        scratch: (Address, usize),
    ) -> Result<bool> {
        let m = coded.product.params.m as usize;
        if self.route(device) != Route::Auto {
            return Ok(false);
        }
        if m > FEW_TOKENS
            && let Some(hopper) = &self.coded_hopper
            && hopper.run(device, coded, results, scratch)?
        {
            return Ok(true);
        }
        if let Some(few) = &self.few_quantized
            && few.run(device, coded, results)?
        {
            return Ok(true);
        }
        if self.scaled.run(device, coded, results, scratch)? {
            return Ok(true);
        }
        // One H200, 151936 x 1024 in 8 bits, by `linear_coded.cu` and by this: 1 token 90 and 51 us, 8 tokens 107 and 51.
        self.coded_hopper.as_ref().map_or(Ok(false), |hopper| hopper.run(device, coded, results, scratch))
    }

    /// Launches a layer of gates and up whose weights are all in codes of one form by one kernel, if there is one. `false`: nothing was launched.
    pub(super) fn coded_gated(
        &self,
        device: &Device,
        params: &LinearParams,
        weight: &Matrix,
        activation: Activation,
    ) -> Result<bool> {
        let mut runs = weight.runs(0..weight.rows(), device.dtype);
        let (Some((_, Rows::Coded { form, weights, skip })), None) = (runs.next(), runs.next()) else {
            return Ok(false);
        };
        let (address, rows) = weight.scratch(device.dtype);
        let coded = CodedProduct { product: Product { params: *params, bias: None }, form, weights, skip };
        let scratch = (address, rows * weight.cols() * device.dtype.bytes());
        self.one_launch(device, &coded, Results::Gated(activation), scratch)
    }

    /// A product with weights in codes: from the codes for few tokens; else slice by slice with the numbers that they stand for, which lie in
    /// `scratch`: its address, and how many rows it holds. Unless a route is set, [`one_launch`](Self::one_launch)
    /// chooses first.
    fn coded(&mut self, device: &Device, coded: &CodedProduct, scratch: (Address, usize)) -> Result<()> {
        let params = coded.product.params;
        let [m, n, k] = [params.m, params.n, params.k].map(|size| size as usize);
        let (address, rows) = scratch;
        if self.one_launch(device, coded, Results::Sums, (address, rows * k * device.dtype.bytes()))? {
            return Ok(());
        }
        let from_codes = match self.route(device) {
            Route::Auto => m <= coded_linear::TOKENS_FROM_CODES,
            Route::Stream => true,
            Route::Tiled | Route::Hopper | Route::Blas => false,
        };
        if from_codes
            && let Some(variant) = self.stream.variant(m, n)
            && self.coded.stream(device, coded, variant.warps(k))?
        {
            return Ok(());
        }
        for columns in coded_linear::slices(n, rows) {
            self.coded.decode(device, coded, columns.clone(), address)?;
            let product = coded.product.columns(columns, device.dtype).with_weight(address);
            self.large(device, product, Chaining::Strict)?;
        }
        Ok(())
    }
}
