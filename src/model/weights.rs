//! The tensors of a model folder: one or several safetensors files, mapped or copied into memory, and read where they lie.

use crate::backend::{Coding, DType, HostBytes, HostMatrix, HostVector, Loading, copy_file, map_file, read_file};
use crate::error::{Error, Result};
use crate::limits;
use crate::log::{self, Level};
use crate::model::names::Names;
use crate::model::weight_index;
use memmap2::{Mmap, MmapMut};
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use twox_hash::XxHash3_64;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Where AutoGPTQ and AutoAWQ describe what they did to the weights, unless config.json does.
const QUANTIZATION_FILES: [&str; 2] = ["quantize_config.json", "quant_config.json"];

/// Bytes that are brought into memory between two calls of the progress callback.
const WARM_BYTES: usize = 32 << 20;

/// Of each tensor so many pieces of so many bytes are part of the fingerprint.
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 64;

/// Tensors that a warning names; the rest are counted.
const NAMED_IN_WARNING: usize = 5;

/// The tensors of a model folder that nobody has taken yet.
pub struct Weights {
    folder: PathBuf,
    files: Vec<Arc<Mmap>>,
    tensors: HashMap<String, Entry>,
    names: &'static Names,
    /// Stands before the names of all tensors but the head's: that of `names`, or nothing.
    prefix: &'static str,
    dtype: DType,
    parameters: u64,
    bytes: u64,
    /// Every tensor there is, by its name.
    inventory: BTreeMap<String, Entry>,
}

#[derive(Clone)]
struct Entry {
    file: usize,
    range: Range<usize>,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Weights {
    /// Maps the files of `folder`, or copies them into at most `free_bytes` of memory, and reads their headers. The parts
    /// of the decoder are called by `names`. Matrices will be given as `dtype`; `None` keeps the type of the embedding
    /// table.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`] for files that cannot be read or are none of a model,
    /// [`Error::OutOfMemory`] when copies do not fit.
    pub fn open(
        folder: &Path,
        names: &'static Names,
        dtype: Option<DType>,
        loading: Loading,
        free_bytes: u64,
    ) -> Result<Weights> {
        let mut files = Vec::new();
        let mut tensors = HashMap::new();
        let mut left = free_bytes;
        for path in shards(folder)? {
            let file = match loading {
                Loading::Map => map_file(&path)?,
                Loading::Read => copy_file(&path, left)?,
            };
            left = left.saturating_sub(file.len() as u64);
            read_header(&path, &file, files.len(), &mut tensors)?;
            files.push(file);
        }
        let inventory = tensors.iter().map(|(name, entry): (&String, &Entry)| (name.clone(), entry.clone())).collect();
        // A checkpoint of the bare decoder, without its head, has no prefix.
        let is_bare = tensors.contains_key(&format!("{}.weight", names.embedding));
        let prefix = if is_bare { "" } else { names.prefix };
        let mut weights = Weights {
            folder: folder.into(),
            files,
            tensors,
            names,
            prefix,
            dtype: DType::F32,
            parameters: 0,
            bytes: 0,
            inventory,
        };
        weights.dtype = match dtype {
            Some(dtype) => dtype,
            None => weights.stored_dtype()?,
        };
        Ok(weights)
    }

    fn stored_dtype(&self) -> Result<DType> {
        let name = self.full_name(self.names.embedding, "weight");
        match self.tensors.get(&name) {
            Some(entry) => supported(&name, entry.dtype).map(Coding::dtype),
            // The decoder will ask for this tensor and say that it is missing, with the shape it wants.
            None => Ok(DType::F32),
        }
    }

    /// What the tensors are called.
    pub fn names(&self) -> &'static Names {
        self.names
    }

    /// Number type of the matrices, and of what is computed with them where a device has no other.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The same tensors, whose matrices will be given as `dtype`.
    pub fn converted(self, dtype: DType) -> Weights {
        Weights { dtype, ..self }
    }

    /// Bytes that all tensors have together as [`Weights::dtype`].
    pub fn total_bytes(&self) -> u64 {
        let numbers: usize = self.tensors.values().map(|entry| entry.shape.iter().product::<usize>()).sum();
        numbers as u64 * self.dtype.bytes() as u64
    }

    /// Numbers in the tensors taken so far.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Bytes of the tensors taken so far, as they are held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Stands for all tensors, taken or not, and for `spec`: their names, types and shapes, and samples of their bytes.
    ///
    /// To hash every byte would take as long as to read the files. A model that was trained further differs nearly everywhere.
    pub fn fingerprint(&self, spec: &str) -> u64 {
        let mut seen = spec.as_bytes().to_vec();
        for (name, Entry { file, range, dtype, shape }) in &self.inventory {
            write!(seen, "\n{name} {dtype} {shape:?} ").expect("a vector takes all");
            let bytes = &self.files[*file][range.clone()];
            let sample = bytes.len().min(SAMPLE_BYTES);
            for i in 0..SAMPLES {
                let start = (bytes.len() - sample) / (SAMPLES - 1) * i;
                seen.extend_from_slice(&bytes[start..start + sample]);
            }
        }
        XxHash3_64::oneshot(&seen)
    }

