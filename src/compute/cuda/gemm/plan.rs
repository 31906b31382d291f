//! Which kernel computes a product, and how is it cut?
//!
//! [`plan`] is a pure function: it reads no device and launches nothing. The kernels are tried in the order in which they stand here; each file of a
//! kernel has its limits, and the figures that they were measured with. `tests/plans` has what it returns for the layers of two models.
//!
//! Invariant: with [`Rounding::BatchInvariant`] the kernel and its cut of k depend on k alone.

use super::grid::Grid;
use super::quantized::weights::Form;
use super::swap_ab::SwapAb;
use super::{gated, gemv_shared, gemv_stream, quantized, swap_ab, tiled};
use crate::Rounding;
use crate::cuda::driver::Facts;
use formats::DType;
use std::ops::Range;

/// A product `x * weight^T`, and what becomes of its sums.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// Rows of x: tokens.
    pub m: usize,
    /// Rows of weights.
    pub n: usize,
    pub k: usize,
    pub weights: Weights,
    pub epilogue: Epilogue,
}

/// How the weights of a product lie in memory.
#[derive(Clone, Copy, Debug)]
pub enum Weights {
    /// In the model's number type.
    Plain,
    Quantized(Quantized),
}

/// Quantized weights, and what else limits the kernels for them.
#[derive(Clone, Copy, Debug)]
pub struct Quantized {
    pub form: Form,
    /// Rows of the first 8-row group that come before those of the product.
    pub skip: usize,
    /// Bytes of the buffer for dequantized weights.
    pub scratch_bytes: usize,
    /// Whether rows of the results begin at a multiple of 4 bytes.
    pub is_aligned: bool,
}

/// What becomes of the sums of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// They are stored.
    Store,
    /// `activation(gate) * up` is stored. Weights are gates over ups.
    Gated,
    /// They are added to the residual stream and normalized for products whose epilogues apply the scale: [`applies_factors`].
    AddNorm,
}

/// What a plan depends on besides the product.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    pub facts: Facts,
    /// The model's number type.
    pub dtype: DType,
    /// Whether cuBLASLt is installed.
    pub has_cublaslt: bool,
    pub rounding: Rounding,
    pub route: Route,
}

/// Which code computes a product: a choice of tests and benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The fastest that is there.
    Auto,
    /// `gemv_stream.cu`, for up to 64 tokens; more go to `Tiled`.
    Stream,
    /// `gemm_tiled.cu`.
    Tiled,
    /// `gemm_swap_ab.cu`, on compute capability 9.0, for 9 to 256 tokens and k that is a multiple of 64, and `gemm_gated.cu` for what
    /// it serves; other layers, and quantized weights, go to `Tiled`.
    Hopper,
    /// cuBLASLt; `Tiled` where it is missing.
    Blas,
}

/// The kernel of a product and its cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// `gemm_swap_ab.cu`, `gemm_full_n.cu` and `gemm_m128.cu`.
    SwapAb(swap_ab::Launch),
    /// `gemm_gated.cu`.
    Gated(gated::Plan),
    /// `gemv_shared.cu`.
    GemvShared(gemv_shared::Plan),
    /// `gemv_stream.cu`.
    GemvStream(gemv_stream::Plan),
    /// cuBLASLt; `gemm_tiled.cu` for sizes that it refuses.
    Cublaslt,
    /// `gemm_tiled.cu`.
    Tiled(tiled::Plan),
    /// `gemm_quantized.cu`.
    QuantizedSwapAb(quantized::swap_ab::Plan),
    /// `gemv_shared_quantized.cu`.
    QuantizedGemvShared(quantized::gemv_shared::Plan),
    /// `gemv_quantized.cu`.
    QuantizedGemv(quantized::gemv::Plan),
    /// `gemv_stream_quantized.cu`.
    QuantizedGemvStream(quantized::dequantize::Plan),
    /// `dequantize_weights.cu` for slices of at most this number of rows of weights, and a product of plain weights after each.
    Dequantize { rows: usize },
}

