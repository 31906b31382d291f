//! The types of tensors that GGUF files name by a number.

use crate::{Block, WeightFormat};
use std::fmt::{self, Display, Formatter};

/// How the numbers of a tensor of a GGUF file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgmlType {
    /// The number that stands for it.
    pub id: u32,
    name: &'static str,
    /// Numbers per block.
    pub block: usize,
    /// Bytes per block.
    pub block_bytes: usize,
}

/// Those of ggml.h that are not withdrawn, as `GGML_QUANT_SIZES` of gguf-py has them.
const TYPES: &[GgmlType] = &[
    of(0, "F32", 1, 4),
    of(1, "F16", 1, 2),
    of(2, "Q4_0", 32, 18),
    of(3, "Q4_1", 32, 20),
    of(6, "Q5_0", 32, 22),
    of(7, "Q5_1", 32, 24),
    of(8, "Q8_0", 32, 34),
    of(9, "Q8_1", 32, 36),
    of(10, "Q2_K", 256, 84),
    of(11, "Q3_K", 256, 110),
    of(12, "Q4_K", 256, 144),
    of(13, "Q5_K", 256, 176),
    of(14, "Q6_K", 256, 210),
    of(15, "Q8_K", 256, 292),
    of(16, "IQ2_XXS", 256, 66),
    of(17, "IQ2_XS", 256, 74),
    of(18, "IQ3_XXS", 256, 98),
    of(19, "IQ1_S", 256, 50),
    of(20, "IQ4_NL", 32, 18),
    of(21, "IQ3_S", 256, 110),
    of(22, "IQ2_S", 256, 82),
    of(23, "IQ4_XS", 256, 136),
    of(24, "I8", 1, 1),
    of(25, "I16", 1, 2),
    of(26, "I32", 1, 4),
    of(27, "I64", 1, 8),
    of(28, "F64", 1, 8),
    of(29, "IQ1_M", 256, 56),
    of(30, "BF16", 1, 2),
    of(34, "TQ1_0", 256, 54),
    of(35, "TQ2_0", 256, 66),
    of(39, "MXFP4", 32, 17),
    of(40, "NVFP4", 64, 36),
    of(41, "Q1_0", 128, 18),
    of(42, "Q2_0", 64, 18),
];

const fn of(id: u32, name: &'static str, block: usize, block_bytes: usize) -> GgmlType {
    GgmlType { id, name, block, block_bytes }
}

impl GgmlType {
    /// The type that `id` stands for.
    pub fn find(id: u32) -> Option<GgmlType> {
        TYPES.iter().find(|known| known.id == id).copied()
    }

    /// What these numbers are as weights; `None` if weights of this type are not read.
    pub fn coding(self) -> Option<WeightFormat> {
        match self.name {
            "F32" => Some(WeightFormat::F32),
            "F16" => Some(WeightFormat::F16),
            "BF16" => Some(WeightFormat::Bf16),
            name => Block::ALL.into_iter().find(|block| block.name() == name).map(WeightFormat::Block),
        }
    }
}

impl Display for GgmlType {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_the_blocks_of_its_coding() {
        for kind in TYPES {
            let Some(coding) = kind.coding() else { continue };
            assert_eq!((kind.block, kind.block_bytes), (coding.group(), coding.row_bytes(coding.group())), "{kind}");
            assert_eq!(kind.to_string(), coding.to_string());
        }
        assert_eq!(TYPES.iter().filter(|kind| kind.coding().is_some()).count(), 3 + Block::ALL.len());
    }
}
