//! The logits of one sample, a chunk at a time, without the tokens that may not be chosen.
#![allow(unsafe_code)]

use crate::cpu::lanes::Lanes;
use base::TokenId;

/// Tokens of a chunk: four for each of sixteen counters, the widest vector of them.
pub const CHUNK: usize = 64;
/// Tokens of a word of a mask.
const WORD: usize = u32::BITS as usize;

/// The logits of one sample.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// `[vocab]`
    pub logits: &'a [f32],
    /// A bit for each token that may be chosen, from the lowest of the first word on; `None` where all may.
    pub mask: Option<&'a [u32]>,
}

/// The greatest logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Argmax {
    /// Minus infinity if no token may be chosen but those that are minus infinity themselves.
    pub logit: f32,
    /// The first token that has it; 0 if no token may be chosen.
    pub token: TokenId,
}

impl Row<'_> {
    /// Where chunks begin.
    #[inline(always)]
    pub fn chunks(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.logits.len()).step_by(CHUNK)
    }

    /// The chunk at `start`. Minus infinity stands for a NaN, a masked token and whatever lies beyond the vocabulary.
    #[inline(always)]
    pub fn chunk<L: Lanes>(&self, lanes: L, start: usize) -> [f32; CHUNK] {
        let mut chunk = [f32::NEG_INFINITY; CHUNK];
        match self.logits[start..].first_chunk::<CHUNK>() {
            Some(logits) => chunk = *logits,
            None => chunk[..self.logits.len() - start].copy_from_slice(&self.logits[start..]),
        }
        if let Some(mask) = self.mask {
            for (logits, word) in chunk.chunks_exact_mut(WORD).zip(&mask[start / WORD..]) {
                for (bit, logit) in logits.iter_mut().enumerate() {
                    *logit = if word >> bit & 1 == 0 { f32::NEG_INFINITY } else { *logit };
                }
            }
        }
        // The second of two numbers is taken where the first one is NaN.
        map(lanes, &mut chunk, |logit| lanes.max(logit, lanes.splat(f32::NEG_INFINITY)));
        chunk
    }

    /// The greatest logit and the first token that has it.
    #[inline(always)]
    pub fn argmax<L: Lanes>(&self, lanes: L) -> Argmax {
        let (mut logit, mut at) = (f32::NEG_INFINITY, 0);
        for start in self.chunks() {
            let greatest = greatest(lanes, &self.chunk(lanes, start));
            if greatest > logit {
                (logit, at) = (greatest, start);
            }
        }
        let token = if logit == f32::NEG_INFINITY {
            let is_masked = |token: usize| self.mask.is_some_and(|mask| mask[token / WORD] >> (token % WORD) & 1 == 0);
            let may_be = |token: &usize| !self.logits[*token].is_nan() && !is_masked(*token);
            (0..self.logits.len()).find(may_be).unwrap_or(0)
        } else {
            at + first_equal(&self.chunk(lanes, at), logit)
        };
        Argmax { logit, token: token as TokenId }
    }
}

/// Replaces each vector by a function of it.
#[inline(always)]
pub fn map<L: Lanes>(lanes: L, values: &mut [f32; CHUNK], function: impl Fn(L::V) -> L::V) {
    for vector in values.chunks_exact_mut(L::N) {
        // SAFETY: the chunk has N numbers.
        unsafe { lanes.store(vector.as_mut_ptr(), function(lanes.load(vector.as_ptr()))) };
    }
}

/// The greatest of some numbers that are no NaN.
#[inline(always)]
pub fn greatest<L: Lanes>(lanes: L, values: &[f32; CHUNK]) -> f32 {
    let mut greatest = lanes.splat(f32::NEG_INFINITY);
    for vector in values.chunks_exact(L::N) {
        // SAFETY: the chunk has N numbers.
        greatest = lanes.max(unsafe { lanes.load(vector.as_ptr()) }, greatest);
    }
    lanes.greatest(greatest)
}

/// The place of the first number that equals `value`.
#[inline(always)]
pub fn first_equal(values: &[f32; CHUNK], value: f32) -> usize {
    values.iter().position(|&v| v == value).unwrap_or(0)
}
