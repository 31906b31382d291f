//! What a JSON schema may ask of the compiler, checked before it begins.
//!
//! Each check bounds work that the compiler does without counting it: recursion, comparisons of all pairs, products of
//! patterns. Keywords are looked for wherever an object stands, so that a schema is never taken for less than it is.

use super::regex_bounds;
use base::limits;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// What is limited of `multipleOf`.
const MULTIPLE: &str = "as the least common multiple of multipleOf, without factors 2 and 5";

type Checked<T> = Result<T, String>;

/// Keywords whose values are data, not schemas.
const DATA: &[&str] = &["const", "enum", "default", "example", "examples", "required", "x-guidance"];

/// Refuses a schema that takes more work than the limits allow, in words that go on from "the schema".
pub(super) fn check(schema: &Value) -> Checked<()> {
    let mut counts = Counts::default();
    counts.visit(schema)?;
    counts.check()?;
    let mut targets: Vec<&Value> = vec![schema];
    let mut seen: HashSet<usize> = HashSet::from([address(schema)]);
    for path in &counts.references {
        if let Some(target) = resolve(schema, path)
            && seen.insert(address(target))
        {
            targets.push(target);
        }
    }
    check_levels(&targets)?;
    let mut products = Products { root: schema, known: HashMap::new() };
    let expanded = targets.iter().try_fold(0u64, |sum, target| {
        let weight = products.of(target)?;
        Ok::<_, String>(sum.saturating_add(weight.subschemas))
    })?;
    at_most("subschemas once references in allOf are expanded", expanded, limits::SCHEMA_EXPANDED)
}

fn at_most(what: &str, found: u64, limit: u64) -> Checked<()> {
    if found > limit {
        let more = if found == u64::MAX { "far more".to_owned() } else { found.to_string() };
        return Err(format!("it has {more} {what}, but the limit is {limit}"));
    }
    Ok(())
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// What a `$ref` names, as the compiler reads it.
fn resolve<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    if path == "#" || path == "#/" {
        return Some(root);
    }
    path.strip_prefix("#/")?.split('/').try_fold(root, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    })
}

/// What is counted over the whole text.
#[derive(Default)]
struct Counts<'a> {
    names: HashSet<&'a str>,
    references: HashSet<&'a str>,
    constants: usize,
    pattern_pairs: usize,
    /// Parts of all patterns.
    pattern_parts: u64,
}

impl<'a> Counts<'a> {
    fn visit(&mut self, value: &'a Value) -> Checked<()> {
        match value {
            Value::Object(object) => self.visit_object(object),
            Value::Array(items) => items.iter().try_for_each(|item| self.visit(item)),
            _ => Ok(()),
        }
    }

    fn visit_object(&mut self, object: &'a Map<String, Value>) -> Checked<()> {
        let entries = |key: &str| object.get(key).and_then(Value::as_object).map_or(0, Map::len);
        let (patterns, properties) = (entries("patternProperties"), entries("properties"));
        let required = object.get("required").and_then(Value::as_array).map_or(0, Vec::len);
        self.pattern_pairs += patterns * (patterns + properties + required);
        for (key, value) in object {
            match key.as_str() {
                "pattern" => self.weigh(value.as_str())?,
                // The crate's own settings may name a pattern.
                "x-guidance" => self.weigh(value.get("whitespace_pattern").and_then(Value::as_str))?,
                "patternProperties" => {
                    let mut patterns = value.as_object().into_iter().flatten();
                    patterns.try_for_each(|(pattern, _)| self.weigh(Some(pattern)))?;
                    self.visit(value)?;
                }
                "$ref" => self.references.extend(value.as_str()),
                "required" => self.names.extend(value.as_array().into_iter().flatten().filter_map(Value::as_str)),
                "const" => {
                    least_integers(value)?;
                    self.constants += values(value);
                }
                "enum" => {
                    let items = value.as_array().into_iter().flatten();
                    least_integers(value)?;
                    self.constants += items.filter(|item| !item.is_string()).map(values).sum::<usize>();
                }
                "properties" => {
                    self.names.extend(value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
                    self.visit(value)?;
                }
                key if DATA.contains(&key) && !value.is_object() => {}
                _ => self.visit(value)?,
            }
        }
        Ok(())
    }

    /// Weighs a pattern, where there is one.
    fn weigh(&mut self, pattern: Option<&str>) -> Checked<()> {
        let Some(pattern) = pattern else { return Ok(()) };
        self.pattern_parts += regex_bounds::parts(pattern)?;
        at_most("parts of patterns", self.pattern_parts, 4 * limits::REGEX_PARTS)
    }

    fn check(&self) -> Checked<()> {
        at_most("different names of properties", self.names.len() as u64, limits::SCHEMA_NAMES as u64)?;
        at_most("values in const and enum", self.constants as u64, limits::SCHEMA_CONSTANTS as u64)?;
        at_most("pairs to compare in patternProperties", self.pattern_pairs as u64, limits::SCHEMA_PATTERN_PAIRS as u64)
    }
}

/// The least integer that the compiler negates without overflow: it reads numbers as doubles, and the next lower one is -2^63.
const LEAST_INTEGER: i64 = i64::MIN + 1024;

/// Whether a number is below what the compiler computes with.
fn is_too_low(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number < LEAST_INTEGER as f64)
}

