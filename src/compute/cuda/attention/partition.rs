//! How is the attention of a pass shared out among thread blocks?
//!
//! Rows that bring one token go to `attention_decode.cu`: their keys form one line of tiles, row after row and KV head
//! after KV head, which is split equally among the CTAs (stream-K), or where results must not depend on the batch among the warps of
//! `attention_units.cu`, equally or between (row, KV head)s ([`Cuts`]). Rows that bring several go to `attention_prefill.cu`, one
//! tile of queries per CTA, or to `attention_hopper.cu`, one tile after another per CTA. A layer with a sliding window reads its window
//! only, so that its line is another one: there is one [`DecodePlan`] for each distinct window of the layers, made once per pass. Keys that
//! several rows share are left out of the line where `attention_shared.cu` attends to them: see [`SharedPlan`].
//!
//! The plan is staged with the batch, so that a graph that was captured once reads a new plan in every pass. Invariant: every
//! tile of keys that a row attends to and does not share belongs to exactly one CTA.

use crate::batch::Batch;
use crate::cuda::attention::shared_partition::{SharedPlan, Sharing};
use crate::cuda::params::params;
use base::error::{Result, room};
use bytemuck::NoUninit;

params! {
    /// A row with one new token.
    #[derive(NoUninit)]
    DecodeRow in "common/plan.cuh" { token: u32, row: u32, context_len: u32, window_start: u32, tiles_before: u32 }

    /// Where a CTA begins on the line of tiles, how far it goes, and a copy of the row it begins in.
    #[derive(NoUninit)]
    DecodeCta in "common/plan.cuh" {
        entry: u32,
        kv_head: u32,
        tile: u32,
        tiles: u32,
        token: u32,
        row: u32,
        context_len: u32,
        window_start: u32,
        tiles_before: u32,
    }

    /// Queries that one CTA takes, all of one row.
    #[derive(NoUninit)]
    PrefillTile in "common/plan.cuh" { token: u32, row: u32, tokens: u32, position: u32 }
}

/// Where the parts of the line end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// Anywhere, so that all parts are equal.
    Equal,
    /// With a (row, KV head), if that is expected to take less time than to merge those that are split.
    WholeIfFaster(Costs),
}

/// What parts that end with a (row, KV head) cost, and what it costs to merge those that are split: parts of numbers, `[part, of]`. The unit of time
/// is a tile of each CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Of the CTAs, those that read as fast as all.
    pub busy: [u64; 2],
    /// What a CTA without a tile takes of the others' speed.
    pub idle: [u64; 2],
    /// To merge, where no CTA has less than a (row, KV head).
    pub merge: [u64; 2],
    /// To merge where some have less.
    pub merge_many: [u64; 2],
}

/// Queries of a prefill tile at least: those of heads of 512 numbers.
pub const TILE_QUERIES_MIN: usize = 32;

/// What the splits depend on besides the batch and the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Heads that keys and values have.
    pub kv_heads: usize,
    /// Tokens of a decode tile.
    pub tile_tokens: usize,
    /// Queries of a prefill tile.
    pub tile_queries: usize,
    /// CTAs of a decode launch, or with `attention_units.cu` their warps.
    pub ctas: usize,
    pub cuts: Cuts,
    /// Query heads of a KV head, where what parts of a (row, KV head) leave is so large that their number is [limited](parts_max). `None`: it is not.
    pub merged_heads: Option<usize>,
    /// `None` where rows share no keys.
    pub sharing: Option<Sharing>,
}

/// Which layers a plan is for: those of a kind, by the shape of their keys and values, that have one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerWindow {
    /// Of [`KvLayout::kinds`](crate::KvLayout::kinds).
    pub kind: usize,
    /// As in [`AttentionSpec`](crate::AttentionSpec).
    pub window: Option<usize>,
}

/// The attention of one pass.
#[derive(Debug)]
pub struct Plan {
    /// One for each distinct window of the layers of a kind.
    pub decode: Vec<DecodePlan>,
    /// For each kind of layers, tiles of rows with several new tokens, for all windows; the longest contexts first so that no long one comes last.
    pub tiles: Vec<Vec<PrefillTile>>,
}

