//! What is a kernel of a linear layer?

/// Numbers along `k` that a kernel takes at a time.
pub const STEP: usize = 32;
/// Rows of `x` in a tile, at most.
pub const TILE_ROWS: usize = 4;
/// Columns of a tile, at most.
pub const TILE_COLUMNS: usize = 8;

/// How many panels make a wide one, unless an instruction set has a number of its own.
pub const WIDE: usize = 4;

/// The kernels of one instruction set for one coding of weights.
pub struct Kernels {
    /// How they want `x`.
    pub order: Order,
    /// Numbers along `k` that are summed in registers before the sum goes to `out`: a multiple of [`STEP`]. A tile of `x`
    /// of that length stays in the first-level cache.
    pub slice: usize,
    /// Columns whose weights are fetched ahead together: a multiple of each tile's columns.
    pub panel: usize,
    /// Columns of a panel that many rows are multiplied with, a multiple of `panel`. A slice of these columns stays in the second-level cache, beside a tile of `x`.
    pub wide_panel: usize,
    /// How far ahead of their use one row asks for weights, if it takes columns one after the other: a core then reads ahead by itself.
    pub row_ahead: Option<usize>,
    /// For tiles of 1, 2, 3, 4 rows: columns of such a tile, and its kernel.
    pub wide: [(usize, Kernel); TILE_ROWS],
    /// The same for tiles of one column, which are left over.
    pub narrow: [Kernel; TILE_ROWS],
}

/// Sums the products of a tile.
///
/// # Safety
///
/// The machine has the kernel's instruction set, and the pointers of the tile lead to what it says.
pub type Kernel = unsafe fn(&Tile, &mut Sums);

/// `sums[row * columns + column]`
pub type Sums = [f32; TILE_ROWS * TILE_COLUMNS];

/// A few rows of `x` against a few columns of the result, over a slice of `k`.
pub struct Tile {
    /// `[steps][rows][STEP]` in the kernels' order, one step more where there is a tail.
    pub x: *const u8,
    /// The slice of the first column's weights; the next column's lie `row_bytes` further on.
    pub weight: *const u8,
    /// Bytes from one column's weights to the next one's.
    pub row_bytes: usize,
    /// Whole steps of the slice.
    pub steps: usize,
    /// Numbers of the slice beyond whole steps.
    pub tail: usize,
    /// Whether the kernel brings weights into the cache meanwhile.
    pub fetches: bool,
    /// Which ones: in each step as many as the step reads. May lead anywhere.
    pub ahead: *const u8,
    /// Bytes between what is fetched in a step for two columns.
    pub ahead_stride: usize,
    /// Bytes between what is fetched in two steps.
    pub ahead_step: usize,
    /// Whether the product has no other row.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub is_only_row: bool,
}

/// How a kernel wants the [`STEP`] numbers of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they are.
    Straight,
    /// In groups of twice that number: the even ones, then the odd ones. That is how two bf16 numbers in 32 bits fall apart.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    EvenOdd(usize),
    /// Rounded to bf16, as they are.
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
    Bf16,
}

impl Order {
    /// Bytes of a number of `x`.
    pub fn bytes(self) -> usize {
        match self {
            Order::Straight | Order::EvenOdd(_) => 4,
            Order::Bf16 => 2,
        }
    }
}

/// Fills in [`Kernels::wide`] and [`Kernels::narrow`] from one generic kernel and the columns for 1, 2, 3 and 4 rows.
macro_rules! table {
    ($order:expr, $slice:expr, $panel:literal, $tile:ident<$weight:ty>, [$c1:literal, $c2:literal, $c3:literal, $c4:literal]) => {
        Kernels {
            order: {
                assert!($panel % $c1 == 0 && $panel % $c2 == 0 && $panel % $c3 == 0 && $panel % $c4 == 0);
                $order
            },
            slice: $slice,
            panel: $panel,
            wide_panel: $panel * $crate::cpu::linear::kernels::WIDE,
            row_ahead: None,
            wide: [
                ($c1, $tile::<$weight, 1, $c1>),
                ($c2, $tile::<$weight, 2, $c2>),
                ($c3, $tile::<$weight, 3, $c3>),
                ($c4, $tile::<$weight, 4, $c4>),
            ],
            narrow: [$tile::<$weight, 1, 1>, $tile::<$weight, 2, 1>, $tile::<$weight, 3, 1>, $tile::<$weight, 4, 1>],
        }
    };
}
pub(super) use table;

/// Copies the tails of `C` columns, zeros behind them, so that a kernel can take them for a whole step.
///
/// # Safety
///
/// `tail` numbers of `bytes` bytes can be read at `weight` and at the same place of each further column.
pub unsafe fn padded_tails<const C: usize>(
    weight: *const u8,
    row_bytes: usize,
    tail: usize,
    bytes: usize,
) -> [[u8; STEP * 4]; C] {
    let mut tails = [[0; STEP * 4]; C];
    for (column, padded) in tails.iter_mut().enumerate() {
        // SAFETY: the caller says that they can be read, and a tail is shorter than a step.
        unsafe {
            std::ptr::copy_nonoverlapping(weight.add(column * row_bytes), padded.as_mut_ptr(), tail * bytes);
        }
    }
    tails
}
