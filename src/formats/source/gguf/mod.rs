//! A GGUF file as the source of a model, or the first of several parts of one.
//!
//! The metadata are those of the first part, and the tensors are those of all parts. Headers are read into memory of the process, so
//! that a file that is truncated meanwhile is an error; the data of tensors are mapped or copied as those of a folder are.
//! Invariant: names of tensors are different, and the number of parts is the one that each part says.

mod cursor;
mod header;
mod sampling;
mod tensor_type;
mod tokenizer;
mod value;

pub use header::{Allowance, Header, TensorInfo};
pub use tensor_type::GgmlType;
pub use tokenizer::Vocabulary;

use crate::WeightFormat;
use base::error::{Error, Result};
use base::limits;
use cursor::Stop;
use os::Files;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Bytes of a file that are read before its header is parsed; more are read if the header is longer.
const FIRST_BYTES: u64 = 1 << 20;
/// The same of the parts after the first, which have no vocabulary.
const FIRST_BYTES_OF_PART: u64 = 1 << 16;

/// A model in GGUF files.
pub struct Gguf {
    files: Files,
    /// The parts, in order. The first is the one that was given.
    parts: Vec<PathBuf>,
    /// Of the first part.
    header: Header,
    /// Of all parts: the number of the part, and what it is.
    tensors: Vec<(String, usize, TensorInfo)>,
}

impl Gguf {
    /// Reads the headers of the file at `path` among `files`, and those of the parts that belong to it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] for a file that cannot be read or a part that is missing, [`Error::ModelFile`] for one that is no GGUF file, goes
    /// beyond the [`limits`], or is not the first part.
    pub fn open(files: Files, path: &Path) -> Result<Gguf> {
        let mut allowance = Allowance::default();
        let header = read_header(&files, path, FIRST_BYTES, &mut allowance)?;
        let count = Split::of(path, &header)?.map_or(Ok(1), |split| split.check_first(path, 0))?;
        let parts = (0..count).map(|part| part_path(path, part, count)).collect::<Result<Vec<_>>>()?;
        let total = header.unsigned("split.tensors.count").map_err(|reason| wrong(path, reason))?;
        let mut model = Gguf { files, parts: parts.clone(), tensors: Vec::new(), header };
        let first = std::mem::take(&mut model.header.tensors);
        model.add(0, first)?;
        for (part, path) in parts.iter().enumerate().skip(1) {
            let header = read_header(&model.files, path, FIRST_BYTES_OF_PART, &mut allowance)?;
            let own = Split::of(path, &header)?;
            let own = own.ok_or_else(|| wrong(path, "has no split.count, but is a part of a split file".into()))?;
            if own.check_first(path, part)? != count {
                return Err(wrong(path, format!("has a split.count other than {count}, that of the first part")));
            }
            model.add(part, header.tensors)?;
        }
        model.check_names()?;
        match total {
            Some(total) if count > 1 && total != model.tensors.len() as u64 => {
                let found = model.tensors.len();
                Err(wrong(path, format!("has a split.tensors.count of {total}, but its parts have {found} tensors")))
            }
            _ => Ok(model),
        }
    }

