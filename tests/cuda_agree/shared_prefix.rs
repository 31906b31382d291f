//! `attention` of rows that share blocks: a prefix of all rows, nested ones, and rows that share with none.

use crate::attention::{AttentionCase, AttentionInput, QWEN3};
use crate::scene::{Random, Scene, assert_near, bound, filled, formats, on_device, poisoned, staged};
use compute::cuda::{Chaining, Cuda};
use compute::ops;
use compute::{Device, KvFormat, KvShape, Rounding, Scoring, SharedPrefixes};
use formats::DType;

/// Rows that begin with the same blocks.
struct Group {
    rows: usize,
    /// Which prefixes, and how many blocks each has: groups that name the same prefix first share these blocks.
    prefixes: &'static [(usize, usize)],
    /// Tokens of the first row behind them, its new ones included. The others have some more.
    own: usize,
    new: usize,
}

const fn group(rows: usize, prefixes: &'static [(usize, usize)], own: usize) -> Group {
    Group { rows, prefixes, own, new: 1 }
}

struct SharedCase {
    attention: AttentionCase,
    groups: &'static [Group],
    /// Rows take turns among the groups, instead of group after group.
    takes_turns: bool,
}

const fn case(attention: AttentionCase, groups: &'static [Group]) -> SharedCase {
    SharedCase { attention, groups, takes_turns: false }
}

const fn named(name: &'static str) -> AttentionCase {
    AttentionCase { name, ..QWEN3 }
}

const MIXED: &[Group] =
    &[group(5, &[(0, 3)], 20), group(1, &[(1, 2)], 70), group(3, &[(2, 1)], 1), group(2, &[(3, 9)], 130)];
const NESTED: &[Group] = &[
    group(3, &[(0, 2), (1, 3), (2, 1)], 10),
    group(4, &[(0, 2), (1, 3)], 1),
    group(2, &[(0, 2), (3, 5)], 200),
    group(1, &[(0, 2)], 5),
    group(7, &[(4, 1), (5, 1), (6, 1)], 64),
];

const CASES: &[SharedCase] = &[
    case(named("two rows, a block"), &[group(2, &[(0, 1)], 1)]),
    case(named("three rows, two blocks"), &[group(3, &[(0, 2)], 64)]),
    case(named("five rows, 31 blocks"), &[group(5, &[(0, 31)], 63)]),
    case(named("64 rows, 32 blocks"), &[group(64, &[(0, 32)], 65)]),
    case(AttentionCase { heads: 4, kv_heads: 2, ..named("256 rows, two blocks") }, &[group(256, &[(0, 2)], 30)]),
    case(named("mixed"), MIXED),
    case(AttentionCase { has_sinks: true, ..named("mixed, with sinks") }, MIXED),
    SharedCase { takes_turns: true, ..case(named("mixed, by turns"), MIXED) },
    SharedCase { takes_turns: true, ..case(named("nested"), NESTED) },
    SharedCase { takes_turns: true, ..case(named("nested, small blocks").of(128, 16), NESTED) },
    SharedCase { takes_turns: true, ..case(named("nested, heads of 64").of(64, 32), NESTED) },
    case(AttentionCase { kv_heads: 16, ..named("group of 1").of(64, 16) }, MIXED),
    case(AttentionCase { heads: 6, kv_heads: 2, ..named("group of 3").of(128, 16) }, MIXED),
    case(AttentionCase { kv_heads: 2, ..named("group of 8").of(128, 256) }, MIXED),
    case(AttentionCase { kv_heads: 1, ..named("group of 16").of(64, 64) }, NESTED),
    case(AttentionCase { heads: 9, kv_heads: 1, ..named("group of 9").of(128, 32) }, NESTED),
    case(AttentionCase { window: Some(300), ..named("a window that some rows are longer than") }, MIXED),
    case(AttentionCase { window: Some(20), ..named("a window shorter than all") }, MIXED),
    case(AttentionCase { softcap: Some(1.0), ..named("a softcap") }, NESTED),
    case(AttentionCase { softcap: Some(1.0), ..named("a softcap, blocks of 16").of(64, 16) }, MIXED),
    case(
        named("among chunks of prompts"),
        &[
            Group { rows: 2, prefixes: &[(0, 2)], own: 100, new: 90 },
            group(3, &[(0, 2)], 33),
            Group { rows: 1, prefixes: &[], own: 40, new: 40 },
            group(2, &[(1, 1)], 7),
        ],
    ),
    case(AttentionCase { ..named("heads that have no kernel for it").of(96, 16) }, MIXED),
];

