//! The values of the metadata of a GGUF file.
//!
//! Texts and arrays stay where they are in the header: a vocabulary of 150,000 tokens is not copied to be skipped.

use super::cursor::{Cursor, Stop};
use super::header::Allowance;
use serde_json::{Number, Value as Json};
use std::ops::Range;

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A whole number that is not negative.
    Unsigned(u64),
    /// A negative number.
    Negative(i64),
    /// A number with a fraction.
    Float(f64),
    /// `true` or `false`.
    Flag(bool),
    /// Where its bytes are.
    Text(Range<usize>),
    /// Values of one type.
    Array(Array),
}

/// Values of one type.
#[derive(Clone, Debug)]
pub struct Array {
    kind: Kind,
    len: usize,
    /// Where the elements are.
    range: Range<usize>,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Flag,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    /// The type that a number stands for.
    fn of(id: u32) -> Option<Kind> {
        use Kind::*;
        [U8, I8, U16, I16, U32, I32, F32, Flag, Text, Array, U64, I64, F64].get(id as usize).copied()
    }

    /// Bytes of the shortest value.
    fn bytes_min(self) -> u64 {
        match self {
            Kind::U8 | Kind::I8 | Kind::Flag => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 | Kind::Text => 8,
            Kind::Array => 12,
        }
    }

    fn read(cursor: &mut Cursor) -> Result<Kind, Stop> {
        let id = cursor.u32()?;
        Kind::of(id).ok_or_else(|| Stop::Wrong(format!("is of type {id}, but types are numbers from 0 to 12")))
    }

    /// Reads one value that is no array.
    fn read_scalar(self, cursor: &mut Cursor) -> Result<Value, Stop> {
        let signed = |number: i64| u64::try_from(number).map_or(Value::Negative(number), Value::Unsigned);
        Ok(match self {
            Kind::U8 => Value::Unsigned(cursor.u8()?.into()),
            Kind::I8 => signed(i64::from(cursor.u8()?.cast_signed())),
            Kind::U16 => Value::Unsigned(cursor.u16()?.into()),
            Kind::I16 => signed(i64::from(cursor.u16()?.cast_signed())),
            Kind::U32 => Value::Unsigned(cursor.u32()?.into()),
            Kind::I32 => signed(i64::from(cursor.u32()?.cast_signed())),
            Kind::F32 => Value::Float(f32::from_bits(cursor.u32()?).into()),
            Kind::Flag => match cursor.u8()? {
                0 => Value::Flag(false),
                1 => Value::Flag(true),
                other => return Err(Stop::Wrong(format!("is a flag of value {other}, but flags are 0 or 1"))),
            },
            Kind::Text => {
                let len = cursor.string()?.len();
                Value::Text(cursor.position() - len..cursor.position())
            }
            Kind::U64 => Value::Unsigned(cursor.u64()?),
            Kind::I64 => signed(cursor.u64()?.cast_signed()),
            Kind::F64 => Value::Float(f64::from_bits(cursor.u64()?)),
            Kind::Array => return Err(Stop::Wrong("is an array of arrays, but only arrays of values are read".into())),
        })
    }
}

impl Value {
    /// Reads a value with the type before it.
    pub fn read(cursor: &mut Cursor, left: &mut Allowance) -> Result<Value, Stop> {
        let kind = Kind::read(cursor)?;
        if kind != Kind::Array {
            return kind.read_scalar(cursor);
        }
        let kind = Kind::read(cursor)?;
        let len = cursor.u64()?;
        cursor.check_room(len, kind.bytes_min(), "elements")?;
        left.take_elements(len)?;
        let start = cursor.position();
        match kind {
            Kind::Text => {
                for _ in 0..len {
                    cursor.string()?;
                }
            }
            Kind::Flag | Kind::Array => {
                for _ in 0..len {
                    kind.read_scalar(cursor)?;
                }
            }
            // The room was checked, so that the product does not overflow.
            _ => drop(cursor.bytes(len * kind.bytes_min())?),
        }
        Ok(Value::Array(Array { kind, len: len as usize, range: start..cursor.position() }))
    }

    /// The same as JSON. `header` are the bytes that it was read from; an array may have at most `most` elements.
    ///
    /// # Errors
    ///
    /// What is wrong with a value that JSON cannot express.
    pub fn to_json(&self, header: &[u8], most: usize) -> Result<Json, String> {
        Ok(match self {
            Value::Unsigned(number) => Json::from(*number),
            Value::Negative(number) => Json::from(*number),
            Value::Float(number) => {
                let finite = Number::from_f64(*number);
                Json::Number(finite.ok_or_else(|| format!("is {number}, but must be a finite number"))?)
            }
            Value::Flag(flag) => Json::Bool(*flag),
            Value::Text(range) => {
                let text = std::str::from_utf8(&header[range.clone()]).map_err(|_| "is not UTF-8".to_string())?;
                Json::from(text)
            }
            Value::Array(array) if array.len > most => {
                return Err(format!("is an array of {} elements, but at most {most} are read", array.len));
            }
            Value::Array(array) => {
                let elements = array.elements(header).map(|element| element.to_json(header, 0));
                Json::Array(elements.collect::<Result<_, _>>()?)
            }
        })
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The elements. `header` are the bytes that the array was read from.
    pub fn elements<'a>(&'a self, header: &'a [u8]) -> impl Iterator<Item = Value> + 'a {
        let bytes = &header[..self.range.end];
        let mut cursor = Cursor::new(bytes, bytes.len() as u64);
        cursor.skip_to(self.range.start);
        (0..self.len).map(move |_| self.kind.read_scalar(&mut cursor).expect("read before"))
    }
}
