//! What the kernel does instead of the usual, if there is a file for it: random accesses that are counted, and files
//! that are mapped or not, as the daemon has marked them. See the kernel's `by_name.rs`.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{TIMEOUT, kernel, machine::Attachment, numbers, run};

/// What the kernel is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Usual,
    /// Random accesses to a file, whose length is given in MiB.
    Measured(u64),
    /// Uses of a file that the daemon marks, and of one that it does not.
    Chosen,
    /// Waits for a change on the host, of which the device tells.
    Told,
    /// What Hermit's application does: see `hermit.rs`.
    Hermit,
}

/// Pages at the beginning of both files, and what the kernel stores there: see its `mapping/chosen.rs`.
const PAGES: usize = 64;
const STORED: &[u8] = b"stored by the kernel";

impl Purpose {
    /// Creates its files in the share.
    pub(crate) fn prepare(self, share: &Path) {
        match self {
            Self::Usual => {}
            Self::Measured(mib) => fs::File::create(share.join("measured")).unwrap().set_len(mib << 20).unwrap(),
            Self::Chosen => {
                let dir = share.join("chosen");
                fs::create_dir(&dir).unwrap();
                fs::write(dir.join("small"), pages(PAGES)).unwrap();
                fs::write(dir.join("large"), pages(512)).unwrap();
            }
            Self::Told => fs::create_dir(share.join("told")).unwrap(),
            Self::Hermit => fs::write(share.join("table"), crate::hermit::table()).unwrap(),
        }
    }

    /// Returns the daemon's options for the window, and for which files are marked.
    pub(crate) fn window(self) -> Vec<String> {
        let (window_mib, policy) = match self {
            Self::Usual | Self::Told | Self::Hermit => (8, "always"),
            Self::Measured(mib) => (mib, "always"),
            Self::Chosen => (8, "size=1M"),
        };
        ["--dax-window", &format!("{window_mib}M"), "--dax-policy", policy].map(str::to_owned).to_vec()
    }

    /// Changes the share while the machine runs.
    pub(crate) fn go_on(self, share: &Path, is_over: &AtomicBool) {
        // The kernel is told only of what happens after it has looked at the directory.
        for number in (0..).take_while(|_| self == Self::Told && !is_over.load(Ordering::Relaxed)) {
            fs::write(share.join(format!("told/file{number}")), "").unwrap();
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns how long the machine may run.
    pub(crate) fn timeout(self) -> Duration {
        if matches!(self, Self::Measured(_)) { 12 * TIMEOUT } else { TIMEOUT }
    }
}

/// Each page is filled with its number.
fn pages(count: usize) -> Vec<u8> {
    (0..count * 4096).map(|at| (at / 4096) as u8).collect()
}

#[test]
fn a_file_that_the_daemon_marks_is_mapped_and_another_one_goes_by_requests() {
    for attachment in [Attachment::PciWithWindow, Attachment::Aarch64WithWindow, Attachment::Riscv64WithWindow] {
        check_chosen(attachment);
    }
}

fn check_chosen(attachment: Attachment) {
    let Some(kernel) = kernel(attachment.kernel()) else { return };
    let Some((dir, output)) = run(&kernel, attachment, Purpose::Chosen) else { return };
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(console.contains("all is well"), "{console}{}", String::from_utf8_lossy(&output.stderr));
    let mut ranges = [0, 0];
    for line in console.lines().filter(|line| line.starts_with("ok: chosen: ")) {
        let is_large = usize::from(line.contains("large"));
        let counts = numbers(line, ["ok: chosen: small: [", "ok: chosen: large: ["][is_large], "]");
        let [can_map, requests, mapped] = counts.try_into().unwrap();
        assert_eq!(can_map, is_large as u64, "{attachment:?}: {console}");
        // Each read of a file that is not mapped is a request; the other file takes some for attributes and its range.
        assert_eq!(requests >= PAGES as u64, is_large == 0, "{attachment:?}: {console}");
        ranges[is_large] += mapped;
    }
    assert!(ranges[0] == 0 && ranges[1] > 0, "{attachment:?}: {console}");
    for (name, count) in [("small", PAGES), ("large", 512)] {
        let mut wanted = pages(count);
        wanted[..STORED.len()].copy_from_slice(STORED);
        let found = fs::read(dir.path().join("share/chosen").join(name)).unwrap();
        assert!(found == wanted, "{attachment:?}: the host does not have what was stored in {name}");
    }
}

/// Needs a daemon that can observe the host: fanotify, as root.
#[test]
fn qemus_generic_device_passes_on_the_notification_queue() {
    let attachment = Attachment::PciWithNotifications;
    let Some(kernel) = kernel(attachment.kernel()) else { return };
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return println!("SKIPPED: changes of the host are seen by root only");
    }
    let Some((_, output)) = run(&kernel, attachment, Purpose::Told) else { return };
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = console.lines().find(|line| line.starts_with("ok: told of Created file"));
    assert!(told.is_some_and(|line| line.ends_with(", which is there: true")), "{console}");
    assert!(console.contains("all is well"), "{console}{}", String::from_utf8_lossy(&output.stderr));
}

// Not in the default run, because these are measurements: by name, they print a table.

#[test]
#[ignore = "a measurement: cargo test -p transom-kernel --test boot -- --ignored --nocapture table"]
fn table_of_random_accesses_with_small_and_large_entries_on_x86_64() {
    measure(Attachment::PciWithWindow, 512);
}

#[test]
#[ignore = "a measurement: cargo test -p transom-kernel --test boot -- --ignored --nocapture table"]
fn table_of_random_accesses_with_small_and_large_entries_on_aarch64() {
    measure(Attachment::Aarch64WithWindow, 512);
}

#[test]
#[ignore = "a measurement: cargo test -p transom-kernel --test boot -- --ignored --nocapture table"]
fn table_of_random_accesses_with_small_and_large_entries_on_riscv64() {
    measure(Attachment::Riscv64WithWindow, 512);
}

fn measure(attachment: Attachment, mib: u64) {
    let Some(kernel) = kernel(attachment.kernel()) else { return };
    let Some((_, output)) = run(&kernel, attachment, Purpose::Measured(mib)) else { return };
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(console.contains("all is well"), "{console}{}", String::from_utf8_lossy(&output.stderr));
    println!(
        "{}: entries | bytes | accesses | faults | ranges mapped | pages to flush | µs",
        attachment.architecture()
    );
    let rows: Vec<_> = console.lines().filter_map(|line| line.strip_prefix("ok: table: ")).collect();
    rows.iter().for_each(|row| println!("{row}"));
    let faults = |name: &str| numbers(&console, &format!("ok: table: {name}: ["), "]")[2];
    assert!(rows.len() == 4 && faults("4 KiB") > 100 * faults("2048 KiB"), "{console}");
}
