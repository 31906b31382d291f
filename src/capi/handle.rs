//! What stands behind an `nvllm_engine` pointer, and who may enter.
//!
//! The pointer is one reference count of an `Arc`; every call holds another while it runs. So `nvllm_engine_free` inside a
//! callback, or while another thread steps, is safe: the engine goes when the last call that is inside it returns. It ends the calls
//! that wait for work, and so does whatever makes the engine unusable.
#![allow(unsafe_code)]

use super::engine::nvllm_engine;
use super::guard;
use super::refusal::{Refusal, status_of};
use super::status::nvllm_status_code::{self, *};
use super::stepping::{Shown, nvllm_output_fn};
use base::error::Error;
use engine::follower::FollowerEngine;
use engine::{Engine, EngineHandle, Opened, Waited};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Instant;

/// An engine, and the state of its entrance.
pub(super) struct Handle {
    handle: Arc<EngineHandle>,
    /// Locked by the [one] call that is inside; never waited for.
    work: Mutex<Work>,
    /// 0, or the status that all further calls answer.
    poison: AtomicI32,
    /// Set by `nvllm_engine_free`: nothing of the host's may be called any more.
    freed: AtomicBool,
    /// The process that opened the engine, by its number. The engine's threads do not exist in a fork.
    process: u32,
    /// The same, by its id.
    process_id: u32,
}

/// What [one] functions work on.
pub(super) struct Work {
    pub(super) opened: Opened,
    /// Where outputs are pushed to; `None` leaves them for polling.
    pub(super) push: Option<Push>,
    /// Memory of the output that was polled last.
    pub(super) polled: Shown,
}

impl Work {
    /// The engine that requests are for.
    ///
    /// # Errors
    ///
    /// Where another process takes them.
    pub(super) fn engine(&mut self) -> Result<&mut Engine, Refusal> {
        match &mut self.opened {
            Opened::Leader(engine) => Ok(engine),
            Opened::Follower(follower) => Err(refusal_of_requests(follower)),
        }
    }
}

fn refusal_of_requests(follower: &FollowerEngine) -> Refusal {
    let refused = follower.handle().check_leads().expect_err("a follower takes no requests");
    Refusal::Engine(refused)
}

/// The host's output callback.
#[derive(Clone, Copy)]
pub(super) struct Push {
    pub(super) call: unsafe extern "C" fn(*const super::stepping::nvllm_output, *mut c_void) -> i32,
    pub(super) user_data: HostPointer,
}

impl Push {
    /// The callback, where there is one.
    pub(super) fn new(call: nvllm_output_fn, user_data: *mut c_void) -> Option<Push> {
        call.map(|call| Push { call, user_data: HostPointer(user_data) })
    }
}

/// A `user_data` pointer: the library hands it back and never looks behind it.
#[derive(Clone, Copy)]
pub(super) struct HostPointer(pub(super) *mut c_void);

// SAFETY: the library never reads behind it. The header says on which threads callbacks run, so what stands behind it is the
// host's to protect.
unsafe impl Send for HostPointer {}

impl Handle {
    /// The entrance of a new engine.
    pub(super) fn new(opened: Opened) -> Handle {
        let handle = match &opened {
            Opened::Leader(engine) => engine.handle(),
            Opened::Follower(follower) => follower.handle(),
        };
        Handle {
            handle: Arc::clone(handle),
            work: Mutex::new(Work { opened, push: None, polled: Shown::default() }),
            poison: AtomicI32::new(0),
            freed: AtomicBool::new(false),
            process: guard::process(),
            process_id: std::process::id(),
        }
    }

    /// The side that [any] functions use.
    pub(super) fn handle(&self) -> &EngineHandle {
        &self.handle
    }

    /// Runs a [one] call, or answers that another one is inside. A device failure, a lost pass or a lost process poisons the engine.
    pub(super) fn work<T>(&self, call: impl FnOnce(&mut Work) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut work = self.work.try_lock().ok_or(Refusal::Busy)?;
        let answer = call(&mut work);
        if let Err(Refusal::Engine(error)) = &answer
            && matches!(error, Error::Device { .. } | Error::PassLost { .. } | Error::RankLost | Error::Peer { .. })
        {
            self.poison(status_of(error));
        }
        answer
    }

