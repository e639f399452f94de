//! Servers whose directories do not end.

use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    fs::Fs,
};
use transom_wire::{
    attr::{Attr, AttrOut},
    dirent::Dirent,
    ops::init::InitFlags,
};
use zerocopy::IntoBytes as _;

use crate::{
    MODES,
    peer::Plain,
    script::{reply, session_with},
};

const GETATTR: u32 = 3;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;

/// Creates a share whose n-th READDIR returns one name for each of the cookies `entries(n)`.
fn share(mode: CacheMode, entries: impl Fn(u64) -> Vec<u64> + Send + 'static) -> Fs<Plain> {
    let mut count = 0;
    // Without READDIRPLUS, which would return the same entries with attributes.
    let flags = InitFlags::all().difference(InitFlags::DO_READDIRPLUS);
    let root = AttrOut { attr: Attr { mode: 0o040_755.into(), ..Attr::default() }, ..AttrOut::default() };
    let (_script, session) = session_with(flags, move |header, _| match header.opcode.get() {
        GETATTR => reply(header, 0, root.as_bytes()),
        OPENDIR => reply(header, 0, &[0; 16]),
        READDIR => {
            count += 1;
            reply(header, 0, &listing(&entries(count)))
        }
        _ => reply(header, 0, &[]),
    });
    Fs::mount(session, CacheOptions { mode, ..CacheOptions::default() })
}

fn listing(cookies: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for cookie in cookies {
        let dirent = Dirent { ino: 7.into(), off: (*cookie).into(), namelen: 4.into(), type_: 8.into() };
        bytes.extend_from_slice(dirent.as_bytes());
        bytes.extend_from_slice(b"name\0\0\0\0");
    }
    bytes
}

/// Returns the number of names in a listing, up to a limit, and how it ends.
fn read(fs: &Fs<Plain>) -> (usize, Option<Errno>) {
    let (mut names, mut error) = (0, None);
    for entry in fs.read_dir("/").unwrap().take(1000) {
        match entry {
            Ok(_) => names += 1,
            Err(found) => error = Some(found),
        }
    }
    (names, error)
}

#[test]
fn the_same_entries_again_whatever_is_asked_for_end_with_an_error() {
    for mode in MODES {
        let fs = share(mode, |_| vec![1, 2, 3]);
        assert_eq!(read(&fs), (3, Some(Errno::IO)));
        assert_eq!(fs.volume().session().counters().impossible_replies, 1);
        assert_eq!(read(&fs), (3, Some(Errno::IO)), "nothing of it was kept");
    }
}

#[test]
fn entries_without_cookies_end_with_an_error() {
    let fs = share(CacheMode::Auto, |_| vec![0, 0]);
    assert_eq!(read(&fs), (0, Some(Errno::IO)));
}

#[test]
fn a_circle_of_replies_ends_with_an_error() {
    let fs = share(CacheMode::Auto, |count| vec![100 + count % 7]);
    let (names, error) = read(&fs);
    assert!(names <= 21, "{names} names of seven");
    assert_eq!(error, Some(Errno::IO));
}

#[test]
fn cookies_in_any_order_are_a_listing() {
    let fs = share(CacheMode::Auto, |count| match count {
        1 => vec![u64::MAX, 5, 9],
        2 => vec![8, 8, 1],
        3 => vec![2],
        _ => vec![],
    });
    assert_eq!(read(&fs), (7, None));
}
