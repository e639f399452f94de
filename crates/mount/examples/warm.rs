//! What caches are worth: work on a tree of many files, by way of the library and of a mount.
//!
//!     warm [FILES] [walk|git|make] [DIR]
//!
//! makes FILES (default 50000) in DIR (default a temporary one), and works on them three times in each cell of a table:
//! with empty caches, with full ones, and after another guest has changed ten of the files. The work is a walk with the
//! attributes of each file, `git status`, or `make` of one product for each file; the last two need a kernel, so the
//! library has no rows then. The first column counts how many of the ten the third run found. A line below the table is
//! the time of a `stat` of four names that are all cached. The daemon is `transomd`, which is built beside, or what
//! TRANSOMD names; the other one is virtiofsd, where it is in the cache.
#![allow(clippy::unwrap_used, reason = "an example that cannot go on ends here")]

use std::{
    env, fs,
    hint::black_box,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use transom_mount::{Mount, Options};
use transom_user::{
    daemon::Program,
    guest::{
        cache::{CacheMode, CacheOptions},
        dax::DaxOptions,
        fs::Fs,
        session::SessionConfig,
    },
    platform::Process,
    share::Share,
};
use transom_vm::{packages::Cache, peer};

/// Files of a directory, and directories of a directory above it.
const FILES_PER_DIRECTORY: usize = 100;
const DIRECTORIES_PER_DIRECTORY: usize = 50;
const CHANGES: usize = 10;
/// Runs with full caches, of which the quickest counts.
const FULL_RUNS: usize = 3;
/// A mount of a group follows within hundredths of a second.
const PAUSE: Duration = Duration::from_millis(200);
const STATS: u32 = 200_000;

/// The size of a file as it is made, and once it is changed.
const SMALL: u64 = 1;
const CHANGED: u64 = 2;

/// What is done with the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Walk,
    Git,
    Make,
}

struct Tree {
    work: Work,
    dir: PathBuf,
    group: PathBuf,
    files: Vec<PathBuf>,
}

impl Tree {
    fn create(work: Work, dir: PathBuf, group: PathBuf, count: usize) -> Self {
        let path = |number: usize| {
            let directory = number / FILES_PER_DIRECTORY;
            format!("{}/{}/{number}", directory / DIRECTORIES_PER_DIRECTORY, directory)
        };
        let files: Vec<PathBuf> = (0..count).map(|number| path(number).into()).collect();
        for file in &files {
            let path = dir.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![b'x'; SMALL as usize]).unwrap();
        }
        let tree = Self { work, dir, group, files };
        tree.prepare();
        tree
    }

    fn prepare(&self) {
        match self.work {
            Work::Walk => {}
            Work::Git => {
                let user = ["-c", "user.name=warm", "-c", "user.email=warm@localhost"];
                output(git(&self.dir).args(["init", "-q"]));
                output(git(&self.dir).args(["add", "-A"]));
                output(git(&self.dir).args(user).args(["commit", "-q", "-m", "files"]));
            }
            Work::Make => {
                let products = self.files.iter().map(|file| format!("{}.o", file.display())).collect::<Vec<_>>();
                let rule = "%.o: %\n\t@cp $< $@ && echo $@\n";
                let makefile = format!("MAKEFLAGS += -r\nall: {}\nMakefile: ;\n{rule}", products.join(" "));
                fs::write(self.dir.join("Makefile"), makefile).unwrap();
                output(&mut make(&self.dir));
            }
        }
    }

    /// Does the work in the tree as `dir` shows it. Returns the number of files, and of those that are changed.
    fn work_in(&self, dir: &Path) -> (usize, usize) {
        let all = self.files.len();
        match self.work {
            Work::Walk => walk_kernel(dir),
            Work::Git => (all, output(git(dir).args(["status", "--porcelain"])).lines().count()),
            Work::Make => (all, output(&mut make(dir)).lines().filter(|line| line.ends_with(".o")).count()),
        }
    }

    fn changed(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().step_by(self.files.len() / CHANGES).take(CHANGES)
    }

    fn set_back(&self) {
        self.changed().for_each(|file| fs::write(self.dir.join(file), vec![b'x'; SMALL as usize]).unwrap());
        match self.work {
            Work::Walk => {}
            Work::Git => drop(output(git(&self.dir).args(["update-index", "-q", "--refresh"]))),
            Work::Make => drop(output(&mut make(&self.dir))),
        }
    }
}