    /// Whether the host has freed the engine while a call was inside it.
    pub(super) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// Waits until there is something to do. [`NVLLM_TIMEOUT`] if `deadline` comes first.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<nvllm_status_code, Refusal> {
        match self.handle.wait(deadline) {
            Ok(Waited::Work) => Ok(NVLLM_OK),
            Ok(Waited::InVain) => Ok(NVLLM_TIMEOUT),
            Ok(Waited::Closed) => Ok(NVLLM_CLOSED),
            // Waits end when the engine is poisoned or freed.
            Ok(Waited::Over) => Err(self.check().err().unwrap_or(Refusal::Freed)),
            Err(lost) => {
                self.poison(status_of(&lost));
                Err(lost.into())
            }
        }
    }

    fn poison(&self, status: nvllm_status_code) {
        self.poison.store(status as i32, Ordering::Release);
        self.handle.end_waits();
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.process != guard::process() {
            return Err(Refusal::Forked { opened_in: self.process_id, here: std::process::id() });
        }
        match self.poison.load(Ordering::Acquire) {
            0 => Ok(()),
            poison if poison == NVLLM_ERR_DEVICE as i32 => Err(Refusal::Poisoned(NVLLM_ERR_DEVICE)),
            poison if poison == NVLLM_ERR_PEER as i32 => Err(Refusal::Poisoned(NVLLM_ERR_PEER)),
            _ => Err(Refusal::Poisoned(NVLLM_ERR_PANIC)),
        }
    }
}

/// A call inside an engine. A panic that unwinds through it poisons the engine.
pub(super) struct Visit {
    engine: Arc<nvllm_engine>,
    unwinding_before: bool,
}

/// Enters an engine, if it may be entered.
///
/// # Safety
///
/// `engine` is NULL or comes from [`into_pointer`] and was not given to [`release`].
pub(super) unsafe fn visit(engine: *const nvllm_engine) -> Result<Visit, Refusal> {
    if engine.is_null() {
        return Err(Refusal::Null("engine"));
    }
    // SAFETY: the pointer holds a count, as promised above; the new one is owned by the `Arc` made here.
    let engine = unsafe {
        Arc::increment_strong_count(engine);
        Arc::from_raw(engine)
    };
    engine.0.check()?;
    let visit = Visit { engine, unwinding_before: std::thread::panicking() };
    guard::panic_inside();
    Ok(visit)
}

/// The pointer that the host will hold.
pub(super) fn into_pointer(handle: Handle) -> *mut nvllm_engine {
    Arc::into_raw(Arc::new(nvllm_engine(handle))).cast_mut()
}

/// Gives the host's count back. In a fork the engine is left as it is: its threads are not there to be joined.
///
/// # Safety
///
/// `engine` comes from [`into_pointer`], and the host does not use it again.
pub(super) unsafe fn release(engine: *mut nvllm_engine) {
    // SAFETY: the pointer holds a count, which the `Arc` takes over.
    let engine = unsafe { Arc::from_raw(engine.cast_const()) };
    if engine.0.process != guard::process() {
        std::mem::forget(engine);
        return;
    }
    engine.0.freed.store(true, Ordering::Release);
    engine.0.handle.end_waits();
}

impl Deref for Visit {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.engine.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding_before {
            self.poison(NVLLM_ERR_PANIC);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::requests::{nvllm_add_request_tokens, nvllm_cancel};
    use super::super::stats::{nvllm_get_stats, nvllm_stats};
    use super::super::stepping::{nvllm_is_finished, nvllm_output, nvllm_poll_output, nvllm_step, nvllm_wait};
    use super::*;
    use base::error::Result as EngineResult;
    use compute::batch::{Batch, BatchLimits, BlockId, Sampled};
    use compute::{KvFormat, KvShape, KvValues};
    use engine::EngineLimits;
    use engine::options::PrefixCache;
    use formats::DType;
    use runner::{Device, Loaded, ModelInfo, Runner, StateInfo};
    use std::mem::MaybeUninit;
    use std::ptr::{null, null_mut};
    use std::time::Duration;

    /// A runner that cannot compute a pass.
    enum Broken {
        Device,
        Memory,
        Bug,
    }

    impl Runner for Broken {
        fn submit(&mut self, _batch: &Batch) -> EngineResult<()> {
            match self {
                Broken::Memory => Err(Error::OutOfMemory {
                    what: "adjustments and masks",
                    bytes: 1 << 20,
                    knob: "memory_utilization",
                }),
                Broken::Device | Broken::Bug => Ok(()),
            }
        }

