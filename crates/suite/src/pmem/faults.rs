//! Measures first stores to pages: 512 faults, with and without MAP_SYNC, in a file that is written already or consists
//! of holes, with and without a file being copied at the same time.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use transom_user::{
    guest::{Platform as _, dax::entry::Order},
    map::{Mapping, Protection, Sharing},
    platform::Process,
};

use super::{
    histogram::Histogram,
    machine::Machine,
    setting::{DIR, Guest, Way, mount_pmem, unmount_pmem},
};
use crate::{Verdict, guest::Virtual, job::FileSystem, places::Places};

/// Of a page.
const PAGE_LEN: u64 = Process::PAGE_SIZE.bytes();
/// In 2 MiB.
const PAGES_PER_HUGE: u64 = Process::PAGE_SIZE.pages_per_huge();
/// Of the file: two ranges of the window.
const LEN: u64 = 4 << 20;
/// Of the file that is copied beside.
const COPIED_LEN: usize = 16 << 20;

/// The pages that are stored to. The first store to a range fetches it; the others are faults and nothing else.
fn pages() -> (impl Iterator<Item = u64>, impl Iterator<Item = u64>) {
    ([0, PAGES_PER_HUGE].into_iter(), (1..PAGES_PER_HUGE).chain([PAGES_PER_HUGE + 1]))
}

pub(super) fn run(name: &str, machine: &Virtual, places: &Places<'_>, on: FileSystem) -> anyhow::Result<Verdict> {
    let (share, file) = match super::storage(places, on)? {
        Ok(made) => made,
        Err(skipped) => return Ok(skipped),
    };
    let outcome = Machine::new(machine, &file, &share, on)?.run(&["faults", on.name()])?;
    let (stdout, stderr) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    ensure!(outcome.exit_code == 0, "in the guest, status {}: {stdout}{stderr}", outcome.exit_code);
    places.keep(name, stdout.as_bytes())?;
    Ok(Verdict::passed(Some(stdout.trim_end().replace('\n', "\n    "))))
}

/// One row.
#[derive(Debug, Clone, Copy)]
struct Setting {
    is_written: bool,
    has_load: bool,
    way: Way,
}

impl Setting {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (is_written, has_load) in [(true, false), (false, false), (true, true), (false, true)] {
            all.extend([Way::Nothing, Way::MapSync, Way::Requests].map(|way| Self { is_written, has_load, way }));
        }
        all
    }

    fn words(self) -> String {
        let file = if self.is_written { "written" } else { "empty" };
        let load = if self.has_load { "a copy" } else { "nothing" };
        let way = match self.way {
            Way::Nothing => "shared",
            Way::MapSync => "synchronous, by MAP_SYNC",
            Way::Requests => "synchronous, by FSYNC requests",
        };
        format!("{file} | {load} | {way}")
    }
}

pub(super) fn inside(file_system: &str) -> anyhow::Result<()> {
    mount_pmem(file_system, "dax=always")?;
    let mut rows = Vec::new();
    for (number, setting) in Setting::all().into_iter().enumerate() {
        let latencies = measure(number, setting).with_context(|| format!("{setting:?}"))?;
        rows.push((setting, Histogram::of(&latencies).context("no faults")?));
    }
    println!("| file | beside | mapping | min, us | median | mean | max |\n|---|---|---|---|---|---|---|");
    rows.iter().for_each(|(setting, histogram)| println!("| {} | {} |", setting.words(), histogram.cells()));
    rows.iter().for_each(|(setting, histogram)| println!("\n{}\n{}", setting.words(), histogram.lines()));
    Ok(unmount_pmem()?)
}

fn measure(number: usize, setting: Setting) -> anyhow::Result<Vec<Duration>> {
    let name = format!("faults-{number}");
    let path = Path::new(DIR).join(&name);
    let mut file = File::create(&path)?;
    match setting.is_written {
        true => file.write_all(&vec![1; LEN as usize])?,
        false => file.set_len(LEN)?,
    }
    file.sync_all()?;
    let guest = Guest::connect()?;
    guest.choose(setting.way)?;
    let sharing = if setting.way == Way::Nothing { Sharing::Shared } else { Sharing::SharedSync };
    let open = guest.open(&name)?.as_open_file().clone();
    let mapping = Mapping::with_order(open, 0..LEN, Protection::ReadWrite, sharing, Order::Small)?;
    let latencies = match setting.has_load {
        true => beside_a_copy(|| faults(&mapping))?,
        false => faults(&mapping)?,
    };
    ensure!((guest.synchronous_ranges() > 0) == (setting.way == Way::MapSync), "another way was gone");
    drop(mapping);
    drop(guest);
    fs::remove_file(path)?;
    Ok(latencies)
}

fn faults(mapping: &Mapping) -> anyhow::Result<Vec<Duration>> {
    let store = |page: u64| -> anyhow::Result<Duration> {
        let begun = Instant::now();
        mapping.write_at((page * PAGE_LEN) as usize, &[2])?;
        Ok(begun.elapsed())
    };
    let (first, measured) = pages();
    first.map(store).collect::<anyhow::Result<Vec<_>>>()?;
    measured.map(store).collect()
}

/// Does `work` while another thread copies a file on the same storage, over and over.
fn beside_a_copy<T: Send>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let [from, to] = ["copied", "copy"].map(|name| Path::new(DIR).join(name));
    fs::write(&from, vec![3; COPIED_LEN])?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let copies = scope.spawn(|| -> anyhow::Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                fs::copy(&from, &to)?;
                fs::remove_file(&to)?;
            }
            Ok(())
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        copies.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?.context("copying")?;
        done
    })
}
