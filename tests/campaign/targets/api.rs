//! The C API: random calls of several threads on one engine, and requests that are as large as a caller can make them.

use super::folders::{detokenize, tokenize};
use crate::capi::{self, Engine, Good, judge, judge_status};
use crate::case::{Bounds, Input, Session, Target, violation};
use crate::random::Rng;
use ::capi::engine::*;
use ::capi::generate::*;
use ::capi::logging::nvllm_set_log_callback;
use ::capi::requests::*;
use ::capi::state::*;
use ::capi::stats::*;
use ::capi::status::*;
use ::capi::stepping::*;
use ::capi::version::*;
use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Sequences of calls.
pub struct Api;

const NAME: &str = "name";
/// Calls of each thread in a case.
const CALLS: usize = 40;
/// Threads of a case: one owns the engine's [one] functions most of the time.
const THREADS: usize = 3;
/// An address that is aligned for nothing.
const CROOKED: usize = 1;

type Hostile = (&'static str, fn(&Engine));

impl Target for Api {
    fn name(&self) -> &'static str {
        "api"
    }

    fn bounds(&self) -> Bounds {
        // A case makes hundreds of calls, and generates thousands of tokens.
        Bounds { cpu_ms: 20_000, heap_bytes: 64 << 20, kept_bytes: 64 << 20 }
    }

    fn batch(&self) -> u64 {
        500
    }

    /// Of some 120 calls each, and those that step until all has ended.
    fn long_cases(&self) -> u64 {
        8000
    }

    fn corpus(&self) -> Vec<Input> {
        HOSTILE.iter().map(|(name, _)| Input::of(*name, NAME, *name)).collect()
    }

    fn generate(&self, _: &mut Rng, _: &[Input]) -> Input {
        Input { origin: "made".to_owned(), ..Input::default() }
    }

    fn open(&self) -> Box<dyn Session> {
        let engine = Engine::demo();
        let good = Good::of(&engine);
        Box::new(Caller { engine, good, settled: 0 })
    }
}

struct Caller {
    engine: Engine,
    good: Good,
    /// The newest request of the cases before.
    settled: u64,
}

impl Session for Caller {
    fn run(&mut self, input: &Input) {
        if let Some((_, call)) = HOSTILE.iter().find(|(name, _)| name.as_bytes() == input.bytes(NAME)) {
            call(&self.engine);
        } else {
            let last = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (engine, last, seed) = (&self.engine, &last, input.seed);
                    let run = move || {
                        let mut rng = Rng::of_case(seed, "thread", thread as u64);
                        let mut host = Host { engine, rng: &mut rng, last, is_owner: thread == 0 };
                        (0..CALLS).for_each(|_| host.call());
                    };
                    std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, run).unwrap();
                }
            });
        }
        self.settled = settle(&self.engine, self.settled);
    }

    fn probe(&mut self) {
        self.good.check(&self.engine);
    }
}

/// Ends what a case has begun after request `first`, so that the next one finds an empty engine. Answers the newest request.
fn settle(engine: &Engine, first: u64) -> u64 {
    // SAFETY: the engine is live, and no function is a callback.
    unsafe {
        judge_status(
            "nvllm_set_output_callback",
            nvllm_set_output_callback(engine.pointer(), None, null_mut(), None),
            "",
        );
        nvllm_set_log_callback(None, null_mut(), 0);
    }
    let newest = engine.add_tokens(&[1], &capi::options());
    // A full queue refuses it: then all that wait are asked to end first.
    let newest = newest.unwrap_or(first + 2_000_000);
    for id in first + 1..=newest {
        // SAFETY: the engine is live.
        unsafe {
            let cancelled = nvllm_cancel(engine.pointer(), id);
            judge_status("nvllm_cancel", cancelled, "");
            judge_status("nvllm_release_prefix", nvllm_release_prefix(engine.pointer(), id), "");
        }
    }
    engine.finish(0);
    if !engine.is_finished() {
        violation("the engine does not come to an end");
    }
    engine.add_tokens(&[1], &capi::options()).map_or(first, |id| {
        engine.finish(id);
        id
    })
}

