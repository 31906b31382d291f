//! The tokenizer of a GGUF file, as the tokenizer.json that it was made of.
//!
//! It is written as text, and read as any other tokenizer.json is: with all checks, because a GGUF file is no more to be trusted.
//! Byte-level tokenizers (`gpt2`) have their merges in the file, and a name for the way they split texts: [`pre`]. SentencePiece
//! tokenizers (`llama`) have scores: [`merges`].

mod merges;
mod pre;
mod vocabulary;

pub use vocabulary::Vocabulary;

use super::Header;
use crate::limits;
use pre::Pre;
use serde_json::{Value, json};
use std::collections::HashMap;
use vocabulary::TokenKind;

/// Added tokens of Phi-3 that leave the white space behind them.
const UNSTRIPPED: &[&str] = &["<unk>", "<s>", "<|endoftext|>"];

/// What SentencePiece has for a space.
const SPACE: &str = "▁";

/// The tokenizer.json of a file; `None` if it has no tokenizer.
///
/// # Errors
///
/// What is wrong with it, or what of it is not known.
pub fn json(header: &Header) -> Result<Option<Vec<u8>>, String> {
    if let Some(whole) = header.text("tokenizer.huggingface.json")? {
        check_length(whole.len())?;
        return Ok(Some(whole.as_bytes().to_vec()));
    }
    let Some(model) = header.text("tokenizer.ggml.model")? else { return Ok(None) };
    if ["none", "no_vocab"].contains(&model) {
        return Ok(None);
    }
    let vocabulary = Vocabulary::read(header)?.ok_or("tokenizer.ggml.tokens is missing")?;
    let document = match model {
        "gpt2" => byte_level(header, &vocabulary)?,
        "llama" => sentence_piece(header, &vocabulary)?,
        other => {
            return Err(format!(
                "tokenizer.ggml.model is {other:.60}, but gpt2 and llama are read: put the model's tokenizer.json beside the file"
            ));
        }
    };
    let json = document.write(&vocabulary)?;
    check_length(json.len())?;
    Ok(Some(json))
}

/// As a tokenizer.json that is a file.
fn check_length(bytes: usize) -> Result<(), String> {
    match limits::TOKENIZER_FILE_BYTES {
        most if bytes as u64 > most => {
            Err(format!("has a tokenizer of {bytes} bytes as tokenizer.json, but at most {most} are read"))
        }
        _ => Ok(()),
    }
}

/// Pairs of tokens whose union is a token.
enum Merges<'a> {
    /// By their spellings.
    Given(Vec<(&'a str, &'a str)>),
    /// By their ids.
    Rebuilt(Vec<(usize, usize)>),
}

/// What a tokenizer.json has besides its added tokens.
struct Document<'a> {
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    /// Options of the model.
    model: Value,
    /// Spellings that are not those of the file, by id.
    spelled: HashMap<usize, String>,
    merges: Merges<'a>,
    /// Whether control tokens take the white space behind them.
    strips: bool,
}

fn byte_level<'a>(header: &'a Header, vocabulary: &Vocabulary<'a>) -> Result<Document<'a>, String> {
    let pre = Pre::find(header.text("tokenizer.ggml.pre")?)?;
    let merges = given_merges(header)?.ok_or("tokenizer.ggml.merges is missing")?;
    Ok(Document {
        normalizer: if pre.nfc { json!({"type": "NFC"}) } else { Value::Null },
        pre_tokenizer: pre.pre_tokenizer(),
        post_processor: post_processor(header, vocabulary, pre.add_bos, (None, None))?,
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        model: json!({"type": "BPE", "fuse_unk": false, "byte_fallback": false, "ignore_merges": pre.ignore_merges}),
        spelled: HashMap::new(),
        merges,
        strips: false,
    })
}

