//! What every call goes through: panics stop here, errors become a status and a message, the log is handed over.
#![allow(unsafe_code)]

use super::logging;
use super::refusal::Refusal;
use super::status::nvllm_status_code::{self, *};
use super::status::{nvllm_error, nvllm_status};
use base::contain;
use base::log::{self, Level};
use os::{process, thread};
use std::cell::Cell;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use text::structure;

pub(super) use injected::panic_inside;

thread_local! {
    /// Calls of the library that this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs a call whose answer is a status.
///
/// `entry` is the C name of the function. `error`, where the caller gave one, is written in any case.
pub(super) fn guard(
    entry: &'static str,
    error: Option<&mut MaybeUninit<nvllm_error>>,
    call: impl FnOnce() -> Result<nvllm_status_code, Refusal>,
) -> nvllm_status {
    let (status, native_code, message) = match catch(entry, call) {
        Ok(Ok(status)) => (status, 0, String::new()),
        Ok(Err(refusal)) => (refusal.status(), refusal.native_code(), refusal.to_string()),
        Err(reason) => (NVLLM_ERR_PANIC, 0, format!("a bug in the library stopped {entry}: {reason}")),
    };
    if let Some(error) = error {
        error.write(nvllm_error { status: status as nvllm_status, native_code, message: cut(&message) });
    }
    logging::deliver();
    status as nvllm_status
}

/// Runs a call that has another answer, which is `fallback` when a panic stops it.
pub(super) fn guard_value<T>(entry: &'static str, fallback: T, call: impl FnOnce() -> T) -> T {
    let answer = catch(entry, call).unwrap_or(fallback);
    logging::deliver();
    answer
}

/// The answer of `call`, or the words of the panic that stopped it.
fn catch<T>(entry: &'static str, call: impl FnOnce() -> T) -> Result<T, String> {
    process();
    DEPTH.set(DEPTH.get() + 1);
    // What a panic leaves half done belongs to one engine, and `handle::Visit` poisons that engine as it unwinds.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        injected::panic_at(entry);
        call()
    }));
    let outcome = outcome.map_err(|payload| {
        let reason = contain::message(payload.as_ref()).to_owned();
        contain::dispose(payload);
        reason
    });
    DEPTH.set(DEPTH.get() - 1);
    outcome
}

/// The message as the caller's buffer holds it: NUL-terminated, zero to the end. One that is too long loses its middle, because what is wrong
/// stands at its end, after a name or a value of any length.
fn cut(message: &str) -> [c_char; 504] {
    const GAP: &str = " ... ";
    let mut buffer = [0; 504];
    let room = buffer.len() - 1;
    let (begin, gap, end) = match message.len() <= room {
        true => (message, "", ""),
        false => {
            let begin = message.floor_char_boundary(room / 3);
            let end = message.ceil_char_boundary(message.len() - (room - begin - GAP.len()));
            (&message[..begin], GAP, &message[end..])
        }
    };
    for (to, from) in buffer.iter_mut().zip(begin.bytes().chain(gap.bytes()).chain(end.bytes())) {
        // An inner NUL, which only a model file's text could bring, would hide the rest.
        *to = if from == 0 { b' ' as c_char } else { from as c_char };
    }
    buffer
}

/// The number of this process. The first call in a process prepares what the library shares in it: each function comes here
/// before it takes any lock.
pub(super) fn process() -> u32 {
    process::enter(|number| {
        log::begin_process(number);
        install_panic_hook();
    })
}

/// Sends panics inside our calls and on our threads to the log; all others go where they went before.
fn install_panic_hook() {
    // A fork has its parent's hook. Where the parent was about to install it, the fork does without: the lock may be held.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    structure::disarm_panic_hook();
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let our_thread = std::thread::current().name().is_some_and(|name| name.starts_with(thread::NAME_PREFIX));
        // The panic of another crate is an error of its input.
        if contain::is_active() {
            return;
        }
        if our_thread || DEPTH.try_with(Cell::get).unwrap_or(0) > 0 { log_panic(info) } else { previous(info) }
    }));
}

fn log_panic(info: &PanicHookInfo) {
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    log::log(Level::Error, format_args!("bug in the library at {place}: {}", contain::message(info.payload())));
}

