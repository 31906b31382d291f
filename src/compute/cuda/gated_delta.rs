//! See `ops/gated_delta.rs` for the contract, `kernels/gated_delta.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::states::States;
use super::storage::Tensor;
use crate::{ConvForm, DeltaHeads, DeltaInputs, DeltaLayer, Rounding, ShortConv, ValueOrder};
use base::error::Result;

params! {
    GatedDeltaParams in "common/gated_delta.cuh" {
        out: Address,
        qkv: Address,
        gates: Address,
        decays: Address,
        states: Address,
        row_starts: Address,
        sources: Address,
        slots: Address,
        saves: Address,
        slot_numbers: i64,
        out_stride: i32,
        qkv_stride: i32,
        gates_stride: i32,
        key_heads: i32,
        value_heads: i32,
        value_dim: i32,
        is_tiled: i32,
        tokens_max: i32,
    }

    DeltaStepParams in "gated_delta.cu" {
        delta: GatedDeltaParams,
        conv_weight: Address,
        conv_states: Address,
        gate: Address,
        norm: Address,
        eps: f32,
    }
}

/// The kernels.
pub struct Kernels {
    /// For each of [`DeltaHeads::KEY_DIMS`], one whose lanes have two columns of the state each, and one whose lanes have four.
    rules: [[Kernel; 2]; DeltaHeads::KEY_DIMS.len()],
    /// For rows of many tokens, where the device has as much shared memory.
    chunks: Option<Kernel>,
    /// The whole layer of rows of one token.
    step: Kernel,
}

