use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Ended, exceptions::Exceptions, judge, ltp, xfstests};

fn owned(ended: &[(&str, Ended)]) -> Vec<(String, Ended)> {
    ended.iter().map(|(test, ended)| ((*test).to_owned(), *ended)).collect()
}

#[test]
fn the_summary_of_check_says_how_each_test_ended() {
    let text = "generic/001  5s\nRan: generic/001 generic/002 generic/003\nNot run: generic/002\n\
                Failures: generic/003\nFailed 1 of 3 tests\n";
    let expected = [("generic/001", Ended::Passed), ("generic/002", Ended::NotRun), ("generic/003", Ended::Failed)];
    assert_eq!(xfstests::parse(text), owned(&expected));
    assert_eq!(xfstests::parse("Interrupted!\n"), []);
}

#[test]
fn a_list_of_ltp_has_a_name_and_a_command_in_each_line() {
    let text = "#DESCRIPTION:files\n\nopen01 open01\nfs_di fs_di -d $TMPDIR\ngf01\tgrowfiles -W gf01\n";
    let expected = [("open01", "open01"), ("fs_di", "fs_di -d $TMPDIR"), ("gf01", "growfiles -W gf01")];
    assert_eq!(ltp::parse(text).collect::<Vec<_>>(), expected);
}

#[test]
fn an_exception_counts_for_its_mounts_only_and_needs_a_reason() {
    let list = Exceptions::parse("# why\na/1 auto|always because\na/2 * always so\n").unwrap();
    assert_eq!(list.reason("a/1", "auto"), Some("because"));
    assert_eq!(list.reason("a/1", "auto,passthrough"), None);
    assert_eq!(list.reason("a/2", "never"), Some("always so"));
    assert!(Exceptions::parse("a/1 auto").is_err());
}

#[test]
fn the_lists_can_be_read() {
    for text in [xfstests::EXCEPTIONS, ltp::EXCEPTIONS] {
        Exceptions::parse(text).unwrap();
    }
}

#[test]
fn only_failures_that_are_not_listed_count_against_the_mount() {
    let list = Exceptions::parse("b * known").unwrap();
    let ended = owned(&[("a", Ended::Passed), ("b", Ended::Failed), ("c", Ended::Failed), ("d", Ended::NotRun)]);
    let verdict = judge(&ended, &list, "auto");
    assert_eq!((verdict.passed, verdict.failed, verdict.known, verdict.skipped), (1, 1, 1, 1));
}

/// A tree with these files, all of which can be executed.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

/// Runs the command on a tree, and returns what it prints; `None` where it cannot run. The executables of this build
/// are in the directory above that of test programs.
fn run(suite: &str, tree: &Path, what: &[&str]) -> Option<String> {
    let this = std::env::current_exe().unwrap();
    let built: PathBuf = this.parent().unwrap().parent().unwrap().to_owned();
    let is_built = ["transom-suite", "transom", "transomd"].iter().all(|name| built.join(name).exists());
    let has_programs =
        ["/usr/bin/bash", "/usr/bin/mount", "/usr/bin/unshare"].iter().all(|path| Path::new(path).exists());
    let is_root = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !is_built || !has_programs || !is_root {
        println!("SKIPPED: it takes root, /dev/fuse, mount(8) and the executables");
        return None;
    }
    let mut command = Command::new(built.join("transom-suite"));
    command.args([suite, "--cache=never", "--tree"]).arg(tree).arg("--").args(what);
    let output = command.output().unwrap();
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_tree_like_that_of_xfstests_mounts_by_mount_8_and_is_judged() {
    // Mounts as xfstests does, twice, and remounts.
    let check = r#"
        set -e
        . "$HOST_OPTIONS"
        mount -t $FSTYP$FUSE_SUBTYP $TEST_FS_MOUNT_OPTS $TEST_DEV $TEST_DIR
        test "$(df -T -P $TEST_DIR | awk 'END { print $1, $2 }')" = "$TEST_DEV fuse"
        mount -t $FSTYP$FUSE_SUBTYP $MOUNT_OPTIONS $SCRATCH_DEV $SCRATCH_MNT
        echo data >$SCRATCH_MNT/file
        mount -o remount,ro $SCRATCH_MNT
        ! echo data 2>/dev/null >$SCRATCH_MNT/other
        umount $SCRATCH_DEV
        umount $TEST_DEV
        touch $RESULT_BASE/made
        echo "Ran: generic/001 generic/002 $1"
        echo "Not run: generic/002"
        echo "Failures: generic/998"
    "#;
    let tree = tree(&[("check", check), ("ltp/fsstress", "")]);
    let Some(text) = run("xfstests", tree.path(), &["generic/998"]) else { return };
    assert!(text.contains("generic/998 failed"), "{text}");
    assert!(text.contains("1 passed, 1 failed, 1 skipped"), "{text}");
    let Some(text) = run("xfstests", Path::new("/var/empty-tree"), &[]) else { return };
    assert!(text.contains("/var/empty-tree"), "{text}");
}

#[test]
fn a_tree_like_that_of_ltp_runs_on_a_mount_and_is_judged() {
    let list = "#DESCRIPTION:a few\ngood good\nbad bad -x\nelsewhere elsewhere\nabsent absent\nanywhere bad -y\n";
    let good = "#!/bin/sh\nset -e\ntest \"$(stat -f -c %T $TMPDIR)\" = fuseblk -o \"$(stat -f -c %T $TMPDIR)\" = fuse\n\
                echo data >$TMPDIR/file\n";
    let tree = tree(&[
        ("runtest/few", list),
        ("testcases/bin/good", good),
        ("testcases/bin/bad", "#!/bin/sh\ntest \"$1\" = -x || exit 1\ntest \"$(stat -f -c %t $TMPDIR)\" != 65735546\n"),
        ("testcases/bin/elsewhere", "#!/bin/sh\nexit 32\n"),
    ]);
    let Some(text) = run("ltp", tree.path(), &["few"]) else { return };
    assert!(text.contains("bad failed") && text.contains("anywhere fails in a directory of the host too"), "{text}");
    assert!(text.contains("1 passed, 1 failed, 2 skipped, 1 known"), "{text}");
}
