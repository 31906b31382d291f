//! Structured output: every answer follows what its request asked for, whatever else the engine does with it.

use crate::fake_runner;

use base::TokenId;
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::output::Finish;
use engine::sampling_params::{Eos, SamplingParams, StopToken};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::SEED;
use fake_runner::{Shape, load};
use formats::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use text::structure::Structure;
use text::tokenizer::{AddedTokens, Encoding, SpelledTokens, Tokenizer};

/// `<|im_end|>` of the demo model's tokenizer.
const END: TokenId = 2045;
const VOCAB: usize = 2048;

/// Text and finish of each completion.
type Answers = BTreeMap<(u64, u32), Answer>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    text: String,
    tokens: Vec<TokenId>,
    completion_tokens: u32,
    /// In words, without an error's fields.
    finish: String,
    error: String,
}

fn shape(rows: usize, blocks: usize, depth: usize) -> Shape {
    let limits = BatchLimits { tokens: 24, rows, model_len: 256, block_size: 4, ..BatchLimits::NONE };
    Shape { limits, blocks, vocab: VOCAB, stages: 3, depth, window: None, states: None, windowed: None }
}

/// A fake model that spells its tokens as the demo model does.
fn open(shape: Shape, prefix_cache: PrefixCache) -> Engine {
    let folder = crate::tree::root().join("models/demo");
    let tokenizer = Tokenizer::open(&Source::open(&folder).unwrap()).unwrap().unwrap();
    Engine::with_tokenizer(load(shape), EngineLimits { max_queue: None, prefix_cache, seed: SEED }, tokenizer)
}

/// Steps until all have ended.
fn run(engine: &mut Engine, budget: Budget) -> Answers {
    let mut answers = Answers::new();
    let handle = engine.handle().clone();
    while !handle.is_finished() {
        engine.step(budget).unwrap();
        while let Some(output) = engine.next_output() {
            let answer = answers.entry((output.request_id, output.index)).or_default();
            assert!(answer.finish.is_empty(), "nothing follows the end");
            answer.text.push_str(&output.text);
            answer.tokens.extend(&output.token_ids);
            answer.completion_tokens = output.completion_tokens;
            if let Some(finish) = &output.finish {
                let words = format!("{finish:?}");
                answer.finish = words.split('(').next().unwrap().to_owned();
                if let Finish::Error(error) = finish {
                    answer.error = error.to_string();
                }
            }
        }
    }
    answers
}

/// Sampled, ended by `END` and not by the fake model's own end, which is a letter to the tokenizer.
fn params(structure: Structure, seed: u64) -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        seed: Some(seed),
        max_tokens: Some(120),
        eos: Eos::Ignored,
        stop_tokens: vec![END],
        structure: Some(structure.into()),
        ..SamplingParams::default()
    }
}

fn regex(text: &str) -> Structure {
    Structure::Regex(text.to_owned())
}

/// The answer of a request that is alone.
fn alone(params: SamplingParams) -> Answer {
    let mut engine = open(shape(4, 80, 1), PrefixCache::On);
    engine.handle().add_request(Prompt::Tokens(&[7, 8, 9]), params).unwrap();
    run(&mut engine, Budget::OnePass).into_values().next().unwrap()
}

// ---- what the scheduler does to it ----

type Check = fn(&str) -> bool;

/// Structures with a check of what comes out of each.
fn checked() -> Vec<(Structure, Check)> {
    let point = r#"{"type": "object", "properties": {"x": {"type": "integer", "minimum": -99, "maximum": 99},
        "kind": {"enum": ["corner", "edge"]}}, "required": ["x", "kind"], "additionalProperties": false}"#;
    let list = "start: \"[\" word (\", \" word)* \"]\"\nword: /[a-z]{1,8}/\n";
    vec![
        (regex("[0-9]{3}-[0-9]{4}"), |text| {
            let digits: Vec<&str> = text.split('-').collect();
            let all = |part: &str, len: usize| part.len() == len && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.len() == 2 && all(digits[0], 3) && all(digits[1], 4)
        }),
        (Structure::JsonSchema(point.to_owned()), |text| {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            // Zero with a sign is an integer to the schema, but not to serde_json.
            let x = value["x"].as_f64().unwrap();
            x.fract() == 0.0
                && (-99.0..=99.0).contains(&x)
                && ["corner", "edge"].contains(&value["kind"].as_str().unwrap())
        }),
        (Structure::Lark(list.to_owned()), |text| {
            let inner = text.strip_prefix('[').unwrap().strip_suffix(']').unwrap();
            inner.split(", ").all(|word| (1..=8).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase()))
        }),
    ]
}

