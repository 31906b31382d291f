//! Rotary position embedding: how fast each pair of numbers in a head turns, and the table of its cosines and sines. And what else
//! a config says of positions: how queries grow with theirs.
//!
//! The arithmetic is in f32 where transformers has f32: at far positions an ulp of a frequency is a visible angle.

use crate::fields::{COUNT_MAX, Fields, is_positive};
use base::error::{self, Error, Result};
use base::limits;
use compute::Pairing;
use std::f64::consts::PI;

/// Factors of a longrope scaling, at most: pairs of the widest head.
const FACTORS_MAX: usize = 256;

/// A rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies: pair `i` of a head turns by `theta^(-2i / rotary)` a position before scaling.
    pub theta: f64,
    /// How the frequencies are changed for a longer context.
    pub scaling: RopeScaling,
    /// Share of each head that turns: its first [`rotary`](Rope::rotary) numbers. Above 0, at most 1.
    pub rotary_factor: f64,
    /// Which two numbers turn together.
    pub pairing: Pairing,
}

/// What a config says of positions.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionSettings {
    /// The rotation of queries and keys.
    pub rope: Rope,
    /// Whether queries grow with their position.
    pub temperature: Option<Temperature>,
}

/// Queries are multiplied by `1 + beta * ln(1 + floor(position / original_positions))` after the rotation.
///
/// As `llama_4_scaling_beta` of transformers, models/ministral3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Growth per e-fold.
    pub beta: f32,
    /// Positions of the first training.
    pub original_positions: usize,
}

/// What a family's configs may leave out, and what they never say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeDefaults {
    /// Base of the frequencies.
    pub theta: f64,
    /// Share of each head that turns.
    pub rotary_factor: f64,
    /// Which two numbers turn together.
    pub pairing: Pairing,
}

impl Default for RopeDefaults {
    /// Llama's.
    fn default() -> RopeDefaults {
        RopeDefaults { theta: 10_000.0, rotary_factor: 1.0, pairing: Pairing::Halves }
    }
}

/// The layers that a set of rope parameters is for, in a model that has more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerType {
    /// `full_attention`
    Full,
    /// `sliding_attention`
    Sliding,
}

/// How frequencies are changed so that a model reads further than it was first trained to.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All are divided by `factor`.
    Linear {
        /// Above 0.
        factor: f64,
    },
    /// Llama 3: slow ones are divided by `factor`, fast ones stay, those between are blended.
    Llama3 {
        /// Above 0.
        factor: f64,
        /// Turns over the original context below which a frequency is slow.
        low_freq_factor: f64,
        /// Turns over the original context above which a frequency is fast.
        high_freq_factor: f64,
        /// Positions of the first training.
        original_positions: usize,
    },
    /// YaRN: a ramp between dividing and keeping, and all cosines and sines times `attention_factor`.
    Yarn {
        /// Above 0.
        factor: f64,
        /// Scale of cosines and sines.
        attention_factor: f64,
        /// Turns over the original context above which a frequency stays.
        beta_fast: f64,
        /// Turns over the original context below which a frequency is divided.
        beta_slow: f64,
        /// Whether the ends of the ramp are whole numbers.
        ramp: Ramp,
        /// Positions of the first training.
        original_positions: usize,
    },
    /// LongRoPE (Phi-3): each frequency is divided by a factor of its own, and all cosines and sines are multiplied by
    /// `attention_factor`.
    ///
    /// A cached key is rotated once, so that one set of factors serves all sequences of an engine: the short ones if its
    /// `max_model_len` is at most `original_positions`, else the long ones. transformers chooses by the length of each sequence.
    LongRope {
        /// For contexts of the first training. `[rotary / 2]`
        short_factors: Vec<f64>,
        /// For longer contexts. `[rotary / 2]`
        long_factors: Vec<f64>,
        /// Scale of cosines and sines.
        attention_factor: f64,
        /// Positions of the first training.
        original_positions: usize,
    },
    /// Gemma 4: of the pairs of the numbers that turn, the first ones turn as they would without scaling, divided by `factor`, and the
    /// others not at all.
    Proportional {
        /// Above 0.
        factor: f64,
        /// Share of the pairs that turn. Above 0, at most 1.
        turning: f64,
    },
}

/// Where YaRN's ramp begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ramp {
    /// At whole pairs, rounded outwards.
    Whole,
    /// Where the formula puts it.
    Exact,
}

