//! Attributes: which fields a SETATTR marks as valid, and what no file can have.

use std::sync::Arc;

use transom_guest::{
    Errno,
    cache::CacheOptions,
    session::{Caller, SessionConfig},
    volume::{SetAttributes, SetTime, Volume},
};
use transom_wire::{
    Opcode,
    attr::{AttrOut, EntryOut},
    header::InHeader,
    linux::O_WRONLY,
    ops::{
        init::InitFlags,
        open::OpenOut,
        setattr::SetattrIn,
        write::{WriteIn, WriteOut},
    },
};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use crate::{
    on_host,
    peer::{Plain, ROOT, name},
    script::{Script, init_out, reply},
};

/// Bits of `fuse_setattr_in.valid` in the kernel's header.
mod fattr {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 2;
    pub(super) const GID: u32 = 4;
    pub(super) const SIZE: u32 = 8;
    pub(super) const ATIME: u32 = 0x10;
    pub(super) const MTIME: u32 = 0x20;
    pub(super) const ATIME_NOW: u32 = 0x80;
    pub(super) const MTIME_NOW: u32 = 0x100;
    pub(super) const KILL_SUIDGID: u32 = 0x800;
}

const USER: Caller<'static> = Caller { uid: 1000, gid: 1000, ..ROOT };
const NOTHING: SetAttributes =
    SetAttributes { mode: None, uid: None, gid: None, size: None, atime: SetTime::Keep, mtime: SetTime::Keep };

/// A volume whose server has accepted `flags` and replies to every request with the attributes of a directory.
fn volume(flags: InitFlags) -> (Arc<Script>, Volume<Plain>) {
    let script = Script::new(move |header, _| reply(header, 0, init_out(flags).as_bytes()));
    let session = script.begin(SessionConfig::default().with(flags)).unwrap();
    script.turn(|header, _| {
        let mut out = AttrOut::new_zeroed();
        (out.attr.ino, out.attr.mode) = (1.into(), 0o040_755.into());
        reply(header, 0, out.as_bytes())
    });
    (script, Volume::new(session, CacheOptions::default()))
}

/// Returns the arguments of the request that changes the root, or the error without one.
fn sent(flags: InitFlags, caller: &Caller<'_>, set: &SetAttributes) -> Result<SetattrIn, Errno> {
    let (script, volume) = volume(flags);
    script.last.lock().unwrap().clear();
    let result = volume.setattr(caller, volume.root(), None, set);
    let last = std::mem::take(&mut *script.last.lock().unwrap());
    script.turn(|header, _| reply(header, 0, &[]));
    assert_eq!(result.is_err(), last.is_empty(), "what is refused is not sent");
    result?;
    let (header, args) = InHeader::read_from_prefix(&last).unwrap();
    assert_eq!(header.opcode.get(), Opcode::Setattr as u32);
    Ok(SetattrIn::read_from_prefix(args).unwrap().0)
}

fn valid(set: &SetAttributes) -> u32 {
    sent(InitFlags::empty(), &ROOT, set).unwrap().valid.get()
}

#[test]
fn a_request_marks_what_it_sets_and_nothing_else() {
    assert_eq!(valid(&SetAttributes { mode: Some(0), ..NOTHING }), fattr::MODE);
    assert_eq!(valid(&SetAttributes { uid: Some(0), ..NOTHING }), fattr::UID);
    assert_eq!(valid(&SetAttributes { gid: Some(0), ..NOTHING }), fattr::GID);
    assert_eq!(valid(&SetAttributes { size: Some(0), ..NOTHING }), fattr::SIZE);
    let at = SetTime::At(0, 0);
    assert_eq!(valid(&SetAttributes { atime: at, ..NOTHING }), fattr::ATIME);
    assert_eq!(valid(&SetAttributes { mtime: at, ..NOTHING }), fattr::MTIME);
    assert_eq!(valid(&SetAttributes { atime: SetTime::Now, ..NOTHING }), fattr::ATIME | fattr::ATIME_NOW);
    assert_eq!(valid(&SetAttributes { mtime: SetTime::Now, ..NOTHING }), fattr::MTIME | fattr::MTIME_NOW);
    let both = SetAttributes { atime: SetTime::Now, mtime: at, ..NOTHING };
    assert_eq!(valid(&both), fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME);
}

#[test]
fn times_and_sizes_arrive_as_they_were_given() {
    let set = SetAttributes {
        size: Some(i64::MAX as u64),
        atime: SetTime::At(-1, 999_999_999),
        mtime: SetTime::At(7, 8),
        ..NOTHING
    };
    let arg = sent(InitFlags::empty(), &ROOT, &set).unwrap();
    assert_eq!(arg.size.get(), i64::MAX as u64);
    assert_eq!((arg.atime.get() as i64, arg.atimensec.get()), (-1, 999_999_999));
    assert_eq!((arg.mtime.get() as i64, arg.mtimensec.get()), (7, 8));
}

