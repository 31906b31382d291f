//! How is a key or a value rounded to integers with a scale? [`KvFormat::Int8`](crate::KvFormat::Int8) has the formula.

use half::bf16;

/// Bytes of a scale.
pub const SCALE_BYTES: usize = 2;
/// A scale as it lies among the integers of a layer.
pub type Scale = [i8; SCALE_BYTES];

/// Integers reach to this on either side of 0.
const GREATEST: f32 = 127.0;

/// The scale of numbers whose greatest absolute value is `greatest`: 0 if it would be below the normal numbers, which have no finite
/// inverse. Rounding it loses nothing, because the integers are those of the rounded scale: it is at most one part in 512 too
/// small, and 127.25 still rounds to 127.
#[inline(always)]
pub fn scale(greatest: f32) -> bf16 {
    let scale = bf16::from_f32(greatest / GREATEST);
    if scale < bf16::MIN_POSITIVE { bf16::ZERO } else { scale }
}

/// What numbers are multiplied by before they are rounded.
#[inline(always)]
pub fn inverse(scale: bf16) -> f32 {
    if scale == bf16::ZERO { 0.0 } else { 1.0 / scale.to_f32() }
}

/// Writes the integers of some numbers and returns their scale. The specification.
pub fn reference(from: &[f32], to: &mut [i8]) -> Scale {
    // `max` would forget a NaN.
    let greatest = from.iter().fold(0.0f32, |greatest, v| if v.abs() <= greatest { greatest } else { v.abs() });
    let greatest = if from.iter().any(|v| v.is_nan()) { f32::NAN } else { greatest };
    let scale = scale(greatest);
    for (to, v) in to.iter_mut().zip(from) {
        *to = (v * inverse(scale)).round_ties_even() as i8;
    }
    stored(scale)
}

/// [`reference`] in a form that becomes vector instructions.
#[inline(always)]
pub fn quantize(from: &[f32], to: &mut [i8]) -> Scale {
    // Without their sign, floating-point numbers are ordered as their bits are, and NaN is above all others.
    let greatest = from.iter().fold(0, |greatest, v| (v.to_bits() & 0x7fff_ffff).max(greatest));
    let scale = scale(f32::from_bits(greatest));
    let inverse = inverse(scale);
    // Adding 1.5 * 2^23 rounds to a whole number, which is then in the lower bits.
    const MAGIC: f32 = 12_582_912.0;
    for (to, v) in to.iter_mut().zip(from) {
        *to = (v * inverse + MAGIC).to_bits() as i8;
    }
    stored(scale)
}

/// A scale as a number.
#[inline(always)]
pub fn scale_of(stored: Scale) -> f32 {
    f32::from_bits(u32::from(u16::from_ne_bytes(stored.map(|byte| byte as u8))) << 16)
}

fn stored(scale: bf16) -> Scale {
    scale.to_bits().to_ne_bytes().map(|byte| byte as i8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(from: &[f32]) -> (Vec<i8>, f32) {
        let [mut slow, mut fast] = [(); 2].map(|()| vec![0; from.len()]);
        let scales = (reference(from, &mut slow), quantize(from, &mut fast));
        assert_eq!((slow, scales.0), (fast.clone(), scales.1), "{from:?}");
        (fast, scale_of(scales.1))
    }

    #[test]
    fn numbers_are_at_most_half_a_step_off_and_the_greatest_becomes_127() {
        for exponent in -30..30 {
            let from: Vec<f32> = (0..4096).map(|i| ((i * 37) as f32).sin() * 10f32.powi(exponent)).collect();
            let (integers, scale) = both(&from);
            for (integer, v) in integers.iter().zip(&from) {
                let apart = (f32::from(*integer) * scale - v).abs();
                assert!(apart <= scale * 0.501, "{v}: {apart} apart, and a step is {scale}");
            }
            assert!(integers.iter().any(|i| i.abs() >= 126), "the range is used");
            assert!(!integers.contains(&-128));
        }
    }

    #[test]
    fn the_greatest_number_of_every_scale_fits() {
        for bits in (0x3f80_0000u32..0x4000_0000).step_by(0x1111) {
            let greatest = f32::from_bits(bits);
            let (integers, _) = both(&[greatest, -greatest, 0.0]);
            assert!([126, 127].contains(&integers[0]) && integers[1] == -integers[0] && integers[2] == 0, "{greatest}");
        }
    }

    #[test]
    fn ties_go_to_the_even_integer() {
        assert_eq!(both(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]).0, [127, 0, 2, 2, 0, -2, -2]);
    }

    #[test]
    fn zeros_and_numbers_below_all_scales_become_zero() {
        for v in [0.0, -0.0, 1e-45, -1e-40, 1e-37] {
            let (integers, scale) = both(&[v; 5]);
            assert_eq!((integers, scale), (vec![0; 5], 0.0), "{v}");
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        for v in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for quantize in [reference, quantize] {
                assert!(!scale_of(quantize(&[1.0, v, 2.0], &mut [0; 3])).is_finite(), "{v}");
            }
        }
    }
}