impl Rope {
    /// Reads `rope_scaling` with `rope_theta` beside it, or `rope_parameters` with `rope_theta` inside, of a model that rotates whole
    /// heads and whose queries do not grow.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedModel`] for a config that asks for anything else.
    pub fn from_config(config: Fields, max_position_embeddings: usize) -> Result<Rope> {
        let PositionSettings { rope, temperature } =
            PositionSettings::read(config, max_position_embeddings, RopeDefaults::default())?;
        if rope.rotary_factor != 1.0 {
            return Err(Error::UnsupportedModel {
                setting: "partial_rotary_factor",
                value: rope.rotary_factor.to_string(),
                supported: "1 in a model of this class: whole heads are rotated",
            });
        }
        if let Some(temperature) = temperature {
            return Err(Error::UnsupportedModel {
                setting: "llama_4_scaling_beta",
                value: temperature.beta.to_string(),
                supported: "absent or 0 in a model of this class: queries do not grow with their position",
            });
        }
        Ok(rope)
    }

    /// Numbers of each head that turn, of `head_dim`.
    pub fn rotary(&self, head_dim: usize) -> usize {
        // transformers rounds down as well.
        (head_dim as f64 * self.rotary_factor) as usize
    }

    /// Refuses a rope that does not fit heads of `head_dim` numbers.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedModel`] that names the setting.
    pub fn check(&self, head_dim: usize) -> Result<()> {
        let rotary = self.rotary(head_dim);
        if rotary == 0 || !rotary.is_multiple_of(2) {
            return Err(Error::UnsupportedModel {
                setting: "partial_rotary_factor",
                value: format!("{}, which is {rotary} numbers of {head_dim}", self.rotary_factor),
                supported: "an even number of numbers in each head, at least 2",
            });
        }
        let RopeScaling::LongRope { short_factors, long_factors, .. } = &self.scaling else {
            return self.check_numbers(head_dim);
        };
        for (setting, factors) in [("short_factor", short_factors), ("long_factor", long_factors)] {
            if factors.len() != rotary / 2 {
                return Err(Error::UnsupportedModel {
                    setting,
                    value: format!("{} factors for {} pairs", factors.len(), rotary / 2),
                    supported: "one factor for each pair of numbers that turn together",
                });
            }
        }
        self.check_numbers(head_dim)
    }

    /// Refuses numbers that make an angle, or the scale, none that single precision has: each may be good, and all together not.
    fn check_numbers(&self, head_dim: usize) -> Result<()> {
        for max_model_len in [0, usize::MAX] {
            let (frequencies, scale) = self.frequencies(head_dim, max_model_len);
            let is_good = |frequency: &f32| *frequency >= 0.0 && (frequency * limits::MODEL_LEN as f32).is_finite();
            let value = match frequencies.iter().find(|frequency| !is_good(frequency)) {
                Some(frequency) => format!("one that makes {frequency} radians per position"),
                None if !is_positive(scale.into()) => format!("one that makes {scale} the factor of attention"),
                None => continue,
            };
            let supported = "one whose numbers, also those made of them, are above 0 and finite in single precision";
            return Err(Error::UnsupportedModel { setting: "rope_scaling", value, supported });
        }
        Ok(())
    }

