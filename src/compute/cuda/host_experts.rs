//! See `ops/host_experts.rs` for the contract: rows and choices go to pinned memory, a host function computes, and `kernels/combine.cu` reads what it wrote.
//!
//! All is launched on the stream, the host function too, so that a graph records it and no thread of the engine waits. One set of pinned buffers serves
//! all layers: the stream computes one after the other. Invariant: a host function calls nothing of CUDA, and nothing unwinds out of it.

use super::combine::{self, Rows};
use super::device_batch::DeviceBatch;
use super::driver::{Context, Pinned};
use super::experts::Routes;
use super::kernels::Chaining;
use super::matrix::Vector;
use super::storage::Tensor;
use crate::cpu::{self, Activations, Choices, Cpu, Isa};
use crate::{CHOSEN_MAX, ExpertsShape, HostExpertWeights, SharedExpert};
use base::error::Result;
use formats::DType;
use half::{bf16, f16};
use os::lock::Mutex;
use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const WHAT: &str = "rows of experts in pinned memory";
const KNOB: &str = "max_batched_tokens";

/// How the host computes experts.
#[derive(Clone, Copy, Debug)]
pub struct HostThreads {
    /// Threads, that of the driver included.
    pub threads: usize,
    /// The instruction set of the processor.
    pub isa: Isa,
    /// What products do with activations.
    pub activations: Activations,
    /// Tokens of the largest batch.
    pub tokens: usize,
}

/// The host as it computes experts of one engine.
pub struct Host {
    cpu: Mutex<Cpu>,
    tokens: usize,
    dtype: DType,
    /// Numbers from row to row, and in a row.
    stride: usize,
    hidden: usize,
    /// What experts read. `[tokens, stride]`
    x: Pinned,
    /// What they give. `[tokens, stride]`
    out: Pinned,
    /// As [`CHOICES`] says.
    choices: Pinned,
    /// What each of these rows counts. `[tokens]`
    ones: Vector,
    /// Whether nothing is computed: the largest passes run once while an engine opens, and nobody reads what they give.
    is_idle: Arc<AtomicBool>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    has_panicked: AtomicBool,
}

/// Where the number of tokens begins in the pinned memory of choices, and the experts of slots behind it. Their weights follow.
const CHOICES: [usize; 2] = [0, 64];

impl Host {
    /// Memory for rows of `hidden` numbers.
    pub fn new(
        context: &Arc<Context>,
        HostThreads { threads, isa, activations, tokens }: HostThreads,
        (hidden, dtype): (usize, DType),
        is_idle: Arc<AtomicBool>,
    ) -> Result<Host> {
        let stride = hidden.next_multiple_of(8);
        let rows = || Pinned::zeroed(context, tokens * stride * dtype.bytes(), WHAT, KNOB);
        Ok(Host {
            cpu: Mutex::new(Cpu::open(threads, isa)?.with_activations(activations)),
            tokens,
            dtype,
            stride,
            hidden,
            x: rows()?,
            out: rows()?,
            choices: Pinned::zeroed(context, CHOICES[1] + 2 * Host::slot_bytes(tokens), WHAT, KNOB)?,
            ones: Vector::table(context, &vec![1.0; tokens])?,
            is_idle,
            panic: Mutex::new(None),
            has_panicked: AtomicBool::new(false),
        })
    }

    fn slot_bytes(tokens: usize) -> usize {
        4 * tokens * CHOSEN_MAX
    }

    /// Where the experts of slots and their weights begin.
    fn places(&self) -> [usize; 2] {
        [CHOICES[1], CHOICES[1] + Host::slot_bytes(self.tokens)]
    }

    /// Goes on with a panic of a host function.
    ///
    /// # Panics
    ///
    /// If one panicked.
    pub fn check(&self) {
        if self.has_panicked.load(Ordering::Acquire) {
            match self.panic.lock().take() {
                Some(panic) => resume_unwind(panic),
                None => panic!("the experts on the host panicked before"),
            }
        }
    }
}

/// The experts of a layer that the host computes.
pub struct HostExperts {
    context: Arc<Context>,
    /// Where host functions find it.
    job: Box<Job>,
}

struct Job {
    experts: cpu::HostExperts,
    chosen: usize,
    host: Arc<Host>,
}

impl HostExperts {
    /// Experts of `weights` on `host`.
    ///
    /// # Panics
    ///
    /// If their rows have another width than those of the layers before: all read one stream.
    pub fn new(context: &Arc<Context>, host: &Arc<Host>, weights: HostExpertWeights) -> Result<HostExperts> {
        let chosen = weights.router.chosen;
        let experts = cpu::HostExperts::new(&host.cpu.lock(), weights)?;
        assert_eq!(experts.shape().inputs, host.hidden);
        let job = Box::new(Job { experts, chosen, host: host.clone() });
        Ok(HostExperts { context: context.clone(), job })
    }

