//! What is a step made of, as explanations have it: which work is there, which kernel computes it, and how long does that take at least?
//!
//! Nothing here computes: kernels come from the same plans that passes are launched by.

use crate::{Activation, AttentionSpec, KvFormat, KvValues};
use formats::WeightFormat;

/// The work of a layer, or of the head, over the tokens of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// What it is called.
    pub name: &'static str,
    /// Rows that it is computed for.
    pub rows: usize,
    /// What it computes.
    pub kind: Kind,
}

/// What a part of a layer computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A product of all tokens.
    Product(Weights, After),
    /// A product of each token and the experts that are chosen for it.
    Experts {
        /// Of each of them.
        weights: Weights,
        /// How many there are.
        experts: usize,
        /// How many compute a token.
        chosen: usize,
        /// What becomes of the sums.
        after: After,
    },
    /// A product of all tokens for each head.
    Heads {
        /// Of each of them.
        weights: Weights,
        /// How many there are.
        heads: usize,
    },
    /// Attention.
    Attention(AttentionHeads),
    /// A recurrence, of which nothing is estimated.
    Recurrence,
}

/// The weights of a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Rows of weights that follow each other, and how they are stored.
    pub parts: Vec<(usize, WeightFormat)>,
    /// Numbers of a row.
    pub cols: usize,
}

/// What becomes of the sums of a product.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// They are stored.
    Store,
    /// They are gates over ups: `activation(gate) * up` is stored.
    Gate(Activation),
    /// They are added to the residual stream.
    Stream {
        /// The weights that alone read the norm of the stream behind. `None`: there are none.
        next: Option<Weights>,
    },
}

/// The heads of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionHeads {
    /// Query heads and their scores.
    pub spec: AttentionSpec,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Numbers of a key.
    pub head_dim: usize,
    /// Where its value is.
    pub values: KvValues,
    /// Whether queries and keys are at most normalized head by head and then rotated whole: what kernels that prepare heads themselves know.
    pub is_common: bool,
}

/// What each row of a pass brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Sequences.
    pub rows: usize,
    /// New tokens of each.
    pub tokens: usize,
    /// Tokens that each has in the end, the new ones included.
    pub context: usize,
    /// How keys and values are stored.
    pub kv_format: KvFormat,
}

/// How a part of the work is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The work, with its sizes.
    pub what: String,
    /// How its weights, or keys and values, are stored.
    pub format: String,
    /// The kernel, and what is computed apart from it.
    pub kernel: String,
    /// Thread blocks and threads of each, where they are known.
    pub grid: String,
    /// Parts that the sums are divided into.
    pub split: usize,
    /// Bytes that are read and written. 0: nothing is estimated.
    pub bytes: u64,
    /// Operations: two for each product of numbers.
    pub flops: u64,
}

impl Weights {
    /// Rows of all parts.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|(rows, _)| rows).sum()
    }

    /// The formats of all parts, each once.
    pub fn format(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for name in self.parts.iter().map(|(_, format)| format.to_string()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(" and ")
    }

    /// The format of a row.
    pub fn format_of(&self, row: usize) -> String {
        let mut end = 0;
        let has = |(rows, _): &&(usize, WeightFormat)| {
            end += rows;
            row < end
        };
        self.parts.iter().find(has).map_or_else(String::new, |(_, format)| format.to_string())
    }

    /// Bytes as the files have them.
    pub fn bytes(&self) -> u64 {
        let of = |format: &WeightFormat| format.row_bytes(self.cols) + format.scale_bytes(self.cols);
        self.parts.iter().map(|(rows, format)| (rows * of(format)) as u64).sum()
    }
}

impl Explained {
    /// A recurrence, of which nothing is estimated.
    pub fn of_recurrence(work: &Work) -> Explained {
        let (kernel, grid) = (String::new(), String::new());
        Explained { what: work.title(), format: String::new(), kernel, grid, split: 1, bytes: 0, flops: 0 }
    }
}

impl Work {
    /// Its name and sizes.
    pub fn title(&self) -> String {
        let Work { name, kind, .. } = self;
        match kind {
            Kind::Product(weights, _) => format!("{name}, {} x {}", weights.rows(), weights.cols),
            Kind::Experts { weights, experts, chosen, .. } => {
                format!("{name}, {} x {}, {chosen} of {experts} experts", weights.rows(), weights.cols)
            }
            Kind::Heads { weights, heads } => {
                format!("{name}, {} x {} for each of {heads} heads", weights.rows(), weights.cols)
            }
            Kind::Attention(AttentionHeads { spec, kv_heads, head_dim, .. }) => {
                let window = spec.window.map_or(String::new(), |window| format!(", window {window}"));
                format!("{name}, {} heads of {head_dim} over {kv_heads}{window}", spec.heads)
            }
            Kind::Recurrence => (*name).to_owned(),
        }
    }

