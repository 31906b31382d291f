//! Quantized weights: every coding gives the numbers, and where the order of sums is the same the bits, of the matrix that it decodes to.

use crate::inputs::codings;
use crate::scene::{
    Dot, Near, Random, Scene, assert_near, bound, filled, host_vector, launched, numbers, on_device, poisoned, rounded,
    staged,
};
use compute::cuda::{Cuda, Matrix, Route, Tensor};
use compute::ops;
use compute::{Device, HostMatrix, LayerInput};
use formats::{Block, DType, WeightFormat};
use std::ops::Range;

/// Rows and columns for a coding: columns that are no multiple of 64 where it allows them.
fn sizes(coding: WeightFormat) -> Vec<[usize; 2]> {
    let columns = match coding.group() {
        256 => [256, 1024, 4352],
        128 => [128, 1024, 4480],
        96 => [96, 960, 4416],
        _ => [64, 1056, 4384],
    };
    vec![[61, columns[0]], [330, columns[1]], [1200, columns[2]]]
}

/// A matrix in codes and its numbers as the device has them, on the device.
fn pair(cuda: &Cuda, parts: &[HostMatrix], dtype: DType) -> [Matrix; 2] {
    let plain: Vec<HostMatrix> = parts.iter().map(|part| part.converted(dtype.into()).unwrap()).collect();
    [cuda.matrix(parts).unwrap(), cuda.matrix(&plain).unwrap()]
}

fn product(cuda: &mut Cuda, x: &Tensor, weight: &Matrix, columns: Range<usize>, n: usize) -> Vec<f32> {
    let mut out = poisoned(cuda, x.rows(), n);
    ops::linear(cuda, &mut out, LayerInput::new(x, weight, None), columns);
    cuda.read(&out).unwrap()
}

