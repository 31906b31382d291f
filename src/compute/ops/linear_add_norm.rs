//! [`linear`](super::linear), then [`add_norm`](super::add_norm): in one launch where the device has one for the layer and for the product that
//! the norm is [bound](crate::Device::bind_norm) to.
//!
//! The residual stream has the bits of the ops one by one. What is divided in the norm may be divided in the product of the next layer instead,
//! since a factor of a row is a factor of each of its dot products: `next.out` is rounded before that division then, not after it.

use super::linear::check;
use crate::{AddNorm, Backend, LayerInput, NextNorm, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `residual`, `delta`, `next.out` | `[tokens, hidden]` |
/// | `layer`                         | as that of [`linear`](super::linear), with `hidden` outputs |
/// | weight of a norm                | `[hidden]`         |
///
/// Whether `delta` holds the product afterwards is not defined. Where the norm is bound, `next.out` is read by the product that it is bound to and by
/// nothing else, until an op writes it again. It is the only such tensor: the next `linear_add_norm` has the same one, or comes when this one is
/// not read any more.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn linear_add_norm<B: Backend>(
    backend: &mut B,
    residual: &mut Tensor<B::Storage>,
    delta: &mut Tensor<B::Storage>,
    layer: LayerInput<Tensor<B::Storage>, B::Matrix, B::Vector>,
    add: AddNorm<B::Vector>,
    next: NextNorm<Tensor<B::Storage>, B::Vector>,
) {
    check::<B>(layer);
    let (n, _) = B::matrix_shape(layer.weight);
    for tensor in [&*residual, &*delta, &*next.out] {
        assert_eq!((tensor.rows(), tensor.cols()), (layer.x.rows(), n));
    }
    assert!(add.post.is_none_or(|norm| B::vector_len(norm.weight) == norm.kind.weights(n)));
    assert_eq!(B::vector_len(next.norm.weight), next.norm.kind.weights(n));
    backend.linear_add_norm(residual, delta, layer, add, next);
}
