//! GPTQ as AutoGPTQ and GPTQModel write it: unsigned codes of 4 or 8 bits with zeros, consecutive inputs to a word.
//!
//! `weight[n, k] = (code[n, k] - zero[g[k], n]) * scale[g[k], n]` with `g = g_idx` (`gptqmodel/nn_modules/qlinear/__init__.py`). Version 1
//! stores zeros that are less by one, modulo the range of the codes.
//!
//! With `desc_act` the groups of neighbouring inputs differ. Such a matrix is decoded when it is read: to keep its codes, the columns would
//! have to be permuted, and every activation that it multiplies with too, by another permutation for each matrix.

use super::coded::{CodePlane, Coded, ScalePlane, ZeroPacking, Zeros};
use super::fp8::type_of;
use super::module::Module;
use base::error::Result;
use formats::{Codes, Scaled};
use safetensors::Dtype;

/// What config.json says of method `gptq`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gptq {
    /// Bits of a code: 4 or 8.
    pub bits: usize,
    /// Inputs that share a scale; `None` where all do.
    pub group: Option<usize>,
    /// Whether the order of inputs is that of their activations.
    pub desc_act: bool,
    /// What is added to stored zeros.
    pub added: u8,
}

impl Gptq {
    /// Whether neighbouring inputs may be of different groups.
    pub fn is_reordered(&self) -> bool {
        self.desc_act && self.group.is_some()
    }

    /// The matrix of `module`, if it is coded.
    pub fn matrix(&self, module: &Module) -> Result<Option<Coded>> {
        let Module { rows, cols, .. } = *module;
        if module.find("qweight").is_none() {
            return Ok(None);
        }
        let each = 32 / self.bits;
        if !cols.is_multiple_of(each) {
            let wanted = format!("a multiple of {each} inputs");
            return Err(module.refuse("qweight", format!("codes of a matrix [{rows}, {cols}]"), wanted));
        }
        let group = self.group.unwrap_or(cols).min(cols);
        let groups = cols.div_ceil(group);
        let codes = module.required("qweight", &[Dtype::I32], &[cols / each, rows])?;
        let zeros = module.required("qzeros", &[Dtype::I32], &[groups, rows.div_ceil(each)])?;
        let scales = module.required("scales", &[Dtype::F16, Dtype::BF16, Dtype::F32], &[groups, rows])?;
        let codes_form = if self.bits == 4 { Codes::U4 } else { Codes::U8 };
        let zeros =
            Zeros { bytes: zeros.bytes, packing: ZeroPacking::GroupWords { bits: self.bits }, added: self.added };
        Ok(Some(Coded {
            rows,
            cols,
            codes: codes_form,
            code_plane: CodePlane::InputWords(codes.bytes),
            scales: type_of(scales.dtype),
            scale_plane: ScalePlane::Columns(scales.bytes),
            zeros: zeros.unless_all(codes_form.zero() as u8, rows, groups),
            group: if group >= cols { Scaled::ROW } else { group },
            group_of: groups_of(module, "g_idx", group, groups)?,
        }))
    }
}

/// The group of each input by the tensor that ends in `end`, if that says anything else than that `group` consecutive ones are one each.
pub fn groups_of(module: &Module, end: &str, group: usize, groups: usize) -> Result<Option<Vec<u32>>> {
    let Some(part) = module.optional(end, &[Dtype::I32], &[module.cols])? else { return Ok(None) };
    let indices: Vec<i32> = part.bytes.as_chunks::<4>().0.iter().map(|&bytes| i32::from_le_bytes(bytes)).collect();
    // Never set.
    if indices.iter().all(|&index| index == -1) {
        return Ok(None);
    }
    if let Some((at, index)) =
        indices.iter().enumerate().find(|(_, index)| !(0..groups as i64).contains(&i64::from(**index)))
    {
        return Err(module.refuse(end, format!("{index} at index {at}"), format!("groups from 0 to {}", groups - 1)));
    }
    let consecutive = indices.iter().enumerate().all(|(at, &index)| index as usize == at / group);
    Ok((!consecutive).then(|| indices.into_iter().map(|index| index as u32).collect()))
}
