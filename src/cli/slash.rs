//! What may a line of a conversation ask for, other than an answer? Commands that begin with a slash.

/// A command, with the rest of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Help,
    Reset,
    System(Option<&'a str>),
    Save(&'a str),
    Load(&'a str),
    Quit,
}

/// A name, what follows it, and what it does.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("/help", "", "lists these commands"),
    ("/reset", "", "begins a new conversation, with the same system message"),
    ("/system", "TEXT", "sets the system message from here on; without TEXT it shows it"),
    ("/save", "FILE", "writes the conversation, and its keys and values, to a file"),
    ("/load", "FILE", "continues a conversation that /save wrote"),
    ("/quit", "", "ends the program, as Ctrl-D does"),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|&(name, ..)| name)
}

pub fn help() -> String {
    let mut text = String::new();
    for (name, value, does) in COMMANDS {
        text += &format!("  {:<14} {does}\n", format!("{name} {value}"));
    }
    text + "  \\ at the end of a line continues it on the next one, and \"\"\" begins and ends a text of several lines;\n  \
            Alt-Enter begins a new line as well. // at the beginning sends a text that begins with a slash.\n  \
            Ctrl-C stops an answer, and ends the program at an empty prompt; arrow-up brings earlier lines back."
}

/// Whether a text is a command, as opposed to one that is sent.
pub fn is_command(text: &str) -> bool {
    text.starts_with('/') && !text.starts_with("//")
}

/// What is sent of a text that is no command.
pub fn unescaped(text: &str) -> &str {
    if text.starts_with("//") { &text[1..] } else { text }
}

/// Reads a command; what is wrong with it otherwise.
pub fn parse(text: &str) -> Result<Command<'_>, String> {
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let file = || if rest.is_empty() { Err(format!("{name} needs a file: {name} FILE")) } else { Ok(rest) };
    let command = match name {
        "/help" | "/?" => Command::Help,
        "/reset" => Command::Reset,
        "/system" => return Ok(Command::System(Some(rest).filter(|rest| !rest.is_empty()))),
        "/save" => return file().map(Command::Save),
        "/load" => return file().map(Command::Load),
        "/quit" | "/exit" | "/bye" => Command::Quit,
        _ => return Err(unknown(name)),
    };
    if rest.is_empty() { Ok(command) } else { Err(format!("{name} takes nothing, but is followed by \"{rest}\"")) }
}

fn unknown(name: &str) -> String {
    let near = names().map(|known| (strsim::jaro(known, name), known)).filter(|(likeness, _)| *likeness > 0.7);
    let nearest = near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| format!(" did you mean {known}?"));
    let nearest = nearest.unwrap_or_default();
    format!("{name} is no command;{nearest} /help lists them, and //... sends a text that begins with a slash")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_what_they_need() {
        let cases = [
            ("/help", Command::Help),
            ("/reset ", Command::Reset),
            ("/system be brief, please", Command::System(Some("be brief, please"))),
            ("/system", Command::System(None)),
            ("/system several\nlines", Command::System(Some("several\nlines"))),
            ("/save my file", Command::Save("my file")),
            ("/load x", Command::Load("x")),
            ("/exit", Command::Quit),
        ];
        for (text, wanted) in cases {
            assert!(is_command(text));
            assert_eq!(parse(text), Ok(wanted));
        }
        assert!(parse("/save").unwrap_err().contains("/save FILE"));
        assert!(parse("/reset now").unwrap_err().contains("\"now\""));
    }

    #[test]
    fn an_unknown_command_is_answered_with_the_nearest_one() {
        for (text, wanted) in [("/rest", "/reset?"), ("/hlep", "/help?"), ("/sav x", "/save?"), ("/systm", "/system?")]
        {
            assert!(parse(text).unwrap_err().contains(wanted), "{text}: {:?}", parse(text));
        }
        let far = parse("/usr/bin").unwrap_err();
        assert!(!far.contains("did you mean") && far.contains("/help"), "{far}");
    }

    #[test]
    fn two_slashes_send_one() {
        assert!(!is_command("//etc/passwd"));
        assert_eq!(unescaped("//etc/passwd"), "/etc/passwd");
        assert_eq!(unescaped("hello"), "hello");
    }

    #[test]
    fn help_names_every_command() {
        for name in names() {
            assert!(help().contains(name));
            assert!(!parse(name).is_err_and(|error| error.contains("is no command")), "{name}");
        }
    }
}
