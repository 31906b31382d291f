//! `attention`.

use crate::column::{Column, Op, agrees};
use crate::scene::{Random, Row, Sequences, uploaded};
use compute::batch::{Batch, WindowTable};
use compute::cpu::{Cpu, Isa, KvCache, reference};
use compute::ops;
use compute::{AttentionSpec, Device, KvFormat, KvPlace, KvShape, KvValues, QkNormRope, Reach, Scoring};
use formats::DType;

#[derive(Clone)]
struct Case {
    /// Tokens of each row before and in this batch.
    rows: &'static [(usize, usize)],
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
    format: KvFormat,
    window: Option<usize>,
    softcap: Option<f32>,
    /// Greatest absolute value of sinks, if there are any.
    sinks: Option<f32>,
    reach: Reach,
    /// Greatest absolute value of queries and keys.
    size: f32,
    values: KvValues,
}

const SMALL: Case = Case {
    rows: &[(0, 1)],
    heads: 2,
    kv_heads: 1,
    head_dim: 16,
    block_size: 16,
    format: KvFormat::Plain(DType::F32),
    window: None,
    softcap: None,
    sinks: None,
    reach: Reach::Back,
    size: 1.0,
    values: KvValues::Stored,
};

/// Qwen3-0.6B.
const QWEN3: Case = Case { heads: 16, kv_heads: 8, head_dim: 128, format: KvFormat::Plain(DType::Bf16), ..SMALL };

/// Keys and values that a device of bf16 products takes.
const BF16: Case = Case { rows: RAGGED, format: KvFormat::Plain(DType::Bf16), ..SMALL };

const INT8: Case = Case { rows: RAGGED, format: KvFormat::Int8, ..SMALL };

/// Keys that end with their values.
const LATENT: Case = Case { heads: 6, head_dim: 24, values: KvValues::InKeys(16), ..RAGGED_CASE };
const LATENT_INT8: Case = Case { format: KvFormat::Int8, ..LATENT };

/// Whole texts, whose tokens look both ways.
const BOTH: Case = Case { rows: TEXTS, reach: Reach::Both, ..SMALL };
const BOTH_BF16: Case = Case { format: KvFormat::Plain(DType::Bf16), ..BOTH };

const TEXTS: &[(usize, usize)] = &[(0, 37), (0, 1), (0, 2), (0, 64), (0, 130), (0, 65)];

const RAGGED_CASE: Case = Case { rows: RAGGED, ..SMALL };

const DECODE: &[(usize, usize)] = &[(3, 1), (98, 1), (99, 1), (100, 1), (163, 1), (164, 1), (500, 1)];

const RAGGED: &[(usize, usize)] = &[(0, 37), (64, 1), (63, 2), (100, 30), (0, 1), (5, 60)];

struct Attention;

