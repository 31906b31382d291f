//! Experts that the CPU computes as it does beside a GPU, and their bytes.

use crate::driver;

use base::TokenId;
use base::error::Error;
use compute::Device as _;
use compute::batch::Batch;
use compute::cpu::{Cpu, Isa};
use driver::{Sequence, config, config_of, logits, pass};
use engine::Engine;
use formats::source::Source;
use model::description::Description;
use model::weights::{Reading, Weights};
use os::Loading;
use runner::options::EngineOptions;
use runner::{Device, OnLoad, Switches};
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// The golden folders of models with experts, and their layers that have any.
fn mixtures() -> Vec<(PathBuf, Vec<usize>)> {
    let golden = driver::golden("");
    let entries =
        [golden.clone(), golden.join("quantized")].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.join("config.json").exists());
    folders.sort();
    let mixture = |path: PathBuf| {
        let spec = Description::read(&Source::open(&path).unwrap()).unwrap().spec;
        let mut layers: Vec<usize> = spec.expert_layers().map(|(layer, _)| layer).collect();
        layers.dedup();
        (!layers.is_empty()).then_some((path, layers))
    };
    folders.into_iter().filter_map(mixture).collect()
}

/// The logits of a prompt, and of a batch of rows behind it.
fn rows(path: &std::path::Path, host_experts_from: Option<usize>) -> Vec<Vec<f32>> {
    let config = EngineOptions { kv_cache_bytes: Some(64 << 20), ..config_of(path.to_str().unwrap()) };
    let (switches, cpu) = (Switches { host_experts_from, ..Switches::NONE }, Cpu::new(2, Isa::detect().unwrap()));
    let source = Source::open(path).unwrap();
    let open = runner::cpu::open_with(&switches, &source, &config, cpu, &mut |_| ControlFlow::Continue(()));
    let (mut runner, info) = open.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let prompt = |len: u32| -> Vec<TokenId> { (0..len).map(|i| (i * 37 + 5) % 48).collect() };
    let mut sequences: Vec<Sequence> = [30, 1, 7]
        .into_iter()
        .zip(0..)
        .map(|(len, i)| Sequence::new(&prompt(len), i * 16..(i + 1) * 16).of(&runner, i))
        .collect();
    let (mut batch, mut rows) = (Batch::with_limits(&info.limits), Vec::new());
    for _ in 0..2 {
        batch.clear();
        for sequence in &mut sequences {
            sequence.bring(sequence.pending(), &info.limits, &mut batch);
            sequence.tokens.push(7);
        }
        pass(&mut runner, &batch);
        rows.extend((0..sequences.len()).map(|row| logits(&runner, row).to_vec()));
    }
    rows
}

#[test]
fn every_mixture_has_the_bits_that_it_has_without_experts_on_the_host() {
    let mixtures = mixtures();
    assert!(mixtures.len() > 20, "{} mixtures", mixtures.len());
    for (path, layers) in mixtures {
        let wanted = rows(&path, None);
        for from in [layers[0], layers[layers.len() - 1]] {
            assert!(rows(&path, Some(from)) == wanted, "{}, from layer {from}", path.display());
        }
    }
}

#[test]
fn bytes_of_experts_are_those_of_the_matrices_that_are_loaded() {
    for (path, layers) in mixtures() {
        let what = path.display();
        let source = Source::open(&path).unwrap();
        let model = Description::read(&source).unwrap();
        let reading = Reading { dtype: None, loading: Loading::Map, free_bytes: u64::MAX, on_load: OnLoad::None };
        let weights = Weights::open(&source, model.layout, model.quantization.clone(), reading).unwrap();
        let dtype = weights.dtype();
        let count = model.spec.layers.len();
        let bytes = weights.bytes_of_experts(count, |coding, shape| Cpu::held_bytes(coding, shape, dtype));
        let with_experts: Vec<usize> = (0..count).filter(|&layer| bytes.experts[layer] > 0).collect();
        assert_eq!(with_experts, layers, "{what}");
        let numbers = |(_, experts): (usize, &model::spec::Experts)| {
            let projections = experts.expert.form.projections() + 1;
            let read = experts.latent.map_or(model.spec.hidden, |latent| latent.width);
            experts.router.experts * projections * experts.expert.width * read
        };
        let numbers: usize = model.spec.expert_layers().map(numbers).sum();
        let all: u64 = bytes.experts.iter().sum();
        let least = if model.quantization.is_some() { numbers / 2 } else { numbers * dtype.bytes() };
        let most = least + least / 5 + numbers * if model.quantization.is_some() { 2 } else { 0 };
        assert!((least as u64..=most as u64).contains(&all), "{what}: {all} bytes of {numbers} numbers");
        assert!(bytes.others > 0 && all + bytes.others <= weights.total_bytes(), "{what}");
    }
}

#[test]
fn the_cpu_has_no_other_host() {
    let (path, _) = mixtures().swap_remove(0);
    let open = |device, host_expert_layers| {
        let options = EngineOptions { device, host_expert_layers, model_path: path.clone(), ..config() };
        Engine::open(&options, &mut |_| ControlFlow::Continue(()))
    };
    for layers in [None, Some(0)] {
        let engine = open(Device::Cpu, layers).unwrap();
        assert_eq!(engine.handle().model_info().host_experts, Default::default());
    }
    match open(Device::Cpu, Some(1)) {
        Err(Error::Option { field: "host_expert_layers", .. }) => (),
        other => panic!("{:?}", other.map(drop)),
    }
}
