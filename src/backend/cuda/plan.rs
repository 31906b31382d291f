//! Cuts the attention of a step into equal stretches of work.
//!
//! Rows that bring one token go to `attention_decode.cu`: their keys form one line of tiles, row after row and KV head
//! after KV head, which is cut into as many stretches as there are workers (thread blocks). Rows that bring several go to
//! `attention_prefill.cu`, one tile of queries a thread block. The plan is staged with the batch, so that a graph
//! that was captured once reads a new plan in every step.

use super::params::params;
use crate::batch::Batch;

params! {
    /// A row with one new token.
    DecodeRow { token: u32, row: u32, context_len: u32, tiles_before: u32 }
}

params! {
    /// Where a worker begins on the line of tiles, how far it goes, and a copy of the row it begins in.
    DecodeWorker {
        entry: u32,
        kv_head: u32,
        tile: u32,
        tiles: u32,
        token: u32,
        row: u32,
        context_len: u32,
        tiles_before: u32,
    }
}

params! {
    /// Queries that one thread block takes, all of one row.
    PrefillTile { token: u32, row: u32, tokens: u32, position: u32 }
}

/// What the cuts depend on besides the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Heads that keys and values have.
    pub kv_heads: usize,
    /// Tokens of a decode tile.
    pub tile_tokens: usize,
    /// Queries of a prefill tile.
    pub tile_queries: usize,
    /// Decode workers.
    pub workers: usize,
}

/// The attention of one step.
#[derive(Debug, Default)]
pub struct Plan {
    /// Rows with one new token, and an end mark that knows the tiles of all.
    pub rows: Vec<DecodeRow>,
    /// Stretches of the line, none of them empty.
    pub workers: Vec<DecodeWorker>,
    /// Tiles of rows with several new tokens, the longest contexts first so that no long one comes last.
    pub tiles: Vec<PrefillTile>,
}

impl Plan {
    /// An empty plan that grows to these sizes without allocating.
    pub fn with_capacity(rows: usize, workers: usize, tiles: usize) -> Plan {
        Plan {
            rows: Vec::with_capacity(rows + 1),
            workers: Vec::with_capacity(workers),
            tiles: Vec::with_capacity(tiles),
        }
    }

    /// Prefill tiles that a batch of so many tokens and rows can need.
    pub fn tiles_max(tokens: usize, rows: usize) -> usize {
        // A row of n tokens takes at most n / 64 + 1 tiles.
        tokens / 64 + rows
    }

    /// Plans the attention of `batch`. Rows without a token or a context, which pad a batch, take no part.
    pub fn make(&mut self, batch: &Batch, geometry: &Geometry) {
        self.rows.clear();
        self.workers.clear();
        self.tiles.clear();
        let mut tiles_before = 0;
        for row in 0..batch.rows() {
            let (new, context_len) = (batch.row(row), batch.context_lens[row]);
            match new.len() {
                _ if context_len == 0 => {}
                0 => {}
                1 => {
                    self.rows.push(DecodeRow { token: new.start as u32, row: row as u32, context_len, tiles_before });
                    tiles_before += context_len.div_ceil(geometry.tile_tokens as u32);
                }
                tokens => {
                    for first in (0..tokens).step_by(geometry.tile_queries) {
                        self.tiles.push(PrefillTile {
                            token: (new.start + first) as u32,
                            row: row as u32,
                            tokens: (tokens - first).min(geometry.tile_queries) as u32,
                            position: context_len - (tokens - first) as u32,
                        });
                    }
                }
            }
        }
        self.rows.push(DecodeRow { token: 0, row: 0, context_len: 0, tiles_before });
        self.tiles.sort_unstable_by_key(|tile| std::cmp::Reverse((tile.position + tile.tokens, tile.token)));
        self.cut(tiles_before as u64 * geometry.kv_heads as u64, geometry);
    }

    /// Worker `w` of `used` begins at tile `w * all / used`: the kernel knows this rule, too.
    fn cut(&mut self, all: u64, geometry: &Geometry) {
        let used = all.min(geometry.workers as u64);
        let mut entry = 0;
        for worker in 0..used {
            let (begin, end) = (worker * all / used, (worker + 1) * all / used);
            while self.rows[entry + 1].tiles_before as u64 * geometry.kv_heads as u64 <= begin {
                entry += 1;
            }
            let DecodeRow { token, row, context_len, tiles_before } = self.rows[entry];
            let before = u64::from(tiles_before);
            let tiles = u64::from(self.rows[entry + 1].tiles_before) - before;
            let within = begin - before * geometry.kv_heads as u64;
            self.workers.push(DecodeWorker {
                entry: entry as u32,
                kv_head: (within / tiles) as u32,
                tile: (within % tiles) as u32,
                tiles: (end - begin) as u32,
                token,
                row,
                context_len,
                tiles_before,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { kv_heads: 8, tile_tokens: 64, tile_queries: 128, workers: 264 };

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

    #[test]
    fn every_tile_of_keys_belongs_to_one_worker() {
        for case in CASES {
            let mut plan = Plan::default();
            plan.make(&batch(case.rows), &GEOMETRY);
            let mut expected = Vec::new();
            for (entry, row) in plan.rows[..plan.rows.len() - 1].iter().enumerate() {
                for head in 0..GEOMETRY.kv_heads as u32 {
                    expected.extend((0..row.context_len.div_ceil(64)).map(|tile| (entry as u32, head, tile)));
                }
            }
            let mut found = Vec::new();
            for worker in &plan.workers {
                let (mut entry, mut head, mut tile) = (worker.entry, worker.kv_head, worker.tile);
                for _ in 0..worker.tiles {
                    found.push((entry, head, tile));
                    tile += 1;
                    if tile == plan.rows[entry as usize].context_len.div_ceil(64) {
                        (tile, head) = (0, head + 1);
                        if head == GEOMETRY.kv_heads as u32 {
                            (head, entry) = (0, entry + 1);
                        }
                    }
                }
            }
            assert_eq!(found, expected, "{}", case.name);
        }
    }

    #[test]
    fn workers_differ_by_one_tile_at_most() {
        for case in CASES {
            let mut plan = Plan::default();
            plan.make(&batch(case.rows), &GEOMETRY);
            let tiles = plan.workers.iter().map(|w| w.tiles);
            if let (Some(least), Some(most)) = (tiles.clone().min(), tiles.max()) {
                assert!(least > 0 && most - least <= 1, "{}: {least} to {most}", case.name);
            }
        }
    }

    #[test]
    fn every_query_of_a_prefill_belongs_to_one_tile_with_its_position() {
        for case in CASES {
            let (mut plan, batch) = (Plan::default(), batch(case.rows));
            plan.make(&batch, &GEOMETRY);
            let mut found: Vec<(u32, u32)> = Vec::new();
            for tile in &plan.tiles {
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
            assert!(plan.tiles.len() <= Plan::tiles_max(batch.row_starts[batch.rows()] as usize, batch.rows()));
        }
    }
}
