//! Fails every message of a scenario once: no panic, nothing lost, and references and handles balance.

use std::sync::Arc;

use transom_conformance::memfs::MemFs;
use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    fs::{Fs, OpenOptions},
    session::{Session, SessionConfig},
};
use transom_wire::ops::init::InitFlags;

use crate::{
    MODES,
    peer::{Peer, Plain},
};

/// A bit of everything.
fn scenario(fs: &Fs<Plain>) -> Result<(), Errno> {
    fs.create_dir_all("a/b", 0o755)?;
    let file = fs.open("a/b/file", &OpenOptions::new().read(true).write(true).create(true))?;
    file.write_all(&[1; 100_000])?;
    let mut bytes = vec![0; 200_000];
    // A read may stop at an error after its first bytes.
    assert!(file.read_at(0, &mut bytes)? <= 100_000);
    for at in 0..20 {
        file.read_at(at * 4096, &mut bytes[..4096])?;
    }
    file.set_len(5000)?;
    file.sync_all()?;
    file.close()?;
    fs.symlink("b", "a/link")?;
    fs.metadata("a/link/file")?;
    fs.hard_link("a/b/file", "a/second")?;
    fs.rename("a/second", "a/third")?;
    for entry in fs.read_dir("a")? {
        entry?;
    }
    fs.set_permissions("a/third", 0o600)?;
    fs.open("a/third", &OpenOptions::new().append(true))?.write_all(b"more")?;
    fs.open("a/third", &OpenOptions::new().write(true).truncate(true))?;
    fs.remove_file("a/third")?;
    fs.remove_dir_all("a")
}

#[test]
fn whichever_message_fails_all_is_given_back() {
    for mode in MODES {
        for config in [SessionConfig::default(), SessionConfig::default().with(InitFlags::WRITEBACK_CACHE)] {
            let count = run(mode, config, u64::MAX);
            for nth in 0..count {
                run(mode, config, nth);
            }
        }
    }
}

/// Fails the `nth` message after INIT; returns the number of messages.
fn run(mode: CacheMode, config: SessionConfig, nth: u64) -> u64 {
    let peer = Peer::new(MemFs::default());
    let fs = Fs::mount(
        Session::begin(Arc::clone(&peer) as _, Arc::default(), config).unwrap(),
        CacheOptions { mode, ..CacheOptions::default() },
    );
    peer.fail(nth);
    let result = scenario(&fs);
    peer.fail(u64::MAX);
    match result {
        Ok(()) => {}
        // The error with which the peer fails.
        Err(Errno::NOMEM) if nth != u64::MAX => {}
        Err(error) => panic!("{mode:?}, message {nth}: {error}"),
    }
    let messages = peer.messages();
    fs.volume().drop_names();
    fs.volume().session().flush_forgets().unwrap();
    assert_eq!(peer.fs().held().lookups, 0, "{mode:?}, message {nth}");
    peer.fs().check_accounts();
    assert_eq!(fs.volume().kept_bytes(), 0, "{mode:?}, message {nth}");
    drop(fs);
    assert_eq!(peer.fs().held().handles, 0, "{mode:?}, message {nth}");
    messages
}