impl Launch {
    /// The name of the kernel, without the number type. That of a product of dequantized weights is planned for itself.
    pub fn kernel(&self, gemm: &Gemm) -> String {
        match self {
            Launch::SwapAb(launch) => launch.kernel(gemm.epilogue),
            Launch::Gated(plan) => plan.kernel(),
            Launch::GemvShared(plan) => plan.kernel(),
            Launch::GemvStream(plan) => plan.kernel(gemm.is_gated()),
            Launch::Cublaslt => CUBLASLT.to_owned(),
            Launch::Tiled(plan) => plan.kernel(),
            Launch::QuantizedSwapAb(plan) => plan.kernel(),
            Launch::QuantizedGemvShared(plan) => plan.kernel(),
            Launch::QuantizedGemv(plan) => plan.kernel(),
            Launch::QuantizedGemvStream(plan) => plan.kernel(),
            Launch::Dequantize { .. } => "dequantize_weights".to_owned(),
        }
    }

    /// Parts in which the squares of a row are summed, where the sums are added to the residual stream. `None`: no kernel does.
    pub fn squares(&self, gemm: &Gemm, dtype: DType) -> Option<usize> {
        let parts = match self {
            Launch::SwapAb(launch) => return launch.squares(gemm, dtype),
            _ if self.applies_factors(gemm.m) => gemm.n / EIGHT,
            _ => return None,
        };
        // In f16, a row that is not divided could be out of range.
        (gemm.n.is_multiple_of(4 * EIGHT)
            && parts * gemm.m.max(FEW_TOKENS) <= swap_ab::SQUARES_MAX
            && dtype == DType::Bf16)
            .then_some(parts)
    }

    /// Whether the kernel multiplies the sums of `m` rows by factors.
    pub fn applies_factors(&self, m: usize) -> bool {
        match self {
            Launch::SwapAb(_) => true,
            Launch::GemvShared(_)
            | Launch::GemvStream(_)
            | Launch::QuantizedGemvShared(_)
            | Launch::QuantizedGemv(_) => m <= FEW_TOKENS,
            _ => false,
        }
    }

    /// The sizes of its launch. `None` for cuBLASLt, which chooses them itself, and for slices, of which there are several launches.
    pub fn grid(&self, gemm: &Gemm, gpu: Facts) -> Option<Grid> {
        Some(match self {
            Launch::SwapAb(launch) => launch.grid(gpu),
            Launch::Gated(plan) => plan.grid(),
            Launch::GemvShared(plan) => plan.grid(gemm.k),
            Launch::GemvStream(plan) => plan.grid(),
            Launch::Tiled(plan) => plan.grid(),
            Launch::QuantizedSwapAb(plan) => plan.grid(),
            Launch::QuantizedGemvShared(plan) => plan.grid(),
            Launch::QuantizedGemv(plan) => plan.grid(),
            Launch::QuantizedGemvStream(plan) => plan.grid(),
            Launch::Cublaslt | Launch::Dequantize { .. } => return None,
        })
    }

    /// Thread blocks that divide k.
    pub fn split(&self) -> usize {
        match self {
            Launch::SwapAb(launch) => launch.split(),
            Launch::QuantizedSwapAb(plan) => plan.split,
            Launch::QuantizedGemv(plan) => plan.split(),
            _ => 1,
        }
    }
}

/// The name of a product of cuBLASLt among the launches.
pub const CUBLASLT: &str = "cublasLtMatmul";

/// Weights up to which `gemv_stream.cu` is faster than cuBLASLt, for 1 to 8, 9 to 16 and 17 to 32 tokens.
///
/// One H200, microseconds of `gemv_stream` / cuBLASLt. 1024 x 3072 with 1 token 3.5 / 7.0, with 8 tokens 3.4 / 7.1, with 16 tokens 3.8 / 7.2,
/// with 32 tokens 5.9 / 7.3; 4096 x 1024 with 32 tokens 5.9 / 5.1; 4096 x 4096 with 1 token 9.4 / 12.8, with 16 tokens 11.3 / 13.0;
/// 6144 x 4096 with 8 tokens 13.9 / 15.6, with 16 tokens 16.2 / 15.8; 24576 x 4096 with 1 token 49.8 / 50.4, with 8 tokens 52.8 / 50.8 (but
/// the next kernel overlaps); 151936 x 1024 with 1 token 80 / 77, with 8 tokens 88 / 78.
const STREAM_BYTES: [(usize, usize); 3] = [(8, 256 << 20), (16, 40 << 20), (32, 7 << 20)];
/// Tokens from which on `gemm_swap_ab.cu` activates gates. One H200, decode step of the 0.6B shape in a graph over 555 tokens, in two launches and in
/// one: 16 rows 998 and 1,013 us, 32 rows 1,276 and 1,273.
const SWAP_AB_GATED_TOKENS_MIN: usize = 17;
/// Gates that lie side by side in a tile.
const EIGHT: usize = 8;
/// Tokens up to which a row of a quantized product has the same bits by default, alone and among others.
const FEW_TOKENS: usize = 8;
/// Tokens up to which `gemv_stream_quantized.cu` is faster than to dequantize slices and to multiply by them.
///
/// One H200, microseconds from 8 bits / by slices. 6144 x 4096 with 32 tokens 33 / 39, with 64 tokens 81 / 39; 4096 x 4096 with 32
/// tokens 17 / 25, with 64 tokens 41 / 25; 24576 x 4096 with 32 tokens 98 / 153, with 64 tokens 249 / 153.
const TOKENS_FROM_QUANTIZED: usize = 32;

