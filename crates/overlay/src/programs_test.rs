//! Whatever guests do, a commit makes the directory what they saw, and the list of changes is what a comparison finds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use proptest::prelude::*;

use crate::{
    Difference, Error,
    overlay_test::differences,
    support::{Host, Listing, is_skipped},
};

/// Something that a guest does. Names are small numbers, so that they meet.
#[derive(Clone, Debug)]
enum Act {
    Write(u8, u8),
    Append(u8),
    MakeDirectory(u8),
    Remove(u8),
    Rename(u8, u8),
    Link(u8, u8),
    Symlink(u8, u8),
    Mode(u8, u16),
    Touch(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let name = 0..24_u8;
    let act = prop_oneof![
        (name.clone(), any::<u8>()).prop_map(|(a, b)| Act::Write(a, b)),
        name.clone().prop_map(Act::Append),
        name.clone().prop_map(Act::MakeDirectory),
        name.clone().prop_map(Act::Remove),
        (name.clone(), name.clone()).prop_map(|(a, b)| Act::Rename(a, b)),
        (name.clone(), name.clone()).prop_map(|(a, b)| Act::Link(a, b)),
        (name.clone(), name.clone()).prop_map(|(a, b)| Act::Symlink(a, b)),
        (name.clone(), 0..0o1000_u16).prop_map(|(a, b)| Act::Mode(a, b)),
        name.prop_map(Act::Touch),
    ];
    proptest::collection::vec(act, 0..40)
}

/// Names of the first level.
fn parts() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0..4_u8, 0..4)
}

/// Three levels of four names each.
fn name(number: u8) -> PathBuf {
    let letter = |number: u8| ["a", "b", "c", "d"][usize::from(number % 4)];
    match number / 4 {
        0 | 1 => letter(number).into(),
        2 | 3 => Path::new(letter(number / 2)).join(letter(number)),
        _ => Path::new(letter(number / 2)).join(letter(number / 3)).join(letter(number)),
    }
}

/// Does it; what cannot be done is no error.
fn perform(dir: &Path, act: &Act) {
    use std::io::Write;
    let at = |number: &u8| dir.join(name(*number));
    let _ = match act {
        Act::Write(a, b) => fs::write(at(a), vec![*b; usize::from(*b)]),
        Act::Append(a) => fs::File::options().append(true).open(at(a)).and_then(|mut file| file.write_all(b"more")),
        Act::MakeDirectory(a) => fs::create_dir(at(a)),
        Act::Remove(a) => fs::remove_file(at(a)).or_else(|_| fs::remove_dir_all(at(a))),
        Act::Rename(a, b) => fs::rename(at(a), at(b)),
        Act::Link(a, b) => fs::hard_link(at(a), at(b)),
        // They lead nowhere, so that nothing is done through them.
        Act::Symlink(a, b) => symlink(Path::new("/nonexistent").join(name(*b)), at(a)),
        Act::Mode(a, mode) => match fs::symlink_metadata(at(a)) {
            Ok(meta) if !meta.is_symlink() => fs::set_permissions(at(a), PermissionsExt::from_mode(u32::from(*mode))),
            _ => Ok(()),
        },
        Act::Touch(a) => fs::File::options()
            .append(true)
            .open(at(a))
            .and_then(|file| file.set_times(fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH))),
    };
}

/// Returns how two listings differ, without times.
///
/// Of the names of one file, the first is made or stays as it is, and the others become links of it, unless they were
/// and nothing is made anew.
fn compared(before: &Listing, after: &Listing) -> BTreeMap<String, Difference> {
    let mut differences = BTreeMap::new();
    for path in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let difference = match (before.get(path), after.get(path)) {
            (None, Some(_)) => Difference::Added,
            (Some(_), None) => Difference::Removed,
            (Some(old), Some(new)) if (&old.0, &old.3) != (&new.0, &new.3) => Difference::Changed,
            (Some(old), Some(new)) => {
                let first = &new.4;
                let is_another = !first.as_os_str().is_empty() && first != path && !is_made(before, after, path);
                let is_link = || before.get(first).is_some_and(|first| first.4 == old.4);
                if is_another && (is_made(before, after, first) || !is_link()) {
                    Difference::Linked
                } else if old.1 != new.1 {
                    Difference::Mode
                } else {
                    continue;
                }
            }
            (None, None) => continue,
        };
        differences.insert(path.to_string_lossy().into_owned(), difference);
    }
    differences
}

/// Returns whether the name gets a new file: it had none, another content, or shared what has changed of it with
/// others.
fn is_made(before: &Listing, after: &Listing, path: &Path) -> bool {
    let (Some(old), Some(new)) = (before.get(path), after.get(path)) else { return true };
    let is_shared = || !old.4.as_os_str().is_empty() && before.values().filter(|other| other.4 == old.4).count() > 1;
    (&old.0, &old.3) != (&new.0, &new.3) || (old.1, old.2) != (new.1, new.2) && is_shared()
}

