//! The pjdfstest suite: built once as a static executable, run on a directory here or in a guest, its output in the
//! form of our own reports, so that two runs are compared as any two lists are.
//!
//! What it asks of the machine it runs on: root, two users other than root in `/etc/passwd` whose groups are in
//! `/etc/group`, and `which`, `sleep`, `mount` and `umount` as programs of their own (a guest with the host's root has
//! them).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::report::{Report, Status};

/// The version that results are compared for.
pub const VERSION: &str = "0.2.2";

/// Builds the suite into `cache`, once, and returns the executable, which is static and runs in any guest.
///
/// Takes `cargo`; where the system has no `libacl.a`, its package is unpacked into the cache with `apt-get` and
/// `dpkg-deb`.
pub fn install(cache: &Path) -> anyhow::Result<PathBuf> {
    let root = cache.join(format!("pjdfstest-{VERSION}"));
    let executable = root.join("bin/pjdfstest");
    if executable.exists() {
        return Ok(executable);
    }
    std::fs::create_dir_all(&root).with_context(|| root.display().to_string())?;
    let target = host_target()?;
    let mut flags = "-C target-feature=+crt-static".to_owned();
    if !has_static_libacl() {
        flags += &format!(" -L native={}", fetch_libacl(&root)?.display());
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "pjdfstest", "--version", VERSION, "--locked", "--target", target.as_str(), "--root"]);
    cargo.arg(&root).env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
    run(&mut cargo)?;
    ensure!(executable.exists(), "cargo install left no {}", executable.display());
    Ok(executable)
}

/// Runs the suite in `directory`, as root, and returns what each test came to.
pub fn run_in(executable: &Path, directory: &Path) -> anyhow::Result<Vec<Report>> {
    let users = two_users(&read("/etc/passwd")?, &read("/etc/group")?);
    let users = users.context("the suite needs two users besides root in /etc/passwd, with their groups")?;
    let place = tempfile::tempdir_in(directory).with_context(|| directory.display().to_string())?;
    let mut file = tempfile::NamedTempFile::new().context("a file for the configuration")?;
    std::io::Write::write_all(&mut file, configuration(&users).as_bytes()).context("the configuration")?;
    let mut suite = Command::new(executable);
    suite.arg("--configuration-file").arg(file.path()).arg("--path").arg(place.path()).env("NO_COLOR", "1");
    // Its exit status says that a test failed, which the reports say too.
    let output = suite.stdin(Stdio::null()).output().with_context(|| executable.display().to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Users and groups, root among them, for a minimal root: appended to its `/etc/passwd` and `/etc/group` unless two are
/// there.
pub fn add_users() -> anyhow::Result<()> {
    let (passwd, group) = (
        std::fs::read_to_string("/etc/passwd").unwrap_or_default(),
        std::fs::read_to_string("/etc/group").unwrap_or_default(),
    );
    if two_users(&passwd, &group).is_some() {
        return Ok(());
    }
    std::fs::create_dir_all("/etc").context("/etc")?;
    let names = [("root", 0), ("first", 1000), ("second", 1001)];
    let users: String = names.iter().map(|(name, id)| format!("{name}:x:{id}:{id}::/:/bin/sh\n")).collect();
    let groups: String = names.iter().map(|(name, id)| format!("{name}:x:{id}:\n")).collect();
    std::fs::write("/etc/passwd", passwd + &users).context("/etc/passwd")?;
    std::fs::write("/etc/group", group + &groups).context("/etc/group")
}

/// A user and the name of his group.
type User = (String, String);

/// The first two users who are not root and whose own group has a name.
fn two_users(passwd: &str, group: &str) -> Option<[User; 2]> {
    let groups: Vec<Vec<&str>> = group.lines().map(|line| line.split(':').collect()).collect();
    let mut users = passwd.lines().filter_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let (name, uid, gid) = (fields.first()?, fields.get(2)?, fields.get(3)?);
        let group = groups.iter().find(|group| group.get(2) == Some(gid))?;
        (*uid != "0" && *gid != "0").then(|| ((*name).to_owned(), group[0].to_owned()))
    });
    Some([users.next()?, users.next()?])
}

