//! The tensors of one linear layer of a quantized folder.

use base::error::{Error, Result};
use formats::source::{Tensor, TensorType, Tensors};
use os::HostBytes;
use safetensors::Dtype;

/// A linear layer, whose tensors have a common beginning of their names.
#[derive(Clone, Copy)]
pub struct Module<'a> {
    tensors: &'a Tensors,
    /// What their names begin with, without the dot.
    pub name: &'a str,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
}

/// A tensor of a module.
pub struct Part {
    /// Its number type.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its bytes.
    pub bytes: HostBytes,
}

impl<'a> Module<'a> {
    /// The layer `name` of `tensors`, whose matrix is `[rows, cols]`.
    pub fn new(tensors: &'a Tensors, name: &'a str, rows: usize, cols: usize) -> Module<'a> {
        Module { tensors, name, rows, cols }
    }

    /// The tensor whose name ends in `end`, if there is one.
    pub fn find(&self, end: &str) -> Option<&'a Tensor> {
        self.tensors.get(&self.full_name(end))
    }

    /// Whether there is a tensor whose name ends in `end` with one of `dtypes`.
    pub fn has(&self, end: &str, dtypes: &[Dtype]) -> bool {
        let is_of = |tensor: &Tensor| dtypes.iter().any(|dtype| tensor.kind == TensorType::Safetensors(*dtype));
        self.find(end).is_some_and(is_of)
    }

    /// The tensor whose name ends in `end`, if there is one, which has one of `dtypes` and `shape`.
    pub fn optional(&self, end: &str, dtypes: &[Dtype], shape: &[usize]) -> Result<Option<Part>> {
        let Some(part) = self.of_any_shape(end, dtypes)? else { return Ok(None) };
        match part.shape == shape {
            true => Ok(Some(part)),
            false => Err(self.misshapen(end, part.shape, shape)),
        }
    }

    /// As [`Module::optional`], and it must be there.
    pub fn required(&self, end: &str, dtypes: &[Dtype], shape: &[usize]) -> Result<Part> {
        let missing = || Error::MissingTensor { name: self.full_name(end), shape: shape.into() };
        self.optional(end, dtypes, shape)?.ok_or_else(missing)
    }

    /// The tensor whose name ends in `end`, if there is one, which has one of `dtypes`.
    pub fn of_any_shape(&self, end: &str, dtypes: &[Dtype]) -> Result<Option<Part>> {
        let Some(tensor) = self.find(end) else { return Ok(None) };
        let found = dtypes.iter().find(|dtype| tensor.kind == TensorType::Safetensors(**dtype));
        let Some(&dtype) = found else {
            let wanted: Vec<String> = dtypes.iter().map(Dtype::to_string).collect();
            return Err(self.refuse(end, format!("type {}", tensor.kind), format!("type {}", wanted.join(" or "))));
        };
        Ok(Some(Part { dtype, shape: tensor.shape.clone(), bytes: self.tensors.bytes(tensor) }))
    }

    /// An error that says what a tensor has and what it must have.
    pub fn refuse(&self, end: &str, found: String, wanted: String) -> Error {
        Error::CodedTensor { name: self.full_name(end), found, wanted }
    }

    /// An error about the shape of a tensor.
    pub fn misshapen(&self, end: &str, found: Vec<usize>, wanted: &[usize]) -> Error {
        Error::TensorShape { name: self.full_name(end), found, wanted: wanted.into() }
    }

    fn full_name(&self, end: &str) -> String {
        format!("{}.{end}", self.name)
    }
}