/// The rows with one new token, for the layers with one window.
#[derive(Debug)]
pub struct DecodePlan {
    /// The layers.
    pub layers: LayerWindow,
    /// The rows, and an end mark that knows the tiles of all.
    pub rows: Vec<DecodeRow>,
    /// The split of each CTA in use, none of them empty.
    pub ctas: Vec<DecodeCta>,
    /// Keys that rows share. In `rows` the window of such a row begins behind them.
    pub shared: SharedPlan,
    /// Tiles of each CTA whose part ends with a (row, KV head): scratch.
    whole: Vec<u32>,
}

/// Where the arrays of a [`DecodePlan`] lie, in bytes from its begin. Depends on the numbers of rows and CTAs alone.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLayout {
    /// CTAs in use, rows, and the width of the block tables. `[3]`
    pub counts: usize,
    /// `[rows + 1]`
    pub rows: usize,
    /// `[ctas]`
    pub ctas: usize,
    /// Where the next plan begins.
    pub end: usize,
}

impl DecodeLayout {
    /// For a batch of `rows` rows, and at most `ctas` CTAs.
    pub fn new(rows: usize, ctas: usize) -> DecodeLayout {
        let rows_end = (64 + size_of::<DecodeRow>() * (rows + 1)).next_multiple_of(64);
        let end = (rows_end + size_of::<DecodeCta>() * ctas).next_multiple_of(64);
        DecodeLayout { counts: 0, rows: 64, ctas: rows_end, end }
    }
}

impl Plan {
    /// An empty plan for such layers, which grows to the sizes without allocating.
    pub fn new(layers: &[LayerWindow], rows: usize, ctas: usize, tiles: usize) -> Result<Plan> {
        let (what, knob) = ("the plan of attention", "max_num_seqs or max_batched_tokens");
        let decode = layers.iter().map(|&layers| {
            let shared = SharedPlan::new(rows)?;
            let (whole, rows, ctas) = (room(ctas, what, knob)?, room(rows + 1, what, knob)?, room(ctas, what, knob)?);
            Ok(DecodePlan { layers, rows, ctas, shared, whole })
        });
        let kinds = layers.iter().map(|layers| layers.kind + 1).max().unwrap_or(0);
        let tiles = (0..kinds).map(|_| room(tiles, what, knob));
        Ok(Plan { decode: decode.collect::<Result<_>>()?, tiles: tiles.collect::<Result<_>>()? })
    }

    /// Maximum number of prefill tiles for a kind of layers of a batch with `tokens` tokens and `rows` rows.
    pub fn tiles_max(tokens: usize, rows: usize) -> usize {
        // A row of n tokens takes at most n / TILE_QUERIES_MIN + 1 tiles.
        tokens / TILE_QUERIES_MIN + rows
    }

    /// The layers it was made for.
    pub fn layers(&self) -> Vec<LayerWindow> {
        self.decode.iter().map(|plan| plan.layers).collect()
    }

    /// Whether rows share keys in any of its layers.
    pub fn shares_keys(&self) -> bool {
        self.decode.iter().any(|plan| !plan.shared.units.is_empty())
    }

    /// Plans the attention of `batch`, which is cut by the geometry of each kind of layers. Rows without a token or a context, which pad a
    /// batch, take no part.
    pub fn make(&mut self, batch: &Batch, geometry: impl Fn(usize) -> Geometry) {
        for plan in &mut self.decode {
            plan.make(batch, &geometry(plan.layers.kind));
        }
        for (kind, tiles) in self.tiles.iter_mut().enumerate() {
            make_tiles(tiles, batch, geometry(kind).tile_queries);
        }
    }
}

/// The tiles of at most `queries` queries.
fn make_tiles(tiles: &mut Vec<PrefillTile>, batch: &Batch, queries: usize) {
    tiles.clear();
    for row in 0..batch.rows() {
        let (new, context_len) = (batch.row(row), batch.context_lens[row]);
        if context_len == 0 || new.len() < 2 {
            continue;
        }
        for first in (0..new.len()).step_by(queries) {
            tiles.push(PrefillTile {
                token: (new.start + first) as u32,
                row: row as u32,
                tokens: (new.len() - first).min(queries) as u32,
                position: context_len - (new.len() - first) as u32,
            });
        }
    }
    tiles.sort_unstable_by_key(|tile| std::cmp::Reverse((tile.position + tile.tokens, tile.token)));
}