/// Rows of one token each from which on the traffic of states bounds the kernel, and not how many warps there are.
const MANY_ROWS: usize = 16;
/// Tokens of a row up to which they are computed one by one: a chunk takes as long.
const FEW_TOKENS: usize = 16;
/// Of `gated_delta_chunks`: threads, and bytes of `Shared`.
const CHUNK_THREADS: usize = 256;
const CHUNK_SHARED: usize = 2 * (4 * 64 * 128 + 128 * 128 + 64 * 64) + 4 * (64 * 136 + 64 * 68 + 2 * 64 + 4);
/// Of `delta_step`: numbers of a key and of a value, value heads of a key head at most, those that are computed side by side, and threads of one.
const STEP_DIM: usize = 128;
const STEP_SHARE_MAX: usize = 4;
const STEP_GROUPS_MAX: usize = 2;
const STEP_THREADS: usize = 256;

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("gated_delta")?;
        let kernel = |name: &str| Kernel::new(&module, &format!("{name}_{}", suffix(device.dtype)));
        let rules = |dim| Ok([kernel(&format!("gated_delta_{dim}x2"))?, kernel(&format!("gated_delta_{dim}x4"))?]);
        let [a, b, c, d] = DeltaHeads::KEY_DIMS.map(rules);
        let chunks = (device.facts().block_shared_bytes >= CHUNK_SHARED).then(|| {
            let module = device.module("gated_delta_chunks")?;
            let kernel = Kernel::new(&module, &format!("gated_delta_chunks_{}", suffix(device.dtype)))?;
            kernel.allow_shared(CHUNK_SHARED)?;
            Ok(kernel)
        });
        Ok(Kernels { rules: [a?, b?, c?, d?], chunks: chunks.transpose()?, step: kernel("delta_step")? })
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        inputs: DeltaInputs<Tensor, Vector>,
        heads: DeltaHeads,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let params = params(device, out, inputs, heads, (states, at), device_batch);
        let batch = device_batch.batch();
        let has_chunks = device.rounding != Rounding::BatchInvariant && [heads.key_dim, heads.value_dim] == [128; 2];
        let chunks = self.chunks.as_ref().filter(|_| has_chunks && batch.tokens() > batch.rows());
        let is_many = |row: &[u32]| (row[1] - row[0]) as usize > FEW_TOKENS;
        let many = chunks.map_or(0, |_| batch.row_starts.windows(2).filter(|row| is_many(row)).count());
        let tokens_max = if many > 0 { FEW_TOKENS as i32 } else { i32::MAX };
        let params = GatedDeltaParams { tokens_max, ..params };
        if let Some(kernel) = chunks.filter(|_| many > 0) {
            kernel.launch(device.chaining, [heads.values, batch.rows(), 1], CHUNK_THREADS, CHUNK_SHARED, &params)?;
        }
        if many == batch.rows() {
            return Ok(());
        }
        // Lanes of a warp that share a column, as the kernels have them.
        let split = heads.key_dim.div_ceil(32);
        let is_decode = batch.tokens() <= 2 * batch.rows();
        let cols = if is_decode && batch.rows() >= MANY_ROWS { 4 } else { 2 };
        let blocks = [batch.rows(), heads.values, (heads.value_dim * split).div_ceil(32 * cols)];
        let kernel = DeltaHeads::KEY_DIMS.iter().position(|&dim| dim == heads.key_dim).expect("the op checked it");
        self.rules[kernel][cols / 4].launch(device.chaining, blocks, 32, 0, &params)
    }

    /// Launches the whole layer. `false`: nothing was launched, because the kernel does not compute such rows or sizes.
    pub fn run_layer(
        &self,
        device: &Device,
        out: &mut Tensor,
        layer: DeltaLayer<Tensor, Vector>,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) -> Result<bool> {
        let (DeltaLayer { projected, conv, heads, .. }, batch) = (layer, device_batch.batch());
        let share = heads.values / heads.keys;
        let is_known = conv == ShortConv { taps: 4, form: ConvForm::Silu, has_bias: false }
            && [heads.key_dim, heads.value_dim] == [STEP_DIM; 2]
            && share <= STEP_SHARE_MAX;
        if !is_known || batch.tokens() != batch.rows() || batch.rows() >= MANY_ROWS {
            return Ok(false);
        }
        let gates = projected.storage.address();
        let inputs =
            DeltaInputs { qkv: projected, gates: projected, first_gate: layer.first_gate(), decays: layer.decays };
        let params = DeltaStepParams {
            delta: params(device, out, inputs, heads, (states, layer.rule_at(at)), device_batch),
            conv_weight: layer.conv_weight.wide.address(),
            conv_states: states.region(at),
            gate: gates + (layer.first_norm_gate() * device.dtype.bytes()) as u64,
            norm: layer.norm.wide.address(),
            eps: layer.eps,
        };
        let threads = STEP_THREADS * share.min(STEP_GROUPS_MAX);
        self.step.launch(device.chaining, [batch.rows(), heads.keys, 1], threads, 0, &params)?;
        Ok(true)
    }
}

fn params(
    device: &Device,
    out: &Tensor,
    inputs: DeltaInputs<Tensor, Vector>,
    heads: DeltaHeads,
    (states, at): (&States, usize),
    device_batch: &DeviceBatch,
) -> GatedDeltaParams {
    let (DeltaInputs { qkv, gates, first_gate, decays }, places) = (inputs, device_batch.addresses());
    GatedDeltaParams {
        out: out.storage.address(),
        qkv: qkv.storage.address(),
        gates: gates.storage.address() + (first_gate * device.dtype.bytes()) as u64,
        decays: decays.wide.address(),
        states: states.region(at),
        row_starts: places.row_starts,
        sources: places.state_sources,
        slots: places.state_slots,
        saves: places.state_saves,
        slot_numbers: states.shape().numbers as i64,
        out_stride: out.storage.stride() as i32,
        qkv_stride: qkv.storage.stride() as i32,
        gates_stride: gates.storage.stride() as i32,
        key_heads: heads.keys as i32,
        value_heads: heads.values as i32,
        value_dim: heads.value_dim as i32,
        is_tiled: i32::from(heads.order == ValueOrder::Tiled),
        tokens_max: i32::MAX,
    }
}