impl Op for Attention {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("one token that sees itself alone", SMALL),
        ("decode batch", Case { rows: &[(3, 1), (63, 1), (64, 1), (200, 1)], ..SMALL }),
        ("a prompt over several steps of keys", Case { rows: &[(0, 150)], ..SMALL }),
        ("ragged prefill", Case { rows: RAGGED, ..SMALL }),
        ("ragged prefill, f16", Case { rows: RAGGED, format: KvFormat::Plain(DType::F16), ..SMALL }),
        ("ragged prefill, bf16", Case { rows: RAGGED, format: KvFormat::Plain(DType::Bf16), ..SMALL }),
        ("blocks of one token", Case { rows: RAGGED, block_size: 1, ..SMALL }),
        ("blocks of 7 tokens", Case { rows: RAGGED, block_size: 7, format: KvFormat::Plain(DType::Bf16), ..SMALL }),
        ("blocks of 256 tokens", Case { rows: RAGGED, block_size: 256, ..SMALL }),
        ("a key and value head for each query head", Case { rows: RAGGED, heads: 3, kv_heads: 3, ..SMALL }),
        ("groups of 3", Case { rows: RAGGED, heads: 6, kv_heads: 2, ..SMALL }),
        ("groups of 4", Case { rows: RAGGED, heads: 8, kv_heads: 2, format: KvFormat::Plain(DType::Bf16), ..SMALL }),
        ("groups of 8", Case { rows: RAGGED, heads: 8, kv_heads: 1, ..SMALL }),
        ("groups of 16", Case { rows: RAGGED, heads: 16, kv_heads: 1, format: KvFormat::Plain(DType::Bf16), ..SMALL }),
        ("groups larger than a tile", Case { rows: &[(0, 3), (70, 1)], heads: 64, kv_heads: 1, ..SMALL }),
        ("heads of 8", Case { rows: RAGGED, head_dim: 8, ..SMALL }),
        ("heads of 24", Case { rows: RAGGED, head_dim: 24, format: KvFormat::Plain(DType::F16), ..SMALL }),
        ("heads of 64", Case { rows: RAGGED, head_dim: 64, ..SMALL }),
        ("heads of 72", Case { rows: RAGGED, head_dim: 72, format: KvFormat::Plain(DType::Bf16), ..SMALL }),
        ("heads of 80", Case { rows: RAGGED, head_dim: 80, format: KvFormat::Plain(DType::Bf16), ..SMALL }),
        ("heads of 256", Case { rows: RAGGED, head_dim: 256, ..SMALL }),
        ("heads of 32, groups larger than a tile, bf16", Case { heads: 80, head_dim: 32, ..BF16 }),
        ("heads of 64, groups of 7, bf16", Case { heads: 14, kv_heads: 2, head_dim: 64, ..BF16 }),
        ("heads of 96, blocks of 5 tokens, bf16", Case { head_dim: 96, block_size: 5, ..BF16 }),
        ("heads of 256, bf16", Case { head_dim: 256, ..BF16 }),
        ("heads of 512", Case { rows: RAGGED, head_dim: 512, ..SMALL }),
        ("heads of 512, groups of 16, bf16", Case { heads: 16, kv_heads: 1, head_dim: 512, ..BF16 }),
        ("scores of a dozen, bf16", Case { head_dim: 64, size: 2.5, ..BF16 }),
        ("heads of 6, fewer than lanes", Case { rows: RAGGED, head_dim: 6, ..SMALL }),
        (
            "heads of 30, no multiple of lanes",
            Case { rows: RAGGED, head_dim: 30, format: KvFormat::Plain(DType::Bf16), ..SMALL },
        ),
        ("scores so large that one key takes all", Case { rows: RAGGED, size: 200.0, ..SMALL }),
        ("scores of nearly nothing", Case { rows: RAGGED, size: 1e-20, ..SMALL }),
        ("a window of one token", Case { window: Some(1), ..RAGGED_CASE }),
        ("a window of one token, bf16", Case { window: Some(1), ..BF16 }),
        ("a window within a step of keys", Case { window: Some(20), ..RAGGED_CASE }),
        ("a window within a step of keys, bf16", Case { window: Some(20), ..BF16 }),
        ("a window of a step of keys less one token", Case { window: Some(63), ..RAGGED_CASE }),
        ("a window of a step of keys", Case { window: Some(64), ..RAGGED_CASE }),
        ("a window of a step of keys and one token", Case { window: Some(65), ..RAGGED_CASE }),
        ("a window of a step of keys less one token, bf16", Case { window: Some(63), ..BF16 }),
        ("a window of a step of keys, bf16", Case { window: Some(64), ..BF16 }),
        ("a window of a step of keys and one token, bf16", Case { window: Some(65), ..BF16 }),
        ("a window as long as a context", Case { window: Some(130), ..RAGGED_CASE }),
        ("a window longer than all contexts", Case { window: Some(1000), ..RAGGED_CASE }),
        ("a window, decode", Case { rows: DECODE, window: Some(100), ..SMALL }),
        ("a window, decode, blocks of 64, bf16", Case { rows: DECODE, window: Some(100), block_size: 64, ..BF16 }),
        ("a window that a chunk crosses", Case { rows: &[(150, 150)], window: Some(90), block_size: 64, ..SMALL }),
        ("a window that a chunk crosses, bf16", Case { rows: &[(150, 150)], window: Some(90), ..BF16 }),
        ("a window, a prompt longer than several of them", Case { rows: &[(0, 300)], window: Some(7), ..SMALL }),
        ("a window, groups of 3", Case { heads: 6, kv_heads: 2, window: Some(33), ..RAGGED_CASE }),
        (
            "a window, groups of 7, f16",
            Case { heads: 14, kv_heads: 2, format: KvFormat::Plain(DType::F16), window: Some(33), ..RAGGED_CASE },
        ),
        ("a window, groups of 16, bf16", Case { heads: 16, window: Some(33), ..BF16 }),
        ("a window, heads of 30, no multiple of lanes", Case { head_dim: 30, window: Some(33), ..RAGGED_CASE }),
        ("a window, heads of 256, bf16", Case { head_dim: 256, window: Some(70), ..BF16 }),
        ("a window, scores of nearly nothing", Case { size: 1e-20, window: Some(33), ..RAGGED_CASE }),
        ("a window, prefill of Qwen3-0.6B", Case { rows: &[(0, 90), (60, 20)], window: Some(48), ..QWEN3 }),
        ("a softcap far above the scores", Case { softcap: Some(50.0), ..RAGGED_CASE }),
        ("a softcap far above the scores, bf16", Case { softcap: Some(50.0), ..BF16 }),
        ("a softcap amid the scores", Case { softcap: Some(0.75), size: 2.0, ..RAGGED_CASE }),
        (
            "a softcap amid the scores, f16",
            Case { softcap: Some(0.75), size: 2.0, format: KvFormat::Plain(DType::F16), ..RAGGED_CASE },
        ),
        ("a softcap amid the scores, bf16", Case { softcap: Some(0.75), size: 2.0, ..BF16 }),
        ("a softcap far below the scores", Case { softcap: Some(3.0), size: 30.0, ..RAGGED_CASE }),
        ("a softcap far below the scores, bf16", Case { softcap: Some(3.0), size: 4.0, head_dim: 64, ..BF16 }),
        ("a softcap and a window", Case { softcap: Some(2.0), size: 2.0, window: Some(33), ..RAGGED_CASE }),
        ("a softcap and a window, bf16", Case { softcap: Some(2.0), size: 2.0, window: Some(33), ..BF16 }),
        ("a softcap, decode", Case { rows: DECODE, softcap: Some(2.0), size: 2.0, ..SMALL }),
        (
            "a softcap, heads of 30, no multiple of lanes",
            Case { head_dim: 30, softcap: Some(2.0), size: 2.0, ..RAGGED_CASE },
        ),
        (
            "Gemma 2 9B, bf16",
            Case { heads: 16, kv_heads: 8, head_dim: 256, softcap: Some(50.0), size: 4.0, window: Some(40), ..BF16 },
        ),
        ("int8", INT8),
        ("int8, one token that sees itself alone", Case { rows: &[(0, 1)], ..INT8 }),
        ("int8, decode", Case { rows: DECODE, ..INT8 }),
        ("int8, blocks of one token", Case { block_size: 1, ..INT8 }),
        ("int8, blocks of 7 tokens", Case { block_size: 7, head_dim: 64, ..INT8 }),
        ("int8, blocks of 256 tokens", Case { block_size: 256, ..INT8 }),
        ("int8, heads of 6, fewer than lanes", Case { head_dim: 6, ..INT8 }),
        ("int8, heads of 30, no multiple of lanes", Case { head_dim: 30, ..INT8 }),
        ("int8, heads of 32, groups larger than a tile", Case { heads: 80, head_dim: 32, ..INT8 }),
        ("int8, heads of 64, groups of 7", Case { heads: 14, kv_heads: 2, head_dim: 64, ..INT8 }),
        ("int8, heads of 80", Case { head_dim: 80, ..INT8 }),
        ("int8, heads of 256", Case { head_dim: 256, ..INT8 }),
        ("int8, heads of 512", Case { head_dim: 512, ..INT8 }),
        ("int8, a key and value head for each query head", Case { heads: 3, kv_heads: 3, head_dim: 32, ..INT8 }),
        ("int8, scores of a dozen", Case { head_dim: 64, size: 2.5, ..INT8 }),
        ("int8, scores of nearly nothing", Case { head_dim: 64, size: 1e-15, ..INT8 }),
        ("int8, a window of one token", Case { head_dim: 32, window: Some(1), ..INT8 }),
        ("int8, a window, groups of 16", Case { heads: 16, head_dim: 32, window: Some(33), ..INT8 }),
        ("int8, a window that a chunk crosses", Case { rows: &[(150, 150)], head_dim: 32, window: Some(90), ..INT8 }),
        ("int8, a window, heads of 30", Case { head_dim: 30, window: Some(65), ..INT8 }),
        ("int8, a softcap amid the scores", Case { softcap: Some(0.75), size: 2.0, head_dim: 32, ..INT8 }),
        (
            "int8, a softcap and a window, heads of 24",
            Case { softcap: Some(2.0), size: 2.0, head_dim: 24, window: Some(33), ..INT8 },
        ),
        (
            "int8, decode of Qwen3-0.6B",
            Case { rows: &[(511, 1), (130, 1), (64, 1), (0, 1)], format: KvFormat::Int8, ..QWEN3 },
        ),
        ("int8, prefill of Qwen3-0.6B", Case { rows: &[(0, 90), (60, 20)], format: KvFormat::Int8, ..QWEN3 }),
        ("both ways", BOTH),
        ("both ways, bf16", BOTH_BF16),
        ("both ways, f16, heads of 64", Case { head_dim: 64, format: KvFormat::Plain(DType::F16), ..BOTH }),
        ("both ways, heads of 30, groups of 3", Case { heads: 6, kv_heads: 2, head_dim: 30, ..BOTH }),
        ("both ways, heads of 256, bf16", Case { head_dim: 256, ..BOTH_BF16 }),
        ("both ways, blocks of 7 tokens, bf16", Case { block_size: 7, head_dim: 32, ..BOTH_BF16 }),
        ("both ways, a window of one token", Case { window: Some(1), ..BOTH }),
        ("both ways, a window within a step of keys", Case { window: Some(9), ..BOTH }),
        ("both ways, a window within a step of keys, bf16", Case { window: Some(9), head_dim: 32, ..BOTH_BF16 }),
        ("both ways, a window of a step of keys and one token", Case { window: Some(65), ..BOTH }),
        ("both ways, a window of a step of keys, bf16", Case { window: Some(64), head_dim: 32, ..BOTH_BF16 }),
        ("both ways, a window longer than all texts", Case { window: Some(1000), ..BOTH }),
        ("both ways, BERT base", Case { heads: 12, kv_heads: 12, head_dim: 64, ..BOTH }),
        ("decode of Qwen3-0.6B", Case { rows: &[(511, 1), (130, 1), (64, 1), (0, 1)], ..QWEN3 }),
        ("prefill of Qwen3-0.6B", Case { rows: &[(0, 90), (60, 20)], ..QWEN3 }),
        ("sinks", Case { heads: 6, kv_heads: 2, sinks: Some(3.0), ..RAGGED_CASE }),
        ("sinks, decode", Case { rows: DECODE, heads: 8, sinks: Some(5.0), ..SMALL }),
        ("sinks and a window within a step of keys", Case { sinks: Some(3.0), window: Some(20), ..RAGGED_CASE }),
        ("sinks and a window, bf16", Case { heads: 16, head_dim: 64, sinks: Some(3.0), window: Some(70), ..BF16 }),
        ("sinks above all scores, bf16", Case { heads: 40, head_dim: 32, sinks: Some(60.0), ..BF16 }),
        (
            "sinks and a softcap, f16",
            Case { sinks: Some(3.0), softcap: Some(2.0), format: KvFormat::Plain(DType::F16), ..RAGGED_CASE },
        ),
        ("values in keys", LATENT),
        ("values in keys, decode, bf16", Case { rows: DECODE, format: KvFormat::Plain(DType::Bf16), ..LATENT }),
        ("values in keys, few heads, f16", Case { heads: 2, format: KvFormat::Plain(DType::F16), ..LATENT }),
        ("values in keys, blocks of 7 tokens", Case { block_size: 7, head_dim: 40, ..LATENT }),
        ("values in keys, several heads", Case { kv_heads: 3, head_dim: 32, values: KvValues::InKeys(30), ..LATENT }),
        ("values in keys, a window", Case { window: Some(20), ..LATENT }),
        (
            "values in keys, GLM-4.7-Flash, bf16",
            Case {
                rows: &[(130, 1), (60, 20)],
                heads: 20,
                head_dim: 576,
                values: KvValues::InKeys(512),
                format: KvFormat::Plain(DType::Bf16),
                ..LATENT
            },
        ),
        ("values in keys, int8", LATENT_INT8),
        ("values in keys, int8, decode", Case { rows: DECODE, heads: 3, ..LATENT_INT8 }),
        ("values in keys, int8, blocks of 7 tokens", Case { block_size: 7, head_dim: 40, ..LATENT_INT8 }),
        (
            "values in keys, int8, DeepSeek-V2-Lite",
            Case {
                rows: &[(130, 1), (60, 20)],
                heads: 16,
                head_dim: 576,
                values: KvValues::InKeys(512),
                ..LATENT_INT8
            },
        ),
        ("sinks, int8", Case { heads: 4, head_dim: 32, sinks: Some(3.0), window: Some(65), ..INT8 }),
    ];
    // Scores of some thousands bring their own rounding errors into exp.
    const BOUND: f64 = 1e-5;

    fn expected(case: &Case) -> Vec<f32> {
        let scene = Scene::new(case, 6);
        let mut cache = KvCache::new(&scene.shape.layers(1), scene.sequences.blocks).unwrap();
        let (batch, mut qkv) = scene.all();
        let transform = QkNormRope { norm: None, whole: None, rope: None, temperature: None, value_norm: None };
        reference::rope_and_cache(&scene.spec, &mut qkv, transform, &mut cache, 0, &batch);
        let (batch, qkv) = scene.part(&scene.rows);
        let mut out = vec![f32::NAN; batch.tokens() * case.heads * scene.shape.value_dim()];
        let sinks = scene.sinks.clone().map(Vec::into_boxed_slice);
        let scoring = Scoring { spec: &scene.spec, sinks: sinks.as_ref() };
        reference::attention(scoring, &mut out, &qkv, &cache, 0, &batch);
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let scene = Scene::new(case, 6);
        let cache = scene.fill(backend);
        scene.attend(backend, &cache, &scene.rows)
    }
}

