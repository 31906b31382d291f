//! Which keys do several rows of a pass share, and who attends to them?
//!
//! Rows whose block tables begin alike share the keys of these blocks. A [`Stretch`] is a range of positions and the rows that share it;
//! stretches nest, because some of the rows that share a prefix may share more. `attention_shared.cu` attends to a stretch for all of its
//! rows at once, in units of some keys and as many rows as one thread block takes. Each unit leaves a part for each of its rows, and
//! `attention_decode.cu` attends to what is behind the last stretch of a row and adds up the parts.
//!
//! The last token of a row is never shared, nor is a block that is not full before it: it is written in this pass. Invariant: the
//! stretches of a row begin at position 0, each begins where the one before ends, and all of them together belong to exactly one unit
//! each of their keys.
//!
//! The order of sums of a row depends on the plan alone. Nothing is allocated here once the plan has its room.

use crate::batch::{Batch, BlockId};
use crate::cuda::attention::partition::Geometry;
use crate::cuda::params::params;
use base::error::{Result, room};
use bytemuck::NoUninit;

params! {
    /// Keys that one thread block takes, for some rows.
    #[derive(NoUninit)]
    SharedUnit in "attention_shared.cu" { first: u32, rows: u32, table: u32, begin: u32, end: u32 }

    /// A row of a unit.
    #[derive(NoUninit)]
    SharedRow in "attention_shared.cu" { token: u32, part: u32 }

    /// The parts of a row, in the order of their keys.
    #[derive(Default, NoUninit)]
    SharedParts in "attention_decode.cu" { first: u32, count: u32 }
}

/// Queries of a unit: `QUERIES` of attention_shared.cu.
pub const UNIT_QUERIES: usize = 64;
/// Keys of a tile: `KEYS` of attention_shared.cu.
const TILE_TOKENS: usize = 64;
/// Fewer keys do not pay for a unit's start and its parts.
const SPAN_MIN: usize = 256;
/// Stretches of a row, at most.
const LEVELS_MAX: u32 = 8;
/// Room for parts, per row of the largest batch.
const PARTS_PER_ROW: usize = 8;

/// How keys are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Tokens of a block.
    pub block_size: usize,
    /// Rows of a unit at most: their query heads of one KV head are its queries.
    pub unit_rows: usize,
    /// Thread blocks that run at once.
    pub ctas: usize,
    /// Parts that the device has room for.
    pub parts_max: usize,
    /// Tokens that a stretch saves at least: its length, times all of its rows but one.
    pub stretch_saves: usize,
    /// Tokens that a pass saves at least.
    pub pass_saves: usize,
}

/// Keys that rows share.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Of `order`.
    start: usize,
    end: usize,
    /// Positions.
    first_token: usize,
    end_token: usize,
    /// The stretch before it, of the same rows and others.
    before: Option<usize>,
    /// Index of its first part among those of a row, and their number.
    part: u32,
    splits: u32,
}

/// Rows that have the blocks before `depth` in common, to be searched.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Of `order`.
    start: usize,
    end: usize,
    /// Blocks that stretches cover.
    covered: usize,
    depth: usize,
    before: Option<usize>,
    level: u32,
}

/// A row, where it stands among those that begin like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    /// The block at the depth of the run that was searched last.
    block: BlockId,
    /// Of the batch.
    row: u32,
}

/// Stands for the block of a row that has no further one to share.
const NO_BLOCK: BlockId = BlockId::MAX;

/// What a row of the batch shares.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    tokens: u32,
    parts: SharedParts,
}

/// The keys that rows of a pass share, for the layers with one window.
#[derive(Debug)]
pub struct SharedPlan {
    /// What the thread blocks of a KV head do. Empty where nothing is shared.
    pub units: Vec<SharedUnit>,
    /// The rows of all units.
    pub rows: Vec<SharedRow>,
    /// Of each row of the decode plan. Empty where nothing is shared.
    pub parts: Vec<SharedParts>,
    parts_max: usize,
    of_row: Vec<Shared>,
    order: Vec<Placed>,
    stretches: Vec<Stretch>,
    runs: Vec<Run>,
}

