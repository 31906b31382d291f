//! Structures made to overflow the stack, the memory or the time of whoever adds them, or to hold a step up: each is answered
//! within its time, and the engine goes on.

mod fake_runner;
mod processor_time;
mod tree;

use base::TokenId;
use base::limits;
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::output::Finish;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::SEED;
use fake_runner::{Shape, load};
use formats::source::Source;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use text::structure::Structure;
use text::tokenizer::Tokenizer;

/// `<|im_end|>` of the demo model's tokenizer.
const END: TokenId = 2045;

fn open() -> Engine {
    let limits = BatchLimits { tokens: 24, rows: 8, model_len: 256, block_size: 4, ..BatchLimits::NONE };
    let shape =
        Shape { limits, blocks: 400, vocab: 2048, stages: 3, depth: 1, window: None, states: None, windowed: None };
    let tokenizer = Tokenizer::open(&Source::open(&crate::tree::root().join("models/demo")).unwrap()).unwrap().unwrap();
    let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED };
    Engine::with_tokenizer(load(shape), limits, tokenizer)
}

fn params(structure: Structure, seed: u64) -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        seed: Some(seed),
        max_tokens: Some(60),
        eos: Eos::Ignored,
        stop_tokens: vec![END],
        structure: Some(structure.into()),
        ..SamplingParams::default()
    }
}

/// Tokens of each request and how it ended.
type Answers = BTreeMap<u64, (Vec<TokenId>, Option<Finish>)>;

/// One test at a time, because the processor time is that of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What `work` makes, and the processor time that all threads of this process take meanwhile.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = processor_time::of_process();
    let made = work();
    (made, processor_time::of_process() - before)
}

/// Steps until all have ended.
fn run(engine: &mut Engine, budget: Budget) -> Answers {
    let mut answers = Answers::new();
    let handle = engine.handle().clone();
    while !handle.is_finished() {
        engine.step(budget).unwrap();
        while let Some(output) = engine.next_output() {
            let answer = answers.entry(output.request_id).or_default();
            answer.0.extend(&output.token_ids);
            answer.1.clone_from(&output.finish);
        }
    }
    answers
}

fn schema(value: &Value) -> Structure {
    Structure::JsonSchema(value.to_string())
}

fn regex(text: &str) -> Structure {
    Structure::Regex(text.to_owned())
}

fn lark(text: &str) -> Structure {
    Structure::Lark(text.to_owned())
}

/// A schema whose definitions name one another.
fn chain(length: usize, link: impl Fn(Value) -> Value) -> Structure {
    let mut definitions = Map::new();
    for i in 0..length {
        definitions.insert(format!("a{i}"), link(json!({"$ref": format!("#/$defs/a{}", i + 1)})));
    }
    definitions.insert(format!("a{length}"), json!({"type": "string"}));
    schema(&json!({"$ref": "#/$defs/a0", "$defs": definitions}))
}

fn through_properties(next: Value) -> Value {
    json!({"type": "object", "properties": {"x": next}})
}

/// A grammar whose rules, or terminals, name one another.
fn lark_chain(letter: char, length: usize) -> Structure {
    let mut text = format!("start: {letter}0\n");
    for i in 0..length {
        writeln!(text, "{letter}{i}: {letter}{}", i + 1).unwrap();
    }
    writeln!(text, "{letter}{length}: \"a\"").unwrap();
    Structure::Lark(text)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("k{i}")).collect()
}

fn patterns(count: usize, pattern: impl Fn(usize) -> String) -> Structure {
    let all: Vec<Value> = (0..count).map(|i| json!({"pattern": pattern(i)})).collect();
    schema(&json!({"type": "string", "allOf": all}))
}

