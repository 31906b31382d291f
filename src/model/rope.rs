//! Rotary position embedding: how fast each pair of numbers in a head turns, and the table of its cosines and sines.
//!
//! The arithmetic is in f32 where transformers has f32: at far positions an ulp of a frequency is a visible angle.

use crate::error::{Error, Result};
use crate::model::fields::Fields;
use std::f64::consts::PI;

/// A rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies: pair `i` of a head turns by `theta^(-2i / head_dim)` a position before scaling.
    pub theta: f64,
    /// How the frequencies are changed for a longer context.
    pub scaling: RopeScaling,
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
    /// Reads `rope_scaling` with `rope_theta` beside it, or `rope_parameters` with `rope_theta` inside.
    pub fn from_config(config: Fields, max_position_embeddings: usize) -> Result<Rope> {
        let old = config.object("rope_scaling")?.filter(|scaling| scaling.iter().next().is_some());
        let scaling = match old {
            Some(scaling) => Some(scaling),
            None => config.object("rope_parameters")?,
        };
        refuse_partial_rotation(config)?;
        let Some(scaling) = scaling else {
            return Ok(Rope { theta: theta(config, None)?, scaling: RopeScaling::None });
        };
        refuse_partial_rotation(scaling)?;
        if let Some((layer, _)) = scaling.iter().find(|(_, value)| value.is_object()) {
            return Err(Error::UnsupportedModel {
                setting: "rope_parameters",
                value: format!("different for {layer}"),
                supported: "one set for all layers",
            });
        }

        if let Some(beta) = scaling.get("llama_4_scaling_beta").filter(|beta| beta.as_f64() != Some(0.0)) {
            return Err(Error::UnsupportedModel {
                setting: "llama_4_scaling_beta",
                value: Fields::shown(beta),
                supported: "absent or 0: queries do not grow with their position",
            });
        }

        // A field beside the object wins over the one inside, which wins over the model's maximum.
        let original_positions = match config.count_or_none("original_max_position_embeddings")? {
            Some(positions) => positions,
            None => scaling.count_or_none("original_max_position_embeddings")?.unwrap_or(max_position_embeddings),
        };
        let kind = match scaling.text("rope_type")? {
            Some(kind) => kind,
            None => scaling.text("type")?.unwrap_or("default"),
        };
        let scaling_read = match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: scaling.positive("factor")? },
            "llama3" => llama3(scaling, original_positions)?,
            "yarn" => yarn(scaling, max_position_embeddings, original_positions)?,
            other => {
                return Err(Error::UnsupportedModel {
                    setting: "rope_scaling",
                    value: other.into(),
                    supported: "default, linear, llama3 or yarn",
                });
            }
        };
        Ok(Rope { theta: theta(config, Some(scaling))?, scaling: scaling_read })
    }

    /// Cosines and sines. `[positions, head_dim]`: of each position `head_dim / 2` cosines, then as many sines
    pub fn table(&self, head_dim: usize, positions: usize) -> Result<Vec<f32>> {
        let len = positions * head_dim;
        let mut table = Vec::new();
        table.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
            what: "the table of rotary positions",
            bytes: (len * size_of::<f32>()) as u64,
            knob: "max_model_len",
        })?;
        let (frequencies, scale) = self.frequencies(head_dim);
        for position in 0..positions {
            let angle = |frequency: &f32| position as f32 * frequency;
            table.extend(frequencies.iter().map(|f| angle(f).cos() * scale));
            table.extend(frequencies.iter().map(|f| angle(f).sin() * scale));
        }
        Ok(table)
    }

    /// Radians a position of each pair, and the scale of cosines and sines. `[head_dim / 2]`
    fn frequencies(&self, head_dim: usize) -> (Vec<f32>, f32) {
        let power = |pair: usize| (self.theta as f32).powf((2 * pair) as f32 / head_dim as f32);
        let plain: Vec<f32> = (0..head_dim / 2).map(|pair| 1.0 / power(pair)).collect();
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
                    head_dim as f64 * (original_positions as f64 / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln())
                };
                let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
                if ramp == Ramp::Whole {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(head_dim as f64 - 1.0));
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
        }
    }
}