/// Where the arrays of a [`SharedPlan`] lie, in bytes from its begin.
#[derive(Clone, Copy, Debug)]
pub struct SharedLayout {
    /// `[decode rows]`
    pub parts: usize,
    /// `[units]`
    pub units: usize,
    /// `[rows of units]`
    pub rows: usize,
    /// Where the next one begins.
    pub end: usize,
}

impl SharedLayout {
    fn new(parts: usize, units: usize, rows: usize) -> SharedLayout {
        let parts_end = (size_of::<SharedParts>() * parts).next_multiple_of(64);
        let units_end = parts_end + (size_of::<SharedUnit>() * units).next_multiple_of(64);
        let end = units_end + (size_of::<SharedRow>() * rows).next_multiple_of(64);
        SharedLayout { parts: 0, units: parts_end, rows: units_end, end }
    }

    /// For the largest plan of a batch of `rows` rows.
    pub fn largest(rows: usize) -> SharedLayout {
        SharedLayout::new(rows, PARTS_PER_ROW * rows, PARTS_PER_ROW * rows)
    }
}

impl SharedPlan {
    /// Room for `rows` rows.
    pub fn new(rows: usize) -> Result<SharedPlan> {
        let (what, knob) = ("the plan of shared keys", "max_num_seqs");
        let parts_max = PARTS_PER_ROW * rows;
        Ok(SharedPlan {
            units: room(parts_max, what, knob)?,
            rows: room(parts_max, what, knob)?,
            parts: room(rows, what, knob)?,
            parts_max,
            of_row: room(rows, what, knob)?,
            order: room(rows, what, knob)?,
            stretches: room(rows, what, knob)?,
            // Those that wait are disjoint, and each has two rows at least.
            runs: room(rows + 1, what, knob)?,
        })
    }

    /// Where its arrays lie.
    pub fn layout(&self) -> SharedLayout {
        SharedLayout::new(self.parts.len(), self.units.len(), self.rows.len())
    }

    /// Keys of a row of the batch that units attend to, from position 0 on.
    pub fn tokens(&self, row: usize) -> u32 {
        self.of_row.get(row).map_or(0, |shared| shared.tokens)
    }

    /// Notes that the next row of the decode plan is this one of the batch.
    pub fn push_row(&mut self, row: usize) {
        if !self.units.is_empty() {
            self.parts.push(self.of_row[row].parts);
        }
    }

    /// Plans what rows with one new token share, where they attend to all tokens before. Rows that a window keeps from their first token
    /// share nothing.
    pub fn make(&mut self, batch: &Batch, window: Option<usize>, geometry: &Geometry) {
        self.units.clear();
        self.rows.clear();
        self.parts.clear();
        self.of_row.clear();
        self.order.clear();
        self.stretches.clear();
        let Some(sharing) = &geometry.sharing else { return };
        let mut tokens = 0;
        for row in 0..batch.rows() {
            let context_len = batch.context_lens[row] as usize;
            let is_seen = window.is_none_or(|window| context_len <= window);
            if batch.row(row).len() == 1 && is_seen && whole_blocks(batch, row, sharing) > 0 {
                tokens += context_len;
                self.order.push(Placed { block: NO_BLOCK, row: row as u32 });
            }
        }
        if self.order.len() < 2
            || tokens < sharing.pass_saves
            || self.find_stretches(batch, sharing) < sharing.pass_saves
        {
            return;
        }
        self.split(geometry.kv_heads, sharing);
        self.of_row.resize(batch.rows(), Shared::default());
        for stretch in &self.stretches {
            for &Placed { row, .. } in &self.order[stretch.start..stretch.end] {
                let count = stretch.part + stretch.splits;
                self.of_row[row as usize] =
                    Shared { tokens: stretch.end_token as u32, parts: SharedParts { first: 0, count } };
            }
        }
        let mut first = 0;
        for shared in &mut self.of_row {
            shared.parts.first = first;
            first += shared.parts.count;
        }
        self.make_units(batch, sharing);
    }

