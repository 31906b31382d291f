//! How does a byte-level tokenizer split a text before it merges bytes?
//!
//! A GGUF file names it by `tokenizer.ggml.pre` and says nothing else: the regular expressions, the normal form and whether whole words
//! are looked up are those of the tokenizer.json that the name was made for. The expressions are the originals, which
//! src/llama-vocab.cpp of llama.cpp has in its comments.

use serde_json::{Value, json};

/// A way to split texts.
pub struct Pre {
    /// What `tokenizer.ggml.pre` may be.
    names: &'static [&'static str],
    split: Split,
    /// Whether texts are brought into Unicode's normal form C.
    pub nfc: bool,
    /// Whether a word that is a token is that token, whatever the merges make of it.
    pub ignore_merges: bool,
    /// Whether a text begins with the token for it, unless the file says.
    pub add_bos: bool,
}

enum Split {
    /// By these expressions, one after another.
    Patterns(&'static [&'static str]),
    /// By GPT-2's expression, which the step that makes bytes of words has built in.
    Gpt2,
    /// Digits one by one, then as GPT-2.
    DigitsGpt2,
}

const PLAIN: Pre = Pre { names: &[], split: Split::Gpt2, nfc: false, ignore_merges: false, add_bos: false };

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const K_EXAONE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const DEEPSEEK3: &[&str] = &[
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
];

const DEEPSEEK_LLM: &[&str] = &[
    "[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    r"[一-龥ࠀ-一가-퟿]+",
    r"\p{N}+",
];
const DEEPSEEK_CODER: &[&str] = &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"];

const TABLE: &[Pre] = &[
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3", "lfm2", "falcon3", "falcon-h1", "pixtral", "midm-2.0"],
        split: Split::Patterns(&[LLAMA3]),
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    Pre { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], split: Split::Patterns(&[LLAMA3]), ..PLAIN },
    Pre { names: &["glm4"], split: Split::Patterns(&[LLAMA3]), ignore_merges: true, ..PLAIN },
    Pre {
        names: &["qwen2", "deepseek-r1-qwen", "f2llmv2", "stablelm2"],
        split: Split::Patterns(&[QWEN2]),
        nfc: true,
        ..PLAIN
    },
    Pre { names: &["qwen35"], split: Split::Patterns(&[QWEN35]), nfc: true, ..PLAIN },
    Pre { names: &["hunyuan", "kormo", "megrez", "solar-open"], split: Split::Patterns(&[QWEN2]), ..PLAIN },
    Pre { names: &["gpt-4o", "kanana2", "minimax-m2"], split: Split::Patterns(&[GPT4O]), ..PLAIN },
    Pre { names: &["tekken"], split: Split::Patterns(&[TEKKEN]), ignore_merges: true, add_bos: true, ..PLAIN },
    Pre { names: &["seed-coder"], split: Split::Patterns(&[SEED_CODER]), ..PLAIN },
    Pre { names: &["exaone-moe"], split: Split::Patterns(&[K_EXAONE]), ..PLAIN },
    Pre { names: &["hunyuan-dense", "deepseek-v3", "joyai-llm"], split: Split::Patterns(DEEPSEEK3), ..PLAIN },
    Pre { names: &["deepseek-llm"], split: Split::Patterns(DEEPSEEK_LLM), ..PLAIN },
    Pre { names: &["deepseek-coder"], split: Split::Patterns(DEEPSEEK_CODER), ..PLAIN },
    Pre {
        names: &[
            "gpt-2",
            "phi-2",
            "exaone4",
            "roberta-bpe",
            "a.x-4.0",
            "gigachat",
            "granite-docling",
            "mellum",
            "trillion",
        ],
        ..PLAIN
    },
    Pre { names: &["olmo", "modern-bert"], nfc: true, ..PLAIN },
    Pre {
        names: &["smollm", "starcoder", "refact", "exaone", "minerva-7b", "mellum2"],
        split: Split::DigitsGpt2,
        ..PLAIN
    },
    Pre { names: &["command-r"], split: Split::DigitsGpt2, nfc: true, ..PLAIN },
];

impl Pre {
    /// The way that a file names.
    ///
    /// # Errors
    ///
    /// If it is not known.
    pub fn find(name: Option<&str>) -> Result<&'static Pre, String> {
        let found = name.and_then(|name| TABLE.iter().find(|pre| pre.names.contains(&name)));
        found.ok_or_else(|| {
            let found = match name {
                Some(name) => format!("tokenizer.ggml.pre is {name:.60}, which is not known"),
                None => "tokenizer.ggml.pre is missing".into(),
            };
            format!("{found}: put the model's tokenizer.json beside the file")
        })
    }

    /// The steps of a tokenizer.json.
    pub fn pre_tokenizer(&self) -> Value {
        let bytes = |has_pattern: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": has_pattern});
        match self.split {
            Split::Gpt2 => bytes(true),
            Split::DigitsGpt2 => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                json!({"type": "Sequence", "pretokenizers": [digits, bytes(true)]})
            }
            Split::Patterns(patterns) => {
                let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
                let steps: Vec<Value> = patterns.iter().map(split).chain([bytes(false)]).collect();
                json!({"type": "Sequence", "pretokenizers": steps})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_name_stands_for_one_way() {
        let names: Vec<&str> = TABLE.iter().flat_map(|pre| pre.names).copied().collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(names.iter().all(|name| Pre::find(Some(name)).is_ok()));
    }

    #[test]
    fn models_that_share_a_tokenizer_split_alike() {
        for (name, known, ignores_merges, adds_bos) in [
            ("falcon-h1", "llama-bpe", true, true),
            ("falcon3", "llama-bpe", true, true),
            ("stablelm2", "qwen2", false, false),
            ("solar-open", "hunyuan", false, false),
            ("minimax-m2", "gpt-4o", false, false),
        ] {
            let [pre, known] = [name, known].map(|name| Pre::find(Some(name)).unwrap());
            assert_eq!(pre.pre_tokenizer(), known.pre_tokenizer(), "{name}");
            assert_eq!((pre.ignore_merges, pre.add_bos), (ignores_merges, adds_bos), "{name}");
        }
    }

    #[test]
    fn another_name_is_refused_with_what_helps() {
        for (name, words) in [(Some("default"), "is default, which is not known"), (None, "is missing")] {
            let error = Pre::find(name).err().unwrap();
            assert_eq!(error, format!("tokenizer.ggml.pre {words}: put the model's tokenizer.json beside the file"));
        }
    }
}
