//! Models in memory and in parts of files.
//!
//! The files of a model need no paths: an engine also opens on named ranges of memory and of open files, such as parts of a pack file.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::{nvllm_engine, nvllm_engine_config, open};
use super::guard::{guard, guard_value};
use super::memory::{self, Versioned};
use super::refusal::Refusal;
use super::status::{nvllm_error, nvllm_status};
use base::error::Error;
use os::{Files, Given, GivenFiles, HostBytes, duplicate};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{c_char, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Where the bytes of a file are.
#[repr(C)]
pub enum nvllm_file_kind {
    /// In memory: size bytes from data.
    NVLLM_FILE_MEMORY = 0,
    /// In an open file: size bytes from byte offset of the file of descriptor.
    NVLLM_FILE_RANGE = 1,
}

/// A file of a model. nvllm_model_file_init sets the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_model_file {
    /// sizeof(nvllm_model_file), set by nvllm_model_file_init.
    pub struct_size: usize,
    /// The name that the file has in a model folder, such as "config.json" or "additional_chat_templates/tool_use.jinja", or any name that
    /// ends in ".gguf". '/' separates folders. NUL-terminated UTF-8. Required.
    pub name: *const c_char,
    /// NVLLM_FILE_*: where the bytes are. Default NVLLM_FILE_MEMORY.
    pub kind: i32,
    /// Must be 0.
    pub reserved: u32,
    /// The bytes of a file in memory, of any alignment. NULL in a range of an open file. Default NULL.
    pub data: *const c_void,
    /// An open file, by its descriptor; on Windows by its HANDLE. It must be a regular file that is open for reading. -1 for a file in
    /// memory. Default -1.
    pub descriptor: i64,
    /// Where the range begins in the open file, in bytes, of any alignment. 0 for a file in memory. Default 0.
    pub offset: u64,
    /// Size of the file of the model in bytes. Default 0.
    pub size: u64,
}

/// [any] Sets the defaults: nvllm_model_file_init(&file, sizeof file). Writes at most struct_size bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_model_file_init(file: *mut nvllm_model_file, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_model_file_init", (), || unsafe { memory::init(file, struct_size, nvllm_model_file::DEFAULT) });
}

/// [any] Opens an engine on a model whose files are given, and stores it in *engine. Otherwise as nvllm_engine_new.
///
/// files is an array of num_files structs with one struct_size: the files of a model folder, or a GGUF file with all
/// of its parts, and the files of text that may be in its folder. model_path of config is the name of a GGUF file or of a folder among
/// them, or NULL for the folder that all of them are in. No other file is read. Messages name a file as "<files>/" and its name.
///
/// Weights are used where they are, whatever their alignment, as the files of a folder are. With NVLLM_LOAD_MAP and files in memory, that
/// memory must neither change nor be freed until nvllm_engine_free has destroyed the engine; on CUDA, until this function returns. It is
/// not read ahead: if it is a mapping of the caller whose pages are not in memory yet, the first passes wait for them. With
/// NVLLM_LOAD_READ the weights are copied, and the memory can be freed when this function returns. Everything else is copied: descriptors
/// can always be closed when this function returns, whose positions are neither used nor moved. Of a mapped range the same is true as of
/// a mapped file: see NVLLM_LOAD_MAP.
///
/// NVLLM_ERR_INVALID_ARGUMENT for a name that appears twice, is that of a file and of a folder too, or leads out of its folder;
/// NVLLM_ERR_IO for a descriptor that is not open or whose file cannot be mapped; NVLLM_ERR_MODEL for one that is not a regular file, not
/// open for reading, or open with O_PATH or O_DIRECT, and for a range that reaches beyond the end of its file.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_engine_new_from(
    config: *const nvllm_engine_config,
    files: *const nvllm_model_file,
    num_files: usize,
    engine: *mut *mut nvllm_engine,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_engine_new_from", error, || {
        // SAFETY: the same promises as here.
        unsafe {
            open(config, engine, |config| {
                let name = match config.model_path.is_null() {
                    true => None,
                    false => Some(memory::c_text("model_path", config.model_path)?),
                };
                Ok((Files::Given(Arc::new(given(files, num_files)?)), GivenFiles::path(name)))
            })
        }
    })
}

