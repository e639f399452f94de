//! Requests whose chains are sound and whose contents are not.

use std::collections::BTreeSet;

use transom_frontend::{
    fuse::{Answer, Exchange, Session, check_reply},
    queue::Queue,
};
use transom_wire::{
    Opcode,
    ops::{init::InitFlags, read::ReadIn, write::WriteIn, xattr::SetxattrIn},
};
use zerocopy::{FromZeros, IntoBytes};

use crate::host::{Daemon, use_it};

fn errno_of<T: std::fmt::Debug>(answer: Answer<T>) -> i32 {
    answer.unwrap_err().errno().expect("an answer").raw_os_error()
}

/// A generator of bytes that are the same on every run.
struct Bytes(u64);

impl Bytes {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 20
    }

    fn some(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            // Small numbers and zeros find more than noise does.
            match self.number() % 4 {
                0 => bytes.extend([0; 4]),
                1 => bytes.extend((self.number() as u32 % 8).to_le_bytes()),
                2 => bytes.extend([0xff; 4]),
                _ => bytes.extend((self.number() as u32).to_le_bytes()),
            }
        }
        bytes.truncate(len);
        bytes
    }
}

/// Sends a request with any body and checks that the reply is one.
fn send(session: &mut Session<Queue>, opcode: u32, nodeid: u64, body: &[u8], room: usize) {
    let header = session.header(opcode, nodeid, body.len());
    let completion = session.exchange.exchange(&[header.as_bytes(), body], 16 + room).unwrap();
    let is_silent = Opcode::from_u32(opcode).is_some_and(Opcode::has_no_reply);
    if is_silent {
        assert_eq!(completion.used_len, 0, "opcode {opcode}");
    } else if let Err(failure) = check_reply(&completion, header.unique.get()) {
        assert!(failure.errno().is_some(), "opcode {opcode}: {failure}");
    }
}

#[test]
fn every_operation_with_any_body_is_answered() {
    // SETLKW may rightly wait forever; lifetimes.rs has it.
    let daemon = Daemon::start();
    assert_eq!(any_requests(&daemon, &[Opcode::Setlkw]), 71);
}

/// Every operation but `without`, with any body; returns how many.
pub(crate) fn any_requests(daemon: &Daemon, without: &[Opcode]) -> usize {
    let (front_end, mut session) = daemon.session();
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let nodeids = [0, 1, file.entry.nodeid.get(), 3, u64::MAX];
    let mut bytes = Bytes(1);
    let mut served = BTreeSet::new();
    let is_sent = |opcode: &u32| without.iter().all(|&without| without as u32 != *opcode);
    for opcode in (0..=70).chain([u32::MAX]).filter(is_sent) {
        for round in 0..60 {
            let body = match round {
                0 => Vec::new(),
                1 => vec![0; 200],
                2 => vec![0xff; 200],
                _ => {
                    let len = bytes.number() as usize % 200;
                    bytes.some(len)
                }
            };
            let room = [0, 8, 128, 5000][bytes.number() as usize % 4];
            send(&mut session, opcode, nodeids[bytes.number() as usize % 5], &body, room);
        }
        served.insert(opcode);
        // INIT and DESTROY end what the others need.
        session.init(InitFlags::all()).unwrap();
    }
    session.destroy().unwrap();
    drop((front_end, session));
    daemon.is_healthy();
    served.len()
}

