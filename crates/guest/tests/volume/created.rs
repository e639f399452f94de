//! Files that another client creates just before the guest does.

use std::path::Path;

use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    fs::{Credentials, Fs, OpenOptions},
    session::{Session, SessionConfig},
};
use transom_host::passthrough::{Config, Passthrough};
use transom_wire::{Opcode, ops::init::InitFlags};

use std::sync::Arc;

use crate::{
    MODES,
    peer::{Peer, Plain},
};

fn mount(dir: &Path, mode: CacheMode, writeback: bool) -> (Arc<Peer<Passthrough>>, Fs<Plain>) {
    let peer = Peer::new(Passthrough::open(dir, Config { writeback, ..Config::default() }).unwrap());
    let config =
        if writeback { SessionConfig::default().with(InitFlags::WRITEBACK_CACHE) } else { SessionConfig::default() };
    let session = Session::begin(Arc::clone(&peer) as _, Arc::default(), config).unwrap();
    (peer, Fs::mount(session, CacheOptions { mode, ..CacheOptions::default() }))
}

/// Runs `act` once the guest has been told that a name is absent.
fn meanwhile(peer: &Peer<Passthrough>, act: impl FnOnce() + Send + 'static) {
    peer.meanwhile(Opcode::Lookup, act);
}

#[test]
fn what_is_kept_of_a_file_goes_when_it_is_emptied_by_creating_another_name_of_it() {
    for mode in MODES {
        for writeback in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (known, new) = (dir.path().join("known"), dir.path().join("new"));
            let (peer, fs) = mount(dir.path(), mode, writeback);
            let file = fs.open("known", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
            file.write_all(&[7; 10_000]).unwrap();
            assert_eq!(file.read_at(0, &mut [0; 10_000]), Ok(10_000));
            meanwhile(&peer, {
                let (known, new) = (known.clone(), new.clone());
                move || std::fs::hard_link(known, new).unwrap()
            });
            let emptied = fs.create("new").unwrap();
            assert_eq!(emptied.inode().nodeid(), file.inode().nodeid());
            assert_eq!(file.metadata().unwrap().len(), 0, "{mode:?} {writeback}");
            assert_eq!(file.read_at(0, &mut [0; 10_000]), Ok(0), "{mode:?} {writeback}");
            emptied.write_all(b"new").unwrap();
            file.sync_all().unwrap();
            emptied.sync_all().unwrap();
            assert_eq!(std::fs::read(known).unwrap(), b"new", "{mode:?} {writeback}");
        }
    }
}

#[test]
fn a_file_that_is_there_by_then_is_opened_with_the_rights_to_it_only() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let (peer, fs) = mount(dir.path(), mode, false);
        let fs = fs.with_credentials(Credentials { uid: 1000, gid: 1000, ..Credentials::default() });
        let options = OpenOptions::new().read(true).write(true).create(true);
        for (name, permissions, expected) in [("secret", 0o600, Err(Errno::ACCESS)), ("public", 0o666, Ok(5))] {
            let path = dir.path().join(name);
            meanwhile(&peer, move || {
                std::fs::write(&path, b"hello").unwrap();
                std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(permissions)).unwrap();
            });
            let found = fs.open(name, &options).map(|file| file.metadata().unwrap().len());
            assert_eq!(found, expected, "{mode:?} {name}");
        }
    }
}

#[test]
fn a_file_that_is_to_be_new_is_not_when_it_is_there_by_then() {
    let dir = tempfile::tempdir().unwrap();
    let (peer, fs) = mount(dir.path(), CacheMode::Auto, false);
    let path = dir.path().join("file");
    meanwhile(&peer, move || std::fs::write(path, b"theirs").unwrap());
    let opened = fs.open("file", &OpenOptions::new().write(true).create_new(true).truncate(true));
    assert_eq!(opened.map(|_| ()), Err(Errno::EXIST));
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"theirs");
}

#[test]
fn a_symbolic_link_that_is_there_by_then_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (peer, fs) = mount(dir.path(), CacheMode::Auto, false);
    let link = dir.path().join("link");
    meanwhile(&peer, move || std::os::unix::fs::symlink("target", link).unwrap());
    fs.create("link").unwrap().write_all(b"through").unwrap();
    assert_eq!(std::fs::read(dir.path().join("target")).unwrap(), b"through");
}
