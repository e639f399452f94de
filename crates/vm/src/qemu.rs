//! QEMU as a [`Vmm`]: a small PC with virtio-fs devices and five virtio-serial ports.
//!
//! The channels are socket pairs, of which QEMU inherits one end: they have no name in the file system, no one else can
//! connect, and QEMU's end closes when QEMU ends.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::{
    Boot, Channels, Error, GuestChannels, Kernel, Result, SharePoint, Started, Supervised, Vmm, kernel, kvm,
    snapshot::Ends, tools::Program, tsc,
};

/// How the guest's instructions are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// By the CPU, through `/dev/kvm`.
    Kvm,
    /// By translation in QEMU.
    Tcg,
}

/// QEMU as a [`Vmm`].
#[derive(Debug)]
pub struct Qemu {
    program: Program,
    accelerator: Accelerator,
    cache: PathBuf,
    at_reset: AtReset,
    arguments: Vec<OsString>,
}

/// The effect of a reset of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtReset {
    /// The machine ends, so that a guest whose kernel panics is not restarted endlessly.
    Ends,
    /// The machine reboots.
    Reboots,
}

/// Queue length: the most requests that the kernel's driver can have in flight. QEMU's default of 128 would split
/// transfers above 496 KiB.
pub(crate) const QUEUE_LEN: u32 = 1024;

/// QEMU's device for a share without a window.
pub(crate) const SHARE_DEVICE: &str = "vhost-user-fs-pci";

/// QEMU's network device. It has no `romfile`, from which the firmware could boot.
pub(crate) const NETWORK_DEVICE: &str = "virtio-net-pci";

/// QEMU's device with shared-memory regions, available since 11.1; [`SHARE_DEVICE`] has none in any version.
pub(crate) const WINDOW_DEVICE: &str = "vhost-user-test-device-pci";
/// QEMU's device for the scratch disk, and its name for the disk. If the host's disk is full, the guest gets an error
/// instead of standing still.
pub(crate) const SCRATCH_DRIVER: &str = "virtio-blk-pci";
pub(crate) const SCRATCH: &str = "scratch";
const SCRATCH_DEVICE: &str = "virtio-blk-pci,drive=scratch,werror=report,rerror=report";

/// The virtio device type of a file system.
const VIRTIO_ID_FS: u32 = 26;
/// Length of its configuration in bytes: the tag and the number of request queues.
const CONFIG_LEN: u32 = 40;

/// The ports, numbered from 1 on the bus; port 0 is reserved for a console.
const PORTS: [&str; 5] = ["stdin", "stdout", "stderr", "control", "network"];

/// The emulated CPU, with every feature that programs may use, except:
/// - `cx16`: QEMU 7.2 sometimes sets wrong flags for cmpxchg16b, which kills newer kernels at boot.
/// - `smap`, `smep`, `umip` and `pku`: these protections cost half a second of boot, for code patching and for each
///   access to user memory.
/// - `erms` and `fsrm`: without them Linux copies by words. QEMU translates byte copies into a loop over bytes, half as
///   fast for 4 KiB.
const TCG_CPU: &str = "max,cx16=off,smap=off,smep=off,umip=off,pku=off,la57=off,erms=off,fsrm=off";

/// Parameters for every kernel: `panic=-1` resets at once, which with `-no-reboot` ends QEMU, and `reboot=t` is the
/// fastest kind of reset; `random.trust_cpu` seeds the random number generator, for which programs would otherwise
/// wait; `nr_uarts=1` skips probing for absent ports; `tsc=reliable` skips comparing clocks; `mitigations=off` because
/// the guest has one user; `cryptomgr.notests` skips half a second of self-tests; `no_timer_check` because Linux panics
/// ("IO-APIC + timer doesn't work!") if a busy host does not run QEMU for a moment while it counts interrupts.
const KERNEL_ARGS: &str = "console=ttyS0 panic=-1 reboot=t random.trust_cpu=on 8250.nr_uarts=1 tsc=reliable \
                           mitigations=off nokaslr cryptomgr.notests no_timer_check";

impl Accelerator {
    /// Returns its name on QEMU's command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Returns KVM if `kernel` boots with it under this QEMU, else translation.
    pub fn best(program: &Program, kernel: &Kernel, cache: &Path) -> Self {
        if kvm::works(program, &kernel.image, cache) { Self::Kvm } else { Self::Tcg }
    }
}

