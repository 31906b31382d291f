//! Which logits of a sequence are changed before a token is chosen: its penalties, its biases, and the tokens it may not end
//! with yet.
//!
//! The tokens that a penalty looks at are counted as they come, so that asking for a token copies a list and makes none. A
//! preempted sequence keeps its tokens, and with them this list.

use crate::api::sampling_params::SamplingParams;
use base::TokenId;
use compute::batch::{LogitBias, Sampling};

/// The adjustments of one sequence.
#[derive(Clone, Default)]
pub struct LogitBiases {
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    /// Tokens that have come and tokens with a bias. In ascending order of the tokens, each once.
    list: Vec<LogitBias>,
}

impl LogitBiases {
    /// Those of a request before its first token. `biases` are in ascending order of their tokens.
    pub fn new(params: &SamplingParams, biases: &[LogitBias], prompt: &[TokenId]) -> LogitBiases {
        let SamplingParams { repetition_penalty, presence_penalty, frequency_penalty, .. } = *params;
        let mut list = Vec::with_capacity(biases.len());
        if repetition_penalty != 1.0 {
            list.extend(prompt.iter().map(|&token| LogitBias { token, uses: 0, bias: 0.0 }));
            list.sort_unstable_by_key(|entry| entry.token);
            list.dedup_by_key(|entry| entry.token);
            let of_prompt = list.len();
            for bias in biases {
                match list[..of_prompt].binary_search_by_key(&bias.token, |entry| entry.token) {
                    Ok(index) => list[index].bias = bias.bias,
                    Err(_) => list.push(*bias),
                }
            }
            list.sort_unstable_by_key(|entry| entry.token);
        } else {
            list.extend_from_slice(biases);
        }
        LogitBiases { repetition_penalty, presence_penalty, frequency_penalty, list }
    }

    /// Whether tokens have to be counted.
    pub fn has_penalty(&self) -> bool {
        (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)
    }

    /// Reserves memory for `tokens` further tokens.
    pub fn reserve(&mut self, tokens: usize) {
        if self.has_penalty() {
            self.list.reserve(tokens);
        }
    }

    /// Counts a token that was generated.
    pub fn count(&mut self, token: TokenId) {
        if self.has_penalty() {
            let uses = &mut self.entry(token).uses;
            *uses = if *uses == LogitBias::UNUSED { 1 } else { *uses + 1 };
        }
    }

    /// Describes them to a sample; `banned` tokens, in ascending order, may not be chosen. Entries go to the end of `entries`.
    pub fn write(&self, banned: &[TokenId], sampling: &mut Sampling, entries: &mut Vec<LogitBias>) {
        sampling.repetition_penalty = self.repetition_penalty;
        sampling.presence_penalty = self.presence_penalty;
        sampling.frequency_penalty = self.frequency_penalty;
        sampling.adjusted_start = entries.len() as u32;
        let mut list = &self.list[..];
        for &token in banned {
            let before = list.partition_point(|entry| entry.token < token);
            entries.extend_from_slice(&list[..before]);
            entries.push(LogitBias::ban(token));
            let skipped = before + usize::from(list.get(before).is_some_and(|entry| entry.token == token));
            list = &list[skipped..];
        }
        entries.extend_from_slice(list);
        sampling.adjusted_end = entries.len() as u32;
    }

