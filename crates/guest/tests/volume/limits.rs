//! Offsets and lengths at the edge of what a file can have, and access that an open file does not give.

use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    fs::{Fs, OpenOptions, SeekFrom},
    volume::{Lock, LockKind},
};
use transom_host::passthrough::{Config, Passthrough};
use transom_wire::linux::O_DIRECT;

use crate::{
    on_host,
    peer::{self, Peer, ROOT, name},
};

const FILE_END: u64 = i64::MAX as u64;

fn read_write() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

/// fallocate(2): EINVAL if the offset is negative or the length is 0, EFBIG if their sum is beyond the largest file.
#[test]
fn a_range_beyond_the_largest_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::new(Passthrough::open(dir.path(), Config::default()).unwrap());
    let fs = Fs::mount(peer::session(&peer), CacheOptions::default());
    let file = fs.open("file", &read_write()).unwrap();
    let before = peer.messages();
    for (offset, len, error) in [
        (0, 0, Errno::INVAL),
        (FILE_END + 1, 1, Errno::INVAL),
        (FILE_END, 1, Errno::FBIG),
        (1, FILE_END, Errno::FBIG),
        (5, u64::MAX, Errno::FBIG),
    ] {
        assert_eq!(file.allocate(0, offset, len), Err(error), "{offset} {len}");
    }
    assert_eq!(peer.messages(), before);
    // Only the server knows how large its files get.
    let _ = file.allocate(0, FILE_END - 1, 1);
    assert!(peer.messages() > before);
}

/// fcntl(2): EBADF for a lock that needs another access mode than that of the open file.
#[test]
fn a_lock_needs_the_access_that_it_covers() {
    let (_dir, fs) = on_host(CacheMode::Auto);
    let [written, read] =
        [fs.open("file", &OpenOptions::new().write(true).create(true)).unwrap(), fs.open_read("file").unwrap()];
    let lock = |kind| Lock { kind, start: 0, len: 1, pid: 0 };
    for is_process in [false, true] {
        assert_eq!(written.set_lock(is_process, &lock(LockKind::Shared), false), Err(Errno::BADF));
        assert_eq!(read.set_lock(is_process, &lock(LockKind::Exclusive), false), Err(Errno::BADF));
        read.set_lock(is_process, &lock(LockKind::Shared), false).unwrap();
        read.set_lock(is_process, &lock(LockKind::Unlocked), false).unwrap();
    }
}

#[test]
fn a_shared_lock_is_reported_as_shared() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { posix_lock: true, ..Config::default() };
    let peer = Peer::new(Passthrough::open(dir.path(), config).unwrap());
    let fs = Fs::mount(peer::session(&peer), CacheOptions::default());
    let [one, other] = [0, 1].map(|_| fs.open("file", &read_write()).unwrap());
    for kind in [LockKind::Shared, LockKind::Exclusive] {
        let held = Lock { kind, start: 10, len: 5, pid: 0 };
        one.set_lock(false, &held, false).unwrap();
        let wanted = Lock { kind: LockKind::Exclusive, start: 0, len: 0, pid: 0 };
        let found = other.get_lock(false, &wanted).unwrap().unwrap();
        assert_eq!((found.kind, found.start, found.len), (kind, 10, 5));
    }
}

/// copy_file_range(2): EBADF unless the source is open for reading and the target for writing, and not for appending.
#[test]
fn a_copy_needs_access_to_both_files() {
    let (_dir, fs) = on_host(CacheMode::Auto);
    let [both, other] = ["one", "two"].map(|name| fs.open(name, &read_write()).unwrap());
    both.write_at(0, b"bytes").unwrap();
    let [read, written, appended] =
        [OpenOptions::new().read(true), OpenOptions::new().write(true), OpenOptions::new().append(true)]
            .map(|options| fs.open("two", &options).unwrap());
    assert_eq!(both.copy_to(0, &written, 0, 5), Ok(5));
    assert_eq!(both.copy_to(0, &read, 0, 5), Err(Errno::BADF));
    assert_eq!(both.copy_to(0, &appended, 0, 5), Err(Errno::BADF));
    assert_eq!(written.copy_to(0, &both, 0, 5), Err(Errno::BADF));
    let mut bytes = [0; 5];
    assert_eq!((other.read_at(0, &mut bytes), &bytes), (Ok(5), b"bytes"));
}

