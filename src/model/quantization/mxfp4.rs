//! MXFP4 experts as gpt-oss has them: E2M1 codes in groups of 32 with a power of two each.
//!
//! `weight = code * 2^(scale - 127)`, the first of two codes in the low bits (`integrations/mxfp4.py` of transformers).

use base::error::{Error, Result};
use compute::HostMatrix;
use formats::source::{TensorType, Tensors};
use formats::{Codes, Scaled, Scales, WeightFormat};
use safetensors::Dtype;

/// What the names of the tensors of codes and of their scales end in.
pub const TENSORS: [&str; 2] = ["_blocks", "_scales"];

/// Numbers that share a scale.
const GROUP: usize = 32;

/// The shape of the matrices of all experts of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    /// How many.
    pub count: usize,
    /// Outputs of each.
    pub rows: usize,
    /// Inputs of each.
    pub cols: usize,
}

/// The matrix of expert `expert` from the tensors `{name}_blocks`, U8 `[experts, rows, cols / 32, 16]`, and `{name}_scales`, U8
/// `[experts, rows, cols / 32]`. A view of the file. `[rows, cols]`
///
/// # Errors
///
/// [`Error::MissingTensor`], [`Error::TensorShape`] and [`Error::CodedTensor`] for tensors that are not so.
///
/// # Panics
///
/// If there is no such expert.
pub fn expert(tensors: &Tensors, name: &str, experts: Experts, expert: usize) -> Result<HostMatrix> {
    let Experts { count, rows, cols } = experts;
    assert!(expert < count);
    let [codes_name, _] = TENSORS.map(|end| format!("{name}{end}"));
    if !cols.is_multiple_of(GROUP) {
        let found = format!("rows of {cols} numbers");
        return Err(Error::CodedTensor { name: codes_name, found, wanted: format!("a multiple of {GROUP}") });
    }
    let plane = |end: &str, shape: &[usize]| {
        let name = format!("{name}{end}");
        let Some(tensor) = tensors.get(&name) else {
            return Err(Error::MissingTensor { name, shape: shape.into() });
        };
        if tensor.kind != TensorType::Safetensors(Dtype::U8) {
            return Err(Error::CodedTensor { name, found: format!("type {}", tensor.kind), wanted: "type U8".into() });
        }
        if tensor.shape != shape {
            return Err(Error::TensorShape { name, found: tensor.shape.clone(), wanted: shape.into() });
        }
        let bytes = tensors.bytes(tensor);
        let each = bytes.len() / count;
        Ok(bytes.slice(expert * each..(expert + 1) * each))
    };
    let codes = plane(TENSORS[0], &[count, rows, cols / GROUP, GROUP / 2])?;
    let scales = plane(TENSORS[1], &[count, rows, cols / GROUP])?;
    let coding = WeightFormat::Scaled(Scaled { codes: Codes::E2m1, scales: Scales::E8m0, group: GROUP, zeros: false });
    let zeros = codes.slice(0..0);
    Ok(HostMatrix::scaled(codes, scales, zeros, coding, rows, cols))
}
