//! What do all ranks of an engine read of a model?
//!
//! It is read once; ranks take copies, which share the files.

use super::memory;
use super::options::EngineOptions;
use super::parallel::SENT_BYTES;
use super::rendezvous::Facts;
use super::wire::BatchBounds;
use base::error::Result;
use base::limits::UNASKED_MODEL_LEN;
use base::log::{Level, log};
use compute::batch::BatchLimits;
use compute::{Backend, Defaults, KvCacheDtype, KvFormat};
use formats::source::Source;
use model::description::Description;
use model::pooled::Pool;
use model::shard::ExpertDivision;
use model::spec::HeadWeights;
use model::weights::{Reading, Weights};

/// What processes say to each other, raised whenever a frame or a batch changes its form: builds of one version may differ.
const PROTOCOL: u32 = 8;

/// A model that is about to be loaded.
#[derive(Clone)]
pub struct Checkpoint {
    /// What config.json says.
    pub model: Description,
    /// The largest batch.
    pub limits: BatchLimits,
    /// Bytes that the host had free before anything was loaded.
    pub free: Option<u64>,
    /// How keys and values are encoded.
    pub kv_format: KvFormat,
    /// The weights, in the number type in which the device keeps them. None is taken yet.
    pub weights: Weights,
}

impl Checkpoint {
    /// Reads what `source` says of its model, for a device of type `B`.
    pub fn open<B: Backend>(source: &Source, config: &EngineOptions) -> Result<Checkpoint> {
        let mut model = Description::read_as(source, config.dtype)?;
        let is_encoder = model.spec.is_encoder();
        let defaults = match is_encoder {
            // A text is computed whole.
            true => Defaults {
                max_batched_tokens: B::DEFAULTS.max_batched_tokens.max(model.spec.max_positions.min(UNASKED_MODEL_LEN)),
                ..B::DEFAULTS
            },
            false => B::DEFAULTS,
        };
        let limits = memory::batch_limits(config, model.spec.max_positions, &defaults)?;
        let groups = model.spec.window_groups(limits.model_len);
        // Scales of int8 make heads of several sizes no multiples of each other, and ranks exchange blocks head by head.
        let is_whole = groups.split.is_none();
        let fits = is_whole || config.kv_cache_dtype == KvCacheDtype::Auto && config.tensor_parallel_size == 1;
        let window_tables = if fits { groups.window_tables() } else { 0 };
        let token_states = model.pooled.pool == Some(Pool::Tokens);
        let limits = BatchLimits { window_tables, whole_rows: is_encoder, token_states, ..limits };
        // What is free is asked before weights are copied, so that a share of it is the same however they come.
        let free = memory::free_host_bytes();
        let reading = Reading {
            dtype: config.dtype,
            loading: config.loading,
            free_bytes: free.unwrap_or(u64::MAX),
            on_load: config.on_load,
        };
        let weights = Weights::open(source, model.layout, model.quantization.clone(), reading)?;
        let weights = weights.with_modules(source, &model.spec, reading)?;
        if model.spec.head.weights == HeadWeights::Own && weights.lacks_head() {
            log(Level::Info, format_args!("the model has no head: it makes embeddings"));
            model.spec.head.weights = HeadWeights::Missing;
        }
        let (stored, dtype) = (weights.dtype(), B::weight_dtype(weights.dtype(), config.dtype)?);
        // The keys and values of an encoder are read in the pass that writes them.
        let kv_format = if is_encoder { KvFormat::Plain(dtype) } else { config.kv_cache_dtype.format(dtype) };
        if dtype == stored {
            return Ok(Checkpoint { model, limits, free, kv_format, weights });
        }
        log(Level::Info, format_args!("the model is stored in {stored:?} and computed in {dtype:?}"));
        Ok(Checkpoint { model, limits, free, kv_format, weights: weights.converted(dtype) })
    }

    /// What processes that compute this model together must have in common, besides their device.
    pub fn facts(&self, processes: usize, config: &EngineOptions) -> Facts {
        let BatchLimits { tokens, rows, model_len, block_size, .. } = self.limits;
        Facts::default()
            .with("library version", env!("CARGO_PKG_VERSION"))
            .with("protocol", PROTOCOL)
            .with("model fingerprint", format_args!("{:016x}", self.weights.fingerprint(&self.model.spec)))
            .with("num_processes", processes)
            .with("tensor_parallel_size", config.tensor_parallel_size)
            .with("expert_parallel", u32::from(config.expert_division == ExpertDivision::Whole))
            .with("dtype", format_args!("{:?}", self.weights.dtype()))
            .with("kv_cache_dtype", self.kv_format.name())
            .with("quantization", format_args!("{:?}", self.weights.on_load()))
            .with("max_model_len", model_len)
            .with("max_num_seqs", rows)
            .with("max_batched_tokens", tokens)
            .with("kv_block_size", block_size)
    }

    /// Bytes of the largest frame between processes: that of a batch, or of as much of a saved prefix as is sent at once.
    pub fn frame_bytes(&self) -> usize {
        let (limits, vocab_size) = (self.limits, self.model.spec.vocab);
        let batch =
            BatchBounds { limits, num_blocks: usize::MAX, num_states: usize::MAX, vocab_size, depth: 1 }.max_bytes();
        let block = self.model.spec.kv_layout(&limits, self.kv_format).block_bytes();
        batch.max(2 * SENT_BYTES.max(block)).min(u32::MAX as usize)
    }
}
