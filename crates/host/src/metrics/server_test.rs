use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::metrics::Metrics;
use transom_metrics::Gauges;

fn server() -> (tempfile::TempDir, PathBuf, MetricsServer) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.sock");
    let server = MetricsServer::bind(&path, source()).unwrap();
    (dir, path, server)
}

fn source() -> impl Fn() -> Snapshot + Send + Sync + 'static {
    let metrics = Metrics::new();
    move || metrics.snapshot(Gauges::default())
}

fn ask(path: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_and_json_are_served_and_nothing_else() {
    let (_dir, path, _server) = server();
    let text = ask(&path, b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"));
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    assert!(body.starts_with("# HELP transom_build Version of the daemon.\n") && body.ends_with("# EOF\n"));
    let json = ask(&path, b"GET /json HTTP/1.0\n\n");
    let report = Report::parse(json.split_once("\r\n\r\n").unwrap().1.as_bytes()).unwrap();
    assert_eq!(report.layout, 1);
    assert!(ask(&path, b"GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404 "));
    assert!(ask(&path, b"POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 405 "));
    assert!(ask(&path, b"\xff\xfe\n\n").starts_with("HTTP/1.0 400 "));
    assert!(ask(&path, &vec![b'x'; REQUEST_LEN_MAX]).starts_with("HTTP/1.0 400 "));
    let many_headers = format!("GET /json HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(HEADER_COUNT_MAX + 1));
    assert!(ask(&path, many_headers.as_bytes()).starts_with("HTTP/1.0 400 "));
}

#[test]
fn the_socket_is_private_and_removed_with_the_server() {
    let (_dir, path, server) = server();
    assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let busy = MetricsServer::bind(&path, source()).unwrap_err();
    assert_eq!(busy.kind(), io::ErrorKind::AddrInUse);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_file_is_not() {
    let (dir, path, server) = server();
    drop(server);
    drop(UnixListener::bind(&path).unwrap());
    let server = MetricsServer::bind(&path, source()).unwrap();
    assert!(ask(&path, b"GET /metrics HTTP/1.0\r\n\r\n").contains("200 OK"));
    drop(server);
    let file = dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert_eq!(MetricsServer::bind(&file, source()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn silent_clients_are_bounded_and_others_are_served_when_they_leave() {
    let (_dir, path, _server) = server();
    let mut silent: Vec<UnixStream> = (0..CONNECTIONS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
    // The next one is closed without an answer, and the others still wait.
    let mut turned_away = UnixStream::connect(&path).unwrap();
    assert_eq!(turned_away.read(&mut [0; 1]).unwrap(), 0);
    // One silent client leaves. Its slot is free as soon as its thread has noticed.
    silent.pop();
    let answer = loop {
        let mut stream = UnixStream::connect(&path).unwrap();
        // Sending fails if the connection was closed first.
        let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        let mut answer = String::new();
        if stream.read_to_string(&mut answer).is_ok() && !answer.is_empty() {
            break answer;
        }
    };
    assert!(answer.starts_with("HTTP/1.0 200 OK"));
}
