//! The files of a member, each of which counts its rounds in another kind of what a guest caches.

use std::{fs, os::unix::fs::symlink, path::Path};

/// Holds the round, in 8 bytes: data.
pub(super) const DATA: &str = "data";
/// Holds one file, whose name is the round: names and listings.
pub(super) const NAMES: &str = "names";
/// Was modified in the second whose number is the round: attributes.
pub(super) const TIMES: &str = "times";
/// Leads to the round: symbolic links, and a name that leads to another file each time.
pub(super) const LINK: &str = "link";
/// The next link, before it is renamed.
pub(super) const NEXT_LINK: &str = "next";

/// A directory that all members change, beside those of each.
pub(super) const COMMON: &str = "common";

/// What is looked at, by name.
pub(super) const KINDS: [&str; 7] =
    ["data", "listing", "absent name", "attributes", "link", "common data", "common name"];

/// The round that each kind shows.
pub(super) type Look = [u64; KINDS.len()];

/// Makes the files of a member, at round 0.
pub(super) fn create(at: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(at.join(NAMES))?;
    fs::write(at.join(DATA), 0_u64.to_le_bytes())?;
    fs::write(at.join(NAMES).join("0"), "")?;
    let times = fs::File::create(at.join(TIMES))?;
    times.set_modified(std::time::UNIX_EPOCH)?;
    symlink("0", at.join(LINK))?;
    Ok(())
}

/// Makes what all members change, at round 0: a file with 8 bytes of each, and a directory with one name of each.
pub(super) fn create_common(at: &Path, members: usize) -> anyhow::Result<()> {
    fs::create_dir_all(at.join(NAMES))?;
    fs::write(at.join(DATA), vec![0; 8 * members])?;
    for member in 0..members {
        fs::write(at.join(NAMES).join(common_name(member, 0)), "")?;
    }
    Ok(())
}

/// Returns the name of a member in the common directory.
pub(super) fn common_name(member: usize, round: u64) -> String {
    format!("{member}.{round}")
}

/// Reads the round of a member from a name in the common directory, if it is this member's.
pub(super) fn common_round(name: &[u8], member: usize) -> Option<u64> {
    std::str::from_utf8(name).ok()?.strip_prefix(&format!("{member}."))?.parse().ok()
}

/// Reads a round from a name. Errors: it is no number.
pub(super) fn round(name: &[u8]) -> anyhow::Result<u64> {
    Ok(std::str::from_utf8(name)?.parse()?)
}