#[test]
fn arguments_cut_short_are_refused() {
    let fixed: &[(Opcode, usize)] = &[
        (Opcode::Getattr, 16),
        (Opcode::Setattr, 88),
        (Opcode::Mknod, 16),
        (Opcode::Mkdir, 8),
        (Opcode::Rename, 8),
        (Opcode::Rename2, 16),
        (Opcode::Link, 8),
        (Opcode::Open, 8),
        (Opcode::Read, 40),
        (Opcode::Write, 40),
        (Opcode::Release, 24),
        (Opcode::Fsync, 16),
        (Opcode::Setxattr, 16),
        (Opcode::Getxattr, 8),
        (Opcode::Listxattr, 8),
        (Opcode::Flush, 24),
        (Opcode::Opendir, 8),
        (Opcode::Readdir, 40),
        (Opcode::Releasedir, 24),
        (Opcode::Fsyncdir, 16),
        (Opcode::Getlk, 48),
        (Opcode::Setlk, 48),
        (Opcode::Setlkw, 48),
        (Opcode::Access, 8),
        (Opcode::Create, 16),
        (Opcode::Ioctl, 32),
        (Opcode::Fallocate, 32),
        (Opcode::Readdirplus, 40),
        (Opcode::Lseek, 24),
        (Opcode::CopyFileRange, 56),
        (Opcode::CopyFileRange64, 56),
        (Opcode::Setupmapping, 40),
        (Opcode::Tmpfile, 16),
        (Opcode::Statx, 24),
        (Opcode::Init, 16),
    ];
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    for &(opcode, len) in fixed {
        for cut in 0..len {
            let answer = session.request(opcode as u32, 1, &[&vec![0; cut]], 4096);
            assert_eq!(errno_of(answer), libc::EINVAL, "{opcode:?} with {cut} bytes of {len}");
        }
    }
    use_it(&mut session);
}

#[test]
fn names_that_are_none_are_refused_by_every_operation() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    let long = [&[b'x'; 256][..], b"\0"].concat();
    let names: &[(&[u8], i32)] = &[
        (b"\0", libc::EINVAL),
        (b".\0", libc::EINVAL),
        (b"..\0", libc::EINVAL),
        (b"a/b\0", libc::EINVAL),
        (b"/\0", libc::EINVAL),
        (b"/etc/passwd\0", libc::EINVAL),
        (b"../etc/passwd\0", libc::EINVAL),
        (b"no end", libc::EINVAL),
        (b"", libc::EINVAL),
        (&long, libc::ENAMETOOLONG),
    ];
    let before: &[(Opcode, usize)] = &[
        (Opcode::Lookup, 0),
        (Opcode::Mknod, 16),
        (Opcode::Mkdir, 8),
        (Opcode::Unlink, 0),
        (Opcode::Rmdir, 0),
        (Opcode::Rename, 8),
        (Opcode::Rename2, 16),
        (Opcode::Link, 8),
        (Opcode::Symlink, 0),
        (Opcode::Create, 16),
    ];
    for &(opcode, arguments_len) in before {
        for &(name, errno) in names {
            // A second, good name follows where the operation has two.
            let behind: &[u8] = if name.ends_with(b"\0") { b"good\0" } else { b"" };
            let answer = session.request(opcode as u32, 1, &[&vec![0; arguments_len], name, behind], 4096);
            assert_eq!(errno_of(answer), errno, "{opcode:?} of \"{}\"", name.escape_ascii());
        }
    }
    for opcode in [Opcode::Rename, Opcode::Rename2] {
        let arguments_len = if opcode == Opcode::Rename { 8 } else { 16 };
        for &(name, errno) in names {
            let answer = session.request(opcode as u32, 1, &[&vec![0; arguments_len], b"good\0", name], 0);
            assert_eq!(errno_of(answer), errno, "{opcode:?} to \"{}\"", name.escape_ascii());
        }
    }
    assert_eq!(daemon.held().inodes, 1);
    use_it(&mut session);
}

