//! State: pinned and saved prefixes, forks, and memory.
//!
//! The keys and values of a prompt stay in the prefix cache when its request ends, until their blocks are reused, least
//! recently used first. A later prompt that begins with the same blocks and has the same cache_salt uses them.
//! nvllm_get_stats reports the hit rate.
//!
//! A prefix can be saved as bytes and restored in another process, also on another device, for the same model, data type and
//! kv_block_size: requests that begin with it continue as if it had been computed there. The checksum detects damage, not
//! intent: restore only what may write your prompts.
#![allow(unsafe_code, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::guard::guard;
use super::handle::visit;
use super::memory::{self, Buffer};
use super::refusal::Refusal;
use super::requests::{nvllm_request_options, sampling_params};
use super::status::nvllm_status_code::{self, NVLLM_OK};
use super::status::{nvllm_error, nvllm_status};
use std::mem::MaybeUninit;

/// [one] Removes all prefixes that no sequence uses and that are not pinned, so that later prompts are computed again.
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
            work.engine()?.reset_prefix_cache();
            Ok(NVLLM_OK)
        })
    })
}

/// [one] Gives memory of the KV cache back, to the GPU or, on the CPU, to the system: that of all blocks that no running request and no
/// pinned prompt holds. Stores the number of bytes in freed_bytes, which may be NULL.
///
/// The cached prompts of these blocks are evicted, also those that nvllm_restore_prefix restored. Requests go on, between any two
/// steps. If no byte can be given back, nothing changes and nothing is evicted.
///
/// Memory is mapped again on demand, lowest block first; until then, cached
/// prompts are evicted as in a smaller cache. If there is no memory then, requests wait and are preempted as if the cache were
/// full, and a request with no other one running ends with NVLLM_FINISH_ERROR and NVLLM_ERR_OUT_OF_MEMORY. The engine remains usable.
///
/// Memory goes back in pages, on a GPU in pieces of 2 MiB or, if that is more, of about 1/32 of a layer's share of the cache. Blocks
/// in use are not moved, and what shares a page or a piece with one stays. kv_cache_bytes_mapped of nvllm_stats is what is left.
///
/// The call waits for a pass that runs on the GPU, but finishes no pass. It frees 0 bytes on a GPU whose driver cannot map memory in
/// pieces, and on the CPU on systems other than Linux, Android and Windows. NVLLM_ERR_UNSUPPORTED if several ranks compute
/// the model (tensor_parallel_size).
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_trim(
    engine: *mut nvllm_engine,
    freed_bytes: *mut u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_trim", error, || {
        // SAFETY: the header asks for NULL or a live engine.
        let engine = unsafe { visit(engine)? };
        check_place("freed_bytes", freed_bytes)?;
        let freed = engine.work(|work| Ok(work.engine()?.trim()?))?;
        // SAFETY: aligned by the check above; the header asks for NULL or a place for the number.
        unsafe { store(freed_bytes, freed) };
        Ok(NVLLM_OK)
    })
}

/// [any] Releases the prompt that pin_prompt pinned: from the next step on it may be evicted. NVLLM_ERR_NOT_FOUND if it was
/// released before, was not to be pinned, or if its request ended before the prompt was computed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_release_prefix(engine: *mut nvllm_engine, request_id: u64) -> nvllm_status {
    // SAFETY: the same requirements.
    guard("nvllm_release_prefix", None, || unsafe { release_prefix(engine, request_id) })
}

/// [any] As nvllm_release_prefix, and says in *error why it failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_release_prefix_with_error(
    engine: *mut nvllm_engine,
    request_id: u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    // SAFETY: the same requirements.
    guard("nvllm_release_prefix_with_error", error, || unsafe { release_prefix(engine, request_id) })
}

/// Releases a pinned prompt.
///
/// # Safety
///
/// `engine` is NULL or live.
unsafe fn release_prefix(engine: *mut nvllm_engine, request_id: u64) -> Result<nvllm_status_code, Refusal> {
    // SAFETY: promised by the caller.
    let engine = unsafe { visit(engine)? };
    engine.handle().release_prefix(request_id)?;
    Ok(NVLLM_OK)
}

