//! What is a conversation? Messages, the prompt that they make, and the file that brings them back with their keys and values.
//!
//! The file is one line of JSON, with the messages, and after it the bytes of nvllm_save_prefix, as many as the line says: `head -n 1 FILE`
//! shows the conversation. Another model reads the messages, and computes their keys and values again.

use crate::engine::{Engine, Error};
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Message {
    pub role: Role,
    pub content: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    pub messages: Vec<Message>,
}

/// The first line of a file.
#[derive(Deserialize, Serialize)]
struct Header {
    format: String,
    messages: Vec<Message>,
    /// Bytes after this line.
    prefix_bytes: usize,
}

const FORMAT: &str = "nanovllm conversation 1";

impl Conversation {
    pub fn new(system: Option<&str>) -> Conversation {
        let mut conversation = Conversation::default();
        conversation.set_system(system);
        conversation
    }

    pub fn say(&mut self, role: Role, content: &str) {
        self.messages.push(Message { role, content: content.to_owned() });
    }

    pub fn system(&self) -> Option<&str> {
        self.messages.first().filter(|first| first.role == Role::System).map(|first| first.content.as_str())
    }

    /// Replaces the system message; None removes it.
    pub fn set_system(&mut self, text: Option<&str>) {
        if self.system().is_some() {
            self.messages.remove(0);
        }
        if let Some(text) = text {
            self.messages.insert(0, Message { role: Role::System, content: text.to_owned() });
        }
    }

    /// Forgets everything but the system message.
    pub fn reset(&mut self) {
        self.messages.retain(|message| message.role == Role::System);
        self.messages.truncate(1);
    }

    /// Messages of the user.
    pub fn turns(&self) -> usize {
        self.messages.iter().filter(|message| message.role == Role::User).count()
    }

    fn json(&self) -> String {
        serde_json::to_string(&self.messages).expect("messages are JSON")
    }

    /// The prompt for the next answer.
    pub fn prompt(&self, engine: &Engine) -> Result<String, Error> {
        engine.chat_prompt(&self.json(), true)
    }

    /// Writes the conversation, beside FILE and then in its place, so that a failure leaves the earlier file.
    pub fn save(&self, engine: &mut Engine, file: &Path) -> Result<(), Failure> {
        let prefix = self.prefix(engine)?;
        let mut unfinished = file.as_os_str().to_owned();
        unfinished.push(".new");
        let written = fs::write(&unfinished, self.bytes(prefix)).and_then(|()| fs::rename(&unfinished, file));
        written.map_err(|error| {
            let _ = fs::remove_file(&unfinished);
            Failure::Other(format!("{}: {error}", file.display()))
        })
    }

    /// The keys and values as far as they are cached; empty if they are not.
    fn prefix(&self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        if self.turns() == 0 {
            return Ok(Vec::new());
        }
        let text = engine.chat_prompt(&self.json(), false)?;
        let tokens = engine.tokens(&text)?;
        match engine.save_prefix(&tokens) {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            saved => saved,
        }
    }

    fn bytes(&self, prefix: Vec<u8>) -> Vec<u8> {
        let header = Header { format: FORMAT.into(), messages: self.messages.clone(), prefix_bytes: prefix.len() };
        let mut bytes = serde_json::to_vec(&header).expect("a header is JSON");
        bytes.push(b'\n');
        bytes.extend(prefix);
        bytes
    }

    /// Reads a file of [`Conversation::save`]. Keys and values that this engine cannot use are computed again; the text says so.
    pub fn load(engine: &mut Engine, file: &Path) -> Result<(Conversation, String), Failure> {
        let wrong = |what: String| Failure::Other(format!("{}: {what}", file.display()));
        let bytes = fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let (conversation, prefix) = Conversation::parse(&bytes).map_err(wrong)?;
        let remark = match engine.restore_prefix(prefix) {
            _ if prefix.is_empty() => "nothing of it was cached".to_owned(),
            Ok(tokens) => format!("{tokens} tokens need not be computed again"),
            Err(error) => format!("its tokens are computed again: {}", error.message),
        };
        Ok((conversation, remark))
    }

    fn parse(bytes: &[u8]) -> Result<(Conversation, &[u8]), String> {
        let none =
            || format!("is no conversation that /save wrote: its first line is not {{\"format\":\"{FORMAT}\",...}}");
        let end = bytes.iter().position(|&byte| byte == b'\n').ok_or_else(none)?;
        let header: Header = serde_json::from_slice(&bytes[..end]).map_err(|_| none())?;
        if header.format != FORMAT {
            return Err(format!("has the format \"{}\", but \"{FORMAT}\" is wanted", header.format));
        }
        let prefix = &bytes[end + 1..];
        if prefix.len() != header.prefix_bytes {
            let (wanted, found) = (header.prefix_bytes, prefix.len());
            return Err(format!("is cut off: {wanted} bytes are wanted after its first line, but there are {found}"));
        }
        Ok((Conversation { messages: header.messages }, prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Conversation {
        let mut conversation = Conversation::new(Some("be brief"));
        conversation.say(Role::User, "two\nlines");
        conversation.say(Role::Assistant, "\"quoted\"");
        conversation
    }

    #[test]
    fn a_file_brings_back_messages_and_prefix() {
        let bytes = some().bytes(b"a\nprefix".to_vec());
        assert_eq!(Conversation::parse(&bytes), Ok((some(), b"a\nprefix".as_slice())));
    }

    #[test]
    fn a_file_of_another_kind_is_refused_with_a_reason() {
        let bytes = some().bytes(vec![7; 10]);
        assert!(Conversation::parse(&bytes[..bytes.len() - 1]).unwrap_err().contains("10 bytes are wanted"));
        assert!(Conversation::parse(b"{}\n").unwrap_err().contains("is no conversation"));
        assert!(Conversation::parse(b"").unwrap_err().contains("is no conversation"));
        let other = String::from_utf8_lossy(&bytes).replace("conversation 1", "conversation 2");
        assert!(Conversation::parse(other.as_bytes()).unwrap_err().contains("conversation 2"));
    }

    #[test]
    fn the_system_message_is_the_first_one_and_stays() {
        let mut conversation = some();
        conversation.reset();
        assert_eq!(conversation, Conversation::new(Some("be brief")));
        conversation.set_system(Some("be long"));
        assert_eq!(conversation.system(), Some("be long"));
        conversation.set_system(None);
        assert_eq!(conversation, Conversation::default());
        assert_eq!(some().turns(), 1);
    }
}
