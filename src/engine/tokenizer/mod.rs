//! Text to tokens and back, by the model folder's tokenizer.json.
//!
//! The crate `tokenizers` reads the file and encodes. Decoding runs once for every generated token, so it does not go
//! through the crate where the decoder is of a common kind: [`token_table`] holds what each token spells.
//!
//! Whether spelled special tokens are parsed is a setting of the crate's added vocabulary, and one instance serves all
//! threads. A second added vocabulary with the other setting is a few kilobytes; a second tokenizer would be tens of
//! megabytes. So the text-only path runs the stages of the crate's `encode` over that second vocabulary.

mod text_stream;
mod token_table;

pub use text_stream::TextStream;

use crate::batch::TokenId;
use crate::error::{Error, Result};
use serde::de::IgnoredAny;
use std::path::Path;
use token_table::TokenTable;
use tokenizers::tokenizer::{AddedVocabulary, Encoding as CrateEncoding, Model, OffsetType, PreTokenizer};

/// The tokenizer of a model folder. May be used from any thread.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens of `inner`, but spelled special tokens stay text.
    text_only: AddedVocabulary,
    table: TokenTable,
}

/// What happens to special tokens, such as `<|im_end|>`, on the way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Whether the tokens that begin and end a text are added.
    pub added: AddedTokens,
    /// Whether the spelling of a special token in the text becomes that token.
    pub spelled: SpelledTokens,
}

/// Whether the tokens that begin and end a text are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedTokens {
    /// As the tokenizer's post-processor says.
    Add,
    /// The text alone.
    Omit,
}

/// Whether the spelling of a special token in the text becomes that token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpelledTokens {
    /// It becomes the token.
    Parse,
    /// It stays text: what users type cannot forge a turn.
    ///
    /// Added tokens that tokenizer.json does not call special, such as `<think>` in some models, are parsed all the
    /// same. So is what the model's own vocabulary spells, as transformers has it with `split_special_tokens`.
    Text,
}

/// What happens to special tokens on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// They leave no text.
    Skip,
    /// They are spelled out.
    Keep,
}