    /// Operations: two for each product of numbers.
    pub fn flops(&self, pass: &Pass) -> u64 {
        let rows = self.rows as u64;
        match &self.kind {
            Kind::Product(weights, _) => 2 * rows * (weights.rows() * weights.cols) as u64,
            Kind::Experts { weights, chosen, .. } => 2 * rows * (chosen * weights.rows() * weights.cols) as u64,
            Kind::Heads { weights, heads } => 2 * rows * (heads * weights.rows() * weights.cols) as u64,
            Kind::Attention(heads) => {
                let of_head = heads.head_dim + heads.values.dim(heads.head_dim);
                2 * (heads.spec.heads * of_head) as u64 * heads.pairs(pass)
            }
            Kind::Recurrence => 0,
        }
    }
}

impl AttentionHeads {
    /// Keys that a row reads.
    fn keys(&self, pass: &Pass) -> usize {
        let first = self.spec.window_start(pass.context - pass.tokens);
        pass.context - first
    }

    /// Pairs of a new token and a key that it attends to, of all rows.
    fn pairs(&self, pass: &Pass) -> u64 {
        let of_token = |position| {
            let end = self.spec.window_end(position, pass.context);
            (end - self.spec.window_start(position)) as u64
        };
        pass.rows as u64 * (pass.context - pass.tokens..pass.context).map(of_token).sum::<u64>()
    }

    /// Bytes of keys and values that are read, and of queries and results in numbers of `number_bytes`.
    pub fn bytes(&self, pass: &Pass, number_bytes: usize) -> u64 {
        let format = pass.kv_format;
        let vectors = self.values.vectors();
        let numbers = vectors * self.head_dim;
        let of_key = self.kv_heads * (numbers * format.number_bytes() + 2 * format.scale_bytes());
        let of_queries = self.spec.heads * (self.head_dim + self.values.dim(self.head_dim));
        let new = pass.tokens * (of_queries + vectors * self.kv_heads * self.head_dim) * number_bytes;
        (pass.rows * (self.keys(pass) * of_key + new)) as u64
    }
}

/// Experts that some of `tokens` tokens choose, if each of `experts` is as likely.
pub fn distinct_experts(experts: usize, chosen: usize, tokens: usize) -> usize {
    let is_idle = (1.0 - chosen as f64 / experts as f64).powi(tokens.min(i32::MAX as usize) as i32);
    ((experts as f64 * (1.0 - is_idle)).round() as usize).clamp(chosen.min(experts), experts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reach;
    use formats::DType;

    fn heads(window: Option<usize>, reach: Reach) -> AttentionHeads {
        let spec = AttentionSpec { heads: 4, scale: 1.0, softcap: None, window, reach };
        AttentionHeads { spec, kv_heads: 2, head_dim: 8, values: KvValues::Stored, is_common: true }
    }

    #[test]
    fn tokens_attend_to_what_the_mask_leaves() {
        let pass = |rows, tokens, context| Pass { rows, tokens, context, kv_format: KvFormat::Plain(DType::Bf16) };
        for (heads, pass, pairs, keys) in [
            (heads(None, Reach::Back), pass(3, 1, 10), 30, 10),
            (heads(None, Reach::Back), pass(1, 4, 4), 1 + 2 + 3 + 4, 4),
            (heads(Some(3), Reach::Back), pass(2, 1, 10), 6, 3),
            (heads(Some(3), Reach::Back), pass(1, 2, 10), 6, 4),
            (heads(None, Reach::Both), pass(1, 4, 4), 16, 4),
        ] {
            assert_eq!((heads.pairs(&pass), heads.keys(&pass)), (pairs, keys), "{heads:?}, {pass:?}");
        }
    }

    #[test]
    fn a_token_reads_its_experts_and_many_read_all() {
        assert_eq!([1, 2, 10_000].map(|tokens| distinct_experts(128, 8, tokens)), [8, 16, 128]);
        assert_eq!(distinct_experts(4, 4, 1), 4);
    }
}
