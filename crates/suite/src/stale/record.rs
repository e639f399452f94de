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

/// What is looked at, by name.
pub(super) const KINDS: [&str; 5] = ["data", "listing", "absent name", "attributes", "link"];

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

/// Reads a round from a name. Errors: it is no number.
pub(super) fn round(name: &[u8]) -> anyhow::Result<u64> {
    Ok(std::str::from_utf8(name)?.parse()?)
}
