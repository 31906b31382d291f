//! Weights on the device, and the way they get there.
//!
//! A stack of matrices is held in runs, each in one form: plain numbers of the device's type, or the units of `gemm/quantized/weights.rs`. Invariant: the numbers
//! of a run are those of its codings, rounded once to the device's type.

use super::driver::{Address, Context, Event, EventKind, Memory, Pinned};
use super::gemm::quantized::weights::{self, Form, QuantizedWeights, Writer};
use super::gemm::{Quantized, Weights};
use crate::{HostMatrix, HostVector};
use base::error::{Error, Result};
use formats::{DType, WeightFormat};
use half::{bf16, f16};
use os::thread::share_out;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What to do where the device has no room for weights.
const KNOB: &str = "the memory that other programs hold, or take a smaller model";

/// Threads that write units at most.
const WRITERS_MAX: usize = 16;

/// Threads that copy plain numbers at most.
const LANES_MAX: usize = 4;

/// Bytes of the buffer into which quantized weights are decoded for products of many tokens: two thirds of an H200's second-level cache.
const SCRATCH_BYTES: usize = 32 << 20;

/// Weights of a linear layer, or an embedding table. `[rows, cols]`
pub struct Matrix {
    runs: Vec<Run>,
    rows: usize,
    cols: usize,
    /// Of [`SCRATCH_BYTES`], where a run is coded.
    scratch: Option<Arc<Memory>>,
}

/// Consecutive rows in one form.
struct Run {
    rows: Range<usize>,
    memory: Memory,
    /// `None` for plain numbers.
    form: Option<Form>,
}

/// Some rows of a matrix as kernels find them.
pub(super) enum Rows {
    /// Plain numbers from this address on.
    Plain(Address),
    /// Units from this octet on, of which the first rows are `skip` others.
    Coded { form: Form, weights: QuantizedWeights, skip: usize },
}

impl Matrix {
    /// Stacks `parts` on the device. Plain numbers are converted to `dtype` where they have another type, codings without a [`Form`] are
    /// decoded.
    ///
    /// # Panics
    ///
    /// If their numbers of columns differ: the loader checks shapes against config.json.
    pub fn new(context: &Arc<Context>, loader: &mut Loader, parts: &[HostMatrix], dtype: DType) -> Result<Matrix> {
        let (_, cols) = parts[0].shape();
        assert!(parts.iter().all(|part| part.shape().1 == cols));
        if !cols.is_multiple_of(8) {
            return Err(Error::UnsupportedModel {
                setting: "the width of a weight matrix",
                value: cols.to_string(),
                supported: "a multiple of 8 on CUDA",
            });
        }
        let form_of = |part: &HostMatrix| form_of(part.coding(), cols);
        let (mut runs, mut first, mut rest) = (Vec::new(), 0, parts);
        while let Some(part) = rest.first() {
            let form = form_of(part);
            let mut rows = part.shape().0;
            let mut count = 1;
            // Units begin at an octet of rows.
            while count < rest.len()
                && form_of(&rest[count]) == form
                && (form.is_none() || rows.is_multiple_of(weights::COLUMNS))
            {
                rows += rest[count].shape().0;
                count += 1;
            }
            let (run, following) = rest.split_at(count);
            let (memory, form) = loader.load(context, run, form, dtype)?;
            runs.push(Run { rows: first..first + rows, memory, form });
            (first, rest) = (first + rows, following);
        }
        let is_coded = runs.iter().any(|run| run.form.is_some());
        let scratch = if is_coded { Some(loader.scratch(context)?) } else { None };
        Ok(Matrix { runs, rows: first, cols, scratch })
    }

    /// Bytes of a matrix of `[rows, cols]` in `coding` on a device that computes in `dtype`, if its form turns out to be exact.
    pub fn held_bytes(coding: WeightFormat, [rows, cols]: [usize; 2], dtype: DType) -> u64 {
        let bytes = match form_of(coding, cols) {
            Some(form) => rows.div_ceil(weights::COLUMNS) * form.octet_bytes(cols),
            None => rows * cols * dtype.bytes(),
        };
        bytes as u64
    }

