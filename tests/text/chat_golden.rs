//! Chat templates against what transformers renders from the same messages.
//!
//! The expected texts lie in tests/golden/text/chat with the templates; tests/golden/text/make_chat.py made them.

use base::error::Error;
use formats::source::Source;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use text::chat_template::ChatTemplate;

fn chat_folder() -> PathBuf {
    crate::tree::root().join("tests/golden/text/chat")
}

/// A model folder of this name with the committed tokenizer_config.json and one of the templates.
fn model_folder(template: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chat").join(template);
    std::fs::create_dir_all(&folder).expect("a folder");
    let copy = |from: &Path, to: &str| std::fs::copy(from, folder.join(to)).expect("a copy");
    copy(&chat_folder().join("tokenizer_config.json"), "tokenizer_config.json");
    copy(&chat_folder().join("templates").join(template).with_extension("jinja"), "chat_template.jinja");
    folder
}

#[test]
fn every_template_renders_every_conversation_as_transformers_does() {
    let golden = std::fs::read_to_string(chat_folder().join("cases.json")).expect("a committed file");
    let golden: Json = serde_json::from_str(&golden).expect("JSON");
    let mut opened: Option<(String, ChatTemplate)> = None;
    let mut wrong = Vec::new();
    for case in golden["cases"].as_array().expect("cases") {
        let name = |key: &str| case[key].as_str().expect("a name");
        if opened.as_ref().is_none_or(|(template, _)| template != name("template")) {
            let template = ChatTemplate::open(&Source::open(&model_folder(name("template"))).expect("a folder"))
                .expect("a good template");
            opened = template.map(|template| (name("template").to_string(), template));
        }
        let (_, template) = opened.as_ref().expect("a template");
        let messages = golden["conversations"][name("conversation")].to_string();
        let options = match golden["options"][name("options")].to_string().as_str() {
            "{}" => String::new(),
            options => options.to_string(),
        };
        let found = template.render(&messages, &options);
        let agrees = match (&found, case["text"].as_str(), case["raised"].as_str()) {
            (Ok(found), Some(text), _) => found == text,
            (Err(Error::ChatTemplate { reason }), None, Some(raised)) => reason == raised,
            (Err(Error::ChatTemplate { .. } | Error::Json { .. }), None, None) => true,
            _ => false,
        };
        if !agrees {
            wrong.push(format!("{case:#}\nbut here {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ, such as\n{}", wrong.len(), wrong[0]);
}
