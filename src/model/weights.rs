//! The weights of a decoder: which tensors of its source does it take, and in which coding?
//!
//! Invariant: when [`Weights::finish`] has returned, every tensor of the decoder's parts was taken once.

use crate::backend::{Coding, DType, HostBytes, HostMatrix, HostVector, Loading};
use crate::error::{Error, Result};
use crate::log::{self, Level};
use crate::model::names::{Layout, Names, Root};
use crate::model::source::{Source, TensorType, Tensors};
use safetensors::Dtype;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

/// Tensors that a warning names; the rest are counted.
const NAMED_IN_WARNING: usize = 5;

/// The tensors of a source, by the names that a decoder's parts have in it. Copies share the files.
#[derive(Clone)]
pub struct Weights {
    tensors: Tensors,
    /// Names of the tensors that were taken.
    taken: HashSet<String>,
    layout: Layout,
    root: Root,
    dtype: DType,
    parameters: u64,
    bytes: u64,
    /// For messages.
    path: PathBuf,
    quantization_file: Option<&'static str>,
}

impl Weights {
    /// The weights of `source`, in which `layout` says where the parts of the decoder are. Matrices will be given as `dtype`;
    /// `None` keeps the type of the embedding table. Files that are copied may take `free_bytes` of memory.
    ///
    /// # Errors
    ///
    /// Those of [`Tensors::open`], and [`Error::TensorDtype`] for an embedding table of a type that is not read.
    pub fn open(
        source: &Source,
        layout: Layout,
        dtype: Option<DType>,
        loading: Loading,
        free_bytes: u64,
    ) -> Result<Weights> {
        let tensors = Tensors::open(source, loading, free_bytes)?;
        let embedding = layout.names.embedding;
        let has_embedding = |root: &&Root| tensors.get(&format!("{}{embedding}.weight", root.body)).is_some();
        // Without an embedding table the decoder will say that it is missing where it should be first of all.
        let root = *layout.roots.iter().find(has_embedding).unwrap_or(&layout.roots[0]);
        let mut weights = Weights {
            tensors,
            taken: HashSet::new(),
            layout,
            root,
            dtype: DType::F32,
            parameters: 0,
            bytes: 0,
            path: source.path().into(),
            quantization_file: source.quantization_file(),
        };
        weights.dtype = match dtype {
            Some(dtype) => dtype,
            None => weights.stored_dtype()?,
        };
        Ok(weights)
    }

    fn stored_dtype(&self) -> Result<DType> {
        let name = self.full_name(self.layout.names.embedding, "weight");
        match self.tensors.get(&name) {
            Some(tensor) => supported(&name, tensor.kind).map(Coding::dtype),
            // The decoder will ask for this tensor and say that it is missing, with the shape it wants.
            None => Ok(DType::F32),
        }
    }

