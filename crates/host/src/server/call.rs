//! One operation as the server hands it to a file system: [`Call`] in, what [`Serve::serve`] returns out.

use transom_wire::{NodeId, Operation};

use super::{
    Context,
    answer::Answer,
    decode::{Payload, Strings},
};
use crate::Errno;

/// An operation whose request and reply this server knows how to read and write: every one of the table.
pub trait Served: Operation<Names: Strings, Rest: Payload, Reply: Answer> {}
impl<O: Operation<Names: Strings, Rest: Payload, Reply: Answer>> Served for O {}

/// One request, taken apart as its row of the table says.
///
/// Names are checked, and structures are copies that the guest cannot change any more; file data are buffers that it
/// can.
pub struct Call<'a, O: Served> {
    /// The caller.
    pub ctx: Context<'a>,
    /// The inode that the operation is about; for names, their directory.
    pub nodeid: NodeId,
    /// The arguments. A size that the reply may have is already cut to the room that there is.
    pub arg: O::Args,
    /// The name or names.
    pub name: <O::Names as Strings>::Value<'a>,
    /// What follows the names: a value, file data, or a list.
    pub rest: <O::Rest as Payload>::Value<'a>,
    /// Where a reply goes that is too long to be returned: file data or entries.
    pub out: <O::Reply as Answer>::Sink<'a>,
}

/// Serves the operation `O`.
pub trait Serve<O: Served> {
    /// Does what `call` asks. Called from many threads at once.
    ///
    /// # Errors
    /// The errno that the guest sees. An operation that is not implemented answers ENOSYS, after which Linux does not
    /// ask again.
    fn serve(&self, call: Call<'_, O>) -> Result<<O::Reply as Answer>::Value, Errno> {
        let _ = call;
        Err(Errno::NOSYS)
    }
}
