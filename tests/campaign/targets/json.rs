//! JSON that is made or changed as a tree.

use crate::random::Rng;
use serde_json::{Map, Value};

/// Any JSON of a few levels.
pub fn make(rng: &mut Rng, depth: usize) -> Value {
    let leaf = depth == 0 || rng.one_in(3);
    match rng.below(if leaf { 6 } else { 10 }) {
        0 => Value::Null,
        1 => Value::Bool(rng.one_in(2)),
        2 | 3 => number(rng),
        4 => Value::String(rng.text(40)),
        5 => Value::String(rng.word()),
        6 | 7 => (0..rng.length(6)).map(|_| make(rng, depth - 1)).collect(),
        _ => (0..rng.length(6)).map(|_| (rng.word(), make(rng, depth - 1))).collect(),
    }
}

/// A number that is a border of something.
pub fn number(rng: &mut Rng) -> Value {
    serde_json::from_str(&rng.odd_number()).unwrap_or(Value::Null)
}

/// Changes some places of a tree; `names` are keys and strings that mean something to the reader.
pub fn mutate(rng: &mut Rng, value: &mut Value, names: &[&str]) {
    for _ in 0..rng.between(1, 3) {
        let places = count(value);
        let at = rng.below(places);
        change(rng, place(value, at), names);
    }
}

/// Nodes of a tree.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The node at a place, depth first.
fn place(value: &mut Value, at: usize) -> &mut Value {
    if at == 0 {
        return value;
    }
    let mut at = at - 1;
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => unreachable!("a leaf has one node"),
    };
    for child in children {
        let nodes = count(child);
        if at < nodes {
            return place(child, at);
        }
        at -= nodes;
    }
    unreachable!("the place is within the tree")
}

fn change(rng: &mut Rng, value: &mut Value, names: &[&str]) {
    match (rng.below(10), &mut *value) {
        (0..3, Value::Object(fields)) if !fields.is_empty() => {
            let key = fields.keys().nth(rng.below(fields.len())).unwrap().clone();
            let old = fields.shift_remove(&key).unwrap_or_default();
            if rng.one_in(2) {
                fields.insert(rng.pick(names).to_string(), old);
            }
        }
        (3..5, Value::Object(fields)) => {
            let new = make(rng, 2);
            fields.insert(rng.pick(names).to_string(), new);
        }
        (0..2, Value::Array(items)) if !items.is_empty() => drop(items.swap_remove(rng.below(items.len()))),
        (2..5, Value::Array(items)) if !items.is_empty() => {
            let item = items[rng.below(items.len())].clone();
            let times = match rng.one_in(20) {
                true => rng.between(1, 5000),
                false => rng.between(1, 20),
            };
            if times * count(&item) < 20_000 {
                items.extend(std::iter::repeat_n(item, times));
            }
        }
        (5, _) => *value = Value::Array(vec![value.take()]),
        (6, _) => *value = Map::from_iter([(rng.pick(names).to_string(), value.take())]).into(),
        (7, Value::String(text)) => {
            let bytes = crate::random::mutate(rng, std::mem::take(text).into_bytes(), names, &[]);
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
        (8, Value::String(text)) => *text = rng.pick(names).to_string(),
        (5..9, Value::Number(_)) => *value = number(rng),
        _ => *value = make(rng, 2),
    }
}
