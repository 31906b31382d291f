//! Reads an answer while it is written.
//!
//! A cursor goes through the text once, character by character. Whether a marker was found is decided at a character, by the text
//! up to it alone: so events do not depend on the pieces in which the text arrives. Text is handed out up to the first place at
//! which a marker may begin. What is found beyond a decision is read again, and that work is counted ([`Fuel`]).

mod tags;

use super::calls::{Body, Objects, Python, Step};
use super::pattern::{Byte, Fuel, Groups, Match, Pattern, Search, Seeds, Sides};
use super::region::{Calls, Grammar, Inside, Opened, Region, Tags, Untyped, Voice};
use super::sink::{Sink, Trim};
use super::typed::{Tools, type_arguments, typed};
use super::{Begun, Event, Format, Message};
use base::limits;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Text with which the prompts of known models begin an answer.
const ANSWERS_BEGIN: [&str; 17] = [
    "<|im_start|>assistant\n",
    "<|im_start|>assistant",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<|header_start|>assistant<|header_end|>",
    "<|start_of_role|>assistant<|end_of_role|>",
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "<|im_assistant|>assistant<|im_middle|>",
    "<start_of_turn>model\n",
    "<|turn>model\n",
    "<tool_response|>",
    "<|start|>assistant",
    "<|assistant|>",
    "<|Assistant|>",
    "<｜Assistant｜>",
    "<seed:bos>assistant\n",
    "]~b]ai\n",
    "[/INST]",
];

/// Text with which known models end an answer. If it follows the begin of an answer, that one is an earlier one, and the template has
/// written results of tools since.
const ANSWERS_END: [&str; 15] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<turn|>",
    "<|user|>",
    "<|observation|>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "</s>",
];

/// Where the cursor is.
#[derive(Debug)]
enum Cursor {
    /// Outside regions.
    Outside,
    /// In a region that is text or a field.
    Inside(usize),
    /// In a region with calls.
    Body(usize, Body),
    /// In a call with arguments between markers: before an argument or the end.
    BetweenTags(usize, TagCall),
    /// In the value of an argument, which begins at this place.
    TagValue(usize, TagCall, TagValue),
    /// After the calls of a region, before its end.
    Closing(usize),
    /// Beyond a limit: everything is content.
    Unread,
}

/// A call whose arguments are between markers.
#[derive(Debug)]
struct TagCall {
    name: String,
    id: Option<String>,
    arguments: usize,
}

#[derive(Debug)]
struct TagValue {
    key: String,
    /// What the model says about whether it is a string.
    is_string: Option<bool>,
    start: usize,
}

/// What a marker means where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Open,
    Close,
}

/// Reads one answer. See the [module](super).
#[derive(Debug)]
pub struct AnswerParser {
    grammar: Arc<Grammar>,
    tools: Tools,
    /// Text from `base` on that is still needed.
    buffer: String,
    base: usize,
    /// The character before `buffer`.
    before: Option<char>,
    /// The next character to read.
    at: usize,
    /// How far the cursor has been.
    reached: usize,
    /// Up to where text was handed out.
    done: usize,
    /// Where the region began whose text is content if it cannot be read.
    kept_from: Option<usize>,
    place: Cursor,
    /// One per region that may begin, and for the end of the region of all other text.
    searches: Vec<Search>,
    /// For the end of a region, and for the markers of arguments.
    ends: [Search; 2],
    /// Of a field: its text and the groups of its marker.
    body: String,
    captures: serde_json::Map<String, Json>,
    /// The field has begun. That of the text outside begins with its first byte.
    has_opened: bool,
    /// There will be no more text.
    is_end: bool,
    fuel: Fuel,
    sink: Sink,
}

impl AnswerParser {
    /// Begins to read an answer.
    ///
    /// `tools` is the list of tools as the chat template got it, or null. `prompt` is the text after which the model writes, or its end:
    /// a template may have begun the answer, as with `<think>`, and a message may be continued. What it has begun is part of the
    /// message, and its events come first.
    pub fn new(format: &Format, tools: &Json, prompt: &str) -> AnswerParser {
        let grammar = Arc::clone(&format.grammar);
        let search = || Search::new(0, Seeds::Everywhere);
        let mut sink = Sink::new(grammar.content_trim, grammar.reasoning_trim);
        sink.fields = grammar.defaults.clone();
        let mut parser = AnswerParser {
            searches: grammar.regions.iter().map(|_| search()).collect(),
            ends: [search(), search()],
            tools: Tools::new(tools),
            buffer: String::new(),
            base: 0,
            before: None,
            at: 0,
            reached: 0,
            done: 0,
            kept_from: None,
            place: Cursor::Outside,
            body: String::new(),
            captures: serde_json::Map::new(),
            has_opened: false,
            is_end: false,
            fuel: Fuel::new(),
            sink,
            grammar,
        };
        parser.read_prompt(prompt);
        parser
    }

