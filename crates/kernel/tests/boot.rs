//! Boots the kernel in QEMU with transomd: tests the library's transports against real devices.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use transom_vm::{
    packages::{Cache, OnStderr},
    tools::Tools,
};

/// Exit status of QEMU after the kernel has reported success.
const ALL_WELL: i32 = 33;
/// Generous enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Length of `input`: several requests, and not a multiple of the page size.
const INPUT_LEN: usize = (3 << 20) + 777;

/// How the file system is attached to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attachment {
    /// On the PCI bus of a q35.
    Pci,
    /// On the PCI bus, with a window: QEMU's generic device.
    PciWithWindow,
    /// On virtio-mmio in a microvm.
    Memory,
}

#[test]
fn a_share_is_used_over_pci() {
    boot(Attachment::Pci);
}

#[test]
fn a_share_is_used_over_pci_and_through_its_window() {
    if let Some(console) = boot(Attachment::PciWithWindow) {
        assert!(console.contains("window: 64 MiB at 0x"), "{console}");
        let mapped = console.lines().find_map(|line| line.strip_suffix(" ranges were mapped"));
        // At least the two ranges of the input.
        assert!(mapped.is_some_and(|count| count.parse().is_ok_and(|count: u32| count >= 2)), "{console}");
    }
}

#[test]
fn a_share_is_used_over_virtio_mmio() {
    boot(Attachment::Memory);
}

/// Boots the kernel with a prepared share and checks the result. Returns its console output, or `None` if it cannot be
/// built or run here.
fn boot(attachment: Attachment) -> Option<String> {
    let kernel = kernel()?;
    let dir = tempfile::tempdir().unwrap();
    let share = dir.path().join("share");
    let input = prepare(&share);
    let socket = dir.path().join("socket");
    let _daemon = daemon(&share, &socket, attachment);
    let output = Machine::new(attachment)?.run(&kernel, &socket, &dir);
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(ALL_WELL), "{console}{errors}");
    assert!(console.contains("ok: list a directory: 300 files of 45150 bytes"), "{console}");
    let turned: Vec<u8> = input.into_iter().rev().collect();
    assert!(fs::read(share.join("output")).unwrap() == turned, "the kernel did not write its input in reverse order");
    let mut left: Vec<_> = fs::read_dir(&share).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["input", "many", "output"]);
    Some(console)
}

/// Builds the kernel.
fn kernel() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("scripts/kernel")).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        println!("SKIPPED: the kernel for bare metal: {}", errors.trim());
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(root.join(String::from_utf8(output.stdout).unwrap().trim()))
}

/// Creates the files that the kernel expects; returns the contents of `input`.
fn prepare(share: &Path) -> Vec<u8> {
    fs::create_dir_all(share.join("many")).unwrap();
    for len in 1..=300 {
        fs::write(share.join(format!("many/file{len}")), vec![b'x'; len]).unwrap();
    }
    let input: Vec<u8> = (0..INPUT_LEN).map(|at| (at ^ ((at >> 8) * 31)) as u8).collect();
    fs::write(share.join("input"), &input).unwrap();
    input
}

/// transomd, killed when the test ends.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // Fails if it has already ended with its front end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn daemon(share: &Path, socket: &Path, attachment: Attachment) -> Daemon {
    let program = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("transomd");
    assert!(program.is_file(), "{} is not built; run `cargo build --workspace`", program.display());
    let mut command = Command::new(program);
    command.arg("--socket-path").arg(socket).arg("--shared-dir").arg(share).stderr(Stdio::null());
    if attachment == Attachment::PciWithWindow {
        command.args(["--dax-window", "64M", "--dax-policy", "always", "--tag", "kernel"]);
    }
    let mut daemon = Daemon(command.spawn().unwrap());
    let begun = Instant::now();
    while !socket.exists() {
        assert!(daemon.0.try_wait().unwrap().is_none(), "transomd has ended");
        assert!(begun.elapsed() < TIMEOUT, "transomd does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon
}

/// QEMU, ready to boot.
struct Machine {
    command: Command,
    attachment: Attachment,
}

impl Machine {
    fn new(attachment: Attachment) -> Option<Self> {
        let cache = Cache::locate().unwrap();
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        let program = match attachment {
            Attachment::PciWithWindow => tools.qemu_with_window(None),
            Attachment::Pci | Attachment::Memory => tools.qemu(None, true),
        };
        match program {
            Ok(program) => Some(Self { command: program.command(), attachment }),
            Err(error) => {
                println!("SKIPPED: {attachment:?}: no QEMU: {error}");
                None
            }
        }
    }

    fn run(mut self, kernel: &Path, socket: &Path, dir: &TempDir) -> Output {
        let (machine, device) = match self.attachment {
            Attachment::Pci => ("q35", "vhost-user-fs-pci,chardev=fs,tag=kernel"),
            Attachment::PciWithWindow => {
                ("q35", "vhost-user-test-device-pci,chardev=fs,virtio-id=26,num_vqs=2,vq_size=1024,config_size=40")
            }
            Attachment::Memory => ("microvm", "vhost-user-fs-device,chardev=fs,tag=kernel"),
        };
        let chardev = format!("socket,id=fs,path={}", socket.display());
        let (console, errors) = (dir.path().join("console"), dir.path().join("errors"));
        self.command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-machine", &format!("{machine},memory-backend=memory"), "-accel", "tcg", "-cpu", "max"])
            .args(["-m", "256M", "-object", "memory-backend-memfd,id=memory,size=256M,share=on"])
            // QEMU's default for virtio-mmio is the legacy interface.
            .args(["-global", "virtio-mmio.force-legacy=false"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
            .args(["-chardev", &chardev, "-device", device]);
        let mut qemu = self.command.stdout(Stdio::null()).stderr(fs::File::create(&errors).unwrap()).spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = qemu.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > TIMEOUT {
                // The console output shows how far it got.
                let _ = qemu.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Output { status, stdout: fs::read(console).unwrap_or_default(), stderr: fs::read(errors).unwrap() }
    }
}
