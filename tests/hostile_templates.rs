//! Chat templates and response templates that try to take the host down, to stall it or to use up its memory.
//!
//! A model folder is data. The templates of tests/hostile/templates, one file per attack, and the longer ones of the table
//! below are opened and rendered; each has to end with a text or an error, soon, in little memory, and whatever it did, a good
//! conversation is answered afterwards.

mod processor_time;
mod silence;
mod tree;

use base::error::Error;
use formats::source::Source;
use serde_json::json;
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use text::answer::{AnswerParser, Format};
use text::chat_template::ChatTemplate;

/// CPU time that opening and rendering a template may take.
const MOST_TIME: Duration = Duration::from_secs(1);
/// Bytes that opening and rendering a template may hold at one time.
const MOST_BYTES: usize = 64 << 20;
/// The smallest stack of a caller.
const CALLER_STACK_BYTES: usize = 256 << 10;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Templates that are made of one part many times: name, beginning, part, how often, end.
const REPEATED: &[(&str, &str, &str, usize, &str)] = &[
    ("a sum of 60,000 numbers", "{{ 1", "+1 ", 60_000, "}}"),
    ("a sum of 100,000 variables", "{{ x", "+x", 100_000, "}}"),
    ("100,000 attributes", "{{ x", ".x", 100_000, "}}"),
    ("100,000 calls", "{{ x", "()", 100_000, "}}"),
    ("60,000 subscripts", "{{ x", "[0]", 60_000, "}}"),
    ("40,000 filters", "{{ x", "|list", 40_000, "}}"),
    ("a filter block with 40,000 filters", "{% filter list", "|list", 40_000, "%}{% endfilter %}"),
    ("60,000 times not", "{{ ", "not ", 60_000, "x }}"),
    ("200,000 signs", "{{ ", "-", 200_000, "1 }}"),
    ("20,000 conditional expressions", "{{ ", "x if x else ", 20_000, "x }}"),
    ("20,000 conditional expressions on the right", "{{ x", " if x", 20_000, "}}"),
    ("100,000 comparisons", "{{ x", "<x", 100_000, "}}"),
    ("200,000 parentheses", "{{ ", "(", 200_000, "}}"),
    ("200,000 brackets", "{{ ", "[", 200_000, "}}"),
    ("50,000 dicts", "{{ ", "{1:", 50_000, "}}"),
    ("12,000 elif", "{% if x %}", "{% elif x %}", 12_000, "{% endif %}"),
    ("20,000 nested if", "", "{% if x %}", 20_000, ""),
    ("7,000 nested loops", "", "{% for x in x %}", 7_000, ""),
    ("7,000 nested sets", "", "{% set x %}", 7_000, ""),
    ("40,000 outputs", "", "{{ x }}", 36_000, ""),
    ("12,000 macros", "", "{%macro a()%}{%endmacro%}", 10_000, ""),
    ("1,000 words in each of 120 tags", "", TAG, 120, ""),
    ("constants in many tags", "", "{{ x~'aaaa'*9999~'aaaa'*9999~'aaaa'*9999~'aaaa'*9999~'aaaa'*9999 }}", 3_000, ""),
    ("a long list", "{{ [0", ",0", 100_000, "] | length }}"),
    ("a megabyte of text", "", "a", 1 << 20, ""),
    ("a hundred thousand comments", "", "{##}", 60_000, ""),
    ("a hundred thousand beginnings", "", "{%", 100_000, ""),
    ("spaces in tags", "{{", " ", 250_000, "}}"),
    ("strings of escapes", "{{ '", "\\u0041", 40_000, "' }}"),
    ("digits", "{{ ", "9", 250_000, "}}"),
];

const TAG: &str = concat!(
    "{{ x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x",
    "+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x",
    "+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x",
    "+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x }}",
);

/// The templates of the folder and of the table, by name.
fn templates() -> Vec<(String, String)> {
    let folder = crate::tree::root().join("tests/hostile/templates");
    let mut templates: Vec<(String, String)> = std::fs::read_dir(folder)
        .expect("the committed folder")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("a text"))
        })
        .collect();
    templates.sort();
    let repeated = REPEATED.iter();
    templates.extend(
        repeated.map(|(name, begin, part, count, end)| {
            ((*name).to_owned(), format!("{begin}{}{end}", part.repeat(*count)))
        }),
    );
    templates
}

