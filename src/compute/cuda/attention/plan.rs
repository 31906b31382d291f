//! Which kernels compute the attention of a layer in a pass?
//!
//! Pure functions: they read no device and launch nothing. Limits of a kernel are in its file, with the figures that they were measured with.

use super::{decode, few, few_units, hopper, prefill, units};
use crate::cuda::driver::Facts;
use crate::{AttentionSpec, KvShape, Reach, Rounding};

/// The attention of a layer, and the rows of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    pub spec: &'a AttentionSpec,
    pub shape: KvShape,
    pub rows: Rows,
}

/// The rows of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pub rows: usize,
    /// Whether each brings one new token that decode kernels take.
    pub is_decode: bool,
    /// Whether some do.
    pub has_decode: bool,
    /// Whether some bring several.
    pub has_prompts: bool,
    /// Whether some share keys, which are read once for all of them.
    pub shares_keys: bool,
}

/// What is done to heads before attention.
#[derive(Clone, Copy, Debug)]
pub struct PreparedHeads {
    /// Whether the kernels that do it themselves know it.
    pub are_known: bool,
}

/// A kernel that prepares heads, attends, and stores keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fused {
    /// `attention_few.cu`, or batch-invariant `attention_few_units.cu`, with this number of thread blocks for each (row, KV head).
    Few { cluster: usize },
    /// `attention_decode.cu`.
    Decode(decode::Plan),
}

/// The kernels of prepared heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of rows with one new token.
    pub decode: Option<Decode>,
    /// Of rows with several.
    pub prompts: Option<Prompts>,
}

/// The kernel of rows with one new token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decode {
    /// `attention_decode.cu`.
    Split(decode::Plan),
    /// `attention_units.cu`, batch-invariant.
    Units,
    /// `attention_prefill.cu`, batch-invariant, where the device or the cache has no other.
    Invariant,
}

/// The kernel of rows with several new tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompts {
    /// `attention_hopper.cu`.
    Hopper,
    /// `attention_prefill.cu`.
    Prefill(prefill::Plan),
}

/// The kernel that prepares heads itself. `None`: there is none for this layer or these rows.
pub fn fused(attention: &Attention, heads: PreparedHeads, gpu: Facts, rounding: Rounding) -> Option<Fused> {
    let Attention { spec, shape, rows } = attention;
    // Rows that share keys have a partition that begins behind them.
    if !heads.are_known || !rows.is_decode || rows.shares_keys || !few::knows_cache(gpu, shape) {
        return None;
    }
    let least = match rounding {
        Rounding::Fastest => Some(1),
        Rounding::BatchInvariant => units::is_chosen(gpu, shape, rounding).then_some(few_units::CLUSTER_MIN),
    };
    let cluster = few::cluster(rows.rows * shape.kv_heads, gpu, rounding);
    let is_few = few::fits(gpu, shape) && rows.rows <= few::ROWS_MAX && spec.softcap.is_none();
    match (cluster, least) {
        (Some(cluster), Some(least)) if is_few && cluster >= least => Some(Fused::Few { cluster }),
        _ if rounding == Rounding::Fastest && rows.has_decode => {
            Some(Fused::Decode(decode::Plan { is_shared: false, is_raw: true, group_max: few::GROUP_MAX }))
        }
        _ => None,
    }
}

/// The kernels of heads that are prepared.
pub fn plan(attention: &Attention, gpu: Facts, rounding: Rounding) -> Plan {
    let Attention { spec, shape, rows } = attention;
    let decode = match rounding {
        Rounding::Fastest => Decode::Split(decode::Plan {
            is_shared: rows.shares_keys,
            is_raw: false,
            group_max: if spec.heads / shape.kv_heads > 8 { 16 } else { 8 },
        }),
        Rounding::BatchInvariant if units::is_chosen(gpu, shape, rounding) => Decode::Units,
        Rounding::BatchInvariant => Decode::Invariant,
    };
    let prompts = match spec.reach {
        Reach::Back if hopper::tile_queries(gpu, shape, rounding).is_some() => Prompts::Hopper,
        Reach::Back | Reach::Both => Prompts::Prefill(prefill::Plan::Prefill),
    };
    Plan { decode: rows.has_decode.then_some(decode), prompts: rows.has_prompts.then_some(prompts) }
}

