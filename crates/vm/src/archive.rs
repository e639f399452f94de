//! Files and trees as an archive (tar), packed on one side and unpacked on the other for `transom cp`.
//!
//! An archive has one file or directory with a known name, and what is below it. [`unpack`] makes nothing elsewhere,
//! whatever the archive says: the other side can be a hostile guest. In the guest, the agent's executable is also the
//! program that packs and unpacks, because not every root has one.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    io::{self, BufReader, BufWriter, Read, Write},
    os::{
        fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Component, Path, PathBuf},
    rc::Rc,
};

use rustix::{
    fs::{
        AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps, chmod, mkdirat, openat, openat2, readlinkat,
        utimensat,
    },
    io::Errno,
};
use tar::{Archive, Builder, Entry, EntryType, Header};

/// The name under which the agent's executable is this program.
pub(crate) const PROGRAM: &str = "transom-archiver";
/// Its first argument.
pub(crate) const PACK: &str = "pack";
pub(crate) const UNPACK: &str = "unpack";

/// Bytes of all headers of one entry: many times the longest path and the longest link. What the library skips of an
/// entry that nobody reads, such as a directory with content, counts too.
const HEADERS_LEN_MAX: u64 = 1 << 20;

/// Where a copy goes: a directory that is there, and the copy's name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The directory.
    pub parent: PathBuf,
    /// The name.
    pub name: OsString,
}

impl Destination {
    /// Returns where a copy of something with the name `source` goes if `path` is given: into a directory that is
    /// there, or to a new name.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such directory.
    pub fn of(path: &Path, source: &OsStr) -> io::Result<Self> {
        if path.is_dir() {
            return Ok(Self { parent: path.to_owned(), name: source.to_owned() });
        }
        let name = path.file_name().ok_or_else(|| io::Error::other(format!("{} has no name", path.display())))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !parent.is_dir() {
            return Err(io::Error::other(format!("{} is not a directory", parent.display())));
        }
        Ok(Self { parent: parent.to_owned(), name: name.to_owned() })
    }
}

/// Writes an archive of `source`, which is called `name` in it, and returns the paths that were left out because they
/// are neither files, directories nor symbolic links.
///
/// Below `source`, no symbolic link is followed, also none that takes the place of a directory meanwhile: a guest may
/// be able to write there, and must not choose what of this machine is copied.
///
/// # Errors
///
/// Returns an error with the path if something cannot be read, or if the archive cannot be written.
pub fn pack(source: &Path, name: &OsStr, to: impl Write) -> io::Result<Vec<PathBuf>> {
    let mut builder = Builder::new(BufWriter::new(to));
    let mut left_out = Vec::new();
    let above = source.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let own_name = source.file_name().ok_or_else(|| io::Error::other(format!("{} has no name", source.display())))?;
    let above = open_directory(CWD, above.as_os_str(), OFlags::empty())
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", source.display())))?;
    // Paths below `above`, and in the archive.
    let mut pending = vec![(PathBuf::from(own_name), PathBuf::from(name))];
    while let Some((path, name)) = pending.pop() {
        let shown = || source.with_file_name("").join(&path);
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", shown().display()));
        let entry = fs::File::from(open_below(&above, &path, OFlags::PATH).map_err(failed)?);
        let metadata = entry.metadata().map_err(failed)?;
        if metadata.is_dir() {
            builder.append_data(&mut header_of(&metadata), &name, io::empty()).map_err(failed)?;
            // The descriptor stands for the directory, whatever has its path by now.
            for entry in fs::read_dir(through(&entry)).map_err(failed)? {
                let entry = entry.map_err(failed)?.file_name();
                pending.push((path.join(&entry), name.join(&entry)));
            }
        } else if metadata.is_file() {
            // Read through the descriptor, too: what has the path now may be something else.
            let mut file = fs::File::open(through(&entry)).map_err(failed)?;
            builder.append_file(&name, &mut file).map_err(failed)?;
        } else if metadata.is_symlink() {
            let target = readlinkat(&entry, "", Vec::new()).map_err(|errno| failed(errno.into()))?;
            let target = OsStr::from_bytes(target.to_bytes());
            builder.append_link(&mut header_of(&metadata), &name, target).map_err(failed)?;
        } else {
            left_out.push(shown());
        }
    }
    builder.into_inner()?.flush()?;
    Ok(left_out)
}

/// Opens what has `path` in `directory`, which no symbolic link leads to.
fn open_below(directory: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = openat2(directory, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve);
    opened.map_err(|errno| match errno {
        Errno::LOOP => io::Error::other("a symbolic link has taken the place of a directory above it"),
        errno => errno.into(),
    })
}

/// Returns the header of an entry without content.
fn header_of(metadata: &fs::Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_metadata(metadata);
    header.set_size(0);
    header
}

/// Makes what the archive has at `destination`. Files there are replaced, and directories added to.
///
/// # Errors
///
/// Returns an error if something cannot be made, and if the archive has anything but files, directories and symbolic
/// links at or below the destination, leads there through a symbolic link, or has names and headers without end.
pub fn unpack(destination: &Destination, from: impl Read) -> io::Result<()> {
    let parent = open_directory(CWD, destination.parent.as_os_str(), OFlags::empty())?;
    let allowance = Allowance::default();
    let mut archive = Archive::new(Metered { inner: BufReader::new(from), allowance: allowance.clone() });
    archive.set_unpack_xattrs(false);
    // By path, since an archive can name a directory as often as it likes.
    let mut directories = BTreeMap::new();
    let mut entries = archive.entries()?;
    loop {
        // The library keeps long names, and other records before an entry, in memory.
        allowance.set(Some(HEADERS_LEN_MAX));
        let Some(entry) = entries.next() else { break };
        let mut entry = entry?;
        allowance.set(None);
        let path = check(&entry, &destination.name)?;
        match entry.header().entry_type() {
            EntryType::Directory => {
                make_directory(&parent, &path).map_err(|error| leads_away(&entry, error))?;
                let header = entry.header();
                let (mode, mtime) = (header.mode()?, header.mtime()?);
                directories.insert(path, (mode, mtime));
            }
            _ => unpack_one(&mut entry, &parent, &path)?,
        }
    }
    // Their modes may forbid what is made in them. The inner ones come after those around them.
    allowance.set(None);
    for (path, (mode, mtime)) in directories.into_iter().rev() {
        finish_directory(&make_directory(&parent, &path)?, mode, mtime)?;
    }
    // Who packs must not meet a closed pipe after the last entry.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop)
}

