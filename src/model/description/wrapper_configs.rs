//! Configs of models that hold a decoder of another family, in the form of published models, for tests.

use serde_json::{Value, json};

/// Configs in the form that the folders of these models have.
pub fn configs() -> Vec<(&'static str, Value)> {
    vec![
        (
            "GLM-4.1V-9B",
            json!({
                "architectures": ["Glm4vForConditionalGeneration"], "image_end_token_id": 151340,
                "image_start_token_id": 151339, "image_token_id": 151343, "model_type": "glm4v",
                "text_config": {
                    "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": [151329, 151336], "hidden_act": "silu",
                    "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 65536,
                    "model_type": "glm4v_text", "num_attention_heads": 32, "num_hidden_layers": 40,
                    "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
                    "rope_scaling": {"mrope_section": [8, 12, 12], "type": "default"}, "rope_theta": 10000.0,
                    "vocab_size": 151552
                },
                "tie_word_embeddings": false, "video_end_token_id": 151342, "video_start_token_id": 151341,
                "video_token_id": 151344, "vision_config": {"depth": 24}
            }),
        ),
        (
            "GLM-4.5V",
            json!({
                "architectures": ["Glm4vMoeForConditionalGeneration"], "image_end_token_id": 151340,
                "image_start_token_id": 151339, "image_token_id": 151363, "model_type": "glm4v_moe",
                "text_config": {
                    "attention_bias": true, "eos_token_id": [151329, 151336, 151338], "first_k_dense_replace": 1,
                    "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 10944,
                    "max_position_embeddings": 65536, "model_type": "glm4v_moe_text", "moe_intermediate_size": 1408,
                    "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
                    "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46,
                    "num_key_value_heads": 8, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
                    "rope_scaling": {"mrope_section": [8, 12, 12], "rope_type": "default"}, "rope_theta": 10000.0,
                    "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": false, "vocab_size": 151552
                },
                "tie_word_embeddings": false, "video_end_token_id": 151342, "video_start_token_id": 151341,
                "video_token_id": 151364, "vision_config": {"depth": 24}
            }),
        ),
        (
            "LFM2-VL-1.6B",
            json!({
                "architectures": ["Lfm2VlForConditionalGeneration"], "downsample_factor": 2, "image_token_index": 396,
                "max_image_tokens": 256, "max_tiles": 10, "min_tiles": 2, "model_type": "lfm2_vl",
                "projector_bias": true, "projector_hidden_act": "gelu", "projector_hidden_size": 2560,
                "text_config": {
                    "block_auto_adjust_ff_dim": true, "block_dim": 2048, "block_ff_dim": 12288,
                    "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "block_norm_eps": 1e-05,
                    "conv_L_cache": 3, "conv_bias": false, "conv_dim": 2048, "eos_token_id": 7,
                    "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 2048, "max_position_embeddings": 128000,
                    "model_type": "lfm2", "norm_eps": 1e-05, "num_attention_heads": 32, "num_hidden_layers": 16,
                    "num_key_value_heads": 8, "rope_theta": 1000000.0, "vocab_size": 65536
                },
                "tile_size": 512, "use_image_special_tokens": true, "use_thumbnail": true, "vision_config": {}
            }),
        ),
        (
            "InternVL3_5-8B",
            json!({
                "architectures": ["InternVLForConditionalGeneration"], "downsample_ratio": 0.5, "image_seq_length": 256,
                "image_token_id": 151671, "model_type": "internvl", "projector_hidden_act": "gelu",
                "text_config": {
                    "attention_bias": false, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
                    "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36,
                    "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
                    "rms_norm_eps": 1e-06, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
                    "use_sliding_window": false, "vocab_size": 151936
                },
                "vision_config": {}, "vision_feature_layer": -1, "vision_feature_select_strategy": "default"
            }),
        ),
        (
            "Kimi-K2.5",
            json!({
                "architectures": ["KimiK25ForConditionalGeneration"], "ignore_index": -100,
                "media_placeholder_token_id": 163605, "model_type": "kimi_k25",
                "text_config": {
                    "attention_bias": false, "aux_loss_alpha": 0.001, "eos_token_id": 163586, "first_k_dense_replace": 1,
                    "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
                    "max_position_embeddings": 262144, "model_type": "kimi_k2", "moe_intermediate_size": 2048,
                    "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 384, "n_shared_experts": 1,
                    "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8,
                    "num_hidden_layers": 61, "num_key_value_heads": 64, "num_nextn_predict_layers": 0,
                    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05,
                    "rope_scaling": {
                        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 64.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 4096, "type": "yarn"
                    },
                    "rope_theta": 50000.0, "routed_scaling_factor": 2.827, "scoring_func": "sigmoid",
                    "topk_group": 1, "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 163840
                },
                "tie_word_embeddings": false, "use_unified_vision_chunk": true, "video_placeholder": "<|video|>",
                "vision_config": {}
            }),
        ),
    ]
}