/// `git` in `dir`, which may belong to somebody else, and which it only reads.
fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(dir).args(["-c", "safe.directory=*"]).env("GIT_OPTIONAL_LOCKS", "0");
    git
}

fn make(dir: &Path) -> Command {
    let mut make = Command::new("make");
    make.current_dir(dir);
    make
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn main() {
    let mut args = env::args().skip(1);
    let count = args.next().map_or(50_000, |count| count.parse().unwrap());
    let work = match args.next().as_deref() {
        None | Some("walk") => Work::Walk,
        Some("git") => Work::Git,
        Some("make") => Work::Make,
        Some(other) => panic!("walk, git or make, not {other}"),
    };
    let own = tempfile::tempdir().unwrap();
    let group = own.path().join("group");
    fs::create_dir(&group).unwrap();
    fs::set_permissions(&group, fs::Permissions::from_mode(0o700)).unwrap();
    let place = tempfile::tempdir_in(args.next().map_or(own.path().to_owned(), PathBuf::from)).unwrap();
    let tree = Tree::create(work, place.path().join("tree"), group, count);
    let work_on_host = || tree.work_in(&tree.dir);
    work_on_host();

    println!("{:26} {:>9} {:>11} {:>11} {:>11}", "", "right", "first", "second", "after ten");
    measure("bare directory", &tree, work_on_host, &change_on_host);
    let mut warm_stat = None;
    let modes = [
        ("shared", CacheMode::Shared),
        ("auto", CacheMode::Auto),
        ("always", CacheMode::Always),
        ("never", CacheMode::None),
    ];
    for (name, mode) in modes.into_iter().filter(|_| work == Work::Walk) {
        let guest = Library::connect(&tree, library_program(&tree, mode), mode);
        let (name, walk) = (format!("library, {name}"), || walk_library(&guest.fs, ""));
        if mode == CacheMode::Shared {
            let other = Library::connect(&tree, library_program(&tree, mode), mode);
            measure(&name, &tree, walk, &|tree| other.change(tree));
            warm_stat = Some(guest.warm_stat(&tree));
        } else {
            measure(&name, &tree, walk, &change_on_host);
        }
    }
    for cache in ["shared", "auto", "always", "never"] {
        measure_mount(&tree, cache);
    }
    measure_virtiofsd(&tree);
    if let Some(warm) = warm_stat {
        println!("\nstat of four cached names by the library, shared: {:.0} ns", warm.as_secs_f64() * 1e9);
    }
}

fn transomd() -> PathBuf {
    let beside = || env::current_exe().unwrap().ancestors().nth(2).unwrap().join("transomd");
    env::var_os("TRANSOMD").map_or_else(beside, PathBuf::from)
}

fn in_group(tree: &Tree, args: &[&str]) -> Program {
    let mut program = Program::new(transomd());
    program.args = vec!["--coherence-group".into(), tree.group.clone().into()];
    program.args.extend(args.iter().map(Into::into));
    program
}

fn library_program(tree: &Tree, mode: CacheMode) -> Program {
    let cache = match mode {
        CacheMode::Shared | CacheMode::Always => "--cache=always",
        CacheMode::Auto => "--cache=auto",
        CacheMode::None => "--cache=never",
    };
    in_group(tree, &["--front-end=alioth", cache])
}

struct Library {
    fs: Fs<Process>,
    _share: Share,
}

impl Library {
    fn connect(tree: &Tree, program: Program, mode: CacheMode) -> Self {
        let share = Share::builder().shared_dir(&tree.dir).daemon(program).connect().unwrap();
        let options = CacheOptions { mode, ..CacheOptions::default() };
        let volume = share.volume(SessionConfig::default(), options, DaxOptions::default()).unwrap();
        Self { fs: Fs::new(Arc::new(volume)), _share: share }
    }

    fn change(&self, tree: &Tree) {
        for file in tree.changed() {
            self.fs.truncate(file.to_str().unwrap(), CHANGED).unwrap();
        }
    }

    /// Returns the mean time of a stat of four names, each of which is looked at in the table.
    fn warm_stat(&self, tree: &Tree) -> Duration {
        fs::create_dir_all(tree.dir.join("a/b/c")).unwrap();
        fs::write(tree.dir.join("a/b/c/d"), "x").unwrap();
        self.fs.metadata("a/b/c/d").unwrap();
        let begun = Instant::now();
        for _ in 0..STATS {
            black_box(self.fs.metadata(black_box("a/b/c/d")).unwrap());
        }
        let mean = begun.elapsed() / STATS;
        fs::remove_dir_all(tree.dir.join("a")).unwrap();
        mean
    }
}

fn measure_mount(tree: &Tree, cache: &str) {
    let (program, options) = if cache == "shared" {
        let options = Options { coherent: true, ..Options::default() };
        let mut program = in_group(tree, &[]);
        program.args.extend(options.daemon_args());
        (program, options)
    } else {
        (in_group(tree, &[&format!("--cache={cache}")]), Options::default())
    };
    let other = Library::connect(tree, library_program(tree, CacheMode::Shared), CacheMode::Shared);
    let name = format!("mount, {cache}");
    with_mount(&tree.dir, program, options, |at| {
        measure(&name, tree, || tree.work_in(at), &|tree| {
            if cache == "shared" { other.change(tree) } else { change_on_host(tree) }
        })
    })
}

fn measure_virtiofsd(tree: &Tree) {
    let Some(program) =
        Cache::locate().ok().and_then(|cache| peer::existing(&cache, peer::Build::Release)).map(Program::new)
    else {
        println!("SKIPPED: there is no virtiofsd in the cache; `transom-fetch peer` builds it");
        return;
    };
    if tree.work == Work::Walk {
        let share = Share::builder().shared_dir(&tree.dir).daemon(program.clone()).connect().unwrap();
        let fs = Fs::mount(share.session(SessionConfig::default()).unwrap(), CacheOptions::default());
        measure("library, virtiofsd auto", tree, || walk_library(&fs, ""), &change_on_host);
    }
    with_mount(&tree.dir, program, Options::default(), |at| {
        measure("mount, virtiofsd auto", tree, || tree.work_in(at), &change_on_host);
    });
}

/// Mounts `dir` for as long as `work` takes, or says why that cannot be.
fn with_mount(dir: &Path, program: Program, options: Options, work: impl FnOnce(&Path)) {
    let at = tempfile::tempdir().unwrap();
    let source = Share::builder().shared_dir(dir).daemon(program);
    match Mount::start(source, at.path(), options) {
        Ok(mut mount) => {
            work(at.path());
            mount.unmount().unwrap();
        }
        Err(error) => println!("SKIPPED: a mount: {error}"),
    }
}

/// Prints a row of the table.
fn measure(name: &str, tree: &Tree, walk: impl Fn() -> (usize, usize), change: &dyn Fn(&Tree)) {
    tree.set_back();
    let timed = || {
        let begun = Instant::now();
        let (files, changed) = walk();
        let time = begun.elapsed();
        assert_eq!(files, tree.files.len(), "{name}");
        (time, changed)
    };
    let first = timed().0;
    let full = (0..FULL_RUNS).map(|_| timed().0).min().unwrap();
    change(tree);
    thread::sleep(PAUSE);
    let (third, right) = timed();
    let [first, second, third] = [first, full, third].map(|time| format!("{:.1} ms", time.as_secs_f64() * 1e3));
    println!("{name:26} {right:>5} / {CHANGES} {first:>11} {second:>11} {third:>11}");
}

fn change_on_host(tree: &Tree) {
    for file in tree.changed() {
        fs::File::options().write(true).open(tree.dir.join(file)).unwrap().set_len(CHANGED).unwrap();
    }
}

/// Returns the number of files, and of those that are changed.
fn walk_kernel(dir: &Path) -> (usize, usize) {
    let (mut files, mut changed) = (0, 0);
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            let below = walk_kernel(&path);
            (files, changed) = (files + below.0, changed + below.1);
        } else {
            (files, changed) = (files + 1, changed + usize::from(found.size() == CHANGED));
        }
    }
    (files, changed)
}

/// The same by the library, with whole paths.
fn walk_library(fs: &Fs<Process>, dir: &str) -> (usize, usize) {
    let (mut files, mut changed) = (0, 0);
    for entry in fs.read_dir(if dir.is_empty() { "." } else { dir }).unwrap() {
        let path = format!("{dir}{}", String::from_utf8(entry.unwrap().name).unwrap());
        let found = fs.symlink_metadata(&path).unwrap();
        if found.is_dir() {
            let below = walk_library(fs, &format!("{path}/"));
            (files, changed) = (files + below.0, changed + below.1);
        } else {
            (files, changed) = (files + 1, changed + usize::from(found.len() == CHANGED));
        }
    }
    (files, changed)
}
