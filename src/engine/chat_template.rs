//! A conversation to a prompt, by the model folder's chat template.

use crate::error::Result;
use std::path::Path;

/// The chat template of a model folder. May be used from any thread.
pub struct ChatTemplate {}

impl ChatTemplate {
    /// Reads chat_template.jinja or chat_template in tokenizer_config.json, or says `None` when the folder has neither.
    pub fn open(folder: &Path) -> Result<Option<ChatTemplate>> {
        let _ = folder;
        todo!()
    }

    /// Renders `messages`, a JSON array of objects with `role` and `content`, as transformers does.
    ///
    /// `options` is a JSON object or empty: `add_generation_prompt` (default true), `tools`, `documents`, and any further
    /// variable the template knows, such as `enable_thinking`.
    pub fn render(&self, messages: &str, options: &str) -> Result<String> {
        let _ = (messages, options);
        todo!()
    }
}
