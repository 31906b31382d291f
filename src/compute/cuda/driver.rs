//! The driver: one device, its context, one stream, and memory that is freed when it is dropped.
//!
//! Every value here keeps the context alive, so that dropping them in any order gives all back; the last one releases the
//! device's primary context.

use super::launch_log::LaunchLog;
use super::pieces::Pieces;
use crate::DeviceMemory;
use base::error::{Error, Result};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// An address in device memory.
pub type Address = sys::CUdeviceptr;

/// Whether a call of the driver worked.
pub fn check(call: &'static str, code: sys::CUresult) -> Result<()> {
    if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(Error::Device { call, code: code as i32 }) }
}

/// A device that was opened, and the stream on which everything runs.
pub struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    facts: Facts,
    before: Before,
    launches: LaunchLog,
}

/// What was free on the device when its context was made.
#[derive(Clone, Copy, Default)]
struct Before {
    /// As the driver counts, once there was a context.
    free: u64,
    /// What the context takes, if it was made here.
    context_bytes: u64,
}

/// What a context takes where that is not measured: a little more than on GPUs of Hopper and Ada.
const CONTEXT_BYTES: u64 = 640 << 20;

/// Device `ordinal`, which the driver shows.
pub fn device(ordinal: usize) -> Result<sys::CUdevice> {
    let mut device = 0;
    // SAFETY: `check_ordinal` found the driver, initialized it and knows the ordinal; the out-pointer is a live local.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
    Ok(device)
}

/// What the kernels' geometry depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Streaming multiprocessors.
    pub processors: usize,
    /// Shared memory of one multiprocessor, in bytes.
    pub shared_bytes: usize,
    /// Shared memory that one thread block may take, in bytes.
    pub block_shared_bytes: usize,
    /// Compute capability, as in 90.
    pub capability: i32,
}

// SAFETY: the driver's handles may be used from any thread; each use makes the context current first.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks where it must.
unsafe impl Sync for Context {}

impl Context {
    /// Opens device `ordinal` of those the driver shows. Its kernels have the lowest priority of the streams of this process, so that a host
    /// whose own work on the GPU is urgent gives that a higher one.
    pub fn open(ordinal: usize) -> Result<Arc<Context>> {
        check_ordinal(ordinal)?;
        let (device, mut context, mut stream) = (device(ordinal)?, ptr::null_mut(), ptr::null_mut());
        let (mut flags, mut is_active) = (0, 0);
        // SAFETY: the driver knows the device; all out-pointers are live locals.
        unsafe {
            check("cuDevicePrimaryCtxGetState", sys::cuDevicePrimaryCtxGetState(device, &mut flags, &mut is_active))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
        }
        // From here on, dropping `opened` releases what was made.
        let (facts, before, launches) = (Facts::default(), Before::default(), LaunchLog::default());
        let mut opened = Context { device, context, stream, facts, before, launches };
        opened.make_current()?;
        let context_bytes = if is_active == 0 { CONTEXT_BYTES } else { 0 };
        opened.before = Before { free: opened.free_and_total()?.0, context_bytes };
        let (mut lowest, mut highest) = (0, 0);
        // SAFETY: the context is current, and the out-pointers are live locals.
        unsafe {
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            check("cuCtxGetStreamPriorityRange", sys::cuCtxGetStreamPriorityRange(&mut lowest, &mut highest))?;
            check("cuStreamCreateWithPriority", sys::cuStreamCreateWithPriority(&mut stream, flags, lowest))?;
        }
        opened.stream = stream;
        opened.facts = Facts::of(device)?;
        Ok(Arc::new(opened))
    }

    /// The kernels that were launched on the stream.
    pub fn launches(&self) -> &LaunchLog {
        &self.launches
    }

    /// What the kernels' geometry depends on.
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// The device.
    pub fn device(&self) -> sys::CUdevice {
        self.device
    }

    /// The stream on which everything runs.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Whether the process had this context before, for work of its own or of another engine.
    pub fn was_there(&self) -> bool {
        self.before.context_bytes == 0
    }

