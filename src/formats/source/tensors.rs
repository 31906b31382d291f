//! The tensors of a model: one or several safetensors or GGUF files, mapped or copied into memory, and read where they lie.

use super::Source;
use super::gguf::{self, Allowance, GgmlType};
use base::error::{Error, Result};
use base::limits;
use os::{HostBytes, Loading};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use twox_hash::XxHash3_64;

/// Bytes that are brought into memory between two calls of the progress callback.
const WARM_BYTES: usize = 32 << 20;

/// Number and size in bytes of the pieces of each tensor that are part of the fingerprint.
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 64;

/// All tensors of a source. Copies share the files.
#[derive(Clone)]
pub struct Tensors {
    files: Vec<HostBytes>,
    by_name: BTreeMap<String, Tensor>,
}

/// A tensor, before anything is known of what it is for.
#[derive(Clone)]
pub struct Tensor {
    file: usize,
    range: Range<usize>,
    /// How its numbers are written.
    pub kind: TensorType,
    /// Length of each axis.
    pub shape: Vec<usize>,
}

/// How the numbers of a tensor are written, as its file spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorType {
    /// In a safetensors file.
    Safetensors(Dtype),
    /// In a GGUF file.
    Ggml(GgmlType),
}

/// What the headers of the safetensors files of a model have together. A file may have many names, and the headers of a thousand files
/// are more than anybody waits for.
#[derive(Default)]
struct Headers {
    bytes: u64,
    values: usize,
}

impl Headers {
    /// Counts a header before it is parsed.
    fn add(&mut self, header: &[u8]) -> std::result::Result<(), String> {
        self.bytes += header.len() as u64;
        if self.bytes > limits::WEIGHT_HEADERS_BYTES {
            let (bytes, most) = (self.bytes, limits::WEIGHT_HEADERS_BYTES);
            return Err(format!(
                "brings the headers of the files of weights to {bytes} bytes, but at most {most} are read"
            ));
        }
        self.values += std::str::from_utf8(header).map_or(0, limits::json_values);
        if self.values > limits::WEIGHT_HEADER_VALUES {
            let most = limits::WEIGHT_HEADER_VALUES;
            return Err(format!(
                "brings the headers of the files of weights to more than {most} values, the most that are read"
            ));
        }
        Ok(())
    }
}

impl Display for TensorType {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            TensorType::Safetensors(dtype) => dtype.fmt(f),
            TensorType::Ggml(kind) => kind.fmt(f),
        }
    }
}

