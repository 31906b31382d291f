//! What does generation_config.json recommend: which tokens end a completion, and which sampling?
//!
//! Invariant: what it recommends has passed the checks of a request's own options.

use crate::api::sampling_params::SamplingParams;
use base::TokenId;
use base::error::{Error, Result};
use base::limits::STOP_TOKENS;
use formats::source::{Source, SourceFile};
use serde::Deserialize;

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// The token that begins a text.
    pub bos_token: Option<TokenId>,
    /// Tokens that end a completion; `None` leaves them to config.json.
    pub eos_tokens: Option<Vec<TokenId>>,
    /// The recommended sampling: greedy unless `do_sample` is true. A repetition penalty applies in both cases.
    pub params: SamplingParams,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct File {
    bos_token_id: Option<TokenId>,
    eos_token_id: Option<OneOrMany>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(TokenId),
    Many(Vec<TokenId>),
}

impl GenerationConfig {
    /// Reads the file of `source`; without one, nothing is set.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be read, [`Error::ModelFile`] if it is malformed or recommends invalid sampling.
    pub fn open(source: &Source) -> Result<GenerationConfig> {
        match source.generation_config()? {
            Some(SourceFile { path, bytes }) => parse(&bytes).map_err(|reason| Error::ModelFile { path, reason }),
            None => Ok(GenerationConfig::default()),
        }
    }
}

fn parse(bytes: &[u8]) -> std::result::Result<GenerationConfig, String> {
    let file: File =
        serde_json::from_slice(bytes).map_err(|error| format!("is not JSON of a generation config: {error}"))?;
    let mut params = SamplingParams::default();
    params.repetition_penalty = file.repetition_penalty.unwrap_or(params.repetition_penalty);
    if file.do_sample == Some(true) {
        params.temperature = file.temperature.unwrap_or(1.0);
        params.top_k = file.top_k.unwrap_or(params.top_k);
        params.top_p = file.top_p.unwrap_or(params.top_p);
        params.min_p = file.min_p.unwrap_or(params.min_p);
    }
    params.check_sampling().map_err(|error| error.to_string())?;
    let eos_tokens = file.eos_token_id.map(|eos| match eos {
        OneOrMany::One(token) => vec![token],
        OneOrMany::Many(tokens) => tokens,
    });
    if let Some(tokens) = eos_tokens.as_ref().filter(|tokens| tokens.len() > STOP_TOKENS) {
        return Err(format!("eos_token_id has {} tokens, but at most {STOP_TOKENS} are accepted", tokens.len()));
    }
    Ok(GenerationConfig { bos_token: file.bos_token_id, eos_tokens, params })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_tokens_are_a_number_or_a_list_or_absent() {
        const CASES: &[(&str, Option<&[TokenId]>)] = &[
            (r#"{"eos_token_id": 7}"#, Some(&[7])),
            (r#"{"eos_token_id": [7, 9]}"#, Some(&[7, 9])),
            (r#"{"eos_token_id": null}"#, None),
            (r#"{}"#, None),
        ];
        for (text, expected) in CASES {
            assert_eq!(parse(text.as_bytes()).unwrap().eos_tokens.as_deref(), *expected, "{text}");
        }
    }

    #[test]
    fn sampling_counts_only_when_do_sample_is_true() {
        let sampled =
            parse(br#"{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1}"#).unwrap();
        let SamplingParams { temperature, top_k, top_p, min_p, .. } = sampled.params;
        assert_eq!((temperature, top_k, top_p, min_p), (0.6, 20, 0.95, 0.1));
        for text in [r#"{"do_sample": false, "temperature": 0.6, "top_k": 20}"#, r#"{"temperature": 0.6}"#, "{}"] {
            assert_eq!(parse(text.as_bytes()).unwrap().params, SamplingParams::default(), "{text}");
        }
        assert_eq!(parse(br#"{"do_sample": true}"#).unwrap().params.temperature, 1.0);
    }

    #[test]
    fn a_repetition_penalty_counts_with_and_without_sampling() {
        for (text, expected) in [
            (r#"{"repetition_penalty": 1.05}"#, 1.05),
            (r#"{"do_sample": true, "repetition_penalty": 1.05}"#, 1.05),
            (r#"{"do_sample": false, "repetition_penalty": null}"#, 1.0),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().params.repetition_penalty, expected, "{text}");
        }
    }

    #[test]
    fn broken_files_are_refused_with_a_reason() {
        const CASES: &[(&str, &str)] = &[
            ("", "EOF"),
            ("[]", "invalid length"),
            (r#"{"eos_token_id": "x"}"#, "OneOrMany"),
            (r#"{"eos_token_id": -1}"#, "OneOrMany"),
            (r#"{"do_sample": true, "top_p": 0}"#, "top_p is 0, but must be above 0"),
            (r#"{"do_sample": true, "temperature": -1}"#, "temperature is -1"),
            (r#"{"repetition_penalty": 0}"#, "repetition_penalty is 0, but must be a finite number above 0"),
        ];
        for (text, reason) in CASES {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
        let many = format!(r#"{{"eos_token_id": {:?}}}"#, vec![7; 1025]);
        let error = parse(many.as_bytes()).expect_err("1025 end tokens");
        assert_eq!(error, "eos_token_id has 1025 tokens, but at most 1024 are accepted");
    }

    #[test]
    fn a_folder_without_the_file_sets_nothing_and_a_broken_one_names_it() {
        let folder = std::env::temp_dir().join(format!("nanovllm-generation-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = Source::open(&folder).unwrap();
        assert_eq!(GenerationConfig::open(&source).unwrap(), GenerationConfig::default());
        std::fs::write(folder.join("generation_config.json"), "{").unwrap();
        let error = GenerationConfig::open(&source).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("generation_config.json: is not JSON of a generation config: EOF"), "{error}");
    }
}
