//! Checks tokenizer.json before the crate `tokenizers` sees it.
//!
//! The crate trusts its file. It panics on some, and others make it take memory without end: an id sizes a table, a step of
//! the normalizer multiplies the text, and steps follow each other. So each part is compared with what the crate does with
//! it, and the file is refused with the name of the setting. What the crate refuses itself is left to it.

mod charsmap;
mod cutting;
mod outline;
mod pattern;

pub use cutting::Cutting;
pub use pattern::Speed;

use base::limits;
use outline::{Form, ModelOutline, Outline};
use serde_json::{Map, Value};

/// What is known of a tokenizer whose file was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How many bytes the normalizer and the pre-tokenizer make of one at most.
    pub growth: usize,
    /// How the time of splitting a text grows with its length.
    pub speed: Speed,
    /// Where a long text can be cut.
    pub cutting: Cutting,
}

/// Bytes of an option of the model, such as the unknown token.
const OPTION_BYTES: usize = 256;
/// Characters that a decoder may strip from either end of a token.
const STRIP_MAX: u64 = 16;
/// Characters of a word beyond which a WordPiece model takes it for unknown. It looks up all beginnings of a word.
const WORD_CHARS_MAX: u64 = 256;
/// Ids may have gaps: this many for each token, and some.
const ID_GAPS: u64 = 4;
const ID_GAPS_ALWAYS: u64 = 1 << 16;

/// Checks a file. The error says what is wrong with it.
pub fn check(json: &[u8]) -> Result<Facts, String> {
    let outline = outline::read(json)?;
    check_model(&outline.model)?;
    check_added(&outline)?;
    let part = |name| outline.parts.get(name).filter(|part: &&Value| !part.is_null());
    let cutting = Cutting::of(part("normalizer"), part("pre_tokenizer"), &outline.added);
    let facts = Facts { growth: 1, speed: Speed::Linear, cutting };
    let mut steps = Steps { left: limits::TOKENIZER_STEPS, facts };
    let mut unicode = 1;
    if let Some(normalizer) = part("normalizer") {
        steps.normalizer(normalizer, &mut unicode)?;
    }
    if let Some(pre_tokenizer) = part("pre_tokenizer") {
        steps.pre_tokenizer(pre_tokenizer)?;
    }
    steps.grow(unicode, "normalizer")?;
    let facts = steps.facts;
    let spelled = |token: &Value| token["content"].as_str().map_or(0, str::len);
    let added_bytes = outline.added.iter().map(spelled).sum::<usize>().saturating_mul(facts.growth);
    if added_bytes > limits::ADDED_BYTES {
        let most = limits::ADDED_BYTES;
        return Err(format!("added_tokens may become {added_bytes} bytes, but at most {most} are accepted"));
    }
    if let Some(processor) = part("post_processor") {
        let mut added = 0;
        steps.post_processor(processor, &mut added)?;
    }
    if let Some(decoder) = part("decoder") {
        steps.decoder(decoder, &mut 1)?;
    }
    Ok(facts)
}

fn check_model(model: &ModelOutline) -> Result<(), String> {
    let vocabulary = &model.vocabulary;
    let most = (vocabulary.tokens as u64).saturating_mul(ID_GAPS) + ID_GAPS_ALWAYS;
    if vocabulary.last_id >= most.min(limits::TOKENS as u64) {
        let (tokens, last) = (vocabulary.tokens, vocabulary.last_id);
        let most = most.min(limits::TOKENS as u64);
        return Err(format!("the vocabulary of {tokens} tokens has the id {last}, but ids must be below {most}"));
    }
    let longest = if vocabulary.form == Form::Scores { limits::UNIGRAM_TOKEN_BYTES } else { limits::TOKEN_BYTES };
    if vocabulary.longest > longest {
        return Err(format!(
            "the vocabulary has a token of {} bytes, but at most {longest} are accepted",
            vocabulary.longest
        ));
    }
    if vocabulary.form == Form::Scores && vocabulary.bytes > limits::UNIGRAM_BYTES {
        let most = limits::UNIGRAM_BYTES;
        return Err(format!(
            "the vocabulary has {} bytes, but that of a unigram model must have at most {most}",
            vocabulary.bytes
        ));
    }
    for (name, value) in &model.options {
        if let Some(text) = value.as_str().filter(|text| text.len() > OPTION_BYTES) {
            return Err(format!(
                "{name:.60} of the model has {} bytes, but at most {OPTION_BYTES} are accepted",
                text.len()
            ));
        }
    }
    if let Some(dropout) = model.options.get("dropout").filter(|value| value.as_f64().is_some_and(|share| share != 0.0))
    {
        return Err(format!(
            "dropout of the model is {dropout}, but must be null or 0: a text has the same tokens each time"
        ));
    }
    number(&model.options, "max_input_chars_per_word", 0, WORD_CHARS_MAX)
}

