//! Where does a marker begin and end, in text that is still being written?
//!
//! A marker is a regular expression; a literal is one without operators. [`Search`] runs its automaton byte by byte and keeps every
//! place at which a match may still begin, so that text before the first of them can be handed out. A decision depends on the
//! bytes alone, never on how they were cut into pieces.
//!
//! Expressions come from model folders. The automaton cannot back-track; its states are limited when it is compiled, and each
//! visit of a state is counted while it runs.

use base::limits;
use regex_automata::nfa::thompson::{Config, NFA, State, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::Hir;

/// Bytes of one automaton.
const AUTOMATON_BYTES: usize = 4 << 20;

/// Places of the groups of a match: a begin and an end for each name, counted from where the search began.
type Slots = [u32; PLACES];

/// Places of a match: two per group.
const PLACES: usize = 2 * limits::ANSWER_GROUPS;

/// A place that was not reached.
const NOWHERE: u32 = u32::MAX;

/// A compiled marker.
#[derive(Debug)]
pub(super) struct Pattern {
    automaton: NFA,
    /// Named groups: index in the automaton, and name. A group's place in [`Slots`] is its place here.
    groups: Vec<(usize, String)>,
    /// Bytes with which a match may begin.
    first: Box<[bool; 256]>,
    /// It begins with `^`: it is searched at the first byte of the answer only.
    only_at_start: bool,
    /// It can match no text at all.
    may_be_empty: bool,
    /// It has assertions, so that a state can be entered only once the next character is known.
    looks: bool,
}

/// The text on both sides of a place, as assertions see it.
#[derive(Clone, Copy)]
pub(super) struct Sides {
    /// The character before, `None` at the start.
    pub before: Option<char>,
    /// The character after, `None` at the end.
    pub after: Option<char>,
}

/// A byte of the answer.
#[derive(Clone, Copy)]
pub(super) struct Byte {
    pub at: usize,
    pub value: u8,
    /// The sides of the character that it belongs to: the one before, and itself.
    pub sides: Sides,
    pub begins_char: bool,
    pub ends_char: bool,
}

impl Byte {
    /// The bytes of `char`, which begins at `at`.
    pub(super) fn of_char(char: char, at: usize, before: Option<char>) -> impl Iterator<Item = Byte> {
        let mut encoded = [0; 4];
        let len = char.encode_utf8(&mut encoded).len();
        let sides = Sides { before, after: Some(char) };
        let byte = move |index: usize| Byte {
            at: at + index,
            value: encoded[index],
            sides,
            begins_char: index == 0,
            ends_char: index + 1 == len,
        };
        (0..len).map(byte)
    }
}

/// Visits of states that are left.
#[derive(Clone, Debug)]
pub(super) struct Fuel {
    left: u64,
    /// More was taken than there was. It stays so.
    is_out: bool,
}

impl Fuel {
    pub(super) fn new() -> Fuel {
        Fuel { left: limits::ANSWER_WORK, is_out: false }
    }

    /// What one more byte of the answer is worth.
    pub(super) fn add(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(limits::ANSWER_WORK_PER_BYTE.saturating_mul(bytes as u64));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_out
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn take(&mut self, visits: u64) {
        match self.left.checked_sub(visits) {
            Some(left) => self.left = left,
            None => (self.left, self.is_out) = (0, true),
        }
    }
}

impl Pattern {
    /// Compiles an expression of Python's syntax, in which `.` matches line ends too.
    pub(super) fn python(text: &str) -> Result<Pattern, String> {
        if text.len() > limits::ANSWER_PATTERN_BYTES {
            let (bytes, most) = (text.len(), limits::ANSWER_PATTERN_BYTES);
            return Err(format!("an expression has {bytes} bytes, but the limit is {most}"));
        }
        let wrong = |reason: String| format!("the expression {text:?} {reason}");
        let translated = translated(text).map_err(wrong)?;
        let mut parser = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).nest_limit(64).build();
        let tree = base::contain::contain(|| parser.parse(&translated).map_err(|error| refusal(&error)));
        let tree = tree.and_then(|tree| tree).map_err(wrong)?;
        Pattern::compile(&tree).map_err(wrong)
    }

    /// Compiles texts any of which is the marker, the longest that fits.
    pub(super) fn literals(texts: &[&str]) -> Result<Pattern, String> {
        let mut texts = texts.to_vec();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts.dedup();
        let trees = texts.iter().map(|text| Hir::literal(text.as_bytes())).collect();
        Pattern::compile(&Hir::alternation(trees))
    }

    fn compile(tree: &Hir) -> Result<Pattern, String> {
        let config = Config::new().which_captures(WhichCaptures::All).nfa_size_limit(Some(AUTOMATON_BYTES));
        let automaton = NFA::compiler()
            .configure(config)
            .build_from_hir(tree)
            .map_err(|_| format!("is larger than {AUTOMATON_BYTES} bytes once it is compiled"))?;
        let names = automaton.group_info().pattern_names(regex_automata::util::primitives::PatternID::ZERO);
        let groups: Vec<(usize, String)> =
            names.enumerate().filter_map(|(index, name)| Some((index, name?.to_string()))).collect();
        if groups.len() > limits::ANSWER_GROUPS {
            return Err(format!("has {} named groups, but the limit is {}", groups.len(), limits::ANSWER_GROUPS));
        }
        let known = [Look::Start, Look::End, Look::StartLF, Look::EndLF, Look::WordUnicode, Look::WordUnicodeNegate];
        if automaton.look_set_any().iter().any(|look| !known.contains(&look)) {
            return Err("has an assertion that is not one of ^, $, \\A, \\Z, \\b and \\B".to_string());
        }
        let mut pattern = Pattern {
            only_at_start: automaton.is_always_start_anchored(),
            looks: !automaton.look_set_any().is_empty(),
            may_be_empty: tree.properties().minimum_len().is_none_or(|least| least == 0),
            first: Box::new([false; 256]),
            automaton,
            groups,
        };
        pattern.first = pattern.first_bytes();
        Ok(pattern)
    }

    /// Bytes that lead out of the states that are reached from the start, whatever assertions say.
    fn first_bytes(&self) -> Box<[bool; 256]> {
        let mut first = Box::new([false; 256]);
        let mut seen = vec![false; self.automaton.states().len()];
        let mut waiting = vec![self.automaton.start_anchored()];
        while let Some(id) = waiting.pop() {
            if std::mem::replace(&mut seen[id.as_usize()], true) {
                continue;
            }
            match self.automaton.state(id) {
                State::Look { next, .. } | State::Capture { next, .. } => waiting.push(*next),
                State::Union { alternates } => waiting.extend(alternates.iter()),
                State::BinaryUnion { alt1, alt2 } => waiting.extend([*alt1, *alt2]),
                State::Fail | State::Match { .. } => {}
                state => (0..=255u8).filter(|&byte| after(state, byte).is_some()).for_each(|byte| {
                    first[usize::from(byte)] = true;
                }),
            }
        }
        first
    }

    /// States of its automaton.
    pub(super) fn states(&self) -> usize {
        self.automaton.states().len()
    }

    /// Whether it can match no text at all.
    pub(super) fn may_be_empty(&self) -> bool {
        self.may_be_empty
    }

    /// Names of its groups.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|(_, name)| name.as_str())
    }

    /// Whether a match may begin with `byte`.
    #[inline]
    pub(super) fn may_begin(&self, byte: u8) -> bool {
        self.first[usize::from(byte)]
    }

    /// All matches in a text that is complete, one after another, until the fuel is used up.
    pub(super) fn matches(&self, text: &str, fuel: &mut Fuel) -> Vec<Match> {
        let mut matches = Vec::new();
        let mut begin = 0;
        while begin <= text.len() && !fuel.is_empty() {
            let Some(found) = self.first_match(text, begin, fuel) else { break };
            begin = found.end.max(begin);
            if found.end == found.start {
                begin = text[begin..].chars().next().map_or(text.len() + 1, |c| begin + c.len_utf8());
            }
            matches.push(found);
        }
        matches
    }

    /// The groups of a match. `text` begins at `base`, after `before`.
    pub(super) fn groups(
        &self,
        found: Match,
        text: &str,
        base: usize,
        before: Option<char>,
        is_at_end: bool,
        fuel: &mut Fuel,
    ) -> Groups {
        if self.groups.is_empty() {
            return Groups(Vec::new());
        }
        let mut machine: Machine<Slots> = Machine::new(found.start, Seeds::Here);
        let mut before = text[..found.start - base].chars().next_back().or(before);
        for (offset, char) in text[found.start - base..found.end - base].char_indices() {
            for byte in Byte::of_char(char, found.start + offset, before) {
                machine.step(self, byte, fuel);
            }
            before = Some(char);
        }
        // Assertions at the end of the match see what follows it.
        let after = text[found.end - base..].chars().next();
        let sides = Sides { before, after: after.or((!is_at_end).then_some('\0')) };
        machine.end(self, found.end, sides, fuel);
        let slots = machine.memory.unwrap_or(Slots::EMPTY);
        let group = |index: usize| {
            let (begin, end) = (slots[2 * index], slots[2 * index + 1]);
            (begin != NOWHERE && end != NOWHERE && begin <= end)
                .then(|| (found.start + begin as usize, found.start + end as usize))
        };
        Groups((0..self.groups.len()).map(group).collect())
    }

    /// The first match at or after `begin` in a text that is complete.
    fn first_match(&self, text: &str, begin: usize, fuel: &mut Fuel) -> Option<Match> {
        let mut search: Search = Search::new(begin, Seeds::Everywhere);
        let mut before = text[..begin].chars().next_back();
        for (offset, char) in text[begin..].char_indices() {
            let at = begin + offset;
            if !search.is_idle() || self.may_begin(text.as_bytes()[at]) {
                for byte in Byte::of_char(char, at, before) {
                    search.step(self, byte, fuel);
                }
                if let Some(found) = search.decided() {
                    return Some(*found);
                }
                if fuel.is_empty() {
                    return None;
                }
            }
            before = Some(char);
        }
        search.end(self, text.len(), Sides { before, after: None }, fuel);
        search.found.take()
    }
}

