//! Of how many layers do experts stay in the host's memory, where the device has no room for all?

use crate::KvBudget;
use crate::memory::{Needs, SPARE_BYTES};
use crate::options::EngineOptions;
use base::error::{Error, Result};
use base::log::{Level, log};
use compute::batch::BatchLimits;
use compute::cpu::Cpu;
use compute::{Backend, Device as _, DeviceMemory};
use model::decoder::Decoder;
use model::shard::Sharding;
use model::spec::DecoderSpec;
use model::weights::{WeightBytes, Weights};

const FIELD: &str = "host_expert_layers";

/// What graphs and the first pass take besides [`SPARE_BYTES`], where nobody names a number of layers.
const OPENING_BYTES: u64 = 256 << 20;

/// What passes never take besides weights and caches, as far as is known: nothing is measured where more is left.
const PASS_BYTES: u64 = 4 << 30;

/// The fraction 1 / `KV_SHARE` of what weights and KV cache share is the most that experts leave to the latter, where nobody says how large it is.
const KV_SHARE: u64 = 16;

/// Layers whose experts stay in the host's memory: the last ones of those that have any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostExperts {
    /// How many.
    pub layers: usize,
    /// Bytes of these experts in the host's memory.
    pub bytes: u64,
}

/// Bytes that a device has for weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// If the KV cache has one block.
    most: u64,
    /// If it has as much as a sequence is likely to need.
    ample: u64,
}

impl Room {
    fn new(memory: &DeviceMemory, options: &EngineOptions, needs: &Needs, share: f32) -> Room {
        let DeviceMemory { free, total, own } = *memory;
        let granted = |share: f32| ((total as f64 * f64::from(share)) as u64).saturating_sub(total - free);
        let shared = match options.kv_budget() {
            KvBudget::Bytes(_) => free,
            KvBudget::MemoryShare(share) => granted(share),
            KvBudget::Default => granted(share),
        };
        let budget = options.gpu_memory_bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(own));
        let left = shared.min(budget).saturating_sub(SPARE_BYTES);
        let (block, state) = (needs.block.of_rank, needs.state.of_rank);
        let cache = match options.kv_budget() {
            KvBudget::Bytes(bytes) => bytes,
            _ => (needs.longest as u64 * block + state).min(left / KV_SHARE),
        };
        let most = left.saturating_sub(block + state);
        Room { most, ample: left.saturating_sub(OPENING_BYTES + cache.max(block + state)).min(most) }
    }
}

/// Of how many layers experts stay on the host, where `asked` is what was asked for. `experts` are those of the layers that have any.
fn layers(asked: Option<usize>, experts: &[u64], others: u64, room: Room) -> Result<usize> {
    let on_device = |on_host: usize| others + experts[..experts.len() - on_host].iter().sum::<u64>();
    let fitting = |bytes: u64| (0..=experts.len()).find(|&on_host| on_device(on_host) <= bytes);
    let refused = |value: String| Err(Error::Option { field: FIELD, value, wanted: WANTED });
    match asked {
        None => Ok(fitting(room.ample).unwrap_or(experts.len())),
        Some(asked) if asked > experts.len() => {
            refused(format!("{asked}, and {} layers of the model have experts", experts.len()))
        }
        Some(asked) => match fitting(room.most) {
            Some(fits) if fits > asked => Err(Error::ExpertsTooLarge {
                asked,
                fits,
                layers: experts.len(),
                needed: on_device(asked),
                room: room.most,
            }),
            // What does not fit with all experts on the host is refused by what else takes room.
            _ => Ok(asked),
        },
    }
}

const WANTED: &str = "0 for as many as the GPU has no room for, -1 for none, or at most the number of these layers";

