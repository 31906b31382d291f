//! A device: its memory, the types of what lies in it, and the life of a pass.

use crate::batch::{Batch, BatchLimits, BlockId, Sampled, StateSlot};
use crate::{
    ExpertsShape, HostExpertWeights, HostMatrix, HostVector, KvLayout, Router, RoutesShape, StateShape, Tensor,
};
use base::error::{Error, Result};
use formats::{DType, WeightFormat};
use std::time::{Duration, Instant};

/// A device and its memory.
///
/// Activations are matrices of one row per token. Their number type is the device's own: f32 on the CPU, the model's type
/// on a GPU. Calls may be asynchronous; what a later call reads, an earlier one has written.
pub trait Device: Send + Sized {
    /// Memory of an activation tensor.
    type Storage: Send;
    /// Weights of a linear layer, or an embedding table. `[out, in]`
    type Matrix: Send;
    /// Weights of a linear layer for each expert. `[experts, out, in]`
    type Experts: Send;
    /// Weights of a linear layer for each head. `[heads, out, in]`
    type Heads: Send;
    /// Experts of a layer whose weights stay in the host's memory, where the host computes them.
    type HostExperts: Send;
    /// Which experts compute each token, and how much each counts. `[tokens, chosen]`
    type Routes: Send;
    /// How often each expert of a layer was chosen. `[experts]`
    type ExpertCounts: Send;
    /// Norm weights, a bias or a table, in f32. `[len]`
    type Vector: Send;
    /// Keys and values of all layers. Per layer `[block][kv_head]`, each as [`KvFormat`](crate::KvFormat) says
    type KvCache: Send;
    /// Recurrent states of sequences. `[slots, numbers]`
    type States: Send;
    /// A batch where the device can read it, and the tokens sampled for it.
    type DeviceBatch: Send;
    /// The ops of a pass up to its logits, recorded for a number of rows. [`Infallible`](std::convert::Infallible) where the
    /// device records none.
    type Graph: Send;
    /// Restores the state of the calling thread that the backend's calls change, when it is dropped.
    type ContextGuard: Send;

    /// Passes that may be in flight at once.
    ///
    /// With 1, an op has computed when its call returns: the runner computes a pass stage by stage while its caller waits.
    /// With more, an op launches and returns: the runner launches a pass whole when it is submitted.
    const DEPTH: usize;
    /// Sizes that hold where the caller names none.
    const DEFAULTS: Defaults;

    /// The number type in which weights that are stored as `stored` are kept, where the caller asked for `asked`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](base::error::Error::Unsupported) for a type in which the device does not compute.
    fn weight_dtype(stored: DType, asked: Option<DType>) -> Result<DType>;
    /// The device's own memory, as it is now. `None` where tensors lie in the host's memory.
    fn device_memory(&self) -> Result<Option<DeviceMemory>>;
    /// Saves the state of the calling thread before other calls change it. Every call of a runner begins with this one.
    fn enter(&self) -> Result<Self::ContextGuard>;

