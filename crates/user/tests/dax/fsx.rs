//! Random operations on one file through several open files of one or two guests and by the host, byte for byte.

use std::{
    fs::File as HostFile,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use proptest::{prelude::*, test_runner::TestRunner};
use transom_user::{
    guest::{
        Errno,
        cache::CacheMode,
        fs::{File, OpenOptions},
    },
    platform::Process,
};

use transom_conformance::fsx::Model;

use crate::{Guest, RANGE, Whole as _, common::on_disk};

/// Several ranges, more than the smallest window has.
const SIZE_MAX: u64 = 5 * RANGE as u64;
/// Open files; the last one appends.
const FILES: usize = 4;
const APPENDING: usize = FILES - 1;
const PUNCH_KEEPING_SIZE: u32 = 3;

#[derive(Debug, Clone)]
enum Step {
    Read(usize, u64, usize),
    Write(usize, u64, usize, u8),
    Truncate(usize, u64),
    Punch(usize, u64, u64),
    Copy(usize, u64, u64, u64),
    Reopen(usize),
    Sync(usize),
    Size(usize),
    HostWrite(u64, usize, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let file = 0..FILES;
    let len = prop_oneof![4 => 1..200_usize, 4 => 4000..4200_usize, 1 => 1..RANGE * 3 / 2];
    let near_range = (0..5_u64, -100..100_i64).prop_map(|(range, by)| (range * RANGE as u64).saturating_add_signed(by));
    let offset = prop_oneof![0..SIZE_MAX, (0..SIZE_MAX / 4096).prop_map(|page| page * 4096), near_range];
    let step = prop_oneof![
        6 => (file.clone(), offset.clone(), len.clone()).prop_map(|(file, at, len)| Step::Read(file, at, len)),
        6 => (file.clone(), offset.clone(), len.clone(), any::<u8>())
            .prop_map(|(file, at, len, byte)| Step::Write(file, at, len, byte)),
        1 => (file.clone(), offset.clone()).prop_map(|(file, size)| Step::Truncate(file, size)),
        1 => (file.clone(), offset.clone(), 1..3_000_000_u64).prop_map(|(file, at, len)| Step::Punch(file, at, len)),
        1 => (file.clone(), offset.clone(), offset.clone(), 1..3_000_000_u64)
            .prop_map(|(file, at, to_at, len)| Step::Copy(file, at, to_at, len)),
        1 => file.clone().prop_map(Step::Reopen),
        1 => file.clone().prop_map(Step::Sync),
        1 => file.prop_map(Step::Size),
        1 => (offset, len, any::<u8>()).prop_map(|(at, len, byte)| Step::HostWrite(at, len, byte)),
    ];
    prop::collection::vec(step, 1..80)
}

struct Run<'g> {
    guests: &'g [Guest],
    name: String,
    files: Vec<File<Process>>,
    host: HostFile,
    model: Model,
}

fn options(file: usize) -> OpenOptions {
    OpenOptions::new().read(true).write(true).append(file == APPENDING)
}

impl Run<'_> {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read(file, at, len) => self.check(file, at, len),
            Step::Write(file, at, len, byte) => {
                self.files[file].write_all_at(at, &vec![byte; len]).unwrap();
                let at = if file == APPENDING { self.model.len() } else { at };
                self.model.write(at, &vec![byte; len]);
            }
            // Others' truncation is seen after a while; this one's at once.
            Step::Truncate(file, size) if self.guests.len() == 1 => {
                self.files[file].set_len(size).unwrap();
                self.model.truncate(size);
            }
            Step::Truncate(..) => {}
            Step::Punch(file, at, len) => {
                let punched = self.files[file].allocate(PUNCH_KEEPING_SIZE, at, len);
                if self.guests.len() > 1 && punched == Err(Errno::PERM) {
                    // The other's daemon does not let a mapped file be cut.
                    return;
                }
                punched.unwrap();
                self.model.zero(at, len);
            }
            Step::Copy(file, at, to_at, len) => {
                let overlaps = at < to_at + len && to_at < at + len;
                if overlaps || file == APPENDING || at >= self.model.len() {
                    return;
                }
                let copied = self.files[file].copy_to(at, &self.files[file], to_at, len).unwrap();
                let bytes = self.model.read(at, copied).to_vec();
                self.model.write(to_at, &bytes);
            }
            Step::Reopen(file) => {
                self.files[file] = self.guests[file % self.guests.len()].fs.open(&self.name, &options(file)).unwrap();
            }
            Step::Sync(file) => self.files[file].sync_all().unwrap(),
            Step::Size(file) if self.guests.len() == 1 => _ = self.files[file].metadata().unwrap(),
            Step::Size(_) => {}
            Step::HostWrite(at, len, byte) => {
                self.host.write_all_at(&vec![byte; len], at).unwrap();
                self.model.write(at, &vec![byte; len]);
            }
        }
    }

    fn check(&self, file: usize, at: u64, len: usize) {
        let mut found = vec![0xa5; len];
        let count = self.files[file].read_at(at, &mut found).unwrap();
        self.model.assert_read(at, len, &found[..count]);
    }
}

/// Runs the steps of `cases` cases over the same guests, each on a file of its own.
fn run(guests: usize, ranges: usize, front_end: &str, mode: CacheMode, cases: u32) {
    let dir = on_disk();
    let guests: Vec<_> = (0..guests).map(|_| Guest::new(dir.path(), ranges, front_end, mode)).collect();
    let number = AtomicU32::new(0);
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::with_cases(cases) };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        let name = format!("file{}", number.fetch_add(1, Ordering::Relaxed));
        let host = new_file(&dir.path().join(&name));
        let files =
            (0..FILES).map(|file| guests[file % guests.len()].fs.open(&name, &options(file)).unwrap()).collect();
        let mut run = Run { guests: &guests, name, files, host, model: Model::default() };
        steps.iter().for_each(|step| run.step(step));
        (0..FILES).for_each(|file| run.check(file, 0, run.model.len() as usize + 1));
        run.files.drain(..).for_each(|file| file.close().unwrap());
        let of_host = std::fs::read(dir.path().join(&run.name)).unwrap();
        run.model.assert_read(0, of_host.len() + 1, &of_host);
        std::fs::remove_file(dir.path().join(&run.name)).unwrap();
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    guests.iter().for_each(|guest| assert!(guest.counts().mapped > 0, "{:?}", guest.counts()));
}

/// A new file, as the host makes it.
fn new_file(path: &Path) -> HostFile {
    HostFile::options().read(true).write(true).create_new(true).open(path).unwrap()
}

#[test]
fn a_guest_with_a_large_window_reads_what_was_written() {
    run(1, 8, "alioth", CacheMode::Auto, 60);
}

#[test]
fn a_guest_whose_window_is_smaller_than_the_file_reads_what_was_written() {
    run(1, 2, "generic", CacheMode::Auto, 60);
    run(1, 1, "alioth", CacheMode::None, 40);
}

#[test]
fn two_guests_and_the_host_read_what_each_other_wrote() {
    run(2, 2, "alioth", CacheMode::None, 40);
    run(2, 4, "generic", CacheMode::Auto, 40);
}
