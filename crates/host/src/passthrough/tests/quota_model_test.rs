//! Random requests of several threads at once, within a quota: they never add more, and the account agrees with the
//! file system.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs,
    path::Path,
};

use proptest::{prelude::*, test_runner::TestRunner};
use rustix::fs::{FallocateFlags, OFlags, RenameFlags, fsync};
use transom_wire::{Handle, NodeId, ops::setattr::SetattrValid};

use super::{
    guest::{Guest, node},
    quota_test::{LIMIT, fallocate, guest, link, taken, used},
};
use crate::passthrough::handles::Open;

const ROOT: NodeId = NodeId::ROOT;

/// A step of one of several threads; numbers choose files, places and lengths.
#[derive(Clone, Debug)]
enum Step {
    Write(u8, u32, u16),
    Truncate(u8, u32),
    Fallocate(u8, u32, u8),
    Link(u8, u8),
    Rename(u8, u8),
    Exchange(u8, u8),
    Unlink(u8),
    Mkdir(u8),
    Rmdir(u8),
    Reopen(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..6_u8;
    let at = 0..(3 * LIMIT) as u32;
    proptest::collection::vec(
        prop_oneof![
            6 => (name.clone(), at.clone(), 1..u16::MAX).prop_map(|(n, at, len)| Step::Write(n, at, len)),
            2 => (name.clone(), at.clone()).prop_map(|(n, at)| Step::Truncate(n, at)),
            2 => (name.clone(), at, 0..4_u8).prop_map(|(n, len, mode)| Step::Fallocate(n, len, mode)),
            1 => (name.clone(), name.clone()).prop_map(|(a, b)| Step::Link(a, b)),
            2 => (name.clone(), name.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
            1 => (name.clone(), name.clone()).prop_map(|(a, b)| Step::Exchange(a, b)),
            2 => name.clone().prop_map(Step::Unlink),
            1 => name.clone().prop_map(Step::Mkdir),
            1 => name.clone().prop_map(Step::Rmdir),
            2 => name.prop_map(Step::Reopen),
        ],
        1..60,
    )
}

/// The files that one thread holds, by name.
#[derive(Default)]
struct Holder {
    open: HashMap<u8, (NodeId, Handle)>,
    /// References to inodes, which each reply with an entry counts.
    known: Vec<NodeId>,
}

impl Holder {
    /// Performs a step; what fails has no effect.
    fn step(&mut self, guest: &Guest, step: &Step) {
        let name = |number: u8| format!("n{number}");
        match *step {
            Step::Write(n, at, len) => {
                if let Some((_, fh)) = self.file(guest, n) {
                    let _ = guest.write(fh, at.into(), &vec![7; len.into()]);
                }
            }
            Step::Truncate(n, at) => {
                if let Some((nodeid, _)) = self.file(guest, n) {
                    let _ = guest.setattr(nodeid, SetattrValid::SIZE, |arg| arg.size = u64::from(at).into());
                }
            }
            Step::Fallocate(n, len, mode) => {
                let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE);
                let mode = [FallocateFlags::empty(), keep, keep | punch, FallocateFlags::ZERO_RANGE][usize::from(mode)];
                if let Some((nodeid, fh)) = self.file(guest, n) {
                    let _ = fallocate(guest, nodeid, fh, mode, u64::from(len) + 1);
                }
            }
            Step::Link(a, b) => {
                if let Some((nodeid, _)) = self.file(guest, a) {
                    self.known.extend(link(guest, nodeid, &name(b)).map(|entry| node(&entry)));
                }
            }
            Step::Rename(a, b) => _ = guest.rename((ROOT, &name(a)), (ROOT, &name(b)), 0),
            Step::Exchange(a, b) => {
                let _ = guest.rename((ROOT, &name(a)), (ROOT, &name(b)), RenameFlags::EXCHANGE.bits());
            }
            Step::Unlink(n) => _ = guest.unlink(ROOT, &name(n)),
            Step::Mkdir(n) => self.known.extend(guest.mkdir(ROOT, &name(n)).map(|entry| node(&entry))),
            Step::Rmdir(n) => _ = guest.rmdir(ROOT, &name(n)),
            Step::Reopen(n) => self.close(guest, n),
        }
    }

    fn file(&mut self, guest: &Guest, n: u8) -> Option<(NodeId, Handle)> {
        if let Entry::Vacant(vacant) = self.open.entry(n) {
            let name = format!("n{n}");
            // Another thread may be creating it.
            let found = guest.lookup(ROOT, &name).ok().and_then(|entry| {
                let opened = guest.open(node(&entry), OFlags::RDWR);
                opened.inspect_err(|_| guest.forget(node(&entry), 1)).ok().map(|fh| (node(&entry), fh))
            });
            let created = || guest.create(ROOT, &name, OFlags::RDWR).ok();
            vacant.insert(found.or_else(|| created().map(|(entry, open)| (node(&entry), open.fh.into())))?);
        }
        self.open.get(&n).copied()
    }

    fn close(&mut self, guest: &Guest, n: u8) {
        if let Some((nodeid, fh)) = self.open.remove(&n) {
            guest.release(nodeid, fh);
            guest.forget(nodeid, 1);
        }
    }

    fn end(mut self, guest: &Guest) {
        (0..6).for_each(|n| self.close(guest, n));
        self.known.drain(..).for_each(|nodeid| guest.forget(nodeid, 1));
    }
}

/// Has the file system choose the blocks of all files, which changes what they take, and changes each file so that the
/// account is that of now.
fn settle(guest: &Guest, dir: &Path, holders: &[Holder]) {
    let change = |nodeid| {
        guest.setattr(nodeid, SetattrValid::MTIME, |_| ()).unwrap();
    };
    for (_, open) in guest.fs().handles.all() {
        if let Open::File(file) = open {
            fsync(&file.fd).unwrap();
        }
    }
    holders.iter().flat_map(|holder| holder.open.values()).for_each(|&(nodeid, _)| change(nodeid));
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_file() {
            fs::File::open(entry.path()).unwrap().sync_all().unwrap();
            let nodeid = guest.walk(entry.file_name().to_str().unwrap()).unwrap();
            change(nodeid);
            guest.forget(nodeid, 1);
        }
    }
}

