// Generated from src/compute/batch.rs by scripts/header.sh: change it there, then run make header.

#pragma once

#include <stdint.h>

/// An index into the model's vocabulary.
using TokenId = uint32_t;

/// An index into the pool of recurrent states.
using StateSlot = uint32_t;

/// How one next token is chosen from its logits.
///
/// The filters apply in this order: temperature, top-n-sigma, top-k, top-p over what these left, min-p, XTC over what all left. Ties
/// at a threshold stay. The choice is the argmax of `logit / temperature + gumbel`, where the Gumbel noise of token `i` comes from Philox
/// with key `(seed)` and counter `(i / 4, position, stream)`: it depends on nothing else in the batch.
struct Sampling {
    /// 0 chooses the greatest logit, the lowest token id among equals.
    float temperature;
    /// Keep the smallest set of most probable tokens with at least this much probability; 1 keeps all.
    float top_p;
    /// Drop tokens less likely than this share of the most probable one; 0 keeps all.
    float min_p;
    /// Keep the k most probable tokens; 0 keeps all.
    uint32_t top_k;
    /// Philox key.
    uint64_t seed;
    /// Which random stream of that seed: 0 where the request brought its own seed, else its id, and the index of its
    /// completion in the upper 16 bits.
    uint64_t stream;
    /// Position of the token to be chosen, counted from the start of the sequence.
    uint32_t position;
    /// First entry of this sample in `adjustments`.
    uint32_t adjusted_start;
    /// One past its last entry.
    uint32_t adjusted_end;
    /// See [`LogitBias`]; 1 is none.
    float repetition_penalty;
    /// See [`LogitBias`]; 0 is none.
    float presence_penalty;
    /// See [`LogitBias`]; 0 is none.
    float frequency_penalty;
    /// A [`FROM_PREVIOUS`] token that the adjustments do not count yet: it has one more use, or its first. Or [`NO_TOKEN`].
    TokenId awaited;
    /// Where in `masks` the tokens are that may be chosen, or [`NO_MASK`].
    uint32_t mask;
    /// The token that is chosen in any case, for its log-probability, or [`NO_TOKEN`].
    TokenId forced;
    /// 0 asks for no log-probabilities; `n` for those of the chosen token and the `n - 1` most probable ones, at most
    /// [`MAX_LOGPROBS`] of these.
    uint32_t logprobs;
    /// Top-n-sigma: drop tokens whose logit is more than this many standard deviations below the greatest. Over the tokens that may be chosen and
    /// are above minus infinity, from logits after adjustments and before temperature. 0 or less keeps all.
    float top_n_sigma;
    /// XTC: of the tokens with at least this share of the probability that the filters left, drop all that are more probable than the least
    /// probable of them. From above 0 to 0.5; 0 where this sample drops none, see [`Sampling::draws`].
    float xtc_threshold;
};

/// A change of one token's logit: `l' = p(l) - presence * (uses > 0) - frequency * uses + bias`, where `p` divides a positive
/// logit by the repetition penalty and multiplies another one. The three penalties are those of the [`Sampling`] that it
/// belongs to.
struct LogitBias {
    /// Which token; each at most once per sample.
    TokenId token;
    /// How often it was generated; 0 where it stands in the prompt alone. [`UNUSED`](LogitBias::UNUSED) where it has come
    /// nowhere yet: no penalty applies then.
    uint32_t uses;
    /// Added at the end. Minus infinity makes it a token that is never chosen.
    float bias;
};
