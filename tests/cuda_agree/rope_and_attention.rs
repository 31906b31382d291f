//! `rope_and_attention`: the cache of the ops one by one, to the bit, and their attention.

use crate::scene::{
    Near, Random, Scene, assert_near, bound, coded, filled, host_vector, numbers, on_device, poisoned, staged, unit,
};
use compute::batch::{Batch, WindowTable};
use compute::cuda::{Chaining, Cuda, Vector};
use compute::ops;
use compute::{
    AttentionSpec, Device, HeadRows, KvPlace, KvShape, KvValues, NormExtent, NormOrder, Pairing, QkNormRope,
    QkNormWeights, RopeTable, Rounding, Scoring,
};
use formats::DType;

struct Case {
    /// Context of each row, its new token included; 0 pads.
    contexts: &'static [usize],
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    has_sinks: bool,
    has_norm: bool,
    /// Whether attention has the bits of the ops one by one, too: it adds up in the same order. With `batch_invariant` it always has.
    has_equal_bits: bool,
}

const QWEN3: Case = Case {
    contexts: &[547],
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    block_size: 64,
    window: None,
    softcap: None,
    has_sinks: false,
    has_norm: true,
    has_equal_bits: false,
};
const EIGHT: &[usize] = &[1, 16, 17, 15, 547, 2049, 64, 33];
/// More rows than a launch of few takes.
const MANY: Case = Case {
    contexts: &[1, 16, 17, 15, 547, 2049, 64, 33, 0, 65, 1000, 129, 2, 48, 0, 500],
    has_equal_bits: true,
    ..QWEN3
};

const CASES: &[Case] = &[
    QWEN3,
    Case { contexts: &[1], ..QWEN3 },
    Case { contexts: &[2], block_size: 16, ..QWEN3 },
    Case { contexts: &[20_000], ..QWEN3 },
    Case { contexts: &[256, 547], heads: 8, ..QWEN3 },
    Case { contexts: EIGHT, ..QWEN3 },
    Case { contexts: EIGHT, has_norm: false, ..QWEN3 },
    Case { contexts: EIGHT, heads: 32, ..QWEN3 },
    Case { contexts: &[300, 5, 1000], heads: 64, ..QWEN3 },
    Case { contexts: EIGHT, heads: 5, kv_heads: 1, ..QWEN3 },
    Case { contexts: EIGHT, heads: 6, kv_heads: 2, head_dim: 64, block_size: 16, ..QWEN3 },
    Case { contexts: &[600, 31], head_dim: 64, block_size: 256, has_norm: false, ..QWEN3 },
    Case { contexts: EIGHT, window: Some(1), ..QWEN3 },
    Case { contexts: EIGHT, window: Some(40), ..QWEN3 },
    Case { contexts: EIGHT, window: Some(513), head_dim: 64, ..QWEN3 },
    Case { contexts: &[100, 0, 547, 0], ..QWEN3 },
    Case { contexts: &[0], ..QWEN3 },
    Case { contexts: EIGHT, heads: 64, head_dim: 64, has_norm: false, has_sinks: true, window: Some(128), ..QWEN3 },
    Case { contexts: &[2049], heads: 64, head_dim: 64, has_norm: false, has_sinks: true, ..QWEN3 },
    Case { heads: 64, head_dim: 64, has_norm: false, has_sinks: true, ..MANY },
    MANY,
    Case { contexts: &[40, 50, 60, 70, 80, 90, 100, 110, 120], ..MANY },
    Case { contexts: &[1000; 40], ..MANY },
    Case { contexts: &[1; 300], ..MANY },
    Case { contexts: &[63; 256], block_size: 16, ..MANY },
    Case { contexts: &[20_000, 5, 1, 16_384, 64, 64, 640, 7, 8, 9], ..MANY },
    Case { contexts: &[0; 9], ..MANY },
    Case { contexts: &[100], kv_heads: 2, ..MANY },
    Case { has_norm: false, ..MANY },
    Case { heads: 64, ..MANY },
    Case { heads: 5, kv_heads: 1, softcap: Some(20.0), ..MANY },
    Case { contexts: EIGHT, softcap: Some(20.0), ..MANY },
    Case { heads: 6, kv_heads: 2, head_dim: 64, block_size: 16, ..MANY },
    Case { heads: 32, head_dim: 64, block_size: 256, has_norm: false, ..MANY },
    Case { window: Some(1), ..MANY },
    Case { window: Some(40), ..MANY },
    Case { window: Some(513), head_dim: 64, ..MANY },
    // Left to the ops one by one.
    Case { contexts: EIGHT, heads: 8, head_dim: 96, ..MANY },
    Case { heads: 9, kv_heads: 1, ..MANY },
];

