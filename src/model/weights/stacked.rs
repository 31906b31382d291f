//! The tensors in which a file has the matrices of all experts, or their biases.

use super::Weights;
use crate::names::StackedMatrices;
use crate::quantization::{Quantization, mxfp4};
use base::error::{Error, Result};
use compute::{HostMatrix, HostVector};
use std::ops::Range;

impl Weights {
    /// As [`stacked_parts`](Self::stacked_parts), of a tensor whose matrices have an output in each column, or of codes with scales. Where the shape says that
    /// a matrix has an output in each row, as transformers saves them, it is read so.
    fn columns_of(&mut self, name: &str, [count, outputs, inputs]: [usize; 3]) -> Result<Vec<HostMatrix>> {
        let module = self.module(name);
        let [codes, scales] = mxfp4::TENSORS.map(|end| format!("{module}{end}"));
        if let Some(tensor) = self.tensors.get(&codes) {
            if !matches!(self.quantization, Some(Quantization::Mxfp4)) {
                let found = format!("{}, codes that no quantization_config describes", tensor.kind);
                return Err(Error::TensorDtype { name: codes, found });
            }
            let experts = mxfp4::Experts { count, rows: outputs, cols: inputs };
            let matrices = (0..count).map(|index| mxfp4::expert(&self.tensors, &module, experts, index));
            let matrices = matrices.collect::<Result<_>>()?;
            self.taken.insert(scales);
            if self.taken.insert(codes) {
                self.parameters += (count * outputs * inputs) as u64;
            }
            return Ok(matrices);
        }
        if outputs != inputs && self.tensors.get(&module).is_some_and(|tensor| tensor.shape == [count, outputs, inputs])
        {
            return self.rows_of(module, [count, outputs, inputs]);
        }
        let (bytes, coding) = self.take(module, &[count, inputs, outputs])?;
        let all = HostMatrix::new(bytes, coding, count * inputs, outputs);
        (0..count).map(|index| all.rows(index * inputs..(index + 1) * inputs).transposed()).collect()
    }

    /// The matrices of the tensor `name`, which have an output in each row.
    pub(super) fn rows_of(&mut self, name: String, [count, outputs, inputs]: [usize; 3]) -> Result<Vec<HostMatrix>> {
        let (bytes, coding) = self.take(name, &[count, outputs, inputs])?;
        let all = HostMatrix::new(bytes, coding, count * outputs, inputs);
        Ok((0..count).map(|index| all.rows(index * outputs..(index + 1) * outputs)).collect())
    }

    /// Whether there is a tensor `name` of several matrices.
    pub fn has_stacked(&self, name: &str) -> bool {
        self.stacked_name(name).is_some()
    }

    /// Folders call it `name`, or as GGUF files do `name.weight`.
    fn stacked_name(&self, name: &str) -> Option<String> {
        let names = [self.module(name), self.full_name(name, "weight")];
        names.into_iter().find(|name| self.tensors.get(name).is_some())
    }

    /// Parts of the matrices `kept` of the tensor `name`, whose shape is `shape`: of each of them those that [`matrix_parts`](Self::matrix_parts) gives of one.
    /// `[kept]`
    pub fn stacked_parts(
        &mut self,
        name: &str,
        shape: [usize; 3],
        kept: Range<usize>,
        rows: &[Range<usize>],
        cols: Range<usize>,
    ) -> Result<Vec<Vec<HostMatrix>>> {
        let matrices: Vec<HostMatrix> = match self.layout.names.experts.matrices {
            StackedMatrices::Columns => self.columns_of(name, shape)?,
            StackedMatrices::Rows => {
                let full_name = self.stacked_name(name).unwrap_or_else(|| self.full_name(name, "weight"));
                self.rows_of(full_name, shape)?
            }
        };
        let of_one = |matrix: &HostMatrix| {
            let part = |rows: &Range<usize>| self.held(&matrix.rows(rows.clone()), cols.clone());
            rows.iter().map(part).collect::<Result<Vec<_>>>()
        };
        let stacked: Vec<_> = matrices[kept].iter().map(of_one).collect::<Result<_>>()?;
        stacked.iter().for_each(|parts| self.count(name, parts));
        Ok(stacked)
    }

    /// Parts of the biases of all experts in the tensor `name`, or as GGUF files call it `name.bias`: of each expert those in `parts`. `[count, len]`
    pub fn stacked_biases(
        &mut self,
        name: &str,
        [count, len]: [usize; 2],
        parts: &[Range<usize>],
    ) -> Result<Vec<HostVector>> {
        let names = [format!("{}_bias", self.module(name)), self.full_name(name, "bias")];
        let found = names.iter().find(|name| self.tensors.get(name).is_some()).unwrap_or(&names[0]).clone();
        let of_all = (0..count).flat_map(|index| parts.iter().map(move |part| [index, part.start, part.end]));
        let of_all = of_all.map(|[index, start, end]| index * len + start..index * len + end).collect::<Vec<_>>();
        self.small_of(found, &[&[count, len]], &of_all)
    }
}
