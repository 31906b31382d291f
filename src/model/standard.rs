//! The standard decoder: what do nearly all families have in common, and how do their configs spell it?
//!
//! Every layer is the same: attention with grouped heads and one rotary embedding, then a gated MLP, each behind an RMS
//! norm. A family reads this, changes what it does differently, and makes the list of layers of it.
//!
//! What several families do differently in the same way is read here too: windows in some of the layers, activations.

use crate::fields::Fields;
use crate::rope::{LayerType, PositionSettings, Rope, RopeDefaults};
use crate::spec::{
    Activation, AddedEmbeddings, Bias, Curve, DecoderSpec, FeedForward, Head, HeadWeights, KvSource, LayerSpec, Mixer,
    Mlp, MlpForm, Norm, NormWeight, OutputGate, QkNorm, SelfAttention, Sinks, SublayerNorms, Values,
};
use base::error::{Error, Result};
use base::limits;
use compute::{AttentionSpec, Pairing, Reach};
use serde_json::Value;

/// The fields of config.json that the families share, checked. Where `null` or absence means a default, it is applied,
/// except where the default depends on the family.
pub struct Standard {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: Option<usize>,
    intermediate: usize,
    vocab: usize,
    head: HeadWeights,
    reach: Reach,
    ropes: Vec<Rope>,
    max_positions: usize,
    /// Every norm of the model.
    pub norm: Norm,
}

impl Standard {
    /// Reads the fields that the families share, of a family that rotates whole heads in every layer alike.
    pub fn read(fields: Fields) -> Result<Standard> {
        let rope = Rope::from_config(fields, max_position_embeddings(fields)?)?;
        Standard::with_ropes(fields, vec![rope])
    }

    /// Reads the fields that the families share, but for those of rotary embeddings.
    pub fn with_ropes(fields: Fields, ropes: Vec<Rope>) -> Result<Standard> {
        Standard::of_layers(fields, ropes, fields.count_up_to("num_hidden_layers", limits::LAYERS)?)
    }

