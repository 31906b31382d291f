//! A conversation to a prompt, by the model folder's chat template.
//!
//! A chat template is a Jinja program written for Python's jinja2 as transformers sets it up. [`environment`] makes
//! minijinja behave so; this file finds the templates of a folder and prepares what they see.

mod continuation;
mod costs;
mod environment;
mod filters;
mod json_dumps;
mod local_time;
mod meter;
mod metering;
mod methods;
mod objects;
mod operators;
mod python_text;
mod request;
mod source;

use base::contain::contain;
use base::error::{Error, Result};
use environment::Failure;
use formats::source::{ChatTemplates, DEFAULT_TEMPLATE as DEFAULT, Source};
use minijinja::{Environment, Template, Value, machinery};
use os::thread;
use request::Request;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The template that is used when a request brings tools.
const TOOL_USE: &str = "tool_use";

/// Names under which the reasoning of a message may be passed, the first being the one that templates read.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The conversation that every template of a folder is tried with.
const TRIAL: &str = r#"[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "How are you?"}]"#;

/// The chat template of a model folder. May be used from any thread.
pub struct ChatTemplate {
    /// Holds the templates by name, compiled.
    environment: Environment<'static>,
    /// Special tokens as the template knows them, such as `eos_token`.
    named_tokens: Vec<(&'static str, String)>,
}

impl ChatTemplate {
    /// The templates of `source`, or `None` when it has none.
    ///
    /// # Errors
    ///
    /// Those of [`Source::chat_templates`], and [`Error::ModelFile`] for a template with a syntax error or one that goes beyond
    /// a limit with a short conversation.
    pub fn open(source: &Source) -> Result<Option<ChatTemplate>> {
        let Some(ChatTemplates { templates, named_tokens }) = source.chat_templates()? else { return Ok(None) };
        let template = ChatTemplate { environment: environment::like_transformers(), named_tokens };
        thread::on_deep_stack("template", move || template.with_templates(templates))?.map(Some)
    }

    /// Compiles the templates, and tries each once. To be called on a deep stack.
    fn with_templates(mut self, sources: BTreeMap<String, (PathBuf, String)>) -> Result<ChatTemplate> {
        let refused = |path: &Path, reason: String| {
            let reason = format!("chat template: {reason}");
            Error::ModelFile { path: path.to_path_buf(), reason }
        };
        let mut paths = BTreeMap::new();
        for (name, (path, source)) in sources {
            let source = environment::portable_source(&source);
            let compiled = contain(|| {
                source::check(&source)?;
                self.environment.add_template_owned(name.clone(), source).map_err(|error| error.to_string())
            });
            compiled.and_then(|compiled| compiled).map_err(|reason| refused(&path, reason))?;
            paths.insert(name, path);
        }
        // Those that a rendering may choose.
        for name in [DEFAULT, TOOL_USE] {
            let (Some(path), Ok(template)) = (paths.get(name), self.environment.get_template(name)) else { continue };
            let messages = request::parse_messages(TRIAL)?;
            let variables = self.variables(messages, request::parse_options("")?);
            // It may refuse these messages, but it has to be able to.
            if let Err(Failed::Beyond(reason)) = self.run(&template, TRIAL.len() as u64, variables) {
                return Err(refused(path, reason));
            }
        }
        Ok(self)
    }

    /// Renders `messages`, a JSON array of objects with `role`, byte for byte as transformers does.
    ///
    /// `options` is a JSON object or empty. `add_generation_prompt` is true unless it says otherwise (in transformers it is
    /// false). `tools` and `documents` are lists of objects. `continue_final_message` leaves the last message open for
    /// the model to continue. Any further entry is a variable of the template, such as `enable_thinking`.
    ///
    /// A template is data that a model folder brings along, not code to be trusted: it runs on a thread of the library with a
    /// stack of its own, and its work, the bytes of its values, its output and its time are bounded ([`limits`]).
    ///
    /// # Errors
    ///
    /// [`Error::Json`] when an argument is not JSON of this form, [`Error::NoChatTemplate`] when the folder has named
    /// templates only and none of them is the default, [`Error::ChatTemplate`] when the template refuses or goes beyond a
    /// limit, [`Error::NoThread`] when the system refuses a thread.
    pub fn render(&self, messages: &str, options: &str) -> Result<String> {
        thread::on_deep_stack("template", || self.render_here(messages, options))?
    }

