//! Stop strings on the demo model: the text ends where a search of the whole answer says, and none of it is taken back.

use base::TokenId;
use engine::options::EngineOptions;
use engine::sampling_params::{Eos, SamplingParams, StopToken};
use engine::{Budget, Engine, Prompt};
use runner::Device;
use std::collections::HashMap;
use std::ops::ControlFlow;

const MAX_TOKENS: u32 = 80;

#[derive(Default)]
struct Answer {
    text: String,
    tokens: Vec<TokenId>,
    completion_tokens: u32,
    /// In words.
    finish: String,
}

fn open() -> Engine {
    let mut options = EngineOptions::new(crate::tree::root().join("models/demo"));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.max_model_len = Some(256);
    options.kv_cache_bytes = Some(16 << 20);
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Greedy answers to one question, a request for each of `params`. Whatever is streamed must begin `whole`.
fn answers(engine: &mut Engine, params: &[SamplingParams], whole: Option<&str>) -> Vec<Answer> {
    let handle = engine.handle().clone();
    let messages = r#"[{"role": "user", "content": "list all prime numbers within 100"}]"#;
    let prompt = handle.chat_template().unwrap().render(messages, "").unwrap();
    let mut found: HashMap<u64, Answer> = HashMap::new();
    for (i, params) in params.iter().enumerate() {
        let params = SamplingParams { tag: i as u64, max_tokens: Some(MAX_TOKENS), ..params.clone() };
        handle.add_request(Prompt::Text(&prompt), params).unwrap();
    }
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            let answer = found.entry(output.tag).or_default();
            assert!(answer.finish.is_empty(), "nothing follows the end");
            answer.text.push_str(&output.text);
            answer.tokens.extend(&output.token_ids);
            answer.completion_tokens = output.completion_tokens;
            assert!(whole.is_none_or(|whole| whole.starts_with(&answer.text)), "{:?} is not the answer", answer.text);
            answer.finish = output.finish.as_ref().map_or(String::new(), |finish| format!("{finish:?}"));
        }
    }
    (0..params.len() as u64).map(|i| found.remove(&i).unwrap()).collect()
}

fn stopping(strings: &[&str]) -> SamplingParams {
    let stop_strings = strings.iter().map(|&string| string.to_owned()).collect();
    SamplingParams { stop_strings, eos: Eos::Ignored, ..SamplingParams::default() }
}

#[test]
fn an_answer_ends_before_or_behind_the_first_stop_string_of_its_text() {
    let mut engine = open();
    let whole = answers(&mut engine, &[stopping(&[])], None).remove(0);
    assert!(whole.text.contains("2, 3, 5"), "{}", whole.text);
    assert_eq!(whole.finish, "Length");

    // Every piece of two or seven characters of the answer, and some that are not there.
    let pieces = |len: usize| (0..whole.text.len().saturating_sub(len)).map(move |at| (at, len));
    let mut strings: Vec<&str> =
        pieces(2).chain(pieces(7)).filter_map(|(at, len)| whole.text.get(at..at + len)).collect();
    strings.extend(["nonesuch", "2, 3, 6", "9799"]);
    let mut params = Vec::new();
    for string in &strings {
        params.push(stopping(&[string, "nonesuch"]));
        params.push(SamplingParams { stop_token: StopToken::Kept, ..stopping(&[string]) });
    }
    let mut stopped = 0;
    for (i, answer) in answers(&mut engine, &params, Some(&whole.text)).iter().enumerate() {
        let string = strings[i / 2];
        let end = whole.text.find(string).map(|start| if i % 2 == 0 { start } else { start + string.len() });
        assert_eq!(answer.text, whole.text[..end.unwrap_or(whole.text.len())], "{string:?}");
        assert_eq!(answer.finish, if end.is_some() { "Stop" } else { "Length" }, "{string:?}");
        assert!(whole.tokens.starts_with(&answer.tokens), "{string:?}: tokens are not cut");
        assert_eq!(answer.completion_tokens as usize, answer.tokens.len(), "{string:?}");
        stopped += usize::from(end.is_some());
    }
    assert!(stopped > 100, "the answer has many pieces, and {stopped} ended one");
}

#[test]
fn min_tokens_let_a_stop_string_pass() {
    let mut engine = open();
    let whole = answers(&mut engine, &[stopping(&[])], None).remove(0);
    let params = SamplingParams { min_tokens: 20, ..stopping(&[", "]) };
    let answer = answers(&mut engine, &[params], Some(&whole.text)).remove(0);
    assert_eq!(answer.finish, "Stop");
    assert!(answer.text.matches(", ").count() >= 3 && answer.tokens.len() > 20, "{}", answer.text);
    assert!(answer.tokens.len() < 26, "and the next one ends it: {}", answer.text);
}
