//! What a guest of `transom run` can reach: with allowed hosts, with the whole network, and with neither.

mod needs;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    thread,
};

use serde_json::Value;

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
use needs::is_skipped;

const LIMIT_S: &str = "400";

/// Runs `script` with the host's programs in a guest.
fn run(arguments: &[&str], script: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["run", "--timeout", LIMIT_S, "--root", "/"]).args(arguments).args(["--", "sh", "-c", script]);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server on this machine that answers each connection with its first line and "pong", until this process ends.
fn server() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = |socket: TcpStream| {
        let mut line = String::new();
        BufReader::new(&socket).read_line(&mut line)?;
        (&socket).write_all(format!("{} pong\n", line.trim_end()).as_bytes())
    };
    thread::spawn(move || listener.incoming().flatten().for_each(|socket| drop(thread::spawn(move || answer(socket)))));
    port
}

/// A program in Python that is run in the guest: `ask(host, port)` prints what a server answers, or the error.
const ASK: &str = "
import socket, sys
def ask(host, port):
    try:
        with socket.create_connection((host, port), 60) as connection:
            connection.sendall(b'ping\\n')
            print(host, connection.makefile().readline().strip() or 'closed')
    except OSError as error:
        print(host, type(error).__name__)
";

fn python(lines: &str) -> String {
    format!("python3 - <<'END'\n{ASK}{lines}\nEND")
}

/// Returns whether the guest could run Python, which is the host's.
fn has_python(test: &str) -> bool {
    let has = Command::new("/usr/bin/python3").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has {
        eprintln!("SKIPPED: {test}: no /usr/bin/python3");
    }
    has
}

