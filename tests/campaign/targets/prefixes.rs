//! Saved prefixes: bytes that nvllm_restore_prefix takes.

use crate::capi::{self, Engine, Good, judge};
use crate::case::{self, Bounds, Input, Session, Target, root, violation};
use crate::random::{self, Rng};
use ::capi::state::{nvllm_restore_prefix, nvllm_save_prefix};
use ::capi::status::nvllm_status_code;
use twox_hash::XxHash3_64;

/// Saved prefixes that are damaged, of another model, or well-formed with numbers of their own.
pub struct Prefixes;

const BYTES: &str = "prefix.bin";
const NOT_FOUND: i32 = nvllm_status_code::NVLLM_ERR_NOT_FOUND as i32;
pub const HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = 56;
pub const MODEL: &str = "tests/golden/qwen3-f32-untied-gqa8";
pub const BLOCK_SIZE: usize = 8;
pub const PROMPT: &[u32] = &[
    5, 9, 14, 3, 44, 7, 60, 21, 8, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 50, 51, 52, 53, 54, 55, 56,
    57, 58, 59,
];

fn open() -> Engine {
    Engine::open(&root().join(MODEL), |config| {
        config.kv_block_size = BLOCK_SIZE as u32;
        config.kv_cache_bytes = 1 << 20;
    })
    .expect("a golden folder opens")
}

/// What a good request for the prompt is answered.
pub fn answer(engine: &Engine) -> capi::Answer {
    let mut options = capi::options();
    options.max_tokens = 4;
    match engine.add_tokens(PROMPT, &options) {
        Ok(id) => engine.finish(id),
        Err((status, message)) => {
            violation(format!("a good request was refused with {status}: {message}"));
            capi::Answer::default()
        }
    }
}

/// What the engine saves of the prompt. `None` where nothing of it is cached.
pub fn save(engine: &Engine) -> Option<Vec<u8>> {
    let (mut bytes, mut needed, mut saved, mut error) = (vec![0u8; 1 << 18], 0, 0, capi::no_error());
    // SAFETY: all pointers are of live values of these lengths.
    let status = unsafe {
        let (at, len, to, room) = (PROMPT.as_ptr(), PROMPT.len(), bytes.as_mut_ptr(), bytes.len());
        nvllm_save_prefix(engine.pointer(), at, len, 0, to, room, &mut needed, &mut saved, Some(&mut error))
    };
    let message = judge("nvllm_save_prefix", status, &error);
    if status == NOT_FOUND {
        return None;
    }
    assert_eq!(status, capi::OK, "{message}");
    bytes.truncate(needed);
    Some(bytes)
}

/// Writes the checksum that belongs to the bytes.
fn seal(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_BYTES {
        let (header, content) = bytes.split_at(HEADER_BYTES);
        let sum = XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(&header[..CHECKSUM_AT]), content);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    }
}

impl Target for Prefixes {
    fn name(&self) -> &'static str {
        "prefixes"
    }

    fn bounds(&self) -> Bounds {
        Bounds { cpu_ms: 1000, heap_bytes: 64 << 20, kept_bytes: 16 << 20 }
    }

    fn batch(&self) -> u64 {
        5000
    }

    fn long_cases(&self) -> u64 {
        50_000
    }

    /// The inputs say what is done to a good prefix, which only the process of the cases can make: the library is not to be
    /// entered before.
    fn corpus(&self) -> Vec<Input> {
        case::hostile("prefixes", BYTES)
    }

    fn generate(&self, rng: &mut Rng, _: &[Input]) -> Input {
        let how = *rng.pick(&["field", "field", "tokens", "bytes", "contents", "blocks", "any"]);
        match how {
            "any" => Input::of("any bytes", BYTES, rng.text(300).into_bytes()),
            _ => Input::of(how, "how", how),
        }
    }

    fn open(&self) -> Box<dyn Session> {
        let demo = Engine::demo();
        let engine = open();
        let wanted = answer(&engine);
        let good = save(&engine).expect("the prompt of an answer is cached");
        Box::new(Restorer { demo: (Good::of(&demo), demo), engine, wanted, good })
    }
}