/// What is wrong with an expression, in words that go on from "the expression".
fn refusal(error: &regex_syntax::Error) -> String {
    use regex_syntax::ast::ErrorKind;
    match error {
        regex_syntax::Error::Parse(error) => match error.kind() {
            ErrorKind::UnsupportedLookAround => "has a look-around, which needs back-tracking".to_string(),
            ErrorKind::UnsupportedBackreference => "refers back to a group, which needs back-tracking".to_string(),
            kind => format!("cannot be read: {kind}"),
        },
        regex_syntax::Error::Translate(error) => format!("cannot be read: {}", error.kind()),
        _ => "cannot be read".to_string(),
    }
}

/// An expression of Python in the syntax of `regex_syntax`, where both differ: `\Z`, braces that count nothing, brackets and
/// operators of sets within a class, and `\<`, which is a letter in Python.
fn translated(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut class_chars: Option<usize> = None;
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        if let Some(within) = &mut class_chars {
            *within += 1;
            match char {
                '^' if *within == 1 => {
                    *within = 0;
                    out.push('^');
                    continue;
                }
                ']' if *within > 1 => class_chars = None,
                ']' | '[' | '&' | '~' => out.push('\\'),
                '\\' => {}
                _ => {
                    out.push(char);
                    continue;
                }
            }
        }
        match char {
            '\\' => match chars.next() {
                Some((_, 'Z')) if class_chars.is_none() => out.push_str("\\z"),
                Some((_, '0')) => out.push_str("\\x00"),
                Some((_, next)) if next.is_alphanumeric() => out.extend(['\\', next]),
                Some((_, next)) => out.push_str(&regex_syntax::escape(next.encode_utf8(&mut [0; 4]))),
                None => return Err("ends with a backslash".to_string()),
            },
            '[' if class_chars.is_none() => {
                class_chars = Some(0);
                out.push('[');
            }
            '{' if class_chars.is_none() && !counts(&text[at..]) => out.push_str("\\{"),
            '{' if class_chars.is_none() && text[at + 1..].starts_with(',') => out.push_str("{0"),
            '}' if class_chars.is_none() => match text[..at].rfind('{').is_some_and(|open| counts(&text[open..])) {
                true => out.push('}'),
                false => out.push_str("\\}"),
            },
            '+' if class_chars.is_none() && is_quantifier_end(&text[..at]) => {
                return Err("has a possessive quantifier, which needs back-tracking to be undone".to_string());
            }
            _ => out.push(char),
        }
    }
    Ok(out)
}