    /// The same, of a family whose configs say in another way how many layers there are.
    pub fn of_layers(fields: Fields, ropes: Vec<Rope>, layers: usize) -> Result<Standard> {
        let heads = fields.count_up_to("num_attention_heads", limits::HEADS)?;
        let kv_heads = fields.count_or_none("num_key_value_heads")?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(fields.refuse(format!(
                "num_attention_heads is {heads}, but must be a multiple of num_key_value_heads, which is {kv_heads}"
            )));
        }
        let max_position_embeddings = max_position_embeddings(fields)?;
        let max_positions = ropes.iter().map(|rope| rope.scaling.max_positions(max_position_embeddings)).max();
        Ok(Standard {
            hidden: fields.count("hidden_size")?,
            layers,
            heads,
            kv_heads,
            head_dim: fields.count_or_none("head_dim")?,
            intermediate: fields.count("intermediate_size")?,
            vocab: fields.count("vocab_size")?,
            head: if fields.flag("tie_word_embeddings")? == Some(true) { HeadWeights::Tied } else { HeadWeights::Own },
            max_positions: max_positions.unwrap_or(max_position_embeddings),
            reach: Reach::Back,
            ropes,
            norm: Norm::rms(fields.positive_or_none("rms_norm_eps")?.unwrap_or(1e-6) as f32),
        })
    }

    /// The same, with a rotation that turns neighbouring numbers of a head together.
    pub fn with_neighbours(mut self) -> Standard {
        for rope in &mut self.ropes {
            rope.pairing = Pairing::Neighbours;
        }
        self
    }

    /// The same, with norms that add this to the mean of squares.
    pub fn with_norm_eps(self, eps: f32) -> Standard {
        Standard { norm: Norm { eps, ..self.norm }, ..self }
    }

    /// The same, with a head that is the embedding table or a matrix of its own.
    pub fn with_head(self, head: HeadWeights) -> Standard {
        Standard { head, ..self }
    }

    /// The same, with norms whose weights are stored less one.
    pub fn with_norms_plus_one(self) -> Standard {
        Standard { norm: Norm { weight: NormWeight::PlusOne, ..self.norm }, ..self }
    }

    /// The same for a model without a head, whose tokens attend to those behind them too.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] if heads would not share the width of the stream.
    pub fn into_encoder(self, fields: Fields) -> Result<Standard> {
        let Standard { hidden, heads, .. } = self;
        if self.head_dim.is_none() && !hidden.is_multiple_of(heads) {
            return Err(fields.refuse(format!(
                "hidden_size is {hidden}, but must be a multiple of num_attention_heads, which is {heads}"
            )));
        }
        Ok(Standard { head: HeadWeights::Missing, reach: Reach::Both, ..self })
    }

    /// The rotary embeddings.
    pub fn ropes(&self) -> &[Rope] {
        &self.ropes
    }

    /// `hidden_size / num_attention_heads`: the numbers per head of a family that leaves `head_dim` out.
    pub fn shared_width(&self) -> usize {
        self.hidden / self.heads
    }

    /// Attention without norms, biases or anything else of a family's own. `head_dim` is the family's default.
    pub fn attention(&self, head_dim: usize) -> SelfAttention {
        let head_dim = self.head_dim.unwrap_or(head_dim);
        SelfAttention {
            scores: AttentionSpec {
                heads: self.heads,
                scale: 1.0 / (head_dim as f32).sqrt(),
                window: None,
                softcap: None,
                reach: self.reach,
            },
            kv_heads: self.kv_heads,
            head_dim,
            qk_norm: QkNorm::None,
            kv_source: KvSource::Own,
            values: Values::Projected,
            value_norm: None,
            latent: None,
            qkv_bias: Bias::None,
            output_bias: Bias::None,
            output_gate: OutputGate::None,
            rope: Some(0),
            temperature: None,
            sinks: Sinks::None,
        }
    }

    /// The MLP.
    pub fn mlp(&self, bias: Bias) -> Mlp {
        Mlp { width: self.intermediate, form: MlpForm::gated(Activation::Silu), bias, down_bias: bias }
    }

    /// The sliding window of each layer. Which layers have one is what `layer_types` says, or else `slides` of their index.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] if `layer_types` is no list with an entry per layer, or asks for a window and `sliding_window` is missing;
    /// [`Error::UnsupportedModel`] for another type of layer.
    pub fn windows(&self, fields: Fields, slides: impl Fn(usize) -> bool) -> Result<Vec<Option<usize>>> {
        let window = fields.count_or_none("sliding_window")?;
        let sliding = match layer_types(fields, self.layers)? {
            Some(sliding) => sliding,
            None => (0..self.layers).map(slides).collect(),
        };
        let of_layer = |(layer, slides)| match (slides, window) {
            (true, None) => Err(fields.refuse(format!(
                "sliding_window is missing, but layer {layer} has a window by layer_types or its default"
            ))),
            (true, window) => Ok(window),
            (false, _) => Ok(None),
        };
        sliding.into_iter().enumerate().map(of_layer).collect()
    }

    /// As [`Standard::windows`] of a family in which `use_sliding_window` switches windows on, and no layer has one where it does not.
    ///
    /// # Errors
    ///
    /// Those of [`Standard::windows`].
    pub fn switched_windows(&self, fields: Fields, slides: impl Fn(usize) -> bool) -> Result<Vec<Option<usize>>> {
        let is_on = fields.flag("use_sliding_window")? == Some(true) && fields.get("sliding_window").is_some();
        if is_on { self.windows(fields, slides) } else { Ok(vec![None; self.layers]) }
    }

    /// As [`Standard::windows`], where every `interval`-th layer has none unless `sliding_window_pattern` says another interval.
    ///
    /// # Errors
    ///
    /// Those of [`Standard::windows`].
    pub fn windows_by_pattern(&self, fields: Fields, interval: usize) -> Result<Vec<Option<usize>>> {
        let given = pattern(fields)?;
        let slides = |layer: usize| !(layer + 1).is_multiple_of(given.unwrap_or(interval));
        let windows = self.windows(fields, slides)?;
        let agrees = |(layer, window): (usize, &Option<usize>)| window.is_some() == slides(layer);
        // transformers writes its default beside a list that was given, and does not read it there.
        if let Some(given) = given.filter(|_| !windows.iter().enumerate().all(agrees)) {
            fields.warn(format_args!(
                "layer_types says something else than sliding_window_pattern, which is {given}, and counts"
            ));
        }
        Ok(windows)
    }

    /// Which layers have a rotary embedding: those whose entry of `layer_rope_theta` is not 0, or else those of `by_default`.
    ///
    /// transformers describes an entry as the base of its layer, and reads it as a flag: each layer that rotates does so with `rope_theta`.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] if `layer_rope_theta` is no list with an entry per layer.
    pub fn rotated_by_base(&self, fields: Fields, by_default: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
        let Some(list) = fields.get("layer_rope_theta") else { return Ok((0..self.layers).map(by_default).collect()) };
        let list = list.as_array().filter(|list| list.len() == self.layers);
        let base = |value: &Value| value.as_f64().filter(|&base| base >= 0.0);
        let bases: Option<Vec<f64>> = list.and_then(|list| list.iter().map(base).collect());
        let bases = bases.ok_or_else(|| {
            let layers = self.layers;
            fields.refuse(format!(
                "layer_rope_theta must be a list of numbers of at least 0, one for each of the {layers} layers"
            ))
        })?;
        let theta = self.ropes[0].theta;
        if let Some(layer) = bases.iter().position(|&base| base != 0.0 && base != theta) {
            fields.warn(format_args!(
                "layer_rope_theta is {} in layer {layer}, which rotates with rope_theta, {theta}, as in transformers",
                bases[layer]
            ));
        }
        Ok(bases.iter().map(|&base| base != 0.0).collect())
    }

    /// A layer with a norm before each part.
    pub fn layer(&self, attention: SelfAttention, mlp: Mlp) -> LayerSpec {
        let norms = SublayerNorms::before(self.norm);
        LayerSpec::pair((norms, Mixer::Attention(attention)), (norms, FeedForward::Dense(mlp)))
    }

    /// A decoder in which every layer is this one.
    pub fn decoder(self, attention: SelfAttention, mlp: Mlp) -> DecoderSpec {
        let layers = vec![self.layer(attention, mlp); self.layers];
        self.decoder_of(layers)
    }

    /// The same layer as often as there are `windows`, of which each has its own.
    pub fn decoder_with_windows(self, windows: Vec<Option<usize>>, attention: SelfAttention, mlp: Mlp) -> DecoderSpec {
        let layer = |window| {
            let scores = AttentionSpec { window, ..attention.scores };
            self.layer(SelfAttention { scores, ..attention.clone() }, mlp.clone())
        };
        let layers = windows.into_iter().map(layer).collect();
        self.decoder_of(layers)
    }

    /// A decoder of these layers.
    pub fn decoder_of(self, layers: Vec<LayerSpec>) -> DecoderSpec {
        DecoderSpec {
            hidden: self.hidden,
            vocab: self.vocab,
            embedding_scale: 1.0,
            added: AddedEmbeddings::NONE,
            embedding_norm: None,
            layer_inputs: None,
            layers,
            final_norm: Some(self.norm),
            head: Head::plain(self.head),
            pooled_layers: Vec::new(),
            ropes: self.ropes,
            max_positions: self.max_positions,
        }
    }
}

