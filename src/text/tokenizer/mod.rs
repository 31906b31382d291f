//! Text to tokens and back, by the model folder's tokenizer.json.
//!
//! The crate `tokenizers` reads the file and encodes. Decoding runs once for every generated token, so it does not go
//! through the crate where the decoder is of a common kind: [`token_table`] holds what each token spells.
//!
//! Whether spelled special tokens are parsed is a setting of the crate's added vocabulary, and one instance serves all
//! threads. A second added vocabulary with the other setting is a few kilobytes; a second tokenizer would be tens of
//! megabytes. So the text-only path runs the stages of the crate's `encode` over that second vocabulary.

mod model_file;
mod text_stream;
mod token_table;

pub use text_stream::TextStream;

use base::TokenId;
use base::contain::contain;
use base::error::{Error, Result};
use base::limits;
use formats::source::{Source, SourceFile};
use model_file::{Cutting, Facts, Speed};
use os::thread;
use serde::Deserialize;
use token_table::TokenTable;
use tokenizers::PostProcessor;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::tokenizer::{AddedToken, AddedVocabulary, Encoding as CrateEncoding, Model, OffsetType, PreTokenizer};
use tokenizers::utils::truncation::{TruncationParams, truncate_encodings};

/// The tokenizer of a model folder. May be used from any thread.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens of `inner`, but spelled special tokens stay text.
    text_only: AddedVocabulary,
    table: TokenTable,
    facts: Facts,
    /// What stands around the tokens of a text; `None` where that is not the same for every text.
    frame: Option<Frame>,
}

/// Tokens that the post-processor adds.
struct Frame {
    before: Vec<TokenId>,
    after: Vec<TokenId>,
}