/// All features of Linux's file systems; nothing is remounted, and no second file system is there.
fn configuration(users: &[User; 2]) -> String {
    let entries: Vec<_> = users.iter().map(|(user, group)| format!("[\"{user}\", \"{group}\"]")).collect();
    // Coarse clocks tick every 10 ms at the most; between two changes the suite sleeps longer than that.
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nstat_st_birthtime = {{}}\nutime_now = {{}}\n\
         utimensat = {{}}\n\n[settings]\nnaptime = 0.02\nallow_remount = false\n\n[dummy_auth]\nentries = [{}]\n",
        entries.join(", ")
    )
}

/// Reads the suite's output: a line for each test, reasons on the lines below it.
pub fn parse(text: &str) -> anyhow::Result<Vec<Report>> {
    let mut reports: Vec<Report> = Vec::new();
    for line in text.lines().map(without_colours) {
        let words: Vec<_> = line.split_whitespace().collect();
        let status = match words.as_slice() {
            [name, "ok"] if name.contains("::") => Some(Status::Pass),
            [name, "FAILED"] if name.contains("::") => Some(Status::Fail),
            [name, "skipped"] if name.contains("::") => Some(Status::Skipped),
            _ => None,
        };
        match (status, reports.last_mut()) {
            (Some(status), _) => {
                let name = format!("pjdfstest/{}", words[0]);
                reports.push(Report { name, status, reason: String::new(), observations: String::new() });
            }
            (None, Some(last)) if line.starts_with('\t') && last.status != Status::Pass => {
                last.reason = format!("{} {}", last.reason, words.join(" ")).trim().to_owned();
            }
            _ => {}
        }
    }
    ensure!(!reports.is_empty(), "the suite told no result");
    Ok(reports)
}

/// The line without the escape sequences that colour it.
fn without_colours(line: &str) -> String {
    let mut parts = line.trim_end_matches('\r').split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).context(path.to_owned())
}

fn host_target() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    Ok(host.to_owned())
}

fn has_static_libacl() -> bool {
    let linker = Command::new("cc").arg("-print-file-name=libacl.a").output();
    linker.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute())
}

/// Unpacks the package of the static library below `root` and returns the folder of the library.
fn fetch_libacl(root: &Path) -> anyhow::Result<PathBuf> {
    run(Command::new("apt-get").args(["download", "libacl1-dev"]).current_dir(root))?;
    let entries = std::fs::read_dir(root).with_context(|| root.display().to_string())?;
    let package = entries.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "deb"));
    let unpacked = root.join("libacl");
    run(Command::new("dpkg-deb").arg("-x").arg(package.context("apt-get left no package")?).arg(&unpacked))?;
    let folders = std::fs::read_dir(unpacked.join("usr/lib")).context("the package's usr/lib")?;
    let mut folders = folders.flatten().map(|entry| entry.path());
    folders.find(|folder| folder.join("libacl.a").exists()).context("the package has no libacl.a")
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_with_and_without_colours_and_reasons_kept() {
        let text = "chmod::basic      ok\n\u{1b}[34mlink::limit\u{1b}[0m   \u{1b}[33mskipped\u{1b}[0m\r\n\
                    \t\u{1b}[33mno such limit\u{1b}[0m\n\
                    open::busy   FAILED\n\tassertion failed\nBacktrace:\n\nSummary: 1 failed\n";
        let told: Vec<_> = parse(text).unwrap().iter().map(Report::to_string).collect();
        let expected = [
            "PASS pjdfstest/chmod::basic",
            "SKIPPED pjdfstest/link::limit no such limit",
            "FAIL pjdfstest/open::busy assertion failed",
        ];
        assert_eq!(told, expected);
        assert!(parse("nothing\n").is_err());
    }

    #[test]
    fn two_users_with_groups_are_found() {
        let passwd = "root:x:0:0::/:/bin/sh\nlost:x:5:77::/:/bin/sh\na:x:1:1::/:\nb:x:2:3::/:\n";
        let users = two_users(passwd, "root:x:0:\nga:x:1:\ngb:x:3:\n").unwrap();
        assert_eq!(users, [("a".into(), "ga".into()), ("b".into(), "gb".into())]);
        assert!(configuration(&users).contains(r#"entries = [["a", "ga"], ["b", "gb"]]"#));
        assert!(two_users("a:x:1:1::/:\n", "ga:x:1:\n").is_none());
    }
}
