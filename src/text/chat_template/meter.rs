//! What one rendering may still use: work, bytes of values, bytes of output, and time.
//!
//! A model folder is data, so a template may try to use up the host. Every operation of a template says what it will cost
//! before it does it, and fails when there is not so much left. Bytes of values are those that are alive: the meter keeps what
//! was made, and lets go of what nobody else holds when there is need. Each list and dict is known with its depth and
//! its expanded size. So a list that holds itself twice, many times over, costs what it looks like rather than what it takes.

use super::objects::{Changing, Items};
use base::limits;
use indexmap::IndexMap;
use minijinja::value::{DynObject, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an operation counts for at least, in units of work.
const OPERATION: u64 = 16;
/// Operations between two looks at the clock.
const OPERATIONS_PER_LOOK: u32 = 1024;
/// Bytes that a value takes besides its text, its allocation and what the meter notes of it included.
pub(super) const VALUE_BYTES: u64 = 128;
/// Bytes of an entry of a list.
pub(super) const ITEM_BYTES: u64 = 24;
/// Bytes of an entry of a dict.
pub(super) const PAIR_BYTES: u64 = 96;
/// Weight of a value besides its text. No number takes more when it is written, unless it is a huge float.
const WEIGHT: u64 = 32;
/// The shortest text that the template engine allocates.
const ALLOCATED_TEXT: usize = 23;
/// Bytes of values below which nothing is looked through.
const UNSWEPT_BYTES: u64 = 4 << 20;

/// A dict as the template engine makes it.
pub(super) type Map = IndexMap<Value, Value>;

/// Which bound a rendering met.
#[derive(Debug)]
pub(super) struct Exceeded(String);

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Exceeded {}

/// The error of a template that goes beyond a limit.
pub(super) fn exceeded(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, "the template goes beyond a limit").with_source(Exceeded(message))
}

/// What is to be known of a value before one walks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Levels of nesting; 0 for what is no list and no dict.
    pub depth: u32,
    /// Bytes of all texts in it, and [`WEIGHT`] for each value, as often as a walk meets it.
    pub weight: u64,
}

/// Something that a rendering made, and that it must not make too much of.
enum Owned {
    Text(Arc<str>),
    List(Arc<Vec<Value>>),
    Tuple(Arc<Tuple>),
    Map(Arc<Map>),
    Items(Arc<Items>),
}

impl Owned {
    fn of(value: &Value) -> Option<Owned> {
        if let Some(text) = value.as_str() {
            return (text.len() >= ALLOCATED_TEXT).then(|| value.to_str().map(Owned::Text)).flatten();
        }
        let object = value.as_object()?;
        None.or_else(|| object.downcast().map(Owned::List))
            .or_else(|| object.downcast().map(Owned::Map))
            .or_else(|| object.downcast().map(Owned::Tuple))
            .or_else(|| object.downcast().map(Owned::Items))
    }

    /// Whether only the meter holds it.
    fn is_dead(&self) -> bool {
        let holders = match self {
            Owned::Text(text) => Arc::strong_count(text),
            Owned::List(list) => Arc::strong_count(list),
            Owned::Tuple(tuple) => Arc::strong_count(tuple),
            Owned::Map(map) => Arc::strong_count(map),
            Owned::Items(items) => Arc::strong_count(items),
        };
        holders == 1
    }

    fn bytes(&self) -> u64 {
        let own = match self {
            Owned::Text(text) => text.len() as u64,
            Owned::List(list) => list.len() as u64 * ITEM_BYTES,
            Owned::Tuple(tuple) => tuple.len() as u64 * ITEM_BYTES,
            Owned::Map(map) => map.len() as u64 * PAIR_BYTES,
            Owned::Items(items) => items.len() as u64 * ITEM_BYTES,
        };
        own + VALUE_BYTES
    }
}

/// Where a value lies, while it lives: the name under which the meter knows it.
fn address(value: &Value) -> Option<usize> {
    fn of<T>(place: &T) -> usize {
        std::ptr::from_ref(place).addr()
    }
    if let Some(text) = value.as_str() {
        return (text.len() >= ALLOCATED_TEXT).then(|| text.as_ptr().addr());
    }
    let object = value.as_object()?;
    None.or_else(|| object.downcast_ref::<Vec<Value>>().map(of))
        .or_else(|| object.downcast_ref::<Map>().map(of))
        .or_else(|| object.downcast_ref::<Tuple>().map(of))
        .or_else(|| object.downcast_ref::<Items>().map(of))
}

struct Entry {
    address: usize,
    owned: Owned,
    bytes: u64,
    shape: Shape,
}