    /// Cosines and sines of the first `positions` positions, in an engine whose contexts have at most `max_model_len`.
    /// `[positions, rotary]`: of each position `rotary / 2` cosines, then as many sines
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]
    pub fn table(&self, head_dim: usize, positions: usize, max_model_len: usize) -> Result<Vec<f32>> {
        let mut table = room(positions * self.rotary(head_dim))?;
        let (frequencies, scale) = self.frequencies(head_dim, max_model_len);
        for position in 0..positions {
            let angle = |frequency: &f32| position as f32 * frequency;
            table.extend(frequencies.iter().map(|f| angle(f).cos() * scale));
            table.extend(frequencies.iter().map(|f| angle(f).sin() * scale));
        }
        Ok(table)
    }

    /// Radians per position of each pair, and the scale of cosines and sines. `[rotary / 2]`
    fn frequencies(&self, head_dim: usize, max_model_len: usize) -> (Vec<f32>, f32) {
        let rotary = self.rotary(head_dim);
        let power = |pair: usize| (self.theta as f32).powf((2 * pair) as f32 / rotary as f32);
        let plain: Vec<f32> = (0..rotary / 2).map(|pair| 1.0 / power(pair)).collect();
        match self.scaling {
            RopeScaling::None => (plain, 1.0),
            RopeScaling::Linear { factor } => (plain.iter().map(|f| f / factor as f32).collect(), 1.0),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions } => {
                let context = original_positions as f32;
                let (factor, low, high) = (factor as f32, low_freq_factor as f32, high_freq_factor as f32);
                let scaled = plain.iter().map(|&f| {
                    let wavelength = 2.0 * PI as f32 / f;
                    if wavelength < context / high {
                        f
                    } else if wavelength > context / low {
                        f / factor
                    } else {
                        let smooth = (context / wavelength - low) / (high - low);
                        (1.0 - smooth) * f / factor + smooth * f
                    }
                });
                (scaled.collect(), 1.0)
            }
            RopeScaling::Yarn { factor, attention_factor, beta_fast, beta_slow, ramp, original_positions } => {
                // The pair that makes `turns` turns over the original context.
                let pair_of = |turns: f64| {
                    rotary as f64 * (original_positions as f64 / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln())
                };
                let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
                if ramp == Ramp::Whole {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(rotary as f64 - 1.0));
                if low == high {
                    high += 0.001;
                }
                let scaled = plain.iter().enumerate().map(|(pair, &f)| {
                    let divided = ((pair as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
                    let kept = 1.0 - divided;
                    1.0 / (factor as f32 * power(pair)) * (1.0 - kept) + f * kept
                });
                (scaled.collect(), attention_factor as f32)
            }
            RopeScaling::Proportional { factor, turning } => {
                // transformers rounds down as well.
                let turning = (turning * rotary as f64 / 2.0) as usize;
                let frequency = |(pair, f): (usize, &f32)| if pair < turning { f / factor as f32 } else { 0.0 };
                (plain.iter().enumerate().map(frequency).collect(), 1.0)
            }
            RopeScaling::LongRope { ref short_factors, ref long_factors, attention_factor, original_positions } => {
                let factors = if max_model_len > original_positions { long_factors } else { short_factors };
                let divided = factors.iter().enumerate().map(|(pair, &factor)| 1.0 / (factor as f32 * power(pair)));
                (divided.collect(), attention_factor as f32)
            }
        }
    }
}

impl Temperature {
    /// The factor of the queries at each position. `[positions]`
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]
    pub fn table(&self, positions: usize) -> Result<Vec<f32>> {
        let mut table = room(positions)?;
        table.extend((0..positions).map(|p| 1.0 + self.beta * (1.0 + (p / self.original_positions) as f32).ln()));
        Ok(table)
    }
}

fn room(len: usize) -> Result<Vec<f32>> {
    error::room(len, "the table of rotary positions", "max_model_len")
}

impl PositionSettings {
    /// Reads `rope_scaling` with `rope_theta` beside it, or `rope_parameters` with `rope_theta` inside, of a model with one set for
    /// all layers.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedModel`] for what is not computed, [`Error::ModelFile`] for what is wrong.
    pub fn read(config: Fields, max_position_embeddings: usize, defaults: RopeDefaults) -> Result<PositionSettings> {
        let old = config.object("rope_scaling")?.filter(|scaling| scaling.iter().next().is_some());
        let parameters = match old {
            Some(scaling) => Some(scaling),
            None => config.object("rope_parameters")?,
        };
        if let Some((layer, _)) = parameters.and_then(|p| p.iter().find(|(_, value)| value.is_object())) {
            return Err(Error::UnsupportedModel {
                setting: "rope_parameters",
                value: format!("different for {layer}"),
                supported: "one set for all layers in a model of this class",
            });
        }
        let place = FieldSource { theta_beside: "rope_theta", original_beside: true };
        place.read(config, parameters, max_position_embeddings, defaults)
    }

