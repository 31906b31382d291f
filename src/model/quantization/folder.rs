//! Writes a model folder again, with the matrices of its layers as compressed-tensors packs them.
//!
//! The numbers are those that an engine computes with when it quantizes the folder while it opens. The embedding table and the head stay as they
//! are: other programs that read such folders expect them so. Nothing that exists is overwritten.
//!
//! Invariant: nothing outside of the folder is read, wherever its links lead, but for the blobs of a download cache. What is no file of a
//! model folder is refused before the new folder is made.

use super::on_load::{OnLoad, quantize};
use crate::description::Description;
use crate::weight_summary::WeightPart;
use base::error::{Error, Result};
use base::limits;
use base::log::{self, Level};
use compute::HostMatrix;
use formats::source::{Source, TensorType, Tensors};
use formats::{Scaled, Scales, WeightFormat};
use os::{ConfinedFolder, Files, HostBytes, Loading};
use safetensors::Dtype;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file of weights, unless a single tensor has more.
const SHARD_BYTES: usize = 5 << 30;

/// Larger files beside the weights are not of a model folder, and are left out.
const COPIED_FILE_BYTES: u64 = 1 << 30;

/// The only folder of a model folder.
const TEMPLATES: &str = "additional_chat_templates";

/// Ends of the names of files of weights in formats of other programs, and of what describes ours.
const LEFT_OUT: &[&str] = &[
    ".safetensors",
    ".safetensors.index.json",
    ".bin",
    ".bin.index.json",
    ".pt",
    ".pth",
    ".gguf",
    ".onnx",
    ".h5",
    ".msgpack",
    ".ot",
];