/// Chooses the layers for a device that has memory of its own. Before any weight is taken.
pub fn choose<B: Backend>(
    backend: &B,
    options: &EngineOptions,
    spec: &DecoderSpec,
    sharding: &mut Sharding,
    weights: &Weights,
    limits: &BatchLimits,
    needs: &Needs,
) -> Result<HostExperts> {
    let asked = options.host_expert_layers;
    let mut of_layers: Vec<usize> = spec.expert_layers().map(|(layer, _)| layer).collect();
    of_layers.dedup();
    if backend.device_memory()?.is_none() || !sharding.is_alone() || of_layers.is_empty() && asked.unwrap_or(0) == 0 {
        return Ok(HostExperts::default());
    }
    let dtype = weights.dtype();
    let on_device = weights.bytes_of_experts(spec.layers.len(), |coding, shape| B::held_bytes(coding, shape, dtype));
    let WeightBytes { experts, others } = on_device;
    let experts: Vec<u64> = of_layers.iter().map(|&layer| experts[layer]).collect();
    let share = B::DEFAULTS.memory_share;
    let now = Room::new(&backend.device_memory()?.unwrap_or_default(), options, needs, share);
    let all = others + experts.iter().sum::<u64>();
    if asked.unwrap_or(0) == 0 && now.ample / 2 > all + PASS_BYTES {
        return Ok(HostExperts::default());
    }
    // What passes take is measured, and given back before the weights come.
    let passes = Decoder::memory_of_passes(backend, spec, sharding, limits, limits.model_len)?;
    let batches = backend.device_batches(limits)?;
    let memory = backend.device_memory()?.unwrap_or_default();
    drop((passes, batches));
    let room = Room::new(&memory, options, needs, share);
    let count = layers(asked, &experts, others, room)?;
    let Some(&first) = of_layers[of_layers.len() - count..].first() else { return Ok(HostExperts::default()) };
    sharding.host_experts_from = first;
    let stored = |coding, shape| Cpu::held_bytes(coding, shape, dtype);
    let bytes = weights.bytes_of_experts(spec.layers.len(), stored).experts[first..].iter().sum();
    let all = of_layers.len();
    log(
        Level::Info,
        format_args!(
            "the experts of {count} of {all} layers stay in the host's memory ({:.1} MB), where the CPU computes them",
            bytes as f64 / 1e6
        ),
    );
    Ok(HostExperts { layers: count, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::BlockBytes;

    const EXPERTS: [u64; 4] = [10, 20, 30, 40];

    fn room(bytes: u64) -> Room {
        Room { most: bytes, ample: bytes }
    }

    #[test]
    fn as_few_layers_as_fit_stay_on_the_host() {
        let of = |bytes| layers(None, &EXPERTS, 5, room(bytes)).unwrap();
        let cases =
            [(1000, 0), (105, 0), (104, 1), (65, 1), (64, 2), (35, 2), (34, 3), (15, 3), (14, 4), (5, 4), (0, 4)];
        for (bytes, wanted) in cases {
            assert_eq!(of(bytes), wanted, "{bytes} bytes");
        }
        assert_eq!(layers(None, &[], 5, room(0)).unwrap(), 0);
    }

    #[test]
    fn a_number_is_taken_if_it_fits_and_refused_with_the_one_that_does() {
        for asked in 1..=4 {
            assert_eq!(layers(Some(asked), &EXPERTS, 5, room(65)).unwrap(), asked);
        }
        match layers(Some(0), &EXPERTS, 5, room(34)) {
            Err(Error::ExpertsTooLarge { asked: 0, fits: 3, layers: 4, needed: 105, room: 34 }) => (),
            other => panic!("{other:?}"),
        }
        // With all experts on the host, the check of the other weights says what does not fit.
        assert_eq!(layers(Some(0), &EXPERTS, 5, room(4)).unwrap(), 0);
        let refused = layers(Some(5), &EXPERTS, 5, room(1000)).unwrap_err().to_string();
        assert!(
            refused.starts_with("host_expert_layers is 5, and 4 layers of the model have experts, but"),
            "{refused}"
        );
        let refused = layers(Some(1), &[], 5, room(1000)).unwrap_err().to_string();
        assert!(
            refused.starts_with("host_expert_layers is 1, and 0 layers of the model have experts, but"),
            "{refused}"
        );
    }

    #[test]
    fn a_number_may_leave_the_cache_one_block_and_the_default_leaves_more() {
        let tight = Room { most: 105, ample: 70 };
        assert_eq!(layers(Some(0), &EXPERTS, 5, tight).unwrap(), 0);
        assert_eq!(layers(None, &EXPERTS, 5, tight).unwrap(), 1);
    }

    #[test]
    fn room_is_what_budget_and_share_leave_beside_buffers_and_cache() {
        const GIB: u64 = 1 << 30;
        let of_rank = |bytes| BlockBytes { of_rank: bytes, of_process: bytes, of_all: bytes };
        let needs = Needs { block: of_rank(1 << 20), state: of_rank(0), interval: None, longest: 256 };
        let memory = DeviceMemory { free: 78 * GIB, total: 80 * GIB, own: GIB };
        let room = |change: fn(&mut EngineOptions)| {
            let mut options = EngineOptions::new("model");
            change(&mut options);
            Room::new(&memory, &options, &needs, 0.5)
        };
        let left = 40 * GIB - 2 * GIB - SPARE_BYTES;
        let of = |left: u64, cache: u64| Room { most: left - (1 << 20), ample: left - OPENING_BYTES - cache };
        assert_eq!(room(|_| ()), of(left, 256 << 20));
        let left = 8 * GIB - GIB - SPARE_BYTES;
        assert_eq!(room(|options| options.gpu_memory_bytes = Some(8 * GIB)), of(left, 256 << 20));
        assert_eq!(
            room(|options| (options.gpu_memory_bytes, options.kv_cache_bytes) = (Some(8 * GIB), Some(GIB))),
            of(left, GIB)
        );
        let left = 2 * GIB - GIB - SPARE_BYTES;
        assert_eq!(room(|options| options.gpu_memory_bytes = Some(2 * GIB)), of(left, left / KV_SHARE));
        let none = Room { most: 0, ample: 0 };
        assert_eq!(room(|options| options.gpu_memory_bytes = Some(GIB / 2)), none);
    }
}
