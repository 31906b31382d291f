//! The experts of a layer on the device, and which of them compute a token.
//!
//! The matrices of all experts lie one after the other, so that a kernel finds one by its number. A slot is a token and one of its experts, numbered token
//! by token; its row between the products has that number. What a kernel needs to know of the choice stays on the device, so that passes can be recorded.

use super::combine;
use super::count_experts;
use super::device::Device;
use super::driver::{Address, Context, Memory, Pinned};
use super::expert_linear;
use super::gemm::quantized::weights::COLUMNS;
use super::join_slots;
use super::matrix::{Loader, Matrix, Rows};
use super::route;
use crate::{ExpertsShape, HostMatrix, Router, RoutesShape};
use base::error::{Error, Result};
use formats::DType;
use std::cell::Cell;
use std::sync::Arc;

/// Kernels that only models with experts need: loaded when the first routes are made.
pub struct Kernels {
    pub route: route::Kernels,
    pub expert_linear: expert_linear::Kernels,
    pub combine: combine::Kernels,
    pub join_slots: join_slots::Kernels,
    pub count: count_experts::Kernels,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels {
            route: route::Kernels::new(device)?,
            expert_linear: expert_linear::Kernels::new(device)?,
            combine: combine::Kernels::new(device)?,
            join_slots: join_slots::Kernels::new(device)?,
            count: count_experts::Kernels::new(device)?,
        })
    }
}

/// Weights of a linear layer for each expert. `[experts, outputs, inputs]`
pub struct Experts {
    /// One below the other.
    matrix: Matrix,
    shape: ExpertsShape,
}

impl Experts {
    /// Brings them to the device.
    ///
    /// # Panics
    ///
    /// If there is none or their shapes differ: the loader checks them against config.json.
    pub(super) fn new(
        context: &Arc<Context>,
        loader: &mut Loader,
        (first, experts): (usize, &[Vec<HostMatrix>]),
        dtype: DType,
    ) -> Result<Experts> {
        let parts: Vec<HostMatrix> = experts.iter().flatten().cloned().collect();
        let outputs = |parts: &Vec<HostMatrix>| parts.iter().map(|part| part.shape().0).sum::<usize>();
        let (rows, (_, inputs)) = (outputs(&experts[0]), parts[0].shape());
        assert!(experts.iter().all(|parts| outputs(parts) == rows));
        let matrix = Matrix::new(context, loader, &parts, dtype)?;
        // A kernel finds an expert by its number only where all are held alike, and codes lie in octets of rows.
        let is_whole = |part: &HostMatrix| part.shape().0.is_multiple_of(COLUMNS);
        if matrix.plain().is_none() && !(matrix.is_one_run() && parts.iter().all(is_whole)) {
            let (coding, (rows, _)) = (parts[0].coding(), parts[0].shape());
            let what = format!(
                "experts of {rows} rows in {coding} on CUDA: all must have one coding and a multiple of {COLUMNS} rows; choose device CPU"
            );
            return Err(Error::Unsupported { what });
        }
        Ok(Experts { matrix, shape: ExpertsShape { first, experts: experts.len(), outputs: rows, inputs } })
    }

    /// Their shape.
    pub(super) fn shape(&self) -> ExpertsShape {
        self.shape
    }

    /// Where the first one begins.
    pub(super) fn weights(&self, dtype: DType) -> Rows {
        self.matrix.runs(0..self.matrix.rows(), dtype).next().expect("one run").1
    }
}

/// Which experts compute each token.
pub struct Routes {
    shape: RoutesShape,
    /// Tokens that there is room for.
    capacity: usize,
    /// What is at [`RouteAddresses`].
    memory: Memory,
    addresses: RouteAddresses,
    /// Whether a product of few tokens with plain weights was launched since the choice.
    has_product: Cell<bool>,
}

/// Where kernels find what they know of a choice.
#[derive(Clone, Copy)]
pub struct RouteAddresses {
    /// `[slots]`
    pub experts: Address,
    /// `[slots]`
    pub weights: Address,
    /// Slots, grouped by expert. `[slots]`
    pub order: Address,
    /// Slots that are computed together: expert, first of `order`, how many. `[tiles, 4]`
    pub tiles: Address,
    /// One number.
    pub tile_count: Address,
}

/// How many slots are computed together, at most: tiles of `kernels/expert_linear.cu`.
pub const TILE_ROWS: [usize; 3] = [16, 64, 128];

