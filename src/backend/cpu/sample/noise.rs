//! The elementary functions of sampling, exact to the bit on every device.
//!
//! They are made of single f32 additions, multiplications and divisions, each rounded to nearest, in the order written
//! here and never fused. A kernel that does the same gets the same bits, and so the same tokens from the same logits.

use crate::backend::cpu::lanes::EXP;

/// No noise is greater.
pub const GREATEST_GUMBEL: f32 = 22.9;

/// Weights are fractions of 2^40. A sum of them is exact in any order.
const ONE: f32 = (1u64 << 40) as f32;

/// A number of the standard Gumbel distribution: `-ln(e)`, where `e = -ln(1 - v)` for the uniform `v = (x + 1/2) / 2^32`.
///
/// Great noise, which decides between many tokens, comes from small `v`, where f32 is finest: its steps there are 2^-32
/// of the probability. Small noise, from `v` near 1, has steps of 2^-24, and none is less than -2.9.
#[inline(always)]
pub fn gumbel(x: u32) -> f32 {
    const STEP: f32 = 1.0 / 4_294_967_296.0;
    let v = x as f32 * STEP + 0.5 * STEP;
    // 1 - v loses the last bits of a small v. What is lost is (1 - y) - v, and goes into the logarithm to first order.
    // v may round to 1, whose logarithm must stay finite.
    let y = (1.0 - v).max(0.5 / 16_777_216.0);
    let lost = (1.0 - y) - v;
    let e = -(ln(y) + lost / y);
    -ln(e)
}

/// The natural logarithm of a positive normal number, within 1.5 units in the last place.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    /// sqrt(1/2)
    const LEAST: u32 = 0x3f35_04f3;
    // x = 2^k (1 + f), 1 + f from sqrt(1/2) to sqrt(2).
    let bits = x.to_bits().wrapping_sub(LEAST);
    let k = (bits.cast_signed() >> 23) as f32;
    let f = f32::from_bits((bits & 0x007f_ffff) + LEAST) - 1.0;
    let mut q = LN[7];
    let mut i = 7;
    while i > 0 {
        i -= 1;
        q = q * f + LN[i];
    }
    // ln 2 in two parts, the first one with so few bits that k times it is exact.
    let square = f * f;
    let small = square * f * q + k * -2.121_944_4e-4;
    k * 0.693_359_4 + (f - (0.5 * square - small))
}

/// `(ln(1 + f) - f + f^2 / 2) / f^3`, constant term first; a minimax fit with a relative error of 6e-9 in the logarithm.
const LN: [f32; 8] =
    [0.333_333_3, -0.250_008_23, 0.200_012_27, -0.166_233_57, 0.142_017_62, -0.131_601_94, 0.127_615_5, -0.076_344_3];

/// `e^x` for `x <= 0` in fractions of 2^40, rounded down.
#[inline(always)]
pub fn weight(x: f32) -> u64 {
    // e^-28 is less than 2^-40. The bound also keeps 2^n normal.
    let inside = x.max(-28.0);
    // Adding 1.5 * 2^23 rounds to a whole number.
    const MAGIC: f32 = 12_582_912.0;
    let n = (inside * std::f32::consts::LOG2_E + MAGIC) - MAGIC;
    let r = (inside - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let p = (((EXP[4] * r + EXP[3]) * r + EXP[2]) * r + EXP[1]) * r + EXP[0];
    let e_r = 1.0 + (r + r * r * p);
    let e = e_r * f32::from_bits(((n as i32) + 127).cast_unsigned() << 23);
    // Not negative and at most 2^40: no bits are lost.
    (e * ONE) as i64 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right_to_the_last_places() {
        for i in 0..400_000u32 {
            let x = f32::from_bits(0x2e80_0000 + i * 2_500);
            if !x.is_normal() {
                break;
            }
            let exact = f64::from(x).ln();
            let ulp = f64::from(f32::EPSILON) * exact.abs();
            assert!((f64::from(ln(x)) - exact).abs() <= 1.5 * ulp, "ln({x}) = {}, but is {exact}", ln(x));
        }
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn noise_is_finite_and_within_its_bounds_at_the_ends() {
        assert!(gumbel(0) > 22.8 && gumbel(0) < GREATEST_GUMBEL, "{}", gumbel(0));
        assert!(gumbel(u32::MAX) < -2.8 && gumbel(u32::MAX).is_finite(), "{}", gumbel(u32::MAX));
        for i in 0..2_000_000u32 {
            let g = gumbel(i.wrapping_mul(2_654_435_761));
            assert!(g > -2.9 && g < GREATEST_GUMBEL);
        }
    }

    #[test]
    fn noise_follows_its_formula() {
        for i in 0..200_000u32 {
            let x = i.wrapping_mul(2_654_435_761) >> (i % 30);
            let v = (f64::from(x) + 0.5) / 4_294_967_296.0;
            let exact = -(-(-v).ln_1p()).ln();
            // Near v = 1 the rounding of v itself counts.
            let bound = 1e-6 * exact.abs().max(1.0) + if v > 0.9 { 2e-7 / (1.0 - v).max(3e-8) } else { 0.0 };
            assert!((f64::from(gumbel(x)) - exact).abs() < bound, "gumbel({x}) = {}, but is {exact}", gumbel(x));
        }
    }

    #[test]
    fn the_first_noises_are_these_bits() {
        // What a kernel for another device must reproduce.
        let cases = [
            (0, 0x41b6_fda9),
            (1, 0x41ae_33b3),
            (2, 0x41aa_1d88),
            (1000, 0x4174_5bf9),
            (1 << 16, 0x4131_7208),
            (1 << 24, 0x40b1_6211),
            (1 << 31, 0x3ebb_a795),
            (0xdead_beef, 0xbf36_631e),
            (u32::MAX, 0xc036_8d1d),
        ];
        for (x, bits) in cases {
            assert_eq!(gumbel(x).to_bits(), bits, "gumbel({x}) = {}", gumbel(x));
        }
    }

    #[test]
    fn weights_are_fractions_of_the_likeliest() {
        assert_eq!(weight(0.0), 1 << 40);
        assert_eq!(weight(-0.0), 1 << 40);
        for i in 0..2_700 {
            let x = i as f32 * -0.01;
            let exact = f64::from(x).exp() * (1u64 << 40) as f64;
            assert!((weight(x) as f64 - exact).abs() <= 1.0 + 3e-7 * exact, "weight({x})");
        }
        for x in [-28.0, -100.0, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(weight(x), 0, "{x}");
        }
    }
}
