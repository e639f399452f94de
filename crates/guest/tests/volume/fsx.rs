//! Random reads, writes and truncation of one file through several open files, byte for byte.

use std::sync::Arc;

use proptest::prelude::*;
use transom_guest::{
    cache::{CacheMode, CacheOptions},
    fs::{File, Fs, OpenOptions},
    session::{Session, SessionConfig},
};
use transom_host::passthrough::{CachePolicy, Config, Passthrough};

use transom_conformance::fsx::Model;
use transom_wire::ops::init::InitFlags;

use crate::{
    group,
    peer::{Peer, Plain},
};

/// Maximum size of the file in bytes: several chunks.
const SIZE_MAX: u64 = 600_000;

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
    Copy(usize, usize, u64, u64, u64),
    Reopen(usize),
    Sync(usize),
    Size(usize),
    /// A write on the host, without the guests' knowledge.
    HostWrite(u64, usize, u8),
    HostTruncate(u64),
}

fn steps(is_shared: bool) -> impl Strategy<Value = Vec<Step>> {
    let file = 0..FILES;
    let len = prop_oneof![1..200_usize, 4000..4200_usize, 1..150_000_usize];
    let offset = prop_oneof![0..SIZE_MAX, (0..SIZE_MAX / 4096).prop_map(|page| page * 4096)];
    let guest = prop_oneof![
        4 => (file.clone(), offset.clone(), len.clone()).prop_map(|(file, at, len)| Step::Read(file, at, len)),
        4 => (file.clone(), offset.clone(), len.clone(), any::<u8>())
            .prop_map(|(file, at, len, byte)| Step::Write(file, at, len, byte)),
        1 => (file.clone(), offset.clone()).prop_map(|(file, size)| Step::Truncate(file, size)),
        1 => (file.clone(), offset.clone(), 1..100_000_u64).prop_map(|(file, at, len)| Step::Punch(file, at, len)),
        1 => (file.clone(), file.clone(), offset.clone(), offset.clone(), 1..100_000_u64)
            .prop_map(|(from, to, at, to_at, len)| Step::Copy(from, to, at, to_at, len)),
        1 => file.clone().prop_map(Step::Reopen),
        1 => file.clone().prop_map(Step::Sync),
        1 => file.prop_map(Step::Size),
    ];
    let host = prop_oneof![
        (offset.clone(), len, any::<u8>()).prop_map(|(at, len, byte)| Step::HostWrite(at, len, byte)),
        offset.prop_map(Step::HostTruncate),
    ];
    let step = if is_shared { prop_oneof![5 => guest, 1 => host].boxed() } else { guest.boxed() };
    prop::collection::vec(step, 1..60)
}

/// One file, and its expected contents.
struct Run {
    files: Vec<File<Plain>>,
    guests: Vec<Fs<Plain>>,
    model: Model,
    dir: tempfile::TempDir,
}

fn options(file: usize) -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true).append(file == APPENDING)
}

impl Run {
    fn new(guests: usize, cache: CachePolicy, options_of_all: CacheOptions) -> Self {
        Self::with_config(SessionConfig::default(), guests, cache, options_of_all)
    }

