//! Configs in the form of published models, for tests.

use serde_json::{Value, json};

/// `layer_types` of a pattern: `S` for a window, anything else for none.
pub fn layers(pattern: &[&str], repeats: usize) -> Value {
    let kind = |short: &&str| if *short == "S" { "sliding_attention" } else { "full_attention" };
    json!(pattern.iter().map(kind).collect::<Vec<_>>().repeat(repeats))
}

/// `layer_rope_theta` of a pattern.
fn bases(pattern: &[f64], repeats: usize) -> Value {
    json!(pattern.repeat(repeats))
}

/// Configs in the form that the folders of these models have.
pub fn configs() -> Vec<(&'static str, Value)> {
    let others =
        [super::mixture_configs::configs(), super::recurrent_configs::configs(), super::wrapper_configs::configs()];
    [dense(), others.concat()].concat()
}

fn dense() -> Vec<(&'static str, Value)> {
    vec![
        (
            "Phi-4",
            json!({
                "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "bos_token_id": 100257, "embd_pdrop": 0.0, "eos_token_id": 100265, "hidden_act": "silu",
                "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 17920,
                "max_position_embeddings": 16384, "model_type": "phi3", "num_attention_heads": 40,
                "num_hidden_layers": 40, "num_key_value_heads": 10, "original_max_position_embeddings": 16384,
                "pad_token_id": 100349, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null,
                "rope_theta": 250000, "sliding_window": null, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16", "transformers_version": "4.47.0", "use_cache": true, "vocab_size": 100352
            }),
        ),
        (
            "Qwen2.5-VL-7B",
            json!({
                "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151643,
                "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653,
                "vision_token_id": 151654, "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu",
                "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
                "max_position_embeddings": 128000, "max_window_layers": 28, "model_type": "qwen2_5_vl",
                "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
                "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false,
                "vision_config": {"depth": 32, "hidden_size": 1280, "spatial_patch_size": 14},
                "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 152064
            }),
        ),
        (
            "Qwen3-VL-4B",
            json!({
                "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655, "model_type": "qwen3_vl",
                "text_config": {
                    "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643, "dtype": "bfloat16",
                    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560,
                    "initializer_range": 0.02, "intermediate_size": 9728, "max_position_embeddings": 262144,
                    "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36,
                    "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
                    "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
                    "rope_theta": 5000000, "tie_word_embeddings": true, "use_cache": true, "vocab_size": 151936
                },
                "tie_word_embeddings": true, "transformers_version": "4.57.0.dev0", "video_token_id": 151656,
                "vision_config": {"deepstack_visual_indexes": [5, 11, 17], "depth": 24, "model_type": "qwen3_vl"},
                "vision_end_token_id": 151653, "vision_start_token_id": 151652
            }),
        ),
        (
            "Qwen3.5-9B",
            json!({
                "architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248056, "model_type": "qwen3_5",
                "text_config": {
                    "attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true, "dtype": "bfloat16",
                    "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
                    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
                    "layer_types": (["linear_attention", "linear_attention", "linear_attention", "full_attention"].repeat(8)),
                    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
                    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
                    "mlp_only_layers": [], "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1,
                    "mtp_use_dedicated_embeddings": false, "num_attention_heads": 16, "num_hidden_layers": 32,
                    "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "use_cache": true, "vocab_size": 248320,
                    "mamba_ssm_dtype": "float32",
                    "rope_parameters": {
                        "mrope_interleaved": true, "mrope_section": [11, 11, 10], "rope_type": "default",
                        "rope_theta": 10000000, "partial_rotary_factor": 0.25
                    }
                },
                "tie_word_embeddings": false, "transformers_version": "4.57.0.dev0", "video_token_id": 248057,
                "vision_config": {"deepstack_visual_indexes": [], "depth": 27, "model_type": "qwen3_5"},
                "vision_end_token_id": 248054, "vision_start_token_id": 248053
            }),
        ),
        (
            "Phi-4-mini",
            json!({
                "_name_or_path": "Phi-4-mini-instruct", "architectures": ["Phi3ForCausalLM"], "attention_bias": false,
                "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
                "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1,
                "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
                "interpolate_factor": 1, "lm_head_bias": false, "max_position_embeddings": 131072, "mlp_bias": false,
                "model_type": "phi3", "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
                "original_max_position_embeddings": 4096, "pad_token_id": 199999, "partial_rotary_factor": 0.75,
                "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
                "rope_scaling": {"long_factor": vec![1.5; 48], "short_factor": vec![1.0; 48], "type": "longrope"},
                "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
                "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 200064
            }),
        ),
        (
            "Phi-3-mini-4k",
            json!({
                "architectures": ["Phi3ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "embd_pdrop": 0.0,
                "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
                "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3",
                "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
                "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
                "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047,
                "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32064
            }),
        ),
        (
            "SmolLM3-3B",
            json!({
                "architectures": ["SmolLM3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "bos_token_id": null, "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048,
                "initializer_range": 0.02, "intermediate_size": 11008, "layer_types": layers(&["F"], 36),
                "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false, "model_type": "smollm3",
                "no_rope_layer_interval": 4, "no_rope_layers": ([1, 1, 1, 0].repeat(9)), "num_attention_heads": 16,
                "num_hidden_layers": 36, "num_key_value_heads": 4, "pad_token_id": 128004, "pretraining_tp": 2,
                "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0, "sliding_window": null,
                "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0", "use_cache": false,
                "use_sliding_window": false, "vocab_size": 128256
            }),
        ),
        (
            "granite-3.3-2b",
            json!({
                "architectures": ["GraniteForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0,
                "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
                "logits_scaling": 8.0, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "granite",
                "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 0,
                "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000000.0,
                "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 49159
            }),
        ),
        (
            "granite-4.0-micro",
            json!({
                "architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false,
                "attention_multiplier": 0.015625, "embedding_multiplier": 12,
                "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 2560, "init_method": "mup",
                "intermediate_size": 8192, "layer_types": (vec!["attention"; 40]),
                "logits_scaling": 10, "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4,
                "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 80,
                "mamba_proj_bias": false, "max_position_embeddings": 131072, "model_type": "granitemoehybrid",
                "normalization_function": "rmsnorm", "num_attention_heads": 40, "num_experts_per_tok": 0,
                "num_hidden_layers": 40, "num_key_value_heads": 8, "num_local_experts": 0,
                "position_embedding_type": "rope",
                "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000000,
                "shared_intermediate_size": 8192, "tie_word_embeddings": true,
                "torch_dtype": "bfloat16", "vocab_size": 100352
            }),
        ),
        (
            "granite-4.0-h-1b",
            json!({
                "architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false,
                "attention_multiplier": 0.0078125, "embedding_multiplier": 12, "eos_token_id": 100257,
                "hidden_act": "silu", "hidden_size": 1536, "intermediate_size": 4096,
                "layer_types": ((0..40).map(|layer| if [5, 15].contains(&layer) { "attention" } else { "mamba" }).collect::<Vec<_>>()),
                "logits_scaling": 6, "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4,
                "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 48,
                "mamba_proj_bias": false, "max_position_embeddings": 131072, "model_type": "granitemoehybrid",
                "num_attention_heads": 12, "num_experts_per_tok": 0, "num_hidden_layers": 40, "num_key_value_heads": 4,
                "num_local_experts": 0, "position_embedding_type": "nope", "residual_multiplier": 0.22,
                "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000, "shared_intermediate_size": 4096,
                "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 100352
            }),
        ),
        (
            "Nemotron-H-4B",
            json!({
                "architectures": ["NemotronHForCausalLM"], "attention_bias": false, "attention_head_dim": 128, "chunk_size": 128,
                "conv_kernel": 4, "expand": 2, "hidden_size": 3072, "intermediate_size": 12288, "layer_norm_epsilon": 1e-05,
                "hybrid_override_pattern": "M-M-M-MM-M-M*-M-M*-M-M-M-M*-M-M-M-M-M-M-M-M*-M-MM-M-", "mamba_head_dim": 64,
                "mamba_hidden_act": "silu", "mamba_num_heads": 112, "mamba_proj_bias": false, "max_position_embeddings": 8192,
                "mlp_bias": false, "mlp_hidden_act": "relu2", "model_type": "nemotron_h", "n_groups": 8,
                "num_attention_heads": 32, "num_hidden_layers": 52, "num_key_value_heads": 8, "num_logits_to_keep": 1,
                "rescale_prenorm_residual": true, "residual_in_fp32": false, "rms_norm_eps": 1e-05, "sliding_window": null,
                "ssm_state_size": 128, "tie_word_embeddings": false, "time_step_floor": 0.0001, "time_step_max": 0.1,
                "time_step_min": 0.001, "torch_dtype": "bfloat16", "use_bias": false, "use_conv_bias": true,
                "use_mamba_kernels": true, "vocab_size": 131072
            }),
        ),
        (
            "Falcon-H1-1.5B",
            json!({
                "architectures": ["FalconH1ForCausalLM"], "attention_in_multiplier": 1.0,
                "attention_out_multiplier": 0.9375, "embedding_multiplier": 5.656854249492381,
                "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 4096, "key_multiplier": 0.5,
                "lm_head_multiplier": 0.0390625, "mamba_chunk_size": 256, "mamba_d_head": 64, "mamba_d_ssm": 3072, "mamba_d_state": 256, "mamba_expand": 2, "mamba_n_groups": 1,
                "mamba_n_heads": 48, "mamba_norm_before_gate": false, "mamba_rms_norm": false,
                "mamba_use_mlp": true, "max_position_embeddings": 131072, "mlp_expansion_factor": 8, "mlp_multipliers": [0.75, 0.375], "model_type": "falcon_h1",
                "num_attention_heads": 8, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 100000000000.0,
                "ssm_in_multiplier": 1.25, "ssm_multipliers": [0.5, 0.25, 0.125, 1.5, 2.0], "ssm_out_multiplier": 0.25,
                "tie_word_embeddings": false, "vocab_size": 65537
            }),
        ),
        (
            "LFM2-1.2B",
            json!({
                "architectures": ["Lfm2ForCausalLM"], "block_auto_adjust_ff_dim": true, "block_dim": 2048,
                "block_ff_dim": 12288, "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0,
                "block_multiple_of": 256, "block_norm_eps": 1e-05, "block_out_init_scale": 1.0,
                "block_use_swiglu": true, "block_use_xavier_init": true, "bos_token_id": 1, "conv_L_cache": 3,
                "conv_bias": false, "conv_dim": 2048, "conv_dim_out": 2048, "conv_use_xavier_init": true,
                "eos_token_id": 7, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 2048,
                "max_position_embeddings": 128000, "model_type": "lfm2", "norm_eps": 1e-05, "num_attention_heads": 32,
                "num_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pad_token_id": 0,
                "rope_theta": 1000000.0, "torch_dtype": "bfloat16", "use_cache": true, "use_pos_enc": true,
                "vocab_size": 65536
            }),
        ),
        (
            "LFM3-1.7B",
            json!({
                "architectures": ["Lfm3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 124894,
                "conv_L_cache": 7, "conv_bias": false, "dtype": "bfloat16", "eos_token_id": 124900, "head_dim": 128,
                "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 7680,
                "layer_types": ["conv", "conv", "full_attention", "conv", "sliding_attention", "conv", "full_attention", "conv"],
                "max_position_embeddings": 128000, "model_type": "lfm3", "norm_eps": 1e-05, "num_attention_heads": 16,
                "num_hidden_layers": 8, "num_key_value_heads": 4, "pad_token_id": 124893,
                "rope_parameters": {
                    "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 1000000.0, "rope_type": "proportional"},
                    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}
                },
                "sliding_window": 256, "tie_word_embeddings": true, "transformers_version": "5.23.0",
                "use_attention_gate": true, "use_cache": true, "use_sandwich_norm": true, "vocab_size": 128000
            }),
        ),
        (
            "Seed-OSS-36B",
            json!({
                "architectures": ["SeedOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.1,
                "attention_out_bias": false, "bos_token_id": 0, "eos_token_id": 2, "head_dim": 128,
                "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 27648,
                "max_position_embeddings": 524288, "mlp_bias": false, "model_type": "seed_oss",
                "num_attention_heads": 80, "num_hidden_layers": 64, "num_key_value_heads": 8, "pad_token_id": 1,
                "residual_dropout": 0.1, "rms_norm_eps": 1e-06, "rope_scaling": {"rope_type": "default"},
                "rope_theta": 10000000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
                "vocab_size": 155136
            }),
        ),
        (
            "ERNIE-4.5-0.3B",
            json!({
                "architectures": ["Ernie4_5ForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128,
                "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
                "max_position_embeddings": 131072, "model_type": "ernie4_5", "num_attention_heads": 16,
                "num_hidden_layers": 18, "num_key_value_heads": 2, "pad_token_id": 0, "rms_norm_eps": 1e-05,
                "rope_scaling": null, "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
                "use_bias": false, "use_cache": false, "vocab_size": 103424
            }),
        ),
        (
            "Hunyuan-1.8B",
            json!({
                "add_classification_head": false, "architectures": ["HunYuanDenseV1ForCausalLM"],
                "attention_bias": false, "attention_dropout": 0.0, "attention_head_dim": 128, "bos_token_id": 1,
                "enable_lm_head_fp32": true, "eod_token_id": 120020, "eos_token_id": 120020, "head_dim": 128,
                "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
                "max_position_embeddings": 32768, "mlp_bias": false, "model_type": "hunyuan_v1_dense",
                "num_attention_heads": 16, "num_hidden_layers": 32, "num_key_value_heads": 4, "pad_token_id": 120002,
                "pool_type": "last", "rms_norm_eps": 1e-05,
                "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                    "mscale_all_dim": 1.0, "type": "dynamic"},
                "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
                "use_cla": false, "use_qk_norm": true, "vocab_size": 120818
            }),
        ),
        (
            "Ministral-3-8B",
            json!({
                "architectures": ["Mistral3ForConditionalGeneration"], "dtype": "bfloat16", "image_token_index": 10,
                "model_type": "mistral3", "multimodal_projector_bias": false, "projector_hidden_act": "gelu",
                "spatial_merge_size": 2,
                "text_config": {
                    "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
                    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 262144,
                    "model_type": "ministral3", "num_attention_heads": 32, "num_hidden_layers": 34,
                    "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
                    "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0,
                        "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 16384, "rope_theta": 1000000.0, "rope_type": "yarn",
                        "type": "yarn"},
                    "sliding_window": null, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 131072
                },
                "transformers_version": "5.0.0.dev0", "vision_config": {"model_type": "pixtral", "hidden_size": 1024},
                "vision_feature_layer": -1
            }),
        ),
        (
            "Mistral-Small-3.1-24B",
            json!({
                "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10,
                "model_type": "mistral3", "multimodal_projector_bias": false, "projector_hidden_act": "gelu",
                "spatial_merge_size": 2,
                "text_config": {
                    "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
                    "initializer_range": 0.02, "intermediate_size": 32768, "max_position_embeddings": 131072,
                    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
                    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000000.0,
                    "sliding_window": null, "use_cache": true, "vocab_size": 131072
                },
                "torch_dtype": "bfloat16", "vision_config": {"model_type": "pixtral"}, "vision_feature_layer": -1
            }),
        ),
        (
            "gemma-2-2b",
            json!({
                "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
                "eos_token_id": [1, 107], "final_logit_softcapping": 30.0, "head_dim": 256,
                "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
                "initializer_range": 0.02, "intermediate_size": 9216, "max_position_embeddings": 8192,
                "model_type": "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
                "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
                "sliding_window": 4096, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 256000
            }),
        ),
        (
            "gemma-3-1b",
            json!({
                "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
                "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
                "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
                "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
                "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
                "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
                "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
                "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 262144
            }),
        ),
        (
            "gemma-3-4b",
            json!({
                "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
                "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
                "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
                "text_config": {
                    "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                    "sliding_window": 1024
                },
                "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
                "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}
            }),
        ),
        (
            "OLMo-2-1B",
            json!({
                "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
                "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "olmo2",
                "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 16, "pad_token_id": 100277,
                "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
                "torch_dtype": "float32", "use_cache": false, "vocab_size": 100352
            }),
        ),
        (
            "Olmo-3-7B",
            json!({
                "architectures": ["Olmo3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "dtype": "bfloat16", "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096,
                "initializer_range": 0.02, "intermediate_size": 11008, "layer_types": layers(&["S", "S", "S", "F"], 8),
                "max_position_embeddings": 65536, "model_type": "olmo3", "num_attention_heads": 32,
                "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
                "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0,
                    "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "yarn"},
                "rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": false, "use_cache": true,
                "vocab_size": 100278
            }),
        ),
        (
            "EXAONE-4.0-32B",
            json!({
                "architectures": ["Exaone4ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
                "eos_token_id": 361, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
                "initializer_range": 0.02, "intermediate_size": 27392, "layer_types": layers(&["S", "S", "S", "F"], 16),
                "max_position_embeddings": 131072, "model_type": "exaone4", "num_attention_heads": 40,
                "num_hidden_layers": 64, "num_key_value_heads": 8, "pad_token_id": 0, "rms_norm_eps": 1e-05,
                "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                    "original_max_position_embeddings": 8192, "rope_type": "llama3"},
                "rope_theta": 1000000, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
                "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 102400
            }),
        ),
        (
            "EXAONE-4.0-1.2B",
            json!({
                "architectures": ["Exaone4ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
                "eos_token_id": 361, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
                "initializer_range": 0.02, "intermediate_size": 4096, "layer_types": layers(&["F"], 30),
                "max_position_embeddings": 65536, "model_type": "exaone4", "num_attention_heads": 32,
                "num_hidden_layers": 30, "num_key_value_heads": 8, "pad_token_id": 0, "rms_norm_eps": 1e-05,
                "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                    "original_max_position_embeddings": 8192, "rope_type": "llama3"},
                "rope_theta": 1000000, "sliding_window": null, "sliding_window_pattern": null,
                "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 102400
            }),
        ),
        (
            "GLM-4-9B-0414",
            json!({
                "architectures": ["Glm4ForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
                "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
                "initializer_range": 0.02, "intermediate_size": 13696, "max_position_embeddings": 32768,
                "model_type": "glm4", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2,
                "pad_token_id": 151329, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
                "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 151552
            }),
        ),
        (
            "c4ai-command-r7b",
            json!({
                "architectures": ["Cohere2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "bos_token_id": 5, "cache_implementation": "hybrid", "eos_token_id": 255001, "head_dim": 128,
                "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
                "layer_norm_eps": 1e-05, "layer_switch": 4, "logit_scale": 0.25, "max_position_embeddings": 8192,
                "model_type": "cohere2", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
                "order_of_interleaved_layers": "local_attn_first", "pad_token_id": 0,
                "position_embedding_type": "rope_gptj", "rope_scaling": null, "rope_theta": 50000, "rotary_pct": 1.0,
                "sliding_window": 4096, "sliding_window_pattern": 4, "torch_dtype": "bfloat16", "use_cache": true,
                "use_embedding_sharing": true, "use_gated_activation": true, "use_parallel_block": true,
                "use_parallel_embedding": false, "use_qk_norm": false, "vocab_size": 256000
            }),
        ),
        (
            "Muse-Glimmer-30B",
            json!({
                "architectures": ["MuseGlimmerForConditionalGeneration"], "dtype": "bfloat16", "image_token_id": 200092,
                "model_type": "muse_glimmer", "out_hidden_size": 6144, "projector_hidden_act": "gelu",
                "projector_hidden_size": 4096, "video_token_id": 200091,
                "text_config": {
                    "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 200000, "eos_token_id": 200001,
                    "final_logit_softcapping": 20.0, "head_dim": 128, "hidden_activation": "silu", "hidden_size": 6656,
                    "initializer_range": 0.02, "intermediate_size": 19968,
                    "layer_rope_theta": bases(&[500_000.0, 500_000.0, 500_000.0, 0.0], 13),
                    "layer_types": layers(&["S", "S", "S", "F"], 13), "max_position_embeddings": 131072,
                    "model_type": "muse_glimmer_text", "num_attention_heads": 32, "num_hidden_layers": 52,
                    "num_key_value_heads": 2, "output_multiplier": 0.19611613513818404, "post_norm_eps": 1e-08,
                    "qk_scale_factor": 3.87, "rms_norm_eps": 1e-05,
                    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}, "sliding_window": 2048,
                    "tie_word_embeddings": false, "use_cache": true, "vocab_size": 202048
                },
                "vision_config": {"hidden_size": 1536, "model_type": "muse_glimmer_vision", "num_hidden_layers": 50}
            }),
        ),
        // As folders were published: the heads of layers without a window in two fields.
        (
            "gemma-4-31b",
            json!({
                "architectures": ["Gemma4UnifiedForConditionalGeneration"], "audio_config": null, "audio_token_id": 258881,
                "boa_token_id": 256000, "boi_token_id": 255999, "dtype": "bfloat16", "eoa_token_index": 258883,
                "eoi_token_id": 258882, "image_token_id": 258880, "model_type": "gemma4_unified",
                "tie_word_embeddings": true, "video_token_id": 258884,
                "text_config": {
                    "attention_bias": false, "attention_dropout": 0.0, "attention_k_eq_v": true, "dtype": "bfloat16",
                    "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256,
                    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 5376, "intermediate_size": 21504,
                    "layer_types": layers(&["S", "S", "S", "S", "S", "F"], 10), "max_position_embeddings": 262144,
                    "model_type": "gemma4_unified_text", "num_attention_heads": 32, "num_global_key_value_heads": 4,
                    "num_hidden_layers": 60, "num_key_value_heads": 16, "num_kv_shared_layers": 0, "rms_norm_eps": 1e-06,
                    "rope_parameters": {
                        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
                        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}
                    },
                    "sliding_window": 1024, "tie_word_embeddings": true, "use_bidirectional_attention": "vision",
                    "use_double_wide_mlp": false, "vocab_size": 262144
                },
                "vision_config": {"mm_embed_dim": 5376, "model_type": "gemma4_unified_vision"}
            }),
        ),
        // What transformers saves of a decoder, with the heads of each layer that has others.
        (
            "gemma-4, decoder",
            json!({
                "architectures": ["Gemma4ForCausalLM"], "attention_k_eq_v": false, "dtype": "bfloat16", "enable_moe_block": false,
                "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
                "hidden_size_per_layer_input": 0, "intermediate_size": 9216, "layer_types": layers(&["S", "F"], 2),
                "max_position_embeddings": 131072, "model_type": "gemma4_text", "num_attention_heads": 8,
                "num_hidden_layers": 4, "num_key_value_heads": 4, "num_kv_shared_layers": 0,
                "per_layer_config": {"1": {"head_dim": 512, "num_key_value_heads": 2}, "3": {"head_dim": 512}},
                "rms_norm_eps": 1e-06, "sliding_window": 512, "top_k_experts": null, "use_bidirectional_attention": null,
                "vocab_size": 262144, "vocab_size_per_layer_input": 262144
            }),
        ),
        // What transformers saves of the decoder alone, with layers as its class has them by default.
        (
            "Muse-Glimmer, decoder",
            json!({
                "architectures": ["MuseGlimmerTextModel"], "attention_bias": false, "bos_token_id": 200000, "dtype": "bfloat16",
                "eos_token_id": 200001, "final_logit_softcapping": 20.0, "head_dim": 128, "hidden_activation": "silu",
                "hidden_size": 6656, "intermediate_size": 19968, "max_position_embeddings": 131072,
                "model_type": "muse_glimmer_text", "num_attention_heads": 32, "num_hidden_layers": 6,
                "num_key_value_heads": 2, "output_multiplier": 0.19611613513818404, "post_norm_eps": 1e-08,
                "qk_scale_factor": 3.87, "rms_norm_eps": 1e-05,
                "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}, "sliding_window": 2048,
                "tie_word_embeddings": false, "vocab_size": 202048
            }),
        ),
        (
            "AFM-4.5B",
            json!({
                "architectures": ["ArceeForCausalLM"], "attention_bias": false, "head_dim": 128, "hidden_act": "relu2",
                "hidden_size": 2560, "intermediate_size": 18432, "max_position_embeddings": 65536, "mlp_bias": false,
                "model_type": "arcee", "num_attention_heads": 20, "num_hidden_layers": 36, "num_key_value_heads": 4,
                "rms_norm_eps": 1e-05, "rope_scaling": {
                    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 20.0, "mscale": 1.0,
                    "original_max_position_embeddings": 4096, "rope_type": "yarn"
                },
                "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 128004
            }),
        ),
        (
            "OLMo-1B",
            json!({
                "architectures": ["OlmoForCausalLM"], "attention_bias": false, "clip_qkv": null, "hidden_act": "silu",
                "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 2048, "model_type": "olmo",
                "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 16, "rope_theta": 10000.0,
                "tie_word_embeddings": true, "vocab_size": 50304
            }),
        ),
        (
            "gemma-2b",
            json!({
                "architectures": ["GemmaForCausalLM"], "attention_bias": false, "head_dim": 256, "hidden_act": "gelu",
                "hidden_activation": null, "hidden_size": 2048, "intermediate_size": 16384,
                "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8,
                "num_hidden_layers": 18, "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
                "torch_dtype": "bfloat16", "vocab_size": 256000
            }),
        ),
        (
            "c4ai-command-r",
            json!({
                "architectures": ["CohereForCausalLM"], "attention_bias": false, "hidden_act": "silu",
                "hidden_size": 8192, "intermediate_size": 22528, "layer_norm_eps": 1e-05, "logit_scale": 0.0625,
                "max_position_embeddings": 131072, "model_type": "cohere", "num_attention_heads": 64,
                "num_hidden_layers": 40, "num_key_value_heads": 64, "rope_theta": 8000000.0, "use_qk_norm": false,
                "vocab_size": 256000
            }),
        ),
        (
            "glm-4-9b-chat",
            json!({
                "architectures": ["GlmForCausalLM"], "attention_bias": true, "head_dim": 128, "hidden_act": "silu",
                "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 131072, "model_type": "glm",
                "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2,
                "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-07, "rope_theta": 10000.0,
                "tie_word_embeddings": false, "vocab_size": 151552
            }),
        ),
        (
            "stablelm-2-1_6b",
            json!({
                "architectures": ["StableLmForCausalLM"], "hidden_act": "silu", "hidden_size": 2048,
                "intermediate_size": 5632, "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
                "model_type": "stablelm", "num_attention_heads": 32, "num_hidden_layers": 24, "num_key_value_heads": 32,
                "partial_rotary_factor": 0.25, "rope_scaling": null, "rope_theta": 10000, "tie_word_embeddings": false,
                "use_qkv_bias": true, "vocab_size": 100352
            }),
        ),
        (
            "starcoder2-3b",
            json!({
                "architectures": ["Starcoder2ForCausalLM"], "embedding_dropout": 0.1, "hidden_act": "gelu_pytorch_tanh",
                "hidden_size": 3072, "intermediate_size": 12288, "max_position_embeddings": 16384, "mlp_type": "default",
                "model_type": "starcoder2", "norm_epsilon": 1e-05, "norm_type": "layer_norm", "num_attention_heads": 24,
                "num_hidden_layers": 30, "num_key_value_heads": 2, "residual_dropout": 0.1,
                "rope_theta": 999999.4420358813, "sliding_window": 4096, "use_bias": true, "vocab_size": 49152
            }),
        ),
    ]
}
