//! What a runner must know of a device to size batches and the KV cache.

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
