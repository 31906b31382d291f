//! What a config says of quantized weights: `quantization_config` of config.json, or the file that AutoGPTQ and AutoAWQ wrote beside it.
//!
//! What is not read is refused by its name.

use super::awq::Awq;
use super::compressed::{Compressed, Number, Scheme, Strategy};
use super::fp8::Fp8;
use super::gptq::Gptq;
use super::nvfp4::{self, ModelOpt};
use super::targets::Targets;
use crate::fields::Fields;
use base::error::{Error, Result};
use base::limits;
use serde_json::Value;

/// How the matrices of a folder are coded.
#[derive(Clone, Debug)]
pub enum Quantization {
    /// Method `compressed-tensors`.
    CompressedTensors(Compressed),
    /// Method `fp8`.
    Fp8(Fp8),
    /// Method `awq`.
    Awq(Awq),
    /// Method `gptq`.
    Gptq(Gptq),
    /// Method `mxfp4`.
    Mxfp4,
    /// Method `modelopt`.
    ModelOpt(ModelOpt),
}

const SUPPORTED: &str = "absent, or have quant_method compressed-tensors, fp8, awq, gptq, mxfp4 or modelopt";

impl Quantization {
    /// Reads `quantization_config` of config.json.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedModel`] for what is not read, [`Error::ModelFile`] for fields of the wrong type.
    pub fn of_config(fields: Fields) -> Result<Quantization> {
        let named = fields.text("quant_method")?;
        match named {
            Some("compressed-tensors") => compressed(fields).map(Quantization::CompressedTensors),
            // Before the groups: a config of ModelOpt has some too.
            None if fields.get("quant_algo").is_some() => modelopt(fields),
            None if fields.get("config_groups").is_some() => compressed(fields).map(Quantization::CompressedTensors),
            Some("fp8") => fp8(fields).map(Quantization::Fp8),
            Some("awq") => awq(fields).map(Quantization::Awq),
            Some("gptq") => gptq(fields).map(Quantization::Gptq),
            Some("mxfp4") => Ok(Quantization::Mxfp4),
            Some("modelopt") => modelopt(fields),
            other => {
                let value = other.map_or("without quant_method".into(), |method| format!("{method:.60}"));
                Err(unsupported("quantization_config", value, SUPPORTED))
            }
        }
    }

    /// Reads the file of their own that AutoGPTQ (`quantize_config.json`) and AutoAWQ (`quant_config.json`) write.
    ///
    /// # Errors
    ///
    /// As [`Quantization::of_config`].
    pub fn of_file(fields: Fields) -> Result<Quantization> {
        match fields.get("quant_method") {
            Some(_) => Quantization::of_config(fields),
            None if fields.get("w_bit").is_some() => awq(fields).map(Quantization::Awq),
            None => gptq(fields).map(Quantization::Gptq),
        }
    }
}

fn unsupported(setting: &'static str, value: impl ToString, supported: &'static str) -> Error {
    Error::UnsupportedModel { setting, value: value.to_string(), supported }
}

/// Refuses a field that is there and is none of `supported`.
fn one_of(fields: Fields, name: &'static str, accepted: &[&str], supported: &'static str) -> Result<()> {
    match fields.text(name)? {
        Some(found) if !accepted.iter().any(|wanted| wanted.eq_ignore_ascii_case(found)) => {
            Err(unsupported(name, format!("{found:.60}"), supported))
        }
        _ => Ok(()),
    }
}

/// Weights that share a scale: a number, or -1 for those of a whole row.
fn group_size(fields: Fields, name: &'static str) -> Result<Option<usize>> {
    match fields.get(name) {
        Some(value) if value.as_i64() == Some(-1) => Ok(None),
        Some(_) => fields.count_or_none(name),
        None => Err(fields.refuse(format!("{name} of the quantized weights is missing"))),
    }
}

fn bits(fields: Fields, name: &'static str, accepted: &[usize], supported: &'static str) -> Result<usize> {
    let bits = fields.count(name)?;
    if accepted.contains(&bits) { Ok(bits) } else { Err(unsupported(name, bits, supported)) }
}

fn awq(fields: Fields) -> Result<Awq> {
    let (bit, group) = if fields.get("w_bit").is_some() { ("w_bit", "q_group_size") } else { ("bits", "group_size") };
    bits(fields, bit, &[4], "4 for quant_method awq")?;
    one_of(fields, "version", &["gemm"], "gemm for quant_method awq")?;
    fields.must_be("zero_point", true)?;
    Ok(Awq { group: group_size(fields, group)? })
}

fn gptq(fields: Fields) -> Result<Gptq> {
    let bits = bits(fields, "bits", &[4, 8], "4 or 8 for quant_method gptq")?;
    const FORMATS: &[&str] = &["gptq", "gptq_v2"];
    let formats = "gptq or gptq_v2";
    let mut is_v2 = false;
    for name in ["checkpoint_format", "format"] {
        one_of(fields, name, FORMATS, formats)?;
        is_v2 |= fields.text(name)?.is_some_and(|format| format.eq_ignore_ascii_case("gptq_v2"));
    }
    one_of(fields, "pack_dtype", &["int32"], "int32")?;
    fields.must_be("is_marlin_format", false)?;
    // Patterns of modules with settings of their own, and after "-:" of modules that are left out.
    let dynamic = fields.object("dynamic")?;
    if let Some((name, _)) = dynamic.iter().flat_map(Fields::iter).find(|(name, _)| !name.starts_with("-:")) {
        return Err(unsupported("dynamic", format!("{name:.60}"), "patterns of modules that are left out"));
    }
    let desc_act = fields.flag("desc_act")?.unwrap_or(false);
    Ok(Gptq { bits, group: group_size(fields, "group_size")?, desc_act, added: u8::from(!is_v2) })
}

