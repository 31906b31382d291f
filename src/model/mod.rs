//! Decoder models, described as data and computed by one decoder.