/// Bytes that may still be read; `None` for any number.
type Allowance = Rc<Cell<Option<u64>>>;

/// Reads no more than is allowed.
struct Metered<R> {
    inner: R,
    allowance: Allowance,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(left) = self.allowance.get() else { return self.inner.read(bytes) };
        if left == 0 {
            return Err(io::Error::other(format!("the archive has more than {HEADERS_LEN_MAX} bytes before an entry")));
        }
        let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut bytes[..len])?;
        self.allowance.set(Some(left - read as u64));
        Ok(read)
    }
}

/// Makes a file or a symbolic link, which replaces what is there.
fn unpack_one(entry: &mut Entry<'_, impl Read>, parent: &OwnedFd, path: &Path) -> io::Result<()> {
    let above = path.parent().unwrap_or(Path::new(""));
    let directory = make_directory(parent, above).map_err(|error| leads_away(entry, error))?;
    let name = path.file_name().unwrap_or_default();
    // The library replaces what has the name, and never follows it.
    entry.unpack(through(&directory).join(name)).map(drop).map_err(with_cause)
}

/// Opens the directory at `path` in `parent`; makes it, and those on the way, if they are missing. Follows no symbolic
/// link: an earlier entry, an earlier copy or a guest whose share this is may have made one.
fn make_directory(parent: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut directory = parent.try_clone()?;
    for component in path.components() {
        match mkdirat(&directory, component.as_os_str(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        directory = open_directory(directory.as_fd(), component.as_os_str(), OFlags::NOFOLLOW)?;
    }
    Ok(directory)
}

fn open_directory(at: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(at, name, flags | OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns a path that leads to an open file or directory, whatever its name is.
fn through(directory: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

fn finish_directory(directory: &OwnedFd, mode: u32, mtime: u64) -> io::Result<()> {
    let modified = Timespec { tv_sec: i64::try_from(mtime).unwrap_or(0), tv_nsec: 0 };
    let times = Timestamps { last_access: modified, last_modification: modified };
    utimensat(CWD, through(directory), &times, AtFlags::empty())?;
    Ok(chmod(through(directory), Mode::from_raw_mode(mode & 0o777))?)
}

/// Returns the error of an entry whose directory cannot be opened.
fn leads_away(entry: &Entry<'_, impl Read>, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotADirectory => refused(entry, "it leads through a file or a symbolic link"),
        _ => error,
    }
}

/// Checks the kind of an entry, and that it is at or below `name`. Returns its path.
fn check(entry: &Entry<'_, impl Read>, name: &OsStr) -> io::Result<PathBuf> {
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Directory | EntryType::Symlink | EntryType::GNUSparse => {}
        kind => {
            return Err(refused(entry, &format!("it is neither a file, a directory nor a symbolic link: {kind:?}")));
        }
    }
    let path = entry.path()?;
    let mut components = path.components();
    let is_below = components.next() == Some(Component::Normal(name))
        && components.all(|component| matches!(component, Component::Normal(_)));
    if is_below { Ok(path.into_owned()) } else { Err(refused(entry, "it is not in what is copied")) }
}

fn refused(entry: &Entry<'_, impl Read>, why: &str) -> io::Error {
    let path = entry.path().map(|path| format!("{path:?}")).unwrap_or_default();
    io::Error::other(format!("the archive's entry {path} is refused: {why}"))
}

/// Returns the error with what has caused it, which the library keeps apart.
fn with_cause(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|inner| inner.source()).map(|cause| format!(": {cause}")).unwrap_or_default();
    io::Error::new(error.kind(), format!("{error}{cause}"))
}

/// Packs or unpacks and never returns, if this process was started as [`PROGRAM`].
pub(crate) fn run_if_archiver() {
    let mut words = std::env::args_os();
    if words.next().is_none_or(|word| word != PROGRAM) {
        return;
    }
    let words: Vec<OsString> = words.collect();
    let status = match serve(&words) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("transom: in the guest: {error}");
            1
        }
    };
    std::process::exit(status)
}

fn serve(words: &[OsString]) -> io::Result<()> {
    let [action, path, name] = words else { return Err(io::Error::other("invalid arguments")) };
    let path = Path::new(path);
    if action == PACK {
        let left_out = pack(path, name, io::stdout())?;
        left_out.iter().for_each(|path| eprintln!("transom: {}", left_out_message(path)));
        return Ok(());
    }
    let destination = Destination::of(path, name)?;
    // The host packs under this name.
    let mut stdout = io::stdout();
    stdout.write_all(destination.name.as_encoded_bytes())?;
    stdout.write_all(&[0])?;
    stdout.flush()?;
    unpack(&destination, io::stdin())
}

/// Returns what is told about a path that was left out.
pub fn left_out_message(path: &Path) -> String {
    format!("{} is not copied: it is neither a file, a directory nor a symbolic link", path.display())
}

#[cfg(test)]
#[path = "archive_test.rs"]
mod tests;