#[test]
fn answers_follow_their_structure_and_are_the_same_however_they_are_scheduled() {
    let mut wanted: Option<Answers> = None;
    for (name, shape, cache, budget, preempts) in [
        ("one pass in flight", shape(8, 400, 1), PrefixCache::On, Budget::OnePass, false),
        ("two passes in flight", shape(8, 400, 2), PrefixCache::On, Budget::OnePass, false),
        ("one row", shape(1, 400, 2), PrefixCache::On, Budget::OnePass, false),
        ("no prefix cache", shape(8, 400, 1), PrefixCache::Off, Budget::OnePass, false),
        ("cut passes", shape(8, 400, 2), PrefixCache::On, Budget::Time(Duration::ZERO), false),
        ("too few blocks", shape(8, 70, 1), PrefixCache::On, Budget::OnePass, true),
        ("too few blocks, two passes in flight", shape(8, 70, 2), PrefixCache::Off, Budget::OnePass, true),
    ] {
        let mut engine = open(shape, cache);
        let handle = engine.handle().clone();
        let checked = checked();
        let mut checks = BTreeMap::new();
        for i in 0..18 {
            let prompt: Vec<TokenId> = (0..30 + i % 5).collect();
            let (structure, check) = &checked[i as usize % checked.len()];
            let mut params = params(structure.clone(), u64::from(i) + 1);
            if i % 6 == 5 {
                // Free ones run beside them, and ahead of what the host knows.
                params.structure = None;
            }
            params.completions = 1 + i % 2;
            let free = params.structure.is_none();
            let id = handle.add_request(Prompt::Tokens(&prompt), params).unwrap();
            checks.insert(id, if free { |_: &str| true } else { *check });
        }
        let answers = run(&mut engine, budget);
        assert_eq!(answers.len(), 27, "{name}");
        let mut complete = 0;
        for ((id, index), answer) in &answers {
            assert!(["Stop", "Length"].contains(&&answer.finish[..]), "{name}: {answer:?}");
            if answer.finish == "Stop" {
                assert!(checks[id](&answer.text), "{name}: {id}/{index} is {:?}", answer.text);
                complete += 1;
            }
        }
        assert!(complete >= 20, "{name}: {complete} are complete");
        assert_eq!(handle.stats().preemptions > 0, preempts, "{name}");
        assert_eq!(handle.stats().kv_blocks_used, 0, "{name}");
        assert_eq!(*wanted.get_or_insert_with(|| answers.clone()), answers, "{name}");
    }
}

// ---- where an answer ends ----

#[test]
fn an_answer_ends_where_nothing_may_follow_and_needs_no_end_token_there() {
    for end in [vec![END], vec![]] {
        let answer = alone(SamplingParams { stop_tokens: end, ..params(regex("yes|no"), 3) });
        assert!(["yes", "no"].contains(&&answer.text[..]), "{answer:?}");
        assert_eq!(answer.finish, "Stop");
        assert_eq!(answer.tokens.len() as u32, answer.completion_tokens, "no token was spent on the end");
    }
}

