//! Device memory at addresses that stay, of which pieces can be given back and had again.
//!
//! Invariant: `mapped` says which pieces have memory. Nothing that runs on the device touches another one: whoever releases a piece says
//! that nobody needs it, and waits for the stream first.
#![allow(unsafe_code)]

use super::driver::{Address, Context, check};
use base::error::{Error, Result};
use cudarc::driver::sys;
use std::ops::Range;
use std::sync::Arc;

/// A range of addresses in pieces of one size, of which the last may be shorter.
pub struct Pieces {
    context: Arc<Context>,
    start: Address,
    /// Of the range: whole units of the driver.
    bytes: usize,
    piece: usize,
    mapped: Vec<bool>,
    mapped_bytes: usize,
    what: &'static str,
    knob: &'static str,
}

impl Pieces {
    /// `bytes` of device memory, not touched, in pieces of about `piece` bytes. `None` where the device cannot map memory in pieces.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] with `what` and `knob`.
    pub fn map(
        context: &Arc<Context>,
        bytes: usize,
        piece: usize,
        what: &'static str,
        knob: &'static str,
    ) -> Result<Option<Pieces>> {
        context.make_current()?;
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        let (mut is_supported, mut unit, mut start) = (0, 0, 0);
        let properties = properties(context.device());
        let flags = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: the device was opened; the properties and the out-pointers are live locals.
        unsafe {
            let code = sys::cuDeviceGetAttribute(&mut is_supported, attribute, context.device());
            check("cuDeviceGetAttribute", code)?;
            if is_supported == 0 {
                return Ok(None);
            }
            let code = sys::cuMemGetAllocationGranularity(&mut unit, &properties, flags);
            check("cuMemGetAllocationGranularity", code)?;
        }
        let unit = unit.max(1);
        let refused = Error::OutOfMemory { what, bytes: bytes as u64, knob };
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(unit) else { return Err(refused) };
        // SAFETY: the out-pointer is a live local.
        match unsafe { sys::cuMemAddressReserve(&mut start, bytes, 0, 0, 0) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(refused),
            code => check("cuMemAddressReserve", code)?,
        }
        let piece = (piece / unit * unit).max(unit);
        let mapped = vec![false; bytes.div_ceil(piece)];
        // From here on, dropping `pieces` releases what was made.
        let context = context.clone();
        let mut pieces = Pieces { context, start, bytes, piece, mapped, mapped_bytes: 0, what, knob };
        for piece in 0..pieces.mapped.len() {
            pieces.map_piece(piece).map_err(|error| match error {
                // The message is about the whole, which was asked for.
                Error::OutOfMemory { what, knob, .. } => Error::OutOfMemory { what, bytes: bytes as u64, knob },
                error => error,
            })?;
        }
        pieces.allow_access(0..bytes)?;
        Ok(Some(pieces))
    }

    /// Where the range begins.
    pub fn address(&self) -> Address {
        self.start
    }

    /// Bytes that have no memory.
    pub fn unmapped_bytes(&self) -> usize {
        self.bytes - self.mapped_bytes
    }

    /// Gives back the pieces that `is_needed` denies, once all that was launched has ended; returns their bytes.
    pub fn release(&mut self, is_needed: impl Fn(Range<usize>) -> bool) -> Result<usize> {
        let mut is_waited_for = false;
        let mut bytes = 0;
        for piece in 0..self.mapped.len() {
            let range = self.range(piece);
            if self.mapped[piece] && !is_needed(range.clone()) {
                if !is_waited_for {
                    self.context.synchronize()?;
                    is_waited_for = true;
                }
                self.unmap_piece(piece)?;
                bytes += range.len();
            }
        }
        Ok(bytes)
    }

    /// Gets memory for all pieces that `ranges` touch.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]. The same pieces have memory as before.
    ///
    /// # Panics
    ///
    /// If a range lies outside.
    pub fn restore(&mut self, ranges: impl Iterator<Item = Range<usize>>) -> Result<()> {
        self.context.make_current()?;
        let mut made = Vec::new();
        for range in ranges {
            for piece in range.start / self.piece..range.end.div_ceil(self.piece) {
                if self.mapped[piece] {
                    continue;
                }
                if let Err(error) = self.map_piece(piece).and_then(|()| self.allow_access(self.range(piece))) {
                    // No pass has a block in them yet.
                    made.into_iter().try_for_each(|piece| self.unmap_piece(piece))?;
                    return Err(error);
                }
                made.push(piece);
            }
        }
        Ok(())
    }

    fn range(&self, piece: usize) -> Range<usize> {
        piece * self.piece..((piece + 1) * self.piece).min(self.bytes)
    }

    fn map_piece(&mut self, piece: usize) -> Result<()> {
        let range = self.range(piece);
        let (at, bytes) = (self.start + range.start as u64, range.len());
        let (mut handle, properties) = (0, properties(self.context.device()));
        // SAFETY: the context is current; the properties and the out-pointer are live locals. The range lies in the reserved one, and
        // nothing is mapped there. The mapping keeps the memory, whose handle is released here on every path.
        unsafe {
            match sys::cuMemCreate(&mut handle, bytes, &properties, 0) {
                sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                    return Err(Error::OutOfMemory { what: self.what, bytes: bytes as u64, knob: self.knob });
                }
                code => check("cuMemCreate", code)?,
            }
            let mapped = check("cuMemMap", sys::cuMemMap(at, bytes, 0, handle, 0));
            let released = check("cuMemRelease", sys::cuMemRelease(handle));
            mapped?;
            self.mapped[piece] = true;
            self.mapped_bytes += bytes;
            released
        }
    }

    /// Lets the device read and write a range that is mapped.
    fn allow_access(&self, range: Range<usize>) -> Result<()> {
        let access = sys::CUmemAccessDesc {
            location: location(self.context.device()),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let at = self.start + range.start as u64;
        // SAFETY: the caller has mapped the range; the description is a live local.
        check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(at, range.len(), &access, 1) })
    }

    fn unmap_piece(&mut self, piece: usize) -> Result<()> {
        let range = self.range(piece);
        // Also where it fails: the device is lost then, and its memory with it.
        self.mapped[piece] = false;
        self.mapped_bytes -= range.len();
        // SAFETY: mapped by `map_piece` with this range. The caller has waited for the kernels that use it.
        check("cuMemUnmap", unsafe { sys::cuMemUnmap(self.start + range.start as u64, range.len()) })
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        for piece in 0..self.mapped.len() {
            if self.mapped[piece] {
                let _ = self.unmap_piece(piece);
            }
        }
        // SAFETY: reserved by `map`, freed once, and nothing is mapped there.
        let _ = unsafe { sys::cuMemAddressFree(self.start, self.bytes) };
    }
}

/// Where device `ordinal` has its memory.
pub fn location(ordinal: i32) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal }
}

/// Physical memory of device `ordinal`.
pub fn properties(ordinal: i32) -> sys::CUmemAllocationProp {
    // SAFETY: a struct of integers and a pointer, for which zero means none.
    let none: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: location(ordinal),
        ..none
    }
}
