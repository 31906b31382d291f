//! Which kernels serve an instruction set and a coding?

use super::super::Isa;
use super::dequantize::{self, Dequantizer};
use super::kernels::Kernels;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512, avx512bf16};
#[cfg(target_arch = "aarch64")]
use super::{bfmmla, neon};
use formats::{Codes, Scaled, WeightFormat};

/// How products with weights in one coding are computed.
#[derive(Clone, Copy)]
pub struct Route {
    /// They take plain weights where these lie, and others from the scratch of a thread.
    pub kernels: &'static Kernels,
    /// What brings the weights there.
    pub dequantizer: Option<Dequantizer>,
}

/// The route for weights in `coding`. Coded ones are dequantized to the numbers that the instruction set multiplies fastest.
pub fn choose(isa: Isa, coding: WeightFormat) -> Route {
    if coding.is_plain() {
        return Route { kernels: plain(isa, coding), dequantizer: None };
    }
    let is_pairs = matches!(coding, WeightFormat::Scaled(Scaled { codes: Codes::U4 | Codes::E2m1, .. }));
    let kernels = dequantized(isa, is_pairs);
    Route { kernels, dequantizer: Some(dequantize::choose(isa, coding, kernels.order)) }
}

/// The kernels for dequantized weights. The even and the odd ones of pairs lie apart where registers hold them so.
#[cfg(target_arch = "x86_64")]
fn dequantized(isa: Isa, is_pairs: bool) -> &'static Kernels {
    match (isa, is_pairs) {
        (Isa::Portable, _) => &portable::F32,
        (Isa::Avx2, true) => &avx2::DEQUANTIZED_PAIRS,
        (Isa::Avx2, false) => &avx2::DEQUANTIZED,
        (Isa::Avx512, true) => &avx512::DEQUANTIZED_PAIRS,
        (Isa::Avx512, false) => &avx512::DEQUANTIZED,
        (Isa::Avx512Bf16 | Isa::Amx, _) => &avx512bf16::DEQUANTIZED,
    }
}

/// The kernels for dequantized weights, which lie in one order.
#[cfg(target_arch = "aarch64")]
fn dequantized(isa: Isa, _: bool) -> &'static Kernels {
    match isa {
        Isa::Portable => &portable::F32,
        Isa::Neon | Isa::DotProd | Isa::I8mm => &neon::DEQUANTIZED,
        Isa::Bf16 => &bfmmla::DEQUANTIZED,
    }
}

/// The kernels for dequantized weights.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn dequantized(_: Isa, _: bool) -> &'static Kernels {
    &portable::F32
}

/// The kernels for plain weights.
#[cfg(target_arch = "x86_64")]
fn plain(isa: Isa, coding: WeightFormat) -> &'static Kernels {
    match (isa, coding) {
        (Isa::Portable, WeightFormat::Bf16) => &portable::BF16,
        (Isa::Portable, WeightFormat::F16) => &portable::F16,
        (Isa::Portable, _) => &portable::F32,
        (Isa::Avx2, WeightFormat::Bf16) => &avx2::BF16,
        (Isa::Avx2, WeightFormat::F16) => &avx2::F16,
        (Isa::Avx2, _) => &avx2::F32,
        (Isa::Avx512Bf16 | Isa::Amx, WeightFormat::Bf16) => &avx512bf16::BF16,
        (Isa::Avx512, WeightFormat::Bf16) => &avx512::BF16,
        (Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx, WeightFormat::F16) => &avx512::F16,
        (Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx, _) => &avx512::F32,
    }
}

/// The kernels for plain weights.
#[cfg(target_arch = "aarch64")]
fn plain(isa: Isa, coding: WeightFormat) -> &'static Kernels {
    match (isa, coding) {
        (Isa::Portable, WeightFormat::Bf16) => &portable::BF16,
        (Isa::Portable, WeightFormat::F16) => &portable::F16,
        (Isa::Portable, _) => &portable::F32,
        (Isa::Bf16, WeightFormat::Bf16) => &bfmmla::BF16,
        (_, WeightFormat::Bf16) => &neon::BF16,
        (_, WeightFormat::F16) => &neon::F16,
        (_, _) => &neon::F32,
    }
}

/// The kernels for plain weights.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn plain(_: Isa, coding: WeightFormat) -> &'static Kernels {
    match coding {
        WeightFormat::Bf16 => &portable::BF16,
        WeightFormat::F16 => &portable::F16,
        _ => &portable::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::{Isa, Kernels, WeightFormat, choose};
    use std::ptr;

    fn kernels(isa: Isa, coding: WeightFormat) -> &'static Kernels {
        choose(isa, coding).kernels
    }

    /// Tests run ops by each instruction set and compare numbers, which all sets give alike: so what is chosen is asserted here.
    #[test]
    fn an_instruction_set_has_kernels_of_its_own() {
        for coding in [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16] {
            for &isa in Isa::available().iter().filter(|&&isa| isa != Isa::Portable) {
                assert!(!ptr::eq(kernels(isa, coding), kernels(Isa::Portable, coding)), "{isa:?}, {coding}");
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn bf16_is_multiplied_by_the_best_instructions_of_each_set() {
        use super::{avx2, avx512, avx512bf16, portable};
        for (isa, wanted) in [
            (Isa::Portable, &portable::BF16),
            (Isa::Avx2, &avx2::BF16),
            (Isa::Avx512, &avx512::BF16),
            (Isa::Avx512Bf16, &avx512bf16::BF16),
            (Isa::Amx, &avx512bf16::BF16),
        ] {
            assert!(ptr::eq(kernels(isa, WeightFormat::Bf16), wanted), "{isa:?}");
        }
    }
}
