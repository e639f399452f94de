//! Files that are mapped, beside files that are not: the server marks each (`FUSE_ATTR_DAX`), as `dax=inode` of Linux.
//!
//! The host prepares both files, and checks afterwards what was stored.

use alloc::{format, vec};

use transom_guest::{
    Errno,
    dax::entry::Order,
    fs::{File, OpenOptions},
};
use transom_wire::linux::O_DIRECT;

use super::{Mapping, Sharing};
use crate::bare::{
    Failure,
    by_name::CHOSEN,
    console::say,
    platform::{Bare, PAGE_LEN},
    scenario::expect,
    share::Share,
};

const PAGE: usize = PAGE_LEN as usize;
/// Pages that are read of each file, each by a call of its own and past the cache.
const PAGES: usize = 64;
/// Stored at the beginning of each file.
const STORED: &[u8] = b"stored by the kernel";

/// Uses a file that is marked and one that is not, in the order in which they disturb each other most.
pub(in crate::bare) fn run(share: &Share) -> Result<(), Failure> {
    for name in ["small", "large", "small", "large"] {
        let options = OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT);
        let file = share.fs().open(format!("{CHOSEN}/{name}"), &options)?;
        let mapped_before = mapped(share);
        let sent_before = share.queue_counts(0).sent;
        read(&file)?;
        let sent = share.queue_counts(0).sent - sent_before;
        let can_map = store(&file)?;
        file.close()?;
        say!("ok: chosen: {name}: [{}, {sent}, {}]", u8::from(can_map), mapped(share) - mapped_before);
    }
    Ok(())
}

fn mapped(share: &Share) -> u64 {
    share.fs().volume().window().map_or(0, |window| window.counts().mapped)
}

/// Reads the pages. The second half of each is its number, also after the stores.
fn read(file: &File<Bare>) -> Result<(), Errno> {
    let mut bytes = vec![0; PAGE];
    for page in 0..PAGES {
        expect(file.read_at((page * PAGE) as u64, &mut bytes)? == PAGE)?;
        expect(bytes[PAGE / 2..].iter().all(|&byte| byte == page as u8))?;
    }
    Ok(())
}

/// Stores through a mapping, or writes if the file has none. Returns whether it has one.
fn store(file: &File<Bare>) -> Result<bool, Errno> {
    match Mapping::new(file, PAGES * PAGE, Sharing::Shared, Order::Huge) {
        Ok(mapping) => {
            mapping.store(0, STORED)?;
            mapping.sync()?;
            Ok(true)
        }
        Err(Errno::NODEV) => {
            let mut page = vec![0; PAGE];
            page[..STORED.len()].copy_from_slice(STORED);
            expect(file.write_at(0, &page)? == PAGE)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
