//! Early ends of a case: a failure, or an environment in which it cannot run.

use std::fmt::Display;
use std::panic::Location;

use crate::client::Errno;

/// How a case ends: with nothing more to say, or early.
pub type Outcome = std::result::Result<(), Stop>;

/// Why a case ends early.
#[derive(Debug)]
pub enum Stop {
    /// It found something other than it expected.
    Fail(String),
    /// It cannot run here.
    Skip(String),
}

impl Stop {
    /// A failure at the caller's line.
    #[track_caller]
    pub fn fail(what: impl Display) -> Self {
        let place = Location::caller();
        let file = place.file().rsplit('/').next().unwrap_or_default();
        Self::Fail(format!("{file}:{}: {what}", place.line()))
    }

    /// The case cannot run here.
    pub fn skip(why: impl Display) -> Self {
        Self::Skip(why.to_string())
    }
}

impl From<Errno> for Stop {
    #[track_caller]
    fn from(errno: Errno) -> Self {
        Self::fail(format!("expected success, found {}", name_of(errno)))
    }
}

/// `ENOENT`, or the number of an error without a name here.
pub fn name_of(errno: Errno) -> String {
    let debug = format!("{errno:?}");
    let known: &[(Errno, &str)] = &[
        (Errno::ACCESS, "EACCES"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::BADF, "EBADF"),
        (Errno::BUSY, "EBUSY"),
        (Errno::DEADLK, "EDEADLK"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::EXIST, "EEXIST"),
        (Errno::FBIG, "EFBIG"),
        (Errno::INTR, "EINTR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::IO, "EIO"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::LOOP, "ELOOP"),
        (Errno::MLINK, "EMLINK"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NFILE, "ENFILE"),
        (Errno::MFILE, "EMFILE"),
        (Errno::NODATA, "ENODATA"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NOLCK, "ENOLCK"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::NXIO, "ENXIO"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::PERM, "EPERM"),
        (Errno::RANGE, "ERANGE"),
        (Errno::ROFS, "EROFS"),
        (Errno::STALE, "ESTALE"),
        (Errno::TOOBIG, "E2BIG"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::XDEV, "EXDEV"),
    ];
    known.iter().find(|(known, _)| *known == errno).map_or(debug, |(_, name)| (*name).to_owned())
}
