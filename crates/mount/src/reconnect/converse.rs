//! Questions of our own to a daemon that nobody else uses yet: as many are under way as there are slots.

use std::{collections::HashMap, time::Duration};

use rustix::io::Errno;
use transom_wire::{Opcode, header::InHeader};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use super::inodes::DaemonNode;
use crate::{InitError, lane::Lane, negotiate::Deadline, sleep::Sleep};

/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The number of each of our requests; the kernel's are not under way yet.
pub(super) const UNIQUE: u64 = 1 << 63;

/// A request of our own.
pub(super) struct Question {
    pub(super) opcode: Opcode,
    pub(super) node: DaemonNode,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) args: Vec<u8>,
}

/// Questions of which each answer may lead to others.
pub(super) trait Questions {
    type Job;

    /// Nothing while there is none, or none until an answer comes.
    fn next(&mut self) -> Option<(Self::Job, Question)>;

    /// `answer` is what follows the header.
    fn answered(&mut self, job: Self::Job, answer: Result<Vec<u8>, Errno>);
}

impl Lane {
    /// Asks until there is nothing more to ask.
    ///
    /// Errors: the connection's, and [`InitError::Unready`] where the daemon fails for want of something that another attempt may
    /// find: nothing is concluded from that.
    pub(super) fn converse<Q: Questions>(&mut self, sleep: &mut Sleep, questions: &mut Q) -> Result<(), InitError> {
        let mut jobs = HashMap::new();
        loop {
            while self.slots.has_free()
                && let Some((job, question)) = questions.next()
                && let Some(slot) = self.slots.take()
            {
                self.post(slot, &question.message());
                jobs.insert(slot, job);
            }
            if jobs.is_empty() {
                return Ok(());
            }
            let (slot, answer) = self.await_answer(sleep)?;
            if let Err(errno) = answer
                && is_passing(errno)
            {
                return Err(InitError::Unready(errno));
            }
            if let Some(job) = jobs.remove(&slot) {
                questions.answered(job, answer);
            }
        }
    }

    pub(super) fn post(&mut self, slot: u16, message: &[u8]) {
        let Ok((header, _)) = InHeader::read_from_prefix(message) else { return };
        self.memory.memory.write(self.slots.request(slot), message);
        self.send(slot, &header, message.len());
    }

    /// The next answer, and whose it is. Errors: none came.
    pub(super) fn await_answer(&mut self, sleep: &mut Sleep) -> Result<(u16, Result<Vec<u8>, Errno>), InitError> {
        let used = self.await_reply(sleep, &Deadline::new(ANSWER_MAX))?;
        let len = self.in_flight[usize::from(used.cookie)].len;
        let answer = self.read_answer(used, len).map_err(|error| match error {
            InitError::Refused(errno) => errno,
            _ => Errno::IO,
        });
        self.in_flight[usize::from(used.cookie)].is_under_way = false;
        self.slots.give(used.cookie);
        Ok((used.cookie, answer))
    }
}

impl Question {
    pub(super) fn new(opcode: Opcode, node: DaemonNode, args: Vec<u8>) -> Self {
        Self { opcode, node, uid: 0, gid: 0, args }
    }

    fn message(&self) -> Vec<u8> {
        let header = InHeader {
            len: ((size_of::<InHeader>() + self.args.len()) as u32).into(),
            opcode: (self.opcode as u32).into(),
            unique: UNIQUE.into(),
            nodeid: self.node.0.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            ..InHeader::new_zeroed()
        };
        [header.as_bytes(), &self.args].concat()
    }
}

/// Whether that says nothing of what was asked about.
fn is_passing(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NOBUFS | Errno::MFILE | Errno::NFILE | Errno::TIMEDOUT
    )
}
