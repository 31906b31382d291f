//! Structures of answers: JSON schemas, regular expressions, Lark grammars.

use super::{lark, regexes, schemas};
use crate::capi::{self, Engine, Good};
use crate::case::{self, Bounds, Input, Session, Target};
use crate::random::{self, Rng};
use std::ffi::CString;

/// A kind of structure.
struct Structures {
    name: &'static str,
    kind: i32,
    dictionary: &'static [&'static str],
    small: fn() -> Vec<(&'static str, String)>,
    make: fn(&mut Rng) -> String,
}

pub fn targets() -> Vec<Box<dyn Target>> {
    let schemas = Structures {
        name: "schemas",
        kind: 1,
        dictionary: schemas::WORDS,
        small: schemas::hostile,
        make: schemas::make,
    };
    let regexes = Structures {
        name: "regexes",
        kind: 2,
        dictionary: regexes::WORDS,
        small: regexes::hostile,
        make: regexes::make,
    };
    let grammars =
        Structures { name: "grammars", kind: 3, dictionary: lark::WORDS, small: lark::hostile, make: lark::make };
    vec![Box::new(schemas), Box::new(regexes), Box::new(grammars)]
}

const TEXT: &str = "structure.txt";

impl Target for Structures {
    fn name(&self) -> &'static str {
        self.name
    }

    fn bounds(&self) -> Bounds {
        Bounds { cpu_ms: 3000, heap_bytes: 64 << 20, kept_bytes: 128 << 20 }
    }

    fn batch(&self) -> u64 {
        500
    }

    fn long_cases(&self) -> u64 {
        20_000
    }

    fn corpus(&self) -> Vec<Input> {
        let made = (self.small)().into_iter().map(|(origin, text)| Input::of(origin, TEXT, text));
        case::hostile(self.name, TEXT).into_iter().chain(made).collect()
    }

    fn generate(&self, rng: &mut Rng, corpus: &[Input]) -> Input {
        match rng.below(4) {
            0 => {
                let from = &corpus[rng.below(corpus.len())];
                let other = corpus[rng.below(corpus.len())].bytes(TEXT).to_vec();
                let mut bytes = from.bytes(TEXT).to_vec();
                bytes.truncate(16 << 10);
                let bytes = random::mutate(rng, bytes, self.dictionary, &[other]);
                Input::of(format!("{}, changed", from.origin), TEXT, bytes)
            }
            1 => {
                let bytes = (self.make)(rng).into_bytes();
                let other = (self.make)(rng).into_bytes();
                Input::of("made and changed", TEXT, random::mutate(rng, bytes, self.dictionary, &[other]))
            }
            _ => Input::of("made", TEXT, (self.make)(rng)),
        }
    }

    fn open(&self) -> Box<dyn Session> {
        let engine = Engine::demo();
        let good = Good::of(&engine);
        let mut shop = Shop { engine, good, kind: self.kind };
        // The first structure makes tables that all others share.
        shop.run(&Input::of("first", TEXT, if self.kind == 3 { "start: \"a\"" } else { "{}" }));
        Box::new(shop)
    }
}

/// An engine that is asked for one structure after another.
struct Shop {
    engine: Engine,
    good: Good,
    kind: i32,
}

impl Session for Shop {
    fn run(&mut self, input: &Input) {
        let mut rng = Rng::of_case(input.seed, "shop", 0);
        let text = CString::new(random::c_text(input.bytes(TEXT))).unwrap();
        let mut options = capi::options();
        options.structure = text.as_ptr();
        options.structure_kind = self.kind;
        options.max_tokens = rng.between(1, 12) as u32;
        options.seed = input.seed | 1;
        options.temperature = *rng.pick(&[0.0, 1.0, 3.0]);
        options.n = *rng.pick(&[1, 1, 1, 2, 8]);
        if let Ok(id) = self.engine.add("Answer: ", &options) {
            self.engine.finish(id);
        }
    }

    fn probe(&mut self) {
        self.good.check(&self.engine);
    }
}
