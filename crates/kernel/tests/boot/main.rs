//! Boots the kernel in QEMU with transomd: tests the library's transports, interrupts and mapped files against real
//! devices, and the kernel on each of its architectures.

mod by_name;
mod hermit;
mod machine;
mod registers;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use by_name::Purpose;
use machine::{Attachment, Machine};

/// Generous enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Length of `input`: several requests, and not a multiple of the page size.
const INPUT_LEN: usize = (3 << 20) + 777;
/// Length of `table`, which the kernel maps, and what it leaves there: see the kernel's `mapping/scenario.rs`.
const TABLE_LEN: usize = 20 << 20;
/// The 256 reads, and as many writes, of 4 KiB that the kernel counts: see its `dma.rs`.
const DMA_CALLS: u64 = 256;
const DMA_BYTES: u64 = DMA_CALLS * 4096;

#[test]
fn a_share_is_used_over_pci_and_each_kind_of_interrupt_wakes_one_processor_and_two() {
    let Some(console) = boot(Attachment::Pci) else { return };
    check_adopted(&console);
    // The kernel stops if a wake does not come; here is where they came.
    check_messages(&console);
    assert!(woken(&console, "a line")[0] > 0, "{console}");
    check_two(&console, "a line");
    assert_eq!(of_two(&console, "a line", "interrupts")[1], 0, "{console}");
    assert!(of_two(&console, "a line", "requests").iter().all(|&count| count > 0), "{console}");
}

#[test]
fn one_processor_of_aarch64_and_two_are_woken_by_messages() {
    let Some(console) = boot(Attachment::Aarch64OfMessages) else { return };
    check_messages(&console);
}

#[test]
fn one_processor_of_riscv64_and_two_are_woken_by_messages() {
    let Some(console) = boot(Attachment::Riscv64OfMessages) else { return };
    check_messages(&console);
}

/// Checks that one processor was woken by the vectors that the device had, and two by their own.
fn check_messages(console: &str) {
    for (name, vector) in [("one message", 0), ("a message for each queue", 2)] {
        let woken = woken(console, name);
        assert!(woken[vector] > 0 && woken.iter().sum::<u64>() == woken[vector], "{name}: {console}");
        check_two(console, name);
    }
    // Only with a message of its own, the second processor hears from the device itself.
    assert_eq!(of_two(console, "one message", "interrupts")[1], 0, "{console}");
    assert!(of_two(console, "a message for each queue", "interrupts").iter().all(|&count| count > 0), "{console}");
    let vectors = of_two(console, "a message for each queue", "vectors");
    assert!(vectors[2] > 0 && vectors[3] > 0, "{console}");
    // Both processors have used one queue, or each its own.
    assert_eq!(of_two(console, "one message", "requests")[1], 0, "{console}");
    assert!(of_two(console, "a message for each queue", "requests").iter().all(|&count| count > 0), "{console}");
}

/// Checks what the kernel has seen through the crate virtio-drivers.
fn check_adopted(console: &str) {
    let sum: u64 = input().into_iter().map(u64::from).sum();
    let seen = format!("ok: virtio-drivers' Hal and PCI access: {INPUT_LEN} bytes of sum {sum} among ");
    assert!(console.lines().any(|line| line == format!("{seen}[\"input\", \"many\"]")), "{console}");
}

/// Checks that both processors have slept, that another one's or the device's interrupts have woken them, and that no
/// timer did: then a wake would have been lost.
fn check_two(console: &str, name: &str) {
    let count = |what| of_two(console, name, what);
    let (sleeps, devices, calls) = (count("sleeps"), count("interrupts"), count("calls"));
    for processor in 0..2 {
        assert!(sleeps[processor] > 0 && devices[processor] + calls[processor] > 0, "{name}: {console}");
    }
    assert_eq!(count("alarms"), [0, 0], "{name}: {console}");
}

/// Returns what the kernel has counted on two processors.
fn of_two(console: &str, name: &str, what: &str) -> Vec<u64> {
    numbers(console, &format!("ok: two processors, {name}: {what} ["), "]")
}

