//! The clock of the machine in its time zone, which only the C library knows.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest text that [`format_now`] makes, in bytes.
const MAX_LEN: usize = 1024;

/// The time of now as C's `strftime` writes it, or `None` when that is empty or longer than a kilobyte.
///
/// As for Python's time without a zone, `%z` and `%Z` are empty; `%f` is the microseconds.
pub fn format_now(format: &str) -> Option<String> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    format_time(format, libc::time_t::try_from(since_epoch.as_secs()).ok()?, since_epoch.subsec_micros())
}

fn format_time(format: &str, seconds: libc::time_t, microseconds: u32) -> Option<String> {
    let format = CString::new(own_directives(format, microseconds)).ok()?;
    let mut time = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are to live local variables.
    let filled = unsafe { libc::localtime_r(&seconds, time.as_mut_ptr()) };
    if filled.is_null() {
        return None;
    }
    let mut text = vec![0_u8; MAX_LEN];
    // SAFETY: `localtime_r` filled `time`, as its answer was not null; the format ends with a NUL; `strftime` writes at
    // most the length that it is given, which is that of `text`.
    let len = unsafe { libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), time.as_ptr()) };
    text.truncate(len);
    // An empty format is the only one that rightly gives nothing.
    if len == 0 && !format.is_empty() {
        return None;
    }
    String::from_utf8(text).ok()
}

/// The directives that Python answers by itself, written out.
fn own_directives(format: &str, microseconds: u32) -> String {
    let mut written = String::with_capacity(format.len());
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            written.push(character);
            continue;
        }
        match characters.next() {
            Some('f') => written.push_str(&format!("{microseconds:06}")),
            Some('z' | 'Z') => {}
            Some(directive) => written.extend(['%', directive]),
            None => written.push('%'),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_c_writes_it() {
        // Noon UTC in the middle of a month: the same month and year in every time zone.
        let noon = 1_700_049_600;
        let cases = [
            ("month and year", "%b %Y", Some("Nov 2023")),
            ("a percent sign", "%% of %B", Some("% of November")),
            ("microseconds and no zone", "%f%z%Z.", Some("000042.")),
            ("text in other scripts", "年%Y", Some("年2023")),
            ("nothing", "", Some("")),
            ("a NUL", "a\0b", None),
        ];
        for (name, format, wanted) in cases {
            assert_eq!(format_time(format, noon, 42).as_deref(), wanted, "{name}");
        }
        assert_eq!(format_time(&"%B".repeat(200), noon, 0), None, "longer than the bound");
    }

    #[test]
    fn now_is_in_this_century() {
        assert!(format_now("%Y").is_some_and(|year| year.starts_with("20")));
    }
}
