//! What stands behind an `nvllm_engine` pointer, and who may enter.
//!
//! The pointer is one reference count of an `Arc`; every call holds another while it runs. So `nvllm_engine_free` inside a
//! callback, or while another thread steps, is safe: the engine goes when the last call that is inside it returns.
#![allow(unsafe_code)]

use super::engine::nvllm_engine;
use super::guard;
use super::refusal::{Refusal, status_of};
use super::status::nvllm_status_code::{self, *};
use super::stepping::{Shown, nvllm_output_fn};
use crate::engine::{Engine, Front};
use crate::error::Error;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// An engine, and the state of its entrance.
pub(super) struct Handle {
    front: Arc<Front>,
    /// Locked by the [one] call that is inside; never waited for.
    work: Mutex<Work>,
    /// 0, or the status that all further calls answer.
    poison: AtomicI32,
    /// Set by `nvllm_engine_free`: nothing of the host's may be called any more.
    freed: AtomicBool,
    /// The process that opened the engine. Its threads do not exist in a fork.
    opened_in: u32,
}

/// What [one] functions work on.
pub(super) struct Work {
    pub(super) engine: Engine,
    /// Where outputs are pushed to; `None` leaves them for polling.
    pub(super) push: Option<Push>,
    /// Memory of the output that was polled last.
    pub(super) polled: Shown,
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
    pub(super) fn new(engine: Engine) -> Handle {
        Handle {
            front: Arc::clone(engine.front()),
            work: Mutex::new(Work { engine, push: None, polled: Shown::default() }),
            poison: AtomicI32::new(0),
            freed: AtomicBool::new(false),
            opened_in: std::process::id(),
        }
    }

    /// The side that [any] functions use.
    pub(super) fn front(&self) -> &Front {
        &self.front
    }

    /// Runs a [one] call, or answers that another one is inside. A device failure poisons the engine.
    pub(super) fn work<T>(&self, call: impl FnOnce(&mut Work) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut work = self.work.try_lock().ok_or(Refusal::Busy)?;
        let answer = call(&mut work);
        if let Err(Refusal::Engine(error @ Error::Device { .. })) = &answer {
            self.poison(status_of(error));
        }
        answer
    }

    /// Whether the host has freed the engine while a call was inside it.
    pub(super) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    fn poison(&self, status: nvllm_status_code) {
        self.poison.store(status as i32, Ordering::Release);
    }

    fn check(&self) -> Result<(), Refusal> {
        let here = std::process::id();
        if here != self.opened_in {
            return Err(Refusal::Forked { opened_in: self.opened_in, here });
        }
        match self.poison.load(Ordering::Acquire) {
            0 => Ok(()),
            poison if poison == NVLLM_ERR_DEVICE as i32 => Err(Refusal::Poisoned(NVLLM_ERR_DEVICE)),
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
    if engine.0.opened_in != std::process::id() {
        std::mem::forget(engine);
        return;
    }
    engine.0.freed.store(true, Ordering::Release);
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