    /// Outputs of the layer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of the layer.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Where its rows begin, where all are plain numbers one after the other.
    pub(super) fn plain(&self) -> Option<Address> {
        match &self.runs[..] {
            [run] if run.form.is_none() => Some(run.memory.address()),
            _ => None,
        }
    }

    /// Whether all rows are in one form.
    pub(super) fn is_one_run(&self) -> bool {
        self.runs.len() == 1
    }

    /// The rows of `range`, run by run.
    pub(super) fn runs(&self, range: Range<usize>, dtype: DType) -> impl Iterator<Item = (Range<usize>, Rows)> {
        self.runs.iter().filter_map(move |run| {
            let rows = range.start.max(run.rows.start)..range.end.min(run.rows.end);
            let begin = rows.start.checked_sub(run.rows.start).filter(|_| !rows.is_empty())?;
            let found = match run.form {
                None => Rows::Plain(run.memory.address() + (begin * self.cols * dtype.bytes()) as u64),
                Some(form) => {
                    let offset = begin / weights::COLUMNS * form.octet_bytes(self.cols);
                    let weights = form.weights(run.memory.address() + offset as u64, self.cols);
                    Rows::Coded { form, weights, skip: begin % weights::COLUMNS }
                }
            };
            Some((rows, found))
        })
    }

    /// Rows of each run, and how their weights lie.
    pub(super) fn weights(&self) -> Vec<(usize, Weights)> {
        // f16 has as many bytes.
        const DTYPE: DType = DType::Bf16;
        let weights = self.runs(0..self.rows, DTYPE).map(|(rows, found)| {
            let weights = match found {
                Rows::Plain(_) => Weights::Plain,
                Rows::Coded { form, skip, .. } => {
                    let scratch_bytes = self.scratch(DTYPE).1 * self.cols * DTYPE.bytes();
                    Weights::Quantized(Quantized { form, skip, scratch_bytes, is_aligned: true })
                }
            };
            (rows.len(), weights)
        });
        weights.collect()
    }

    /// Where slices of coded runs are decoded to, and how many rows there is room for.
    pub(super) fn scratch(&self, dtype: DType) -> (Address, usize) {
        let address = self.scratch.as_ref().expect("made with the first coded run").address();
        // A grid has at most 65,535 octets.
        (address, (SCRATCH_BYTES / (self.cols * dtype.bytes())).min(1 << 18))
    }
}

/// In which form matrices of `cols` columns are held, `None` for plain numbers.
fn form_of(coding: WeightFormat, cols: usize) -> Option<Form> {
    Form::of(coding, cols).filter(|form| form.octet_bytes(cols) <= Lane::FIRST_BYTES)
}

/// Norm weights, a bias or a table. `[len]`
pub struct Vector {
    /// In f32.
    pub(super) wide: Memory,
    /// In the model's number type, for cuBLASLt, which adds a bias in no other. Missing for tables.
    pub(super) narrow: Option<Memory>,
    /// Of the weights of a norm: the product that alone reads what it gives.
    pub(super) product: Option<Readers>,
    len: usize,
}

/// The products of a matrix, as plans know them: rows of weights of each form.
pub struct Readers {
    pub(super) weights: Vec<(usize, Weights)>,
    pub(super) k: usize,
}

impl Vector {
    /// Small weights stacked end to end.
    pub fn new(context: &Arc<Context>, parts: &[HostVector], dtype: DType) -> Result<Vector> {
        let values: Vec<f32> = parts.iter().flat_map(HostVector::to_f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|&v| narrow(v, dtype)).collect();
        let low = Memory::new(context, bytes.len(), "weights on the device", KNOB)?;
        low.write(0, &bytes)?;
        Ok(Vector { narrow: Some(low), ..Vector::table(context, &values)? })
    }

    /// A table computed on the host.
    pub fn table(context: &Arc<Context>, values: &[f32]) -> Result<Vector> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let wide = Memory::new(context, bytes.len(), "a table on the device", KNOB)?;
        wide.write(0, &bytes)?;
        Ok(Vector { wide, narrow: None, product: None, len: values.len() })
    }

    /// Numbers in it.
    pub fn numbers(&self) -> usize {
        self.len
    }
}

fn narrow(value: f32, dtype: DType) -> [u8; 2] {
    match dtype {
        DType::Bf16 => bf16::from_f32(value).to_le_bytes(),
        DType::F16 | DType::F32 => f16::from_f32(value).to_le_bytes(),
    }
}