fn sentence_piece<'a>(header: &'a Header, vocabulary: &Vocabulary<'a>) -> Result<Document<'a>, String> {
    let has_prefix = header.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    let prefix = has_prefix.then(|| json!({"type": "Prepend", "prepend": SPACE}));
    let normalizers: Vec<Value> = prefix.into_iter().chain([spaces]).collect();
    let strip = has_prefix.then(|| json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    let decoders = [
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    let decoders: Vec<Value> = decoders.into_iter().chain(strip).collect();
    // Runs of spaces are in the file as spaces, but a text has none any more when it is compared with tokens.
    let is_spaces = |text: &str| text.len() > 1 && text.bytes().all(|byte| byte == b' ');
    let is_run = |id: &usize| vocabulary.kinds[*id] == TokenKind::UserDefined && is_spaces(vocabulary.tokens[*id]);
    let runs = (0..vocabulary.tokens.len()).filter(is_run);
    let spelled: HashMap<usize, String> = runs.map(|id| (id, SPACE.repeat(vocabulary.tokens[id].len()))).collect();
    let merges = match given_merges(header)? {
        Some(merges) => merges,
        None => merges_of_scores(header, vocabulary, &spelled)?,
    };
    let unknown = vocabulary.id(header, "unknown")?.unwrap_or(0);
    let unknown = vocabulary.tokens.get(unknown).ok_or("tokenizer.ggml.tokens is empty")?;
    Ok(Document {
        normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
        pre_tokenizer: Value::Null,
        post_processor: post_processor(header, vocabulary, true, (Some(1), Some(2)))?,
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        model: json!({"type": "BPE", "unk_token": unknown, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false}),
        spelled,
        merges,
        // No key says so: tokenizer.json of Phi-3 does, and of no other model with such a tokenizer.
        strips: header.text("general.architecture")? == Some("phi3"),
    })
}

/// The merges that a file has: two spellings with a space between, of which the first may begin with one.
fn given_merges(header: &Header) -> Result<Option<Merges<'_>>, String> {
    let Some(merges) = header.strings("tokenizer.ggml.merges", limits::MERGES)? else { return Ok(None) };
    fn pair(bytes: &[u8]) -> Option<(&str, &str)> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (space, _) = text.char_indices().skip(1).find(|(_, letter)| *letter == ' ')?;
        Some((&text[..space], &text[space + 1..]))
    }
    let pairs = merges.into_iter().enumerate().map(|(index, bytes)| {
        pair(bytes).ok_or_else(|| format!("entry {index} of tokenizer.ggml.merges is no pair of tokens"))
    });
    Ok(Some(Merges::Given(pairs.collect::<Result<_, _>>()?)))
}

fn merges_of_scores<'a>(
    header: &Header,
    vocabulary: &Vocabulary,
    spelled: &HashMap<usize, String>,
) -> Result<Merges<'a>, String> {
    let scores = header.numbers("tokenizer.ggml.scores", limits::TOKENS)?;
    let scores = scores.ok_or("tokenizer.ggml.merges and tokenizer.ggml.scores are missing")?;
    if scores.len() < vocabulary.tokens.len() || scores.iter().any(|score| score.is_nan()) {
        let tokens = vocabulary.tokens.len();
        return Err(format!("tokenizer.ggml.scores must have a number for each of the {tokens} tokens"));
    }
    let is_piece = |id: &usize| vocabulary.kinds[*id] == TokenKind::Normal || spelled.contains_key(id);
    let ids: Vec<usize> = (0..vocabulary.tokens.len()).filter(is_piece).collect();
    // A conversion without SentencePiece's own model writes one score for all. Its order is that of the ids.
    let are_equal = ids.windows(2).all(|pair| scores[pair[0]] == scores[pair[1]]);
    let piece = |&id: &usize| match spelled.get(&id) {
        Some(text) => (text.as_str(), id, 0.0),
        None if are_equal => (vocabulary.tokens[id], id, -(id as f64)),
        None => (vocabulary.tokens[id], id, scores[id]),
    };
    let pieces: Vec<(&str, usize, f64)> = ids.iter().map(piece).collect();
    let bytes: usize = pieces.iter().map(|(text, _, _)| text.len()).sum();
    if bytes > limits::GGUF_PIECE_BYTES {
        let most = limits::GGUF_PIECE_BYTES;
        return Err(format!(
            "tokenizer.ggml.tokens has pieces of {bytes} bytes, but at most {most} are read with scores"
        ));
    }
    match merges::from_scores(&pieces) {
        merges if merges.len() > limits::MERGES => {
            let most = limits::MERGES;
            Err(format!("tokenizer.ggml.scores make {} merges, but at most {most} are read", merges.len()))
        }
        merges => Ok(Merges::Rebuilt(merges)),
    }
}