    /// Reads the set of `layers` in a model that has one for each type of layer: an object of `rope_parameters`, or in older configs
    /// `rope_theta` and `rope_scaling` for full attention and `rope_local_base_freq` without scaling for a sliding window.
    ///
    /// # Errors
    ///
    /// As [`PositionSettings::read`].
    pub fn read_for(
        layers: LayerType,
        config: Fields,
        max_position_embeddings: usize,
        defaults: RopeDefaults,
    ) -> Result<PositionSettings> {
        let (name, theta_beside) = match layers {
            LayerType::Full => ("full_attention", "rope_theta"),
            LayerType::Sliding => ("sliding_attention", "rope_local_base_freq"),
        };
        let place = FieldSource { theta_beside, original_beside: false };
        if let Some(all) = config.object("rope_parameters")? {
            if let Some((field, _)) = all.iter().find(|(_, value)| !value.is_object() && !value.is_null()) {
                return Err(Error::UnsupportedModel {
                    setting: "rope_parameters",
                    value: format!("{field} for all layers"),
                    supported: "one set for each type of layer in a model of this class",
                });
            }
            return place.read(config, all.object(name)?, max_position_embeddings, defaults);
        }
        let scaling = match layers {
            LayerType::Full => config.object("rope_scaling")?,
            LayerType::Sliding => None,
        };
        place.read(config, scaling, max_position_embeddings, defaults)
    }
}

/// Where a set of parameters leaves fields to the config around it.
struct FieldSource {
    /// The field that has `theta` if the set has none.
    theta_beside: &'static str,
    /// Whether `original_max_position_embeddings` beside the set wins over the one inside.
    original_beside: bool,
}

impl FieldSource {
    fn read(
        &self,
        config: Fields,
        parameters: Option<Fields>,
        max_position_embeddings: usize,
        defaults: RopeDefaults,
    ) -> Result<PositionSettings> {
        let inside = |name| parameters.map(|p| p.positive_or_none(name)).transpose().map(Option::flatten);
        let theta = match (inside("rope_theta")?, config.positive_or_none(self.theta_beside)?) {
            (Some(theta), _) | (None, Some(theta)) => theta,
            (None, None) => defaults.theta,
        };
        if theta as f32 <= 1.0 {
            return Err(config.refuse(format!("rope_theta is {theta}, but must be a number above 1")));
        }
        let rotary_factor = match (inside("partial_rotary_factor")?, config.positive_or_none("partial_rotary_factor")?)
        {
            (Some(factor), _) | (None, Some(factor)) => factor,
            (None, None) => defaults.rotary_factor,
        };
        if rotary_factor > 1.0 {
            return Err(config.refuse(format!("partial_rotary_factor is {rotary_factor}, but must be at most 1")));
        }
        // A field beside the set wins over the one inside, which wins over the model's maximum.
        let beside = match self.original_beside {
            true => config.count_or_none("original_max_position_embeddings")?,
            false => None,
        };
        let inside = parameters.map(|p| p.count_or_none("original_max_position_embeddings")).transpose()?.flatten();
        let original_positions = beside.or(inside).unwrap_or(max_position_embeddings);
        let rope = |scaling| Rope { theta, scaling, rotary_factor, pairing: defaults.pairing };
        let Some(parameters) = parameters else {
            return Ok(PositionSettings { rope: rope(RopeScaling::None), temperature: None });
        };
        let scaling = RopeScaling::read(parameters, max_position_embeddings, original_positions)?;
        let rope = |scaling| match scaling {
            // The share is one of the pairs of a whole head.
            RopeScaling::Proportional { factor, .. } => {
                let scaling = RopeScaling::Proportional { factor, turning: rotary_factor };
                Rope { rotary_factor: 1.0, ..rope(scaling) }
            }
            scaling => rope(scaling),
        };
        let beta = number_or_zero(parameters, "llama_4_scaling_beta")? as f32;
        let temperature = (beta != 0.0).then_some(Temperature { beta, original_positions });
        Ok(PositionSettings { rope: rope(scaling), temperature })
    }
}

impl RopeScaling {
    fn read(parameters: Fields, max_position_embeddings: usize, original_positions: usize) -> Result<RopeScaling> {
        let kind = match parameters.text("rope_type")? {
            Some(kind) => kind,
            None => parameters.text("type")?.unwrap_or("default"),
        };
        match kind {
            "default" => Ok(RopeScaling::None),
            // The base grows with a text beyond the positions of the model, and `max_model_len` is at most these.
            "dynamic" => parameters.positive("factor").map(|_| RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: parameters.positive("factor")? }),
            "llama3" => llama3(parameters, original_positions),
            "yarn" => yarn(parameters, max_position_embeddings, original_positions),
            // The second is what the first Phi-3 called it.
            "longrope" | "su" => long_rope(parameters, max_position_embeddings, original_positions),
            "proportional" => {
                let factor = parameters.positive_or_none("factor")?.unwrap_or(1.0);
                Ok(RopeScaling::Proportional { factor, turning: 1.0 })
            }
            other => Err(Error::UnsupportedModel {
                setting: "rope_scaling",
                value: other.into(),
                supported: "default, linear, dynamic, llama3, yarn, longrope or proportional",
            }),
        }
    }

    /// Positions the model can tell apart when its config says `max_position_embeddings`.
    ///
    /// Qwen's way to switch YaRN on leaves that field at the length before it, so the stretched one counts too.
    pub fn max_positions(&self, max_position_embeddings: usize) -> usize {
        match self {
            RopeScaling::Yarn { factor, original_positions, .. } => {
                let stretched = (*original_positions as f64 * factor) as usize;
                max_position_embeddings.max(stretched.min(COUNT_MAX as usize))
            }
            _ => max_position_embeddings,
        }
    }
}