    fn with_config(
        session_config: SessionConfig,
        guests: usize,
        cache: CachePolicy,
        options_of_all: CacheOptions,
    ) -> Self {
        let (dir, place) = (tempfile::tempdir().unwrap(), group::place());
        let guest = || {
            let config = Config { cache, writeback: true, ..Config::default() };
            if options_of_all.mode == CacheMode::Shared {
                return group::member(place.path(), dir.path(), config, session_config, options_of_all).1;
            }
            let peer = Peer::new(Passthrough::open(dir.path(), config).unwrap());
            Fs::mount(Session::begin(peer, Arc::default(), session_config).unwrap(), options_of_all)
        };
        let guests: Vec<_> = (0..guests).map(|_| guest()).collect();
        let files = (0..FILES).map(|file| guests[file % guests.len()].open("file", &options(file)).unwrap()).collect();
        Self { files, guests, model: Model::default(), dir }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read(file, at, len) => self.check(file, at, len),
            Step::Write(file, at, len, byte) => {
                assert_eq!(self.files[file].write_at(at, &vec![byte; len]), Ok(len));
                let at = if file == APPENDING { self.model.len() } else { at };
                self.model.write(at, &vec![byte; len]);
            }
            Step::Truncate(file, size) => {
                self.files[file].set_len(size).unwrap();
                self.model.truncate(size);
            }
            Step::Punch(file, at, len) => {
                self.files[file].allocate(PUNCH_KEEPING_SIZE, at, len).unwrap();
                self.model.zero(at, len);
            }
            Step::Copy(from, to, at, to_at, len) => self.copy(from, to, at, to_at, len),
            Step::Reopen(file) => {
                self.files[file] = self.guests[file % self.guests.len()].open("file", &options(file)).unwrap();
            }
            Step::Sync(file) => self.files[file].sync_all().unwrap(),
            Step::Size(file) => assert_eq!(self.files[file].metadata().unwrap().len(), self.model.len()),
            Step::HostWrite(at, len, byte) => {
                std::os::unix::fs::FileExt::write_all_at(&self.host_file(), &vec![byte; len], at).unwrap();
                self.model.write(at, &vec![byte; len]);
            }
            Step::HostTruncate(size) => {
                self.host_file().set_len(size).unwrap();
                self.model.truncate(size);
            }
        }
    }

    fn copy(&mut self, from: usize, to: usize, at: u64, to_at: u64, len: u64) {
        let overlaps = at < to_at + len && to_at < at + len;
        let is_one_guest = from % self.guests.len() == to % self.guests.len();
        if overlaps || !is_one_guest || to == APPENDING || at >= self.model.len() {
            return;
        }
        let copied = self.files[from].copy_to(at, &self.files[to], to_at, len).unwrap();
        let bytes = self.model.read(at, copied).to_vec();
        self.model.write(to_at, &bytes);
    }

    fn host_file(&self) -> std::fs::File {
        std::fs::File::options().write(true).open(self.dir.path().join("file")).unwrap()
    }

    fn check(&self, file: usize, at: u64, len: usize) {
        let mut found = vec![0xa5; len];
        let count = self.files[file].read_at(at, &mut found).unwrap();
        self.model.assert_read(at, len, &found[..count]);
    }

    fn run(mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.step(step));
        (0..FILES).for_each(|file| self.check(file, 0, self.model.len() as usize + 1));
        self.files.drain(..).for_each(|file| file.close().unwrap());
        let of_host = std::fs::read(self.dir.path().join("file")).unwrap();
        self.model.assert_read(0, of_host.len() + 1, &of_host);
    }
}

fn writing_back() -> SessionConfig {
    SessionConfig::default().with(InitFlags::WRITEBACK_CACHE)
}

fn keeping(mode: CacheMode, data_max_bytes: usize) -> CacheOptions {
    CacheOptions { mode, data_max_bytes, ..CacheOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn a_guest_alone_that_keeps_everything_reads_what_was_written(steps in steps(false)) {
        Run::new(1, CachePolicy::Auto, keeping(CacheMode::Always, 64 << 20)).run(&steps);
    }

    #[test]
    fn a_guest_with_little_memory_reads_what_was_written(steps in steps(false)) {
        Run::new(1, CachePolicy::Auto, keeping(CacheMode::Always, 300 << 10)).run(&steps);
    }

    #[test]
    fn a_guest_that_keeps_what_the_server_lets_it_reads_what_was_written(steps in steps(false)) {
        Run::new(1, CachePolicy::Auto, keeping(CacheMode::Auto, 64 << 20)).run(&steps);
    }

    #[test]
    fn a_guest_that_writes_back_reads_what_was_written(steps in steps(false)) {
        Run::with_config(writing_back(), 1, CachePolicy::Auto, keeping(CacheMode::Auto, 64 << 20)).run(&steps);
    }

    #[test]
    fn a_guest_that_writes_back_with_little_memory_reads_what_was_written(steps in steps(false)) {
        let options = CacheOptions { dirty_max_bytes: 64 << 10, ..keeping(CacheMode::Always, 300 << 10) };
        Run::with_config(writing_back(), 1, CachePolicy::Auto, options).run(&steps);
    }

    #[test]
    fn guests_without_time_read_what_others_and_the_host_wrote(steps in steps(true)) {
        Run::new(2, CachePolicy::Never, keeping(CacheMode::Auto, 64 << 20)).run(&steps);
    }

    #[test]
    fn guests_of_a_group_read_what_others_wrote(steps in steps(false)) {
        Run::new(2, CachePolicy::Auto, keeping(CacheMode::Shared, 64 << 20)).run(&steps);
    }

    #[test]
    fn guests_of_a_group_with_little_memory_that_may_write_back_read_what_others_wrote(steps in steps(false)) {
        Run::with_config(writing_back(), 2, CachePolicy::Auto, keeping(CacheMode::Shared, 300 << 10)).run(&steps);
    }

    #[test]
    fn guests_that_keep_nothing_read_what_others_and_the_host_wrote(steps in steps(true)) {
        Run::new(2, CachePolicy::Auto, keeping(CacheMode::None, 64 << 20)).run(&steps);
    }
}
