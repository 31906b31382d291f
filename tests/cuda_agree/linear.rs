//! `linear`, on every route.

use crate::scene::{
    Dot, Near, Random, assert_near, bound, filled, host_matrix, host_vector, launched, numbers, on_device, poisoned,
};
use compute::cuda::{Chaining, Cuda, Route};
use compute::ops;
use compute::{Device, LayerInput, Rounding};
use formats::DType;
use std::ops::Range;

/// How the names of kernels end.
fn suffix(dtype: DType) -> &'static str {
    if dtype == DType::Bf16 { "bf16" } else { "f16" }
}

/// How a sum may be rounded. cuBLASLt may cut k and add up parts that it stored in the number type; our own kernels add up in f32.
fn near(sum: Dot, kernels: &[String], dtype: DType) -> Near {
    match kernels.iter().any(|kernel| kernel.starts_with("cublasLt")) {
        true => sum.near_rounded(dtype),
        false => sum.near(dtype),
    }
}

/// Asserts that the kernels which `Route` names for a layer of plain weights computed it, and no other ones.
fn assert_route(cuda: &Cuda, route: Route, [m, k]: [usize; 2], columns: &Range<usize>, kernels: &[String], what: &str) {
    let wanted: &[&str] = match route {
        Route::Auto => &[""],
        Route::Stream if m <= 64 => &["gemv_stream_"],
        Route::Hopper if cuda.is_hopper() && (9..=256).contains(&m) && k.is_multiple_of(64) => {
            &["gemm_swap_ab_", "gemm_m128_", "gemm_full_n_"]
        }
        Route::Stream | Route::Hopper | Route::Tiled => &["gemm_tiled_"],
        Route::Blas => &["cublasLt"],
    };
    let is_wanted = |kernel: &String| wanted.iter().any(|name| kernel.starts_with(name));
    // The library may know no algorithm for results that do not lie at multiples of 16 bytes.
    let is_aligned = columns.start.is_multiple_of(8) && columns.len().is_multiple_of(8);
    let may_refuse = route == Route::Blas && !is_aligned;
    let is_refused = may_refuse && kernels.iter().all(|kernel| kernel.starts_with("gemm_tiled_"));
    assert!(!kernels.is_empty(), "{what}: nothing was launched");
    assert!(kernels.iter().all(is_wanted) || is_refused, "{what}: computed by {kernels:?}, not by {wanted:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn linear_layers_agree_on_every_route() {
    on_device(|cuda, dtype| {
        let sizes = [
            (97, 40),
            (64, 8),
            (72, 64),
            (1024, 2048),
            (4096, 1024),
            (330, 1064),
            (1003, 1088),
            (2560, 3072),
            (8440, 136),
        ];
        for (n, k) in sizes {
            let mut random = Random(3);
            let w = numbers(&mut random, n * k, 0.1, dtype);
            let b = numbers(&mut random, n, 1.0, dtype);
            let split = n / 3;
            let parts =
                [host_matrix(&w[..split * k], [split, k], dtype), host_matrix(&w[split * k..], [n - split, k], dtype)];
            let weight = cuda.matrix(&parts).unwrap();
            let bias = cuda.vector(&[host_vector(&b, dtype)]).unwrap();
            for m in [1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 96, 128, 129, 150, 200, 256] {
                let x = numbers(&mut random, m * k, 1.0, dtype);
                // Some are enough to be sure.
                let is_compared = |t: usize, c: usize| (c + t).is_multiple_of(7);
                let exact = |i: usize| -> Dot {
                    let (t, c) = (i / n, i % n);
                    if is_compared(t, c) { Dot::of(&x[t * k..][..k], &w[c * k..][..k]) } else { Dot::default() }
                };
                let exact: Vec<Dot> = (0..m * n).map(exact).collect();
                let tx = filled(cuda, &x, k);
                for route in [Route::Auto, Route::Stream, Route::Tiled, Route::Hopper, Route::Blas] {
                    if route == Route::Blas && !cuda.has_blas() {
                        continue;
                    }
                    cuda.set_route(route);
                    for (columns, has_bias) in [(0..n, false), (0..n, true), (n / 8 * 3..n - n / 5, true)] {
                        let mut out = poisoned(cuda, m, n);
                        let bias = has_bias.then_some(&bias);
                        let kernels = launched(cuda, |cuda| {
                            ops::linear(cuda, &mut out, LayerInput::new(&tx, &weight, bias), columns.clone());
                        });
                        let what = format!("{m} x {n} x {k}, {columns:?}, bias {has_bias}, {route:?}, {dtype:?}");
                        assert_route(cuda, route, [m, k], &columns, &kernels, &what);
                        let planned = cuda.planned(m, &weight, false).unwrap();
                        if columns == (0..n) && planned != "cublasLtMatmul" {
                            assert_eq!(kernels, [format!("{planned}_{}", suffix(dtype))], "{what}");
                        }
                        let out = cuda.read(&out).unwrap();
                        let (mut computed, mut expected) = (Vec::new(), Vec::new());
                        for t in 0..m {
                            for c in 0..n {
                                if !columns.contains(&c) {
                                    assert!(out[t * n + c].is_nan(), "a column outside was written");
                                } else if is_compared(t, c) {
                                    computed.push(out[t * n + c]);
                                    let sum = exact[t * n + c];
                                    let sum = if has_bias { sum.plus(f64::from(b[c])) } else { sum };
                                    expected.push(near(sum, &kernels, dtype));
                                } else {
                                    assert!(
                                        out[t * n + c].is_finite(),
                                        "{m} {n} {k} {route:?}: {t} {c} was not written"
                                    );
                                }
                            }
                        }
                        assert_near(&computed, &expected, bound(dtype), &what);
                    }
                }
            }
        }
    });
}

/// Layers for `gemm_full_n.cu` where a device has 132 multiprocessors: in tiles of one, two and three warpgroups, and with k divided.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn layers_with_many_weights_agree() {
    on_device(|cuda, dtype| {
        for (n, k) in [(3000, 4096), (4096, 4096), (6100, 1472), (12_000, 768), (17_704, 512), (28_600, 320)] {
            let mut random = Random(3);
            let w = numbers(&mut random, n * k, 0.1, dtype);
            let b = numbers(&mut random, n, 1.0, dtype);
            let weight = cuda.matrix(&[host_matrix(&w, [n, k], dtype)]).unwrap();
            let bias = cuda.vector(&[host_vector(&b, dtype)]).unwrap();
            for m in [9, 33, 60, 64, 65, 100, 128, 129, 192, 200, 256] {
                let mut x = numbers(&mut random, m * k, 1.0, dtype);
                x.resize((m + 1) * k, f32::NAN);
                let mut tx = filled(cuda, &x, k);
                tx.set_rows(m);
                for (chaining, columns, has_bias) in [
                    (Chaining::DependentLaunch, 0..n, false),
                    (Chaining::Strict, 0..n, true),
                    (Chaining::DependentLaunch, 4..n - 3, true),
                ] {
                    cuda.set_chaining(chaining);
                    let mut out = poisoned(cuda, m + 1, n);
                    out.set_rows(m);
                    let bias = has_bias.then_some(&bias);
                    let kernels = launched(cuda, |cuda| {
                        ops::linear(cuda, &mut out, LayerInput::new(&tx, &weight, bias), columns.clone())
                    });
                    out.set_rows(m + 1);
                    let out = cuda.read(&out).unwrap();
                    let what = format!("{m} x {n} x {k}, {columns:?}, bias {has_bias}, {dtype:?}");
                    let (mut computed, mut expected) = (Vec::new(), Vec::new());
                    for (i, &v) in out.iter().enumerate() {
                        let (t, c) = (i / n, i % n);
                        if t == m || !columns.contains(&c) {
                            assert!(v.is_nan(), "{what}: {t} {c} is outside and was written");
                            continue;
                        }
                        assert!(v.is_finite(), "{what}: {t} {c} was not written");
                        if (c + 5 * t) % 61 == 0 {
                            let sum = Dot::of(&x[t * k..][..k], &w[c * k..][..k]);
                            let sum = if has_bias { sum.plus(f64::from(b[c])) } else { sum };
                            computed.push(v);
                            expected.push(near(sum, &kernels, dtype));
                        }
                    }
                    assert_near(&computed, &expected, bound(dtype), &what);
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_row_gives_the_same_bits_alone_and_among_eight() {
    on_device(|cuda, dtype| {
        cuda.set_route(Route::Stream);
        for (n, k) in [(97, 40), (1024, 2048), (4096, 4096), (2560, 3072)] {
            let mut random = Random(4);
            let weight = cuda.matrix(&[host_matrix(&numbers(&mut random, n * k, 0.1, dtype), [n, k], dtype)]).unwrap();
            let x = numbers(&mut random, 8 * k, 1.0, dtype);
            let mut rows = |x: &[f32]| {
                let x = filled(cuda, x, k);
                let mut out = poisoned(cuda, x.rows(), n);
                ops::linear(cuda, &mut out, LayerInput::new(&x, &weight, None), 0..n);
                cuda.read(&out).unwrap()
            };
            let together = rows(&x);
            for (i, row) in x.chunks_exact(k).enumerate() {
                assert_eq!(rows(row), together[i * n..][..n], "row {i} of {n} x {k}, {dtype:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn up_to_8_tokens_have_the_bits_of_the_stream() {
    on_device(|cuda, dtype| {
        // Comparisons with another kernel than that of the stream.
        let mut others = 0;
        let sizes = [
            (8, 8),
            (97, 40),
            (1003, 1088),
            (1024, 2048),
            (1024, 3072),
            (64, 4096),
            (2000, 1024),
            (1999, 1096),
            (4096, 1024),
            (4001, 1400),
            (6144, 1024),
            (5000, 904),
            (8224, 1024),
            (8441, 520),
        ];
        for (n, k) in sizes {
            let mut random = Random(5);
            let weight = cuda.matrix(&[host_matrix(&numbers(&mut random, n * k, 0.1, dtype), [n, k], dtype)]).unwrap();
            let bias = cuda.vector(&[host_vector(&numbers(&mut random, n, 1.0, dtype), dtype)]).unwrap();
            for m in 1..=8 {
                let mut x = numbers(&mut random, m * k, 1.0, dtype);
                x.resize((m + 1) * k, f32::NAN);
                let mut x = filled(cuda, &x, k);
                x.set_rows(m);
                for (chaining, columns, bias) in [
                    (Chaining::DependentLaunch, 0..n, Some(&bias)),
                    (Chaining::Strict, 0..n, None),
                    (Chaining::DependentLaunch, n / 8..n - n / 5, Some(&bias)),
                ] {
                    cuda.set_chaining(chaining);
                    let [few, stream] = [Route::Auto, Route::Stream].map(|route| {
                        cuda.set_route(route);
                        let mut out = poisoned(cuda, m + 1, n);
                        out.set_rows(m);
                        let kernels = launched(cuda, |cuda| {
                            ops::linear(cuda, &mut out, LayerInput::new(&x, &weight, bias), columns.clone())
                        });
                        match route {
                            Route::Stream => assert_route(cuda, route, [m, k], &columns, &kernels, "the stream"),
                            _ => others += usize::from(kernels.iter().all(|kernel| kernel.starts_with("gemv_shared_"))),
                        }
                        out.set_rows(m + 1);
                        cuda.read(&out).unwrap()
                    });
                    let differs = few.iter().zip(&stream).position(|(a, b)| a.to_bits() != b.to_bits());
                    assert_eq!(differs, None, "{m} x {n} x {k}, {columns:?}, bias {}, {dtype:?}", bias.is_some());
                }
            }
        }
        assert_eq!(others > 0, cuda.is_hopper(), "layers by `gemv_shared.cu`: {others}, {dtype:?}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_large_layer_has_the_bits_of_its_slices() {
    on_device(|cuda, dtype| {
        cuda.set_route(Route::Stream);
        // The halves are too small for the deep rings of the whole.
        for (n, k) in [(35_003, 1000), (20_000, 2056)] {
            let mut random = Random(7);
            let weight = cuda.matrix(&[host_matrix(&numbers(&mut random, n * k, 0.1, dtype), [n, k], dtype)]).unwrap();
            let bias = cuda.vector(&[host_vector(&numbers(&mut random, n, 1.0, dtype), dtype)]).unwrap();
            for m in [1, 2, 3, 4, 5, 8] {
                let mut x = numbers(&mut random, m * k, 1.0, dtype);
                x.resize((m + 1) * k, f32::NAN);
                let mut x = filled(cuda, &x, k);
                x.set_rows(m);
                for chaining in [Chaining::Strict, Chaining::DependentLaunch] {
                    cuda.set_chaining(chaining);
                    let [whole, halves] = [n, n / 2].map(|first| {
                        let mut out = poisoned(cuda, m + 1, n);
                        out.set_rows(m);
                        for columns in [0..first, first..n] {
                            ops::linear(cuda, &mut out, LayerInput::new(&x, &weight, Some(&bias)), columns);
                        }
                        out.set_rows(m + 1);
                        cuda.read(&out).unwrap()
                    });
                    let differs = whole.iter().zip(&halves).position(|(a, b)| a.to_bits() != b.to_bits());
                    assert_eq!(differs, None, "{m} x {n} x {k}, {chaining:?}, {dtype:?}");
                    assert!(whole[..m * n].iter().all(|v| v.is_finite()), "{m} x {n} x {k}, {chaining:?}, {dtype:?}");
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn large_layers_give_the_same_bits_strict_and_by_dependent_launch() {
    on_device(|cuda, dtype| {
        cuda.set_route(Route::Stream);
        let (wide, narrow) = (20_000, 2056);
        let mut random = Random(8);
        let [up, down] = [[wide, narrow], [narrow, wide]].map(|[n, k]| {
            cuda.matrix(&[host_matrix(&numbers(&mut random, n * k, 0.02, dtype), [n, k], dtype)]).unwrap()
        });
        for m in [1, 4, 7] {
            let x = numbers(&mut random, m * narrow, 1.0, dtype);
            let mut chain = |chaining| {
                cuda.set_chaining(chaining);
                let (mut x, mut y) = (filled(cuda, &x, narrow), poisoned(cuda, m, wide));
                for _ in 0..4 {
                    ops::linear(cuda, &mut y, LayerInput::new(&x, &up, None), 0..wide);
                    ops::linear(cuda, &mut x, LayerInput::new(&y, &down, None), 0..narrow);
                }
                cuda.read(&x).unwrap()
            };
            let strict = chain(Chaining::Strict);
            assert!(strict.iter().all(|v| v.is_finite()));
            for _ in 0..3 {
                assert!(chain(Chaining::DependentLaunch) == strict, "{m} tokens, {dtype:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_row_gives_the_same_bits_among_9_and_among_128_and_among_129_and_among_256() {
    on_device(|cuda, dtype| {
        // On other devices the route leads to a kernel that gives the same bits among any number.
        cuda.set_route(Route::Hopper);
        for (n, k) in [
            (97, 64),
            (1003, 1088),
            (1024, 2048),
            (4096, 1024),
            (512, 3072),
            (4096, 4096),
            (3000, 8192),
            (6100, 1472),
            (17_704, 512),
        ] {
            let mut random = Random(4);
            let weight = cuda.matrix(&[host_matrix(&numbers(&mut random, n * k, 0.1, dtype), [n, k], dtype)]).unwrap();
            let x = numbers(&mut random, 256 * k, 1.0, dtype);
            let mut rows = |from: usize, rows: usize| {
                let x = filled(cuda, &x[from * k..][..rows * k], k);
                let mut out = poisoned(cuda, rows, n);
                ops::linear(cuda, &mut out, LayerInput::new(&x, &weight, None), 0..n);
                cuda.read(&out).unwrap()
            };
            let few = [(0, 9), (3, 16), (40, 17), (64, 32), (1, 33), (60, 64), (5, 65), (9, 96), (7, 121), (0, 128)];
            let many = [(0, 129), (100, 136), (31, 192), (7, 193), (0, 256)];
            for (most, ranges) in [(128, &few[..]), (256, &many[..])] {
                let together = rows(0, most);
                for &(from, count) in ranges {
                    for _ in 0..3 {
                        let wanted = &together[from * n..][..count * n];
                        assert!(rows(from, count) == wanted, "{count} rows from {from} of {n} x {k}, {dtype:?}");
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_batch_invariant_row_gives_the_same_bits_among_any_number() {
    on_device(|cuda, dtype| {
        cuda.set_rounding(Rounding::BatchInvariant);
        for (n, k) in [
            (97, 40),
            (1003, 64),
            (1024, 2048),
            (5000, 1024),
            (512, 3072),
            (1024, 4160),
            (4096, 1024),
            (2056, 2112),
            (6144, 4096),
            (12_808, 192),
            (12_800, 2048),
        ] {
            let mut random = Random(4);
            let w = numbers(&mut random, n * k, 0.1, dtype);
            let weight = cuda.matrix(&[host_matrix(&w, [n, k], dtype)]).unwrap();
            let b = numbers(&mut random, n, 1.0, dtype);
            let bias = cuda.vector(&[host_vector(&b, dtype)]).unwrap();
            let most = 2100;
            let x = numbers(&mut random, most * k, 1.0, dtype);
            let mut rows = |from: usize, rows: usize, columns: std::ops::Range<usize>| {
                let x = filled(cuda, &x[from * k..][..rows * k], k);
                let mut out = poisoned(cuda, rows, n);
                ops::linear(cuda, &mut out, LayerInput::new(&x, &weight, Some(&bias)), columns);
                cuda.read(&out).unwrap()
            };
            // Each of them begins elsewhere within a tile.
            let together = rows(0, most, 0..n);
            let counts = [
                (0, 1),
                (77, 1),
                (3, 5),
                (100, 16),
                (501, 17),
                (9, 64),
                (130, 65),
                (20, 90),
                (7, 104),
                (11, 128),
                (40, 129),
                (20, 150),
                (33, 192),
                (2, 193),
                (6, 230),
                (8, 256),
                (5, 257),
                (1, 300),
                (3, 512),
                (64, 1900),
            ];
            for (from, count) in counts {
                let wanted = &together[from * n..][..count * n];
                assert!(rows(from, count, 0..n) == wanted, "{count} rows from {from} of {n} x {k}, {dtype:?}");
            }
            // What a rank has of the columns, and a slice of quantized weights.
            for (count, columns) in [(1, 8..40), (33, 16..n), (700, 0..n / 2), (2100, n / 8 * 3..n - n / 5)] {
                let found = rows(0, count, columns.clone());
                for t in 0..count {
                    let (found, wanted) = (&found[t * n..][..n], &together[t * n..][..n]);
                    assert!(
                        found[columns.clone()] == wanted[columns.clone()],
                        "row {t} of {count}, {columns:?} of {n} x {k}"
                    );
                    assert!(
                        found[..columns.start].iter().chain(&found[columns.end..]).all(|v| v.is_nan()),
                        "{columns:?}"
                    );
                }
            }
            let (mut computed, mut expected) = (Vec::new(), Vec::new());
            for t in (0..most).step_by(97) {
                for c in (t % 31..n).step_by(31) {
                    computed.push(together[t * n + c]);
                    expected.push(Dot::of(&x[t * k..][..k], &w[c * k..][..k]).plus(f64::from(b[c])).near(dtype));
                }
            }
            assert!(together.iter().all(|v| v.is_finite()), "{n} x {k}");
            assert_near(&computed, &expected, bound(dtype), &format!("{n} x {k}, {dtype:?}"));
        }
    });
}
