//! Whole passes: launched strictly, by programmatic dependent launch and as a graph; memory and refusals.

use crate::inputs::{codings, ended};
use crate::scene::{
    Near, Random, Scene, assert_near, bound, coded, filled, host_matrix, host_vector, numbers, on_device, poisoned,
    staged,
};
use base::error::Error;
use compute::batch::{Batch, Sampling};
use compute::cuda::{Chaining, Cuda, DeviceBatch, KvCache, Matrix, Tensor, Vector};
use compute::ops;
use compute::{
    Activation, AddNorm, AttentionSpec, Device, HeadRows, HostMatrix, KvFormat, KvShape, KvValues, LayerInput,
    NextNorm, NormKind, NormWeights, Pairing, QkNormRope, RopeTable, Rounding,
};
use formats::DType;

/// A few layers of a random model, run op by op.
struct Model {
    cache: KvCache,
    device_batch: DeviceBatch,
    tensors: Vec<Tensor>,
    matrices: Vec<Matrix>,
    vectors: Vec<Vector>,
    batch: Batch,
    /// Whether attention prepares its rows, which gives other bits.
    is_fused: bool,
}

const LAYERS: usize = 6;
const HIDDEN: usize = 256;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 64;
/// Of layers in turn.
const SPECS: [AttentionSpec; 2] = [
    AttentionSpec { heads: HEADS, scale: 0.125, window: None, softcap: None, reach: compute::Reach::Back },
    AttentionSpec { heads: HEADS, scale: 0.125, window: Some(40), softcap: None, reach: compute::Reach::Back },
];
const WIDTH: usize = 512;
const VOCAB: usize = 1003;

impl Model {
    fn new(cuda: &mut Cuda, rows: &[(usize, usize)], dtype: DType) -> Model {
        let plain =
            |random: &mut Random, [n, k]: [usize; 2]| host_matrix(&numbers(random, n * k, 0.15, dtype), [n, k], dtype);
        Model::with(cuda, rows, dtype, plain)
    }

    /// A model with the matrices that `matrix` makes.
    fn with(
        cuda: &mut Cuda,
        rows: &[(usize, usize)],
        dtype: DType,
        matrix: impl Fn(&mut Random, [usize; 2]) -> HostMatrix,
    ) -> Model {
        let mut random = Random(6);
        let scene = Scene::new(rows, 16, &mut random);
        let shape = KvShape {
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            values: KvValues::Stored,
            block_size: 16,
            format: dtype.into(),
        };
        let mut cache = cuda.kv_cache(&shape.layers(1), scene.blocks).unwrap();
        let cached = numbers(&mut random, scene.blocks * shape.block_bytes() / 2, 1.0, dtype);
        cache.fill(&coded(&cached, dtype)).unwrap();
        let qkv = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
        let sizes = [(VOCAB, HIDDEN), (qkv, HIDDEN), (HIDDEN, HEADS * HEAD_DIM), (2 * WIDTH, HIDDEN), (HIDDEN, WIDTH)];
        let matrices = sizes.map(|(n, k)| cuda.matrix(&[matrix(&mut random, [n, k])]).unwrap());
        let rope: Vec<f32> =
            (0..4096 * HEAD_DIM).map(|i| if i % HEAD_DIM < HEAD_DIM / 2 { 0.8 } else { 0.6 }).collect();
        let norm = numbers(&mut random, HIDDEN, 1.0, dtype);
        let mut norms = [(); 3].map(|()| cuda.vector(&[host_vector(&norm, dtype)]).unwrap());
        // Of attention and of the MLP; that of the head reads no product.
        norms.iter_mut().zip([&matrices[1], &matrices[3]]).for_each(|(norm, product)| Cuda::bind_norm(norm, product));
        let mut vectors = Vec::from(norms);
        vectors.push(cuda.table(&rope).unwrap());
        let mut batch = scene.batch;
        for (i, sampling) in batch.sampling.iter_mut().enumerate() {
            *sampling = match i % 3 {
                0 => Sampling::GREEDY,
                1 => Sampling { temperature: 0.7, seed: 5, position: i as u32, ..Sampling::GREEDY },
                _ => Sampling {
                    temperature: 0.7,
                    seed: 5,
                    top_k: 20,
                    top_p: 0.9,
                    position: i as u32,
                    ..Sampling::GREEDY
                },
            };
        }
        let tokens = batch.tokens();
        let widths = [HIDDEN, HIDDEN, HIDDEN, qkv, HEADS * HEAD_DIM, 2 * WIDTH, WIDTH];
        let mut tensors: Vec<Tensor> = widths.iter().map(|&cols| poisoned(cuda, tokens, cols)).collect();
        tensors.push(poisoned(cuda, batch.rows(), HIDDEN));
        tensors.push(poisoned(cuda, batch.rows(), VOCAB));
        cuda.set_windows(SPECS.map(|spec| spec.window));
        let device_batch = staged(cuda, &batch);
        Model { cache, device_batch, tensors, matrices: matrices.into(), vectors, batch, is_fused: false }
    }

