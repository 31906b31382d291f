//! The facts of a loaded model as the header has them.
#![allow(non_camel_case_types)]

use super::engine::{nvllm_coding, nvllm_device, nvllm_kv_cache_dtype, nvllm_model_info};
use super::engine_options::count;
use compute::KvFormat;
use formats::{Block, Codes, WeightFormat};
use runner::{Device, ModelInfo, WeightPart};

impl From<&ModelInfo> for nvllm_model_info {
    fn from(info: &ModelInfo) -> nvllm_model_info {
        let (device, index) = match info.device {
            Device::Cuda { index } => (nvllm_device::NVLLM_DEVICE_CUDA, index),
            Device::Cpu | Device::Auto { .. } => (nvllm_device::NVLLM_DEVICE_CPU, 0),
        };
        let kv_cache_dtype = match info.kv_layout.format {
            KvFormat::Plain(_) => nvllm_kv_cache_dtype::NVLLM_KV_CACHE_AUTO,
            KvFormat::Int8 => nvllm_kv_cache_dtype::NVLLM_KV_CACHE_INT8,
        };
        nvllm_model_info {
            struct_size: size_of::<nvllm_model_info>(),
            vocab_size: count(info.vocab_size),
            max_model_len: count(info.limits.model_len),
            num_layers: count(info.num_layers),
            hidden_size: count(info.hidden_size),
            bos_token: info.bos_token.unwrap_or(u32::MAX),
            eos_token: info.eos_tokens.first().copied().unwrap_or(u32::MAX),
            num_parameters: info.num_parameters,
            weight_bytes: info.weight_bytes,
            kv_cache_bytes: info.kv_cache_bytes,
            num_kv_blocks: count(info.num_kv_blocks),
            kv_block_size: count(info.limits.block_size),
            device: device as i32,
            device_index: index as i32,
            max_num_seqs: count(info.limits.rows),
            max_batched_tokens: count(info.limits.tokens),
            tensor_parallel_size: count(info.num_ranks),
            process_index: count(info.process),
            kv_cache_dtype: kv_cache_dtype as i32,
            kv_token_bytes: count(info.kv_layout.token_bytes()),
            embedding_coding: coding(info.coding(WeightPart::Embedding)),
            attention_coding: coding(info.coding(WeightPart::Attention)),
            feed_forward_coding: coding(info.coding(WeightPart::FeedForward)),
            head_coding: coding(info.coding(WeightPart::Head)),
            embedding_bytes: info.bytes_of(WeightPart::Embedding),
            attention_bytes: info.bytes_of(WeightPart::Attention),
            feed_forward_bytes: info.bytes_of(WeightPart::FeedForward),
            head_bytes: info.bytes_of(WeightPart::Head),
            embedding_size: if info.pooled.scores.is_some() { 0 } else { count(info.pooled_width) },
            num_labels: count(info.pooled.scores.as_ref().map_or(0, |scores| scores.labels.len())),
            host_expert_bytes: info.host_experts.bytes,
            host_expert_layers: count(info.host_experts.layers),
        }
    }
}

fn coding(coding: Option<WeightFormat>) -> i32 {
    use nvllm_coding::*;
    let coding = match coding {
        None => NVLLM_CODING_NONE,
        Some(WeightFormat::F32) => NVLLM_CODING_F32,
        Some(WeightFormat::F16) => NVLLM_CODING_F16,
        Some(WeightFormat::Bf16) => NVLLM_CODING_BF16,
        Some(WeightFormat::Scaled(scaled)) => match scaled.codes {
            Codes::U8 | Codes::I8 => NVLLM_CODING_INT8,
            Codes::U4 => NVLLM_CODING_INT4,
            Codes::E4m3 => NVLLM_CODING_FP8,
            Codes::E2m1 => NVLLM_CODING_FP4,
        },
        Some(WeightFormat::Block(block)) => match block {
            Block::Q8_0 => NVLLM_CODING_Q8_0,
            Block::Q4_0 => NVLLM_CODING_Q4_0,
            Block::Q4_1 => NVLLM_CODING_Q4_1,
            Block::Q5_0 => NVLLM_CODING_Q5_0,
            Block::Q5_1 => NVLLM_CODING_Q5_1,
            Block::Q4K => NVLLM_CODING_Q4_K,
            Block::Q5K => NVLLM_CODING_Q5_K,
            Block::Q6K => NVLLM_CODING_Q6_K,
            Block::Iq4Nl => NVLLM_CODING_IQ4_NL,
            Block::Iq4Xs => NVLLM_CODING_IQ4_XS,
            Block::Q2K => NVLLM_CODING_Q2_K,
            Block::Q3K => NVLLM_CODING_Q3_K,
            Block::Mxfp4 => NVLLM_CODING_MXFP4,
            Block::Iq2Xxs => NVLLM_CODING_IQ2_XXS,
            Block::Iq2Xs => NVLLM_CODING_IQ2_XS,
            Block::Iq2S => NVLLM_CODING_IQ2_S,
            Block::Iq3Xxs => NVLLM_CODING_IQ3_XXS,
            Block::Iq3S => NVLLM_CODING_IQ3_S,
            Block::Iq1S => NVLLM_CODING_IQ1_S,
            Block::Iq1M => NVLLM_CODING_IQ1_M,
            Block::Tq1_0 => NVLLM_CODING_TQ1_0,
            Block::Tq2_0 => NVLLM_CODING_TQ2_0,
        },
    };
    coding as i32
}
