//! Random loads and stores of a page in a mapped file, with entries of a page and of 2 MiB: what a larger entry saves.
//!
//! Only by name: see `by_name`.

use alloc::vec;

use transom_guest::{
    Errno,
    dax::{RANGE_LEN, entry::Order},
    fs::{Fs, OpenOptions},
};

use super::{Mapping, Sharing};
use crate::bare::{
    arch,
    by_name::MEASURED,
    console::say,
    platform::{Bare, PAGE_LEN},
    scenario::expect,
};

const PAGE: usize = PAGE_LEN as usize;

/// Accesses each page of the file once on average, half of them stores, and says how many faults it took and how long,
/// for each size of the entries. A round before these has the file mapped.
pub(in crate::bare) fn measure(fs: &Fs<Bare>) -> Result<(), Errno> {
    let file = fs.open(MEASURED, &OpenOptions::new().read(true).write(true))?;
    let len = file.metadata()?.len() as usize;
    let mapping = |order| Mapping::new(&file, len, Sharing::Shared, order);
    let first = mapping(Order::Huge)?;
    random(&first, len)?;
    first.sync()?;
    drop(first);
    for order in [Order::Small, Order::Huge, Order::Small, Order::Huge] {
        let entry_kib = if order == Order::Small { PAGE_LEN } else { RANGE_LEN } >> 10;
        let mapping = mapping(order)?;
        let sent = fs.volume().window().map_or(0, |window| window.counts().mapped);
        let begun_ns = arch::now_ns();
        let accesses = random(&mapping, len)?;
        let us = (arch::now_ns() - begun_ns) / 1000;
        let mapped = fs.volume().window().map_or(0, |window| window.counts().mapped) - sent;
        let faults = mapping.take_served();
        let flushed = mapping.sync()?.len();
        say!("ok: table: {entry_kib} KiB: [{len}, {accesses}, {faults}, {mapped}, {flushed}, {us}]");
    }
    Ok(())
}

/// Returns the number of accesses.
fn random(mapping: &Mapping, len: usize) -> Result<usize, Errno> {
    let mut seed = 2u64;
    let mut page = vec![0; PAGE];
    let pages = len / PAGE;
    for access in 0..pages {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) as usize % pages * PAGE;
        if access % 2 == 0 {
            mapping.load(at, &mut page)?;
            // Either nobody has stored there, or all of a page.
            expect(page.iter().all(|&byte| byte == page[0]))?;
        } else {
            mapping.store(at, &[access as u8; PAGE])?;
        }
    }
    Ok(pages)
}
