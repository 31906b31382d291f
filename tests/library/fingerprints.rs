//! A model has the fingerprint that it always had, so that prefixes that were saved once stay readable.

use crate::driver;

use compute::cpu::Isa;
use driver::root;
use runner::OnLoad;
use runner::options::EngineOptions;
use std::fmt::Write;
use std::fs;

/// What is committed: a golden folder or a GGUF file, how its weights are quantized when they are loaded, and its fingerprint.
const FILE: &str = "tests/golden/fingerprints.txt";

#[test]
fn every_golden_model_has_the_fingerprint_that_it_always_had() {
    let mut found = String::new();
    for folder in ["tests/golden", "tests/golden/quantized", "tests/gguf"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths
            .iter()
            .filter(|path| path.join("config.json").exists() || path.extension().is_some_and(|e| e == "gguf"))
        {
            let name = path.file_name().unwrap().to_str().unwrap();
            for on_load in [OnLoad::None, OnLoad::Int8, OnLoad::Int4] {
                let config = EngineOptions { on_load, ..driver::config_of(name.trim_end_matches(".gguf")) };
                // Not every shape can be quantized, and not every model again.
                let Ok((_, info)) = driver::open(path, &config, Isa::Portable) else { continue };
                writeln!(found, "{folder}/{name} {on_load:?} {:016x}", info.fingerprint).unwrap();
            }
        }
    }
    let committed = fs::read_to_string(root().join(FILE)).unwrap_or_default();
    let new: Vec<&str> = found.lines().filter(|line| !committed.lines().any(|known| known == *line)).collect();
    assert!(
        new.is_empty(),
        "not in {FILE}, which lacks a new model, or has another number for an old one:\n{}",
        new.join("\n")
    );
    assert_eq!(committed.lines().count(), found.lines().count(), "{FILE} names models that do not open");
}
