//! What each token spells, in one stretch of memory.
//!
//! A decoder is a chain of stages over the spellings in tokenizer.json. The chains of today's models work token by token,
//! except at the very beginning of a text; for those the table holds the outcome, and [`Streaming`] says what the
//! beginning needs. Any other chain has no table and is left to the crate.

use base::TokenId;
use serde_json::Value;
use tokenizers::tokenizer::Model;

/// What each token spells.
pub(super) struct TokenTable {
    /// What all tokens spell, in the order of their ids.
    bytes: Vec<u8>,
    /// Token `t` spells `bytes[starts[t]..starts[t + 1]]`. `[vocab + 1]`
    starts: Vec<u32>,
    /// Bit `t % 64` of word `t / 64`: token `t` exists. `[vocab / 64, rounded up]`
    known: Vec<u64>,
    /// The same for: token `t` is special.
    special: Vec<u64>,
    streaming: Option<Streaming>,
}

/// What a stream must know besides the bytes of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Streaming {
    pub beginning: Beginning,
    pub ill_formed: IllFormed,
}

/// How the beginning of a text differs from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It does not.
    Plain,
    /// This many spaces are dropped from it where the text begins with spaces.
    StripSpaces(u8),
    /// The first token is decoded by the crate.
    ByCrate,
}

/// How many U+FFFD stand for bytes that are no UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IllFormed {
    /// One for the longest beginning of a character, as in `String::from_utf8_lossy`.
    OnePerSequence,
    /// One for each byte.
    OnePerByte,
}

/// A decoder that works token by token.
struct Chain {
    spelling: Spelling,
    /// `(from, to)`, applied in this order.
    replacements: Vec<(String, String)>,
    streaming: Streaming,
}

/// How a token of tokenizer.json stands for bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// Each character is a byte, by the alphabet of GPT-2.
    ByteLevel,
    /// Text, but `<0x41>` is a byte.
    ByteFallback,
    /// Text.
    Text,
}

impl TokenTable {
    /// The table of a tokenizer; without bytes when its decoder does not work token by token.
    pub fn new(tokenizer: &tokenizers::Tokenizer) -> TokenTable {
        let decoder = tokenizer.get_decoder().and_then(|decoder| serde_json::to_value(decoder).ok());
        let chain = decoder.as_ref().and_then(read_chain);
        let alphabet = byte_alphabet();
        let vocab_size = vocab_size(tokenizer);
        let mut table = TokenTable {
            bytes: Vec::with_capacity(vocab_size * 7),
            starts: Vec::with_capacity(vocab_size + 1),
            known: vec![0; vocab_size.div_ceil(64)],
            special: vec![0; vocab_size.div_ceil(64)],
            streaming: chain.as_ref().map(|chain| chain.streaming),
        };
        table.starts.push(0);
        for token in 0..vocab_size {
            if let Some(spelling) = tokenizer.id_to_token(token as TokenId) {
                table.known[token / 64] |= 1 << (token % 64);
                if tokenizer.get_added_vocabulary().is_special_token(&spelling) {
                    table.special[token / 64] |= 1 << (token % 64);
                }
                if let Some(chain) = &chain {
                    chain.append(&spelling, &alphabet, &mut table.bytes);
                }
            }
            table.starts.push(u32::try_from(table.bytes.len()).expect("a vocabulary spells less than 4 GiB"));
        }
        table.bytes.shrink_to_fit();
        table
    }

    /// One past the greatest token id.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// How to stream, or `None` when the table has no bytes.
    pub fn streaming(&self) -> Option<Streaming> {
        self.streaming
    }

    /// What `token` spells; `None` when there is no such token.
    pub fn bytes(&self, token: TokenId) -> Option<&[u8]> {
        let token = token as usize;
        is_set(&self.known, token).then(|| &self.bytes[self.starts[token] as usize..self.starts[token + 1] as usize])
    }

    /// Whether `token` marks structure.
    pub fn is_special(&self, token: TokenId) -> bool {
        is_set(&self.special, token as usize)
    }
}

