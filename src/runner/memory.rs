//! How large batches and the KV cache are made when a runner opens.

use crate::KvBudget;
use crate::options::EngineOptions;
use base::error::{Error, Result};
use base::limits::{BLOCK_TABLE_ENTRIES, BLOCK_TOKENS, PASS_TOKENS, RUNNING_SEQUENCES, UNASKED_MODEL_LEN};
use compute::batch::BatchLimits;
use compute::{Defaults, DeviceMemory, KvLayout};
use model::decoder;
use model::shard::Sharding;
use model::spec::DecoderSpec;
use os::free_bytes;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Device memory that is left alone besides what was measured: a driver takes some for each kernel when it first runs.
pub const SPARE_BYTES: u64 = 128 << 20;

/// Tokens of prompts whose log-probabilities a pass computes, besides one for each sequence: enough that a long prompt reads the weights rarely, and few enough that
/// the memory for their logits does not matter.
const SCORED_TOKENS: usize = 64;

/// The largest batch, from what was asked for and a model of `max_positions`.
pub fn batch_limits(config: &EngineOptions, max_positions: usize, defaults: &Defaults) -> Result<BatchLimits> {
    let block_size = config.kv_block_size.unwrap_or(defaults.block_size);
    check("kv_block_size", block_size, BLOCK_TOKENS, "a number of tokens from 1 to 1024")?;
    // A config.json that says more than any model has must not size the table of positions.
    let model_len = config.max_model_len.unwrap_or(max_positions.min(UNASKED_MODEL_LEN));
    if !(1..=max_positions).contains(&model_len) {
        return Err(Error::ModelLen { found: model_len, limit: max_positions });
    }

    // Every running sequence brings at least one token per pass, so a bound on one is a bound on the other.
    let (rows, tokens) = match (config.max_num_seqs, config.max_batched_tokens) {
        (Some(rows), Some(tokens)) => (rows, tokens),
        (Some(rows), None) => (rows, rows.max(defaults.max_batched_tokens)),
        (None, Some(tokens)) => (tokens.min(defaults.max_num_seqs), tokens),
        (None, None) => (defaults.max_num_seqs, defaults.max_batched_tokens),
    };
    check("max_batched_tokens", tokens, PASS_TOKENS, "a number of tokens from 1 to 1048576")?;
    check("max_num_seqs", rows, RUNNING_SEQUENCES, "a number of sequences from 1 to 65536")?;
    check("max_num_seqs", rows, tokens, "at most max_batched_tokens")?;

    let extra_samples = SCORED_TOKENS.min(tokens - rows);
    let limits = BatchLimits { tokens, rows, model_len, block_size, extra_samples, ..BatchLimits::NONE };
    match limits.table_width().checked_mul(rows) {
        Some(0..=BLOCK_TABLE_ENTRIES) => Ok(limits),
        entries => Err(Error::OutOfMemory {
            what: "block tables",
            bytes: entries.unwrap_or(usize::MAX / 4) as u64 * 4,
            knob: "max_num_seqs or max_model_len",
        }),
    }
}

fn check(field: &'static str, value: usize, max: usize, wanted: &'static str) -> Result<()> {
    match value {
        0 => Err(Error::Option { field, value: value.to_string(), wanted }),
        _ if value > max => Err(Error::Option { field, value: value.to_string(), wanted }),
        _ => Ok(()),
    }
}

/// Blocks for the keys and values of an encoder: those of the passes in flight, and one for each sequence that the scheduler leaves free.
pub fn blocks_of_passes(limits: &BatchLimits, depth: usize) -> usize {
    depth * (limits.tokens / limits.block_size + limits.rows) + limits.rows
}

/// Bytes of one block, or of one recurrent state, over all layers.
#[derive(Clone, Copy, Debug)]
pub struct BlockBytes {
    /// Of one rank: the one that has most of it.
    pub of_rank: u64,
    /// Of the ranks of this process together.
    pub of_process: u64,
    /// Of all ranks together.
    pub of_all: u64,
}

