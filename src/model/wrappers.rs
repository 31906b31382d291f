//! Checkpoints in which a decoder of a known family is one part among others, such as a vision tower.
//!
//! Only the decoder is read: `text_config` describes it, and its tensors have a prefix. Such a model answers text as its decoder alone does.

use crate::families::{
    deepseek_v3, gemma3, gemma4, glm4, glm4_moe, gpt_oss, lfm2, lfm3, llama, ministral3, mistral, mistral4,
    muse_glimmer, qwen2, qwen3, qwen3_5, qwen3_5_moe, qwen3_moe,
};
use crate::family::Family;
use crate::fields::Fields;
use crate::names::Root;
use serde_json::{Map, Value};

/// A class that holds a decoder.
pub struct Wrapper {
    /// What `architectures` of a config.json names.
    pub class: &'static str,
    /// What people call these models. docs/models.md has it.
    #[cfg_attr(not(test), expect(dead_code))]
    pub models: &'static str,
    /// What `model_type` has to be where it is given.
    pub model_type: &'static str,
    /// What `model_type` of `text_config` may name, and the family of each; the first where it names nothing.
    pub families: &'static [(&'static str, &'static Family)],
    /// The same, for messages.
    pub decoders: &'static str,
    /// Where the decoder may be among the tensors.
    pub roots: &'static [Root],
    /// Beginnings of the names of the tensors of other parts.
    pub ignored: &'static [&'static str],
    /// Fields of the config that describe other parts.
    pub harmless: &'static [&'static str],
    /// Takes out of the decoder's fields what only other parts need, where the fields of the whole model are these.
    pub prepare: fn(&mut Map<String, Value>, Fields),
    /// Whether published configs have the decoder's fields beside those of other parts, without `text_config`.
    pub is_flat: bool,
}

