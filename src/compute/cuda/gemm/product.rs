//! One matrix product on the device, as our kernels and cuBLASLt both take it.

use crate::Activation;
use crate::cuda::driver::Address;
use crate::cuda::params::params;
use crate::cuda::storage::{RowFactors, Tensor};
use formats::DType;
use std::ops::Range;

params! {
    #[derive(Default)]
    LinearParams in "common/linear.cuh" {
        out: Address,
        x: Address,
        weight: Address,
        bias: Address,
        m: i32,
        n: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
    }

    RowNorms in "common/row_factors.cuh" {
        squares: Address,
        residual: Address,
        norm: Address,
        square_parts: i32,
        eps: f32,
        scale: f32,
        reserved: i32,
    }

    FewTokensParams in "common/linear.cuh" {
        out: Address,
        x: Address,
        weight: Address,
        bias: Address,
        norms: RowNorms,
        m: i32,
        n: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
        is_gelu_tanh: i32,
    }
}

impl LinearParams {
    /// From the first column of `out` on. The caller sets weights and columns, and a bias where there is one, and sees to the factors that the rows of `x` may
    /// have.
    pub fn of(out: &Tensor, x: &Tensor) -> LinearParams {
        let (x_rows, _) = x.storage.undivided();
        LinearParams {
            out: out.storage.address(),
            x: x_rows,
            weight: 0,
            bias: 0,
            m: x.rows() as i32,
            n: 0,
            k: x.cols() as i32,
            out_stride: out.storage.stride() as i32,
            x_stride: x.storage.stride() as i32,
        }
    }
}

/// Where sums are added to the residual stream, and how: `residual += scale * sums`, and the norm of what is there then.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    /// `[tokens, hidden]`, as the results.
    pub residual: Address,
    /// Weights of the norm, in f32. `[hidden]`
    pub norm: Address,
    pub scale: f32,
    pub eps: f32,
}

/// What a product does for the norms before and after it.
#[derive(Clone, Copy, Debug)]
pub enum Norms {
    None,
    /// Rows of x are multiplied by factors.
    Factors(RowFactors),
    /// Sums are added to the stream, whose squares go to `RowFactors`.
    Added(Added, RowFactors),
}

impl Norms {
    /// Of a product whose rows are multiplied by `factors`, if there are any.
    pub fn of(factors: Option<RowFactors>) -> Norms {
        factors.map_or(Norms::None, Norms::Factors)
    }

    /// What the kernels take.
    pub fn params(self) -> RowNorms {
        let (factors, added) = match self {
            Norms::None => (None, None),
            Norms::Factors(factors) => (Some(factors), None),
            Norms::Added(added, factors) => (Some(factors), Some(added)),
        };
        RowNorms {
            squares: factors.map_or(0, |factors| factors.squares),
            residual: added.map_or(0, |added| added.residual),
            norm: added.map_or(0, |added| added.norm),
            square_parts: factors.map_or(0, |factors| factors.parts as i32),
            eps: factors.map_or(0.0, |factors| factors.eps),
            scale: added.map_or(0.0, |added| added.scale),
            reserved: 0,
        }
    }
}

/// What becomes of the sums of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// They are its columns.
    Sums,
    /// Half as many columns, `activation(gate) * up`: weights are gates over ups.
    Gated(Activation),
}

impl Results {
    /// Columns of the results of `n` rows of weights.
    pub fn columns(self, n: i32) -> i32 {
        if self == Results::Sums { n } else { n / 2 }
    }
}

impl FewTokensParams {
    /// Of a layer with `params.n` rows of weights.
    pub fn new(Product { params, norms, .. }: &Product, results: Results) -> FewTokensParams {
        FewTokensParams {
            out: params.out,
            x: params.x,
            weight: params.weight,
            bias: params.bias,
            norms: norms.params(),
            m: params.m,
            n: results.columns(params.n),
            k: params.k,
            out_stride: params.out_stride,
            x_stride: params.x_stride,
            is_gelu_tanh: i32::from(results == Results::Gated(Activation::GeluTanh)),
        }
    }
}

/// A product `out = x * weight^T + bias`.
#[derive(Clone, Copy)]
pub struct Product {
    /// Addresses and sizes.
    pub params: LinearParams,
    /// The bias in the model's number type.
    pub bias: Option<Address>,
    pub norms: Norms,
}

impl Product {
    /// The same with other weights.
    pub fn with_weight(self, weight: Address) -> Product {
        Product { params: LinearParams { weight, ..self.params }, ..self }
    }

    /// Some of the columns. The caller sets their weights.
    pub fn columns(self, columns: Range<usize>, dtype: DType) -> Product {
        let (numbers, wide) = ((columns.start * dtype.bytes()) as u64, (columns.start * size_of::<f32>()) as u64);
        let bias = match self.params.bias {
            0 => 0,
            bias => bias + wide,
        };
        let params = LinearParams { out: self.params.out + numbers, bias, n: columns.len() as i32, ..self.params };
        Product { params, bias: self.bias.map(|bias| bias + numbers), ..self }
    }
}
