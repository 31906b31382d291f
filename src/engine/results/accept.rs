//! How do the results of a pass, and the ends of sequences, become outputs?
//!
//! Invariant: the end of each sequence is recorded exactly once in `ended`, with its last output if it has any. The metrics
//! count the finish that the output shows.

use crate::EngineHandle;
use crate::results::output::{Finish, Output, OutputQueue};
use crate::schedule::scheduler::Event;
use crate::schedule::sequence::{Pin, Sequence, SequenceStatus};
use std::time::Instant;
use text::tokenizer::Tokenizer;

/// Writes outputs for sequences that got a token or have ended.
pub(crate) struct Postprocessor<'a> {
    handle: &'a EngineHandle,
    tokenizer: Option<&'a Tokenizer>,
    outputs: &'a mut OutputQueue,
    /// Requests of which a completion or beam has ended: one entry per completion or beam.
    ended: &'a mut Vec<u64>,
    generated_tokens: u32,
}

impl<'a> Postprocessor<'a> {
    /// Writes outputs to `outputs` and the ids of requests to `ended`.
    pub fn new(handle: &'a EngineHandle, outputs: &'a mut OutputQueue, ended: &'a mut Vec<u64>) -> Postprocessor<'a> {
        Postprocessor { handle, tokenizer: handle.tokenizer().ok(), outputs, ended, generated_tokens: 0 }
    }

    /// Tokens that the events so far brought; a step of a beam counts as one.
    pub fn generated_tokens(&self) -> u32 {
        self.generated_tokens
    }

    /// Applies what a pass that was collected at `now` did for a sequence.
    pub fn on_event(&mut self, sequence: &mut Sequence, event: Event, now: Instant) {
        if event == Event::Candidates {
            self.generated_tokens += 1;
            return sequence.note_candidates(now);
        }
        if !sequence.has_output() {
            return self.end_without_output(sequence);
        }
        let output = self.outputs.begin();
        match event {
            Event::Token(chosen) => {
                self.generated_tokens += 1;
                self.handle.metrics().count_token(sequence.note_token(now));
                sequence.accept(&chosen, self.tokenizer, now, output);
            }
            Event::Pooled => {
                self.handle.metrics().count_token(sequence.note_token(now));
                sequence.embed(now, output);
            }
            Event::SearchResult(answer) => sequence.end_with_answer(&answer, self.tokenizer, now, output),
            Event::Candidates | Event::Cancelled => sequence.end(Finish::Cancelled, self.tokenizer, output),
        }
        record_end(self.handle, self.ended, sequence, output);
    }

    /// Ends a sequence outside of a pass. The caller releases its blocks.
    pub fn end(&mut self, sequence: &mut Sequence, finish: Finish) {
        if !sequence.has_output() {
            return self.end_without_output(sequence);
        }
        let output = self.outputs.begin();
        sequence.end(finish, self.tokenizer, output);
        record_end(self.handle, self.ended, sequence, output);
    }

    fn end_without_output(&mut self, beam: &mut Sequence) {
        self.ended.push(beam.id());
        beam.status = SequenceStatus::Finished;
    }
}

/// Records the end of a sequence, if `output` is its last one.
fn record_end(handle: &EngineHandle, ended: &mut Vec<u64>, sequence: &Sequence, output: &Output) {
    let Some(finish) = &output.finish else { return };
    handle.metrics().count_finish(finish);
    ended.push(sequence.id());
    if sequence.pin == Pin::Wanted {
        handle.forget_pin(sequence.id());
    }
}
