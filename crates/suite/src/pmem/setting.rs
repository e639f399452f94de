//! Inside the guest: the file system on the NVDIMM, and a share of it over `transomd`, with a window.

use std::{
    ffi::CString,
    fs, io,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use transom_user::{
    daemon::Program,
    guest::{
        cache::CacheOptions,
        dax::{Dax, DaxOptions},
        fs::{File, Fs, OpenOptions},
        session::SessionConfig,
    },
    platform::Process,
    share::Share,
};

/// Where the file system is mounted.
pub(super) const DIR: &str = "/pmem";
/// The daemon's program, in the share of the host.
const DAEMON: &str = "/share/transomd";
const DEVICE: &str = "/dev/pmem0";
/// The driver looks at the NVDIMM in its own time.
const DEVICE_MAX: Duration = Duration::from_secs(60);
const CONNECTS_MAX: usize = 6;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// How a store becomes durable, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The window is mapped with MAP_SYNC: the kernel that has the file waits for its metadata.
    MapSync,
    /// The library sends an FSYNC for each page that is first stored to.
    Requests,
    /// It waits for nothing but the processor's cache.
    Nothing,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::MapSync, Self::Requests, Self::Nothing];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MapSync => "map-sync",
            Self::Requests => "requests",
            Self::Nothing => "nothing",
        }
    }

    pub(super) fn named(name: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name).with_context(|| format!("no such way: {name}"))
    }
}

/// Mounts the file system, which replays its log. Errors: there is no NVDIMM, or none with direct access.
pub(super) fn mount_pmem(file_system: &str, options: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + DEVICE_MAX;
    while !Path::new(DEVICE).exists() {
        ensure!(Instant::now() < deadline, "there is no {DEVICE}");
        thread::sleep(BETWEEN_LOOKS);
    }
    fs::create_dir_all(DIR)?;
    let options = CString::new(options)?;
    mount(DEVICE, DIR, file_system, MountFlags::NOATIME, options.as_c_str())
        .with_context(|| format!("mounting {file_system} with {options:?}"))
}

pub(super) fn unmount_pmem() -> io::Result<()> {
    Ok(unmount(DIR, UnmountFlags::empty())?)
}

/// A guest of a daemon that shares the file system.
pub(super) struct Guest {
    pub(super) fs: Fs<Process>,
    /// Ends the daemon, after `fs` is gone.
    mount: Share,
}

impl Guest {
    pub(super) fn connect() -> anyhow::Result<Self> {
        let mut program = Program::new(DAEMON);
        let args = ["--tag=share", "--dax-window=64M", "--dax-policy=always", "--front-end=alioth", "--sandbox=none"];
        program.args.extend(args.map(Into::into));
        let mount = connect_to(&program)?;
        let options = DaxOptions { dax: Dax::Always, size_min_bytes: 0 };
        let volume = mount.volume(SessionConfig::default(), CacheOptions::default(), options)?;
        Ok(Self { fs: Fs::new(Arc::new(volume)), mount })
    }

    /// Stores are made in this way from now on.
    pub(super) fn choose(&self, way: Way) -> anyhow::Result<()> {
        if way == Way::Requests {
            self.mount.window().context("the daemon has no window")?.disable_map_sync();
        }
        Ok(())
    }

    /// How many ranges are mapped with MAP_SYNC.
    pub(super) fn synchronous_ranges(&self) -> usize {
        self.mount.window().map_or(0, |window| window.synchronous_mappings())
    }

    pub(super) fn open(&self, name: &str) -> anyhow::Result<File<Process>> {
        self.fs.open(name, &OpenOptions::new().read(true).write(true)).with_context(|| format!("opening {name}"))
    }
}

/// Starts the daemon; more than once where the machine is so busy that it does not answer in the time that a front end
/// gives it.
fn connect_to(program: &Program) -> anyhow::Result<Share> {
    let connect = || Share::builder().shared_dir(DIR).daemon(program.clone()).connect();
    let mut connected = connect();
    for _ in 1..CONNECTS_MAX {
        if connected.is_ok() {
            break;
        }
        connected = connect();
    }
    Ok(connected?)
}