impl Routes {
    /// Room for up to `tokens` tokens.
    pub(super) fn new(context: &Arc<Context>, router: &Router, tokens: usize) -> Result<Routes> {
        let Router { experts, chosen, .. } = *router;
        let slots = tokens * chosen;
        // Tiles begin at a multiple of 16 bytes.
        let of_slots = (slots * 4).next_multiple_of(16);
        let of_tiles = tiles(slots, experts, TILE_ROWS[0]) * 16;
        let bytes = 3 * of_slots + of_tiles + 4;
        let memory = Memory::zeroed(context, bytes, "the routes of experts on the device", "max_batched_tokens")?;
        let at = |bytes: usize| memory.address() + bytes as u64;
        let addresses = RouteAddresses {
            experts: at(0),
            weights: at(of_slots),
            order: at(2 * of_slots),
            tiles: at(3 * of_slots),
            tile_count: at(3 * of_slots + of_tiles),
        };
        let shape = RoutesShape { experts, chosen, tokens: 0 };
        Ok(Routes { shape, capacity: tokens, memory, addresses, has_product: Cell::new(false) })
    }

    /// Its sizes.
    pub(super) fn shape(&self) -> RoutesShape {
        self.shape
    }

    /// Where all is.
    pub(super) fn addresses(&self) -> RouteAddresses {
        self.addresses
    }

    /// The same for `tokens` tokens, to be written.
    pub(super) fn begin(&mut self, tokens: usize) -> RouteAddresses {
        assert!(tokens <= self.capacity, "{tokens} tokens in routes made for {}", self.capacity);
        self.shape.tokens = tokens;
        self.has_product.set(false);
        self.addresses
    }

    /// Notes that a product of few tokens with plain weights is launched. True of all but the first one: what follows that one begins when it has seen the
    /// choice.
    pub(super) fn note_product(&self) -> bool {
        self.has_product.replace(true)
    }

    /// Slots of a tile for the tokens of this pass. All give the same bits.
    pub(super) fn tile_rows(&self) -> usize {
        tile_rows(self.shape)
    }

    /// Begins a copy of the experts of all slots to `experts` of pinned memory and of their weights to `weights`, for a host function that is launched
    /// behind it.
    pub(super) fn download_for_host(&self, to: &Pinned, [experts, weights]: [usize; 2]) -> Result<()> {
        let bytes = 4 * self.shape.slots();
        for (at, address) in [(experts, self.addresses.experts), (weights, self.addresses.weights)] {
            to.download_for_host(at, &self.memory, (address - self.memory.address()) as usize, bytes)?;
        }
        Ok(())
    }

    /// Experts and weights of all slots. `[tokens, chosen]`
    pub(super) fn choices(&self) -> Result<(Vec<u32>, Vec<f32>)> {
        let slots = self.shape.slots();
        let read = |address: Address| -> Result<Vec<[u8; 4]>> {
            let mut bytes = vec![0; slots * 4];
            self.memory.read((address - self.memory.address()) as usize, &mut bytes)?;
            Ok(bytes.as_chunks::<4>().0.to_vec())
        };
        let experts = read(self.addresses.experts)?.into_iter().map(u32::from_le_bytes).collect();
        Ok((experts, read(self.addresses.weights)?.into_iter().map(f32::from_le_bytes).collect()))
    }
}

/// Slots of a tile of such routes.
pub(super) fn tile_rows(shape: RoutesShape) -> usize {
    match shape.slots() / shape.experts {
        0..=16 => TILE_ROWS[0],
        17..=128 => TILE_ROWS[1],
        _ => TILE_ROWS[2],
    }
}

/// Tiles that any choice for the tokens of such routes has, at most.
pub(super) fn tiles_of(shape: RoutesShape) -> usize {
    tiles(shape.slots(), shape.experts, tile_rows(shape))
}

/// Each expert with slots may have one tile that is not full.
fn tiles(slots: usize, experts: usize, rows: usize) -> usize {
    slots / rows + experts.min(slots)
}

#[cfg(test)]
mod tests {
    use super::tiles;

    #[test]
    fn the_tiles_of_every_choice_have_room() {
        for (slots, experts, rows) in [(5, 3, 2), (1, 128, 16), (64, 4, 16), (100, 7, 16), (8192, 128, 64)] {
            // The most tiles have experts with one slot more than whole tiles.
            let most = (1..=experts.min(slots)).map(|busy| busy + (slots - busy) / rows).max().unwrap();
            assert!(most <= tiles(slots, experts, rows), "{slots} slots, {experts} experts");
        }
    }
}
