//! What filters, tests and methods take at most: work, and bytes of values.
//!
//! The figures are bounds for the version of the template engine that Cargo.toml names. A name that is not listed costs as
//! much as reading its arguments, and makes no more than a copy of them.

use super::meter::{ITEM_BYTES, Meter, PAIR_BYTES, VALUE_BYTES};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

/// Work, and bytes of values.
pub(super) type Cost = (u64, u64);

/// The most bytes that one format directive writes besides the text of its value and its width.
const DIRECTIVE_BYTES: u64 = 512;

/// What `args[0] | name(args[1..])` takes.
pub(super) fn of_filter(meter: &mut Meter, name: &str, args: &[Value]) -> Result<Cost, Error> {
    let Some((subject, rest)) = args.split_first() else { return Ok((0, 0)) };
    match name {
        "join" => join(meter, subject, rest.first(), rest),
        "format" => format(meter, subject, rest, '%'),
        "map" | "select" | "reject" | "selectattr" | "rejectattr" => {
            let items = items(subject);
            let named = weights(meter, rest)?;
            Ok((items.saturating_mul(named), items * 2 * ITEM_BYTES))
        }
        "chain" | "zip" => {
            let mut all = 0;
            for list in args {
                all += items(list);
            }
            Ok((4 * all, all * (VALUE_BYTES + 2 * ITEM_BYTES * args.len() as u64)))
        }
        // Reads an attribute, a condition or nothing.
        "default" | "d" | "attr" | "safe" | "bool" => Ok((weights(meter, rest)?, text_bytes(subject))),
        // Of lists and dicts, the length and the ends are known.
        "first" | "last" | "length" | "count" => match subject.kind() {
            ValueKind::Seq | ValueKind::Map => Ok((0, 0)),
            _ => Ok((items(subject), 0)),
        },
        // Counts for itself, with its indentation and its separators.
        "tojson" => Ok((0, 0)),
        "items" => Ok((items(subject), items(subject) * (PAIR_BYTES + VALUE_BYTES))),
        _ => of_either(meter, name, subject, rest),
    }
}

/// What `args[0].name(args[1..])` takes.
pub(super) fn of_method(meter: &mut Meter, name: &str, args: &[Value]) -> Result<Cost, Error> {
    let Some((subject, rest)) = args.split_first() else { return Ok((0, 0)) };
    match (subject.kind(), name) {
        (ValueKind::String, "join") => match rest.first() {
            Some(list) => join(meter, list, Some(subject), rest),
            None => Ok((0, 0)),
        },
        (ValueKind::String, "format") => format(meter, subject, rest, '{'),
        (ValueKind::String, _) => of_either(meter, name, subject, rest),
        (ValueKind::Map, "keys" | "values" | "items") => {
            Ok((items(subject), items(subject) * (PAIR_BYTES + VALUE_BYTES)))
        }
        (ValueKind::Seq | ValueKind::Iterable, "count") => {
            Ok((meter.weight(subject)?.saturating_add(weights(meter, rest)?), 0))
        }
        // Macros of a namespace, `get`, methods of loops: none of them looks further than its arguments.
        _ => Ok((weights(meter, rest)?, 0)),
    }
}

/// What a comparison of two values takes.
pub(super) fn of_comparison(meter: &mut Meter, a: &Value, b: &Value) -> Result<Cost, Error> {
    let weight = meter.weight(a)?.min(meter.weight(b)?);
    // Objects without a length or an order are compared as they print.
    Ok((weight, if a.kind() == ValueKind::Plain { weight.saturating_mul(8) } else { 0 }))
}

/// What looking for a value in a text, a list or a dict takes.
pub(super) fn of_search(meter: &mut Meter, value: &Value, container: &Value) -> Result<Cost, Error> {
    let sought = meter.written(value)?;
    Ok(match container.kind() {
        // Hashed, and compared with those of the same hash.
        ValueKind::Map => (sought.saturating_mul(2), 0),
        ValueKind::String => (sought.saturating_add(text_bytes(container)), sought.saturating_mul(2)),
        _ => (sought.saturating_add(meter.weight(container)?), 0),
    })
}

