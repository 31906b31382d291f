//! Kernels that only models with recurrent layers need.

use super::device::Device;
use super::{causal_conv, copy_states, gated_delta, gated_norm, selective_scan};
use base::error::Result;

pub struct Kernels {
    pub copy_states: copy_states::Kernels,
    pub causal_conv: causal_conv::Kernels,
    pub gated_delta: gated_delta::Kernels,
    pub gated_norm: gated_norm::Kernels,
    pub selective_scan: selective_scan::Kernels,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels {
            copy_states: copy_states::Kernels::new(device)?,
            causal_conv: causal_conv::Kernels::new(device)?,
            gated_delta: gated_delta::Kernels::new(device)?,
            gated_norm: gated_norm::Kernels::new(device)?,
            selective_scan: selective_scan::Kernels::new(device)?,
        })
    }
}
