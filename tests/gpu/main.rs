//! Models on a GPU. Run by `benches/gpu.sh`; on other machines they are ignored.

#[path = "../processes/answers.rs"]
mod answers;
#[path = "../gguf_file/blocks.rs"]
mod blocks;
#[path = "../processes/child.rs"]
mod child;
mod delays;
#[path = "../demo/mod.rs"]
mod demo;
#[path = "../driver/mod.rs"]
mod driver;
mod encoders;
#[path = "../gguf_file/mod.rs"]
mod gguf_file;
mod host_experts;
#[path = "../inputs/mod.rs"]
#[allow(dead_code)]
mod inputs;
mod memory;
mod model;
mod parallel;
mod processes;
mod quantized;
#[path = "../random_requests/mod.rs"]
mod random_requests;
#[path = "../reference/mod.rs"]
mod reference;
#[path = "../cuda_agree/scene.rs"]
#[allow(dead_code)]
mod scene;
#[path = "../scratch_folder/mod.rs"]
mod scratch_folder;
#[path = "../gguf_file/small.rs"]
mod small;
mod state;
#[path = "../tree/mod.rs"]
mod tree;
#[path = "../gguf_file/writer.rs"]
mod writer;

/// The test that is a process of the others.
const PROCESS: &str = "processes::a_process_of_the_other_tests";
