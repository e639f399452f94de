//! A guest that moves from daemon to daemon, with a load that notices if anything is not as it was.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::{
    load,
    machine::{First, Machine},
    needs::{Daemon, Needs},
    wait_for,
};

/// What the guest does. It counts, and checks what it reads against what it has written; the file `big` is read from
/// the daemon each time, past the page cache too. Files stay open. With the first argument
/// - `removed`, one of them has no name;
/// - `many`, it knows 100,000 files, and has read a part of their directory;
/// - `fsx`, random operations on one file are compared with a model meanwhile;
/// - `pjdfstest`, that suite runs meanwhile, once.
const SCRIPT: &str = r#"
exec 3>>open
case "$1" in
removed) exec 4<>nameless; rm nameless; echo kept >&4 ;;
many)
  ls -l many > /dev/null
  mkfifo /tmp/names && find many > /tmp/names &
  sleep 1
  exec 5</tmp/names
  read -r first <&5
  ;;
fsx)
  # A program in the share may get SIGSEGV when it starts after a move to virtiofsd, also from virtiofsd.
  cp transom-cases /tmp/transom-cases
  while [ ! -e stop ]; do
    /tmp/transom-cases fsx --seconds 5 . >> fsx.log 2>&1 || echo fsx >> errors
  done &
  ;;
pjdfstest)
  { ./transom-cases pjdfstest --executable ./pjdfstest --dir . --add-users > results.new 2> pjdfstest.log
    mv results.new results; } &
  ;;
esac
sum=$(md5sum < big)
[ -n "$sum" ] || echo "no sum" >> errors
i=0
while [ ! -e stop ]; do
  i=$((i + 1))
  echo $i >&3 || echo "$i: open" >> errors
  echo $i > dir/$((i % 40)) || echo "$i: write" >> errors
  read -r x < dir/$((i % 40)) || echo "$i: read" >> errors
  [ "$x" = $i ] || echo "$i: found $x" >> errors
  if [ $((i % 8)) = 0 ] && [ "$(md5sum < big)" != "$sum" ]; then echo "$i: big" >> errors; fi
  if [ $((i % 8)) = 4 ] && [ "$(dd if=big bs=48k iflag=direct 2> /dev/null | md5sum)" != "$sum" ]; then
    echo "$i: directly" >> errors
  fi
  echo $i > progress.new && mv progress.new progress || echo "$i: rename" >> errors
done
if [ "$1" = removed ]; then echo more >&4 || echo nameless >> errors; fi
if [ "$1" = many ]; then
  count=$(cat <&5 | sort -u | wc -l)
  [ "$count" = 100000 ] || echo "a listing of $count names after $first" >> errors
fi
wait
echo $i > finished.new && mv finished.new finished
"#;

/// Files of a directory that a guest knows as a whole.
const MANY: u32 = 100_000;

/// What the guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// It counts and checks ([`SCRIPT`]).
    Counts,
    /// It has an open file without a name, too.
    Removed,
    /// It knows [`MANY`] files, too, and reads their directory.
    Many,
    /// Operations on files and names are compared with a model ([`load`]).
    Model,
    /// The project's fsx runs.
    Fsx,
    /// pjdfstest runs, and has the results that it has on the bare directory.
    Pjdfstest,
}

/// How a guest moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// While it runs, over a socket.
    Socket,
    /// Through a file, when the machine before has ended.
    File,
}

/// A guest's way. It begins at the first of `daemons` and moves to each of the others.
pub(crate) struct Journey<'a> {
    pub(crate) needs: &'a Needs,
    pub(crate) daemons: Vec<&'a Path>,
    pub(crate) arguments: &'a [&'a str],
    pub(crate) load: Load,
    pub(crate) by: By,
    /// What happens before the guest leaves the first machine.
    pub(crate) before: fn(&mut Machine, &Path),
}

