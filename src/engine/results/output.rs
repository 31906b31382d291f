//! What does an engine return? Outputs of completions, reports of steps, and statistics.

use crate::results::logprobs::Logprobs;
use crate::schedule::blocks::CacheCounts;
use crate::{EngineHandle, Sink};
use base::TokenId;
use base::error::Error;
use std::collections::VecDeque;
use std::sync::Arc;

/// The progress of one completion of a request: tokens that are new since its last output, and how it ended if it did.
#[derive(Debug, Default)]
pub struct Output {
    /// The request.
    pub request_id: u64,
    /// The tag that the caller gave the request.
    pub tag: u64,
    /// Index of the completion within its request, from 0.
    pub index: u32,
    /// New tokens.
    pub token_ids: Vec<TokenId>,
    /// New text, which continues the prompt, whole characters only. The bytes of an incomplete character wait for the next tokens, and so does text that
    /// may become a stop string.
    pub text: String,
    /// The embedding of a request with pooling, in its last output. `[hidden]`
    pub embedding: Vec<f32>,
    /// The scores that a classifier gives a text, in its last output. `[labels]`
    pub scores: Vec<f32>,
    /// How it ended; `None` while it continues.
    pub finish: Option<Finish>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the prompt that came from the prefix cache or from another completion.
    pub cached_tokens: u32,
    /// Tokens generated so far, a stop token included that was left out of `token_ids`.
    pub completion_tokens: u32,
    /// Tokens of reasoning so far, without its markers; 0 where the request does not limit or count them.
    pub reasoning_tokens: u32,
    /// From adding the request to its first token or its embedding, in microseconds; 0 before that.
    pub time_to_first_token_us: u64,
    /// Log-probabilities of `token_ids`, if the request asks for them; else empty.
    pub logprobs: Logprobs,
    /// Log-probabilities of the prompt's tokens except its first, in the output with the first token of the first completion, if
    /// the request asks for them; else empty.
    pub prompt_logprobs: Logprobs,
    /// The sum over all tokens so far that were in `token_ids`, and of an answer that beam search found over its end token, too; 0
    /// where the request does not ask for log-probabilities.
    pub cumulative_logprob: f32,
    /// Of an answer that beam search found: the higher the better. Else 0.
    pub score: f32,
}

/// How a completion ended.
#[derive(Clone, Debug)]
pub enum Finish {
    /// By an EOS or stop token, or a stop string; with its embedding.
    Stop,
    /// By max_tokens, max_model_len or the size of the whole KV cache.
    Length,
    /// By a call.
    Cancelled,
    /// By a failure. Completions of one request share it.
    Error(Arc<Error>),
    /// By waiting for longer than its `max_wait`: it has never run.
    Expired,
}

/// What one call of `step` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Outputs that wait to be polled.
    pub outputs: usize,
    /// Sequences that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Passes finished in this call.
    pub passes: u32,
    /// 1 when a pass was begun and is not finished.
    pub in_flight: u32,
    /// Prompt tokens computed in this call, cached ones not counted.
    pub prefill_tokens: u32,
    /// Tokens generated in this call.
    pub decode_tokens: u32,
    /// Microseconds spent in this call.
    pub elapsed_us: u64,
}

/// Counters since the engine opened, and gauges of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Passes.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prompt_tokens: u64,
    /// Prompt tokens taken over from the prefix cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Sequences that had to give their blocks back.
    pub preemptions: u64,
    /// Time spent in passes, in microseconds.
    pub step_time_us: u64,
    /// Sequences that run.
    pub running: u32,
    /// Sequences that wait.
    pub waiting: u32,
    /// Blocks of the KV cache.
    pub kv_blocks_total: u32,
    /// Blocks of the KV cache that sequences hold, or that are pinned.
    pub kv_blocks_used: u32,
    /// Promised to prompts that are pinned; a block counts for each prompt that has it.
    pub kv_blocks_pinned: u32,
    /// Bytes that the engine took on the GPU that has most of them; 0 on the CPU.
    pub gpu_memory_bytes: u64,
    /// What the prefix cache has done.
    pub prefix_cache: CacheCounts,
    /// Bytes of the KV cache that have memory.
    pub kv_cache_bytes_mapped: u64,
}

/// Outputs on their way to the caller. Their memory is used again.
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    /// Made since the last delivery.
    fresh: VecDeque<Output>,
    /// To be polled.
    waiting: VecDeque<Output>,
    /// The one that was polled last.
    shown: Option<Output>,
    spare: Vec<Output>,
}

/// Outputs whose memory is kept for the next ones; what a burst needed beyond that is freed.
const SPARE_OUTPUTS: usize = 1024;

impl OutputQueue {
    /// A new output at the end of the queue, without tokens, text and finish.
    pub fn begin(&mut self) -> &mut Output {
        let output = self.spare.pop().unwrap_or_default();
        self.fresh.push_back(output);
        self.fresh.back_mut().expect("one was just pushed")
    }

    /// Outputs that wait to be polled or delivered.
    pub fn len(&self) -> usize {
        self.fresh.len() + self.waiting.len()
    }

    /// Leaves new outputs to polling.
    pub fn keep_fresh(&mut self) {
        self.waiting.append(&mut self.fresh);
    }

    /// The oldest output made since the last delivery.
    pub fn pop_fresh(&mut self) -> Option<Output> {
        self.fresh.pop_front()
    }

    /// The oldest output of all.
    fn pop(&mut self) -> Option<Output> {
        self.waiting.pop_front().or_else(|| self.fresh.pop_front())
    }

    /// Leaves an output to polling.
    pub fn keep(&mut self, output: Output) {
        self.waiting.push_back(output);
    }

    /// Passes all outputs to `sink`, the oldest first. When it breaks, the request of the output is cancelled.
    pub fn drain_into(&mut self, sink: &mut Sink, handle: &EngineHandle) {
        while let Some(output) = self.pop() {
            if sink(&output).is_break() {
                // If it has ended with this output, there is nothing left to cancel.
                let _ = handle.cancel(output.request_id);
            }
            self.recycle(output);
        }
    }

    /// The oldest output of all, readable until the next call.
    pub fn show(&mut self) -> Option<&Output> {
        if let Some(seen) = self.shown.take() {
            self.recycle(seen);
        }
        self.shown = self.pop();
        self.shown.as_ref()
    }

    /// Takes back the memory of an output.
    pub fn recycle(&mut self, mut output: Output) {
        if self.spare.len() < SPARE_OUTPUTS {
            output.token_ids.clear();
            output.text.clear();
            output.embedding.clear();
            output.scores.clear();
            output.finish = None;
            output.logprobs.clear();
            output.prompt_logprobs.clear();
            output.score = 0.0;
            self.spare.push(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_in_order_and_their_memory_comes_back_empty() {
        let mut queue = OutputQueue::default();
        for id in 1..=3 {
            let output = queue.begin();
            assert!(output.token_ids.is_empty() && output.text.is_empty() && output.finish.is_none());
            output.request_id = id;
            output.token_ids.push(7);
            output.text.push_str("seven");
            output.finish = Some(Finish::Stop);
        }
        queue.keep_fresh();
        queue.begin().request_id = 4;
        assert_eq!(queue.len(), 4);
        let seen: Vec<u64> = std::iter::from_fn(|| queue.show().map(|output| output.request_id)).collect();
        assert_eq!(seen, [1, 2, 3, 4]);
        let again = queue.begin();
        assert!(again.token_ids.is_empty() && again.text.is_empty() && again.finish.is_none());
        assert!(queue.spare.iter().any(|output| output.text.capacity() > 0));
    }
}
