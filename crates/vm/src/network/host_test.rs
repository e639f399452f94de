//! The host's end against an agent of the tests, which sends whatever a guest can send.

use std::{
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{
    Policy, Refused,
    frame::{self, Frame, PAYLOAD_MAX},
    host,
    link::STREAMS_MAX,
    stream::WINDOW,
};

/// The guest's end of a channel whose other end is served.
struct Agent {
    channel: File,
    policy: Arc<Policy>,
    buffer: Vec<u8>,
}

impl Agent {
    fn new(hosts: &[String]) -> Self {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let policy = Arc::new(Policy::new(hosts, Vec::new()).unwrap());
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        host::serve(theirs, Arc::clone(&policy)).unwrap();
        Self { channel: File::from(ours), policy, buffer: Vec::new() }
    }

    fn send(&mut self, frame: Frame<'_>) {
        self.channel.write_all(&frame.to_bytes()).unwrap();
    }

    fn open(&mut self, stream: u32, host: &str, port: u16) {
        self.send(Frame::Open { stream, port, host });
    }

    fn next(&mut self) -> Frame<'_> {
        frame::read(&mut self.channel, &mut self.buffer).unwrap().unwrap()
    }

    /// Takes frames of stream 1 until its end, gives credit for the data and returns it.
    fn data(&mut self) -> Vec<u8> {
        let mut data = Vec::new();
        loop {
            let len = match self.next() {
                Frame::Data { stream: 1, bytes } => {
                    data.extend_from_slice(bytes);
                    bytes.len() as u32
                }
                Frame::Credit { .. } => continue,
                Frame::End { stream: 1, is_reset: false } => return data,
                other => panic!("{other:?}"),
            };
            self.send(Frame::Credit { stream: 1, bytes: len });
        }
    }

    /// Waits until the host has refused something, which it tells after its frames.
    fn refused(&self) -> Vec<Refused> {
        loop {
            match self.policy.refused() {
                refused if refused.is_empty() => thread::yield_now(),
                refused => return refused,
            }
        }
    }
}

/// A server on this machine that sends back what it gets, in capitals, and then its end.
fn server() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn bytes_pass_in_both_directions_until_both_have_ended() {
    let (listener, port) = server();
    let sent: Vec<u8> = (0..3 * WINDOW).map(|number| number as u8).collect();
    let expected = sent.clone();
    let echo = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        socket.read_to_end(&mut received).unwrap();
        socket.write_all(&received).unwrap();
        received
    });
    let mut agent = Agent::new(&[format!("127.0.0.1:{port}")]);
    agent.open(1, "127.0.0.1", port);
    let mut credit = WINDOW;
    for chunk in sent.chunks(PAYLOAD_MAX) {
        while credit < chunk.len() {
            match agent.next() {
                Frame::Credit { stream: 1, bytes } => credit += bytes as usize,
                other => panic!("{other:?}"),
            }
        }
        credit -= chunk.len();
        agent.send(Frame::Data { stream: 1, bytes: chunk });
    }
    agent.send(Frame::End { stream: 1, is_reset: false });
    let returned = agent.data();
    assert_eq!(echo.join().unwrap(), expected);
    assert!(returned == expected);
    while agent.next() != (Frame::Closed { stream: 1 }) {}
    assert_eq!(agent.policy.refused(), []);
}

#[test]
fn what_is_not_allowed_is_refused_whatever_the_guest_says() {
    let (listener, port) = server();
    let other = port ^ 1;
    let mut agent = Agent::new(&[format!("localhost:{port}"), format!("*.example.invalid:{port}")]);
    let asked = [("localhost", other), ("127.0.0.1", port), ("::1", port), ("LOCALHOST", port), ("a b", port)];
    for (stream, (host, port)) in (0..).zip(asked) {
        agent.open(stream, host, port);
        assert_eq!(agent.next(), Frame::End { stream, is_reset: true });
        agent.send(Frame::End { stream, is_reset: true });
        assert_eq!(agent.next(), Frame::Closed { stream });
    }
    let refused = agent.policy.refused();
    assert_eq!(refused.len(), asked.len());
    assert!(refused.iter().all(|refused| refused.reason == "not allowed" && refused.count == 1), "{refused:?}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

#[test]
fn a_guest_that_breaks_the_protocol_loses_its_connections() {
    let (listener, port) = server();
    let chunk = vec![0; PAYLOAD_MAX];
    let data = Frame::Data { stream: 1, bytes: &chunk };
    let cases: [&[Frame<'_>]; 7] = [
        &[Frame::Data { stream: 9, bytes: b"x" }],
        &[Frame::Open { stream: 1, port, host: "127.0.0.1" }],
        &[Frame::Credit { stream: 1, bytes: 1 }],
        &[Frame::End { stream: 1, is_reset: false }, Frame::Data { stream: 1, bytes: b"x" }],
        &[Frame::End { stream: 1, is_reset: false }, Frame::End { stream: 1, is_reset: false }],
        &[Frame::Closed { stream: 1 }],
        // The server takes nothing, so that credit never comes back for more than its socket holds.
        &[data; 1024],
    ];
    for frames in cases {
        let mut agent = Agent::new(&[format!("127.0.0.1:{port}")]);
        agent.open(1, "127.0.0.1", port);
        let (mut socket, _) = listener.accept().unwrap();
        for frame in frames {
            // The host closes the channel at the first one that is wrong.
            let _ = agent.channel.write_all(&frame.to_bytes());
        }
        let refused = agent.refused();
        assert!(refused[0].reason.contains("broke the protocol"), "{refused:?}");
        // Its connection ends, whatever has arrived.
        let _ = socket.read_to_end(&mut Vec::new());
    }
    let mut agent = Agent::new(&[format!("127.0.0.1:{port}")]);
    agent.channel.write_all(&[0xff; 64]).unwrap();
    assert!(agent.refused()[0].reason.contains("broke the protocol"));
}

#[test]
fn there_are_never_more_connections_than_allowed() {
    let (listener, port) = server();
    let accepted = thread::spawn(move || {
        let sockets: Vec<TcpStream> = (0..STREAMS_MAX).map(|_| listener.accept().unwrap().0).collect();
        listener.set_nonblocking(true).unwrap();
        (sockets, listener)
    });
    let mut agent = Agent::new(&[format!("127.0.0.1:{port}")]);
    (0..STREAMS_MAX as u32).for_each(|stream| agent.open(stream, "127.0.0.1", port));
    let (sockets, listener) = accepted.join().unwrap();
    agent.open(STREAMS_MAX as u32, "127.0.0.1", port);
    assert!(agent.refused()[0].reason.contains(&format!("beside {STREAMS_MAX} others")));
    assert!(listener.accept().is_err());
    for mut socket in sockets {
        assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
    }
}
