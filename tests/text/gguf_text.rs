//! The tokenizer, the chat templates, the end tokens and the recommended sampling of a GGUF file are those of the folder that it was
//! made of.
//!
//! The tokenizers are those of tests/golden/text, whose tokens tests/text/text_golden.rs compares with Hugging Face's.

use crate::writer;

use formats::source::Source;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use text::chat_template::ChatTemplate;
use text::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens, Tokenizer};
use writer::{Value, Writer};

/// Pieces of texts in many scripts, with what tokenizers treat in a way of its own.
const PIECES: &[&str] = &[
    "The engine",
    " answers",
    "isn't",
    " WE'VE",
    "it'll",
    "7",
    "42",
    " 1234567",
    "3.14",
    " ",
    "  ",
    "     ",
    "\n",
    "\n\n\n",
    "\t",
    "\r\n",
    "Größe",
    "façade",
    "e\u{301}",
    "n\u{303}",
    "\u{928}\u{93c}",
    "\u{958}",
    "日本語",
    "中文也是",
    "한국어",
    "Русский",
    "Ελληνικά",
    "שלום",
    "مرحبا",
    "ไทย",
    "தமிழ்",
    "አማርኛ",
    "😀",
    "👨\u{200d}👩\u{200d}👧",
    "🇩🇪",
    "\u{20000}",
    "𝔘𝔫𝔦",
    "\u{0}",
    "\u{1b}[0m",
    "\u{feff}",
    "\u{fffd}",
    "if (x[i] != 0) {",
    "</b>",
    "_snake_case",
    "camelCaseWords",
    "ALLCAPS",
    "www.x.org/?q=1",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<s>",
    "</s>",
    "<unk>",
    "[INST]",
    "<tool_call>",
    "<think>",
    "<0x41>",
    "▁",
    "▁▁",
    "\u{a0}",
    "\u{2003}",
    "\u{3000}",
    "½",
    "²",
    "Ⅷ",
    "ß",
    "İ",
    "ﬁ",
    "…",
    "—",
    "’s",
];

/// Texts of some of the pieces, the same each time.
fn texts() -> Vec<String> {
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let singles = PIECES.iter().map(|piece| piece.to_string());
    let mixed = (0..1000).map(|_| (0..1 + next(12)).map(|_| PIECES[next(PIECES.len())]).collect::<String>());
    singles.chain(mixed.collect::<Vec<_>>()).chain([String::new()]).collect()
}

fn encodings() -> [Encoding; 4] {
    let of = |added, spelled| Encoding { added, spelled };
    [
        of(AddedTokens::Add, SpelledTokens::Parse),
        of(AddedTokens::Add, SpelledTokens::Text),
        of(AddedTokens::Omit, SpelledTokens::Parse),
        of(AddedTokens::Omit, SpelledTokens::Text),
    ]
}

fn folder(kind: &str) -> PathBuf {
    crate::tree::root().join("tests/golden/text").join(kind)
}

/// A folder of its own for a test; gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("nanovllm-gguf-text-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn source(&self, file: &Writer) -> Source {
        let path = self.0.join("model.gguf");
        fs::write(&path, file.bytes()).unwrap();
        Source::open(&path).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file with the tokens and merges of a tokenizer.json, as a conversion writes them.
