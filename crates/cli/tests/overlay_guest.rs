//! Overlays that the guest's kernel mounts: what the guest changes is kept as with the host's overlayfs, survives every
//! crash, and a guest that writes to the layer itself gets nothing more.

mod needs;
#[expect(dead_code, reason = "other tests use the rest")]
mod within;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::MetadataExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use needs::is_skipped;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "400";

/// A directory to share, and one for the state.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["d/sub", "d/held"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for (name, content) in [("a", "one\n"), ("b", "two\n"), ("sub/c", "three\n"), ("held/.env", "TOKEN\n")] {
            fs::write(folder.path().join("d").join(name), content).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path("d").join(name)).unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(words).env("XDG_STATE_HOME", self.path("state")).stdin(Stdio::null());
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let share = format!("{}:/share,overlay=guest", self.path("d").display());
        let run = ["run", "--timeout", LIMIT_S, "--share", &share];
        self.command(&[&run, options, &["--", "sh", "-c", script]].concat())
    }

    /// Runs a command on the directory, and returns what it printed.
    fn done(&self, command: &str, more: &[&str]) -> Output {
        let directory = self.path("d").to_str().unwrap().to_owned();
        self.command(&[&[command, &directory], more].concat()).output().unwrap()
    }

    #[track_caller]
    fn diff(&self) -> String {
        let output = self.done("diff", &[]);
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// `try` prints `NAME got` if the command of an attempt succeeds, and `NAME refused` with the error otherwise. `can`
/// does the same with `control-NAME`: the attempt's control does the same thing where no wall is, and has to succeed,
/// so that a mistake in the script or a missing tool is not taken for a refusal.
const TRY: &str = r#"
try() { name=$1; shift; if said=$(sh -c "$*" 2>&1); then echo "$name got"; else echo "$name refused" $said; fi; }
can() { name=$1; shift; try "control-$name" "$@"; }
"#;

/// The share is an overlay in which `held/.env` is hidden. The guest mounts both of its shares again: `/lower` is the
/// directory, `/layer` what the overlay writes to.
const ATTACK: &str = r#"
cd /share; echo more >> a; rm b; echo new > sub/new
try read-hidden cat held/.env
can read-hidden cat sub/c
try make-hidden 'echo evil > held/.env'
can make-hidden 'echo good > held/own && rm held/own'
try remove-above-hidden rmdir held
can remove-above-hidden rmdir empty
can exceed-quota 'dd if=/dev/zero of=small bs=64k count=2'
rm -f small
try exceed-quota 'dd if=/dev/zero of=big bs=64k count=64'
rm -f big
mkdir /lower /layer; mount -t virtiofs share0 /lower; mount -t virtiofs share0-layer /layer
try layer-is-there test -d /layer/upper
try write-lower 'echo evil > /lower/a'
can write-lower 'echo good > /layer/upper/a-own && rm /layer/upper/a-own'
try write-lower-remounted 'mount -o remount,rw /lower; echo evil > /lower/a'
can write-lower-remounted 'mkdir /r && mount -t tmpfs -o ro none /r && mount -o remount,rw /r; echo good > /r/file'
try read-hidden-in-lower cat /lower/held/.env
can read-hidden-in-lower cat /lower/sub/c
try leave-layer 'cat /layer/../record || cat /layer/../../origin || cat /layer/record'
can leave-layer 'cat /layer/../record || cat /layer/../../origin || cat /layer/upper/a'
try move-upper 'mv /layer/upper /layer/elsewhere'
can move-upper 'mkdir /layer/own && mv /layer/own /layer/elsewhere && rmdir /layer/elsewhere'
try held-is-there test -d /layer/upper/held
try move-above-hidden 'mv /layer/upper/held /layer/held'
can move-above-hidden 'mkdir -p /layer/upper/own/sub && mv /layer/upper/own /layer/own && rm -r /layer/own'
try make-hidden-in-layer 'echo evil > /layer/upper/held/.env'
can make-hidden-in-layer 'echo good > /layer/upper/held/own && rm /layer/upper/held/own'
try move-hidden-in-layer 'echo evil > /layer/evil && mv /layer/evil /layer/upper/held/.env'
can move-hidden-in-layer 'echo good > /layer/good && mv /layer/good /layer/upper/held/own && rm /layer/upper/held/own'
try link-hidden-in-layer 'ln /layer/upper/a /layer/upper/held/.env'
can link-hidden-in-layer 'ln -s /layer/upper/a /layer/upper/held/own && rm /layer/upper/held/own'
try link-in-layer 'ln /layer/upper/a /layer/own'
can link-in-layer 'echo good > /own && ln /own /own-link'
try white-out-hidden 'mknod /layer/upper/held/.env c 0 0'
can white-out-hidden 'mknod /layer/upper/held/own c 0 0 && rm /layer/upper/held/own'
try white-out 'mknod /layer/upper/sub/c c 0 0'
try link-out 'ln -s /etc /layer/upper/etc'
try set-id 'echo evil > /layer/upper/program; chmod 6755 /layer/upper/program'
can exceed-quota-beside 'dd if=/dev/zero of=/layer/small bs=64k count=2'
rm -f /layer/small
try exceed-quota-beside 'dd if=/dev/zero of=/layer/big bs=64k count=64'
"#;

/// The attempts that get something: what the guest does in its layer is its own business.
const GRANTED: [&str; 5] = ["layer-is-there", "held-is-there", "white-out", "link-out", "set-id"];

/// Checks that no attempt got more than it should, and that every control got something.
#[track_caller]
fn check_attempts(said: &str) {
    let names = |verb: &'static str| {
        ATTACK.lines().filter_map(move |line| line.strip_prefix(verb)?.split(' ').next()).collect::<BTreeSet<_>>()
    };
    let (attempts, controls, granted) = (names("try "), names("can "), BTreeSet::from(GRANTED));
    assert_eq!(controls, &attempts - &granted, "every attempt that must fail has a control");
    let has = |line: &str| said.lines().any(|one| one == line || one.starts_with(&format!("{line} ")));
    for name in attempts {
        let is_right = if granted.contains(name) {
            has(&format!("{name} got"))
        } else {
            has(&format!("{name} refused")) && has(&format!("control-{name} got"))
        };
        assert!(is_right, "{name}: {said}");
    }
}

