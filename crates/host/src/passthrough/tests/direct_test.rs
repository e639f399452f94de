//! Files that the guest opens with O_DIRECT while its cache has pages of them.

use std::{fs, os::unix::fs::FileExt as _};

use rustix::fs::OFlags;
use tempfile::TempDir;
use transom_wire::{Handle, NodeId, ops::write::WriteFlags};

use super::guest::{Guest, node};
use crate::{Errno, passthrough::Config};

const ROOT: NodeId = NodeId::ROOT;
const DIRECT: OFlags = OFlags::RDWR.union(OFlags::DIRECT);

/// Returns a directory where O_DIRECT requires alignment; if there is no such directory, prints so and returns `None`.
pub(super) fn strict_dir() -> Option<TempDir> {
    for parent in [std::env::temp_dir(), "/var/tmp".into()] {
        let dir = tempfile::tempdir_in(parent).unwrap();
        let flags = DIRECT | OFlags::CREATE;
        let Ok(file) = rustix::fs::open(dir.path().join("probe"), flags, 0o600.into()) else { continue };
        if rustix::io::pwrite(&file, b"unaligned", 0) == Err(Errno::INVAL) {
            fs::remove_file(dir.path().join("probe")).unwrap();
            return Some(dir);
        }
    }
    println!("SKIPPED: no file system here has an O_DIRECT that demands an alignment");
    None
}

fn config() -> Config {
    Config { allow_direct_io: true, writeback: true, ..Config::default() }
}

/// Writes `data` as Linux writes back pages of its cache.
fn write_back(guest: &Guest, fh: Handle, offset: u64, data: &[u8]) -> Result<u32, Errno> {
    guest.write_with(fh, offset, data, |arg| arg.write_flags = WriteFlags::CACHE.bits().into())
}

#[test]
fn pages_of_the_cache_reach_a_file_that_is_open_with_o_direct() {
    let Some(dir) = strict_dir() else { return };
    let guest = Guest::new(dir.path(), config());
    fs::write(dir.path().join("opened"), "").unwrap();
    let opened = guest.walk("opened").unwrap();
    let (created, open) = guest.create(ROOT, "created", DIRECT).unwrap();
    let mut handles = vec![
        ("opened", opened, guest.open(opened, DIRECT).unwrap()),
        ("opened", opened, guest.open(opened, OFlags::WRONLY | OFlags::DIRECT).unwrap()),
        ("created", node(&created), open.fh.into()),
    ];
    match guest.tmpfile(ROOT) {
        Err(Errno::OPNOTSUPP) => println!("SKIPPED: no O_TMPFILE here"),
        made => {
            let (entry, open) = made.unwrap();
            handles.push(("", node(&entry), open.fh.into()));
        }
    }
    let data: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
    for (name, nodeid, fh) in handles {
        // 4096 bytes and a tail, and again at the end of the file.
        assert_eq!(write_back(&guest, fh, 0, &data), Ok(5000), "{name}");
        assert_eq!(write_back(&guest, fh, 5000, b"tail"), Ok(4), "{name}");
        if !name.is_empty() {
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), [&data[..], b"tail"].concat());
        }
        guest.release(nodeid, fh);
    }
}

/// Writes through an open file that now has `flags`.
fn write_by(guest: &Guest, fh: Handle, offset: u64, data: &[u8], flags: OFlags) -> Result<u32, Errno> {
    guest.write_with(fh, offset, data, |arg| arg.flags = flags.bits().into())
}

#[test]
fn a_program_that_takes_o_direct_back_writes_and_reads_what_is_not_aligned() {
    let Some(dir) = strict_dir() else { return };
    let guest = Guest::new(dir.path(), Config { writeback: false, ..config() });
    let (entry, open) = guest.create(ROOT, "file", DIRECT).unwrap();
    let fh = open.fh.into();
    // As dd writes: whole blocks, and the rest without O_DIRECT.
    assert_eq!(write_by(&guest, fh, 0, b"unaligned", DIRECT), Err(Errno::INVAL));
    assert_eq!(write_by(&guest, fh, 0, b"unaligned", OFlags::RDWR), Ok(9));
    assert_eq!(guest.read_by(fh, 2, 5, OFlags::RDWR).unwrap(), b"align");
    guest.release(node(&entry), fh);
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"unaligned");
    let fh = guest.open(node(&entry), OFlags::RDONLY | OFlags::DIRECT).unwrap();
    assert_eq!(guest.read_by(fh, 2, 5, OFlags::RDONLY).unwrap(), b"align");
}