fn is_set(bits: &[u64], index: usize) -> bool {
    bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

/// One past the greatest token id.
fn vocab_size(tokenizer: &tokenizers::Tokenizer) -> usize {
    let model = tokenizer.get_model();
    let tokens = model.get_vocab_size();
    let added =
        tokenizer.get_added_vocabulary().get_added_tokens_decoder().keys().max().map_or(0, |&id| id as usize + 1);
    // Ids mostly run without gaps, and then the count is enough. Copying the vocabulary is dear, so it is the exception.
    let last_exists = tokens == 0 || model.id_to_token(tokens as TokenId - 1).is_some();
    let of_model = if last_exists && model.id_to_token(tokens as TokenId).is_none() {
        tokens
    } else {
        model.get_vocab().values().max().map_or(0, |&id| id as usize + 1)
    };
    of_model.max(added)
}

impl Chain {
    /// Appends what a token of this spelling adds to a text.
    fn append(&self, spelling: &str, alphabet: &ByteAlphabet, out: &mut Vec<u8>) {
        match self.spelling {
            Spelling::ByteLevel => {
                let start = out.len();
                for character in spelling.chars() {
                    match alphabet.get(character as usize).copied().flatten() {
                        Some(byte) => out.push(byte),
                        None => {
                            // An added token that is plain text: then no character of it is a byte.
                            out.truncate(start);
                            out.extend_from_slice(spelling.as_bytes());
                            return;
                        }
                    }
                }
            }
            Spelling::ByteFallback | Spelling::Text => {
                let mut text = spelling.to_string();
                for (from, to) in &self.replacements {
                    if text.contains(from.as_str()) {
                        text = text.replace(from.as_str(), to);
                    }
                }
                match fallback_byte(&text) {
                    Some(byte) if self.spelling == Spelling::ByteFallback => out.push(byte),
                    _ => out.extend_from_slice(text.as_bytes()),
                }
            }
        }
    }
}

/// The byte that `<0x41>` stands for.
fn fallback_byte(spelling: &str) -> Option<u8> {
    let digits = spelling.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The byte that each character below U+0144 stands for.
type ByteAlphabet = [Option<u8>; 0x144];

/// The alphabet of byte-level tokenizers: printable characters of Latin-1 stand for themselves, and the other bytes, in
/// ascending order, are the characters from U+0100 on.
fn byte_alphabet() -> ByteAlphabet {
    let mut alphabet = [None; 0x144];
    let mut next = 0x100;
    for byte in 0..=u8::MAX {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let character = if printable {
            usize::from(byte)
        } else {
            next += 1;
            next - 1
        };
        alphabet[character] = Some(byte);
    }
    alphabet
}

/// Reads the decoder of tokenizer.json, or says `None` when it does not work token by token.
fn read_chain(decoder: &Value) -> Option<Chain> {
    let single = std::slice::from_ref(decoder);
    let stages = match kind(decoder)? {
        "Sequence" => decoder.get("decoders")?.as_array()?.as_slice(),
        _ => single,
    };
    let mut chain = Chain {
        spelling: Spelling::Text,
        replacements: Vec::new(),
        streaming: Streaming { beginning: Beginning::Plain, ill_formed: IllFormed::OnePerByte },
    };
    match stages {
        [only] if kind(only)? == "ByteLevel" => {
            chain.spelling = Spelling::ByteLevel;
            chain.streaming.ill_formed = IllFormed::OnePerSequence;
            return Some(chain);
        }
        [only] if kind(only)? == "Metaspace" => {
            let replacement = only.get("replacement")?.as_str()?;
            chain.replacements.push((replacement.to_string(), " ".to_string()));
            if only.get("prepend_scheme")?.as_str()? != "never" {
                chain.streaming.beginning = Beginning::ByCrate;
            }
            return Some(chain);
        }
        _ => {}
    }
    // What sentencepiece models become: Replace…, ByteFallback, Fuse, Strip; each of them may be missing.
    let mut stages = stages.iter().peekable();
    while let Some(stage) = stages.next_if(|stage| kind(stage) == Some("Replace")) {
        let from = stage.get("pattern")?.get("String")?.as_str()?;
        if from.is_empty() {
            return None;
        }
        chain.replacements.push((from.to_string(), stage.get("content")?.as_str()?.to_string()));
    }
    if stages.next_if(|stage| kind(stage) == Some("ByteFallback")).is_some() {
        chain.spelling = Spelling::ByteFallback;
    }
    if stages.next_if(|stage| kind(stage) == Some("Fuse")).is_some()
        && let Some(strip) = stages.next_if(|stage| kind(stage) == Some("Strip"))
    {
        if strip.get("content")?.as_str()? != " " || strip.get("stop")?.as_u64()? != 0 {
            return None;
        }
        chain.streaming.beginning = Beginning::StripSpaces(u8::try_from(strip.get("start")?.as_u64()?).ok()?);
    }
    stages.next().is_none().then_some(chain)
}

fn kind(stage: &Value) -> Option<&str> {
    stage.get("type")?.as_str()
}