/// The meter of one rendering. It lies in the state of the template engine.
pub(super) struct Meter {
    work_left: u64,
    output_left: u64,
    /// Bytes of everything in `entries`.
    held: u64,
    held_max: u64,
    /// `held` at which dead values are looked for.
    sweep_at: u64,
    /// In the order of making: a value stands behind what it holds.
    entries: Vec<Entry>,
    places: HashMap<usize, usize>,
    ends: Instant,
    ends_after: Duration,
    operations: u32,
    /// The method that the next call of a method names.
    pub method: String,
}

impl Meter {
    /// A meter for a rendering of messages and options of `input_bytes` bytes.
    pub fn new(input_bytes: u64) -> Meter {
        let ends_after = Duration::from_secs(limits::TEMPLATE_SECONDS + (input_bytes >> 20));
        let held_max = limits::TEMPLATE_VALUE_BYTES + limits::TEMPLATE_BYTES_PER_INPUT * input_bytes;
        Meter {
            work_left: limits::TEMPLATE_WORK + limits::TEMPLATE_WORK_PER_INPUT * input_bytes,
            output_left: limits::TEMPLATE_OUTPUT_BYTES + limits::TEMPLATE_OUTPUT_PER_INPUT * input_bytes,
            held: 0,
            held_max,
            sweep_at: UNSWEPT_BYTES.min(held_max),
            entries: Vec::new(),
            places: HashMap::new(),
            ends: Instant::now() + ends_after,
            ends_after,
            operations: 0,
            method: String::new(),
        }
    }