/// Sequences with a query, key and value for each of their tokens.
struct Scene {
    sequences: Sequences,
    rows: Vec<Row>,
    shape: KvShape,
    spec: AttentionSpec,
    /// `[heads]`
    sinks: Option<Vec<f32>>,
    /// `[sequence][token][cols]`
    qkv: Vec<Vec<f32>>,
}

impl Scene {
    /// `layout` decides which blocks the sequences own, and about nothing else.
    fn new(case: &Case, layout: u64) -> Scene {
        let mut random = Random(7);
        let lens: Vec<usize> = case.rows.iter().map(|(before, new)| before + new).collect();
        let cols = (case.heads + case.values.vectors() * case.kv_heads) * case.head_dim;
        Scene {
            sequences: Sequences::new(&mut Random(layout), &lens, case.block_size),
            rows: case
                .rows
                .iter()
                .enumerate()
                .map(|(sequence, &(before, new))| Row { sequence, before, new })
                .collect(),
            shape: KvShape {
                kv_heads: case.kv_heads,
                head_dim: case.head_dim,
                values: case.values,
                block_size: case.block_size,
                format: case.format,
            },
            spec: AttentionSpec {
                heads: case.heads,
                scale: 1.0 / (case.head_dim as f32).sqrt(),
                window: case.window,
                softcap: case.softcap,
                reach: case.reach,
            },
            qkv: lens.iter().map(|len| random.numbers(len * cols, case.size)).collect(),
            sinks: case.sinks.map(|size| Random(8).numbers(case.heads, size)),
        }
    }

