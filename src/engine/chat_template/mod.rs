//! A conversation to a prompt, by the model folder's chat template.
//!
//! A chat template is a Jinja program written for Python's jinja2 as transformers sets it up. [`environment`] makes
//! minijinja behave so; this file finds the templates of a folder and prepares what they see.

mod continuation;
mod environment;
mod json_dumps;
mod local_time;
mod methods;
mod python_text;

use crate::error::{Error, Result};
use minijinja::{Environment, Value};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The template that is used unless there is a better one.
const DEFAULT: &str = "default";
/// The template that is used when a request brings tools.
const TOOL_USE: &str = "tool_use";

/// Entries of tokenizer_config.json that a template sees as variables.
const NAMED_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Names under which the reasoning of a message may be passed, the first being the one that templates read.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The chat template of a model folder. May be used from any thread.
pub struct ChatTemplate {
    /// Holds the templates by name, compiled.
    environment: Environment<'static>,
    /// Special tokens as the template knows them, such as `eos_token`.
    named_tokens: Vec<(&'static str, String)>,
}

/// What a call of [`ChatTemplate::render`] asks for besides the messages.
struct Request {
    /// Variables of the template.
    variables: Map<String, Json>,
    /// The field of the last message that the model goes on with, in place of an answer of its own.
    continued_field: Option<String>,
}

impl ChatTemplate {
    /// Reads the templates of a folder, or says `None` when it has none.
    ///
    /// As in transformers, chat_template.jinja and the files of additional_chat_templates win over `chat_template` in
    /// tokenizer_config.json, which is one template or a list of named ones.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when a file cannot be read, [`Error::ModelFile`] when it is not what it should be, such as a
    /// template with a syntax error.
    pub fn open(folder: &Path) -> Result<Option<ChatTemplate>> {
        let config_path = folder.join("tokenizer_config.json");
        let config = read_json(&config_path)?;
        let mut sources = template_files(folder)?;
        if sources.is_empty() {
            sources = templates_of_config(&config_path, &config)?;
        }
        if sources.is_empty() {
            return Ok(None);
        }
        let mut environment = environment::like_transformers();
        for (name, (path, source)) in sources {
            environment
                .add_template_owned(name, environment::portable_source(&source))
                .map_err(|error| Error::ModelFile { path, reason: format!("chat template: {error}") })?;
        }
        let older_map = read_json(&folder.join("special_tokens_map.json"))?;
        let named_tokens = NAMED_TOKENS
            .into_iter()
            .filter_map(|name| Some((name, token_text(&config, name).or_else(|| token_text(&older_map, name))?)))
            .collect();
        Ok(Some(ChatTemplate { environment, named_tokens }))
    }

