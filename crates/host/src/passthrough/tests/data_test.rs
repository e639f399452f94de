use std::{fs, os::unix::fs::MetadataExt};

use rustix::fs::OFlags;
use transom_wire::{
    Handle, NodeId, Opcode,
    ops::{
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        fallocate::FallocateIn,
        fsync::FsyncIn,
        lseek::{LseekIn, LseekOut},
        open::OpenFlags,
        setattr::SetattrValid,
        write::WriteFlags,
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::{each_way, each_way_with, guest::node, is_root};
use crate::{
    Errno,
    passthrough::{CachePolicy, Config, tests::guest::Guest},
};

const ROOT: NodeId = NodeId::ROOT;

#[test]
fn what_one_side_writes_the_other_reads() {
    each_way(|guest, dir| {
        let content: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(dir.join("file"), &content).unwrap();
        let file = guest.walk("file").unwrap();
        let fh = guest.open(file, OFlags::RDWR).unwrap();
        assert_eq!(guest.read(fh, 0, 400_000).unwrap(), content);
        assert_eq!(guest.read(fh, 299_990, 4096).unwrap(), content[299_990..]);
        assert_eq!(guest.read(fh, 300_000, 4096).unwrap(), b"");
        assert_eq!(guest.write(fh, 300_010, b"tail"), Ok(4));
        assert_eq!(guest.read(fh, 299_999, 100).unwrap(), [&content[299_999..], &[0; 10], b"tail"].concat());
        assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 300_014);
        guest.flush(file, fh).unwrap();
        guest.tell(Opcode::Fsync, file, &[fsync(fh).as_bytes()]).unwrap();
        guest.release(file, fh);
        assert_eq!(guest.read(fh, 0, 10).err(), Some(Errno::BADF), "a handle is given once");
        assert_eq!(guest.write(fh, 0, b"x").err(), Some(Errno::BADF));
    });
}

#[test]
fn a_write_appends_where_the_request_says_so_and_the_cache_never_does() {
    each_way(|guest, dir| {
        fs::write(dir.join("log"), "12345").unwrap();
        let log = guest.walk("log").unwrap();
        let fh = guest.open(log, OFlags::WRONLY | OFlags::APPEND).unwrap();
        let append = OFlags::APPEND.bits();
        guest.write_with(fh, 0, b"67", |arg| arg.flags = append.into()).unwrap();
        assert_eq!(fs::read(dir.join("log")).unwrap(), b"1234567");
        let cache = WriteFlags::CACHE.bits();
        guest
            .write_with(fh, 1, b"ab", |arg| {
                arg.flags = append.into();
                arg.write_flags = cache.into();
            })
            .unwrap();
        assert_eq!(fs::read(dir.join("log")).unwrap(), b"1ab4567");
    });
}

#[test]
fn open_truncates_with_the_flag_and_ignores_what_is_not_its_own() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "content").unwrap();
        let file = guest.walk("file").unwrap();
        // O_CREAT, O_EXCL, O_DIRECTORY and O_NOFOLLOW have no meaning for an inode.
        let odd = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let fh = guest.open(file, OFlags::RDONLY | odd).unwrap();
        assert_eq!(guest.read(fh, 0, 100).unwrap(), b"content");
        guest.open(file, OFlags::WRONLY | OFlags::TRUNC).unwrap();
        assert_eq!(guest.read(fh, 0, 100).unwrap(), b"");
        assert_eq!(guest.open(file, OFlags::RWMODE).err(), Some(Errno::INVAL));
    });
}

#[test]
fn a_fifo_and_a_device_are_never_opened() {
    each_way(|guest, dir| {
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("fifo"), 0o666.into()).unwrap();
        let fifo = guest.walk("fifo").unwrap();
        // Without a writer, an open would wait forever.
        assert_eq!(guest.open(fifo, OFlags::RDONLY).err(), Some(Errno::NXIO));
        assert_eq!(guest.setattr(fifo, SetattrValid::SIZE, |_| {}).err(), Some(Errno::NXIO));
        assert!(guest.setattr(fifo, SetattrValid::MODE, |arg| arg.mode = 0o600.into()).is_ok());
        assert_eq!(guest.opendir(fifo).err(), Some(Errno::NXIO));
    });
}

