//! Every operation once, in each form that takes another system call.

use anyhow::{Context, anyhow};
use std::os::unix::net::UnixStream;
use std::path::Path;
use transom_frontend::fuse::{Answer, Exchange, Failure, Session, check_reply};
use transom_frontend::queue::Queue;
use transom_frontend::{FrontEnd, Options};
use transom_wire::Opcode;
use transom_wire::extension::EXT_GROUPS;
use transom_wire::ops::fsync::{FSYNC_FDATASYNC, FsyncIn};
use transom_wire::ops::ioctl::IoctlIn;
use transom_wire::ops::lk::{FileLock, LK_FLOCK, LkIn};
use transom_wire::ops::setattr::{SetattrIn, SetattrValid};
use transom_wire::ops::write::{WriteFlags, WriteIn};
use zerocopy::{FromZeros, IntoBytes};

/// The options of the daemons that `run` is served by.
pub(crate) const DAEMONS: &[&str] = &[
    "--xattr --posix-lock --flock --killpriv-v2 --cache auto --host-changes prefer",
    "--xattr --posix-lock --flock --inode-file-handles=never --cache never --thread-pool-size 0",
    "--sandbox none --metrics-socket metrics --log-level debug",
];

const ROOT: u64 = 1;

/// Runs through all operations over `stream`, on a share that is the host's directory `share`, and leaves.
pub(crate) fn run(stream: UnixStream, share: &Path) -> anyhow::Result<()> {
    let front_end = FrontEnd::over(stream, Options::default())?;
    let _hiprio = front_end.start_queue(0)?;
    let mut session = said(Session::begin(front_end.start_queue(1)?), "INIT")?;
    let s = &mut session;

    names(s)?;
    data(s)?;
    attributes(s)?;
    locks(s)?;
    other_users(s)?;
    many_inodes(s, share)?;

    let _ = s.destroy();
    front_end.stop_queue(1)?;
    front_end.reset()?;
    Ok(())
}

type Guest = Session<Queue>;

fn said<T>(answer: Answer<T>, what: &str) -> anyhow::Result<T> {
    answer.map_err(|failure| match failure {
        Failure::Errno(errno) => anyhow!("{what}: {errno}"),
        Failure::Broken(error) => error.context(what.to_owned()),
    })
}

/// For operations that a daemon may refuse by its options: only a broken answer is an error.
fn tried<T>(answer: Answer<T>, what: &str) -> anyhow::Result<()> {
    match answer {
        Err(Failure::Broken(error)) => Err(error.context(what.to_owned())),
        _ => Ok(()),
    }
}

fn names(s: &mut Guest) -> anyhow::Result<()> {
    let dir = said(s.mkdir(ROOT, b"dir", 0o755), "MKDIR")?.nodeid.get();
    let link = said(s.symlink(dir, b"link", b"target"), "SYMLINK")?.nodeid.get();
    said(s.readlink(link), "READLINK")?;
    let node = said(s.mknod(dir, b"node", libc::S_IFIFO | 0o600, 0), "MKNOD")?.nodeid.get();
    said(s.link(node, dir, b"other"), "LINK")?;
    said(s.rename((dir, b"other"), (ROOT, b"moved")), "RENAME")?;
    said(s.rename2((ROOT, b"moved"), (dir, b"node"), libc::RENAME_EXCHANGE), "RENAME2")?;
    tried(s.lookup(dir, b"absent"), "LOOKUP")?;
    said(s.readdir(dir, 4096, false), "READDIR")?;
    said(s.readdir(dir, 4096, true), "READDIRPLUS")?;
    let fh = said(s.opendir(dir), "OPENDIR")?;
    let arg = FsyncIn { fh: fh.into(), fsync_flags: 0.into(), padding: 0.into() };
    said(s.request(Opcode::Fsyncdir as u32, dir, &[arg.as_bytes()], 0), "FSYNCDIR")?;
    said(s.releasedir(dir, fh), "RELEASEDIR")?;
    for name in [&b"node"[..], b"link"] {
        said(s.unlink(dir, name), "UNLINK")?;
    }
    said(s.unlink(ROOT, b"moved"), "UNLINK")?;
    said(s.rmdir(ROOT, b"dir"), "RMDIR")?;
    said(s.forget(link, 1), "FORGET")?;
    said(s.batch_forget(&[(node, 1), (dir, 1)]), "BATCH_FORGET")
}

