//! Changes of files under names that the guest does not know: through another link, through a descriptor whose name is
//! gone, through a mapping.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use crate::{
    Guest, Machine,
    guest::{SHARE, signal},
    untouched,
    watcher::{PATIENCE, Watcher},
};

/// What a file in the share is before the change, and after it.
const BEFORE: &[u8] = b"before";
const AFTER: &[u8] = b"after!";

/// A file of the share and a change of it.
struct Case {
    name: &'static str,
    /// Changes the file below the share and what is beside the share. `open` was opened for reading and writing under
    /// another name, which is gone.
    act: fn(share: &Path, beside: &Path, open: &File) -> io::Result<()>,
    data: &'static [u8],
    links: u64,
    mode: u32,
}

const CASES: [Case; 6] = [
    Case {
        name: "through-another-link",
        act: |_, beside, _| {
            fs::OpenOptions::new().write(true).open(beside.join("through-another-link"))?.write_all_at(AFTER, 0)
        },
        data: AFTER,
        links: 2,
        mode: 0o640,
    },
    Case {
        name: "longer-through-another-link",
        act: |_, beside, _| fs::write(beside.join("longer-through-another-link"), b"after and longer"),
        data: b"after and longer",
        links: 2,
        mode: 0o640,
    },
    Case { name: "name-is-gone", act: |_, _, open| open.write_all_at(AFTER, 0), data: AFTER, links: 2, mode: 0o640 },
    Case {
        name: "another-link-removed",
        act: |_, beside, _| fs::remove_file(beside.join("another-link-removed")),
        data: BEFORE,
        links: 1,
        mode: 0o640,
    },
    Case {
        name: "mode-through-another-link",
        act: |_, beside, _| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o604);
            fs::set_permissions(beside.join("mode-through-another-link"), mode)
        },
        data: BEFORE,
        links: 2,
        mode: 0o604,
    },
    Case {
        name: "stored-through-a-mapping",
        act: |share, _, _| {
            let store = "import mmap, sys; file = open(sys.argv[1], 'r+b'); mmap.mmap(file.fileno(), 0)[:] = b'after!'";
            let status =
                Command::new("python3").args(["-c", store]).arg(share.join("stored-through-a-mapping")).status()?;
            if status.success() { Ok(()) } else { Err(io::Error::other(format!("python3: {status}"))) }
        },
        data: AFTER,
        links: 2,
        mode: 0o640,
    },
];

/// Makes the files, boots a guest that knows them, changes them and has the guest see that.
pub(crate) fn are_seen(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let guest = Guest::new(folder.path(), machine, daemon, "nameless")?;
    let (share, beside) = (guest.share.clone(), folder.path().join("beside"));
    fs::create_dir(&beside)?;
    let mut open = Vec::new();
    for case in &CASES {
        // The name under which the descriptor was opened is gone, and another file has it.
        let (name, gone) = (share.join(case.name), share.join(format!("{}-gone", case.name)));
        fs::write(&gone, BEFORE)?;
        fs::set_permissions(&gone, std::os::unix::fs::PermissionsExt::from_mode(0o640))?;
        open.push(File::options().read(true).write(true).open(&gone)?);
        fs::hard_link(&gone, &name)?;
        fs::hard_link(&gone, beside.join(case.name))?;
        fs::remove_file(&gone)?;
        fs::write(&gone, "another")?;
    }
    let (outcome, before) = guest.run(|| {
        for (case, open) in CASES.iter().zip(&open) {
            (case.act)(&share, &beside, open).context(case.name)?;
        }
        Ok(untouched(&share)?)
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    anyhow::ensure!(before == untouched(&share)?, "the share changed");
    Ok(format!("({} files) ", CASES.len()))
}

/// Learns the files, and waits until each is what it became. One is watched.
pub(crate) fn see() -> anyhow::Result<()> {
    let path = |case: &Case| PathBuf::from(SHARE).join(case.name);
    let mut open = HashMap::new();
    for case in &CASES {
        let data = fs::read(path(case))?;
        anyhow::ensure!(data == BEFORE, "{}: {data:?}", case.name);
        anyhow::ensure!(fs::metadata(path(case))?.nlink() == 2, "{}", case.name);
        open.insert(case.name, (File::open(path(case))?, fs::metadata(path(case))?.modified()?));
    }
    let watched = &CASES[0];
    let mut watcher = Watcher::new()?;
    watcher.add(Path::new(SHARE), "", watched.name)?;
    signal("ready")?;
    let deadline = Instant::now() + PATIENCE;
    for case in &CASES {
        // Attributes first: to read a file makes the kernel ask for them again.
        while case.data != BEFORE && fs::metadata(path(case))?.modified()? == open[case.name].1 {
            anyhow::ensure!(Instant::now() < deadline, "the attributes of {} are stale", case.name);
            thread::sleep(Duration::from_millis(5));
        }
        loop {
            let stat = fs::metadata(path(case))?;
            let (data, (file, modified)) = (fs::read(path(case))?, &open[case.name]);
            let mut through_open = vec![0; 64];
            let len = file.read_at(&mut through_open, 0)?;
            if (&*data, &through_open[..len]) == (case.data, case.data)
                && (stat.nlink(), stat.mode() & 0o777) == (case.links, case.mode)
                && (stat.modified()? == *modified) == (case.data == BEFORE)
            {
                break;
            }
            anyhow::ensure!(Instant::now() < deadline, "{} is stale: {data:?} {stat:?}", case.name);
            thread::sleep(Duration::from_millis(5));
        }
    }
    watcher.until_event("MODIFY").context(watched.name)
}
