//! Which decoders can be computed?

use super::{
    Branch, DecoderSpec, FeedForward, KvSource, LayerInputs, MlpForm, Norm, NormKind, QkNorm, Reach, Recurrent,
    SelfAttention, Sublayer,
};
use crate::fields::{POSITIVE, is_positive};
use base::error::{Error, Result};

/// Heads wider than this are not computed: kernels keep a head in registers or on the stack.
const HEAD_DIM_MAX: usize = 512;
/// The same of what is cached for latent attention.
const LATENT_DIM_MAX: usize = 1024;

impl DecoderSpec {
    /// Refuses what the decoder, the KV cache or the kernels cannot hold.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedModel`] for a head of a size that no kernel has.
    ///
    /// # Panics
    ///
    /// Only a wrong family can cause it:
    /// * there is no layer, a layer adds nothing, or an index leads nowhere;
    /// * attention reads keys and values of other heads, or layers with heads of different sizes share a rope;
    /// * a router cannot choose, or experts have a gate with a factor;
    /// * a norm of embeddings has weights, or several branches without norms of their own have others than one before them.
    pub fn check(&self) -> Result<()> {
        assert!(!self.layers.is_empty(), "a decoder has layers");
        for attention in self.attentions() {
            let SelfAttention { head_dim, rope, latent, .. } = *attention;
            if let Some(latent) = latent {
                let numbers = [
                    ("kv_lora_rank and qk_rope_head_dim together", head_dim, LATENT_DIM_MAX),
                    ("qk_nope_head_dim", latent.nope, HEAD_DIM_MAX),
                    ("v_head_dim", latent.value, HEAD_DIM_MAX),
                ];
                for (setting, number, most) in numbers {
                    if number > most {
                        let supported = if most == HEAD_DIM_MAX { "at most 512" } else { "at most 1024" };
                        return Err(Error::UnsupportedModel { setting, value: number.to_string(), supported });
                    }
                }
            } else if !head_dim.is_multiple_of(2) || head_dim == 0 || head_dim > HEAD_DIM_MAX {
                return Err(Error::UnsupportedModel {
                    setting: "head_dim",
                    value: head_dim.to_string(),
                    supported: "an even number from 2 to 512",
                });
            }
            // A table of cosines and sines is made for heads of one size.
            assert!(rope.is_none_or(|rope| rope < self.ropes.len() && self.rope_head_dim(rope) == head_dim));
        }
        self.check_shared();
        self.recurrent_layers().try_for_each(Recurrent::check)?;
        assert!(self.feed_forwards().filter_map(FeedForward::experts).all(|experts| {
            experts.logits.norm.is_none_or(|eps| is_positive(eps.into()))
                && experts.router.is_valid()
                && matches!(experts.expert.form, MlpForm::Gated { gate_scale: 1.0, .. } | MlpForm::Ungated(_))
        }));
        let mut ropes = self.ropes.iter().enumerate();
        ropes.try_for_each(|(index, rope)| rope.check(self.rope_head_dim(index)))?;
        assert!(self.layers.iter().all(|layer| !layer.sublayers.is_empty()));
        assert!(self.sublayers().all(|sublayer| match sublayer.branches.len() {
            0 => false,
            // Norms of its own are those of a branch among several.
            1 => !sublayer.is_summed(),
            _ if sublayer.is_summed() => {
                let reads = |branch: &Branch| branch.norms.before.is_some() || sublayer.norms.before.is_some();
                sublayer.branches.iter().all(reads)
            }
            // They read the rows that the first one read, and these are kept where they are normalized.
            _ => sublayer.norms.before.is_some() && sublayer.norms.after.is_none(),
        }));
        self.check_numbers()?;
        self.refuse_what_no_op_computes()
    }