    /// Renders `messages`, a JSON array of objects with `role`, byte for byte as transformers does.
    ///
    /// `options` is a JSON object or empty. `add_generation_prompt` is true unless it says otherwise (in transformers it is
    /// false). `tools` and `documents` are lists of objects. `continue_final_message` leaves the last message open for
    /// the model to go on with. Any further entry is a variable of the template, such as `enable_thinking`.
    ///
    /// # Errors
    ///
    /// [`Error::Json`] when an argument is not JSON of this form, [`Error::NoChatTemplate`] when the folder has named
    /// templates only and none of them is the default, [`Error::ChatTemplate`] when the template refuses.
    pub fn render(&self, messages: &str, options: &str) -> Result<String> {
        let mut messages = parse_messages(messages)?;
        let request = parse_options(options)?;
        let marked = match &request.continued_field {
            Some(field) => Some(continuation::mark(&mut messages, field)?),
            None => None,
        };

        let with_tools = request.variables.get("tools").is_some_and(|tools| !tools.is_null());
        let template = with_tools
            .then(|| self.environment.get_template(TOOL_USE).ok())
            .flatten()
            .or_else(|| self.environment.get_template(DEFAULT).ok())
            .ok_or(Error::NoChatTemplate)?;
        let named_tokens =
            self.named_tokens.iter().map(|(name, text)| (Value::from(*name), Value::from(text.as_str())));
        let others =
            request.variables.iter().map(|(name, value)| (Value::from(name.as_str()), environment::value(value)));
        let messages = messages.into_iter().map(|message| environment::value(&Json::Object(message)));
        let messages = (Value::from("messages"), messages.collect());
        let variables = Value::from_pairs(named_tokens.chain(others).chain([messages]));

        // minijinja panics on a few programs, such as `''[::-1]`. Rendering changes nothing outside of it, so such a panic
        // is a failure of this call and of nothing else.
        let rendered = catch_unwind(AssertUnwindSafe(|| template.render(variables)));
        let refused = |reason: String| Error::ChatTemplate { reason };
        let text = rendered
            .map_err(|_| refused("the template does what the template engine cannot".to_string()))?
            .map_err(|error| refused(environment::reason(&error)))?;
        match marked {
            Some(marked) => marked.cut(text),
            None => Ok(text),
        }
    }
}

/// The messages, without entries that are null: to a template they are the same as missing ones.
fn parse_messages(messages: &str) -> Result<Vec<Map<String, Json>>> {
    let wrong = |reason: String| Error::Json { what: "messages", reason };
    let parsed = serde_json::from_str::<Json>(messages).map_err(|error| wrong(error.to_string()))?;
    let Json::Array(parsed) = parsed else {
        return Err(wrong("an array of messages is wanted".to_string()));
    };
    if parsed.is_empty() {
        return Err(wrong("at least one message is wanted".to_string()));
    }
    let mut checked = Vec::with_capacity(parsed.len());
    for (index, message) in parsed.into_iter().enumerate() {
        let Json::Object(mut message) = message else {
            return Err(wrong(format!("message {index} is not an object")));
        };
        message.retain(|_, value| !value.is_null());
        if !message.get("role").is_some_and(Json::is_string) {
            return Err(wrong(format!("message {index} has no \"role\" that is a string")));
        }
        checked.push(with_reasoning_names(message));
    }
    Ok(checked)
}

/// Passes reasoning under the names that templates read, whatever name it came under.
fn with_reasoning_names(message: Map<String, Json>) -> Map<String, Json> {
    let Some(reasoning) = REASONING_FIELDS.into_iter().find_map(|name| message.get(name)).cloned() else {
        return message;
    };
    let mut named = Map::new();
    named.insert("thinking".to_string(), reasoning.clone());
    named.extend(message);
    named.insert("reasoning_content".to_string(), reasoning);
    named
}

fn parse_options(options: &str) -> Result<Request> {
    let wrong = |reason: String| Error::Json { what: "options", reason };
    let mut variables = if options.trim().is_empty() {
        Map::new()
    } else {
        match serde_json::from_str(options).map_err(|error| wrong(error.to_string()))? {
            Json::Object(variables) => variables,
            _ => return Err(wrong("an object is wanted".to_string())),
        }
    };
    if variables.contains_key("messages") {
        return Err(wrong("\"messages\" is an argument of its own".to_string()));
    }
    for name in ["tools", "documents"] {
        // A template may ask `tools is not none`, so a list that was not given is none rather than undefined.
        let list = variables.entry(name).or_insert(Json::Null);
        let objects = list.as_array().is_some_and(|items| items.iter().all(Json::is_object));
        if !objects && !list.is_null() {
            return Err(wrong(format!("\"{name}\" must be an array of objects")));
        }
    }
    let continued_field = match variables.shift_remove("continue_final_message") {
        None | Some(Json::Null | Json::Bool(false)) => None,
        Some(Json::Bool(true)) => Some("content".to_string()),
        Some(Json::String(field)) => Some(field),
        Some(_) => {
            return Err(wrong("\"continue_final_message\" must be true, false or the name of a field".to_string()));
        }
    };
    let add_generation_prompt =
        variables.entry("add_generation_prompt").or_insert(Json::Bool(continued_field.is_none()));
    match add_generation_prompt {
        Json::Bool(true) if continued_field.is_some() => Err(wrong(
            "\"continue_final_message\" goes on with the last message, \"add_generation_prompt\" begins a new one: \
             only one of them may be true"
                .to_string(),
        )),
        Json::Bool(_) => Ok(Request { variables, continued_field }),
        _ => Err(wrong("\"add_generation_prompt\" must be true or false".to_string())),
    }
}

/// A template's name, and where it stood with its text.
type Sources = BTreeMap<String, (PathBuf, String)>;

/// chat_template.jinja and additional_chat_templates/NAME.jinja.
fn template_files(folder: &Path) -> Result<Sources> {
    let mut sources = Sources::new();
    let path = folder.join("chat_template.jinja");
    if let Some(source) = read_text(&path)? {
        sources.insert(DEFAULT.to_string(), (path, source));
    }
    let Ok(entries) = std::fs::read_dir(folder.join("additional_chat_templates")) else {
        return Ok(sources);
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "jinja")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            && let Some(source) = read_text(&path)?
        {
            sources.insert(name.to_string(), (path, source));
        }
    }
    Ok(sources)
}

