//! The demo model's answers, through the C API: what a first run shows is true.

use capi::engine::{
    nvllm_engine, nvllm_engine_config, nvllm_engine_config_init, nvllm_engine_free, nvllm_engine_new,
    nvllm_quantization,
};
use capi::generate::{nvllm_generate, nvllm_result_count, nvllm_result_free, nvllm_result_get};
use capi::requests::{nvllm_request_options, nvllm_request_options_init};
use capi::status::nvllm_error;
use capi::stepping::nvllm_output;
use capi::text::nvllm_apply_chat_template;
use serde_json::Value;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr::{null, null_mut};

const OK: i32 = 0;
const BUFFER_TOO_SMALL: i32 = -2;

fn folder() -> PathBuf {
    crate::tree::root().join("models/demo")
}

/// The text of an error that a call has written.
fn words(error: &MaybeUninit<nvllm_error>) -> String {
    // SAFETY: every call writes its error, and the message ends with a NUL.
    unsafe { CStr::from_ptr(error.assume_init_ref().message.as_ptr()) }.to_string_lossy().into_owned()
}

fn open(quantization: i32) -> *mut nvllm_engine {
    let path = CString::new(folder().to_str().expect("a UTF-8 path")).expect("a path without NUL");
    let mut config = MaybeUninit::<nvllm_engine_config>::uninit();
    let mut error = MaybeUninit::uninit();
    let mut engine = null_mut();
    // SAFETY: the init function writes the whole config; all pointers lead to live places.
    unsafe {
        nvllm_engine_config_init(config.as_mut_ptr(), size_of::<nvllm_engine_config>());
        let config = config.assume_init_mut();
        config.model_path = path.as_ptr();
        config.quantization = quantization;
        assert_eq!(nvllm_engine_new(config, &raw mut engine, Some(&mut error)), OK, "{}", words(&error));
    }
    engine
}

fn prompt_of(engine: *mut nvllm_engine, messages: &Value) -> Vec<u8> {
    let messages = messages.to_string();
    let mut error = MaybeUninit::uninit();
    let mut needed = 0;
    let mut text: Vec<u8> = Vec::new();
    for wanted in [BUFFER_TOO_SMALL, OK] {
        // SAFETY: the engine is live, and the lengths are those of the memory behind the pointers.
        let status = unsafe {
            let (data, capacity) = (if text.is_empty() { null_mut() } else { text.as_mut_ptr() }, text.len());
            let message = messages.as_ptr().cast();
            nvllm_apply_chat_template(
                engine,
                message,
                messages.len(),
                null(),
                0,
                data.cast(),
                capacity,
                &raw mut needed,
                Some(&mut error),
            )
        };
        assert_eq!(status, wanted, "{}", words(&error));
        text.resize(needed, 0);
    }
    text.pop();
    text
}

fn answers(engine: *mut nvllm_engine, prompts: &[Vec<u8>]) -> Vec<String> {
    let pointers: Vec<_> = prompts.iter().map(|prompt| prompt.as_ptr().cast()).collect();
    let lens: Vec<_> = prompts.iter().map(Vec::len).collect();
    let mut error = MaybeUninit::uninit();
    let mut result = null_mut();
    let mut options = MaybeUninit::<nvllm_request_options>::uninit();
    // Greedy: without options the model's own generation_config.json would sample.
    // SAFETY: the init function writes at most the size that it is given.
    unsafe { nvllm_request_options_init(options.as_mut_ptr(), size_of::<nvllm_request_options>()) };
    let shared = options.as_ptr();
    // SAFETY: the engine is live, the arrays have as many entries as there are prompts, and outputs are copied before the
    // result is freed.
    unsafe {
        let status = nvllm_generate(
            engine,
            pointers.as_ptr(),
            lens.as_ptr(),
            prompts.len(),
            &raw const shared,
            1,
            None,
            null_mut(),
            &raw mut result,
            Some(&mut error),
        );
        assert_eq!(status, OK, "{}", words(&error));
        assert_eq!(nvllm_result_count(result), prompts.len());
        let texts = (0..prompts.len())
            .map(|index| {
                let mut output = MaybeUninit::<nvllm_output>::zeroed().assume_init();
                output.struct_size = size_of::<nvllm_output>();
                assert_eq!(nvllm_result_get(result, index, &raw mut output), OK);
                CStr::from_ptr(output.text).to_string_lossy().into_owned()
            })
            .collect();
        nvllm_result_free(result);
        texts
    }
}

/// The answers of an engine that are not the expected ones, and how many are expected.
fn wrong_answers(quantization: i32) -> (Vec<String>, usize) {
    let text = std::fs::read_to_string(folder().join("expected.json")).expect("models/demo/expected.json");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("an array of cases");
    assert!(cases.len() >= 169, "99 prime lists, 50 sums and 20 dialogues, but there are {}", cases.len());
    let engine = open(quantization);
    let prompts: Vec<_> = cases.iter().map(|case| prompt_of(engine, &case["messages"])).collect();
    let wrong: Vec<_> = cases
        .iter()
        .zip(answers(engine, &prompts))
        .filter(|(case, answer)| case["answer"].as_str() != Some(answer.as_str()))
        .map(|(case, answer)| format!("{}: wanted {}, got {answer:?}", case["name"], case["answer"]))
        .collect();
    // SAFETY: the engine is live and not used again.
    unsafe { nvllm_engine_free(engine) };
    (wrong, cases.len())
}

#[test]
fn every_expected_answer_is_given() {
    let (wrong, all) = wrong_answers(nvllm_quantization::NVLLM_QUANTIZATION_NONE as i32);
    assert!(wrong.is_empty(), "{} of {all} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_expected_answer_is_given_with_weights_of_8_bits() {
    let (wrong, all) = wrong_answers(nvllm_quantization::NVLLM_QUANTIZATION_INT8 as i32);
    assert!(wrong.is_empty(), "{} of {all} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn nearly_every_expected_answer_is_given_with_weights_of_4_bits() {
    let (wrong, all) = wrong_answers(nvllm_quantization::NVLLM_QUANTIZATION_INT4 as i32);
    println!("{} of {all} answers differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(wrong.len() * 10 <= all, "{} of {all} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
