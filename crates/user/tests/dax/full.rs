//! Windows that are smaller than what is used of them.

use std::{
    fs::{self, File},
    thread,
};

use transom_user::guest::{cache::CacheMode, fs::OpenOptions};

use crate::{Guest, MIB, RANGE, Whole as _, common::on_disk, pattern, patterned};

#[test]
fn a_working_set_larger_than_the_window_is_served_right_and_changes_the_window_little() {
    let dir = on_disk();
    fs::write(dir.path().join("file"), patterned(0, 16 * RANGE, 5)).unwrap();
    let guest = Guest::new(dir.path(), 4, "generic", CacheMode::None);
    let file = guest.fs.open("file", &OpenOptions::new().read(true)).unwrap();
    let mut at = 1_usize;
    for _ in 0..20_000 {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (at >> 33) % (16 * RANGE - 64);
        let mut bytes = [0; 64];
        file.read_exact_at(offset as u64, &mut bytes).unwrap();
        assert!((0..64).all(|index| bytes[index] == pattern(offset + index, 5)));
    }
    let counts = guest.counts();
    assert!(counts.mapped >= 4, "{counts:?}");
    assert!(counts.mapped < 400, "the window is changed all the time: {counts:?}");
    assert!(counts.denied > 0, "{counts:?}");
}

#[test]
fn a_window_that_a_scan_has_filled_settles_for_random_accesses() {
    let dir = on_disk();
    fs::write(dir.path().join("file"), vec![7; 32 * RANGE]).unwrap();
    let guest = Guest::new(dir.path(), 16, "generic", CacheMode::None);
    let file = guest.fs.open("file", &OpenOptions::new().read(true)).unwrap();
    let mut bytes = vec![0; 4096];
    for at in (0..32 * RANGE).step_by(4096) {
        file.read_exact_at(at as u64, &mut bytes).unwrap();
    }
    let before = guest.counts();
    let mut random = 1_usize;
    for _ in 0..40_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.read_exact_at(((random >> 33) % (32 * RANGE / 4096) * 4096) as u64, &mut bytes).unwrap();
    }
    let counts = guest.counts();
    let replaced = counts.replaced - before.replaced;
    assert!(replaced < 200, "the window is changed all the time: {replaced} in {counts:?}");
}

#[test]
fn a_sequential_reader_goes_round_in_few_places_and_asks_little() {
    let dir = on_disk();
    fs::write(dir.path().join("scan"), patterned(0, 16 * RANGE, 6)).unwrap();
    let guest = Guest::new(dir.path(), 4, "generic", CacheMode::None);
    let file = guest.fs.open("scan", &OpenOptions::new().read(true)).unwrap();
    let before = guest.fs.volume().session().counters().requests;
    let mut bytes = [0; 4096];
    for at in (0..16 * RANGE).step_by(4096) {
        file.read_exact_at(at as u64, &mut bytes).unwrap();
        assert!(bytes[..] == patterned(at, 4096, 6));
    }
    let requests = guest.fs.volume().session().counters().requests - before;
    assert!(requests < 16 * RANGE as u64 / 4096 / 10, "{requests} requests, {:?}", guest.counts());
}

#[test]
fn writers_readers_and_a_truncating_thread_share_a_small_window() {
    let dir = on_disk();
    File::create(dir.path().join("file")).unwrap().set_len(8 * RANGE as u64).unwrap();
    File::create(dir.path().join("other")).unwrap().set_len(4 * RANGE as u64).unwrap();
    let guest = Guest::new(dir.path(), 4, "generic", CacheMode::Auto);
    let open = |name| guest.fs.open(name, &OpenOptions::new().read(true).write(true)).unwrap();
    thread::scope(|scope| {
        for worker in 0..3_usize {
            let file = open("file");
            // Each has a megabyte of every range to itself; the truncating thread has the last.
            scope.spawn(move || {
                for round in 0..300_usize {
                    let at = (round % 7 * RANGE + worker * MIB / 2 + round * 97) as u64;
                    file.write_all_at(at, &[round as u8; 100]).unwrap();
                    let mut seen = [0; 100];
                    file.read_exact_at(at, &mut seen).unwrap();
                    assert_eq!(seen, [round as u8; 100]);
                }
            });
        }
        let (last, other) = (open("file"), open("other"));
        scope.spawn(move || {
            for round in 0..60_u64 {
                last.set_len((7 * RANGE) as u64 + round * 4096).unwrap();
                let at = 7 * RANGE as u64 + round * 4096;
                last.write_all_at(at, &[9; 10]).unwrap();
                let mut seen = [0; 20];
                assert_eq!(last.read_at(at, &mut seen), Ok(10));
                last.allocate(3, 6 * RANGE as u64 + MIB as u64 * 3 / 2, 8192).unwrap();
                other.read_exact_at(round % 4 * RANGE as u64, &mut [0; 4096]).unwrap();
            }
        });
    });
    guest.fs.remove_file("file").unwrap();
    guest.fs.remove_file("other").unwrap();
    guest.fs.volume().drop_names();
    assert_eq!(guest.counts().free, 4);
    assert_eq!(guest.mount.window().unwrap().mappings(), 0);
}