#[test]
fn what_is_not_of_the_cache_goes_by_o_direct_and_sees_what_the_cache_wrote() {
    let Some(dir) = strict_dir() else { return };
    let guest = Guest::new(dir.path(), config());
    let (entry, open) = guest.create(ROOT, "file", DIRECT).unwrap();
    let fh = open.fh.into();
    assert_eq!(write_back(&guest, fh, 0, &[1; 8192]), Ok(8192));
    // A program's own unaligned use of O_DIRECT is refused as on the host.
    assert_eq!(write_by(&guest, fh, 1, b"x", DIRECT), Err(Errno::INVAL));
    assert_eq!(guest.read_by(fh, 1, 5, DIRECT), Err(Errno::INVAL));
    assert_eq!(write_back(&guest, fh, 1, b"x"), Ok(1));
    // Another direct descriptor, and one without.
    let host = fs::File::from(rustix::fs::open(dir.path().join("file"), DIRECT, 0.into()).unwrap());
    let mut room = vec![0; 3 * 4096];
    let start = room.as_ptr().align_offset(4096);
    let page = &mut room[start..start + 4096];
    host.read_exact_at(page, 0).unwrap();
    assert_eq!(page[..3], [1, b'x', 1]);
    page.fill(2);
    host.write_all_at(page, 0).unwrap();
    assert_eq!(write_back(&guest, fh, 2, b"y"), Ok(1));
    assert_eq!(fs::read(dir.path().join("file")).unwrap()[..4], [2, 2, b'y', 2]);
    guest.release(node(&entry), fh);
}

#[test]
fn the_second_descriptor_is_opened_once_counts_and_goes_with_the_handle() {
    let Some(dir) = strict_dir() else { return };
    let guest = Guest::new(dir.path(), config());
    let inodes = &guest.fs().inodes;
    let (entry, open) = guest.create(ROOT, "file", DIRECT).unwrap();
    let before = inodes.held_count();
    for offset in 0..10 {
        write_back(&guest, open.fh.into(), offset, b"x").unwrap();
        assert_eq!(inodes.held_count(), before + 1);
    }
    guest.release(node(&entry), open.fh.into());
    assert_eq!(inodes.held_count(), before - 1);
    // A file without O_DIRECT has no second descriptor.
    let fh = guest.open(node(&entry), OFlags::RDWR).unwrap();
    let before = inodes.held_count();
    write_back(&guest, fh, 0, b"x").unwrap();
    assert_eq!(inodes.held_count(), before);
}

#[test]
fn without_a_second_descriptor_nothing_is_lost() {
    let Some(dir) = strict_dir() else { return };
    let guest = Guest::new(dir.path(), Config { max_fds: Some(32), ..config() });
    let (entry, open) = guest.create(ROOT, "file", DIRECT).unwrap();
    let others: Vec<_> = std::iter::from_fn(|| guest.open(node(&entry), OFlags::RDONLY).ok()).take(1000).collect();
    assert!(others.len() < 1000, "handles have a bound");
    assert_eq!(write_back(&guest, open.fh.into(), 0, &[1; 5000]), Ok(5000));
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), [1; 5000]);
}

#[test]
fn a_direct_read_ends_where_the_file_ends() {
    let Some(dir) = strict_dir() else { return };
    let guest = Guest::new(dir.path(), config());
    fs::write(dir.path().join("file"), [3; 5000]).unwrap();
    let fh = guest.open(guest.walk("file").unwrap(), DIRECT).unwrap();
    assert_eq!(guest.read_by(fh, 0, 8192, DIRECT).unwrap(), [3; 5000]);
    assert_eq!(guest.read_by(fh, 4096, 4096, DIRECT).unwrap(), [3; 904]);
    assert_eq!(guest.read_by(fh, 8192, 4096, DIRECT).unwrap(), b"");
}
