//! Does the name of a module match a pattern of a config?
//!
//! Patterns are those of Python's `re.match`: a match begins where the name begins, and may end anywhere. They come with a folder, so that their
//! cost is counted: all patterns of a folder share one budget of instructions ([`limits::QUANTIZATION_PROGRAM`]), and all matches share
//! one of steps ([`limits::QUANTIZATION_STEPS`]). Invariant: a match visits each pair of an instruction and a place in the name at
//! most once per look-around that begins it, and each visit is a step.
//!
//! References back to groups are not read: their matches have no such bound, and no published config has one.

use base::contain::contain;
use base::limits;
use fancy_regex::{Assertion, Expr, LookAround};
use regex_syntax::hir::{Class as HirClass, HirKind};
use std::collections::HashMap;
use std::ops::Range;

/// Pairs of an instruction and a place in a name that one match may have to visit. They are allocated as bits.
const PAIRS_MAX: usize = 1 << 20;

/// Instructions that stand for the work of reading a class of characters, per `\w` and the like in it.
const UNITS_PER_ESCAPE: usize = 256;
/// The same where upper and lower case are one.
const UNITS_OF_CASES: usize = 4096;

/// The patterns of a folder.
#[derive(Debug, Default)]
pub struct Patterns {
    /// One program after another.
    program: Vec<Instruction>,
    classes: Vec<Class>,
    class_ids: HashMap<(String, bool), u32>,
    patterns: Vec<Pattern>,
    /// Equal patterns are compiled once.
    ids: HashMap<String, usize>,
    /// Instructions, and what counts as some.
    units: usize,
}

#[derive(Debug)]
struct Pattern {
    /// Its program.
    range: Range<usize>,
    /// A text that every match has in it, which is searched for before the program runs.
    needed: String,
}

/// A step of a program. Without a jump the next instruction follows.
#[derive(Clone, Copy, Debug)]
enum Instruction {
    /// Takes this character.
    Char(char),
    /// Takes any character, `\n` included or not.
    Any {
        newline: bool,
    },
    /// Takes a character of a class.
    Class(u32),
    /// Goes on at the first, and where that fails at the second.
    Split(u32, u32),
    Jump(u32),
    /// Stands at the beginning of the name, or of a line.
    Start {
        of_line: bool,
    },
    /// Stands at the end of the name, or of a line.
    End {
        of_line: bool,
    },
    /// Stands at the end of a word, or does not.
    WordEnd {
        wanted: bool,
    },
    /// Goes on at `end` if the program up to there matches, or does not match, from `back` characters before here.
    Look {
        wanted: bool,
        back: u32,
        end: u32,
    },
    /// Goes on at `end` from where the first match of the program up to there ends.
    Atomic {
        end: u32,
    },
    Match,
}

/// Characters.
#[derive(Debug)]
struct Class {
    /// A bit per ASCII character.
    ascii: u128,
    /// The others, in order.
    others: Vec<(char, char)>,
}

impl Class {
    #[inline]
    fn has(&self, c: char) -> bool {
        if c.is_ascii() {
            return self.ascii >> (c as u32) & 1 == 1;
        }
        let at = self.others.partition_point(|&(_, last)| last < c);
        self.others.get(at).is_some_and(|&(first, _)| first <= c)
    }
}

