//! What may other threads ask of an engine? Requests with their options and prompts, checked and queued, and the calls that are made of several requests.

pub mod beam_search;
pub mod generate;
pub mod generation_config;
pub mod handle;
pub mod inbox;
pub mod prompt;
pub mod request;
pub mod sampling_params;
pub mod validation;