/// A thread that calls the library.
struct Host<'a> {
    engine: &'a Engine,
    rng: &'a mut Rng,
    /// The newest id that some thread knows.
    last: &'a AtomicU64,
    is_owner: bool,
}

unsafe extern "C" fn cancel_some(output: *const nvllm_output, user_data: *mut c_void) -> i32 {
    // SAFETY: the output is valid during the call; user_data is a number.
    unsafe { capi::look_at(&*output) };
    i32::from((user_data as usize).is_multiple_of(3))
}

unsafe extern "C" fn stop_some(_: *const nvllm_progress, user_data: *mut c_void) -> i32 {
    i32::from((user_data as usize).is_multiple_of(5))
}

unsafe extern "C" fn take_log(_: i32, message: *const c_char, len: usize, _: *mut c_void) {
    // SAFETY: the message is valid during the call.
    let bytes = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), len + 1) };
    if bytes[len] != 0 || std::str::from_utf8(&bytes[..len]).is_err() {
        violation("a log message is no UTF-8, or does not end with a NUL");
    }
    if String::from_utf8_lossy(bytes).contains("bug in the library") {
        violation(format!("the log tells of a bug: {}", String::from_utf8_lossy(&bytes[..len])));
    }
}

impl Host<'_> {
    /// Some id: a live one, one that has ended, or none.
    fn id(&mut self) -> u64 {
        let last = self.last.load(Relaxed);
        match self.rng.below(8) {
            0 => self.rng.next(),
            1 => 0,
            _ => last.saturating_sub(self.rng.below(6) as u64),
        }
    }

    fn call(&mut self) {
        let engine = self.engine.pointer();
        let kind = if self.is_owner && !self.rng.one_in(4) { self.rng.below(9) } else { 9 + self.rng.below(13) };
        let mut error = capi::no_error();
        // SAFETY: pointers are of live values, NULL, or crooked, which the library must refuse before it reads.
        unsafe {
            match kind {
                0..4 => {
                    let budget = *self.rng.pick(&[0, 1, 100, 4000]);
                    let mut result = MaybeUninit::<nvllm_step_result>::zeroed();
                    (*result.as_mut_ptr()).struct_size = self.struct_size(size_of::<nvllm_step_result>());
                    let place = if self.rng.one_in(4) { null_mut() } else { result.as_mut_ptr() };
                    judge("nvllm_step", nvllm_step(engine, budget, place, Some(&mut error)), &error);
                }
                4 | 5 => drop(self.engine.poll()),
                6 => self.generate(),
                7 => self.state(),
                8 => {
                    let callback: nvllm_output_fn = if self.rng.one_in(3) { Some(cancel_some) } else { None };
                    let user_data = self.rng.below(100) as *mut c_void;
                    let status = nvllm_set_output_callback(engine, callback, user_data, Some(&mut error));
                    judge("nvllm_set_output_callback", status, &error);
                }
                9..13 => self.add(),
                13 => {
                    let id = self.id();
                    judge_status("nvllm_cancel", nvllm_cancel(engine, id), "");
                    judge("nvllm_cancel", nvllm_cancel_with_error(engine, id, Some(&mut error)), &error);
                }
                14 => {
                    let id = self.id();
                    judge_status("nvllm_release_prefix", nvllm_release_prefix(engine, id), "");
                    let status = nvllm_release_prefix_with_error(engine, id, Some(&mut error));
                    judge("nvllm_release_prefix", status, &error);
                }
                15 => {
                    let (text, flags) = (self.rng.text(2000), self.flags());
                    let tokens = tokenize(self.engine, &text, flags);
                    let flags = self.flags();
                    detokenize(self.engine, &tokens, flags);
                }
                16 => {
                    let tokens: Vec<u32> = (0..self.rng.length(300)).map(|_| self.token()).collect();
                    let flags = self.flags();
                    detokenize(self.engine, &tokens, flags);
                }
                17 => {
                    let messages = super::json::make(self.rng, 4).to_string();
                    let options = super::json::make(self.rng, 3).to_string();
                    let _ = self.engine.chat(messages.as_bytes(), options.as_bytes());
                }
                18 => {
                    let mut stats = MaybeUninit::<nvllm_stats>::zeroed();
                    (*stats.as_mut_ptr()).struct_size = self.struct_size(size_of::<nvllm_stats>());
                    judge("nvllm_get_stats", nvllm_get_stats(engine, stats.as_mut_ptr(), Some(&mut error)), &error);
                    let mut info = MaybeUninit::<nvllm_model_info>::zeroed();
                    (*info.as_mut_ptr()).struct_size = self.struct_size(size_of::<nvllm_model_info>());
                    let status = nvllm_engine_model_info(engine, info.as_mut_ptr(), Some(&mut error));
                    judge("nvllm_engine_model_info", status, &error);
                }
                19 => {
                    let (mut text, mut needed) = (vec![0u8; 1 << 14], 0);
                    let room = if self.rng.one_in(2) { text.len() } else { self.rng.below(100) };
                    let status =
                        nvllm_metrics_text(engine, text.as_mut_ptr().cast(), room, &mut needed, Some(&mut error));
                    judge("nvllm_metrics_text", status, &error);
                }
                20 => {
                    let callback = if self.rng.one_in(2) { Some(take_log as _) } else { None };
                    nvllm_set_log_callback(callback, null_mut(), self.rng.below(7) as i32 - 1);
                }
                _ => {
                    nvllm_status_name(self.rng.next() as i32);
                    nvllm_version();
                    nvllm_abi_version();
                    nvllm_build_info();
                    nvllm_is_finished(if self.rng.one_in(2) { engine } else { null_mut() });
                    judge_status("nvllm_step", nvllm_step(null_mut(), 0, null_mut(), None), "");
                    judge("nvllm_wake", nvllm_wake(engine, Some(&mut error)), &error);
                    let status = nvllm_wait(engine, self.rng.below(2000) as u64, Some(&mut error));
                    if status != nvllm_status_code::NVLLM_TIMEOUT as i32 {
                        judge("nvllm_wait", status, &error);
                    }
                }
            }
        }
    }

    /// The size of a struct, or that of an older caller or of nobody. Memory for 64 more bytes is not there, so no larger one.
    fn struct_size(&mut self, size: usize) -> usize {
        match self.rng.below(10) {
            0 => 8 * self.rng.below(size / 8 + 1),
            1 => self.rng.below(8),
            2 => usize::MAX - self.rng.below(8),
            _ => size,
        }
    }

    fn flags(&mut self) -> u32 {
        if self.rng.one_in(10) { self.rng.next() as u32 } else { self.rng.below(4) as u32 }
    }

    fn token(&mut self) -> u32 {
        match self.rng.below(12) {
            0 => self.rng.next() as u32 >> self.rng.below(32),
            1 => *self.rng.pick(&[2043, 2044, 2045, 2046, 2047, 2048, u32::MAX]),
            _ => self.rng.below(2048) as u32,
        }
    }

    fn float(&mut self, good: &[f32]) -> f32 {
        match self.rng.below(12) {
            0 => f32::from_bits(self.rng.next() as u32),
            1 => *self.rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, f32::MAX, f32::MIN_POSITIVE]),
            _ => *self.rng.pick(good),
        }
    }

    /// Calls with options that make sense, or nearly.
    fn with_options(&mut self, call: impl FnOnce(&mut Self, *const nvllm_request_options)) {
        let mut options = capi::options();
        let texts: Vec<CString> =
            (0..self.rng.length(140)).map(|_| CString::new(self.rng.text(20).replace('\0', "")).unwrap()).collect();
        let mut stops: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let invalid = CString::new(vec![0xff, 0xfe]).unwrap();
        let stop_tokens: Vec<u32> = (0..self.rng.length(1100)).map(|_| self.token()).collect();
        let bias_tokens: Vec<u32> = (0..self.rng.length(2000)).map(|_| self.token()).collect();
        let bias_values: Vec<f32> = bias_tokens.iter().map(|_| self.float(&[1.0, -5.0, 0.0, 20.0])).collect();
        let structure = CString::new(match self.rng.below(4) {
            0 => super::schemas::make(self.rng).replace('\0', ""),
            1 => super::regexes::make(self.rng).replace('\0', ""),
            2 => super::lark::make(self.rng).replace('\0', ""),
            _ => "[a-z]{1,8}".to_owned(),
        })
        .unwrap();
        options.max_tokens = *self.rng.pick(&[1, 2, 3, 5, 8, 20, 0, u32::MAX]);
        options.tag = self.rng.next();
        let rng = &mut *self.rng;
        if rng.one_in(3) {
            options.temperature = 1.0;
            options.seed = rng.next();
        }
        for _ in 0..self.rng.below(6) {
            match self.rng.below(25) {
                0 => options.min_tokens = self.rng.length(1000) as u32,
                1 => options.temperature = self.float(&[0.0, 0.5, 1.0, 2.0]),
                2 => options.top_p = self.float(&[1.0, 0.9, 0.1]),
                3 => options.min_p = self.float(&[0.0, 0.1, 1.0]),
                4 => options.top_k = self.rng.next() as u32 >> self.rng.below(32),
                5 => options.repetition_penalty = self.float(&[1.0, 1.3, 0.7]),
                6 => options.presence_penalty = self.float(&[0.0, 1.0, -2.0]),
                7 => options.frequency_penalty = self.float(&[0.0, 1.0, -2.0]),
                8 => options.ignore_eos = self.rng.below(3) as u32,
                9 => options.priority = self.rng.next() as i32 >> self.rng.below(32),
                10 | 11 => {
                    if self.rng.one_in(8) {
                        stops.push(*self.rng.pick(&[null(), invalid.as_ptr()]));
                    }
                    (options.stop, options.num_stop) = (stops.as_ptr(), stops.len());
                }
                12 => (options.stop_tokens, options.num_stop_tokens) = (stop_tokens.as_ptr(), stop_tokens.len()),
                13 => {
                    options.num_bias = bias_tokens.len();
                    (options.bias_tokens, options.bias_values) = (bias_tokens.as_ptr(), bias_values.as_ptr());
                }
                14 => options.num_logprobs = self.rng.length(70) as u32,
                15 => options.num_prompt_logprobs = self.rng.length(70) as u32,
                16 => options.n = *self.rng.pick(&[1, 2, 3, 16, 64, 0, 1025, u32::MAX]),
                17 => {
                    options.beam_width = *self.rng.pick(&[1, 2, 4, 21, 32, 33, u32::MAX]);
                    options.length_penalty = self.float(&[1.0, 0.0, -1.0, 2.0]);
                    options.early_stopping = self.rng.below(4) as u32;
                }
                18 => options.include_stop = self.rng.below(3) as u32,
                19 => options.max_wait_us = self.rng.next() >> self.rng.between(1, 63),
                20 => options.cache_salt = self.rng.below(3) as u64,
                21 => options.pin_prompt = self.rng.below(3) as u32,
                22 => options.pooling = self.rng.below(4) as u32,
                23 => {
                    options.structure_kind = self.rng.below(5) as i32;
                    options.structure = structure.as_ptr();
                }
                _ => match self.rng.below(4) {
                    0 => (options.stop, options.num_stop) = (null(), 1),
                    1 => (options.stop_tokens, options.num_stop_tokens) = (CROOKED as *const u32, 4),
                    2 => (options.bias_tokens, options.num_bias) = (bias_tokens.as_ptr(), usize::MAX),
                    _ => options.struct_size = self.struct_size(size_of::<nvllm_request_options>()),
                },
            }
        }
        match self.rng.below(40) {
            0 => call(self, null()),
            1 => call(self, CROOKED as *const _),
            _ => call(self, &options),
        }
    }

    fn add(&mut self) {
        let is_text = self.rng.one_in(2);
        let text = self.rng.text(600);
        let tokens: Vec<u32> = match self.rng.below(3) {
            // Equal beginnings share blocks.
            0 => (0..self.rng.below(200) as u32).collect(),
            _ => (0..self.rng.length(600)).map(|_| self.token()).collect(),
        };
        self.with_options(|host, options| {
            let (mut id, mut error) = (0, capi::no_error());
            let engine = host.engine.pointer();
            // SAFETY: pointers are of live values, NULL, or crooked.
            let status = unsafe {
                match (is_text, host.rng.below(30)) {
                    (true, 0) => nvllm_add_request(engine, null(), 7, options, &mut id, Some(&mut error)),
                    (true, 1) => {
                        nvllm_add_request(engine, [0xc3u8, 0x28].as_ptr().cast(), 2, options, &mut id, Some(&mut error))
                    }
                    (true, _) => {
                        nvllm_add_request(engine, text.as_ptr().cast(), text.len(), options, &mut id, Some(&mut error))
                    }
                    (_, 0) => nvllm_add_request_tokens(engine, null(), 7, options, &mut id, Some(&mut error)),
                    (_, 1) => {
                        let to = CROOKED as *mut u64;
                        nvllm_add_request_tokens(engine, tokens.as_ptr(), tokens.len(), options, to, Some(&mut error))
                    }
                    (_, 2) => {
                        nvllm_add_request_tokens(engine, CROOKED as *const u32, 2, options, &mut id, Some(&mut error))
                    }
                    _ => nvllm_add_request_tokens(
                        engine,
                        tokens.as_ptr(),
                        tokens.len(),
                        options,
                        &mut id,
                        Some(&mut error),
                    ),
                }
            };
            judge("nvllm_add_request", status, &error);
            if status == capi::OK {
                host.last.fetch_max(id, Relaxed);
            }
        });
    }

    fn generate(&mut self) {
        let prompts: Vec<Vec<u32>> =
            (0..self.rng.length(6)).map(|_| (0..self.rng.length(20)).map(|_| self.token()).collect()).collect();
        let at: Vec<*const u32> = prompts.iter().map(|prompt| prompt.as_ptr()).collect();
        let lens: Vec<usize> = prompts.iter().map(Vec::len).collect();
        self.with_options(|host, options| {
            // An answer without an end would take all of the case's time.
            // SAFETY: options are NULL, crooked, or live.
            if options.is_null() || options as usize == CROOKED || unsafe { (*options).max_tokens } > 20 {
                return;
            }
            let (mut result, mut error) = (null_mut(), capi::no_error());
            let progress: nvllm_generate_progress_fn = if host.rng.one_in(3) { Some(stop_some) } else { None };
            let (all, user_data) = ([options, options], host.rng.below(99) as *mut c_void);
            let num_options = host.rng.below(3).min(at.len());
            // SAFETY: all pointers are of live values of these lengths.
            unsafe {
                let engine = host.engine.pointer();
                let status = nvllm_generate_tokens(
                    engine,
                    at.as_ptr(),
                    lens.as_ptr(),
                    at.len(),
                    all.as_ptr(),
                    num_options,
                    progress,
                    user_data,
                    &mut result,
                    Some(&mut error),
                );
                judge("nvllm_generate_tokens", status, &error);
                if status == capi::OK {
                    for index in 0..nvllm_result_count(result) + 1 {
                        let mut output = MaybeUninit::<nvllm_output>::zeroed();
                        (*output.as_mut_ptr()).struct_size = size_of::<nvllm_output>();
                        let status = nvllm_result_get(result, index, output.as_mut_ptr());
                        if status == capi::OK {
                            capi::look_at(&output.assume_init());
                        }
                        let again = nvllm_result_get_with_error(result, index, output.as_mut_ptr(), Some(&mut error));
                        judge("nvllm_result_get", again, &error);
                        if again != status {
                            violation("nvllm_result_get has another answer with an error");
                        }
                    }
                    nvllm_result_free(result);
                }
            }
        });
    }

    /// Saving, restoring, forking, forgetting.
    fn state(&mut self) {
        let engine = self.engine.pointer();
        let tokens: Vec<u32> = (0..self.rng.below(200) as u32).collect();
        let (mut bytes, mut needed, mut saved, mut error) = (vec![0u8; 1 << 20], 0, 0, capi::no_error());
        // SAFETY: all pointers are of live values of these lengths.
        unsafe {
            match self.rng.below(3) {
                0 => {
                    let room = if self.rng.one_in(3) { self.rng.below(1000) } else { bytes.len() };
                    let salt = self.rng.below(2) as u64;
                    let (at, len, to) = (tokens.as_ptr(), tokens.len(), bytes.as_mut_ptr());
                    let status =
                        nvllm_save_prefix(engine, at, len, salt, to, room, &mut needed, &mut saved, Some(&mut error));
                    judge("nvllm_save_prefix", status, &error);
                    if status == capi::OK {
                        if self.rng.one_in(2) {
                            let at = self.rng.below(needed);
                            bytes[at] ^= 1 << self.rng.below(8);
                        }
                        let status = nvllm_restore_prefix(engine, bytes.as_ptr(), needed, &mut saved, Some(&mut error));
                        judge("nvllm_restore_prefix", status, &error);
                    }
                }
                1 => {
                    let (id, index) = (self.id(), self.rng.below(3) as u32);
                    self.with_options(|host, options| {
                        let mut new = 0;
                        let status = nvllm_fork(engine, id, index, options, &mut new, Some(&mut error));
                        judge("nvllm_fork", status, &error);
                        host.last.fetch_max(new, Relaxed);
                    });
                }
                _ => {
                    let status = nvllm_reset_prefix_cache(engine, Some(&mut error));
                    judge("nvllm_reset_prefix_cache", status, &error);
                }
            }
        }
    }
}

