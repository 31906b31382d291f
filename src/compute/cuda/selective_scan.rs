//! See `ops/selective_scan.rs` for the contract, `kernels/selective_scan.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::{Address, Memory};
use super::gated_norm::{self, GatedNormParams};
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::states::States;
use super::storage::Tensor;
use crate::{ConvForm, HeadGate, Rounding, ScanGate, ScanHeads, ScanInputs, ScanLayer, ShortConv};
use base::error::Result;

params! {
    SelectiveScanParams in "common/selective_scan.cuh" {
        out: Address,
        xbc: Address,
        steps: Address,
        rates: Address,
        states: Address,
        row_starts: Address,
        sources: Address,
        slots: Address,
        saves: Address,
        slot_numbers: i64,
        out_stride: i32,
        xbc_stride: i32,
        steps_stride: i32,
        heads: i32,
        groups: i32,
        head_dim: i32,
        step_scale: f32,
        tokens_max: i32,
    }

    ScanStepParams in "selective_scan.cu" {
        scan: SelectiveScanParams,
        norm: GatedNormParams,
        conv_weight: Address,
        conv_states: Address,
        gate: Address,
        arrivals: Address,
        gate_scale: f32,
        has_bias: i32,
    }
}

/// The kernels.
pub struct Kernels {
    /// For each of [`ScanHeads::STATE_DIMS`].
    scans: [Kernel; ScanHeads::STATE_DIMS.len()],
    /// For rows of many tokens: for each of [`CHUNK_STATE_DIMS`], where the device has as much shared memory.
    chunks: [Option<Kernel>; CHUNK_STATE_DIMS.len()],
    /// The layer of rows of one token: for each of [`CHUNK_STATE_DIMS`].
    steps: [Kernel; CHUNK_STATE_DIMS.len()],
    /// Thread blocks of a row and group that have read the states of the convolution. `[MANY_ROWS, GROUPS_MAX]`
    arrivals: Memory,
}

/// Tokens of a row up to which they are computed one by one: a chunk takes as long.
const FEW_TOKENS: usize = 16;
/// Sizes of the state that are computed in chunks, and by `scan_step`.
const CHUNK_STATE_DIMS: [usize; 3] = [64, 128, 256];
/// Of `selective_scan_chunks`: tokens of a chunk, columns of a head that a thread block has, and threads.
const CHUNK: usize = 64;
const CHUNK_COLS: usize = 64;
const CHUNK_THREADS: usize = 256;
/// Rows of one token each from which on the traffic of states bounds a step, and not its launches.
const MANY_ROWS: usize = 16;
/// Of `scan_step`: columns of a head that a thread block has, taps of the convolution, and groups of heads at most.
const STEP_COLUMNS: usize = 64;
const STEP_TAPS: usize = 4;
const GROUPS_MAX: usize = 64;
/// Numbers of a group up to which `scan_step` computes its norm: with more, a small thread block would take as long as a launch.
const NORM_MAX: usize = 1024;

/// Bytes of `Shared`.
const fn chunk_shared(state_dim: usize) -> usize {
    let numbers = 3 * CHUNK * state_dim + 2 * CHUNK * CHUNK_COLS + state_dim * CHUNK_COLS + CHUNK * CHUNK;
    2 * numbers + 4 * (3 * CHUNK + 2)
}

/// What of a layer was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// All of it.
    All,
    /// What comes before its norm.
    AllButNorm,
    /// Nothing.
    Nothing,
}

/// Which of the two forms compute the rows of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forms {
    /// Some rows are computed in chunks.
    chunks: bool,
    /// Some are computed token by token.
    tokens: bool,
}