/// Returns the interrupts of each vector on one processor, which has slept without being woken by its timer.
fn woken(console: &str, name: &str) -> Vec<u64> {
    let begin = format!("ok: woken by {name}: [");
    let line = console.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{name}: {console}"));
    let (counts, rest) = line[begin.len() - 1..].split_once("] interrupts, ").unwrap();
    assert!(!rest.starts_with("0 sleeps") && rest.ends_with(" sleeps, 0 alarms"), "{line}");
    numbers(&format!("{counts}]"), "[", "]")
}

/// Returns the numbers of the line that begins and ends so.
fn numbers(console: &str, begin: &str, end: &str) -> Vec<u64> {
    let of = |line: &str| line.strip_prefix(begin).and_then(|line| line.strip_suffix(end)).map(str::to_owned);
    let numbers = console.lines().find_map(of).unwrap_or_else(|| panic!("{begin}: {console}"));
    numbers.split(", ").map(|number| number.parse().unwrap()).collect()
}

#[test]
fn files_are_mapped_through_the_window_over_the_kernels_own_page_tables() {
    check_mapped(Attachment::PciWithWindow);
}

#[test]
fn files_are_mapped_on_aarch64_whose_bus_the_kernel_sets_up_and_whose_processor_marks_entries() {
    let Some(console) = check_mapped(Attachment::Aarch64WithWindow) else { return };
    assert_eq!(marked_by_faults(&console), 0, "{console}");
    assert!(woken(&console, "a line of the PCI bus")[0] > 0, "{console}");
}

/// Not in the default run, as the next one, because each kernel takes the processor for 15 seconds more to build.
#[test]
#[ignore = "by name: cargo test -p transom-kernel --test boot -- --ignored pages_of_16"]
fn files_are_mapped_with_pages_of_16_kib_of_which_a_hint_joins_2_mib() {
    check_larger_pages(Attachment::Aarch64WithPagesOf16K);
}

/// With this size, the identity mapping is in the highest table itself.
#[test]
#[ignore = "by name: cargo test -p transom-kernel --test boot -- --ignored pages_of_64"]
fn files_are_mapped_with_pages_of_64_kib_of_which_a_hint_joins_2_mib() {
    check_larger_pages(Attachment::Aarch64WithPagesOf64K);
}

fn check_larger_pages(attachment: Attachment) {
    let Some(console) = check_mapped(attachment) else { return };
    assert_eq!(marked_by_faults(&console), 0, "{console}");
    assert!(console.contains("of which the host has a part"), "{console}");
}

#[test]
fn files_are_mapped_on_riscv64_whose_bus_the_kernel_sets_up_and_whose_processor_marks_entries() {
    let Some(console) = check_mapped(Attachment::Riscv64WithWindow) else { return };
    assert_eq!(marked_by_faults(&console), 0, "{console}");
}

/// Not in the default run, because these differ from those above by a few lines.
#[test]
#[ignore = "by name: cargo test -p transom-kernel --test boot -- --ignored marks"]
fn files_are_mapped_where_the_first_store_faults_because_the_processor_marks_nothing() {
    for attachment in [
        Attachment::Aarch64WithoutMarks,
        Attachment::Aarch64WithPagesOf64KWithoutMarks,
        Attachment::Riscv64WithoutMarks,
    ] {
        let Some(console) = check_mapped(attachment) else { continue };
        assert!(marked_by_faults(&console) > 0, "{attachment:?}: {console}");
    }
}

fn marked_by_faults(console: &str) -> u64 {
    numbers(console, "ok: entries marked dirty by faults: ", "")[0]
}

/// Boots the kernel and checks what it says of mapped files. Returns its console output, or `None` if that cannot be
/// done here.
fn check_mapped(attachment: Attachment) -> Option<String> {
    let console = boot(attachment)?;
    assert!(console.contains("window: 8 MiB at 0x"), "{console}");
    let mapped = console.lines().find_map(|line| line.strip_suffix(" ranges were mapped"));
    // The two ranges of the input and the ten of the table, of which only four have room at a time.
    assert!(mapped.is_some_and(|count| count.parse().is_ok_and(|count: u32| count >= 12)), "{console}");
    let on_one = ["large entries", "small entries", "flush what was", "private copies", "truncate", "holes", "smaller"];
    let on_two = ["replace a mapping", "flush what the other", "take ranges that", "cut a file that"];
    for step in on_one.into_iter().chain(on_two) {
        assert!(console.lines().any(|line| line.starts_with("ok: ") && line.contains(step)), "{step}: {console}");
    }
    Some(console)
}

