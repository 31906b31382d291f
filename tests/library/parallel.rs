//! Several ranks on the CPU compute what one computes, bit for bit, however a model is divided among them.

use crate::driver;

use base::TokenId;
use compute::cpu::{Cpu, Isa};
use driver::{Logits, config_of, dtype_of, golden, greedy, open, root};
use formats::DType;
use formats::source::Source;
use runner::options::EngineOptions;
use runner::parallel::ParallelRunner;
use runner::{ExpertDivision, ModelInfo, Sums, Switches};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

/// Tokens that each model writes after its prompt.
const TOKENS: usize = 6;

impl Logits for ParallelRunner<Cpu> {
    fn logits_of(&self, row: usize) -> Vec<f32> {
        driver::logits(self.first(), row).to_vec()
    }

    fn keeps_states(&self) -> bool {
        self.first().keeps_states()
    }
}

fn open_ranks(folder: &Path, config: &EngineOptions, switches: Switches, isa: Isa) -> (ParallelRunner<Cpu>, ModelInfo) {
    let source = Source::open(folder).unwrap();
    let threads = config.num_threads.unwrap_or(1);
    runner::cpu::open_ranks_with(&switches, &source, config, threads, isa, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// The folders of all golden models.
fn models() -> Vec<String> {
    let folders = fs::read_dir(root().join("tests/golden")).unwrap().map(|entry| entry.unwrap());
    let models = folders.filter(|entry| entry.path().join("config.json").exists());
    let mut names: Vec<String> = models.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() > 40, "{names:?}");
    names
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as u32).map(|i| (i * 37 + 5) % 89).collect()
}

/// What config.json says of the decoder.
fn described(folder: &Path) -> serde_json::Value {
    let text = fs::read_to_string(folder.join("config.json")).unwrap();
    // A number that JSON does not have.
    let config: serde_json::Value = serde_json::from_str(&text.replace("Infinity", "null")).unwrap();
    config.get("text_config").unwrap_or(&config).clone()
}

/// Query and KV heads of a model. One with selective scans is divided into heads of these at most.
fn heads(folder: &Path) -> (usize, usize) {
    let config = described(folder);
    let names = ["num_attention_heads", "mamba_n_heads", "mamba_num_heads", "num_heads"];
    let heads = names.iter().filter_map(|name| config[name].as_u64()).min().unwrap() as usize;
    (heads, config["num_key_value_heads"].as_u64().map_or(heads, |heads| heads as usize))
}