fn check_added(outline: &Outline) -> Result<(), String> {
    if outline.added.len() > limits::ADDED_TOKENS {
        let (tokens, most) = (outline.added.len(), limits::ADDED_TOKENS);
        return Err(format!("added_tokens has {tokens} entries, but at most {most} are accepted"));
    }
    for token in outline.added.iter().filter_map(Value::as_object) {
        number(token, "id", 0, limits::TOKENS as u64 - 1).map_err(|reason| format!("added_tokens: {reason}"))?;
        let bytes = token.get("content").and_then(Value::as_str).map_or(0, str::len);
        if bytes > limits::TOKEN_BYTES {
            return Err(format!(
                "added_tokens has a token of {bytes} bytes, but at most {} are accepted",
                limits::TOKEN_BYTES
            ));
        }
    }
    Ok(())
}

/// Refuses a number that is there and outside of a range; what is no number is left to the crate.
fn number(object: &Map<String, Value>, name: &str, least: u64, most: u64) -> Result<(), String> {
    match object.get(name).and_then(Value::as_number) {
        Some(number) if !number.as_u64().is_some_and(|value| (least..=most).contains(&value)) => {
            Err(format!("{name} is {number}, but must be a whole number from {least} to {most}"))
        }
        _ => Ok(()),
    }
}

/// The fields of a step, and its parts where it is a list of steps.
type Step<'a> = (&'a Map<String, Value>, &'a [Value]);

/// The steps that a text goes through, as they are counted.
struct Steps {
    left: usize,
    facts: Facts,
}