/// The files of an array.
///
/// # Safety
///
/// As the header says of `files`.
unsafe fn given(files: *const nvllm_model_file, count: usize) -> Result<GivenFiles, Refusal> {
    let (mut given, mut opened) = (GivenFiles::default(), BTreeMap::new());
    // SAFETY: the header asks for `count` structs with one struct_size, each with a name, and with bytes as the struct says.
    unsafe {
        memory::read_each("files", files, count, nvllm_model_file::DEFAULT, |_, file| {
            add(&mut given, file, &mut opened)
        })?;
    }
    Ok(given)
}

/// The files of this process for the descriptors of the caller: one for each, however many ranges it has.
type Opened = BTreeMap<i64, Arc<File>>;

/// Adds a file of the array.
///
/// # Safety
///
/// As the header says of the struct's pointers and descriptor.
unsafe fn add(given: &mut GivenFiles, file: &nvllm_model_file, opened: &mut Opened) -> Result<(), Refusal> {
    // SAFETY: the caller says so.
    unsafe { given.add(memory::c_text("name", file.name)?, file.bytes(opened)?)? };
    Ok(())
}

// SAFETY: repr(C), struct_size first; integers and pointers.
unsafe impl Versioned for nvllm_model_file {
    const NAME: &'static str = "nvllm_model_file";
}

impl nvllm_model_file {
    const DEFAULT: nvllm_model_file = nvllm_model_file {
        struct_size: size_of::<nvllm_model_file>(),
        name: std::ptr::null(),
        kind: nvllm_file_kind::NVLLM_FILE_MEMORY as i32,
        reserved: 0,
        data: std::ptr::null(),
        descriptor: -1,
        offset: 0,
        size: 0,
    };

    /// What the file consists of.
    ///
    /// # Safety
    ///
    /// As the header says of `data` and `descriptor`.
    unsafe fn bytes(&self, opened: &mut Opened) -> Result<Given, Refusal> {
        const MEMORY: i32 = nvllm_file_kind::NVLLM_FILE_MEMORY as i32;
        const RANGE: i32 = nvllm_file_kind::NVLLM_FILE_RANGE as i32;
        let refuse = |field, value: String, wanted| Err(Error::Option { field, value, wanted }.into());
        if self.reserved != 0 {
            return refuse("reserved", self.reserved.to_string(), "0");
        }
        match self.kind {
            MEMORY if self.descriptor != -1 => {
                refuse("descriptor", self.descriptor.to_string(), "-1 for a file in memory")
            }
            MEMORY if self.offset != 0 => refuse("offset", self.offset.to_string(), "0 for a file in memory"),
            MEMORY => {
                let len = usize::try_from(self.size).unwrap_or(usize::MAX);
                // SAFETY: the header asks for `size` bytes that stay as they are while the engine uses them.
                let bytes = unsafe { memory::slice("data", self.data.cast::<u8>(), len)? };
                // SAFETY: the same promise. A slice is not null.
                Ok(Given::Memory(unsafe { HostBytes::of_caller(bytes.as_ptr(), len) }))
            }
            RANGE if !self.data.is_null() => refuse("data", "not NULL".into(), "NULL for a range of an open file"),
            RANGE => {
                // SAFETY: `add` has read the name.
                let name = unsafe { memory::c_text("name", self.name)? };
                let file = match opened.entry(self.descriptor) {
                    Entry::Occupied(file) => file.into_mut(),
                    Entry::Vacant(place) => {
                        // SAFETY: the header asks for an open file.
                        let file = unsafe { duplicate(self.descriptor) };
                        let (path, descriptor) = (GivenFiles::path(Some(name)), self.descriptor);
                        place.insert(Arc::new(file.map_err(|source| Error::Descriptor { path, descriptor, source })?))
                    }
                };
                Ok(Given::Range { file: file.clone(), offset: self.offset, len: self.size })
            }
            other => refuse("kind", other.to_string(), "one of NVLLM_FILE_*, 0 or 1"),
        }
    }
}