/// Quantizes the model of `source` into the folder `to`, which does not exist or is empty. `progress` is called with a fraction
/// from 0 to 1; `Break` cancels, and leaves what was written.
///
/// # Errors
///
/// * [`Error::Option`] for [`OnLoad::None`], [`Error::Unsupported`] for a folder that is quantized already.
/// * [`Error::ModelFile`] where `to` is not empty or lies in the folder, and for a name in the folder that leads out of it, is neither a
///   file nor a folder, or is not UTF-8.
/// * [`Error::Io`] where `to` cannot be written, [`Error::Cancelled`], and those of [`Description::read`] and [`OnLoad::check`].
pub fn quantize_folder(
    source: &Source,
    to: &Path,
    on_load: OnLoad,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<()> {
    let bits = match on_load {
        OnLoad::None => {
            let wanted = "NVLLM_QUANTIZATION_INT8 or NVLLM_QUANTIZATION_INT4";
            return Err(Error::Option { field: "quantization", value: "0".into(), wanted });
        }
        OnLoad::Int8 => 8,
        OnLoad::Int4 => 4,
    };
    let Source::Folder(folder) = source else {
        let path = source.path().display();
        return Err(Error::Unsupported { what: format!("{path} is no model folder, and only folders are quantized") });
    };
    let folder = Arc::new(ConfinedFolder::new(folder.path())?);
    let to = &outside(&folder, to)?;
    let others = Others::of(&folder)?;
    let source = &Source::open_in(Files::Confined(folder.clone()), folder.path())?;
    let model = Description::read(source)?;
    let tensors = Tensors::open(source, Loading::Map, u64::MAX)?;
    if model.quantization.is_some() || tensors.names().any(|name| name.ends_with(".qweight")) {
        let path = source.path().display();
        return Err(Error::Unsupported {
            what: format!("{path} is quantized already: quantize the folder that it was made from"),
        });
    }
    on_load.check(&tensors)?;
    let plan = Plan::new(&tensors, &model, on_load, folder.path())?;
    let config = config(source, &plan, bits)?;
    create(to)?;
    // A part of the path may have become a link.
    let made = fs::canonicalize(to).map_err(|source| Error::Io { path: to.clone(), source })?;
    refuse_inside(&folder, &made, to)?;
    others.copy(&folder, to)?;
    write(&to.join("config.json"), &config)?;
    plan.write(to, progress)
}

/// What becomes of the tensors of a folder.
struct Plan {
    /// By name.
    outputs: Vec<(String, Output)>,
    /// The groups of the modules that are quantized.
    modules: Vec<(String, usize)>,
    /// Matrices that are not.
    ignored: Vec<String>,
}

/// A tensor of the new folder. Quantized ones are made when they are written.
struct Output {
    from: Plane,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: usize,
}

enum Plane {
    Copy(HostBytes),
    Codes(HostMatrix, WeightFormat),
    Scales(HostMatrix, WeightFormat),
    Shape([u8; 16]),
}

impl Plan {
    fn new(tensors: &Tensors, model: &Description, on_load: OnLoad, at: &Path) -> Result<Plan> {
        let wrong = |reason| Error::ModelFile { path: at.into(), reason };
        let mut plan = Plan { outputs: Vec::new(), modules: Vec::new(), ignored: Vec::new() };
        let names = model.layout.names;
        let is_of_layer = |module: &str| {
            let part = model.layout.roots.iter().find_map(|root| module.strip_prefix(root.body));
            part.is_some_and(|part| {
                matches!(WeightPart::of(part, names), WeightPart::Attention | WeightPart::FeedForward)
                    && !names.is_router(part)
            })
        };
        for name in tensors.names() {
            let tensor = tensors.get(name).expect("a name of theirs");
            let module = name.strip_suffix(".weight").filter(|_| tensor.shape.len() == 2);
            let TensorType::Safetensors(dtype) = tensor.kind else { continue };
            let stored = match dtype {
                Dtype::F32 => Some(WeightFormat::F32),
                Dtype::F16 => Some(WeightFormat::F16),
                Dtype::BF16 => Some(WeightFormat::Bf16),
                _ => None,
            };
            if let (Some(module), Some(stored)) = (module, stored) {
                let (rows, cols) = (tensor.shape[0], tensor.shape[1]);
                match on_load.coding(stored, cols).filter(|_| is_of_layer(module)) {
                    Some(coding) => {
                        let matrix = HostMatrix::new(tensors.bytes(tensor), stored, rows, cols);
                        plan.quantize(module, matrix, coding);
                        continue;
                    }
                    None if name.contains("embed") => {}
                    None => plan.ignored.push(module.to_owned()),
                }
            }
            let (from, bytes) = (tensors.bytes(tensor), tensors.bytes(tensor).len());
            let output = Output { from: Plane::Copy(from), dtype, shape: tensor.shape.clone(), bytes };
            plan.outputs.push((name.to_owned(), output));
        }
        if plan.modules.is_empty() {
            let what = "no matrix of the model has a width that is a multiple of 32".into();
            return Err(Error::Unsupported { what });
        }
        let mut names = BTreeSet::new();
        match plan.outputs.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => {
                Err(wrong(format!("has {name:.60}, a name that one of its matrices would get when it is quantized")))
            }
            None => Ok(plan),
        }
    }

    fn quantize(&mut self, module: &str, matrix: HostMatrix, coding: WeightFormat) {
        let WeightFormat::Scaled(Scaled { group, scales, .. }) = coding else {
            unreachable!("a coding of quantized weights")
        };
        let (rows, cols) = matrix.shape();
        let words = coding.row_bytes(cols) / 4;
        let mut add = |end: &str, from, dtype, shape, bytes| {
            self.outputs.push((format!("{module}.{end}"), Output { from, dtype, shape, bytes }));
        };
        let mut shape = [0; 16];
        shape[..8].copy_from_slice(&(rows as i64).to_le_bytes());
        shape[8..].copy_from_slice(&(cols as i64).to_le_bytes());
        let codes = Plane::Codes(matrix.clone(), coding);
        add("weight_packed", codes, Dtype::I32, vec![rows, words], rows * words * 4);
        let dtype = if scales == Scales::F16 { Dtype::F16 } else { Dtype::BF16 };
        let groups = coding.scale_bytes(cols) / 2;
        add("weight_scale", Plane::Scales(matrix, coding), dtype, vec![rows, groups], rows * groups * 2);
        add("weight_shape", Plane::Shape(shape), Dtype::I64, vec![2], shape.len());
        self.modules.push((module.to_owned(), group));
    }

    /// Writes the files of weights.
    fn write(self, to: &Path, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<()> {
        let total: usize = self.outputs.iter().map(|(_, output)| output.bytes).sum();
        let mut shards: Vec<Vec<(String, Output)>> = vec![Vec::new()];
        let mut filled = 0;
        for (name, output) in self.outputs {
            if filled > 0 && filled + output.bytes > SHARD_BYTES {
                shards.push(Vec::new());
                filled = 0;
            }
            filled += output.bytes;
            shards.last_mut().expect("one at least").push((name, output));
        }
        let count = shards.len();
        let file = |shard: usize| match count {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", shard + 1),
        };
        let (mut index, mut done) = (BTreeMap::new(), 0);
        for (shard, outputs) in shards.into_iter().enumerate() {
            index.extend(outputs.iter().map(|(name, _)| (name.clone(), file(shard))));
            let path = to.join(file(shard));
            write_tensors(&path, outputs, &mut |bytes| {
                done += bytes;
                match progress(done as f32 / total as f32) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(()) => Err(Error::Cancelled),
                }
            })?;
        }
        if count > 1 {
            let index = json!({"metadata": {"total_size": total}, "weight_map": index});
            write(&to.join("model.safetensors.index.json"), &index)?;
        }
        log::log(Level::Info, format_args!("{}: {total} bytes of weights in {count} files", to.display()));
        Ok(())
    }

    /// `quantization_config`.
    fn config(&self, bits: usize) -> Value {
        let mut groups: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        self.modules.iter().for_each(|(module, group)| groups.entry(*group).or_default().push(module));
        let is_one = groups.len() == 1;
        let groups = groups.into_iter().enumerate().map(|(number, (group, modules))| {
            let targets = if is_one { json!(["Linear"]) } else { json!(modules) };
            let weights = json!({
                "num_bits": bits, "type": "int", "symmetric": true, "strategy": "group", "group_size": group, "dynamic": false,
                "actorder": null, "observer": "minmax",
            });
            let group = json!({
                "targets": targets, "weights": weights, "input_activations": null, "output_activations": null,
                "format": "pack-quantized",
            });
            (format!("group_{number}"), group)
        });
        let groups: serde_json::Map<String, Value> = groups.collect();
        // A tied head has no tensor, and is a module all the same.
        let mut ignored = self.ignored.clone();
        if !ignored.iter().any(|module| module == "lm_head") {
            ignored.push("lm_head".into());
        }
        json!({
            "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "config_groups": groups, "ignore": ignored, "kv_cache_scheme": null, "global_compression_ratio": null,
        })
    }
}

