//! A host between processes that loses some of what they send.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

/// Bytes of the header of a frame: its payload's length, its kind and a number.
const HEADER_BYTES: usize = 16;
/// Kinds of frames by which processes meet.
const HELLO: u32 = 1;
const WELCOME: u32 = 2;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// One of so many frames.
    Frames(u64),
    /// One of so many pieces of the numbers of passes.
    Numbers(u64),
}

/// Stands between followers, which join at [`address`](Self::address), and the leader.
pub struct Lossy {
    pub address: String,
}

impl Lossy {
    /// Losses of `lost`, which `seed` decides, on the way to and from the leader, who listens at the Unix socket `leader`.
    pub fn new(leader: &str, lost: Lost, seed: u64) -> Lossy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let leader = leader.strip_prefix("unix:").unwrap().to_owned();
        thread::spawn(move || {
            for (at, follower) in listener.incoming().map_while(Result::ok).enumerate() {
                // A follower tries again until the leader listens.
                let Ok(leader) = UnixStream::connect(&leader) else { continue };
                follower.set_nodelay(true).unwrap();
                let random = |direction| Random(seed.wrapping_mul(1000) + 2 * at as u64 + direction);
                between(follower, leader, lost, [random(0), random(1)]);
            }
        });
        Lossy { address }
    }
}

/// Carries a connection in both directions.
fn between(mut follower: TcpStream, mut leader: UnixStream, lost: Lost, random: [Random; 2]) {
    let (mut from_leader, mut to_follower) = (leader.try_clone().unwrap(), follower.try_clone().unwrap());
    let [up, down] = random;
    // The first frame says what the connection is for.
    let Some(hello) = read_frame(&mut follower) else { return };
    let carries_frames = hello[HEADER_BYTES + 8..HEADER_BYTES + 12] == [0; 4];
    if leader.write_all(&hello).is_err() {
        return;
    }
    thread::spawn(move || {
        carry(&mut follower, &mut leader, carries_frames, lost, up);
        let _ = (leader.shutdown(Shutdown::Both), follower.shutdown(Shutdown::Both));
    });
    thread::spawn(move || {
        carry(&mut from_leader, &mut to_follower, carries_frames, lost, down);
        let _ = (from_leader.shutdown(Shutdown::Both), to_follower.shutdown(Shutdown::Both));
    });
}

fn carry(from: &mut impl Read, to: &mut impl Write, carries_frames: bool, lost: Lost, mut random: Random) {
    let mut piece = vec![0; 1 << 16];
    loop {
        let sent = if carries_frames {
            let Some(frame) = read_frame(from) else { return };
            let kind = u32::from_le_bytes(frame[4..8].try_into().unwrap());
            if !matches!(kind, HELLO | WELCOME) && matches!(lost, Lost::Frames(one_of) if random.one_of(one_of)) {
                continue;
            }
            to.write_all(&frame)
        } else {
            let Ok(bytes @ 1..) = from.read(&mut piece) else { return };
            if matches!(lost, Lost::Numbers(one_of) if random.one_of(one_of)) {
                continue;
            }
            to.write_all(&piece[..bytes])
        };
        if sent.is_err() {
            return;
        }
    }
}

fn read_frame(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut frame = vec![0; HEADER_BYTES];
    from.read_exact(&mut frame).ok()?;
    let len = u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize;
    frame.resize(HEADER_BYTES + len, 0);
    from.read_exact(&mut frame[HEADER_BYTES..]).ok()?;
    Some(frame)
}

/// Random numbers of a seed, by SplitMix64.
struct Random(u64);

impl Random {
    fn one_of(&mut self, count: u64) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).is_multiple_of(count)
    }
}
