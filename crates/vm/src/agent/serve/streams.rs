//! The streams of one command of several.

use std::{
    fs::File,
    io::{self, PipeReader, Read as _, Write as _},
    sync::{Arc, mpsc::Receiver},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::ioctl_fionread,
};

use crate::keep::{
    credit::Credit,
    frame::{DATA_MAX, Frame, Kind},
};

/// Returns what ends the input of a command.
pub(super) fn at_end(is_terminal: bool) -> &'static [u8] {
    if is_terminal { super::command::END_OF_TRANSMISSION } else { b"" }
}

/// Copies frames to the command's input until their end, and then writes `at_end`. `taken` is told how many bytes of
/// frames were passed on. A command that reads no more loses the rest.
pub(super) fn input(frames: Receiver<Frame>, to: File, at_end: &[u8], taken: impl Fn(usize)) {
    let mut to = Some(to);
    for frame in frames {
        if to.as_mut().is_some_and(|to| to.write_all(&frame.payload).is_err()) {
            to = None;
        }
        taken(frame.len());
    }
    if let Some(mut to) = to {
        let _ = to.write_all(at_end);
    }
}

/// An output of a command.
pub(super) struct Output {
    pub(super) from: File,
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) credit: Arc<Credit>,
    /// Closed when the command has ended: what it has left running does not hold up its end.
    pub(super) end: Option<PipeReader>,
}

impl Output {
    /// Sends what the command writes, until its end or until nobody wants it. What others write later is read and
    /// thrown away, so that they can go on.
    pub(super) fn copy(mut self, send: impl Fn(Frame) -> io::Result<()>) {
        let mut chunk = vec![0; DATA_MAX];
        // How much is left of what the command has written, once it has ended.
        let mut left = None;
        // Without credit the stream is closed, so that the command learns of it as it would on the host.
        while let Some(room) = self.credit.wait() {
            if left.is_none() && self.has_ended() {
                left = Some(ioctl_fionread(&self.from).unwrap_or(0) as usize);
            }
            if left == Some(0) {
                thread::spawn(move || io::copy(&mut self.from, &mut io::sink()));
                return;
            }
            let room = left.map_or(room, |left| room.min(left));
            let len = match self.from.read(&mut chunk[..room]) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The last process has left the terminal.
                Err(_) => 0,
            };
            let frame = Frame::data(self.number, self.kind, &chunk[..len]);
            self.credit.spend(frame.len());
            if len == 0 || send(frame).is_err() {
                return;
            }
            left = left.map(|left| left - len);
        }
    }

    /// Waits until there is something to read or the command has ended. Returns whether it has ended.
    fn has_ended(&self) -> bool {
        let Some(end) = &self.end else { return false };
        loop {
            let mut fds = [PollFd::new(&self.from, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                _ => return !fds[1].revents().is_empty(),
            }
        }
    }
}