impl Forms {
    fn of(row_starts: &[u32], has_chunks: bool) -> Forms {
        let is_many = |row: &[u32]| (row[1] - row[0]) as usize > FEW_TOKENS;
        let many = row_starts.windows(2).filter(|row| has_chunks && is_many(row)).count();
        Forms { chunks: many > 0, tokens: many < row_starts.len() - 1 }
    }
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("selective_scan")?;
        let kernel = |dim| Kernel::new(&module, &format!("selective_scan_{dim}_{}", suffix(device.dtype)));
        let [a, b, c, d, e] = ScanHeads::STATE_DIMS.map(kernel);
        let module = device.module("selective_scan_chunks")?;
        let chunks = |dim| {
            let has_room = device.facts().block_shared_bytes >= chunk_shared(dim);
            let kernel = has_room.then(|| {
                let name = format!("selective_scan_chunks_{dim}_{}", suffix(device.dtype));
                let kernel = Kernel::new(&module, &name)?;
                kernel.allow_shared(chunk_shared(dim))?;
                Ok(kernel)
            });
            kernel.transpose()
        };
        let [f, g, h] = CHUNK_STATE_DIMS.map(chunks);
        let module = device.module("selective_scan")?;
        let step = |dim| Kernel::new(&module, &format!("scan_step_{dim}_{}", suffix(device.dtype)));
        let [i, j, k] = CHUNK_STATE_DIMS.map(step);
        let (bytes, what) = (4 * MANY_ROWS * GROUPS_MAX, "counts of a recurrent layer on the device");
        Ok(Kernels {
            scans: [a?, b?, c?, d?, e?],
            chunks: [f?, g?, h?],
            steps: [i?, j?, k?],
            arrivals: Memory::zeroed(&device.context, bytes, what, "memory_utilization")?,
        })
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        inputs: ScanInputs<Tensor, Vector>,
        sizes: ScanHeads,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let batch = device_batch.batch();
        let chunks = self.chunks(device, sizes);
        let forms = Forms::of(&batch.row_starts, chunks.is_some());
        let tokens_max = if forms.chunks { FEW_TOKENS as i32 } else { i32::MAX };
        let params =
            SelectiveScanParams { tokens_max, ..params(device, out, inputs, sizes, (states, at), device_batch) };
        if let Some(kernel) = chunks.filter(|_| forms.chunks) {
            let blocks = [sizes.head_width() / CHUNK_COLS, batch.rows(), 1];
            kernel.launch(device.chaining, blocks, CHUNK_THREADS, chunk_shared(sizes.state_dim), &params)?;
        }
        if !forms.tokens {
            return Ok(());
        }
        let kernel = ScanHeads::STATE_DIMS.iter().position(|&dim| dim == sizes.state_dim).expect("the op checked it");
        // Lanes of a warp that share a column, as the kernels have them.
        let split = sizes.state_dim.div_ceil(32);
        let blocks = [batch.rows(), sizes.heads, (sizes.head_dim * split).div_ceil(32)];
        self.scans[kernel].launch(device.chaining, blocks, 32, 0, &params)
    }

    /// Launches the layer, unless the kernel does not compute such rows or sizes.
    pub fn run_layer(
        &self,
        device: &Device,
        out: &mut Tensor,
        layer: ScanLayer<Tensor, Vector>,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) -> Result<Launched> {
        let (ScanLayer { projected, heads, rates, step_scale, .. }, batch) = (layer, device_batch.batch());
        let Some(kernel) = step_kernel(heads, layer.conv, [batch.rows(), batch.tokens()]) else {
            return Ok(Launched::Nothing);
        };
        let inputs = ScanInputs { xbc: projected, steps: projected, first_step: layer.first_step(), step_scale, rates };
        let gates = projected.storage.address() + (layer.first_gate() * device.dtype.bytes()) as u64;
        let (gate, gate_scale) = match layer.gate {
            ScanGate::Silu { scale } => (gates, scale),
            ScanGate::Nothing | ScanGate::Norm(_) => (0, 0.0),
        };
        let norm = match layer.gate {
            ScanGate::Norm(gate) if has_norm(heads, &gate) => gated_norm::params(device, out, gate),
            _ => GatedNormParams::NONE,
        };
        let params = ScanStepParams {
            norm,
            scan: params(device, out, inputs, heads, (states, layer.scan_at(at)), device_batch),
            conv_weight: layer.conv_weight.wide.address(),
            conv_states: states.region(at),
            gate,
            arrivals: self.arrivals.address(),
            gate_scale,
            has_bias: i32::from(layer.conv.has_bias),
        };
        let blocks = [batch.rows(), heads.heads, heads.head_dim / STEP_COLUMNS];
        self.steps[kernel].launch(device.chaining, blocks, heads.state_dim, 4 * norm.head_dim as usize, &params)?;
        let leaves_norm = matches!(layer.gate, ScanGate::Norm(_)) && norm.x == 0;
        Ok(if leaves_norm { Launched::AllButNorm } else { Launched::All })
    }

    /// What computes heads of these sizes in chunks, where results may depend on where a prompt is cut.
    fn chunks(&self, device: &Device, sizes: ScanHeads) -> Option<&Kernel> {
        if device.rounding == Rounding::BatchInvariant || !sizes.head_dim.is_multiple_of(CHUNK_COLS) {
            return None;
        }
        let kernel = CHUNK_STATE_DIMS.iter().position(|&dim| dim == sizes.state_dim)?;
        self.chunks[kernel].as_ref()
    }
}