fn data(s: &mut Guest) -> anyhow::Result<()> {
    let flags = libc::O_RDWR as u32;
    let (entry, open) = created(s, b"data")?;
    said(s.write(entry, open, 0, &[7; 70_000]), "WRITE")?;
    said(s.read(entry, open, 1000, 60_000), "READ")?;
    said(s.flush(entry, open), "FLUSH")?;
    said(s.fsync(entry, open), "FSYNC")?;
    let arg = FsyncIn { fh: open.into(), fsync_flags: FSYNC_FDATASYNC.into(), padding: 0.into() };
    said(s.request(Opcode::Fsync as u32, entry, &[arg.as_bytes()], 0), "FSYNC of data")?;
    tried(s.fallocate(entry, open, 0, 1 << 20, 0), "FALLOCATE")?;
    tried(s.lseek(entry, open, 0, libc::SEEK_HOLE as u32), "LSEEK")?;
    let (copy, copy_open) = created(s, b"copy")?;
    tried(s.copy_file_range((entry, open, 0), (copy, copy_open, 0), 4096), "COPY_FILE_RANGE")?;
    tried(s.tmpfile(ROOT, flags, 0o600), "TMPFILE")?;
    let arg = IoctlIn { fh: open.into(), cmd: 0x8008_6601.into(), out_size: 8.into(), ..IoctlIn::new_zeroed() };
    tried(s.request(Opcode::Ioctl as u32, entry, &[arg.as_bytes()], 64), "IOCTL")?;
    said(s.release(entry, open), "RELEASE")?;
    said(s.release(copy, copy_open), "RELEASE")?;

    let open = said(s.open(entry, flags), "OPEN")?;
    said(s.release(entry, open), "RELEASE")?;
    said(s.statfs(ROOT), "STATFS")?;
    tried(s.syncfs(ROOT), "SYNCFS")
}

fn attributes(s: &mut Guest) -> anyhow::Result<()> {
    let (inode, open) = created(s, b"attributes")?;
    said(s.getattr(inode, None), "GETATTR")?;
    said(s.getattr(inode, Some(open)), "GETATTR of a handle")?;
    tried(s.statx(inode), "STATX")?;
    tried(s.access(inode, 4), "ACCESS")?;
    let arg = SetattrIn { mode: 0o640.into(), fh: open.into(), ..SetattrIn::new_zeroed() };
    for by in [SetattrValid::empty(), SetattrValid::FH] {
        said(s.setattr(inode, SetattrValid::MODE | by, &arg), "SETATTR of a mode")?;
        said(s.setattr(inode, SetattrValid::UID | SetattrValid::GID | by, &arg), "SETATTR of owners")?;
        said(s.setattr(inode, SetattrValid::SIZE | by, &arg), "SETATTR of a size")?;
        let times = SetattrValid::ATIME | SetattrValid::MTIME | SetattrValid::MTIME_NOW;
        said(s.setattr(inode, times | by, &arg), "SETATTR of times")?;
    }
    let directory = said(s.mkdir(ROOT, b"attributed", 0o755), "MKDIR")?.nodeid.get();
    let link = said(s.symlink(ROOT, b"attributed link", b"x"), "SYMLINK")?.nodeid.get();
    for inode in [inode, directory, link] {
        tried(s.setxattr(inode, b"user.name", b"value", 0), "SETXATTR")?;
        tried(s.xattr_size(inode, b"user.name"), "GETXATTR of a size")?;
        tried(s.getxattr(inode, b"user.name", 100), "GETXATTR")?;
        tried(s.listxattr(inode, 1000), "LISTXATTR")?;
        tried(s.removexattr(inode, b"user.name"), "REMOVEXATTR")?;
    }
    said(s.release(inode, open), "RELEASE")
}

