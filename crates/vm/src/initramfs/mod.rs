//! The guest's first file system: the agent as `/init`, its setup, the modules, and the tools of the minimal root.
//!
//! It is not compressed, since the guest would have to unpack it under emulation.

mod archive;
mod trim;

use std::{
    fs::File,
    io::{self, BufWriter},
    path::Path,
    process::{Command, Stdio},
};

use archive::Archive;

use crate::{
    Error, Result,
    kernel::Module,
    protocol::{EVENTS_PATH, SETUP_PATH, Setup},
};

/// Directories that serve as mount points, or that programs expect.
const FOLDERS: [&str; 9] = ["dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "var"];

/// The contents of the initramfs, except the setup.
#[derive(Debug)]
pub(crate) struct Content<'a> {
    /// The executable that becomes `/init`.
    pub(crate) agent: &'a Path,
    /// The executable that becomes [`EVENTS_PATH`].
    pub(crate) events: Option<&'a Path>,
    /// Loaded in this order.
    pub(crate) modules: &'a [Module],
    /// The static busybox, if `/` is the initramfs and there is one.
    pub(crate) busybox: Option<&'a Path>,
}

impl Content<'_> {
    /// Returns the path of each module within the initramfs.
    pub(crate) fn module_paths(&self) -> Vec<String> {
        self.modules.iter().map(|module| format!("/modules/{}.ko", module.name)).collect()
    }

    /// Writes the initramfs to `path`; returns its size in bytes.
    pub(crate) fn write(&self, path: &Path, setup: &Setup) -> Result<u64> {
        let agent = std::fs::read(self.agent).map_err(Error::io(format!("cannot read the agent {:?}", self.agent)))?;
        let read = |path: &Path| std::fs::read(path).map_err(Error::io(format!("cannot read {path:?}")));
        let events = self.events.map(read).transpose()?.map(trim::without_sections);
        let busybox = match self.busybox {
            Some(path) => Some((
                std::fs::read(path).map_err(Error::io(format!("cannot read busybox {path:?}")))?,
                applets(path).map_err(Error::io(format!("cannot list the tools of busybox {path:?}")))?,
            )),
            None => None,
        };
        self.write_all(path, &trim::without_sections(agent), events.as_deref(), busybox, setup)
            .map_err(Error::io(format!("cannot write the initramfs {path:?}")))
    }

    fn write_all(
        &self,
        path: &Path,
        agent: &[u8],
        events: Option<&[u8]>,
        busybox: Option<(Vec<u8>, Vec<String>)>,
        setup: &Setup,
    ) -> io::Result<u64> {
        let mut archive = Archive::new(BufWriter::new(File::create(path)?));
        for folder in FOLDERS {
            archive.folder(folder)?;
        }
        // The kernel opens this for process 1 before anything is mounted.
        archive.device("dev/console", 5, 1)?;
        archive.file("init", 0o755, agent)?;
        if let Some(events) = events {
            archive.file(EVENTS_PATH, 0o755, events)?;
        }
        archive.file(SETUP_PATH, 0o600, &serde_json::to_vec(setup)?)?;
        for (module, path) in self.modules.iter().zip(self.module_paths()) {
            archive.file(&path, 0o644, &module.image)?;
        }
        if let Some((busybox, applets)) = busybox {
            archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
            archive.file("etc/group", 0o644, b"root:x:0:\n")?;
            archive.file("bin/busybox", 0o755, &busybox)?;
            for applet in applets.iter().filter(|path| path.as_str() != "bin/busybox") {
                archive.link(applet, "/bin/busybox")?;
            }
        }
        let file = archive.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(file.metadata()?.len())
    }
}

/// Returns the paths of busybox's applets, such as `bin/sh`.
fn applets(busybox: &Path) -> io::Result<Vec<String>> {
    let output = Command::new(busybox).arg("--list-full").stdin(Stdio::null()).output()?;
    let list = String::from_utf8_lossy(&output.stdout);
    let paths: Vec<_> = list.lines().map(|path| path.trim_start_matches('/').to_owned()).collect();
    if output.status.success() && paths.iter().any(|path| path == "bin/sh") {
        Ok(paths)
    } else {
        Err(io::Error::other(format!("it lists {} tools without bin/sh", paths.len())))
    }
}
