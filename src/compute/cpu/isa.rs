//! Which instructions the kernels use.
#![allow(unsafe_code)]

use base::error::{Error, Result};
use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set of this architecture, each including those before it.
#[cfg(not(target_arch = "aarch64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX512-BF16 and AVX512-VNNI besides.
    Avx512Bf16,
    /// AMX tiles of bf16 besides.
    Amx,
}

/// An instruction set of this architecture, each including those before it.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// NEON.
    Neon,
    /// Dot products of bytes besides.
    DotProd,
    /// Products of matrices of bytes besides.
    I8mm,
    /// Products of matrices of bf16 besides.
    Bf16,
}

/// The environment variable that forces an instruction set.
const KNOB: &str = "NVLLM_CPU_ISA";

#[cfg(not(target_arch = "aarch64"))]
const ALL: [Isa; 5] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx];
#[cfg(target_arch = "aarch64")]
const ALL: [Isa; 5] = [Isa::Portable, Isa::Neon, Isa::DotProd, Isa::I8mm, Isa::Bf16];

impl Isa {
    /// The best that this machine has, or what the environment variable `NVLLM_CPU_ISA` names.
    ///
    /// A name that is unknown, or that this machine lacks, is an error that lists what there is.
    pub fn detect() -> Result<Isa> {
        let forced = std::env::var_os(KNOB);
        Isa::choose(forced.map(|name| name.to_string_lossy().into_owned()), Isa::best())
    }

