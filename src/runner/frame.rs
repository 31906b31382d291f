//! What do processes say to each other?
//!
//! Frames: a header of the payload's length, the kind and a number, 4, 4 and 8 bytes in little-endian order, and then the payload.
//! Invariant: memory for a payload grows with the bytes that arrive, never with the length that a header claims.

use os::socket::Stream;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A follower introduces itself on a new connection: see [`super::rendezvous`].
    Hello = 1,
    /// All have joined. What process 0 lets them know: see [`super::rendezvous::meet`].
    Welcome = 2,
    /// A follower's values in round `number` of a barrier. `[ranks of the process]`, 8 bytes each
    Agree = 3,
    /// The values of all ranks. `[ranks]`, 8 bytes each
    Agreed = 4,
    /// A batch: see [`super::wire`].
    Batch = 5,
    /// Asks for the keys and values of blocks. `[blocks]`, 4 bytes each
    Read = 6,
    /// The follower's part of these, rank after rank.
    Blocks = 7,
    /// `number` blocks, 4 bytes each, and their keys and values for the follower's ranks.
    Write = 8,
    /// They are written.
    Written = 9,
    /// The leader has closed its engine.
    End = 10,
    /// Process `number` has failed, for the reason in the payload.
    Failed = 11,
    /// The sender is alive, has sent `number` frames of other kinds on this connection, and the bytes in the payload on the stream for
    /// numbers. `[1]`, 8 bytes
    Alive = 12,
    /// Asks for part of the recurrent state in slot `number`: which part, 4 bytes.
    ReadState = 13,
    /// The follower's numbers in that part, rank after rank.
    State = 14,
    /// Part of the recurrent state in slot `number` for the follower's ranks: which part, 4 bytes, and its bytes.
    WriteState = 15,
}

impl Kind {
    fn of(number: u32) -> Option<Kind> {
        use Kind::*;
        let all = [
            Hello, Welcome, Agree, Agreed, Batch, Read, Blocks, Write, Written, End, Failed, Alive, ReadState, State,
            WriteState,
        ];
        all.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// Bytes by which the memory of a payload grows while it arrives.
const GROWTH_BYTES: usize = 1 << 20;

/// Writes a frame into `to`, whose memory is used again: `write` appends the payload.
pub fn write_frame(to: &mut Vec<u8>, kind: Kind, number: u64, write: impl FnOnce(&mut Vec<u8>)) {
    to.clear();
    to.extend([0; 4]);
    to.extend((kind as u32).to_le_bytes());
    to.extend(number.to_le_bytes());
    write(to);
    let len = u32::try_from(to.len() - HEADER_BYTES).expect("a payload is within the bounds of its kind");
    to[..4].copy_from_slice(&len.to_le_bytes());
}

/// A frame that has arrived. Its payload lies with the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it says.
    pub kind: Kind,
    /// Its meaning depends on the kind.
    pub number: u64,
}

/// Takes frames from a stream, as far as they have come.
pub struct FrameReader {
    header: [u8; HEADER_BYTES],
    /// Bytes of the frame that have come, those of its header included.
    received: usize,
    payload: Vec<u8>,
    max_bytes: usize,
}

impl FrameReader {
    /// A reader of payloads of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> FrameReader {
        FrameReader { header: [0; HEADER_BYTES], received: 0, payload: Vec::new(), max_bytes }
    }

    /// The frame that comes next on `stream`. `None` until all of it has come.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnexpectedEof`] and others of the stream, and [`ErrorKind::InvalidData`] where the bytes are no frame.
    pub fn read(&mut self, stream: &Stream) -> IoResult<Option<Head>> {
        let read = |to: &mut [u8]| match stream.try_receive(to) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        };
        while self.received < HEADER_BYTES {
            let Some(bytes) = read(&mut self.header[self.received..])? else { return Ok(None) };
            self.received += bytes;
            if self.received == HEADER_BYTES {
                self.payload.clear();
                self.head()?;
            }
        }
        let (head, len) = self.head()?;
        while self.received - HEADER_BYTES < len {
            let start = self.received - HEADER_BYTES;
            if start == self.payload.len() {
                let room = self.payload.capacity().clamp(start, len);
                self.payload.resize(room.max(len.min(start + GROWTH_BYTES)), 0);
            }
            let Some(bytes) = read(&mut self.payload[start..])? else { return Ok(None) };
            self.received += bytes;
        }
        self.received = 0;
        Ok(Some(head))
    }

    /// The payload of the frame that was read last.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The same, in exchange for memory that may be used again.
    pub fn take_payload(&mut self, instead: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.payload, instead)
    }

    fn head(&self) -> IoResult<(Head, usize)> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| self.header[at + byte]));
        let invalid = |what: String| IoError::new(ErrorKind::InvalidData, what);
        let (len, kind) = (word(0) as usize, word(4));
        let kind = Kind::of(kind).ok_or_else(|| invalid(format!("sent a frame of unknown kind {kind}")))?;
        if len > self.max_bytes {
            return Err(invalid(format!("sent a frame of {len} bytes, but there may be {}", self.max_bytes)));
        }
        let number = u64::from(word(8)) | u64::from(word(12)) << 32;
        Ok((Head { kind, number }, len))
    }
}

