//! In which coding is each part of a decoder held, and how many bytes does it take?

use crate::names::{AttentionNames, DeltaInputNames, Names, QkvNames};
use formats::WeightFormat;

/// A part of a decoder that has matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightPart {
    /// The embedding table, which may serve as the head too.
    Embedding,
    /// The projections of attention and of what stands in its place, of all layers.
    Attention,
    /// The projections of the feed-forward part, of all layers.
    FeedForward,
    /// A head of its own.
    Head,
}

impl WeightPart {
    /// All of them.
    pub const ALL: [WeightPart; 4] =
        [WeightPart::Embedding, WeightPart::Attention, WeightPart::FeedForward, WeightPart::Head];

    /// The part that the matrix `name` belongs to.
    pub fn of(name: &str, names: &Names) -> WeightPart {
        let AttentionNames { qkv, output, gate, latent, .. } = names.attention;
        let in_latent = |part: &str| latent.projections().contains(&part);
        let in_attention = |part: &str| match qkv {
            QkvNames::Separate { query, key, value } => [query, key, value, output, gate].contains(&part),
            QkvNames::Fused(all) => [all, output, gate].contains(&part),
        };
        let in_delta = |part: &str| match names.delta.input {
            DeltaInputNames::Separate { qkv, gate, b, a } => [qkv, gate, b, a, names.delta.output].contains(&part),
            DeltaInputNames::Mixed { qkv, gate, ba } => [qkv, gate, ba, names.delta.output].contains(&part),
            DeltaInputNames::ByKeyHead { qkvz, ba } => [qkvz, ba, names.delta.output].contains(&part),
        };
        let (conv, scan) = (&names.short_conv, &names.scan);
        let in_recurrent = |part: &str| [conv.input, conv.output, scan.input, scan.output].contains(&part);
        let in_layer = name.strip_prefix(names.layers).and_then(|rest| rest.split_once('.'));
        match in_layer {
            Some((_, part)) if in_attention(part) || in_latent(part) || in_delta(part) || in_recurrent(part) => {
                WeightPart::Attention
            }
            Some(_) => WeightPart::FeedForward,
            None if name == names.head => WeightPart::Head,
            None => WeightPart::Embedding,
        }
    }

    /// What a log calls it.
    pub fn name(self) -> &'static str {
        match self {
            WeightPart::Embedding => "embedding",
            WeightPart::Attention => "attention",
            WeightPart::FeedForward => "feed-forward",
            WeightPart::Head => "head",
        }
    }
}

/// The codings of the parts of a decoder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightSummary {
    /// The codings of each part in the order of [`WeightPart::ALL`], with their bytes.
    parts: [Vec<(WeightFormat, u64)>; 4],
}

impl WeightSummary {
    /// Counts a matrix.
    pub fn add(&mut self, part: WeightPart, coding: WeightFormat, bytes: u64) {
        let part = &mut self.parts[part as usize];
        match part.iter_mut().find(|(known, _)| *known == coding) {
            Some((_, counted)) => *counted += bytes,
            None => part.push((coding, bytes)),
        }
    }

    /// The coding in which most bytes of a part are. `None` where there is no such part.
    pub fn coding(&self, part: WeightPart) -> Option<WeightFormat> {
        self.parts[part as usize].iter().max_by_key(|(_, bytes)| *bytes).map(|(coding, _)| *coding)
    }

    /// Bytes of a part.
    pub fn bytes(&self, part: WeightPart) -> u64 {
        self.parts[part as usize].iter().map(|(_, bytes)| bytes).sum()
    }

    /// All parts with their codings, for a log.
    pub fn describe(&self) -> String {
        let part = |part: &WeightPart| {
            let codings = &self.parts[*part as usize];
            let coding = |(coding, bytes): &(WeightFormat, u64)| format!("{coding} ({:.1} MB)", *bytes as f64 / 1e6);
            let all: Vec<String> = codings.iter().map(coding).collect();
            (!all.is_empty()).then(|| format!("{} {}", part.name(), all.join(" and ")))
        };
        WeightPart::ALL.iter().filter_map(part).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::LLAMA;
    use formats::Block;

    #[test]
    fn a_part_has_the_coding_of_most_of_its_bytes() {
        let mut summary = WeightSummary::default();
        for (name, coding, bytes) in [
            ("embed_tokens", WeightFormat::Bf16, 7_000_000),
            ("layers.0.self_attn.q_proj", WeightFormat::Block(Block::Q4K), 2_000_000),
            ("layers.11.self_attn.o_proj", WeightFormat::Block(Block::Q4K), 2_000_000),
            ("layers.0.self_attn.v_proj", WeightFormat::Block(Block::Q6K), 3_000_000),
            ("layers.0.mlp.up_proj", WeightFormat::F16, 50_000),
        ] {
            summary.add(WeightPart::of(name, &LLAMA), coding, bytes);
        }
        assert_eq!(summary.coding(WeightPart::Attention), Some(WeightFormat::Block(Block::Q4K)));
        assert_eq!((summary.bytes(WeightPart::Attention), summary.coding(WeightPart::Head)), (7_000_000, None));
        let wanted = "embedding BF16 (7.0 MB), attention Q4_K (4.0 MB) and Q6_K (3.0 MB), feed-forward F16 (0.1 MB)";
        assert_eq!(summary.describe(), wanted);
        assert_eq!(WeightPart::of("lm_head", &LLAMA), WeightPart::Head);
    }
}