    fn read_prompt(&mut self, prompt: &str) {
        let grammar = Arc::clone(&self.grammar);
        let begun = match &grammar.opened {
            Opened::After(pattern) => {
                let mut fuel = Fuel::new();
                fuel.add(prompt.len());
                pattern.matches(prompt, &mut fuel).last().map_or(0, |found| found.end)
            }
            Opened::AfterKnown { reasoning_ends } => {
                let after = |word: &&str| prompt.rfind(word).map(|at| at + word.len());
                let begun = ANSWERS_BEGIN.iter().filter_map(after).max();
                let is_open = |begun: &usize| !ANSWERS_END.iter().any(|word| prompt[*begun..].contains(word));
                let begun = begun.filter(is_open);
                let begun = begun.unwrap_or_else(|| self.begin_of_open_marker(prompt));
                let thought = reasoning_ends.iter().filter_map(after).max().filter(|&end| end > begun);
                if thought.is_some() {
                    self.sink.region();
                }
                thought.unwrap_or(begun)
            }
        };
        // White space that a template writes after its words is no content.
        let is_blank = matches!(grammar.opened, Opened::AfterKnown { .. }) && prompt[begun..].trim().is_empty();
        if !is_blank {
            self.buffer.push_str(&prompt[begun..]);
            self.run(false);
        }
    }

    /// Where the marker begins with which a prompt without known words ends; its end if it ends with none.
    fn begin_of_open_marker(&self, prompt: &str) -> usize {
        let trimmed = prompt.trim_end();
        let tail = trimmed.floor_char_boundary(trimmed.len().saturating_sub(64));
        let mut fuel = Fuel::new();
        let opens = self.grammar.regions.iter().filter_map(|region| region.open.as_ref());
        opens
            .flat_map(|open| open.matches(&trimmed[tail..], &mut fuel))
            .find(|found| tail + found.end >= trimmed.len())
            .map_or(prompt.len(), |found| tail + found.start)
    }

    /// Where in the answer the text so far ends.
    pub fn begun(&self) -> Begun {
        match &self.place {
            Cursor::Outside if self.sink.is_untouched() && self.text(self.done, self.end()).trim().is_empty() => {
                Begun::Nothing
            }
            Cursor::Outside | Cursor::Unread => Begun::Content,
            Cursor::Inside(region) => match &self.grammar.regions[*region].inside {
                Inside::Text(Voice::Reasoning) => Begun::Reasoning,
                Inside::Field(field) if field.voice == Some(Voice::Reasoning) => Begun::Reasoning,
                Inside::Field(field) if field.is_calls => Begun::Call,
                _ => Begun::Content,
            },
            Cursor::Body(..) | Cursor::BetweenTags(..) | Cursor::TagValue(..) => Begun::Call,
            Cursor::Closing(_) => Begun::Content,
        }
    }

    /// Reads a further piece of the answer, and returns what is known by it.
    pub fn feed(&mut self, piece: &str) -> Vec<Event> {
        self.buffer.push_str(piece);
        self.run(false);
        self.hand_out();
        self.forget();
        self.sink.take_events()
    }

    /// The message so far: what events were handed out for, and the calls that are complete.
    pub fn message(&self) -> Message {
        self.sink.message()
    }

    /// The answer ends. Returns the last events and the message.
    pub fn finish(mut self) -> (Vec<Event>, Message) {
        self.run(true);
        self.check_fields();
        self.sink.end()
    }

