//! What becomes of the states of a text: how are they pooled, what is computed of the pooled state, and is it an embedding or are they scores?
//!
//! A folder of sentence-transformers says the first in modules.json and the folders that it names; a classifier's config says the last.
//! Invariant: what a module does that is not computed is refused by name.

use crate::family::{CLASSIFIER, TOKEN_CLASSIFIER};
use crate::fields::Fields;
use crate::spec::{Bias, Curve, DecoderSpec, HeadWeights, Norm, NormKind, NormWeight, PooledLayer, PooledTensors};
use crate::standard::curve;
use base::error::{Error, Result};
use formats::source::{Source, SourceFile};
use serde_json::Value;

/// Which states of a text become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// That of the first token.
    First,
    /// That of the last token.
    Last,
    /// The mean of all.
    Mean,
    /// The sum of all, divided by the root of how many there are.
    MeanSqrtLen,
    /// The mean of all, the first once, the second twice, and so on.
    WeightedMean,
    /// The greatest of all, number by number.
    Max,
    /// None: each token keeps its own.
    Tokens,
}

/// What becomes of the states of a text, apart from the layers in [`DecoderSpec::pooled_layers`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pooled {
    /// What the model says; `None` where it says nothing.
    pub pool: Option<Pool>,
    /// Whether embeddings have length 1.
    pub normalized: bool,
    /// What a classifier gives instead of embeddings.
    pub scores: Option<Scores>,
    /// Tokens of a text at most, by the folder: less than the positions of the model, or as many.
    pub max_seq_length: Option<usize>,
    /// What stands before texts of a kind, by name.
    pub prompts: Vec<(String, String)>,
    /// The name of the one that stands before texts of no kind.
    pub default_prompt: Option<String>,
}

/// What a classifier gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// What each score is of. At least one.
    pub labels: Vec<String>,
    /// What the logits go through.
    pub curve: ScoreCurve,
}

/// What logits go through to become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreCurve {
    /// Nothing.
    Identity,
    /// Each by itself, through `1 / (1 + exp(-v))`.
    Sigmoid,
    /// All together: they add up to 1.
    Softmax,
}

/// Modules of a folder at most.
const MODULES_MAX: usize = 16;
/// Labels of a classifier at most.
pub const LABELS_MAX: usize = 4096;
/// Prompts of a folder at most.
const PROMPTS_MAX: usize = 256;