    fn cols(&self) -> usize {
        (self.spec.heads + self.shape.values.vectors() * self.shape.kv_heads) * self.shape.head_dim
    }

    /// The batch of some rows, and its `qkv`.
    fn part(&self, rows: &[Row]) -> (Batch, Vec<f32>) {
        let cols = self.cols();
        let qkv = rows
            .iter()
            .flat_map(|row| &self.qkv[row.sequence][row.before * cols..(row.before + row.new) * cols])
            .copied();
        (self.sequences.batch(rows), qkv.collect())
    }

    /// All tokens of all sequences.
    fn all(&self) -> (Batch, Vec<f32>) {
        let whole = |row: &Row| Row { before: 0, new: row.before + row.new, ..*row };
        self.part(&self.rows.iter().map(whole).collect::<Vec<_>>())
    }

    /// A cache that holds all sequences.
    fn fill<B: Column>(&self, backend: &mut B) -> B::KvCache {
        let (batch, qkv) = self.all();
        let device_batch = uploaded(backend, &batch);
        let mut cache = backend.kv_cache(&self.shape.layers(1), self.sequences.blocks).unwrap();
        let mut qkv = backend.filled(&qkv, self.cols());
        let transform = QkNormRope { norm: None, whole: None, rope: None, temperature: None, value_norm: None };
        ops::rope_and_cache(backend, &self.spec, &mut qkv, transform, &mut cache, 0, &device_batch);
        cache
    }

