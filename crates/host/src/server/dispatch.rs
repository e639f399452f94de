//! Maps the number of an operation to its implementation, for every operation of the table.
//!
//! Checks the room for the reply before anything is done, so that no operation takes effect whose reply cannot be
//! sent.

use std::cell::Cell;

use transom_wire::{
    Opcode, Operation, U32, U64, all_operations,
    operation::{self, Shape},
    own_changes::Trailer,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes, KnownLayout, Unaligned};

use super::{
    Call, Changing, End, FileSystem, Noted, Serve, Server,
    answer::Answer,
    call::Served,
    decode::{Payload, Strings},
    reply::Reply,
    request::Request,
};
use crate::Errno;

/// Calls the implementation of an operation: the server's for operations of the session, the file system's for others.
macro_rules! dispatch {
    ([$server:expr, $opcode:expr, $req:expr, $reply:expr]
        session $($session:ident)*; requests $($request:ident)*
    ) => {
        match $opcode {
            $(Opcode::$session => Control::<operation::$session>::control($server, $req, $reply),)*
            $(Opcode::$request => $server.run::<operation::$request>($req, $reply),)*
        }
    };
}

/// An operation of the session, which the server implements.
trait Control<O: Operation> {
    fn control(&self, req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno>;
}

impl<F: FileSystem> Control<operation::Init> for Server<F> {
    fn control(&self, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let blocking = req.context.blocking;
        reply.send(&self.session.begin(&self.fs, req.rest(), blocking)?)
    }
}

impl<F: FileSystem> Control<operation::Destroy> for Server<F> {
    fn control(&self, req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        self.session.end(&self.fs, End::Destroy, req.context.blocking)?;
        reply.empty()
    }
}

impl<F: FileSystem> Server<F> {
    /// Serves one request. The caller has checked the room in the row with [`Reply::need`].
    pub(super) fn dispatch(&self, opcode: Opcode, req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        all_operations!(dispatch [self, opcode, req, reply])
    }

    /// Parses a request according to its row, has it served, and sends the reply.
    fn run<O: Served>(&self, mut message: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno>
    where
        F: Serve<O>,
    {
        let mut arg = self.arguments::<O>(&mut message)?;
        let rest_size = O::ROW.rest_size_at.map_or(0, |at| word(&mut arg, at).get() as usize);
        let mut buffers = <O::Rest as Payload>::Buffers::default();
        O::Rest::find(&message, rest_size, &mut buffers)?;
        // The sink lives as long as this function, and so must what the call borrows from the request.
        let mut req = message;
        let size = match (O::ROW.reply_size_at, O::Reply::SIZE_MAX) {
            (Some(at), Some(size_max)) => {
                let wanted = word(&mut arg, at);
                let size = reply.room_up_to(wanted.get().min(size_max));
                *wanted = (size as u32).into();
                size
            }
            (None, _) | (_, None) => 0,
        };
        let mut room = <O::Reply as Answer>::Room::default();
        O::Reply::make_room(&mut room, reply, size);
        let name = O::Names::take(&mut req)?;
        let rest = O::Rest::take(&mut req, rest_size, &buffers)?;
        let out = O::Reply::sink(&mut room);
        for &at in O::ROW.nodeids {
            let nodeid: &mut U64 = field(&mut arg, at);
            *nodeid = self.fs.own_nodeid((*nodeid).into()).into();
        }
        let noted = self.fs.is_journaled().then(|| (arg, O::Names::names(&name)));
        let noted = noted.as_ref().map(|(args, names)| Noted {
            row: O::ROW,
            unique: req.context.unique,
            nodeid: req.nodeid,
            args: args.as_bytes(),
            names: *names,
        });
        if let Some(noted) = &noted {
            self.fs.note_before(noted)?;
        }
        let nodeid = self.fs.own_nodeid(req.nodeid);
        let call: Call<'_, O> = Call { ctx: req.context, nodeid, arg, name, rest, out };
        let may_raise = !O::ROW.changes.is_empty() && matches!(O::ROW.reply, Shape::Fixed(_));
        let has_trailer = may_raise && self.session.has_own_changes();
        let trailer = has_trailer.then(|| Cell::new(Trailer::default()));
        let mut value = if O::ROW.changes.is_empty() {
            self.fs.serve(call)?
        } else {
            let (args, names, nodeid) = (call.arg, O::Names::names(&call.name), call.nodeid);
            let (unique, blocking) = (call.ctx.unique, call.ctx.blocking);
            let (args, own_changes) = (args.as_bytes(), trailer.as_ref());
            let changing = Changing { row: O::ROW, unique, nodeid, args, names, blocking, own_changes };
            self.fs.changing(&changing, || self.fs.serve(call))?
        };
        if let Some(nodeid) = O::Reply::nodeid(&mut value) {
            *nodeid = self.fs.drivers_nodeid((*nodeid).into()).into();
        }
        if let Some(noted) = &noted {
            let nodeid = O::Reply::nodeid(&mut value).map(|nodeid| (*nodeid).into());
            self.fs.note_after(noted, nodeid, O::Reply::handle(&value));
        }
        O::Reply::send(value, &room, size, reply)?;
        if let Some(trailer) = &trailer {
            reply.append_if_room(trailer.get().as_bytes());
        }
        Ok(())
    }

    /// Returns the arguments. Without SETXATTR_EXT, a session sends only their first part.
    fn arguments<O: Operation>(&self, req: &mut Request<'_>) -> Result<O::Args, Errno> {
        match O::ROW.compat_len {
            Some(len) if !self.session.has_setxattr_ext() => {
                let mut arg = O::Args::new_zeroed();
                arg.as_mut_bytes()[..len].copy_from_slice(req.bytes(len)?);
                Ok(arg)
            }
            _ => req.take(),
        }
    }
}

/// Returns the word at an offset in the arguments, according to the table.
fn word<T: FromBytes + IntoBytes>(arg: &mut T, at: usize) -> &mut U32 {
    field(arg, at)
}

/// Returns the field at an offset in the arguments, according to the table.
fn field<T: FromBytes + IntoBytes, W: FromBytes + IntoBytes + KnownLayout + Unaligned>(
    arg: &mut T,
    at: usize,
) -> &mut W {
    let (field, _) = W::mut_from_prefix(&mut arg.as_mut_bytes()[at..]).expect("fields lie within their structure");
    field
}
