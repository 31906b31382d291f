//! A short causal convolution along the tokens of each row, column by column:
//! `out[t, c] = f(bias[c] + sum over j of weight[j, c] * v[t - taps + 1 + j, c])`. By its [`ConvForm`](crate::ConvForm), `v` is `x` or `b * x`, and `f` is
//! nothing, SiLU or the product with `c`. Inputs `v` before the first token of the row come from the state that it continues, or are 0 at the beginning of a
//! sequence. Afterwards the state has the last `taps - 1` inputs.

use crate::{Backend, ShortConv, Tensor};

/// | operand  | shape |
/// |----------|-------|
/// | `out`    | `[tokens, cols]` |
/// | `x`      | `[tokens, at least input_cols]`, of which the first `cols` columns are read, or the first `3 cols` as `b`, `x` and `c` |
/// | `weight` | `[taps, cols]`, the last tap for the newest token, then the biases if there are any |
/// | `states` | at `at`: `[taps - 1, cols]`, the oldest input first |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn causal_conv<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    weight: &B::Vector,
    conv: ShortConv,
    (states, at): (&mut B::States, usize),
    device_batch: &B::DeviceBatch,
) {
    let (batch, shape) = (B::batch(device_batch), B::state_shape(states));
    assert_eq!((out.rows(), x.rows()), (batch.tokens(), batch.tokens()));
    assert!(conv.input_cols(out.cols()) <= x.cols() && (2..=crate::recurrent::MAX_TAPS).contains(&conv.taps));
    assert_eq!(B::vector_len(weight), conv.weight_numbers(out.cols()));
    assert!(at + conv.state_numbers(out.cols()) <= shape.numbers);
    assert_eq!(batch.state_slots.len(), batch.rows());
    backend.causal_conv(out, x, weight, conv, (states, at), device_batch);
}
