//! A side of the comparison: a daemon with or without a window, or QEMU's own 9p server.

use std::{ffi::OsString, fmt, path::Path};

use transom_vm::{Boot, CacheMode, Dax, DaxMode, GuestChannels, Qemu, Result, Share, Started, Vmm};

use crate::daemon::Candidate;

/// One column of the table.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name.
    pub name: String,
    /// Serves the share, and in any case the guest's root.
    pub daemon: Candidate,
    /// How the guest accesses the share.
    pub way: Way,
}

/// How the guest accesses the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the daemon.
    VirtioFs {
        /// The daemon's cache mode.
        cache: CacheMode,
        /// Size of its window in bytes, used for all files.
        window_len: Option<u64>,
    },
    /// Through QEMU's virtio-9p, with this `cache=` option.
    NineP(&'static str),
}

/// The tag of the 9p share.
const TAG: &str = "ninep";
/// The largest 9p message; the client requests as much.
const MESSAGE_LEN: u32 = 1 << 20;

impl Side {
    /// Returns the shares in addition to the root.
    pub(super) fn shares(&self, shared: &Path, mount_point: &str) -> Vec<Share> {
        let Way::VirtioFs { cache, window_len } = self.way else { return Vec::new() };
        vec![Share {
            host: shared.to_owned(),
            guest: mount_point.into(),
            cache: Some(cache),
            dax: window_len.map(|window_len| Dax { window_len, mode: DaxMode::Always }),
            daemon_args: self.daemon.args.iter().map(Into::into).collect(),
            ..Share::default()
        }]
    }

    /// Returns the guest's commands that mount a 9p share; the agent has mounted virtio-fs shares.
    pub(super) fn mount_script(&self, mount_point: &str) -> String {
        match self.way {
            Way::VirtioFs { .. } => String::new(),
            Way::NineP(cache) => format!(
                "mount -t 9p -o trans=virtio,version=9p2000.L,msize={MESSAGE_LEN},cache={cache} {TAG} {mount_point}\n"
            ),
        }
    }

    /// Returns `qemu` with the arguments that this side needs.
    pub(super) fn vmm(&self, qemu: Qemu, shared: &Path) -> SideVmm {
        let is_9p = matches!(self.way, Way::NineP(_));
        let mut arguments: Vec<OsString> = Vec::new();
        if is_9p {
            let mut backend = OsString::from("local,id=ninep,security_model=none,path=");
            backend.push(shared);
            let device = format!("virtio-9p-pci,fsdev=ninep,mount_tag={TAG}");
            arguments.extend(["-fsdev".into(), backend, "-device".into(), device.into()]);
        }
        SideVmm { qemu: qemu.with_arguments(arguments), is_9p }
    }
}

/// QEMU, with the modules that a side needs in the guest.
pub(super) struct SideVmm {
    qemu: Qemu,
    is_9p: bool,
}

impl fmt::Debug for SideVmm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.qemu.fmt(f)
    }
}

impl Vmm for SideVmm {
    fn name(&self) -> &'static str {
        self.qemu.name()
    }

    fn modules(&self) -> &'static [&'static str] {
        const WITH_9P: &[&str] = &["virtio_pci", "virtio_console", "9pnet_virtio", "9p"];
        if self.is_9p { WITH_9P } else { self.qemu.modules() }
    }

    fn guest_channels(&self) -> GuestChannels {
        self.qemu.guest_channels()
    }

    fn daemon_args(&self, tag: &str) -> Vec<OsString> {
        self.qemu.daemon_args(tag)
    }

    fn start(&self, boot: &Boot<'_>) -> Result<Started> {
        self.qemu.start(boot)
    }
}
