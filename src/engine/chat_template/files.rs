//! The files of a model folder that hold chat templates, and the special tokens that these know.

use super::DEFAULT;
use crate::backend::read_file;
use crate::error::{Error, Result};
use crate::limits;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

/// A template's name, and where it stood with its text.
pub(super) type Sources = BTreeMap<String, (PathBuf, String)>;

/// chat_template.jinja and additional_chat_templates/NAME.jinja.
pub(super) fn template_files(folder: &Path) -> Result<Sources> {
    let mut sources = Sources::new();
    let path = folder.join("chat_template.jinja");
    if let Some(source) = read_text(&path, limits::TEMPLATE_BYTES as u64)? {
        sources.insert(DEFAULT.to_string(), (path, source));
    }
    let Ok(entries) = std::fs::read_dir(folder.join("additional_chat_templates")) else {
        return Ok(sources);
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "jinja")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            && let Some(source) = read_text(&path, limits::TEMPLATE_BYTES as u64)?
        {
            sources.insert(name.to_string(), (path, source));
        }
    }
    Ok(sources)
}

/// `chat_template` of tokenizer_config.json: a template, or a list of `{"name": …, "template": …}`.
pub(super) fn templates_of_config(path: &Path, config: &Json) -> Result<Sources> {
    let named = |name: &str, source: &str| (name.to_string(), (path.to_path_buf(), source.to_string()));
    match config.get("chat_template") {
        None | Some(Json::Null) => Ok(Sources::new()),
        Some(Json::String(source)) => Ok(Sources::from([named(DEFAULT, source)])),
        Some(Json::Array(templates)) => templates
            .iter()
            .map(|template| Some(named(template.get("name")?.as_str()?, template.get("template")?.as_str()?)))
            .collect::<Option<Sources>>()
            .ok_or_else(|| Error::ModelFile {
                path: path.to_path_buf(),
                reason: "an entry of chat_template has no name or no template".to_string(),
            }),
        Some(_) => Err(Error::ModelFile {
            path: path.to_path_buf(),
            reason: "chat_template is neither a string nor a list of named templates".to_string(),
        }),
    }
}

/// A special token's text, given as a string or as `{"content": …}`.
pub(super) fn token_text(config: &Json, name: &str) -> Option<String> {
    let token = config.get(name)?;
    token.as_str().or_else(|| token.get("content")?.as_str()).map(str::to_string)
}

/// The JSON of a file, null when there is no such file.
pub(super) fn read_json(path: &Path) -> Result<Json> {
    let Some(text) = read_text(path, limits::TOKENIZER_CONFIG_FILE_BYTES)? else { return Ok(Json::Null) };
    if json_values(&text) > limits::JSON_VALUES {
        let reason = format!("more than {} values", limits::JSON_VALUES);
        return Err(Error::ModelFile { path: path.to_path_buf(), reason });
    }
    serde_json::from_str(&text)
        .map_err(|error| Error::ModelFile { path: path.to_path_buf(), reason: format!("not JSON: {error}") })
}

/// At least as many as there are values in a JSON text, each of which takes some hundred bytes however short it is written.
pub(super) fn json_values(text: &str) -> usize {
    let (mut values, mut in_string, mut is_escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' | b':' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

/// The text of a file of at most `most` bytes, `None` when there is no such file.
fn read_text(path: &Path, most: u64) -> Result<Option<String>> {
    let Some(bytes) = read_file(path, most)? else { return Ok(None) };
    let refused = |error: FromUtf8Error| Error::ModelFile { path: path.to_path_buf(), reason: error.to_string() };
    String::from_utf8(bytes).map(Some).map_err(refused)
}
