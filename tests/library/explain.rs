//! An explanation says what computes each product of a layer, and what is no question about the model is refused by name.

use crate::small;
use runner::explain::{Question, explain};
use runner::options::EngineOptions;
use runner::source::Source;
use std::path::Path;

const ONE: Question = Question { gpu: None, rows: 1, tokens: 1, context: None, layer: 0 };

fn demo() -> &'static Path {
    Path::new("models/demo")
}

fn on(gpu: &str) -> Option<String> {
    Some(gpu.to_owned())
}

fn text(path: &Path, question: &Question) -> String {
    let source = Source::open(path).expect("a model");
    explain(&source, &EngineOptions::new(path), question).unwrap_or_else(|error| panic!("{question:?}: {error}"))
}

fn refusal(path: &Path, options: &EngineOptions, question: &Question) -> String {
    let source = Source::open(path).expect("a model");
    explain(&source, options, question).expect_err("a refusal").to_string()
}

/// The cells of each row of a table but its head.
fn cells(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    rows.map(cells).filter(|row| row[1] != "weights").collect()
}

#[test]
fn the_products_of_a_layer_and_the_head_are_listed_in_order() {
    let rows = cells(&text(demo(), &ONE));
    let names: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    let wanted = [
        "qkv, 512 x 256",
        "attention, 4 heads of 64 over 2",
        "o, 256 x 256",
        "gate_up, 1536 x 256",
        "down, 256 x 768",
        "head, 2048 x 256",
    ];
    assert_eq!(names, wanted);
    assert!(rows.iter().all(|row| row[1].eq_ignore_ascii_case("bf16") && !row[2].is_empty()), "{rows:?}");
}

#[test]
#[cfg(feature = "cuda")]
fn a_gpu_is_explained_without_one() {
    // The kernels of each GPU, for 1 row and for 32.
    let cases: [(&str, usize, [&str; 6]); 3] = [
        (
            "h100",
            1,
            [
                "gemv_shared_r8_s2",
                "attention_decode_raw_d64",
                "gemv_shared_r8_s2",
                "gemv_shared_gated_r16_s2",
                "gemv_shared_r8_s2",
                "gemv_shared_r16_s2",
            ],
        ),
        (
            "h200",
            32,
            [
                "gemm_swap_ab_t32",
                "attention_decode_raw_d64",
                "gemm_swap_ab_added_t32",
                "gemm_swap_ab_gated_t32",
                "gemm_swap_ab_added_t32",
                "gemm_swap_ab_t32",
            ],
        ),
        (
            "a100",
            1024,
            [
                "cublasLtMatmul",
                "rope_and_cache, attention_decode_d64_g8",
                "cublasLtMatmul, norm apart",
                "cublasLtMatmul, activation apart",
                "cublasLtMatmul, norm apart",
                "cublasLtMatmul",
            ],
        ),
    ];
    for (gpu, rows, kernels) in cases {
        let text = text(demo(), &Question { gpu: on(gpu), rows, ..ONE });
        let rows = cells(&text);
        let found: Vec<_> = rows.iter().map(|row| row[2].as_str()).collect();
        assert_eq!(found, kernels, "{gpu}");
        assert!(rows.iter().all(|row| row.last().is_some_and(|bound| bound == "memory" || bound == "math")), "{text}");
        assert!(text.contains("the head take at least"), "{text}");
    }
}

