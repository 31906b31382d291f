//! AWQ in the layout that AutoAWQ calls GEMM: unsigned codes of 4 bits with zeros, eight outputs to a word.
//!
//! `weight = (code - zero) * scale` (`awq/modules/linear/gemm.py` and `awq/utils/packing_utils.py` of AutoAWQ).

use super::coded::{CodePlane, Coded, ScalePlane, ZeroPacking, Zeros};
use super::fp8::type_of;
use super::module::Module;
use base::error::Result;
use formats::{Codes, Scaled};
use safetensors::Dtype;

/// What config.json says of method `awq`.
#[derive(Clone, Debug, PartialEq)]
pub struct Awq {
    /// Consecutive inputs that share a scale; `None` where all do.
    pub group: Option<usize>,
}

impl Awq {
    /// The matrix of `module`, if it is coded.
    pub fn matrix(&self, module: &Module) -> Result<Option<Coded>> {
        let Module { rows, cols, .. } = *module;
        if module.find("qweight").is_none() {
            return Ok(None);
        }
        if !rows.is_multiple_of(8) || !cols.is_multiple_of(2) {
            let found = format!("codes of a matrix [{rows}, {cols}]");
            return Err(module.refuse("qweight", found, "a multiple of 8 outputs and of 2 inputs".into()));
        }
        let group = self.group.unwrap_or(cols).min(cols);
        let groups = cols.div_ceil(group);
        let codes = module.required("qweight", &[Dtype::I32], &[cols, rows / 8])?;
        let zeros = module.required("qzeros", &[Dtype::I32], &[groups, rows / 8])?;
        let scales = module.required("scales", &[Dtype::F16, Dtype::BF16, Dtype::F32], &[groups, rows])?;
        let zeros = Zeros { bytes: zeros.bytes, packing: ZeroPacking::AwqWords, added: 0 };
        Ok(Some(Coded {
            rows,
            cols,
            codes: Codes::U4,
            code_plane: CodePlane::OutputWords(codes.bytes),
            scales: type_of(scales.dtype),
            scale_plane: ScalePlane::Columns(scales.bytes),
            zeros: zeros.unless_all(8, rows, groups),
            group: if group >= cols { Scaled::ROW } else { group },
            group_of: None,
        }))
    }
}
