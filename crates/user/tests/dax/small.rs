//! Small files: a range costs as much as some requests, so it has to save them.

use std::{fs, path::Path};

use transom_user::guest::{
    cache::{CacheMode, CacheOptions},
    dax::Dax,
    fs::OpenOptions,
};

use crate::{Guest, Whole as _, common::on_disk, patterned};

const LEN: usize = 64 << 10;
const FILES: usize = 40;

fn make(dir: &Path) {
    (0..FILES).for_each(|at| fs::write(dir.join(at.to_string()), patterned(at, LEN, 9)).unwrap());
}

/// Reads each file from its beginning, `len` bytes at a time. Returns the number of requests.
fn read_all(guest: &Guest, len: usize) -> u64 {
    let session = guest.fs.volume().session();
    let before = session.counters().requests;
    for number in 0..FILES {
        let file = guest.fs.open(number.to_string(), &OpenOptions::new().read(true)).unwrap();
        let mut bytes = vec![0; len];
        for at in (0..LEN).step_by(len) {
            file.read_exact_at(at as u64, &mut bytes).unwrap();
            assert!(bytes == patterned(number + at, len, 9), "file {number} at {at}");
        }
    }
    session.counters().requests - before
}

#[test]
fn files_that_are_read_once_take_no_more_requests_than_without_a_window() {
    let dir = on_disk();
    make(dir.path());
    let options = CacheOptions { mode: CacheMode::None, ..CacheOptions::default() };
    let [with, without] = [Dax::Always, Dax::Never].map(|dax| {
        let guest = Guest::with(dir.path(), 64, "generic", options, dax);
        let requests = read_all(&guest, LEN);
        if dax == Dax::Always {
            let counts = guest.counts();
            assert_eq!((counts.mapped, counts.denied), (0, FILES as u64), "{counts:?}");
        }
        requests
    });
    assert!(with <= without, "{with} requests with a window, {without} without");
}

#[test]
fn small_files_are_mapped_if_that_saves_requests() {
    let dir = on_disk();
    make(dir.path());
    let guest = Guest::new(dir.path(), 64, "generic", CacheMode::None);
    read_all(&guest, 4096);
    assert_eq!(guest.counts().mapped, FILES as u64, "one range for sixteen requests");
}
