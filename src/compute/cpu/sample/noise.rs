//! The elementary functions of sampling, exact to the bit on every device.
//!
//! They are made of single f32 additions, multiplications and divisions, each rounded to nearest, in the order written
//! here and never fused. A kernel that does the same gets the same bits, and so the same tokens from the same logits. The scalar
//! functions are the specification, those over lanes their twins.
#![cfg_attr(test, allow(unsafe_code))]

use crate::cpu::lanes::{EXP, Lanes};

/// No noise is greater.
pub const GREATEST_GUMBEL: f32 = 22.9;

/// Below this score, weights are 0: e^-28 is less than 2^-40.
pub const LEAST_SCORE: f32 = -28.0;

/// The step of a uniform number.
const STEP: f32 = 1.0 / 4_294_967_296.0;
/// What stands for 0 where a logarithm is wanted.
const LEAST_Y: f32 = 0.5 / 16_777_216.0;
/// sqrt(1/2), as bits.
const SQRT_HALF: u32 = 0x3f35_04f3;
/// Turns sqrt(1/2) into 1, as bits.
const TO_ONE: u32 = 0x3f80_0000 - SQRT_HALF;
/// ln 2 in two parts, the first one with so few bits that a small whole number times it is exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// Adding 1.5 * 2^23 rounds to a whole number.
const MAGIC: f32 = 12_582_912.0;
/// Weights are fractions of 2^40, the square of this. A sum of them is exact in any order.
const TWO_20: f32 = (1 << 20) as f32;

/// `(ln(1 + f) - f + f^2 / 2) / f^3`, constant term first; a minimax fit with a relative error of 6e-9 in the logarithm.
const LN: [f32; 8] =
    [0.333_333_3, -0.250_008_23, 0.200_012_27, -0.166_233_57, 0.142_017_62, -0.131_601_94, 0.127_615_5, -0.076_344_3];

/// A number of the standard Gumbel distribution: `-ln(e)`, where `e = -ln(1 - v)` for the uniform `v = (x + 1/2) / 2^32`.
///
/// Great noise, which decides between many tokens, comes from small `v`, where f32 is finest: its steps there are 2^-32
/// of the probability. Small noise, from `v` near 1, has steps of 2^-24, and none is less than -2.9.
pub fn gumbel(x: u32) -> f32 {
    let v = x as f32 * STEP + 0.5 * STEP;
    // 1 - v loses the last bits of a small v. What is lost is (1 - y) - v, and goes into the logarithm to first order.
    // v may round to 1, whose logarithm must stay finite.
    let y = (1.0 - v).max(LEAST_Y);
    let lost = (1.0 - y) - v;
    let e = 0.0 - (ln(y) + lost / y);
    0.0 - ln(e)
}

/// The natural logarithm of a positive normal number, within 1.5 units in the last place.
pub fn ln(x: f32) -> f32 {
    // x = 2^k (1 + f), 1 + f from sqrt(1/2) to sqrt(2).
    let bits = x.to_bits() + TO_ONE;
    let k = (bits >> 23) as f32 - 127.0;
    let f = f32::from_bits((bits & 0x007f_ffff) + SQRT_HALF) - 1.0;
    let q = LN.iter().rev().skip(1).fold(LN[7], |q, c| q * f + c);
    let square = f * f;
    let small = square * f * q + k * LN_2[1];
    k * LN_2[0] + (f - (0.5 * square - small))
}

/// `e^x` for `x <= 0` in fractions of 2^40, rounded down.
pub fn weight(x: f32) -> u64 {
    let inside = x.max(LEAST_SCORE);
    let n = (inside * std::f32::consts::LOG2_E + MAGIC) - MAGIC;
    let r = (inside - n * LN_2[0]) - n * LN_2[1];
    let p = EXP.iter().rev().skip(1).fold(EXP[4], |p, c| p * r + c);
    let e_r = 1.0 + (r + r * r * p);
    let e = e_r * f32::from_bits((n as i32 + 127).cast_unsigned() << 23);
    (e * TWO_20 * TWO_20) as u64
}

/// [`gumbel`] of each lane.
#[inline(always)]
pub fn gumbels<L: Lanes>(lanes: L, x: L::U) -> L::V {
    let one = lanes.splat(1.0);
    // Two exact halves, and one rounding where they are added.
    let upper = lanes.mul(lanes.to_f32(lanes.shift_right(x, 16)), lanes.splat(65_536.0));
    let x = lanes.add(upper, lanes.to_f32(lanes.and(x, lanes.splat_u32(0xffff))));
    let v = lanes.add(lanes.mul(x, lanes.splat(STEP)), lanes.splat(0.5 * STEP));
    let y = lanes.max(lanes.sub(one, v), lanes.splat(LEAST_Y));
    let lost = lanes.sub(lanes.sub(one, y), v);
    let zero = lanes.splat(0.0);
    let e = lanes.sub(zero, lanes.add(lns(lanes, y), lanes.div(lost, y)));
    lanes.sub(zero, lns(lanes, e))
}

