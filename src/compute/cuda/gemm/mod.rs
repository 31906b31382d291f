//! Products of a linear layer. See `ops/linear.rs` for the contract.
//!
//! `plan.rs` chooses the kernel of a product and its cut; each other file is the launch of one file of kernels, with its limits.

mod cublaslt;
mod cublaslt_handle;
mod gated;
mod gemv_shared;
mod gemv_stream;
mod grid;
mod late_cublaslt;
mod plan;
mod product;
pub mod quantized;
mod swap_ab;
mod tiled;

pub use grid::Grid;
pub use plan::{Epilogue, Gemm, Gpu, Launch, Quantized, Route, Weights, plan, plan_slice, slices};
pub use product::{LinearParams, Results};
pub use swap_ab::Added;

#[cfg(test)]
pub use plan::tests::compare_with_committed;

use super::device::Device;
use super::driver::Address;
use super::kernels::Chaining;
use super::matrix::{Matrix, Rows, Vector};
use super::storage::{RowFactors, Tensor};
use crate::LayerInput;
use base::error::Result;
use cublaslt::Outcome;
use late_cublaslt::LateBlas;
use plan::CUBLASLT;
use product::Product;
use quantized::QuantizedProduct;
use std::ops::Range;

/// Our own kernels, and the library.
pub struct Kernels {
    /// cuBLASLt, where it is installed.
    pub blas: LateBlas,
    /// Which of them computes.
    pub route: Route,
    gemv_stream: gemv_stream::Kernels,
    tiled: tiled::Kernels,
    dequantize: quantized::dequantize::Kernels,
    quantized_gemv: quantized::gemv::Kernels,
    /// `None` on other devices than Hopper, as the next four.
    gemv_shared: Option<gemv_shared::Kernels>,
    quantized_gemv_shared: Option<quantized::gemv_shared::Kernels>,
    swap_ab: Option<swap_ab::SwapAb>,
    gated: Option<gated::Kernels>,
    quantized_swap_ab: Option<quantized::swap_ab::Kernels>,
}

/// Why a kernel is there: plans name those of the device alone.
const PLANNED: &str = "a plan for this device";

impl Kernels {
    /// Loads them, and opens the library.
    pub fn new(device: &Device) -> Result<Kernels> {
        let (gemv_stream, tiled) = (gemv_stream::Kernels::new(device)?, tiled::Kernels::new(device)?);
        let dequantize = quantized::dequantize::Kernels::new(device)?;
        let quantized_gemv = quantized::gemv::Kernels::new(device)?;
        // Its thread works while the other kernels are loaded.
        let blas = LateBlas::begin(&device.context, device.dtype);
        Ok(Kernels {
            blas,
            route: Route::Auto,
            gemv_stream,
            tiled,
            dequantize,
            quantized_gemv,
            gemv_shared: gemv_shared::Kernels::new(device)?,
            quantized_gemv_shared: quantized::gemv_shared::Kernels::new(device)?,
            swap_ab: swap_ab::SwapAb::new(device)?,
            gated: gated::Kernels::new(device)?,
            quantized_swap_ab: quantized::swap_ab::Kernels::new(device)?,
        })
    }

