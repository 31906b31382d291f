//! Python's `str` and `repr` of template values, where minijinja's differ: floats, and strings inside of lists.

use minijinja::Value;
use minijinja::value::{Tuple, ValueKind};
use std::fmt::Write;

/// `str(value)`, or `None` where minijinja prints the same.
pub(super) fn python_str(value: &Value) -> Option<String> {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => f64::try_from(value.clone()).ok().map(float_repr),
        ValueKind::Seq | ValueKind::Map => Some(repr(value)),
        ValueKind::Iterable if value.len().is_some() => Some(repr(value)),
        _ => None,
    }
}

/// A float as Python's `repr` has it: the shortest digits that read back as the same number, an exponent from 1e16 on and
/// below 1e-4.
pub(super) fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let mut text = number.to_string();
        if !text.contains('.') {
            text.push_str(".0");
        }
        text
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => string_repr(value.as_str().unwrap_or_default()),
        ValueKind::Map => {
            let keys = value.try_iter().into_iter().flatten();
            let entries =
                keys.map(|key| format!("{}: {}", repr(&key), repr(&value.get_item(&key).unwrap_or_default())));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<String> = value.try_iter().into_iter().flatten().map(|item| repr(&item)).collect();
            let tuple = value.downcast_object_ref::<Tuple>().is_some();
            match (tuple, items.as_slice()) {
                (true, [only]) => format!("({only},)"),
                (true, items) => format!("({})", items.join(", ")),
                (false, items) => format!("[{}]", items.join(", ")),
            }
        }
        _ => python_str(value).unwrap_or_else(|| value.to_string()),
    }
}

fn string_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if character == quote => out.extend(['\\', quote]),
            _ if is_printable(character) => out.push(character),
            _ => {
                let code = u32::from(character);
                // Writing to a string cannot fail.
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
    out
}

/// Whether a character shows: no control, format, private or unassigned one, no space but the plain one.
fn is_printable(character: char) -> bool {
    // Rust escapes by the same categories; but a combining mark only at the start of a text, hence the letter.
    let with_letter: String = ['a', character].iter().collect();
    matches!(character, '\'' | '"') || with_letter.escape_debug().eq(with_letter.chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (number, text) in cases {
            assert_eq!(float_repr(number), text);
        }
    }

    #[test]
    fn strings_in_lists_print_as_in_python() {
        let cases = [
            ("plain", "'plain'"),
            ("it's", "\"it's\""),
            ("it's \"x\"", "'it\\'s \"x\"'"),
            ("\n\t\r\\\0\u{7f}", "'\\n\\t\\r\\\\\\x00\\x7f'"),
            ("é日😀e\u{301}", "'é日😀e\u{301}'"),
            ("\u{301}", "'\u{301}'"),
            ("\u{a0}\u{200d}\u{2028}\u{e000}\u{e0001}", "'\\xa0\\u200d\\u2028\\ue000\\U000e0001'"),
        ];
        for (text, printed) in cases {
            assert_eq!(string_repr(text), printed);
        }
    }
}