fn file_of(kind: &str, model: &str, pre: &str) -> Writer {
    let json: Json = serde_json::from_slice(&fs::read(folder(kind).join("tokenizer.json")).unwrap()).unwrap();
    let vocab = json["model"]["vocab"].as_object().unwrap();
    let added = json["added_tokens"].as_array().unwrap();
    let last = |ids: &mut dyn Iterator<Item = &Json>| ids.map(|id| id.as_u64().unwrap()).max().unwrap_or(0);
    let len = 1 + last(&mut vocab.values()).max(last(&mut added.iter().map(|token| &token["id"])));
    // Some ids beyond: rows of the embedding that no token has.
    let mut tokens: Vec<(String, i32)> = (0..len + 3).map(|id| (format!("[PAD{id}]"), 5)).collect();
    for (text, id) in vocab {
        let is_byte = text.len() == 6 && text.starts_with("<0x");
        tokens[id.as_u64().unwrap() as usize] = (text.clone(), if is_byte { 6 } else { 1 });
    }
    for token in added {
        let kind = if token["special"] == true { 3 } else { 4 };
        tokens[token["id"].as_u64().unwrap() as usize] = (token["content"].as_str().unwrap().into(), kind);
    }
    let merges = json["model"]["merges"].as_array().unwrap().iter().map(|merge| match merge {
        Json::Array(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()).into_bytes(),
        merge => merge.as_str().unwrap().as_bytes().to_vec(),
    });
    let mut file = Writer::new();
    file.set("general.architecture", "llama")
        .set("tokenizer.ggml.model", model)
        .set("tokenizer.ggml.pre", pre)
        .set("tokenizer.ggml.tokens", Value::Texts(tokens.iter().map(|(text, _)| text.clone().into_bytes()).collect()))
        .set("tokenizer.ggml.token_type", Value::I32s(tokens.iter().map(|(_, kind)| *kind).collect()))
        .set("tokenizer.ggml.merges", Value::Texts(merges.collect()));
    file
}

fn id_of(kind: &str, text: &str) -> u32 {
    let json: Json = serde_json::from_slice(&fs::read(folder(kind).join("tokenizer.json")).unwrap()).unwrap();
    let added = json["added_tokens"].as_array().unwrap();
    added.iter().find(|token| token["content"] == text).unwrap()["id"].as_u64().unwrap() as u32
}

/// The generation_config.json that a source has, or null.
fn recommended(source: &Source) -> Json {
    source.generation_config().unwrap().map_or(Json::Null, |file| serde_json::from_slice(&file.bytes).unwrap())
}

fn open(source: &Source) -> Tokenizer {
    Tokenizer::open(source).unwrap().unwrap()
}

/// Compares all texts, there and back.
fn assert_same(found: &Tokenizer, wanted: &Tokenizer, what: &str) {
    for text in texts() {
        for encoding in encodings() {
            let tokens = wanted.encode(&text, encoding).unwrap();
            assert_eq!(found.encode(&text, encoding).unwrap(), tokens, "{what}, {encoding:?}: {text:?}");
            for special in [SpecialTokens::Keep, SpecialTokens::Skip] {
                assert_eq!(
                    found.decode(&tokens, special).unwrap(),
                    wanted.decode(&tokens, special).unwrap(),
                    "{what}: {text:?}"
                );
            }
        }
    }
}

#[test]
fn tokens_are_those_of_the_folder() {
    for (kind, model, pre, begin) in [
        ("byte_level", "gpt2", "qwen2", None),
        ("byte_level_bos", "gpt2", "llama-bpe", Some("<|begin_of_text|>")),
        ("byte_level_cases", "gpt2", "tekken", Some("<s>")),
        ("sentencepiece", "llama", "default", Some("<s>")),
    ] {
        let scratch = Scratch::new(kind);
        let mut file = file_of(kind, model, pre);
        if let Some(begin) = begin {
            file.set("tokenizer.ggml.bos_token_id", Value::U32(id_of(kind, begin)));
        }
        let found = open(&scratch.source(&file));
        assert_same(&found, &open(&Source::open(&folder(kind)).unwrap()), kind);
    }
}

/// Their tokens were compared with llama.cpp's, of 47 texts each, when the expressions were written here.
#[test]
fn the_expressions_of_deepseek_split_texts_that_come_back() {
    for pre in ["deepseek-llm", "deepseek-coder", "deepseek-v3"] {
        let scratch = Scratch::new(pre);
        let found = open(&scratch.source(&file_of("byte_level", "gpt2", pre)));
        for text in texts() {
            for encoding in encodings() {
                let tokens = found.encode(&text, encoding).unwrap();
                assert_eq!(found.decode(&tokens, SpecialTokens::Keep).unwrap(), text, "{pre}, {encoding:?}");
            }
        }
    }
}