    /// Visits of states that were made for this answer: what [`limits::ANSWER_WORK`] limits.
    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        let all = limits::ANSWER_WORK + limits::ANSWER_WORK_PER_BYTE * self.reached as u64;
        all - self.fuel.left()
    }

    /// The end of the text that arrived.
    fn end(&self) -> usize {
        self.base + self.buffer.len()
    }

    fn text(&self, begin: usize, end: usize) -> &str {
        &self.buffer[begin - self.base..end - self.base]
    }

    fn char_at(&self, at: usize) -> Option<char> {
        self.buffer[at - self.base..].chars().next()
    }

    fn char_before(&self, at: usize) -> Option<char> {
        self.buffer[..at - self.base].chars().next_back().or(self.before)
    }

    /// Reads what arrived. `is_end` says that there will be no more.
    fn run(&mut self, is_end: bool) {
        self.is_end = is_end;
        let grammar = Arc::clone(&self.grammar);
        loop {
            match &self.place {
                Cursor::Outside | Cursor::Inside(_) => self.read_text(&grammar),
                Cursor::Body(region, _) => self.read_body(&grammar, *region),
                Cursor::BetweenTags(..) | Cursor::TagValue(..) | Cursor::Closing(_) => self.read_tags(&grammar),
                Cursor::Unread => self.advance(self.end()),
            }
            if self.fuel.is_empty() {
                self.give_up();
            }
            if self.at < self.end() {
                continue;
            }
            if !is_end || !self.read_end(&grammar) {
                return;
            }
        }
    }

    /// The groups of a match that was found.
    fn groups(&mut self, pattern: &Pattern, found: Match) -> Groups {
        let is_at_end = self.is_end && found.end == self.end();
        pattern.groups(found, &self.buffer, self.base, self.before, is_at_end, &mut self.fuel)
    }

    /// Moves the cursor. A byte that it reaches for the first time is worth fuel.
    fn advance(&mut self, at: usize) {
        self.at = at;
        if at > self.reached {
            self.fuel.add(at - self.reached);
            self.reached = at;
        }
    }

    // ---- text and fields ----

    /// Reads text until a marker is found or the text ends.
    fn read_text(&mut self, grammar: &Grammar) {
        let inside = match self.place {
            Cursor::Inside(region) => Some(region),
            _ => None,
        };
        while self.at < self.end() {
            let rest = &self.buffer.as_bytes()[self.at - self.base..];
            let skipped = match inside {
                Some(region) => match &grammar.regions[region].close {
                    None => rest.len(),
                    Some(close) if self.ends[0].is_idle() => {
                        rest.iter().position(|&byte| close.may_begin(byte)).unwrap_or(rest.len())
                    }
                    Some(_) => 0,
                },
                None if self.searches.iter().all(Search::is_idle) => {
                    rest.iter().position(|&byte| grammar.begins[usize::from(byte)]).unwrap_or(rest.len())
                }
                None => 0,
            };
            if skipped > 0 {
                self.advance(self.at + skipped);
                continue;
            }
            let Some(char) = self.char_at(self.at) else { return };
            let before = self.char_before(self.at);
            for byte in Byte::of_char(char, self.at, before) {
                match inside {
                    Some(region) => {
                        if let Some(close) = &grammar.regions[region].close {
                            self.ends[0].step(close, byte, &mut self.fuel);
                        }
                    }
                    None => {
                        for (search, region) in self.searches.iter_mut().zip(&grammar.regions) {
                            if let Some(pattern) = region.open.as_ref().or(region.close.as_ref())
                                && search.decided().is_none()
                            {
                                search.step(pattern, byte, &mut self.fuel);
                            }
                        }
                    }
                }
            }
            self.advance(self.at + char.len_utf8());
            if self.fuel.is_empty() {
                return;
            }
            if let Some((meaning, region, found)) = self.decision(grammar, inside) {
                self.take(grammar, meaning, region, found);
                return;
            }
        }
    }

    /// The marker that no further text can change.
    fn decision(&self, grammar: &Grammar, inside: Option<usize>) -> Option<(Meaning, usize, Match)> {
        if let Some(region) = inside {
            return Some((Meaning::Close, region, *self.ends[0].decided()?));
        }
        let decided = self.searches.iter().enumerate().filter_map(|(region, search)| {
            let found = search.decided()?;
            let meaning = if grammar.regions[region].open.is_some() { Meaning::Open } else { Meaning::Close };
            Some((meaning, region, found))
        });
        let (meaning, region, found) = decided.min_by_key(|(meaning, region, found)| {
            (found.start, std::cmp::Reverse(found.end - found.start), *meaning, &grammar.regions[*region].name)
        })?;
        let pending = self.searches.iter().filter_map(Search::pending).min();
        pending.is_none_or(|pending| found.start < pending).then_some((meaning, region, *found))
    }

    /// Acts on a marker outside regions, or on the end of a region.
    fn take(&mut self, grammar: &Grammar, meaning: Meaning, region: usize, found: Match) {
        self.write(found.start);
        (self.done, self.at) = (found.end, found.end);
        self.close_field(grammar, found.end);
        match meaning {
            Meaning::Close => self.go_outside(),
            Meaning::Open => self.open(grammar, region, found),
        }
    }

    fn go_outside(&mut self) {
        self.kept_from = None;
        self.place = Cursor::Outside;
        self.reset_searches();
    }

    fn reset_searches(&mut self) {
        for search in &mut self.searches {
            search.reset(self.at, Seeds::Everywhere);
        }
    }

    fn reset_ends(&mut self, seeds: Seeds) {
        for search in &mut self.ends {
            search.reset(self.at, seeds);
        }
    }

    /// Begins a region.
    fn open(&mut self, grammar: &Grammar, index: usize, found: Match) {
        let region = &grammar.regions[index];
        let Some(pattern) = &region.open else { return self.go_outside() };
        let places = self.groups(pattern, found);
        let text_of = |name: &str| {
            let (begin, end) = places.get(pattern, name)?;
            Some((name.to_string(), self.text(begin, end).to_string()))
        };
        let groups: BTreeMap<String, String> = pattern.names().filter_map(text_of).collect();
        if let Some((body, _)) = places.get(pattern, "body") {
            (self.done, self.at) = (body, body);
        }
        self.kept_from = Some(found.start);
        match &region.inside {
            Inside::Text(_) => {
                self.kept_from = None;
                self.sink.region();
                self.place = Cursor::Inside(index);
            }
            Inside::Field(field) => {
                self.captures = groups.into_iter().map(|(name, text)| (name, Json::from(text))).collect();
                self.body.clear();
                self.has_opened = true;
                if field.voice.is_some() {
                    self.kept_from = None;
                }
                if let (Some(Voice::Reasoning), Some(join)) = (field.voice, &field.join) {
                    self.sink.join_reasoning(join);
                }
                self.place = Cursor::Inside(index);
            }
            Inside::Calls(calls) => {
                let id = groups.get("id").cloned();
                let name = groups.get("name").map(|name| name.trim().to_string()).unwrap_or_default();
                let known = |only_known: &bool| only_known.then(|| self.tools.names());
                let body = match calls {
                    Calls::Objects { only_known } => Body::Objects(Objects::new(known(only_known))),
                    Calls::Python { only_known } => Body::Python(Python::new(known(only_known))),
                    Calls::Arguments(notation) => Body::arguments(*notation, name, id),
                    Calls::Tags(_) => {
                        self.place = Cursor::BetweenTags(index, TagCall { name, id, arguments: 0 });
                        return self.reset_ends(Seeds::Here);
                    }
                };
                self.place = Cursor::Body(index, body);
            }
        }
        self.reset_ends(Seeds::Everywhere);
    }

    /// Hands out text up to `end` to the region that it lies in.
    fn write(&mut self, end: usize) {
        if end <= self.done {
            return;
        }
        let (begin, grammar) = (self.done, Arc::clone(&self.grammar));
        self.done = end;
        let region = match self.place {
            Cursor::Outside => grammar.implicit.map(|index| &grammar.regions[index]),
            Cursor::Inside(index) => Some(&grammar.regions[index]),
            Cursor::Unread => None,
            _ => return,
        };
        let text = &self.buffer[begin - self.base..end - self.base];
        match region.map(|region| &region.inside) {
            Some(Inside::Text(Voice::Content)) => self.sink.content(text),
            Some(Inside::Text(Voice::Reasoning)) => self.sink.reasoning(text),
            Some(Inside::Field(field)) => {
                self.has_opened = true;
                self.body.push_str(text);
                match field.voice {
                    Some(Voice::Content) => self.sink.content(text),
                    Some(Voice::Reasoning) => self.sink.reasoning(text),
                    None => {}
                }
            }
            Some(Inside::Calls(_)) => {}
            None if matches!(self.place, Cursor::Unread) => self.sink.content(text),
            // A response_template without a region for all other text leaves it out.
            None => {}
        }
    }

    /// Ends the field that the cursor is in, or the region of reasoning.
    fn close_field(&mut self, grammar: &Grammar, end: usize) {
        let region = match self.place {
            Cursor::Outside => grammar.implicit,
            Cursor::Inside(index) => Some(index),
            _ => None,
        };
        let Some(region) = region.map(|index| &grammar.regions[index]) else { return };
        if let Inside::Text(_) = region.inside
            && matches!(self.place, Cursor::Inside(_))
        {
            self.sink.region();
        }
        let Inside::Field(field) = &region.inside else { return };
        if std::mem::take(&mut self.has_opened) {
            self.end_field(region, field, end);
        }
        self.body.clear();
        self.captures.clear();
    }

    /// Makes the value of a field. Text that has no such value is content, with its markers.
    fn end_field(&mut self, region: &Region, field: &super::fields::Field, end: usize) {
        let value = field.value(&self.body, &self.captures, &mut self.fuel).and_then(|mut value| {
            if !self.tools.is_empty() {
                type_arguments(&mut value, &self.tools);
            }
            field.put(&mut self.sink.fields, value.clone())?;
            Ok(value)
        });
        if let (Some(voice), Ok(Json::String(text))) = (field.late_voice, &value) {
            match voice {
                Voice::Content => self.sink.content(text),
                Voice::Reasoning => self.sink.reasoning(text),
            }
        }
        let result = value.and_then(|value| match field.is_calls {
            true => super::fields::hand_out_calls(&value, &mut self.sink),
            false => Ok(()),
        });
        if let Err(reason) = result {
            let begin = self.kept_from.unwrap_or(end);
            let text = self.text(begin, end).to_string();
            self.sink.malformed(&text, format!("field {:?}: {reason}", region.name));
        }
    }

    // ---- calls ----

    /// Reads calls until the region ends or the text does.
    fn read_body(&mut self, grammar: &Grammar, index: usize) {
        let Cursor::Body(_, body) = &mut self.place else { return };
        let begin = self.at;
        let mut step = Step::More;
        let bytes = &self.buffer.as_bytes()[begin - self.base..];
        let mut at = begin;
        for &byte in bytes {
            step = body.step(at, byte, &mut self.sink);
            match step {
                Step::More => {}
                Step::CallEnded => self.kept_from = Some(at + 1),
                _ => break,
            }
            at += 1;
        }
        match step {
            Step::More | Step::CallEnded => {
                self.advance(at);
                self.done = at;
            }
            Step::EndedAt(end) => {
                self.advance(at);
                (self.at, self.done) = (end, end);
                self.end_calls(grammar, index);
            }
            Step::Bad(reason) => {
                // As it would be if the piece had ended here.
                body.hand_out(&mut self.sink);
                let at = self.base + self.buffer.floor_char_boundary(at - self.base);
                self.advance(at);
                self.break_off(at, reason);
            }
        }
    }

    fn end_calls(&mut self, grammar: &Grammar, index: usize) {
        self.sink.region();
        self.kept_from = None;
        match grammar.regions[index].close {
            Some(_) => {
                self.place = Cursor::Closing(index);
                self.reset_ends(Seeds::Here);
            }
            None => self.go_outside(),
        }
    }

    /// What was read of a region up to `end` is content.
    fn break_off(&mut self, end: usize, reason: String) {
        let begin = self.kept_from.unwrap_or(end).min(end);
        let text = self.text(begin, end).to_string();
        (self.at, self.done) = (end, end);
        if self.sink.has_call() || !text.trim().is_empty() {
            self.sink.malformed(&text, reason);
        }
        self.go_outside();
    }

    /// Acts on the end of the text. Whether there is more to read.
    fn read_end(&mut self, grammar: &Grammar) -> bool {
        let (end, sides) = (self.end(), Sides { before: self.char_before(self.end()), after: None });
        match &self.place {
            Cursor::Outside | Cursor::Inside(_) => {
                let inside = match self.place {
                    Cursor::Inside(region) => Some(region),
                    _ => None,
                };
                match inside {
                    Some(region) => {
                        if let Some(close) = &grammar.regions[region].close {
                            self.ends[0].end(close, end, sides, &mut self.fuel);
                        }
                    }
                    None => {
                        for (search, region) in self.searches.iter_mut().zip(&grammar.regions) {
                            if let Some(pattern) = region.open.as_ref().or(region.close.as_ref())
                                && search.decided().is_none()
                            {
                                search.end(pattern, end, sides, &mut self.fuel);
                            }
                        }
                    }
                }
                if let Some((meaning, region, found)) = self.decision(grammar, inside)
                    && (inside.is_some() || found.start < end)
                {
                    self.take(grammar, meaning, region, found);
                    return true;
                }
                self.write(end);
                self.close_field(grammar, end);
                self.go_outside();
                false
            }
            Cursor::Body(index, body) => {
                match body.is_complete() {
                    true => {
                        let index = *index;
                        self.end_calls(grammar, index);
                    }
                    false => self.break_off(end, "the answer ended within a call".to_string()),
                }
                self.done = end;
                false
            }
            Cursor::BetweenTags(..) | Cursor::TagValue(..) | Cursor::Closing(_) => {
                let [first, second] = tags::tag_patterns(grammar, &self.place);
                for (search, pattern) in self.ends.iter_mut().zip([first, second]) {
                    if let Some(pattern) = pattern {
                        search.end(pattern, end, sides, &mut self.fuel);
                    }
                }
                let found = self.ends.iter().position(|search| search.decided().is_some());
                match found.and_then(|which| Some((which, *self.ends[which].decided()?))) {
                    Some((which, found)) => self.act_on_tag(grammar, which, found),
                    None if matches!(self.place, Cursor::Closing(_)) => self.miss_tag(),
                    None => self.break_off(end, "the answer ended within a call".to_string()),
                }
                true
            }
            Cursor::Unread => {
                self.write(end);
                false
            }
        }
    }

    /// The markers need more work than the limits allow: the rest is content.
    fn give_up(&mut self) {
        if matches!(self.place, Cursor::Unread) {
            return;
        }
        let reason = format!(
            "the markers of the answer need more work than {} and {} per byte",
            limits::ANSWER_WORK,
            limits::ANSWER_WORK_PER_BYTE
        );
        let begin = self.kept_from.take().unwrap_or(self.done).min(self.at);
        let text = self.text(begin, self.at).to_string();
        self.sink.malformed(&text, reason);
        (self.done, self.place) = (self.at, Cursor::Unread);
    }

    /// Hands out what no marker can change.
    fn hand_out(&mut self) {
        match &mut self.place {
            Cursor::Body(_, body) => body.hand_out(&mut self.sink),
            Cursor::Outside => {
                let found = |search: &Search| search.pending().or(search.decided().map(|found| found.start));
                let held = self.searches.iter().filter_map(found).min();
                self.write(held.unwrap_or(self.at));
            }
            Cursor::Inside(_) => {
                let held = self.ends[0].pending();
                self.write(held.unwrap_or(self.at));
            }
            Cursor::Unread => self.write(self.at),
            Cursor::BetweenTags(..) | Cursor::TagValue(..) | Cursor::Closing(_) => {}
        }
    }

    /// Drops text that is needed no more, in pieces, so that each byte moves a bounded number of times.
    fn forget(&mut self) {
        let needed = self.kept_from.unwrap_or(self.done).min(self.done).min(self.at) - self.base;
        if needed == self.buffer.len() || needed > self.buffer.len() / 2 {
            self.before = self.buffer[..needed].chars().next_back().or(self.before);
            self.buffer.drain(..needed);
            self.base += needed;
        }
    }

    /// Reports fields that a template wants and that the answer does not have, and drops those that are empty.
    fn check_fields(&mut self) {
        let grammar = Arc::clone(&self.grammar);
        for region in &grammar.regions {
            if let Inside::Field(field) = &region.inside
                && field.is_required
                && !self.sink.fields.contains_key(&region.name)
            {
                self.sink.malformed("", format!("the answer has no field {:?}", region.name));
            }
        }
        self.sink.fields.retain(|name, value| grammar.defaults.contains_key(name) || !is_empty(value));
    }
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

impl Trim {
    /// Of a text field, by its argument `strip`.
    pub(super) fn of_strip(strip: bool) -> Trim {
        if strip { Trim::Both } else { Trim::Nothing }
    }
}