    /// What plans depend on besides the product.
    fn gpu(&self, device: &Device) -> Gpu {
        Gpu {
            facts: device.facts(),
            dtype: device.dtype,
            has_cublaslt: self.blas.get().is_some(),
            rounding: device.rounding,
            route: self.route,
        }
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
                Rows::Plain(weight) => {
                    let product = product.with_weight(weight);
                    let launch = self.plan(device, &product.params, Weights::Plain, Epilogue::Store);
                    let launch = launch.expect("a sum is always computed");
                    self.plain(device, device.chaining, &product, Results::Sums, factors, &launch)?;
                }
                Rows::Coded { form, weights, skip } => {
                    assert!(factors.is_none(), "quantized weights do not divide rows");
                    let coded = QuantizedProduct { product, form, weights, skip };
                    let launched = self.quantized(device, &coded, Results::Sums, weight.scratch(device.dtype))?;
                    assert!(launched, "a sum is always computed");
                }
            }
        }
        Ok(())
    }

    /// Launches a layer of gates and up by one kernel, if there is one. `params`: all but the weights. `false`: nothing was launched.
    pub(super) fn run_gated(
        &mut self,
        device: &Device,
        params: LinearParams,
        weight: &Matrix,
        results: Results,
        factors: Option<RowFactors>,
    ) -> Result<bool> {
        if let Some(at) = weight.plain() {
            let product = Product { params, bias: None }.with_weight(at);
            let launch = self.plan(device, &product.params, Weights::Plain, Epilogue::Gated);
            // Other kernels do not multiply rows by their factors.
            let launch = launch.filter(|launch| factors.is_none() || matches!(launch, Launch::SwapAb(_)));
            let Some(launch) = launch else { return Ok(false) };
            return self.plain(device, device.chaining, &product, results, factors, &launch).map(|()| true);
        }
        let mut runs = weight.runs(0..weight.rows(), device.dtype);
        let (Some((_, Rows::Coded { form, weights, skip })), None) = (runs.next(), runs.next()) else {
            return Ok(false);
        };
        let coded = QuantizedProduct { product: Product { params, bias: None }, form, weights, skip };
        self.quantized(device, &coded, results, weight.scratch(device.dtype))
    }

    /// Launches a layer of plain weights whose sums are added to the residual stream and normalized for the product of `next` rows of weights and k, if one
    /// kernel does. The factors that this product multiplies its rows by.
    pub(super) fn run_added(
        &self,
        device: &Device,
        params: &LinearParams,
        next: [usize; 2],
        added: Added,
    ) -> Result<Option<RowFactors>> {
        let epilogue = Epilogue::AddNorm { next };
        let Some(Launch::SwapAb(launch)) = self.plan(device, params, Weights::Plain, epilogue) else {
            return Ok(None);
        };
        let squares = launch.squares(&gemm(params, Weights::Plain, epilogue), device.dtype).expect(PLANNED);
        let swap_ab = self.swap_ab.as_ref().expect(PLANNED);
        swap_ab.run_added(device, params, &launch, squares, added).map(Some)
    }

    /// The kernel that is planned for `m` tokens of a layer whose weights are all of one form, without the number type. `None`: none has this epilogue.
    pub(super) fn planned(&self, device: &Device, m: usize, weight: &Matrix, epilogue: Epilogue) -> Option<String> {
        let (rows, k) = (weight.rows(), weight.cols());
        let (_, of_rows) = weight.runs(0..rows, device.dtype).next()?;
        let weights = match of_rows {
            Rows::Plain(_) => Weights::Plain,
            Rows::Coded { form, skip, .. } => {
                let scratch_bytes = weight.scratch(device.dtype).1 * k * device.dtype.bytes();
                Weights::Quantized(Quantized { form, skip, scratch_bytes, is_aligned: true })
            }
        };
        let gemm = Gemm { m, n: rows, k, weights, epilogue };
        plan(&gemm, &self.gpu(device)).map(|launch| launch.kernel(&gemm))
    }

    fn plan(&self, device: &Device, params: &LinearParams, weights: Weights, epilogue: Epilogue) -> Option<Launch> {
        plan(&gemm(params, weights, epilogue), &self.gpu(device))
    }

    /// A product of plain weights as it was planned. `factors`: of the rows of x. `chaining` is that of our kernels, which read weights before they wait.
    fn plain(
        &mut self,
        device: &Device,
        chaining: Chaining,
        product: &Product,
        results: Results,
        factors: Option<RowFactors>,
        launch: &Launch,
    ) -> Result<()> {
        let params = &product.params;
        if let Launch::SwapAb(launch) = launch {
            let swap_ab = self.swap_ab.as_ref().expect(PLANNED);
            return swap_ab.run(device, chaining, params, launch, results, factors);
        }
        assert!(factors.is_none(), "rows are left undivided for `gemm_swap_ab.cu` alone");
        match (launch, results) {
            (Launch::Gated(plan), Results::Gated(activation)) => {
                self.gated.as_ref().expect(PLANNED).run(device, params, activation, plan)
            }
            (Launch::GemvShared(plan), _) => {
                self.gemv_shared.as_ref().expect(PLANNED).run(device, params, results, plan)
            }
            (Launch::GemvStream(plan), _) => self.gemv_stream.run(device, params, results, plan),
            (Launch::Tiled(plan), Results::Sums) => self.tiled.run(chaining, product, plan),
            (Launch::Cublaslt, Results::Sums) => {
                if let Some(blas) = self.blas.get_mut()
                    && blas.matmul(product)? == Outcome::Launched
                {
                    device.context.launches().note(CUBLASLT);
                    return Ok(());
                }
                let gemm = gemm(params, Weights::Plain, Epilogue::Store);
                self.tiled.run(chaining, product, &tiled::Plan::new(&gemm, device.facts()))
            }
            _ => unreachable!("{launch:?} for {results:?} of plain weights"),
        }
    }

    /// A product of quantized weights. `scratch`: where slices of them are dequantized to, and how many rows there is room for. `false`: no kernel has these
    /// results, and nothing was launched.
    fn quantized(
        &mut self,
        device: &Device,
        coded: &QuantizedProduct,
        results: Results,
        (scratch, rows): (Address, usize),
    ) -> Result<bool> {
        let params = &coded.product.params;
        let epilogue = if results == Results::Sums { Epilogue::Store } else { Epilogue::Gated };
        let weights = Weights::Quantized(Quantized {
            form: coded.form,
            skip: coded.skip,
            scratch_bytes: rows * params.k as usize * device.dtype.bytes(),
            is_aligned: params.out_stride % 2 == 0 && params.out.is_multiple_of(4),
        });
        let (gemm, gpu) = (gemm(params, weights, epilogue), self.gpu(device));
        let Some(launch) = plan(&gemm, &gpu) else { return Ok(false) };
        match &launch {
            Launch::QuantizedSwapAb(plan) => {
                self.quantized_swap_ab.as_ref().expect(PLANNED).run(device, coded, results, scratch, plan)?;
            }
            Launch::QuantizedGemvShared(plan) => {
                self.quantized_gemv_shared.as_ref().expect(PLANNED).run(device, coded, results, plan)?;
            }
            Launch::QuantizedGemv(plan) => {
                self.quantized_gemv.run(device, coded, results, scratch, plan)?;
            }
            Launch::QuantizedGemvStream(plan) => self.dequantize.stream(device, coded, plan)?,
            Launch::Dequantize { rows } => {
                for slice in slices(gemm.n, *rows) {
                    self.dequantize.decode(device, coded, slice.clone(), scratch)?;
                    let launch = plan_slice(&gemm, slice.len(), &gpu);
                    let product = coded.product.columns(slice, device.dtype).with_weight(scratch);
                    self.plain(device, Chaining::Strict, &product, results, None, &launch)?;
                }
            }
            _ => unreachable!("{launch:?} for quantized weights"),
        }
        Ok(true)
    }
}

/// The product that `params` describes.
fn gemm(params: &LinearParams, weights: Weights, epilogue: Epilogue) -> Gemm {
    let [m, n, k] = [params.m, params.n, params.k].map(|size| size as usize);
    Gemm { m, n, k, weights, epilogue }
}