const POSITIONS: usize = 20_000;

/// What the cases share on the device.
struct Tables {
    rope: Vector,
    norms: [Vector; 2],
}

struct Inputs {
    batch: Batch,
    blocks: usize,
    /// `[tokens, (heads + 2 kv_heads) * head_dim]`
    qkv: Vec<f32>,
    /// The cache with NaN where no row has a token before its last.
    cached: Vec<u8>,
}

impl Inputs {
    /// Those of one row.
    fn alone(&self, row: usize) -> Inputs {
        let Batch { token_ids, positions, slots, context_lens, sampling, .. } = &self.batch;
        let batch = Batch {
            token_ids: vec![token_ids[row]],
            positions: vec![positions[row]],
            slots: vec![slots[row]],
            row_starts: vec![0, 1],
            context_lens: vec![context_lens[row]],
            block_tables: self.batch.block_table(row).to_vec(),
            sampled_tokens: vec![0],
            sampling: vec![sampling[row]],
            table_width: self.batch.table_width,
            ..Batch::default()
        };
        let cols = self.qkv.len() / self.batch.rows();
        let (qkv, cached) = (self.qkv[row * cols..][..cols].to_vec(), self.cached.clone());
        Inputs { batch, blocks: self.blocks, qkv, cached }
    }

    /// The same with its block table in the third place, where the first and the second lead to other blocks.
    fn in_window_table(mut self) -> Inputs {
        let Batch { slots, block_tables, window_tables, .. } = &mut self.batch;
        let own = WindowTable { slots: slots.clone(), block_tables: block_tables.clone() };
        slots.reverse();
        block_tables.reverse();
        *window_tables = vec![WindowTable { slots: slots.clone(), block_tables: block_tables.clone() }, own];
        self
    }
}