impl Patterns {
    /// The number of a pattern, compiled unless an equal one was.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn add(&mut self, text: &str) -> Result<usize, String> {
        if let Some(&id) = self.ids.get(text) {
            return Ok(id);
        }
        let shown: String = text.chars().take(60).collect();
        if text.len() > limits::QUANTIZATION_PATTERN_BYTES {
            let most = limits::QUANTIZATION_PATTERN_BYTES;
            return Err(format!("has a pattern of {} bytes, but at most {most} are read: {shown}", text.len()));
        }
        let tree = contain(|| Expr::parse_tree(text).ok()).ok().flatten();
        let tree = tree.ok_or_else(|| format!("has a pattern that is not read: {shown}"))?;
        let start = self.program.len();
        let compiled = self.compile(&tree.expr).and_then(|()| self.emit(Instruction::Match));
        compiled.map_err(|unread| match unread {
            Unread::Form(form) => format!("has a pattern that is not read, because it has {form}: {shown}"),
            Unread::Size => {
                let most = limits::QUANTIZATION_PROGRAM;
                format!("has a pattern that is not read, because the patterns of the folder have more than {most} parts: {shown}")
            }
        })?;
        let needed = needed_text(&tree.expr);
        self.patterns.push(Pattern { range: start..self.program.len(), needed });
        self.ids.insert(text.to_owned(), self.patterns.len() - 1);
        Ok(self.patterns.len() - 1)
    }

    /// Counts before anything is allocated.
    fn charge(&mut self, units: usize) -> Result<(), Unread> {
        self.units = self.units.saturating_add(units);
        if self.units > limits::QUANTIZATION_PROGRAM { Err(Unread::Size) } else { Ok(()) }
    }

    fn emit(&mut self, instruction: Instruction) -> Result<(), Unread> {
        self.charge(1)?;
        self.program.push(instruction);
        Ok(())
    }

    /// The place of the next instruction. The budget keeps it small.
    fn here(&self) -> u32 {
        self.program.len() as u32
    }

    fn compile(&mut self, expr: &Expr) -> Result<(), Unread> {
        // What emits nothing may be repeated too.
        self.charge(1)?;
        match expr {
            Expr::Empty => Ok(()),
            Expr::Any { newline } => self.emit(Instruction::Any { newline: *newline }),
            Expr::Assertion(assertion) => self.emit(match assertion {
                Assertion::StartText => Instruction::Start { of_line: false },
                Assertion::EndText => Instruction::End { of_line: false },
                Assertion::StartLine { crlf: false } => Instruction::Start { of_line: true },
                Assertion::EndLine { crlf: false } => Instruction::End { of_line: true },
                Assertion::WordBoundary => Instruction::WordEnd { wanted: true },
                Assertion::NotWordBoundary => Instruction::WordEnd { wanted: false },
                _ => return Err(Unread::Form("a boundary that Python does not know")),
            }),
            Expr::Literal { val, casei } => val.chars().try_for_each(|c| match casei {
                false => self.emit(Instruction::Char(c)),
                true => {
                    let text = regex_syntax::escape(c.encode_utf8(&mut [0; 4]));
                    let class = self.class(&text, true, 8)?;
                    self.emit(Instruction::Class(class))
                }
            }),
            // `\Z`
            Expr::Delegate { inner, size: 0, .. } if inner == "\\n*$" => {
                let newline = Expr::Literal { val: "\n".into(), casei: false };
                self.repeat(&newline, 0, usize::MAX, true)?;
                self.emit(Instruction::End { of_line: false })
            }
            Expr::Delegate { inner, casei, .. } => {
                let is_escape = |pair: &&[u8]| pair[0] == b'\\' && pair[1].is_ascii_alphabetic();
                let escapes = inner.as_bytes().windows(2).filter(is_escape).count();
                let cases = if *casei { UNITS_OF_CASES * (1 + escapes) } else { 0 };
                let class = self.class(inner, *casei, inner.len() + UNITS_PER_ESCAPE * escapes + cases)?;
                self.emit(Instruction::Class(class))
            }
            Expr::Concat(parts) => parts.iter().try_for_each(|part| self.compile(part)),
            Expr::Alt(parts) => self.alternatives(parts),
            Expr::Group(child) => self.compile(child),
            Expr::Repeat { child, lo, hi, greedy } => self.repeat(child, *lo, *hi, *greedy),
            Expr::LookAround(child, look) => {
                let (wanted, is_behind) = match look {
                    LookAround::LookAhead => (true, false),
                    LookAround::LookAheadNeg => (false, false),
                    LookAround::LookBehind => (true, true),
                    LookAround::LookBehindNeg => (false, true),
                };
                let back = if is_behind { width(child).and_then(|width| u32::try_from(width).ok()) } else { Some(0) };
                let back = back.ok_or(Unread::Form("a look-behind of no fixed length"))?;
                self.inner(child, |end| Instruction::Look { wanted, back, end })
            }
            Expr::AtomicGroup(child) => self.inner(child, |end| Instruction::Atomic { end }),
            Expr::Backref { .. } | Expr::BackrefWithRelativeRecursionLevel { .. } => {
                Err(Unread::Form("a reference back to a group"))
            }
            _ => Err(Unread::Form("a part that Python does not know, or a condition")),
        }
    }

    /// A program within the program.
    fn inner(&mut self, child: &Expr, instruction: impl Fn(u32) -> Instruction) -> Result<(), Unread> {
        let at = self.program.len();
        self.emit(Instruction::Match)?;
        self.compile(child)?;
        self.emit(Instruction::Match)?;
        self.program[at] = instruction(self.here());
        Ok(())
    }

    fn alternatives(&mut self, parts: &[Expr]) -> Result<(), Unread> {
        let Some((last, others)) = parts.split_last() else { return Ok(()) };
        let mut jumps = Vec::new();
        for part in others {
            let split = self.program.len();
            self.emit(Instruction::Match)?;
            self.compile(part)?;
            jumps.push(self.program.len());
            self.emit(Instruction::Match)?;
            self.program[split] = Instruction::Split(split as u32 + 1, self.here());
        }
        self.compile(last)?;
        let end = self.here();
        jumps.into_iter().for_each(|jump| self.program[jump] = Instruction::Jump(end));
        Ok(())
    }

    fn repeat(&mut self, child: &Expr, least: usize, most: usize, greedy: bool) -> Result<(), Unread> {
        let split = |inside: u32, behind: u32| match greedy {
            true => Instruction::Split(inside, behind),
            false => Instruction::Split(behind, inside),
        };
        for _ in 0..least {
            self.compile(child)?;
        }
        if most == usize::MAX {
            let at = self.program.len();
            self.emit(Instruction::Match)?;
            self.compile(child)?;
            self.emit(Instruction::Jump(at as u32))?;
            self.program[at] = split(at as u32 + 1, self.here());
            return Ok(());
        }
        let mut splits = Vec::new();
        for _ in least..most {
            splits.push(self.program.len());
            self.emit(Instruction::Match)?;
            self.compile(child)?;
        }
        let end = self.here();
        splits.into_iter().for_each(|at| self.program[at] = split(at as u32 + 1, end));
        Ok(())
    }

    /// The class that `text` stands for. To read it counts as `units` instructions, and each of its ranges as one.
    fn class(&mut self, text: &str, is_folded: bool, units: usize) -> Result<u32, Unread> {
        let key = (text.to_owned(), is_folded);
        if let Some(&id) = self.class_ids.get(&key) {
            return Ok(id);
        }
        self.charge(units)?;
        const OTHER: Unread = Unread::Form("a class of characters that is not read");
        let parsed =
            contain(|| regex_syntax::ParserBuilder::new().case_insensitive(is_folded).build().parse(text).ok());
        let hir = parsed.ok().flatten().ok_or(OTHER)?;
        let ranges: Vec<(char, char)> = match hir.kind() {
            HirKind::Class(HirClass::Unicode(class)) => {
                class.iter().map(|range| (range.start(), range.end())).collect()
            }
            HirKind::Literal(literal) => {
                let mut letters = std::str::from_utf8(&literal.0).map_err(|_| OTHER)?.chars();
                match (letters.next(), letters.next()) {
                    (Some(letter), None) => vec![(letter, letter)],
                    _ => return Err(OTHER),
                }
            }
            _ => return Err(OTHER),
        };
        self.charge(ranges.len())?;
        let ascii = (0..128u8).filter(|&c| ranges.iter().any(|range| (range.0..=range.1).contains(&char::from(c))));
        let ascii = ascii.fold(0, |bits, c| bits | 1 << c);
        let others = ranges.into_iter().filter(|&(_, last)| !last.is_ascii()).collect();
        self.classes.push(Class { ascii, others });
        let id = self.classes.len() as u32 - 1;
        self.class_ids.insert(key, id);
        Ok(id)
    }
}

