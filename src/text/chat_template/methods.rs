//! Python's methods of strings that minijinja's own set lacks or has in another form.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, State, Value};

/// Calls `method` of `value`.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if value.kind() == ValueKind::String
        && let Some(text) = value.as_str()
        && let Some(result) = string_method(text, method, args)
    {
        return result;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// `None` when the method is left to minijinja's own set.
fn string_method(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "removeprefix" => from_args(args).map(|(prefix,): (&str,)| text.strip_prefix(prefix).unwrap_or(text).into()),
        "removesuffix" => from_args(args).map(|(suffix,): (&str,)| text.strip_suffix(suffix).unwrap_or(text).into()),
        "partition" => from_args(args).map(|(separator,): (&str,)| match text.split_once(separator) {
            Some((before, after)) => tuple([before, separator, after]),
            None => tuple([text, "", ""]),
        }),
        "rpartition" => from_args(args).map(|(separator,): (&str,)| match text.rsplit_once(separator) {
            Some((before, after)) => tuple([before, separator, after]),
            None => tuple(["", "", text]),
        }),
        "rsplit" => from_args(args).map(|(separator, most): (Option<&str>, Option<i64>)| {
            // Without a bound, and with a negative one, every separator counts.
            let pieces =
                most.and_then(|most| usize::try_from(most).ok()).map_or(usize::MAX, |most| most.saturating_add(1));
            let mut split: Vec<&str> = match separator {
                Some(separator) => text.rsplitn(pieces, separator).collect(),
                None => rsplit_white_space(text, pieces),
            };
            split.reverse();
            split.into_iter().map(Value::from).collect()
        }),
        "splitlines" => from_args(args).map(|(keep_ends,): (Option<bool>,)| {
            lines(text)
                .map(|(line, end)| if keep_ends == Some(true) { &text[line.start..end] } else { &text[line] })
                .map(Value::from)
                .collect()
        }),
        "title" => from_args(args).map(|()| title(text).into()),
        _ => return None,
    })
}

/// Every run of letters with a capital first and small letters after it.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for character in text.chars() {
        let cased = character.is_uppercase() || character.is_lowercase();
        match (cased, in_word) {
            (true, false) => titled.extend(character.to_uppercase()),
            (true, true) => titled.extend(character.to_lowercase()),
            (false, _) => titled.push(character),
        }
        in_word = cased;
    }
    titled
}

fn tuple(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from)))
}

/// The words of `text` from the end on, at most `pieces`; the last one is what is left of the text.
fn rsplit_white_space(text: &str, pieces: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        if words.len() + 1 == pieces {
            words.push(rest);
            break;
        }
        let start = rest.char_indices().rev().find(|(_, c)| c.is_whitespace()).map_or(0, |(at, c)| at + c.len_utf8());
        words.push(&rest[start..]);
        rest = rest[..start].trim_end();
    }
    words
}

/// The lines of a text: where each lies, and where its line end ends.
fn lines(text: &str) -> impl Iterator<Item = (std::ops::Range<usize>, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        let is_end = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let line = start..start + rest.find(is_end).unwrap_or(rest.len());
        let tail = &text[line.end..];
        let end_len = if tail.starts_with("\r\n") { 2 } else { tail.chars().next().map_or(0, char::len_utf8) };
        start = line.end + end_len;
        Some((line, start))
    })
}