/// What becomes of a structure.
#[derive(Clone, Copy)]
enum Wanted {
    Refused(&'static str),
    Accepted,
    /// It depends on the machine's speed.
    Either,
}
use Wanted::{Accepted, Either, Refused};

fn cases() -> Vec<(&'static str, Structure, Wanted)> {
    let doubling = |keyword: &str| {
        let mut definitions = Map::new();
        for i in 0..40 {
            let next = format!("#/$defs/a{}", i + 1);
            definitions.insert(format!("a{i}"), json!({keyword: [{"$ref": next}, {"$ref": next}]}));
        }
        definitions.insert("a40".to_owned(), json!({"type": "string", "pattern": "a"}));
        schema(&json!({"$ref": "#/$defs/a0", "$defs": definitions}))
    };
    let nested = |depth: usize, wrap: &dyn Fn(Value) -> Value| {
        schema(&(0..depth).fold(json!({"type": "string"}), |inner, _| wrap(inner)))
    };
    let by_name = |count: usize, key: &dyn Fn(usize) -> String| -> Map<String, Value> {
        (0..count).map(|i| (key(i), json!({"type": "integer"}))).collect()
    };
    let all_of_multiples = |primes: &[u32]| json!({"allOf": primes.iter().map(|prime| json!({"type": "integer", "multipleOf": prime})).collect::<Vec<_>>()});
    let numbers = |count: usize| (0..count).collect::<Vec<_>>();
    vec![
        ("$ref, 859 long", chain(859, through_properties), Accepted),
        ("$ref, 3,000 long", chain(3000, through_properties), Refused("levels, those that $ref refers to included")),
        ("$ref, 20,000 long", chain(20_000, through_properties), Refused("at most 262144")),
        (
            "$ref in allOf, 800 long",
            chain(800, |next| json!({"properties": {"q": {"allOf": [next, {"minProperties": 0}]}}})),
            Refused("once references in allOf are expanded"),
        ),
        ("$ref in anyOf, 1,000 long", chain(1000, |next| json!({"anyOf": [next, {"type": "integer"}]})), Either),
        ("$ref in items, 1,300 long", chain(1300, |next| json!({"items": next})), Either),
        ("$ref alone, 2,000 long", chain(2000, |next| next), Either),
        ("$ref that doubles in allOf", doubling("allOf"), Refused("limit is")),
        ("$ref that doubles in anyOf", doubling("anyOf"), Either),
        ("rules, 2,800 long", lark_chain('r', 2800), Accepted),
        ("rules, 20,000 long", lark_chain('r', 20_000), Refused("at most 262144")),
        ("terminals, 2,800 long", lark_chain('T', 2800), Accepted),
        ("terminals, 20,000 long", lark_chain('T', 20_000), Refused("at most 262144")),
        (
            "a large prime",
            schema(&json!({"type": "integer", "multipleOf": 1_000_003})),
            Refused("1000003 as the least common multiple of multipleOf"),
        ),
        (
            "a large prime in a grammar",
            lark("start: %json {\"type\": \"integer\", \"multipleOf\": 1000003}\n"),
            Refused("1000003 as the least common multiple of multipleOf"),
        ),
        ("a large number of small factors", schema(&json!({"type": "integer", "multipleOf": 1_000_000})), Accepted),
        ("seconds of a day", schema(&json!({"type": "integer", "multipleOf": 86_400})), Either),
        (
            "five primes",
            schema(&all_of_multiples(&[10_007, 10_009, 10_037, 10_039, 10_061])),
            Refused("as the least common multiple of multipleOf"),
        ),
        (
            "five small primes",
            schema(&all_of_multiples(&[29, 31, 37, 41, 43])),
            Refused("as the least common multiple of multipleOf"),
        ),
        (
            "the bounds of 64 bits",
            schema(&json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX})),
            Accepted,
        ),
        (
            "the bounds of 64 bits as floats",
            schema(&json!({"type": "integer", "minimum": -9.3e18, "maximum": 1.9e19})),
            Accepted,
        ),
        (
            "the least integer in an enum",
            schema(&json!({"enum": [1, [i64::MIN]]})),
            Refused("numbers there must be at least"),
        ),
        ("20,000 stars", regex(&"a*".repeat(20_000)), Refused("25000 parts")),
        ("a thousand a thousand times", regex("(a{1000}){1000}"), Refused("once its repetitions are expanded")),
        (
            "terminals that double",
            lark(&format!(
                "start: T0\n{}T40: \"x\"\n",
                (0..40).map(|i| format!("T{i}: T{0} T{0}\n", i + 1)).collect::<String>()
            )),
            Refused("once its terminals are expanded"),
        ),
        ("39 patterns", patterns(39, |i| format!("a.{{{i}}}b")), Refused("patterns and formats for one string")),
        ("12 patterns", patterns(12, |i| format!("a.{{{i}}}b")), Refused("Unable to determine if regex is empty")),
        ("a constant of 100,000 numbers", schema(&json!({"const": numbers(100_000)})), Refused("at most 262144")),
        (
            "a constant of 30,000 numbers",
            schema(&json!({"const": numbers(30_000)})),
            Refused("30001 values in const and enum"),
        ),
        (
            "100,000 required keys",
            schema(&json!({"type": "object", "required": names(100_000)})),
            Refused("at most 262144"),
        ),
        (
            "20,000 required keys",
            schema(&json!({"type": "object", "required": names(20_000)})),
            Refused("20000 different names"),
        ),
        ("a constant of 45,000 bytes", schema(&json!({"const": "word and ".repeat(5_000)})), Accepted),
        // In time, unless the machine is slow or busy.
        ("a constant of 200,000 bytes", schema(&json!({"const": "word and ".repeat(22_000)})), Either),
        ("a regex that panics", regex(r".((ab|((é|\w)|\s))|\p{L})"), Refused("None")),
        ("anyOf, 60 deep", nested(60, &|inner| json!({"anyOf": [inner, {"type": "integer"}]})), Accepted),
        ("anyOf, 200 deep", nested(200, &|inner| json!({"anyOf": [inner]})), Refused("recursion limit")),
        (
            "allOf, 25 deep",
            nested(25, &|inner| json!({"allOf": [{"properties": {"a": inner}}, {"type": "object"}]})),
            Accepted,
        ),
        (
            "anyOf of 20,000 constants",
            schema(&json!({"anyOf": (0..20_000).map(|i| json!({"const": i})).collect::<Vec<_>>()})),
            Either,
        ),
        ("enum of 20,000 strings", schema(&json!({"enum": names(20_000)})), Accepted),
        ("enum of 50,000 strings", schema(&json!({"enum": names(50_000)})), Refused("at most 262144")),
        (
            "300 patterns of names",
            schema(&json!({"type": "object", "patternProperties": by_name(300, &|i| format!("^{i}x.*$"))})),
            Refused("pairs to compare"),
        ),
        (
            "60 patterns of names",
            schema(&json!({"type": "object", "patternProperties": by_name(60, &|i| format!("^{i}x.*$"))})),
            Either,
        ),
        (
            "references in circles",
            schema(
                &json!({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/m"}]},
            "m": {"$ref": "#/$defs/n"}}}),
            ),
            Refused("no token can begin"),
        ),
        (
            "a tree",
            schema(&json!({"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}})),
            Accepted,
        ),
        ("minLength 100,000", schema(&json!({"type": "string", "minLength": 100_000})), Accepted),
        ("maxLength 2,000,000,000", schema(&json!({"type": "string", "maxLength": 2_000_000_000})), Accepted),
        (
            "minItems 100,000",
            schema(&json!({"type": "array", "items": {"type": "integer"}, "minItems": 100_000})),
            Either,
        ),
        (
            "formats",
            schema(
                &json!({"type": "object", "properties": {"a": {"type": "string", "format": "date-time"}, "b": {"type": "string",
            "format": "uri"}, "c": {"type": "string", "format": "email"}}, "required": ["a", "b", "c"]}),
            ),
            Accepted,
        ),
        ("repetitions", regex("((a{1,100}){1,100}){1,100}"), Either),
        ("a long repetition", regex(".{1,100000}"), Either),
        ("classes", regex(r"[\p{L}\p{N}&&[^\p{Lu}]]{50}"), Accepted),
        (
            "8,000 optional words",
            regex(&(0..8000).fold("(?i)".to_owned(), |text, i| text + &format!(r"(\w+\s|é{i})?"))),
            Refused("limit"),
        ),
        ("parentheses of a regex", regex(&("(".repeat(5000) + "a" + &")".repeat(5000))), Refused("regex")),
        (
            "parentheses of a grammar",
            lark(&format!("start: {}\"a\"{}\n", "(".repeat(20_000), ")".repeat(20_000))),
            Refused("deeply nested"),
        ),
        ("repetitions of a grammar", lark("start: ((\"a\"{1,1000}){1,1000}){1,1000}\n"), Either),
        (
            "terms that are joined",
            lark(&format!(
                "start: T\nT: {}\n",
                (0..39).map(|i| format!("/.*a.{{{i}}}b.*/")).collect::<Vec<_>>().join(" & ")
            )),
            Refused("joins more than 12 terms"),
        ),
        ("an ambiguous grammar", lark("start: e\ne: e e | \"a\" | \"b\" | e \"+\" e\n"), Accepted),
        ("a text that never ends, from its beginning", lark("start: T T\nT: \"ab\"+\n"), Refused("ms to find")),
        (
            "a text that never ends, from its second part",
            lark("start: T0 T1 T0\nT0: \"ab\"+\nT1: \"\\n\" T0 | \"a\" | \"é\" T0\n"),
            Accepted,
        ),
        ("an import", lark("start: INT\n%import common.INT\n"), Accepted),
        (
            "parts of a text",
            lark(&format!("start: %regex {{\"substring_chars\": \"{}\"}}\n", "the quick brown fox ".repeat(5000))),
            Either,
        ),
    ]
}

/// Processor time that a request may take until it is answered: five times what compiling may take by the clock. Threads whose
/// callers have left compile beside it, and count, too.
const ANSWERED: Duration = Duration::from_millis(5 * limits::STRUCTURE_COMPILE_MS);
/// Processor time for what is expected to take milliseconds.
const LITTLE: Duration = Duration::from_secs(1);

#[test]
fn what_is_made_to_take_long_is_answered_in_time_and_the_engine_goes_on() {
    let _alone = alone();
    let mut engine = open();
    let handle = engine.handle().clone();
    for (name, structure, wanted) in cases() {
        let (answer, took) = timed(|| handle.add_request(Prompt::Tokens(&[7, 8, 9]), params(structure, 3)));
        println!("{name}: {took:?} {:?}", answer.as_ref().map_err(ToString::to_string));
        assert!(took < ANSWERED, "{name}: {took:?}");
        match (&answer, wanted) {
            (Ok(_), Accepted | Either) => {}
            (Err(error), Refused(_) | Either) => {
                let message = error.to_string();
                let reason = if let Refused(reason) = wanted { reason } else { "" };
                let begins = ["structure is not a ", "the length of structure is "]
                    .iter()
                    .any(|begin| message.starts_with(begin));
                assert!(begins && message.contains(reason), "{name}: {message}");
                assert!(
                    message.len() < 500 && !message.contains(['\n', '<']) || reason == "regex",
                    "{name}: {message}"
                );
                assert!(!message.contains("/src/"), "{name}: {message}");
            }
            (Ok(_), Refused(reason)) => panic!("{name} is accepted, not refused with {reason}"),
            (Err(error), Accepted) => panic!("{name} is refused: {error}"),
        }
        // Its answer ends one way or another, and so does an ordinary one.
        let ordinary = handle.add_request(Prompt::Tokens(&[7, 8, 9]), params(regex("yes|no"), 1)).unwrap();
        let answers = run(&mut engine, Budget::OnePass);
        assert!(matches!(answers[&ordinary].1, Some(Finish::Stop)), "{name}");
        assert_eq!(answers.len(), 1 + usize::from(answer.is_ok()), "{name}");
    }
    assert_eq!(handle.stats().kv_blocks_used, 0);
}

// ---- masks that take long ----

/// A structure some of whose masks take ten milliseconds or more.
fn slow() -> Structure {
    schema(
        &json!({"allOf": [{"type": "integer", "multipleOf": 9973}], "minimum": 12_345, "maximum": 987_654_321_987_i64}),
    )
}

fn heavy() -> Vec<Structure> {
    let optional: String = (0..150).map(|i| format!(r"(\w+\s|é{i})?")).collect();
    vec![
        slow(),
        regex(&format!("(?i){optional}")),
        regex("(.{0,300}[a-f]){0,50}.{10}e"),
        regex("[a-z]{3,9}( [a-z]{3,9}){3}"),
    ]
}

/// All of them at once.
fn follow_heavy(budget: Budget) -> Answers {
    let mut engine = open();
    let handle = engine.handle().clone();
    for (seed, structure) in (1..).zip(heavy()) {
        handle
            .add_request(Prompt::Tokens(&[7, 8, 9]), SamplingParams { max_tokens: Some(24), ..params(structure, seed) })
            .unwrap();
    }
    let ran = run(&mut engine, budget);
    assert_eq!(handle.stats().kv_blocks_used, 0);
    ran
}

#[test]
fn a_step_with_a_time_budget_is_not_held_up_by_masks() {
    let _alone = alone();
    let mut engine = open();
    let handle = engine.handle().clone();
    for (seed, structure) in (1..).zip(heavy()) {
        handle.add_request(Prompt::Tokens(&[7, 8, 9]), params(structure, seed)).unwrap();
    }
    let mut took = Vec::new();
    while !handle.is_finished() {
        let before = processor_time::of_thread();
        engine.step(Budget::Time(Duration::from_millis(4))).unwrap();
        took.push(processor_time::of_thread() - before);
        while engine.next_output().is_some() {}
    }
    took.sort_unstable();
    // A structure whose masks turn out to take long may hold up the step that finds it out.
    let long = took.iter().filter(|&&time| time > Duration::from_millis(6)).count();
    assert!(long <= heavy().len(), "{took:?}");
    assert!(took.last().unwrap() < &Duration::from_millis(50), "{took:?}");
}

#[test]
fn masks_that_come_late_change_no_token() {
    let _alone = alone();
    let in_words = |answers: Answers| -> Vec<_> {
        answers.into_values().map(|(tokens, finish)| (tokens, finish.map(|finish| format!("{finish:?}")))).collect()
    };
    let wanted = in_words(follow_heavy(Budget::OnePass));
    assert_eq!(wanted.len(), heavy().len());
    for budget in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(4), Duration::from_secs(1)] {
        assert_eq!(in_words(follow_heavy(Budget::Time(budget))), wanted, "{budget:?}");
    }
}