    fn add(&mut self, part: usize, tensors: Vec<(String, TensorInfo)>) -> Result<()> {
        self.tensors.extend(tensors.into_iter().map(|(name, tensor)| (name, part, tensor)));
        match limits::TENSORS {
            most if self.tensors.len() > most => Err(wrong(
                &self.parts[part],
                format!("brings the model to more than {most} tensors, the most that are read"),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses a tensor that two parts have.
    fn check_names(&self) -> Result<()> {
        let mut names = HashSet::new();
        match self.tensors.iter().find(|(name, _, _)| !names.insert(name)) {
            Some((name, part, _)) => {
                Err(wrong(&self.parts[*part], format!("holds tensor {name:.60}, as another part of the model does")))
            }
            None => Ok(()),
        }
    }

    /// Where its files are.
    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// The file that was given.
    pub fn path(&self) -> &Path {
        &self.parts[0]
    }

    /// All parts.
    pub fn parts(&self) -> &[PathBuf] {
        &self.parts
    }

    /// The metadata.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The tensors: name, number of the part that it is in, and what it is.
    pub fn tensors(&self) -> &[(String, usize, TensorInfo)] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|(own, _, _)| own == name).map(|(_, _, tensor)| tensor)
    }

    /// The numbers of a small tensor of single precision; `None` if there is no such tensor.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be read, [`Error::ModelFile`] for a tensor of another type, or of more than `most` numbers.
    pub fn small_tensor(&self, name: &str, most: usize) -> Result<Option<Vec<f32>>> {
        let found = self.tensors.iter().find(|(own, _, _)| own == name);
        let Some((_, part, TensorInfo { kind, shape, range })) = found else { return Ok(None) };
        let path = &self.parts[*part];
        let [len] = shape[..] else {
            return Err(wrong(path, format!("tensor {name} has shape {shape:?}, but must have one axis")));
        };
        if kind.coding() != Some(WeightFormat::F32) || len > most {
            let reason =
                format!("tensor {name} is {len} numbers of type {kind}, but must be at most {most} of type F32");
            return Err(wrong(path, reason));
        }
        let (bytes, _) = self.files.read_part(path, range.start as u64, range.len() as u64)?;
        let (numbers, rest) = bytes.as_chunks();
        match numbers.len() == len && rest.is_empty() {
            true => Ok(Some(numbers.iter().copied().map(f32::from_le_bytes).collect())),
            false => Err(wrong(path, format!("ends within tensor {name}"))),
        }
    }

    /// The tokenizer as a tokenizer.json; `None` if the file has none.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] for one that is wrong or not known.
    pub fn tokenizer_json(&self) -> Result<Option<Vec<u8>>> {
        tokenizer::json(&self.header).map_err(|reason| self.wrong(reason))
    }

    /// The recommended sampling as a generation_config.json; `None` if the file recommends none.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] for what is no number.
    pub fn generation_config_json(&self) -> Result<Option<Vec<u8>>> {
        sampling::json(&self.header).map_err(|reason| self.wrong(reason))
    }

    /// The vocabulary; `None` if the file has none.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] for one that is wrong.
    pub fn vocabulary(&self) -> Result<Option<Vocabulary<'_>>> {
        Vocabulary::read(&self.header).map_err(|reason| self.wrong(reason))
    }

    /// An error that says what is wrong with the file that was given.
    pub fn wrong(&self, reason: String) -> Error {
        wrong(self.path(), reason)
    }
}

/// Reads the tensors of a part whose bytes are all there, as [`Gguf::open`] read them from its file. Its header is taken from `allowance`.
///
/// # Errors
///
/// [`Error::ModelFile`]: the file at `path` is another one than before.
pub fn tensors_of(path: &Path, bytes: &[u8], allowance: &mut Allowance) -> Result<Vec<(String, TensorInfo)>> {
    match header::parse(bytes, bytes.len() as u64, allowance) {
        Ok(parsed) => {
            *allowance = parsed.left;
            Ok(parsed.tensors)
        }
        Err(Stop::Wrong(reason)) => Err(wrong(path, reason)),
        Err(Stop::MoreBytes(_)) => unreachable!("all bytes of the file are there"),
    }
}

fn wrong(path: &Path, reason: String) -> Error {
    Error::ModelFile { path: path.into(), reason }
}

/// Reads the header of a file, first of all its `first_bytes`, and takes it from `allowance`.
fn read_header(files: &Files, path: &Path, first_bytes: u64, allowance: &mut Allowance) -> Result<Header> {
    let mut wanted = first_bytes;
    loop {
        let (bytes, file_bytes) = files.read_part(path, 0, wanted)?;
        match header::parse(&bytes, file_bytes.max(bytes.len() as u64), allowance) {
            Ok(parsed) => {
                *allowance = parsed.left;
                return Ok(parsed.with(bytes));
            }
            Err(Stop::Wrong(reason)) => return Err(wrong(path, reason)),
            Err(Stop::MoreBytes(more)) if more > allowance.bytes => {
                let most = limits::GGUF_HEADER_BYTES;
                let reason = format!(
                    "has a header with which those of the model have more than {most} bytes, the most that are read"
                );
                return Err(wrong(path, reason));
            }
            // The file became shorter than it was.
            Err(Stop::MoreBytes(_)) if (bytes.len() as u64) < wanted.min(file_bytes) => {
                return Err(wrong(path, "became shorter while it was read".into()));
            }
            Err(Stop::MoreBytes(more)) => wanted = more.max(4 * wanted).min(allowance.bytes),
        }
    }
}

/// Which part of a split file a file says that it is.
struct Split {
    number: u64,
    count: u64,
}

impl Split {
    fn of(path: &Path, header: &Header) -> Result<Option<Split>> {
        let read = |key| header.unsigned(key).map_err(|reason| wrong(path, reason));
        let Some(count) = read("split.count")?.filter(|&count| count > 0) else { return Ok(None) };
        if count > limits::WEIGHT_FILES as u64 {
            let most = limits::WEIGHT_FILES;
            return Err(wrong(path, format!("is one of {count} parts, but at most {most} are read")));
        }
        let number = read("split.no")?.ok_or_else(|| wrong(path, "has split.count, but no split.no".into()))?;
        Ok(Some(Split { number, count }))
    }

    /// The number of parts, if this is part `part`.
    fn check_first(&self, path: &Path, part: usize) -> Result<usize> {
        let count = self.count as usize;
        if self.number == part as u64 {
            return Ok(count);
        }
        let found = self.number.saturating_add(1);
        Err(wrong(
            path,
            match part {
                0 => format!(
                    "is part {found} of {count} of a split file: give the path of the first, which ends in -00001-of-{count:05}.gguf"
                ),
                _ => format!("is part {found} of {count} by its split.no, but part {} by its name", part + 1),
            },
        ))
    }
}

/// The path of a part, from 0, whose first is at `path`.
fn part_path(path: &Path, part: usize, count: usize) -> Result<PathBuf> {
    if part == 0 {
        return Ok(path.into());
    }
    let ending = |part: usize| format!("-{part:05}-of-{count:05}.gguf");
    let name = path.file_name().and_then(|name| name.to_str());
    let stem = name.and_then(|name| name.strip_suffix(&ending(1)));
    match stem {
        Some(stem) => Ok(path.with_file_name(format!("{stem}{}", ending(part + 1)))),
        None => Err(wrong(
            path,
            format!(
                "is the first of {count} parts, so that its name must end in {} for the others to be found",
                ending(1)
            ),
        )),
    }
}
