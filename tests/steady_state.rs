//! A decode pass allocates nothing: everything is sized when the engine opens.

mod driver;
mod tree;

use compute::batch::Batch;
use compute::cpu::Isa;
use driver::{Sequence, config, golden, open};
use runner::Runner;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations in 100 decode passes of eight rows, by a runner that was just opened.
fn count(name: &str, isa: Isa) -> u64 {
    let (mut runner, info) = open(&golden(name), &config(), isa).unwrap();
    let limits = info.limits;
    let mut batch = Batch::with_limits(&limits);
    let mut sequences: Vec<Sequence> = (0..8).map(|i| Sequence::new(&[i + 3, 5, 7], i * 30..(i + 1) * 30)).collect();
    for sequence in &mut sequences {
        sequence.tokens.reserve(110);
    }
    let mut counted = 0;
    for pass in 0..101 {
        batch.clear();
        for sequence in &mut sequences {
            sequence.bring(sequence.pending(), &limits, &mut batch);
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        runner.submit(&batch).unwrap();
        let chosen = runner.collect(None).unwrap().expect("no deadline was given");
        let after = ALLOCATIONS.load(Ordering::Relaxed);
        for (sequence, token) in sequences.iter_mut().zip(chosen.tokens) {
            sequence.tokens.push(*token);
        }
        match pass {
            // The prefill. New threads may not even have begun when it ends.
            0 => thread::sleep(Duration::from_millis(50)),
            _ => counted += after - before,
        }
    }
    counted
}

// The only test of this file: another one would allocate beside it. On a busy machine a thread may still come to life in
// the middle of the count, and allocates what threads need, such as its name and its place among those that wait for a
// lock. That happens once and by chance; what a pass allocates comes again with every runner.
#[test]
fn a_hundred_decode_passes_of_eight_rows_allocate_nothing() {
    for &isa in Isa::available() {
        for name in ["qwen3-bf16-head128", "qwen2-f16-old-keys", "llama-f32-llama3"] {
            let is_free = (0..5).any(|_| count(name, isa) == 0);
            assert!(is_free, "{name}, {isa:?}: every one of five runs allocated");
        }
    }
}
