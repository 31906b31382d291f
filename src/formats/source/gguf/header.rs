//! The header of a GGUF file: metadata by key, and the tensors with their places.
//!
//! Written by whoever offers a model for download, so that nothing in it is believed: a count is compared with the bytes that are left
//! before anything is allocated for it, and a tensor that reaches beyond the file is refused. Invariant: the range of every tensor of a
//! [`Header`] lies in the file, and its length is that of its shape and type.
//!
//! Versions 2 and 3 are read, which differ only in the byte order that version 3 allows; ggml/docs/gguf.md describes both.

use super::cursor::{Cursor, Stop};
use super::tensor_type::GgmlType;
use super::value::{Array, Value};
use base::limits;
use serde_json::Value as Json;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;

const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
/// Axes of a tensor, at most.
const AXES: u32 = 4;
/// Where the data of tensors begin at multiples of, unless `general.alignment` says another number.
const ALIGNMENT: u64 = 32;
/// The largest alignment that is read.
const ALIGNMENT_MAX: u64 = 1 << 20;
/// Bytes of the shortest key with its value, and of the shortest description of a tensor.
const ENTRY_BYTES_MIN: u64 = 8 + 4 + 1;
const TENSOR_BYTES_MIN: u64 = 8 + 4 + 8 + 4 + 8;

/// What a GGUF file says.
pub struct Header {
    /// The bytes that texts and arrays are in.
    bytes: Vec<u8>,
    entries: BTreeMap<String, Value>,
    /// Each with its name.
    pub tensors: Vec<(String, TensorInfo)>,
}

/// A tensor of a GGUF file.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// How its numbers are written.
    pub kind: GgmlType,
    /// Length of each axis, the innermost last. GGUF has it first.
    pub shape: Vec<usize>,
    /// Where it is in the file.
    pub range: Range<usize>,
}

/// What the headers of all parts of a model may still have together. A file may be sparse, so that its size bounds nothing.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Bytes.
    pub bytes: u64,
    keys: u64,
    /// Elements of arrays.
    elements: u64,
    /// Bytes of names of tensors.
    name_bytes: u64,
}

impl Default for Allowance {
    /// That of a model, before any of its headers is read.
    fn default() -> Allowance {
        Allowance {
            bytes: limits::GGUF_HEADER_BYTES,
            keys: limits::GGUF_ALL_KEYS as u64,
            elements: limits::GGUF_ELEMENTS,
            name_bytes: limits::WEIGHT_HEADERS_BYTES,
        }
    }
}

impl Allowance {
    /// Counts the elements of an array before they are read.
    pub fn take_elements(&mut self, elements: u64) -> Result<(), String> {
        take(&mut self.elements, elements, limits::GGUF_ELEMENTS, "elements of arrays")
    }
}

/// Takes from what is left of `most` things of all headers.
fn take(left: &mut u64, count: u64, most: u64, what: &str) -> Result<(), String> {
    match left.checked_sub(count) {
        Some(rest) => {
            *left = rest;
            Ok(())
        }
        None => Err(format!("brings the headers of the model to more than {most} {what}, the most that are read")),
    }
}

/// What [`parse`] finds, which refers to the bytes that it read.
pub struct Parsed {
    entries: BTreeMap<String, Value>,
    /// Each with its name.
    pub tensors: Vec<(String, TensorInfo)>,
    /// Bytes of the header.
    len: usize,
    /// What the headers of other parts may have.
    pub left: Allowance,
}