/// Asks for `n` completions with that many stop strings of that length.
fn stop_strings(engine: &Engine, n: u32, count: usize, len: usize) {
    let mut options = capi::options();
    (options.n, options.max_tokens) = (n, 2);
    let text = CString::new("x".repeat(len)).unwrap();
    let all = vec![text.as_ptr(); count];
    (options.stop, options.num_stop) = (all.as_ptr(), all.len());
    let _ = engine.add_tokens(&[1, 2, 3], &options);
}

fn biases(engine: &Engine, n: u32, count: u32) {
    let mut options = capi::options();
    (options.n, options.max_tokens) = (n, 2);
    let tokens: Vec<u32> = (0..count).collect();
    let values = vec![1.0; tokens.len()];
    options.num_bias = tokens.len();
    (options.bias_tokens, options.bias_values) = (tokens.as_ptr(), values.as_ptr());
    let _ = engine.add_tokens(&[1, 2, 3], &options);
}

fn stop_tokens(engine: &Engine, n: u32, count: usize) {
    let mut options = capi::options();
    (options.n, options.max_tokens) = (n, 2);
    let tokens: Vec<u32> = (0..count).map(|i| i as u32 % 2048).collect();
    (options.stop_tokens, options.num_stop_tokens) = (tokens.as_ptr(), tokens.len());
    let _ = engine.add_tokens(&[1, 2, 3], &options);
}

