//! What does a layer compute, in order, as far as it reads weights or keys? For explanations: nothing is computed by it.

use crate::linear::Linear;
use compute::Backend;
use compute::explain::{After, AttentionHeads};

/// Work of a layer.
pub enum Work<'a, B: Backend> {
    /// A product of all tokens.
    Product {
        /// What explanations call it.
        name: &'static str,
        /// Its weights.
        weight: &'a B::Matrix,
        /// What becomes of its sums.
        after: After,
    },
    /// A product of all tokens whose sums are added to the stream.
    Back {
        /// What explanations call it.
        name: &'static str,
        /// Its weights.
        weight: &'a B::Matrix,
        /// Those that alone read the norm of the stream behind it, if a device may compute that norm in this product.
        next: Option<&'a B::Matrix>,
    },
    /// A product of the tokens of each expert.
    Experts {
        /// What explanations call it.
        name: &'static str,
        /// Their weights.
        weight: &'a B::Experts,
        /// Experts of a token.
        chosen: usize,
        /// What becomes of its sums.
        after: After,
    },
    /// A product of all tokens for each head.
    Heads {
        /// What explanations call it.
        name: &'static str,
        /// Its weights.
        weight: &'a B::Heads,
    },
    /// Attention over keys and values.
    Attention(AttentionHeads),
    /// A recurrence over the tokens of each sequence.
    Recurrence(&'static str),
}

impl<'a, B: Backend> Work<'a, B> {
    /// The product of a layer whose sums are stored.
    pub fn product(name: &'static str, layer: &'a Linear<B>) -> Work<'a, B> {
        Work::Product { name, weight: layer.weight(), after: After::Store }
    }

    /// A product whose sums are added to the stream. [`Layer::work`](crate::layer::Layer::work) says which norm follows.
    pub fn back(name: &'static str, layer: &'a Linear<B>) -> Work<'a, B> {
        Work::Back { name, weight: layer.weight(), next: None }
    }
}
