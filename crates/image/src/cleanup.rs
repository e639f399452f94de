//! What is in a store and has no use any more.
//!
//! Beside the directory of an image there can be its lock, the same directory while it is unpacked or removed, and
//! files that name the image of an archive which was read before. Whoever removes something holds the lock of its
//! image.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    time::{Duration, SystemTime},
};

use crate::lock::{Lock, Mode};

/// Suffixes of what is beside an image.
pub(crate) const PARTIAL: &str = "partial";
pub(crate) const LOCK: &str = "lock";
pub(crate) const KNOWN: &str = "known";

/// An image that was not used for so long is removed.
const UNUSED_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Removes what runs that were killed have left, and what names images that are not there.
pub(crate) fn remove_abandoned(store: &Path) {
    for (id, suffix) in entries(store) {
        let path = store.join(format!("{id}.{suffix}"));
        let is_there = |id: &str| store.join(id).is_dir();
        match &*suffix {
            KNOWN if fs::read_to_string(&path).is_ok_and(|image| !is_there(&image)) => {
                let _ = fs::remove_file(path);
            }
            PARTIAL | LOCK if suffix == PARTIAL || !is_there(&id) => {
                let Ok(Some(lock)) = Lock::attempt(&store.join(format!("{id}.{LOCK}")), Mode::Exclusive) else {
                    continue;
                };
                let is_removed = remove_all(&store.join(format!("{id}.{PARTIAL}"))).is_ok();
                if is_removed && !is_there(&id) {
                    lock.remove();
                }
            }
            _ => {}
        }
    }
}

/// Removes the images that nobody uses, and that nobody has used for long.
pub(crate) fn remove_unused(store: &Path) {
    for (id, suffix) in entries(store) {
        let path = store.join(format!("{id}.{suffix}"));
        let used = fs::metadata(&path).and_then(|found| found.modified());
        let is_old = used.is_ok_and(|used| SystemTime::now().duration_since(used).is_ok_and(|age| age > UNUSED_MAX));
        if suffix == LOCK
            && is_old
            && let Ok(Some(lock)) = Lock::attempt(&path, Mode::Exclusive)
        {
            let partial = store.join(format!("{id}.{PARTIAL}"));
            // Half of it must not have its name.
            if fs::rename(store.join(&id), &partial).is_ok() && remove_all(&partial).is_ok() {
                lock.remove();
            }
        }
    }
}

/// Returns the parts before and after the dot of the names in a store.
fn entries(store: &Path) -> Vec<(String, String)> {
    let names = fs::read_dir(store).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.rsplit_once('.').map(|(id, suffix)| (id.into(), suffix.into()))).collect()
}

/// Removes a directory with everything in it, if it is there.
pub(crate) fn remove_all(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