/// [`ln`] of each lane.
#[inline(always)]
fn lns<L: Lanes>(lanes: L, x: L::V) -> L::V {
    let bits = lanes.add_u32(lanes.to_bits(x), lanes.splat_u32(TO_ONE));
    let k = lanes.sub(lanes.to_f32(lanes.shift_right(bits, 23)), lanes.splat(127.0));
    let mantissa = lanes.add_u32(lanes.and(bits, lanes.splat_u32(0x007f_ffff)), lanes.splat_u32(SQRT_HALF));
    let f = lanes.sub(lanes.with_bits(mantissa), lanes.splat(1.0));
    let mut q = lanes.splat(LN[7]);
    for &c in LN[..7].iter().rev() {
        q = lanes.add(lanes.mul(q, f), lanes.splat(c));
    }
    let square = lanes.mul(f, f);
    let small = lanes.add(lanes.mul(lanes.mul(square, f), q), lanes.mul(k, lanes.splat(LN_2[1])));
    let rest = lanes.sub(f, lanes.sub(lanes.mul(lanes.splat(0.5), square), small));
    lanes.add(lanes.mul(k, lanes.splat(LN_2[0])), rest)
}

/// [`weight`] of each lane: its upper bits, and its lower 20.
#[inline(always)]
pub fn weights<L: Lanes>(lanes: L, x: L::V) -> [L::U; 2] {
    let magic = lanes.splat(MAGIC);
    let inside = lanes.max(x, lanes.splat(LEAST_SCORE));
    let n = lanes.sub(lanes.add(lanes.mul(inside, lanes.splat(std::f32::consts::LOG2_E)), magic), magic);
    let [high, low] = LN_2.map(|part| lanes.splat(part));
    let r = lanes.sub(lanes.sub(inside, lanes.mul(n, high)), lanes.mul(n, low));
    let mut p = lanes.splat(EXP[4]);
    for &c in EXP[..4].iter().rev() {
        p = lanes.add(lanes.mul(p, r), lanes.splat(c));
    }
    let e_r = lanes.add(lanes.splat(1.0), lanes.add(r, lanes.mul(lanes.mul(r, r), p)));
    let scaled = lanes.mul(lanes.mul(e_r, lanes.pow2(n)), lanes.splat(TWO_20));
    let upper = lanes.truncate(scaled);
    let rest = lanes.sub(scaled, lanes.to_f32(upper));
    [upper, lanes.truncate(lanes.mul(rest, lanes.splat(TWO_20)))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;
    use crate::cpu::lanes::{Kernel, dispatch};

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
    fn weights_are_fractions_of_the_greatest() {
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

    /// Noise of some bits, and weights of some scores.
    struct Twins<'a> {
        x: &'a [u32],
        scores: &'a [f32],
        noise: &'a mut [f32],
        upper: &'a mut [u32],
        lower: &'a mut [u32],
    }

    impl Kernel for Twins<'_> {
        fn run<L: Lanes>(self, lanes: L) {
            for i in (0..self.x.len()).step_by(L::N) {
                // SAFETY: the slices have as many numbers, a multiple of N. A u32 is read as an f32 of the same bits.
                unsafe {
                    let x = lanes.to_bits(lanes.load(self.x.as_ptr().add(i).cast()));
                    lanes.store(self.noise.as_mut_ptr().add(i), gumbels(lanes, x));
                    let [upper, lower] = weights(lanes, lanes.load(self.scores.as_ptr().add(i)));
                    lanes.store_u32(self.upper.as_mut_ptr().add(i), upper);
                    lanes.store_u32(self.lower.as_mut_ptr().add(i), lower);
                }
            }
        }
    }

    #[test]
    fn vectors_have_the_bits_of_the_specification() {
        const LEN: usize = 1 << 16;
        let edges =
            [0, 1, 2, 3, u32::MAX, u32::MAX - 1, u32::MAX - 127, u32::MAX - 128, 1 << 24, (1 << 24) + 1, 1 << 31];
        let random = (0..).map(|i: u32| i.wrapping_mul(2_654_435_761) >> (i % 31));
        let x: Vec<u32> = edges.into_iter().chain(random).take(LEN).collect();
        let ends = [0.0, -0.0, -28.0, f32::NEG_INFINITY, f32::MIN, -1e-30];
        let scores: Vec<f32> = ends.into_iter().chain((0..).map(|i| i as f32 * -0.0005)).take(LEN).collect();
        for isa in Isa::available() {
            let (mut noise, mut upper, mut lower) = (vec![0.0; LEN], vec![0; LEN], vec![0; LEN]);
            let twins = Twins { x: &x, scores: &scores, noise: &mut noise, upper: &mut upper, lower: &mut lower };
            dispatch(*isa, twins);
            for i in 0..LEN {
                assert_eq!(noise[i].to_bits(), gumbel(x[i]).to_bits(), "{isa:?}: gumbel({})", x[i]);
                let both = (u64::from(upper[i]) << 20) + u64::from(lower[i]);
                assert_eq!(both, weight(scores[i]), "{isa:?}: weight({})", scores[i]);
            }
        }
    }
}
