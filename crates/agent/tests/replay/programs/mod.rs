//! Programs of Debian that watch files, unmodified, in a guest whose root they are, while programs of the host edit the
//! share ([`edits`]).
//!
//! After each edit the guest sees the same tree as the host, and the watcher has named each path that differs from
//! before. What is in a directory that came or went with the edit is not demanded: a watcher adds its watches to a new
//! directory while it is filled, on a local file system too.

mod edits;
mod rebuild;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use transom_vm::{
    CacheMode, Root, Share,
    packages::{Cache, Closure, Freshness, OnStderr, Packages, Prefix, Request},
};

use crate::{
    Guest, Machine,
    guest::{CONTROL, SHARE},
    watcher::PATIENCE,
};
use edits::EDITS;

/// What every guest of this test needs.
const TOOLS: [&str; 4] = ["coreutils", "dash", "findutils", "rsync"];

/// What the guests of `make test` need, fetched together.
const IN_MAKE_TEST: [&str; 9] =
    ["coreutils", "dash", "findutils", "rsync", "inotify-tools", "mount", "util-linux", "entr", "grep"];

/// Learns all of the share, starts the watcher `$3` with its arguments, and describes the share when asked.
const GUEST: &str = r#"
share=$1 control=$2
shift 2
describe() { (cd "$share" && find . -type f -printf '%p %m %n %s\n' -exec cksum {} + -o -printf '%p %m %l\n' | sort); }
describe >/dev/null
"$@" >"$control/log" 2>"$control/said" &
watcher=$!
until [ "$(tail -n 1 "$control/said")" = "Watches established." ]; do
  kill -0 $watcher || { cat "$control/said"; exit 1; }
  sleep 0.05
done
: >"$control/ready"
number=0
until [ -e "$control/stop" ]; do
  if [ -e "$control/ask$number" ]; then
    describe >"$control/told.new"
    mv "$control/told.new" "$control/told$number"
    number=$((number + 1))
  fi
  sleep 0.02
done
kill $watcher
"#;

/// As the script of the guest does.
const DESCRIBE: &str =
    "find . -type f -printf '%p %m %n %s\\n' -exec cksum {} + -o -printf '%p %m %l\\n' | LC_ALL=C sort";

/// With watchdog, as its documentation shows.
const WATCHDOG: &str = r"
import sys, time
from watchdog.observers import Observer
from watchdog.events import FileSystemEventHandler
class Handler(FileSystemEventHandler):
    def on_any_event(self, event):
        print(event.event_type, event.src_path, flush=True)
        if getattr(event, 'dest_path', ''):
            print(event.event_type, event.dest_path, flush=True)
observer = Observer()
observer.schedule(Handler(), sys.argv[1], recursive=True)
observer.start()
print('Watches established.', file=sys.stderr, flush=True)
while True:
    time.sleep(1)
";

/// With chokidar, which bundlers and test runners of npm use.
const CHOKIDAR: &str = r"
const watcher = require('/usr/share/nodejs/chokidar').watch(process.argv[1], {ignoreInitial: true});
watcher.on('all', (event, path) => console.log(event, path));
watcher.on('ready', () => console.error('Watches established.'));
";

pub(crate) use rebuild::{entr, rollup, tsc, webpack};

pub(crate) fn inotifywait(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let words = ["inotifywait", "-m", "-r", "--format", "%e %w%f", SHARE];
    with_watcher(machine, daemon, "inotify-tools", &words)
}

pub(crate) fn watchdog(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    with_watcher(machine, daemon, "python3-watchdog", &["python3", "-c", WATCHDOG, SHARE])
}

pub(crate) fn chokidar(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    with_watcher(machine, daemon, "node-chokidar", &["node", "-e", CHOKIDAR, SHARE])
}

