//! Which kernels serve an instruction set and a coding?

use super::super::Isa;
use super::kernels::Kernels;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512, avx512bf16};
use crate::backend::Coding;

/// The kernels for weights in `coding`.
#[cfg(target_arch = "x86_64")]
pub fn choose(isa: Isa, coding: Coding) -> &'static Kernels {
    match (isa, coding) {
        (Isa::Portable, Coding::Bf16) => &portable::BF16,
        (Isa::Portable, Coding::F16) => &portable::F16,
        (Isa::Portable, Coding::F32) => &portable::F32,
        (Isa::Avx2, Coding::Bf16) => &avx2::BF16,
        (Isa::Avx2, Coding::F16) => &avx2::F16,
        (Isa::Avx2, Coding::F32) => &avx2::F32,
        (Isa::Avx512Bf16 | Isa::Amx, Coding::Bf16) => &avx512bf16::BF16,
        (Isa::Avx512, Coding::Bf16) => &avx512::BF16,
        (Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx, Coding::F16) => &avx512::F16,
        (Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx, Coding::F32) => &avx512::F32,
        (_, Coding::Block(_) | Coding::Scaled(_)) => unreachable!("a matrix holds plain numbers"),
    }
}

/// The kernels for weights in `coding`.
#[cfg(not(target_arch = "x86_64"))]
pub fn choose(_: Isa, coding: Coding) -> &'static Kernels {
    match coding {
        Coding::Bf16 => &portable::BF16,
        Coding::F16 => &portable::F16,
        Coding::F32 => &portable::F32,
        Coding::Block(_) | Coding::Scaled(_) => unreachable!("a matrix holds plain numbers"),
    }
}