    /// Attention of some rows as one batch.
    fn attend<B: Column>(&self, backend: &mut B, cache: &B::KvCache, rows: &[Row]) -> Vec<f32> {
        let (batch, qkv) = self.part(rows);
        let device_batch = uploaded(backend, &batch);
        let qkv = backend.filled(&qkv, self.cols());
        let mut out = backend.poisoned(batch.tokens(), self.spec.heads * self.shape.value_dim());
        let sinks = self.sinks.as_ref().map(|sinks| backend.table(sinks).unwrap());
        let scoring = Scoring { spec: &self.spec, sinks: sinks.as_ref() };
        ops::attention(backend, scoring, &mut out, &qkv, cache, 0, &device_batch);
        backend.read(&out)
    }
}

#[test]
fn attention_agrees_with_its_specification() {
    agrees::<Attention>();
}

/// A layer reads and writes through the block table of its group, whatever the others say.
#[test]
fn a_layer_has_the_block_table_of_its_group() {
    for (isa, format) in Isa::available().iter().flat_map(|isa| FORMATS.map(|format| (*isa, format))) {
        let (cpu, scene) = (&mut Cpu::new(1, isa), Scene::new(&Case { format, ..PROMPT }, 1));
        let (batch, qkv) = scene.all();
        let mut moved = batch.clone();
        let own = WindowTable { slots: batch.slots.clone(), block_tables: batch.block_tables.clone() };
        moved.slots.reverse();
        moved.block_tables.reverse();
        let other = WindowTable { slots: moved.slots.clone(), block_tables: moved.block_tables.clone() };
        moved.window_tables = vec![other, own];
        let [wanted, found] = [(&batch, 0), (&moved, 2)].map(|(batch, table)| {
            let (device_batch, place) = (uploaded(cpu, batch), KvPlace { layer: 0, part: None, table });
            let mut cache = cpu.kv_cache(&scene.shape.layers(1), scene.sequences.blocks).unwrap();
            let mut qkv = cpu.filled(&qkv, scene.cols());
            let transform = QkNormRope { norm: None, whole: None, rope: None, temperature: None, value_norm: None };
            ops::rope_and_cache(cpu, &scene.spec, &mut qkv, transform, &mut cache, place, &device_batch);
            let mut out = cpu.poisoned(batch.tokens(), scene.spec.heads * scene.shape.head_dim);
            ops::attention(cpu, &scene.spec, &mut out, &qkv, &cache, place, &device_batch);
            Column::read(cpu, &out)
        });
        assert_eq!(bits(&wanted), bits(&found), "{isa:?}, {format:?}");
    }
}