/// Words whose tokens the crate keeps, for each thread that tokenizes. One of 255 bytes takes 8 kilobytes.
const CACHED_WORDS: usize = 2048;
/// Bytes of a piece of a long text: what lies in caches while it is tokenized.
const PIECE_BYTES: usize = 64 << 10;
/// A text is long for a limit on its tokens when it has more bytes than this for each of them.
const BYTES_OF_TOKEN: usize = 8;
/// Maximum number of tokens by which a cut changes the number of tokens before and after it.
const TOKENS_OF_CUT: usize = 16;

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
    /// The tokenizer of `source`, or `None` when it has none.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be read, [`Error::ModelFile`] when it is not a tokenizer, or one that asks for
    /// more than [`limits`] allow; [`Error::NoThread`] when the system refuses a thread.
    pub fn open(source: &Source) -> Result<Option<Tokenizer>> {
        let Some(SourceFile { path, bytes: json }) = source.tokenizer()? else { return Ok(None) };
        // Parts of a file may lie within each other, up to the depth that the JSON parser allows.
        let opened = thread::on_deep_stack("tokenizer", || Tokenizer::from_json(&json))?;
        opened.map(Some).map_err(|reason| Error::ModelFile { path, reason })
    }

    /// A tokenizer from the bytes of a tokenizer.json; the error says what is wrong with them.
    pub(crate) fn from_json(json: &[u8]) -> std::result::Result<Tokenizer, String> {
        let facts = model_file::check(json)?;
        let inner = contain(|| parse(json)).and_then(|parsed| parsed);
        let inner =
            inner.map_err(|reason| format!("not a tokenizer: {}", &reason[..reason.floor_char_boundary(300)]))?;
        let mut text_only = inner.get_added_vocabulary().clone();
        text_only.set_encode_special_tokens(true);
        let table = TokenTable::new(&inner);
        let mut tokenizer = Tokenizer { inner, text_only, table, facts, frame: None };
        tokenizer.try_once()?;
        tokenizer.frame = tokenizer.find_frame();
        Ok(tokenizer)
    }

    /// Encodes and decodes a little, so that a file on which the crate panics is refused when it is opened.
    fn try_once(&self) -> std::result::Result<(), String> {
        // A model without the character of a text, and without a token for the unknown, refuses it in words.
        const TEXTS: [&str; 3] =
            ["", "a", " Hello, world!\n\n  It\u{2019}s 2\u{00d7}3 \u{4f60}\u{597d} \u{1f600}e\u{301}<x> "];
        let failed = |what: &str, panic: String| format!("not a tokenizer that works: {what} failed: {panic}");
        for text in TEXTS {
            for added in [AddedTokens::Add, AddedTokens::Omit] {
                for spelled in [SpelledTokens::Parse, SpelledTokens::Text] {
                    let _ = contain(|| self.encode_by_crate(text, Encoding { added, spelled }))
                        .map_err(|panic| failed("encoding a text", panic))?;
                }
            }
        }
        let last = self.vocab_size().saturating_sub(1) as TokenId;
        let tokens = [0, 1.min(last), last / 2, last, last + 1];
        let mut sequences = vec![&tokens[..], &[]];
        sequences.extend(tokens.iter().map(std::slice::from_ref));
        for sequence in sequences {
            for skip in [true, false] {
                let _ =
                    contain(|| self.inner.decode(sequence, skip)).map_err(|panic| failed("decoding a token", panic))?;
            }
        }
        Ok(())
    }

    /// The tokens of `text`.
    ///
    /// A byte of text becomes one token at most in the tokenizers of today's models, plus the few that the
    /// post-processor adds. A normalizer may break this rule for rare characters: NFC makes up to three times the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] when the text is longer than [`limits::TEXT_BYTES`]; [`Error::Tokenizer`] when the model of the
    /// tokenizer has no token for the text and none for the unknown, or when the tokenizer would take too much for it.
    pub fn encode(&self, text: &str, encoding: Encoding) -> Result<Vec<TokenId>> {
        self.encode_within(text, encoding, usize::MAX)
    }

    /// The tokens of `text`, if they are fewer than `limit`.
    ///
    /// What a refusal takes grows with `limit` and not with the text: a long text is tokenized piece by piece until there
    /// are too many tokens.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::encode`]; [`Error::PromptTooLong`] and [`Error::PromptFarTooLong`] when there are too many tokens.
    pub fn encode_within(&self, text: &str, encoding: Encoding, limit: usize) -> Result<Vec<TokenId>> {
        check_bytes(text)?;
        let mut tokens = match &self.frame {
            Some(frame) if text.len() > PIECE_BYTES && self.facts.cutting != Cutting::Nowhere => {
                self.encode_in_pieces(text, encoding, frame, limit)?
            }
            _ => {
                self.check_length(text, 0, limit)?;
                self.encode_piece(text, encoding)?
            }
        };
        if tokens.len() >= limit {
            return Err(Error::PromptTooLong { tokens: tokens.len(), limit });
        }
        tokens.shrink_to_fit();
        Ok(tokens)
    }

    /// The tokens of a pair of texts, if they are fewer than `limit`, as the post-processor joins them, and the first of the tokens that it says to be of the second text; the
    /// number of tokens where it tells none apart.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::encode_within`]; [`Error::Unsupported`] where the tokenizer cannot join texts.
    pub fn encode_pair_within(&self, first: &str, second: &str, limit: usize) -> Result<(Vec<TokenId>, usize)> {
        for text in [first, second] {
            check_bytes(text)?;
            self.check_length(text, 0, limit)?;
        }
        self.check_joins(true)?;
        let (tokens, second) = self.joined(|| self.inner.encode_fast((first, second), true))?;
        if tokens.len() >= limit {
            return Err(Error::PromptTooLong { tokens: tokens.len(), limit });
        }
        Ok((tokens, second))
    }

    /// The first tokens of a text, or of a pair of texts, with those that stand around them: `limit` at most. Of a pair, the longer text is cut first. What is
    /// returned is that of [`Tokenizer::encode_pair_within`].
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Option`] where the tokens around the texts are more.
    pub fn encode_cut(
        &self,
        first: &str,
        second: Option<&str>,
        added: AddedTokens,
        limit: usize,
    ) -> Result<(Vec<TokenId>, usize)> {
        for text in [Some(first), second].into_iter().flatten() {
            check_bytes(text)?;
            self.check_length(text, 0, usize::MAX)?;
        }
        self.check_joins(second.is_some())?;
        let adds = added == AddedTokens::Add;
        let around = |is_pair| self.inner.get_post_processor().map_or(0, |added| added.added_tokens(is_pair));
        let around = if adds { around(second.is_some()) } else { 0 };
        if around > limit {
            let value = format!("{limit}, and {around} tokens stand around a text");
            let wanted = "0, or at least the number of these tokens";
            return Err(Error::Option { field: "truncate_prompt_tokens", value, wanted });
        }
        let cut = TruncationParams { max_length: limit - around, ..TruncationParams::default() };
        self.joined(|| {
            let first = self.inner.encode_fast(first, false)?;
            let second = match second {
                Some(second) => {
                    let mut second = self.inner.encode_fast(second, false)?;
                    second.set_type_ids(vec![1; second.len()]);
                    Some(second)
                }
                None => None,
            };
            let (first, second) = truncate_encodings(first, second, &cut)?;
            self.inner.post_process(first, second, adds)
        })
    }

    /// Refuses a pair where the tokenizer cannot join texts.
    fn check_joins(&self, is_pair: bool) -> Result<()> {
        match self.inner.get_post_processor() {
            None if is_pair => Err(Error::Unsupported {
                what: "the tokenizer does not say how the two texts of a pair are joined".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The tokens that the crate made, and the first of those of type 1.
    fn joined(&self, make: impl FnOnce() -> tokenizers::Result<CrateEncoding>) -> Result<(Vec<TokenId>, usize)> {
        let encoded = contain(|| make().map_err(|error| error.to_string()));
        let encoded = encoded.map_err(|panic| format!("failed on this text: {panic}")).and_then(|encoded| encoded);
        let encoded = encoded.map_err(|reason| Error::Tokenizer { reason })?;
        let (tokens, types) = (encoded.get_ids().to_vec(), encoded.get_type_ids());
        let second = types.iter().position(|&kind| kind != 0).unwrap_or(tokens.len());
        if types[second.min(types.len())..].iter().any(|&kind| kind != 1) {
            let what = "the tokenizer gives the tokens of a pair types that do not rise from 0 to 1".to_owned();
            return Err(Error::Unsupported { what });
        }
        Ok((tokens, second))
    }

    /// The tokens of a long text, cut where that changes none of them.
    fn encode_in_pieces(&self, text: &str, encoding: Encoding, frame: &Frame, limit: usize) -> Result<Vec<TokenId>> {
        let mut tokens = Vec::new();
        if encoding.added == AddedTokens::Add {
            tokens.extend_from_slice(&frame.before);
        }
        let mut rest = text;
        while !rest.is_empty() {
            if tokens.len() >= limit {
                return Err(Error::PromptFarTooLong { tokens: tokens.len(), limit });
            }
            let (piece, after) = rest.split_at(self.facts.cutting.next(rest, PIECE_BYTES));
            self.check_length(piece, tokens.len(), limit)?;
            tokens.extend(self.encode_piece(piece, Encoding { added: AddedTokens::Omit, ..encoding })?);
            rest = after;
        }
        if encoding.added == AddedTokens::Add {
            tokens.extend_from_slice(&frame.after);
        }
        Ok(tokens)
    }

    /// Refuses a text that would take too much, or that certainly has `limit` tokens with the `tokens` before it.
    fn check_length(&self, text: &str, tokens: usize, limit: usize) -> Result<()> {
        let (bytes, growth) = (text.len(), self.facts.growth);
        if bytes > PIECE_BYTES && bytes / BYTES_OF_TOKEN > limit {
            self.estimate(text, tokens, limit)?;
        }
        let refused = |reason| Err(Error::Tokenizer { reason });
        if self.facts.speed == Speed::Unknown && bytes > limits::SLOW_TEXT_BYTES {
            let most = limits::SLOW_TEXT_BYTES;
            return refused(format!(
                "the text has {bytes} bytes, but at most {most} are accepted by a tokenizer with patterns such as this one's"
            ));
        }
        if bytes > limits::TEXT_PIECE_BYTES {
            let most = limits::TEXT_PIECE_BYTES;
            return refused(format!(
                "the text has a piece of {bytes} bytes that this tokenizer cannot split, but at most {most} are accepted"
            ));
        }
        if bytes.saturating_mul(growth) > limits::GROWN_TEXT_BYTES {
            let most = limits::GROWN_TEXT_BYTES / growth;
            return refused(format!(
                "the text has {bytes} bytes, but at most {most} are accepted by this tokenizer, which may turn each into {growth}"
            ));
        }
        Ok(())
    }

    /// Refuses a text that certainly has `limit` tokens with the `tokens` before it, by those of its pieces. A cut changes
    /// their number by a few; spaces around it are left out, because some tokens take all that stand beside them.
    fn estimate(&self, text: &str, mut tokens: usize, limit: usize) -> Result<()> {
        let plain = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse };
        let bytes = match self.facts.speed {
            Speed::Linear => (PIECE_BYTES / self.facts.growth).max(4096),
            Speed::Unknown => 4096,
        };
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(bytes));
            tokens += self.encode_piece(piece.trim(), plain)?.len().saturating_sub(TOKENS_OF_CUT);
            if tokens >= limit {
                return Err(Error::PromptFarTooLong { tokens, limit });
            }
            rest = after;
        }
        Ok(())
    }

    /// The tokens of a text, whose length was checked.
    fn encode_piece(&self, text: &str, encoding: Encoding) -> Result<Vec<TokenId>> {
        let encoded = contain(|| self.encode_by_crate(text, encoding));
        let encoded = encoded.map_err(|panic| format!("failed on this text: {panic}"));
        encoded.and_then(|tokens| tokens).map_err(|reason| Error::Tokenizer { reason })
    }

    fn encode_by_crate(&self, text: &str, encoding: Encoding) -> std::result::Result<Vec<TokenId>, String> {
        let add_special_tokens = encoding.added == AddedTokens::Add;
        let encoded = match encoding.spelled {
            SpelledTokens::Parse => self.inner.encode_fast(text, add_special_tokens),
            SpelledTokens::Text => self
                .encode_text_only(text)
                .and_then(|encoded| self.inner.post_process(encoded, None, add_special_tokens)),
        };
        encoded.map(|encoded| encoded.get_ids().to_vec()).map_err(|error| error.to_string())
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

    /// What the post-processor puts around a text, if it is clear where the text stands.
    fn find_frame(&self) -> Option<Frame> {
        let tokens = |added| {
            let encoding = Encoding { added, spelled: SpelledTokens::Parse };
            self.encode_piece("a", encoding).ok().filter(|tokens| !tokens.is_empty())
        };
        let (framed, text) = (tokens(AddedTokens::Add)?, tokens(AddedTokens::Omit)?);
        let mut places = framed.windows(text.len()).enumerate().filter(|(_, window)| *window == text);
        let (start, _) = places.next()?;
        places
            .next()
            .is_none()
            .then(|| Frame { before: framed[..start].to_vec(), after: framed[start + text.len()..].to_vec() })
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

    /// The spelling of the tokens that [`AddedTokens::Add`] puts before a text; `None` when there are none.
    pub fn added_before(&self) -> Option<String> {
        let before = &self.frame.as_ref()?.before;
        self.decode(before, SpecialTokens::Keep).ok().filter(|text| !text.is_empty())
    }

    fn decode_by_crate(&self, tokens: &[TokenId], special: SpecialTokens) -> Result<String> {
        let decoded = contain(|| self.inner.decode(tokens, special == SpecialTokens::Skip));
        match decoded {
            Ok(decoded) => decoded.map_err(|error| Error::Tokenizer { reason: error.to_string() }),
            Err(panic) => Err(Error::Tokenizer { reason: format!("failed on these tokens: {panic}") }),
        }
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

    /// Whether a token stands for a mark in the text of a model, such as the begin of a tool call, and not for the text that it spells.
    pub fn is_mark(&self, token: TokenId) -> bool {
        let bytes = self.token_bytes(token).unwrap_or_default();
        self.is_special(token) || (self.is_added(token) && bytes.starts_with(b"<") && bytes.ends_with(b">"))
    }
}

/// What of tokenizer.json is used. Some files keep the truncation and padding of the last training run; a prompt is never cut
/// or filled silently.
#[derive(Deserialize)]
struct Parts {
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
    model: ModelWrapper,
}

/// A tokenizer of the crate, with the settings that this library wants.
/// Refuses a text that is too long for any model.
fn check_bytes(text: &str) -> Result<()> {
    match text.len() {
        len if len > limits::TEXT_BYTES => {
            let wanted = "of at most 16777216 bytes, NVLLM_MAX_TEXT_BYTES";
            Err(Error::Option { field: "text", value: format!("of {len} bytes"), wanted })
        }
        _ => Ok(()),
    }
}

fn parse(json: &[u8]) -> std::result::Result<tokenizers::Tokenizer, String> {
    let parts: Parts = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    if let Some(version) = parts.version.filter(|version| version != "1.0") {
        return Err(format!("version is {version:.20}, but must be 1.0"));
    }
    let mut model = parts.model;
    model.resize_cache(CACHED_WORDS);
    let mut inner = tokenizers::Tokenizer::new(model);
    inner.with_normalizer(parts.normalizer).map_err(|error| error.to_string())?;
    inner.with_pre_tokenizer(parts.pre_tokenizer);
    inner.with_post_processor(parts.post_processor);
    inner.with_decoder(parts.decoder);
    inner.add_tokens(parts.added_tokens).map_err(|error| error.to_string())?;
    inner.set_encode_special_tokens(false);
    Ok(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const PLAIN: Encoding = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse };

    fn golden(name: &str) -> std::path::PathBuf {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/text")).join(name)
    }

    fn open(name: &str) -> Tokenizer {
        Tokenizer::open(&Source::open(&golden(name)).expect("a folder")).expect("a good file").expect("a file")
    }

    fn refusal(json: &str) -> String {
        match Tokenizer::from_json(json.as_bytes()) {
            Ok(_) => panic!("opened"),
            Err(reason) => reason,
        }
    }

    #[test]
    fn a_folder_without_tokenizer_json_has_no_tokenizer() {
        assert!(Tokenizer::open(&Source::open(&golden("chat")).expect("a folder")).expect("no error").is_none());
    }

    #[test]
    fn a_broken_file_is_an_error_that_names_it() {
        let folder = std::env::temp_dir().join(format!("nanovllm-tokenizer-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("tokenizer.json"), "{").expect("a file");
        let opened = Source::open(&folder).and_then(|source| Tokenizer::open(&source));
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
    fn the_tokens_before_a_text_are_spelled_together() {
        let whole = std::fs::read_to_string(golden("byte_level").join("tokenizer.json")).expect("a committed file");
        let mut whole: serde_json::Value = serde_json::from_str(&whole).expect("JSON");
        assert_eq!(Tokenizer::from_json(whole.to_string().as_bytes()).expect("a tokenizer").added_before(), None);
        let token = |name: &str| serde_json::json!({"SpecialToken": {"id": name, "type_id": 0}});
        let text = serde_json::json!({"Sequence": {"id": "A", "type_id": 0}});
        let ids =
            |name: &str| serde_json::json!({"id": name, "ids": [open("byte_level").token_id(name)], "tokens": [name]});
        whole["post_processor"] = serde_json::json!({
            "type": "TemplateProcessing",
            "single": [token("<|im_start|>"), token("<|endoftext|>"), text, token("<|im_end|>")],
            "pair": [text, text],
            "special_tokens": {
                "<|im_start|>": ids("<|im_start|>"),
                "<|endoftext|>": ids("<|endoftext|>"),
                "<|im_end|>": ids("<|im_end|>"),
            },
        });
        let tokenizer = Tokenizer::from_json(whole.to_string().as_bytes()).expect("a tokenizer");
        assert_eq!(tokenizer.added_before().as_deref(), Some("<|im_start|><|endoftext|>"));
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
        for name in ["byte_level", "byte_level_bos", "blocks_first", "sentencepiece", "metaspace", "wordpiece"] {
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
