//! Matrix products by cuBLASLt, where it is installed.
//!
//! The library is looked for under its soname, then in `NVLLM_CUDA_LIB_DIR`, then beside Python's site-packages: opening
//! the full path first makes the later open by soname find it. While an engine opens, the library's suggestions are timed once for
//! each shape and the fastest is kept; for a shape that differs from an earlier one in a few tokens, the first suggestions and what was
//! kept there. With few tokens they are timed with weights that come from memory, as in a pass. Shapes that come later take the library's
//! first suggestion.

use crate::cuda::driver::{self, Address, Context, Event, EventKind, Memory};
use crate::cuda::gemm::cublaslt_handle::BlasHandle;
use crate::cuda::gemm::product::{LinearParams, Norms, Product};
use crate::cuda::library;
use base::error::{Error, Result};
use base::log::{Level, log};
use cudarc::cublaslt::sys as lt;
use cudarc::driver::sys::cuMemcpyDtoDAsync_v2;
use formats::DType;
use std::collections::HashMap;
use std::ffi::c_void;
use std::iter;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

#[cfg(not(windows))]
const SONAME: &str = "libcublasLt.so.13";
#[cfg(windows)]
const SONAME: &str = "cublasLt64_13.dll";
/// Where it lies among Python's packages.
#[cfg(not(windows))]
const PACKAGE: &str = "nvidia/cu13/lib";
#[cfg(windows)]
const PACKAGE: &str = "nvidia/cu13/bin/x86_64";
/// What NVIDIA recommends for Hopper.
const WORKSPACE_BYTES: usize = 32 << 20;
/// Algorithms that are timed for a shape, and for one with a neighbour.
const CANDIDATES: usize = 16;
const CANDIDATES_BESIDE: usize = 3;
/// Launches of an algorithm that are timed together, and those with weights that come from memory, whose times differ less.
const LAUNCHES: usize = 3;
const LAUNCHES_COLD: usize = 8;
/// Most tokens of a product whose weights take most of the time: it is timed as a pass finds it, with weights in memory. Decode steps are of such sizes.
const COLD_TOKENS: i32 = 512;
/// Most bytes that the copies of the weights of a product take, which the engine keeps free. It is more than any second-level cache has.
const COPIES_BYTES: usize = 128 << 20;

/// What became of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is on the stream.
    Launched,
    /// The library has no way to compute this shape.
    Refused,
}

/// An open handle, and the plans made so far.
pub struct Blas {
    // Fields are dropped in this order: the handle before its context.
    handle: BlasHandle,
    context: Arc<Context>,
    workspace: Memory,
    dtype: lt::cudaDataType,
    plans: HashMap<Shape, Option<lt::cublasLtMatmulAlgo_t>>,
    planning: Planning,
    /// Around each candidate of a new shape.
    timing: [Event; 2],
}

// SAFETY: algorithms are plain data.
unsafe impl Send for Blas {}

/// How a shape that is new gets its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planning {
    /// By timing, with copies of the weights for few tokens.
    Timed,
    /// By timing, with nothing that is allocated.
    TimedInPlace,
    /// By the library's first suggestion. One H200, Qwen3-0.6B shape, prompts of 1,024 to 1,030 tokens: 3.94 ms, as with timing; with
    /// what was timed for twice as many tokens it is 4.45.
    Suggested,
}

/// What an algorithm depends on. Token counts that lie close together share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    m_bucket: i32,
    n: i32,
    k: i32,
    out_stride: i32,
    has_bias: bool,
}

/// Eight buckets between a power of two and the next: few enough plans, near enough sizes.
fn bucket(m: i32) -> i32 {
    let step = (1 << m.ilog2().saturating_sub(3)).max(8);
    (m + step - 1) / step * step
}

fn check(call: &'static str, status: lt::cublasStatus_t) -> Result<()> {
    if status == lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        Ok(())
    } else {
        Err(Error::Device { call, code: status as i32 })
    }
}

/// Whether cuBLASLt can be opened by its soname, after opening it by its path where that is needed.
fn is_present() -> bool {
    // SAFETY: opens libraries, whose start-up code is NVIDIA's; nothing is called yet.
    unsafe {
        lt::is_culib_present()
            || library::open(SONAME, "NVLLM_CUDA_LIB_DIR", PACKAGE).is_some() && lt::is_culib_present()
    }
}