impl Gemm {
    /// Rows, columns and k.
    pub fn sizes(&self) -> [usize; 3] {
        [self.m, self.n, self.k]
    }

    pub fn is_gated(&self) -> bool {
        self.epilogue == Epilogue::Gated
    }

    fn weight_bytes(&self, gpu: &Gpu) -> usize {
        self.n * self.k * gpu.dtype.bytes()
    }
}

impl Gpu {
    fn route(&self) -> Route {
        if self.rounding == Rounding::BatchInvariant { Route::Tiled } else { self.route }
    }
}

/// How `gemm` is computed. `None`: no kernel has this epilogue for it, which never happens to [`Epilogue::Store`].
pub fn plan(gemm: &Gemm, gpu: &Gpu) -> Option<Launch> {
    match (gemm.weights, gpu.rounding) {
        (Weights::Quantized(quantized), _) => plan_quantized(gemm, quantized, gpu),
        (Weights::Plain, Rounding::BatchInvariant) => plan_invariant(gemm, gpu),
        (Weights::Plain, Rounding::Fastest) => plan_plain(gemm, gpu),
    }
}

fn plan_plain(gemm: &Gemm, gpu: &Gpu) -> Option<Launch> {
    match gemm.epilogue {
        Epilogue::AddNorm => {
            let gemv = || has_few_norms(gemm, gpu).then(|| gemv(gemm, gpu)).flatten();
            let swap_ab = || takes_swap_ab(gemm, gpu).then(|| Launch::SwapAb(swap_ab::plan(gemm, gpu.facts)));
            gemv().or_else(swap_ab).filter(|launch| launch.squares(gemm, gpu.dtype).is_some())
        }
        Epilogue::Store => {
            if takes_swap_ab(gemm, gpu) {
                return Some(Launch::SwapAb(swap_ab::plan(gemm, gpu.facts)));
            }
            gemv(gemm, gpu).or_else(|| Some(large(gemm, gpu)))
        }
        Epilogue::Gated => {
            if takes_swap_ab(gemm, gpu) && gemm.m >= SWAP_AB_GATED_TOKENS_MIN && (gemm.n / 2).is_multiple_of(EIGHT) {
                return Some(Launch::SwapAb(swap_ab::plan(gemm, gpu.facts)));
            }
            if takes_gated(gemm, gpu) {
                return Some(Launch::Gated(gated::Plan::new(gemm, gpu.facts)));
            }
            gemv(gemm, gpu)
        }
    }
}

/// Whether kernels for few tokens can add the sums of such a product to the stream.
fn has_few_norms(gemm: &Gemm, gpu: &Gpu) -> bool {
    gpu.facts.is_hopper() && gpu.route() == Route::Auto && gemm.m <= FEW_TOKENS
}

/// Whether a product of rows that are still to be divided is computed by a kernel that multiplies its sums by their factors.
pub fn applies_factors(gemm: &Gemm, gpu: &Gpu) -> bool {
    plan(&Gemm { epilogue: Epilogue::Store, ..*gemm }, gpu).is_some_and(|launch| launch.applies_factors(gemm.m))
}

/// Whether `gemm_swap_ab.cu`, `gemm_full_n.cu` and `gemm_m128.cu` compute a layer of this size.
fn takes_swap_ab(gemm: &Gemm, gpu: &Gpu) -> bool {
    let serves = || gpu.facts.is_hopper() && SwapAb::serves(gemm);
    match gpu.route() {
        Route::Auto => serves() && (swap_ab::is_preferred(gemm, gpu.facts) || !gpu.has_cublaslt),
        Route::Hopper => serves(),
        Route::Stream | Route::Tiled | Route::Blas => false,
    }
}

