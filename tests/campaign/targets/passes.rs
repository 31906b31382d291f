//! Prefixes that are saved and restored at any moment of a pass, on one to three ranks and processes.

use super::prefixes::{self, HEADER_BYTES, MODEL, PROMPT};
use crate::capi::{self, Engine, judge, judge_status};
use crate::case::{Bounds, Input, Session, Target, root, violation};
use crate::random::Rng;
use ::capi::requests::nvllm_cancel;
use ::capi::state::{nvllm_reset_prefix_cache, nvllm_restore_prefix};
use ::capi::stepping::nvllm_step;
use std::ffi::CString;
use std::ptr::null_mut;
use std::thread::{self, JoinHandle};

/// Requests, steps that end within a pass, saves and restores in a random order.
pub struct Passes;

/// Processes and ranks of the engines.
const SHAPES: [(u32, u32); 5] = [(1, 1), (1, 2), (1, 3), (2, 2), (3, 3)];
/// Bytes of the KV cache of a rank, for 24 blocks, so that requests evict and preempt.
const KV_CACHE_BYTES: u64 = 24 * 1024;
/// Bytes of the tokens of a block.
const BLOCK_TOKENS_BYTES: usize = 4 * prefixes::BLOCK_SIZE;
const CLOSED: i32 = 2;

impl Target for Passes {
    fn name(&self) -> &'static str {
        "passes"
    }

    fn bounds(&self) -> Bounds {
        Bounds { cpu_ms: 2000, heap_bytes: 16 << 20, kept_bytes: 16 << 20 }
    }

    fn batch(&self) -> u64 {
        500
    }

    fn long_cases(&self) -> u64 {
        10_000
    }

    fn corpus(&self) -> Vec<Input> {
        Vec::new()
    }

    fn generate(&self, rng: &mut Rng, _: &[Input]) -> Input {
        let shape = rng.below(SHAPES.len());
        let (processes, ranks) = SHAPES[shape];
        Input::of(format!("{processes} processes, {ranks} ranks"), "shape", [shape as u8])
    }

    fn open(&self) -> Box<dyn Session> {
        let groups: Vec<Group> = SHAPES.iter().map(|&(processes, ranks)| Group::open(processes, ranks)).collect();
        let wanted = prefixes::answer(&groups[0].engine);
        let good = prefixes::save(&groups[0].engine).expect("the prompt of an answer is cached");
        Box::new(Within { groups, wanted, good })
    }
}

/// An engine, and the followers of its other processes, which are threads here.
struct Group {
    engine: Engine,
    followers: Vec<JoinHandle<()>>,
}

impl Group {
    fn open(processes: u32, ranks: u32) -> Group {
        let name = format!("nvllm-passes-{}-{processes}", std::process::id());
        let rendezvous = format!("unix:{}", std::env::temp_dir().join(name).display());
        let follow = |index| {
            let rendezvous = rendezvous.clone();
            thread::spawn(move || serve(&open(index, processes, ranks, &rendezvous)))
        };
        let followers = (1..processes).map(follow).collect();
        Group { engine: open(0, processes, ranks, &rendezvous), followers }
    }
}

fn open(index: u32, processes: u32, ranks: u32, rendezvous: &str) -> Engine {
    let rendezvous = CString::new(rendezvous).unwrap();
    Engine::open(&root().join(MODEL), |config| {
        config.kv_block_size = prefixes::BLOCK_SIZE as u32;
        config.kv_cache_bytes = KV_CACHE_BYTES * u64::from(ranks);
        config.tensor_parallel_size = ranks;
        if processes > 1 {
            (config.num_processes, config.process_index) = (processes, index);
            config.rendezvous = rendezvous.as_ptr();
        }
    })
    .expect("a golden folder opens")
}

/// The life of a follower: it computes until the leader closes its engine.
fn serve(follower: &Engine) {
    loop {
        let mut error = capi::no_error();
        // SAFETY: the engine is live.
        let status = unsafe { nvllm_step(follower.pointer(), 500, null_mut(), Some(&mut error)) };
        if status == CLOSED {
            return;
        }
        judge("nvllm_step of a follower", status, &error);
        if status != capi::OK {
            return;
        }
    }
}