/// What weights are brought to the device with.
pub struct Loader {
    staging: Option<Staging>,
    scratch: Option<Arc<Memory>>,
}

impl Loader {
    /// Takes no memory until it is needed.
    pub fn new() -> Loader {
        Loader { staging: None, scratch: None }
    }

    /// Gives back the pinned memory: all weights are there.
    pub fn finish(&mut self) {
        self.staging = None;
    }

    fn scratch(&mut self, context: &Arc<Context>) -> Result<Arc<Memory>> {
        if let Some(scratch) = &self.scratch {
            return Ok(scratch.clone());
        }
        let scratch = Arc::new(Memory::new(context, SCRATCH_BYTES, "dequantized weights on the device", KNOB)?);
        self.scratch = Some(scratch.clone());
        Ok(scratch)
    }

    /// Brings the parts of a run to the device, as plain numbers where the form turns out not to be exact.
    fn load(
        &mut self,
        context: &Arc<Context>,
        parts: &[HostMatrix],
        form: Option<Form>,
        dtype: DType,
    ) -> Result<(Memory, Option<Form>)> {
        if self.staging.is_none() {
            self.staging = Some(Staging::new(context)?);
        }
        let staging = self.staging.as_mut().expect("made above");
        let memory = |bytes| Memory::new(context, bytes, "weights on the device", KNOB);
        let (rows, cols) = (parts.iter().map(|part| part.shape().0).sum::<usize>(), parts[0].shape().1);
        if let Some(form) = form {
            let octets: usize = parts.iter().map(|part| part.shape().0.div_ceil(weights::COLUMNS)).sum();
            let memory = memory(octets * form.octet_bytes(cols))?;
            let (mut offset, mut is_exact) = (0, true);
            for part in parts {
                let (bytes, part_is_exact) = staging.upload_coded(&memory, offset, part, &form)?;
                (offset, is_exact) = (offset + bytes, is_exact && part_is_exact);
            }
            if is_exact {
                return Ok((memory, Some(form)));
            }
            context.synchronize()?;
        }
        let memory = memory(rows * cols * dtype.bytes())?;
        let mut offset = 0;
        for part in parts {
            offset += staging.upload(&memory, offset, part, dtype)?;
        }
        Ok((memory, None))
    }
}

/// Lanes by which the host fills pinned memory at the same time. One H200, 16.4 GB of weights in the file cache: 6.8 GB/s by one thread, 18
/// by four.
struct Staging {
    context: Arc<Context>,
    /// The first one always, the others from the first matrix on that is shared out.
    lanes: Vec<Lane>,
}

/// Two pinned buffers: while the device copies one, the host fills the other from the mapped file.
struct Lane {
    buffers: [(Pinned, Event); 2],
    next: usize,
}

impl Staging {
    /// Bytes of a matrix from which on it is shared out.
    const SHARED_OUT_BYTES: usize = 2 << 20;

    /// Takes the pinned memory of one lane.
    fn new(context: &Arc<Context>) -> Result<Staging> {
        Ok(Staging { context: context.clone(), lanes: vec![Lane::new(context, Lane::FIRST_BYTES)?] })
    }

    /// Brings a matrix to `offset` of `to`, its rows behind each other, and returns its bytes there. Rows that lie apart on the host are
    /// packed in the pinned buffers. The last copies may still be under way.
    fn upload(&mut self, to: &Memory, offset: usize, matrix: &HostMatrix, dtype: DType) -> Result<usize> {
        if !matrix.coding().is_plain() {
            return self.upload(to, offset, &matrix.converted(WeightFormat::from(dtype))?, dtype);
        }
        let (rows, cols) = matrix.shape();
        let row_bytes = cols * dtype.bytes();
        let threads = thread::available_parallelism().map_or(1, usize::from).min(LANES_MAX);
        if rows * row_bytes < Staging::SHARED_OUT_BYTES || threads == 1 {
            return self.lanes[0].upload(to, offset, matrix, dtype);
        }
        while self.lanes.len() < threads {
            self.lanes.push(Lane::new(&self.context, Lane::OTHER_BYTES)?);
        }
        let share = rows.div_ceil(threads);
        let shares: Vec<_> =
            (0..rows).step_by(share).map(|first| first..rows.min(first + share)).zip(&mut self.lanes).collect();
        let context = &self.context;
        let sent = share_out("loader", shares, |(rows, lane)| {
            context.make_current()?;
            lane.upload(to, offset + rows.start * row_bytes, &matrix.rows(rows), dtype)
        });
        sent.into_iter().sum()
    }