#[test]
fn requests_with_late_masks_can_be_cancelled_and_their_engine_freed() {
    let _alone = alone();
    for steps in [1, 5, 20] {
        let mut engine = open();
        let handle = engine.handle().clone();
        let add = |seed| handle.add_request(Prompt::Tokens(&[7, 8, 9]), params(slow(), seed)).unwrap();
        let ids: Vec<u64> = (1..6).map(add).collect();
        for _ in 0..steps {
            engine.step(Budget::Time(Duration::ZERO)).unwrap();
        }
        for &id in &ids[..3] {
            // It may have ended.
            let _ = handle.cancel(id);
        }
        engine.step(Budget::Time(Duration::ZERO)).unwrap();
        let ((), took) = timed(|| drop((engine, handle)));
        assert!(took < LITTLE, "{took:?}");
    }
}

#[test]
fn an_answer_whose_next_tokens_are_never_found_ends_within_the_limit() {
    let _alone = alone();
    let mut engine = open();
    let handle = engine.handle().clone();
    // The lexer takes the longest match, so that after a letter or two "ab" must follow for ever.
    let endless = lark("start: T0 T1 T0\nT0: \"ab\"+\nT1: \"\\n\" T0 | \"a\" | \"é\" T0\n");
    for seed in 1..8 {
        handle.add_request(Prompt::Tokens(&[7, 8, 9]), params(endless.clone(), seed)).unwrap();
    }
    let answers = run(&mut engine, Budget::Time(Duration::from_millis(4)));
    let lost: Vec<String> = answers
        .values()
        .filter_map(|(_, finish)| match finish {
            Some(Finish::Error(error)) => Some(error.to_string()),
            _ => None,
        })
        .collect();
    assert!(!lost.is_empty(), "{answers:?}");
    assert!(lost.iter().all(|error| error.contains("ms to find, which is the limit")), "{lost:?}");
    // The first takes all the time there is; the others are given little.
    let limit_ms = |error: &String| -> u64 {
        let (_, rest) = error.split_once("more than ").unwrap();
        rest.split_once(" ms").unwrap().0.parse().unwrap()
    };
    let given: Vec<u64> = lost.iter().map(limit_ms).collect();
    assert_eq!(given.iter().filter(|&&ms| ms >= limits::MASK_MS).count(), 1, "{given:?}");
    assert!(given.iter().sum::<u64>() < 2 * limits::MASK_MS, "{given:?}");
    assert_eq!(handle.stats().kv_blocks_used, 0);
}

#[test]
fn completions_share_what_is_compiled_until_they_run() {
    let _alone = alone();
    let mut engine = open();
    let handle = engine.handle().clone();
    let many = SamplingParams { completions: 1000, max_tokens: Some(1), ..params(slow(), 1) };
    let (added, took) = timed(|| handle.add_request(Prompt::Tokens(&[7, 8, 9]), many));
    added.unwrap();
    assert!(took < 2 * LITTLE, "{took:?}");
    assert_eq!(resident_bytes() >> 30, 0, "a copy takes megabytes");
    let answers = run(&mut engine, Budget::OnePass);
    assert_eq!(answers.values().next().unwrap().0.len(), 1000);
}

/// Memory of this process.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