fn takes_gated(gemm: &Gemm, gpu: &Gpu) -> bool {
    let serves = || gated::serves(gemm, gpu.facts);
    match gpu.route() {
        Route::Auto => serves() && (gated::is_preferred(gemm, gpu.facts) || !gpu.has_cublaslt),
        Route::Hopper => serves(),
        Route::Stream | Route::Tiled | Route::Blas => false,
    }
}

/// A kernel that keeps the tokens of each thread block in shared memory, and reads weights once.
fn gemv(gemm: &Gemm, gpu: &Gpu) -> Option<Launch> {
    let route = gpu.route();
    if route == Route::Auto
        && let Some(plan) = gemv_shared::Plan::new(gemm, gpu.facts)
    {
        return Some(Launch::GemvShared(plan));
    }
    let is_streamed = match route {
        Route::Auto => prefers_stream(gemm, gpu) || !gpu.has_cublaslt,
        Route::Stream => true,
        Route::Tiled | Route::Hopper | Route::Blas => false,
    };
    is_streamed.then(|| gemv_stream::Plan::new(gemm, gpu)).flatten().map(Launch::GemvStream)
}

/// One answer for all from 1 to 8 tokens.
fn prefers_stream(gemm: &Gemm, gpu: &Gpu) -> bool {
    let most = STREAM_BYTES.iter().find(|(tokens, _)| gemm.m <= *tokens);
    gemm.weight_bytes(gpu) <= most.map_or(0, |(_, bytes)| *bytes)
}

/// A product of plain weights that no kernel for few tokens computes.
fn large(gemm: &Gemm, gpu: &Gpu) -> Launch {
    let is_blas = matches!(gpu.route(), Route::Auto | Route::Blas) && gpu.has_cublaslt;
    if is_blas { Launch::Cublaslt } else { Launch::Tiled(tiled::Plan::new(gemm, gpu.facts)) }
}

/// A product whose results depend on their row and column alone.
fn plan_invariant(gemm: &Gemm, gpu: &Gpu) -> Option<Launch> {
    let is_served = gpu.facts.is_hopper() && SwapAb::serves_invariant(gemm.k);
    match gemm.epilogue {
        Epilogue::Store if is_served => Some(Launch::SwapAb(swap_ab::plan_invariant(gemm, gpu.facts))),
        Epilogue::Store => Some(Launch::Tiled(tiled::Plan::new(gemm, gpu.facts))),
        Epilogue::Gated if is_served && SwapAb::prefers_invariant_gated(gemm) => {
            Some(Launch::SwapAb(swap_ab::plan_invariant(gemm, gpu.facts)))
        }
        // Its sums are one chain each, whatever k is.
        Epilogue::Gated if is_served && SwapAb::is_one_chain(gemm.k) && gated::serves(gemm, gpu.facts) => {
            Some(Launch::Gated(gated::Plan::new(gemm, gpu.facts)))
        }
        Epilogue::Gated | Epilogue::AddNorm => None,
    }
}

fn plan_quantized(gemm: &Gemm, quantized: Quantized, gpu: &Gpu) -> Option<Launch> {
    if gpu.route() == Route::Auto
        && let Some(launch) = read_once(gemm, quantized, gpu)
    {
        return Some(launch);
    }
    if gemm.epilogue != Epilogue::Store {
        return None;
    }
    let is_streamed = match gpu.route() {
        Route::Auto => gemm.m <= TOKENS_FROM_QUANTIZED,
        Route::Stream => true,
        Route::Tiled | Route::Hopper | Route::Blas => false,
    };
    if is_streamed && let Some(plan) = quantized::dequantize::Plan::new(gemm, quantized, gpu.facts) {
        return Some(Launch::QuantizedGemvStream(plan));
    }
    Some(Launch::Dequantize { rows: quantized.scratch_bytes / (gemm.k * gpu.dtype.bytes()) })
}

