use std::{
    fs::{self, File},
    path::Path,
};

use super::*;
use crate::{Author, EntryName};

fn handle(path: &Path) -> ObjectHandle {
    ObjectHandle::of(File::open(path).unwrap()).unwrap()
}

fn change<'a>(kind: ChangeKind<'a>, parent: &'a ObjectHandle, is_dir: bool) -> Change<'a> {
    let place = Some(EntryName { parent: Object::Handle(parent.as_ref()), name: b"name" });
    Change { kind, is_dir, place, object: None, author: Author::Other(None) }
}

fn renamed<'a>(from: &'a ObjectHandle, to: &'a ObjectHandle) -> Change<'a> {
    let to = EntryName { parent: Object::Handle(to.as_ref()), name: b"other" };
    change(ChangeKind::Renamed { to }, from, true)
}

/// A tree with two directories in it, and two outside.
fn place() -> Option<(tempfile::TempDir, Tree)> {
    let place = tempfile::tempdir().unwrap();
    for name in ["share/a", "share/b", "out/a", "out/b"] {
        fs::create_dir_all(place.path().join(name)).unwrap();
    }
    match Tree::new(File::open(place.path().join("share")).unwrap()) {
        Ok(tree) => Some((place, tree)),
        Err(error) => {
            println!("SKIPPED: file handles cannot be opened here: {error}");
            None
        }
    }
}

#[test]
fn renames_on_one_side_of_the_border_forget_nothing() {
    let Some((place, mut tree)) = place() else { return };
    let [a, b, outer_a, outer_b] =
        ["share/a", "share/b", "out/a", "out/b"].map(|name| handle(&place.path().join(name)));
    for of in [&a, &b, &outer_a, &outer_b] {
        tree.narrow(&change(ChangeKind::Created, of, false));
    }
    assert_eq!(tree.known.len(), 4);
    for (from, to) in [(&a, &b), (&outer_a, &outer_b), (&a, &a)] {
        tree.narrow(&renamed(from, to));
        assert_eq!(tree.known.len(), 4, "nothing has come into the tree or left it");
    }
    // A file has nothing below it.
    tree.narrow(&Change { is_dir: false, ..renamed(&a, &outer_a) });
    assert_eq!(tree.known.len(), 4);
    tree.narrow(&renamed(&a, &outer_a));
    assert_eq!(tree.known.len(), 0, "what was below it may be known by the wrong place");
}

#[test]
fn a_directory_counts_where_it_is_after_it_has_crossed_the_border() {
    let Some((place, mut tree)) = place() else { return };
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("share/a/moving")).unwrap();
    let [a, outer, moving] = ["share/a", "out/a", "share/a/moving"].map(|name| handle(&at(name)));
    let has = |tree: &mut Tree| tree.narrow(&change(ChangeKind::Created, &moving, false)).is_some();
    assert!(has(&mut tree));
    for (from, to, parents, is_inside) in [
        ("share/a/moving", "out/a/moving", (&a, &outer), false),
        ("out/a/moving", "out/a/again", (&outer, &outer), false),
        ("out/a/again", "share/a/back", (&outer, &a), true),
        ("share/a/back", "share/a/moving", (&a, &a), true),
    ] {
        fs::rename(at(from), at(to)).unwrap();
        tree.narrow(&renamed(parents.0, parents.1));
        assert_eq!(has(&mut tree), is_inside, "{to}");
    }
    // Its parent crosses the border, with it.
    fs::rename(at("share/a"), at("out/whole")).unwrap();
    let (share, out) = (handle(&at("share")), handle(&at("out")));
    tree.narrow(&renamed(&share, &out));
    assert!(!has(&mut tree));
}

/// The answer to the first question is already of the second move, and wrong for what is below the first directory.
/// The second move is still to be read, and corrects it.
#[test]
fn moves_that_are_read_late_leave_nothing_wrong_behind() {
    let Some((place, mut tree)) = place() else { return };
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("share/a/moving/below")).unwrap();
    let [share, out, a, outer, below] =
        ["share", "out", "share/a", "out/a", "share/a/moving/below"].map(|name| handle(&at(name)));
    let has = |tree: &mut Tree| tree.narrow(&change(ChangeKind::Created, &below, false)).is_some();
    assert!(has(&mut tree));
    fs::rename(at("share/a/moving"), at("out/a/moving")).unwrap();
    fs::rename(at("share/a"), at("out/left")).unwrap();
    tree.narrow(&renamed(&a, &outer));
    tree.narrow(&renamed(&share, &out));
    assert!(!has(&mut tree));
}

#[test]
fn a_directory_that_came_from_one_that_is_gone_counts_where_it_is() {
    let Some((place, mut tree)) = place() else { return };
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("out/gone/moving")).unwrap();
    let [share, gone, moving] = ["share", "out/gone", "out/gone/moving"].map(|name| handle(&at(name)));
    let has = |tree: &mut Tree| tree.narrow(&change(ChangeKind::Created, &moving, false)).is_some();
    assert!(!has(&mut tree));
    fs::rename(at("out/gone/moving"), at("share/moving")).unwrap();
    fs::remove_dir(at("out/gone")).unwrap();
    tree.narrow(&renamed(&gone, &share));
    assert!(has(&mut tree));
}
