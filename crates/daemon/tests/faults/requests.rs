//! The requests that are disturbed: each with what it does, by the model of a bare directory, and what the guest has
//! then.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags},
    io::Errno,
};
use transom_frontend::fuse::{Answer, Exchange as _, Failure, check_reply};
use transom_wire::{
    Opcode,
    ops::{
        create::CreateIn,
        flush::FlushIn,
        fsync::{FSYNC_FDATASYNC, FsyncIn},
        ioctl::IoctlIn,
        lk::{FileLock, LK_FLOCK, LkIn},
        mkdir::MkdirIn,
        setattr::{SetattrIn, SetattrValid},
    },
};
use zerocopy::{FromZeros, IntoBytes};

use crate::{
    guest::{Guest, Prepared, ROOT},
    share::{ATTRIBUTE, CONTENT, write},
};

/// What a request that succeeded adds to what the guest holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gain {
    pub(crate) inodes: i64,
    pub(crate) files: i64,
    /// POSIX locks, each of an owner of its own.
    pub(crate) posix_locks: i64,
    pub(crate) flocks: i64,
}

/// A part of what a request does.
pub(crate) type Half = fn(&Path) -> io::Result<()>;

/// A kind of request.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// What the guest does before, undisturbed.
    pub(crate) before: fn(&mut Guest, &Prepared) -> Answer<()>,
    /// Sends the request and checks what a successful reply says.
    pub(crate) send: fn(&mut Guest, &Prepared) -> Answer<Gain>,
    /// Does the same in a bare directory.
    pub(crate) model: fn(&Path) -> io::Result<()>,
    /// What is left of it where it fails half-way, and may be: each of these.
    pub(crate) halves: &'static [Half],
    /// What may be left where the host takes the name away meanwhile, beside that.
    pub(crate) raced: &'static [Half],
    /// Errors that it may answer whatever happens.
    pub(crate) refusals: &'static [Errno],
    /// One of these calls is made and succeeds, or it does not succeed either; none that it has no need of.
    pub(crate) needs: &'static [libc::c_long],
    /// The name that the host changes meanwhile.
    pub(crate) target: &'static str,
    /// It waits until the session ends.
    pub(crate) waits: bool,
}

impl Kind {
    fn new(name: &'static str, target: &'static str, send: fn(&mut Guest, &Prepared) -> Answer<Gain>) -> Self {
        Self {
            name,
            before: |_, _| Ok(()),
            send,
            model: |_| Ok(()),
            halves: &[],
            raced: &[],
            refusals: &[],
            needs: &[],
            target,
            waits: false,
        }
    }

    fn changes(self, model: fn(&Path) -> io::Result<()>) -> Self {
        Self { model, ..self }
    }

    fn after(self, before: fn(&mut Guest, &Prepared) -> Answer<()>) -> Self {
        Self { before, ..self }
    }

    fn halves(self, halves: &'static [Half]) -> Self {
        Self { halves, ..self }
    }

    fn raced(self, raced: &'static [Half]) -> Self {
        Self { raced, ..self }
    }

    fn refused(self, refusals: &'static [Errno]) -> Self {
        Self { refusals, ..self }
    }

    fn needs(self, needs: &'static [libc::c_long]) -> Self {
        Self { needs, ..self }
    }

    fn waits(self) -> Self {
        Self { waits: true, ..self }
    }
}

const NOTHING: Gain = Gain { inodes: 0, files: 0, posix_locks: 0, flocks: 0 };
const INODE: Gain = Gain { inodes: 1, ..NOTHING };
const FILE: Gain = Gain { files: 1, ..NOTHING };
const OPEN_INODE: Gain = Gain { inodes: 1, files: 1, ..NOTHING };
const RDWR: u32 = libc::O_RDWR as u32;
const WRLCK: u32 = libc::F_WRLCK as u32;
/// Not root, and nobody's login on a fresh machine.
const USER: u32 = 1000;
const LABEL: (&str, &[u8]) = ("user.label", b"new file");

/// Every kind.
pub(crate) fn kinds() -> Vec<Kind> {
    [names(), creations(), files(), attributes(), locks()].into_iter().flatten().collect()
}

