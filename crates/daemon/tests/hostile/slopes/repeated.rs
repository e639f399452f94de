//! Requests that leave nothing behind, each repeated thousands of times.

use transom_wire::{
    Opcode,
    ops::{
        access::AccessIn,
        copy_file_range::CopyFileRangeIn,
        fallocate::FallocateIn,
        flush::FlushIn,
        forget::{BatchForgetIn, ForgetIn, ForgetOne},
        fsync::FsyncIn,
        getattr::GetattrIn,
        interrupt::InterruptIn,
        link::LinkIn,
        lk::LkIn,
        lseek::LseekIn,
        mkdir::MkdirIn,
        open::OpenIn,
        read::ReadIn,
        release::ReleaseIn,
        rename::RenameIn,
        setattr::{SetattrIn, SetattrValid},
        statx::StatxIn,
        write::WriteIn,
        xattr::{GetxattrIn, SetxattrIn},
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    driver::{Request, send_all},
    scaled,
    usage::assert_flat,
};
use crate::host::Daemon;

/// Times that each request is sent before the first look, and three times as many before the second.
const COUNT: u64 = 1500;

/// A file that is open, by its numbers.
#[derive(Clone, Copy)]
struct File {
    nodeid: u64,
    fh: u64,
}

/// One repetition of something: its name, and the requests of the `n`-th time. They succeed, unless the name says that
/// they are for something absent, unknown or short.
type Row = (&'static str, fn(File, u64) -> Vec<Request>);

fn filled<T: FromZeros + IntoBytes + zerocopy::Immutable>(fill: impl FnOnce(&mut T)) -> Vec<u8> {
    let mut arg = T::new_zeroed();
    fill(&mut arg);
    arg.as_bytes().to_vec()
}

fn on_root(opcode: Opcode, parts: &[&[u8]]) -> Request {
    Request::new(opcode, 1, &parts.concat())
}

fn on_file(opcode: Opcode, file: File, body: &[u8]) -> Vec<Request> {
    vec![Request::new(opcode, file.nodeid, body)]
}

const ROWS: &[Row] = &[
    ("LOOKUP of one name", |_, _| vec![on_root(Opcode::Lookup, &[b"file\0"])]),
    ("LOOKUP of absent names", |_, n| vec![on_root(Opcode::Lookup, &[format!("absent-{n}\0").as_bytes()])]),
    ("GETATTR", |file, _| on_file(Opcode::Getattr, file, &filled::<GetattrIn>(|_| ()))),
    ("GETATTR of unknown nodes", |_, n| vec![Request::new(Opcode::Getattr, 1 << 40 | n, &[0; 16])]),
    ("STATX", |file, _| on_file(Opcode::Statx, file, &filled::<StatxIn>(|arg| arg.sx_mask = 0xfff.into()))),
    ("SETATTR", |file, n| {
        let arg = filled::<SetattrIn>(|arg| {
            arg.valid = SetattrValid::SIZE.bits().into();
            arg.size = (n % 100_000).into();
        });
        on_file(Opcode::Setattr, file, &arg)
    }),
    ("STATFS", |file, _| on_file(Opcode::Statfs, file, &[])),
    ("ACCESS", |file, _| on_file(Opcode::Access, file, &filled::<AccessIn>(|arg| arg.mask = 4.into()))),
    ("READ", |file, _| {
        let arg = filled::<ReadIn>(|arg| {
            arg.fh = file.fh.into();
            arg.size = 65_536.into();
        });
        vec![Request { room: Some(65_536), ..Request::new(Opcode::Read, file.nodeid, &arg) }]
    }),
    ("WRITE", |file, _| {
        let arg = filled::<WriteIn>(|arg| {
            arg.fh = file.fh.into();
            arg.size = 4096.into();
        });
        on_file(Opcode::Write, file, &[&*arg, &[7; 4096]].concat())
    }),
    ("FLUSH", |file, n| {
        let arg = filled::<FlushIn>(|arg| {
            arg.fh = file.fh.into();
            arg.lock_owner = n.into();
        });
        on_file(Opcode::Flush, file, &arg)
    }),
    ("FSYNC of unknown handles", |file, n| {
        on_file(Opcode::Fsync, file, &filled::<FsyncIn>(|arg| arg.fh = (1 << 40 | n).into()))
    }),
    ("LSEEK", |file, _| {
        let arg = filled::<LseekIn>(|arg| {
            arg.fh = file.fh.into();
            arg.whence = (libc::SEEK_DATA as u32).into();
        });
        on_file(Opcode::Lseek, file, &arg)
    }),
    ("FALLOCATE", |file, _| {
        let arg = filled::<FallocateIn>(|arg| {
            arg.fh = file.fh.into();
            arg.length = 4096.into();
        });
        on_file(Opcode::Fallocate, file, &arg)
    }),
    ("COPY_FILE_RANGE", |file, _| {
        let arg = filled::<CopyFileRangeIn>(|arg| {
            (arg.fh_in, arg.fh_out) = (file.fh.into(), file.fh.into());
            (arg.nodeid_out, arg.off_out, arg.len) = (file.nodeid.into(), 65_536.into(), 4096.into());
        });
        on_file(Opcode::CopyFileRange, file, &arg)
    }),
    ("SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR", |file, n| {
        let set = filled::<SetxattrIn>(|arg| arg.size = 8.into());
        let get = filled::<GetxattrIn>(|arg| arg.size = 200.into());
        let (name, value) = (b"user.slope\0", n.to_le_bytes());
        [
            on_file(Opcode::Setxattr, file, &[&*set, name, &value].concat()),
            on_file(Opcode::Getxattr, file, &[&*get, name].concat()),
            on_file(Opcode::Listxattr, file, &get),
            on_file(Opcode::Removexattr, file, name),
        ]
        .into_iter()
        .flatten()
        .collect()
    }),
    ("MKDIR and RMDIR", |_, _| {
        let arg = filled::<MkdirIn>(|arg| arg.mode = 0o755.into());
        vec![on_root(Opcode::Mkdir, &[&arg, b"directory\0"]), on_root(Opcode::Rmdir, &[b"directory\0"])]
    }),
    ("RENAME to and fro", |_, _| {
        let arg = filled::<RenameIn>(|arg| arg.newdir = 1.into());
        vec![on_root(Opcode::Rename, &[&arg, b"file\0other\0"]), on_root(Opcode::Rename, &[&arg, b"other\0file\0"])]
    }),
    ("LINK and UNLINK", |file, _| {
        let arg = filled::<LinkIn>(|arg| arg.oldnodeid = file.nodeid.into());
        vec![on_root(Opcode::Link, &[&arg, b"link\0"]), on_root(Opcode::Unlink, &[b"link\0"])]
    }),
    ("OPEN of unknown nodes", |_, n| vec![Request::new(Opcode::Open, 1 << 40 | n, &filled::<OpenIn>(|_| ()))]),
    ("RELEASE of unknown handles", |file, n| {
        on_file(Opcode::Release, file, &filled::<ReleaseIn>(|arg| arg.fh = (1 << 40 | n).into()))
    }),
    ("READDIR of unknown handles", |_, n| {
        let arg = filled::<ReadIn>(|arg| {
            arg.fh = (1 << 40 | n).into();
            arg.size = 4096.into();
        });
        vec![on_root(Opcode::Readdir, &[&arg])]
    }),
    ("GETLK", |file, n| {
        let arg = filled::<LkIn>(|arg| {
            arg.fh = file.fh.into();
            arg.owner = n.into();
            arg.lk.type_ = (libc::F_WRLCK as u32).into();
        });
        on_file(Opcode::Getlk, file, &arg)
    }),
    ("FORGET of unknown nodes", |_, n| {
        vec![Request::new(Opcode::Forget, 1 << 40 | n, &filled::<ForgetIn>(|arg| arg.nlookup = 1.into()))]
    }),
    ("BATCH_FORGET of unknown nodes", |_, n| {
        let head = filled::<BatchForgetIn>(|arg| arg.count = 1.into());
        let one = filled::<ForgetOne>(|one| one.nodeid = (1 << 40 | n).into());
        vec![Request::new(Opcode::BatchForget, 0, &[head, one].concat())]
    }),
    ("INTERRUPT of unknown requests", |_, n| {
        let arg = filled::<InterruptIn>(|arg| arg.unique = (1 << 40 | n << 1).into());
        vec![Request::new(Opcode::Interrupt, 0, &arg)]
    }),
    ("requests too short for their arguments", |file, _| on_file(Opcode::Setattr, file, &[0; 8])),
];

#[test]
fn a_request_that_leaves_nothing_takes_nothing_however_often_it_is_repeated() {
    // The directories that are not forgotten fill the table of inodes at once.
    let daemon = Daemon::executable_with(&["--xattr", "--birth-times", "--posix-lock", "--inode-limit", "1000"]);
    let (_front_end, mut session) = daemon.session();
    let created = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let file = File { nodeid: created.entry.nodeid.get(), fh: created.open.fh.get() };
    session.write(file.nodeid, file.fh, 0, &[1; 65_536]).unwrap();
    let mut failing = Vec::new();
    for (what, requests) in ROWS {
        let mut successes = 0;
        assert_flat(&daemon, what, scaled(COUNT), |count| {
            successes += send_all(&mut session, (0..count).flat_map(|n| requests(file, n)));
        });
        let has_no_object = ["absent", "unknown", "short"].iter().any(|word| what.contains(word));
        if successes == 0 && !has_no_object {
            failing.push(what);
        }
    }
    assert!(failing.is_empty(), "{failing:?} never succeed");
}

#[test]
fn sessions_that_begin_and_end_leave_nothing() {
    let daemon = Daemon::executable_with(&["--posix-lock", "--flock"]);
    let (_front_end, mut session) = daemon.session();
    assert_flat(&daemon, "INIT, CREATE, SETLK, DESTROY", scaled(400), |count| {
        for _ in 0..count {
            session.init(transom_wire::ops::init::InitFlags::all()).unwrap();
            let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
            let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
            session.setlk(nodeid, fh, 1, libc::F_WRLCK as u32, false).unwrap();
            session.opendir(1).unwrap();
            session.destroy().unwrap();
        }
    });
    for gauge in ["transom_inodes", "transom_open_files", "transom_lock_owners"] {
        assert_eq!(daemon.metric(gauge), 0, "{gauge}");
    }
}

#[test]
fn front_ends_that_come_and_go_leave_nothing() {
    let daemon = Daemon::executable_with(&["--posix-lock", "--flock"]);
    assert_flat(&daemon, "connections", scaled(20), |count| {
        for _ in 0..count {
            let (_front_end, mut session) = daemon.session();
            session.opendir(1).unwrap();
            session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
        }
    });
}