/// The kernel mounts several times, each after a reset of the device, which ends what QEMU has mapped.
#[test]
fn the_version_table_is_read_over_pci_alone_and_beside_a_window() {
    for attachment in [Attachment::PciWithTable, Attachment::PciWithWindowAndTable] {
        let Some(console) = boot(attachment) else { return };
        let seen = "valid before a change true, after it false, fetched anew true, another file true";
        let line = format!("ok: version table of 65536 slots: {seen}");
        assert!(console.lines().any(|found| found == line), "{attachment:?}: {console}");
    }
}

#[test]
fn a_device_that_accesses_memory_as_the_platform_says_gets_a_pool_and_others_get_addresses() {
    let [Some(direct), Some(bounce)] = [Attachment::Pci, Attachment::PciOfPlatform].map(boot) else { return };
    println!("        |       | requests | bytes mapped | bytes copied | pool full | live | pool bytes in use");
    for what in ["write", "read"] {
        let counts = |console, name: &str| -> [u64; 6] {
            let counts = numbers(console, &format!("ok: dma: {name} {what}: ["), "]");
            println!("{name:7} | {what:5} | {counts:?}");
            counts.try_into().unwrap()
        };
        let [requests, mapped, copied, full, live, _] = counts(&direct, "direct");
        assert_eq!((mapped, copied, full, live), (DMA_BYTES, 0, 0, 0), "{what}: {direct}");
        // One request for each call, and those that open and close the file.
        assert!((DMA_CALLS..DMA_CALLS + 8).contains(&requests), "{what}: {direct}");
        let [in_pool, mapped, copied, full, live, used] = counts(&bounce, "bounce");
        assert_eq!((in_pool, mapped, copied, full, live), (requests, DMA_BYTES, DMA_BYTES, 0, 0), "{what}: {bounce}");
        assert!(used > 0, "{what}: {bounce}");
    }
}

#[test]
fn a_machine_with_16_mib_of_memory_is_enough() {
    let Some(console) = boot(Attachment::PciOfSixteen) else { return };
    let line = console.lines().find_map(|line| line.strip_prefix("memory: ")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let [device, heap] = [words[0], words[6]].map(|word| word.parse::<u64>().unwrap());
    println!("{line}");
    assert!(heap < 14 << 10, "{console}");
    assert!(device < 1 << 10, "{console}");
}

#[test]
fn a_share_is_used_over_virtio_mmio() {
    boot(Attachment::Memory);
}

#[test]
fn a_machine_without_a_file_system_is_an_error_that_names_what_it_has() {
    let Some(kernel) = kernel("x86_64") else { return };
    for (attachment, named) in [
        (Attachment::LegacyMemory, ["FAILED: it is a legacy device", "of type 26"]),
        (Attachment::OtherPci, ["FAILED: no virtio device is a file system", "a device of type 4 is PCI device"]),
        (Attachment::OtherMemory, ["FAILED: no virtio device is a file system", "a device of type 4 is at 0xfeb"]),
        (Attachment::Nothing, ["FAILED: the machine has no virtio device", "-device vhost-user-fs-pci"]),
    ] {
        let Some((_, output)) = run(&kernel, attachment, Purpose::Usual) else { return };
        let console = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(named.iter().all(|words| console.contains(words)), "{attachment:?}: {console}{errors}");
        assert_eq!(output.status.code(), Some(35), "{attachment:?}: {console}{errors}");
    }
}

#[test]
fn two_processors_of_aarch64_are_woken_by_the_line_that_the_device_tree_names() {
    check_virt(Attachment::Aarch64);
}

#[test]
fn two_processors_of_riscv64_are_woken_by_the_line_that_the_device_tree_names() {
    check_virt(Attachment::Riscv64);
}

fn check_virt(attachment: Attachment) {
    let Some(built) = kernel(attachment.architecture()) else { return };
    registers::check(&built, attachment.architecture());
    let Some(console) = boot(attachment) else { return };
    assert!(console.contains("from the device tree"), "{console}");
    assert!(woken(&console, "a line")[0] > 0, "{console}");
    check_two(&console, "a line");
    assert!(of_two(&console, "a line", "requests").iter().all(|&count| count > 0), "{console}");
}

/// Boots the kernel with a prepared share and checks the result. Returns its console output, or `None` if it cannot be
/// built or run here.
fn boot(attachment: Attachment) -> Option<String> {
    let kernel = kernel(attachment.kernel())?;
    let (dir, output) = run(&kernel, attachment, Purpose::Usual)?;
    let share = dir.path().join("share");
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(console.contains("all is well"), "{console}{errors}");
    assert_eq!(output.status.code(), Some(attachment.all_well()), "{console}{errors}");
    assert!(console.contains("ok: list a directory: 300 files of 45150 bytes"), "{console}");
    let turned: Vec<u8> = input().into_iter().rev().collect();
    assert!(fs::read(share.join("output")).unwrap() == turned, "the kernel did not write its input in reverse order");
    let mut left: Vec<_> = fs::read_dir(&share).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    if attachment.has_window() {
        assert_eq!(left, ["input", "many", "output", "table"]);
        let byte = |at: usize| !((at ^ (at >> 8) ^ ((at >> 12) * 7)) as u8);
        let table: Vec<u8> = (0..TABLE_LEN).map(byte).collect();
        assert!(fs::read(share.join("table")).unwrap() == table, "the host does not have what was stored");
    } else {
        assert_eq!(left, ["input", "many", "output"]);
    }
    Some(console)
}

/// Runs a kernel with a prepared share, until the machine ends. Returns the share's directory too.
fn run(kernel: &Path, attachment: Attachment, purpose: Purpose) -> Option<(tempfile::TempDir, Output)> {
    let machine = Machine::new(attachment)?;
    let dir = tempfile::tempdir().unwrap();
    let share = dir.path().join("share");
    prepare(&share);
    purpose.prepare(&share);
    let socket = dir.path().join("socket");
    let _daemon = daemon(&share, &socket, &dir.path().join("group"), attachment, purpose);
    let is_over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| purpose.go_on(&share, &is_over));
        let output = machine.run(kernel, &socket, dir.path(), purpose.timeout());
        is_over.store(true, Ordering::Relaxed);
        output
    });
    Some((dir, output))
}