    /// Brings the units of a quantized matrix to `offset` of `to`. Returns their bytes, and whether they stand for exactly its numbers. The last
    /// copies may still be under way.
    fn upload_coded(&mut self, to: &Memory, offset: usize, matrix: &HostMatrix, form: &Form) -> Result<(usize, bool)> {
        let (rows, cols) = matrix.shape();
        let (octets, octet_bytes) = (rows.div_ceil(weights::COLUMNS), form.octet_bytes(cols));
        let is_exact = AtomicBool::new(true);
        let at_once = Lane::FIRST_BYTES / octet_bytes;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(WRITERS_MAX);
        let lane = &mut self.lanes[0];
        for first in (0..octets).step_by(at_once) {
            let (pinned, event) = &mut lane.buffers[lane.next];
            event.wait()?;
            let count = at_once.min(octets - first);
            let bytes = &mut pinned.bytes_mut()[..count * octet_bytes];
            let share = count.div_ceil(threads);
            share_out("loader", bytes.chunks_mut(share * octet_bytes).enumerate().collect(), |(i, bytes)| {
                let mut writer = Writer::new(cols);
                for (j, octet) in bytes.chunks_exact_mut(octet_bytes).enumerate() {
                    let row = (first + i * share + j) * weights::COLUMNS;
                    if !form.write_octet(matrix, row, octet, &mut writer) {
                        is_exact.store(false, Ordering::Relaxed);
                    }
                }
            });
            lane.send(count * octet_bytes, to, offset + first * octet_bytes)?;
        }
        Ok((octets * octet_bytes, is_exact.into_inner()))
    }
}

impl Lane {
    /// Of a buffer of the first lane, in which whole octets of coded rows have room, and of the others, which need no such room.
    const FIRST_BYTES: usize = 8 << 20;
    const OTHER_BYTES: usize = 2 << 20;

    /// Takes the pinned memory: two buffers of `bytes`.
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Lane> {
        let buffer = || {
            let pinned = Pinned::zeroed(context, bytes, "pinned memory for loading", "locked memory limits")?;
            Ok((pinned, Event::new(context, EventKind::Order)?))
        };
        Ok(Lane { buffers: [buffer()?, buffer()?], next: 0 })
    }

    /// Brings a plain matrix to `offset` of `to`, as [`Staging::upload`] does.
    fn upload(&mut self, to: &Memory, offset: usize, matrix: &HostMatrix, dtype: DType) -> Result<usize> {
        let (coding, room) = (matrix.coding(), self.buffers[0].0.bytes().len());
        let (mut done, mut filled) = (0, 0);
        for piece in matrix.pieces() {
            for chunk in piece.chunks(coding.row_bytes(room / 4)) {
                if filled + chunk.len() / coding.row_bytes(1) * dtype.bytes() > room {
                    self.send(filled, to, offset + done)?;
                    (done, filled) = (done + filled, 0);
                }
                let (pinned, event) = &mut self.buffers[self.next];
                if filled == 0 {
                    event.wait()?;
                }
                filled += convert(&mut pinned.bytes_mut()[filled..], chunk, coding, dtype);
            }
        }
        self.send(filled, to, offset + done)?;
        Ok(done + filled)
    }

    /// Begins the copy of the first `bytes` of the buffer that was filled, and turns to the other one.
    fn send(&mut self, bytes: usize, to: &Memory, offset: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (pinned, event) = &self.buffers[self.next];
        self.next ^= 1;
        pinned.upload(0..bytes, to, offset)?;
        event.record()
    }
}

