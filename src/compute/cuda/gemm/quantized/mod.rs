//! Products of quantized weights: how these lie in memory, and the kernels that read them.

pub mod dequantize;
pub mod gemv;
pub mod gemv_shared;
pub mod swap_ab;
pub mod weights;

use super::product::Product;
use weights::{Form, QuantizedWeights};

/// A product whose weights are `product.params.n` rows of a quantized matrix.
pub struct QuantizedProduct {
    /// All but its weights.
    pub product: Product,
    pub form: Form,
    /// From the octet on in which the rows begin.
    pub weights: QuantizedWeights,
    /// Rows of that octet that come before them.
    pub skip: usize,
}

#[cfg(test)]
pub mod tests {
    use super::weights::Form;
    use crate::cuda::gemm::plan::Quantized;
    use formats::{Block, WeightFormat};

    /// Weights in blocks of GGUF, with a buffer of 32 MiB for dequantized ones.
    pub fn quantized(block: Block, k: usize) -> Quantized {
        let form = Form::of(WeightFormat::Block(block), k).expect("it has a form");
        Quantized { form, skip: 0, scratch_bytes: (32 << 20) / (2 * k) * 2 * k, is_aligned: true }
    }
}