    /// A tensor that holds up to `capacity` rows of `cols` numbers.
    fn tensor(&self, capacity: usize, cols: usize) -> Result<Tensor<Self::Storage>>;
    /// Takes the numbers of a tensor's rows as rows of `cols` numbers.
    ///
    /// # Panics
    ///
    /// If they are no whole number of such rows, or the device pads rows of either length.
    fn reshape(tensor: &mut Tensor<Self::Storage>, cols: usize);
    /// Weights stacked along their rows: `parts` share the number of columns, and each has its own coding. Not copied where the
    /// device can read the file's bytes.
    fn matrix(&self, parts: &[HostMatrix]) -> Result<Self::Matrix>;
    /// Bytes that a matrix of `[rows, cols]` in `coding` takes on a device that computes in `dtype`.
    fn held_bytes(coding: WeightFormat, shape: [usize; 2], dtype: DType) -> u64;
    /// Weights of experts that follow each other, from number `first` on: as many as there are lists, each stacked as [`matrix`](Self::matrix) stacks
    /// them. All have the same shape.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory), and [`Error::Unsupported`](base::error::Error::Unsupported) for a coding that the device
    /// does not multiply with for experts.
    fn experts(&self, first: usize, experts: &[Vec<HostMatrix>]) -> Result<Self::Experts>;
    /// Weights for [`head_linear`](crate::ops::head_linear), a matrix per head: all have the same shape. A device may hold them in the number type in which it
    /// computes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory).
    fn heads(&self, heads: &[HostMatrix]) -> Result<Self::Heads>;
    /// The experts of a layer for [`host_experts`](crate::ops::host_experts). Their weights stay where they are, if the host can compute with them there.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory).
    fn experts_on_host(&self, weights: HostExpertWeights) -> Result<Self::HostExperts>;
    /// Room for the choices of `router` for up to `tokens` tokens.
    fn routes(&self, router: &Router, tokens: usize) -> Result<Self::Routes>;
    /// A count of zero for each expert of a layer.
    fn expert_counts(&self, experts: usize) -> Result<Self::ExpertCounts>;
    /// What was counted so far, passes in flight included. `[experts]`
    ///
    /// # Errors
    ///
    /// [`Error::Device`](base::error::Error::Device), where numbers come from a device.
    fn read_expert_counts(&self, counts: &Self::ExpertCounts) -> Result<Vec<u64>>;
    /// Small weights stacked end to end, converted to f32.
    fn vector(&self, parts: &[HostVector]) -> Result<Self::Vector>;
    /// A table computed on the host.
    fn table(&self, values: &[f32]) -> Result<Self::Vector>;
    /// Says that what a norm with the weights `norm` gives is read by `product` alone: by [`linear`](crate::ops::linear) over all its columns, or by
    /// [`gated_linear`](crate::ops::gated_linear). Told once, when both are loaded. A device that can divide rows in the product may leave that to it.
    fn bind_norm(_norm: &mut Self::Vector, _product: &Self::Matrix) {}
    /// Blocks for keys and values, not touched before they are used.
    fn kv_cache(&self, shape: &KvLayout, blocks: usize) -> Result<Self::KvCache>;
    /// Recurrent states, not touched before they are used.
    fn states(&mut self, shape: &StateShape) -> Result<Self::States>;
    /// Memory for the batches of all passes in flight, each of at most `limits`. `[DEPTH]`
    fn device_batches(&self, limits: &BatchLimits) -> Result<Vec<Self::DeviceBatch>>;

    /// Rows and columns of a weight matrix.
    fn matrix_shape(matrix: &Self::Matrix) -> (usize, usize);
    /// The shape of the weights of experts, and which these are.
    fn experts_shape(experts: &Self::Experts) -> ExpertsShape;
    /// Heads, outputs and inputs of the weights of heads.
    fn heads_shape(heads: &Self::Heads) -> [usize; 3];
    /// The experts of a layer that the host computes: how many, and the width of what they read and give.
    fn host_experts_shape(experts: &Self::HostExperts) -> ExpertsShape;
    /// What routes have room for, and their tokens.
    fn routes_shape(routes: &Self::Routes) -> RoutesShape;
    /// Experts that are counted.
    fn counted_experts(counts: &Self::ExpertCounts) -> usize;
    /// Numbers in a vector.
    fn vector_len(vector: &Self::Vector) -> usize;
    /// The shape of a KV cache.
    fn kv_layout(cache: &Self::KvCache) -> &KvLayout;
    /// The shape of recurrent states.
    fn state_shape(states: &Self::States) -> StateShape;
    /// The batch as the host sees it.
    fn batch(device_batch: &Self::DeviceBatch) -> &Batch;