fn folder(test: &str, template: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hostile").join(test);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("chat_template.jinja"), template).expect("a file");
    folder
}

const MESSAGES: &str = r#"[{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]"#;

/// Opens and renders, and says what came of it.
fn attempt(folder: &Path, messages: &str, options: &str) -> Result<String, Error> {
    match ChatTemplate::open(&Source::open(folder)?)? {
        Some(template) => {
            let first = template.render(messages, options);
            let again = template.render(MESSAGES, r#"{"again": true}"#);
            // What it did once it does again, and no panic of the first call is left behind.
            assert_eq!(first.is_ok(), again.is_ok(), "{again:?}");
            first
        }
        None => Err(Error::NoChatTemplate { named: Vec::new() }),
    }
}

fn on_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(CALLER_STACK_BYTES).spawn_scoped(scope, work);
        thread.expect("a thread").join().expect("no panic")
    })
}

/// Runs `work` on a small stack and holds it to the limits; `allowed` bytes and time come on top.
fn held_to_limits(name: &str, allowed: usize, work: impl FnOnce() -> String + Send) -> Option<String> {
    let (time, held) = (processor_time::of_process(), HELD.load(Ordering::Relaxed));
    PEAK.store(held, Ordering::Relaxed);
    let answer = on_small_stack(work);
    let time = processor_time::of_process() - time;
    let bytes = PEAK.load(Ordering::Relaxed) - held;
    let most_time = MOST_TIME * if cfg!(debug_assertions) { 20 } else { 1 };
    if std::env::var_os("NVLLM_TEST_SHOW").is_some() {
        println!("{:>6} ms {:>4} MiB  {name}: {answer}", time.as_millis(), bytes >> 20);
    }
    (time > most_time || bytes > MOST_BYTES + allowed)
        .then(|| format!("{name}: {time:?}, {} MiB: {answer}", bytes >> 20))
}

/// One test, because it counts what the process takes.
#[test]
fn no_template_and_no_message_takes_the_host_down() {
    silence::contained_panics();
    let mut broken = Vec::new();
    for (name, template) in templates() {
        let folder = folder("mean", &template);
        broken.extend(held_to_limits(&name, 0, || match attempt(&folder, MESSAGES, "") {
            Ok(text) => format!("{} bytes", text.len()),
            Err(error) => error.to_string().chars().take(120).collect(),
        }));
    }
    broken.extend(mean_messages());
    broken.extend(mean_answers());
    assert!(broken.is_empty(), "{} of them:\n{}", broken.len(), broken.join("\n"));
}