    /// As [`cpu::HostExperts::shape`].
    pub fn shape(&self) -> ExpertsShape {
        self.job.experts.shape()
    }

    /// Launches what brings rows to the host, computes them there, and brings them back.
    pub fn run(
        &self,
        combine: &combine::Kernels,
        (out, x): (&mut Tensor, &Tensor),
        shared: Option<SharedExpert<Tensor>>,
        routes: &Routes,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let host = &self.job.host;
        assert!(x.rows() <= host.tokens && x.storage.stride() == host.stride);
        if x.rows() == 0 {
            return Ok(());
        }
        device_batch.download_tokens(&host.choices, CHOICES[0])?;
        x.storage.download_for_host(x.rows(), host.dtype, &host.x)?;
        routes.download_for_host(&host.choices, host.places())?;
        let job = ptr::from_ref(&*self.job).cast_mut().cast::<c_void>();
        // SAFETY: the function takes a job, which lives until the stream has ended what was launched; graphs are dropped before layers.
        unsafe { self.context.launch_on_host(compute, job)? };
        let rows = Rows {
            at: host.out.address(),
            stride: host.stride,
            weights: host.ones.wide.address(),
            chosen: 1,
            some: None,
        };
        // What is launched behind a host function does not begin before it has ended.
        combine.add_up(Chaining::Strict, out, rows, shared)
    }
}

impl Drop for HostExperts {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
    }
}

/// Computes the experts of a [`Job`] on a thread of the driver.
///
/// # Safety
///
/// `job` is one that lives.
unsafe extern "C" fn compute(job: *mut c_void) {
    // SAFETY: the caller's promise; jobs are not changed.
    let job = unsafe { &*job.cast::<Job>() };
    let computed = catch_unwind(AssertUnwindSafe(|| job.compute()));
    if let Err(panic) = computed {
        job.host.panic.lock().get_or_insert(panic);
        job.host.has_panicked.store(true, Ordering::Release);
    }
}

impl Job {
    fn compute(&self) {
        let Job { experts, chosen, host } = self;
        if host.is_idle.load(Ordering::Relaxed) || host.has_panicked.load(Ordering::Relaxed) {
            return;
        }
        let [of_experts, of_weights] = host.places();
        // SAFETY: a host function of the stream, behind the copies that write these bytes and before the next ones; the kernel before has read `out`.
        let (tokens, choices, x, out) = unsafe {
            let tokens = host.choices.part(CHOICES[0]..CHOICES[0] + 4).as_chunks::<4>().0[0];
            let tokens = (u32::from_le_bytes(tokens) as usize).min(host.tokens);
            let bytes = 4 * tokens * chosen;
            let choices = [of_experts, of_weights].map(|first| host.choices.part(first..first + bytes));
            let rows = 0..tokens * host.stride * host.dtype.bytes();
            (tokens, choices, host.x.part(rows.clone()), host.out.part_mut(rows))
        };
        let choices = Choices { experts: bytemuck::cast_slice(choices[0]), weights: bytemuck::cast_slice(choices[1]) };
        let (stride, hidden) = (2 * host.stride, host.hidden);
        let mut read = |rows: Range<usize>, to: &mut [f32]| {
            let x = &x[rows.start * stride..rows.end * stride];
            to.chunks_exact_mut(hidden).zip(x.chunks_exact(stride)).for_each(|(to, row)| widen(to, row, host.dtype));
        };
        let mut write = |rows: Range<usize>, sums: &[f32]| {
            let out = &mut out[rows.start * stride..rows.end * stride];
            out.chunks_exact_mut(stride)
                .zip(sums.chunks_exact(hidden))
                .for_each(|(to, row)| round(to, row, host.dtype));
        };
        host.cpu.lock().compute_host_experts(experts, tokens, choices, &mut read, &mut write);
    }
}

/// Numbers of two bytes as f32.
fn widen(to: &mut [f32], from: &[u8], dtype: DType) {
    let pairs = to.iter_mut().zip(from.as_chunks::<2>().0);
    match dtype {
        DType::Bf16 => pairs.for_each(|(to, from)| *to = bf16::from_le_bytes(*from).to_f32()),
        DType::F16 | DType::F32 => pairs.for_each(|(to, from)| *to = f16::from_le_bytes(*from).to_f32()),
    }
}

/// The same back.
fn round(to: &mut [u8], from: &[f32], dtype: DType) {
    let pairs = to.as_chunks_mut::<2>().0.iter_mut().zip(from);
    match dtype {
        DType::Bf16 => pairs.for_each(|(to, from)| *to = bf16::from_f32(*from).to_le_bytes()),
        DType::F16 | DType::F32 => pairs.for_each(|(to, from)| *to = f16::from_f32(*from).to_le_bytes()),
    }
}
