//! READDIR, and the parts that READDIRPLUS shares with it.

use transom_wire::Handle;

use crate::{
    Errno,
    operation::Readdir,
    passthrough::{
        Passthrough,
        dir_batch::Entry,
        dir_stream::{DirStream, Reader},
        gate::Stopwatch,
    },
    server::{BlockingMode, Call, Serve},
};

impl Serve<Readdir> for Passthrough {
    fn serve(&self, call: Call<'_, Readdir>) -> Result<(), Errno> {
        let (blocking, arg, entries) = (call.ctx.blocking, &call.arg, call.out);
        let stream = self.handles.directory(Handle::from(arg.fh))?;
        let mut watch = Stopwatch::default();
        let mut reader = stream.reader(arg.offset.get(), blocking)?;
        loop {
            let entry = match self.next_entry(&mut reader, blocking, entries.is_empty(), &mut watch) {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(()),
                // Return the entries gathered so far; the rest follows with the next request.
                Err(_) if !entries.is_empty() => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let step = entry.step();
            if self.is_listed(&stream.listing, &entry) {
                let ino = self.shown_ino(&stream, entry);
                if entries.push(ino, entry.off, entry.type_.into(), entry.name).is_err() {
                    // Not even one entry fits: the buffer is too small.
                    return if entries.is_empty() { Err(Errno::INVAL) } else { Ok(()) };
                }
            }
            reader.advance(step);
        }
    }
}

impl Passthrough {
    /// Returns the stream's next entry, for a reply that has none yet if `is_first`. `None` also if there are most
    /// likely no more: the next request then finds out.
    ///
    /// # Errors
    ///
    /// EAGAIN if the host may take long, under `MustNotBlock`.
    pub(in crate::passthrough) fn next_entry<'a>(
        &self,
        reader: &'a mut Reader<'_>,
        blocking: BlockingMode,
        is_first: bool,
        watch: &mut Stopwatch,
    ) -> Result<Option<Entry<'a>>, Errno> {
        if reader.is_at_edge() {
            if !is_first && reader.is_probably_over() {
                return Ok(None);
            }
            if blocking == BlockingMode::MustNotBlock {
                return self.readdir_gate.pass_next(watch, || reader.peek()).unwrap_or(Err(Errno::AGAIN));
            }
        }
        reader.peek()
    }

    /// Returns the inode number to show for an entry of `stream`; hides that of the directory above the share.
    pub(in crate::passthrough) fn shown_ino(&self, stream: &DirStream, entry: Entry<'_>) -> u64 {
        if stream.is_root() && entry.name == b".." { self.inodes.root_ino() } else { entry.ino }
    }
}