/// Boots a guest whose root has the watcher of `package`, and edits the share on the host.
fn with_watcher(machine: &Machine, daemon: &Path, package: &str, words: &[&str]) -> anyhow::Result<String> {
    let packages = match package {
        "inotify-tools" => IN_MAKE_TEST.to_vec(),
        package => TOOLS.into_iter().chain([package]).collect(),
    };
    let prefix = match fetch(&packages) {
        Ok(prefix) => prefix,
        Err(error) => {
            println!("SKIPPED: {package} cannot be had here: {error:#}");
            return Ok(String::new());
        }
    };
    let folder = tempfile::tempdir()?;
    let mut guest = Guest::new(folder.path(), machine, daemon, "")?;
    let (share, control) = (guest.share.clone(), guest.control.clone());
    edits::prepare(&share, folder.path())?;
    guest.spec.root = Root::Host(Share { host: prefix.root(), cache: Some(CacheMode::Always), ..Share::default() });
    guest.spec.env = vec![("LC_ALL".into(), "C".into())];
    guest.spec.command = ["dash", "-c", GUEST, "dash", SHARE, CONTROL]
        .into_iter()
        .chain(words.iter().copied())
        .map(Into::into)
        .collect();
    let (outcome, (done, left_out)) = guest.run(|| {
        let mut session = Session {
            names_attributes: package != "node-chokidar",
            share: &share,
            control: &control,
            folder: folder.path(),
            prefix: &prefix,
            asked: 0,
        };
        let (mut done, mut left_out) = (0, Vec::new());
        for edit in EDITS {
            match session.check(edit) {
                Ok(()) => done += 1,
                Err(error) if error.downcast_ref::<edits::Missing>().is_some() => left_out.push(edit.name),
                Err(error) => {
                    fs::write(control.join("stop"), "")?;
                    return Err(error.context(edit.name));
                }
            }
        }
        fs::write(control.join("stop"), "")?;
        Ok((done, left_out))
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    for name in left_out {
        println!("SKIPPED: {name}: the host has no such program");
    }
    Ok(format!("({done} edits) "))
}

/// Watchers in other mount namespaces of the guest: behind a bind mount of a subdirectory, behind chroot, and as a
/// container has it. The script's last words are `Watches established.` once all three watch.
const NAMESPACES: &str = r#"
share=$1 control=$2
watch() { # NAME DIRECTORY: watches, and says so
  inotifywait -m -r --format "$1 %e %w%f" "$2" >>"$control/log" 2>"$control/said-$1" &
  until [ "$(tail -n 1 "$control/said-$1")" = "Watches established." ]; do sleep 0.05; done
  : >"$control/watches-$1"
  wait
}
case ${3:-} in
bind) mount --bind "$share/sub" /mnt/view; watch bind /mnt/view ;;
chroot) mount --rbind / /mnt/view; exec chroot /mnt/view dash "$4" "$share" "$control" inside ;;
inside) watch chroot "$share/sub" ;;
container) mount --bind "$share" /mnt/view; umount -l "$share"; watch container /mnt/view/sub ;;
*)
  mkdir -p /mnt/view
  for kind in bind chroot; do unshare -m dash "$0" "$share" "$control" $kind "$0" & done
  unshare -m -p -u -i -f dash "$0" "$share" "$control" container &
  for kind in bind chroot container; do
    until [ -e "$control/watches-$kind" ]; do sleep 0.05; done
  done
  : >"$control/ready"
  until [ -e "$control/stop" ]; do sleep 0.05; done
  ;;
esac
"#;

