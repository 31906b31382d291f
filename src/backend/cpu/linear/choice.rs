//! Which kernels serve an instruction set and a coding?

use super::super::Isa;
use super::kernels::Kernels;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512, avx512bf16};
use crate::backend::Coding;

/// How products with weights in one coding are computed.
#[derive(Clone, Copy)]
pub struct Route {
    /// They take plain weights where these lie, and others from the scratch of a thread.
    pub kernels: &'static Kernels,
    /// Whether the weights are decoded into the thread's scratch.
    pub is_decoded: bool,
}

/// The route for weights in `coding`. Coded ones are decoded to the numbers that the instruction set multiplies fastest.
pub fn choose(isa: Isa, coding: Coding) -> Route {
    match coding {
        Coding::F32 | Coding::F16 | Coding::Bf16 => Route { kernels: plain(isa, coding), is_decoded: false },
        Coding::Block(_) | Coding::Scaled(_) => {
            let numbers = if isa >= Isa::Avx512Bf16 { Coding::Bf16 } else { Coding::F32 };
            Route { kernels: plain(isa, numbers), is_decoded: true }
        }
    }
}

/// The kernels for plain weights.
#[cfg(target_arch = "x86_64")]
fn plain(isa: Isa, coding: Coding) -> &'static Kernels {
    match (isa, coding) {
        (Isa::Portable, Coding::Bf16) => &portable::BF16,
        (Isa::Portable, Coding::F16) => &portable::F16,
        (Isa::Portable, _) => &portable::F32,
        (Isa::Avx2, Coding::Bf16) => &avx2::BF16,
        (Isa::Avx2, Coding::F16) => &avx2::F16,
        (Isa::Avx2, _) => &avx2::F32,
        (Isa::Avx512Bf16 | Isa::Amx, Coding::Bf16) => &avx512bf16::BF16,
        (Isa::Avx512, Coding::Bf16) => &avx512::BF16,
        (Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx, Coding::F16) => &avx512::F16,
        (Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx, _) => &avx512::F32,
    }
}

/// The kernels for plain weights.
#[cfg(not(target_arch = "x86_64"))]
fn plain(_: Isa, coding: Coding) -> &'static Kernels {
    match coding {
        Coding::Bf16 => &portable::BF16,
        Coding::F16 => &portable::F16,
        _ => &portable::F32,
    }
}
