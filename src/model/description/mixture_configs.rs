//! Configs of models with experts in the form of published models, for tests.

use serde_json::{Value, json};

/// `layer_types`: the given number of layers of each kind, all together repeated.
fn layers(pattern: &[(&str, usize)], repeats: usize) -> Value {
    json!(pattern.iter().flat_map(|&(kind, count)| vec![kind; count]).collect::<Vec<_>>().repeat(repeats))
}

/// Configs in the form that the folders of these models have.
pub fn configs() -> Vec<(&'static str, Value)> {
    vec![
        (
            "Qwen3-30B-A3B",
            json!({
                "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
                "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
                "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32,
                "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
                "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
                "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936
            }),
        ),
        (
            "Mixtral-8x7B",
            json!({
                "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
                "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
                "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
                "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05,
                "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16", "vocab_size": 32000
            }),
        ),
        (
            "OLMoE-1B-7B",
            json!({
                "architectures": ["OlmoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "clip_qkv": null,
                "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 1024,
                "max_position_embeddings": 4096, "model_type": "olmoe", "norm_topk_prob": false, "num_attention_heads": 16,
                "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16,
                "pad_token_id": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
                "router_aux_loss_coef": 0.01, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 50304
            }),
        ),
        (
            "Qwen3.5-35B-A3B",
            json!({
                "architectures": ["Qwen3_5MoeForConditionalGeneration"], "image_token_id": 248056,
                "model_type": "qwen3_5_moe",
                "text_config": {
                    "attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true, "dtype": "bfloat16",
                    "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
                    "hidden_size": 2048,
                    "layer_types": layers(&[("linear_attention", 3), ("full_attention", 1)], 10),
                    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
                    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
                    "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 512,
                    "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false, "num_attention_heads": 16,
                    "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_key_value_heads": 2,
                    "output_router_logits": false, "rms_norm_eps": 1e-06, "router_aux_loss_coef": 0.001,
                    "rope_parameters": {
                        "mrope_interleaved": true, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
                        "rope_theta": 10000000, "rope_type": "default"
                    },
                    "shared_expert_intermediate_size": 512, "tie_word_embeddings": false, "vocab_size": 248320
                },
                "tie_word_embeddings": false, "video_token_id": 248057, "vision_config": {"depth": 27},
                "vision_end_token_id": 248054, "vision_start_token_id": 248053
            }),
        ),
        (
            "Qwen3-Next-80B-A3B",
            json!({
                "architectures": ["Qwen3NextForCausalLM"], "attention_dropout": 0.0, "decoder_sparse_step": 1,
                "eos_token_id": 151645, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
                "hidden_size": 2048, "intermediate_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
                "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_next",
                "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
                "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2, "output_router_logits": false,
                "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000,
                "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936
            }),
        ),
        (
            "GLM-4.5-Air",
            json!({
                "architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
                "eos_token_id": [151329, 151336, 151338], "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu",
                "hidden_size": 4096, "intermediate_size": 10944, "max_position_embeddings": 131072,
                "model_type": "glm4_moe", "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128,
                "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 96, "num_experts_per_tok": 8,
                "num_hidden_layers": 46, "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "pad_token_id": 151329,
                "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
                "routed_scaling_factor": 1.0, "tie_word_embeddings": false, "topk_group": 1, "torch_dtype": "bfloat16",
                "use_qk_norm": false, "vocab_size": 151552
            }),
        ),
        (
            "GLM-4.7-Flash",
            json!({
                "architectures": ["Glm4MoeLiteForCausalLM"], "attention_bias": false, "dtype": "bfloat16",
                "eos_token_id": [154820, 154827, 154829], "first_k_dense_replace": 1, "hidden_act": "silu",
                "hidden_size": 2048, "intermediate_size": 10240, "kv_lora_rank": 512, "max_position_embeddings": 202752,
                "model_type": "glm4_moe_lite", "moe_intermediate_size": 1536, "n_group": 1, "n_routed_experts": 64,
                "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 20, "num_experts_per_tok": 4,
                "num_hidden_layers": 47, "num_key_value_heads": 20, "num_nextn_predict_layers": 1,
                "partial_rotary_factor": 1.0, "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
                "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000, "routed_scaling_factor": 1.8,
                "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc", "v_head_dim": 256,
                "vocab_size": 154880
            }),
        ),
        (
            "DeepSeek-V3",
            json!({
                "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "ep_size": 1,
                "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
                "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
                "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
                "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
                "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "rms_norm_eps": 1e-06, "rope_scaling": {
                    "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                    "original_max_position_embeddings": 4096, "type": "yarn"
                },
                "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
                "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128,
                "vocab_size": 129280
            }),
        ),
        (
            "DeepSeek-V2-Lite",
            json!({
                "architectures": ["DeepseekV2ForCausalLM"], "aux_loss_alpha": 0.001,
                "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
                "max_position_embeddings": 163840, "model_type": "deepseek_v2", "moe_intermediate_size": 1408,
                "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
                "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
                "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
                "rope_scaling": {
                    "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
                    "original_max_position_embeddings": 4096, "type": "yarn"
                },
                "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
                "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128,
                "vocab_size": 102400
            }),
        ),
        (
            "LFM2-8B-A1B",
            json!({
                "architectures": ["Lfm2MoeForCausalLM"], "bos_token_id": 1, "conv_L_cache": 3, "conv_bias": false,
                "dtype": "bfloat16", "eos_token_id": 7, "hidden_size": 2048, "intermediate_size": 7168,
                "layer_types": [
                    "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv",
                    "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention",
                    "conv", "conv", "full_attention", "conv", "conv"
                ],
                "max_position_embeddings": 128000, "model_type": "lfm2_moe", "moe_intermediate_size": 1792,
                "norm_eps": 1e-05, "norm_topk_prob": true, "num_attention_heads": 32, "num_dense_layers": 2,
                "num_experts": 32, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
                "pad_token_id": 0, "rope_theta": 1000000.0, "routed_scaling_factor": 1.0, "use_expert_bias": true,
                "vocab_size": 65536
            }),
        ),
        (
            "ERNIE-4.5-21B-A3B",
            json!({
                "architectures": ["Ernie4_5_MoeForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
                "hidden_size": 2560, "intermediate_size": 12288, "max_position_embeddings": 131072,
                "model_type": "ernie4_5_moe", "moe_capacity": [64, 64, 64], "moe_intermediate_size": 1536, "moe_k": 6,
                "moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_num_experts": 64, "moe_num_shared_experts": 2,
                "moe_use_aux_free": true, "num_attention_heads": 20, "num_hidden_layers": 28, "num_key_value_heads": 4,
                "pad_token_id": 0, "rms_norm_eps": 1e-05, "rope_theta": 500000, "tie_word_embeddings": true,
                "torch_dtype": "bfloat16", "use_bias": false, "vocab_size": 103424
            }),
        ),
        (
            "granite-4.0-h-tiny",
            json!({
                "architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false, "attention_multiplier": 0.0078125,
                "embedding_multiplier": 12, "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 1536,
                "init_method": "mup", "intermediate_size": 512,
                "layer_types": layers(&[("mamba", 5), ("attention", 1), ("mamba", 4)], 4),
                "logits_scaling": 6, "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
                "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 48, "mamba_proj_bias": false,
                "max_position_embeddings": 131072, "model_type": "granitemoehybrid", "normalization_function": "rmsnorm",
                "num_attention_heads": 12, "num_experts_per_tok": 6, "num_hidden_layers": 40, "num_key_value_heads": 4,
                "num_local_experts": 64, "output_router_logits": false, "position_embedding_type": "nope",
                "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000,
                "router_aux_loss_coef": 0.0, "shared_intermediate_size": 1024, "tie_word_embeddings": true,
                "torch_dtype": "bfloat16", "vocab_size": 100352
            }),
        ),
        (
            "gpt-oss-20b",
            json!({
                "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
                "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
                "initial_context_length": 4096, "intermediate_size": 2880,
                "layer_types": layers(&[("sliding_attention", 1), ("full_attention", 1)], 12),
                "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
                "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
                "output_router_logits": false, "pad_token_id": 199999,
                "quantization_config": {
                    "modules_to_not_convert": [
                        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"
                    ],
                    "quant_method": "mxfp4"
                },
                "rms_norm_eps": 1e-05,
                "rope_scaling": {
                    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                    "rope_type": "yarn", "truncate": false
                },
                "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
                "tie_word_embeddings": false, "vocab_size": 201088
            }),
        ),
        (
            "gemma-4-26B-A4B",
            json!({
                "architectures": ["Gemma4ForCausalLM"], "attention_bias": false, "attention_k_eq_v": true,
                "dtype": "bfloat16", "enable_moe_block": true, "final_logit_softcapping": 30.0, "global_head_dim": 512,
                "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2816,
                "hidden_size_per_layer_input": 0, "intermediate_size": 2112,
                "layer_types": layers(&[("sliding_attention", 5), ("full_attention", 1)], 5),
                "max_position_embeddings": 262144, "model_type": "gemma4_text", "moe_intermediate_size": 704,
                "num_attention_heads": 16, "num_experts": 128, "num_global_key_value_heads": 2, "num_hidden_layers": 30,
                "num_key_value_heads": 8, "num_kv_shared_layers": 0, "rms_norm_eps": 1e-06,
                "rope_parameters": {
                    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
                    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}
                },
                "sliding_window": 1024, "tie_word_embeddings": true, "top_k_experts": 8, "use_double_wide_mlp": false,
                "vocab_size": 262144, "vocab_size_per_layer_input": 262144
            }),
        ),
        (
            "Qwen3-VL-30B-A3B",
            json!({
                "architectures": ["Qwen3VLMoeForConditionalGeneration"], "image_token_id": 151655,
                "model_type": "qwen3_vl_moe",
                "text_config": {
                    "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1,
                    "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
                    "intermediate_size": 6144, "max_position_embeddings": 262144, "mlp_only_layers": [],
                    "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 768, "norm_topk_prob": true,
                    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
                    "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
                    "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
                    "rope_theta": 5000000, "vocab_size": 151936
                },
                "tie_word_embeddings": false, "video_token_id": 151656,
                "vision_config": {"deepstack_visual_indexes": [8, 16, 24], "depth": 27, "model_type": "qwen3_vl_moe"}
            }),
        ),
        (
            "Mistral-Small-4",
            json!({
                "architectures": ["Mistral4ForCausalLM"], "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
                "first_k_dense_replace": 0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12288,
                "kv_lora_rank": 256, "max_position_embeddings": 1048576, "model_type": "mistral4", "moe_intermediate_size": 2048,
                "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
                "num_attention_heads": 32, "num_experts_per_tok": 4, "num_hidden_layers": 36, "num_key_value_heads": 32,
                "q_lora_rank": 1024, "qk_head_dim": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
                "rope_interleave": true,
                "rope_parameters": {
                    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 128.0, "llama_4_scaling_beta": 0.1,
                    "max_position_embeddings": 1048576, "mscale": 1.0, "mscale_all_dim": 1.0,
                    "original_max_position_embeddings": 8192, "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                    "rope_type": "yarn", "type": "yarn"
                },
                "routed_scaling_factor": 1.0, "tie_word_embeddings": false, "topk_group": 1, "v_head_dim": 128,
                "vocab_size": 131072
            }),
        ),
        (
            "Nemotron-3-Nano-30B-A3B",
            json!({
                "architectures": ["NemotronHForCausalLM"], "attention_bias": false, "chunk_size": 128, "conv_kernel": 4,
                "expand": 2, "head_dim": 128, "hidden_size": 2688,
                "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "intermediate_size": 1856,
                "layer_norm_epsilon": 1e-05, "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_num_heads": 64,
                "max_position_embeddings": 262144, "mlp_bias": false, "mlp_hidden_act": "relu2", "model_type": "nemotron_h",
                "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_group": 1, "n_groups": 8,
                "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 32,
                "num_experts_per_tok": 6, "num_hidden_layers": 52, "num_key_value_heads": 2, "routed_scaling_factor": 2.5,
                "ssm_state_size": 128, "tie_word_embeddings": false, "topk_group": 1, "torch_dtype": "bfloat16",
                "use_bias": false, "use_conv_bias": true, "vocab_size": 131072
            }),
        ),
        (
            "Qwen1.5-MoE-A2.7B",
            json!({
                "architectures": ["Qwen2MoeForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
                "decoder_sparse_step": 1, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 2048,
                "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
                "model_type": "qwen2_moe", "moe_intermediate_size": 1408, "norm_topk_prob": false,
                "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24,
                "num_key_value_heads": 16, "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
                "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
                "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936
            }),
        ),
        (
            "granite-3.1-1b-a400m",
            json!({
                "architectures": ["GraniteMoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.1,
                "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0,
                "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 512, "logits_scaling": 6.0,
                "max_position_embeddings": 131072, "model_type": "granitemoe", "num_attention_heads": 16,
                "num_experts_per_tok": 8, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
                "output_router_logits": false, "residual_multiplier": 0.22, "rms_norm_eps": 1e-06, "rope_scaling": null,
                "rope_theta": 1500000.0, "router_aux_loss_coef": 0.0, "tie_word_embeddings": true,
                "torch_dtype": "bfloat16", "vocab_size": 49155
            }),
        ),
        (
            "moe-7b-1b-active-shared-experts",
            json!({
                "architectures": ["GraniteMoeSharedForCausalLM"], "attention_multiplier": 0.0078125,
                "embedding_multiplier": 12.0, "hidden_size": 1536, "intermediate_size": 512, "logits_scaling": 6.0,
                "max_position_embeddings": 4096, "model_type": "granitemoeshared", "num_attention_heads": 12,
                "num_experts_per_tok": 6, "num_hidden_layers": 40, "num_key_value_heads": 4, "num_local_experts": 62,
                "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "shared_intermediate_size": 1024,
                "tie_word_embeddings": true, "vocab_size": 49152
            }),
        ),
        (
            "MiniMax-M2",
            json!({
                "architectures": ["MiniMaxM2ForCausalLM"], "attention_dropout": 0.0, "attn_type_list": vec![1; 62],
                "head_dim": 128, "hidden_size": 3072, "intermediate_size": 1536, "layernorm_full_attention_beta": 1.0,
                "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_beta": 1.0, "max_position_embeddings": 196608,
                "mlp_intermediate_size": 8192, "model_type": "minimax_m2", "mtp_transformer_layers": 1,
                "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8,
                "num_local_experts": 256, "num_mtp_modules": 3, "qk_norm_type": "per_layer", "rms_norm_eps": 1e-06,
                "rope_theta": 5000000, "rotary_dim": 64, "router_jitter_noise": 0.0, "scoring_func": "sigmoid",
                "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "sliding_window": null,
                "tie_word_embeddings": false, "use_mtp": true, "use_qk_norm": true, "use_routing_bias": true,
                "vocab_size": 200064
            }),
        ),
        (
            "dots.llm1",
            json!({
                "architectures": ["Dots1ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 10944,
                "max_position_embeddings": 32768, "max_window_layers": 62, "model_type": "dots1",
                "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_routed_experts": 128, "n_shared_experts": 2,
                "norm_topk_prob": true, "num_attention_heads": 32, "num_experts_per_tok": 6, "num_hidden_layers": 62,
                "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
                "rope_theta": 10000000, "routed_scaling_factor": 2.5, "scoring_func": "noaux_tc", "sliding_window": null,
                "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
                "vocab_size": 152064
            }),
        ),
        (
            "Solar-Open-100B",
            json!({
                "architectures": ["SolarOpenForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 10240,
                "max_position_embeddings": 131072, "model_type": "solar_open", "moe_intermediate_size": 1280,
                "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
                "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 8,
                "partial_rotary_factor": 1.0, "rms_norm_eps": 1e-05, "rope_scaling": {
                    "factor": 2.0, "original_max_position_embeddings": 65536, "type": "yarn"
                },
                "rope_theta": 1000000, "routed_scaling_factor": 1.0, "tie_word_embeddings": false, "topk_group": 1,
                "use_qk_norm": false, "vocab_size": 196608
            }),
        ),
        (
            "K-EXAONE-236B-A23B",
            json!({
                "architectures": ["ExaoneMoEForCausalLM"], "attention_dropout": 0.0, "first_k_dense_replace": 1,
                "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144, "intermediate_size": 18432,
                "layer_types": layers(&[("sliding_attention", 3), ("full_attention", 1)], 12),
                "max_position_embeddings": 262144, "model_type": "exaone_moe", "moe_intermediate_size": 2048,
                "n_group": 1, "norm_topk_prob": true, "num_attention_heads": 64, "num_experts": 128,
                "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 8,
                "num_nextn_predict_layers": 1, "num_shared_experts": 1, "rms_norm_eps": 1e-05,
                "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "routed_scaling_factor": 2.5,
                "scoring_func": "sigmoid", "sliding_window": 128, "sliding_window_pattern": "LLLG",
                "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc", "vocab_size": 153600
            }),
        ),
        (
            "Trinity-Mini",
            json!({
                "architectures": ["AfmoeForCausalLM"], "attention_dropout": 0.0, "global_attn_every_n_layers": 4,
                "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
                "layer_types": layers(&[("sliding_attention", 3), ("full_attention", 1)], 8),
                "load_balance_coeff": 0.001, "max_position_embeddings": 131072, "model_type": "afmoe",
                "moe_intermediate_size": 1024, "mup_enabled": true, "n_group": 1, "num_attention_heads": 32,
                "num_dense_layers": 2, "num_expert_groups": 1, "num_experts": 128, "num_experts_per_tok": 8,
                "num_hidden_layers": 32, "num_key_value_heads": 4, "num_limited_groups": 1, "num_shared_experts": 1,
                "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000, "route_norm": true,
                "route_scale": 2.826, "score_func": "sigmoid", "sliding_window": 2048, "tie_word_embeddings": false,
                "topk_group": 1, "use_grouped_mm": true, "vocab_size": 200192
            }),
        ),
        (
            "FlexOlmo-7x7B-1T",
            json!({
                "architectures": ["FlexOlmoForCausalLM"], "attention_bias": false, "hidden_act": "silu",
                "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
                "model_type": "flex_olmo", "norm_topk_prob": false, "num_attention_heads": 32, "num_experts": 7,
                "num_experts_per_tok": 5, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
                "rope_scaling": null, "rope_theta": 500000, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false,
                "vocab_size": 100352
            }),
        ),
        (
            "Hunyuan-A13B",
            json!({
                "architectures": ["HunYuanMoEV1ForCausalLM"], "attention_bias": false, "attention_head_dim": 128,
                "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 3072,
                "max_position_embeddings": 32768, "mlp_bias": false, "model_type": "hunyuan_v1_moe",
                "moe_intermediate_size": vec![3072; 32], "moe_layer_num_skipped": 0, "moe_topk": vec![8; 32],
                "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 64, "num_hidden_layers": 32,
                "num_key_value_heads": 8, "num_shared_expert": vec![1; 32], "rms_norm_eps": 1e-05,
                "rope_scaling": {
                    "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                    "mscale_all_dim": 1.0, "type": "dynamic"
                },
                "rope_theta": 10000.0, "tie_word_embeddings": true, "use_cla": false, "use_mixed_mlp_moe": true,
                "use_mla": false, "use_qk_norm": true, "vocab_size": 128167
            }),
        ),
    ]
}