/// Indices of the ropes that [`ropes_by_layer_type`] gives.
pub const SLIDING: usize = 0;
/// See [`SLIDING`].
pub const FULL: usize = 1;

/// The rotary embedding of layers with a window, and that of layers without. `sliding_theta` is the base of the first where the config
/// has none for it.
pub fn ropes_by_layer_type(fields: Fields, sliding_theta: f64) -> Result<Vec<Rope>> {
    ropes_of_bases(fields, [sliding_theta, RopeDefaults::default().theta])
}

/// The same with the bases of both where the config has none for them, at [`SLIDING`] and [`FULL`].
pub fn ropes_of_bases(fields: Fields, [sliding, full]: [f64; 2]) -> Result<Vec<Rope>> {
    let rope = |layers, theta| {
        let defaults = RopeDefaults { theta, ..RopeDefaults::default() };
        let found = PositionSettings::read_for(layers, fields, max_position_embeddings(fields)?, defaults)?;
        whole_heads(refuse_temperature(found)?)
    };
    Ok(vec![rope(LayerType::Sliding, sliding)?, rope(LayerType::Full, full)?])
}

/// The object that describes the rotary embedding, under its older name or its newer.
pub fn rope_fields(fields: Fields) -> Result<Option<Fields>> {
    let old = fields.object("rope_scaling")?.filter(|scaling| scaling.iter().next().is_some());
    Ok(old.or(fields.object("rope_parameters")?))
}

/// The rotary embedding of a family that may rotate a part of each head.
pub fn partial_rope(fields: Fields) -> Result<Rope> {
    partial_rope_with(fields, RopeDefaults::default())
}

/// The same, with defaults of its own.
pub fn partial_rope_with(fields: Fields, defaults: RopeDefaults) -> Result<Rope> {
    refuse_temperature(PositionSettings::read(fields, max_position_embeddings(fields)?, defaults)?)
}

/// The rotary embedding of a family that rotates whole heads, with defaults of its own.
pub fn rope_with_defaults(fields: Fields, defaults: RopeDefaults) -> Result<Rope> {
    whole_heads(partial_rope_with(fields, defaults)?)
}

fn refuse_temperature(settings: PositionSettings) -> Result<Rope> {
    match settings.temperature {
        None => Ok(settings.rope),
        Some(temperature) => Err(Error::UnsupportedModel {
            setting: "llama_4_scaling_beta",
            value: temperature.beta.to_string(),
            supported: "absent or 0 in a model of this class",
        }),
    }
}

fn whole_heads(rope: Rope) -> Result<Rope> {
    match rope.rotary_factor {
        1.0 => Ok(rope),
        part => Err(Error::UnsupportedModel {
            setting: "partial_rotary_factor",
            value: part.to_string(),
            supported: "1 in a model of this class",
        }),
    }
}

