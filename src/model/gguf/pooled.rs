//! What becomes of the states of a text, by its GGUF file?
//!
//! A key says which states are pooled, and tensors which layers are behind the pooling. Whether embeddings have length 1 the file does not say:
//! they get it, as in the programs of llama.cpp.

use crate::pooled::{LABELS_MAX, Pool, Pooled, ScoreCurve, Scores};
use crate::spec::{Bias, Curve, DecoderSpec, HeadWeights, Norm, NormKind, NormWeight, PooledLayer, PooledTensors};
use base::error::Result;
use formats::source::gguf::Gguf;

/// Of the layers of a classifier: what reads the pooled state, the norm behind it, and what gives the logits.
const DENSE: &str = "cls";
const NORM: &str = "cls.norm";
const OUTPUT: &str = "cls.output";

/// The layers between the pooling and an embedding.
const MODULES: [&str; 2] = ["dense_2", "dense_3"];

/// What a file says, and the layers behind the pooling, which become those of `spec`.
///
/// # Errors
///
/// [`Error::ModelFile`](base::error::Error::ModelFile) for a key or a tensor that is wrong or missing.
pub fn pooled(file: &Gguf, spec: &mut DecoderSpec) -> Result<Pooled> {
    let header = file.header();
    let wrong = |reason| file.wrong(reason);
    let architecture = header.text("general.architecture").map_err(wrong)?.unwrap_or_default();
    let pool = |key: &str| -> Result<(Option<Pool>, bool)> {
        let key = format!("{architecture}.{key}");
        match header.unsigned(&key).map_err(wrong)? {
            None | Some(0) => Ok((None, false)),
            Some(1) => Ok((Some(Pool::Mean), false)),
            Some(2) => Ok((Some(Pool::First), false)),
            Some(3) => Ok((Some(Pool::Last), false)),
            Some(4) => Ok((None, true)),
            Some(other) => Err(wrong(format!("{key} is {other}, but must be from 0 to 4"))),
        }
    };
    let (own, is_ranking) = pool("pooling_type")?;
    if has(file, OUTPUT) || has(file, DENSE) {
        let pool = match pool("classifier.pooling_type")?.0 {
            Some(pool) => pool,
            None if !spec.is_encoder() => Pool::Last,
            // As in llama.cpp.
            None if architecture == "modern-bert" => Pool::Mean,
            None => Pool::First,
        };
        let (scores, layers) = classifier(file, architecture, spec)?;
        spec.pooled_layers = layers;
        spec.head.weights = HeadWeights::Missing;
        return Ok(Pooled { pool: Some(pool), scores: Some(scores), ..Pooled::default() });
    }
    if is_ranking {
        return Err(wrong(format!("{architecture}.pooling_type is 4, but tensor {OUTPUT}.weight is missing")));
    }
    if spec.is_encoder() {
        for name in MODULES.into_iter().filter(|name| has(file, name)) {
            let inputs = spec.pooled_layers.last().map_or(spec.hidden, |layer| layer.outputs);
            spec.pooled_layers.push(layer(file, name, inputs, None)?);
        }
    }
    Ok(Pooled { pool: own, normalized: own.is_some(), ..Pooled::default() })
}

fn has(file: &Gguf, name: &str) -> bool {
    file.tensor(&format!("{name}.weight")).is_some()
}

/// A layer whose tensor has as many rows as it has outputs.
fn layer(file: &Gguf, name: &'static str, inputs: usize, curve: Option<Curve>) -> Result<PooledLayer> {
    let tensor = file.tensor(&format!("{name}.weight"));
    let tensor = tensor.ok_or_else(|| file.wrong(format!("tensor {name}.weight is missing")))?;
    let [outputs, columns] = tensor.shape[..] else {
        return Err(file.wrong(format!("tensor {name}.weight has shape {:?}, but must have two axes", tensor.shape)));
    };
    if columns != inputs {
        return Err(file.wrong(format!("tensor {name}.weight has {columns} columns, but what it reads has {inputs}")));
    }
    let bias = if file.tensor(&format!("{name}.bias")).is_some() { Bias::Added } else { Bias::None };
    Ok(PooledLayer { tensors: PooledTensors::Named(name), inputs, outputs, bias, curve, norm: None })
}

/// The scores of a classifier, and its layers.
fn classifier(file: &Gguf, architecture: &str, spec: &DecoderSpec) -> Result<(Scores, Vec<PooledLayer>)> {
    let wrong = |reason| file.wrong(reason);
    let mut layers = Vec::new();
    if has(file, DENSE) && has(file, OUTPUT) {
        let curve = if architecture == "modern-bert" { Curve::Gelu } else { Curve::Tanh };
        let mut dense = layer(file, DENSE, spec.hidden, Some(curve))?;
        if has(file, NORM) {
            let eps = spec.final_norm.map_or(1e-5, |norm| norm.eps);
            let is_biased = file.tensor(&format!("{NORM}.bias")).is_some();
            let kind = if is_biased { NormKind::LayerBiased } else { NormKind::Layer };
            dense.norm = Some((Norm { kind, eps, weight: NormWeight::Plain }, NORM));
        }
        layers.push(dense);
    } else if spec.is_encoder() {
        // The conversion leaves out the pooler of BERT, and takes a head of two labels without names for another tensor.
        return Err(wrong(format!(
            "is a classifier with one of the tensors {DENSE}.weight and {OUTPUT}.weight, but its scores are those of the model with both alone: \
             open the folder that it was made of"
        )));
    }
    let before = layers.last().map_or(spec.hidden, |layer| layer.outputs);
    layers.push(layer(file, OUTPUT, before, None)?);
    let outputs = layers.last().map_or(0, |layer| layer.outputs);
    let key = format!("{architecture}.classifier.output_labels");
    let labels = match file.header().strings(&key, LABELS_MAX).map_err(wrong)? {
        Some(labels) => labels.into_iter().map(|label| String::from_utf8_lossy(label).into_owned()).collect(),
        None => (0..outputs).map(|index| format!("LABEL_{index}")).collect::<Vec<_>>(),
    };
    if labels.len() != outputs || !(1..=LABELS_MAX).contains(&outputs) {
        let count = labels.len();
        return Err(wrong(format!(
            "has a classifier of {outputs} scores and {key} of {count} labels, but must have as many of both, from 1 to {LABELS_MAX}"
        )));
    }
    let curve = if outputs == 1 { ScoreCurve::Sigmoid } else { ScoreCurve::Softmax };
    Ok((Scores { labels, curve }, layers))
}
