//! RELEASE and RELEASEDIR.

use transom_wire::{Handle, ops::release::ReleaseIn};

use crate::passthrough::Passthrough;

impl Passthrough {
    pub(in crate::passthrough) fn do_release(&self, arg: &ReleaseIn) {
        self.handles.remove(Handle::from(arg.fh));
    }
}
