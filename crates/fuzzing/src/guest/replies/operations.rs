//! Every operation of a session, in any order; what it takes from a reply must be within what was requested.

use std::sync::Arc;

use transom_guest::{
    channel::{Sink, Source},
    session::{Caller, RaisedSlots, Session},
};
use transom_wire::{
    Handle, Name, NodeId,
    attr::{Attr, EntryOut},
    ops::{
        lk::{FileLock, LkIn},
        setattr::SetattrIn,
        write::WriteFlags,
    },
};
use zerocopy::FromZeros;

use super::{
    super::{platform::Lone, tape::Tape},
    server::Answers,
};

/// Room for data and lists.
const ROOM: usize = 600;

struct User<'a> {
    session: &'a Session<Lone>,
    tape: &'a Tape,
    caller: Caller<'a>,
    node: NodeId,
    fh: Handle,
}

/// Uses the session until the input is over, and ends it.
pub(super) fn until_over(session: Session<Lone>, tape: &Tape, server: &Answers) {
    let interrupt = session.interrupt();
    while !tape.is_over() {
        let (choice, who) = (tape.byte(), tape.byte());
        let interrupt = (who & 0x80 != 0).then_some(&interrupt);
        let group = (who & 0x40 != 0).then_some(7);
        let raised = RaisedSlots::default();
        let caller = Caller { uid: (who & 1).into(), queue: who.into(), group, interrupt, ..Caller::default() };
        let caller = Caller { raised: (who & 0x20 != 0).then_some(&raised), ..caller };
        let (node, fh) = (NodeId(u64::from(who >> 2 & 7) + 1), Handle(u64::from(who)));
        let user = User { session: &session, tape, caller, node, fh };
        match choice >> 6 {
            0 => user.name(choice),
            1 => user.data(choice),
            2 => user.tell(choice),
            _ => user.ask(choice),
        }
    }
    drop(interrupt);
    server.end();
    drop(session);
}