    /// The entry of a token, made where there is none.
    fn entry(&mut self, token: TokenId) -> &mut LogitBias {
        let index = match self.list.binary_search_by_key(&token, |entry| entry.token) {
            Ok(index) => index,
            Err(index) => {
                self.list.insert(index, LogitBias { token, uses: LogitBias::UNUSED, bias: 0.0 });
                index
            }
        };
        &mut self.list[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNUSED: u32 = LogitBias::UNUSED;

    /// Token, uses, bias.
    type Entry = (TokenId, u32, f32);

    fn biases(params: &SamplingParams) -> Vec<LogitBias> {
        let bias = |&(token, bias): &(TokenId, f32)| LogitBias { token, uses: UNUSED, bias };
        let mut biases: Vec<LogitBias> = params.logit_bias.iter().map(bias).collect();
        biases.sort_unstable_by_key(|entry| entry.token);
        biases
    }

    fn written(adjustments: &LogitBiases, banned: &[TokenId]) -> Vec<Entry> {
        let mut sampling = Sampling::GREEDY;
        // Those of another sample stand before them.
        let mut entries = vec![LogitBias::ban(99)];
        adjustments.write(banned, &mut sampling, &mut entries);
        assert_eq!(sampling.adjusted(), 1..entries.len());
        entries[1..].iter().map(|entry| (entry.token, entry.uses, entry.bias)).collect()
    }

    #[test]
    fn each_penalty_counts_the_tokens_it_looks_at() {
        type Row = (&'static str, SamplingParams, &'static [Entry]);
        let plain = SamplingParams::default();
        let cases: [Row; 6] = [
            ("none", plain.clone(), &[]),
            (
                "repetition",
                SamplingParams { repetition_penalty: 1.5, ..plain.clone() },
                &[(3, 0, 0.0), (5, 2, 0.0), (7, 1, 0.0)],
            ),
            ("presence", SamplingParams { presence_penalty: 0.5, ..plain.clone() }, &[(5, 2, 0.0), (7, 1, 0.0)]),
            ("frequency", SamplingParams { frequency_penalty: -1.0, ..plain.clone() }, &[(5, 2, 0.0), (7, 1, 0.0)]),
            (
                "repetition and biases",
                SamplingParams { repetition_penalty: 1.5, logit_bias: vec![(9, 1.0), (3, 2.0)], ..plain.clone() },
                &[(3, 0, 2.0), (5, 2, 0.0), (7, 1, 0.0), (9, UNUSED, 1.0)],
            ),
            (
                "a bias alone",
                SamplingParams { logit_bias: vec![(7, 2.0), (1, -3.0)], ..plain.clone() },
                &[(1, UNUSED, -3.0), (7, UNUSED, 2.0)],
            ),
        ];
        for (name, params, expected) in cases {
            let mut adjustments = LogitBiases::new(&params, &biases(&params), &[5, 3, 5]);
            for token in [5, 7, 5] {
                adjustments.count(token);
            }
            assert_eq!(written(&adjustments, &[]), expected, "{name}");
        }
    }

    #[test]
    fn a_ban_takes_the_place_of_what_else_is_known_of_a_token() {
        let params = SamplingParams { presence_penalty: 1.0, logit_bias: vec![(4, 1.0)], ..SamplingParams::default() };
        let mut adjustments = LogitBiases::new(&params, &biases(&params), &[]);
        adjustments.count(2);
        adjustments.count(4);
        let never = f32::NEG_INFINITY;
        let cases: [(&[TokenId], &[Entry]); 4] = [
            (&[], &[(2, 1, 0.0), (4, 1, 1.0)]),
            (&[3], &[(2, 1, 0.0), (3, UNUSED, never), (4, 1, 1.0)]),
            (&[2, 9], &[(2, UNUSED, never), (4, 1, 1.0), (9, UNUSED, never)]),
            (&[0, 2, 4], &[(0, UNUSED, never), (2, UNUSED, never), (4, UNUSED, never)]),
        ];
        for (banned, expected) in cases {
            assert_eq!(written(&adjustments, banned), expected, "{banned:?}");
        }
    }

    #[test]
    fn counting_allocates_nothing_where_memory_was_reserved() {
        let params = SamplingParams { frequency_penalty: 1.0, ..SamplingParams::default() };
        let mut adjustments = LogitBiases::new(&params, &[], &[1, 2, 3]);
        adjustments.reserve(100);
        let before = adjustments.list.as_ptr();
        (0..100).for_each(|token| adjustments.count(99 - token));
        assert_eq!(adjustments.list.as_ptr(), before);
    }
}