#[test]
fn allowed_hosts_are_reached_by_name_and_by_address_and_nothing_else_is() {
    const TEST: &str = "allowed_hosts_are_reached";
    if is_skipped(TEST) || !has_python(TEST) {
        return;
    }
    let (port, other) = (server(), server());
    let allow = |host: &str| format!("{host}:{port}");
    let (named, below, local) = (allow("Named.Example"), allow("*.below.example"), allow("127.0.0.1"));
    let folder = tempfile::tempdir().unwrap();
    let json = format!("--json={}", folder.path().join("result").display());
    let arguments = [
        "--allow-host",
        &named,
        "--resolve",
        "named.example:127.0.0.1",
        "--allow-host",
        &below,
        "--resolve",
        "a.below.example:127.0.0.1",
        "--allow-host",
        &local,
        &json,
    ];
    let script = python(&format!(
        "for host in 'named.example', 'a.below.example', '127.0.0.1': ask(host, {port})
ask('named.example', {other})
for host in 'below.example', 'other.example', '192.0.2.1', '10.0.2.2', 'b.below.example': ask(host, {port})
data = b'x' * 3_000_000 + b'\\n'
with socket.create_connection(('named.example', {port})) as connection:
    connection.sendall(data)
    print(sum(len(line) for line in connection.makefile('rb')))"
    ));
    let output = run(&arguments, &script);
    let error = text(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert_eq!(
        text(&output.stdout),
        "named.example ping pong\na.below.example ping pong\n127.0.0.1 ping pong\n\
         named.example ConnectionRefusedError\nbelow.example gaierror\nother.example gaierror\n\
         192.0.2.1 OSError\n10.0.2.2 OSError\nb.below.example closed\n\
         3000006\n",
        "{error}"
    );
    assert!(error.contains("network: other.example was refused"), "{error}");
    assert!(error.contains(&format!("network: b.below.example:{port} was refused")), "{error}");
    let result: Value = serde_json::from_slice(&fs::read(folder.path().join("result")).unwrap()).unwrap();
    let refused: Vec<_> = result["network_refused"].as_array().unwrap().iter().map(|one| one["host"].clone()).collect();
    let b = format!("b.below.example:{port}");
    assert_eq!(refused, [b.as_str(), "below.example", "other.example"].map(Value::from));
}

#[test]
fn many_connections_neither_hang_the_guest_nor_end_the_network() {
    const TEST: &str = "many_connections";
    if is_skipped(TEST) || !has_python(TEST) {
        return;
    }
    let port = server();
    let host = format!("localhost:{port}");
    let script = python(&format!(
        "held = []
for number in range(1000):
    try: held.append(socket.create_connection(('localhost', {port}), 60))
    except OSError: break
print(len(held) >= 256)
for connection in held: connection.close()
del held
import time
for attempt in range(600):
    with socket.create_connection(('localhost', {port}), 60) as connection:
        try:
            connection.sendall(b'ping\\n')
            if connection.makefile().readline(): break
        except OSError: pass
    time.sleep(.1)
ask('localhost', {port})"
    ));
    let output = run(&["--allow-host", &host], &script);
    assert_eq!(text(&output.stdout), "True\nlocalhost ping pong\n", "{}", text(&output.stderr));
}

#[test]
fn frames_that_a_program_of_the_guest_forges_reach_nothing() {
    const TEST: &str = "frames_that_a_program";
    if is_skipped(TEST) || !has_python(TEST) {
        return;
    }
    let allowed = server();
    let forbidden = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target = forbidden.local_addr().unwrap().port();
    let host = format!("localhost:{allowed}");
    // Root of the guest writes to the channel, beside the agent: it asks for another port, and then sends nonsense.
    let script = python(&format!(
        "import os, struct
ports = '/sys/class/virtio-ports/'
port = next(name for name in os.listdir(ports) if open(ports + name + '/name').read().strip() == 'network')
try:
    channel = os.open('/dev/' + port, os.O_RDWR)
    payload = struct.pack('<H', {target}) + b'localhost'
    os.write(channel, struct.pack('<BBHI', 1, 0, len(payload), 77) + payload)
    os.write(channel, b'\\xff' * 4096)
    print('sent')
except OSError as error:
    print('busy' if error.errno == 16 else error)"
    ));
    let output = run(&["--allow-host", &host], &script);
    let error = text(&output.stderr);
    // The kernel lets one program open a port: the agent has it.
    assert_eq!(text(&output.stdout), "busy\n", "{error}");
    forbidden.set_nonblocking(true).unwrap();
    assert!(forbidden.accept().is_err());
}

#[test]
fn without_an_option_there_is_no_network() {
    const TEST: &str = "without_an_option";
    if is_skipped(TEST) || !has_python(TEST) {
        return;
    }
    let port = server();
    let script = python(&format!(
        "print([name for _, name in socket.if_nameindex()])
for host in '10.0.2.2', '127.0.0.1', 'example.org': ask(host, {port})"
    ));
    let output = run(&[], &script);
    let expected = "['lo']\n10.0.2.2 OSError\n127.0.0.1 ConnectionRefusedError\nexample.org gaierror\n";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
}

#[test]
fn the_whole_network_is_there_whether_the_machine_boots_or_is_resumed() {
    const TEST: &str = "the_whole_network";
    if is_skipped(TEST) || !has_python(TEST) {
        return;
    }
    let help = Command::new("qemu-system-x86_64").args(["-netdev", "help"]).output().unwrap();
    if !text(&help.stdout).lines().any(|line| line == "user") {
        eprintln!("SKIPPED: {TEST}: this QEMU has no user-mode network");
        return;
    }
    let port = server();
    let script = python(&format!("ask('10.0.2.2', {port})\nprint(open('/etc/resolv.conf').read())"));
    for how in [&["--network", "--cold"][..], &["--network"], &["--network"]] {
        let output = run(how, &script);
        let expected = "10.0.2.2 ping pong\nnameserver 10.0.2.3\n\n";
        assert_eq!(text(&output.stdout), expected, "{how:?}: {}", text(&output.stderr));
    }
}

#[test]
fn user_mode_linux_reaches_allowed_hosts() {
    const TEST: &str = "user_mode_linux_reaches";
    if is_skipped(TEST) || !has_python(TEST) {
        return;
    }
    let port = server();
    let host = format!("named.example:{port}");
    let arguments = ["--vmm", "uml", "--allow-host", &host, "--resolve", "named.example:127.0.0.1"];
    let output = run(&arguments, &python(&format!("ask('named.example', {port})\nask('other.example', 80)")));
    let error = text(&output.stderr);
    if !output.status.success() && error.contains("User Mode Linux") {
        eprintln!("SKIPPED: {TEST}: {error}");
        return;
    }
    assert_eq!(text(&output.stdout), "named.example ping pong\nother.example gaierror\n", "{error}");
}

#[test]
fn options_without_effect_are_refused() {
    let refused = |arguments: &[&str], texts: &[&str]| {
        let output = run(arguments, "true");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {error}");
        texts.iter().for_each(|text| assert!(error.contains(text), "{arguments:?}: {error}"));
    };
    refused(&["--network", "--vmm", "uml"], &["User Mode Linux", "--allow-host"]);
    refused(&["--network", "--allow-host", "a.example"], &["cannot be used with"]);
    refused(&["--allow-host", "https://a.example"], &["name its host only"]);
    refused(&["--allow-host", "a.example", "--resolve", "b.example:192.0.2.1"], &["add --allow-host b.example"]);
    refused(&["--resolve", "b.example:192.0.2.1"], &["--allow-host"]);
}

#[test]
fn a_name_that_leads_to_this_machine_is_refused_with_the_way_to_allow_it() {
    const TEST: &str = "a_name_that_leads";
    if is_skipped(TEST) || !has_python(TEST) {
        return;
    }
    // The host's own name, which its resolver knows, leads to itself.
    let mut name = String::new();
    fs::File::open("/proc/sys/kernel/hostname").unwrap().read_to_string(&mut name).unwrap();
    let name = name.trim().to_ascii_lowercase();
    let known = Command::new("getent").args(["ahosts", &name]).stdout(Stdio::null()).status();
    if name == "localhost" || !known.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: {TEST}: this machine's resolver does not know its name");
        return;
    }
    let port = server();
    let output = run(&["--allow-host", &format!("{name}:{port}")], &python(&format!("ask('{name}', {port})")));
    assert_eq!(text(&output.stdout), format!("{name} closed\n"));
    let error = text(&output.stderr);
    assert!(error.contains(&format!("--resolve {name}:")), "{error}");
}
