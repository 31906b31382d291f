//! Chat templates: programs that a model folder brings along.

use super::folders::{Built, with_template};
use crate::capi::{Engine, Good};
use crate::case::{self, Bounds, Input, Session, Target, root};
use crate::random::{self, Rng};
use std::fs;

const TEMPLATE: &str = "chat_template.jinja";

/// The chat templates of the repository.
pub fn good() -> Vec<(String, Vec<u8>)> {
    let folder = root().join("tests/golden/text/chat/templates");
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

/// Templates that an engine is opened with, and that then see some conversations.
pub struct Templates;

impl Target for Templates {
    fn name(&self) -> &'static str {
        "templates"
    }

    fn bounds(&self) -> Bounds {
        // A case opens a model and renders two conversations.
        Bounds { cpu_ms: 3000, heap_bytes: 64 << 20, kept_bytes: 16 << 20 }
    }

    fn batch(&self) -> u64 {
        1000
    }

    fn long_cases(&self) -> u64 {
        20_000
    }

    fn corpus(&self) -> Vec<Input> {
        let whole = good().into_iter().map(|(name, bytes)| Input::of(name, TEMPLATE, bytes));
        let made = hostile().into_iter().map(|(origin, text)| Input::of(origin, TEMPLATE, text));
        case::hostile("templates", TEMPLATE).into_iter().chain(made).chain(whole).collect()
    }

    fn generate(&self, rng: &mut Rng, corpus: &[Input]) -> Input {
        if rng.one_in(2) {
            return Input::of("made", TEMPLATE, make(rng));
        }
        let from = &corpus[rng.below(corpus.len())];
        let other = corpus[rng.below(corpus.len())].bytes(TEMPLATE).to_vec();
        let mut bytes = from.bytes(TEMPLATE).to_vec();
        bytes.truncate(16 << 10);
        Input::of(format!("{}, changed", from.origin), TEMPLATE, random::mutate(rng, bytes, WORDS, &[other]))
    }

    fn open(&self) -> Box<dyn Session> {
        let engine = Engine::demo();
        let good = Good::of(&engine);
        Box::new(Reader { engine, good })
    }
}

struct Reader {
    engine: Engine,
    good: Good,
}