    /// What the tensors are called.
    pub fn names(&self) -> &'static Names {
        self.layout.names
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
        self.tensors.numbers() as u64 * self.dtype.bytes() as u64
    }

    /// Numbers in the tensors taken so far.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Bytes of the tensors taken so far, as they are held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// As [`Tensors::fingerprint`].
    pub fn fingerprint(&self, spec: &str) -> u64 {
        self.tensors.fingerprint(spec)
    }

    /// As [`Tensors::warm`].
    pub fn warm(&self, rank: usize, ranks: usize, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<()> {
        self.tensors.warm(rank, ranks, progress)
    }

    /// The matrix `name`, `[rows, cols]`, as [`Weights::dtype`] or as codes.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<HostMatrix> {
        let all = 0..rows;
        let parts = self.matrix_parts(name, (rows, cols), std::slice::from_ref(&all), 0..cols)?;
        Ok(parts.into_iter().next().expect("one part was asked for"))
    }

    /// Parts of the matrix `name`, whose shape is `shape`: one for each range of `rows`, each with the columns `cols`. As
    /// [`Weights::dtype`], or as the codes that the file has; what no part has is not read.
    pub fn matrix_parts(
        &mut self,
        name: &str,
        shape: (usize, usize),
        rows: &[Range<usize>],
        cols: Range<usize>,
    ) -> Result<Vec<HostMatrix>> {
        let (bytes, coding) = self.take(self.full_name(name, "weight"), &[shape.0, shape.1])?;
        let whole = HostMatrix::new(bytes, coding, shape.0, shape.1);
        let wanted = Coding::from(self.dtype);
        // Codes stay codes, unless the columns are cut within a group of them.
        let is_cut = |col: usize| col.is_multiple_of(coding.group()) || col == shape.1;
        let stays = !coding.is_plain() && is_cut(cols.start) && is_cut(cols.end);
        let part = |rows: &Range<usize>| {
            let rows = whole.rows(rows.clone());
            match (coding.is_plain(), stays) {
                (true, _) => rows.columns(cols.clone()).converted(wanted),
                (false, true) => Ok(rows.columns(cols.clone())),
                (false, false) => Ok(rows.converted(wanted)?.columns(cols.clone())),
            }
        };
        let parts: Vec<HostMatrix> = rows.iter().map(part).collect::<Result<_>>()?;
        self.bytes += parts.iter().map(HostMatrix::bytes).sum::<usize>() as u64;
        Ok(parts)
    }

    /// The numbers `part` of the weights of the norm `name`, `[len]`, in the type they are stored in.
    pub fn vector(&mut self, name: &str, len: usize, part: Range<usize>) -> Result<HostVector> {
        Ok(self.small(self.full_name(name, "weight"), len, &[part])?.remove(0))
    }

    /// Parts of the bias of the linear layer `name`, `[len]`, in the type it is stored in.
    pub fn bias(&mut self, name: &str, len: usize, parts: &[Range<usize>]) -> Result<Vec<HostVector>> {
        self.small(self.full_name(name, "bias"), len, parts)
    }

    fn small(&mut self, name: String, len: usize, parts: &[Range<usize>]) -> Result<Vec<HostVector>> {
        let (bytes, coding) = self.take(name.clone(), &[len])?;
        if !coding.is_plain() {
            let found = format!("{coding}, which only matrices may have");
            return Err(Error::TensorDtype { name, found });
        }
        let whole = HostVector::new(bytes, coding, len);
        self.bytes += parts.iter().map(|part| part.len() * size_of::<f32>()).sum::<usize>() as u64;
        Ok(parts.iter().map(|part| whole.part(part.clone())).collect())
    }

    /// Refuses tensors that nobody took although they belong to a part of the decoder, and warns about the others: towers of
    /// other modalities, heads of other tasks.
    ///
    /// # Errors
    ///
    /// [`Error::UnreadTensor`]: the model would answer, and wrongly.
    pub fn finish(&self) -> Result<()> {
        let is_unread = |name: &&str| !self.taken.contains(*name) && !self.is_harmless(name);
        let unread: Vec<&str> = self.tensors.names().filter(is_unread).collect();
        let mut of_decoder = unread.iter().filter(|name| self.is_of_decoder(name));
        if let Some(name) = of_decoder.next() {
            return Err(Error::UnreadTensor { name: (*name).into(), others: of_decoder.count() });
        }
        if !unread.is_empty() {
            let named = unread[..unread.len().min(NAMED_IN_WARNING)].join(", ");
            let more = if unread.len() > NAMED_IN_WARNING { ", …" } else { "" };
            let path = self.path.display();
            log::log(Level::Warn, format_args!("{path}: {} tensors are not used: {named}{more}", unread.len()));
        }
        Ok(())
    }

    /// Whether a tensor belongs to a layer, or to the embedding, the last norm or the head.
    fn is_of_decoder(&self, name: &str) -> bool {
        let Names { layers, embedding, final_norm, head, .. } = self.layout.names;
        let is_part = |name: &str, part: &str| name.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
        let in_body = |name: &str| name.starts_with(layers) || is_part(name, embedding) || is_part(name, final_norm);
        name.strip_prefix(self.root.body).is_some_and(in_body)
            || name.strip_prefix(self.root.head).is_some_and(|name| is_part(name, head))
    }

    /// Tensors that many checkpoints carry and no decoder reads: tables that are computed, a tied head stored once more, and what the
    /// layout leaves aside.
    fn is_harmless(&self, name: &str) -> bool {
        name.ends_with("rotary_emb.inv_freq")
            || name == self.full_name(self.layout.names.head, "weight")
            || self.layout.ignored.iter().any(|beginning| name.starts_with(beginning))
    }

    fn full_name(&self, name: &str, kind: &str) -> String {
        let prefix = if name == self.layout.names.head { self.root.head } else { self.root.body };
        format!("{prefix}{name}.{kind}")
    }

    /// What to say of a tensor that is not there. AWQ and GPTQ may keep their settings in a file of their own, and have codes
    /// where the decoder looks for weights.
    fn missing(&self, name: String, shape: &[usize]) -> Error {
        let codes = name.strip_suffix("weight").map(|module| format!("{module}qweight"));
        let coded = codes.and_then(|codes| Some((self.tensors.get(&codes)?.kind, codes)));
        let Some((kind, codes)) = coded else {
            return Error::MissingTensor { name, shape: shape.into() };
        };
        let found = match self.quantization_file {
            Some(file) => format!("{kind}, codes of quantized weights that {file} describes"),
            None => format!("{kind}, codes of quantized weights"),
        };
        Error::TensorDtype { name: codes, found }
    }

    fn take(&mut self, name: String, shape: &[usize]) -> Result<(HostBytes, Coding)> {
        let Some(tensor) = self.tensors.get(&name) else {
            return Err(self.missing(name, shape));
        };
        if tensor.shape != shape {
            return Err(Error::TensorShape { name, found: tensor.shape.clone(), wanted: shape.into() });
        }
        let coding = supported(&name, tensor.kind)?;
        let bytes = self.tensors.bytes(tensor);
        self.parameters += shape.iter().product::<usize>() as u64;
        self.taken.insert(name);
        Ok((bytes, coding))
    }
}

fn supported(name: &str, kind: TensorType) -> Result<Coding> {
    let coding = match kind {
        TensorType::Safetensors(Dtype::F32) => Some(Coding::F32),
        TensorType::Safetensors(Dtype::F16) => Some(Coding::F16),
        TensorType::Safetensors(Dtype::BF16) => Some(Coding::Bf16),
        TensorType::Safetensors(_) => None,
        TensorType::Ggml(kind) => kind.coding(),
    };
    coding.ok_or_else(|| Error::TensorDtype { name: name.into(), found: kind.to_string() })
}
