//! Folders of compressed-tensors, the format of llm-compressor.
//!
//! `weight = (code - zero) * scale`, with signed codes that packed tensors store with half of their range added
//! (`compressed_tensors/compressors`). Activations that such a model computes in 8 bits are computed in the number type of the engine.

use super::coded::{CodePlane, Coded, ScalePlane, ZeroPacking, Zeros};
use super::fp8::{e4m3, type_of};
use super::gptq::groups_of;
use super::module::{Module, Part};
use super::nvfp4;
use super::patterns::Exhausted;
use super::targets::{Group, Targets};
use base::error::Result;
use formats::{Codes, Scaled, Scales};
use safetensors::Dtype;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The schemes of a config, each with the modules that it is for.
#[derive(Clone)]
pub struct Compressed {
    targets: Arc<Targets>,
    /// Of each group, in the order of the config.
    schemes: Vec<Scheme>,
    /// The groups of the modules of a folder. Empty where there is one group, which has all modules.
    group_of: Arc<HashMap<String, usize>>,
}

/// How the weights of some modules are coded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme {
    /// What a code is.
    pub number: Number,
    /// Which weights share a scale.
    pub strategy: Strategy,
    /// Whether all zeros are 0.
    pub symmetric: bool,
}

/// What a code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A signed integer. The field is its number of bits, 4 or 8.
    Int(usize),
    /// E4M3.
    Float8,
    /// E2M1: with scales that are powers of two in groups of 32, and with E4M3 scales in groups of 16.
    Float4,
}

/// Which weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All.
    Tensor,
    /// Those of an output.
    Channel,
    /// Consecutive weights of an output. The field is their number.
    Group(usize),
    /// Blocks. The field has the number of outputs and of inputs per block.
    Block([usize; 2]),
}

const SCALES: &[Dtype] = &[Dtype::BF16, Dtype::F16, Dtype::F32];

impl Compressed {
    /// With a scheme for each group of targets.
    pub fn new(targets: Targets, schemes: Vec<Scheme>) -> Compressed {
        Compressed { targets: targets.into(), schemes, group_of: Arc::default() }
    }

    /// What the config says: the targets of each group, and how they are coded.
    pub fn groups(&self) -> impl Iterator<Item = (&Group, &Scheme)> {
        self.targets.groups().iter().zip(&self.schemes)
    }

    /// Finds the groups of `modules`, which are the coded ones of a folder. Patterns are matched here and nowhere else.
    ///
    /// # Errors
    ///
    /// [`Exhausted`]
    pub fn resolve<'a>(&mut self, modules: impl Iterator<Item = &'a str>) -> std::result::Result<(), Exhausted> {
        if self.schemes.len() < 2 {
            return Ok(());
        }
        let mut finder = self.targets.finder();
        let mut group_of = HashMap::new();
        for module in modules {
            if group_of.contains_key(module) {
                continue;
            }
            let class = if module.ends_with("embed_tokens") { "Embedding" } else { "Linear" };
            if let Some(group) = finder.find(module, class)? {
                group_of.insert(module.to_owned(), group);
            }
        }
        self.group_of = group_of.into();
        Ok(())
    }

    /// The matrix of `module`, if it is coded.
    pub fn matrix(&self, module: &Module) -> Result<Option<Coded>> {
        let is_packed = module.find("weight_packed").is_some();
        if !is_packed && !module.has("weight", &[Dtype::I8, Dtype::F8_E4M3]) {
            return Ok(None);
        }
        let scheme = self.scheme(module)?;
        let coded = match (scheme.number, is_packed) {
            (Number::Int(bits), true) => packed(module, scheme, bits),
            (Number::Int(_), false) => bytes(module, scheme),
            (Number::Float8, false) => float8(module, scheme),
            (Number::Float4, true) if scheme.group() == Some(nvfp4::GROUP) => nvfp4::compressed(module),
            (Number::Float4, true) => float4(module),
            (number, _) => {
                let end = if is_packed { "weight_packed" } else { "weight" };
                let form = if is_packed { "packed codes" } else { "codes of a byte each" };
                return Err(module.refuse(end, form.into(), format!("codes of {number}, as its group says")));
            }
        };
        coded.map(Some)
    }

    fn scheme(&self, module: &Module) -> Result<Scheme> {
        self.scheme_of(module.name).ok_or_else(|| {
            let end = if module.find("weight_packed").is_some() { "weight_packed" } else { "weight" };
            module.refuse(end, "codes".into(), "a group in quantization_config whose targets name it".into())
        })
    }

    /// The scheme of the module `name`, which is coded and among those that [`Compressed::resolve`] got. A single scheme is that of all,
    /// whatever its targets are called in the checkpoint.
    pub fn scheme_of(&self, name: &str) -> Option<Scheme> {
        match self.schemes[..] {
            [only] => Some(only),
            _ => self.group_of.get(name).map(|&group| self.schemes[group]),
        }
    }
}

