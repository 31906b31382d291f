//! The chat templates of a model folder, and the special tokens that they know.

use super::Source;
use super::gguf::Gguf;
use base::error::{Error, Result};
use base::limits::{self, json_values};
use os::Files;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

/// The name of the template that is used unless there is a better one.
pub const DEFAULT_TEMPLATE: &str = "default";

/// Entries of tokenizer_config.json that a template sees as variables.
const NAMED_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The chat templates of a model.
pub struct ChatTemplates {
    /// By name: where each stands, and its text.
    pub templates: Templates,
    /// Special tokens by the names that templates have for them, such as `eos_token`.
    pub named_tokens: Vec<(&'static str, String)>,
}

type Templates = BTreeMap<String, (PathBuf, String)>;

impl Source {
    /// The chat templates, if the model has any.
    ///
    /// As in transformers, chat_template.jinja and the files of additional_chat_templates win over `chat_template` in
    /// tokenizer_config.json, which is one template or a list of named ones. Those of a GGUF file are read where none of these is beside it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when a file cannot be read, [`Error::ModelFile`] when it is not what it should be, and for templates beyond
    /// [`limits::TEMPLATES`] and [`limits::TEMPLATE_BYTES`].
    pub fn chat_templates(&self) -> Result<Option<ChatTemplates>> {
        let (files, folder) = (self.files(), self.text_folder());
        let config_path = folder.join("tokenizer_config.json");
        let config = read_json(files, &config_path)?;
        let mut templates = template_files(files, folder)?;
        if templates.is_empty() {
            templates = templates_of_config(&config_path, &config)?;
        }
        let mut of_gguf = BTreeMap::new();
        if let Source::Gguf(file) = self {
            if templates.is_empty() {
                templates = templates_of_gguf(file)?;
            }
            of_gguf = named_tokens_of_gguf(file)?;
        }
        let Some((path, _)) = templates.values().next() else { return Ok(None) };
        let older_map = read_json(files, &folder.join("special_tokens_map.json"))?;
        let text_of = |name| {
            let in_files = token_text(&config, name).or_else(|| token_text(&older_map, name));
            Some((name, in_files.or_else(|| of_gguf.get(name).cloned())?))
        };
        let named_tokens = NAMED_TOKENS.into_iter().filter_map(text_of).collect();
        let bytes: usize = templates.values().map(|(_, text)| text.len()).sum();
        if bytes > limits::TEMPLATE_BYTES || templates.len() > limits::TEMPLATES {
            let (most, most_bytes) = (limits::TEMPLATES, limits::TEMPLATE_BYTES);
            let reason = format!(
                "{} chat templates of {bytes} bytes, but at most {most} of {most_bytes} bytes in all are read",
                templates.len()
            );
            return Err(Error::ModelFile { path: path.clone(), reason });
        }
        Ok(Some(ChatTemplates { templates, named_tokens }))
    }
}

impl Source {
    /// The `response_template` of tokenizer_config.json, which says how the model's answers are read, and where it stands.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be read, [`Error::ModelFile`] when it is no JSON or goes beyond a limit.
    pub fn response_template(&self) -> Result<Option<(PathBuf, Json)>> {
        let path = self.text_folder().join("tokenizer_config.json");
        let mut config = read_json(self.files(), &path)?;
        let template = config.get_mut("response_template").map(Json::take).filter(|template| !template.is_null());
        Ok(template.map(|template| (path, template)))
    }
}

/// chat_template.jinja and additional_chat_templates/NAME.jinja.
fn template_files(files: &Files, folder: &Path) -> Result<Templates> {
    let mut sources = Templates::new();
    let path = folder.join("chat_template.jinja");
    if let Some(source) = read_text(files, &path, limits::TEMPLATE_BYTES as u64)? {
        sources.insert(DEFAULT_TEMPLATE.to_string(), (path, source));
    }
    for path in files.entries(&folder.join("additional_chat_templates")) {
        if path.extension().is_some_and(|extension| extension == "jinja")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            && let Some(source) = read_text(files, &path, limits::TEMPLATE_BYTES as u64)?
        {
            sources.insert(name.to_string(), (path, source));
        }
    }
    Ok(sources)
}

/// `chat_template` of tokenizer_config.json: a template, or a list of `{"name": …, "template": …}`.
fn templates_of_config(path: &Path, config: &Json) -> Result<Templates> {
    let named = |name: &str, source: &str| (name.to_string(), (path.to_path_buf(), source.to_string()));
    match config.get("chat_template") {
        None | Some(Json::Null) => Ok(Templates::new()),
        Some(Json::String(source)) => Ok(Templates::from([named(DEFAULT_TEMPLATE, source)])),
        Some(Json::Array(templates)) => templates
            .iter()
            .map(|template| Some(named(template.get("name")?.as_str()?, template.get("template")?.as_str()?)))
            .collect::<Option<Templates>>()
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

/// `tokenizer.chat_template`, and `tokenizer.chat_template.NAME` for those with a name.
fn templates_of_gguf(file: &Gguf) -> Result<Templates> {
    const KEY: &str = "tokenizer.chat_template";
    let header = file.header();
    let mut templates = Templates::new();
    for key in header.keys() {
        let name = match key.strip_prefix(KEY) {
            Some("") => DEFAULT_TEMPLATE,
            Some(rest) if rest.starts_with('.') => &rest[1..],
            _ => continue,
        };
        if let Some(source) = header.text(key).map_err(|reason| file.wrong(reason))? {
            templates.insert(name.to_string(), (file.path().to_path_buf(), source.to_string()));
        }
    }
    Ok(templates)
}

/// Special tokens by the names that templates have for them.
fn named_tokens_of_gguf(file: &Gguf) -> Result<BTreeMap<&'static str, String>> {
    let Some(vocabulary) = file.vocabulary()? else { return Ok(BTreeMap::new()) };
    let names = [
        ("bos_token", "bos"),
        ("eos_token", "eos"),
        ("unk_token", "unknown"),
        ("sep_token", "seperator"),
        ("pad_token", "padding"),
    ];
    let mut tokens = BTreeMap::new();
    for (name, key) in names {
        if let Some(id) = vocabulary.id(file.header(), key).map_err(|reason| file.wrong(reason))? {
            tokens.insert(name, vocabulary.tokens[id].to_string());
        }
    }
    Ok(tokens)
}

/// A special token's text, given as a string or as `{"content": …}`.
fn token_text(config: &Json, name: &str) -> Option<String> {
    let token = config.get(name)?;
    token.as_str().or_else(|| token.get("content")?.as_str()).map(str::to_string)
}

/// The JSON of a file, null when there is no such file.
fn read_json(files: &Files, path: &Path) -> Result<Json> {
    let Some(text) = read_text(files, path, limits::TOKENIZER_CONFIG_FILE_BYTES)? else { return Ok(Json::Null) };
    if json_values(&text) > limits::JSON_VALUES {
        let reason = format!("more than {} values", limits::JSON_VALUES);
        return Err(Error::ModelFile { path: path.to_path_buf(), reason });
    }
    serde_json::from_str(&text)
        .map_err(|error| Error::ModelFile { path: path.to_path_buf(), reason: format!("not JSON: {error}") })
}

/// The text of a file of at most `most` bytes, `None` when there is no such file.
fn read_text(files: &Files, path: &Path, most: u64) -> Result<Option<String>> {
    let Some(bytes) = files.read(path, most)? else { return Ok(None) };
    let refused = |error: FromUtf8Error| Error::ModelFile { path: path.to_path_buf(), reason: error.to_string() };
    String::from_utf8(bytes).map(Some).map_err(refused)
}