impl RopeScaling {
    /// Positions the model can tell apart when its config says `max_position_embeddings`.
    ///
    /// Qwen's way to switch YaRN on leaves that field at the length before it, so the stretched one counts too.
    pub fn max_positions(&self, max_position_embeddings: usize) -> usize {
        match self {
            RopeScaling::Yarn { factor, original_positions, .. } => {
                let stretched = (*original_positions as f64 * factor) as usize;
                max_position_embeddings.max(stretched.min(crate::model::fields::COUNT_MAX as usize))
            }
            _ => max_position_embeddings,
        }
    }
}

fn theta(config: Fields, scaling: Option<Fields>) -> Result<f64> {
    let inside = scaling.map(|s| s.positive_or_none("rope_theta")).transpose()?.flatten();
    let theta = match inside {
        Some(theta) => theta,
        None => config.positive_or_none("rope_theta")?.unwrap_or(10_000.0),
    };
    if theta <= 1.0 || theta > f32::MAX as f64 {
        return Err(config.refuse(format!("rope_theta is {theta}, but must be a number above 1")));
    }
    Ok(theta)
}

fn refuse_partial_rotation(fields: Fields) -> Result<()> {
    match fields.positive_or_none("partial_rotary_factor")? {
        None | Some(1.0) => Ok(()),
        Some(part) => Err(Error::UnsupportedModel {
            setting: "partial_rotary_factor",
            value: part.to_string(),
            supported: "1: whole heads are rotated",
        }),
    }
}

