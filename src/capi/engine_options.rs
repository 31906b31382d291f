//! The options of an engine as the engine has them.
#![allow(unsafe_code, non_camel_case_types)]

use super::engine::{
    nvllm_device, nvllm_dtype, nvllm_engine_config, nvllm_kv_cache_dtype, nvllm_load_mode, nvllm_quantization,
};
use super::memory;
use super::refusal::Refusal;
use base::error::Error;
use engine::options::{EngineOptions, ExpertCounting, PrefixCache};
use formats::DType;
use os::Files;
use os::socket::Address;
use runner::{Device, ExpertDivision, KvCacheDtype, Launching, Loading, OnLoad, Processes, Rounding};
use std::path::PathBuf;
use std::time::Duration;

impl nvllm_engine_config {
    pub(super) const DEFAULT: nvllm_engine_config = nvllm_engine_config {
        struct_size: size_of::<nvllm_engine_config>(),
        model_path: std::ptr::null(),
        device: nvllm_device::NVLLM_DEVICE_AUTO as i32,
        device_index: 0,
        dtype: nvllm_dtype::NVLLM_DTYPE_AUTO as i32,
        num_threads: 0,
        max_model_len: 0,
        max_num_seqs: 0,
        max_batched_tokens: 0,
        max_queue: 0,
        kv_block_size: 0,
        enable_prefix_cache: 1,
        kv_cache_bytes: 0,
        memory_utilization: 0.0,
        tensor_parallel_size: 1,
        enforce_eager: 0,
        batch_invariant: 0,
        seed: 0,
        progress: None,
        progress_user_data: std::ptr::null_mut(),
        load_mode: nvllm_load_mode::NVLLM_LOAD_MAP as i32,
        device_indices: std::ptr::null(),
        num_device_indices: 0,
        num_processes: 0,
        process_index: 0,
        peer_timeout_ms: 0,
        rendezvous: std::ptr::null(),
        kv_cache_dtype: nvllm_kv_cache_dtype::NVLLM_KV_CACHE_AUTO as i32,
        quantization: nvllm_quantization::NVLLM_QUANTIZATION_NONE as i32,
        gpu_memory_bytes: 0,
        state_checkpoint_interval: 0,
        host_expert_layers: 0,
        expert_statistics: 0,
        expert_parallel: 0,
    };

    /// model_path.
    pub(super) fn path(&self) -> Result<PathBuf, Refusal> {
        // SAFETY: the header asks for NULL or a NUL-terminated string.
        match unsafe { memory::c_text("model_path", self.model_path)? } {
            "" => {
                let wanted = "the path of a model folder or of a GGUF file";
                Err(Error::Option { field: "model_path", value: "empty".into(), wanted }.into())
            }
            path => Ok(path.into()),
        }
    }