/// The kernels of a pass, as explanations and `tests/plans` have them.
pub fn describe(attention: &Attention, heads: PreparedHeads, gpu: Facts, rounding: Rounding) -> String {
    let d = attention.shape.head_dim;
    match fused(attention, heads, gpu, rounding) {
        Some(Fused::Few { cluster }) if rounding == Rounding::Fastest => {
            format!("attention_few_d{d}, {cluster} thread blocks for a row and KV head")
        }
        Some(Fused::Few { cluster }) => {
            format!("attention_few_units_d{d}, {cluster} thread blocks for a row and KV head")
        }
        Some(Fused::Decode(plan)) => plan.kernel(d),
        None => {
            let Plan { decode, prompts } = plan(attention, gpu, rounding);
            let decode = decode.map(|decode| match decode {
                Decode::Split(plan) if plan.is_shared => format!("attention_shared_d{d}, {}", plan.kernel(d)),
                Decode::Split(plan) => plan.kernel(d),
                Decode::Units => format!("attention_units_d{d}"),
                Decode::Invariant => prefill::Plan::Invariant.kernel(d),
            });
            let prompts = prompts.map(|prompts| match (prompts, rounding) {
                (Prompts::Hopper, Rounding::Fastest) => format!("attention_hopper_d{d}"),
                (Prompts::Hopper, Rounding::BatchInvariant) => format!("attention_hopper_units_d{d}"),
                (Prompts::Prefill(plan), _) => plan.kernel(d),
            });
            ["rope_and_cache".to_owned()].into_iter().chain(decode).chain(prompts).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared;
    use super::*;
    use crate::cuda::gpus::{A100, H100, RTX_4090};
    use crate::{KvFormat, KvValues};
    use formats::DType;
    use std::fmt::Write;

    /// What a pass brings.
    const ROWS: [(&str, Rows); 3] = [
        ("decode", Rows { rows: 1, is_decode: true, has_decode: true, has_prompts: false, shares_keys: false }),
        ("shared", Rows { rows: 1, is_decode: true, has_decode: true, has_prompts: false, shares_keys: true }),
        ("mixed", Rows { rows: 2, is_decode: false, has_decode: true, has_prompts: true, shares_keys: false }),
    ];

    fn table(gpu: Facts, rounding: Rounding) -> String {
        let mut table = String::new();
        // Query heads, KV heads, the size of a head, and whether kernels know how heads are prepared.
        for (model, [heads, kv_heads, head_dim], are_known) in [
            ("0.6B", [16, 8, 128], true),
            ("8B", [32, 8, 128], true),
            ("30B-A3B", [32, 4, 128], true),
            ("heads that are prepared apart", [32, 16, 128], false),
            ("wide heads", [16, 1, 512], false),
        ] {
            for format in [KvFormat::Plain(DType::Bf16), KvFormat::Int8] {
                let shape = KvShape { block_size: 16, kv_heads, head_dim, values: KvValues::Stored, format };
                let spec = AttentionSpec { heads, scale: 1.0, softcap: None, window: None, reach: Reach::Back };
                writeln!(table, "\n{model}, {heads} heads of {head_dim} over {kv_heads}, {format:?}")
                    .expect("a string");
                let shares = shared::sharing(gpu, &shape, heads).is_some();
                for (name, rows) in ROWS.into_iter().filter(|(_, rows)| shares || !rows.shares_keys) {
                    let text_of = |count| {
                        let rows = Rows { rows: count, ..rows };
                        describe(&Attention { spec: &spec, shape, rows }, PreparedHeads { are_known }, gpu, rounding)
                    };
                    let mut range = (rows.rows, text_of(rows.rows));
                    for count in rows.rows + 1..=257 {
                        let next = if count > 256 { String::new() } else { text_of(count) };
                        if next != range.1 {
                            let (first, last) = (range.0, count - 1);
                            writeln!(table, "  {name}, {first:>3} to {last:>3} rows: {}", range.1).expect("a string");
                            range = (count, next);
                        }
                    }
                }
            }
        }
        table
    }

    /// `NVLLM_WRITE_PLANS=1` writes the file instead: what changes in it is to be read.
    #[test]
    fn plans_are_those_of_the_committed_file() {
        let mut text = "Kernels of attention: fused and plan in src/compute/cuda/attention/plan.rs.\n".to_owned();
        for (name, gpu) in [("H100", H100), ("A100", A100), ("RTX 4090", RTX_4090)] {
            for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
                write!(text, "\n{name}, {rounding:?}\n{}", table(gpu, rounding)).expect("a string");
            }
        }
        crate::cuda::gemm::compare_with_committed("attention", &text);
    }

    #[test]
    fn every_row_has_a_kernel() {
        for (gpu, rounding, head_dim, reach) in [H100, A100, RTX_4090].into_iter().flat_map(|gpu| {
            let heads = [64, 80, 128, 512].into_iter();
            heads.flat_map(move |d| {
                [Rounding::Fastest, Rounding::BatchInvariant]
                    .into_iter()
                    .flat_map(move |rounding| [Reach::Back, Reach::Both].map(|reach| (gpu, rounding, d, reach)))
            })
        }) {
            let shape = KvShape {
                block_size: 16,
                kv_heads: 2,
                head_dim,
                values: KvValues::Stored,
                format: KvFormat::Plain(DType::F16),
            };
            let spec = AttentionSpec { heads: 4, scale: 1.0, softcap: None, window: Some(9), reach };
            for (name, rows) in ROWS {
                let plan = plan(&Attention { spec: &spec, shape, rows }, gpu, rounding);
                assert_eq!(plan.decode.is_some(), rows.has_decode, "{name}, {head_dim}, {rounding:?}");
                assert_eq!(plan.prompts.is_some(), rows.has_prompts, "{name}, {head_dim}, {rounding:?}");
            }
        }
    }
}
