//! Parameter structs of kernels: each is declared once here and once in CUDA, and a test compares the two.
//!
//! What a batch has as it is, [`Sampling`](crate::batch::Sampling) and [`LogitBias`](crate::batch::LogitBias), needs no twin:
//! `kernels/common/batch.cuh` is generated from it.

/// A parameter struct: `#[repr(C)]`, with a list of its fields.
pub trait Params: Copy {
    /// Name and offset in bytes of each field.
    const FIELDS: &'static [(&'static str, usize)];
}

/// Declares parameter structs, each with the file in `kernels` that holds its twin of the same name, and the test that compares them.
/// Once per file.
macro_rules! params {
    ($($(#[$attribute:meta])* $name:ident in $file:literal { $($field:ident: $type:ty),+ $(,)? })+) => {
        $(
            $(#[$attribute])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            #[allow(missing_docs)] // the CUDA twin documents the fields
            pub struct $name { $(pub $field: $type),+ }

            impl $crate::cuda::params::Params for $name {
                const FIELDS: &'static [(&'static str, usize)] =
                    &[$((stringify!($field), std::mem::offset_of!($name, $field))),+];
            }
        )+

        #[cfg(test)]
        mod twins {
            #[test]
            fn lie_in_memory_as_in_cuda() {
                $($crate::cuda::params::twin::compare::<super::$name>($file, stringify!($name));)+
            }
        }
    };
}
pub(crate) use params;

/// Reads the layout of structs in CUDA sources.
#[cfg(test)]
pub mod twin {
    use super::Params;
    use crate::cuda::exchange::Exchange as ExchangeParams;
    use crate::cuda::gated_delta::GatedDeltaParams;
    use crate::cuda::gated_norm::GatedNormParams;
    use crate::cuda::gemm::RowNorms;
    use crate::cuda::gemm::quantized::weights::QuantizedWeights;
    use crate::cuda::selective_scan::SelectiveScanParams;
    use crate::cuda::tensor_map::TensorMap;

    /// Compares the layout of `P` with that of its twin in `kernels/<file>`.
    pub fn compare<P: Params>(file: &str, name: &str) {
        let path = format!("{}/../../kernels/{file}", env!("CARGO_MANIFEST_DIR"));
        let (fields, size) = layout(&std::fs::read_to_string(path).expect("a kernel file"), name);
        let ours: Vec<(String, usize)> = P::FIELDS.iter().map(|&(name, at)| (name.to_owned(), at)).collect();
        assert_eq!((fields, size), (ours, size_of::<P>()), "{name} in {file}");
    }

    /// Size and alignment of a C type.
    fn bytes_of(c_type: &str) -> (usize, usize) {
        if c_type.contains('*') {
            return (8, 8);
        }
        match c_type.trim_start_matches("const ").trim() {
            "int" | "uint32_t" | "float" => (4, 4),
            "uint64_t" | "int64_t" | "long long" => (8, 8),
            // Compared with its own twin in the file that declares it.
            "TensorMap" => (size_of::<TensorMap>(), align_of::<TensorMap>()),
            "Exchange" => (size_of::<ExchangeParams>(), align_of::<ExchangeParams>()),
            "RowNorms<T>" => (size_of::<RowNorms>(), align_of::<RowNorms>()),
            "GatedDeltaParams<T>" => (size_of::<GatedDeltaParams>(), align_of::<GatedDeltaParams>()),
            "GatedNormParams<T>" => (size_of::<GatedNormParams>(), align_of::<GatedNormParams>()),
            "SelectiveScanParams<T>" => (size_of::<SelectiveScanParams>(), align_of::<SelectiveScanParams>()),
            "QuantizedWeights" => (size_of::<QuantizedWeights>(), align_of::<QuantizedWeights>()),
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
            let (_, field) = declaration.trim().rsplit_once([' ', '*']).expect("a type and a name");
            let (bytes, alignment) = bytes_of(&declaration[..declaration.len() - field.len()]);
            let (field, count) = match field.split_once('[') {
                Some((field, count)) => (field, count.trim_end_matches(']').parse().expect("a number of elements")),
                None => (field, 1),
            };
            let offset = end.next_multiple_of(alignment);
            fields.push((field.to_owned(), offset));
            (end, align) = (offset + bytes * count, align.max(alignment));
        }
        (fields, end.next_multiple_of(align))
    }

    #[test]
    fn the_layout_reader_pads_as_a_compiler_does() {
        let source = "struct S {\n int a;  // x; y\n const float* b;\n // c;\n int d[3];\n uint32_t e;\n};";
        let expected = [("a", 0), ("b", 8), ("d", 16), ("e", 28)].map(|(name, at)| (name.to_owned(), at));
        assert_eq!(layout(source, "S"), (expected.to_vec(), 32));
    }
}
