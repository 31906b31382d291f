//! The operations of a template that copy, compare or make values, each of which asks the meter first.
//!
//! They replace the instructions of the template engine ([`metering`](super::metering)) and do what those do, with two exceptions.
//! `+` and `*` of lists and slices give lists rather than something that is computed each time it is walked, and slices with a negative step are
//! those of Python.

use super::meter::{ITEM_BYTES, Map, Meter, PAIR_BYTES, VALUE_BYTES, exceeded};
use super::objects::Characters;
use super::{costs, objects};
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

/// Bytes that a macro takes until the rendering ends, what it encloses included.
const MACRO_BYTES: u64 = 4096;

/// Work of calling a macro, or of beginning a loop.
const CALL: u64 = 128;

/// Makes the operations known under names that no template can write.
pub(super) fn add_to(environment: &mut Environment) {
    environment.add_filter("+", plus);
    environment.add_filter("*", times);
    environment.add_filter("~", join);
    environment.add_filter("==", |state: &mut State, a: &Value, b: &Value| compared(state, a, b).map(|()| a == b));
    environment.add_filter("!=", |state: &mut State, a: &Value, b: &Value| compared(state, a, b).map(|()| a != b));
    environment.add_filter("<", |state: &mut State, a: &Value, b: &Value| compared(state, a, b).map(|()| a < b));
    environment.add_filter("<=", |state: &mut State, a: &Value, b: &Value| compared(state, a, b).map(|()| a <= b));
    environment.add_filter(">", |state: &mut State, a: &Value, b: &Value| compared(state, a, b).map(|()| a > b));
    environment.add_filter(">=", |state: &mut State, a: &Value, b: &Value| compared(state, a, b).map(|()| a >= b));
    environment.add_filter("?in", contains);
    environment.add_filter("<=>", chained_comparison);
    environment.add_filter("[]", item);
    environment.add_filter("[:]", slice);
    environment.add_filter("[,]", list);
    environment.add_filter("(,)", tuple);
    environment.add_filter("{:}", map);
    environment.add_filter("**", keywords);
    environment.add_filter("*[]", arguments);
    environment.add_filter(".=", |state: &mut State, value: &Value, object: &Value, name: &str| {
        Meter::of(state).work(0)?;
        objects::set_attribute(state, value, object, name)
    });
    environment.add_filter(".()", |state: &mut State, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        match args.split_last() {
            Some((name, args)) => method(state, args, name.as_str().unwrap_or_default()),
            None => Err(Error::from(ErrorKind::MissingArgument)),
        }
    });
    environment.add_filter(".", |state: &mut State, name: &str| {
        Meter::of(state).method = name.to_owned();
    });
    environment.add_filter(".(*)", |state: &mut State, args: Rest<ValueOrKwargs>| {
        let name = std::mem::take(&mut Meter::of(state).method);
        method(state, &args.into_values(), &name)
    });
    environment.add_filter("=begin", |state: &mut State, input_bytes: u64| {
        let _ = state.get_or_insert_extension_with(|| Meter::new(input_bytes));
    });
    environment.add_filter("=kept", |state: &mut State, value: ValueOrKwargs| {
        let meter = Meter::of(state);
        meter.work(0)?;
        meter.keep(value.into_value())
    });
    environment.add_filter("=called", |state: &mut State, value: ValueOrKwargs| {
        let meter = Meter::of(state);
        meter.work(CALL)?;
        meter.keep(value.into_value())
    });
    environment.add_filter("=item", |state: &mut State, value: ValueOrKwargs| {
        Meter::of(state).work(0).map(|()| value.into_value())
    });
    environment.add_filter("=walked", |state: &mut State, value: Value| {
        // Its characters are counted when the loop begins; the keys of a namespace are copied.
        let text = value.to_str();
        let bytes = text.as_deref().map_or_else(|| value.len().unwrap_or(0), str::len) as u64;
        Meter::of(state).work(bytes.saturating_add(CALL))?;
        Ok::<_, Error>(text.map_or(value, |text| Value::from_object(Characters::new(text))))
    });
    environment.add_filter("=sifted", |state: &mut State, value: Value| {
        let items = value.as_str().map_or_else(|| value.len().unwrap_or(0), str::len) as u64;
        Meter::of(state).make(items.saturating_add(CALL), items * 4 * ITEM_BYTES).map(|()| value)
    });
    environment.add_filter("=unpacked", |state: &mut State, value: Value| {
        let items = value.as_object().and_then(|object| object.enumerator_len()).unwrap_or(0) as u64;
        Meter::of(state).make(items, items * 2 * ITEM_BYTES).map(|()| value)
    });
    environment
        .add_filter("=macro", |state: &mut State, value: Value| Meter::of(state).spend(MACRO_BYTES).map(|()| value));
    environment.add_filter("=include", |_: &mut State, _: &Value| -> Result<Value, Error> {
        let reason = "a chat template cannot load another one: include, import and extends are not supported";
        Err(Error::new(ErrorKind::TemplateNotFound, reason))
    });
}

