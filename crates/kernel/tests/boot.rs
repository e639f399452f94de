//! The kernel in QEMU, over transomd: the library's transports against real devices.

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

/// What QEMU ends with after the kernel has said that all is well.
const ALL_WELL: i32 = 33;
/// A build machine that is busy with other things shall not fail.
const PATIENCE: Duration = Duration::from_secs(300);
/// So many bytes that they are several requests, and no whole number of pages.
const INPUT_LEN: usize = (3 << 20) + 777;

/// Where the file system is in the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the PCI bus of a q35.
    Pci,
    /// The same, with a window: QEMU's generic device.
    PciWithWindow,
    /// Behind virtio-mmio in a microvm.
    Memory,
}

#[test]
fn a_share_is_used_over_pci() {
    boot(Place::Pci);
}

#[test]
fn a_share_is_used_over_pci_and_through_its_window() {
    if let Some(console) = boot(Place::PciWithWindow) {
        assert!(console.contains("window: 64 MiB at 0x"), "{console}");
        let mapped = console.lines().find_map(|line| line.strip_suffix(" ranges were mapped"));
        // The two of the input.
        assert!(mapped.is_some_and(|count| count.parse().is_ok_and(|count: u32| count >= 2)), "{console}");
    }
}

#[test]
fn a_share_is_used_over_virtio_mmio() {
    boot(Place::Memory);
}

/// Boots the kernel over a prepared share and looks at what it has done; gives what it said, or nothing where it cannot
/// be built or run here.
fn boot(place: Place) -> Option<String> {
    let kernel = kernel()?;
    let dir = tempfile::tempdir().unwrap();
    let share = dir.path().join("share");
    let input = prepare(&share);
    let socket = dir.path().join("socket");
    let _daemon = daemon(&share, &socket, place);
    let output = Machine::new(place)?.run(&kernel, &socket, &dir);
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(ALL_WELL), "{console}{errors}");
    assert!(console.contains("ok: list a directory: 300 files of 45150 bytes"), "{console}");
    let turned: Vec<u8> = input.into_iter().rev().collect();
    assert!(fs::read(share.join("output")).unwrap() == turned, "what the kernel wrote is its input, turned round");
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

/// Makes what the kernel expects; gives the contents of `input`.
fn prepare(share: &Path) -> Vec<u8> {
    fs::create_dir_all(share.join("many")).unwrap();
    for len in 1..=300 {
        fs::write(share.join(format!("many/file{len}")), vec![b'x'; len]).unwrap();
    }
    let input: Vec<u8> = (0..INPUT_LEN).map(|at| (at ^ ((at >> 8) * 31)) as u8).collect();
    fs::write(share.join("input"), &input).unwrap();
    input
}

/// transomd, which ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended with its front end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn daemon(share: &Path, socket: &Path, place: Place) -> Daemon {
    let program = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("transomd");
    assert!(program.is_file(), "{} is not built: `cargo build --workspace` does", program.display());
    let mut command = Command::new(program);
    command.arg("--socket-path").arg(socket).arg("--shared-dir").arg(share).stderr(Stdio::null());
    if place == Place::PciWithWindow {
        command.args(["--dax-window", "64M", "--dax-policy", "always", "--tag", "kernel"]);
    }
    let mut daemon = Daemon(command.spawn().unwrap());
    let begun = Instant::now();
    while !socket.exists() {
        assert!(daemon.0.try_wait().unwrap().is_none(), "transomd has ended");
        assert!(begun.elapsed() < PATIENCE, "transomd does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon
}

/// QEMU, as far as it is the same whatever it boots.
struct Machine {
    command: Command,
    place: Place,
}

impl Machine {
    fn new(place: Place) -> Option<Self> {
        let cache = Cache::locate().unwrap();
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        let program = match place {
            Place::PciWithWindow => tools.qemu_with_window(None),
            Place::Pci | Place::Memory => tools.qemu(None, true),
        };
        match program {
            Ok(program) => Some(Self { command: program.command(), place }),
            Err(error) => {
                println!("SKIPPED: {place:?}: no QEMU: {error}");
                None
            }
        }
    }

    fn run(mut self, kernel: &Path, socket: &Path, dir: &TempDir) -> Output {
        let (machine, device) = match self.place {
            Place::Pci => ("q35", "vhost-user-fs-pci,chardev=fs,tag=kernel"),
            Place::PciWithWindow => {
                ("q35", "vhost-user-test-device-pci,chardev=fs,virtio-id=26,num_vqs=2,vq_size=1024,config_size=40")
            }
            Place::Memory => ("microvm", "vhost-user-fs-device,chardev=fs,tag=kernel"),
        };
        let chardev = format!("socket,id=fs,path={}", socket.display());
        let (console, errors) = (dir.path().join("console"), dir.path().join("errors"));
        self.command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-machine", &format!("{machine},memory-backend=memory"), "-accel", "tcg", "-cpu", "max"])
            .args(["-m", "256M", "-object", "memory-backend-memfd,id=memory,size=256M,share=on"])
            // Of virtio-mmio, QEMU's own choice is the legacy interface.
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
            if begun.elapsed() > PATIENCE {
                // What it has said tells where it stands.
                let _ = qemu.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Output { status, stdout: fs::read(console).unwrap_or_default(), stderr: fs::read(errors).unwrap() }
    }
}
