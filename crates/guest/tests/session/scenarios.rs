//! Scenarios that use every operation. Each leaves the file system as it was, and may end early
//! with an error.

use transom_guest::{
    Errno,
    channel::Sink,
    session::{PAGE_LEN, Session},
};
use transom_wire::{
    Handle, NodeId,
    linux::{O_RDONLY, O_RDWR, O_TRUNC},
    ops::{
        fsync::FSYNC_FDATASYNC,
        lk::{FileLock, LK_FLOCK, LkIn},
        setattr::{SetattrIn, SetattrValid},
        write::WriteFlags,
    },
};
use zerocopy::FromZeros;

use crate::peer::{Plain, ROOT, name};

/// What a scenario holds and gives back at its end, however it ends.
struct Held<'s> {
    session: &'s Session<Plain>,
    nodes: Vec<NodeId>,
    files: Vec<(NodeId, Handle)>,
}

impl<'s> Held<'s> {
    fn new(session: &'s Session<Plain>) -> Self {
        Self { session, nodes: Vec::new(), files: Vec::new() }
    }

    fn node(&mut self, nodeid: impl Into<NodeId>) -> NodeId {
        let node = nodeid.into();
        self.nodes.extend((node.0 != 0).then_some(node));
        node
    }

    fn file(&mut self, node: NodeId, fh: impl Into<Handle>) -> Handle {
        let fh = fh.into();
        self.files.push((node, fh));
        fh
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (node, fh) in self.files.drain(..) {
            let _ = self.session.flush(&ROOT, node, fh, 7);
            let _ = self.session.release(&ROOT, node, fh, O_RDWR, 0, 0);
        }
        self.nodes.drain(..).for_each(|node| self.session.forget(node, 1));
    }
}

/// Names: creates one of each kind, links, renames, removes.
fn visit_names(session: &Session<Plain>) -> Result<(), Errno> {
    let mut held = Held::new(session);
    let dir = held.node(session.mkdir(&ROOT, NodeId::ROOT, name("dir"), 0o777)?.nodeid);
    let attr = session.getattr(&ROOT, dir, None)?.attr;
    assert_eq!(attr.mode.get() & 0o170_000, 0o040_000);
    let fifo = session.mknod(&ROOT, dir, name("fifo"), 0o010_644, 0)?;
    held.node(fifo.nodeid);
    assert_eq!(fifo.attr.mode.get(), 0o010_644);
    let link = held.node(session.symlink(&ROOT, dir, name("symlink"), b"../some/where")?.nodeid);
    assert_eq!(session.readlink(&ROOT, link)?, b"../some/where");
    let hard = session.link(&ROOT, fifo.nodeid.into(), dir, name("hard"))?;
    held.node(hard.nodeid);
    assert_eq!((hard.nodeid, hard.attr.nlink.get()), (fifo.nodeid, 2));

    session.rename(&ROOT, (dir, name("hard")), (NodeId::ROOT, name("moved")), 0)?;
    let no_replace = session.rename(&ROOT, (dir, name("fifo")), (NodeId::ROOT, name("moved")), 1);
    assert!(matches!(no_replace, Err(Errno::EXIST | Errno::NOMEM | Errno::INVAL)), "{no_replace:?}");
    let moved = session.lookup(&ROOT, NodeId::ROOT, name("moved"))?;
    held.node(moved.nodeid);
    assert_eq!(moved.nodeid, fifo.nodeid);

    session.unlink(&ROOT, NodeId::ROOT, name("moved"))?;
    for child in ["fifo", "symlink"] {
        session.unlink(&ROOT, dir, name(child))?;
    }
    session.rmdir(&ROOT, NodeId::ROOT, name("dir"))?;
    match session.lookup(&ROOT, NodeId::ROOT, name("dir")) {
        Err(Errno::NOENT) => Ok(()),
        other => other.map(|entry| assert_eq!(entry.nodeid, 0)),
    }
}