struct Restorer {
    demo: (Good, Engine),
    engine: Engine,
    wanted: capi::Answer,
    good: Vec<u8>,
}

impl Restorer {
    fn bytes(&self, input: &Input) -> Vec<u8> {
        let mut rng = Rng::of_case(input.seed, "prefix", 0);
        let mut bytes = self.good.clone();
        match input.bytes("how") {
            b"field" => {
                // All fields of the header: some are words of 4 bytes, some of 8.
                let at = 4 * rng.below(CHECKSUM_AT / 4);
                let number = if rng.one_in(2) { rng.next() as u32 >> rng.below(32) } else { rng.below(9) as u32 };
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            b"tokens" => {
                for _ in 0..rng.between(1, 20) {
                    let at = HEADER_BYTES + 4 * rng.below(PROMPT.len() / BLOCK_SIZE * BLOCK_SIZE);
                    let token = if rng.one_in(2) { rng.next() as u32 } else { rng.below(120) as u32 };
                    bytes[at..at + 4].copy_from_slice(&token.to_le_bytes());
                }
            }
            b"contents" => {
                let numbers = [f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, -0.0, 1e30];
                for _ in 0..rng.between(1, 200) {
                    let at = 4 * rng.between((HEADER_BYTES + 128) / 4, bytes.len() / 4 - 1);
                    bytes[at..at + 4].copy_from_slice(&rng.pick(&numbers).to_le_bytes());
                }
            }
            b"blocks" => {
                // More or fewer blocks than there are, with the length that belongs to them, or not.
                let blocks = u64::from_le_bytes(bytes[48..56].try_into().unwrap()) as usize;
                let block = (bytes.len() - HEADER_BYTES) / blocks;
                let new = *rng.pick(&[0, 1, 2, blocks + 1, 40, 400]);
                bytes[48..56].copy_from_slice(&(new as u64).to_le_bytes());
                bytes.resize(HEADER_BYTES + new * block + rng.below(2) * rng.below(99), rng.next() as u8);
            }
            b"bytes" => bytes = random::mutate(&mut rng, bytes, &["NVLLM_KV"], &[]),
            _ => bytes = input.bytes(BYTES).to_vec(),
        }
        if !rng.one_in(5) {
            seal(&mut bytes);
        }
        bytes
    }
}

impl Session for Restorer {
    fn run(&mut self, input: &Input) {
        let bytes = self.bytes(input);
        let (mut restored, mut error) = (usize::MAX, capi::no_error());
        // SAFETY: all pointers are of live values of these lengths.
        let status = unsafe {
            nvllm_restore_prefix(self.engine.pointer(), bytes.as_ptr(), bytes.len(), &mut restored, Some(&mut error))
        };
        judge("nvllm_restore_prefix", status, &error);
        // A prefix that is whole may say anything about its tokens, so it must not stay for the good request.
        if status == capi::OK {
            let mut options = capi::options();
            options.max_tokens = 2;
            let prompt: Vec<u32> = PROMPT.iter().map(|token| token % 97).collect();
            if let Ok(id) = self.engine.add_tokens(&prompt, &options) {
                self.engine.finish(id);
            }
            // SAFETY: the engine is live.
            let status = unsafe { ::capi::state::nvllm_reset_prefix_cache(self.engine.pointer(), None) };
            capi::judge_status("nvllm_reset_prefix_cache", status, "");
        }
    }

    fn probe(&mut self) {
        self.demo.0.check(&self.demo.1);
        if answer(&self.engine) != self.wanted {
            violation("the prompt is answered otherwise than before");
        }
        if save(&self.engine).as_ref() != Some(&self.good) {
            violation("the same prompt is saved as other bytes");
        }
    }
}