        fn collect(&mut self, _deadline: Option<Instant>) -> EngineResult<Option<Sampled<'_>>> {
            match self {
                Broken::Device => Err(Error::Device { call: "cuLaunchKernel", code: 719 }),
                Broken::Memory => unreachable!("no pass was submitted"),
                Broken::Bug => panic!("a bug of the runner"),
            }
        }

        fn depth(&self) -> usize {
            1
        }

        fn stages(&self) -> usize {
            1
        }

        fn pass_time(&self) -> Duration {
            Duration::ZERO
        }

        fn read_blocks(&mut self, _: &[BlockId], _: &mut [u8]) -> EngineResult<()> {
            Ok(())
        }

        fn write_blocks(&mut self, _: &[BlockId], _: &[u8]) -> EngineResult<()> {
            Ok(())
        }
    }

    fn engine_over(runner: Broken) -> *mut nvllm_engine {
        let info = ModelInfo {
            host_experts: Default::default(),
            device: Device::Cpu,
            vocab_size: 8,
            num_layers: 1,
            hidden_size: 1,
            has_head: true,
            bos_token: None,
            eos_tokens: Vec::new(),
            num_parameters: 0,
            weight_bytes: 0,
            kv_cache_bytes: 0,
            num_kv_blocks: 4,
            gpu_bytes: 0,
            limits: BatchLimits { tokens: 8, rows: 2, model_len: 16, block_size: 4, ..BatchLimits::NONE },
            states: StateInfo::default(),
            num_ranks: 1,
            process: 0,
            kv_layout: KvShape {
                kv_heads: 1,
                head_dim: 1,
                values: KvValues::Stored,
                block_size: 4,
                format: KvFormat::Plain(DType::F32),
            }
            .layers(1),
            window: None,
            windowed: None,
            pooled: Default::default(),
            pooled_width: 1,
            fingerprint: 0,
            parts: [(None, 0); 4],
        };
        let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::Off, seed: 1 };
        let engine = Engine::with_runner(Loaded { runner: Box::new(runner), info }, limits);
        into_pointer(Handle::new(Opened::Leader(Box::new(engine))))
    }

    /// What each call of the C API answers to an engine whose pass was lost.
    fn statuses_after_a_lost_pass(runner: Broken) -> [i32; 7] {
        let engine = engine_over(runner);
        let mut output = MaybeUninit::<nvllm_output>::zeroed();
        let mut stats = MaybeUninit::<nvllm_stats>::zeroed();
        // SAFETY: the engine is live until `release`; zero is a value of both structs, and their sizes are set.
        unsafe {
            (*output.as_mut_ptr()).struct_size = size_of::<nvllm_output>();
            (*stats.as_mut_ptr()).struct_size = size_of::<nvllm_stats>();
            let add = || nvllm_add_request_tokens(engine, [1, 2].as_ptr(), 2, null(), null_mut(), None);
            assert_eq!(add(), NVLLM_OK as i32);
            let statuses = [
                nvllm_step(engine, 0, null_mut(), None),
                nvllm_step(engine, 0, null_mut(), None),
                add(),
                nvllm_poll_output(engine, output.as_mut_ptr(), None),
                nvllm_cancel(engine, 1),
                nvllm_wait(engine, u64::MAX, None),
                nvllm_get_stats(engine, stats.as_mut_ptr(), None),
            ];
            assert_eq!(nvllm_is_finished(engine), 1, "a loop over it ends");
            release(engine);
            statuses
        }
    }

    #[test]
    fn a_device_failure_poisons_the_engine() {
        assert_eq!(statuses_after_a_lost_pass(Broken::Device), [NVLLM_ERR_DEVICE as i32; 7]);
    }

    #[test]
    fn a_pass_that_cannot_be_submitted_poisons_the_engine() {
        assert_eq!(statuses_after_a_lost_pass(Broken::Memory), [NVLLM_ERR_DEVICE as i32; 7]);
    }

    #[test]
    fn a_panic_poisons_the_engine() {
        assert_eq!(statuses_after_a_lost_pass(Broken::Bug), [NVLLM_ERR_PANIC as i32; 7]);
    }

    #[test]
    fn an_engine_lives_until_the_last_call_inside_it_returns() {
        let pointer = engine_over(Broken::Device);
        // SAFETY: the pointer is live until `release`; after it only the visit is used.
        let inside = unsafe { visit(pointer) }.expect("it may be entered");
        // SAFETY: as above.
        unsafe { release(pointer) };
        assert!(inside.is_freed());
        assert!(inside.handle().is_finished(), "the memory is still there");
        assert_eq!(Arc::strong_count(&inside.engine), 1);
    }
}