    /// [`ChatTemplate::render`] on this thread, whose stack has to be deep.
    fn render_here(&self, messages: &str, options: &str) -> Result<String> {
        let input_bytes = (messages.len() + options.len()) as u64;
        let mut messages = request::parse_messages(messages)?;
        let request = request::parse_options(options)?;
        let marked = match &request.continued_field {
            Some(field) => Some(continuation::mark(&mut messages, field)?),
            None => None,
        };
        let with_tools = request.variables.get("tools").is_some_and(|tools| !tools.is_null());
        let template = with_tools
            .then(|| self.environment.get_template(TOOL_USE).ok())
            .flatten()
            .or_else(|| self.environment.get_template(DEFAULT).ok())
            .ok_or_else(|| self.no_default())?;
        let without_content = messages.iter().position(|message| !message.contains_key("content"));
        let variables = self.variables(messages, request);
        let text = self.run(&template, input_bytes, variables).map_err(|failed| match (failed, without_content) {
            // The engine says of that only that an operator does not take what is undefined.
            (Failed::Refused(reason), Some(index)) => {
                Error::ChatTemplate { reason: format!("message {index} has no \"content\": {reason}") }
            }
            (Failed::Raised(reason) | Failed::Refused(reason) | Failed::Beyond(reason), _) => {
                Error::ChatTemplate { reason }
            }
        })?;
        match marked {
            Some(marked) => marked.cut(text),
            None => Ok(text),
        }
    }

    /// None of the templates is the default.
    fn no_default(&self) -> Error {
        Error::NoChatTemplate { named: self.environment.templates().map(|(name, _)| name.to_owned()).collect() }
    }

