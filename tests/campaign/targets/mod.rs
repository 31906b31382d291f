//! The targets: each knows its corpus, how inputs are made, and which calls take them.

mod api;
mod batches;
mod folders;
mod gguf;
mod gguf_tokenizers;
mod json;
mod lark;
mod messages;
mod new_folders;
mod passes;
mod patterns;
mod prefixes;
mod quantized;
mod regexes;
mod schemas;
mod structures;
mod templates;
mod tokenizers;

use crate::case::Target;

/// All of them.
pub fn all() -> Vec<Box<dyn Target>> {
    let mut all: Vec<Box<dyn Target>> = vec![Box::new(api::Api)];
    all.extend(folders::targets());
    all.push(Box::new(new_folders::NewFolders));
    all.push(Box::new(gguf::GgufFiles));
    all.push(Box::new(gguf_tokenizers::GgufTokenizers));
    all.push(Box::new(templates::Templates));
    all.push(Box::new(messages::Messages));
    all.extend(structures::targets());
    all.push(Box::new(prefixes::Prefixes));
    all.push(Box::new(batches::Batches));
    all.push(Box::new(passes::Passes));
    all
}
