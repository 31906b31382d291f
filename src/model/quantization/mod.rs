//! How are the matrices of a quantized folder read, and how is a matrix quantized that is not coded yet?
//!
//! config.json names a method, and each method has one reader: the names, types and shapes of its tensors, and what its codes stand
//! for. All of them bring a matrix into the form of [`Scaled`](formats::Scaled), which is a view of the file where the file has
//! that form already. Invariant: the numbers of a matrix are those that the method defines, whatever form they end up in: where no backend
//! can hold the codes as they are grouped, they are decoded when they are read.
//!
//! The tensors decide which matrices are coded. The lists of modules that a config leaves out are for writers of such folders.

mod awq;
mod coded;
mod compressed;
mod config;
mod folder;
mod fp8;
mod gptq;
mod module;
pub mod mxfp4;
mod nvfp4;
mod on_load;
mod patterns;
mod targets;
mod transpose;

pub use awq::Awq;
pub use coded::Coded;
pub use compressed::{Compressed, Number, Scheme, Strategy};
pub use config::Quantization;
pub use folder::quantize_folder;
pub use fp8::Fp8;
pub use gptq::Gptq;
pub use module::Module;
pub use nvfp4::ModelOpt;
pub use on_load::{OnLoad, quantize};
pub use targets::Group as TargetGroup;

use base::error::{Error, Result};
use base::limits;
use formats::Scaled;
use formats::source::{Source, Tensor, TensorType, Tensors};
use safetensors::Dtype;

/// Ends of the names of tensors that quantized folders carry and that nothing here reads: scales of activations and of a KV cache, which
/// are for computing in 8 bits.
const LEFT_ASIDE: &[&str] = &[
    ".input_scale",
    ".input_zero_point",
    ".input_global_scale",
    ".output_scale",
    ".output_zero_point",
    ".activation_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".k_zero_point",
    ".v_zero_point",
    ".q_zero_point",
];

/// The ends of the names of the tensors of a quantized matrix. `weight` is one of them where codes are called so.
const PARTS: &[&str] = &[
    "weight",
    "weight_packed",
    "weight_scale",
    "weight_scale_inv",
    "weight_zero_point",
    "weight_g_idx",
    "weight_shape",
    "qweight",
    "qzeros",
    "scales",
    "g_idx",
];

impl Quantization {
    /// The matrix of `module`, if it is coded in the way of this method.
    ///
    /// # Errors
    ///
    /// [`Error::MissingTensor`](base::error::Error::MissingTensor), [`Error::TensorShape`](base::error::Error::TensorShape) and
    /// [`Error::CodedTensor`](base::error::Error::CodedTensor) for tensors that are not what the method says.
    pub fn matrix(&self, module: &Module) -> Result<Option<Coded>> {
        match self {
            Quantization::CompressedTensors(compressed) => compressed.matrix(module),
            Quantization::Fp8(fp8) => fp8.matrix(module),
            Quantization::Awq(awq) => awq.matrix(module),
            Quantization::Gptq(gptq) => gptq.matrix(module),
            Quantization::ModelOpt(of_modelopt) => of_modelopt.matrix(module),
            // Only experts are coded, and these are no matrices of a dense decoder.
            Quantization::Mxfp4 => Ok(None),
        }
    }

    /// The name of the scale of all numbers of `module`, which is one of the tensors of its matrix where the method has such a scale.
    pub fn global_scale(&self, module: &str) -> Option<String> {
        let end = match self {
            Quantization::CompressedTensors(compressed) => {
                let scheme = compressed.scheme_of(module)?;
                (scheme.number == Number::Float4 && scheme.group() == Some(nvfp4::GROUP))
                    .then_some(nvfp4::COMPRESSED_GLOBAL)?
            }
            Quantization::ModelOpt(_) => nvfp4::MODELOPT_GLOBAL,
            _ => return None,
        };
        Some(format!("{module}.{end}"))
    }

    /// The names of the tensors that the matrix of `module` may consist of.
    pub fn parts(module: &str) -> impl Iterator<Item = String> {
        PARTS.iter().map(move |part| format!("{module}.{part}"))
    }

    /// Finds out how the coded modules among `tensors` are coded, where the config says it by patterns of names.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] where that takes more than [`limits::QUANTIZATION_STEPS`].
    pub fn resolve(&mut self, source: &Source, tensors: &Tensors) -> Result<()> {
        let Quantization::CompressedTensors(compressed) = self else { return Ok(()) };
        const PLAIN: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];
        let is_plain = |name: &str| {
            tensors.get(name).is_some_and(|tensor| PLAIN.map(TensorType::Safetensors).contains(&tensor.kind))
        };
        let module = |name| match str::rsplit_once(name, '.')? {
            (module, "weight_packed") => Some(module),
            (module, "weight") if !is_plain(name) => Some(module),
            _ => None,
        };
        let modules = tensors.names().filter_map(module);
        compressed.resolve(modules).map_err(|_| {
            let most = limits::QUANTIZATION_STEPS;
            let reason = format!(
                "has patterns in config_groups whose matches with the names of its tensors take more than {most} steps, the most that are done"
            );
            Error::ModelFile { path: source.path().into(), reason }
        })
    }

    /// Whether a tensor of this name is none of the weights.
    pub fn leaves_aside(&self, name: &str) -> bool {
        LEFT_ASIDE.iter().any(|end| name.ends_with(end))
    }

    /// The numbers of a tensor of codes that will be decoded when it is read, because no backend holds codes that are grouped so. `None`
    /// for other tensors.
    pub fn decoded(&self, name: &str, tensor: &Tensor) -> Option<usize> {
        let [rows, cols] = tensor.shape[..] else { return None };
        let (module, end) = name.rsplit_once('.')?;
        let (inputs, group, numbers) = match (self, end) {
            (Quantization::Gptq(gptq), "qweight") => {
                let inputs = rows.saturating_mul(32) / gptq.bits;
                (inputs, if gptq.is_reordered() { Some(1) } else { gptq.group }, inputs.saturating_mul(cols))
            }
            (Quantization::Awq(awq), "qweight") => (rows, awq.group, (rows * cols).saturating_mul(8)),
            (Quantization::Fp8(fp8), "weight") => (cols, fp8.block.map(|[_, group]| group), rows * cols),
            (Quantization::CompressedTensors(compressed), "weight") => {
                (cols, compressed.scheme_of(module)?.group(), rows * cols)
            }
            (Quantization::CompressedTensors(compressed), "weight_packed") => {
                let scheme = compressed.scheme_of(module)?;
                let bits = match scheme.number {
                    Number::Int(bits) => bits,
                    Number::Float4 => return decoded_pairs(rows * cols, scheme.group()),
                    Number::Float8 => return None,
                };
                (cols.saturating_mul(32) / bits, scheme.group(), (rows * cols).saturating_mul(32) / bits)
            }
            (Quantization::ModelOpt(_), "weight") => return decoded_pairs(rows * cols, Some(nvfp4::GROUP)),
            _ => return None,
        };
        let group = group.filter(|group| *group < inputs).unwrap_or(Scaled::ROW);
        (!coded::stays_coded(inputs, group)).then_some(numbers)
    }
}

/// The numbers of codes of four bits in `bytes`, if they are decoded when they are read.
fn decoded_pairs(bytes: usize, group: Option<usize>) -> Option<usize> {
    (group == Some(nvfp4::GROUP)).then(|| bytes.saturating_mul(2))
}
