//! READDIRPLUS.

use transom_wire::{Handle, NodeId, attr::EntryOut};

use crate::{
    Errno,
    operation::Readdirplus,
    passthrough::{Passthrough, gate::Stopwatch},
    server::{Call, Serve},
};

impl Serve<Readdirplus> for Passthrough {
    fn serve(&self, call: Call<'_, Readdirplus>) -> Result<(), Errno> {
        let (blocking, parent, entries) = (call.ctx.blocking, call.nodeid, call.out);
        let stream = self.handles.directory(Handle::from(call.arg.fh))?;
        let dir = self.inodes.get(parent)?;
        let mut watch = Stopwatch::default();
        let mut reader = stream.reader(call.arg.offset.get(), blocking)?;
        loop {
            let entry = match self.next_entry(&mut reader, blocking, entries.is_empty(), &mut watch) {
                Ok(None) => return Ok(()),
                Ok(Some(entry)) => entry,
                Err(_) if !entries.is_empty() => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let step = entry.step();
            if !self.is_listed(&stream.listing, &entry) {
                reader.advance(step);
                continue;
            }
            if entries.has_room(entry.name).is_err() {
                return if entries.is_empty() { Err(Errno::INVAL) } else { Ok(()) };
            }
            let mut found = match entry.name {
                b"." | b".." => EntryOut::default(),
                name => match self.entry_of(parent, &dir, name, blocking, &mut watch) {
                    Ok(found) => found,
                    Err(Errno::AGAIN) if entries.is_empty() => return Err(Errno::AGAIN),
                    Err(Errno::AGAIN) => return Ok(()),
                    // Whatever is wrong with this entry, its name exists: the guest looks it up by itself.
                    Err(_) => EntryOut::default(),
                },
            };
            let ino = self.shown_ino(&stream, entry);
            let nodeid = NodeId::from(found.nodeid);
            found.nodeid = self.aliases.guests(nodeid).into();
            if entries.push(&found, ino, entry.off, entry.type_.into(), entry.name).is_err() {
                // There was room a moment ago. Undo the lookup all the same.
                self.forget(nodeid, 1);
                return Ok(());
            }
            reader.advance(step);
        }
    }
}