#[test]
fn a_guest_that_writes_to_its_layer_gets_nothing_more() {
    if is_skipped("a_guest_that_writes_to_its_layer") {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("d/empty")).unwrap();
    let hidden = fixture.path("d/held/.env");
    let options = ["--hide", hidden.to_str().unwrap(), "--disk", "1M"];
    let run = fixture.run(&options, &format!("{TRY}{ATTACK}")).output().unwrap();
    let said = text(&run);
    check_attempts(&said);
    assert!(said.contains(" changed in ") && run.status.success(), "{said}");
    let untouched = || {
        let names = ["a", "b", "sub/c", "held/.env"].map(|name| fixture.read(name));
        assert_eq!(names, ["one\n", "two\n", "three\n", "TOKEN\n"]);
    };
    untouched();
    let expected = "changed  a (4 B to 9 B)\nremoved  b\nremoved  empty/\nadded    etc (4 B)\nadded    program (5 B)\n\
                    removed  sub/c\nadded    sub/new (4 B)\n6 files and 1 directory, 22 B to write\n";
    assert_eq!(fixture.diff(), expected);
    let committed = fixture.done("commit", &[]);
    assert!(committed.status.success(), "{}", text(&committed));
    assert_eq!((fixture.read("a"), fixture.read("held/.env")), ("one\nmore\n".into(), "TOKEN\n".into()));
    assert!(!fixture.path("d/b").exists() && !fixture.path("d/sub/c").exists());
    assert_eq!(fs::metadata(fixture.path("d/program")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_link(fixture.path("d/etc")).unwrap(), Path::new("/etc"));
}

/// Which process is killed while the guest writes.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Run,
    Guest,
    Daemon,
}

/// Returns the processes that `parent` has started, and their command lines.
fn children(parent: u32) -> Vec<(u32, String)> {
    let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let of = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).map(|pid| (pid, of(pid))).collect()
}

impl Victim {
    fn kill(self, run: &Child) {
        let is_it = |line: &str| match self {
            Self::Guest => line.contains("qemu-system"),
            // That of the layer.
            _ => line.contains("transomd") && line.contains("/layers "),
        };
        let pid = match self {
            Self::Run => run.id(),
            _ => children(run.id()).into_iter().find(|(_, line)| is_it(line)).expect("a process to kill").0,
        };
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    }
}

/// Writes files, each of which it tells after it is closed.
const WRITES: &str = "i=0; while i=$((i+1)); do echo content $i > f$i; echo $i; done";

#[test]
fn what_a_guest_has_written_survives_the_death_of_every_process() {
    if is_skipped("what_a_guest_has_written_survives") {
        return;
    }
    for victim in [Victim::Run, Victim::Guest, Victim::Daemon] {
        let fixture = Fixture::new();
        let mut run = fixture.run(&[], WRITES).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut told = 0;
        for line in BufReader::new(run.stdout.take().unwrap()).lines().map_while(Result::ok) {
            told = line.parse().unwrap();
            if told == 40 {
                victim.kill(&run);
            }
        }
        let status = run.wait().unwrap();
        assert!(told >= 40 && !status.success(), "{victim:?}: {told} files, {status}");
        let listed = within::until(
            || format!("{victim:?}: no changes"),
            || Some(fixture.diff()).filter(|listed| !listed.is_empty()),
        );
        for number in 1..=told {
            assert!(listed.contains(&format!("added    f{number} ")), "{victim:?}: {number} of {told}:\n{listed}");
        }
        assert_eq!(fs::read_dir(fixture.path("d")).unwrap().count(), 4, "{victim:?}");
        commit_with_interruptions(&fixture);
        for number in 1..=told {
            assert_eq!(fixture.read(&format!("f{number}")), format!("content {number}\n"), "{victim:?}");
        }
        let left = fs::read_dir(fixture.path("d")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with(".transom-commit")), "{victim:?}");
    }
}