/// What a test takes.
pub(super) fn of_test(meter: &mut Meter, name: &str, args: &[Value]) -> Result<Cost, Error> {
    if let [value, other] = args {
        if name == "in" {
            return of_search(meter, value, other);
        }
        if !matches!(name, "startingwith" | "endingwith") {
            return of_comparison(meter, value, other);
        }
    }
    let mut written = 0u64;
    for arg in args {
        written = written.saturating_add(meter.written(arg)?);
    }
    Ok((written, written.saturating_mul(2)))
}

fn of_either(meter: &mut Meter, name: &str, subject: &Value, rest: &[Value]) -> Result<Cost, Error> {
    let written = meter.written(subject)?;
    let named = weights(meter, rest)?;
    let read = written.saturating_add(named);
    let cost = match name {
        "upper" | "lower" | "title" | "capitalize" => (3 * read, 8 * written),
        "escape" | "e" => (2 * read, 12 * written),
        "trim" | "strip" | "lstrip" | "rstrip" => {
            let characters = rest.first().and_then(Value::as_str).map_or(0, str::len) as u64;
            (read.saturating_add(written.saturating_mul(characters)), 2 * written + 4 * characters)
        }
        "replace" => {
            let text = |place: usize| rest.get(place).and_then(Value::as_str).unwrap_or_default();
            let found = match subject.as_str() {
                Some(subject) => subject.matches(text(0)).count() as u64,
                None => written,
            };
            let mut longest = text(1).len() as u64;
            if let Some(new) = rest.get(1).filter(|new| new.as_str().is_none()) {
                longest = meter.written(new)?;
            }
            let bytes = written.saturating_add(found.saturating_mul(longest));
            (read.saturating_add(bytes), bytes.saturating_mul(3))
        }
        "split" | "rsplit" | "lines" | "splitlines" | "partition" | "rpartition" => {
            let pieces = match (subject.as_str(), rest.first().and_then(Value::as_str)) {
                (Some(subject), Some(separator)) => subject.matches(separator).count() as u64,
                (Some(subject), None) => {
                    subject.chars().filter(|character| character.is_whitespace() || character.is_control()).count()
                        as u64
                }
                (None, _) => written,
            };
            (2 * read + pieces, 2 * written + (pieces + 3) * (VALUE_BYTES + 2 * ITEM_BYTES))
        }
        "indent" => {
            let lines = 1 + subject.as_str().map_or(written, |text| text.matches('\n').count() as u64);
            let width = numbers(rest).saturating_add(named);
            let bytes = written.saturating_add(lines.saturating_mul(width));
            (read.saturating_add(bytes), bytes.saturating_mul(3))
        }
        "batch" | "slice" => {
            let all = items(subject).saturating_add(numbers(rest));
            (all, all.saturating_mul(VALUE_BYTES + 3 * ITEM_BYTES))
        }
        "sort" | "min" | "max" | "unique" | "groupby" | "dictsort" => {
            let weight = meter.weight(subject)?;
            let items = items(subject);
            let rounds = u64::from(items.max(1).ilog2()) + 2;
            let compared = weight.saturating_add(items.saturating_mul(named));
            let bytes = items * (VALUE_BYTES + PAIR_BYTES) + 4 * weight.min(u64::MAX / 16);
            (compared.saturating_mul(2 * rounds), bytes)
        }
        "sum" => {
            // Texts are added one by one, and lists too.
            let weight = meter.weight(subject)?;
            let items = items(subject);
            let mut is_numbers = subject.as_str().is_none() && rest.is_empty();
            for item in subject.try_iter().into_iter().flatten() {
                is_numbers &= item.is_number();
            }
            if is_numbers { (items, 0) } else { (weight.saturating_mul(items), weight.saturating_mul(4)) }
        }
        "pprint" => {
            let shape = meter.shape(subject)?;
            let depth = u64::from(shape.depth) + 1;
            // Every value stands on a line of its own, indented by its depth, and every level passes the text on.
            let bytes = written.saturating_mul(2).saturating_add(shape.weight.saturating_mul(depth));
            (bytes.saturating_mul(depth), bytes.saturating_mul(3))
        }
        "list" | "reverse" | "string" => {
            let items = items(subject);
            (read.saturating_add(items), written.saturating_mul(2) + items * 2 * ITEM_BYTES)
        }
        // Of texts: `find`, `count`, `startswith`, `isdigit`, `removeprefix`. Of numbers: `abs`, `int`, `float`, `round`.
        _ => (2 * read, written.saturating_mul(2)),
    };
    // Arguments that are no texts are written before they are used.
    let mut named = 0u64;
    for argument in rest {
        named = named.saturating_add(meter.written(argument)?);
    }
    Ok((cost.0.saturating_add(named), cost.1.saturating_add(named.saturating_mul(2))))
}

