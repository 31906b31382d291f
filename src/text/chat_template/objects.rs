//! Objects that a template gets from functions: namespaces, cyclers and joiners, and lists that are only walked.

use super::meter::Meter;
use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Items that were computed one by one, such as those of `reverse`. Walked as the template engine's own would be.
pub(super) struct Items {
    items: Vec<Value>,
    /// Whether the template may know how many there are.
    is_sized: bool,
}

impl Items {
    pub fn new(items: Vec<Value>, is_sized: bool) -> Items {
        Items { items, is_sized }
    }
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("<iterator>")
    }
}

impl Deref for Items {
    type Target = [Value];
    fn deref(&self) -> &[Value] {
        &self.items
    }
}

impl Object for Items {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let walked = Arc::clone(self);
        let items = (0..self.items.len()).map(move |place| walked.items[place].clone());
        if self.is_sized {
            Enumerator::Iter(Box::new(items))
        } else {
            Enumerator::Iter(Box::new(items.filter(|_| true)))
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.is_sized.then_some(self.items.len())
    }
}

/// The characters of a text. A loop over them knows how many there are, unlike one over the text itself.
#[derive(Debug)]
pub(super) struct Characters {
    text: Arc<str>,
    count: usize,
}

impl Characters {
    pub fn new(text: Arc<str>) -> Characters {
        let count = text.chars().count();
        Characters { text, count }
    }
}

impl Object for Characters {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let (walked, mut at) = (Arc::clone(self), 0);
        let characters = (0..self.count).map(move |_| {
            let character = walked.text[at..].chars().next().expect("as many characters as were counted");
            at += character.len_utf8();
            Value::from(character)
        });
        Enumerator::Iter(Box::new(characters))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.count)
    }
}

/// What changes while it is held: it may be in a variable, but not in a list, a dict or a namespace, lest it hold itself.
pub(super) enum Changing {
    Namespace(Mutex<BTreeMap<Arc<str>, Value>>),
    Cycler { items: Vec<Value>, next: AtomicUsize },
    Joiner { separator: Value, is_used: AtomicBool },
}

/// Says nothing of what it holds, which the meter does not look through.
impl fmt::Debug for Changing {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Changing::Namespace(_) => "<namespace>",
            Changing::Cycler { .. } => "<cycler>",
            Changing::Joiner { .. } => "<joiner>",
        })
    }
}

impl Changing {
    fn entries(&self) -> Option<MutexGuard<'_, BTreeMap<Arc<str>, Value>>> {
        match self {
            Changing::Namespace(entries) => Some(entries.lock().unwrap_or_else(PoisonError::into_inner)),
            Changing::Cycler { .. } | Changing::Joiner { .. } => None,
        }
    }
}

