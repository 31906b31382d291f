//! A GPU as one of several ranks: how it joins the others, and what it does together with them.

use super::exchange::Exchanges;
use super::kernels::KernelLoading;
use super::peers::{Member, Peers};
use super::{Cuda, Tensor};
use crate::backend::{Backend, DType};
use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Columns that each rank sends in the check of [`Cuda::open_member`]: 1 KiB.
const CHECKED: usize = 512;

impl Cuda {
    /// Opens the device of `member` for weights, activations and caches in `dtype`. All members call it at the same time: it ends with
    /// exchanges that show whether the devices really reach each other.
    pub fn open_member(member: Member, dtype: DType) -> Result<Cuda> {
        let context = member.context().clone();
        let mut cuda = Cuda::in_context(context, dtype, KernelLoading::AtOnce)?;
        cuda.exchanges = Some(Exchanges::new(member)?);
        cuda.check_exchange()?;
        Ok(cuda)
    }

    /// What this rank shares with the others, for tests.
    #[doc(hidden)]
    pub fn peers(&self) -> Option<Arc<Peers>> {
        self.exchanges.as_ref().map(|exchanges| exchanges.member().peers().clone())
    }

    /// Chooses how many rows of a sum over ranks a thread block sends before it waits for one, for a bench.
    #[doc(hidden)]
    pub fn set_rows_ahead(&mut self, rows: usize) {
        self.kernels.reduce_add_norm.ahead = rows;
    }

    /// Does what may wait for all devices of the process: allocate and free memory, above all pinned memory, and instantiate graphs. A
    /// kernel of another rank that waits for this one would never end, so all ranks come here at the same point of the same pass, wait
    /// for what they launched, and meet before and after.
    pub(super) fn together<R>(&mut self, work: impl FnOnce(&mut Cuda) -> Result<R>) -> Result<R> {
        if self.exchanges.is_none() {
            return work(self);
        }
        self.synchronize()?;
        self.meet()?;
        let done = work(self)?;
        self.meet()?;
        Ok(done)
    }

    /// Waits for the threads of all ranks. Returns at once where there is one.
    ///
    /// # Errors
    ///
    /// [`Error::RankLost`] if another rank has failed.
    pub fn meet(&self) -> Result<()> {
        self.exchanges.as_ref().map_or(Ok(()), |exchanges| exchanges.member().meet())
    }

    /// Whether another rank is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.exchanges.as_ref().is_some_and(|exchanges| exchanges.member().peers().is_broken())
    }

    /// Sends a pattern to all ranks and looks at what came, in both slots. Drivers are known to promise access that does not work.
    fn check_exchange(&mut self) -> Result<()> {
        let Some(exchanges) = &self.exchanges else { return Ok(()) };
        let (rank, ranks) = (exchanges.member().rank(), exchanges.member().ranks());
        let shares: Vec<Range<usize>> = (0..ranks).map(|rank| rank * CHECKED..(rank + 1) * CHECKED).collect();
        let pattern =
            |round: usize, rank: usize| (0..CHECKED).map(move |i| (1 + (i + 7 * rank + 3 * round) % 100) as f32);
        let mut rounds: Vec<Tensor> = Vec::new();
        for round in 0..2 {
            let mut out = self.tensor(1, ranks * CHECKED)?;
            out.set_rows(1);
            let mut row = vec![0.0; ranks * CHECKED];
            row[shares[rank].clone()].iter_mut().zip(pattern(round, rank)).for_each(|(to, v)| *to = v);
            self.write(&mut out, &row)?;
            rounds.push(out);
        }
        self.meet()?;
        let (begun, patience) = (Instant::now(), self.exchanges.as_ref().map(|it| it.member().patience()));
        for out in &mut rounds {
            self.join_columns(out, None, &shares);
        }
        let arrived = |cuda: &Cuda, round: usize| -> Result<bool> {
            let found = cuda.read(&rounds[round])?;
            Ok((0..ranks).flat_map(|rank| pattern(round, rank)).eq(found))
        };
        for round in 0..rounds.len() {
            let is_whole = match arrived(self, round) {
                // A rank that failed while it opened has an error of its own. One that is silent has waited as long itself.
                Err(Error::RankLost) if patience.is_some_and(|patience| begun.elapsed() >= patience) => false,
                arrived => arrived?,
            };
            if !is_whole {
                let what = format!(
                    "rank {rank} did not get what the GPUs of the other ranks wrote into its memory, although the driver \
                     says that they can: check the IOMMU and PCIe ACS settings, or set tensor_parallel_size to 1"
                );
                return Err(Error::Unsupported { what });
            }
        }
        self.meet()
    }
}
