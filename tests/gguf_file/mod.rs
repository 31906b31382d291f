//! GGUF files that tests open: headers that llama.cpp's conversion wrote, with the weights of a golden folder behind them.
#![allow(dead_code)]

use crate::driver::{golden, root};
use half::{bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// A GGUF file that is gone when the test ends, unless `NVLLM_TEST_KEEP` is set.
pub struct GgufFile {
    /// Where it is.
    pub path: PathBuf,
    /// The golden folder with its weights.
    pub folder: String,
    /// What the config of that folder has to say for both to be the same model.
    pub config: Value,
    /// Weights of norms that the folder does not have, and that the conversion makes.
    pub made_weights: u64,
}

/// Rows of numbers.
type Matrix = (usize, Vec<f32>);

impl GgufFile {
    /// The names of the files, in order.
    pub fn names() -> Vec<String> {
        let entries = fs::read_dir(root().join("tests/gguf")).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let mut names: Vec<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().into()).collect();
        names.sort();
        names
    }

    /// Writes the file `name` for the test `test`.
    pub fn assemble(name: &str, test: &str) -> GgufFile {
        let path = |ending: &str| root().join("tests/gguf").join(format!("{name}.{ending}"));
        let recipe: Value = serde_json::from_slice(&fs::read(path("json")).unwrap()).unwrap();
        let folder = recipe["folder"].as_str().unwrap();
        let weights = weights(folder);
        let (mut bytes, mut made_weights) = (fs::read(path("gguf")).unwrap(), 0);
        let start = bytes.len();
        for tensor in recipe["tensors"].as_array().unwrap() {
            bytes.resize(start + tensor["offset"].as_u64().unwrap() as usize, 0);
            let numbers: Vec<f32> = match &tensor["rows"] {
                Value::Array(parts) => parts.iter().flat_map(|part| part_of(&weights, part)).collect(),
                _ => tensor["numbers"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as f32).collect(),
            };
            if tensor["rows"].is_null() && tensor["name"].as_str().unwrap().ends_with("_norm.weight") {
                made_weights += numbers.len() as u64;
            }
            for number in numbers {
                match tensor["type"].as_str().unwrap() {
                    "F32" => bytes.extend(number.to_le_bytes()),
                    "F16" => bytes.extend(f16::from_f32(number).to_le_bytes()),
                    "BF16" => bytes.extend(bf16::from_f32(number).to_le_bytes()),
                    other => panic!("{other}"),
                }
            }
        }
        let scratch = std::env::temp_dir().join(format!("nanovllm-gguf-{test}-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).unwrap();
        let path = scratch.join("model.gguf");
        fs::write(&path, bytes).unwrap();
        GgufFile { path, folder: folder.into(), config: recipe["config"].clone(), made_weights }
    }
}

impl Drop for GgufFile {
    fn drop(&mut self) {
        if std::env::var_os("NVLLM_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(self.path.parent().unwrap());
        }
    }
}

/// The numbers of a part of a tensor.
fn part_of(weights: &BTreeMap<String, Matrix>, part: &Value) -> Vec<f32> {
    let (rows, numbers) = &weights[part[0].as_str().unwrap()];
    let cols = numbers.len() / rows;
    match part[1].as_str().unwrap() {
        "whole" => numbers.clone(),
        "plus one" => numbers.iter().map(|number| number + 1.0).collect(),
        "first half" => numbers[..numbers.len() / 2].to_vec(),
        "second half" => numbers[numbers.len() / 2..].to_vec(),
        // Of each of several matrices.
        "first halves" => numbers.chunks(cols).flat_map(|matrix| &matrix[..cols / 2]).copied().collect(),
        "second halves" => numbers.chunks(cols).flat_map(|matrix| &matrix[cols / 2..]).copied().collect(),
        // Columns of each of several matrices of so many rows, as rows.
        columns if columns.starts_with("columns") => {
            let mut words = columns.split(' ').skip(1).map(|word| word.parse::<usize>().unwrap());
            let [inputs, first, step] = std::array::from_fn(|_| words.next().unwrap());
            let of_matrix = |matrix: &[f32]| -> Vec<f32> {
                let outputs = matrix.len() / inputs;
                let column = |output: usize| (0..inputs).map(move |input| input * outputs + output);
                (first..outputs).step_by(step).flat_map(column).map(|at| matrix[at]).collect()
            };
            numbers.chunks(cols).flat_map(of_matrix).collect()
        }
        // Some rows of each so many, as they are or as columns.
        rows if rows.starts_with("rows ") || rows.starts_with("turned ") => {
            let mut words = rows.split(' ').skip(1).map(|word| word.parse::<usize>().unwrap());
            let [step, first, count] = std::array::from_fn(|_| words.next().unwrap());
            let of_head = |head: &[f32]| -> Vec<f32> {
                let head = &head[first * cols..(first + count) * cols];
                match rows.starts_with("turned ") {
                    false => head.to_vec(),
                    true => (0..cols).flat_map(|col| head.iter().skip(col).step_by(cols)).copied().collect(),
                }
            };
            numbers.chunks(step * cols).flat_map(of_head).collect()
        }
        // The value heads of one key head, one from each in turn.
        tiled if tiled.starts_with("tiled") => {
            let mut words = tiled.split(' ').skip(1);
            let mut number = |word: &str| word.parse::<usize>().unwrap();
            let first = words.next().unwrap();
            let [keys, size] = [words.next().unwrap(), words.next().unwrap()].map(&mut number);
            let source = |head_rows: usize, first: usize, row: usize| match row.checked_sub(first) {
                None => row,
                Some(row) => {
                    let (head, group) = (row / size, head_rows / size / keys);
                    first + (head % keys * group + head / keys) * size + row % size
                }
            };
            match first {
                "columns" => {
                    let row = |row: usize| (0..cols).map(move |col| row * cols + source(cols, 0, col));
                    (0..*rows).flat_map(row).map(|at| numbers[at]).collect()
                }
                first => {
                    let first = number(first);
                    let row = |row: usize| &numbers[source(rows - first, first, row) * cols..][..cols];
                    (0..*rows).flat_map(row).copied().collect()
                }
            }
        }
        // Without the first rows.
        below if below.starts_with("from row ") => numbers[cols * below[9..].parse::<usize>().unwrap()..].to_vec(),
        // Row `i` of the first half of a head, then row `i` of its second half.
        permuted => {
            let head = rows / permuted.strip_prefix("permuted ").unwrap().parse::<usize>().unwrap();
            let source = |row: usize| row / head * head + row % 2 * (head / 2) + row % head / 2;
            (0..*rows).flat_map(|row| &numbers[source(row) * cols..][..cols]).copied().collect()
        }
    }
}

fn weights(folder: &str) -> BTreeMap<String, Matrix> {
    let entries = fs::read_dir(golden(folder)).unwrap().map(|entry| entry.unwrap().path());
    let is_weights = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("model") && name.ends_with(".safetensors")
    };
    let mut weights = BTreeMap::new();
    for path in entries.filter(is_weights) {
        let bytes = fs::read(path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let data = view.data();
            let numbers = match view.dtype() {
                Dtype::F32 => data.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect(),
                Dtype::F16 => data.as_chunks().0.iter().map(|&number| f16::from_le_bytes(number).to_f32()).collect(),
                Dtype::BF16 => data.as_chunks().0.iter().map(|&number| bf16::from_le_bytes(number).to_f32()).collect(),
                other => panic!("{other}"),
            };
            weights.insert(name.to_owned(), (view.shape()[0], numbers));
        }
    }
    weights
}
