//! The time of now in the machine's time zone, as Python writes it.

use chrono::{DateTime, Local, TimeZone};
use std::fmt::Write;

/// The time of now by a `strftime` format; `None` when the format has a directive that does not exist.
///
/// As for Python's time without a zone, `%z` and `%Z` are empty; `%f` is the microseconds.
pub(super) fn format_now(format: &str) -> Option<String> {
    format_time(format, &Local::now())
}

fn format_time<Z: TimeZone<Offset: std::fmt::Display>>(format: &str, time: &DateTime<Z>) -> Option<String> {
    let mut text = String::new();
    write!(text, "{}", time.format(&own_directives(format, time.timestamp_subsec_micros()))).ok()?;
    Some(text)
}

/// The directives that Python answers in its own way, written out.
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
            None => written.push_str("%%"),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::Utc;

    #[test]
    fn a_time_is_written_as_python_writes_it() {
        let time = Utc.timestamp_opt(1_700_049_600, 42_000).single().expect("a time that exists");
        let cases = [
            ("date of Llama templates", "%d %b %Y", Some("15 Nov 2023")),
            ("without leading zeros", "%-d.%-m.", Some("15.11.")),
            ("clock", "%H:%M:%S %p %I", Some("12:00:00 PM 12")),
            ("a percent sign", "%% of %B", Some("% of November")),
            ("a percent sign at the end", "100%", Some("100%")),
            ("microseconds and no zone", "%f%z%Z.", Some("000042.")),
            ("text in other scripts", "年%Y", Some("年2023")),
            ("nothing", "", Some("")),
            ("no such directive", "%Q", None),
        ];
        for (name, format, wanted) in cases {
            assert_eq!(format_time(format, &time).as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn now_is_in_this_century() {
        assert!(format_now("%Y").is_some_and(|year| year.starts_with("20")));
    }
}