    /// Finds the stretches, each behind the one before it, and returns how many tokens they save.
    fn find_stretches(&mut self, batch: &Batch, sharing: &Sharing) -> usize {
        let parts_max = self.parts_max.min(sharing.parts_max);
        let (mut saved, mut parts) = (0, 0);
        self.runs.clear();
        self.runs.push(Run { start: 0, end: self.order.len(), covered: 0, depth: 0, before: None, level: 0 });
        while let Some(run) = self.runs.pop() {
            let rows = &mut self.order[run.start..run.end];
            for placed in rows.iter_mut() {
                let row = placed.row as usize;
                let has_block = run.depth < whole_blocks(batch, row, sharing);
                placed.block = if has_block { batch.block_table(row)[run.depth] } else { NO_BLOCK };
            }
            rows.sort_unstable();
            let mut start = run.start;
            for alike in rows.chunk_by(|a, b| a.block == b.block) {
                let (begin, end) = (start, start + alike.len());
                start = end;
                if alike.len() < 2 || alike[0].block == NO_BLOCK {
                    continue;
                }
                let depth = common_blocks(batch, alike, run.depth, sharing);
                let saves = (alike.len() - 1) * (depth - run.covered) * sharing.block_size;
                if run.level == LEVELS_MAX || parts + alike.len() > parts_max {
                    continue;
                }
                let inner = Run { start: begin, end, depth, ..run };
                if saves < sharing.stretch_saves {
                    // What some of them share beyond this may pay for both.
                    self.runs.push(inner);
                    continue;
                }
                self.runs.push(Run {
                    covered: depth,
                    before: Some(self.stretches.len()),
                    level: run.level + 1,
                    ..inner
                });
                self.stretches.push(Stretch {
                    start: begin,
                    end,
                    first_token: run.covered * sharing.block_size,
                    end_token: depth * sharing.block_size,
                    before: run.before,
                    part: 0,
                    splits: 1,
                });
                saved += saves;
                parts += alike.len();
            }
        }
        saved
    }

    /// Splits stretches by keys, so that units are about as long as each other and fill the device once.
    fn split(&mut self, kv_heads: usize, sharing: &Sharing) {
        let parts_max = self.parts_max.min(sharing.parts_max);
        let units = |stretch: &Stretch| (stretch.end - stretch.start).div_ceil(sharing.unit_rows);
        let tokens = |stretch: &Stretch| stretch.end_token - stretch.first_token;
        let work: usize = self.stretches.iter().map(|stretch| units(stretch) * tokens(stretch)).sum();
        let even = (work * kv_heads).div_ceil(sharing.ctas).next_multiple_of(TILE_TOKENS).max(SPAN_MIN);
        let ctas = |span: usize| {
            kv_heads
                * self.stretches.iter().map(|stretch| units(stretch) * tokens(stretch).div_ceil(span)).sum::<usize>()
        };
        let fills_once = (even..=even + even / 4).step_by(TILE_TOKENS).find(|&span| ctas(span) <= sharing.ctas);
        let mut span = fills_once.unwrap_or(even);
        let parts = |span: usize| {
            let of = |stretch: &Stretch| (stretch.end - stretch.start) * tokens(stretch).div_ceil(span);
            self.stretches.iter().map(of).sum::<usize>()
        };
        // One part for each row of each stretch has room.
        while parts(span) > parts_max {
            span += span / 4;
        }
        for index in 0..self.stretches.len() {
            let before = self.stretches[index].before.map(|before| self.stretches[before]);
            let stretch = &mut self.stretches[index];
            stretch.part = before.map_or(0, |before| before.part + before.splits);
            let splits = tokens(stretch).div_ceil(span);
            stretch.splits = tokens(stretch).div_ceil(span_of(tokens(stretch), splits)) as u32;
        }
    }

