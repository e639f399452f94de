//! Requests that leave nothing behind, to be repeated thousands of times by [`super::repeated`].

use transom_wire::{
    Opcode,
    ops::{
        access::AccessIn,
        bmap::BmapIn,
        copy_file_range::CopyFileRangeIn,
        fallocate::FallocateIn,
        flush::FlushIn,
        forget::{BatchForgetIn, ForgetIn, ForgetOne},
        fsync::FsyncIn,
        getattr::GetattrIn,
        interrupt::InterruptIn,
        ioctl::IoctlIn,
        link::LinkIn,
        lk::LkIn,
        lseek::LseekIn,
        mkdir::MkdirIn,
        open::OpenIn,
        poll::PollIn,
        read::ReadIn,
        release::ReleaseIn,
        removemapping::RemovemappingIn,
        rename::{Rename2In, RenameIn},
        setattr::{SetattrIn, SetattrValid},
        setupmapping::SetupmappingIn,
        statx::StatxIn,
        write::WriteIn,
        xattr::{GetxattrIn, SetxattrIn},
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::driver::Request;

/// What requests are about, by its numbers: a file that is open, and others.
#[derive(Clone, Copy)]
pub(super) struct File {
    pub(super) nodeid: u64,
    pub(super) fh: u64,
    /// A symbolic link.
    pub(super) link: u64,
    /// An open handle of the root directory.
    pub(super) dir_fh: u64,
}

/// One repetition of something: its name, and the requests of the `n`-th time. They succeed, unless the name says that
/// they are for something absent, unknown or short.
pub(super) type Row = (&'static str, fn(File, u64) -> Vec<Request>);

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

pub(super) const ROWS: &[Row] = &[
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
    ("FSYNC", |file, _| on_file(Opcode::Fsync, file, &filled::<FsyncIn>(|arg| arg.fh = file.fh.into()))),
    ("FSYNCDIR", |file, _| vec![on_root(Opcode::Fsyncdir, &[&filled::<FsyncIn>(|arg| arg.fh = file.dir_fh.into())])]),
    ("READLINK", |file, _| vec![Request::new(Opcode::Readlink, file.link, &[])]),
    ("RENAME2 with an exchange", |_, _| {
        let arg = filled::<Rename2In>(|arg| {
            arg.newdir = 1.into();
            arg.flags = libc::RENAME_EXCHANGE.into();
        });
        vec![on_root(Opcode::Rename2, &[&arg, b"file\0second\0"])]
    }),
    ("COPY_FILE_RANGE_64", |file, _| {
        let arg = filled::<CopyFileRangeIn>(|arg| {
            (arg.fh_in, arg.fh_out) = (file.fh.into(), file.fh.into());
            (arg.nodeid_out, arg.off_out, arg.len) = (file.nodeid.into(), 65_536.into(), 4096.into());
        });
        on_file(Opcode::CopyFileRange64, file, &arg)
    }),
    ("IOCTL with a number that is not served, unknown to the host", |file, n| {
        let arg = filled::<IoctlIn>(|arg| {
            arg.fh = file.fh.into();
            arg.cmd = (n as u32).into();
        });
        on_file(Opcode::Ioctl, file, &arg)
    }),
    ("READDIR and READDIRPLUS from the start", |file, _| {
        let arg = filled::<ReadIn>(|arg| {
            arg.fh = file.dir_fh.into();
            arg.size = 4096.into();
        });
        let of = |opcode| Request { room: Some(4096), ..on_root(opcode, &[&arg]) };
        vec![of(Opcode::Readdir), of(Opcode::Readdirplus)]
    }),
    ("RELEASEDIR of unknown handles", |_, n| {
        vec![on_root(Opcode::Releasedir, &[&filled::<ReleaseIn>(|arg| arg.fh = (1 << 40 | n).into())])]
    }),
    ("SETLK and its end", |file, _| {
        let of = |kind: i32| {
            let arg = filled::<LkIn>(|arg| {
                arg.fh = file.fh.into();
                arg.owner = 1.into();
                arg.lk.type_ = (kind as u32).into();
            });
            Request::new(Opcode::Setlk, file.nodeid, &arg)
        };
        vec![of(libc::F_WRLCK), of(libc::F_UNLCK)]
    }),
    ("SETLKW of one owner", |file, _| {
        let arg = filled::<LkIn>(|arg| {
            arg.fh = file.fh.into();
            arg.owner = 1.into();
            arg.lk.type_ = (libc::F_WRLCK as u32).into();
        });
        on_file(Opcode::Setlkw, file, &arg)
    }),
    ("BMAP, unknown to the host", |file, _| on_file(Opcode::Bmap, file, &filled::<BmapIn>(|_| ()))),
    ("POLL, unknown to the host", |file, _| {
        on_file(Opcode::Poll, file, &filled::<PollIn>(|arg| arg.fh = file.fh.into()))
    }),
    ("SETUPMAPPING and REMOVEMAPPING of an absent window", |file, _| {
        let setup = filled::<SetupmappingIn>(|arg| (arg.fh, arg.len) = (file.fh.into(), (2 << 20).into()));
        let remove = filled::<RemovemappingIn>(|_| ());
        vec![
            Request::new(Opcode::Setupmapping, file.nodeid, &setup),
            Request::new(Opcode::Removemapping, file.nodeid, &remove),
        ]
    }),
    ("requests too short for their arguments", |file, _| on_file(Opcode::Setattr, file, &[0; 8])),
];