impl Pooled {
    /// What `source` says, of a model whose config has these fields and class names.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`] for files that cannot be read or say what no model does, [`Error::UnsupportedModel`] for modules that
    /// are not computed.
    pub fn read(source: &Source, fields: Fields, class: &str, spec: &mut DecoderSpec) -> Result<Pooled> {
        let mut pooled = Pooled::default();
        if class.ends_with(CLASSIFIER) {
            let scores = Scores::read(fields)?;
            let labels = scores.labels.len();
            (pooled.pool, spec.pooled_layers) = match spec.is_encoder() {
                true => classifier(fields, spec.hidden, labels)?,
                false => (Some(Pool::Last), vec![of_decoder(spec.hidden, labels)]),
            };
            spec.head.weights = HeadWeights::Missing;
            pooled.scores = Some(scores);
        }
        if class.ends_with(TOKEN_CLASSIFIER) {
            let scores = Scores::read(fields)?;
            spec.pooled_layers = classifier_of_tokens(fields, spec.hidden, scores.labels.len())?;
            spec.head.weights = HeadWeights::Missing;
            (pooled.pool, pooled.scores) = (Some(Pool::Tokens), Some(scores));
        }
        let Some(file) = source.module_file("", "modules.json")? else { return Ok(pooled) };
        let modules: Value = parsed(&file)?;
        let refuse = |reason: String| Error::ModelFile { path: file.path.clone(), reason };
        let modules = modules.as_array().filter(|list| list.len() <= MODULES_MAX);
        let modules = modules.ok_or_else(|| refuse(format!("must be a list of at most {MODULES_MAX} modules")))?;
        for module in modules {
            let module = Fields::new(&file.path, module)?;
            let (kind, folder) = (module.text("type")?.unwrap_or_default(), module.text("path")?.unwrap_or_default());
            if !is_plain(folder) {
                return Err(refuse(format!("names the folder {folder:.60}, which is none of the model's")));
            }
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => pooled.max_seq_length = max_seq_length(source, folder)?,
                // A cross-encoder gives scores.
                _ if pooled.scores.is_some() => {}
                "Pooling" => pooled.pool = Some(pooling(source, folder)?),
                "Normalize" => pooled.normalized = true,
                "Dropout" => {}
                "Dense" if spec.is_encoder() => spec.pooled_layers.push(dense(source, folder, spec)?),
                _ => {
                    return Err(Error::UnsupportedModel {
                        setting: "type of a module in modules.json",
                        value: format!("{kind:.80}"),
                        supported: "Transformer, Pooling, Normalize, and of encoders Dense",
                    });
                }
            }
        }
        pooled.read_prompts(source)?;
        Ok(pooled)
    }

    fn read_prompts(&mut self, source: &Source) -> Result<()> {
        let Some(file) = source.module_file("", "config_sentence_transformers.json")? else { return Ok(()) };
        let value = parsed(&file)?;
        let fields = Fields::new(&file.path, &value)?;
        if let Some(prompts) = fields.object("prompts")? {
            for (name, _) in prompts.iter().take(PROMPTS_MAX) {
                let text = prompts.text(name)?.unwrap_or_default();
                self.prompts.push((name.clone(), text.to_owned()));
            }
        }
        self.default_prompt = fields.text("default_prompt_name")?.map(str::to_owned);
        Ok(())
    }

    /// Numbers of what a text becomes.
    pub fn width(&self, spec: &DecoderSpec) -> usize {
        spec.pooled_layers.last().map_or(spec.hidden, |layer| layer.outputs)
    }
}

/// Whether a name is that of a folder within the model's, or of that itself.
fn is_plain(folder: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    folder.len() <= 100 && !folder.starts_with('.') && folder.chars().all(is_letter)
}

fn parsed(file: &SourceFile) -> Result<Value> {
    let refuse = |error| Error::ModelFile { path: file.path.clone(), reason: format!("is not JSON: {error}") };
    serde_json::from_slice(&file.bytes).map_err(refuse)
}

/// The config of a module.
fn module_config(source: &Source, folder: &str) -> Result<(SourceFile, Value)> {
    let Some(file) = source.module_file(folder, "config.json")? else {
        let path = source.path().join(folder).join("config.json");
        return Err(Error::ModelFile { path, reason: "is missing, but modules.json names its folder".to_owned() });
    };
    let value = parsed(&file)?;
    Ok((file, value))
}

/// The length that texts are cut to by sentence-transformers.
fn max_seq_length(source: &Source, folder: &str) -> Result<Option<usize>> {
    let Some(file) = source.module_file(folder, "sentence_bert_config.json")? else { return Ok(None) };
    let value = parsed(&file)?;
    Fields::new(&file.path, &value)?.count_or_none("max_seq_length")
}

/// Which states a module pools.
fn pooling(source: &Source, folder: &str) -> Result<Pool> {
    let (file, value) = module_config(source, folder)?;
    let fields = Fields::new(&file.path, &value)?;
    let modes = [
        ("pooling_mode_cls_token", "cls", Pool::First),
        ("pooling_mode_mean_tokens", "mean", Pool::Mean),
        ("pooling_mode_lasttoken", "lasttoken", Pool::Last),
        ("pooling_mode_max_tokens", "max", Pool::Max),
        ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pool::MeanSqrtLen),
        ("pooling_mode_weightedmean_tokens", "weightedmean", Pool::WeightedMean),
    ];
    let named = fields.text("pooling_mode")?;
    let mut found = Vec::new();
    for (field, name, pool) in modes {
        if fields.flag(field)? == Some(true) || named == Some(name) {
            found.push((field, pool));
        }
    }
    match found[..] {
        [(_, pool)] => Ok(pool),
        _ => Err(Error::UnsupportedModel {
            setting: "the pooling of the model's folder",
            value: match named {
                Some(name) => format!("{name:.60}"),
                None => found.iter().map(|(field, _)| *field).collect::<Vec<_>>().join(" and "),
            },
            supported: "one of cls, mean, lasttoken, max, mean_sqrt_len_tokens and weightedmean",
        }),
    }
}

