//! A recorded sequence of launches that is replayed by one call.

use super::driver::{Context, check};
use base::error::Result;
use cudarc::driver::sys;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

/// The launches of a pass over a padded batch, up to its logits.
pub struct PassGraph {
    /// Rows of the padded batch.
    pub(super) rows: usize,
    pub(super) graph: Graph,
    /// Exchanges with other ranks.
    pub(super) exchanges: u32,
}

impl PassGraph {
    /// As [`Graph::launches`].
    pub fn launches(&self) -> Result<usize> {
        self.graph.launches()
    }
}

/// Launches that were captured.
pub struct Graph {
    context: Arc<Context>,
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

// SAFETY: driver handles, see `Context`.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `launches` puts on the stream instead of running it. Nothing in it may allocate or wait.
    pub fn capture(context: &Arc<Context>, launches: impl FnOnce() -> Result<()>) -> Result<Graph> {
        context.make_current()?;
        let mut graph = Graph { context: context.clone(), graph: ptr::null_mut(), executable: ptr::null_mut() };
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives by the `Arc`; the capture that is begun here is ended on every path.
        unsafe {
            check("cuStreamBeginCapture", sys::cuStreamBeginCapture_v2(context.stream(), mode))?;
            let capture = Capture { context, graph: &mut graph.graph };
            let launched = launches();
            let ended = capture.end();
            launched?;
            ended?;
            let code = sys::cuGraphInstantiateWithFlags(&mut graph.executable, graph.graph, 0);
            check("cuGraphInstantiate", code)?;
        }
        Ok(graph)
    }

    /// Kernels that it launches.
    pub fn launches(&self) -> Result<usize> {
        let mut nodes = 0;
        // SAFETY: the graph was captured; no place for nodes is given, so that only their number is written.
        check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.graph, ptr::null_mut(), &mut nodes) })?;
        Ok(nodes)
    }

    /// Runs it once more, with what the buffers hold now.
    pub fn launch(&self) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: instantiated by `capture`; the buffers in it outlive it by the care of whoever captured it.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.executable, self.context.stream()) })
    }
}

/// A capture that has begun. It ends on every path, also where launches panic.
struct Capture<'a> {
    context: &'a Context,
    graph: &'a mut sys::CUgraph,
}

impl Capture<'_> {
    fn end(self) -> Result<()> {
        let mut capture = ManuallyDrop::new(self);
        check("cuStreamEndCapture", capture.code_of_end())
    }

    fn code_of_end(&mut self) -> sys::CUresult {
        // SAFETY: the capture was begun on this stream, and the out-pointer is that of a live graph.
        unsafe { sys::cuStreamEndCapture(self.context.stream(), self.graph) }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        self.code_of_end();
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        // SAFETY: each was created once, or is null; nothing of them runs any more.
        unsafe {
            if !self.executable.is_null() {
                let _ = sys::cuGraphExecDestroy(self.executable);
            }
            if !self.graph.is_null() {
                let _ = sys::cuGraphDestroy(self.graph);
            }
        }
    }
}