fn unsupported(operator: &str, a: &Value, b: &Value) -> Error {
    let reason = format!("tried to use {operator} operator on unsupported types {} and {}", a.kind(), b.kind());
    Error::new(ErrorKind::InvalidOperation, reason)
}

fn failed(operator: &str, a: &Value, b: &Value) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("unable to calculate {a} {operator} {b}"))
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// A sum or a product of numbers; a truth value counts as 0 or 1.
fn number(
    operator: &str,
    a: &Value,
    b: &Value,
    of_integers: fn(i128, i128) -> Option<i128>,
    of_floats: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let is_float = |value: &Value| value.is_number() && !value.is_integer();
    let is_number = |value: &Value| value.is_number() || value.kind() == ValueKind::Bool;
    if !is_number(a) || !is_number(b) {
        return Err(unsupported(operator, a, b));
    }
    if is_float(a) || is_float(b) {
        let float = |value: &Value| match i128::try_from(value.clone()) {
            Ok(integer) if !is_float(value) => integer as f64,
            _ => f64::try_from(value.clone()).unwrap_or(f64::NAN),
        };
        return Ok(Value::from(of_floats(float(a), float(b))));
    }
    let (Ok(first), Ok(second)) = (i128::try_from(a.clone()), i128::try_from(b.clone())) else {
        return Err(unsupported(operator, a, b));
    };
    let result = of_integers(first, second).ok_or_else(|| failed(operator, a, b))?;
    Ok(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from))
}

fn plus(state: &mut State, a: &Value, b: &Value) -> Result<Value, Error> {
    let meter = Meter::of(state);
    if a.is_tuple() != b.is_tuple() {
        return Err(unsupported("+", a, b));
    }
    if is_list(a) && is_list(b) {
        let items = (a.len().unwrap_or(0) + b.len().unwrap_or(0)) as u64;
        meter.make(items, items * ITEM_BYTES)?;
        let mut sum = Vec::new();
        for item in a.try_iter()?.checked().chain(b.try_iter()?.checked()) {
            sum.push(item?);
        }
        return meter.keep(if a.is_tuple() { Value::from(Tuple::from(sum)) } else { Value::from(sum) });
    }
    if let (Some(first), Some(second)) = (a.as_str(), b.as_str()) {
        let bytes = (first.len() + second.len()) as u64;
        meter.make(bytes, 2 * bytes)?;
        return meter.keep(Value::from([first, second].concat()));
    }
    meter.work(0)?;
    number("+", a, b, i128::checked_add, |a, b| a + b)
}

fn times(state: &mut State, a: &Value, b: &Value) -> Result<Value, Error> {
    let meter = Meter::of(state);
    let wrong =
        |what: &str| Error::new(ErrorKind::InvalidOperation, format!("{what} can only be multiplied with integers"));
    let texts = a.as_str().map(|text| (text, b)).or_else(|| b.as_str().map(|text| (text, a)));
    if let Some((text, count)) = texts {
        let count = count.as_usize().ok_or_else(|| wrong("strings"))?;
        let bytes = (text.len() as u64).saturating_mul(count as u64);
        meter.make(bytes, bytes.saturating_mul(2))?;
        return meter.keep(Value::from(text.repeat(count)));
    }
    if is_list(a) || is_list(b) {
        let (list, count) = if is_list(a) { (a, b) } else { (b, a) };
        let count = count.as_usize().ok_or_else(|| wrong("sequences and iterables"))?;
        let items: Vec<Value> = list.try_iter()?.collect();
        let all = (items.len() as u64).saturating_mul(count as u64);
        meter.make(all, all.saturating_mul(ITEM_BYTES))?;
        let repeated: Vec<Value> = std::iter::repeat_n(&items, count).flatten().cloned().collect();
        return meter.keep(if list.is_tuple() { Value::from(Tuple::from(repeated)) } else { Value::from(repeated) });
    }
    meter.work(0)?;
    number("*", a, b, i128::checked_mul, |a, b| a * b)
}