impl Case {
    fn shape(&self, dtype: DType) -> KvShape {
        let Case { kv_heads, head_dim, block_size, .. } = *self;
        // The second layer is what a kernel may ask for ahead and must not use.
        KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size, format: dtype.into() }
    }

    fn tables(&self, cuda: &mut Cuda, dtype: DType) -> Tables {
        let (d, mut random) = (self.head_dim, Random(8));
        let rope = (0..POSITIONS).flat_map(|p| {
            let angles = (0..d / 2).map(move |i| p as f64 / 10_000f64.powf(2.0 * i as f64 / d as f64));
            let (c, s): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
            [c, s].concat()
        });
        let rope = cuda.table(&rope.collect::<Vec<_>>()).unwrap();
        let norms = [(); 2].map(|()| {
            let weights = numbers(&mut random, d, 1.5, dtype);
            cuda.vector(&[host_vector(&weights, dtype)]).unwrap()
        });
        Tables { rope, norms }
    }

    fn inputs(&self, dtype: DType) -> Inputs {
        let Case { contexts, heads, kv_heads, head_dim: d, block_size, .. } = *self;
        let mut random = Random(9);
        let rows: Vec<(usize, usize)> = contexts.iter().map(|context| (context.saturating_sub(1), 1)).collect();
        let mut scene = Scene::new(&rows, block_size, &mut random);
        let mut cached = vec![f32::NAN; scene.blocks * kv_heads * 2 * block_size * d];
        for (row, &(before, _)) in rows.iter().enumerate() {
            for (position, part) in (0..before).flat_map(|position| (0..2 * kv_heads).map(move |part| (position, part)))
            {
                let slot = scene.slot(row, position);
                let at = ((slot / block_size * kv_heads * 2 + part) * block_size + slot % block_size) * d;
                cached[at..][..d].copy_from_slice(&numbers(&mut random, d, 1.0, dtype));
            }
        }
        for (row, _) in contexts.iter().enumerate().filter(|(_, context)| **context == 0) {
            scene.batch.context_lens[row] = 0;
            scene.batch.slots[row] = u32::MAX;
        }
        let qkv = numbers(&mut random, rows.len() * (heads + 2 * kv_heads) * d, 2.0, dtype);
        let mut cached = coded(&cached, dtype);
        cached.resize(scene.blocks * 2 * self.shape(dtype).block_bytes(), 0xff);
        Inputs { batch: scene.batch, blocks: scene.blocks, qkv, cached }
    }

    /// Attention of the rows that do not pad, and the bytes of the cache.
    fn run(
        &self,
        cuda: &mut Cuda,
        tables: &Tables,
        inputs: &Inputs,
        dtype: DType,
        is_fused: bool,
    ) -> (Vec<Vec<f32>>, Vec<u8>) {
        let Case { heads, kv_heads, head_dim, window, softcap, has_norm, has_sinks, .. } = *self;
        let reach = compute::Reach::Back;
        let spec = AttentionSpec { heads, scale: (head_dim as f32).powf(-0.5), window, softcap, reach };
        cuda.set_windows([window]);
        let mut cache = cuda.kv_cache(&self.shape(dtype).layers(2), inputs.blocks).unwrap();
        cache.fill(&inputs.cached).unwrap();
        let device_batch = staged(cuda, &inputs.batch);
        let place = KvPlace { layer: 0, part: None, table: inputs.batch.window_tables.len() };
        let mut qkv = filled(cuda, &inputs.qkv, (heads + 2 * kv_heads) * head_dim);
        let mut out = poisoned(cuda, inputs.batch.tokens(), heads * head_dim);
        let extent = NormExtent::Head(NormOrder::BeforeRope);
        let [query, key] = &tables.norms;
        let transform = QkNormRope {
            norm: has_norm.then_some(QkNormWeights { query, key, eps: 1e-6, extent }),
            whole: None,
            rope: Some(RopeTable { table: &tables.rope, rotary: head_dim, pairing: Pairing::Halves }),
            temperature: None,
            value_norm: None,
        };
        let sinks = has_sinks.then(|| cuda.table(&Random(9).numbers(heads, 4.0)).unwrap());
        let scoring = Scoring { spec: &spec, sinks: sinks.as_ref() };
        if is_fused {
            let rows = HeadRows { qkv: &mut qkv, out: &mut out };
            ops::rope_and_attention(cuda, scoring, rows, transform, &mut cache, place, &device_batch);
        } else {
            ops::rope_and_cache(cuda, &spec, &mut qkv, transform, &mut cache, place, &device_batch);
            ops::attention(cuda, scoring, &mut out, &qkv, &cache, place, &device_batch);
        }
        let out = cuda.read(&out).unwrap();
        let rows = out.chunks_exact(heads * head_dim).zip(&inputs.batch.context_lens);
        let rows = rows.filter(|(_, context)| **context > 0).map(|(row, _)| row.to_vec()).collect();
        (rows, cache.bytes().unwrap())
    }
}

