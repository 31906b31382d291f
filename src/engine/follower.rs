//! What does an engine do whose requests go to another process?
//!
//! It serves: each call of [`step`](FollowerEngine::step) computes the passes that process 0 schedules. It has a model and a tokenizer
//! like any other engine, and neither scheduler nor requests.

use crate::api::handle::{EngineHandle, TextFiles};
use crate::results::output::{Stats, StepReport};
use crate::{Budget, EngineLimits};
use base::error::Result;
use runner::ModelInfo;
use runner::follower::{Follower, Served};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Stands for a time that the clock cannot represent.
const LONG: Duration = Duration::from_secs(1 << 32);

/// An engine of a process that follows.
pub struct FollowerEngine {
    handle: Arc<EngineHandle>,
    follower: Follower,
    stats: Stats,
}

/// What a call of [`FollowerEngine::step`] did.
#[derive(Clone, Copy, Debug)]
pub struct FollowerReport {
    /// The passes and the time of this call; the rest is 0.
    pub step: StepReport,
    /// Whether process 0 has closed its engine: there will be no more passes.
    pub is_closed: bool,
}

impl FollowerEngine {
    pub(super) fn new(follower: Follower, info: ModelInfo, limits: EngineLimits, text: TextFiles) -> FollowerEngine {
        let stats = Stats { kv_blocks_total: info.num_kv_blocks as u32, ..Stats::default() };
        FollowerEngine { handle: EngineHandle::new(info, limits, text, Some(follower.peers())), follower, stats }
    }

    /// The side of this engine that other threads may use. It takes no requests.
    pub fn handle(&self) -> &Arc<EngineHandle> {
        &self.handle
    }

    /// Computes what process 0 schedules for `budget`. [`Budget::OnePass`] waits for a pass, and returns when it has ended or when process
    /// 0 has closed its engine.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`](base::error::Error::Peer), and what made a rank of this process fail. The engine cannot be used any more.
    pub fn step(&mut self, budget: Budget) -> Result<FollowerReport> {
        let started = Instant::now();
        let deadline = match budget {
            Budget::OnePass => None,
            Budget::Time(time) => Some(started.checked_add(time).unwrap_or(started + LONG)),
        };
        let Served { passes, is_closed } = self.follower.serve(deadline)?;
        let elapsed_us = started.elapsed().as_micros() as u64;
        self.stats.steps += u64::from(passes);
        self.handle.publish(&self.stats, 0, 0, &mut Vec::new());
        Ok(FollowerReport { step: StepReport { passes, elapsed_us, ..StepReport::default() }, is_closed })
    }
}
