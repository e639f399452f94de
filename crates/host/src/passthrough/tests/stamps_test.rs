//! Stamps: which slots each operation raises. What is expected is written from POSIX and the manual pages: who gets a
//! new time, link count, size, mode, content or name.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use rustix::fs::OFlags;
use tempfile::TempDir;
use transom_wire::{
    Handle, NodeId, Opcode,
    agent::{AGENT_GID, EXCHANGE_LEN},
    ops::{
        copy_file_range::CopyFileRangeIn,
        fallocate::FallocateIn,
        init::InitFlags,
        ioctl::{IoctlIn, IoctlOut},
        link::LinkIn,
        mknod::MknodIn,
        rename::RenameIn,
        setattr::SetattrValid,
        write::{WriteIn, WriteOut},
        xattr::SetxattrIn,
    },
    own_changes,
};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::{direct_test::strict_dir, guest::Guest, is_root, replayed_test::exchange_by};
use crate::{
    Errno,
    group::{Group, GroupLocation, TableFile},
    passthrough::{Config, Passthrough},
    sysfd::ProcFds,
};

/// Every inode of the share, by a path of each: the oracle for slots.
const PATHS: [&str; 8] = ["", "d", "d/a", "d/b", "d/sub", "e", "e/c", "f"];

/// A guest of a daemon in a group, and a peer that sees the table.
struct Setting {
    share: TempDir,
    _place: TempDir,
    peer: Group,
    guest: Guest,
}

fn setting() -> Setting {
    setting_with(Config { xattr: true, ..Config::default() })
}

fn setting_with(config: Config) -> Setting {
    setting_in(tempfile::tempdir().unwrap(), config)
}

fn setting_in(share: TempDir, config: Config) -> Setting {
    for directory in ["d", "d/sub", "e"] {
        fs::create_dir(share.path().join(directory)).unwrap();
    }
    for file in ["d/a", "d/b", "e/c", "f"] {
        fs::write(share.path().join(file), "content").unwrap();
    }
    let inos = PATHS.map(|path| share.path().join(path).symlink_metadata().unwrap().ino());
    // Two inodes may share a slot; with other keys they do not.
    let (place, peer, group) = loop {
        let place = tempfile::tempdir().unwrap();
        // Other tests of this process change its umask.
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let join = || {
            let file = TableFile::open(&GroupLocation::Directory(place.path().to_owned()), None).unwrap();
            Group::join(&file, fs::File::open(share.path()).unwrap(), &ProcFds::open().unwrap()).unwrap()
        };
        let (peer, group) = (join(), join());
        if BTreeSet::from(inos.map(|ino| peer.slot(ino))).len() == PATHS.len() {
            break (place, peer, group);
        }
    };
    let fs = Passthrough::open(share.path(), config).unwrap().with_group(group);
    rustix::process::umask(rustix::fs::Mode::empty());
    let guest = Guest::begin(fs, InitFlags::all()).unwrap();
    Setting { share, _place: place, peer, guest }
}

impl Setting {
    fn ino(&self, path: &str) -> u64 {
        self.share.path().join(path).symlink_metadata().unwrap().ino()
    }

    fn node(&self, path: &str) -> NodeId {
        if path.is_empty() { NodeId::ROOT } else { self.guest.walk(path).unwrap() }
    }

    fn open(&self, path: &str) -> Handle {
        self.guest.open(self.node(path), OFlags::RDWR).unwrap()
    }

    /// Runs a request, and returns its result and the paths whose slots it raised.
    fn raised<T>(
        &self,
        request: impl FnOnce(&Guest) -> Result<T, Errno>,
    ) -> (Result<T, Errno>, BTreeSet<&'static str>) {
        // Some paths may be gone afterwards.
        let inos: Vec<_> = PATHS.iter().map(|path| (*path, self.ino(path))).collect();
        let before = self.peer.now();
        let outcome = request(&self.guest);
        assert_eq!(self.peer.now().epoch, before.epoch, "the epoch is for what cannot be known");
        let is_raised = |ino: u64| !self.peer.is_valid(ino, before);
        (outcome, inos.into_iter().filter(|(_, ino)| is_raised(*ino)).map(|(path, _)| path).collect())
    }
}

