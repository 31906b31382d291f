//! The normalizer of sentencepiece, `precompiled_charsmap`: a trie of character sequences and what replaces them.
//!
//! The crate follows the trie without looking where it leads, so a map is walked once before it is used: every step stays
//! inside, every replacement begins at a character, and the factor by which a text can grow is known.
//!
//! Form: base64 of the trie's length in bytes, u32; the trie, u32 a unit; the replacements, each ended by a zero byte.

/// Bytes of the longest sequence that the crate looks up.
const KEY_BYTES_MAX: usize = 5;
/// Steps of a walk. The maps of published models take below a million.
const STEPS_MAX: usize = 1 << 24;

/// The factor by which this map can grow a text, or what is wrong with it.
pub fn growth(base64: &str) -> Result<usize, String> {
    let bytes = decode(base64).ok_or("precompiled_charsmap is not base64")?;
    let broken = |what: &str| format!("precompiled_charsmap {what}");
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| broken("is shorter than its own length"))?;
    let trie_bytes = u32::from_le_bytes(*length) as usize / 4 * 4;
    let (trie, texts) = rest
        .split_at_checked(trie_bytes)
        .ok_or_else(|| broken(&format!("has a trie of {trie_bytes} bytes, but {} bytes follow", rest.len())))?;
    let trie: Vec<u32> = trie.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    let texts = std::str::from_utf8(texts).map_err(|_| broken("has replacements that are not UTF-8"))?;
    let mut walk = Walk { trie: &trie, texts, steps: 0, growth: 1 };
    let root = *trie.first().ok_or_else(|| broken("has an empty trie"))?;
    walk.descend(offset(root), 1).map_err(|what| broken(&what))?;
    Ok(walk.growth)
}

struct Walk<'a> {
    trie: &'a [u32],
    texts: &'a str,
    steps: usize,
    growth: usize,
}

impl Walk<'_> {
    /// Follows all keys that go on at `position` and have `len` bytes there.
    fn descend(&mut self, position: usize, len: usize) -> Result<(), String> {
        // A key of any bytes may be looked up: all of them must lie inside.
        if position | 0xFF >= self.trie.len() {
            return Err("has a trie whose offsets leave it".into());
        }
        for byte in 1..=0xFF {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(format!("has a trie of more than {STEPS_MAX} steps"));
            }
            let at = position ^ byte;
            let unit = self.trie[at];
            if unit & (1 << 31 | 0xFF) != byte as u32 {
                continue;
            }
            let next = at ^ offset(unit);
            if unit >> 8 & 1 == 1 {
                let value = *self.trie.get(next).ok_or("has a trie whose offsets leave it")?;
                self.replace(len, (value & !(1 << 31)) as usize)?;
            }
            if len < KEY_BYTES_MAX {
                self.descend(next, len + 1)?;
            } else if next | 0xFF >= self.trie.len() {
                return Err("has a trie whose offsets leave it".into());
            }
        }
        Ok(())
    }

    /// Notes that `len` bytes may become the text at `start`.
    fn replace(&mut self, len: usize, start: usize) -> Result<(), String> {
        let text = self.texts.get(start..).ok_or("has a replacement outside of its texts")?;
        let bytes = text.find('\0').unwrap_or(text.len());
        self.growth = self.growth.max(bytes.div_ceil(len));
        Ok(())
    }
}

fn offset(unit: u32) -> usize {
    (unit as usize >> 10) << ((unit & 1 << 9) >> 6)
}

/// Base64 with padding, as the crate reads it.
fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let value = |digit: u8| {
        Some(match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    };
    let padding = digits.iter().rev().take(2).take_while(|&&digit| digit == b'=').count();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for quad in digits[..digits.len() - padding].chunks(4) {
        let mut bits = 0;
        for &digit in quad {
            bits = bits << 6 | u32::from(value(digit)?);
        }
        bits <<= 6 * (4 - quad.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..quad.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_the_standard_has_it() {
        for (text, bytes) in
            [("", &b""[..]), ("Zg==", b"f"), ("Zm8=", b"fo"), ("Zm9v", b"foo"), ("//79", b"\xff\xfe\xfd")]
        {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
        for wrong in ["Zg", "Zg=", "Z===", "Zm9v!A==", "====", "Zm=v"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