fn names() -> Vec<Kind> {
    vec![
        Kind::new("LOOKUP", "unseen", |s, _| s.lookup(ROOT, b"unseen").map(|_| INODE)),
        Kind::new("LOOKUP of a known inode", "file", |s, _| s.lookup(ROOT, b"file").map(|_| NOTHING)),
        Kind::new("READLINK", "link", |s, g| expect(s.readlink(g.link)? == b"target", NOTHING)),
        Kind::new("UNLINK", "victim", |s, _| s.unlink(ROOT, b"victim").map(|()| NOTHING))
            .changes(|share| fs::remove_file(share.join("victim"))),
        Kind::new("RMDIR", "empty", |s, _| s.rmdir(ROOT, b"empty").map(|()| NOTHING))
            .changes(|share| fs::remove_dir(share.join("empty"))),
        Kind::new("RENAME", "victim", |s, g| s.rename((ROOT, b"victim"), (g.dir, b"new")).map(|()| NOTHING))
            .changes(|share| fs::rename(share.join("victim"), share.join("dir/new"))),
        Kind::new("RENAME over a file", "victim", |s, g| {
            s.rename((g.dir, b"inner"), (ROOT, b"victim")).map(|()| NOTHING)
        })
        .changes(|share| fs::rename(share.join("dir/inner"), share.join("victim"))),
        Kind::new("RENAME2 that exchanges", "victim", |s, g| {
            s.rename2((g.dir, b"inner"), (ROOT, b"victim"), libc::RENAME_EXCHANGE).map(|()| NOTHING)
        })
        .changes(|share| {
            let (inner, victim) = (share.join("dir/inner"), share.join("victim"));
            Ok(rustix::fs::renameat_with(CWD, inner, CWD, victim, RenameFlags::EXCHANGE)?)
        }),
        Kind::new("LINK", "file", |s, g| s.link(g.file, g.dir, b"new").map(|_| NOTHING)).changes(|share| {
            regular(share, "file").and_then(|_| fs::hard_link(share.join("file"), share.join("dir/new")))
        }),
        Kind::new("READDIR", "dir/inner", |s, g| {
            let entries = s.readdir_once(g.dir, g.dir_fh, 0, 4096, false)?;
            expect(are_names_of_dir(entries.iter().map(|entry| &entry.name[..])), NOTHING)
        }),
        Kind::new("READDIRPLUS", "dir/inner", |s, g| {
            let entries = s.readdir_once(g.dir, g.dir_fh, 0, 4096, true)?;
            let looked_up = entries.iter().filter(|entry| !matches!(&entry.name[..], b"." | b".."));
            let looked_up = looked_up.filter(|entry| entry.entry.is_some_and(|entry| entry.nodeid.get() != 0)).count();
            let gain = Gain { inodes: looked_up as i64, ..NOTHING };
            expect(are_names_of_dir(entries.iter().map(|entry| &entry.name[..])), gain)
        }),
        Kind::new("OPENDIR", "dir", |s, g| s.opendir(g.dir).map(|_| FILE)),
        Kind::new("RELEASEDIR", "dir", |s, g| s.releasedir(g.dir, g.dir_fh).map(|()| Gain { files: -1, ..NOTHING })),
        Kind::new("FSYNCDIR", "dir", |s, g| {
            let arg = FsyncIn { fh: g.dir_fh.into(), fsync_flags: 0.into(), padding: 0.into() };
            s.request(Opcode::Fsyncdir as u32, g.dir, &[arg.as_bytes()], 0).map(|_| NOTHING)
        })
        .needs(&[libc::SYS_fsync]),
        Kind::new("STATFS", "file", |s, g| s.statfs(g.file).map(|_| NOTHING)),
        Kind::new("SYNCFS", "file", |s, g| s.syncfs(g.file).map(|()| NOTHING)).needs(&[libc::SYS_syncfs]),
        Kind::new("FORGET", "victim", |s, g| s.forget(g.link, 1).map(|()| Gain { inodes: -1, ..NOTHING })),
    ]
}

