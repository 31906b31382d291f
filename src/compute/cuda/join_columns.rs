//! See `ops/join_columns.rs` for the contract, `kernels/join_columns.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::exchange::{Exchange, Exchanges};
use super::kernels::{Chaining, Kernel};
use super::params::params;
use super::peers::MAX_RANKS;
use super::storage::Tensor;
use crate::Part;
use base::error::Result;
use std::ops::Range;

params! {
    JoinColumnsParams in "join_columns.cu" {
        exchange: Exchange,
        out: Address,
        part: Address,
        rows: i32,
        units: i32,
        out_stride: i32,
        part_stride: i32,
        is_in_place: i32,
        starts: [i32; MAX_RANKS],
        lengths: [i32; MAX_RANKS],
    }
    GatheredColumnsParams in "join_columns.cu" {
        out: Address,
        part: Address,
        gathered: Address,
        ended: Address,
        rows: i32,
        units: i32,
        out_stride: i32,
        part_stride: i32,
        is_in_place: i32,
        rank: i32,
        ranks: i32,
        starts: [i32; MAX_RANKS],
        lengths: [i32; MAX_RANKS],
    }
}

const THREADS: usize = 512;
/// Numbers that a thread moves at once, and their bytes.
const UNIT: usize = 8;
const UNIT_BYTES: usize = 16;

pub struct Kernels {
    join: Kernel,
    pack: Kernel,
    place: Kernel,
    one_wave: usize,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("join_columns")?;
        let [join, pack, place] =
            ["join_columns", "pack_columns", "place_columns"].map(|name| Kernel::new(&module, name));
        let (join, pack, place) = (join?, pack?, place?);
        let one_wave = join.one_wave(THREADS)?;
        Ok(Kernels { join, pack, place, one_wave })
    }

    pub fn run(
        &self,
        device: &Device,
        exchanges: &mut Exchanges,
        out: &mut Tensor,
        part: Option<Part<Tensor>>,
        shares: &[Range<usize>],
    ) -> Result<()> {
        let rank = exchanges.member().rank();
        assert_eq!(shares.len(), exchanges.member().ranks());
        let own = &shares[rank];
        let (start, part_stride) = match &part {
            Some(Part { x, first }) => {
                assert!(first + own.len() <= x.cols());
                (x.storage.address() + 2 * *first as u64, x.storage.stride())
            }
            None => (out.storage.address() + 2 * own.start as u64, out.storage.stride()),
        };
        let units = shares.iter().map(|share| share.len().div_ceil(UNIT)).max().unwrap_or(1);
        let sender_bytes =
            exchanges.nccl().map_or_else(|| exchanges.member().sender_bytes(), |nccl| nccl.sender_bytes());
        let rows_max = sender_bytes / (units * UNIT_BYTES);
        assert!(rows_max > 0, "a row of {units} times {UNIT_BYTES} bytes in a slot");
        let of_ranks = |number: fn(&Range<usize>) -> usize| {
            let mut numbers = [0; MAX_RANKS];
            numbers.iter_mut().zip(shares).for_each(|(to, share)| *to = number(share) as i32);
            numbers
        };
        for first in (0..out.rows()).step_by(rows_max) {
            let rows = rows_max.min(out.rows() - first);
            if exchanges.nccl().is_some() {
                let gathered = GatheredColumnsParams {
                    out: out.storage.address() + (2 * first * out.storage.stride()) as u64,
                    part: start + (2 * first * part_stride) as u64,
                    gathered: 0,
                    ended: 0,
                    rows: rows as i32,
                    units: units as i32,
                    out_stride: out.storage.stride() as i32,
                    part_stride: part_stride as i32,
                    is_in_place: i32::from(part.is_none()),
                    rank: rank as i32,
                    ranks: shares.len() as i32,
                    starts: of_ranks(|share| share.start),
                    lengths: of_ranks(Range::len),
                };
                self.gather(device, exchanges, gathered)?;
                continue;
            }
            let Some(exchange) = exchanges.next()? else { return Ok(()) };
            let params = JoinColumnsParams {
                exchange,
                out: out.storage.address() + (2 * first * out.storage.stride()) as u64,
                part: start + (2 * first * part_stride) as u64,
                rows: rows as i32,
                units: units as i32,
                out_stride: out.storage.stride() as i32,
                part_stride: part_stride as i32,
                is_in_place: i32::from(part.is_none()),
                starts: of_ranks(|share| share.start),
                lengths: of_ranks(Range::len),
            };
            let blocks = (rows * units).div_ceil(THREADS).min(self.one_wave);
            self.join.launch(device.chaining, [blocks, 1, 1], THREADS, 0, &params)?;
        }
        Ok(())
    }

    /// One exchange by NCCL, whose addresses are filled in here.
    fn gather(&self, device: &Device, exchanges: &mut Exchanges, mut params: GatheredColumnsParams) -> Result<()> {
        if !exchanges.next_by_nccl()? {
            return Ok(());
        }
        let nccl = exchanges.nccl().expect("the caller looked");
        (params.gathered, params.ended) = (nccl.gathered(), nccl.ended());
        let units = (params.rows * params.units) as usize;
        let blocks = [units.div_ceil(THREADS).min(self.one_wave), 1, 1];
        self.pack.launch(device.chaining, blocks, THREADS, 0, &params)?;
        let bytes = units * UNIT_BYTES;
        nccl.all_gather(nccl.own(bytes), bytes)?;
        // Whatever NCCL launched last, it has ended.
        self.place.launch(Chaining::Strict, blocks, THREADS, 0, &params)
    }
}