/// Files that llama.cpp's conversion wrote: `VOCABULARIES` of tests/gguf/make_gguf.py.
#[test]
fn tokens_of_encoders_are_those_of_the_folder() {
    for kind in ["bert", "unigram"] {
        let file = crate::tree::root().join(format!("tests/gguf/vocabularies/{kind}.gguf"));
        let (found, wanted) = (open(&Source::open(&file).unwrap()), open(&Source::open(&folder(kind)).unwrap()));
        assert_same(&found, &wanted, kind);
        let texts = texts();
        for (first, second) in texts.iter().zip(texts.iter().rev()) {
            let pair = |tokenizer: &Tokenizer| tokenizer.encode_pair_within(first, second, usize::MAX).unwrap();
            assert_eq!(pair(&found), pair(&wanted), "{kind}: {first:?} and {second:?}");
        }
    }
}

/// ModernBERT's and RoBERTa's tokenizers are byte-level, with tokens around texts.
#[test]
fn pairs_of_byte_level_tokenizers_are_joined_as_the_flags_say() {
    let (begin, end) = (id_of("byte_level_cases", "<s>"), id_of("byte_level_cases", "</s>"));
    for (architecture, pre, types, doubles) in
        [("modern-bert", "modern-bert", 0, false), ("bert", "roberta-bpe", 2, true)]
    {
        let scratch = Scratch::new("pairs");
        let mut file = file_of("byte_level_cases", "gpt2", pre);
        file.set("general.architecture", architecture)
            .set("tokenizer.ggml.bos_token_id", Value::U32(begin))
            .set("tokenizer.ggml.eos_token_id", Value::U32(end))
            .set("tokenizer.ggml.token_type_count", Value::U32(types))
            .set("tokenizer.ggml.add_bos_token", Value::Flag(true))
            .set("tokenizer.ggml.add_eos_token", Value::Flag(true))
            .set("tokenizer.ggml.add_sep_token", Value::Flag(true));
        let tokenizer = open(&scratch.source(&file));
        let encode = |text: &str| {
            tokenizer.encode(text, Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse }).unwrap()
        };
        let (first, second) = (encode("the engine"), encode("answers"));
        let between = if doubles { vec![end, end] } else { vec![end] };
        let wanted = [vec![begin], first, between, second.clone(), vec![end]].concat();
        let of_second = if types > 1 { wanted.len() - second.len() - 1 } else { wanted.len() };
        let found = tokenizer.encode_pair_within("the engine", "answers", usize::MAX).unwrap();
        assert_eq!(found, (wanted, of_second), "{architecture}");
    }
}

#[test]
fn a_tokenizer_of_scores_joins_the_best_pair_first() {
    const KIND: &str = "sentencepiece";
    let mut file = file_of(KIND, "llama", "default");
    let (Value::Texts(tokens), Value::I32s(kinds)) = (value(&file, "tokens"), value(&file, "token_type")) else {
        panic!()
    };
    let (tokens, kinds) = (tokens.clone(), kinds.clone());
    // A score for each token, the same for some.
    let scores: Vec<f32> = (0..tokens.len()).map(|id| -((id * 7919 % 211) as f32)).collect();
    file.without("tokenizer.ggml.merges").set("tokenizer.ggml.scores", Value::F32s(scores.clone()));
    let scratch = Scratch::new("scores");
    let tokenizer = open(&scratch.source(&file));
    let ids: HashMap<&str, usize> = (0..tokens.len())
        .filter(|&id| kinds[id] == 1)
        .map(|id| (std::str::from_utf8(&tokens[id]).unwrap(), id))
        .collect();
    let plain = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse };
    for text in ["the engine answers questions about prime numbers", "one token at a time", "prompt stalls a short one"]
    {
        let tokens = tokenizer.encode(text, plain).unwrap();
        assert_eq!(tokens, by_scores(&format!("▁{}", text.replace(' ', "▁")), &ids, &scores), "{text}");
    }
}

fn value<'a>(file: &'a Writer, name: &str) -> &'a Value {
    let key = format!("tokenizer.ggml.{name}");
    &file.entries.iter().find(|(own, _)| *own == key.as_bytes()).unwrap().1
}

