//! Leaves the last message of a conversation open, so that the model goes on with it.
//!
//! What a template puts after a message is known only to the template. So a mark is added to the message's end, and
//! whatever follows the mark in the rendered text is cut away.

use super::REASONING_FIELDS;
use base::error::{Error, Result};
use serde_json::{Map, Value as Json};

/// Ends with a space so that it shows whether the template trims its messages. The same text as in transformers,
/// because a template could see it.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A conversation whose last message carries the mark.
pub(super) struct Marked {
    /// The text that is continued, without the surrounding white space.
    text: String,
}

/// Marks the end of `field` in the last message.
pub(super) fn mark(messages: &mut [Map<String, Json>], field: &str) -> Result<Marked> {
    let wrong = |reason: String| Error::Json { what: "messages", reason };
    let nothing = || wrong(format!("the last message has no text in \"{field}\" that could be continued"));
    let last = messages.last_mut().ok_or_else(nothing)?;
    match last.get(field) {
        Some(Json::String(text)) => {
            let text = text.clone();
            // Reasoning stands under several names, and the template reads one of them.
            let copies = if REASONING_FIELDS.contains(&field) { REASONING_FIELDS.as_slice() } else { &[field] };
            for name in copies {
                if let Some(Json::String(copy)) = last.get_mut(*name)
                    && *copy == text
                {
                    copy.push_str(MARK);
                }
            }
            Ok(Marked { text: text.trim().to_string() })
        }
        Some(Json::Array(_)) => {
            let parts = last.get_mut(field).and_then(Json::as_array_mut).ok_or_else(nothing)?;
            let part = parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
                Some(Json::String(text)) => Some(text),
                _ => None,
            });
            let part = part.ok_or_else(nothing)?;
            let text = part.trim().to_string();
            part.push_str(MARK);
            Ok(Marked { text })
        }
        _ => Err(nothing()),
    }
}

impl Marked {
    /// The rendered text up to the mark.
    pub fn cut(self, mut rendered: String) -> Result<String> {
        let trimmed = MARK.trim_end();
        let place = rendered.rfind(trimmed).filter(|_| rendered.contains(&self.text));
        let Some(place) = place else {
            return Err(Error::ChatTemplate {
                reason: "the last message does not appear in the rendered text, so it cannot be continued".to_string(),
            });
        };
        // A template that trims its messages took the mark's space, and would have taken the message's own.
        let kept = if rendered[place..].starts_with(MARK) { place } else { rendered[..place].trim_end().len() };
        rendered.truncate(kept);
        Ok(rendered)
    }
}
