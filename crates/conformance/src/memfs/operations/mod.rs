//! Every operation, on the tree.

mod attributes;
mod directories;
mod files;
mod locks;
mod names;

use transom_host::{
    Errno,
    server::{End, FileSystem, InitAnswer, InitOffer},
};
use transom_wire::{Unique, limits::DATA_LEN_MAX, ops::init::InitFlags};

use super::MemFs;

impl FileSystem for MemFs {
    fn init(&self, _: &InitOffer) -> Result<InitAnswer, Errno> {
        Ok(InitAnswer {
            flags: InitFlags::all() & !(InitFlags::WRITEBACK_CACHE | InitFlags::PASSTHROUGH | InitFlags::OVER_IO_URING),
            max_readahead: DATA_LEN_MAX,
            max_background: 64,
            congestion_threshold: 48,
            max_write: DATA_LEN_MAX,
            time_gran: 1,
            max_pages: (DATA_LEN_MAX / 4096) as u16,
            map_alignment: 0,
        })
    }

    fn destroy(&self, _: End) {
        let mut state = self.lock();
        state.handles.clear();
        state.tree.end_session();
        state.waiting.interrupt(|_| true);
        self.changed.notify_all();
    }

    fn interrupt(&self, unique: Unique) {
        self.lock().waiting.interrupt(|waiting| waiting == unique.0);
        self.changed.notify_all();
    }

    fn interrupt_all(&self) {
        self.stall.change(|stalled| stalled.wakes += 1);
        self.lock().waiting.interrupt(|_| true);
        self.changed.notify_all();
    }
}

transom_host::unserved!(
    MemFs,
    except Lookup Forget BatchForget Readlink Symlink Mknod Mkdir Unlink Rmdir Rename Rename2 Link
        Getattr Setattr Statfs Statx Access Setxattr Getxattr Listxattr Removexattr
        Open Create Tmpfile Release Read Write Fsync Flush Fallocate Lseek CopyFileRange CopyFileRange64 Syncfs
        Opendir Readdir Readdirplus Releasedir Fsyncdir Getlk Setlk Setlkw Interrupt
);