/// What other attention found, as far as a second one may be from it. Either rounds its weights, as `Dot::near_rounded` says: 12 units of the
/// root of the sum of squares of weights times values, which for values of either sign is the size of the results of a head. Two of them
/// are `sqrt(2)` times as far apart; 24 has room for columns whose values are greater than most. Either result is rounded.
fn near(wanted: &[f32], head_dim: usize, dtype: DType) -> Vec<Near> {
    let heads = wanted.chunks_exact(head_dim).flat_map(|head| {
        let size = (head.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / head_dim as f64).sqrt();
        head.iter().map(move |&v| {
            let value = f64::from(v);
            Near::stored(value, unit(dtype) * (24.0 * size + value.abs()), dtype)
        })
    });
    heads.collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn attention_that_prepares_its_rows_agrees_with_the_ops_one_by_one() {
    on_device(|cuda, dtype| {
        for (index, case) in CASES.iter().enumerate() {
            let (tables, inputs) = (case.tables(cuda, dtype), case.inputs(dtype));
            for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
                cuda.set_rounding(rounding);
                cuda.set_chaining(Chaining::Strict);
                let (wanted, wanted_cache) = case.run(cuda, &tables, &inputs, dtype, false);
                for chaining in [Chaining::Strict, Chaining::DependentLaunch] {
                    cuda.set_chaining(chaining);
                    let (rows, cache) = case.run(cuda, &tables, &inputs, dtype, true);
                    let what = format!("case {index}, {:?}, {dtype:?}, {rounding:?}, {chaining:?}", case.contexts);
                    assert!(cache == wanted_cache, "the cache of {what}");
                    for (row, wanted) in rows.iter().zip(&wanted) {
                        match case.has_equal_bits || rounding == Rounding::BatchInvariant {
                            true => assert!(row == wanted, "{what}"),
                            false => assert_near(row, &near(wanted, case.head_dim, dtype), bound(dtype), &what),
                        }
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_layer_reads_and_writes_through_the_block_table_of_its_group() {
    on_device(|cuda, dtype| {
        for (index, case) in CASES.iter().enumerate().step_by(5) {
            let (tables, inputs) = (case.tables(cuda, dtype), case.inputs(dtype));
            let moved = case.inputs(dtype).in_window_table();
            for (rounding, is_fused) in
                [(Rounding::Fastest, true), (Rounding::Fastest, false), (Rounding::BatchInvariant, true)]
            {
                cuda.set_rounding(rounding);
                let wanted = case.run(cuda, &tables, &inputs, dtype, is_fused);
                let found = case.run(cuda, &tables, &moved, dtype, is_fused);
                assert!(found == wanted, "case {index}, {dtype:?}, {rounding:?}, one launch: {is_fused}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn attention_that_prepares_a_row_gives_it_the_same_bits_alone_and_beside_another() {
    on_device(|cuda, dtype| {
        for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
            cuda.set_rounding(rounding);
            let case = Case { contexts: &[547, 33], ..QWEN3 };
            let (tables, inputs) = (case.tables(cuda, dtype), case.inputs(dtype));
            let (together, _) = case.run(cuda, &tables, &inputs, dtype, true);
            for (row, wanted) in together.iter().enumerate() {
                let (rows, _) = case.run(cuda, &tables, &inputs.alone(row), dtype, true);
                assert!(rows[0] == *wanted, "row {row}, {dtype:?}, {rounding:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn attention_that_prepares_a_row_gives_it_the_same_bits_among_any_number_if_batch_invariant() {
    on_device(|cuda, dtype| {
        cuda.set_rounding(Rounding::BatchInvariant);
        for case in [MANY, Case { heads: 64, ..MANY }, Case { window: Some(513), head_dim: 64, ..MANY }] {
            let (tables, inputs) = (case.tables(cuda, dtype), case.inputs(dtype));
            let (together, _) = case.run(cuda, &tables, &inputs, dtype, true);
            let rows = (0..case.contexts.len()).filter(|&row| case.contexts[row] > 0);
            for (row, wanted) in rows.zip(&together) {
                let (rows, _) = case.run(cuda, &tables, &inputs.alone(row), dtype, true);
                assert!(rows[0] == *wanted, "row {row} of {} heads of {}, {dtype:?}", case.heads, case.head_dim);
            }
        }
    });
}
