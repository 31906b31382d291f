//! Finds a request's stop strings in its text as the text arrives, and holds back what may yet become one.
//!
//! The first stop string to be complete ends the text; of several that are complete with the same character, the longest.
//! That depends on the text alone and not on how tokens cut it, because the text is looked at byte by byte.
//!
//! Each string is an automaton in the manner of Knuth, Morris and Pratt: its state is how many of its first bytes the text
//! so far ends with. What stands before the greatest state of all can no longer belong to a stop string.

use crate::api::sampling_params::StopToken;
use std::sync::Arc;

/// The stop strings of one request, which its completions share.
#[derive(Debug)]
pub struct StopSet {
    strings: Vec<StopString>,
    /// Bytes of the longest.
    longest: usize,
}

/// The end of one completion's text.
#[derive(Debug)]
pub struct StopStrings {
    set: Arc<StopSet>,
    /// How many of each string's first bytes the text ends with; fewer than all. `[strings]`
    matched: Vec<usize>,
    /// Text that was not let out yet.
    held: String,
    /// Of its bytes, those that were searched.
    searched: usize,
    /// Whether the text has ended with a stop string; nothing follows that.
    found: bool,
}

/// What a stop string does when it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complete {
    /// It ends the text.
    Ends,
    /// It is text like any other, because `min_tokens` are not there.
    Passes,
}

/// Looks for strings in a text that comes in pieces, and says only that one of them is there.
#[derive(Debug)]
pub struct Search(Vec<StopString>);

#[derive(Debug)]
struct StopString {
    bytes: Vec<u8>,
    /// For the first `i + 1` bytes: how many of the first bytes they end with, themselves excepted. `[bytes]`
    fallback: Vec<u16>,
}

/// Bytes of text that one token is expected to bring at most; a longer one makes the memory grow once.
const TOKEN_BYTES: usize = 64;

impl StopSet {
    /// Prepares stop strings, none of which is empty. `None` without any.
    pub fn new(strings: &[String]) -> Option<StopSet> {
        let longest = strings.iter().map(String::len).max()?;
        Some(StopSet { strings: strings.iter().map(|string| StopString::new(string)).collect(), longest })
    }
}

impl Search {
    /// A search for strings, none of which is empty. `None` without any.
    pub fn new<S: AsRef<str>>(strings: &[S]) -> Option<Search> {
        let strings: Vec<_> = strings.iter().map(|string| StopString::new(string.as_ref())).collect();
        (!strings.is_empty()).then_some(Search(strings))
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes in a piece of a text that ends with so much of each string: whether the last byte of one of them is in the piece.
    pub fn advance(&self, matched: &mut [usize], piece: &[u8]) -> bool {
        let mut is_found = false;
        for (string, matched) in self.0.iter().zip(matched) {
            for &byte in piece {
                is_found |= string.advance(matched, byte).is_some();
            }
        }
        is_found
    }

    /// Whether a text has one of the strings.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.0.iter().any(|string| {
            let mut matched = 0;
            text.iter().any(|&byte| string.advance(&mut matched, byte).is_some())
        })
    }
}

impl StopStrings {
    /// A text that has not begun.
    pub fn new(set: Arc<StopSet>) -> StopStrings {
        StopStrings {
            matched: vec![0; set.strings.len()],
            held: String::with_capacity(set.longest + TOKEN_BYTES),
            searched: 0,
            found: false,
            set,
        }
    }

    /// Where new text is to be appended, whole characters only.
    pub fn text(&mut self) -> &mut String {
        &mut self.held
    }

    /// Searches the text that was appended, and moves to `out` what belongs to no stop string. Answers whether the text has
    /// ended; then the stop string is moved, too, where `stop` says that it is kept, and what follows it is dropped.
    pub fn search(&mut self, complete: Complete, stop: StopToken, out: &mut String) -> bool {
        while !self.found && self.searched < self.held.len() {
            let byte = self.held.as_bytes()[self.searched];
            self.searched += 1;
            let strings = self.set.strings.iter().zip(&mut self.matched);
            let longest = strings.filter_map(|(string, matched)| string.advance(matched, byte)).max();
            if let (Some(len), Complete::Ends) = (longest, complete) {
                let end = match stop {
                    StopToken::Kept => self.searched,
                    StopToken::Dropped => self.searched - len,
                };
                out.push_str(&self.held[..end]);
                self.found = true;
            }
        }
        if self.found {
            self.held.clear();
            self.searched = 0;
            return true;
        }
        let kept = self.matched.iter().copied().max().unwrap_or(0);
        out.extend(self.held.drain(..self.searched - kept));
        self.searched = kept;
        false
    }

