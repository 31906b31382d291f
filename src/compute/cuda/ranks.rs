//! A GPU as one of several ranks: how it joins the others, and what it does together with them.

use super::exchange::Exchanges;
use super::kernels::KernelLoading;
use super::nccl::{Library, Nccl};
use super::peers::{Member, Peers, Transport, without_nccl};
use super::{Cuda, Tensor};
use crate::{Collectives as _, Device as _};
use base::error::{Error, Result};
use base::log::{Level, log};
use formats::DType;
use std::ops::Range;
use std::sync::Arc;

/// Columns that each rank sends in the check of [`Cuda::open_member`]: 1 KiB.
const CHECKED: usize = 512;

/// Why ranks exchange by NCCL although the driver shows peer access.
const MEMORY_FAILS: &str = "what a GPU writes into the memory of another one does not arrive, although the driver says that it \
                            can (check the IOMMU and PCIe ACS settings)";

impl Cuda {
    /// Opens the device of `member` for weights, activations and caches in `dtype`. All members call it at the same time: it ends with
    /// exchanges that show whether the devices really reach each other's memory. Where they do not, ranks exchange by NCCL.
    pub fn open_member(member: Member, dtype: DType) -> Result<Cuda> {
        let context = member.context().clone();
        let mut cuda = Cuda::in_context(context, dtype, KernelLoading::AtOnce)?;
        cuda.exchanges = Some(Exchanges::new(member)?);
        cuda.kernels.linear.blas.wait()?;
        if let Some(blas) = cuda.kernels.linear.blas.get_mut() {
            blas.time_in_place();
        }
        if cuda.transport() == Some(Transport::PeerMemory) {
            let is_whole = cuda.check_exchange()?;
            if cuda.member(|member| member.agree_on_memory(is_whole))? {
                return Ok(cuda);
            }
            if cuda.member(Member::rank) == 0 {
                log(Level::Warn, format_args!("{MEMORY_FAILS}: ranks exchange by NCCL"));
            }
        }
        cuda.join_nccl()?;
        match cuda.check_exchange()? {
            true => cuda.meet().map(|()| cuda),
            false => {
                let what = "the GPUs do not get what NCCL sends: see what it says with NCCL_DEBUG=INFO, or set \
                            tensor_parallel_size to 1";
                Err(Error::Unsupported { what: what.to_owned() })
            }
        }
    }

    /// By which way this rank exchanges rows with the others.
    #[doc(hidden)]
    pub fn transport(&self) -> Option<Transport> {
        self.exchanges.as_ref().map(|exchanges| exchanges.member().peers().transport())
    }

    fn member<R>(&self, ask: impl FnOnce(&Member) -> R) -> R {
        ask(self.exchanges.as_ref().expect("one of several ranks").member())
    }

    /// Makes this rank's communicator of NCCL, together with the other ranks.
    fn join_nccl(&mut self) -> Result<()> {
        let exchanges = self.exchanges.as_mut().expect("one of several ranks");
        let member = exchanges.member();
        let library =
            Library::get().map_err(|missing| Error::Unsupported { what: without_nccl(MEMORY_FAILS, missing) })?;
        let id = member.nccl_id(library)?;
        let place = (member.rank(), member.ranks());
        let nccl = Nccl::open(library, id, place, member.context(), member.peers().team())?;
        exchanges.set_nccl(nccl);
        Ok(())
    }

    /// What this rank shares with the others, for tests.
    #[doc(hidden)]
    pub fn peers(&self) -> Option<Arc<Peers>> {
        self.exchanges.as_ref().map(|exchanges| exchanges.member().peers().clone())
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

    /// Sends a pattern to all ranks and looks at what came, in both slots: `false` where it is not what was sent, or does not come while a
    /// kernel waits. Drivers are known to promise access that does not work.
    fn check_exchange(&mut self) -> Result<bool> {
        let (rank, ranks) = self.member(|member| (member.rank(), member.ranks()));
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
        for out in &mut rounds {
            self.join_columns(out, None, &shares);
        }
        let mut is_whole = true;
        for (round, out) in rounds.iter().enumerate() {
            is_whole &= match self.read(out) {
                Ok(found) => (0..ranks).flat_map(|rank| pattern(round, rank)).eq(found),
                // A kernel gave up. A rank that failed while it opened has an error of its own.
                Err(Error::RankLost) if self.member(Member::is_whole) => false,
                Err(error) => return Err(error),
            };
        }
        self.device.context.synchronize()?;
        Ok(is_whole)
    }
}
