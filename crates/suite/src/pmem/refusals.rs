//! Inside the guest: durable stores are refused if they are impossible.

use std::{fs::File, path::Path};

use anyhow::{Context as _, ensure};
use transom_user::{
    guest::Errno,
    map::{MapFile as _, Protection, Sharing},
};

use super::setting::{DIR, Guest, mount_pmem, unmount_pmem};

const NAME: &str = "file";
const LEN: u64 = 2 << 20;

/// On the same storage, used through the page cache.
pub(super) fn without_dax(file_system: &str) -> anyhow::Result<()> {
    mount_pmem(file_system, "dax=never")?;
    let guest = with_file()?;
    let file = guest.open(NAME)?;
    let mapped = file.map(0..LEN, Protection::ReadWrite, Sharing::SharedSync);
    ensure!(mapped.err() == Some(Errno::OPNOTSUPP), "a mapping with MAP_SYNC on storage without DAX");
    let shared = file.map(0..LEN, Protection::ReadWrite, Sharing::Shared).context("a shared mapping")?;
    shared.write_at(0, b"stored").context("a store")?;
    drop(shared);
    drop((file, guest));
    Ok(unmount_pmem()?)
}

fn with_file() -> anyhow::Result<Guest> {
    let file = File::create(Path::new(DIR).join(NAME))?;
    file.set_len(LEN)?;
    file.sync_all()?;
    Guest::connect()
}