    /// What a template sees.
    fn variables(&self, messages: Vec<Map<String, Json>>, request: Request) -> Value {
        let named_tokens =
            self.named_tokens.iter().map(|(name, text)| (Value::from(*name), Value::from(text.as_str())));
        let others =
            request.variables.iter().map(|(name, value)| (Value::from(name.as_str()), environment::value(value)));
        let messages = messages.into_iter().map(|message| environment::value(&Json::Object(message)));
        let messages = (Value::from("messages"), messages.collect());
        Value::from_pairs(named_tokens.chain(others).chain([messages]))
    }
}

/// Why there is no text.
enum Failed {
    /// The template does not take this conversation, and says why.
    Raised(String),
    /// The template cannot be run with this conversation.
    Refused(String),
    /// The template goes beyond a limit, or makes the template engine panic.
    Beyond(String),
}

impl ChatTemplate {
    /// Runs a template with these variables, metered. `input_bytes` is the number of bytes that they were made from.
    fn run(&self, template: &Template, input_bytes: u64, variables: Value) -> std::result::Result<String, Failed> {
        let compiled = machinery::get_compiled_template(template);
        let outcome = contain(|| {
            let instructions = metering::metered(&compiled.instructions, Some(input_bytes));
            let blocks = compiled.blocks.iter().map(|(name, block)| (*name, metering::metered(block, None))).collect();
            let mut text = String::new();
            let mut output = machinery::make_string_output(&mut text);
            let escape = compiled.initial_auto_escape.clone();
            machinery::eval(&self.environment, &instructions, variables, &blocks, &mut output, escape).map(|_| text)
        });
        match outcome {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(match environment::failure(&error) {
                Failure::Raised(reason) => Failed::Raised(reason),
                Failure::Reason(reason) => Failed::Refused(reason),
                Failure::Exceeded(reason) => Failed::Beyond(reason),
            }),
            Err(panic) => Err(Failed::Beyond(format!("the template engine failed on this template: {panic}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::limits;

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

    fn open(folder: &Path) -> Result<Option<ChatTemplate>> {
        ChatTemplate::open(&Source::open(folder)?)
    }

    fn template(test: &str, source: &str) -> ChatTemplate {
        let folder = folder(test, &[("chat_template.jinja", source)]);
        open(&folder).expect("a good template").expect("a template")
    }

    const QUESTION: &str = r#"[{"role": "user", "content": "q"}]"#;

    #[test]
    fn a_folder_without_a_template_has_none() {
        for (name, config) in [("empty", "{}"), ("null", r#"{"chat_template": null}"#)] {
            let folder = folder(&format!("none-{name}"), &[("tokenizer_config.json", config)]);
            assert!(open(&folder).expect("no error").is_none(), "{name}");
        }
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
            match open(&folder) {
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
            let opened = open(&folder("order", files)).expect("good files").expect("a template");
            assert_eq!(opened.render(QUESTION, options).expect("text"), wanted, "{name}");
        }
        let config = r#"{"chat_template": [{"name": "rag", "template": "x"}]}"#;
        let opened = open(&folder("order", &[("tokenizer_config.json", config)])).expect("a good file");
        assert!(
            matches!(opened.expect("a template").render(QUESTION, ""), Err(Error::NoChatTemplate { named }) if named == ["rag"])
        );
    }

    #[test]
    fn special_tokens_are_variables_unless_the_options_say_otherwise() {
        let config = r#"{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": null,
            "chat_template": "{{ bos_token }} {{ eos_token }} {{ unk_token is defined }} {{ pad_token }}"}"#;
        let older = r#"{"bos_token": "older", "pad_token": {"content": "<pad>"}}"#;
        let files = [("tokenizer_config.json", config), ("special_tokens_map.json", older)];
        let opened = open(&folder("tokens", &files)).expect("good files").expect("a template");
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
            ("includes itself", "{% include 'default' %}", "cannot load another one"),
            (
                "a panic of the engine",
                "{% if again %}{% for i in [1] %}{{ loop.cycle() }}{% endfor %}{% endif %}",
                "the template engine failed",
            ),
            (
                "never ends",
                "{% if again %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}",
                "loop without end",
            ),
            (
                "holds itself",
                "{% if again %}{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}{% endif %}",
                "cannot be put into",
            ),
            ("calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ];
        for (name, source, wanted) in cases {
            match template("fails", source).render(QUESTION, r#"{"again": true}"#) {
                Err(Error::ChatTemplate { reason }) => assert!(reason.contains(wanted), "{name}: {reason}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_template_that_goes_beyond_a_limit_with_a_short_conversation_is_no_template() {
        let cases = [
            (
                "never ends",
                "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                "loop without end",
            ),
            ("holds itself", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "cannot be put into"),
            ("panics", "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", "the template engine failed"),
            ("a wide field", "{{ '%1000000000d' | format(1) }}", "more work"),
            ("a long chain", &format!("{{{{ 1{} }}}}", "+1".repeat(5_000)), "longer than"),
            ("a large constant", "{{ 'a' * 100000000 }}", "constant"),
        ];
        for (name, source, wanted) in cases {
            let folder = folder("beyond", &[("chat_template.jinja", source)]);
            match open(&folder) {
                Err(Error::ModelFile { path, reason }) => {
                    assert_eq!(path, folder.join("chat_template.jinja"), "{name}");
                    assert!(reason.contains(wanted), "{name}: {reason}");
                }
                other => panic!("{name}: {:?}", other.map(|_| "opened")),
            }
        }
    }

    #[test]
    fn a_template_that_refuses_the_conversation_of_the_trial_is_a_template() {
        let strict = "{% if messages | length != 1 %}{{ raise_exception('one question') }}{% endif %}ok";
        assert_eq!(template("strict", strict).render(QUESTION, "").expect("text"), "ok");
    }

    #[test]
    fn what_is_no_file_of_text_is_refused() {
        let no_file = folder("no-file", &[]);
        std::fs::create_dir_all(no_file.join("chat_template.jinja")).expect("a folder");
        assert!(matches!(open(&no_file), Err(Error::Io { .. })));
        let large = folder("large", &[("chat_template.jinja", &"a".repeat(limits::TEMPLATE_BYTES + 1))]);
        assert!(matches!(open(&large), Err(Error::ModelFile { .. })));
    }

    #[test]
    fn messages_are_bounded_in_bytes_and_in_values() {
        let template = template("bounded", "{{ messages | length }}");
        let long = format!(r#"[{{"role": "user", "content": "{}"}}]"#, "a".repeat(limits::MESSAGES_BYTES));
        let many = format!("[{}0]", "0,".repeat(limits::JSON_VALUES));
        for (messages, options) in [(&long, ""), (&many, ""), (&QUESTION.to_owned(), long.as_str())] {
            assert!(matches!(template.render(messages, options), Err(Error::Json { .. })));
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
