//! `transom mount` by an unprivileged user, with and without `fusermount3` of Debian's package, which is set-uid root.
//! The tests need root to become that user.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::process::geteuid;
use tempfile::TempDir;
use transom_vm::packages::{Cache, Closure, Freshness, OnStderr, Packages, Request};

/// The user nobody.
const USER: u32 = 65534;

/// Directories that the user may enter, with the programs, a share and a mount point.
struct Fixture(TempDir);

impl Fixture {
    /// Prints SKIPPED and returns `None` if this cannot be tested here.
    fn new(test: &str) -> Option<Self> {
        let built = Path::new(env!("CARGO_BIN_EXE_transom"));
        let daemon = built.with_file_name("transomd");
        let reason = if !geteuid().is_root() {
            "becoming another user needs root".to_owned()
        } else if !daemon.is_file() {
            format!("no daemon {daemon:?}; build transomd")
        } else {
            let dir = tempfile::tempdir().unwrap();
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            for name in ["bin", "share", "mnt"] {
                fs::create_dir(dir.path().join(name)).unwrap();
            }
            for name in ["share", "mnt"] {
                chown(dir.path().join(name), Some(USER), Some(USER)).unwrap();
            }
            fs::copy(built, dir.path().join("bin/transom")).unwrap();
            fs::copy(daemon, dir.path().join("bin/transomd")).unwrap();
            return Some(Self(dir));
        };
        eprintln!("SKIPPED: {test}: {reason}");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Copies the package's helper beside the programs. Prints SKIPPED and returns `None` if the package cannot be
    /// fetched.
    fn add_helper(&self, test: &str) -> Option<()> {
        let fetched = (|| {
            let (cache, report) = (Cache::locate()?, OnStderr::default());
            let (suite, closure, freshness) = (Packages::own_suite()?, Closure::Only, Freshness::Cached);
            Packages::new(&cache, &report).fetch(&Request { suite: &suite, packages: &["fuse3"], closure, freshness })
        })();
        let prefix = fetched.inspect_err(|error| eprintln!("SKIPPED: {test}: no package fuse3: {error}")).ok()?;
        let programs = ["usr/bin/fusermount3", "bin/fusermount3"].map(|name| prefix.root().join(name));
        let program = programs.iter().find(|path| path.is_file()).expect("the package has its program");
        let helper = self.path().join("bin/fusermount3");
        fs::copy(program, &helper).unwrap();
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o4755)).unwrap();
        Some(())
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A user's session: mounts in the background and unmounts with fusermount3, then mounts in the foreground and ends the
/// mount with a signal. Everybody may open /dev/fuse in this mount namespace, as udev sets it up.
const SESSION: &str = r#"
mount --make-rprivate /
mkdir "$1/dev"
mount -t tmpfs tmpfs "$1/dev"
mknod -m 666 "$1/dev/fuse" c 10 229
mount --bind "$1/dev/fuse" /dev/fuse
cat > "$1/bin/session" <<'END'
cd "$1"
transom mount -b --shared-dir share mnt
echo "read $(cat mnt/from-host)"
echo written > mnt/from-user
fusermount3 -u mnt
test ! -e mnt/from-user && echo unmounted
transom mount --shared-dir share mnt &
while ! test -e mnt/from-user; do kill -0 $!; sleep 0.01; done
kill -TERM $!
wait $! && echo ended
test ! -e mnt/from-user && echo unmounted
END
exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -eu "$1/bin/session" "$1"
"#;

#[test]
fn a_user_mounts_with_the_helper_and_unmounts() {
    const NAME: &str = "a_user_mounts_with_the_helper_and_unmounts";
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: {NAME}: there is no /dev/fuse");
        return;
    }
    let Some(fixture) = Fixture::new(NAME) else { return };
    let Some(()) = fixture.add_helper(NAME) else { return };
    fs::write(fixture.path().join("share/from-host"), "hello").unwrap();
    let path = format!("{}:{}", fixture.path().join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("timeout");
    command.args(["120", "unshare", "--mount", "sh", "-euc", SESSION, "sh"]).arg(fixture.path());
    let output = command.env("PATH", path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "read hello\nunmounted\nended\nunmounted\n");
    let written = fixture.path().join("share/from-user");
    assert_eq!(fs::read_to_string(&written).unwrap(), "written\n");
    assert_eq!(fs::metadata(written).unwrap().uid(), USER);
}

#[test]
fn a_user_without_the_helper_is_told_the_package() {
    let Some(fixture) = Fixture::new("a_user_without_the_helper_is_told_the_package") else { return };
    let mut command = Command::new(fixture.path().join("bin/transom"));
    command.args(["mount", "--shared-dir", "share", "mnt"]).current_dir(fixture.path()).env("PATH", "/nonexistent");
    let output = command.uid(USER).gid(USER).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("fusermount3 (package fuse3)"), "{}", text(&output));
}
