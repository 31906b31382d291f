//! See `ops/route.rs` for the contract, `kernels/route.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::expert_linear;
use super::experts::Routes;
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::storage::Tensor;
use crate::{EXPERTS_MAX, Groups, Router, RouterVectors, Scores};
use base::error::Result;

params! {
    RouteParams in "route.cu" {
        logits: Address,
        bias: Address,
        experts_of: Address,
        weights: Address,
        stride: i32,
        experts: i32,
        chosen: i32,
        is_sigmoid: i32,
        by_logits: i32,
        groups: i32,
        kept: i32,
        best: i32,
        is_normed: i32,
        norm: f32,
        scale: f32,
        scales: Address,
    }

    SortRoutesParams in "route.cu" {
        experts_of: Address,
        order: Address,
        tiles: Address,
        tile_count: Address,
        slots: i32,
        experts: i32,
        rows: i32,
    }
}

/// The choice, and its order by expert.
pub struct Kernels {
    route: Kernel,
    sort: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("route")?;
        let route = Kernel::new(&module, &format!("route_{}", suffix(device.dtype)))?;
        Ok(Kernels { route, sort: Kernel::new(&module, "sort_routes")? })
    }

    pub fn run(
        &self,
        device: &Device,
        routes: &mut Routes,
        logits: &Tensor,
        RouterVectors { bias, scales }: RouterVectors<Vector>,
        router: &Router,
    ) -> Result<()> {
        let tokens = logits.rows();
        let at = routes.begin(tokens);
        let groups = router.groups.unwrap_or(Groups { count: 1, kept: 1, best: 1 });
        let params = RouteParams {
            logits: logits.storage.address(),
            bias: bias.map_or(0, |bias| bias.wide.address()),
            experts_of: at.experts,
            weights: at.weights,
            stride: logits.storage.stride() as i32,
            experts: router.experts as i32,
            chosen: router.chosen as i32,
            is_sigmoid: i32::from(router.scores == Scores::Sigmoid),
            by_logits: i32::from(router.chooses_by_logits(bias.is_some())),
            groups: groups.count as i32,
            kept: groups.kept as i32,
            best: groups.best as i32,
            is_normed: i32::from(router.norm.is_some()),
            norm: router.norm.unwrap_or(0.0),
            scale: router.scale,
            scales: scales.map_or(0, |scales| scales.wide.address()),
        };
        self.route.launch(device.chaining, [tokens, 1, 1], 32, 0, &params)?;
        if tokens == 0 || expert_linear::is_few(device, tokens) {
            return Ok(());
        }
        let params = SortRoutesParams {
            experts_of: at.experts,
            order: at.order,
            tiles: at.tiles,
            tile_count: at.tile_count,
            slots: routes.shape().slots() as i32,
            experts: router.experts as i32,
            rows: routes.tile_rows() as i32,
        };
        self.sort.launch(device.chaining, [1, 1, 1], EXPERTS_MAX, 0, &params)
    }
}