impl Journey<'_> {
    /// Goes the whole way.
    ///
    /// # Panics
    ///
    /// If the guest does not find everything as it was.
    pub(crate) fn make(self) {
        let dir = tempfile::tempdir().unwrap();
        let share = dir.path().join("share");
        fs::create_dir(&share).unwrap();
        let Some(expected) = self.prepare(&share) else { return };
        let mut first =
            First::start(self.needs, self.daemons[0], self.arguments, &share, dir.path(), &self.load.command());
        wait_for("the guest to begin", || {
            first.assert_runs();
            progress(&share).filter(|&count| count >= 20)
        });
        let mut machine = first.machine(dir.path());
        let goes_on = |machine: &mut Machine| {
            let there = progress(&share).unwrap();
            wait_for("the guest to go on", || {
                machine.assert_runs();
                progress(&share).filter(|&count| count > there + 20)
            });
            if self.arguments.contains(&"--posix-lock") {
                let file = File::options().write(true).open(share.join(load::LOCKED)).unwrap();
                let taken = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
                assert!(taken.is_err(), "the guest's lock is not held on the host");
            }
        };
        (self.before)(&mut machine, dir.path());
        goes_on(&mut machine);
        let mut daemon: Option<Daemon> = None;
        for (number, program) in self.daemons.iter().enumerate().skip(1) {
            let next_daemon =
                Daemon::start(program, &share, self.arguments, dir.path().join(format!("fs{number}.sock")));
            let mut next = machine.twin(&next_daemon.socket, dir.path(), number);
            let path = dir.path().join(format!("state{number}"));
            match self.by {
                By::Socket => {
                    next.take_over(&mut machine, &path);
                    machine.end();
                }
                By::File => {
                    machine.save(&path);
                    machine.end();
                    next.restore(&path);
                    fs::remove_file(&path).unwrap();
                }
            }
            machine = next;
            goes_on(&mut machine);
            drop(daemon.replace(next_daemon));
        }
        if let Some(oracle) = &expected {
            let results = share.join("results");
            wait_for("pjdfstest to end", || results.exists().then_some(()));
            assert_same_results(self.needs, oracle, &results);
        }
        fs::write(share.join("stop"), "").unwrap();
        wait_for("the guest to finish", || {
            machine.assert_runs();
            share.join("finished").exists().then_some(())
        });
        self.check(&share);
        machine.end();
    }

    /// Fills the share. Returns what pjdfstest has to find, if it runs; nothing at all if something is not available.
    fn prepare(&self, share: &Path) -> Option<Option<PathBuf>> {
        if self.load != Load::Model {
            fs::create_dir(share.join("dir")).unwrap();
        }
        fs::write(share.join("big"), (0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
        let copy = |from: &Path, name: &str| _ = fs::copy(from, share.join(name)).unwrap();
        match self.load {
            Load::Counts | Load::Removed => {}
            Load::Many => {
                fs::create_dir(share.join("many")).unwrap();
                (0..MANY).for_each(|number| drop(File::create(share.join(format!("many/{number}"))).unwrap()));
            }
            Load::Model => copy(&std::env::current_exe().unwrap(), load::PROGRAM),
            Load::Fsx => copy(&self.needs.cases()?, "transom-cases"),
            Load::Pjdfstest => {
                let cases = self.needs.cases()?;
                let suite = self.needs.pjdfstest(&cases)?;
                let bare = share.with_file_name("bare");
                fs::create_dir(&bare).unwrap();
                let mut command = Command::new(&cases);
                command.args(["pjdfstest", "--executable"]).arg(&suite).arg("--dir").arg(&bare);
                let oracle = share.with_file_name("oracle");
                fs::write(&oracle, command.output().unwrap().stdout).unwrap();
                copy(&cases, "transom-cases");
                copy(&suite, "pjdfstest");
                return Some(Some(oracle));
            }
        }
        Some(None)
    }

    /// Fails unless the load has found everything as it was.
    fn check(&self, share: &Path) {
        let read = |name: &str| fs::read_to_string(share.join(name)).unwrap_or_default();
        assert_eq!(read("errors"), "", "{}", read("fsx.log"));
        let (lines, count) = match self.load {
            Load::Model => (read("log"), progress(share).unwrap()),
            _ => (read("open"), read("finished").trim().parse().unwrap()),
        };
        let expected: String = (1..=count).map(|number| format!("{number}\n")).collect();
        assert!(lines == expected, "the open file has lost or gained lines");
        println!("the guest has counted to {count}");
    }
}

impl Load {
    fn command(self) -> Vec<&'static str> {
        let mode = match self {
            Self::Counts => "",
            Self::Removed => "removed",
            Self::Many => "many",
            Self::Fsx => "fsx",
            Self::Pjdfstest => "pjdfstest",
            Self::Model => return vec!["sh", "-c", load::COMMAND],
        };
        vec!["sh", "-c", SCRIPT, "sh", mode]
    }
}

/// Returns how far the guest has counted.
fn progress(share: &Path) -> Option<u64> {
    fs::read_to_string(share.join("progress")).ok()?.trim().parse().ok()
}

/// Fails unless pjdfstest in the guest came to what it does on the bare directory, apart from known differences.
fn assert_same_results(needs: &Needs, oracle: &Path, results: &Path) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/data");
    let mut command = Command::new(needs.cases().unwrap());
    command.arg("compare").args([oracle, results]);
    for list in ["linux-guest.allow", "minimal-root.allow"] {
        command.arg("--allow").arg(data.join(list));
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", text.lines().last().unwrap_or_default());
}