impl Session for Reader {
    fn run(&mut self, input: &Input) {
        let built = Built::new(&with_template(input.bytes(TEMPLATE)));
        if let Ok(engine) = Engine::open(&built.0, |_| {}) {
            let _ = engine.chat(br#"[{"role":"user","content":"Hi"}]"#, b"");
            let talk = br#"[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"x"}]},
                {"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}]"#;
            let _ = engine.chat(talk, br#"{"tools":[{"type":"function","function":{"name":"f"}}],"n":1000,"s":"abc"}"#);
        }
    }

    fn probe(&mut self) {
        self.good.check(&self.engine);
    }
}

const WORDS: &[&str] = &[
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{% for m in messages %}",
    "{% endfor %}",
    "{% if x %}",
    "{% elif y %}",
    "{% else %}",
    "{% endif %}",
    "{% set x = ",
    "{% set ns = namespace(a=1) %}",
    "{% set ns.a = ns %}",
    "{% macro f(x) %}",
    "{% endmacro %}",
    "{{ f(f) }}",
    "{% call f(1) %}",
    "{% endcall %}",
    "{% filter upper %}",
    "{% endfilter %}",
    "{% raw %}",
    "{% endraw %}",
    "{% generation %}",
    "{% endgeneration %}",
    "{% break %}",
    "{% continue %}",
    "{% include 'default' %}",
    "{% extends 'default' %}",
    "{% import 'default' as d %}",
    "{% block b %}",
    "{% endblock %}",
    "loop.index",
    "loop.first",
    "loop(x)",
    " recursive",
    "messages",
    "messages[0]",
    "[::-1]",
    "['role']",
    ".content",
    "|tojson",
    "|length",
    "|join(',')",
    "|indent(1000000)",
    "|format(1)",
    "|batch(9)",
    "|slice(3)",
    "|sort",
    "|map('upper')",
    "|select",
    "|list",
    "|string",
    "|trim",
    "|reverse",
    "|unique",
    "|items",
    "|dictsort",
    "|groupby('role')",
    "|replace('a','aa')",
    "|safe",
    "|int",
    "|float",
    "|round",
    "|center(10000000)",
    "|wordwrap",
    "|pprint",
    "|default('x')",
    "range(1000000000)",
    "raise_exception('x')",
    "strftime_now('%Y')",
    "'%1000000000d' % 1",
    "'a' * 1000000000",
    " ~ ",
    " + ",
    " * ",
    " ** 99999",
    " // 0",
    " % ",
    " in ",
    " is defined",
    " is string",
    " not ",
    " and ",
    "(",
    ")",
    "[",
    "]",
    "{'a': 1}",
    "'x'.split('')",
    "'x'.join(messages)",
    "'{}'.format(1)",
    "x.append(x)",
    "dict(a=1)",
    "lipsum()",
    "cycler(1)",
    "joiner()",
    "none",
    "true",
    "1e308",
    "99999999999999999999",
];

/// A template of some statements.
fn make(rng: &mut Rng) -> String {
    let mut text = String::from("{% set ns = namespace(a=1, b='x', c=[]) %}{% set x = 'ab' %}");
    statements(rng, 3, &mut text);
    text
}

fn statements(rng: &mut Rng, depth: usize, text: &mut String) {
    for _ in 0..rng.between(1, 4) {
        let value = expression(rng, 3);
        match rng.below(if depth == 0 { 4 } else { 9 }) {
            0 => text.push_str(rng.one_of(&["text", "\n", "é中", "<|im_start|>"])),
            1 | 2 => text.push_str(&format!("{{{{ {value} }}}}")),
            3 => {
                let name = *rng.pick(&["x", "y", "ns.a", "ns.b", "ns.c", "ns.d", "x, y", "messages"]);
                text.push_str(&format!("{{% set {name} = {value} %}}"));
            }
            4 | 5 => {
                text.push_str(&format!("{{% for i in {value} %}}"));
                statements(rng, depth - 1, text);
                text.push_str("{% endfor %}");
            }
            6 => {
                text.push_str(&format!("{{% if {value} %}}"));
                statements(rng, depth - 1, text);
                text.push_str("{% else %}");
                statements(rng, depth - 1, text);
                text.push_str("{% endif %}");
            }
            7 => {
                text.push_str("{% macro f(a, b=1) %}");
                statements(rng, depth - 1, text);
                text.push_str(&format!("{{% endmacro %}}{{{{ f({value}) }}}}"));
            }
            _ => {
                text.push_str(rng.one_of(&[
                    "{% filter upper %}",
                    "{% filter indent(9) %}",
                    "{% filter replace('a', 'aaaa') %}",
                ]));
                statements(rng, depth - 1, text);
                text.push_str("{% endfilter %}");
            }
        }
    }
}

fn expression(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.one_in(4) {
        let number = rng.odd_number();
        let atoms = [
            "messages",
            "messages[0]",
            "messages[-1].content",
            "tools",
            "n",
            "s",
            "x",
            "y",
            "ns",
            "ns.a",
            "ns.b",
            "ns.c",
            "i",
            "loop",
            "loop.index",
            "f",
            "'abc'",
            "'%s'",
            "'{}'",
            "[]",
            "{}",
            "true",
            "none",
            "undefined",
            "range(10)",
            "range(100000)",
            number.as_str(),
        ];
        return (*rng.pick(&atoms)).to_owned();
    }
    let a = expression(rng, depth - 1);
    match rng.below(9) {
        0 | 1 => {
            let filters = [
                "tojson",
                "tojson(indent=2)",
                "length",
                "join('-')",
                "join(x)",
                "list",
                "string",
                "sort",
                "reverse",
                "unique",
                "upper",
                "trim",
                "indent(4)",
                "indent(99999999)",
                "batch(3)",
                "slice(3)",
                "first",
                "last",
                "items",
                "dictsort",
                "map('length')",
                "map(attribute='content')",
                "selectattr('role')",
                "default(x)",
                "int",
                "float",
                "round(2)",
                "sum",
                "min",
                "max",
                "replace('a', 'bb')",
                "replace('', x)",
                "format(x, x)",
                "groupby('role')",
                "pprint",
                "wordcount",
                "title",
                "urlencode",
                "e",
            ];
            format!("({a})|{}", rng.pick(&filters))
        }
        2 | 3 => {
            let b = expression(rng, depth - 1);
            let operators = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or", "is", "not in"];
            format!("({a} {} {b})", rng.pick(&operators))
        }
        4 => {
            let methods = [
                "split('a')",
                "split()",
                "join(messages)",
                "upper()",
                "strip()",
                "replace('a', 'aa')",
                "format(x)",
                "items()",
                "keys()",
                "get('a')",
                "startswith('a')",
                "append(x)",
                "encode()",
                "zfill(99999999)",
                "ljust(99999999)",
                "count('a')",
                "splitlines()",
            ];
            format!("({a}).{}", rng.pick(&methods))
        }
        5 => {
            let slices =
                ["[0]", "[-1]", "[1:]", "[::-1]", "[:99999999]", "['role']", "[x]", "[::0]", ".content", ".role"];
            format!("({a}){}", rng.pick(&slices))
        }
        6 => format!("[{a}, {}]", expression(rng, depth - 1)),
        7 => format!("{{'a': {a}, 'b': {}}}", expression(rng, depth - 1)),
        _ => format!("({a} if {} else {})", expression(rng, depth - 1), expression(rng, depth - 1)),
    }
}

/// Templates that are large, or that cost more than they look.
fn hostile() -> Vec<(&'static str, String)> {
    let itself = |end: &str| format!("{{% set ns = namespace() %}}{{% set ns.a = ns %}}{{{{ {end} }}}}");
    let nested = "{% set ns = namespace(a=[]) %}{% for i in range(50000) %}{% set ns.a = [ns.a] %}{% endfor %}";
    let doubling = "{% set ns = namespace(s='x') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}";
    let list = "{% set l = range(100000)|list %}{% for i in range(100000) %}";
    vec![
        ("a namespace that holds itself, printed", itself("ns")),
        ("a namespace that holds itself, joined", itself("[ns, ns]|join(',')")),
        ("a namespace that holds itself, sorted", itself("[ns, ns]|sort")),
        ("a namespace that holds itself, compared", itself("ns == ns.a.a")),
        ("a namespace that holds itself, as JSON", itself("ns|tojson")),
        ("a namespace that holds itself, formatted", itself("'%s' % ns")),
        ("a list 50,000 deep, printed", format!("{nested}{{{{ ns.a }}}}")),
        ("a list 50,000 deep, as JSON", format!("{nested}{{{{ ns.a|tojson }}}}")),
        ("a list 50,000 deep, dropped", format!("{nested}{{{{ 1 }}}}")),
        ("a sum of 5,000", format!("{{{{ {}1 }}}}", "1+".repeat(5000))),
        ("a sum of 100,000", format!("{{{{ {}1 }}}}", "1+".repeat(100_000))),
        ("20,000 filters", format!("{{{{ 'a'{} }}}}", "|upper".repeat(20_000))),
        ("20,000 brackets", format!("{{{{ {}1{} }}}}", "(".repeat(20_000), ")".repeat(20_000))),
        ("20,000 lists", format!("{{{{ {}{} }}}}", "[".repeat(20_000), "]".repeat(20_000))),
        ("20,000 nots", format!("{{{{ {}1 }}}}", "not ".repeat(20_000))),
        ("20,000 minuses", format!("{{{{ {}1 }}}}", "-".repeat(20_000))),
        ("20,000 fields", format!("{{{{ a{} }}}}", ".a".repeat(20_000))),
        ("1,875 elif", format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(1875))),
        ("20,000 ifs", format!("{}{}", "{% if 1 %}".repeat(20_000), "{% endif %}".repeat(20_000))),
        ("20,000 fors", format!("{}{}", "{% for a in b %}".repeat(20_000), "{% endfor %}".repeat(20_000))),
        ("a string doubled 40 times", doubling.to_owned()),
        ("a string times 10^10", "{{ 'x' * 10000000000 }}".to_owned()),
        ("a list times 10^10", "{{ [1] * 10000000000 }}".to_owned()),
        ("a width of 10^9", "{{ '%1000000000d' % 1 }}{{ '{:1000000000}'.format(1) }}".to_owned()),
        ("a width of 10^9, as a filter", "{{ '%1000000000d'|format(1) }}".to_owned()),
        ("an indentation of 10^9", "{{ 'a\nb'|indent(1000000000) }}".to_owned()),
        ("an indentation of JSON of 10^9", "{{ [1,2]|tojson(indent=1000000000) }}".to_owned()),
        ("batches of 10^9", "{{ [1]|batch(1000000000, 'x') }}".to_owned()),
        ("slices of 10^9", "{{ [1]|slice(1000000000) }}".to_owned()),
        ("a long separator", format!("{{{{ range(100000)|join('{}') }}}}", "x".repeat(10_000))),
        ("long separators of JSON", format!("{{{{ range(100000)|list|tojson(separators=('{0}','{0}')) }}}}", "x".repeat(10_000))),
        ("output for ever", "{% for i in range(100000) %}{% for j in range(100000) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}".to_owned()),
        ("work inside of filters: sort", format!("{list}{{% set m = l|sort %}}{{% endfor %}}")),
        ("work inside of filters: tojson", format!("{list}{{% set m = l|tojson %}}{{% endfor %}}")),
        ("work inside of filters: unique", format!("{list}{{% set m = l|unique|list %}}{{% endfor %}}")),
        ("work inside of filters: in", format!("{list}{{% if -1 in l %}}{{% endif %}}{{% endfor %}}")),
        ("work inside of filters: sum", format!("{list}{{% set m = l|sum %}}{{% endfor %}}")),
        ("work inside of methods: replace", "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set t = s.replace('a', 'b') %}{% endfor %}".to_owned()),
        ("a range of 10^18", "{{ range(1000000000000000000)|list }}{{ range(10**18)|length }}".to_owned()),
        ("a macro that calls itself", "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}".to_owned()),
        ("a loop that calls itself", "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_owned()),
        ("a template that includes itself", "{% include 'default' %}{% include 'default' %}".to_owned()),
        ("backwards", "{{ ''[::-1] }}{{ 'abc'[::-1] }}{{ []|reverse }}".to_owned()),
        ("powers", "{{ 10 ** 1000000 }}{{ 2 ** -1 }}{{ 0 ** -1 }}{{ -9223372036854775808 // -1 }}{{ -9223372036854775808 % -1 }}".to_owned()),
        ("1 MB of text", "x".repeat(1 << 20)),
        ("1 MB of expressions", "{{ a }}".repeat(150_000)),
        ("strftime for ever", "{{ strftime_now('%c' * 1000000) }}{{ strftime_now('%') }}{{ strftime_now('%Q%9999999d') }}".to_owned()),
    ]
}