/// Whether a text begins with `{3}`, `{3,}`, `{,3}` or `{3,4}`.
fn counts(text: &str) -> bool {
    let Some(end) = text.find('}') else { return false };
    let inside = &text[1..end];
    inside.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
        && inside.bytes().any(|byte| byte.is_ascii_digit())
        && inside.bytes().filter(|&byte| byte == b',').count() <= 1
}

/// Whether a text ends with a quantifier that is not escaped.
fn is_quantifier_end(text: &str) -> bool {
    let escapes = |text: &str| text.bytes().rev().take_while(|&byte| byte == b'\\').count();
    match text.chars().next_back() {
        Some('*' | '+' | '?') => escapes(&text[..text.len() - 1]) % 2 == 0 && !text.ends_with("(?"),
        Some('}') => text.rfind('{').is_some_and(|open| counts(&text[open..]) && escapes(&text[..open]) % 2 == 0),
        _ => false,
    }
}

/// The state that `byte` leads to.
#[inline]
fn after(state: &State, byte: u8) -> Option<StateID> {
    match state {
        State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
        State::Sparse(transitions) => transitions.matches_byte(byte),
        State::Dense(transitions) => transitions.matches_byte(byte),
        _ => None,
    }
}

/// A match. Places are bytes of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub start: usize,
    pub end: usize,
}