    /// Stands for this GPU among those of all hosts.
    pub fn identity(&self) -> Result<u64> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the device was opened, the out-pointer is a live local.
        check("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, self.device) })?;
        let half = |from: usize| u64::from_le_bytes(std::array::from_fn(|at| uuid.bytes[from + at] as u8));
        Ok(half(0) ^ half(8))
    }

    /// Makes later calls of this thread mean this device.
    pub fn make_current(&self) -> Result<()> {
        // SAFETY: the context is retained for as long as `self` lives.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Waits for everything that was launched.
    pub fn synchronize(&self) -> Result<()> {
        self.make_current()?;
        // SAFETY: the stream lives as long as `self`.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    /// Calls `function` with `argument` on a thread of the driver, behind what was launched so far and before what is launched after it.
    ///
    /// # Safety
    ///
    /// `function` calls nothing of CUDA and does not unwind, and `argument` is what it takes, whenever the stream or a graph that was recorded from it
    /// comes to this place.
    pub unsafe fn launch_on_host(
        &self,
        function: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> Result<()> {
        self.make_current()?;
        // SAFETY: the stream lives as long as `self`; the rest is the caller's promise.
        check("cuLaunchHostFunc", unsafe { sys::cuLaunchHostFunc(self.stream, Some(function), argument) })
    }

    /// The memory of the device.
    pub fn memory(&self) -> Result<DeviceMemory> {
        let (free, total) = self.free_and_total()?;
        let own = self.before.free.saturating_sub(free) + self.before.context_bytes;
        Ok(DeviceMemory { free, total, own })
    }

    /// Free and total bytes of the device.
    pub fn free_and_total(&self) -> Result<(u64, u64)> {
        self.make_current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current, the out-pointers are live locals.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Whether the stream records a graph instead of running.
    pub fn is_capturing(&self) -> bool {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream lives as long as `self`, the out-pointer is a live local.
        let code = unsafe { sys::cuStreamIsCapturing(self.stream, &mut status) };
        code == sys::CUresult::CUDA_SUCCESS && status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = self.make_current();
        // SAFETY: nothing else holds the stream or the context any more: all that do keep an `Arc` of `self`.
        unsafe {
            if !self.stream.is_null() {
                let _ = sys::cuStreamSynchronize(self.stream);
                let _ = sys::cuStreamDestroy_v2(self.stream);
            }
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

impl Default for Facts {
    fn default() -> Facts {
        Facts { processors: 1, shared_bytes: 0, block_shared_bytes: 0, capability: 0 }
    }
}

impl Facts {
    /// Whether some kernels are compiled for it alone: compute capability 9.0.
    pub fn is_hopper(&self) -> bool {
        self.capability == 90
    }

    fn of(device: sys::CUdevice) -> Result<Facts> {
        use sys::CUdevice_attribute as Attribute;
        let get = |attribute| {
            let mut value = 0;
            // SAFETY: the device was opened by the caller, the out-pointer is a live local.
            check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
            Ok::<i32, Error>(value)
        };
        Ok(Facts {
            processors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
            shared_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)? as usize,
            block_shared_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
            capability: 10 * get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
                + get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        })
    }
}

/// Saves the calling thread's current context, and makes it current again when dropped: a program that uses CUDA itself finds
/// its own context after every call.
pub struct ContextGuard {
    context: sys::CUcontext,
}

// SAFETY: a driver handle, see `Context`.
unsafe impl Send for ContextGuard {}

impl ContextGuard {
    /// Saves the current context. There is a driver.
    pub fn push() -> Result<ContextGuard> {
        let mut context = ptr::null_mut();
        // SAFETY: `device_count` found the driver and initialized it; the out-pointer is a live local.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut context) })?;
        Ok(ContextGuard { context })
    }

    /// Whether no context was current.
    pub fn is_none(&self) -> bool {
        self.context.is_null()
    }
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        // SAFETY: it was current before, or is null, which means none.
        let _ = unsafe { sys::cuCtxSetCurrent(self.context) };
    }
}

/// The oldest driver whose functions are called here, as the driver counts: CUDA 13.0.
const OLDEST_DRIVER: i32 = 13_000;

/// Devices that the driver shows; 0 without a driver.
///
/// # Errors
///
/// [`Error::Unsupported`] for a driver that is too old, or that cannot be used: a machine whose GPU is out of order has a CPU.
pub fn device_count() -> Result<usize> {
    if !has_library() {
        return Ok(0);
    }
    let (mut version, mut devices) = (0, 0);
    // SAFETY: the library is there by the line above, and every version of it has these functions; the out-pointers are live
    // locals.
    unsafe {
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
        usable(version)?;
        match sys::cuInit(0) {
            sys::CUresult::CUDA_SUCCESS => {}
            sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
            code => {
                let what = format!(
                    "the NVIDIA driver answers cuInit with {}, so CUDA cannot be used: choose device CPU",
                    code as i32
                );
                return Err(Error::Unsupported { what });
            }
        }
        check("cuDeviceGetCount", sys::cuDeviceGetCount(&mut devices))?;
    }
    Ok(devices as usize)
}

/// Whether the driver's library can be opened. The process looks for it once: a child that was forked while another thread of its
/// parent was inside dlopen may find glibc's cache of names half unmapped, and crashes when it looks again. The answer lies in an
/// atomic, since such a child may find any lock taken.
fn has_library() -> bool {
    const UNKNOWN: u8 = 0;
    const ABSENT: u8 = 1;
    const PRESENT: u8 = 2;
    static LIBRARY: AtomicU8 = AtomicU8::new(UNKNOWN);
    match LIBRARY.load(Relaxed) {
        UNKNOWN => {
            // SAFETY: asks whether the library can be opened, before any of its functions is called.
            let is_present = unsafe { sys::is_culib_present() };
            LIBRARY.store(if is_present { PRESENT } else { ABSENT }, Relaxed);
            is_present
        }
        known => known == PRESENT,
    }
}

fn usable(version: i32) -> Result<()> {
    if version >= OLDEST_DRIVER {
        return Ok(());
    }
    let named = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
    let (has, needs) = (named(version), named(OLDEST_DRIVER));
    Err(Error::Unsupported {
        what: format!(
            "the NVIDIA driver serves CUDA up to {has}, but {needs} is needed: update it or choose device CPU"
        ),
    })
}

/// Refuses an ordinal that the driver does not show.
pub fn check_ordinal(ordinal: usize) -> Result<()> {
    if !nanovllm_kernels::are_built() {
        let what =
            format!("CUDA device {ordinal} is not in this build, which was made without nvcc: use device CPU or AUTO");
        return Err(Error::Unsupported { what });
    }
    match device_count()? {
        devices if ordinal < devices => Ok(()),
        devices => Err(Error::Unsupported {
            what: format!(
                "CUDA device {ordinal} was asked for, but the driver shows {devices}: use device CPU or AUTO"
            ),
        }),
    }
}

/// Device memory.
pub struct Memory {
    context: Arc<Context>,
    address: Address,
    bytes: usize,
    /// What it lies in, if it can be given back in pieces.
    pub pieces: Option<Pieces>,
}

impl Memory {
    /// The first `bytes` of pieces.
    pub fn of_pieces(context: &Arc<Context>, bytes: usize, pieces: Pieces) -> Memory {
        Memory { context: context.clone(), address: pieces.address(), bytes, pieces: Some(pieces) }
    }

    /// `bytes` of device memory, not touched. `what` and `knob` go into the message when there is none.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &'static str, knob: &'static str) -> Result<Memory> {
        context.make_current()?;
        let mut address = 0;
        // SAFETY: the context is current, the out-pointer is a live local.
        match unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::OutOfMemory { what, bytes: bytes as u64, knob }),
            code => {
                check("cuMemAlloc", code)?;
                Ok(Memory { context: context.clone(), address, bytes, pieces: None })
            }
        }
    }

    /// The same, set to zero.
    pub fn zeroed(context: &Arc<Context>, bytes: usize, what: &'static str, knob: &'static str) -> Result<Memory> {
        let memory = Memory::new(context, bytes, what, knob)?;
        // SAFETY: `bytes` were allocated by the line above.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(memory.address, 0, bytes, context.stream) })?;
        Ok(memory)
    }

    /// Where it begins.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `from` to `offset` and waits until that is done.
    ///
    /// # Panics
    ///
    /// If it does not fit.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        assert!(offset + from.len() <= self.bytes);
        self.context.make_current()?;
        // SAFETY: the range lies in this memory by the line above, and `from` outlives the copy because of the wait.
        unsafe {
            let to = self.address + offset as u64;
            check(
                "cuMemcpyHtoDAsync",
                sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.context.stream),
            )?;
        }
        self.context.synchronize()
    }