/// A prompt that no context holds, and the tokens of its beginning.
fn long_text(engine: &Engine, text: &str) {
    let _ = engine.add(text, &capi::options());
    tokenize(engine, &text[..text.floor_char_boundary(200_000)], 2);
}

fn generate_many(engine: &Engine, prompts: usize, n: u32) {
    let mut options = capi::options();
    (options.n, options.max_tokens) = (n, 1);
    let at = vec![c"a".as_ptr(); prompts];
    let (mut result, mut error) = (null_mut(), capi::no_error());
    let options: *const nvllm_request_options = &options;
    // SAFETY: all pointers are of live values of these lengths.
    unsafe {
        let (engine, at, lens) = (engine.pointer(), at.as_ptr(), null());
        let stop = Some(stop_some as _);
        let status =
            nvllm_generate(engine, at, lens, prompts, &options, 1, stop, null_mut(), &mut result, Some(&mut error));
        judge("nvllm_generate", status, &error);
        if status == capi::OK {
            nvllm_result_free(result);
        }
    }
}

/// Structures that a request brings along with many completions.
fn structure(engine: &Engine, kind: i32, text: &str, n: u32) {
    let mut options = capi::options();
    let text = CString::new(text).unwrap();
    (options.structure, options.structure_kind) = (text.as_ptr(), kind);
    (options.n, options.max_tokens) = (n, 3);
    let _ = engine.add("x", &options);
}