fn join(state: &mut State, a: &Value, b: &Value) -> Result<Value, Error> {
    let meter = Meter::of(state);
    let bytes = meter.written(a)?.saturating_add(meter.written(b)?);
    meter.make(bytes, bytes.saturating_mul(2))?;
    meter.keep(Value::from(format!("{a}{b}")))
}

/// Asks for what a comparison of two values takes.
fn compared(state: &mut State, a: &Value, b: &Value) -> Result<(), Error> {
    let meter = Meter::of(state);
    let (work, bytes) = costs::of_comparison(meter, a, b)?;
    meter.make(work, bytes)
}

fn contains(state: &mut State, value: &Value, container: &Value) -> Result<bool, Error> {
    let meter = Meter::of(state);
    let (work, bytes) = costs::of_search(meter, value, container)?;
    meter.make(work, bytes)?;
    minijinja::tests::is_in(state, value, container)
}

/// One comparison of `a < b < c`: its answer, and the right side for the next one.
fn chained_comparison(state: &mut State, a: &Value, b: &Value, name: &str) -> Result<Value, Error> {
    let kind = name.trim_start_matches("CompareAndPreserve(").trim_end_matches(')');
    let answer = match kind {
        "In" => contains(state, a, b)?,
        "NotIn" => !contains(state, a, b)?,
        _ => {
            compared(state, a, b)?;
            match kind {
                "Eq" => a == b,
                "Ne" => a != b,
                "Lt" => a < b,
                "Lte" => a <= b,
                "Gt" => a > b,
                _ => a >= b,
            }
        }
    };
    Ok(Value::from(Tuple::from([Value::from(answer), b.clone()])))
}

fn item(state: &mut State, object: &Value, key: &Value) -> Result<Value, Error> {
    let meter = Meter::of(state);
    let walked = match object.kind() {
        ValueKind::String => object.as_str().map_or(0, str::len) as u64,
        ValueKind::Iterable => object.len().unwrap_or(0) as u64,
        _ => 0,
    };
    let key_weight = meter.weight(key)?;
    meter.work(walked.saturating_add(key_weight))?;
    object.get_item(key)
}

/// The places that a slice takes from `length` items, as in Python.
fn places(length: usize, start: &Value, stop: &Value, step: i64) -> Result<impl Iterator<Item = usize>, Error> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let bound = |bound: &Value, missing: i64| -> Result<i64, Error> {
        if bound.is_none() {
            return Ok(missing);
        }
        let place = i64::try_from(bound.clone())?;
        Ok(if place < 0 { place.saturating_add(length).max(lowest) } else { place.min(highest) })
    };
    let (start, stop) =
        if step > 0 { (bound(start, 0)?, bound(stop, length)?) } else { (bound(start, length - 1)?, bound(stop, -1)?) };
    let distance = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    let size = i64::try_from(step.unsigned_abs()).unwrap_or(i64::MAX);
    let count = if distance > 0 { (distance - 1) / size + 1 } else { 0 };
    Ok((0..count).map(move |nth| usize::try_from(start + nth * step).unwrap_or(0)))
}