    /// The engine's view of this, for the model at `model_path` in `files`.
    pub(super) fn options(&self, files: Files, model_path: PathBuf) -> Result<EngineOptions, Refusal> {
        let device = self.device()?;
        Ok(EngineOptions {
            model_path,
            files,
            device,
            dtype: self.dtype()?,
            num_threads: given(self.num_threads),
            max_model_len: given(self.max_model_len),
            max_num_seqs: given(self.max_num_seqs),
            max_batched_tokens: given(self.max_batched_tokens),
            max_queue: given(self.max_queue),
            kv_block_size: given(self.kv_block_size),
            prefix_cache: match switch("enable_prefix_cache", self.enable_prefix_cache)? {
                true => PrefixCache::On,
                false => PrefixCache::Off,
            },
            kv_cache_bytes: Some(self.kv_cache_bytes).filter(|&bytes| bytes > 0),
            memory_utilization: Some(self.memory_utilization).filter(|&share| share != 0.0),
            launching: match switch("enforce_eager", self.enforce_eager)? {
                true => Launching::Eager,
                false => Launching::Graphs,
            },
            rounding: match switch("batch_invariant", self.batch_invariant)? {
                true => Rounding::BatchInvariant,
                false => Rounding::Fastest,
            },
            seed: Some(self.seed).filter(|&seed| seed != 0),
            loading: self.loading()?,
            tensor_parallel_size: given(self.tensor_parallel_size).unwrap_or(1),
            devices: self.devices()?,
            processes: self.processes()?,
            peer_timeout: given(self.peer_timeout_ms).map(|ms| Duration::from_millis(ms as u64)),
            kv_cache_dtype: self.kv_cache_dtype()?,
            on_load: on_load(self.quantization)?,
            gpu_memory_bytes: Some(self.gpu_memory_bytes).filter(|&bytes| bytes > 0),
            expert_counting: match switch("expert_statistics", self.expert_statistics)? {
                true => ExpertCounting::On,
                false => ExpertCounting::Off,
            },
            expert_division: match switch("expert_parallel", self.expert_parallel)? {
                true => ExpertDivision::Whole,
                false => ExpertDivision::ByWidth,
            },
            state_interval: Some(self.state_checkpoint_interval)
                .filter(|&tokens| tokens > 0)
                .map(|tokens| tokens as usize),
            host_expert_layers: self.host_expert_layers()?,
        })
    }

    fn host_expert_layers(&self) -> Result<Option<usize>, Error> {
        match self.host_expert_layers {
            0 => Ok(None),
            -1 => Ok(Some(0)),
            layers => usize::try_from(layers).map(Some).map_err(|_| Error::Option {
                field: "host_expert_layers",
                value: layers.to_string(),
                wanted: "a number of layers, 0 for as many as the GPU has no room for, or -1 for none",
            }),
        }
    }

    fn devices(&self) -> Result<Vec<usize>, Refusal> {
        // SAFETY: the header asks for NULL or as many entries as it says.
        let indices =
            unsafe { memory::slice("device_indices", self.device_indices, self.num_device_indices as usize)? };
        let index = |&index: &i32| {
            let refused = |_| Error::Option {
                field: "device_indices",
                value: index.to_string(),
                wanted: "indices of GPUs, at least 0",
            };
            usize::try_from(index).map_err(refused)
        };
        Ok(indices.iter().map(index).collect::<Result<_, _>>()?)
    }

    fn processes(&self) -> Result<Option<Processes>, Refusal> {
        let rendezvous = match self.rendezvous.is_null() {
            true => None,
            // SAFETY: not NULL, and the header asks for a NUL-terminated string.
            false => Some(unsafe { memory::c_text("rendezvous", self.rendezvous)? }),
        };
        let (count, index) = (self.num_processes.max(1) as usize, self.process_index as usize);
        if index >= count {
            let wanted = "less than num_processes";
            return Err(Error::Option { field: "process_index", value: index.to_string(), wanted }.into());
        }
        match (count, rendezvous) {
            (1, _) => Ok(None),
            (_, Some(rendezvous)) => {
                let rendezvous = Address::parse("rendezvous", rendezvous)?;
                Ok(Some(Processes { count, index, rendezvous }))
            }
            (_, None) => {
                let wanted = "\"host:port\" or \"unix:/path\" with several processes";
                Err(Error::Option { field: "rendezvous", value: "NULL".to_owned(), wanted }.into())
            }
        }
    }

    fn device(&self) -> Result<Device, Error> {
        const AUTO: i32 = nvllm_device::NVLLM_DEVICE_AUTO as i32;
        const CPU: i32 = nvllm_device::NVLLM_DEVICE_CPU as i32;
        const CUDA: i32 = nvllm_device::NVLLM_DEVICE_CUDA as i32;
        let wrong_index =
            |wanted| Error::Option { field: "device_index", value: self.device_index.to_string(), wanted };
        let index = usize::try_from(self.device_index).map_err(|_| wrong_index("at least 0"))?;
        match self.device {
            CUDA => Ok(Device::Cuda { index }),
            CPU if index > 0 => Err(wrong_index("0 on the CPU")),
            CPU => Ok(Device::Cpu),
            AUTO => Ok(Device::Auto { index }),
            other => Err(Error::Option {
                field: "device",
                value: other.to_string(),
                wanted: "one of NVLLM_DEVICE_*, 0 to 2",
            }),
        }
    }