    /// Asserts that what layers share is there.
    fn check_shared(&self) {
        if self.is_encoder() {
            // Keys and values of all layers lie in one place, one after the other.
            let heads = |attention: &SelfAttention| (attention.kv_heads, attention.head_dim);
            let same = |attention: &SelfAttention| {
                self.attentions().next().is_some_and(|first| heads(first) == heads(attention))
            };
            assert!(self.attentions().all(|attention| {
                attention.scores.reach == Reach::Both && attention.kv_source == KvSource::Own && same(attention)
            }));
            assert!(self.recurrent_layers().next().is_none());
        }
        let attentions: Vec<&SelfAttention> = self.attentions().collect();
        assert!(attentions.iter().enumerate().all(|(index, attention)| match attention.kv_source {
            KvSource::Own => true,
            KvSource::Attention(of) => {
                let heads = |of: &SelfAttention| (of.kv_heads, of.head_dim, of.scores.window);
                of < index && attentions[of].kv_source == KvSource::Own && heads(attentions[of]) == heads(attention)
            }
        }));
        let width = self.layer_inputs.map(|inputs| inputs.width);
        let mut layer_inputs = self.feed_forwards().filter_map(FeedForward::layer_input);
        assert!(layer_inputs.all(|input| Some(input.width) == width));
    }

    /// Refuses numbers that are not above 0 or not finite in single precision. Families read them as such, but compute with them.
    fn check_numbers(&self) -> Result<()> {
        let positive = |setting, number: f32| match is_positive(number.into()) {
            true => Ok(()),
            false => Err(Error::UnsupportedModel { setting, value: number.to_string(), supported: POSITIVE }),
        };
        let norm = |norm: &Norm| positive("rms_norm_eps or layer_norm_eps", norm.eps);
        positive("the scale of embeddings", self.embedding_scale)?;
        positive("the scale of logits", self.head.scale)?;
        self.head.softcap.map_or(Ok(()), |cap| positive("final_logit_softcapping", cap))?;
        self.embedding_norm.iter().chain(&self.final_norm).try_for_each(norm)?;
        if let Some(LayerInputs { table_scale, norm: of_inputs, .. }) = &self.layer_inputs {
            positive("the scale of embeddings", *table_scale)?;
            norm(of_inputs)?;
        }
        for Sublayer { norms, branches } in self.sublayers() {
            let of_branches = branches.iter().flat_map(|branch| branch.norms.before.iter().chain(&branch.norms.after));
            norms.before.iter().chain(&norms.after).chain(&norms.sum).chain(of_branches).try_for_each(norm)?;
            branches.iter().try_for_each(|branch| positive("the scale of residuals", branch.scale))?;
        }
        for mlp in self.feed_forwards().filter_map(FeedForward::dense) {
            if let MlpForm::Gated { gate_scale, .. } = mlp.form {
                positive("the scale of gates", gate_scale)?;
            }
        }
        for scan in self.recurrent_layers().filter_map(Recurrent::state_space) {
            scan.scales.all().into_iter().try_for_each(|scale| positive("ssm_multipliers", scale))?;
        }
        for eps in self.recurrent_layers().filter_map(Recurrent::norm_eps) {
            positive("rms_norm_eps or layer_norm_eps", eps)?;
        }
        for router in self.feed_forwards().filter_map(FeedForward::experts).map(|experts| &experts.router) {
            positive("routed_scaling_factor", router.scale)?;
        }
        for attention in self.attentions() {
            positive("the scale of scores", attention.scores.scale)?;
            attention.scores.softcap.map_or(Ok(()), |cap| positive("attn_logit_softcapping", cap))?;
            if let QkNorm::PerHead { norm: of_heads, .. } | QkNorm::Whole(of_heads) = &attention.qk_norm {
                norm(of_heads)?;
            }
            attention.value_norm.map_or(Ok(()), |eps| positive("rms_norm_eps", eps))?;
            // The logarithm of a position is less than this.
            const LOG_MAX: f32 = 32.0;
            attention.temperature.map_or(Ok(()), |t| positive("llama_4_scaling_beta", t.beta * LOG_MAX))?;
        }
        Ok(())
    }

    /// Refuses what can be said and is not computed.
    fn refuse_what_no_op_computes(&self) -> Result<()> {
        assert!(
            self.sublayers()
                .all(|sublayer| { sublayer.norms.after.is_none_or(|norm| norm.kind != NormKind::LayerBiased) })
        );
        for attention in self.attentions() {
            if let QkNorm::PerHead { norm, .. } | QkNorm::Whole(norm) = attention.qk_norm
                && norm.kind != NormKind::Rms
            {
                return Err(Error::UnsupportedModel {
                    setting: "the norm of queries and keys",
                    value: format!("{:?}", norm.kind),
                    supported: "an RMS norm",
                });
            }
        }
        Ok(())
    }
}