impl BlockBytes {
    /// The blocks of a model whose KV cache is `whole`, of which `own` are the ranks of this process.
    pub fn new(sharding: &Sharding, own: Range<usize>, whole: &KvLayout) -> BlockBytes {
        BlockBytes::of_ranks(sharding, own, |rank| sharding.kv_layout(rank, whole).block_bytes() as u64)
    }

    /// The recurrent states of a model.
    pub fn of_states(spec: &DecoderSpec, sharding: &Sharding, own: Range<usize>) -> BlockBytes {
        BlockBytes::of_ranks(sharding, own, |rank| {
            let sharding = Sharding { rank, ..sharding.clone() };
            (decoder::state_numbers(spec, &sharding) * size_of::<f32>()) as u64
        })
    }

    fn of_ranks(sharding: &Sharding, own: Range<usize>, of_rank: impl Fn(usize) -> u64) -> BlockBytes {
        let all = (0..sharding.ranks).map(&of_rank);
        let of_process = own.map(&of_rank).sum();
        BlockBytes { of_rank: all.clone().max().unwrap_or(0), of_process, of_all: all.sum() }
    }
}

/// What sequences need of a budget.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// A block of keys and values.
    pub block: BlockBytes,
    /// A recurrent state; 0 where the model keeps none.
    pub state: BlockBytes,
    /// Tokens between checkpoints; `None` where none are kept.
    pub interval: Option<usize>,
    /// Blocks of the longest sequence.
    pub longest: usize,
}

/// What a budget holds, besides a recurrent state for each sequence that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Blocks of keys and values.
    pub blocks: usize,
    /// Recurrent states of cached prefixes.
    pub checkpoints: usize,
}

/// The fraction 1 / `CHECKPOINT_SHARE` of what the states of sequences that run leave goes to checkpoints.
const CHECKPOINT_SHARE: u64 = 4;

/// How many sequences may run where nobody asked for a number: their recurrent states take at most half of `bytes`.
pub fn rows_by_default(rows: usize, bytes: u64, state_bytes: u64) -> usize {
    match state_bytes {
        0 => rows,
        _ => rows.min((bytes / 2 / state_bytes) as usize).max(1),
    }
}

/// What a share of a device's memory leaves beside the weights, before these are there.
pub fn roughly(memory: DeviceMemory, share: f32, weights: u64, ranks: usize) -> u64 {
    let granted = (memory.total as f64 * f64::from(share)) as u64;
    granted.saturating_sub(memory.total - memory.free).saturating_sub(weights / ranks as u64)
}

/// What the host has to offer.
pub struct HostMemory {
    /// Bytes that nobody held before the model was opened; `None` where the system does not say.
    pub free: Option<u64>,
    /// Bytes that the weights take of these.
    pub weights: u64,
    /// Numbers per position of the decoder's tables.
    pub table_cols: usize,
}

/// What the budget holds on the host. The cache is mapped and not touched, so what is not used costs nothing; the
/// table of rotary positions is touched whole, and comes out of a share as the weights do.
pub fn host_room(
    budget: KvBudget,
    limits: &BatchLimits,
    needs: &Needs,
    memory: &HostMemory,
    defaults: &Defaults,
) -> Result<Room> {
    let Needs { block, state, interval, longest } = *needs;
    let (of_all, of_process) = ([block.of_all, state.of_all], [block.of_process, state.of_process]);
    room_in(budget, limits, longest, of_all, of_process, interval, |share| {
        host_bytes(share, limits, block, memory, defaults)
    })
}

/// Bytes that a share of the host's memory leaves for keys, values and states.
pub fn host_bytes(
    share: Option<f32>,
    limits: &BatchLimits,
    block: BlockBytes,
    memory: &HostMemory,
    defaults: &Defaults,
) -> u64 {
    let held = (memory.free.unwrap_or(0) as f64 * f64::from(share.unwrap_or(defaults.memory_share))) as u64;
    let left = held.saturating_sub(memory.weights);
    // The table has no more positions than the blocks have slots, of which there are fewer when it is paid for.
    let slots = left / block.of_process.max(1) * limits.block_size as u64;
    let positions = slots.min(limits.model_len as u64);
    left.saturating_sub(table_bytes(positions, memory.table_cols))
}