fn llama3(scaling: Fields, original_positions: usize) -> Result<RopeScaling> {
    let low_freq_factor = scaling.positive("low_freq_factor")?;
    let high_freq_factor = scaling.positive("high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
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
    // Attention over a longer context is flatter; the paper sharpens it by a little more for each e-fold.
    let sharpness = |weight: f64| if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 };
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

/// `mscale` and `mscale_all_dim` count only when both are there and neither is 0.
fn number_or_zero(scaling: Fields, name: &str) -> Result<f64> {
    match scaling.get(name).and_then(|v| v.as_f64()) {
        Some(0.0) => Ok(0.0),
        _ => Ok(scaling.positive_or_none(name)?.unwrap_or(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::path::Path;

    fn read(config: Value) -> Result<Rope> {
        Rope::from_config(Fields::new(Path::new("config.json"), &config)?, 4096)
    }

    fn read_parameters(parameters: Value) -> Rope {
        read(json!({ "rope_parameters": parameters })).unwrap()
    }

    /// Frequencies and scale that transformers 5.23 computes for heads of 16.
    #[test]
    fn frequencies_are_those_of_transformers() {
        let yarn =
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "rope_theta": 1e6});
        let with = |more: Value| {
            let mut merged = yarn.clone();
            merged.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            merged
        };
        let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256, "rope_theta": 500000.0});
        let exact =
            with(json!({"truncate": false, "beta_fast": 16, "beta_slow": 2, "mscale": 0.8, "mscale_all_dim": 0.5}));
        let yarn_tail = [0.001405853, 0.00025, 4.445699e-5, 7.905694e-6, 1.405853e-6];
        let begins = |first: [f32; 3]| [&first[..], &yarn_tail].concat();
        let cases: [(&str, Value, f32, Vec<f32>); 6] = [
            (
                "default",
                json!({"rope_type": "default", "rope_theta": 10000.0}),
                1.0,
                vec![1.0, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278],
            ),
            (
                "linear",
                json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
                1.0,
                vec![0.25, 0.07905694, 0.025, 0.007905695, 0.0025, 0.0007905695, 0.00025, 7.905695e-5],
            ),
            (
                "llama3",
                llama3,
                1.0,
                vec![1.0, 0.1939228, 0.01053823, 0.0009115831, 0.0001767767, 3.428102e-5, 6.64787e-6, 1.289173e-6],
            ),
            ("yarn", yarn.clone(), 1.138629, begins([1.0, 0.133371, 0.01581139])),
            ("yarn, exact ramp, mscale", exact, 1.038893, begins([1.0, 0.1778279, 0.0187018])),
            (
                "yarn, attention_factor",
                with(json!({"attention_factor": 0.75})),
                0.75,
                begins([1.0, 0.133371, 0.01581139]),
            ),
        ];
        for (name, parameters, scale, wanted) in cases {
            let (found, found_scale) = read_parameters(parameters).frequencies(16);
            assert!((found_scale - scale).abs() < 1e-6, "{name}: scale {found_scale}");
            for (pair, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                assert!((found / wanted - 1.0).abs() < 1e-6, "{name}, pair {pair}: {found} instead of {wanted}");
            }
        }
    }

    #[test]
    fn scaling_is_read_in_both_places_and_under_both_names() {
        let wanted = Rope { theta: 5e5, scaling: RopeScaling::Linear { factor: 2.0 } };
        let configs = [
            json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}}),
            json!({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "type": "other", "factor": 2}}),
            json!({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 5e5}}),
            json!({"rope_theta": 5e5, "rope_scaling": null, "rope_parameters": {"type": "linear", "factor": 2}}),
            json!({"rope_theta": 5e5, "rope_scaling": {}, "rope_parameters": {"type": "linear", "factor": 2}}),
        ];
        for config in configs {
            assert_eq!(read(config.clone()).unwrap(), wanted, "{config}");
        }
        let plain = Rope { theta: 10_000.0, scaling: RopeScaling::None };
        assert_eq!(read(json!({})).unwrap(), plain);
        assert_eq!(read(json!({"rope_scaling": null})).unwrap(), plain);
    }

    #[test]
    fn the_original_length_is_looked_for_beside_inside_and_at_last_in_the_maximum() {
        let original = |config| match read(config).unwrap().scaling {
            RopeScaling::Yarn { original_positions, .. } => original_positions,
            other => panic!("{other:?}"),
        };
        let inside = json!({"type": "yarn", "factor": 4, "original_max_position_embeddings": 512});
        assert_eq!(original(json!({"rope_scaling": inside})), 512);
        assert_eq!(original(json!({"rope_scaling": inside, "original_max_position_embeddings": 256})), 256);
        assert_eq!(original(json!({"rope_scaling": {"type": "yarn", "factor": 4}})), 4096);
    }

    #[test]
    fn yarn_switched_on_by_hand_stretches_the_model() {
        let config = json!({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 2048}});
        assert_eq!(read(config).unwrap().scaling.max_positions(4096), 8192);
        assert_eq!(RopeScaling::None.max_positions(4096), 4096);
    }

    #[test]
    fn what_is_not_computed_is_never_ignored() {
        let unsupported = [
            json!({"rope_scaling": {"type": "dynamic", "factor": 2}}),
            json!({"rope_scaling": {"rope_type": "longrope"}}),
            json!({"rope_parameters": {"rope_type": "mrope"}}),
            json!({"partial_rotary_factor": 0.5}),
            json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}),
            json!({"rope_parameters": {"full_attention": {"rope_type": "default"}}}),
        ];
        for config in unsupported {
            assert!(matches!(read(config.clone()), Err(Error::UnsupportedModel { .. })), "{config}");
        }
        let wrong = [
            json!({"rope_scaling": {"type": "linear"}}),
            json!({"rope_scaling": {"type": "linear", "factor": 0}}),
            json!({"rope_scaling": {"type": "linear", "factor": "2"}}),
            json!({"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4}}),
            json!({"rope_scaling": "linear"}),
            json!({"rope_scaling": {"type": 3}}),
            json!({"rope_theta": -1}),
            json!({"rope_theta": 1e300}),
        ];
        for config in wrong {
            assert!(matches!(read(config.clone()), Err(Error::ModelFile { .. })), "{config}");
        }
    }

    #[test]
    fn the_table_holds_cosines_then_sines_of_each_position() {
        let table = read(json!({"rope_scaling": {"type": "linear", "factor": 2}})).unwrap().table(4, 3).unwrap();
        let angles = [1.0f32, 2.0 * 0.5 * 0.01];
        let wanted = [angles[0].cos(), angles[1].cos(), angles[0].sin(), angles[1].sin()];
        assert_eq!(table.len(), 12);
        assert_eq!(table[..4], [1.0, 1.0, 0.0, 0.0]);
        assert!(table[8..].iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{:?}", &table[8..]);
    }
}