fn fp8(fields: Fields) -> Result<Fp8> {
    one_of(fields, "fmt", &["e4m3", "float8_e4m3fn"], "e4m3")?;
    one_of(fields, "activation_scheme", &["dynamic", "static"], "dynamic or static")?;
    Ok(Fp8 {
        block: fields.get("weight_block_size").map(|value| block(fields, "weight_block_size", value)).transpose()?,
    })
}

/// Two numbers: rows and columns.
fn block(fields: Fields, name: &str, value: &Value) -> Result<[usize; 2]> {
    let side = |value: &Value| value.as_u64().filter(|side| (1..=1 << 24).contains(side)).map(|side| side as usize);
    let sides = value.as_array().map(|sides| sides.iter().map(side).collect::<Option<Vec<_>>>());
    match sides.flatten().as_deref() {
        Some(&[rows, cols]) => Ok([rows, cols]),
        _ => Err(fields.refuse(format!("{name} is {}, but must be two whole numbers above 0", Fields::shown(value)))),
    }
}

const FORMATS: &[&str] = &[
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "mxfp4-pack-quantized",
    "nvfp4-pack-quantized",
    "mixed-precision",
    "dense",
];
const FORMATS_NAMED: &str = "pack-quantized, int-quantized, float-quantized, naive-quantized, mxfp4-pack-quantized, nvfp4-pack-quantized, mixed-precision or dense";

/// ModelOpt's config of weights in NVFP4.
fn modelopt(fields: Fields) -> Result<Quantization> {
    match fields.text("quant_algo")? {
        Some("NVFP4") => Ok(Quantization::ModelOpt(ModelOpt)),
        other => {
            let value = other.map_or("absent".into(), |algo| format!("{algo:.60}"));
            Err(unsupported("quant_algo", value, "NVFP4 for quant_method modelopt"))
        }
    }
}

fn compressed(fields: Fields) -> Result<Compressed> {
    one_of(fields, "format", FORMATS, FORMATS_NAMED)?;
    one_of(fields, "quantization_status", &["compressed"], "compressed")?;
    if let Some(sparsity) = fields.object("sparsity_config")? {
        one_of(sparsity, "format", &["dense"], "dense in sparsity_config")?;
    }
    if fields.object("transform_config")?.is_some_and(|transform| transform.iter().next().is_some()) {
        return Err(unsupported("transform_config", "set", "absent: activations are not rotated"));
    }
    let Some(named) = fields.object("config_groups")? else {
        return Err(fields.refuse("config_groups is missing from quantization_config".into()));
    };
    let (mut targets, mut schemes) = (Targets::default(), Vec::new());
    for (count, (name, value)) in named.iter().enumerate() {
        if count == limits::QUANTIZATION_GROUPS {
            let most = limits::QUANTIZATION_GROUPS;
            return Err(fields.refuse(format!("config_groups has more than {most} groups, the most that are read")));
        }
        let Some(group) = named.object(name)? else { continue };
        one_of(group, "format", FORMATS, FORMATS_NAMED)?;
        let wrong = |what: String| fields.refuse(format!("config_groups.{name:.60}.targets {what}"));
        let entries = value["targets"].as_array();
        let entries = entries.and_then(|entries| entries.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        let entries = entries.ok_or_else(|| wrong("must be a list of names".into()))?;
        let meant = targets.read(entries).map_err(wrong)?;
        // A group without weights quantizes activations alone.
        if let Some(weights) = group.object("weights")? {
            targets.push(meant);
            schemes.push(scheme(weights)?);
        }
    }
    Ok(Compressed::new(targets, schemes))
}

fn scheme(weights: Fields) -> Result<Scheme> {
    const BITS: &str = "4 or 8 in type int, 8 in type float, or 4 in mxfp4-pack-quantized or nvfp4-pack-quantized";
    let kind = weights.text("type")?.unwrap_or("int");
    let group = match weights.get("group_size") {
        Some(_) => group_size(weights, "group_size")?,
        None => None,
    };
    let strategy = match weights.text("strategy")? {
        Some("tensor") => Strategy::Tensor,
        Some("channel") => Strategy::Channel,
        Some("tensor_group") if kind == "float" => group.map_or(Strategy::Channel, Strategy::Group),
        Some("group") => group.map_or(Strategy::Channel, Strategy::Group),
        Some("block") => match weights.get("block_structure") {
            Some(value) => Strategy::Block(block(weights, "block_structure", value)?),
            None => return Err(weights.refuse("block_structure of strategy block is missing".into())),
        },
        None if weights.get("group_size").is_some() => group.map_or(Strategy::Channel, Strategy::Group),
        None => Strategy::Tensor,
        Some(other) => {
            return Err(unsupported(
                "strategy",
                format!("{other:.60}"),
                "tensor, channel, group or block, or tensor_group in nvfp4-pack-quantized",
            ));
        }
    };
    if weights.get("dynamic").is_some_and(|dynamic| dynamic != &Value::Bool(false)) {
        return Err(unsupported("dynamic of weights", "set", "false"));
    }
    let number = match (kind, weights.count_or_none("num_bits")?.unwrap_or(8)) {
        ("int", bits @ (4 | 8)) => Number::Int(bits),
        ("float", 8) => Number::Float8,
        ("float", 4) if matches!(strategy, Strategy::Group(32 | nvfp4::GROUP)) => Number::Float4,
        (_, bits) => return Err(unsupported("num_bits", format!("{bits} in type {kind:.60}"), BITS)),
    };
    one_of(weights, "actorder", &["weight", "static", "group", "dynamic"], "weight, static, group or dynamic")?;
    Ok(Scheme { number, strategy, symmetric: weights.flag("symmetric")?.unwrap_or(true) })
}