/// Refuses constants that the compiler cannot negate.
fn least_integers(value: &Value) -> Checked<()> {
    match value {
        Value::Array(items) => items.iter().try_for_each(least_integers),
        Value::Object(object) => object.values().try_for_each(least_integers),
        number if is_too_low(number) => {
            Err(format!("it has {number} in const or enum, but numbers there must be at least {LEAST_INTEGER}"))
        }
        _ => Ok(()),
    }
}

/// Raises bounds of numbers to the least that the compiler computes with: schemas name -2^63 where they mean "64 bits".
pub(super) fn clamp_integers(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(clamp_integers),
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                let is_bound = matches!(key.as_str(), "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum");
                if is_bound && is_too_low(value) {
                    *value = Value::from(LEAST_INTEGER);
                }
                clamp_integers(value);
            }
        }
        _ => {}
    }
}

/// Values in a value, itself included.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(object) => object.values().map(values).sum(),
        _ => 0,
    }
}

/// Bounds how deep the compiler recurses: at worst through all that is referred to, one after the other.
fn check_levels(targets: &[&Value]) -> Checked<()> {
    fn depth(value: &Value, known: &mut HashMap<usize, u64>) -> u64 {
        let deepest = match value {
            Value::Array(items) => items.iter().map(|item| depth(item, known)).max(),
            Value::Object(object) => object.values().map(|value| depth(value, known)).max(),
            _ => return 0,
        };
        let depth = 1 + deepest.unwrap_or(0);
        known.insert(address(value), depth);
        depth
    }
    let mut known = HashMap::new();
    let mut levels = depth(targets[0], &mut known);
    for target in &targets[1..] {
        levels += known.get(&address(target)).copied().unwrap_or(1);
    }
    at_most("levels, those that $ref refers to included", levels, limits::SCHEMA_LEVELS as u64)
}

/// What multiplies where schemas are merged.
struct Products<'a> {
    root: &'a Value,
    /// By the addresses of objects; `None` while one is looked at, so that a reference to it ends there.
    known: HashMap<usize, Option<Weight>>,
}

#[derive(Clone, Copy, Default)]
struct Weight {
    /// Patterns and formats that one string below it has to match together.
    patterns: u64,
    /// Subschemas after references were replaced where the compiler does so.
    subschemas: u64,
    /// The least common multiple of all `multipleOf` below it, see [`digits`]; 0 where there is none.
    multiple: u64,
}

impl<'a> Products<'a> {
    fn of(&mut self, value: &'a Value) -> Checked<Weight> {
        let parts: Vec<Weight> = match value {
            Value::Array(items) => items.iter().map(|item| self.of(item)).collect::<Checked<_>>()?,
            Value::Object(object) => {
                if let Some(known) = self.known.get(&address(value)) {
                    return Ok(known.unwrap_or_default());
                }
                self.known.insert(address(value), None);
                let weight = self.of_object(object)?;
                self.known.insert(address(value), Some(weight));
                return Ok(weight);
            }
            _ => return Ok(Weight::default()),
        };
        Ok(parts.into_iter().fold(Weight::default(), Weight::beside))
    }