/// Tokens before and in the batch of a row, and its prefixes.
type Row = ((usize, usize), &'static [(usize, usize)]);

impl SharedCase {
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (g, group) in self.groups.iter().enumerate() {
            let prefix: usize = group.prefixes.iter().map(|(_, blocks)| blocks * self.attention.block_size).sum();
            for i in 0..group.rows {
                let own = group.own + i * 13 % 70;
                rows.push(((i, g), ((prefix + own - group.new, group.new), group.prefixes)));
            }
        }
        if self.takes_turns {
            rows.sort_by_key(|(turn, _)| *turn);
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn input(&self, dtype: DType, format: KvFormat) -> AttentionInput {
        let mut random = Random(11);
        let rows = self.rows();
        let tokens: Vec<(usize, usize)> = rows.iter().map(|row| row.0).collect();
        let mut scene = Scene::new(&tokens, self.attention.block_size, &mut random);
        // Prefixes are blocks of their own, behind those of all rows.
        let mut first_block = [usize::MAX; 16];
        for (row, (_, prefixes)) in rows.iter().enumerate() {
            let mut at = row * scene.batch.table_width;
            for &(prefix, blocks) in *prefixes {
                if first_block[prefix] == usize::MAX {
                    first_block[prefix] = scene.blocks;
                    scene.blocks += blocks;
                }
                for block in first_block[prefix]..first_block[prefix] + blocks {
                    scene.batch.block_tables[at] = block as u32;
                    at += 1;
                }
            }
        }
        AttentionInput::over(scene, &self.attention, dtype, format, random)
    }
}

/// Results with and without shared keys, both near the reference; the first have equal bits however they are launched.
fn check(cuda: &mut Cuda, dtype: DType, case: &SharedCase, format: KvFormat) {
    let attention = &case.attention;
    let spec = attention.spec();
    cuda.set_windows([spec.window]);
    cuda.set_query_heads(attention.heads);
    let input = case.input(dtype, format);
    let KvShape { kv_heads, head_dim: d, .. } = input.shape;
    let batch = &input.scene.batch;
    let mut cache = cuda.kv_cache(&input.shape.layers(2), input.scene.blocks).unwrap();
    cache.fill(&input.bytes).unwrap();
    let qkv = filled(cuda, &input.qkv, (attention.heads + 2 * kv_heads) * d);
    let expected = input.expected(&spec, dtype);
    let run = |cuda: &mut Cuda, shared: SharedPrefixes, rounding: Rounding, chaining: Chaining| {
        cuda.set_shared_prefixes(shared);
        let device_batch = staged(cuda, batch);
        cuda.set_rounding(rounding);
        cuda.set_chaining(chaining);
        let mut out = poisoned(cuda, batch.tokens(), attention.heads * d);
        let sinks = input.sinks.as_ref().map(|sinks| cuda.table(sinks).unwrap());
        ops::attention(cuda, Scoring { spec: &spec, sinks: sinks.as_ref() }, &mut out, &qkv, &cache, 0, &device_batch);
        cuda.set_rounding(Rounding::Fastest);
        let out = cuda.read(&out).unwrap();
        let what = format!("{}, {dtype:?}, {format:?}, {shared:?}, {rounding:?}, {chaining:?}", attention.name);
        assert_near(&out, &expected, bound(dtype), &what);
        (out, device_batch.decode_plan(0, spec.window).plan.shared.units.len(), what)
    };
    let fastest = Rounding::Fastest;
    let (first, units, what) = run(cuda, SharedPrefixes::Always, fastest, Chaining::DependentLaunch);
    let may_share = [64, 128].contains(&d) && spec.window.is_none_or(|window| window > 100);
    assert_eq!(units > 0, may_share, "{what}");
    for chaining in [Chaining::Strict, Chaining::DependentLaunch] {
        assert!(run(cuda, SharedPrefixes::Always, fastest, chaining).0 == first, "{what}: other bits by {chaining:?}");
    }
    let (alone, none, _) = run(cuda, SharedPrefixes::Never, fastest, Chaining::DependentLaunch);
    assert_eq!(none, 0);
    assert!((alone == first) == (units == 0), "{what}: the order of sums differs if and only if keys are shared");
    // A plan with shared keys has no effect on batch-invariant results.
    let invariant = Rounding::BatchInvariant;
    let (alone, ..) = run(cuda, SharedPrefixes::Never, invariant, Chaining::DependentLaunch);
    assert!(run(cuda, SharedPrefixes::Always, invariant, Chaining::DependentLaunch).0 == alone, "{what}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn attention_of_rows_that_share_blocks_agrees() {
    on_device(|cuda, dtype| {
        for (case, format) in CASES.iter().flat_map(|case| formats(dtype).map(|format| (case, format))) {
            check(cuda, dtype, case, format);
        }
    });
}

/// By default only where it pays: 40 rows that share 2,048 tokens, and not 3 of them.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn keys_are_shared_where_that_saves_much() {
    on_device(|cuda, dtype| {
        cuda.set_windows([None]);
        cuda.set_query_heads(16);
        for (groups, is_shared) in [([group(40, &[(0, 32)], 9)], true), ([group(3, &[(0, 32)], 9)], false)] {
            let groups: &'static [Group] = Box::leak(Box::new(groups));
            let case = SharedCase { attention: named("by default"), groups, takes_turns: false };
            let input = case.input(dtype, dtype.into());
            let _cache = cuda.kv_cache(&input.shape.layers(2), input.scene.blocks).unwrap();
            let device_batch = staged(cuda, &input.scene.batch);
            assert_eq!(!device_batch.decode_plan(0, None).plan.shared.units.is_empty(), is_shared);
        }
    });
}