/// SentencePiece's rule: of all neighbours whose union is a token, those with the best score are joined, the leftmost first.
fn by_scores(text: &str, ids: &HashMap<&str, usize>, scores: &[f32]) -> Vec<u32> {
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let unions =
            parts.windows(2).enumerate().filter_map(|(at, pair)| Some((at, *ids.get(pair.concat().as_str())?)));
        let best = unions.min_by(|(at, a), (other_at, b)| scores[*b].total_cmp(&scores[*a]).then(at.cmp(other_at)));
        let Some((at, _)) = best else { break };
        let right = parts.remove(at + 1);
        parts[at].push_str(&right);
    }
    parts.iter().map(|part| ids[part.as_str()] as u32).collect()
}

/// As Gemma has it: runs of spaces are tokens, and no text gets a space before it.
#[test]
fn runs_of_spaces_are_tokens_of_the_model() {
    let mut tokens: Vec<(&str, i32, f32)> =
        vec![("<pad>", 3, 0.0), ("<eos>", 3, 0.0), ("<bos>", 3, 0.0), ("<unk>", 2, 0.0)];
    let bytes: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    tokens.extend(bytes.iter().map(|text| (text.as_str(), 6, 0.0)));
    let runs = tokens.len() as u32;
    tokens.extend([
        ("  ", 4, 0.0),
        ("    ", 4, 0.0),
        ("\n\n", 4, 0.0),
        ("▁", 1, -9.0),
        ("a", 1, -10.0),
        ("b", 1, -11.0),
    ]);
    let joined = tokens.len() as u32;
    tokens.push(("▁b", 1, -5.0));
    let mut file = Writer::new();
    file.set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.add_space_prefix", Value::Flag(false))
        .set("tokenizer.ggml.bos_token_id", Value::U32(2))
        .set("tokenizer.ggml.unknown_token_id", Value::U32(3))
        .set("tokenizer.ggml.tokens", Value::Texts(tokens.iter().map(|token| token.0.into()).collect()))
        .set("tokenizer.ggml.token_type", Value::I32s(tokens.iter().map(|token| token.1).collect()))
        .set("tokenizer.ggml.scores", Value::F32s(tokens.iter().map(|token| token.2).collect()));
    let scratch = Scratch::new("runs");
    let tokenizer = open(&scratch.source(&file));
    let encode = |text: &str| {
        tokenizer.encode(text, Encoding { added: AddedTokens::Add, spelled: SpelledTokens::Parse }).unwrap()
    };
    let (a, b) = (runs + 4, runs + 5);
    assert_eq!(encode("a b"), [2, a, joined]);
    assert_eq!(encode("a  b"), [2, a, runs, b]);
    assert_eq!(encode("a     a"), [2, a, runs + 1, runs + 3, a]);
    assert_eq!(encode("a\n\nb\n"), [2, a, runs + 2, b, 4 + 10]);
    assert_eq!(tokenizer.decode(&encode(" a    b"), SpecialTokens::Skip).unwrap(), " a    b");
}

#[test]
fn control_tokens_of_phi_3_take_the_white_space_behind_them() {
    let mut file = file_of("sentencepiece", "llama", "default");
    file.set("tokenizer.ggml.add_bos_token", Value::Flag(false));
    let scratch = Scratch::new("phi3");
    let encoding = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse };
    let encode = |file: &Writer, text: &str| open(&scratch.source(file)).encode(text, encoding).unwrap();
    assert_ne!(encode(&file, "</s> \n a"), encode(&file, "</s>a"));
    file.set("general.architecture", "phi3");
    assert_eq!(encode(&file, "</s> \n a"), encode(&file, "</s>a"));
    assert_ne!(encode(&file, "<s> \n a"), encode(&file, "<s>a"));
}

