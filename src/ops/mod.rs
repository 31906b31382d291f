//! The verbs that models are written in: a contract, a check of shapes, one call of the backend.

mod activate_mul;
mod add_norm;
mod attention;
mod copy_blocks;
mod embedding;
mod gated_linear;
mod gather;
mod join_columns;
mod keep_hidden_states;
mod linear;
mod logprobs;
mod norm;
mod process_logits;
mod reduce_add_norm;
mod rope_and_attention;
mod rope_and_cache;
mod sample;
mod scale_logits;

pub use activate_mul::activate_mul;
pub use add_norm::add_norm;
pub use attention::attention;
pub use copy_blocks::copy_blocks;
pub use embedding::embedding;
pub use gated_linear::gated_linear;
pub use gather::gather;
pub use join_columns::join_columns;
pub use keep_hidden_states::keep_hidden_states;
pub use linear::linear;
pub use logprobs::logprobs;
pub use norm::norm;
pub use process_logits::process_logits;
pub use reduce_add_norm::reduce_add_norm;
pub use rope_and_attention::rope_and_attention;
pub use rope_and_cache::rope_and_cache;
pub use sample::sample;
pub use scale_logits::scale_logits;
