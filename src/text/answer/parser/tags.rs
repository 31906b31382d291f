//! Calls that are written as tags: a name, then a tag for each argument.

use super::*;

impl AnswerParser {
    /// Reads the markers of arguments, and the end of a region with calls.
    pub(super) fn read_tags(&mut self, grammar: &Grammar) {
        while self.at < self.end() {
            let [first, second] = tag_patterns(grammar, &self.place);
            let Some(first) = first else { return };
            if let Cursor::TagValue(..) = self.place
                && self.ends[0].is_idle()
            {
                let rest = &self.buffer.as_bytes()[self.at - self.base..];
                let skipped = rest.iter().position(|&byte| first.may_begin(byte)).unwrap_or(rest.len());
                if skipped > 0 {
                    self.advance(self.at + skipped);
                    continue;
                }
            }
            let Some(char) = self.char_at(self.at) else { return };
            let before = self.char_before(self.at);
            for byte in Byte::of_char(char, self.at, before) {
                self.ends[0].step(first, byte, &mut self.fuel);
                if let Some(second) = second {
                    self.ends[1].step(second, byte, &mut self.fuel);
                }
            }
            self.advance(self.at + char.len_utf8());
            if self.fuel.is_empty() || self.decide_tags(grammar) {
                return;
            }
        }
    }

    /// Acts on a marker of arguments, or on its absence. Whether there was something to act on.
    pub(super) fn decide_tags(&mut self, grammar: &Grammar) -> bool {
        let [first, second] = &self.ends;
        let pending = [first.pending(), second.pending()].into_iter().flatten().min();
        let found = [first.decided(), second.decided()];
        let which = match found {
            [Some(_), _] if pending.is_none() => 0,
            [None, Some(_)] if pending.is_none() => 1,
            _ => {
                let is_over = first.is_dead(self.at) && (second.is_dead(self.at) || second_is_unused(&self.place));
                if is_over {
                    self.miss_tag();
                }
                return is_over;
            }
        };
        let Some(found) = found[which].copied() else { return false };
        self.act_on_tag(grammar, which, found);
        true
    }

    /// None of the markers is here that may be.
    pub(super) fn miss_tag(&mut self) {
        match &self.place {
            Cursor::Closing(_) => {
                self.at = self.done;
                self.go_outside();
            }
            _ => {
                let reason = "neither a further argument nor the end of the call".to_string();
                self.break_off(self.ends[0].origin(), reason);
            }
        }
    }

    pub(super) fn act_on_tag(&mut self, grammar: &Grammar, which: usize, found: Match) {
        (self.at, self.done) = (found.end, found.end);
        match std::mem::replace(&mut self.place, Cursor::Outside) {
            Cursor::BetweenTags(index, call) => {
                let Inside::Calls(Calls::Tags(tags)) = &grammar.regions[index].inside else { return };
                if !self.sink.has_call() {
                    if self.sink.calls_begun() >= limits::ANSWER_CALLS {
                        return self.break_off(found.end, format!("more than {} calls", limits::ANSWER_CALLS));
                    }
                    self.sink.begin_call(&call.name);
                    self.sink.arguments("{");
                }
                if which == 1 {
                    self.sink.arguments("}");
                    if let Err(reason) = self.sink.end_call(call.id.as_deref()) {
                        return self.break_off(found.end, reason);
                    }
                    self.sink.region();
                    return self.go_outside();
                }
                let value = self.tag_value(tags, found);
                self.place = Cursor::TagValue(index, call, value);
                self.reset_ends(Seeds::Everywhere);
            }
            Cursor::TagValue(index, mut call, value) => {
                let Inside::Calls(Calls::Tags(tags)) = &grammar.regions[index].inside else { return };
                let text = self.text(value.start, found.start);
                let json = tag_json(&self.tools, tags, &call, &value, text);
                let comma = if call.arguments > 0 { "," } else { "" };
                self.sink.arguments(&format!("{comma}{}:{json}", Json::from(value.key)));
                call.arguments += 1;
                self.place = Cursor::BetweenTags(index, call);
                self.reset_ends(Seeds::Here);
            }
            Cursor::Closing(_) => self.go_outside(),
            other => self.place = other,
        }
    }

    pub(super) fn tag_value(&mut self, tags: &Tags, found: Match) -> TagValue {
        let groups = self.groups(&tags.parameter, found);
        let group = |name| groups.get(&tags.parameter, name).map(|(begin, end)| self.text(begin, end).trim());
        TagValue {
            key: group("key").unwrap_or_default().to_string(),
            is_string: group("string").map(|word| word == "true"),
            start: found.end,
        }
    }

    // ---- the end, and limits ----
}

/// The markers that may be at the cursor: of an argument and of the end, or one of them.
pub(super) fn tag_patterns<'g>(grammar: &'g Grammar, place: &Cursor) -> [Option<&'g Pattern>; 2] {
    let tags = |index: usize| match &grammar.regions[index].inside {
        Inside::Calls(Calls::Tags(tags)) => Some(tags),
        _ => None,
    };
    match place {
        Cursor::BetweenTags(index, _) => match tags(*index) {
            Some(tags) => [Some(&tags.parameter), Some(&tags.end)],
            None => [None, None],
        },
        Cursor::TagValue(index, ..) => [tags(*index).map(|tags| &tags.value_end), None],
        Cursor::Closing(index) => [grammar.regions[*index].close.as_ref(), None],
        _ => [None, None],
    }
}

fn second_is_unused(place: &Cursor) -> bool {
    !matches!(place, Cursor::BetweenTags(..))
}

/// The JSON text of a value between markers.
fn tag_json(tools: &Tools, tags: &Tags, call: &TagCall, value: &TagValue, text: &str) -> Json {
    if let Some(is_string) = value.is_string {
        return match is_string {
            true => Json::from(text),
            false => super::super::value::json(text).unwrap_or_else(|| Json::from(text)),
        };
    }
    let types = tools.types(&call.name, &value.key);
    match (types.is_empty(), tags.untyped) {
        (false, _) => typed(text, &types),
        (true, Untyped::String) => Json::from(text),
        (true, Untyped::Json) => super::super::value::json(text).unwrap_or_else(|| Json::from(text)),
    }
}
