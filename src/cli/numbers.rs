//! Values of options, and what is wanted where they are wrong.

use std::str::FromStr;

/// A whole number of at least 1.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    at_least(1, text)
}

/// A whole number of at least 2.
pub(crate) fn two_or_more(text: &str) -> Result<u32, String> {
    at_least(2, text)
}

/// A whole number.
pub(crate) fn whole(text: &str) -> Result<u32, String> {
    at_least(0, text)
}

fn at_least(least: u32, text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&number: &u32| number >= least);
    number.ok_or_else(|| format!("a whole number of at least {least} is wanted"))
}

/// A seed, of which 0 means none.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|&number: &u64| number > 0);
    number.ok_or_else(|| "a whole number of at least 1 is wanted".to_owned())
}

fn number_within(text: &str, is_within: impl Fn(f32) -> bool, wanted: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|&number: &f32| number.is_finite() && is_within(number));
    number.ok_or_else(|| format!("a number {wanted} is wanted"))
}

pub(crate) fn not_negative(text: &str) -> Result<f32, String> {
    number_within(text, |number| number >= 0.0, "of at least 0")
}

pub(crate) fn one_or_more(text: &str) -> Result<f32, String> {
    number_within(text, |number| number >= 1.0, "of at least 1")
}

/// A fraction of which 0 would leave nothing.
pub(crate) fn share(text: &str) -> Result<f32, String> {
    number_within(text, |number| number > 0.0 && number <= 1.0, "above 0 and at most 1")
}

pub(crate) fn fraction(text: &str) -> Result<f32, String> {
    number_within(text, |number| (0.0..=1.0).contains(&number), "from 0 to 1")
}

pub(crate) fn factor(text: &str) -> Result<f32, String> {
    number_within(text, |number| number > 0.0, "above 0")
}

pub(crate) fn finite(text: &str) -> Result<f32, String> {
    number_within(text, |_| true, "that is finite")
}

/// A number of bytes, with or without a unit.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wanted = || "a number of bytes is wanted, such as 1000000, 512MiB or 4GB".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wanted()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).filter(|&bytes| bytes > 0).ok_or_else(wanted);
    }
    let bytes = number.parse::<f64>().map_err(|_| wanted())? * factor as f64;
    // 2^63 bytes are more than any machine has; below, a double is exact enough.
    if (1.0..9.2e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wanted()) }
}

/// Indices of GPUs, with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indices(pub Vec<i32>);

impl FromStr for Indices {
    type Err = String;

    fn from_str(text: &str) -> Result<Indices, String> {
        let index = |part: &str| part.parse().ok().filter(|&index: &i32| index >= 0);
        let indices = text.split(',').map(index).collect::<Option<Vec<i32>>>();
        let wanted = || "indices of GPUs with commas between them are wanted".to_owned();
        indices.map(Indices).ok_or_else(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        let cases = [("1000", 1000), ("1b", 1), ("512MiB", 512 << 20), ("4GB", 4_000_000_000), ("1.5g", 3 << 29)];
        for (text, wanted) in cases {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for text in ["", "0", "-1", "MiB", "1.2.3k", "5 m", "99999999999t", "1e3"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn indices_are_a_list() {
        assert_eq!("0,3".parse(), Ok(Indices(vec![0, 3])));
        for text in ["", ",", "0,", ",0", "0,,1", "-1", "a"] {
            assert!(text.parse::<Indices>().is_err(), "{text}");
        }
    }
}
