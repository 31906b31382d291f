//! Every op of every backend against its specification.
//!
//! Each op has one table of named cases, a row a case. Each case is run in every column: a backend in one of its ways to
//! compute, that is each instruction set of this machine and one or two threads. A further backend is one more column.

mod activate;
mod activate_mul;
mod adapter;
mod attention;
mod coded;
mod codings;
mod column;
mod copy_blocks;
mod experts;
mod gated_linear;
mod gather;
mod head_linear;
#[path = "../inputs/mod.rs"]
mod inputs;
mod integers;
mod join_columns;
mod join_slots;
mod linear;
mod linear_add_norm;
mod logprobs;
mod norm;
mod place_heads;
mod process_logits;
mod ranks;
mod recurrent;
mod reduce_add_norm;
mod rope_and_cache;
mod sample;
mod scale_logits;
mod scene;
mod sigmoid_mul;
#[path = "../tree/mod.rs"]
mod tree;