impl Blas {
    /// The handle of the library, which has answered once: its first answer takes 70 ms, whatever it is asked. `None` where the library is missing.
    pub fn find(context: &Arc<Context>, dtype: DType) -> Result<Option<BlasHandle>> {
        if !is_present() {
            log(Level::Info, format_args!("{SONAME} was not found: matrix products take the slower path of our own"));
            return Ok(None);
        }
        context.make_current()?;
        let handle = BlasHandle::of(context)?;
        let params =
            LinearParams { m: 1024, n: 1024, k: 1024, out_stride: 1024, x_stride: 1024, ..LinearParams::default() };
        suggestions(&handle, &Call::new(data_type(dtype), &Product { params, bias: None, norms: Norms::None })?, 1);
        Ok(Some(handle))
    }

    /// Ready for products, with memory of its own.
    pub fn new(handle: BlasHandle, context: &Arc<Context>, dtype: DType) -> Result<Blas> {
        context.make_current()?;
        let workspace = Memory::new(context, WORKSPACE_BYTES, "matrix workspace", "memory_utilization")?;
        let timing = [Event::new(context, EventKind::Timing)?, Event::new(context, EventKind::Timing)?];
        Ok(Blas {
            handle,
            context: context.clone(),
            workspace,
            dtype: data_type(dtype),
            plans: HashMap::new(),
            planning: Planning::Timed,
            timing,
        })
    }

    /// Times new shapes without allocating anything. Ranks allocate and free together, and a product is no such point.
    pub fn time_in_place(&mut self) {
        self.planning = Planning::TimedInPlace;
    }

    /// How many shapes of products of `m` tokens have an algorithm.
    pub fn shapes_of(&self, m: usize) -> usize {
        self.plans.keys().filter(|shape| shape.m_bucket == bucket(m as i32)).count()
    }

    /// Ends the timing of new shapes.
    pub fn settle(&mut self) {
        self.planning = Planning::Suggested;
    }

    /// Launches a product. A shape that is new is planned first.
    pub fn matmul(&mut self, product: &Product) -> Result<Outcome> {
        self.context.make_current()?;
        let p = &product.params;
        let shape =
            Shape { m_bucket: bucket(p.m), n: p.n, k: p.k, out_stride: p.out_stride, has_bias: product.bias.is_some() };
        let call = Call::new(self.dtype, product)?;
        let algorithm = match self.plans.get(&shape) {
            Some(plan) => *plan,
            None => {
                // Nothing can be timed while a graph is captured.
                let is_timed = self.planning != Planning::Suggested && !self.context.is_capturing();
                let plan = if is_timed { self.fastest(&call, product, shape)? } else { self.suggested(&call) };
                self.plans.insert(shape, plan);
                plan
            }
        };
        let Some(algorithm) = algorithm else { return Ok(Outcome::Refused) };
        match self.launch(&call, product, &algorithm) {
            lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(Outcome::Launched),
            // The bucket's algorithm does not fit this very size.
            lt::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE | lt::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => {
                match suggestions(&self.handle, &call, 1).first() {
                    Some(first) => {
                        check("cublasLtMatmul", self.launch(&call, product, &first.algo)).map(|()| Outcome::Launched)
                    }
                    None => Ok(Outcome::Refused),
                }
            }
            status => check("cublasLtMatmul", status).map(|()| Outcome::Launched),
        }
    }

    /// The library's first suggestion for this shape.
    fn suggested(&self, call: &Call) -> Option<lt::cublasLtMatmulAlgo_t> {
        suggestions(&self.handle, call, 1).first().map(|suggestion| suggestion.algo)
    }

    /// The fastest of the library's suggestions for this shape.
    ///
    /// Most of the time goes into bringing algorithms to the device, at their first launch. So a shape with neighbours tries what was
    /// fastest there, which is on the device already, and few others.
    fn fastest(&mut self, call: &Call, product: &Product, shape: Shape) -> Result<Option<lt::cublasLtMatmulAlgo_t>> {
        let kept = self.neighbours(shape);
        let wanted = if kept.is_empty() { CANDIDATES } else { CANDIDATES_BESIDE };
        let suggested = suggestions(&self.handle, call, wanted).into_iter().map(|suggestion| suggestion.algo);
        // Copies come after the first launch of each, which brings its code to the device and takes memory, too. An algorithm of another shape
        // may not fit this one.
        let fits = |algorithm: &_| self.launch(call, product, algorithm) == lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS;
        let candidates: Vec<_> = suggested.chain(kept).filter(fits).collect();
        let copies = match self.planning == Planning::Timed && product.params.m <= COLD_TOKENS {
            true => Copies::of(product, candidates.len() * LAUNCHES_COLD, &self.context)?,
            false => Copies::default(),
        };
        let launches = if copies.count > 0 { LAUNCHES_COLD } else { LAUNCHES };
        let mut weights = copies.addresses(product).into_iter().cycle();
        let mut best: Option<(f32, lt::cublasLtMatmulAlgo_t)> = None;
        for algorithm in candidates {
            self.timing[0].record()?;
            let are_launched = weights.by_ref().take(launches).all(|weight| {
                let status = self.launch(call, &product.with_weight(weight), &algorithm);
                status == lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS
            });
            self.timing[1].record()?;
            self.timing[1].wait()?;
            let took = self.timing[0].milliseconds_to(&self.timing[1])?;
            if are_launched && took < best.as_ref().map_or(f32::INFINITY, |b| b.0) {
                best = Some((took, algorithm));
            }
        }
        Ok(best.map(|b| b.1))
    }

