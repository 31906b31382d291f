//! The protocol by which GPUs exchange rows (`kernels/common/exchange.cuh`), as a model of which every order of events is tried.
//!
//! Each rank has a word in each row of an exchange. It pushes the word of a row into its place of a slot of every other rank, takes the
//! words of the others from its own slot, and leaves EMPTY behind. It pushes some rows further than it takes. In two steps, a rank pushes
//! the word of a row to the row's owner alone, who takes the words of all, and then pushes one to each. A word that was pushed
//! arrives at any later time, and two for one place in the order in which they were pushed. A rank begins an exchange when it has ended the
//! one before.

use std::collections::HashSet;

const RANKS_MAX: usize = 3;
const ROWS_MAX: usize = 3;
const EMPTY: u8 = 0;

/// The protocol at some size, and three ways to spoil it.
#[derive(Clone, Copy)]
struct Protocol {
    ranks: usize,
    exchanges: u8,
    rows: usize,
    /// Whether exchanges go in two steps: none, all, or every other one.
    two_shot: TwoShot,
    /// Rows that a rank pushes before it takes the first one, besides that one.
    ahead: usize,
    /// Whether a rank pushes a row before it takes it, or afterwards.
    pushes_first: bool,
    slots: u8,
    /// Whether a rank leaves EMPTY behind before its exchange ends, or after the first pushes of the next one.
    clears_at_once: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TwoShot {
    Never,
    Always,
    /// With this parity.
    EveryOther(u8),
}

/// Three ranks, each of which has one row.
const ONE_ROW: Protocol = Protocol {
    ranks: 3,
    exchanges: 5,
    rows: 1,
    two_shot: TwoShot::Never,
    ahead: 0,
    pushes_first: true,
    slots: 2,
    clears_at_once: true,
};

/// A step of one rank in an exchange: of a row, towards or from another rank.
#[derive(Clone, Copy)]
enum Step {
    Push(usize, usize),
    Take(usize, usize),
    /// In the slot of this exchange, or of the one before.
    Clear(usize, usize, u8),
}

#[derive(Clone, Hash, PartialEq, Eq)]
struct State {
    /// Exchange and step of each rank.
    at: [(u8, u8); RANKS_MAX],
    /// What lies in each place, and what is on its way to it, first what arrives first. `[to][slot][row][from]`
    places: [[[[u8; RANKS_MAX]; ROWS_MAX]; 2]; RANKS_MAX],
    flying: [[[[[u8; 2]; RANKS_MAX]; ROWS_MAX]; 2]; RANKS_MAX],
}

impl Protocol {
    /// What rank `rank` does in exchange `exchange`.
    fn steps(&self, rank: usize, exchange: u8) -> Vec<Step> {
        let others = || (0..self.ranks).filter(move |other| *other != rank);
        let in_two_steps = match self.two_shot {
            TwoShot::Never => false,
            TwoShot::Always => true,
            // Two after the other, so that each slot is used by both in turn.
            TwoShot::EveryOther(parity) => exchange / 2 % 2 == parity,
        };
        if in_two_steps {
            return (0..self.rows).flat_map(|row| self.two_steps(rank, row)).collect();
        }
        let push = |row: usize| others().filter(move |_| row < self.rows).map(move |other| Step::Push(row, other));
        let mut steps: Vec<Step> = (0..self.ahead).flat_map(push).collect();
        for row in 0..self.rows {
            if self.pushes_first {
                steps.extend(push(row + self.ahead));
            }
            if row == 0 && !self.clears_at_once && exchange > 0 {
                let rows = 0..self.rows;
                steps.extend(rows.flat_map(|row| others().map(move |other| Step::Clear(row, other, 1))));
            }
            for other in others() {
                steps.push(Step::Take(row, other));
                if self.clears_at_once {
                    steps.push(Step::Clear(row, other, 0));
                }
            }
            if !self.pushes_first {
                steps.extend(push(row + self.ahead));
            }
        }
        steps
    }

    /// What rank `rank` does with a row that has an owner.
    fn two_steps(&self, rank: usize, row: usize) -> Vec<Step> {
        let others = || (0..self.ranks).filter(move |other| *other != rank);
        let take = |from: usize| [Step::Take(row, from), Step::Clear(row, from, 0)];
        let owner = row % self.ranks;
        match (owner == rank, self.pushes_first) {
            (true, _) => others().flat_map(take).chain(others().map(|to| Step::Push(row, to))).collect(),
            (false, true) => [Step::Push(row, owner)].into_iter().chain(take(owner)).collect(),
            (false, false) => take(owner).into_iter().chain([Step::Push(row, owner)]).collect(),
        }
    }

    fn slot(&self, exchange: u8) -> usize {
        usize::from(exchange % self.slots)
    }

