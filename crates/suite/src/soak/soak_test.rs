use super::*;

/// The deaths of each rig: enough for both kinds to be likely.
const DEATHS: u64 = 3;

/// The executables of this build are in the directory above that of test programs.
fn executable(name: &str) -> Option<PathBuf> {
    let this = std::env::current_exe().ok()?;
    Some(this.parent()?.parent()?.join(name)).filter(|path| path.exists())
}

/// The suite's executable, if a soak can run here.
fn suite() -> Option<PathBuf> {
    let (Some(suite), Some(_), Some(_)) = (executable("transom-suite"), executable("transom"), executable("transomd"))
    else {
        println!("SKIPPED: the executables are not built");
        return None;
    };
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: a soak mounts a share as root");
        return None;
    }
    Some(suite)
}

fn assert_nothing_is_mounted(dir: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&*dir.to_string_lossy()), "a mount is left");
}

/// Short: there are sockets in it.
fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("so").tempdir_in("/var/tmp").unwrap()
}

#[test]
fn a_signal_ends_all_processes_and_mounts_and_leaves_the_samples() {
    let Some(suite) = suite() else { return };
    let dir = directory();
    let mut command = std::process::Command::new(suite);
    command.args(["soak", "--hours=1", "--without=machine", "--without=library", "--dir"]).arg(dir.path());
    let mut child = command.spawn().unwrap();
    let has_samples =
        || std::fs::read_to_string(dir.path().join("samples.csv")).is_ok_and(|text| text.contains(",mount,"));
    while !has_samples() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its first sample");
        thread::sleep(TICK);
    }
    let started: Vec<_> = processes::tree(child.id()).into_iter().skip(1).collect();
    assert!(started.len() >= 3, "{started:?}");
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
    assert_nothing_is_mounted(dir.path());
    for process in started {
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        assert!(!line.contains(&*dir.path().to_string_lossy()), "{line} still runs");
    }
    assert!(has_samples());
}

#[test]
fn rigs_survive_the_deaths_of_their_parts_and_a_second_run_continues() {
    let Some(suite) = suite() else { return };
    let dir = directory();
    for (run, deaths) in [(1, DEATHS), (2, DEATHS + 1)] {
        let mut command = std::process::Command::new(&suite);
        command.args(["soak", "--deaths", &deaths.to_string(), "--without", "machine", "--dir"]).arg(dir.path());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "run {run}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let samples = Samples::open(dir.path()).unwrap();
        for rig in ["mount", "library"] {
            // The last deaths may be after the last sample.
            assert!(text.contains(&format!("{rig:8} ")), "{text}");
            assert!(samples.counts(rig).0 + 1 >= deaths, "run {run}, {rig}: {:?}", samples.counts(rig));
        }
    }
    assert!(dir.path().join("samples.svg").exists());
    assert_nothing_is_mounted(dir.path());
}