/// [one] Saves the longest cached prefix of these tokens for this cache_salt, in whole KV blocks: that of a request that has
/// ended, or of one that is running, as far as it is computed. saved_tokens may be NULL.
///
/// The buffer is used as by nvllm_tokenize. NVLLM_ERR_NOT_FOUND if not one block of it is cached. With several ranks, a pass that a
/// budget has left in the middle is computed to its end first.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_save_prefix(
    engine: *mut nvllm_engine,
    tokens: *const u32,
    num_tokens: usize,
    cache_salt: u64,
    buffer: *mut u8,
    capacity: usize,
    needed: *mut usize,
    saved_tokens: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_save_prefix", error, || {
        // SAFETY: the header asks for NULL or a live engine, for num_tokens tokens, and for room for capacity bytes.
        let (engine, tokens, buffer) = unsafe {
            let buffer = Buffer::new("buffer", buffer, capacity, needed)?;
            (visit(engine)?, memory::slice("tokens", tokens, num_tokens)?, buffer)
        };
        check_place("saved_tokens", saved_tokens)?;
        let saved = engine.work(|work| {
            let engine = work.engine()?;
            let prefix = engine.find_prefix(tokens, cache_salt)?;
            engine.save_prefix(&prefix, buffer.room(prefix.bytes())?)?;
            Ok(prefix.tokens())
        })?;
        // SAFETY: aligned by the check above; the header asks for NULL or a place for the number.
        unsafe { store(saved_tokens, saved) };
        Ok(NVLLM_OK)
    })
}

/// [one] Puts a saved prefix into the prefix cache, where the next request that begins with its tokens and has its
/// cache_salt finds it. restored_tokens may be NULL.
///
/// Its blocks can be evicted as those of any prompt that has ended: add the request soon, with pin_prompt if the prefix is
/// to stay. NVLLM_ERR_INVALID_ARGUMENT if the bytes are damaged or belong to another model, NVLLM_ERR_OUT_OF_MEMORY if too
/// few blocks are free. In both cases nothing has changed.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_restore_prefix(
    engine: *mut nvllm_engine,
    bytes: *const u8,
    num_bytes: usize,
    restored_tokens: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_restore_prefix", error, || {
        // SAFETY: the header asks for NULL or a live engine, and for num_bytes bytes.
        let (engine, bytes) = unsafe { (visit(engine)?, memory::slice("bytes", bytes, num_bytes)?) };
        check_place("restored_tokens", restored_tokens)?;
        let restored = engine.work(|work| Ok(work.engine()?.restore_prefix(bytes)?))?;
        // SAFETY: aligned by the check above; the header asks for NULL or a place for the number.
        unsafe { store(restored_tokens, restored) };
        Ok(NVLLM_OK)
    })
}

/// [one] Adds a request whose prompt is the whole current text of a live one: its prompt, and what its completion `index`
/// has generated. It shares the KV blocks that are computed, and the cache_salt. Its outputs begin with what follows.
///
/// options and new_request_id are used as by nvllm_add_request. NVLLM_ERR_NOT_FOUND if that completion has ended or never
/// existed.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_fork(
    engine: *mut nvllm_engine,
    request_id: u64,
    index: u32,
    options: *const nvllm_request_options,
    new_request_id: *mut u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_fork", error, || {
        // SAFETY: the header asks for NULL or a live engine.
        let engine = unsafe { visit(engine)? };
        check_place("new_request_id", new_request_id)?;
        // SAFETY: the header asks for NULL or options of struct_size bytes.
        let params = unsafe { sampling_params(engine.handle(), options)? };
        let id = engine.work(|work| Ok(work.engine()?.fork(request_id, index, params)?))?;
        // SAFETY: aligned by the check above; the header asks for NULL or a place for the id.
        unsafe { store(new_request_id, id) };
        Ok(NVLLM_OK)
    })
}

/// Refuses a place for a number that is not aligned. NULL is none, and allowed.
fn check_place<T>(what: &'static str, place: *mut T) -> Result<(), Refusal> {
    if place.is_aligned() { Ok(()) } else { Err(Refusal::Misaligned(what, align_of::<T>())) }
}

/// Stores a number where there is a place for it.
///
/// # Safety
///
/// `place` is NULL, or aligned and writable.
unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: promised by the caller.
        unsafe { place.write(value) };
    }
}
