//! Which kernels compute a layer on a GPU, by the plans that launch them? No device is needed.

use super::attention;
use super::expert_linear;
use super::gemm::quantized::weights::{COLUMNS, Form};
use super::gemm::{
    Epilogue, Gemm, Gpu, Grid, Launch, Quantized, Results, Route, Weights, applies_factors, plan, plan_slice, slices,
};
use super::gpus::GpuModel;
use super::head_linear;
use super::matrix::{StoredRun, scratch_rows, stored_runs};
use crate::explain::{After, Explained, Kind, Pass, Work, distinct_experts};
use crate::{Activation, Rounding, RoutesShape, explain};
use base::error::Result;
use formats::{DType, WeightFormat};

/// A GPU, and how it computes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The GPU.
    pub model: &'static GpuModel,
    /// The model's number type: one of 16 bits.
    pub dtype: DType,
    /// Whether results depend on the batch.
    pub rounding: Rounding,
}

/// How each part of the work of a layer is computed, in order, where cuBLASLt is installed. Several products stand for one whose weights are held in several
/// forms.
///
/// # Errors
///
/// [`UnsupportedModel`](base::error::Error::UnsupportedModel) for heads that no kernel knows.
pub fn explain(work: &[Work], pass: &Pass, target: Target) -> Result<Vec<Explained>> {
    let Target { model, dtype, rounding } = target;
    let gpu = Gpu { facts: model.facts, dtype, has_cublaslt: true, rounding, route: Route::Auto };
    let mut all = Vec::new();
    // Whether the product before left the norm to the epilogue of the next one.
    let mut is_undivided = false;
    for work in work {
        let flops = work.flops(pass);
        match &work.kind {
            Kind::Product(weights, after) => {
                let products = Products { work, gpu, after, is_undivided };
                let (explained, leaves_norm) = products.explain(weights);
                all.extend(explained);
                is_undivided = leaves_norm;
            }
            &Kind::Experts { ref weights, experts, chosen, ref after } => {
                let routes = RoutesShape { experts, chosen, tokens: work.rows };
                let form = stored_runs(&weights.parts, weights.cols)[0].form;
                let of_experts = distinct_experts(experts, chosen, work.rows) as u64;
                let held = of_experts * held_bytes(weights.rows(), weights.cols, form, dtype);
                let (kernel, grid, columns) = of_experts_product(weights.rows(), form, after, routes, rounding);
                let numbers = work.rows * (weights.cols + chosen * columns);
                all.push(Explained {
                    what: work.title(),
                    format: format!("{} ({of_experts} experts read)", weights.format()),
                    kernel,
                    grid: text(Some(grid)),
                    split: 1,
                    bytes: held + (numbers * dtype.bytes()) as u64,
                    flops,
                });
            }
            &Kind::Heads { ref weights, heads } => {
                let (kernel, grid) = head_linear::describe(work.rows, heads, weights.rows());
                let numbers = heads * (weights.rows() * weights.cols + work.rows * (weights.rows() + weights.cols));
                all.push(Explained {
                    what: work.title(),
                    format: WeightFormat::from(dtype).to_string(),
                    kernel,
                    grid: text(Some(grid)),
                    split: 1,
                    bytes: (numbers * dtype.bytes()) as u64,
                    flops,
                });
                is_undivided = false;
            }
            Kind::Attention(heads) => {
                let (kernel, grid) = attention::describe(heads, pass, model.facts, rounding)?;
                all.push(Explained {
                    what: work.title(),
                    format: pass.kv_format.name().to_owned(),
                    kernel,
                    grid: text(Some(grid)),
                    split: 1,
                    bytes: heads.bytes(pass, dtype.bytes()),
                    flops,
                });
                is_undivided = false;
            }
            Kind::Recurrence => all.push(Explained::of_recurrence(work)),
        }
    }
    Ok(all)
}

/// The products of one stack of weights.
struct Products<'a> {
    work: &'a Work,
    gpu: Gpu,
    after: &'a After,
    is_undivided: bool,
}

