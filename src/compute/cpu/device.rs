//! The CPU as a device: its memory, and the life of a pass.

use super::{
    Cpu, DeviceBatch, ExpertCounts, Experts, HostExperts, KvCache, Matrix, Pages, Routes, States, Tensor, experts,
    linear,
};
use crate::batch::{Batch, BatchLimits, BlockId, Sampled, StateSlot};
use crate::{
    Defaults, Device, DeviceMemory, ExpertsShape, HostExpertWeights, HostMatrix, HostVector, KvLayout, Recording,
    Router, RoutesShape, StateShape,
};
use base::error::{Error, Result, room};
use formats::{DType, WeightFormat};
use std::convert::Infallible;
use std::time::{Duration, Instant};

impl Device for Cpu {
    type Storage = Pages<f32>;
    type Matrix = Matrix;
    type Experts = Experts;
    type Heads = Experts;
    type HostExperts = HostExperts;
    type Routes = Routes;
    type ExpertCounts = ExpertCounts;
    type Vector = Box<[f32]>;
    type KvCache = KvCache;
    type States = States;
    type DeviceBatch = DeviceBatch;
    type Graph = Infallible;
    type ContextGuard = ();

    const DEPTH: usize = 1;
    const DEFAULTS: Defaults = Defaults {
        // Small blocks share more of a prompt's prefix and waste less at a sequence's end. The CPU reads keys and values through
        // its caches whatever the block, so it gains nothing from larger ones.
        block_size: 16,
        // Beyond this many sequences a decode step is bound by arithmetic, and more of them only wait for each other.
        max_num_seqs: 64,
        // Enough tokens to make prefill a matter of arithmetic: weights are read once for all of them. More would only lengthen
        // the step that other requests sit through.
        max_batched_tokens: 512,
        // The host has other work.
        memory_share: 0.5,
    };

    fn weight_dtype(stored: DType, asked: Option<DType>) -> Result<DType> {
        Ok(asked.unwrap_or(stored))
    }

    fn device_memory(&self) -> Result<Option<DeviceMemory>> {
        Ok(None)
    }

    fn enter(&self) -> Result<()> {
        Ok(())
    }

    fn tensor(&self, capacity: usize, cols: usize) -> Result<Tensor> {
        linear::fit(&mut self.scratch.lock(), &self.pool, self.isa, capacity, cols)?;
        // It may be one that ranks fill together.
        self.member.iter().try_for_each(|member| member.reserve(capacity * cols))?;
        Ok(Tensor::new(Pages::zeroed(capacity * cols, "activations", "max_batched_tokens")?, capacity, cols))
    }

    fn reshape(tensor: &mut Tensor, cols: usize) {
        tensor.divide(cols);
    }

    fn matrix(&self, parts: &[HostMatrix]) -> Result<Matrix> {
        parts.iter().for_each(|part| self.populate(part));
        Matrix::new(parts)
    }

    fn held_bytes(coding: WeightFormat, [rows, cols]: [usize; 2], _dtype: DType) -> u64 {
        (rows * (coding.row_bytes(cols) + coding.scale_bytes(cols) + coding.zero_bytes(cols))) as u64
    }

    fn experts(&self, first: usize, parts: &[Vec<HostMatrix>]) -> Result<Experts> {
        parts.iter().flatten().for_each(|part| self.populate(part));
        let experts = Experts::new(first, parts)?;
        experts::fit(&mut self.workers.lock(), self.pool.threads(), self.isa, [experts.shape().inputs, 0])?;
        Ok(experts)
    }

    fn heads(&self, heads: &[HostMatrix]) -> Result<Experts> {
        heads.iter().for_each(|head| self.populate(head));
        let heads = Experts::new(&heads.iter().map(|head| vec![head.clone()]).collect::<Vec<_>>())?;
        let ExpertsShape { inputs, outputs, .. } = heads.shape();
        experts::fit(&mut self.workers.lock(), self.pool.threads(), self.isa, [inputs, outputs])?;
        Ok(heads)
    }

    fn experts_on_host(&self, weights: HostExpertWeights) -> Result<HostExperts> {
        HostExperts::new(self, weights)
    }

    fn routes(&self, router: &Router, tokens: usize) -> Result<Routes> {
        Routes::new(router, tokens)
    }

    fn expert_counts(&self, experts: usize) -> Result<ExpertCounts> {
        ExpertCounts::new(experts)
    }

    fn read_expert_counts(&self, counts: &ExpertCounts) -> Result<Vec<u64>> {
        Ok(counts.read())
    }

    fn vector(&self, parts: &[HostVector]) -> Result<Box<[f32]>> {
        Ok(parts.iter().flat_map(HostVector::to_f32).collect())
    }

    fn table(&self, values: &[f32]) -> Result<Box<[f32]>> {
        let mut table = room(values.len(), "a table of the model", "max_model_len")?;
        table.extend_from_slice(values);
        Ok(table.into_boxed_slice())
    }

