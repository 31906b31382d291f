//! A GGUF file of an encoder gives the states and scores of the folder that it was made of, to the bit.
//!
//! `tests/gguf/make_gguf.py` says what is in the files.

use crate::encoders::{opened, options, pooled, run, texts_of};
use crate::gguf_file::GgufFile;
use crate::scratch_folder::Folder;

use crate::driver::golden;
use base::TokenId;
use engine::Engine;
use engine::output::Output;
use engine::sampling_params::Pooling;
use std::ops::ControlFlow;

const CASES: &[&str] = &[
    "bert-bf16",
    "bert-f32",
    "gemma3_text-f32",
    "modernbert-f32",
    "modernbert-f32-classifier",
    "nomic_bert-f32",
    "roberta-f32",
    "xlm_roberta-f32-reranker",
];

#[test]
fn every_file_of_an_encoder_is_a_case() {
    let entries = std::fs::read_dir(crate::tree::root().join("tests/gguf/encoders")).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    let names = names.filter(|path| path.extension().is_some_and(|ending| ending == "gguf"));
    let mut names: Vec<_> = names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, CASES);
}

fn bits(outputs: &[Output]) -> Vec<Vec<u32>> {
    let numbers = |output: &Output| output.embedding.iter().chain(&output.scores).map(|v| v.to_bits()).collect();
    outputs.iter().map(numbers).collect()
}

#[test]
fn a_file_gives_the_states_and_scores_of_its_folder() {
    for name in CASES {
        let file = GgufFile::assemble(&format!("encoders/{name}"), "encoders");
        let copy = Folder::copy(&file.folder, &format!("gguf-{name}"));
        copy.edit_json("config.json", |config| {
            for (field, value) in file.config.as_object().unwrap() {
                config[field] = value.clone();
            }
        });
        let texts = texts_of(&golden(&file.folder));
        let tokens: Vec<&[TokenId]> = texts.iter().map(|text| &text.tokens[..]).collect();
        let is_classifier = !texts[0].scores.is_empty();
        let kinds: &[Pooling] =
            if is_classifier { &[Pooling::Auto] } else { &[Pooling::First, Pooling::Last, Pooling::Mean] };
        let (mut found, mut wanted) = (opened(&options(&file.path)), opened(&options(&copy.path)));
        for &pooling in kinds {
            let (found, wanted) =
                (run(&mut found, &tokens, &pooled(pooling)), run(&mut wanted, &tokens, &pooled(pooling)));
            assert!(bits(&wanted).iter().all(|numbers| !numbers.is_empty()), "{name}");
            assert_eq!(bits(&found), bits(&wanted), "{name}, {pooling:?}");
        }
        let labels = |engine: &Engine| {
            engine.handle().model_info().pooled.scores.as_ref().map_or(Vec::new(), |scores| scores.labels.clone())
        };
        assert_eq!(labels(&found), labels(&wanted), "{name}");
    }
}

/// The states that a file says to pool have length 1.
#[test]
fn a_file_says_how_its_states_are_pooled() {
    let unit = |engine: &mut Engine, tokens: &[TokenId], pooling| {
        let embedding = run(engine, &[tokens], &pooled(pooling)).remove(0).embedding;
        let length = embedding.iter().map(|v| v * v).sum::<f32>().sqrt();
        embedding.into_iter().map(|v| v / length).collect::<Vec<_>>()
    };
    let file = GgufFile::assemble("encoders/bert-f32", "pooling");
    let text = texts_of(&golden(&file.folder)).remove(0).tokens;
    let bytes = std::fs::read(&file.path).unwrap();
    for (kind, pooling) in [(1u32, Pooling::Mean), (2, Pooling::First), (3, Pooling::Last)] {
        std::fs::write(&file.path, with_key(&bytes, "bert.pooling_type", kind)).unwrap();
        let mut engine = opened(&options(&file.path));
        let found = run(&mut engine, &[&text], &pooled(Pooling::Auto)).remove(0).embedding;
        let wanted = unit(&mut engine, &text, pooling);
        assert!(crate::reference::distance(&found, &wanted) < 1e-6, "{pooling:?}");
    }
    for (kind, words) in
        [(4, "tensor cls.output.weight is missing"), (5, "bert.pooling_type is 5, but must be from 0 to 4")]
    {
        std::fs::write(&file.path, with_key(&bytes, "bert.pooling_type", kind)).unwrap();
        let refused = Engine::open(&options(&file.path), &mut |_| ControlFlow::Continue(())).err().unwrap().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

/// The file with one more key, and padded so that its data stay aligned.
fn with_key(bytes: &[u8], name: &str, number: u32) -> Vec<u8> {
    let count = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 2;
    let key = |name: &str, kind: u32, value: &[u8]| {
        let mut key = (name.len() as u64).to_le_bytes().to_vec();
        key.extend(name.as_bytes());
        key.extend(kind.to_le_bytes());
        key.extend(value);
        key
    };
    let mut keys = key(name, 4, &number.to_le_bytes());
    // The length of a text makes the keys a multiple of the alignment.
    let used = keys.len() + key("x", 8, &[0; 8]).len();
    let padding = used.next_multiple_of(32) - used;
    let text = [&(padding as u64).to_le_bytes()[..], &vec![b' '; padding]].concat();
    keys.extend(key("x", 8, &text));
    [&bytes[..16], &count.to_le_bytes(), &keys, &bytes[24..]].concat()
}

/// llama.cpp's conversion of BERT leaves out the pooler that its classifier reads.
#[test]
fn a_classifier_without_one_of_its_layers_is_refused() {
    let file = GgufFile::assemble("encoders/xlm_roberta-f32-reranker", "layers");
    let bytes = std::fs::read(&file.path).unwrap();
    let renamed = |old: &str, new: &str| {
        let at = bytes.windows(old.len()).position(|window| window == old.as_bytes()).unwrap();
        [&bytes[..at], new.as_bytes(), &bytes[at + old.len()..]].concat()
    };
    std::fs::write(&file.path, renamed("cls.output.weight", "cls.others.weight")).unwrap();
    let refused = Engine::open(&options(&file.path), &mut |_| ControlFlow::Continue(())).err().unwrap().to_string();
    assert!(refused.contains("is a classifier with one of the tensors cls.weight and cls.output.weight"), "{refused}");
}