    /// What this machine has, `Portable` first.
    pub fn available() -> &'static [Isa] {
        &ALL[..=Isa::best() as usize]
    }

    /// Whether products with bf16 weights, and with those that are dequantized, round activations to bf16.
    pub fn rounds_activations(self) -> bool {
        #[cfg(not(target_arch = "aarch64"))]
        return self >= Isa::Avx512Bf16;
        #[cfg(target_arch = "aarch64")]
        return self >= Isa::Bf16;
    }

    /// The best of this one and those before it that multiplies activations in f32.
    pub fn in_f32(self) -> Isa {
        let all = ALL[..=self as usize].iter().rev();
        all.copied().find(|isa| !isa.rounds_activations()).unwrap_or(Isa::Portable)
    }

    /// The name by which `NVLLM_CPU_ISA` calls it.
    #[cfg(not(target_arch = "aarch64"))]
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Bf16 => "avx512bf16",
            Isa::Amx => "amx",
        }
    }

    /// The name by which `NVLLM_CPU_ISA` calls it.
    #[cfg(target_arch = "aarch64")]
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::DotProd => "dotprod",
            Isa::I8mm => "i8mm",
            Isa::Bf16 => "bf16",
        }
    }

    /// The names of this one and those before it, for a message.
    #[cfg(not(target_arch = "aarch64"))]
    fn choices(self) -> &'static str {
        match self {
            Isa::Portable => "portable, which is what this machine has",
            Isa::Avx2 => "portable or avx2, which this machine has",
            Isa::Avx512 => "portable, avx2 or avx512, which this machine has",
            Isa::Avx512Bf16 => "portable, avx2, avx512 or avx512bf16, which this machine has",
            Isa::Amx => "portable, avx2, avx512, avx512bf16 or amx",
        }
    }

    /// The names of this one and those before it, for a message.
    #[cfg(target_arch = "aarch64")]
    fn choices(self) -> &'static str {
        match self {
            Isa::Portable => "portable, which is what this machine has",
            Isa::Neon => "portable or neon, which this machine has",
            Isa::DotProd => "portable, neon or dotprod, which this machine has",
            Isa::I8mm => "portable, neon, dotprod or i8mm, which this machine has",
            Isa::Bf16 => "portable, neon, dotprod, i8mm or bf16",
        }
    }

    fn choose(forced: Option<String>, best: Isa) -> Result<Isa> {
        let Some(name) = forced.filter(|name| !name.is_empty()) else { return Ok(best) };
        ALL.into_iter().find(|isa| isa.name() == name && *isa <= best).ok_or(Error::Option {
            field: KNOB,
            value: name,
            wanted: best.choices(),
        })
    }

    fn best() -> Isa {
        // 0 is unknown. Threads that ask at the same time hear the same, so no lock is needed, which a fork could find locked.
        static BEST: AtomicU8 = AtomicU8::new(0);
        let known = BEST.load(Ordering::Relaxed);
        if let Some(isa) = ALL.get(usize::from(known).wrapping_sub(1)) {
            return *isa;
        }
        let best = ask_the_machine();
        BEST.store(best as u8 + 1, Ordering::Relaxed);
        best
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ask_the_machine() -> Isa {
    Isa::Portable
}

#[cfg(target_arch = "aarch64")]
fn ask_the_machine() -> Isa {
    use std::arch::is_aarch64_feature_detected;
    match () {
        () if !is_aarch64_feature_detected!("neon") => Isa::Portable,
        () if !is_aarch64_feature_detected!("dotprod") => Isa::Neon,
        () if !is_aarch64_feature_detected!("i8mm") => Isa::DotProd,
        () if !is_aarch64_feature_detected!("bf16") => Isa::I8mm,
        () => Isa::Bf16,
    }
}

#[cfg(target_arch = "x86_64")]
fn ask_the_machine() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match () {
        () if !avx2 => Isa::Portable,
        () if !avx512 => Isa::Avx2,
        () if !is_x86_feature_detected!("avx512bf16") || !is_x86_feature_detected!("avx512vnni") => Isa::Avx512,
        () if !amx::is_permitted() => Isa::Avx512Bf16,
        () => Isa::Amx,
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    /// Whether the machine has bf16 tiles and the kernel lets this process use them.
    ///
    /// The permission holds for the whole process, threads that are yet to come included.
    pub fn is_permitted() -> bool {
        const BF16: u32 = 1 << 22;
        const TILE: u32 = 1 << 24;
        if __cpuid(0).eax < 7 {
            return false;
        }
        let found = __cpuid_count(7, 0).edx;
        found & BF16 != 0 && found & TILE != 0 && kernel_saves_tiles() && request_permission()
    }

    /// Whether the kernel keeps tiles over a change of threads.
    fn kernel_saves_tiles() -> bool {
        const OSXSAVE: u32 = 1 << 27;
        /// XTILECFG and XTILEDATA.
        const TILES: u64 = 0b11 << 17;

        #[target_feature(enable = "xsave")]
        fn enabled_features() -> u64 {
            // SAFETY: register 0 exists wherever the instruction does.
            unsafe { _xgetbv(0) }
        }

        // SAFETY: with OSXSAVE set the instruction may be used.
        __cpuid(1).ecx & OSXSAVE != 0 && unsafe { enabled_features() } & TILES == TILES
    }

    fn request_permission() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XTILEDATA: libc::c_long = 18;
        // SAFETY: the call reads and writes no memory of ours.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 }
    }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
mod amx {
    /// Only Linux is known to hand out tiles.
    pub fn is_permitted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_instruction_set_is_taken_unless_one_is_forced() {
        for best in ALL {
            assert_eq!(Isa::choose(None, best).unwrap(), best);
            assert_eq!(Isa::choose(Some(String::new()), best).unwrap(), best);
            for lower in ALL.into_iter().filter(|isa| *isa <= best) {
                assert_eq!(Isa::choose(Some(lower.name().into()), best).unwrap(), lower);
            }
        }
    }

    #[test]
    fn a_name_that_is_unknown_or_not_to_be_had_is_an_error_that_lists_what_there_is() {
        let [lowest, low, .., highest] = ALL;
        let shouted = low.name().to_uppercase();
        let refused = [("sse9", highest), (&*shouted, highest), (highest.name(), low), (low.name(), lowest)];
        for (name, best) in refused {
            let message = Isa::choose(Some(name.into()), best).unwrap_err().to_string();
            assert!(message.starts_with(&format!("NVLLM_CPU_ISA is {name}, but must be portable")), "{message}");
            assert!(best == Isa::Portable || message.contains(best.name()), "{message}");
        }
    }

    #[test]
    fn available_sets_begin_with_portable_and_ascend() {
        let available = Isa::available();
        assert_eq!(available[0], Isa::Portable);
        assert!(available.is_sorted());
    }
}