fn creations() -> Vec<Kind> {
    vec![
        Kind::new("CREATE", "new", |s, _| s.create(ROOT, b"new", RDWR, 0o644).map(|_| OPEN_INODE))
            .changes(|share| created(share, 0)),
        Kind::new("CREATE with O_EXCL", "new", |s, _| {
            s.create(ROOT, b"new", RDWR | libc::O_EXCL as u32, 0o644).map(|_| OPEN_INODE)
        })
        .changes(|share| created(share, 0)),
        Kind::new("CREATE of a file that exists", "unseen", |s, _| {
            s.create(ROOT, b"unseen", RDWR, 0o644).map(|_| OPEN_INODE)
        })
        .changes(|share| created_in(share, "unseen", 0).or_else(unless_it_exists))
        .refused(&[Errno::STALE]),
        Kind::new("CREATE by another user", "dir/new", |s, g| {
            as_user(s, |s| s.create(g.dir, b"new", RDWR, 0o644).map(|_| OPEN_INODE))
        })
        .changes(|share| created_in(share, "dir/new", USER)),
        Kind::new("CREATE with a label", "new", |s, _| {
            let arg = CreateIn { flags: RDWR.into(), mode: 0o644.into(), umask: 0.into(), open_flags: 0.into() };
            labelled(s, Opcode::Create, arg.as_bytes()).map(|()| OPEN_INODE)
        })
        .changes(|share| created(share, 0).and_then(|()| label(share)))
        .raced(&[|share| created(share, 0)]),
        Kind::new("MKDIR", "new", |s, _| s.mkdir(ROOT, b"new", 0o755).map(|_| INODE)).changes(made_directory),
        Kind::new("MKDIR with a label", "new", |s, _| {
            let arg = MkdirIn { mode: 0o755.into(), umask: 0.into() };
            labelled(s, Opcode::Mkdir, arg.as_bytes()).map(|()| INODE)
        })
        .changes(|share| made_directory(share).and_then(|()| label(share)))
        .raced(&[made_directory]),
        Kind::new("MKDIR by another user", "dir/new", |s, g| {
            as_user(s, |s| s.mkdir(g.dir, b"new", 0o755).map(|_| INODE))
        })
        .changes(|share| {
            let new = share.join("dir/new");
            fs::create_dir(&new)?;
            fs::set_permissions(&new, Permissions::from_mode(0o755))?;
            std::os::unix::fs::chown(new, Some(USER), Some(USER))
        }),
        Kind::new("MKNOD of a file", "new", |s, _| s.mknod(ROOT, b"new", libc::S_IFREG | 0o644, 0).map(|_| INODE))
            .changes(|share| created(share, 0)),
        Kind::new("MKNOD of a FIFO", "new", |s, _| s.mknod(ROOT, b"new", libc::S_IFIFO | 0o600, 0).map(|_| INODE))
            .changes(|share| {
                Ok(rustix::fs::mknodat(CWD, share.join("new"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
            }),
        Kind::new("SYMLINK", "new", |s, _| s.symlink(ROOT, b"new", b"target").map(|_| INODE))
            .changes(|share| symlink("target", share.join("new"))),
        Kind::new("TMPFILE", "dir", |s, g| s.tmpfile(g.dir, RDWR, 0o600).map(|_| OPEN_INODE)),
    ]
}

fn files() -> Vec<Kind> {
    vec![
        Kind::new("OPEN", "file", |s, g| s.open(g.file, RDWR).map(|_| FILE)),
        Kind::new("OPEN with O_TRUNC", "file", |s, g| s.open(g.file, RDWR | libc::O_TRUNC as u32).map(|_| FILE))
            .changes(|share| regular(share, "file")?.set_len(0)),
        Kind::new("READ", "file", |s, g| expect(s.read(g.file, g.file_fh, 0, 8192)? == CONTENT, NOTHING)),
        // A WRITE that answers less than it was sent is one that succeeded in part.
        Kind::new("WRITE", "file", |s, g| expect(s.write(g.file, g.file_fh, 100, &[b'w'; 6000])? == 6000, NOTHING))
            .changes(|share| regular(share, "file")?.write_all_at(&[b'w'; 6000], 100)),
        Kind::new("RELEASE", "file", |s, g| s.release(g.file, g.file_fh).map(|()| Gain { files: -1, ..NOTHING })),
        Kind::new("RELEASE of a file with locks", "file", |s, g| {
            s.release(g.file, g.file_fh).map(|()| Gain { files: -1, posix_locks: -1, ..NOTHING })
        })
        .after(|s, g| s.setlk(g.file, g.file_fh, 1, WRLCK, false)),
        Kind::new("FLUSH", "file", |s, g| s.flush(g.file, g.file_fh).map(|()| NOTHING)).needs(&[libc::SYS_close]),
        Kind::new("FLUSH by an owner of locks", "file", |s, g| {
            let arg = FlushIn { fh: g.file_fh.into(), unused: 0.into(), padding: 0.into(), lock_owner: 1.into() };
            let flushed = s.request(Opcode::Flush as u32, g.file, &[arg.as_bytes()], 0);
            flushed.map(|_| Gain { posix_locks: -1, ..NOTHING })
        })
        .after(|s, g| s.setlk(g.file, g.file_fh, 1, WRLCK, false)),
        Kind::new("FSYNC", "file", |s, g| s.fsync(g.file, g.file_fh).map(|()| NOTHING)).needs(&[libc::SYS_fsync]),
        Kind::new("FSYNC of data", "file", |s, g| {
            let arg = FsyncIn { fh: g.file_fh.into(), fsync_flags: FSYNC_FDATASYNC.into(), padding: 0.into() };
            s.request(Opcode::Fsync as u32, g.file, &[arg.as_bytes()], 0).map(|_| NOTHING)
        })
        .needs(&[libc::SYS_fdatasync]),
        Kind::new("FALLOCATE", "file", |s, g| s.fallocate(g.file, g.file_fh, 0, 10_000, 0).map(|()| NOTHING))
            .changes(|share| regular(share, "file")?.set_len(10_000)),
        Kind::new("LSEEK", "file", |s, g| expect(s.lseek(g.file, g.file_fh, 0, libc::SEEK_DATA as u32)? == 0, NOTHING)),
        Kind::new("COPY_FILE_RANGE", "file", |s, g| {
            let copied = s.copy_file_range((g.file, g.file_fh, 0), (g.copy, g.copy_fh, 0), CONTENT.len() as u64)?;
            expect(copied == CONTENT.len() as u64, NOTHING)
        })
        .changes(|share| regular(share, "copy")?.write_all_at(CONTENT, 0)),
        Kind::new("IOCTL that reads flags", "file", |s, g| {
            const GETFLAGS: u32 = 0x8008_6601;
            let arg =
                IoctlIn { fh: g.file_fh.into(), cmd: GETFLAGS.into(), out_size: 8.into(), ..IoctlIn::new_zeroed() };
            s.request(Opcode::Ioctl as u32, g.file, &[arg.as_bytes()], 64).map(|_| NOTHING)
        })
        .refused(&[Errno::NOTTY, Errno::OPNOTSUPP, Errno::NOSYS]),
    ]
}

fn attributes() -> Vec<Kind> {
    let len = CONTENT.len() as u64;
    assert_eq!(len, 5000);
    vec![
        Kind::new("GETATTR", "file", |s, g| expect(s.getattr(g.file, None)?.size.get() == 5000, NOTHING)),
        Kind::new("GETATTR of a handle", "file", |s, g| {
            expect(s.getattr(g.file, Some(g.file_fh))?.size.get() == 5000, NOTHING)
        }),
        Kind::new("STATX", "file", |s, g| expect(s.statx(g.file)?.stat.size.get() == 5000, NOTHING)),
        Kind::new("ACCESS", "file", |s, g| s.access(g.file, 4).map(|()| NOTHING)),
        Kind::new("SETATTR of a mode", "file", |s, g| {
            set(s, g.file, SetattrValid::MODE, SetattrIn { mode: 0o600.into(), ..SetattrIn::new_zeroed() })
        })
        .changes(changed_mode),
        Kind::new("SETATTR of owners", "file", |s, g| {
            let arg = SetattrIn { uid: USER.into(), gid: USER.into(), ..SetattrIn::new_zeroed() };
            set(s, g.file, SetattrValid::UID | SetattrValid::GID, arg)
        })
        .changes(changed_owner),
        Kind::new("SETATTR of a size", "file", |s, g| {
            set(s, g.file, SetattrValid::SIZE, SetattrIn { size: 100.into(), ..SetattrIn::new_zeroed() })
        })
        .changes(changed_size),
        Kind::new("SETATTR of a size by a handle", "file", |s, g| {
            let arg = SetattrIn { size: 100.into(), fh: g.file_fh.into(), ..SetattrIn::new_zeroed() };
            set(s, g.file, SetattrValid::SIZE | SetattrValid::FH, arg)
        })
        .changes(changed_size),
        Kind::new("SETATTR of times", "file", |s, g| {
            let arg = SetattrIn { atime: 1000.into(), mtime: 2000.into(), ..SetattrIn::new_zeroed() };
            set(s, g.file, SetattrValid::ATIME | SetattrValid::MTIME, arg)
        })
        .changes(|share| {
            let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
            let times = Timestamps { last_access: time(1000), last_modification: time(2000) };
            Ok(rustix::fs::utimensat(CWD, share.join("file"), &times, AtFlags::SYMLINK_NOFOLLOW)?)
        }),
        // One system call for each: where a later one fails, the earlier ones are done, in the order in which a chown
        // clears no bit that a chmod has set.
        Kind::new("SETATTR of several attributes", "file", |s, g| {
            let all = SetattrIn {
                mode: 0o600.into(),
                uid: USER.into(),
                gid: USER.into(),
                size: 100.into(),
                ..SetattrIn::new_zeroed()
            };
            set(s, g.file, SetattrValid::MODE | SetattrValid::UID | SetattrValid::GID | SetattrValid::SIZE, all)
        })
        .changes(|share| [changed_mode, changed_owner, changed_size].iter().try_for_each(|change| change(share)))
        .halves(&[changed_mode, changed_owner, |share| changed_mode(share).and_then(|()| changed_owner(share))]),
        Kind::new("GETXATTR", "file", |s, g| {
            expect(s.getxattr(g.file, ATTRIBUTE.0.as_bytes(), 100)? == ATTRIBUTE.1, NOTHING)
        }),
        Kind::new("LISTXATTR", "file", |s, g| expect(s.listxattr(g.file, 1000)? == b"user.name\0", NOTHING)),
        Kind::new("SETXATTR", "file", |s, g| s.setxattr(g.file, b"user.new", b"new", 0).map(|()| NOTHING)).changes(
            |share| Ok(rustix::fs::fsetxattr(regular(share, "file")?, "user.new", b"new", XattrFlags::empty())?),
        ),
        Kind::new("REMOVEXATTR", "file", |s, g| s.removexattr(g.file, b"user.name").map(|()| NOTHING))
            .changes(|share| Ok(rustix::fs::fremovexattr(regular(share, "file")?, "user.name")?)),
    ]
}

fn locks() -> Vec<Kind> {
    const LOCK: Gain = Gain { posix_locks: 1, ..NOTHING };
    vec![
        Kind::new("GETLK", "file", |s, g| expect(s.getlk(g.file, g.file_fh, 2, WRLCK)?.type_.get() == WRLCK, NOTHING))
            .after(|s, g| s.setlk(g.file, g.file_fh, 1, WRLCK, false)),
        Kind::new("SETLK", "file", |s, g| s.setlk(g.file, g.file_fh, 1, WRLCK, false).map(|()| LOCK)),
        Kind::new("SETLKW", "file", |s, g| s.setlk(g.file, g.file_fh, 1, WRLCK, true).map(|()| LOCK)),
        Kind::new("SETLKW that waits", "file", |s, g| s.setlk(g.file, g.file_fh, 2, WRLCK, true).map(|()| LOCK))
            .after(|s, g| s.setlk(g.file, g.file_fh, 1, WRLCK, false))
            .waits(),
        Kind::new("SETLK that unlocks", "file", |s, g| {
            let unlocked = s.setlk(g.file, g.file_fh, 1, libc::F_UNLCK as u32, false);
            unlocked.map(|()| Gain { posix_locks: -1, ..NOTHING })
        })
        .after(|s, g| s.setlk(g.file, g.file_fh, 1, WRLCK, false)),
        Kind::new("SETLK of flock(2)", "file", |s, g| {
            let lk = FileLock { type_: WRLCK.into(), end: (i64::MAX as u64).into(), ..FileLock::new_zeroed() };
            let arg =
                LkIn { fh: g.file_fh.into(), owner: 3.into(), lk, lk_flags: LK_FLOCK.into(), ..LkIn::new_zeroed() };
            let locked = s.request(Opcode::Setlk as u32, g.file, &[arg.as_bytes()], 0);
            locked.map(|_| Gain { flocks: 1, ..NOTHING })
        })
        .needs(&[libc::SYS_flock]),
    ]
}

/// `gain` where the reply is `right`; a reply that is not is broken.
fn expect(right: bool, gain: Gain) -> Answer<Gain> {
    if right { Ok(gain) } else { Err(Failure::Broken(anyhow::anyhow!("a success with a wrong answer"))) }
}

/// Whether these are names of `dir`; a batch may end early, and none at all would be the end.
fn are_names_of_dir<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut is_empty = true;
    let are_known = names.all(|name| {
        is_empty = false;
        matches!(name, b"." | b".." | b"inner" | b"other")
    });
    are_known && !is_empty
}

fn set(s: &mut Guest, nodeid: u64, valid: SetattrValid, arg: SetattrIn) -> Answer<Gain> {
    s.setattr(nodeid, valid, &arg).map(|_| NOTHING)
}

fn as_user(s: &mut Guest, send: impl FnOnce(&mut Guest) -> Answer<Gain>) -> Answer<Gain> {
    (s.uid, s.gid) = (USER, USER);
    let answer = send(s);
    (s.uid, s.gid) = (0, 0);
    answer
}

/// Creates `new` in the root with [`LABEL`]: `fuse_ext_header`, `fuse_secctx`, name and value follow the arguments.
fn labelled(s: &mut Guest, opcode: Opcode, arg: &[u8]) -> Answer<()> {
    let (name, value) = LABEL;
    let text = [name.as_bytes(), b"\0", value].concat();
    let len = (16 + text.len()).next_multiple_of(8);
    let mut extension = [len as u32, 1, value.len() as u32, 0].map(u32::to_le_bytes).concat();
    extension.extend(text);
    extension.resize(len, 0);
    let body = [arg, b"new\0", &extension].concat();
    let mut header = s.header(opcode as u32, ROOT, body.len());
    header.total_extlen = (len as u16 / 8).into();
    let completion = s.exchange.exchange(&[header.as_bytes(), &body], 256).map_err(Failure::Broken)?;
    check_reply(&completion, header.unique.get()).map(drop)
}

/// The regular file of that name, which is no link.
fn regular(share: &Path, name: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(share.join(name))
}

fn created(share: &Path, owner: u32) -> io::Result<()> {
    created_in(share, "new", owner)
}

/// As `O_CREAT` with `O_EXCL` does it.
fn created_in(share: &Path, name: &str, owner: u32) -> io::Result<()> {
    let path = share.join(name);
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    write(&path, b"")?;
    std::os::unix::fs::chown(path, Some(owner), Some(owner))
}

fn unless_it_exists(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

fn made_directory(share: &Path) -> io::Result<()> {
    fs::create_dir(share.join("new"))?;
    fs::set_permissions(share.join("new"), Permissions::from_mode(0o755))
}

fn label(share: &Path) -> io::Result<()> {
    Ok(rustix::fs::setxattr(share.join("new"), LABEL.0, LABEL.1, XattrFlags::empty())?)
}

fn changed_mode(share: &Path) -> io::Result<()> {
    regular(share, "file")?.set_permissions(Permissions::from_mode(0o600))
}

fn changed_owner(share: &Path) -> io::Result<()> {
    std::os::unix::fs::fchown(regular(share, "file")?, Some(USER), Some(USER))
}

fn changed_size(share: &Path) -> io::Result<()> {
    regular(share, "file")?.set_len(100)
}