/// A prompt of 100 tokens, beside which another row may stand.
const PROMPT: Case =
    Case { rows: &[(0, 100), (20, 50)], heads: 6, kv_heads: 2, format: KvFormat::Plain(DType::Bf16), ..SMALL };

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

const FORMATS: [KvFormat; 2] = [KvFormat::Plain(DType::Bf16), KvFormat::Int8];

/// Whole context, a window within a step of keys, and one over several steps.
const WINDOWS: [Option<usize>; 3] = [None, Some(9), Some(70)];

#[test]
fn a_token_gets_the_same_bits_however_its_prompt_is_cut() {
    let cases = WINDOWS.iter().flat_map(|&window| {
        let sizes = [(16, None), (20, None), (128, None), (20, Some(0.5)), (128, Some(0.5))];
        sizes.into_iter().flat_map(move |(head_dim, softcap)| {
            let sinks = (head_dim == 128).then_some(2.0);
            FORMATS.map(|format| Case { head_dim, window, softcap, sinks, format, ..PROMPT })
        })
    });
    let latent =
        FORMATS.map(|format| Case { kv_heads: 1, head_dim: 24, values: KvValues::InKeys(16), format, ..PROMPT });
    let cases = cases.chain(latent);
    for (isa, case) in cases.flat_map(|case| Isa::available().iter().map(move |isa| (*isa, case.clone()))) {
        let width = case.heads * case.values.dim(case.head_dim);
        let whole = {
            let (cpu, scene) = (&mut Cpu::new(1, isa), Scene::new(&case, 1));
            let cache = scene.fill(cpu);
            scene.attend(cpu, &cache, &[Row { sequence: 0, before: 0, new: 100 }])
        };
        for chunk in [1, 7, 64, 100] {
            // Other threads, other blocks and another row besides: none may matter.
            let (cpu, scene) = (&mut Cpu::new(2, isa), Scene::new(&case, chunk as u64));
            let cache = scene.fill(cpu);
            let mut cut = Vec::new();
            for before in (0..100).step_by(chunk) {
                let row = Row { sequence: 0, before, new: chunk.min(100 - before) };
                cut.extend_from_slice(&scene.attend(cpu, &cache, &[scene.rows[1], row])[50 * width..]);
                assert_eq!(cut.len(), (before + row.new) * width);
            }
            let Case { head_dim, window, softcap, format, .. } = case;
            let what = format!("{isa:?}, {format:?}, heads of {head_dim}, {window:?}, {softcap:?}, chunks of {chunk}");
            assert_eq!(bits(&whole), bits(&cut), "{what}");
        }
    }
}