    fn launch(&mut self, cuda: &mut Cuda) {
        let [residual, x, normed, qkv, attended, gate_up, gated, last, logits] = &mut self.tensors[..] else {
            unreachable!()
        };
        let [embedding, qkv_weight, out_weight, gate_up_weight, down_weight] = &self.matrices[..] else {
            unreachable!()
        };
        let [of_qkv, of_gate_up, last_norm, rope] = &self.vectors[..] else { unreachable!() };
        let [of_qkv, of_gate_up, last_norm] =
            [of_qkv, of_gate_up, last_norm].map(|weight| NormWeights { weight, eps: 1e-6, kind: NormKind::Rms });
        ops::embedding(cuda, residual, embedding, 1.0, &self.device_batch);
        ops::norm(cuda, normed, residual, of_qkv);
        for layer in 0..LAYERS {
            let spec = &SPECS[layer % 2];
            ops::linear(cuda, qkv, LayerInput::new(normed, qkv_weight, None), 0..(HEADS + 2 * KV_HEADS) * HEAD_DIM);
            let transform = QkNormRope {
                norm: None,
                whole: None,
                rope: Some(RopeTable { table: rope, rotary: HEAD_DIM, pairing: Pairing::Halves }),
                temperature: None,
                value_norm: None,
            };
            let (cache, device_batch) = (&mut self.cache, &self.device_batch);
            if self.is_fused {
                let heads = HeadRows { qkv, out: attended };
                ops::rope_and_attention(cuda, spec, heads, transform, cache, 0, device_batch);
            } else {
                ops::rope_and_cache(cuda, spec, qkv, transform, cache, 0, device_batch);
                ops::attention(cuda, spec, attended, qkv, cache, 0, device_batch);
            }
            let out = LayerInput::new(&*attended, out_weight, None);
            let next = NextNorm { out: &mut *normed, norm: of_gate_up };
            ops::linear_add_norm(cuda, residual, x, out, AddNorm::PLAIN, next);
            ops::gated_linear(cuda, gated, gate_up, LayerInput::new(normed, gate_up_weight, None), Activation::Silu);
            let next = NextNorm { out: &mut *normed, norm: if layer < LAYERS - 1 { of_qkv } else { last_norm } };
            let down = LayerInput::new(&*gated, down_weight, None);
            ops::linear_add_norm(cuda, residual, x, down, AddNorm::PLAIN, next);
        }
        ops::gather(cuda, last, normed, &self.device_batch);
        ops::linear(cuda, logits, LayerInput::new(last, embedding, None), 0..VOCAB);
    }

