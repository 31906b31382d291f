//! What can be chosen of a device before its caches and passes are made, and asked of it?
//!
//! Some choices change the bits of results, [`Rounding`] and [`Route`] for example, others only the time that they take.

use super::Cuda;
use super::attention;
use super::attention::partition::{Cuts, Geometry, LayerWindow};
use super::attention::shared_partition::Sharing;
use super::gemm::{Epilogue, Route};
use super::host_experts::HostThreads;
use super::kernels::Chaining;
use super::kv_cache::KvBlocks;
use super::management::FreeBefore;
use super::matrix::Matrix;
use super::reduce_add_norm::AllReduce;
use crate::{KvLayout, KvShape, Rounding, SharedPrefixes};
use base::error::Result;
use std::sync::atomic::Ordering;

impl Cuda {
    /// Refuses a KV cache that the kernels do not know, whatever its heads are.
    pub fn check_cache(&self, layout: &KvLayout) -> Result<()> {
        KvBlocks::check(layout, self.device.dtype)
    }

    /// Refuses a layer whose keys and values have this shape, and `heads` query heads over it, if the kernels do not know such heads.
    pub fn check_heads(&self, shape: &KvShape, heads: usize) -> Result<()> {
        attention::check(shape, heads)
    }

    /// Names the query heads of every layer, where all have as many. Rows share the keys of their prefix in caches that are made afterwards.
    pub fn set_query_heads(&mut self, heads: usize) {
        self.query_heads = Some(heads);
    }

    /// Chooses when the keys of a prefix that rows share are read once for all of them.
    pub fn set_shared_prefixes(&mut self, shared_prefixes: SharedPrefixes) {
        self.shared_prefixes = shared_prefixes;
    }

    /// Names the sliding windows of all layers, `None` for layers without one, over caches of one shape; before the first call there are
    /// none. A batch serves the windows that were named when its memory was made.
    pub fn set_windows(&mut self, windows: impl IntoIterator<Item = Option<usize>>) {
        self.set_layer_windows(windows.into_iter().map(|window| (0, window)));
    }

    /// As [`set_windows`](Self::set_windows), with the [kind](KvLayout::kinds) of each layer.
    pub fn set_layer_windows(&mut self, windows: impl IntoIterator<Item = (usize, Option<usize>)>) {
        self.windows.clear();
        for (kind, window) in windows {
            let window = LayerWindow { kind, window };
            if !self.windows.contains(&window) {
                self.windows.push(window);
            }
        }
    }

    /// Chooses how kernels follow each other.
    pub fn set_chaining(&mut self, chaining: Chaining) {
        self.device.chaining = chaining;
    }

    /// Chooses which code computes linear layers.
    pub fn set_route(&mut self, route: Route) {
        self.kernels.linear.route = route;
    }

    /// Chooses how ranks sum their shares; `None` by size, as without this call. Without effect by NCCL. All ranks choose alike.
    #[doc(hidden)]
    pub fn set_all_reduce(&mut self, all_reduce: Option<AllReduce>) {
        self.kernels.reduce_add_norm.all_reduce = all_reduce;
    }

    /// Ends the timing of matrix products: later sizes take the library's first suggestion, so that no pass waits for a choice.
    pub fn settle(&mut self) {
        if let Some(blas) = self.kernels.linear.blas.get_mut() {
            blas.settle();
        }
    }

    /// Chooses what the results of a row may depend on.
    ///
    /// `BatchInvariant` adds up each result in an order that knows neither the batch nor how a prompt was cut: linear layers by
    /// `gemm_tiled.cu` or on compute capability 9.0 `gemm_swap_ab.cu` whatever the route, attention by `attention_prefill.cu` or there
    /// by `attention_units.cu`, `attention_few_units.cu` and `attention_hopper.cu`, norms as for a single row. To be chosen before a cache or a batch is made.
    pub fn set_rounding(&mut self, rounding: Rounding) {
        self.device.rounding = rounding;
    }

    /// Says how the host computes experts. Before such experts are made.
    pub fn set_host_threads(&mut self, threads: HostThreads) {
        self.host_threads = Some(threads);
    }

    /// Chooses whether the host leaves out what it would compute of experts, whose rows are not defined then. It would take long for the largest passes,
    /// which run while an engine opens.
    pub fn set_host_idle(&mut self, is_idle: bool) {
        self.host_is_idle.store(is_idle, Ordering::Relaxed);
    }

    /// Whether the device has compute capability 9.0, for which some kernels are compiled alone.
    pub fn is_hopper(&self) -> bool {
        self.device.facts().is_hopper()
    }

    /// The name of the kernel that is planned for the sums of `m` rows, or for their gated results, without the number type. `None`: there is none.
    #[doc(hidden)]
    pub fn planned(&self, m: usize, weight: &Matrix, is_gated: bool) -> Option<String> {
        let epilogue = if is_gated { Epilogue::Gated } else { Epilogue::Store };
        self.kernels.linear.planned(&self.device, m, weight, epilogue)
    }

    /// The names of the kernels that were launched since the last call, without `nvllm_k_`; products of cuBLASLt as `cublasLtMatmul`. The first call
    /// finds none. Launches of a graph are those of its capture.
    #[doc(hidden)]
    pub fn take_launches(&mut self) -> Vec<String> {
        self.device.context.launches().take()
    }

    /// Whether cuBLASLt was found.
    pub fn has_blas(&self) -> bool {
        self.kernels.linear.blas.get().is_some()
    }

    /// Counts what the engine takes as the difference to this.
    pub fn set_free_before(&mut self, before: Option<FreeBefore>) {
        self.free_before = before;
    }

    /// How the attention of the next pass is cut in layers of a kind. Before a cache is made, in any way.
    pub(super) fn geometry(&self, kind: usize) -> Geometry {
        let geometry = self.geometries.borrow().get(kind).copied().unwrap_or(Geometry {
            kv_heads: 1,
            tile_tokens: 64,
            tile_queries: 128,
            ctas: 1,
            cuts: Cuts::Equal,
            merged_heads: None,
            sharing: None,
        });
        // Batch-invariant attention reads every row by itself. Ranks replay what they recorded, at one rate.
        let may_share = self.device.rounding == Rounding::Fastest && self.exchanges.is_none();
        let sharing = geometry.sharing.filter(|_| may_share).and_then(|sharing| match self.shared_prefixes {
            SharedPrefixes::Never => None,
            SharedPrefixes::WhereItPays => Some(sharing),
            SharedPrefixes::Always => Some(Sharing { stretch_saves: 1, pass_saves: 1, ..sharing }),
        });
        Geometry { sharing, ..geometry }
    }
}