#[test]
fn what_is_beside_the_file_wins() {
    let scratch = Scratch::new("beside");
    let mut file = file_of("byte_level", "gpt2", "a-name-of-nobody");
    file.set("tokenizer.chat_template", "of the file").set("general.sampling.temp", Value::F32(0.5));
    let error = Tokenizer::open(&scratch.source(&file)).err().unwrap().to_string();
    let words =
        "tokenizer.ggml.pre is a-name-of-nobody, which is not known: put the model's tokenizer.json beside the file";
    assert!(error.ends_with(words), "{error}");
    fs::copy(folder("byte_level").join("tokenizer.json"), scratch.0.join("tokenizer.json")).unwrap();
    assert_same(&open(&scratch.source(&file)), &open(&Source::open(&folder("byte_level")).unwrap()), "beside");
    let texts = |source: &Source| {
        let templates = source.chat_templates().unwrap().unwrap().templates;
        templates.into_values().map(|(_, text)| text).collect::<Vec<_>>()
    };
    assert_eq!(texts(&scratch.source(&file)), ["of the file"]);
    assert_eq!(recommended(&scratch.source(&file))["temperature"], 0.5);
    fs::write(scratch.0.join("chat_template.jinja"), "beside").unwrap();
    fs::write(scratch.0.join("generation_config.json"), r#"{"do_sample": true, "temperature": 0.25}"#).unwrap();
    assert_eq!(texts(&scratch.source(&file)), ["beside"]);
    assert_eq!(recommended(&scratch.source(&file))["temperature"], 0.25);
}

#[test]
fn a_whole_tokenizer_in_the_file_wins_over_its_parts() {
    let scratch = Scratch::new("whole");
    let json = fs::read(folder("byte_level_bos").join("tokenizer.json")).unwrap();
    let mut file = file_of("byte_level", "gpt2", "a-name-of-nobody");
    file.set("tokenizer.huggingface.json", Value::Text(json));
    assert_same(&open(&scratch.source(&file)), &open(&Source::open(&folder("byte_level_bos")).unwrap()), "whole");
}

#[test]
fn templates_have_names_and_know_the_special_tokens() {
    let scratch = Scratch::new("templates");
    let mut file = file_of("byte_level_bos", "gpt2", "llama-bpe");
    file.set("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
        .set("tokenizer.chat_template.tool_use", "{{ messages[0].content }} with {{ tools | length }}")
        .set("tokenizer.ggml.bos_token_id", Value::U32(500))
        .set("tokenizer.ggml.eos_token_id", Value::U32(501));
    let source = scratch.source(&file);
    let templates = source.chat_templates().unwrap().unwrap();
    assert_eq!(templates.templates.keys().collect::<Vec<_>>(), ["default", "tool_use"]);
    let wanted = [("bos_token", "<|begin_of_text|>".to_string()), ("eos_token", "<|eot_id|>".to_string())];
    assert_eq!(templates.named_tokens, wanted);
    assert!(ChatTemplate::open(&source).unwrap().is_some());
    assert!(ChatTemplate::open(&scratch.source(&Writer::new())).unwrap().is_none());
}

#[test]
fn recommended_sampling_counts_as_in_generation_config() {
    let scratch = Scratch::new("sampling");
    let recommended = |keys: &[(&str, f32)]| {
        let mut file = Writer::new();
        for (key, number) in keys {
            file.set(&format!("general.sampling.{key}"), Value::F32(*number));
        }
        recommended(&scratch.source(&file))
    };
    let all = recommended(&[("temp", 0.5), ("top_k", 20.0), ("top_p", 0.75), ("min_p", 0.25), ("penalty_repeat", 1.5)]);
    let wanted = json!({
        "do_sample": true, "temperature": 0.5, "top_k": 20, "top_p": 0.75, "min_p": 0.25, "repetition_penalty": 1.5
    });
    assert_eq!(all, wanted);
    let penalty = recommended(&[("penalty_repeat", 1.5)]);
    assert_eq!(penalty, json!({"do_sample": false, "repetition_penalty": 1.5}));
    assert_eq!(recommended(&[("temp", 0.0), ("top_k", 20.0)])["do_sample"], false);
    assert_eq!(recommended(&[("top_k", -1.0)]), json!({"do_sample": true, "top_k": 0}));
    assert_eq!(recommended(&[]), Json::Null);
}

/// How a tokenizer is spoiled, and what is said of it.
type Spoil = fn(&mut Writer);

const BAD: &[(&str, Spoil, &str)] = &[
    (
        "a model of another kind",
        |file| {
            file.set("tokenizer.ggml.model", "rwkv");
        },
        "tokenizer.ggml.model is rwkv, but gpt2, llama, bert and t5 are read: put the model's tokenizer.json beside the file",
    ),
    (
        "an unknown split",
        |file| {
            file.set("tokenizer.ggml.pre", "default");
        },
        "tokenizer.ggml.pre is default, which is not known: put the model's tokenizer.json beside the file",
    ),
    (
        "no tokens",
        |file| {
            file.without("tokenizer.ggml.tokens");
        },
        "tokenizer.ggml.tokens is missing",
    ),
    (
        "no merges",
        |file| {
            file.without("tokenizer.ggml.merges");
        },
        "tokenizer.ggml.merges is missing",
    ),
    (
        "tokens that are numbers",
        |file| {
            file.set("tokenizer.ggml.tokens", Value::I32s(vec![1, 2]));
        },
        "key tokenizer.ggml.tokens must be an array of strings",
    ),
    (
        "a token that is no text",
        |file| {
            file.set("tokenizer.ggml.tokens", Value::Texts(vec![b"a".to_vec(), vec![0xff]]));
        },
        "token 1 of tokenizer.ggml.tokens is not UTF-8",
    ),
    (
        "a token twice",
        |file| {
            file.set("tokenizer.ggml.tokens", Value::Texts(vec![b"a".to_vec(), b"b".to_vec(), b"a".to_vec()]));
        },
        "tokens 0 and 2 of tokenizer.ggml.tokens are both \"a\"",
    ),
    (
        "fewer types than tokens",
        |file| {
            file.set("tokenizer.ggml.token_type", Value::I32s(vec![1]));
        },
        "tokenizer.ggml.token_type has 1 entries, but there are 3 tokens",
    ),
    (
        "a merge of one token",
        |file| {
            file.set("tokenizer.ggml.merges", Value::Texts(vec![b"a b".to_vec(), b"ab".to_vec()]));
        },
        "entry 1 of tokenizer.ggml.merges is no pair of tokens",
    ),
    (
        "a merge of no tokens",
        |file| {
            file.set("tokenizer.ggml.merges", Value::Texts(vec![b"x y".to_vec()]));
        },
        "not a tokenizer: ",
    ),
    (
        "a token longer than any",
        |file| {
            file.set("tokenizer.ggml.tokens", Value::Texts(vec![vec![b'a'; 5000], b"b".to_vec(), b"ab".to_vec()]));
        },
        "token 0 of tokenizer.ggml.tokens has 5000 bytes, but at most 4096 are read",
    ),
    (
        "a text that begins with nothing",
        |file| {
            file.set("tokenizer.ggml.add_bos_token", Value::Flag(true));
        },
        "tokenizer.ggml.bos_token_id is missing, but begins or ends every text",
    ),
    (
        "a flag that is none",
        |file| {
            file.set("tokenizer.ggml.add_bos_token", Value::U32(1));
        },
        "key tokenizer.ggml.add_bos_token must be true or false",
    ),
    (
        "scores that are missing",
        |file| {
            file.set("tokenizer.ggml.model", "llama").without("tokenizer.ggml.merges");
        },
        "tokenizer.ggml.merges and tokenizer.ggml.scores are missing",
    ),
    (
        "words without the token that begins each text",
        |file| {
            file.set("tokenizer.ggml.model", "bert");
        },
        "tokenizer.ggml.cls_token_id is missing, but every text has this token",
    ),
    (
        "a unigram model without scores",
        |file| {
            file.set("tokenizer.ggml.model", "t5");
        },
        "tokenizer.ggml.scores must have a number for each of the 3 tokens",
    ),
    (
        "a unigram model without an unknown token",
        |file| {
            file.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.scores", Value::F32s(vec![0.0; 3]));
            file.set("tokenizer.ggml.tokens", Value::Texts(vec![b"a".to_vec(), b"b".to_vec()]));
        },
        "tokenizer.ggml.unknown_token_id is missing, but there must be such a token",
    ),
    (
        "a normalizer that is none",
        |file| {
            file.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.scores", Value::F32s(vec![0.0; 3]));
            file.set("tokenizer.ggml.precompiled_charsmap", Value::I32s(vec![1, 300]));
        },
        "key tokenizer.ggml.precompiled_charsmap must be an array of bytes",
    ),
    (
        "a normalizer that leads out of itself",
        |file| {
            file.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.scores", Value::F32s(vec![0.0; 3]));
            file.set("tokenizer.ggml.precompiled_charsmap", Value::I32s(vec![4, 0, 0, 0, 0, 255, 255, -1]));
        },
        "precompiled_charsmap has a trie whose offsets leave it",
    ),
    (
        "spaces behind words",
        |file| {
            file.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.treat_whitespace_as_suffix", Value::Flag(true));
        },
        "tokenizer.ggml.treat_whitespace_as_suffix is true, but must be false",
    ),
    (
        "scores that are none",
        |file| {
            file.set("tokenizer.ggml.model", "llama").without("tokenizer.ggml.merges");
            file.set("tokenizer.ggml.scores", Value::F32s(vec![0.0, f32::NAN, 0.0]));
        },
        "tokenizer.ggml.scores must have a number for each of the 3 tokens",
    ),
];

#[test]
fn a_tokenizer_that_is_not_known_is_refused() {
    let scratch = Scratch::new("bad");
    for (name, spoil, words) in BAD {
        let mut file = Writer::new();
        let texts = |texts: &[&str]| Value::Texts(texts.iter().map(|text| text.as_bytes().to_vec()).collect());
        file.set("tokenizer.ggml.model", "gpt2")
            .set("tokenizer.ggml.pre", "qwen2")
            .set("tokenizer.ggml.tokens", texts(&["a", "b", "ab"]))
            .set("tokenizer.ggml.merges", texts(&["a b"]));
        spoil(&mut file);
        let source = scratch.source(&file);
        let error = Tokenizer::open(&source).err().unwrap_or_else(|| panic!("{name} opened")).to_string();
        assert!(error.starts_with(&source.path().display().to_string()) && error.contains(words), "{name}: {error}");
    }
}

/// All texts of up to `longest` letters a and b.
fn words(longest: u32) -> Vec<Vec<u8>> {
    let word = |bits: u32, len: u32| (0..len).map(|at| b'a' + (bits >> at & 1) as u8).collect();
    (1..=longest).flat_map(|len| (0..1u32 << len).map(move |bits| word(bits, len))).collect()
}

#[test]
fn a_vocabulary_is_counted_before_a_tokenizer_is_built_of_it() {
    let scratch = Scratch::new("large");
    let tokens = |texts: Vec<Vec<u8>>, kind: i32| {
        let mut file = Writer::new();
        file.set("general.architecture", "llama")
            .set("tokenizer.ggml.model", "llama")
            .set("tokenizer.ggml.scores", Value::F32s(vec![0.0; texts.len()]))
            .set("tokenizer.ggml.token_type", Value::I32s(vec![kind; texts.len()]))
            .set("tokenizer.ggml.tokens", Value::Texts(texts));
        file
    };
    let numbered = |count: usize, byte: &str, len: usize| -> Vec<Vec<u8>> {
        (0..count).map(|i| format!("{i} {}", byte.repeat(len)).into_bytes()).collect()
    };
    const USER_DEFINED: i32 = 4;
    let spaces = (0..3000).map(|_| vec![b' '; 1000]).collect();
    let mut bytes = tokens(numbered(8000, "\u{1}", 2000), USER_DEFINED);
    bytes
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "llama-bpe")
        .set("tokenizer.ggml.bos_token_id", Value::U32(0))
        .set("tokenizer.ggml.merges", Value::Texts(Vec::new()));
    for (file, wanted) in [
        (tokens(words(18), 1), "can be divided at 8388612 places, but at most 4194304 are looked at"),
        (tokens(words(16), 1), "scores make more than 1048576 merges"),
        (tokens(numbered(8000, "\u{1}", 2000), USER_DEFINED), "more than 67108864 bytes as tokenizer.json"),
        (bytes, "more than 67108864 bytes as tokenizer.json"),
        (tokens(numbered(17_000, "x", 1), USER_DEFINED), "has 17000 tokens that are control or user-defined"),
        (tokens(numbered(3, "x", 5000), 1), "token 0 of tokenizer.ggml.tokens has 5002 bytes, but at most 4096"),
        (tokens(spaces, USER_DEFINED), "runs of spaces of 9000000 bytes in all, but at most 8388608"),
    ] {
        let error = scratch.source(&file).tokenizer().err().expect(wanted).to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}