/// All wrappers.
pub const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        class: "Gemma3ForConditionalGeneration",
        models: "Gemma 3 4B, 12B and 27B, text only",
        model_type: "gemma3",
        families: &[("gemma3_text", &gemma3::FAMILY)],
        decoders: "gemma3_text",
        roots: ROOTS,
        ignored: IGNORED,
        harmless: HARMLESS,
        prepare: |_, _| {},
        is_flat: false,
    },
    Wrapper {
        class: "Gemma4ForConditionalGeneration",
        models: "Gemma 4 E2B, E4B, 26B-A4B and dense, text only",
        model_type: "gemma4",
        families: &[("gemma4_text", &gemma4::FAMILY)],
        decoders: "gemma4_text",
        roots: ROOTS,
        ignored: GEMMA4_IGNORED,
        harmless: GEMMA4_HARMLESS,
        prepare: |_, _| {},
        is_flat: false,
    },
    Wrapper {
        class: "Gemma4UnifiedForConditionalGeneration",
        models: "Gemma 4 12B and 31B, text only",
        model_type: "gemma4_unified",
        families: &[("gemma4_unified_text", &gemma4::UNIFIED)],
        decoders: "gemma4_unified_text",
        roots: ROOTS,
        ignored: GEMMA4_IGNORED,
        harmless: GEMMA4_HARMLESS,
        prepare: |_, _| {},
        is_flat: false,
    },
    Wrapper {
        class: "Lfm3VlForConditionalGeneration",
        models: "LFM3-VL, text only",
        model_type: "lfm3_vl",
        families: &[("lfm3", &lfm3::FAMILY)],
        decoders: "lfm3",
        roots: ROOTS,
        ignored: IGNORED,
        harmless: LFM3_HARMLESS,
        prepare: |_, _| {},
        is_flat: false,
    },
    Wrapper {
        class: "Mistral3ForConditionalGeneration",
        models: "Mistral Small 3.1, 3.2 and 4, Ministral 3, text only",
        model_type: "mistral3",
        families: &[
            ("mistral", &mistral::FAMILY),
            ("ministral3", &ministral3::FAMILY),
            ("mistral4", &mistral4::FAMILY),
        ],
        decoders: "mistral, ministral3 or mistral4",
        roots: ROOTS,
        ignored: IGNORED,
        harmless: HARMLESS,
        prepare: |_, _| {},
        is_flat: false,
    },
    Wrapper {
        class: "Qwen2VLForConditionalGeneration",
        models: "Qwen2-VL, text only",
        model_type: "qwen2_vl",
        families: &[("qwen2_vl_text", &qwen2::FAMILY)],
        decoders: "qwen2_vl_text",
        roots: QWEN_VL_ROOTS,
        ignored: QWEN_VL_IGNORED,
        harmless: QWEN_VL_HARMLESS,
        prepare: with_one_axis,
        is_flat: true,
    },
    Wrapper {
        class: "Qwen2_5_VLForConditionalGeneration",
        models: "Qwen2.5-VL, text only",
        model_type: "qwen2_5_vl",
        families: &[("qwen2_5_vl_text", &qwen2::FAMILY)],
        decoders: "qwen2_5_vl_text",
        roots: QWEN_VL_ROOTS,
        ignored: QWEN_VL_IGNORED,
        harmless: QWEN_VL_HARMLESS,
        prepare: with_one_axis,
        is_flat: true,
    },
    Wrapper {
        class: "Qwen3VLForConditionalGeneration",
        models: "Qwen3-VL, dense, text only",
        model_type: "qwen3_vl",
        families: &[("qwen3_vl_text", &qwen3::FAMILY)],
        decoders: "qwen3_vl_text",
        roots: QWEN_VL_ROOTS,
        ignored: QWEN_VL_IGNORED,
        harmless: QWEN_VL_HARMLESS,
        prepare: with_one_axis,
        is_flat: false,
    },
    Wrapper {
        class: "Qwen3VLMoeForConditionalGeneration",
        models: "Qwen3-VL with experts, text only",
        model_type: "qwen3_vl_moe",
        families: &[("qwen3_vl_moe_text", &qwen3_moe::VISION)],
        decoders: "qwen3_vl_moe_text",
        roots: QWEN_VL_ROOTS,
        ignored: QWEN_VL_IGNORED,
        harmless: QWEN_VL_HARMLESS,
        prepare: with_one_axis,
        is_flat: false,
    },
    Wrapper {
        class: "Qwen3_5ForConditionalGeneration",
        models: "Qwen3.5, Qwen3.6 and Qwen3.8, dense, text only",
        model_type: "qwen3_5",
        families: &[("qwen3_5_text", &qwen3_5::FAMILY)],
        decoders: "qwen3_5_text",
        roots: QWEN_VL_ROOTS,
        ignored: QWEN3_5_IGNORED,
        harmless: QWEN_VL_HARMLESS,
        prepare: with_one_axis,
        is_flat: false,
    },
    Wrapper {
        class: "Qwen3_5MoeForConditionalGeneration",
        models: "Qwen3.5, Qwen3.6 and Qwen3.8 with experts, text only",
        model_type: "qwen3_5_moe",
        families: &[("qwen3_5_moe_text", &qwen3_5_moe::FAMILY)],
        decoders: "qwen3_5_moe_text",
        roots: QWEN_VL_ROOTS,
        ignored: QWEN3_5_IGNORED,
        harmless: QWEN_VL_HARMLESS,
        prepare: with_one_axis,
        is_flat: false,
    },
    Wrapper {
        class: "Glm4vForConditionalGeneration",
        models: "GLM-4.1V-9B, text only",
        model_type: "glm4v",
        families: &[("glm4v_text", &glm4::VISION)],
        decoders: "glm4v_text",
        ..GLM_V
    },
    Wrapper {
        class: "Glm46VForConditionalGeneration",
        models: "GLM-4.6V-Flash, text only",
        model_type: "glm46v",
        families: &[("glm4v_text", &glm4::VISION)],
        decoders: "glm4v_text",
        ..GLM_V
    },
    GLM_V,
    Wrapper {
        class: "Lfm2VlForConditionalGeneration",
        models: "LFM2-VL, LFM2.5-VL, text only",
        model_type: "lfm2_vl",
        families: &[("lfm2", &lfm2::FAMILY)],
        decoders: "lfm2",
        roots: ROOTS,
        ignored: IGNORED,
        harmless: LFM2_VL_HARMLESS,
        prepare: |_, _| {},
        is_flat: false,
    },
    Wrapper {
        class: "InternVLForConditionalGeneration",
        models: "InternVL 3 and 3.5 as transformers has them, text only",
        model_type: "internvl",
        families: &[
            ("qwen2", &qwen2::FAMILY),
            ("qwen3", &qwen3::FAMILY),
            ("qwen3_moe", &qwen3_moe::FAMILY),
            ("gpt_oss", &gpt_oss::FAMILY),
            ("llama", &llama::FAMILY),
        ],
        decoders: "qwen2, qwen3, qwen3_moe, gpt_oss or llama",
        roots: ROOTS,
        ignored: IGNORED,
        harmless: INTERN_VL_HARMLESS,
        prepare: |_, _| {},
        is_flat: false,
    },
    Wrapper { class: "KimiK25ForConditionalGeneration", ..KIMI },
    KIMI,
    Wrapper {
        class: "MuseGlimmerForConditionalGeneration",
        models: "Muse Glimmer, text only",
        model_type: "muse_glimmer",
        families: &[("muse_glimmer_text", &muse_glimmer::FAMILY)],
        decoders: "muse_glimmer_text",
        roots: &[Root { body: "model.language_model.", head: "" }],
        ignored: &["model.vision_tower.", "model.vision_adapter.", "model.vision_projection."],
        harmless: &[
            "vision_config",
            "image_token_id",
            "video_token_id",
            "out_hidden_size",
            "projector_hidden_size",
            "projector_hidden_act",
        ],
        prepare: tied_by_the_whole,
        is_flat: false,
    },
];