/// A kernel that reads quantized weights once.
fn read_once(gemm: &Gemm, quantized: Quantized, gpu: &Gpu) -> Option<Launch> {
    let swap_ab = || quantized::swap_ab::Plan::new(gemm, quantized, gpu.facts).map(Launch::QuantizedSwapAb);
    let shared = || quantized::gemv_shared::Plan::new(gemm, quantized, gpu.facts).map(Launch::QuantizedGemvShared);
    let scaled = || quantized::gemv::Plan::new(gemm, quantized, gpu.facts).map(Launch::QuantizedGemv);
    if gemm.epilogue == Epilogue::AddNorm {
        let launch = has_few_norms(gemm, gpu).then(|| shared().or_else(scaled)).flatten();
        return launch.filter(|launch| launch.squares(gemm, gpu.dtype).is_some());
    }
    if gemm.m > FEW_TOKENS
        && let Some(launch) = swap_ab()
    {
        return Some(launch);
    }
    // One H200, 151936 x 1024 in 8 bits, by `gemv_stream_quantized.cu` and by `gemm_quantized.cu`: 1 token 90 and 51 us, 8 tokens 107 and 51.
    shared().or_else(scaled).or_else(swap_ab)
}

/// Slices of at most `most` of `n` rows of weights, of nearly one size.
pub fn slices(n: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    /// Rows at whose multiples products are fast.
    const STEP: usize = 256;
    let even = n.div_ceil(n.div_ceil(most)).next_multiple_of(STEP);
    let size = if even <= most { even } else { most };
    (0..n).step_by(size).map(move |first| first..n.min(first + size))
}