#[test]
fn holes_are_found_and_made() {
    each_way(|guest, dir| {
        let file = fs::File::create(dir.join("sparse")).unwrap();
        file.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", 512 << 10).unwrap();
        let nodeid = guest.walk("sparse").unwrap();
        let fh = guest.open(nodeid, OFlags::RDWR).unwrap();
        let seek = |offset: u64, whence: i32| -> Result<u64, Errno> {
            let mut arg = LseekIn::new_zeroed();
            (arg.fh, arg.offset, arg.whence) = (fh.into(), offset.into(), (whence as u32).into());
            guest.ask::<LseekOut>(Opcode::Lseek, nodeid, &[arg.as_bytes()]).map(|out| out.offset.get())
        };
        assert_eq!(seek(0, libc::SEEK_DATA), Ok(512 << 10));
        assert_eq!(seek(0, libc::SEEK_HOLE), Ok(0));
        assert_eq!(seek(1 << 20, libc::SEEK_DATA), Err(Errno::NXIO));
        assert_eq!(seek(0, libc::SEEK_END), Ok(1 << 20));
        assert_eq!(seek(0, libc::SEEK_CUR), Err(Errno::INVAL));
        let mut arg = FallocateIn::new_zeroed();
        (arg.fh, arg.length) = (fh.into(), (1u64 << 20).into());
        arg.mode = ((libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32).into();
        guest.tell(Opcode::Fallocate, nodeid, &[arg.as_bytes()]).unwrap();
        assert_eq!(seek(0, libc::SEEK_DATA), Err(Errno::NXIO));
        arg.mode = 0x8000_0000u32.into();
        assert_eq!(guest.tell(Opcode::Fallocate, nodeid, &[arg.as_bytes()]), Err(Errno::OPNOTSUPP));
        (arg.mode, arg.offset) = (0.into(), (1u64 << 20).into());
        guest.tell(Opcode::Fallocate, nodeid, &[arg.as_bytes()]).unwrap();
        assert_eq!(fs::metadata(dir.join("sparse")).unwrap().len(), 2 << 20);
    });
}

#[test]
fn a_range_is_copied_on_the_host() {
    each_way(|guest, dir| {
        fs::write(dir.join("from"), "0123456789").unwrap();
        fs::write(dir.join("to"), "abc").unwrap();
        let (from, to) = (guest.walk("from").unwrap(), guest.walk("to").unwrap());
        let (fh_in, fh_out) = (guest.open(from, OFlags::RDONLY).unwrap(), guest.open(to, OFlags::RDWR).unwrap());
        let mut arg = CopyFileRangeIn::new_zeroed();
        (arg.fh_in, arg.off_in) = (fh_in.into(), 4.into());
        (arg.nodeid_out, arg.fh_out, arg.off_out) = (to.into(), fh_out.into(), 3.into());
        arg.len = u64::MAX.into();
        // More than the file has, and more than an offset can be.
        let copied = guest.ask::<CopyFileRangeOut>(Opcode::CopyFileRange64, from, &[arg.as_bytes()]);
        assert!(copied.is_err() || copied.is_ok_and(|out| out.bytes_copied.get() == 6));
        arg.len = 5.into();
        let out: CopyFileRangeOut = guest.ask(Opcode::CopyFileRange64, from, &[arg.as_bytes()]).unwrap();
        assert_eq!(out.bytes_copied.get(), 5);
        assert_eq!(&fs::read(dir.join("to")).unwrap()[..8], b"abc45678");
        arg.flags = 1.into();
        assert_eq!(guest.call(Opcode::CopyFileRange64, from, &[arg.as_bytes()], 8), Err(Errno::INVAL));
    });
}

#[test]
fn set_id_bits_go_with_a_write_that_says_so() {
    if !is_root() {
        return println!("SKIPPED: only with CAP_FSETID do the bits stay otherwise");
    }
    each_way_with(Config { killpriv_v2: true, ..Config::default() }, |guest, dir| {
        let path = dir.join("program");
        let set_id = || {
            fs::write(&path, "x").unwrap();
            rustix::fs::chmod(&path, 0o6755.into()).unwrap();
        };
        let mode = || path.metadata().unwrap().mode() & 0o7777;
        set_id();
        let nodeid = guest.walk("program").unwrap();
        let fh = guest.open(nodeid, OFlags::RDWR).unwrap();
        guest.write(fh, 0, b"y").unwrap();
        assert_eq!(mode(), 0o6755, "the writer may keep them");
        guest.write_with(fh, 0, b"z", |arg| arg.write_flags = WriteFlags::KILL_SUIDGID.bits().into()).unwrap();
        assert_eq!(mode(), 0o755);
        set_id();
        guest.setattr(nodeid, SetattrValid::SIZE | SetattrValid::KILL_SUIDGID, |_| {}).unwrap();
        assert_eq!(mode(), 0o755);
        set_id();
        guest.setattr(nodeid, SetattrValid::KILL_SUIDGID, |_| {}).unwrap();
        assert_eq!(mode(), 0o755);
        // If the group may not execute, set-group-id is harmless.
        rustix::fs::chmod(&path, 0o2745.into()).unwrap();
        rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(1234)), Some(rustix::fs::Gid::from_raw(1234))).unwrap();
        rustix::fs::chmod(&path, 0o2745.into()).unwrap();
        guest.write_with(fh, 0, b"z", |arg| arg.write_flags = WriteFlags::KILL_SUIDGID.bits().into()).unwrap();
        assert_eq!(mode(), 0o2745);
    });
}

