//! A server that knows almost no operations: the fallback of each, and that it is requested once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use transom_guest::Errno;
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::{Attr, AttrOut, EntryOut},
    header::InHeader,
    ops::{init::InitFlags, mkdir::MkdirIn},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    peer::{ROOT, name},
    script::{reply, session_with},
};

const NODE: NodeId = NodeId(5);
const FH: Handle = Handle(0);

fn attributes() -> Attr {
    Attr { mode: 0o100_644.into(), size: 100.into(), rdev: 0x0120_0345.into(), ..Attr::default() }
}

#[test]
fn what_the_server_does_not_know_is_asked_for_once() {
    let asked: Arc<Mutex<HashMap<u32, u32>>> = Arc::default();
    let count = Arc::clone(&asked);
    let (_script, session) = session_with(InitFlags::empty(), move |header, _| {
        *count.lock().unwrap().entry(header.opcode.get()).or_default() += 1;
        match Opcode::from_u32(header.opcode.get()) {
            Some(Opcode::Getattr | Opcode::Setattr) => {
                reply(header, 0, AttrOut { attr: attributes(), ..AttrOut::default() }.as_bytes())
            }
            Some(Opcode::Mknod) => {
                let entry = EntryOut { nodeid: 9.into(), attr: attributes(), ..EntryOut::default() };
                reply(header, 0, entry.as_bytes())
            }
            Some(Opcode::Destroy) => reply(header, 0, &[]),
            _ => reply(header, -38, &[]),
        }
    });
    for _ in 0..2 {
        assert_eq!(session.open(&ROOT, NODE, 0o1000).unwrap().fh, 0);
        assert_eq!(session.opendir(&ROOT, NODE, 0).unwrap().open_flags, 0b1010);
        session.release(&ROOT, NODE, FH, 0, 0, 0).unwrap();
        session.releasedir(&ROOT, NODE, FH, 0).unwrap();
        session.flush(&ROOT, NODE, FH, 0).unwrap();
        session.fsync(&ROOT, NODE, FH, 0).unwrap();
        session.fsyncdir(&ROOT, NODE, FH, 0).unwrap();
        session.syncfs(&ROOT, NODE).unwrap();
        session.access(&ROOT, NODE, 7).unwrap();
        assert_eq!(session.setxattr(&ROOT, NODE, b"user.a", b"", 0, 0), Err(Errno::OPNOTSUPP));
        assert_eq!(session.getxattr(&ROOT, NODE, b"user.a", &mut [0; 8]), Err(Errno::OPNOTSUPP));
        assert_eq!(session.listxattr(&ROOT, NODE, &mut []), Err(Errno::OPNOTSUPP));
        assert_eq!(session.removexattr(&ROOT, NODE, b"user.a"), Err(Errno::OPNOTSUPP));
        assert_eq!(session.fallocate(&ROOT, NODE, FH, 0, 1, 0), Err(Errno::OPNOTSUPP));
        assert_eq!(session.copy_file_range(&ROOT, (NODE, FH, 0), (NODE, FH, 9), 1, 0), Err(Errno::OPNOTSUPP));
        assert_eq!(session.tmpfile(&ROOT, NODE, 0o600, 2).err(), Some(Errno::OPNOTSUPP));
        assert_eq!(session.rename(&ROOT, (NODE, name("a")), (NODE, name("b")), 1), Err(Errno::INVAL));
        assert_eq!(session.link(&ROOT, NODE, NODE, name("a")).err(), Some(Errno::PERM));
        assert_eq!(session.ioctl(&ROOT, NODE, FH, 0, 1, 0, &[], &mut []), Err(Errno::NOTTY));
        assert_eq!(session.poll(&ROOT, NODE, FH, 0x1), Ok(1));
        let seek = |offset, whence| session.lseek(&ROOT, NODE, FH, offset, whence);
        assert_eq!(
            [seek(7, 3), seek(7, 4), seek(100, 3), seek(0, 9)],
            [Ok(7), Ok(100), Err(Errno::NXIO), Err(Errno::INVAL)]
        );
        let stat = session.statx(&ROOT, NODE, None, 0, 0x7ff).unwrap().stat;
        assert_eq!((stat.mask.get(), stat.mode.get(), stat.size.get()), (0x7ff, 0o100_644, 100));
        assert_eq!((stat.rdev_major.get(), stat.rdev_minor.get()), (3, 0x1245));
        let (entry, open) = session.create(&ROOT, NODE, name("new"), 0o644, 2).unwrap();
        assert_eq!((entry.nodeid.get(), open.fh.get()), (9, 0));
    }
    assert!(session.is_unsupported(Opcode::Open) && !session.is_unsupported(Opcode::Getattr));
    assert_eq!(session.counters().impossible_replies, 0);
    for (opcode, times) in asked.lock().unwrap().iter() {
        let opcode = Opcode::from_u32(*opcode).unwrap();
        let is_known = matches!(opcode, Opcode::Getattr | Opcode::Setattr | Opcode::Mknod);
        assert!(is_known || *times == 1, "{opcode:?} was sent {times} times");
    }
    assert!(!asked.lock().unwrap().contains_key(&(Opcode::Release as u32)), "there is nothing to release");
}

#[test]
fn the_umask_is_applied_here_where_the_server_does_not() {
    for (flags, mode) in [(InitFlags::empty(), 0o755), (InitFlags::DONT_MASK, 0o777)] {
        let (script, session) = session_with(flags, |header, _| reply(header, -1, &[]));
        session.mkdir(&ROOT, NODE, name("d"), 0o777).unwrap_err();
        let sent = script.last.lock().unwrap();
        let (arg, _) = MkdirIn::read_from_prefix(&sent[size_of::<InHeader>()..]).unwrap();
        assert_eq!((arg.mode.get(), arg.umask.get()), (mode, 0o022));
        drop(sent);
    }
}