/// What stands around a text. `defaults` are the ids of the tokens that begin and end it where the file has none.
fn post_processor(
    header: &Header,
    vocabulary: &Vocabulary,
    adds_bos: bool,
    defaults: (Option<usize>, Option<usize>),
) -> Result<Value, String> {
    let token = |name: &str, adds: bool, default: Option<usize>| -> Result<Option<(usize, &str)>, String> {
        if !header.flag(&format!("tokenizer.ggml.add_{name}_token"))?.unwrap_or(adds) {
            return Ok(None);
        }
        let id = vocabulary.id(header, name)?.or(default.filter(|&id| id < vocabulary.tokens.len()));
        let id =
            id.ok_or_else(|| format!("tokenizer.ggml.{name}_token_id is missing, but begins or ends every text"))?;
        Ok(Some((id, vocabulary.tokens[id])))
    };
    let (begin, end) = (token("bos", adds_bos, defaults.0)?, token("eos", false, defaults.1)?);
    if begin.is_none() && end.is_none() {
        return Ok(Value::Null);
    }
    let special = |token: Option<(usize, &str)>, part: u32| {
        token.map(|(_, text)| json!({"SpecialToken": {"id": text, "type_id": part}}))
    };
    let framed = |name: &str, part: u32| -> Vec<Value> {
        let text = json!({"Sequence": {"id": name, "type_id": part}});
        special(begin, part).into_iter().chain([text]).chain(special(end, part)).collect()
    };
    let tokens = [begin, end].into_iter().flatten();
    let tokens = tokens.map(|(id, text)| (text.to_owned(), json!({"id": text, "ids": [id], "tokens": [text]})));
    let pair = [framed("A", 0), framed("B", 1)].concat();
    Ok(json!({
        "type": "TemplateProcessing",
        "single": framed("A", 0),
        "pair": pair,
        "special_tokens": Value::Object(tokens.collect()),
    }))
}

impl Document<'_> {
    /// The text of the file. Tokens that never occur are left out.
    fn write(&self, vocabulary: &Vocabulary) -> Result<Vec<u8>, String> {
        let spelling = |id: usize| self.spelled.get(&id).map_or(vocabulary.tokens[id], String::as_str);
        let is_kept = |id: &usize| vocabulary.kinds[*id] != TokenKind::Unused;
        let kept = || (0..vocabulary.tokens.len()).filter(is_kept);
        let mut ids = HashMap::new();
        if let Some((text, id, other)) = kept().find_map(|id| Some((spelling(id), id, ids.insert(spelling(id), id)?))) {
            return Err(format!("tokens {other} and {id} of tokenizer.ggml.tokens are both {text:?}"));
        }
        let added = kept().filter(|id| vocabulary.is_added(*id) && !self.spelled.contains_key(id)).map(|id| {
            let is_special = vocabulary.kinds[id] != TokenKind::UserDefined;
            let strips = self.strips && !UNSTRIPPED.contains(&spelling(id));
            json!({
                "id": id, "content": spelling(id), "single_word": false, "lstrip": false, "rstrip": strips, "normalized": false,
                "special": is_special,
            })
        });
        let added: Vec<Value> = added.collect();
        let mut json = Vec::new();
        let mut put = |text: &str| json.extend_from_slice(text.as_bytes());
        put("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null");
        for (name, part) in [
            ("added_tokens", &Value::Array(added)),
            ("normalizer", &self.normalizer),
            ("pre_tokenizer", &self.pre_tokenizer),
            ("post_processor", &self.post_processor),
            ("decoder", &self.decoder),
        ] {
            put(&format!(",\"{name}\":{part}"));
        }
        put(",\"model\":{");
        for (name, option) in self.model.as_object().expect("options are an object") {
            put(&format!("\"{name}\":{option},"));
        }
        put("\"vocab\":{");
        let quoted = |text: &str| serde_json::to_string(text).expect("a text can be quoted");
        for (place, id) in kept().enumerate() {
            put(if place == 0 { "" } else { "," });
            put(&format!("{}:{id}", quoted(spelling(id))));
        }
        put("},\"merges\":[");
        let mut put_merge = |place: usize, left: &str, right: &str| {
            put(if place == 0 { "" } else { "," });
            put(&format!("[{},{}]", quoted(left), quoted(right)));
        };
        match &self.merges {
            Merges::Given(merges) => {
                merges.iter().enumerate().for_each(|(place, (left, right))| put_merge(place, left, right));
            }
            Merges::Rebuilt(merges) => {
                merges
                    .iter()
                    .enumerate()
                    .for_each(|(at, &(left, right))| put_merge(at, spelling(left), spelling(right)));
            }
        }
        put("]}}");
        Ok(json)
    }
}