#[test]
fn end_tokens_come_where_the_structure_may_end_and_nowhere_else() {
    // Two letters, then as many as one likes: with seven tokens to choose from, the end comes soon.
    let structure = Structure::Lark("start: /[A-C]{2}/ (\"x\" | \"y\")*\n".to_owned());
    let mut ended_early = 0;
    for seed in 1..30 {
        let answer = alone(params(structure.clone(), seed));
        let (head, tail) = answer.text.split_at(2);
        assert!(head.bytes().all(|byte| (b'A'..=b'C').contains(&byte)), "{answer:?}");
        assert!(tail.bytes().all(|byte| byte == b'x' || byte == b'y'), "{answer:?}");
        ended_early +=
            u32::from(answer.finish == "Stop" && answer.completion_tokens as usize == answer.tokens.len() + 1);
    }
    assert!(ended_early > 20, "{ended_early} of 29 ended by the end token");
    let endless = alone(SamplingParams { stop_tokens: vec![], max_tokens: Some(40), ..params(structure, 1) });
    assert_eq!((&endless.finish[..], endless.tokens.len()), ("Length", 40), "without an end token it goes on");
}

#[test]
fn min_tokens_hold_the_end_token_back_but_not_the_end_of_the_structure() {
    let letters = Structure::Lark("start: (\"x\" | \"y\")*\n".to_owned());
    for seed in 1..10 {
        let answer = alone(SamplingParams { min_tokens: 12, ..params(letters.clone(), seed) });
        assert!(answer.tokens.len() >= 12, "{answer:?}");
    }
    let answer = alone(SamplingParams { min_tokens: 12, ..params(regex("yes|no"), 3) });
    assert_eq!(answer.finish, "Stop");
    assert!(["yes", "no"].contains(&&answer.text[..]), "{answer:?}");
}

#[test]
fn what_stops_other_answers_stops_a_structured_one_too() {
    let letters = || Structure::Lark("start: /[x-z]{90}/ \"!\"\n".to_owned());
    let stop_strings = vec!["xz".to_owned()];
    let by_string = alone(SamplingParams { stop_strings, max_tokens: None, ..params(letters(), 5) });
    assert!(by_string.finish == "Stop" && !by_string.text.contains("xz"), "{by_string:?}");
    assert!(!by_string.text.ends_with('!'), "the string came before the end of the structure: {by_string:?}");
    let z = TokenId::from(b'z' - b'!');
    let by_token = alone(SamplingParams { stop_tokens: vec![z], stop_token: StopToken::Kept, ..params(letters(), 5) });
    assert_eq!((&by_token.finish[..], by_token.tokens.last()), ("Stop", Some(&z)));
    assert!(by_token.text.ends_with('z') && by_token.text.len() < 90, "{by_token:?}");
    let by_length = alone(SamplingParams { max_tokens: Some(3), ..params(regex("[a-z]{200}"), 5) });
    assert_eq!((&by_length.finish[..], by_length.tokens.len()), ("Length", 3));
}

#[test]
fn the_completions_of_a_prompt_follow_the_structure_each_in_its_own_way() {
    let mut engine = open(shape(8, 400, 2), PrefixCache::On);
    let many = SamplingParams { completions: 6, ..params(regex("[a-z]{4,9} [0-9]{3}"), 50) };
    engine.handle().add_request(Prompt::Tokens(&[5; 21]), many).unwrap();
    let together = run(&mut engine, Budget::OnePass);
    for (index, answer) in together.values().enumerate() {
        let single = params(regex("[a-z]{4,9} [0-9]{3}"), 50 + index as u64);
        let mut engine = open(shape(8, 400, 1), PrefixCache::Off);
        engine.handle().add_request(Prompt::Tokens(&[5; 21]), single).unwrap();
        assert_eq!(run(&mut engine, Budget::OnePass).values().next(), Some(answer));
    }
    let texts: BTreeSet<_> = together.values().map(|answer| &answer.text).collect();
    assert!(texts.len() > 3, "{texts:?}");
}

// ---- tokens ----

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<TokenId> {
    tokenizer.encode(text, Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Text }).unwrap()
}

