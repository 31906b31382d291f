//! The instructions of a compiled template, with those replaced that could do any amount of work at once.
//!
//! The template engine counts instructions, but `a ~ b` is one of them whatever `a` and `b` are. So each operation that copies,
//! compares or makes values becomes a call of a filter of [`operators`](super::operators), whose name no template can write,
//! and which asks the [`meter`](super::meter) first. What is left to the engine takes a bounded time per instruction.

use minijinja::Value;
use minijinja::machinery::{Instruction, Instructions};

/// A filter's place among those of its template is not kept.
const NO_PLACE: u8 = !0;

/// The flag of a loop whose body knows `loop`.
const WITH_LOOP: u8 = 1;

/// The same program, metered. The main one, which runs first, tells the meter of how many bytes the variables were made.
pub(super) fn metered<'source>(plain: &Instructions<'source>, input_bytes: Option<u64>) -> Instructions<'source> {
    let mut writer = Writer { metered: Instructions::new(plain.name(), plain.source()), length: 0, at: 0 };
    let mut places = Vec::new();
    if let Some(bytes) = input_bytes {
        let begin = Instruction::ApplyFilter("=begin", Some(1), NO_PLACE);
        for instruction in [Instruction::LoadConst(Value::from(bytes)), begin, Instruction::DiscardTop] {
            writer.add(plain, instruction);
        }
    }
    while let Some(instruction) = plain.get(writer.at) {
        places.push(writer.length);
        writer.write(plain, instruction);
        writer.at += 1;
    }
    places.push(writer.length);
    for at in 0..writer.length {
        if let Some(
            Instruction::Jump(target)
            | Instruction::JumpIfFalse(target)
            | Instruction::JumpIfFalseOrPop(target)
            | Instruction::JumpIfTrueOrPop(target)
            | Instruction::Iterate(target)
            | Instruction::BuildMacro(_, target, _),
        ) = writer.metered.get_mut(at)
        {
            *target = places[*target as usize];
        }
    }
    writer.metered
}

struct Writer<'source> {
    metered: Instructions<'source>,
    /// Instructions in `metered`.
    length: u32,
    /// The instruction of the plain program that is being written.
    at: u32,
}

impl<'source> Writer<'source> {
    fn add(&mut self, plain: &Instructions<'source>, instruction: Instruction<'source>) {
        match (plain.get_span(self.at), plain.get_line(self.at)) {
            (Some(span), _) => self.metered.add_with_span(instruction, span),
            (None, Some(line)) => self.metered.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX)),
            (None, None) => self.metered.add(instruction),
        };
        self.length += 1;
    }

    fn write(&mut self, plain: &Instructions<'source>, instruction: &Instruction<'source>) {
        use Instruction as I;
        let filter = |name: &'static str, arguments: Option<usize>| {
            I::ApplyFilter(name, arguments.map(|count| u16::try_from(count).unwrap_or(u16::MAX)), NO_PLACE)
        };
        let constant = |text: &str| I::LoadConst(Value::from(text));
        let written = match instruction {
            I::EmitRaw(text) => vec![constant(text), I::Emit],
            I::LoadConst(value) if value.as_object().is_some() && !value.is_kwargs() => {
                vec![I::LoadConst(value.clone()), filter("=kept", Some(1))]
            }
            I::Add => vec![filter("+", Some(2))],
            I::Mul => vec![filter("*", Some(2))],
            I::StringConcat => vec![filter("~", Some(2))],
            I::Eq => vec![filter("==", Some(2))],
            I::Ne => vec![filter("!=", Some(2))],
            I::Lt => vec![filter("<", Some(2))],
            I::Lte => vec![filter("<=", Some(2))],
            I::Gt => vec![filter(">", Some(2))],
            I::Gte => vec![filter(">=", Some(2))],
            I::In => vec![filter("?in", Some(2))],
            // Leaves the right side and then the answer, as the engine does; an answer is unpacked backwards.
            I::CompareAndPreserve(_) => {
                // The kinds of comparison have names, but no type that could be named here.
                vec![constant(&format!("{instruction:?}")), filter("<=>", Some(3)), I::UnpackList(2)]
            }
            I::GetItem => vec![filter("[]", Some(2))],
            I::Slice => vec![filter("[:]", Some(4))],
            I::BuildList(count) => vec![filter("[,]", *count)],
            I::BuildTuple(count) => vec![filter("(,)", *count)],
            I::BuildMap(pairs) => vec![filter("{:}", Some(2 * pairs))],
            I::MergeKwargs(count) => vec![filter("**", Some(*count))],
            I::UnpackList(count) => vec![filter("=unpacked", Some(1)), I::UnpackList(*count)],
            I::UnpackLists(count) => vec![filter("*[]", Some(*count)), I::UnpackLists(1)],
            I::SetAttr(name) => vec![constant(name), filter(".=", Some(3)), I::DiscardTop],
            // A loop without `loop` puts aside what fulfils its condition, to walk it in another one.
            I::PushLoop(flags) if flags & WITH_LOOP == 0 => vec![filter("=sifted", Some(1)), I::PushLoop(*flags)],
            I::PushLoop(flags) => vec![filter("=walked", Some(1)), I::PushLoop(*flags)],
            I::FastRecurse => vec![filter("=walked", Some(1)), I::FastRecurse],
            I::Iterate(target) => vec![I::Iterate(*target), filter("=item", Some(1))],
            I::EndCapture => vec![I::EndCapture, filter("=kept", Some(1))],
            I::BuildMacro(name, offset, flags) => {
                vec![I::BuildMacro(name, *offset, *flags), filter("=macro", Some(1))]
            }
            I::CallFunction(name, count) => vec![I::CallFunction(name, *count), filter("=called", Some(1))],
            I::CallObject(count) => vec![I::CallObject(*count), filter("=called", Some(1))],
            I::CallMethod(name, Some(count)) => {
                vec![constant(name), filter(".()", Some(usize::from(*count) + 1))]
            }
            I::CallMethod(name, None) => {
                // The number of arguments is on top of them, so that the name is passed beforehand.
                vec![constant(name), filter(".", Some(1)), I::DiscardTop, filter(".(*)", None)]
            }
            I::Include(_) | I::LoadBlocks => vec![filter("=include", Some(1)), I::DiscardTop],
            other => vec![other.clone()],
        };
        for instruction in written {
            self.add(plain, instruction);
        }
    }
}
