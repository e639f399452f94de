//! Random operations through a small window, compared with a plain copy of the file, while pins are held.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use transom_guest::{
    dax::{Access, Pin, RANGE_LEN},
    fs::OpenOptions,
};

use crate::fake::{FakeWindow, Mapping, Ticking, share};

const SIZE_MAX: u64 = 5 * RANGE_LEN;
const PUNCH_KEEPING_SIZE: u32 = 3;

#[derive(Debug, Clone)]
enum Step {
    Read(u64, usize),
    Write(u64, usize, u8),
    /// Reads all of it from there, piece by piece.
    Scan(u64, usize),
    Truncate(u64),
    Punch(u64, u64),
    /// Pins a range, and drops a pin if there are too many.
    Pin(u64, bool),
    Unpin,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = prop_oneof![0..SIZE_MAX, (0..5_u64).prop_map(|range| (range * RANGE_LEN).saturating_sub(50))];
    let len = prop_oneof![1..200_usize, 1..3_000_000_usize];
    let step = prop_oneof![
        5 => (offset.clone(), len.clone()).prop_map(|(at, len)| Step::Read(at, len)),
        5 => (offset.clone(), len, any::<u8>()).prop_map(|(at, len, byte)| Step::Write(at, len, byte)),
        1 => (offset.clone(), 100_000..1_000_000_usize).prop_map(|(at, len)| Step::Scan(at, len)),
        1 => offset.clone().prop_map(Step::Truncate),
        1 => (offset, 1..5_000_000_u64).prop_map(|(at, len)| Step::Punch(at, len)),
        3 => (0..6_u64, any::<bool>()).prop_map(|(index, is_write)| Step::Pin(index, is_write)),
        3 => Just(Step::Unpin),
    ];
    prop::collection::vec(step, 1..100)
}

/// Checks that every pin's range is mapped where the pin says.
fn check_pins(window: &FakeWindow, node: u64, pins: &[(u64, Pin<'_, Ticking>)]) {
    let mappings = window.mappings.lock().unwrap();
    for (index, pin) in pins {
        let mapping = mappings[&(pin.window_offset() / RANGE_LEN)];
        assert!(mapping.is_writable || !pin.is_writable());
        assert_eq!(mapping, Mapping { node, index: *index, is_writable: mapping.is_writable });
    }
}

fn run(ranges: u64, fails_each: u64, steps: &[Step]) {
    let (dir, window, fs) = share(ranges);
    window.fails_each.store(fails_each, Ordering::Relaxed);
    let mut model: Vec<u8> = Vec::new();
    let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    let (inode, node) = (file.inode(), file.inode().nodeid().0);
    let mut pins = Vec::new();
    for step in steps {
        match *step {
            Step::Read(at, len) => check(&model, at, len, |bytes| file.read_at(at, bytes).unwrap()),
            Step::Scan(from, len) => {
                for at in (from..model.len() as u64).step_by(len) {
                    check(&model, at, len, |bytes| file.read_at(at, bytes).unwrap());
                }
            }
            Step::Write(at, len, byte) => {
                assert_eq!(file.write_at(at, &vec![byte; len]), Ok(len));
                let end = at as usize + len;
                model.resize(model.len().max(end), 0);
                model[at as usize..end].fill(byte);
            }
            // Both wait for pins, which this thread holds.
            Step::Truncate(size) => {
                pins.clear();
                file.set_len(size).unwrap();
                model.resize(size as usize, 0);
            }
            Step::Punch(at, len) => {
                pins.clear();
                file.allocate(PUNCH_KEEPING_SIZE, at, len).unwrap();
                let end = (at + len).min(model.len() as u64) as usize;
                model.get_mut(at as usize..end).into_iter().for_each(|hole| hole.fill(0));
            }
            Step::Pin(index, is_write) => {
                let access = if is_write { Access::Write } else { Access::Read };
                if let Some(pin) = inode.pin(index, access).unwrap() {
                    assert!(pin.is_writable() || !is_write);
                    pins.push((index, pin));
                }
            }
            Step::Unpin => drop(pins.pop()),
        }
        check_pins(&window, node, &pins);
        let counts = fs.volume().window().unwrap().counts();
        let mapped = window.mappings.lock().unwrap().len() as u64;
        assert!(mapped + counts.free >= ranges && inode.ranges().unwrap().len() as u64 <= ranges - counts.free);
    }
    drop(pins);
    check(&model, 0, model.len() + 1, |bytes| file.read_at(0, bytes).unwrap());
    assert!(std::fs::read(dir.path().join("file")).unwrap() == model, "what the host has");
    drop(file);
    fs.volume().drop_names();
    assert_eq!(fs.volume().window().unwrap().counts().free, ranges);
    assert!(window.mappings.lock().unwrap().is_empty(), "everything is unmapped before the inode is forgotten");
}

fn check(model: &[u8], at: u64, len: usize, read: impl FnOnce(&mut [u8]) -> usize) {
    let mut found = vec![0xa5; len];
    let count = read(&mut found);
    let begin = model.len().min(at as usize);
    let expected = &model[begin..model.len().min(begin + len)];
    assert_eq!(count, expected.len(), "bytes from {at}");
    assert!(found[..count] == *expected, "bytes from {at}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30) })]

    #[test]
    fn a_window_that_holds_the_file_shows_it(steps in steps()) {
        run(8, 0, &steps);
    }

    #[test]
    fn a_window_smaller_than_the_file_shows_it(steps in steps()) {
        run(2, 0, &steps);
    }

    #[test]
    fn a_server_that_refuses_every_nth_mapping_changes_nothing_that_is_read(steps in steps(), each in 1..5_u64) {
        run(3, each, &steps);
    }
}
