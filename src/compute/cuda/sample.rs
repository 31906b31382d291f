//! See `ops/sample.rs` for the contract, `kernels/sample.cu` and `kernels/sample_once.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::params::params;
use super::storage::Tensor;
use crate::batch::Sampling;
use base::error::Result;
use std::ops::Range;

params! {
    SampleParams in "common/logits.cuh" {
        tokens: Address,
        host_tokens: Address,
        logits: Address,
        sampling: Address,
        masks: Address,
        argmax: Address,
        gumbel_argmax: Address,
        arrived: Address,
        vocab: i32,
        stride: i32,
        window: i32,
        splits: i32,
    }
}

/// Threads of a block that looks for the greatest logit, and of one that chooses.
const ARGMAX_THREADS: usize = 256;
const CHOOSE_THREADS: usize = 1024;
/// The same where no sample has a cut to find, for at most [`UNCUT_SAMPLES`] samples. Without the table, two such blocks share a multiprocessor. One H200, both
/// kernels over 151,936 logits, microseconds with 1,024 threads and with 512: 1 sample 13.8 / 10.8, 16 samples 31.8 / 25.8, 64 samples
/// 53.6 / 53.1, 256 samples 126.6 / 128.5.
const CHOOSE_UNCUT_THREADS: usize = 512;
const UNCUT_SAMPLES: usize = 32;
/// Counters that reach from a logit of 32 down past -2^61 in bf16, and to -48 in f16: a second table is almost never wanted.
const WINDOW_MAX: usize = 40_960;
/// What every device with clusters can hold at once.
const CLUSTER_MAX: usize = 8;

/// Bytes that a thread of the kernel that reads logits once has in shared memory: `SLOTS` of `sample_once.cu`.
const ONCE_BYTES: usize = 4 * 16;
/// Samples from which on it is used. One H200, microseconds of both kernels and of the one, over 151,936 logits of a peaked distribution: 1 sample 7.5 and 8.9,
/// 4 samples 9.3 and 10.4, 8 samples 12.4 and 10.5, 16 samples 16.4 and 12.8, 64 samples 41.1 and 24.5, 256 samples 108.6 and 46.3.
const ONCE_FROM: usize = 8;
/// Temperatures for it: it compares scores whose size is that of the greatest logit divided by the temperature. Above, a token may be near the greatest although the
/// difference of their logits is infinite, which the rule excludes.
const ONCE_TEMPERATURES: Range<f32> = 1e-6..1e36;

/// Thread blocks of a sample in the kernel that reads logits once, and their threads. Two blocks of 512 threads share a multiprocessor.
fn once_shape(samples: usize, processors: usize) -> (usize, usize) {
    if CLUSTER_MAX * samples <= processors {
        return (CLUSTER_MAX, 256);
    }
    // Clusters do not fill the device to the last multiprocessor. Pairs of thread blocks do, and a second wave of them pays if it is not short.
    let whole = 2 * (processors - processors / 8);
    let cluster =
        [(8, whole), (4, whole), (2, 3 * processors)].into_iter().find(|(cluster, most)| cluster * samples <= *most);
    (cluster.map_or(1, |(cluster, _)| cluster), 512)
}

/// The kernels, and what a thread block of the second one can count.
pub struct Kernels {
    argmax: Kernel,
    choose: Kernel,
    /// The second one, where a sample has top-n-sigma or XTC.
    choose_filtered: Kernel,
    window: usize,
    /// The one of `sample_once.cu`, on compute capability 9.0.
    once: Option<Kernel>,
}

