//! Checkpoints in which a decoder of a known family is one part among others, such as a vision tower.
//!
//! Only the decoder is read: `text_config` describes it, and its tensors have a prefix. Such a model answers text as its decoder alone does.

use crate::families::{gemma3, ministral3, mistral};
use crate::family::Family;
use crate::names::Root;

/// A class that holds a decoder.
pub struct Wrapper {
    /// What `architectures` of a config.json names.
    pub class: &'static str,
    /// What people call these models. docs/models.md has it.
    #[cfg_attr(not(test), expect(dead_code))]
    pub models: &'static str,
    /// What `model_type` has to be where it is given.
    pub model_type: &'static str,
    /// What `model_type` of `text_config` may name; the first where it names nothing.
    pub families: &'static [&'static Family],
    /// The same, for messages.
    pub decoders: &'static str,
    /// Where the decoder may be among the tensors.
    pub roots: &'static [Root],
    /// Beginnings of the names of the tensors of other parts.
    pub ignored: &'static [&'static str],
    /// Fields of the config that describe other parts.
    pub harmless: &'static [&'static str],
}

/// All wrappers.
pub const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        class: "Gemma3ForConditionalGeneration",
        models: "Gemma 3 4B, 12B and 27B, text only",
        model_type: "gemma3",
        families: &[&gemma3::FAMILY],
        decoders: "gemma3_text",
        roots: ROOTS,
        ignored: IGNORED,
        harmless: HARMLESS,
    },
    Wrapper {
        class: "Mistral3ForConditionalGeneration",
        models: "Mistral Small 3.1 and 3.2, Ministral 3, text only",
        model_type: "mistral3",
        families: &[&mistral::FAMILY, &ministral3::FAMILY],
        decoders: "mistral or ministral3",
        roots: ROOTS,
        ignored: IGNORED,
        harmless: HARMLESS,
    },
];

/// transformers has moved the decoder within the model and the head out of it; checkpoints of both forms are common.
const ROOTS: &[Root] = &[
    Root { body: "language_model.model.", head: "language_model." },
    Root { body: "model.language_model.", head: "" },
];

const IGNORED: &[&str] = &[
    "vision_tower.",
    "multi_modal_projector.",
    "audio_tower.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.audio_tower.",
    "mtp.",
    "model.mtp.",
];

const HARMLESS: &[&str] = &[
    "vision_config",
    "audio_config",
    "image_token_id",
    "image_token_index",
    "boi_token_index",
    "eoi_token_index",
    "mm_tokens_per_image",
    "multimodal_projector_bias",
    "projector_hidden_act",
    "spatial_merge_size",
    "vision_feature_layer",
];
