//! IOCTL, restricted to requests whose number encodes their size.

use transom_wire::{Handle, NodeId, Opcode, U32, U64, operation::Ioctl, ops::ioctl::IoctlIn};

use crate::{
    Errno, Platform,
    channel::{Sink, Source},
    session::{Caller, Plain, Session},
};

/// The largest size that a request's number can encode, in either direction, in bytes.
const DATA_LEN_MAX: usize = (1 << 14) - 1;

impl<P: Platform> Session<P> {
    /// Sends the request `cmd` with its data to the open file `fh`. Returns the result of ioctl(2) and the number of
    /// bytes of `out` that were filled.
    ///
    /// `flags` is 0 or [`IOCTL_DIR`](transom_wire::ops::ioctl::IOCTL_DIR), `arg` the caller's argument. Errors: ENOTTY
    /// if the server does not know IOCTL, EINVAL for more than 16383 bytes in either direction.
    #[expect(clippy::too_many_arguments, reason = "the protocol has them")]
    pub fn ioctl(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        cmd: u32,
        arg: u64,
        data: &[u8],
        out: &mut [u8],
    ) -> Result<(i32, usize), Errno> {
        if data.len().max(out.len()) > DATA_LEN_MAX {
            return Err(Errno::INVAL);
        }
        let arg = IoctlIn {
            fh: fh.into(),
            flags: flags.into(),
            cmd: cmd.into(),
            arg: U64::new(arg),
            in_size: U32::new(data.len() as u32),
            out_size: U32::new(out.len() as u32),
        };
        let mut head = Plain::<Ioctl>::new(node, caller, &arg);
        let known =
            self.if_known(Opcode::Ioctl, || self.fetch_with(caller, &mut head, Source::Bytes(data), Sink::Bytes(out)))?;
        let (reply, filled) = known.ok_or(Errno::NOTTY)?;
        Ok((reply.result.get(), filled))
    }
}
