//! Guests under User Mode Linux, with every daemon that is there: ours and the peer.
//!
//! This program is also the guests' first process and the command that runs in them, so that nothing else is needed.
//! Prints a line for each case, and the sum.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use transom_vm::{
    GuestSpec, Input, Kernel, Output, Root, RunOutcome, Share, Stdio, agent, build,
    packages::{Cache, Freshness, OnStderr, Packages},
    peer, run,
    uml::Uml,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Case = fn(&Path, &Path) -> Result<()>;

/// The variable that makes this program the command in a guest.
const ROLE: &str = "TRANSOM_TEST_ROLE";

const CASES: [(&str, Case); 5] = [
    ("a directory is listed as on the host", lists_a_directory),
    ("input and output pass unchanged, whatever the bytes", passes_bytes),
    ("the exit status is the command's", passes_the_exit_status),
    ("a write arrives on the host", writes_a_file),
    ("two shares, one read-only", mounts_two_shares),
];

fn main() -> ExitCode {
    agent::run_if_init();
    if let Some(role) = env::var_os(ROLE) {
        return play(&role.to_string_lossy());
    }
    let kernel = match kernel() {
        Ok(kernel) => kernel,
        Err(error) => {
            println!("SKIPPED: no kernel of User Mode Linux: {error}");
            println!("0 passed, 0 failed, 1 skipped");
            return ExitCode::SUCCESS;
        }
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, daemon) in daemons() {
        let Some(daemon) = daemon else {
            println!("SKIPPED: {name} is not there");
            skipped += 1;
            continue;
        };
        for (what, case) in CASES {
            let begun = Instant::now();
            match case(&kernel, &daemon) {
                Ok(()) => {
                    println!("ok   {name}: {what} ({} ms)", begun.elapsed().as_millis());
                    passed += 1;
                }
                Err(error) => {
                    println!("FAIL {name}: {what}: {error}");
                    failed += 1;
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn kernel() -> Result<PathBuf> {
    let cache = Cache::locate()?;
    Ok(build::uml_kernel(&Packages::new(&cache, &OnStderr::default()), Freshness::Cached)?)
}

/// The daemons to run against: ours, if it was built, and the peer, if it is there.
fn daemons() -> [(&'static str, Option<PathBuf>); 2] {
    let beside = env::current_exe().ok().and_then(|path| Some(path.parent()?.parent()?.join("transomd")));
    let peer = Cache::locate().ok().and_then(|cache| peer::existing(&cache, peer::Build::Packaged));
    [("transomd", beside.filter(|path| path.is_file())), ("virtiofsd", peer)]
}

fn lists_a_directory(kernel: &Path, daemon: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let share = share(folder.path())?;
    fs::create_dir(share.host.join("folder"))?;
    for number in 0..300 {
        fs::write(share.host.join(format!("file {number:03}")), "")?;
    }
    let mut expected: Vec<_> = fs::read_dir(&share.host)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    expected.sort();

    let outcome = run(&spec(kernel, daemon, vec![share], "list", vec![]), &Uml)?;
    equal("names", &String::from_utf8(outcome.stdout)?, &(expected.join("\n") + "\n"))?;
    equal("exit status", &outcome.exit_code, &0)
}

fn passes_bytes(kernel: &Path, daemon: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    // Every byte after every other, so that none is taken for a sign to the terminal.
    let bytes: Vec<u8> = (0..=255_u8).flat_map(|first| (0..=255).flat_map(move |second| [first, second])).collect();
    let outcome = run(&spec(kernel, daemon, vec![share(folder.path())?], "copy", bytes.clone()), &Uml)?;
    equal("exit status", &outcome.exit_code, &0)?;
    equal("bytes of standard output", &outcome.stdout.len(), &bytes.len())?;
    equal("standard output is the input", &(outcome.stdout == bytes), &true)?;
    equal("standard error is the input, backwards", &outcome.stderr.iter().rev().eq(&bytes), &true)
}

fn passes_the_exit_status(kernel: &Path, daemon: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let outcome = run(&spec(kernel, daemon, vec![share(folder.path())?], "fail", vec![]), &Uml)?;
    equal("exit status", &outcome.exit_code, &42)
}

fn writes_a_file(kernel: &Path, daemon: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let share = share(folder.path())?;
    let host = share.host.clone();
    let input = b"a line\n".repeat(10_000);
    no_warnings(&run(&spec(kernel, daemon, vec![share], "write", input.clone()), &Uml)?)?;
    equal("the file is the input", &(fs::read(host.join("written"))? == input), &true)
}

fn mounts_two_shares(kernel: &Path, daemon: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let first = share(folder.path())?;
    let second = folder.path().join("second");
    fs::create_dir(&second)?;
    fs::write(second.join("there"), "")?;
    let read_only = Share { host: second, guest: "/mnt/second".into(), is_read_only: true, ..first.clone() };
    let outcome = run(&spec(kernel, daemon, vec![first, read_only], "second", vec![]), &Uml)?;
    equal("answer", &String::from_utf8(outcome.stdout)?, &"there; Read-only file system (os error 30)\n".into())
}

fn no_warnings(outcome: &RunOutcome) -> Result<()> {
    equal("exit status", &outcome.exit_code, &0)?;
    equal("warnings", &outcome.warnings, &Vec::new())
}

/// A share with this program in it.
fn share(folder: &Path) -> Result<Share> {
    let host = folder.join("share");
    fs::create_dir(&host)?;
    fs::copy(env::current_exe()?, host.join("program"))?;
    Ok(Share {
        host,
        guest: "/mnt/share".into(),
        is_read_only: false,
        cache: None,
        dax: None,
        version_table: None,
        layer: None,
        directory: None,
        daemon_args: env::var_os("TRANSOM_TEST_DAEMON_ARG").into_iter().collect(),
    })
}

fn spec(kernel: &Path, daemon: &Path, shares: Vec<Share>, role: &str, input: Vec<u8>) -> GuestSpec {
    GuestSpec {
        kernel: Kernel { image: kernel.to_owned(), modules: None },
        agent: env::current_exe().unwrap_or_default(),
        events: None,
        daemon: daemon.to_owned(),
        busybox: None,
        root: Root::Minimal,
        shares,
        command: vec!["/mnt/share/program".into()],
        env: vec![(ROLE.into(), role.into())],
        memory_mib: 128,
        cpus: 1,
        scratch: None,
        stdio: Stdio {
            stdin: Input::Bytes(input),
            stdout: Output::Capture,
            stderr: Output::Capture,
            is_terminal: false,
        },
        timeout: None,
        console: env::var_os("TRANSOM_TEST_CONSOLE").map(PathBuf::from),
        snapshots: None,
        directory: None,
        user: None,
        network: transom_vm::network::Network::Off,
        is_foreground: false,
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<()> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, not {expected:?}").into()) }
}

/// The command in the guest.
fn play(role: &str) -> ExitCode {
    let played = match role {
        "list" => list(),
        "copy" => copy(),
        "write" => write(),
        "second" => second(),
        _ => return ExitCode::from(42),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> io::Result<()> {
    let mut names = fs::read_dir(".")?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    names.iter().try_for_each(|name| writeln!(io::stdout(), "{}", name.to_string_lossy()))
}

fn copy() -> io::Result<()> {
    let mut bytes = input()?;
    io::stdout().write_all(&bytes)?;
    io::stdout().flush()?;
    bytes.reverse();
    io::stderr().write_all(&bytes)
}

fn write() -> io::Result<()> {
    fs::write("written", input()?)
}

fn second() -> io::Result<()> {
    let names = fs::read_dir("/mnt/second")?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let refused =
        fs::write("/mnt/second/new", "").err().map_or_else(|| "not refused".into(), |error| error.to_string());
    writeln!(
        io::stdout(),
        "{}; {refused}",
        names.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(" ")
    )
}

fn input() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    Ok(bytes)
}