impl Tokenizer {
    /// Reads tokenizer.json, or says `None` when the folder has none.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be read, [`Error::ModelFile`] when it is not a tokenizer.
    pub fn open(folder: &Path) -> Result<Option<Tokenizer>> {
        let path = folder.join("tokenizer.json");
        let json = match std::fs::read(&path) {
            Ok(json) => json,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { path, source }),
        };
        Tokenizer::from_json(&json).map(Some).map_err(|reason| Error::ModelFile { path, reason })
    }

    /// A tokenizer from the bytes of a tokenizer.json; the error says what is wrong with them.
    fn from_json(json: &[u8]) -> std::result::Result<Tokenizer, String> {
        // The crate panics where JSON breaks off inside the decoder, so the syntax is checked first.
        serde_json::from_slice::<IgnoredAny>(json).map_err(|error| format!("not JSON: {error}"))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(|error| format!("not a tokenizer: {error}"))?;
        // Some files keep the truncation and padding of the last training run; a prompt is never cut or filled silently.
        inner.with_truncation(None).map_err(|error| error.to_string())?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(false);
        let mut text_only = inner.get_added_vocabulary().clone();
        text_only.set_encode_special_tokens(true);
        let table = TokenTable::new(&inner);
        Ok(Tokenizer { inner, text_only, table })
    }

    /// The tokens of `text`.
    ///
    /// A byte of text becomes one token at most in the tokenizers of today's models, plus the few that the
    /// post-processor adds. A normalizer may break this rule for rare characters: NFC makes up to three times the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Tokenizer`] when the model of the tokenizer has no token for the text and none for the unknown.
    pub fn encode(&self, text: &str, encoding: Encoding) -> Result<Vec<TokenId>> {
        let add_special_tokens = encoding.added == AddedTokens::Add;
        let encoded = match encoding.spelled {
            SpelledTokens::Parse => self.inner.encode_fast(text, add_special_tokens),
            SpelledTokens::Text => self
                .encode_text_only(text)
                .and_then(|encoded| self.inner.post_process(encoded, None, add_special_tokens)),
        };
        encoded
            .map(|encoded| encoded.get_ids().to_vec())
            .map_err(|error| Error::Tokenizer { reason: error.to_string() })
    }

    /// The stages of the crate's `encode` up to post-processing, over the added vocabulary that leaves special tokens
    /// alone.
    fn encode_text_only(&self, text: &str) -> tokenizers::Result<CrateEncoding> {
        let mut pieces = self.text_only.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        self.inner.get_model().tokenize_in_pretokenized(&mut pieces, None)?;
        pieces.into_encoding(None, 0, OffsetType::None)
    }

    /// The text of `tokens`; an invalid sequence becomes U+FFFD, an id beyond the vocabulary leaves no text.
    ///
    /// Equals what a [`TextStream`] gives piece by piece. Byte tokens of a sentencepiece-style tokenizer that are no
    /// UTF-8 become one U+FFFD each, as in transformers; but whole characters among them are kept, where transformers
    /// would replace them too, and so would have to hold text back.
    ///
    /// # Errors
    ///
    /// [`Error::Tokenizer`] when the decoder refuses.
    pub fn decode(&self, tokens: &[TokenId], special: SpecialTokens) -> Result<String> {
        if self.table.streaming().is_none() {
            return self.decode_by_crate(tokens, special);
        }
        let mut text = String::with_capacity(tokens.len() * 4);
        let mut stream = TextStream::default();
        for &token in tokens {
            stream.push_as(self, token, special, &mut text);
        }
        stream.finish(self, &mut text);
        Ok(text)
    }

    fn decode_by_crate(&self, tokens: &[TokenId], special: SpecialTokens) -> Result<String> {
        self.inner
            .decode(tokens, special == SpecialTokens::Skip)
            .map_err(|error| Error::Tokenizer { reason: error.to_string() })
    }

    /// The id of the token that is spelled so in tokenizer.json, such as `<|im_end|>`.
    pub fn token_id(&self, spelling: &str) -> Option<TokenId> {
        self.inner.token_to_id(spelling)
    }

    /// One past the greatest token id. The model's embedding may have more rows than that, for alignment.
    pub fn vocab_size(&self) -> usize {
        self.table.len()
    }

    /// What `token` adds to a text when it is not the first. `None` when there is no such token, or when the decoder
    /// does not work token by token. The bytes need not be UTF-8.
    pub fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.table.streaming().and_then(|_| self.table.bytes(token))
    }

    /// Whether `token` was added to the tokenizer's model by name, such as `<think>` in some models.
    pub fn is_added(&self, token: TokenId) -> bool {
        self.inner.get_added_vocabulary().get_added_tokens_decoder().contains_key(&token)
    }

    /// Whether `token` is special: it marks structure and leaves no text in a stream.
    pub fn is_special(&self, token: TokenId) -> bool {
        self.table.is_special(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Encoding = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse };

    fn golden(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text").join(name)
    }

    fn open(name: &str) -> Tokenizer {
        Tokenizer::open(&golden(name)).expect("a good file").expect("a file")
    }

    fn refusal(json: &str) -> String {
        match Tokenizer::from_json(json.as_bytes()) {
            Ok(_) => panic!("opened"),
            Err(reason) => reason,
        }
    }

    #[test]
    fn a_folder_without_tokenizer_json_has_no_tokenizer() {
        assert!(Tokenizer::open(Path::new("/nowhere")).expect("no error").is_none());
    }

    #[test]
    fn a_broken_file_is_an_error_that_names_it() {
        let folder = std::env::temp_dir().join(format!("nanovllm-tokenizer-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("tokenizer.json"), "{").expect("a file");
        let opened = Tokenizer::open(&folder);
        std::fs::remove_dir_all(&folder).expect("the same folder");
        match opened {
            Err(Error::ModelFile { path, reason }) => {
                assert_eq!(path, folder.join("tokenizer.json"));
                assert!(reason.contains("not JSON: EOF"), "{reason}");
            }
            other => panic!("{:?}", other.map(|_| "opened")),
        }
    }

    #[test]
    fn a_file_that_breaks_off_anywhere_is_refused() {
        let whole = std::fs::read_to_string(golden("sentencepiece").join("tokenizer.json")).expect("a committed file");
        let ends = (0..whole.len()).step_by(97).filter(|&end| whole.is_char_boundary(end));
        // Around the decoder, where the crate itself would panic, every place is tried.
        let decoder = whole.find("\"decoder\"").expect("a decoder");
        for end in ends.chain((decoder..decoder + 250).filter(|&end| whole.is_char_boundary(end))) {
            assert!(refusal(&whole[..end]).starts_with("not JSON"), "cut after {end} bytes");
        }
    }

    #[test]
    fn a_part_of_the_wrong_form_is_refused() {
        let whole = std::fs::read_to_string(golden("byte_level_bos").join("tokenizer.json")).expect("a committed file");
        let whole: serde_json::Value = serde_json::from_str(&whole).expect("JSON");
        for part in ["model", "decoder", "normalizer", "pre_tokenizer", "post_processor", "added_tokens"] {
            for wrong in ["3", "\"x\"", "[1]", "{\"type\": \"Nonesuch\"}", "{\"type\": 5}"] {
                let mut broken = whole.clone();
                broken[part] = serde_json::from_str(wrong).expect("JSON");
                assert!(refusal(&broken.to_string()).starts_with("not a tokenizer"), "{part} is {wrong}");
            }
        }
    }

    #[test]
    fn tokens_are_known_by_spelling_bytes_and_kind() {
        let byte_level = open("byte_level");
        let im_end = byte_level.token_id("<|im_end|>").expect("a special token");
        let think = byte_level.token_id("<think>").expect("an added token");
        assert!(byte_level.is_special(im_end) && !byte_level.is_special(think));
        assert_eq!(byte_level.token_bytes(im_end), Some(&b"<|im_end|>"[..]));
        assert_eq!(byte_level.token_bytes(byte_level.token_id("Ġ").expect("a token")), Some(&b" "[..]));
        // An added token whose characters are not all of the byte alphabet is plain text.
        let added = byte_level.token_id("日本").expect("an added token");
        assert_eq!(byte_level.token_bytes(added), Some("日本".as_bytes()));
        assert_eq!(byte_level.vocab_size(), added as usize + 1);
        for beyond in [byte_level.vocab_size() as TokenId, TokenId::MAX] {
            assert_eq!(byte_level.token_bytes(beyond), None);
            assert!(!byte_level.is_special(beyond));
        }
        assert_eq!(byte_level.token_id("nonesuch"), None);

        let sentencepiece = open("sentencepiece");
        let byte = sentencepiece.token_id("<0xE5>").expect("a byte token");
        assert_eq!(sentencepiece.token_bytes(byte), Some(&[0xE5][..]));
        assert_eq!(open("wordpiece").token_bytes(5), None, "no table");
    }

    #[test]
    fn a_stream_keeps_an_unfinished_character_until_its_last_byte() {
        let tokenizer = open("sentencepiece");
        let byte = |byte: u8| tokenizer.token_id(&format!("<0x{byte:02X}>")).expect("a byte token");
        let mut stream = TextStream::default();
        let mut pieces = Vec::new();
        for value in "a😀".bytes().chain([0xF0, 0x9F, b'b', 0xE5]) {
            let mut piece = String::new();
            stream.push(&tokenizer, byte(value), &mut piece);
            pieces.push(piece);
        }
        assert_eq!(pieces, ["a", "", "", "", "😀", "", "", "\u{FFFD}\u{FFFD}b", ""]);
        let mut rest = String::new();
        stream.finish(&tokenizer, &mut rest);
        assert_eq!(rest, "\u{FFFD}");
        stream.finish(&tokenizer, &mut rest);
        assert_eq!(rest, "\u{FFFD}", "said once");
    }

    #[test]
    fn a_special_token_in_the_middle_of_a_character_does_not_end_it() {
        let tokenizer = open("sentencepiece");
        let byte = |byte: u8| tokenizer.token_id(&format!("<0x{byte:02X}>")).expect("a byte token");
        let eos = tokenizer.token_id("</s>").expect("a special token");
        let tokens = [byte(0xC3), eos, byte(0xA9)];
        assert_eq!(tokenizer.decode(&tokens, SpecialTokens::Skip).expect("text"), "é");
        assert_eq!(tokenizer.decode(&tokens, SpecialTokens::Keep).expect("text"), "\u{FFFD}</s>\u{FFFD}");
    }

    /// The promise of the C header, and where it ends.
    #[test]
    fn a_text_has_no_more_tokens_than_bytes_and_sixteen_unless_a_normalizer_grows_it() {
        let texts = [
            "",
            "a",
            "\0\u{1}\u{7f}",
            " \n \t  ",
            "😀👍🏽",
            "\u{10FFFF}\u{FFFD}",
            "<|im_start|><|im_end|>",
            "日本語",
            "1234567890",
            "▁▁<0x41>",
        ];
        for name in ["byte_level", "byte_level_bos", "sentencepiece", "metaspace", "wordpiece"] {
            let tokenizer = open(name);
            for text in texts {
                for spelled in [SpelledTokens::Parse, SpelledTokens::Text] {
                    let encoding = Encoding { added: AddedTokens::Add, spelled };
                    let tokens = tokenizer.encode(text, encoding).expect("tokens").len();
                    assert!(tokens <= text.len() + 16, "{name}: {tokens} tokens of {text:?}");
                }
            }
        }
        let grown = "\u{1D160}".repeat(100);
        let tokens = open("byte_level").encode(&grown, PLAIN).expect("tokens").len();
        assert_eq!((grown.len(), tokens), (400, 1200), "NFC makes three characters of this one");
    }

    #[test]
    fn threads_share_one_tokenizer() {
        let tokenizer = open("byte_level");
        let text = "The engine answers questions about prime numbers. ".repeat(20);
        let alone = tokenizer.encode(&text, PLAIN).expect("tokens");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert_eq!(tokenizer.encode(&text, PLAIN).expect("tokens"), alone);
                    }
                });
            }
        });
    }
}
