//! A daemon that keeps to the supervisor's protocol only as far as a test wants: this test program, which a script
//! starts in the executable's place.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process, thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg},
};
use transom_daemon::{
    listen::{self, Supervision},
    upgrade::control::{Answer, Control, Order, VERSION as CONTROL_VERSION},
};
use transom_frontend::message::{HEADER_LEN, NEED_REPLY, REPLY, VERSION, header, request, u64s};

use crate::launch::Bench;

/// The kind of the last packet of a session.
const END: u8 = 3;
/// What the fake does, and its arguments.
const BEHAVIOUR: &str = "TRANSOM_FAKE_BEHAVIOUR";
const ARGUMENTS: &str = "TRANSOM_FAKE_ARGUMENTS";
/// The directory in which it and the test leave files for each other.
const PLACE: &str = "TRANSOM_FAKE_PLACE";

/// Replaces the bench's executable by a fake with this behaviour.
pub(crate) fn install(bench: &Bench, behaviour: &str) {
    let script = bench.path().join("fake");
    fs::write(&script, format!("#!/bin/sh\n{}", start(bench, behaviour))).unwrap();
    bench.replace_executable(&script);
    fs::remove_file(script).unwrap();
}

/// Returns the shell command that becomes a fake with this behaviour.
pub(crate) fn start(bench: &Bench, behaviour: &str) -> String {
    let program = env::current_exe().unwrap();
    format!(
        "{ARGUMENTS}=\"$*\" {BEHAVIOUR}={behaviour} {PLACE}='{}' exec '{}' --ignored --exact fake::case_daemon \
         --nocapture --test-threads=1 >/dev/null\n",
        bench.path().display(),
        program.display()
    )
}

/// Waits until `path` is there.
pub(crate) fn wait_for(path: &Path) {
    while !path.exists() {
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
#[ignore = "the fake, which other tests start"]
fn case_daemon() {
    let arguments = env::var(ARGUMENTS).unwrap();
    let (_, by) = arguments.split_once("--supervised=").unwrap();
    let (listening, Supervision { control, .. }) = listen::supervised(&by.parse().unwrap()).unwrap();
    let fake = Fake { behaviour: env::var(BEHAVIOUR).unwrap(), place: env::var_os(PLACE).unwrap().into() };
    if fake.is("nonsense") {
        rustix::net::send(&control, b"what?", SendFlags::NOSIGNAL).unwrap();
        // It does not end by itself.
        let _ = control.receive_order();
    }
    control.answer(&Answer::Ready(CONTROL_VERSION)).unwrap();
    let listener = listening.listener.try_clone().unwrap();
    let front_end = fake.clone();
    thread::spawn(move || front_end.serve(&listener));
    fake.obey(&control);
    process::exit(0);
}

#[derive(Debug, Clone)]
struct Fake {
    behaviour: String,
    place: PathBuf,
}

impl Fake {
    fn is(&self, behaviour: &str) -> bool {
        self.behaviour == behaviour
    }

    /// Leaves the file `name`, and waits for the file `go`.
    fn wait_at(&self, name: &str) {
        fs::write(self.place.join(name), "").unwrap();
        wait_for(&self.place.join("go"));
    }

    fn obey(&self, control: &Control) {
        while let Ok(Some(order)) = control.receive_order() {
            let has_begun = matches!(order, Order::Begin);
            match order {
                Order::TakeOver(_) if self.is("escapes") => {
                    control.answer(&Answer::Refused("\u{1b}]0;owned\u{7}\r\nline".into())).unwrap();
                    continue;
                }
                Order::HandOver(_) | Order::Check if self.is("silent") => continue,
                Order::End => return,
                Order::TakeOver(session) => receive(&session),
                Order::Check | Order::HandOver(_) | Order::Begin => {}
            }
            control.answer(&Answer::Done).unwrap();
            if has_begun && self.is("flood") {
                flood(control);
            }
        }
    }

    fn serve(&self, listener: &UnixListener) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; HEADER_LEN];
        while stream.read_exact(&mut head).is_ok() {
            let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
            let (number, flags) = (field(0), field(4));
            let mut payload = vec![0; field(8) as usize];
            stream.read_exact(&mut payload).unwrap();
            self.act(number, &mut stream);
            let reply = match number {
                request::GET_FEATURES | request::GET_PROTOCOL_FEATURES => Some(u64s(&[u64::MAX])),
                request::GET_VRING_BASE => Some(payload),
                _ if flags & NEED_REPLY != 0 => Some(u64s(&[0])),
                _ => None,
            };
            if let Some(reply) = reply {
                stream.write_all(&[header(number, VERSION | REPLY, reply.len()), reply].concat()).unwrap();
            }
        }
    }

    /// Does what the behaviour has for a message of the front end.
    fn act(&self, number: u32, stream: &mut UnixStream) {
        match number {
            request::SET_VRING_ENABLE if self.is("ends-when-enabled") => process::exit(7),
            request::SET_VRING_ENABLE if self.is("hangs-when-enabled") => thread::sleep(Duration::from_secs(600)),
            request::SET_VRING_KICK if self.is("ends-when-started") => process::exit(7),
            request::GET_PROTOCOL_FEATURES if self.is("slow-set-up") => self.wait_at("set-up"),
            request::GET_VRING_BASE if self.is("slow-stop") => self.wait_at("stopping"),
            request::SET_VRING_KICK if self.is("slow-stop") && self.place.join("stopping").exists() => {
                fs::write(self.place.join("restarted"), "").unwrap();
            }
            request::SET_VRING_ENABLE if self.is("flood") => flood_front_end(stream),
            _ => {}
        }
    }
}

/// Receives a session, whose last packet is one byte, and drops it.
fn receive(session: &OwnedFd) {
    let mut packet = vec![0; 64 << 10];
    while !matches!(recv(session, &mut packet, RecvFlags::empty()), Ok((0, _)) | Err(_)) {
        if packet[0] == END {
            return;
        }
    }
}

/// Sends packets with descriptors that nobody has asked for, for as long as they are taken, and ignores orders.
fn flood(control: &Control) {
    let file = fs::File::open("/dev/null").unwrap();
    let descriptors = [file.as_fd(); 64];
    loop {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = [std::io::IoSlice::new(&[b'd'; 4096])];
        // A supervisor that was killed would otherwise leave this process behind, with the output that the test reads.
        if let Err(Errno::PIPE | Errno::CONNRESET) = sendmsg(control, &bytes, &mut ancillary, SendFlags::NOSIGNAL) {
            return;
        }
    }
}

/// Sends replies that nobody has asked for: more than sockets hold before any reply that was asked for, and then for as
/// long as they are taken.
fn flood_front_end(stream: &mut UnixStream) {
    const AT_FIRST: usize = 1000;
    let reply = [header(request::GET_CONFIG, VERSION | REPLY, 4096), vec![0; 4096]].concat();
    (0..AT_FIRST).for_each(|_| stream.write_all(&reply).unwrap());
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || while stream.write_all(&reply).is_ok() {});
}