    fn make_units(&mut self, batch: &Batch, sharing: &Sharing) {
        for stretch in &self.stretches {
            let rows = &self.order[stretch.start..stretch.end];
            let span = span_of(stretch.end_token - stretch.first_token, stretch.splits as usize);
            for split in 0..stretch.splits {
                let begin = stretch.first_token + split as usize * span;
                for rows in rows.chunks(sharing.unit_rows) {
                    self.units.push(SharedUnit {
                        first: self.rows.len() as u32,
                        rows: rows.len() as u32,
                        table: rows[0].row,
                        begin: begin as u32,
                        end: (begin + span).min(stretch.end_token) as u32,
                    });
                    self.rows.extend(rows.iter().map(|&Placed { row, .. }| SharedRow {
                        token: batch.row(row as usize).start as u32,
                        part: self.of_row[row as usize].parts.first + stretch.part + split,
                    }));
                }
            }
        }
    }
}

/// Tokens of each of `splits` parts of a stretch but the last, which may be shorter.
fn span_of(tokens: usize, splits: usize) -> usize {
    tokens.div_ceil(TILE_TOKENS).div_ceil(splits) * TILE_TOKENS
}

/// Blocks of a row that are full before its last token.
fn whole_blocks(batch: &Batch, row: usize, sharing: &Sharing) -> usize {
    (batch.context_lens[row].saturating_sub(1) as usize) / sharing.block_size
}

/// Blocks that these rows have in common, which are at least `known`.
fn common_blocks(batch: &Batch, rows: &[Placed], known: usize, sharing: &Sharing) -> usize {
    let first = batch.block_table(rows[0].row as usize);
    let mut common = rows.iter().map(|placed| whole_blocks(batch, placed.row as usize, sharing)).min().unwrap_or(known);
    for placed in &rows[1..] {
        let pairs = first[known..common].iter().zip(&batch.block_table(placed.row as usize)[known..common]);
        common = known + pairs.take_while(|(a, b)| a == b).count();
    }
    common
}

#[cfg(test)]
mod tests {
    use super::super::partition::{Cuts, DecodeRow, LayerWindow, Plan};
    use super::*;
    use std::collections::HashSet;

    const ALWAYS: Sharing =
        Sharing { block_size: 16, unit_rows: 32, ctas: 264, parts_max: 2112, stretch_saves: 1, pass_saves: 1 };

    fn geometry(sharing: Sharing) -> Geometry {
        Geometry {
            kv_heads: 8,
            tile_tokens: 64,
            tile_queries: 128,
            ctas: 264,
            cuts: Cuts::Equal,
            merged_heads: None,
            sharing: Some(sharing),
        }
    }

