//! QEMU's machines, and how the file system is attached to them.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use transom_vm::{
    packages::{Cache, OnStderr},
    tools::{Architecture, Tools},
};

/// How the file system is attached to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// On the PCI bus of a q35.
    Pci,
    /// On the PCI bus, with a window: QEMU's generic device.
    PciWithWindow,
    /// As `PciWithWindow`, and the daemon is in a coherence group.
    PciWithWindowAndTable,
    /// The same without a window.
    PciWithTable,
    /// On the PCI bus, with a notification queue: QEMU's generic device, which has no region.
    PciWithNotifications,
    /// On the PCI bus, and the device accesses memory as the platform says.
    PciOfPlatform,
    /// On the PCI bus of a machine with one processor and 16 MiB of memory.
    PciOfSixteen,
    /// On virtio-mmio in a microvm.
    Memory,
    /// The same, with the interface of before virtio 1.0.
    LegacyMemory,
    /// Not at all: an entropy source, which is of type 4, is on the PCI bus of a q35.
    OtherPci,
    /// The same on virtio-mmio, in a microvm.
    OtherMemory,
    /// There is no virtio device.
    Nothing,
    /// On virtio-mmio in the `virt` machine of aarch64.
    Aarch64,
    /// On virtio-mmio in the `virt` machine of riscv64.
    Riscv64,
    /// On the PCI bus of the `virt` machine of aarch64, without a window: QEMU's generic device has one message only.
    Aarch64OfMessages,
    /// On the PCI bus of the `virt` machine of riscv64, likewise, and the machine has no lines.
    Riscv64OfMessages,
    /// On the PCI bus of the `virt` machine of aarch64, with a window.
    Aarch64WithWindow,
    /// The same, and the kernel has pages of 16 KiB, or of 64 KiB.
    Aarch64WithPagesOf16K,
    Aarch64WithPagesOf64K,
    /// As `Aarch64WithWindow`, and the processor does not mark entries of page tables by itself.
    Aarch64WithoutMarks,
    /// The same, with pages of 64 KiB. The processor has none of 16 KiB.
    Aarch64WithPagesOf64KWithoutMarks,
    /// On the PCI bus of the `virt` machine of riscv64, with a window.
    Riscv64WithWindow,
    /// The same, and the processor does not mark entries of page tables by itself.
    Riscv64WithoutMarks,
    /// As `Riscv64WithWindow`, with one processor.
    Riscv64OfOne,
}