    /// Reads from `offset`, once all that was launched has ended.
    ///
    /// # Panics
    ///
    /// If `to` reaches beyond the end.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        assert!(offset + to.len() <= self.bytes);
        self.context.make_current()?;
        // SAFETY: as in `write`.
        unsafe {
            let from = self.address + offset as u64;
            let stream = self.context.stream;
            check("cuMemcpyDtoHAsync", sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream))?;
        }
        self.context.synchronize()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.pieces.is_some() {
            return;
        }
        let _ = self.context.make_current();
        // SAFETY: allocated by `new` and freed once. The driver waits for kernels that still use it.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Host memory that the device reads and writes without a detour.
pub struct Pinned {
    context: Arc<Context>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory; the device's accesses are ordered by events before the host's.
unsafe impl Send for Pinned {}
// SAFETY: as above; what shared references write is ordered by the stream, as `part` and `part_mut` make their callers promise.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `bytes` of zeroed memory, cached by the host.
    pub fn zeroed(context: &Arc<Context>, bytes: usize, what: &'static str, knob: &'static str) -> Result<Pinned> {
        context.make_current()?;
        let bytes = bytes.max(1);
        let mut start: *mut c_void = ptr::null_mut();
        // SAFETY: the context is current, the out-pointer is a live local.
        match unsafe { sys::cuMemHostAlloc(&mut start, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                return Err(Error::OutOfMemory { what, bytes: bytes as u64, knob });
            }
            code => check("cuMemHostAlloc", code)?,
        }
        let pinned = Pinned { context: context.clone(), start: start.cast(), bytes };
        // SAFETY: `bytes` were allocated above.
        unsafe { ptr::write_bytes(pinned.start, 0, bytes) };
        Ok(pinned)
    }

