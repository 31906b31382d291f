//! See `ops/join_slots.rs` for the contract, `kernels/join_slots.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::exchange::{Exchange, Exchanges};
use super::experts::Routes;
use super::kernels::{Chaining, Kernel};
use super::params::params;
use super::peers::MAX_RANKS;
use super::storage::Tensor;
use base::error::Result;
use std::ops::Range;

params! {
    JoinSlotsParams in "join_slots.cu" {
        exchange: Exchange,
        out: Address,
        x: Address,
        experts_of: Address,
        slots: i32,
        units: i32,
        out_stride: i32,
        x_stride: i32,
        starts: [i32; MAX_RANKS],
        lengths: [i32; MAX_RANKS],
        experts_end: [i32; MAX_RANKS],
    }
    GatheredSlotsParams in "join_slots.cu" {
        out: Address,
        x: Address,
        gathered: Address,
        ended: Address,
        experts_of: Address,
        slots: i32,
        units: i32,
        out_stride: i32,
        x_stride: i32,
        first: i32,
        columns: i32,
        rank: i32,
        ranks: i32,
        experts_end: [i32; MAX_RANKS],
    }
}

const THREADS: usize = 512;
/// Numbers that a thread moves at once, and their bytes.
const UNIT: usize = 8;
const UNIT_BYTES: usize = 16;

/// The kernels.
pub struct Kernels {
    join: Kernel,
    pack: Kernel,
    place: Kernel,
    one_wave: usize,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("join_slots")?;
        let [join, pack, place] = ["join_slots", "pack_slots", "place_slots"].map(|name| Kernel::new(&module, name));
        let (join, pack, place) = (join?, pack?, place?);
        let one_wave = join.one_wave(THREADS)?;
        Ok(Kernels { join, pack, place, one_wave })
    }

    pub fn run(
        &self,
        device: &Device,
        exchanges: &mut Exchanges,
        (out, x): (&mut Tensor, &Tensor),
        columns: &[Range<usize>],
        experts: &[Range<usize>],
        routes: &Routes,
    ) -> Result<()> {
        let (rank, ranks) = (exchanges.member().rank(), exchanges.member().ranks());
        assert_eq!((columns.len(), experts.len(), columns[rank].len()), (ranks, ranks, out.cols()));
        let by_nccl = exchanges.nccl().is_some();
        // NCCL brings whole rows, a kernel the columns that a rank wants of them.
        let widest = columns.iter().map(Range::len).max().unwrap_or(1);
        let units = if by_nccl { x.cols() } else { widest }.div_ceil(UNIT);
        let sender_bytes =
            exchanges.nccl().map_or_else(|| exchanges.member().sender_bytes(), |nccl| nccl.sender_bytes());
        // Room for one unit besides: by that a rank hears from each other one in every exchange.
        let at_once = (sender_bytes / UNIT_BYTES - 1) / units;
        assert!(at_once > 0, "a row of {units} times {UNIT_BYTES} bytes in a slot");
        let of_ranks = |ranges: &[Range<usize>], number: fn(&Range<usize>) -> usize| {
            let mut numbers = [0; MAX_RANKS];
            numbers.iter_mut().zip(ranges).for_each(|(to, range)| *to = number(range) as i32);
            numbers
        };
        for first in (0..out.rows()).step_by(at_once) {
            let slots = at_once.min(out.rows() - first);
            let row = |tensor: &Tensor| tensor.storage.address() + (2 * first * tensor.storage.stride()) as u64;
            let experts_of = routes.addresses().experts + 4 * first as u64;
            if by_nccl {
                let gathered = GatheredSlotsParams {
                    out: row(out),
                    x: row(x),
                    gathered: 0,
                    ended: 0,
                    experts_of,
                    slots: slots as i32,
                    units: units as i32,
                    out_stride: out.storage.stride() as i32,
                    x_stride: x.storage.stride() as i32,
                    first: columns[rank].start as i32,
                    columns: out.cols() as i32,
                    rank: rank as i32,
                    ranks: ranks as i32,
                    experts_end: of_ranks(experts, |range| range.end),
                };
                self.gather(device, exchanges, gathered)?;
                continue;
            }
            let Some(exchange) = exchanges.next()? else { return Ok(()) };
            let params = JoinSlotsParams {
                exchange,
                out: row(out),
                x: row(x),
                experts_of,
                slots: slots as i32,
                units: units as i32,
                out_stride: out.storage.stride() as i32,
                x_stride: x.storage.stride() as i32,
                starts: of_ranks(columns, |range| range.start),
                lengths: of_ranks(columns, Range::len),
                experts_end: of_ranks(experts, |range| range.end),
            };
            let blocks = (slots * units).div_ceil(THREADS).min(self.one_wave);
            self.join.launch(device.chaining, [blocks, 1, 1], THREADS, 0, &params)?;
        }
        Ok(())
    }

    /// One exchange by NCCL, whose addresses are filled in here.
    fn gather(&self, device: &Device, exchanges: &mut Exchanges, mut params: GatheredSlotsParams) -> Result<()> {
        if !exchanges.next_by_nccl()? {
            return Ok(());
        }
        let nccl = exchanges.nccl().expect("the caller looked");
        (params.gathered, params.ended) = (nccl.gathered(), nccl.ended());
        let units = (params.slots * params.units) as usize;
        let blocks = [units.div_ceil(THREADS).min(self.one_wave), 1, 1];
        self.pack.launch(device.chaining, blocks, THREADS, 0, &params)?;
        let bytes = units * UNIT_BYTES;
        nccl.all_gather(nccl.own(bytes), bytes)?;
        // Whatever NCCL launched last, it has ended.
        self.place.launch(Chaining::Strict, blocks, THREADS, 0, &params)
    }
}