#[test]
fn a_text_without_choice_is_cut_as_the_tokenizer_cuts_it() {
    let text = "Prime numbers within 10: 2, 3, 5, 7.";
    let answer = alone(params(regex(&text.replace('.', "\\.")), 3));
    let engine = open(shape(1, 80, 1), PrefixCache::Off);
    assert_eq!((&answer.text[..], &answer.finish[..]), (text, "Stop"));
    assert_eq!(answer.tokens, encode(engine.handle().tokenizer().unwrap(), text));
}

#[test]
fn a_grammar_may_ask_for_an_added_token_and_no_text_becomes_one() {
    let structure = Structure::Lark("start: <think> /[a-z]{3}/ </think> \"yes\"\n".to_owned());
    let answer = alone(params(structure, 3));
    let engine = open(shape(1, 80, 1), PrefixCache::Off);
    let id = |spelling: &str| engine.handle().tokenizer().unwrap().token_id(spelling);
    assert_eq!((answer.tokens.first().copied(), &answer.finish[..]), (id("<think>"), "Stop"), "{answer:?}");
    assert!(answer.tokens.contains(&id("</think>").unwrap()) && answer.text.ends_with("</think>yes"), "{answer:?}");

    let answer = alone(params(regex("<think>[a-z]{3}</think>"), 3));
    assert!(answer.text.starts_with("<think>") && answer.text.ends_with("</think>"), "{answer:?}");
    assert!(!answer.tokens.contains(&id("<think>").unwrap()), "{answer:?}");
}

#[test]
fn every_kind_of_tokenizer_serves_also_when_the_model_has_more_tokens_or_fewer() {
    let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED };
    let folder = |name| crate::tree::root().join("tests/golden/text").join(name);
    for name in [
        "byte_level",
        "byte_level_bos",
        "byte_level_cases",
        "byte_level_digits",
        "sentencepiece",
        "blocks_without_prefix",
        "blocks_first",
        "blocks_and_marks",
    ] {
        let folder = folder(name);
        let known = Tokenizer::open(&Source::open(&folder).unwrap()).unwrap().unwrap().vocab_size();
        for vocab in [known, known + 100, known - 40] {
            let tokenizer = Tokenizer::open(&Source::open(&folder).unwrap()).unwrap().unwrap();
            let mut engine = Engine::with_tokenizer(load(Shape { vocab, ..shape(8, 200, 1) }), limits, tokenizer);
            let checked = checked();
            for (i, (structure, _)) in (0..12).zip(checked.iter().cycle()) {
                let params = SamplingParams { stop_tokens: vec![], ..params(structure.clone(), i + 1) };
                engine.handle().add_request(Prompt::Tokens(&[3, 4, 5]), params).unwrap();
            }
            let answers = run(&mut engine, Budget::OnePass);
            for (((id, _), answer), (_, check)) in answers.iter().zip(checked.iter().cycle()) {
                let name = format!("{name} with {vocab} tokens: {id}");
                assert!(answer.tokens.iter().all(|&token| (token as usize) < known), "{name}: {answer:?}");
                assert!(
                    answer.finish == "Length" || answer.finish == "Stop" && check(&answer.text),
                    "{name}: {answer:?}"
                );
            }
            let complete = answers.values().filter(|answer| answer.finish == "Stop").count();
            assert!(complete >= 8, "{name} with {vocab} tokens: {complete}: {answers:?}");
        }
    }
    // One that has no token for a brace.
    let tokenizer = Tokenizer::open(&Source::open(&folder("metaspace")).unwrap()).unwrap().unwrap();
    let vocab = tokenizer.vocab_size();
    let mut engine = Engine::with_tokenizer(load(Shape { vocab, ..shape(8, 200, 1) }), limits, tokenizer);
    let add = |structure| {
        let params = SamplingParams { stop_tokens: vec![], ..params(structure, 1) };
        engine.handle().add_request(Prompt::Tokens(&[3, 4, 5]), params)
    };
    let refused = add(Structure::JsonSchema("{\"type\": \"object\"}".to_owned())).unwrap_err().to_string();
    assert!(refused.ends_with("no token can begin a text that fits it"), "{refused}");
    add(regex("[a-z]{3}( [a-z]{2,9}){4}")).unwrap();
    let answer = run(&mut engine, Budget::OnePass).into_values().next().unwrap();
    assert_eq!((answer.text.split(' ').count(), &answer.finish[..]), (5, "Stop"), "{answer:?}");
}