/// Messages and options that are mean to a good template.
fn mean_messages() -> Vec<String> {
    let reasoning = include_str!("golden/text/chat/templates/reasoning_tools.jinja");
    let folder = folder("good", reasoning);
    let template = ChatTemplate::open(&Source::open(&folder).unwrap()).expect("a good template").expect("a template");
    let good = template.render(MESSAGES, "").expect("a text");
    let message = |content: &str| format!(r#"{{"role": "user", "content": {content}}}"#);
    let text = |bytes: usize| format!("\"{}\"", "a".repeat(bytes));
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let cases: Vec<(&str, String, String)> = vec![
        ("nested 120 deep", format!("[{}]", message(&nested(120))), String::new()),
        ("nested 100,000 deep", format!("[{}]", message(&nested(100_000))), String::new()),
        ("52,000 messages", format!("[{}]", vec![message("\"x\""); 52_000].join(",")), String::new()),
        ("a million messages", format!("[{}]", vec!["{}"; 1_000_000].join(",")), String::new()),
        ("four million numbers", format!("[{}]", message(&format!("[{}0]", "0,".repeat(4_000_000)))), String::new()),
        ("a text of 15 MiB", format!("[{}]", message(&text(15 << 20))), String::new()),
        ("a text of 17 MiB", format!("[{}]", message(&text(17 << 20))), String::new()),
        ("a text of tags", format!("[{}]", message(&format!("\"{}\"", "</think>".repeat(1 << 20)))), String::new()),
        (
            "tools nested 120 deep",
            format!("[{}]", message("\"x\"")),
            format!(r#"{{"tools": [{{"a": {}}}]}}"#, nested(120)),
        ),
        (
            "four million tools",
            format!("[{}]", message("\"x\"")),
            format!(r#"{{"tools": [{}{{}}]}}"#, "{},".repeat(4_000_000)),
        ),
        (
            "a tool of 15 MiB",
            format!("[{}]", message("\"x\"")),
            format!(r#"{{"tools": [{{"a": {}}}]}}"#, text(15 << 20)),
        ),
        ("controls", format!("[{}]", message(&format!("\"{}\"", "\\u0000".repeat(1 << 20)))), String::new()),
    ];
    let mut broken = Vec::new();
    for (name, messages, options) in &cases {
        // The text, its JSON, its values and a few copies of them.
        let allowed = 12 * (messages.len() + options.len());
        broken.extend(held_to_limits(name, allowed, || match template.render(messages, options) {
            Ok(text) => format!("{} bytes", text.len()),
            Err(error) => error.to_string().chars().take(120).collect(),
        }));
        assert_eq!(template.render(MESSAGES, "").expect("a text"), good, "{name}");
    }
    broken
}

/// Response templates, and answers of a quarter of a mebibyte that are mean to them: 65,000 tokens.
fn mean_answers() -> Vec<String> {
    let field = |field: serde_json::Value| json!({"start_anchor": "A", "fields": {"x": field, "content": {}}});
    let numbers = format!("<[{}0]", "0,".repeat(1 << 17));
    let rows = format!("<[{}{{}}]", "{},".repeat(1 << 18));
    let constant = "x".repeat(60_000);
    let nested = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let classes: serde_json::Map<String, serde_json::Value> =
        (0..64).map(|index| (format!("f{index}"), json!({"open_pattern": r"\w+\W", "close": "z"}))).collect();
    let letters = "a".repeat(1 << 18);
    let cases = [
        ("an alternation within a star", field(json!({"open_pattern": "(?:a|b|ab)*c"})), letters.clone()),
        ("stars in a row", field(json!({"open_pattern": "a*a*a*a*a*a*a*a*b"})), letters.clone()),
        ("optional letters", field(json!({"open_pattern": "(?:a?){500}b"})), letters.clone()),
        ("everything and a letter", field(json!({"open": "a", "close_pattern": "(?:.*a){200}b"})), letters.clone()),
        ("a match at every place", field(json!({"open_pattern": "a.*b|a", "close": "a"})), letters.clone()),
        ("64 fields of classes", json!({"start_anchor": "A", "fields": classes}), letters.clone()),
        ("64 classes in one", field(json!({"open_pattern": r"(?:\w{1,40}\d)+!"})), letters),
        ("numbers", field(json!({"open": "<", "content": "json"})), numbers),
        (
            "a long constant for each row",
            field(json!({"open": "<", "content": "json", "transform_each": true, "transform": constant})),
            rows,
        ),
        ("a nested transform", field(json!({"open": "<", "transform": nested, "repeats": true})), "<a".repeat(1 << 17)),
        ("nested lists", field(json!({"open": "<", "content": "json"})), format!("<{}", "[".repeat(1 << 18))),
        ("regions of one letter", field(json!({"open": "<", "close": ">", "repeats": true})), "<>".repeat(1 << 17)),
        ("pairs", field(json!({"open": "<", "content": "kv-lines"})), format!("<{}", "a:b\n".repeat(1 << 18))),
        (
            "tags",
            field(
                json!({"open": "<", "content": "xml-inline", "content_args": {"tag_pattern": "(?P<key>a)(?P<value>b)", "merge_duplicates": true}}),
            ),
            format!("<{}", "ab".repeat(1 << 17)),
        ),
    ];
    let mut broken = Vec::new();
    for (name, template, text) in &cases {
        // The values of JSON, and of its lists of strings.
        let allowed = 64 << 20;
        broken.extend(held_to_limits(name, allowed, || match Format::of_response_template(template) {
            Ok(format) => {
                let mut parser = AnswerParser::new(&format, &json!([{"name": "f"}]), "A");
                let events = parser.feed(text).len();
                let (last, message) = parser.finish();
                format!(
                    "{} events, {} bytes of content, {:.100?}",
                    events + last.len(),
                    message.content.len(),
                    message.malformed.first().map(|malformed| &malformed.reason)
                )
            }
            Err(error) => error.to_string().chars().take(120).collect(),
        }));
    }
    broken
}
