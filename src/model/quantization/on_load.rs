//! Quantizes a matrix while it is read: round to nearest, in groups of columns.
//!
//! With the largest magnitude `m` of a group, `scale = m / (2^bits - 1) * 2`, rounded to 16 bits, and `code = round(weight / scale)` to
//! nearest even within the signed range: the formula of compressed-tensors for symmetric integers (`calculate_qparams`), computed in f32.
//! A row depends on that row alone, so that parts of a matrix have the codes that they have in the whole.

use base::error::{Error, Result, filled};
use compute::HostMatrix;
use formats::source::Tensors;
use formats::{Codes, Scaled, Scales, WeightFormat};
use os::HostBytes;

/// How matrices that are not coded yet are quantized when an engine opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLoad {
    /// Not at all.
    #[default]
    None,
    /// To 8 bits.
    Int8,
    /// To 4 bits.
    Int4,
}

impl OnLoad {
    fn codes(self) -> Option<Codes> {
        match self {
            OnLoad::None => None,
            OnLoad::Int8 => Some(Codes::U8),
            OnLoad::Int4 => Some(Codes::U4),
        }
    }

    /// Sizes of groups, of which the first that divides the columns is taken.
    fn groups(self) -> &'static [usize] {
        match self {
            OnLoad::None => &[],
            OnLoad::Int8 => &[128, 64, 32],
            OnLoad::Int4 => &[32],
        }
    }

    /// Refuses matrices without numbers, which no scale stands for.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyMatrix`]
    pub fn check(self, tensors: &Tensors) -> Result<()> {
        if self == OnLoad::None {
            return Ok(());
        }
        for name in tensors.names().filter(|name| name.ends_with(".weight")) {
            let shape = tensors.get(name).map_or(&[][..], |tensor| &tensor.shape);
            if shape.len() == 2 && shape.contains(&0) {
                return Err(Error::EmptyMatrix { name: name.into(), shape: shape.into() });
            }
        }
        Ok(())
    }

    /// The coding of a matrix of `cols` columns, whose numbers are stored as `stored`. `None` where no group divides them, and where
    /// there are none.
    pub fn coding(self, stored: WeightFormat, cols: usize) -> Option<WeightFormat> {
        let codes = self.codes().filter(|_| cols > 0)?;
        let group = self.groups().iter().copied().find(|group| cols.is_multiple_of(*group))?;
        let scales = if stored == WeightFormat::F16 { Scales::F16 } else { Scales::Bf16 };
        Some(WeightFormat::Scaled(Scaled { codes, scales, group, zeros: false }))
    }
}

/// The matrix in `coding`, one that [`OnLoad::coding`] gives.
///
/// # Errors
///
/// [`Error::OutOfMemory`](base::error::Error::OutOfMemory) when there is no room for it.
pub fn quantize(matrix: &HostMatrix, coding: WeightFormat) -> Result<HostMatrix> {
    const WHAT: &str = "quantized weights";
    const KNOB: &str = "the size of the model";
    let WeightFormat::Scaled(scaled) = coding else { unreachable!("a coding of quantized weights") };
    let (rows, cols) = matrix.shape();
    let mut numbers = filled(0.0f32, cols, WHAT, KNOB)?;
    let (code_bytes, scale_bytes) = (coding.row_bytes(cols), coding.scale_bytes(cols));
    let mut scales = filled(0u8, rows * scale_bytes, WHAT, KNOB)?;
    let codes = HostBytes::written(rows * code_bytes, WHAT, KNOB, |codes| {
        let planes = codes.chunks_exact_mut(code_bytes.max(1)).zip(scales.chunks_exact_mut(scale_bytes.max(1)));
        for (row, (codes, scales)) in planes.enumerate() {
            matrix.dequantize_row(row, &mut numbers);
            quantize_row(scaled, &numbers, codes, scales);
        }
        Ok(())
    })?;
    let zeros = codes.slice(0..0);
    Ok(HostMatrix::scaled(codes, HostBytes::owned(scales.into()), zeros, coding, rows, cols))
}

fn quantize_row(scaled: Scaled, numbers: &[f32], codes: &mut [u8], scales: &mut [u8]) {
    let group = scaled.group;
    let width = scaled.codes.row_bytes(group);
    let groups = numbers.chunks_exact(group).zip(codes.chunks_exact_mut(width));
    for ((numbers, codes), scale_bytes) in groups.zip(scales.chunks_exact_mut(scaled.scales.bytes())) {
        let scale = scale_of(scaled, magnitude(numbers), scale_bytes);
        match scaled.codes {
            Codes::U4 => {
                for (byte, pair) in codes.iter_mut().zip(numbers.as_chunks::<2>().0) {
                    let [low, high] = pair.map(|number| code(number / scale, -8.0, 7.0) + 8);
                    *byte = (low & 15 | (high & 15) << 4) as u8;
                }
            }
            _ => {
                for (byte, &number) in codes.iter_mut().zip(numbers) {
                    *byte = (code(number / scale, -128.0, 127.0) + 128) as u8;
                }
            }
        }
    }
}

