//! The account of a run's time, for people.

use std::time::Duration;

use transom_vm::Timings;

/// Prints the parts of a run on standard error.
pub(super) fn timings(timings: &Timings) {
    let prepare = format!("prepare (initramfs of {:.1} MB)", timings.initramfs_bytes as f64 / 1e6);
    let parts = [
        (prepare.as_str(), timings.prepare),
        ("boot", timings.boot),
        ("modules and channels", timings.devices),
        ("mounts", timings.mounts),
        ("command start", timings.command),
        ("= from prompt to command", timings.to_command()),
        ("command and unmounting", timings.run),
        ("stop", timings.stop),
    ];
    for (name, time) in parts {
        eprintln!("{:>9} ms  {name}", milliseconds(time));
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
