//! Builds what cargo does not: the CUDA kernels.

#[path = "build_kernels.rs"]
mod kernels;

fn main() {
    kernels::build();
}
