//! The specification of a linear layer.

use super::super::Matrix;
use std::ops::Range;

/// `out[t, n] = sum_k x[t, k] * weight[n, k] + bias[n]` for `n` in `columns`, summed in f64.
///
/// | array | shape |
/// |-------|-------|
/// | `out` | `[tokens, weight.rows()]` |
/// | `x`   | `[tokens, weight.cols()]` |
pub fn reference(out: &mut [f32], x: &[f32], weight: &Matrix, bias: Option<&[f32]>, columns: Range<usize>) {
    let (outputs, inputs) = (weight.rows(), weight.cols());
    let numbers: Vec<f32> = weight.parts().iter().flat_map(|part| part.to_f32()).collect();
    for (out, x) in out.chunks_exact_mut(outputs).zip(x.chunks_exact(inputs)) {
        for n in columns.clone() {
            let mut sum = bias.map_or(0.0, |b| f64::from(b[n]));
            for k in 0..inputs {
                sum += f64::from(x[k]) * f64::from(numbers[n * inputs + k]);
            }
            out[n] = sum as f32;
        }
    }
}
