//! Writes GGUF files, good ones and bad ones.
#![allow(dead_code)]

/// A value of the metadata.
#[derive(Clone)]
pub enum Value {
    U8(u8),
    U32(u32),
    I32(i32),
    F32(f32),
    U64(u64),
    Flag(bool),
    Text(Vec<u8>),
    Texts(Vec<Vec<u8>>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    Flags(Vec<u8>),
    /// Type and bytes as they are.
    Raw(u32, Vec<u8>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }
}

/// A tensor: name, lengths with the innermost first, type and offset as they are written, and data.
#[derive(Clone)]
pub struct Tensor {
    pub name: Vec<u8>,
    pub lens: Vec<u64>,
    pub kind: u32,
    pub offset: u64,
    pub data: Vec<u8>,
}

/// A file that is being made.
#[derive(Clone)]
pub struct Writer {
    pub magic: [u8; 4],
    pub version: u32,
    /// Written instead of the number of tensors.
    pub tensor_count: Option<u64>,
    /// Written instead of the number of keys.
    pub key_count: Option<u64>,
    pub alignment: u64,
    pub entries: Vec<(Vec<u8>, Value)>,
    pub tensors: Vec<Tensor>,
}

impl Writer {
    pub fn new() -> Writer {
        Writer {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            key_count: None,
            alignment: 32,
            entries: Vec::new(),
            tensors: Vec::new(),
        }
    }

    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Writer {
        self.entries.retain(|(own, _)| own != key.as_bytes());
        self.entries.push((key.into(), value.into()));
        self
    }

    pub fn without(&mut self, key: &str) -> &mut Writer {
        self.entries.retain(|(own, _)| own != key.as_bytes());
        self
    }

    /// Adds a tensor of single precision, behind those that there are. `shape` has the innermost length last.
    pub fn tensor(&mut self, name: &str, shape: &[usize], numbers: &[f32]) -> &mut Writer {
        let data = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.coded(name, shape, 0, data)
    }

    /// Adds a tensor of any type.
    pub fn coded(&mut self, name: &str, shape: &[usize], kind: u32, data: Vec<u8>) -> &mut Writer {
        let offset = self
            .tensors
            .last()
            .map_or(0, |last| (last.offset + last.data.len() as u64).next_multiple_of(self.alignment));
        let lens = shape.iter().rev().map(|&len| len as u64).collect();
        self.tensors.push(Tensor { name: name.into(), lens, kind, offset, data });
        self
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.magic);
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            text(&mut out, key);
            write(&mut out, value);
        }
        for Tensor { name, lens, kind, offset, .. } in &self.tensors {
            text(&mut out, name);
            out.extend((lens.len() as u32).to_le_bytes());
            lens.iter().for_each(|len| out.extend(len.to_le_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend(offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        let start = out.len();
        for Tensor { offset, data, .. } in &self.tensors {
            // Offsets that a test made wrong are only written.
            if *offset < 1 << 24 {
                let begin = start + *offset as usize;
                out.resize(out.len().max(begin + data.len()), 0);
                out[begin..begin + data.len()].copy_from_slice(data);
            }
        }
        out
    }
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn write(out: &mut Vec<u8>, value: &Value) {
    let array = |out: &mut Vec<u8>, kind: u32, len: usize| {
        out.extend(9u32.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((len as u64).to_le_bytes());
    };
    let scalar = |out: &mut Vec<u8>, kind: u32, bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(number) => scalar(out, 0, &number.to_le_bytes()),
        Value::U32(number) => scalar(out, 4, &number.to_le_bytes()),
        Value::I32(number) => scalar(out, 5, &number.to_le_bytes()),
        Value::F32(number) => scalar(out, 6, &number.to_le_bytes()),
        Value::Flag(flag) => scalar(out, 7, &[u8::from(*flag)]),
        Value::U64(number) => scalar(out, 10, &number.to_le_bytes()),
        Value::Text(bytes) => {
            out.extend(8u32.to_le_bytes());
            text(out, bytes);
        }
        Value::Texts(texts) => {
            array(out, 8, texts.len());
            texts.iter().for_each(|bytes| text(out, bytes));
        }
        Value::I32s(numbers) => {
            array(out, 5, numbers.len());
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
        Value::F32s(numbers) => {
            array(out, 6, numbers.len());
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
        Value::Flags(flags) => {
            array(out, 7, flags.len());
            out.extend(flags);
        }
        Value::Raw(kind, bytes) => scalar(out, *kind, bytes),
    }
}
