//! What decoders of scaled codes share: the factors of groups, and the walk over these.
#![allow(unsafe_code)]

use super::Job;
use crate::cpu::linear::kernels::STEP;
use formats::{Scaled, Scales, WeightFormat};
#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Groups of a part, at most.
const MAX_GROUPS: usize = 64;

/// The groups of a part.
struct Groups {
    /// The index of the first one in its row.
    first: usize,
    count: usize,
    /// Numbers of each, within the part.
    len: usize,
}

impl Groups {
    /// # Panics
    ///
    /// If a part of several groups does not begin with one: parts begin at multiples of longer lengths than groups have.
    fn of(scaled: Scaled, job: &Job) -> Groups {
        let numbers = job.to.len() / job.order.bytes();
        if scaled.group >= numbers {
            let first = if scaled.group == Scaled::ROW { 0 } else { job.first / scaled.group };
            return Groups { first, count: 1, len: numbers };
        }
        assert!(job.first.is_multiple_of(scaled.group));
        let count = numbers.div_ceil(scaled.group);
        assert!(count <= MAX_GROUPS);
        Groups { first: job.first / scaled.group, count, len: scaled.group }
    }
}

/// The scaled coding that a decoder was chosen for.
pub fn scaled(coding: WeightFormat) -> Scaled {
    let WeightFormat::Scaled(scaled) = coding else { unreachable!("`to_f32` and `to_bf16` choose by the coding") };
    scaled
}

/// The factors of the groups of a part.
pub struct Factors {
    pub scales: [f32; MAX_GROUPS],
    pub zeros: [f32; MAX_GROUPS],
    /// How many groups there are.
    pub count: usize,
}

/// Reads them.
///
/// # Safety
///
/// The machine has F16C, or NEON.
#[inline(always)]
pub unsafe fn factors(scaled: Scaled, job: &Job) -> Factors {
    let Groups { first, count, .. } = Groups::of(scaled, job);
    let mut factors = Factors { scales: [0.0; MAX_GROUPS], zeros: [scaled.codes.zero(); MAX_GROUPS], count };
    let bytes = &job.row.scales[first * scaled.scales.bytes()..][..count * scaled.scales.bytes()];
    match scaled.scales {
        // SAFETY: the caller says that the machine has the instruction set.
        Scales::F16 => unsafe { read_halves(&mut factors.scales, bytes) },
        Scales::F32 => read_scales(Scales::F32, &mut factors.scales, bytes),
        Scales::Bf16 => read_scales(Scales::Bf16, &mut factors.scales, bytes),
        Scales::E8m0 => read_scales(Scales::E8m0, &mut factors.scales, bytes),
    }
    if scaled.zeros {
        let zeros = &job.row.zeros[first..][..count];
        factors.zeros.iter_mut().zip(zeros).for_each(|(to, &from)| *to = f32::from(from));
    }
    factors
}

/// Reads scales in half precision.
///
/// # Safety
///
/// The machine has F16C.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn read_halves(scales: &mut [f32], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<16>();
    for (to, from) in scales.chunks_exact_mut(8).zip(whole) {
        // SAFETY: the caller says that the machine has F16C; eight numbers are read and written.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
    }
    for (to, from) in scales[whole.len() * 8..].iter_mut().zip(rest.as_chunks::<2>().0) {
        let bits = i32::from(u16::from_le_bytes(*from));
        // SAFETY: the caller says that the machine has F16C.
        *to = unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))) };
    }
}

/// Reads scales in half precision.
///
/// # Safety
///
/// The machine has NEON.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn read_halves(scales: &mut [f32], bytes: &[u8]) {
    for (to, from) in scales.iter_mut().zip(bytes.as_chunks::<2>().0) {
        // SAFETY: the caller says that the machine has NEON.
        *to = unsafe { vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(u16::from_le_bytes(*from))))) };
    }
}

/// Reads all scales. `kind` is known where this is inlined, so that the compiler makes vectors of it.
#[inline(always)]
fn read_scales(kind: Scales, scales: &mut [f32], bytes: &[u8]) {
    for (to, from) in scales.iter_mut().zip(bytes.chunks_exact(kind.bytes())) {
        *to = kind.read(from, 0);
    }
}

/// Where the codes and the numbers of a step lie.
pub struct Walk {
    pub codes: *const u8,
    pub to: *mut u8,
    /// Steps of a whole group.
    group_steps: usize,
    /// Steps of the part that are left, those of this group included.
    left: usize,
}

impl Walk {
    /// # Panics
    ///
    /// If the codes are not there.
    #[inline(always)]
    pub fn new(scaled: Scaled, job: Job) -> Walk {
        let numbers = job.to.len() / job.order.bytes();
        let codes = &job.row.codes[scaled.codes.row_bytes(job.first)..][..scaled.codes.row_bytes(numbers)];
        let group_steps = Groups::of(scaled, &job).len / STEP;
        Walk { codes: codes.as_ptr(), to: job.to.as_mut_ptr(), group_steps, left: numbers / STEP }
    }

    /// Steps of the next group: each is followed by [`Walk::advance`].
    #[inline(always)]
    pub fn steps_of_group(&mut self) -> usize {
        let steps = self.group_steps.min(self.left);
        self.left -= steps;
        steps
    }

    #[inline(always)]
    pub fn advance(&mut self, code_bytes: usize, number_bytes: usize) {
        self.codes = self.codes.wrapping_add(code_bytes);
        self.to = self.to.wrapping_add(number_bytes);
    }
}
