use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn destination(dir: &Path) -> Destination {
    Destination { parent: dir.to_owned(), name: "copy".into() }
}

/// Appends an entry with a name that the library would refuse to write.
fn append(builder: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, link: &str, content: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    let fields = header.as_gnu_mut().unwrap();
    fields.name[..name.len()].copy_from_slice(name.as_bytes());
    fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

/// Unpacks an archive of these entries into the directory `parent/in` of a new one; returns the outcome and everything
/// that is in the new one then.
fn unpacked(entries: &[(EntryType, &str, &str)]) -> (io::Result<()>, Vec<PathBuf>) {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("in");
    fs::create_dir(&inner).unwrap();
    fs::create_dir(outer.path().join("outside")).unwrap();
    fs::create_dir(inner.join("sibling")).unwrap();
    fs::write(outer.path().join("outside/file"), "untouched").unwrap();
    let mut builder = Builder::new(Vec::new());
    for (kind, name, link) in entries {
        let link = link.replace("OUTSIDE", outer.path().join("outside").to_str().unwrap());
        let content: &[u8] = if *kind == EntryType::Regular { b"evil" } else { b"" };
        append(&mut builder, *kind, &name.replace("OUTSIDE", outer.path().to_str().unwrap()), &link, content);
    }
    let result = unpack(&destination(&inner), &builder.into_inner().unwrap()[..]);
    assert_eq!(fs::read(outer.path().join("outside/file")).unwrap(), b"untouched");
    assert_eq!(fs::metadata(outer.path().join("outside/file")).unwrap().permissions().mode() & 0o777, 0o644);
    let mut found = Vec::new();
    let mut pending = vec![outer.path().to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            }
            found.push(entry.path().strip_prefix(outer.path()).unwrap().to_owned());
        }
    }
    found.retain(|path| !path.starts_with("outside") && path != Path::new("in") && path != Path::new("in/sibling"));
    (result, found)
}

#[test]
fn a_tree_arrives_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("tree");
    fs::create_dir_all(source.join("sub/empty")).unwrap();
    fs::write(source.join("sub/run"), "script").unwrap();
    fs::set_permissions(source.join("sub/run"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("/nowhere/else", source.join("link")).unwrap();
    let long = "n".repeat(200);
    fs::write(source.join(&long), "").unwrap();
    fs::set_permissions(source.join("sub"), fs::Permissions::from_mode(0o555)).unwrap();

    let mut archive = Vec::new();
    assert_eq!(pack(&source, OsStr::new("copy"), &mut archive).unwrap(), Vec::<PathBuf>::new());
    unpack(&destination(dir.path()), &archive[..]).unwrap();
    // Once more, over what is there.
    unpack(&destination(dir.path()), &archive[..]).unwrap();
    let copy = dir.path().join("copy");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(fs::read(copy.join("sub/run")).unwrap(), b"script");
    assert_eq!((mode(&copy.join("sub")), mode(&copy.join("sub/run"))), (0o555, 0o750));
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("/nowhere/else"));
    assert!(copy.join("sub/empty").is_dir() && copy.join(long).is_file());
}

#[test]
fn what_is_no_file_is_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(pack(dir.path(), OsStr::new("copy"), io::sink()).unwrap(), [socket]);
}