    /// Where devices find it, which is where the host does.
    pub fn address(&self) -> Address {
        self.start as Address
    }

    /// Its first word, which host and devices may write at any time.
    pub fn word(&self) -> &AtomicU32 {
        assert!(self.bytes >= size_of::<AtomicU32>());
        // SAFETY: allocated by `zeroed` and large enough by the line above; the driver aligns it to pages.
        unsafe { AtomicU32::from_ptr(self.start.cast()) }
    }

    /// Its bytes. The caller has waited for whatever the device writes there.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: allocated by `zeroed` with this size, all initialized.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    /// Its bytes, to be written. The caller has waited for whatever the device reads there.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes it the only access of the host.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// Begins a copy of `bytes` to `offset` of device memory.
    ///
    /// # Panics
    ///
    /// If either side is smaller.
    pub fn upload(&self, bytes: Range<usize>, to: &Memory, offset: usize) -> Result<()> {
        assert!(bytes.end <= self.bytes && offset + bytes.len() <= to.bytes);
        let (to, stream) = (to.address + offset as u64, self.context.stream);
        // SAFETY: both ranges are allocated by the line above. Dropping either waits for the copy.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(to, self.start.add(bytes.start).cast(), bytes.len(), stream)
        })
    }

    /// Begins a copy of `bytes` from `offset` of device memory to `at`, for a host function that is launched behind it.
    ///
    /// # Panics
    ///
    /// If either side is smaller.
    pub fn download_for_host(&self, at: usize, from: &Memory, offset: usize, bytes: usize) -> Result<()> {
        assert!(at + bytes <= self.bytes && offset + bytes <= from.bytes);
        let (from, stream) = (from.address + offset as u64, self.context.stream);
        // SAFETY: both ranges are allocated by the line above. Dropping either waits for the copy.
        check("cuMemcpyDtoHAsync", unsafe { sys::cuMemcpyDtoHAsync_v2(self.start.add(at).cast(), from, bytes, stream) })
    }

    /// Some of its bytes.
    ///
    /// # Safety
    ///
    /// They are not written while the slice lives: the caller is a host function of the stream on which all that writes them is launched.
    pub unsafe fn part(&self, bytes: Range<usize>) -> &[u8] {
        assert!(bytes.start <= bytes.end && bytes.end <= self.bytes);
        // SAFETY: allocated by `zeroed` and all initialized; nobody writes them by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(bytes.start), bytes.len()) }
    }

    /// Some of its bytes, to be written.
    ///
    /// # Safety
    ///
    /// As [`part`](Self::part), and nobody reads them either.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part_mut(&self, bytes: Range<usize>) -> &mut [u8] {
        assert!(bytes.start <= bytes.end && bytes.end <= self.bytes);
        // SAFETY: as in `part`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(bytes.start), bytes.len()) }
    }

    /// Begins a copy of `bytes` from `offset` of device memory to the beginning.
    ///
    /// # Panics
    ///
    /// If either side is smaller.
    pub fn download(&mut self, from: &Memory, offset: usize, bytes: usize) -> Result<()> {
        self.download_to(0, from, offset, bytes)
    }

    /// The same, to where it says.
    ///
    /// # Panics
    ///
    /// If either side is smaller.
    pub fn download_to(&mut self, at: usize, from: &Memory, offset: usize, bytes: usize) -> Result<()> {
        assert!(at + bytes <= self.bytes && offset + bytes <= from.bytes);
        let (from, stream) = (from.address + offset as u64, self.context.stream);
        // SAFETY: both ranges are allocated by the line above. Dropping either waits for the copy.
        check("cuMemcpyDtoHAsync", unsafe { sys::cuMemcpyDtoHAsync_v2(self.start.add(at).cast(), from, bytes, stream) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        // SAFETY: allocated by `zeroed` and freed once; nothing on the stream uses it any more.
        let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
    }
}

/// A place in the stream that the host can wait for.
pub struct Event {
    context: Arc<Context>,
    event: sys::CUevent,
}

// SAFETY: a driver handle, see `Context`.
unsafe impl Send for Event {}

/// What an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// To be waited for. Cheaper.
    Order,
    /// To be waited for and timed.
    Timing,
}

