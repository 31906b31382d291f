//! How does the program call the library? A safe wrapper over [`ffi`], with values that are the program's own.
//!
//! Invariant: an [`Engine`] is used by the thread that opened it alone, as its raw pointer ensures, so that no call meets another one.
#![allow(unsafe_code)]

use crate::ffi;
use nanovllm_cli::engine_options::{EngineOptions, KvCacheDtype, Quantization};
use nanovllm_cli::{Explain, Pooling, RequestOptions};
use std::ffi::{CStr, CString, NulError, c_char, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;

pub use ffi::{nvllm_model_info as ModelInfo, nvllm_stats as Stats, nvllm_step_result as Step};

/// Why a call of the library failed.
#[derive(Clone, Debug)]
pub struct Error {
    pub status: i32,
    pub message: String,
}

impl Error {
    pub fn is_context_length(&self) -> bool {
        self.status == ffi::CONTEXT_LENGTH
    }

    pub fn is_queue_full(&self) -> bool {
        self.status == ffi::QUEUE_FULL
    }

    pub fn is_not_found(&self) -> bool {
        self.status == ffi::NOT_FOUND
    }

    /// The name of the status, such as "NVLLM_ERR_MODEL".
    pub fn status_name(&self) -> &'static str {
        // SAFETY: the header promises a static string for every number.
        unsafe { static_text(ffi::nvllm_status_name(self.status)) }
    }
}

impl From<NulError> for Error {
    fn from(error: NulError) -> Error {
        let message = format!("a text has a NUL at byte {}: C strings have none", error.nul_position());
        Error { status: INVALID_ARGUMENT, message }
    }
}

const INVALID_ARGUMENT: ffi::nvllm_status = -1;
const FINISH_STOP: i32 = 1;
const FINISH_LENGTH: i32 = 2;
const FINISH_CANCELLED: i32 = 3;
const FINISH_ERROR: i32 = 4;
const FINISH_EXPIRED: i32 = 5;
const LOG_DEBUG: i32 = 4;
const STRUCTURE_JSON_SCHEMA: i32 = 1;
const STRUCTURE_REGEX: i32 = 2;
const STRUCTURE_LARK: i32 = 3;
/// The coding of a part that a model does not have.
pub const CODING_NONE: i32 = 0;

/// # Safety
///
/// `text` is a NUL-terminated string that is never freed.
unsafe fn static_text(text: *const c_char) -> &'static str {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("not UTF-8")
}

