//! The reports of `transom run`: where the time went, and how much went through DAX windows.

use std::time::Duration;

use indicatif::BinaryBytes;
use transom_vm::{DaxUsage, GuestSpec, Root, Timings};
use transom_wire::window::RANGE_LEN;

/// Prints to standard error what the guest finds where.
pub(super) fn shares(spec: &GuestSpec) {
    if let Root::Host(root) = &spec.root {
        eprintln!("/ is {}, read-only under a layer in the guest's memory", root.host.display());
    }
    for share in &spec.shares {
        let mode = if share.is_read_only { ", read-only" } else { "" };
        eprintln!("{} is {}{mode}", share.guest.display(), share.host.display());
    }
}

/// Prints the duration of each phase to standard error.
pub(super) fn timings(timings: &Timings) {
    let prepare = match timings.is_resumed {
        true => "prepare and resume from a snapshot".to_owned(),
        false => format!("prepare (initramfs of {:.1} MB)", timings.initramfs_bytes as f64 / 1e6),
    };
    let parts = [
        (prepare.as_str(), timings.prepare),
        (if timings.is_resumed { "first message" } else { "boot" }, timings.boot),
        ("modules and channels", timings.devices),
        ("mounts", timings.mounts),
        ("command start", timings.command),
        ("= total until the command starts", timings.to_command()),
        ("command and unmount", timings.run),
        ("stop", timings.stop),
    ];
    for (name, time) in parts {
        eprintln!("{:>9} ms  {name}", milliseconds(time));
    }
}

/// Prints to standard error how much of a share was mapped through its window, and how much went through requests.
pub(super) fn dax(usage: &DaxUsage) {
    let guest = usage.guest.display();
    let counted = |name| BinaryBytes(usage.report.value(name).unwrap_or(0));
    let (read, written) = (counted("transom_read_bytes"), counted("transom_written_bytes"));
    match &usage.report.window {
        None => eprintln!("DAX {guest}: no window; {read} read and {written} written by requests"),
        Some(window) => {
            let mapped = BinaryBytes(window.maps * RANGE_LEN);
            let each = Duration::from_nanos(window.map_ns / window.maps.max(1));
            eprintln!(
                "DAX {guest}: {} ranges ({mapped}) mapped, {} refused, {} ms each; \
                 {read} read and {written} written by requests",
                window.maps,
                window.refused,
                milliseconds(each)
            );
        }
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
