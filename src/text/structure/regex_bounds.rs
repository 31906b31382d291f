//! What a regular expression may ask of the compiler, checked before it begins.
//!
//! The compiler's expressions grow with the square of what stands in a row, and its states with the products of what is
//! repeated. So an expression is weighed twice: as it stands, and as if its repetitions were written out.

use base::limits;
use regex_syntax::ast::{Ast, RepetitionKind, RepetitionRange, parse::Parser};

/// Weight of a class of Unicode: it becomes an automaton over bytes.
const CLASS: u64 = 4;

/// Letters that weigh as much as one repetition.
const LETTERS: u64 = 4;

/// How much there is of an expression.
#[derive(Clone, Copy, Default)]
struct Weight {
    /// In letters.
    as_it_stands: u64,
    /// In parts, each letter being one.
    written_out: u64,
}

/// The parts of an expression as it stands. One that cannot be read counts by its length: the compiler says what is wrong with
/// it. Refuses an expression that takes more work than the limits allow, in words that go on from "the expression".
pub(super) fn parts(text: &str) -> Result<u64, String> {
    let (bytes, most) = (text.len(), limits::REGEX_BYTES);
    if bytes > most {
        return Err(format!("an expression has {bytes} bytes, but the limit is {most}"));
    }
    let unread = Weight { as_it_stands: bytes as u64, written_out: bytes as u64 };
    let weight = Parser::new().parse(text).map_or(unread, |tree| weigh(&tree));
    let parts = weight.as_it_stands.div_ceil(LETTERS);
    at_most(parts, limits::REGEX_PARTS, "parts")?;
    at_most(weight.written_out, limits::REGEX_WRITTEN_OUT, "parts once its repetitions are expanded")?;
    Ok(parts)
}

fn at_most(found: u64, limit: u64, what: &str) -> Result<(), String> {
    match found > limit {
        true => Err(format!("an expression has {found} {what}, but the limit is {limit}")),
        false => Ok(()),
    }
}

/// The weight of a tree. The parser bounds its depth.
fn weigh(tree: &Ast) -> Weight {
    let own = |letters: u64| Weight { as_it_stands: letters, written_out: letters.div_ceil(LETTERS) };
    let sum = |trees: &[Ast]| trees.iter().map(weigh).fold(Weight::default(), Weight::and);
    match tree {
        Ast::Empty(_) | Ast::Flags(_) => Weight::default(),
        Ast::Literal(_) => own(1),
        Ast::Dot(_) | Ast::Assertion(_) | Ast::ClassBracketed(_) => own(LETTERS),
        Ast::ClassPerl(_) | Ast::ClassUnicode(_) => own(LETTERS * CLASS),
        Ast::Group(group) => weigh(&group.ast),
        Ast::Alternation(alternation) => sum(&alternation.asts),
        Ast::Concat(concat) => sum(&concat.asts),
        Ast::Repetition(repetition) => {
            let times = match &repetition.op.kind {
                RepetitionKind::Range(RepetitionRange::Exactly(times) | RepetitionRange::AtLeast(times)) => *times,
                RepetitionKind::Range(RepetitionRange::Bounded(_, most)) => *most,
                RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => 1,
            };
            let mut weight = weigh(&repetition.ast);
            weight.written_out = weight.written_out.saturating_mul(u64::from(times.max(1)));
            weight.and(own(LETTERS))
        }
    }
}

impl Weight {
    fn and(self, other: Weight) -> Weight {
        Weight {
            as_it_stands: self.as_it_stands.saturating_add(other.as_it_stands),
            written_out: self.written_out.saturating_add(other.written_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_weighed_as_it_stands_and_written_out() {
        for (text, stands, written) in [
            ("abcd", 1, 4),
            ("a{1000}", 2, 1001),
            ("(.{0,300}[a-f]){0,50}", 4, 15_101),
            ("a?b?c?d?", 5, 8),
            ("[a-z]{3,40}", 2, 41),
            (r"\p{L}+", 5, 5),
        ] {
            let weight = weigh(&Parser::new().parse(text).expect("an expression"));
            assert_eq!((weight.as_it_stands.div_ceil(LETTERS), weight.written_out), (stands, written), "{text}");
        }
        assert_eq!(parts("("), Ok(1), "what cannot be read");
    }

    #[test]
    fn what_weighs_too_much_is_refused_with_both_numbers() {
        let refused = parts(&"a*".repeat(20_000)).expect_err("20,000 stars");
        assert!(refused.contains("25000 parts") && refused.contains("4096"), "{refused}");
        let refused = parts("(a{1000}){1000}").expect_err("a million");
        assert!(refused.contains("1001001 parts once") && refused.contains("20000"), "{refused}");
        assert!(parts("((((a{9}){9}){9}){9}){9}").is_err());
        let words: Vec<String> = (0..1000).map(|i| format!("word{i:04}")).collect();
        assert!(parts(&words.join("|")).is_ok());
        assert!(parts(&"a".repeat(100_000)).is_err());
    }
}