/// Refuses a table of rotary positions that memory does not hold.
pub fn check_table(positions: usize, memory: &HostMemory) -> Result<()> {
    let bytes = table_bytes(positions as u64, memory.table_cols);
    // Weights that are mapped can be dropped, so they leave the table its room.
    match memory.free {
        Some(free) if free < bytes => {
            Err(Error::OutOfMemory { what: "the table of rotary positions", bytes, knob: "max_model_len" })
        }
        _ => Ok(()),
    }
}

/// Bytes of what the decoder's tables have for these positions.
fn table_bytes(positions: u64, cols: usize) -> u64 {
    positions * (cols * size_of::<f32>()) as u64
}

/// What may be taken on a device with its own memory.
pub struct DeviceBudget {
    /// For the KV cache.
    pub kv: KvBudget,
    /// For everything; `None` is no such limit.
    pub bytes: Option<u64>,
    /// What passes will take besides the KV cache.
    pub reserved: u64,
}

/// What the budget holds on a device with its own memory, once the weights are there.
pub fn device_room(
    budget: &DeviceBudget,
    limits: &BatchLimits,
    needs: &Needs,
    memory: &DeviceMemory,
    defaults: &Defaults,
) -> Result<Room> {
    let Needs { block, state, interval, longest } = *needs;
    let DeviceBudget { kv, bytes, reserved } = *budget;
    let taken = memory.own + reserved;
    if let Some(budget) = bytes.filter(|&budget| budget < taken + block.of_rank) {
        let needed = taken + block.of_rank;
        return Err(Error::GpuBudget { budget, parts: "weights, buffers, context and one KV block", needed });
    }
    let left = bytes.map_or(u64::MAX, |budget| budget - taken);
    let (of_all, of_rank) = ([block.of_all, state.of_all], [block.of_rank, state.of_rank]);
    let room = room_in(kv, limits, longest, of_all, of_rank, interval, |share| {
        let granted = (memory.total as f64 * f64::from(share.unwrap_or(defaults.memory_share))) as u64;
        granted.saturating_sub(memory.total - memory.free).saturating_sub(reserved).min(left)
    })?;
    // Only a cache whose size was asked for can be larger.
    let states = if state.of_rank > 0 { (limits.rows + room.checkpoints) as u64 * state.of_rank } else { 0 };
    let needed = room.blocks as u64 * block.of_rank + states;
    match bytes.filter(|_| needed > left) {
        Some(budget) => {
            let needed = taken + needed;
            let parts = "weights, buffers, context and the KV cache of kv_cache_bytes";
            Err(Error::GpuBudget { budget, parts, needed })
        }
        None => Ok(room),
    }
}

/// Refuses weights that a device's budget does not hold, before any is read.
pub fn check_weights(budget: Option<u64>, weights: u64) -> Result<()> {
    match budget.filter(|&budget| budget < weights) {
        Some(budget) => Err(Error::GpuBudget { budget, parts: "the weights", needed: weights }),
        None => Ok(()),
    }
}