#[test]
#[cfg(feature = "cuda")]
fn rows_of_weights_in_several_forms_are_several_products() {
    // The kinds of blocks of GGUF: Q8_0 for queries and keys, F32 for all else.
    const Q8_0: u32 = 8;
    let (hidden, width) = (64, 64);
    let mut file = small::keys_of(hidden, width);
    for (seed, (name, [rows, cols])) in small::matrices_of(hidden, width).into_iter().enumerate() {
        match name {
            "blk.0.attn_q.weight" | "blk.0.attn_k.weight" => {
                file.coded(name, &[rows, cols], Q8_0, [0; 34].repeat(rows * cols / 32));
            }
            _ => {
                file.tensor(name, &[rows, cols], &small::numbers(seed as u64, rows * cols));
            }
        }
    }
    small::add_norms(&mut file, hidden);
    let path = std::env::temp_dir().join(format!("nanovllm-explain-{}.gguf", std::process::id()));
    std::fs::write(&path, file.bytes()).expect("a file");
    let rows = cells(&text(&path, &Question { gpu: on("h100"), rows: 8, ..ONE }));
    let of_cpu = cells(&text(&path, &ONE));
    std::fs::remove_file(&path).expect("the file");
    let titles: Vec<_> = rows[..2].iter().map(|row| [row[0].as_str(), row[1].as_str()]).collect();
    assert_eq!(titles, [["qkv, 128 x 64, rows 0 to 95", "Q8_0"], ["qkv, 128 x 64, rows 96 to 127", "BF16"]]);
    assert_eq!(of_cpu[0][1], "Q8_0 and F32");
}

#[test]
#[cfg(feature = "cuda")]
fn experts_and_recurrent_layers_are_explained() {
    let golden = |name: &str| Path::new("tests/golden").join(name);
    let mixture = Question { gpu: on("h100"), rows: 32, layer: 1, ..ONE };
    let rows = cells(&text(&golden("qwen3_moe-f32"), &mixture));
    assert_eq!(
        rows[4][..3],
        ["experts gate_up, 48 x 32, 2 of 6 experts", "BF16 (6 experts read)", "expert_linear_t16_c64"]
    );
    let rows = cells(&text(&golden("qwen3_moe-f32"), &Question { rows: 1, ..mixture.clone() }));
    assert_eq!(rows[4][1..3], ["BF16 (2 experts read)", "expert_linear_few"]);
    let rows = cells(&text(&golden("qwen3_5_moe_text-f32"), &Question { layer: 0, ..mixture }));
    let delta = rows.iter().find(|row| row[0] == "gated delta rule").expect("a recurrence");
    assert_eq!(delta.last().map(String::as_str), Some("not estimated"));
}

#[test]
fn what_no_model_answers_is_refused_by_name() {
    let options = EngineOptions::new(demo());
    for (message, question) in [
        ("rows is 0, but must be a number of sequences from 1 to 65536", Question { rows: 0, ..ONE }),
        ("rows is 65537, but", Question { rows: 65_537, ..ONE }),
        ("tokens is 0, but must be at least 1", Question { tokens: 0, ..ONE }),
        ("tokens is 1024 in each of 1025 rows, but must be at most", Question { rows: 1025, tokens: 1024, ..ONE }),
        ("layer is 6, and the model has 6 layers, but", Question { layer: 6, ..ONE }),
        ("context is 4097, with 1 new tokens and max_model_len 4096, but", Question { context: Some(4097), ..ONE }),
        ("context is 2, with 3 new tokens", Question { tokens: 3, context: Some(2), ..ONE }),
    ] {
        let found = refusal(demo(), &options, &question);
        assert!(found.starts_with(message), "{found}");
    }
    let ranks = EngineOptions { tensor_parallel_size: 2, ..options.clone() };
    assert!(refusal(demo(), &ranks, &ONE).starts_with("tensor_parallel_size is 2, but must be 1"));
    let encoder = Path::new("tests/golden/encoders/bert-f32");
    let found = refusal(encoder, &EngineOptions::new(encoder), &Question { context: Some(9), ..ONE });
    assert!(found.starts_with("context is 9, with 1 new tokens in a text of an encoder, but"), "{found}");
    let found = refusal(demo(), &options, &Question { gpu: on("b200"), ..ONE });
    let wanted = match cfg!(feature = "cuda") {
        true => "gpu is b200, but must be h100, h200, a100 or rtx4090",
        false => "an explanation for the GPU b200",
    };
    assert!(found.contains(wanted), "{found}");
}