    /// What was kept for the nearest shapes with fewer and with more tokens, if they have at least half and at most twice as many.
    fn neighbours(&self, shape: Shape) -> Vec<lt::cublasLtMatmulAlgo_t> {
        let m = shape.m_bucket;
        let known = || self.plans.keys().filter(|other| Shape { m_bucket: m, ..**other } == shape);
        let fewer =
            known().filter(|other| other.m_bucket < m && 2 * other.m_bucket >= m).max_by_key(|other| other.m_bucket);
        let more =
            known().filter(|other| other.m_bucket > m && other.m_bucket <= 2 * m).min_by_key(|other| other.m_bucket);
        [fewer, more].into_iter().flatten().filter_map(|other| self.plans[other]).collect()
    }

    fn launch(&self, call: &Call, product: &Product, algorithm: &lt::cublasLtMatmulAlgo_t) -> lt::cublasStatus_t {
        let (one, zero) = (1.0f32, 0.0f32);
        let p = &product.params;
        // SAFETY: the descriptors state the shapes of the buffers at these addresses, which `ops::linear` checked. In the library's
        // column-major view, out^T [n, m] = weight [n, k] * x^T [k, m].
        unsafe {
            lt::cublasLtMatmul(
                self.handle.get(),
                call.operation,
                ptr::from_ref(&one).cast(),
                p.weight as *const c_void,
                call.weight,
                p.x as *const c_void,
                call.x,
                ptr::from_ref(&zero).cast(),
                p.out as *const c_void,
                call.out,
                p.out as *mut c_void,
                call.out,
                algorithm,
                self.workspace.address() as *mut c_void,
                WORKSPACE_BYTES,
                self.context.stream().cast(),
            )
        }
    }
}

/// As the library names it.
fn data_type(dtype: DType) -> lt::cudaDataType {
    match dtype {
        DType::Bf16 => lt::cudaDataType::CUDA_R_16BF,
        DType::F16 | DType::F32 => lt::cudaDataType::CUDA_R_16F,
    }
}

/// The algorithms that the library suggests for a product, the best one first.
fn suggestions(handle: &BlasHandle, call: &Call, wanted: usize) -> Vec<lt::cublasLtMatmulHeuristicResult_t> {
    let mut preference = ptr::null_mut();
    let mut results: Vec<MaybeUninit<lt::cublasLtMatmulHeuristicResult_t>> = vec![MaybeUninit::zeroed(); wanted];
    let mut found = 0;
    // SAFETY: all descriptors live; the result array has `wanted` entries, of which the library fills `found`.
    unsafe {
        if lt::cublasLtMatmulPreferenceCreate(&mut preference) != lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
            return Vec::new();
        }
        let attribute = lt::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let bytes = WORKSPACE_BYTES;
        let _ = lt::cublasLtMatmulPreferenceSetAttribute(
            preference,
            attribute,
            ptr::from_ref(&bytes).cast(),
            size_of::<usize>(),
        );
        let status = lt::cublasLtMatmulAlgoGetHeuristic(
            handle.get(),
            call.operation,
            call.weight,
            call.x,
            call.out,
            call.out,
            preference,
            wanted as i32,
            results.as_mut_ptr().cast(),
            &mut found,
        );
        let _ = lt::cublasLtMatmulPreferenceDestroy(preference);
        if status != lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
            return Vec::new();
        }
        let results = results.into_iter().take(found as usize).map(|r| r.assume_init());
        results.filter(|r| r.state == lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS).collect()
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // The workspace is freed next.
        let _ = self.context.synchronize();
    }
}

/// Copies of the weights of a product. Launches that take one after the other find each in memory, because the second-level cache does not
/// hold all. None where it does not hold the weights alone, or where memory is short.
#[derive(Default)]
struct Copies {
    memory: Option<Memory>,
    count: usize,
}

