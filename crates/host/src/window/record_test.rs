//! What the window records of its files, and when it believes that something is mapped.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use transom_wire::NodeId;

use super::{Channel, ChannelError, DaxPolicy, FileIdentity, FrontEnd, MappedFile, Mapping, RANGE_LEN, Window};
use crate::Errno;

/// Answers at once. Counts requests, and resets a device in the middle of a mapping.
#[derive(Default)]
struct Front {
    requests: Mutex<Vec<String>>,
    /// Resets before the reply to a mapping, and between it and that to the barrier.
    resets: [AtomicU64; 2],
    window: Mutex<Weak<Window>>,
}

impl Front {
    fn reset(&self, at: usize) {
        if self.resets[at].swap(0, SeqCst) != 0
            && let Some(window) = self.window.lock().unwrap().upgrade()
        {
            window.reset();
        }
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

struct To(Arc<Front>);

impl Channel for To {
    fn map(&self, mapping: &Mapping<'_>) -> Result<(), ChannelError> {
        let Mapping { file_offset, window_offset, len, is_writable, .. } = mapping;
        self.0.requests.lock().unwrap().push(format!("map {file_offset} {window_offset} {len} {is_writable}"));
        self.0.reset(0);
        Ok(())
    }

    fn unmap(&self, window_offset: u64, len: u64) -> Result<(), ChannelError> {
        self.0.requests.lock().unwrap().push(format!("unmap {window_offset} {len}"));
        Ok(())
    }

    fn barrier(&self) -> Result<(), ChannelError> {
        self.0.reset(1);
        Ok(())
    }
}

fn window(ranges: u64, front_end: FrontEnd) -> (Arc<Window>, Arc<Front>) {
    let (window, front) = (Arc::new(Window::new(ranges * RANGE_LEN, front_end)), Arc::<Front>::default());
    *front.window.lock().unwrap() = Arc::downgrade(&window);
    window.connect(Box::new(To(front.clone()))).unwrap();
    (window, front)
}

fn file(nodeid: u64, len: u64, is_writable: bool, is_padded: bool) -> Result<MappedFile, Errno> {
    let fd = memfd_create("file", MemfdFlags::CLOEXEC)?;
    ftruncate(&fd, len)?;
    MappedFile::new(NodeId(nodeid), format!("file {nodeid}"), fd, is_writable, is_padded, Box::new(()))
}

fn map(window: &Window, nodeid: u64, range: u64, wants_write: bool) -> Result<(), Errno> {
    let open = || file(nodeid, 16 * RANGE_LEN, wants_write, false);
    window.map(NodeId(nodeid), range * RANGE_LEN, range * RANGE_LEN, wants_write, open)
}

#[test]
fn files_are_listed_by_how_much_of_them_is_mapped() {
    let (window, _front) = window(8, FrontEnd::QEMU);
    for (nodeid, range) in [(9, 0), (4, 1), (7, 2), (7, 3), (4, 4), (9, 5), (7, 6)] {
        map(&window, nodeid, range, true).unwrap();
    }
    let listed =
        || -> Vec<_> { window.files().iter().map(|usage| (usage.file.name().to_owned(), usage.ranges)).collect() };
    assert_eq!(listed(), [("file 7".into(), 3), ("file 4".into(), 2), ("file 9".into(), 2)]);
    window.unmap(&[(0, RANGE_LEN), (2 * RANGE_LEN, 2 * RANGE_LEN)]).unwrap();
    assert_eq!(listed(), [("file 4".into(), 2), ("file 7".into(), 1), ("file 9".into(), 1)]);
    window.clear();
    assert!(listed().is_empty());
}

#[test]
fn a_file_is_known_by_its_inode_for_as_long_as_it_is_mapped() {
    let (window, _front) = window(4, FrontEnd::QEMU);
    map(&window, 1, 0, true).unwrap();
    let identity = FileIdentity::of(&*window.files()[0].file).unwrap();
    let other = FileIdentity::of(file(2, 1, true, false).unwrap()).unwrap();
    assert!(window.has_file(identity) && !window.has_file(other));
    assert!(window.has_node(NodeId(1)) && !window.has_node(NodeId(2)));
    window.unmap(&[(0, RANGE_LEN)]).unwrap();
    assert!(!window.has_file(identity) && !window.has_node(NodeId(1)));
}

#[test]
fn a_file_is_opened_once_and_again_for_writing() {
    let (window, front) = window(4, FrontEnd::QEMU);
    let opened = AtomicU64::new(0);
    let map = |range: u64, wants_write: bool| {
        let open = || {
            opened.fetch_add(1, SeqCst);
            file(1, 16 * RANGE_LEN, wants_write, false)
        };
        window.map(NodeId(1), range * RANGE_LEN, range * RANGE_LEN, wants_write, open).unwrap();
        opened.load(SeqCst)
    };
    assert_eq!([map(0, false), map(1, false), map(0, false)], [1, 1, 1]);
    front.seen();
    assert_eq!(map(0, true), 2, "what is open for reading cannot be written to");
    let (at, len) = (0, RANGE_LEN);
    assert_eq!(front.seen(), [format!("unmap {at} {len}"), format!("map 0 {at} {len} true")]);
    assert_eq!([map(0, false), map(1, true), map(2, false)], [2, 2, 2]);
    // Another part of the file at the same place replaces what is there.
    front.seen();
    window.map(NodeId(1), 5 * RANGE_LEN, 0, false, || unreachable!("it is open")).unwrap();
    assert_eq!(front.seen(), [format!("unmap 0 {len}"), format!("map {} 0 {len} true", 5 * len)]);
}

#[test]
fn a_file_that_is_mapped_is_not_opened_again_once_others_were() {
    let (window, _front) = window(8, FrontEnd::QEMU);
    for nodeid in 1..=3 {
        map(&window, nodeid, nodeid, true).unwrap();
    }
    for nodeid in 1..=3 {
        let open = || unreachable!("it is open");
        window.map(NodeId(nodeid), 0, (3 + nodeid) * RANGE_LEN, true, open).unwrap();
    }
}

#[test]
fn a_padded_file_is_mapped_beyond_its_end_and_another_up_to_its_last_byte() {
    let (window, _front) = window(4, FrontEnd::QEMU);
    let map = |nodeid, len, is_padded, file_offset| {
        window.map(NodeId(nodeid), file_offset, 0, true, || file(nodeid, len, true, is_padded))
    };
    assert_eq!(map(1, 2 * RANGE_LEN, false, RANGE_LEN), Ok(()));
    assert_eq!(map(2, 2 * RANGE_LEN - 1, false, RANGE_LEN), Err(Errno::OPNOTSUPP));
    assert_eq!(map(3, 1, true, 0), Ok(()));
    assert_eq!(map(4, 1, true, 8 * RANGE_LEN), Ok(()));
    assert_eq!(map(5, 1, true, 0u64.wrapping_sub(RANGE_LEN)), Err(Errno::INVAL), "it would end past the last offset");
}

#[test]
fn the_last_range_is_inside_and_the_next_one_is_not() {
    let (window, front) = window(4, FrontEnd::QEMU);
    assert_eq!((window.len_bytes(), window.front_end(), window.is_open()), (4 * RANGE_LEN, FrontEnd::QEMU, true));
    assert_eq!((map(&window, 1, 3, true), map(&window, 1, 4, true)), (Ok(()), Err(Errno::INVAL)));
    assert_eq!(window.unmap(&[(3 * RANGE_LEN, RANGE_LEN)]), Ok(()));
    for range in [(3 * RANGE_LEN, 2 * RANGE_LEN), (4096, RANGE_LEN), (0, RANGE_LEN + 4096), (u64::MAX, RANGE_LEN)] {
        assert_eq!(window.unmap(&[range]), Err(Errno::INVAL), "{range:?}");
    }
    // One range that is wrong spares all.
    map(&window, 1, 0, true).unwrap();
    front.seen();
    assert_eq!(window.unmap(&[(0, RANGE_LEN), (4 * RANGE_LEN, RANGE_LEN)]), Err(Errno::INVAL));
    assert!(front.seen().is_empty());
    assert_eq!(window.usage().refused, 1, "a mapping; what is unmapped does not count");
}

#[test]
fn work_is_counted_and_takes_time() {
    let (window, _front) = window(4, FrontEnd::QEMU);
    map(&window, 1, 0, true).unwrap();
    let first = window.usage();
    assert!(first.map_ns > 0);
    map(&window, 1, 1, true).unwrap();
    window.unmap(&[(0, 2 * RANGE_LEN)]).unwrap();
    let usage = window.usage();
    assert!(usage.map_ns > first.map_ns);
    assert_eq!((usage.maps, usage.unmaps, usage.ranges_mapped, usage.len_bytes), (2, 2, 0, 4 * RANGE_LEN));
}

#[test]
fn a_reset_ends_what_was_mapped_before_it_and_nothing_that_came_after() {
    // QEMU reads the request after the reset, and so maps what stays.
    let (qemu, front) = window(4, FrontEnd::QEMU);
    front.resets[0].store(1, SeqCst);
    map(&qemu, 1, 0, true).unwrap();
    assert_eq!(qemu.usage().ranges_mapped, 1);
    // It has mapped, and the reset has ended that, before the barrier was answered.
    front.resets[1].store(1, SeqCst);
    map(&qemu, 1, 1, true).unwrap();
    assert_eq!(qemu.usage().ranges_mapped, 0, "the first one is gone with the reset too");
    front.seen();
    qemu.clear();
    assert!(front.seen().is_empty());

    // A front end whose resets end no mapping still has it.
    let keeps = FrontEnd { needs_barrier: true, ..FrontEnd::CROSVM };
    let (crosvm, front) = window(4, keeps);
    front.resets[1].store(1, SeqCst);
    map(&crosvm, 1, 0, true).unwrap();
    assert_eq!(crosvm.usage().ranges_mapped, 1);
}

#[test]
fn after_a_stop_only_what_was_mapped_since_is_unmapped_for_a_new_driver() {
    let (window, front) = window(4, FrontEnd::QEMU);
    for range in 0..2 {
        map(&window, 1, range, true).unwrap();
    }
    window.stop();
    map(&window, 1, 2, true).unwrap();
    front.seen();
    window.clear_for_init();
    assert_eq!(front.seen(), [format!("unmap {} {RANGE_LEN}", 2 * RANGE_LEN)]);
    assert_eq!(window.usage().ranges_mapped, 0);

    // A front end that unmaps nothing by itself is asked for all.
    let (window, front) = self::window(4, FrontEnd::CROSVM);
    map(&window, 1, 0, true).unwrap();
    window.stop();
    front.seen();
    window.clear_for_init();
    assert_eq!(front.seen(), [format!("unmap 0 {RANGE_LEN}")]);
}

#[test]
fn without_a_front_end_nothing_is_mapped_and_its_thread_ends_with_the_connection() {
    let lonely = Window::new(4 * RANGE_LEN, FrontEnd::QEMU);
    assert!(!lonely.is_open());
    assert_eq!(map(&lonely, 1, 0, true), Err(Errno::NOTCONN));
    assert_eq!(lonely.unmap(&[(0, RANGE_LEN)]), Ok(()), "nothing is mapped there");
    let ends = [|window: Arc<Window>| window.disconnect(), |window: Arc<Window>| drop(window)];
    for end in ends {
        let (window, front) = window(4, FrontEnd::QEMU);
        map(&window, 1, 0, true).unwrap();
        end(window);
        // The thread owns the other reference.
        while Arc::strong_count(&front) > 1 {
            thread::yield_now();
        }
    }
}

#[test]
fn the_policy_takes_files_from_its_size_on() {
    for (policy, size, takes) in [
        (DaxPolicy::Always, 0, true),
        (DaxPolicy::Never, u64::MAX, false),
        (DaxPolicy::FromSize(10), 9, false),
        (DaxPolicy::FromSize(10), 10, true),
        (DaxPolicy::FromSize(10), 11, true),
        (DaxPolicy::AUTO, 256 * 1024 - 1, false),
        (DaxPolicy::AUTO, 256 * 1024, true),
    ] {
        assert_eq!(policy.takes(size), takes, "{policy:?} {size}");
    }
}

#[test]
fn the_longest_window_has_a_mapping_for_each_of_its_ranges() {
    for front_end in [FrontEnd::QEMU, FrontEnd::CROSVM, FrontEnd::ALIOTH, FrontEnd::GENERIC] {
        assert_eq!(front_end.window_len_max(), front_end.mappings_max * (2 << 20));
    }
    assert_eq!(FrontEnd::QEMU.window_len_max(), 1 << 30);
    assert_eq!(FrontEnd::CROSVM.window_len_max(), 64 << 30);
}