/// The product of a slice of dequantized weights.
pub fn plan_slice(gemm: &Gemm, rows: usize, gpu: &Gpu) -> Launch {
    let slice = Gemm { n: rows, weights: Weights::Plain, epilogue: Epilogue::Store, ..*gemm };
    match gpu.rounding {
        Rounding::BatchInvariant => plan_invariant(&slice, gpu).expect("a sum is always computed"),
        Rounding::Fastest => large(&slice, gpu),
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::quantized::tests::quantized;
    use super::*;
    use crate::cuda::gpus::{A100, H100, RTX_4090};
    use formats::Block;
    use std::fmt::Write;

    /// A product of a decoder's step: its name, rows of weights and k, and the epilogue that is tried first.
    type Layer = (&'static str, [usize; 2], Epilogue);

    /// Of a dense decoder: rows of queries, keys and values, and of gates and ups.
    fn layers(hidden: usize, heads: [usize; 2], gates: usize) -> [Layer; 5] {
        let [qkv, attended] = heads;
        [
            ("qkv", [qkv, hidden], Epilogue::Store),
            ("o", [hidden, attended], Epilogue::AddNorm),
            ("gate_up", [gates, hidden], Epilogue::Gated),
            ("down", [hidden, gates / 2], Epilogue::AddNorm),
            ("head", [151_936, hidden], Epilogue::Store),
        ]
    }

    /// What computes a product: the kernel and its split of k, and the epilogue if it was not the first.
    fn text(gemm: &Gemm, gpu: &Gpu) -> String {
        let fused = plan(gemm, gpu);
        let apart = match (gemm.epilogue, &fused) {
            (_, Some(_)) => "",
            (Epilogue::Gated, None) => ", activation apart",
            (Epilogue::AddNorm, None) => ", norm apart",
            (Epilogue::Store, None) => unreachable!("a sum is always computed"),
        };
        let stored = Gemm { epilogue: if fused.is_some() { gemm.epilogue } else { Epilogue::Store }, ..*gemm };
        let launch = fused.or_else(|| plan(&stored, gpu)).expect("a sum is always computed");
        let mut text = launch.kernel(&stored);
        if let Launch::Dequantize { rows } = launch {
            let first = slices(stored.n, rows).next().map_or(0, |slice| slice.len());
            let of_slice = plan_slice(&stored, first, gpu).kernel(&stored);
            write!(text, " in slices of {first}, {of_slice}").expect("a string takes it");
        }
        if launch.split() > 1 {
            write!(text, ", k / {}", launch.split()).expect("a string takes it");
        }
        text + apart
    }

    /// The plans of all layers for 1 to 8,192 tokens, a line for each range of tokens with one plan.
    fn table(gpu: &Gpu) -> String {
        let mut table = String::new();
        let models = [("0.6B", layers(1024, [4096, 2048], 6144)), ("8B", layers(4096, [6144, 4096], 24_576))];
        let formats = [("plain", None), ("Q8_0", Some(Block::Q8_0)), ("Q4_K", Some(Block::Q4K))];
        for ((model, layers), (format, block)) in models.iter().flat_map(|model| formats.map(|format| (model, format)))
        {
            for (layer, [n, k], epilogue) in layers {
                writeln!(table, "\n{model} {layer}, {n} x {k}, {format}").expect("a string takes it");
                let weights = block.map_or(Weights::Plain, |block| Weights::Quantized(quantized(block, *k)));
                let text_of = |m| text(&Gemm { m, n: *n, k: *k, weights, epilogue: *epilogue }, gpu);
                let mut range = (1, text_of(1));
                for m in 2..=8193 {
                    let next = if m > 8192 { String::new() } else { text_of(m) };
                    if next != range.1 {
                        writeln!(table, "{:>5} to {:>4}  {}", range.0, m - 1, range.1).expect("a string takes it");
                        range = (m, next);
                    }
                }
            }
        }
        table
    }

    /// Compares `text` with `tests/plans/<name>.txt`. `NVLLM_WRITE_PLANS=1` writes the file instead: what changes in it is to be read.
    pub fn compare_with_committed(name: &str, text: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/plans");
        let path = format!("{folder}/{name}.txt");
        if std::env::var_os("NVLLM_WRITE_PLANS").is_some() {
            std::fs::create_dir_all(folder).expect("a folder");
            std::fs::write(&path, text).expect("a file of plans");
        }
        let committed = std::fs::read_to_string(&path).expect("a file of plans").replace('\r', "");
        for (line, (planned, committed)) in text.lines().zip(committed.lines()).enumerate() {
            assert_eq!(planned, committed, "tests/plans/{name}.txt, line {}", line + 1);
        }
        assert_eq!(text.lines().count(), committed.lines().count(), "tests/plans/{name}.txt");
    }

    #[test]
    fn plans_are_those_of_the_committed_files() {
        let both = [Rounding::Fastest, Rounding::BatchInvariant];
        for (name, facts, roundings) in
            [("h100", H100, &both[..]), ("a100", A100, &both[..1]), ("rtx4090", RTX_4090, &both[..1])]
        {
            let mut text = format!(
                "Kernels of the products of a step on {name}, in bf16 with cuBLASLt: plan in src/compute/cuda/gemm/plan.rs.\n"
            );
            for &rounding in roundings {
                let gpu = Gpu { facts, dtype: DType::Bf16, has_cublaslt: true, rounding, route: Route::Auto };
                write!(text, "\n{rounding:?}\n{}", table(&gpu)).expect("a string takes it");
            }
            compare_with_committed(name, &text);
        }
    }

    #[test]
    fn slices_cover_all_rows_and_fit() {
        for (n, most) in [(1, 8), (7, 8), (8, 8), (9, 8), (6144, 4096), (24_576, 4096), (151_936, 4096), (5000, 1365)] {
            let all: Vec<_> = slices(n, most).collect();
            assert!(all.iter().all(|slice| !slice.is_empty() && slice.len() <= most), "{n}, {most}: {all:?}");
            assert_eq!(all.iter().flat_map(|slice| slice.clone()).collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_a_device_lacks_is_not_planned() {
        let sizes = [1, 8, 9, 64, 200, 257, 1024].into_iter().flat_map(|m| [[m, 512, 1024], [m, 6144, 72], [m, 8, 8]]);
        for ([m, n, k], facts) in sizes.flat_map(|sizes| [A100, RTX_4090].map(|facts| (sizes, facts))) {
            for (route, rounding) in [Route::Auto, Route::Stream, Route::Tiled, Route::Hopper, Route::Blas]
                .into_iter()
                .flat_map(|route| [Rounding::Fastest, Rounding::BatchInvariant].map(|rounding| (route, rounding)))
            {
                let gpu = Gpu { facts, dtype: DType::F16, has_cublaslt: false, rounding, route };
                for epilogue in [Epilogue::Store, Epilogue::Gated, Epilogue::AddNorm] {
                    let gemm = Gemm { m, n, k, weights: Weights::Plain, epilogue };
                    let launch = plan(&gemm, &gpu);
                    let is_general = matches!(launch, None | Some(Launch::Tiled(_) | Launch::GemvStream(_)));
                    assert!(is_general, "{gemm:?} on {gpu:?}: {launch:?}");
                    assert!(launch.is_some() || epilogue != Epilogue::Store, "{gemm:?} on {gpu:?}");
                }
            }
        }
    }
}