#[test]
fn set_id_bits_go_with_a_truncating_open_by_anybody_but_root() {
    if !is_root() {
        return println!("SKIPPED: only with CAP_FSETID do the bits stay otherwise");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::write(&path, "x").unwrap();
    let mut guest = Guest::new(dir.path(), Config::default());
    let nodeid = guest.walk("program").unwrap();
    for (caller, expected) in [((0, 0), 0o6755), ((1234, 1234), 0o755)] {
        rustix::fs::chmod(&path, 0o6755.into()).unwrap();
        guest.caller = caller;
        guest.open(nodeid, OFlags::RDWR | OFlags::TRUNC).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, expected, "by {caller:?}");
        std::os::unix::fs::chown(&path, Some(caller.0), Some(caller.1)).unwrap();
        rustix::fs::chmod(&path, 0o6755.into()).unwrap();
        guest.create(ROOT, "program", OFlags::RDWR | OFlags::TRUNC).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, expected, "by {caller:?} with CREATE");
    }
}

#[test]
fn set_group_id_without_execution_by_the_group_survives_a_write() {
    let dir = tempfile::tempdir().unwrap();
    rustix::fs::chmod(dir.path(), 0o777.into()).unwrap();
    let mut guest = Guest::new(dir.path(), Config::default());
    guest.caller = (1234, 1234);
    let (_, open) = guest.create_mode(ROOT, "file", OFlags::RDWR, 0o2745).unwrap();
    let mode = || dir.path().join("file").metadata().unwrap().mode() & 0o7777;
    assert_eq!(mode(), 0o2745);
    guest.write(open.fh.into(), 0, b"x").unwrap();
    if !is_root() {
        return println!("SKIPPED: without CAP_FSETID the host has the say");
    }
    assert_eq!(mode(), 0o2745);
}

#[test]
fn a_file_of_many_buffers_and_unaligned_ends_reads_alike_from_cache_and_disk() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..70_001u32).map(|i| (i * 7 % 253) as u8).collect();
    fs::write(dir.path().join("file"), &content).unwrap();
    let guest = Guest::new(dir.path(), Config::default());
    let fh = guest.open(guest.walk("file").unwrap(), OFlags::RDONLY).unwrap();
    for _ in 0..2 {
        for (offset, size) in [(0, 70_001), (0, 70_002), (69_999, 4), (1, 1), (70_001, 1), (0, 0)] {
            let end = content.len().min(offset as usize + size as usize);
            assert_eq!(guest.read(fh, offset, size).unwrap(), content[offset as usize..end], "{offset}+{size}");
        }
        // No longer in the page cache, as far as the host follows advice.
        let file = fs::File::open(dir.path().join("file")).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

#[test]
fn open_flags_follow_the_cache_policy() {
    let flags_of = |config: Config, flags: OFlags| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let guest = Guest::new(dir.path(), config);
        let out = guest.open_out(guest.walk("file").unwrap(), flags).unwrap();
        OpenFlags::from_bits_retain(out.open_flags.get())
    };
    let with = |cache| Config { cache, ..Config::default() };
    let (read, write) = (OFlags::RDONLY, OFlags::RDWR);
    assert_eq!(flags_of(with(CachePolicy::Auto), write), OpenFlags::empty());
    assert_eq!(flags_of(with(CachePolicy::Auto), read), OpenFlags::NOFLUSH);
    assert_eq!(flags_of(with(CachePolicy::Always), write), OpenFlags::KEEP_CACHE);
    let direct = OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES;
    assert_eq!(flags_of(with(CachePolicy::Never), write), direct);
    assert_eq!(flags_of(with(CachePolicy::Metadata), write), direct);
    let mapped = Config { allow_mmap: true, ..with(CachePolicy::Never) };
    assert_eq!(flags_of(mapped, write), OpenFlags::DIRECT_IO);
    let locked = Config { posix_lock: true, ..with(CachePolicy::Auto) };
    assert_eq!(flags_of(locked, read), OpenFlags::empty(), "a close ends locks");
}

#[test]
fn a_write_only_file_can_be_read_by_the_guests_write_back_cache() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "content").unwrap();
    let guest = Guest::new(dir.path(), Config { writeback: true, ..Config::default() });
    let fh = guest.open(guest.walk("file").unwrap(), OFlags::WRONLY).unwrap();
    assert_eq!(guest.read(fh, 0, 7).unwrap(), b"content");
    let (entry, open) = guest.create(ROOT, "new", OFlags::WRONLY).unwrap();
    guest.write(open.fh.into(), 0, b"1").unwrap();
    assert_eq!(guest.read(open.fh.into(), 0, 7).unwrap(), b"1");
    guest.release(node(&entry), open.fh.into());
}

fn fsync(fh: Handle) -> FsyncIn {
    let mut arg = FsyncIn::new_zeroed();
    arg.fh = fh.into();
    arg
}
