//! Guests of one coherence group, each with a server of its own in this process.

use std::{fs::File, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use transom_guest::{
    cache::{CacheMode, CacheOptions},
    fs::Fs,
    session::SessionConfig,
    volume::{Regions, Volume},
};
use transom_host::{
    group::{Group, GroupLocation, TableFile},
    passthrough::{Config, Passthrough},
    sysfd::ProcFds,
};

use crate::{
    peer::{self, Peer, Plain},
    table,
};

/// Creates a private directory for a group.
pub(crate) fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    place
}

/// Joins the group at `place` with a server and a guest that shares `dir`.
pub(crate) fn member(
    place: &Path,
    dir: &Path,
    config: Config,
    session: SessionConfig,
    options: CacheOptions,
) -> Member {
    let file = TableFile::open(&GroupLocation::Directory(place.to_owned()), None).unwrap();
    let group = Group::join(&file, File::open(dir).unwrap(), &ProcFds::open().unwrap()).unwrap();
    let versions = table::map(group.table_fd(), group.table_len_bytes() as usize);
    let peer = Peer::new(Passthrough::open(dir, config).unwrap().with_group(group));
    let options = CacheOptions { mode: CacheMode::Shared, ..options };
    let regions = Regions { versions: Some(versions), ..Regions::default() };
    let volume = Volume::with_regions(peer::session_for(&peer, session), options, regions);
    (peer, Fs::new(Arc::new(volume)))
}

/// A server, and the guest whose session it serves.
pub(crate) type Member = (Arc<Peer<Passthrough>>, Fs<Plain>);

fn two() -> (tempfile::TempDir, tempfile::TempDir, [Member; 2]) {
    let (place, dir) = (place(), tempfile::tempdir().unwrap());
    let guests = [(); 2].map(|()| {
        let (session, options) = (SessionConfig::default(), CacheOptions::default());
        member(place.path(), dir.path(), Config::default(), session, options)
    });
    (place, dir, guests)
}

#[test]
fn what_one_guest_changes_the_other_sees_and_nothing_else_is_asked() {
    let (_place, _dir, [(_, one), (peer, two)]) = two();
    for name in ["a", "b"] {
        one.create_dir(name, 0o755).unwrap();
        one.create(format!("{name}/file")).unwrap().write_all(b"first").unwrap();
    }
    let read = |fs: &Fs<Plain>, path: &str| {
        let mut bytes = [0; 6];
        let len = fs.open_read(path).unwrap().read_at(0, &mut bytes).unwrap();
        bytes[..len].to_vec()
    };
    let stat = |path: &str| two.metadata(path).map(|found| found.len());
    assert_eq!((read(&two, "a/file"), stat("b/file")), (b"first".to_vec(), Ok(5)));
    stat("a/file").unwrap();
    let before = peer.messages();
    assert_eq!((stat("a/file"), stat("b/file")), (Ok(5), Ok(5)));
    assert_eq!(peer.messages(), before);
    one.create("a/file").unwrap().write_all(b"second").unwrap();
    assert_eq!(stat("b/file"), Ok(5));
    assert_eq!(peer.messages(), before, "of the other directory nothing has changed");
    assert_eq!((read(&two, "a/file"), stat("a/file")), (b"second".to_vec(), Ok(6)));
    one.rename("a/file", "b/other").unwrap();
    assert!(stat("a/file").is_err() && stat("b/other") == Ok(6));
}

#[test]
fn a_reader_never_sees_less_than_a_writer_has_completed() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const ROUNDS: u64 = 3000;
    let (_place, _dir, [(_, one), (_, two)]) = two();
    one.create("file").unwrap().write_all(&0_u64.to_le_bytes()).unwrap();
    one.create("0").unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = one.open("file", &transom_guest::fs::OpenOptions::new().write(true)).unwrap();
            for round in 1..=ROUNDS {
                file.write_at(0, &round.to_le_bytes()).unwrap();
                one.rename(format!("{}", round - 1), format!("{round}")).unwrap();
                done.store(round, Ordering::SeqCst);
            }
        });
        let file = two.open_read("file").unwrap();
        let mut seen = 0;
        while seen < ROUNDS {
            seen = done.load(Ordering::SeqCst);
            let mut bytes = [0; 8];
            assert_eq!(file.read_at(0, &mut bytes), Ok(8));
            let found = u64::from_le_bytes(bytes);
            assert!(found >= seen, "read {found} after {seen} was written");
            if seen > 0 {
                assert!(!two.exists(format!("{}", seen - 1)).unwrap(), "{seen}: the old name is still there");
            }
        }
    });
}