/// Why a pattern is not read.
enum Unread {
    /// It has this.
    Form(&'static str),
    /// The budget is spent.
    Size,
}

/// Characters of every match, if all have the same number.
fn width(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Empty | Expr::Assertion(_) | Expr::LookAround(..) => Some(0),
        Expr::Any { .. } => Some(1),
        Expr::Literal { val, .. } => Some(val.chars().count()),
        Expr::Delegate { size, .. } => Some(*size),
        Expr::Concat(parts) => parts.iter().try_fold(0usize, |sum, part| sum.checked_add(width(part)?)),
        Expr::Alt(parts) => {
            let first = width(parts.first()?)?;
            parts.iter().all(|part| width(part) == Some(first)).then_some(first)
        }
        Expr::Group(child) | Expr::AtomicGroup(child) => width(child),
        Expr::Repeat { child, lo, hi, .. } if lo == hi => width(child)?.checked_mul(*lo),
        _ => None,
    }
}

/// The longest text that a pattern says to be in each of its matches.
fn needed_text(expr: &Expr) -> String {
    fn longest(run: &mut String, best: &mut String) {
        if run.len() > best.len() {
            std::mem::swap(run, best);
        }
        run.clear();
    }
    fn walk(expr: &Expr, run: &mut String, best: &mut String) {
        match expr {
            // They take no characters.
            Expr::Empty | Expr::Assertion(_) | Expr::LookAround(..) => {}
            Expr::Literal { val, casei: false } => run.push_str(val),
            Expr::Concat(parts) => parts.iter().for_each(|part| walk(part, run, best)),
            Expr::Group(child) => walk(child, run, best),
            Expr::Repeat { child, lo: 1.., .. } => {
                longest(run, best);
                walk(child, run, best);
                longest(run, best);
            }
            _ => longest(run, best),
        }
    }
    let (mut run, mut best) = (String::new(), String::new());
    walk(expr, &mut run, &mut best);
    longest(&mut run, &mut best);
    best
}