    fn loading(&self) -> Result<Loading, Error> {
        const MAP: i32 = nvllm_load_mode::NVLLM_LOAD_MAP as i32;
        const READ: i32 = nvllm_load_mode::NVLLM_LOAD_READ as i32;
        match self.load_mode {
            MAP => Ok(Loading::Map),
            READ => Ok(Loading::Read),
            other => {
                let wanted = "one of NVLLM_LOAD_*, 0 or 1";
                Err(Error::Option { field: "load_mode", value: other.to_string(), wanted })
            }
        }
    }

    fn kv_cache_dtype(&self) -> Result<KvCacheDtype, Error> {
        const AUTO: i32 = nvllm_kv_cache_dtype::NVLLM_KV_CACHE_AUTO as i32;
        const INT8: i32 = nvllm_kv_cache_dtype::NVLLM_KV_CACHE_INT8 as i32;
        match self.kv_cache_dtype {
            AUTO => Ok(KvCacheDtype::Auto),
            INT8 => Ok(KvCacheDtype::Int8),
            other => {
                let wanted = "one of NVLLM_KV_CACHE_*, 0 (the data type of the weights) or 1 (int8)";
                Err(Error::Option { field: "kv_cache_dtype", value: other.to_string(), wanted })
            }
        }
    }

    fn dtype(&self) -> Result<Option<DType>, Error> {
        const AUTO: i32 = nvllm_dtype::NVLLM_DTYPE_AUTO as i32;
        const F32: i32 = nvllm_dtype::NVLLM_DTYPE_F32 as i32;
        const F16: i32 = nvllm_dtype::NVLLM_DTYPE_F16 as i32;
        const BF16: i32 = nvllm_dtype::NVLLM_DTYPE_BF16 as i32;
        match self.dtype {
            AUTO => Ok(None),
            F32 => Ok(Some(DType::F32)),
            F16 => Ok(Some(DType::F16)),
            BF16 => Ok(Some(DType::Bf16)),
            other => {
                Err(Error::Option { field: "dtype", value: other.to_string(), wanted: "one of NVLLM_DTYPE_*, 0 to 3" })
            }
        }
    }
}

pub(super) fn on_load(quantization: i32) -> Result<OnLoad, Error> {
    const NONE: i32 = nvllm_quantization::NVLLM_QUANTIZATION_NONE as i32;
    const INT8: i32 = nvllm_quantization::NVLLM_QUANTIZATION_INT8 as i32;
    const INT4: i32 = nvllm_quantization::NVLLM_QUANTIZATION_INT4 as i32;
    match quantization {
        NONE => Ok(OnLoad::None),
        INT8 => Ok(OnLoad::Int8),
        INT4 => Ok(OnLoad::Int4),
        other => {
            let wanted = "one of NVLLM_QUANTIZATION_*, 0 to 2";
            Err(Error::Option { field: "quantization", value: other.to_string(), wanted })
        }
    }
}

/// A count as the header has it; what does not fit is shown as the greatest there is.
pub(super) fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A field that is 0 or 1.
pub(super) fn switch(field: &'static str, value: u32) -> Result<bool, Error> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::Option { field, value: value.to_string(), wanted: "0 or 1" }),
    }
}

/// A field whose 0 means the default.
fn given(value: u32) -> Option<usize> {
    Some(value as usize).filter(|&value| value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_struct_are_those_of_the_engine() {
        let config = nvllm_engine_config { model_path: c"model".as_ptr(), ..nvllm_engine_config::DEFAULT };
        let path = config.path().expect("a path");
        assert_eq!(config.options(Files::OnDisk, path).expect("good options"), EngineOptions::new("model"));
    }
}
