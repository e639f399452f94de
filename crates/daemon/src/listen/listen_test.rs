//! Sockets that are there already, in the wrong place, or not sockets.

use super::*;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

/// The mode of a socket comes from the process's umask, which all tests share.
static UMASK: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn endpoint(path: &Path) -> Endpoint {
    Endpoint::Path { path: path.to_owned(), group: None }
}

#[test]
fn a_socket_is_created_for_its_owner_only_and_leaves_nothing_behind() {
    let _umask = UMASK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");

    let listening = open(&endpoint(&path)).unwrap();

    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let pid = fs::read_to_string(dir.path().join("s.pid")).unwrap();
    assert_eq!(pid, format!("{}\n", std::process::id()));
    UnixStream::connect(&path).unwrap();

    listening.traces.remove();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_group_may_connect_where_it_is_named() {
    let _umask = UMASK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let own = rustix::process::getgid().as_raw().to_string();

    let _listening = open(&Endpoint::Path { path: path.clone(), group: Some(own) }).unwrap();

    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o770);
}

#[test]
fn an_abandoned_socket_is_replaced() {
    let _umask = UMASK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // 1. A daemon that was killed leaves its socket and its pid file, unlocked.
    drop(UnixListener::bind(&path).unwrap());
    fs::write(dir.path().join("s.pid"), "999999999\n").unwrap();

    let _listening = open(&endpoint(&path)).unwrap();

    UnixStream::connect(&path).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("s.pid")).unwrap(), format!("{}\n", std::process::id()));
}

#[test]
fn a_socket_in_use_is_refused_with_its_holder() {
    let _umask = UMASK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _first = open(&endpoint(&path)).unwrap();

    let error = open(&endpoint(&path)).unwrap_err();

    assert!(error.to_string().ends_with(&format!("is in use by process {}", std::process::id())), "{error}");
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_file_at_the_path_is_left_alone() {
    let _umask = UMASK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    fs::write(&path, "precious").unwrap();

    let error = open(&endpoint(&path)).unwrap_err();

    assert!(matches!(error, ListenError::NotASocket { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert!(!dir.path().join("s.pid").exists());
}

#[test]
fn an_absent_folder_is_named() {
    let error = open(&endpoint(Path::new("/nonexistent/folder/s"))).unwrap_err();

    assert_eq!(error.to_string(), "/nonexistent/folder is not a directory, so no socket can be created in it");
}

#[test]
fn only_a_listening_socket_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // 1. A listening socket passes and accepts.
    let listener = UnixListener::bind(&path).unwrap();
    let taken = open(&Endpoint::Inherited(listener.into_raw_fd())).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    taken.listener.accept().unwrap();
    // 2. A connected one does not.
    let (one, _other) = UnixStream::pair().unwrap();
    let error = open(&Endpoint::Inherited(one.into_raw_fd())).unwrap_err();
    assert!(error.to_string().contains("connected"), "{error}");
    // 3. Nor do a file, a number that is not open, and standard output.
    let file = fs::File::open("/dev/null").unwrap();
    assert!(open(&Endpoint::Inherited(file.into_raw_fd())).unwrap_err().to_string().contains("not a socket"));
    assert!(open(&Endpoint::Inherited(99_999)).unwrap_err().to_string().contains("not open"));
    assert!(open(&Endpoint::Inherited(1)).is_err());
}