/// One file: its data, sizes, holes, and a copy of it.
fn visit_data(session: &Session<Plain>) -> Result<(), Errno> {
    let mut held = Held::new(session);
    let (entry, open) = session.create(&ROOT, NodeId::ROOT, name("data"), 0o640, O_RDWR)?;
    let (node, fh) = (held.node(entry.nodeid), Handle::from(open.fh));
    held.file(node, fh);
    assert_eq!(entry.attr.mode.get(), 0o100_640);
    let text: Vec<u8> = (0..200_000u32).map(|at| (at * 7) as u8).collect();
    let flags = WriteFlags::empty();
    // It is shorter if a later message failed: then the next request returns the error.
    if session.write_whole(&ROOT, node, fh, O_RDWR, flags, 0, &text)? < text.len() {
        return Err(Errno::NOMEM);
    }
    let mut back = vec![0; text.len() + 10];
    if session.read_whole(&ROOT, node, fh, O_RDWR, 0, &mut back)? < text.len() {
        return Err(Errno::NOMEM);
    }
    assert_eq!(back[..text.len()], text);
    assert_eq!(session.read(&ROOT, node, fh, O_RDWR, 199_990, Sink::Bytes(&mut back[..100]))?, 10);

    session.fsync(&ROOT, node, fh, FSYNC_FDATASYNC)?;
    session.fallocate(&ROOT, node, fh, 300_000, 100_000, 0)?;
    assert_eq!(session.getattr(&ROOT, node, Some(fh))?.attr.size.get(), 400_000);
    assert_eq!(session.lseek(&ROOT, node, fh, 0, 3)?, 0);

    let (entry, open) = session.create(&ROOT, NodeId::ROOT, name("copy"), 0o600, O_RDWR)?;
    let (copy, copy_fh) = (held.node(entry.nodeid), Handle::from(open.fh));
    held.file(copy, copy_fh);
    let copied = session.copy_file_range(&ROOT, (node, fh, 10), (copy, copy_fh, 0), 1000, 0)?;
    assert_eq!(session.read(&ROOT, copy, copy_fh, O_RDWR, 0, Sink::Bytes(&mut back))?, copied as usize);
    assert_eq!(back[..copied as usize], text[10..10 + copied as usize]);
    session.unlink(&ROOT, NodeId::ROOT, name("copy"))?;
    session.unlink(&ROOT, NodeId::ROOT, name("data"))
}

/// Attributes, extended attributes, and file-system statistics.
fn visit_attributes(session: &Session<Plain>) -> Result<(), Errno> {
    let mut held = Held::new(session);
    let (entry, open) = session.create(&ROOT, NodeId::ROOT, name("file"), 0o600, O_RDWR)?;
    let (node, fh) = (held.node(entry.nodeid), Handle::from(open.fh));
    held.file(node, fh);
    let mut arg = SetattrIn::new_zeroed();
    arg.valid = (SetattrValid::MODE | SetattrValid::SIZE | SetattrValid::MTIME).bits().into();
    (arg.mode, arg.size, arg.mtime) = (0o604.into(), 5000.into(), 1_000_000.into());
    let attr = session.setattr(&ROOT, node, &arg)?.attr;
    assert_eq!((attr.mode.get(), attr.size.get(), attr.mtime.get()), (0o100_604, 5000, 1_000_000));
    let stat = session.statx(&ROOT, node, None, 0, 0x7ff)?.stat;
    assert_eq!((stat.mode.get(), stat.size.get(), stat.ino), (0o100_604, 5000, attr.ino));
    session.access(&ROOT, node, 4)?;
    assert!(session.statfs(&ROOT, node)?.bsize.get() > 0);

    session.setxattr(&ROOT, node, b"user.one", b"value", 0, 0)?;
    let mut value = [0; 64];
    let len = session.getxattr(&ROOT, node, b"user.one", &mut value)?;
    assert_eq!(&value[..len], b"value");
    assert_eq!(session.getxattr(&ROOT, node, b"user.one", &mut [])?, 5);
    let len = session.listxattr(&ROOT, node, &mut value)?;
    assert!(value[..len].split(|&byte| byte == 0).any(|one| one == b"user.one"));
    assert_eq!(session.listxattr(&ROOT, node, &mut [])?, len);
    session.removexattr(&ROOT, node, b"user.one")?;
    let gone = session.getxattr(&ROOT, node, b"user.one", &mut value);
    assert!(matches!(gone, Err(Errno::NODATA | Errno::NOMEM)), "{gone:?}");

    session.syncfs(&ROOT, NodeId::ROOT)?;
    assert_eq!(session.poll(&ROOT, node, fh, 0x5)?, 0x5);
    assert!(session.ioctl(&ROOT, node, fh, 0, 0x1234, 0, &[], &mut []).is_err());
    let truncated = session.open(&ROOT, node, O_RDWR | O_TRUNC)?;
    held.file(node, truncated.fh);
    assert_eq!(session.getattr(&ROOT, node, None)?.attr.size.get(), 0);
    session.unlink(&ROOT, NodeId::ROOT, name("file"))
}

