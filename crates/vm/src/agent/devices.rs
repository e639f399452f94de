//! The kernel modules, loaded in the order that the host worked out.

use std::{fs::File, io};

use rustix::system::finit_module;

use super::while_doing;

/// Loads the modules at `paths`. It is not an error if one is already loaded.
pub(super) fn load(paths: &[String]) -> io::Result<()> {
    for path in paths {
        let module = File::open(path).map_err(while_doing(format!("cannot open {path}")))?;
        match finit_module(&module, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(while_doing(format!("cannot load {path}"))(error)),
        }
        // Frees the guest's memory.
        std::fs::remove_file(path)?;
    }
    Ok(())
}
