//! Llama 2 and 3: the standard decoder, whose biases the config may switch on.

use crate::model::config::HfConfig;
use crate::model::spec::{DecoderSpec, QkNorm};

pub fn spec(config: &HfConfig) -> DecoderSpec {
    DecoderSpec {
        layers: config.num_hidden_layers,
        hidden: config.hidden_size,
        heads: config.num_attention_heads,
        kv_heads: config.num_key_value_heads,
        head_dim: config.head_dim.unwrap_or(config.hidden_size / config.num_attention_heads),
        intermediate: config.intermediate_size,
        vocab: config.vocab_size,
        norm_eps: config.rms_norm_eps,
        qk_norm: QkNorm::None,
        qkv_bias: config.attention_bias,
        output_bias: config.attention_bias,
        mlp_bias: config.mlp_bias,
        head: config.head,
        rope: config.rope.clone(),
        max_positions: config.max_positions,
    }
}