/// Makes a call that writes an nvllm_error, and turns a negative status into an error. Conditions, which are positive, are returned.
fn call(function: impl FnOnce(*mut ffi::nvllm_error) -> ffi::nvllm_status) -> Result<ffi::nvllm_status, Error> {
    let mut error = ffi::nvllm_error { status: 0, native_code: 0, message: [0; 504] };
    let status = function(&raw mut error);
    if status >= 0 {
        return Ok(status);
    }
    let bytes: Vec<u8> = error.message.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    Err(Error { status, message: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Fills a struct by its _init function.
fn init<T>(function: unsafe extern "C" fn(*mut T, usize)) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the function writes at most as many bytes as the struct has, and zeros are a value of every struct of the header.
    unsafe {
        function(value.as_mut_ptr(), size_of::<T>());
        value.assume_init()
    }
}

/// A JSON object about the build and the machine.
pub fn build_info() -> &'static str {
    // SAFETY: the header promises a static string.
    unsafe { static_text(ffi::nvllm_build_info()) }
}

/// Hands the messages of the library to a function.
pub fn log_to(print: fn(&str)) {
    unsafe extern "C" fn receive(_: i32, message: *const c_char, len: usize, user_data: *mut c_void) {
        // SAFETY: `log_to` passed a function of this type as user data, and functions are never freed.
        let print = unsafe { std::mem::transmute::<*mut c_void, fn(&str)>(user_data) };
        // SAFETY: the header promises `len` bytes during this call.
        let bytes = unsafe { slice::from_raw_parts(message.cast::<u8>(), len) };
        print(&String::from_utf8_lossy(bytes));
    }
    // SAFETY: callback and user data are functions, which are never freed.
    unsafe { ffi::nvllm_set_log_callback(Some(receive), print as *mut c_void, LOG_DEBUG) };
}

/// Receives the fraction of a file's work that is done.
pub type Progress<'a> = &'a mut dyn FnMut(f32);

unsafe extern "C" fn progress(fraction: f32, user_data: *mut c_void) -> i32 {
    // SAFETY: callers pass a pointer to a Progress that outlives the call of the library.
    let show = unsafe { &mut *user_data.cast::<Progress>() };
    show(fraction);
    0
}

fn c_path(path: &Path) -> Result<CString, Error> {
    let text = path.to_str().ok_or_else(|| Error {
        status: INVALID_ARGUMENT,
        message: format!("{}: a path in UTF-8 is wanted", path.display()),
    })?;
    Ok(CString::new(text)?)
}

/// Writes a model folder again, with weights that are quantized.
pub fn quantize(model: &Path, to: &Path, bits: Quantization, mut show: Progress) -> Result<(), Error> {
    let (model, to) = (c_path(model)?, c_path(to)?);
    let user_data = (&raw mut show).cast::<c_void>();
    // SAFETY: the strings are NUL-terminated, and `show` lives until the call has returned.
    call(|error| unsafe {
        ffi::nvllm_quantize_folder(model.as_ptr(), to.as_ptr(), bits as i32, Some(progress), user_data, error)
    })?;
    Ok(())
}

/// Describes the kernels of a layer.
pub fn explain(wanted: &Explain, options: &EngineOptions) -> Result<String, Error> {
    let model = c_path(&wanted.model)?;
    let gpu = wanted.gpu.as_deref().map(CString::new).transpose()?;
    let mut config = init(ffi::nvllm_engine_config_init);
    config.model_path = model.as_ptr();
    config.dtype = options.dtype.map_or(config.dtype, |dtype| dtype as i32);
    config.max_model_len = options.max_model_len.unwrap_or(0);
    config.batch_invariant = options.batch_invariant.into();
    config.kv_cache_dtype = options.kv_cache_dtype.unwrap_or(KvCacheDtype::Auto) as i32;
    config.quantization = options.quantization.unwrap_or(Quantization::None) as i32;
    config.tensor_parallel_size = options.tensor_parallel_size.unwrap_or(0);
    let mut question = init(ffi::nvllm_explain_options_init);
    question.gpu = gpu.as_ref().map_or(ptr::null(), |gpu| gpu.as_ptr());
    question.rows = wanted.rows;
    question.tokens = wanted.tokens;
    question.context_len = wanted.context.unwrap_or(0);
    question.layer = wanted.layer;
    let mut text: Vec<u8> = Vec::new();
    let mut needed = 1 << 14;
    loop {
        text.resize(needed, 0);
        // SAFETY: the structs and what they point to live until the call has returned, and the text has room for as many bytes as are said.
        let called = call(|error| unsafe {
            let (to, capacity) = (text.as_mut_ptr().cast(), text.len());
            ffi::nvllm_explain(&raw const config, &raw const question, to, capacity, &raw mut needed, error)
        });
        match called {
            Ok(_) => {
                text.truncate(needed.saturating_sub(1));
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            Err(error) if error.status == ffi::BUFFER_TOO_SMALL && needed > text.len() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Which of the processes of a job this is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessOfJob {
    /// How many there are; 0 is this one alone.
    pub processes: u32,
    pub index: u32,
    /// Which of those on this host this is.
    pub local_index: u32,
    pub rendezvous: Option<String>,
}

pub struct Engine(NonNull<ffi::nvllm_engine>);

impl Engine {
    pub fn open(
        model: &Path,
        options: &EngineOptions,
        place: &ProcessOfJob,
        mut show: Progress,
    ) -> Result<Engine, Error> {
        let model = c_path(model)?;
        let rendezvous = place.rendezvous.as_deref().map(CString::new).transpose()?;
        let mut config = init(ffi::nvllm_engine_config_init);
        config.model_path = model.as_ptr();
        if let Some(device) = options.device {
            config.device = device as i32;
        }
        let ranks = options.tensor_parallel_size.unwrap_or(place.processes);
        // Processes of one host have the GPUs one after the other.
        if options.device != Some(nanovllm_cli::engine_options::Device::Cpu) {
            let ranks_here = ranks / place.processes.max(1);
            config.device_index += (place.local_index * ranks_here).cast_signed();
        }
        config.dtype = options.dtype.map_or(config.dtype, |dtype| dtype as i32);
        config.num_threads = options.threads.unwrap_or(0);
        config.max_model_len = options.max_model_len.unwrap_or(0);
        config.max_num_seqs = options.max_num_seqs.unwrap_or(0);
        config.max_batched_tokens = options.max_batched_tokens.unwrap_or(0);
        config.kv_cache_bytes = options.kv_cache_bytes.unwrap_or(0);
        config.memory_utilization = options.memory_utilization.unwrap_or(0.0);
        config.gpu_memory_bytes = options.gpu_memory_bytes.unwrap_or(0);
        config.host_expert_layers = match options.host_expert_layers {
            None => 0,
            Some(0) => -1,
            Some(layers) => i32::try_from(layers).unwrap_or(i32::MAX),
        };
        config.batch_invariant = options.batch_invariant.into();
        config.kv_cache_dtype = options.kv_cache_dtype.unwrap_or(KvCacheDtype::Auto) as i32;
        config.quantization = options.quantization.unwrap_or(Quantization::None) as i32;
        config.tensor_parallel_size = ranks;
        config.expert_parallel = options.expert_parallel.into();
        if let Some(devices) = &options.devices {
            config.device_indices = devices.0.as_ptr();
            config.num_device_indices = u32::try_from(devices.0.len()).unwrap_or(u32::MAX);
        }
        config.num_processes = place.processes;
        config.process_index = place.index;
        config.peer_timeout_ms = options.peer_timeout_ms.unwrap_or(0);
        config.rendezvous = rendezvous.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        config.progress = Some(progress);
        config.progress_user_data = (&raw mut show).cast();
        let mut engine = ptr::null_mut();
        // SAFETY: what the config points to, `show` included, lives until the call has returned.
        call(|error| unsafe { ffi::nvllm_engine_new(&raw const config, &raw mut engine, error) })?;
        Ok(Engine(NonNull::new(engine).expect("a new engine is not NULL")))
    }

    fn raw(&self) -> *mut ffi::nvllm_engine {
        self.0.as_ptr()
    }

    /// Computes what process 0 schedules, until that frees its engine.
    pub fn follow(&mut self) -> Result<(), Error> {
        // SAFETY: the engine is open; a result may be NULL.
        while call(|error| unsafe { ffi::nvllm_step(self.raw(), 0, ptr::null_mut(), error) })? != ffi::CLOSED {}
        Ok(())
    }

    pub fn model_info(&self) -> Result<ModelInfo, Error> {
        let mut info = init(ffi::nvllm_model_info_init);
        // SAFETY: the engine is open, and the struct has the size that it says.
        call(|error| unsafe { ffi::nvllm_engine_model_info(self.raw(), &raw mut info, error) })?;
        Ok(info)
    }

    pub fn stats(&self) -> Result<Stats, Error> {
        let mut stats = init(ffi::nvllm_stats_init);
        // SAFETY: the engine is open, and the struct has the size that it says.
        call(|error| unsafe { ffi::nvllm_get_stats(self.raw(), &raw mut stats, error) })?;
        Ok(stats)
    }

    /// A request as the model recommends it.
    pub fn recommended(&self) -> Result<Request, Error> {
        let mut request = Request::greedy();
        // SAFETY: the engine is open, and the struct has the size that it says.
        call(|error| unsafe { ffi::nvllm_default_options(self.raw(), &raw mut request.options, error) })?;
        Ok(request)
    }

    /// Queues a text, and returns the id of the request.
    pub fn add(&mut self, prompt: &str, request: &Request) -> Result<u64, Error> {
        let (lists, mut id) = (request.lists(), 0);
        let options = request.with_lists(&lists);
        // SAFETY: prompt, options and what these point to live until the call has returned.
        call(|error| unsafe {
            let (text, len) = (prompt.as_ptr().cast(), prompt.len());
            ffi::nvllm_add_request(self.raw(), text, len, &raw const options, &raw mut id, error)
        })?;
        Ok(id)
    }

    /// Queues tokens, and returns the id of the request.
    pub fn add_tokens(&mut self, tokens: &[u32], request: &Request) -> Result<u64, Error> {
        let (lists, mut id) = (request.lists(), 0);
        let options = request.with_lists(&lists);
        // SAFETY: tokens, options and what these point to live until the call has returned.
        call(|error| unsafe {
            ffi::nvllm_add_request_tokens(
                self.raw(),
                tokens.as_ptr(),
                tokens.len(),
                &raw const options,
                &raw mut id,
                error,
            )
        })?;
        Ok(id)
    }

    /// Cancels a request; one that has ended stays as it is.
    pub fn cancel(&mut self, id: u64) {
        // SAFETY: the engine is open.
        unsafe { ffi::nvllm_cancel(self.raw(), id) };
    }

    /// Runs one forward pass to its end.
    pub fn step(&mut self) -> Result<Step, Error> {
        let mut result = init(ffi::nvllm_step_result_init);
        // SAFETY: the engine is open, and the struct has the size that it says.
        call(|error| unsafe { ffi::nvllm_step(self.raw(), 0, &raw mut result, error) })?;
        Ok(result)
    }

    pub fn is_finished(&self) -> bool {
        // SAFETY: the engine is open.
        unsafe { ffi::nvllm_is_finished(self.raw()) != 0 }
    }

    /// The oldest output that is waiting.
    pub fn poll(&mut self) -> Result<Option<Output>, Error> {
        let mut output = init(ffi::nvllm_output_init);
        // SAFETY: the engine is open, and the struct has the size that it says.
        match call(|error| unsafe { ffi::nvllm_poll_output(self.raw(), &raw mut output, error) })? {
            ffi::NO_OUTPUT => Ok(None),
            // SAFETY: the output was just polled, and no call was made on the engine since.
            _ => Ok(Some(unsafe { Output::copied(&output) })),
        }
    }

    /// The prompt of a conversation, which is JSON, by the model's chat template. `ends_open` lets the model answer.
    pub fn chat_prompt(&self, messages: &str, ends_open: bool) -> Result<String, Error> {
        let options = format!("{{\"add_generation_prompt\":{ends_open}}}");
        let mut bytes = read_buffer(|buffer: &mut Vec<u8>, needed, error| {
            // SAFETY: the engine is open, the texts have the lengths that are passed, and the buffer its capacity.
            unsafe {
                ffi::nvllm_apply_chat_template(
                    self.raw(),
                    messages.as_ptr().cast(),
                    messages.len(),
                    options.as_ptr().cast(),
                    options.len(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    needed,
                    error,
                )
            }
        })?;
        bytes.pop(); // the NUL
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The tokens of a prompt, as [`Engine::add`] makes them.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>, Error> {
        read_buffer(|buffer: &mut Vec<u32>, needed, error| {
            // SAFETY: the engine is open, the text has the length that is passed, and the buffer its capacity.
            unsafe {
                ffi::nvllm_tokenize(
                    self.raw(),
                    text.as_ptr().cast(),
                    text.len(),
                    ffi::TOKENIZE_PARSE_SPECIAL,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    needed,
                    error,
                )
            }
        })
    }

    /// The keys and values of these tokens as far as they are cached.
    pub fn save_prefix(&mut self, tokens: &[u32]) -> Result<Vec<u8>, Error> {
        read_buffer(|buffer: &mut Vec<u8>, needed, error| {
            // SAFETY: the engine is open, and tokens and buffer have the lengths that are passed.
            unsafe {
                ffi::nvllm_save_prefix(
                    self.raw(),
                    tokens.as_ptr(),
                    tokens.len(),
                    0,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    needed,
                    ptr::null_mut(),
                    error,
                )
            }
        })
    }

    /// Puts keys and values back, and returns of how many tokens.
    pub fn restore_prefix(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut restored = 0;
        // SAFETY: the engine is open, and the bytes are as many as is said.
        call(|error| unsafe {
            ffi::nvllm_restore_prefix(self.raw(), bytes.as_ptr(), bytes.len(), &raw mut restored, error)
        })?;
        Ok(restored)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: it is freed once, here.
        unsafe { ffi::nvllm_engine_free(self.raw()) };
    }
}

/// Calls a function that fills a buffer: once for its size, and again with room for it.
fn read_buffer<T: Clone + Default>(
    mut fill: impl FnMut(&mut Vec<T>, *mut usize, *mut ffi::nvllm_error) -> ffi::nvllm_status,
) -> Result<Vec<T>, Error> {
    let (mut buffer, mut needed) = (Vec::new(), 0);
    loop {
        match call(|error| fill(&mut buffer, &raw mut needed, error)) {
            Ok(_) => {
                buffer.truncate(needed);
                return Ok(buffer);
            }
            Err(error) if error.status == ffi::BUFFER_TOO_SMALL => buffer.resize(needed, T::default()),
            Err(error) => return Err(error),
        }
    }
}

/// What answers must look like.
pub enum Structure {
    JsonSchema(String),
    Regex(String),
    Lark(String),
}

/// The options of a request.
pub struct Request {
    options: ffi::nvllm_request_options,
    stop: Vec<CString>,
    dry_breakers: Option<Vec<CString>>,
    structure: Option<CString>,
}

impl Request {
    /// Greedy decoding without limits.
    pub fn greedy() -> Request {
        let options = init(ffi::nvllm_request_options_init);
        Request { options, stop: Vec::new(), dry_breakers: None, structure: None }
    }

    /// The options of the command line; what it does not name stays.
    pub fn with(mut self, wanted: &RequestOptions) -> Result<Request, Error> {
        fn set<T>(field: &mut T, wanted: Option<T>) {
            if let Some(value) = wanted {
                *field = value;
            }
        }
        let options = &mut self.options;
        set(&mut options.max_tokens, wanted.max_tokens);
        set(&mut options.temperature, wanted.temperature);
        set(&mut options.top_p, wanted.top_p);
        set(&mut options.top_k, wanted.top_k);
        set(&mut options.min_p, wanted.min_p);
        set(&mut options.seed, wanted.seed);
        set(&mut options.repetition_penalty, wanted.repetition_penalty);
        set(&mut options.presence_penalty, wanted.presence_penalty);
        set(&mut options.frequency_penalty, wanted.frequency_penalty);
        set(&mut options.dry_multiplier, wanted.dry_multiplier);
        set(&mut options.dry_base, wanted.dry_base);
        set(&mut options.dry_allowed_length, wanted.dry_allowed_length);
        set(&mut options.dry_penalty_last_n, wanted.dry_penalty_last_n);
        set(&mut options.top_n_sigma, wanted.top_n_sigma);
        set(&mut options.xtc_probability, wanted.xtc_probability);
        set(&mut options.xtc_threshold, wanted.xtc_threshold);
        options.ignore_eos = wanted.ignore_eos.into();
        let texts = |texts: &[String]| texts.iter().map(|text| CString::new(text.as_str())).collect::<Result<_, _>>();
        self.stop = texts(&wanted.stop)?;
        self.dry_breakers = match wanted.dry_sequence_breaker.as_slice() {
            [] => None,
            [none] if none == "none" => Some(Vec::new()),
            breakers => Some(texts(breakers)?),
        };
        Ok(self)
    }

    /// A benchmark's request: exactly `tokens` tokens.
    pub fn of_length(tokens: u32) -> Request {
        let mut request = Request::greedy();
        request.options.max_tokens = tokens;
        request.options.ignore_eos = 1;
        request
    }

    /// A request for an embedding.
    pub fn pooled(pooling: Pooling) -> Request {
        let mut request = Request::greedy();
        request.options.pooling = pooling as u32;
        request
    }

    pub fn constrained(mut self, structure: &Structure) -> Result<Request, Error> {
        let (kind, text) = match structure {
            Structure::JsonSchema(text) => (STRUCTURE_JSON_SCHEMA, text),
            Structure::Regex(text) => (STRUCTURE_REGEX, text),
            Structure::Lark(text) => (STRUCTURE_LARK, text),
        };
        self.options.structure_kind = kind;
        self.structure = Some(CString::new(text.as_str())?);
        Ok(self)
    }

    pub fn set_tag(&mut self, tag: u64) {
        self.options.tag = tag;
    }

    pub fn max_tokens(&self) -> u32 {
        self.options.max_tokens
    }

    fn lists(&self) -> Lists {
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect();
        Lists { stop: pointers(&self.stop), dry_breakers: self.dry_breakers.as_deref().map(pointers) }
    }

    /// The struct for a call, valid while this and `lists` are.
    fn with_lists(&self, lists: &Lists) -> ffi::nvllm_request_options {
        let mut options = self.options;
        options.stop = if lists.stop.is_empty() { ptr::null() } else { lists.stop.as_ptr() };
        options.num_stop = lists.stop.len();
        if let Some(breakers) = &lists.dry_breakers {
            // An empty list is none; without a list there are the usual ones.
            options.dry_sequence_breakers = breakers.as_ptr();
            options.num_dry_sequence_breakers = breakers.len();
        }
        options.structure = self.structure.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        options
    }
}

/// The lists of a request as C has them.
struct Lists {
    stop: Vec<*const c_char>,
    dry_breakers: Option<Vec<*const c_char>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Stop,
    Length,
    Cancelled,
    Error,
    Expired,
}

impl Finish {
    /// The names of the OpenAI API, and of what it lacks.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Cancelled => "cancelled",
            Finish::Error => "error",
            Finish::Expired => "expired",
        }
    }
}

/// What is new of a completion.
pub struct Output {
    pub tag: u64,
    pub text: String,
    pub token_ids: Vec<u32>,
    pub finish: Option<Finish>,
    pub error: Option<Error>,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub completion_tokens: u32,
    pub embedding: Vec<f32>,
}

impl Output {
    /// # Safety
    ///
    /// The pointers of `output` are valid: no call was made on its engine since it was polled.
    unsafe fn copied(output: &ffi::nvllm_output) -> Output {
        /// # Safety
        ///
        /// `from` is NULL or has `len` values.
        unsafe fn values<T: Clone>(from: *const T, len: usize) -> Vec<T> {
            if from.is_null() || len == 0 {
                return Vec::new();
            }
            // SAFETY: the caller's promise.
            unsafe { slice::from_raw_parts(from, len) }.to_vec()
        }
        // SAFETY: the header gives each pointer the length beside it.
        let (text, token_ids, embedding) = unsafe {
            (
                values(output.text.cast::<u8>(), output.text_len),
                values(output.token_ids, output.num_token_ids),
                values(output.embedding, output.embedding_len),
            )
        };
        let finish = match output.finish_reason {
            FINISH_STOP => Some(Finish::Stop),
            FINISH_LENGTH => Some(Finish::Length),
            FINISH_CANCELLED => Some(Finish::Cancelled),
            FINISH_ERROR => Some(Finish::Error),
            FINISH_EXPIRED => Some(Finish::Expired),
            _ => None,
        };
        let error = (!output.error_message.is_null()).then(|| {
            // SAFETY: the header promises a NUL-terminated message where there is one.
            let message = unsafe { CStr::from_ptr(output.error_message) };
            Error { status: output.status, message: message.to_string_lossy().into_owned() }
        });
        Output {
            tag: output.tag,
            text: String::from_utf8_lossy(&text).into_owned(),
            token_ids,
            finish,
            error,
            prompt_tokens: output.prompt_tokens,
            cached_tokens: output.cached_tokens,
            completion_tokens: output.completion_tokens,
            embedding,
        }
    }
}

#[cfg(all(test, feature = "static"))]
mod tests {
    use super::*;
    use capi::engine::{
        nvllm_coding as coding, nvllm_device as device, nvllm_dtype as dtype, nvllm_kv_cache_dtype as kv_cache_dtype,
        nvllm_quantization as quantization,
    };
    use capi::requests::{nvllm_pooling as pooling, nvllm_structure as structure};
    use capi::stepping::nvllm_finish as finish;
    use nanovllm_cli::engine_options::{Device, Dtype};

    #[test]
    fn every_number_is_that_of_the_header() {
        let numbers = [
            (Device::Auto as i32, device::NVLLM_DEVICE_AUTO as i32),
            (Device::Cpu as i32, device::NVLLM_DEVICE_CPU as i32),
            (Device::Cuda as i32, device::NVLLM_DEVICE_CUDA as i32),
            (Dtype::Auto as i32, dtype::NVLLM_DTYPE_AUTO as i32),
            (Dtype::F32 as i32, dtype::NVLLM_DTYPE_F32 as i32),
            (Dtype::F16 as i32, dtype::NVLLM_DTYPE_F16 as i32),
            (Dtype::Bf16 as i32, dtype::NVLLM_DTYPE_BF16 as i32),
            (KvCacheDtype::Auto as i32, kv_cache_dtype::NVLLM_KV_CACHE_AUTO as i32),
            (KvCacheDtype::Int8 as i32, kv_cache_dtype::NVLLM_KV_CACHE_INT8 as i32),
            (Quantization::None as i32, quantization::NVLLM_QUANTIZATION_NONE as i32),
            (Quantization::Int8 as i32, quantization::NVLLM_QUANTIZATION_INT8 as i32),
            (Quantization::Int4 as i32, quantization::NVLLM_QUANTIZATION_INT4 as i32),
            (Pooling::Last as i32, pooling::NVLLM_POOLING_LAST as i32),
            (Pooling::Mean as i32, pooling::NVLLM_POOLING_MEAN as i32),
            (Pooling::Cls as i32, pooling::NVLLM_POOLING_CLS as i32),
            (Pooling::Auto as i32, pooling::NVLLM_POOLING_AUTO as i32),
            (STRUCTURE_JSON_SCHEMA, structure::NVLLM_STRUCTURE_JSON_SCHEMA as i32),
            (STRUCTURE_REGEX, structure::NVLLM_STRUCTURE_REGEX as i32),
            (STRUCTURE_LARK, structure::NVLLM_STRUCTURE_LARK as i32),
            (FINISH_STOP, finish::NVLLM_FINISH_STOP as i32),
            (FINISH_LENGTH, finish::NVLLM_FINISH_LENGTH as i32),
            (FINISH_CANCELLED, finish::NVLLM_FINISH_CANCELLED as i32),
            (FINISH_ERROR, finish::NVLLM_FINISH_ERROR as i32),
            (FINISH_EXPIRED, finish::NVLLM_FINISH_EXPIRED as i32),
            (LOG_DEBUG, capi::logging::nvllm_log_level::NVLLM_LOG_DEBUG as i32),
            (INVALID_ARGUMENT, capi::status::nvllm_status_code::NVLLM_ERR_INVALID_ARGUMENT as i32),
            (CODING_NONE, coding::NVLLM_CODING_NONE as i32),
        ];
        for (ours, theirs) in numbers {
            assert_eq!(ours, theirs, "{numbers:?}");
        }
    }
}
