//! The weights of a decoder: which tensors of its source does it take, and in which coding?
//!
//! A matrix that its file has as codes is given as codes, as far as backends hold them; another one is quantized where the options ask
//! for it, and otherwise given in one number type. Invariant: when [`Weights::finish`] has returned, every tensor of the decoder's parts was taken once.

mod expert_bytes;
mod latent;
mod modules;
mod stacked;

pub use expert_bytes::WeightBytes;
pub use latent::LatentShape;

use crate::fields::Fields;
use crate::identity;
use crate::names::{Layout, Names, RateNames, Root};
use crate::quantization::{self, Coded, Module, OnLoad, Quantization};
use crate::spec::DecoderSpec;
use crate::weight_summary::{WeightPart, WeightSummary};
use base::error::{Error, Result};
use base::log::{self, Level};
use compute::{HostMatrix, HostVector, ShortConv};
use formats::source::{Source, SourceFile, Tensor, TensorType, Tensors};
use formats::{DType, WeightFormat};
use os::{HostBytes, Loading};
use safetensors::Dtype;
use std::collections::HashSet;
use std::mem;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

/// Tensors that a warning names; the rest are counted.
const NAMED_IN_WARNING: usize = 5;

/// The tensors of a source, by the names that a decoder's parts have in it. Copies share the files.
#[derive(Clone)]
pub struct Weights {
    tensors: Tensors,
    /// Those of modules of the folder, by the folders of these.
    modules: Vec<(String, Tensors)>,
    /// Names of the tensors that were taken.
    taken: HashSet<String>,
    layout: Layout,
    root: Root,
    dtype: DType,
    quantization: Option<Quantization>,
    on_load: OnLoad,
    parameters: u64,
    bytes: u64,
    summary: WeightSummary,
    /// Matrices that were to be quantized and whose widths no group divides.
    undivided: usize,
    /// Matrices of codes that were decoded, because no backend holds codes that are grouped so.
    decoded: usize,
    /// For messages.
    path: PathBuf,
}

/// How weights are read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Number type of matrices that are not coded; `None` keeps that of the embedding table.
    pub dtype: Option<DType>,
    /// How files come into memory.
    pub loading: Loading,
    /// Memory that files may take that are copied.
    pub free_bytes: u64,
    /// How matrices are quantized that are not coded yet.
    pub on_load: OnLoad,
}

impl Weights {
    /// The weights of `source`, in which `layout` says where the parts of the decoder are, and `quantization` how matrices are coded.
    ///
    /// # Errors
    ///
    /// Those of [`Tensors::open`], [`Quantization::of_file`], [`Quantization::resolve`] and [`OnLoad::check`], and [`Error::TensorDtype`] for an embedding table of a type that is not
    /// read.
    pub fn open(
        source: &Source,
        layout: Layout,
        quantization: Option<Quantization>,
        reading: Reading,
    ) -> Result<Weights> {
        let Reading { dtype, loading, free_bytes, on_load } = reading;
        let tensors = Tensors::open(source, loading, free_bytes)?;
        on_load.check(&tensors)?;
        let embedding = layout.names.embedding;
        let has_embedding = |root: &&Root| {
            let module = format!("{}{embedding}", root.body);
            Quantization::parts(&module).any(|name| tensors.get(&name).is_some())
        };
        // Without an embedding table the decoder will say that it is missing where it should be first of all.
        let root = *layout.roots.iter().find(has_embedding).unwrap_or(&layout.roots[0]);
        let mut quantization = match quantization {
            Some(quantization) => Some(quantization),
            None => quantization_beside(source, &tensors)?,
        };
        if let Some(quantization) = &mut quantization {
            quantization.resolve(source, &tensors)?;
        }
        let mut weights = Weights {
            quantization,
            tensors,
            modules: Vec::new(),
            taken: HashSet::new(),
            layout,
            root,
            dtype: DType::F32,
            on_load,
            parameters: 0,
            bytes: 0,
            summary: WeightSummary::default(),
            undivided: 0,
            decoded: 0,
            path: source.path().into(),
        };
        weights.dtype = match dtype {
            Some(dtype) => dtype,
            None => weights.stored_dtype()?,
        };
        Ok(weights)
    }

