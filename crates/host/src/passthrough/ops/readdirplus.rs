//! READDIRPLUS.

use transom_wire::{Handle, NodeId, attr::EntryOut, ops::read::ReadIn};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Context, DirentsPlus},
};

impl Passthrough {
    pub(in crate::passthrough) fn do_readdirplus(
        &self,
        ctx: &Context<'_>,
        nodeid: NodeId,
        arg: &ReadIn,
        entries: &mut DirentsPlus,
    ) -> Result<(), Errno> {
        let stream = self.handles.directory(Handle::from(arg.fh))?;
        let dir = self.inodes.get(nodeid)?;
        let mut reader = stream.reader(arg.offset.get(), ctx.patience)?;
        loop {
            let entry = match self.next_entry(&mut reader, ctx.patience) {
                Ok(None) => return Ok(()),
                Ok(Some(entry)) => entry,
                Err(_) if !entries.is_empty() => return Ok(()),
                Err(errno) => return Err(errno),
            };
            if entries.has_room(entry.name).is_err() {
                return if entries.is_empty() { Err(Errno::INVAL) } else { Ok(()) };
            }
            let found = match entry.name {
                b"." | b".." => EntryOut::default(),
                name => match self.entry_of(nodeid, &dir, name, ctx.patience) {
                    Ok(found) => found,
                    Err(Errno::AGAIN) if entries.is_empty() => return Err(Errno::AGAIN),
                    Err(Errno::AGAIN) => return Ok(()),
                    // Whatever is wrong with one entry, its name is there: the guest looks it up by itself.
                    Err(_) => EntryOut::default(),
                },
            };
            let ino = self.shown_ino(nodeid, entry);
            if entries.push(&found, ino, entry.off, entry.type_.into(), entry.name).is_err() {
                // There was room a moment ago; the lookup is taken back all the same.
                self.do_forget(found.nodeid.into(), 1);
                return Ok(());
            }
            reader.advance();
        }
    }
}
