//! A program in C, compiled, linked with the static library, and run against the daemon.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// What a static library of Rust's needs (`rustc --print native-static-libs`).
const SYSTEM_LIBRARIES: [&str; 6] = ["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lrt", "-lc"];

/// transomd, killed when the test ends.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // Fails if it has already ended with its front end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The directory in which cargo has put this test's executable.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn daemon(share: &Path, socket: &Path) -> Daemon {
    let program = built().parent().unwrap().join("transomd");
    assert!(program.is_file(), "{} is not built: `cargo build --workspace` does", program.display());
    let mut command = Command::new(program);
    command.arg("--socket-path").arg(socket).arg("--shared-dir").arg(share).stderr(Stdio::null());
    let mut daemon = Daemon(command.spawn().unwrap());
    while !socket.exists() {
        assert!(daemon.0.try_wait().unwrap().is_none(), "transomd has ended");
        thread::sleep(Duration::from_millis(10));
    }
    daemon
}

/// Returns the newest static library: cargo leaves those of earlier builds.
fn library() -> PathBuf {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libtransom_c") && name.ends_with(".a")
    };
    let files = fs::read_dir(built()).unwrap().map(|entry| entry.unwrap().path()).filter(is_library);
    files.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).expect("cargo builds the static library")
}

#[test]
fn a_program_in_c_uses_a_share() {
    let dir = tempfile::tempdir().unwrap();
    let (share, program, socket) = (dir.path().join("share"), dir.path().join("cat"), dir.path().join("socket"));
    fs::create_dir(&share).unwrap();
    fs::write(share.join("hello"), "hello from the host\n").unwrap();
    fs::set_permissions(share.join("hello"), fs::Permissions::from_mode(0o644)).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(here.join("include"));
    compiler.arg(here.join("tests/program/cat.c")).arg(library()).args(SYSTEM_LIBRARIES).arg("-o").arg(&program);
    let Ok(output) = compiler.output() else { return println!("SKIPPED: there is no C compiler, cc") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let _daemon = daemon(&share, &socket);
    let output = Command::new(program).arg(&socket).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = "hello: 20 bytes, mode 100644\nhello from the host\nmade/renamed, of type 8, 7 letters\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!(fs::read(share.join("made/renamed")).unwrap(), b"\0\0\0by C\n");
}

/// The functions that the header declares are those that the library has.
#[test]
fn the_header_declares_every_function() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(here.join("include/transom.h")).unwrap();
    let mut exported = Vec::new();
    for file in fs::read_dir(here.join("src")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let names = text.split("pub unsafe extern \"C\" fn ").skip(1).map(|rest| rest.split('(').next().unwrap());
        exported.extend(names.map(str::to_owned));
    }
    let declares = |name: &str| header.lines().any(|line| line.contains(&format!(" {name}(")));
    let absent: Vec<_> = exported.iter().filter(|name| !declares(name)).collect();
    assert!(exported.len() > 20 && absent.is_empty(), "{absent:?}");
    let declared = header.lines().filter(|line| !line.starts_with([' ', '/', '#'])).filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        before.rsplit(' ').next().filter(|name| name.starts_with("transom_"))
    });
    let unknown: Vec<_> = declared.filter(|name| !exported.iter().any(|known| known == name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