impl Tensors {
    /// Maps the files of `source`, or copies them into at most `free_bytes` of memory, and reads their headers.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`] for files that cannot be read or are none of a model,
    /// [`Error::OutOfMemory`] when copies do not fit.
    pub fn open(source: &Source, loading: Loading, free_bytes: u64) -> Result<Tensors> {
        let mut tensors = Tensors { files: Vec::new(), by_name: BTreeMap::new() };
        let mut left = free_bytes;
        let (mut headers, mut allowance) = (Headers::default(), Allowance::default());
        let mut open = |path: &Path| {
            let file = source.files().load(path, loading, left)?;
            left = left.saturating_sub(file.len() as u64);
            Ok(file)
        };
        match source {
            Source::Folder(folder) => {
                for path in folder.weight_files()? {
                    let file = open(&path)?;
                    tensors.add_safetensors(&path, file, &mut headers)?;
                }
            }
            Source::Gguf(model) => {
                for path in model.parts() {
                    let file = open(path)?;
                    tensors.add_gguf(path, file, &mut allowance)?;
                }
            }
        }
        Ok(tensors)
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.by_name.get(name)
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The bytes of a tensor, as they lie in the file.
    pub fn bytes(&self, tensor: &Tensor) -> HostBytes {
        self.files[tensor.file].slice(tensor.range.clone())
    }

    /// Numbers in all tensors together.
    pub fn numbers(&self) -> usize {
        self.by_name.values().map(|tensor| tensor.shape.iter().product::<usize>()).sum()
    }

    /// Stands for all tensors and for `spec`: their names, types and shapes, and samples of their bytes.
    ///
    /// To hash every byte would take as long as to read the files. A model that was trained further differs nearly everywhere.
    pub fn fingerprint(&self, spec: &str) -> u64 {
        let mut seen = spec.as_bytes().to_vec();
        for (name, Tensor { file, range, kind, shape }) in &self.by_name {
            write!(seen, "\n{name} {kind} {shape:?} ").expect("a vector takes all");
            let bytes = &self.files[*file][range.clone()];
            let sample = bytes.len().min(SAMPLE_BYTES);
            for i in 0..SAMPLES {
                let start = (bytes.len() - sample) / (SAMPLES - 1) * i;
                seen.extend_from_slice(&bytes[start..start + sample]);
            }
        }
        XxHash3_64::oneshot(&seen)
    }

    /// Brings the files into memory, so that the first pass does not wait for the disk page by page: of `ranks` equal shares that of
    /// rank `rank`.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] when `progress` says stop.
    pub fn warm(&self, rank: usize, ranks: usize, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<()> {
        let total: usize = self.files.iter().map(|file| file.len()).sum();
        let (mut done, mut chunks) = (0, 0);
        for file in &self.files {
            for start in (0..file.len()).step_by(WARM_BYTES) {
                let len = WARM_BYTES.min(file.len() - start);
                if chunks % ranks == rank {
                    file.slice(start..start + len).populate();
                }
                (done, chunks) = (done + len, chunks + 1);
                if progress(done as f32 / total as f32).is_break() {
                    return Err(Error::Cancelled);
                }
            }
        }
        Ok(())
    }

    /// Reads the header of a GGUF file. It was read when the source was opened, but the file may be another one by now.
    fn add_gguf(&mut self, path: &Path, bytes: HostBytes, allowance: &mut Allowance) -> Result<()> {
        for (name, tensor) in gguf::tensors_of(path, &bytes, allowance)? {
            let gguf::TensorInfo { kind, shape, range } = tensor;
            let tensor = Tensor { file: self.files.len(), range, kind: TensorType::Ggml(kind), shape };
            self.insert(path, name, tensor)?;
        }
        self.files.push(bytes);
        Ok(())
    }

    fn insert(&mut self, path: &Path, name: String, tensor: Tensor) -> Result<()> {
        let refuse = |reason| Error::ModelFile { path: path.into(), reason };
        if let Some(name) = self.by_name.get_key_value(&name).map(|(name, _)| name) {
            return Err(refuse(format!("holds tensor {name:.60}, as another file of the model does")));
        }
        self.by_name.insert(name, tensor);
        match limits::TENSORS {
            most if self.by_name.len() > most => {
                Err(refuse(format!("brings the model to more than {most} tensors, the most that are read")))
            }
            _ => Ok(()),
        }
    }

    /// Reads the header of a safetensors file.
    fn add_safetensors(&mut self, path: &Path, bytes: HostBytes, headers: &mut Headers) -> Result<()> {
        let refuse = |reason| Error::ModelFile { path: path.into(), reason };
        // The length that the file claims bounds the memory that its header takes when it is parsed.
        let claimed = bytes.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
        if claimed > limits::WEIGHT_HEADER_BYTES && claimed < bytes.len() as u64 {
            let most = limits::WEIGHT_HEADER_BYTES;
            return Err(refuse(format!("has a header of {claimed} bytes, but at most {most} are read")));
        }
        let header =
            usize::try_from(claimed).ok().and_then(|claimed| bytes[size_of::<u64>().min(bytes.len())..].get(..claimed));
        headers.add(header.unwrap_or_default()).map_err(refuse)?;
        let (header_len, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|e| refuse(format!("is not a whole safetensors file: {e}")))?;
        // Eight bytes say how long the header is; offsets count from its end. `read_metadata` checked them all.
        let data_start = size_of::<u64>() + header_len;
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let range = data_start + start..data_start + end;
            let kind = TensorType::Safetensors(info.dtype);
            let tensor = Tensor { file: self.files.len(), range, kind, shape: info.shape.clone() };
            self.insert(path, name, tensor)?;
        }
        self.files.push(bytes);
        Ok(())
    }
}
