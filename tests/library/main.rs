//! What a model answers, whatever it is stored in, and how it is computed.

mod architecture;
mod asked_golden;
mod bad_folders;
mod bad_gguf;
#[path = "../gguf_file/blocks.rs"]
mod blocks;
mod classifiers;
mod config_numbers;
mod conversation;
#[path = "../demo/mod.rs"]
mod demo;
mod demo_answers;
#[path = "../driver/mod.rs"]
mod driver;
mod embeddings;
mod encoders;
mod encoders_in_gguf;
mod exchange_protocol;
#[path = "../fake_runner/mod.rs"]
mod fake_runner;
mod fingerprints;
mod folder_statuses;
mod gguf;
#[path = "../gguf_file/mod.rs"]
mod gguf_file;
mod given_files;
mod golden;
mod host_experts;
mod kv_cache_int8;
mod metamorphic;
mod mxfp4_experts;
mod parallel;
mod parallel_engine;
mod quantize_folder;
mod quantized_folders;
#[path = "../random_requests/mod.rs"]
mod random_requests;
mod recurrent;
#[path = "../reference/mod.rs"]
mod reference;
mod reranker;
mod same_answers;
mod schedules;
#[path = "../scratch_folder/mod.rs"]
mod scratch_folder;
#[path = "../gguf_file/small.rs"]
mod small;
mod stop_strings;
mod structure_demo;
mod thinking;
#[path = "../tree/mod.rs"]
mod tree;
mod windows;
#[path = "../gguf_file/writer.rs"]
mod writer;