    /// Copies a batch to the device: a pass begins. The pass that used `device_batch` before has been collected.
    fn upload(&mut self, device_batch: &mut Self::DeviceBatch, batch: &Batch) -> Result<()>;
    /// Ends a pass whose ops were all called: what its batch asked for goes to the host.
    ///
    /// # Errors
    ///
    /// That of the first op that failed, if one did.
    fn finish(&mut self, device_batch: &mut Self::DeviceBatch) -> Result<()>;
    /// Waits for the end of a pass that was [finished](Self::finish), at most until `deadline`. `false`: the deadline came first.
    fn poll(&mut self, device_batch: &mut Self::DeviceBatch, deadline: Option<Instant>) -> Result<bool>;
    /// What the batch asked for, once [`poll`](Self::poll) answered `true`.
    fn results<'a>(&self, device_batch: &'a Self::DeviceBatch) -> Sampled<'a>;
    /// How long the device worked on a pass, once [`poll`](Self::poll) answered `true`. `None` where the calling thread computed.
    fn device_time(&self, device_batch: &Self::DeviceBatch) -> Result<Option<Duration>>;

    /// Runs and records `launches`, the ops of a pass over `batch` up to its logits, padded to `rows` rows.
    ///
    /// `batch` has rows of one token each, of which all are sampled. `launches` is called twice: the first call runs, so that
    /// whatever a kernel needs before it can be recorded is done, and the pass has its logits. All that it names must outlive the graph.
    fn capture_pass(
        &mut self,
        device_batch: &mut Self::DeviceBatch,
        batch: &Batch,
        rows: usize,
        launches: &mut dyn FnMut(&mut Self, &mut Self::DeviceBatch),
    ) -> Result<Recording<Self::Graph>>;
    /// Whether all passes should be recorded when the runner opens, after one of `rows` rows, the most, has run: where to prepare others takes longer
    /// than a pass should wait, or where a recording may disturb others in the process.
    fn records_at_opening(&self, rows: usize) -> bool;
    /// As [`upload`](Self::upload), for a pass whose ops up to the logits are those of `graph`: the batch is padded to its rows.
    ///
    /// `false`: the ops of this pass differ from those that were recorded. The batch was uploaded as it is, and its ops must be called.
    fn upload_padded(
        &mut self,
        graph: &Self::Graph,
        device_batch: &mut Self::DeviceBatch,
        batch: &Batch,
    ) -> Result<bool>;
    /// Launches the recorded ops over the batch that was uploaded last.
    fn launch_graph(&mut self, graph: &Self::Graph) -> Result<()>;

    /// Copies blocks out of a cache: their keys and values as all that was launched before leaves them.
    /// `[blocks][layer][kv_head]`, each as [`KvFormat`](crate::KvFormat) says.
    fn read_blocks(&mut self, cache: &Self::KvCache, blocks: &[BlockId], to: &mut [u8]) -> Result<()>;
    /// Copies blocks into a cache, after all that was launched before. The same form.
    fn write_blocks(&mut self, cache: &mut Self::KvCache, blocks: &[BlockId], from: &[u8]) -> Result<()>;

    /// Copies a recurrent state out, as all that was launched before leaves it: f32 in little-endian order.
    fn read_state(&mut self, states: &Self::States, slot: StateSlot, to: &mut [u8]) -> Result<()>;
    /// Copies a recurrent state in, after all that was launched before. The same form.
    fn write_state(&mut self, states: &mut Self::States, slot: StateSlot, from: &[u8]) -> Result<()>;

    /// Gives the blocks that `batch` writes memory, where the cache does not have it yet. Comes before [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory).
    fn commit_blocks(&mut self, cache: &mut Self::KvCache, batch: &Batch) -> Result<()>;

    /// Gives memory of the blocks that `unused` names back to the system, as far as nothing else lies in its pages, once all that was
    /// launched has ended; returns the bytes. 0: nothing has changed. Otherwise all these blocks have lost what they held. `[blocks]`
    fn release_blocks(&mut self, cache: &mut Self::KvCache, unused: &[bool]) -> Result<u64>;
    /// Gets memory for blocks that [`release_blocks`](Self::release_blocks) named, where that can fail.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory). Nothing has changed then.
    fn restore_blocks(&mut self, cache: &mut Self::KvCache, blocks: &[BlockId]) -> Result<()>;
    /// Bytes of a cache that have memory.
    fn kv_bytes_mapped(cache: &Self::KvCache) -> u64;
}

/// Sizes that hold on a device where the caller names none.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Tokens per KV block.
    pub block_size: usize,
    /// Sequences per pass.
    pub max_num_seqs: usize,
    /// New tokens per pass.
    pub max_batched_tokens: usize,
    /// Share of the device's memory that weights, activations and the KV cache may take together; on a device that uses the
    /// host's memory, share of what is free there.
    pub memory_share: f32,
}

/// The memory of a device that has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that nobody holds.
    pub free: u64,
    /// All bytes.
    pub total: u64,
    /// Bytes that this engine took, everything included, as far as the difference to what was free before tells.
    pub own: u64,
}

/// What became of a pass that was to be recorded: [`Device::capture_pass`].
pub enum Recording<G> {
    /// Its ops have run, and are recorded.
    Graph(G),
    /// Its ops have run, but they could not be recorded.
    Refused(Error),
    /// None of its ops has run: the device records no graphs, or they are not those of other passes of this size. In the latter case the batch was uploaded
    /// as it is.
    Nothing,
}