impl Qemu {
    /// Creates a VMM from a QEMU and an accelerator. Unpacked kernels are kept in the directory `cache`.
    pub fn new(program: Program, accelerator: Accelerator, cache: &Path) -> Self {
        Self { program, accelerator, cache: cache.to_owned(), at_reset: AtReset::Ends, arguments: Vec::new() }
    }

    /// Appends arguments to QEMU's command line.
    pub fn with_arguments(self, arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self { arguments: arguments.into_iter().collect(), ..self }
    }

    /// Sets the effect of a reset.
    pub fn at_reset(self, at_reset: AtReset) -> Self {
        Self { at_reset, ..self }
    }

    /// Returns what the machine depends on, beside what the caller can see.
    ///
    /// # Errors
    ///
    /// Returns an error if a snapshot of this machine cannot be resumed, with the reason.
    pub(crate) fn snapshot_parts(&self) -> std::result::Result<Vec<OsString>, &'static str> {
        match self.accelerator {
            Accelerator::Kvm => return Err("with KVM, snapshots are not tested"),
            Accelerator::Tcg if self.at_reset == AtReset::Reboots => return Err("the machine reboots at a reset"),
            Accelerator::Tcg if !self.arguments.is_empty() => return Err("QEMU has additional arguments"),
            Accelerator::Tcg => {}
        }
        Ok(self.program.words().to_vec())
    }

    fn command(
        &self,
        boot: &Boot<'_>,
        kernel: &Path,
        ends: &[OwnedFd],
        scratch: Option<&File>,
        snapshot: Option<&Ends>,
    ) -> Command {
        let mut command = self.program.command();
        command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        if self.at_reset == AtReset::Ends {
            command.arg("-no-reboot");
        }
        command.args(["-machine", "q35,memory-backend=memory,hpet=off,smbus=off,sata=off,usb=off,vmport=off"]);
        match self.accelerator {
            Accelerator::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
            Accelerator::Tcg => command.args(["-accel", "tcg,thread=multi", "-cpu", TCG_CPU]),
        };
        command.args(["-smp", &self.processors(boot), "-m", &format!("{}M", boot.memory_mib)]);
        let memory = match snapshot {
            None => format!("memory-backend-memfd,id=memory,size={}M,share=on", boot.memory_mib),
            Some(snapshot) => snapshot.memory_object(boot.memory_mib),
        };
        command.args(["-object", &memory]);

        // A machine that is resumed has the same firmware, and finds kernel and initramfs in its memory.
        command.arg("-kernel").arg(kernel);
        if !snapshot.is_some_and(Ends::is_resumed) {
            command.arg("-initrd").arg(boot.initramfs);
        }
        command.arg("-append").arg(self.kernel_line(boot, snapshot.is_some_and(Ends::is_resumed)));
        command.arg("-serial").arg(joined("file:", boot.console));

        command.args(["-device", "virtio-serial-pci,id=serial"]);
        for (number, (name, end)) in (1..).zip(PORTS.iter().zip(ends)) {
            command.args(["-chardev", &format!("socket,id={name},fd={}", end.as_raw_fd())]);
            command.args(["-device", &format!("virtserialport,bus=serial.0,nr={number},chardev={name},name={name}")]);
        }
        for (number, share) in boot.shares.iter().enumerate() {
            command.arg("-chardev").arg(joined(&format!("socket,id=fs{number},path="), &share.socket));
            command.args(["-device", &device(number, share)]);
        }
        // A machine of which a snapshot is made gets the device later.
        if boot.has_network_device && !snapshot.is_some_and(Ends::is_late) {
            command.args(["-netdev", "user,id=network"]);
            command.args(["-device", &format!("{NETWORK_DEVICE},netdev=network,romfile=")]);
        }
        if let Some(scratch) = scratch {
            command.args(scratch_arguments(scratch));
            if !snapshot.is_some_and(Ends::is_late) {
                command.args(["-device", SCRATCH_DEVICE]);
            }
        }
        command.args(snapshot.map(|ends| ends.arguments(scratch.is_some())).unwrap_or_default());
        command.args(&self.arguments);
        command
    }
}

impl Vmm for Qemu {
    fn name(&self) -> &'static str {
        "QEMU"
    }

    fn modules(&self) -> &'static [&'static str] {
        &["virtio_pci", "virtio_console"]
    }

    fn guest_channels(&self) -> GuestChannels {
        let [stdin, stdout, stderr, control, network] =
            std::array::from_fn(|number| format!("/dev/vport0p{}", number + 1));
        GuestChannels { stdin, stdout, stderr, control, network }
    }

    fn resumable(&self) -> Option<&Qemu> {
        Some(self)
    }

    fn start(&self, boot: &Boot<'_>) -> Result<Started> {
        self.launch(boot, None)
    }
}