struct Within {
    groups: Vec<Group>,
    wanted: capi::Answer,
    good: Vec<u8>,
}

impl Within {
    /// What is saved now are the first blocks of what was saved at first.
    fn save(&self, engine: &Engine) {
        let Some(bytes) = prefixes::save(engine) else { return };
        let blocks = PROMPT.len() / prefixes::BLOCK_SIZE;
        let (saved, good) = (&bytes[HEADER_BYTES..], &self.good[HEADER_BYTES..]);
        let saved_blocks = saved.len() / (good.len() / blocks);
        let (tokens, contents) = saved.split_at(saved_blocks * BLOCK_TOKENS_BYTES);
        let (good_tokens, good_contents) = good.split_at(blocks * BLOCK_TOKENS_BYTES);
        if !good_tokens.starts_with(tokens) || !good_contents.starts_with(contents) {
            violation(format!("{saved_blocks} blocks were saved that are others than before"));
        }
    }

    fn restore(&self, engine: &Engine) {
        let (mut restored, mut error) = (usize::MAX, capi::no_error());
        // SAFETY: all pointers are of live values of these lengths.
        let status = unsafe {
            nvllm_restore_prefix(engine.pointer(), self.good.as_ptr(), self.good.len(), &mut restored, Some(&mut error))
        };
        judge("nvllm_restore_prefix", status, &error);
    }
}

/// A request whose prompt begins as the one that is saved, or not.
fn add(engine: &Engine, rng: &mut Rng) -> Option<u64> {
    let mut prompt = PROMPT[..rng.below(PROMPT.len() + 1)].to_vec();
    let tail = rng.between(1, 30);
    prompt.extend((0..tail).map(|_| rng.below(90) as u32 + 1));
    let mut options = capi::options();
    options.max_tokens = rng.between(1, 8) as u32;
    engine.add_tokens(&prompt, &options).ok()
}

/// Some steps that compute one stage each.
fn step(engine: &Engine, stages: usize) {
    for _ in 0..stages {
        let mut error = capi::no_error();
        // SAFETY: the engine is live.
        let status = unsafe { nvllm_step(engine.pointer(), 1, null_mut(), Some(&mut error)) };
        judge("nvllm_step", status, &error);
    }
}

impl Session for Within {
    fn run(&mut self, input: &Input) {
        let engine = &self.groups[input.bytes("shape")[0] as usize].engine;
        let mut rng = Rng::of_case(input.seed, "passes", 0);
        let mut requests = Vec::new();
        for _ in 0..rng.between(4, 30) {
            match rng.below(10) {
                0..3 => requests.extend(add(engine, &mut rng)),
                3..6 => step(engine, rng.between(1, 9)),
                6..8 => self.save(engine),
                8 => self.restore(engine),
                _ if rng.one_in(2) && !requests.is_empty() => {
                    // SAFETY: the engine is live.
                    let status = unsafe { nvllm_cancel(engine.pointer(), *rng.pick(&requests)) };
                    judge_status("nvllm_cancel", status, "");
                }
                _ => {
                    // SAFETY: the engine is live.
                    let status = unsafe { nvllm_reset_prefix_cache(engine.pointer(), None) };
                    judge_status("nvllm_reset_prefix_cache", status, "");
                }
            }
        }
        engine.finish(0);
    }

    fn probe(&mut self) {
        for (group, (processes, ranks)) in self.groups.iter().zip(SHAPES) {
            if prefixes::answer(&group.engine) != self.wanted {
                violation(format!(
                    "{processes} processes, {ranks} ranks: the prompt is answered otherwise than before"
                ));
            }
            self.save(&group.engine);
        }
        for Group { engine, followers } in self.groups.drain(..) {
            drop(engine);
            if followers.into_iter().any(|follower| follower.join().is_err()) {
                violation("a follower panicked");
            }
        }
    }
}