fn locks(s: &mut Guest) -> anyhow::Result<()> {
    let (inode, open) = created(s, b"locks")?;
    let (write, none) = (libc::F_WRLCK as u32, libc::F_UNLCK as u32);
    for type_ in [write, none] {
        tried(s.setlk(inode, open, 1, type_, false), "SETLK")?;
        tried(s.getlk(inode, open, 2, write), "GETLK")?;
        tried(s.setlk(inode, open, 1, type_, true), "SETLKW")?;
        let lk = FileLock { type_: type_.into(), end: i64::MAX.cast_unsigned().into(), ..FileLock::new_zeroed() };
        let arg = LkIn { fh: open.into(), owner: 3.into(), lk, lk_flags: LK_FLOCK.into(), ..LkIn::new_zeroed() };
        tried(s.request(Opcode::Setlk as u32, inode, &[arg.as_bytes()], 0), "SETLK from flock")?;
    }
    tried(s.interrupt(2), "INTERRUPT")?;
    said(s.release(inode, open), "RELEASE")
}

fn other_users(s: &mut Guest) -> anyhow::Result<()> {
    let dir = said(s.mkdir(ROOT, b"open to all", 0o777), "MKDIR")?.nodeid.get();
    (s.uid, s.gid) = (1234, 5678);
    let created = said(s.create(dir, b"theirs", libc::O_RDWR as u32, 0o644), "CREATE as another user")?;
    let (inode, open) = (created.entry.nodeid.get(), created.open.fh.get());
    let arg = WriteIn {
        fh: open.into(),
        size: 3.into(),
        write_flags: WriteFlags::KILL_SUIDGID.bits().into(),
        ..WriteIn::new_zeroed()
    };
    said(s.request(Opcode::Write as u32, inode, &[arg.as_bytes(), b"abc"], 8), "WRITE that clears set-id bits")?;
    said(s.release(inode, open), "RELEASE")?;
    by_supplementary_group(s, dir, 4242)?;
    (s.uid, s.gid) = (0, 0);
    Ok(())
}

/// MKDIR by a caller who may do it as a member of `group`, which is sent after the name.
fn by_supplementary_group(s: &mut Guest, parent: u64, group: u32) -> anyhow::Result<()> {
    // 1. mode and umask, the name, then the extension: its size and type, the number of groups, the group.
    let arg = [0o755_u32, 0o022].map(u32::to_le_bytes).concat();
    let extension = [16, EXT_GROUPS, 1, group].map(u32::to_le_bytes).concat();
    let body = [&arg[..], b"grouped\0", &extension].concat();
    // 2. The header counts extensions in units of 8 bytes.
    let mut header = s.header(Opcode::Mkdir as u32, parent, body.len());
    header.total_extlen = (extension.len() as u16 / 8).into();
    let completion = s.exchange.exchange(&[header.as_bytes(), &body], 256)?;
    said(check_reply(&completion, header.unique.get()).map(drop), "MKDIR by a supplementary group")
}

/// Looks up what the host made, which may leave inodes without a descriptor, and uses it again.
fn many_inodes(s: &mut Guest, share: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(share.join("many"))?;
    for number in 0..200 {
        std::fs::write(share.join(format!("many/{number}")), "content").context("on the host")?;
    }
    let dir = said(s.lookup(ROOT, b"many"), "LOOKUP")?.nodeid.get();
    let inodes: Vec<u64> = (0..200)
        .map(|number| Ok(said(s.lookup(dir, number.to_string().as_bytes()), "LOOKUP")?.nodeid.get()))
        .collect::<anyhow::Result<_>>()?;
    for inode in inodes {
        said(s.getattr(inode, None), "GETATTR")?;
        let open = said(s.open(inode, libc::O_RDONLY as u32), "OPEN")?;
        said(s.read(inode, open, 0, 100), "READ")?;
        said(s.release(inode, open), "RELEASE")?;
    }
    Ok(())
}

/// Creates a file in the share's root. Returns its nodeid and its handle.
fn created(s: &mut Guest, name: &[u8]) -> anyhow::Result<(u64, u64)> {
    let out = said(s.create(ROOT, name, libc::O_RDWR as u32, 0o644), "CREATE")?;
    Ok((out.entry.nodeid.get(), out.open.fh.get()))
}