#[test]
fn links_and_attribute_names_have_their_limits() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    assert_eq!(errno_of(session.symlink(1, b"link", b"")), libc::ENOENT);
    assert_eq!(errno_of(session.symlink(1, b"link", &[b'x'; 4096])), libc::ENAMETOOLONG);
    assert_eq!(session.symlink(1, b"link", &[b'x'; 4095]).unwrap().attr.size.get(), 4095);
    assert_eq!(errno_of(session.setxattr(1, b"", b"value", 0)), libc::ERANGE);
    assert_eq!(errno_of(session.setxattr(1, &[b'x'; 256], b"value", 0)), libc::ERANGE);
    assert_eq!(errno_of(session.setxattr(1, b"name", &vec![0; 65537], 0)), libc::E2BIG);
    session.setxattr(1, &[b'x'; 255], &vec![7; 65536], 0).unwrap();
    assert_eq!(session.xattr_size(1, &[b'x'; 255]).unwrap(), 65536);
    assert_eq!(errno_of(session.getxattr(1, &[b'x'; 255], 65535)), libc::ERANGE);
    assert_eq!(session.getxattr(1, &[b'x'; 255], 65536).unwrap(), vec![7; 65536]);
    // Sizes that lie.
    for size in [6u32, 100, 65536, u32::MAX] {
        let arg = SetxattrIn { size: size.into(), ..SetxattrIn::new_zeroed() };
        let answer = session.request(Opcode::Setxattr as u32, 1, &[arg.as_bytes(), b"lie\0value"], 0);
        let expected = if size > 65536 { libc::E2BIG } else { libc::EINVAL };
        assert_eq!(errno_of(answer), expected, "size {size}");
    }
    assert_eq!(errno_of(session.getxattr(1, b"lie", 100)), libc::ENODATA);
}

#[test]
fn inodes_and_handles_that_are_not_there_are_refused() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
    let dir = session.opendir(1).unwrap();
    for nodeid in [0, nodeid + 1, 1 << 40, u64::MAX] {
        assert_eq!(errno_of(session.getattr(nodeid, None)), libc::ENOENT);
        assert_eq!(errno_of(session.lookup(nodeid, b"file")), libc::ENOENT);
        assert_eq!(errno_of(session.open(nodeid, 0)), libc::ENOENT);
        assert_eq!(errno_of(session.rename((1, b"file"), (nodeid, b"file"))), libc::ENOENT);
        assert_eq!(errno_of(session.link(nodeid, 1, b"link")), libc::ENOENT);
    }
    // A directory's handle is no file's, and the other way round.
    for fh in [0, fh + 100, u64::MAX, dir] {
        assert_eq!(errno_of(session.read(nodeid, fh, 0, 10)), libc::EBADF);
        assert_eq!(errno_of(session.write(nodeid, fh, 0, b"data")), libc::EBADF);
        assert_eq!(errno_of(session.release(nodeid, fh)), libc::EBADF);
        assert_eq!(errno_of(session.fsync(nodeid, fh)), libc::EBADF);
        assert_eq!(errno_of(session.lseek(nodeid, fh, 0, 3)), libc::EBADF);
    }
    assert_eq!(errno_of(session.readdir_once(1, fh, 0, 4096, false)), libc::EBADF);
    session.release(nodeid, fh).unwrap();
    assert_eq!(errno_of(session.read(nodeid, fh, 0, 10)), libc::EBADF, "a stale handle");
    session.unlink(1, b"file").unwrap();
    session.forget(nodeid, 1).unwrap();
    assert_eq!(errno_of(session.getattr(nodeid, None)), libc::ENOENT, "a forgotten inode");
    let again = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    assert_ne!(again.entry.nodeid.get(), nodeid, "a nodeid is not used again");
}

#[test]
fn forgetting_too_much_is_ignored() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    let nodeid = session.mkdir(1, b"directory", 0o755).unwrap().nodeid.get();
    for (nodeid, count) in [(nodeid, u64::MAX), (nodeid, u64::MAX), (1, u64::MAX), (0, 1), (77, 1), (u64::MAX, 1)] {
        session.forget(nodeid, count).unwrap();
    }
    assert_eq!(daemon.held().lookups, 0);
    // The root stays, and a name that is there is found again.
    session.getattr(1, None).unwrap();
    assert_eq!(session.lookup(1, b"directory").unwrap().attr.mode.get() & libc::S_IFMT, libc::S_IFDIR);
    for count in [0u32, 2, 1000, 0x1000_0000, u32::MAX] {
        let body = [&count.to_le_bytes()[..], &[0; 4], &nodeid.to_le_bytes(), &1u64.to_le_bytes()].concat();
        session.tell(Opcode::BatchForget, 0, &[&body]).unwrap();
    }
    use_it(&mut session);
}