#[test]
fn a_structure_holds_from_the_first_byte_over_blocks_for_spaces_and_tokens_of_one_byte() {
    let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED };
    let folder = |name| crate::tree::root().join("tests/golden/text").join(name);
    for name in ["byte_level_cases", "sentencepiece", "blocks_without_prefix", "blocks_first", "blocks_and_marks"] {
        let tokenizer = Tokenizer::open(&Source::open(&folder(name)).unwrap()).unwrap().unwrap();
        let vocab = tokenizer.vocab_size();
        let mut engine = Engine::with_tokenizer(load(Shape { vocab, ..shape(8, 200, 1) }), limits, tokenizer);
        for seed in 1..=8 {
            // A character of three bytes that no token spells, between spaces.
            let params = SamplingParams {
                stop_tokens: vec![],
                ..params(regex(" [a-z]{2} {2}\u{20ac}[\u{e9}\u{4e2d}] ?x"), seed)
            };
            engine.handle().add_request(Prompt::Tokens(&[300, 301, 302]), params).unwrap();
        }
        for answer in run(&mut engine, Budget::OnePass).values() {
            let text: Vec<char> = answer.text.chars().collect();
            assert_eq!(answer.finish, "Stop", "{name}: {answer:?}");
            assert!(text[0] == ' ' && text[1..3].iter().all(char::is_ascii_lowercase), "{name}: {answer:?}");
            assert!(
                text[3..6] == [' ', ' ', '\u{20ac}'] && matches!(text[6], '\u{e9}' | '\u{4e2d}'),
                "{name}: {answer:?}"
            );
            assert!(matches!(text[7..], ['x'] | [' ', 'x']), "{name}: {answer:?}");
        }
    }
}

// ---- what cannot be followed ----

