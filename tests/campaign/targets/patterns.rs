//! Quantization configs whose targets are patterns, held against the names of many modules.

use super::folders::{self, file};
use crate::case::{Content, Input, root};
use crate::random::{self, Rng};
use serde_json::{Map, Value, json};

const FOLDERS: &[&str] =
    &["tests/golden/quantized/ct-mixed", "tests/golden/quantized/ct-int8-zeros", "tests/golden/quantized/ct-fp8-block"];

/// Modules that a file of weights names beside those of the model. It may name three times as many, and that takes a second by itself where
/// the library is built without optimization.
const MODULES_MAX: usize = 20_000;

/// Groups of targets, before those of the folder itself.
type Groups = Vec<Vec<String>>;

/// A folder whose config has more groups, and whose files name more modules, coded and without numbers.
fn input(origin: &str, folder: &str, groups: &Groups, names: &[String]) -> Input {
    let mut config: Value = serde_json::from_slice(&file(folder, "config.json")).unwrap();
    let own = config["quantization_config"]["config_groups"].take();
    let weights = own.as_object().and_then(|own| own.values().next()).map_or(Value::Null, |own| own["weights"].clone());
    let more = groups.iter().enumerate();
    let mut all: Map<String, Value> =
        more.map(|(i, targets)| (format!("more_{i}"), json!({"targets": targets, "weights": weights}))).collect();
    all.extend(own.as_object().cloned().unwrap_or_default());
    config["quantization_config"]["config_groups"] = all.into();
    let tensor = |(i, name): (usize, &String)| {
        let name = serde_json::to_string(&format!("{name}.{}", ["weight", "weight_packed"][i % 2])).unwrap();
        format!(r#"{name}:{{"dtype":"I8","shape":[0,0],"data_offsets":[0,0]}}"#)
    };
    let header = format!("{{{}}}", names.iter().enumerate().map(tensor).collect::<Vec<_>>().join(","));
    let tensors = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let index = json!({"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}});
    let own = root().join(folder).join("model.safetensors");
    let parts = [
        ("config.json", Content::Bytes(config.to_string().into_bytes())),
        ("model.safetensors", Content::Missing),
        ("model.safetensors.index.json", Content::Bytes(index.to_string().into_bytes())),
        ("a.safetensors", Content::Link(own)),
        ("b.safetensors", Content::Bytes(tensors)),
    ];
    let parts = parts.into_iter().map(|(name, content)| (name.to_owned(), content));
    Input { origin: origin.to_owned(), parts: std::iter::once(folders::base(folder)).chain(parts).collect(), seed: 1 }
}

fn modules(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("visual.blocks.{i}.attention.qkv_proj")).collect()
}

/// Groups of 64 patterns each.
fn all_groups(groups: usize, pattern: impl Fn(usize) -> String) -> Groups {
    (0..groups).map(|group| (0..64).map(|i| format!("re:{}", pattern(group * 64 + i))).collect()).collect()
}

pub fn corpus() -> Vec<Input> {
    let folder = FOLDERS[0];
    let same = |pattern: &str| all_groups(62, |_| pattern.to_owned());
    let each = |pattern: &str| all_groups(62, |i| pattern.replace('N', &i.to_string()));
    // So few that all are compiled.
    let some = |pattern: &str| all_groups(12, |i| pattern.replace('N', &i.to_string()));
    let groups_and_modules = [
        ("nothing more", vec![], 0),
        ("many classes", same(r"\w{20}"), 0),
        ("many different classes", each(r"\w{20}N"), 0),
        ("many letters of any case", each(r"(?i)[\wN]{20}"), 0),
        ("classes of much work and few letters", each(r"(?i)[\w\D&&[aN]]"), 0),
        ("nested repetitions of nothing", each(r"((((){1000}){1000}){1000}){N}"), 0),
        ("repetitions of a repetition", each(r"(?:(?:a{60}){60}){N}"), 0),
        ("references back", same(r"(?:(a*)*)*\1b(?=x)"), MODULES_MAX),
        ("nested stars", same(r"(?:(?:(?:[^z]*)*)*)*b(?=x)"), MODULES_MAX),
        ("different nested stars", some(r"(?:(?:(?:.*)*)*)*(?:N|b)(?=x)"), MODULES_MAX),
        ("look-ahead at every letter", some(r"(?:(?=.*.*.*(N|x)).)*[z]"), MODULES_MAX),
        ("look-behind at every letter", some(r"(?:.(?<!z))*(?:N|[z])"), MODULES_MAX),
        ("atomic groups", some(r"(?:(?>(?:.|.)*N|.))*[z]"), MODULES_MAX),
        ("patterns that match nothing", some(r".*[N].*[z]"), MODULES_MAX),
        ("common patterns", (0..50).map(|i| vec![format!(r"re:.*layers\.{i}\..*gate_proj$")]).collect(), MODULES_MAX),
        ("a common pattern that looks ahead", vec![vec!["re:^(?!.*visual).*proj".into()]], MODULES_MAX),
        (
            "names instead of patterns",
            (0..62).map(|group| (0..300).map(|i| format!("layers.{group}.{i}")).collect()).collect(),
            MODULES_MAX,
        ),
    ];
    let mut all: Vec<Input> = groups_and_modules
        .iter()
        .map(|(origin, groups, count)| input(origin, folder, groups, &modules(*count)))
        .collect();
    let long = vec!["x".repeat(1 << 20), "y".repeat(100_000), "z".repeat(1000)];
    for pattern in [r"re:.*.*.*a", r"re:(?:.|.)*(?<!x)a", r"re:(?:(?=(.*)*b).)*"] {
        all.push(input("long names", folder, &vec![vec![pattern.to_owned()]], &long));
    }
    for folder in FOLDERS {
        let groups = vec![vec!["re:.*q_proj".to_owned()], vec!["Linear".to_owned()]];
        all.push(input("other groups", folder, &groups, &[]));
    }
    all
}

const ATOMS: &[&str] = &[
    ".",
    "a",
    "x",
    r"\.",
    r"\d",
    r"\w",
    r"\S",
    "[a-z_]",
    "[^.]",
    r"[\w.&&[^a]]",
    "[é-ü]",
    "model",
    "layers",
    "mlp",
    "self_attn",
    "q_proj",
    "visual",
    "é",
    "^",
    "$",
    r"\b",
    r"\B",
    r"\A",
    r"\Z",
    r"\1",
    r"\p{L}",
    "",
];

/// A pattern of some depth.
fn pattern(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.one_in(4) {
        return rng.one_of(ATOMS).to_owned();
    }
    let inner = pattern(rng, depth - 1);
    match rng.below(9) {
        0 => format!(
            "(?:{inner}){}",
            rng.one_of(&["*", "+", "?", "*?", "{3}", "{0,70}", "{20,}", "{1000}", "*+", "{,2}"])
        ),
        1 => format!("({inner}|{})", pattern(rng, depth - 1)),
        2 => format!("{}{inner})", rng.one_of(&["(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?s:", "(?P<n>", "("])),
        3 => format!("(?i){inner}"),
        4 => format!(".*{inner}.*"),
        _ => inner + &pattern(rng, depth - 1),
    }
}

fn name(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => rng.text(300),
        1 => rng.one_of(&["a", ".", "é", "model.", "x1"]).repeat(rng.length(2000)),
        2 => "model.layers.0.self_attn.q_proj".to_owned(),
        _ => {
            let parts = ["model", "layers", "visual", "mlp", "self_attn", "q_proj", "down_proj", "experts", "7", "x"];
            (0..rng.between(1, 8)).map(|_| rng.one_of(&parts)).collect::<Vec<_>>().join(".")
        }
    }
}

/// Other groups, and other modules.
pub fn change(rng: &mut Rng, _: &[Input]) -> Input {
    let group = |rng: &mut Rng| -> Vec<String> {
        let entry = |rng: &mut Rng| match rng.below(8) {
            0 => "Linear".to_owned(),
            1 => name(rng),
            2 => {
                let bytes = random::mutate(rng, b"re:.*self_attn\\.(q|k|v)_proj$".to_vec(), ATOMS, &[]);
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => {
                let depth = rng.between(0, 6);
                format!("re:{}", pattern(rng, depth))
            }
        };
        let count = rng.length(70);
        (0..count).map(|_| entry(rng)).collect()
    };
    let count = rng.length(66);
    let groups: Groups = (0..count).map(|_| group(rng)).collect();
    let count = if rng.one_in(8) { rng.below(20_000) } else { rng.length(500) };
    let mut names: Vec<String> = (0..count).map(|_| name(rng)).collect();
    names.sort();
    names.dedup();
    let folder = rng.one_of(FOLDERS);
    input("groups and modules", folder, &groups, &names)
}