#[test]
fn a_text_gets_the_same_bits_alone_and_among_others() {
    for (isa, window) in Isa::available().iter().flat_map(|isa| WINDOWS.map(|window| (*isa, window))) {
        for head_dim in [16, 20, 128] {
            for case in [BOTH, BOTH_BF16].map(|case| Case { heads: 6, kv_heads: 2, head_dim, window, ..case }) {
                let scene = Scene::new(&case, 1);
                let [alone, among] = [1, 2].map(|threads| {
                    let cpu = &mut Cpu::new(threads, isa);
                    let cache = scene.fill(cpu);
                    match threads {
                        1 => scene.rows.iter().flat_map(|row| scene.attend(cpu, &cache, &[*row])).collect(),
                        _ => scene.attend(cpu, &cache, &scene.rows),
                    }
                });
                let what = format!("{isa:?}, {:?}, heads of {head_dim}, {window:?}", case.format);
                assert_eq!(bits(&alone), bits(&among), "{what}");
            }
        }
    }
}

#[test]
fn a_token_gets_the_same_bits_for_every_block_size() {
    let kinds = || WINDOWS.iter().flat_map(|&window| FORMATS.map(|format| (window, format)));
    for (isa, (window, format)) in Isa::available().iter().flat_map(|isa| kinds().map(move |kind| (*isa, kind))) {
        let outputs = [1, 3, 16, 256].map(|block_size| {
            let case = Case { block_size, window, format, head_dim: 32, ..PROMPT };
            let (cpu, scene) = (&mut Cpu::new(1, isa), Scene::new(&case, 1));
            let cache = scene.fill(cpu);
            bits(&scene.attend(cpu, &cache, &scene.rows))
        });
        assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "{isa:?}, {format:?}, a window of {window:?}");
    }
}

