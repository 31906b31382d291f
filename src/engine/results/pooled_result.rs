//! What does a request get that generates nothing: an embedding or scores of the pooled state of its text, or probabilities of tokens after it?

use super::output::Output;
use crate::api::sampling_params::{Pooling, SamplingParams};
use base::error::{Error, Result};
use runner::{ModelInfo, Pool, ScoreCurve};

/// What becomes of a pooled state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PooledResult {
    /// Which states become one; `None` where none do.
    pub pool: Option<Pool>,
    /// Whether each row of a pass brings all of its text, and one pooled state.
    pub is_whole: bool,
    /// Numbers that are the result, from the first: of each token where tokens keep their states.
    pub width: usize,
    /// Whether an embedding is divided by its length.
    is_normalized: bool,
    /// What makes scores of the numbers, if they are no embedding.
    scores: Option<ScoreCurve>,
    /// Tokens of a text at most, by the model's folder.
    pub max_tokens: Option<usize>,
}

impl PooledResult {
    /// Resolves how a request pools by what the model says.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for what the model cannot do, [`Error::Option`] for dimensions that it does not have.
    pub fn resolve(params: &SamplingParams, info: &ModelInfo) -> Result<PooledResult> {
        let (is_whole, pooled) = (info.limits.whole_rows, &info.pooled);
        if !params.score_tokens.is_empty() {
            let width = params.score_tokens.len();
            let scores = Some(ScoreCurve::Softmax);
            return Ok(PooledResult { is_whole, width, scores, ..PooledResult::default() });
        }
        let unsupported = |what: &str| Error::Unsupported { what: what.to_owned() };
        let is_auto = params.pooling == Pooling::Auto;
        if params.pooling != Pooling::None && !is_auto && pooled.scores.is_some() {
            return Err(unsupported("the model is a classifier and gives scores: set pooling to NVLLM_POOLING_AUTO"));
        }
        let pool = match params.pooling {
            Pooling::None => None,
            Pooling::First => Some(Pool::First),
            Pooling::Last => Some(Pool::Last),
            Pooling::Mean => Some(Pool::Mean),
            Pooling::Auto if pooled.pool.is_none() => {
                let what = "the model does not say how its states are pooled: \
                            set pooling to NVLLM_POOLING_CLS, NVLLM_POOLING_MEAN or NVLLM_POOLING_LAST";
                return Err(unsupported(what));
            }
            Pooling::Auto => pooled.pool,
        };
        if pool == Some(Pool::First) && !is_whole {
            return Err(unsupported(
                "pooling of the first token needs a model whose tokens attend to those behind them",
            ));
        }
        let mut width = info.pooled_width;
        if let Some(dimensions) = params.embedding_dimensions {
            let most = if pooled.scores.is_some() || params.pooling == Pooling::None { 0 } else { width };
            if dimensions == 0 || dimensions as usize > most {
                let value = match most {
                    0 => format!("{dimensions}, and the request makes no embedding"),
                    most => format!("{dimensions}, and the embeddings of the model have {most} numbers"),
                };
                let wanted = "from 1 to the numbers of an embedding, or 0 for all";
                return Err(Error::Option { field: "embedding_dimensions", value, wanted });
            }
            width = dimensions as usize;
        }
        let is_normalized = is_auto && pooled.normalized;
        let scores = pooled.scores.as_ref().map(|scores| scores.curve);
        let max_tokens = pooled.max_seq_length.filter(|_| is_auto);
        Ok(PooledResult { pool, is_whole, width, is_normalized, scores, max_tokens })
    }

    /// Writes the result to `output`. `state` has at least as many numbers.
    pub fn write(&self, state: impl Iterator<Item = f32>, output: &mut Output) {
        let most = if self.pool == Some(Pool::Tokens) { usize::MAX } else { self.width };
        let numbers = state.take(most);
        match self.scores {
            Some(curve) => {
                output.scores.extend(numbers);
                output.scores.chunks_exact_mut(self.width).for_each(|scores| curve.apply(scores));
            }
            None => {
                output.embedding.extend(numbers);
                if self.is_normalized {
                    let squares: f64 = output.embedding.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
                    // As in PyTorch.
                    let length = squares.sqrt().max(1e-12);
                    output.embedding.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
                }
            }
        }
    }
}