/// The groups of a match, by the order of the pattern's names.
#[derive(Clone, Debug)]
pub(super) struct Groups(Vec<Option<(usize, usize)>>);

impl Groups {
    /// Where the group of this name lies, if it took part.
    pub(super) fn get(&self, pattern: &Pattern, name: &str) -> Option<(usize, usize)> {
        self.0[pattern.groups.iter().position(|(_, group)| group == name)?]
    }
}

/// Where a match may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seeds {
    Everywhere,
    /// Where the search begins, alone.
    Here,
}

/// What a thread remembers besides where it began.
trait Memory: Copy {
    const EMPTY: Self;
    /// The group at this place begins or ends at `at`.
    fn set(&mut self, place: usize, at: u32);
}

/// Nothing, as for the search of a match. Groups are looked for within the match: so threads are small.
impl Memory for () {
    const EMPTY: () = ();
    fn set(&mut self, _: usize, _: u32) {}
}

/// The places of groups.
impl Memory for Slots {
    const EMPTY: Slots = [NOWHERE; PLACES];
    fn set(&mut self, place: usize, at: u32) {
        self[place] = at;
    }
}

/// A way in which the text may still become a match.
#[derive(Clone, Copy, Debug)]
struct Thread<M> {
    state: StateID,
    start: u32,
    memory: M,
}

/// The search for a match of one pattern.
pub(super) type Search = Machine<()>;

/// The automaton of one pattern while it runs.
#[derive(Debug)]
pub(super) struct Machine<M> {
    /// Where it began, from which places in threads count.
    origin: usize,
    seeds: Seeds,
    /// In order of priority, so that the first one began first. States that read a byte, or, for a pattern with assertions, states
    /// whose successors are not known yet.
    threads: Vec<Thread<M>>,
    spare: Vec<Thread<M>>,
    /// Those whose successors are being looked for.
    waiting: Vec<Thread<M>>,
    /// The last round in which each state was reached.
    seen: Vec<u32>,
    round: u32,
    /// The match, unless a thread of `threads` leads to another.
    found: Option<Match>,
    /// What the thread remembered that led to it.
    memory: Option<M>,
}

#[expect(private_bounds, reason = "both kinds of memory are of this file")]
impl<M: Memory> Machine<M> {
    pub(super) fn new(origin: usize, seeds: Seeds) -> Machine<M> {
        Machine {
            origin,
            seeds,
            threads: Vec::new(),
            spare: Vec::new(),
            waiting: Vec::new(),
            seen: Vec::new(),
            round: 0,
            found: None,
            memory: None,
        }
    }

    /// Begins again at `origin`.
    pub(super) fn reset(&mut self, origin: usize, seeds: Seeds) {
        (self.origin, self.seeds, self.found) = (origin, seeds, None);
        self.threads.clear();
    }

    /// Where it began.
    pub(super) fn origin(&self) -> usize {
        self.origin
    }

