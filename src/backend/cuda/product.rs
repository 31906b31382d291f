//! One matrix product on the device, as our kernels and cuBLASLt both take it.

use super::driver::Address;
use super::params::params;

params! {
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
}