    /// Moves to `out` what was held back, when no more text comes.
    pub fn flush(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.searched = 0;
    }
}

impl StopString {
    fn new(text: &str) -> StopString {
        let bytes = text.as_bytes().to_vec();
        assert!(!bytes.is_empty(), "an empty stop string was refused when the request was added");
        assert!(bytes.len() <= usize::from(u16::MAX), "a longer one was refused when the request was added");
        let mut fallback: Vec<u16> = vec![0; bytes.len()];
        let mut matched: usize = 0;
        for at in 1..bytes.len() {
            while matched > 0 && bytes[at] != bytes[matched] {
                matched = fallback[matched - 1].into();
            }
            matched += usize::from(bytes[at] == bytes[matched]);
            fallback[at] = matched as u16;
        }
        StopString { bytes, fallback }
    }

    /// Takes in the next byte of a text that ends with `matched` of the string's first bytes. Answers the string's length when
    /// that completes it.
    fn advance(&self, matched: &mut usize, byte: u8) -> Option<usize> {
        while *matched > 0 && byte != self.bytes[*matched] {
            *matched = self.fallback[*matched - 1].into();
        }
        *matched += usize::from(byte == self.bytes[*matched]);
        if *matched < self.bytes.len() {
            return None;
        }
        *matched = self.fallback[*matched - 1].into();
        Some(self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use formats::source::Source;
    use proptest::prelude::*;
    use std::path::Path;
    use std::sync::LazyLock;
    use text::tokenizer::{SpecialTokens, TextStream, Tokenizer};

    /// The text that is left of `text`, found by looking at it whole. The first `exempt` bytes end nothing.
    fn reference(text: &str, exempt: usize, strings: &[String], stop: StopToken) -> (String, bool) {
        for end in exempt + 1..=text.len() {
            let ending = strings.iter().filter(|string| text.as_bytes()[..end].ends_with(string.as_bytes()));
            if let Some(longest) = ending.map(String::len).max() {
                let cut = if stop == StopToken::Kept { end } else { end - longest };
                return (text[..cut].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    fn stops(strings: &[String]) -> StopStrings {
        StopStrings::new(Arc::new(StopSet::new(strings).expect("strings")))
    }

    /// What has been let out after each piece, and whether the text was ended.
    fn feed(pieces: &[&str], exempt: usize, strings: &[String], stop: StopToken) -> (Vec<String>, bool) {
        let mut stops = stops(strings);
        let mut out = String::new();
        let mut seen = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            stops.text().push_str(piece);
            let complete = if i < exempt { Complete::Passes } else { Complete::Ends };
            let ended = stops.search(complete, stop, &mut out);
            seen.push(out.clone());
            if ended {
                return (seen, true);
            }
        }
        stops.flush(&mut out);
        seen.push(out);
        (seen, false)
    }

    fn owned(strings: &[&str]) -> Vec<String> {
        strings.iter().map(|&string| string.to_owned()).collect()
    }

    #[test]
    fn text_is_held_back_only_while_it_may_become_a_stop_string() {
        struct Case {
            name: &'static str,
            stops: &'static [&'static str],
            pieces: &'static [&'static str],
            seen: &'static [&'static str],
        }
        const CASES: &[Case] = &[
            Case { name: "in one piece", stops: &["b"], pieces: &["abc"], seen: &["a"] },
            Case { name: "across pieces", stops: &["bcd"], pieces: &["ab", "c", "de"], seen: &["a", "a", "a"] },
            Case {
                name: "never complete",
                stops: &["bcd"],
                pieces: &["ab", "c", "e"],
                seen: &["a", "a", "abce", "abce"],
            },
            Case { name: "let out at the end", stops: &["bcd"], pieces: &["ab", "c"], seen: &["a", "a", "abc"] },
            Case {
                name: "begins inside itself",
                stops: &["aab"],
                pieces: &["a", "a", "a", "b"],
                seen: &["", "", "a", "a"],
            },
            Case { name: "the first to be complete", stops: &["abcd", "bc"], pieces: &["ab", "cd"], seen: &["", "a"] },
            Case { name: "the longest of two", stops: &["c", "abc"], pieces: &["xab", "c"], seen: &["x", "x"] },
            Case {
                name: "several bytes a character", stops: &["é€"], pieces: &["xé", "é€y"], seen: &["x", "xé"]
            },
            Case {
                name: "another of equal bytes",
                stops: &["\u{e9}"],
                pieces: &["\u{ea}"],
                seen: &["\u{ea}", "\u{ea}"],
            },
        ];
        for Case { name, stops, pieces, seen } in CASES {
            assert_eq!(feed(pieces, 0, &owned(stops), StopToken::Dropped).0, *seen, "{name}");
        }
    }

    #[test]
    fn a_stop_string_is_kept_on_request_and_what_follows_it_never() {
        let (seen, ended) = feed(&["ab", "cde"], 0, &owned(&["bc"]), StopToken::Kept);
        assert!(ended);
        assert_eq!(seen, ["a", "abc"]);
    }

    #[test]
    fn nothing_follows_a_stop_string() {
        let mut stops = stops(&owned(&["b"]));
        let mut out = String::new();
        stops.text().push_str("ab");
        assert!(stops.search(Complete::Ends, StopToken::Dropped, &mut out));
        stops.text().push('\u{FFFD}');
        assert!(stops.search(Complete::Ends, StopToken::Dropped, &mut out), "it stays ended");
        stops.flush(&mut out);
        assert_eq!(out, "a");
    }

    #[test]
    fn without_strings_there_is_nothing_to_search() {
        assert!(StopSet::new(&[]).is_none());
    }

    fn alphabet(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!['a', 'b', 'é', '😀']), len).prop_map(String::from_iter)
    }