fn llama3(scaling: Fields, original_positions: usize) -> Result<RopeScaling> {
    let low_freq_factor = scaling.positive("low_freq_factor")?;
    let high_freq_factor = scaling.positive("high_freq_factor")?;
    if high_freq_factor as f32 <= low_freq_factor as f32 {
        return Err(scaling.refuse(format!(
            "high_freq_factor is {high_freq_factor}, but must be above low_freq_factor, which is {low_freq_factor}"
        )));
    }
    Ok(RopeScaling::Llama3 {
        factor: scaling.positive("factor")?,
        low_freq_factor,
        high_freq_factor,
        original_positions,
    })
}

fn yarn(scaling: Fields, max_position_embeddings: usize, original_positions: usize) -> Result<RopeScaling> {
    let stretch = max_position_embeddings as f64 / original_positions as f64;
    let factor = scaling.positive_or_none("factor")?.unwrap_or(stretch);
    let sharpness = |weight: f64| sharpness(factor, weight);
    let weights = (number_or_zero(scaling, "mscale")?, number_or_zero(scaling, "mscale_all_dim")?);
    let attention_factor = match (scaling.positive_or_none("attention_factor")?, weights) {
        (Some(given), _) => given,
        (None, (some, all)) if some != 0.0 && all != 0.0 => sharpness(some) / sharpness(all),
        (None, _) => sharpness(1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        attention_factor,
        beta_fast: scaling.positive_or_none("beta_fast")?.unwrap_or(32.0),
        beta_slow: scaling.positive_or_none("beta_slow")?.unwrap_or(1.0),
        ramp: if scaling.flag("truncate")? == Some(false) { Ramp::Exact } else { Ramp::Whole },
        original_positions,
    })
}

/// What YaRN multiplies for a context that is `factor` times as long: attention over it is flatter, and the paper sharpens it by a little more for each
/// e-fold.
pub fn sharpness(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

fn long_rope(scaling: Fields, max_position_embeddings: usize, original_positions: usize) -> Result<RopeScaling> {
    let stretch = max_position_embeddings as f64 / original_positions as f64;
    let factor = scaling.positive_or_none("factor")?.unwrap_or(stretch);
    let attention_factor = match scaling.positive_or_none("attention_factor")? {
        Some(given) => given,
        None if factor <= 1.0 => 1.0,
        None => (1.0 + factor.ln() / (original_positions as f64).ln()).sqrt(),
    };
    let factors = |name| -> Result<Vec<f64>> {
        let is_factor = |v: &f64| is_positive(*v);
        let list = scaling.get(name).and_then(|value| value.as_array()).filter(|list| list.len() <= FACTORS_MAX);
        let factors = list.and_then(|list| list.iter().map(|v| v.as_f64().filter(is_factor)).collect());
        factors.ok_or_else(|| scaling.refuse(format!("{name} must be a list of at most {FACTORS_MAX} numbers above 0")))
    };
    Ok(RopeScaling::LongRope {
        short_factors: factors("short_factor")?,
        long_factors: factors("long_factor")?,
        attention_factor,
        original_positions,
    })
}

/// `mscale` and `mscale_all_dim` count only when both are there and neither is 0.
fn number_or_zero(scaling: Fields, name: &str) -> Result<f64> {
    match scaling.get(name).and_then(|v| v.as_f64()) {
        Some(0.0) => Ok(0.0),
        _ => Ok(scaling.positive_or_none(name)?.unwrap_or(0.0)),
    }
}

#[cfg(test)]
mod tests;