/// `chat_template` of tokenizer_config.json: a template, or a list of `{"name": …, "template": …}`.
fn templates_of_config(path: &Path, config: &Json) -> Result<Sources> {
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
fn token_text(config: &Json, name: &str) -> Option<String> {
    let token = config.get(name)?;
    token.as_str().or_else(|| token.get("content")?.as_str()).map(str::to_string)
}

/// The JSON of a file, null when there is no such file.
fn read_json(path: &Path) -> Result<Json> {
    match read_text(path)? {
        None => Ok(Json::Null),
        Some(text) => serde_json::from_str(&text)
            .map_err(|error| Error::ModelFile { path: path.to_path_buf(), reason: format!("not JSON: {error}") }),
    }
}

/// The text of a file, `None` when there is no such file.
fn read_text(path: &Path) -> Result<Option<String>> {
    match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|error| Error::ModelFile { path: path.to_path_buf(), reason: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { path: path.to_path_buf(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes with its test.
    struct Folder(PathBuf);

    impl std::ops::Deref for Folder {
        type Target = Path;
        fn deref(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn folder(test: &str, files: &[(&str, &str)]) -> Folder {
        let folder = std::env::temp_dir().join(format!("nanovllm-chat-{}-{test}", std::process::id()));
        std::fs::create_dir_all(folder.join("additional_chat_templates")).expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("a file");
        }
        Folder(folder)
    }

    fn template(test: &str, source: &str) -> ChatTemplate {
        let folder = folder(test, &[("chat_template.jinja", source)]);
        ChatTemplate::open(&folder).expect("a good template").expect("a template")
    }

    const QUESTION: &str = r#"[{"role": "user", "content": "q"}]"#;

    #[test]
    fn a_folder_without_a_template_has_none() {
        for (name, config) in [("empty", "{}"), ("null", r#"{"chat_template": null}"#)] {
            let folder = folder(&format!("none-{name}"), &[("tokenizer_config.json", config)]);
            assert!(ChatTemplate::open(&folder).expect("no error").is_none(), "{name}");
        }
        assert!(ChatTemplate::open(Path::new("/nowhere")).expect("no error").is_none());
    }

    #[test]
    fn a_broken_file_is_an_error_that_names_it() {
        let cases = [
            ("config is no JSON", "tokenizer_config.json", "{", "not JSON"),
            ("template is a number", "tokenizer_config.json", r#"{"chat_template": 3}"#, "neither a string"),
            ("entry without name", "tokenizer_config.json", r#"{"chat_template": [{"template": "x"}]}"#, "no name"),
            ("syntax", "tokenizer_config.json", r#"{"chat_template": "{% if %}"}"#, "syntax error"),
            ("syntax in a file", "chat_template.jinja", "{% endfor %}", "syntax error"),
            ("syntax in a further file", "additional_chat_templates/x.jinja", "{{ 1 +", "syntax error"),
        ];
        for (name, file, text, wanted) in cases {
            let folder = folder("broken", &[(file, text)]);
            match ChatTemplate::open(&folder) {
                Err(Error::ModelFile { path, reason }) => {
                    assert_eq!(path, folder.join(file), "{name}");
                    assert!(reason.contains(wanted), "{name}: {reason}");
                }
                other => panic!("{name}: {:?}", other.map(|_| "opened")),
            }
        }
    }

    #[test]
    fn templates_are_found_in_the_order_of_transformers() {
        const LIST: &str = r#"{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]}"#;
        let tools = r#"{"tools": []}"#;
        type Files = &'static [(&'static str, &'static str)];
        let cases: [(&str, Files, &str, &str); 6] = [
            ("a string", &[("tokenizer_config.json", r#"{"chat_template": "config"}"#)], "", "config"),
            ("a list", &[("tokenizer_config.json", LIST)], "", "plain"),
            ("a list, with tools", &[("tokenizer_config.json", LIST)], tools, "tools"),
            ("a list, with null tools", &[("tokenizer_config.json", LIST)], r#"{"tools": null}"#, "plain"),
            ("a file", &[("tokenizer_config.json", LIST), ("chat_template.jinja", "file")], tools, "file"),
            (
                "further files",
                &[("chat_template.jinja", "file"), ("additional_chat_templates/tool_use.jinja", "tool file")],
                tools,
                "tool file",
            ),
        ];
        for (name, files, options, wanted) in cases {
            let opened = ChatTemplate::open(&folder("order", files)).expect("good files").expect("a template");
            assert_eq!(opened.render(QUESTION, options).expect("text"), wanted, "{name}");
        }
        let config = r#"{"chat_template": [{"name": "rag", "template": "x"}]}"#;
        let opened = ChatTemplate::open(&folder("order", &[("tokenizer_config.json", config)])).expect("a good file");
        assert!(matches!(opened.expect("a template").render(QUESTION, ""), Err(Error::NoChatTemplate)));
    }

    #[test]
    fn special_tokens_are_variables_unless_the_options_say_otherwise() {
        let config = r#"{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": null,
            "chat_template": "{{ bos_token }} {{ eos_token }} {{ unk_token is defined }} {{ pad_token }}"}"#;
        let older = r#"{"bos_token": "older", "pad_token": {"content": "<pad>"}}"#;
        let files = [("tokenizer_config.json", config), ("special_tokens_map.json", older)];
        let opened = ChatTemplate::open(&folder("tokens", &files)).expect("good files").expect("a template");
        assert_eq!(opened.render(QUESTION, "").expect("text"), "<s> </s> False <pad>");
        assert_eq!(opened.render(QUESTION, r#"{"bos_token": "!"}"#).expect("text"), "! </s> False <pad>");
    }

    #[test]
    fn what_is_not_a_conversation_is_refused_with_the_reason() {
        let template = template("refused", "{{ messages }}");
        let cases = [
            ("no JSON", "[", "", "EOF"),
            ("an object", r#"{"role": "user"}"#, "", "an array"),
            ("no messages", "[]", "", "at least one"),
            ("a string", r#"["hello"]"#, "", "message 0 is not an object"),
            ("no role", r#"[{"role": "user"}, {"content": "x"}]"#, "", "message 1 has no \"role\""),
            ("a role that is null", r#"[{"role": null}]"#, "", "message 0 has no \"role\""),
            ("options are no JSON", QUESTION, "{", "EOF"),
            ("options are a list", QUESTION, "[]", "an object"),
            ("messages twice", QUESTION, r#"{"messages": []}"#, "argument of its own"),
            ("tools are an object", QUESTION, r#"{"tools": {}}"#, "\"tools\" must be an array"),
            ("tools are names", QUESTION, r#"{"tools": ["f"]}"#, "\"tools\" must be an array"),
            ("documents are a string", QUESTION, r#"{"documents": "d"}"#, "\"documents\" must be"),
            ("prompt is a number", QUESTION, r#"{"add_generation_prompt": 1}"#, "must be true or false"),
            ("continued is a number", QUESTION, r#"{"continue_final_message": 1}"#, "must be true, false"),
            (
                "continued and begun",
                QUESTION,
                r#"{"continue_final_message": true, "add_generation_prompt": true}"#,
                "only one of them",
            ),
            ("continued field is missing", QUESTION, r#"{"continue_final_message": "thinking"}"#, "no text in"),
        ];
        for (name, messages, options, wanted) in cases {
            match template.render(messages, options) {
                Err(Error::Json { reason, .. }) => assert!(reason.contains(wanted), "{name}: {reason}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_generation_prompt_is_added_unless_told_otherwise() {
        let template = template("prompt", "{{ add_generation_prompt }} {{ tools }} {{ documents }}");
        assert_eq!(template.render(QUESTION, " ").expect("text"), "True None None");
        assert_eq!(template.render(QUESTION, r#"{"add_generation_prompt": false}"#).expect("text"), "False None None");
        let continued = "{{ add_generation_prompt }} {{ messages[-1].content }}!";
        let template = self::template("prompt-continued", continued);
        assert_eq!(template.render(QUESTION, r#"{"continue_final_message": true}"#).expect("text"), "False q");
    }

    #[test]
    fn a_template_that_fails_says_why() {
        let cases = [
            ("raised", "{{ raise_exception('no ' ~ 'way') }}", "no way"),
            (
                "raised in a macro",
                "{% macro f() %}{{ raise_exception('deep') }}{% endmacro %}{{ f() | upper }}",
                "deep",
            ),
            ("undefined", "{{ nothing.at_all }}", "undefined"),
            ("unknown filter", "{{ 'x' | nonesuch }}", "nonesuch"),
            ("not for JSON", "{{ nothing | tojson }}", "JSON"),
            ("a panic of the engine", "{{ ''[::-1] }}", "cannot"),
            (
                "never ends",
                "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                "ever end",
            ),
            ("calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ];
        for (name, source, wanted) in cases {
            match template("fails", source).render(QUESTION, "") {
                Err(Error::ChatTemplate { reason }) => assert!(reason.contains(wanted), "{name}: {reason}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_long_conversation_is_far_from_the_bound_on_instructions() {
        let source = include_str!("../../../tests/golden/text/chat/templates/reasoning_tools.jinja");
        let turn = r#"{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},"#;
        let messages = format!("[{}{}]", turn.repeat(4_999), turn.trim_end_matches(','));
        let text = template("long", source).render(&messages, "").expect("10,000 messages");
        assert_eq!(text.matches("<|im_start|>").count(), 10_001);
    }
}
