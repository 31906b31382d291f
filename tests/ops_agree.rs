//! Every op of every backend against its specification.
//!
//! Each op has one table of named cases, a row a case. Each case is run in every column: a backend in one of its ways to
//! compute, that is each instruction set of this machine and one or two threads. A further backend is one more column.

#[path = "ops_agree/activate_mul.rs"]
mod activate_mul;
#[path = "ops_agree/attention.rs"]
mod attention;
#[path = "ops_agree/coded.rs"]
mod coded;
#[path = "ops_agree/column.rs"]
mod column;
#[path = "ops_agree/copy_blocks.rs"]
mod copy_blocks;
#[path = "ops_agree/gated_linear.rs"]
mod gated_linear;
#[path = "ops_agree/gather.rs"]
mod gather;
mod inputs;
#[path = "ops_agree/integers.rs"]
mod integers;
#[path = "ops_agree/join_columns.rs"]
mod join_columns;
#[path = "ops_agree/linear.rs"]
mod linear;
#[path = "ops_agree/linear_add_norm.rs"]
mod linear_add_norm;
#[path = "ops_agree/logprobs.rs"]
mod logprobs;
#[path = "ops_agree/norm.rs"]
mod norm;
#[path = "ops_agree/process_logits.rs"]
mod process_logits;
#[path = "ops_agree/ranks.rs"]
mod ranks;
#[path = "ops_agree/reduce_add_norm.rs"]
mod reduce_add_norm;
#[path = "ops_agree/rope_and_cache.rs"]
mod rope_and_cache;
#[path = "ops_agree/sample.rs"]
mod sample;
#[path = "ops_agree/scale_logits.rs"]
mod scale_logits;
#[path = "ops_agree/scene.rs"]
mod scene;
