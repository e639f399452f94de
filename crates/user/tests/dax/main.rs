//! Files that the daemon maps into this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod coherent;
#[path = "../common/mod.rs"]
mod common;
mod fsx;
mod full;
mod huge;
mod limits;
mod mapped;
mod race;
mod small;

use std::{path::Path, sync::Arc};

use transom_user::{
    guest::{
        Errno,
        cache::{CacheMode, CacheOptions},
        dax::{Dax, DaxOptions, WindowCounts},
        fs::{File, Fs},
        session::SessionConfig,
    },
    platform::Process,
    share::Share,
};
use transom_wire::ops::init::InitFlags;

const MIB: usize = 1 << 20;
const RANGE: usize = 2 * MIB;

/// What the daemon takes this process for: the specification's front end, and one that maps beyond the end of a file.
const FRONT_ENDS: [&str; 2] = ["generic", "alioth"];

/// A guest whose window has `ranges` ranges of 2 MiB.
struct Guest {
    fs: Fs<Process>,
    mount: Share,
}

impl Guest {
    fn new(dir: &Path, ranges: usize, front_end: &str, mode: CacheMode) -> Self {
        Self::with(dir, ranges, front_end, CacheOptions { mode, ..CacheOptions::default() }, Dax::Always)
    }

    fn with(dir: &Path, ranges: usize, front_end: &str, options: CacheOptions, dax: Dax) -> Self {
        let mut program = common::transomd();
        let window = format!("{}M", ranges * RANGE / MIB);
        let args = [
            "--xattr",
            "--killpriv-v2",
            "--tag=share",
            "--dax-window",
            &window,
            "--dax-policy",
            "always",
            "--front-end",
            front_end,
        ];
        program.args.extend(args.map(Into::into));
        let mount = Share::builder().shared_dir(dir).daemon(program).connect().unwrap();
        let dax = DaxOptions { dax, ..DaxOptions::default() };
        let volume = mount.volume(SessionConfig::default().with(InitFlags::HANDLE_KILLPRIV_V2), options, dax).unwrap();
        Self { fs: Fs::new(Arc::new(volume)), mount }
    }

    fn counts(&self) -> WindowCounts {
        self.fs.volume().window().unwrap().counts()
    }
}

/// A byte for each place of a file, alike nowhere near.
fn pattern(offset: usize, seed: u8) -> u8 {
    (offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[1] ^ seed
}

fn patterned(offset: usize, len: usize, seed: u8) -> Vec<u8> {
    (offset..offset + len).map(|at| pattern(at, seed)).collect()
}

/// Reads and writes of a guest that have to be whole.
trait Whole {
    fn read_exact_at(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno>;
    fn write_all_at(&self, at: u64, bytes: &[u8]) -> Result<(), Errno>;
}

impl Whole for File<Process> {
    fn read_exact_at(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.read_at(at, bytes).map(|len| assert_eq!(len, bytes.len()))
    }

    fn write_all_at(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.write_at(at, bytes).map(|len| assert_eq!(len, bytes.len()))
    }
}