/// A test asks for a panic by the environment variable NVLLM_TEST_PANIC: the entry point's name for one before the call,
/// with "/inside" for one after it has entered its engine.
#[cfg(feature = "test-hooks")]
mod injected {
    use std::cell::Cell;

    thread_local! {
        static ENTRY: Cell<&'static str> = const { Cell::new("") };
    }

    pub(crate) fn panic_at(entry: &'static str) {
        ENTRY.set(entry);
        panic_when_asked_for(entry);
    }

    pub(crate) fn panic_inside() {
        panic_when_asked_for(&format!("{}/inside", ENTRY.get()));
    }

    fn panic_when_asked_for(place: &str) {
        if std::env::var("NVLLM_TEST_PANIC").is_ok_and(|wanted| wanted == place) {
            panic!("asked for by NVLLM_TEST_PANIC");
        }
    }
}

#[cfg(not(feature = "test-hooks"))]
mod injected {
    pub(crate) fn panic_at(_entry: &'static str) {}
    pub(crate) fn panic_inside() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::Error;
    use std::ffi::CStr;

    fn answer(call: impl FnOnce() -> Result<nvllm_status_code, Refusal>) -> (nvllm_status, nvllm_error) {
        let mut error = MaybeUninit::uninit();
        let status = guard("nvllm_test", Some(&mut error), call);
        // SAFETY: `guard` writes the error in any case.
        (status, unsafe { error.assume_init() })
    }

    fn message(error: &nvllm_error) -> &str {
        // SAFETY: `cut` leaves a NUL at the end.
        unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_str().expect("messages are UTF-8")
    }

    #[test]
    fn success_clears_the_error() {
        let (status, error) = answer(|| Ok(NVLLM_OK));
        assert_eq!((status, error.status, message(&error)), (0, 0, ""));
    }

    #[test]
    fn a_panic_becomes_a_status_that_names_the_function_and_the_reason() {
        let (status, error) = answer(|| panic!("seven {}", "sins"));
        assert_eq!(status, NVLLM_ERR_PANIC as i32);
        assert_eq!(message(&error), "a bug in the library stopped nvllm_test: seven sins");
    }

    #[test]
    fn a_payload_that_panics_in_its_drop_is_contained() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("the payload too");
            }
        }
        let (status, error) = answer(|| std::panic::panic_any(Bomb));
        assert_eq!(status, NVLLM_ERR_PANIC as i32);
        assert_eq!(message(&error), "a bug in the library stopped nvllm_test: no message");
    }

    #[test]
    fn a_panic_leaves_the_thread_outside_of_all_calls() {
        let _ = answer(|| panic!("once"));
        assert_eq!(DEPTH.get(), 0);
        assert_eq!(guard_value("nvllm_test", 7, || panic!("twice")), 7);
        assert_eq!(DEPTH.get(), 0);
    }

    #[test]
    fn a_long_message_loses_its_middle_between_characters() {
        for characters in [245, 246, 247, 600, 100_000] {
            for (begin, end) in [("", ""), ("x", ""), ("", "y"), ("x", "y")] {
                let reason = format!("{begin}{}{end}", "é".repeat(characters));
                let whole = format!("tokenizer: {reason}");
                let (_, error) = answer(|| Err(Error::Tokenizer { reason }.into()));
                let cut = message(&error);
                if whole.len() <= 503 {
                    assert_eq!(cut, whole);
                    continue;
                }
                assert!((500..=503).contains(&cut.len()), "{} bytes", cut.len());
                let (first, last) = cut.split_once(" ... ").expect("a gap");
                assert!(whole.starts_with(first) && whole.ends_with(last) && first.len() > 160 && last.len() > 320);
            }
        }
    }

    #[test]
    fn native_codes_are_handed_on() {
        let device = Error::Device { call: "cuInit", code: 100 };
        assert_eq!(answer(|| Err(device.into())).1.native_code, 100);
        let missing = Error::Io { path: "/none".into(), source: std::io::Error::from_raw_os_error(2) };
        assert_eq!(answer(|| Err(missing.into())).1.native_code, 2);
    }
}