fn join(meter: &mut Meter, list: &Value, separator: Option<&Value>, rest: &[Value]) -> Result<Cost, Error> {
    let items = items(list);
    let mut bytes = match separator {
        Some(separator) => meter.written(separator)?.saturating_mul(items),
        None => 0,
    };
    if let Some(text) = list.as_str() {
        bytes = bytes.saturating_add(text.len() as u64);
    } else if list.as_object().is_some() {
        for item in list.try_iter()?.checked() {
            let written = meter.written(&item?)?;
            bytes = bytes.saturating_add(written);
        }
    }
    let named = weights(meter, rest)?.saturating_mul(items);
    Ok((bytes.saturating_add(items).saturating_add(named), bytes.saturating_mul(2)))
}

/// `printf` or `str.format`: every directive may write every argument, as wide as any number says.
fn format(meter: &mut Meter, format: &Value, rest: &[Value], directive: char) -> Result<Cost, Error> {
    let text = format.as_str().unwrap_or_default();
    let directives = text.matches(directive).count() as u64;
    let mut widest = 0u64;
    let mut number = 0u64;
    for byte in text.bytes() {
        number =
            if byte.is_ascii_digit() { number.saturating_mul(10).saturating_add(u64::from(byte - b'0')) } else { 0 };
        widest = widest.max(number);
    }
    if text.contains('*') || text.matches('{').count() != text.matches('}').count() || text.contains(":{") {
        widest = widest.saturating_add(numbers(rest));
    }
    let mut written = 0u64;
    for argument in rest {
        written = written.saturating_add(meter.written(argument)?);
    }
    // As it would stand in a program, a control character takes ten.
    if text.contains('!') || text.contains("%r") || text.contains("%a") {
        written = written.saturating_mul(10);
    }
    let each = written.saturating_add(widest.saturating_mul(4)).saturating_add(DIRECTIVE_BYTES);
    let bytes = (text.len() as u64).saturating_add(directives.saturating_mul(each));
    Ok((bytes.saturating_add(weights(meter, rest)?), bytes.saturating_mul(2)))
}

/// How many steps a walk through a value has.
fn items(value: &Value) -> u64 {
    match value.as_str() {
        Some(text) => text.len() as u64,
        None => value.len().unwrap_or(0) as u64,
    }
}

fn text_bytes(value: &Value) -> u64 {
    value.as_str().map_or(0, str::len) as u64
}

fn weights(meter: &mut Meter, values: &[Value]) -> Result<u64, Error> {
    let mut sum = 0u64;
    for value in values {
        sum = sum.saturating_add(meter.weight(value)?);
    }
    Ok(sum)
}

/// All numbers among arguments, those with names included, added.
fn numbers(args: &[Value]) -> u64 {
    let number = |value: &Value| match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).map_or(u64::MAX, |number| number.abs() as u64),
        _ => 0,
    };
    args.iter().fold(0u64, |sum, arg| {
        let named = match arg.as_object().filter(|_| arg.is_kwargs()).and_then(|object| object.try_iter_pairs()) {
            Some(pairs) => pairs.fold(0u64, |sum, (_, value)| sum.saturating_add(number(&value))),
            None => number(arg),
        };
        sum.saturating_add(named)
    })
}