/// A linear layer of a module.
fn dense(source: &Source, folder: &str, spec: &DecoderSpec) -> Result<PooledLayer> {
    let (file, value) = module_config(source, folder)?;
    let fields = Fields::new(&file.path, &value)?;
    let (inputs, outputs) = (fields.count("in_features")?, fields.count("out_features")?);
    let wanted = spec.pooled_layers.last().map_or(spec.hidden, |layer| layer.outputs);
    if inputs != wanted {
        return Err(fields.refuse(format!("in_features is {inputs}, but what is before has {wanted} numbers")));
    }
    let activation = fields.text("activation_function")?.unwrap_or("Tanh");
    let curve = match activation.rsplit('.').next().unwrap_or_default() {
        "Identity" => None,
        "Tanh" => Some(Curve::Tanh),
        "GELU" => Some(Curve::Gelu),
        _ => {
            return Err(Error::UnsupportedModel {
                setting: "activation_function of a Dense module",
                value: format!("{activation:.80}"),
                supported: "Identity, Tanh or GELU",
            });
        }
    };
    let bias = if fields.flag("bias")? == Some(false) { Bias::None } else { Bias::Added };
    let tensors = PooledTensors::Module { folder: folder.to_owned(), name: "linear" };
    Ok(PooledLayer { tensors, inputs, outputs, bias, curve, norm: None })
}

impl Scores {
    fn read(fields: Fields) -> Result<Scores> {
        let labels: Vec<String> = match fields.object("id2label")? {
            Some(labels) => {
                let count = labels.iter().count();
                let label = |index: usize| Ok(labels.text(&index.to_string())?.map(str::to_owned));
                let named: Option<Vec<String>> =
                    (0..count.min(LABELS_MAX + 1)).map(label).collect::<Result<Option<Vec<_>>>>()?;
                let named = named.filter(|named| (1..=LABELS_MAX).contains(&named.len()));
                named.ok_or_else(|| {
                    fields.refuse(format!("id2label must name from 1 to {LABELS_MAX} labels, numbered from 0"))
                })?
            }
            // As in transformers.
            None => (0..fields.count_or_none("num_labels")?.unwrap_or(2).min(LABELS_MAX))
                .map(|index| format!("LABEL_{index}"))
                .collect(),
        };
        let of_sentence_transformers = match fields.object("sentence_transformers")? {
            Some(described) => described.text("activation_fn")?,
            None => None,
        };
        let named = of_sentence_transformers.or(fields.text("sbert_ce_default_activation_function")?);
        let curve = match (named.map(|name| name.rsplit('.').next().unwrap_or_default()), fields.text("problem_type")?)
        {
            (Some("Identity"), _) => ScoreCurve::Identity,
            (Some("Sigmoid"), _) => ScoreCurve::Sigmoid,
            (Some("Softmax"), _) => ScoreCurve::Softmax,
            (Some(other), _) => {
                return Err(Error::UnsupportedModel {
                    setting: "activation_fn of a classifier",
                    value: format!("{other:.60}"),
                    supported: "Identity, Sigmoid or Softmax",
                });
            }
            (None, Some("regression")) => ScoreCurve::Identity,
            (None, Some("multi_label_classification")) => ScoreCurve::Sigmoid,
            (None, _) if labels.len() == 1 => ScoreCurve::Sigmoid,
            (None, _) => ScoreCurve::Softmax,
        };
        Ok(Scores { labels, curve })
    }
}

