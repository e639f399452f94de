//! A server that removes and renames only what the guest references, like QEMU's daemon in C.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    fs::Fs,
};
use transom_wire::{
    attr::{Attr, EntryOut},
    ops::init::InitFlags,
};
use zerocopy::IntoBytes as _;

use crate::{
    MODES,
    peer::Plain,
    script::{reply, session_with},
};

const LOOKUP: u32 = 1;
const UNLINK: u32 = 10;
const RMDIR: u32 = 11;
const RENAME: u32 = 12;

/// A share where everything is a file that no reply allows to be cached; with `is_broken`, no reference helps. Counts
/// the requests that remove or rename.
fn share(mode: CacheMode, is_broken: bool) -> (Fs<Plain>, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let (counted, mut is_known) = (Arc::clone(&asked), false);
    let attr = Attr { mode: 0o100_600.into(), nlink: 1.into(), ..Attr::default() };
    let entry = EntryOut { nodeid: 7.into(), attr, ..EntryOut::default() };
    let (_script, session) = session_with(InitFlags::all(), move |header, _| match header.opcode.get() {
        LOOKUP => {
            is_known = true;
            reply(header, 0, entry.as_bytes())
        }
        UNLINK | RMDIR | RENAME => {
            counted.fetch_add(1, Ordering::SeqCst);
            let error = if is_known && !is_broken { 0 } else { -5 };
            is_known = false;
            reply(header, error, &[])
        }
        _ => reply(header, 0, &[]),
    });
    (Fs::mount(session, CacheOptions { mode, ..CacheOptions::default() }), asked)
}

#[test]
fn what_is_removed_or_moved_is_asked_for_where_the_server_does_not_know_it() {
    for mode in MODES {
        let (fs, _) = share(mode, false);
        assert_eq!(fs.remove_file("/a"), Ok(()));
        assert_eq!(fs.remove_dir("/b"), Ok(()));
        assert_eq!(fs.rename("/c", "/d"), Ok(()));
    }
}

#[test]
fn an_error_that_stays_is_told_and_nothing_is_tried_for_ever() {
    for mode in MODES {
        let (fs, asked) = share(mode, true);
        assert_eq!(fs.remove_file("/a"), Err(Errno::IO));
        assert_eq!(asked.swap(0, Ordering::SeqCst), 2);
        assert_eq!(fs.rename("/c", "/d"), Err(Errno::IO));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
