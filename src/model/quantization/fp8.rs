//! FP8 as Qwen and DeepSeek publish it: E4M3 codes with a scale for each block, or for each tensor.
//!
//! `weight = code * weight_scale_inv`, in spite of the name (`integrations/finegrained_fp8.py` of transformers).

use super::coded::{CodePlane, Coded, ScalePlane};
use super::module::{Module, Part};
use base::error::Result;
use formats::{Codes, Scaled, Scales};
use os::HostBytes;
use safetensors::Dtype;

/// What config.json says of method `fp8`.
#[derive(Clone, Debug, PartialEq)]
pub struct Fp8 {
    /// Rows and columns that share a scale; `None` where the whole matrix does.
    pub block: Option<[usize; 2]>,
}

/// Types of scales. Scales of powers of two are stored as bytes by older writers.
const SCALES: &[Dtype] = &[Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::F8_E8M0, Dtype::U8];

impl Fp8 {
    /// The matrix of `module`, if it is coded.
    pub fn matrix(&self, module: &Module) -> Result<Option<Coded>> {
        if !module.has("weight", &[Dtype::F8_E4M3]) {
            return Ok(None);
        }
        let shape = match self.block {
            Some([rows, cols]) => vec![module.rows.div_ceil(rows), module.cols.div_ceil(cols)],
            None => vec![1],
        };
        let ends = ["weight_scale_inv", "weight_scale"];
        let end = ends.into_iter().find(|end| module.find(end).is_some()).unwrap_or(ends[0]);
        let scales = match module.of_any_shape(end, SCALES)? {
            // One number may have no axis at all.
            Some(scales) if self.block.is_none() && scales.shape.is_empty() => scales,
            _ => module.required(end, SCALES, &shape)?,
        };
        e4m3(module, scales, self.block.unwrap_or([module.rows, Scaled::ROW])).map(Some)
    }
}

/// E4M3 codes called `weight`, with one scale per block. The block size is given in rows and columns.
pub fn e4m3(module: &Module, scales: Part, block: [usize; 2]) -> Result<Coded> {
    let (rows, cols) = (module.rows, module.cols);
    let codes = module.required("weight", &[Dtype::F8_E4M3], &[rows, cols])?;
    let (scales, bytes) = match block[0] {
        // One for each row: the file has the form already.
        1 => (type_of(scales.dtype), scales.bytes),
        _ => (Scales::F32, widened(&scales)),
    };
    Ok(Coded {
        rows,
        cols,
        codes: Codes::E4m3,
        code_plane: CodePlane::Rows { bytes: codes.bytes, stride: cols },
        scales,
        scale_plane: ScalePlane::Rows(bytes, block[0].max(1)),
        zeros: None,
        group: if block[1] >= cols { Scaled::ROW } else { block[1] },
        group_of: None,
    })
}

/// How scales of a type are written.
pub fn type_of(dtype: Dtype) -> Scales {
    match dtype {
        Dtype::F32 => Scales::F32,
        Dtype::F16 => Scales::F16,
        Dtype::BF16 => Scales::Bf16,
        _ => Scales::E8m0,
    }
}

/// The scales in f32: there are few, and backends need one form of them less.
fn widened(scales: &Part) -> HostBytes {
    let from = type_of(scales.dtype);
    let count = scales.bytes.len() / from.bytes();
    let bytes: Vec<u8> = (0..count).flat_map(|at| from.read(&scales.bytes, at).to_le_bytes()).collect();
    HostBytes::owned(bytes.into())
}