/// Reads the header of a file of `file_bytes` bytes, of which `bytes` is the beginning. It may have what is in `allowance`.
///
/// # Errors
///
/// [`Stop::MoreBytes`] when the header is longer than `bytes`, [`Stop::Wrong`] when the file is no GGUF file that can be read.
pub fn parse(bytes: &[u8], file_bytes: u64, allowance: &Allowance) -> Result<Parsed, Stop> {
    let mut left = *allowance;
    let mut cursor = Cursor::new(bytes, file_bytes);
    if cursor.bytes(4).map_or_else(|stop| matches!(stop, Stop::Wrong(_)), |magic| magic != MAGIC) {
        return Err(Stop::Wrong(
            "is neither a model folder nor a GGUF file, which begins with the letters GGUF".into(),
        ));
    }
    let version = cursor.u32()?;
    if !VERSIONS.contains(&version) {
        return Err(Stop::Wrong(match VERSIONS.contains(&version.swap_bytes()) {
            true => "is a GGUF file of big-endian numbers, but only little-endian ones are read".into(),
            false => format!("is a GGUF file of version {version}, but versions 2 and 3 are read: convert it again"),
        }));
    }
    let (tensors, entries) = (cursor.u64()?, cursor.u64()?);
    cursor.check_room(tensors, TENSOR_BYTES_MIN, "tensors")?;
    cursor.check_room(entries, ENTRY_BYTES_MIN, "keys")?;
    for (found, most, what) in [(tensors, limits::TENSORS, "tensors"), (entries, limits::GGUF_KEYS, "keys")] {
        if found > most as u64 {
            return Err(Stop::Wrong(format!("has {found} {what}, but at most {most} are read")));
        }
    }
    take(&mut left.keys, entries, limits::GGUF_ALL_KEYS as u64, "keys")?;
    let entries = read_entries(&mut cursor, entries, &mut left)?;
    let alignment = alignment(&entries)?;
    let tensors = read_tensors(&mut cursor, tensors, &mut left)?;
    take(&mut left.bytes, cursor.position() as u64, limits::GGUF_HEADER_BYTES, "bytes")?;
    let data_start = (cursor.position() as u64).next_multiple_of(alignment);
    let tensors = tensors.into_iter().map(|(name, unplaced)| {
        let placed = unplaced.place(data_start, alignment, file_bytes);
        let placed = placed.map_err(|reason| Stop::Wrong(format!("tensor {name:.60} {reason}")))?;
        Ok((name, placed))
    });
    Ok(Parsed { entries, tensors: tensors.collect::<Result<_, Stop>>()?, len: cursor.position(), left })
}

fn read_entries(cursor: &mut Cursor, count: u64, left: &mut Allowance) -> Result<BTreeMap<String, Value>, Stop> {
    let mut entries = BTreeMap::new();
    for _ in 0..count {
        let key = cursor.name(limits::GGUF_NAME_BYTES, "a key")?;
        let value = Value::read(cursor, left).map_err(|stop| match stop {
            Stop::Wrong(reason) => Stop::Wrong(format!("key {key:.60} {reason}")),
            stop => stop,
        })?;
        match entries.entry(key.to_owned()) {
            Entry::Vacant(place) => drop(place.insert(value)),
            Entry::Occupied(_) => return Err(Stop::Wrong(format!("has key {key:.60} twice"))),
        }
    }
    Ok(entries)
}

fn alignment(entries: &BTreeMap<String, Value>) -> Result<u64, String> {
    match entries.get("general.alignment") {
        None => Ok(ALIGNMENT),
        Some(&Value::Unsigned(found @ 1..=ALIGNMENT_MAX)) if found.is_multiple_of(8) => Ok(found),
        Some(other) => {
            let wanted = format!("must be a multiple of 8 and at most {ALIGNMENT_MAX}");
            Err(match other {
                Value::Unsigned(found) => format!("general.alignment is {found}, but {wanted}"),
                _ => format!("general.alignment {wanted}"),
            })
        }
    }
}

/// A tensor, before it is known where the data begin.
struct Unplaced {
    kind: GgmlType,
    shape: Vec<usize>,
    bytes: u64,
    offset: u64,
}

fn read_tensors(cursor: &mut Cursor, count: u64, left: &mut Allowance) -> Result<Vec<(String, Unplaced)>, Stop> {
    let mut tensors: Vec<(String, Unplaced)> = Vec::new();
    for _ in 0..count {
        let name = cursor.name(limits::GGUF_NAME_BYTES, "a name of a tensor")?;
        let most = limits::WEIGHT_HEADERS_BYTES;
        take(&mut left.name_bytes, name.len() as u64, most, "bytes of names of tensors")?;
        let wrong = |reason: String| Stop::Wrong(format!("tensor {name:.60} {reason}"));
        let axes = cursor.u32()?;
        if !(1..=AXES).contains(&axes) {
            return Err(wrong(format!("has {axes} axes, but must have 1 to {AXES}")));
        }
        let mut lens = [1u64; AXES as usize];
        for len in &mut lens[..axes as usize] {
            *len = cursor.u64()?;
        }
        let id = cursor.u32()?;
        let offset = cursor.u64()?;
        let kind =
            GgmlType::find(id).ok_or_else(|| wrong(format!("is of type {id}, which this library does not know")))?;
        let [innermost, others @ ..] = lens;
        if innermost == 0 || !innermost.is_multiple_of(kind.block as u64) {
            return Err(wrong(format!(
                "has rows of {innermost} numbers, but {kind} needs a multiple of {}",
                kind.block
            )));
        }
        let blocks = others.iter().try_fold(innermost / kind.block as u64, |product, len| product.checked_mul(*len));
        let bytes = blocks.and_then(|blocks| blocks.checked_mul(kind.block_bytes as u64));
        let Some(bytes @ 1..=LEN_MAX) = bytes else {
            return Err(wrong(format!("has {lens:?} numbers, which no file holds")));
        };
        let shape = lens[..axes as usize].iter().rev().map(|&len| len as usize).collect();
        tensors.push((name.to_owned(), Unplaced { kind, shape, bytes, offset }));
    }
    let mut names: Vec<&str> = tensors.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Stop::Wrong(format!("has tensor {:.60} twice", pair[0]))),
        None => Ok(tensors),
    }
}