    /// Brings the files into memory, so that the first pass does not wait for the disk page by page.
    pub fn warm(&self, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<()> {
        let total: usize = self.files.iter().map(|file| file.len()).sum();
        let mut done = 0;
        for file in &self.files {
            for start in (0..file.len()).step_by(WARM_BYTES) {
                let len = WARM_BYTES.min(file.len() - start);
                populate(file, start, len);
                done += len;
                if progress(done as f32 / total as f32).is_break() {
                    return Err(Error::Cancelled);
                }
            }
        }
        Ok(())
    }

    /// The matrix `name`, `[rows, cols]`, as [`Weights::dtype`].
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<HostMatrix> {
        let (bytes, coding) = self.take(self.full_name(name, "weight"), &[rows, cols])?;
        let wanted = Coding::from(self.dtype);
        let bytes = if coding == wanted { bytes } else { convert(&bytes, coding, wanted, cols)? };
        self.bytes += bytes.len() as u64;
        Ok(HostMatrix::new(bytes, wanted, rows, cols))
    }

    /// The weights of the norm `name`, `[len]`, in the type they are stored in.
    pub fn vector(&mut self, name: &str, len: usize) -> Result<HostVector> {
        self.small(self.full_name(name, "weight"), len)
    }

    /// The bias of the linear layer `name`, `[len]`, in the type it is stored in.
    pub fn bias(&mut self, name: &str, len: usize) -> Result<HostVector> {
        self.small(self.full_name(name, "bias"), len)
    }

    fn small(&mut self, name: String, len: usize) -> Result<HostVector> {
        let (bytes, coding) = self.take(name, &[len])?;
        self.bytes += (len * size_of::<f32>()) as u64;
        Ok(HostVector::new(bytes, coding, len))
    }

    /// Refuses tensors that nobody took although they belong to a part of the decoder, and warns about the others: towers of
    /// other modalities, heads of other tasks.
    ///
    /// # Errors
    ///
    /// [`Error::UnreadTensor`]: the model would answer, and wrongly.
    pub fn finish(&self) -> Result<()> {
        let mut unread: Vec<&str> =
            self.tensors.keys().map(String::as_str).filter(|name| !self.is_harmless(name)).collect();
        unread.sort_unstable();
        let mut of_decoder = unread.iter().filter(|name| self.is_of_decoder(name));
        if let Some(name) = of_decoder.next() {
            return Err(Error::UnreadTensor { name: (*name).into(), others: of_decoder.count() });
        }
        if !unread.is_empty() {
            let named = unread[..unread.len().min(NAMED_IN_WARNING)].join(", ");
            let more = if unread.len() > NAMED_IN_WARNING { ", …" } else { "" };
            let folder = self.folder.display();
            log::log(Level::Warn, format_args!("{folder}: {} tensors are not used: {named}{more}", unread.len()));
        }
        Ok(())
    }

    /// Whether a tensor belongs to a layer, or to the embedding, the last norm or the head.
    fn is_of_decoder(&self, name: &str) -> bool {
        let Names { layers, embedding, final_norm, head, .. } = self.names;
        let is_part = |name: &str, part: &str| name.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
        let in_body = |name: &str| name.starts_with(layers) || is_part(name, embedding) || is_part(name, final_norm);
        name.strip_prefix(self.prefix).is_some_and(in_body) || is_part(name, head)
    }

    /// Tensors that many checkpoints carry and no decoder reads: tables that are computed, a tied head stored once more.
    fn is_harmless(&self, name: &str) -> bool {
        name.ends_with("rotary_emb.inv_freq") || name == self.full_name(self.names.head, "weight")
    }

    fn full_name(&self, name: &str, kind: &str) -> String {
        let prefix = if name == self.names.head { "" } else { self.prefix };
        format!("{prefix}{name}.{kind}")
    }

    /// What to say of a tensor that is not there. AWQ and GPTQ may keep their settings in a file of their own, and have codes
    /// where the decoder looks for weights.
    fn missing(&self, name: String, shape: &[usize]) -> Error {
        let codes = name.strip_suffix("weight").map(|module| format!("{module}qweight"));
        let Some((codes, entry)) = codes.as_ref().and_then(|name| self.tensors.get_key_value(name)) else {
            return Error::MissingTensor { name, shape: shape.into() };
        };
        let described = QUANTIZATION_FILES.iter().find(|file| self.folder.join(file).exists());
        let found = match described {
            Some(file) => format!("{}, codes of quantized weights that {file} describes", entry.dtype),
            None => format!("{}, codes of quantized weights", entry.dtype),
        };
        Error::TensorDtype { name: codes.clone(), found }
    }

    fn take(&mut self, name: String, shape: &[usize]) -> Result<(HostBytes, Coding)> {
        let Some(entry) = self.tensors.remove(&name) else {
            return Err(self.missing(name, shape));
        };
        if entry.shape != shape {
            return Err(Error::TensorShape { name, found: entry.shape, wanted: shape.into() });
        }
        let coding = supported(&name, entry.dtype)?;
        self.parameters += shape.iter().product::<usize>() as u64;
        Ok((HostBytes::mapped(self.files[entry.file].clone(), entry.range), coding))
    }
}

/// The safetensors files of a folder.
fn shards(folder: &Path) -> Result<Vec<PathBuf>> {
    let single = folder.join(SINGLE);
    if single.exists() {
        return Ok(vec![single]);
    }
    let index = folder.join(INDEX);
    let Some(bytes) = read_file(&index, limits::INDEX_FILE_BYTES)? else {
        let reason = format!("has neither {SINGLE} nor {INDEX}");
        return Err(Error::ModelFile { path: folder.into(), reason });
    };
    let names = weight_index::file_names(&bytes).map_err(|reason| Error::ModelFile { path: index, reason })?;
    let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    match paths.iter().find(|path| !path.exists()) {
        Some(path) => Err(Error::ModelFile { path: path.clone(), reason: format!("is missing, but {INDEX} names it") }),
        None => Ok(paths),
    }
}

fn read_header(path: &Path, map: &Mmap, file: usize, tensors: &mut HashMap<String, Entry>) -> Result<()> {
    let refuse = |reason| Error::ModelFile { path: path.into(), reason };
    // The length that the file claims bounds the memory that its header takes when it is parsed.
    let claimed = map.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if claimed > limits::WEIGHT_HEADER_BYTES && claimed < map.len() as u64 {
        let most = limits::WEIGHT_HEADER_BYTES;
        return Err(refuse(format!("has a header of {claimed} bytes, but at most {most} are read")));
    }
    let (header_len, metadata) =
        SafeTensors::read_metadata(map).map_err(|e| refuse(format!("is not a whole safetensors file: {e}")))?;
    // Eight bytes say how long the header is; offsets count from its end. `read_metadata` checked them all.
    let data_start = size_of::<u64>() + header_len;
    for (name, info) in metadata.tensors() {
        let (start, end) = info.data_offsets;
        let range = data_start + start..data_start + end;
        let entry = Entry { file, range, dtype: info.dtype, shape: info.shape.clone() };
        if tensors.insert(name.clone(), entry).is_some() {
            return Err(refuse(format!("holds tensor {name:.60}, as another file of the model does")));
        }
        if tensors.len() > limits::TENSORS {
            return Err(refuse(format!(
                "brings the model to more than {} tensors, the most that are read",
                limits::TENSORS
            )));
        }
    }
    Ok(())
}

fn supported(name: &str, dtype: Dtype) -> Result<Coding> {
    match dtype {
        Dtype::F32 => Ok(Coding::F32),
        Dtype::F16 => Ok(Coding::F16),
        Dtype::BF16 => Ok(Coding::Bf16),
        other => Err(Error::TensorDtype { name: name.into(), found: other.to_string() }),
    }
}

fn populate(file: &Mmap, start: usize, len: usize) {
    #[cfg(target_os = "linux")]
    if file.advise_range(memmap2::Advice::PopulateRead, start, len).is_ok() {
        return;
    }
    // Kernels before 5.14 do not know the advice: reading a byte of each page does the same, more slowly.
    const PAGE: usize = 4096;
    black_box(file[start..start + len].iter().step_by(PAGE).fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
}

/// The same numbers in another coding, rounded to nearest even. `[rows, cols]`
fn convert(bytes: &[u8], from: Coding, to: Coding, cols: usize) -> Result<HostBytes> {
    let row_bytes = from.row_bytes(cols).max(1);
    let len = bytes.len() / row_bytes * to.row_bytes(cols);
    let refused = |_| Error::OutOfMemory { what: "converted weights", bytes: len as u64, knob: "dtype conversion" };
    let mut map = MmapMut::map_anon(len).map_err(refused)?;
    let mut numbers = vec![0.0; cols];
    for (to_row, row) in map.chunks_exact_mut(to.row_bytes(cols).max(1)).zip(bytes.chunks_exact(row_bytes)) {
        from.decode(row, &mut numbers);
        to.encode(numbers.iter().copied(), to_row);
    }
    Ok(HostBytes::mapped(Arc::new(map.make_read_only().map_err(refused)?), 0..len))
}