impl Output {
    fn bytes(&self) -> Result<HostBytes> {
        let packed = |matrix: &HostMatrix, coding: &WeightFormat| -> Result<[HostBytes; 2]> {
            let quantized = quantize(matrix, *coding)?;
            let planes = quantized.planes().expect("its rows follow each other");
            Ok([planes.codes, planes.scales].map(|plane| HostBytes::owned(plane.into())))
        };
        Ok(match &self.from {
            Plane::Copy(bytes) => bytes.clone(),
            Plane::Codes(matrix, coding) => packed(matrix, coding)?[0].clone(),
            Plane::Scales(matrix, coding) => packed(matrix, coding)?[1].clone(),
            Plane::Shape(bytes) => HostBytes::owned((*bytes).into()),
        })
    }
}

/// Writes a safetensors file: the length of a header, the header, and the tensors it names one after another. `wrote` is told how many
/// bytes a tensor has.
fn write_tensors(
    path: &Path,
    mut outputs: Vec<(String, Output)>,
    wrote: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<()> {
    // Each begins at a multiple of its number type.
    outputs.sort_by_key(|(_, output)| std::cmp::Reverse(output.dtype.bitsize()));
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for (name, Output { dtype, shape, bytes, .. }) in &outputs {
        let offsets = [end, end + bytes];
        header.insert(name.clone(), json!({"dtype": dtype.to_string(), "shape": shape, "data_offsets": offsets}));
        end += bytes;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let io = |source| Error::Io { path: path.into(), source };
    let mut file = BufWriter::new(File::create_new(path).map_err(io)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    file.write_all(&header).map_err(io)?;
    for (_, output) in outputs {
        let bytes = output.bytes()?;
        file.write_all(&bytes).map_err(io)?;
        wrote(bytes.len())?;
    }
    file.flush().map_err(io)
}

/// `to` without links, if it does not lie in the folder that is read: whoever wrote there would change what is copied.
fn outside(folder: &ConfinedFolder, to: &Path) -> Result<PathBuf> {
    let real = without_links(to).map_err(|source| Error::Io { path: to.into(), source })?;
    refuse_inside(folder, &real, to)?;
    Ok(real)
}

fn refuse_inside(folder: &ConfinedFolder, real: &Path, to: &Path) -> Result<()> {
    if !folder.has(real) {
        return Ok(());
    }
    let reason = format!("lies in {}, which is quantized: name a folder outside of it", folder.path().display());
    Err(Error::ModelFile { path: to.into(), reason })
}

/// Where a path leads of which the end need not exist.
fn without_links(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::new();
    for part in std::path::absolute(path)?.components() {
        match part {
            // What is there so far has no links.
            Component::ParentDir => _ = real.pop(),
            // Windows takes it for the current folder of that drive.
            Component::Prefix(drive) => {
                real.push(drive.as_os_str());
                continue;
            }
            part => real.push(part),
        }
        match fs::canonicalize(&real) {
            Ok(found) => real = found,
            // A link that leads nowhere would lead anywhere once there is something.
            Err(error) if error.kind() != ErrorKind::NotFound || fs::symlink_metadata(&real).is_ok() => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Ok(real)
}

/// Makes the folder, unless it is there and empty.
fn create(to: &Path) -> Result<()> {
    let io = |source| Error::Io { path: to.into(), source };
    fs::create_dir_all(to).map_err(io)?;
    match fs::read_dir(to).map_err(io)?.next() {
        None => Ok(()),
        Some(_) => {
            let reason = "is not empty, and nothing is overwritten: name a folder that does not exist".into();
            Err(Error::ModelFile { path: to.into(), reason })
        }
    }
}

/// The files that are not of weights: the tokenizer, chat templates and so on.
#[derive(Default)]
struct Others {
    /// Their names in the folder.
    names: Vec<PathBuf>,
    bytes: u64,
}

impl Others {
    fn of(folder: &ConfinedFolder) -> Result<Others> {
        let mut others = Others::default();
        if others.add(folder, Path::new(""))? {
            // Folders in it are left out, as all others are.
            others.add(folder, Path::new(TEMPLATES))?;
        }
        Ok(others)
    }

    /// Adds those of `below`, which is nothing or a folder in the folder. Answers whether it has a folder of templates.
    fn add(&mut self, folder: &ConfinedFolder, below: &Path) -> Result<bool> {
        let at = folder.path().join(below);
        let io = |source| Error::Io { path: at.clone(), source };
        let mut has_templates = false;
        for entry in fs::read_dir(&at).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let path = at.join(&name);
            let Some(name) = name.to_str() else {
                let reason = format!("has a name that is not UTF-8, {name:?}: rename it");
                return Err(Error::ModelFile { path, reason });
            };
            let is_left_out =
                name.starts_with('.') || name == "config.json" || LEFT_OUT.iter().any(|end| name.ends_with(end));
            let facts = match folder.facts(&path) {
                Err(Error::Io { source, .. }) if is_left_out && source.kind() == ErrorKind::NotFound => continue,
                facts => facts?,
            };
            has_templates |= facts.is_dir() && name == TEMPLATES;
            if facts.is_dir() || is_left_out {
                continue;
            }
            if facts.len() > COPIED_FILE_BYTES {
                let len = facts.len();
                log::log(Level::Warn, format_args!("{}: left out, because it has {len} bytes", path.display()));
                continue;
            }
            self.names.push(below.join(name));
            self.bytes += facts.len();
            if self.names.len() > limits::COPIED_FILES || self.bytes > limits::COPIED_BYTES {
                let found = format!("{} files of {} bytes beside its weights", self.names.len(), self.bytes);
                return Err(too_much(folder, &found));
            }
        }
        Ok(has_templates)
    }

    fn copy(&self, folder: &ConfinedFolder, to: &Path) -> Result<()> {
        let mut left = limits::COPIED_BYTES;
        for name in &self.names {
            let (path, new) = (folder.path().join(name), to.join(name));
            if let Some(parent) = new.parent() {
                fs::create_dir_all(parent).map_err(|source| Error::Io { path: parent.into(), source })?;
            }
            let (file, _) = folder.open(&path)?;
            let permissions = file.metadata().map_err(|source| Error::Io { path: path.clone(), source })?.permissions();
            let io = |source| Error::Io { path: new.clone(), source };
            let mut copy = File::create_new(&new).map_err(io)?;
            // A file may grow while it is copied, and those of /proc say that they have no bytes.
            let copied = io::copy(&mut file.take(left + 1), &mut copy).map_err(io)?;
            left =
                left.checked_sub(copied).ok_or_else(|| too_much(folder, "as much beside its weights, and it grows"))?;
            copy.set_permissions(of_data(permissions)).map_err(io)?;
        }
        Ok(())
    }
}

fn too_much(folder: &ConfinedFolder, found: &str) -> Error {
    let (files, bytes) = (limits::COPIED_FILES, limits::COPIED_BYTES);
    let reason = format!("has at least {found}, but at most {files} files of {bytes} bytes in all are copied");
    Error::ModelFile { path: folder.path().into(), reason }
}

/// Who may read and write a file, without the right to run it: a program that runs as its owner would do so for the owner of the copy.
#[cfg(unix)]
fn of_data(permissions: fs::Permissions) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(permissions.mode() & 0o666)
}

#[cfg(not(unix))]
fn of_data(permissions: fs::Permissions) -> fs::Permissions {
    permissions
}

/// config.json with what is done to the weights.
fn config(source: &Source, plan: &Plan, bits: usize) -> Result<Value> {
    let Source::Folder(folder) = source else { unreachable!("opened as a folder") };
    let file = folder.config()?;
    let refused = |reason| Error::ModelFile { path: file.path.clone(), reason };
    let mut config: serde_json::Map<String, Value> =
        serde_json::from_slice(&file.bytes).map_err(|e| refused(format!("is not JSON of an object: {e}")))?;
    config.insert("quantization_config".into(), plan.config(bits));
    Ok(Value::Object(config))
}

/// Writes a file that is not there yet.
fn write(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value).expect("JSON is text");
    let written = File::create_new(path).and_then(|mut file| file.write_all((text + "\n").as_bytes()));
    written.map_err(|source| Error::Io { path: path.into(), source })
}
