//! Servers that refuse, and page tables that do.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use transom_guest::{
    Errno,
    dax::{Access, PageTables, RANGE_LEN},
    fs::OpenOptions,
};

use crate::fake::{share, share_with_peer};

const RANGE: usize = RANGE_LEN as usize;

fn open() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

#[test]
fn whatever_a_server_says_to_a_mapping_the_file_is_served_by_requests() {
    for error in [Errno::ACCESS, Errno::ROFS, Errno::OPNOTSUPP, Errno::INVAL, Errno::NOSYS, Errno::IO, Errno::AGAIN] {
        let (_dir, window, fs) = share(4);
        window.fails_each.store(1, Ordering::Relaxed);
        *window.error.lock().unwrap() = error.raw();
        let file = fs.open("file", &open()).unwrap();
        for at in [0, RANGE as u64 / 2, 2 * RANGE as u64 - 5] {
            assert_eq!(file.write_at(at, b"0123456789"), Ok(10));
            assert_eq!(file.write_at(at, b"abcdefghij"), Ok(10));
            let mut seen = [0; 10];
            assert_eq!(file.read_at(at, &mut seen), Ok(10), "{error}");
            assert_eq!(&seen, b"abcdefghij");
        }
        assert!(file.inode().pin(0, Access::Read).unwrap().is_none());
        let counts = fs.volume().window().unwrap().counts();
        assert_eq!((counts.mapped, counts.free), (0, 4), "{error}");
        assert!(counts.refused > 0 && counts.refused < 10, "{error}: {counts:?}");
    }
}

#[test]
fn a_file_that_is_mapped_for_reading_only_is_written_by_requests() {
    let (_dir, window, fs) = share(4);
    let file = fs.open("file", &open()).unwrap();
    file.write_at(0, &vec![1; RANGE]).unwrap();
    file.read_at(0, &mut [0; 10]).unwrap();
    window.fails_each.store(1, Ordering::Relaxed);
    *window.error.lock().unwrap() = Errno::ROFS.raw();
    for byte in 2..9 {
        assert_eq!(file.write_at(5, &[byte; 20]), Ok(20));
        let mut seen = [0; 20];
        assert_eq!(file.read_at(5, &mut seen), Ok(20));
        assert_eq!(seen, [byte; 20]);
    }
    assert!(matches!(file.inode().pin_waiting(0, Access::Write), Err(Errno::ROFS)));
}

/// Page tables that record what they were asked.
#[derive(Default)]
struct Tables {
    is_used: AtomicBool,
    released: Mutex<Vec<u64>>,
    revoked: Mutex<Vec<(Range<u64>, bool)>>,
}

impl PageTables for Tables {
    fn release(&self, index: u64) -> bool {
        self.released.lock().unwrap().push(index);
        !self.is_used.load(Ordering::Relaxed)
    }

    fn revoke(&self, bytes: Range<u64>, with_copies: bool) {
        self.revoked.lock().unwrap().push((bytes, with_copies));
    }
}

#[test]
fn page_tables_are_asked_before_a_range_goes_and_may_keep_it() {
    let (_dir, window, fs) = share(2);
    let file = fs.open("file", &open()).unwrap();
    file.write_at(0, &vec![1; 4 * RANGE]).unwrap();
    let tables = Arc::new(Tables::default());
    let weak: Weak<Tables> = Arc::downgrade(&tables);
    let inode = file.inode();
    inode.ranges().unwrap().register(weak);
    for index in [0, 1] {
        drop(inode.pin(index, Access::Write).unwrap().unwrap());
    }

    // 1. In use: no range is replaced.
    tables.is_used.store(true, Ordering::Relaxed);
    assert!(inode.pin(2, Access::Read).unwrap().is_none());
    assert!(!tables.released.lock().unwrap().is_empty());
    assert_eq!(inode.ranges().unwrap().len(), 2);
    // 2. Pinned: the page tables are not even asked.
    tables.is_used.store(false, Ordering::Relaxed);
    tables.released.lock().unwrap().clear();
    let pins = [0, 1].map(|index| inode.pin(index, Access::Write).unwrap().unwrap());
    assert!(inode.pin(2, Access::Read).unwrap().is_none());
    assert!(tables.released.lock().unwrap().is_empty());
    drop(pins);
    // 3. Idle: one range is replaced, after its page tables were asked.
    let pin = inode.pin(2, Access::Read).unwrap().unwrap();
    assert_eq!(window.mappings.lock().unwrap()[&(pin.window_offset() / RANGE_LEN)].index, 2);
    assert_eq!(tables.released.lock().unwrap().len(), 1);
    drop(pin);
    // 4. Truncation removes the pages after the new end, and unmaps them.
    file.set_len(RANGE_LEN + 5).unwrap();
    assert_eq!(*tables.revoked.lock().unwrap(), [(RANGE_LEN + 5..u64::MAX, true)]);
    assert!(inode.ranges().unwrap().len() <= 1);
    // 5. Punching a hole removes its pages, and leaves them mapped.
    let before = inode.ranges().unwrap().len();
    file.allocate(3, 4096, 8192).unwrap();
    assert_eq!(tables.revoked.lock().unwrap()[1], (4096..12288, false));
    assert_eq!(inode.ranges().unwrap().len(), before);
}

#[test]
fn a_file_that_is_emptied_by_creating_another_name_of_it_is_in_no_page_table() {
    let (dir, _window, fs, peer) = share_with_peer(2);
    let file = fs.open("file", &open()).unwrap();
    file.write_at(0, &vec![1; RANGE]).unwrap();
    let tables = Arc::new(Tables::default());
    let weak: Weak<Tables> = Arc::downgrade(&tables);
    file.inode().ranges().unwrap().register(weak);
    let (known, new) = (dir.path().join("file"), dir.path().join("new"));
    // After the guest has been told that there is no such name.
    peer.meanwhile(transom_wire::Opcode::Lookup, move || std::fs::hard_link(known, new).unwrap());
    let emptied = fs.create("new").unwrap();
    assert_eq!(emptied.inode().nodeid(), file.inode().nodeid());
    assert_eq!(*tables.revoked.lock().unwrap(), [(0..u64::MAX, true)]);
    assert!(file.inode().ranges().unwrap().is_empty());
    assert_eq!(file.metadata().unwrap().len(), 0);
}
