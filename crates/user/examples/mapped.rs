//! Random loads and stores of 4 KiB in a mapped file: entries of 4 KiB, entries of 2 MiB, and the host's own mapping
//! beside.
//!
//!     mapped [DIR] [MIB] [ROUNDS]
//!
//! makes a file of MIB (default 256) in DIR (default a temporary one) and touches each page of it once in random order,
//! half of them by stores. Each way starts with nothing mapped; the ways alternate, and the medians of ROUNDS (default
//! 3) are printed, with the minor faults of this process for each GiB and what `smaps` says is mapped by entries of 2
//! MiB, which takes a file system that has such pages: tmpfs mounted with `huge=always`. The daemon is `transomd`, or
//! what TRANSOMD names. From 256 MiB on, entries of 4 KiB exceed the 65,530 mappings that Linux allows a process: then
//! what is shown is hidden and fetched again.
#![allow(clippy::unwrap_used, reason = "an example that cannot go on ends here")]

use std::{env, fs, path::Path, time::Instant};

use rustix::mm::Advice;
use transom_user::{
    daemon::Program,
    fault::copy::copy,
    guest::{
        cache::CacheOptions,
        dax::{Dax, DaxOptions, entry::Order},
        fs::{Fs, OpenOptions},
        session::SessionConfig,
    },
    map::{Mapping, Protection, Sharing},
    share::Share,
};
use vm_memory::{FileOffset, MmapRegion};

const PAGE: usize = 4096;

fn main() {
    let mut args = env::args().skip(1);
    let own = tempfile::tempdir().unwrap();
    let dir = args.next().map_or(own.path().to_owned(), Into::into);
    let len = args.next().map_or(256, |mib| mib.parse::<usize>().unwrap()) << 20;
    let rounds = args.next().map_or(3, |rounds| rounds.parse::<usize>().unwrap());
    let path = dir.join("transom-mapped");
    fs::write(&path, vec![1; len]).unwrap();
    let mut program = Program::new(env::var_os("TRANSOMD").unwrap_or_else(|| "transomd".into()));
    let window = format!("{}M", (len.next_power_of_two() >> 20).max(2));
    program.args.extend(
        ["--tag", "share", "--dax-window", &window, "--dax-policy", "always", "--front-end", "alioth"].map(Into::into),
    );
    let mount = Share::builder().shared_dir(&dir).daemon(program).connect().unwrap();
    let dax = DaxOptions { dax: Dax::Always, ..DaxOptions::default() };
    let fs = Fs::new(mount.volume(SessionConfig::default(), CacheOptions::default(), dax).unwrap().into());
    let file = fs.open("transom-mapped", &OpenOptions::new().read(true).write(true)).unwrap();
    let host = fs::File::options().read(true).write(true).open(&path).unwrap();

    let mut took: [Vec<(f64, u64, u64)>; 3] = Default::default();
    for _ in 0..rounds {
        for (at, order) in [(0, Order::Small), (1, Order::Huge)] {
            let open = file.as_open_file().clone();
            let mapping =
                Mapping::with_order(open, 0..len as u64, Protection::ReadWrite, Sharing::Shared, order).unwrap();
            took[at].push(touch(mapping.as_ptr().as_ptr(), len));
        }
        let region: MmapRegion<()> = MmapRegion::from_file(FileOffset::new(host.try_clone().unwrap(), 0), len).unwrap();
        advise(&region);
        took[2].push(touch(region.as_ptr(), len));
    }
    fs::remove_file(&path).unwrap();
    println!("{:24} {:>12} {:>16} {:>20}", "", "MiB/s", "minor faults/GiB", "by 2 MiB entries");
    for (name, mut took) in ["entries of 4 KiB", "entries of 2 MiB", "the host's own mapping"].into_iter().zip(took) {
        took.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (speed, faults, huge) = took[took.len() / 2];
        let (per_gib, huge_mib) = ((faults << 30) / len as u64, huge >> 10);
        println!("{name:24} {speed:12.0} {per_gib:16} {huge_mib:>16} MiB");
    }
}

/// Every page once, in an order that is no order; every other by a store. MiB/s, minor faults, KiB mapped by large
/// entries.
fn touch(start: *mut u8, len: usize) -> (f64, u64, u64) {
    let pages = len / PAGE;
    let mut buffer = [7; PAGE];
    let faults = faults();
    let begun = Instant::now();
    let mut page = 0;
    for turn in 0..pages {
        // An odd step goes through all of a power of two.
        page = (page + 0x9e37_79b1) % pages;
        let at = start.wrapping_add(page * PAGE);
        #[expect(unsafe_code, reason = "a mapping is reached by address")]
        // SAFETY: the page lies in the mapping, and `buffer` is as long.
        let copied = unsafe {
            if turn % 2 == 0 { copy(buffer.as_mut_ptr(), at, PAGE) } else { copy(at, buffer.as_ptr(), PAGE) }
        };
        assert_eq!(copied, PAGE);
    }
    let speed = len as f64 / (1 << 20) as f64 / begun.elapsed().as_secs_f64();
    (speed, self::faults() - faults, huge())
}

fn faults() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // After the name in parentheses: state is field 3, minor faults field 10.
    stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
}

fn huge() -> u64 {
    let smaps = fs::read_to_string(Path::new("/proc/self/smaps")).unwrap();
    let lines = smaps
        .lines()
        .filter_map(|line| line.strip_prefix("FilePmdMapped:").or_else(|| line.strip_prefix("ShmemPmdMapped:")));
    lines.map(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap()).sum()
}

fn advise(region: &MmapRegion<()>) {
    #[expect(unsafe_code, reason = "advice on a mapping of its own")]
    // SAFETY: the mapping's own range; the advice changes nothing that a program can see.
    let advised = unsafe { rustix::mm::madvise(region.as_ptr().cast(), region.size(), Advice::LinuxHugepage) };
    advised.unwrap();
}