    static BYTE_LEVEL: LazyLock<Tokenizer> = LazyLock::new(|| {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/text/byte_level"));
        Tokenizer::open(&Source::open(folder).unwrap()).expect("a good file").expect("a file")
    });

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn however_a_text_is_cut_it_ends_where_a_search_of_the_whole_text_says(
            pieces in prop::collection::vec(alphabet(0..4), 0..16),
            strings in prop::collection::vec(alphabet(1..5), 1..4),
            exempt in 0..4usize,
            stop in prop::sample::select(vec![StopToken::Dropped, StopToken::Kept]),
        ) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let exempt_bytes = pieces.iter().take(exempt).map(|piece| piece.len()).sum();
            let (wanted, ends) = reference(&pieces.concat(), exempt_bytes, &strings, stop);
            let (seen, ended) = feed(&pieces, exempt, &strings, stop);
            prop_assert_eq!(ended, ends);
            prop_assert_eq!(seen.last(), Some(&wanted));
            for (i, seen) in seen.iter().enumerate() {
                prop_assert!(wanted.starts_with(seen), "{seen:?} was let out too early");
                // Nothing is held back for longer than needed: what is missing begins a stop string.
                let text = pieces[..pieces.len().min(i + 1)].concat();
                let missing = text.strip_prefix(seen.as_str()).unwrap_or("");
                prop_assert!(ended || strings.iter().any(|string| string.starts_with(missing)), "{missing:?} is held back");
            }
        }

        #[test]
        fn tokens_that_cut_characters_make_no_difference(
            tokens in prop::collection::vec(0..300u32, 0..40),
            at in 0..1000usize,
            len in 1..4usize,
        ) {
            let tokenizer = &*BYTE_LEVEL;
            let whole = tokenizer.decode(&tokens, SpecialTokens::Skip).expect("text");
            let chars: Vec<char> = whole.chars().collect();
            let at = at % chars.len().max(1);
            let string: String = chars.iter().skip(at).take(len).collect();
            let strings = if string.is_empty() { owned(&["nothing"]) } else { vec![string] };

            let mut stops = stops(&strings);
            let (mut stream, mut out) = (TextStream::default(), String::new());
            let mut ended = false;
            for &token in &tokens {
                stream.push(tokenizer, token, stops.text());
                ended = stops.search(Complete::Ends, StopToken::Dropped, &mut out);
                if ended {
                    break;
                }
            }
            stream.finish(tokenizer, stops.text());
            ended |= stops.search(Complete::Ends, StopToken::Dropped, &mut out);
            stops.flush(&mut out);
            prop_assert_eq!((out, ended), reference(&whole, 0, &strings, StopToken::Dropped));
        }
    }
}
