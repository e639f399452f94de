//! The interface between server and file system for one operation: [`Call`] is the input, the result of
//! [`Serve::serve`] the output.

use transom_wire::{NodeId, Operation};

use super::{
    Context,
    answer::Answer,
    decode::{Payload, Strings},
};
use crate::Errno;

/// An operation whose request the server can parse and whose reply it can write: every operation of the table.
pub trait Served: Operation<Names: Strings, Rest: Payload, Reply: Answer> {}
impl<O: Operation<Names: Strings, Rest: Payload, Reply: Answer>> Served for O {}

/// One request, parsed according to its row of the table.
///
/// Names are checked. Structures are copies that the guest can no longer change; file data are buffers that it can.
pub struct Call<'a, O: Served> {
    /// The caller.
    pub ctx: Context<'a>,
    /// The inode of the operation; for operations on names, the directory.
    pub nodeid: NodeId,
    /// The arguments. For replies that are filled in (`out`), the size is already reduced to the room in the driver's
    /// buffers; for others it is the guest's.
    pub arg: O::Args,
    /// The name or names.
    pub name: <O::Names as Strings>::Value<'a>,
    /// What follows the names: a value, file data, or a list.
    pub rest: <O::Rest as Payload>::Value<'a>,
    /// Receives a reply that is too long to be returned: file data or entries.
    pub out: <O::Reply as Answer>::Sink<'a>,
}

/// Serves the operation `O`.
pub trait Serve<O: Served> {
    /// Performs the operation. Called from many threads at once.
    ///
    /// # Errors
    ///
    /// The errno that the guest sees. An operation that is not implemented returns ENOSYS, after which Linux does not
    /// send it again.
    fn serve(&self, call: Call<'_, O>) -> Result<<O::Reply as Answer>::Value, Errno> {
        let _ = call;
        Err(Errno::NOSYS)
    }
}