    /// The state after the next step of `rank`. `None` where it waits or has ended.
    fn step(&self, state: &State, rank: usize) -> Result<Option<State>, String> {
        let (exchange, index) = state.at[rank];
        if exchange == self.exchanges {
            return Ok(None);
        }
        let steps = self.steps(rank, exchange);
        let mut next = state.clone();
        match steps[usize::from(index)] {
            Step::Push(row, to) => {
                let flying = &mut next.flying[to][self.slot(exchange)][row][rank];
                let Some(free) = flying.iter_mut().find(|word| **word == EMPTY) else { return Ok(None) };
                *free = exchange + 1;
            }
            Step::Take(row, from) => match state.places[rank][self.slot(exchange)][row][from] {
                EMPTY => return Ok(None),
                word if word == exchange + 1 => {}
                word => return Err(format!("rank {rank} found the word of exchange {} in {exchange}", word - 1)),
            },
            Step::Clear(row, from, before) => next.places[rank][self.slot(exchange - before)][row][from] = EMPTY,
        }
        next.at[rank] = match usize::from(index) + 1 == steps.len() {
            true => (exchange + 1, 0),
            false => (exchange, index + 1),
        };
        Ok(Some(next))
    }

    /// Tries every order. The number of states, or what went wrong in one of them.
    fn explore(&self) -> Result<usize, String> {
        let begin = State { at: [(0, 0); RANKS_MAX], places: Default::default(), flying: Default::default() };
        let mut seen = HashSet::from([begin.clone()]);
        let mut open = vec![begin];
        while let Some(state) = open.pop() {
            let mut after = Vec::new();
            for rank in 0..self.ranks {
                after.extend(self.step(&state, rank)?);
            }
            let slots = (0..self.ranks).flat_map(|to| (0..2).map(move |slot| (to, slot)));
            let rows = slots.flat_map(|(to, slot)| (0..self.rows).map(move |row| (to, slot, row)));
            for (to, slot, row) in rows {
                for from in 0..self.ranks {
                    let [first, second] = state.flying[to][slot][row][from];
                    if first != EMPTY {
                        let mut next = state.clone();
                        next.places[to][slot][row][from] = first;
                        next.flying[to][slot][row][from] = [second, EMPTY];
                        after.push(next);
                    }
                }
            }
            let has_ended = state.at[..self.ranks].iter().all(|(exchange, _)| *exchange == self.exchanges);
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
    let states = ONE_ROW.explore().unwrap();
    assert!(states > 10_000, "{states} states");
}

#[test]
fn rows_may_be_pushed_any_number_of_rows_before_they_are_taken() {
    for ahead in 0..=3 {
        let states = Protocol { ranks: 2, exchanges: 4, rows: 3, ahead, ..ONE_ROW }.explore().unwrap();
        assert!(states > 100, "{states} states");
    }
    let states = Protocol { exchanges: 2, rows: 2, ahead: 1, ..ONE_ROW }.explore().unwrap();
    assert!(states > 10_000, "{states} states");
}

#[test]
fn ranks_that_take_a_row_before_they_push_it_wait_for_ever() {
    let error = Protocol { rows: 2, pushes_first: false, ..ONE_ROW }.explore().unwrap_err();
    assert!(error.contains("all ranks wait"), "{error}");
}

#[test]
fn one_slot_is_too_few() {
    let error = Protocol { slots: 1, ..ONE_ROW }.explore().unwrap_err();
    assert!(error.contains("found the word of exchange") || error.contains("all ranks wait"), "{error}");
}

#[test]
fn a_word_that_is_cleared_after_the_next_pushes_is_lost() {
    let error = Protocol { clears_at_once: false, ..ONE_ROW }.explore().unwrap_err();
    assert!(error.contains("found the word of exchange") || error.contains("all ranks wait"), "{error}");
}

#[test]
fn rows_that_go_to_an_owner_and_come_back_arrive_in_every_order_also_between_exchanges_in_one_step() {
    for two_shot in [TwoShot::Always, TwoShot::EveryOther(0), TwoShot::EveryOther(1)] {
        let one_row = Protocol { two_shot, ..ONE_ROW };
        // With fewer rows than ranks, some ranks own nothing and hear from the owner alone.
        for protocol in
            [one_row, Protocol { exchanges: 3, rows: 2, ..one_row }, Protocol { ranks: 2, rows: 3, ..one_row }]
        {
            let states = protocol.explore().unwrap();
            assert!(states > 100, "{states} states");
        }
        let error = Protocol { slots: 1, ..one_row }.explore().err();
        assert!(two_shot == TwoShot::Always || error.is_some(), "one slot is enough");
        let error = Protocol { pushes_first: false, ..one_row }.explore().unwrap_err();
        assert!(error.contains("all ranks wait"), "{error}");
    }
}