/// Positions that the model was made for before scaling.
pub fn max_position_embeddings(fields: Fields) -> Result<usize> {
    fields.count("max_position_embeddings")
}

/// The scale of scores of a family that gives the number whose root they are divided by.
pub fn score_scale(fields: Fields) -> Result<f32> {
    Ok((1.0 / fields.positive("query_pre_attn_scalar")?.sqrt()) as f32)
}

/// The factor of embeddings of a family that multiplies them by the root of their width, rounded to the type of the checkpoint.
pub fn embedding_scale(fields: Fields, hidden: usize) -> Result<f32> {
    let exact = (hidden as f64).sqrt() as f32;
    let dtype = match fields.text("dtype")? {
        Some(dtype) => Some(dtype),
        None => fields.text("torch_dtype")?,
    };
    Ok(match dtype {
        Some("bfloat16") => half::bf16::from_f32(exact).to_f32(),
        Some("float16") => half::f16::from_f32(exact).to_f32(),
        _ => exact,
    })
}

/// The activation that a field names.
///
/// # Errors
///
/// [`Error::UnsupportedModel`] for one that is not computed.
pub fn activation(fields: Fields, name: &'static str) -> Result<Activation> {
    match fields.text(name)? {
        None | Some("silu") => Ok(Activation::Silu),
        Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some(other) => Err(Error::UnsupportedModel {
            setting: name,
            value: format!("{other:.60}"),
            supported: "silu or gelu_pytorch_tanh",
        }),
    }
}

/// The curve that a field names, of an MLP whose product with a gate is not fused with it. `None` where there is no such field.
///
/// # Errors
///
/// [`Error::UnsupportedModel`] for one that is not computed.
pub fn curve(fields: Fields, name: &'static str) -> Result<Option<Curve>> {
    Ok(Some(match fields.text(name)? {
        None => return Ok(None),
        Some("gelu" | "gelu_python") => Curve::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Curve::Gate(Activation::GeluTanh),
        Some("silu" | "swish") => Curve::Gate(Activation::Silu),
        Some(other) => {
            return Err(Error::UnsupportedModel {
                setting: name,
                value: format!("{other:.60}"),
                supported: "gelu, gelu_new, gelu_pytorch_tanh or silu",
            });
        }
    }))
}

/// Which layers are recurrent, by `layer_types`: those of a type of `recurrent`, where the others have one of `attention`. `None` where the config does not say.
///
/// # Errors
///
/// [`Error::ModelFile`] for a list of another length, [`Error::UnsupportedModel`] for another type of layer.
pub fn recurrent_layers(
    fields: Fields,
    layers: usize,
    (recurrent, attention): (&[&str], &[&str]),
    supported: &'static str,
) -> Result<Option<Vec<bool>>> {
    let Some(value) = fields.get("layer_types") else { return Ok(None) };
    let types = value.as_array().filter(|types| types.len() == layers).ok_or_else(|| {
        fields.refuse(format!("layer_types must be a list with an entry for each of the {layers} layers"))
    })?;
    let is_recurrent = |kind: &Value| match kind.as_str() {
        Some(kind) if recurrent.contains(&kind) => Ok(true),
        Some(kind) if attention.contains(&kind) => Ok(false),
        _ => Err(Error::UnsupportedModel { setting: "layer_types", value: Fields::shown(kind), supported }),
    };
    types.iter().map(is_recurrent).collect::<Result<_>>().map(Some)
}

/// Which layers have a window, by `layer_types`.
fn layer_types(fields: Fields, layers: usize) -> Result<Option<Vec<bool>>> {
    let Some(value) = fields.get("layer_types") else { return Ok(None) };
    let types = value.as_array().filter(|types| types.len() == layers).ok_or_else(|| {
        fields.refuse(format!("layer_types must be a list with an entry for each of the {layers} layers"))
    })?;
    let slides = |kind: &Value| match kind.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(Error::UnsupportedModel {
            setting: "layer_types",
            value: Fields::shown(kind),
            supported: "full_attention or sliding_attention",
        }),
    };
    types.iter().map(slides).collect::<Result<_>>().map(Some)
}

/// The interval of the layers without a window: a number, or `L` for each layer with a window and `G` for the one without.
fn pattern(fields: Fields) -> Result<Option<usize>> {
    const NAME: &str = "sliding_window_pattern";
    let Some(letters) = fields.get(NAME).and_then(Value::as_str) else { return fields.count_or_none(NAME) };
    match letters.strip_suffix('G') {
        Some(windows) if windows.bytes().all(|letter| letter == b'L') => Ok(Some(letters.len())),
        _ => Err(Error::UnsupportedModel {
            setting: NAME,
            value: format!("{letters:.60}"),
            supported: "a whole number, or L for layers with a window and then G for one without",
        }),
    }
}
