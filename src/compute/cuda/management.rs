//! How much memory of a GPU is free, before there is a context in which the driver could be asked?
//!
//! NVIDIA's management library, which is installed with the driver, answers without a context; a context takes hundreds of megabytes itself.
//! Where the library is missing, or does not know the device, there is no answer.

use super::driver::{check, check_ordinal, device};
use super::library;
use base::error::Result;
use cudarc::driver::sys;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// What is free on a device before the engine opens it, as NVIDIA's management library counts.
pub struct FreeBefore {
    bus_id: CString,
    bytes: u64,
}

impl FreeBefore {
    /// Asks. `None` where the library is missing or does not know the device.
    pub fn measure(ordinal: usize) -> Result<Option<FreeBefore>> {
        check_ordinal(ordinal)?;
        let bus_id = bus_id(device(ordinal)?)?;
        Ok(free_bytes(&bus_id).map(|bytes| FreeBefore { bus_id, bytes }))
    }

    /// Bytes that were taken since.
    pub fn taken(&self) -> Option<u64> {
        Some(self.bytes.saturating_sub(free_bytes(&self.bus_id)?))
    }
}

#[cfg(unix)]
const SONAME: &CStr = c"libnvidia-ml.so.1";
#[cfg(windows)]
const SONAME: &CStr = c"nvml.dll";

const SUCCESS: c_int = 0;

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

type Init = unsafe extern "C" fn() -> c_int;
type HandleByBusId = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type MemoryInfo = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;

struct Library {
    handle_by_bus_id: HandleByBusId,
    memory_info: MemoryInfo,
}

/// Free bytes of the GPU at this address of the PCI bus.
fn free_bytes(bus_id: &CStr) -> Option<u64> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let library = LIBRARY.get_or_init(Library::open).as_ref()?;
    let (mut device, mut memory) = (ptr::null_mut(), Memory::default());
    // SAFETY: the functions are those of the library, which `open` initialized; the text ends with a zero byte, and the out-pointers are
    // live locals.
    unsafe {
        if (library.handle_by_bus_id)(bus_id.as_ptr(), &mut device) != SUCCESS {
            return None;
        }
        ((library.memory_info)(device, &mut memory) == SUCCESS).then_some(memory.free)
    }
}

impl Library {
    /// Opens and initializes the library. It is never closed.
    fn open() -> Option<Library> {
        let library = library::open_by_name(SONAME)?;
        let init = library::symbol(library, c"nvmlInit_v2")?;
        let handle_by_bus_id = library::symbol(library, c"nvmlDeviceGetHandleByPciBusId_v2")?;
        let memory_info = library::symbol(library, c"nvmlDeviceGetMemoryInfo")?;
        // SAFETY: the functions have these types in every version of the library that has these names.
        unsafe {
            if std::mem::transmute::<NonNull<c_void>, Init>(init)() != SUCCESS {
                return None;
            }
            Some(Library {
                handle_by_bus_id: std::mem::transmute::<NonNull<c_void>, HandleByBusId>(handle_by_bus_id),
                memory_info: std::mem::transmute::<NonNull<c_void>, MemoryInfo>(memory_info),
            })
        }
    }
}

/// How the machine calls a device.
fn bus_id(device: sys::CUdevice) -> Result<CString> {
    let mut text = [0u8; 32];
    // SAFETY: the driver knows the device, and writes at most as many bytes, with a zero at their end.
    check("cuDeviceGetPCIBusId", unsafe {
        sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as i32, device)
    })?;
    Ok(CStr::from_bytes_until_nul(&text).unwrap_or_default().into())
}
