//! One search by itself. tests/engine/beam_search.rs compares whole searches.

use super::*;

const NOBODY: &[TokenId] = &[];

fn params(width: u32) -> BeamParams {
    BeamParams { width, length_penalty: 0.0, early_stopping: EarlyStopping::WhenFull }
}

fn add(search: &mut BeamSearch, slot: usize, candidates: &[(TokenId, f32)]) -> bool {
    let (tokens, logprobs): (Vec<_>, Vec<_>) = candidates.iter().copied().unzip();
    search.add_candidates(slot, &Chosen { top_tokens: &tokens, top_logprobs: &logprobs, ..Chosen::default() })
}

/// Slot, parent and token of each beam, best first.
fn beams(search: &BeamSearch) -> Vec<(usize, usize, TokenId)> {
    search.beams().iter().map(|beam| (beam.slot, beam.parent, beam.token)).collect()
}

#[test]
fn the_first_child_stays_in_its_parents_slot_and_others_get_those_that_are_left() {
    let mut search = BeamSearch::new(params(3), &[], 0, 9);
    assert!(add(&mut search, 0, &[(5, -1.0), (6, -2.0), (7, -3.0), (8, -4.0)]));
    assert_eq!(search.step(|_| NOBODY), SearchStatus::Running);
    assert_eq!(beams(&search), [(0, 0, 5), (1, 0, 6), (2, 0, 7)]);
    // Two children of the last beam and one of the first: the beam in between ends.
    assert!(!add(&mut search, 2, &[(1, -0.1), (2, -0.2)]));
    assert!(!add(&mut search, 0, &[(3, -2.3), (4, -9.0)]));
    assert!(add(&mut search, 1, &[(1, -8.0), (2, -8.5)]));
    search.step(|_| NOBODY);
    assert_eq!(beams(&search), [(2, 2, 1), (1, 2, 2), (0, 0, 3)]);
}

#[test]
fn the_order_in_which_beams_get_candidates_changes_nothing() {
    let searched = |order: [usize; 2]| {
        let mut search = BeamSearch::new(params(2), &[], 0, 9);
        add(&mut search, 0, &[(5, -1.0), (6, -1.0)]);
        search.step(|_| NOBODY);
        // All are as good: the better beam comes first, and then the token that came first.
        for slot in order {
            add(&mut search, slot, &[(8, -1.0), (3, -1.0)]);
        }
        search.step(|_| NOBODY);
        beams(&search)
    };
    assert_eq!(searched([0, 1]), [(0, 0, 8), (1, 0, 3)]);
    assert_eq!(searched([1, 0]), searched([0, 1]));
}

#[test]
fn an_end_token_is_an_answer_only_among_the_best_and_not_too_early() {
    let mut search = BeamSearch::new(params(2), &[9], 1, 5);
    add(&mut search, 0, &[(9, -0.1), (5, -1.0), (6, -2.0)]);
    search.step(|_| NOBODY);
    assert_eq!(beams(&search), [(0, 0, 5), (1, 0, 6)], "it comes too early");
    add(&mut search, 0, &[(7, -0.1), (9, -0.2)]);
    add(&mut search, 1, &[(7, -0.1), (9, -0.2)]);
    let texts: [&[TokenId]; 2] = [&[5], &[6]];
    assert_eq!(search.step(|slot| texts[slot]), SearchStatus::Running, "the other end is only fourth");
    let answers = search.into_answers();
    assert_eq!(answers.len(), 1);
    assert_eq!((&answers[0].tokens[..], answers[0].ending), (&[5, 9][..], Ending::Token));
}

#[test]
fn a_search_without_any_continuation_is_over() {
    let mut search = BeamSearch::new(params(2), &[], 0, 9);
    add(&mut search, 0, &[(NO_TOKEN, f32::NEG_INFINITY)]);
    assert_eq!(search.step(|_| NOBODY), SearchStatus::Finished);
    assert!(search.into_answers().is_empty());
}