impl Qemu {
    /// Starts a machine, which boots or is resumed as `snapshot` says.
    pub(crate) fn launch(&self, boot: &Boot<'_>, snapshot: Option<Ends>) -> Result<Started> {
        let kernel = kernel::unpacked(boot.kernel, &self.cache)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in PORTS {
            let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(Error::io("cannot create a channel"))?;
            ours.push(here);
            theirs.push(there);
        }
        let log = boot.dir.join("qemu.log");
        let output = File::create(&log).map_err(Error::io(format!("cannot create {log:?}")))?;
        let scratch =
            boot.scratch.map(File::try_clone).transpose().map_err(Error::io("cannot duplicate a descriptor"))?;
        let mut command = self.command(boot, &kernel, &theirs, scratch.as_ref(), snapshot.as_ref());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        tracing::debug!(?command, "starting QEMU");
        theirs.extend(scratch.map(OwnedFd::from));
        theirs.extend(snapshot.into_iter().flat_map(Ends::into_inherited));
        let process = Supervised::spawn(command, theirs)?;
        let Ok([stdin, stdout, stderr, control, network]) = <[OwnedFd; 5]>::try_from(ours) else {
            unreachable!("one socket pair was created for each of the five ports");
        };
        Ok(Started { process, channels: Channels { stdin, stdout, stderr, control, network }, log })
    }

    /// Returns the argument of `-smp`. With a maximum of one CPU, QEMU emulates atomic operations in several steps,
    /// which are not atomic towards others that share memory with the guest through a window.
    fn processors(&self, boot: &Boot<'_>) -> String {
        let is_shared = boot.shares.iter().any(|share| share.has_window);
        match self.accelerator {
            Accelerator::Tcg if is_shared => format!("{},maxcpus={}", boot.cpus, boot.cpus.max(2)),
            _ => boot.cpus.to_string(),
        }
    }

    /// Returns the kernel's command line, which a machine that is resumed does not read again.
    fn kernel_line(&self, boot: &Boot<'_>, is_resumed: bool) -> OsString {
        let mut line = OsString::from(KERNEL_ARGS);
        // KVM tells the guest the rate itself.
        let is_told = self.accelerator == Accelerator::Tcg && !is_resumed;
        if let Some(khz) = is_told.then(tsc::rate_khz).flatten() {
            line.push(format!(" tsc_early_khz={khz}"));
        }
        for word in boot.kernel_args {
            line.push(" ");
            line.push(word);
        }
        line
    }
}

/// Returns the device of a share. A share with a window or a version table needs QEMU's generic device, which takes
/// features, tag and regions from the daemon.
fn device(number: usize, share: &SharePoint) -> String {
    let SharePoint { tag, has_window, version_table, .. } = share;
    match *has_window || version_table.is_some() {
        true => format!(
            "{WINDOW_DEVICE},chardev=fs{number},virtio-id={VIRTIO_ID_FS},num_vqs=2,vq_size={QUEUE_LEN},\
             config_size={CONFIG_LEN}"
        ),
        false => format!("{SHARE_DEVICE},chardev=fs{number},tag={tag},queue-size={QUEUE_LEN}"),
    }
}

/// Returns the arguments for the scratch disk without its device. Nothing outlives the machine, so nothing is flushed.
fn scratch_arguments(disk: &File) -> [String; 6] {
    let file = "driver=file,node-name=scratch-file,filename=/dev/fdset/1,locking=off,cache.no-flush=on,discard=unmap";
    let raw = format!("driver=raw,node-name={SCRATCH},file=scratch-file,cache.no-flush=on,discard=unmap");
    let fd = format!("fd={},set=1", disk.as_raw_fd());
    ["-add-fd".into(), fd, "-blockdev".into(), file.into(), "-blockdev".into(), raw]
}

/// Returns an option's value that ends in a path, with commas doubled, as QEMU requires within a value.
fn joined(prefix: &str, path: &Path) -> OsString {
    let mut value = OsString::from(prefix);
    for (number, part) in path.as_os_str().as_encoded_bytes().split(|&byte| byte == b',').enumerate() {
        if number > 0 {
            value.push(",,");
        }
        value.push(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(part));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_a_path_is_doubled() {
        assert_eq!(joined("file:", Path::new("/a,b/c")), "file:/a,,b/c");
        assert_eq!(joined("file:", Path::new("/ab")), "file:/ab");
    }
}
