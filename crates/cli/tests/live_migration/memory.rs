//! Guest memory at both ends of a migration: what the log of written pages has missed differs.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// The unit in which memory is compared: that of the log.
const PAGE_LEN: usize = 4096;
/// Bytes that are read at once.
const CHUNK_LEN: usize = 1 << 20;

/// Fails unless the guest's memory in two stopped QEMUs is equal, and not empty. Each argument is a process.
#[track_caller]
pub(crate) fn assert_equal(source: u32, destination: u32) {
    let (source, destination) = (memory_of(source), memory_of(destination));
    let len = source.metadata().unwrap().len();
    assert_eq!(len, destination.metadata().unwrap().len());
    let (mut here, mut there) = (vec![0; CHUNK_LEN], vec![0; CHUNK_LEN]);
    let (mut different, mut used) = (Vec::new(), 0);
    for at in (0..len).step_by(CHUNK_LEN) {
        source.read_exact_at(&mut here, at).unwrap();
        destination.read_exact_at(&mut there, at).unwrap();
        for (number, (here, there)) in here.chunks(PAGE_LEN).zip(there.chunks(PAGE_LEN)).enumerate() {
            used += usize::from(here.iter().any(|&byte| byte != 0));
            if here != there {
                different.push(at / PAGE_LEN as u64 + number as u64);
            }
        }
    }
    assert!(different.is_empty(), "{} pages differ: {:?}…", different.len(), &different[..different.len().min(20)]);
    println!("memory: {used} pages in use, all equal");
    assert!(used > 1000, "only {used} pages are in use");
}

/// Opens the memory of the guest of a QEMU.
fn memory_of(process: u32) -> File {
    let is_memory = |path: &PathBuf| {
        let is_memfd = |name: &Path| name.to_string_lossy().starts_with("/memfd:memory-backend-memfd");
        fs::read_link(path).is_ok_and(|name| is_memfd(&name))
    };
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let path = descriptors.map(|entry| entry.unwrap().path()).find(is_memory);
    path.ok_or_else(|| io::Error::other("QEMU has no memory in a memfd")).and_then(File::open).unwrap()
}