    /// Nothing is found, and nothing that was read may become a match.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.threads.is_empty() && self.found.is_none()
    }

    /// The match, once no further text can change it.
    pub(super) fn decided(&self) -> Option<&Match> {
        self.found.as_ref().filter(|_| self.threads.is_empty())
    }

    /// Where the first match begins that further text may complete or change.
    pub(super) fn pending(&self) -> Option<usize> {
        self.threads.first().map(|thread| self.origin + thread.start as usize)
    }

    /// A match can begin at `at` no more.
    pub(super) fn is_dead(&self, at: usize) -> bool {
        self.seeds == Seeds::Here && at > self.origin && self.is_idle()
    }

    /// Reads a byte.
    #[inline]
    pub(super) fn step(&mut self, pattern: &Pattern, byte: Byte, fuel: &mut Fuel) {
        if self.threads.is_empty() && !pattern.may_begin(byte.value) {
            return;
        }
        let Byte { at, sides, .. } = byte;
        if byte.begins_char {
            if pattern.looks {
                self.settle(pattern, at, sides, fuel);
            }
            if pattern.may_begin(byte.value) {
                self.seed(pattern, at, sides, fuel);
            }
        }
        let mut next = std::mem::take(&mut self.spare);
        next.clear();
        fuel.take(self.threads.len() as u64);
        for thread in &self.threads {
            if let Some(state) = after(pattern.automaton.state(thread.state), byte.value) {
                next.push(Thread { state, ..*thread });
            }
        }
        self.spare = std::mem::replace(&mut self.threads, next);
        // Assertions are looked at once the next character is known. There is none inside a character.
        let waits = pattern.looks && byte.ends_char;
        if !self.threads.is_empty() && !waits {
            self.settle(pattern, at + 1, sides, fuel);
        }
    }

    /// The text ends at `at`. What is found is decided.
    pub(super) fn end(&mut self, pattern: &Pattern, at: usize, sides: Sides, fuel: &mut Fuel) {
        if pattern.looks {
            self.settle(pattern, at, sides, fuel);
        }
        self.seed(pattern, at, sides, fuel);
        self.threads.clear();
    }

    /// Lets a match begin at `at`.
    fn seed(&mut self, pattern: &Pattern, at: usize, sides: Sides, fuel: &mut Fuel) {
        let elsewhere = self.seeds == Seeds::Here && at != self.origin;
        if self.found.is_some() || elsewhere || (pattern.only_at_start && at != 0) {
            return;
        }
        let start = (at - self.origin) as u32;
        let thread = Thread { state: pattern.automaton.start_anchored(), start, memory: M::EMPTY };
        let mut threads = std::mem::take(&mut self.threads);
        if threads.is_empty() {
            self.next_round(pattern);
        }
        self.enter(pattern, thread, at, sides, &mut threads, fuel);
        self.threads = threads;
    }

    /// Replaces threads by the states that they reach without reading a byte. A match ends those of lower priority.
    fn settle(&mut self, pattern: &Pattern, at: usize, sides: Sides, fuel: &mut Fuel) {
        self.next_round(pattern);
        let mut threads = std::mem::take(&mut self.threads);
        let mut settled = std::mem::take(&mut self.spare);
        settled.clear();
        for thread in threads.drain(..) {
            if self.enter(pattern, thread, at, sides, &mut settled, fuel) {
                break;
            }
        }
        threads.clear();
        (self.threads, self.spare) = (settled, threads);
    }

    fn next_round(&mut self, pattern: &Pattern) {
        self.seen.resize(pattern.automaton.states().len(), 0);
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.seen.fill(0);
            self.round = 1;
        }
    }

    /// Adds what `thread` reaches at `at` without reading a byte. Whether it reaches a match.
    fn enter(
        &mut self,
        pattern: &Pattern,
        thread: Thread<M>,
        at: usize,
        sides: Sides,
        into: &mut Vec<Thread<M>>,
        fuel: &mut Fuel,
    ) -> bool {
        let here = (at - self.origin) as u32;
        self.waiting.clear();
        self.waiting.push(thread);
        while let Some(mut thread) = self.waiting.pop() {
            fuel.take(1);
            let seen = &mut self.seen[thread.state.as_usize()];
            if std::mem::replace(seen, self.round) == self.round {
                continue;
            }
            match pattern.automaton.state(thread.state) {
                State::Look { look, next } => {
                    if holds(*look, at, sides) {
                        thread.state = *next;
                        self.waiting.push(thread);
                    }
                }
                State::Capture { next, group_index, slot, .. } => {
                    let group = group_index.as_usize();
                    if let Some(place) = pattern.groups.iter().position(|(index, _)| *index == group) {
                        thread.memory.set(2 * place + slot.as_usize() % 2, here);
                    }
                    thread.state = *next;
                    self.waiting.push(thread);
                }
                State::Union { alternates } => {
                    for &state in alternates.iter().rev() {
                        self.waiting.push(Thread { state, ..thread });
                    }
                }
                State::BinaryUnion { alt1, alt2 } => {
                    self.waiting.push(Thread { state: *alt2, ..thread });
                    thread.state = *alt1;
                    self.waiting.push(thread);
                }
                State::Match { .. } => {
                    // An empty marker says something at the end only.
                    if thread.start == here && sides.after.is_some() {
                        continue;
                    }
                    self.found = Some(Match { start: self.origin + thread.start as usize, end: at });
                    self.memory = Some(thread.memory);
                    return true;
                }
                State::Fail => {}
                _ => into.push(thread),
            }
        }
        false
    }
}

