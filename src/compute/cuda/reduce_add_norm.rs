//! See `ops/reduce_add_norm.rs` for the contract, `kernels/reduce_add_norm.cu` and `reduce_add_norm_two_shot.cu` for the work, and
//! `kernels/sum_add_norm.cu` for the work where NCCL gathers the shares.

use super::add_norm::NORMS;
use super::device::Device;
use super::driver::Address;
use super::exchange::{Exchange, Exchanges};
use super::kernels::{Chaining, Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::storage::Tensor;
use crate::{AddNorm, NextNorm, NormWeights};
use base::error::Result;
use std::cell::Cell;

params! {
    ReduceAddNormParams in "common/reduce_add_norm.cuh" {
        exchange: Exchange,
        out: Address,
        residual: Address,
        share: Address,
        weight: Address,
        post_weight: Address,
        rows: i32,
        hidden: i32,
        stride: i32,
        eps: f32,
        post_eps: f32,
        scale: f32,
        stream_scale: f32,
    }
    SumAddNormParams in "sum_add_norm.cu" {
        out: Address,
        residual: Address,
        shares: Address,
        weight: Address,
        post_weight: Address,
        ended: Address,
        rows: i32,
        ranks: i32,
        hidden: i32,
        stride: i32,
        eps: f32,
        post_eps: f32,
        scale: f32,
        stream_scale: f32,
    }
}

const THREADS_MAX: usize = 1024;

/// Groups of eight numbers that a thread of a kernel takes at most.
const GROUPS: [usize; 2] = [1, 8];

/// From how many ranks on an exchange may be done in two steps. With two ranks both algorithms send as many bytes.
const TWO_SHOT_RANKS: usize = 3;

/// Bytes from which on two steps are faster, as each rank would send them in one. Measured on four H200: rows of 128 KiB, of which a rank
/// sends 384 KiB, take 4.6 us in one step and 5.0 in two; rows of 256 KiB 6.1 and 5.3, rows of 1 MiB 15.6 and 7.9.
const TWO_SHOT_BYTES: usize = 512 << 10;

/// How ranks that write each other's memory sum their shares. Both give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllReduce {
    /// Each rank sends its share to all others, and sums all rows.
    OneShot,
    /// Each row has an owner, who sums the shares and sends the others the result.
    TwoShot,
}

impl AllReduce {
    /// That of an exchange of `rows` of `hidden` numbers of two bytes. Equal on all ranks.
    fn of(ranks: usize, rows: usize, hidden: usize) -> AllReduce {
        match ranks >= TWO_SHOT_RANKS && (ranks - 1) * rows * hidden * 2 >= TWO_SHOT_BYTES {
            true => AllReduce::TwoShot,
            false => AllReduce::OneShot,
        }
    }
}

pub struct Kernels {
    /// The algorithm that a test or a bench names. `None`: by size.
    pub all_reduce: Option<AllReduce>,
    /// The kernel of each norm of the sum, each norm of the stream and each number of groups. `[3 * 3 * 2]`
    one_shot: Vec<OneWave>,
    two_shot: Vec<OneWave>,
    /// For shares that NCCL has gathered: of each norm of the sum and each norm of the stream. `[3 * 3]`
    sum: Vec<Kernel>,
}

/// A kernel whose thread blocks wait for other ranks, so that all of them must be on the device at once.
struct OneWave {
    kernel: Kernel,
    /// Threads of the last launch, and how many blocks of as many fit the device.
    known: Cell<(usize, usize)>,
}

impl OneWave {
    fn blocks(&self, threads: usize) -> Result<usize> {
        if self.known.get().0 != threads {
            self.known.set((threads, self.kernel.one_wave(threads)?));
        }
        Ok(self.known.get().1)
    }
}

