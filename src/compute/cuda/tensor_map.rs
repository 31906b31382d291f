//! Tensor maps: what the copy engine of compute capability 9.0 needs to know of a matrix to copy boxes of it to shared memory.

use super::driver::{Address, check};
use base::error::Result;
use cudarc::driver::sys;
use formats::DType;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Columns of a box: 128 bytes, the unit in which shared memory is swizzled.
pub const BOX_COLUMNS: usize = 64;

/// A tensor map, as kernels take it by value. Its twin is in `kernels/common/warpgroup.cuh`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct TensorMap {
    opaque: [u64; 16],
}

const _: () = assert!(size_of::<TensorMap>() == size_of::<sys::CUtensorMap>());

/// A matrix on the device, and the boxes in which it is copied.
#[derive(Clone, Copy, Debug)]
pub struct BoxedMatrix {
    /// Its first number, at a multiple of 16 bytes.
    pub at: Address,
    /// Its rows. Boxes read zeros beyond them.
    pub rows: usize,
    /// Its columns, a multiple of [`BOX_COLUMNS`].
    pub cols: usize,
    /// Numbers from row to row, a multiple of 8.
    pub stride: usize,
    /// Rows of a box, at most 256.
    pub box_rows: usize,
    /// [`BOX_COLUMNS`] of a box, which lie behind each other in shared memory.
    pub box_depth: usize,
    /// Type of its numbers.
    pub dtype: DType,
}

/// Rows of bytes on the device, and the boxes in which they are copied.
#[derive(Clone, Copy, Debug)]
pub struct BoxedBytes {
    /// The first byte, at a multiple of 16.
    pub at: Address,
    /// How many rows. Boxes read zeros beyond them.
    pub rows: usize,
    /// Bytes of a row, a multiple of 16. Rows follow each other without gaps; boxes read zeros beyond them.
    pub row_bytes: usize,
    /// Rows of a box, at most 256.
    pub box_rows: usize,
    /// Bytes of a row of a box, a multiple of 16 and at most 2,048.
    pub box_bytes: usize,
}

/// Results on the device, and the boxes in which they are stored.
#[derive(Clone, Copy, Debug)]
pub struct BoxedResults {
    /// The first number, at a multiple of 16 bytes.
    pub at: Address,
    /// Its rows. What boxes have beyond them and beyond the columns is not stored.
    pub rows: usize,
    /// Its columns.
    pub cols: usize,
    /// Numbers from row to row, a multiple of 8.
    pub stride: usize,
    /// Rows of a box, at most 256.
    pub box_rows: usize,
    /// Columns of a box: [`BOX_COLUMNS`] or half as many. Their bytes are the unit in which shared memory is swizzled.
    pub box_cols: usize,
    /// Type of its numbers.
    pub dtype: DType,
}

impl TensorMap {
    /// Describes a matrix. Runs on the host alone and allocates nothing.
    pub fn new(matrix: &BoxedMatrix) -> Result<TensorMap> {
        let bytes = matrix.dtype.bytes();
        let dimensions = [BOX_COLUMNS as u64, matrix.rows as u64, (matrix.cols / BOX_COLUMNS) as u64];
        let strides = [(matrix.stride * bytes) as u64, (BOX_COLUMNS * bytes) as u64];
        let sizes = [BOX_COLUMNS as u32, matrix.box_rows as u32, matrix.box_depth as u32];
        let swizzle = sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B;
        TensorMap::encode(matrix.at, number_type(matrix.dtype), dimensions, strides, sizes, swizzle)
    }

    /// The same of a matrix that is two halves of rows, one over the other: a box has eight rows of the first half, the same eight of the
    /// second, the next eight of the first, and so on. The rows are a multiple of 16.
    pub fn of_halves(matrix: &BoxedMatrix) -> Result<TensorMap> {
        const EIGHT: usize = 8;
        let (bytes, half) = (matrix.dtype.bytes(), matrix.rows / 2);
        let (row, chunk) = (matrix.stride * bytes, BOX_COLUMNS * bytes);
        let dimensions = [BOX_COLUMNS, EIGHT, 2, half / EIGHT, matrix.cols / BOX_COLUMNS].map(|size| size as u64);
        let strides = [row, half * row, EIGHT * row, chunk].map(|stride| stride as u64);
        let sizes = [BOX_COLUMNS, EIGHT, 2, matrix.box_rows / (2 * EIGHT), matrix.box_depth].map(|size| size as u32);
        let swizzle = sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B;
        TensorMap::encode(matrix.at, number_type(matrix.dtype), dimensions, strides, sizes, swizzle)
    }

    /// The same of results, from shared memory.
    pub fn of_results(results: &BoxedResults) -> Result<TensorMap> {
        let swizzle = match results.box_cols {
            BOX_COLUMNS => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        };
        let dimensions = [results.cols as u64, results.rows as u64];
        let (strides, sizes) =
            ([(results.stride * results.dtype.bytes()) as u64], [results.box_cols as u32, results.box_rows as u32]);
        TensorMap::encode(results.at, number_type(results.dtype), dimensions, strides, sizes, swizzle)
    }

    /// The same of rows of bytes, which lie in shared memory as they are.
    pub fn of_bytes(bytes: &BoxedBytes) -> Result<TensorMap> {
        let dtype = sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64;
        let dimensions = [(bytes.row_bytes / size_of::<u64>()) as u64, bytes.rows as u64];
        let sizes = [(bytes.box_bytes / size_of::<u64>()) as u32, bytes.box_rows as u32];
        let swizzle = sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE;
        TensorMap::encode(bytes.at, dtype, dimensions, [bytes.row_bytes as u64], sizes, swizzle)
    }

    fn encode<const RANK: usize, const STRIDES: usize>(
        at: Address,
        dtype: sys::CUtensorMapDataType,
        dimensions: [u64; RANK],
        strides: [u64; STRIDES],
        sizes: [u32; RANK],
        swizzle: sys::CUtensorMapSwizzle,
    ) -> Result<TensorMap> {
        const { assert!(STRIDES + 1 == RANK) }
        let mut map: MaybeUninit<TensorMap> = MaybeUninit::uninit();
        // SAFETY: the map is a live local of the driver's size and alignment; the arrays have as many elements as a map of this rank
        // reads, which is asserted above. The driver stores the address and does not follow it.
        let code = unsafe {
            sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr().cast(),
                dtype,
                RANK as u32,
                at as *mut c_void,
                dimensions.as_ptr(),
                strides.as_ptr(),
                sizes.as_ptr(),
                [1; RANK].as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        check("cuTensorMapEncodeTiled", code)?;
        // SAFETY: the driver has written it by the line above.
        Ok(unsafe { map.assume_init() })
    }
}

fn number_type(dtype: DType) -> sys::CUtensorMapDataType {
    match dtype {
        DType::Bf16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::F16 | DType::F32 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    }
}
