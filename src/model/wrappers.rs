//! Checkpoints in which a decoder of a known family is one part among others, such as a vision tower.
//!
//! Only the decoder is read: `text_config` describes it, and its tensors have a prefix. Such a model answers text as its decoder alone does.

use crate::model::family::Family;
use crate::model::names::Root;

/// A class that holds a decoder.
pub struct Wrapper {
    /// What `architectures` of a config.json names.
    pub class: &'static str,
    /// What people call these models. README.md has it.
    #[cfg_attr(not(test), expect(dead_code))]
    pub models: &'static str,
    /// What `model_type` has to be where it is given.
    pub model_type: &'static str,
    /// What `model_type` of `text_config` may name; the first where it names nothing.
    pub families: &'static [&'static Family],
    /// Where the decoder may be among the tensors.
    pub roots: &'static [Root],
    /// Beginnings of the names of the tensors of other parts.
    pub ignored: &'static [&'static str],
    /// Fields of the config that describe other parts.
    pub harmless: &'static [&'static str],
}

/// All wrappers.
pub const WRAPPERS: &[Wrapper] = &[];
