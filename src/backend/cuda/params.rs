//! Parameter structs of kernels, and the test that compares them with their CUDA twins.

/// A parameter struct: `#[repr(C)]`, with a list of its fields.
pub trait Params: Copy {
    /// Name and offset in bytes of each field.
    const FIELDS: &'static [(&'static str, usize)];
}

/// Declares a parameter struct whose twin is the struct of the same name in a .cu file.
macro_rules! params {
    ($(#[$attribute:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs)] // the CUDA twin documents the fields
        pub struct $name { $(pub $field: $type),+ }

        impl $crate::backend::cuda::params::Params for $name {
            const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field))),+];
        }
    };
}
pub(crate) use params;

#[cfg(test)]
mod tests {
    use super::Params;
    use crate::backend::cuda::{
        add_rms_norm::AddRmsNormParams,
        adjust::{AdjustParams, AdjustmentTwin},
        attention::{AttentionDecodeParams, AttentionPrefillParams},
        copy_blocks::CopyBlocksParams,
        embedding::EmbeddingParams,
        gather::GatherParams,
        linear::LinearParams,
        logprobs::LogprobsParams,
        plan::{DecodeCta, DecodeRow, PrefillTile},
        rms_norm::RmsNormParams,
        rope_and_cache::RopeAndCacheParams,
        sample::{SampleParams, SamplingTwin},
        silu_mul::SiluMulParams,
    };

    struct Twin {
        file: &'static str,
        name: &'static str,
        fields: &'static [(&'static str, usize)],
        size: usize,
    }

    const fn twin<P: Params>(file: &'static str, name: &'static str) -> Twin {
        Twin { file, name, fields: P::FIELDS, size: size_of::<P>() }
    }

    const TWINS: &[Twin] = &[
        twin::<AddRmsNormParams>("add_rms_norm.cu", "AddRmsNormParams"),
        twin::<AdjustParams>("adjust.cu", "AdjustParams"),
        twin::<AdjustmentTwin>("adjust.cu", "Adjustment"),
        twin::<AttentionDecodeParams>("attention_decode.cu", "AttentionDecodeParams"),
        twin::<AttentionPrefillParams>("attention_prefill.cu", "AttentionPrefillParams"),
        twin::<CopyBlocksParams>("copy_blocks.cu", "CopyBlocksParams"),
        twin::<DecodeCta>("attention_decode.cu", "DecodeCta"),
        twin::<DecodeRow>("common/plan.cuh", "DecodeRow"),
        twin::<EmbeddingParams>("embedding.cu", "EmbeddingParams"),
        twin::<GatherParams>("gather.cu", "GatherParams"),
        twin::<LinearParams>("common/linear.cuh", "LinearParams"),
        twin::<LogprobsParams>("logprobs.cu", "LogprobsParams"),
        twin::<PrefillTile>("attention_prefill.cu", "PrefillTile"),
        twin::<RmsNormParams>("rms_norm.cu", "RmsNormParams"),
        twin::<RopeAndCacheParams>("rope_and_cache.cu", "RopeAndCacheParams"),
        twin::<SampleParams>("common/logits.cuh", "SampleParams"),
        twin::<SamplingTwin>("common/logits.cuh", "Sampling"),
        twin::<SiluMulParams>("silu_mul.cu", "SiluMulParams"),
    ];

    /// Size and alignment of a C type, which are the same for all that kernels take.
    fn bytes_of(c_type: &str) -> usize {
        if c_type.contains('*') {
            return 8;
        }
        match c_type.trim_start_matches("const ").trim() {
            "int" | "uint32_t" | "float" => 4,
            "uint64_t" | "long long" => 8,
            other => panic!("a type that no parameter struct has used so far: {other}"),
        }
    }

    /// Name and offset of each field of `struct name` in a CUDA source, and the struct's size.
    fn layout(source: &str, name: &str) -> (Vec<(String, usize)>, usize) {
        let start = source.find(&format!("struct {name} {{")).unwrap_or_else(|| panic!("no struct {name}"));
        let body = &source[start..start + source[start..].find("};").expect("a struct ends")];
        let (mut fields, mut end, mut align) = (Vec::new(), 0usize, 1);
        for line in body.lines().skip(1) {
            let Some((declaration, _)) = line.split_once(';') else { continue };
            if declaration.trim_start().starts_with("//") {
                continue;
            }
            let (c_type, field) = declaration.trim().rsplit_once([' ', '*']).expect("a type and a name");
            let bytes = bytes_of(&declaration[..declaration.len() - field.len()]);
            let _ = c_type;
            let offset = end.next_multiple_of(bytes);
            fields.push((field.to_owned(), offset));
            (end, align) = (offset + bytes, align.max(bytes));
        }
        (fields, end.next_multiple_of(align))
    }

    #[test]
    fn every_parameter_struct_lies_in_memory_as_its_cuda_twin() {
        for twin in TWINS {
            let path = format!("{}/kernels/{}", env!("CARGO_MANIFEST_DIR"), twin.file);
            let (fields, size) = layout(&std::fs::read_to_string(path).expect("a kernel file"), twin.name);
            let ours: Vec<(String, usize)> = twin.fields.iter().map(|&(name, at)| (name.to_owned(), at)).collect();
            assert_eq!((fields, size), (ours, twin.size), "{} in {}", twin.name, twin.file);
        }
    }

    #[test]
    fn the_layout_reader_pads_as_a_compiler_does() {
        let source = "struct S {\n int a;  // x; y\n const float* b;\n // c;\n uint32_t d;\n};";
        let expected = vec![("a".to_owned(), 0), ("b".to_owned(), 8), ("d".to_owned(), 16)];
        assert_eq!(layout(source, "S"), (expected, 24));
    }
}
