//! Files of a host's file system that has pages of 2 MiB.

use std::{fs, path::Path};

use rustix::{
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    thread::UnshareFlags,
};
use transom_user::{
    guest::{cache::CacheMode, fs::OpenOptions},
    map::{MapFile as _, Protection, Sharing},
};

use super::{Guest, RANGE};

const KIB: usize = 1024;

/// KiB that page-table entries of 2 MiB map, of the mappings within `addresses`.
fn mapped_huge(addresses: std::ops::Range<usize>) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_inside, mut sum) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        match (first, second) {
            ("FilePmdMapped:" | "ShmemPmdMapped:", Some(kib)) if is_inside => sum += kib.parse::<usize>().unwrap(),
            _ if !first.ends_with(':') => {
                let (start, _) = first.split_once('-').unwrap();
                is_inside = addresses.contains(&usize::from_str_radix(start, 16).unwrap());
            }
            _ => {}
        }
    }
    sum
}

fn faults() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    // After the name in parentheses: state is field 3, minor faults field 10.
    stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// A tmpfs with huge pages, in this thread's own view of the system.
fn mount_huge(at: &Path, huge: &std::ffi::CStr) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "unshare can take descriptors apart")]
    // SAFETY: only the mount namespace is left; the table of descriptors stays shared as it is.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(huge))
}

#[test]
fn a_fault_on_two_mebibytes_ends_in_one_entry_of_the_page_table() {
    for huge in [c"huge=always", c"huge=advise"] {
        let dir = tempfile::tempdir().unwrap();
        if let Err(error) = mount_huge(dir.path(), huge) {
            println!("SKIPPED: a tmpfs with {huge:?} cannot be mounted: {error}");
            return;
        }
        touch(dir.path(), huge == c"huge=always");
        unmount(dir.path(), UnmountFlags::DETACH).unwrap();
    }
}

fn touch(dir: &Path, is_preallocated: bool) {
    const RANGES: usize = 4;
    let host = fs::File::create(dir.join("file")).unwrap();
    // Where only advice makes pages large, they are made by the first touch of a mapping, of a file that has none yet.
    host.set_len((RANGES * RANGE) as u64).unwrap();
    if is_preallocated {
        rustix::fs::fallocate(&host, rustix::fs::FallocateFlags::empty(), 0, (RANGES * RANGE) as u64).unwrap();
    }
    let guest = Guest::new(dir, RANGES, "alioth", CacheMode::Auto);
    let file = guest.fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    let mapping = file.map(0..(RANGES * RANGE) as u64, Protection::ReadWrite, Sharing::Shared).unwrap();
    let start = mapping.as_ptr().as_ptr() as usize;
    let before = faults();
    for page in (0..RANGES * RANGE).step_by(4096) {
        mapping.write_at(page, &[7; 64]).unwrap();
    }
    let faults = faults() - before;
    assert_eq!(mapped_huge(start..start + RANGES * RANGE), RANGES * RANGE / KIB, "{faults} faults");
    // One of our own for each range, and the kernel's; far from one for each page.
    assert!(faults < 20 * RANGES as u64, "{faults} faults");
    drop(mapping);
    // Copies go through the window itself.
    let window = guest.mount.window().unwrap();
    let mut found = [0; 64];
    assert_eq!(file.read_at(0, &mut found), Ok(64));
    assert_eq!(found, [7; 64]);
    let window_start = transom_user::guest::dax::WindowMemory::start(&*window).as_ptr() as usize;
    assert!(mapped_huge(window_start..window_start + RANGES * RANGE) >= RANGE / KIB);
}