#[test]
fn data_and_holes_are_where_the_host_has_them() {
    let (dir, fs) = on_host(CacheMode::Auto);
    let file = fs.open("file", &read_write()).unwrap();
    file.write_at(1 << 20, &[1; 4096]).unwrap();
    file.set_len(2 << 20).unwrap();
    let host = std::fs::File::open(dir.path().join("file")).unwrap();
    for offset in [0, 1 << 20, (1 << 20) + 4096] {
        use rustix::fs::{SeekFrom as At, seek};
        let of_host = [seek(&host, At::Data(offset)).ok(), seek(&host, At::Hole(offset)).ok()];
        let found = [file.seek(SeekFrom::Data(offset)).ok(), file.seek(SeekFrom::Hole(offset)).ok()];
        assert_eq!(found, of_host, "{offset}");
    }
    assert_eq!(file.seek(SeekFrom::Hole(2 << 20)), Err(Errno::NXIO));
}

/// open(2): with O_DIRECT, each read and write goes to the device.
#[test]
fn a_file_that_is_open_without_a_cache_is_read_from_the_server_each_time() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), [1; 8192]).unwrap();
    let peer = Peer::new(Passthrough::open(dir.path(), Config::default()).unwrap());
    let options = CacheOptions { mode: CacheMode::Always, ..CacheOptions::default() };
    let fs = Fs::mount(peer::session(&peer), options);
    let file = fs.open("file", &OpenOptions::new().read(true).custom_flags(O_DIRECT)).unwrap();
    for byte in 1..4 {
        std::fs::write(dir.path().join("file"), [byte; 8192]).unwrap();
        let mut bytes = [0; 4096];
        assert_eq!(file.read_at(0, &mut bytes), Ok(4096));
        assert_eq!(bytes, [byte; 4096]);
    }
    assert_eq!(fs.volume().kept_bytes(), 0);
}

#[test]
fn a_stream_goes_on_where_it_was() {
    for mode in [CacheMode::None, CacheMode::Auto, CacheMode::Always] {
        let (_dir, fs) = on_host(mode);
        for number in 0..20 {
            fs.create(format!("file{number}")).unwrap();
        }
        let volume = fs.volume();
        // The second time from the cache, where there is one.
        for _ in 0..2 {
            let mut stream = volume.opendir(&ROOT, volume.root(), 0).unwrap();
            assert_eq!(stream.position(), 0);
            let mut seen = Vec::new();
            while let Some(entry) = volume.readdir(&ROOT, &mut stream).unwrap() {
                assert_eq!(stream.position(), entry.cookie);
                seen.push(entry);
            }
            assert!(seen.len() >= 20);
            for at in [0, seen.len() / 2, seen.len() - 1] {
                stream.seek(seen[at].cookie);
                assert_eq!(stream.position(), seen[at].cookie);
                let next = volume.readdir(&ROOT, &mut stream).unwrap();
                assert_eq!(next.map(|entry| entry.name), seen.get(at + 1).map(|entry| entry.name.clone()));
            }
            stream.seek(0);
            assert_eq!(volume.readdir(&ROOT, &mut stream).unwrap().unwrap().name, seen[0].name);
        }
    }
}

/// access(2), asked of the server, and fsync(2) of a directory, which reaches it.
#[test]
fn what_only_the_server_can_do_reaches_it() {
    let (peer, fs) = crate::in_memory(CacheMode::Auto);
    let volume = fs.volume();
    let count = |what: &str| peer.counts().get(what).copied().unwrap_or_default();
    volume.access(&ROOT, volume.root(), 4).unwrap();
    assert_eq!(count(transom_wire::Opcode::Access.name()), 1);
    let stream = volume.opendir(&ROOT, volume.root(), 0).unwrap();
    stream.fsync(&ROOT, false).unwrap();
    stream.fsync(&ROOT, true).unwrap();
    assert_eq!(count(transom_wire::Opcode::Fsyncdir.name()), 2);
}

/// write(2) with O_APPEND: the data goes to the end, and the next piece follows it.
#[test]
fn appending_returns_the_offset_and_the_length() {
    let (_dir, fs) = on_host(CacheMode::Auto);
    let volume = fs.volume();
    let flags = transom_wire::linux::O_RDWR | transom_wire::linux::O_APPEND;
    let file = volume.create(&ROOT, volume.root(), name("file"), 0o600, flags).unwrap();
    assert_eq!(file.append(&ROOT, b"four"), Ok((0, 4)));
    assert_eq!(file.append(&ROOT, b"seven.."), Ok((4, 7)));
    let mut bytes = [0; 20];
    assert_eq!(file.read_at(&ROOT, 0, &mut bytes), Ok(11));
    assert_eq!(&bytes[..11], b"fourseven..");
}
