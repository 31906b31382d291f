//! What an engine does with requests, mostly over a runner that computes nothing.

mod beam_search;
mod completions;
#[path = "../demo/mod.rs"]
mod demo;
mod engine_steps;
#[path = "../fake_runner/mod.rs"]
mod fake_runner;
mod metrics;
mod prefix_cache;
#[path = "../random_requests/mod.rs"]
mod random_requests;
mod samplers;
mod saved_prefix;
mod structure;
mod tokenizer_kinds;
#[path = "../tree/mod.rs"]
mod tree;
mod waiting;
mod windows;