/// Runs two guests, one after the other, on a directory in which `before` was done. Returns what it is then, and what
/// the second one saw at its end.
fn run(before: &[Act], first: &[Act], second: &[Act]) -> (Host, Listing, Listing) {
    let host = Host::new();
    before.iter().for_each(|act| perform(&host.directory(), act));
    let untouched = host.listing();
    host.guest(|dir| first.iter().for_each(|act| perform(dir, act)));
    let seen = host.guest(|dir| second.iter().for_each(|act| perform(dir, act)));
    (host, untouched, seen)
}

/// Returns what the directory is after a commit of what the guest has seen.
///
/// If a guest sets a file's time to the time that the file has, the overlay copies the file, and its other names no
/// longer lead to the same inode. Nothing else has changed, so a commit leaves the file as it is.
fn committed(before: &Listing, mut now: Listing) -> Listing {
    let is_equal = |path: &Path| match (before.get(path), now.get(path)) {
        (Some(old), Some(new)) => (&old.0, old.1, old.2, &old.3) == (&new.0, new.1, new.2, &new.3),
        _ => false,
    };
    let equal: Vec<_> = before.iter().filter(|(path, old)| is_equal(path) && is_equal(&old.4)).collect();
    for (path, old) in equal {
        let (one, other) = (now[path].4.clone(), now[&old.4].4.clone());
        let (first, later) = if one < other { (one, other) } else { (other, one) };
        now.values_mut().filter(|entry| entry.4 == later).for_each(|entry| entry.4.clone_from(&first));
    }
    now
}

#[test]
fn a_time_that_a_file_has_already_leaves_its_names_together() {
    if is_skipped("a_time_that_a_file_has") {
        return;
    }
    let before = [Act::Write(4, 0), Act::Link(0, 1), Act::Touch(4)];
    let (host, untouched, seen) = run(&before, &[Act::Touch(0)], &[]);
    assert_ne!(seen, untouched, "the guest has a copy");
    if let Some(mut overlay) = host.open() {
        overlay.commit(&[], false).unwrap();
    }
    assert_eq!(host.listing(), untouched);
    assert_eq!(committed(&untouched, seen), untouched);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_guests_do_the_commit_is_what_they_saw(before in acts(), first in acts(), second in acts()) {
        if is_skipped("whatever_guests_do") {
            return Ok(());
        }
        let (host, untouched, seen) = run(&before, &first, &second);
        prop_assert_eq!(&host.listing(), &untouched);
        if let Some(mut overlay) = host.open() {
            overlay.commit(&[], false).unwrap();
        }
        prop_assert_eq!(host.listing(), committed(&untouched, seen));
        prop_assert!(host.open().is_none());
    }

    /// The list of changes is that of a comparison of the two trees, and nothing else.
    #[test]
    fn the_changes_are_what_a_comparison_of_the_trees_finds(before in acts(), first in acts(), second in acts()) {
        if is_skipped("the_changes_are_what_a_comparison") {
            return Ok(());
        }
        let (host, untouched, seen) = run(&before, &first, &second);
        prop_assert_eq!(&host.listing(), &untouched);
        let listed: BTreeMap<_, _> = if host.open().is_some() { differences(&host).into_iter().collect() } else {
            BTreeMap::new()
        };
        // Listings do not tell which symbolic links are one.
        let kind = |path: &str| seen.get(Path::new(path)).map_or("", |entry| &entry.0);
        let without_links = |mut differences: BTreeMap<String, Difference>| {
            let is_of_symlink = |path: &str| kind(path).contains("is_symlink: true");
            differences.retain(|path, difference| *difference != Difference::Linked || !is_of_symlink(path));
            differences
        };
        prop_assert_eq!(without_links(listed), compared(&untouched, &seen));
    }

    #[test]
    fn a_commit_by_parts_comes_to_the_same(before in acts(), acts in acts(), parts in parts()) {
        if is_skipped("a_commit_by_parts") {
            return Ok(());
        }
        let (host, _, seen) = run(&before, &acts, &[]);
        for part in parts {
            if let Some(mut overlay) = host.open() {
                match overlay.commit(&[name(part)], false) {
                    Ok(_) | Err(Error::Unchanged(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            // Both layers together are what they were, but for names of one file that was committed in parts.
            let now = host.guest(|_| ());
            prop_assert_eq!(now.keys().collect::<Vec<_>>(), seen.keys().collect::<Vec<_>>());
        }
        if let Some(mut overlay) = host.open() {
            overlay.commit(&[], false).unwrap();
        }
        let content = |listing: crate::support::Listing| {
            listing.into_iter().map(|(path, entry)| (path, entry.0, entry.1, entry.3)).collect::<Vec<_>>()
        };
        prop_assert_eq!(content(host.listing()), content(seen));
    }
}