/// Numbers of ranks that divide a model in every way: whole heads, an uneven share, shared KV heads, one head each.
fn numbers_of_ranks((heads, kv_heads): (usize, usize)) -> Vec<usize> {
    let mut ranks: Vec<usize> =
        [2, 3, kv_heads + 1, heads].into_iter().filter(|ranks| (2..=heads).contains(ranks)).collect();
    ranks.sort();
    ranks.dedup();
    ranks
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_one() {
    let isa = Isa::detect().unwrap();
    for name in models() {
        let config = EngineOptions { kv_cache_bytes: Some(32 << 20), ..config_of(&name) };
        let (mut alone, info) = open(&golden(&name), &config, isa).unwrap();
        let wanted = greedy(&mut alone, &info.limits, &prompt(40), TOKENS);
        for ranks in numbers_of_ranks(heads(&golden(&name))) {
            let config = EngineOptions { tensor_parallel_size: ranks, ..config.clone() };
            let (mut together, info) = open_ranks(&golden(&name), &config, Switches::NONE, isa);
            assert_eq!(info.num_ranks, ranks);
            let found = greedy(&mut together, &info.limits, &prompt(40), TOKENS);
            assert_eq!(found.0, wanted.0, "{name} on {ranks} ranks");
            assert!(found.1 == wanted.1, "{name} on {ranks} ranks: logits differ in some bits");
        }
    }
}

#[test]
fn sums_that_are_divided_give_nearly_the_same() {
    let isa = Isa::detect().unwrap();
    for name in models() {
        let config = EngineOptions { kv_cache_bytes: Some(32 << 20), ..config_of(&name) };
        let (mut alone, info) = open(&golden(&name), &config, isa).unwrap();
        let (_, wanted) = greedy(&mut alone, &info.limits, &prompt(40), 1);
        for ranks in numbers_of_ranks(heads(&golden(&name))) {
            let config = EngineOptions { tensor_parallel_size: ranks, ..config.clone() };
            let switches = Switches { sums: Some(Sums::Reduced), ..Switches::NONE };
            let (mut together, info) = open_ranks(&golden(&name), &config, switches, isa);
            let (_, found) = greedy(&mut together, &info.limits, &prompt(40), 1);
            let apart = distance(&found[0], &wanted[0]);
            // A sum that is rounded otherwise may round a key or a value of 16 bits to its neighbour.
            let bound = if dtype_of(&name) == DType::F32 { 1e-5 } else { 1e-2 };
            assert!(apart < bound, "{name} on {ranks} ranks: {apart:.1e} apart");
        }
    }
}

/// Experts of a layer, in a model that has some.
fn experts(folder: &Path) -> Option<usize> {
    let config = described(folder);
    let names = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"];
    let count = names.iter().find_map(|name| config[name].as_u64()).filter(|&count| count > 0);
    // Layers of Nemotron-H without experts have the number, too.
    let is_mixture = config["model_type"] != "nemotron_h" || config["layers_block_type"].to_string().contains("moe");
    count.filter(|_| is_mixture).map(|count| count as usize)
}

/// Each rank has some experts whole: the tokens of one rank, and their logits, bit for bit. Sums that are divided give nearly the same.
#[test]
fn ranks_with_whole_experts_give_the_bits_of_one() {
    let isa = Isa::detect().unwrap();
    let mut mixtures = 0;
    for name in models() {
        let Some(experts) = experts(&golden(&name)) else { continue };
        mixtures += 1;
        let config = EngineOptions { kv_cache_bytes: Some(32 << 20), ..config_of(&name) };
        let (mut alone, info) = open(&golden(&name), &config, isa).unwrap();
        let wanted = greedy(&mut alone, &info.limits, &prompt(40), TOKENS);
        let (heads, _) = heads(&golden(&name));
        for ranks in [2, 3, 4].into_iter().filter(|&ranks| ranks <= heads.min(experts)) {
            let expert_division = ExpertDivision::Whole;
            let config = EngineOptions { tensor_parallel_size: ranks, expert_division, ..config.clone() };
            let (mut together, info) = open_ranks(&golden(&name), &config, Switches::NONE, isa);
            let found = greedy(&mut together, &info.limits, &prompt(40), TOKENS);
            assert_eq!(found.0, wanted.0, "{name} on {ranks} ranks");
            assert!(found.1 == wanted.1, "{name} on {ranks} ranks: logits differ in some bits");
            let switches = Switches { sums: Some(Sums::Reduced), ..Switches::NONE };
            let (mut together, info) = open_ranks(&golden(&name), &config, switches, isa);
            let (_, found) = greedy(&mut together, &info.limits, &prompt(40), 1);
            let apart = distance(&found[0], &wanted.1[0]);
            let bound = if dtype_of(&name) == DType::F32 { 1e-5 } else { 1e-2 };
            assert!(apart < bound, "{name} on {ranks} ranks: {apart:.1e} apart");
        }
    }
    assert!(mixtures > 15, "{mixtures}");
}

fn distance(found: &[f32], wanted: &[f32]) -> f32 {
    let norm = |v: &mut dyn Iterator<Item = f32>| v.map(|v| v * v).sum::<f32>().sqrt();
    norm(&mut found.iter().zip(wanted).map(|(a, b)| a - b)) / norm(&mut wanted.iter().copied())
}

#[test]
fn whole_experts_are_refused_where_there_are_too_few() {
    let isa = Isa::detect().unwrap();
    let refusal = |name: &str, ranks| {
        let expert_division = ExpertDivision::Whole;
        let config = EngineOptions { tensor_parallel_size: ranks, expert_division, ..config_of(name) };
        let source = Source::open(&golden(name)).unwrap();
        let proceed = &mut |_| ControlFlow::Continue(());
        let opened = runner::cpu::open_ranks_with(&Switches::NONE, &source, &config, 1, isa, proceed);
        opened.err().expect("a refusal").to_string()
    };
    let found = refusal("qwen3-f32-embedding", 2);
    assert_eq!(found, "expert_parallel is 1, and the model has no experts, but must be 0 for such a model");
}
