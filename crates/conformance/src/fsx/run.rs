//! Does one operation to file and model, and compares.

use rustix::io::Errno;

use super::{
    Settings, is_unsupported,
    model::Model,
    operation::{Allocation, BLOCK, Mode, Operation, Random},
    subject::{Open, Subject},
};

pub(super) struct Run<'s> {
    subject: Subject,
    model: Model,
    settings: &'s Settings,
}

/// What became of an operation.
pub(super) enum Outcome {
    Done,
    /// The file system has no such thing.
    Unsupported,
    /// It would not have done anything as things stand.
    Nothing,
}

/// What is wrong, in words.
type Step = Result<Outcome, String>;

impl<'s> Run<'s> {
    pub(super) fn new(subject: Subject, settings: &'s Settings) -> Self {
        Self { subject, model: Model::default(), settings }
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Does it, and compares what can be seen at once.
    pub(super) fn step(&mut self, operation: Operation) -> Step {
        self.check_sizes()?;
        match operation {
            Operation::Read { handle, offset, len } => self.read(handle, offset, len),
            Operation::Write { handle, offset, len, seed } => self.write(handle, offset, len, seed),
            Operation::Map { slot, path, offset, len } => self.map(slot, path, offset, len),
            Operation::Unmap { slot } => {
                self.subject.unmap(slot);
                Ok(Outcome::Done)
            }
            Operation::Load { slot, offset, len } => self.load(slot, offset, len),
            Operation::Store { slot, offset, len, seed } => self.store(slot, offset, len, seed),
            Operation::SyncMapping { slot } => match self.subject.mapping(slot) {
                Some(mapped) => outcome("msync", mapped.memory.sync()),
                None => Ok(Outcome::Nothing),
            },
            Operation::ReadIntoMapping { handle, offset, slot, at, len } => {
                self.by_mapping(handle, offset, slot, at, len, true)
            }
            Operation::WriteFromMapping { handle, offset, slot, at, len } => {
                self.by_mapping(handle, offset, slot, at, len, false)
            }
            Operation::Truncate { path, len } => {
                let truncated = rustix::fs::open(
                    self.subject.path(path),
                    rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
                    rustix::fs::Mode::empty(),
                )
                .and_then(|fd| rustix::fs::ftruncate(fd, len));
                self.truncated(truncated, len)
            }
            Operation::TruncateHandle { handle, len } => {
                let truncated = self.subject.handle(handle).truncate(len);
                self.truncated(truncated, len)
            }
            Operation::OpenTruncating { path } => {
                let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::TRUNC | rustix::fs::OFlags::CLOEXEC;
                let opened = rustix::fs::open(self.subject.path(path), flags, rustix::fs::Mode::empty()).map(drop);
                self.truncated(opened, 0)
            }
            Operation::Allocate { handle, kind, offset, len } => self.allocate(handle, kind, offset, len),
            Operation::Copy { from, offset, to, to_offset, len } => self.copy((from, offset), (to, to_offset), len),
            Operation::Sync { handle, is_data_only } => outcome("sync", self.subject.handle(handle).sync(is_data_only)),
            Operation::Reopen { handle, path, mode } => match self.subject.reopen(handle, path, mode) {
                // What `open` says where a file system has no `O_DIRECT`.
                Err(Errno::INVAL) if mode == Mode::Direct => Ok(Outcome::Unsupported),
                other => outcome("open", other),
            },
            Operation::Compare { path } => self.compare(path),
        }
    }

    /// Compares everything once more, and removes the file.
    pub(super) fn finish(mut self) -> Result<(), String> {
        self.check_sizes()?;
        for path in 0..self.settings.directories.len() {
            self.compare(path)?;
        }
        self.subject.remove().map_err(|errno| format!("cannot remove the file: {errno}"))
    }

    fn check_sizes(&self) -> Result<(), String> {
        let sizes = self.subject.sizes().map_err(|errno| format!("statx: {errno}"))?;
        match sizes.iter().position(|&size| size != self.model.len()) {
            Some(index) => {
                let path = self.subject.path(index).display();
                Err(format!("the size of {path} is {} and should be {}", sizes[index], self.model.len()))
            }
            None => Ok(()),
        }
    }

    fn read(&self, handle: usize, offset: u64, len: u64) -> Step {
        let open = self.subject.handle(handle);
        let (offset, len) = aligned(open, offset, len);
        match open.read(offset, len) {
            Ok(found) => same("read", offset, self.model.read(offset, len), &found),
            Err(errno) => outcome("read", Err(errno)),
        }
    }

    fn write(&mut self, handle: usize, offset: u64, len: u64, seed: u64) -> Step {
        let open = self.subject.handle(handle);
        let (offset, len) = aligned(open, offset, len);
        let offset = if open.mode == Mode::Append { self.model.len() } else { offset };
        if offset + len > self.settings.limits.size_max + BLOCK {
            return Ok(Outcome::Nothing);
        }
        let data = Random::bytes(seed, len);
        let written = open.write(offset, &data);
        if written.is_ok() {
            self.model.write(offset, &data);
        }
        outcome("write", written)
    }

    fn map(&mut self, slot: usize, path: usize, offset: u64, len: u64) -> Step {
        if self.settings.unmapped.contains(&path) {
            return Ok(Outcome::Nothing);
        }
        outcome("mmap", self.subject.map(slot, path, offset, len))
    }

    /// The part of a mapping that lies within the file: offset in the mapping, in the file, and length.
    fn touchable(&self, slot: usize, at: u64, len: u64) -> Option<(usize, u64, u64)> {
        let mapped = self.subject.mapping(slot)?;
        let within = self.model.len().min(mapped.offset + mapped.len).checked_sub(mapped.offset)?;
        let at = at % within.max(1);
        let len = len.min(within - at.min(within));
        (len > 0).then_some((at as usize, mapped.offset + at, len))
    }

    fn load(&self, slot: usize, at: u64, len: u64) -> Step {
        let Some((at, offset, len)) = self.touchable(slot, at, len) else { return Ok(Outcome::Nothing) };
        let mut found = vec![0; len as usize];
        let mapped = self.subject.mapping(slot).expect("it is touchable");
        mapped.memory.load(at, &mut found);
        same("load", offset, self.model.read(offset, len), &found)
    }

    fn store(&mut self, slot: usize, at: u64, len: u64, seed: u64) -> Step {
        let Some((at, offset, len)) = self.touchable(slot, at, len) else { return Ok(Outcome::Nothing) };
        let data = Random::bytes(seed, len);
        self.subject.mapping(slot).expect("it is touchable").memory.store(at, &data);
        self.model.write(offset, &data);
        Ok(Outcome::Done)
    }

    /// Moves whole blocks between the file and the memory of a mapping of it, by one system call.
    ///
    /// A file system may answer EFAULT, and has done nothing then.
    fn by_mapping(&mut self, handle: usize, offset: u64, slot: usize, at: u64, len: u64, is_read: bool) -> Step {
        let at = at / BLOCK * BLOCK;
        let Some((at, memory_offset, len)) = self.touchable(slot, at, len) else { return Ok(Outcome::Nothing) };
        let at_block = at / BLOCK as usize * BLOCK as usize;
        let memory_offset = memory_offset - (at - at_block) as u64;
        let (offset, len) = (offset / BLOCK * BLOCK, len / BLOCK * BLOCK);
        let (open, mapped) = (self.subject.handle(handle), self.subject.mapping(slot).expect("it is touchable"));
        let overlaps = offset < memory_offset + len && memory_offset < offset + len;
        let is_inside = offset + len <= self.model.len() && memory_offset + len <= self.model.len();
        if len == 0 || overlaps || !is_inside || open.mode == Mode::Append {
            return Ok(Outcome::Nothing);
        }
        let (moved, from, to) = match is_read {
            true => (mapped.memory.read_from(at_block, len as usize, open_fd(open), offset), offset, memory_offset),
            false => (mapped.memory.write_to(at_block, len as usize, open_fd(open), offset), memory_offset, offset),
        };
        match moved {
            Ok(count) => {
                let data = self.model.read(from, count as u64).to_vec();
                self.model.write(to, &data);
                Ok(Outcome::Done)
            }
            Err(Errno::FAULT) => Ok(Outcome::Unsupported),
            Err(errno) => outcome("O_DIRECT to or from a mapping", Err(errno)),
        }
    }

    fn truncated(&mut self, result: Result<(), Errno>, len: u64) -> Step {
        if result.is_ok() {
            self.model.truncate(len);
        }
        outcome("truncate", result)
    }

    fn allocate(&mut self, handle: usize, kind: Allocation, offset: u64, len: u64) -> Step {
        let (size, end) = (self.model.len(), offset + len);
        let is_possible = match kind {
            Allocation::Collapse => end < size,
            Allocation::Insert => offset < size && size + len <= self.settings.limits.size_max,
            _ => true,
        };
        if !is_possible {
            return Ok(Outcome::Nothing);
        }
        let allocated = self.subject.handle(handle).allocate(kind, offset, len);
        if allocated.is_ok() {
            match kind {
                Allocation::Grow => self.model.extend(end),
                Allocation::Keep => {}
                Allocation::Zero => {
                    self.model.extend(end);
                    self.model.zero(offset, len);
                }
                Allocation::Punch | Allocation::ZeroKeep => self.model.zero(offset, len),
                Allocation::Collapse => self.model.collapse(offset, len),
                Allocation::Insert => self.model.insert(offset, len),
            }
        }
        outcome("fallocate", allocated)
    }

    fn copy(&mut self, (from, offset): (usize, u64), (to, to_offset): (usize, u64), len: u64) -> Step {
        let (source, target) = (self.subject.handle(from), self.subject.handle(to));
        let len = len.min(self.model.len().saturating_sub(offset));
        let overlaps = offset < to_offset + len && to_offset < offset + len;
        // Unaligned copies through O_DIRECT are an error, and appending ones too.
        let is_plain = |open: &Open| matches!(open.mode, Mode::Plain | Mode::Synchronous);
        if len == 0 || overlaps || !is_plain(source) || !is_plain(target) || source.path != target.path {
            return Ok(Outcome::Nothing);
        }
        match source.copy_to(offset, target, to_offset, len) {
            Ok(copied) => {
                let data = self.model.read(offset, copied).to_vec();
                self.model.write(to_offset, &data);
                Ok(Outcome::Done)
            }
            Err(errno) => outcome("copy_file_range", Err(errno)),
        }
    }

    /// The whole file through a handle of its own.
    fn compare(&mut self, path: usize) -> Step {
        let paths: Vec<_> =
            (0..self.settings.directories.len()).map(|path| self.subject.path(path).to_owned()).collect();
        let found = Open::new(&paths, path, Mode::Plain).and_then(|open| open.read(0, self.model.len() + 1));
        match found {
            Ok(found) => same("the whole file", 0, self.model.read(0, self.model.len()), &found),
            Err(errno) => outcome("open and read", Err(errno)),
        }
    }
}

fn open_fd(open: &Open) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(open)
}