    fn stored_dtype(&self) -> Result<DType> {
        let embedding = self.layout.names.embedding;
        let name = self.full_name(embedding, "weight");
        let scales = self.full_name(embedding, "weight_scale");
        match (self.tensors.get(&scales), self.tensors.get(&name)) {
            // A coded table is computed with in the type of its scales, if that has 16 bits.
            (Some(scales), _) if scales.kind == TensorType::Safetensors(Dtype::F16) => Ok(DType::F16),
            (Some(_), _) => Ok(DType::Bf16),
            (None, Some(tensor)) => supported(&name, tensor.kind).map(WeightFormat::dtype),
            // The decoder will ask for this tensor and say that it is missing, with the shape it wants.
            (None, None) => Ok(DType::F32),
        }
    }

    /// What the tensors are called.
    pub fn names(&self) -> &'static Names {
        self.layout.names
    }

    /// Whether the head of the decoder is left out: the checkpoint was written of a model without one, as the names of all others say.
    pub fn lacks_head(&self) -> bool {
        let head = self.full_name(self.layout.names.head, "");
        let module = head.trim_end_matches('.');
        self.root.body.is_empty() && !Quantization::parts(module).any(|name| self.tensors.get(&name).is_some())
    }

    /// Number type of the matrices that are not coded, and of what is computed with all of them where a device has no other.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The same tensors, whose matrices will be given as `dtype` where they are not coded.
    pub fn converted(self, dtype: DType) -> Weights {
        Weights { dtype, ..self }
    }

    /// Bytes that all tensors have together in the form in which they are given.
    pub fn total_bytes(&self) -> u64 {
        let tensors = self.tensors.names().filter_map(|name| Some((name, self.tensors.get(name)?)));
        tensors.map(|(name, tensor)| self.held_bytes(name, tensor) as u64).sum()
    }

    fn held_bytes(&self, name: &str, tensor: &Tensor) -> usize {
        let numbers = tensor.shape.iter().product::<usize>();
        let plain = numbers * self.dtype.bytes();
        let stored = match supported(name, tensor.kind) {
            Ok(stored) if stored.is_plain() => stored,
            Ok(_) => return self.tensors.bytes(tensor).len(),
            Err(_) => {
                let Some(quantization) = &self.quantization else { return plain };
                let decoded = quantization.decoded(name, tensor).map(|numbers| numbers * self.dtype.bytes());
                return decoded.unwrap_or_else(|| self.tensors.bytes(tensor).len());
            }
        };
        let cols = tensor.shape.last().copied().unwrap_or(1);
        match self.on_load_coding(name, stored, &tensor.shape) {
            Some(coding) => numbers / cols * (coding.row_bytes(cols) + coding.scale_bytes(cols)),
            None => plain,
        }
    }

    /// The coding in which a tensor of plain numbers is quantized where it is loaded.
    fn on_load_coding(&self, name: &str, stored: WeightFormat, shape: &[usize]) -> Option<WeightFormat> {
        // Tensors of several matrices have no `.weight` in folders.
        let (cols, is_matrix) = match *shape {
            [_, cols] => (cols, name.ends_with(".weight")),
            [_, _, cols] => (cols, true),
            _ => return None,
        };
        self.on_load.coding(stored, cols).filter(|_| is_matrix && !self.layout.names.is_router(name))
    }

    /// Numbers in the tensors taken so far.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Bytes of the tensors taken so far, as they are held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// In which codings the matrices taken so far are held.
    pub fn summary(&self) -> &WeightSummary {
        &self.summary
    }

    /// How matrices are quantized that are not coded yet.
    pub fn on_load(&self) -> OnLoad {
        self.on_load
    }

    /// Stands for a decoder with these weights: models that differ have different ones.
    pub fn fingerprint(&self, spec: &DecoderSpec) -> u64 {
        let coding = self.quantization.as_ref().map_or_else(String::new, identity::of_quantization);
        let text = format!("{}{coding}{}", identity::of_decoder(spec), identity::of_on_load(self.on_load));
        self.tensors.fingerprint(&text)
    }

    /// As [`Tensors::warm`].
    pub fn warm(&self, rank: usize, ranks: usize, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<()> {
        self.tensors.warm(rank, ranks, progress)
    }

    /// The matrix `name`, `[rows, cols]`.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<HostMatrix> {
        let all = 0..rows;
        let parts = self.matrix_parts(name, (rows, cols), std::slice::from_ref(&all), 0..cols)?;
        Ok(parts.into_iter().next().expect("one part was asked for"))
    }

    /// Parts of the matrix `name`, whose shape is `shape`: one for each range of `rows`, each with the columns `cols`. What no part has
    /// is not read.
    ///
    /// A matrix of codes keeps them, another one is quantized or given as [`Weights::dtype`]. Parts whose columns cut through groups of
    /// codes are decoded to that type: their numbers are those of the whole.
    pub fn matrix_parts(
        &mut self,
        name: &str,
        shape: (usize, usize),
        rows: &[Range<usize>],
        cols: Range<usize>,
    ) -> Result<Vec<HostMatrix>> {
        let parts = self.parts_of(name, shape, rows, cols)?;
        self.count(name, &parts);
        Ok(parts)
    }

    /// As [`matrix_parts`](Self::matrix_parts), without counting them.
    fn parts_of(
        &mut self,
        name: &str,
        shape: (usize, usize),
        rows: &[Range<usize>],
        cols: Range<usize>,
    ) -> Result<Vec<HostMatrix>> {
        let plain = WeightFormat::from(self.dtype);
        if let Some(coded) = self.take_coded(name, shape)? {
            let part = |rows: &Range<usize>| coded.part(rows.clone(), plain)?.cut_columns(cols.clone(), plain);
            return rows.iter().map(part).collect();
        }
        let (bytes, coding) = self.take(self.full_name(name, "weight"), &[shape.0, shape.1])?;
        let whole = HostMatrix::new(bytes, coding, shape.0, shape.1);
        let part = |rows: &Range<usize>| self.held(&whole.rows(rows.clone()), cols.clone());
        let parts = rows.iter().map(part).collect::<Result<_>>()?;
        let is_undivided = self.on_load != OnLoad::None && coding.is_plain();
        self.undivided += usize::from(is_undivided && self.on_load.coding(coding, shape.1).is_none());
        Ok(parts)
    }

    /// As [`parts_of`](Self::parts_of), not quantized: they are made into something else.
    fn stored_parts(
        &mut self,
        name: &str,
        shape: (usize, usize),
        rows: &[Range<usize>],
        cols: Range<usize>,
    ) -> Result<Vec<HostMatrix>> {
        let on_load = mem::replace(&mut self.on_load, OnLoad::None);
        let parts = self.parts_of(name, shape, rows, cols);
        self.on_load = on_load;
        parts
    }

    /// The matrix `name`, `[rows, cols]`, which is not quantized where it is loaded.
    pub fn unquantized(&mut self, name: &str, rows: usize, cols: usize) -> Result<HostMatrix> {
        let on_load = mem::replace(&mut self.on_load, OnLoad::None);
        let matrix = self.matrix(name, rows, cols);
        self.on_load = on_load;
        matrix
    }

    /// Counts what is held of a matrix.
    fn count(&mut self, name: &str, parts: &[HostMatrix]) {
        let part_of_decoder = WeightPart::of(name, self.layout.names);
        for part in parts {
            self.bytes += part.bytes() as u64;
            self.summary.add(part_of_decoder, part.coding(), part.bytes() as u64);
        }
    }

    /// The columns `cols` of a matrix in the form in which it is given.
    fn held(&self, matrix: &HostMatrix, cols: Range<usize>) -> Result<HostMatrix> {
        let (plain, (_, all)) = (WeightFormat::from(self.dtype), matrix.shape());
        if !matrix.coding().is_plain() {
            return matrix.cut_columns(cols, plain);
        }
        let Some(coding) = self.on_load.coding(matrix.coding(), all) else {
            return matrix.columns(cols).converted(plain);
        };
        // The groups are those of the whole matrix.
        let group = coding.group();
        let whole = cols.start / group * group..cols.end.next_multiple_of(group);
        let quantized = quantization::quantize(&matrix.columns(whole.clone()), coding)?;
        quantized.cut_columns(cols.start - whole.start..cols.end - whole.start, plain)
    }

    /// The matrix `name`, if its file has codes of it.
    fn take_coded(&mut self, name: &str, shape: (usize, usize)) -> Result<Option<Coded>> {
        let Some(quantization) = &self.quantization else { return Ok(None) };
        let module = self.module(name);
        let global_scale = quantization.global_scale(&module);
        let Some(coded) = quantization.matrix(&Module::new(&self.tensors, &module, shape.0, shape.1))? else {
            return Ok(None);
        };
        let mut is_new = false;
        for part in Quantization::parts(&module).chain(global_scale) {
            is_new |= self.taken.insert(part);
        }
        self.parameters += if is_new { (shape.0 * shape.1) as u64 } else { 0 };
        self.decoded += usize::from(!coded.stays_coded());
        Ok(Some(coded))
    }

    /// The numbers `part` of the weights of the norm `name`, `[len]`, in the type they are stored in.
    pub fn vector(&mut self, name: &str, len: usize, part: Range<usize>) -> Result<HostVector> {
        Ok(self.small(self.plain_or_weight(name), len, &[part])?.remove(0))
    }

    /// The name of a tensor that a file has as `name` itself, as folders have numbers and llama.cpp some norms, or else as `name.weight`.
    fn plain_or_weight(&self, name: &str) -> String {
        let plain = self.module(name);
        if self.tensors.get(&plain).is_some() { plain } else { self.of_norm(name, "weight", "gamma") }
    }

    /// The name of a tensor of a norm, which folders of the first BERT models have as `old`.
    fn of_norm(&self, name: &str, new: &str, old: &str) -> String {
        let older = self.full_name(name, old);
        if self.tensors.get(&older).is_some() { older } else { self.full_name(name, new) }
    }

    /// The one number of the tensor `name`, which folders call so and GGUF files `name.weight`.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] for a number that is not finite.
    pub fn number(&mut self, name: &str) -> Result<f32> {
        let name = self.plain_or_weight(name);
        let all = 0..1;
        let number = self.small(name.clone(), 1, std::slice::from_ref(&all))?.remove(0).to_f32()[0];
        match number.is_finite() {
            true => Ok(number),
            false => Err(Error::ModelFile {
                path: self.path.clone(),
                reason: format!("{name} is {number}, but must be finite"),
            }),
        }
    }

    /// Parts of the bias of the linear layer `name`, `[len]`, in the type it is stored in.
    pub fn bias(&mut self, name: &str, len: usize, parts: &[Range<usize>]) -> Result<Vec<HostVector>> {
        self.small(self.of_norm(name, "bias", "beta"), len, parts)
    }

    /// Parts of the parameter `name`, whose tensor has this very name, `[len]`.
    pub fn parameter(&mut self, name: &str, len: usize, parts: &[Range<usize>]) -> Result<Vec<f32>> {
        // llama.cpp writes some as a matrix of one column, and ERNIE one as a matrix of one row.
        let parts = self.small_of(self.module(name), &[&[len], &[len, 1], &[1, len]], parts)?;
        Ok(parts.iter().flat_map(HostVector::to_f32).collect())
    }

    /// Parts of the rates of decay of the `len` heads of a layer.
    pub fn rates(&mut self, layer: usize, names: RateNames, len: usize, parts: &[Range<usize>]) -> Result<Vec<f32>> {
        let (name, rate): (_, fn(f32) -> f32) = match names {
            RateNames::Logarithms(name) => (name, f32::exp),
            RateNames::Negative(name) => (name, |rate| -rate),
        };
        let name = self.names().in_layer(layer, name);
        Ok(self.parameter(&name, len, parts)?.into_iter().map(rate).collect())
    }

    /// The weights `part` of the norm `name` of `groups` groups, `[len]` all together.
    pub fn norm_of_groups(&mut self, name: &str, [groups, len]: [usize; 2], part: Range<usize>) -> Result<HostVector> {
        let shapes: [&[usize]; 2] = [&[len], &[groups, len / groups]];
        Ok(self.small_of(self.full_name(name, "weight"), &shapes, &[part])?.remove(0))
    }

    /// The weights of the depthwise convolution `name` over `cols` columns, of which `own` are kept, and its biases behind them if it has any.
    /// `[taps, own columns]`, `[own columns]`
    pub fn short_conv(&mut self, name: &str, cols: usize, conv: ShortConv, own: &[Range<usize>]) -> Result<Vec<f32>> {
        let (taps, len) = (conv.taps, cols * conv.taps);
        let shapes: [&[usize]; 2] = [&[cols, 1, taps], &[cols, taps]];
        let all = 0..len;
        let weight = self.small_of(self.full_name(name, "weight"), &shapes, std::slice::from_ref(&all))?[0].to_f32();
        let columns: Vec<usize> = own.iter().cloned().flatten().collect();
        let of_taps = (0..taps).flat_map(|tap| columns.iter().map(move |column| column * taps + tap));
        let mut kept: Vec<f32> = of_taps.map(|at| weight[at]).collect();
        if conv.has_bias {
            kept.extend(self.bias(name, cols, own)?.iter().flat_map(HostVector::to_f32));
        }
        Ok(kept)
    }

    fn small(&mut self, name: String, len: usize, parts: &[Range<usize>]) -> Result<Vec<HostVector>> {
        self.small_of(name, &[&[len]], parts)
    }

    /// Parts of a small tensor, which may have any of these shapes.
    fn small_of(&mut self, name: String, shapes: &[&[usize]], parts: &[Range<usize>]) -> Result<Vec<HostVector>> {
        let found = self.tensors.get(&name).and_then(|tensor| shapes.iter().find(|&&shape| tensor.shape == shape));
        let (bytes, coding) = self.take(name.clone(), found.unwrap_or(&shapes[0]))?;
        if !coding.is_plain() {
            let found = format!("{coding}, which only matrices may have");
            return Err(Error::TensorDtype { name, found });
        }
        let whole = HostVector::new(bytes, coding, shapes[0].iter().product());
        self.bytes += parts.iter().map(|part| part.len() * size_of::<f32>()).sum::<usize>() as u64;
        Ok(parts.iter().map(|part| whole.part(part.clone())).collect())
    }

    /// Leaves aside the tensors of a module that this model does not need, where the file has them.
    pub fn leave(&mut self, name: &str) {
        let beginning = format!("{}.", self.module(name));
        let found = self.tensors.names().filter(|name| name.starts_with(&beginning));
        self.taken.extend(found.map(str::to_owned));
    }

    /// Refuses tensors that nobody took although they belong to a part of the decoder, and warns about the others: towers of
    /// other modalities, heads of other tasks.
    ///
    /// # Errors
    ///
    /// [`Error::UnreadTensor`]: the model would answer, and wrongly.
    pub fn finish(&self) -> Result<()> {
        if self.undivided > 0 {
            let count = self.undivided;
            log::log(
                Level::Warn,
                format_args!("{count} matrices are not quantized: their widths are no multiple of 32"),
            );
        }
        if self.decoded > 0 {
            let (count, dtype) = (self.decoded, self.dtype);
            let why = "desc_act, or groups or widths that are no multiple of 32, as those of NVFP4";
            log::log(Level::Info, format_args!("{count} matrices are decoded to {dtype:?}: they have {why}"));
        }
        let aside = self.tensors.names().filter(|name| self.leaves_aside(name)).count();
        if aside > 0 {
            let dtype = self.dtype;
            let path = self.path.display();
            let what = "scales of activations or of a KV cache are not read: activations are";
            log::log(Level::Info, format_args!("{path}: {aside} {what} computed in {dtype:?}"));
        }
        let behind = self.tensors.names().filter(|name| self.is_behind_the_layers(name)).count();
        if behind > 0 {
            let path = self.path.display();
            let what = "tensors of layers that predict further tokens are not used";
            log::log(Level::Info, format_args!("{path}: {behind} {what}"));
        }
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
            || self.is_behind_the_layers(name)
            || self.leaves_aside(name)
            || self.is_bias_of_nothing(name)
    }

    /// Whether a tensor is of a layer behind those of the decoder.
    fn is_behind_the_layers(&self, name: &str) -> bool {
        let number = name.strip_prefix(self.root.body).and_then(|name| name.strip_prefix(self.layout.names.layers));
        let number = number.and_then(|rest| rest.split_once('.')).and_then(|(number, _)| number.parse::<usize>().ok());
        number.zip(self.layout.layers).is_some_and(|(number, layers)| number >= layers)
    }

    fn leaves_aside(&self, name: &str) -> bool {
        self.quantization.as_ref().is_some_and(|quantization| quantization.leaves_aside(name))
    }

    /// Whether a tensor is the bias that AutoGPTQ gives to layers that have none: zeros.
    fn is_bias_of_nothing(&self, name: &str) -> bool {
        let of_codes = |module: &str| self.tensors.get(&format!("{module}.qweight")).is_some();
        let zeros =
            || self.tensors.get(name).is_some_and(|bias| self.tensors.bytes(bias).iter().all(|&byte| byte == 0));
        self.quantization.is_some() && name.strip_suffix(".bias").is_some_and(of_codes) && zeros()
    }

    fn full_name(&self, name: &str, kind: &str) -> String {
        format!("{}.{kind}", self.module(name))
    }

    fn module(&self, name: &str) -> String {
        let prefix = if name == self.layout.names.head { self.root.head } else { self.root.body };
        format!("{prefix}{name}")
    }

    /// What to say of a tensor that is not there: there may be codes that nothing describes.
    fn missing(&self, name: String, shape: &[usize]) -> Error {
        let module = name.strip_suffix("weight").unwrap_or(&name);
        let ends = ["qweight", "weight_packed"].into_iter();
        let codes = ends.map(|end| format!("{module}{end}")).find_map(|codes| Some((self.tensors.get(&codes)?, codes)));
        match codes {
            None => Error::MissingTensor { name, shape: shape.into() },
            Some((tensor, codes)) if self.quantization.is_none() => {
                let found = format!("{}, codes that no quantization_config describes", tensor.kind);
                Error::TensorDtype { name: codes, found }
            }
            Some((tensor, codes)) => {
                let found = format!("{}, codes of another method than quantization_config says", tensor.kind);
                Error::TensorDtype { name: codes, found }
            }
        }
    }

    fn take(&mut self, name: String, shape: &[usize]) -> Result<(HostBytes, WeightFormat)> {
        let Some(tensor) = self.tensors.get(&name) else {
            return Err(self.missing(name, shape));
        };
        if tensor.shape != shape {
            return Err(Error::TensorShape { name, found: tensor.shape.clone(), wanted: shape.into() });
        }
        let coding = supported(&name, tensor.kind)?;
        let bytes = self.tensors.bytes(tensor);
        // What two parts of a decoder read counts once.
        if self.taken.insert(name) {
            self.parameters += shape.iter().product::<usize>() as u64;
        }
        Ok((bytes, coding))
    }
}

/// What AutoGPTQ or AutoAWQ say of the codes of a folder in a file of their own. It is not read where there are no codes.
fn quantization_beside(source: &Source, tensors: &Tensors) -> Result<Option<Quantization>> {
    if !tensors.names().any(|name| name.ends_with(".qweight")) {
        return Ok(None);
    }
    let Some(SourceFile { path, bytes }) = source.quantization_config()? else { return Ok(None) };
    let value = serde_json::from_slice(&bytes);
    let value = value.map_err(|e| Error::ModelFile { path: path.clone(), reason: format!("is not JSON: {e}") })?;
    Quantization::of_file(Fields::new(&path, &value)?).map(Some)
}

fn supported(name: &str, kind: TensorType) -> Result<WeightFormat> {
    let coding = match kind {
        TensorType::Safetensors(Dtype::F32) => Some(WeightFormat::F32),
        TensorType::Safetensors(Dtype::F16) => Some(WeightFormat::F16),
        TensorType::Safetensors(Dtype::BF16) => Some(WeightFormat::Bf16),
        TensorType::Safetensors(_) => None,
        TensorType::Ggml(kind) => kind.coding(),
    };
    coding.ok_or_else(|| Error::TensorDtype { name: name.into(), found: kind.to_string() })
}