impl Copies {
    /// At most `most` of them, one for each launch.
    fn of(product: &Product, most: usize, context: &Arc<Context>) -> Result<Copies> {
        let stride = copy_stride(product);
        let count = most.min(COPIES_BYTES / stride);
        if count == 0 {
            return Ok(Copies::default());
        }
        let memory = match Memory::new(context, count * stride, "copies of weights", "memory_utilization") {
            Ok(memory) => memory,
            Err(Error::OutOfMemory { .. }) => return Ok(Copies::default()),
            Err(error) => return Err(error),
        };
        let copies = Copies { memory: Some(memory), count };
        for &to in &copies.addresses(product)[1..] {
            // SAFETY: that many bytes lie at the weights, as `launch` says, and at each copy. Dropping them waits for the stream.
            let code =
                unsafe { cuMemcpyDtoDAsync_v2(to, product.params.weight, weight_bytes(product), context.stream()) };
            driver::check("cuMemcpyDtoDAsync", code)?;
        }
        Ok(copies)
    }

    /// Where the weights and their copies lie.
    fn addresses(&self, product: &Product) -> Vec<Address> {
        let stride = copy_stride(product) as Address;
        let copies = self.memory.iter().flat_map(|memory| (0..).map(|copy| memory.address() + copy * stride));
        iter::once(product.params.weight).chain(copies.take(self.count)).collect()
    }
}

/// Both number types have two bytes.
fn weight_bytes(product: &Product) -> usize {
    2 * product.params.n as usize * product.params.k as usize
}

/// Bytes from one copy to the next. Copies are aligned as what is allocated: the library asks for no more than 256 bytes.
fn copy_stride(product: &Product) -> usize {
    weight_bytes(product).next_multiple_of(256)
}

/// Descriptors of one product.
struct Call {
    operation: lt::cublasLtMatmulDesc_t,
    weight: lt::cublasLtMatrixLayout_t,
    x: lt::cublasLtMatrixLayout_t,
    out: lt::cublasLtMatrixLayout_t,
}

impl Call {
    fn new(dtype: lt::cudaDataType, product: &Product) -> Result<Call> {
        let p = &product.params;
        let null = ptr::null_mut();
        let mut call = Call { operation: null as _, weight: null as _, x: null as _, out: null as _ };
        // SAFETY: all out-pointers are fields of a live local, which destroys what was made if a later call fails.
        unsafe {
            let compute = lt::cublasComputeType_t::CUBLAS_COMPUTE_32F;
            let scale = lt::cudaDataType::CUDA_R_32F;
            check("cublasLtMatmulDescCreate", lt::cublasLtMatmulDescCreate(&mut call.operation, compute, scale))?;
            let set = |attribute, value: *const c_void, bytes| {
                let status = lt::cublasLtMatmulDescSetAttribute(call.operation, attribute, value, bytes);
                check("cublasLtMatmulDescSetAttribute", status)
            };
            use lt::cublasLtMatmulDescAttributes_t as Attribute;
            /// CUBLAS_OP_T
            const TRANSPOSED: i32 = 1;
            let transposed = TRANSPOSED;
            set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, ptr::from_ref(&transposed).cast(), size_of_val(&transposed))?;
            if let Some(bias) = product.bias {
                let epilogue = lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
                set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, ptr::from_ref(&epilogue).cast(), size_of_val(&epilogue))?;
                set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, ptr::from_ref(&bias).cast(), size_of_val(&bias))?;
            }
            let layout = |to: &mut lt::cublasLtMatrixLayout_t, rows: i32, cols: i32, stride: i32| {
                let status = lt::cublasLtMatrixLayoutCreate(to, dtype, rows as u64, cols as u64, i64::from(stride));
                check("cublasLtMatrixLayoutCreate", status)
            };
            layout(&mut call.weight, p.k, p.n, p.k)?;
            layout(&mut call.x, p.k, p.m, p.x_stride)?;
            layout(&mut call.out, p.n, p.m, p.out_stride)?;
        }
        Ok(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: each was created once, or is null.
        unsafe {
            if !self.operation.is_null() {
                let _ = lt::cublasLtMatmulDescDestroy(self.operation);
            }
            for layout in [self.weight, self.x, self.out] {
                if !layout.is_null() {
                    let _ = lt::cublasLtMatrixLayoutDestroy(layout);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn token_counts_share_a_plan_with_their_neighbours() {
        let cases =
            [(1, 8), (17, 24), (64, 64), (65, 72), (100, 104), (256, 256), (257, 288), (1000, 1024), (16384, 16384)];
        for (m, expected) in cases {
            assert_eq!(bucket(m), expected, "{m} tokens");
        }
    }
}