impl User<'_> {
    /// What gives an entry, whose reference is given back.
    fn name(&self, choice: u8) {
        let &Self { session, ref caller, node, .. } = self;
        let name = Name::new(b"name").expect("it is one");
        let found = match choice & 7 {
            0 => session.lookup(caller, node, name),
            1 => session.mkdir(caller, node, name, 0o777),
            2 => session.mknod(caller, node, name, 0o600, 0),
            3 => session.symlink(caller, node, name, b"target"),
            4 => session.link(caller, node, node, name),
            5 => session.create(caller, node, name, 0o600, 2).map(|(entry, _)| entry),
            6 => session.tmpfile(caller, node, 0o600, 2).map(|(entry, _)| entry),
            _ => return self.list(choice & 8 != 0),
        };
        if let Ok(entry) = found
            && entry.nodeid != 0
        {
            self.give_back(&entry);
        }
    }

    fn give_back(&self, entry: &EntryOut) {
        assert!(entry.nodeid.get() > 1 && is_possible(&entry.attr), "{entry:?}");
        self.session.forget(entry.nodeid.into(), 1);
    }

    fn list(&self, is_plus: bool) {
        let mut room = [0; ROOM];
        let Ok(len) = self.session.readdir(&self.caller, self.node, self.fh, 0, is_plus, &mut room) else { return };
        assert!(len <= ROOM);
        // The rest is the listing's own to give back.
        let taken = usize::from(self.tape.byte() & 7);
        for entry in self.session.entries(&room[..len], is_plus).take(taken).flatten() {
            assert!((1..=255).contains(&entry.name.len()) && !entry.name.contains(&b'/'));
            entry.entry.iter().for_each(|entry| self.give_back(entry));
        }
    }

    fn data(&self, choice: u8) {
        let &Self { session, ref caller, node, fh, .. } = self;
        let (mut room, plain) = ([0; ROOM], WriteFlags::empty());
        let buffer = session.channel().buffer(4096).map(Arc::new);
        match (choice & 7, buffer) {
            (0, _) => assert!(session.read(caller, node, fh, 0, 0, Sink::Bytes(&mut room)).unwrap_or(0) <= ROOM),
            (1, _) => {
                assert!(session.read_whole(caller, node, fh, 0, 9, &mut vec![0; 300_000]).unwrap_or(0) <= 300_000)
            }
            (2, _) => {
                let taken = session.write(caller, node, fh, 0, plain, 0, Source::Bytes(&room));
                assert!(taken.is_err() || taken.is_ok_and(|len| (1..=ROOM).contains(&len)));
            }
            (3, _) => {
                let taken = session.write_whole(caller, node, fh, 0, plain, 0, &[1; 100_000]);
                assert!(taken.is_err() || taken.is_ok_and(|len| (1..=100_000).contains(&len)));
            }
            (4 | 5, Ok(buffer)) => {
                let pending = session.read_start(caller, node, fh, 0, 0, buffer, 10..2000);
                let read = pending.and_then(|pending| session.read_finish(pending));
                assert!(read.unwrap_or(0) <= 1990);
            }
            (_, Ok(buffer)) => {
                let pending = session.write_start(caller, node, fh, 0, plain, 0, buffer, 10..2000);
                let taken = pending.and_then(|pending| session.write_finish(pending));
                assert!(taken.is_err() || taken.is_ok_and(|len| (1..=1990).contains(&len)));
            }
            (_, Err(error)) => panic!("{error}"),
        }
    }

    /// What is answered with nothing.
    fn tell(&self, choice: u8) {
        let &Self { session, ref caller, node, fh, .. } = self;
        let name = Name::new(b"name").expect("it is one");
        let told = match choice & 31 {
            0 => session.unlink(caller, node, name),
            1 => session.rmdir(caller, node, name),
            2 => session.rename(caller, (node, name), (node, name), 0),
            3 => session.rename(caller, (node, name), (node, name), 1),
            4 => session.access(caller, node, 1),
            5 => session.flush(caller, node, fh, 1),
            6 => session.fsync(caller, node, fh, 1),
            7 => session.fsyncdir(caller, node, fh, 1),
            8 => session.syncfs(caller, node),
            9 => session.fallocate(caller, node, fh, 0, 1, 0),
            10 => session.release(caller, node, fh, 0, 0, 0),
            11 => session.releasedir(caller, node, fh, 0),
            12 => session.setxattr(caller, node, b"user.a", b"value", 0, 1),
            13 => session.removexattr(caller, node, b"user.a"),
            14 => session.setlk(caller, node, &self.lock()),
            15 => session.setlkw(caller, node, &self.lock()),
            16 => session.flush_forgets(),
            17 => caller.interrupt.map_or(Ok(()), |interrupt| interrupt.raise().map(drop)),
            18 => {
                if let Some(interrupt) = caller.interrupt {
                    interrupt.clear();
                }
                Ok(())
            }
            19 => session.destroy(),
            _ => session.getattr(caller, node, Some(fh)).map(drop),
        };
        assert!(told.is_ok() || told.is_err_and(|error| (1..=4095).contains(&error.raw())));
    }

    fn ask(&self, choice: u8) {
        let &Self { session, ref caller, node, fh, .. } = self;
        let mut room = [0; 64];
        match choice & 15 {
            0 => {
                let out = session.getattr(caller, node, None);
                assert!(out.is_err() || out.is_ok_and(|out| is_possible(&out.attr)));
            }
            1 => {
                let out = session.setattr(caller, node, &SetattrIn::new_zeroed());
                assert!(out.is_err() || out.is_ok_and(|out| is_possible(&out.attr)));
            }
            2 => _ = session.open(caller, node, 0o1000),
            3 => _ = session.opendir(caller, node, 0),
            4 => {
                if let Ok(target) = session.readlink(caller, node) {
                    assert!((1..=4095).contains(&target.len()) && !target.contains(&0));
                }
            }
            5 => assert!(session.getxattr(caller, node, b"user.a", &mut room).unwrap_or(0) <= 64),
            6 => assert!(session.getxattr(caller, node, b"user.a", &mut []).unwrap_or(0) <= 65536),
            7 => assert!(session.listxattr(caller, node, &mut room).unwrap_or(0) <= 64),
            8 => assert!(session.lseek(caller, node, fh, 0, 3).unwrap_or(0) <= i64::MAX as u64),
            9 => {
                let copied = session.copy_file_range(caller, (node, fh, 0), (node, fh, 0), 10, 0);
                assert!(copied.unwrap_or(0) <= 10);
            }
            10 => assert!(session.ioctl(caller, node, fh, 0, 1, 0, b"in", &mut room).map_or(0, |(_, len)| len) <= 64),
            11 => {
                if let Ok(lock) = session.getlk(caller, node, &self.lock()) {
                    assert!(lock.type_ == 2 || lock.start <= lock.end);
                }
            }
            12 => _ = session.statfs(caller, node),
            13 => {
                let out = session.statx(caller, node, Some(fh), 0, 0);
                assert!(out.is_err() || out.is_ok_and(|out| out.stat.mtime.tv_nsec.get() < 1_000_000_000));
            }
            14 => _ = session.poll(caller, node, fh, 1),
            _ => assert!(session.listxattr(caller, node, &mut []).unwrap_or(0) <= 65536),
        }
    }

    fn lock(&self) -> LkIn {
        let lk = FileLock { start: 0.into(), end: 9.into(), type_: 1.into(), pid: 1.into() };
        LkIn { fh: self.fh.into(), owner: 1.into(), lk, lk_flags: 0.into(), padding: 0.into() }
    }
}

pub(super) fn is_possible(attr: &Attr) -> bool {
    let is_type = matches!(attr.mode.get() >> 12, 1 | 2 | 4 | 6 | 8 | 10 | 12);
    is_type && attr.size.get() <= i64::MAX as u64 && attr.mtimensec.get() < 1_000_000_000
}