#[test]
fn reads_and_writes_with_sizes_that_lie_move_what_there_is() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
    session.write(nodeid, fh, 0, b"0123456789").unwrap();
    for size in [u32::MAX, 1 << 31, 1 << 20] {
        for (offset, expected) in [(0u64, &b"01234567"[..]), (8, b"89"), (10, b""), (u64::MAX, b""), (1 << 63, b"")] {
            let arg = ReadIn { fh: fh.into(), offset: offset.into(), size: size.into(), ..ReadIn::new_zeroed() };
            let data = session.request(Opcode::Read as u32, nodeid, &[arg.as_bytes()], 8).unwrap();
            assert_eq!(data, expected, "read of {size} at {offset} with room for 8");
        }
    }
    for size in [5u32, 100, 1 << 20, u32::MAX] {
        let arg = WriteIn { fh: fh.into(), size: size.into(), ..WriteIn::new_zeroed() };
        let answer = session.request(Opcode::Write as u32, nodeid, &[arg.as_bytes(), b"data"], 8);
        assert_eq!(errno_of(answer), libc::EINVAL, "write of {size} with 4 bytes");
    }
    let arg = WriteIn { fh: fh.into(), size: 2.into(), ..WriteIn::new_zeroed() };
    session.request(Opcode::Write as u32, nodeid, &[arg.as_bytes(), b"abcd"], 8).unwrap();
    assert_eq!(session.read(nodeid, fh, 0, 100).unwrap(), b"ab23456789");
    for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64, 1 << 40] {
        assert_eq!(errno_of(session.write(nodeid, fh, offset, b"data")), libc::EFBIG, "write at {offset}");
    }
    assert_eq!(errno_of(session.truncate(nodeid, u64::MAX)), libc::EFBIG);
    assert_eq!(errno_of(session.fallocate(nodeid, fh, u64::MAX, u64::MAX, 0)), libc::EFBIG);
    assert_eq!(session.copy_file_range((nodeid, fh, 0), (nodeid, fh, 20), u64::MAX).unwrap(), 10);
}

#[test]
fn directory_offsets_may_be_any_number() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    for name in b'a'..=b'z' {
        session.mkdir(1, &[name], 0o755).unwrap();
    }
    let fh = session.opendir(1).unwrap();
    for offset in (0..100).chain([1 << 31, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX]) {
        for is_plus in [false, true] {
            let entries = session.readdir_once(1, fh, offset, 4096, is_plus).unwrap();
            assert!(entries.windows(2).all(|pair| pair[0].off < pair[1].off));
        }
    }
    session.releasedir(1, fh).unwrap();
}

#[test]
fn sessions_begin_and_end_in_any_order() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    session.mkdir(1, b"directory", 0o755).unwrap();
    session.interrupt(4711).unwrap();
    session.init(InitFlags::empty()).unwrap();
    assert_eq!(daemon.held().lookups, 0, "a second INIT begins anew");
    session.lookup(1, b"directory").unwrap();
    session.destroy().unwrap();
    assert_eq!(daemon.held().lookups, 0);
    assert_eq!(errno_of(session.lookup(1, b"directory")), libc::ENOTCONN);
    assert_eq!(errno_of(session.getattr(1, None)), libc::ENOTCONN);
    session.destroy().unwrap_err();
    session.forget(1, 1).unwrap();
    // Versions of other times.
    for (major, minor, expected) in [(6u32, 0u32, Some(libc::EPROTO)), (7, 5, Some(libc::EPROTO)), (8, 0, None)] {
        let body = [major, minor, 0, 0].map(u32::to_le_bytes).concat();
        match (session.request(Opcode::Init as u32, 0, &[&body], 64), expected) {
            (Err(failure), Some(errno)) => assert_eq!(failure.errno().unwrap().raw_os_error(), errno),
            (Ok(answer), None) => assert_eq!(answer[..4], 7u32.to_le_bytes()),
            (answer, _) => panic!("INIT {major}.{minor}: {answer:?}"),
        }
        assert_eq!(errno_of(session.getattr(1, None)), libc::ENOTCONN);
    }
    session.init(InitFlags::all()).unwrap();
    session.rmdir(1, b"directory").unwrap();
    use_it(&mut session);
    drop((front_end, session));
    daemon.is_healthy();
}
