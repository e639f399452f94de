//! The references that a server has granted by its replies, and those that it was told to forget.

use std::collections::BTreeMap;

use transom_wire::{
    Opcode, U64,
    dirent::{DirentPlus, padded_len},
    header::InHeader,
    operation::{Effect, Shape},
    ops::forget::{BatchForgetIn, ForgetIn, ForgetOne},
};
use zerocopy::FromBytes;

/// The root is never counted; nodeid 0 means that there is no inode.
const ROOT: u64 = 1;

#[derive(Default)]
pub(super) struct Ledger(BTreeMap<u64, u64>);

impl Ledger {
    /// Takes a reply without error whose body is this.
    pub(super) fn replied(&mut self, opcode: Opcode, body: &[u8]) {
        let row = opcode.row();
        if row.effect == Effect::Lists {
            self.listed(body);
        }
        // Of a body that is too short nothing is taken. A longer one ends with a trailer, for which there was room.
        if let Some(at) = row.reply_nodeid_at
            && matches!(row.reply, Shape::Fixed(len) if len <= body.len())
            && let Ok((nodeid, _)) = U64::read_from_prefix(&body[at..])
        {
            self.count(nodeid.get());
        }
    }

    /// Counts the entries as far as there are whole ones.
    fn listed(&mut self, mut rest: &[u8]) {
        const HEAD: usize = size_of::<DirentPlus>();
        while let Ok((head, behind)) = DirentPlus::read_from_prefix(rest) {
            let name_len = head.dirent.namelen.get() as usize;
            let Some(name) = behind.get(..name_len) else { break };
            if name != b"." && name != b".." {
                self.count(head.entry.nodeid.get());
            }
            rest = rest.get(padded_len(HEAD, name_len)..).unwrap_or_default();
        }
    }

    fn count(&mut self, nodeid: u64) {
        if nodeid > ROOT {
            *self.0.entry(nodeid).or_default() += 1;
        }
    }

    /// Takes a FORGET or BATCH_FORGET.
    pub(super) fn told(&mut self, message: &[u8]) {
        let (header, arg) = InHeader::read_from_prefix(message).expect("a message has a header");
        assert_eq!(header.len.get() as usize, message.len());
        if header.opcode == Opcode::Forget as u32 {
            let arg = ForgetIn::read_from_bytes(arg).expect("FORGET has its arguments");
            self.forget(header.nodeid.get(), arg.nlookup.get());
        } else if header.opcode == Opcode::BatchForget as u32 {
            let (arg, list) = BatchForgetIn::read_from_prefix(arg).expect("BATCH_FORGET has its arguments");
            assert_eq!(list.len(), arg.count.get() as usize * size_of::<ForgetOne>());
            for one in list.chunks_exact(size_of::<ForgetOne>()) {
                let one = ForgetOne::read_from_bytes(one).expect("the chunks have its length");
                self.forget(one.nodeid.get(), one.nlookup.get());
            }
        } else {
            assert_eq!(header.opcode, Opcode::Interrupt as u32, "not for the high-priority queue");
        }
    }

    fn forget(&mut self, nodeid: u64, nlookup: u64) {
        let count = self.0.entry(nodeid).or_default();
        assert!(nlookup >= 1 && nlookup <= *count, "{nlookup} of {count} references to {nodeid} are forgotten");
        *count -= nlookup;
    }

    pub(super) fn check_settled(&self) {
        for (nodeid, count) in &self.0 {
            assert_eq!(*count, 0, "references to {nodeid} are never forgotten");
        }
    }
}