    /// Rows of one token each with these block tables and contexts.
    fn batch(rows: &[(Vec<u32>, u32)]) -> Batch {
        let width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0) + 1;
        let mut batch = Batch { row_starts: vec![0], table_width: width, ..Batch::default() };
        for (table, context_len) in rows {
            batch.row_starts.push(batch.row_starts.len() as u32);
            batch.context_lens.push(*context_len);
            batch.block_tables.extend(table);
            batch.block_tables.resize(batch.context_lens.len() * width, 0);
        }
        batch
    }

    fn planned(batch: &Batch, window: Option<usize>, sharing: Sharing) -> Plan {
        let mut plan = Plan::new(&[LayerWindow { kind: 0, window }], batch.rows(), 264, 100).unwrap();
        plan.make(batch, |_| geometry(sharing));
        plan
    }

    /// Every key of a row belongs to one of its units or to its line of tiles, and units read the blocks that their rows have.
    fn check(batch: &Batch, window: Option<usize>, sharing: Sharing) -> usize {
        let plan = planned(batch, window, sharing);
        let (decode, shared) = (&plan.decode[0], &plan.decode[0].shared);
        let rows: &[DecodeRow] = &decode.rows[..decode.rows.len() - 1];
        let mut used = HashSet::new();
        let mut shared_tokens = 0;
        for unit in &shared.units {
            assert!(unit.begin < unit.end && unit.rows as usize <= sharing.unit_rows && unit.rows > 0);
            assert!(
                (unit.begin as usize).is_multiple_of(sharing.block_size)
                    && (unit.end as usize).is_multiple_of(sharing.block_size)
            );
        }
        for (entry, row) in rows.iter().enumerate() {
            let of_row = |part: u32| {
                let here = |unit: &&SharedUnit| {
                    let members = &shared.rows[unit.first as usize..][..unit.rows as usize];
                    members.iter().any(|member| member.token == row.token && member.part == part)
                };
                let units: Vec<&SharedUnit> = shared.units.iter().filter(here).collect();
                assert_eq!(units.len(), 1, "part {part} of row {}", row.row);
                units[0]
            };
            let parts = shared.parts.get(entry).copied().unwrap_or_default();
            let mut end = 0;
            for part in parts.first..parts.first + parts.count {
                assert!(used.insert(part) && (part as usize) < sharing.parts_max);
                let unit = of_row(part);
                assert_eq!(unit.begin, end, "row {}", row.row);
                end = unit.end;
                let blocks = unit.begin as usize / sharing.block_size..unit.end as usize / sharing.block_size;
                assert_eq!(
                    batch.block_table(row.row as usize)[blocks.clone()],
                    batch.block_table(unit.table as usize)[blocks]
                );
            }
            assert!(end < row.context_len, "the last token of row {} is its own", row.row);
            let window_start = window.map_or(0, |window| (row.context_len as usize).saturating_sub(window)) as u32;
            assert_eq!(row.window_start, window_start.max(end));
            assert!(end == 0 || window_start == 0);
            shared_tokens += end as usize;
        }
        assert_eq!(used.len(), shared.rows.len(), "no unit has a row that does not know of it");
        shared_tokens
    }

    /// A tree of prefixes: `shape` names how many blocks a level has, and how many ways it divides.
    fn random_rows(state: &mut u64, rows: usize, block_size: usize) -> Vec<(Vec<u32>, u32)> {
        let mut below = |n: u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 33) % n
        };
        let mut tables: Vec<Vec<u32>> = Vec::new();
        let mut next = 1;
        for _ in 0..rows {
            let mut table = Vec::new();
            if !tables.is_empty() && below(4) > 0 {
                let from = &tables[below(tables.len() as u64) as usize];
                table.extend(&from[..below(from.len() as u64 + 1) as usize]);
            }
            for _ in 0..below(20) + 1 {
                table.push(next);
                next += 1;
            }
            tables.push(table);
        }
        tables
            .into_iter()
            .map(|table| {
                let least = (table.len() - 1) * block_size;
                let context_len = least as u64 + 1 + below(block_size as u64);
                (table, context_len as u32)
            })
            .collect()
    }

    #[test]
    fn every_key_of_a_row_is_attended_to_once() {
        let mut state = 1;
        let mut shared = 0;
        for round in 0..300 {
            let rows = random_rows(&mut state, 1 + round % 40, 16);
            let batch = batch(&rows);
            shared += check(&batch, None, ALWAYS);
            check(&batch, Some(100), ALWAYS);
            check(&batch, None, Sharing { stretch_saves: 200, pass_saves: 1000, ..ALWAYS });
            check(&batch, None, Sharing { unit_rows: 4, parts_max: 2 + round, ..ALWAYS });
            check(&batch, None, Sharing { ctas: 10_000, ..ALWAYS });
        }
        assert!(shared > 10_000);
    }

    fn with_prefix(rows: usize, prefix: usize, own: u32, context_len: u32) -> Vec<(Vec<u32>, u32)> {
        let own_blocks = |row: usize| (0..own).map(move |i| 10_000 + row as u32 * own + i);
        (0..rows).map(|row| ((0..prefix as u32).chain(own_blocks(row)).collect(), context_len)).collect()
    }

    /// The bench of 256 requests: units that fill two thread blocks per multiprocessor once.
    #[test]
    fn a_prefix_of_all_rows_is_read_once_by_as_many_units_as_run_at_once() {
        let sharing = Sharing { block_size: 64, stretch_saves: 256, pass_saves: 16_384, ..ALWAYS };
        let batch = batch(&with_prefix(256, 32, 3, 2150));
        assert_eq!(check(&batch, None, sharing), 256 * 2048);
        let plan = planned(&batch, None, sharing);
        let shared = &plan.decode[0].shared;
        assert_eq!(shared.units.len(), 32);
        assert!(shared.units.iter().all(|unit| unit.rows == 32 && unit.end - unit.begin == 512));
        assert!(shared.parts.iter().all(|parts| parts.count == 4));
    }

    #[test]
    fn rows_share_no_block_that_is_written_and_no_block_of_another_prefix() {
        let sharing = Sharing { block_size: 64, ..ALWAYS };
        let alike = |blocks: u32, context_len: u32| ((1..=blocks).collect::<Vec<u32>>(), context_len);
        // A block that ends with the last token is not full before it.
        assert_eq!(check(&batch(&[alike(2, 128), alike(2, 128)]), None, sharing), 2 * 64);
        assert_eq!(check(&batch(&[alike(3, 129), alike(3, 129)]), None, sharing), 2 * 128);
        assert_eq!(check(&batch(&[alike(1, 64), alike(1, 64)]), None, sharing), 0);
        // Equal blocks behind different ones.
        assert_eq!(check(&batch(&[(vec![1, 5, 6], 150), (vec![2, 5, 7], 150)]), None, sharing), 0);
        // A row alone, none, and one that only pads.
        assert_eq!(check(&batch(&[alike(3, 129)]), None, sharing), 0);
        assert_eq!(check(&batch(&[alike(3, 129), alike(0, 0)]), None, sharing), 0);
        // Far apart in the batch.
        let apart = [(vec![1, 8], 70), (vec![2, 9], 70), (vec![1, 7], 70), (vec![2, 4], 70), (vec![3, 4], 70)];
        assert_eq!(check(&batch(&apart), None, sharing), 4 * 64);
    }

    #[test]
    fn rows_that_a_window_keeps_from_their_first_token_share_nothing() {
        let batch = batch(&with_prefix(4, 4, 2, 100));
        assert!(check(&batch, Some(100), ALWAYS) > 0);
        assert_eq!(check(&batch, Some(99), ALWAYS), 0);
    }

    #[test]
    fn what_saves_little_is_not_shared() {
        let sharing = Sharing { block_size: 64, stretch_saves: 256, pass_saves: 16_384, ..ALWAYS };
        assert_eq!(check(&batch(&with_prefix(8, 32, 3, 2150)), None, sharing), 0);
        assert_eq!(check(&batch(&with_prefix(9, 32, 3, 2150)), None, sharing), 9 * 2048);
    }

    #[test]
    fn nothing_is_allocated_for_a_batch_that_there_is_room_for() {
        let mut state = 7;
        let mut plan = Plan::new(&[LayerWindow::default()], 64, 264, 100).unwrap();
        let places = |plan: &Plan| {
            let shared = &plan.decode[0].shared;
            let of = |at: usize, room: usize| (at, room);
            [
                of(shared.units.as_ptr() as usize, shared.units.capacity()),
                of(shared.rows.as_ptr() as usize, shared.rows.capacity()),
                of(shared.parts.as_ptr() as usize, shared.parts.capacity()),
                of(shared.of_row.as_ptr() as usize, shared.of_row.capacity()),
                of(shared.order.as_ptr() as usize, shared.order.capacity()),
                of(shared.stretches.as_ptr() as usize, shared.stretches.capacity()),
                of(shared.runs.as_ptr() as usize, shared.runs.capacity()),
            ]
        };
        let before = places(&plan);
        for _ in 0..200 {
            plan.make(&batch(&random_rows(&mut state, 64, 16)), |_| geometry(ALWAYS));
        }
        assert_eq!(places(&plan), before);
    }
}