impl Object for Changing {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        match **self {
            Changing::Namespace(_) => ObjectRepr::Map,
            Changing::Cycler { .. } | Changing::Joiner { .. } => ObjectRepr::Plain,
        }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.entries()?.get(key).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.entries() {
            Some(entries) => Enumerator::Values(entries.keys().cloned().map(Value::from).collect()),
            None => Enumerator::NonEnumerable,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.entries()?.len())
    }

    fn call(self: &Arc<Self>, _: &mut State, args: &[Value]) -> Result<Value, Error> {
        match &**self {
            Changing::Joiner { separator, is_used } => {
                let () = from_args(args)?;
                Ok(if is_used.swap(true, Ordering::Relaxed) { separator.clone() } else { Value::from("") })
            }
            _ => Err(Error::new(ErrorKind::InvalidOperation, "object is not callable")),
        }
    }

    fn call_method(self: &Arc<Self>, _: &mut State, method: &str, args: &[Value]) -> Result<Value, Error> {
        match &**self {
            Changing::Cycler { items, next } if method == "next" => {
                let () = from_args(args)?;
                Ok(items[next.fetch_add(1, Ordering::Relaxed) % items.len()].clone())
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// `namespace(…)`.
pub(super) fn namespace(state: &mut State, defaults: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let mut entries = BTreeMap::new();
    if let Some(defaults) = defaults.map(ValueOrKwargs::into_value) {
        let pairs = defaults.as_object().filter(|object| object.repr() == ObjectRepr::Map);
        let pairs = pairs.and_then(|object| object.try_iter_pairs()).ok_or_else(|| {
            let reason = format!("expected object or keyword arguments, got {}", defaults.kind());
            Error::new(ErrorKind::InvalidOperation, reason)
        })?;
        for (key, value) in pairs {
            if let Some(key) = key.as_str() {
                note_entry(state, key, &value)?;
                entries.insert(Arc::from(key), value);
            }
        }
    }
    Ok(Value::from_object(Changing::Namespace(Mutex::new(entries))))
}

/// `{% set object.name = value %}`.
pub(super) fn set_attribute(state: &mut State, value: &Value, object: &Value, name: &str) -> Result<(), Error> {
    let namespace = object.downcast_object_ref::<Changing>();
    let Some(is_new) = namespace.and_then(|namespace| Some(!namespace.entries()?.contains_key(name))) else {
        let reason = format!("can only assign to namespaces, not {}", object.kind());
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    };
    if is_new {
        note_entry(state, name, value)?;
    } else {
        Meter::of(state).may_be_held(value)?;
    }
    // What was there is dropped after the lock is.
    let before = namespace.and_then(|namespace| namespace.entries()?.insert(Arc::from(name), value.clone()));
    drop(before);
    Ok(())
}

/// Counts an entry of a namespace, which the meter cannot look through.
fn note_entry(state: &mut State, key: &str, value: &Value) -> Result<(), Error> {
    let meter = Meter::of(state);
    meter.may_be_held(value)?;
    meter.spend(super::meter::PAIR_BYTES + key.len() as u64)
}

/// `cycler(…)`, of its arguments or of the items of one list.
pub(super) fn cycler(state: &mut State, items: Rest<Value>) -> Result<Value, Error> {
    let items = match items.as_slice() {
        [list] if matches!(list.kind(), ValueKind::Seq | ValueKind::Iterable) => list.try_iter()?.collect(),
        _ => items.0,
    };
    if items.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "at least one value required"));
    }
    let meter = Meter::of(state);
    items.iter().try_for_each(|item| meter.may_be_held(item))?;
    meter.spend(super::meter::VALUE_BYTES + items.len() as u64 * super::meter::ITEM_BYTES)?;
    Ok(Value::from_object(Changing::Cycler { items, next: AtomicUsize::new(0) }))
}

/// `joiner(separator)`.
pub(super) fn joiner(state: &mut State, separator: Option<Value>) -> Result<Value, Error> {
    let separator = separator.unwrap_or_else(|| Value::from(", "));
    let meter = Meter::of(state);
    meter.may_be_held(&separator)?;
    meter.spend(super::meter::VALUE_BYTES)?;
    Ok(Value::from_object(Changing::Joiner { separator, is_used: AtomicBool::new(false) }))
}

/// `range(…)`, written out.
pub(super) fn range(
    state: &mut State,
    lower: isize,
    upper: Option<isize>,
    step: Option<isize>,
) -> Result<Value, Error> {
    let numbers = minijinja::functions::range(lower, upper, step)?;
    Meter::of(state).keep(numbers)
}

/// `dict(…)`.
pub(super) fn dict(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let meter = Meter::of(state);
    for arg in args.iter().filter(|arg| arg.kind() == ValueKind::Map) {
        let pairs = arg.len().unwrap_or(0) as u64;
        // A pair is copied, hashed, and looked at by the meter.
        meter.make(32 * pairs, 2 * super::meter::PAIR_BYTES * pairs)?;
    }
    let (value, pairs) = from_args(&args)?;
    let made = minijinja::functions::dict(value, pairs)?;
    Meter::of(state).keep(made)
}