impl DecodePlan {
    fn make(&mut self, batch: &Batch, geometry: &Geometry) {
        self.rows.clear();
        self.ctas.clear();
        self.shared.make(batch, self.layers.window, geometry);
        let mut tiles_before = 0;
        for row in 0..batch.rows() {
            let (new, context_len) = (batch.row(row), batch.context_lens[row]);
            if context_len == 0 || new.len() != 1 {
                continue;
            }
            let window_start =
                self.layers.window.map_or(0, |window| (context_len as usize).saturating_sub(window)) as u32;
            let window_start = window_start.max(self.shared.tokens(row));
            self.shared.push_row(row);
            self.rows.push(DecodeRow {
                token: new.start as u32,
                row: row as u32,
                context_len,
                window_start,
                tiles_before,
            });
            tiles_before += tiles_of(context_len, window_start, geometry).len() as u32;
        }
        self.rows.push(DecodeRow { token: 0, row: 0, context_len: 0, window_start: 0, tiles_before });
        self.split(tiles_before as u64 * geometry.kv_heads as u64, geometry);
    }

    /// Where no part ends with its (row, KV head), CTA `c` of `used` begins at tile `c * all / used` of the line: the kernels know this rule, too.
    fn split(&mut self, all: u64, geometry: &Geometry) {
        let mut entry = 0;
        if let Cuts::WholeIfFaster(costs) = geometry.cuts
            && self.cut_whole(all, geometry, costs)
        {
            let mut begin = 0;
            for cta in 0..self.whole.len() {
                let end = begin + u64::from(self.whole[cta]);
                self.push_part(begin, end, &mut entry, geometry);
                begin = end;
            }
            return;
        }
        let pairs = (self.rows.len() - 1) as u64 * geometry.kv_heads as u64;
        let parts = geometry.merged_heads.map_or(u64::MAX, |heads| parts_max(all, pairs, geometry.tile_tokens, heads));
        let used = all.min(geometry.ctas as u64).min(parts);
        for cta in 0..used {
            self.push_part(cta * all / used, (cta + 1) * all / used, &mut entry, geometry);
        }
    }

    /// `entry`: the row in which the part before begins.
    fn push_part(&mut self, begin: u64, end: u64, entry: &mut usize, geometry: &Geometry) {
        while self.rows[*entry + 1].tiles_before as u64 * geometry.kv_heads as u64 <= begin {
            *entry += 1;
        }
        let DecodeRow { token, row, context_len, window_start, tiles_before } = self.rows[*entry];
        let row_tiles = tiles_of(context_len, window_start, geometry);
        let (tiles, within) = (row_tiles.len() as u64, begin - u64::from(tiles_before) * geometry.kv_heads as u64);
        self.ctas.push(DecodeCta {
            entry: *entry as u32,
            kv_head: (within / tiles) as u32,
            tile: row_tiles.start + (within % tiles) as u32,
            tiles: (end - begin) as u32,
            token,
            row,
            context_len,
            window_start,
            tiles_before,
        });
    }

