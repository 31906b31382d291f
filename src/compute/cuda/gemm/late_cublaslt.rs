//! cuBLASLt, brought into the process by a thread of its own.
//!
//! Finding the library, its handle and its first answer take 0.2 s. An engine loads its weights meanwhile, for which it needs no product.

use crate::cuda::driver::Context;
use crate::cuda::gemm::cublaslt::Blas;
use crate::cuda::gemm::cublaslt_handle::BlasHandle;
use base::error::Result;
use base::log::{Level, log};
use formats::DType;
use os::lock::Mutex;
use os::thread::{DEEP_STACK_BYTES, spawn};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// What opens the library.
enum Arrival {
    /// A thread, which sends what it has found before it ends.
    Thread(JoinHandle<()>, Receiver<Found>),
    /// Whoever waits for it, since the system refused a thread.
    Waiting,
}

/// `None` where the library is missing.
type Found = Result<Option<BlasHandle>>;

/// cuBLASLt for one engine, as soon as it has come.
pub struct LateBlas {
    context: Arc<Context>,
    dtype: DType,
    /// `None` once it was waited for.
    arrival: Mutex<Option<Arrival>>,
    blas: OnceLock<Option<Blas>>,
}

impl LateBlas {
    /// Begins to open the library.
    pub fn begin(context: &Arc<Context>, dtype: DType) -> LateBlas {
        let (found, receiver) = channel();
        let of_thread = context.clone();
        let started = spawn("blas", DEEP_STACK_BYTES, move || {
            // The receiver lives until the thread has ended.
            let _ = found.send(Blas::find(&of_thread, dtype));
        });
        let arrival = started.map_or(Arrival::Waiting, |thread| Arrival::Thread(thread, receiver));
        LateBlas { context: context.clone(), dtype, arrival: Mutex::new(Some(arrival)), blas: OnceLock::new() }
    }

    /// Waits until it is here, or known to be missing.
    ///
    /// # Errors
    ///
    /// What opening it failed with, once; then it counts as missing.
    pub fn wait(&self) -> Result<()> {
        let Some(arrival) = self.arrival.lock().take() else { return Ok(()) };
        let found = match arrival {
            Arrival::Thread(thread, found) => {
                // If it panicked, the log says so, and nothing was sent: the library counts as missing.
                let _ = thread.join();
                found.recv().unwrap_or(Ok(None))
            }
            Arrival::Waiting => Blas::find(&self.context, self.dtype),
        };
        let blas = found?.map(|handle| Blas::new(handle, &self.context, self.dtype)).transpose()?;
        let _ = self.blas.set(blas);
        Ok(())
    }

    /// `None` where it is missing.
    pub fn get(&self) -> Option<&Blas> {
        self.wait_or_log();
        self.blas.get().and_then(Option::as_ref)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self) -> Option<&mut Blas> {
        self.wait_or_log();
        self.blas.get_mut().and_then(Option::as_mut)
    }

    fn wait_or_log(&self) {
        if let Err(error) = self.wait() {
            log(Level::Warn, format_args!("matrix products take the slower path of our own: {error}"));
        }
    }
}

impl Drop for LateBlas {
    fn drop(&mut self) {
        // No thread outlives the engine.
        let arrival = self.arrival.lock().take();
        if let Some(Arrival::Thread(thread, _)) = arrival {
            let _ = thread.join();
        }
    }
}
