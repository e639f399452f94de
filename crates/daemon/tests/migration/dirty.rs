//! Every page of guest memory that the daemon writes is marked while the log is on, and none while it is off.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    rc::Rc,
};

use transom_frontend::{
    FrontEnd, Options,
    dirty::DirtyLog,
    fuse::Session,
    message::{request, u64s},
};

use crate::{
    daemon::Daemon,
    watched::{REQUEST, Watched},
};

const RAM: u64 = 4 << 20;

struct Guest {
    front_end: Rc<FrontEnd>,
    session: Session<Watched>,
    log: Rc<DirtyLog>,
    changed: Rc<RefCell<usize>>,
    file: PathBuf,
    /// Number of calls of `work`.
    rounds: u32,
    _daemon: Daemon,
}

impl Guest {
    fn start(options: Options, piece: usize) -> Self {
        let daemon = Daemon::start();
        let front_end = Rc::new(daemon.connect(Options { ram_bytes: RAM, ..options.clone() }));
        let log = Rc::new(DirtyLog::new(RAM).unwrap());
        let queue = front_end.start_queue(REQUEST).unwrap();
        let changed = Rc::default();
        let (log_of_queue, changed_of_queue) = (log.clone(), Rc::clone(&changed));
        let watched = Watched {
            front_end: Rc::clone(&front_end),
            queue,
            log: log_of_queue,
            is_logging: false,
            has_event_idx: options.event_idx,
            piece,
            changed: changed_of_queue,
        };
        let session = Session::begin(watched).unwrap();
        let file = daemon.share().join("file");
        Self { front_end, session, log, changed, file, rounds: 0, _daemon: daemon }
    }

    fn switch(&mut self, is_on: bool) {
        self.front_end.switch_log(is_on, &[(REQUEST, &self.session.exchange.queue.ring)]).unwrap();
        self.session.exchange.is_logging = is_on;
    }

    /// Sends requests of all kinds, and returns the number of pages that they changed.
    fn work(&mut self) -> usize {
        let before = *self.changed.borrow();
        self.rounds += 1;
        write_file(&self.file, self.rounds);
        let session = &mut self.session;
        let entry = session.lookup(1, b"file").unwrap();
        let nodeid = entry.nodeid.get();
        let fh = session.open(nodeid, libc::O_RDWR as u32).unwrap();
        // Whole, short, at the end of the file, and none at all.
        for (offset, size, expected) in [(0, 100_000, 100_000), (4096, 4096, 4096), (150_000, 262_144, 50_000)] {
            assert_eq!(session.read(nodeid, fh, offset, size).unwrap().len(), expected);
        }
        assert!(session.read(nodeid, fh, 1 << 30, 65536).unwrap().is_empty());
        session.write(nodeid, fh, 10, &[7; 20_000]).unwrap();
        session.getattr(nodeid, Some(fh)).unwrap();
        session.release(nodeid, fh).unwrap();
        // Reads that fail in the kernel, and before.
        let fh = session.open(nodeid, libc::O_WRONLY as u32).unwrap();
        assert!(session.read(nodeid, fh, 0, 65536).is_err());
        session.release(nodeid, fh).unwrap();
        assert!(session.read(nodeid, 12345, 0, 65536).is_err());
        // Not every file system has it.
        if let Ok(fh) = session.open(nodeid, (libc::O_RDONLY | libc::O_DIRECT) as u32) {
            assert_eq!(session.read(nodeid, fh, 0, 131_072).unwrap().len(), 131_072);
            assert_eq!(session.read(nodeid, fh, 196_608, 65536).unwrap().len(), 200_000 - 196_608);
            session.release(nodeid, fh).unwrap();
        }
        assert_eq!(session.readdir(1, 4096, true).unwrap().len(), 3);
        session.forget(nodeid, 1).unwrap();
        *self.changed.borrow() - before
    }
}

/// Writes 200,000 bytes, which differ from page to page and from one `seed` to the next.
fn write_file(path: &Path, seed: u32) {
    let byte = |number: u32| ((number + seed).wrapping_mul(2_654_435_761) >> 13) as u8;
    fs::write(path, (0..200_000).map(byte).collect::<Vec<u8>>()).unwrap();
}

#[test]
fn every_page_that_changes_is_marked_while_the_log_is_on() {
    for (event_idx, indirect, piece) in [(true, true, 4096), (false, false, 65536), (true, false, 100_000)] {
        let mut guest = Guest::start(Options { event_idx, indirect, ..Options::default() }, piece);
        assert!(guest.work() > 50);
        guest.front_end.send_log(&guest.log).unwrap();
        assert!(guest.work() > 50, "a log that is there is not yet on");
        guest.switch(true);
        assert!(guest.work() > 50);
        guest.switch(false);
        assert!(guest.work() > 50);
    }
}

#[test]
fn memory_and_logs_that_come_while_the_log_is_on_are_used() {
    let mut guest = Guest::start(Options::default(), 4096);
    guest.front_end.send_log(&guest.log).unwrap();
    guest.switch(true);
    guest.front_end.send_memory().unwrap();
    assert!(guest.work() > 50, "new regions");
    let region = [u64s(&[0]), guest.front_end.ram.region().to_bytes()].concat();
    guest.front_end.channel.tell(request::REM_MEM_REG, &region, &[]).unwrap();
    guest.front_end.channel.tell(request::ADD_MEM_REG, &region, &[guest.front_end.ram.file()]).unwrap();
    assert!(guest.work() > 50, "no region for a while");
    let longer = Rc::new(DirtyLog::new(2 * RAM).unwrap());
    guest.front_end.send_log(&longer).unwrap();
    guest.session.exchange.log = longer;
    guest.log.clear().unwrap();
    assert!(guest.work() > 50, "a new log");
    assert!(guest.log.marked().unwrap().is_empty(), "the old one is not used any more");
    guest.switch(false);
    guest.switch(true);
    guest.session.exchange.is_logging = false;
    assert!(guest.work() > 50, "the log ended, and no other was provided");
}

#[test]
fn a_log_that_is_too_short_is_refused() {
    let daemon = Daemon::start();
    let front_end = daemon.connect(Options { ram_bytes: 256 << 20, ..Options::default() });
    let short = DirtyLog::new(4096).unwrap();
    front_end.send_log(&short).unwrap_err();
}