/// A directory of 300 names, listed in both forms.
fn visit_directory(session: &Session<Plain>) -> Result<(), Errno> {
    let mut held = Held::new(session);
    let dir = held.node(session.mkdir(&ROOT, NodeId::ROOT, name("listed"), 0o755)?.nodeid);
    let mut names: Vec<String> = (0..300).map(|number| format!("file number {number}")).collect();
    for child in &names {
        held.node(session.mknod(&ROOT, dir, name(child), 0o600, 0)?.nodeid);
    }
    names.extend([".".to_owned(), "..".to_owned()]);
    names.sort();
    let open = session.opendir(&ROOT, dir, O_RDONLY)?;
    for plus in [false, true] {
        let mut seen = list(session, &mut held, dir, open.fh.into(), plus)?;
        seen.sort();
        assert_eq!(seen, names);
    }
    session.fsyncdir(&ROOT, dir, open.fh.into(), 0)?;
    session.releasedir(&ROOT, dir, open.fh.into(), O_RDONLY)?;
    for child in names.iter().filter(|child| !child.starts_with('.')) {
        session.unlink(&ROOT, dir, name(child))?;
    }
    session.rmdir(&ROOT, NodeId::ROOT, name("listed"))
}

fn list(
    session: &Session<Plain>,
    held: &mut Held<'_>,
    dir: NodeId,
    fh: Handle,
    plus: bool,
) -> Result<Vec<String>, Errno> {
    let (mut names, mut offset, mut bytes) = (Vec::new(), 0, vec![0; PAGE_LEN]);
    loop {
        let len = session.readdir(&ROOT, dir, fh, offset, plus, &mut bytes)?;
        if len == 0 {
            return Ok(names);
        }
        for entry in session.entries(&bytes[..len], plus) {
            let entry = entry?;
            offset = entry.off;
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            if let Some(found) = entry.entry {
                held.node(found.nodeid);
                assert_eq!(found.attr.ino.get(), entry.ino);
            }
        }
    }
}

fn lock(fh: Handle, owner: u64, type_: u32, lk_flags: u32) -> LkIn {
    let lk = FileLock { start: 0.into(), end: (i64::MAX as u64).into(), type_: type_.into(), pid: 1.into() };
    LkIn { fh: fh.into(), owner: owner.into(), lk, lk_flags: lk_flags.into(), padding: 0.into() }
}

pub(crate) fn write_lock(fh: Handle, owner: u64) -> LkIn {
    lock(fh, owner, 1, 0)
}

/// Two owners and one file.
fn visit_locks(session: &Session<Plain>) -> Result<(), Errno> {
    let mut held = Held::new(session);
    let (entry, open) = session.create(&ROOT, NodeId::ROOT, name("locked"), 0o600, O_RDWR)?;
    let node = held.node(entry.nodeid);
    let first = held.file(node, open.fh);
    let second = session.open(&ROOT, node, O_RDWR)?;
    let second = held.file(node, second.fh);
    session.setlk(&ROOT, node, &write_lock(first, 1))?;
    assert_eq!(session.getlk(&ROOT, node, &write_lock(second, 2))?.type_.get(), 1);
    let taken = session.setlk(&ROOT, node, &write_lock(second, 2));
    assert!(matches!(taken, Err(Errno::AGAIN | Errno::NOMEM)), "{taken:?}");
    session.setlk(&ROOT, node, &lock(first, 1, 2, 0))?;
    session.setlkw(&ROOT, node, &write_lock(second, 2))?;
    session.setlk(&ROOT, node, &lock(second, 2, 2, 0))?;
    session.setlk(&ROOT, node, &lock(first, 3, 1, LK_FLOCK))?;
    session.unlink(&ROOT, NodeId::ROOT, name("locked"))
}

pub(crate) type Scenario = fn(&Session<Plain>) -> Result<(), Errno>;
pub(crate) const SCENARIOS: [(&str, Scenario); 5] = [
    ("names", visit_names),
    ("data", visit_data),
    ("attributes", visit_attributes),
    ("directory", visit_directory),
    ("locks", visit_locks),
];