impl fmt::Debug for Compressed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Compressed").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

impl Scheme {
    /// Consecutive weights of an output that share a scale; `None` where all of them do.
    pub fn group(self) -> Option<usize> {
        match self.strategy {
            Strategy::Tensor | Strategy::Channel => None,
            Strategy::Group(group) | Strategy::Block([_, group]) => Some(group),
        }
    }
}

/// Codes of 4 or 8 bits in words of 32.
fn packed(module: &Module, scheme: Scheme, bits: usize) -> Result<Coded> {
    let (rows, cols) = (module.rows, module.cols);
    let words = (cols * bits).div_ceil(32);
    let codes = module.required("weight_packed", &[Dtype::I32], &[rows, words])?;
    check_shape(module)?;
    let form = if bits == 4 { Codes::U4 } else { Codes::U8 };
    let mut coded = integers(module, scheme, form, CodePlane::Rows { bytes: codes.bytes, stride: words * 4 })?;
    let groups = coded.cols.div_ceil(coded.group);
    let middle = 1u8 << (bits - 1);
    coded.zeros = match zeros(module, scheme, Some(bits), groups)? {
        Some(zeros) => zeros.unless_all(middle, rows, groups),
        None => None,
    };
    coded.group_of = groups_of(module, "weight_g_idx", coded.group, groups)?;
    Ok(coded)
}

/// Signed codes of a byte each.
fn bytes(module: &Module, scheme: Scheme) -> Result<Coded> {
    let (rows, cols) = (module.rows, module.cols);
    let codes = module.required("weight", &[Dtype::I8], &[rows, cols])?;
    let plane = CodePlane::Rows { bytes: codes.bytes.clone(), stride: cols };
    let mut coded = integers(module, scheme, Codes::I8, plane)?;
    let groups = cols.div_ceil(coded.group);
    let zeros = zeros(module, scheme, None, groups)?.and_then(|zeros| zeros.unless_all(128, rows, groups));
    // Zeros are unsigned, so codes are too.
    if zeros.is_some() {
        (coded.codes, coded.code_plane) = (Codes::U8, CodePlane::Signed(codes.bytes));
    }
    coded.group_of = groups_of(module, "weight_g_idx", coded.group, groups)?;
    Ok(Coded { zeros, ..coded })
}

/// Integers with the scales of `module`, and no zeros yet.
fn integers(module: &Module, scheme: Scheme, codes: Codes, code_plane: CodePlane) -> Result<Coded> {
    let (rows, cols) = (module.rows, module.cols);
    let (group, block) = match scheme.strategy {
        Strategy::Tensor => (cols, rows),
        Strategy::Channel => (cols, 1),
        Strategy::Group(group) => (group.min(cols), 1),
        Strategy::Block([block_rows, block_cols]) => (block_cols.min(cols), block_rows),
    };
    let scales = scales(module, scheme, [rows.div_ceil(block), cols.div_ceil(group)])?;
    Ok(Coded {
        rows,
        cols,
        codes,
        code_plane,
        scales: type_of(scales.dtype),
        scale_plane: ScalePlane::Rows(scales.bytes, block),
        zeros: None,
        group: if group >= cols { Scaled::ROW } else { group },
        group_of: None,
    })
}

fn float8(module: &Module, scheme: Scheme) -> Result<Coded> {
    let (rows, cols) = (module.rows, module.cols);
    let block = match scheme.strategy {
        Strategy::Tensor => [rows, cols],
        Strategy::Channel => [1, cols],
        Strategy::Group(group) => [1, group.min(cols)],
        Strategy::Block(block) => block,
    };
    let scales = scales(module, scheme, [rows.div_ceil(block[0]), cols.div_ceil(block[1])])?;
    e4m3(module, scales, block)
}