impl Products<'_> {
    /// One for each form in which rows of weights are held, and whether the norm behind is left to the next product.
    fn explain(&self, weights: &explain::Weights) -> (Vec<Explained>, bool) {
        let Products { work, gpu, after, is_undivided } = self;
        let (runs, cols) = (stored_runs(&weights.parts, weights.cols), weights.cols);
        let is_whole = runs.len() == 1;
        let fused = match after {
            After::Gate(Activation::ClampedSwiglu) => None,
            After::Gate(_) if is_whole => Some(Epilogue::Gated),
            After::Stream { next: Some(next) } if is_whole && self.apply_factors(next) => Some(Epilogue::AddNorm),
            After::Gate(_) | After::Stream { .. } | After::Store => None,
        };
        let apart = match after {
            After::Store => "",
            After::Gate(_) => ", activation apart",
            After::Stream { .. } => ", norm apart",
        };
        let mut first = 0;
        let mut leaves_norm = false;
        let mut explain = |run: &StoredRun| {
            let of_run = |epilogue| {
                let weights = of_form(run, cols, gpu.dtype);
                Gemm { m: work.rows, n: run.rows, k: cols, weights, epilogue }
            };
            let fused = fused.map(of_run).and_then(|gemm| {
                let launch = plan(&gemm, gpu);
                // As `gemm::Kernels::run_gated`: other kernels do not multiply rows by their factors.
                let launch = launch.filter(|launch| {
                    !is_undivided || gemm.epilogue != Epilogue::Gated || launch.applies_factors(gemm.m)
                });
                launch.map(|launch| (gemm, launch))
            });
            leaves_norm = fused.as_ref().is_some_and(|(gemm, _)| gemm.epilogue == Epilogue::AddNorm);
            let apart = if fused.is_some() { "" } else { apart };
            let (gemm, launch) = fused.unwrap_or_else(|| {
                let gemm = of_run(Epilogue::Store);
                (gemm, plan(&gemm, gpu).expect("a sum is always computed"))
            });
            let what = match is_whole {
                true => work.title(),
                false => format!("{}, rows {first} to {}", work.title(), first + run.rows - 1),
            };
            first += run.rows;
            let (kernel, copied) = kernel_of(&gemm, &launch, gpu);
            let columns = if gemm.is_gated() { run.rows / 2 } else { run.rows };
            let numbers = work.rows * (cols + columns) + copied;
            Explained {
                what,
                format: if is_whole { weights.format() } else { weights.format_of(first - run.rows) },
                kernel: kernel + apart,
                grid: text(launch.grid(&gemm, gpu.facts)),
                split: launch.split(),
                bytes: held_bytes(run.rows, cols, run.form, gpu.dtype) + (numbers * gpu.dtype.bytes()) as u64,
                flops: 2 * (work.rows * run.rows * cols) as u64,
            }
        };
        let explained = runs.iter().map(&mut explain).collect();
        (explained, leaves_norm)
    }
}

impl Products<'_> {
    /// Whether the products of `next` multiply the rows that they read by factors.
    fn apply_factors(&self, next: &explain::Weights) -> bool {
        let (runs, k, gpu) = (stored_runs(&next.parts, next.cols), next.cols, &self.gpu);
        let gemm = |run: &StoredRun| {
            let weights = of_form(run, k, gpu.dtype);
            Gemm { m: self.work.rows, n: run.rows, k, weights, epilogue: Epilogue::Store }
        };
        runs.iter().all(|run| applies_factors(&gemm(run), gpu))
    }
}

/// The kernel of a product, and the numbers that are written and read again on the way.
fn kernel_of(gemm: &Gemm, launch: &Launch, gpu: &Gpu) -> (String, usize) {
    let kernel = launch.kernel(gemm);
    let Launch::Dequantize { rows } = launch else { return (kernel, 0) };
    let first = slices(gemm.n, *rows).next().map_or(0, |slice| slice.len());
    let of_slice = plan_slice(gemm, first, gpu).kernel(gemm);
    (format!("{kernel} in slices of {first}, {of_slice}"), 2 * gemm.n * gemm.k)
}

fn of_form(run: &StoredRun, cols: usize, dtype: DType) -> Weights {
    run.form.map_or(Weights::Plain, |form| {
        let scratch_bytes = scratch_rows(cols, dtype) * cols * dtype.bytes();
        Weights::Quantized(Quantized { form, skip: 0, scratch_bytes, is_aligned: true })
    })
}

/// Bytes of rows of weights on the device.
fn held_bytes(rows: usize, cols: usize, form: Option<Form>, dtype: DType) -> u64 {
    let bytes = match form {
        None => rows * cols * dtype.bytes(),
        Some(form) => rows.div_ceil(COLUMNS) * form.octet_bytes(cols),
    };
    bytes as u64
}

/// The kernel of a product of experts of `rows` rows of weights, its launch, and the columns of its results.
fn of_experts_product(
    rows: usize,
    form: Option<Form>,
    after: &After,
    routes: RoutesShape,
    rounding: Rounding,
) -> (String, Grid, usize) {
    let (columns, results) = match after {
        After::Gate(activation) => (rows / 2, Results::Gated(*activation)),
        After::Store | After::Stream { .. } => (rows, Results::Sums),
    };
    let (kernel, grid) = expert_linear::describe(form, columns, results, routes, rounding);
    (kernel, grid, columns)
}

fn text(grid: Option<Grid>) -> String {
    let Some(Grid { blocks, threads, .. }) = grid else { return String::new() };
    let used = 1 + blocks.iter().rposition(|&blocks| blocks > 1).unwrap_or(0);
    let blocks: Vec<_> = blocks[..used].iter().map(usize::to_string).collect();
    format!("{} of {threads}", blocks.join(" x "))
}
