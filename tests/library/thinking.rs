//! A limit of reasoning gives the same answer whatever the schedule.

use crate::demo::{self, BLOCK_SIZE, TOKEN_BYTES, thoughts};
use engine::Budget;
use engine::options::{EngineOptions, PrefixCache};
use runner::Device;
use std::time::Duration;

#[test]
fn an_answer_whose_reasoning_is_ended_depends_on_no_schedule() {
    let options = |change: fn(&mut EngineOptions)| {
        let mut options = demo::options(Device::Cpu);
        change(&mut options);
        options
    };
    let alone = options(|o| (o.max_num_seqs, o.prefix_cache) = (Some(1), PrefixCache::Off));
    let (wanted, _) = thoughts(&alone, Budget::OnePass);
    assert!(wanted.iter().filter(|(_, reasoning)| *reasoning > 9).count() > 5, "some think longer than others may");
    type Change = fn(&mut EngineOptions);
    let cases: [(&str, Change, Budget); 4] = [
        ("all at once", |_| {}, Budget::OnePass),
        ("in chunks of 7", |o| (o.max_num_seqs, o.max_batched_tokens) = (Some(7), Some(7)), Budget::OnePass),
        ("cut", |o| o.num_threads = Some(1), Budget::Time(Duration::ZERO)),
        ("with few blocks", |o| o.kv_cache_bytes = Some(11 * BLOCK_SIZE as u64 * TOKEN_BYTES), Budget::OnePass),
    ];
    for (name, change, budget) in cases {
        let (found, stats) = thoughts(&options(change), budget);
        assert_eq!(found, wanted, "{name}");
        assert!(stats.prefix_cache.hits > 0, "{name}: prompts begin alike");
        assert!(name != "with few blocks" || stats.preemptions > 0, "nobody was preempted");
    }
}
