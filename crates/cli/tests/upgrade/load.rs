//! What runs in the guest: operations in a random order, each checked against a model in memory.
//!
//! The test program is static, so the guest runs it from the share itself. Everything stays open over upgrades and
//! moves: a file that is overwritten, grown and cut in places, one without a name, one that only grows, one that is
//! read past the page cache, a directory, and two locks.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};

/// The name of the test program in the share.
pub(crate) const PROGRAM: &str = "program";
/// How the guest runs it; the program has a test `case_load`, which calls [`run`].
pub(crate) const COMMAND: &str = "cd /share && ./program --ignored --exact case_load --nocapture --test-threads=1";

/// A file that the guest has locked (fcntl), if the share has locks.
pub(crate) const LOCKED: &str = "locked-too";

/// The longest file of the model.
const LEN_MAX: u64 = 300_000;
/// The longest read or write.
const PIECE_MAX: u64 = 40_000;
/// Names in use at once.
const NAMES: u64 = 60;

/// Numbers that repeat from run to run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A file, and what must be in it.
struct Checked {
    file: File,
    model: Vec<u8>,
}

impl Checked {
    fn step(&mut self, random: &mut Random) {
        let (at, len) = (random.below(LEN_MAX - PIECE_MAX), 1 + random.below(PIECE_MAX - 1));
        match random.below(10) {
            0 => {
                self.file.set_len(at).unwrap();
                self.model.resize(at as usize, 0);
            }
            1 => self.file.sync_data().unwrap(),
            2..6 => {
                let data: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                self.file.write_all_at(&data, at).unwrap();
                let end = (at + len) as usize;
                if self.model.len() < end {
                    self.model.resize(end, 0);
                }
                self.model[at as usize..end].copy_from_slice(&data);
            }
            _ => self.check(at, len),
        }
        assert_eq!(self.file.metadata().unwrap().len(), self.model.len() as u64);
    }

    fn check(&self, at: u64, len: u64) {
        let mut data = vec![0; len as usize];
        let mut read = 0;
        while read < data.len() {
            match self.file.read_at(&mut data[read..], at + read as u64).unwrap() {
                0 => break,
                count => read += count,
            }
        }
        let from = self.model.len().min(at as usize);
        let to = self.model.len().min((at + len) as usize);
        assert!(data[..read] == self.model[from..to], "{read} bytes at {at} differ");
    }
}

/// A file that is read with O_DIRECT, always into the same memory, which nobody but the daemon writes.
struct Direct {
    file: File,
    contents: Vec<u8>,
    buffer: Vec<u8>,
}

impl Direct {
    const LEN: u64 = 256 << 10;
    const PIECE: usize = 64 << 10;
    /// What O_DIRECT wants memory, offsets and lengths to be multiples of.
    const UNIT: usize = 4096;

    fn create(path: &Path) -> Self {
        // No two pages are equal.
        let contents: Vec<u8> = (0..Self::LEN as u32 / 4).flat_map(|number| (number * 7).to_le_bytes()).collect();
        fs::write(path, &contents).unwrap();
        let file = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path).unwrap();
        Self { file, contents, buffer: vec![0; Self::PIECE + Self::UNIT] }
    }

    fn check(&mut self, random: &mut Random) {
        let at = random.below((Self::LEN - Self::PIECE as u64) / Self::UNIT as u64) * Self::UNIT as u64;
        let from = self.buffer.as_ptr().align_offset(Self::UNIT);
        let piece = &mut self.buffer[from..from + Self::PIECE];
        self.file.read_exact_at(piece, at).unwrap();
        assert!(*piece == self.contents[at as usize..at as usize + Self::PIECE], "what was read directly differs");
    }
}

/// Works in `share` until the file `stop` is there.
pub(crate) fn run(share: &Path) {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let create = |name: &str| {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(share.join(name)).unwrap()
    };
    let mut files = [create("random"), create("nameless")].map(|file| Checked { file, model: Vec::new() });
    fs::remove_file(share.join("nameless")).unwrap();
    let mut direct = Direct::create(&share.join("direct"));
    let locked = create("locked");
    locked.lock().unwrap();
    let locked_too = create(LOCKED);
    fcntl_lock(&locked_too, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut log = OpenOptions::new().append(true).create(true).open(share.join("log")).unwrap();
    let dir = share.join("dir");
    fs::create_dir(&dir).unwrap();
    let mut names = BTreeSet::new();
    for count in 1_u64.. {
        files[random.below(2) as usize].step(&mut random);
        direct.check(&mut random);
        change_names(&dir, &mut names, &mut random);
        writeln!(log, "{count}").unwrap();
        fs::write(share.join("progress.new"), count.to_string()).unwrap();
        fs::rename(share.join("progress.new"), share.join("progress")).unwrap();
        if share.join("stop").exists() {
            break;
        }
    }
    files.iter().for_each(|file| file.check(0, LEN_MAX));
    drop((locked, locked_too));
    fs::write(share.join("finished"), "").unwrap();
}

fn change_names(dir: &Path, names: &mut BTreeSet<String>, random: &mut Random) {
    let (one, other) = (random.below(NAMES).to_string(), random.below(NAMES).to_string());
    match random.below(4) {
        0 if names.contains(&one) => {
            fs::rename(dir.join(&one), dir.join(&other)).unwrap();
            names.remove(&one);
            names.insert(other);
        }
        1 if names.remove(&one) => fs::remove_file(dir.join(&one)).unwrap(),
        2 => {
            fs::write(dir.join(&one), &one).unwrap();
            names.insert(one);
        }
        3 => {
            let listed = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            assert_eq!(listed.collect::<BTreeSet<_>>(), *names);
        }
        _ => assert_eq!(dir.join(&one).exists(), names.contains(&one)),
    }
}