impl Kernels {
    /// Loads them for one number type.
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("sample")?;
        let kernel = |name: &str| Kernel::new(&module, &format!("{name}_{}", suffix(device.dtype)));
        // The rest is for what the kernel declares itself.
        let counters = device.facts().block_shared_bytes.saturating_sub(2048) / 17 * 4;
        let window = (counters / 128 * 128).min(WINDOW_MAX);
        let once = if device.facts().is_hopper() {
            let module = device.module("sample_once")?;
            Some(Kernel::new(&module, &format!("sample_once_{}", suffix(device.dtype)))?)
        } else {
            None
        };
        let [argmax, choose, choose_filtered] =
            ["sample_argmax", "sample_choose", "sample_choose_filtered"].map(kernel);
        let kernels = Kernels { argmax: argmax?, choose: choose?, choose_filtered: choose_filtered?, window, once };
        kernels.choose.allow_shared(kernels.shared_bytes())?;
        kernels.choose_filtered.allow_shared(kernels.shared_bytes())?;
        Ok(kernels)
    }

    fn shared_bytes(&self) -> usize {
        self.window / 4 * 17
    }

    pub fn run(&self, device: &Device, device_batch: &DeviceBatch, logits: &Tensor) -> Result<()> {
        let (at, facts) = (device_batch.addresses(), device.facts());
        let mut params = SampleParams {
            tokens: at.tokens,
            host_tokens: at.host_tokens,
            logits: logits.storage.address(),
            sampling: at.sampling,
            masks: device_batch.extras().masks(),
            argmax: at.argmax,
            gumbel_argmax: at.gumbel_argmax,
            arrived: at.arrived,
            vocab: logits.cols() as i32,
            stride: logits.storage.stride() as i32,
            window: self.window as i32,
            splits: 0,
        };
        let samples = device_batch.samples();
        let sampling = &device_batch.batch().sampling;
        let is_filtered = |s: &Sampling| s.top_n_sigma > 0.0 || s.xtc_threshold > 0.0;
        let has_cut =
            |s: &Sampling| s.top_k > 0 && (s.top_k as usize) < logits.cols() || s.top_p < 1.0 || is_filtered(s);
        let is_odd = |s: &Sampling| {
            has_cut(s) || s.min_p > 0.0 || s.temperature > 0.0 && !ONCE_TEMPERATURES.contains(&s.temperature)
        };
        if let Some(once) = &self.once
            && samples >= ONCE_FROM
            && !sampling.iter().any(is_odd)
        {
            let (cluster, threads) = once_shape(samples, facts.processors);
            let blocks = [cluster * samples, 1, 1];
            return once.launch_clusters(device.chaining, blocks, cluster, threads, threads * ONCE_BYTES, &params);
        }
        // As many thread blocks as fill the device, but each thread should find a few numbers to look at.
        let splits = |threads: usize, fill: usize| {
            let useful = logits.cols().div_ceil(8 * threads).max(1);
            (fill * facts.processors).div_ceil(samples.max(1)).clamp(1, useful)
        };
        let blocks = splits(ARGMAX_THREADS, 8);
        params.splits = blocks as i32;
        self.argmax.launch(device.chaining, [blocks * samples, 1, 1], ARGMAX_THREADS, 0, &params)?;

        if samples <= UNCUT_SAMPLES && !sampling.iter().any(has_cut) {
            let blocks = splits(CHOOSE_UNCUT_THREADS, 2);
            params.splits = blocks as i32;
            let blocks = [blocks * samples, 1, 1];
            return self.choose.launch(device.chaining, blocks, CHOOSE_UNCUT_THREADS, 0, &params);
        }
        let blocks = splits(CHOOSE_THREADS, 1);
        // An eighth of the device is left out, as clusters do not fill it to the last multiprocessor.
        let fits = (facts.processors - facts.processors / 8) / samples.max(1);
        let cluster = if facts.capability < 90 { 1 } else { 1 << fits.min(blocks).clamp(1, CLUSTER_MAX).ilog2() };
        let blocks = blocks / cluster * cluster;
        params.splits = blocks as i32;
        let shared = self.shared_bytes();
        let choose = if sampling.iter().any(is_filtered) { &self.choose_filtered } else { &self.choose };
        choose.launch_clusters(device.chaining, [blocks * samples, 1, 1], cluster, CHOOSE_THREADS, shared, &params)
    }
}

#[cfg(test)]
mod tests {
    use super::once_shape;

    #[test]
    fn samples_are_shared_out_as_they_were_measured_to_be_fast() {
        let cases = [(8, 8, 256), (16, 8, 256), (24, 8, 512), (32, 4, 512), (64, 2, 512), (192, 2, 512), (256, 1, 512)];
        for (samples, cluster, threads) in cases {
            assert_eq!(once_shape(samples, 132), (cluster, threads), "{samples} samples");
        }
    }
}
