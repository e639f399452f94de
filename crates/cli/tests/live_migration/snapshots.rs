//! A machine that stays: a migration that is cancelled, and a snapshot that is loaded again.

use std::{path::Path, time::Instant};

use serde_json::{Value, json};

use crate::{machine::Machine, qmp::Qmp, wait_for};

/// Bytes that the disk for snapshots holds.
const DISK_LEN: u64 = 4 << 30;

/// [`cancel`], then [`save_and_load`].
pub(crate) fn cancel_then_save_and_load(machine: &mut Machine, dir: &Path) {
    cancel(machine, dir);
    save_and_load(machine, dir);
}

/// Begins a migration and cancels it: the guest goes on, and its daemon as if nothing had happened.
fn cancel(machine: &mut Machine, dir: &Path) {
    // So slow that it does not end.
    machine.qmp.ask("migrate-set-parameters", json!({ "max-bandwidth": 65536 }));
    for number in 0..2 {
        let path = dir.join(format!("cancelled{number}"));
        machine.qmp.ask("migrate", json!({ "uri": format!("file:{}", path.display()) }));
        machine.wait_for_migration("active", &["failed", "completed"]);
        machine.qmp.ask("migrate_cancel", json!({}));
        machine.wait_for_migration("cancelled", &["failed", "completed"]);
        machine.wait_for_status("running");
    }
}

/// Stops the guest, saves it within its machine (`savevm`), loads that (`loadvm`), and lets it go on.
///
/// It is stopped in between: the share does not go back in time with the guest.
pub(crate) fn save_and_load(machine: &mut Machine, dir: &Path) {
    let qmp = &mut machine.qmp;
    add_disk(qmp, &dir.join("snapshots.qcow2"));
    qmp.ask("stop", json!({}));
    for round in 0..2 {
        let tag = format!("round{round}");
        let arguments = |job: &str| json!({ "job-id": job, "tag": tag, "vmstate": "disk", "devices": ["disk"] });
        for command in ["snapshot-save", "snapshot-load"] {
            let begun = Instant::now();
            run_job(qmp, command, arguments("snapshot")).unwrap();
            println!("{command}: {} ms", begun.elapsed().as_millis());
        }
    }
    machine.go_on();
}

/// Fails unless QEMU refuses to migrate the guest and to save it.
pub(crate) fn are_refused(machine: &mut Machine, dir: &Path) {
    let qmp = &mut machine.qmp;
    add_disk(qmp, &dir.join("snapshots.qcow2"));
    let uri = format!("file:{}", dir.join("state").display());
    let migrate = qmp.try_ask("migrate", json!({ "uri": uri })).unwrap_err();
    let save = json!({ "job-id": "snapshot", "tag": "tag", "vmstate": "disk", "devices": ["disk"] });
    let save = run_job(qmp, "snapshot-save", save).unwrap_err();
    println!("{migrate}\n{save}");
    assert!(migrate.contains("non-migratable device") && save.contains("non-migratable device"));
}

/// Adds a disk for snapshots, which the guest does not see.
fn add_disk(qmp: &mut Qmp, path: &Path) {
    let file = json!({ "driver": "file", "filename": path, "size": 0 });
    run_job(qmp, "blockdev-create", json!({ "job-id": "create", "options": file })).unwrap();
    qmp.ask("blockdev-add", json!({ "driver": "file", "node-name": "file", "filename": path }));
    let disk = json!({ "driver": "qcow2", "file": "file", "size": DISK_LEN });
    run_job(qmp, "blockdev-create", json!({ "job-id": "create", "options": disk })).unwrap();
    qmp.ask("blockdev-add", json!({ "driver": "qcow2", "node-name": "disk", "file": "file" }));
}

/// Runs a command that is a job, and waits for its end. Returns why it has failed.
fn run_job(qmp: &mut Qmp, command: &str, arguments: Value) -> Result<(), String> {
    let id = arguments["job-id"].clone();
    qmp.ask(command, arguments);
    let job = wait_for(command, || {
        let jobs = qmp.ask("query-jobs", json!({}));
        let job = jobs.as_array()?.iter().find(|job| job["id"] == id)?.clone();
        (job["status"] == "concluded").then_some(job)
    });
    qmp.ask("job-dismiss", json!({ "id": id }));
    job.get("error").map_or(Ok(()), |error| Err(format!("{command}: {error}")))
}
