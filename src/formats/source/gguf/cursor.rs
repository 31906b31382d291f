//! The bytes of a header, read in order, of which only the beginning may be in memory.

use std::fmt::Display;

/// Why reading stopped.
#[derive(Debug)]
pub enum Stop {
    /// The file has these bytes, and only the caller can read them: the number of bytes from the beginning that is needed.
    MoreBytes(u64),
    /// What is wrong with the file.
    Wrong(String),
}

impl From<String> for Stop {
    fn from(reason: String) -> Stop {
        Stop::Wrong(reason)
    }
}

/// A place in a header.
pub struct Cursor<'a> {
    /// The beginning of the file.
    bytes: &'a [u8],
    /// Bytes of the whole file.
    file_bytes: u64,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The beginning of a file of `file_bytes` bytes, of which `bytes` are there.
    pub fn new(bytes: &'a [u8], file_bytes: u64) -> Cursor<'a> {
        Cursor { bytes, file_bytes, at: 0 }
    }

    /// Bytes from the beginning of the file to here.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Goes on reading at `at`, which was reached before.
    pub fn skip_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Refuses `count` things of at least `bytes_each` bytes that do not fit into what is left of the file.
    pub fn check_room(&self, count: u64, bytes_each: u64, what: impl Display) -> Result<(), Stop> {
        let left = self.file_bytes - self.at as u64;
        match count.checked_mul(bytes_each) {
            Some(bytes) if bytes <= left => Ok(()),
            _ => Err(Stop::Wrong(format!(
                "has {count} {what}, which do not fit into the {left} bytes that are left of it"
            ))),
        }
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: u64) -> Result<&'a [u8], Stop> {
        let end = (self.at as u64).checked_add(len).filter(|&end| end <= self.file_bytes);
        let Some(end) = end else {
            return Err(Stop::Wrong(format!("ends after {} bytes, in the middle of its header", self.file_bytes)));
        };
        let Some(found) = usize::try_from(end).ok().and_then(|end| self.bytes.get(self.at..end)) else {
            return Err(Stop::MoreBytes(end));
        };
        self.at += found.len();
        Ok(found)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        Ok(self.bytes(N as u64)?.try_into().expect("as many as were asked for"))
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Stop> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Result<u16, Stop> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Result<u32, Stop> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Result<u64, Stop> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string: its length, then its bytes.
    pub fn string(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.u64()?;
        self.bytes(len)
    }

    /// A string that is a name, of at most `most` bytes of UTF-8.
    pub fn name(&mut self, most: usize, what: &str) -> Result<&'a str, Stop> {
        let len = self.u64()?;
        if len > most as u64 {
            return Err(Stop::Wrong(format!("has {what} of {len} bytes, but at most {most} are read")));
        }
        let bytes = self.bytes(len)?;
        std::str::from_utf8(bytes).map_err(|_| Stop::Wrong(format!("has {what} that is not UTF-8")))
    }
}
