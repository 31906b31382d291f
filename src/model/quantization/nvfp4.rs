//! Codes of NVFP4: E2M1 in groups of 16, with an E4M3 scale for each group and one f32 scale for all.
//!
//! `weight = code * (scale / global)` in folders of compressed-tensors, and `weight = code * (scale * global)` in those of ModelOpt. Groups are half as long as those that
//! backends hold, so that such a matrix is decoded when it is read. Scales of activations are not read: activations are computed in the number type of
//! the engine.

use super::coded::{CodePlane, Coded, ScalePlane};
use super::module::Module;
use base::error::Result;
use formats::{Codes, Scales, from_e4m3};
use os::HostBytes;
use safetensors::Dtype;

/// Numbers that share a scale.
pub const GROUP: usize = 16;

/// What the scale of all is called in folders of compressed-tensors.
pub const COMPRESSED_GLOBAL: &str = "weight_global_scale";
/// The same in folders of ModelOpt.
pub const MODELOPT_GLOBAL: &str = "weight_scale_2";

/// Folders of ModelOpt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelOpt;

/// What the tensors of a matrix are called, and what the scale of all does to those of groups.
struct Form {
    codes: &'static str,
    global: &'static str,
    scale: fn(f32, f32) -> f32,
}

impl ModelOpt {
    /// The matrix of `module`, if it is coded.
    pub fn matrix(self, module: &Module) -> Result<Option<Coded>> {
        const FORM: Form = Form { codes: "weight", global: MODELOPT_GLOBAL, scale: |scale, global| scale * global };
        if !module.has(FORM.codes, &[Dtype::U8]) {
            return Ok(None);
        }
        read(module, &FORM).map(Some)
    }
}

/// The matrix of a module of compressed-tensors.
pub fn compressed(module: &Module) -> Result<Coded> {
    const FORM: Form =
        Form { codes: "weight_packed", global: COMPRESSED_GLOBAL, scale: |scale, global| scale / global };
    read(module, &FORM)
}

fn read(module: &Module, form: &Form) -> Result<Coded> {
    let (rows, cols) = (module.rows, module.cols);
    if !cols.is_multiple_of(GROUP) {
        let found = format!("codes of a matrix [{rows}, {cols}]");
        return Err(module.refuse(form.codes, found, format!("a multiple of {GROUP} inputs")));
    }
    let codes = module.required(form.codes, &[Dtype::U8], &[rows, cols / 2])?;
    let scales = module.required("weight_scale", &[Dtype::F8_E4M3], &[rows, cols / GROUP])?;
    let global = match module.of_any_shape(form.global, &[Dtype::F32])? {
        Some(part) if part.shape.is_empty() => part,
        _ => module.required(form.global, &[Dtype::F32], &[1])?,
    };
    let global = f32::from_le_bytes([global.bytes[0], global.bytes[1], global.bytes[2], global.bytes[3]]);
    let (what, knob) = ("scales of weights", "the size of the model");
    let bytes = HostBytes::written(scales.bytes.len() * 4, what, knob, |to| {
        for (to, &scale) in to.as_chunks_mut::<4>().0.iter_mut().zip(scales.bytes.iter()) {
            *to = (form.scale)(from_e4m3(scale), global).to_le_bytes();
        }
        Ok(())
    })?;
    Ok(Coded {
        rows,
        cols,
        codes: Codes::E2m1,
        code_plane: CodePlane::Rows { bytes: codes.bytes, stride: cols / 2 },
        scales: Scales::F32,
        scale_plane: ScalePlane::Rows(bytes, 1),
        zeros: None,
        group: GROUP,
        group_of: None,
    })
}