    /// Whether parts that end with a (row, KV head) are faster than equal ones. Then `whole` has them, the longest as short as can be.
    fn cut_whole(&mut self, all: u64, geometry: &Geometry, costs: Costs) -> bool {
        let ctas = geometry.ctas as u64;
        let of_ctas = |[part, of]: [u64; 2]| ctas * part / of;
        let busy = of_ctas(costs.busy).max(1);
        let longest = u64::from(tiles_of_rows(&self.rows).max().unwrap_or(0));
        let merge = of_ctas(if all >= longest * ctas { costs.merge } else { costs.merge_many });
        let most = all + merge;
        // Equal parts split nothing that has one tile.
        if longest <= 1 || busy * longest > most {
            return false;
        }
        let mut low = longest.max(all.div_ceil(ctas));
        let mut high = low + longest;
        // With longer parts CTAs without a tile cost more than merging.
        if let Some(without) = (merge * costs.idle[1]).checked_div(costs.idle[0]) {
            high = high.min((all + without) / ctas);
            if high < low || !self.fill_whole(high as u32, geometry) {
                return false;
            }
        }
        while low < high {
            let middle = low.midpoint(high);
            if self.fill_whole(middle as u32, geometry) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let idle = (ctas * low).saturating_sub(all) * costs.idle[0] / costs.idle[1];
        self.fill_whole(low as u32, geometry) && whole_time(&mut self.whole, busy, low) + idle <= most && {
            // The order was lost.
            self.fill_whole(low as u32, geometry)
        }
    }

    /// Fills `whole` with parts of at most `limit` tiles, which is no less than a (row, KV head) has. False where they are too many.
    fn fill_whole(&mut self, limit: u32, geometry: &Geometry) -> bool {
        self.whole.clear();
        let mut part = 0;
        for tiles in tiles_of_rows(&self.rows) {
            let mut heads = geometry.kv_heads as u32;
            while heads > 0 {
                let fit = ((limit - part) / tiles).min(heads);
                if fit == 0 {
                    if self.whole.len() + 1 == geometry.ctas {
                        return false;
                    }
                    self.whole.push(part);
                    part = 0;
                }
                part += fit * tiles;
                heads -= fit;
            }
        }
        self.whole.push(part);
        true
    }
}

/// How long parts take, the longest of which has `longest` tiles: tile `k` of each is read as fast as all CTAs read while
/// at least `busy` of them have one.
fn whole_time(parts: &mut [u32], busy: u64, longest: u64) -> u64 {
    let busy_index = busy as usize - 1;
    let common = match busy_index < parts.len() {
        true => *parts.select_nth_unstable_by_key(busy_index, |&tiles| std::cmp::Reverse(tiles)).1,
        false => 0,
    };
    parts.iter().map(|&tiles| u64::from(tiles.min(common))).sum::<u64>() + busy * (longest - u64::from(common))
}

/// Parts in which `pairs` (row, KV head)s with `tiles` tiles together take the least time. One thread block reads what all parts of a (row, KV head) leave.
/// A part leaves the bytes of `heads` keys and values. So `tokens / p + p * heads` is least for p = sqrt(tokens / heads) parts.
fn parts_max(tiles: u64, pairs: u64, tile_tokens: usize, heads: usize) -> u64 {
    let tokens = tiles * tile_tokens as u64 / pairs.max(1);
    pairs * (tokens / heads as u64).isqrt().max(1)
}

/// How many tiles each of `rows` has, the last of which is the end mark.
fn tiles_of_rows(rows: &[DecodeRow]) -> impl Iterator<Item = u32> {
    rows.windows(2).map(|pair| pair[1].tiles_before - pair[0].tiles_before)
}

/// The tiles of a row, counted from its position 0, that hold what it attends to.
fn tiles_of(context_len: u32, window_start: u32, geometry: &Geometry) -> std::ops::Range<u32> {
    let tile_tokens = geometry.tile_tokens as u32;
    window_start / tile_tokens..context_len.div_ceil(tile_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::attention::{self, units};

    const GEOMETRY: Geometry = Geometry {
        kv_heads: 8,
        tile_tokens: 64,
        tile_queries: 128,
        ctas: 264,
        cuts: Cuts::Equal,
        merged_heads: None,
        sharing: None,
    };
    /// As `attention_units.cu` has it on an H200.
    const WORKERS: Geometry = Geometry { ctas: 1056, cuts: Cuts::WholeIfFaster(units::COSTS), ..GEOMETRY };
    /// As `attention_decode.cu` has it there.
    const CTAS: Geometry = Geometry { cuts: Cuts::WholeIfFaster(attention::COSTS), ..GEOMETRY };

    struct Case {
        name: &'static str,
        /// New tokens and context of each row.
        rows: &'static [(usize, u32)],
    }

    const CASES: &[Case] = &[
        Case { name: "nothing", rows: &[] },
        Case { name: "one token of one token", rows: &[(1, 1)] },
        Case { name: "one row at a tile's border", rows: &[(1, 64)] },
        Case { name: "one row past a tile's border", rows: &[(1, 65)] },
        Case { name: "ragged decode", rows: &[(1, 3), (1, 1000), (1, 64), (1, 4096), (1, 17)] },
        Case { name: "padded decode", rows: &[(1, 500), (1, 0), (1, 0)] },
        Case { name: "prefill", rows: &[(100, 100), (128, 128), (129, 129), (1000, 1000)] },
        Case { name: "mixed with a chunk", rows: &[(1, 700), (300, 812), (1, 2), (2, 2)] },
    ];

    fn batch(rows: &[(usize, u32)]) -> Batch {
        let mut batch = Batch { row_starts: vec![0], table_width: 1, ..Batch::default() };
        for &(new, context) in rows {
            batch.row_starts.push(batch.row_starts.last().unwrap() + new as u32);
            batch.context_lens.push(context);
        }
        batch
    }

    /// Within a tile, a tile and one token more or less, and longer than some contexts.
    const WINDOWS: [Option<usize>; 7] = [None, Some(1), Some(17), Some(63), Some(64), Some(65), Some(600)];

    fn planned(case: &Case, geometry: &Geometry) -> Plan {
        let layers = WINDOWS.map(|window| LayerWindow { kind: 0, window });
        let mut plan = Plan::new(&layers, case.rows.len(), geometry.ctas, 100).unwrap();
        plan.make(&batch(case.rows), |_| *geometry);
        plan
    }

    /// For all windows, with equal parts and for workers.
    fn planned_decodes() -> impl Iterator<Item = (&'static Case, DecodePlan)> {
        let plans =
            |case| [GEOMETRY, WORKERS, CTAS].into_iter().flat_map(move |geometry| planned(case, &geometry).decode);
        CASES.iter().flat_map(move |case| plans(case).map(move |plan| (case, plan)))
    }

    #[test]
    fn every_tile_of_keys_within_the_window_belongs_to_one_cta() {
        for (case, plan) in planned_decodes() {
            let tiles = |row: &DecodeRow| {
                let first = plan.layers.window.map_or(0, |window| (row.context_len as usize).saturating_sub(window));
                first as u32 / 64..row.context_len.div_ceil(64)
            };
            let mut expected = Vec::new();
            for (entry, row) in plan.rows[..plan.rows.len() - 1].iter().enumerate() {
                for head in 0..GEOMETRY.kv_heads as u32 {
                    expected.extend(tiles(row).map(|tile| (entry as u32, head, tile)));
                }
            }
            let mut found = Vec::new();
            for cta in &plan.ctas {
                let (mut entry, mut head, mut tile) = (cta.entry, cta.kv_head, cta.tile);
                for _ in 0..cta.tiles {
                    found.push((entry, head, tile));
                    tile += 1;
                    if tile == tiles(&plan.rows[entry as usize]).end {
                        head += 1;
                        if head == GEOMETRY.kv_heads as u32 {
                            (head, entry) = (0, entry + 1);
                        }
                        tile = tiles(&plan.rows[entry as usize]).start;
                    }
                }
            }
            assert_eq!(found, expected, "{}, a window of {:?}", case.name, plan.layers.window);
        }
    }

    #[test]
    fn rows_whose_parts_are_large_have_few_of_them() {
        // Tokens of a row, rows and query heads of the KV head; parts.
        for (tokens, rows, heads, parts) in
            [(512, 1, 16, 5), (32_768, 1, 16, 45), (512, 8, 16, 40), (16, 1, 16, 1), (16, 3, 32, 3), (0, 0, 4, 0)]
        {
            assert_eq!(parts_max(tokens / 16 * rows, rows, 16, heads), parts, "{rows} rows of {tokens}, {heads} heads");
        }
        let geometry = Geometry { kv_heads: 1, tile_tokens: 16, merged_heads: Some(16), ..GEOMETRY };
        let case = Case { name: "one long row", rows: &[(1, 512)] };
        let used = |geometry: &Geometry| planned(&case, geometry).decode[0].ctas.len();
        assert_eq!((used(&geometry), used(&Geometry { merged_heads: None, ..geometry })), (5, 32));
    }

    #[test]
    fn splits_differ_by_one_tile_at_most() {
        let of_case = |case| planned(case, &GEOMETRY).decode.into_iter().map(move |plan| (case, plan));
        for (case, plan) in CASES.iter().flat_map(of_case) {
            let tiles = plan.ctas.iter().map(|cta| cta.tiles);
            if let (Some(least), Some(most)) = (tiles.clone().min(), tiles.max()) {
                let what = format!("{}, a window of {:?}", case.name, plan.layers.window);
                assert!(least > 0 && most - least <= 1, "{what}: {least} to {most}");
            }
        }
    }

    #[test]
    fn heads_stay_whole_where_that_was_measured_to_be_faster() {
        // Rows, tokens of each at least and at most, and whether heads stay whole for workers and for CTAs.
        let cases = [
            (256, [555, 555], true, false),
            (192, [555, 555], true, false),
            (144, [555, 555], false, false),
            (128, [555, 555], true, false),
            (96, [555, 555], true, false),
            (64, [555, 555], true, true),
            (48, [555, 555], false, false),
            (32, [555, 555], false, true),
            (24, [555, 555], false, true),
            (1, [555, 555], false, false),
            (256, [256, 256], true, false),
            (192, [256, 256], true, true),
            (128, [256, 256], true, true),
            (64, [256, 256], true, true),
            (16, [256, 256], false, true),
            (256, [300, 800], false, false),
            (192, [300, 800], false, false),
            (64, [300, 800], false, false),
            (32, [300, 800], false, false),
            (16, [100, 8000], false, false),
        ];
        for (rows, [least, most], for_workers, for_ctas) in cases {
            let context = |row: usize| least + (row * 7919 % rows * (most - least) as usize / rows) as u32;
            let lengths: Vec<_> = (0..rows).map(|row| (1, context(row))).collect();
            for (geometry, is_whole) in [(WORKERS, for_workers), (CTAS, for_ctas)] {
                let mut plan = Plan::new(&[LayerWindow::default()], rows, geometry.ctas, 0).unwrap();
                plan.make(&batch(&lengths), |_| geometry);
                let ctas = &plan.decode[0].ctas;
                let what = format!("{rows} rows of {least} to {most} for {}", geometry.ctas);
                assert_eq!(ctas.iter().all(|cta| cta.tile == 0), is_whole, "{what}");
                let longest = most.div_ceil(64);
                let even = ctas.iter().map(|cta| cta.tiles).sum::<u32>().div_ceil(geometry.ctas as u32);
                assert!(ctas.len() <= geometry.ctas && ctas.iter().all(|cta| cta.tiles < even + longest), "{what}");
            }
        }
    }

    #[test]
    fn rows_of_one_tile_take_all_workers() {
        // 133 rows of 8 KV heads are 1,064 tiles.
        let rows = vec![(1, 64); 133];
        let mut plan = Plan::new(&[LayerWindow::default()], rows.len(), WORKERS.ctas, 0).unwrap();
        plan.make(&batch(&rows), |_| WORKERS);
        assert_eq!(plan.decode[0].ctas.len(), WORKERS.ctas);
    }

    #[test]
    fn every_query_of_a_prefill_belongs_to_one_tile_with_its_position() {
        for case in CASES {
            let (plan, batch) = (planned(case, &GEOMETRY), batch(case.rows));
            let mut found: Vec<(u32, u32)> = Vec::new();
            for tile in &plan.tiles[0] {
                assert!(tile.tokens as usize <= GEOMETRY.tile_queries);
                found.extend((0..tile.tokens).map(|i| (tile.token + i, tile.position + i)));
            }
            found.sort_unstable();
            let mut expected = Vec::new();
            for (row, &(new, context)) in case.rows.iter().enumerate().filter(|(_, r)| r.0 > 1) {
                expected.extend(batch.row(row).map(|t| (t as u32, context - (batch.row(row).end - t) as u32)));
                assert!(new > 1);
            }
            assert_eq!(found, expected, "{}", case.name);
            assert!(plan.tiles[0].len() <= Plan::tiles_max(batch.row_starts[batch.rows()] as usize, batch.rows()));
        }
    }
}