    /// The meter of the rendering that `state` belongs to.
    pub fn of<'a>(state: &'a mut State) -> &'a mut Meter {
        state.get_or_insert_extension_with(|| Meter::new(0))
    }

    /// Counts an operation that does so much work besides itself.
    pub fn work(&mut self, units: u64) -> Result<(), Error> {
        self.operations += 1;
        if self.operations == OPERATIONS_PER_LOOK {
            self.operations = 0;
            if Instant::now() > self.ends {
                self.work_left = 0;
                return Err(exceeded(format!("the template ran for more than {} s", self.ends_after.as_secs())));
            }
        }
        match self.work_left.checked_sub(units.saturating_add(OPERATION)) {
            Some(left) => {
                self.work_left = left;
                Ok(())
            }
            None => {
                self.work_left = 0;
                Err(exceeded(
                    "the template does more work than an input of this size may cause: it may loop without end"
                        .to_owned(),
                ))
            }
        }
    }

    /// Counts bytes that are about to be written.
    pub fn output(&mut self, bytes: u64) -> Result<(), Error> {
        self.work(bytes)?;
        match self.output_left.checked_sub(bytes) {
            Some(left) => {
                self.output_left = left;
                Ok(())
            }
            None => {
                self.output_left = 0;
                Err(exceeded("the template writes more text than an input of this size may produce".to_owned()))
            }
        }
    }

    /// Fails unless values of `bytes` bytes may be created now.
    pub fn room(&mut self, bytes: u64) -> Result<(), Error> {
        if self.held.saturating_add(bytes) > self.held_max {
            self.sweep();
            if self.held.saturating_add(bytes) > self.held_max {
                let most = self.held_max;
                return Err(exceeded(format!("the template needs more than {most} bytes for its values")));
            }
        }
        Ok(())
    }

    /// Charges `work` units of work that creates values of `bytes` bytes.
    pub fn make(&mut self, work: u64, bytes: u64) -> Result<(), Error> {
        self.work(work)?;
        self.room(bytes)
    }

    /// Bytes that nobody gives back before the rendering ends.
    pub fn spend(&mut self, bytes: u64) -> Result<(), Error> {
        self.room(bytes)?;
        self.held_max -= bytes.min(self.held_max);
        Ok(())
    }

    /// Notes what an operation made. What is computed as it is walked becomes a list here.
    pub fn keep(&mut self, value: Value) -> Result<Value, Error> {
        let value = match value.kind() {
            ValueKind::String => {
                if let (Some(address), Some(owned)) = (address(&value), Owned::of(&value))
                    && !self.places.contains_key(&address)
                {
                    let shape = Shape { depth: 0, weight: WEIGHT + value.as_str().map_or(0, str::len) as u64 };
                    self.note(address, owned, shape)?;
                }
                return Ok(value);
            }
            ValueKind::Iterable | ValueKind::Seq if address(&value).is_none() => self.written_out(value)?,
            _ => value,
        };
        if address(&value).is_some() {
            self.shape(&value)?;
        }
        Ok(value)
    }

    /// The items of a value that another crate computes when they are asked for.
    fn written_out(&mut self, value: Value) -> Result<Value, Error> {
        let Some(object) = value.as_object() else { return Ok(value) };
        if object.type_name().ends_with("GroupTuple") {
            return Ok(value);
        }
        let is_sized = object.enumerator_len().is_some();
        let mut items = Vec::new();
        for item in value.try_iter()?.checked() {
            self.make(1, (items.len() as u64 + 1) * 2 * ITEM_BYTES)?;
            items.push(item?);
        }
        Ok(Value::from_object(Items::new(items, is_sized)))
    }

    /// Depth and weight of a value. The first time, a value is walked; later they are known.
    pub fn shape(&mut self, value: &Value) -> Result<Shape, Error> {
        if let Some(text) = value.as_str() {
            return Ok(Shape { depth: 0, weight: WEIGHT + text.len() as u64 });
        }
        let Some(object) = value.as_object() else {
            return Ok(Shape { depth: 0, weight: WEIGHT });
        };
        let address = address(value);
        if let Some(place) = address.and_then(|address| self.places.get(&address)) {
            return Ok(self.entries[*place].shape);
        }
        let mut shape = Shape { depth: 0, weight: WEIGHT };
        match Owned::of(value) {
            Some(Owned::List(list)) => list.iter().try_for_each(|item| self.within(&mut shape, item))?,
            Some(Owned::Tuple(tuple)) => tuple.iter().try_for_each(|item| self.within(&mut shape, item))?,
            Some(Owned::Items(items)) => items.iter().try_for_each(|item| self.within(&mut shape, item))?,
            Some(Owned::Map(map)) => map.iter().try_for_each(|(key, item)| {
                self.within(&mut shape, key)?;
                self.within(&mut shape, item)
            })?,
            Some(Owned::Text(_)) | None => self.shape_of_foreign(&mut shape, object)?,
        }
        shape.depth += 1;
        if shape.depth > limits::TEMPLATE_VALUE_DEPTH {
            let most = limits::TEMPLATE_VALUE_DEPTH;
            return Err(exceeded(format!("the template nests lists and dicts more than {most} deep")));
        }
        if let (Some(address), Some(owned)) = (address, Owned::of(value)) {
            self.note(address, owned, shape)?;
        }
        Ok(shape)
    }

    /// Adds what a container holds to its shape.
    fn within(&mut self, shape: &mut Shape, held: &Value) -> Result<(), Error> {
        if is_changing(held) {
            return Err(exceeded("a namespace or a loop cannot be put into a list, a dict or a namespace".to_owned()));
        }
        self.work_left = self.work_left.saturating_sub(1);
        let held = self.shape(held)?;
        shape.depth = shape.depth.max(held.depth);
        shape.weight = shape.weight.saturating_add(held.weight);
        Ok(())
    }

    /// Macros, functions, groups, loops and namespaces: they hold little, and are walked each time.
    fn shape_of_foreign(&mut self, shape: &mut Shape, object: &DynObject) -> Result<(), Error> {
        for (key, held) in object.try_iter_pairs().into_iter().flatten() {
            self.work(1)?;
            self.within(shape, &key)?;
            self.within(shape, &held)?;
        }
        Ok(())
    }

    /// Fails when `value` changes and so could come to hold what it is put into.
    pub fn may_be_held(&mut self, value: &Value) -> Result<(), Error> {
        self.within(&mut Shape { depth: 0, weight: 0 }, value)
    }

    /// The weight of a value.
    pub fn weight(&mut self, value: &Value) -> Result<u64, Error> {
        Ok(self.shape(value)?.weight)
    }

    /// The most bytes that a value can take when it is written.
    pub fn written(&mut self, value: &Value) -> Result<u64, Error> {
        Ok(match value.kind() {
            ValueKind::String => value.as_str().map_or(0, str::len) as u64,
            ValueKind::Number if !value.is_integer() => 400,
            ValueKind::Number | ValueKind::Bool | ValueKind::None | ValueKind::Undefined => 40,
            // A float of 1e308 takes 310 bytes at a weight of 32.
            _ => self.weight(value)?.saturating_mul(12),
        })
    }

    fn note(&mut self, address: usize, owned: Owned, shape: Shape) -> Result<(), Error> {
        let bytes = owned.bytes();
        self.held += bytes;
        self.places.insert(address, self.entries.len());
        self.entries.push(Entry { address, owned, bytes, shape });
        if self.held > self.sweep_at {
            self.sweep();
            self.room(0)?;
        }
        Ok(())
    }

    /// Lets go of what nobody else holds.
    fn sweep(&mut self) {
        // Backwards, because a value stands behind what it holds.
        let mut kept = Vec::new();
        while let Some(entry) = self.entries.pop() {
            if entry.owned.is_dead() {
                self.held -= entry.bytes;
            } else {
                kept.push(entry);
            }
        }
        kept.reverse();
        self.entries = kept;
        self.places = self.entries.iter().enumerate().map(|(place, entry)| (entry.address, place)).collect();
        self.sweep_at = (2 * self.held).max(UNSWEPT_BYTES).min(self.held_max);
        self.work_left = self.work_left.saturating_sub(OPERATION * self.entries.len() as u64);
    }
}

/// Whether a value may hold another thing tomorrow than today.
fn is_changing(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.is::<Changing>() || object.type_name().ends_with("::Loop"))
}
