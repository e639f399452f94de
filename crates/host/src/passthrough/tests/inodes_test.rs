//! The inode table against a plain model, for any sequence of actions by guest and host.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt};

use proptest::prelude::*;
use transom_wire::NodeId;

use super::{Guest, Way, one_way};
use crate::{Errno, passthrough::Config};

#[derive(Debug, Clone)]
enum Step {
    /// The guest looks a name up.
    Lookup(usize),
    /// The guest forgets some lookups of one of the inodes it knows.
    Forget(usize, u64),
    /// The host creates a file unless the name exists.
    HostCreate(usize),
    /// The host gives a file a second name.
    HostLink(usize, usize),
    /// The guest renames, replacing an existing name.
    Rename(usize, usize),
    /// The guest removes a name.
    Unlink(usize),
    /// Every descriptor that can be closed is closed.
    Close,
}

const NAMES: [&str; 6] = ["a", "b", "d/a", "d/b", "d/e/a", "d/e/b"];

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        4 => name.clone().prop_map(Step::Lookup),
        3 => (any::<prop::sample::Index>(), 1..3u64).prop_map(|(at, count)| Step::Forget(at.index(1000), count)),
        4 => name.clone().prop_map(Step::HostCreate),
        1 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::HostLink(from, to)),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name.prop_map(Step::Unlink),
        2 => Just(Step::Close),
    ]
}

/// The inodes that the guest knows: the file's content, which identifies it, and the lookups not forgotten.
type Model = HashMap<u64, (String, u64)>;

fn run(guest: &Guest, dir: &std::path::Path, steps: &[Step]) {
    fs::create_dir_all(dir.join("d/e")).unwrap();
    let (d, e) = (guest.walk("d").unwrap(), guest.walk("d/e").unwrap());
    guest.forget(d, 1);
    let split = |at: usize| {
        let parent = [NodeId::ROOT, NodeId::ROOT, d, d, e, e][at];
        (parent, NAMES[at].rsplit('/').next().unwrap())
    };
    let mut model = Model::new();
    for (turn, step) in steps.iter().enumerate() {
        match *step {
            Step::HostCreate(at) => {
                if !dir.join(NAMES[at]).exists() {
                    fs::write(dir.join(NAMES[at]), format!("file {turn}")).unwrap();
                }
            }
            Step::HostLink(from, to) => drop(fs::hard_link(dir.join(NAMES[from]), dir.join(NAMES[to]))),
            Step::Lookup(at) => {
                let (parent, name) = split(at);
                let content = fs::read_to_string(dir.join(NAMES[at]));
                match guest.lookup(parent, name) {
                    Ok(entry) => {
                        let known = model.entry(entry.nodeid.get()).or_insert((content.unwrap(), 0));
                        known.1 += 1;
                        assert_eq!(fs::read_to_string(dir.join(NAMES[at])).unwrap(), known.0, "turn {turn}");
                        assert_eq!(entry.attr.ino.get(), dir.join(NAMES[at]).metadata().unwrap().ino());
                    }
                    Err(errno) => assert!(errno == Errno::NOENT && content.is_err(), "turn {turn}: {errno}"),
                }
            }
            Step::Forget(at, count) => {
                let mut keys: Vec<u64> = model.keys().copied().collect();
                keys.sort_unstable();
                if keys.is_empty() {
                    continue;
                }
                let key = keys[at % keys.len()];
                guest.forget(NodeId(key), count);
                let known = model.get_mut(&key).unwrap();
                known.1 = known.1.saturating_sub(count);
                if known.1 == 0 {
                    model.remove(&key);
                    assert_eq!(guest.getattr(NodeId(key)).err(), Some(Errno::STALE), "turn {turn}");
                }
            }
            Step::Rename(from, to) => drop(guest.rename(split(from), split(to), 0)),
            Step::Unlink(at) => drop(guest.unlink(split(at).0, split(at).1)),
            Step::Close => guest.fs().inodes.close_all(),
        }
        // The guest can reach every inode that it knows, and no other in its place. By path, a name that only the host
        // added, or that the guest removed under another name, may be out of reach.
        for (&key, (content, _)) in &model {
            match guest.open(NodeId(key), rustix::fs::OFlags::RDONLY) {
                Ok(fh) => {
                    assert_eq!(guest.read(fh, 0, 100).unwrap(), content.as_bytes(), "turn {turn}");
                    guest.release(NodeId(key), fh);
                }
                Err(errno) => {
                    assert!(errno == Errno::STALE && !guest.fs().inodes.holds_handles(), "turn {turn}: {errno}")
                }
            }
        }
        assert_eq!(guest.fs().inode_count(), model.len() + 2, "turn {turn}");
    }
    let known: Vec<u64> = model.keys().copied().collect();
    known.into_iter().for_each(|key| guest.forget(NodeId(key), u64::MAX));
    assert_eq!((guest.fs().inode_count(), guest.fs().inodes.pinned_count()), (2, 0));
    assert_eq!(guest.fs().inodes.held_count(), guest.fs().inodes.kept_count());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_the_guest_knows_it_reaches_and_nothing_else_in_its_place(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        for way in [Way::Handles, Way::Paths] {
            one_way(way, &Config::default(), &|guest, dir| run(guest, dir, &steps));
        }
    }
}
