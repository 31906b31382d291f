//! The tokenizer of a GGUF file, as the tokenizer.json that it was made of.
//!
//! It is written as text, and read as any other tokenizer.json is: with all checks, because a GGUF file is no more to be trusted.
//! Byte-level tokenizers (`gpt2`) have their merges in the file, and a name for the way they split texts: [`pre`]. SentencePiece
//! tokenizers (`llama`) have scores: [`merges`]. Those of encoders are [`wordpiece`] (`bert`) and [`unigram`] (`t5`).

mod frame;
mod merges;
mod pre;
mod unigram;
mod vocabulary;
mod wordpiece;

pub use vocabulary::Vocabulary;

use super::Header;
use base::limits;
use pre::Pre;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
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
        "bert" => wordpiece::document(header, &vocabulary)?,
        "t5" => unigram::document(header, &vocabulary)?,
        other => {
            return Err(format!(
                "tokenizer.ggml.model is {other:.60}, but gpt2, llama, bert and t5 are read: put the model's tokenizer.json beside the file"
            ));
        }
    };
    document.write(&vocabulary).map(Some)
}

/// As a tokenizer.json that is a file.
fn check_length(bytes: usize) -> Result<(), String> {
    match limits::TOKENIZER_FILE_BYTES {
        most if bytes as u64 > most => Err(too_long()),
        _ => Ok(()),
    }
}

fn too_long() -> String {
    let most = limits::TOKENIZER_FILE_BYTES;
    format!("has a tokenizer of more than {most} bytes as tokenizer.json, the most that are read")
}

/// Counts what is written, up to the length that a tokenizer.json may have.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        if self.0 > limits::TOKENIZER_FILE_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Pairs of tokens whose union is a token.
enum Merges<'a> {
    /// As the file spells them: [`pair`] divides them.
    Given(Vec<&'a str>),
    /// By their ids.
    Rebuilt(Vec<(u32, u32)>),
}

/// What the model of a tokenizer has besides its options and the spellings of its tokens.
enum Pieces<'a> {
    /// Pairs that are joined.
    Merged(Merges<'a>),
    /// Nothing.
    Words,
    /// A score for each token. Its index is its id, so that no token is left out.
    Scored(Vec<f64>),
}

/// Which spellings are not those of the file.
enum Spelled {
    /// These, by id. Their tokens are not added ones.
    As(HashMap<usize, String>),
    /// Those of a WordPiece vocabulary: [`wordpiece::spelling`].
    AsWords,
}

/// What a tokenizer.json has besides its added tokens.
struct Document<'a> {
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    /// Options of the model.
    model: Value,
    spelled: Spelled,
    pieces: Pieces<'a>,
    /// Whether control tokens take the white space behind them.
    strips: bool,
}