#[test]
fn nothing_is_made_outside_of_the_copy() {
    use EntryType::{Block, Char, Directory, Fifo, Link, Regular, Symlink};
    let into_link = [(Symlink, "copy", "OUTSIDE"), (Regular, "copy/file", "")];
    let below_link = [(Symlink, "copy/a", "OUTSIDE"), (Regular, "copy/a/file", "")];
    let directory_over_link = [(Symlink, "copy/a", "OUTSIDE"), (Directory, "copy/a", "")];
    let relative_link = [(Symlink, "copy/a", "../../outside"), (Regular, "copy/a/new", "")];
    // These stay in the directory of the copy, and leave the copy.
    let sibling_link = [(Symlink, "copy/a", "../sibling"), (Regular, "copy/a/new", "")];
    let own_link = [(Symlink, "copy", "sibling"), (Regular, "copy/new", "")];
    let own_parent = [(Symlink, "copy", "."), (Directory, "copy/new", "")];
    for (entries, made) in [
        (&[(Regular, "/etc/x", "")][..], &[][..]),
        (&[(Regular, "OUTSIDE/outside/file", "")], &[]),
        (&[(Regular, "other", "")], &[]),
        (&[(Regular, "copy/../../outside/file", "")], &[]),
        (&[(Regular, "../outside/file", "")], &[]),
        (&[(Link, "copy", "OUTSIDE/file")], &[]),
        (&[(Fifo, "copy", "")], &[]),
        (&[(Char, "copy", "")], &[]),
        (&[(Block, "copy", "")], &[]),
        (&into_link, &["in/copy"]),
        (&below_link, &["in/copy", "in/copy/a"]),
        (&directory_over_link, &["in/copy", "in/copy/a"]),
        (&relative_link, &["in/copy", "in/copy/a"]),
        (&sibling_link, &["in/copy", "in/copy/a"]),
        (&own_link, &["in/copy"]),
        (&own_parent, &["in/copy"]),
    ] {
        let (result, mut found) = unpacked(entries);
        found.sort();
        assert!(result.is_err(), "{entries:?}");
        assert_eq!(found, made.iter().map(PathBuf::from).collect::<Vec<_>>(), "{entries:?}");
    }
}

/// Takes an archive, and replaces a directory by a link as soon as something arrives.
struct Swapping<'a> {
    archive: Vec<u8>,
    directory: &'a Path,
    link: &'a Path,
}

impl Write for Swapping<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.archive.is_empty() {
            fs::rename(self.directory, self.directory.with_extension("moved"))?;
            symlink(self.link, self.directory)?;
        }
        self.archive.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_directory_that_is_replaced_by_a_link_while_it_is_copied_leads_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, outside) = (dir.path().join("shared"), dir.path().join("outside"));
    for (at, content) in [(shared.join("of-guest"), "guest"), (outside.clone(), "SECRET")] {
        fs::create_dir_all(&at).unwrap();
        // Each is more than what is written at once.
        (0..20).for_each(|number| fs::write(at.join(number.to_string()), content.repeat(2000)).unwrap());
    }
    let mut to = Swapping { archive: Vec::new(), directory: &shared.join("of-guest"), link: &outside };
    let result = pack(&shared, OsStr::new("copy"), &mut to);
    assert!(!to.archive.windows(6).any(|bytes| bytes == b"SECRET"), "a file outside of what is copied was read");
    assert!(result.unwrap_err().to_string().contains("symbolic link"));
}

#[test]
fn names_without_end_take_no_memory() {
    // A long name of a GiB, which is not sent as a whole: who reads it would wait for the rest.
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 30);
    header.set_cksum();
    let endless = header.as_bytes().chain(io::repeat(b'n').take(64 << 20));
    let dir = tempfile::tempdir().unwrap();
    let error = unpack(&destination(dir.path()), endless).unwrap_err();
    assert!(error.to_string().contains("bytes before an entry"), "{error}");
}

#[test]
fn a_file_that_replaces_a_link_does_not_follow_it() {
    let (result, found) = unpacked(&[(EntryType::Symlink, "copy", "OUTSIDE/file"), (EntryType::Regular, "copy", "")]);
    result.unwrap();
    assert_eq!(found, [PathBuf::from("in/copy")]);
}

#[test]
fn an_archive_that_ends_early_or_is_garbage_is_an_error() {
    let mut builder = Builder::new(Vec::new());
    append(&mut builder, EntryType::Regular, "copy", "", &[1; 2000]);
    let archive = builder.into_inner().unwrap();
    for bytes in [&archive[..1500], &[0x55; 1024]] {
        let dir = tempfile::tempdir().unwrap();
        assert!(unpack(&destination(dir.path()), bytes).is_err());
    }
}

#[test]
fn a_destination_is_a_directory_that_is_there_or_a_new_name_in_one() {
    let dir = tempfile::tempdir().unwrap();
    let of = |path: &Path| Destination::of(path, OsStr::new("source")).map(|to| (to.parent, to.name));
    assert_eq!(of(dir.path()).unwrap(), (dir.path().to_owned(), "source".into()));
    assert_eq!(of(&dir.path().join("new")).unwrap(), (dir.path().to_owned(), "new".into()));
    assert_eq!(of(Path::new("new")).unwrap(), (".".into(), "new".into()));
    assert!(of(&dir.path().join("no/new")).is_err());
}
