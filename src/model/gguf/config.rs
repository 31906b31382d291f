//! The config of a model while it is made of the keys and tensors of its GGUF file.

use super::{dtype_name, rope};
use crate::family::Family;
use crate::fields::{COUNT_MAX, Fields};
use base::error::Result;
use base::limits;
use formats::source::gguf::Gguf;
use serde_json::{Map, Value, json};

/// Fields of a config.json, and what they are made of.
pub struct Config<'a> {
    file: &'a Gguf,
    /// The keys of the architecture, without its name.
    pub keys: Fields<'a>,
    fields: Map<String, Value>,
    /// Keys that may have another value in each layer.
    by_layer: &'static [&'static str],
}

impl<'a> Config<'a> {
    pub fn new(file: &'a Gguf, keys: Fields<'a>, by_layer: &'static [&'static str]) -> Config<'a> {
        Config { file, keys, fields: Map::new(), by_layer }
    }

    /// All fields.
    pub fn finish(self) -> Map<String, Value> {
        self.fields
    }

    /// Sets a field.
    pub fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.fields.insert(field.into(), value.into());
    }

    /// Takes a field away.
    pub fn remove(&mut self, field: &str) {
        self.fields.remove(field);
    }

    /// The description of the rotary embedding.
    pub fn rope_scaling(&mut self) -> &mut Map<String, Value> {
        let rope = self.fields.entry("rope_scaling").or_insert_with(|| json!({"rope_type": "default"}));
        rope.as_object_mut().expect("it is an object wherever it is set")
    }

    /// Sets a field to the value of a key that is there and above 0.
    pub fn copy(&mut self, key: &str, field: &str) -> Result<()> {
        if let Some(number) = self.positive(key)? {
            self.set(field, number);
        }
        Ok(())
    }

    /// The value of a key that is there and not 0, which stands for nothing in these files.
    pub fn positive(&self, key: &str) -> Result<Option<f64>> {
        match self.keys.get(key).and_then(Value::as_f64) {
            Some(0.0) => Ok(None),
            _ => self.keys.positive_or_none(key),
        }
    }

    /// Whether the first layer has a tensor.
    pub fn has(&self, part: &str) -> bool {
        self.layer_has(0, part)
    }

    /// Whether a layer has a tensor.
    pub fn layer_has(&self, layer: usize, part: &str) -> bool {
        self.file.tensor(&format!("blk.{layer}.{part}")).is_some()
    }

    /// Rows of a matrix, if it is there.
    pub fn rows(&self, name: &str) -> Option<usize> {
        self.file.tensor(name).and_then(|tensor| tensor.shape.first().copied())
    }

    /// Sets a field to whether any layer has this tensor.
    pub fn set_bias_of_any(&mut self, field: &str, part: &str) -> Result<()> {
        let has_bias = (0..self.layers()?).any(|layer| self.layer_has(layer, part));
        self.set(field, has_bias);
        Ok(())
    }

    /// Sets a field to whether the first layer has one of these tensors.
    pub fn set_bias(&mut self, field: &str, parts: &[&str]) {
        let has_bias = parts.iter().any(|part| self.has(part));
        self.set(field, has_bias);
    }

    /// The numbers of a small tensor, as JSON.
    pub fn small_tensor(&self, name: &str) -> Result<Option<Value>> {
        let numbers = self.file.small_tensor(name, limits::LAYERS)?;
        Ok(numbers.map(|numbers| numbers.into_iter().map(f64::from).collect::<Vec<_>>().into()))
    }

    /// A count that may be given for each layer, but has to be the same in all.
    fn count_of_layers(&self, key: &str) -> Result<Option<usize>> {
        let Some(list) = self.keys.get(key).and_then(Value::as_array) else { return self.keys.count_or_none(key) };
        let may_differ = self.by_layer.contains(&key);
        // A layer that has none is of another kind.
        let mut counts = list.iter().filter_map(Value::as_u64);
        let first = if may_differ { counts.find(|&count| count > 0) } else { counts.next().filter(|&count| count > 0) };
        match first.filter(|_| may_differ || list.iter().all(|count| *count == list[0])) {
            Some(count) => Ok(Some(count as usize)),
            None => Err(self.keys.refuse(format!(
                "{key} is {}, but must be the same number above 0 in every layer",
                Fields::shown(&Value::from(list.as_slice()))
            ))),
        }
    }

    /// A count of each layer, which may be given once for all.
    pub fn counts_by_layer(&self, key: &str) -> Result<Vec<usize>> {
        let layers = self.layers()?;
        let Some(list) = self.keys.get(key).and_then(Value::as_array) else {
            return Ok(vec![self.keys.count(key)?; layers]);
        };
        let counts = list.iter().map(|count| count.as_u64().filter(|count| (1..=COUNT_MAX).contains(count)));
        let counts: Option<Vec<usize>> = counts.map(|count| count.map(|count| count as usize)).collect();
        counts.filter(|counts| counts.len() == layers).ok_or_else(|| {
            self.keys.refuse(format!("{key} must be a whole number above 0, or one for each of the {layers} layers"))
        })
    }

    fn needed<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.keys.refuse(format!("{key} is missing")))
    }

    /// Number of layers, without those that predict further tokens.
    pub fn layers(&self) -> Result<usize> {
        let all = self.keys.count_up_to("block_count", limits::LAYERS)?;
        let predictors = self.positive("nextn_predict_layers")?.unwrap_or(0.0) as usize;
        if predictors >= all {
            return Err(self
                .keys
                .refuse(format!("nextn_predict_layers is {predictors}, but must be less than block_count, {all}")));
        }
        Ok(all - predictors)
    }

    /// Sets the type of each layer.
    pub fn set_layer_types(&mut self, flags: &[bool], if_true: &str, if_false: &str) {
        let types: Vec<&str> = flags.iter().map(|&flag| if flag { if_true } else { if_false }).collect();
        self.set("layer_types", types);
    }

    /// A flag of each layer, if the key is there. Predictors of further tokens may have one too.
    pub fn flags(&self, key: &str) -> Result<Option<Vec<bool>>> {
        let Some(value) = self.keys.get(key) else { return Ok(None) };
        let layers = self.layers()?;
        let list = value.as_array().filter(|list| list.len() >= layers);
        let flags = list.and_then(|list| list[..layers].iter().map(Value::as_bool).collect::<Option<Vec<_>>>());
        let refuse = || self.keys.refuse(format!("{key} must be true or false for each of the {layers} layers"));
        flags.ok_or_else(refuse).map(Some)
    }

    /// Which layers have no KV heads.
    pub fn layers_without_kv(&self) -> Result<Vec<bool>> {
        self.layers_without("attention.head_count_kv")
    }

    /// Which layers have a 0 under this key.
    pub fn layers_without(&self, key: &str) -> Result<Vec<bool>> {
        let layers = self.layers()?;
        let Some(list) = self.keys.get(key).and_then(Value::as_array) else { return Ok(vec![false; layers]) };
        let counts: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
        counts
            .filter(|counts| counts.len() == layers)
            .map(|counts| counts.into_iter().map(|count| count == 0).collect())
            .ok_or_else(|| self.keys.refuse(format!("{key} must be a whole number for each of the {layers} layers")))
    }

    /// Query heads.
    fn heads(&self) -> Result<usize> {
        self.needed("attention.head_count", self.count_of_layers("attention.head_count")?)
    }

    /// Numbers per head.
    pub fn head_dim(&self) -> Result<usize> {
        match self.keys.count_or_none("attention.key_length")? {
            Some(head_dim) => Ok(head_dim),
            None => self.shared_width(),
        }
    }

    /// The width of the stream divided by the query heads.
    pub fn shared_width(&self) -> Result<usize> {
        Ok(self.keys.count("embedding_length")? / self.heads()?)
    }

    /// Sets the fields that all families have.
    pub fn read_shared(&mut self, family: &Family) -> Result<()> {
        let (layers, heads, head_dim) = (self.layers()?, self.heads()?, self.head_dim()?);
        let kv_heads = self.count_of_layers("attention.head_count_kv")?.unwrap_or(heads);
        // Values of a latent are other numbers of it than keys.
        let is_latent = self.keys.get("attention.kv_lora_rank").is_some();
        let of_values = self.keys.count_or_none("attention.value_length")?;
        if let Some(other) = of_values.filter(|&len| len != head_dim && !is_latent) {
            return Err(self
                .keys
                .refuse(format!("attention.value_length is {other}, but must be that of keys, which is {head_dim}")));
        }
        let Some(embedding) = self.file.tensor("token_embd.weight") else {
            return Err(self.keys.refuse("tensor token_embd.weight is missing".into()));
        };
        self.set("architectures", json!([family.classes[0]]));
        self.set("vocab_size", embedding.shape[0]);
        self.set("dtype", dtype_name(embedding.kind));
        self.set("hidden_size", self.keys.count("embedding_length")?);
        self.set("num_hidden_layers", layers);
        self.set("num_attention_heads", heads);
        self.set("num_key_value_heads", kv_heads);
        self.set("head_dim", head_dim);
        // Where every layer has experts, the file may have their width alone.
        let width = match self.count_of_layers("feed_forward_length")? {
            Some(width) => Some(width),
            None => self.count_of_layers("expert_feed_forward_length")?,
        };
        self.set("intermediate_size", self.needed("feed_forward_length", width)?);
        self.set("max_position_embeddings", self.keys.count("context_length")?);
        self.set("tie_word_embeddings", self.file.tensor("output.weight").is_none());
        self.copy("attention.layer_norm_rms_epsilon", "rms_norm_eps")?;
        self.copy("final_logit_softcapping", "final_logit_softcapping")?;
        self.read_tokens()?;
        rope::read(self)
    }

    /// Which layers have a window, once [`read_windows`](Self::read_windows) has set it.
    pub fn slides(&self) -> Vec<bool> {
        let types = self.fields["layer_types"].as_array().expect("`read_windows` sets it");
        types.iter().map(|kind| kind == "sliding_attention").collect()
    }

    /// Sets that the layers with a window have a rotary embedding, and no others.
    pub fn rotate_windows(&mut self) {
        let theta = self.fields["rope_theta"].clone();
        let types = self.fields["layer_types"].as_array().expect("`read_windows` sets it");
        let base = |kind: &Value| if kind == "sliding_attention" { theta.clone() } else { 0.into() };
        let bases: Vec<Value> = types.iter().map(base).collect();
        self.set("layer_rope_theta", bases);
    }

    /// Sets which tokens begin a text and end a completion.
    fn read_tokens(&mut self) -> Result<()> {
        let Some(vocabulary) = self.file.vocabulary()? else { return Ok(()) };
        let (file, header) = (self.file, self.file.header());
        let begin = vocabulary.id(header, "bos").map_err(|reason| file.wrong(reason))?;
        self.set("bos_token_id", begin);
        self.set("eos_token_id", vocabulary.ends(header).map_err(|reason| file.wrong(reason))?);
        Ok(())
    }

    /// Sets which layers have a window: all but every `interval`-th, unless the file says others.
    pub fn read_windows(&mut self, interval: u64) -> Result<()> {
        const PATTERN: &str = "attention.sliding_window_pattern";
        let window = self.positive("attention.sliding_window")?;
        let layers = self.layers()?;
        let slides: Vec<bool> = match self.keys.get(PATTERN) {
            Some(Value::Array(list)) => {
                let flags = list.iter().map(Value::as_bool).collect::<Option<Vec<_>>>();
                flags.filter(|flags| flags.len() == layers).ok_or_else(|| {
                    self.keys.refuse(format!("{PATTERN} must be true or false for each of the {layers} layers"))
                })?
            }
            given => {
                let interval = match given {
                    Some(value) => value.as_u64().ok_or_else(|| {
                        self.keys.refuse(format!("{PATTERN} is {}, but must be a whole number", Fields::shown(value)))
                    })?,
                    None => interval,
                };
                (0..layers as u64).map(|layer| interval > 1 && layer % interval < interval - 1).collect()
            }
        };
        let kind = |slides: &bool| if *slides && window.is_some() { "sliding_attention" } else { "full_attention" };
        self.set("layer_types", slides.iter().map(kind).collect::<Vec<_>>());
        self.set("sliding_window", window.map(|window| window as u64));
        Ok(())
    }
}