/// Bytes of a tensor, so that sums of them do not overflow. Such a file does not exist.
const LEN_MAX: u64 = 1 << 60;

impl Unplaced {
    fn place(self, data_start: u64, alignment: u64, file_bytes: u64) -> Result<TensorInfo, String> {
        let Unplaced { kind, shape, bytes, offset } = self;
        if !offset.is_multiple_of(alignment) {
            return Err(format!("is at offset {offset}, which is no multiple of the alignment, {alignment}"));
        }
        let end = offset.checked_add(data_start).and_then(|start| Some(start..start.checked_add(bytes)?));
        match end.filter(|range| range.end <= file_bytes) {
            Some(range) => Ok(TensorInfo { kind, shape, range: range.start as usize..range.end as usize }),
            None => Err(format!(
                "has {bytes} bytes at offset {offset}, which reach beyond the end of the file of {file_bytes} bytes: it may not have been downloaded completely"
            )),
        }
    }
}

impl Parsed {
    /// The header, with the bytes that [`parse`] read it from.
    pub fn with(self, mut bytes: Vec<u8>) -> Header {
        bytes.truncate(self.len);
        bytes.shrink_to_fit();
        Header { bytes, entries: self.entries, tensors: self.tensors }
    }
}

impl Header {
    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// A value as JSON; `None` if there is no such key. An array may have at most `most` elements.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn json(&self, key: &str, most: usize) -> Result<Option<Json>, String> {
        let value = self.entries.get(key).map(|value| value.to_json(&self.bytes, most)).transpose();
        value.map_err(|reason| format!("key {key:.60} {reason}"))
    }

    /// A text; `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn text(&self, key: &str) -> Result<Option<&str>, String> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Text(range)) => match std::str::from_utf8(&self.bytes[range.clone()]) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(format!("key {key:.60} is not UTF-8")),
            },
            Some(_) => Err(format!("key {key:.60} must be a string")),
        }
    }

    /// `true` or `false`; `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// If it is neither.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(_) => Err(format!("key {key:.60} must be true or false")),
        }
    }

    /// A whole number that is not negative; `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, String> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(number)) => Ok(Some(*number)),
            Some(_) => Err(format!("key {key:.60} must be a whole number that is not negative")),
        }
    }

    /// A number; `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn number(&self, key: &str) -> Result<Option<f64>, String> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(number)) => Ok(Some(*number as f64)),
            Some(Value::Negative(number)) => Ok(Some(*number as f64)),
            Some(Value::Float(number)) => Ok(Some(*number)),
            Some(_) => Err(format!("key {key:.60} must be a number")),
        }
    }

    fn array(&self, key: &str) -> Result<Option<&Array>, String> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(_) => Err(format!("key {key:.60} must be an array")),
        }
    }

    /// Strings; `None` if there is no such key. A string is bytes, of which not all have to be UTF-8.
    ///
    /// # Errors
    ///
    /// If they are more than `most`, or anything else.
    pub fn strings(&self, key: &str, most: usize) -> Result<Option<Vec<&[u8]>>, String> {
        let Some(array) = self.array(key)? else { return Ok(None) };
        if array.len() > most {
            return Err(format!("key {key:.60} has {} strings, but at most {most} are read", array.len()));
        }
        let mut strings = Vec::with_capacity(array.len());
        for element in array.elements(&self.bytes) {
            let Value::Text(range) = element else { return Err(format!("key {key:.60} must be an array of strings")) };
            strings.push(&self.bytes[range]);
        }
        Ok(Some(strings))
    }

    /// Numbers; `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// If they are more than `most`, or anything else.
    pub fn numbers(&self, key: &str, most: usize) -> Result<Option<Vec<f64>>, String> {
        let Some(array) = self.array(key)? else { return Ok(None) };
        if array.len() > most {
            return Err(format!("key {key:.60} has {} numbers, but at most {most} are read", array.len()));
        }
        let mut numbers = Vec::with_capacity(array.len());
        for element in array.elements(&self.bytes) {
            numbers.push(match element {
                Value::Unsigned(number) => number as f64,
                Value::Negative(number) => number as f64,
                Value::Float(number) => number,
                _ => return Err(format!("key {key:.60} must be an array of numbers")),
            });
        }
        Ok(Some(numbers))
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|(own, _)| own == name).map(|(_, tensor)| tensor)
    }
}