fn byte_level<'a>(header: &'a Header, vocabulary: &Vocabulary<'a>) -> Result<Document<'a>, String> {
    let pre = Pre::find(header.text("tokenizer.ggml.pre")?)?;
    let merges = given_merges(header)?.ok_or("tokenizer.ggml.merges is missing")?;
    Ok(Document {
        normalizer: if pre.nfc { json!({"type": "NFC"}) } else { Value::Null },
        pre_tokenizer: pre.pre_tokenizer(),
        post_processor: frame::of_flags(header, vocabulary, [pre.add_bos, false], [None, None])?,
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        model: json!({"type": "BPE", "fuse_unk": false, "byte_fallback": false, "ignore_merges": pre.ignore_merges}),
        spelled: Spelled::As(HashMap::new()),
        pieces: Pieces::Merged(merges),
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
    let runs = || (0..vocabulary.tokens.len()).filter(is_run);
    let bytes: usize = runs().map(|id| vocabulary.tokens[id].len() * SPACE.len()).sum();
    if bytes > limits::ADDED_BYTES {
        let most = limits::ADDED_BYTES;
        return Err(format!("has tokens that are runs of spaces of {bytes} bytes in all, but at most {most} are read"));
    }
    let spelled: HashMap<usize, String> = runs().map(|id| (id, SPACE.repeat(vocabulary.tokens[id].len()))).collect();
    let merges = match given_merges(header)? {
        Some(merges) => merges,
        None => merges_of_scores(header, vocabulary, &spelled)?,
    };
    let unknown = vocabulary.id(header, "unknown")?.unwrap_or(0);
    let unknown = vocabulary.tokens.get(unknown).ok_or("tokenizer.ggml.tokens is empty")?;
    Ok(Document {
        normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
        pre_tokenizer: Value::Null,
        post_processor: frame::of_flags(header, vocabulary, [true, false], [Some(1), Some(2)])?,
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        model: json!({"type": "BPE", "unk_token": unknown, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false}),
        spelled: Spelled::As(spelled),
        pieces: Pieces::Merged(merges),
        // No key says so: tokenizer.json of Phi-3 does, and of no other model with such a tokenizer.
        strips: header.text("general.architecture")? == Some("phi3"),
    })
}

/// The merges that a file has.
fn given_merges(header: &Header) -> Result<Option<Merges<'_>>, String> {
    let Some(merges) = header.strings("tokenizer.ggml.merges", limits::MERGES)? else { return Ok(None) };
    let pairs = merges.into_iter().enumerate().map(|(index, bytes)| {
        let text = std::str::from_utf8(bytes).ok().filter(|text| pair(text).is_some());
        text.ok_or_else(|| format!("entry {index} of tokenizer.ggml.merges is no pair of tokens"))
    });
    Ok(Some(Merges::Given(pairs.collect::<Result<_, _>>()?)))
}

/// Divides two spellings with a space between, of which the first may begin with one.
fn pair(text: &str) -> Option<(&str, &str)> {
    let (space, _) = text.char_indices().skip(1).find(|(_, letter)| *letter == ' ')?;
    Some((&text[..space], &text[space + 1..]))
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
    let text = |id: usize| spelled.get(&id).map_or(vocabulary.tokens[id], String::as_str);
    let ids = || (0..vocabulary.tokens.len()).filter(is_piece);
    let divisions = ids().map(|id| merges::divisions(text(id))).sum::<usize>();
    if divisions > limits::GGUF_DIVISIONS {
        let most = limits::GGUF_DIVISIONS;
        return Err(format!(
            "tokenizer.ggml.tokens can be divided at {divisions} places, but at most {most} are looked at where there are no merges"
        ));
    }
    // A conversion without SentencePiece's own model writes one score for all. Its order is that of the ids.
    let are_equal = ids().zip(ids().skip(1)).all(|(id, next)| scores[id] == scores[next]);
    let score = |id: usize| match spelled.contains_key(&id) {
        true => 0.0,
        false if are_equal => -(id as f64),
        false => scores[id],
    };
    let pieces: Vec<(&str, u32, f64)> = ids().map(|id| (text(id), id as u32, score(id))).collect();
    let most = limits::GGUF_MERGES;
    let merges = merges::from_scores(&pieces);
    let merges =
        merges.ok_or_else(|| format!("tokenizer.ggml.scores make more than {most} merges, the most that are read"))?;
    Ok(Merges::Rebuilt(merges))
}

impl Document<'_> {
    /// The text of the file, whose length is counted before there is room for it.
    fn write(&self, vocabulary: &Vocabulary) -> Result<Vec<u8>, String> {
        self.check(vocabulary)?;
        let mut length = Length(0);
        // It fails where it is too long, and nothing else can.
        self.write_to(vocabulary, &mut length).map_err(|_| too_long())?;
        let mut json = Vec::new();
        json.try_reserve_exact(length.0 as usize).map_err(|_| "has a tokenizer for which there is no memory")?;
        self.write_to(vocabulary, &mut json).expect("a vector takes all");
        Ok(json)
    }

    fn spelling<'a>(&'a self, vocabulary: &Vocabulary<'a>, id: usize) -> Cow<'a, str> {
        match &self.spelled {
            Spelled::As(spelled) => spelled.get(&id).map_or(vocabulary.tokens[id], String::as_str).into(),
            Spelled::AsWords => wordpiece::spelling(vocabulary, id),
        }
    }

    /// A spelling that two tokens have where [`Document::spelling`] is the same of both, without a copy of it.
    fn key<'a>(&'a self, vocabulary: &Vocabulary<'a>, id: usize) -> &'a str {
        match &self.spelled {
            Spelled::As(spelled) => spelled.get(&id).map_or(vocabulary.tokens[id], String::as_str),
            Spelled::AsWords => vocabulary.tokens[id],
        }
    }

    /// The ids of the tokens that are written.
    fn kept(&self, vocabulary: &Vocabulary) -> impl Iterator<Item = usize> {
        let keeps_all = matches!(self.pieces, Pieces::Scored(_));
        (0..vocabulary.tokens.len()).filter(move |id| keeps_all || vocabulary.kinds[*id] != TokenKind::Unused)
    }

    /// Refuses what no tokenizer.json may have, as far as memory depends on it, and tokens that are spelled alike.
    fn check(&self, vocabulary: &Vocabulary) -> Result<(), String> {
        let kept = || self.kept(vocabulary);
        let added = kept().filter(|id| self.is_added(vocabulary, *id)).count();
        if added > limits::ADDED_TOKENS {
            let most = limits::ADDED_TOKENS;
            return Err(format!("has {added} tokens that are control or user-defined, but at most {most} are read"));
        }
        let mut ids = HashMap::new();
        let twice = kept().find_map(|id| Some((id, ids.insert(self.key(vocabulary, id), id)?)));
        match twice {
            Some((id, other)) => {
                let text = self.key(vocabulary, id);
                Err(format!("tokens {other} and {id} of tokenizer.ggml.tokens are both {text:?}"))
            }
            None => Ok(()),
        }
    }

    /// Whether a token is found in a text before anything else.
    fn is_added(&self, vocabulary: &Vocabulary, id: usize) -> bool {
        vocabulary.is_added(id) && !matches!(&self.spelled, Spelled::As(spelled) if spelled.contains_key(&id))
    }

    /// Writes the text. Tokens that never occur are left out.
    fn write_to(&self, vocabulary: &Vocabulary, to: &mut impl Write) -> io::Result<()> {
        let spelling = |id: usize| self.spelling(vocabulary, id);
        to.write_all(b"{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[")?;
        for (place, id) in self.kept(vocabulary).filter(|id| self.is_added(vocabulary, *id)).enumerate() {
            let is_special = vocabulary.kinds[id] != TokenKind::UserDefined;
            let strips = self.strips && !UNSTRIPPED.contains(&&*spelling(id));
            let comma = if place == 0 { "" } else { "," };
            write!(to, "{comma}{{\"id\":{id},\"content\":")?;
            quote(to, &spelling(id))?;
            write!(
                to,
                ",\"single_word\":false,\"lstrip\":false,\"rstrip\":{strips},\"normalized\":false,\"special\":{is_special}}}"
            )?;
        }
        to.write_all(b"]")?;
        for (name, part) in [
            ("normalizer", &self.normalizer),
            ("pre_tokenizer", &self.pre_tokenizer),
            ("post_processor", &self.post_processor),
            ("decoder", &self.decoder),
        ] {
            write!(to, ",\"{name}\":{part}")?;
        }
        to.write_all(b",\"model\":{")?;
        for (name, option) in self.model.as_object().expect("options are an object") {
            write!(to, "\"{name}\":{option},")?;
        }
        let (open, close) = if matches!(self.pieces, Pieces::Scored(_)) { ("[", "]") } else { ("{", "}") };
        write!(to, "\"vocab\":{open}")?;
        for (place, id) in self.kept(vocabulary).enumerate() {
            to.write_all(if place == 0 { b"" } else { b"," })?;
            match &self.pieces {
                Pieces::Scored(scores) => {
                    to.write_all(b"[")?;
                    quote(to, &spelling(id))?;
                    write!(to, ",{}]", json!(scores[id]))?;
                }
                Pieces::Merged(_) | Pieces::Words => {
                    quote(to, &spelling(id))?;
                    write!(to, ":{id}")?;
                }
            }
        }
        to.write_all(close.as_bytes())?;
        if let Pieces::Merged(merges) = &self.pieces {
            to.write_all(b",\"merges\":[")?;
            self.write_merges(vocabulary, merges, to)?;
            to.write_all(b"]")?;
        }
        to.write_all(b"}}")
    }

    fn write_merges(&self, vocabulary: &Vocabulary, merges: &Merges, to: &mut impl Write) -> io::Result<()> {
        let mut put_merge = |place: usize, left: &str, right: &str| {
            to.write_all(if place == 0 { b"[" } else { b",[" })?;
            quote(to, left)?;
            to.write_all(b",")?;
            quote(to, right)?;
            to.write_all(b"]")
        };
        match merges {
            Merges::Given(merges) => {
                for (place, text) in merges.iter().enumerate() {
                    let (left, right) = pair(text).expect("checked when it was read");
                    put_merge(place, left, right)?;
                }
            }
            Merges::Rebuilt(merges) => {
                for (place, &(left, right)) in merges.iter().enumerate() {
                    let spelling = |id: u32| self.spelling(vocabulary, id as usize);
                    put_merge(place, &spelling(left), &spelling(right))?;
                }
            }
        }
        Ok(())
    }
}

/// Writes a text as JSON.
fn quote(to: &mut impl Write, text: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(to, text)?)
}
