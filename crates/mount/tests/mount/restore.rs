//! Daemons that fail while they are asked for what is open: the mount goes on to the next one, which is asked for all
//! of it.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use transom_user::daemon::Program;

use crate::{
    common,
    lasting::{Lasting, options},
    needs_mounts, unmount,
};

#[test]
fn a_daemon_that_dies_while_it_learns_what_is_open_is_as_none() {
    needs_mounts!();
    let mut program = common::transomd();
    program.args = options().daemon_args();
    let mut lasting = Lasting::start(&program);
    fs::create_dir_all(lasting.at("a/b")).unwrap();
    let files: Vec<_> = (0..200)
        .map(|index| {
            let path = lasting.at(&format!("a/b/{index}"));
            fs::write(&path, index.to_string()).unwrap();
            File::open(path).unwrap()
        })
        .collect();
    // Each as soon as it is there.
    for _ in 0..3 {
        lasting.kill();
    }
    for (index, file) in files.iter().enumerate() {
        assert_eq!(std::io::read_to_string(file).unwrap(), index.to_string());
    }
    drop(files);
    unmount(&mut lasting.mount);
}

/// Files to open: more than the descriptors without which transomd does not start.
const FILES: u32 = 800;
/// Starts the daemon, the second time with as few descriptors as it takes.
const STARTER: &str = r#"#!/bin/sh
echo $$ >>starts
test $(wc -l <starts) = 2 && few=--rlimit-nofile=701
exec "$DAEMON" "$@" $few
"#;

#[test]
fn a_daemon_that_lacks_descriptors_is_given_up_and_the_next_one_finds_everything() {
    needs_mounts!();
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::from(4 * FILES);
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        println!("SKIPPED: it takes {wanted} open files, and the hard limit is {:?}", limit.maximum);
        return;
    }
    let current = limit.current.map(|current| current.max(wanted));
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let starter = dir.path().join("starter");
    fs::write(&starter, STARTER.replace("$DAEMON", common::transomd().path.to_str().unwrap())).unwrap();
    fs::set_permissions(&starter, fs::Permissions::from_mode(0o755)).unwrap();
    let program = Program { args: options().daemon_args(), dir: Some(dir.path().to_owned()), ..Program::new(starter) };
    let mut lasting = Lasting::start(&program);
    let files: Vec<_> = (0..FILES)
        .map(|index| {
            let path = lasting.at(&index.to_string());
            fs::write(&path, index.to_string()).unwrap();
            File::open(path).unwrap()
        })
        .collect();
    lasting.kill();
    for (index, file) in files.iter().enumerate() {
        assert_eq!(std::io::read_to_string(file).unwrap(), index.to_string());
    }
    assert_eq!(fs::read_to_string(dir.path().join("starts")).unwrap().lines().count(), 3);
    drop(files);
    unmount(&mut lasting.mount);
}
