//! How tokens are chosen, and what completions must look like: options of every command that generates.

use crate::numbers;
use clap::Args;
use std::path::PathBuf;

const SAMPLING: &str = "Sampling options, by default those that the model recommends";
const STRUCTURE: &str = "Structured output";

#[derive(Args, Debug, Default)]
#[command(next_help_heading = SAMPLING)]
pub struct RequestOptions {
    /// Tokens of an answer; default: as many as the context holds
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub max_tokens: Option<u32>,
    /// Randomness; 0 takes the most likely token
    #[arg(long, value_name = "T", value_parser = numbers::not_negative, allow_negative_numbers = true)]
    pub temperature: Option<f32>,
    /// Samples from the most likely tokens whose probabilities sum to P
    #[arg(long, value_name = "P", value_parser = numbers::share, allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Samples from the K most likely tokens; 0 is all
    #[arg(long, value_name = "K", value_parser = numbers::whole, allow_negative_numbers = true)]
    pub top_k: Option<u32>,
    /// Drops tokens less likely than P times the most likely one
    #[arg(long, value_name = "P", value_parser = numbers::fraction, allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Seed of the random numbers: the same seed gives the same answer
    #[arg(long, value_name = "N", value_parser = numbers::seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Divides the logits of tokens that occurred; more than 1 discourages repetition
    #[arg(long, value_name = "X", value_parser = numbers::factor, allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,
    /// Subtracted from the logits of tokens that the answer has
    #[arg(long, value_name = "X", value_parser = numbers::finite, allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// Subtracted from the logit of a token per occurrence in the answer
    #[arg(long, value_name = "X", value_parser = numbers::finite, allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// DRY: penalty of tokens that continue a repetition; 0 is off
    #[arg(long, value_name = "X", value_parser = numbers::not_negative, allow_negative_numbers = true)]
    pub dry_multiplier: Option<f32>,
    /// DRY: factor of the penalty per further token of the repetition
    #[arg(long, value_name = "X", value_parser = numbers::one_or_more, allow_negative_numbers = true)]
    pub dry_base: Option<f32>,
    /// DRY: tokens from which on a repetition is penalized
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub dry_allowed_length: Option<u32>,
    /// DRY: last tokens in which repetitions are looked for; default: all
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub dry_penalty_last_n: Option<u32>,
    /// DRY: text across which no repetition extends; may be repeated; none: no such text
    #[arg(long, value_name = "TEXT")]
    pub dry_sequence_breaker: Vec<String>,
    /// Drops tokens whose logit is more than X standard deviations below the greatest; 0 is off
    #[arg(long, value_name = "X", value_parser = numbers::not_negative, allow_negative_numbers = true)]
    pub top_n_sigma: Option<f32>,
    /// XTC: probability with which the most likely tokens are dropped; 0 is off
    #[arg(long, value_name = "P", value_parser = numbers::fraction, allow_negative_numbers = true)]
    pub xtc_probability: Option<f32>,
    /// XTC: probability from which on tokens are dropped
    #[arg(long, value_name = "P", value_parser = numbers::share, allow_negative_numbers = true)]
    pub xtc_threshold: Option<f32>,
    /// Ends an answer before this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Does not end answers at the model's end token
    #[arg(long)]
    pub ignore_eos: bool,
}

#[derive(Args, Debug, Default)]
#[command(next_help_heading = STRUCTURE)]
#[group(multiple = false)]
pub struct StructureOptions {
    /// File with a JSON schema that answers satisfy
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
    /// Regular expression that answers match
    #[arg(long, value_name = "EXPRESSION")]
    pub regex: Option<String>,
    /// File with a Lark grammar of answers
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
}