/// Asserts which kernels computed a layer of quantized weights: from the codes, or from the numbers that they were decoded to. The expected
/// numbers are those decoded ones, to which kernels that use the codes round once more or not at all: so all of them are near as `near_rounded` says.
///
/// Returns whether the weights are in codes on the device: some codings have no exact form there, and are decoded when they arrive.
fn assert_route(route: Route, m: usize, kernels: &[String], what: &str) -> bool {
    let all = |names: &[&str]| kernels.iter().all(|kernel| names.iter().any(|name| kernel.starts_with(name)));
    let any = |name: &str| kernels.iter().any(|kernel| kernel.starts_with(name));
    let is_as_asked = match route {
        Route::Auto => !kernels.is_empty(),
        // Some codings have no kernel for many tokens whose shared memory suffices.
        Route::Stream if m <= 32 && any("gemv_stream_quantized_") => all(&["gemv_stream_quantized_"]),
        Route::Stream | Route::Tiled | Route::Hopper => {
            all(&["dequantize_weights_", "gemm_tiled_"]) && any("dequantize_weights_") && any("gemm_tiled_")
        }
        // The library may know no algorithm for columns that begin anywhere.
        Route::Blas => all(&["dequantize_weights_", "cublasLt", "gemm_tiled_"]) && any("dequantize_weights_"),
    };
    if !["gemv_stream_quantized_", "dequantize_weights_", "gemv_quantized_", "gemv_shared_quantized_"]
        .into_iter()
        .any(any)
    {
        assert!(!kernels.is_empty(), "{what}");
        return false;
    }
    assert!(is_as_asked && !any("gemm_quantized_") | (route == Route::Auto), "{what}: computed by {kernels:?}");
    assert!(route != Route::Stream || m > 8 || any("gemv_stream_quantized_"), "{what}: computed by {kernels:?}");
    true
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|v| v.to_bits()).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn codes_give_the_bits_of_the_matrix_that_they_decode_to() {
    on_device(|cuda, dtype| {
        for coding in codings::all() {
            let mut random = Random(11);
            for [n, k] in sizes(coding) {
                let host = codings::matrix(&mut random, coding, [n, k]);
                let [coded, plain] = pair(cuda, &[host], dtype);
                for m in [1, 3, 8, 9, 16, 17, 32, 40, 64, 65, 70, 512] {
                    let x = filled(cuda, &numbers(&mut random, m * k, 1.0, dtype), k);
                    for route in [Route::Stream, Route::Tiled] {
                        // Of codes, the stream has kernels for up to 32 tokens; of plain weights, for up to 64.
                        if route == Route::Stream && (33..=64).contains(&m) {
                            continue;
                        }
                        cuda.set_route(route);
                        for columns in [0..n, n / 8 * 3 + 1..n - n / 5] {
                            let what = format!("{coding}, {m} x {n} x {k}, {columns:?}, {route:?}, {dtype:?}");
                            let wanted = product(cuda, &x, &plain, columns.clone(), n);
                            let found = product(cuda, &x, &coded, columns.clone(), n);
                            let differs = bits(&found).iter().zip(bits(&wanted)).position(|(a, b)| *a != b);
                            if let Some(at) = differs {
                                let (row, column) = (at / n, at % n);
                                panic!("{what}: row {row}, column {column}: {} instead of {}", found[at], wanted[at]);
                            }
                        }
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn coded_layers_agree_on_every_route() {
    on_device(|cuda, dtype| {
        let mut in_codes = 0;
        for coding in codings::all() {
            let mut random = Random(12);
            let [n, k] = sizes(coding)[2];
            let host = codings::matrix(&mut random, coding, [n, k]);
            let w: Vec<f32> = host.to_f32().into_iter().map(|v| rounded(v, dtype)).collect();
            let b = numbers(&mut random, n, 1.0, dtype);
            let weight = cuda.matrix(&[host]).unwrap();
            let bias = cuda.vector(&[host_vector(&b, dtype)]).unwrap();
            for m in [1, 7, 20, 64, 100] {
                let x = numbers(&mut random, m * k, 1.0, dtype);
                let tx = filled(cuda, &x, k);
                for route in [Route::Auto, Route::Stream, Route::Tiled, Route::Blas] {
                    if route == Route::Blas && !cuda.has_blas() {
                        continue;
                    }
                    cuda.set_route(route);
                    let columns = 13..n - 50;
                    let mut out = poisoned(cuda, m, n);
                    let kernels = launched(cuda, |cuda| {
                        ops::linear(cuda, &mut out, LayerInput::new(&tx, &weight, Some(&bias)), columns.clone());
                    });
                    let what = format!("{coding}, {m}, {route:?}, {dtype:?}");
                    let are_codes = assert_route(route, m, &kernels, &what);
                    in_codes += usize::from(are_codes && route == Route::Stream && m == 1);
                    let out = cuda.read(&out).unwrap();
                    let (mut computed, mut expected) = (Vec::new(), Vec::new());
                    for (t, c) in (0..m).flat_map(|t| (0..n).map(move |c| (t, c))) {
                        if !columns.contains(&c) {
                            assert!(out[t * n + c].is_nan(), "a column outside was written");
                        } else if (c + t) % 17 == 0 {
                            let sum = Dot::of(&x[t * k..][..k], &w[c * k..][..k]);
                            computed.push(out[t * n + c]);
                            expected.push(sum.plus(f64::from(b[c])).near_rounded(dtype));
                        }
                    }
                    assert_near(&computed, &expected, bound(dtype), &what);
                }
            }
        }
        assert!(2 * in_codes > codings::all().len(), "{in_codes} codings are in codes on the device, {dtype:?}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn scales_on_the_sums_agree_and_a_row_gives_the_same_bits_alone_and_among_eight() {
    on_device(|cuda, dtype| {
        cuda.set_route(Route::Auto);
        let mut held = 0;
        for coding in codings::all() {
            let mut random = Random(17);
            // Whole tiles and steps, with one slice of k and with several; then for each kernel of layers that shared memory holds, one of which has a last
            // octet that is not full.
            let scaled = [[272, 4608], [48, 12_288usize]];
            let small = [[1003, 3072], [1024, 1152], [2048, 1536], [4096, 768], [6000, 768], [3000, 1536]];
            for [n, k] in scaled.into_iter().chain(small) {
                if !k.is_multiple_of(coding.group()) {
                    continue;
                }
                let host = codings::matrix(&mut random, coding, [n, k]);
                let w: Vec<f32> = host.to_f32().into_iter().map(|v| rounded(v, dtype)).collect();
                let b = numbers(&mut random, n, 1.0, dtype);
                let weight = cuda.matrix(&[host]).unwrap();
                let bias = cuda.vector(&[host_vector(&b, dtype)]).unwrap();
                let x = numbers(&mut random, 16 * k, 1.0, dtype);
                let mut among_eight = Vec::new();
                for m in [8, 1, 3, 11, 16] {
                    let tx = filled(cuda, &x[..m * k], k);
                    let mut out = poisoned(cuda, m, n);
                    let kernels = launched(cuda, |cuda| {
                        ops::linear(cuda, &mut out, LayerInput::new(&tx, &weight, Some(&bias)), 0..n)
                    });
                    held += usize::from(kernels.iter().any(|kernel| kernel.starts_with("gemv_shared_quantized_")));
                    let out = cuda.read(&out).unwrap();
                    let what = format!("{coding}, {m} x {n} x {k}, {dtype:?}");
                    if m == 8 {
                        among_eight = bits(&out);
                    } else if m < 8 {
                        assert_eq!(bits(&out), among_eight[..m * n], "{what}");
                    }
                    let all = (0..m).flat_map(|t| (0..n).map(move |c| (t, c))).filter(|(t, c)| (c + t) % 17 == 0);
                    let (computed, expected): (Vec<f32>, Vec<Near>) = all
                        .map(|(t, c)| {
                            let sum = Dot::of(&x[t * k..][..k], &w[c * k..][..k]).plus(f64::from(b[c]));
                            (out[t * n + c], sum.near_rounded(dtype))
                        })
                        .unzip();
                    assert_near(&computed, &expected, bound(dtype), &what);
                }
            }
        }
        assert!(!cuda.is_hopper() || held > 100, "{held} layers are held by shared memory, {dtype:?}");
    });
}

/// Codings that have a kernel for up to 256 tokens on compute capability 9.0.
fn is_for_many_tokens(coding: WeightFormat) -> bool {
    use formats::{Block, Codes, Scaled, Scales};
    match coding {
        WeightFormat::Block(block) => matches!(block, Block::Q4_0 | Block::Q8_0 | Block::Q4K | Block::Q5K | Block::Q6K),
        WeightFormat::Scaled(Scaled { codes, scales, group, .. }) => {
            let is_shared = group == Scaled::ROW || group.is_multiple_of(64);
            match codes {
                Codes::U4 => is_shared && scales != Scales::F32,
                Codes::U8 | Codes::I8 => is_shared && scales != Scales::F32,
                Codes::E4m3 => true,
                Codes::E2m1 => false,
            }
        }
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => false,
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn many_tokens_agree_and_a_row_gives_the_same_bits_in_its_class() {
    on_device(|cuda, dtype| {
        cuda.set_route(Route::Auto);
        let (most, is_hopper) = (256, cuda.is_hopper());
        for coding in codings::all() {
            let mut random = Random(18);
            let short = match coding.group() {
                128 | 256 => 1280,
                96 => 1152,
                _ => 1088,
            };
            // A last tile and a last octet that are not full; with k as a whole and divided.
            for [n, k] in [[1003, short], [272, 4608], [48, 12_288]] {
                let host = codings::matrix(&mut random, coding, [n, k]);
                let w: Vec<f32> = host.to_f32().into_iter().map(|v| rounded(v, dtype)).collect();
                let b = numbers(&mut random, n, 1.0, dtype);
                let weight = cuda.matrix(&[host]).unwrap();
                let bias = cuda.vector(&[host_vector(&b, dtype)]).unwrap();
                let x = numbers(&mut random, most * k, 1.0, dtype);
                let exact: Vec<(usize, usize, Near)> = (0..most)
                    .flat_map(|t| (0..n).map(move |c| (t, c)))
                    .filter(|(t, c)| (c + t) % 37 == 0)
                    .map(|(t, c)| {
                        let sum = Dot::of(&x[t * k..][..k], &w[c * k..][..k]).plus(f64::from(b[c]));
                        (t, c, sum.near_rounded(dtype))
                    })
                    .collect();
                let mut rows = |from: usize, rows: usize| {
                    let tx = filled(cuda, &x[from * k..][..rows * k], k);
                    let mut out = poisoned(cuda, rows, n);
                    ops::linear(cuda, &mut out, LayerInput::new(&tx, &weight, Some(&bias)), 0..n);
                    cuda.read(&out).unwrap()
                };
                for (least, all) in [(9, 16), (17, 32), (33, 64), (65, 128), (129, 256)] {
                    let what = format!("{coding}, {all} x {n} x {k}, {dtype:?}");
                    let together = rows(0, all);
                    assert!(together.iter().all(|v| v.is_finite()), "{what}: a result was not written");
                    let of_class = exact.iter().filter(|(t, _, _)| *t < all);
                    let (computed, expected): (Vec<f32>, Vec<Near>) =
                        of_class.map(|&(t, c, sum)| (together[t * n + c], sum)).unzip();
                    assert_near(&computed, &expected, bound(dtype), &what);
                    if all <= 32 || is_hopper && is_for_many_tokens(coding) {
                        for (from, count) in [(0, least), (all - least, least), (1, all - 3)] {
                            let wanted = bits(&together[from * n..][..count * n]);
                            assert!(bits(&rows(from, count)) == wanted, "{what}: {count} rows from {from}");
                        }
                    }
                }
            }
        }
    });
}

/// By tiles of 256 tokens, of which the last are not full, with k as a whole and in two parts.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn prompts_agree() {
    on_device(|cuda, dtype| {
        cuda.set_route(Route::Auto);
        for block in [Block::Q8_0, Block::Q4K, Block::Q5K, Block::Q6K] {
            let ([n, k], counts) = ([4088, 4096], [385, 512, 1000]);
            let mut random = Random(19);
            let host = codings::matrix(&mut random, WeightFormat::Block(block), [n, k]);
            let w: Vec<f32> = host.to_f32().into_iter().map(|v| rounded(v, dtype)).collect();
            let weight = cuda.matrix(&[host]).unwrap();
            for m in counts {
                let x = numbers(&mut random, m * k, 1.0, dtype);
                let (tx, mut out) = (filled(cuda, &x, k), poisoned(cuda, m, n));
                let kernels = launched(cuda, |cuda| {
                    ops::linear(cuda, &mut out, LayerInput::new(&tx, &weight, None), 0..n);
                });
                let what = format!("{block:?}, {m} x {n} x {k}, {dtype:?}, {kernels:?}");
                let is_planned = kernels.iter().any(|name| name.contains("_t256_c128"));
                assert!(is_planned || !cuda.is_hopper(), "{what}");
                let out = cuda.read(&out).unwrap();
                assert!(out.iter().all(|v| v.is_finite()), "{what}: a result was not written");
                let compared = (0..m).flat_map(|t| (0..n).map(move |c| (t, c))).filter(|(t, c)| (c + t) % 211 == 0);
                let (computed, expected): (Vec<f32>, Vec<Near>) = compared
                    .map(|(t, c)| {
                        let sum = Dot::of(&x[t * k..][..k], &w[c * k..][..k]);
                        (out[t * n + c], sum.near_rounded(dtype))
                    })
                    .unzip();
                assert_near(&computed, &expected, bound(dtype), &what);
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn parts_of_a_stack_in_several_codings_give_the_bits_of_each() {
    on_device(|cuda, dtype| {
        let mut random = Random(13);
        let k = 1024;
        let kinds = codings::all();
        let rows = [64, 24, 40, 7, 16, 9, 128];
        let mut parts: Vec<HostMatrix> = Vec::new();
        for (i, &rows) in rows.iter().enumerate() {
            // Neighbours of one coding become one run where the rows allow it.
            parts.push(codings::matrix(&mut random, kinds[i / 2 * 3], [rows, k]));
        }
        parts.insert(3, codings::matrix(&mut random, kinds[7], [5, k]).converted(dtype.into()).unwrap());
        let n = parts.iter().map(|part| part.shape().0).sum::<usize>();
        let [coded, plain] = pair(cuda, &parts, dtype);
        cuda.set_route(Route::Tiled);
        for m in [1, 33, 300] {
            let x = filled(cuda, &numbers(&mut random, m * k, 1.0, dtype), k);
            for columns in [0..n, 3..n - 2, 70..100] {
                let found = product(cuda, &x, &coded, columns.clone(), n);
                let wanted = product(cuda, &x, &plain, columns.clone(), n);
                assert_eq!(bits(&found), bits(&wanted), "{m}, {columns:?}, {dtype:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn slices_of_a_large_matrix_give_its_bits() {
    on_device(|cuda, dtype| {
        let mut random = Random(14);
        let (n, k) = (9000, 8192);
        let host = codings::matrix(&mut random, codings::all()[5], [n, k]);
        let [coded, plain] = pair(cuda, &[host], dtype);
        cuda.set_route(Route::Tiled);
        for (m, columns) in [(70, 0..n), (200, 3..n - 1)] {
            let x = filled(cuda, &numbers(&mut random, m * k, 1.0, dtype), k);
            let found = product(cuda, &x, &coded, columns.clone(), n);
            let wanted = product(cuda, &x, &plain, columns.clone(), n);
            assert!(bits(&found) == bits(&wanted), "{m}, {columns:?}, {dtype:?}");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn what_no_kernel_has_exactly_is_decoded() {
    use formats::{Block, Codes, Scaled, Scales};
    use os::HostBytes;
    on_device(|cuda, dtype| {
        let mut random = Random(15);
        let k = 256;
        let owned = |bytes: Vec<u8>| HostBytes::owned(bytes.into());
        let floats = Scaled { codes: Codes::E4m3, scales: Scales::F32, group: 128, zeros: false };
        let mut codes: Vec<u8> = (0..16 * k).map(|i| (i * 37 % 120) as u8).collect();
        codes[3 * k + 5] = 0x7f;
        let scales: Vec<u8> = (0..32).flat_map(|_| 0.25f32.to_le_bytes()).collect();
        let not_a_number =
            HostMatrix::scaled(owned(codes), owned(scales), owned(Vec::new()), WeightFormat::Scaled(floats), 16, k);
        let mut blocks = vec![1; 16 * WeightFormat::Block(Block::Q8_0).row_bytes(k)];
        blocks[..2].copy_from_slice(&half::f16::INFINITY.to_le_bytes());
        let infinite = HostMatrix::new(owned(blocks), WeightFormat::Block(Block::Q8_0), 16, k);
        for (what, host) in [("a code that is no number", not_a_number), ("a scale that is infinite", infinite)] {
            let x = filled(cuda, &numbers(&mut random, 4 * k, 1.0, dtype), k);
            let [coded, plain] = pair(cuda, &[host], dtype);
            let (found, wanted) = (product(cuda, &x, &coded, 0..16, 16), product(cuda, &x, &plain, 0..16, 16));
            let as_bits = |numbers: &[f32]| -> Vec<Option<u32>> {
                numbers.iter().map(|v| (!v.is_nan()).then(|| v.to_bits())).collect()
            };
            assert_eq!(as_bits(&found), as_bits(&wanted), "{what}, {dtype:?}");
            assert!(found.iter().any(|v| !v.is_finite()), "{what}, {dtype:?}");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn rows_of_a_coded_table_are_its_numbers() {
    on_device(|cuda, dtype| {
        for coding in codings::all() {
            let mut random = Random(16);
            let hidden = sizes(coding)[1][1];
            let host = codings::matrix(&mut random, coding, [50, hidden]);
            let table: Vec<f32> = host.to_f32().into_iter().map(|v| rounded(v, dtype)).collect();
            let matrix = cuda.matrix(&[host]).unwrap();
            let scene = Scene::new(&[(0, 64), (3, 2)], 16, &mut random);
            let device_batch = staged(cuda, &scene.batch);
            for scale in [1.0, 12.0] {
                let mut out = poisoned(cuda, 66, hidden);
                ops::embedding(cuda, &mut out, &matrix, scale, &device_batch);
                let rows = scene.batch.token_ids.iter().map(|&id| &table[id as usize * hidden..][..hidden]);
                let wanted: Vec<f32> = rows.flatten().map(|v| rounded(v * scale, dtype)).collect();
                assert_eq!(cuda.read(&out).unwrap(), wanted, "{coding}, {scale}, {dtype:?}");
            }
        }
    });
}