/// Whole blocks where the handle needs them.
fn aligned(open: &Open, offset: u64, len: u64) -> (u64, u64) {
    match open.mode {
        Mode::Direct => (offset / BLOCK * BLOCK, len.next_multiple_of(BLOCK)),
        _ => (offset, len),
    }
}

fn outcome(what: &str, result: Result<(), Errno>) -> Step {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(errno) if is_unsupported(errno) => Ok(Outcome::Unsupported),
        Err(errno) => Err(format!("{what}: {errno}")),
    }
}

fn same(what: &str, offset: u64, expected: &[u8], found: &[u8]) -> Step {
    if expected == found {
        return Ok(Outcome::Done);
    }
    if expected.len() != found.len() {
        return Err(format!("{what} from {offset}: {} bytes, and should be {}", found.len(), expected.len()));
    }
    let differs = |index: &usize| expected[*index] != found[*index];
    let first = (0..expected.len()).find(differs).unwrap_or(0);
    let count = (0..expected.len()).filter(differs).count();
    let zeros = (0..expected.len()).filter(|index| differs(index) && found[*index] == 0).count();
    let shown = |bytes: &[u8]| bytes[first..].iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
    Err(format!(
        "{what} from {offset}: {count} of {} bytes differ, {zeros} of them zero, \
         the first at {} ({:#x}): found {}…, expected {}…",
        expected.len(),
        offset + first as u64,
        offset + first as u64,
        shown(found),
        shown(expected)
    ))
}
