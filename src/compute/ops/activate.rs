//! An activation that no product of gates and up has: `out[t, i] = curve(scale * of[t, i]) * times[t, i]`, over columns of other tensors.
//!
//! Nemotron-H's MLP has no gate, Falcon-H1's gate has a factor, and Gemma 4 gates what a table has for a token and a layer.

use crate::{Activated, Activation, Backend, Curve, Part, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`     | `[tokens, width]`            |
/// | `of.x`    | `[tokens, at least of.first + width]` |
/// | `times.x` | `[tokens, at least times.first + width]` |
///
/// # Panics
///
/// If the shapes disagree, or the curve is that of two numbers: only a wrong model can cause it, never a user's input.
pub fn activate<B: Backend>(backend: &mut B, out: &mut Tensor<B::Storage>, activated: Activated<Tensor<B::Storage>>) {
    assert_ne!(activated.curve, Curve::Gate(Activation::ClampedSwiglu));
    for Part { x, first } in [activated.of].into_iter().chain(activated.times) {
        assert!(x.rows() == out.rows() && first + out.cols() <= x.cols());
    }
    backend.activate(out, activated);
}