/// Threads that take a row of `hidden` numbers. They do not depend on the number of rows, so that no bit of a row does.
fn threads(hidden: usize) -> usize {
    (hidden / 8).next_multiple_of(32).min(THREADS_MAX)
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let pairs = NORMS.iter().flat_map(|(_, post, _)| NORMS.iter().map(move |(_, _, next)| (*post, *next)));
        let names = pairs.clone().flat_map(|(post, next)| GROUPS.map(|groups| (post, next, groups)));
        let kernels = |file, algorithm| {
            let module = device.module(file)?;
            let kernel = |(post, next, groups): (&str, &str, usize)| {
                let name = format!("{post}reduce_add{next}{algorithm}_g{groups}_{}", suffix(device.dtype));
                Ok(OneWave { kernel: Kernel::new(&module, &name)?, known: Cell::new((0, 0)) })
            };
            names.clone().map(kernel).collect::<Result<Vec<_>>>()
        };
        let one_shot = kernels("reduce_add_norm", "")?;
        let two_shot = kernels("reduce_add_norm_two_shot", "_two_shot")?;
        let module = device.module("sum_add_norm")?;
        let kernel = |(post, next)| Kernel::new(&module, &format!("{post}sum_add{next}_{}", suffix(device.dtype)));
        Ok(Kernels { all_reduce: None, one_shot, two_shot, sum: pairs.map(kernel).collect::<Result<_>>()? })
    }

    pub fn run(
        &self,
        device: &Device,
        exchanges: &mut Exchanges,
        residual: &mut Tensor,
        share: &Tensor,
        add: AddNorm<Vector>,
        next: Option<NextNorm<Tensor, Vector>>,
    ) -> Result<()> {
        let (hidden, stride) = (share.cols(), share.storage.stride());
        let threads = threads(hidden);
        let groups = hidden.div_ceil(8 * threads);
        assert!(hidden.is_multiple_of(8) && groups <= GROUPS[1], "rows of {hidden} numbers");
        let (out, next) = next.map(|next| (next.out, next.norm)).unzip();
        let address = |norm: Option<NormWeights<Vector>>| norm.map_or(0, |norm| norm.weight.wide.address());
        let eps = |norm: Option<NormWeights<Vector>>| norm.map_or(0.0, |norm| norm.eps);
        let index = |norm: Option<NormWeights<Vector>>| {
            let kind = norm.map(|norm| norm.kind);
            NORMS.iter().position(|(known, ..)| *known == kind).expect("all norms are listed")
        };
        let variant = NORMS.len() * index(add.post) + index(next);
        if exchanges.nccl().is_some() {
            let params = SumAddNormParams {
                out: out.as_ref().map_or(0, |out| out.storage.address()),
                residual: residual.storage.address(),
                shares: 0,
                weight: address(next),
                post_weight: address(add.post),
                ended: 0,
                rows: share.rows() as i32,
                ranks: exchanges.member().ranks() as i32,
                hidden: hidden as i32,
                stride: stride as i32,
                eps: eps(next),
                post_eps: eps(add.post),
                scale: add.scale,
                stream_scale: add.stream_scale,
            };
            return gather_and_sum(&self.sum[variant], threads, exchanges, share.storage.address(), params);
        }
        let index = GROUPS.len() * variant + usize::from(groups > GROUPS[0]);
        let rows_max = exchanges.member().sender_bytes() / (2 * hidden);
        for first in (0..share.rows()).step_by(rows_max) {
            let rows = rows_max.min(share.rows() - first);
            let all_reduce = AllReduce::of(exchanges.member().ranks(), rows, hidden);
            let kernel = match self.all_reduce.unwrap_or(all_reduce) {
                AllReduce::OneShot => &self.one_shot[index],
                AllReduce::TwoShot => &self.two_shot[index],
            };
            let one_wave = kernel.blocks(threads)?;
            let Some(exchange) = exchanges.next()? else { return Ok(()) };
            let skipped = (2 * first * stride) as u64;
            let params = ReduceAddNormParams {
                exchange,
                out: out.as_ref().map_or(0, |out| out.storage.address() + skipped),
                residual: residual.storage.address() + skipped,
                share: share.storage.address() + skipped,
                weight: address(next),
                post_weight: address(add.post),
                rows: rows as i32,
                hidden: hidden as i32,
                stride: stride as i32,
                eps: eps(next),
                post_eps: eps(add.post),
                scale: add.scale,
                stream_scale: add.stream_scale,
            };
            kernel.kernel.launch(device.chaining, [rows.min(one_wave), 1, 1], threads, 0, &params)?;
        }
        Ok(())
    }
}

/// Sums over ranks whose shares lie from `share` on, by NCCL: as many exchanges as `params.rows` need. What depends on the exchange is
/// filled in here.
fn gather_and_sum(
    kernel: &Kernel,
    threads: usize,
    exchanges: &mut Exchanges,
    share: Address,
    params: SumAddNormParams,
) -> Result<()> {
    let row_bytes = 2 * params.stride as usize;
    let (all, rows_max) =
        (params.rows as usize, exchanges.nccl().expect("the caller looked").sender_bytes() / row_bytes);
    assert!(rows_max > 0, "a row of {row_bytes} bytes");
    for first in (0..all).step_by(rows_max) {
        if !exchanges.next_by_nccl()? {
            return Ok(());
        }
        let nccl = exchanges.nccl().expect("the caller looked");
        let (rows, skipped) = (rows_max.min(all - first), (first * row_bytes) as u64);
        nccl.all_gather(share + skipped, rows * row_bytes)?;
        let params = SumAddNormParams {
            out: if params.out == 0 { 0 } else { params.out + skipped },
            residual: params.residual + skipped,
            shares: nccl.gathered(),
            ended: nccl.ended(),
            rows: rows as i32,
            ..params
        };
        // Whatever NCCL launched last, it has ended.
        kernel.launch(Chaining::Strict, [rows, 1, 1], threads, 0, &params)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_of_more_than_two_ranks_are_summed_in_two_steps() {
        use AllReduce::{OneShot, TwoShot};
        for (ranks, rows, wanted) in
            [(2, 1, OneShot), (2, 8192, OneShot), (4, 1, OneShot), (4, 21, OneShot), (4, 22, TwoShot)]
        {
            assert_eq!(AllReduce::of(ranks, rows, 4096), wanted, "{ranks} ranks, {rows} rows");
        }
        assert_eq!([9, 10].map(|rows| AllReduce::of(8, rows, 4096)), [OneShot, TwoShot]);
    }
}
