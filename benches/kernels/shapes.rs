//! Shapes of models, and of what one of several ranks computes of them.

use compute::AttentionSpec;

/// Weights of a model, and its heads.
#[derive(Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub width: usize,
    pub vocab: usize,
}

pub const SMALL: Shape = Shape {
    name: "0.6B",
    layers: 28,
    hidden: 1024,
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    width: 3072,
    vocab: 151_936,
};
pub const LARGE: Shape = Shape { name: "8B", layers: 36, hidden: 4096, heads: 32, width: 12_288, ..SMALL };
const QWEN_32B: Shape = Shape { name: "32B", layers: 64, hidden: 5120, heads: 64, width: 25_600, ..SMALL };
const LLAMA_70B: Shape =
    Shape { name: "70B", layers: 80, hidden: 8192, heads: 64, width: 28_672, vocab: 128_256, ..SMALL };

/// Shapes that the second argument names. `8B/2` is what one of two ranks computes.
pub const SHAPES: [Shape; 9] = [
    SMALL,
    LARGE,
    LARGE.rank_of(2, "8B/2"),
    LARGE.rank_of(4, "8B/4"),
    QWEN_32B.rank_of(2, "32B/2"),
    QWEN_32B.rank_of(4, "32B/4"),
    QWEN_32B,
    LLAMA_70B.rank_of(2, "70B/2"),
    LLAMA_70B.rank_of(4, "70B/4"),
];

impl Shape {
    /// What one of `ranks` ranks computes, which has a share of everything but the stream.
    const fn rank_of(self, ranks: usize, name: &'static str) -> Shape {
        let Shape { heads, kv_heads, width, vocab, .. } = self;
        let (heads, kv_heads) = (heads / ranks, kv_heads / ranks);
        Shape { name, heads, kv_heads, width: width / ranks, vocab: vocab / ranks, ..self }
    }

    pub fn attention(&self) -> AttentionSpec {
        AttentionSpec { heads: self.heads, scale: 0.088, window: None, softcap: None, reach: compute::Reach::Back }
    }

    pub fn qkv(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    pub fn linears(&self) -> [(&'static str, usize, usize); 4] {
        let attended = self.heads * self.head_dim;
        [
            ("qkv", self.qkv(), self.hidden),
            ("out", self.hidden, attended),
            ("gate_up", 2 * self.width, self.hidden),
            ("down", self.hidden, self.width),
        ]
    }
}
