//! The file of a group: found or created, and checked before anything of it is believed.

use std::{
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, ftruncate, linkat, openat, unlinkat},
    process::getpid,
    rand::{GetRandomFlags, getrandom},
};
use transom_versions::{Keys, Reader, Writer, layout, location::TABLE_NAME as NAME};

use super::{
    GroupError, GroupLocation,
    area::{Area, MIRRORS_MAX},
    location::{check_outside, check_private},
    mapping::Mapping,
};
use crate::Errno;

/// The file of a group, checked.
#[derive(Debug)]
pub struct TableFile {
    pub(super) fd: OwnedFd,
    pub(super) len_bytes: usize,
    /// The files of all mirrors, by number.
    pub(super) mirrors: Vec<MirrorFile>,
}

/// The file of a mirror, mapped: a sandbox hides it.
#[derive(Debug)]
pub(super) struct MirrorFile {
    pub(super) fd: OwnedFd,
    pub(super) mapping: Mapping,
}

impl TableFile {
    /// Opens the group's file, and creates it if it is missing. Call it before a sandbox hides the file. `writable` is
    /// the shared directory, unless it is shared for reading only.
    ///
    /// # Errors
    /// If the directory or the file is not ours alone or in `writable`, or if the file is not a version table of the
    /// known layout.
    pub fn open(place: &GroupLocation, writable: Option<&Path>) -> Result<Self, GroupError> {
        let (directory, path) = (place.open()?, place.path().join(NAME));
        if let Some(share) = writable {
            check_outside(&directory, &place.path(), share)?;
        }
        let failed = |source| GroupError::File { path: path.clone(), source };
        // Whoever creates the table makes it complete before it gets its name, so it is created once at the most.
        let fd = match open_existing(&directory) {
            Err(Errno::NOENT) => {
                create(&directory, &path)?;
                open_existing(&directory).map_err(failed)?
            }
            outcome => outcome.map_err(failed)?,
        };
        let (fd, len_bytes, slots) = check(fd, path)?;
        let mirrors = (0..MIRRORS_MAX).map(|number| open_mirror(&directory, place, number, slots));
        Ok(Self { fd, len_bytes, mirrors: mirrors.collect::<Result<_, _>>()? })
    }
}

/// Opens the file of a mirror, creates it if it is missing, and makes it as long as the table.
fn open_mirror(
    directory: &OwnedFd,
    place: &GroupLocation,
    number: usize,
    slots: u64,
) -> Result<MirrorFile, GroupError> {
    let name = format!("mirror.{number}");
    let path = place.path().join(&name);
    let failed = |source| GroupError::File { path: path.clone(), source };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(directory, &*name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let stat = fstat(&fd).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(GroupError::NotAFile(path));
    }
    check_private(&stat, || format!("mirror {}", path.display()))?;
    let len_bytes = layout::len_bytes(slots.ilog2());
    if stat.st_size.cast_unsigned() < len_bytes as u64 {
        ftruncate(&fd, len_bytes as u64).map_err(failed)?;
    }
    let mapping = Mapping::guarded(&fd, len_bytes).map_err(GroupError::Map)?;
    Ok(MirrorFile { fd, mapping })
}

fn open_existing(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(directory, NAME, flags, Mode::empty())
}

/// Returns the file, its length, and the number of slots.
fn check(fd: OwnedFd, path: PathBuf) -> Result<(OwnedFd, usize, u64), GroupError> {
    let stat = fstat(&fd).map_err(|source| GroupError::File { path: path.clone(), source })?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(GroupError::NotAFile(path));
    }
    check_private(&stat, || format!("version table {}", path.display()))?;
    let found_bytes = stat.st_size.cast_unsigned();
    // The header alone says how long the file should be.
    let header_bytes = usize::try_from(found_bytes).unwrap_or(usize::MAX).min(Area::len_max());
    let mapping = Mapping::new(&fd, header_bytes).map_err(GroupError::Map)?;
    let reader = Reader::new(&mapping)?;
    let needed_bytes = Area::file_len_bytes(reader.slots());
    if found_bytes != needed_bytes as u64 {
        return Err(GroupError::Length { len_bytes: found_bytes, needed_bytes: needed_bytes as u64 });
    }
    Area::check(&mapping, reader.slots())?;
    let slots = reader.slots();
    Ok((fd, needed_bytes, slots))
}

/// Creates a complete table under a name of this process, and then gives it its own name, unless somebody has done so.
fn create(directory: &OwnedFd, path: &Path) -> Result<(), GroupError> {
    let failed = |source| GroupError::File { path: path.to_owned(), source };
    let temporary = format!(".table.{}", getpid().as_raw_nonzero());
    // Left over from a process that had this number.
    let _ = unlinkat(directory, &*temporary, AtFlags::empty());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(directory, &*temporary, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let linked = fill(&fd).and_then(|()| match linkat(directory, &*temporary, directory, NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(failed(errno)),
    });
    let _ = unlinkat(directory, &*temporary, AtFlags::empty());
    linked
}

/// Takes space for a part of a file, so that no store into its mapping finds the disk full: that would be SIGBUS. Keeps
/// what is there. Does nothing on a file system that cannot promise space.
///
/// # Errors
/// If there is not enough space.
pub(super) fn reserve_space(file: impl AsFd, bytes: Range<usize>) -> Result<(), GroupError> {
    let len_bytes = (bytes.end - bytes.start) as u64;
    let reserve = || fallocate(&file, FallocateFlags::KEEP_SIZE, bytes.start as u64, len_bytes);
    match rustix::io::retry_on_intr(reserve) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(source) => Err(GroupError::Space { len_bytes, source }),
    }
}

fn fill(fd: &OwnedFd) -> Result<(), GroupError> {
    let len_bytes = Area::file_len_bytes(1 << layout::SLOTS_LOG2);
    ftruncate(fd, len_bytes as u64).map_err(GroupError::Map)?;
    reserve_space(fd, 0..Area::heat_bytes(1 << layout::SLOTS_LOG2, 0).start)?;
    let mut random = [[0; 8]; 2];
    for key in &mut random {
        getrandom(&mut *key, GetRandomFlags::empty()).map_err(GroupError::Random)?;
    }
    let keys = Keys(u64::from_ne_bytes(random[0]), u64::from_ne_bytes(random[1]));
    let mapping = Mapping::new(fd, len_bytes).map_err(GroupError::Map)?;
    Area::new(mapping.clone(), 1 << layout::SLOTS_LOG2).format();
    Writer::format(mapping, layout::SLOTS_LOG2, keys)?;
    Ok(())
}
