//! Every op of the CUDA backend against obvious loops in f64, in both number types; what chooses tokens against the
//! CPU, to the bit.
//!
//! Inputs are random and rounded to the number type first, so that what remains is the op's own error. Outputs are poisoned
//! with NaN before. The tests need a GPU, so they are ignored unless `--include-ignored` asks for them.
mod attention;
mod bounds;
mod coded;
mod experts;
mod gated_linear;
#[path = "../inputs/mod.rs"]
mod inputs;
mod latent;
mod linear;
mod linear_add_norm;
mod logprobs;
mod process_logits;
mod recurrent;
mod rope_and_attention;
mod rope_and_cache;
mod rows;
mod sample;
mod scene;
mod shared_prefix;
mod step;
