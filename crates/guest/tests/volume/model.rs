//! Random operations on names by several guests of one share, compared with a model of paths.

use std::collections::BTreeMap;

use proptest::prelude::*;
use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    fs::Fs,
    session::SessionConfig,
};
use transom_host::passthrough::{CachePolicy, Config, Passthrough};

use crate::{
    group,
    peer::{self, Peer, Plain},
};

/// Few names, so that operations collide.
const PATHS: [&str; 10] = ["a", "b", "a/a", "a/b", "b/a", "b/b", "a/a/a", "a/a/b", "b/a/a", "b/b/b"];

#[derive(Debug, Clone)]
enum Step {
    MakeDir(usize),
    Write(usize, u8),
    Remove(usize),
    RemoveDir(usize),
    Rename(usize, usize),
    Look(usize),
    List(usize),
}

/// A directory, or a file with its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Directory,
    File(u8),
}

/// What exists, by path.
type Model = BTreeMap<String, Node>;

/// A guest and what it does.
fn step() -> impl Strategy<Value = (usize, Step)> {
    let path = 0..PATHS.len();
    let step = prop_oneof![
        3 => path.clone().prop_map(Step::MakeDir),
        3 => (path.clone(), any::<u8>()).prop_map(|(path, byte)| Step::Write(path, byte)),
        1 => path.clone().prop_map(Step::Remove),
        1 => path.clone().prop_map(Step::RemoveDir),
        3 => (path.clone(), path.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        4 => path.clone().prop_map(Step::Look),
        1 => path.prop_map(Step::List),
    ];
    (0..3_usize, step)
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

/// Errors: why there can be nothing at `path`.
fn way(model: &Model, path: &str) -> Result<(), Errno> {
    let Some(parent) = parent(path) else { return Ok(()) };
    way(model, parent)?;
    match model.get(parent) {
        Some(Node::Directory) => Ok(()),
        Some(Node::File(_)) => Err(Errno::NOTDIR),
        None => Err(Errno::NOENT),
    }
}

fn is_empty(model: &Model, path: &str) -> bool {
    !model.keys().any(|other| parent(other) == Some(path))
}

fn make_dir(model: &mut Model, path: &str) -> Result<(), Errno> {
    way(model, path)?;
    if model.contains_key(path) {
        return Err(Errno::EXIST);
    }
    model.insert(path.into(), Node::Directory);
    Ok(())
}

fn write(model: &mut Model, path: &str, byte: u8) -> Result<(), Errno> {
    way(model, path)?;
    if model.get(path) == Some(&Node::Directory) {
        return Err(Errno::ISDIR);
    }
    model.insert(path.into(), Node::File(byte));
    Ok(())
}

fn remove(model: &mut Model, path: &str, is_directory: bool) -> Result<(), Errno> {
    way(model, path)?;
    match (model.get(path), is_directory) {
        (None, _) => return Err(Errno::NOENT),
        (Some(Node::Directory), false) => return Err(Errno::ISDIR),
        (Some(Node::File(_)), true) => return Err(Errno::NOTDIR),
        (Some(Node::Directory), true) if !is_empty(model, path) => return Err(Errno::NOTEMPTY),
        _ => {}
    }
    model.remove(path);
    Ok(())
}

fn rename(model: &mut Model, from: &str, to: &str) -> Result<(), Errno> {
    way(model, from)?;
    way(model, to)?;
    let node = model.get(from).cloned().ok_or(Errno::NOENT)?;
    if to.starts_with(&format!("{from}/")) {
        return Err(Errno::INVAL);
    }
    if from.starts_with(&format!("{to}/")) {
        return Err(Errno::NOTEMPTY);
    }
    if from == to {
        return Ok(());
    }
    match (&node, model.get(to)) {
        (Node::Directory, Some(Node::File(_))) => return Err(Errno::NOTDIR),
        (Node::File(_), Some(Node::Directory)) => return Err(Errno::ISDIR),
        (Node::Directory, Some(Node::Directory)) if !is_empty(model, to) => return Err(Errno::NOTEMPTY),
        _ => {}
    }
    let inner = format!("{from}/");
    let moved: Vec<_> = model.keys().filter(|path| path.starts_with(&inner)).cloned().collect();
    for path in moved {
        let node = model.remove(&path).unwrap();
        model.insert(format!("{to}/{}", &path[inner.len()..]), node);
    }
    model.remove(from);
    model.insert(to.into(), node);
    Ok(())
}

fn look(model: &Model, path: &str) -> Result<Node, Errno> {
    way(model, path)?;
    model.get(path).cloned().ok_or(Errno::NOENT)
}

fn list(model: &Model, path: &str) -> Vec<Vec<u8>> {
    let inner = model.keys().filter(|other| parent(other) == Some(path));
    inner.map(|path| path.rsplit('/').next().unwrap().as_bytes().to_vec()).collect()
}

fn found(fs: &Fs<Plain>, path: &str) -> Result<Node, Errno> {
    if fs.metadata(path)?.is_dir() {
        return Ok(Node::Directory);
    }
    let mut byte = [0];
    assert_eq!(fs.open_read(path)?.read_at(0, &mut byte), Ok(1));
    Ok(Node::File(byte[0]))
}

fn do_step(fs: &Fs<Plain>, model: &mut Model, step: &Step) {
    match *step {
        Step::MakeDir(path) => assert_eq!(fs.create_dir(PATHS[path], 0o755), make_dir(model, PATHS[path])),
        Step::Write(path, byte) => {
            let written = fs.create(PATHS[path]).and_then(|file| file.write_all(&[byte]));
            assert_eq!(written, write(model, PATHS[path], byte));
        }
        Step::Remove(path) => assert_eq!(fs.remove_file(PATHS[path]), remove(model, PATHS[path], false)),
        Step::RemoveDir(path) => assert_eq!(fs.remove_dir(PATHS[path]), remove(model, PATHS[path], true)),
        Step::Rename(from, to) => {
            assert_eq!(fs.rename(PATHS[from], PATHS[to]), rename(model, PATHS[from], PATHS[to]));
        }
        Step::Look(path) => assert_eq!(found(fs, PATHS[path]), look(model, PATHS[path])),
        Step::List(path) => match fs.read_dir(PATHS[path]) {
            Ok(entries) => {
                let mut names: Vec<_> = entries.map(|entry| entry.unwrap().name).collect();
                names.sort();
                assert_eq!(names, list(model, PATHS[path]));
            }
            Err(_) => assert_ne!(look(model, PATHS[path]), Ok(Node::Directory)),
        },
    }
}

fn run(guests: usize, mode: CacheMode, cache: CachePolicy, steps: &[(usize, Step)]) {
    let (dir, place) = (tempfile::tempdir().unwrap(), group::place());
    let guest = || {
        let config = Config { cache, ..Config::default() };
        let options = CacheOptions { mode, names_max: 64, ..CacheOptions::default() };
        match mode {
            CacheMode::Shared => group::member(place.path(), dir.path(), config, SessionConfig::default(), options).1,
            CacheMode::None | CacheMode::Auto | CacheMode::Always => {
                let peer = Peer::new(Passthrough::open(dir.path(), config).unwrap());
                Fs::mount(peer::session(&peer), options)
            }
        }
    };
    let guests: Vec<Fs<Plain>> = (0..guests).map(|_| guest()).collect();
    let mut model = Model::new();
    for (guest, step) in steps {
        do_step(&guests[guest % guests.len()], &mut model, step);
    }
    for (path, fs) in PATHS.iter().zip(guests.iter().cycle()) {
        assert_eq!(found(fs, path), look(&model, path), "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn guests_without_time_see_each_others_changes_at_once(steps in prop::collection::vec(step(), 1..100)) {
        run(3, CacheMode::Auto, CachePolicy::Never, &steps);
    }

    #[test]
    fn guests_that_keep_nothing_see_each_others_changes_at_once(steps in prop::collection::vec(step(), 1..100)) {
        run(2, CacheMode::None, CachePolicy::Auto, &steps);
    }

    #[test]
    fn guests_of_a_group_see_each_others_changes_at_once(steps in prop::collection::vec(step(), 1..100)) {
        run(3, CacheMode::Shared, CachePolicy::Auto, &steps);
    }

    #[test]
    fn a_guest_alone_that_keeps_everything_sees_its_own_changes(steps in prop::collection::vec(step(), 1..100)) {
        run(1, CacheMode::Always, CachePolicy::Auto, &steps);
    }
}
