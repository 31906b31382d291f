//! Where do the texts of a command come from? Arguments, files, and the standard input.

use crate::failure::Failure;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

/// The texts that a command line names, in this order: arguments, files, lines of files. None at all is the standard input, unless that is
/// a terminal.
pub fn collect(words: &[String], files: &[PathBuf], lines: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for word in words {
        texts.push(if word == "-" { one_text(Path::new("-"))? } else { word.clone() });
    }
    for file in files {
        texts.push(one_text(file)?);
    }
    for file in lines {
        texts.extend(read(file)?.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
    }
    if !texts.is_empty() {
        return Ok(texts);
    }
    if let Some(file) = lines.first() {
        return Err(Failure::Other(format!("{}: has no line with a text", file.display())));
    }
    if io::stdin().is_terminal() {
        let message = "no text is given: name one after MODEL, or a file by --file or --lines, or pipe one into the standard input";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(vec![one_text(Path::new("-"))?])
}

/// A whole file or the standard input as one text, without the line break at its end.
fn one_text(file: &Path) -> Result<String, Failure> {
    let mut text = read(file)?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() {
        let name = if file == Path::new("-") { "the standard input".into() } else { file.display().to_string() };
        return Err(Failure::Other(format!("{name} is empty, but a text is wanted")));
    }
    Ok(text)
}

/// The text of a file, or of the standard input for `-`.
pub fn read(file: &Path) -> Result<String, Failure> {
    let (name, bytes) = if file == Path::new("-") {
        let mut bytes = Vec::new();
        ("the standard input".to_owned(), io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes))
    } else {
        (file.display().to_string(), fs::read(file))
    };
    let bytes = bytes.map_err(|error| Failure::Other(format!("{name}: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Other(format!("{name}: text in UTF-8 is wanted, but byte {at} is something else"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_order_and_lose_one_line_break() {
        let folder = std::env::temp_dir().join(format!("nanovllm-prompts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (whole, lines, empty, latin) =
            (folder.join("whole"), folder.join("lines"), folder.join("empty"), folder.join("latin"));
        fs::write(&whole, "a\nb\r\n").unwrap();
        fs::write(&lines, "c\n\n  \r\nd\r\n").unwrap();
        fs::write(&empty, "\n").unwrap();
        fs::write(&latin, b"caf\xe9").unwrap();
        let files = std::slice::from_ref::<PathBuf>;
        let texts = collect(&["first".to_owned()], files(&whole), files(&lines)).unwrap();
        assert_eq!(texts, ["first", "a\nb", "c", "d"]);
        assert!(collect(&[], files(&empty), &[]).is_err());
        assert!(collect(&[], &[], files(&empty)).is_err());
        let Err(Failure::Other(message)) = collect(&[], files(&latin), &[]) else { panic!("it is not UTF-8") };
        assert!(message.contains("byte 3"), "{message}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