/// utimensat(2): EINVAL for nanoseconds beyond 999,999,999. A size is an `off_t`.
#[test]
fn what_no_file_can_have_is_refused() {
    let refused = |set| sent(InitFlags::empty(), &ROOT, &set).err();
    for nanoseconds in [1_000_000_000, u32::MAX] {
        let time = SetTime::At(0, nanoseconds);
        assert_eq!(refused(SetAttributes { atime: time, ..NOTHING }), Some(Errno::INVAL));
        assert_eq!(refused(SetAttributes { mtime: time, ..NOTHING }), Some(Errno::INVAL));
    }
    for size in [i64::MAX as u64 + 1, u64::MAX] {
        assert_eq!(refused(SetAttributes { size: Some(size), ..NOTHING }), Some(Errno::FBIG));
    }
}

/// FUSE 7.33: with HANDLE_KILLPRIV_V2, whoever changes a size without CAP_FSETID has the server clear set-id bits.
#[test]
fn a_user_who_cuts_a_file_has_set_id_bits_cleared_if_that_is_the_servers_task() {
    let kills =
        |flags, caller: &Caller<'_>, set| sent(flags, caller, &set).unwrap().valid.get() & fattr::KILL_SUIDGID != 0;
    let cut = SetAttributes { size: Some(5), ..NOTHING };
    assert!(kills(InitFlags::HANDLE_KILLPRIV_V2, &USER, cut));
    assert!(!kills(InitFlags::HANDLE_KILLPRIV_V2, &ROOT, cut));
    assert!(!kills(InitFlags::empty(), &USER, cut));
    assert!(!kills(InitFlags::HANDLE_KILLPRIV_V2, &USER, SetAttributes { mode: Some(0o600), ..NOTHING }));
}

/// FUSE 7.33: likewise, WRITE has WRITE_KILL_SUIDGID.
#[test]
fn a_user_who_writes_to_a_file_has_set_id_bits_cleared_if_that_is_the_servers_task() {
    const KILL_SUIDGID: u32 = 1 << 2;
    for (flags, caller, kills) in [
        (InitFlags::HANDLE_KILLPRIV_V2, USER, true),
        (InitFlags::HANDLE_KILLPRIV_V2, ROOT, false),
        (InitFlags::empty(), USER, false),
    ] {
        let (script, volume) = volume(flags);
        script.turn(move |header, _| match Opcode::from_u32(header.opcode.get()) {
            Some(Opcode::Lookup) => {
                let mut entry = EntryOut { nodeid: 2.into(), ..EntryOut::new_zeroed() };
                (entry.attr.ino, entry.attr.mode) = (2.into(), 0o106_777.into());
                reply(header, 0, entry.as_bytes())
            }
            Some(Opcode::Write) => reply(header, 0, WriteOut { size: 4.into(), padding: 0.into() }.as_bytes()),
            Some(Opcode::Open) => reply(header, 0, OpenOut::new_zeroed().as_bytes()),
            _ => reply(header, 0, &[]),
        });
        let inode = volume.lookup(&caller, volume.root(), name("file")).unwrap();
        let file = volume.open(&caller, &inode, O_WRONLY).unwrap();
        assert_eq!(file.write_at(&caller, 0, b"data"), Ok(4));
        let last = script.last.lock().unwrap().clone();
        let (header, args) = InHeader::read_from_prefix(&last).unwrap();
        assert_eq!(header.opcode.get(), Opcode::Write as u32);
        let arg = WriteIn::read_from_prefix(args).unwrap().0;
        assert_eq!(arg.write_flags.get() & KILL_SUIDGID != 0, kills);
    }
}

#[test]
fn an_attribute_is_set_listed_read_and_removed() {
    let (_dir, fs) = on_host(transom_guest::cache::CacheMode::Auto);
    fs.create("file").unwrap();
    let get = || fs.get_xattr("file", "user.a", true);
    assert_eq!(get(), Err(Errno::NODATA));
    match fs.set_xattr("file", "user.a", b"value", 0, true) {
        Err(Errno::OPNOTSUPP) => {
            println!("SKIPPED: files in the temporary directory have no attributes of users");
            return;
        }
        other => other.unwrap(),
    }
    fs.set_xattr("file", "user.bc", b"", 0, true).unwrap();
    assert_eq!(get(), Ok(b"value".to_vec()));
    // The host may give files attributes of its own.
    let of_users = || {
        let mut names = fs.list_xattr("file", true).unwrap();
        names.retain(|name| name.starts_with(b"user."));
        names.sort();
        names
    };
    assert_eq!(of_users(), [b"user.a".to_vec(), b"user.bc".to_vec()]);
    fs.remove_xattr("file", "user.a", true).unwrap();
    assert_eq!(get(), Err(Errno::NODATA));
    assert_eq!(fs.remove_xattr("file", "user.a", true), Err(Errno::NODATA));
    assert_eq!(of_users(), [b"user.bc".to_vec()]);
}