    fn of_object(&mut self, object: &'a Map<String, Value>) -> Checked<Weight> {
        let has_text = |key: &str| u64::from(object.get(key).is_some_and(Value::is_string));
        let own = Weight {
            patterns: has_text("pattern") + has_text("format"),
            subschemas: 1,
            multiple: object.get("multipleOf").and_then(Value::as_number).map_or(0, digits),
        };
        at_most(MULTIPLE, own.multiple, limits::SCHEMA_MULTIPLE)?;
        let (mut below, mut merged) = (Weight::default(), Vec::new());
        for (key, value) in object {
            match (key.as_str(), value) {
                ("allOf", Value::Array(members)) => {
                    for member in members {
                        merged.push(match member.get("$ref").and_then(Value::as_str) {
                            Some(path) => self.target(path)?,
                            None => self.of(member)?,
                        });
                    }
                }
                ("anyOf" | "oneOf", Value::Array(_)) => merged.push(self.of(value)?),
                ("$ref", Value::String(path)) if object.len() > 1 => merged.push(self.target(path)?),
                (key, value) if DATA.contains(&key) && !value.is_object() => {}
                ("const" | "enum" | "x-guidance", _) => {}
                _ => below = below.beside(self.of(value)?),
            }
        }
        let mut weight = own.beside(below);
        for part in merged {
            weight = weight.with(part)?;
        }
        Ok(weight)
    }

    fn target(&mut self, path: &str) -> Checked<Weight> {
        resolve(self.root, path).map_or(Ok(Weight::default()), |target| self.of(target))
    }
}

impl Weight {
    /// Two schemas for different values.
    fn beside(self, other: Weight) -> Weight {
        Weight {
            patterns: self.patterns.max(other.patterns),
            subschemas: self.subschemas.saturating_add(other.subschemas),
            multiple: common_multiple(self.multiple, other.multiple),
        }
    }

    /// Two schemas for the same value.
    fn with(self, other: Weight) -> Checked<Weight> {
        let both = Weight { patterns: self.patterns.saturating_add(other.patterns), ..self.beside(other) };
        at_most("patterns and formats for one string", both.patterns, limits::SCHEMA_PATTERNS_TOGETHER)?;
        at_most("subschemas once references in allOf are expanded", both.subschemas, limits::SCHEMA_EXPANDED)?;
        if self.multiple > 0 && other.multiple > 0 && self.multiple != other.multiple {
            at_most(MULTIPLE, both.multiple, limits::SCHEMA_MULTIPLE)?;
        }
        Ok(both)
    }
}

fn common_multiple(a: u64, b: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    match (a, b) {
        (0, other) | (other, 0) => other,
        (a, b) => (a / divisor(a, b)).saturating_mul(b),
    }
}

/// The digits of a number as one number without its factors 2 and 5.
fn digits(number: &serde_json::Number) -> u64 {
    let text = number.to_string();
    let digits: String =
        text.split(['e', 'E']).next().unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
    let mut number: u64 = digits.parse().unwrap_or(u64::MAX).max(1);
    for factor in [2, 5] {
        while number.is_multiple_of(factor) {
            number /= factor;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(schema: &Value) -> String {
        check(schema).expect_err("it is refused")
    }

    #[test]
    fn references_that_double_are_refused_by_count() {
        let mut definitions = Map::new();
        for i in 0..40 {
            let next = format!("#/$defs/a{}", i + 1);
            definitions.insert(format!("a{i}"), json!({"allOf": [{"$ref": next}, {"$ref": next}]}));
        }
        definitions.insert("a40".to_owned(), json!({"type": "object"}));
        let message = refusal(&json!({"$ref": "#/$defs/a0", "$defs": definitions}));
        assert!(message.contains("once references in allOf are expanded"), "{message}");
    }

    #[test]
    fn patterns_count_where_one_string_has_to_match_them_all() {
        let patterns = |count: usize| (0..count).map(|i| json!({"pattern": format!("x{i}")})).collect::<Vec<_>>();
        assert_eq!(check(&json!({"allOf": patterns(12)})), Ok(()));
        assert!(refusal(&json!({"allOf": patterns(13)})).contains("13 patterns and formats for one string"));
        assert_eq!(check(&json!({"anyOf": patterns(50)})), Ok(()));
        let properties: Map<String, Value> = (0..50).map(|i| (format!("p{i}"), patterns(1).remove(0))).collect();
        assert_eq!(check(&json!({"allOf": [{"properties": properties}, {"properties": properties}]})), Ok(()));
    }

    #[test]
    fn a_schema_that_names_itself_is_looked_at_once() {
        let tree = json!({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"l": {"$ref": "#/$defs/n"}, "r": {"$ref": "#"}}}}});
        assert_eq!(check(&tree), Ok(()));
        assert_eq!(check(&json!({"allOf": [{"$ref": "#"}]})), Ok(()));
    }

    #[test]
    fn names_of_keywords_are_names_of_properties_too() {
        let schema = json!({"properties": {"pattern": {"type": "string"}, "required": {"type": "array"}, "allOf": {}, "enum":
            {"type": "string", "pattern": "a"}, "const": {"$ref": "#"}}});
        assert_eq!(check(&schema), Ok(()));
    }
}
