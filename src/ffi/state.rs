//! State: prefixes that stay.
//!
//! Keys and values of a prompt stay in the prefix cache when its request ends, block by block, until their blocks are needed
//! for something else, least recently used first. A later prompt that begins with the same blocks, and has the same
//! cache_salt, takes them over. nvllm_get_stats tells how often.
#![allow(unsafe_code, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::guard::guard;
use super::handle::visit;
use super::status::nvllm_status_code::NVLLM_OK;
use super::status::{nvllm_error, nvllm_status};
use std::mem::MaybeUninit;

/// [one] Forgets all prefixes that no sequence holds and that are not pinned, so that later prompts are computed anew.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_reset_prefix_cache(
    engine: *mut nvllm_engine,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_reset_prefix_cache", error, || {
        // SAFETY: the header asks for NULL or a live engine.
        let engine = unsafe { visit(engine)? };
        engine.work(|work| {
            work.engine.reset_prefix_cache();
            Ok(NVLLM_OK)
        })
    })
}

/// [any] Ends what pin_prompt began: from the next step on, the prompt of that request may be evicted. NVLLM_ERR_NOT_FOUND
/// when it was released before, was not to be pinned, or when its request ended before the prompt was computed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_release_prefix(engine: *mut nvllm_engine, request_id: u64) -> nvllm_status {
    guard("nvllm_release_prefix", None, || {
        // SAFETY: the header asks for NULL or a live engine.
        let engine = unsafe { visit(engine)? };
        engine.front().release_prefix(request_id)?;
        Ok(NVLLM_OK)
    })
}