/// Numbers of eight bytes as a payload.
pub fn put_values(to: &mut Vec<u8>, values: &[u64]) {
    to.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// The numbers of such a payload. `None` where there are not `count`.
pub fn values(payload: &[u8], count: usize) -> Option<Vec<u64>> {
    let (values, rest) = payload.as_chunks();
    let is_whole = values.len() == count && rest.is_empty();
    is_whole.then(|| values.iter().map(|value| u64::from_le_bytes(*value)).collect())
}

/// Text from another process, fit for a message: one line of printable characters, at most `len` of them.
pub fn printable(text: &[u8], len: usize) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::socket::{Address, Listener};
    use std::thread;
    use std::time::Duration;

    fn pair(name: &str) -> (Stream, Stream) {
        let path = std::env::temp_dir().join(format!("nvllm-frame-{name}-{}", std::process::id()));
        let address = Address::Unix(path);
        let listener = Listener::new(&address).unwrap();
        let there = address.connect(Duration::from_secs(60)).unwrap();
        (listener.accept().expect("a connection waits"), there)
    }

    fn frame(kind: Kind, number: u64, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        write_frame(&mut frame, kind, number, |to| to.extend(payload));
        frame
    }

    #[test]
    fn frames_arrive_whole_however_their_bytes_come() {
        let (here, there) = pair("whole");
        let mut reader = FrameReader::new(1 << 22);
        let payloads = [vec![], vec![7; 100], vec![9; 3 << 20], vec![1; 3]];
        let wanted = [(Kind::Alive, 0), (Kind::Batch, u64::MAX), (Kind::Blocks, 5), (Kind::Failed, 1 << 40)];
        thread::scope(|scope| {
            scope.spawn(|| {
                for ((kind, number), payload) in wanted.iter().zip(&payloads) {
                    for part in frame(*kind, *number, payload).chunks(1 << 16) {
                        there.send_all(part).unwrap();
                    }
                }
                for byte in frame(Kind::End, 3, &[1, 2]) {
                    there.send_all(&[byte]).unwrap();
                }
            });
            let mut next = || loop {
                match reader.read(&here).unwrap() {
                    Some(head) => return (head, reader.payload().to_vec()),
                    None => thread::yield_now(),
                }
            };
            for ((kind, number), payload) in wanted.into_iter().zip(&payloads) {
                assert!(next() == (Head { kind, number }, payload.clone()));
            }
            assert_eq!(next(), (Head { kind: Kind::End, number: 3 }, vec![1, 2]));
        });
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let (here, there) = pair("claim");
        let mut reader = FrameReader::new(usize::MAX);
        let mut bytes = frame(Kind::Batch, 0, &[0; 10]);
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        there.send_all(&bytes).unwrap();
        assert_eq!(reader.read(&here).unwrap(), None);
        assert!(reader.payload.capacity() <= 2 * GROWTH_BYTES);
    }

    #[test]
    fn other_bytes_are_no_frame() {
        for (bytes, message) in [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "sent a frame of unknown kind"),
            (frame(Kind::Hello, 0, &[0; 65]), "sent a frame of 65 bytes, but there may be 64"),
        ] {
            let (here, there) = pair("other");
            there.send_all(&bytes).unwrap();
            let refused = FrameReader::new(64).read(&here).expect_err(message).to_string();
            assert!(refused.starts_with(message), "{refused}");
        }
    }
}
