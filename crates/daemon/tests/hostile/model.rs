//! Sequences of good operations, through ring, back end, server and file system, against a map from paths to files.

use std::collections::BTreeMap;

use proptest::prelude::*;
use transom_frontend::{
    fuse::{Answer, Session},
    queue::Queue,
};

use crate::host::Daemon;

/// An operation on paths; each component is one of few names, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Create(Vec<u8>),
    Mkdir(Vec<u8>),
    Write(Vec<u8>, u16, Vec<u8>),
    Truncate(Vec<u8>, u16),
    Read(Vec<u8>, u16, u16),
    Unlink(Vec<u8>),
    Rmdir(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    List(Vec<u8>, bool),
    Stat(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    Directory,
    File(Vec<u8>),
}

/// What a step gives: bytes, or an errno.
type Result = std::result::Result<Vec<u8>, i32>;

/// Every path that there is but the root, which is the empty path; a component is one byte.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Thing>);

impl Model {
    /// Errors: ENOENT, ENOTDIR, as a walk from the root finds them.
    fn walk(&self, path: &[u8]) -> std::result::Result<Thing, i32> {
        for len in 1..path.len() {
            match self.0.get(&path[..len]) {
                None => return Err(libc::ENOENT),
                Some(Thing::File(_)) => return Err(libc::ENOTDIR),
                Some(Thing::Directory) => {}
            }
        }
        if path.is_empty() { Ok(Thing::Directory) } else { self.0.get(path).cloned().ok_or(libc::ENOENT) }
    }

    fn file(&mut self, path: &[u8]) -> std::result::Result<&mut Vec<u8>, i32> {
        self.walk(path)?;
        match self.0.get_mut(path) {
            Some(Thing::File(data)) => Ok(data),
            _ => Err(libc::EISDIR),
        }
    }

    fn children(&self, path: &[u8]) -> Vec<u8> {
        let is_child = |other: &&Vec<u8>| other.len() == path.len() + 1 && other.starts_with(path);
        self.0.keys().filter(is_child).filter_map(|child| child.last().copied()).collect()
    }

    fn make(&mut self, path: &[u8], thing: Thing) -> Result {
        match self.walk(path) {
            Ok(_) => Err(libc::EEXIST),
            Err(libc::ENOENT) if self.walk(parent(path)) == Ok(Thing::Directory) => {
                self.0.insert(path.to_vec(), thing);
                Ok(Vec::new())
            }
            Err(errno) => Err(errno),
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result {
        // As the driver does: both parents first.
        self.walk(parent(from))?;
        let to_parent = self.walk(parent(to))?;
        let moved = self.walk(from)?;
        if to_parent != Thing::Directory {
            return Err(libc::ENOTDIR);
        }
        let target = self.walk(to).ok();
        if parent(to).starts_with(from) {
            return Err(libc::EINVAL);
        }
        if from == to {
            return Ok(Vec::new());
        }
        match (&moved, &target) {
            (Thing::Directory, Some(Thing::Directory)) if !self.children(to).is_empty() => return Err(libc::ENOTEMPTY),
            (Thing::File(_), Some(Thing::Directory)) => return Err(libc::EISDIR),
            (Thing::Directory, Some(Thing::File(_))) => return Err(libc::ENOTDIR),
            _ => {}
        }
        self.0.remove(to);
        let below: Vec<Vec<u8>> = self.0.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in below {
            if let Some(thing) = self.0.remove(&path) {
                self.0.insert([to, &path[from.len()..]].concat(), thing);
            }
        }
        Ok(Vec::new())
    }

    fn run(&mut self, step: &Step) -> Result {
        match step {
            Step::Create(path) => self.make(path, Thing::File(Vec::new())),
            Step::Mkdir(path) => self.make(path, Thing::Directory),
            Step::Write(path, offset, data) => {
                let file = self.file(path)?;
                let end = usize::from(*offset) + data.len();
                file.resize(file.len().max(end), 0);
                file[usize::from(*offset)..end].copy_from_slice(data);
                Ok(Vec::new())
            }
            Step::Truncate(path, size) => {
                self.file(path)?.resize(usize::from(*size), 0);
                Ok(Vec::new())
            }
            Step::Read(path, offset, size) => {
                let file = self.file(path)?;
                let end = file.len().min(usize::from(*offset) + usize::from(*size));
                Ok(file.get(usize::from(*offset)..end).unwrap_or_default().to_vec())
            }
            Step::Unlink(path) => match self.walk(path)? {
                Thing::Directory => Err(libc::EISDIR),
                Thing::File(_) => Ok(self.0.remove(path).map(|_| Vec::new()).unwrap_or_default()),
            },
            Step::Rmdir(path) => match self.walk(path)? {
                Thing::File(_) => Err(libc::ENOTDIR),
                Thing::Directory if !self.children(path).is_empty() => Err(libc::ENOTEMPTY),
                Thing::Directory => Ok(self.0.remove(path).map(|_| Vec::new()).unwrap_or_default()),
            },
            Step::Rename(from, to) => self.rename(from, to),
            Step::List(path, _) => match self.walk(path)? {
                Thing::File(_) => Err(libc::ENOTDIR),
                Thing::Directory => Ok(self.children(path)),
            },
            Step::Stat(path) => match self.walk(path)? {
                Thing::File(data) => Ok(data.len().to_le_bytes().to_vec()),
                Thing::Directory => Ok(Vec::new()),
            },
        }
    }
}

fn parent(path: &[u8]) -> &[u8] {
    &path[..path.len().saturating_sub(1)]
}

/// A driver that keeps nothing: it looks up every component, and forgets all of them after each step.
struct Driver {
    session: Session<Queue>,
    looked_up: Vec<u64>,
}

impl Driver {
    fn walk(&mut self, path: &[u8]) -> Answer<u64> {
        let mut nodeid = 1;
        for name in path {
            nodeid = self.session.lookup(nodeid, &[*name])?.nodeid.get();
            self.looked_up.push(nodeid);
        }
        Ok(nodeid)
    }

    fn run(&mut self, step: &Step) -> Result {
        let result = self.try_run(step);
        for nodeid in std::mem::take(&mut self.looked_up) {
            self.session.forget(nodeid, 1).unwrap();
        }
        result.map_err(|failure| failure.errno().unwrap_or_else(|| panic!("{failure}")).raw_os_error())
    }

    fn try_run(&mut self, step: &Step) -> Answer<Vec<u8>> {
        let name = |path: &[u8]| vec![path.last().copied().unwrap_or(b'?')];
        match step {
            Step::Create(path) => {
                let parent = self.walk(parent(path))?;
                let flags = (libc::O_RDWR | libc::O_EXCL) as u32;
                let made = self.session.create(parent, &name(path), flags, 0o644)?;
                self.looked_up.push(made.entry.nodeid.get());
                self.session.release(made.entry.nodeid.get(), made.open.fh.get())?;
            }
            Step::Mkdir(path) => {
                let parent = self.walk(parent(path))?;
                let made = self.session.mkdir(parent, &name(path), 0o755)?;
                self.looked_up.push(made.nodeid.get());
            }
            Step::Write(path, offset, data) => {
                let nodeid = self.walk(path)?;
                let fh = self.session.open(nodeid, libc::O_WRONLY as u32)?;
                let written = self.session.write(nodeid, fh, u64::from(*offset), data)?;
                assert_eq!(written as usize, data.len());
                self.session.release(nodeid, fh)?;
            }
            Step::Truncate(path, size) => {
                let nodeid = self.walk(path)?;
                self.session.truncate(nodeid, u64::from(*size))?;
            }
            Step::Read(path, offset, size) => {
                let nodeid = self.walk(path)?;
                let fh = self.session.open(nodeid, libc::O_RDONLY as u32)?;
                let data = self.session.read(nodeid, fh, u64::from(*offset), u32::from(*size))?;
                self.session.release(nodeid, fh)?;
                return Ok(data);
            }
            Step::Unlink(path) => {
                let parent = self.walk(parent(path))?;
                self.session.unlink(parent, &name(path))?;
            }
            Step::Rmdir(path) => {
                let parent = self.walk(parent(path))?;
                self.session.rmdir(parent, &name(path))?;
            }
            Step::Rename(from, to) => {
                let (from_parent, to_parent) = (self.walk(parent(from))?, self.walk(parent(to))?);
                self.session.rename((from_parent, &name(from)), (to_parent, &name(to)))?;
            }
            Step::List(path, is_plus) => {
                let nodeid = self.walk(path)?;
                let entries = self.session.readdir(nodeid, 300, *is_plus)?;
                self.looked_up.extend(entries.iter().filter_map(|entry| Some(entry.entry?.nodeid.get())));
                self.looked_up.retain(|&nodeid| nodeid != 0);
                let named = entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..");
                let mut names: Vec<u8> = named.flat_map(|entry| entry.name.clone()).collect();
                names.sort_unstable();
                return Ok(names);
            }
            Step::Stat(path) => {
                let nodeid = self.walk(path)?;
                let attr = self.session.getattr(nodeid, None)?;
                let is_file = attr.mode.get() & libc::S_IFMT == libc::S_IFREG;
                return Ok(if is_file { attr.size.get().to_le_bytes().to_vec() } else { Vec::new() });
            }
        }
        Ok(Vec::new())
    }
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(b"abc".to_vec()), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    let data = || prop::collection::vec(any::<u8>(), 0..5000);
    prop_oneof![
        3 => path().prop_map(Step::Create),
        3 => path().prop_map(Step::Mkdir),
        3 => (path(), 0..3000u16, data()).prop_map(|(path, offset, data)| Step::Write(path, offset, data)),
        1 => (path(), 0..6000u16).prop_map(|(path, size)| Step::Truncate(path, size)),
        3 => (path(), 0..6000u16, 0..9000u16).prop_map(|(path, offset, size)| Step::Read(path, offset, size)),
        2 => path().prop_map(Step::Unlink),
        2 => path().prop_map(Step::Rmdir),
        3 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (path(), any::<bool>()).prop_map(|(path, is_plus)| Step::List(path, is_plus)),
        1 => path().prop_map(Step::Stat),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_session_does_what_a_map_of_paths_does(steps in prop::collection::vec(step(), 1..80)) {
        let daemon = Daemon::start();
        let (_front_end, session) = daemon.session();
        let mut driver = Driver { session, looked_up: Vec::new() };
        let mut model = Model::default();
        for step in &steps {
            prop_assert_eq!(driver.run(step), model.run(step), "{:?} of {:?}", step, steps);
        }
        let held = daemon.held();
        prop_assert_eq!((held.lookups, held.handles), (0, 0));
        prop_assert_eq!(held.inodes, model.0.len() + 1);
    }
}