/// What the bytes of a budget hold, of which blocks and states take `of_all`, or what `bytes_of_share` makes of a share, of which
/// they take `of_one`. `[block, state]`. The longest sequence has `longest` blocks.
fn room_in(
    budget: KvBudget,
    limits: &BatchLimits,
    longest: usize,
    of_all: [u64; 2],
    of_one: [u64; 2],
    interval: Option<usize>,
    bytes_of_share: impl FnOnce(Option<f32>) -> u64,
) -> Result<Room> {
    let all_sequences = (limits.rows * longest) as u64;
    let (bytes, [block_bytes, state_bytes], useful) = match budget {
        KvBudget::Bytes(bytes) => (bytes, of_all, u64::MAX),
        KvBudget::MemoryShare(share) => (bytes_of_share(Some(share)), of_one, all_sequences),
        KvBudget::Default => (bytes_of_share(None), of_one, all_sequences),
    };
    if bytes < block_bytes {
        return Err(Error::KvCacheTooSmall { bytes, block_bytes });
    }
    let Some(left) = bytes.checked_sub(limits.rows as u64 * state_bytes).filter(|&left| left >= block_bytes) else {
        let fits = (bytes - block_bytes) / state_bytes.max(1);
        return Err(Error::StatesTooLarge { bytes, state_bytes, sequences: limits.rows, fits });
    };
    let checkpoints = match interval {
        Some(interval) if state_bytes > 0 => {
            // As many as prompts of the greatest length can have in all sequences that run.
            let useful = limits.rows * (limits.model_len / interval + 2);
            (left / CHECKPOINT_SHARE / state_bytes).min(useful as u64)
        }
        _ => 0,
    };
    // A slot, `block * block_size + offset`, is a u32.
    let addressable = u64::from(u32::MAX) / limits.block_size as u64;
    // Blocks of a model without attention take no memory: there are as many as all sequences can have.
    let blocks = match (left - checkpoints * state_bytes).checked_div(block_bytes) {
        Some(blocks) => blocks.min(useful),
        None => all_sequences,
    };
    let blocks = blocks.min(addressable);
    match blocks {
        0 => Ok(Room { blocks: 1, checkpoints: 0 }),
        blocks => Ok(Room { blocks: blocks as usize, checkpoints: checkpoints as usize }),
    }
}

/// Memory that programs of this machine, or of this container, can still have, if the system says.
pub fn free_host_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_in(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| cgroup_of(&text));
    let container = group.and_then(|group| free_in_cgroup(Path::new("/sys/fs/cgroup"), &group));
    machine.into_iter().chain(container).chain(free_bytes()).min()
}

/// `MemAvailable` of /proc/meminfo: free pages, and those of files that can be dropped.
fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The group of this process in the unified hierarchy, as a path relative to its mount.
fn cgroup_of(proc_self_cgroup: &str) -> Option<PathBuf> {
    let path = proc_self_cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(path.into())
}

