//! Mappings of a file that the server copies within.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use transom_user::{
    guest::{cache::CacheMode, fs::OpenOptions},
    map::{MapFile as _, Protection, Sharing},
};

use super::{Guest, RANGE, common};

/// Bytes of a page that are watched.
const WATCHED: usize = 16;
const ROUNDS: u8 = 200;

#[test]
fn a_mapping_sees_what_the_server_copies_within_its_file_while_it_stores() {
    let dir = common::on_disk();
    fs::write(dir.path().join("file"), vec![0; 4 * RANGE]).unwrap();
    let guest = Guest::new(dir.path(), 4, "alioth", CacheMode::Auto);
    let open = || guest.fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    let (file, other) = (open(), open());
    let mapping = file.map(0..4 * RANGE as u64, Protection::ReadWrite, Sharing::Shared).unwrap();
    let is_over = AtomicBool::new(false);
    let copy = || {
        let mut done = 0;
        while done < RANGE as u64 {
            let len = file.copy_to(done, &other, 2 * RANGE as u64 + done, RANGE as u64 - done).unwrap();
            assert_ne!(len, 0, "at {done}");
            done += len;
        }
    };
    thread::scope(|scope| {
        let (mapping, is_over) = (&mapping, &is_over);
        // 1. One stores ever larger numbers in the first range.
        scope.spawn(move || {
            for round in 1..=ROUNDS {
                (0..WATCHED).for_each(|at| mapping.write_at(at * RANGE / WATCHED, &[round]).unwrap());
            }
            is_over.store(true, Ordering::Release);
        });
        // 2. Another reads them, in the range that they are copied to: they never go back.
        scope.spawn(move || {
            let mut seen = [0; WATCHED];
            while !is_over.load(Ordering::Acquire) {
                for (at, last) in seen.iter_mut().enumerate() {
                    let mut byte = [0];
                    mapping.read_at(2 * RANGE + at * RANGE / WATCHED, &mut byte).unwrap();
                    assert!(byte[0] >= *last && byte[0] <= ROUNDS, "{} after {last}", byte[0]);
                    *last = byte[0];
                }
            }
        });
        // 3. The server copies all the while, and once when everything is stored.
        while !is_over.load(Ordering::Acquire) {
            copy();
        }
        copy();
    });
    let mut found = vec![0; 2 * RANGE];
    mapping.read_at(2 * RANGE, &mut found).unwrap();
    assert!((0..WATCHED).all(|at| found[at * RANGE / WATCHED] == ROUNDS));
    let host = fs::read(dir.path().join("file")).unwrap();
    assert!(host[..RANGE] == found[..RANGE] && host[2 * RANGE..] == found);
}
