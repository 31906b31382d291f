//! When is a text complete? A backslash at the end of a line continues it, and `"""` stands around several lines.

const QUOTES: &str = "\"\"\"";

/// What was typed so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// Another line is wanted.
    Incomplete,
    /// The text, without the marks of several lines.
    Complete(String),
}

/// Reads what was typed, with the line breaks between its lines.
pub fn read(typed: &str) -> Typed {
    let quoted = typed.trim_start();
    if let Some(inside) = quoted.strip_prefix(QUOTES) {
        let inside = inside.trim_end();
        return match inside.strip_suffix(QUOTES) {
            Some(text) => Typed::Complete(text.trim_matches(['\r', '\n']).to_owned()),
            None => Typed::Incomplete,
        };
    }
    if typed.ends_with('\\') {
        return Typed::Incomplete;
    }
    Typed::Complete(typed.replace("\\\n", "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_with_its_line_unless_a_mark_continues_it() {
        let complete = |text: &str| Typed::Complete(text.to_owned());
        assert_eq!(read("hello"), complete("hello"));
        assert_eq!(read("first \\"), Typed::Incomplete);
        assert_eq!(read("first \\\nsecond"), complete("first \nsecond"));
        assert_eq!(read("\"\"\"first"), Typed::Incomplete);
        assert_eq!(read("\"\"\"first\nsecond \\\n"), Typed::Incomplete);
        assert_eq!(read("\"\"\"\nfirst\nsecond\n\"\"\""), complete("first\nsecond"));
        assert_eq!(read("\"\"\"one line\"\"\""), complete("one line"));
        assert_eq!(read("\"\"\""), Typed::Incomplete);
        assert_eq!(read("a \"\"\" inside"), complete("a \"\"\" inside"));
        assert_eq!(read(""), complete(""));
    }
}
