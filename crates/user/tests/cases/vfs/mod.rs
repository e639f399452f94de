//! A guest's kernel in small, over the library's session: paths, rights, open files, processes.
//!
//! It keeps nothing that the server has told, so that what a case sees is the server's and the library's doing. The
//! bits of [`Process`] lie in a file each: [`walk`] finds, [`file`] opens and moves data, [`names`], [`attributes`],
//! [`xattrs`] and [`locks`] do what their names say, and [`client`] offers it all to the cases.

mod attributes;
mod client;
mod errno;
mod file;
mod locks;
mod names;
mod node;
mod process;
mod rights;
mod walk;
mod xattrs;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use transom_conformance::client::Identity;
use transom_guest::session::Session;
use transom_user::platform::Process as Platform;

pub(crate) use attributes::told;
pub(crate) use errno::Result;
pub(crate) use process::Process;
use walk::DirPath;

/// One mounted share.
pub(crate) struct Vfs {
    session: Arc<Session<Platform>>,
    pids: AtomicU32,
}

impl Vfs {
    pub(crate) fn new(session: Arc<Session<Platform>>) -> Self {
        // Unlike any that the host gives soon.
        Self { session, pids: 100_000.into() }
    }

    fn next_pid(&self) -> u32 {
        self.pids.fetch_add(1, Ordering::Relaxed)
    }

    /// The process that stands in the root.
    pub(crate) fn init(&self, who: Identity) -> Process<'_> {
        Process::first(self, DirPath::root(self), who)
    }

    /// A process that stands in a directory of `parent`.
    pub(crate) fn process_in(&self, parent: &Process<'_>, path: &[u8], who: Identity) -> Result<Process<'_>> {
        let place = parent.find(path, true)?.place.ok_or(transom_conformance::client::Errno::NOTDIR)?;
        Ok(Process::first(self, place, who))
    }
}