impl Event {
    /// An event that has not been recorded: waiting for it returns at once.
    pub fn new(context: &Arc<Context>, kind: EventKind) -> Result<Event> {
        context.make_current()?;
        let mut event = ptr::null_mut();
        let flags = match kind {
            EventKind::Order => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
            EventKind::Timing => sys::CUevent_flags::CU_EVENT_DEFAULT,
        };
        // SAFETY: the context is current, the out-pointer is a live local.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags as u32) })?;
        Ok(Event { context: context.clone(), event })
    }

    /// Marks the end of what was launched so far.
    pub fn record(&self) -> Result<()> {
        // SAFETY: event and stream live, the latter by the `Arc`.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.event, self.context.stream) })
    }

    /// Waits for the mark.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }

    /// Whether the mark was reached.
    pub fn is_reached(&self) -> Result<bool> {
        // SAFETY: the event lives.
        match unsafe { sys::cuEventQuery(self.event) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Milliseconds from `self` to `later`, both of kind `Timing` and reached.
    pub fn milliseconds_to(&self, later: &Event) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both events live, the out-pointer is a live local.
        let code = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, self.event, later.event) };
        check("cuEventElapsedTime", code).map(|()| milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.make_current();
        // SAFETY: created by `new` and destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

#[cfg(test)]
mod tests {
    use super::usable;

    #[test]
    fn an_old_driver_is_unsupported_and_says_what_it_lacks() {
        for version in [13_000, 13_020, 14_000] {
            usable(version).unwrap();
        }
        let error = usable(12_080).unwrap_err().to_string();
        assert!(error.contains("up to 12.8") && error.contains("13.0 is needed"), "{error}");
    }
}