fn holds(look: Look, at: usize, sides: Sides) -> bool {
    let is_word = |side: Option<char>| side.is_some_and(|c| regex_syntax::try_is_word_character(c).unwrap_or(false));
    match look {
        Look::Start => at == 0,
        Look::End => sides.after.is_none(),
        Look::StartLF => at == 0 || sides.before == Some('\n'),
        Look::EndLF => sides.after.is_none() || sides.after == Some('\n'),
        Look::WordUnicode => is_word(sides.before) != is_word(sides.after),
        Look::WordUnicodeNegate => is_word(sides.before) == is_word(sides.after),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(pattern: &Pattern, text: &str) -> Vec<(usize, usize)> {
        pattern.matches(text, &mut Fuel::new()).iter().map(|found| (found.start, found.end)).collect()
    }

    #[test]
    fn matches_are_those_of_a_search_that_prefers_the_first_alternative() {
        let cases = [
            ("ab", "xabab", vec![(1, 3), (3, 5)]),
            ("a|ab", "ab", vec![(0, 1)]),
            ("ab|a", "ab a", vec![(0, 2), (3, 4)]),
            ("a.*b|c", "a c", vec![(2, 3)]),
            ("a.*?b", "a\nbb", vec![(0, 3)]),
            (r"<x(?P<n>\w+)>", "<x><xé1>", vec![(3, 9)]),
            (r"b\Z", "bb", vec![(1, 2)]),
            (r"\bno\b", "nono no", vec![(5, 7)]),
            ("^a", "aa", vec![(0, 1)]),
            (r"\{[^[]]", "{x]", vec![(0, 3)]),
            (r"x{2}{", "xx{", vec![(0, 3)]),
            (r"a\Z|$", "ba", vec![(1, 2), (2, 2)]),
        ];
        for (text, searched, wanted) in cases {
            assert_eq!(spans(&Pattern::python(text).expect(text), searched), wanted, "{text}");
        }
    }

    #[test]
    fn groups_are_reported_by_name() {
        let pattern = Pattern::python(r"(?P<key>\w+)=(?P<value>\d+)?;").expect("a pattern");
        let (text, mut fuel) = ("a=1;b=;", Fuel::new());
        let found = pattern.matches(text, &mut fuel);
        let mut groups = found.into_iter().map(|found| pattern.groups(found, text, 0, None, true, &mut fuel));
        let first = groups.next().expect("a match");
        assert_eq!(first.get(&pattern, "key"), Some((0, 1)));
        assert_eq!(first.get(&pattern, "value"), Some((2, 3)));
        assert_eq!(groups.next().expect("a match").get(&pattern, "value"), None);
    }

    #[test]
    fn what_needs_back_tracking_is_refused_by_name() {
        let long = "a".repeat(limits::ANSWER_PATTERN_BYTES + 1);
        let groups = (0..9).map(|n| format!("(?P<g{n}>x)")).collect::<String>();
        let cases = [
            ("(?=a)b", "look-around"),
            ("(?<!a)b", "look-around"),
            (r"(a)\1", "refers back"),
            ("a++", "possessive"),
            ("(?>a)", "cannot be read"),
            ("(a", "cannot be read"),
            ("(((\\w{500}){500}){500})", "larger than"),
            (&long, "the limit is"),
            (&groups, "named groups"),
        ];
        for (text, reason) in cases {
            let refused = Pattern::python(text).expect_err(text);
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }
}