fn slice(state: &mut State, value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    let meter = Meter::of(state);
    let step = if step.is_none() { 1 } else { i64::try_from(step.clone())? };
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "cannot slice by step size of 0"));
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            let bytes = text.len() as u64;
            meter.make(2 * bytes, 2 * bytes)?;
            let length = text.chars().count();
            if step == 1 {
                let mut taken = places(length, start, stop, step)?;
                let first = taken.next();
                let count = first.map_or(0, |_| 1 + taken.count());
                let sliced: String = text.chars().skip(first.unwrap_or(0)).take(count).collect();
                return meter.keep(Value::from(sliced));
            }
            meter.room(6 * bytes)?;
            let characters: Vec<char> = text.chars().collect();
            let sliced: String = places(length, start, stop, step)?.map(|place| characters[place]).collect();
            meter.keep(Value::from(sliced))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.len().unwrap_or(0) as u64;
            meter.make(items, 2 * items * ITEM_BYTES)?;
            let items: Vec<Value> = value.try_iter()?.collect();
            let sliced = places(items.len(), start, stop, step)?.map(|place| items[place].clone());
            let sliced: Vec<Value> = sliced.collect();
            meter.keep(if value.is_tuple() { Value::from(Tuple::from(sliced)) } else { Value::from(sliced) })
        }
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("value of type {kind} cannot be sliced"))),
    }
}

/// A list, or some arguments of a call, the last of which may be keyword arguments.
fn list(state: &mut State, items: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let meter = Meter::of(state);
    meter.make(items.len() as u64, items.len() as u64 * ITEM_BYTES)?;
    meter.keep(Value::from(items.into_values()))
}

fn tuple(state: &mut State, items: Rest<Value>) -> Result<Value, Error> {
    let meter = Meter::of(state);
    meter.make(items.len() as u64, items.len() as u64 * ITEM_BYTES)?;
    meter.keep(Value::from(Tuple::from(items.0)))
}

fn map(state: &mut State, pairs: Rest<Value>) -> Result<Value, Error> {
    let meter = Meter::of(state);
    let mut map = Map::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks_exact(2) {
        // A key is hashed, and compared with those of the same hash.
        let weight = meter.weight(&pair[0])?;
        meter.make(weight.saturating_mul(2), PAIR_BYTES)?;
        map.insert(pair[0].clone(), pair[1].clone());
    }
    meter.keep(Value::from_object(map))
}

/// Keyword arguments of several dicts.
fn keywords(state: &mut State, dicts: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let meter = Meter::of(state);
    let mut keywords: Vec<(String, Value)> = Vec::new();
    for dict in dicts.into_values() {
        let pairs =
            dict.as_object().filter(|_| dict.kind() == ValueKind::Map).and_then(|object| object.try_iter_pairs());
        let pairs = pairs.ok_or_else(|| {
            let reason = format!("attempted to apply keyword arguments from non map (got {})", dict.kind());
            Error::new(ErrorKind::InvalidOperation, reason)
        })?;
        for (key, value) in pairs {
            let key = key
                .as_str()
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "names of keyword arguments must be strings"))?;
            meter.make(key.len() as u64, (keywords.len() as u64 + 1) * 2 * PAIR_BYTES + key.len() as u64)?;
            keywords.push((key.to_owned(), value));
        }
    }
    Ok(Value::from(keywords.into_iter().collect::<Kwargs>()))
}

/// Positional arguments of several lists, as one list. The last one may hold keyword arguments.
fn arguments(state: &mut State, lists: Rest<Value>) -> Result<Value, Error> {
    let meter = Meter::of(state);
    let mut arguments = Vec::new();
    for list in lists.0 {
        for argument in list.try_iter()?.checked() {
            meter.make(1, (arguments.len() as u64 + 1) * 4 * ITEM_BYTES)?;
            arguments.push(argument?);
        }
    }
    if arguments.len() > usize::from(u16::MAX) {
        return Err(exceeded(format!("a call has at most {} arguments", u16::MAX)));
    }
    Ok(Value::from(arguments))
}

/// `args[0].name(args[1..])`.
fn method(state: &mut State, args: &[Value], name: &str) -> Result<Value, Error> {
    let Some((object, rest)) = args.split_first() else {
        return Err(Error::from(ErrorKind::MissingArgument));
    };
    let (work, bytes) = costs::of_method(Meter::of(state), name, args)?;
    Meter::of(state).make(work, bytes)?;
    let result = object.call_method(state, name, rest)?;
    let meter = Meter::of(state);
    if object.kind() == ValueKind::Plain {
        meter.room(VALUE_BYTES)?;
    }
    meter.keep(result)
}