/// With experts.
const GLM_V: Wrapper = Wrapper {
    class: "Glm4vMoeForConditionalGeneration",
    models: "GLM-4.5V, GLM-4.6V, text only",
    model_type: "glm4v_moe",
    families: &[("glm4v_moe_text", &glm4_moe::VISION)],
    decoders: "glm4v_moe_text",
    roots: &[Root { body: "model.language_model.", head: "" }],
    ignored: &["model.visual."],
    harmless: &[
        "vision_config",
        "image_token_id",
        "video_token_id",
        "image_start_token_id",
        "image_end_token_id",
        "video_start_token_id",
        "video_end_token_id",
    ],
    prepare: with_one_axis,
    is_flat: false,
};

/// As transformers calls the class. Published configs have another name.
const KIMI: Wrapper = Wrapper {
    class: "Kimi_K25ForConditionalGeneration",
    models: "Kimi K2.5 and K2.6, text only",
    model_type: "kimi_k25",
    families: &[("deepseek_v3", &deepseek_v3::FAMILY), ("kimi_k2", &deepseek_v3::FAMILY)],
    decoders: "deepseek_v3 or kimi_k2",
    roots: ROOTS,
    ignored: &["vision_tower.", "mm_projector.", "model.vision_tower.", "model.mm_projector."],
    harmless: &[
        "vision_config",
        "image_token_id",
        "video_token_id",
        "vision_start_token_id",
        "vision_end_token_id",
        "projection_hidden_size",
        "projection_layer_norm_eps",
        // Published configs alone have these.
        "ignore_index",
        "media_placeholder_token_id",
        "use_unified_vision_chunk",
        "video_placeholder",
    ],
    prepare: |_, _| {},
    is_flat: false,
};

/// Published configs have most of them, and transformers the first.
const LFM2_VL_HARMLESS: &[&str] = &[
    "vision_config",
    "image_token_id",
    "projector_hidden_act",
    "projector_hidden_size",
    "projector_bias",
    "projector_use_layernorm",
    "downsample_factor",
    "do_image_splitting",
    "encoder_patch_size",
    "image_token_index",
    "max_image_tokens",
    "max_num_patches",
    "max_pixels_tolerance",
    "max_tiles",
    "min_image_tokens",
    "min_tiles",
    "tile_size",
    "use_image_special_tokens",
    "use_thumbnail",
];

const INTERN_VL_HARMLESS: &[&str] = &[
    "vision_config",
    "image_token_id",
    "image_seq_length",
    "downsample_ratio",
    "projector_hidden_act",
    "vision_feature_layer",
    "vision_feature_select_strategy",
];

/// Whether the head is tied is what the whole model says: the class does not read what `text_config` says of it, and has no default.
fn tied_by_the_whole(decoder: &mut Map<String, Value>, whole: Fields) {
    const TIED: &str = "tie_word_embeddings";
    decoder.insert(TIED.to_owned(), whole.get(TIED).cloned().unwrap_or(Value::Bool(false)));
}

/// Where the decoder of Qwen's models of images is: transformers writes the first, published folders of 2024 and 2025 have the second.
const QWEN_VL_ROOTS: &[Root] = &[Root { body: "model.language_model.", head: "" }, Root { body: "model.", head: "" }];

/// Towers, where a model has them, and what brings their outputs into the stream.
const GEMMA4_IGNORED: &[&str] =
    &["model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio."];

const GEMMA4_HARMLESS: &[&str] = &[
    "vision_config",
    "audio_config",
    "boi_token_id",
    "eoi_token_id",
    "image_token_id",
    "video_token_id",
    "boa_token_id",
    "eoa_token_index",
    "audio_token_id",
    "vision_soft_tokens_per_image",
];

const LFM3_HARMLESS: &[&str] = &[
    "vision_config",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "projector_hidden_act",
    "projector_hidden_size",
    "projector_bias",
];

const QWEN_VL_IGNORED: &[&str] = &["visual.", "model.visual."];

const QWEN3_5_IGNORED: &[&str] = &["visual.", "model.visual.", "mtp.", "model.mtp."];

const QWEN_VL_HARMLESS: &[&str] = &[
    "vision_config",
    "image_token_id",
    "video_token_id",
    "vision_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
];

/// Makes a rotation over three axes one over positions: those of text are the same on each axis, and each pair of a head turns by one.
fn with_one_axis(decoder: &mut Map<String, Value>, _: Fields) {
    for name in ["rope_scaling", "rope_parameters"] {
        let Some(Value::Object(rope)) = decoder.get_mut(name) else { continue };
        rope.remove("mrope_section");
        rope.remove("mrope_interleaved");
        for kind in ["type", "rope_type"] {
            if rope.get(kind).is_some_and(|kind| kind == "mrope") {
                rope.insert(kind.to_owned(), "default".into());
            }
        }
    }
}

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