impl Attachment {
    /// Returns the machine's architecture.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Aarch64
            | Self::Aarch64OfMessages
            | Self::Aarch64WithWindow
            | Self::Aarch64WithPagesOf16K
            | Self::Aarch64WithPagesOf64K
            | Self::Aarch64WithoutMarks
            | Self::Aarch64WithPagesOf64KWithoutMarks => "aarch64",
            Self::Riscv64
            | Self::Riscv64OfMessages
            | Self::Riscv64WithWindow
            | Self::Riscv64WithoutMarks
            | Self::Riscv64OfOne => "riscv64",
            _ => "x86_64",
        }
    }

    /// Returns the kernel that `scripts/kernel` builds for it.
    pub(crate) fn kernel(self) -> &'static str {
        match self {
            Self::Aarch64WithPagesOf16K => "aarch64-16k",
            Self::Aarch64WithPagesOf64K | Self::Aarch64WithPagesOf64KWithoutMarks => "aarch64-64k",
            _ => self.architecture(),
        }
    }

    /// Returns QEMU's exit status after the kernel has reported success.
    pub(crate) fn all_well(self) -> i32 {
        if self.architecture() == "x86_64" { 33 } else { 0 }
    }

    /// Returns whether the device has a window.
    pub(crate) fn has_window(self) -> bool {
        matches!(
            self,
            Self::PciWithWindow
                | Self::PciWithWindowAndTable
                | Self::Aarch64WithWindow
                | Self::Aarch64WithPagesOf16K
                | Self::Aarch64WithPagesOf64K
                | Self::Aarch64WithoutMarks
                | Self::Aarch64WithPagesOf64KWithoutMarks
                | Self::Riscv64WithWindow
                | Self::Riscv64WithoutMarks
                | Self::Riscv64OfOne
        )
    }

    /// Returns whether the daemon is in a coherence group.
    pub(crate) fn has_versions(self) -> bool {
        matches!(self, Self::PciWithWindowAndTable | Self::PciWithTable)
    }

    /// Returns whether the device is QEMU's generic one, whose configuration space is the daemon's.
    pub(crate) fn is_generic(self) -> bool {
        self.has_regions() || self == Self::PciWithNotifications
    }

    /// Returns whether the device has a region of shared memory.
    pub(crate) fn has_regions(self) -> bool {
        self.has_window() || self.has_versions()
    }

    /// Returns the machine's type and what it needs to start and to end.
    fn machine(self) -> (&'static str, &'static [&'static str]) {
        const PC: &[&str] = &["-cpu", "max", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"];
        const PC_OF_TWO: &[&str] = &["-cpu", "max", "-smp", "2", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"];
        match self {
            Self::Pci
            | Self::PciWithWindow
            | Self::PciWithWindowAndTable
            | Self::PciWithTable
            | Self::PciWithNotifications
            | Self::PciOfPlatform => ("q35", PC_OF_TWO),
            Self::Memory | Self::LegacyMemory | Self::OtherMemory => ("microvm", PC),
            Self::PciOfSixteen | Self::OtherPci | Self::Nothing => ("q35", PC),
            Self::Aarch64
            | Self::Aarch64OfMessages
            | Self::Aarch64WithWindow
            | Self::Aarch64WithPagesOf16K
            | Self::Aarch64WithPagesOf64K => ("virt", &["-cpu", "max", "-smp", "2"]),
            Self::Aarch64WithoutMarks | Self::Aarch64WithPagesOf64KWithoutMarks => {
                ("virt", &["-cpu", "cortex-a57", "-smp", "2"])
            }
            Self::Riscv64 | Self::Riscv64WithWindow => ("virt", &["-smp", "2"]),
            Self::Riscv64OfMessages => ("virt,aia=aplic-imsic", &["-smp", "2"]),
            Self::Riscv64OfOne => ("virt", &[]),
            Self::Riscv64WithoutMarks => ("virt", &["-cpu", "rv64,svade=on,svadu=off", "-smp", "2"]),
        }
    }

    fn device(self) -> Option<&'static str> {
        match self {
            Self::Pci | Self::PciOfSixteen | Self::Aarch64OfMessages | Self::Riscv64OfMessages => {
                Some("vhost-user-fs-pci,chardev=fs,tag=kernel,num-request-queues=2")
            }
            Self::PciOfPlatform => {
                Some("vhost-user-fs-pci,chardev=fs,tag=kernel,num-request-queues=2,iommu_platform=on")
            }
            _ if self.has_regions() => {
                Some("vhost-user-test-device-pci,chardev=fs,virtio-id=26,num_vqs=3,vq_size=1024,config_size=40")
            }
            // The queue of notifications is one more, and its field in the configuration space is the last.
            Self::PciWithNotifications => {
                Some("vhost-user-test-device-pci,chardev=fs,virtio-id=26,num_vqs=4,vq_size=1024,config_size=44")
            }
            Self::Memory | Self::LegacyMemory | Self::Aarch64 | Self::Riscv64 => {
                Some("vhost-user-fs-device,chardev=fs,tag=kernel,num-request-queues=2")
            }
            Self::OtherPci => Some("virtio-rng-pci"),
            Self::OtherMemory => Some("virtio-rng-device"),
            _ => None,
        }
    }
}

/// QEMU, ready to boot.
pub(crate) struct Machine {
    command: Command,
    attachment: Attachment,
}

impl Machine {
    /// Finds or fetches QEMU; `None` if neither is possible.
    pub(crate) fn new(attachment: Attachment) -> Option<Self> {
        let cache = Cache::locate().unwrap();
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        let program = match attachment {
            _ if attachment.architecture() == "aarch64" => tools.qemu_of(Architecture::Aarch64),
            _ if attachment.architecture() == "riscv64" => tools.qemu_of(Architecture::Riscv64),
            _ if attachment.is_generic() => tools.qemu_with_window(None),
            _ => tools.qemu(None, true),
        };
        match program {
            Ok(program) => Some(Self { command: program.command(), attachment }),
            Err(error) => {
                println!("SKIPPED: {attachment:?}: no QEMU: {error}");
                None
            }
        }
    }

    /// Runs `kernel` with the daemon at `socket`, until the machine ends, at most for `timeout`. Keeps files in `dir`.
    pub(crate) fn run(mut self, kernel: &Path, socket: &Path, dir: &Path, timeout: Duration) -> Output {
        let (machine, more) = self.attachment.machine();
        let memory = if self.attachment == Attachment::PciOfSixteen { "16M" } else { "256M" };
        let chardev = format!("socket,id=fs,path={}", socket.display());
        let is_legacy = self.attachment == Attachment::LegacyMemory;
        let (console, errors) = (dir.join("console"), dir.join("errors"));
        self.command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-machine", &format!("{machine},memory-backend=memory"), "-accel", "tcg"])
            .args(["-m", memory, "-object", &format!("memory-backend-memfd,id=memory,size={memory},share=on")])
            // QEMU's default for virtio-mmio is the legacy interface.
            .args(["-global", &format!("virtio-mmio.force-legacy={is_legacy}")])
            .arg("-kernel")
            .arg(kernel)
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(more)
            .args(["-chardev", &chardev]);
        if let Some(device) = self.attachment.device() {
            self.command.args(["-device", device]);
        }
        let mut qemu = self.command.stdout(Stdio::null()).stderr(fs::File::create(&errors).unwrap()).spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = qemu.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > timeout {
                // The console output shows how far it got.
                let _ = qemu.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Output { status, stdout: fs::read(console).unwrap_or_default(), stderr: fs::read(errors).unwrap() }
    }
}