impl ScoreCurve {
    /// Makes scores of logits.
    pub fn apply(self, logits: &mut [f32]) {
        match self {
            ScoreCurve::Identity => {}
            ScoreCurve::Sigmoid => logits.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp())),
            ScoreCurve::Softmax => {
                let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                logits.iter_mut().for_each(|v| *v = (*v - greatest).exp());
                let total: f32 = logits.iter().sum();
                logits.iter_mut().for_each(|v| *v /= total);
            }
        }
    }
}

/// The layer of a classifier that is a decoder. It reads the state of the last token.
fn of_decoder(hidden: usize, labels: usize) -> PooledLayer {
    let tensors = PooledTensors::Named("score");
    PooledLayer { tensors, inputs: hidden, outputs: labels, bias: Bias::None, curve: None, norm: None }
}

/// The layers of a classifier of tokens.
fn classifier_of_tokens(fields: Fields, hidden: usize, labels: usize) -> Result<Vec<PooledLayer>> {
    let last = PooledLayer {
        tensors: PooledTensors::Named("classifier"),
        inputs: hidden,
        outputs: labels,
        bias: Bias::Added,
        curve: None,
        norm: None,
    };
    Ok(match fields.text("model_type")? {
        Some("modernbert") => vec![modernbert_head(fields, hidden)?, last],
        _ => vec![last],
    })
}

/// The layer before the last one of a ModernBERT classifier.
fn modernbert_head(fields: Fields, hidden: usize) -> Result<PooledLayer> {
    let kind = if fields.flag("norm_bias")? == Some(true) { NormKind::LayerBiased } else { NormKind::Layer };
    let eps = fields.positive_or_none("norm_eps")?.unwrap_or(1e-5) as f32;
    let norm = Norm { kind, eps, weight: NormWeight::Plain };
    Ok(PooledLayer {
        tensors: PooledTensors::Named("head.dense"),
        inputs: hidden,
        outputs: hidden,
        bias: fields.bias("classifier_bias")?,
        curve: Some(curve(fields, "classifier_activation")?.unwrap_or(Curve::Gelu)),
        norm: Some((norm, "head.norm")),
    })
}

/// How a classifier of a family pools, and its layers.
fn classifier(fields: Fields, hidden: usize, labels: usize) -> Result<(Option<Pool>, Vec<PooledLayer>)> {
    let layer = |name, outputs, curve| PooledLayer {
        tensors: PooledTensors::Named(name),
        inputs: hidden,
        outputs,
        bias: Bias::Added,
        curve,
        norm: None,
    };
    match fields.text("model_type")? {
        Some("bert") => Ok((
            Some(Pool::First),
            vec![layer("bert.pooler.dense", hidden, Some(Curve::Tanh)), layer("classifier", labels, None)],
        )),
        Some("roberta" | "xlm-roberta") => Ok((
            Some(Pool::First),
            vec![layer("classifier.dense", hidden, Some(Curve::Tanh)), layer("classifier.out_proj", labels, None)],
        )),
        Some("modernbert") => {
            let dense = modernbert_head(fields, hidden)?;
            let pool = match fields.text("classifier_pooling")? {
                None | Some("cls") => Pool::First,
                Some("mean") => Pool::Mean,
                Some(other) => {
                    return Err(Error::UnsupportedModel {
                        setting: "classifier_pooling",
                        value: format!("{other:.60}"),
                        supported: "cls or mean",
                    });
                }
            };
            Ok((Some(pool), vec![dense, layer("classifier", labels, None)]))
        }
        other => Err(Error::UnsupportedModel {
            setting: "architectures",
            value: format!("a classifier of {:.60}", other.unwrap_or("no model_type")),
            supported: "classifiers of bert, roberta, xlm-roberta and modernbert",
        }),
    }
}