#[test]
fn several_threads_never_add_more_than_the_quota_and_the_account_agrees_with_the_file_system() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 24, ..ProptestConfig::default() });
    for place in ["/var/tmp", "/dev/shm"] {
        let all = (steps(), steps(), steps());
        let run = runner.run(&all, |(a, b, c)| {
            let dir = tempfile::tempdir_in(place).unwrap();
            let guest = guest(dir.path(), None);
            let before = taken(&guest, dir.path());
            let mut holders: [Holder; 3] = Default::default();
            std::thread::scope(|scope| {
                for (holder, steps) in holders.iter_mut().zip([a, b, c]) {
                    let guest = &guest;
                    scope.spawn(move || steps.iter().for_each(|step| holder.step(guest, step)));
                }
            });
            settle(&guest, dir.path(), &holders);
            let added = taken(&guest, dir.path()) - before;
            prop_assert!(added <= LIMIT, "{added} bytes were added");
            // More, if the guest still knows a directory that has lost its name.
            prop_assert!(used(&guest) >= added, "{added} bytes were added, {} are charged", used(&guest));
            holders.into_iter().for_each(|holder| holder.end(&guest));
            prop_assert_eq!(used(&guest), taken(&guest, dir.path()) - before);
            for entry in fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap()) {
                let name = entry.file_name().into_string().unwrap();
                let is_directory = entry.file_type().unwrap().is_dir();
                if is_directory { guest.rmdir(ROOT, &name) } else { guest.unlink(ROOT, &name) }.unwrap();
            }
            let gauges = guest.fs().quota_gauges().unwrap();
            prop_assert_eq!(gauges.files, 0);
            prop_assert_eq!(gauges.bytes, taken(&guest, dir.path()) - before);
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("in {place}: {error}"));
    }
}