    fn kv_cache(&self, layout: &KvLayout, blocks: usize) -> Result<KvCache> {
        KvCache::new(layout, blocks)
    }

    fn states(&mut self, shape: &StateShape) -> Result<States> {
        States::new(shape)
    }

    fn device_batches(&self, limits: &BatchLimits) -> Result<Vec<DeviceBatch>> {
        Ok(vec![self.device_batch(limits)?])
    }

    fn matrix_shape(matrix: &Matrix) -> (usize, usize) {
        (matrix.rows(), matrix.cols())
    }

    fn experts_shape(experts: &Experts) -> ExpertsShape {
        experts.shape()
    }

    fn heads_shape(heads: &Experts) -> [usize; 3] {
        let ExpertsShape { experts, outputs, inputs } = heads.shape();
        [experts, outputs, inputs]
    }

    fn host_experts_shape(experts: &HostExperts) -> ExpertsShape {
        experts.shape()
    }

    fn routes_shape(routes: &Routes) -> RoutesShape {
        routes.shape()
    }

    fn counted_experts(counts: &ExpertCounts) -> usize {
        counts.experts()
    }

    fn vector_len(vector: &Box<[f32]>) -> usize {
        vector.len()
    }

    fn kv_layout(cache: &KvCache) -> &KvLayout {
        cache.layout()
    }

    fn state_shape(states: &States) -> StateShape {
        states.shape()
    }

    fn batch(device_batch: &DeviceBatch) -> &Batch {
        &device_batch.batch
    }

    fn upload(&mut self, device_batch: &mut DeviceBatch, batch: &Batch) -> Result<()> {
        device_batch.batch.clone_from(batch);
        device_batch.sampled.clear();
        device_batch.hidden_states.clear();
        device_batch.logprobs.clear();
        device_batch.top_tokens.clear();
        device_batch.top_logprobs.clear();
        Ok(())
    }

    /// The last op has put its results where `results` reads them.
    fn finish(&mut self, _device_batch: &mut DeviceBatch) -> Result<()> {
        match *self.is_lost.get_mut() {
            true => Err(Error::RankLost),
            false => Ok(()),
        }
    }

    fn poll(&mut self, _device_batch: &mut DeviceBatch, _deadline: Option<Instant>) -> Result<bool> {
        Ok(true)
    }

    fn results<'a>(&self, device_batch: &'a DeviceBatch) -> Sampled<'a> {
        Sampled {
            tokens: &device_batch.sampled,
            logprobs: &device_batch.logprobs,
            top_tokens: &device_batch.top_tokens,
            top_logprobs: &device_batch.top_logprobs,
            hidden_states: &device_batch.hidden_states,
        }
    }

    fn device_time(&self, _device_batch: &DeviceBatch) -> Result<Option<Duration>> {
        Ok(None)
    }

    fn capture_pass(
        &mut self,
        _device_batch: &mut DeviceBatch,
        _batch: &Batch,
        _rows: usize,
        _launches: &mut dyn FnMut(&mut Cpu, &mut DeviceBatch),
    ) -> Result<Recording<Infallible>> {
        Ok(Recording::Nothing)
    }

    fn records_at_opening(&self, _rows: usize) -> bool {
        false
    }

    fn upload_padded(&mut self, graph: &Infallible, _device_batch: &mut DeviceBatch, _batch: &Batch) -> Result<bool> {
        match *graph {}
    }

    fn launch_graph(&mut self, graph: &Infallible) -> Result<()> {
        match *graph {}
    }

    fn read_blocks(&mut self, cache: &KvCache, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        cache.read_blocks(blocks, to);
        Ok(())
    }

    fn write_blocks(&mut self, cache: &mut KvCache, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        cache.write_blocks(blocks, from)
    }

    fn read_state(&mut self, states: &States, slot: StateSlot, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(bytemuck::cast_slice(states.slot(slot)));
        Ok(())
    }

    fn write_state(&mut self, states: &mut States, slot: StateSlot, from: &[u8]) -> Result<()> {
        let numbers = from.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        states.slot_mut(slot).iter_mut().zip(numbers).for_each(|(to, from)| *to = from);
        Ok(())
    }

    fn commit_blocks(&mut self, cache: &mut KvCache, batch: &Batch) -> Result<()> {
        let size = cache.layout().block_size as u32;
        let windowed = batch.window_tables.iter().flat_map(|table| &table.slots);
        let written = batch.slots.iter().chain(windowed).map(|slot| slot / size);
        cache.commit(written.chain(batch.copies.iter().map(|copy| copy.to)))
    }

    fn release_blocks(&mut self, cache: &mut KvCache, unused: &[bool]) -> Result<u64> {
        Ok(cache.release(unused))
    }

    fn restore_blocks(&mut self, cache: &mut KvCache, blocks: &[BlockId]) -> Result<()> {
        cache.restore(blocks)
    }

    fn kv_bytes_mapped(cache: &KvCache) -> u64 {
        cache.committed_bytes()
    }
}