/// The tightest limit of a group and those around it, less what they hold and cannot drop.
fn free_in_cgroup(mount: &Path, group: &Path) -> Option<u64> {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let free_in = |folder: PathBuf| {
        let limit = number(&folder.join("memory.max"))?;
        let held = number(&folder.join("memory.current"))?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let droppable = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
        Some(limit.saturating_sub(held.saturating_sub(droppable.unwrap_or(0))))
    };
    group.ancestors().filter_map(|around| free_in(mount.join(around))).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use compute::cpu::Cpu;
    use compute::{Device as _, KvFormat, KvShape, KvValues};
    use formats::DType;

    const CPU: Defaults = Cpu::DEFAULTS;
    /// 60 tokens in blocks of 16.
    const LONGEST: usize = 4;

    fn config() -> EngineOptions {
        EngineOptions {
            device: Device::Cpu,
            max_batched_tokens: None,
            kv_cache_bytes: Some(1 << 20),
            ..EngineOptions::new("")
        }
    }

    fn bytes_of(layout: &KvLayout) -> BlockBytes {
        let bytes = layout.block_bytes() as u64;
        BlockBytes { of_rank: bytes, of_process: bytes, of_all: bytes }
    }

    /// Of a model without recurrent states.
    fn needs(layout: &KvLayout) -> Needs {
        let nothing = BlockBytes { of_rank: 0, of_process: 0, of_all: 0 };
        Needs { block: bytes_of(layout), state: nothing, interval: None, longest: LONGEST }
    }

    #[test]
    fn a_bound_on_sequences_or_tokens_alone_moves_the_other_default() {
        let rows_and_tokens = |rows, tokens| {
            let config = EngineOptions { max_num_seqs: rows, max_batched_tokens: tokens, ..config() };
            batch_limits(&config, 4096, &CPU).map(|limits| (limits.rows, limits.tokens)).ok()
        };
        assert_eq!(rows_and_tokens(None, None), Some((64, 512)));
        assert_eq!(rows_and_tokens(None, Some(8)), Some((8, 8)));
        assert_eq!(rows_and_tokens(Some(1000), None), Some((1000, 1000)));
        assert_eq!(rows_and_tokens(Some(8), Some(4)), None, "two options that contradict each other");
    }

    #[test]
    fn limits_that_make_no_sense_name_their_option() {
        let cases: &[(&str, EngineOptions)] = &[
            ("max_num_seqs", EngineOptions { max_num_seqs: Some(0), ..config() }),
            (
                "max_num_seqs",
                EngineOptions { max_num_seqs: Some(u32::MAX as usize), max_batched_tokens: Some(1), ..config() },
            ),
            ("max_batched_tokens", EngineOptions { max_batched_tokens: Some(u32::MAX as usize), ..config() }),
            ("kv_block_size", EngineOptions { kv_block_size: Some(0), ..config() }),
            ("kv_block_size", EngineOptions { kv_block_size: Some(BLOCK_TOKENS + 1), ..config() }),
        ];
        for (wanted, config) in cases {
            match batch_limits(config, 4096, &CPU) {
                Err(Error::Option { field, .. }) => assert_eq!(field, *wanted),
                other => panic!("{wanted}: {other:?}"),
            }
        }
        for len in [0, 4097] {
            let refused =
                batch_limits(&EngineOptions { max_model_len: Some(len), ..config() }, 4096, &CPU).unwrap_err();
            let wanted = format!(
                "max_model_len is {len}, but must be from 1 to 4096, the positions that config.json gives the model"
            );
            assert_eq!(refused.to_string(), wanted);
        }
    }

    #[test]
    fn block_tables_beyond_reason_are_out_of_memory_instead_of_an_abort() {
        let config = EngineOptions { max_num_seqs: Some(1 << 16), kv_block_size: Some(1), ..config() };
        assert!(matches!(batch_limits(&config, 1 << 24, &CPU), Err(Error::OutOfMemory { what: "block tables", .. })));
    }

    fn sizes() -> (BatchLimits, KvLayout) {
        let limits = BatchLimits { tokens: 8, rows: 4, model_len: 60, block_size: 16, ..BatchLimits::NONE };
        let shape = KvShape {
            kv_heads: 1,
            head_dim: 8,
            values: KvValues::Stored,
            block_size: 16,
            format: KvFormat::Plain(DType::Bf16),
        };
        (limits, shape.layers(2))
    }

    #[test]
    fn a_budget_in_bytes_is_used_whole() {
        let (limits, shape) = sizes();
        let block = shape.block_bytes() as u64;
        let blocks = |bytes| {
            room_in(KvBudget::Bytes(bytes), &limits, LONGEST, [block, 0], [block, 0], None, |_| 0)
                .map(|room| room.blocks)
        };
        assert_eq!(blocks(10 * block + block / 2).ok(), Some(10));
        assert_eq!(blocks(1000 * block).ok(), Some(1000));
        match blocks(block - 1) {
            Err(Error::KvCacheTooSmall { bytes, block_bytes }) => assert_eq!((bytes, block_bytes), (block - 1, block)),
            other => panic!("{other:?}"),
        }
        assert!(blocks(u64::MAX).unwrap() as u64 * 16 <= u64::from(u32::MAX), "slots are u32");
        let of_nothing = room_in(KvBudget::Bytes(1 << 20), &limits, LONGEST, [0, 8], [0, 8], None, |_| 0);
        assert_eq!(of_nothing.map(|room| room.blocks).ok(), Some(16), "4 rows of 4 blocks that take no memory");
    }

    #[test]
    fn a_share_of_memory_takes_no_more_than_is_useful() {
        let (limits, shape) = sizes();
        let block = shape.block_bytes() as u64;
        let blocks = |left| {
            room_in(KvBudget::MemoryShare(0.5), &limits, LONGEST, [block, 0], [block, 0], None, move |_| left)
                .map(|room| room.blocks)
        };
        assert_eq!(blocks(7 * block).ok(), Some(7));
        assert_eq!(blocks(2000 * block).ok(), Some(16), "4 rows of 4 blocks");
        assert!(matches!(blocks(0), Err(Error::KvCacheTooSmall { bytes: 0, .. })));
    }

    #[test]
    fn on_the_host_the_weights_are_paid_for_first() {
        let (limits, shape) = sizes();
        let blocks = |free, weights| {
            host_room(
                KvBudget::MemoryShare(1.0),
                &limits,
                &needs(&shape),
                &HostMemory { free: Some(free), weights, table_cols: shape.layers[0].head_dim },
                &CPU,
            )
        };
        assert_eq!(blocks(1 << 30, 0).map(|room| room.blocks).ok(), Some(16));
        assert!(matches!(blocks(1 << 30, u64::MAX), Err(Error::KvCacheTooSmall { bytes: 0, .. })));
    }

    #[test]
    fn on_the_host_the_table_of_positions_comes_out_of_the_share() {
        let (mut limits, shape) = sizes();
        (limits.model_len, limits.rows) = (1 << 24, 1 << 10);
        let block = shape.block_bytes() as u64;
        assert_eq!(block, 1024);
        let blocks = |free: u64, budget| {
            host_room(
                budget,
                &limits,
                &needs(&shape),
                &HostMemory { free: Some(free), weights: 0, table_cols: shape.layers[0].head_dim },
                &CPU,
            )
            .unwrap()
            .blocks
        };
        // 100 blocks have 1600 slots, whose positions take 32 bytes each.
        assert_eq!(blocks(100 * block, KvBudget::MemoryShare(1.0)), 50);
        assert_eq!(blocks(0, KvBudget::Bytes(100 * block)), 100, "bytes are those of the cache");
    }

    #[test]
    fn a_table_that_memory_does_not_hold_is_refused() {
        let memory = HostMemory { free: Some(1 << 29), weights: 1 << 40, table_cols: 128 };
        assert!(check_table(1 << 20, &memory).is_ok());
        match check_table((1 << 20) + 1, &memory) {
            Err(Error::OutOfMemory { knob: "max_model_len", bytes, .. }) => assert_eq!(bytes, (1 << 29) + 512),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_model_that_claims_more_positions_than_any_has_gets_them_when_asked() {
        let len =
            |asked| batch_limits(&EngineOptions { max_model_len: asked, ..config() }, 1 << 24, &CPU).unwrap().model_len;
        assert_eq!((len(None), len(Some(1 << 24))), (UNASKED_MODEL_LEN, 1 << 24));
    }

    #[test]
    fn on_a_device_with_its_own_memory_the_share_is_of_the_whole_less_what_is_held_and_reserved() {
        let (limits, shape) = sizes();
        let block = shape.block_bytes() as u64;
        let blocks = |budget, held: u64, reserved: u64| {
            let memory = DeviceMemory { free: (20 - held) * block, total: 20 * block, own: 0 };
            let defaults = Defaults { memory_share: 0.9, ..CPU };
            let budget = DeviceBudget { kv: budget, bytes: None, reserved: reserved * block };
            device_room(&budget, &limits, &needs(&shape), &memory, &defaults).map(|room| room.blocks).ok()
        };
        assert_eq!(blocks(KvBudget::MemoryShare(0.5), 3, 2), Some(5));
        assert_eq!(blocks(KvBudget::Default, 3, 2), Some(12), "a little less than 0.9 of 20, less 5");
        assert_eq!(blocks(KvBudget::MemoryShare(0.5), 10, 0), None);
    }

    #[test]
    fn a_budget_for_everything_leaves_the_cache_what_the_rest_does_not_take() {
        let (limits, shape) = sizes();
        let block = shape.block_bytes() as u64;
        let blocks = |kv, budget: u64| {
            let memory = DeviceMemory { free: 12 * block, total: 20 * block, own: 3 * block };
            let defaults = Defaults { memory_share: 1.0, ..CPU };
            let budget = DeviceBudget { kv, bytes: Some(budget), reserved: 2 * block };
            device_room(&budget, &limits, &needs(&shape), &memory, &defaults).map(|room| room.blocks)
        };
        assert_eq!(blocks(KvBudget::Default, 9 * block).ok(), Some(4), "9 less 3 and 2");
        assert_eq!(blocks(KvBudget::Default, 100 * block).ok(), Some(10), "no more than is free");
        assert_eq!(blocks(KvBudget::Bytes(4 * block), 9 * block).ok(), Some(4));
        for (kv, budget, needed) in [(KvBudget::Default, 5 * block, 6), (KvBudget::Bytes(5 * block), 9 * block, 10)] {
            match blocks(kv, budget) {
                Err(Error::GpuBudget { budget: found, needed: bytes, .. }) => {
                    assert_eq!((found, bytes), (budget, needed * block))
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(check_weights(None, u64::MAX).is_ok() && check_weights(Some(7), 7).is_ok());
        assert!(matches!(check_weights(Some(7), 8), Err(Error::GpuBudget { budget: 7, needed: 8, .. })));
    }

    #[test]
    fn free_memory_is_what_the_machine_and_the_container_leave() {
        assert_eq!(available_in("MemTotal:  9 kB\nMemAvailable:    1234 kB\n"), Some(1234 * 1024));
        assert_eq!(available_in("MemTotal:  9 kB\n"), None);
        assert_eq!(cgroup_of("1:cpu:/x\n0::/user/me\n"), Some("user/me".into()));

        let mount = std::env::temp_dir().join(format!("nanovllm-cgroup-{}", std::process::id()));
        let inner = mount.join("user/me");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(free_in_cgroup(&mount, Path::new("user/me")), None, "no limit anywhere");
        fs::write(mount.join("user/memory.max"), "1000\n").unwrap();
        fs::write(mount.join("user/memory.current"), "700\n").unwrap();
        fs::write(mount.join("user/memory.stat"), "anon 400\ninactive_file 300\n").unwrap();
        assert_eq!(free_in_cgroup(&mount, Path::new("user/me")), Some(600));
        fs::remove_dir_all(&mount).unwrap();
    }

    #[test]
    fn this_machine_says_how_much_memory_is_free() {
        assert!(free_host_bytes() > Some(0));
    }

    #[test]
    fn states_of_sequences_that_run_come_first_and_checkpoints_take_a_part_of_the_rest() {
        let limits = BatchLimits { tokens: 8, rows: 4, model_len: 60, block_size: 16, ..BatchLimits::NONE };
        let room =
            |bytes, interval| room_in(KvBudget::Bytes(bytes), &limits, LONGEST, [10, 100], [10, 100], interval, |_| 0);
        assert_eq!(room(2000, Some(20)).unwrap(), Room { blocks: 120, checkpoints: 4 });
        assert_eq!(room(2000, None).unwrap(), Room { blocks: 160, checkpoints: 0 });
        // 5 for each of 4 prompts of at most 60 tokens.
        assert_eq!(room(100_000, Some(20)).unwrap(), Room { blocks: 9760, checkpoints: 20 });
        match room(350, Some(20)) {
            Err(Error::StatesTooLarge { bytes: 350, state_bytes: 100, sequences: 4, fits: 3 }) => (),
            other => panic!("{other:?}"),
        }
        assert_eq!(
            [(64, 0), (64, 100), (3, 100), (64, 1 << 20)].map(|(rows, state)| rows_by_default(rows, 1000, state)),
            [64, 5, 3, 1]
        );
    }
}
