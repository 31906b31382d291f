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
pub use plan::{Epilogue, Gemm, Gpu, Launch, Quantized, Route, Weights, applies_factors, plan, plan_slice, slices};
pub use product::{Added, LinearParams, Results};

#[cfg(test)]
pub use plan::tests::compare_with_committed;
#[cfg(test)]
pub use product::RowNorms;

use super::device::Device;
use super::driver::Address;
use super::kernels::Chaining;
use super::matrix::{Matrix, Readers, Rows, Vector};
use super::storage::{RowFactors, Tensor};
use crate::LayerInput;
use base::error::Result;
use cublaslt::Outcome;
use late_cublaslt::LateBlas;
use plan::CUBLASLT;
use product::{Norms, Product};
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
            let product = Product { params, bias: low, norms: Norms::of(factors) };
            match rows {
                Rows::Plain(weight) => {
                    let product = product.with_weight(weight);
                    let launch = self.plan(device, &product.params, Weights::Plain, Epilogue::Store);
                    let launch = launch.expect("a sum is always computed");
                    self.plain(device, device.chaining, &product, Results::Sums, &launch)?;
                }
                Rows::Coded { form, weights, skip } => {
                    let coded = QuantizedProduct { product, form, weights, skip };
                    let launch = self.plan_coded(device, &coded, weight, Epilogue::Store);
                    let launch = launch.expect("a sum is always computed");
                    self.quantized(device, &coded, Results::Sums, weight.scratch(device.dtype).0, &launch)?;
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
        let product = Product { params, bias: None, norms: Norms::of(factors) };
        self.run_whole(device, product, weight, results, Epilogue::Gated)
    }

    /// Launches a layer whose sums are added to the residual stream and normalized for the products of `readers`, if one kernel does and those apply the scale. The
    /// factors that these products multiply their sums by.
    pub(super) fn run_added(
        &mut self,
        device: &Device,
        params: LinearParams,
        weight: &Matrix,
        readers: &Readers,
        added: Added,
    ) -> Result<Option<RowFactors>> {
        let gpu = self.gpu(device);
        let (m, k) = (params.m as usize, readers.k);
        let reads = |(n, weights): &(usize, Weights)| {
            applies_factors(&Gemm { m, n: *n, k, weights: *weights, epilogue: Epilogue::Store }, &gpu)
        };
        let [(n, weights)] = weight.weights()[..] else { return Ok(None) };
        let gemm = Gemm { m, n, k: weight.cols(), weights, epilogue: Epilogue::AddNorm };
        let squares = plan(&gemm, &gpu).and_then(|launch| launch.squares(&gemm, device.dtype));
        let Some(parts) = squares.filter(|_| readers.weights.iter().all(reads)) else { return Ok(None) };
        let factors = self.swap_ab.as_ref().expect(PLANNED).factors(parts, added.eps);
        let product = Product { params, bias: None, norms: Norms::Added(added, factors) };
        let launched = self.run_whole(device, product, weight, Results::Sums, Epilogue::AddNorm)?;
        Ok(launched.then_some(factors))
    }

    /// Launches a layer whose weights are all of one form, if one kernel has the epilogue. `false`: nothing was launched.
    fn run_whole(
        &mut self,
        device: &Device,
        product: Product,
        weight: &Matrix,
        results: Results,
        epilogue: Epilogue,
    ) -> Result<bool> {
        let mut runs = weight.runs(0..weight.rows(), device.dtype);
        let (Some((_, rows)), None) = (runs.next(), runs.next()) else { return Ok(false) };
        // Not all kernels multiply rows by their factors.
        let m = product.params.m as usize;
        let reads = |launch: &Launch| !matches!(product.norms, Norms::Factors(_)) || launch.applies_factors(m);
        match rows {
            Rows::Plain(at) => {
                let product = product.with_weight(at);
                let launch = self.plan(device, &product.params, Weights::Plain, epilogue).filter(reads);
                let Some(launch) = launch else { return Ok(false) };
                self.plain(device, device.chaining, &product, results, &launch)?;
            }
            Rows::Coded { form, weights, skip } => {
                let coded = QuantizedProduct { product, form, weights, skip };
                let launch = self.plan_coded(device, &coded, weight, epilogue).filter(reads);
                let Some(launch) = launch else { return Ok(false) };
                self.quantized(device, &coded, results, weight.scratch(device.dtype).0, &launch)?;
            }
        }
        Ok(true)
    }

    /// The kernel that is planned for `m` tokens of a layer whose weights are all of one form, without the number type. `None`: none has this epilogue.
    pub(super) fn planned(&self, device: &Device, m: usize, weight: &Matrix, epilogue: Epilogue) -> Option<String> {
        let [(n, weights)] = weight.weights()[..] else { return None };
        let gemm = Gemm { m, n, k: weight.cols(), weights, epilogue };
        plan(&gemm, &self.gpu(device)).map(|launch| launch.kernel(&gemm))
    }

    fn plan(&self, device: &Device, params: &LinearParams, weights: Weights, epilogue: Epilogue) -> Option<Launch> {
        plan(&gemm(params, weights, epilogue), &self.gpu(device))
    }

    fn plan_coded(
        &self,
        device: &Device,
        coded: &QuantizedProduct,
        weight: &Matrix,
        epilogue: Epilogue,
    ) -> Option<Launch> {
        let params = &coded.product.params;
        let weights = Weights::Quantized(Quantized {
            form: coded.form,
            skip: coded.skip,
            scratch_bytes: weight.scratch(device.dtype).1 * params.k as usize * device.dtype.bytes(),
            is_aligned: params.out_stride % 2 == 0 && params.out.is_multiple_of(4),
        });
        self.plan(device, params, weights, epilogue)
    }

    /// A product of plain weights as it was planned. `chaining` is that of our kernels, which read weights before they wait.
    fn plain(
        &mut self,
        device: &Device,
        chaining: Chaining,
        product: &Product,
        results: Results,
        launch: &Launch,
    ) -> Result<()> {
        let params = &product.params;
        let is_apart = matches!(product.norms, Norms::None);
        assert!(is_apart || launch.applies_factors(params.m as usize), "{launch:?} has no norms");
        match (launch, results) {
            (Launch::SwapAb(launch), _) => {
                self.swap_ab.as_ref().expect(PLANNED).run(device, chaining, product, launch, results)
            }
            (Launch::Gated(plan), Results::Gated(activation)) => {
                self.gated.as_ref().expect(PLANNED).run(device, params, activation, plan)
            }
            (Launch::GemvShared(plan), _) => {
                self.gemv_shared.as_ref().expect(PLANNED).run(device, product, results, plan)
            }
            (Launch::GemvStream(plan), _) => self.gemv_stream.run(device, product, results, plan),
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

    /// A product of quantized weights as it was planned. `scratch`: where slices of them are dequantized to.
    fn quantized(
        &mut self,
        device: &Device,
        coded: &QuantizedProduct,
        results: Results,
        scratch: Address,
        launch: &Launch,
    ) -> Result<()> {
        let is_apart = matches!(coded.product.norms, Norms::None);
        assert!(is_apart || launch.applies_factors(coded.product.params.m as usize), "{launch:?} has no norms");
        match launch {
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
                let (gemm, gpu) = (gemm(&coded.product.params, Weights::Plain, Epilogue::Store), self.gpu(device));
                for slice in slices(gemm.n, *rows) {
                    self.dequantize.decode(device, coded, slice.clone(), scratch)?;
                    let launch = plan_slice(&gemm, slice.len(), &gpu);
                    let product = coded.product.columns(slice, device.dtype).with_weight(scratch);
                    self.plain(device, Chaining::Strict, &product, results, &launch)?;
                }
            }
            _ => unreachable!("{launch:?} for quantized weights"),
        }
        Ok(())
    }
}

/// The product that `params` describes.
fn gemm(params: &LinearParams, weights: Weights, epilogue: Epilogue) -> Gemm {
    let [m, n, k] = [params.m, params.n, params.k].map(|size| size as usize);
    Gemm { m, n, k, weights, epilogue }
}