/// Kills commits later and later, until one ends by itself.
fn commit_with_interruptions(fixture: &Fixture) {
    let directory = fixture.path("d").to_str().unwrap().to_owned();
    for pause_us in (0..).step_by(1500) {
        let mut commit = fixture.command(&["commit", &directory]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(pause_us));
        kill_process(Pid::from_child(&commit), Signal::KILL).unwrap();
        let status = commit.wait().unwrap();
        if status.signal().is_none() {
            assert!(status.success(), "{status}");
            break;
        }
    }
    // Whatever was left is done, or was done before.
    let rest = fixture.done("commit", &[]);
    assert!(rest.status.success(), "{}", text(&rest));
}

#[test]
fn the_guest_does_it_where_the_host_cannot() {
    if is_skipped("the_guest_does_it_where_the_host_cannot") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: the_guest_does_it_where_the_host_cannot: it mounts an overlay, which needs root");
    }
    let fixture = Fixture::new();
    // As root in a container.
    let started = |who: &str, state: &str| {
        let share = format!("{}:/share,overlay{who}", fixture.path("d").display());
        let mut command = Command::new("setpriv");
        command.args(["--inh-caps=-sys_admin", "--bounding-set=-sys_admin", env!("CARGO_BIN_EXE_transom"), "run"]);
        command.args(["--timeout", LIMIT_S, "--share", &share, "--", "sh", "-c", "echo more >> a; rm b; cat a"]);
        command.env("XDG_STATE_HOME", fixture.path(state)).stdin(Stdio::null()).output()
    };
    let refused = match started("=host", "state") {
        Err(error) => return eprintln!("SKIPPED: the_guest_does_it_where_the_host_cannot: no setpriv: {error}"),
        Ok(refused) => text(&refused),
    };
    assert!(refused.contains("no CAP_SYS_ADMIN") && refused.contains("with overlay=guest"), "{refused}");
    let run = started("", "state").unwrap();
    let said = text(&run);
    assert!(run.status.success() && said.contains("the guest's kernel keeps the changes"), "{said}");
    assert!(
        said.starts_with("one\nmore\n") && fixture.diff().ends_with("removed  b\n2 files, 9 B to write\n"),
        "{said}"
    );
    assert_eq!((fixture.read("a"), fixture.read("b")), ("one\n".into(), "two\n".into()));
}

#[test]
fn changes_on_a_file_system_without_white_outs_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!(
            "SKIPPED: changes_on_a_file_system_without_white_outs: it mounts an overlay, which needs root"
        );
    }
    let fixture = Fixture::new();
    for name in ["lower", "upper", "work", "state"] {
        fs::create_dir(fixture.path(name)).unwrap();
    }
    let script = "cd \"$0\" && mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work state && chmod 700 \
                  state && exec \"$1\" run --share \"$0/d:/share,overlay=guest\" -- true";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(fixture.folder.path()).arg(env!("CARGO_BIN_EXE_transom"));
    let output = command.env("XDG_STATE_HOME", fixture.path("state")).stdin(Stdio::null()).output().unwrap();
    let said = text(&output);
    assert!(output.status.code() == Some(125) && said.contains("takes no white-outs"), "{said}");
    assert!(said.contains("set XDG_STATE_HOME"), "{said}");
}

#[test]
fn what_two_shares_cannot_do_is_refused() {
    let fixture = Fixture::new();
    for (options, reason) in [
        (&["--daemon-arg=--hide-name=.env"][..], "--hide-name needs an overlay that the host's kernel mounts"),
        (&["--daemon-arg=--xattrmap=:map::user.x.:"], "--xattrmap needs"),
    ] {
        let output = fixture.run(options, "true").output().unwrap();
        assert!(output.status.code() == Some(125) && text(&output).contains(reason), "{}", text(&output));
    }
    let share = format!("{}:/share,overlay=guest,dax=256M", fixture.path("d").display());
    let output = fixture.command(&["run", "--share", &share, "--", "true"]).output().unwrap();
    assert!(output.status.code() == Some(125) && text(&output).contains("dax needs"), "{}", text(&output));
}