#[test]
fn a_structure_that_cannot_be_followed_is_refused_with_the_reason() {
    let json = |text: &str| Structure::JsonSchema(text.to_owned());
    let lark = |text: &str| Structure::Lark(text.to_owned());
    let cases = [
        (json("{"), "JSON schema", "not JSON: EOF while parsing an object at line 1 column 1"),
        (json(""), "JSON schema", "not JSON: EOF"),
        (json("3"), "JSON schema", "must be an object or boolean"),
        (json("false"), "JSON schema", "schema is false"),
        (json(r#"{"type": "objekt"}"#), "JSON schema", "Invalid type: objekt"),
        (json(r#"{"type": "object", "properties": 5}"#), "JSON schema", "properties must be an object"),
        (json(r##"{"$ref": "#/$defs/none"}"##), "JSON schema", "'$defs' not found"),
        (json(r#"{"$ref": "https://example.com/schema.json"}"#), "JSON schema", "https://example.com/schema.json"),
        (
            json(r#"{"type": "integer", "minimum": 5, "maximum": 4}"#),
            "JSON schema",
            "minimum (5) is greater than maximum",
        ),
        (json(r#"{"type": "array", "uniqueItems": true}"#), "JSON schema", "uniqueItems"),
        (json(r#"{"not": {"type": "string"}}"#), "JSON schema", "not"),
        (json(r#"{"type": "string", "pattern": "("}"#), "JSON schema", "unclosed group"),
        (json(r#"{"type": "string", "format": "no-such-format"}"#), "JSON schema", "Unknown format: no-such-format"),
        (json(r#"{"x-guidance": {"no_such_setting": 1}}"#), "JSON schema", "no_such_setting"),
        (regex("("), "regular expression", "unclosed group"),
        (regex("a{2,1}"), "regular expression", "the start must be <= the end"),
        (regex(r"(a)\1"), "regular expression", "backreferences are not supported"),
        (regex("(?=a)b"), "regular expression", "look-around"),
        (regex(""), "regular expression", "no token can begin a text that fits it"),
        (regex(r"[^\s\S]"), "regular expression", "no token can begin a text that fits it"),
        (lark(""), "Lark grammar", "no start rule found"),
        (lark("begin: \"a\"\n"), "Lark grammar", "no start rule found"),
        (lark("start: nothing\n"), "Lark grammar", "unknown name: \"nothing\""),
        (lark("start: \"a\n"), "Lark grammar", "lexer error"),
        (lark("start: start \"a\"\n"), "Lark grammar", "no token can begin a text that fits it"),
        (lark("root ::= \"a\""), "Lark grammar", "root ::="),
    ];
    let mut engine = open(shape(4, 80, 1), PrefixCache::On);
    for (structure, kind, reason) in cases {
        let refused = engine.handle().add_request(Prompt::Tokens(&[1]), params(structure.clone(), 1));
        let message = refused.map(|_| "accepted".to_owned()).unwrap_or_else(|error| error.to_string());
        assert!(message.starts_with(&format!("structure is not a {kind} that")), "{structure:?}: {message}");
        assert!(message.contains(reason), "{structure:?}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
    // Nothing is left of them, and the next request works.
    engine.handle().add_request(Prompt::Tokens(&[1]), params(regex("yes|no"), 1)).unwrap();
    assert_eq!(run(&mut engine, Budget::OnePass).len(), 1);
}

#[test]
fn a_structure_needs_a_tokenizer_that_tells_what_a_token_spells() {
    let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED };
    let engine = Engine::with_runner(load(shape(4, 80, 1)), limits);
    let refused = engine.handle().add_request(Prompt::Tokens(&[1]), params(regex("a"), 1)).unwrap_err();
    assert!(refused.to_string().contains("no tokenizer.json"), "{refused}");

    let folder = crate::tree::root().join("tests/golden/text/wordpiece");
    let tokenizer = Tokenizer::open(&Source::open(&folder).unwrap()).unwrap().unwrap();
    let engine = Engine::with_tokenizer(load(shape(4, 80, 1)), limits, tokenizer);
    let refused = engine.handle().add_request(Prompt::Tokens(&[1]), params(regex("a"), 1)).unwrap_err();
    assert!(refused.to_string().contains("the text of a single token"), "{refused}");
}

#[test]
fn an_answer_whose_grammar_outgrows_its_limits_ends_alone_and_says_why() {
    let costly = regex("(.{0,300}[a-f]){0,50}.{10}e");
    let mut engine = open(shape(4, 200, 2), PrefixCache::On);
    let handle = engine.handle().clone();
    let lost = handle.add_request(Prompt::Tokens(&[7, 8, 9]), params(costly.clone(), 4)).unwrap();
    // One with the same text that ends before it costs anything, and one that asks for something else.
    let short = SamplingParams { max_tokens: Some(2), ..params(costly.clone(), 5) };
    let same = handle.add_request(Prompt::Tokens(&[7, 8, 9]), short.clone()).unwrap();
    let other = handle.add_request(Prompt::Tokens(&[7, 8, 9]), params(regex("[a-z]{100}"), 6)).unwrap();
    let answers = run(&mut engine, Budget::OnePass);
    let error = &answers[&(lost, 0)];
    assert_eq!(error.finish, "Error");
    let after =
        format!("structure: the completion cannot continue after {} tokens: its lexer created ", error.tokens.len());
    assert!(error.error.starts_with(&after), "{error:?}");
    assert_eq!(answers[&(same, 0)].finish, "Length");
    assert_eq!(answers[&(other, 0)].finish, "Stop");
    assert_eq!(handle.stats().kv_blocks_used, 0);
    // What is kept of the text is not spoilt.
    handle.add_request(Prompt::Tokens(&[7, 8, 9]), short).unwrap();
    assert_eq!(run(&mut engine, Budget::OnePass).values().next(), Some(&answers[&(same, 0)]));
}
