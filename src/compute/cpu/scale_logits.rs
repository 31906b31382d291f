//! See `ops/scale_logits.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch, tanh};
use super::{Cpu, Tensor};

/// Logits that a thread takes at a time. Rows are not told apart: a logit depends on itself alone.
const CHUNK: usize = 1024;

/// The specification.
pub fn reference(logits: &mut [f32], scale: f32, softcap: Option<f32>) {
    for logit in logits {
        let scaled = f64::from(scale) * f64::from(*logit);
        *logit = softcap.map_or(scaled, |cap| f64::from(cap) * (scaled / f64::from(cap)).tanh()) as f32;
    }
}

pub fn run(cpu: &Cpu, logits: &mut Tensor, scale: f32, softcap: Option<f32>) {
    let len = logits.values().len();
    let logits = Disjoint::new(logits.values_mut());
    // A logit costs about four times what a copied number does.
    cpu.for_rows(len.div_ceil(CHUNK), 4 * CHUNK, &|chunks| {
        // SAFETY: the ranges of `for_rows` do not overlap.
        let logits = unsafe { logits.part(chunks.start * CHUNK..len.min(chunks.end * CHUNK)) };
        dispatch(cpu.isa, ScaleLogits { logits, scale, softcap });
    });
}

struct ScaleLogits<'a> {
    logits: &'a mut [f32],
    scale: f32,
    softcap: Option<f32>,
}

impl Kernel for ScaleLogits<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Some(softcap) = self.softcap else {
            self.logits.iter_mut().for_each(|logit| *logit *= self.scale);
            return;
        };
        let [scale, cap] = [self.scale, softcap].map(|factor| lanes.splat(factor));
        let capped = |v| lanes.mul(cap, tanh(lanes, lanes.div(lanes.mul(v, scale), cap)));
        let mut vectors = self.logits.chunks_exact_mut(L::N);
        for vector in &mut vectors {
            // SAFETY: the chunk has N numbers.
            unsafe { lanes.store(vector.as_mut_ptr(), capped(lanes.load(vector.as_ptr()))) }
        }
        let rest = vectors.into_remainder();
        // SAFETY: the remainder is shorter than N.
        unsafe {
            let v = capped(lanes.load_first(rest.as_ptr(), rest.len()));
            lanes.store_first(rest.as_mut_ptr(), v, rest.len());
        }
    }
}