/// Builds a kernel, by the name that `scripts/kernel` takes.
fn kernel(name: &str) -> Option<PathBuf> {
    build(&format!("the kernel for {name}"), "scripts/kernel", &[name])
}

/// Builds `name` by a script of the project, which prints where it lies. Returns `None` if it cannot be built here.
fn build(name: &str, script: &str, arguments: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join(script)).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        println!("SKIPPED: {name}: {}", errors.trim());
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(root.join(String::from_utf8(output.stdout).unwrap().trim()))
}

/// Creates the files that the kernel expects.
fn prepare(share: &Path) {
    fs::create_dir_all(share.join("many")).unwrap();
    for len in 1..=300 {
        fs::write(share.join(format!("many/file{len}")), vec![b'x'; len]).unwrap();
    }
    fs::write(share.join("input"), input()).unwrap();
}

fn input() -> Vec<u8> {
    (0..INPUT_LEN).map(|at| (at ^ ((at >> 8) * 31)) as u8).collect()
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

fn daemon(share: &Path, socket: &Path, group: &Path, attachment: Attachment, purpose: Purpose) -> Daemon {
    let program = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("transomd");
    assert!(program.is_file(), "{} is not built; run `cargo build --workspace`", program.display());
    let mut command = Command::new(program);
    let log = socket.with_extension("log");
    command.arg("--socket-path").arg(socket).arg("--shared-dir").arg(share).stderr(File::create(&log).unwrap());
    if attachment.has_window() {
        command.args(purpose.window());
    }
    if attachment.is_generic() {
        // QEMU's device has a tag only from the daemon, which would offer one queue with a window.
        command.args(["--tag", "kernel", "--num-request-queues", "2"]);
    }
    if attachment == Attachment::PciWithNotifications {
        command.arg("--notification-queue");
    }
    if attachment.has_versions() {
        command.arg("--coherence-group").arg(group);
    }
    let mut daemon = Daemon(command.spawn().unwrap());
    let begun = Instant::now();
    while !socket.exists() {
        let ended = daemon.0.try_wait().unwrap();
        assert!(ended.is_none(), "transomd has ended: {}", fs::read_to_string(&log).unwrap());
        assert!(begun.elapsed() < TIMEOUT, "transomd does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon
}
