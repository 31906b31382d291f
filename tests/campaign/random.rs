//! Random choices that a seed decides, and mutations of bytes.

/// Random numbers of a seed, by SplitMix64.
pub struct Rng(u64);

impl Rng {
    /// The numbers of one case of one target.
    pub fn of_case(seed: u64, target: &str, case: u64) -> Rng {
        let name = target.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        let mut rng = Rng(seed ^ name.rotate_left(17) ^ case.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rng.next();
        rng
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number of `first..=last`.
    pub fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// One of these words.
    pub fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// A length: mostly short, seldom up to `max`.
    pub fn length(&mut self, max: usize) -> usize {
        match self.below(20) {
            0 => self.between(0, max),
            1..4 => self.between(0, max.min(64)),
            _ => self.between(0, max.min(8)),
        }
    }

    /// A number that is a border of something.
    pub fn odd_number(&mut self) -> String {
        match self.below(4) {
            0 => (self.next() as i64 >> self.below(64)).to_string(),
            1 => self.below(20).to_string(),
            _ => self.pick(ODD_NUMBERS).to_string(),
        }
    }

    /// A character: of ASCII, a mark, or any.
    pub fn char(&mut self) -> char {
        match self.below(6) {
            0 => *self.pick(&[
                '\u{0}',
                '\u{7f}',
                'é',
                '\u{301}',
                '中',
                '😀',
                '\u{feff}',
                '\u{2028}',
                '\u{fffd}',
                '\u{10ffff}',
            ]),
            1 => char::from_u32(self.below(0x11_0000) as u32).unwrap_or('\u{fffd}'),
            2 => *self
                .pick(&['"', '\\', '{', '}', '[', ']', '\n', '\t', '%', '<', '>', '|', '/', '(', ')', ',', ':', '$']),
            _ => (b' ' + self.below(95) as u8) as char,
        }
    }

    /// Text of at most `max` characters.
    pub fn text(&mut self, max: usize) -> String {
        let len = self.length(max);
        (0..len).map(|_| self.char()).collect()
    }

    /// A name of a few letters.
    pub fn word(&mut self) -> String {
        let len = self.between(1, 4);
        (0..len).map(|_| (b'a' + self.below(6) as u8) as char).collect()
    }
}

const ODD_NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "16",
    "64",
    "100",
    "127",
    "128",
    "255",
    "256",
    "1000",
    "4096",
    "65535",
    "65536",
    "100000",
    "1000003",
    "1000000000",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-2147483648",
    "-9223372036854775808",
    "0.1",
    "0.5",
    "1.5",
    "-1.5",
    "1e-9",
    "1e9",
    "1e18",
    "1e300",
    "1e-300",
    "1e400",
    "3.14159",
    "0.000001",
    "1e5",
];

/// Bytes that an input never exceeds, but where a target asks for more on purpose.
const BYTES_MAX: usize = 48 << 10;

/// Changes some places of `bytes`, with words of a `dictionary` and parts of `others`.
pub fn mutate(rng: &mut Rng, mut bytes: Vec<u8>, dictionary: &[&str], others: &[Vec<u8>]) -> Vec<u8> {
    for _ in 0..rng.between(1, 5) {
        let at = rng.below(bytes.len() + 1);
        let reach = rng.length(200);
        let end = (at + reach).min(bytes.len());
        match rng.below(12) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => bytes[at] = rng.next() as u8,
            2 | 3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                let to = rng.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            5 => {
                let part = bytes[at..end].to_vec();
                let most = BYTES_MAX / part.len().max(1);
                let times = rng.length(most.min(5000));
                bytes.splice(at..at, part.repeat(times));
            }
            6 | 7 if !dictionary.is_empty() => {
                let word = rng.pick(dictionary).as_bytes().to_vec();
                let to = if rng.one_in(2) { at } else { end };
                bytes.splice(at..to, word);
            }
            8 => {
                let number = rng.odd_number().into_bytes();
                let (from, to) = digits(&bytes, at);
                bytes.splice(from..to, number);
            }
            9 if !others.is_empty() => {
                let other = &others[rng.below(others.len())];
                let from = rng.below(other.len() + 1);
                let to = (from + rng.length(400)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            10 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, rng.char().to_string().into_bytes())),
        }
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

/// The first number at or after a place, or the place.
fn digits(bytes: &[u8], at: usize) -> (usize, usize) {
    let is_part = |byte: &u8| byte.is_ascii_digit();
    match bytes[at..].iter().position(is_part) {
        Some(skip) => {
            let from = at + skip;
            let len = bytes[from..].iter().take_while(|byte| is_part(byte)).count();
            (from, from + len)
        }
        None => (at, at),
    }
}

/// Bytes as text that a C string can hold; what is no UTF-8 is replaced.
pub fn c_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', " ")
}
