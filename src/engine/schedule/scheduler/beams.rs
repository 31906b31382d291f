//! Beams of one request: they are paused until the candidates of all of them are known, and then some are forked from others.
//!
//! A paused beam may lose its blocks like any running sequence. It is computed again only when it continues, so a search makes
//! progress even where blocks and rows suffice for one beam alone.

use super::{Event, GetMemory, Room, Scheduler, Sequence, SequenceKey};
use crate::api::beam_search::{Answer, BeamSearch, Ending, SearchStatus};
use base::error::Result;

impl Scheduler {
    /// Makes a step of the search of the request with `key`, all of whose beams are paused.
    pub(super) fn step_search(&mut self, key: SequenceKey, on_event: &mut impl FnMut(&mut Sequence, Event)) {
        let mut search = self.searches.remove(&key.id()).expect("its beams are paused for it");
        let mut beams = self.take_beams(key, search.width());
        match search.step(|slot| beams[slot].completion()) {
            SearchStatus::Running => {
                self.fork(&search, &mut beams);
                self.searches.insert(key.id(), search);
                beams.into_iter().for_each(|beam| self.put_back(beam));
            }
            SearchStatus::Finished => {
                let mut answers = search.into_answers().into_iter();
                for mut beam in beams {
                    beam.table.release(&mut self.pool);
                    // Beams without output end as well.
                    let event = match beam.has_output() {
                        true => Event::SearchResult(answers.next().unwrap_or(NO_ANSWER)),
                        false => Event::Cancelled,
                    };
                    on_event(&mut beam, event);
                }
            }
        }
    }

    /// Forgets the search of a request, of which a beam is taken out for good.
    pub(super) fn forget_search(&mut self, beam: &Sequence) {
        self.searches.remove(&beam.id());
        self.forget_copies(beam);
    }

    /// Preempts the last running sequences until another one can run. When nothing was scheduled, nothing is in flight and no
    /// mask is late, all running sequences are paused beams, which would wait for one another for ever.
    pub(super) fn preempt_paused(&mut self, memory: &mut GetMemory, room: &mut Room) -> Result<()> {
        let is_idle = |sequence: &Sequence| sequence.scheduled == 0 && sequence.in_flight == 0 && !sequence.is_late();
        while self.running.iter().all(is_idle) {
            self.start_waiting(memory, room)?;
            if !self.running.iter().all(is_idle) {
                break;
            }
            let Some(last) = self.running.pop() else { break };
            self.preempt(last);
            room.samples += 1;
        }
        Ok(())
    }

    /// Removes all beams of a request from the queues. `[slots]`
    fn take_beams(&mut self, key: SequenceKey, width: usize) -> Vec<Sequence> {
        let first = self.running.partition_point(|sequence| sequence.key < key.completion(0));
        let end = self.running.partition_point(|sequence| sequence.key <= key.completion(u32::MAX));
        let mut beams = Vec::with_capacity(width);
        beams.extend(self.running.drain(first..end));
        beams.extend((0..width as u32).filter_map(|slot| self.waiting.remove(&key.completion(slot))));
        beams.sort_unstable_by_key(|beam| beam.key);
        beams
    }

    /// Forks beams as the last step of their search decided.
    fn fork(&mut self, search: &BeamSearch, beams: &mut [Sequence]) {
        // Blocks of those that end come first: the copies may need them.
        for (slot, beam) in beams.iter_mut().enumerate() {
            if !search.beams().iter().any(|child| child.slot == slot && child.parent == slot) {
                beam.table.release(&mut self.pool);
            }
        }
        for child in search.beams().iter().filter(|child| child.slot != child.parent) {
            let [beam, parent] = beams.get_disjoint_mut([child.slot, child.parent]).expect("two slots");
            beam.fork_from(parent, &mut self.pool, &mut self.copies, &mut self.state_copies);
        }
        for child in search.beams() {
            beams[child.slot].go_on(child.token);
        }
    }

    /// Returns a beam to the queues: to `waiting` where it has no blocks or there is no row for it.
    fn put_back(&mut self, mut beam: Sequence) {
        if beam.table.is_empty() {
            beam.preempt(&mut self.pool);
            self.waiting.insert(beam.key, beam);
        } else if self.running.len() >= self.limits.rows {
            self.preempt(beam);
        } else {
            let index = self.running.partition_point(|other| other.key < beam.key);
            self.running.insert(index, beam);
        }
    }

    /// Forgets copies to blocks and to a state that a sequence is about to give back: they may soon be something else.
    pub(super) fn forget_copies(&mut self, sequence: &Sequence) {
        let window = sequence.table.window().entries().blocks;
        self.copies.retain(|copy| !sequence.table.blocks().contains(&copy.to) && !window.contains(&copy.to));
        let states = self.pool.states();
        self.state_copies.retain(|copy| {
            let stays = copy.to != sequence.table.state();
            if !stays {
                states.unlock(copy.from);
            }
            stays
        });
    }
}

/// What stands for an answer where the model gave too few tokens any probability.
const NO_ANSWER: Answer =
    Answer { tokens: Vec::new(), score: f32::NEG_INFINITY, logprob: f32::NEG_INFINITY, ending: Ending::Length };
