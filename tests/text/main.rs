//! Tokenizers, chat templates and response templates against what transformers makes of the same files.

mod answer_golden;
mod chat_golden;
mod gguf_text;
mod text_golden;
#[path = "../tree/mod.rs"]
mod tree;
#[path = "../gguf_file/writer.rs"]
mod writer;