/// Whether `scan_step` computes the norm, whose heads are groups.
fn has_norm(heads: ScanHeads, gate: &HeadGate<Tensor, Vector>) -> bool {
    let group_width = heads.head_width() / heads.groups;
    gate.head_dim == group_width && group_width <= NORM_MAX && gated_norm::is_in_eights(gate)
}

/// Which of [`CHUNK_STATE_DIMS`] computes a layer of such rows at once.
fn step_kernel(heads: ScanHeads, conv: ShortConv, [rows, tokens]: [usize; 2]) -> Option<usize> {
    let is_known = (conv.taps, conv.form) == (STEP_TAPS, ConvForm::Silu)
        && heads.head_dim.is_multiple_of(STEP_COLUMNS)
        && heads.groups <= GROUPS_MAX;
    let is_few = tokens == rows && rows < MANY_ROWS;
    let kernel = CHUNK_STATE_DIMS.iter().position(|&dim| dim == heads.state_dim)?;
    (is_known && is_few).then_some(kernel)
}

fn params(
    device: &Device,
    out: &Tensor,
    inputs: ScanInputs<Tensor, Vector>,
    sizes: ScanHeads,
    (states, at): (&States, usize),
    device_batch: &DeviceBatch,
) -> SelectiveScanParams {
    let ScanInputs { xbc, steps, first_step, step_scale, rates } = inputs;
    let places = device_batch.addresses();
    SelectiveScanParams {
        out: out.storage.address(),
        xbc: xbc.storage.address(),
        steps: steps.storage.address() + (first_step * device.dtype.bytes()) as u64,
        rates: rates.wide.address(),
        states: states.region(at),
        row_starts: places.row_starts,
        sources: places.state_sources,
        slots: places.state_slots,
        saves: places.state_saves,
        slot_numbers: states.shape().numbers as i64,
        out_stride: out.storage.stride() as i32,
        xbc_stride: xbc.storage.stride() as i32,
        steps_stride: steps.storage.stride() as i32,
        heads: sizes.heads as i32,
        groups: sizes.groups as i32,
        head_dim: sizes.head_dim as i32,
        step_scale,
        tokens_max: i32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_many_tokens_are_computed_in_chunks() {
        let both = Forms { chunks: true, tokens: true };
        for (row_starts, forms) in [
            (&[0, 1, 2][..], Forms { chunks: false, tokens: true }),
            (&[0, 16, 17], Forms { chunks: false, tokens: true }),
            (&[0, 17], Forms { chunks: true, tokens: false }),
            (&[0, 17, 18], both),
            (&[0, 16, 1016], both),
        ] {
            assert_eq!(Forms::of(row_starts, true), forms, "{row_starts:?}");
            assert_eq!(Forms::of(row_starts, false), Forms { chunks: false, tokens: true }, "{row_starts:?}");
        }
    }

    #[test]
    fn few_rows_of_one_token_are_one_launch() {
        let conv = ShortConv { taps: 4, form: ConvForm::Silu, has_bias: true };
        let nemotron = ScanHeads { heads: 64, groups: 8, head_dim: 64, state_dim: 128 };
        let falcon = ScanHeads { heads: 24, groups: 1, head_dim: 128, state_dim: 256 };
        assert_eq!(step_kernel(nemotron, conv, [1, 1]), Some(1));
        assert_eq!(step_kernel(falcon, conv, [15, 15]), Some(2));
        for (heads, conv, rows) in [
            (nemotron, conv, [16, 16]),
            (nemotron, conv, [1, 2]),
            (nemotron, ShortConv { taps: 3, ..conv }, [1, 1]),
            (nemotron, ShortConv { form: ConvForm::Plain, ..conv }, [1, 1]),
            (ScanHeads { head_dim: 48, ..nemotron }, conv, [1, 1]),
            (ScanHeads { state_dim: 32, ..nemotron }, conv, [1, 1]),
            (ScanHeads { groups: 128, heads: 128, ..nemotron }, conv, [1, 1]),
        ] {
            assert_eq!(step_kernel(heads, conv, rows), None, "{heads:?}, {conv:?}, {rows:?}");
        }
    }

    #[test]
    fn chunks_fit_the_shared_memory_of_gpus() {
        // Of a thread block on compute capability 8.6 and 8.9, and on 8.0.
        assert!(chunk_shared(128) <= 99 * 1024 && chunk_shared(256) <= 163 * 1024);
    }
}