#[test]
fn queries_alone_get_the_bits_of_queries_among_keys_and_values() {
    for (isa, format) in Isa::available().iter().flat_map(|isa| FORMATS.map(|format| (isa, format))) {
        let (cpu, scene) = (&mut Cpu::new(1, *isa), Scene::new(&Case { head_dim: 32, format, ..PROMPT }, 1));
        let cache = scene.fill(cpu);
        let among = scene.attend(cpu, &cache, &scene.rows);
        let (batch, qkv) = scene.part(&scene.rows);
        let width = scene.spec.heads * scene.shape.head_dim;
        let queries: Vec<f32> = qkv.chunks_exact(scene.cols()).flat_map(|row| &row[..width]).copied().collect();
        let (device_batch, queries) = (uploaded(cpu, &batch), cpu.filled(&queries, width));
        let mut alone = cpu.poisoned(batch.tokens(), width);
        ops::attention(cpu, &scene.spec, &mut alone, &queries, &cache, 0, &device_batch);
        assert_eq!(bits(&among), bits(&cpu.read(&alone)), "{isa:?}, {format:?}");
    }
}

#[test]
fn a_window_longer_than_the_context_changes_no_bit() {
    for isa in Isa::available() {
        let [none, longer] = [None, Some(100)].map(|window| {
            let (cpu, scene) = (&mut Cpu::new(1, *isa), Scene::new(&Case { window, ..PROMPT }, 1));
            let cache = scene.fill(cpu);
            bits(&scene.attend(cpu, &cache, &scene.rows))
        });
        assert!(none == longer, "{isa:?}");
    }
}

#[test]
fn what_later_tokens_foreign_blocks_and_tokens_before_the_window_hold_never_matters() {
    let kinds = || WINDOWS.iter().flat_map(|&window| FORMATS.map(|format| (window, format)));
    for (isa, (window, format)) in Isa::available().iter().flat_map(|isa| kinds().map(move |kind| (isa, kind))) {
        let cpu = &mut Cpu::new(1, *isa);
        let scene = Scene::new(&Case { window, format, head_dim: 32, ..PROMPT }, 1);
        let mut cache = scene.fill(cpu);
        let early = Row { sequence: 0, before: 10, new: 30 };
        let clean = scene.attend(cpu, &cache, &[early]);
        let before = scene.spec.window_start(10);
        let (batch, _) = scene.part(&[Row { sequence: 0, before, new: 40 - before }]);
        let seen: std::collections::HashSet<usize> = batch.slots.iter().map(|&slot| slot as usize).collect();
        for slot in (0..scene.sequences.blocks * scene.shape.block_size).filter(|slot| !seen.contains(slot)) {
            for head in 0..scene.shape.kv_heads {
                let shape = &scene.shape;
                match shape.format {
                    KvFormat::Plain(_) => {
                        for at in [shape.key_at(slot, head), shape.value_at(slot, head)] {
                            cache.layer_mut::<half::bf16>(0)[at..at + shape.head_dim].fill(half::bf16::NAN);
                        }
                    }
                    KvFormat::Int8 => {
                        for at in [shape.key_scale_at(slot, head), shape.value_scale_at(slot, head)] {
                            // The bytes of a bf16 that is no number.
                            cache.layer_mut::<i8>(0)[at..at + 2].fill(-1);
                        }
                    }
                }
            }
        }
        assert_eq!(bits(&clean), bits(&scene.attend(cpu, &cache, &[early])), "{isa:?}, a window of {window:?}");
    }
}

#[test]
fn keys_with_a_score_of_minus_infinity_get_no_weight() {
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(1, *isa);
        let case = Case { rows: &[(0, 70)], heads: 1, head_dim: 8, ..SMALL };
        let mut scene = Scene::new(&case, 1);
        for token in 0..70 {
            let row = &mut scene.qkv[0][token * 24..][..24];
            row[..8].fill(1.0);
            // The first 69 keys are infinitely unlikely: more than a whole step of them.
            row[8..16].fill(if token < 69 { f32::MIN } else { 0.5 });
            row[16..].fill(token as f32);
        }
        let cache = scene.fill(cpu);
        let out = scene.attend(cpu, &cache, &[Row { sequence: 0, before: 69, new: 1 }]);
        assert_eq!(out, [69.0; 8], "{isa:?}");
    }
}
