//! Locks that may be waited for.
//!
//! They are the standard library's, which keep their state in themselves. `parking_lot` keeps the threads that wait in a table
//! of the whole process, whose own locks a forked child may find locked; it serves here for locks that nobody waits for.

use std::sync::{Condvar as StdCondvar, Mutex as StdMutex, PoisonError, TryLockError};
use std::time::Instant;

pub use std::sync::MutexGuard;

/// A lock that a panic leaves usable: what the panic left half done belongs to an engine that ends with it.
#[derive(Debug, Default)]
pub struct Mutex<T>(StdMutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(StdMutex::new(value))
    }

    /// Takes the lock unless it is taken.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition that goes with a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(StdCondvar);

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(StdCondvar::new())
    }

    /// Lets go of the lock, waits to be told, and takes the lock again. May return without having been told.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, until `deadline` at the latest; answers whether that has passed.
    pub fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Instant) -> (MutexGuard<'a, T>, bool) {
        let time = deadline.saturating_duration_since(Instant::now());
        let (guard, outcome) = self.0.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
        (guard, outcome.timed_out())
    }

    /// The same, without a limit if there is no deadline.
    pub fn wait_within<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> (MutexGuard<'a, T>, bool) {
        match deadline {
            None => (self.wait(guard), false),
            Some(deadline) => self.wait_until(guard, deadline),
        }
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}
