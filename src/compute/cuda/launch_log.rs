//! Which kernels were launched? Tests ask for it, because the routes of an op give results that are nearly the same.

use os::lock::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The names of the kernels that were launched on a stream, in order, once recording is on.
#[derive(Default)]
pub struct LaunchLog {
    is_wanted: AtomicBool,
    names: Mutex<Vec<String>>,
}

impl LaunchLog {
    /// Records a launch. While recording is off this is one load and one branch.
    pub fn note(&self, name: &str) {
        if self.is_wanted.load(Relaxed) {
            self.names.lock().push(name.to_owned());
        }
    }

    /// The launches since the last call. The first call finds none, and asks for those that follow.
    pub fn take(&self) -> Vec<String> {
        self.is_wanted.store(true, Relaxed);
        std::mem::take(&mut self.names.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::LaunchLog;

    #[test]
    fn launches_are_noted_once_they_are_asked_for() {
        let log = LaunchLog::default();
        log.note("before");
        assert!(log.take().is_empty());
        log.note("first");
        log.note("second");
        assert_eq!(log.take(), ["first", "second"]);
        assert!(log.take().is_empty());
    }
}
