//! The process of a caller: reads requests, performs them and answers. Its child does the same for requests to the
//! child.
//!
//! It has one thread, so that locks, descriptors and credentials are those of a process and fork(2) is safe. It exits,
//! together with its child, once nobody can send it requests any more, even if the program that started it has died.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
};

use serde::{Deserialize, Serialize};

use super::{
    operation::{Operation, Process},
    outcome::Outcome,
    perform::Actor,
};
use crate::{
    client::{Errno, Identity},
    syscalls::{
        self,
        child::{self, Ending},
    },
};

/// An operation and the process that is to do it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) process: Process,
    pub(super) operation: Operation,
}

/// Becomes user `id` of group `id`, and serves requests from standard input until its end.
///
/// Errors: this process may not become that user, or who asks breaks off.
pub fn serve(id: u32) -> anyhow::Result<()> {
    if id != 0 {
        syscalls::become_user(&Identity { uid: id, gid: id, groups: Vec::new() })?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut first = First::default();
    answer_all(&mut io::stdin().lock(), &mut io::stdout().lock(), |request| first.answer(request))?;
    Ok(())
}

/// Answers each line until the end of the input.
fn answer_all(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    mut answer: impl FnMut(Request) -> io::Result<Outcome>,
) -> io::Result<()> {
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let outcome = answer(serde_json::from_str(&line)?)?;
        send(output, &outcome)?;
        line.clear();
    }
    Ok(())
}

/// Writes a value as one line.
pub(super) fn send(output: &mut (impl Write + ?Sized), value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// A caller's first process.
#[derive(Default)]
struct First {
    actor: Actor,
    child: Option<Child>,
}

/// Its child, as the first process has it.
struct Child {
    process: child::Child,
    stream: BufReader<UnixStream>,
}

impl First {
    fn answer(&mut self, request: Request) -> io::Result<Outcome> {
        match (&request, &mut self.child) {
            (Request { operation: Operation::Fork, process: Process::First }, None) => self.fork(),
            (Request { operation: Operation::Exit, .. }, child) => {
                Ok(child.take().map_or_else(Outcome::nothing, Child::end))
            }
            (Request { process: Process::First, operation }, _) => Ok(self.actor.perform(operation)),
            (Request { process: Process::Child, .. }, Some(child)) => child.ask(&request),
            (Request { process: Process::Child, .. }, None) => Ok(Outcome::nothing()),
        }
    }

    fn fork(&mut self) -> io::Result<Outcome> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut ours = Some(ours);
        let actor = &mut self.actor;
        let forked = child::Child::fork(|| {
            // Else the child would keep its own stream from ending.
            ours = None;
            let mut input = BufReader::new(&theirs);
            // Without its parent, nobody is there to be told.
            let _ = answer_all(&mut input, &mut &theirs, |request| Ok(actor.perform(&request.operation)));
        });
        match (forked, ours) {
            (Ok(process), Some(stream)) => {
                self.child = Some(Child { process, stream: BufReader::new(stream) });
                Ok(Outcome::ok())
            }
            (Err(errno), _) => Ok(Outcome::error(errno)),
            (Ok(_), None) => Ok(Outcome::error(Errno::CHILD)),
        }
    }
}

impl Child {
    fn ask(&mut self, request: &Request) -> io::Result<Outcome> {
        send(self.stream.get_mut(), request)?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Ends it and waits for that; what it had open is closed then.
    fn end(self) -> Outcome {
        drop(self.stream);
        match self.process.wait() {
            Ending::Exit(0) => Outcome::ok(),
            other => Outcome::ok().with("ending", format!("{other:?}")),
        }
    }
}
