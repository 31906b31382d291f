//! The protocol by which GPUs exchange rows (`kernels/common/exchange.cuh`), as a model of which every order of events is tried.
//!
//! Each rank pushes a word into its place of a slot of every other rank, takes the words of the others from its own slot, and leaves
//! EMPTY behind. A word that was pushed arrives at any later time, and two for one place in the order in which they were pushed. A rank
//! begins an exchange when it has ended the one before.

use std::collections::HashSet;

const RANKS: usize = 3;
const EXCHANGES: u8 = 5;
const EMPTY: u8 = 0;

/// The protocol, and two ways to spoil it.
#[derive(Clone, Copy)]
struct Protocol {
    slots: u8,
    /// Whether a rank leaves EMPTY behind before its exchange ends, or after the pushes of the next one.
    clears_at_once: bool,
}

/// A step of one rank in an exchange.
#[derive(Clone, Copy)]
enum Step {
    Push(usize),
    Take(usize),
    /// In the slot of this exchange, or of the one before.
    Clear(usize, u8),
}

#[derive(Clone, Hash, PartialEq, Eq)]
struct State {
    /// Exchange and step of each rank.
    at: [(u8, u8); RANKS],
    /// What lies in each place, and what is on its way to it, first what arrives first. `[to][slot][from]`
    places: [[[u8; RANKS]; 2]; RANKS],
    flying: [[[[u8; 2]; RANKS]; 2]; RANKS],
}

impl Protocol {
    /// What rank `rank` does in exchange `exchange`.
    fn steps(&self, rank: usize, exchange: u8) -> Vec<Step> {
        let others = || (0..RANKS).filter(move |other| *other != rank);
        let mut steps: Vec<Step> = others().map(Step::Push).collect();
        if !self.clears_at_once && exchange > 0 {
            steps.extend(others().map(|other| Step::Clear(other, 1)));
        }
        for other in others() {
            steps.push(Step::Take(other));
            if self.clears_at_once {
                steps.push(Step::Clear(other, 0));
            }
        }
        steps
    }

    fn slot(&self, exchange: u8) -> usize {
        usize::from(exchange % self.slots)
    }

    /// The state after the next step of `rank`. `None` where it waits or has ended.
    fn step(&self, state: &State, rank: usize) -> Result<Option<State>, String> {
        let (exchange, index) = state.at[rank];
        if exchange == EXCHANGES {
            return Ok(None);
        }
        let steps = self.steps(rank, exchange);
        let mut next = state.clone();
        match steps[usize::from(index)] {
            Step::Push(to) => {
                let flying = &mut next.flying[to][self.slot(exchange)][rank];
                let Some(free) = flying.iter_mut().find(|word| **word == EMPTY) else { return Ok(None) };
                *free = exchange + 1;
            }
            Step::Take(from) => match state.places[rank][self.slot(exchange)][from] {
                EMPTY => return Ok(None),
                word if word == exchange + 1 => {}
                word => return Err(format!("rank {rank} found the word of exchange {} in {exchange}", word - 1)),
            },
            Step::Clear(from, before) => next.places[rank][self.slot(exchange - before)][from] = EMPTY,
        }
        next.at[rank] = match usize::from(index) + 1 == steps.len() {
            true => (exchange + 1, 0),
            false => (exchange, index + 1),
        };
        Ok(Some(next))
    }

    /// Tries every order. The number of states, or what went wrong in one of them.
    fn explore(&self) -> Result<usize, String> {
        let begin = State { at: [(0, 0); RANKS], places: Default::default(), flying: Default::default() };
        let mut seen = HashSet::from([begin.clone()]);
        let mut open = vec![begin];
        while let Some(state) = open.pop() {
            let mut after = Vec::new();
            for rank in 0..RANKS {
                after.extend(self.step(&state, rank)?);
            }
            for to in 0..RANKS {
                for slot in 0..2 {
                    for from in 0..RANKS {
                        let [first, second] = state.flying[to][slot][from];
                        if first != EMPTY {
                            let mut next = state.clone();
                            next.places[to][slot][from] = first;
                            next.flying[to][slot][from] = [second, EMPTY];
                            after.push(next);
                        }
                    }
                }
            }
            let has_ended = state.at.iter().all(|(exchange, _)| *exchange == EXCHANGES);
            if after.is_empty() && !has_ended {
                return Err(format!("all ranks wait: {:?}", state.at));
            }
            open.extend(after.into_iter().filter(|next| seen.insert(next.clone())));
        }
        Ok(seen.len())
    }
}

#[test]
fn every_order_of_events_brings_each_word_to_its_exchange() {
    let states = Protocol { slots: 2, clears_at_once: true }.explore().unwrap();
    assert!(states > 10_000, "{states} states");
}

#[test]
fn one_slot_is_too_few() {
    let error = Protocol { slots: 1, clears_at_once: true }.explore().unwrap_err();
    assert!(error.contains("found the word of exchange") || error.contains("all ranks wait"), "{error}");
}

#[test]
fn a_word_that_is_cleared_after_the_next_pushes_is_lost() {
    let error = Protocol { slots: 2, clears_at_once: false }.explore().unwrap_err();
    assert!(error.contains("found the word of exchange") || error.contains("all ranks wait"), "{error}");
}