impl Steps {
    /// Counts a step, and its parts where it is a list of steps. Parts are known by their fields, because a step without a
    /// `type` is read by them too.
    fn open<'a>(&mut self, step: &'a Value, list: &str, of: &str) -> Result<Option<Step<'a>>, String> {
        let most = limits::TOKENIZER_STEPS;
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| format!("with {of}, the tokenizer has more than {most} steps, which is the limit"))?;
        let Some(fields) = step.as_object() else { return Ok(None) };
        let parts = fields.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Ok(Some((fields, parts)))
    }

    fn grow(&mut self, factor: usize, of: &str) -> Result<(), String> {
        let growth = &mut self.facts.growth;
        *growth = growth.saturating_mul(factor.max(1));
        match *growth {
            growth if growth > limits::TEXT_GROWTH => {
                Err(format!("{of} may turn one byte into {growth}, but at most {} are accepted", limits::TEXT_GROWTH))
            }
            _ => Ok(()),
        }
    }

    /// `unicode` is the growth by Unicode's normal forms. A text in such a form stays as it is under another, so they count
    /// once.
    fn normalizer(&mut self, step: &Value, unicode: &mut usize) -> Result<(), String> {
        const OF: &str = "normalizer";
        let Some((fields, parts)) = self.open(step, "normalizers", OF)? else { return Ok(()) };
        for part in parts {
            self.normalizer(part, unicode)?;
        }
        let decomposed = match kind(fields) {
            "NFC" | "NFD" | "Bert" | "BertNormalizer" => 3,
            "NFKC" | "NFKD" => 11,
            _ => 1,
        };
        *unicode = decomposed.max(*unicode);
        match kind(fields) {
            "Bert" | "BertNormalizer" => self.grow(3, OF)?,
            "ByteLevel" | "Lowercase" => self.grow(2, OF)?,
            _ => {}
        }
        if let Some(charsmap) = fields.get("precompiled_charsmap") {
            let base64 = charsmap.as_str().ok_or("normalizer: precompiled_charsmap must be a text")?;
            *unicode = charsmap::growth(base64).map_err(|reason| format!("normalizer: {reason}"))?.max(*unicode);
        }
        if let Some(prepended) = fields.get("prepend").and_then(Value::as_str) {
            self.grow(1 + prepended.len(), OF)?;
        }
        let factor = self.replaced(fields, OF)?;
        self.grow(factor, OF)
    }

    fn pre_tokenizer(&mut self, step: &Value) -> Result<(), String> {
        const OF: &str = "pre_tokenizer";
        let Some((fields, parts)) = self.open(step, "pretokenizers", OF)? else { return Ok(()) };
        for part in parts {
            self.pre_tokenizer(part)?;
        }
        number(fields, "length", 1, u64::from(u32::MAX)).map_err(|reason| format!("{OF}: {reason}"))?;
        if let Some(replacement) = fields.get("replacement").and_then(Value::as_str) {
            self.grow(1 + replacement.len(), OF)?;
        }
        if kind(fields) == "ByteLevel" {
            self.grow(2, OF)?;
        }
        self.pattern(fields, OF).map(drop)
    }

    fn decoder(&mut self, step: &Value, growth: &mut usize) -> Result<(), String> {
        const OF: &str = "decoder";
        let Some((fields, parts)) = self.open(step, "decoders", OF)? else { return Ok(()) };
        for part in parts {
            self.decoder(part, growth)?;
        }
        for end in ["start", "stop"] {
            number(fields, end, 0, STRIP_MAX).map_err(|reason| format!("{OF}: {reason}"))?;
        }
        for replaced in ["suffix", "pad_token", "word_delimiter_token", "prefix", "content"] {
            if let Some(text) = fields.get(replaced).and_then(Value::as_str).filter(|text| text.len() > OPTION_BYTES) {
                return Err(format!(
                    "{OF}: {replaced} has {} bytes, but at most {OPTION_BYTES} are accepted",
                    text.len()
                ));
            }
        }
        let is_added_everywhere = |name| fields.get(name).and_then(Value::as_str) == Some("");
        let spaced = is_added_everywhere("suffix") || is_added_everywhere("word_delimiter_token");
        let factor = self.replaced(fields, OF)?.max(if spaced { 2 } else { 1 });
        *growth = growth.saturating_mul(factor);
        if *growth > limits::DECODER_GROWTH {
            let most = limits::DECODER_GROWTH;
            return Err(format!("{OF} may turn one byte into {growth}, but at most {most} are accepted"));
        }
        Ok(())
    }

    /// How much a step that replaces a pattern grows a text.
    fn replaced(&mut self, fields: &Map<String, Value>, of: &str) -> Result<usize, String> {
        let Some(shortest) = self.pattern(fields, of)? else { return Ok(1) };
        let content = fields.get("content").and_then(Value::as_str).unwrap_or_default();
        Ok(content.len().div_ceil(shortest))
    }

    /// Bytes of the shortest match of a step's pattern; `None` without a pattern.
    fn pattern(&mut self, fields: &Map<String, Value>, of: &str) -> Result<Option<usize>, String> {
        let Some(pattern) = fields.get("pattern") else { return Ok(None) };
        let text = |name: &str| pattern.get(name).and_then(Value::as_str);
        let shortest = match (text("String"), text("Regex")) {
            (Some(text), _) => text.len(),
            (None, Some(regex)) => {
                let read = pattern::read(regex).map_err(|reason| format!("{of}: {reason}"))?;
                if read.speed == Speed::Unknown {
                    self.facts.speed = Speed::Unknown;
                }
                read.shortest
            }
            (None, None) => return Ok(None),
        };
        match shortest {
            0 => Err(format!("{of}: pattern may match the empty string, but must match at least one character")),
            _ => Ok(Some(shortest)),
        }
    }

    fn post_processor(&mut self, step: &Value, added: &mut usize) -> Result<(), String> {
        const OF: &str = "post_processor";
        let Some((fields, parts)) = self.open(step, "processors", OF)? else { return Ok(()) };
        for part in parts {
            self.post_processor(part, added)?;
        }
        let Some(single) = fields.get("single").and_then(Value::as_array) else { return Ok(()) };
        let mut texts = 0;
        for piece in single {
            if let Some(sequence) = piece.get("Sequence") {
                texts += 1;
                if sequence.get("id").and_then(Value::as_str) != Some("A") {
                    return Err(format!("{OF}: single has a second text, but there is only one: A"));
                }
            }
            let Some(id) = piece.get("SpecialToken").and_then(|token| token.get("id")).and_then(Value::as_str) else {
                continue;
            };
            let token = fields.get("special_tokens").and_then(|tokens| tokens.get(id));
            let ids = token.and_then(|token| token.get("ids")).and_then(Value::as_array);
            let ids =
                ids.ok_or_else(|| format!("{OF}: single has the token {id:.60}, which is not in special_tokens"))?;
            *added += ids.len();
        }
        if texts > 1 {
            return Err(format!("{OF}: single has the text {texts} times, but must have it once"));
        }
        if *added > limits::TEMPLATE_TOKENS {
            let most = limits::TEMPLATE_TOKENS;
            return Err(format!("{OF} adds {added} tokens to a text, but at most {most} are accepted"));
        }
        Ok(())
    }
}

fn kind(step: &Map<String, Value>) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or_default()
}
