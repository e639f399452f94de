//! One end of the channel `network`: the streams that are open, and the threads that move their bytes.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use super::{
    frame::{Frame, PAYLOAD_MAX, invalid},
    stream::Stream,
};

/// The most streams at a time. Each takes two threads and up to [`WINDOW`](super::stream::WINDOW) bytes on the host.
pub(crate) const STREAMS_MAX: usize = 256;
/// The stack of a thread, which has its buffer on the heap.
pub(crate) const STACK_LEN: usize = 128 << 10;

/// The open streams, and the way to the peer.
#[derive(Debug)]
pub(crate) struct Link {
    /// A frame is written at once. A writer may wait here for the peer; readers of the channel never write.
    channel: Mutex<File>,
    streams: Mutex<HashMap<u32, Arc<Stream>>>,
}

impl Link {
    pub(crate) fn new(channel: File) -> Arc<Self> {
        Arc::new(Self { channel: Mutex::new(channel), streams: Mutex::default() })
    }

    /// Sends a frame; blocks while the peer takes none.
    pub(crate) fn send(&self, frame: Frame<'_>) -> io::Result<()> {
        let bytes = frame.to_bytes();
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes)
    }

    /// Adds a stream; [`relay`](Self::relay) connects it. Does not block.
    ///
    /// # Errors
    ///
    /// Returns an error if there are [`STREAMS_MAX`] already, or one with this number.
    pub(crate) fn open(&self, number: u32) -> io::Result<()> {
        let mut streams = self.streams();
        if streams.len() >= STREAMS_MAX || streams.contains_key(&number) {
            return Err(invalid(format!("stream {number} beside {} others", streams.len())));
        }
        streams.insert(number, Arc::new(Stream::new()));
        Ok(())
    }

    /// Applies what the peer has sent for a stream. Does not block. Frames of other kinds are returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer broke the protocol.
    pub(crate) fn apply<'a>(&self, frame: Frame<'a>) -> io::Result<Option<Frame<'a>>> {
        match frame {
            Frame::Data { stream, bytes } => self.stream(stream)?.receive(bytes)?,
            Frame::End { stream, is_reset } => self.stream(stream)?.receive_end(is_reset)?,
            // Credit for the last bytes may cross the end.
            Frame::Credit { stream, bytes } => {
                if let Ok(stream) = self.stream(stream) {
                    stream.add_credit(bytes)?;
                }
            }
            Frame::Open { .. } | Frame::Closed { .. } | Frame::Denied { .. } => return Ok(Some(frame)),
        }
        Ok(None)
    }

    /// Forgets a stream. Returns whether there was one.
    pub(crate) fn remove(&self, number: u32) -> bool {
        self.streams().remove(&number).is_some()
    }

    /// Ends all streams, because the channel has ended.
    pub(crate) fn close(&self) {
        let streams: Vec<_> = self.streams().drain().map(|(_, stream)| stream).collect();
        streams.iter().for_each(|stream| stream.abort());
    }

    /// Moves the bytes of an open stream between channel and `socket` until both directions have ended. Without a
    /// socket, resets the stream. Blocks.
    pub(crate) fn relay(&self, number: u32, socket: Option<TcpStream>) {
        let Ok(stream) = self.stream(number) else { return };
        let socket = socket.filter(|socket| stream.connect(socket).is_ok());
        match &socket {
            Some(socket) => thread::scope(|scope| {
                let incoming = || self.to_socket(number, &stream, Some(socket));
                let builder = thread::Builder::new().name("network".into()).stack_size(STACK_LEN);
                let is_spawned = builder.spawn_scoped(scope, incoming).is_ok();
                self.to_channel(number, &stream, is_spawned.then_some(socket));
                if !is_spawned {
                    self.to_socket(number, &stream, None);
                }
            }),
            None => {
                self.to_channel(number, &stream, None);
                self.to_socket(number, &stream, None);
            }
        }
        stream.disconnect();
    }

    /// Moves what the socket receives to the peer, and sends the end of it.
    fn to_channel(&self, number: u32, stream: &Stream, socket: Option<&TcpStream>) {
        let mut is_reset = true;
        if let Some(mut socket) = socket {
            let mut chunk = vec![0; PAYLOAD_MAX];
            while let Some(credit) = stream.wait_for_credit(PAYLOAD_MAX) {
                match socket.read(&mut chunk[..credit]) {
                    Ok(0) => {
                        is_reset = stream.has_failed();
                        break;
                    }
                    Ok(len) => {
                        stream.use_credit(len);
                        if self.send(Frame::Data { stream: number, bytes: &chunk[..len] }).is_err() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        // If the channel has ended, so have all streams.
        let _ = self.send(Frame::End { stream: number, is_reset });
    }

    /// Moves what the peer sends to the socket, until the peer's end. What cannot be written is dropped.
    fn to_socket(&self, number: u32, stream: &Stream, socket: Option<&TcpStream>) {
        let mut chunk = vec![0; PAYLOAD_MAX];
        let mut open = socket;
        while let Some(len) = stream.take(&mut chunk) {
            if let Some(mut socket) = open
                && socket.write_all(&chunk[..len]).is_err()
            {
                // The thread that reads from it tells the peer.
                stream.fail();
                open = None;
            }
            let bytes = u32::try_from(len).expect("a chunk has at most PAYLOAD_MAX bytes");
            if stream.allow(len) && self.send(Frame::Credit { stream: number, bytes }).is_err() {
                break;
            }
        }
        if let Some(socket) = open {
            let _ = socket.shutdown(Shutdown::Write);
        }
    }

    fn stream(&self, number: u32) -> io::Result<Arc<Stream>> {
        self.streams().get(&number).cloned().ok_or_else(|| invalid(format!("no stream has the number {number}")))
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u32, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
