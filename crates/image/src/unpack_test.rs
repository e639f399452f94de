//! The limits of what an image may have, with smaller numbers.

use std::{cell::Cell, io::Read, path::Path};

use tar::{Builder, EntryType, Header};

use super::*;

/// Watches nothing.
struct Quiet;

impl Watch for Quiet {
    fn begins(&self, _len_bytes: u64) {}

    fn advances(&self, _done_bytes: u64) {}

    fn waits_for(&self, _path: &Path) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

fn tar_of(paths: impl IntoIterator<Item = String>, kind: EntryType) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for path in paths {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        builder.append_data(&mut header, path, &[][..]).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Unpacks layers with limits, and returns the error.
#[track_caller]
fn refused(layers: &[Vec<u8>], entries: u64, files: u64) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::new(dir.path(), Space::of(dir.path()), &Quiet).unwrap();
    (unpacker.left_entries, unpacker.left_files) = (entries, files);
    let unpacked = layers.iter().try_for_each(|layer| unpacker.layer(&**layer));
    unpacked.unwrap_err().to_string()
}

#[test]
fn files_of_all_layers_are_counted_and_so_are_directories_that_only_paths_have() {
    let names = |from: u32| tar_of((from..from + 10).map(|number| number.to_string()), EntryType::Regular);
    assert!(refused(&[names(0), names(10)], 100, 19).contains("more than 4194304 files and directories"));
    let deep = tar_of((0..10).map(|number| format!("{number}/{}", "d/".repeat(200))), EntryType::Directory);
    assert!(refused(std::slice::from_ref(&deep), 100, 1000).contains("files and directories"));
}

#[test]
fn entries_that_make_nothing_are_counted_too() {
    for path in ["same", ".wh.missing"] {
        let layer = tar_of((0..30).map(|_| path.to_owned()), EntryType::Regular);
        assert!(refused(&[layer], 20, 100).contains("too many entries"), "{path}");
    }
    let comments = tar_of((0..30).map(|_| "comment".to_owned()), EntryType::XGlobalHeader);
    assert!(refused(&[comments], 20, 100).contains("too many entries"));
}

/// A stream that tells how much of it was read.
struct Counted<'a>(&'a Cell<u64>);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.set(self.0.get() + buffer.len() as u64);
        buffer.fill(b'x');
        Ok(buffer.len())
    }
}

#[test]
fn a_name_is_not_read_beyond_its_limit() {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    let read_bytes = Cell::new(0);
    let dir = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::new(dir.path(), Space::of(dir.path()), &Quiet).unwrap();
    let endless = header.as_bytes().chain(Counted(&read_bytes));
    assert!(unpacker.layer(endless).unwrap_err().to_string().contains("a name of more than 1048576 bytes"));
    assert!(read_bytes.get() < 2 << 20, "{}", read_bytes.get());
}
