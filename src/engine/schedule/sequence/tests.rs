//! One sequence by itself.

use super::*;
use crate::adjustments::LogitBiases;
use crate::api::prompt::{PromptPart, joined};
use crate::api::request::CheckedParams;
use crate::dry::History;
use crate::options::PrefixCache;
use crate::schedule::blocks::WindowEntries;

const NO_SIBLING: (&[compute::batch::BlockId], WindowEntries) = (&[], WindowEntries { blocks: &[], released: 0 });

/// A greedy request for tests: `prompt`, at most `limit` tokens in all, token 0 ends it.
pub fn sequence(id: u64, prompt: &[TokenId], limit: usize, params: SamplingParams) -> Sequence {
    sequence_of(id, vec![PromptPart::Tokens(prompt.to_vec())], limit, params)
}

/// The same for a prompt of several parts.
pub fn sequence_of(id: u64, parts: Vec<PromptPart>, limit: usize, params: SamplingParams) -> Sequence {
    let (prompt, embeddings) = joined(parts);
    let (key, pinning) = (SequenceKey::new(params.priority, id), params.pinning);
    let options = CheckedParams {
        params,
        ending_tokens: vec![0],
        stop_strings: None,
        biases: Vec::new(),
        result: Default::default(),
    };
    let request = Request {
        second_text: usize::MAX,
        adjustments: LogitBiases::new(&options.params, &[], &prompt),
        dry: History::new(&options.params, &prompt, None),
        prompt,
        embeddings,
        options: Arc::new(options),
        matcher: None,
        thinking: None,
        limit,
        engine_seed: 99,
        added_at: Instant::now(),
    };
    let mut sequence = Sequence::new(key, Arc::new(request), pinning);
    sequence.begin();
    sequence
}

fn accept(sequence: &mut Sequence, token: TokenId) -> Output {
    let mut output = Output::default();
    sequence.accept(&Chosen { token, ..Chosen::default() }, None, Instant::now(), &mut output);
    output
}

#[test]
fn a_token_is_news_and_the_limit_ends_with_length() {
    let mut it = sequence(5, &[1, 2], 4, SamplingParams { tag: 77, ..SamplingParams::default() });
    let first = accept(&mut it, 3);
    assert_eq!((first.request_id, first.tag, first.prompt_tokens, first.completion_tokens), (5, 77, 2, 1));
    assert!(first.finish.is_none() && first.token_ids == [3]);
    let second = accept(&mut it, 4);
    assert!(matches!(second.finish, Some(Finish::Length)) && second.token_ids == [4]);
    assert_eq!((it.status, second.completion_tokens), (SequenceStatus::Finished, 2));
}

#[test]
fn a_stop_token_ends_and_is_dropped_or_kept_but_always_counted() {
    for (stop_token, expected) in [(StopToken::Dropped, &[][..]), (StopToken::Kept, &[0][..])] {
        let mut it = sequence(1, &[1], 9, SamplingParams { stop_token, ..SamplingParams::default() });
        let output = accept(&mut it, 0);
        assert!(matches!(output.finish, Some(Finish::Stop)), "{stop_token:?}");
        assert_eq!((&output.token_ids[..], output.completion_tokens), (expected, 1), "{stop_token:?}");
    }
}

#[test]
fn a_stop_token_at_the_limit_is_a_stop() {
    let mut it = sequence(1, &[1], 2, SamplingParams::default());
    assert!(matches!(accept(&mut it, 0).finish, Some(Finish::Stop)));
}

#[test]
fn ending_tokens_are_banned_until_min_tokens_are_there() {
    let mut it = sequence(1, &[1], 9, SamplingParams { min_tokens: 2, ..SamplingParams::default() });
    assert_eq!(it.banned_tokens(), [0]);
    accept(&mut it, 5);
    assert_eq!(it.banned_tokens(), [0]);
    accept(&mut it, 5);
    assert!(it.banned_tokens().is_empty());
}

#[test]
fn random_numbers_come_from_the_own_seed_or_from_engine_and_id() {
    let own = sequence(3, &[1, 2], 9, SamplingParams { seed: Some(7), ..SamplingParams::default() })
        .sampling(&mut Vec::new());
    assert_eq!((own.seed, own.stream, own.position), (7, 0, 2));
    let shared = sequence(3, &[1, 2], 9, SamplingParams::default()).sampling(&mut Vec::new());
    assert_eq!((shared.seed, shared.stream), (99, 3));
}

