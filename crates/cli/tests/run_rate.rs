//! `--rate`: a guest that does more in a second than it may waits, and nothing fails.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "400";
const MIB: usize = 1 << 20;

#[test]
fn bytes_above_the_rate_take_their_time_and_arrive() {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_qemu || !daemon.is_file() {
        return eprintln!("SKIPPED: bytes_above_the_rate: no qemu-system-x86_64 in PATH, or no daemon {daemon:?}");
    }
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let data: Vec<u8> = (0..4 * MIB).map(|number| (number / 7) as u8).collect();
    fs::create_dir(folder.path().join("share")).unwrap();
    fs::write(folder.path().join("share/data"), &data).unwrap();
    let json = folder.path().join("result.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["run", "--timeout", LIMIT_S, "--no-events", "--rate", "1M,requests=1000"]);
    command.arg(format!("--json={}", json.display())).arg("--share").arg(folder.path().join("share"));
    let output = command.args(["--", "cp", "data", "copy"]).stdin(Stdio::null()).output().unwrap();

    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(folder.path().join("share/copy")).unwrap() == data);
    // 8 MiB pass in no less than 8 s, but for what may be used at once, and the last request.
    let result: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let seconds = result["seconds"]["command"].as_f64().unwrap();
    assert!(seconds > 6.0, "{seconds} s");
}

#[test]
fn a_rate_that_is_none_is_refused() {
    for (arguments, text) in [
        (&["--rate", "0"][..], "lets nothing pass"),
        (&["--rate", "1M,files=2"], "is not a size"),
        (&["--rate", "1M", "--share", ".,dax=2M"], "DAX window"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        let output = command.arg("run").args(arguments).args(["--", "true"]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(125) && error.contains(text), "{arguments:?}: {error}");
    }
}
