//! A target of the campaign, its inputs, and what a case may not do.

use crate::random::Rng;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What one case hands to the library.
#[derive(Clone, Default)]
pub struct Input {
    /// What is special about it: the file of the corpus, or how it was made.
    pub origin: String,
    /// Named parts, such as the text of a schema, or the files of a folder.
    pub parts: Vec<(String, Content)>,
    /// Decides what the parts leave open.
    pub seed: u64,
}

/// What stands under a name.
#[derive(Clone)]
pub enum Content {
    /// Bytes of a text or a file.
    Bytes(Vec<u8>),
    /// A file of a model folder that is left out.
    Missing,
    /// A named pipe that nobody writes to.
    Pipe,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link(PathBuf),
    /// A file of this many zeros, which takes no space on the disk.
    Zeros(u64),
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::Bytes(text.as_bytes().to_vec())
    }
}

impl Input {
    /// An input of one part.
    pub fn of(origin: impl Into<String>, name: &str, bytes: impl Into<Vec<u8>>) -> Input {
        Input { origin: origin.into(), parts: vec![(name.to_owned(), Content::Bytes(bytes.into()))], seed: 1 }
    }

    /// The bytes of a part; none where it has no such part.
    pub fn bytes(&self, name: &str) -> &[u8] {
        self.parts
            .iter()
            .find_map(|(part, content)| match content {
                Content::Bytes(bytes) if part == name => Some(bytes.as_slice()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Bytes of all parts.
    pub fn len(&self) -> usize {
        let len = |content: &Content| if let Content::Bytes(bytes) = content { bytes.len() } else { 0 };
        self.parts.iter().map(|(_, content)| len(content)).sum()
    }

    /// Writes the parts to a folder, for whoever looks into a failure.
    pub fn save(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut note = format!("{}\nseed {}\n", self.origin, self.seed);
        for (name, content) in &self.parts {
            let words = match content {
                Content::Bytes(bytes) => {
                    std::fs::write(folder.join(name.replace('/', "_")), bytes)?;
                    format!("{} bytes", bytes.len())
                }
                Content::Missing => "missing".to_owned(),
                Content::Pipe => "a named pipe".to_owned(),
                Content::Folder => "a folder".to_owned(),
                Content::Link(to) => format!("a link to {}", to.display()),
                Content::Zeros(len) => format!("{len} zeros"),
            };
            note.push_str(&format!("{name}: {words}\n"));
        }
        std::fs::write(folder.join("case.txt"), note)
    }
}

/// What a case may cost.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Milliseconds of processor time.
    pub cpu_ms: u64,
    /// Bytes of the heap beyond those before the case, and eight times the input.
    pub heap_bytes: usize,
    /// Bytes that a batch may leave behind, caches included.
    pub kept_bytes: usize,
}

/// A part of the library that is fed with inputs.
pub trait Target: Sync {
    /// Its name, also of its folder in tests/hostile.
    fn name(&self) -> &'static str;
    /// What a case may cost.
    fn bounds(&self) -> Bounds;
    /// Cases of one process.
    fn batch(&self) -> u64;
    /// Cases of the long campaign.
    fn long_cases(&self) -> u64;
    /// Inputs that come first, as they are.
    fn corpus(&self) -> Vec<Input>;
    /// A new input.
    fn generate(&self, rng: &mut Rng, corpus: &[Input]) -> Input;
    /// What the cases of a process share. Made after the fork.
    fn open(&self) -> Box<dyn Session>;
}

/// What the cases of one process share.
pub trait Session {
    /// Runs a case. What is wrong is told by [`violation`].
    fn run(&mut self, input: &Input);
    /// Asks for something good, which must be answered as before all cases.
    fn probe(&mut self);
}

static VIOLATIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes what the library must not do.
pub fn violation(words: impl Into<String>) {
    let mut noted = VIOLATIONS.lock().unwrap();
    if noted.len() < 8 {
        noted.push(words.into());
    }
}

/// Takes what was noted.
pub fn take_violations() -> Vec<String> {
    std::mem::take(&mut VIOLATIONS.lock().unwrap())
}

pub use crate::tree::root;

/// The files below a folder of tests/hostile, as inputs of one part each.
pub fn hostile(folder: &str, part: &str) -> Vec<Input> {
    let mut found = Vec::new();
    let mut open = vec![root().join("tests/hostile").join(folder)];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                open.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                found.push(Input::of(path.strip_prefix(root()).unwrap().to_string_lossy(), part, bytes));
            }
        }
    }
    found.sort_by(|a, b| a.origin.cmp(&b.origin));
    found
}