/// A request, and the paths of the inodes that it changes.
type Case = (Opcode, &'static [&'static str], fn(&Setting) -> Outcome);
type Outcome = (Result<(), Errno>, BTreeSet<&'static str>);

fn strings(names: &[&str]) -> Vec<u8> {
    names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect()
}

fn copy(setting: &Setting, opcode: Opcode) -> Outcome {
    let mut arg = CopyFileRangeIn::new_zeroed();
    arg.fh_in = setting.open("f").into();
    (arg.nodeid_out, arg.fh_out) = (setting.node("e/c").into(), setting.open("e/c").into());
    arg.len = 3.into();
    let source = setting.node("f");
    setting.raised(|guest| guest.call(opcode, source, &[arg.as_bytes()], 8).map(drop))
}

fn rename(setting: &Setting, flags: u32) -> Outcome {
    let (from, to) = (setting.node("d"), setting.node("e"));
    setting.raised(|guest| guest.rename((from, "a"), (to, "c"), flags))
}

/// One case at least for each operation of the table that changes something.
const CASES: &[Case] = &[
    // chmod(2): the change time of the file.
    (Opcode::Setattr, &["f"], |s| {
        let node = s.node("f");
        s.raised(|guest| guest.setattr(node, SetattrValid::MODE, |arg| arg.mode = 0o600.into()).map(drop))
    }),
    // ftruncate(2): size and times.
    (Opcode::Setattr, &["f"], |s| {
        let (node, fh) = (s.node("f"), s.open("f"));
        s.raised(|guest| guest.setattr(node, SetattrValid::SIZE | SetattrValid::FH, |arg| arg.fh = fh.into()).map(drop))
    }),
    // symlink, mknod, mkdir: times of the directory, and for mkdir its link count.
    (Opcode::Symlink, &["d"], |s| {
        let node = s.node("d");
        s.raised(|guest| guest.call(Opcode::Symlink, node, &[&strings(&["new", "target"])], 128).map(drop))
    }),
    (Opcode::Mknod, &["d"], |s| {
        let (node, mut arg) = (s.node("d"), MknodIn::new_zeroed());
        arg.mode = 0o100_644.into();
        s.raised(|guest| guest.call(Opcode::Mknod, node, &[arg.as_bytes(), &strings(&["new"])], 128).map(drop))
    }),
    (Opcode::Mkdir, &["d"], |s| {
        let node = s.node("d");
        s.raised(|guest| guest.mkdir(node, "new").map(drop))
    }),
    // unlink(2): times of the directory; link count and change time of the file.
    (Opcode::Unlink, &["d", "d/a"], |s| {
        let node = s.node("d");
        s.raised(|guest| guest.unlink(node, "a"))
    }),
    (Opcode::Rmdir, &["d", "d/sub"], |s| {
        let node = s.node("d");
        s.raised(|guest| guest.rmdir(node, "sub"))
    }),
    // rename(2): both directories, the file that moves (its change time), and the one that loses its name.
    (Opcode::Rename, &["d", "d/a", "e", "e/c"], |s| {
        let (from, to) = (s.node("d"), s.node("e"));
        let arg = RenameIn { newdir: to.into() };
        s.raised(|guest| guest.tell(Opcode::Rename, from, &[arg.as_bytes(), &strings(&["a", "c"])]))
    }),
    (Opcode::Rename2, &["d", "d/a", "e", "e/c"], |s| rename(s, 0)),
    (Opcode::Rename2, &["d", "d/a", "e", "e/c"], |s| rename(s, libc::RENAME_EXCHANGE)),
    // link(2): the directory of the new name; link count of the file.
    (Opcode::Link, &["e", "f"], |s| {
        let (dir, arg) = (s.node("e"), LinkIn { oldnodeid: s.node("f").into() });
        s.raised(|guest| guest.call(Opcode::Link, dir, &[arg.as_bytes(), &strings(&["new"])], 128).map(drop))
    }),
    // open(2) with O_TRUNC: size and times.
    (Opcode::Open, &["f"], |s| {
        let node = s.node("f");
        s.raised(|guest| guest.open(node, OFlags::WRONLY | OFlags::TRUNC).map(drop))
    }),
    (Opcode::Write, &["f"], |s| {
        let fh = s.open("f");
        s.raised(|guest| guest.write(fh, 0, b"x").map(drop))
    }),
    (Opcode::Setxattr, &["f"], |s| {
        let (node, mut arg) = (s.node("f"), SetxattrIn::new_zeroed());
        arg.size = 1.into();
        s.raised(|guest| guest.tell(Opcode::Setxattr, node, &[arg.as_bytes(), &strings(&["user.x"]), b"y"]))
    }),
    (Opcode::Removexattr, &["f"], |s| {
        rustix::fs::setxattr(s.share.path().join("f"), "user.x", b"y", rustix::fs::XattrFlags::empty()).unwrap();
        let node = s.node("f");
        s.raised(|guest| guest.tell(Opcode::Removexattr, node, &[&strings(&["user.x"])]))
    }),
    // open(2) with O_CREAT: a new file changes the directory; with O_TRUNC, one that exists changes itself.
    (Opcode::Create, &["d"], |s| {
        let node = s.node("d");
        s.raised(|guest| guest.create(node, "new", OFlags::RDWR).map(drop))
    }),
    (Opcode::Create, &["d/a"], |s| {
        std::os::unix::fs::chown(s.share.path().join("d/a"), Some(0), Some(0)).ok();
        let node = s.node("d");
        s.raised(|guest| guest.create(node, "a", OFlags::RDWR | OFlags::TRUNC).map(drop))
    }),
    // ioctl_iflags(2): the inode's flags. A file system without flags may refuse.
    (Opcode::Ioctl, &["f"], |s| {
        let (node, fh, mut arg) = (s.node("f"), s.open("f"), IoctlIn::new_zeroed());
        (arg.fh, arg.cmd, arg.in_size) = (fh.into(), 0x4008_6602.into(), 8.into());
        s.raised(|guest| guest.call(Opcode::Ioctl, node, &[arg.as_bytes(), &[0; 8]], 16).map(drop))
    }),
    (Opcode::Fallocate, &["f"], |s| {
        let (node, fh, mut arg) = (s.node("f"), s.open("f"), FallocateIn::new_zeroed());
        (arg.fh, arg.length) = (fh.into(), 4096.into());
        s.raised(|guest| guest.tell(Opcode::Fallocate, node, &[arg.as_bytes()]))
    }),
    // copy_file_range(2): the target alone.
    (Opcode::CopyFileRange, &["e/c"], |s| copy(s, Opcode::CopyFileRange)),
    (Opcode::CopyFileRange64, &["e/c"], |s| copy(s, Opcode::CopyFileRange64)),
];

/// Raised in addition, although POSIX does not change it.
fn is_excusable(opcode: Opcode, path: &str) -> bool {
    // The row does not know whether the name exists.
    opcode == Opcode::Create && path == "d"
}

#[test]
fn every_operation_that_changes_something_stamps_what_it_changed_and_nothing_else() {
    for &(opcode, expected, case) in CASES {
        let setting = setting();
        let (outcome, raised) = case(&setting);
        match (opcode, outcome) {
            (Opcode::Ioctl | Opcode::Setxattr, Err(Errno::NOTTY | Errno::OPNOTSUPP)) => continue,
            (_, outcome) => outcome.unwrap_or_else(|error| panic!("{opcode:?}: {error}")),
        }
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        assert!(raised.is_superset(&expected), "{opcode:?} raised {raised:?} instead of {expected:?}");
        let surplus: Vec<_> = raised.difference(&expected).filter(|path| !is_excusable(opcode, path)).collect();
        assert!(surplus.is_empty(), "{opcode:?} also raised {surplus:?}");
    }
}

#[test]
fn every_row_that_changes_something_has_a_case() {
    for opcode in (0..=1000).filter_map(Opcode::from_u32).filter(|opcode| !opcode.row().changes.is_empty()) {
        assert!(CASES.iter().any(|(of_case, ..)| *of_case == opcode), "{opcode:?} has no case");
    }
}

#[test]
fn requests_that_only_look_stamp_nothing() {
    let setting = setting();
    let (f, d) = (setting.node("f"), setting.node("d"));
    let (_, raised) = setting.raised(|guest| {
        guest.getattr(f)?;
        let fh = guest.open(f, OFlags::RDWR)?;
        guest.read(fh, 0, 10)?;
        guest.flush(f, fh)?;
        guest.release(f, fh);
        let fh = guest.opendir(d)?;
        guest.readdirplus(d, fh, 0, 4096)?;
        guest.tmpfile(d)?;
        guest.lookup(d, "absent").map(drop).or(Ok(()))
    });
    assert!(raised.is_empty(), "{raised:?}");
}

/// Each exchange ends with an announcement, and nothing of the root changes.
#[test]
fn an_exchange_with_the_agent_stamps_nothing() {
    if !is_root() {
        return println!("SKIPPED: the guest's root is not this user");
    }
    let mut setting = setting_with(Config { events: true, ..Config::default() });
    setting.guest.caller = (0, AGENT_GID);
    let root = setting.guest.opendir(NodeId::ROOT).unwrap();
    let (outcome, raised) = setting.raised(|guest| exchange_by(guest, root));
    assert_eq!(outcome.unwrap().len(), size_of::<IoctlOut>() + EXCHANGE_LEN);
    assert!(raised.is_empty(), "{raised:?}");
}

#[test]
fn a_request_that_fails_half_way_stamps_what_it_has_done() {
    let setting = setting();
    let node = setting.node("f");
    // The mode is changed before the owner is refused.
    let (outcome, raised) = setting.raised(|guest| {
        guest.setattr(node, SetattrValid::MODE | SetattrValid::UID, |arg| {
            (arg.mode, arg.uid) = (0o640.into(), u32::MAX.into());
        })
    });
    assert_eq!(outcome.err(), Some(Errno::INVAL));
    assert_eq!(setting.share.path().join("f").metadata().unwrap().mode() & 0o777, 0o640);
    assert!(raised.contains("f"));
}

#[test]
fn a_directory_that_cannot_be_truncated_is_stamped_for_its_new_mode() {
    let setting = setting();
    let node = setting.node("d");
    let (outcome, raised) = setting
        .raised(|guest| guest.setattr(node, SetattrValid::MODE | SetattrValid::SIZE, |arg| arg.mode = 0o700.into()));
    assert!(outcome.is_err());
    assert_eq!(setting.share.path().join("d").metadata().unwrap().mode() & 0o777, 0o700);
    assert!(raised.contains("d"), "{outcome:?}");
}

#[test]
fn a_request_that_cannot_have_changed_anything_stamps_nothing() {
    let setting = setting();
    let d = setting.node("d");
    let (outcome, raised) = setting.raised(|guest| guest.mkdir(d, "sub"));
    assert_eq!((outcome.err(), raised.len()), (Some(Errno::EXIST), 0));
}

/// Sends a WRITE that is tried and then served by the pool, and returns how it has raised the file's slot by its reply.
fn write_by_the_pool(setting: &Setting, write: WriteIn, data: &[u8]) -> (u64, u64) {
    let room = size_of::<WriteOut>() + own_changes::LEN_MAX;
    let before = setting.peer.now().clock.get();
    let reply = setting.guest.call(Opcode::Write, setting.node("f"), &[write.as_bytes(), data], room).unwrap();
    let after = setting.peer.now().clock.get();
    assert_eq!(after, before + 2, "one stamp of the attempt, and one of the pool");
    let changes = own_changes::parse(&reply[size_of::<WriteOut>()..]).unwrap();
    let [change] = changes else { panic!("{changes:?}") };
    assert_eq!(change.new, after);
    (change.previous.get(), change.new.get())
}

#[test]
fn a_write_that_the_gate_sends_to_the_pool_is_the_guests_own_change() {
    let setting = setting();
    let write = WriteIn { fh: setting.open("f").into(), size: 1.into(), ..WriteIn::new_zeroed() };
    let write = || {
        setting.guest.fs().write_gate.close();
        write_by_the_pool(&setting, write, b"x")
    };
    let first = write();
    assert_eq!(write().0, first.1, "nobody else has changed the file in between");
}

/// File systems that say whether a write would wait do so for one into a hole by O_DIRECT.
#[test]
fn a_write_that_would_wait_is_the_guests_own_change() {
    const LEN: usize = 4096;
    let Some(share) = strict_dir() else { return };
    let setting = setting_in(share, Config { allow_direct_io: true, ..Config::default() });
    let file = fs::File::create(setting.share.path().join("f")).unwrap();
    file.set_len(2 * LEN as u64).unwrap();
    let flags = OFlags::RDWR | OFlags::DIRECT;
    let fh = setting.guest.open(setting.node("f"), flags).unwrap();
    let (size, flags) = ((LEN as u32).into(), flags.bits().into());
    let write = |offset: usize| {
        let offset = (offset as u64).into();
        write_by_the_pool(&setting, WriteIn { fh: fh.into(), offset, size, flags, ..WriteIn::new_zeroed() }, &[7; LEN])
    };
    let first = write(0);
    assert_eq!(write(LEN).0, first.1, "nobody else has changed the file in between");
    assert_eq!(fs::read(setting.share.path().join("f")).unwrap(), [7; 2 * LEN]);
}

#[test]
fn what_an_open_file_leads_to_is_stamped_whatever_inode_the_guest_names() {
    let setting = setting();
    let (fh, f, other) = (setting.open("f"), setting.node("f"), setting.node("e/c"));
    let truncate =
        |guest: &Guest| guest.setattr(other, SetattrValid::SIZE | SetattrValid::FH, |arg| arg.fh = fh.into()).map(drop);
    assert!(setting.raised(truncate).1.contains("f"));
    // Written after the guest has forgotten the inode.
    setting.guest.forget(f, 100);
    let (outcome, raised) = setting.raised(|guest| guest.write(fh, 0, b"x"));
    assert_eq!(outcome, Ok(1));
    assert!(raised.contains("f"));
}

#[test]
fn a_hard_link_in_another_directory_is_stamped_when_a_name_of_its_inode_goes() {
    let setting = setting();
    let link = |path: &Path| fs::hard_link(setting.share.path().join("f"), path).unwrap();
    link(&setting.share.path().join("e/link"));
    let e = setting.node("e");
    let (outcome, raised) = setting.raised(|guest| guest.unlink(e, "link"));
    outcome.unwrap();
    assert_eq!(raised, BTreeSet::from(["e", "f"]));
}
