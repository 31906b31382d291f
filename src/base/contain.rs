//! Where a panic of another crate becomes an error.
//!
//! Some crates that read untrusted text panic on part of it. That is no bug of this library and must not end an engine:
//! [`contain`] turns such a panic into its message. A panic of our own code is a bug and is not to be hidden here.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of a panic's message that are kept.
const MESSAGE_BYTES: usize = 300;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is inside [`contain`]: the panic hook is silent then.
pub fn is_active() -> bool {
    DEPTH.try_with(Cell::get).unwrap_or(0) > 0
}

/// The result of `call`, or the first line of the message of the panic that stopped it.
///
/// What `call` changes must not be used after a panic.
pub fn contain<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let inside = Inside;
    let outcome = catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let message = message(payload.as_ref()).to_owned();
        dispose(payload);
        message
    });
    drop(inside);
    outcome
}

/// The first line of a panic's message, at most [`MESSAGE_BYTES`] of it.
pub fn message(payload: &(dyn Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    let whole = owned.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    let line = whole.lines().next().unwrap_or_default();
    &line[..line.floor_char_boundary(MESSAGE_BYTES)]
}

/// Drops the payload of a panic, whose own drop may panic.
pub fn dispose(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_first_line() {
        assert_eq!(contain(|| 7), Ok(7));
        assert_eq!(contain(|| -> u8 { panic!("seven\nstack backtrace:\n  0: here") }), Err("seven".to_owned()));
        assert!(!is_active());
        let long = contain(|| -> u8 { panic!("{}", "é".repeat(1000)) }).expect_err("a panic");
        assert_eq!(long.len(), 300);
    }
}
