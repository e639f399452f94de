//! What this machine tells about the daemon at a socket, without connecting: whether somebody uses it, and whether it
//! stays after its front end has left.

use std::{ffi::OsString, fs, os::unix::ffi::OsStrExt as _, path::Path};

/// States in `/proc/net/unix` of the daemon's end of a connection: before the daemon has accepted it, and after.
const CONNECTED: [&[u8]; 2] = [b"02", b"03"];

/// Returns whether a front end is connected to the daemon at `path`. If this cannot be found out, returns false.
pub(super) fn is_in_use(path: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    fs::read(Path::new("/proc/net/unix")).is_ok_and(|table| has_connection(&table, path.as_os_str().as_bytes()))
}

/// Returns whether the daemon at `path` ends with its front end. The daemon's process id is in `PATH.pid`.
pub(super) fn ends_with_front_end(path: &Path) -> bool {
    let mut file = OsString::from(path);
    file.push(".pid");
    let Ok(pid) = fs::read_to_string(file) else { return false };
    let Ok(pid) = pid.trim().parse::<u32>() else { return false };
    let Ok(words) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    !words.split(|&byte| byte == 0).any(|word| word == b"--keep-serving")
}

/// Returns whether `table`, the text of `/proc/net/unix`, has a connection to the socket at `path`.
fn has_connection(table: &[u8], path: &[u8]) -> bool {
    table.split(|&byte| byte == b'\n').any(|line| {
        // The path is last, may have spaces, and begins after seven columns.
        let state = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).nth(5);
        state.is_some_and(|state| CONNECTED.contains(&state))
            && line.strip_suffix(path).is_some_and(|head| head.ends_with(b" "))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_connection_is_seen_from_its_beginning_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a socket");
        let listener = UnixListener::bind(&path).unwrap();
        assert!(!is_in_use(&path));
        let front_end = UnixStream::connect(&path).unwrap();
        assert!(is_in_use(&path));
        let accepted = listener.accept().unwrap();
        assert!(is_in_use(&path) && !is_in_use(&folder.path().join("socket")));
        drop((front_end, accepted));
        assert!(!is_in_use(&path));
    }

    #[test]
    fn a_daemon_without_a_number_is_not_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(!ends_with_front_end(&path));
        fs::write(folder.path().join("socket.pid"), format!("{}\n", std::process::id())).unwrap();
        assert!(ends_with_front_end(&path), "this process was not started with --keep-serving");
    }
}
