//! Configs of models with selective scans in all layers or nearly all, in the form of published models, for tests.

use serde_json::{Value, json};

/// Configs in the form that the folders of these models have.
pub fn configs() -> Vec<(&'static str, Value)> {
    vec![
        (
            "Bamba-9B",
            json!({
                "architectures": ["BambaForCausalLM"], "attention_bias": false, "attn_layer_indices": [9, 18, 27],
                "attn_rotary_emb": 64, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
                "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
                "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
                "mamba_proj_bias": false, "max_position_embeddings": 262144, "mlp_bias": false, "model_type": "bamba",
                "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_logits_to_keep": 1,
                "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16", "vocab_size": 128256, "z_loss_coefficient": 0.0
            }),
        ),
        (
            "Mamba-Codestral-7B",
            json!({
                "architectures": ["Mamba2ForCausalLM"], "chunk_size": 256, "conv_kernel": 4, "expand": 2, "head_dim": 64,
                "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 8192, "layer_norm_epsilon": 1e-05,
                "model_type": "mamba2", "n_groups": 8, "norm_before_gate": true, "num_heads": 128,
                "num_hidden_layers": 64, "rescale_prenorm_residual": false, "residual_in_fp32": true, "rms_norm": true,
                "state_size": 128, "tie_word_embeddings": false, "time_step_floor": 0.0001,
                "time_step_limit": [0.0, "inf"], "time_step_max": 0.1, "time_step_min": 0.001, "time_step_rank": 256,
                "torch_dtype": "bfloat16", "use_bias": false, "use_conv_bias": true, "vocab_size": 32768
            }),
        ),
    ]
}