/// Codes of E2M1, two to a byte, in groups of 32.
fn float4(module: &Module) -> Result<Coded> {
    const GROUP: usize = 32;
    let (rows, cols) = (module.rows, module.cols);
    if !cols.is_multiple_of(GROUP) {
        let found = format!("codes of a matrix [{rows}, {cols}]");
        return Err(module.refuse("weight_packed", found, "a multiple of 32 inputs".into()));
    }
    let codes = module.required("weight_packed", &[Dtype::U8], &[rows, cols / 2])?;
    let scales = module.required("weight_scale", &[Dtype::U8, Dtype::F8_E8M0], &[rows, cols / GROUP])?;
    Ok(Coded {
        rows,
        cols,
        codes: Codes::E2m1,
        code_plane: CodePlane::Rows { bytes: codes.bytes, stride: cols / 2 },
        scales: Scales::E8m0,
        scale_plane: ScalePlane::Rows(scales.bytes, 1),
        zeros: None,
        group: GROUP,
        group_of: None,
    })
}

/// The scales, `grid` of them. Those of a tensor or of channels may have fewer axes.
fn scales(module: &Module, scheme: Scheme, grid: [usize; 2]) -> Result<Part> {
    const END: &str = "weight_scale";
    let also: &[usize] = match scheme.strategy {
        Strategy::Tensor => &[1],
        Strategy::Channel => &grid[..1],
        Strategy::Group(_) | Strategy::Block(_) => &grid,
    };
    match module.of_any_shape(END, SCALES)? {
        Some(part) if part.shape == also || (scheme.strategy == Strategy::Tensor && part.shape.is_empty()) => Ok(part),
        _ => module.required(END, SCALES, &grid),
    }
}

/// The zeros, if there are any. `packed` is the bits of one where codes are packed; older writers pack no zeros.
fn zeros(module: &Module, scheme: Scheme, packed: Option<usize>, groups: usize) -> Result<Option<Zeros>> {
    const END: &str = "weight_zero_point";
    let Some(part) = module.of_any_shape(END, &[Dtype::I8, Dtype::I32])? else {
        return match scheme.symmetric {
            true => Ok(None),
            false => module.required(END, &[Dtype::I32], &[module.rows, groups]).map(|_| None),
        };
    };
    let bits = packed.unwrap_or(8);
    let (shape, zeros) = match (part.dtype, packed) {
        (Dtype::I32, Some(bits)) => {
            let packing = ZeroPacking::RowWords { bits };
            ([(module.rows * bits).div_ceil(32), groups], Zeros { bytes: part.bytes, packing, added: 0 })
        }
        (Dtype::I8, _) => {
            let added = 1 << (bits - 1);
            ([module.rows, groups], Zeros { bytes: part.bytes, packing: ZeroPacking::Bytes, added })
        }
        _ => return Err(module.refuse(END, format!("type {}", part.dtype), "type I8".into())),
    };
    // The one zero of a tensor is repeated per row, so that it needs no form of its own.
    let of_tensor = scheme.strategy == Strategy::Tensor && part.shape.iter().product::<usize>() == 1;
    if of_tensor && zeros.packing == ZeroPacking::Bytes {
        let bytes: Vec<u8> = vec![zeros.bytes[0]; module.rows * groups];
        return Ok(Some(Zeros { bytes: os::HostBytes::owned(bytes.into()), ..zeros }));
    }
    let of_channels = scheme.strategy == Strategy::Channel && part.shape == shape[..1];
    match part.shape == shape || of_channels {
        true => Ok(Some(zeros)),
        false => Err(module.misshapen(END, part.shape, &shape)),
    }
}

/// Refuses a `weight_shape` of another matrix.
fn check_shape(module: &Module) -> Result<()> {
    const END: &str = "weight_shape";
    let Some(part) = module.optional(END, &[Dtype::I64, Dtype::I32], &[2])? else { return Ok(()) };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    let found: Vec<u64> = part.bytes.chunks_exact(part.bytes.len() / 2).map(number).collect();
    match found == [module.rows as u64, module.cols as u64] {
        true => Ok(()),
        false => Err(module.refuse(END, format!("{found:?}"), format!("[{}, {}]", module.rows, module.cols))),
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Number::Int(bits) => write!(f, "INT{bits}"),
            Number::Float8 => f.write_str("FP8 E4M3"),
            Number::Float4 => f.write_str("FP4 E2M1"),
        }
    }
}
