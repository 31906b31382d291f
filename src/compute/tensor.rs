//! Rows of numbers on a device.

/// A matrix of activations: one row per token, or one per sample. `[rows, cols]`
///
/// Its memory is sized for `capacity` rows when the engine opens; `rows` says how many are in use in this pass.
pub struct Tensor<S> {
    rows: usize,
    cols: usize,
    capacity: usize,
    pub(crate) storage: S,
}

impl<S> Tensor<S> {
    pub(crate) fn new(storage: S, capacity: usize, cols: usize) -> Tensor<S> {
        Tensor { rows: 0, cols, capacity, storage }
    }

    /// Rows in use.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Rows that there is memory for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the rows in use. What they hold is not defined until an op writes them.
    ///
    /// # Panics
    ///
    /// If `rows` exceeds the capacity: the batch is larger than its limits.
    pub fn set_rows(&mut self, rows: usize) {
        assert!(rows <= self.capacity, "{rows} rows in a tensor made for {}", self.capacity);
        self.rows = rows;
    }

    /// Takes the numbers of its rows as rows of `cols` numbers.
    ///
    /// # Panics
    ///
    /// If the rows are no whole number of them.
    pub(crate) fn divide(&mut self, cols: usize) {
        assert!((self.rows * self.cols).is_multiple_of(cols) && (self.capacity * self.cols).is_multiple_of(cols));
        (self.rows, self.capacity) = (self.rows * self.cols / cols, self.capacity * self.cols / cols);
        self.cols = cols;
    }
}