/// Writes numbers coded as `from` as numbers of type `to` and returns the bytes written.
fn convert(out: &mut [u8], chunk: &[u8], from: WeightFormat, to: DType) -> usize {
    if from == WeightFormat::from(to) {
        out[..chunk.len()].copy_from_slice(chunk);
        return chunk.len();
    }
    let pairs = out.chunks_exact_mut(2).zip(chunk.chunks_exact(from.row_bytes(1)));
    match from {
        WeightFormat::F32 => {
            pairs.for_each(|(o, b)| o.copy_from_slice(&narrow(f32::from_le_bytes([b[0], b[1], b[2], b[3]]), to)))
        }
        WeightFormat::F16 => {
            pairs.for_each(|(o, b)| o.copy_from_slice(&narrow(f16::from_le_bytes([b[0], b[1]]).to_f32(), to)))
        }
        WeightFormat::Bf16 => {
            pairs.for_each(|(o, b)| o.copy_from_slice(&narrow(bf16::from_le_bytes([b[0], b[1]]).to_f32(), to)))
        }
        WeightFormat::Block(_) | WeightFormat::Scaled(_) => unreachable!("converted before"),
    }
    chunk.len() / from.row_bytes(1) * 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::HostBytes;

    #[test]
    fn numbers_of_another_type_are_converted_on_the_way() {
        let values = [0.0f32, 1.0, -2.5, 1024.0];
        let wide: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let half: Vec<u8> = values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
        let brain: Vec<u8> = values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
        let cases = [
            ("f32 to bf16", &wide, WeightFormat::F32, DType::Bf16, &brain),
            ("f32 to f16", &wide, WeightFormat::F32, DType::F16, &half),
            ("f16 to bf16", &half, WeightFormat::F16, DType::Bf16, &brain),
            ("bf16 to f16", &brain, WeightFormat::Bf16, DType::F16, &half),
            ("bf16 as it is", &brain, WeightFormat::Bf16, DType::Bf16, &brain),
        ];
        for (name, input, from, to, expected) in cases {
            let mut out = [0xff; 32];
            let bytes = convert(&mut out, input, from, to);
            assert_eq!(&out[..bytes], &expected[..], "{name}");
        }
    }

    /// Numbers that differ, coded as `coding`.
    fn numbers(rows: usize, cols: usize, coding: WeightFormat) -> HostMatrix {
        let value = |i: usize| ((i * 2_654_435_761) >> 7 & 0xffff) as f32 / 256.0 - 128.0;
        let bytes: Vec<u8> = match coding {
            WeightFormat::F32 => (0..rows * cols).flat_map(|i| value(i).to_le_bytes()).collect(),
            _ => (0..rows * cols).flat_map(|i| narrow(value(i), DType::Bf16)).collect(),
        };
        HostMatrix::new(HostBytes::owned(bytes.into()), coding, rows, cols)
    }

    #[test]
    #[ignore = "needs a CUDA driver; that of tests/fake_gpu is enough"]
    fn a_matrix_arrives_as_it_is_by_several_threads() {
        let context = Context::open(0).unwrap();
        let mut loader = Loader::new();
        let wide = numbers(5000, 1536, WeightFormat::Bf16);
        let cases: Vec<(&str, Vec<HostMatrix>)> = vec![
            ("small", vec![numbers(5, 16, WeightFormat::Bf16)]),
            ("large", vec![numbers(9001, 1024, WeightFormat::Bf16)]),
            ("few rows", vec![numbers(3, 1 << 20, WeightFormat::Bf16)]),
            ("converted", vec![numbers(2003, 1000, WeightFormat::F32)]),
            ("cut out of rows", vec![wide.columns(8..1032)]),
            (
                "a stack",
                vec![wide.rows(7..4000), numbers(1, 1536, WeightFormat::F32), numbers(2500, 1536, WeightFormat::Bf16)],
            ),
        ];
        for (name, parts) in cases {
            let matrix = Matrix::new(&context, &mut loader, &parts, DType::Bf16).unwrap();
            let expected = parts.iter().flat_map(|part| {
                let plain = part.converted(WeightFormat::Bf16).unwrap();
                plain.pieces().flat_map(<[u8]>::to_vec).collect::<Vec<u8>>()
            });
            let expected: Vec<u8> = expected.collect();
            let mut found = vec![0; expected.len()];
            assert_eq!(matrix.runs.len(), 1, "{name}");
            matrix.runs[0].memory.read(0, &mut found).unwrap();
            assert!(found == expected, "{name}");
        }
    }
}