/// The steps of all matches are spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// Matches names with patterns, as long as there are steps.
pub struct Matcher<'a> {
    patterns: &'a Patterns,
    steps_left: u64,
    /// A bit per instruction of the pattern and place in the name.
    visited: Vec<u64>,
    /// Where to go on after a failure: instruction and place.
    stack: Vec<(u32, u32)>,
}

impl<'a> Matcher<'a> {
    /// With the steps that a folder has.
    pub fn new(patterns: &'a Patterns) -> Matcher<'a> {
        Matcher { patterns, steps_left: limits::QUANTIZATION_STEPS, visited: Vec::new(), stack: Vec::new() }
    }

    /// Whether `name` begins with a match of the pattern of this number.
    ///
    /// # Errors
    ///
    /// [`Exhausted`]
    pub fn matches(&mut self, pattern: usize, name: &str) -> Result<bool, Exhausted> {
        let Pattern { range, needed } = &self.patterns.patterns[pattern];
        // A search in a name of usual length takes as long as two visits.
        self.charge(2 + (name.len() + needed.len()).saturating_sub(96) / 8)?;
        if !name.contains(needed.as_str()) {
            return Ok(false);
        }
        let pairs = range.len().checked_mul(name.len() + 1).filter(|pairs| *pairs <= PAIRS_MAX).ok_or(Exhausted)?;
        self.charge(pairs / 1024)?;
        self.visited.clear();
        self.visited.resize(pairs.div_ceil(64), 0);
        self.stack.clear();
        let text = Text { name, first: range.start };
        Ok(self.run(text, range.start, 0)?.is_some())
    }

    #[inline]
    fn charge(&mut self, steps: usize) -> Result<(), Exhausted> {
        self.steps_left = self.steps_left.checked_sub(steps as u64).ok_or(Exhausted)?;
        Ok(())
    }

    /// Where the first match of the program at `start` ends that begins at `at`.
    fn run(&mut self, text: Text, start: usize, at: usize) -> Result<Option<usize>, Exhausted> {
        let floor = self.stack.len();
        self.stack.push((start as u32, at as u32));
        while self.stack.len() > floor {
            let (instruction, at) = self.stack.pop().expect("one is above the floor");
            if let Some(end) = self.follow(text, instruction as usize, at as usize)? {
                self.stack.truncate(floor);
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// As [`Matcher::run`], until it fails for the first time.
    fn follow(&mut self, text: Text, mut at: usize, mut place: usize) -> Result<Option<usize>, Exhausted> {
        let Patterns { program, classes, .. } = self.patterns;
        let places = text.name.len() + 1;
        loop {
            let instruction = program[at];
            // A loop has a split, so that jumps need not be counted.
            if let Instruction::Jump(to) = instruction {
                at = to as usize;
                continue;
            }
            self.charge(1)?;
            let bit = (at - text.first) * places + place;
            let (word, mask) = (&mut self.visited[bit / 64], 1 << (bit % 64));
            if *word & mask != 0 {
                return Ok(None);
            }
            *word |= mask;
            let goes_on = match instruction {
                Instruction::Char(wanted) => text.taken(place, |c| c == wanted),
                Instruction::Any { newline } => text.taken(place, |c| newline || c != '\n'),
                Instruction::Class(id) => text.taken(place, |c| classes[id as usize].has(c)),
                Instruction::Split(first, second) => {
                    self.stack.push((second, place as u32));
                    at = first as usize;
                    continue;
                }
                Instruction::Match => return Ok(Some(place)),
                Instruction::Start { of_line } => {
                    (place == 0 || of_line && text.previous(place) == Some('\n')).then_some(place)
                }
                Instruction::End { of_line } => match text.next(place) {
                    None => Some(place),
                    Some('\n') if of_line => Some(place),
                    Some(_) => None,
                },
                Instruction::WordEnd { wanted } => {
                    let is_word = |c: char| regex_syntax::try_is_word_character(c).unwrap_or(false);
                    let is_end = text.previous(place).is_some_and(is_word) != text.next(place).is_some_and(is_word);
                    (is_end == wanted).then_some(place)
                }
                Instruction::Look { wanted, back, end } => {
                    self.charge(back as usize / 4)?;
                    let found = match text.back(place, back as usize) {
                        Some(from) => self.run_inner(text, at + 1..end as usize, from)?.is_some(),
                        None => false,
                    };
                    at = end as usize - 1;
                    (found == wanted).then_some(place)
                }
                Instruction::Atomic { end } => {
                    let to = self.run_inner(text, at + 1..end as usize, place)?;
                    at = end as usize - 1;
                    to
                }
                Instruction::Jump(_) => unreachable!("followed above"),
            };
            let Some(to) = goes_on else { return Ok(None) };
            (at, place) = (at + 1, to);
        }
    }

    /// Runs a program within the program, whose pairs may be visited once more: one that was visited did not fail if that run ended in a match.
    fn run_inner(&mut self, text: Text, program: Range<usize>, at: usize) -> Result<Option<usize>, Exhausted> {
        let places = text.name.len() + 1;
        let (first, last) = ((program.start - text.first) * places, (program.end - text.first) * places);
        self.charge(4 + (last - first) / 1024)?;
        let (whole_from, whole_to) = (first.div_ceil(64), last / 64);
        if whole_from < whole_to {
            self.visited[whole_from..whole_to].fill(0);
        }
        let edges = (first..last.min(whole_from * 64)).chain(first.max(whole_to * 64)..last);
        edges.for_each(|bit| self.visited[bit / 64] &= !(1 << (bit % 64)));
        self.run(text, program.start, at)
    }
}

/// A name while it is matched.
#[derive(Clone, Copy)]
struct Text<'a> {
    name: &'a str,
    /// The first instruction of the pattern.
    first: usize,
}

impl Text<'_> {
    #[inline]
    fn next(&self, place: usize) -> Option<char> {
        let &byte = self.name.as_bytes().get(place)?;
        if byte.is_ascii() { Some(byte.into()) } else { self.name[place..].chars().next() }
    }

    /// The place behind the next character, if that is wanted.
    #[inline]
    fn taken(&self, place: usize, is_wanted: impl Fn(char) -> bool) -> Option<usize> {
        self.next(place).filter(|&c| is_wanted(c)).map(|c| place + c.len_utf8())
    }

    fn previous(&self, place: usize) -> Option<char> {
        self.name[..place].chars().next_back()
    }

    /// The place that is `count` characters before this one.
    fn back(&self, place: usize, count: usize) -> Option<usize> {
        match count {
            0 => Some(place),
            _ => self.name[..place].char_indices().rev().nth(count - 1).map(|(at, _)| at),
        }
    }
}

#[cfg(test)]
mod tests;