#[test]
fn a_preempted_sequence_keeps_its_tokens_and_finds_its_blocks_again() {
    let mut pool = BlockManager::new(4, 2, PrefixCache::On).unwrap();
    let mut it = sequence(1, &[1, 2, 3], 9, SamplingParams::default());
    assert_eq!(it.try_start(&mut pool, NO_SIBLING, 0), Some(0));
    it.in_flight = 3;
    it.collect(3, &mut pool);
    accept(&mut it, 4);
    it.preempt(&mut pool);
    assert_eq!((pool.free_blocks(), it.table.computed(), &it.tokens[..]), (4, 0, &[1, 2, 3, 4][..]));
    assert_eq!(it.try_start(&mut pool, NO_SIBLING, 0), Some(0), "cached tokens are those of the first start");
    assert_eq!((it.table.computed(), it.pending_tokens(), pool.free_blocks()), (2, 2, 2));
}

#[test]
fn a_refused_start_is_not_tried_before_enough_blocks_are_free() {
    let mut pool = BlockManager::new(2, 2, PrefixCache::On).unwrap();
    let mut held = vec![pool.take().unwrap()];
    let mut it = sequence(1, &[1, 2, 3], 9, SamplingParams::default());
    assert_eq!(it.try_start(&mut pool, NO_SIBLING, 0), None);
    assert!(!it.table.may_fit(&pool, 0), "two blocks are needed and one is free");
    pool.release(&mut held);
    assert!(it.table.may_fit(&pool, 0));
    assert_eq!(it.try_start(&mut pool, NO_SIBLING, 0), Some(0));
}

#[test]
fn keys_order_by_priority_then_age() {
    let mut keys = [SequenceKey::new(0, 3), SequenceKey::new(-1, 1), SequenceKey::new(0, 2), SequenceKey::new(5, 4)];
    keys.sort();
    assert_eq!(keys.map(SequenceKey::id), [4, 2, 3, 1]);
}

/// The demo model's tokenizer, and the limit of reasoning that its prompt has begun.
fn limited(tokens: u32) -> (Tokenizer, Arc<ThinkingLimit>, TokenId) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    let source = formats::source::Source::open(&folder).expect("the demo model");
    let tokenizer = Tokenizer::open(&source).expect("a tokenizer").expect("a tokenizer");
    let end = tokenizer.token_id("</think>").expect("a token");
    let format = text::answer::Format::of_chat_template("<tool_call>");
    let prompt = "<|im_start|>assistant\n<think>\n".to_string();
    (tokenizer, Arc::new(ThinkingLimit { format, prompt, end: vec![end], tokens }), end)
}

#[test]
fn reasoning_is_ended_by_force_and_what_may_be_forced_is_awaited() {
    let (tokenizer, limit, end) = limited(2);
    let mut it = sequence(1, &[5, 6], 20, SamplingParams::default());
    it.thinking = Some(Box::new(Thinking::new(limit)));
    let accept = |it: &mut Sequence, token: TokenId| {
        let mut output = Output::default();
        it.accept(&Chosen { token, ..Chosen::default() }, Some(&tokenizer), Instant::now(), &mut output);
        output.reasoning_tokens
    };
    let forced = |it: &Sequence| it.sampling(&mut Vec::new()).forced;
    it.awaited = 1;
    assert!(it.pending_tokens() > 0, "one token more does not use up the limit");
    it.awaited = 0;
    assert_eq!((accept(&mut it, 70), forced(&it)), (1, compute::batch::NO_TOKEN));
    it.awaited = 1;
    assert_eq!(it.pending_tokens(), 0, "the awaited token may use up the limit");
    it.awaited = 0;
    assert_eq!((accept(&mut it, 71), forced(&it)), (2, end));
    assert_eq!((accept(&mut it, end), forced(&it)), (2, compute::batch::NO_TOKEN), "the marker does not count");
    assert_eq!((accept(&mut it, 72), forced(&it)), (2, compute::batch::NO_TOKEN));
    let begin = tokenizer.token_id("<think>").expect("a token");
    assert_eq!((accept(&mut it, begin), forced(&it)), (2, end), "reasoning that begins again ends at once");
}
