//! Answers the guest's questions for names (RFC 1035), over UDP and TCP.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    sync::Arc,
    thread,
    time::Duration,
};

use super::listeners::Listeners;

const PORT: u16 = 53;
/// The longest message that is read.
const MESSAGE_MAX: usize = 4096;
/// How long a client over TCP may take for a message: clients are served one after the other.
const PATIENCE: Duration = Duration::from_secs(2);
const HEADER_LEN: usize = 12;
/// A name and its address are valid as long as the guest lives.
const TTL_S: u32 = 3600;
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
/// In an answer's name: the name at this offset, which is that of the question.
const NAME_OF_QUESTION: u16 = 0xc000 | HEADER_LEN as u16;

/// Results, as numbers of RFC 1035.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Done = 0,
    ServerFailure = 2,
    NoSuchName = 3,
    NotImplemented = 4,
}

/// Serves at `address` in two threads.
pub(super) fn serve(address: IpAddr, listeners: Listeners) -> io::Result<()> {
    let socket = UdpSocket::bind((address, PORT))?;
    let listener = TcpListener::bind((address, PORT))?;
    let listeners = Arc::new(listeners);
    let shared = Arc::clone(&listeners);
    thread::Builder::new().spawn(move || {
        let mut message = [0; MESSAGE_MAX];
        loop {
            if let Ok((len, from)) = socket.recv_from(&mut message)
                && let Some(answer) = answer(&message[..len], &listeners)
            {
                let _ = socket.send_to(&answer, from);
            }
        }
    })?;
    thread::Builder::new().spawn(move || {
        loop {
            if let Ok((client, _)) = listener.accept() {
                // A client that sends nonsense loses its connection.
                let _ = serve_client(client, &shared);
            }
        }
    })?;
    Ok(())
}

/// Answers messages, each of which comes after its length, until the client has no more.
fn serve_client(mut client: TcpStream, listeners: &Listeners) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    loop {
        let mut len = [0; 2];
        client.read_exact(&mut len)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(len)).min(MESSAGE_MAX)];
        client.read_exact(&mut message)?;
        let Some(answer) = answer(&message, listeners) else { return Ok(()) };
        let mut reply = (answer.len() as u16).to_be_bytes().to_vec();
        reply.extend_from_slice(&answer);
        client.write_all(&reply)?;
    }
}

/// Returns the answer to a message, if it is a question.
fn answer(message: &[u8], listeners: &Listeners) -> Option<Vec<u8>> {
    let question = Question::parse(message)?;
    let asks_for_address = question.kind == TYPE_A && question.class == CLASS_IN;
    let (code, address) = match listeners.look_up(&question.name) {
        _ if !question.is_standard => (Code::NotImplemented, None),
        Ok(Some(address)) => (Code::Done, asks_for_address.then_some(address)),
        Ok(None) => {
            // Programs that also ask for an IPv6 address ask twice.
            if asks_for_address && !question.name.is_empty() {
                listeners.denied(&question.name);
            }
            (Code::NoSuchName, None)
        }
        Err(_) => (Code::ServerFailure, None),
    };
    Some(question.answer(code, address))
}

/// A message with one question.
#[derive(Debug)]
struct Question<'a> {
    /// The header and the question.
    bytes: &'a [u8],
    /// In lower case, without a dot at its end.
    name: String,
    kind: u16,
    class: u16,
    /// A question for a name, rather than one of the other kinds of message.
    is_standard: bool,
}

impl<'a> Question<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let header = message.get(..HEADER_LEN)?;
        let is_answer = header[2] & 0x80 != 0;
        let is_standard = header[2] & 0x78 == 0;
        if is_answer || header[4..6] != [0, 1] {
            return None;
        }
        let mut at = HEADER_LEN;
        let mut labels: Vec<String> = Vec::new();
        loop {
            let len = usize::from(*message.get(at)?);
            let label = message.get(at + 1..at + 1 + len)?;
            at += 1 + len;
            match len {
                0 => break,
                // Longer ones are pointers, which have no place in a question.
                1..=63 => labels.push(str::from_utf8(label).ok()?.to_ascii_lowercase()),
                _ => return None,
            }
        }
        let name = labels.join(".");
        let [k0, k1, c0, c1] = *message.get(at..at + 4)? else { return None };
        let is_valid = name.len() <= crate::network::frame::NAME_MAX;
        let (kind, class) = (u16::from_be_bytes([k0, k1]), u16::from_be_bytes([c0, c1]));
        is_valid.then_some(Self { bytes: &message[..at + 4], name, kind, class, is_standard })
    }

    fn answer(&self, code: Code, address: Option<Ipv4Addr>) -> Vec<u8> {
        let mut answer = self.bytes.to_vec();
        // An answer, with authority, and recursion available; what was asked for otherwise is kept.
        answer[2] = answer[2] & 0x79 | 0x84;
        answer[3] = 0x80 | code as u8;
        answer[6..HEADER_LEN].copy_from_slice(&[0, u8::from(address.is_some()), 0, 0, 0, 0]);
        if let Some(address) = address {
            for word in [NAME_OF_QUESTION, TYPE_A, CLASS_IN] {
                answer.extend_from_slice(&word.to_be_bytes());
            }
            answer.extend_from_slice(&TTL_S.to_be_bytes());
            answer.extend_from_slice(&4_u16.to_be_bytes());
            answer.extend_from_slice(&address.octets());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question as `dig` sends it, followed by an EDNS record.
    const QUESTION: &[u8] =
        b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01\x07eXample\x03ORG\0\0\x01\0\x01\0\0\x29\x10\0\0\0\0\0\0\0";

    #[test]
    fn a_question_is_answered_in_the_format_of_rfc_1035() {
        let question = Question::parse(QUESTION).unwrap();
        assert_eq!((question.name.as_str(), question.kind, question.class), ("example.org", 1, 1));
        let answer = question.answer(Code::Done, Some(Ipv4Addr::new(127, 1, 0, 2)));
        let expected: &[u8] = b"\x12\x34\x85\x80\0\x01\0\x01\0\0\0\0\x07eXample\x03ORG\0\0\x01\0\x01\
                                \xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\x7f\x01\0\x02";
        assert_eq!(answer, expected);
        let answer = question.answer(Code::NoSuchName, None);
        assert_eq!(&answer[..12], b"\x12\x34\x85\x83\0\x01\0\0\0\0\0\0");
        assert_eq!(answer.len(), 12 + 13 + 4);
    }

    #[test]
    fn what_is_no_question_is_ignored() {
        assert!(Question::parse(b"").is_none());
        for len in 0..29 {
            assert!(Question::parse(&QUESTION[..len]).is_none(), "{len}");
        }
        let mut answer = QUESTION.to_vec();
        answer[2] |= 0x80;
        assert!(Question::parse(&answer).is_none());
        let mut pointer = QUESTION.to_vec();
        pointer[12..14].copy_from_slice(&[0xc0, 12]);
        assert!(Question::parse(&pointer).is_none());
    }
}