fn many_requests(engine: &Engine, count: usize, n: u32, tokens: usize) {
    let mut options = capi::options();
    (options.n, options.max_tokens) = (n, 1);
    let prompt = vec![1; tokens];
    for _ in 0..count {
        if engine.add_tokens(&prompt, &options).is_err() {
            break;
        }
    }
}

const HOSTILE: &[Hostile] = &[
    ("1,024 completions with 100,000 stop strings", |engine| stop_strings(engine, 1024, 100_000, 3)),
    ("1,024 completions with a stop string of 4 MB", |engine| stop_strings(engine, 1024, 1, 4 << 20)),
    ("a million stop strings", |engine| stop_strings(engine, 1, 1_000_000, 3)),
    ("1,024 completions with 128 stop strings of 4 KB", |engine| stop_strings(engine, 1024, 128, 4096)),
    ("1,024 completions with a million stop tokens", |engine| stop_tokens(engine, 1024, 1_000_000)),
    ("1,024 completions with 1,024 stop tokens", |engine| stop_tokens(engine, 1024, 1024)),
    ("150,000 biases", |engine| biases(engine, 3, 150_000)),
    ("1,024 completions with 2,048 biases", |engine| biases(engine, 1024, 2048)),
    ("10 MB of letters", |engine| long_text(engine, &"a".repeat(10 << 20))),
    ("10 MB of words", |engine| long_text(engine, &"some words, ".repeat(900_000))),
    ("10 MB of spaces", |engine| long_text(engine, &" ".repeat(10 << 20))),
    ("20 MB of letters", |engine| long_text(engine, &"a".repeat(20 << 20))),
    ("1 MB of marks", |engine| long_text(engine, &"<|im_start|>".repeat(90_000))),
    ("5 MB of accents", |engine| long_text(engine, &"e\u{301}".repeat(2_000_000))),
    ("100 requests of 1,024 completions of 400 tokens", |engine| many_requests(engine, 100, 1024, 400)),
    ("20,000 requests", |engine| many_requests(engine, 20_000, 1, 3)),
    ("30,000 prompts of 1,024 completions", |engine| generate_many(engine, 30_000, 1024)),
    ("two million prompts", |engine| generate_many(engine, 2_000_000, 1)),
    ("a prime multiple, 64 times", |engine| structure(engine, 1, r#"{"type":"integer","multipleOf":1000003}"#, 64)),
    ("a small schema, 1,024 times", |engine| structure(engine, 1, r#"{"type":"object"}"#, 1024)),
    ("a regex that panics", |engine| structure(engine, 2, r".((ab|((é|\w)|\s))|\p{L})", 1)),
];