    fn results(&mut self, cuda: &mut Cuda) -> (Vec<u32>, Vec<u32>) {
        ops::sample(cuda, &mut self.device_batch, &self.tensors[8]);
        ended(cuda, &mut self.device_batch);
        let tokens = cuda.results(&self.device_batch).tokens.to_vec();
        (tokens, cuda.read(&self.tensors[8]).unwrap().iter().map(|v| v.to_bits()).collect())
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_step_gives_the_same_bits_strict_by_dependent_launch_and_as_a_graph() {
    on_device(|cuda, dtype| {
        let rows = [&[(5, 1), (100, 1), (0, 1)][..], &[(700, 1); 40], &[(0, 70), (30, 1), (9, 20), (400, 100)]];
        let kinds = [Rounding::Fastest, Rounding::BatchInvariant].map(|rounding| rows.map(|rows| (rounding, rows)));
        for (rounding, rows) in kinds.into_iter().flatten() {
            cuda.set_rounding(rounding);
            let mut model = Model::new(cuda, rows, dtype);
            cuda.set_chaining(Chaining::Strict);
            model.launch(cuda);
            let strict = model.results(cuda);
            assert!(strict.1.iter().all(|&bits| f32::from_bits(bits).is_finite()));
            cuda.set_chaining(Chaining::DependentLaunch);
            for _ in 0..20 {
                model.launch(cuda);
                assert!(strict == model.results(cuda), "{} rows, {dtype:?}, by dependent launch", rows.len());
            }
            let graph = cuda.capture(|cuda| model.launch(cuda)).unwrap();
            for _ in 0..20 {
                graph.launch().unwrap();
                assert!(strict == model.results(cuda), "{} rows, {dtype:?}, as a graph", rows.len());
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_step_in_which_attention_prepares_its_rows_gives_the_same_bits_strict_by_dependent_launch_and_as_a_graph() {
    on_device(|cuda, dtype| {
        let rows = [&[(5, 1), (100, 1), (0, 1), (700, 1)][..], &[(300, 1); 8], &[(700, 1); 40]];
        let kinds = [Rounding::Fastest, Rounding::BatchInvariant].map(|rounding| rows.map(|rows| (rounding, rows)));
        for (rounding, rows) in kinds.into_iter().flatten() {
            cuda.set_rounding(rounding);
            let mut model = Model::new(cuda, rows, dtype);
            cuda.set_chaining(Chaining::Strict);
            model.launch(cuda);
            let apart = cuda.read(&model.tensors[8]).unwrap();
            model.is_fused = true;
            model.launch(cuda);
            let strict = model.results(cuda);
            let fused: Vec<f32> = strict.1.iter().map(|&bits| f32::from_bits(bits)).collect();
            // Six layers of rounding in another order.
            let of_norm = 5.0 * bound(dtype);
            // The errors of the logits of a row are those of one hidden state times random weights: normal, and of one size. Of 40,000 the
            // greatest is 4.3 deviations.
            let near = apart.chunks_exact(VOCAB).flat_map(|row| {
                let size = (row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / VOCAB as f64).sqrt();
                row.iter().map(move |&v| Near::stored(f64::from(v), 8.0 * of_norm * size, dtype))
            });
            assert_near(&fused, &near.collect::<Vec<_>>(), of_norm, "against the ops one by one");
            assert!(rounding == Rounding::Fastest || fused == apart, "{} rows, {dtype:?}, batch-invariant", rows.len());
            cuda.set_chaining(Chaining::DependentLaunch);
            let graph = cuda.capture(|cuda| model.launch(cuda)).unwrap();
            for _ in 0..500 {
                model.launch(cuda);
                assert!(strict == model.results(cuda), "{} rows, {dtype:?}, by dependent launch", rows.len());
                graph.launch().unwrap();
                assert!(strict == model.results(cuda), "{} rows, {dtype:?}, as a graph", rows.len());
            }
        }
    });
}

/// Steps of one token, of some and of a prompt: as programs launch them, as a graph, and batch-invariant as the dequantized model.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_step_over_coded_weights_gives_one_result_however_it_is_launched() {
    on_device(|cuda, dtype| {
        for coding in codings::all() {
            if !HIDDEN.is_multiple_of(coding.group()) {
                continue;
            }
            let coded = |random: &mut Random, shape: [usize; 2]| codings::matrix(random, coding, shape);
            let decoded =
                |random: &mut Random, shape: [usize; 2]| coded(random, shape).converted(dtype.into()).unwrap();
            for rows in [&[(5, 1), (100, 1), (0, 1)][..], &[(0, 70), (30, 1), (9, 20)]] {
                let what = format!("{coding}, {} rows, {dtype:?}", rows.len());
                cuda.set_rounding(Rounding::BatchInvariant);
                let mut model = Model::with(cuda, rows, dtype, decoded);
                model.launch(cuda);
                let wanted = model.results(cuda);
                let mut model = Model::with(cuda, rows, dtype, coded);
                model.launch(cuda);
                assert!(wanted == model.results(cuda), "{what}, batch-invariant");
                cuda.set_rounding(Rounding::Fastest);
                cuda.set_chaining(Chaining::Strict);
                model.launch(cuda);
                let strict = model.results(cuda);
                assert!(strict.1.iter().all(|&bits| f32::from_bits(bits).is_finite()), "{what}");
                cuda.set_chaining(Chaining::DependentLaunch);
                let graph = cuda.capture(|cuda| model.launch(cuda)).unwrap();
                for _ in 0..5 {
                    model.launch(cuda);
                    assert!(strict == model.results(cuda), "{what}, by dependent launch");
                    graph.launch().unwrap();
                    assert!(strict == model.results(cuda), "{what}, as a graph");
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_graph_serves_later_batches_and_rows_that_only_pad() {
    on_device(|cuda, dtype| {
        let mut model = Model::new(cuda, &[(300, 1), (50, 1), (20, 1), (700, 1)], dtype);
        model.launch(cuda);
        let graph = cuda.capture(|cuda| model.launch(cuda)).unwrap();
        // The same four rows with other contexts, then with the last two padded away.
        for (contexts, real) in [([120, 51, 3, 500], 4), ([120, 51, 0, 0], 2)] {
            let mut batch = model.batch.clone();
            for (row, &context) in contexts.iter().enumerate() {
                batch.context_lens[row] = context;
                batch.positions[row] = context.max(1) - 1;
                let position = batch.positions[row] as usize;
                batch.slots[row] = match context {
                    0 => u32::MAX,
                    _ => batch.block_table(row)[position / 16] * 16 + position as u32 % 16,
                };
            }
            cuda.upload(&mut model.device_batch, &batch).unwrap();
            model.launch(cuda);
            let eager = model.results(cuda);
            cuda.upload(&mut model.device_batch, &batch).unwrap();
            graph.launch().unwrap();
            let replayed = model.results(cuda);
            assert_eq!(eager.0[..real], replayed.0[..real], "{contexts:?}");
            assert_eq!(eager.1[..real * VOCAB], replayed.1[..real * VOCAB], "{contexts:?}");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn opening_and_freeing_twenty_times_leaves_the_device_as_it_was() {
    let held = Cuda::open(0, DType::Bf16).unwrap();
    let mut free = Vec::new();
    for _ in 0..20 {
        let mut cuda = Cuda::open(0, DType::Bf16).unwrap();
        let mut model = Model::new(&mut cuda, &[(5, 1), (100, 20)], DType::Bf16);
        model.launch(&mut cuda);
        model.results(&mut cuda);
        let graph = cuda.capture(|cuda| model.launch(cuda)).unwrap();
        graph.launch().unwrap();
        drop((cuda, model, graph));
        free.push(held.memory().unwrap().0);
    }
    assert_eq!(free[4], free[19], "free bytes after each: {free:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn memory_that_is_not_there_is_an_error_with_facts() {
    on_device(|cuda, dtype| {
        let shape =
            KvShape { kv_heads: 64, head_dim: 128, values: KvValues::Stored, block_size: 64, format: dtype.into() }
                .layers(64);
        let error = cuda.kv_cache(&shape, 1 << 20).err().expect("no device holds that");
        let Error::OutOfMemory { bytes, knob, .. } = error else { panic!("{error}") };
        assert_eq!((bytes, knob), (shape.block_bytes() as u64 * (1 << 20), "kv_cache_bytes"));
        // The device goes on working.
        let x = filled(cuda, &[1.0; 64], 64);
        assert_eq!(cuda.read(&x).unwrap(), [1.0; 64]);
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn what_the_kernels_do_not_know_is_refused_when_the_model_loads() {
    on_device(|cuda, dtype| {
        let shape =
            KvShape { kv_heads: 1, head_dim: 128, values: KvValues::Stored, block_size: 64, format: dtype.into() };
        for (what, shape) in [
            ("heads of 72", KvShape { head_dim: 72, ..shape }),
            ("blocks of 8", KvShape { block_size: 8, ..shape }),
            ("blocks of 48", KvShape { block_size: 48, ..shape }),
            ("another number type", KvShape { format: KvFormat::Plain(DType::F32), ..shape }),
        ] {
            assert!(cuda.kv_cache(&shape.layers(1), 1).is_err(), "{what}");
        }
        assert!(cuda.matrix(&[host_matrix(&[0.0; 20], [2, 10], dtype)]).is_err(), "columns that are no multiple of 8");
    });
    assert!(Cuda::open(99, DType::Bf16).is_err() && Cuda::open(0, DType::F32).is_err());
}