/// Boots a guest with watchers in several mount namespaces, and makes changes of several kinds.
pub(crate) fn namespaces(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let prefix = match fetch(&IN_MAKE_TEST) {
        Ok(prefix) => prefix,
        Err(error) => {
            println!("SKIPPED: the guest's programs cannot be had here: {error:#}");
            return Ok(String::new());
        }
    };
    let folder = tempfile::tempdir()?;
    let mut guest = Guest::new(folder.path(), machine, daemon, "")?;
    let (share, control) = (guest.share.clone(), guest.control.clone());
    fs::create_dir(share.join("sub"))?;
    fs::write(share.join("sub/file"), "before")?;
    fs::write(control.join("script"), NAMESPACES)?;
    guest.spec.root = Root::Host(Share { host: prefix.root(), cache: Some(CacheMode::Always), ..Share::default() });
    let script = format!("{CONTROL}/script");
    guest.spec.command = ["dash", &script, SHARE, CONTROL].map(Into::into).to_vec();
    let (outcome, ()) = guest.run(|| {
        let changed = edits::sh(
            &share,
            "echo after >>sub/file; chmod 600 sub/file; : >sub/new; mv sub/new sub/renamed; rm sub/renamed; : >sub/end",
        );
        let deadline = Instant::now() + PATIENCE;
        let missing = loop {
            let log = fs::read_to_string(control.join("log"))?;
            let missing = missing_in(&log);
            if missing.is_empty() || Instant::now() > deadline {
                break missing;
            }
            thread::sleep(Duration::from_millis(5));
        };
        fs::write(control.join("stop"), "")?;
        anyhow::ensure!(missing.is_empty(), "not seen: {missing:?}");
        changed.map(drop)
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    Ok("(3 namespaces) ".to_owned())
}

/// Returns which of the events that the changes raise locally are not in the log of each namespace.
fn missing_in(log: &str) -> Vec<String> {
    let events = [
        "MODIFY file",
        "ATTRIB file",
        "CREATE new",
        "MOVED_FROM new",
        "MOVED_TO renamed",
        "DELETE renamed",
        "CREATE end",
    ];
    let wanted = ["bind", "chroot", "container"]
        .into_iter()
        .flat_map(|place| events.into_iter().map(move |event| (place, event.split_once(' ').unwrap_or_default())));
    let is_there = |&(place, (event, name)): &(&str, (&str, &str))| {
        log.lines().any(|line| {
            let end = format!("/{name}");
            line.strip_prefix(&format!("{place} {event} ")).is_some_and(|path| path.ends_with(&end))
        })
    };
    wanted.filter(|want| !is_there(want)).map(|want| format!("{want:?}")).collect()
}

fn fetch(packages: &[&str]) -> anyhow::Result<Prefix> {
    let (cache, report) = (Cache::locate()?, OnStderr::default());
    let suite = Packages::own_suite()?;
    let request = Request { suite: &suite, packages, closure: Closure::WithDependencies, freshness: Freshness::Cached };
    let prefix = Packages::new(&cache, &report).fetch(&request)?;
    for dir in ["dev", "proc", "sys", "tmp", "mnt", "etc"] {
        fs::create_dir_all(prefix.root().join(dir))?;
    }
    Ok(prefix)
}

/// Edits of the host while a guest watches.
struct Session<'a> {
    /// Whether the watcher is one that names changes of attributes.
    names_attributes: bool,
    share: &'a Path,
    control: &'a Path,
    folder: &'a Path,
    prefix: &'a Prefix,
    asked: u32,
}

/// What a path was: type and mode, number and size, times, change time.
type Described = BTreeMap<PathBuf, Vec<i64>>;

impl Session<'_> {
    /// Makes an edit, and compares what the guest says with what has happened.
    fn check(&mut self, edit: &edits::Edit) -> anyhow::Result<()> {
        let before = list(self.share)?;
        let logged = fs::read_to_string(self.control.join("log"))?.len();
        (edit.make)(&edits::Places { share: self.share, folder: self.folder, prefix: self.prefix })?;
        let after = list(self.share)?;
        let end = format!("end{}", self.asked);
        fs::write(self.share.join(&end), "")?;

        let expected = self.expected(&before, &after);
        anyhow::ensure!(!expected.is_empty(), "it changes nothing");
        let mut named = BTreeSet::new();
        self.wait(|log| {
            named = log.get(logged..).unwrap_or_default().lines().filter_map(path_of).collect();
            named.contains(Path::new(&end)) && expected.is_subset(&named)
        })
        .with_context(|| format!("not named: {:?}", expected.difference(&named).collect::<Vec<_>>()))?;

        let told = self.control.join(format!("told{}", self.asked));
        fs::write(self.control.join(format!("ask{}", self.asked)), "")?;
        self.asked += 1;
        self.wait(|_| told.exists()).context("the guest does not answer")?;
        let (here, there) = (edits::sh(self.share, DESCRIBE)?, fs::read_to_string(told)?);
        anyhow::ensure!(here == there, "the guest sees {there}, and the host {here}");
        Ok(())
    }

    /// Returns the paths that differ, in directories that were there before and are.
    fn expected(&self, before: &Described, after: &Described) -> BTreeSet<PathBuf> {
        let is_known = |path: &Path| {
            let parent = path.parent().unwrap_or(Path::new(""));
            // The directory itself is not replaced either.
            parent == Path::new("")
                || before.get(parent).is_some_and(|known| after.get(parent).map(|now| now[1]) == Some(known[1]))
        };
        let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
        let differs = |path: &PathBuf| match (before.get(path), after.get(path)) {
            // A directory's times change with its entries, which raises no event of its own.
            (Some(before), Some(after)) if is_directory(before) && is_directory(after) => before[..2] != after[..2],
            (Some(before), Some(after)) if !self.names_attributes => before[1..] != after[1..],
            (before, after) => before != after,
        };
        paths.into_iter().filter(|path| differs(path) && is_known(path)).cloned().collect()
    }

    /// Waits until the watcher has said something.
    fn wait(&self, mut is_enough: impl FnMut(&str) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = fs::read_to_string(self.control.join("log"))?;
            if is_enough(&log) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let said = fs::read_to_string(self.control.join("said")).unwrap_or_default();
                let shown = if env::var_os("TRANSOM_TEST_LOG").is_some() { &log } else { "" };
                anyhow::bail!("the watcher says nothing more: {said} {shown}");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_directory(described: &[i64]) -> bool {
    described[0] & i64::from(libc::S_IFMT) == i64::from(libc::S_IFDIR)
}

/// Returns the path in the share that a line of a watcher names after the event.
fn path_of(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once(' ')?;
    Some(Path::new(path).strip_prefix(SHARE).ok()?.to_owned())
}

/// Returns everything below `root`.
fn list(root: &Path) -> io::Result<Described> {
    let mut found = Described::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let stat = fs::symlink_metadata(&path)?;
            if stat.is_dir() {
                left.push(path.clone());
            }
            let described = [
                i64::from(stat.mode()),
                stat.ino().cast_signed(),
                stat.size().cast_signed(),
                stat.mtime(),
                stat.mtime_nsec(),
            ];
            found.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), described.to_vec());
        }
    }
    Ok(found)
}