/// The largest magnitude. In lanes, which a compiler makes vectors of: the order of a maximum has no effect.
fn magnitude(numbers: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    for numbers in numbers.as_chunks::<16>().0 {
        for (lane, number) in lanes.iter_mut().zip(numbers) {
            let number = number.abs();
            *lane = if number > *lane { number } else { *lane };
        }
    }
    lanes.into_iter().fold(0.0, f32::max)
}

/// Writes the scale of a group whose largest magnitude is `magnitude`, and returns it as it is read.
fn scale_of(scaled: Scaled, magnitude: f32, bytes: &mut [u8]) -> f32 {
    let steps = if scaled.codes == Codes::U4 { 15.0 } else { 255.0 };
    let (coding, epsilon) = match scaled.scales {
        Scales::F16 => (WeightFormat::F16, half::f16::EPSILON.to_f32()),
        _ => (WeightFormat::Bf16, half::bf16::EPSILON.to_f32()),
    };
    coding.encode([magnitude / (steps / 2.0)], bytes);
    match scaled.scales.read(bytes, 0) {
        0.0 => {
            coding.encode([epsilon], bytes);
            epsilon
        }
        scale => scale,
    }
}

/// The whole number nearest to `value`, the even one of two, within `least..=most`.
fn code(value: f32, least: f32, most: f32) -> i32 {
    // Adding it leaves no bits behind the point: a rounding that vectors have on every machine.
    const WHOLE: f32 = 12_582_912.0;
    let bounded = value.max(least).min(most);
    (bounded + WHOLE).to_bits().cast_signed() - WHOLE.to_bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, cols: usize, coding: WeightFormat) -> HostMatrix {
        let numbers = |row: usize, numbers: &mut [f32]| {
            for (col, number) in numbers.iter_mut().enumerate() {
                let hash = (row * cols + col).wrapping_mul(0x9e37_79b9) >> 8 & 0xffff;
                *number = (hash as f32 / 32768.0 - 1.0) * 0.05;
            }
        };
        HostMatrix::from_rows(rows, cols, coding, "a test", numbers).unwrap()
    }

    #[test]
    fn every_weight_is_within_half_a_step_of_its_code() {
        for (on_load, cols, steps) in [(OnLoad::Int8, 256, 255.0), (OnLoad::Int8, 96, 255.0), (OnLoad::Int4, 64, 15.0)]
        {
            for stored in [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16] {
                let matrix = matrix(7, cols, stored);
                let coding = on_load.coding(stored, cols).unwrap();
                let quantized = quantize(&matrix, coding).unwrap();
                for (found, wanted) in quantized.to_f32().iter().zip(matrix.to_f32()) {
                    // The greatest of a group may be cut by up to half a step and what the scale was rounded by.
                    let step = 0.05 * 2.0 / steps;
                    assert!((found - wanted).abs() <= step * 0.56 + 0.05 / 256.0, "{on_load:?} {found} {wanted}");
                }
            }
        }
    }

    #[test]
    fn rows_have_the_codes_that_they_have_in_the_whole() {
        let matrix = matrix(5, 128, WeightFormat::Bf16);
        let coding = OnLoad::Int4.coding(WeightFormat::Bf16, 128).unwrap();
        let whole = quantize(&matrix, coding).unwrap();
        let part = quantize(&matrix.rows(2..4), coding).unwrap();
        assert_eq!(part.to_f32(), whole.rows(2..4).to_f32());
    }

    #[test]
    fn halves_are_rounded_to_even_and_nothing_leaves_the_range() {
        for (value, wanted) in [(0.5, 0), (1.5, 2), (-0.5, 0), (-2.5, -2), (6.4999, 6), (7.6, 7), (-9.0, -8)] {
            assert_eq!(code(value, -8.0, 7.0), wanted, "{value}");
        }
    }

    #[test]
    fn zeros_stay_zeros_and_other_widths_stay_as_they_are() {
        let zeros = HostMatrix::from_rows(2, 32, WeightFormat::F16, "a test", |_, numbers| numbers.fill(0.0)).unwrap();
        let quantized = quantize(&zeros, OnLoad::Int8.coding(WeightFormat::F16, 32).unwrap()).unwrap();
        assert_eq!(quantized.to_f32(), vec![0.0; 64]);
        assert_eq!(OnLoad::Int8.coding(WeightFormat::F16, 80), None);
        assert_eq!(OnLoad::Int8.coding(WeightFormat::F16, 0), None);
        assert_eq!(OnLoad::None.coding(WeightFormat::F16, 128), None);
    }
}
